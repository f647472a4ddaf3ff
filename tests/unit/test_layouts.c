/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_layouts.c - blocks whose memory is spread in strided runs (layouts.h): from and to memory of
 * a device, of a region, and ordinary memory; from every tier; what is written, and what is not.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "run_plan.h"
#include "stop_on_proof.h"

enum {
    AREA_BYTES = 512 << 10,
    SLOTS = 5,
    FILLER = 0xEE,
    PARTS = 4,
};

/* Where an area lies. */
enum kind {
    KIND_PLAIN,
    KIND_PINNED,
    KIND_DEVICE,
    KIND_COUNT
};

static struct rng rng;
static uint8_t *areas[KIND_COUNT]; /* KIND_DEVICE: hbm.pool. */
static kvt_region regions[KIND_COUNT];
static uint64_t last_key;

static int
setup(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .size = AREA_BYTES};

    hbm_setup(state);
    rng.state = 77;
    last_key = 1000;
    areas[KIND_PLAIN] = malloc(AREA_BYTES);
    areas[KIND_PINNED] = aligned_alloc(4096, AREA_BYTES);
    areas[KIND_DEVICE] = hbm.pool;
    assert_true(areas[KIND_PLAIN] != NULL && areas[KIND_PINNED] != NULL);
    about.address = areas[KIND_PINNED];
    assert_int_equal(kvt_region_register(hbm.store, &about, &regions[KIND_PINNED]), KVT_OK);
    regions[KIND_DEVICE] = hbm.region;
    return 0;
}

static int
teardown(void **state)
{
    if (hbm.store != NULL)
        assert_int_equal(kvt_region_unregister(hbm.store, regions[KIND_PINNED]), KVT_OK);
    hbm_teardown(state);
    free(areas[KIND_PLAIN]);
    free(areas[KIND_PINNED]);
    return 0;
}

/* --- Areas and blocks ------------------------------------------------------------------------- */

static void
area_write(enum kind kind, const uint8_t *bytes)
{
    if (kind != KIND_DEVICE)
        memcpy(areas[kind], bytes, AREA_BYTES);
    else
        assert_int_equal(kvt_device_write(hbm.store, 0, areas[kind], bytes, AREA_BYTES), KVT_OK);
}

static void
area_read(enum kind kind, uint8_t *bytes)
{
    if (kind != KIND_DEVICE)
        memcpy(bytes, areas[kind], AREA_BYTES);
    else
        assert_int_equal(kvt_device_read(hbm.store, 0, bytes, areas[kind], AREA_BYTES), KVT_OK);
}

static void
block_fill(uint8_t *bytes, uint64_t length, uint64_t key)
{
    struct rng content = {key};

    /* Much alike in every other byte, so that a codec pays. */
    for (uint64_t i = 0; i < length; i++)
        bytes[i] = i % 2 == 0 ? (uint8_t)rng_next(&content) : 0x3C;
}

/* How a put or get names its memory. */
struct target {
    enum kind kind;
    struct run_plan plan;
    kvt_layout layout; /* {0}: by runs of its own. */
    uint32_t slot;
};

static struct target
target_make(enum kind kind, uint64_t length, bool is_registered)
{
    struct target target = {.kind = kind};

    run_plan_make(&target.plan, &rng, length, is_registered ? SLOTS : 1);
    assert_true(target.plan.area_bytes <= AREA_BYTES);
    run_plan_place(&target.plan, areas[kind], regions[kind]);
    if (is_registered) {
        assert_int_equal(run_plan_register(&target.plan, hbm.store, &target.layout), KVT_OK);
        target.slot = rng_below(&rng, SLOTS);
    }
    return target;
}

static void
target_end(struct target *target)
{
    assert_int_equal(kvt_layout_unregister(hbm.store, target->layout), KVT_OK);
}

static struct kvt_put
put_of(const struct target *target)
{
    struct kvt_put put = {
        .length = target->plan.block_bytes, .layout = target->layout, .slot = target->slot};

    if (target->layout.id == 0) {
        put.runs = target->plan.runs;
        put.run_count = target->plan.run_count;
    }
    return put;
}

static struct kvt_get
get_of(const struct target *target)
{
    struct kvt_get get = {.layout = target->layout, .slot = target->slot};

    if (target->layout.id == 0) {
        get.runs = target->plan.runs;
        get.run_count = target->plan.run_count;
    }
    return get;
}

static struct kvt_result
put_submit(struct kvt_put *put, uint64_t key, enum kvt_durability durability)
{
    kvt_ticket *ticket;

    put->key = (struct kvt_key){.bytes = &key, .length = sizeof(key)};
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, put, 1, durability, NULL, &ticket), KVT_OK);
    return kit_result(ticket, durability == KVT_MEMORY ? 1 : 2);
}

static struct kvt_result
get_submit(struct kvt_get *get, uint64_t key)
{
    kvt_ticket *ticket;

    get->key = (struct kvt_key){.bytes = &key, .length = sizeof(key)};
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, get, 1, NULL, &ticket), KVT_OK);
    return kit_result(ticket, 1);
}

/* From its slot; what lies around it is filler. */
static void
target_put(const struct target *target, uint64_t key, uint32_t tier, uint32_t parts)
{
    const struct run_plan_range whole = {target->slot, 0, target->plan.block_bytes};
    struct kvt_put put = put_of(target);
    uint8_t *bytes = malloc(put.length), *area = malloc(AREA_BYTES);

    assert_true(bytes != NULL && area != NULL);
    block_fill(bytes, put.length, key);
    memset(area, FILLER, AREA_BYTES);
    run_plan_store(&target->plan, &whole, area, bytes);
    area_write(target->kind, area);
    put.tier = tier == KVT_TIER_HBM ? KVT_TIER_HBM : KVT_TIER_HOST;
    put.part_count = (uint16_t)parts;
    assert_int_equal(
        put_submit(&put, key, tier == KVT_TIER_NVME ? KVT_SYNC : KVT_MEMORY).status, KVT_OK);
    free(bytes);
    free(area);
}

static void
plain_put(uint64_t key, uint64_t length, uint32_t tier, uint32_t parts)
{
    uint8_t *bytes = malloc(length);
    struct kvt_put put = {.source = bytes, .length = length, .part_count = (uint16_t)parts};

    assert_non_null(bytes);
    block_fill(bytes, length, key);
    assert_int_equal(
        put_submit(&put, key, tier == KVT_TIER_NVME ? KVT_SYNC : KVT_MEMORY).status, KVT_OK);
    free(bytes);
}

/* What lies in the area now: these bytes of the block in their places, and filler. */
static void
target_check(const struct target *target, uint64_t key, uint64_t offset, uint64_t length)
{
    const struct run_plan_range range = {target->slot, offset, length};
    uint8_t *wanted = malloc(target->plan.block_bytes), *found = malloc(length + 1);
    uint8_t *area = malloc(AREA_BYTES);

    assert_true(wanted != NULL && found != NULL && area != NULL);
    block_fill(wanted, target->plan.block_bytes, key);
    area_read(target->kind, area);
    run_plan_load(&target->plan, &range, area, found);
    assert_memory_equal(found, wanted + offset, length);
    assert_true(run_plan_is_clean(&target->plan, &range, area, FILLER));
    for (uint64_t i = target->plan.area_bytes; i < AREA_BYTES; i++)
        assert_int_equal(area[i], FILLER);
    free(wanted);
    free(found);
    free(area);
}

static void
area_clean(enum kind kind)
{
    uint8_t *area = malloc(AREA_BYTES);

    assert_non_null(area);
    memset(area, FILLER, AREA_BYTES);
    area_write(kind, area);
    free(area);
}

/* To its slot, and nowhere else. */
static struct kvt_result
target_get(const struct target *target, uint64_t key, uint32_t flags)
{
    struct kvt_get get = get_of(target);
    struct kvt_result result;

    area_clean(target->kind);
    get.flags = flags;
    result = get_submit(&get, key);
    target_check(target, key, 0, result.status == KVT_OK ? target->plan.block_bytes : 0);
    return result;
}

static void
plain_get(uint64_t key, uint64_t length)
{
    uint8_t *wanted = malloc(length), *found = calloc(1, length);
    struct kvt_get get = {.destination = found, .capacity = length};

    assert_true(wanted != NULL && found != NULL);
    block_fill(wanted, length, key);
    assert_int_equal(get_submit(&get, key).status, KVT_OK);
    assert_memory_equal(found, wanted, length);
    free(wanted);
    free(found);
}

static void
bring_to(uint64_t key, uint32_t tier)
{
    const struct kvt_key name = {.bytes = &key, .length = sizeof(key)};
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};
    kvt_ticket *ticket;

    if (tier == KVT_TIER_HBM) {
        assert_int_equal(
            kvt_prefetch_submit(hbm.store, hbm.ns, &name, 1, &how, NULL, &ticket), KVT_OK);
        assert_true(kit_result(ticket, 1).status >= 0);
    } else if (tier == KVT_TIER_NVME) {
        assert_int_equal(
            kvt_demote_submit(hbm.store, hbm.ns, &name, 1, tier, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
    }
}

static const uint32_t all_tiers[] = {KVT_TIER_HBM, KVT_TIER_HOST, KVT_TIER_NVME};

static uint64_t
length_choose(void)
{
    return 1 + rng_below(&rng, KIT_BLOCK_BYTES_MAX);
}

/* --- There and back --------------------------------------------------------------------------- */

static void
what_is_put_from_strided_memory_is_read_in_one_run(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 60; turn++) {
        struct target source = target_make(turn % KIND_COUNT, length_choose(), turn % 2 == 0);
        uint32_t tier = all_tiers[turn / KIND_COUNT % 3];
        uint64_t key = ++last_key;

        if (tier == KVT_TIER_HBM && source.kind == KIND_PLAIN)
            tier = KVT_TIER_HOST;
        target_put(&source, key, tier, 1);
        bring_to(key, tier);
        plain_get(key, source.plan.block_bytes);
        target_end(&source);
    }
}

static void
what_is_put_in_one_run_is_read_to_strided_memory(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 90; turn++) {
        struct target target = target_make(turn % KIND_COUNT, length_choose(), turn % 2 == 0);
        uint32_t tier = all_tiers[turn / KIND_COUNT % 3];
        struct kvt_result result;
        uint64_t key = ++last_key;

        plain_put(key, target.plan.block_bytes, tier, 1);
        bring_to(key, tier);
        result = target_get(&target, key, turn % 4 == 0 ? KVT_GET_TRANSIENT : 0);
        assert_int_equal(result.status, KVT_OK);
        assert_int_equal(result.length, target.plan.block_bytes);
        if (tier == KVT_TIER_NVME)
            assert_int_equal(result.tier, KVT_TIER_NVME);
        assert_int_equal(target_get(&target, key, 0).status, KVT_OK);
        target_end(&target);
    }
}

static void
two_layouts_of_one_block_agree(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 60; turn++) {
        struct target source = target_make(rng_below(&rng, KIND_COUNT), length_choose(), true);
        struct target target =
            target_make(rng_below(&rng, KIND_COUNT), source.plan.block_bytes, turn % 2 == 0);
        uint32_t tier = source.kind == KIND_PLAIN ? KVT_TIER_HOST : all_tiers[turn % 3];
        uint64_t key = ++last_key;

        target_put(&source, key, tier, 1);
        bring_to(key, tier);
        assert_int_equal(target_get(&target, key, 0).status, KVT_OK);
        target_end(&source);
        target_end(&target);
    }
}

/* Of parts, from `tier`. */
static void
parts_check(const struct target *target, uint64_t key, uint32_t flags)
{
    uint64_t part_bytes = target->plan.block_bytes / PARTS;
    struct kvt_get get = get_of(target);
    struct kvt_result result;

    get.part_first = (uint16_t)rng_below(&rng, PARTS);
    get.part_count = (uint16_t)(1 + rng_below(&rng, PARTS - get.part_first));
    get.flags = flags;
    area_clean(target->kind);
    result = get_submit(&get, key);
    assert_int_equal(result.status, KVT_OK);
    assert_int_equal(result.length, get.part_count * part_bytes);
    target_check(target, key, get.part_first * part_bytes, get.part_count * part_bytes);
    get.part_first = PARTS;
    get.part_count = 1;
    area_clean(target->kind);
    result = get_submit(&get, key);
    assert_int_equal(result.status, KVT_E_INVAL);
    assert_int_equal(result.length, 0);
    target_check(target, key, 0, 0);
}

static void
parts_turns(uint32_t codec)
{
    const struct kvt_namespace_options options = {.struct_size = sizeof(options), .codec = codec};

    assert_int_equal(kvt_namespace_configure(hbm.store, hbm.ns, &options), KVT_OK);
    for (uint32_t turn = 0; turn < 45; turn++) {
        uint64_t length = length_choose() / PARTS * PARTS + PARTS;
        struct target source, target;
        uint32_t tier = all_tiers[turn / KIND_COUNT % 3];
        uint32_t flags = turn % 2 == 0 ? KVT_GET_TRANSIENT : 0;
        uint64_t key = ++last_key;

        if (length > KIT_BLOCK_BYTES_MAX)
            length = KIT_BLOCK_BYTES_MAX;
        source = target_make(KIND_PINNED, length, true);
        target = target_make(turn % KIND_COUNT, length, turn % 4 < 2);
        target_put(&source, key, tier, PARTS);
        bring_to(key, tier);
        parts_check(&target, key, flags);
        if (target.kind == KIND_DEVICE) /* It came to HOST for that. */
            bring_to(key, tier);
        assert_int_equal(target_get(&target, key, flags).status, KVT_OK);
        target_end(&source);
        target_end(&target);
    }
}

static void
parts_come_to_their_own_places(void **state)
{
    (void)state;
    parts_turns(KVT_CODEC_NONE);
}

static void
so_do_encoded_ones(void **state)
{
    (void)state;
    parts_turns(KVT_CODEC_BF16);
    assert_true(hbm_stats().codec_decode_bytes > 0);
}

/* Part after part, each is in its place when it is told. */
static void
by_part_check(const struct target *target, uint64_t key)
{
    uint64_t part_bytes = target->plan.block_bytes / PARTS;
    struct kvt_get get = get_of(target);
    struct kvt_result result;
    kvt_ticket *ticket;

    get.key = (struct kvt_key){.bytes = &key, .length = sizeof(key)};
    get.flags = KVT_GET_BY_PART;
    get.part_first = 1;
    get.part_count = PARTS - 1;
    area_clean(target->kind);
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, NULL, &ticket), KVT_OK);
    for (uint32_t part = 1; part < PARTS; part++) {
        const struct run_plan_range range = {target->slot, part * part_bytes, part_bytes};
        uint8_t wanted[KIT_BLOCK_BYTES_MAX], found[KIT_BLOCK_BYTES_MAX];

        assert_int_equal(kvt_ticket_part_wait(ticket, part, KVT_FOREVER), KVT_OK);
        if (target->kind == KIND_DEVICE)
            continue;
        block_fill(wanted, target->plan.block_bytes, key);
        run_plan_load(&target->plan, &range, areas[target->kind], found);
        assert_memory_equal(found, wanted + range.offset, part_bytes);
    }
    result = kit_result(ticket, 1);
    assert_int_equal(result.status, KVT_OK);
    assert_int_equal(result.length, (PARTS - 1) * part_bytes);
    target_check(target, key, part_bytes, (PARTS - 1) * part_bytes);
}

static void
parts_come_one_by_one(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 36; turn++) {
        uint64_t length = (1 + rng_below(&rng, KIT_BLOCK_BYTES_MAX / PARTS)) * PARTS;
        struct target target = target_make(turn % KIND_COUNT, length, turn % 4 < 2);
        uint32_t tier = all_tiers[turn / KIND_COUNT % 3];
        struct kvt_get get = get_of(&target);
        struct kvt_result result;

        plain_put(++last_key, length, tier, PARTS);
        bring_to(last_key, tier);
        by_part_check(&target, last_key);
        /* One that does not fit says how long it is, once. */
        plain_put(++last_key, length + PARTS > KIT_BLOCK_BYTES_MAX ? PARTS : length + PARTS,
            KVT_TIER_HOST, PARTS);
        get.flags = KVT_GET_BY_PART;
        get.part_count = PARTS;
        result = get_submit(&get, last_key);
        assert_int_equal(result.status, KVT_E_INVAL);
        assert_int_equal(
            result.length, length + PARTS > KIT_BLOCK_BYTES_MAX ? PARTS : length + PARTS);
        target_end(&target);
    }
}

static void
many_slots_in_one_batch(void **state)
{
    enum {
        MANY = 100,
        BYTES = 2000
    };
    struct run_plan plan = {.slot_count = MANY, .block_bytes = 2 * BYTES, .run_count = 1};
    struct kvt_put puts[MANY] = {{.length = 0}};
    struct kvt_get gets[MANY] = {{.capacity = 0}};
    uint64_t keys[MANY];
    uint8_t bytes[2 * BYTES], *area = malloc(AREA_BYTES);
    kvt_layout layout;
    kvt_ticket *ticket;

    (void)state;
    assert_non_null(area);
    plan.runs[0] = (struct kvt_run){
        .piece_count = 2, .piece_bytes = BYTES, .slot_stride = BYTES, .piece_stride = MANY * BYTES};
    plan.area_bytes = 2 * MANY * BYTES;
    run_plan_place(&plan, areas[KIND_DEVICE], regions[KIND_DEVICE]);
    assert_int_equal(run_plan_register(&plan, hbm.store, &layout), KVT_OK);
    memset(area, FILLER, AREA_BYTES);
    for (uint32_t i = 0; i < MANY; i++) {
        keys[i] = i;
        block_fill(bytes, sizeof(bytes), i);
        run_plan_store(&plan, &(struct run_plan_range){i, 0, sizeof(bytes)}, area, bytes);
        puts[i].key = gets[i].key = (struct kvt_key){.bytes = &keys[i], .length = sizeof(keys[i])};
        puts[i].length = sizeof(bytes);
        puts[i].layout = gets[i].layout = layout;
        puts[i].slot = i;
        puts[i].tier = i % 2 == 0 ? KVT_TIER_HBM : KVT_TIER_HOST;
        gets[i].slot = (i + 37) % MANY;
    }
    area_write(KIND_DEVICE, area);
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, puts, MANY, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    area_clean(KIND_DEVICE);
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, gets, MANY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    area_read(KIND_DEVICE, area);
    for (uint32_t i = 0; i < MANY; i++) {
        uint8_t found[sizeof(bytes)];

        run_plan_load(
            &plan, &(struct run_plan_range){(i + 37) % MANY, 0, sizeof(bytes)}, area, found);
        block_fill(bytes, sizeof(bytes), i);
        assert_memory_equal(found, bytes, sizeof(bytes));
    }
    assert_int_equal(kvt_layout_unregister(hbm.store, layout), KVT_OK);
    free(area);
}

/* --- What is not written ---------------------------------------------------------------------- */

static void
a_block_of_another_length_is_refused_with_its_own(void **state)
{
    struct target target = target_make(KIND_PLAIN, 9000, true);
    struct kvt_get get = get_of(&target);
    struct kvt_result result;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t length = i == 0 ? 8996 : 9004;

        plain_put(++last_key, length, KVT_TIER_NVME, PARTS);
        for (uint32_t turn = 0; turn < 4; turn++) {
            if (turn == 2)
                bring_to(last_key, KVT_TIER_NVME);
            get.part_count = turn % 2;
            area_clean(KIND_PLAIN);
            result = get_submit(&get, last_key);
            assert_int_equal(result.status, KVT_E_INVAL);
            assert_int_equal(result.length, length);
            target_check(&target, last_key, 0, 0);
        }
    }
    target_end(&target);
}

/* One bit of every block that is on NVMe. */
static void
blocks_damage(void)
{
    struct kvt_scan_entry entries[16];
    uint64_t cursor = 0;
    uint32_t count = 0;

    assert_int_equal(kvt_scan(hbm.store, &cursor, entries, 16, &count), KVT_OK);
    for (uint32_t i = 0; i < count; i++) {
        char path[KIT_PATH_BYTES + 64];
        off_t place = (off_t)(((uint64_t)entries[i].segment * 256 + entries[i].page) * 4096 + 100);
        uint8_t byte;
        int file;

        assert_true((entries[i].tiers & KVT_TIER_NVME) != 0);
        snprintf(path, sizeof(path), "%s/data/data.00", hbm.path);
        file = open(path, O_RDWR);
        assert_true(file >= 0);
        assert_int_equal(pread(file, &byte, 1, place), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(file, &byte, 1, place), 1);
        assert_int_equal(close(file), 0);
    }
}

static void
a_damaged_block_is_a_miss_and_writes_nothing(void **state)
{
    const uint32_t codecs[] = {KVT_CODEC_NONE, KVT_CODEC_BF16};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const struct kvt_namespace_options options = {
            .struct_size = sizeof(options), .codec = codecs[i % 2]};
        struct target target = target_make(i / 2 == 0 ? KIND_PLAIN : KIND_DEVICE, 20000, true);

        assert_int_equal(kvt_namespace_configure(hbm.store, hbm.ns, &options), KVT_OK);
        plain_put(++last_key, 20000, KVT_TIER_NVME, PARTS);
        bring_to(last_key, KVT_TIER_NVME);
        blocks_damage();
        assert_int_equal(target_get(&target, last_key, KVT_GET_TRANSIENT).status, KVT_MISS);
        target_end(&target);
    }
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_put_from_strided_memory_is_read_in_one_run),
        TEST(what_is_put_in_one_run_is_read_to_strided_memory),
        TEST(two_layouts_of_one_block_agree),
        TEST(parts_come_to_their_own_places),
        TEST(so_do_encoded_ones),
        TEST(parts_come_one_by_one),
        TEST(many_slots_in_one_batch),
        TEST(a_block_of_another_length_is_refused_with_its_own),
        TEST(a_damaged_block_is_a_miss_and_writes_nothing),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
