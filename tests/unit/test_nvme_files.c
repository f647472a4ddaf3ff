/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvme_files.c - the data files of the NVME tier: made, grown, opened for reading, refused;
 * what a put may be, and what the tier says of its room.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "bytes.h"
#include "failure.h"
#include "io_lane.h"
#include "stop_on_proof.h"
#include "tier_rig.h"

#define SEGMENT_BYTES ((uint64_t)RIG_SEGMENT_PAGES * 4096)

static struct tier_rig rig;
static struct fs_ops fs_ops; /* The host's, some functions replaced. */
static const struct fs_ops *host_fs;

static void
fixture_init(uint32_t root_count, uint32_t segments)
{
    rig_init(&rig, TIER_KIND_NVME_THREADS, root_count, segments);
    host_fs = rig.env.fs;
    fs_ops = *host_fs;
    rig.env.fs = &fs_ops;
}

static uint64_t
file_size(const char *name)
{
    struct stat info;

    assert_int_equal(stat(scratch_path(&rig.scratch, name), &info), 0);
    return (uint64_t)info.st_size;
}

static void
put_some(struct rig_batch *put, uint32_t count, uint64_t seed)
{
    rig_batch_init(&rig, put);
    for (uint32_t i = 0; i < count; i++)
        rig_batch_add(&rig, put, 5000, seed + i);
    assert_int_equal(rig_put(&rig, put), KVT_OK);
    assert_int_equal(put->batch.status, KVT_OK);
}

/* Whether the blocks of `put` are all there, or all missing, after a restart. */
static void
get_some(const struct rig_batch *put, enum kvt_status status)
{
    static struct rig_batch get;

    rig_get_init(&rig, &get, put);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    for (uint32_t i = 0; i < get.batch.block_count; i++) {
        assert_int_equal(get.blocks[i].status, status);
        if (status == KVT_OK)
            assert_true(payload_matches(get.blocks[i].memory, 5000, get.seeds[i]));
    }
}

/* --- Files ------------------------------------------------------------------------------------ */

static void
a_new_file_has_all_its_space_and_no_temporary_name(void **state)
{
    struct nvme_caps caps;
    struct tier_usage usage;

    (void)state;
    fixture_init(2, 5);
    rig.options.root_bytes[1] = 7 * SEGMENT_BYTES + 4097; /* Rounded down. */
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(file_size("root0/data.00"), 5 * SEGMENT_BYTES);
    assert_int_equal(file_size("root1/data.00"), 7 * SEGMENT_BYTES);
    assert_false(scratch_exists(&rig.scratch, "root0/data.00.new"));
    rig.tier->ops->usage(rig.tier, &usage);
    assert_int_equal(usage.capacity_bytes, 12 * SEGMENT_BYTES);
    assert_int_equal(usage.used_bytes, 0);
    assert_int_equal(segment_count_in(nvme_segments(rig.nvme), 1, SEGMENT_FREE), 7);
    nvme_caps_get(rig.nvme, &caps);
    assert_string_equal(caps.io_engine, "threads");
    assert_in_range(caps.align_bytes[0], 1, 4096);
    assert_false(caps.is_read_only[0]);
    rig_deinit(&rig);
}

static void
an_interrupted_creation_is_started_anew(void **state)
{
    (void)state;
    fixture_init(1, 3);
    scratch_write(&rig.scratch, "root0/data.00.new", "half a file", 11);
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(file_size("root0/data.00"), 3 * SEGMENT_BYTES);
    assert_false(scratch_exists(&rig.scratch, "root0/data.00.new"));
    rig_deinit(&rig);
}

/* The file was there: it was to be another one, and the process was killed. */
static void
what_is_left_of_a_creation_goes_when_the_file_is_opened_for_writing(void **state)
{
    (void)state;
    fixture_init(1, 3);
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    scratch_write(&rig.scratch, "root0/data.00.new", "half a file", 11);
    rig.options.read_only = true;
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    assert_true(scratch_exists(&rig.scratch, "root0/data.00.new"));
    rig.options.read_only = false;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_false(scratch_exists(&rig.scratch, "root0/data.00.new"));
    rig_deinit(&rig);
}

static void
a_file_grows_and_keeps_what_it_has(void **state)
{
    static struct rig_batch put;
    struct segment facts;

    (void)state;
    fixture_init(1, 2);
    assert_int_equal(rig_open(&rig), KVT_OK);
    put_some(&put, 6, 1);
    facts = *segment_at(nvme_segments(rig.nvme), put.blocks[0].record.extent.segment);
    rig_close(&rig);
    rig.options.root_bytes[0] = 6 * SEGMENT_BYTES;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(file_size("root0/data.00"), 6 * SEGMENT_BYTES);
    assert_int_equal(segment_count_in(nvme_segments(rig.nvme), 0, SEGMENT_FREE), 6);
    assert_true(segment_restore(nvme_segments(rig.nvme), &facts));
    get_some(&put, KVT_OK);
    rig_close(&rig);

    /* A smaller capacity uses fewer segments and leaves the file as it is. */
    rig.options.root_bytes[0] = SEGMENT_BYTES;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(file_size("root0/data.00"), 6 * SEGMENT_BYTES);
    assert_null(segment_at(nvme_segments(rig.nvme), 1));
    rig_deinit(&rig);
}

static enum kvt_status
allocate_full(struct fs_file *file, uint64_t offset, uint64_t size)
{
    (void)file;
    (void)offset;
    (void)size;
    return failure_set(KVT_E_NOSPC, ENOSPC, "the device is full on purpose");
}

/* As ext4 does: what fits stays. */
static enum kvt_status
allocate_what_fits(struct fs_file *file, uint64_t offset, uint64_t size)
{
    assert_int_equal(host_fs->truncate(file, offset + size / 2), KVT_OK);
    return failure_set(KVT_E_NOSPC, ENOSPC, "the device is full on purpose");
}

static enum kvt_status
allocate_never(struct fs_file *file, uint64_t offset, uint64_t size)
{
    (void)file;
    (void)offset;
    fail_msg("%u bytes are taken from a disk that does not have them", (unsigned)size);
    return KVT_E_NOSPC;
}

/* Some, but not enough for the six segments by which the file shall grow. */
static enum kvt_status
space_small(struct fs_dir *dir, uint64_t *free_bytes_out)
{
    (void)dir;
    *free_bytes_out = 6 * SEGMENT_BYTES - 1;
    return KVT_OK;
}

static enum kvt_status
allocate_unsupported(struct fs_file *file, uint64_t offset, uint64_t size)
{
    (void)file;
    (void)offset;
    (void)size;
    return failure_set(KVT_E_UNSUPPORTED, EOPNOTSUPP, "no fallocate here, on purpose");
}

static void
a_full_device_is_named_with_its_numbers(void **state)
{
    (void)state;
    fixture_init(1, 3);
    fs_ops.allocate = allocate_full;
    assert_int_equal(rig_open(&rig), KVT_E_NOSPC);
    assert_non_null(strstr(failure_last()->text, "root0"));
    assert_non_null(strstr(failure_last()->text, "3145728"));
    assert_false(scratch_exists(&rig.scratch, "root0/data.00"));
    assert_false(scratch_exists(&rig.scratch, "root0/data.00.new"));
    rig_deinit(&rig);
}

static void
a_file_that_cannot_grow_is_used_as_it_is(void **state)
{
    (void)state;
    fixture_init(1, 3);
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    fs_ops.allocate = allocate_full;
    rig.options.root_bytes[0] = 9 * SEGMENT_BYTES;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(segment_count_in(nvme_segments(rig.nvme), 0, SEGMENT_FREE), 3);
    rig_deinit(&rig);
}

static void
a_file_that_cannot_grow_gives_back_what_it_took(void **state)
{
    (void)state;
    fixture_init(1, 3);
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    fs_ops.allocate = allocate_what_fits;
    rig.options.root_bytes[0] = 9 * SEGMENT_BYTES;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(segment_count_in(nvme_segments(rig.nvme), 0, SEGMENT_FREE), 3);
    assert_int_equal(file_size("root0/data.00"), 3 * SEGMENT_BYTES);
    rig_deinit(&rig);
}

static void
what_the_disk_does_not_have_is_not_begun(void **state)
{
    (void)state;
    fixture_init(1, 3);
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    fs_ops.allocate = allocate_never;
    fs_ops.dir_space = space_small;
    rig.options.root_bytes[0] = 9 * SEGMENT_BYTES;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(file_size("root0/data.00"), 3 * SEGMENT_BYTES);
    rig_close(&rig);
    fs_ops.allocate = host_fs->allocate;
    rig.options.root_bytes[0] = 8 * SEGMENT_BYTES; /* That much it has. */
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(file_size("root0/data.00"), 8 * SEGMENT_BYTES);
    rig_deinit(&rig);
}

/* The sentence says what is wanted and what is free. */
static void
a_new_file_that_the_disk_does_not_have_is_not_begun(void **state)
{
    (void)state;
    fixture_init(1, 6);
    fs_ops.allocate = allocate_never;
    fs_ops.dir_space = space_small;
    assert_int_equal(rig_open(&rig), KVT_E_NOSPC);
    assert_non_null(strstr(
        failure_last()->text, "6291456 more bytes are wanted for data.00, 6291455 are free"));
    assert_false(scratch_exists(&rig.scratch, "root0/data.00"));
    assert_false(scratch_exists(&rig.scratch, "root0/data.00.new"));
    rig_deinit(&rig);
}

static void
without_fallocate_the_file_is_sparse(void **state)
{
    static struct rig_batch put;

    (void)state;
    fixture_init(1, 3);
    fs_ops.allocate = allocate_unsupported;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(file_size("root0/data.00"), 3 * SEGMENT_BYTES);
    put_some(&put, 3, 1);
    get_some(&put, KVT_OK);
    rig_deinit(&rig);
}

static uint32_t
align_large(const struct fs_file *file)
{
    (void)file;
    return 16384;
}

static bool
direct_always(const struct fs_file *file)
{
    (void)file;
    return true;
}

static void
an_alignment_above_a_page_is_refused_by_name(void **state)
{
    (void)state;
    fixture_init(1, 2);
    fs_ops.align = align_large;
    fs_ops.is_direct = direct_always;
    assert_int_equal(rig_open(&rig), KVT_E_UNSUPPORTED);
    assert_non_null(strstr(failure_last()->text, "16384"));
    rig_deinit(&rig);
}

static enum kvt_status
read_refused(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    if (host_fs->is_direct(file))
        return failure_set(KVT_E_INVAL, EINVAL, "direct reads are refused on purpose");
    return host_fs->read_at(file, target, size, offset, read_out);
}

static void
a_file_system_that_refuses_direct_reads_is_used_without(void **state)
{
    static struct rig_batch put;
    struct nvme_caps caps;

    (void)state;
    fixture_init(1, 2);
    fs_ops.read_at = read_refused;
    assert_int_equal(rig_open(&rig), KVT_OK);
    nvme_caps_get(rig.nvme, &caps);
    assert_false(caps.is_direct[0]);
    put_some(&put, 2, 1);
    get_some(&put, KVT_OK);
    rig_deinit(&rig);
}

static void
direct_reads_are_told(void **state)
{
    struct nvme_caps caps;

    (void)state;
    fixture_init(1, 2);
    fs_ops.is_direct = direct_always;
    assert_int_equal(rig_open(&rig), KVT_OK);
    nvme_caps_get(rig.nvme, &caps);
    assert_true(caps.is_direct[0]);
    rig_deinit(&rig);
}

static uint64_t bad_offset;  /* Of a page that can never be read. */
static uint32_t other_count; /* Reads elsewhere, of which the first was at: */
static uint64_t other_offset;

static enum kvt_status
read_around(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    if (offset <= bad_offset && bad_offset < offset + size)
        return failure_set(KVT_E_IO, EIO, "a page cannot be read on purpose");
    if (other_count++ == 0)
        other_offset = offset;
    return host_fs->read_at(file, target, size, offset, read_out);
}

static void
a_file_whose_first_page_cannot_be_read_is_opened(void **state)
{
    static struct rig_batch put;
    struct segment facts;

    (void)state;
    fixture_init(1, 2);
    assert_int_equal(rig_open(&rig), KVT_OK);
    put_some(&put, 3, 1);
    facts = *segment_at(nvme_segments(rig.nvme), put.blocks[0].record.extent.segment);
    rig_close(&rig);
    fs_ops.read_at = read_around;
    bad_offset = other_count = 0;
    rig.options.was_made[0] = true;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(other_count, 2); /* And the first page of the other segment: whose it is. */
    assert_int_equal(other_offset, SEGMENT_BYTES - 4096); /* In the middle of the file. */
    assert_true(segment_restore(nvme_segments(rig.nvme), &facts));
    get_some(&put, KVT_OK);
    rig_deinit(&rig);
}

static void
a_read_only_tier_reads_and_takes_no_put(void **state)
{
    static struct rig_batch put, refused;
    struct segment facts;
    struct tier_usage usage;

    (void)state;
    fixture_init(2, 2);
    assert_int_equal(rig_open(&rig), KVT_OK);
    put_some(&put, 4, 1);
    facts = *segment_at(nvme_segments(rig.nvme), put.blocks[0].record.extent.segment);
    rig_close(&rig);
    scratch_unlink(&rig.scratch, facts.number == 0 ? "root1/data.00" : "root0/data.00");

    rig.options.read_only = true;
    rig.options.root_bytes[segment_root(facts.number)] = 20 * SEGMENT_BYTES; /* Must not grow. */
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_true(segment_restore(nvme_segments(rig.nvme), &facts));
    get_some(&put, KVT_OK);
    rig_batch_init(&rig, &refused);
    rig_batch_add(&rig, &refused, 100, 9);
    assert_int_equal(rig_put(&rig, &refused), KVT_E_READONLY);
    rig.tier->ops->usage(rig.tier, &usage);
    assert_int_equal(usage.capacity_bytes, 2 * SEGMENT_BYTES); /* The missing root has none. */
    assert_int_equal(usage.free_bytes, 0);
    rig_close(&rig);
    assert_false(
        scratch_exists(&rig.scratch, facts.number == 0 ? "root1/data.00" : "root0/data.00"));
    rig_deinit(&rig);
}

/* Half of a store would look like all of it. */
static void
a_read_only_tier_lacks_a_file_only_when_it_may(void **state)
{
    (void)state;
    fixture_init(2, 2);
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    scratch_unlink(&rig.scratch, "root1/data.00");
    rig.options.read_only = true;
    rig.options.was_made[0] = true;
    assert_int_equal(rig_open(&rig), KVT_OK); /* Of the second one nobody knows that it was made. */
    rig_close(&rig);
    rig.options.was_made[1] = true;
    assert_int_equal(rig_open(&rig), KVT_E_IO);
    assert_non_null(strstr(failure_last()->text, "root1/data.00 is missing"));
    rig.options.may_lack = true;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(segment_count_in(nvme_segments(rig.nvme), 0, SEGMENT_FREE), 2);
    assert_int_equal(segment_count_in(nvme_segments(rig.nvme), 1, SEGMENT_FREE), 0);
    rig_deinit(&rig);
}

static void
a_missing_file_is_made_anew_and_its_blocks_are_wrong_or_missing(void **state)
{
    static struct rig_batch put, get;
    struct segment facts;

    (void)state;
    fixture_init(1, 2);
    assert_int_equal(rig_open(&rig), KVT_OK);
    put_some(&put, 2, 1);
    facts = *segment_at(nvme_segments(rig.nvme), put.blocks[0].record.extent.segment);
    rig_close(&rig);
    scratch_unlink(&rig.scratch, "root0/data.00");
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_true(segment_restore(nvme_segments(rig.nvme), &facts));
    rig_get_init(&rig, &get, &put);
    assert_int_equal(rig_get(&rig, &get), KVT_OK);
    /* The read works; that these are not the block's bytes the checksum says. */
    assert_false(payload_matches(get.blocks[0].memory, 5000, get.seeds[0]));
    rig_deinit(&rig);
}

static void
impossible_options_are_refused(void **state)
{
    (void)state;
    fixture_init(1, 2);
    rig.options.root_bytes[0] = SEGMENT_BYTES - 1;
    assert_int_equal(rig_open(&rig), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "root0"));
    rig.options.root_bytes[0] = UINT64_MAX;
    assert_int_equal(rig_open(&rig), KVT_E_INVAL);
    rig.options.root_bytes[0] = SEGMENT_BYTES;
    rig.options.segment_pages = 128;
    assert_int_equal(rig_open(&rig), KVT_E_INVAL);
    rig.options.segment_pages = 384;
    assert_int_equal(rig_open(&rig), KVT_E_INVAL);
    rig.options.segment_pages = 256;
    rig.options.root_count = 9;
    assert_int_equal(rig_open(&rig), KVT_E_INVAL);
    rig.options.root_count = 1;
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_deinit(&rig);
}

static size_t memory_left;
static struct memory_ops memory_ops;
static const struct memory_ops *host_memory;

static void *
take_limited(void *context, size_t size)
{
    if (memory_left == 0)
        return NULL;
    memory_left--;
    return host_memory->take(context, size);
}

/* Every allocation of the open and of the first put fails once: refused, undone, nothing leaks. */
static void
each_allocation_may_fail(void **state)
{
    static struct rig_batch put;
    uint32_t count = 0;

    (void)state;
    fixture_init(2, 2);
    host_memory = rig.env.memory;
    memory_ops = *host_memory;
    memory_ops.take = take_limited;
    rig.env.memory = &memory_ops;
    for (;; count++) {
        enum kvt_status status;

        memory_left = count;
        status = rig_open(&rig);
        if (status == KVT_OK)
            break;
        assert_int_equal(status, KVT_E_NOMEM);
    }
    assert_true(count > 5);
    memory_left = 0;
    rig_batch_init(&rig, &put);
    rig_batch_add(&rig, &put, 5000, 1);
    assert_int_equal(rig_put(&rig, &put), KVT_OK); /* Headers were made at open. */
    assert_int_equal(rig_get(&rig, &put), KVT_E_NOMEM);
    memory_left = 1000;
    get_some(&put, KVT_OK);
    rig_deinit(&rig);
}

/* --- Puts ------------------------------------------------------------------------------------- */

static void
impossible_batches_are_refused_and_take_nothing(void **state)
{
    static struct rig_batch batch;
    struct tier_usage usage;

    (void)state;
    fixture_init(1, 3);
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_batch_init(&rig, &batch);
    assert_int_equal(rig_put(&rig, &batch), KVT_E_INVAL); /* Neither blocks nor kills. */
    rig_batch_add(&rig, &batch, 5000, 1);
    batch.batch.block_count = 1025;
    assert_int_equal(rig_put(&rig, &batch), KVT_E_INVAL);
    batch.batch.block_count = 1;
    batch.batch.kill_count = 4097;
    assert_int_equal(rig_put(&rig, &batch), KVT_E_INVAL);
    batch.batch.kill_count = 0;
    batch.blocks[0].memory = (uint8_t *)batch.blocks[0].memory + 512;
    assert_int_equal(rig_put(&rig, &batch), KVT_E_INVAL);
    rig_batch_init(&rig, &batch);
    rig_batch_add(&rig, &batch, 256 * 4096, 1); /* With its header more than a segment. */
    assert_int_equal(rig_put(&rig, &batch), KVT_E_INVAL);
    batch.blocks[0].record.stored_length = UINT32_MAX;
    assert_int_equal(rig_put(&rig, &batch), KVT_E_INVAL);
    rig_batch_init(&rig, &batch);
    rig_batch_add(&rig, &batch, 255 * 4096, 1);
    assert_int_equal(rig_put(&rig, &batch), KVT_OK);
    assert_int_equal(batch.batch.status, KVT_OK);
    rig.tier->ops->usage(rig.tier, &usage);
    assert_int_equal(usage.used_bytes, SEGMENT_BYTES);
    rig_deinit(&rig);
}

static enum kvt_status
reserved_put(struct rig_batch *batch, uint32_t last_of)
{
    enum kvt_status status = nvme_put_reserved(rig.nvme, &batch->batch, last_of);

    if (status != KVT_OK)
        return status;
    rig_wait(&rig, 1);
    rig_answers_clear(&rig);
    return batch->batch.status;
}

static void
the_reserve_is_for_reclaiming(void **state)
{
    static struct rig_batch batch;
    struct tier_usage usage;

    (void)state;
    fixture_init(1, 4);
    rig.options.reserve_count = 2;
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig.tier->ops->usage(rig.tier, &usage);
    assert_int_equal(usage.free_bytes, 2 * SEGMENT_BYTES);
    for (uint32_t i = 0; i < 2; i++) {
        rig_memory_reset(&rig);
        rig_batch_init(&rig, &batch);
        rig_batch_add(&rig, &batch, 200 * 4096, 1);
        assert_int_equal(rig_put(&rig, &batch), KVT_OK);
    }
    assert_int_equal(rig_put(&rig, &batch), KVT_E_NOSPC);
    rig.tier->ops->usage(rig.tier, &usage);
    assert_int_equal(usage.free_bytes, 55 * 4096); /* The rest of the active segment. */
    assert_int_equal(reserved_put(&batch, NVME_ROOT_NONE), KVT_OK);
    /* The last one of a root is for what lets another become FREE. */
    assert_int_equal(reserved_put(&batch, NVME_ROOT_NONE), KVT_E_NOSPC);
    assert_int_equal(reserved_put(&batch, 1), KVT_E_NOSPC);
    assert_int_equal(reserved_put(&batch, 0), KVT_OK);
    assert_int_equal(reserved_put(&batch, 0), KVT_E_NOSPC);
    /* So is then the one that is being filled. */
    rig_memory_reset(&rig);
    rig_batch_init(&rig, &batch);
    rig_batch_add(&rig, &batch, 4096, 1);
    assert_int_equal(reserved_put(&batch, NVME_ROOT_NONE), KVT_E_NOSPC);
    assert_int_equal(reserved_put(&batch, 0), KVT_OK);
    rig_deinit(&rig);
}

static void
kills_without_blocks_are_a_batch(void **state)
{
    static struct rig_batch batch;

    (void)state;
    fixture_init(1, 2);
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_batch_init(&rig, &batch);
    batch.kills[0] = (struct tier_kill){.extent = {1, 2, 3}, .fingerprint = {4, 5}, .sequence = 6};
    batch.batch.kill_count = 1;
    batch.batch.status = KVT_E_POISONED;
    assert_int_equal(rig_put(&rig, &batch), KVT_OK);
    assert_int_equal(batch.batch.status, KVT_OK);
    rig_deinit(&rig);
}

static void
puts_are_spread_over_roots_by_room(void **state)
{
    static struct rig_batch batch;
    uint32_t counts[3] = {0};

    (void)state;
    fixture_init(3, 8);
    rig.options.root_bytes[2] = 16 * SEGMENT_BYTES;
    assert_int_equal(rig_open(&rig), KVT_OK);
    for (uint32_t i = 0; i < 40; i++) {
        rig_memory_reset(&rig);
        rig_batch_init(&rig, &batch);
        rig_batch_add(&rig, &batch, 120 * 4096, 1);
        assert_int_equal(rig_put(&rig, &batch), KVT_OK);
        counts[segment_root(batch.blocks[0].record.extent.segment)]++;
    }
    /* The large root first, until all have the same room. */
    assert_true(counts[2] > counts[0] + 8);
    assert_in_range(counts[0], 4, 12);
    assert_in_range(counts[1], 4, 12);
    rig_deinit(&rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_has_all_its_space_and_no_temporary_name),
        cmocka_unit_test(an_interrupted_creation_is_started_anew),
        cmocka_unit_test(what_is_left_of_a_creation_goes_when_the_file_is_opened_for_writing),
        cmocka_unit_test(a_file_grows_and_keeps_what_it_has),
        cmocka_unit_test(a_full_device_is_named_with_its_numbers),
        cmocka_unit_test(a_file_that_cannot_grow_is_used_as_it_is),
        cmocka_unit_test(a_file_that_cannot_grow_gives_back_what_it_took),
        cmocka_unit_test(what_the_disk_does_not_have_is_not_begun),
        cmocka_unit_test(a_new_file_that_the_disk_does_not_have_is_not_begun),
        cmocka_unit_test(without_fallocate_the_file_is_sparse),
        cmocka_unit_test(an_alignment_above_a_page_is_refused_by_name),
        cmocka_unit_test(a_file_system_that_refuses_direct_reads_is_used_without),
        cmocka_unit_test(direct_reads_are_told),
        cmocka_unit_test(a_file_whose_first_page_cannot_be_read_is_opened),
        cmocka_unit_test(a_read_only_tier_reads_and_takes_no_put),
        cmocka_unit_test(a_read_only_tier_lacks_a_file_only_when_it_may),
        cmocka_unit_test(a_missing_file_is_made_anew_and_its_blocks_are_wrong_or_missing),
        cmocka_unit_test(impossible_options_are_refused),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(impossible_batches_are_refused_and_take_nothing),
        cmocka_unit_test(the_reserve_is_for_reclaiming),
        cmocka_unit_test(kills_without_blocks_are_a_batch),
        cmocka_unit_test(puts_are_spread_over_roots_by_room),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
