/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_shared.c - pinned rows that other processes map: they read them, either side may die
 * first, and nothing that is handed over is believed.
 *
 * With an argument it is such a process: it reads the rows of the shared table whose descriptor
 * that is.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "hash.h"
#include "pinned_kit.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    CHILD_FINE = 42,
};

static char own_path[512];
static char children_place[KIT_PATH_BYTES]; /* Of their stores: one that is killed leaves its. */

/* The child: a store of its own, and the table of the descriptor. Reads it once for each byte that
 * comes, and says so. */
static int
child_main(const char *number)
{
    static uint32_t child_ids[COUNT];
    static uint8_t child_wanted[COUNT * VALUES * 2], child_got[COUNT * VALUES * 2];
    struct kvt_options options = kit_options();
    struct engram_rig child_rig;
    char path[KIT_PATH_BYTES], byte;
    kvt_store *store;
    kvt_engram *shared;
    bool is_right = true;

    pinned_rig_make(&child_rig);
    kit_dir_make(path);
    if (kvt_open(path, &options, &store) != KVT_OK ||
        kvt_engram_open_shared(store, (int)strtol(number, NULL, 10), &shared) != KVT_OK)
        return 1;
    while (is_right && read(STDIN_FILENO, &byte, 1) == 1) {
        struct kvt_engram_selection gather = {.table = shared,
            .ids = child_ids,
            .count = COUNT,
            .destination = child_got,
            .capacity = sizeof(child_got)};

        pinned_ids_make(child_ids, 1005);
        for (uint32_t i = 0; i < COUNT; i++)
            engram_rig_row(&child_rig, 0, child_ids[i], child_wanted + (size_t)i * ROW_BYTES);
        is_right = kvt_engram_gather(&gather) == KVT_OK &&
                   memcmp(child_got, child_wanted, (size_t)COUNT * ROW_BYTES) == 0 &&
                   write(STDOUT_FILENO, &byte, 1) == 1;
    }
    if (kvt_engram_close(shared) != KVT_OK || kvt_close(store) != KVT_OK)
        return 2;
    kit_dir_remove(path);
    return is_right ? CHILD_FINE : 3;
}

struct child {
    pid_t pid;
    int ask, answer;
};

static struct child
child_start(int descriptor)
{
    struct child child;
    int ask[2], answer[2];
    char number[16];

    assert_int_equal(pipe(ask), 0);
    assert_int_equal(pipe(answer), 0);
    descriptor = dup(descriptor); /* The table's own ends with the fork. */
    assert_true(descriptor >= 0);
    snprintf(number, sizeof(number), "%d", descriptor);
    child.pid = fork();
    if (child.pid == 0) {
        (void)setenv("KVT_TEST_TMP", children_place, 1);
        (void)dup2(ask[0], STDIN_FILENO);
        (void)dup2(answer[1], STDOUT_FILENO);
        (void)close(ask[0]);
        (void)close(ask[1]);
        (void)close(answer[0]);
        (void)close(answer[1]);
        (void)execl(own_path, own_path, number, (char *)NULL);
        _exit(127);
    }
    assert_true(child.pid > 0);
    assert_int_equal(close(descriptor), 0);
    assert_int_equal(close(ask[0]), 0);
    assert_int_equal(close(answer[1]), 0);
    child.ask = ask[1];
    child.answer = answer[0];
    return child;
}

static void
child_reads(const struct child *child)
{
    char byte = 'r', back = 0;

    assert_int_equal(write(child->ask, &byte, 1), 1);
    assert_int_equal(read(child->answer, &back, 1), 1);
    assert_int_equal(back, byte);
}

static void
child_end(const struct child *child, int signal)
{
    int status = 0;

    if (signal != 0)
        assert_int_equal(kill(child->pid, signal), 0);
    assert_int_equal(close(child->ask), 0);
    assert_int_equal(close(child->answer), 0);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    if (signal == 0) {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), CHILD_FINE);
    }
}

static void
another_process_reads_the_rows_and_either_may_die_first(void **state)
{
    struct child first, second;
    struct kvt_engram_selection gather;
    char byte = 0;
    int descriptor;

    (void)state;
    kit_dir_make(children_place);
    assert_int_equal(kvt_engram_pin(pinned.table, 1000, KVT_ENGRAM_PIN_SHARED), KVT_OK);
    assert_int_equal(kvt_engram_share(pinned.table, &descriptor), KVT_OK);
    /* Nobody can write to it, or cut it. */
    assert_int_equal(pwrite(descriptor, &byte, 1, 0), -1);
    assert_int_equal(ftruncate(descriptor, PAGE_BYTES), -1);
    assert_ptr_equal(
        mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0), MAP_FAILED);
    first = child_start(descriptor);
    second = child_start(descriptor);
    child_reads(&first);
    child_reads(&second);
    /* A reader dies: nothing happens to the others. */
    child_end(&second, SIGKILL);
    child_reads(&first);
    pinned_ids_make(pinned.ids, 1005);
    pinned_wanted_make(&pinned.rig, pinned.ids, false, pinned.wanted);
    gather = pinned_host_gather(false);
    assert_int_equal(kvt_engram_gather(&gather), KVT_OK);
    assert_memory_equal(pinned.got, pinned.wanted, gather.capacity);
    /* The owner goes: its reader still has the rows. */
    assert_int_equal(kvt_engram_close(pinned.table), KVT_OK);
    hbm_close();
    child_reads(&first);
    child_end(&first, 0);
    kit_dir_remove(children_place);
    hbm_open_again();
    assert_int_equal(kvt_engram_open(hbm.store, "t", &pinned.table), KVT_OK);
}

/* In the same process, so that a plan and a device can be tried. */
static void
a_shared_table_is_fetched_and_gathered_from(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    const uint32_t tokens[] = {1, 2, 3};
    const struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = 3};
    uint8_t rows[3 * COLUMNS * ROW_BYTES];
    struct kvt_engram_target target = {.destination = rows, .capacity = sizeof(rows)};
    struct kvt_engram_findings findings;
    struct kvt_engram_selection gather;
    kvt_engram *owner = pinned.table, *part;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram_fetch *fetch;
    void *stream;
    int descriptor;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(kvt_engram_pin(owner, KVT_ENGRAM_ROWS_ALL, KVT_ENGRAM_PIN_SHARED), KVT_OK);
    assert_int_equal(kvt_engram_share(owner, &descriptor), KVT_OK);
    assert_int_equal(kvt_engram_open_shared(hbm.store, descriptor, &pinned.table), KVT_OK);
    assert_int_equal(kvt_engram_close(owner), KVT_OK);
    assert_true(engram_rig_has(&pinned.rig, pinned.table, 0));
    assert_int_equal(kvt_engram_verify(pinned.table, NULL, NULL, &findings), KVT_E_UNSUPPORTED);
    pinned_ids_make(pinned.ids, pinned_row_count(&pinned.rig));
    pinned_wanted_make(&pinned.rig, pinned.ids, true, pinned.wanted);
    gather = pinned_device_gather(true, stream);
    assert_int_equal(kvt_engram_gather(&gather), KVT_OK);
    hbm_stream_finish(hbm_device(hbm.store->devices.tiers[0]), stream);
    assert_true(pinned_device_look() == KVT_ENGRAM_GATHER_FINE);
    assert_memory_equal(pinned.got, pinned.wanted, gather.capacity);
    assert_int_equal(kvt_engram_hasher_open(&pinned.rig.profile, NULL, 0, &hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(hasher, 3, &plan), KVT_OK);
    assert_int_equal(kvt_engram_plan_fill(plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
    target.table = pinned.table;
    assert_int_equal(kvt_engram_fetch_submit(plan, &target, 1, &fetch), KVT_OK);
    assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL), KVT_OK);
    kvt_engram_fetch_free(fetch);
    /* A part of it has no other rows. */
    assert_int_equal(kvt_engram_open(hbm.store, "t", &owner), KVT_OK);
    assert_int_equal(kvt_engram_pin(owner, 1, KVT_ENGRAM_PIN_SHARED), KVT_OK);
    assert_int_equal(kvt_engram_share(owner, &descriptor), KVT_OK);
    assert_int_equal(kvt_engram_open_shared(hbm.store, descriptor, &part), KVT_OK);
    target.table = part;
    assert_int_equal(kvt_engram_fetch_submit(plan, &target, 1, &fetch), KVT_E_INVAL);
    assert_int_equal(kvt_engram_read(part, ROWS_A_PAGE, 1, rows), KVT_E_INVAL);
    assert_int_equal(kvt_engram_close(part), KVT_OK);
    assert_int_equal(kvt_engram_close(owner), KVT_OK);
    kvt_engram_plan_destroy(plan);
    kvt_engram_hasher_close(hasher);
    device_host_stream_destroy(device, stream);
}

/* Sealed memory with these bytes; `change` is made first. */
static int
memory_seal(const uint8_t *bytes, size_t size, int seals)
{
    int descriptor = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, bytes, size), (ssize_t)size);
    assert_int_equal(fcntl(descriptor, F_ADD_SEALS, seals), 0);
    return descriptor;
}

static void
refused_memory(const uint8_t *bytes, size_t size, int seals, enum kvt_status status)
{
    int descriptor = memory_seal(bytes, size, seals);
    kvt_engram *none = pinned.table;

    assert_int_equal(kvt_engram_open_shared(hbm.store, descriptor, &none), status);
    assert_null(none);
    assert_int_equal(close(descriptor), 0);
}

static void
what_others_share_is_not_believed(void **state)
{
    enum {
        ALL = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE,
        PAGES = 4,
    };
    static uint8_t bytes[(PAGES + 1) * PAGE_BYTES];
    kvt_engram *none;
    size_t size = sizeof(bytes);
    int descriptor;

    (void)state;
    assert_int_equal(
        kvt_engram_pin(pinned.table, (PAGES - 1) * ROWS_A_PAGE, KVT_ENGRAM_PIN_SHARED), KVT_OK);
    assert_int_equal(kvt_engram_share(pinned.table, &descriptor), KVT_OK);
    size -= PAGE_BYTES;
    assert_int_equal(pread(descriptor, bytes, size, 0), (ssize_t)size);
    descriptor = memory_seal(bytes, size, ALL);
    assert_int_equal(kvt_engram_open_shared(hbm.store, descriptor, &none), KVT_OK);
    assert_int_equal(kvt_engram_close(none), KVT_OK);
    assert_int_equal(close(descriptor), 0);
    assert_int_equal(kvt_engram_open_shared(hbm.store, descriptor, NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_open_shared(NULL, descriptor, &none), KVT_E_INVAL);
    assert_int_equal(kvt_engram_open_shared(hbm.store, -1, &none), KVT_E_INVAL);
    assert_int_equal(kvt_engram_open_shared(hbm.store, STDIN_FILENO, &none), KVT_E_INVAL);
    refused_memory(bytes, size, F_SEAL_SHRINK | F_SEAL_GROW, KVT_E_INVAL);
    refused_memory(bytes, size, F_SEAL_WRITE, KVT_E_INVAL);
    refused_memory(bytes, size - 1, ALL, KVT_E_INVAL);
    refused_memory(bytes, 0, ALL, KVT_E_INVAL);
    refused_memory(bytes, PAGE_BYTES, ALL, KVT_E_CORRUPT);
    refused_memory(bytes, size + PAGE_BYTES, ALL, KVT_E_CORRUPT);
    for (size_t at = 20; at < size; at += 997) {
        bytes[at] ^= 4;
        refused_memory(bytes, size, ALL, KVT_E_CORRUPT);
        bytes[at] ^= 4;
    }
    put_u16(bytes + 8, 2); /* A later version. */
    put_u32(bytes + 4, crc32c(0, bytes + 8, PAGE_BYTES - 8));
    refused_memory(bytes, size, ALL, KVT_E_FORMAT);
}

static void *
nothing_take(void *context, size_t size)
{
    (void)context;
    (void)size;
    return NULL;
}

static void
without_memory_or_descriptors_nothing_is_opened(void **state)
{
    const struct memory_ops *ops = hbm.store->env.memory;
    struct memory_ops poor = *ops;
    struct rlimit limit, none = {0};
    kvt_engram *shared;
    int descriptor;

    (void)state;
    assert_int_equal(kvt_engram_pin(pinned.table, 1, KVT_ENGRAM_PIN_SHARED), KVT_OK);
    assert_int_equal(kvt_engram_share(pinned.table, &descriptor), KVT_OK);
    poor.take = nothing_take;
    hbm.store->env.memory = &poor;
    assert_int_equal(kvt_engram_open_shared(hbm.store, descriptor, &shared), KVT_E_NOMEM);
    hbm.store->env.memory = ops;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none.rlim_cur = 1;
    none.rlim_max = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(kvt_engram_open_shared(hbm.store, descriptor, &shared), KVT_E_IO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(kvt_engram_open_shared(hbm.store, descriptor, &shared), KVT_OK);
    assert_int_equal(kvt_engram_close(shared), KVT_OK);
}

#define HBM(test) cmocka_unit_test_setup_teardown(test, pinned_setup, pinned_teardown)

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        HBM(another_process_reads_the_rows_and_either_may_die_first),
        HBM(a_shared_table_is_fetched_and_gathered_from),
        HBM(what_others_share_is_not_believed),
        HBM(without_memory_or_descriptors_nothing_is_opened),
    };

    stop_on_proof();
    if (argc == 2)
        return child_main(argv[1]);
    if (readlink("/proc/self/exe", own_path, sizeof(own_path) - 1) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
