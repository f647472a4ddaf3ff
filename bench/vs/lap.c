/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lap.c - the callers of a lap: threads that take batches off one list.
 */
#include "lap.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "complain.h"
#include "progress.h"
#include "usage.h"

/* What the callers of a lap share. */
struct track {
    const struct lap *lap;
    sem_t ready;           /* Each caller posts it once ... */
    sem_t start;           /* ... and waits for this one. */
    atomic_uint next;      /* The first block that nobody has taken. */
    atomic_bool is_broken; /* A caller complained: the others stop. */
};

struct caller {
    struct track *track;
    uint32_t number;
    pthread_t thread;
};

static void
semaphore_take(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0 && errno == EINTR)
        continue;
}

static void *
caller_run(void *argument)
{
    struct caller *caller = argument;
    struct track *track = caller->track;
    const struct lap *lap = track->lap;

    sem_post(&track->ready);
    semaphore_take(&track->start);
    /* Relaxed: the semaphores and the joins order everything but the counter itself. */
    while (!atomic_load_explicit(&track->is_broken, memory_order_relaxed)) {
        uint32_t first =
            atomic_fetch_add_explicit(&track->next, lap->batch_blocks, memory_order_relaxed);
        uint32_t count = lap->batch_blocks;
        bool is_fine = false;

        if (first >= lap->block_count)
            break;
        if (count > lap->block_count - first)
            count = lap->block_count - first;
        is_fine =
            lap->is_put
                ? lap->peer->put_batch(lap->state, caller->number, &lap->blocks[first], count)
                : lap->peer->get_batch(lap->state, caller->number, &lap->blocks[first], count);
        if (!is_fine)
            atomic_store_explicit(&track->is_broken, true, memory_order_relaxed);
    }
    return NULL;
}

/* Starts them up to where they wait; how many there are. */
static uint32_t
callers_start(struct caller *callers, struct track *track)
{
    uint32_t count = 0;

    for (; count < track->lap->callers; count++) {
        callers[count] = (struct caller){.track = track, .number = count};
        if (pthread_create(&callers[count].thread, NULL, caller_run, &callers[count]) != 0)
            break;
    }
    for (uint32_t i = 0; i < count; i++)
        semaphore_take(&track->ready);
    return count;
}

/* Lets them run, and waits for the last of them. */
static void
callers_run(struct caller *callers, struct track *track, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sem_post(&track->start);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(callers[i].thread, NULL);
}

bool
lap_run(const struct lap *lap, struct lap_result *result)
{
    struct caller callers[PEER_CALLERS_MAX];
    struct track track = {.lap = lap};
    struct usage before;
    struct usage after;
    uint32_t count = 0;
    double start = 0;

    sem_init(&track.ready, 0, 0);
    sem_init(&track.start, 0, 0);
    count = callers_start(callers, &track);
    if (count < lap->callers) {
        complain("there are no %u threads to be had", lap->callers);
        atomic_store(&track.is_broken, true);
    }
    usage_now(&before);
    start = clock_seconds();
    callers_run(callers, &track, count);
    result->seconds += clock_seconds() - start;
    usage_now(&after);
    sem_destroy(&track.ready);
    sem_destroy(&track.start);
    result->cpu_seconds += after.cpu_seconds - before.cpu_seconds;
    result->read_bytes += after.read_bytes - before.read_bytes;
    result->block_count += lap->block_count;
    return !atomic_load(&track.is_broken);
}
