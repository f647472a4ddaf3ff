/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fates.c - what became of blocks that are not there: noted for each way to leave, kept over
 * a close, counted by misses; and a file of it that is missing or damaged is an empty table, never
 * an error.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "full_store.h"
#include "kvtier/kvtier_unstable.h"
#include "lease.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = KIT_BLOCK_BYTES_MAX,
    HOST_BLOCKS = 64,  /* Of them HOST holds. */
    MANY_BLOCKS = 400, /* More than HOST and NVMe hold. */
    FILE_BYTES_MAX = 2 << 20,
};

static char path[KIT_PATH_BYTES];
static char file_path[KIT_PATH_BYTES + 16];
static struct kvt_options options;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t bytes[FILE_BYTES_MAX];

static void
open_store(void)
{
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "fates", "", 0, &ns), KVT_OK);
}

static void
close_store(void)
{
    assert_int_equal(kvt_close(store), KVT_OK);
    store = NULL;
}

static int
setup(void **state)
{
    (void)state;
    kit_dir_make(path);
    (void)snprintf(file_path, sizeof(file_path), "%s/fates", path);
    options = kit_options();
    open_store();
    return 0;
}

/* HOST is all there is. */
static int
setup_host_only(void **state)
{
    (void)state;
    kit_dir_make(path);
    options = kit_options();
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    open_store();
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kvt_abort(store);
    store = NULL;
    kit_dir_remove(path);
    return 0;
}

static struct kvt_explanation
why_in(kvt_namespace space, uint64_t number)
{
    struct kvt_explanation why = {.struct_size = sizeof(why)};
    struct payload_key name;

    payload_key_make(&name, number);
    assert_int_equal(kvt_why(store, space, &name.key, &why), KVT_OK);
    if (why.fate != KVT_FATE_NONE) {
        assert_int_equal(why.tiers, 0);
        assert_true((time_t)why.when_seconds <= time(NULL) + 1);
        assert_true((time_t)why.when_seconds > time(NULL) - 600);
    }
    return why;
}

static struct kvt_explanation
why(uint64_t number)
{
    return why_in(ns, number);
}

static void
put(uint64_t number, enum kvt_durability durability)
{
    assert_int_equal(kit_put(store, ns, number, 1, BLOCK_BYTES, durability), KVT_OK);
}

static struct kvt_stats
stats(void)
{
    struct kvt_stats out = {.struct_size = sizeof(out)};

    assert_int_equal(kvt_stats_get(store, &out), KVT_OK);
    return out;
}

/* Of that kind among the first `count` blocks: how many. */
static uint32_t
count_of(enum kvt_fate kind, uint32_t count)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++)
        found += why(i).fate == (uint8_t)kind;
    return found;
}

static struct hash128
fingerprint_of(uint64_t number, struct block_key *key_out)
{
    struct payload_key name;

    payload_key_make(&name, number);
    assert_true(key_init(key_out, store->file.secret, ns.id, 0, name.key.bytes, name.key.length));
    return key_fingerprint(store->fingerprint_seed, key_out);
}

/* --- Each kind -------------------------------------------------------------------------------- */

static void
a_block_that_is_there_or_never_was_has_no_fate(void **state)
{
    (void)state;
    put(1, KVT_SYNC);
    assert_int_equal(why(1).tiers, KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(why(1).fate, KVT_FATE_NONE);
    assert_int_equal(why(2).tiers, 0);
    assert_int_equal(why(2).fate, KVT_FATE_NONE);
    assert_true(isnan(why(2).score) && isnan(why(2).cut));
    assert_int_equal(why(2).other.id, 0);
    assert_int_equal(stats().lookup_count, 0); /* Asking is no lookup. */
}

static void
what_memory_gave_up_says_by_which_score(void **state)
{
    uint32_t compared_count = 0;

    (void)state;
    for (uint64_t i = 0; i < HOST_BLOCKS * 2; i++)
        put(i, KVT_MEMORY);
    assert_true(count_of(KVT_FATE_EVICTED, HOST_BLOCKS * 2) >= HOST_BLOCKS);
    for (uint64_t i = 0; i < HOST_BLOCKS * 2; i++) {
        struct kvt_explanation each = why(i);

        if (each.fate != KVT_FATE_EVICTED)
            continue;
        assert_true(each.score > 0);
        compared_count += each.cut > 0;
    }
    /* All but the first have one to be compared with. */
    assert_true(compared_count + 1 >= HOST_BLOCKS);
}

static void
a_policy_without_scores_invents_none(void **state)
{
    (void)state;
    close_store();
    options.policy = KVT_POLICY_LRU;
    open_store();
    for (uint64_t i = 0; i < HOST_BLOCKS * 2; i++)
        put(i, KVT_MEMORY);
    assert_int_equal(why(0).fate, KVT_FATE_EVICTED);
    assert_true(isnan(why(0).score) && isnan(why(0).cut));
}

static void
what_nvme_gave_up_is_reclaimed(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < MANY_BLOCKS; i++)
        put(i, KVT_SYNC);
    assert_true(count_of(KVT_FATE_RECLAIMED, MANY_BLOCKS) > MANY_BLOCKS / 4);
    assert_int_equal(count_of(KVT_FATE_EVICTED, MANY_BLOCKS), 0);
}

/* In a world where blocks that are read again and again are known as such. */
static void
what_nvme_gave_up_says_what_was_kept(void **state)
{
    struct full_store *full = full_begin(7, FULL_SEGMENTS);
    uint32_t compared_count = 0;

    (void)state;
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full->options.policy = KVT_POLICY_GHI;
    full_open(full, 0);
    full_fill(full);
    for (uint32_t i = 0; i < FULL_BLOCKS * 2; i++)
        full_churn(full);
    for (uint64_t i = FULL_COLD; i < full->next_cold; i++) {
        struct kvt_explanation each = {.struct_size = sizeof(each)};
        struct payload_key name;

        payload_key_make(&name, i);
        assert_int_equal(kvt_why(full->store, full->ns, &name.key, &each), KVT_OK);
        if (each.fate != KVT_FATE_RECLAIMED)
            continue;
        assert_true(each.score > 0);
        compared_count += each.cut > 0;
    }
    assert_true(compared_count > 0);
    full_end(full);
}

static bool
admit_none(struct policy *policy, uint32_t number)
{
    (void)policy;
    (void)number;
    return false;
}

static void
worth_little(struct policy *policy, uint32_t number, struct policy_worth *worth_out)
{
    (void)policy;
    (void)number;
    *worth_out = (struct policy_worth){.worth_ns = 1000, .price_ns = 5000};
}

static struct policy_ops refusing;

static bool
refuse_run(struct kvt_store *opened, void *context)
{
    (void)context;
    refusing = *opened->policy->ops;
    refusing.admits = admit_none;
    refusing.worth = worth_little;
    opened->policy->ops = &refusing;
    return true;
}

static void
what_was_not_worth_a_write_is_refused(void **state)
{
    uint32_t count = 0;

    (void)state;
    loop_call(store, refuse_run, NULL);
    for (uint64_t i = 0; i < HOST_BLOCKS * 2; i++)
        put(i, KVT_MEMORY);
    for (uint64_t i = 0; i < HOST_BLOCKS * 2; i++) {
        struct kvt_explanation each = why(i);

        if (each.tiers != 0)
            continue;
        assert_int_equal(each.fate, KVT_FATE_REFUSED);
        assert_true(fabs(each.score - 1000) < 20);
        assert_true(fabs(each.cut - 5000) < 100);
        count++;
    }
    assert_true(count >= HOST_BLOCKS);
}

static void
a_damaged_block_says_so(void **state)
{
    struct hash128 fingerprint;
    struct block_key key;
    uint64_t version;
    uint32_t number;
    uint8_t tiers;

    (void)state;
    put(1, KVT_SYNC);
    close_store();
    open_store();
    fingerprint = fingerprint_of(1, &key);
    assert_int_equal(residency_find_pin(store->map, &fingerprint, &key, 1, &number, &tiers), 1);
    residency_at(store->map, number)->checksum.low ^= 1;
    lease_unpin(store, number);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_MISS);
    assert_int_equal(why(1).fate, KVT_FATE_DAMAGED);
    assert_int_equal(stats().miss_damaged_count, 1);
}

static void
a_delete_and_a_clear_are_told_apart(void **state)
{
    (void)state;
    put(1, KVT_SYNC);
    put(2, KVT_MEMORY);
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    assert_int_equal(why(1).fate, KVT_FATE_DELETED);
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    assert_int_equal(why(1).fate, KVT_FATE_DELETED);
    assert_int_equal(why(2).fate, KVT_FATE_CLEARED);
}

static void
a_put_that_found_no_room_says_so(void **state)
{
    kvt_reservation *reservations[HOST_BLOCKS + 1];
    struct payload_key name;
    struct kvt_put block = {.length = BLOCK_BYTES};
    uint32_t count = 0;
    void *memory;

    (void)state;
    payload_key_make(&name, 1);
    block.key = name.key;
    while (count <= HOST_BLOCKS &&
           kvt_reserve(store, ns, &block, &memory, &reservations[count]) == KVT_OK)
        count++;
    assert_int_equal(count, HOST_BLOCKS);
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_MEMORY), KVT_E_NOSPC);
    assert_int_equal(why(1).fate, KVT_FATE_PUT_FAILED);
    while (count > 0)
        kvt_discard(reservations[--count]);
}

static void
what_only_memory_had_is_gone_with_the_close(void **state)
{
    (void)state;
    put(1, KVT_MEMORY);
    put(2, KVT_SYNC);
    close_store();
    open_store();
    assert_int_equal(why(1).fate, KVT_FATE_CLOSED);
    assert_int_equal(why(2).tiers, KVT_TIER_NVME);
}

/* --- Coming back, and other namespaces -------------------------------------------------------- */

static void
a_block_that_comes_back_has_no_fate(void **state)
{
    (void)state;
    put(1, KVT_SYNC);
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    put(1, KVT_SYNC);
    assert_int_equal(why(1).fate, KVT_FATE_NONE);
    put(1, KVT_MEMORY); /* In the place of the other. */
    assert_int_equal(why(1).fate, KVT_FATE_NONE);
    /* And when it leaves again, that is what is told. */
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    assert_int_equal(why(1).fate, KVT_FATE_CLEARED);
}

static void
another_namespace_that_has_the_key_is_named(void **state)
{
    kvt_namespace other;

    (void)state;
    assert_int_equal(kvt_namespace_open(store, "other", "", 0, &other), KVT_OK);
    put(1, KVT_SYNC);
    assert_int_equal(why_in(other, 1).other.id, ns.id);
    assert_int_equal(why_in(other, 1).fate, KVT_FATE_NONE);
    assert_int_equal(why_in(ns, 1).other.id, 0);
}

/* --- Misses ----------------------------------------------------------------------------------- */

static void
misses_are_counted_by_their_reason(void **state)
{
    struct payload_key names[3];
    struct kvt_key keys[3];
    const struct kvt_match_component all = {.policy = KVT_MATCH_ALL};
    uint64_t version;
    uint32_t leading;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
        put(i, KVT_SYNC);
    }
    assert_int_equal(kvt_lookup(store, ns, keys, 3, NULL, &leading, NULL), KVT_OK);
    assert_int_equal(kit_get(store, ns, 2, &version), KVT_OK);
    assert_int_equal(stats().miss_unknown_count + stats().miss_deleted_count, 0);
    /* Of a lookup the first miss counts, whatever lies behind it. */
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    assert_int_equal(kit_delete(store, ns, 2), KVT_OK);
    assert_int_equal(kvt_lookup(store, ns, keys, 3, NULL, &leading, NULL), KVT_OK);
    assert_int_equal(leading, 1);
    assert_int_equal(stats().miss_deleted_count, 1);
    assert_int_equal(kvt_match(store, ns, keys, 3, &all, 1, &leading, NULL, NULL), KVT_OK);
    assert_int_equal(stats().miss_deleted_count, 2);
    assert_int_equal(kit_get(store, ns, 2, &version), KVT_MISS);
    assert_int_equal(stats().miss_deleted_count, 3);
    assert_int_equal(kit_get(store, ns, 3, &version), KVT_MISS);
    assert_int_equal(stats().miss_unknown_count, 1);
}

/* --- The file --------------------------------------------------------------------------------- */

/* A file with one fate, of block 1. */
static size_t
file_make(void)
{
    size_t size;

    put(1, KVT_SYNC);
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    close_store();
    size = kit_file_read(file_path, bytes, sizeof(bytes));
    assert_true(size > 0);
    return size;
}

static void
fates_outlive_a_close(void **state)
{
    struct kvt_explanation before;

    (void)state;
    put(1, KVT_SYNC);
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    before = why(1);
    close_store();
    open_store();
    assert_int_equal(why(1).fate, KVT_FATE_DELETED);
    assert_int_equal(why(1).when_seconds, before.when_seconds);
    /* A life in which nothing happens keeps them, and writes nothing. */
    close_store();
    assert_int_equal(unlink(file_path), 0);
    open_store();
    close_store();
    assert_int_equal(kit_file_read(file_path, bytes, sizeof(bytes)), 0);
    open_store();
    assert_int_equal(why(1).fate, KVT_FATE_NONE);
}

static void
an_abort_writes_nothing(void **state)
{
    (void)state;
    put(1, KVT_SYNC);
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    kvt_abort(store);
    store = NULL;
    assert_int_equal(kit_file_read(file_path, bytes, sizeof(bytes)), 0);
}

static void
a_damaged_file_is_an_empty_table(void **state)
{
    static uint8_t whole[FILE_BYTES_MAX];
    size_t size = file_make();

    (void)state;
    memcpy(whole, bytes, size);
    open_store();
    assert_int_equal(why(1).fate, KVT_FATE_DELETED);
    close_store();
    for (size_t damage = 0; damage < size * 2; damage++) {
        memcpy(bytes, whole, size);
        bytes[damage / 2] ^= 1;
        kit_file_write(file_path, bytes, damage % 2 == 0 ? size : damage / 2);
        open_store();
        assert_int_equal(why(1).fate, KVT_FATE_NONE);
        close_store();
    }
}

/* --- Asking ----------------------------------------------------------------------------------- */

static void
questions_that_make_no_sense_are_refused(void **state)
{
    struct kvt_explanation out = {.struct_size = sizeof(out)};
    struct payload_key name;
    uint64_t written;

    (void)state;
    payload_key_make(&name, 1);
    refused(kvt_why(NULL, ns, &name.key, &out), KVT_E_INVAL, "store");
    refused(kvt_why(store, ns, NULL, &out), KVT_E_INVAL, "keys");
    refused(kvt_why(store, (kvt_namespace){77}, &name.key, &out), KVT_E_INVAL, "namespace");
    refused(kvt_why(store, ns, &name.key, NULL), KVT_E_INVAL, "why_out");
    refused(kvt_why_read(path, "fates", &name.key, &out, NULL), KVT_E_INVAL, "NULL");
    refused(kvt_why_read(path, "fates", &name.key, NULL, &written), KVT_E_INVAL, "why_out");
    out.struct_size = 1;
    refused(kvt_why(store, ns, &name.key, &out), KVT_E_INVAL, "struct_size");
    refused(kvt_why_read(path, "fates", &name.key, &out, &written), KVT_E_INVAL, "struct_size");
    out.struct_size = sizeof(out);
    name.key.length = 0;
    refused(kvt_why(store, ns, &name.key, &out), KVT_E_INVAL, "length");
    refused(kvt_why_read(path, "fates", &name.key, &out, &written), KVT_E_INVAL, "length");
    payload_key_make(&name, 1);
    name.key.reserved0 = 1;
    refused(kvt_why(store, ns, &name.key, &out), KVT_E_INVAL, "reserved0");
    refused(kvt_why_read(path, "fates", &name.key, &out, &written), KVT_E_INVAL, "reserved0");
}

static void
an_open_store_is_read_without_its_owner(void **state)
{
    struct kvt_explanation out = {.struct_size = sizeof(out)};
    struct payload_key name;
    uint64_t written = 1;

    (void)state;
    payload_key_make(&name, 1);
    assert_int_equal(kvt_why_read(path, "fates", &name.key, &out, &written), KVT_OK);
    assert_int_equal(written, 0); /* Nothing was written yet. */
    assert_int_equal(out.fate, KVT_FATE_NONE);
    (void)file_make();
    open_store();
    assert_int_equal(kvt_why_read(path, "fates", &name.key, &out, &written), KVT_OK);
    assert_int_equal(out.fate, KVT_FATE_DELETED);
    assert_true((time_t)written <= time(NULL) + 1 && (time_t)written > time(NULL) - 600);
    payload_key_make(&name, 2);
    assert_int_equal(kvt_why_read(path, "fates", &name.key, &out, &written), KVT_OK);
    assert_int_equal(out.fate, KVT_FATE_NONE);
    /* A refusal writes nothing. */
    out.fate = KVT_FATE_DELETED;
    written = 1;
    refused(kvt_why_read(path, "absent", &name.key, &out, &written), KVT_MISS, "namespace");
    assert_int_equal(
        kvt_why_read("/dev/shm/there-is-none", "fates", &name.key, &out, &written), KVT_MISS);
    assert_int_equal(out.fate, KVT_FATE_DELETED);
    assert_int_equal(written, 1);
}

int
main(void)
{
#define OF_STORE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        OF_STORE(a_block_that_is_there_or_never_was_has_no_fate),
        cmocka_unit_test_setup_teardown(
            what_memory_gave_up_says_by_which_score, setup_host_only, teardown),
        cmocka_unit_test_setup_teardown(
            a_policy_without_scores_invents_none, setup_host_only, teardown),
        OF_STORE(what_nvme_gave_up_is_reclaimed),
        cmocka_unit_test(what_nvme_gave_up_says_what_was_kept),
        OF_STORE(what_was_not_worth_a_write_is_refused),
        OF_STORE(a_damaged_block_says_so),
        OF_STORE(a_delete_and_a_clear_are_told_apart),
        cmocka_unit_test_setup_teardown(
            a_put_that_found_no_room_says_so, setup_host_only, teardown),
        OF_STORE(what_only_memory_had_is_gone_with_the_close),
        OF_STORE(a_block_that_comes_back_has_no_fate),
        OF_STORE(another_namespace_that_has_the_key_is_named),
        OF_STORE(misses_are_counted_by_their_reason),
        OF_STORE(fates_outlive_a_close),
        OF_STORE(an_abort_writes_nothing),
        OF_STORE(a_damaged_file_is_an_empty_table),
        OF_STORE(questions_that_make_no_sense_are_refused),
        OF_STORE(an_open_store_is_read_without_its_owner),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
