/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_test.c - a store of every released format still opens and reads back in full, also from
 * its segments alone; so does an encoded part of each form; and files that must be refused are,
 * with the documented status.
 *
 * The directory with the archives is the only argument.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "codec.h"
#include "golden_blocks.h"
#include "hash.h"

enum {
    STORE_BYTES = 4096,
    NAMES_BYTES_MAX = 65536,
    /* FORMAT.md 3.1 and 3.2 */
    AT_MAGIC = 0,
    AT_CRC = 4,
    AT_NAMES_UUID = 16,
    AT_VERSION_MAJOR = 16,
    AT_VERSION_MINOR = 18,
    AT_FEATURES_NEEDED = 24,
    AT_FEATURES_TO_WRITE = 32,
};

static const char *archive_dir;

struct fixture {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
};

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    char archive[512];
    int result = -1;

    if (fixture == NULL)
        return -1;
    kit_dir_make(fixture->dir);
    snprintf(fixture->path, sizeof(fixture->path), "%s/store", fixture->dir);
    snprintf(archive, sizeof(archive), "%s/v1-store.tar.gz", archive_dir);
    pid_t child = fork();
    if (child == 0) {
        execlp("tar", "tar", "-C", fixture->dir, "--no-same-owner", "-xzf", archive, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

static enum kvt_status
open_golden(const struct fixture *fixture, uint32_t flags, kvt_store **store_out)
{
    struct kvt_options options = kit_options();

    options.flags = flags;
    options.segment_bytes = 0; /* As the store was made. */
    options.block_bytes_max = 0;
    options.nvme_capacity_bytes = 0;
    options.index_map_bytes = 0;
    return kvt_open(fixture->path, &options, store_out);
}

static void
judge_blocks(kvt_store *store)
{
    kvt_namespace ns, cleared;
    uint64_t version;

    assert_int_equal(
        kvt_namespace_open(store, GOLDEN_SPACE, GOLDEN_MODEL, GOLDEN_MODEL_BYTES, &ns), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, GOLDEN_CLEARED, "", 0, &cleared), KVT_OK);
    for (uint64_t key = 0; key < GOLDEN_BLOCKS; key++) {
        version = 0;
        enum kvt_status status = kit_get(store, ns, key, &version);
        assert_int_equal(status, key < GOLDEN_DELETED ? KVT_OK : KVT_MISS);
        assert_int_equal(version, key < GOLDEN_DELETED ? golden_version(key) : 0);
        assert_int_equal(kit_get(store, cleared, key, &version), KVT_MISS);
    }
}

static void
every_block_of_a_v1_store_reads_back(void **state)
{
    kvt_store *store;

    assert_int_equal(open_golden(*state, 0, &store), KVT_OK);
    judge_blocks(store);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(open_golden(*state, KVT_OPEN_READ_ONLY, &store), KVT_OK);
    judge_blocks(store);
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
a_v1_store_is_rebuilt_from_its_segments(void **state)
{
    struct fixture *fixture = *state;
    char index[KIT_PATH_BYTES + 64];
    kvt_store *store;

    snprintf(index, sizeof(index), "%s/meta/data.mdb", fixture->path);
    assert_int_equal(unlink(index), 0);
    assert_int_equal(open_golden(fixture, 0, &store), KVT_OK);
    judge_blocks(store);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* --- Refusals --------------------------------------------------------------------------------- */

/* Change `size` bytes at `offset` in both copies of a file, with a CRC that fits when asked. */
static void
patch(const struct fixture *fixture, const char *name, size_t offset, uint64_t value, size_t size,
    bool is_crc_right)
{
    static uint8_t bytes[NAMES_BYTES_MAX];
    uint8_t little[8];
    uint32_t found = 0;

    put_u64(little, value);
    for (char copy = 'a'; copy <= 'b'; copy++) {
        char path[KIT_PATH_BYTES + 64];
        snprintf(path, sizeof(path), "%s/%s.%c", fixture->path, name, copy);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        ssize_t length = pread(fd, bytes, sizeof(bytes), 0);
        assert_true(length >= 64);
        memcpy(bytes + offset, little, size);
        if (is_crc_right)
            put_u32(bytes + AT_CRC, crc32c(0, bytes + 8, (size_t)length - 8));
        assert_int_equal(pwrite(fd, bytes, (size_t)length, 0), length);
        close(fd);
        found++;
    }
    assert_int_equal(found, 2);
}

static void
open_is_refused(const struct fixture *fixture, enum kvt_status wanted, const char *word)
{
    kvt_store *store = NULL;

    refused(open_golden(fixture, 0, &store), wanted, word);
    assert_null(store);
}

static void
a_store_file_with_a_bad_magic_is_refused(void **state)
{
    patch(*state, "STORE", AT_MAGIC, 0x12345678, 4, true);
    open_is_refused(*state, KVT_E_CORRUPT, "STORE");
}

static void
a_store_file_with_a_wrong_crc_is_refused(void **state)
{
    patch(*state, "STORE", 3000, 1, 1, false);
    open_is_refused(*state, KVT_E_CORRUPT, "STORE");
}

static void
a_higher_major_version_is_refused(void **state)
{
    patch(*state, "STORE", AT_VERSION_MAJOR, 2, 2, true);
    open_is_refused(*state, KVT_E_FORMAT, "version");
}

static void
a_higher_minor_version_is_read(void **state)
{
    kvt_store *store;

    patch(*state, "STORE", AT_VERSION_MINOR, 9, 2, true);
    assert_int_equal(open_golden(*state, 0, &store), KVT_OK);
    judge_blocks(store);
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
an_unknown_needed_feature_is_refused(void **state)
{
    patch(*state, "STORE", AT_FEATURES_NEEDED, UINT64_C(1) << 40, 8, true);
    open_is_refused(*state, KVT_E_FORMAT, "feature");
}

static void
an_unknown_feature_for_writers_is_read_but_not_written(void **state)
{
    kvt_store *store = NULL;
    kvt_namespace ns;

    patch(*state, "STORE", AT_FEATURES_TO_WRITE, UINT64_C(1) << 40, 8, true);
    assert_int_equal(open_golden(*state, KVT_OPEN_READ_ONLY, &store), KVT_OK);
    judge_blocks(store);
    assert_int_equal(
        kvt_namespace_open(store, GOLDEN_SPACE, GOLDEN_MODEL, GOLDEN_MODEL_BYTES, &ns), KVT_OK);
    assert_int_equal(kit_put(store, ns, 99, 1, 100, KVT_SYNC), KVT_E_READONLY);
    assert_int_equal(kvt_close(store), KVT_OK);
    open_is_refused(*state, KVT_E_FORMAT, "feature");
}

static void
names_of_another_store_are_refused(void **state)
{
    patch(*state, "NAMES", AT_NAMES_UUID, 0x1122334455667788, 8, true);
    open_is_refused(*state, KVT_E_CORRUPT, "NAMES");
}

/* Each is 2501 numbers and a byte, of which no encoder writes the first kind any more. */
static void
an_encoded_part_of_each_form_decodes(void **state)
{
    enum {
        SIZE = 5003,
    };
    static const struct {
        const char *name;
        enum codec_id id;
        struct hash128 hash;
    } parts[] = {
        {"v1-bf16-exponents", CODEC_BF16, {.high = 0x9648323a534599fa, .low = 0x82752d1034c82f63}},
        {"v1-bf16-tops", CODEC_BF16, {.high = 0x9648323a534599fa, .low = 0x82752d1034c82f63}},
        {"v1-fp16", CODEC_FP16, {.high = 0x8a96f9901780e292, .low = 0xf0b1d482c4ee402f}},
    };
    static uint8_t stored[SIZE], part[SIZE];
    struct kvt_env env;
    struct codec *codec;

    (void)state;
    env_host(&env);
    assert_int_equal(codec_open(&env, SIZE, &codec), KVT_OK);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char path[512];
        size_t stored_bytes = 0;

        snprintf(path, sizeof(path), "%s/%s.part", archive_dir, parts[i].name);
        stored_bytes = kit_file_read(path, stored, sizeof(stored));
        assert_int_equal(
            codec_decode(codec, parts[i].id, stored, stored_bytes, part, SIZE), KVT_OK);
        assert_true(hash128_equal(hash_payload(part, SIZE), parts[i].hash));
    }
    codec_close(codec);
}

int
main(int count, char **values)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_block_of_a_v1_store_reads_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_v1_store_is_rebuilt_from_its_segments, setup, teardown),
        cmocka_unit_test_setup_teardown(a_store_file_with_a_bad_magic_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_store_file_with_a_wrong_crc_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_higher_major_version_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_higher_minor_version_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(an_unknown_needed_feature_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(
            an_unknown_feature_for_writers_is_read_but_not_written, setup, teardown),
        cmocka_unit_test_setup_teardown(names_of_another_store_are_refused, setup, teardown),
        cmocka_unit_test(an_encoded_part_of_each_form_decodes),
    };

    if (count != 2)
        return 2;
    archive_dir = values[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
