/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - `tierbench replay`: opens the store, verifies, replays, closes, reports.
 */
#include "replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "tierbench.h"

/* The directory that holds `path`: the store's own takes no strange files. */
static bool
parent_directory(const char *path, char *parent_out, size_t size)
{
    size_t length = strlen(path);
    const char *text = ".";

    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    if (length > 0)
        text = path;
    return snprintf(parent_out, size, "%.*s", length > 0 ? (int)length : 1, text) < (int)size;
}

/* The machine's limits for blocks of this size. Not fatal: the shares are left out then. */
static void
ceiling_take(struct replay *replay)
{
    static const uint32_t depths[] = {1, 8, 32};
    const struct replay_settings *settings = replay->settings;
    uint64_t piece = (settings->block_bytes + 4095) / 4096 * 4096;
    char parent[4096];
    const struct ceiling_plan plan = {
        .directory = parent,
        .file_bytes = UINT64_C(256) << 20,
        .seconds = settings->ceiling_seconds,
        .rounds = 1,
        .pieces = &piece,
        .piece_count = 1,
        .depths = depths,
        .depth_count = sizeof(depths) / sizeof(depths[0]),
    };

    if (settings->ceiling_seconds <= 0 || settings->trace_path == NULL ||
        !parent_directory(settings->directory, parent, sizeof(parent)))
        return;
    replay->has_ceiling = ceiling_measure(&replay->ceiling, &plan);
    if (!replay->has_ceiling) {
        complain("no ceilings: %s", replay->ceiling.message);
        memset(&replay->ceiling, 0, sizeof(replay->ceiling));
    }
}

static bool
replay_open(struct replay *replay)
{
    const struct replay_settings *settings = replay->settings;
    struct kvt_options options = KVT_OPTIONS_INIT;
    char description[64];
    enum kvt_status status = KVT_OK;

    options.flags = settings->verify_path != NULL ? KVT_OPEN_EXISTING : 0;
    options.hbm_capacity_bytes = settings->hbm_bytes;
    options.device_kind = settings->device_kind;
    options.host_capacity_bytes = settings->host_bytes;
    options.nvme_capacity_bytes = settings->nvme_bytes;
    options.io_engine = settings->io_engine;
    options.policy = settings->policy;
    status = kvt_open(settings->directory, &options, &replay->store);
    if (status == KVT_MISS) {
        complain("there is no store in %s", settings->directory);
        return false;
    }
    if (status != KVT_OK) {
        complain_status(status, "cannot open %s", settings->directory);
        return false;
    }
    status = kvt_options_get(replay->store, &options);
    if (status != KVT_OK) {
        complain_status(status, "the store does not say what it is");
        return false;
    }
    replay->device_kind = options.device_kind;
    snprintf(description, sizeof(description), "tierbench pattern 1, %llu bytes a block",
        (unsigned long long)settings->block_bytes);
    status =
        kvt_namespace_open(replay->store, "replay", description, strlen(description), &replay->ns);
    if (status != KVT_OK)
        complain_status(status, "cannot open the namespace replay");
    return status == KVT_OK;
}

/* Takes the last figures and closes. A store in trouble is left as a crash would leave it. */
static bool
replay_close(struct replay *replay, bool is_fine)
{
    enum kvt_status status = KVT_OK;

    replay->stats.struct_size = sizeof(replay->stats);
    if (replay->store == NULL)
        return false;
    if (!is_fine || replay->flights.queue == NULL) {
        kvt_abort(replay->store);
        replay->store = NULL;
        replay->flights.queue = NULL; /* Void with its store, as is the pool. */
        replay->flights.pool.address = NULL;
        flights_destroy(&replay->flights);
        return false;
    }
    status = kvt_stats_get(replay->store, &replay->stats);
    if (status != KVT_OK)
        complain_status(status, "there are no counters");
    flights_destroy(&replay->flights);
    status = kvt_close(replay->store);
    if (status != KVT_OK)
        complain_status(status, "cannot close %s", replay->settings->directory);
    replay->store = NULL;
    return status == KVT_OK;
}

/* The whole run behind the open: verify what is to verify, then replay. */
static bool
replay_steps(struct replay *replay, const uint64_t *numbers, uint64_t count, double open_start)
{
    if (!replay_open(replay))
        return false;
    replay->verified.open_seconds = clock_seconds() - open_start;
    if (numbers != NULL && !replay_answered(replay, numbers, count))
        return false;
    replay->verified.reopen_seconds = clock_seconds() - open_start;
    if (!flights_create(
            &replay->flights, replay->settings, replay->store, replay->ns, &replay->totals))
        return false;
    if (numbers != NULL && !replay_verify(replay, numbers, count))
        return false;
    return replay->settings->trace_path == NULL || replay_requests(replay);
}

static bool
replay_all(struct replay *replay)
{
    const struct replay_settings *settings = replay->settings;
    uint64_t *numbers = NULL;
    uint64_t count = 0;
    bool is_fine = false;

    if (settings->verify_path != NULL && !acks_read(settings->verify_path, &numbers, &count))
        return false;
    ceiling_take(replay);
    is_fine = replay_steps(replay, numbers, count, clock_seconds());
    is_fine = replay_close(replay, is_fine) && is_fine;
    free(numbers);
    return is_fine;
}

/* Why the exit code is not 0 although all was done. */
static bool
replay_judge(const struct replay *replay)
{
    const struct replay_totals *totals = &replay->totals;

    if (replay_is_fine(replay))
        return true;
    complain("not all is well: %" PRIu64 " wrong bytes, %" PRIu64 " leased blocks missing, %" PRIu64
             " acknowledged blocks lost, %" PRIu64 " blocks refused or not made durable",
        totals->wrong_bytes + replay->verified.wrong_bytes, totals->leased_miss_count,
        replay->verified.lost_count, totals->durable_failed_count);
    return false;
}

int
tierbench_replay(int argc, char **argv)
{
    static struct replay replay; /* Large: not for the stack. */
    struct replay_settings settings;
    char message[TRACE_MESSAGE_BYTES];
    int exit_code = EXIT_PROBLEM;

    if (!replay_settings_read(&settings, argc, argv, &exit_code))
        return exit_code;
    replay.settings = &settings;
    replay.stats.struct_size = sizeof(replay.stats);
    if (settings.trace_path != NULL && !trace_load(&replay.trace, settings.trace_path, message)) {
        complain("%s", message);
        return EXIT_PROBLEM;
    }
    exit_code = EXIT_PROBLEM;
    if (!outputs_check(&settings.outputs)) {
        trace_free(&replay.trace);
        return exit_code;
    }
    exit_code = EXIT_USAGE;
    if (replay_capacities(&settings, &replay.trace)) {
        exit_code = EXIT_PROBLEM;
        if (replay_all(&replay)) {
            bool is_told = replay_report(&replay);

            exit_code = replay_judge(&replay) && is_told ? EXIT_FINE : EXIT_PROBLEM;
        }
    }
    trace_free(&replay.trace);
    return exit_code;
}
