/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_questions.c - the workload's hints and questions: what is used, what it weighs, what it
 * would cost, how much of a chain can be used, whether all is well, which namespaces there are.
 *
 * The blocks that are asked for have no request in flight, so none of them comes back meanwhile: an
 * answer must agree with the lookups before it and behind it.
 */
#include <stdlib.h>
#include <string.h>

#include "kvtier/kvtier_unstable.h"
#include "workload_internal.h"

enum {
    CHAIN_BLOCKS = 5,
    UNTOUCHED = 0x5A,
};

/* Blocks that are asked for together, and what lookups say of them. */
struct asked {
    struct model_name names[CHAIN_BLOCKS * KEY_COMPONENTS];
    uint8_t bytes[CHAIN_BLOCKS * KEY_COMPONENTS][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[CHAIN_BLOCKS * KEY_COMPONENTS];
    uint8_t tiers[CHAIN_BLOCKS * KEY_COMPONENTS];
    uint32_t count;
    kvt_namespace ns;
};

/* --- 1. Lookups around a question ------------------------------------------------------------- */

static void
asked_add(struct workload *work, struct asked *asked, struct model_name name)
{
    asked->names[asked->count] = name;
    asked->keys[asked->count] = workload_key(name, asked->bytes[asked->count]);
    asked->ns = work->spaces[name.space];
    asked->count++;
}

static void
asked_make(
    struct workload *work, struct asked *asked, const struct model_name *names, uint32_t count)
{
    asked->count = 0;
    for (uint32_t i = 0; i < count; i++)
        asked_add(work, asked, names[i]);
}

static bool
asked_look(struct workload *work, struct asked *asked)
{
    enum kvt_status status =
        kvt_lookup(work->store, asked->ns, asked->keys, asked->count, asked->tiers, NULL, NULL);

    if (!workload_expect(work, "kvt_lookup", status))
        return false;
    workload_mood(work);
    for (uint32_t i = 0; i < asked->count; i++) {
        if (!name_is_busy(work, asked->names[i]))
            model_found(&work->model, asked->names[i], asked->tiers[i] != 0);
    }
    return true;
}

static uint32_t
leading_of(const struct asked *asked)
{
    uint32_t leading = 0;

    while (leading < asked->count && asked->tiers[leading] != 0)
        leading++;
    return leading;
}

static bool
is_there(const struct asked *asked)
{
    for (uint32_t i = 0; i < asked->count; i++) {
        if (asked->tiers[i] != 0)
            return true;
    }
    return false;
}

/* --- 2. Hints --------------------------------------------------------------------------------- */

static void
ask_touch(struct workload *work, struct asked *asked)
{
    enum kvt_status status = kvt_touch(work->store, asked->ns, asked->keys, asked->count);

    workload_note(work, 30, (uint64_t)status);
    if (workload_expect(work, "kvt_touch", status))
        work->asked_count[ASKED_TOUCH]++;
}

/* The weight that the store has of a block; a key that is kept as its hash has no such question. */
static void
importance_judge(struct workload *work, const struct asked *asked, uint32_t i, uint32_t importance)
{
    struct kvt_scan_entry entry = {.ns = asked->ns,
        .component = asked->keys[i].component,
        .key_length = asked->keys[i].length};
    struct kvt_block_facts facts;
    enum kvt_status status;

    if (workload_key_is_long(asked->names[i]))
        return;
    memcpy(entry.key, asked->keys[i].bytes, asked->keys[i].length);
    status = kvt_block_facts_get(work->store, &entry, 1, &facts);
    if (!workload_expect(work, "kvt_block_facts_get", status) || !facts.is_there)
        return;
    work->asked_count[ASKED_IMPORTANCE]++;
    if (facts.importance != importance || facts.class_id != asked->names[i].space)
        model_fail(&work->model, "space %u key %u: weighs %u, not %u; class %u",
            asked->names[i].space, asked->names[i].key, facts.importance, importance,
            facts.class_id);
}

static void
ask_importance(struct workload *work, struct asked *asked)
{
    uint32_t importance = rng_below(&work->rng, 100);
    bool was_there = asked_look(work, asked) && is_there(asked);
    enum kvt_status status =
        kvt_importance_set(work->store, asked->ns, asked->keys, asked->count, importance);

    workload_note(work, 31, (uint64_t)status);
    if (status != KVT_MISS && !workload_expect(work, "kvt_importance_set", status))
        return;
    if (status == KVT_OK)
        importance_judge(work, asked, rng_below(&work->rng, asked->count), importance);
    if (!asked_look(work, asked) || workload_tolerates(work))
        return;
    work->asked_count[ASKED_IMPORTANCE_MISS] += status == KVT_MISS;
    if (status == KVT_MISS ? is_there(asked) : !was_there)
        model_fail(&work->model, "space %u key %u: kvt_importance_set of %u gives %s",
            asked->names[0].space, asked->names[0].key, asked->count, kvt_status_name(status));
}

/* --- 3. Costs --------------------------------------------------------------------------------- */

/* What is known of the blocks before the first miss. False: of some of them it is not. */
static bool
cost_known(const struct workload *work, const struct asked *asked, struct kvt_cost *known)
{
    uint32_t leading = leading_of(asked);

    *known = (struct kvt_cost){.leading_count = leading};
    for (uint32_t i = 0; i < leading; i++) {
        uint64_t states = model_states(&work->model, asked->names[i]);
        uint32_t version = (uint32_t)__builtin_ctzll(states);
        uint64_t length = model_length(&work->model, asked->names[i], version);
        uint32_t recompute_us = workload_recompute_us(work, asked->names[i], version);

        if (states != UINT64_C(1) << version)
            return false;
        if ((asked->tiers[i] & KVT_TIER_HBM) != 0)
            known->hbm_bytes += length;
        else if ((asked->tiers[i] & KVT_TIER_HOST) != 0)
            known->host_bytes += length;
        else
            known->nvme_bytes += length;
        known->recompute_ns += (uint64_t)recompute_us * 1000;
        known->recompute_unknown_count += recompute_us == 0;
    }
    return true;
}

static void
ask_estimate(struct workload *work, struct asked *asked)
{
    uint8_t before[CHAIN_BLOCKS * KEY_COMPONENTS];
    struct kvt_cost cost = {.struct_size = sizeof(cost)}, known;
    bool is_known = asked_look(work, asked);
    enum kvt_status status;

    memcpy(before, asked->tiers, asked->count);
    status = kvt_estimate(work->store, asked->ns, asked->keys, asked->count, &cost);
    workload_note(work, 32, (uint64_t)status);
    if (!workload_expect(work, "kvt_estimate", status))
        return;
    if (cost.host_bytes + cost.nvme_bytes == 0 && cost.load_ns != 0)
        model_fail(&work->model, "%llu ns to load nothing", (unsigned long long)cost.load_ns);
    /* The call has others run: what is in the same tiers behind it was there. */
    is_known = asked_look(work, asked) && is_known && cost_known(work, asked, &known);
    if (!is_known || memcmp(before, asked->tiers, asked->count) != 0)
        return;
    work->asked_count[ASKED_ESTIMATE] += known.leading_count > 0;
    if (cost.leading_count != known.leading_count || cost.hbm_bytes != known.hbm_bytes ||
        cost.host_bytes != known.host_bytes || cost.nvme_bytes != known.nvme_bytes ||
        cost.recompute_ns != known.recompute_ns ||
        cost.recompute_unknown_count != known.recompute_unknown_count)
        model_fail(&work->model,
            "kvt_estimate of %u blocks: %u lead, %llu + %llu + %llu bytes, %llu ns (%u unknown); "
            "it "
            "is %u, %llu + %llu + %llu, %llu (%u)",
            asked->count, cost.leading_count, (unsigned long long)cost.hbm_bytes,
            (unsigned long long)cost.host_bytes, (unsigned long long)cost.nvme_bytes,
            (unsigned long long)cost.recompute_ns, cost.recompute_unknown_count,
            known.leading_count, (unsigned long long)known.hbm_bytes,
            (unsigned long long)known.host_bytes, (unsigned long long)known.nvme_bytes,
            (unsigned long long)known.recompute_ns, known.recompute_unknown_count);
}

/* --- 4. Matches ------------------------------------------------------------------------------- */

struct match_case {
    struct kvt_match_component components[KEY_COMPONENTS];
    uint32_t component_count;
    uint32_t count; /* Keys of the chain. */
    uint8_t bytes[CHAIN_BLOCKS][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[CHAIN_BLOCKS]; /* Without a component. */
    struct asked asked;                /* Block i of component c: c * count + i. */
    uint8_t lengths[CHAIN_BLOCKS];     /* Usable, as kvt_match() tells them. */
    uint32_t usable;
};

/* Components in any order, policies at random; mostly of the same chain from its beginning on. */
static void
match_make(struct workload *work, struct match_case *match, uint32_t space)
{
    uint32_t units = work->model.key_count / KEY_COMPONENTS;
    uint32_t start = rng_below(&work->rng, units);
    uint32_t turn = rng_below(&work->rng, KEY_COMPONENTS);

    match->count = 1 + rng_below(&work->rng, CHAIN_BLOCKS);
    match->component_count = 1 + rng_below(&work->rng, KEY_COMPONENTS);
    match->asked.count = 0;
    for (uint32_t c = 0; c < match->component_count; c++) {
        struct kvt_match_component *component = &match->components[c];
        bool is_trailing = rng_below(&work->rng, 2) == 0;

        component->component = (uint16_t)((c + turn) % KEY_COMPONENTS);
        component->policy = is_trailing ? KVT_MATCH_TRAILING : KVT_MATCH_ALL;
        component->trailing_count = is_trailing ? 1 + rng_below(&work->rng, CHAIN_BLOCKS) : 0;
        for (uint32_t i = 0; i < match->count; i++) {
            uint32_t unit = (start + i) % units;
            struct model_name name = {
                .space = space, .key = unit * KEY_COMPONENTS + component->component};

            asked_add(work, &match->asked, name);
            match->keys[i] = workload_key(name, match->bytes[i]);
            match->keys[i].component = 0;
        }
    }
}

/* First block of the component that a prefix of `length` needs. */
static uint32_t
needed_first(const struct kvt_match_component *component, uint32_t length)
{
    bool is_all = component->policy == KVT_MATCH_ALL || component->trailing_count > length;

    return is_all ? 0 : length - component->trailing_count;
}

static bool
is_usable(const struct match_case *match, uint32_t length)
{
    for (uint32_t c = 0; c < match->component_count; c++) {
        for (uint32_t i = needed_first(&match->components[c], length); i < length; i++) {
            if (match->asked.tiers[c * match->count + i] == 0)
                return false;
        }
    }
    return true;
}

static void
match_judge(struct workload *work, const struct match_case *match)
{
    uint32_t usable = 0;

    for (uint32_t length = 1; length <= match->count; length++) {
        bool is_so = is_usable(match, length);

        usable = is_so ? length : usable;
        if (match->lengths[length - 1] != is_so)
            model_fail(&work->model, "kvt_match says %u of a prefix of %u of %u, %u components",
                match->lengths[length - 1], length, match->count, match->component_count);
    }
    if (match->usable != usable)
        model_fail(&work->model, "kvt_match finds %u of %u blocks usable, %u are", match->usable,
            match->count, usable);
    work->asked_count[ASKED_MATCH_LONG] += match->component_count > 1 && usable > 0;
}

/* The lease has all that the prefix needs, and nothing else. */
static void
match_lease_judge(struct workload *work, const struct match_case *match, kvt_lease lease)
{
    if ((lease.id != 0) != (match->usable > 0))
        model_fail(&work->model, "a lease of a match of %u blocks: %s", match->usable,
            lease.id != 0 ? "there is one" : "there is none");
    for (uint32_t i = 0; i < match->asked.count && lease.id != 0; i++) {
        const struct kvt_match_component *component = &match->components[i / match->count];
        uint32_t block = i % match->count;
        bool is_needed = block < match->usable && block >= needed_first(component, match->usable);
        bool is_in_host = (match->asked.tiers[i] & KVT_TIER_HOST) != 0;
        const void *address;
        uint64_t length;
        enum kvt_status status =
            kvt_lease_address(work->store, lease, i, KVT_TIER_HOST, &address, &length);

        if ((status == KVT_OK) != (is_needed && is_in_host) ||
            (status != KVT_OK && status != KVT_MISS))
            model_fail(&work->model, "block %u of %u of a match of %u: its lease says %s", i,
                match->asked.count, match->usable, kvt_status_name(status));
        else if (status == KVT_OK && !name_is_busy(work, match->asked.names[i]))
            model_read(&work->model, match->asked.names[i], address, length);
    }
    kvt_lease_release(work->store, lease);
}

/* Lookup, match and lookup without a step between them: with threads, what they say of blocks that
 * are in flight may differ. */
static void
ask_match(struct workload *work, uint32_t space)
{
    struct match_case match;
    uint8_t before[CHAIN_BLOCKS * KEY_COMPONENTS];
    bool leases = rng_below(&work->rng, 2) == 0;
    kvt_lease lease = {.id = 1};
    enum kvt_status status;

    match_make(work, &match, space);
    if (!asked_look(work, &match.asked))
        return;
    memcpy(before, match.asked.tiers, match.asked.count);
    memset(match.lengths, UNTOUCHED, sizeof(match.lengths));
    status = kvt_match(work->store, match.asked.ns, match.keys, match.count, match.components,
        match.component_count, &match.usable, match.lengths, leases ? &lease : NULL);
    workload_note(work, 33, (uint64_t)status);
    if (!workload_expect(work, "kvt_match", status))
        return;
    workload_note(work, 34, match.usable);
    work->asked_count[ASKED_MATCH]++;
    if (!asked_look(work, &match.asked) ||
        memcmp(before, match.asked.tiers, match.asked.count) != 0) {
        if (leases)
            kvt_lease_release(work->store, lease);
        return;
    }
    match_judge(work, &match);
    if (leases)
        match_lease_judge(work, &match, lease);
}

/* --- 5. Health and namespaces ----------------------------------------------------------------- */

static void
ask_health(struct workload *work)
{
    /* Facts of the machine. */
    const uint32_t facts = KVT_HEALTH_IO_THREADS | KVT_HEALTH_DEVICE_EMULATED;
    const uint32_t never = KVT_HEALTH_POISONED | KVT_HEALTH_READ_ONLY;
    uint32_t flags = 0;
    enum kvt_status status = kvt_health(work->store, &flags);

    workload_note(work, 35, flags);
    if (!workload_expect(work, "kvt_health", status))
        return;
    flags &= ~facts;
    work->asked_count[ASKED_HEALTH]++;
    work->asked_count[ASKED_ILL_HEALTH] += flags != 0;
    if ((flags & never) != 0 || (flags != 0 && !workload_tolerates(work)) ||
        ((flags & KVT_HEALTH_GPU_LOST) != 0 && !work->loses_devices))
        model_fail(&work->model, "kvt_health says %#x", flags);
}

/* Blocks that must be there, and those that may. */
static void
space_count(const struct workload *work, uint32_t space, uint64_t *least, uint64_t *most)
{
    *least = *most = 0;
    for (uint32_t key = 0; key < work->model.key_count; key++) {
        struct model_name name = {.space = space, .key = key};
        bool is_busy = name_is_busy(work, name);

        *least += !is_busy && model_is_certain(&work->model, name);
        *most += is_busy || model_states(&work->model, name) != MODEL_NOTHING;
    }
}

static void
space_judge(struct workload *work, uint32_t space, const struct kvt_namespace_info *info)
{
    uint64_t least, most;
    char description[64];
    size_t length = 0;
    enum kvt_status status =
        kvt_namespace_description(work->store, info->ns, description, sizeof(description), &length);

    if (strcmp(info->name, workload_space_name(space)) != 0)
        model_fail(&work->model, "namespace %u is called %s", info->ns.id, info->name);
    if (workload_expect(work, "kvt_namespace_description", status) &&
        (length != strlen(info->name) || memcmp(description, info->name, length) != 0))
        model_fail(&work->model, "namespace %s has another description", info->name);
    workload_mood(work);
    space_count(work, space, &least, &most);
    if (info->block_count < least || info->block_count > most ||
        (info->block_count == 0) != (info->block_bytes == 0) ||
        info->block_bytes > info->block_count * model_length_max(&work->model))
        model_fail(&work->model, "namespace %s has %llu blocks of %llu bytes, of %llu to %llu",
            info->name, (unsigned long long)info->block_count,
            (unsigned long long)info->block_bytes, (unsigned long long)least,
            (unsigned long long)most);
}

/* Those that were opened, each once. */
static void
ask_namespaces(struct workload *work)
{
    struct kvt_namespace_info info;
    uint32_t cursor = 0, seen = 0;
    enum kvt_status status;

    while ((status = kvt_namespace_next(work->store, &cursor, &info)) == KVT_OK) {
        uint32_t space = 0;

        while (space < MODEL_SPACES && work->spaces[space].id != info.ns.id)
            space++;
        if (space == MODEL_SPACES || (seen & 1u << space) != 0) {
            model_fail(&work->model, "kvt_namespace_next gives namespace %u", info.ns.id);
            return;
        }
        seen |= 1u << space;
        space_judge(work, space, &info);
    }
    workload_note(work, 36, seen);
    if (status != KVT_MISS)
        workload_expect(work, "kvt_namespace_next", status);
    else if (seen != (1u << MODEL_SPACES) - 1)
        model_fail(&work->model, "kvt_namespace_next gives namespaces %#x only", seen);
    work->asked_count[ASKED_NAMESPACES]++;
}

/* --- 6. Any of them --------------------------------------------------------------------------- */

void
workload_ask(struct workload *work, uint32_t space)
{
    uint32_t up = work->has_hbm && rng_below(&work->rng, 2) == 0 ? KVT_TIER_HBM : KVT_TIER_HOST;
    uint32_t choice = rng_below(&work->rng, 16);
    struct model_name names[BATCH_MAX];
    uint32_t count = names_pick_in(work, space, names, false);
    struct asked asked;

    asked_make(work, &asked, names, count);
    if (choice == 0)
        ask_health(work);
    else if (choice == 1)
        ask_namespaces(work);
    else if (choice < 5)
        ask_match(work, space);
    else if (choice == 5 && count > 0)
        ask_touch(work, &asked);
    else if (choice < 8 && count > 0)
        ask_importance(work, &asked);
    else if (choice < 10 && count > 0)
        ask_estimate(work, &asked);
    else if (choice < 12 && count > 0)
        workload_ahead(work, names, count, up, true);
    else if (choice >= 14)
        workload_race(work, space);
    for (uint32_t i = 0; (choice == 12 || choice == 13) && i < count; i++)
        workload_why(work, names[i]);
}
