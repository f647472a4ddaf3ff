/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_index.c - the in-memory index on the simulated disk: commits that fail, crash, or are lost.
 *
 * Owns      the index's disk object, which outlives lives, and the mark that it is damaged.
 * Not here  the index itself (index/index_mem.c).
 *
 * A commit at which the power goes, or that fails with EIO, has happened or not, by seed: a commit
 * is atomic. A commit that finds the map full (ENOSPC) has not.
 */
#include <errno.h>

#include "failure.h"
#include "sim_world_internal.h"

enum {
    COMMIT_NS = 300 * 1000,
};

struct sim_index {
    struct index base; /* First. */
    struct index *inner;
    struct sim_world *world;
    bool is_failed; /* A commit or a sync: none is taken behind it (index.h). */
};

/* --- 1. Faults -------------------------------------------------------------------------------- */

static enum kvt_status
power_failure(void)
{
    return failure_set(KVT_E_META, EIO, "index: the simulated power is off");
}

/* What becomes of one operation: KVT_OK do it; else fail with that, after doing it if *too_out. */
static enum kvt_status
index_begin(struct sim_world *world, enum sim_op op, bool *too_out)
{
    struct sim_verdict verdict;

    *too_out = false;
    if (world->is_crashed)
        return power_failure();
    verdict = sim_verdict_of(world, op, "index", NULL);
    world->guest.change_count += op == SIM_COMMIT;
    world->now_ns += verdict.stall_ns + (op == SIM_COMMIT ? COMMIT_NS : 0);
    if (verdict.crashes) {
        *too_out = op == SIM_COMMIT && rng_below(&world->cut_rng, 2) == 0;
        return power_failure();
    }
    if (verdict.effect == SIM_EIO || verdict.effect == SIM_TORN) {
        *too_out = op == SIM_COMMIT && rng_below(&world->fault_rng, 2) == 0;
        return failure_set(
            op == SIM_COMMIT ? KVT_E_META : KVT_E_IO, EIO, "index: injected I/O error");
    }
    if (verdict.effect == SIM_ENOSPC)
        return failure_set(KVT_E_NOSPC, ENOSPC, "index: injected lack of space");
    return KVT_OK;
}

static struct sim_index *
self_of(struct index *index)
{
    return (struct sim_index *)index;
}

/* The same for a commit or a sync of an index that is open. */
static enum kvt_status
commit_begin(struct sim_index *self, bool *too_out)
{
    enum kvt_status status;

    *too_out = false;
    if (self->is_failed)
        return failure_set(KVT_E_META, 0, "index: it failed before");
    status = index_begin(self->world, SIM_COMMIT, too_out);
    self->is_failed = status != KVT_OK && status != KVT_E_NOSPC;
    return status;
}

/* --- 2. The disk object ----------------------------------------------------------------------- */

static void
guest_cut(struct sim_world *world)
{
    /* Neither of two commits, the first, or both; of one alone, that or not. */
    index_disk_power_cut(world->guest.disk, rng_below(&world->cut_rng, 3));
}

static void
guest_destroy(struct sim_world *world)
{
    index_disk_destroy(world->guest.disk);
    world->guest.disk = NULL;
}

static struct index_disk *
disk_of(struct sim_world *world)
{
    if (world->guest.disk == NULL) {
        if (index_disk_create(&world->outer_env, &world->guest.disk) != KVT_OK)
            sim_panic(world, "no memory for the index's disk");
        world->guest.cut = guest_cut;
        world->guest.destroy = guest_destroy;
    }
    return world->guest.disk;
}

void
sim_index_damage(struct sim_world *world)
{
    world->guest.is_damaged = true;
}

bool
sim_index_is_damaged(const struct sim_world *world)
{
    return world->guest.is_damaged;
}

/* --- 3. The vtable ---------------------------------------------------------------------------- */

static enum kvt_status
wrap(struct sim_world *world, struct index *inner, struct index **index_out)
{
    struct sim_index *self = env_take(&world->env, sizeof(*self));

    if (self == NULL) {
        index_mem_ops.close(inner);
        return failure_set(KVT_E_NOMEM, 0, "no memory for the index");
    }
    self->base.ops = &sim_index_ops;
    self->inner = inner;
    self->world = world;
    *index_out = &self->base;
    return KVT_OK;
}

static enum kvt_status
sim_inspect(void *context, const struct kvt_env *env, struct fs_dir *dir,
    enum index_condition *condition_out)
{
    struct sim_world *world = context;
    bool too;
    enum kvt_status status = index_begin(world, SIM_INDEX, &too);

    if (status == KVT_OK)
        status = index_mem_ops.inspect(disk_of(world), env, dir, condition_out);
    if (status == KVT_OK && world->guest.is_damaged && *condition_out != INDEX_ABSENT) {
        *condition_out = INDEX_DAMAGED;
        failure_set(KVT_E_CORRUPT, 0, "index: declared damaged by the simulation");
    }
    return status;
}

static enum kvt_status
sim_create(void *context, const struct kvt_env *env, struct fs_dir *dir, uint64_t map_bytes,
    struct index **index_out)
{
    struct sim_world *world = context;
    struct index *inner;
    bool too;
    enum kvt_status status = index_begin(world, SIM_COMMIT, &too);

    *index_out = NULL;
    if (status == KVT_OK)
        status = index_mem_ops.create(disk_of(world), env, dir, map_bytes, &inner);
    return status == KVT_OK ? wrap(world, inner, index_out) : status;
}

static enum kvt_status
sim_open(void *context, const struct kvt_env *env, struct fs_dir *dir, bool read_only,
    struct index **index_out)
{
    struct sim_world *world = context;
    struct index *inner;
    bool too;
    enum kvt_status status = index_begin(world, SIM_INDEX, &too);

    *index_out = NULL;
    if (status == KVT_OK)
        status = index_mem_ops.open(disk_of(world), env, dir, read_only, &inner);
    return status == KVT_OK ? wrap(world, inner, index_out) : status;
}

static enum kvt_status
sim_remove(void *context, const struct kvt_env *env, struct fs_dir *dir)
{
    struct sim_world *world = context;
    bool too;
    enum kvt_status status = index_begin(world, SIM_COMMIT, &too);
    enum kvt_status inner = KVT_OK;

    if (status == KVT_OK || too)
        inner = index_mem_ops.remove(disk_of(world), env, dir);
    return status == KVT_OK ? inner : status;
}

static enum kvt_status
sim_install(struct index *index)
{
    struct sim_index *self = self_of(index);
    bool too;
    enum kvt_status status = index_begin(self->world, SIM_COMMIT, &too);
    enum kvt_status inner = KVT_OK;

    if (status == KVT_OK || too)
        inner = index_mem_ops.install(self->inner);
    if ((status == KVT_OK || too) && inner == KVT_OK)
        self->world->guest.is_damaged = false;
    return status == KVT_OK ? inner : status;
}

static enum kvt_status
sim_commit_by(struct index *index, const struct index_batch *batch,
    enum kvt_status (*commit)(struct index *index, const struct index_batch *batch))
{
    struct sim_index *self = self_of(index);
    bool too;
    enum kvt_status status = commit_begin(self, &too);
    enum kvt_status inner = KVT_OK;

    if (status == KVT_OK || too)
        inner = commit(self->inner, batch);
    return status == KVT_OK ? inner : status;
}

static enum kvt_status
sim_commit(struct index *index, const struct index_batch *batch)
{
    return sim_commit_by(index, batch, index_mem_ops.commit);
}

static enum kvt_status
sim_commit_deferred(struct index *index, const struct index_batch *batch)
{
    return sim_commit_by(index, batch, index_mem_ops.commit_deferred);
}

static enum kvt_status
sim_sync(struct index *index)
{
    struct sim_index *self = self_of(index);
    bool too;
    enum kvt_status status = commit_begin(self, &too);
    enum kvt_status inner = KVT_OK;

    if (status == KVT_E_NOSPC)
        status = KVT_OK; /* A full map is nothing to a sync. */
    if (status == KVT_OK || too)
        inner = index_mem_ops.sync(self->inner);
    return status == KVT_OK ? inner : status;
}

static enum kvt_status
sim_grow(struct index *index, uint64_t map_bytes)
{
    struct sim_index *self = self_of(index);
    bool too;
    enum kvt_status status = index_begin(self->world, SIM_COMMIT, &too);

    return status == KVT_OK ? index_mem_ops.grow(self->inner, map_bytes) : status;
}

static enum kvt_status
sim_mark(struct index *index, bool clean)
{
    struct sim_index *self = self_of(index);
    bool too;
    enum kvt_status status = commit_begin(self, &too);
    enum kvt_status inner = KVT_OK;

    if (status == KVT_OK || too)
        inner = index_mem_ops.mark(self->inner, clean);
    return status == KVT_OK ? inner : status;
}

static enum kvt_status
sim_each_block(struct index *index, bool (*visit)(void *visitor, const struct index_block *block),
    void *visitor)
{
    struct sim_index *self = self_of(index);
    bool too;
    enum kvt_status status = index_begin(self->world, SIM_INDEX, &too);

    return status == KVT_OK ? index_mem_ops.each_block(self->inner, visit, visitor) : status;
}

static enum kvt_status
sim_each_segment(struct index *index,
    bool (*visit)(void *visitor, const struct index_segment *segment), void *visitor)
{
    struct sim_index *self = self_of(index);
    bool too;
    enum kvt_status status = index_begin(self->world, SIM_INDEX, &too);

    return status == KVT_OK ? index_mem_ops.each_segment(self->inner, visit, visitor) : status;
}

static void
sim_stats(struct index *index, struct index_stats *stats_out)
{
    index_mem_ops.stats(self_of(index)->inner, stats_out);
}

static void
sim_close(struct index *index)
{
    struct sim_index *self = self_of(index);

    if (index == NULL)
        return;
    index_mem_ops.close(self->inner);
    env_put(&self->world->env, self, sizeof(*self));
}

const struct index_ops sim_index_ops = {
    .name = "sim",
    .inspect = sim_inspect,
    .create = sim_create,
    .install = sim_install,
    .open = sim_open,
    .remove = sim_remove,
    .commit = sim_commit,
    .commit_deferred = sim_commit_deferred,
    .sync = sim_sync,
    .grow = sim_grow,
    .mark = sim_mark,
    .each_block = sim_each_block,
    .each_segment = sim_each_segment,
    .stats = sim_stats,
    .close = sim_close,
};
