/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_bench.c - `tierbench gpu`: every way to a device beside what bounds it, in one run.
 */
#include "gpu_bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "complain.h"
#include "directory.h"
#include "json_writer.h"
#include "quantity.h"
#include "tierbench.h"

enum {
    OPTION_DIR,
    OPTION_DEVICE,
    OPTION_HOST,
    OPTION_NVME,
    OPTION_PINNED,
    OPTION_SECONDS,
    OPTION_JSON,
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where stores and a file lie meanwhile; made when missing"},
    [OPTION_DEVICE] = {"--device", "KIND", "auto (default), cuda or emulation"},
    [OPTION_HOST] = {"--host", "SIZE", "of blocks in HOST, from 64M on (default 1G)"},
    [OPTION_NVME] = {"--nvme", "SIZE",
        "of blocks on NVMe, and of a file, from 128M on (default\n"
        "1G)"},
    [OPTION_PINNED] = {"--pinned", "SIZE", "of the HOST tier that is opened (default 4G)"},
    [OPTION_SECONDS] = {"--seconds", "S", "of each figure (default 2)"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_gpu_line = {
    .program = "tierbench",
    .command = "gpu",
    .operands = "",
    .summary = "Measure what reaches a device from HOST, NVMe and files, beside the ceilings.",
    .text =
        "Blocks of 64 KiB from HOST in batches of 256, eight batches in flight, beside one copy\n"
        "of 64 MiB from pinned memory; blocks of 1 MiB from NVMe, TRANSIENT and verified, in "
        "eight\n"
        "turns with reads of the same places in the file (medians); a file, as tierbench load has\n"
        "it; and how long an open with much pinned memory takes.\n"
        "Calls of the device that have no place in a steady state are counted.\n"
        "\n"
        "JSON: \"is_emulated\", \"copy_bytes_per_s\", \"host_bytes_per_s\", \"host_share\",\n"
        "\"loop_ns_per_block\", \"mover_ns_per_block\" (on a processor), "
        "\"steady_memory_count\",\n"
        "\"steady_pin_count\", \"steady_event_count\", \"nvme_bytes_per_s\", "
        "\"disk_bytes_per_s\",\n"
        "\"nvme_share\", \"load_bytes_per_s\", \"load_disk_bytes_per_s\", \"load_share\", "
        "\"overlap\",\n"
        "\"first_chunk_ns\", \"pinned_bytes\", \"open_ns\", \"first_use_ns\" (the open, and a "
        "first\n"
        "block on the device), \"wrong_bytes\"",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

static double
load_share(const struct gpu_figures *figures)
{
    return figures->load.load_bytes_per_s / figures->load.disk_bytes_per_s;
}

static void
figures_print_json(const struct gpu_plan *plan, const struct gpu_figures *figures)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_bool(&json, "is_emulated", figures->is_emulated);
    json_real(&json, "copy_bytes_per_s", figures->copy_bytes_per_s);
    json_real(&json, "host_bytes_per_s", figures->host_bytes_per_s);
    json_real(&json, "host_share", figures->host_bytes_per_s / figures->copy_bytes_per_s);
    json_real(&json, "loop_ns_per_block", figures->loop_ns_per_block);
    json_real(&json, "mover_ns_per_block", figures->mover_ns_per_block);
    json_number(&json, "steady_memory_count", figures->steady.memory_count);
    json_number(&json, "steady_pin_count", figures->steady.pin_count);
    json_number(&json, "steady_event_count", figures->steady.event_count);
    json_real(&json, "nvme_bytes_per_s", figures->nvme_bytes_per_s);
    json_real(&json, "disk_bytes_per_s", figures->disk_bytes_per_s);
    json_real(&json, "nvme_share", figures->nvme_share);
    json_real(&json, "load_bytes_per_s", figures->load.load_bytes_per_s);
    json_real(&json, "load_disk_bytes_per_s", figures->load.disk_bytes_per_s);
    json_real(&json, "load_share", load_share(figures));
    json_real(&json, "overlap", figures->load.overlap);
    json_real(&json, "first_chunk_ns", figures->load.first_chunk_ns);
    json_number(&json, "pinned_bytes", plan->pinned_bytes);
    json_real(&json, "open_ns", figures->open_ns);
    json_real(&json, "first_use_ns", figures->first_use_ns);
    json_number(&json, "wrong_bytes", figures->wrong_bytes);
    json_object_end(&json);
    json_end(&json);
}

static void
share_print(const char *what, double rate, double ceiling, double share)
{
    char texts[2][QUANTITY_TEXT_BYTES];

    printf("%-32s %12s of %12s  %6.3f\n", what, quantity_rate_text(texts[0], rate),
        quantity_rate_text(texts[1], ceiling), share);
}

static void
figures_print(const struct gpu_plan *plan, const struct gpu_figures *figures)
{
    char texts[3][QUANTITY_TEXT_BYTES];

    if (figures->is_emulated)
        printf("The device is emulated: copies are the host's, and late on purpose.\n");
    share_print("HOST to device, 64 KiB", figures->host_bytes_per_s, figures->copy_bytes_per_s,
        figures->host_bytes_per_s / figures->copy_bytes_per_s);
    printf("%-32s %9.0f ns loop, %.0f ns mover\n", "  a block on a processor",
        figures->loop_ns_per_block, figures->mover_ns_per_block);
    printf("%-32s %" PRIu64 " memory, %" PRIu64 " pinned, %" PRIu64 " events\n",
        "  taken meanwhile", figures->steady.memory_count, figures->steady.pin_count,
        figures->steady.event_count);
    share_print("NVMe to device, 1 MiB, cold", figures->nvme_bytes_per_s, figures->disk_bytes_per_s,
        figures->nvme_share);
    share_print("file to device", figures->load.load_bytes_per_s, figures->load.disk_bytes_per_s,
        load_share(figures));
    printf("open with %-22s %12s, to first use %s\n",
        quantity_bytes_text(texts[0], (double)plan->pinned_bytes),
        quantity_time_text(texts[2], figures->open_ns),
        quantity_time_text(texts[1], figures->first_use_ns));
    printf("compared: %" PRIu64 " wrong bytes\n", figures->wrong_bytes);
}

/* At least `minimum`; complained when not. */
static bool
size_read(const char *name, const char *text, uint64_t minimum, uint64_t *size_out)
{
    if (text == NULL)
        return true;
    if (quantity_size(text, size_out) && *size_out >= minimum && *size_out % (64 << 20) == 0)
        return true;
    complain("%s %s is no multiple of 64M from %" PRIu64 "M on", name, text, minimum >> 20);
    return false;
}

static bool
plan_read(const struct arguments *arguments, struct gpu_plan *plan)
{
    static const char *const kinds[] = {"auto", "cuda", "emulation"}; /* As enum kvt_device_kind. */
    const char *kind = arguments->values[OPTION_DEVICE];
    const char *seconds = arguments->values[OPTION_SECONDS];

    *plan = (struct gpu_plan){.directory = arguments->values[OPTION_DIR],
        .host_bytes = 1 << 30,
        .nvme_bytes = 1 << 30,
        .pinned_bytes = UINT64_C(4) << 30,
        .seconds = 2};
    if (plan->directory == NULL) {
        complain("gpu needs --dir DIR");
        return false;
    }
    while (kind != NULL && plan->device_kind < 3 && strcmp(kind, kinds[plan->device_kind]) != 0)
        plan->device_kind++;
    if (plan->device_kind == 3) {
        complain("--device %s is none of auto, cuda, emulation", kind);
        return false;
    }
    if (seconds != NULL && !quantity_seconds(seconds, &plan->seconds)) {
        complain("--seconds %s is no time: seconds above 0", seconds);
        return false;
    }
    return size_read("--host", arguments->values[OPTION_HOST], 64 << 20, &plan->host_bytes) &&
           size_read("--nvme", arguments->values[OPTION_NVME], 128 << 20, &plan->nvme_bytes) &&
           size_read("--pinned", arguments->values[OPTION_PINNED], 64 << 20, &plan->pinned_bytes);
}

int
tierbench_gpu(int argc, char **argv)
{
    struct gpu_figures figures;
    struct arguments arguments;
    struct gpu_plan plan;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&tierbench_gpu_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!plan_read(&arguments, &plan))
        return EXIT_USAGE;
    if (!directory_make(plan.directory) || !gpu_measure(&plan, &figures))
        return EXIT_PROBLEM;
    if (arguments.values[OPTION_JSON] != NULL)
        figures_print_json(&plan, &figures);
    else
        figures_print(&plan, &figures);
    return figures.wrong_bytes == 0 ? EXIT_FINE : EXIT_PROBLEM;
}
