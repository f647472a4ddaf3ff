/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool.c - looks into a store, changes single blocks of it, and watches who has it open: picks
 * the command.
 */
#include "kvtool.h"

static const struct command commands[] = {
    {&kvtool_ls_line, kvtool_ls},
    {&kvtool_ns_line, kvtool_ns},
    {&kvtool_stat_line, kvtool_stat},
    {&kvtool_get_line, kvtool_get},
    {&kvtool_put_line, kvtool_put},
    {&kvtool_rm_line, kvtool_rm},
    {&kvtool_why_line, kvtool_why},
    {&kvtool_verify_line, kvtool_verify},
    {&kvtool_check_line, kvtool_check},
    {&kvtool_scrub_line, kvtool_scrub},
    {&kvtool_dump_line, kvtool_dump},
    {&kvtool_export_line, kvtool_export},
    {&kvtool_import_line, kvtool_import},
    {&kvtool_engram_line, kvtool_engram},
    {&kvtool_leases_line, kvtool_leases},
    {&kvtool_options_line, kvtool_options},
    {&kvtool_caps_line, kvtool_caps},
    {&kvtool_top_line, kvtool_top},
};

static const struct program kvtool = {
    .name = "kvtool",
    .about = "Looks into a kvtier store, changes single blocks of it, and watches who has it open.",
    .ending = "\n"
              "A KEY is namespace/hex or namespace/\"text\", with @component behind it.\n"
              "Exit codes: 0 done, 1 a problem was found or the work failed, 2 wrong command line.",
    .commands = commands,
    .command_count = sizeof(commands) / sizeof(commands[0]),
};

int
main(int argc, char **argv)
{
    return program_run(&kvtool, argc, argv);
}
