/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_model.c - the disks that a power cut may leave (disk_model.h).
 *
 * A file's image is its sure content; choosing a disk writes pending changes into the images and
 * remembers the pages it touched, so that restoring costs no more than what was changed.
 */
#include "disk_model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "rng.h"

/* A log that the model does not understand proves nothing: stop. */
static void
give_up(const char *what, const char *path)
{
    fprintf(stderr, "disk model: %s (%s)\n", what, path);
    abort();
}

static void *
reserve(size_t size)
{
    void *memory = mmap(
        NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        give_up("no address space", "mmap");
    return memory;
}

struct disk *
disk_create(void)
{
    static const uint8_t zeros[PAGE];
    struct disk *disk = reserve(sizeof(*disk));

    disk->zero_hash = XXH3_64bits(zeros, PAGE);
    return disk;
}

static void
node_release(struct node *node)
{
    node_forget_file(node);
    if (node->image != NULL) {
        munmap(node->image, IMAGE_BYTES);
        munmap(node->page_hash, IMAGE_BYTES / PAGE * sizeof(uint64_t));
        munmap(node->touched, IMAGE_BYTES / PAGE * sizeof(uint32_t));
    }
    memset(node, 0, sizeof(*node));
}

void
disk_destroy(struct disk *disk)
{
    if (disk == NULL)
        return;
    for (uint32_t i = 0; i < disk->node_count; i++)
        node_release(&disk->nodes[i]);
    free(disk->saved);
    munmap(disk, sizeof(*disk));
}

static uint32_t
node_add(struct disk *disk, uint64_t inode, bool is_dir)
{
    for (uint32_t i = 0; i < disk->node_count; i++) {
        if (disk->nodes[i].inode == inode)
            disk->nodes[i].inode = 0; /* The file system gave the number again. */
    }
    if (disk->node_count == DISK_NODES_MAX)
        give_up("too many files", "");
    struct node *node = &disk->nodes[disk->node_count];
    *node = (struct node){.inode = inode, .is_dir = is_dir};
    if (!is_dir) {
        node->image = reserve(IMAGE_BYTES);
        node->page_hash = reserve(IMAGE_BYTES / PAGE * sizeof(uint64_t));
        node->touched = reserve(IMAGE_BYTES / PAGE * sizeof(uint32_t));
    }
    return disk->node_count++;
}

void
disk_reset(struct disk *disk, uint64_t root_inode)
{
    for (uint32_t i = 0; i < disk->node_count; i++)
        node_release(&disk->nodes[i]);
    disk->node_count = 0;
    disk->sure.count = 0;
    disk->now.count = 0;
    disk->pending_count = 0;
    disk->change_count = 0;
    disk->choice = 0;
    node_add(disk, root_inode, true);
}

/* --- Names ------------------------------------------------------------------------------------ */

uint32_t
tree_find(const struct tree *tree, uint32_t parent, const char *name)
{
    for (uint32_t i = 0; i < tree->count; i++) {
        if (tree->entries[i].parent == parent && strcmp(tree->entries[i].name, name) == 0)
            return i;
    }
    return NOTHING;
}

static void
tree_remove(struct tree *tree, uint32_t index)
{
    if (index != NOTHING)
        tree->entries[index] = tree->entries[--tree->count];
}

static void
tree_add(struct tree *tree, uint32_t parent, const char *name, uint32_t node)
{
    tree_remove(tree, tree_find(tree, parent, name));
    if (tree->count == DISK_NODES_MAX)
        give_up("too many names", name);
    struct entry *entry = &tree->entries[tree->count++];
    entry->parent = parent;
    entry->node = node;
    snprintf(entry->name, sizeof(entry->name), "%s", name);
}

static void
tree_change(struct tree *tree, const struct change *change)
{
    uint32_t index = tree_find(tree, change->node, change->name);

    if (change->kind == CRASH_UNLINK) {
        tree_remove(tree, index);
    } else if (change->kind == CRASH_RENAME) {
        /* A rename of a name whose creation is not there has nothing to move. */
        if (index == NOTHING)
            return;
        uint32_t node = tree->entries[index].node;
        tree_remove(tree, index);
        tree_add(tree, change->node, change->new_name, node);
    } else {
        tree_add(tree, change->node, change->name, change->target);
    }
}

/* The directory that holds the last part of `path`, as the program sees it now. */
static uint32_t
resolve_parent(const struct disk *disk, const char *path, char *name_out)
{
    uint32_t node = 0;
    const char *part = path;

    for (;;) {
        size_t length = strcspn(part, "/");
        if (length == 0 || length >= NAME_MAX_BYTES)
            give_up("a name that is empty or too long", path);
        memcpy(name_out, part, length);
        name_out[length] = 0;
        if (part[length] == 0)
            return node;
        uint32_t index = tree_find(&disk->now, node, name_out);
        if (index == NOTHING)
            give_up("a path below a directory that the log did not create", path);
        node = disk->now.entries[index].node;
        part += length + 1;
    }
}

static uint32_t
node_of(const struct disk *disk, uint64_t inode, const char *path)
{
    for (uint32_t i = 0; i < disk->node_count; i++) {
        if (disk->nodes[i].inode == inode)
            return i;
    }
    give_up("a file that the log did not create", path);
    return NOTHING;
}

/* --- Bytes ------------------------------------------------------------------------------------ */

static uint64_t
mix(uint64_t a, uint64_t b)
{
    struct rng rng = {a ^ (b + 1) * UINT64_C(0xD6E8FEB86659FD93)};

    return rng_next(&rng);
}

/* Before a page is changed while a disk is chosen. */
static void
page_save(struct disk *disk, uint32_t number, uint64_t page)
{
    struct node *node = &disk->nodes[number];

    if (!disk->is_chosen || node->touched[page] == disk->choice)
        return;
    node->touched[page] = disk->choice;
    if (disk->saved_count == disk->saved_capacity) {
        disk->saved_capacity = disk->saved_capacity * 2 + 64;
        disk->saved = realloc(disk->saved, disk->saved_capacity * sizeof(*disk->saved));
        if (disk->saved == NULL)
            give_up("no memory", "");
    }
    struct saved_page *saved = &disk->saved[disk->saved_count++];
    saved->node = number;
    saved->page = page;
    saved->hash = node->page_hash[page];
    memcpy(saved->bytes, node->image + page * PAGE, PAGE);
}

static void
page_hash_set(struct disk *disk, struct node *node, uint64_t page)
{
    uint64_t hash = XXH3_64bits(node->image + page * PAGE, PAGE);

    if (hash == disk->zero_hash)
        hash = 0;
    if (node->page_hash[page] != 0)
        node->hash ^= mix(node->page_hash[page], page);
    if (hash != 0)
        node->hash ^= mix(hash, page);
    node->page_hash[page] = hash;
}

/* `data` NULL: zeros. */
static void
image_write(struct disk *disk, uint32_t number, uint64_t offset, const uint8_t *data, uint64_t size)
{
    struct node *node = &disk->nodes[number];

    if (offset > IMAGE_BYTES || size > IMAGE_BYTES - offset)
        give_up("a file is too large for the model", "");
    while (size > 0) {
        uint64_t page = offset / PAGE;
        uint64_t within = offset % PAGE;
        uint64_t part = size < PAGE - within ? size : PAGE - within;
        if (data != NULL || node->page_hash[page] != 0) {
            page_save(disk, number, page);
            if (data != NULL)
                memcpy(node->image + offset, data, part);
            else
                memset(node->image + offset, 0, part);
            page_hash_set(disk, node, page);
        }
        data = data != NULL ? data + part : NULL;
        offset += part;
        size -= part;
    }
}

/* Some sectors of a write; the size is there in any case (it may be without the bytes). */
static void
image_tear(struct disk *disk, const struct change *change, uint64_t seed)
{
    struct rng rng = {mix(seed, change->number)};
    uint64_t end = change->offset + change->length;

    for (uint64_t from = change->offset; from < end;) {
        uint64_t to = (from / DISK_SECTOR_BYTES + 1) * DISK_SECTOR_BYTES;
        if (to > end)
            to = end;
        if (rng_below(&rng, 2) == 1)
            image_write(
                disk, change->node, from, change->data + (from - change->offset), to - from);
        from = to;
    }
}

static void
change_apply(struct disk *disk, const struct change *change, enum disk_keep keep, uint64_t seed)
{
    struct node *node = &disk->nodes[change->node];
    uint64_t end = change->offset + change->length;

    if (node->is_dir) {
        tree_change(&disk->sure, change);
    } else if (change->kind == CRASH_TRUNCATE) {
        if (change->length < node->size)
            image_write(disk, change->node, change->length, NULL, node->size - change->length);
        node->size = change->length;
    } else {
        if (change->kind == CRASH_WRITE && keep == DISK_TEAR)
            image_tear(disk, change, seed);
        else if (change->kind == CRASH_WRITE)
            image_write(disk, change->node, change->offset, change->data, change->length);
        if (node->size < end)
            node->size = end;
    }
}

/* --- The log ---------------------------------------------------------------------------------- */

/* Sure changes that no unsure one of the same node precedes go into the base. */
static void
fold(struct disk *disk)
{
    bool is_blocked[DISK_NODES_MAX] = {false};
    size_t kept = 0;

    for (size_t i = 0; i < disk->pending_count; i++) {
        struct change *change = &disk->pending[i];
        if (change->is_sure && !is_blocked[change->node]) {
            change_apply(disk, change, DISK_KEEP, 0);
            continue;
        }
        is_blocked[change->node] = true;
        if (kept != i)
            disk->pending[kept] = *change;
        kept++;
    }
    disk->pending_count = kept;
}

static struct change *
pending_add(struct disk *disk, enum crash_kind kind, uint32_t node)
{
    if (disk->pending_count == DISK_PENDING_MAX)
        give_up("too many changes without a sync", "");
    struct change *change = &disk->pending[disk->pending_count++];
    *change = (struct change){.kind = kind, .node = node, .number = ++disk->change_count};
    return change;
}

static bool
apply_name(struct disk *disk, const struct crash_record *record, const char *path)
{
    char name[NAME_MAX_BYTES], new_name[NAME_MAX_BYTES] = "";
    uint32_t parent = resolve_parent(disk, path, name);

    if (record->kind == CRASH_RENAME &&
        resolve_parent(disk, path + strlen(path) + 1, new_name) != parent)
        give_up("a rename into another directory", path);
    struct change *change = pending_add(disk, (enum crash_kind)record->kind, parent);
    memcpy(change->name, name, sizeof(name));
    memcpy(change->new_name, new_name, sizeof(new_name));
    if (record->kind == CRASH_CREATE || record->kind == CRASH_MKDIR)
        change->target = node_add(disk, record->inode, record->kind == CRASH_MKDIR);
    tree_change(&disk->now, change);
    return true;
}

static bool
apply_sync(struct disk *disk, const struct crash_record *record, const char *path)
{
    uint64_t *begin = &disk->sync_begin[record->offset % SYNCS_MAX];

    if (record->kind == CRASH_SYNC_BEGIN) {
        *begin = disk->change_count;
        return false;
    }
    if (record->length == 0)
        return false; /* It failed: nothing is promised. */
    uint32_t node = node_of(disk, record->inode, path);
    for (size_t i = 0; i < disk->pending_count; i++) {
        struct change *change = &disk->pending[i];
        if (change->node == node && change->number <= *begin)
            change->is_sure = true;
    }
    fold(disk);
    return true;
}

static void
last_write_is_sure(struct disk *disk, uint64_t inode)
{
    uint32_t node = node_of(disk, inode, "O_DSYNC");

    for (size_t i = disk->pending_count; i > 0; i--) {
        struct change *change = &disk->pending[i - 1];
        if (change->node == node && change->kind == CRASH_WRITE) {
            change->is_sure = true;
            break;
        }
    }
    fold(disk);
}

bool
disk_apply(
    struct disk *disk, const struct crash_record *record, const char *path, const uint8_t *data)
{
    enum crash_kind kind = (enum crash_kind)record->kind;

    switch (kind) {
    case CRASH_WRITE:
    case CRASH_TRUNCATE:
    case CRASH_ALLOCATE: {
        struct change *change = pending_add(disk, kind, node_of(disk, record->inode, path));
        change->offset = record->offset;
        change->length = record->length;
        change->data = data;
        return true;
    }
    case CRASH_DURABLE:
        last_write_is_sure(disk, record->inode);
        return true;
    case CRASH_SYNC_BEGIN:
    case CRASH_SYNC_END:
        return apply_sync(disk, record, path);
    case CRASH_CREATE:
    case CRASH_MKDIR:
    case CRASH_RENAME:
    case CRASH_UNLINK:
        return apply_name(disk, record, path);
    case CRASH_MARK:
        return false;
    }
    give_up("a record of an unknown kind", path);
    return false;
}

size_t
disk_pending(const struct disk *disk)
{
    return disk->pending_count;
}

bool
disk_pending_is_name(const struct disk *disk, size_t index)
{
    return disk->nodes[disk->pending[index].node].is_dir;
}

/* --- Choosing --------------------------------------------------------------------------------- */

static uint64_t
content_hash(const struct disk *disk, uint32_t parent, uint64_t above)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < disk->sure.count; i++) {
        const struct entry *entry = &disk->sure.entries[i];
        if (entry->parent != parent)
            continue;
        const struct node *node = &disk->nodes[entry->node];
        uint64_t here = mix(above, XXH3_64bits(entry->name, strlen(entry->name)));
        sum += mix(mix(here, node->hash), node->size);
        if (node->is_dir)
            sum += content_hash(disk, entry->node, here);
    }
    return sum;
}

uint64_t
disk_choose(struct disk *disk, const uint8_t *keep, uint64_t seed)
{
    disk->is_chosen = true;
    disk->choice++;
    disk->sure_before = disk->sure;
    for (uint32_t i = 0; i < disk->node_count; i++) {
        disk->size_before[i] = disk->nodes[i].size;
        disk->hash_before[i] = disk->nodes[i].hash;
    }
    for (size_t i = 0; i < disk->pending_count; i++) {
        const struct change *change = &disk->pending[i];
        if (change->is_sure)
            change_apply(disk, change, DISK_KEEP, seed);
        else if (keep[i] != DISK_DROP)
            change_apply(disk, change, (enum disk_keep)keep[i], seed);
    }
    return content_hash(disk, 0, 1);
}

void
disk_restore(struct disk *disk)
{
    for (size_t i = 0; i < disk->saved_count; i++) {
        const struct saved_page *saved = &disk->saved[i];
        struct node *node = &disk->nodes[saved->node];
        memcpy(node->image + saved->page * PAGE, saved->bytes, PAGE);
        node->page_hash[saved->page] = saved->hash;
    }
    disk->saved_count = 0;
    for (uint32_t i = 0; i < disk->node_count; i++) {
        disk->nodes[i].size = disk->size_before[i];
        disk->nodes[i].hash = disk->hash_before[i];
    }
    disk->sure = disk->sure_before;
    disk->is_chosen = false;
}
