/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_tier.h - the NVME tier: batches of blocks in segments of data files, one lane per root.
 *
 * Owns      the data files, the lanes, the segment table, encoding of batches.
 * Not here  the index commit (a put is durable only after it), eviction, verification.
 * Format    FORMAT.md sections 2, 3.3, 4, 7.
 * Threads   the loop thread; lanes run on their own and leave finished transfers in an inbox that
 *           nvme_step() empties.
 *
 * A put: run reserved -> header and payloads written as one run (O_DIRECT) -> every write answered
 * -> one data sync of the file, started after those answers, beside the writes of other batches,
 * and shared by the batches that wait for it -> done. Rules on failure: a failed write kills that
 * batch (its run is never used again) and seals its segment, and six in a row make the root
 * read-only, but for those that found no space or memory: after these the root takes no batch for a
 * pause, which is longer each time, and then one, which tells whether there is some again; a failed
 * sync is never retried: every batch of that file that was written but not synced fails, its active
 * segment is sealed, and a second failed sync of a root within 60 s makes the root read-only,
 * whatever its error: what was written is lost. With a batch fail all that are put behind it before
 * it is answered, whatever their root (KVT_E_STATE: nothing is wrong with them), and their segments
 * are sealed as well: so an answer of success says that all before it are durable, and in a segment
 * nothing that failed stands before something that was answered with success. Recycle headers keep
 * out of this.
 *
 * Several batches may be in flight; they are answered in the order in which they were put, recycle
 * headers among them. A batch fails as a whole: every block of it then has the status of the first
 * failure and no extent. A write that was in flight while a sync of its file failed fails too: part
 * of it may be what that sync lost.
 *
 * A data file may be longer than the capacity asks for: what lies behind is left as it is, and
 * comes back (or is void) when the capacity grows again. A file that cannot grow for lack of room
 * is used as it is.
 */
#ifndef KVT_TIERS_NVME_TIER_H
#define KVT_TIERS_NVME_TIER_H

#include "env.h"
#include "log.h"
#include "segment.h"
#include "tier.h"

enum {
    NVME_ROOTS_MAX = 8,
    NVME_ROOT_NONE = NVME_ROOTS_MAX,
};

struct nvme_options {
    struct fs_dir *roots[NVME_ROOTS_MAX]; /* Kept: they outlive the tier. */
    uint64_t root_bytes[NVME_ROOTS_MAX];  /* Capacity; rounded down to whole segments. */
    uint32_t root_count;
    uint32_t segment_pages;
    uint32_t reserve_count; /* Free segments a root keeps for reclaiming (2). */
    uint8_t store_uuid[16];
    uint8_t secret[HASH_SECRET_BYTES];
    void *arena; /* Adopted by the io queues; may be NULL. */
    size_t arena_size;
    bool read_only;        /* Open the data files for reading only; puts give KVT_E_READONLY. */
    bool may_remake;       /* A data file that was made, and is missing, is made anew. */
    bool may_lack;         /* read_only: the root of one has no segments then. */
    struct logger *logger; /* NULL: silent. */
    struct task *const *loop_task; /* Woken when nvme_step() has work. NULL: nobody. */
    bool was_made[NVME_ROOTS_MAX]; /* The data file of the root has been there. */
    bool is_new; /* None was there a moment ago: one that is, is another store's. */
    /* NULL, or for each root: NULL, then the data file that was made, locked where there are locks.
     * It is the caller's, also after a failure, to be closed behind the tier, so that nobody else
     * has it before it can be taken back; another nvme_open() takes it as it is. */
    struct fs_file **made;
};

struct nvme_tier;
struct batch_header;

/*
 * nvme_open - open, create or grow ROOT/data.00 (temporary name, fallocate, fsync, rename, fsync
 * of the directory), probe the files, start the lanes. Before any is made or grown, each that is
 * there is asked whose it is: the disk of a root may be mounted in another's place. One that has
 * been there and is missing is made anew only if that is allowed: its disk may be away, with its
 * blocks. With read_only none is made: the root has no segments, where the file has not been there,
 * or may be missing. File systems without fallocate get a sparse file. KVT_E_NOSPC names root, size
 * wanted and size there.
 * KVT_E_INVAL: an option, a capacity below one segment, or a file has blocks of another store, or
 * of another root, and none of its own root in the segments that were looked at; or it came while
 * it was to be made. KVT_E_LOCKED: it was in use, or what is to be it, for half a minute.
 * KVT_E_BUSY: the process forked whenever it was opened.
 * KVT_E_UNSUPPORTED: the file system wants transfers aligned to more than a page, or the io engine
 * is denied. KVT_E_IO: a call of the file system failed, or such a file is missing; a file of which
 * a page cannot be read is opened, with a warning, when another can.
 */
enum kvt_status nvme_open(
    const struct kvt_env *env, const struct nvme_options *options, struct nvme_tier **nvme_out);

/*
 * nvme_step - take what the lanes have finished, move batches on, answer those that are done (into
 * their own inboxes). Returns whether there was something to do. Answers come only from here and,
 * when nothing needs a transfer, from inside get.
 */
bool nvme_step(struct nvme_tier *nvme);

struct tier *nvme_as_tier(struct nvme_tier *nvme);
struct segment_table *nvme_segments(struct nvme_tier *nvme);

/* nvme_tail_pages - what is left of the segment that the next batch would go on filling: a larger
 * one leaves it as it is, and begins another. 0: it begins another in any case. */
uint32_t nvme_tail_pages(const struct nvme_tier *nvme);

/* nvme_is_doomed - a put is in flight that will fail, because one before it has, or one that has
 * failed waits for its answer: what is put now fails, too. */
bool nvme_is_doomed(const struct nvme_tier *nvme);

/*
 * nvme_lack - why put gave KVT_E_BUSY: no root that takes writes had space, or memory, for the last
 * ones. False: one takes batches again.
 */
struct nvme_lack {
    enum kvt_status status; /* KVT_E_NOSPC, KVT_E_NOMEM */
    uint64_t until_ns;      /* The next try; UINT64_MAX: it is under way. */
    bool is_lasting;        /* It has been so for several pauses. */
};
bool nvme_lack(const struct nvme_tier *nvme, struct nvme_lack *lack_out);

/*
 * nvme_put_reserved - as the vtable's put, but may use the reserve (reclaiming), down to the last
 * FREE segment of a root. Of the root `last_of` (NVME_ROOT_NONE: of none) that one, too: with this
 * batch one of its segments can be recycled, and when the batch fails, the one that it has taken,
 * in which nothing stands then. So however many writes fail, each root has something that can
 * become FREE without a write elsewhere.
 */
enum kvt_status nvme_put_reserved(
    struct nvme_tier *nvme, struct tier_batch *batch, uint32_t last_of);

/*
 * nvme_recycle - write a header of segment_generation_next() with the batch's kills and no blocks
 * at page 0 of a RECYCLING segment, one without kills with its copy at page 1, and sync it; when it
 * is answered KVT_OK the caller calls segment_free() and the fill mark stands behind these. Until
 * then nothing else is written there.
 *
 * KVT_OK: as the vtable's put. KVT_E_BUSY: reads of the segment are in flight, try again when they
 * have ended. KVT_E_STATE: it is not RECYCLING, or its last generation is reached (it stays as it
 * is for ever). KVT_E_READONLY, KVT_E_NOMEM, KVT_E_INVAL (blocks, or too many kills).
 */
enum kvt_status nvme_recycle(
    struct nvme_tier *nvme, struct segment *segment, struct tier_batch *batch);

/*
 * nvme_scan - rebuild: read every batch header of one segment (a broken chain is searched page by
 * page; the MAC decides), synchronously, before any put. Only headers of the highest generation
 * found count. `visit` gets each proven batch in order of sequence; false stops. Damage is no
 * failure: KVT_E_NOMEM (of the kernel, too), KVT_E_INVAL (no such segment).
 */
struct nvme_scan_result {
    uint32_t generation;     /* Of the headers that count; 0: none was found. */
    uint32_t unreadable_end; /* Behind the last page that may be a header and could not be read; 0:
                              * all could. */
    uint64_t damaged_pages;  /* That could not be read, or begin like a header and are none. */
};
typedef bool (*nvme_scan_fn)(void *visitor, const struct batch_header *header,
    const struct block_record *records, const struct tier_kill *kills);
enum kvt_status nvme_scan(struct nvme_tier *nvme, uint32_t segment, nvme_scan_fn visit,
    void *visitor, struct nvme_scan_result *result_out);

/* nvme_scan_again - one batch of which nvme_scan() told, by its header's place and its sequence.
 * KVT_E_IO: its header cannot be read now; KVT_E_NOMEM and KVT_E_INVAL as nvme_scan(). */
enum kvt_status nvme_scan_again(struct nvme_tier *nvme, const struct extent *header,
    uint64_t sequence, nvme_scan_fn visit, void *visitor);

/* nvme_peek - the bytes of an extent, synchronously (recovery only). `memory` is aligned to a page
 * and holds whole pages. KVT_E_INVAL: no such extent; KVT_E_IO. */
enum kvt_status nvme_peek(
    struct nvme_tier *nvme, const struct extent *extent, uint32_t size, void *memory);

/* nvme_header_erase - no header stands at that place any more, once it is synced; synchronously
 * (recovery only). KVT_E_INVAL: no such place; KVT_E_READONLY, KVT_E_NOMEM, KVT_E_IO. */
enum kvt_status nvme_header_erase(struct nvme_tier *nvme, const struct extent *header);

/*
 * nvme_segment_void - whatever stands in a segment that is FREE, or RECYCLING, is of an earlier
 * fill than that generation, once it is synced: a recycle header of it at page 0, and its copy,
 * synchronously (recovery only). KVT_E_READONLY, KVT_E_NOMEM, KVT_E_NOSPC (a sparse file),
 * KVT_E_IO.
 */
enum kvt_status nvme_segment_void(
    struct nvme_tier *nvme, const struct segment *segment, uint32_t generation, uint64_t sequence);

/*
 * nvme_pages_erase - zeros over the pages before `end` of a RECYCLING segment without transfers,
 * but for its recycle header and the copy of that, synchronously; the next one makes them durable.
 * A disk has another sector for a bad one then. KVT_E_INVAL: no such pages; KVT_E_READONLY,
 * KVT_E_NOMEM, KVT_E_IO.
 */
enum kvt_status nvme_pages_erase(
    struct nvme_tier *nvme, const struct segment *segment, uint32_t end);

/* nvme_files_sync - what was written is durable, synchronously (recovery only). The first failure;
 * the other files are synced all the same. */
enum kvt_status nvme_files_sync(struct nvme_tier *nvme);

struct nvme_caps {
    const char *io_engine;
    uint32_t align_bytes[NVME_ROOTS_MAX];
    bool is_direct[NVME_ROOTS_MAX];
    bool is_read_only[NVME_ROOTS_MAX]; /* After failures, or asked for. */
};
void nvme_caps_get(struct nvme_tier *nvme, struct nvme_caps *caps_out);

/* nvme_root_is_writable - false after failures, or as asked for: what lies there can be read. */
bool nvme_root_is_writable(const struct nvme_tier *nvme, uint32_t root);

struct lane_stats;
void nvme_lane_stats(struct nvme_tier *nvme, uint32_t root, struct lane_stats *stats_out);

#endif /* KVT_TIERS_NVME_TIER_H */
