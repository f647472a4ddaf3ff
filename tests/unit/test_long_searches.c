/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_long_searches.c - room is sought among more blocks that cannot go than one turn of the loop
 * looks at: the search comes to its end all the same, whoever wants the room. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/hints.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtier/loading.h"
#include "load_rig.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    SMALL_BYTES = 4096,
    PAIR_BYTES = 8192,
    LEASED_EACH = 8,
    IN_HOST = 3584,       /* Four turns of the loop; ... */
    IN_HOST_WIDE = 16384, /* ... sixteen. */
    LARGE_BYTES = 1 << 20,
    HBM_BYTES = 4 << 20, /* Fewer large blocks than a search in HOST takes turns. */
    IN_HBM = HBM_BYTES / SMALL_BYTES,
    IN_HBM_WIDE = 8192,
    LARGE_FIRST = 1000000,
    LARGE_PUTS = 16,
    FEW = 8,
    MANY = 64, /* Who want room. */
    LOOKS_MAX = 3 * 1024,
    IN_MAP = 16384,   /* Sixteen turns of the loop. */
    STEPS_MAX = 2000, /* Of all actors, for one search. */
    STEPS_HBM = 20000,
    STEPS_AT_REST = 500, /* While large_put_ns pass; else it is some thousand. */
};

static const uint64_t large_put_ns = UINT64_C(5) * 1000 * 1000; /* Ample. */
static const uint64_t second_ns = UINT64_C(1000) * 1000 * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;

static struct kvt_options
bounded(uint64_t in_host, uint64_t in_map, uint64_t hbm_bytes)
{
    struct kvt_options options = kit_options();

    options.entry_count_max = in_map;
    options.host_capacity_bytes = in_host * SMALL_BYTES;
    options.pin_bytes_max = options.host_capacity_bytes;
    options.hbm_capacity_bytes = hbm_bytes;
    options.segment_bytes = 4 * LARGE_BYTES;
    options.block_bytes_max = LARGE_BYTES;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.policy = KVT_POLICY_GHI; /* It has one walk a place. */
    return options;
}

static void
open_so(const struct kvt_options *options)
{
    sim_store_open(&sim, options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
}

static void
open_bounded(uint64_t in_host, uint64_t in_map, uint64_t hbm_bytes)
{
    struct kvt_options options = bounded(in_host, in_map, hbm_bytes);

    open_so(&options);
}

static void
open_with(uint64_t in_host)
{
    open_bounded(in_host, kit_options().entry_count_max, HBM_BYTES);
}

static int
setup(void **state)
{
    (void)state;
    open_with(IN_HOST);
    return 0;
}

static int
setup_wide(void **state)
{
    (void)state;
    open_with(IN_HOST_WIDE);
    return 0;
}

static int
setup_wide_hbm(void **state)
{
    (void)state;
    open_bounded(
        IN_HOST, kit_options().entry_count_max, (uint64_t)IN_HBM_WIDE * SMALL_BYTES * 5 / 4);
    return 0;
}

/* More entries than one look for what HBM keeps in HOST takes in. */
static int
setup_wide_both(void **state)
{
    (void)state;
    open_bounded(IN_HOST_WIDE, 2 * IN_HOST_WIDE, (uint64_t)IN_HBM_WIDE * SMALL_BYTES);
    store->options.pin_bytes_max += store->options.hbm_capacity_bytes; /* As leases would. */
    return 0;
}

/* What goes first is the oldest, also when it has been looked at. */
static int
setup_wide_nvme(void **state)
{
    struct kvt_options options = bounded(IN_HOST_WIDE, kit_options().entry_count_max, HBM_BYTES);

    (void)state;
    options.nvme_capacity_bytes = (uint64_t)64 * LARGE_BYTES;
    options.policy = KVT_POLICY_LRU;
    open_so(&options);
    store->options.host_high_percent = 101; /* No share of HOST is kept free. */
    return 0;
}

/* The map is full before HOST is. */
static int
setup_map(void **state)
{
    (void)state;
    open_bounded(2 * IN_MAP, IN_MAP, HBM_BYTES);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kvt_abort(store); /* It ends, too, where the test has found that something does not. */
    sim_world_destroy(sim.world);
    return 0;
}

/* HOST is full of blocks that are pinned. */
static void
host_fill(uint64_t in_host)
{
    enum kvt_status status = KVT_OK;
    uint64_t number = 0;

    for (; status == KVT_OK; number++) {
        struct payload_key name;

        payload_key_make(&name, number);
        status = kit_put(store, ns, number, 1, SMALL_BYTES, KVT_MEMORY);
        if (status == KVT_OK)
            assert_int_equal(kvt_pin(store, ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    }
    assert_int_equal(status, KVT_E_NOSPC);
    assert_in_range(number, in_host - in_host / 8, in_host + 1);
}

/* --- How many victims a turn of the loop looks at --------------------------------------------- */

static const struct policy_ops *policy_ops;
static struct policy_ops counting_ops;
static uint64_t look_turn;
static uint32_t look_count, look_count_max; /* Of that turn; of any. */

static uint32_t
victim_counted(struct policy *policy, enum policy_place place, uint32_t cursor)
{
    look_count = look_turn == store->turn ? look_count + 1 : 1;
    look_turn = store->turn;
    if (look_count_max < look_count)
        look_count_max = look_count;
    return policy_ops->victim(policy, place, cursor);
}

static void
looks_count(void)
{
    policy_ops = store->policy->ops;
    counting_ops = *policy_ops;
    counting_ops.victim = victim_counted;
    store->policy->ops = &counting_ops;
    look_turn = look_count = look_count_max = 0;
}

/* --- 1. A search that nobody waits for in a list ---------------------------------------------- */

/* A call of the loop that takes room in HOST, as those of loads and of copies for tools do. */
struct taking {
    struct loop_call call;
    uint64_t pause_ns; /* Between two turns of the search. */
    enum kvt_status status;
    bool is_over;
};

static bool
taking_run(struct kvt_store *of, void *context)
{
    struct taking *taking = context;
    struct slot slot;

    taking->status =
        room_take(of, &(struct room_want){.place = POLICY_HOST, .size = SMALL_BYTES}, &slot);
    of->room_hands[POLICY_HOST].looked_ns -= taking->pause_ns;
    taking->is_over = taking->status != KVT_NOT_READY;
    return taking->is_over;
}

static void
taking_deliver(struct kvt_store *of, struct message *message)
{
    struct taking *taking = CONTAINER_OF(message, struct taking, call.message);

    taking->call.next = of->calls;
    of->calls = &taking->call;
}

static void
taking_check(uint64_t pause_ns)
{
    static struct taking taking;

    taking = (struct taking){.pause_ns = pause_ns};
    taking.call.run = taking_run;
    taking.call.context = &taking;
    taking.call.message.deliver = taking_deliver;
    loop_send(store, &taking.call.message);
    sim_run_steps(sim.world, STEPS_MAX);
    assert_true(taking.is_over);
    assert_int_equal(taking.status, KVT_E_NOSPC);
}

/* More of HOST is used than shall be: a share would be kept free if anything could go. */
static void
keeping_a_share_free_does_not_end_a_search(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, 4096);
    kvt_load load;

    (void)state;
    host_fill(IN_HOST);
    taking_check(0);
    load_rig_file(&sim, "weights", LOAD_RIG_FILE_BYTES);
    refused(kvt_file_load(store, "/weights", &options, &load), KVT_E_NOSPC, "HOST");
}

static void
a_search_may_take_longer_than_a_second(void **state)
{
    (void)state;
    host_fill(IN_HOST);
    taking_check(second_ns * 6 / 10);
}

/* --- 2. A search within a search -------------------------------------------------------------- */

static kvt_ticket *
large_submit(uint64_t number, kvt_region region, const void *source)
{
    struct kvt_put put = {
        .source = source, .length = LARGE_BYTES, .region = region, .tier = KVT_TIER_HBM};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, LARGE_FIRST + number);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    return ticket;
}

/* False: it was refused, or there is no answer yet. */
static bool
large_put(uint64_t number, kvt_region region, const void *source)
{
    kvt_ticket *ticket = large_submit(number, region, source);

    sim_store_pass(&sim, large_put_ns);
    return kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0) == KVT_OK &&
           kit_result(ticket, KVT_STAGE_DONE).status == KVT_OK;
}

/* More of HBM is used than shall be: while something is in flight, nothing is dropped for that, and
 * the loop has its rest. */
static void
rest_check(kvt_region region, const void *source)
{
    kvt_ticket *ticket = large_submit(LARGE_PUTS, region, source);
    uint64_t step_count;
    uint8_t turn;

    for (uint32_t i = 0; i < STEPS_MAX && store->fills_in_flight == 0; i++)
        sim_run_steps(sim.world, 1);
    assert_int_equal(store->fills_in_flight, 1);
    turn = work_begin(store, &store->fills_in_flight);
    step_count = sim_step_count(sim.world);
    sim_store_pass(&sim, large_put_ns);
    work_end(store, &store->fills_in_flight, turn);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_in_range(sim_step_count(sim.world) - step_count, 0, STEPS_AT_REST);
}

/* Each block that leaves HBM would go to HOST. When the search there has ended, and has found
 * nothing for it, it is dropped. */
static void
a_put_in_hbm_waits_for_the_search_in_host(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = LARGE_BYTES};
    uint32_t refused_count = 0;
    kvt_region region;

    (void)state;
    host_fill(IN_HOST_WIDE);
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &region), KVT_OK);
    for (uint64_t i = 0; refused_count == 0 && i < LARGE_PUTS; i++)
        refused_count += !large_put(i, region, about.address);
    assert_int_equal(refused_count, 0);
    rest_check(region, about.address);
    assert_int_equal(kvt_region_unregister(store, region), KVT_OK);
    kvt_device_free(store, 0, about.address, about.size);
}

/* --- 3. Many who search ----------------------------------------------------------------------- */

/* While something is in flight all wait; when that is over they are refused, or not. */
static void
all_wait(kvt_ticket *const tickets[], uint32_t count, enum kvt_status status)
{
    uint8_t turn = work_begin(store, &store->fills_in_flight);
    uint32_t late_count = 0;

    looks_count();
    sim_store_pass(&sim, large_put_ns);
    for (uint32_t i = 0; i < count; i++)
        late_count += kvt_ticket_wait(tickets[i], KVT_STAGE_DONE, 0) == KVT_LATE;
    work_end(store, &store->fills_in_flight, turn);
    store->room_changed = true;
    env_wake(&store->env, store->loop_task);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status, status);
    assert_int_equal(late_count, count);
    assert_in_range(look_count_max, 1, LOOKS_MAX);
}

static kvt_ticket *
small_submit(uint64_t number, const struct kvt_put *how)
{
    struct kvt_put put = *how;
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, LARGE_FIRST + number);
    put.key = name.key;
    put.length = SMALL_BYTES;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
many_who_find_no_room_search_once(void **state)
{
    static const uint8_t bytes[SMALL_BYTES];
    kvt_ticket *tickets[MANY];

    (void)state;
    host_fill(IN_HOST);
    for (uint64_t i = 0; i < MANY; i++)
        tickets[i] = small_submit(i, &(struct kvt_put){.source = bytes});
    all_wait(tickets, MANY, KVT_E_NOSPC);
}

/* HBM has blocks, and none of them keeps one in HOST: that is looked at once for all. */
static void
chains_in_hbm_are_not_climbed_for_each_who_is_refused(void **state)
{
    static const uint8_t bytes[SMALL_BYTES];
    const struct kvt_put host_put = {.source = bytes};
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = SMALL_BYTES};
    struct kvt_put put = {.tier = KVT_TIER_HBM};
    kvt_ticket *tickets[MANY];

    (void)state;
    host_fill(IN_HOST);
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &put.region), KVT_OK);
    put.source = about.address;
    for (uint64_t number = MANY; number < MANY + IN_HBM_WIDE; number++)
        assert_int_equal(kit_result(small_submit(number, &put), KVT_STAGE_DONE).status, KVT_OK);
    looks_count();
    for (uint32_t i = 0; i < MANY; i++)
        tickets[i] = small_submit(i, &host_put);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status, KVT_E_NOSPC);
    assert_in_range(look_count_max, 1, LOOKS_MAX);
    /* The round of the first one is that of all: a second one would have gone on from there. */
    assert_true(store->kept_hand.vain_until_ns > store->now_ns);
    assert_int_equal(kvt_region_unregister(store, put.region), KVT_OK);
    kvt_device_free(store, 0, about.address, about.size);
}

/* HBM is above its mark, which begins the policy's walk there in each turn: nothing of it can go.
 */
static void
host_has_its_answer_while_hbm_is_too_full(void **state)
{
    static const uint8_t bytes[SMALL_BYTES];
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = SMALL_BYTES};
    struct kvt_put put = {.tier = KVT_TIER_HBM};
    enum kvt_status status = KVT_OK;
    uint32_t in_two = 0;
    kvt_ticket *ticket;

    (void)state;
    host_fill(IN_HOST_WIDE);
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &put.region), KVT_OK);
    put.source = about.address;
    for (uint64_t number = 1; status == KVT_OK; number++) {
        struct payload_key name;

        payload_key_make(&name, LARGE_FIRST + number);
        status = kit_result(small_submit(number, &put), KVT_STAGE_DONE).status;
        if (status == KVT_OK)
            assert_int_equal(kvt_pin(store, ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    }
    assert_int_equal(status, KVT_E_NOSPC);
    ticket = small_submit(0, &(struct kvt_put){.source = bytes});
    for (uint32_t i = 0; i < STEPS_HBM && kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0) == KVT_LATE;
         i++) {
        sim_run_steps(sim.world, 1);
        in_two += store->kept_hand.vain_count > 0;
    }
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_E_NOSPC);
    assert_true(in_two > 0);
    assert_int_equal(kvt_region_unregister(store, put.region), KVT_OK);
    kvt_device_free(store, 0, about.address, about.size);
}

/* However many come in each turn of the loop, the oldest one searches, and has its answer. */
static void
oldest_check(void)
{
    static const uint8_t bytes[SMALL_BYTES];
    const struct kvt_put put = {.source = bytes};
    kvt_ticket *tickets[MANY];
    uint32_t count = 1;

    tickets[0] = small_submit(0, &put);
    sim_store_loop(&sim);
    for (; count < MANY && kvt_ticket_wait(tickets[0], KVT_STAGE_DONE, 0) == KVT_LATE; count++) {
        tickets[count] = small_submit(count, &put);
        sim_store_loop(&sim);
    }
    assert_in_range(count, 1, MANY - 1);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status, KVT_E_NOSPC);
}

static void
the_oldest_has_its_answer_while_others_come(void **state)
{
    (void)state;
    host_fill(IN_HOST);
    oldest_check();
}

static void
the_oldest_has_its_answer_while_others_come_to_a_full_map(void **state)
{
    (void)state;
    host_fill(IN_MAP);
    oldest_check();
}

/* The hand goes round once for all of them, in as many turns as for one. */
static void
many_who_find_no_room_in_the_map_look_once(void **state)
{
    static const uint8_t bytes[SMALL_BYTES];
    const struct map_hand *hand = &namespace_at(store, ns.id)->map_hand;
    kvt_ticket *tickets[FEW];
    uint64_t turn;

    (void)state;
    host_fill(IN_MAP);
    assert_int_equal(hand->vain_count, 0);
    turn = store->turn;
    for (uint64_t i = 0; i < FEW; i++)
        tickets[i] = small_submit(i, &(struct kvt_put){.source = bytes});
    sim_store_loop(&sim);
    assert_int_equal(store->turn, turn + 1); /* All have come in it. */
    assert_in_range(hand->vain_count, 1, LOOKS_MAX);
    for (uint32_t i = 0; i < FEW; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status, KVT_E_NOSPC);
}

/* In a line that was looked at, and grew again. */
static void
who_waits_behind_a_cancelled_one_has_an_answer(void **state)
{
    static const uint8_t bytes[SMALL_BYTES];
    const struct kvt_put put = {.source = bytes};
    kvt_ticket *tickets[FEW];
    uint8_t turn;

    (void)state;
    host_fill(IN_HOST);
    turn = work_begin(store, &store->fills_in_flight);
    for (uint32_t i = 0; i < FEW; i++) {
        tickets[i] = small_submit(i, &put);
        store->room_changed = true;
        sim_store_loop(&sim);
    }
    assert_int_equal(kvt_ticket_cancel(tickets[FEW / 2]), KVT_OK);
    sim_store_loop(&sim);
    work_end(store, &store->fills_in_flight, turn);
    for (uint32_t i = 0; i < FEW; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status,
            i == FEW / 2 ? KVT_CANCELLED : KVT_E_NOSPC);
}

/* HBM is full of blocks that are nowhere else: each of them would go to HOST. */
static void
a_search_in_hbm_asks_host_once(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = LARGE_BYTES};
    struct kvt_put put = {.tier = KVT_TIER_HBM};
    kvt_ticket *ticket;

    (void)state;
    host_fill(IN_HOST);
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &put.region), KVT_OK);
    put.source = about.address;
    for (uint64_t number = 1; number < IN_HBM; number++)
        assert_int_equal(kit_result(small_submit(number, &put), KVT_STAGE_DONE).status, KVT_OK);
    ticket = large_submit(0, put.region, about.address);
    all_wait(&ticket, 1, KVT_OK);
    assert_int_equal(kvt_region_unregister(store, put.region), KVT_OK);
    kvt_device_free(store, 0, about.address, about.size);
}

/* Nor when that lets go what makes no room: each superblock keeps some blocks that are leased, so
 * that they cannot be brought together. They are more than one turn of the loop looks at: the
 * search in HOST does not end in it. */
static void
a_search_in_hbm_asks_host_once_although_something_goes(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = PAIR_BYTES};
    struct kvt_put put = {.tier = KVT_TIER_HBM, .length = PAIR_BYTES};
    kvt_lease leases[IN_HOST_WIDE / LEASED_EACH];
    uint32_t lease_count = 0;
    kvt_ticket *ticket;

    (void)state;
    store->options.host_high_percent = 101; /* No share of HOST is kept free. */
    for (uint64_t number = 0; slab_has_room(store->slab, SMALL_BYTES); number++) {
        struct payload_key name;

        payload_key_make(&name, number);
        assert_int_equal(kit_put(store, ns, number, 1, SMALL_BYTES, KVT_MEMORY), KVT_OK);
        if (number % LEASED_EACH > 0)
            continue;
        assert_true(lease_count < IN_HOST_WIDE / LEASED_EACH);
        assert_int_equal(
            kvt_lookup(store, ns, &name.key, 1, NULL, NULL, &leases[lease_count++]), KVT_OK);
    }
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &put.region), KVT_OK);
    put.source = about.address;
    looks_count();
    for (uint64_t number = 0; number <= HBM_BYTES / PAIR_BYTES; number++) {
        struct payload_key name;

        payload_key_make(&name, LARGE_FIRST + number);
        put.key = name.key;
        assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    }
    assert_true(kit_stats(store).host_drop_count > LOOKS_MAX);
    assert_in_range(look_count_max, 1, LOOKS_MAX);
    while (lease_count > 0)
        kvt_lease_release(store, leases[--lease_count]);
    assert_int_equal(kvt_region_unregister(store, put.region), KVT_OK);
    kvt_device_free(store, 0, about.address, about.size);
}

/* Meanwhile the search rests. */
static bool
flights_end(void *context)
{
    (void)context;
    store->room_changed = false;
    return turns_are_idle(&store->flights);
}

/* One block of HOST is not pinned, and is on NVMe before the walk that began to write it ends: its
 * slot is there for a block of HBM, in the next walk. */
static void
what_host_has_written_during_a_walk_makes_room_in_hbm(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = SMALL_BYTES};
    const struct room_hand *hand = &store->room_hands[POLICY_HOST];
    struct kvt_put put = {.tier = KVT_TIER_HBM};
    struct payload_key name;
    kvt_ticket *ticket;
    uint64_t number = 1;

    (void)state;
    host_fill(IN_HOST_WIDE);
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &put.region), KVT_OK);
    put.source = about.address;
    /* Until then no share of HBM is kept free. */
    for (; slab_has_room(place_slab(store, POLICY_HBM), SMALL_BYTES); number++) {
        assert_int_equal(kit_result(small_submit(number, &put), KVT_STAGE_DONE).status, KVT_OK);
        residency_pin(store->map, kit_entry(store, ns, LARGE_FIRST + number));
    }
    payload_key_make(&name, 0);
    assert_int_equal(kvt_pin(store, ns, &name.key, 1, 0), KVT_OK);
    ticket = small_submit(0, &put);
    while (--number > 0)
        entry_unpin(store, kit_entry(store, ns, LARGE_FIRST + number));
    for (uint32_t i = 0; i < STEPS_MAX && turns_are_idle(&store->flights); i++)
        sim_run_steps(sim.world, 1);
    assert_false(turns_are_idle(&store->flights));
    commit_hurry_all(store);
    env_wake(&store->env, store->loop_task);
    store->room_changed = false;
    assert_int_equal(sim_run(sim.world, flights_end, NULL, UINT64_MAX), SIM_DONE);
    assert_true(hand->entry != ENTRY_NONE);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0), KVT_LATE);
    store->room_changed = true;
    env_wake(&store->env, store->loop_task);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kvt_region_unregister(store, put.region), KVT_OK);
    kvt_device_free(store, 0, about.address, about.size);
}

int
main(void)
{
#define TEST(name, setup) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(keeping_a_share_free_does_not_end_a_search, setup),
        TEST(a_search_may_take_longer_than_a_second, setup),
        TEST(a_put_in_hbm_waits_for_the_search_in_host, setup_wide),
        TEST(many_who_find_no_room_search_once, setup),
        TEST(chains_in_hbm_are_not_climbed_for_each_who_is_refused, setup_wide_hbm),
        TEST(host_has_its_answer_while_hbm_is_too_full, setup_wide_both),
        TEST(the_oldest_has_its_answer_while_others_come, setup),
        TEST(the_oldest_has_its_answer_while_others_come_to_a_full_map, setup_map),
        TEST(many_who_find_no_room_in_the_map_look_once, setup_map),
        TEST(who_waits_behind_a_cancelled_one_has_an_answer, setup),
        TEST(a_search_in_hbm_asks_host_once, setup),
        TEST(a_search_in_hbm_asks_host_once_although_something_goes, setup_wide),
        TEST(what_host_has_written_during_a_walk_makes_room_in_hbm, setup_wide_nvme),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
