/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_room_refused.c - whoever finds no room is told so, however much of others is always in
 * flight; but not while something is in flight that will make room. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "relocate.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 61440, /* Whole pages: it is read straight to where it is wanted. */
    SMALL_BYTES = 4096,
    PARTS = 2,
    READS = 4,         /* Of others, in flight at a time ... */
    READ_MS = 20,      /* ... for so long; */
    STEP_MS = 5,       /* so often the oldest one is followed by another. */
    REFUSED_MS = 1000, /* Then who waits in vain has had its answer. */
    LONG_MS = 2000,    /* What is not waited for in vain takes longer. */
    LEASES_MAX = 512,
    BOUND = 64,        /* Entries. */
    UNLEASED = 16,     /* A segment. */
    READ_LONG = 10,    /* More than half of it. */
    SCAN_IO_MAX = 400, /* Of two searches in all segments, beside the reads of others. */
    READ_FIRST = 100000,
    PARTED = 200000,
    HBM_FIRST = 300000,
    WANTED = 400000,
    MANY = 32,
};

static const uint64_t ms_ns = UINT64_C(1000) * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static _Alignas(4096) uint8_t bytes[BLOCK_BYTES], read_bytes[READS][BLOCK_BYTES];
static kvt_ticket *reads[READS];
static uint32_t read_next;
static bool is_reading_parts; /* By way of slots of HOST. */
static kvt_lease leases[LEASES_MAX];
static uint32_t lease_count;
static struct kvt_region_options memory; /* Of the device. */
static kvt_region region;

static void
open_with(struct kvt_options options)
{
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    lease_count = read_next = 0;
    is_reading_parts = false;
    memset(reads, 0, sizeof(reads));
    memory.address = NULL;
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    options.nvme_capacity_bytes = 32 << 20;
    options.host_high_percent = 100;
    options.lease_count_max = LEASES_MAX;
    open_with(options);
    return 0;
}

static int
setup_bounded(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.entry_count_max = BOUND;
    options.host_capacity_bytes = 16 << 20;
    options.lease_count_max = LEASES_MAX;
    open_with(options);
    return 0;
}

/* NVMe of 8 segments, and a HOST that holds more. */
static int
setup_nvme(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.host_capacity_bytes = 32 << 20;
    options.lease_count_max = LEASES_MAX;
    open_with(options);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kvt_abort(store);
    sim_world_destroy(sim.world);
    return 0;
}

/* --- 1. Blocks -------------------------------------------------------------------------------- */

static kvt_ticket *
put_submit(uint64_t number, struct kvt_put put, enum kvt_durability durability)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    put.key = name.key;
    if (put.length == 0)
        put.length = BLOCK_BYTES;
    if (put.source == NULL)
        put.source = bytes;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    return ticket;
}

static kvt_ticket *
hbm_put_submit(uint64_t number)
{
    if (memory.address == NULL) {
        memory = (struct kvt_region_options){
            .struct_size = sizeof(memory), .tier = KVT_TIER_HBM, .size = BLOCK_BYTES};
        assert_int_equal(kvt_device_alloc(store, 0, memory.size, &memory.address), KVT_OK);
        assert_int_equal(kvt_region_register(store, &memory, &region), KVT_OK);
    }
    return put_submit(HBM_FIRST + number,
        (struct kvt_put){.source = memory.address, .region = region, .tier = KVT_TIER_HBM},
        KVT_MEMORY);
}

static void
memory_free(void)
{
    assert_int_equal(kvt_region_unregister(store, region), KVT_OK);
    kvt_device_free(store, 0, memory.address, memory.size);
}

static void
lease(uint64_t number)
{
    struct payload_key name;
    uint32_t leading_count;

    payload_key_make(&name, number);
    assert_true(lease_count < LEASES_MAX);
    assert_int_equal(
        kvt_lookup(store, ns, &name.key, 1, NULL, &leading_count, &leases[lease_count++]), KVT_OK);
    assert_int_equal(leading_count, 1);
}

static unsigned
tiers_of(uint64_t number)
{
    struct payload_key name;
    uint8_t tiers;

    payload_key_make(&name, number);
    assert_int_equal(kvt_lookup(store, ns, &name.key, 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

/* Leased blocks, until there is no room for more. Returns how many there are. */
static uint32_t
fill_with(kvt_ticket *(*submit)(uint64_t number), uint64_t first, uint32_t stage)
{
    uint32_t count = 0;

    while (kit_result(submit(count), stage).status == KVT_OK)
        lease(first + count++);
    assert_in_range(count, 8, LEASES_MAX);
    return count;
}

static kvt_ticket *
memory_put_submit(uint64_t number)
{
    return put_submit(number, (struct kvt_put){0}, KVT_MEMORY);
}

static kvt_ticket *
sync_put_submit(uint64_t number)
{
    return put_submit(number, (struct kvt_put){0}, KVT_SYNC);
}

/* Its last lease goes, and so does the block. */
static void
last_delete(uint64_t number)
{
    kvt_lease_release(store, leases[--lease_count]);
    assert_int_equal(kit_delete(store, ns, number), KVT_OK);
}

/* --- 2. What others do ------------------------------------------------------------------------ */

/* Blocks that are only on NVMe. */
static void
nvme_blocks_make(uint64_t first, uint32_t count, uint64_t length, uint16_t parts)
{
    for (uint64_t i = 0; i < count; i++) {
        struct payload_key name;
        kvt_ticket *ticket;

        payload_key_make(&name, first + i);
        ticket = put_submit(
            first + i, (struct kvt_put){.length = length, .part_count = parts}, KVT_SYNC);
        assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
        assert_int_equal(
            kvt_demote_submit(store, ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    }
}

/* Reads of data take so long from now on, and writes. */
static void
disk_slow(uint64_t reads_ms, uint64_t writes_ms)
{
    struct sim_rule rule = {
        .ops = SIM_READ, .effect = SIM_STALL, .file = "data.", .nth = 1, .sticky = true};

    sim_rules_clear(sim.world);
    rule.stall_ns = reads_ms * ms_ns;
    sim_rule_add(sim.world, &rule);
    rule.ops = SIM_WRITE;
    rule.stall_ns = writes_ms * ms_ns;
    sim_rule_add(sim.world, &rule);
}

static kvt_ticket *
get_submit(uint64_t number, void *destination, uint16_t part_count)
{
    struct payload_key name;
    struct kvt_get get = {.destination = destination,
        .capacity = BLOCK_BYTES,
        .flags = KVT_GET_TRANSIENT,
        .part_count = part_count};
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    get.key = name.key;
    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_OK);
    return ticket;
}

/* Some time passes, in which others read. There is always something in flight. */
static void
others_read(void)
{
    kvt_ticket **oldest = &reads[read_next % READS];

    if (*oldest != NULL)
        assert_int_equal(kit_result(*oldest, KVT_STAGE_DONE).status, KVT_OK);
    *oldest = get_submit(
        READ_FIRST + read_next % READS, read_bytes[read_next % READS], is_reading_parts ? 1 : 0);
    read_next++;
    sim_store_pass(&sim, STEP_MS * ms_ns);
    assert_true(store->reads_in_flight > 0);
}

/* The disk is as slow as it is to be, and others read. */
static void
others_begin(uint64_t writes_ms)
{
    disk_slow(READ_MS, writes_ms);
    for (uint32_t i = 0; i < READS; i++)
        others_read();
}

/* How it ends, in the time that so many steps take, and what it took. */
static enum kvt_status
outcome(kvt_ticket *ticket, uint32_t stage, uint32_t ms_max, uint64_t *ns_out)
{
    uint64_t begin_ns = sim_now(sim.world);
    enum kvt_status status = KVT_LATE;

    for (uint32_t step = 0; step < ms_max / STEP_MS && status == KVT_LATE; step++) {
        others_read();
        status = kvt_ticket_wait(ticket, stage, 0);
    }
    *ns_out = sim_now(sim.world) - begin_ns;
    assert_int_equal(status, KVT_OK);
    return kit_result(ticket, stage).status;
}

static void
refused_check(kvt_ticket *ticket, uint32_t stage)
{
    uint64_t took_ns;

    assert_int_equal(outcome(ticket, stage, REFUSED_MS, &took_ns), KVT_E_NOSPC);
}

/* It waits for what takes long, although others read all the time, and then has room. */
static void
patience_check(kvt_ticket *ticket, uint32_t stage)
{
    uint64_t took_ns;

    assert_int_equal(outcome(ticket, stage, 2 * LONG_MS, &took_ns), KVT_OK);
    assert_true(took_ns > LONG_MS / 2 * ms_ns);
}

/* --- 3. Refused ------------------------------------------------------------------------------- */

static void
a_put_is_told_that_host_is_leased(void **state)
{
    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    (void)fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    others_begin(0);
    refused_check(memory_put_submit(WANTED), KVT_STAGE_DONE);
    refused_check(sync_put_submit(WANTED), KVT_STAGE_DONE);
}

/* A segment's kills are written again, and nothing else: their end is no room, but an end. */
/* Many in one ticket: not one after another. */
static void
all_puts_that_wait_are_told_together(void **state)
{
    struct payload_key names[MANY];
    struct kvt_put puts[MANY];
    struct kvt_result results[MANY];
    kvt_ticket *ticket;
    uint64_t begin_ns;

    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    (void)fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    others_begin(0);
    for (uint32_t i = 0; i < MANY; i++) {
        payload_key_make(&names[i], WANTED + i);
        puts[i] = (struct kvt_put){.key = names[i].key, .length = BLOCK_BYTES, .source = bytes};
    }
    assert_int_equal(kvt_put_submit(store, ns, puts, MANY, KVT_MEMORY, NULL, &ticket), KVT_OK);
    begin_ns = sim_now(sim.world);
    while (kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0) == KVT_LATE) {
        others_read();
        assert_true(sim_now(sim.world) - begin_ns < REFUSED_MS * ms_ns);
    }
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, MANY), KVT_OK);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(results[i].status, KVT_E_NOSPC);
    kvt_ticket_free(ticket);
}

/* So often, at the most, somebody asks for memory, while others read. Returns how often. */
static uint32_t
reserve_often(uint32_t count, enum kvt_status *status_out)
{
    const struct kvt_put put = {.key = {.bytes = "mine", .length = 4}, .length = BLOCK_BYTES};
    kvt_reservation *reservation;
    void *address;
    uint32_t i = 0;

    do {
        others_read();
        *status_out = kvt_reserve(store, ns, &put, &address, &reservation);
    } while (++i < count && *status_out == KVT_E_BUSY);
    return i;
}

static void
a_reservation_is_told_that_host_is_leased(void **state)
{
    enum kvt_status status;
    uint32_t count;

    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    (void)fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    others_begin(0);
    count = reserve_often(REFUSED_MS / STEP_MS, &status);
    assert_int_equal(status, KVT_E_NOSPC);
    /* Who comes much later has not waited yet. */
    (void)reserve_often(count - 1, &status);
    assert_int_equal(status, KVT_E_BUSY);
    sim_store_pass(&sim, LONG_MS * ms_ns);
    (void)reserve_often(count - 1, &status);
    assert_int_equal(status, KVT_E_BUSY);
}

static void
a_put_is_told_behind_kills_that_are_moved(void **state)
{
    const struct tier_kill kill = {
        .extent = {.segment = 1, .generation = 1}, .fingerprint = {1, 1}, .sequence = 1};
    kvt_ticket *ticket;

    (void)state;
    (void)fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    relocate_kills(store, &kill, 1, NVME_ROOT_NONE);
    ticket = memory_put_submit(WANTED);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, 10000 * ms_ns), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_E_NOSPC);
}

static void
a_put_is_told_that_hbm_is_leased(void **state)
{
    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    (void)fill_with(hbm_put_submit, HBM_FIRST, KVT_STAGE_DONE);
    others_begin(0);
    refused_check(hbm_put_submit(WANTED), KVT_STAGE_DONE);
    memory_free();
}

/* Nothing of HBM is leased, and nothing of HOST can go. */
static void
a_put_in_hbm_drops_what_has_no_way_down(void **state)
{
    uint64_t took_ns;
    uint32_t count;

    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    count = fill_with(hbm_put_submit, HBM_FIRST, KVT_STAGE_DONE);
    (void)fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    for (uint32_t i = 0; i < count; i++)
        kvt_lease_release(store, leases[i]);
    others_begin(0);
    assert_int_equal(outcome(hbm_put_submit(WANTED), KVT_STAGE_DONE, REFUSED_MS, &took_ns), KVT_OK);
    memory_free();
}

static void
a_put_is_told_that_the_map_is_leased(void **state)
{
    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    for (uint64_t i = 0; i < READS; i++)
        lease(READ_FIRST + i);
    (void)fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    others_begin(0);
    refused_check(memory_put_submit(WANTED), KVT_STAGE_DONE);
}

static void
a_put_is_told_that_nvme_is_leased(void **state)
{
    uint64_t io_count;
    uint32_t read_count;

    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    for (uint64_t i = 0; i < READS; i++)
        lease(READ_FIRST + i);
    (void)fill_with(sync_put_submit, 0, KVT_STAGE_DURABLE);
    others_begin(0);
    io_count = sim_io_count(sim.world);
    read_count = read_next;
    refused_check(sync_put_submit(WANTED), KVT_STAGE_DURABLE);
    read_count = read_next - read_count;
    assert_in_range(sim_io_count(sim.world) - io_count, 1, SCAN_IO_MAX + 2 * read_count);
}

/* What is free of HOST lies beside a small block, and goes from one read to the next. */
static void
a_put_is_told_that_what_is_free_is_too_small(void **state)
{
    kvt_ticket *ticket;
    uint64_t took_ns;

    (void)state;
    is_reading_parts = true;
    nvme_blocks_make(READ_FIRST, READS, SMALL_BYTES, PARTS);
    ticket = put_submit(WANTED, (struct kvt_put){.length = SMALL_BYTES}, KVT_MEMORY);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    lease(WANTED);
    (void)fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    others_begin(0);
    assert_int_equal(
        outcome(memory_put_submit(WANTED + 1), KVT_STAGE_DONE, 8 * REFUSED_MS, &took_ns),
        KVT_E_NOSPC);
    /* Some of it might have been enough. */
    assert_true(took_ns > REFUSED_MS / 2 * ms_ns);
}

/* --- 4. Not refused --------------------------------------------------------------------------- */

static void
a_put_waits_for_a_write(void **state)
{
    kvt_ticket *writing;
    uint32_t count;

    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    count = fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    last_delete(count - 1);
    others_begin(LONG_MS);
    writing = sync_put_submit(WANTED);
    sim_store_pass(&sim, STEP_MS * ms_ns);
    patience_check(memory_put_submit(WANTED + 1), KVT_STAGE_DONE);
    assert_int_equal(kit_result(writing, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_int_equal(tiers_of(WANTED), KVT_TIER_NVME);
}

/* It waits for a write of the block that it is to replace, and that is deleted meanwhile. With the
 * write's end nothing is in flight, and the slot comes back a moment later. */
static void
a_put_waits_for_the_slot_of_a_block_that_has_left(void **state)
{
    kvt_ticket *writing, *replacing, *deleting;
    struct payload_key name;
    uint32_t count;

    (void)state;
    count = fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    last_delete(count - 1);
    disk_slow(0, LONG_MS);
    writing = sync_put_submit(WANTED);
    sim_store_pass(&sim, STEP_MS * ms_ns);
    replacing = put_submit(WANTED, (struct kvt_put){.flags = KVT_PUT_REPLACE}, KVT_MEMORY);
    sim_store_loop(&sim);
    payload_key_make(&name, WANTED);
    assert_int_equal(kvt_delete_submit(store, ns, &name.key, 1, NULL, &deleting), KVT_OK);
    assert_int_equal(kit_result(replacing, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kit_result(writing, KVT_STAGE_DURABLE).status, KVT_MISS);
    assert_int_equal(kit_result(deleting, KVT_STAGE_DURABLE).status, KVT_OK);
}

/* A slot of HOST that is no copy. */
static void
a_put_waits_for_a_read(void **state)
{
    kvt_ticket *reading;
    uint32_t count;

    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    nvme_blocks_make(PARTED, 1, BLOCK_BYTES, PARTS);
    count = fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    last_delete(count - 1);
    disk_slow(LONG_MS, 0);
    reading = get_submit(PARTED, bytes, 1);
    sim_store_pass(&sim, STEP_MS * ms_ns);
    others_begin(0);
    patience_check(memory_put_submit(WANTED), KVT_STAGE_DONE);
    assert_int_equal(kit_result(reading, KVT_STAGE_DONE).status, KVT_OK);
}

/* What is in flight is a copy down; a write follows that. */
static void
a_put_waits_for_what_follows(void **state)
{
    kvt_ticket *lowering, *waiting;
    struct payload_key name;
    uint32_t count;

    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    assert_int_equal(kit_result(hbm_put_submit(0), KVT_STAGE_DONE).status, KVT_OK);
    count = fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    last_delete(count - 1);
    others_begin(LONG_MS);
    payload_key_make(&name, HBM_FIRST);
    assert_int_equal(
        kvt_demote_submit(store, ns, &name.key, 1, KVT_TIER_NVME, NULL, &lowering), KVT_OK);
    waiting = memory_put_submit(WANTED);
    sim_store_loop(&sim);
    assert_int_equal(turns_are_idle(&store->flights), false);
    patience_check(waiting, KVT_STAGE_DONE);
    assert_int_equal(kit_result(lowering, KVT_STAGE_DONE).status, KVT_OK);
    memory_free();
}

/* HBM's block goes down when HOST's has been written; it is not dropped. */
static void
a_put_in_hbm_waits_for_a_write_from_host(void **state)
{
    kvt_ticket *writing;
    uint32_t count;

    (void)state;
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    count = fill_with(hbm_put_submit, HBM_FIRST, KVT_STAGE_DONE);
    kvt_lease_release(store, leases[--lease_count]);
    (void)fill_with(memory_put_submit, 0, KVT_STAGE_DONE);
    kvt_lease_release(store, leases[--lease_count]);
    others_begin(LONG_MS);
    writing = sync_put_submit(WANTED);
    sim_store_pass(&sim, STEP_MS * ms_ns);
    patience_check(hbm_put_submit(count), KVT_STAGE_DONE);
    assert_int_equal(kit_result(writing, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_int_equal(tiers_of(HBM_FIRST + count - 1), KVT_TIER_HOST);
    memory_free();
}

/* NVMe is full of leased blocks, of which the first UNLEASED are only there. */
static void
nvme_fill(void)
{
    nvme_blocks_make(0, UNLEASED, BLOCK_BYTES, 1);
    nvme_blocks_make(READ_FIRST, READS, BLOCK_BYTES, 1);
    for (uint64_t i = 0; i < READS; i++)
        lease(READ_FIRST + i);
    for (uint64_t i = 0; i < UNLEASED; i++)
        lease(i);
    for (uint64_t i = UNLEASED; kit_result(sync_put_submit(i), KVT_STAGE_DURABLE).status == KVT_OK;
         i++)
        lease(i);
}

static void
unlease(void)
{
    for (uint32_t i = 0; i < UNLEASED; i++)
        kvt_lease_release(store, leases[READS + i]);
}

/* What is read on NVMe stays there as long. */
static void
a_put_waits_for_reads_of_nvme(void **state)
{
    kvt_ticket *reading[READ_LONG];

    (void)state;
    nvme_fill();
    disk_slow(LONG_MS, 0);
    for (uint64_t i = 0; i < READ_LONG; i++)
        reading[i] = get_submit(i, bytes, 0);
    sim_store_pass(&sim, STEP_MS * ms_ns);
    unlease();
    others_begin(0);
    patience_check(sync_put_submit(WANTED), KVT_STAGE_DURABLE);
    for (uint64_t i = 0; i < READ_LONG; i++)
        assert_int_equal(kit_result(reading[i], KVT_STAGE_DONE).status, KVT_OK);
}

/* Nothing that the store knows of would make room, and then somebody gives back what was leased. */
static void
a_put_sees_what_is_given_back_meanwhile(void **state)
{
    kvt_ticket *reading, *waiting;

    (void)state;
    nvme_fill();
    disk_slow(10 * LONG_MS, 0);
    reading = get_submit(READ_FIRST, bytes, 0);
    sim_store_pass(&sim, STEP_MS * ms_ns);
    waiting = sync_put_submit(WANTED);
    disk_slow(0, 0);
    sim_store_pass(&sim, LONG_MS / 10 * ms_ns);
    assert_int_equal(kvt_ticket_wait(waiting, KVT_STAGE_DURABLE, 0), KVT_LATE);
    unlease();
    sim_store_pass(&sim, LONG_MS * ms_ns);
    assert_int_equal(kvt_ticket_wait(waiting, KVT_STAGE_DURABLE, 0), KVT_OK);
    assert_int_equal(kit_result(waiting, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_int_equal(kvt_ticket_wait(reading, KVT_STAGE_DONE, 0), KVT_LATE);
    assert_int_equal(kit_result(reading, KVT_STAGE_DONE).status, KVT_OK);
}

int
main(void)
{
#define TEST(name, setup) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_put_is_told_that_host_is_leased, setup),
        TEST(all_puts_that_wait_are_told_together, setup),
        TEST(a_reservation_is_told_that_host_is_leased, setup),
        TEST(a_put_is_told_behind_kills_that_are_moved, setup),
        TEST(a_put_is_told_that_hbm_is_leased, setup),
        TEST(a_put_in_hbm_drops_what_has_no_way_down, setup),
        TEST(a_put_is_told_that_the_map_is_leased, setup_bounded),
        TEST(a_put_is_told_that_nvme_is_leased, setup_nvme),
        TEST(a_put_is_told_that_what_is_free_is_too_small, setup),
        TEST(a_put_waits_for_a_write, setup),
        TEST(a_put_waits_for_the_slot_of_a_block_that_has_left, setup),
        TEST(a_put_waits_for_a_read, setup),
        TEST(a_put_waits_for_what_follows, setup),
        TEST(a_put_in_hbm_waits_for_a_write_from_host, setup),
        TEST(a_put_waits_for_reads_of_nvme, setup_nvme),
        TEST(a_put_sees_what_is_given_back_meanwhile, setup_nvme),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
