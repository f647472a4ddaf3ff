/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_scan.c - find the batch headers of one segment (FORMAT.md section 4), and what else recovery
 * does to data files.
 *
 * Headers form a chain: the next one stands behind the run of this one. Where no proven header
 * stands, the search goes on page by page. Two passes: the first notes the place of every proven
 * header and learns the highest generation; the second reads those of that generation in order of
 * their sequence and hands them to the visitor.
 *
 * The chain is followed only over headers of one generation: the one that the table has, or that
 * page 0 proves. When something newer is found all the same (a recycle header, or the fill of a
 * segment whose generation was passed over, or whose headers an earlier rebuild could not read),
 * and without a proven header at page 0, every page is looked at: the run of an older header may
 * have been overwritten by newer batches.
 */
#include <stdlib.h>

#include "array.h"
#include "bytes.h"
#include "failure.h"
#include "nvme_internal.h"
#include "try.h"

/* No header has generation 0. */
#define FOLLOW_NONE 0

enum {
    WINDOW_PAGES = 256,     /* 1 MiB: read at once while searching page by page. */
    WINDOW_PAGES_CHAIN = 8, /* Read at once while the chain holds: a header of 200 blocks. */
};

struct found {
    uint64_t sequence;
    uint32_t page;
    uint32_t generation;
};

/* Of one scan. */
struct scan_memory {
    uint8_t window[WINDOW_PAGES * PAGE_BYTES]; /* The pages that are in memory. */
    /* What a header says. */
    struct block_record records[BATCH_BLOCKS_MAX];
    struct tier_kill kills[BATCH_KILLS_MAX];
};

struct scan {
    struct nvme_tier *nvme;
    struct fs_file *file;
    uint32_t segment;
    uint32_t pages; /* Of a segment. */
    struct scan_memory *memory;
    uint32_t window_page;
    uint32_t window_count;
    /* The range that could not be read at once, and is read as few pages at a time as possible. */
    uint32_t narrow_page;
    uint32_t narrow_count;
    struct found *found;
    uint32_t found_count;
    uint32_t found_capacity;
    uint64_t damaged_pages;
    uint32_t unreadable_end; /* Of all passes. */
    bool lacks_memory;       /* The kernel had none for a read: that says nothing of the page. */
};

/* --- Memory ----------------------------------------------------------------------------------- */

/* Memory that is mapped anew costs as much as what is read into it: one piece is kept. */
static struct scan_memory *
memory_take(struct nvme_tier *nvme)
{
    struct scan_memory *kept =
        atomic_exchange_explicit(&nvme->scan_memory, NULL, memory_order_acquire);

    return kept != NULL ? kept : env_map(nvme->env, sizeof(struct scan_memory));
}

static void
memory_put(struct nvme_tier *nvme, struct scan_memory *memory)
{
    if (memory != NULL)
        memory = atomic_exchange_explicit(&nvme->scan_memory, memory, memory_order_acq_rel);
    if (memory != NULL)
        env_unmap(nvme->env, memory, sizeof(*memory));
}

void
nvme_scan_deinit(struct nvme_tier *nvme)
{
    struct scan_memory *kept =
        atomic_exchange_explicit(&nvme->scan_memory, NULL, memory_order_acquire);

    if (kept != NULL)
        env_unmap(nvme->env, kept, sizeof(*kept));
}

static void
scan_deinit(struct scan *scan)
{
    memory_put(scan->nvme, scan->memory);
    env_put(scan->nvme->env, scan->found, scan->found_capacity * sizeof(*scan->found));
}

static enum kvt_status
scan_init(struct scan *scan, struct nvme_tier *nvme, uint32_t segment)
{
    memset(scan, 0, sizeof(*scan));
    scan->nvme = nvme;
    scan->segment = segment;
    scan->pages = nvme->options.segment_pages;
    if (segment_at(nvme->table, segment) == NULL)
        return failure_set(KVT_E_INVAL, 0, "nvme tier: there is no segment 0x%x", segment);
    scan->file = nvme->roots[segment_root(segment)].file;
    scan->memory = memory_take(nvme);
    if (scan->memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory to search segment 0x%x", segment);
    return KVT_OK;
}

static enum kvt_status
found_add(struct scan *scan, const struct batch_header *header)
{
    if (scan->found_count == scan->found_capacity) {
        struct found *grown =
            array_grow(scan->nvme->env, scan->found, &scan->found_capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(
                KVT_E_NOMEM, 0, "nvme tier: no memory for %u headers", scan->found_count);
        scan->found = grown;
    }
    scan->found[scan->found_count++] = (struct found){
        .sequence = header->sequence,
        .page = header->extent.page,
        .generation = header->extent.generation,
    };
    return KVT_OK;
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* Bring `count` pages from `page` on; what is behind the end of the file is zeros. */
static enum kvt_status
window_read(struct scan *scan, uint32_t page, uint32_t count)
{
    size_t size = (size_t)count * PAGE_BYTES;
    size_t read_size = 0;

    scan->window_page = page;
    scan->window_count = 0;
    KVT_TRY(scan->nvme->env->fs->read_at(scan->file, scan->memory->window, size,
        nvme_offset(scan->nvme, scan->segment, page), &read_size));
    memset(scan->memory->window + read_size, 0, size - read_size);
    scan->window_count = count;
    return KVT_OK;
}

/* Pages of which nobody knows what stands there. */
static void
unreadable_note(struct scan *scan, uint32_t page, uint32_t count)
{
    scan->damaged_pages += count;
    if (scan->unreadable_end < page + count)
        scan->unreadable_end = page + count;
}

/*
 * `count` pages from `page` on, all inside the segment, at least; `ahead` is how many to read when
 * something must be read. A range that cannot be read is read again piece by piece, as short as
 * possible: a disk takes seconds to give up. A piece that fails counts as zeros.
 */
static const uint8_t *
pages_get(struct scan *scan, uint32_t page, uint32_t count, uint32_t ahead)
{
    uint32_t wanted = count > ahead ? count : ahead;
    enum kvt_status status;

    KVT_ASSERT(page < scan->pages && count <= scan->pages - page && count <= WINDOW_PAGES);
    if (page >= scan->window_page &&
        (uint64_t)page + count <= (uint64_t)scan->window_page + scan->window_count)
        return scan->memory->window + (size_t)(page - scan->window_page) * PAGE_BYTES;
    if (wanted > scan->pages - page)
        wanted = scan->pages - page;
    if (page < scan->narrow_page || page - scan->narrow_page >= scan->narrow_count) {
        if (window_read(scan, page, wanted) == KVT_OK)
            return scan->memory->window;
        scan->narrow_page = page;
        scan->narrow_count = wanted;
    }
    status = window_read(scan, page, count);
    if (status != KVT_OK) {
        scan->lacks_memory = scan->lacks_memory || status == KVT_E_NOMEM;
        memset(scan->memory->window, 0, (size_t)count * PAGE_BYTES);
        scan->window_count = count;
        unreadable_note(scan, page, count);
    }
    return scan->memory->window;
}

/* The header at `page`, proven. KVT_MISS: there is none; KVT_E_CORRUPT: something that looks so. */
static enum kvt_status
header_get(struct scan *scan, uint32_t page, uint32_t ahead, struct batch_header *header)
{
    const struct nvme_options *options = &scan->nvme->options;
    const uint8_t *bytes = pages_get(scan, page, 1, ahead);

    KVT_TRY(batch_header_peek(bytes, header));
    if (header->header_pages > scan->pages - page)
        return KVT_E_CORRUPT;
    bytes = pages_get(scan, page, header->header_pages, ahead);
    return batch_header_decode(bytes, (size_t)header->header_pages * PAGE_BYTES,
        options->store_uuid, options->secret, scan->segment, page, scan->pages, header,
        scan->memory->records, scan->memory->kills);
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* Where the search may end. Behind what was given out of a segment that was filled in this life of
 * the store, there are only headers of older fills. */
static uint32_t
search_end(const struct scan *scan, uint32_t follow)
{
    const struct segment *segment = segment_at(scan->nvme->table, scan->segment);

    return segment->state == SEGMENT_SEALED && segment->generation == follow ? segment->fill_page
                                                                             : scan->pages;
}

/*
 * Note every proven header, following the chain over those of generation `follow` (FOLLOW_NONE:
 * look at every page).
 */
static enum kvt_status
headers_find(struct scan *scan, uint32_t follow)
{
    uint32_t end = search_end(scan, follow);
    uint32_t ahead = WINDOW_PAGES_CHAIN;
    uint32_t page = 0;

    scan->found_count = 0;
    scan->damaged_pages = 0;
    while (page < end) {
        struct batch_header header;
        enum kvt_status status = header_get(scan, page, ahead, &header);

        if (status == KVT_OK)
            KVT_TRY(found_add(scan, &header));
        if (status == KVT_OK && header.extent.generation == follow) {
            ahead = WINDOW_PAGES_CHAIN;
            page += header.total_pages;
            continue;
        }
        scan->damaged_pages += status == KVT_E_CORRUPT;
        ahead = WINDOW_PAGES;
        page++;
    }
    return KVT_OK;
}

static uint32_t
found_highest(const struct scan *scan)
{
    uint32_t highest = 0;

    for (uint32_t i = 0; i < scan->found_count; i++) {
        if (scan->found[i].generation > highest)
            highest = scan->found[i].generation;
    }
    return highest;
}

static int
found_compare(const void *a, const void *b)
{
    const struct found *first = a;
    const struct found *second = b;

    if (first->sequence != second->sequence)
        return first->sequence < second->sequence ? -1 : 1;
    if (first->page != second->page)
        return first->page < second->page ? -1 : 1;
    return 0;
}

static void
headers_visit(struct scan *scan, uint32_t generation, nvme_scan_fn visit, void *visitor)
{
    uint64_t told = UINT64_MAX;

    if (scan->found_count > 1)
        qsort(scan->found, scan->found_count, sizeof(*scan->found), found_compare);
    for (uint32_t i = 0; i < scan->found_count; i++) {
        const struct found *found = &scan->found[i];
        struct batch_header header;

        if (found->generation != generation || found->sequence == told)
            continue; /* The copy of a recycle header is told where that is not. */
        /* Read again, so proven again: a device may answer differently now, and what was a header
         * is there, but is not read. */
        if (header_get(scan, found->page, WINDOW_PAGES_CHAIN, &header) != KVT_OK ||
            header.extent.generation != generation) {
            unreadable_note(scan, found->page, 1);
            continue;
        }
        told = found->sequence;
        if (!visit(visitor, &header, scan->memory->records, scan->memory->kills))
            return;
    }
}

enum kvt_status
nvme_peek(struct nvme_tier *nvme, const struct extent *extent, uint32_t size, void *memory)
{
    uint32_t pages = pages_of(size);
    size_t read_size = 0;

    if (segment_at(nvme->table, extent->segment) == NULL ||
        (uint64_t)extent->page + pages > nvme->options.segment_pages)
        return failure_set(KVT_E_INVAL, 0, "nvme tier: no extent of %u pages at page %u of 0x%x",
            pages, extent->page, extent->segment);
    KVT_TRY(nvme->env->fs->read_at(nvme->roots[segment_root(extent->segment)].file, memory,
        (size_t)pages * PAGE_BYTES, nvme_offset(nvme, extent->segment, extent->page), &read_size));
    if (read_size < size)
        return failure_set(
            KVT_E_IO, 0, "nvme tier: 0x%x ends within page %u", extent->segment, extent->page);
    return KVT_OK;
}

/* The root of a segment, which takes writes. */
static enum kvt_status
root_to_write(struct nvme_tier *nvme, uint32_t segment, const struct nvme_root **root_out)
{
    *root_out = &nvme->roots[segment_root(segment)];
    if (!nvme->options.read_only && !(*root_out)->is_read_only)
        return KVT_OK;
    return failure_set(
        KVT_E_READONLY, 0, "nvme tier: root %u takes no writes", segment_root(segment));
}

static enum kvt_status
pages_erase(struct nvme_tier *nvme, uint32_t segment, uint32_t page, uint32_t count)
{
    const struct kvt_env *env = nvme->env;
    const struct nvme_root *root;
    uint32_t zero_count = count < WINDOW_PAGES ? count : WINDOW_PAGES;
    uint32_t step;
    uint8_t *zeros;
    enum kvt_status status = KVT_OK;

    if (segment_at(nvme->table, segment) == NULL || page >= nvme->options.segment_pages ||
        count > nvme->options.segment_pages - page)
        return failure_set(KVT_E_INVAL, 0, "nvme tier: there are no pages %u..+%u in segment 0x%x",
            page, count, segment);
    KVT_TRY(root_to_write(nvme, segment, &root));
    zeros = env_map(env, (size_t)zero_count * PAGE_BYTES);
    if (zeros == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for %u pages", zero_count);
    for (uint32_t end = page + count; page < end && status == KVT_OK; page += step) {
        step = end - page < zero_count ? end - page : zero_count;
        status = env->fs->write_at(
            root->file, zeros, (size_t)step * PAGE_BYTES, nvme_offset(nvme, segment, page));
    }
    env_unmap(env, zeros, (size_t)zero_count * PAGE_BYTES);
    return status;
}

enum kvt_status
nvme_header_erase(struct nvme_tier *nvme, const struct extent *header)
{
    return pages_erase(nvme, header->segment, header->page, 1);
}

/* The header without kills of an earlier fill, if one stands there, is zeros behind its first
 * sector, as this one is: a cut leaves one of the two, and what that one hides stays hidden. Of a
 * batch that stands there, in a segment that is RECYCLING, or on page 1, it may leave nothing: it
 * is dead, or was never committed. */
enum kvt_status
nvme_segment_void(
    struct nvme_tier *nvme, const struct segment *segment, uint32_t generation, uint64_t sequence)
{
    struct batch_header header = {
        .extent = {.segment = segment->number, .generation = generation},
        .header_pages = 1,
        .total_pages = 1,
        .sequence = sequence,
        .is_recycle = true,
    };
    const struct nvme_root *root;
    struct scan_memory *memory;
    enum kvt_status status;

    KVT_ASSERT(segment->state == SEGMENT_FREE || segment->state == SEGMENT_RECYCLING);
    KVT_TRY(root_to_write(nvme, segment->number, &root));
    memory = memory_take(nvme);
    if (memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for a header");
    memcpy(header.store_uuid, nvme->options.store_uuid, sizeof(header.store_uuid));
    batch_header_encode(&header, NULL, NULL, nvme->options.secret, memory->window);
    batch_header_copy(&header, nvme->options.secret, memory->window + PAGE_BYTES);
    status = nvme->env->fs->write_at(
        root->file, memory->window, (size_t)2 * PAGE_BYTES, nvme_offset(nvme, segment->number, 0));
    memory_put(nvme, memory);
    return status;
}

enum kvt_status
nvme_pages_erase(struct nvme_tier *nvme, const struct segment *segment, uint32_t end)
{
    KVT_ASSERT(segment->state == SEGMENT_RECYCLING);
    KVT_ASSERT(segment->reader_count == 0 && segment->writer_count == 0);
    return end <= 2 ? KVT_OK : pages_erase(nvme, segment->number, 2, end - 2);
}

enum kvt_status
nvme_files_sync(struct nvme_tier *nvme)
{
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < nvme->root_count; i++) {
        if (nvme->roots[i].file != NULL && !nvme->roots[i].is_read_only)
            status = status_keep(status, nvme->env->fs->sync(nvme->roots[i].file));
    }
    return status;
}

/*
 * The generation whose chain can be followed: that of a segment in use, as the table has it; in a
 * rebuild, when the table knows nothing, the one at page 0.
 */
static uint32_t
generation_expected(struct scan *scan)
{
    const struct segment *segment = segment_at(scan->nvme->table, scan->segment);
    struct batch_header first;

    if (segment->state != SEGMENT_FREE)
        return segment->generation;
    if (header_get(scan, 0, WINDOW_PAGES_CHAIN, &first) == KVT_OK)
        return first.extent.generation;
    return FOLLOW_NONE;
}

static bool
is_newer_at(struct scan *scan, uint32_t page, uint32_t follow)
{
    struct batch_header header;

    return header_get(scan, page, WINDOW_PAGES_CHAIN, &header) == KVT_OK &&
           header.extent.generation > follow;
}

/* A rebuild finds an old chain from page 0 on: a newer fill begins at SEGMENT_HEAD_PAGES_MAX, and
 * the copy of a newer recycle header, whose own page a cut has kept, stands at page 1, where the
 * runs of that chain may hide them; also from what has its generation from a rebuild that could not
 * read that page. */
static bool
has_newer_fill(struct scan *scan, uint32_t follow)
{
    return segment_at(scan->nvme->table, scan->segment)->state != SEGMENT_ACTIVE &&
           search_end(scan, follow) == scan->pages && scan->pages > SEGMENT_HEAD_PAGES_MAX &&
           (is_newer_at(scan, 1, follow) || is_newer_at(scan, SEGMENT_HEAD_PAGES_MAX, follow));
}

static enum kvt_status
memory_lack(const struct scan *scan)
{
    return failure_set(
        KVT_E_NOMEM, 0, "nvme tier: the kernel has no memory to read segment 0x%x", scan->segment);
}

enum kvt_status
nvme_scan(struct nvme_tier *nvme, uint32_t segment, nvme_scan_fn visit, void *visitor,
    struct nvme_scan_result *result_out)
{
    uint32_t follow;
    struct scan scan;
    enum kvt_status status;

    KVT_TRY_GOTO(scan_init(&scan, nvme, segment), deinit);
    follow = generation_expected(&scan);
    KVT_TRY_GOTO(headers_find(&scan, follow), deinit);
    /* There is a newer one (a recycle header, or something that cannot be): nothing is taken for
     * granted. */
    if (follow != FOLLOW_NONE && (found_highest(&scan) > follow || has_newer_fill(&scan, follow)))
        KVT_TRY_GOTO(headers_find(&scan, FOLLOW_NONE), deinit);
    headers_visit(&scan, found_highest(&scan), visit, visitor);
    *result_out = (struct nvme_scan_result){
        .generation = found_highest(&scan),
        .unreadable_end = scan.unreadable_end,
        .damaged_pages = scan.damaged_pages,
    };
    if (scan.lacks_memory)
        status = memory_lack(&scan);
deinit:
    scan_deinit(&scan);
    return status;
}

enum kvt_status
nvme_scan_again(struct nvme_tier *nvme, const struct extent *header, uint64_t sequence,
    nvme_scan_fn visit, void *visitor)
{
    struct batch_header found;
    struct scan scan;
    enum kvt_status status;

    KVT_TRY_GOTO(scan_init(&scan, nvme, header->segment), deinit);
    status = header_get(&scan, header->page, WINDOW_PAGES_CHAIN, &found);
    if (scan.lacks_memory)
        status = memory_lack(&scan);
    else if (status != KVT_OK || found.sequence != sequence ||
             found.extent.generation != header->generation)
        status = failure_set(KVT_E_IO, 0,
            "nvme tier: the header at page %u of segment 0x%x cannot be read again", header->page,
            header->segment);
    else
        visit(visitor, &found, scan.memory->records, scan.memory->kills);
deinit:
    scan_deinit(&scan);
    return status;
}
