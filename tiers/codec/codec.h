/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h - smaller bytes for the NVMe tier: one part of a block at a time.
 *
 * Owns      the bytes of an encoded part (tiers/FORMAT.md, "Encoded part").
 * Not here  which namespace uses which codec, where parts lie, checksums of what is stored.
 * Threads   a struct codec belongs to one thread at a time; codec_bound() any.
 *
 * 16-bit floating-point numbers of KV caches have much the same exponent and random mantissas. So
 * the numbers are split into two planes: that of the exponents is coded by zstd (literals by
 * Huffman, hardly any matches; of bf16 the upper bits of two exponents in a symbol), the rest stays
 * as it is.
 */
#ifndef KVT_TIERS_CODEC_H
#define KVT_TIERS_CODEC_H

#include "env.h"

/* Stored on disk: never renumbered. */
enum codec_id {
    CODEC_RAW = 0,
    CODEC_BF16 = 1, /* Planes: exponent (bits 14..7), sign and mantissa. */
    CODEC_FP16 = 2, /* Planes: high byte, low byte. */
};

struct codec;

/* codec_open - for parts of up to `part_bytes_max`; all memory is taken here, under 1 MiB.
 * KVT_E_NOMEM. KVT_E_UNSUPPORTED: the libzstd that was loaded lacks a setting. */
enum kvt_status codec_open(
    const struct kvt_env *env, uint64_t part_bytes_max, struct codec **codec_out);
void codec_close(struct codec *codec); /* NULL is fine. */

/* codec_bound - the most bytes that codec_encode() writes for a part of `size` bytes: `size`. */
uint64_t codec_bound(uint64_t size);

/*
 * codec_encode - `size` bytes at `source` (1..part_bytes_max, any alignment, odd sizes too) to
 * `target` (codec_bound(size) bytes). *stored_out: how many were written. Returns what they are:
 * `id`, or CODEC_RAW when less than 5 % would be saved; then the bytes are `source`'s own. Never
 * fails.
 */
enum codec_id codec_encode(struct codec *codec, enum codec_id id, const void *source, uint64_t size,
    void *target, uint64_t *stored_out);

/*
 * codec_decode - the reverse: exactly `size` bytes to `target`, from `stored` bytes that nobody
 * trusts. KVT_E_CORRUPT: they are not an encoded part of that size; `target` is then undefined.
 * KVT_E_FORMAT: `id` is not known.
 */
enum kvt_status codec_decode(struct codec *codec, uint32_t id, const void *source, uint64_t stored,
    void *target, uint64_t size);

/* codec_zstd_version - of the library that was loaded. Static. */
const char *codec_zstd_version(void);

#endif /* KVT_TIERS_CODEC_H */
