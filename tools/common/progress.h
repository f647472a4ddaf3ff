/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - tells on stderr how far a long job is: a bar on a terminal once a second has passed,
 * and elsewhere a plain line now and then.
 *
 * Threads: one at a time.
 */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_unit {
    PROGRESS_COUNT,
    PROGRESS_BYTES
};

struct progress {
    const char *title;
    enum progress_unit unit;
    uint64_t total;
    uint64_t start_done; /* Work that was done before the clock started. */
    double start_seconds;
    double shown_seconds; /* When something was last printed. */
    bool is_terminal;
    bool was_shown;
};

/* progress_begin - starts the clock. `done` of `total` (0: nobody knows) are there already. */
void progress_begin(struct progress *progress, const char *title, enum progress_unit unit,
    uint64_t done, uint64_t total);

/* progress_total - the total is known only now, or has changed. */
void progress_total(struct progress *progress, uint64_t total);

/* progress_at - cheap; prints at most ten times a second. */
void progress_at(struct progress *progress, uint64_t done);

/* progress_end - wipes the bar. Harmless twice. */
void progress_end(struct progress *progress);

/* clock_seconds, clock_ns - of CLOCK_MONOTONIC. */
double clock_seconds(void);
uint64_t clock_ns(void);

#endif /* TOOLS_PROGRESS_H */
