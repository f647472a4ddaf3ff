/* SPDX-License-Identifier: Apache-2.0 */
/*
 * full_store.c - a store whose NVMe is full all the time (full_store.h).
 */
#include "full_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "disk_audit.h"

enum {
    STEPS_MAX = 200000,
};

const struct sim_rule full_late_syncs = {.ops = SIM_SYNC,
    .effect = SIM_STALL,
    .nth = 1,
    .sticky = true,
    .file = "data.",
    .stall_ns = UINT64_C(50) * 1000 * 1000};

void
full_open(struct full_store *full, uint32_t flags)
{
    full->options.flags = flags;
    assert_int_equal(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(full->store, "space", "model", 5, &full->ns), KVT_OK);
}

static struct full_store *
begin(uint64_t seed, uint32_t segment_count, const char *const *roots, uint32_t root_count)
{
    const struct sim_options world = {.seed = seed};
    struct full_store *full = calloc(1, sizeof(*full));

    assert_non_null(full);
    full->options = kit_options();
    full->options.nvme_capacity_bytes = (uint64_t)segment_count << 20;
    full->options.policy =
        KVT_POLICY_LRU; /* Which segments go, and what of them stays, is expected. */
    full->options.relaxed_interval_ns = 2000000;
    full->options.roots = roots;
    full->options.root_count = root_count;
    full->world = sim_world_create(&world);
    full->reach = (struct store_world){
        .env = sim_env(full->world), .index_ops = &sim_index_ops, .index_context = full->world};
    full->bytes = malloc(FULL_BLOCK_BYTES);
    assert_non_null(full->bytes);
    full->next_cold = FULL_COLD;
    full_open(full, 0);
    return full;
}

struct full_store *
full_begin(uint64_t seed, uint32_t segment_count)
{
    return begin(seed, segment_count, NULL, 0);
}

struct full_store *
full_begin_two_roots(uint64_t seed)
{
    static const char *const roots[] = {"/first", "/second"};

    return begin(seed, 2 * FULL_SEGMENTS, roots, 2);
}

static struct full_store *
hasten(struct full_store *full)
{
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full->options.batch_delay_ns = 1;
    full_open(full, 0);
    return full;
}

struct full_store *
full_begin_hasty(uint64_t seed)
{
    return hasten(full_begin(seed, FULL_SEGMENTS));
}

struct full_store *
full_begin_two_roots_hasty(uint64_t seed)
{
    return hasten(full_begin_two_roots(seed));
}

void
full_end(struct full_store *full)
{
    enum kvt_status status = kvt_close(full->store);

    /* A close tells that some blocks were refused. */
    assert_true(status == KVT_OK || (full->is_refusing && status == KVT_E_IO));
    assert_int_equal(sim_leaks(full->world, NULL, 0), 0);
    assert_false(sim_stuck(full->world));
    sim_world_destroy(full->world);
    free(full->bytes);
    free(full);
}

void
full_again(struct full_store *full, uint32_t flags)
{
    sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
    full_open(full, flags);
}

void
full_put(struct full_store *full, uint64_t key, uint64_t version)
{
    assert_int_equal(
        kit_put(full->store, full->ns, key, version, FULL_BLOCK_BYTES, KVT_SYNC), KVT_OK);
}

struct segment *
full_active(const struct full_store *full)
{
    struct segment *active = segment_active(full->store->segments, 0);

    assert_non_null(active);
    return active;
}

struct segment *
full_leave(struct full_store *full)
{
    const struct segment *left = segment_active(full->store->segments, 0);

    while (segment_active(full->store->segments, 0) == left)
        full_put(full, full->next_cold++, 1);
    return full_active(full);
}

kvt_ticket *
full_put_submit(
    struct full_store *full, uint64_t key, uint64_t version, enum kvt_durability durability)
{
    struct payload_key name;
    struct kvt_put put = {
        .source = full->bytes, .length = FULL_BLOCK_BYTES, .flags = KVT_PUT_REPLACE};
    kvt_ticket *ticket = NULL;

    payload_key_make(&name, key);
    payload_fill(full->bytes, FULL_BLOCK_BYTES, key, version);
    put.key = name.key;
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    return ticket;
}

kvt_ticket *
full_delete_submit(struct full_store *full, uint64_t key)
{
    struct payload_key name;
    kvt_ticket *ticket = NULL;

    payload_key_make(&name, key);
    assert_int_equal(kvt_delete_submit(full->store, full->ns, &name.key, 1, NULL, &ticket), KVT_OK);
    return ticket;
}

struct kvt_result
full_stage_result(kvt_ticket *ticket, uint32_t stage)
{
    struct kvt_result result = {0};

    assert_int_equal(kvt_ticket_wait(ticket, stage, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, stage, &result, 1), KVT_OK);
    kvt_ticket_free(ticket);
    return result;
}

enum kvt_status
full_result(kvt_ticket *ticket)
{
    return full_stage_result(ticket, KVT_STAGE_DURABLE).status;
}

void
full_writing_meet(struct full_store *full, uint64_t key)
{
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        uint32_t number = full_entry(full, key);
        const struct flight *flight =
            number == ENTRY_NONE ? NULL : entries_at(full->store->entries, number)->flight;

        if (flight != NULL && flight->state == FLIGHT_WRITING)
            return;
        sim_run_steps(full->world, 1);
    }
    fail_msg("block %u is never written", (unsigned)key);
}

bool
full_expect_at_most(struct full_store *full, uint64_t key, uint64_t wanted)
{
    uint64_t version = 0;
    enum kvt_status status = kit_get(full->store, full->ns, key, &version);

    if (status != KVT_MISS && (status != KVT_OK || version != wanted))
        fail_msg("block %u: %s, version %u, wanted %u or nothing", (unsigned)key,
            kvt_status_name(status), (unsigned)version, (unsigned)wanted);
    return status == KVT_OK;
}

void
full_expect(struct full_store *full, uint64_t key, uint64_t wanted)
{
    assert_true(full_expect_at_most(full, key, wanted));
}

static void
block_key_make(const struct full_store *full, uint64_t key, struct block_key *target)
{
    struct payload_key name;

    payload_key_make(&name, key);
    assert_true(key_init(
        target, full->store->file.secret, full->ns.id, 0, name.key.bytes, name.key.length));
}

struct hash128
full_fingerprint(const struct full_store *full, uint64_t key)
{
    struct block_key block;

    block_key_make(full, key, &block);
    return key_fingerprint(full->store->fingerprint_seed, &block);
}

uint32_t
full_entry(const struct full_store *full, uint64_t key)
{
    struct block_key block;

    block_key_make(full, key, &block);
    return residency_find(
        full->store->map, key_fingerprint(full->store->fingerprint_seed, &block), &block);
}

uint64_t
full_copy_at(const struct full_store *full, uint64_t key)
{
    const struct entry *entry = residency_at(full->store->map, full_entry(full, key));
    uint64_t segment = segment_index(entry->segment);

    return (segment * full->store->file.segment_pages + entry->page) * PAGE_BYTES;
}

void
full_churn(struct full_store *full)
{
    (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000); /* A tick of last_use. */
    for (uint64_t key = 0; key < FULL_HOT; key++)
        (void)full_expect_at_most(full, key, 1);
    full_put(full, full->next_cold++, 1);
}

void
full_fill(struct full_store *full)
{
    for (uint64_t key = 0; key < FULL_HOT; key++)
        full_put(full, key, 1);
    for (uint32_t i = 0; i < FULL_BLOCKS; i++)
        full_churn(full);
}

/* --- What the disk says ----------------------------------------------------------------------- */

uint32_t
full_copies_check(struct full_store *full, uint64_t key)
{
    struct hash128 fingerprint = full_fingerprint(full, key);
    struct disk_audit audit;

    assert_true(disk_audit(full->store, &fingerprint, &audit));
    if (audit.failure[0] != '\0')
        fail_msg("block %u: %s", (unsigned)key, audit.failure);
    return audit.dead_count;
}
