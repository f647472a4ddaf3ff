/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fetch_moved.c - blocks that reclaiming moves to another place on NVMe while they are read
 * from where they were, and what was read there is wrong: that costs no block.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "image.h"
#include "kvtier/compression.h"
#include "rng.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 61000, /* No whole number of pages. */
    PARTS = 4,
    PART_BYTES = BLOCK_BYTES / PARTS,
    KEY = 1,
    LINE_BYTES = 256,
};

#define A_WHILE_NS (UINT64_C(2) * 1000 * 1000)
#define STALL_NS (UINT64_C(500) * 1000 * 1000)

/* A read, and what of the copy that it reads is bad. */
struct way {
    uint16_t stored_parts;
    bool is_encoded, is_prefetch;
    uint32_t flags;      /* Of the get. */
    uint16_t part_count; /* 0: it wants the block. */
    bool is_trailer;     /* That is bad; else the first part. */
    uint64_t late;       /* So many reads of it come in time. */
};

static const struct way plain = {.stored_parts = 1};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t bytes[BLOCK_BYTES];
static _Alignas(4096) uint8_t target[KIT_BLOCK_BYTES_MAX];
static struct payload_key name;
static char noted[LINE_BYTES]; /* The last line that tells of damage. */

static void
damage_note(void *context, int level, const char *module, const char *line)
{
    (void)context;
    (void)level;
    (void)module;
    if (strstr(line, "event=corrupt") != NULL)
        (void)snprintf(noted, sizeof(noted), "%s", line);
}

static void
begin(void)
{
    struct kvt_options options = kit_options();

    options.log = damage_note;
    options.log_level = KVT_LOG_ERROR;
    sim_store_open(&sim, &options);
    store = sim.store;
    noted[0] = '\0';
    payload_key_make(&name, KEY);
    assert_int_equal(kvt_namespace_open(store, "moved", "", 0, &ns), KVT_OK);
}

/* --- One block -------------------------------------------------------------------------------- */

static const struct entry *
entry_of_key(void)
{
    return residency_at(store->map, kit_entry(store, ns, KEY));
}

/* It is on NVMe alone. */
static void
put_on_nvme(const struct way *way)
{
    const struct kvt_namespace_options how = {
        .struct_size = sizeof(how), .codec = way->is_encoded ? KVT_CODEC_BF16 : KVT_CODEC_NONE};
    struct kvt_put put = {
        .key = name.key, .source = bytes, .length = BLOCK_BYTES, .part_count = way->stored_parts};
    struct rng rng = {7};
    kvt_ticket *ticket;

    /* Numbers of 16 bits, of much the same size. */
    for (uint32_t i = 0; i < BLOCK_BYTES; i++)
        bytes[i] = i % 2 == 0 ? (uint8_t)rng_next(&rng) : (uint8_t)(0x3C | (rng_next(&rng) & 0x81));
    assert_int_equal(kvt_namespace_configure(store, ns, &how), KVT_OK);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_true(entry_host_release(store, kit_entry(store, ns, KEY), KVT_REASON_EVICTED));
    assert_int_equal(entry_tiers(store, kit_entry(store, ns, KEY)), TIER_NVME);
    assert_true(!way->is_encoded || entry_of_key()->stored_length < BLOCK_BYTES);
}

/* Reads of data from the one with the number `nth` on are late. */
static void
reads_stall(uint64_t nth)
{
    sim_rule_add(sim.world, &(struct sim_rule){.ops = SIM_READ,
                                .effect = SIM_STALL,
                                .file = "data.",
                                .nth = nth,
                                .sticky = true,
                                .stall_ns = STALL_NS});
}

/* The read was asked for, and has not come. */
static kvt_ticket *
read_begun(const struct way *way)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HOST};
    const struct kvt_get get = {.key = name.key,
        .destination = target,
        .capacity = sizeof(target),
        .flags = way->flags,
        .part_count = way->part_count};
    kvt_ticket *ticket;

    memset(target, 0, sizeof(target));
    reads_stall(1 + way->late);
    if (way->is_prefetch)
        assert_int_equal(kvt_prefetch_submit(store, ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    else
        assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_OK);
    sim_store_pass(&sim, A_WHILE_NS);
    sim_rules_clear(sim.world);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0), KVT_LATE);
    return ticket;
}

/* Where it was. It is moved as reclaiming moves it, and by then nobody has read what was asked. */
static struct extent
block_move(const kvt_ticket *ticket)
{
    const struct resident was = {
        .number = kit_entry(store, ns, KEY), .extent = entry_extent(entry_of_key())};

    assert_int_equal(relocate_start(store, &was, 1, NVME_ROOT_NONE), 1);
    while (!relocate_is_idle(store))
        sim_run_steps(sim.world, 1);
    assert_false(resident_is_there(store, &was));
    assert_int_equal(kvt_ticket_wait((kvt_ticket *)ticket, KVT_STAGE_DONE, 0), KVT_LATE);
    return was.extent;
}

/* A byte of the copy at that place is another from now on. */
static void
copy_damage(const struct way *way, const struct extent *extent)
{
    const struct entry *entry = entry_of_key();
    const struct image_shape shape = {.length = entry->length,
        .stored_length = entry->stored_length,
        .part_count = entry_parts(entry),
        .has_trailer = entry->has_trailer != 0,
        .checksum = entry->checksum};
    uint64_t page =
        (uint64_t)segment_index(extent->segment) * store->file.segment_pages + extent->page;
    uint64_t at = page * PAGE_BYTES + (way->is_trailer ? image_trailer_at(&shape) : 0) + 20;

    assert_true(sim_file_corrupt(sim.world, "store/data/data.00", at, 1));
}

static void
damage_is_noted(uint64_t count, const struct extent *extent)
{
    char wanted[LINE_BYTES];

    (void)snprintf(wanted, sizeof(wanted), "event=corrupt segment=%u page=%u generation=%u ",
        extent->segment, extent->page, extent->generation);
    assert_int_equal(atomic_load(&store->counters.corrupt_count), count);
    if (strstr(noted, wanted) == NULL)
        fail_msg("\"%s\" is noted, wanted \"%s\"", noted, wanted);
}

/* What was wanted came, and the block is where it was moved to. */
static void
read_is_right(const struct way *way, kvt_ticket *ticket)
{
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_not_equal(kit_entry(store, ns, KEY), ENTRY_NONE);
    assert_true((entry_tiers(store, kit_entry(store, ns, KEY)) & TIER_NVME) != 0);
    if (way->is_prefetch) {
        assert_int_equal(entry_tiers(store, kit_entry(store, ns, KEY)), TIER_HOST | TIER_NVME);
        assert_memory_equal(entry_host_address(store, entry_of_key()), bytes, BLOCK_BYTES);
    } else {
        assert_memory_equal(target, bytes,
            way->part_count == 0 ? BLOCK_BYTES : (size_t)way->part_count * PART_BYTES);
    }
}

/* --- Moved under a read ----------------------------------------------------------------------- */

static void
a_bad_copy_that_the_block_has_left_costs_no_block(void **state)
{
    static const struct way ways[] = {
        {.stored_parts = 1},
        {.stored_parts = 1, .is_prefetch = true},
        {.stored_parts = PARTS},
        {.stored_parts = PARTS, .part_count = 1},
        {.stored_parts = PARTS, .part_count = 1, .is_trailer = true},
        {.stored_parts = PARTS, .is_encoded = true},
        {.stored_parts = PARTS, .is_encoded = true, .is_trailer = true},
        {.stored_parts = PARTS, .is_encoded = true, .flags = KVT_GET_TRANSIENT},
        {.stored_parts = PARTS, .is_encoded = true, .part_count = 1, .late = 1},
        {.stored_parts = PARTS, .is_encoded = true, .part_count = 1, .is_trailer = true},
    };

    (void)state;
    for (uint32_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct extent left;
        kvt_ticket *ticket;

        begin();
        put_on_nvme(&ways[i]);
        ticket = read_begun(&ways[i]);
        left = block_move(ticket);
        copy_damage(&ways[i], &left);
        read_is_right(&ways[i], ticket);
        damage_is_noted(1, &left);
        sim_store_close(&sim);
    }
}

/* The bytes that came to memory that its owner may write are not looked at as the disk's. */
static void
a_bad_copy_that_was_read_straight_to_its_reader_costs_no_block(void **state)
{
    static const struct way straight = {.stored_parts = 1, .flags = KVT_GET_TRANSIENT};
    struct extent left;
    kvt_ticket *ticket;

    (void)state;
    begin();
    put_on_nvme(&straight);
    ticket = read_begun(&straight);
    left = block_move(ticket);
    copy_damage(&straight, &left);
    reads_stall(1);
    sim_store_pass(&sim, STALL_NS);
    sim_rules_clear(sim.world);
    /* It is being read again, into memory of the store: that copy is left, too. */
    left = block_move(ticket);
    copy_damage(&straight, &left);
    read_is_right(&straight, ticket);
    damage_is_noted(1, &left);
    sim_store_close(&sim);
}

static void
a_block_that_is_moved_again_is_read_again(void **state)
{
    struct extent left;
    kvt_ticket *ticket;

    (void)state;
    begin();
    put_on_nvme(&plain);
    ticket = read_begun(&plain);
    for (uint64_t times = 1; times <= 3; times++) {
        left = block_move(ticket);
        copy_damage(&plain, &left);
        reads_stall(1);
        sim_store_pass(&sim, STALL_NS);
        sim_rules_clear(sim.world);
        damage_is_noted(times, &left);
    }
    read_is_right(&plain, ticket);
    sim_store_close(&sim);
}

/* --- What is bad is given up ------------------------------------------------------------------ */

static void
block_is_given_up(kvt_ticket *ticket, uint64_t count, const struct extent *extent)
{
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_MISS);
    assert_int_equal(kit_entry(store, ns, KEY), ENTRY_NONE);
    damage_is_noted(count, extent);
    sim_store_close(&sim);
}

static void
a_block_whose_new_copy_is_bad_too_is_given_up(void **state)
{
    struct extent left, has;
    kvt_ticket *ticket;

    (void)state;
    begin();
    put_on_nvme(&plain);
    ticket = read_begun(&plain);
    left = block_move(ticket);
    has = entry_extent(entry_of_key());
    copy_damage(&plain, &left);
    copy_damage(&plain, &has);
    block_is_given_up(ticket, 2, &has);
}

/* Its trailer came from the place before, and was right. */
static void
a_part_that_is_bad_where_it_was_read_costs_the_block(void **state)
{
    static const struct way part = {.stored_parts = PARTS, .is_encoded = true, .part_count = 1};
    struct extent has;
    kvt_ticket *ticket;

    (void)state;
    begin();
    put_on_nvme(&part);
    ticket = read_begun(&part);
    (void)block_move(ticket);
    has = entry_extent(entry_of_key());
    copy_damage(&part, &has);
    block_is_given_up(ticket, 1, &has);
}

/* What is told of is the copy that was read, not the last that there was. */
static void
a_block_that_was_deleted_since_is_not_read_again(void **state)
{
    struct extent left;
    kvt_ticket *ticket;

    (void)state;
    begin();
    put_on_nvme(&plain);
    ticket = read_begun(&plain);
    left = block_move(ticket);
    copy_damage(&plain, &left);
    assert_int_equal(kit_delete(store, ns, KEY), KVT_OK);
    block_is_given_up(ticket, 1, &left);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_copy_that_the_block_has_left_costs_no_block),
        cmocka_unit_test(a_bad_copy_that_was_read_straight_to_its_reader_costs_no_block),
        cmocka_unit_test(a_block_that_is_moved_again_is_read_again),
        cmocka_unit_test(a_block_whose_new_copy_is_bad_too_is_given_up),
        cmocka_unit_test(a_part_that_is_bad_where_it_was_read_costs_the_block),
        cmocka_unit_test(a_block_that_was_deleted_since_is_not_read_again),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
