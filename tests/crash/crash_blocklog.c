/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_blocklog.c - what a disk below a file system may have after the power went: from a log of
 * its writes and flushes.
 *
 * Usage: crash_blocklog [--states N] [--seed N]. Four writers (crash_writers.h) work on a store
 * with io_uring and O_DIRECT, on ext4, on a loop device, on a disk that logs (crash_disk.h). Then,
 * for N moments, in their order, the disk is built as it may be at that moment: all writes up to
 * the last flush, and of those since then all, none, some, or some with only a part of their
 * 512-byte sectors. Each is mounted, which replays the journal, and the store is judged with
 * crash_verify() by what was acknowledged before that moment.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_disk.h"
#include "crash_mount.h"
#include "crash_plan.h"
#include "crash_verify.h"
#include "crash_writers.h"

enum {
    STATES_DEFAULT = 100,
    ACTIONS = 160, /* Of a writer. */
    NOTES_MAX = 1 << 16,
    IMAGE_BYTES = 48 << 20,
    SECTOR_BYTES = 512,
    SUPERBLOCK_END = 2048, /* Of ext4, from 1024 on. */
};

/* What becomes of the writes since the last flush. */
enum fate {
    FATE_ALL,
    FATE_NONE,
    FATE_SOME,
    FATE_TORN,
    FATES,
};

/* A record of the log, and where its bytes lie there. */
struct entry {
    struct disk_record record;
    const uint8_t *bytes;
};

struct recording {
    struct workload workload;
    char folder[200];
    uint8_t *base;  /* The disk with all writes up to the last flush that was passed. */
    uint8_t *state; /* The one that is judged. */
    int state_fd;
    struct entry *entries;
    uint64_t entry_count;
    uint64_t first_position; /* Of the log, when the store was open. */
    uint64_t last_position;  /* ... and when the last note had come. */
    uint64_t passed;         /* Records that are in `base`. */
    struct writers_note *notes;
    uint64_t note_count;
    uint64_t noted; /* Notes that the oracle has. */
    uint64_t seed;
    struct oracle oracle;
};

static bool
hear(void *context, const struct writers_note *note)
{
    struct recording *recording = context;

    if (recording->note_count == NOTES_MAX)
        run_fail("too many notes");
    if (note->verb == WRITERS_OPENED)
        recording->first_position = note->stamp;
    recording->notes[recording->note_count++] = *note;
    return true;
}

static uint8_t *
file_map(int fd, uint64_t size)
{
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (bytes == MAP_FAILED)
        run_fail("no memory map: %s", strerror(errno));
    return bytes;
}

/* A file of the folder, whose name is gone at once unless `keeps_name`. */
static int
file_make(const struct recording *recording, const char *name, uint64_t size, bool keeps_name)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", recording->folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
        run_fail("cannot make %s: %s", path, strerror(errno));
    if (!keeps_name)
        unlink(path);
    return fd;
}

static void
log_load(struct recording *recording, const struct crash_disk *disk)
{
    struct stat about;

    if (fstat(disk->log, &about) != 0)
        run_fail("no log");
    const uint8_t *bytes = file_map(disk->log, (uint64_t)about.st_size);
    recording->entry_count = atomic_load(&disk->board->position);
    recording->entries = calloc(recording->entry_count, sizeof(*recording->entries));
    if (recording->entries == NULL)
        run_fail("no memory");
    for (uint64_t i = 0; i < recording->entry_count; i++) {
        struct entry *entry = &recording->entries[i];
        memcpy(&entry->record, bytes, sizeof(entry->record));
        entry->bytes = bytes + sizeof(entry->record);
        bytes = entry->bytes + entry->record.size;
    }
}

/* Run the workload on the disk that logs. False, with a reason: there can be none. */
static bool
record(struct recording *recording, char *reason, uint64_t reason_size)
{
    char image_path[300], disk_point[300], point[300];
    struct crash_disk disk;
    struct crash_mount mount;
    int pipe;

    snprintf(image_path, sizeof(image_path), "%s/image", recording->folder);
    snprintf(disk_point, sizeof(disk_point), "%s/disk", recording->folder);
    snprintf(point, sizeof(point), "%s/mount", recording->folder);
    int image = file_make(recording, "image", IMAGE_BYTES, true);
    if (!crash_mount_format(image_path, "ext4"))
        run_fail("mkfs.ext4 does not work here");
    unlink(image_path);
    uint8_t *bytes = file_map(image, IMAGE_BYTES);
    memcpy(recording->base, bytes, IMAGE_BYTES);
    if (!crash_disk_start(&disk, image, recording->folder, disk_point, reason, reason_size))
        return false;
    atomic_store(&disk.board->is_logging, 1);
    crash_mount_attach(&mount, disk.file, "ext4", point);
    if (!crash_mount_up(&mount))
        run_fail("ext4 does not mount: %s", strerror(errno));
    struct writers_plan plan = {.workload = &recording->workload,
        .dir = point,
        .seed = recording->seed,
        .has_relaxed = true,
        .stamp_fd = disk.board_fd,
        .action_count = ACTIONS};
    pid_t child = writers_start(WRITERS_MODE, &plan, &pipe);
    writers_listen(pipe, UINT64_MAX, hear, recording);
    recording->last_position = atomic_load(&disk.board->position);
    writers_kill(child);
    close(pipe);
    crash_mount_down(&mount);
    crash_mount_detach(&mount);
    crash_disk_stop(&disk);
    log_load(recording, &disk);
    return true;
}

/* Write some of a write's sectors, or all. */
static void
entry_apply(const struct entry *entry, uint8_t *target, struct rng *rng)
{
    for (uint64_t at = 0; at < entry->record.size; at += SECTOR_BYTES) {
        uint64_t left = entry->record.size - at;
        if (rng == NULL || rng_next(rng) % 2 == 0)
            memcpy(target + entry->record.offset + at, entry->bytes + at,
                left < SECTOR_BYTES ? left : SECTOR_BYTES);
    }
}

/* Take the base, and the oracle, to the moment before the record `cut`. */
static void
advance(struct recording *recording, uint64_t cut)
{
    uint64_t flushed = cut;

    while (flushed > recording->passed && !recording->entries[flushed - 1].record.is_flush)
        flushed--;
    for (; recording->passed < flushed; recording->passed++)
        entry_apply(&recording->entries[recording->passed], recording->base, NULL);
}

/* The notes of the four writers come interleaved: those with a later stamp may come first. */
static void
oracle_advance(struct recording *recording, uint64_t cut)
{
    for (uint64_t i = recording->noted; i < recording->note_count; i++) {
        struct writers_note *note = &recording->notes[i];
        if (note->stamp > cut || note->verb == WRITERS_FAILED)
            continue;
        writers_mark(&recording->oracle, note);
        if (note->verb == WRITERS_OPENED)
            recording->oracle.is_open = true;
        note->verb = WRITERS_FAILED; /* It is done. */
    }
    while (recording->noted < recording->note_count &&
           recording->notes[recording->noted].verb == WRITERS_FAILED)
        recording->noted++;
}

/* ext4's superblock has a checksum over two sectors, and ext4 no defence against a torn one. */
static bool
has_superblock(const struct disk_record *record)
{
    return record->offset < SUPERBLOCK_END;
}

/* One disk as it may be just before the record `cut`. */
static void
state_build(struct recording *recording, uint64_t cut, enum fate fate, struct rng rng)
{
    memcpy(recording->state, recording->base, IMAGE_BYTES);
    for (uint64_t i = recording->passed; i < cut; i++) {
        const struct entry *entry = &recording->entries[i];
        bool is_torn = fate == FATE_TORN && rng_next(&rng) % 2 == 0;
        if (fate == FATE_ALL || (fate == FATE_SOME && rng_next(&rng) % 2 == 0))
            entry_apply(entry, recording->state, NULL);
        else if (is_torn)
            entry_apply(entry, recording->state, has_superblock(&entry->record) ? NULL : &rng);
    }
}

static bool
state_judge(struct recording *recording, uint64_t number, struct rng *rng)
{
    char point[300], problem[512];
    struct crash_mount mount;
    struct verify_request request = {.workload = &recording->workload,
        .oracle = &recording->oracle,
        .dir = point,
        .seed = rng_next(rng)};
    bool is_right;

    snprintf(point, sizeof(point), "%s/mount", recording->folder);
    crash_mount_attach(&mount, recording->state_fd, "ext4", point);
    is_right = crash_mount_up(&mount);
    if (!is_right) {
        printf("WRONG in state %" PRIu64 ": it does not mount: %s\n", number, strerror(errno));
    } else {
        is_right = crash_verify(&request, problem, sizeof(problem));
        if (!is_right)
            printf("WRONG in state %" PRIu64 ": %s\n", number, problem);
        crash_mount_down(&mount);
    }
    crash_mount_detach(&mount);
    return is_right;
}

/* The image of a state that was judged wrong, as it was before it was mounted. */
static void
state_keep(struct recording *recording, uint64_t cut, enum fate fate, struct rng rng)
{
    char path[300];

    state_build(recording, cut, fate, rng);
    snprintf(path, sizeof(path), "%s-image", recording->folder);
    FILE *file = fopen(path, "wb");
    if (file != NULL && fwrite(recording->state, IMAGE_BYTES, 1, file) == 1)
        printf("just before record %" PRIu64 ", fate %u; the disk is kept in %s\n", cut,
            (unsigned)fate, path);
    if (file != NULL)
        fclose(file);
}

/* Judge `count` states at moments spread over the log. */
static bool
judge_all(struct recording *recording, uint64_t count)
{
    uint64_t fates[FATES] = {0};
    uint64_t span = recording->last_position - recording->first_position;
    uint64_t open_records = 0;

    for (uint64_t i = 0; i < count; i++) {
        struct rng rng = {recording->seed * 1000003 + i};
        uint64_t jitter = rng_below(&rng, (uint32_t)(span / count + 1));
        uint64_t cut = recording->first_position + span * i / count + jitter;
        /* Often just before a flush: most is at stake there. */
        bool is_before_flush = rng_next(&rng) % 4 != 0;
        while (is_before_flush && cut < recording->last_position &&
               !recording->entries[cut].record.is_flush)
            cut++;
        enum fate fate = (enum fate)rng_below(&rng, FATES);
        if (cut < recording->passed)
            cut = recording->passed;
        advance(recording, cut);
        oracle_advance(recording, cut);
        if (recording->oracle.left_count > 0)
            run_fail("a block left NVMe, which is never full");
        open_records += cut - recording->passed;
        fates[fate]++;
        state_build(recording, cut, fate, rng);
        struct rng choices = rng;
        if (!state_judge(recording, i, &choices)) {
            state_keep(recording, cut, fate, rng);
            return false;
        }
    }
    printf("%" PRIu64 " states judged of a log of %" PRIu64 " records: %" PRIu64
           " with all, %" PRIu64 " with none, %" PRIu64 " with some, %" PRIu64
           " with torn writes since the last flush; %" PRIu64 " such writes a state; %" PRIu64
           " acknowledgements\n",
        count, recording->last_position, fates[FATE_ALL], fates[FATE_NONE], fates[FATE_SOME],
        fates[FATE_TORN], open_records / count, recording->oracle.acknowledged_count);
    if (open_records < count || recording->oracle.acknowledged_count < ACTIONS)
        run_fail("the log holds nothing to judge");
    return true;
}

static struct recording recording = {
    .workload = {.name = "blocklog", .io_engine = RUN_IO_AUTO}, .seed = 1};

/* Everything between the making of the folder and its end. Returns the exit code. */
static int
run(uint64_t count)
{
    char point[300], disk_point[300], reason[256];

    snprintf(point, sizeof(point), "%s/mount", recording.folder);
    snprintf(disk_point, sizeof(disk_point), "%s/disk", recording.folder);
    if (mkdir(recording.folder, 0700) != 0 || mkdir(point, 0700) != 0 ||
        mkdir(disk_point, 0700) != 0)
        run_fail("cannot make %s", recording.folder);
    int base = file_make(&recording, "base", IMAGE_BYTES, false);
    recording.state_fd = file_make(&recording, "state", IMAGE_BYTES, false);
    recording.base = file_map(base, IMAGE_BYTES);
    recording.state = file_map(recording.state_fd, IMAGE_BYTES);
    recording.notes = calloc(NOTES_MAX, sizeof(*recording.notes));
    if (recording.notes == NULL)
        run_fail("no memory");
    oracle_init(&recording.oracle);
    bool can_record = record(&recording, reason, sizeof(reason));
    if (!can_record)
        printf("SKIPPED: %s\n", reason);
    int code = !can_record ? CRASH_SKIPPED : judge_all(&recording, count) ? 0 : 1;
    rmdir(point);
    rmdir(disk_point);
    rmdir(recording.folder);
    return code;
}

int
main(int count, char **values)
{
    struct crash_plan plan = {
        .name = "blocklog", .option = "--states", .count = STATES_DEFAULT, .seed = 1};
    int code = crash_plan_begin(&plan, count, values, &recording.workload);

    if (code != 0)
        return code;
    recording.seed = plan.seed;
    memcpy(recording.folder, plan.folder, sizeof(plan.folder));
    return run(plan.count);
}
