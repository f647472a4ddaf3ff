/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_key.c - a key as somebody typed it, and numbers with units. Input: the text.
 */
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "fuzz_world.h"
#include "kvtool.h"
#include "quantity.h"

/* In the place of tools/common: nothing is printed. */
void
complain(const char *format, ...)
{
    FUZZ_REQUIRE(format[0] != '\0');
}

/* Spelled again and read again it is the same key. */
static void
again_require(const struct spelled_key *key)
{
    static struct kvt_scan_entry entry;
    struct spelled_key again;
    char *text;

    if (key->key.length > sizeof(entry.key))
        return;
    memcpy(entry.key, key->bytes, key->key.length);
    entry.key_length = (uint8_t)key->key.length;
    entry.component = key->key.component;
    text = spelled_key_text(key->namespace_name, &entry);
    FUZZ_REQUIRE(text != NULL && spelled_key_read(&again, text));
    FUZZ_REQUIRE(strcmp(again.namespace_name, key->namespace_name) == 0);
    FUZZ_REQUIRE(again.key.length == key->key.length);
    FUZZ_REQUIRE(again.key.component == key->key.component);
    FUZZ_REQUIRE(memcmp(again.bytes, key->bytes, key->key.length) == 0);
    spelled_key_free(&again);
    free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);
    struct spelled_key key;
    uint64_t number;
    double real;

    (void)fuzz_world();
    memcpy(text, bytes, size);
    text[size] = '\0';
    if (spelled_key_read(&key, text)) {
        FUZZ_REQUIRE(key.key.length >= 1 && key.key.length <= KVT_KEY_BYTES_MAX);
        again_require(&key);
        spelled_key_free(&key);
    }
    (void)quantity_count(text, &number);
    (void)quantity_size(text, &number);
    if (quantity_share(text, &real))
        FUZZ_REQUIRE(real > 0 && real <= 1000);
    if (quantity_seconds(text, &real))
        FUZZ_REQUIRE(real > 0 && real <= 86400);
    free(text);
    return 0;
}
