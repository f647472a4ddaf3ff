/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_disk.c - files and directories of the simulated disk, now and after a power cut.
 *
 * Memory that runs out here ends the test: this is not the memory under test.
 */
#include "sim_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

static void *
must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "sim_disk: out of memory\n");
        abort();
    }
    return memory;
}

/* --- 1. Images -------------------------------------------------------------------------------- */

static uint8_t *
image_page(struct sim_image *image, size_t page)
{
    if (page >= image->page_count) {
        size_t count = page + 1 + page / 2;

        image->pages = must(realloc(image->pages, count * sizeof(image->pages[0])));
        for (size_t i = image->page_count; i < count; i++)
            image->pages[i] = NULL;
        image->page_count = count;
    }
    if (image->pages[page] == NULL)
        image->pages[page] = must(calloc(1, PAGE_BYTES));
    return image->pages[page];
}

static size_t
piece_in_page(uint64_t offset, size_t size)
{
    size_t room = PAGE_BYTES - (size_t)(offset % PAGE_BYTES);

    return size < room ? size : room;
}

void
image_read(const struct sim_image *image, uint64_t offset, void *target, size_t size)
{
    uint8_t *to = target;

    while (size > 0) {
        size_t page = (size_t)(offset / PAGE_BYTES);
        size_t piece = piece_in_page(offset, size);

        if (page < image->page_count && image->pages[page] != NULL)
            memcpy(to, image->pages[page] + offset % PAGE_BYTES, piece);
        else
            memset(to, 0, piece);
        to += piece;
        offset += piece;
        size -= piece;
    }
}

static void
image_write(struct sim_image *image, uint64_t offset, const void *source, size_t size)
{
    const uint8_t *from = source;

    if (image->size < offset + size)
        image->size = offset + size;
    while (size > 0) {
        size_t piece = piece_in_page(offset, size);

        memcpy(image_page(image, (size_t)(offset / PAGE_BYTES)) + offset % PAGE_BYTES, from, piece);
        from += piece;
        offset += piece;
        size -= piece;
    }
}

/* What lies behind the end reads as zero when the file grows again. */
static void
image_resize(struct sim_image *image, uint64_t size)
{
    size_t first = (size_t)((size + PAGE_BYTES - 1) / PAGE_BYTES);

    if (size < image->size) {
        size_t edge = (size_t)(size / PAGE_BYTES);

        for (size_t i = first; i < image->page_count; i++) {
            free(image->pages[i]);
            image->pages[i] = NULL;
        }
        if (size % PAGE_BYTES != 0 && edge < image->page_count && image->pages[edge] != NULL)
            memset(image->pages[edge] + size % PAGE_BYTES, 0, PAGE_BYTES - size % PAGE_BYTES);
    }
    image->size = size;
}

static void
image_deinit(struct sim_image *image)
{
    for (size_t i = 0; i < image->page_count; i++)
        free(image->pages[i]);
    free(image->pages);
    memset(image, 0, sizeof(*image));
}

static void
image_copy(struct sim_image *target, const struct sim_image *source)
{
    image_resize(target, source->size);
    for (size_t i = 0; i < target->page_count; i++) {
        if (i < source->page_count && source->pages[i] != NULL)
            continue;
        free(target->pages[i]);
        target->pages[i] = NULL;
    }
    for (size_t i = 0; i < source->page_count; i++) {
        if (source->pages[i] != NULL)
            memcpy(image_page(target, i), source->pages[i], PAGE_BYTES);
    }
}

/* --- 2. Entries ------------------------------------------------------------------------------- */

static struct sim_entry *
entries_find(const struct sim_entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->items[i].name, name) == 0)
            return &entries->items[i];
    }
    return NULL;
}

static void
entries_set(struct sim_entries *entries, const char *name, struct sim_node *node)
{
    struct sim_entry *entry = entries_find(entries, name);

    if (entry == NULL) {
        if (entries->count == entries->capacity) {
            entries->capacity = entries->capacity * 2 + 8;
            entries->items =
                must(realloc(entries->items, entries->capacity * sizeof(entries->items[0])));
        }
        entry = &entries->items[entries->count++];
        snprintf(entry->name, sizeof(entry->name), "%s", name);
    }
    entry->node = node;
}

/* The order of the others stays, so that a listing does not depend on history by accident. */
static void
entries_remove(struct sim_entries *entries, const char *name)
{
    struct sim_entry *entry = entries_find(entries, name);

    if (entry == NULL)
        return;
    memmove(
        entry, entry + 1, (size_t)(entries->items + entries->count - (entry + 1)) * sizeof(*entry));
    entries->count--;
}

static void
entries_copy(struct sim_entries *target, const struct sim_entries *source)
{
    target->count = 0;
    for (size_t i = 0; i < source->count; i++)
        entries_set(target, source->items[i].name, source->items[i].node);
}

/* --- 3. Nodes --------------------------------------------------------------------------------- */

static struct sim_node *
node_new(struct sim_disk *disk, bool is_directory)
{
    struct sim_node *node = must(calloc(1, sizeof(*node)));

    node->is_directory = is_directory;
    node->number = ++disk->node_count;
    node->next = disk->nodes;
    disk->nodes = node;
    return node;
}

static void
change_free(struct sim_change *change)
{
    free(change->bytes);
    free(change);
}

static void
node_free(struct sim_node *node)
{
    while (node->changes != NULL) {
        struct sim_change *change = node->changes;

        node->changes = change->next;
        change_free(change);
    }
    image_deinit(&node->current);
    image_deinit(&node->durable);
    image_deinit(&node->previous);
    free(node->entries.items);
    free(node->durable_entries.items);
    free(node);
}

void
disk_init(struct sim_disk *disk)
{
    memset(disk, 0, sizeof(*disk));
    disk->root = node_new(disk, true);
}

void
disk_deinit(struct sim_disk *disk)
{
    while (disk->nodes != NULL) {
        struct sim_node *node = disk->nodes;

        disk->nodes = node->next;
        node_free(node);
    }
}

static void
mark_reachable(struct sim_node *node)
{
    node->is_reachable = true;
    for (size_t i = 0; i < node->entries.count; i++)
        mark_reachable(node->entries.items[i].node);
}

static void
mark_all(struct sim_disk *disk)
{
    for (struct sim_node *node = disk->nodes; node != NULL; node = node->next)
        node->is_reachable = false;
    mark_reachable(disk->root);
}

uint64_t
disk_used(struct sim_disk *disk)
{
    uint64_t used = 0;

    mark_all(disk);
    for (struct sim_node *node = disk->nodes; node != NULL; node = node->next) {
        if (node->is_reachable)
            used += node->current.size;
    }
    return used;
}

struct sim_node *
disk_find(const struct sim_node *directory, const char *name)
{
    struct sim_entry *entry = entries_find(&directory->entries, name);

    return entry == NULL ? NULL : entry->node;
}

struct sim_node *
disk_find_path(const struct sim_disk *disk, const char *path)
{
    struct sim_node *node = disk->root;
    char name[SIM_NAME_BYTES];

    while (*path != '\0' && node != NULL) {
        size_t length = strcspn(path, "/");

        if (length >= sizeof(name) || !node->is_directory)
            return NULL;
        if (length > 0) {
            memcpy(name, path, length);
            name[length] = '\0';
            node = disk_find(node, name);
        }
        path += length + (path[length] == '/' ? 1 : 0);
    }
    return node;
}

/* --- 4. Changes ------------------------------------------------------------------------------- */

static struct sim_change *
change_add(struct sim_disk *disk, struct sim_node *node, enum sim_change_kind kind)
{
    struct sim_change *change = must(calloc(1, sizeof(*change)));

    change->kind = kind;
    change->number = ++disk->change_count;
    if (node->changes == NULL)
        node->changes = change;
    else
        node->newest->next = change;
    node->newest = change;
    return change;
}

struct sim_node *
disk_create(struct sim_disk *disk, struct sim_node *directory, const char *name, bool is_directory)
{
    struct sim_change *change = change_add(disk, directory, CHANGE_CREATE);

    change->node = node_new(disk, is_directory);
    snprintf(change->name, sizeof(change->name), "%s", name);
    entries_set(&directory->entries, name, change->node);
    return change->node;
}

bool
disk_rename(struct sim_disk *disk, struct sim_node *directory, const char *from, const char *to)
{
    struct sim_node *node = disk_find(directory, from);
    struct sim_change *change;

    if (node == NULL)
        return false;
    change = change_add(disk, directory, CHANGE_RENAME);
    change->node = node;
    snprintf(change->name, sizeof(change->name), "%s", from);
    snprintf(change->to, sizeof(change->to), "%s", to);
    entries_remove(&directory->entries, from);
    entries_set(&directory->entries, to, node);
    return true;
}

bool
disk_unlink(struct sim_disk *disk, struct sim_node *directory, const char *name)
{
    struct sim_change *change;

    if (disk_find(directory, name) == NULL)
        return false;
    change = change_add(disk, directory, CHANGE_UNLINK);
    snprintf(change->name, sizeof(change->name), "%s", name);
    entries_remove(&directory->entries, name);
    return true;
}

static void
previous_keep(struct sim_node *file, uint64_t offset, size_t size)
{
    uint8_t page[PAGE_BYTES];

    while (size > 0) {
        size_t piece = piece_in_page(offset, size);

        image_read(&file->current, offset, page, piece);
        image_write(&file->previous, offset, page, piece);
        offset += piece;
        size -= piece;
    }
}

void
disk_write(
    struct sim_disk *disk, struct sim_node *file, const void *bytes, uint64_t offset, size_t size)
{
    struct sim_change *change;

    if (size == 0)
        return;
    change = change_add(disk, file, CHANGE_WRITE);
    change->offset = offset;
    change->size = size;
    change->bytes = must(malloc(size));
    memcpy(change->bytes, bytes, size);
    previous_keep(file, offset, size);
    image_write(&file->current, offset, bytes, size);
}

void
disk_resize(struct sim_disk *disk, struct sim_node *file, enum sim_change_kind kind, uint64_t size)
{
    if (kind == CHANGE_GROW && size <= file->current.size)
        return;
    change_add(disk, file, kind)->size = size;
    image_resize(&file->current, size);
}

static void
change_apply(struct sim_node *node, const struct sim_change *change)
{
    switch (change->kind) {
    case CHANGE_WRITE:
        image_write(&node->durable, change->offset, change->bytes, (size_t)change->size);
        break;
    case CHANGE_SIZE:
        image_resize(&node->durable, change->size);
        break;
    case CHANGE_GROW:
        if (node->durable.size < change->size)
            image_resize(&node->durable, change->size);
        break;
    case CHANGE_CREATE:
        entries_set(&node->durable_entries, change->name, change->node);
        break;
    case CHANGE_RENAME:
        entries_remove(&node->durable_entries, change->name);
        entries_set(&node->durable_entries, change->to, change->node);
        break;
    case CHANGE_UNLINK:
        entries_remove(&node->durable_entries, change->name);
        break;
    }
}

/* Sectors are those of the device: a write that starts inside one tears there too. */
static void
change_tear(struct sim_node *node, const struct sim_change *change, struct rng *rng)
{
    uint64_t offset = change->offset;
    uint64_t end = change->offset + change->size;

    if (change->kind != CHANGE_WRITE) {
        if (rng_below(rng, 2) == 0)
            change_apply(node, change);
        return;
    }
    while (offset < end) {
        uint64_t next = (offset / SIM_SECTOR_BYTES + 1) * SIM_SECTOR_BYTES;

        if (next > end)
            next = end;
        if (rng_below(rng, 2) == 0)
            image_write(&node->durable, offset, change->bytes + (offset - change->offset),
                (size_t)(next - offset));
        offset = next;
    }
}

static struct sim_change *
change_take(struct sim_node *node)
{
    struct sim_change *change = node->changes;

    node->changes = change->next;
    if (node->changes == NULL)
        node->newest = NULL;
    return change;
}

void
disk_sync(struct sim_node *node, uint64_t up_to)
{
    while (node->changes != NULL && node->changes->number <= up_to) {
        struct sim_change *change = change_take(node);

        change_apply(node, change);
        change_free(change);
    }
}

void
disk_sync_lossy(struct sim_disk *disk, struct sim_node *node, uint64_t up_to, struct rng *rng)
{
    while (node->changes != NULL && node->changes->number <= up_to) {
        struct sim_change *change = change_take(node);

        if (rng_below(rng, 2) == 0)
            change_apply(node, change);
        else
            disk->has_lies = true;
        change_free(change);
    }
}

/* --- 5. Cuts ---------------------------------------------------------------------------------- */

static void
node_cut(struct sim_node *node, struct rng *rng,
    enum sim_fate (*decide)(void *context, const struct sim_change *change), void *context)
{
    while (node->changes != NULL) {
        struct sim_change *change = change_take(node);

        switch (decide(context, change)) {
        case FATE_KEEP:
            change_apply(node, change);
            break;
        case FATE_TEAR:
            change_tear(node, change, rng);
            break;
        case FATE_DROP:
            break;
        }
        change_free(change);
    }
}

void
disk_unlock(struct sim_disk *disk)
{
    for (struct sim_node *node = disk->nodes; node != NULL; node = node->next)
        node->lock_owner = NULL;
}

void
disk_cut(struct sim_disk *disk, struct rng *rng,
    enum sim_fate (*decide)(void *context, const struct sim_change *change), void *context)
{
    for (struct sim_node *node = disk->nodes; node != NULL; node = node->next) {
        node_cut(node, rng, decide, context);
        entries_copy(&node->entries, &node->durable_entries);
        node->lock_owner = NULL;
    }
    disk->has_lies = false;
    mark_all(disk);
    for (struct sim_node *node = disk->nodes; node != NULL; node = node->next) {
        if (!node->is_reachable) {
            image_deinit(&node->durable);
            image_deinit(&node->previous);
        }
        image_copy(&node->current, &node->durable);
    }
}
