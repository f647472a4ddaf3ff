/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - tells on stderr how far a long job is: a bar on a terminal once a second has passed,
 * and elsewhere a plain line now and then.
 */
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "quantity.h"

enum {
    BAR_WIDTH = 30
};

static const double first_seconds = 1.0;    /* Shorter jobs show nothing. */
static const double terminal_seconds = 0.1; /* Between two bars. */
static const double plain_seconds = 10.0;   /* Between two lines. */

uint64_t
clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double
clock_seconds(void)
{
    return (double)clock_ns() * 1e-9;
}

void
progress_begin(struct progress *progress, const char *title, enum progress_unit unit, uint64_t done,
    uint64_t total)
{
    double now = clock_seconds();

    *progress = (struct progress){
        .title = title,
        .unit = unit,
        .total = total,
        .start_done = done,
        .start_seconds = now,
        .shown_seconds = now,
        .is_terminal = isatty(STDERR_FILENO) == 1,
    };
}

void
progress_total(struct progress *progress, uint64_t total)
{
    progress->total = total;
}

/* "12,345/s", "0.4/s" or "1.61 GB/s". */
static const char *
rate_text(const struct progress *progress, char text[QUANTITY_TEXT_BYTES], double rate)
{
    if (progress->unit == PROGRESS_BYTES)
        return quantity_rate_text(text, rate);
    if (rate < 10) {
        snprintf(text, QUANTITY_TEXT_BYTES, "%.1f/s", rate);
        return text;
    }
    quantity_count_text(text, (uint64_t)rate);
    strncat(text, "/s", QUANTITY_TEXT_BYTES - strlen(text) - 1);
    return text;
}

/* How much is done of what nobody knows the end of. */
static void
show_endless(const struct progress *progress, uint64_t done, double rate)
{
    char texts[2][QUANTITY_TEXT_BYTES];

    if (progress->unit == PROGRESS_BYTES)
        quantity_bytes_text(texts[0], (double)done);
    else
        quantity_count_text(texts[0], done);
    fprintf(stderr, "%s%s %s, %s%s", progress->is_terminal ? "\r\033[K" : "", progress->title,
        texts[0], rate_text(progress, texts[1], rate), progress->is_terminal ? "" : "\n");
    fflush(stderr);
}

static void
show(const struct progress *progress, uint64_t done, double elapsed)
{
    char rate_buffer[QUANTITY_TEXT_BYTES];
    char bar[BAR_WIDTH + 1];
    double share = progress->total > 0 ? (double)done / (double)progress->total : 0;
    double rate = (double)(done - progress->start_done) / elapsed;
    double left = rate > 0 && done < progress->total ? (double)(progress->total - done) / rate : 0;
    size_t filled = 0;

    if (progress->total == 0) {
        show_endless(progress, done, rate);
        return;
    }
    if (share > 1)
        share = 1;
    filled = (size_t)(share * BAR_WIDTH);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', filled);
    bar[BAR_WIDTH] = '\0';
    rate_text(progress, rate_buffer, rate);
    if (progress->is_terminal)
        fprintf(stderr, "\r\033[K%s [%s] %3.0f%%  %s  %.0f s left", progress->title, bar,
            share * 100, rate_buffer, left);
    else
        fprintf(stderr, "%s %.0f%%, %s, %.0f s left\n", progress->title, share * 100, rate_buffer,
            left);
    fflush(stderr);
}

void
progress_at(struct progress *progress, uint64_t done)
{
    double now = clock_seconds();
    double elapsed = now - progress->start_seconds;
    double pause = progress->is_terminal ? terminal_seconds : plain_seconds;

    if (elapsed < first_seconds || now - progress->shown_seconds < pause ||
        done < progress->start_done)
        return;
    progress->shown_seconds = now;
    progress->was_shown = true;
    show(progress, done, elapsed);
}

void
progress_end(struct progress *progress)
{
    if (progress->was_shown && progress->is_terminal) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->was_shown = false;
}
