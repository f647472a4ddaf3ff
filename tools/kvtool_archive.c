/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_archive.c - blocks of a store as a stream of bytes: what a frame is.
 */
#include "kvtool_archive.h"

#include <string.h>

#include "kvtool_frame.h"
#include "little_endian.h"

const char archive_magic[ARCHIVE_MAGIC_BYTES] = "kvtier archive\n";

void
frame_write(uint8_t frame_out[FRAME_BYTES], const struct frame *frame, const uint8_t *head)
{
    store_u32(frame_out + FRAME_AT_KIND, frame->kind);
    store_u32(frame_out + FRAME_AT_HEAD, frame->head_bytes);
    store_u64(frame_out + FRAME_AT_BODY, frame->body_bytes);
    store_u64(frame_out + FRAME_AT_BODY_CHECK, frame->body_check);
    store_u64(frame_out + FRAME_AT_CHECK,
        XXH3_64bits_withSeed(head, frame->head_bytes, XXH3_64bits(frame_out, FRAME_AT_CHECK)));
}

uint32_t
namespace_head_write(uint8_t *head, const struct archive_namespace *space)
{
    uint32_t name_length = (uint32_t)strlen(space->name);

    store_u32(head, name_length);
    store_u32(head + 4, space->description_length);
    memcpy(head + 8, space->name, name_length);
    memcpy(head + 8 + name_length, space->description, space->description_length);
    return 8 + name_length + space->description_length;
}

bool
namespace_head_read(struct archive_namespace *space_out, const uint8_t *head, uint32_t size)
{
    uint32_t name_length = size < 8 ? 0 : load_u32(head);
    uint32_t description_length = size < 8 ? 0 : load_u32(head + 4);

    if (name_length == 0 || name_length > ARCHIVE_NAME_MAX ||
        description_length > ARCHIVE_DESCRIPTION_MAX ||
        size != 8 + name_length + description_length || memchr(head + 8, 0, name_length) != NULL)
        return false;
    memset(space_out, 0, sizeof(*space_out));
    memcpy(space_out->name, head + 8, name_length);
    memcpy(space_out->description, head + 8 + name_length, description_length);
    space_out->description_length = description_length;
    return true;
}

uint32_t
block_head_write(uint8_t *head, const struct archive_block *block)
{
    memset(head, 0, BLOCK_HEAD_BYTES);
    store_u32(head, block->namespace_index);
    store_u32(head + 4, block->component | (uint32_t)block->parent_component << 16);
    store_u32(head + 8, block->part_count | (uint32_t)block->class_id << 16);
    store_u32(head + 12, block->hint | block->key_length << 8 | block->parent_length << 16);
    store_u32(head + 16, block->depth);
    store_u32(head + 20, block->token_start);
    store_u32(head + 24, block->token_count);
    store_u32(head + 28, block->recompute_us);
    store_u32(head + 32, block->importance);
    memcpy(head + BLOCK_HEAD_BYTES, block->key, block->key_length);
    memcpy(head + BLOCK_HEAD_BYTES + block->key_length, block->parent, block->parent_length);
    return BLOCK_HEAD_BYTES + block->key_length + block->parent_length;
}

bool
block_head_read(struct archive_block *block_out, const uint8_t *head, uint32_t size)
{
    uint32_t lengths = size < BLOCK_HEAD_BYTES ? 0 : load_u32(head + 12);

    memset(block_out, 0, sizeof(*block_out));
    block_out->hint = lengths & 0xFF;
    block_out->key_length = lengths >> 8 & 0xFF;
    block_out->parent_length = lengths >> 16 & 0xFF;
    if (lengths >> 24 != 0 || block_out->hint > 3 || block_out->key_length == 0 ||
        block_out->key_length > ARCHIVE_KEY_MAX || block_out->parent_length > ARCHIVE_KEY_MAX ||
        size != BLOCK_HEAD_BYTES + block_out->key_length + block_out->parent_length)
        return false;
    block_out->namespace_index = load_u32(head);
    block_out->component = (uint16_t)load_u32(head + 4);
    block_out->parent_component = (uint16_t)(load_u32(head + 4) >> 16);
    block_out->part_count = (uint16_t)load_u32(head + 8);
    block_out->class_id = (uint16_t)(load_u32(head + 8) >> 16);
    block_out->depth = load_u32(head + 16);
    block_out->token_start = load_u32(head + 20);
    block_out->token_count = load_u32(head + 24);
    block_out->recompute_us = load_u32(head + 28);
    block_out->importance = load_u32(head + 32);
    memcpy(block_out->key, head + BLOCK_HEAD_BYTES, block_out->key_length);
    memcpy(block_out->parent, head + BLOCK_HEAD_BYTES + block_out->key_length,
        block_out->parent_length);
    return block_out->part_count >= 1 && block_out->part_count <= KVT_PARTS_MAX;
}

void
end_head_write(uint8_t head[END_HEAD_BYTES], const struct archive_sums *sums, XXH3_state_t *digest)
{
    XXH128_canonical_t canonical;

    store_u64(head, sums->namespace_count);
    store_u64(head + 8, sums->block_count);
    store_u64(head + 16, sums->payload_bytes);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(digest));
    memcpy(head + 24, canonical.digest, sizeof(canonical.digest));
}

void
header_write(uint8_t header_out[ARCHIVE_HEADER_BYTES])
{
    memset(header_out, 0, ARCHIVE_HEADER_BYTES);
    memcpy(header_out, archive_magic, sizeof(archive_magic));
    store_u32(header_out + ARCHIVE_MAGIC_BYTES, ARCHIVE_VERSION);
    store_u64(header_out + ARCHIVE_AT_CHECK, XXH3_64bits(header_out, ARCHIVE_AT_CHECK));
}
