/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flush.c - which tickets still have something to make durable, what could not be, and kvt_flush(),
 * which waits for the tickets that came before it and tells what has failed.
 *
 * A ticket with two stages (a RELAXED or SYNC put, a delete) stands in the list from its delivery
 * until its last stage. No place inside the engine, such as a queue of the group commit, can stand
 * for that: an operation on its way passes many of them, and some more than once (a delete that
 * waits for a reclaim, a put that waits for a relocation). Kills that the engine has of its own (of
 * what an open found dead, say) have no ticket.
 *
 * Each failure is told by the first flush that ends after it, as fsync() tells errors: it may be
 * older than the flush, and its ticket freed. A flush that began before another one told it tells
 * it, too: it answers for its own caller's puts. What no flush has told the close tells.
 *
 * Threads   kvt_flush() any; flush_kills() the one that opens; the rest the loop.
 */
#include "store_internal.h"

void
flush_expect(struct kvt_store *store, struct kvt_ticket *ticket)
{
    struct flush_list *list = &store->flush_list;

    ticket->flush_number = ++list->last_number;
    ticket->older = list->newest;
    ticket->newer = NULL;
    if (list->newest == NULL)
        list->oldest = ticket;
    else
        list->newest->newer = ticket;
    list->newest = ticket;
}

void
flush_settle(struct kvt_store *store, struct kvt_ticket *ticket)
{
    struct flush_list *list = &store->flush_list;

    if (ticket->older == NULL)
        list->oldest = ticket->newer;
    else
        ticket->older->newer = ticket->newer;
    if (ticket->newer == NULL)
        list->newest = ticket->older;
    else
        ticket->newer->older = ticket->older;
}

void
flush_fail(struct kvt_store *store)
{
    store->flush_list.failure_count++;
}

uint64_t
flush_untold_count(const struct kvt_store *store)
{
    return store->flush_list.failure_count - store->flush_list.told_count;
}

struct flush {
    bool is_asked; /* By a caller, who is told. */
    bool is_begun;
    uint64_t last_number;   /* Of the tickets that it waits for ... */
    uint64_t kill_mark;     /* ... and the kills that there are without one. */
    uint64_t told_count;    /* Of failures, when it began. */
    uint64_t failure_count; /* When it is over: since those. */
};

static bool
flush_run(struct kvt_store *store, void *context)
{
    struct flush_list *list = &store->flush_list;
    struct flush *flush = context;

    if (store_is_poisoned(store))
        return true;
    if (!flush->is_begun) {
        flush->is_begun = true;
        flush->last_number = list->last_number;
        flush->kill_mark = commit_kill_mark(store);
        flush->told_count = list->told_count;
    }
    commit_hurry_all(store);
    if (list->oldest != NULL && list->oldest->flush_number <= flush->last_number)
        return false;
    if (!commit_kills_have_passed(store, flush->kill_mark))
        return false;
    flush->failure_count = list->failure_count - flush->told_count;
    if (flush->is_asked)
        list->told_count = list->failure_count;
    return true;
}

void
flush_kills(struct kvt_store *store)
{
    struct flush flush = {0};

    if (!store->is_read_only)
        loop_call(store, flush_run, &flush);
}

enum kvt_status
kvt_flush(kvt_store *store)
{
    struct flush flush = {.is_asked = true};
    uint32_t health;

    KVT_TRY(store_enter(store));
    loop_call(store, flush_run, &flush);
    KVT_TRY(store_enter(store));
    health = atomic_load_explicit(&store->health, memory_order_relaxed);
    if (flush.failure_count == 0)
        return KVT_OK;
    if ((health & KVT_HEALTH_META_READONLY) != 0)
        return failure_set(KVT_E_META, 0, "no commit of the index is tried any more");
    return failure_set(KVT_E_IO, 0, "%llu puts or deletes could not be made durable",
        (unsigned long long)flush.failure_count);
}
