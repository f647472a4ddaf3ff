/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_archive.c - an archive that kvtool import was given. Input: the archive. Its checksums are
 * made right first, frame by frame as far as frames can be told: the programs have no build
 * without them. What is whole is read again from where the end cannot be read.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "complain.h"
#include "fuzz_world.h"
#include "interrupt.h"
#include "kvtool_frame.h"
#include "little_endian.h"

enum {
    SOCKET_BYTES = 65536, /* So much fits into a socket that nobody reads. */
};

static uint64_t complaint_count;
static const char *complaint; /* The last one. */

/* In the place of tools/common: nothing is printed, nobody interrupts. */
void
complain(const char *format, ...)
{
    FUZZ_REQUIRE(format[0] != '\0');
    complaint_count++;
    complaint = format;
}

bool
interrupt_came(void)
{
    return false;
}

/* The checksums of one frame at `at`; returns where the next one is. */
static size_t
frame_mend(uint8_t *bytes, size_t size, size_t at)
{
    struct frame frame = {.kind = load_u32(bytes + at + FRAME_AT_KIND),
        .head_bytes = load_u32(bytes + at + FRAME_AT_HEAD),
        .body_bytes = load_u64(bytes + at + FRAME_AT_BODY)};
    uint8_t *head = bytes + at + FRAME_BYTES;
    size_t left = size - at - FRAME_BYTES;

    if (frame.head_bytes > left || frame.body_bytes > left - frame.head_bytes)
        return size;
    if (frame.kind == ARCHIVE_END && frame.head_bytes == END_HEAD_BYTES) {
        XXH128_canonical_t digest;

        XXH128_canonicalFromHash(&digest, XXH3_128bits(bytes, at));
        memcpy(head + END_HEAD_BYTES - sizeof(digest), &digest, sizeof(digest));
    }
    frame.body_check = XXH3_64bits(head + frame.head_bytes, frame.body_bytes);
    frame_write(bytes + at, &frame, head);
    return at + FRAME_BYTES + frame.head_bytes + frame.body_bytes;
}

static void
archive_mend(uint8_t *bytes, size_t size)
{
    if (size < ARCHIVE_HEADER_BYTES)
        return;
    store_u64(bytes + ARCHIVE_AT_CHECK, XXH3_64bits(bytes, ARCHIVE_AT_CHECK));
    for (size_t at = ARCHIVE_HEADER_BYTES; at < size && size - at >= FRAME_BYTES;)
        at = frame_mend(bytes, size, at);
}

static void
item_require(const struct archive_reader *reader)
{
    const struct archive_block *block = &reader->block;

    FUZZ_REQUIRE(reader->kind == ARCHIVE_NAMESPACE || reader->kind == ARCHIVE_BLOCK);
    if (reader->kind == ARCHIVE_NAMESPACE) {
        FUZZ_REQUIRE(reader->space.name[0] != '\0');
        FUZZ_REQUIRE(memchr(reader->space.name, 0, sizeof(reader->space.name)) != NULL);
        FUZZ_REQUIRE(reader->space.description_length <= ARCHIVE_DESCRIPTION_MAX);
        return;
    }
    FUZZ_REQUIRE(block->namespace_index < reader->sums.namespace_count);
    FUZZ_REQUIRE(block->key_length >= 1 && block->key_length <= ARCHIVE_KEY_MAX);
    FUZZ_REQUIRE(block->parent_length <= ARCHIVE_KEY_MAX && block->part_count >= 1);
    FUZZ_REQUIRE(reader->payload_length >= 1);
    FUZZ_REQUIRE(reader->payload_length % block->part_count == 0);
}

/* A whole archive behind which an error comes: the other end was closed with bytes that it had not
 * read. That is told, and not that there is something behind the end. */
static void
end_without_answer_require(const uint8_t *bytes, size_t size)
{
    struct archive_reader reader;
    int ends[2];

    FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    FUZZ_REQUIRE(write(ends[1], bytes, size) == (ssize_t)size && write(ends[0], "x", 1) == 1);
    close(ends[1]);
    complaint_count = 0;
    FUZZ_REQUIRE(archive_open(&reader, ends[0], "archive"));
    while (archive_next(&reader))
        item_require(&reader);
    FUZZ_REQUIRE(reader.is_bad && complaint_count == 1);
    FUZZ_REQUIRE(strncmp(complaint, "cannot read", strlen("cannot read")) == 0);
    archive_close(&reader);
    close(ends[0]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static int descriptor = -1;
    struct archive_reader reader;
    uint8_t *mended = malloc(size + 1);

    (void)fuzz_world();
    if (descriptor < 0)
        descriptor = memfd_create("archive", MFD_CLOEXEC);
    memcpy(mended, bytes, size);
    archive_mend(mended, size);
    complaint_count = 0;
    FUZZ_REQUIRE(ftruncate(descriptor, 0) == 0 && lseek(descriptor, 0, SEEK_SET) == 0);
    FUZZ_REQUIRE(write(descriptor, mended, size) == (ssize_t)size);
    FUZZ_REQUIRE(lseek(descriptor, 0, SEEK_SET) == 0);
    if (archive_open(&reader, descriptor, "archive")) {
        while (archive_next(&reader))
            item_require(&reader);
    }
    /* One sentence when something is wrong, none when nothing is. */
    FUZZ_REQUIRE(complaint_count == (reader.is_bad ? 1 : 0));
    if (!reader.is_bad)
        FUZZ_REQUIRE(reader.kind == ARCHIVE_END && reader.payload_length == 0);
    if (!reader.is_bad && size <= SOCKET_BYTES)
        end_without_answer_require(mended, size);
    archive_close(&reader);
    free(mended);
    return 0;
}
