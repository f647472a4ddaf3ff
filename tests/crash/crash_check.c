/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_check.c - record a workload, cut its power everywhere, and judge what is left.
 *
 *   crash_check --workload NAME [--states N] [--seed N] [--expect-failure]
 *   crash_check --workload NAME --log FILE --only STATE    one state of a kept log again
 *   crash_check --list
 *
 * The workload runs in a process of its own under the shim; the states are opened in another one,
 * so that a crash of the library is a finding that names its state. Exit code 0: all is well (or,
 * with --expect-failure, a state was judged wrong, as it must be).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>

#include "crash_states.h"

enum {
    RECORD_SECONDS_MAX = 120,
    STATE_SECONDS_MAX = 60,
    STATES_DEFAULT = 300,
};

struct arguments {
    const char *workload;
    const char *log;
    const char *only;
    uint64_t states;
    uint64_t seed;
    bool is_failure_expected;
    const char *dir;
};

static const struct workload *
workload_find(const char *name)
{
    for (const struct workload *each = workload_table; each->name != NULL; each++) {
        if (name != NULL && strcmp(each->name, name) == 0)
            return each;
    }
    return NULL;
}

static void
make_dirs(const struct workload *workload, const char *dir)
{
    char path[600];

    mkdir(dir, 0700);
    for (uint32_t i = 0; i < workload->root_count; i++) {
        snprintf(path, sizeof(path), "%s/root%u", dir, i);
        mkdir(path, 0700);
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        run_fail("cannot use %s", dir);
    close(fd);
}

/* The recorded process. */
static int
drive(const struct workload *workload, const struct arguments *arguments)
{
    static struct run run;
    struct stat facts;
    char line[600];
    void *found = dlsym(RTLD_DEFAULT, "crash_mark");
    void *full = dlsym(RTLD_DEFAULT, "crash_full");

    if (found == NULL || full == NULL || stat(arguments->dir, &facts) != 0)
        run_fail("the shim is not loaded, or %s is not there", arguments->dir);
    memcpy(&run.mark, &found, sizeof(found));
    memcpy(&run.full, &full, sizeof(full));
    run.workload = workload;
    run.dir = arguments->dir;
    run.rng.state = arguments->seed;
    /* Lengths follow from versions: each seed has blocks of its own lengths. */
    run.version = (arguments->seed & ((UINT64_C(1) << 40) - 1)) << 20;
    snprintf(line, sizeof(line), "root %" PRIu64 " %s", (uint64_t)facts.st_ino, run.dir);
    run.mark(line);
    make_dirs(workload, run.dir);
    workload->steps(&run);
    return 0;
}

static bool
record(const struct workload *workload, const struct arguments *arguments, const char *dir,
    const char *log)
{
    char seed[32];

    snprintf(seed, sizeof(seed), "%" PRIu64, arguments->seed);
    pid_t child = fork();
    if (child == 0) {
        setenv(CRASH_DIR_VARIABLE, dir, 1);
        setenv(CRASH_LOG_VARIABLE, log, 1);
        setenv("LD_PRELOAD", CRASH_SHIM_PATH, 1);
        execl("/proc/self/exe", "crash_check", "--workload", workload->name, "--seed", seed,
            "--drive", dir, (char *)NULL);
        _exit(127);
    }
    int result = 0;
    if (child < 0)
        return false;
    /* Counted while we run: the machine may stand still. */
    for (int i = 0; waitpid(child, &result, WNOHANG) != child; i++) {
        if (i == RECORD_SECONDS_MAX * 100)
            kill(child, SIGKILL);
        usleep(10000);
    }
    if (WIFSIGNALED(result))
        fprintf(stderr, "recording %s ended with signal %d\n", workload->name, WTERMSIG(result));
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

/* Wait for the judging process, or end it when one state takes too long. */
static bool
watch(pid_t child, const struct states_progress *progress)
{
    uint64_t seen = 0;
    int quiet = 0;

    for (;;) {
        int result = 0;
        pid_t ended = waitpid(child, &result, WNOHANG);
        if (ended == child && WIFEXITED(result))
            return WEXITSTATUS(result) == 0;
        if (ended == child) {
            fprintf(stderr, "signal %d in state %s\n", WTERMSIG(result), progress->current);
            return false;
        }
        quiet = progress->heartbeat == seen ? quiet + 1 : 0;
        seen = progress->heartbeat;
        if (quiet > STATE_SECONDS_MAX * 100) {
            fprintf(stderr, "state %s takes for ever\n", progress->current);
            kill(child, SIGKILL);
            waitpid(child, &result, 0);
            return false;
        }
        usleep(10000);
    }
}

static void
remove_all(const char *path)
{
    pid_t child = fork();

    if (child == 0) {
        execlp("rm", "rm", "-rf", path, (char *)NULL);
        _exit(127);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}

/* The log of a failure stays where the next build does not remove it. Without a state that was
 * judged wrong it was the last one that ended the process. */
static void
keep_log(const struct workload *workload, const char *log, const struct states_progress *progress)
{
    const char *state = progress->problem_count > 0 ? progress->wrong : progress->current;
    char kept[600], command[1300];

    mkdir(CRASH_KEEP_DIR, 0700);
    snprintf(kept, sizeof(kept), "%s/%s.log", CRASH_KEEP_DIR, workload->name);
    pid_t child = fork();
    if (child == 0) {
        execlp("cp", "cp", log, kept, (char *)NULL);
        _exit(127);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    snprintf(command, sizeof(command), "crash_check --workload %s --log %s --only %s",
        workload->name, kept, state);
    fprintf(stderr, "again: %s\n", command);
}

static double
seconds_since(const struct timespec *start)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) * 1e-9;
}

static bool
judge_all(const struct states_request *request)
{
    struct states_progress *progress = request->progress;
    struct timespec start;

    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t child = fork();
    if (child == 0)
        _exit(states_walk(request) ? 0 : 1);
    bool is_right = child > 0 && watch(child, progress);
    double seconds = seconds_since(&start);
    printf("%s: %" PRIu64 " distinct states of %" PRIu64 " candidates, %" PRIu64
           " openings judged, %" PRIu64 " of them rebuilds, %" PRIu64 " audited, %.0f/s\n",
        request->workload->name, progress->state_count, progress->candidate_count,
        progress->verified_count, progress->rebuild_count, progress->audited_count,
        (double)progress->verified_count / (seconds > 0 ? seconds : 1));
    for (uint32_t i = 0; i < progress->problem_count; i++)
        printf("WRONG %s\n", progress->problems[i]);
    if (request->workload->verify == NULL && progress->audited_count == 0) {
        printf("WRONG no store was at rest\n");
        is_right = false;
    }
    fflush(stdout);
    return is_right;
}

/* Every state that was judged wrong was so for the reason that the workload is there for. */
static bool
has_failed_as_expected(const struct workload *workload, const struct states_progress *progress)
{
    for (uint32_t i = 0; i < progress->problem_count; i++) {
        if (strstr(progress->problems[i], workload->expects) == NULL)
            return false;
    }
    return progress->problem_count > 0;
}

static int
check(const struct workload *workload, const struct arguments *arguments)
{
    char base[256], dir[300], log[300];
    const char *place = getenv("KVT_TEST_TMP");

    snprintf(base, sizeof(base), "%s/kvt-crash-%s-%d", place != NULL ? place : "/dev/shm",
        workload->name, (int)getpid());
    snprintf(dir, sizeof(dir), "%s/disk", base);
    snprintf(log, sizeof(log), "%s/log", base);
    if (arguments->log != NULL) {
        if (!states_log_dir(arguments->log, dir, sizeof(dir)))
            run_fail("%s is no log", arguments->log);
        snprintf(log, sizeof(log), "%s", arguments->log);
        snprintf(base, sizeof(base), "%.*s", (int)(strlen(dir) - strlen("/disk")), dir);
    }
    if ((mkdir(base, 0700) != 0 && errno != EEXIST) || (mkdir(dir, 0700) != 0 && errno != EEXIST))
        run_fail("cannot make %s", dir);
    bool is_right = arguments->log != NULL || record(workload, arguments, dir, log);
    if (!is_right) {
        fprintf(stderr, "%s: the workload itself failed\n", workload->name);
        remove_all(base);
        return 1; /* Not the failure that may be expected. */
    }
    struct states_progress *progress =
        mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct states_request request = {.workload = workload,
        .log_path = log,
        .dir = dir,
        .budget = arguments->states,
        .seed = arguments->seed,
        .only = arguments->only,
        .progress = progress};
    is_right = progress != MAP_FAILED && judge_all(&request);
    if (!is_right && !arguments->is_failure_expected && arguments->log == NULL)
        keep_log(workload, log, progress);
    remove_all(base);
    if (arguments->is_failure_expected)
        is_right = !is_right && has_failed_as_expected(workload, progress);
    return is_right ? 0 : 1;
}

static bool
parse(struct arguments *arguments, int count, char **values)
{
    const char *states = getenv("KVT_CRASH_STATES");

    arguments->seed = 1;
    arguments->states = states != NULL ? strtoull(states, NULL, 10) : STATES_DEFAULT;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? values[i + 1] : NULL;
        if (strcmp(values[i], "--expect-failure") == 0) {
            arguments->is_failure_expected = true;
            continue;
        }
        if (value == NULL)
            return false;
        if (strcmp(values[i], "--workload") == 0)
            arguments->workload = value;
        else if (strcmp(values[i], "--states") == 0)
            arguments->states = strtoull(value, NULL, 10);
        else if (strcmp(values[i], "--seed") == 0)
            arguments->seed = strtoull(value, NULL, 10);
        else if (strcmp(values[i], "--log") == 0)
            arguments->log = value;
        else if (strcmp(values[i], "--only") == 0)
            arguments->only = value;
        else if (strcmp(values[i], "--drive") == 0)
            arguments->dir = value;
        else
            return false;
        i++;
    }
    return true;
}

int
main(int count, char **values)
{
    struct arguments arguments = {0};

    /* Each state is judged by a child with little to do: tables that it takes shall be pages that
     * are cleared when they are touched, not memory of the heap that is cleared at once. */
    (void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    if (count == 2 && strcmp(values[1], "--list") == 0) {
        for (const struct workload *each = workload_table; each->name != NULL; each++)
            printf("%s\n", each->name);
        return 0;
    }
    const struct workload *workload =
        parse(&arguments, count, values) ? workload_find(arguments.workload) : NULL;
    if (workload == NULL || (arguments.is_failure_expected && workload->expects == NULL)) {
        fprintf(stderr, "usage: crash_check --workload NAME [--states N] [--seed N]\n"
                        "       [--log FILE --only STATE] [--expect-failure] | --list\n");
        return 2;
    }
    return arguments.dir != NULL ? drive(workload, &arguments) : check(workload, &arguments);
}
