/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage_stores.c - thousands of damaged stores: each opens (by a rebuild perhaps, which is to be
 * asked for when the data file is missing), or is refused by name when no copy of STORE or none of
 * NAMES is whole; no byte is wrong; blocks that nothing happened to are there; what was deleted,
 * replaced or cleared stays away; kvt_check() names the damage; and the store works on.
 *
 * --seed N --seeds N.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "damage_plan.h"
#include "kvtier/kvtier_unstable.h"
#include "seeds.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 2520,
    /* Prime, so that all structures have their turn: */
    CHECK_EVERY = 11, /* one in so many stores is examined before it is opened, */
    REOPEN_EVERY = 7, /* and one in so many opened once more. */
    NEW_KEY = 900,
    FAILURE_BYTES = 600,
    KINDS_BYTES = 64,
};

struct rig {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct damage_fixture fixtures[FIXTURE_KIND_COUNT];
    uint8_t *memory; /* A destination for each key. */
    struct kvt_result results[DAMAGE_ALL_KEYS];
    uint64_t keys[DAMAGE_ALL_KEYS];
    uint64_t versions[DAMAGE_ALL_KEYS]; /* That were found; 0: a miss. */
    bool is_examined;        /* kvt_check() has named what keeps it from an open, at least. */
    char kinds[KINDS_BYTES]; /* What it named. */
    char failure[FAILURE_BYTES];
    bool may_evict; /* What was put since the last full reading has pushed out something. */
    uint32_t target_counts[TARGET_COUNT];
    uint32_t refused_count, examined_count, hit_count, miss_count;
};

static struct rig rig;

static void
fails(const char *format, ...)
{
    va_list arguments;

    if (rig.failure[0] != '\0')
        return;
    va_start(arguments, format);
    (void)vsnprintf(rig.failure, sizeof(rig.failure), format, arguments);
    va_end(arguments);
}

static int
setup(void **state)
{
    (void)state;
    kit_dir_make(rig.dir);
    (void)snprintf(rig.path, sizeof(rig.path), "%s/store", rig.dir);
    rig.memory = malloc((size_t)DAMAGE_ALL_KEYS * DAMAGE_BLOCK_BYTES_MAX);
    assert_non_null(rig.memory);
    for (int i = 0; i < FIXTURE_KIND_COUNT; i++)
        fixture_make(&rig.fixtures[i], (enum fixture_kind)i, rig.path);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    for (int i = 0; i < FIXTURE_KIND_COUNT; i++)
        fixture_free(&rig.fixtures[i]);
    free(rig.memory);
    kit_dir_remove(rig.dir);
    return 0;
}

/* --- Reading all of it ------------------------------------------------------------------------ */

/* All keys in first..first+count-1 of one namespace, into poisoned memory. */
static void
keys_get(kvt_store *store, const char *space, uint32_t first, uint32_t count)
{
    struct kvt_get gets[DAMAGE_ALL_KEYS] = {0};
    kvt_namespace ns;
    kvt_ticket *ticket;
    char description[200];

    memset(description, 'd', sizeof(description));
    if (kvt_namespace_open(store, space, description, sizeof(description), &ns) != KVT_OK) {
        fails("the namespace %s does not open", space);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        memset(rig.memory + (size_t)(first + i) * DAMAGE_BLOCK_BYTES_MAX, 0xA5,
            damage_length(first + i));
        rig.keys[first + i] = first + i;
        gets[i] = (struct kvt_get){
            .key = {.bytes = (const uint8_t *)&rig.keys[first + i], .length = sizeof(uint64_t)},
            .destination = rig.memory + (size_t)(first + i) * DAMAGE_BLOCK_BYTES_MAX,
            .capacity = DAMAGE_BLOCK_BYTES_MAX};
    }
    if (kvt_get_submit(store, ns, gets, count, NULL, &ticket) != KVT_OK ||
        kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER) != KVT_OK ||
        kvt_ticket_results(ticket, KVT_STAGE_DONE, rig.results + first, count) != KVT_OK)
        fails("the get was not taken");
    else
        kvt_ticket_free(ticket);
}

static void
key_judge(const struct damage *damage, const struct damage_fixture *fixture, uint64_t key)
{
    const struct known_block *block = &fixture->blocks[key];
    const struct kvt_result *result = &rig.results[key];
    const uint8_t *bytes = rig.memory + key * DAMAGE_BLOCK_BYTES_MAX;
    uint64_t version = 0;

    rig.versions[key] = 0;
    if (result->status == KVT_MISS) {
        rig.miss_count++;
        if (damage_must_hit(damage, fixture, key) && !rig.may_evict)
            fails("key %llu is missing", (unsigned long long)key);
        return;
    }
    if (result->status != KVT_OK) {
        fails("key %llu: %s", (unsigned long long)key, kvt_status_name(result->status));
        return;
    }
    rig.hit_count++;
    if (!payload_is_right(bytes, result->length, key, &version))
        fails("key %llu has wrong bytes", (unsigned long long)key);
    else if ((!block->is_live || version != block->version) &&
             !damage_may_return(damage, fixture, key))
        fails("key %llu came back with version %llu", (unsigned long long)key,
            (unsigned long long)version);
    rig.versions[key] = version;
}

static void
keys_judge(kvt_store *store, const struct damage *damage, const struct damage_fixture *fixture)
{
    keys_get(store, "kept", 0, DAMAGE_KEYS);
    keys_get(store, "cleared", DAMAGE_KEYS, DAMAGE_CLEARED_KEYS);
    for (uint64_t key = 0; key < DAMAGE_ALL_KEYS && rig.failure[0] == '\0'; key++)
        key_judge(damage, fixture, key);
}

/* --- Opening ---------------------------------------------------------------------------------- */

static void
refusal_judge(const struct damage *damage, enum kvt_status status)
{
    struct kvt_error error;

    kvt_last_error(&error);
    if (!damage_may_refuse(damage))
        fails("the open gave %s: %s", kvt_status_name(status), error.text);
    else if ((status != KVT_E_CORRUPT && status != KVT_E_INVAL) ||
             (strstr(error.text, "STORE") == NULL && strstr(error.text, "NAMES") == NULL))
        fails("refused with %s and no name: %s", kvt_status_name(status), error.text);
    rig.refused_count++;
}

/* It takes a new block, and gives it back. */
static void
work_judge(kvt_store *store, uint64_t version)
{
    uint64_t found = 0;
    kvt_namespace ns;

    if (kvt_namespace_open(store, "new", "", 0, &ns) != KVT_OK ||
        kit_put(store, ns, NEW_KEY, version, 3000, KVT_SYNC) != KVT_OK)
        fails("the store takes no new block");
    else if (kit_get(store, ns, NEW_KEY, &found) != KVT_OK || found != version)
        fails("the new block is not there");
}

/* Whether blocks left NVMe for want of room: only in a worn store, which is full. */
static bool
has_evicted(kvt_store *store)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (kvt_stats_get(store, &stats) != KVT_OK)
        fails("there are no statistics");
    return stats.nvme_evict_count > 0;
}

static void
must_name(const char *kind)
{
    if (strstr(rig.kinds, kind) == NULL)
        fails("kvt_check() names no %s, only: %s", kind, rig.kinds);
}

/* An index that an open did not believe is one that kvt_check() has named. */
static void
rebuild_judge(const struct damage *damage, kvt_store *store)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (kvt_stats_get(store, &stats) != KVT_OK)
        fails("there are no statistics");
    else if (rig.is_examined && stats.recover_rebuilt_count > 0 && !damage->data_gone)
        must_name("index");
}

/* What was found before is found again, unless the new block has made room for itself. */
static void
reopen_judge(const struct damage *damage, const struct damage_fixture *fixture)
{
    struct kvt_options options = damage_options();
    uint64_t versions[DAMAGE_ALL_KEYS];
    kvt_store *store;

    memcpy(versions, rig.versions, sizeof(versions));
    if (kvt_open(rig.path, &options, &store) != KVT_OK) {
        fails("it does not open again");
        return;
    }
    keys_judge(store, damage, fixture);
    for (uint64_t key = 0; key < DAMAGE_ALL_KEYS; key++) {
        if (versions[key] != rig.versions[key] && rig.failure[0] == '\0' &&
            !(rig.may_evict && rig.versions[key] == 0))
            fails("key %llu: version %llu, then %llu (0: none)", (unsigned long long)key,
                (unsigned long long)versions[key], (unsigned long long)rig.versions[key]);
    }
    work_judge(store, 2);
    if (kvt_close(store) != KVT_OK)
        fails("it does not close again");
}

/* The disk of a data file that is missing may be away: a new one is made only when that is asked
 * for. */
static enum kvt_status
store_open(const struct damage *damage, kvt_store **store_out)
{
    struct kvt_options options = damage_options();
    struct kvt_error error;
    enum kvt_status status = kvt_open(rig.path, &options, store_out);

    if (!damage->data_gone || damage_may_refuse(damage))
        return status;
    kvt_last_error(&error);
    if (status != KVT_E_IO || strstr(error.text, "data.00 is missing") == NULL)
        fails("without its data file it gave %s: %s", kvt_status_name(status), error.text);
    if (status == KVT_OK)
        return status;
    options.flags = KVT_OPEN_REBUILD;
    return kvt_open(rig.path, &options, store_out);
}

static void
open_judge(const struct damage *damage, const struct damage_fixture *fixture, uint64_t seed)
{
    kvt_store *store;
    enum kvt_status status = store_open(damage, &store);

    if (status != KVT_OK) {
        refusal_judge(damage, status);
        return;
    }
    rebuild_judge(damage, store);
    keys_judge(store, damage, fixture);
    work_judge(store, 1);
    rig.may_evict = has_evicted(store);
    if (rig.may_evict && fixture->kind != FIXTURE_WORN)
        fails("a store that is not full has evicted something");
    if (kvt_close(store) != KVT_OK)
        fails("it does not close");
    if (seed % REOPEN_EVERY == 0 && rig.failure[0] == '\0')
        reopen_judge(damage, fixture);
}

/* --- Examining -------------------------------------------------------------------------------- */

static void
found_note(void *context, const struct kvt_finding *finding)
{
    size_t used = strlen(rig.kinds);

    (void)context;
    if (strstr(rig.kinds, finding->kind) == NULL)
        (void)snprintf(rig.kinds + used, sizeof(rig.kinds) - used, "%s ", finding->kind);
    if (strlen(finding->text) < 20)
        fails("kvt_check() found %s, without a sentence", finding->kind);
}

/* A page of a live block is damaged where its checksum counts. */
static bool
payload_is_hurt(const struct damage *damage, const struct damage_fixture *fixture)
{
    for (uint64_t key = 0; key < DAMAGE_KEYS; key++) {
        const struct known_block *block = &fixture->blocks[key];

        for (uint32_t i = 0; i + 1 < block->page_count; i++) {
            if (damage->page_hurt[block->page + i] != 0)
                return true;
        }
    }
    return false;
}

static void
check_judge(const struct damage *damage, const struct damage_fixture *fixture)
{
    struct kvt_check_report report = {0};
    const struct kvt_examiner examiner = {.found = found_note};
    enum kvt_status status = kvt_check(rig.path, &examiner, &report);

    rig.examined_count++;
    if (status != KVT_OK && status != KVT_E_CORRUPT && !damage_may_refuse(damage))
        fails("kvt_check() gave %s", kvt_status_name(status));
    if (status != KVT_OK && status != KVT_E_INVAL && rig.kinds[0] == '\0')
        fails("kvt_check() gave %s and found nothing", kvt_status_name(status));
    rig.is_examined = status == KVT_OK || status == KVT_E_CORRUPT;
    if (status != KVT_OK)
        return;
    if (damage->store_hurt[0] || damage->store_hurt[1])
        must_name("store");
    if (damage->names_hurt[0] || damage->names_hurt[1])
        must_name("names");
    /* In a worn store most headers are of fills that have passed. */
    if (damage->header_hurt && !damage->header_gone && !damage->index_hurt &&
        fixture->kind != FIXTURE_WORN)
        must_name("header");
    if (damage->data_short)
        must_name("file");
    if (payload_is_hurt(damage, fixture) && !damage->index_hurt && !damage->data_short)
        must_name("payload");
}

/* --- One store -------------------------------------------------------------------------------- */

static void
store_run(const struct seeds *seeds, uint64_t seed)
{
    struct rng rng = {seed * UINT64_C(0x9E3779B97F4A7C15)};
    uint32_t kind = rng_below(&rng, 8);
    const struct damage_fixture *fixture = &rig.fixtures[kind == 0  ? FIXTURE_WORN
                                                         : kind < 3 ? FIXTURE_KILLED
                                                                    : FIXTURE_CLOSED];
    struct damage damage = {0};
    uint32_t pieces = rng_below(&rng, 4) == 0 ? 2 + rng_below(&rng, 3) : 1;

    fixture_write(fixture, rig.path);
    for (uint32_t tries = 0; pieces > 0; tries++) {
        /* The structures take turns; what comes on top is chance. */
        enum damage_target target = (enum damage_target)(
            (seed + (tries == 0 ? 0 : rng_below(&rng, TARGET_COUNT))) % TARGET_COUNT);
        if (damage_do(&damage, fixture, rig.path, target, &rng) || tries > 20)
            pieces--;
    }
    for (uint32_t i = 0; i < TARGET_COUNT; i++)
        rig.target_counts[i] += damage.targets >> i & 1;
    rig.failure[0] = '\0';
    rig.may_evict = rig.is_examined = false;
    rig.kinds[0] = '\0';
    if (seed % CHECK_EVERY == 0)
        check_judge(&damage, fixture);
    if (rig.failure[0] == '\0')
        open_judge(&damage, fixture, seed);
    if (rig.failure[0] != '\0') {
        char text[sizeof(rig.failure) + sizeof(damage.text) + 8];

        (void)snprintf(text, sizeof(text), "%s (%s)", rig.failure, damage.text);
        seeds_report(seeds, "damage", seed, text);
        fail();
    }
}

static void
damaged_stores_open_and_give_what_is_whole(void **state)
{
    const struct seeds *seeds = *state;

    for (uint64_t seed = seeds->first; seed < seeds->first + seeds->count; seed++)
        store_run(seeds, seed);
    print_message("  %llu damaged stores: %u refused by name, %u examined, %u hits, %u misses\n",
        (unsigned long long)seeds->count, rig.refused_count, rig.examined_count, rig.hit_count,
        rig.miss_count);
    for (uint32_t i = 0; i < TARGET_COUNT; i++) {
        print_message(
            "  %-14s %u\n", damage_target_name((enum damage_target)i), rig.target_counts[i]);
        if (seeds->count >= 1000) /* A run of one seed cannot say. */
            assert_true(rig.target_counts[i] > 0);
    }
    if (seeds->count >= 1000)
        assert_true(rig.refused_count > 0 && rig.miss_count > 0);
}

/* The judge is judged: without damage every live block must be there, and none of the others. */
static void
whole_stores_give_everything(void **state)
{
    (void)state;
    for (int i = 0; i < FIXTURE_KIND_COUNT; i++) {
        const struct damage none = {0};

        rig.failure[0] = '\0';
        rig.is_examined = false;
        fixture_write(&rig.fixtures[i], rig.path);
        open_judge(&none, &rig.fixtures[i], 0);
        if (rig.failure[0] != '\0')
            fail_msg("%s", rig.failure);
    }
}

int
main(int argc, char **argv)
{
    struct seeds seeds = {.first = 1, .count = SEEDS};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_stores_give_everything),
        cmocka_unit_test_prestate(damaged_stores_open_and_give_what_is_whole, &seeds),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    /* A store lives for milliseconds here: tables that it takes shall be pages that are cleared
     * when they are touched, not memory of the heap that is cleared at once. */
    (void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    return cmocka_run_group_tests(tests, setup, teardown);
}
