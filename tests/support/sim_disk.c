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

struct sim_page {
    uint32_t holder_count;
    _Alignas(16) uint8_t bytes[PAGE_BYTES];
};

/* Its bytes are whatever they are, and it has one holder. */
static struct sim_page *
page_new(void)
{
    struct sim_page *page = must(malloc(sizeof(*page)));

    page->holder_count = 1;
    return page;
}

static struct sim_page *
page_hold(struct sim_page *page)
{
    if (page != NULL)
        page->holder_count++;
    return page;
}

static void
page_drop(struct sim_page *page)
{
    if (page != NULL && --page->holder_count == 0)
        free(page);
}

static struct sim_page *
image_page(const struct sim_image *image, size_t index)
{
    return index < image->page_count ? image->pages[index] : NULL;
}

/* Takes the caller's hold of the page; what was there is dropped. */
static void
image_set(struct sim_image *image, size_t index, struct sim_page *page)
{
    if (index >= image->page_count && page == NULL)
        return;
    if (index >= image->page_count) {
        size_t count = index + 1 + index / 2;

        image->pages = must(realloc(image->pages, count * sizeof(image->pages[0])));
        for (size_t i = image->page_count; i < count; i++)
            image->pages[i] = NULL;
        image->page_count = count;
    }
    page_drop(image->pages[index]);
    image->pages[index] = page;
}

/* The page for changing a part of it: a copy, when others hold it too. */
static struct sim_page *
image_own(struct sim_image *image, size_t index)
{
    struct sim_page *page = image_page(image, index);
    struct sim_page *copy;

    if (page != NULL && page->holder_count == 1)
        return page;
    copy = page_new();
    if (page == NULL)
        memset(copy->bytes, 0, PAGE_BYTES);
    else
        memcpy(copy->bytes, page->bytes, PAGE_BYTES);
    image_set(image, index, copy);
    return copy;
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
        const struct sim_page *page = image_page(image, (size_t)(offset / PAGE_BYTES));
        size_t piece = piece_in_page(offset, size);

        if (page != NULL)
            memcpy(to, page->bytes + offset % PAGE_BYTES, piece);
        else
            memset(to, 0, piece);
        to += piece;
        offset += piece;
        size -= piece;
    }
}

/* What a page has at `offset`, as much of it as is asked for: a page as a whole is shared. */
static void
image_take(struct sim_image *image, uint64_t offset, struct sim_page *page, size_t piece)
{
    size_t index = (size_t)(offset / PAGE_BYTES);
    size_t at = (size_t)(offset % PAGE_BYTES);

    if (image->size < offset + piece)
        image->size = offset + piece;
    if (piece == PAGE_BYTES)
        image_set(image, index, page_hold(page));
    else if (page != NULL)
        memcpy(image_own(image, index)->bytes + at, page->bytes + at, piece);
    else if (image_page(image, index) != NULL)
        memset(image_own(image, index)->bytes + at, 0, piece);
}

/* What lies behind the end reads as zero when the file grows again. */
static void
image_resize(struct sim_image *image, uint64_t size)
{
    size_t first = (size_t)((size + PAGE_BYTES - 1) / PAGE_BYTES);

    if (size < image->size) {
        size_t edge = (size_t)(size / PAGE_BYTES);

        for (size_t i = first; i < image->page_count; i++)
            image_set(image, i, NULL);
        if (size % PAGE_BYTES != 0 && image_page(image, edge) != NULL)
            memset(image_own(image, edge)->bytes + size % PAGE_BYTES, 0,
                PAGE_BYTES - size % PAGE_BYTES);
    }
    image->size = size;
}

static void
image_deinit(struct sim_image *image)
{
    for (size_t i = 0; i < image->page_count; i++)
        page_drop(image->pages[i]);
    free(image->pages);
    memset(image, 0, sizeof(*image));
}

static void
image_copy(struct sim_image *target, const struct sim_image *source)
{
    size_t count =
        target->page_count > source->page_count ? target->page_count : source->page_count;

    for (size_t i = 0; i < count; i++) {
        if (image_page(target, i) != image_page(source, i))
            image_set(target, i, page_hold(image_page(source, i)));
    }
    target->size = source->size;
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
    for (size_t i = 0; i < change->page_count; i++)
        page_drop(change->pages[i]);
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
change_add(
    struct sim_disk *disk, struct sim_node *node, enum sim_change_kind kind, size_t page_count)
{
    struct sim_change *change =
        must(calloc(1, sizeof(*change) + page_count * sizeof(change->pages[0])));

    change->kind = kind;
    change->page_count = page_count;
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
    struct sim_change *change = change_add(disk, directory, CHANGE_CREATE, 0);

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
    change = change_add(disk, directory, CHANGE_RENAME, 0);
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
    change = change_add(disk, directory, CHANGE_UNLINK, 0);
    snprintf(change->name, sizeof(change->name), "%s", name);
    entries_remove(&directory->entries, name);
    return true;
}

/* A piece within a page of a write: what stood there is kept, and what stands there now. */
static struct sim_page *
piece_write(struct sim_node *file, uint64_t offset, const uint8_t *bytes, size_t piece)
{
    size_t index = (size_t)(offset / PAGE_BYTES);
    struct sim_page *page;

    image_take(&file->previous, offset, image_page(&file->current, index), piece);
    if (piece == PAGE_BYTES) {
        page = page_new();
        image_set(&file->current, index, page);
    } else {
        page = image_own(&file->current, index);
    }
    memcpy(page->bytes + offset % PAGE_BYTES, bytes, piece);
    return page;
}

static size_t
pages_touched(uint64_t offset, size_t size)
{
    return (size_t)((offset + size - 1) / PAGE_BYTES - offset / PAGE_BYTES + 1);
}

void
disk_write(
    struct sim_disk *disk, struct sim_node *file, const void *bytes, uint64_t offset, size_t size)
{
    const uint8_t *from = bytes;
    struct sim_change *change;

    if (size == 0)
        return;
    change = change_add(disk, file, CHANGE_WRITE, pages_touched(offset, size));
    change->offset = offset;
    change->size = size;
    if (file->current.size < offset + size)
        file->current.size = offset + size;
    for (size_t i = 0; i < change->page_count; i++) {
        size_t piece = piece_in_page(offset, size);

        change->pages[i] = page_hold(piece_write(file, offset, from, piece));
        from += piece;
        offset += piece;
        size -= piece;
    }
}

void
disk_resize(struct sim_disk *disk, struct sim_node *file, enum sim_change_kind kind, uint64_t size)
{
    if (kind == CHANGE_GROW && size <= file->current.size)
        return;
    change_add(disk, file, kind, 0)->size = size;
    image_resize(&file->current, size);
}

/* The bytes that a write left at `offset`, which is in it, are durable. */
static void
write_apply(struct sim_node *node, const struct sim_change *change, uint64_t offset, size_t piece)
{
    size_t index = (size_t)(offset / PAGE_BYTES - change->offset / PAGE_BYTES);

    image_take(&node->durable, offset, change->pages[index], piece);
}

static void
write_apply_all(struct sim_node *node, const struct sim_change *change)
{
    uint64_t offset = change->offset;
    size_t size = (size_t)change->size;

    while (size > 0) {
        size_t piece = piece_in_page(offset, size);

        write_apply(node, change, offset, piece);
        offset += piece;
        size -= piece;
    }
}

static void
change_apply(struct sim_node *node, const struct sim_change *change)
{
    switch (change->kind) {
    case CHANGE_WRITE:
        write_apply_all(node, change);
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
            write_apply(node, change, offset, (size_t)(next - offset));
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
