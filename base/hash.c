/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.c - fingerprints, checksums and MACs by xxhash and libsodium.
 *
 * Threads   any.
 */
#include "hash.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>) && !defined(KVT_PLAIN_XXHASH)
#    define XXH_DISPATCH_DISABLE_REPLACE
#    include <xxh_x86dispatch.h>
#    define PAYLOAD_HASH XXH3_128bits_dispatch
#    define PAGE_HASH XXH3_64bits_withSeed_dispatch
#else
#    define PAYLOAD_HASH XXH3_128bits
#    define PAGE_HASH XXH3_64bits_withSeed
#endif

#include "bytes.h"
#include "failure.h"

static const char fingerprint_message[] = "fingerprint";

_Static_assert(sizeof(fingerprint_message) == 12, "FORMAT.md: 11 bytes, the zero is not hashed");
_Static_assert(HASH_MAC_BYTES >= crypto_generichash_BYTES_MIN &&
                   HASH_MAC_BYTES <= crypto_generichash_BYTES_MAX &&
                   HASH_SECRET_BYTES >= crypto_generichash_KEYBYTES_MIN &&
                   HASH_SECRET_BYTES <= crypto_generichash_KEYBYTES_MAX,
    "BLAKE2b takes these sizes");
_Static_assert(HASH_SHA256_BYTES == crypto_hash_sha256_BYTES, "a SHA-256");
_Static_assert(KEY_HASHED_BYTES == HASH_MAC_BYTES, "a long key is kept as its MAC");

struct hash128
hash_payload(const void *bytes, size_t size)
{
    /* The library's plain function has SSE2 only; the one that asks the processor is twice as fast
     * on long inputs (1 MiB in cache: 42 GB/s with AVX-512, 20 without). Same value. */
    XXH128_hash_t hash = PAYLOAD_HASH(bytes, size);

    return (struct hash128){.high = hash.high64, .low = hash.low64};
}

void
hash_mac(uint8_t mac_out[HASH_MAC_BYTES], const uint8_t secret[HASH_SECRET_BYTES],
    const void *bytes, size_t size)
{
    /* Without sodium_init(), which takes vector code where the processor has it: the portable code
     * is faster (libsodium 1.0.18 of Debian 12, EPYC: 4 KiB in 3.2 us, with AVX2 5.8), and it takes
     * nothing of the host's process. The value is the same. */
    bool is_hashed =
        crypto_generichash(mac_out, HASH_MAC_BYTES, bytes, size, secret, HASH_SECRET_BYTES) == 0;

    KVT_ASSERT(is_hashed);
}

void
hash_sha256(uint8_t hash_out[HASH_SHA256_BYTES], const void *bytes, size_t size)
{
    bool is_hashed = crypto_hash_sha256(hash_out, bytes, size) == 0; /* It refuses nothing. */

    KVT_ASSERT(is_hashed);
}

uint64_t
hash_page(uint64_t seed, const void *bytes, size_t size)
{
    return PAGE_HASH(bytes, size, seed);
}

bool
key_init(struct block_key *key_out, const uint8_t secret[HASH_SECRET_BYTES], uint32_t namespace_id,
    uint16_t component, const void *bytes, size_t length)
{
    if (length == 0 || length > KEY_CALLER_BYTES_MAX)
        return false;
    /* The bytes behind the key stay zero, so that equal keys are equal memory. */
    *key_out = (struct block_key){.namespace_id = namespace_id, .component = component};
    if (length <= KEY_BYTES_MAX) {
        key_out->form = KEY_RAW;
        key_out->length = (uint8_t)length;
        memcpy(key_out->bytes, bytes, length);
    } else {
        key_out->form = KEY_HASHED;
        key_out->length = KEY_HASHED_BYTES;
        hash_mac(key_out->bytes, secret, bytes, length);
    }
    return true;
}

bool
key_equal(const struct block_key *a, const struct block_key *b)
{
    return a->namespace_id == b->namespace_id && a->component == b->component &&
           a->form == b->form && a->length == b->length &&
           memcmp(a->bytes, b->bytes, a->length) == 0;
}

struct hash128
key_fingerprint(uint64_t seed, const struct block_key *key)
{
    uint8_t message[8 + KEY_BYTES_MAX];
    size_t length = key->length <= KEY_BYTES_MAX ? key->length : KEY_BYTES_MAX;
    struct hash128 fingerprint;
    XXH128_hash_t hash;

    KVT_ASSERT(key->length == length);
    put_u32(message, key->namespace_id);
    put_u16(message + 4, key->component);
    message[6] = key->form;
    message[7] = key->length;
    memcpy(message + 8, key->bytes, length);
    hash = XXH3_128bits_withSeed(message, 8 + length, seed);
    fingerprint = (struct hash128){.high = hash.high64, .low = hash.low64};
    if (hash128_is_zero(fingerprint))
        fingerprint.low = 1;
    return fingerprint;
}

uint64_t
fingerprint_seed(const uint8_t secret[HASH_SECRET_BYTES])
{
    uint8_t mac[HASH_MAC_BYTES];

    hash_mac(mac, secret, fingerprint_message, sizeof(fingerprint_message) - 1);
    return get_u64(mac);
}

void
hash_versions(char *text, size_t size)
{
    unsigned version = XXH_versionNumber();

    (void)snprintf(text, size, "\"xxhash\": \"%u.%u.%u\", \"libsodium\": \"%s\"", version / 10000,
        version / 100 % 100, version % 100, sodium_version_string());
}
