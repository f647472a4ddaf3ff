/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_bench.c - `tierbench load`: a file to memory of a device.
 */
#include "load_bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "directory.h"
#include "json_writer.h"
#include "outputs.h"
#include "quantity.h"
#include "tierbench.h"

enum {
    OPTION_DIR,
    OPTION_DEVICE,
    OPTION_CHUNK,
    OPTION_MEMORY,
    OPTION_HOST,
    OPTION_ROUNDS,
    OPTION_SECONDS,
    OPTION_TRACE,
    OPTION_JSON,
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where the store lies while it runs; made when missing"},
    [OPTION_DEVICE] = {"--device", "KIND", "auto (default), cuda or emulation"},
    [OPTION_CHUNK] = {"--chunk", "SIZE", "of each chunk, whole pages of 4K (default 16M)"},
    [OPTION_MEMORY] = {"--memory", "SIZE",
        "of the device: with less than the file has, chunks\n"
        "take turns in it (default: as much as the file)"},
    [OPTION_HOST] = {"--host", "SIZE", "HOST capacity, an eighth of which stages (default 256M)"},
    [OPTION_ROUNDS] = {"--rounds", "N", "1 to 9 (default 3)"},
    [OPTION_SECONDS] = {"--seconds", "S", "for the disk's ceiling in each round (default 1)"},
    [OPTION_TRACE] = {"--trace", "FILE",
        "write the reads and copies of the last round there,\n"
        "for chrome://tracing or Perfetto"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_load_line = {
    .program = "tierbench",
    .command = "load",
    .operands = "FILE",
    .summary = "Measure loading a file to memory of a device, beside the disk and the bus.",
    .text =
        "Loads FILE with kvt_file_load(), chunk by chunk; of a file that ends in .safetensors its\n"
        "tensors. The disk's ceiling (reads of 1 MiB of the same file, the best of three depths)\n"
        "and the bus's (one copy of up to 256 MiB from pinned memory) are measured in turns with\n"
        "it. Every byte is compared in a round before those that count.\n"
        "\n"
        "JSON: \"file\", \"offset\", \"bytes\", \"is_safetensors\", \"tensor_count\", "
        "\"tensor_bytes\",\n"
        "\"chunk_bytes\", \"chunk_count\", \"memory_bytes\", \"is_emulated\" (the device), "
        "\"o_direct\",\n"
        "\"load_bytes_per_s\", \"first_chunk_ns\" (from the call until it is there),\n"
        "\"disk_bytes_per_s\", \"copy_bytes_per_s\", \"disk_share\", \"overlap\" (of the time in\n"
        "which something was copied, how much something was read as well), \"wrong_bytes\"",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

static void
figures_print_json(const struct load_plan *plan, const struct load_figures *figures)
{
    struct json json = JSON_INIT(stdout);
    const struct load_range *range = &figures->range;

    json_object_begin(&json, NULL);
    json_string(&json, "file", plan->path);
    json_number(&json, "offset", range->offset);
    json_number(&json, "bytes", range->length);
    json_bool(&json, "is_safetensors", range->is_safetensors);
    json_number(&json, "tensor_count", range->tensor_count);
    json_number(&json, "tensor_bytes", range->tensor_bytes);
    json_number(&json, "chunk_bytes", plan->chunk_bytes);
    json_number(&json, "chunk_count", figures->chunk_count);
    json_number(&json, "memory_bytes", plan->memory_bytes);
    json_bool(&json, "is_emulated", figures->is_emulated);
    json_bool(&json, "o_direct", figures->is_direct);
    json_real(&json, "load_bytes_per_s", figures->load_bytes_per_s);
    json_real(&json, "first_chunk_ns", figures->first_chunk_ns);
    json_real(&json, "disk_bytes_per_s", figures->disk_bytes_per_s);
    json_real(&json, "copy_bytes_per_s", figures->copy_bytes_per_s);
    json_real(&json, "disk_share", figures->load_bytes_per_s / figures->disk_bytes_per_s);
    json_real(&json, "overlap", figures->overlap);
    json_number(&json, "wrong_bytes", figures->wrong_bytes);
    json_object_end(&json);
    json_end(&json);
}

static void
figures_print(const struct load_plan *plan, const struct load_figures *figures)
{
    char text[QUANTITY_TEXT_BYTES];

    if (figures->is_emulated)
        printf("The device is emulated: copies are the host's, and late on purpose.\n");
    printf("%s: %s in %u chunks\n", plan->path,
        quantity_bytes_text(text, (double)figures->range.length), figures->chunk_count);
    if (figures->range.is_safetensors)
        printf("  %-32s %12" PRIu64 "\n", "tensors", figures->range.tensor_count);
    printf("  %-32s %12s  %6.3f of the disk\n", "loaded",
        quantity_rate_text(text, figures->load_bytes_per_s),
        figures->load_bytes_per_s / figures->disk_bytes_per_s);
    printf("  %-32s %12s%s\n", "disk", quantity_rate_text(text, figures->disk_bytes_per_s),
        figures->is_direct ? "" : "  (the page cache: no O_DIRECT here)");
    printf("  %-32s %12s\n", "bus", quantity_rate_text(text, figures->copy_bytes_per_s));
    printf("  %-32s %12s\n", "first chunk", quantity_time_text(text, figures->first_chunk_ns));
    printf("  %-32s %12.3f\n", "copies beside reads", figures->overlap);
    printf("compared: %" PRIu64 " wrong bytes\n", figures->wrong_bytes);
}

/* A size of whole pages; complained when not. */
static bool
size_read(const char *name, const char *text, uint64_t *size_out)
{
    if (text == NULL)
        return true;
    if (quantity_size(text, size_out) && *size_out > 0 && *size_out % 4096 == 0)
        return true;
    complain("%s %s is no size of whole pages of 4096 bytes", name, text);
    return false;
}

static bool
device_read(const char *kind, uint32_t *kind_out)
{
    static const char *const kinds[] = {"auto", "cuda", "emulation"}; /* As enum kvt_device_kind. */

    *kind_out = KVT_DEVICE_AUTO;
    for (uint32_t i = 0; kind != NULL && i < 3; i++) {
        if (strcmp(kind, kinds[i]) == 0) {
            *kind_out = i;
            return true;
        }
    }
    if (kind != NULL)
        complain("--device %s is none of auto, cuda, emulation", kind);
    return kind == NULL;
}

static bool
plan_read(const struct arguments *arguments, struct load_plan *plan)
{
    const char *rounds_text = arguments->values[OPTION_ROUNDS];
    const char *seconds_text = arguments->values[OPTION_SECONDS];
    uint64_t rounds = 3;

    *plan = (struct load_plan){.directory = arguments->values[OPTION_DIR],
        .path = arguments->operands[0],
        .chunk_bytes = 16 << 20,
        .host_bytes = 256 << 20,
        .seconds = 1};
    if (plan->directory == NULL) {
        complain("load needs --dir DIR");
        return false;
    }
    if (rounds_text != NULL &&
        (!quantity_count(rounds_text, &rounds) || rounds == 0 || rounds > LOAD_ROUNDS_MAX)) {
        complain("--rounds %s is no number of 1 to %d", rounds_text, LOAD_ROUNDS_MAX);
        return false;
    }
    plan->rounds = (uint32_t)rounds;
    if (seconds_text != NULL && !quantity_seconds(seconds_text, &plan->seconds)) {
        complain("--seconds %s is no time: seconds above 0", seconds_text);
        return false;
    }
    return device_read(arguments->values[OPTION_DEVICE], &plan->device_kind) &&
           size_read("--chunk", arguments->values[OPTION_CHUNK], &plan->chunk_bytes) &&
           size_read("--memory", arguments->values[OPTION_MEMORY], &plan->memory_bytes) &&
           size_read("--host", arguments->values[OPTION_HOST], &plan->host_bytes);
}

int
tierbench_load(int argc, char **argv)
{
    struct load_figures figures;
    struct arguments arguments;
    struct load_plan plan;
    struct outputs trace = {.csv_path = NULL, .plot_path = NULL};
    int exit_code = EXIT_FINE;
    bool is_told = true;

    if (!arguments_read(&tierbench_load_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!plan_read(&arguments, &plan))
        return EXIT_USAGE;
    trace.csv_path = arguments.values[OPTION_TRACE]; /* Looked at as another file of figures. */
    if (!outputs_check(&trace) || !directory_make(plan.directory) || !load_measure(&plan, &figures))
        return EXIT_PROBLEM;
    if (arguments.values[OPTION_JSON] != NULL)
        figures_print_json(&plan, &figures);
    else
        figures_print(&plan, &figures);
    if (trace.csv_path != NULL)
        is_told = load_trace_write(trace.csv_path, figures.chunks, figures.chunk_count);
    free(figures.chunks);
    return is_told && figures.wrong_bytes == 0 ? EXIT_FINE : EXIT_PROBLEM;
}
