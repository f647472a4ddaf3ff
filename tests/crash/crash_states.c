/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_states.c - which disks are tried (crash_states.h).
 */
#include "crash_states.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_verify.h"
#include "disk_model.h"

enum mode {
    MODE_ALL,
    MODE_NONE,
    MODE_DROP,
    MODE_ALONE,
    MODE_SUBSET,
    MODE_TEAR,
    MODE_COUNT
};

static const char *const mode_names[MODE_COUNT] = {
    "all", "none", "drop", "alone", "subset", "tear"};

/* How much likelier one of these is tried than a single dropped change. */
static const uint32_t mode_weight[MODE_COUNT] = {6, 6, 1, 1, 2, 3};

enum {
    SUBSETS = 2,
    TEARS = 3,
    PASSES_MAX = 16,
    REBUILD_SHARE = 6, /* One in so many is judged without its index as well. */
};

struct record {
    struct crash_record head;
    const char *path;
    const uint8_t *data;
};

struct set {
    uint64_t *slots;
    size_t capacity;
    size_t count;
};

struct state {
    size_t record;
    enum mode mode;
    size_t argument;
    uint64_t seed;
    unsigned rebuild; /* 0: with its index; 1, 2: how it was taken away. */
};

struct walk {
    const struct states_request *request;
    uint8_t *log;
    size_t log_size;
    struct record *records;
    size_t record_count;
    uint64_t root_inode;
    struct disk *disk;
    struct oracle *oracle;
    struct set contents;
    struct set verified;
    uint8_t keep[DISK_PENDING_MAX];
    struct rng rng;
    double scale; /* Probability of a candidate of weight 1. */
    double weight_sum;
    bool is_counting;
};

/* --- A set of numbers ------------------------------------------------------------------------- */

static bool set_add(struct set *set, uint64_t value);

static void
set_grow(struct set *set)
{
    struct set larger = {.capacity = set->capacity == 0 ? 4096 : set->capacity * 2};

    larger.slots = calloc(larger.capacity, sizeof(uint64_t));
    if (larger.slots == NULL)
        run_fail("no memory");
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->slots[i] != 0)
            set_add(&larger, set->slots[i]);
    }
    free(set->slots);
    *set = larger;
}

/* True when the value was not in it. */
static bool
set_add(struct set *set, uint64_t value)
{
    if (set->count * 2 >= set->capacity)
        set_grow(set);
    value = value == 0 ? 1 : value;
    size_t at = value % set->capacity;
    while (set->slots[at] != 0) {
        if (set->slots[at] == value)
            return false;
        at = (at + 1) % set->capacity;
    }
    set->slots[at] = value;
    set->count++;
    return true;
}

/* --- The log ---------------------------------------------------------------------------------- */

static bool
log_map(const char *path, uint8_t **log_out, size_t *size_out)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    bool is_there = fstat(fd, &facts) == 0 && facts.st_size > 0;
    void *log =
        is_there ? mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (log == MAP_FAILED)
        return false;
    *log_out = log;
    *size_out = (size_t)facts.st_size;
    return true;
}

static bool
is_mark(const struct record *record, const char *verb)
{
    size_t length = strlen(verb);

    return record->head.kind == CRASH_MARK && record->head.data_length > length &&
           memcmp(record->data, verb, length) == 0;
}

/* The path needs a zero behind it, which the log does not have. */
static char *
copy_path(const uint8_t *source, size_t length)
{
    char *copy = calloc(1, length + 1);

    if (copy == NULL)
        run_fail("no memory");
    memcpy(copy, source, length);
    return copy;
}

static bool
log_parse(struct walk *walk)
{
    size_t at = 0, capacity = 0;

    while (at + sizeof(struct crash_record) <= walk->log_size) {
        struct record record = {0};
        memcpy(&record.head, walk->log + at, sizeof(record.head));
        at += sizeof(record.head);
        if (record.head.path_length > walk->log_size - at ||
            record.head.data_length > walk->log_size - at - record.head.path_length)
            return false;
        record.path = copy_path(walk->log + at, record.head.path_length);
        at += record.head.path_length;
        record.data = walk->log + at;
        at += record.head.data_length;
        if (walk->record_count == capacity) {
            capacity = capacity * 2 + 1024;
            walk->records = realloc(walk->records, capacity * sizeof(record));
            if (walk->records == NULL)
                run_fail("no memory");
        }
        if (is_mark(&record, "root "))
            walk->root_inode = strtoull((const char *)record.data + 5, NULL, 10);
        walk->records[walk->record_count++] = record;
    }
    return at == walk->log_size && walk->root_inode != 0;
}

bool
states_log_dir(const char *log_path, char *dir_out, size_t size)
{
    struct walk walk = {0};
    bool is_found = false;

    if (!log_map(log_path, &walk.log, &walk.log_size) || !log_parse(&walk))
        return false;
    for (size_t i = 0; i < walk.record_count && !is_found; i++) {
        is_found = is_mark(&walk.records[i], "root ");
        if (is_found) {
            const char *text = (const char *)walk.records[i].data;
            size_t length = walk.records[i].head.data_length;
            const char *slash = memchr(text, '/', length);
            if (slash == NULL)
                return false;
            snprintf(dir_out, size, "%.*s", (int)(length - (size_t)(slash - text)), slash);
        }
    }
    return is_found;
}

/* --- One state -------------------------------------------------------------------------------- */

static void
keep_fill(struct walk *walk, const struct state *state)
{
    size_t count = disk_pending(walk->disk);
    struct rng rng = {state->seed};

    for (size_t i = 0; i < count; i++) {
        uint8_t keep = DISK_KEEP;
        switch (state->mode) {
        case MODE_ALL:
        case MODE_COUNT:
            break;
        case MODE_NONE:
            keep = DISK_DROP;
            break;
        case MODE_DROP:
            keep = i == state->argument ? DISK_DROP : DISK_KEEP;
            break;
        case MODE_ALONE:
            keep = i == state->argument ? DISK_KEEP : DISK_DROP;
            break;
        case MODE_SUBSET:
            keep = (uint8_t)rng_below(&rng, 2);
            break;
        case MODE_TEAR:
            /* The last change torn, or any of them. */
            keep = (uint8_t)rng_below(&rng, 3);
            if (state->argument == 0)
                keep = i + 1 == count ? DISK_TEAR : DISK_KEEP;
            break;
        }
        walk->keep[i] = keep;
    }
}

static void
take_index_away(const struct walk *walk, unsigned how)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/store/meta/data.mdb", walk->request->dir);
    unlink(path);
    if (how == 2) {
        snprintf(path, sizeof(path), "%s/store/meta/data.mdb.new", walk->request->dir);
        unlink(path);
        snprintf(path, sizeof(path), "%s/store/meta", walk->request->dir);
        rmdir(path);
    }
}

/* The number at `at` of a mark; the log has no zero behind it. */
static uint64_t
mark_number(const struct record *record, size_t at)
{
    uint64_t number = 0;

    for (; at < record->head.data_length && record->data[at] >= '0' && record->data[at] <= '9';
         at++)
        number = number * 10 + (uint64_t)(record->data[at] - '0');
    return number;
}

/* A block of which the next look shows that it left may be gone already: of what was logged before
 * that look began. What is behind the last look has none of its own. */
static void
left_ahead(const struct walk *walk, size_t record, bool left_out[ORACLE_KEYS])
{
    bool is_looking = false;

    memset(left_out, 0, ORACLE_KEYS * sizeof(left_out[0]));
    for (size_t i = record; i < walk->record_count; i++) {
        const struct record *each = &walk->records[i];
        const char *verb = is_mark(each, "left ")    ? "left "
                           : is_mark(each, "early ") ? "early "
                                                     : NULL;

        if (verb != NULL)
            left_out[mark_number(each, strlen(verb)) % ORACLE_KEYS] = true;
        if (is_looking && is_mark(each, "looked "))
            return;
        is_looking = is_looking || is_mark(each, "look ");
    }
}

static void
judge(struct walk *walk, const struct state *state)
{
    static bool left[ORACLE_KEYS];
    const struct states_request *request = walk->request;
    struct states_progress *progress = request->progress;
    char problem[STATE_PROBLEM_BYTES - STATE_NAME_BYTES - 8] = "";
    bool is_right;

    snprintf(progress->current, sizeof(progress->current), "%zu:%s:%zu:%" PRIx64 ":%u",
        state->record, mode_names[state->mode], state->argument, state->seed, state->rebuild);
    if (!disk_write_out(walk->disk, request->dir))
        run_fail("cannot write the disk of state %s to %s", progress->current, request->dir);
    if (state->rebuild != 0)
        take_index_away(walk, state->rebuild);
    if (request->workload->verify != NULL) {
        is_right = request->workload->verify(request->dir, walk->oracle, problem, sizeof(problem));
    } else {
        struct verify_request verify = {.workload = request->workload,
            .oracle = walk->oracle,
            .dir = request->dir,
            .is_rebuild = state->rebuild != 0,
            .left = left,
            .seed = state->seed >> 8};
        left_ahead(walk, state->record, left);
        is_right = crash_verify(&verify, problem, sizeof(problem));
        progress->audited_count += verify.was_audited;
    }
    progress->verified_count++;
    progress->rebuild_count += state->rebuild != 0;
    progress->heartbeat++;
    if (!is_right && progress->problem_count == 0)
        memcpy(progress->wrong, progress->current, sizeof(progress->wrong));
    if (!is_right && progress->problem_count < STATE_PROBLEMS_MAX)
        snprintf(progress->problems[progress->problem_count++], STATE_PROBLEM_BYTES, "%s: %s",
            progress->current, problem);
}

static void
try_state(struct walk *walk, const struct state *state)
{
    const struct states_request *request = walk->request;
    struct state again = *state;

    keep_fill(walk, state);
    uint64_t hash = disk_choose(walk->disk, walk->keep, state->seed);
    struct rng both = {hash + walk->oracle->acknowledged_count * UINT64_C(0x9E3779B97F4A7C15)};
    if (set_add(&walk->contents, hash))
        request->progress->state_count++;
    if (request->only != NULL) {
        judge(walk, state);
    } else if (set_add(&walk->verified, rng_next(&both))) {
        judge(walk, state);
        again.rebuild = 1 + hash % 2;
        if (request->workload->verify == NULL && walk->oracle->is_open &&
            hash / 2 % REBUILD_SHARE == 0)
            judge(walk, &again);
    }
    disk_restore(walk->disk);
}

/* --- All states ------------------------------------------------------------------------------- */

static bool
is_done(const struct walk *walk)
{
    const struct states_progress *progress = walk->request->progress;

    return progress->problem_count == STATE_PROBLEMS_MAX ||
           progress->state_count >= walk->request->budget;
}

static void
candidate(struct walk *walk, size_t record, enum mode mode, size_t argument)
{
    if (walk->is_counting) {
        walk->weight_sum += mode_weight[mode];
        walk->request->progress->candidate_count++;
        return;
    }
    double chance = (double)(rng_next(&walk->rng) >> 11) * 0x1.0p-53;
    uint64_t seed = rng_next(&walk->rng);
    if (chance >= mode_weight[mode] * walk->scale || is_done(walk))
        return;
    struct state state = {.record = record, .mode = mode, .argument = argument, .seed = seed};
    try_state(walk, &state);
}

static void
candidates(struct walk *walk, size_t record)
{
    size_t count = disk_pending(walk->disk);

    candidate(walk, record, MODE_ALL, 0);
    if (count == 0)
        return;
    candidate(walk, record, MODE_NONE, 0);
    for (size_t i = 0; i < count; i++) {
        candidate(walk, record, MODE_DROP, i);
        candidate(walk, record, MODE_ALONE, i);
    }
    for (size_t i = 0; i < SUBSETS; i++)
        candidate(walk, record, MODE_SUBSET, i);
    for (size_t i = 0; i < TEARS; i++)
        candidate(walk, record, MODE_TEAR, i);
}

static bool
is_acknowledgement(const struct record *record)
{
    return is_mark(record, "put_ok ") || is_mark(record, "del_ok ") || is_mark(record, "clear_ok ");
}

/* Of acknowledgements in a row the last asks for all that those before it ask, of the same
 * disks. */
static bool
is_followed(const struct walk *walk, size_t i)
{
    return i + 1 < walk->record_count && is_acknowledgement(&walk->records[i]) &&
           is_acknowledgement(&walk->records[i + 1]);
}

/* One way through the log; `only` NULL: its candidates. */
static bool
pass(struct walk *walk, const struct state *only)
{
    disk_reset(walk->disk, walk->root_inode);
    oracle_init(walk->oracle);
    for (size_t i = 0; i < walk->record_count; i++) {
        const struct record *record = &walk->records[i];
        uint64_t acknowledged = walk->oracle->acknowledged_count;
        bool is_point = disk_apply(walk->disk, &record->head, record->path, record->data);
        if (record->head.kind == CRASH_MARK && !is_mark(record, "root ")) {
            if (!oracle_mark(walk->oracle, (const char *)record->data, record->head.data_length))
                run_fail("record %zu is a mark that nobody understands", i);
            is_point = walk->oracle->acknowledged_count != acknowledged && !is_followed(walk, i);
        }
        if (only != NULL && only->record == i) {
            try_state(walk, only);
            return true;
        }
        if (only == NULL && is_point)
            candidates(walk, i);
        if (only == NULL && !walk->is_counting && is_done(walk))
            return true;
    }
    return only == NULL;
}

static bool
walk_one(struct walk *walk)
{
    struct state state = {0};
    char mode[16];
    unsigned long long seed;

    if (sscanf(walk->request->only, "%zu:%15[a-z]:%zu:%llx:%u", &state.record, mode,
            &state.argument, &seed, &state.rebuild) != 5)
        return false;
    state.seed = seed;
    while (state.mode < MODE_COUNT && strcmp(mode_names[state.mode], mode) != 0)
        state.mode++;
    return state.mode < MODE_COUNT && pass(walk, &state);
}

static bool
walk_all(struct walk *walk)
{
    struct states_progress *progress = walk->request->progress;

    walk->is_counting = true;
    pass(walk, NULL);
    walk->is_counting = false;
    for (int i = 0; i < PASSES_MAX && !is_done(walk); i++) {
        uint64_t left = walk->request->budget - progress->state_count;
        walk->scale = (double)(left + 10) / walk->weight_sum * (i + 1);
        pass(walk, NULL);
    }
    return progress->state_count > 0;
}

bool
states_walk(const struct states_request *request)
{
    static struct walk walk;
    static struct oracle oracle;

    walk.request = request;
    walk.oracle = &oracle;
    walk.rng.state = request->seed;
    if (!log_map(request->log_path, &walk.log, &walk.log_size) || !log_parse(&walk)) {
        snprintf(request->progress->problems[request->progress->problem_count++],
            STATE_PROBLEM_BYTES, "%s is not a whole log", request->log_path);
        return false;
    }
    walk.disk = disk_create();
    bool is_walked = request->only != NULL ? walk_one(&walk) : walk_all(&walk);
    disk_destroy(walk.disk);
    return is_walked && request->progress->problem_count == 0;
}
