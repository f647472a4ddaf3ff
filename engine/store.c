/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - the life of a store: open, close, abort; and the checks at every call's border.
 *
 * Order of opening: directory, lock, STORE (read, or made), HOST, map, workers, a look at NAMES and
 * the index, NVMe, index, committer, loop. store_free() takes down whatever is there in the reverse
 * order, so that each failure on the way is undone by the same code that closes a store.
 */
#include "store_internal.h"

#include "copy_run.h"
#include "engram_set.h"
#include "file_load.h"
#include "inspect.h"
#include "io_choice.h"
#include "queue_internal.h"
#include "recover_table.h"
#include "store_dir.h"
#include "strays.h"
#include "ticket_pool.h"

#define STRINGIFY(x) #x
#define VERSION_TEXT(a, b, c) STRINGIFY(a) "." STRINGIFY(b) "." STRINGIFY(c)

const char *
kvt_version(void)
{
    return VERSION_TEXT(KVT_VERSION_MAJOR, KVT_VERSION_MINOR, KVT_VERSION_PATCH);
}

/* --- The border ------------------------------------------------------------------------------- */

bool
store_is_poisoned(const struct kvt_store *store)
{
    return atomic_load_explicit(&store->poisoned, memory_order_acquire) != 0;
}

enum kvt_status
store_enter(const struct kvt_store *store)
{
    if (store == NULL)
        return failure_set(KVT_E_INVAL, 0, "store is NULL");
    if (atomic_load_explicit(store->fork_page, memory_order_relaxed) != STORE_ALIVE)
        return failure_set(KVT_E_STATE, 0, "the store belongs to the process that opened it");
    if (store_is_poisoned(store))
        return failure_set(KVT_E_POISONED, 0, "an invariant broke: close the store");
    return KVT_OK;
}

/* On whichever of the store's threads it was. */
static void
store_proof_failed(void *context, const char *expression, const char *file, int line)
{
    struct kvt_store *store = context;

    log_line(&store->logger, LOG_ERROR, "store", "event=poisoned proof=\"%s\" file=%s line=%d",
        expression, file, line);
    atomic_store_explicit(&store->poisoned, 1, memory_order_release);
    store_health_set(store, KVT_HEALTH_POISONED);
    waiters_wake(store);
    queues_wake(store);
    if (store->loop_task != NULL)
        env_wake(&store->env, store->loop_task); /* For those that wait in loop_call(). */
}

struct proof_handler
store_proofs_set(struct kvt_store *store)
{
    return proof_handler_set((struct proof_handler){store_proof_failed, store});
}

void
store_health_set(struct kvt_store *store, uint32_t flag)
{
    atomic_fetch_or_explicit(&store->health, flag, memory_order_relaxed);
}

enum kvt_status
kvt_health(kvt_store *store, uint32_t *flags_out)
{
    if (store == NULL || flags_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "store or flags_out is NULL");
    if (store_enter(store) == KVT_E_STATE)
        return KVT_E_STATE;
    *flags_out = atomic_load_explicit(&store->health, memory_order_relaxed);
    return KVT_OK;
}

void
kvt_last_error(struct kvt_error *error_out)
{
    const struct failure *failure = failure_last();

    if (error_out == NULL)
        return;
    error_out->status = failure->status;
    error_out->foreign_code = failure->foreign_code;
    error_out->text = failure->text;
}

/* --- Freeing ---------------------------------------------------------------------------------- */

/*
 * Whoever answers the loop wakes it after its answer can be seen, so that the loop's task goes
 * last: committer, lanes and workers, which have nothing left to do, are stopped while it is there.
 * It rests meanwhile, and has begun nothing since it was drained (loop_end()): what it would look
 * at once more (a pin whose time is over, say) would begin work for those that are being taken
 * down; or, when the store is poisoned, may be broken.
 */
static void
store_threads_stop(struct kvt_store *store)
{
    process_waits_end(&store->processes);
    if (store->loop_task != NULL)
        loop_rest(store);
    /* First: memory that a device knows is given back when all of its streams have gone on. */
    if (store_is_poisoned(store))
        holds_release(store);
    engrams_close(store);
    loads_stop(store);
    committer_close(store, store->committer);
    victim_scan_stop(store);
    if (store->nvme != NULL)
        nvme_as_tier(store->nvme)->ops->close(nvme_as_tier(store->nvme));
    /* Behind those that give workers something to do, ahead of what they read and write by. */
    crew_close(store->crew);
    layouts_close(store);
    regions_close(store);
    holds_stop(store);
    process_watch_close(&store->processes);
    devices_close(&store->devices);
    holds_close(store);
    loads_close(store);
    engrams_free(store);
    if (store->loop_task != NULL)
        store->env.sched->stop(store->env.sched_context, store->loop_task);
    store->loop_task = NULL;
    /* The loop's, for as long as it runs. */
    store->committer = NULL;
    store->nvme = NULL;
    store->crew = NULL;
}

static void
arena_close(struct kvt_store *store)
{
    size_t size = 0;

    if (store->host == NULL)
        return;
    if (store->devices.is_arena_kept) {
        const void *arena = host_arena(store->host, &size);

        devices_kept_log(store, arena, size);
        host_arena_keep(store->host);
    }
    host_as_tier(store->host)->ops->close(host_as_tier(store->host));
}

static void
store_free(struct kvt_store *store)
{
    struct kvt_env env = store->env;

    store_threads_stop(store);
    scrubs_close(store);
    live_close(store);
    lazy_file_close(store->learned);
    fates_close(store);
    codecs_deinit(&store->codecs);
    commit_close(store);
    reclaim_close(store);
    victim_scan_close(store);
    relocate_close(store);
    if (store->index != NULL)
        store->index->ops->close(store->index);
    leases_close(store);
    reservations_close(store);
    phases_end(store);
    ticket_pool_close(store);
    queues_close(store);
    pool_deinit(&store->flight_pool);
    pool_deinit(&store->fill_pool);
    pool_deinit(&store->fill_copies_pool);
    pool_deinit(&store->copy_pool);
    pool_deinit(&store->spread_pool);
    pool_deinit(&store->run_pool);
    pool_deinit(&store->fetch_pool);
    pool_deinit(&store->tail_pool);
    pool_deinit(&store->move_pool);
    if (store->policy != NULL)
        store->policy->ops->close(store->policy);
    event_ring_close(store);
    pins_close(store);
    entries_close(store->entries);
    residency_close(store->map);
    arena_close(store);
    namespaces_close(store);
    hidden_copies_close(store);
    env_put(&env, store->doomed, store->doomed_capacity * sizeof(*store->doomed));
    store_dir_unmake(store); /* LOCK and the data files that it made are still locked. */
    store_dirs_close(store);
    if (store->fork_page != NULL)
        env_unmap(&env, store->fork_page, PAGE_BYTES);
    pthread_mutex_destroy(&store->names_lock);
    pthread_mutex_destroy(&store->reservations_lock);
    waiters_deinit(&store->waiters);
    pthread_mutex_destroy(&store->queues_lock);
    process_watch_deinit(&store->processes);
    if (store->path != NULL)
        env_put(&env, store->path, strlen(store->path) + 1);
    env_put(&env, store, sizeof(*store));
}

/* --- Opening ---------------------------------------------------------------------------------- */

static enum kvt_status
store_create(const struct store_world *world, const char *path, struct kvt_store **store_out)
{
    const struct kvt_env *env = world->env;
    struct kvt_store *store = env_take(env, sizeof(*store));
    size_t size = strlen(path) + 1;

    *store_out = store;
    if (store == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a store");
    store->env = *env;
    store->world = *world;
    pthread_mutex_init(&store->names_lock, NULL);
    pthread_mutex_init(&store->reservations_lock, NULL);
    waiters_init(&store->waiters);
    pthread_mutex_init(&store->queues_lock, NULL);
    process_watch_init(&store->processes, &store->env);
    phases_open(store);
    store->path = env_take(env, size);
    if (store->path == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a store");
    memcpy(store->path, path, size);
    store->fork_page = env->memory->fork_page(env->memory_context);
    if (store->fork_page == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a store");
    atomic_store_explicit(store->fork_page, STORE_ALIVE, memory_order_relaxed);
    return KVT_OK;
}

static enum kvt_status
memory_open(struct kvt_store *store)
{
    const struct policy_ops *ops = options_policy(&store->options);

    KVT_TRY(host_open(&store->env, store->options.host_capacity_bytes,
        (size_t)round_up(store->options.block_bytes_max, PAGE_BYTES), &store->host));
    store->slab = host_slab(store->host);
    KVT_TRY(residency_open(&store->env, RESIDENCY_COUNT_MAX, &store->map));
    KVT_TRY(entries_open(&store->env, store->map, &store->entries));
    KVT_TRY(ops->open(&store->env, store->entries, &store->policy));
    room_open(store);
    flight_pool_open(store);
    fill_pool_open(store);
    copy_pool_open(store);
    copy_run_pool_open(store);
    fetches_open(store);
    move_pool_open(store);
    KVT_TRY(ticket_pool_open(store));
    KVT_TRY(pins_open(store));
    KVT_TRY(leases_open(store));
    KVT_TRY(regions_open(store));
    KVT_TRY(layouts_open(store));
    KVT_TRY(engrams_open(store));
    KVT_TRY(loads_open(store));
    KVT_TRY(devices_open(store));
    KVT_TRY(holds_open(store));
    codecs_init(&store->codecs, &store->env, store->options.block_bytes_max);
    return crew_open(&store->env, "kvt-worker", store->options.worker_count, &store->crew);
}

static enum kvt_status
root_open(struct kvt_store *store, uint32_t i)
{
    const struct fs_ops *fs = store->env.fs;
    const char *path = store->file.root_paths[i];
    unsigned flags = store->is_read_only ? 0 : FS_CREATE;
    enum kvt_status status =
        path[0] == '\0' ? fs->dir_open_at(store->dir, "data", flags, &store->root_dirs[i])
                        : fs->dir_open(store->env.fs_context, path, flags, &store->root_dirs[i]);

    /* KVT_MISS would say that there is no store. */
    if (status == KVT_MISS)
        return failure_set(KVT_E_IO, 0,
            "root %u, %s, is missing, or the folder that it is in: is its disk mounted?", i,
            path[0] == '\0' ? "the folder data of the store" : path);
    return status;
}

static enum kvt_status
nvme_prepare(struct kvt_store *store, const struct recover_facts *facts)
{
    struct nvme_options options = {
        .root_count = store->file.root_count,
        .segment_pages = store->file.segment_pages,
        .reserve_count = RECLAIM_RESERVE,
        .read_only = store->is_read_only,
        .may_remake = facts->is_rebuild_wanted,
        .may_lack = store->world.may_lack_data,
        .logger = &store->logger,
        .loop_task = &store->loop_task,
        .is_new = store->is_being_made,
        .made = store->made_files,
    };
    enum kvt_status status;

    if (store->options.nvme_capacity_bytes == KVT_CAPACITY_NONE)
        return KVT_OK;
    memcpy(options.store_uuid, store->file.uuid, sizeof(options.store_uuid));
    memcpy(options.secret, store->file.secret, sizeof(options.secret));
    options.arena = host_arena(store->host, &options.arena_size);
    for (uint32_t i = 0; i < options.root_count; i++) {
        KVT_TRY(root_open(store, i));
        options.roots[i] = store->root_dirs[i];
        /* A store gets its index after its data files. */
        options.was_made[i] = store->file.root_bytes[i] > 0 && facts->index != INDEX_ABSENT;
        options.root_bytes[i] =
            store_file_grown(&store->file, store->options.nvme_capacity_bytes, i);
    }
    do
        status = nvme_open(&store->env, &options, &store->nvme);
    while (status != KVT_OK && io_engine_fall_back(store, status));
    KVT_TRY(status);
    store->segments = nvme_segments(store->nvme);
    return store_capacity_note(store);
}

static enum kvt_status
threads_start(struct kvt_store *store)
{
    struct actor loop = {.name = "kvt-loop", .step = loop_step, .context = store};
    bool is_unfinished = store->is_unfinished;

    KVT_TRY(event_ring_open(store));
    KVT_TRY(relocate_open(store));
    KVT_TRY(victim_scan_open(store));
    KVT_TRY(reclaim_open(store));
    KVT_TRY(committer_open(store, &store->committer));
    KVT_TRY(live_open(store));
    store->learned = lazy_file_open(store, &learned_file);
    fates_open(store);
    store->seeks_strays = !store->is_read_only && store->nvme != NULL;
    KVT_TRY(store->env.sched->start(store->env.sched_context, &loop, &store->loop_task));
    strays_remove(store); /* Before anything is promised. */
    flush_kills(store);   /* Likewise: those of what recovery found dead. */
    if (is_unfinished)
        index_finish_await(store);
    return KVT_OK;
}

static enum kvt_status
store_open_parts(struct kvt_store *store, const struct kvt_options *options)
{
    bool is_new = false;
    struct recover_facts facts = {.is_read_only = false};
    const struct kvt_options defaults = KVT_OPTIONS_INIT;
    KVT_TRY(options_import(&store->options, options == NULL ? &defaults : options));
    store->index_map_is_default = store->options.index_map_bytes == 0;
    if ((store->options.flags & KVT_OPEN_READ_ONLY) != 0) {
        store->is_read_only = true;
        store_health_set(store, KVT_HEALTH_READ_ONLY);
    }
    if (store->options.log_level > KVT_LOG_DEBUG)
        return failure_set(KVT_E_INVAL, 0, "log_level %u", store->options.log_level);
    store->logger.callback = store->options.log;
    store->logger.context = store->options.log_context;
    store->logger.level_max = (enum log_level)store->options.log_level;
    store->logger.env = &store->env;
    if (store->env.io == NULL)
        KVT_TRY(io_engine_choose(store));
    KVT_TRY(store_dir_open(
        store, (store->options.flags & (KVT_OPEN_EXISTING | KVT_OPEN_READ_ONLY)) == 0));
    KVT_TRY(store_lock(&store->env, store->dir, store->is_read_only, &store->lock));
    KVT_TRY(store_identity_open(store, &is_new));
    KVT_TRY(memory_open(store));
    KVT_TRY(recover_meta_open(store));
    KVT_TRY(recover_look(store, is_new, &facts));
    KVT_TRY(nvme_prepare(store, &facts));
    KVT_TRY(store_dir_sync(store));
    KVT_TRY(commit_open(store)); /* What recovery finds stale is killed. */
    KVT_TRY(recover_store(store, is_new, &facts));
    return threads_start(store);
}

enum kvt_status
store_open_in(const struct store_world *world, const char *path, const struct kvt_options *options,
    kvt_store **store_out)
{
    const struct failure before = *failure_last();
    struct kvt_store *store = NULL;
    struct proof_handler handler;
    uint64_t begin_ns;
    enum kvt_status status;

    if (store_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "store_out is NULL");
    *store_out = NULL;
    if (world->env == NULL)
        return failure_set(KVT_E_INVAL, 0, "env is NULL");
    if (path == NULL || path[0] == '\0')
        return failure_set(KVT_E_INVAL, 0, "path is NULL or empty");
    begin_ns = env_now(world->env);
    status = store_create(world, path, &store);
    if (status == KVT_OK) {
        handler = store_proofs_set(store);
        status = store_open_parts(store, options);
        (void)proof_handler_set(handler);
    }
    if (status != KVT_OK) {
        struct failure failure = *failure_last();

        if (store != NULL)
            store_free(store);
        failure_copy(&failure);
        return status;
    }
    store->is_being_made = false;
    histogram_add(&store->latencies.open_ns, env_now(world->env) - begin_ns);
    log_line(&store->logger, LOG_INFO, "store", "event=open path=%s blocks=%llu io=%s", path,
        (unsigned long long)residency_count(store->map), store->env.io->name);
    /* What it looked for in vain, as the files that a new store has not yet, is no failure. */
    failure_copy(&before);
    *store_out = store;
    return KVT_OK;
}

void
kvt_env_host(struct kvt_env *env_out)
{
    env_host(env_out);
}

enum kvt_status
kvt_open_env(const char *path, const struct kvt_options *options, const struct kvt_env *env,
    kvt_store **store_out)
{
    const struct store_world world = {.env = env, .index_ops = &index_lmdb_ops};

    return store_open_in(&world, path, options, store_out);
}

enum kvt_status
kvt_open(const char *path, const struct kvt_options *options, kvt_store **store_out)
{
    struct kvt_env env;

    env_host(&env);
    return kvt_open_env(path, options, &env, store_out);
}

/* --- Closing ---------------------------------------------------------------------------------- */

/* The loop: everything that was submitted is finished and durable as far as it shall be. */
static bool
drain_run(struct kvt_store *store, void *context)
{
    (void)context;
    if (store_is_poisoned(store))
        return true;
    phases_end(store);
    commit_try_last(store);
    return commit_is_idle(store) && reclaim_is_idle(store) && !work_is_in_flight(store) &&
           !room_is_wanted(store) &&
           atomic_load_explicit(&store->ticket_count, memory_order_acquire) == 0;
}

static enum kvt_status
close_refuse(struct kvt_store *store)
{
    uint32_t leases = atomic_load_explicit(&store->lease_out_count, memory_order_acquire);
    uint32_t tickets = atomic_load_explicit(&store->ticket_held_count, memory_order_acquire);
    uint32_t queues = atomic_load_explicit(&store->queue_count, memory_order_acquire);
    uint32_t reservations = atomic_load_explicit(&store->reservation_count, memory_order_acquire);
    uint32_t tables = engrams_open_count(store);
    uint32_t loads = loads_open_count(store);
    uint32_t holds = atomic_load_explicit(&store->holds.out_count, memory_order_acquire);
    uint32_t events = process_watch_count(&store->processes);

    if (leases + tickets + queues + reservations + tables + loads + holds + events == 0)
        return KVT_OK;
    return failure_set(KVT_E_STATE, 0,
        "%u leases, %u tickets, %u queues, %u reservations, %u Engram tables, %u loads, %u holds "
        "and %u shared events are out",
        leases, tickets, queues, reservations, tables, loads, holds, events);
}

/*
 * The last write of a life. In doubt there is none: batches that failed, or that a crash left, may
 * stand on the disk with nothing durable that says so, and only behind a life that did not end
 * clean they are looked for.
 */
static enum kvt_status
clean_mark(struct kvt_store *store)
{
    if (!commit_is_in_doubt(store))
        return store->index->ops->mark(store->index, true);
    log_line(&store->logger, LOG_WARN, "store",
        "event=closed_in_doubt text=\"the next open recovers as after a crash\"");
    return KVT_OK;
}

enum kvt_status
kvt_close(kvt_store *store)
{
    enum kvt_status status = KVT_OK;
    bool is_poisoned;

    if (store == NULL)
        return KVT_OK;
    /* In a forked child the threads are not there: nothing can be taken down. */
    if (store_enter(store) == KVT_E_STATE)
        return KVT_OK;
    if (!store_is_poisoned(store)) {
        KVT_TRY(close_refuse(store));
        loop_end(store, drain_run, NULL);
        if (flush_untold_count(store) > 0)
            status = failure_set(KVT_E_IO, 0, "%llu puts or deletes could not be made durable",
                (unsigned long long)flush_untold_count(store));
    }
    store_threads_stop(store);
    is_poisoned = store_is_poisoned(store);
    if (!is_poisoned && !store->is_read_only &&
        (atomic_load_explicit(&store->health, memory_order_relaxed) & KVT_HEALTH_META_READONLY) ==
            0) {
        lazy_file_write(store->learned);
        fates_end(store);
        lazy_file_write(store->fates_file);
        status = status_keep(status, clean_mark(store));
    }
    store_free(store);
    return status;
}

/* The loop: nothing new is started; what is under way has ended. */
static bool
abandon_run(struct kvt_store *store, void *context)
{
    (void)context;
    if (store_is_poisoned(store))
        return true;
    if (!store->is_draining) {
        store->is_draining = true;
        phases_end(store);
        /* First: what is under way may stand behind a stream that waits. */
        holds_cancel(store);
        /* What tickets wait for may never come. */
        devices_waits_cancel(store);
        commit_abandon(store);
        /* Those that wait for room learn that there will be none. */
        store->room_changed = true;
    }
    return commit_is_idle(store) && reclaim_is_idle(store) && !work_is_in_flight(store) &&
           !room_is_wanted(store);
}

void
kvt_abort(kvt_store *store)
{
    if (store == NULL || store_enter(store) == KVT_E_STATE)
        return;
    /* What is on its way to a device must end before its memory goes; a stream may stand behind
     * what another process never does. */
    process_waits_end(&store->processes);
    if (!store_is_poisoned(store))
        loop_end(store, abandon_run, NULL);
    store_free(store);
}
