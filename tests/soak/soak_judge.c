/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_judge.c - the bars of a soak (soak_judge.h).
 */
#include "soak_judge.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum {
    WARM_MINUTES = 10,   /* They are what the rest is measured by. */
    LIFE_WARM = 1,       /* Minutes of a life whose memory says nothing yet. */
    DESCRIPTORS_MAX = 0, /* By so many may their number differ. */
};

#define STALL_MAX_S 1.0
#define HITS_MIN 0.5           /* Of reads of blocks that were there when they were read last. */
#define GONE_MAX 0.01          /* Of puts: evicted before their acknowledgement was heard. */
#define SHARE_MIN 0.90         /* Of the first minutes' share ... */
#define SHARE_MINUTES_MIN 0.95 /* ... in 57 of 60 minutes. */
#define BUSY_MIN 0.80          /* Of what the disk gives: the median. */
#define GROWTH_MAX 0.01        /* Of memory, an hour. */

struct verdict {
    char *text;
    size_t size;
    size_t used;
    bool is_right;
};

static void bar(struct verdict *verdict, bool is_met, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Add a bar: its figure and whether it is met. */
static void
bar(struct verdict *verdict, bool is_met, const char *format, ...)
{
    char figure[128];
    va_list rest;

    va_start(rest, format);
    vsnprintf(figure, sizeof(figure), format, rest);
    va_end(rest);
    int count = snprintf(verdict->text + verdict->used, verdict->size - verdict->used, "%s: %s; ",
        figure, is_met ? "pass" : "FAIL");
    if (count > 0 && (size_t)count < verdict->size - verdict->used)
        verdict->used += (size_t)count;
    verdict->is_right = verdict->is_right && is_met;
}

static int
compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* Of the first `count` minutes: of their shares, or of how busy the disk was. */
static double
median(const struct soak_log *log, uint32_t count, bool is_busy)
{
    static double shares[SOAK_MINUTES_MAX];

    if (count > log->count)
        count = log->count;
    if (count == 0)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        shares[i] = is_busy ? log->minutes[i].busy : log->minutes[i].share;
    qsort(shares, count, sizeof(shares[0]), compare_doubles);
    return count % 2 != 0 ? shares[count / 2] : (shares[count / 2 - 1] + shares[count / 2]) / 2;
}

/* By which part of itself the memory of the owners grows in an hour: the line of least squares
 * through the minutes that are not warm-up. */
static double
growth_per_hour(const struct soak_log *log)
{
    double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;

    for (uint32_t i = WARM_MINUTES; i < log->count; i++) {
        const struct soak_minute *minute = &log->minutes[i];
        if (minute->life_minute < LIFE_WARM)
            continue;
        double x = minute->elapsed_s / 3600, y = (double)minute->rss_bytes;
        n++;
        sum_x += x;
        sum_y += y;
        sum_xx += x * x;
        sum_xy += x * y;
    }
    double spread = n * sum_xx - sum_x * sum_x;
    if (n < 5 || spread <= 0 || sum_y <= 0)
        return 0;
    return (n * sum_xy - sum_x * sum_y) / spread / (sum_y / n);
}

struct range {
    uint64_t low, high;
};

static void
range_add(struct range *range, uint64_t value, bool is_first)
{
    if (is_first || value < range->low)
        range->low = value;
    if (is_first || value > range->high)
        range->high = value;
}

/* Descriptors, pinned bytes and health do not depend on how fast the machine is. */
static void
judge_facts(const struct soak_log *log, struct verdict *verdict)
{
    struct range descriptors = {0}, locked = {0}, pinned = {0};
    uint32_t health = 0;
    uint64_t hits = 0, misses = 0, puts = 0;

    for (uint32_t i = 0; i < log->count; i++) {
        const struct soak_minute *minute = &log->minutes[i];
        range_add(&descriptors, minute->descriptors, i == 0);
        range_add(&locked, minute->locked_bytes, i == 0);
        range_add(&pinned, minute->pin_bytes, i == 0);
        health |= minute->health;
        hits += minute->hits;
        misses += minute->misses;
        puts += minute->puts;
    }
    bar(verdict, hits > 0 && (double)hits >= HITS_MIN * (double)(hits + misses),
        "%" PRIu64 " reads verified, %" PRIu64 " misses", hits, misses);
    bar(verdict, puts > 0 && (double)log->gone_count <= GONE_MAX * (double)puts,
        "%" PRIu64 " puts durable, %" PRIu64 " gone at once", puts, log->gone_count);
    bar(verdict, log->wrong_count == 0, "%" PRIu64 " wrong", log->wrong_count);
    bar(verdict, log->lost_count == 0 && (log->kept_count > 0 || log->kill_count == 0),
        "%" PRIu64 " lost, %" PRIu64 " kept in %u kills", log->lost_count, log->kept_count,
        log->kill_count);
    bar(verdict, log->failed_count == 0, "%" PRIu64 " failed", log->failed_count);
    bar(verdict, health == 0, "health %u", health);
    bar(verdict, descriptors.high - descriptors.low <= DESCRIPTORS_MAX,
        "descriptors %" PRIu64 " to %" PRIu64, descriptors.low, descriptors.high);
    bar(verdict, locked.high == locked.low && pinned.high == pinned.low,
        "pinned %" PRIu64 " to %" PRIu64 " bytes, kvt_pin %" PRIu64 " to %" PRIu64, locked.low,
        locked.high, pinned.low, pinned.high);
    bar(verdict, log->is_checked && log->finding_count == 0 && log->block_count > 0,
        "kvt_check %" PRIu64 " findings in %" PRIu64 " blocks", log->finding_count,
        log->block_count);
}

static void
judge_timings(const struct soak_log *log, struct verdict *verdict)
{
    double first = median(log, WARM_MINUTES, false), stall_s = 0, still_s = 0;
    double growth = growth_per_hour(log);
    uint32_t good = 0;

    for (uint32_t i = 0; i < log->count; i++) {
        good += log->minutes[i].share >= SHARE_MIN * first;
        /* What the watcher stood still itself is no stall of the store. */
        double own_s = log->minutes[i].stall_s - log->minutes[i].still_s;
        if (own_s > stall_s)
            stall_s = own_s;
        if (log->minutes[i].still_s > still_s)
            still_s = log->minutes[i].still_s;
    }
    bar(verdict, stall_s <= STALL_MAX_S,
        "longest stall %.3f s (the machine itself stood still for %.3f s)", stall_s, still_s);
    bar(verdict, median(log, log->count, true) >= BUSY_MIN,
        "the disk was busy at %.2f of the probe (median)", median(log, log->count, true));
    bar(verdict, (double)good >= SHARE_MINUTES_MIN * (double)log->count,
        "%u of %u minutes at %.2f x the first %d minutes' %.2f", good, log->count, SHARE_MIN,
        WARM_MINUTES, first);
    bar(verdict, growth < GROWTH_MAX, "memory %+.2f %%/h after %d minutes", 100 * growth,
        WARM_MINUTES);
}

bool
soak_judge(const struct soak_log *log, bool has_timings, char *target, size_t size)
{
    struct verdict verdict = {.text = target, .size = size, .is_right = true};

    target[0] = 0;
    judge_facts(log, &verdict);
    if (has_timings)
        judge_timings(log, &verdict);
    snprintf(target + verdict.used, size - verdict.used, "%s", verdict.is_right ? "PASS" : "FAIL");
    return verdict.is_right;
}

void
soak_csv_header(FILE *file)
{
    fprintf(file,
        "minute,elapsed_s,life,reopen_s,get_mib_s,put_mib_s,probe_mib_s,share,busy,stall_s,still_s,"
        "rss_kib,locked_kib,pin_bytes,descriptors,health,hits,misses,puts\n");
}

void
soak_csv_line(FILE *file, uint32_t number, const struct soak_minute *m)
{
    const double mib = 1 << 20;

    fprintf(file,
        "%u,%.1f,%u,%.3f,%.1f,%.1f,%.1f,%.3f,%.3f,%.4f,%.4f,%" PRIu64 ",%" PRIu64 ",%" PRIu64
        ",%u,%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n",
        number, m->elapsed_s, m->life, m->reopen_s, m->get_rate / mib, m->put_rate / mib,
        m->probe_rate / mib, m->share, m->busy, m->stall_s, m->still_s, m->rss_bytes >> 10,
        m->locked_bytes >> 10, m->pin_bytes, m->descriptors, m->health, m->hits, m->misses,
        m->puts);
    fflush(file);
}
