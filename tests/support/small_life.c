/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small_life.c - the fixed course of the fault tests.
 */
#include "small_life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_course.h"

enum {
    SMALL_LIFE_KEYS = 8,
    SPREAD_PERCENT = 30,
};

void
small_life_init(struct small_life *life, enum small_life_kind kind, uint64_t seed)
{
    static const char *const roots[] = {"/first", "/second"};
    struct sim_options world = {.seed = seed};
    struct kvt_options options = host_options_large();
    struct workload_host reach;

    memset(life, 0, sizeof(*life));
    life->kind = kind;
    options.host_capacity_bytes = UINT64_C(4) << 20;
    options.nvme_capacity_bytes = UINT64_C(12) << 20;
    if (kind == SMALL_LIFE_HBM) {
        options.hbm_capacity_bytes = UINT64_C(2) << 20;
        options.device_kind = KVT_DEVICE_EMULATION;
    }
    if (kind == SMALL_LIFE_ROOTS) {
        options.nvme_capacity_bytes = UINT64_C(16) << 20;
        options.roots = roots;
        options.root_count = 2;
    }
    sim_host_init(&life->host, &world, &options);
    life->host.device.delay_ns_max = 4000; /* Each look at an event is a call of the device. */
    reach = sim_host_of(&life->host);
    life->work = calloc(1, sizeof(*life->work));
    if (life->work == NULL) {
        fprintf(stderr, "small_life: out of memory\n");
        abort();
    }
    workload_init(life->work, &reach, seed, SMALL_LIFE_KEYS, 0);
    life->work->device_percent = kind == SMALL_LIFE_HBM ? 50 : 0;
    life->work->spread_percent = SPREAD_PERCENT;
}

void
small_life_deinit(struct small_life *life)
{
    sim_host_deinit(&life->host);
    workload_abandon(life->work);
    free(life->work);
}

static void
names_of(struct model_name *names, uint32_t space, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        names[i] = (struct model_name){.space = space, .key = first + i};
}

/* Every name that is used again must have landed. */
static void
course(struct small_life *life)
{
    struct workload *work = life->work;
    struct model_name names[BATCH_MAX];

    if (life->kind == SMALL_LIFE_HBM) {
        device_course(life);
        workload_flush(work);
        workload_scan(work);
        workload_stats(work);
        return;
    }

    names_of(names, 0, 0, 4);
    workload_put(work, names, 4, KVT_SYNC, 0);
    names_of(names, 0, 4, 3); /* Key 6 is a long one. */
    workload_put(work, names, 3, KVT_RELAXED, 0);
    names_of(names, 1, 0, 3);
    workload_put(work, names, 3, KVT_SYNC, 0);
    names_of(names, 2, 0, 2);
    workload_put(work, names, 2, KVT_MEMORY, 0);
    workload_settle(work);
    workload_verify(work);
    names_of(names, 0, 0, 2);
    workload_put(work, names, 2, KVT_SYNC, KVT_PUT_REPLACE);
    names_of(names, 0, 2, 1);
    workload_delete(work, names, 1);
    workload_settle(work);
    workload_clear(work, 1);
    names_of(names, 0, 0, 8);
    workload_lookup(work, names, 8);
    workload_flush(work);
    workload_scan(work);
    workload_stats(work);
}

enum kvt_status
small_life_run(struct small_life *life)
{
    struct workload *work = life->work;
    enum kvt_status status = workload_open(work, 0, false);

    if (status == KVT_OK) {
        course(life);
        if (life->is_judged)
            device_course_judge(life);
        (void)workload_close(work);
    }
    if (work->store != NULL) {
        device_course_told(life, status);
        (void)workload_close(work); /* Open, but without its namespaces. */
    }
    if (sim_crashed(life->host.world) || status != KVT_OK)
        return status;
    status = workload_open(work, 0, false);
    if (work->store != NULL)
        (void)workload_close(work);
    return status;
}

void
small_life_prove(struct small_life *life, bool is_rebuilt)
{
    struct workload *work = life->work;
    struct model_name names[2];
    char leaks[200];

    work->is_faulty = false;
    if (workload_open(work, 0, is_rebuilt) != KVT_OK)
        return;
    names_of(names, 2, 4, 2);
    workload_put(work, names, 2, KVT_SYNC, 0);
    (void)workload_close(work);
    if (work->model.failure[0] != '\0' || workload_open(work, 0, false) != KVT_OK)
        return;
    (void)workload_close(work);
    if (work->model.failure[0] == '\0' && sim_leaks(life->host.world, leaks, sizeof(leaks)) != 0)
        model_fail(&work->model, "left behind after close: %s", leaks);
    if (work->model.failure[0] == '\0' && sim_stuck(life->host.world))
        model_fail(&work->model, "a caller waited while nothing could happen");
}
