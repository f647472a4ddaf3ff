/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_kit.c - an NVME tier over an io engine that fails as scripted (nvme_kit.h).
 */
#include "nvme_kit.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HOUR_NS (3600ull * 1000 * 1000 * 1000) /* Since the machine started, when a test begins. */

struct nvme_kit nvme_kit;

static uint64_t
clock_now(void *context)
{
    (void)context;
    return atomic_load_explicit(&nvme_kit.now_ns, memory_order_relaxed);
}

void
nvme_kit_open(uint32_t root_count)
{
    nvme_kit.script = io_puppet_create();
    rig_init(&nvme_kit.rig, TIER_KIND_NVME_OTHER, root_count, NVME_KIT_SEGMENTS);
    nvme_kit.rig.env.io = &io_puppet_ops;
    nvme_kit.rig.env.io_context = nvme_kit.script;
    atomic_store(&nvme_kit.now_ns, HOUR_NS);
    nvme_kit.clock = *nvme_kit.rig.env.clock;
    nvme_kit.clock.now_ns = clock_now;
    nvme_kit.rig.env.clock = &nvme_kit.clock;
    nvme_kit.rig.options.reserve_count = 1;
    assert_int_equal(rig_open(&nvme_kit.rig), KVT_OK);
}

void
nvme_kit_close(void)
{
    rig_deinit(&nvme_kit.rig);
    io_puppet_destroy(nvme_kit.script);
}

void
nvme_kit_batch(struct rig_batch *batch, uint32_t block_count, uint64_t seed)
{
    rig_batch_init(&nvme_kit.rig, batch);
    for (uint32_t i = 0; i < block_count; i++)
        rig_batch_add(&nvme_kit.rig, batch, 9000 + i, seed + i);
}

void
nvme_kit_put(struct rig_batch *batch, enum kvt_status status)
{
    assert_int_equal(rig_put(&nvme_kit.rig, batch), KVT_OK);
    assert_int_equal(batch->batch.status, status);
    for (uint32_t i = 0; i < batch->batch.block_count; i++) {
        assert_int_equal(batch->blocks[i].status, status);
        assert_int_equal(batch->blocks[i].record.extent.generation != 0, status == KVT_OK);
    }
}

void
nvme_kit_get(const struct rig_batch *put)
{
    static struct rig_batch get;

    rig_get_init(&nvme_kit.rig, &get, put);
    assert_int_equal(rig_get(&nvme_kit.rig, &get), KVT_OK);
    for (uint32_t i = 0; i < get.batch.block_count; i++) {
        assert_int_equal(get.blocks[i].status, KVT_OK);
        assert_true(payload_matches(
            get.blocks[i].memory, get.blocks[i].record.stored_length, get.seeds[i]));
    }
}

struct segment *
nvme_kit_segment(const struct rig_batch *put)
{
    return segment_at(nvme_segments(nvme_kit.rig.nvme), put->blocks[0].record.extent.segment);
}

void
nvme_kit_held_wait(enum io_kind kind, uint32_t count)
{
    for (uint32_t i = 0; i < 1000000; i++) {
        if (io_puppet_held(nvme_kit.script, kind) >= count)
            return;
        rig_turn(&nvme_kit.rig);
    }
    fail_msg("%u operations were never held", count);
}
