/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_audit.c - what the headers on NVMe say, against the map (disk_audit.h).
 */
#include "disk_audit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "batch_header.h"
#include "image.h"
#include "nvme_internal.h"
#include "store_internal.h"
#include "try.h"

/* No header has generation 0. */
#define FOLLOW_NONE 0

enum {
    AHEAD_CHAIN = 8,   /* Pages that are read at once where a header is expected ... */
    AHEAD_SEARCH = 96, /* ... and where it is not known where the next one stands. */
};

/* Where its header stands, and its number: that of a batch which failed may have been written over
 * by another life, and what calls the one void says nothing of the other. */
struct audit_batch {
    struct extent header;
    uint64_t number;
};

struct audit_copy {
    struct hash128 fingerprint;
    struct audit_batch batch;
    struct block_record record;
};

struct audit_kill {
    struct hash128 fingerprint;
    struct extent extent;
    struct audit_batch batch;
    uint64_t sequence;
};

_Static_assert((int)AHEAD_SEARCH >= (int)BATCH_HEADER_PAGES_MAX, "a header is read at once");

struct audit_scratch {
    uint8_t pages[AHEAD_SEARCH * PAGE_BYTES]; /* `count` of a segment, from `page` on. */
    uint32_t segment, page, count;
    struct block_record records[BATCH_BLOCKS_MAX]; /* Of the last header. */
    struct tier_kill kills[BATCH_KILLS_MAX];
    /* The part of a file without holes that was looked for last: nothing lies between `looked_from`
     * and its begin. */
    const struct fs_file *written_file;
    off_t looked_from, written_first, written_end;
};

struct audit {
    struct kvt_store *store;
    struct nvme_tier *nvme;
    struct audit_scratch *scratch;
    const struct hash128 *only; /* NULL: all keys. */
    struct audit_copy *copies;
    struct audit_kill *kills;
    struct audit_batch *voids; /* Those that do not count. */
    uint32_t copy_count, kill_count, void_count;
    uint32_t copy_capacity, kill_capacity, void_capacity;
    bool is_read; /* All that was to be. */
};

/* --- Headers ---------------------------------------------------------------------------------- */

/* Room for one more item of an array. */
static void *
grown(void *items, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    *capacity = *capacity == 0 ? 256 : 2 * *capacity;
    items = realloc(items, *capacity * size);
    if (items == NULL)
        abort();
    return items;
}

static bool
is_wanted(const struct audit *audit, struct hash128 fingerprint)
{
    return audit->only == NULL || hash128_equal(*audit->only, fingerprint);
}

/* Note what a header names. */
static void
header_note(struct audit *audit, const struct batch_header *header)
{
    const struct audit_batch batch = {.header = header->extent, .number = header->sequence};

    for (uint32_t i = 0; i < header->block_count; i++) {
        const struct block_record *record = &audit->scratch->records[i];
        struct hash128 fingerprint = key_fingerprint(audit->store->fingerprint_seed, &record->key);

        if (!is_wanted(audit, fingerprint))
            continue;
        audit->copies =
            grown(audit->copies, audit->copy_count, &audit->copy_capacity, sizeof(*audit->copies));
        audit->copies[audit->copy_count++] =
            (struct audit_copy){.fingerprint = fingerprint, .batch = batch, .record = *record};
    }
    for (uint32_t i = 0; i < header->kill_count; i++) {
        const struct tier_kill *kill = &audit->scratch->kills[i];

        if (hash128_is_zero(kill->fingerprint)) {
            audit->voids = grown(
                audit->voids, audit->void_count, &audit->void_capacity, sizeof(*audit->voids));
            audit->voids[audit->void_count++] =
                (struct audit_batch){.header = kill->extent, .number = kill->sequence};
        } else if (is_wanted(audit, kill->fingerprint)) {
            audit->kills = grown(
                audit->kills, audit->kill_count, &audit->kill_capacity, sizeof(*audit->kills));
            audit->kills[audit->kill_count++] =
                (struct audit_kill){.fingerprint = kill->fingerprint,
                    .extent = kill->extent,
                    .batch = batch,
                    .sequence = kill->sequence};
        }
    }
}

/* `count` pages at least, more of them where no header is to be expected; NULL: they cannot be
 * read. What is behind the end of the file is zeros. */
static const uint8_t *
pages_read(struct audit *audit, uint32_t segment, uint32_t page, uint32_t count, uint32_t ahead)
{
    struct audit_scratch *scratch = audit->scratch;
    struct nvme_tier *nvme = audit->nvme;
    uint32_t left = nvme->options.segment_pages - page;
    size_t size, read_size;

    if (scratch->segment == segment && page >= scratch->page &&
        page + count <= scratch->page + scratch->count)
        return scratch->pages + (size_t)(page - scratch->page) * PAGE_BYTES;
    if (count < ahead)
        count = ahead < left ? ahead : left;
    size = (size_t)count * PAGE_BYTES;
    scratch->count = 0;
    if (nvme->env->fs->read_at(nvme->roots[segment_root(segment)].file, scratch->pages, size,
            nvme_offset(nvme, segment, page), &read_size) != KVT_OK)
        return NULL;
    memset(scratch->pages + read_size, 0, size - read_size);
    scratch->segment = segment;
    scratch->page = page;
    scratch->count = count;
    return scratch->pages;
}

/* KVT_E_IO: its pages cannot be read; KVT_MISS, KVT_E_CORRUPT: there is none. */
static enum kvt_status
header_read(struct audit *audit, uint32_t segment, uint32_t page, uint32_t ahead,
    struct batch_header *header)
{
    const struct nvme_options *options = &audit->nvme->options;
    const uint8_t *bytes = pages_read(audit, segment, page, 1, ahead);

    if (bytes == NULL)
        return KVT_E_IO;
    KVT_TRY(batch_header_peek(bytes, header));
    if (header->header_pages > options->segment_pages - page)
        return KVT_E_CORRUPT;
    bytes = pages_read(audit, segment, page, header->header_pages, ahead);
    if (bytes == NULL)
        return KVT_E_IO;
    return batch_header_decode(bytes, (size_t)header->header_pages * PAGE_BYTES,
        options->store_uuid, options->secret, segment, page, options->segment_pages, header,
        audit->scratch->records, audit->scratch->kills);
}

/* The next page, from this one on, that is not a hole of the file: nothing was ever written there.
 * The segment's end: there is none. */
static uint32_t
page_written(struct audit *audit, uint32_t segment, uint32_t page)
{
    struct audit_scratch *scratch = audit->scratch;
    struct nvme_tier *nvme = audit->nvme;
    const struct fs_file *file = nvme->roots[segment_root(segment)].file;
    off_t offset = (off_t)nvme_offset(nvme, segment, page);
    off_t end =
        (off_t)nvme_offset(nvme, segment, 0) + (off_t)nvme->options.segment_pages * PAGE_BYTES;

    if (file->descriptor < 0 || page >= nvme->options.segment_pages)
        return page;
    if (scratch->written_file != file || offset < scratch->looked_from ||
        offset >= scratch->written_end) {
        scratch->written_file = file;
        scratch->looked_from = offset;
        scratch->written_first = lseek(file->descriptor, offset, SEEK_DATA);
        scratch->written_end = lseek(file->descriptor, scratch->written_first, SEEK_HOLE);
        if (scratch->written_first < 0) /* ENXIO: nothing behind it, either. */
            scratch->written_first = scratch->written_end = INT64_MAX;
    }
    if (scratch->written_first >= end)
        return nvme->options.segment_pages;
    return scratch->written_first <= offset
               ? page
               : page + (uint32_t)((scratch->written_first - offset) / PAGE_BYTES);
}

/*
 * What the headers of its last fill say. A run holds no other header of that fill: the search goes
 * on behind it; but `follow` may be an older one (FOLLOW_NONE: each page is looked at). Returns
 * whether all could be read.
 */
static bool
segment_read(struct audit *audit, const struct segment *segment, uint32_t follow)
{
    const uint32_t copies = audit->copy_count, kills = audit->kill_count, voids = audit->void_count;
    uint32_t pages = audit->nvme->options.segment_pages;
    uint32_t highest = 0, ahead = AHEAD_CHAIN;

    if (segment->state == SEGMENT_SEALED && segment->generation == follow)
        pages = segment->fill_page;
    for (uint32_t page = 0;;) {
        struct batch_header header;
        enum kvt_status status;
        bool is_in_chain;

        page = page_written(audit, segment->number, page);
        if (page >= pages)
            return true;
        status = header_read(audit, segment->number, page, ahead, &header);
        is_in_chain = status == KVT_OK && header.extent.generation == follow;

        if (status == KVT_E_IO)
            return false;
        if (status == KVT_OK && header.extent.generation > highest) {
            highest = header.extent.generation;
            audit->copy_count = copies;
            audit->kill_count = kills;
            audit->void_count = voids;
        }
        if (highest > follow && follow != FOLLOW_NONE)
            return segment_read(audit, segment, FOLLOW_NONE);
        if (status == KVT_OK && header.extent.generation == highest)
            header_note(audit, &header);
        page += is_in_chain ? header.total_pages : 1;
        ahead = is_in_chain ? AHEAD_CHAIN : AHEAD_SEARCH;
    }
}

/* False: not all could be. */
static bool
headers_read(struct audit *audit)
{
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(audit->store->segments, &cursor)) != NULL) {
        uint32_t follow = segment->state == SEGMENT_FREE ? FOLLOW_NONE : segment->generation;

        if (!segment_read(audit, segment, follow))
            return false;
    }
    return true;
}

/* --- Copies ----------------------------------------------------------------------------------- */

static bool
batch_equal(const struct audit_batch *a, const struct audit_batch *b)
{
    return extent_equal(&a->header, &b->header) && a->number == b->number;
}

static bool
batch_is_void(const struct audit *audit, const struct audit_batch *batch)
{
    for (uint32_t i = 0; i < audit->void_count; i++) {
        if (batch_equal(&audit->voids[i], batch))
            return true;
    }
    return false;
}

static int
kill_compare(const void *a, const void *b)
{
    const struct audit_kill *left = a;
    const struct audit_kill *right = b;

    if (left->fingerprint.high != right->fingerprint.high)
        return left->fingerprint.high < right->fingerprint.high ? -1 : 1;
    return left->fingerprint.low < right->fingerprint.low
               ? -1
               : left->fingerprint.low > right->fingerprint.low;
}

/* The first kill of that key, or where it would be. */
static uint32_t
kills_of(const struct audit *audit, const struct hash128 *fingerprint)
{
    const struct audit_kill wanted = {.fingerprint = *fingerprint};
    uint32_t low = 0, high = audit->kill_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (kill_compare(&audit->kills[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One that names a copy in the same fill of the segment lasts as long as this one. */
static bool
copy_is_killed(const struct audit *audit, const struct audit_copy *copy)
{
    for (uint32_t i = kills_of(audit, &copy->fingerprint);
         i < audit->kill_count && hash128_equal(audit->kills[i].fingerprint, copy->fingerprint);
         i++) {
        const struct audit_kill *kill = &audit->kills[i];

        if (kill->extent.segment == copy->record.extent.segment &&
            kill->extent.generation == copy->record.extent.generation &&
            kill->sequence >= copy->record.sequence && !batch_is_void(audit, &kill->batch))
            return true;
    }
    return false;
}

static bool
copy_is_the_blocks(const struct audit *audit, const struct audit_copy *copy)
{
    const struct kvt_store *store = audit->store;
    uint32_t number = residency_find_fingerprint(store->map, copy->fingerprint);
    const struct entry *entry;
    struct extent own;

    if (number == ENTRY_NONE || !entries_has_copy(store->entries, POLICY_NVME, number))
        return false;
    entry = residency_at(store->map, number);
    own = (struct extent){entry->segment, entry->extent_generation, entry->page};
    return extent_equal(&own, &copy->record.extent);
}

static bool
copy_is_cleared(const struct audit *audit, const struct audit_copy *copy)
{
    const struct namespace_state *space = namespace_at(audit->store, copy->record.key.namespace_id);

    return space == NULL || atomic_load_explicit(&space->epoch, memory_order_relaxed) !=
                                copy->record.namespace_epoch;
}

/* A rebuild finds that again each time: nothing is served. False, too, when it cannot be read. */
static bool
copy_is_torn(struct audit *audit, const struct audit_copy *copy)
{
    const struct block_record *record = &copy->record;
    const struct image_shape shape = {.length = record->length,
        .stored_length = record->stored_length,
        .part_count = record->part_count,
        .has_trailer = record->codec == RECORD_PARTS,
        .checksum = record->checksum};
    void *memory = aligned_alloc(PAGE_BYTES, round_up(record->stored_length, PAGE_BYTES));
    bool is_read;
    bool is_right;

    if (memory == NULL)
        abort();
    is_read =
        nvme_peek(audit->store->nvme, &record->extent, record->stored_length, memory) == KVT_OK;
    is_right = is_read && image_is_right(&shape, memory);
    audit->is_read = audit->is_read && is_read;
    free(memory);
    return is_read && !is_right;
}

/* Beside a torn copy of its own key, which was to replace what it names. */
static bool
kill_is_vain(struct audit *audit, const struct audit_kill *kill)
{
    for (uint32_t i = 0; i < audit->copy_count; i++) {
        const struct audit_copy *copy = &audit->copies[i];

        if (batch_equal(&copy->batch, &kill->batch) &&
            hash128_equal(copy->fingerprint, kill->fingerprint) && copy_is_torn(audit, copy))
            return true;
    }
    return false;
}

/* A rebuild goes by sequences. */
static bool
block_would_go(struct audit *audit, const struct audit_copy *copy)
{
    for (uint32_t i = kills_of(audit, &copy->fingerprint);
         i < audit->kill_count && hash128_equal(audit->kills[i].fingerprint, copy->fingerprint);
         i++) {
        const struct audit_kill *kill = &audit->kills[i];

        if (kill->sequence >= copy->record.sequence && !batch_is_void(audit, &kill->batch) &&
            !kill_is_vain(audit, kill))
            return true;
    }
    return false;
}

static void
audit_fail(struct disk_audit *audit_out, const struct audit_copy *copy, const char *what)
{
    const struct extent *extent = &copy->record.extent;

    (void)snprintf(audit_out->failure, sizeof(audit_out->failure),
        "the copy in segment 0x%x, generation %u, page %u, is %s", extent->segment,
        extent->generation, extent->page, what);
}

static void
copies_judge(struct audit *audit, struct disk_audit *audit_out)
{
    for (uint32_t i = 0; i < audit->copy_count; i++) {
        const struct audit_copy *copy = &audit->copies[i];

        audit_out->copy_count++;
        if (copy_is_the_blocks(audit, copy)) {
            if (block_would_go(audit, copy))
                audit_fail(audit_out, copy, "the block's, and a kill would take it");
            continue;
        }
        audit_out->dead_count++;
        if (!copy_is_cleared(audit, copy) && !batch_is_void(audit, &copy->batch) &&
            !copy_is_killed(audit, copy) && !copy_is_torn(audit, copy))
            audit_fail(audit_out, copy, "dead, and no kill names it");
    }
}

/* --- All of it -------------------------------------------------------------------------------- */

bool
disk_audit(kvt_store *store, const struct hash128 *only, struct disk_audit *audit_out)
{
    /* One audit at a time: memory that each took anew cost it more than what it reads. */
    static struct audit_scratch scratch __attribute__((aligned(PAGE_BYTES)));
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct audit audit = {.store = store, .nvme = store->nvme, .scratch = &scratch, .only = only};

    *audit_out = (struct disk_audit){.copy_count = 0};
    pthread_mutex_lock(&lock);
    scratch.count = 0;
    scratch.written_file = NULL;
    audit.is_read = headers_read(&audit);
    pthread_mutex_unlock(&lock);
    if (audit.kill_count > 0)
        qsort(audit.kills, audit.kill_count, sizeof(audit.kills[0]), kill_compare);
    if (audit.is_read)
        copies_judge(&audit, audit_out);
    free(audit.copies);
    free(audit.kills);
    free(audit.voids);
    return audit.is_read;
}
