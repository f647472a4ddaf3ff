/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage_fixture.c - making whole stores, and writing them out.
 */
#include "damage_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "batch_header.h"
#include "bytes.h"

enum {
    PATH_BYTES = 512,
    SEGMENT_PAGES = 256,
    WEAR_KEYS = 700,   /* Of 16 KiB: more than the store holds. */
    WEAR_FIRST = 1000, /* Their first key. */
};

const char *
fixture_file_name(enum fixture_file file)
{
    static const char *const names[FIXTURE_FILES] = {
        "STORE.a", "STORE.b", "NAMES.a", "NAMES.b", "LOCK", "meta/data.mdb", "data/data.00"};

    return names[file];
}

struct kvt_options
damage_options(void)
{
    struct kvt_options options = kit_options();

    options.block_bytes_max = 32 << 10;
    options.host_capacity_bytes = 2 << 20;
    options.io_engine = KVT_IO_THREADS;
    return options;
}

uint64_t
damage_length(uint64_t key)
{
    return 400 + key * 977 % DAMAGE_BLOCK_BYTES_MAX / DAMAGE_PARTS * DAMAGE_PARTS;
}

bool
damage_key_has_parts(uint64_t key)
{
    return key % 8 == 3;
}

/* --- Making ----------------------------------------------------------------------------------- */

static void
block_put(kvt_store *store, kvt_namespace ns, uint64_t key, uint64_t version, uint64_t length)
{
    uint8_t *bytes = malloc(length);
    struct kvt_put put = {.key = {.bytes = (const uint8_t *)&key, .length = sizeof(key)},
        .source = bytes,
        .length = length,
        .flags = KVT_PUT_REPLACE,
        .part_count = damage_key_has_parts(key) ? DAMAGE_PARTS : 1};
    struct kvt_result result = {0};
    kvt_ticket *ticket;

    payload_fill(bytes, length, key, version);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, &result, 1), KVT_OK);
    assert_int_equal(result.status, KVT_OK);
    kvt_ticket_free(ticket);
    free(bytes);
}

static void
block_delete(kvt_store *store, kvt_namespace ns, uint64_t key)
{
    struct kvt_key name = {.bytes = (const uint8_t *)&key, .length = sizeof(key)};
    kvt_ticket *ticket;

    assert_int_equal(kvt_delete_submit(store, ns, &name, 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static void
content_put(struct damage_fixture *fixture, kvt_store *store, enum fixture_kind kind)
{
    char description[200];
    kvt_namespace kept, cleared;

    memset(description, 'd', sizeof(description));
    assert_int_equal(
        kvt_namespace_open(store, "kept", description, sizeof(description), &kept), KVT_OK);
    assert_int_equal(
        kvt_namespace_open(store, "cleared", description, sizeof(description), &cleared), KVT_OK);
    for (uint64_t i = 0; kind == FIXTURE_WORN && i < WEAR_KEYS; i++)
        block_put(store, kept, WEAR_FIRST + i, 1, 16000);
    for (uint64_t key = 0; key < DAMAGE_ALL_KEYS; key++) {
        fixture->blocks[key] = (struct known_block){.is_live = true, .version = 1};
        block_put(store, key < DAMAGE_KEYS ? kept : cleared, key, 1, damage_length(key));
    }
    for (uint64_t key = 0; key < DAMAGE_KEYS; key++) {
        if (key % 8 == 1)
            block_delete(store, kept, key);
        if (key % 8 == 2)
            block_put(store, kept, key, 2, damage_length(key));
        fixture->blocks[key].is_live = key % 8 != 1;
        fixture->blocks[key].version = key % 8 == 2 ? 2 : 1;
    }
    assert_int_equal(kvt_namespace_clear(store, cleared), KVT_OK);
    for (uint64_t key = DAMAGE_KEYS; key < DAMAGE_ALL_KEYS; key++)
        fixture->blocks[key].is_live = false;
}

/* Where the live blocks lie. */
static void
places_learn(struct damage_fixture *fixture, kvt_store *store)
{
    struct kvt_scan_entry entry;
    uint64_t cursor = 0;
    uint32_t count;

    while (kvt_scan(store, &cursor, &entry, 1, &count) == KVT_OK) {
        struct known_block *block;
        uint64_t key;

        memcpy(&key, entry.key, sizeof(key));
        if (key >= DAMAGE_ALL_KEYS)
            continue;
        block = &fixture->blocks[key];
        assert_true(block->is_live && (entry.tiers & KVT_TIER_NVME) != 0);
        block->page = entry.segment * SEGMENT_PAGES + entry.page;
        block->stored_length = (uint32_t)entry.stored_length;
        block->page_count = pages_of((uint32_t)entry.stored_length);
        memset(fixture->uses + block->page, PAGE_BLOCK, block->page_count);
    }
    for (uint64_t key = 0; key < DAMAGE_ALL_KEYS; key++)
        assert_true(fixture->blocks[key].is_live == (fixture->blocks[key].page_count > 0));
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void
file_take(struct whole_file *file, const char *path, const char *name)
{
    char full[PATH_BYTES];
    struct stat facts;
    int fd;

    (void)snprintf(full, sizeof(full), "%s/%s", path, name);
    fd = open(full, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &facts), 0);
    file->size = (size_t)facts.st_size;
    file->bytes = calloc(1, file->size + 1);
    assert_non_null(file->bytes);
    assert_int_equal(read(fd, file->bytes, file->size), file->size);
    close(fd);
    for (file->used = file->size; file->used > 0 && file->bytes[file->used - 1] == 0; file->used--)
        continue;
}

static void
headers_learn(struct damage_fixture *fixture)
{
    const struct whole_file *data = &fixture->files[FILE_DATA];
    struct batch_header header;

    assert_int_equal(data->size, (size_t)DAMAGE_DATA_PAGES * PAGE_BYTES);
    for (uint32_t page = 0; page < DAMAGE_DATA_PAGES; page++) {
        if (batch_header_peek(data->bytes + (size_t)page * PAGE_BYTES, &header) == KVT_OK &&
            header.extent.segment * SEGMENT_PAGES + header.extent.page == page)
            memset(fixture->uses + page, PAGE_HEADER, header.header_pages);
    }
}

void
fixture_make(struct damage_fixture *fixture, enum fixture_kind kind, const char *path)
{
    struct kvt_options options = damage_options();
    kvt_store *store;

    memset(fixture, 0, sizeof(*fixture));
    fixture->kind = kind;
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    content_put(fixture, store, kind);
    places_learn(fixture, store);
    if (kind == FIXTURE_KILLED)
        kvt_abort(store);
    else
        assert_int_equal(kvt_close(store), KVT_OK);
    for (int i = 0; i < FIXTURE_FILES; i++)
        file_take(&fixture->files[i], path, fixture_file_name((enum fixture_file)i));
    headers_learn(fixture);
    kit_dir_remove(path);
}

void
fixture_free(struct damage_fixture *fixture)
{
    for (int i = 0; i < FIXTURE_FILES; i++)
        free(fixture->files[i].bytes);
}

/* --- Writing out ------------------------------------------------------------------------------ */

/* What is not of the fixture goes. */
static void
folder_clear(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL)
        (void)closedir(folder);
}

void
fixture_write(const struct damage_fixture *fixture, const char *path)
{
    static const char *const folders[] = {"", "/meta", "/data"};
    char full[PATH_BYTES];

    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(full, sizeof(full), "%s%s", path, folders[i]);
        (void)mkdir(full, 0700);
        folder_clear(full);
    }
    for (int i = 0; i < FIXTURE_FILES; i++) {
        const struct whole_file *file = &fixture->files[i];
        int fd;

        (void)snprintf(full, sizeof(full), "%s/%s", path, fixture_file_name((enum fixture_file)i));
        fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, file->bytes, file->used), file->used);
        assert_int_equal(ftruncate(fd, (off_t)file->size), 0);
        assert_int_equal(close(fd), 0);
    }
}
