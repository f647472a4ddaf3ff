/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers_main.c - tierbench-peers: what `tierbench vs` runs. It alone is linked with RocksDB and
 * SQLite.
 */
#include "complain.h"
#include "contest.h"
#include "directory.h"
#include "tierbench.h"
#include "vs_report.h"
#include "vs_settings.h"

static const struct peer *const peers[VS_PEERS] = {
    [VS_KVTIER] = &peer_kvtier,
    [VS_ROCKSDB] = &peer_rocksdb,
    [VS_SQLITE] = &peer_sqlite,
    [VS_FILES] = &peer_files,
    [VS_FILES_CACHED] = &peer_files_cached,
};

static struct contest_plan
plan_of(const struct vs_settings *settings)
{
    struct contest_plan plan = {
        .directory = settings->directory,
        .block_count = settings->block_count,
        .total_bytes = settings->total_bytes,
        .batch_blocks = settings->batch_blocks,
        .seconds = settings->seconds,
        .rounds = settings->rounds,
        .has_damage = settings->has_damage,
    };

    for (uint32_t i = 0; i < VS_PEERS; i++) {
        if (settings->has_peer[i])
            plan.peers[plan.peer_count++] = peers[i];
    }
    return plan;
}

/* Wrong and refused blocks of all peers at all sizes. */
static uint64_t
bad_blocks(const struct contest *contests, uint32_t count)
{
    uint64_t bad = 0;

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < contests[i].row_count; j++)
            bad += contests[i].rows[j].wrong_blocks + contests[i].rows[j].refused_blocks;
    }
    return bad;
}

static int
peers_vs(int argc, char **argv)
{
    static struct contest contests[VS_SIZES_MAX]; /* Large: not for the stack. */
    struct vs_settings settings;
    struct contest_plan plan;
    int exit_code = EXIT_FINE;

    if (!vs_settings_read(&settings, argc, argv, &exit_code))
        return exit_code;
    plan = plan_of(&settings);
    if (!outputs_check(&settings.outputs) || !directory_make(settings.directory))
        return EXIT_PROBLEM;
    for (uint32_t i = 0; i < settings.size_count; i++) {
        if (!contest_measure(&plan, settings.block_bytes[i], &contests[i]))
            return EXIT_PROBLEM;
    }
    if (!vs_report(&settings, contests, settings.size_count))
        return EXIT_PROBLEM;
    return bad_blocks(contests, settings.size_count) == 0 ? EXIT_FINE : EXIT_PROBLEM;
}

static const struct command commands[] = {
    {&tierbench_vs_line, peers_vs},
};

static const struct program program = {
    .name = "tierbench-peers",
    .about = "Does the work of `tierbench vs`.",
    .ending = "\nRun `tierbench vs` instead.",
    .commands = commands,
    .command_count = sizeof(commands) / sizeof(commands[0]),
};

int
main(int argc, char **argv)
{
    return program_run(&program, argc, argv);
}
