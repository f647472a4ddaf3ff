/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_rig.c - files with known bytes, and chunks of them (load_rig.h).
 */
#include "load_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "env.h"
#include "kvtier/kvtier_unstable.h"
#include "store_internal.h"

struct sim_store load_sim;

static const struct kvt_options small = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10,
    .device_mask = 3,
    .device_kind = KVT_DEVICE_EMULATION};

int
load_rig_setup(void **state)
{
    const struct sim_options world = {
        .seed = 21, .align_bytes = 512, .short_per_mille = 20, .retry_per_mille = 20};

    (void)state;
    sim_store_open_world(&load_sim, &small, &world);
    load_rig_file(&load_sim, "weights", LOAD_RIG_FILE_BYTES);
    return 0;
}

int
load_rig_teardown(void **state)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    (void)state;
    if (load_sim.store != NULL) {
        assert_int_equal(kvt_stats_get(load_sim.store, &stats), KVT_OK);
        assert_int_equal(stats.load_device_bytes_now, 0);
        assert_int_equal(stats.host_used_bytes_now, 0);
        sim_store_close(&load_sim);
    }
    return 0;
}

kvt_load
load_rig_begin(const struct kvt_file_load_options *options)
{
    kvt_load load;

    assert_int_equal(kvt_file_load(load_sim.store, "/weights", options, &load), KVT_OK);
    return load;
}

void
load_rig_end(kvt_load load)
{
    assert_int_equal(kvt_load_close(load_sim.store, load), KVT_OK);
}

enum kvt_status
load_rig_look(kvt_load load, uint32_t chunk)
{
    return kvt_load_wait(load_sim.store, load, chunk, 0, NULL);
}

enum kvt_status
load_rig_await(kvt_load load, uint32_t chunk)
{
    return kvt_load_wait(load_sim.store, load, chunk, KVT_FOREVER, NULL);
}

void
load_rig_reads_fail(uint64_t nth)
{
    struct sim_rule rule = {.ops = SIM_READ, .effect = SIM_EIO, .file = "weights", .nth = nth};

    sim_rules_clear(load_sim.world);
    sim_rule_add(load_sim.world, &rule);
    rule.nth++;
    sim_rule_add(load_sim.world, &rule);
}

/* --- Bytes ------------------------------------------------------------------------------------ */

static uint64_t
word_at(uint64_t number)
{
    uint64_t word = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);

    return word ^ word >> 29;
}

void
load_rig_bytes(void *target, uint64_t offset, uint64_t size)
{
    uint8_t *bytes = target;

    for (uint64_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(word_at((offset + i) / 8) >> (offset + i) % 8 * 8);
}

static struct fs_file *
file_open(struct sim_store *sim, const char *name, unsigned flags)
{
    const struct fs_ops *fs = sim->env.fs;
    struct fs_file *file;
    struct fs_dir *root;

    assert_int_equal(fs->dir_open(sim->env.fs_context, "/", 0, &root), KVT_OK);
    assert_int_equal(fs->open(root, name, flags, &file), KVT_OK);
    fs->dir_close(root);
    return file;
}

void
load_rig_file(struct sim_store *sim, const char *name, uint64_t size)
{
    struct fs_file *file = file_open(sim, name, FS_CREATE);
    uint8_t *bytes = malloc(size + 1);

    assert_non_null(bytes);
    load_rig_bytes(bytes, 0, size);
    if (size > 0)
        assert_int_equal(sim->env.fs->write_at(file, bytes, size, 0), KVT_OK);
    assert_int_equal(sim->env.fs->sync(file), KVT_OK);
    sim->env.fs->close(file);
    free(bytes);
}

void
load_rig_truncate(struct sim_store *sim, const char *name, uint64_t size)
{
    struct fs_file *file = file_open(sim, name, 0);

    assert_int_equal(sim->env.fs->truncate(file, size), KVT_OK);
    sim->env.fs->close(file);
}

static uint32_t replace_count;

static enum kvt_status
open_replaced(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    const struct fs_ops *fs = load_sim.env.fs;
    struct fs_dir *root;

    if ((flags & FS_DIRECT) != 0 && replace_count > 0) {
        replace_count--;
        load_rig_file(&load_sim, "weights.new", LOAD_RIG_FILE_BYTES);
        assert_int_equal(fs->dir_open(load_sim.env.fs_context, "/", 0, &root), KVT_OK);
        assert_int_equal(fs->rename(root, "weights.new", "weights"), KVT_OK);
        fs->dir_close(root);
    }
    return fs->open(dir, name, flags, file_out);
}

void
load_rig_replace(uint32_t count)
{
    static struct fs_ops replacing;
    struct fs_file *file = file_open(&load_sim, "weights", 0);

    assert_int_equal(load_sim.env.fs->write_at(file, "other", 5, LOAD_RIG_FILE_BYTES - 5), KVT_OK);
    load_sim.env.fs->close(file);
    replace_count = count;
    replacing = *load_sim.env.fs;
    replacing.open = open_replaced;
    load_sim.store->env.fs = &replacing;
}

bool
load_rig_is_right(kvt_store *store, const void *address, uint64_t offset, uint64_t size)
{
    uint8_t *got = malloc(2 * size);
    bool is_right;

    assert_non_null(got);
    assert_int_equal(kvt_device_read(store, 0, got, address, size), KVT_OK);
    load_rig_bytes(got + size, offset, size);
    is_right = memcmp(got, got + size, size) == 0;
    free(got);
    return is_right;
}

struct kvt_file_load_options
load_rig_options(uint64_t offset, uint64_t length, uint64_t chunk_bytes)
{
    return (struct kvt_file_load_options){.struct_size = sizeof(struct kvt_file_load_options),
        .offset = offset,
        .length = length,
        .chunk_bytes = chunk_bytes};
}

void
load_rig_check(
    kvt_store *store, kvt_load load, const struct kvt_file_load_options *options, uint64_t length)
{
    uint64_t done = 0;
    uint32_t count;

    assert_int_equal(kvt_load_chunk_count(store, load, &count), KVT_OK);
    assert_int_equal(count, (length + options->chunk_bytes - 1) / options->chunk_bytes);
    for (uint32_t i = 0; i < count; i++) {
        struct kvt_load_chunk chunk;

        assert_int_equal(kvt_load_wait(store, load, i, KVT_FOREVER, &chunk), KVT_OK);
        assert_int_equal(chunk.offset, options->offset + done);
        assert_int_equal(chunk.size,
            length - done < options->chunk_bytes ? length - done : options->chunk_bytes);
        assert_true(load_rig_is_right(store, chunk.address, chunk.offset, chunk.size));
        assert_true(chunk.read_begin_ns <= chunk.read_end_ns);
        assert_true(chunk.copy_begin_ns <= chunk.copy_end_ns);
        assert_true(chunk.read_begin_ns < chunk.copy_end_ns);
        done += chunk.size;
    }
    assert_int_equal(done, length);
    assert_int_equal(kvt_load_wait(store, load, KVT_LOAD_ALL, KVT_FOREVER, NULL), KVT_OK);
}
