/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_device.c - the n-th call of the device in a small life with three tiers fails, for every n:
 * once, as a call that finds no memory; and for good, as a device that is lost.
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
#else
    N_EACH = 48,
    N_STEP = 8,
#endif
};

static struct seeds seeds = {.first = 44, .count = 1};

static void
report(uint64_t seed, uint32_t n, enum kvt_status fail_status, const char *failure)
{
    print_error("seed %llu, call %u of the device gives %s: %s\n", (unsigned long long)seed, n,
        kvt_status_name(fail_status), failure);
    fail();
}

/* False: the life made fewer than n calls. */
static bool
life_with_failed_call(uint64_t seed, uint32_t n, enum kvt_status fail_status)
{
    char failure[MODEL_FAILURE_BYTES];
    struct small_life life;
    enum kvt_status status;
    char leaks[200];
    bool fired;

    small_life_init_hbm(&life, seed);
    life.is_judged = true;
    life.work->is_faulty = true;
    life.host.device.fail_call = n;
    life.host.device.fail_status = fail_status;
    status = small_life_run(&life);
    fired = life.host.device.call_count >= life.host.device.fail_call;
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
        report(seed, n, fail_status, failure);
    return fired;
}

static void
every_call_fails(enum kvt_status fail_status)
{
    for (uint64_t seed = seeds.first; seed < seeds.first + 1 + seeds.count / 16; seed++) {
        uint32_t offset = (uint32_t)((seed + 5) % N_STEP);
        uint32_t n = 1;

        while (n < N_LIMIT && life_with_failed_call(seed, n, fail_status))
            n += n < N_EACH ? 1 : n == N_EACH ? 1 + offset : N_STEP;
        print_message("seed %llu: calls 1 to %d and then each %dth from %u to %u\n",
            (unsigned long long)seed, N_EACH, N_STEP, N_EACH + 1 + offset, n);
        assert_in_range(n, 400, N_LIMIT - 1);
    }
}

static void
one_call_of_the_device_fails(void **state)
{
    (void)state;
    every_call_fails(KVT_E_NOMEM);
}

static void
the_device_is_lost_at_every_call(void **state)
{
    (void)state;
    every_call_fails(KVT_E_GPU);
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
