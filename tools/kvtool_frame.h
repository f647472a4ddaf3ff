/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_frame.h - the bytes of an archive's header and frames, for its writer and its reader.
 */
#ifndef KVTOOL_FRAME_H
#define KVTOOL_FRAME_H

#include "kvtool_archive.h"

enum {
    ARCHIVE_MAGIC_BYTES = 16,
    ARCHIVE_VERSION = 1,
    ARCHIVE_AT_CHECK = 24,
    ARCHIVE_HEADER_BYTES = 32,
    FRAME_AT_KIND = 0,
    FRAME_AT_HEAD = 4,
    FRAME_AT_BODY = 8,
    FRAME_AT_BODY_CHECK = 16,
    FRAME_AT_CHECK = 24,
    FRAME_BYTES = 32,
    BLOCK_HEAD_BYTES = 36,
    END_HEAD_BYTES = 40
};

extern const char archive_magic[ARCHIVE_MAGIC_BYTES];

struct frame {
    uint32_t kind;
    uint32_t head_bytes;
    uint64_t body_bytes;
    uint64_t body_check; /* XXH3-64 of the body. */
};

void header_write(uint8_t header_out[ARCHIVE_HEADER_BYTES]);

/* frame_write - with the checksum over itself and its head. */
void frame_write(uint8_t frame_out[FRAME_BYTES], const struct frame *frame, const uint8_t *head);

/* Heads: written into ARCHIVE_HEAD_MAX bytes, the length is returned; read with every bound
 * checked, false when one does not hold. */
uint32_t namespace_head_write(uint8_t *head, const struct archive_namespace *space);
bool namespace_head_read(struct archive_namespace *space_out, const uint8_t *head, uint32_t size);
uint32_t block_head_write(uint8_t *head, const struct archive_block *block);
bool block_head_read(struct archive_block *block_out, const uint8_t *head, uint32_t size);
void end_head_write(
    uint8_t head[END_HEAD_BYTES], const struct archive_sums *sums, XXH3_state_t *digest);

#endif /* KVTOOL_FRAME_H */
