/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_layout.c - a layout that a caller registers, and where its pieces lie. Input: slot count
 * (4 bytes), then for each run: address (from the beginning of a buffer), piece count, piece bytes,
 * piece stride, slot stride, each of 4 bytes; a first byte of a run above 250 makes them huge.
 */
#include <string.h>

#include "failure.h"
#include "fuzz_world.h"
#include "store_internal.h"

enum {
    RUNS_MAX = 6,
    BUFFER_BYTES = 1 << 16,
    SLOTS_WALKED = 3,
};

static uint8_t buffer[BUFFER_BYTES];
static uint8_t block[BUFFER_BYTES];
static uint8_t marks[BUFFER_BYTES];
static struct device_piece pieces[KVT_PIECES_MAX];
static _Atomic uint32_t fork_page;

static struct kvt_run
run_read(struct fuzz_input *input)
{
    bool is_huge = fuzz_number(input, 1) > 250;
    unsigned shift = is_huge ? 31 : 0;
    uint64_t address = fuzz_number(input, 4);

    /* The address of a run may be anything: it is looked at, never followed. */
    return (struct kvt_run){
        .address = (void *)((uintptr_t)buffer + (uintptr_t)(address << shift)),
        .piece_count = (uint32_t)fuzz_number(input, 2),
        .piece_bytes = fuzz_number(input, 3),
        .piece_stride = fuzz_number(input, 4) << shift,
        .slot_stride = fuzz_number(input, 4) << shift,
    };
}

/* Every piece lies where its run says, and no byte of a slot is in two. */
static void
slot_require(const struct layout *layout, uint32_t slot)
{
    struct spread spread = {layout, slot, 0, layout->block_bytes, block};
    uint32_t count = spread_pieces(&spread, true, pieces);
    uintptr_t memory = (uintptr_t)block;
    bool is_inside = layout->block_bytes <= sizeof(block);

    FUZZ_REQUIRE(count <= KVT_PIECES_MAX);
    memset(marks, 0, sizeof(marks));
    for (uint32_t i = 0; i < count; i++) {
        uintptr_t begin = (uintptr_t)pieces[i].source;

        FUZZ_REQUIRE((uintptr_t)pieces[i].target == memory);
        FUZZ_REQUIRE(begin + pieces[i].size > begin);
        memory += pieces[i].size;
        is_inside = is_inside && begin >= (uintptr_t)buffer &&
                    begin - (uintptr_t)buffer <= sizeof(buffer) &&
                    pieces[i].size <= sizeof(buffer) - (begin - (uintptr_t)buffer);
        for (size_t at = 0; is_inside && at < pieces[i].size; at++)
            FUZZ_REQUIRE(marks[begin - (uintptr_t)buffer + at]++ == 0);
    }
    FUZZ_REQUIRE(memory - (uintptr_t)block == layout->block_bytes);
    if (!is_inside)
        return;
    for (size_t i = 0; i < layout->block_bytes; i++)
        block[i] = (uint8_t)(i * 7 + slot);
    spread_scatter(&spread);
    memset(block, 0, layout->block_bytes);
    spread_gather(&spread);
    for (size_t i = 0; i < layout->block_bytes; i++)
        FUZZ_REQUIRE(block[i] == (uint8_t)(i * 7 + slot));
}

static void
layout_require(struct kvt_store *store, kvt_layout id, uint32_t slot_count)
{
    struct layout_name name = {.layout = id, .slot = slot_count - 1};
    struct op op = {0};

    FUZZ_REQUIRE(layout_use(store, &op, &name) == KVT_OK);
    for (uint32_t slot = 0; slot < SLOTS_WALKED && slot < slot_count; slot++)
        slot_require(op.layout, slot);
    slot_require(op.layout, slot_count - 1);
    FUZZ_REQUIRE(kvt_layout_unregister(store, id) == KVT_E_STATE);
    layout_unuse(store, &op);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct kvt_store *store;
    struct fuzz_world *world = fuzz_world();
    struct fuzz_input input = {bytes, size};
    struct kvt_run runs[RUNS_MAX] = {0};
    struct kvt_layout_options options = {.struct_size = sizeof(options),
        .runs = runs,
        .slot_count = (uint32_t)fuzz_number(&input, 4)};
    kvt_layout id;

    if (store == NULL) {
        store = env_take(&world->env, sizeof(*store));
        store->env = world->env;
        store->options.block_bytes_max = 1 << 20;
        store->fork_page = &fork_page;
        atomic_store(&fork_page, STORE_ALIVE);
        FUZZ_REQUIRE(layouts_open(store) == KVT_OK);
    }
    while (input.left > 0 && options.run_count < RUNS_MAX)
        runs[options.run_count++] = run_read(&input);
    if (kvt_layout_register(store, &options, &id) == KVT_OK) {
        layout_require(store, id, options.slot_count);
        FUZZ_REQUIRE(kvt_layout_unregister(store, id) == KVT_OK);
    } else {
        FUZZ_REQUIRE(failure_last()->status == KVT_E_INVAL);
    }
    return 0;
}
