/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak.c - a store under load for as long as one likes, on a real disk, killed and opened again.
 *
 * Usage: soak_store --dir DIR [--minutes N] [--minute-seconds S] [--kill-minutes N] [--nvme-mib N]
 *             [--host-mib N] [--probe-ms N] [--csv FILE] [--no-timings]
 *
 * DIR/soak must not be there; it is removed at the end. The owner of the store (soak_owner.c) reads
 * and replaces blocks of a working set of four times the NVMe tier; each read is verified. This
 * process has it pause four times a minute for a probe of the raw disk, looks at it and writes a
 * line of CSV once a minute, and kills it every N minutes (5). At the end the store is closed and
 * checked, and the last line says each bar (soak_judge.c), its figure, and pass or fail.
 * --no-timings leaves out those that a slow machine may miss.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvtier/kvtier.h"
#include "kvtier/kvtier_unstable.h"
#include "rng.h"
#include "soak.h"
#include "soak_judge.h"

enum {
    HANG_S = 120, /* Without an answer; it ends the run. */
    DESCRIPTOR_LOOKS = 10,
    PROBES = 4, /* A minute: what a shared disk gives is another after ten seconds. */
};

struct soak {
    struct soak_plan plan;
    struct soak_board *board;
    pid_t owner;
    uint64_t begin_ns;
    uint64_t life_ns; /* When the owner began to work. */
    double reopen_s;
    double still_s; /* The longest nap of this process in the minute, above what it asked for. */
    uint64_t minute_ns;
    uint32_t minute_count;
    uint32_t kill_minutes;
    bool has_timings;
    FILE *csv;
    struct rng rng;
    struct soak_log log;
};

static void end(struct soak *soak, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

/* The end of a run that cannot go on. Its folder stays. */
static void
end(struct soak *soak, const char *format, ...)
{
    va_list rest;

    va_start(rest, format);
    vprintf(format, rest);
    va_end(rest);
    if (soak->board != NULL && soak->board->text[0] != 0)
        printf(" (%s)", soak->board->text);
    printf("\nsoak: FAIL\n");
    if (soak->owner > 0)
        kill(soak->owner, SIGKILL);
    exit(1);
}

static void
sleep_ms(uint32_t milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};

    nanosleep(&time, NULL);
}

/* --- The owner, from outside ------------------------------------------------------------------ */

/* Wait for a word of the board. The owner must live, and answer something now and then. */
static void
wait_for(struct soak *soak, const _Atomic uint32_t *word, uint32_t value)
{
    uint64_t from_ns = soak_now_ns();

    while (atomic_load(word) != value) {
        int result;
        sleep_ms(1);
        if (waitpid(soak->owner, &result, WNOHANG) == soak->owner) {
            soak->owner = 0;
            end(soak, "the owner ended by itself, with %d", result);
        }
        if (soak_now_ns() - from_ns > HANG_S * UINT64_C(1000000000))
            end(soak, "nothing came from the owner for %d s", HANG_S);
    }
}

static void
owner_start(struct soak *soak)
{
    char numbers[256];
    uint64_t from_ns = soak_now_ns();
    const struct soak_plan *plan = &soak->plan;

    snprintf(numbers, sizeof(numbers),
        "%d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, plan->board_fd,
        plan->nvme_bytes, plan->host_bytes, plan->key_count, plan->probe_ns, plan->seed);
    atomic_store(&soak->board->state, SOAK_OPENING);
    atomic_store(&soak->board->probe_wanted, 0);
    atomic_fetch_add(&soak->board->life, 1);
    fflush(NULL);
    soak->owner = fork();
    if (soak->owner == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/proc/self/exe", "soak-owner", SOAK_OWNER_MODE, plan->dir, numbers, (char *)NULL);
        _exit(127);
    }
    wait_for(soak, &soak->board->state, SOAK_RUNNING);
    soak->life_ns = soak_now_ns();
    soak->reopen_s = (double)(soak->life_ns - from_ns) / 1e9;
}

static void
owner_kill(struct soak *soak)
{
    int result;

    kill(soak->owner, SIGKILL);
    if (waitpid(soak->owner, &result, 0) != soak->owner || !WIFSIGNALED(result))
        end(soak, "the owner ended by itself");
    soak->log.kill_count++;
}

/* A line of /proc/PID/status, in bytes. */
static uint64_t
status_bytes(pid_t pid, const char *name)
{
    char path[64], line[256];
    uint64_t kib = 0;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoull(line + strlen(name) + 1, NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return kib << 10;
}

static uint32_t
descriptor_count(pid_t pid)
{
    char path[64];
    uint32_t count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* Without the file that a store writes beside itself for a moment, once a minute. */
static uint32_t
descriptors_at_rest(pid_t pid)
{
    uint32_t least = UINT32_MAX;

    for (int i = 0; i < DESCRIPTOR_LOOKS; i++) {
        uint32_t count = descriptor_count(pid);
        if (count < least)
            least = count;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return least;
}

/* --- Minutes ---------------------------------------------------------------------------------- */

/* What the counters of the board said at the end of the last minute. */
struct mark {
    uint64_t get_bytes, put_bytes, moved_bytes, running_ns;
    uint64_t hits, misses, puts;
};

/* What the raw disk gave in a minute, and at the end of the last one. */
struct probes {
    double before, sum, last;
    uint32_t count;
};

static struct mark
mark_take(const struct soak_board *board)
{
    return (struct mark){.get_bytes = atomic_load(&board->get_bytes),
        .put_bytes = atomic_load(&board->put_bytes),
        .moved_bytes = atomic_load(&board->moved_bytes),
        .running_ns = atomic_load(&board->running_ns),
        .hits = atomic_load(&board->hit_count),
        .misses = atomic_load(&board->miss_count),
        .puts = atomic_load(&board->put_count)};
}

static void
probe_take(struct soak *soak, struct probes *probes)
{
    struct soak_board *board = soak->board;

    atomic_store(&board->probe_wanted, 1);
    wait_for(soak, &board->probe_wanted, 0);
    wait_for(soak, &board->state, SOAK_RUNNING);
    probes->last = (double)atomic_load(&board->probe_rate);
    if (probes->last <= 0)
        end(soak, "the raw disk could not be probed");
    probes->sum += probes->last;
    probes->count++;
}

/* The mean over the minute, by the trapezoidal rule; the next one begins. */
static double
probes_mean(struct probes *probes)
{
    double mean = probes->sum / probes->count;

    if (probes->before > 0)
        mean += (probes->before - probes->last) / 2 / probes->count;
    *probes = (struct probes){.before = probes->last};
    return mean;
}

/* Take down what the minute was like, up to its last probe. */
static struct soak_minute
minute_end(struct soak *soak, struct mark *mark, struct probes *probes)
{
    struct soak_board *board = soak->board;
    struct soak_minute minute = {.life = atomic_load(&board->life), .reopen_s = soak->reopen_s};

    minute.rss_bytes = status_bytes(soak->owner, "VmRSS:");
    minute.locked_bytes = status_bytes(soak->owner, "VmLck:") + status_bytes(soak->owner, "VmPin:");
    minute.descriptors = descriptors_at_rest(soak->owner);
    probe_take(soak, probes);
    minute.stall_s = (double)atomic_exchange(&board->stall_ns, 0) / 1e9;
    minute.still_s = soak->still_s;
    soak->still_s = 0;
    minute.pin_bytes = atomic_load(&board->pin_bytes);
    minute.health = atomic_load(&board->health);
    struct mark now = mark_take(board);
    double seconds = (double)(now.running_ns - mark->running_ns) / 1e9;
    minute.get_rate = seconds > 0 ? (double)(now.get_bytes - mark->get_bytes) / seconds : 0;
    minute.put_rate = seconds > 0 ? (double)(now.put_bytes - mark->put_bytes) / seconds : 0;
    minute.probe_rate = probes_mean(probes);
    double moved_rate = seconds > 0 ? (double)(now.moved_bytes - mark->moved_bytes) / seconds : 0;
    minute.share = (minute.get_rate + minute.put_rate) / minute.probe_rate;
    minute.busy = minute.share + moved_rate / minute.probe_rate;
    minute.hits = now.hits - mark->hits;
    minute.misses = now.misses - mark->misses;
    minute.puts = now.puts - mark->puts;
    minute.elapsed_s = (double)(soak_now_ns() - soak->begin_ns) / 1e9;
    *mark = now;
    soak->reopen_s = 0;
    return minute;
}

/* Kill the owner at a moment that follows from nothing, and start another. */
static void
kill_and_reopen(struct soak *soak, struct mark *mark)
{
    sleep_ms(rng_below(&soak->rng, 500));
    owner_kill(soak);
    owner_start(soak);
    /* The time until the kill is in no sum, so its bytes must not be either. */
    *mark = mark_take(soak->board);
    (void)atomic_exchange(&soak->board->stall_ns, 0);
}

/* Look on until then, whether it answers. */
static void
look_on(struct soak *soak, uint64_t until_ns)
{
    while (soak_now_ns() < until_ns) {
        uint64_t last_ns = atomic_load(&soak->board->last_ns);
        uint64_t nap_ns = soak_now_ns();
        sleep_ms(5);
        double still_s = (double)(soak_now_ns() - nap_ns) / 1e9 - 0.005;
        if (still_s > soak->still_s)
            soak->still_s = still_s;
        if (soak_now_ns() > last_ns + HANG_S * UINT64_C(1000000000))
            end(soak, "no request was answered for %d s", HANG_S);
    }
}

static void
run_minutes(struct soak *soak)
{
    struct mark mark = {0};
    struct probes probes = {0};
    uint32_t life_minute = 0;

    soak_csv_header(soak->csv);
    for (uint32_t i = 0; i < soak->minute_count; i++) {
        if (life_minute == soak->kill_minutes) {
            kill_and_reopen(soak, &mark);
            life_minute = 0;
        }
        uint64_t from_ns = soak->begin_ns + i * soak->minute_ns;
        for (uint32_t part = 1; part < PROBES; part++) {
            look_on(soak, from_ns + soak->minute_ns * part / PROBES);
            probe_take(soak, &probes);
        }
        look_on(soak, from_ns + soak->minute_ns);
        struct soak_minute minute = minute_end(soak, &mark, &probes);
        minute.life_minute = life_minute++;
        soak_csv_line(soak->csv, i + 1, &minute);
        soak->log.minutes[soak->log.count++] = minute;
    }
}

/* Close in order, and look at each block. */
static void
close_and_check(struct soak *soak)
{
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    char path[600];
    int result;

    atomic_store(&soak->board->end_wanted, 1);
    if (waitpid(soak->owner, &result, 0) != soak->owner || result != 0)
        end(soak, "the owner did not close the store, but ended with %d", result);
    soak->owner = 0;
    snprintf(path, sizeof(path), "%s/store", soak->plan.dir);
    enum kvt_status status = kvt_check(path, NULL, &report);
    if (status != KVT_OK)
        end(soak, "kvt_check gave %s", kvt_status_name(status));
    soak->log.is_checked = true;
    soak->log.finding_count = report.finding_count + report.damaged_count;
    soak->log.block_count = report.block_count;
    soak->log.wrong_count = atomic_load(&soak->board->wrong_count);
    soak->log.lost_count = atomic_load(&soak->board->lost_count);
    soak->log.kept_count = atomic_load(&soak->board->kept_count);
    soak->log.gone_count = atomic_load(&soak->board->gone_count);
    soak->log.failed_count = atomic_load(&soak->board->failed_count);
}

/* --- The command line ------------------------------------------------------------------------- */

static bool
option_take(struct soak *soak, const char *name, const char *value)
{
    uint64_t number = strtoull(value, NULL, 10);

    if (strcmp(name, "--dir") == 0)
        snprintf(soak->plan.dir, sizeof(soak->plan.dir), "%s/soak", value);
    else if (strcmp(name, "--csv") == 0)
        return (soak->csv = fopen(value, "w")) != NULL;
    else if (strcmp(name, "--minutes") == 0 && number >= 1 && number <= SOAK_MINUTES_MAX)
        soak->minute_count = (uint32_t)number;
    else if (strcmp(name, "--minute-seconds") == 0 && number >= 1)
        soak->minute_ns = number * UINT64_C(1000000000);
    else if (strcmp(name, "--kill-minutes") == 0 && number >= 1)
        soak->kill_minutes = (uint32_t)number;
    else if (strcmp(name, "--nvme-mib") == 0)
        soak->plan.nvme_bytes = number << 20;
    else if (strcmp(name, "--host-mib") == 0)
        soak->plan.host_bytes = number << 20;
    else if (strcmp(name, "--probe-ms") == 0)
        soak->plan.probe_ns = number * 1000000;
    else
        return false;
    return true;
}

static int
own(char **values)
{
    static struct soak_plan plan;

    snprintf(plan.dir, sizeof(plan.dir), "%s", values[2]);
    if (sscanf(values[3], "%d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
            &plan.board_fd, &plan.nvme_bytes, &plan.host_bytes, &plan.key_count, &plan.probe_ns,
            &plan.seed) != 6)
        return 2;
    void *board =
        mmap(NULL, soak_board_bytes(&plan), PROT_READ | PROT_WRITE, MAP_SHARED, plan.board_fd, 0);
    return board == MAP_FAILED ? 2 : soak_own(&plan, board);
}

static void
prepare(struct soak *soak)
{
    struct soak_plan *plan = &soak->plan;

    plan->key_count = 4 * plan->nvme_bytes / SOAK_BLOCK_MEAN / 2 * 2;
    plan->seed = soak_now_ns();
    soak->rng.state = plan->seed;
    plan->board_fd = memfd_create("soak", 0); /* The owner inherits it. */
    uint64_t size = soak_board_bytes(plan);
    if (plan->board_fd < 0 || ftruncate(plan->board_fd, (off_t)size) != 0)
        end(soak, "no shared memory: %s", strerror(errno));
    void *board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, plan->board_fd, 0);
    if (board == MAP_FAILED)
        end(soak, "no shared memory: %s", strerror(errno));
    soak->board = board;
    if (mkdir(plan->dir, 0700) != 0)
        end(soak, "cannot make %s: %s", plan->dir, strerror(errno));
}

int
main(int count, char **values)
{
    static struct soak soak = {.plan = {.nvme_bytes = UINT64_C(4) << 30,
                                   .host_bytes = UINT64_C(128) << 20,
                                   .probe_ns = 1000000000},
        .minute_ns = UINT64_C(60000000000),
        .minute_count = 60,
        .kill_minutes = 5,
        .has_timings = true};
    char line[2048];

    if (count == 4 && strcmp(values[1], SOAK_OWNER_MODE) == 0)
        return own(values);
    soak.csv = stdout;
    for (int i = 1; i < count; i++) {
        if (strcmp(values[i], "--no-timings") == 0)
            soak.has_timings = false;
        else if (i + 1 == count || !option_take(&soak, values[i], values[i + 1]))
            end(&soak, "what is %s? The head of soak.c says how to use it", values[i]);
        else
            i++;
    }
    if (soak.plan.dir[0] == 0)
        end(&soak, "--dir DIR is missing");
    prepare(&soak);
    owner_start(&soak);
    soak.reopen_s = 0;
    soak.begin_ns = soak_now_ns();
    run_minutes(&soak);
    close_and_check(&soak);
    bool is_right = soak_judge(&soak.log, soak.has_timings, line, sizeof(line));
    if (soak.board->text[0] != 0)
        printf("%s\n", soak.board->text);
    printf("soak, %u minutes: %s\n", soak.log.count, line);
    fflush(NULL);
    if (!is_right)
        return 1;
    execlp("rm", "rm", "-rf", soak.plan.dir, (char *)NULL);
    return 1;
}
