/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hash.c - published and independently computed vectors, key forms, CRC by both ways.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <xxhash.h>

#include "hash.h"

static void
secret_make(uint8_t secret[HASH_SECRET_BYTES])
{
    for (uint32_t i = 0; i < HASH_SECRET_BYTES; i++)
        secret[i] = (uint8_t)i;
}

static void
assert_hex(const uint8_t *bytes, size_t size, const char *hex)
{
    char text[129];

    assert_true(2 * size < sizeof(text));
    for (size_t i = 0; i < size; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(text, hex);
}

/* --- CRC32C: RFC 3720 appendix B.4, and the check value of the CRC catalogue ------------------ */

static void
crc_has_the_published_values(void **state)
{
    uint8_t zeros[32] = {0};
    uint8_t ones[32];
    uint8_t rising[32];
    uint8_t falling[32];

    (void)state;
    memset(ones, 0xFF, sizeof(ones));
    for (uint32_t i = 0; i < 32; i++) {
        rising[i] = (uint8_t)i;
        falling[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(crc32c(0, zeros, 32), 0x8A9136AA);
    assert_int_equal(crc32c(0, ones, 32), 0x62A8AB43);
    assert_int_equal(crc32c(0, rising, 32), 0x46DD794E);
    assert_int_equal(crc32c(0, falling, 32), 0x113FDB5C);
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c_portable(0, "123456789", 9), 0xE3069283);
    assert_int_equal(crc32c_portable(0, rising, 32), 0x46DD794E);
}

static void
crc_by_instruction_equals_the_portable_one_and_continues(void **state)
{
    uint8_t bytes[160];

    (void)state;
    for (uint32_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * i * 31 + 7);
    for (size_t start = 0; start < 9; start++) {
        for (size_t size = 0; start + size <= sizeof(bytes); size++) {
            uint32_t whole = crc32c(0, bytes + start, size);
            uint32_t first = crc32c(0, bytes + start, size / 3);

            assert_int_equal(whole, crc32c_portable(0, bytes + start, size));
            assert_int_equal(whole, crc32c(first, bytes + start + size / 3, size - size / 3));
        }
    }
}

/* --- XXH3-128: values of the python package `xxhash` (its own, later copy of the code) -------- */

static void
payload_hash_has_the_known_values(void **state)
{
    uint8_t bytes[1000];
    struct hash128 hash;

    (void)state;
    for (uint32_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * i % 251);
    hash = hash_payload("", 0);
    assert_true(hash.high == 0x99AA06D3014798D8u && hash.low == 0x6001C324468D497Fu);
    hash = hash_payload("a", 1);
    assert_true(hash.high == 0xA96FAF705AF16834u && hash.low == 0xE6C632B61E964E1Fu);
    hash = hash_payload("123456789", 9);
    assert_true(hash.high == 0x33119477EDE5DCD5u && hash.low == 0xE9716427681D5860u);
    hash = hash_payload(bytes, sizeof(bytes));
    assert_true(hash.high == 0x3AB7FF4F16464718u && hash.low == 0x6CEFD16C7917B48Du);
}

static void
payload_hash_chosen_for_the_processor_equals_the_plain_one(void **state)
{
    static uint8_t bytes[70000];

    (void)state;
    for (uint32_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    for (size_t size = 0; size <= sizeof(bytes); size += size < 2100 ? 1 : 997) {
        XXH128_hash_t plain = XXH3_128bits(bytes, size);
        struct hash128 hash = hash_payload(bytes, size);

        assert_true(hash.high == plain.high64 && hash.low == plain.low64);
    }
}

static void
zero_and_equality_look_at_both_halves(void **state)
{
    const struct hash128 high = {.high = 1};
    const struct hash128 low = {.low = 1};

    (void)state;
    assert_true(hash128_is_zero((struct hash128){0}));
    assert_false(hash128_is_zero(high));
    assert_false(hash128_is_zero(low));
    assert_false(hash128_equal(high, low));
    assert_false(hash128_equal(high, (struct hash128){0}));
    assert_false(hash128_equal(low, (struct hash128){0}));
    assert_true(hash128_equal(low, low));
}

/* --- BLAKE2b: values of python's hashlib ------------------------------------------------------ */

static void
mac_is_keyed_blake2b_256(void **state)
{
    uint8_t secret[HASH_SECRET_BYTES];
    uint8_t mac[HASH_MAC_BYTES];
    uint8_t other[HASH_MAC_BYTES];

    (void)state;
    secret_make(secret);
    hash_mac(mac, secret, "abc", 3);
    assert_hex(
        mac, sizeof(mac), "d63a32d3e44738d7907f964316c241adaba0abfeabc32349677578a15a203f7f");
    secret[31] ^= 1;
    hash_mac(other, secret, "abc", 3);
    assert_memory_not_equal(mac, other, sizeof(mac));
}

/* --- Keys ------------------------------------------------------------------------------------- */

static void
short_key_is_kept_as_it_is(void **state)
{
    uint8_t secret[HASH_SECRET_BYTES];
    uint8_t bytes[KEY_BYTES_MAX];
    struct block_key key;

    (void)state;
    secret_make(secret);
    memset(bytes, 0xA5, sizeof(bytes));
    for (size_t length = 1; length <= KEY_BYTES_MAX; length += 63) {
        memset(&key, 0xEE, sizeof(key));
        assert_true(key_init(&key, secret, 7, 9, bytes, length));
        assert_int_equal(key.form, KEY_RAW);
        assert_int_equal(key.length, length);
        assert_int_equal(key.namespace_id, 7);
        assert_int_equal(key.component, 9);
        assert_memory_equal(key.bytes, bytes, length);
        for (size_t i = length; i < KEY_BYTES_MAX; i++)
            assert_int_equal(key.bytes[i], 0);
    }
}

static void
long_key_is_kept_as_its_keyed_hash(void **state)
{
    uint8_t secret[HASH_SECRET_BYTES];
    uint8_t bytes[100];
    struct block_key key;

    (void)state;
    secret_make(secret);
    for (uint32_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7);
    assert_true(key_init(&key, secret, 7, 9, bytes, sizeof(bytes)));
    assert_int_equal(key.form, KEY_HASHED);
    assert_int_equal(key.length, KEY_HASHED_BYTES);
    assert_hex(key.bytes, KEY_HASHED_BYTES,
        "a9191ad045497530185c5bf59c70199321f0f26ad9bf6d2c9873a76aab33eba0");
    assert_true(key_init(&key, secret, 7, 9, bytes, KEY_BYTES_MAX + 1));
    assert_int_equal(key.form, KEY_HASHED);
}

static void
key_without_bytes_or_with_too_many_is_refused(void **state)
{
    static uint8_t bytes[KEY_CALLER_BYTES_MAX + 1];
    uint8_t secret[HASH_SECRET_BYTES];
    struct block_key key;

    (void)state;
    secret_make(secret);
    assert_false(key_init(&key, secret, 1, 0, bytes, 0));
    assert_true(key_init(&key, secret, 1, 0, bytes, KEY_CALLER_BYTES_MAX));
    assert_false(key_init(&key, secret, 1, 0, bytes, KEY_CALLER_BYTES_MAX + 1));
}

static void
keys_differ_in_every_part(void **state)
{
    uint8_t secret[HASH_SECRET_BYTES];
    struct block_key keys[6];
    uint8_t long_bytes[100] = {1};

    (void)state;
    secret_make(secret);
    assert_true(key_init(&keys[0], secret, 1, 2, "abcd", 4));
    assert_true(key_init(&keys[1], secret, 2, 2, "abcd", 4));
    assert_true(key_init(&keys[2], secret, 1, 3, "abcd", 4));
    assert_true(key_init(&keys[3], secret, 1, 2, "abce", 4));
    assert_true(key_init(&keys[4], secret, 1, 2, "abc", 3));
    /* The hash of a long key, and a raw key with the same 32 bytes. */
    assert_true(key_init(&keys[5], secret, 1, 2, long_bytes, sizeof(long_bytes)));
    for (size_t i = 0; i < 6; i++) {
        for (size_t j = 0; j < 6; j++) {
            struct hash128 a = key_fingerprint(5, &keys[i]);
            struct hash128 b = key_fingerprint(5, &keys[j]);

            assert_int_equal(key_equal(&keys[i], &keys[j]), i == j);
            assert_int_equal(hash128_equal(a, b), i == j);
        }
    }
    assert_true(key_init(&keys[0], secret, 1, 2, keys[5].bytes, KEY_HASHED_BYTES));
    assert_false(key_equal(&keys[0], &keys[5]));
    assert_false(hash128_equal(key_fingerprint(5, &keys[0]), key_fingerprint(5, &keys[5])));
}

static void
fingerprint_has_the_documented_form_and_seed(void **state)
{
    uint8_t secret[HASH_SECRET_BYTES];
    struct hash128 fingerprint;
    struct block_key key;
    uint64_t seed;

    (void)state;
    secret_make(secret);
    seed = fingerprint_seed(secret);
    assert_true(seed == 0x7FA03C56B167430Fu);
    assert_true(key_init(&key, secret, 0x01020304, 0x0506, "block-17", 8));
    fingerprint = key_fingerprint(seed, &key);
    assert_true(fingerprint.high == 0x957DC4FF1410CE75u && fingerprint.low == 0x09A8BFE7B1B86CD8u);
    assert_false(hash128_equal(fingerprint, key_fingerprint(seed + 1, &key)));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_has_the_published_values),
        cmocka_unit_test(crc_by_instruction_equals_the_portable_one_and_continues),
        cmocka_unit_test(payload_hash_has_the_known_values),
        cmocka_unit_test(payload_hash_chosen_for_the_processor_equals_the_plain_one),
        cmocka_unit_test(zero_and_equality_look_at_both_halves),
        cmocka_unit_test(mac_is_keyed_blake2b_256),
        cmocka_unit_test(short_key_is_kept_as_it_is),
        cmocka_unit_test(long_key_is_kept_as_its_keyed_hash),
        cmocka_unit_test(key_without_bytes_or_with_too_many_is_refused),
        cmocka_unit_test(keys_differ_in_every_part),
        cmocka_unit_test(fingerprint_has_the_documented_form_and_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
