/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_audit.c - what a store at rest counts, against what there is (store_audit.h).
 */
#include "store_audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "commit.h"
#include "disk_audit.h"
#include "policy_default_internal.h"
#include "reclaim.h"
#include "store_internal.h"

static void audit_fail(struct store_audit *audit, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
audit_fail(struct store_audit *audit, const char *format, ...)
{
    va_list rest;

    va_start(rest, format);
    (void)vsnprintf(audit->failure, sizeof(audit->failure), format, rest);
    va_end(rest);
}

static uint64_t
word_at(const struct kvt_store *store, uint32_t number)
{
    return atomic_load(&residency_at(store->map, number)->word);
}

static bool
is_resident(const struct kvt_store *store, uint32_t number)
{
    return word_state(word_at(store, number)) == ENTRY_RESIDENT;
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static unsigned
places_wanted(const struct kvt_store *store, uint32_t number)
{
    unsigned tiers = word_tiers(word_at(store, number));
    unsigned places = 0;

    if ((tiers & TIER_HOST) != 0)
        places |= PLACES_HOST;
    if ((tiers & TIER_HBM) != 0)
        places |= 1u << place_of_device(entry_device(residency_at(store->map, number)));
    if ((tiers & TIER_NVME) != 0)
        places |= PLACES_NVME;
    return places;
}

static void
blocks_judge(struct kvt_store *store, struct store_audit *audit)
{
    for (uint32_t number = 0; number < residency_number_limit(store->map); number++) {
        if (is_resident(store, number) &&
            entries_at(store->entries, number)->places != places_wanted(store, number))
            audit_fail(audit, "block %u has copies in places 0x%x, and lists 0x%x", number,
                places_wanted(store, number), entries_at(store->entries, number)->places);
    }
}

/* What the block has of each tier, towards its namespace's. */
static void
uses_add(struct kvt_store *store, uint32_t number, uint64_t used_bytes[SHARE_TIER_COUNT])
{
    for (uint32_t at = 0; at < POLICY_NVME; at++) {
        enum policy_place place = (enum policy_place)at;

        if (entries_has_copy(store->entries, place, number))
            used_bytes[share_of_place(place)] += copy_bytes(store, place, number);
    }
    if ((word_tiers(word_at(store, number)) & TIER_NVME) != 0)
        used_bytes[SHARE_NVME] +=
            (uint64_t)pages_of(residency_at(store->map, number)->stored_length) * PAGE_BYTES;
}

static void
namespace_judge(
    struct kvt_store *store, const struct namespace_state *space, struct store_audit *audit)
{
    uint64_t used_bytes[SHARE_TIER_COUNT] = {0};
    uint64_t count = 0, bytes = 0;

    for (uint32_t number = 0; number < residency_number_limit(store->map); number++) {
        if (!is_resident(store, number) || entry_namespace(store, number) != space)
            continue;
        uses_add(store, number, used_bytes);
        count++;
        bytes += residency_at(store->map, number)->length;
    }
    if (count != space->block_count || bytes != space->block_bytes)
        audit_fail(audit, "namespace %u counts %llu blocks of %llu bytes, and has %llu of %llu",
            space->id, (unsigned long long)space->block_count,
            (unsigned long long)space->block_bytes, (unsigned long long)count,
            (unsigned long long)bytes);
    for (uint32_t i = 0; i < SHARE_TIER_COUNT && store->has_shares; i++) {
        if (space->used_bytes[i] != used_bytes[i])
            audit_fail(audit, "namespace %u counts %llu bytes towards share %u, and has %llu",
                space->id, (unsigned long long)space->used_bytes[i], i,
                (unsigned long long)used_bytes[i]);
    }
}

/* --- Chains ----------------------------------------------------------------------------------- */

struct children {
    uint32_t all, memory, hbm;
};

static void
chains_judge(struct kvt_store *store, struct store_audit *audit)
{
    uint32_t limit = residency_number_limit(store->map);
    struct children *children = calloc(limit + 1u, sizeof(*children));

    if (children == NULL)
        abort();
    for (uint32_t number = 0; number < limit; number++) {
        uint32_t parent =
            is_resident(store, number) ? entries_parent(store->entries, number) : ENTRY_NONE;
        unsigned places;

        if (parent == ENTRY_NONE)
            continue;
        places = entries_at(store->entries, number)->places;
        children[parent].all++;
        children[parent].memory += (places & PLACES_MEMORY) != 0;
        children[parent].hbm += (places & PLACES_HBM) != 0;
    }
    for (uint32_t number = 0; number < limit; number++) {
        const struct entry_state *state;

        if (!is_resident(store, number))
            continue;
        state = entries_at(store->entries, number);
        if (state->child_count != children[number].all ||
            state->memory_child_count != children[number].memory ||
            state->hbm_child_count != children[number].hbm)
            audit_fail(audit,
                "block %u counts %u children, %u in memory, %u in HBM, and has %u, %u, %u", number,
                state->child_count, state->memory_child_count, state->hbm_child_count,
                children[number].all, children[number].memory, children[number].hbm);
    }
    free(children);
}

/* --- The policy ------------------------------------------------------------------------------- */

/* What GHI has of a copy: one that is in no list, and should be, never goes. */
static enum default_queue
queue_wanted(const struct kvt_store *store, enum policy_place place, uint32_t number)
{
    const struct entry_state *state = entries_at(store->entries, number);

    if (place == POLICY_HOST && (state->places & PLACES_HBM) != 0)
        return QUEUE_DOUBLES;
    return state->flight == NULL && entries_is_leaf(store->entries, place, number) ? QUEUE_LEAVES
                                                                                   : QUEUE_NONE;
}

/* Neighbours know each other, and are of one list. */
static bool
neighbours_agree(const struct policy_nodes *nodes, uint32_t number)
{
    const struct policy_node *node = node_at(nodes, number);
    const struct policy_node *newer = node->newer == NODE_NONE ? NULL : node_at(nodes, node->newer);
    const struct policy_node *older = node->older == NODE_NONE ? NULL : node_at(nodes, node->older);

    return (newer == NULL || (newer->older == number && newer->place == node->place &&
                                 newer->queue == node->queue)) &&
           (older == NULL || (older->newer == number && older->place == node->place &&
                                 older->queue == node->queue));
}

static bool
links_agree(const struct kvt_store *store, uint32_t number)
{
    const struct policy_node *node = node_at(store->policy->nodes, number);
    const struct default_place *place;

    if (store->policy->ops != &policy_default_ops || node->queue == QUEUE_DOUBLES)
        return neighbours_agree(store->policy->nodes, number);
    place = &default_of(store->policy)->places[node->place];
    return node->queue == QUEUE_NONE ||
           (node->newer < place->count && place->leaves[node->newer] == node->entry);
}

/* Copies of a place, as its lists have them. */
struct listed {
    uint32_t all, leaves, doubles;
};

static void
listed_count(struct kvt_store *store, enum policy_place place, struct listed *listed)
{
    *listed = (struct listed){0};
    for (uint32_t number = 0; number < residency_number_limit(store->map); number++) {
        if (!is_resident(store, number) || !entries_has_copy(store->entries, place, number))
            continue;
        listed->all++;
        if (store->policy->ops == &policy_default_ops) {
            listed->leaves += queue_wanted(store, place, number) == QUEUE_LEAVES;
            listed->doubles += queue_wanted(store, place, number) == QUEUE_DOUBLES;
        } else {
            listed->leaves += entries_is_leaf(store->entries, place, number);
        }
    }
}

/* A walk over victims in LRU's order shows every leaf once; those of the others change something.
 */
static uint32_t
leaves_shown(struct kvt_store *store, enum policy_place place, uint32_t limit)
{
    uint32_t cursor = ENTRY_NONE, count = 0;

    do {
        cursor = store->policy->ops->victim(store->policy, place, cursor);
        count += cursor != ENTRY_NONE;
    } while (cursor != ENTRY_NONE && count <= limit);
    return count;
}

static void
ghi_lists_judge(const struct default_place *lists, enum policy_place place,
    const struct listed *listed, struct store_audit *audit)
{
    if (lists->copy_count != listed->all || lists->count != listed->leaves ||
        lists->doubles.count != listed->doubles)
        audit_fail(audit, "GHI has %u copies, %u leaves, %u doubles in place %d, of %u, %u, %u",
            lists->copy_count, lists->count, lists->doubles.count, (int)place, listed->all,
            listed->leaves, listed->doubles);
}

static void
lists_judge(struct kvt_store *store, enum policy_place place, struct store_audit *audit)
{
    struct listed listed;

    listed_count(store, place, &listed);
    if (store->policy->ops == &policy_default_ops)
        ghi_lists_judge(&default_of(store->policy)->places[place], place, &listed, audit);
    if (store->policy->ops == &policy_lru_ops &&
        leaves_shown(store, place, listed.all) != listed.leaves)
        audit_fail(audit, "LRU shows other victims of place %d than its %u leaves", (int)place,
            listed.leaves);
}

/* Copies in memory, each with a node, and that in its list. */
static void
policy_judge(struct kvt_store *store, struct store_audit *audit)
{
    const struct policy_nodes *nodes = store->policy->nodes;
    bool is_ghi = store->policy->ops == &policy_default_ops;
    uint32_t copy_count = 0;
    uint64_t tracked_count = 0;

    for (uint32_t number = 0; number < residency_number_limit(store->map); number++) {
        tracked_count +=
            is_resident(store, number) && entries_at(store->entries, number)->use_count > 0;
        for (uint32_t at = 0; at < POLICY_NVME && is_resident(store, number); at++) {
            enum policy_place place = (enum policy_place)at;
            uint32_t node;

            if (!entries_has_copy(store->entries, place, number))
                continue;
            copy_count++;
            node = node_find(nodes, place, number);
            if (node == NODE_NONE ||
                (is_ghi && node_at(nodes, node)->queue != queue_wanted(store, place, number)))
                audit_fail(audit, "the policy has block %u in list %d of place %u, not in %d",
                    number, node == NODE_NONE ? -1 : (int)node_at(nodes, node)->queue, at,
                    (int)queue_wanted(store, place, number));
            else if (!links_agree(store, node))
                audit_fail(audit, "block %u is not where its node in place %u says", number, at);
        }
    }
    for (uint32_t at = 0; at < POLICY_NVME; at++)
        lists_judge(store, (enum policy_place)at, audit);
    if (is_ghi && default_of(store->policy)->tracked_count != tracked_count)
        audit_fail(audit, "GHI tracks %llu blocks, and there are %llu",
            (unsigned long long)default_of(store->policy)->tracked_count,
            (unsigned long long)tracked_count);
    if (policy_nodes_count(nodes) != copy_count)
        audit_fail(audit, "the policy has %u copies, and there are %u", policy_nodes_count(nodes),
            copy_count);
}

/* --- NVMe ------------------------------------------------------------------------------------- */

/* Of one segment, and towards those of the store. False: something does not agree. */
static bool
segment_judge(const struct kvt_store *store, const struct segment *segment, uint64_t *use_sum,
    uint64_t *count)
{
    uint64_t live_bytes = 0;
    uint32_t record_count = 0;

    for (uint32_t i = 0; i < residency_number_limit(store->map); i++) {
        const struct entry *entry = residency_at(store->map, i);

        if (!is_resident(store, i) || (word_tiers(word_at(store, i)) & TIER_NVME) == 0 ||
            entry->segment != segment->number)
            continue;
        if (entry->extent_generation != segment->generation)
            return false;
        live_bytes += (uint64_t)pages_of(entry->stored_length) * PAGE_BYTES;
        *use_sum += entries_at(store->entries, i)->last_use;
        record_count++;
    }
    *count += record_count;
    /* Records of namespaces that were cleared stay in the index with their segment. */
    return segment->live_bytes == live_bytes && segment->record_count >= record_count &&
           segment->held_bytes == 0;
}

static void
nvme_judge(struct kvt_store *store, const struct disk_audit *disk, struct store_audit *audit)
{
    uint64_t use_sum = 0, count = 0;
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (!segment_judge(store, segment, &use_sum, &count))
            audit_fail(audit, "segment 0x%x counts other bytes, records or holds than there are",
                segment->number);
    }
    if (store->nvme_use_sum != use_sum || store->nvme_copy_count != count)
        audit_fail(audit,
            "the store counts %u copies on NVMe with uses of %llu, and there are %llu with %llu",
            store->nvme_copy_count, (unsigned long long)store->nvme_use_sum,
            (unsigned long long)count, (unsigned long long)use_sum);
    if (audit->looks_at_headers && disk->copy_count - disk->dead_count != count)
        audit_fail(audit, "headers name %u copies that are their blocks', of %llu on NVMe",
            disk->copy_count - disk->dead_count, (unsigned long long)count);
}

/* --- HOST and HBM ----------------------------------------------------------------------------- */

/* What is moved within HOST is asked of its owner. */
static void
owners_judge(struct kvt_store *store, struct store_audit *audit)
{
    uint64_t superblock_count = slab_capacity(store->slab) / slab_superblock_bytes(store->slab);
    struct slot slot;
    uint32_t owner;

    for (uint32_t i = 0; i < superblock_count; i++) {
        for (uint32_t cursor = 0; slab_taken_next(store->slab, i, &cursor, &slot, &owner);) {
            if (owner == UINT32_MAX || !is_resident(store, owner) ||
                entry_host_address(store, residency_at(store->map, owner)) !=
                    slab_address(store->slab, slot))
                audit_fail(audit, "slot %u of HOST is entry %u's, which is elsewhere, or nobody's",
                    slot.number, owner);
        }
    }
}

static void
place_judge(struct kvt_store *store, enum policy_place place, struct store_audit *audit)
{
    const struct slab *slab = place_slab(store, place);
    uint64_t bytes = 0;

    if (slab == NULL)
        return;
    slab_check(slab);
    for (uint32_t number = 0; number < residency_number_limit(store->map); number++) {
        if (is_resident(store, number) && entries_has_copy(store->entries, place, number))
            bytes += copy_bytes(store, place, number);
    }
    if (slab_used(slab) != bytes)
        audit_fail(audit, "in place %d slots of %llu bytes are taken, and copies have %llu",
            (int)place, (unsigned long long)slab_used(slab), (unsigned long long)bytes);
    else if (place == POLICY_HOST)
        owners_judge(store, audit);
}

static void
holds_judge(struct kvt_store *store, struct store_audit *audit)
{
    for (uint32_t number = 0; number < residency_number_limit(store->map); number++) {
        uint64_t word = word_at(store, number);

        if (word_state(word) != ENTRY_FREE && word_pins(word) != 0)
            audit_fail(audit, "block %u (state %d) has %u pins that nobody holds", number,
                (int)word_state(word), (unsigned)word_pins(word));
        if (word_state(word) == ENTRY_FILLING || word_state(word) == ENTRY_DOOMED)
            audit_fail(audit, "block %u is in state %d", number, (int)word_state(word));
    }
    if (store->dirty_bytes != 0)
        audit_fail(
            audit, "%llu bytes count as waiting for NVMe", (unsigned long long)store->dirty_bytes);
}

/* --- All of it -------------------------------------------------------------------------------- */

struct audit_call {
    struct store_audit *audit;
    bool is_judged;
};

static bool
is_at_rest(struct kvt_store *store)
{
    return reclaim_is_idle(store) && commit_is_at_rest(store) && !work_is_in_flight(store) &&
           turns_are_idle(&store->work) && turns_are_idle(&store->flights);
}

/* The loop. */
static bool
call_run(struct kvt_store *store, void *context)
{
    struct audit_call *call = context;
    struct store_audit *audit = call->audit;
    struct disk_audit disk = {.copy_count = 0};

    if (!is_at_rest(store) || (audit->looks_at_headers && !disk_audit(store, NULL, &disk)))
        return true;
    call->is_judged = true;
    residency_check(store->map); /* What this proves poisons the store when it is not so. */
    blocks_judge(store, audit);
    for (uint32_t i = 0; i < atomic_load(&store->namespace_count); i++)
        namespace_judge(store, &store->namespaces[i], audit);
    chains_judge(store, audit);
    policy_judge(store, audit);
    if (store->nvme != NULL)
        nvme_judge(store, &disk, audit);
    for (uint32_t place = 0; place < POLICY_NVME && audit->is_unused; place++)
        place_judge(store, (enum policy_place)place, audit);
    if (audit->is_unused)
        holds_judge(store, audit);
    if (disk.failure[0] != '\0')
        audit_fail(audit, "%s", disk.failure);
    return true;
}

bool
store_audit(kvt_store *store, struct store_audit *audit)
{
    struct audit_call call = {.audit = audit};

    audit->failure[0] = '\0';
    loop_call(store, call_run, &call);
    return call.is_judged;
}
