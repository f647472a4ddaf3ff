/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relocate.h - rewriting blocks and kills of a segment that is being reclaimed to where puts go.
 *
 * Owns      the one group of blocks that may be on its way, and the memory that it is read into.
 * Not here  which blocks deserve it (victim.h).
 * Threads   the loop; checksums are computed on a worker.
 *
 *                                  <--host_copies_fail()--
 *   IDLE --relocate_start()--> LOADING --blocks_loaded()--> PROVING --blocks_proved()--> PUTTING
 *    ^ ^                                                                                  |   |
 *    | +-------------------- group_written(): the write or the sync failed ---------------+   |
 *    |                                                                    group_written()     |
 *    +---- group_committed() ---- COMMITTING <------------------------------------------------+
 *
 *   LOADING     Blocks without a copy in HOST are read; each has a pin.
 *   PROVING     A worker compares the checksums, of what was read and of HOST's copies. Of a block
 *               whose copy in HOST was written over, the good one on NVMe is not to die of that:
 *               it is read, and proved; HOST's goes, unless somebody is reading the block. A block
 *               whose bytes were read and are wrong, or cannot be read a second time (reclaim.h),
 *               leaves the store; but if HOST or HBM has it, too, only its copy on NVMe goes, and
 *               HOST's is written again, beside the group (entry_nvme_condemn()).
 *   PUTTING     A batch: the blocks under new sequence numbers, and kills of their old copies: a
 *               rebuild must not take one of these for the newest when the new copy has been
 *               deleted and its segment recycled, but the victim has not. With the batch, so that
 *               no crash comes between; when a payload is torn its old copy stays
 *               (rebuild_choose.c). A put that replaces one of the blocks, and a delete, wait until
 *               it is known where that stands: a kill of the new copy reaches the old one as well,
 *               and that has to stay until what replaces it is durable; and a delete's kill must
 *               name the copy that outlives the other, also of a block that was found damaged
 *               meanwhile.
 *   COMMITTING  A block that is still where it was read from has moved, in the map at once. One
 *               that was cleared or found damaged meanwhile has not: its new copy counts all the
 *               same, until a kill of its own is durable. The kill of the old copy goes when the
 *               victim's generation has passed. The index learns of all in one transaction.
 *
 * After a write that fails the blocks stay where they are: their copies in the batch that failed,
 * which may have reached the disk, are void with it.
 */
#ifndef KVT_ENGINE_RELOCATE_H
#define KVT_ENGINE_RELOCATE_H

#include "block_record.h"
#include "commit_batch.h"

struct kvt_store;
struct op;
struct relocate;
struct tier_kill;

#define RESIDENT_NONE UINT32_MAX

/* A block of a segment: good while the entry still has this place. */
struct resident {
    uint32_t number;
    struct extent extent;
    /* victim.c's, for its order. */
    uint64_t importance;
    uint32_t last_use, depth;
    uint32_t parent_at;   /* Where its parent stands among the victim's; RESIDENT_NONE. */
    uint32_t child_count; /* Of blocks in the map that do not go with the victim. */
    bool is_pinned, is_expendable;
};

enum kvt_status relocate_open(struct kvt_store *store);
void relocate_close(struct kvt_store *store);
bool relocate_is_idle(const struct kvt_store *store);

/* relocate_is_writing - a group that is not committed was or is being written to that segment. */
bool relocate_is_writing(const struct kvt_store *store, uint32_t segment);

/* relocate_wait - true: a block of that key is in a group that is being written, though it may have
 * left the map meanwhile, and `op`, a put that shall take its place or a delete, starts again when
 * that is over. */
bool relocate_wait(struct kvt_store *store, struct op *op);

/* resident_is_there - the entry is still RESIDENT, and its NVMe copy where it was. */
bool resident_is_there(struct kvt_store *store, const struct resident *resident);

/*
 * relocate_start - move as many of the blocks, from the front on, as one batch takes and the
 * segment that is being filled still holds: one more would leave a hole there as large as what
 * reclaiming gains. Blocks that are no longer there are passed over. Returns how many were dealt
 * with: at least one if there is one. The group is over when relocate_is_idle();
 * relocate_status_take() then tells how it went. `last_of` (nvme_put_reserved()): when all are
 * dealt with, nothing keeps the victim, a segment of that root, from being recycled; else
 * NVME_ROOT_NONE.
 */
uint32_t relocate_start(
    struct kvt_store *store, const struct resident *residents, uint32_t count, uint32_t last_of);

/* relocate_kills - the same with a batch of up to COMMIT_KILLS_MAX kills, without blocks. */
void relocate_kills(
    struct kvt_store *store, const struct tier_kill *kills, uint32_t kill_count, uint32_t last_of);

/* relocate_status_take - of the last group, told once: KVT_OK, or the failure of its read, write or
 * commit; KVT_E_BUSY: a bad copy could not be given up, because somebody has its block pinned, or
 * the disks had no space (nvme_lack());
 * KVT_NOT_READY: a block could not be read, and stays. */
enum kvt_status relocate_status_take(struct kvt_store *store);

#endif /* KVT_ENGINE_RELOCATE_H */
