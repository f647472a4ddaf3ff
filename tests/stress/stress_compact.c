/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_compact.c - threads look blocks up, and read what they lease, while blocks of two sizes
 * take HOST from each other, so that it is moved about: what is leased keeps its bytes.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "rng.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
#if defined(__SANITIZE_THREAD__)
    PHASES = 20,
#else
    PHASES = 60,
#endif
    THREADS = 3,
    SMALL_BYTES = 8 << 10,
    LARGE_BYTES = 20 << 10,
    HOST_BYTES = 8 << 20, /* Superblocks of 128 KiB. */
    SMALL_PUTS = 400,     /* Of a phase: more than half of HOST. */
    LARGE_PUTS = 200,
    NEAR = 900, /* Of so many that were put last a thread looks one up. */
};

static struct {
    kvt_store *store;
    kvt_namespace ns;
    _Atomic uint64_t put_count;
    _Atomic bool is_over;
} shared;

struct user {
    uint64_t seed;
    uint32_t hit_count, wrong_count;
};

static uint64_t
bytes_of(uint64_t number)
{
    return number % (SMALL_PUTS + LARGE_PUTS) < SMALL_PUTS ? SMALL_BYTES : LARGE_BYTES;
}

static void
lease_look(struct user *user, uint64_t number)
{
    const void *address, *again;
    uint64_t length, version = 0;
    struct payload_key name;
    kvt_lease lease;

    payload_key_make(&name, number);
    if (kvt_lookup(shared.store, shared.ns, &name.key, 1, NULL, NULL, &lease) != KVT_OK)
        return;
    if (kvt_lease_address(shared.store, lease, 0, KVT_TIER_HOST, &address, &length) == KVT_OK) {
        user->hit_count++;
        for (uint32_t i = 0; i < 3; i++)
            user->wrong_count += length != bytes_of(number) ||
                                 !payload_is_right(address, length, number, &version) ||
                                 version != 1;
        user->wrong_count +=
            kvt_lease_address(shared.store, lease, 0, KVT_TIER_HOST, &again, &length) != KVT_OK ||
            !payload_is_right(again, length, number, &version);
    }
    kvt_lease_release(shared.store, lease);
}

static void *
user_run(void *context)
{
    struct user *user = context;
    struct rng rng = {user->seed};

    while (!atomic_load_explicit(&shared.is_over, memory_order_relaxed)) {
        uint64_t put_count = atomic_load_explicit(&shared.put_count, memory_order_relaxed);
        uint64_t back = rng_below(&rng, NEAR) + 1u;

        if (put_count > back)
            lease_look(user, put_count - back);
    }
    return NULL;
}

static void
what_is_leased_keeps_its_bytes(void **state)
{
    struct kvt_options options = kit_options();
    struct user users[THREADS];
    pthread_t threads[THREADS];
    char dir[KIT_PATH_BYTES];

    (void)state;
    kit_dir_make(dir);
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.host_capacity_bytes = HOST_BYTES;
    options.policy = KVT_POLICY_LRU;
    assert_int_equal(kvt_open(dir, &options, &shared.store), KVT_OK);
    assert_int_equal(kvt_namespace_open(shared.store, "space", "", 0, &shared.ns), KVT_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        users[i] = (struct user){.seed = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, user_run, &users[i]), 0);
    }
    for (uint64_t i = 0; i < (uint64_t)PHASES * (SMALL_PUTS + LARGE_PUTS); i++) {
        assert_int_equal(kit_put(shared.store, shared.ns, i, 1, bytes_of(i), KVT_MEMORY), KVT_OK);
        atomic_store_explicit(&shared.put_count, i + 1, memory_order_relaxed);
    }
    atomic_store_explicit(&shared.is_over, true, memory_order_relaxed);
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(users[i].wrong_count, 0);
        assert_in_range(users[i].hit_count, 1, UINT32_MAX);
    }
    assert_int_not_equal(shared.store->compact_next, 0); /* Superblocks were emptied. */
    kit_audit(shared.store);
    assert_int_equal(kvt_close(shared.store), KVT_OK);
    kit_dir_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_leased_keeps_its_bytes),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
