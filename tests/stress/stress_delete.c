/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_delete.c - what a caller sees at once after a delete: nothing, on every thread, while the
 * loop that deletes is another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stop_on_proof.h"
#include "store_kit.h"

enum {
#if defined(__SANITIZE_THREAD__)
    ROUNDS = 1000,
#else
    ROUNDS = 50000,
#endif
    BATCH = 8,
};

/* Put a few blocks, delete them, and look for each as soon as its delete's stage 1 is reached. */
static void
round_run(kvt_store *store, kvt_namespace ns, uint64_t first, const void *bytes)
{
    struct payload_key names[BATCH];
    struct kvt_put puts[BATCH];
    struct kvt_key keys[BATCH];
    uint8_t tiers[BATCH];
    kvt_ticket *ticket = NULL;
    uint32_t leading = 0;

    memset(puts, 0, sizeof(puts));
    for (uint32_t i = 0; i < BATCH; i++) {
        payload_key_make(&names[i], first + i);
        keys[i] = names[i].key;
        puts[i].key = names[i].key;
        puts[i].source = bytes;
        puts[i].length = 100;
    }
    assert_int_equal(kvt_put_submit(store, ns, puts, BATCH, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    assert_int_equal(kvt_lookup(store, ns, keys, BATCH, tiers, &leading, NULL), KVT_OK);
    assert_int_equal(leading, BATCH);
    for (uint32_t i = 0; i < BATCH; i++) {
        assert_int_equal(kvt_delete_submit(store, ns, &keys[i], 1, NULL, &ticket), KVT_OK);
        while (kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0) == KVT_LATE)
            continue;
        assert_int_equal(kvt_lookup(store, ns, &keys[i], 1, tiers, &leading, NULL), KVT_OK);
        if (leading != 0)
            fail_msg("block %u is found behind its delete", (unsigned)(first + i));
        kvt_ticket_free(ticket);
    }
}

static void
no_lookup_finds_a_block_behind_its_delete(void **state)
{
    static const uint8_t bytes[4096] = {7};
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct kvt_options options = kit_options();
    kvt_store *store = NULL;
    kvt_namespace ns;

    (void)state;
    kit_dir_make(dir);
    snprintf(path, sizeof(path), "%s/store", dir);
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &ns), KVT_OK);
    for (uint64_t i = 0; i < ROUNDS / BATCH; i++)
        round_run(store, ns, i * BATCH, bytes);
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_lookup_finds_a_block_behind_its_delete),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
