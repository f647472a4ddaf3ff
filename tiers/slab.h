/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.h - exact-size slots in superblocks cut from one arena.
 *
 * Owns      which bytes of the arena belong to which slot, and each slot's generation.
 * Not here  the arena's memory (host_tier.c maps it, hbm_tier.c takes it from a device: only
 *           addresses are computed here, nothing looks into it), what is in a slot.
 * Threads   the loop thread only; slab_address() of a taken slot any thread.
 *
 * A size class is a slot size: a multiple of 4 KiB, at most SLAB_CLASS_MAX of them, made as sizes
 * are first asked for. A size gets a class of its own while there is room for one (a store sees
 * few sizes); a class that has no superblock left is given to the next new size; with all classes
 * in use a size takes the smallest class that holds it (the last class is always slot_bytes_max).
 * A superblock serves one class until it is empty; then it returns to the free list and may serve
 * another. Superblocks are powers of two, so no slot crosses a superblock or a chunk of 1 GiB (the
 * limit of an io_uring buffer and of cudaHostRegister). The arena's rest behind the last whole
 * superblock is not used.
 *
 * Invariants (slab_check)
 *   (1) a superblock is free, or has one class and a bitmap of its taken slots;
 *   (2) used_bytes is the sum of taken slots' sizes; (3) a slot's generation rises when it is put;
 *   (4) a class's free slots are those of its superblocks that are not taken.
 */
#ifndef KVT_TIERS_SLAB_H
#define KVT_TIERS_SLAB_H

#include "env.h"

enum {
    SLAB_CLASS_MAX = 32,
};

struct slab;

/* A taken slot; number packs superblock and index. generation is never 0 for a taken slot. */
struct slot {
    uint32_t number;
    uint32_t generation;
};

/*
 * slab_open - over `arena` (2 MiB aligned, `size` a multiple of 4 KiB). superblock_bytes 0: chosen
 * from the size (1/64 of it, a power of two in 64 KiB..64 MiB, at least `slot_bytes_max`);
 * otherwise a power of two in 4 KiB..64 MiB that is at least `slot_bytes_max`. slot_bytes_max: 1
 * B..64 MiB. KVT_E_INVAL: a bound, or not even one superblock fits. KVT_E_NOMEM.
 *
 * slab_bytes_min - the smallest arena in which chosen superblocks hold such a slot. All are smaller
 * than SLAB_BYTES_END.
 */
#define SLAB_BYTES_END (UINT64_C(1) << 44)
uint64_t slab_bytes_min(size_t slot_bytes_max);
enum kvt_status slab_open(const struct kvt_env *env, void *arena, size_t size,
    size_t superblock_bytes, size_t slot_bytes_max, struct slab **slab_out);
void slab_close(struct slab *slab);

/* slab_take - KVT_E_NOSPC: no slot of that size and no free superblock (evict, then try again).
 * KVT_E_INVAL: size 0 or above slot_bytes_max. */
enum kvt_status slab_take(struct slab *slab, size_t size, struct slot *slot_out);

/* slab_has_room - slab_take() would find a slot. */
bool slab_has_room(const struct slab *slab, size_t size);

/* slab_put - false, and nothing changes, when the slot is not taken or stale: a mistake of the
 * caller, who decides what it means. */
bool slab_put(struct slab *slab, struct slot slot);

bool slab_is_current(const struct slab *slab, struct slot slot);

/* slab_slot - the slot of that number, as it is now: for owners who remember the number only. */
struct slot slab_slot(const struct slab *slab, uint32_t number);

/* Of a taken slot (its generation is not looked at). NULL and 0 for a number that cannot be. */
void *slab_address(const struct slab *slab, struct slot slot);
size_t slab_slot_bytes(const struct slab *slab, struct slot slot);

void *slab_base(const struct slab *slab); /* Where its memory begins. */

/* slab_own - whose a taken slot is: a number of the caller's, until the slot is put. */
void slab_own(struct slab *slab, struct slot slot, uint32_t owner);

/*
 * To let memory change class: a superblock is emptied by moving what is in it to free slots of its
 * class in others.
 *
 * slab_emptiable - the first superblock (number) from `first` on, and round, whose class is not
 * that of `size` and has as many free slots as a superblock has slots; UINT32_MAX: none.
 * slab_taken_next - the first taken slot of a superblock from index *cursor on, which goes behind
 * it, and its owner (UINT32_MAX: nobody's); false: none.
 * slab_take_beside - a free slot of the same class in another superblock than that taken one's;
 * false: there is none.
 */
uint32_t slab_emptiable(const struct slab *slab, size_t size, uint32_t first);
bool slab_taken_next(const struct slab *slab, uint32_t superblock, uint32_t *cursor,
    struct slot *slot_out, uint32_t *owner_out);
bool slab_take_beside(struct slab *slab, struct slot slot, struct slot *slot_out);

uint64_t slab_superblock_bytes(const struct slab *slab);
uint64_t slab_capacity(const struct slab *slab);  /* All whole superblocks. */
uint64_t slab_used(const struct slab *slab);      /* Sum of taken slots. */
uint64_t slab_committed(const struct slab *slab); /* Sum of superblocks in use. */
void slab_check(const struct slab *slab);

#endif /* KVT_TIERS_SLAB_H */
