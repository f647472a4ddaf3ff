/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flush.c - which tickets still have something to make durable, and kvt_flush(), which waits for
 * those that came before it.
 *
 * A ticket with two stages (a RELAXED or SYNC put, a delete) stands in the list from its delivery
 * until its last stage. No place inside the engine, such as a queue of the group commit, can stand
 * for that: an operation on its way passes many of them, and some more than once (a delete that
 * waits for a reclaim, a put that waits for a relocation). Kills that the engine has of its own (of
 * what an open found dead, say) have no ticket.
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

struct flush {
    bool is_begun;
    uint64_t last_number; /* Of the tickets that it waits for ... */
    uint64_t kill_mark;   /* ... and the kills that there are without one. */
    uint64_t error_count; /* Before it began; when it is over: since then. */
};

static bool
flush_run(struct kvt_store *store, void *context)
{
    const struct flush_list *list = &store->flush_list;
    struct flush *flush = context;

    if (store_is_poisoned(store))
        return true;
    if (!flush->is_begun) {
        flush->is_begun = true;
        flush->last_number = list->last_number;
        flush->kill_mark = commit_kill_mark(store);
        flush->error_count = commit_error_count(store);
    }
    commit_hurry_all(store);
    if (list->oldest != NULL && list->oldest->flush_number <= flush->last_number)
        return false;
    if (!commit_kills_have_passed(store, flush->kill_mark))
        return false;
    flush->error_count = commit_error_count(store) - flush->error_count;
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
    struct flush flush = {0};
    uint32_t health;

    KVT_TRY(store_enter(store));
    loop_call(store, flush_run, &flush);
    KVT_TRY(store_enter(store));
    health = atomic_load_explicit(&store->health, memory_order_relaxed);
    if (flush.error_count == 0)
        return KVT_OK;
    if ((health & KVT_HEALTH_META_READONLY) != 0)
        return failure_set(KVT_E_META, 0, "a commit of the index failed: no more are tried");
    return failure_set(KVT_E_IO, 0, "%llu blocks or deletes could not be made durable",
        (unsigned long long)flush.error_count);
}
