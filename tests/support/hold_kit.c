/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold_kit.c - streams that wait for gets from NVMe (hold_kit.h).
 */
#include "hold_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "store_internal.h"

struct hold_bench bench;

static _Alignas(4096) uint8_t pinned_page[4096];

static void
early_note(void *context, int level, const char *module, const char *line)
{
    (void)context;
    (void)level;
    (void)module;
    bench.early_count += strstr(line, "in_flight") != NULL;
}

static void
block_put(kvt_store *store, kvt_namespace ns, uint64_t number)
{
    uint8_t bytes[HOLD_BLOCK_BYTES];
    struct payload_key name;
    struct kvt_put put = {.source = bytes, .length = HOLD_BLOCK_BYTES, .part_count = HOLD_PARTS};
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    payload_fill(bytes, sizeof(bytes), number, 1);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 2, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

void
hold_block_demote(uint64_t number)
{
    struct payload_key name;
    struct kvt_result result;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    assert_int_equal(
        kvt_demote_submit(bench.sim.store, bench.ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket),
        KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, 1, &result, 1), KVT_OK);
    assert_int_equal(result.status, KVT_OK);
    kvt_ticket_free(ticket);
}

/* What an aborted program would do at its end: then nobody uses the memory any more. */
static void
close_watched(struct device *device)
{
    if (bench.pool != NULL)
        device_host_ops.slab_put(device, bench.pool, HOLD_POOL_BYTES);
    bench.pool = NULL;
    device_host_ops.close(device);
}

static enum kvt_status
open_watched(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = device_host_ops.open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        (*device_out)->ops = &bench.ops;
    return status;
}

int
hold_setup(void **state)
{
    struct kvt_region_options about = {.struct_size = sizeof(about), .tier = KVT_TIER_HBM};
    struct kvt_options options = kit_options();
    void *pool;

    (void)state;
    memset(&bench, 0, sizeof(bench));
    options.nvme_capacity_bytes = 32 << 20;
    options.hbm_capacity_bytes = 2 << 20;
    options.log = early_note;
    sim_store_open(&bench.sim, &options);
    assert_int_equal(kvt_close(bench.sim.store), KVT_OK);
    bench.ops = device_host_ops;
    bench.ops.open = open_watched;
    bench.ops.close = close_watched;
    bench.sim.env.device = &bench.ops;
    sim_store_reopen(&bench.sim);
    assert_int_equal(kvt_namespace_open(bench.sim.store, "holds", "", 0, &bench.ns), KVT_OK);
    assert_int_equal(kvt_device_alloc(bench.sim.store, 0, HOLD_POOL_BYTES, &pool), KVT_OK);
    about.address = bench.pool = pool;
    about.size = HOLD_POOL_BYTES;
    assert_int_equal(kvt_region_register(bench.sim.store, &about, &bench.region), KVT_OK);
    about.tier = KVT_TIER_HOST;
    about.address = pinned_page;
    about.size = sizeof(pinned_page);
    assert_int_equal(kvt_region_register(bench.sim.store, &about, &bench.pinned), KVT_OK);
    bench.gate = (_Atomic uint32_t *)(void *)pinned_page;
    atomic_store(bench.gate, 0);
    bench.device = sim_store_device(bench.sim.store);
    assert_int_equal(device_host_stream_create(bench.device, &bench.stream), KVT_OK);
    assert_int_equal(device_host_stream_create(bench.device, &bench.other), KVT_OK);
    assert_int_equal(bench.device->ops->event_create(bench.device, &bench.event), KVT_OK);
    for (uint64_t i = 0; i < HOLD_COUNT; i++) {
        block_put(bench.sim.store, bench.ns, i);
        hold_block_demote(i);
    }
    return 0;
}

void
hold_clear(void)
{
    bench.device->ops->event_destroy(bench.device, bench.event);
    device_host_stream_destroy(bench.device, bench.other);
    device_host_stream_destroy(bench.device, bench.stream);
    assert_int_equal(kvt_region_unregister(bench.sim.store, bench.pinned), KVT_OK);
    assert_int_equal(kvt_region_unregister(bench.sim.store, bench.region), KVT_OK);
}

void
hold_forget_aborted(void)
{
    sim_world_destroy(bench.sim.world);
    bench.sim.store = NULL;
    assert_int_equal(bench.early_count, 0);
}

void
hold_forget(void)
{
    char leaks[256];

    if (sim_leaks(bench.sim.world, leaks, sizeof(leaks)) != 0)
        fail_msg("left behind: %s", leaks);
    hold_forget_aborted();
}

int
hold_teardown(void **state)
{
    (void)state;
    if (bench.sim.store == NULL || bench.is_stuck)
        return 0;
    hold_clear();
    assert_int_equal(kvt_close(bench.sim.store), KVT_OK);
    hold_forget();
    return 0;
}

void
kernel_look(void *context, void *memory)
{
    struct look *look = context;

    look->seen = *look->status;
    memcpy(look->bytes, memory, HOLD_BLOCK_BYTES);
    look->run_count++;
}

static uint8_t *
pool_at(uint32_t i)
{
    return (uint8_t *)((uintptr_t)bench.pool + (uintptr_t)i * HOLD_BLOCK_BYTES);
}

void
batch_init(struct batch *self, uint32_t place, uint32_t flags)
{
    memset(self, 0, sizeof(*self));
    for (uint32_t i = 0; i < HOLD_COUNT; i++) {
        payload_key_make(&self->names[i], i);
        self->gets[i] = (struct kvt_get){.key = self->names[i].key,
            .destination = pool_at(place + i),
            .capacity = HOLD_BLOCK_BYTES,
            .flags = flags,
            .region = bench.region,
            .part_count = (flags & KVT_GET_BY_PART) != 0 ? HOLD_PARTS : 0};
    }
}

void
batch_submit(struct batch *self, const struct kvt_submit *submit)
{
    assert_int_equal(
        kvt_get_submit(bench.sim.store, bench.ns, self->gets, HOLD_COUNT, submit, &self->ticket),
        KVT_OK);
}

void
batch_hold(struct batch *self, void *stream, uint64_t deadline_ns)
{
    assert_int_equal(kvt_hold_submit(self->ticket, 0, stream, deadline_ns, &self->hold), KVT_OK);
    for (uint32_t i = 0; i < HOLD_COUNT; i++) {
        self->looks[i].status = kvt_hold_statuses(self->hold) + i;
        assert_int_equal(device_host_launch(bench.device, stream, kernel_look, &self->looks[i],
                             self->gets[i].destination),
            KVT_OK);
    }
}

void
looks_check(const struct batch *self, uint32_t first, uint32_t end, enum kvt_status status)
{
    for (uint32_t i = first; i < end; i++) {
        uint64_t version;

        assert_int_equal(self->looks[i].run_count, 1);
        assert_int_equal(self->looks[i].seen, status);
        if (status == KVT_OK)
            assert_true(payload_is_right(self->looks[i].bytes, HOLD_BLOCK_BYTES, i, &version));
    }
}

void
looks_check_none(const struct batch *self)
{
    for (uint32_t i = 0; i < HOLD_COUNT; i++)
        assert_int_equal(self->looks[i].run_count, 0);
}

void
batch_end(struct batch *self)
{
    assert_int_equal(kvt_hold_free(self->hold), KVT_OK);
    kvt_ticket_free(self->ticket);
}

static bool
have_run(void *context)
{
    const struct batch *self = context;

    return self->looks[HOLD_COUNT - 1].run_count > 0;
}

void
batch_run(struct batch *self)
{
    uint64_t until_ns = sim_now(bench.sim.world) + UINT64_C(10000) * MS;

    bench.is_stuck = sim_run(bench.sim.world, have_run, self, until_ns) != SIM_DONE;
    assert_false(bench.is_stuck);
}

struct kvt_submit
behind_the_gate(void)
{
    const struct kvt_device_ops *ops = bench.device->ops;

    assert_int_equal(ops->stream_wait_word(bench.device, bench.other, bench.gate, 1), KVT_OK);
    assert_int_equal(ops->event_record(bench.device, bench.event, bench.other), KVT_OK);
    return (struct kvt_submit){.wait_event = bench.event};
}

void
reads_stall(void)
{
    const struct sim_rule rule = {.ops = SIM_READ,
        .effect = SIM_STALL,
        .nth = 1,
        .sticky = true,
        .stall_ns = UINT64_C(1000) * MS};

    sim_rule_add(bench.sim.world, &rule);
}

kvt_ticket *
many_submit(kvt_store *store, kvt_namespace ns, uint32_t count)
{
    static uint8_t targets[KVT_BATCH_MAX];
    struct kvt_get *gets = calloc(count, sizeof(*gets));
    struct payload_key name;
    kvt_ticket *ticket;

    assert_non_null(gets);
    payload_key_make(&name, HOLD_ABSENT);
    for (uint32_t i = 0; i < count; i++)
        gets[i] = (struct kvt_get){.key = name.key, .destination = &targets[i], .capacity = 1};
    assert_int_equal(kvt_get_submit(store, ns, gets, count, NULL, &ticket), KVT_OK);
    free(gets);
    return ticket;
}
