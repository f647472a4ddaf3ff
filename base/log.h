/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - lines for the operator, through the callback of the options; silent without one.
 *
 * One line a call, `key=value` pairs, no newline, units in the keys. Levels: error (someone must
 * act), warn (degraded), info (once per open or close), debug (once per block move). At most
 * LOG_RATE_PER_S lines of one level a second reach the callback; the next line that passes says
 * how many were held back.
 */
#ifndef KVT_BASE_LOG_H
#define KVT_BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#include "env.h"

enum log_level {
    LOG_ERROR,
    LOG_WARN,
    LOG_INFO,
    LOG_DEBUG,
    LOG_LEVEL_COUNT,
};

enum {
    LOG_RATE_PER_S = 50,
    LOG_LINE_BYTES = 512,
};

struct logger {
    void (*callback)(void *context, int level, const char *module, const char *line);
    void *context;
    enum log_level level_max;                 /* Lines above it are not made. */
    const struct kvt_env *env;                /* For the clock. */
    _Atomic uint64_t window[LOG_LEVEL_COUNT]; /* Second << 16 | lines that passed in it. */
    _Atomic uint32_t held_count[LOG_LEVEL_COUNT];
};

void log_line(struct logger *logger, enum log_level level, const char *module, const char *format,
    ...) __attribute__((format(printf, 4, 5)));

#endif /* KVT_BASE_LOG_H */
