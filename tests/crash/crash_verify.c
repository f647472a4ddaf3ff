/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_verify.c - what must hold of a store after a crash (crash_verify.h).
 */
#include "crash_verify.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>

#include "crash_departures.h"
#include "store_audit.h"

enum {
    GROUP = 16,
    BLOCK_BYTES = 65536,
    POISON = 0xA5,
    NEW_KEY = ORACLE_KEYS + 1, /* No workload has it. */
};

/* The store's first warning since it was opened: mostly the cause of what is then found wrong. */
struct warning {
    pthread_mutex_t lock; /* Lines come from any thread. */
    char text[256];
};

struct verify {
    struct verify_request *request;
    kvt_store *store;
    kvt_namespace namespaces[ORACLE_NAMESPACES];
    struct warning warning;
    struct departures departures; /* Of this opening. */
    bool has_left[ORACLE_KEYS];   /* For want of room: it may be missing. */
    bool is_deleted[ORACLE_KEYS]; /* Before the second opening. */
    bool is_second;
    uint64_t found[ORACLE_KEYS]; /* Versions, by the first opening. */
    char *problem;
    size_t problem_size;
};

static void
warning_keep(void *context, int level, const char *module, const char *line)
{
    struct warning *warning = context;

    (void)level;
    pthread_mutex_lock(&warning->lock);
    if (warning->text[0] == 0)
        snprintf(warning->text, sizeof(warning->text), "%s: %s", module, line);
    pthread_mutex_unlock(&warning->lock);
}

static bool problem(struct verify *verify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Always false. */
static bool
problem(struct verify *verify, const char *format, ...)
{
    va_list rest;

    va_start(rest, format);
    int used = vsnprintf(verify->problem, verify->problem_size, format, rest);
    va_end(rest);
    pthread_mutex_lock(&verify->warning.lock);
    if (used > 0 && (size_t)used < verify->problem_size && verify->warning.text[0] != 0)
        snprintf(verify->problem + used, verify->problem_size - (size_t)used, " (%s)",
            verify->warning.text);
    pthread_mutex_unlock(&verify->warning.lock);
    return false;
}

/* Always false: a call gave a status that it must not. */
static bool
refused(struct verify *verify, const char *call, enum kvt_status status)
{
    struct kvt_error error;

    kvt_last_error(&error);
    return problem(verify, "%s gave %s: %s", call, kvt_status_name(status), error.text);
}

static bool
open_store(struct verify *verify)
{
    const struct verify_request *request = verify->request;
    struct kvt_options options;
    struct run_paths paths;

    run_options(request->workload, request->dir, &paths, &options);
    /* What a crash leaves knows nothing of HBM: seldom with, mostly, and faster, without. */
    if (request->seed % 4 != 0)
        options.hbm_capacity_bytes = KVT_CAPACITY_NONE;
    options.log = warning_keep;
    options.log_context = &verify->warning;
    options.log_level = KVT_LOG_WARN;
    verify->warning.text[0] = 0;
    enum kvt_status status = kvt_open(paths.store, &options, &verify->store);
    if (status != KVT_OK)
        return refused(verify, "kvt_open", status);
    status = run_open_namespaces(verify->store, verify->namespaces);
    if (status != KVT_OK)
        return refused(verify, "kvt_namespace_open", status);
    return true;
}

/* What the store itself says about what it found. */
static bool
verify_counters(struct verify *verify)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    uint32_t health = 0;

    if (kvt_stats_get(verify->store, &stats) != KVT_OK ||
        kvt_health(verify->store, &health) != KVT_OK)
        return problem(verify, "no statistics");
    if ((health & ~(uint32_t)(KVT_HEALTH_IO_THREADS | KVT_HEALTH_DEVICE_EMULATED)) != 0)
        return problem(verify, "health is %u", health);
    if (verify->request->is_rebuild || !verify->request->oracle->is_open)
        return true;
    /* A record in the index means that its payload was synced before, and LMDB's commits are
     * atomic: a power cut damages nothing that is reachable. */
    if (stats.corrupt_count != 0 || stats.read_failed_count != 0)
        return problem(verify, "%" PRIu64 " damaged, %" PRIu64 " unreadable blocks",
            stats.corrupt_count, stats.read_failed_count);
    if (stats.recover_dropped_count != 0)
        return problem(verify, "%" PRIu64 " records were refused", stats.recover_dropped_count);
    /* A cut within a rebuild leaves an index that its kills are not durable for. */
    const char *other = verify->request->workload->rebuilds_for;
    if (stats.recover_rebuilt_count != 0 &&
        strstr(verify->warning.text, "index was not finished") == NULL &&
        (other == NULL || strstr(verify->warning.text, other) == NULL))
        return problem(verify, "the index was rebuilt although it was there");
    return true;
}

/* Of a destination: whole pages for the workload's longest block, and one that must stay as
 * it is. */
static uint64_t
verify_capacity(const struct verify *verify)
{
    uint64_t longest = verify->request->workload->block_high;

    if (longest == 0 || longest > BLOCK_BYTES - 4096)
        return BLOCK_BYTES;
    return (longest + 4095) / 4096 * 4096 + 4096;
}

static void
note_departure(void *context, uint32_t key, enum departure what)
{
    struct verify *verify = context;

    verify->has_left[key] = verify->has_left[key] || what != DEPARTURE_BACK;
    if (!verify->request->workload->may_leave)
        (void)problem(
            verify, "key %u: %s, of a tier that is never full", key, departure_marks[what]);
}

/* What has left in this opening. */
static bool
verify_departures(struct verify *verify)
{
    if (!departures_read(
            &verify->departures, verify->store, verify->namespaces, note_departure, verify))
        return problem(verify, "events were lost");
    return verify->problem[0] == 0;
}

/* The oracle learns what there is, for the next life. */
static void
verify_remember(struct verify *verify)
{
    struct oracle *oracle = verify->request->oracle;

    for (uint32_t key = 0; key < ORACLE_KEYS; key++) {
        if (oracle->keys[key].is_used)
            oracle_found(oracle, key, verify->found[key]);
        if (verify->has_left[key] && !oracle_depart(oracle, key, DEPARTURE_LEFT))
            run_fail("key %u left too often", key);
    }
}

/* It left for want of room: in the recorded life, in the openings of this judgement before the
 * present one, or in that. */
static bool
miss_is_explained(struct verify *verify, uint32_t number)
{
    return verify_departures(verify) && verify->has_left[number];
}

/* What the open found, beside a key that is wrong. */
static const char *
store_describe(const struct verify *verify, char *text, size_t size)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (kvt_stats_get(verify->store, &stats) != KVT_OK)
        return "no statistics";
    snprintf(text, size,
        "rebuilt %" PRIu64 ", records refused %" PRIu64 ", damaged %" PRIu64 ", unreadable %" PRIu64
        ", evicted since %" PRIu64,
        stats.recover_rebuilt_count, stats.recover_dropped_count, stats.corrupt_count,
        stats.read_failed_count, stats.nvme_evict_count);
    return text;
}

static bool
verify_answer(struct verify *verify, uint32_t number, const struct kvt_result *result,
    const uint8_t *bytes, bool is_transient)
{
    const struct verify_request *request = verify->request;
    const struct oracle *oracle = request->oracle;
    uint64_t version = 0;
    char allowed[256] = "", facts[256];

    if (result->status == KVT_OK) {
        if (result->length > BLOCK_BYTES ||
            !payload_is_right(bytes, result->length, number, &version))
            return problem(verify, "WRONG BYTES in key %u", number);
    } else if (result->status != KVT_MISS) {
        return problem(verify, "a get of key %u gave %s", number, kvt_status_name(result->status));
    } else if (!is_transient) {
        for (size_t i = 0; i < verify_capacity(verify); i += 509) {
            if (bytes[i] != POISON)
                return problem(verify, "a miss of key %u wrote to the destination", number);
        }
    }
    if (version == 0 && verify->is_deleted[number])
        return true;
    if (verify->is_deleted[number])
        return problem(verify, "key %u came back after its delete", number);
    if (!verify->is_second)
        verify->found[number] = version;
    if (verify->is_second ? version == verify->found[number]
                          : oracle_allows(oracle, number, version))
        return true;
    if (version == 0 && miss_is_explained(verify, number))
        return true;
    if (verify->problem[0] != 0)
        return false;
    oracle_describe(oracle, number, allowed, sizeof(allowed));
    if (verify->is_second)
        snprintf(allowed, sizeof(allowed), "%" PRIu64 ", as at the first", verify->found[number]);
    return problem(verify, "key %u has version %" PRIu64 ", allowed: %s; %s", number, version,
        allowed, store_describe(verify, facts, sizeof(facts)));
}

static bool
verify_group(struct verify *verify, const uint32_t *numbers, uint32_t count)
{
    static uint8_t targets[GROUP][BLOCK_BYTES] __attribute__((aligned(4096)));
    struct payload_key keys[GROUP];
    struct kvt_get gets[GROUP] = {0};
    struct kvt_result results[GROUP];
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;
    uint64_t capacity = verify_capacity(verify);
    bool is_transient = verify->request->seed % 3 == 0;

    for (uint32_t i = 0; i < count; i++) {
        payload_key_make(&keys[i], numbers[i]);
        gets[i] = (struct kvt_get){.key = keys[i].key,
            .destination = targets[i],
            .capacity = capacity,
            .flags = is_transient ? KVT_GET_TRANSIENT : 0};
    }
    for (uint32_t i = 0; i < count; i++)
        memset(targets[i], POISON, capacity);
    kvt_namespace ns = verify->namespaces[numbers[0] / ORACLE_NAMESPACE_KEYS];
    enum kvt_status status = kvt_get_submit(verify->store, ns, gets, count, &submit, &ticket);
    if (status == KVT_OK)
        status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, results, count);
    kvt_ticket_free(ticket);
    if (status != KVT_OK)
        return refused(verify, "a get", status);
    for (uint32_t i = 0; i < count; i++) {
        if (!verify_answer(verify, numbers[i], &results[i], targets[i], is_transient))
            return false;
    }
    return true;
}

typedef bool (*group_fn)(struct verify *verify, const uint32_t *numbers, uint32_t count);

/* Call for all keys with number % step == rest that a put named, in groups of one namespace. */
static bool
each_group(struct verify *verify, uint32_t step, uint32_t rest, group_fn call)
{
    uint32_t numbers[GROUP];
    uint32_t count = 0;

    for (uint32_t number = rest; number < ORACLE_KEYS; number += step) {
        bool is_boundary = number % ORACLE_NAMESPACE_KEYS == rest;
        if (count > 0 && (count == GROUP || is_boundary)) {
            if (!call(verify, numbers, count))
                return false;
            count = 0;
        }
        if (verify->request->oracle->keys[number].is_used)
            numbers[count++] = number;
    }
    return count == 0 || call(verify, numbers, count);
}

static bool
verify_keys(struct verify *verify)
{
    return each_group(verify, 1, 0, verify_group);
}

/* What the store counts, and what the headers say, is what there is: looked at while nothing is
 * under way. */
static bool
verify_accounts(struct verify *verify)
{
    struct store_audit audit = {.is_unused = true, .looks_at_headers = true};

    if (!store_audit(verify->store, &audit))
        return true;
    verify->request->was_audited = true;
    return audit.failure[0] == '\0' || problem(verify, "%s", audit.failure);
}

/* A new block can be put, becomes durable and can be read. */
static bool
verify_use(struct verify *verify)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct payload_key key;
    uint64_t version;
    struct kvt_submit submit = {0};
    struct kvt_result result = {0};
    kvt_ticket *ticket = NULL;

    payload_key_make(&key, NEW_KEY);
    payload_fill(bytes, 10000, NEW_KEY, 1);
    struct kvt_put put = {.key = key.key, .source = bytes, .length = 10000};
    put.flags = KVT_PUT_REPLACE;
    enum kvt_status status =
        kvt_put_submit(verify->store, verify->namespaces[0], &put, 1, KVT_SYNC, &submit, &ticket);
    if (status == KVT_OK)
        status = kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DURABLE, &result, 1);
    kvt_ticket_free(ticket);
    if (status != KVT_OK)
        return refused(verify, "a put", status);
    if (result.status != KVT_OK)
        return problem(verify, "a new block gave %s", kvt_status_name(result.status));
    struct kvt_get get = {.key = key.key, .destination = bytes, .capacity = sizeof(bytes)};
    memset(bytes, POISON, sizeof(bytes));
    status = kvt_get_submit(verify->store, verify->namespaces[0], &get, 1, &submit, &ticket);
    if (status == KVT_OK)
        status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1);
    kvt_ticket_free(ticket);
    if (status != KVT_OK || result.status != KVT_OK)
        return problem(verify, "the new block cannot be read");
    if (!payload_is_right(bytes, result.length, NEW_KEY, &version))
        return problem(verify, "WRONG BYTES in the new block");
    return true;
}

/* Delete one group of keys. */
static bool
delete_group(struct verify *verify, const uint32_t *numbers, uint32_t count)
{
    struct payload_key keys[GROUP];
    struct kvt_key list[GROUP];
    struct kvt_result results[GROUP];
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < count; i++) {
        payload_key_make(&keys[i], numbers[i]);
        list[i] = keys[i].key;
    }
    kvt_namespace ns = verify->namespaces[numbers[0] / ORACLE_NAMESPACE_KEYS];
    enum kvt_status status = kvt_delete_submit(verify->store, ns, list, count, &submit, &ticket);
    if (status == KVT_OK)
        status = kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, count);
    kvt_ticket_free(ticket);
    if (status != KVT_OK)
        return refused(verify, "a delete", status);
    for (uint32_t i = 0; i < count; i++) {
        if (results[i].status != KVT_OK && results[i].status != KVT_MISS)
            return problem(verify, "a delete of key %u gave %s", numbers[i],
                kvt_status_name(results[i].status));
        verify->is_deleted[numbers[i]] = true;
    }
    return true;
}

/* Delete every other key, so that the next opening shows whether anything of them was left. */
static bool
verify_delete(struct verify *verify)
{
    return each_group(verify, 2, (uint32_t)(verify->request->seed / 8 % 2), delete_group);
}

/* A second opening, after an orderly end or another sudden one, finds the same versions. */
static bool
verify_again(struct verify *verify, bool is_orderly)
{
    if (!verify->request->lives_on && !verify_delete(verify))
        return false;
    if (!departures_settle(verify->store))
        return problem(verify, "the store does not come to rest");
    if (!verify_departures(verify))
        return false;
    memset(&verify->departures, 0, sizeof(verify->departures));
    if (is_orderly) {
        enum kvt_status status = kvt_close(verify->store);
        if (status != KVT_OK)
            return refused(verify, "kvt_close", status);
    } else {
        kvt_abort(verify->store);
    }
    verify->store = NULL;
    verify->is_second = true;
    if (!open_store(verify) || !verify_accounts(verify) || !verify_keys(verify)) {
        size_t used = strlen(verify->problem);
        snprintf(verify->problem + used, verify->problem_size - used, " [at the second opening]");
        return false;
    }
    return true;
}

bool
crash_verify(struct verify_request *request, char *problem_out, size_t problem_size)
{
    struct verify verify = {
        .request = request, .problem = problem_out, .problem_size = problem_size};

    if (request->left != NULL)
        memcpy(verify.has_left, request->left, sizeof(verify.has_left));
    pthread_mutex_init(&verify.warning.lock, NULL);
    problem_out[0] = 0;
    bool is_right = open_store(&verify) && verify_accounts(&verify) && verify_keys(&verify) &&
                    verify_counters(&verify) && verify_use(&verify);
    if (is_right && request->seed % 4 == 0)
        is_right = verify_again(&verify, request->seed % 8 == 0);
    if (verify.store == NULL)
        return is_right;
    /* The new block may have been one too many for the tier. */
    if (request->lives_on && is_right && !departures_settle(verify.store))
        is_right = problem(&verify, "the store does not come to rest");
    is_right = is_right && verify_departures(&verify);
    if (is_right && request->lives_on)
        verify_remember(&verify);
    if (is_right && request->seed % 5 != 0) {
        enum kvt_status status = kvt_close(verify.store);
        if (status != KVT_OK)
            is_right = refused(&verify, "kvt_close", status);
        if (status == KVT_E_STATE)
            kvt_abort(verify.store);
    } else {
        kvt_abort(verify.store);
    }
    return is_right;
}
