/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_check.c - `kvtool check`: read every payload and every structure of a store, and tell what
 * is wrong with it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtool.h"
#include "progress.h"
#include "quantity.h"

/* A store can be wrong in millions of places; the rest is only counted. */
enum {
    FINDING_MAX = 1000
};

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_check_line = {
    .program = "kvtool",
    .command = "check",
    .operands = "DIR",
    .summary = "Read and verify everything in the store in DIR; change nothing.",
    .text =
        "JSON: {\"damaged\" (blocks that cannot be served), \"blocks\", \"read_bytes\",\n"
        "\"finding_count\", \"findings\" [{\"kind\", \"text\", \"segment\", \"page\"} ...] (the\n"
        "first 1000), \"elapsed_ns\", \"status\"}. The exit code is 1 when anything was found.",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

struct examination {
    bool as_json;
    bool has_begun; /* The progress clock runs. */
    uint64_t printed_count;
    struct progress progress;
    struct json json;
};

static void
finding_print(void *context, const struct kvt_finding *finding)
{
    struct examination *examination = context;
    struct json *json = &examination->json;

    if (examination->printed_count == FINDING_MAX)
        return;
    examination->printed_count++;
    if (!examination->as_json) {
        progress_end(&examination->progress);
        printf("%s: ", finding->kind);
        text_print(stdout, finding->text, 0);
        printf("\n");
        return;
    }
    json_object_begin(json, NULL);
    json_string(json, "kind", finding->kind);
    json_string(json, "text", finding->text);
    if (finding->segment != UINT32_MAX) {
        json_number(json, "segment", finding->segment);
        json_number(json, "page", finding->page);
    }
    json_object_end(json);
}

static void
progress_print(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct examination *examination = context;

    if (!examination->has_begun) {
        progress_begin(&examination->progress, "check", PROGRESS_BYTES, done_bytes, total_bytes);
        examination->has_begun = true;
    }
    progress_total(&examination->progress, total_bytes);
    progress_at(&examination->progress, done_bytes);
}

static void
report_print(struct examination *examination, const struct kvt_check_report *report, double seconds)
{
    char count[QUANTITY_TEXT_BYTES];
    char bytes[QUANTITY_TEXT_BYTES];
    char damaged[QUANTITY_TEXT_BYTES];

    if (report->finding_count > examination->printed_count)
        printf("... and %s more\n",
            quantity_count_text(count, report->finding_count - examination->printed_count));
    quantity_count_text(count, report->block_count);
    quantity_bytes_text(bytes, (double)report->block_bytes);
    quantity_count_text(damaged, report->damaged_count);
    printf("%s blocks, %s read in %.1f s, %s damaged", count, bytes, seconds, damaged);
    printf(", %s findings\n", quantity_count_text(count, report->finding_count));
}

static void
report_print_json(struct json *json, const struct kvt_check_report *report, enum kvt_status status,
    double seconds)
{
    json_array_end(json);
    json_number(json, "damaged", report->damaged_count);
    json_number(json, "blocks", report->block_count);
    json_number(json, "read_bytes", report->block_bytes);
    json_number(json, "finding_count", report->finding_count);
    json_number(json, "elapsed_ns", (uint64_t)(seconds * 1e9));
    json_string(json, "status", kvt_status_name(status));
    json_object_end(json);
    json_end(json);
}

static int
check(const char *path, struct examination *examination)
{
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    double start = clock_seconds();
    enum kvt_status status = KVT_OK;

    if (examination->as_json) {
        json_object_begin(&examination->json, NULL);
        json_array_begin(&examination->json, "findings");
    }
    status = kvt_check(path, finding_print, progress_print, examination, &report);
    progress_end(&examination->progress);
    if (status == KVT_MISS)
        complain("there is no store in %s", path);
    else if (status != KVT_OK)
        complain_status(status, "cannot check %s", path);
    if (examination->as_json)
        report_print_json(&examination->json, &report, status, clock_seconds() - start);
    else if (status == KVT_OK)
        report_print(examination, &report, clock_seconds() - start);
    if (status != KVT_OK || report.damaged_count > 0 || report.finding_count > 0)
        return EXIT_PROBLEM;
    return EXIT_FINE;
}

int
kvtool_check(int argc, char **argv)
{
    struct arguments arguments;
    struct examination examination = {.json = JSON_INIT(stdout)};
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_check_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    examination.as_json = arguments.values[OPTION_JSON] != NULL;
    return check(arguments.operands[0], &examination);
}
