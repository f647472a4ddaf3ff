/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_findings.h - what an examination of a store finds, printed as it comes, with a progress
 * bar; for check and scrub.
 */
#ifndef KVTOOL_FINDINGS_H
#define KVTOOL_FINDINGS_H

#include "json_writer.h"
#include "kvtier/kvtier_unstable.h"
#include "progress.h"

struct findings {
    const char *title; /* Of the progress bar. */
    bool as_json;
    bool has_begun;
    uint64_t printed_count;
    double start_seconds;
    struct progress progress;
    struct json json;
    struct kvt_check_report report;
};

/* findings_begin - `examiner_out` is for kvt_check() or kvt_scrub(). Ctrl-C gives up. */
void findings_begin(
    struct findings *findings, const char *title, bool as_json, struct kvt_examiner *examiner_out);

/* findings_note - one more, which has no place in a segment. */
void findings_note(struct findings *findings, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* findings_end - the sums, and the exit code: EXIT_PROBLEM when anything was found, or `status`
 * (whose sentence must be said before) is an error. */
int findings_end(struct findings *findings, enum kvt_status status);

#endif /* KVTOOL_FINDINGS_H */
