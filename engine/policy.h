/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h - the vtable of a policy: which copy in memory goes first, which blocks are worth a
 * place on NVMe, and what a block is worth beside another.
 *
 * A policy is told of every block that comes into the map and leaves it, of every copy in HBM and
 * HOST that comes and goes, and of every request; it is asked for victims. It never moves anything,
 * and knows blocks by their entry numbers only; what it may know of a block (parent, depth, class,
 * hint, places ...) it reads from `struct entries` (entries.h). Time is what callers give: it has
 * no clock. The same object files run in the engine and in the simulator.
 *
 * Order: leaves first. A copy with children in the same set is no victim: a child without its
 * parent is of no use. The sets are nested: HBM's copies have children in HBM (of any device); a
 * block that is only in HOST has children in HOST or HBM; one that is only on NVMe has children
 * anywhere in the map. A copy of a block that a better tier holds too can go at any time. When HOST
 * has no other victim, the store gives up what children in HBM alone keep there (room.c).
 *
 * NVMe: the store reclaims it by whole segments. It notes those copies in entry_state.places
 * itself, adds none here and asks for no victim there; the simulator does both.
 *
 * One request is told in this order: `request` of the resident blocks that it begins with; then, in
 * one call or several, `arrive` of the new ones behind them, with the same time; then `add` of
 * their copies.
 *
 * Implementations: policy_lru.c (leaf-first LRU), policy_s3fifo.c (S3-FIFO, leaf-first),
 * policy_default.c (GHI: learned hazards, leaf-first).
 * Threads   the loop only.
 */
#ifndef KVT_ENGINE_POLICY_H
#define KVT_ENGINE_POLICY_H

#include "entries.h"

/* What moving and computing cost, as measured (or assumed); 0: unknown. */
struct policy_costs {
    uint64_t host_load_ns; /* A block of the mean size from HOST to where it is used. */
    uint64_t nvme_load_ns;
    uint64_t recompute_ns;       /* Of a block at depth 0 ... */
    uint64_t recompute_depth_ns; /* ... and more for each block above it. */

    /* What a block written to NVMe costs beside time: endurance. 0: nothing. */
    uint64_t nvme_write_price_ns;
    /* The price is steered to hold as many blocks a second, on average. 0: it stays as it is. */
    double nvme_writes_per_second_max;
};

/* What admission to NVMe rests on, for people; NaN: nothing that says anything by itself. */
struct policy_worth {
    float worth_ns; /* Time that a copy on NVMe is expected to save ... */
    float price_ns; /* ... and what it must reach to be admitted. */
};

struct policy;
struct policy_nodes;

enum {
    POLICY_STATE_BYTES_MAX = 256 << 10,
};

struct policy_ops {
    const char *name; /* "lru", "s3fifo" */

    enum kvt_status (*open)(
        const struct kvt_env *env, struct entries *entries, struct policy **policy_out);
    void (*close)(struct policy *policy); /* NULL is fine. */

    /* Blocks that are new in the map: a chain of one put, first block first. Their parents are
     * linked; no copy was prepared yet. A block that an open finds on NVMe does not arrive. */
    void (*arrive)(struct policy *policy, const uint32_t *numbers, uint32_t count, uint64_t now_ns);
    /* The block leaves the map, whether it arrived or not: after its last `remove`, before its link
     * to its parent is cut. Evicted: it may come back; else it was deleted, or never filled. */
    void (*leave)(struct policy *policy, uint32_t number, bool is_evicted);

    /* Make sure that `add` of the entry's next copy works. KVT_E_NOMEM. `unprepare`: the copy did
     * not come after all. Each prepare ends with one add or one unprepare of the entry. */
    enum kvt_status (*prepare)(struct policy *policy, uint32_t number);
    void (*unprepare)(struct policy *policy, uint32_t number);

    /* A copy came (it was prepared), or goes. The entry's parent link is set before the first and
     * stays till the last, unless its parent leaves before. */
    void (*add)(struct policy *policy, enum policy_place place, uint32_t number);
    void (*remove)(struct policy *policy, enum policy_place place, uint32_t number);

    /* Whether the entry's copies can go is another question now: something is under way for it, or
     * nothing is any more (its state has a flight, or none), and a walk need not show them in the
     * meantime; or a child that has copies was linked to it, as it was away when that came. */
    void (*recheck)(struct policy *policy, uint32_t number);

    /* The blocks of one request were used: a chain, first block first (ENTRY_NONE: none). It notes
     * their last use in their entry states, and so do `arrive`, and `add` of a block that an open
     * found and nobody has used; nobody else does. */
    void (*request)(
        struct policy *policy, const uint32_t *numbers, uint32_t count, uint64_t now_ns);

    /* The next copy to give up in `place`, behind `cursor` (ENTRY_NONE: the first); ENTRY_NONE: no
     * other. A walk shows each copy once at most, while nothing is added, removed or requested but
     * the removal of what was shown. */
    uint32_t (*victim)(struct policy *policy, enum policy_place place, uint32_t cursor);

    /* Whether a block that leaves memory and has no copy on NVMe is worth being written there. */
    bool (*admits)(struct policy *policy, uint32_t number);

    /* The larger the longer it is worth keeping; comparable between blocks at one time (survivors
     * of a segment, segments). */
    uint64_t (*importance)(struct policy *policy, uint32_t number);

    /* Of a copy, in its place, for people: what has less goes first. NaN: nothing that says
     * anything by itself. */
    float (*score)(struct policy *policy, enum policy_place place, uint32_t number);
    void (*worth)(struct policy *policy, uint32_t number, struct policy_worth *worth_out);

    void (*costs_set)(struct policy *policy, const struct policy_costs *costs);

    /* What was learned, as at most POLICY_STATE_BYTES_MAX bytes (returns how many; 0: nothing), and
     * back: false, and nothing has changed, when these bytes are not what a policy of this kind
     * wrote. Nothing about single blocks is kept. */
    size_t (*save)(struct policy *policy, uint8_t *target);
    bool (*restore)(struct policy *policy, const uint8_t *source, size_t size);
};

/* The first member of every implementation. */
struct policy {
    const struct policy_ops *ops;
    struct entries *entries;
    struct policy_nodes *nodes; /* policy_nodes.h: theirs alone. */
};

extern const struct policy_ops policy_lru_ops;
extern const struct policy_ops policy_s3fifo_ops;
extern const struct policy_ops policy_default_ops;

#endif /* KVT_ENGINE_POLICY_H */
