/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_leases.c - as many threads as there may be leases look up and give back, faster than the
 * loop takes what they gave back, and none is ever refused; each lease has the block that it was
 * asked for. The loop meanwhile shows who has leases.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stop_on_proof.h"
#include "store_kit.h"

enum {
#if defined(__SANITIZE_THREAD__)
    ROUNDS = 20000,
#else
    ROUNDS = 200000,
#endif
    THREADS = 4,
    KEYS = 65, /* In every other lease: more than one holds without memory of its own. */
};

struct user {
    kvt_store *store;
    kvt_namespace ns;
    uint64_t number; /* Of its block. */
    uint32_t wrong_count;
};

static void *
user_run(void *context)
{
    struct user *user = context;
    struct payload_key name;
    struct kvt_key keys[KEYS];

    payload_key_make(&name, user->number);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = name.key;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t count = i % 2 == 0 ? 1 : KEYS;
        const void *address;
        uint64_t length = 0;
        kvt_lease lease;

        if (kvt_lookup(user->store, user->ns, keys, count, NULL, NULL, &lease) != KVT_OK) {
            user->wrong_count++;
            continue;
        }
        user->wrong_count += kvt_lease_address(user->store, lease, count - 1, KVT_TIER_HOST,
                                 &address, &length) != KVT_OK ||
                             length != 100 + user->number;
        kvt_lease_release(user->store, lease);
    }
    return NULL;
}

static void
who_gives_a_lease_back_may_have_another(void **state)
{
    struct kvt_options options = kit_options();
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    struct user users[THREADS];
    pthread_t threads[THREADS];
    char dir[KIT_PATH_BYTES];
    kvt_store *store;
    kvt_namespace ns;

    (void)state;
    kit_dir_make(dir);
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.lease_count_max = THREADS;
    assert_int_equal(kvt_open(dir, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        users[i] = (struct user){.store = store, .ns = ns, .number = i};
        assert_int_equal(kit_put(store, ns, i, 1, 100 + i, KVT_MEMORY), KVT_OK);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, user_run, &users[i]), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(users[i].wrong_count, 0);
    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    assert_int_equal(stats.lease_count_now, 0);
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_gives_a_lease_back_may_have_another),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
