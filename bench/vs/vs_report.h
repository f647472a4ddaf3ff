/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vs_report.h - what `tierbench vs` found: a table or JSON, CSV, a picture.
 */
#ifndef BENCH_VS_REPORT_H
#define BENCH_VS_REPORT_H

#include "contest.h"
#include "vs_settings.h"

/* vs_report - all that the settings ask for. False: complained. */
bool vs_report(const struct vs_settings *settings, const struct contest *contests, uint32_t count);

/* A figure of kvtier divided by the same of another. */
struct vs_ratio {
    const char *name; /* "get_rate_to_rocksdb" */
    double value;
    double bar;    /* 0: there is none for this block size. */
    bool is_limit; /* The value may be at most the bar; else it must be at least the bar. */
};

enum {
    VS_RATIO_MAX = 8
};

/* vs_ratios - those whose peers took part; how many. */
uint32_t vs_ratios(const struct contest *contest, struct vs_ratio ratios_out[VS_RATIO_MAX]);

/* vs_ratio_is_reached - true too where there is no bar. */
bool vs_ratio_is_reached(const struct vs_ratio *ratio);

#endif /* BENCH_VS_REPORT_H */
