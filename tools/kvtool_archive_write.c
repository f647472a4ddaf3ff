/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_archive_write.c - writing an archive, frame by frame.
 */
#include <string.h>

#include "complain.h"
#include "kvtool_frame.h"

static bool
bytes_write(struct archive_writer *writer, const void *bytes, uint64_t size)
{
    XXH3_128bits_update(writer->digest, bytes, size);
    writer->sums.archive_bytes += size;
    return size == 0 || writer->sink(writer->context, bytes, size);
}

static bool
item_write(
    struct archive_writer *writer, struct frame *frame, const uint8_t *head, const void *body)
{
    uint8_t bytes[FRAME_BYTES];

    frame->body_check = XXH3_64bits(body, frame->body_bytes);
    frame_write(bytes, frame, head);
    return bytes_write(writer, bytes, sizeof(bytes)) &&
           bytes_write(writer, head, frame->head_bytes) &&
           bytes_write(writer, body, frame->body_bytes);
}

bool
archive_begin(struct archive_writer *writer,
    bool (*sink)(void *context, const void *bytes, uint64_t size), void *context)
{
    uint8_t header[ARCHIVE_HEADER_BYTES];

    *writer =
        (struct archive_writer){.sink = sink, .context = context, .digest = XXH3_createState()};
    if (writer->digest == NULL) {
        complain("there is no memory to write an archive");
        return false;
    }
    XXH3_128bits_reset(writer->digest);
    header_write(header);
    return bytes_write(writer, header, sizeof(header));
}

bool
archive_namespace_write(struct archive_writer *writer, const struct archive_namespace *space)
{
    uint8_t head[ARCHIVE_HEAD_MAX];
    struct frame frame = {.kind = ARCHIVE_NAMESPACE};

    frame.head_bytes = namespace_head_write(head, space);
    writer->sums.namespace_count++;
    return item_write(writer, &frame, head, head);
}

bool
archive_block_write(struct archive_writer *writer, const struct archive_block *block,
    const void *payload, uint64_t length)
{
    uint8_t head[ARCHIVE_HEAD_MAX];
    struct frame frame = {.kind = ARCHIVE_BLOCK, .body_bytes = length};

    frame.head_bytes = block_head_write(head, block);
    writer->sums.block_count++;
    writer->sums.payload_bytes += length;
    return item_write(writer, &frame, head, payload);
}

bool
archive_end(struct archive_writer *writer)
{
    uint8_t head[END_HEAD_BYTES];
    struct frame frame = {.kind = ARCHIVE_END, .head_bytes = END_HEAD_BYTES};

    end_head_write(head, &writer->sums, writer->digest);
    return item_write(writer, &frame, head, head);
}

void
archive_free(struct archive_writer *writer)
{
    XXH3_freeState(writer->digest);
    writer->digest = NULL;
}
