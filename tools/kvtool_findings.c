/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_findings.c - what an examination of a store finds, printed as it comes.
 */
#include "kvtool_findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "interrupt.h"
#include "kvtool.h"
#include "quantity.h"

/* A store can be wrong in millions of places; the rest is only counted. */
enum {
    FINDING_MAX = 1000,
    NOTE_BYTES = 512
};

static void
finding_print(void *context, const struct kvt_finding *finding)
{
    struct findings *findings = context;
    struct json *json = &findings->json;

    if (findings->printed_count == FINDING_MAX)
        return;
    findings->printed_count++;
    if (!findings->as_json) {
        progress_end(&findings->progress);
        printf("%s: ", finding->kind);
        text_print(stdout, finding->text, 0);
        printf("\n");
        return;
    }
    json_object_begin(json, NULL);
    json_string(json, "kind", finding->kind);
    json_string(json, "text", finding->text);
    if (finding->segment != UINT32_MAX)
        json_number(json, "segment", finding->segment);
    if (finding->page != UINT32_MAX)
        json_number(json, "page", finding->page);
    json_object_end(json);
}

static int
progress_print(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct findings *findings = context;

    if (!findings->has_begun)
        progress_begin(&findings->progress, findings->title, PROGRESS_BYTES, 0, total_bytes);
    findings->has_begun = true;
    progress_at(&findings->progress, done_bytes);
    return !interrupt_came();
}

void
findings_begin(
    struct findings *findings, const char *title, bool as_json, struct kvt_examiner *examiner_out)
{
    *findings = (struct findings){
        .title = title,
        .as_json = as_json,
        .start_seconds = clock_seconds(),
        .json = JSON_INIT(stdout),
        .report = {.struct_size = sizeof(findings->report)},
    };
    *examiner_out = (struct kvt_examiner){finding_print, progress_print, findings};
    interrupt_watch();
    if (as_json) {
        json_object_begin(&findings->json, NULL);
        json_array_begin(&findings->json, "findings");
    }
}

void
findings_note(struct findings *findings, const char *kind, const char *format, ...)
{
    char text[NOTE_BYTES];
    const struct kvt_finding finding = {
        .kind = kind, .text = text, .segment = UINT32_MAX, .page = UINT32_MAX};
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    findings->report.finding_count++;
    finding_print(findings, &finding);
}

static void
report_print(const struct findings *findings, double seconds)
{
    const struct kvt_check_report *report = &findings->report;
    char texts[5][QUANTITY_TEXT_BYTES];

    if (report->finding_count > findings->printed_count)
        printf("... and %s more\n",
            quantity_count_text(texts[0], report->finding_count - findings->printed_count));
    printf("%s blocks, %s read in %.1f s (%s), %s damaged",
        quantity_count_text(texts[0], report->block_count),
        quantity_bytes_text(texts[1], (double)report->block_bytes), seconds,
        quantity_rate_text(texts[2], seconds > 0 ? (double)report->block_bytes / seconds : 0),
        quantity_count_text(texts[3], report->damaged_count));
    printf(", %s findings\n", quantity_count_text(texts[4], report->finding_count));
}

int
findings_end(struct findings *findings, enum kvt_status status)
{
    const struct kvt_check_report *report = &findings->report;
    struct json *json = &findings->json;
    double seconds = clock_seconds() - findings->start_seconds;

    progress_end(&findings->progress);
    if (findings->as_json) {
        json_array_end(json);
        json_number(json, "damaged", report->damaged_count);
        json_number(json, "blocks", report->block_count);
        json_number(json, "read_bytes", report->block_bytes);
        json_number(json, "finding_count", report->finding_count);
        json_number(json, "elapsed_ns", (uint64_t)(seconds * 1e9));
        json_string(json, "status", kvt_status_name(status));
        json_object_end(json);
        json_end(json);
    } else if (status == KVT_OK) {
        report_print(findings, seconds);
    }
    if (status != KVT_OK || report->damaged_count > 0 || report->finding_count > 0)
        return EXIT_PROBLEM;
    return EXIT_FINE;
}
