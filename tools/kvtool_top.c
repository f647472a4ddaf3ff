/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_top.c - `kvtool top`: what the owner of an open store does, again and again.
 *
 * Everything comes from the page that the owner writes anyway: it does not notice who looks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_names.h"
#include "kvtool_owner.h"
#include "kvtool_rates.h"
#include "kvtool_screen.h"
#include "progress.h"
#include "quantity.h"

enum {
    HEADER_EVERY = 20, /* Lines. */
    BAR_WIDTH = 20
};

enum {
    OPTION_INTERVAL,
    OPTION_COUNT,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_INTERVAL] = {"--interval", "SECONDS", "between two pictures (default 1, at least 0.1)"},
    [OPTION_COUNT] = {"--count", "N", "end after N pictures"},
    [OPTION_JSON] = {"--json", NULL, "print a JSON object each time, on a line of its own"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_top_line = {
    .program = "kvtool",
    .command = "top",
    .operands = "DIR",
    .summary = "Watch the process that has DIR open: tiers, hits, bandwidth, latencies, evictions.",
    .text =
        "On a terminal a screen that q ends; elsewhere one line each time. Ends with exit code 0\n"
        "when the store is closed. JSON: {\"pid\", \"program\", \"age_ns\", \"interval_ns\" (0:\n"
        "the first, or the owner has shown nothing since the one before), \"rates\" (each counter\n"
        "of kvtier/stats.h that is no gauge, per second), \"counters\", \"latencies\",\n"
        "\"health\", \"work\" {what is under way}, \"lease_count\"}",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

static const char *const work_names[KVT_LIVE_WORKS] = {
    [KVT_LIVE_TICKETS] = "tickets",
    [KVT_LIVE_FILLS] = "fills",
    [KVT_LIVE_READS] = "reads",
    [KVT_LIVE_COPIES] = "copies",
    [KVT_LIVE_IMAGES] = "images",
    [KVT_LIVE_MOVES] = "moves",
};

struct watch {
    const char *path;
    double interval;
    uint64_t count; /* UINT64_MAX: for ever. */
    uint64_t shown;
    struct owner now;
    struct owner before;
    struct rates rates;
};

/* --- Lines ------------------------------------------------------------------------------------ */

static double
share(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

static void
line_print(const struct watch *watch)
{
    const struct kvt_stats *stats = &watch->now.live.stats;
    const struct rates *rates = &watch->rates;
    time_t clock = time(NULL);
    struct tm local;
    char hour[16] = "";

    if (watch->shown % HEADER_EVERY == 0)
        printf("%8s %10s %6s %9s %9s %9s %9s %8s %8s %6s %6s %7s\n", "TIME", "LOOKUP/s", "HIT%",
            "MEM MB/s", "NVMe MB/s", "PUT MB/s", "DUR MB/s", "EVICT/s", "FLIGHT", "HOST%", "NVMe%",
            "LEASES");
    if (localtime_r(&clock, &local) != NULL)
        strftime(hour, sizeof(hour), "%H:%M:%S", &local);
    printf("%8s %10.0f %6.1f %9.1f %9.1f %9.1f %9.1f %8.0f %8" PRIu64 " %6.1f %6.1f %7" PRIu64 "\n",
        hour, rates->lookups, rates->hit_percent, rates->memory_bytes / 1e6,
        rates->nvme_bytes / 1e6, rates->put_bytes / 1e6, rates->durable_bytes / 1e6,
        rates->evictions,
        watch->now.live.work[KVT_LIVE_READS] + watch->now.live.work[KVT_LIVE_FILLS] +
            watch->now.live.work[KVT_LIVE_COPIES],
        share(stats->host_used_bytes_now, stats->host_capacity_bytes_now),
        share(stats->nvme_used_bytes_now, stats->nvme_capacity_bytes_now),
        watch->now.live.lease_count);
    fflush(stdout);
}

static void
object_print(const struct watch *watch)
{
    struct json json = {.out = stdout, .is_one_line = true};
    const struct kvt_live *live = &watch->now.live;

    json_object_begin(&json, NULL);
    json_number(&json, "pid", live->pid);
    json_string(&json, "program", watch->now.program);
    json_number(&json, "age_ns", live->age_ns);
    json_number(&json, "interval_ns", (uint64_t)(watch->rates.seconds * 1e9));
    rates_print_json(&json, &watch->rates);
    counters_print_json(&json, &live->stats);
    latencies_print_json(&json, &live->stats);
    health_print_json(&json, live->health);
    json_object_begin(&json, "work");
    for (size_t i = 0; i < KVT_LIVE_WORKS; i++)
        json_number(&json, work_names[i], live->work[i]);
    json_object_end(&json);
    json_number(&json, "lease_count", live->lease_count);
    json_object_end(&json);
    json_end(&json);
    fflush(stdout);
}

/* --- The screen ------------------------------------------------------------------------------- */

static void
tier_draw(const char *name, uint64_t used, uint64_t capacity, uint64_t leased)
{
    char texts[3][QUANTITY_TEXT_BYTES];
    char bar[BAR_WIDTH + 1];
    double percent = share(used, capacity);
    size_t filled = percent >= 100 ? BAR_WIDTH : (size_t)(percent * BAR_WIDTH / 100);

    if (capacity == 0)
        return;
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', filled);
    bar[BAR_WIDTH] = '\0';
    screen_line("%-5s [%s] %5.1f%%  %10s of %10s   leased %10s", name, bar, percent,
        quantity_bytes_text(texts[0], (double)used),
        quantity_bytes_text(texts[1], (double)capacity),
        quantity_bytes_text(texts[2], (double)leased));
}

static void
rates_draw(const struct rates *rates)
{
    char texts[6][QUANTITY_TEXT_BYTES];

    screen_line("lookups   %10.0f /s   hits %5.1f%%  (HBM %.1f%%, HOST %.1f%%, NVMe %.1f%%)",
        rates->lookups, rates->hit_percent, rates->hit_hbm_percent, rates->hit_host_percent,
        rates->hit_nvme_percent);
    screen_line("gets      memory %10s   NVMe %10s   misses %.0f /s",
        quantity_rate_text(texts[0], rates->memory_bytes),
        quantity_rate_text(texts[1], rates->nvme_bytes), rates->get_misses);
    screen_line("puts      %10s   durable %10s   commits %.0f /s",
        quantity_rate_text(texts[2], rates->put_bytes),
        quantity_rate_text(texts[3], rates->durable_bytes), rates->commits);
    screen_line(
        "evictions HBM %.0f /s   HOST %.0f /s   NVMe %.0f /s   relocated %s   dropped %.0f /s",
        rates->hbm_evictions, rates->host_evictions, rates->nvme_evictions,
        quantity_rate_text(texts[4], rates->relocated_bytes), rates->drops);
    screen_line("trouble   corrupt %.0f /s   failed reads %.0f /s   refused puts %.0f /s",
        rates->corrupt, rates->read_failed, rates->put_refused);
}

static void
latency_draw(const char *name, const struct kvt_latency *now, const struct kvt_latency *before)
{
    char texts[4][QUANTITY_TEXT_BYTES];
    uint64_t count = now->count - before->count;

    if (now->count == 0)
        return;
    screen_line("%-16s %10s  %10s  %10s  %10s", name,
        count == 0
            ? "-"
            : quantity_time_text(texts[0], (double)(now->sum_ns - before->sum_ns) / (double)count),
        quantity_time_text(texts[1], (double)now->p50_ns),
        quantity_time_text(texts[2], (double)now->p99_ns),
        quantity_time_text(texts[3], (double)now->max_ns));
}

static void
picture_draw(const struct watch *watch)
{
    const struct kvt_live *live = &watch->now.live;
    const struct kvt_stats *stats = &live->stats;
    char texts[3][QUANTITY_TEXT_BYTES];
    char who[160];

    screen_begin();
    screen_line("kvtool top  %s  %s  kvtier %s", watch->path,
        owner_text(&watch->now, who, sizeof(who)), live->version);
    screen_line("blocks %s   shown %s ago   health %s",
        quantity_count_text(texts[0], stats->entry_count_now),
        quantity_time_text(texts[1], (double)live->age_ns),
        live->health == 0 ? "well" : "see kvtool stat");
    screen_line("%s", "");
    tier_draw(
        "HBM", stats->hbm_used_bytes_now, stats->hbm_capacity_bytes_now, live->leased_hbm_bytes);
    tier_draw("HOST", stats->host_used_bytes_now, stats->host_capacity_bytes_now,
        live->leased_host_bytes);
    tier_draw("NVMe", stats->nvme_used_bytes_now, stats->nvme_capacity_bytes_now,
        live->leased_nvme_bytes);
    screen_line("dirty %s   leases %" PRIu64 ", oldest %s",
        quantity_bytes_text(texts[0], (double)stats->host_dirty_bytes_now), live->lease_count,
        quantity_time_text(texts[1], (double)live->lease_oldest_ns));
    screen_line("in flight: reads %" PRIu64 "  fills %" PRIu64 "  copies %" PRIu64
                "  images %" PRIu64 "  device moves %" PRIu64 "  tickets %" PRIu64,
        live->work[KVT_LIVE_READS], live->work[KVT_LIVE_FILLS], live->work[KVT_LIVE_COPIES],
        live->work[KVT_LIVE_IMAGES], live->work[KVT_LIVE_MOVES], live->work[KVT_LIVE_TICKETS]);
    screen_line("%s", "");
    rates_draw(&watch->rates);
    screen_line("%s", "");
    screen_line("%-16s %10s  %10s  %10s  %10s", "latency", "mean now", "p50", "p99", "max");
#define DRAW(name, text) latency_draw(#name, &stats->name, &watch->before.live.stats.name);
    KVT_LATENCIES(DRAW)
#undef DRAW
    screen_line("%s", "");
    screen_line("q quits; p50, p99 and max are of all that was done since the store was opened");
    screen_end();
}

/* --- Watching --------------------------------------------------------------------------------- */

static void
pause_plain(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};

    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

/* False: the user wants to go. */
static bool
pause_screen(const struct watch *watch)
{
    double end = clock_seconds() + watch->interval;

    for (;;) {
        double left = end - clock_seconds();
        int key = left > 0 ? screen_wait(left) : -1;

        if (key == 'q' || key == 'Q')
            return false;
        if (key < 0)
            return true;
        picture_draw(watch); /* Another size. */
    }
}

static int
watch_run(struct watch *watch, bool is_json)
{
    bool has_screen = !is_json && screen_is_possible();

    if (!owner_must_show(watch->path, &watch->now))
        return EXIT_PROBLEM;
    if (has_screen && !screen_enter())
        return EXIT_PROBLEM;
    for (;;) {
        rates_of(&watch->rates, watch->shown == 0 ? NULL : &watch->before.live, &watch->now.live);
        if (watch->rates.seconds == 0) /* The first picture, or another owner's. */
            watch->before = watch->now;
        if (is_json)
            object_print(watch);
        else if (has_screen)
            picture_draw(watch);
        else
            line_print(watch);
        if (++watch->shown >= watch->count || ferror(stdout) != 0)
            break;
        if (has_screen && !pause_screen(watch))
            break;
        if (!has_screen)
            pause_plain(watch->interval);
        watch->before = watch->now;
        owner_find(watch->path, &watch->now);
        if (!watch->now.has_live)
            break;
    }
    screen_leave();
    return EXIT_FINE;
}

int
kvtool_top(int argc, char **argv)
{
    struct arguments arguments;
    struct watch *watch = NULL;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_top_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    watch = calloc(1, sizeof(*watch));
    if (watch == NULL) {
        complain("there is no memory to look at %s", arguments.operands[0]);
        return EXIT_PROBLEM;
    }
    watch->path = arguments.operands[0];
    watch->interval = 1;
    watch->count = UINT64_MAX;
    exit_code = EXIT_USAGE;
    if (arguments.values[OPTION_INTERVAL] != NULL &&
        (!quantity_seconds(arguments.values[OPTION_INTERVAL], &watch->interval) ||
            watch->interval < 0.1))
        complain("--interval %s is no time of at least 0.1 s", arguments.values[OPTION_INTERVAL]);
    else if (arguments.values[OPTION_COUNT] != NULL &&
             (!quantity_count(arguments.values[OPTION_COUNT], &watch->count) || watch->count == 0))
        complain("--count %s is no count", arguments.values[OPTION_COUNT]);
    else
        exit_code = watch_run(watch, arguments.values[OPTION_JSON] != NULL);
    free(watch);
    return exit_code;
}
