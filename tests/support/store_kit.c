/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_kit.c - small stores in temporary directories (store_kit.h).
 */
#include "store_kit.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "store_audit.h"
#include "store_internal.h"

enum {
    AUDIT_TRIES = 1000000, /* Until the store is at rest. */
};

static void
run_program(const char *const words[])
{
    int result = -1;
    pid_t child = fork();

    if (child == 0) {
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || result != 0) {
        fprintf(stderr, "%s %s failed\n", words[0], words[2]);
        abort();
    }
}

void
kit_dir_make(char path_out[KIT_PATH_BYTES])
{
    const char *place = getenv("KVT_TEST_TMP");

    snprintf(path_out, KIT_PATH_BYTES, "%s/kvt-test-XXXXXX",
        place != NULL                   ? place
        : access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                        : "/tmp");
    if (mkdtemp(path_out) == NULL) {
        fprintf(stderr, "cannot make %s\n", path_out);
        abort();
    }
}

void
kit_dir_remove(const char *path)
{
    run_program((const char *const[]){"rm", "-rf", path, NULL});
}

void
kit_dir_copy(const char *source, const char *target)
{
    run_program((const char *const[]){"cp", "-a", source, target, NULL});
}

struct kvt_options
kit_options(void)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    options.host_capacity_bytes = 4 << 20;
    options.nvme_capacity_bytes = 8 << 20;
    options.segment_bytes = 1 << 20;
    options.block_bytes_max = KIT_BLOCK_BYTES_MAX;
    options.index_map_bytes = 1 << 20;
    options.entry_count_max = 1 << 16;
    options.worker_count = 1;
    return options;
}

/* Waits for `stage` of a submission of one block and frees its ticket. */
static enum kvt_status
outcome(enum kvt_status status, kvt_ticket *ticket, uint32_t stage, struct kvt_result *result_out)
{
    if (status == KVT_OK)
        status = kvt_ticket_wait(ticket, stage, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, stage, result_out, 1);
    kvt_ticket_free(ticket);
    return status == KVT_OK ? result_out->status : status;
}

struct kvt_result
kit_result(kvt_ticket *ticket, uint32_t stage)
{
    struct kvt_result result;

    assert_int_equal(kvt_ticket_wait(ticket, stage, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, stage, &result, 1), KVT_OK);
    kvt_ticket_free(ticket);
    return result;
}

enum kvt_status
kit_put(kvt_store *store, kvt_namespace ns, uint64_t key, uint64_t version, uint64_t length,
    enum kvt_durability durability)
{
    struct payload_key name;
    struct kvt_submit submit = {0};
    struct kvt_result result = {0};
    kvt_ticket *ticket = NULL;
    uint8_t *bytes = malloc(length);

    if (bytes == NULL)
        return KVT_E_NOMEM;
    payload_key_make(&name, key);
    payload_fill(bytes, length, key, version);
    struct kvt_put put = {
        .key = name.key, .source = bytes, .length = length, .flags = KVT_PUT_REPLACE};
    enum kvt_status status = kvt_put_submit(store, ns, &put, 1, durability, &submit, &ticket);
    status = outcome(
        status, ticket, durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE, &result);
    free(bytes);
    return status;
}

enum kvt_status
kit_get(kvt_store *store, kvt_namespace ns, uint64_t key, uint64_t *version_out)
{
    struct payload_key name;
    struct kvt_submit submit = {0};
    struct kvt_result result = {0};
    kvt_ticket *ticket = NULL;
    uint8_t *bytes = malloc(KIT_BLOCK_BYTES_MAX);

    if (bytes == NULL)
        return KVT_E_NOMEM;
    memset(bytes, 0xA5, KIT_BLOCK_BYTES_MAX);
    payload_key_make(&name, key);
    struct kvt_get get = {.key = name.key, .destination = bytes, .capacity = KIT_BLOCK_BYTES_MAX};
    enum kvt_status status = kvt_get_submit(store, ns, &get, 1, &submit, &ticket);
    status = outcome(status, ticket, KVT_STAGE_DONE, &result);
    if (status == KVT_OK && !payload_is_right(bytes, result.length, key, version_out))
        status = KVT_E_CORRUPT;
    free(bytes);
    return status;
}

enum kvt_status
kit_delete(kvt_store *store, kvt_namespace ns, uint64_t key)
{
    struct payload_key name;
    struct kvt_submit submit = {0};
    struct kvt_result result = {0};
    kvt_ticket *ticket = NULL;

    payload_key_make(&name, key);
    enum kvt_status status = kvt_delete_submit(store, ns, &name.key, 1, &submit, &ticket);
    return outcome(status, ticket, KVT_STAGE_DURABLE, &result);
}

void
kit_works(kvt_store *store)
{
    uint64_t version = 0;
    kvt_namespace ns;

    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_put(store, ns, 1, 1, KIT_BLOCK_BYTES_MAX / 3, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
}

void
kit_refused(enum kvt_status got, enum kvt_status wanted, const char *word, int line)
{
    struct kvt_error error = {0};

    kvt_last_error(&error);
    if (got != wanted || error.status != wanted || error.text == NULL ||
        strstr(error.text, word) == NULL)
        fail_msg("line %d: wanted %s and a sentence with '%s', got %s; last failure %s: %s", line,
            kvt_status_name(wanted), word, kvt_status_name(got), kvt_status_name(error.status),
            error.text);
}

size_t
kit_file_read(const char *path, void *target, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t count = 0;

    if (file != NULL) {
        count = fread(target, 1, size, file);
        (void)fclose(file);
    }
    return count;
}

void
kit_file_write(const char *path, const void *source, size_t size)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(source, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void
kit_byte_damage(const char *path, long offset)
{
    FILE *file = fopen(path, "r+b");
    int byte;

    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    byte = fgetc(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

uint32_t
kit_entry(const kvt_store *store, kvt_namespace ns, uint64_t key)
{
    struct payload_key name;
    struct block_key block;

    payload_key_make(&name, key);
    assert_true(key_init(&block, store->file.secret, ns.id, 0, name.key.bytes, name.key.length));
    return residency_find(store->map, key_fingerprint(store->fingerprint_seed, &block), &block);
}

struct kvt_stats
kit_stats(kvt_store *store)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    return stats;
}

void
kit_audit(kvt_store *store)
{
    struct store_audit audit = {.is_unused = true, .looks_at_headers = true};

    for (uint32_t i = 0; i < AUDIT_TRIES; i++) {
        if (store_audit(store, &audit)) {
            if (audit.failure[0] != '\0')
                fail_msg("%s", audit.failure);
            return;
        }
        (void)sched_yield();
    }
    fail_msg("the store never came to rest");
}
