/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_files.c - the data file of a root: found, asked whose it is, probed; made and grown.
 *
 * A new file is made under a temporary name and renamed when all its space is there and durable, so
 * that data.00 is never a file that is too short because of a crash (FORMAT.md section 7).
 */
#include <stdio.h>

#include "bytes.h"
#include "failure.h"
#include "nvme_internal.h"
#include "try.h"

#define FILE_NAME "data.00"
#define FILE_NAME_NEW "data.00.new"

enum {
    PROBE_COUNT = 3,     /* Pages that are tried before a file is said not to answer. */
    CLAIM_SEGMENTS = 64, /* That are asked whose a file is. */
};

/* How long an open waits for what an owner that was killed has in flight: far longer than a disk
 * takes that still answers. */
#define PATIENCE_NS ((uint64_t)30 * 1000000000)

/* What all steps need to know of one root. */
struct file_plan {
    const struct kvt_env *env;
    const struct nvme_options *options;
    const struct nvme_root *roots; /* All; `file` of those that are open. */
    struct fs_dir *dir;
    uint64_t segment_bytes;
    uint64_t wanted_bytes;     /* Whole segments. */
    struct fs_file **made_out; /* NULL: nobody wants it. */
};

static void
plan_warn(const struct file_plan *plan, const char *what, uint64_t bytes)
{
    if (plan->options->logger != NULL)
        log_line(plan->options->logger, LOG_WARN, "nvme",
            "event=%s path=%s/" FILE_NAME " wanted_bytes=%llu file_bytes=%llu", what,
            plan->env->fs->dir_path(plan->dir), (unsigned long long)plan->wanted_bytes,
            (unsigned long long)bytes);
}

/* The read of a page has just failed. */
static void
page_warn(const struct file_plan *plan, uint64_t offset)
{
    if (plan->options->logger != NULL)
        log_line(plan->options->logger, LOG_WARN, "nvme",
            "event=page_unreadable path=%s/" FILE_NAME " offset=%llu text=\"%s\"",
            plan->env->fs->dir_path(plan->dir), (unsigned long long)offset, failure_last()->text);
}

/* The disk has fewer than the `wanted` bytes that the file is to get. */
static enum kvt_status
space_refuse(const struct file_plan *plan, uint64_t wanted, uint64_t free_bytes)
{
    return failure_set(KVT_E_NOSPC, 0, "%s: %llu more bytes are wanted for %s, %llu are free",
        plan->env->fs->dir_path(plan->dir), (unsigned long long)wanted, FILE_NAME,
        (unsigned long long)free_bytes);
}

/* As if it had not been asked for. What an allocation got that failed would stay the file's: ext4
 * keeps it, all that was free on the disk. */
static void
space_give_back(const struct file_plan *plan, struct fs_file *file, uint64_t from)
{
    struct failure first = *failure_last();

    (void)plan->env->fs->truncate(file, from);
    failure_copy(&first);
}

/*
 * Space for the file from `from` to its wanted size; sparse where the file system cannot reserve.
 * What the disk cannot have is not begun: until an allocation gives up, nobody else can write.
 */
static enum kvt_status
space_allocate(const struct file_plan *plan, struct fs_file *file, uint64_t from)
{
    const struct fs_ops *fs = plan->env->fs;
    uint64_t wanted = plan->wanted_bytes - from;
    uint64_t free_bytes = 0;
    enum kvt_status status;

    if (fs->dir_space(plan->dir, &free_bytes) == KVT_OK && free_bytes < wanted)
        return space_refuse(plan, wanted, free_bytes);
    status = fs->allocate(file, from, wanted);
    if (status == KVT_E_UNSUPPORTED) {
        plan_warn(plan, "sparse_file", from);
        status = fs->truncate(file, plan->wanted_bytes);
    }
    if (status == KVT_OK)
        return fs->sync(file);
    space_give_back(plan, file, from);
    if (status != KVT_E_NOSPC)
        return status;
    if (fs->dir_space(plan->dir, &free_bytes) != KVT_OK)
        free_bytes = 0;
    return space_refuse(plan, wanted, free_bytes);
}

static enum kvt_status
missing_refuse(const struct file_plan *plan)
{
    return failure_set(KVT_E_IO, 0,
        "%s/" FILE_NAME " is missing: is its disk mounted? A rebuild of the index that is "
        "asked for makes it anew, and gives its blocks up",
        plan->env->fs->dir_path(plan->dir));
}

/* In the place of one whose disk is not mounted a new one would take blocks that go when that is
 * back, and the blocks of that one would be given up. Without its blocks those of the other roots
 * would look like all that there are. */
static bool
may_be_missing(const struct nvme_options *options, uint32_t number)
{
    return !options->was_made[number] ||
           (options->read_only ? options->may_lack : options->may_remake);
}

/* The pages that lie in memory of one more, as direct reads want them. */
static uint8_t *
page_in(uint8_t *memory)
{
    return memory + (round_up((uintptr_t)memory, PAGE_BYTES) - (uintptr_t)memory);
}

/* The pages of a file that tell whether it answers: the first, a middle one and the last. */
static enum kvt_status
probe_places(const struct file_plan *plan, struct fs_file *file, uint64_t offsets_out[PROBE_COUNT])
{
    uint64_t size = 0;
    uint64_t last_page;

    KVT_TRY(plan->env->fs->size(file, &size));
    last_page = size == 0 ? 0 : (size - 1) / PAGE_BYTES;
    offsets_out[0] = 0;
    offsets_out[1] = last_page / 2 * PAGE_BYTES;
    offsets_out[2] = last_page * PAGE_BYTES;
    return KVT_OK;
}

/*
 * Read a page as transfers will: a file system may promise direct access and refuse it. A page that
 * the disk cannot read costs what stands there, not the store; a file of which none of several can
 * be read is on a disk that does not answer, and would be taken for an empty one.
 */
static enum kvt_status
file_probe(const struct file_plan *plan, struct fs_file *file)
{
    size_t size = 2 * PAGE_BYTES;
    uint64_t offsets[PROBE_COUNT];
    uint8_t *memory;
    enum kvt_status status = KVT_E_IO;

    KVT_TRY(probe_places(plan, file, offsets));
    memory = env_take(plan->env, size);
    if (memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for %zu bytes", size);
    for (uint32_t i = 0; i < PROBE_COUNT && status == KVT_E_IO; i++) {
        uint8_t *page = page_in(memory);
        size_t read_size = 0;

        status = plan->env->fs->read_at(file, page, PAGE_BYTES, offsets[i], &read_size);
        if (status == KVT_E_IO)
            page_warn(plan, offsets[i]);
    }
    env_put(plan->env, memory, size);
    return status;
}

/* --- Whose file it is ------------------------------------------------------------------------- */

/* What headers in a file say. */
struct claim {
    const struct file_plan *plan;
    struct fs_file *file;
    uint32_t number;           /* Of the root. */
    uint8_t *pages;            /* Of one header. */
    struct batch_header other; /* The first that is not the root's. */
    bool has_other;
    bool is_of_store; /* That one is of another root of this store. */
};

static bool
pages_read(const struct claim *claim, uint64_t offset, uint32_t count)
{
    size_t size = (size_t)count * PAGE_BYTES;
    size_t read_size = 0;

    return claim->plan->env->fs->read_at(claim->file, claim->pages, size, offset, &read_size) ==
               KVT_OK &&
           read_size == size;
}

/*
 * Uuids are random, so that those of two stores differ in half of their 122 bits: in so few as this
 * in one pair of 10^16. Damage, or a read that is wrong, changes a few.
 */
static bool
uuid_is_other(const struct claim *claim, const struct batch_header *header)
{
    enum {
        NEAR_BITS = 16
    };
    uint32_t bit_count = 0;

    for (size_t i = 0; i < sizeof(header->store_uuid); i++)
        bit_count += (uint32_t)__builtin_popcount(
            header->store_uuid[i] ^ claim->plan->options->store_uuid[i]);
    return bit_count > NEAR_BITS;
}

/*
 * Whether the root's own header begins at that page. What cannot be read says nothing, nor does
 * what is no header. There is no proof for headers of other stores, whose secrets nobody has here;
 * but one of this store whose uuid is damaged is told by its MAC, and so is one that says that it
 * is another root's. A read may be wrong once: what is not own is read again, and the second read
 * tells.
 */
static bool
header_is_own(struct claim *claim, uint64_t offset)
{
    const struct nvme_options *options = claim->plan->options;
    struct batch_header first, header;
    bool is_of_store;

    if (!pages_read(claim, offset, 1) || batch_header_peek(claim->pages, &first) != KVT_OK)
        return false;
    if (memcmp(first.store_uuid, options->store_uuid, sizeof(first.store_uuid)) == 0 &&
        segment_root(first.extent.segment) == claim->number)
        return true;
    if (!pages_read(claim, offset, first.header_pages) ||
        batch_header_peek(claim->pages, &header) != KVT_OK)
        return false;
    is_of_store =
        batch_header_is_of(claim->pages, first.header_pages, options->store_uuid, options->secret);
    if (is_of_store && segment_root(header.extent.segment) == claim->number)
        return true;
    if (!claim->has_other && (is_of_store || uuid_is_other(claim, &header))) {
        claim->other = header;
        claim->has_other = true;
        claim->is_of_store = is_of_store;
    }
    return false;
}

/*
 * Segments are filled from the lowest number on, so that the first ones have a header of whoever
 * ever wrote to the file: at their begin, or, in a file that this store is not known to have made,
 * behind the room of a recycle header. (In its own a payload may lie there.)
 */
static bool
file_is_own(struct claim *claim, uint64_t size)
{
    const struct file_plan *plan = claim->plan;
    bool was_made = plan->options->was_made[claim->number];
    uint32_t count = 0;

    for (uint64_t at = 0; at < size; at += plan->segment_bytes) {
        if (header_is_own(claim, at) ||
            (!was_made && header_is_own(claim, at + SEGMENT_HEAD_PAGES_MAX * PAGE_BYTES)))
            return true;
        if (++count >= CLAIM_SEGMENTS && (was_made || claim->has_other))
            break;
    }
    return !claim->has_other;
}

static enum kvt_status
claim_refuse(const struct claim *claim)
{
    const char *path = claim->plan->env->fs->dir_path(claim->plan->dir);
    char uuid[2 * sizeof(claim->other.store_uuid) + 1] = {0};

    if (claim->is_of_store)
        return failure_set(KVT_E_INVAL, 0,
            "root %u: %s/" FILE_NAME " has blocks of root %u of this store: mount the right disk "
            "there",
            claim->number, path, segment_root(claim->other.extent.segment));
    for (size_t i = 0; i < sizeof(claim->other.store_uuid); i++)
        (void)snprintf(uuid + 2 * i, 3, "%02x", claim->other.store_uuid[i]);
    return failure_set(KVT_E_INVAL, 0,
        "root %u: %s/" FILE_NAME " has blocks of another store, of uuid %s: mount the right disk "
        "there",
        claim->number, path, uuid);
}

/*
 * Two stores with one file, or two roots, would write over each other's blocks: a disk may be
 * mounted in the place of another. A file without a header that tells cannot be told from what a
 * creation left that was cut short, or what nothing was written to yet.
 */
static enum kvt_status
file_claim(const struct file_plan *plan, uint32_t number, struct fs_file *file)
{
    size_t memory_size = (1 + BATCH_HEADER_PAGES_MAX) * PAGE_BYTES;
    struct claim claim = {.plan = plan, .file = file, .number = number};
    uint64_t size = 0;
    uint8_t *memory;
    enum kvt_status status;

    KVT_TRY(plan->env->fs->size(file, &size));
    memory = env_take(plan->env, memory_size);
    if (memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for %zu bytes", memory_size);
    claim.pages = page_in(memory);
    status = file_is_own(&claim, size) ? KVT_OK : claim_refuse(&claim);
    env_put(plan->env, memory, memory_size);
    return status;
}

/* --- Opening it ------------------------------------------------------------------------------- */

/* Then it is locked already, and is refused: by its headers, or by root_is_another(). */
static bool
file_is_of_another_root(const struct file_plan *plan, const struct fs_file *file)
{
    for (uint32_t i = 0; i < plan->options->root_count; i++) {
        if (plan->roots[i].file != NULL && plan->env->fs->is_same(file, plan->roots[i].file))
            return true;
    }
    return false;
}

/*
 * Transfers outlive a process that is killed, and LOCK does not know of them; but each holds the
 * description that it goes through, and so that one's lock. Who has it finds a file that nobody
 * else writes any more. Where locks are asked of a server or a daemon there is none: one would stay
 * behind a killed owner, or take the file from a living one when the server has forgotten it.
 */
static enum kvt_status
file_lock(const struct file_plan *plan, struct fs_file *file, uint64_t timeout_ns)
{
    enum kvt_status status;

    if (file_is_of_another_root(plan, file))
        return KVT_OK;
    status = plan->env->fs->dir_has_locks(plan->dir) ? plan->env->fs->lock(file, timeout_ns)
                                                     : KVT_E_UNSUPPORTED;
    if (status == KVT_E_UNSUPPORTED || status == KVT_E_PERMISSION) {
        plan_warn(plan, "no_locks", 0);
        return KVT_OK;
    }
    if (status != KVT_E_LOCKED)
        return status;
    return failure_set(KVT_E_LOCKED, 0,
        "%s/" FILE_NAME " is locked: writes of an owner that was killed may still be on their way "
        "to it, or another store uses it",
        plan->env->fs->dir_path(plan->dir));
}

/* KVT_MISS: the name is not, or no longer, this file's, which is a file and can be opened. */
static enum kvt_status
name_check(const struct file_plan *plan, const char *name, const struct fs_file *file)
{
    const struct fs_ops *fs = plan->env->fs;
    struct fs_file *named = NULL;
    enum kvt_status status = fs->open(plan->dir, name, FS_READ_ONLY, &named);

    if (status == KVT_E_PERMISSION || status == KVT_E_INVAL ||
        (status == KVT_OK && !fs->is_same(named, file)))
        status = KVT_MISS;
    fs->close(named);
    return status;
}

/* Open the file, data.00 or what is to be it, once nobody else has it. KVT_MISS: nor is it there
 * then: who had it has removed it, or given it its last name. */
static enum kvt_status
file_open_alone(
    const struct file_plan *plan, const char *name, unsigned flags, struct fs_file **file_out)
{
    const struct kvt_env *env = plan->env;
    uint64_t until_ns = env_until(env, PATIENCE_NS);
    struct fs_file *file = NULL;
    enum kvt_status status;
    uint64_t now_ns;

    if (plan->options->read_only)
        flags |= FS_READ_ONLY;
    do {
        env->fs->close(file);
        KVT_TRY(env->fs->open(plan->dir, name, flags, &file));
        now_ns = env_now(env);
        status = file_lock(plan, file, until_ns > now_ns ? until_ns - now_ns : 0);
        /* KVT_E_BUSY: the process forked between the two. */
    } while (status == KVT_E_BUSY && now_ns < until_ns);
    if (status == KVT_OK)
        status = name_check(plan, name, file);
    if (status != KVT_OK) {
        env->fs->close(file);
        return status;
    }
    *file_out = file;
    return KVT_OK;
}

/* Make *file fit for transfers: direct where that works, else it is opened anew. After a failure it
 * is NULL. */
static enum kvt_status
file_fit(const struct file_plan *plan, const char *name, struct fs_file **file)
{
    const struct fs_ops *fs = plan->env->fs;
    enum kvt_status status;

    if (fs->is_direct(*file) && fs->align(*file) > PAGE_BYTES)
        status = failure_set(KVT_E_UNSUPPORTED, 0,
            "%s: the file system wants transfers aligned to %u bytes, kvtier aligns to %d",
            fs->dir_path(plan->dir), fs->align(*file), PAGE_BYTES);
    else
        status = file_probe(plan, *file);
    if (status == KVT_E_INVAL && fs->is_direct(*file)) {
        fs->close(*file);
        *file = NULL;
        KVT_TRY(file_open_alone(plan, name, 0, file));
        status = file_probe(plan, *file);
    }
    if (status != KVT_OK) {
        fs->close(*file);
        *file = NULL;
    }
    return status;
}

/* Open data.00 for transfers. */
static enum kvt_status
file_open(const struct file_plan *plan, struct fs_file **file_out)
{
    KVT_TRY(file_open_alone(plan, FILE_NAME, FS_DIRECT, file_out));
    return file_fit(plan, FILE_NAME, file_out);
}

/* What is given to the caller of nvme_open() is not closed here. */
static void
file_let_go(const struct file_plan *plan, struct fs_file *file)
{
    if (plan->made_out == NULL || file != *plan->made_out)
        plan->env->fs->close(file);
}

static enum kvt_status
others_refuse(const struct file_plan *plan)
{
    return failure_set(KVT_E_INVAL, 0,
        "%s/" FILE_NAME " is made by another store at the same time: a root is one store's",
        plan->env->fs->dir_path(plan->dir));
}

/* Where there was none a moment ago one that is there is another store's; or another root's, which
 * root_is_another() will say. Without a lock, for which others would wait. */
static enum kvt_status
file_look(const struct file_plan *plan, struct fs_file **file_out)
{
    const struct fs_ops *fs = plan->env->fs;
    struct fs_file *file = NULL;

    KVT_TRY(fs->open(plan->dir, FILE_NAME, FS_READ_ONLY, &file));
    if (!file_is_of_another_root(plan, file)) {
        fs->close(file);
        return others_refuse(plan);
    }
    *file_out = file;
    return KVT_OK;
}

/* Grow a file that is shorter than wanted. *size_out: what can be used. */
static enum kvt_status
file_grow(const struct file_plan *plan, struct fs_file *file, uint64_t *size_out)
{
    uint64_t size = 0;
    enum kvt_status status;

    KVT_TRY(plan->env->fs->size(file, &size));
    if (size < plan->wanted_bytes && !plan->options->read_only) {
        status = space_allocate(plan, file, size);
        if (status == KVT_OK)
            size = plan->wanted_bytes;
        else if (status == KVT_E_NOSPC && size >= plan->segment_bytes)
            plan_warn(plan, "cannot_grow", size);
        else
            return status;
    }
    *size_out = size < plan->wanted_bytes ? size : plan->wanted_bytes;
    return KVT_OK;
}

/* --- Making it -------------------------------------------------------------------------------- */

/* Who makes a file has it locked from its begin on: what is not locked was left by a crash. One
 * that this user may not open, and what is no file, go if the folder lets them. KVT_MISS: it is
 * there no longer, or another is. */
static enum kvt_status
leftover_remove(const struct file_plan *plan)
{
    const struct fs_ops *fs = plan->env->fs;
    struct fs_file *file = NULL;
    enum kvt_status status = file_open_alone(plan, FILE_NAME_NEW, 0, &file);

    if (status == KVT_OK || status == KVT_E_PERMISSION || status == KVT_E_INVAL)
        status = fs->unlink(plan->dir, FILE_NAME_NEW);
    fs->close(file);
    return status;
}

/* It is never a file that was there, which may be anybody's. */
static enum kvt_status
file_begin(const struct file_plan *plan, struct fs_file **made_out)
{
    const struct fs_ops *fs = plan->env->fs;
    const unsigned flags = FS_CREATE | FS_EXCLUSIVE;
    enum kvt_status status = fs->open(plan->dir, FILE_NAME_NEW, flags, made_out);

    if (status != KVT_EXISTS)
        return status;
    KVT_TRY(leftover_remove(plan));
    return fs->open(plan->dir, FILE_NAME_NEW, flags, made_out);
}

/* It is locked, so that nobody else takes it for a leftover: of two at once the first would rename
 * what the second has just begun. And it stays so from its last name on: between two locks another
 * store could take it. KVT_MISS: the name is another file's. */
static enum kvt_status
file_fill(const struct file_plan *plan, const struct fs_file *made, struct fs_file **file_out)
{
    const struct fs_ops *fs = plan->env->fs;

    KVT_TRY(file_open_alone(plan, FILE_NAME_NEW, FS_DIRECT, file_out));
    if (!fs->is_same(made, *file_out))
        return KVT_MISS;
    KVT_TRY(space_allocate(plan, *file_out, 0));
    KVT_TRY(file_fit(plan, FILE_NAME_NEW, file_out));
    return fs->is_same(made, *file_out) ? KVT_OK : KVT_MISS;
}

/* KVT_EXISTS: another has the last name. KVT_MISS: another has got it now, or the file is gone:
 * where there are no locks, or another user may not open the file, it was taken for a crash's. */
static enum kvt_status
file_rename(const struct file_plan *plan, struct fs_file *file)
{
    const struct fs_ops *fs = plan->env->fs;
    enum kvt_status status;

    /* Also where the folder was found: who made it may have been killed before its name was sure.
     * Where there is a data.00 it is, so that no other open has to see to it. */
    KVT_TRY(fs->dir_sync_parent(plan->dir));
    KVT_TRY(fs->rename_new(plan->dir, FILE_NAME_NEW, FILE_NAME));
    status = name_check(plan, FILE_NAME, file);
    if (status != KVT_MISS && plan->made_out != NULL)
        *plan->made_out = file;
    return status == KVT_OK ? fs->dir_sync(plan->dir) : status;
}

/* After a failure, which stays the last: the temporary name goes, unless it is another file's. */
static void
file_give_up(const struct file_plan *plan, const struct fs_file *made)
{
    struct failure first = *failure_last();

    if (name_check(plan, FILE_NAME_NEW, made) != KVT_MISS)
        (void)plan->env->fs->unlink(plan->dir, FILE_NAME_NEW);
    failure_copy(&first);
}

static enum kvt_status
file_create(const struct file_plan *plan, struct fs_file **file_out)
{
    struct fs_file *made = NULL, *file = NULL;
    enum kvt_status status = file_begin(plan, &made);

    if (status == KVT_OK) {
        status = file_fill(plan, made, &file);
        if (status == KVT_OK)
            status = file_rename(plan, file);
        /* What another has locked is being removed. */
        if (status != KVT_OK && status != KVT_E_LOCKED)
            file_give_up(plan, made);
    }
    plan->env->fs->close(made);
    if (status == KVT_OK)
        *file_out = file;
    else
        file_let_go(plan, file);
    return status == KVT_MISS || status == KVT_EXISTS ? others_refuse(plan) : status;
}

/* --- All of it -------------------------------------------------------------------------------- */

static enum kvt_status
plan_make(const struct nvme_tier *nvme, uint32_t number, struct file_plan *plan)
{
    const struct kvt_env *env = nvme->env;
    const struct nvme_options *options = &nvme->options;
    uint64_t count;

    plan->env = env;
    plan->options = options;
    plan->roots = nvme->roots;
    plan->dir = options->roots[number];
    plan->made_out = options->made == NULL ? NULL : &options->made[number];
    plan->segment_bytes = (uint64_t)options->segment_pages * PAGE_BYTES;
    count = options->root_bytes[number] / plan->segment_bytes;
    if (count == 0 || count > 1u << 24)
        return failure_set(KVT_E_INVAL, 0,
            "%s: a capacity of %llu bytes is %llu segments of %llu bytes, allowed are 1..%u",
            env->fs->dir_path(plan->dir), (unsigned long long)options->root_bytes[number],
            (unsigned long long)count, (unsigned long long)plan->segment_bytes, 1u << 24);
    plan->wanted_bytes = count * plan->segment_bytes;
    return KVT_OK;
}

enum kvt_status
nvme_file_find(struct nvme_tier *nvme, uint32_t number)
{
    const struct nvme_options *options = &nvme->options;
    struct nvme_root *root = &nvme->roots[number];
    struct fs_file *file = NULL;
    struct file_plan plan;
    enum kvt_status status;

    KVT_TRY(plan_make(nvme, number, &plan));
    if (options->made != NULL && options->made[number] != NULL) {
        root->file = options->made[number]; /* By a try with another io engine. */
        status = name_check(&plan, FILE_NAME, root->file);
        return status == KVT_MISS ? others_refuse(&plan) : status;
    }
    status = options->is_new ? file_look(&plan, &file) : file_open(&plan, &file);
    if (status == KVT_MISS)
        return may_be_missing(options, number) ? KVT_OK : missing_refuse(&plan);
    root->file = file;
    if (status != KVT_OK || options->is_new)
        return status;
    return file_claim(&plan, number, file);
}

/* Another root may have the same folder, and have made the file by now. */
static enum kvt_status
file_make(const struct file_plan *plan, bool was_made, struct fs_file **file_out)
{
    struct fs_file *file = NULL;
    enum kvt_status status = file_look(plan, &file);

    if (status == KVT_MISS) {
        if (was_made)
            plan_warn(plan, "made_anew", 0);
        status = file_create(plan, &file);
    }
    *file_out = file;
    return status;
}

enum kvt_status
nvme_file_ready(struct nvme_tier *nvme, uint32_t number)
{
    const struct nvme_options *options = &nvme->options;
    const struct fs_ops *fs = nvme->env->fs;
    struct nvme_root *root = &nvme->roots[number];
    struct file_plan plan;
    uint64_t size = 0;

    if (root->file == NULL && options->read_only)
        return KVT_OK;
    KVT_TRY(plan_make(nvme, number, &plan));
    if (root->file == NULL)
        KVT_TRY(file_make(&plan, options->was_made[number], &root->file));
    else if (!options->read_only)
        (void)fs->unlink(plan.dir, FILE_NAME_NEW); /* A crash left it. */
    KVT_TRY(file_grow(&plan, root->file, &size));
    root->is_direct = fs->is_direct(root->file);
    root->align_bytes = fs->align(root->file);
    root->segment_count = (uint32_t)(size / plan.segment_bytes);
    return KVT_OK;
}

void
nvme_file_close(struct nvme_tier *nvme, uint32_t number)
{
    const struct nvme_options *options = &nvme->options;
    struct nvme_root *root = &nvme->roots[number];

    if (options->made == NULL || root->file != options->made[number])
        nvme->env->fs->close(root->file);
    root->file = NULL;
}
