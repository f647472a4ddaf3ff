/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage_plan.c - damage to each structure of a store on disk.
 */
#include "damage_plan.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "file_damage.h"

enum {
    PATH_BYTES = 512,
    STORE_PIECE = 512, /* Small files are damaged in pieces of so many bytes. */
    NAMES_PIECE = 256,
    HEADER_PIECE = 512,
};

const char *
damage_target_name(enum damage_target target)
{
    static const char *const names[TARGET_COUNT] = {"STORE", "NAMES", "index", "batch header",
        "extent", "trailer", "pages swapped", "data file cut", "file missing", "litter"};

    return names[target];
}

static void
note(struct damage *damage, const char *what, const char *name, uint64_t where)
{
    size_t used = strlen(damage->text);

    (void)snprintf(damage->text + used, sizeof(damage->text) - used, "%s%s %s %llu",
        used == 0 ? "" : "; ", what, name, (unsigned long long)where);
}

static int
file_open(const char *path, const char *name, int flags)
{
    char full[PATH_BYTES];
    int fd;

    (void)snprintf(full, sizeof(full), "%s/%s", path, name);
    fd = open(full, flags | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* --- Whole small files ------------------------------------------------------------------------ */

static bool
small_file_damage(struct damage *damage, const struct damage_fixture *fixture, const char *path,
    enum fixture_file which, struct rng *rng)
{
    const struct whole_file *whole = &fixture->files[which];
    size_t piece = which == FILE_INDEX     ? PAGE_BYTES
                   : which <= FILE_STORE_B ? STORE_PIECE
                                           : NAMES_PIECE;
    struct damaged_file file = {.size = whole->size, .page_bytes = piece};
    enum file_damage kind;
    bool differs;
    int fd;

    file.bytes = malloc(whole->size);
    assert_non_null(file.bytes);
    memcpy(file.bytes, whole->bytes, whole->size);
    file.page_used_count = (whole->used + piece - 1) / piece;
    if (file.page_used_count * piece > whole->size)
        file.page_used_count--;
    kind = file_damage_apply(&file, rng);
    differs = file.size != whole->size || memcmp(file.bytes, whole->bytes, whole->size) != 0;
    if (differs) {
        fd = file_open(path, fixture_file_name(which), O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, file.bytes, file.size), file.size);
        close(fd);
        note(damage, file_damage_name(kind), fixture_file_name(which), file.size);
    }
    free(file.bytes);
    return differs;
}

/* --- Pages of the data file ------------------------------------------------------------------- */

/* The page has these bytes now. */
static bool
page_set(struct damage *damage, const struct damage_fixture *fixture, const char *path,
    uint32_t page, const uint8_t *bytes)
{
    const uint8_t *whole = fixture->files[FILE_DATA].bytes + (size_t)page * PAGE_BYTES;
    int fd;

    if (memcmp(bytes, whole, PAGE_BYTES) == 0)
        return false;
    fd = file_open(path, "data/data.00", O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, PAGE_BYTES, (off_t)page * PAGE_BYTES), PAGE_BYTES);
    close(fd);
    damage->page_hurt[page] = 1;
    if (fixture->uses[page] == PAGE_HEADER) {
        damage->header_hurt = true;
        damage->header_gone = damage->header_gone || memcmp(bytes, whole, 8) != 0;
    }
    return true;
}

static bool
page_damage(struct damage *damage, const struct damage_fixture *fixture, const char *path,
    uint32_t page, struct rng *rng)
{
    uint8_t bytes[PAGE_BYTES];
    struct damaged_file file = {.bytes = bytes,
        .size = PAGE_BYTES,
        .page_used_count = PAGE_BYTES / HEADER_PIECE,
        .page_bytes = HEADER_PIECE};
    enum file_damage kind;

    memcpy(bytes, fixture->files[FILE_DATA].bytes + (size_t)page * PAGE_BYTES, PAGE_BYTES);
    kind = file_damage_apply(&file, rng);
    if (kind == DAMAGE_TRUNCATE) /* In a page: its end was never written. */
        memset(bytes + file.size, 0, PAGE_BYTES - file.size);
    note(damage, file_damage_name(kind), "data page", page);
    return page_set(damage, fixture, path, page, bytes);
}

static uint32_t
page_pick(const struct damage_fixture *fixture, enum page_use use, struct rng *rng)
{
    uint32_t start = rng_below(rng, DAMAGE_DATA_PAGES);

    for (uint32_t i = 0; i < DAMAGE_DATA_PAGES; i++) {
        uint32_t page = (start + i) % DAMAGE_DATA_PAGES;

        if (fixture->uses[page] == use)
            return page;
    }
    fail_msg("no page of the data file is used so");
    return 0;
}

/* The last page of a block that has parts: its trailer ends there. */
static uint32_t
trailer_pick(const struct damage_fixture *fixture, struct rng *rng)
{
    const struct known_block *block = &fixture->blocks[rng_below(rng, DAMAGE_KEYS / 8) * 8 + 3];

    return block->page + block->page_count - 1;
}

static bool
pages_swap(
    struct damage *damage, const struct damage_fixture *fixture, const char *path, struct rng *rng)
{
    const uint8_t *data = fixture->files[FILE_DATA].bytes;
    enum page_use use = rng_below(rng, 3) == 0 ? PAGE_HEADER : PAGE_BLOCK;
    uint32_t a = page_pick(fixture, use, rng);
    uint32_t b = page_pick(fixture, rng_below(rng, 4) == 0 ? PAGE_HEADER : use, rng);
    bool differs;

    note(damage, "swap, from page", "data page", a);
    note(damage, "to", "data page", b);
    differs = page_set(damage, fixture, path, a, data + (size_t)b * PAGE_BYTES);
    if (rng_below(rng, 2) == 0) /* Else it stands twice. */
        differs = page_set(damage, fixture, path, b, data + (size_t)a * PAGE_BYTES) || differs;
    return differs;
}

static bool
data_cut(
    struct damage *damage, const struct damage_fixture *fixture, const char *path, struct rng *rng)
{
    const struct whole_file *data = &fixture->files[FILE_DATA];
    size_t size = rng_below(rng, (uint32_t)data->used);
    int fd = file_open(path, "data/data.00", O_WRONLY);

    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
    note(damage, "cut", "data/data.00", size);
    damage->data_short = true;
    for (size_t page = size / PAGE_BYTES; page < DAMAGE_DATA_PAGES; page++) {
        damage->page_hurt[page] = 1;
        if (fixture->uses[page] == PAGE_HEADER)
            damage->header_hurt = damage->header_gone = true;
    }
    return true;
}

/* --- Files ------------------------------------------------------------------------------------ */

static void
file_hurt(struct damage *damage, const struct damage_fixture *fixture, enum fixture_file which)
{
    switch (which) {
    case FILE_STORE_A:
    case FILE_STORE_B:
        damage->store_hurt[which - FILE_STORE_A] = true;
        break;
    case FILE_NAMES_A:
    case FILE_NAMES_B:
        damage->names_hurt[which - FILE_NAMES_A] = true;
        break;
    case FILE_INDEX:
        damage->index_hurt = true;
        break;
    case FILE_DATA:
        memset(damage->page_hurt, 1, sizeof(damage->page_hurt));
        damage->header_hurt = damage->header_gone = true;
        damage->data_short = damage->data_gone = true;
        break;
    case FILE_LOCK:
    case FIXTURE_FILES:
        break;
    }
    (void)fixture;
}

static bool
file_remove(
    struct damage *damage, const struct damage_fixture *fixture, const char *path, struct rng *rng)
{
    enum fixture_file which = (enum fixture_file)rng_below(rng, FIXTURE_FILES);
    char full[PATH_BYTES];

    (void)snprintf(full, sizeof(full), "%s/%s", path, fixture_file_name(which));
    if (unlink(full) != 0)
        return false;
    note(damage, "remove", fixture_file_name(which), 0);
    file_hurt(damage, fixture, which);
    if (which == FILE_INDEX && rng_below(rng, 2) == 0) {
        (void)snprintf(full, sizeof(full), "%s/meta", path);
        if (rmdir(full) == 0) /* There may be litter in it. */
            note(damage, "remove", "meta", 0);
    }
    return true;
}

static bool
litter(struct damage *damage, const char *path, struct rng *rng)
{
    static const char *const names[] = {"LOCK", "live", "meta/data.mdb.new", "data/data.00.new"};
    const char *name = names[rng_below(rng, 4)];
    uint8_t bytes[PAGE_BYTES];
    size_t size = rng_below(rng, sizeof(bytes));
    int fd;

    if (access(path, F_OK) != 0 || (damage->targets & 1u << TARGET_MISSING) != 0)
        return false;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)rng_next(rng);
    fd = file_open(path, name, O_WRONLY | O_CREAT);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
    note(damage, "litter", name, size);
    return true;
}

/* --- One piece -------------------------------------------------------------------------------- */

static bool
target_damage(struct damage *damage, const struct damage_fixture *fixture, const char *path,
    enum damage_target target, struct rng *rng)
{
    enum fixture_file which = FILE_INDEX;

    switch (target) {
    case TARGET_STORE:
    case TARGET_NAMES:
    case TARGET_INDEX:
        if (target != TARGET_INDEX)
            which = (enum fixture_file)(
                (target == TARGET_STORE ? FILE_STORE_A : FILE_NAMES_A) + rng_below(rng, 2));
        if (!small_file_damage(damage, fixture, path, which, rng))
            return false;
        file_hurt(damage, fixture, which);
        return true;
    case TARGET_HEADER:
        return page_damage(damage, fixture, path, page_pick(fixture, PAGE_HEADER, rng), rng);
    case TARGET_BLOCK:
        return page_damage(damage, fixture, path, page_pick(fixture, PAGE_BLOCK, rng), rng);
    case TARGET_TRAILER:
        return page_damage(damage, fixture, path, trailer_pick(fixture, rng), rng);
    case TARGET_SWAP:
        return pages_swap(damage, fixture, path, rng);
    case TARGET_CUT:
        return data_cut(damage, fixture, path, rng);
    case TARGET_MISSING:
        return file_remove(damage, fixture, path, rng);
    case TARGET_LITTER:
    case TARGET_COUNT:
        break;
    }
    return litter(damage, path, rng);
}

bool
damage_do(struct damage *damage, const struct damage_fixture *fixture, const char *path,
    enum damage_target target, struct rng *rng)
{
    /* What is gone cannot be damaged as well. */
    if ((damage->targets & (1u << TARGET_MISSING | 1u << TARGET_CUT)) != 0 ||
        !target_damage(damage, fixture, path, target, rng))
        return false;
    damage->targets |= 1u << target;
    return true;
}

/* --- What it may cost ------------------------------------------------------------------------- */

bool
damage_may_refuse(const struct damage *damage)
{
    return (damage->store_hurt[0] && damage->store_hurt[1]) ||
           (damage->names_hurt[0] && damage->names_hurt[1]);
}

/* Some page of the block's extent is damaged. */
static bool
block_is_hurt(const struct damage *damage, const struct known_block *block)
{
    for (uint32_t i = 0; i < block->page_count; i++) {
        if (damage->page_hurt[block->page + i] != 0)
            return true;
    }
    return false;
}

/*
 * Without the index, a batch whose payloads are damaged may be one that a crash cut short: then it
 * says nothing, and what it replaced is current.
 */
bool
damage_may_return(const struct damage *damage, const struct damage_fixture *fixture, uint64_t key)
{
    const struct known_block *block = &fixture->blocks[key];

    return damage->index_hurt &&
           (damage->header_hurt || (block->is_live && block_is_hurt(damage, block)));
}

bool
damage_must_hit(const struct damage *damage, const struct damage_fixture *fixture, uint64_t key)
{
    const struct known_block *block = &fixture->blocks[key];

    return block->is_live && !block_is_hurt(damage, block) &&
           !damage_may_return(damage, fixture, key);
}
