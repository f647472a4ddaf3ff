/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_judge.h - the minutes of a soak, and the bars that they are judged by.
 */
#ifndef KVT_TESTS_SOAK_JUDGE_H
#define KVT_TESTS_SOAK_JUDGE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    SOAK_MINUTES_MAX = 24 * 60
};

/* What was seen in one minute. */
struct soak_minute {
    uint32_t life;        /* Of the owner, from 1. */
    uint32_t life_minute; /* Minutes since it opened the store, from 0. */
    double elapsed_s;     /* Since the beginning, at its end. */
    double reopen_s;      /* From the last kill to the first request; 0: none in this minute. */
    double get_rate;      /* Bytes a second of the time outside probes and openings. */
    double put_rate;
    double probe_rate;
    double share; /* (get_rate + put_rate) / probe_rate */
    double busy;  /* With what the store moves to reclaim segments: the disk's work. */
    double stall_s;
    double still_s; /* So long the watcher did not run either: the machine stood still. */
    uint64_t rss_bytes;
    uint64_t locked_bytes; /* VmLck and VmPin. */
    uint64_t pin_bytes;
    uint32_t descriptors;
    uint32_t health;
    uint64_t hits, misses, puts;
};

struct soak_log {
    uint32_t count;
    struct soak_minute minutes[SOAK_MINUTES_MAX];
    /* Of the whole run. */
    uint32_t kill_count;
    uint64_t wrong_count, lost_count, kept_count, gone_count, failed_count;
    uint64_t finding_count; /* Of kvt_check(), at the end. */
    uint64_t block_count;   /* That it found. */
    bool is_checked;
};

void soak_csv_header(FILE *file);
void soak_csv_line(FILE *file, uint32_t number, const struct soak_minute *minute);

/* soak_judge - one line with each bar, its figure and pass or fail, into `target`. True: all pass.
 * Without `has_timings` only those that no slow machine can miss. */
bool soak_judge(const struct soak_log *log, bool has_timings, char *target, size_t size);

#endif /* KVT_TESTS_SOAK_JUDGE_H */
