/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c - lines for the operator, at most LOG_RATE_PER_S of a level in one second.
 *
 * Threads   any. The second and the count of lines in it share a word, so that the limit holds
 *           however threads meet.
 */
#include "log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    COUNT_BITS = 16,
    HELD_BYTES = 32, /* Room for " held_back_count=4294967295". */
    NS_PER_SECOND = 1000000000,
};

_Static_assert(LOG_RATE_PER_S < 1 << COUNT_BITS, "the count has room in its word");

/* Whether one more line may pass now. */
static bool
rate_pass(struct logger *logger, enum log_level level)
{
    uint64_t second = logger->env->clock->now_ns(logger->env->clock_context) / NS_PER_SECOND;
    /* Relaxed throughout: the word guards no other memory. */
    uint64_t before = atomic_load_explicit(&logger->window[level], memory_order_relaxed);
    uint64_t after;

    do {
        uint64_t window_second = before >> COUNT_BITS;
        uint64_t count = before & ((1u << COUNT_BITS) - 1);

        /* A thread that was late to get here counts in the second that is running. */
        if (window_second >= second) {
            if (count >= LOG_RATE_PER_S)
                return false;
            after = before + 1;
        } else {
            after = second << COUNT_BITS | 1;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &logger->window[level], &before, after, memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* One line it shall be: names from outside may hold anything. */
static void
line_clean(char *line)
{
    for (; *line != '\0'; line++) {
        if ((unsigned char)*line < ' ' || *line == 0x7F)
            *line = '?';
    }
}

void
log_line(struct logger *logger, enum log_level level, const char *module, const char *format, ...)
{
    char line[LOG_LINE_BYTES];
    uint32_t held_count;
    va_list arguments;

    if (logger == NULL || logger->callback == NULL || level > logger->level_max)
        return;
    if (!rate_pass(logger, level)) {
        atomic_fetch_add_explicit(&logger->held_count[level], 1, memory_order_relaxed);
        return;
    }
    va_start(arguments, format);
    if (vsnprintf(line, sizeof(line) - HELD_BYTES, format, arguments) < 0)
        line[0] = '\0';
    va_end(arguments);
    held_count = atomic_exchange_explicit(&logger->held_count[level], 0, memory_order_relaxed);
    if (held_count != 0) {
        size_t length = strlen(line);

        (void)snprintf(
            line + length, sizeof(line) - length, " held_back_count=%" PRIu32, held_count);
    }
    line_clean(line);
    logger->callback(logger->context, (int)level, module, line);
}
