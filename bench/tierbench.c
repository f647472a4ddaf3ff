/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench.c - measures kvtier against the machine that it runs on: picks the command.
 */
#include "tierbench.h"

static const struct command commands[] = {
    {&tierbench_replay_line, tierbench_replay},
    {&tierbench_ceiling_line, tierbench_ceiling},
    {&tierbench_sweep_line, tierbench_sweep},
    {&tierbench_scale_line, tierbench_scale},
    {&tierbench_engram_line, tierbench_engram},
    {&tierbench_load_line, tierbench_load},
    {&tierbench_gpu_line, tierbench_gpu},
    {&tierbench_vs_line, tierbench_vs},
    {&tierbench_sim_line, tierbench_sim},
};

static const struct program tierbench = {
    .name = "tierbench",
    .about = "Measures kvtier, and what the machine gives without it.",
    .ending =
        "\n"
        "Sizes take K, M, G and T (powers of two). Every byte that is read back is verified.\n"
        "Exit codes: 0 done, 1 wrong or lost data or the work failed, 2 wrong command line.",
    .commands = commands,
    .command_count = sizeof(commands) / sizeof(commands[0]),
};

int
main(int argc, char **argv)
{
    return program_run(&tierbench, argc, argv);
}
