/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compression.h - how a namespace's blocks are made smaller for NVMe. Part of kvtier.h, whose
 * rules hold.
 */
#ifndef KVTIER_COMPRESSION_H
#define KVTIER_COMPRESSION_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How blocks are made smaller for NVMe. Memory always has them as they were given. */
enum kvt_codec {
    KVT_CODEC_NONE = 0,
    KVT_CODEC_BF16 = 1, /* bfloat16 numbers: exponents by zstd, the rest as it is. Lossless. */
    KVT_CODEC_FP16 = 2, /* IEEE half: high bytes by zstd. Lossless. */
};

struct kvt_namespace_options {
    uint32_t struct_size; /* sizeof(struct kvt_namespace_options) */
    uint32_t codec;       /* enum kvt_codec */
    uint64_t reserved0;   /* Must be zero. */
    uint64_t reserved1;   /* Must be zero. */
};

/*
 * kvt_namespace_configure - how the namespace's blocks are written to NVMe from now on.
 *
 * Each block says how it is stored, so that others stay readable as they are. Not remembered: after
 * kvt_open() a namespace has no codec until it is configured. A codec is a wish: a part that would
 * become less than 5 % smaller is stored as it was given, and so is a block that would not save a
 * page of 4096 bytes, or for which HOST has no room to encode it.
 *
 * KVT_E_INVAL: no such namespace, an unknown codec, a reserved field.
 * Threads: any. Ownership: borrows `options`. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_namespace_configure(
    kvt_store *store, kvt_namespace ns, const struct kvt_namespace_options *options);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_COMPRESSION_H */
