/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_device.c - the n-th call of the device in a small life with three tiers fails: once, as a
 * call that finds no memory; and for good, as a device that is lost. n is each copy's call, each
 * call of an open, and a share of the others, most of which look at events.
 *
 * No byte is wrong, every request is answered once, what was acknowledged is there in that life and
 * in the next one, HOST and NVMe go on, and the health says that the device is lost when it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "device_course.h"
#include "seeds.h"

enum {
    N_LIMIT = 20000, /* A life has far fewer calls. */
    /* Each of the first calls (an open), then a share of them: another one for each seed. */
#if defined(__SANITIZE_ADDRESS__)
    N_EACH = 12,
    N_STEP = 64,
    COPY_STEP = 5,
#else
    N_EACH = 48,
    N_STEP = 24,
    COPY_STEP = 1,
#endif
};

static struct seeds seeds = {.first = 1, .count = 1};

/* --- 1. Which call ---------------------------------------------------------------------------- */

/* The life whose copies are counted, until the one that fails. */
static struct {
    struct small_life *life;
    uint32_t count, fail_copy;
    struct kvt_device_ops ops; /* The emulation's, but for what follows. */
} watch;

static enum kvt_status
copy_watched(struct device *device, void *stream, const struct device_piece *pieces, uint32_t count)
{
    struct device_host_config *config = &watch.life->host.device;

    if (!watch.life->is_judging && ++watch.count == watch.fail_copy)
        config->fail_call = config->call_count + 1;
    return device_host_ops.copy(device, stream, pieces, count);
}

static enum kvt_status
open_watched(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = device_host_ops.open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        (*device_out)->ops = &watch.ops;
    return status;
}

static void
watch_begin(struct small_life *life, uint32_t fail_copy)
{
    watch.life = life;
    watch.count = 0;
    watch.fail_copy = fail_copy;
    watch.ops = device_host_ops;
    watch.ops.open = open_watched;
    watch.ops.copy = copy_watched;
    life->host.env.device = &watch.ops;
}

/* --- 2. A life -------------------------------------------------------------------------------- */

static void
report(uint64_t seed, const char *what, uint32_t n, const char *failure)
{
    print_error("seed %llu, %s %u fails: %s\n", (unsigned long long)seed, what, n, failure);
    fail();
}

/* False: the life made fewer than n calls, or copies. */
static bool
life_with_failure(uint64_t seed, bool is_copy, uint32_t n, enum kvt_status fail_status)
{
    char failure[MODEL_FAILURE_BYTES];
    struct small_life life;
    enum kvt_status status;
    char leaks[200];
    bool fired;

    small_life_init(&life, SMALL_LIFE_HBM, seed);
    life.is_judged = true;
    life.work->is_faulty = true;
    watch_begin(&life, is_copy ? n : 0);
    life.host.device.fail_call = is_copy ? 0 : n;
    life.host.device.fail_status = fail_status;
    status = small_life_run(&life);
    fired = life.host.device.fail_call != 0 &&
            life.host.device.call_count >= life.host.device.fail_call;
    watch.fail_copy = 0;
    if (status != KVT_OK && status != fail_status)
        model_fail(&life.work->model, "an open says %s", kvt_status_name(status));
    if (sim_leaks(life.host.world, leaks, sizeof(leaks)) != 0)
        model_fail(&life.work->model, "left behind after close: %s", leaks);
    life.host.device.fail_call = 0;
    if (life.work->model.failure[0] == '\0')
        small_life_prove(&life, false);
    snprintf(failure, sizeof(failure), "%s", life.work->model.failure);
    small_life_deinit(&life);
    if (failure[0] != '\0')
        report(seed, is_copy ? "copy" : "call of the device", n, failure);
    return fired;
}

static void
calls_fail(uint64_t seed, enum kvt_status fail_status)
{
    uint32_t offset = (uint32_t)(seed % N_STEP);
    uint32_t n = 1;

    while (n < N_LIMIT && life_with_failure(seed, false, n, fail_status))
        n += n < N_EACH ? 1 : n == N_EACH ? 1 + offset : N_STEP;
    assert_in_range(n, 400, N_LIMIT - 1);
    print_message("seed %llu: calls 1 to %d and then each %dth from %u to %u\n",
        (unsigned long long)seed, N_EACH, N_STEP, N_EACH + 1 + offset, n);
}

static void
copies_fail(uint64_t seed, enum kvt_status fail_status)
{
    uint32_t n = 1;

    while (n < N_LIMIT && life_with_failure(seed, true, n, fail_status))
        n += fail_status == KVT_E_GPU ? 2 * COPY_STEP : COPY_STEP;
    assert_in_range(n, 50, N_LIMIT - 1);
    print_message("seed %llu: copies 1 to %u, each %dth\n", (unsigned long long)seed, n, COPY_STEP);
}

static void
fail_everywhere(enum kvt_status fail_status)
{
    for (uint64_t seed = seeds.first; seed < seeds.first + 1 + seeds.count / 16; seed++) {
        calls_fail(seed, fail_status);
        copies_fail(seed, fail_status);
    }
}

static void
one_call_of_the_device_fails(void **state)
{
    (void)state;
    fail_everywhere(KVT_E_NOMEM);
}

static void
the_device_is_lost_at_every_call(void **state)
{
    (void)state;
    fail_everywhere(KVT_E_GPU);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_call_of_the_device_fails),
        cmocka_unit_test(the_device_is_lost_at_every_call),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
