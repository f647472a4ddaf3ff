/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_key.c - the spelling of keys: `namespace/hex` or `namespace/"text"`, with `@component`.
 */
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "kvtool.h"
#include "quantity.h"

static int
hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

/* The byte at two hex digits, or -1. */
static int
hex_byte(const char *digits)
{
    int high = hex_value(digits[0]);
    int low = high < 0 ? -1 : hex_value(digits[1]);

    return low < 0 ? -1 : high * 16 + low;
}

/* Reads hex digits up to '@' or the end. False, with a sentence: they are no bytes. */
static bool
hex_read(struct spelled_key *key, const char **at)
{
    const char *digit = *at;
    uint32_t length = 0;

    for (; *digit != '\0' && *digit != '@'; digit += 2) {
        int byte = hex_byte(digit);

        if (byte < 0) {
            complain(
                "the key %s is not hex: write pairs of hex digits, or \"text\" in quotes", *at);
            return false;
        }
        key->bytes[length++] = (uint8_t)byte;
    }
    key->key.length = length;
    *at = digit;
    return true;
}

/* Reads text behind its opening quote up to the closing one, with the escapes of kvtool.h. */
static bool
text_read(struct spelled_key *key, const char **at)
{
    const char *start = *at;
    const char *from = start;
    uint32_t length = 0;

    for (; *from != '"'; from++) {
        int byte = (unsigned char)*from;

        if (byte == '\\') {
            from++;
            byte = *from == '"' || *from == '\\' ? *from : -1;
            if (*from == 'x') {
                byte = hex_byte(from + 1);
                from += byte < 0 ? 0 : 2;
            }
        }
        if (byte < 0 || *from == '\0') {
            complain("the key \"%s has no closing quote, or an escape other than \\\" \\\\ \\xHH",
                start);
            return false;
        }
        key->bytes[length++] = (uint8_t)byte;
    }
    key->key.length = length;
    *at = from + 1;
    return true;
}

static bool
component_read(struct spelled_key *key, const char *at)
{
    uint64_t component = 0;

    if (*at == '\0')
        return true;
    if (*at != '@' || !quantity_count(at + 1, &component) || component > UINT16_MAX) {
        complain("%s is no component: write @0 to @65535", at);
        return false;
    }
    key->key.component = (uint16_t)component;
    return true;
}

static bool
rest_read(struct spelled_key *key, const char *at, bool is_text)
{
    if (is_text ? !text_read(key, &at) : !hex_read(key, &at))
        return false;
    if (key->key.length == 0 || key->key.length > KVT_KEY_BYTES_MAX) {
        complain("the key has %u bytes; it must have 1 to %u", key->key.length, KVT_KEY_BYTES_MAX);
        return false;
    }
    return component_read(key, at);
}

bool
spelled_key_read(struct spelled_key *key_out, const char *text)
{
    const char *quote = strstr(text, "/\"");
    const char *slash = quote != NULL ? quote : strrchr(text, '/');
    size_t name_length = slash == NULL ? 0 : (size_t)(slash - text);

    memset(key_out, 0, sizeof(*key_out));
    if (name_length == 0 || name_length > NAMESPACE_NAME_MAX) {
        complain(
            "%s is no key: write namespace/hex or namespace/\"text\" (the name has 1 to %d bytes)",
            text, NAMESPACE_NAME_MAX);
        return false;
    }
    memcpy(key_out->namespace_name, text, name_length);
    key_out->bytes = malloc(strlen(slash) + 1);
    if (key_out->bytes == NULL) {
        complain("there is no memory for a key of %zu bytes", strlen(slash));
        return false;
    }
    key_out->key.bytes = key_out->bytes;
    if (!rest_read(key_out, slash + (quote != NULL ? 2 : 1), quote != NULL)) {
        spelled_key_free(key_out);
        return false;
    }
    return true;
}

void
spelled_key_free(struct spelled_key *key)
{
    free(key->bytes);
    memset(key, 0, sizeof(*key));
}

char *
bytes_hex(const uint8_t *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    char *text = malloc(size * 2 + 1);

    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < size; i++) {
        text[i * 2] = digits[bytes[i] >> 4];
        text[i * 2 + 1] = digits[bytes[i] & 15];
    }
    text[size * 2] = '\0';
    return text;
}

/* Text that reads well as it is: letters, digits and the like, nothing that needs an escape. */
static bool
is_plain_text(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] < 0x20 || bytes[i] > 0x7E || bytes[i] == '"' || bytes[i] == '\\')
            return false;
    }
    return true;
}

char *
spelled_key_text(const char *namespace_name, const struct kvt_scan_entry *entry)
{
    size_t length =
        entry->key_length <= sizeof(entry->key) ? entry->key_length : sizeof(entry->key);
    size_t size = strlen(namespace_name) + length * 2 + 32;
    char *hex = bytes_hex(entry->key, length);
    char *text = malloc(size);
    int written = 0;

    if (hex == NULL || text == NULL) {
        free(hex);
        free(text);
        return NULL;
    }
    if (entry->is_hashed)
        written = snprintf(text, size, "%s/hash:%s", namespace_name, hex);
    else if (is_plain_text(entry->key, length))
        written = snprintf(
            text, size, "%s/\"%.*s\"", namespace_name, (int)length, (const char *)entry->key);
    else
        written = snprintf(text, size, "%s/%s", namespace_name, hex);
    if (entry->component != 0)
        snprintf(text + written, size - (size_t)written, "@%u", entry->component);
    free(hex);
    return text;
}
