/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_course.c - a device's part of a small life (device_course.h).
 *
 * Blocks that the model does not know have keys that are kept as hashes, which it passes over.
 */
#include "device_course.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "workload_internal.h"

enum {
    SLOT_BYTES_MAX = 256 << 10, /* A quarter of a segment. */
    RAW_BYTES = 20000,          /* No whole number of pages. */
    RAW_COUNT = 4,              /* Blocks of the stream's part. */
    RAW_COMPLETIONS = 8,        /* More than can come. */
    FREE_ATTEMPTS = 8,          /* Of a hold: one call fails. */
    HOST_REGION = 8 * 4096,
};

static void
names_of(struct model_name *names, uint32_t space, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        names[i] = (struct model_name){.space = space, .key = first + i};
}

void
device_course_told(struct small_life *life, enum kvt_status status)
{
    uint32_t health = 0;

    if (status != KVT_E_GPU || life->work->store == NULL)
        return;
    if (kvt_health(life->work->store, &health) != KVT_OK || (health & KVT_HEALTH_GPU_LOST) == 0)
        model_fail(&life->work->model, "a call said KVT_E_GPU, and the health is %#x", health);
}

static bool
is_lost(const struct small_life *life)
{
    const struct device_host_config *device = &life->host.device;

    return device->fail_call != 0 && device->call_count >= device->fail_call &&
           (device->fail_status == KVT_OK || device->fail_status == KVT_E_GPU);
}

/* A status that a failing device may give. */
static bool
is_fine(struct small_life *life, const char *what, enum kvt_status status)
{
    device_course_told(life, status);
    return workload_expect(life->work, what, status);
}

/* --- 1. Between the tiers --------------------------------------------------------------------- */

static void
puts_of_all_kinds(struct workload *work)
{
    struct model_name names[BATCH_MAX];

    names_of(names, 0, 0, 4);
    work->device_percent = 100;
    workload_put(work, names, 4, KVT_SYNC, 0);
    names_of(names, 0, 4, 3); /* Key 6 is a long one. */
    workload_put(work, names, 3, KVT_RELAXED, 0);
    names_of(names, 2, 0, 4);
    workload_put(work, names, 4, KVT_MEMORY, 0);
    work->device_percent = 0;
    names_of(names, 1, 0, 3);
    workload_put(work, names, 3, KVT_SYNC, 0);
    workload_settle(work);
}

/* Every kind of copy: HBM to the device and to the host, HOST to the device. */
static void
gets_of_all_kinds(struct workload *work)
{
    work->device_percent = 100;
    workload_verify(work);
    work->device_percent = 0;
    workload_verify(work);
}

/* One block at a time: the device's copies are not joined, and fail alone. */
static void
move_each(struct workload *work, uint32_t space, uint32_t count, uint32_t tier, bool is_up)
{
    for (uint32_t key = 0; key < count; key++) {
        struct model_name name = {.space = space, .key = key};

        workload_move(work, &name, 1, tier, is_up);
    }
}

static void
moves_of_all_kinds(struct workload *work)
{
    struct model_name names[BATCH_MAX];

    move_each(work, 0, 3, KVT_TIER_NVME, false);
    names_of(names, 0, 0, 3);
    workload_move(work, names, 3, KVT_TIER_HBM, true);
    move_each(work, 1, 3, KVT_TIER_HBM, true);
    names_of(names, 1, 0, 3);
    workload_move(work, names, 3, KVT_TIER_HOST, false);
    move_each(work, 2, 2, KVT_TIER_NVME, false); /* Of MEMORY: the only copies are in HBM. */
    names_of(names, 0, 0, 3);
    workload_phase(work, names, 3, KVT_PHASE_IO_WAIT, KVT_FOREVER);
    workload_phase(work, names, 3, KVT_PHASE_DECODE, 0);
    names_of(names, 2, 0, 4);
    workload_phase(work, names, 4, KVT_PHASE_IO_WAIT, KVT_FOREVER);
    names_of(names, 0, 0, 8);
    workload_lookup(work, names, 8);
}

static void
changes_of_all_kinds(struct workload *work)
{
    struct model_name names[BATCH_MAX];

    work->device_percent = 100;
    names_of(names, 0, 0, 2);
    workload_put(work, names, 2, KVT_SYNC, KVT_PUT_REPLACE);
    names_of(names, 0, 2, 1);
    workload_delete(work, names, 1);
    workload_settle(work);
    workload_clear(work, 1);
    work->device_percent = 50;
}

/* --- 2. A program's own stream ---------------------------------------------------------------- */

/* What a kernel behind a hold has seen of a block, and what the get was answered. */
struct look {
    const int32_t *status;
    int32_t seen;
    enum kvt_status wanted;
    bool has_run;
    uint8_t bytes[RAW_BYTES];
};

struct program {
    struct small_life *life;
    struct device *device;
    void *stream, *event;
    kvt_queue *queue;
    struct payload_key keys[RAW_COUNT];
    uint32_t done[RAW_COMPLETIONS]; /* Completions of each submission. */
    uint32_t wanted[RAW_COMPLETIONS];
    uint32_t count;     /* Submissions. */
    struct look *looks; /* RAW_COUNT */
};

static struct kvt_submit
submit_next(struct program *program, uint32_t stages)
{
    program->wanted[program->count] = stages;
    return (struct kvt_submit){.queue = program->queue,
        .user = &program->done[program->count],
        .wait_event = program->event};
}

/* Every submission must be answered, each stage once. */
static void
program_collect(struct program *program)
{
    struct workload *work = program->life->work;
    struct kvt_completion done[RAW_COMPLETIONS];
    enum kvt_status status = kvt_queue_drain(program->queue, KVT_FOREVER);
    uint32_t count = 0;

    if (status != KVT_OK)
        model_fail(&work->model, "kvt_queue_drain: %s", kvt_status_name(status));
    status = kvt_queue_poll(program->queue, done, RAW_COMPLETIONS, 0, &count);
    for (uint32_t i = 0; status == KVT_OK && i < count; i++) {
        ++*(uint32_t *)done[i].user;
        device_course_told(program->life, done[i].status);
    }
    for (uint32_t i = 0; i < program->count; i++) {
        if (program->done[i] != program->wanted[i])
            model_fail(&work->model, "submission %u has %u completions instead of %u", i,
                program->done[i], program->wanted[i]);
    }
    memset(program->done, 0, sizeof(program->done));
    program->count = 0;
}

/* Blocks whose source is filled before, by an event; then what is there is read to the device. */
static void
program_put(struct program *program)
{
    struct workload *work = program->life->work;
    uint8_t bytes[RAW_BYTES];

    for (uint32_t i = 0; i < RAW_COUNT; i++) {
        struct kvt_submit submit = submit_next(program, 2);
        struct kvt_put put = {.key = program->keys[i].key,
            .source = (uint8_t *)work->pools[0].memory + (size_t)i * RAW_BYTES,
            .length = RAW_BYTES,
            .region = work->pools[0].region,
            .tier = i % 2 == 0 ? KVT_TIER_HBM : KVT_TIER_HOST};
        kvt_ticket *ticket;

        payload_fill(bytes, RAW_BYTES, i, 1);
        if (!is_fine(program->life, "kvt_device_write",
                kvt_device_write(work->store, 0, (void *)(uintptr_t)put.source, bytes, RAW_BYTES)))
            continue;
        if (!is_fine(program->life, "kvt_put_submit",
                kvt_put_submit(work->store, work->spaces[2], &put, 1, KVT_SYNC, &submit, &ticket)))
            continue;
        program->count++;
        kvt_ticket_free(ticket);
    }
    program_collect(program);
}

static void
look_run(void *context, void *memory)
{
    struct look *look = context;

    look->seen = *look->status;
    memcpy(look->bytes, memory, RAW_BYTES);
    look->has_run = true;
}

/* Kernels behind gets that have not begun; the hold is given back at once. */
static void
program_hold(struct program *program, kvt_ticket *ticket, const struct kvt_get *gets)
{
    uint32_t attempts = 0;
    enum kvt_status status;
    kvt_hold *hold;

    if (program->stream == NULL)
        return;
    status = kvt_hold_submit(ticket, 0, program->stream, 0, &hold);
    if (!is_fine(program->life, "kvt_hold_submit", status))
        return;
    for (uint32_t i = 0; i < RAW_COUNT; i++) {
        program->looks[i].status = kvt_hold_statuses(hold) + i;
        /* One that fails does not run. It is the program's own: the store is told of a loss that it
         * finds by the next call that fails for the store. */
        (void)device_host_launch(
            program->device, program->stream, look_run, &program->looks[i], gets[i].destination);
    }
    do
        status = kvt_hold_free(hold);
    while (status == KVT_E_NOMEM && ++attempts < FREE_ATTEMPTS);
    device_course_told(program->life, status);
    if (status != KVT_OK && status != KVT_E_GPU)
        model_fail(&program->life->work->model, "kvt_hold_free: %s", kvt_status_name(status));
}

/* The stream has done its work: kernels that ran were told what the host was told. */
static void
program_hold_check(struct program *program)
{
    struct model *model = &program->life->work->model;
    uint64_t version;

    for (uint32_t i = 0; i < RAW_COUNT; i++) {
        const struct look *look = &program->looks[i];

        if (look->has_run && look->seen != (int32_t)look->wanted)
            model_fail(model, "block %u: the kernel was told %s, the host %s", i,
                kvt_status_name((enum kvt_status)look->seen), kvt_status_name(look->wanted));
        if (look->has_run && look->seen == KVT_OK &&
            !payload_is_right(look->bytes, RAW_BYTES, i, &version))
            model_fail(model, "block %u behind a hold has wrong bytes", i);
    }
}

static void
program_get(struct program *program, bool to_device)
{
    static uint8_t bytes[RAW_COUNT][RAW_BYTES];
    struct workload *work = program->life->work;
    struct kvt_get gets[RAW_COUNT];
    struct kvt_result results[RAW_COUNT] = {{.status = KVT_MISS}};
    enum kvt_status status;
    kvt_ticket *ticket;
    uint64_t version;

    for (uint32_t i = 0; i < RAW_COUNT; i++) {
        gets[i] = (struct kvt_get){
            .key = program->keys[i].key, .destination = bytes[i], .capacity = RAW_BYTES};
        if (to_device) {
            gets[i].destination = (uint8_t *)work->pools[0].memory + (size_t)i * RAW_BYTES;
            gets[i].region = work->pools[0].region;
        }
    }
    memset(bytes, 0xEE, sizeof(bytes));
    status = kvt_get_submit(work->store, work->spaces[2], gets, RAW_COUNT,
        &(struct kvt_submit){.wait_event = program->event}, &ticket);
    if (!is_fine(program->life, "kvt_get_submit", status))
        return;
    if (to_device)
        program_hold(program, ticket, gets);
    if (kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER) != KVT_OK ||
        kvt_ticket_results(ticket, KVT_STAGE_DONE, results, RAW_COUNT) != KVT_OK)
        model_fail(&work->model, "a get beside a stream has no results");
    kvt_ticket_free(ticket);
    for (uint32_t i = 0; i < RAW_COUNT; i++) {
        device_course_told(program->life, results[i].status);
        if (to_device)
            program->looks[i].wanted = results[i].status;
        if (results[i].status != KVT_OK ||
            (to_device &&
                !is_fine(program->life, "kvt_device_read",
                    kvt_device_read(work->store, 0, bytes[i], gets[i].destination, RAW_BYTES))))
            continue;
        if (!payload_is_right(bytes[i], RAW_BYTES, i, &version))
            model_fail(&work->model, "block %u of the stream has wrong bytes", i);
    }
}

/* The stream reads leased copies; they are given back behind it. */
static void
program_lease(struct program *program)
{
    struct workload *work = program->life->work;
    struct kvt_key keys[RAW_COUNT];
    enum kvt_status status;
    kvt_lease lease;

    for (uint32_t i = 0; i < RAW_COUNT; i++)
        keys[i] = program->keys[i].key;
    status = kvt_lookup(work->store, work->spaces[2], keys, RAW_COUNT, NULL, NULL, &lease);
    if (!is_fine(program->life, "kvt_lookup", status) || lease.id == 0)
        return;
    status = kvt_lease_release_after(work->store, lease, 0, program->stream);
    device_course_told(program->life, status);
    if (status != KVT_OK && status != KVT_E_GPU)
        kvt_lease_release(work->store, lease);
}

/* A block from and to host memory that the device knows. */
static void
program_region(struct program *program)
{
    struct workload *work = program->life->work;
    uint8_t *memory = aligned_alloc(4096, HOST_REGION);
    struct kvt_region_options about = {.struct_size = sizeof(about),
        .tier = KVT_TIER_HOST,
        .address = memory,
        .size = HOST_REGION};
    kvt_region region;

    if (memory == NULL)
        abort();
    memset(memory, 0x33, HOST_REGION);
    if (is_fine(program->life, "kvt_region_register",
            kvt_region_register(work->store, &about, &region))) {
        struct kvt_submit submit = submit_next(program, 1);
        struct payload_key key;
        struct kvt_put put = {
            .source = memory, .length = RAW_BYTES, .region = region, .tier = KVT_TIER_HBM};
        kvt_ticket *ticket;

        payload_key_make(&key, 8 + 9 * RAW_COUNT);
        put.key = key.key;
        if (is_fine(program->life, "kvt_put_submit",
                kvt_put_submit(
                    work->store, work->spaces[2], &put, 1, KVT_MEMORY, &submit, &ticket))) {
            program->count++;
            kvt_ticket_free(ticket);
        }
        program_collect(program);
        is_fine(program->life, "kvt_region_unregister", kvt_region_unregister(work->store, region));
    }
    free(memory);
}

static void
program_run(struct small_life *life)
{
    struct workload *work = life->work;
    struct program program = {.life = life,
        .device = sim_store_device(work->store),
        .looks = calloc(RAW_COUNT, sizeof(*program.looks))};

    if (program.looks == NULL)
        abort();
    for (uint32_t i = 0; i < RAW_COUNT; i++)
        payload_key_make(&program.keys[i], 8 + 9 * (uint64_t)i);
    if (!workload_expect(work, "kvt_queue_create", kvt_queue_create(work->store, &program.queue))) {
        free(program.looks);
        return;
    }
    if (device_host_stream_create(program.device, &program.stream) != KVT_OK)
        program.stream = NULL;
    if (program.stream != NULL &&
        (program.device->ops->event_create(program.device, &program.event) != KVT_OK ||
            program.device->ops->event_record(program.device, program.event, program.stream) !=
                KVT_OK)) {
        program.device->ops->event_destroy(program.device, program.event);
        program.event = NULL;
    }
    program_put(&program);
    program_get(&program, true);
    program_get(&program, false);
    if (program.stream != NULL)
        program_lease(&program);
    program_region(&program);
    program.device->ops->event_destroy(program.device, program.event);
    device_host_stream_destroy(program.device, program.stream);
    program_hold_check(&program);
    free(program.looks);
    if (kvt_queue_destroy(program.queue) != KVT_OK)
        model_fail(&work->model, "a queue that is empty cannot be destroyed");
}

void
device_course(struct small_life *life)
{
    workload_events(life->work); /* From here on what they say is known. */
    puts_of_all_kinds(life->work);
    gets_of_all_kinds(life->work);
    moves_of_all_kinds(life->work);
    program_run(life);
    changes_of_all_kinds(life->work);
    gets_of_all_kinds(life->work);
}

/* --- 3. What must hold ------------------------------------------------------------------------ */

/* No crash would lose it: a lost device does not either. */
static bool
is_durable(const struct model_key *key)
{
    uint64_t states = key->kept;

    for (uint32_t i = 0; i < key->op_count; i++)
        states |= key->ops[i].pending;
    return (states & 1) == 0;
}

static void
durable_blocks_are_there(struct workload *work)
{
    struct model_name name;

    for (name.space = 0; name.space < MODEL_SPACES; name.space++) {
        for (name.key = 0; name.key < work->model.key_count; name.key++) {
            struct model_key *key = &work->model.keys[name.space][name.key];

            if (!is_durable(key))
                continue;
            /* A failed read is a miss: that proves nothing. */
            key->live = key->live == 1 ? key->kept : key->live & ~UINT64_C(1);
            workload_get(work, &name, 1, 0);
        }
    }
}

/* Health and device say the same. */
static void
health_is_right(struct small_life *life)
{
    const struct device_host_config *device = &life->host.device;
    struct workload *work = life->work;
    bool was_lost = is_lost(life);
    uint8_t bytes[64];
    uint32_t health = 0;
    bool says_lost;

    /* A lost device is noticed by its next call at the latest. */
    is_fine(life, "kvt_device_read",
        kvt_device_read(work->store, 0, bytes, work->pools[0].memory, sizeof(bytes)));
    if (kvt_health(work->store, &health) != KVT_OK)
        model_fail(&work->model, "kvt_health fails");
    says_lost = (health & KVT_HEALTH_GPU_LOST) != 0;
    if (says_lost ? !is_lost(life) : was_lost)
        model_fail(&work->model, "after call %u of %u the health is %#x", device->fail_call,
            device->call_count, health);
    if ((health & ~(uint32_t)(KVT_HEALTH_GPU_LOST | KVT_HEALTH_DEVICE_EMULATED |
                              KVT_HEALTH_IO_THREADS)) != 0)
        model_fail(&work->model, "a device fails, and the health is %#x", health);
}

/* Only slots that a lost device may still write to hold no block's copy. */
static void
slots_check(struct workload *work, const char *tier, uint64_t used_bytes, uint64_t block_bytes,
    uint64_t stranded_count)
{
    if (used_bytes < block_bytes || used_bytes - block_bytes > stranded_count * SLOT_BYTES_MAX)
        model_fail(&work->model, "%s: %llu bytes are used, blocks have %llu, %llu slots are lost",
            tier, (unsigned long long)used_bytes, (unsigned long long)block_bytes,
            (unsigned long long)stranded_count);
}

static void
slots_are_accounted(struct small_life *life)
{
    struct workload *work = life->work;
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    struct kvt_scan_entry entries[16];
    uint64_t host_bytes = 0, hbm_bytes = 0, cursor = 0;
    uint32_t count;

    (void)sim_run_for(life->host.world, UINT64_C(50) * 1000 * 1000);
    while (kvt_scan(work->store, &cursor, entries, 16, &count) == KVT_OK) {
        for (uint32_t i = 0; i < count; i++) {
            uint64_t bytes = round_up(entries[i].length, PAGE_BYTES);

            host_bytes += (entries[i].tiers & KVT_TIER_HOST) != 0 ? bytes : 0;
            hbm_bytes += (entries[i].tiers & KVT_TIER_HBM) != 0 ? bytes : 0;
        }
    }
    if (kvt_stats_get(work->store, &stats) != KVT_OK)
        model_fail(&work->model, "kvt_stats_get fails");
    if (stats.lease_count_now != 0)
        model_fail(&work->model, "%u leases are out", (unsigned)stats.lease_count_now);
    if (stats.slot_stranded_count != 0 && !is_lost(life))
        model_fail(&work->model, "slots are stranded, and no device is lost");
    slots_check(work, "HOST", stats.host_used_bytes_now, host_bytes, stats.slot_stranded_count);
    slots_check(work, "HBM", stats.hbm_used_bytes_now, hbm_bytes, stats.slot_stranded_count);
    if (hbm_bytes > 0 && is_lost(life))
        model_fail(&work->model, "copies in HBM of a lost device are shown");
}

/* Nobody has a lease or a pin: every copy can be given up. */
static void
copies_can_go(struct workload *work)
{
    struct model_name name;

    for (name.space = 0; name.space < MODEL_SPACES; name.space++) {
        for (name.key = 0; name.key < work->model.key_count; name.key++) {
            uint8_t bytes[WORKLOAD_KEY_BYTES];
            struct kvt_key key = workload_key(name, bytes);
            struct kvt_result result = {.status = KVT_MISS};
            kvt_ticket *ticket;

            if (kvt_demote_submit(work->store, work->spaces[name.space], &key, 1, KVT_TIER_NVME,
                    NULL, &ticket) != KVT_OK) {
                model_fail(&work->model, "a demotion is refused");
                return;
            }
            if (kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER) != KVT_OK ||
                kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1) != KVT_OK ||
                (result.status != KVT_OK && result.status != KVT_MISS))
                model_fail(&work->model, "space %u key %u: a demotion says %s", name.space,
                    name.key, kvt_status_name(result.status));
            kvt_ticket_free(ticket);
        }
    }
}

void
device_course_judge(struct small_life *life)
{
    struct workload *work = life->work;
    struct device_host_config *device = &life->host.device;
    uint32_t fail_call = device->fail_call;
    uint32_t spread_percent = work->spread_percent;
    uint32_t call_count;
    struct model_name names[2];

    for (uint32_t i = 0; i < LEASES_MAX; i++)
        lease_give_back(work, &work->leases[i]);
    health_is_right(life);
    /* What has not failed until now fails after this. */
    call_count = device->call_count;
    life->is_judging = true;
    if (call_count < fail_call)
        device->fail_call = 0;
    work->device_percent = 0;
    work->spread_percent = 0;
    work->is_faulty = false;
    durable_blocks_are_there(work);
    names_of(names, 1, 4, 2);
    workload_put(work, names, 2, KVT_SYNC, 0);
    workload_settle(work);
    workload_get(work, names, 2, 0);
    copies_can_go(work);
    workload_get(work, names, 2, 0);
    slots_are_accounted(life);
    workload_events(work);
    if (work->shadow_count == 0)
        model_fail(&work->model, "events and scan were not compared");
    durable_blocks_are_there(work);
    work->is_faulty = true;
    work->device_percent = 50;
    work->spread_percent = spread_percent;
    life->is_judging = false;
    if (call_count < fail_call)
        device->fail_call = fail_call + (device->call_count - call_count);
}
