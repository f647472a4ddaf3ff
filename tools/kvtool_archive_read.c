/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_archive_read.c - reading an archive, frame by frame, without trust.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"
#include "kvtool_frame.h"
#include "little_endian.h"

enum {
    PAGE_BYTES = 4096,
    ENTRY_BYTES = 108 /* Of a block in the header of its batch, before its key. */
};

/* False, with a sentence that says where. */
static bool
refuse(struct archive_reader *reader, const char *what)
{
    if (!reader->is_bad)
        complain("%s is damaged or cut: %s at byte %" PRIu64 "; nothing of it is used",
            reader->name, what, reader->sums.archive_bytes);
    reader->is_bad = true;
    return false;
}

/* Some bytes, at most `size`; 0: it ends. Below 0, with a sentence. */
static ssize_t
some_read(struct archive_reader *reader, void *target, uint64_t size)
{
    ssize_t count;

    do {
        count = read(reader->descriptor, target, size);
    } while (count < 0 && errno == EINTR && !interrupt_came());
    if (interrupt_came()) {
        complain("interrupted");
        count = -1;
    } else if (count < 0) {
        complain("cannot read %s: %s", reader->name, strerror(errno));
    }
    reader->is_bad = reader->is_bad || count < 0;
    return count;
}

/* Exactly `size` bytes, or a sentence. */
static bool
bytes_read(struct archive_reader *reader, void *target, uint64_t size)
{
    uint8_t *to = target;

    for (uint64_t done = 0; done < size;) {
        ssize_t count = some_read(reader, to + done, size - done);

        if (count == 0)
            return refuse(reader, "it ends");
        if (count < 0)
            return false;
        done += (uint64_t)count;
    }
    reader->sums.archive_bytes += size;
    return true;
}

bool
archive_open(struct archive_reader *reader, int descriptor, const char *name)
{
    uint8_t header[ARCHIVE_HEADER_BYTES];
    uint8_t wanted[ARCHIVE_HEADER_BYTES];

    memset(reader, 0, sizeof(*reader));
    reader->descriptor = descriptor;
    reader->name = name;
    reader->digest = XXH3_createState();
    if (reader->digest == NULL) {
        complain("there is no memory to read %s", name);
        return false;
    }
    XXH3_128bits_reset(reader->digest);
    if (!bytes_read(reader, header, sizeof(header)))
        return false;
    header_write(wanted);
    if (memcmp(header, archive_magic, sizeof(archive_magic)) != 0) {
        complain("%s is no archive of kvtool export", name);
        reader->is_bad = true;
    } else if (load_u64(header + ARCHIVE_AT_CHECK) != XXH3_64bits(header, ARCHIVE_AT_CHECK)) {
        return refuse(reader, "the header");
    } else if (memcmp(header, wanted, sizeof(header)) != 0) {
        complain("%s is an archive of version %u, this kvtool reads %d", name,
            load_u32(header + ARCHIVE_MAGIC_BYTES), ARCHIVE_VERSION);
        reader->is_bad = true;
    }
    XXH3_128bits_update(reader->digest, header, sizeof(header));
    return !reader->is_bad;
}

static bool
payload_resize(struct archive_reader *reader, uint64_t length)
{
    if (length <= reader->payload_capacity)
        return true;
    free(reader->payload);
    reader->payload = malloc(length);
    reader->payload_capacity = reader->payload == NULL ? 0 : length;
    if (reader->payload == NULL) {
        complain("there is no memory for a block of %" PRIu64 " bytes", length);
        reader->is_bad = true;
    }
    return reader->payload != NULL;
}

/* The last frame: the sums agree, and nothing follows. */
static bool
end_check(struct archive_reader *reader, const uint8_t *head, uint32_t size, uint64_t body_bytes)
{
    uint8_t wanted[END_HEAD_BYTES];
    char more = 0;

    end_head_write(wanted, &reader->sums, reader->digest);
    if (body_bytes != 0)
        return refuse(reader, "a last frame that is none");
    if (size != sizeof(wanted) || memcmp(head, wanted, sizeof(wanted)) != 0)
        return refuse(reader, "the sums in the last frame differ");
    if (some_read(reader, &more, 1) > 0)
        return refuse(reader, "there is something behind the end");
    return false;
}

/* What a block takes of a store at least: whole pages, and an entry (tiers/FORMAT.md 3.3). */
static uint64_t
stored_bytes(const struct archive_block *block, uint64_t payload_bytes)
{
    return (payload_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES + ENTRY_BYTES +
           block->key_length;
}

static bool
item_read(struct archive_reader *reader, const uint8_t *head, uint32_t size, uint64_t body_bytes)
{
    switch (reader->kind) {
    case ARCHIVE_NAMESPACE:
        if (body_bytes != 0 || reader->sums.namespace_count == ARCHIVE_NAMESPACES_MAX ||
            !namespace_head_read(&reader->space, head, size))
            return refuse(reader, "a namespace that is none");
        reader->sums.namespace_count++;
        return true;
    case ARCHIVE_BLOCK:
        if (body_bytes == 0 || !block_head_read(&reader->block, head, size) ||
            reader->block.namespace_index >= reader->sums.namespace_count ||
            body_bytes % reader->block.part_count != 0)
            return refuse(reader, "a block that is none");
        reader->sums.block_count++;
        reader->sums.payload_bytes += body_bytes;
        reader->sums.stored_bytes += stored_bytes(&reader->block, body_bytes);
        if (body_bytes > reader->sums.largest_bytes)
            reader->sums.largest_bytes = body_bytes;
        return true;
    case ARCHIVE_END:
        break;
    }
    return end_check(reader, head, size, body_bytes);
}

/* A frame and its head, as they say they are. */
static bool
frame_read(struct archive_reader *reader, uint8_t *bytes, uint8_t *head, struct frame *frame_out)
{
    uint8_t wanted[FRAME_BYTES];

    if (!bytes_read(reader, bytes, FRAME_BYTES))
        return false;
    frame_out->kind = load_u32(bytes + FRAME_AT_KIND);
    frame_out->head_bytes = load_u32(bytes + FRAME_AT_HEAD);
    frame_out->body_bytes = load_u64(bytes + FRAME_AT_BODY);
    frame_out->body_check = load_u64(bytes + FRAME_AT_BODY_CHECK);
    if (frame_out->kind < ARCHIVE_NAMESPACE || frame_out->kind > ARCHIVE_END ||
        frame_out->head_bytes > ARCHIVE_HEAD_MAX || frame_out->body_bytes > KVT_BLOCK_BYTES_MAX)
        return refuse(reader, "a frame that is none");
    if (!bytes_read(reader, head, frame_out->head_bytes))
        return false;
    frame_write(wanted, frame_out, head);
    if (memcmp(wanted, bytes, FRAME_BYTES) != 0)
        return refuse(reader, "the checksum of a frame differs");
    return true;
}

bool
archive_next(struct archive_reader *reader)
{
    uint8_t bytes[FRAME_BYTES];
    uint8_t head[ARCHIVE_HEAD_MAX];
    struct frame frame;

    if (reader->is_bad || !frame_read(reader, bytes, head, &frame))
        return false;
    reader->kind = (enum archive_kind)frame.kind;
    reader->check = load_u64(bytes + FRAME_AT_CHECK);
    reader->payload_length = frame.body_bytes;
    if (!payload_resize(reader, frame.body_bytes) ||
        !bytes_read(reader, reader->payload, frame.body_bytes))
        return false;
    if (XXH3_64bits(reader->payload, frame.body_bytes) != frame.body_check)
        return refuse(reader, "the checksum of a block differs");
    if (!item_read(reader, head, frame.head_bytes, frame.body_bytes))
        return false;
    XXH3_128bits_update(reader->digest, bytes, sizeof(bytes));
    XXH3_128bits_update(reader->digest, head, frame.head_bytes);
    XXH3_128bits_update(reader->digest, reader->payload, frame.body_bytes);
    return true;
}

void
archive_close(struct archive_reader *reader)
{
    XXH3_freeState(reader->digest);
    free(reader->payload);
    reader->digest = NULL;
    reader->payload = NULL;
}
