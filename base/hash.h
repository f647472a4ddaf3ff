/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.h - fingerprints of keys, checksums of payloads, MACs of headers, CRCs of small records.
 *
 * The algorithms are libraries': XXH3-128 (xxhash), BLAKE2b (libsodium). CRC32C (Castagnoli,
 * polynomial 0x1EDC6F41, reflected, initial and final complement: RFC 3720 appendix B.4) is here,
 * with the processor's instruction where there is one.
 */
#ifndef KVT_BASE_HASH_H
#define KVT_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HASH_SECRET_BYTES = 32, /* The store's secret. */
    HASH_MAC_BYTES = 32,
    KEY_BYTES_MAX = 64,             /* Longer keys are kept as their keyed hash. */
    KEY_CALLER_BYTES_MAX = 1 << 20, /* The longest that a caller may give. */
    KEY_HASHED_BYTES = 32,
    HASH_SHA256_BYTES = 32,
};

/* 128 bits: the canonical (big-endian) XXH3-128 value, split. */
struct hash128 {
    uint64_t high;
    uint64_t low;
};

static inline bool
hash128_equal(struct hash128 a, struct hash128 b)
{
    return a.high == b.high && a.low == b.low;
}

static inline bool
hash128_is_zero(struct hash128 a)
{
    return a.high == 0 && a.low == 0;
}

/* hash_payload - XXH3-128, seed 0, of the stored bytes. */
struct hash128 hash_payload(const void *bytes, size_t size);

enum key_form {
    KEY_RAW = 1,    /* The caller's bytes, 1..64. */
    KEY_HASHED = 2, /* BLAKE2b-256 under the store's secret of a longer key. */
};

/* A key as kvtier keeps it: the caller's or its hash, with its namespace and component. */
struct block_key {
    uint32_t namespace_id;
    uint16_t component;
    uint8_t form;   /* enum key_form */
    uint8_t length; /* Of `bytes`, 1..64. */
    uint8_t bytes[KEY_BYTES_MAX];
};

/*
 * key_init - from the caller's bytes. length 1..2^20; a key above 64 bytes becomes its hash.
 * False when the length is 0 or above.
 */
bool key_init(struct block_key *key_out, const uint8_t secret[HASH_SECRET_BYTES],
    uint32_t namespace_id, uint16_t component, const void *bytes, size_t length);

bool key_equal(const struct block_key *a, const struct block_key *b);

/*
 * key_fingerprint - XXH3-128 with a seed from the store's secret, over {namespace id u32 LE,
 * component u16 LE, form u8, length u8, bytes}. Never zero (zero means "no parent"; a zero hash
 * becomes 1). Finds a block; never proves that it is the right one.
 */
struct hash128 key_fingerprint(uint64_t seed, const struct block_key *key);

/* fingerprint_seed - the seed: the first eight bytes (LE) of BLAKE2b(secret, "fingerprint"). */
uint64_t fingerprint_seed(const uint8_t secret[HASH_SECRET_BYTES]);

/* hash_mac - BLAKE2b-256 keyed with the secret. */
void hash_mac(uint8_t mac_out[HASH_MAC_BYTES], const uint8_t secret[HASH_SECRET_BYTES],
    const void *bytes, size_t size);

/* hash_sha256 - for checksums that others have made too. */
void hash_sha256(uint8_t hash_out[HASH_SHA256_BYTES], const void *bytes, size_t size);

/* hash_page - XXH3-64 with a seed: what a small page carries itself. */
uint64_t hash_page(uint64_t seed, const void *bytes, size_t size);

/* crc32c - of `bytes`, continuing from `crc` (start with 0). */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size);

/* crc32c_portable - the same without the instruction; what tests compare crc32c() with. */
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t size);

/*
 * checksum_differs - what a comparison with a stored checksum or MAC gave. The one place that
 * KVT_FUZZING changes: tests/fuzz compiles the readers of bytes once more with it, because a fuzzer
 * cannot guess a checksum and would see nothing behind it. The library is never built so.
 */
static inline bool
checksum_differs(bool is_different)
{
#if defined(KVT_FUZZING)
    (void)is_different;
    return false;
#else
    return is_different;
#endif
}

/* hash_versions - of the libraries, as members of a JSON object. */
void hash_versions(char *text, size_t size);

#endif /* KVT_BASE_HASH_H */
