/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_inspection.c - what kvtier_unstable.h says of those who look into a store: every status that
 * it names, from a store that gives cause for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "hash.h"
#include "inspect.h"
#include "kvtier/kvtier_unstable.h"
#include "listing.h"
#include "live.h"
#include "payload.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCKS = 5,
    BLOCK_BYTES = 20000,
    SHORT_BYTES = 4096,
    MARGIN_BYTES = 64 << 10, /* As much as a block may have. */
    MARGIN = 0xA5,
    NOBODY = 65534,
    STORE_BYTES = 4096, /* As far as its checksum reaches; at least. */
    AT_CRC = 4,
    AT_VERSION_MAJOR = 16,
    AT_BLOCK_BYTES_MAX = 104,
    AT_LIVE_VERSION = 8,
    PATIENCE = 500,
    REFUSED = 120,   /* More than the log names in a second. */
    SCRUBBED = 2600, /* More than a scrub has under way. */
};

static struct {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct kvt_options options;
    struct kvt_env env; /* The machine's, but for what follows. */
    struct fs_ops fs;
    struct memory_ops memory;
    enum kvt_status (*open)(
        struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out);
    const char *failing_file;
    void *(*map)(void *context, size_t size);
    void (*unmap)(void *context, void *memory, size_t size);
    _Atomic bool is_overwritten; /* Any thread. */
    uint32_t list_count, list_max;
    uint32_t progress_count, progress_max;
} look;

static enum kvt_status
open_failing(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    if (look.failing_file != NULL && strcmp(name, look.failing_file) == 0)
        return failure_errno(EIO, "open", name);
    return look.open(dir, name, flags, file_out);
}

static void *
take_nothing(void *context, size_t size)
{
    (void)context;
    (void)size;
    return NULL;
}

static kvt_store *
open_store(uint32_t flags)
{
    kvt_store *store;

    look.options.flags = flags;
    assert_int_equal(kvt_open(look.path, &look.options, &store), KVT_OK);
    return store;
}

static kvt_namespace
space_of(kvt_store *store)
{
    kvt_namespace ns;

    assert_int_equal(kvt_namespace_open(store, "space", "what it is", 10, &ns), KVT_OK);
    return ns;
}

/* A store that was closed in order. */
static int
setup(void **state)
{
    kvt_store *store;

    (void)state;
    memset(&look, 0, sizeof(look));
    kit_dir_make(look.dir);
    (void)snprintf(look.path, sizeof(look.path), "%s/store", look.dir);
    look.options = kit_options();
    env_host(&look.env);
    look.fs = *look.env.fs;
    look.memory = *look.env.memory;
    look.env.fs = &look.fs;
    look.env.memory = &look.memory;
    look.map = look.memory.map;
    look.unmap = look.memory.unmap;
    look.open = look.fs.open;
    look.fs.open = open_failing;
    look.list_max = UINT32_MAX;
    look.progress_max = UINT32_MAX;
    store = open_store(0);
    for (uint64_t i = 0; i < BLOCKS; i++)
        assert_int_equal(kit_put(store, space_of(store), i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kit_dir_remove(look.dir);
    return 0;
}

static const char *
file_of(const char *name)
{
    static char path[KIT_PATH_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", look.path, name);
    return path;
}

/* Of both copies of STORE. */
static void
store_patch(size_t offset, uint8_t value, bool is_crc_right)
{
    static const char *const names[] = {"STORE.a", "STORE.b"};
    static uint8_t bytes[65536];

    for (uint32_t i = 0; i < 2; i++) {
        int fd = open(file_of(names[i]), O_RDWR | O_CLOEXEC);
        ssize_t size = pread(fd, bytes, sizeof(bytes), 0);

        assert_true(size >= STORE_BYTES);
        bytes[offset] = value;
        if (is_crc_right)
            put_u32(bytes + AT_CRC, crc32c(0, bytes + 8, (size_t)size - 8));
        assert_int_equal(pwrite(fd, bytes, (size_t)size, 0), size);
        close(fd);
    }
}

/* --- 1. Lists --------------------------------------------------------------------------------- */

static int
list_take(void *context, const struct kvt_scan_entry *entry, const char *name)
{
    (void)context;
    assert_int_equal(entry->length, BLOCK_BYTES);
    assert_string_equal(name, "space");
    return ++look.list_count >= look.list_max;
}

static enum kvt_status
list_of(const char *name)
{
    look.list_count = 0;
    return kvt_list(look.path, name, list_take, NULL);
}

static void
a_list_says_why_it_cannot_be(void **state)
{
    char nowhere[KIT_PATH_BYTES + 16];
    kvt_store *store;

    (void)state;
    assert_int_equal(list_of(NULL), KVT_OK);
    assert_int_equal(look.list_count, BLOCKS);
    look.list_max = 2;
    assert_int_equal(list_of("space"), KVT_OK);
    assert_int_equal(look.list_count, 2);
    refused(kvt_list(NULL, NULL, list_take, NULL), KVT_E_INVAL, "path");
    refused(kvt_list(look.path, NULL, NULL, NULL), KVT_E_INVAL, "visit");
    refused(list_of("another"), KVT_E_INVAL, "another");
    (void)snprintf(nowhere, sizeof(nowhere), "%s/nowhere", look.dir);
    assert_int_equal(kvt_list(nowhere, NULL, list_take, NULL), KVT_MISS);
    store = open_store(0);
    refused(list_of(NULL), KVT_E_LOCKED, look.path);
    kvt_abort(store);
    refused(list_of(NULL), KVT_NOT_READY, "order");
    assert_int_equal(kvt_close(open_store(0)), KVT_OK);
    assert_int_equal(list_of(NULL), KVT_OK);
}

static void
a_list_of_a_store_that_is_not_known_or_damaged_is_refused(void **state)
{
    (void)state;
    store_patch(AT_VERSION_MAJOR, 9, true);
    refused(list_of(NULL), KVT_E_FORMAT, "version");
    store_patch(AT_VERSION_MAJOR, 7, false);
    refused(list_of(NULL), KVT_E_CORRUPT, "STORE");
}

static void
a_list_whose_world_fails_says_so(void **state)
{
    const struct list_visitor visitor = {.visit = list_take};
    struct memory_ops memory = look.memory;

    (void)state;
    look.failing_file = "LOCK";
    refused(list_in(&look.env, look.path, NULL, &visitor), KVT_E_IO, "LOCK");
    look.failing_file = NULL;
    look.memory.take = take_nothing;
    refused(list_in(&look.env, look.path, NULL, &visitor), KVT_E_NOMEM, "memory");
    look.memory = memory;
    assert_int_equal(list_in(&look.env, look.path, NULL, &visitor), KVT_OK);
}

/* --- 2. Checks -------------------------------------------------------------------------------- */

static int
progress_take(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)context;
    assert_true(done_bytes <= total_bytes);
    return ++look.progress_count < look.progress_max;
}

static const struct kvt_examiner examiner = {.progress = progress_take};

static void
a_check_can_be_given_up_and_says_what_cannot_be_opened(void **state)
{
    struct kvt_check_report report = {.struct_size = sizeof(report)};

    (void)state;
    assert_int_equal(kvt_check(look.path, &examiner, &report), KVT_OK);
    assert_int_equal(report.block_count, BLOCKS);
    look.progress_max = 1;
    assert_int_equal(kvt_check(look.path, &examiner, &report), KVT_CANCELLED);
    store_patch(AT_VERSION_MAJOR, 7, false);
    assert_int_equal(kvt_check(look.path, NULL, &report), KVT_E_CORRUPT);
    assert_true(report.finding_count > 0);
}

/* A block of this store may have 65,536 bytes: from now on 4,096. */
static void
block_bytes_patch(void)
{
    store_patch(AT_BLOCK_BYTES_MAX + 1, SHORT_BYTES >> 8, true);
    store_patch(AT_BLOCK_BYTES_MAX + 2, 0, true);
}

static void
finding_count(void *context, const struct kvt_finding *finding)
{
    if (strcmp(finding->kind, "record") == 0)
        ++*(uint32_t *)context;
}

/* More than the log names. */
static void
a_check_counts_every_record_that_is_refused(void **state)
{
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    uint32_t record_count = 0;
    const struct kvt_examiner counter = {.found = finding_count, .context = &record_count};
    kvt_store *store = open_store(0);

    (void)state;
    for (uint64_t i = BLOCKS; i < REFUSED; i++)
        assert_int_equal(kit_put(store, space_of(store), i, 1, 2 * SHORT_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_put(store, space_of(store), REFUSED, 1, SHORT_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    block_bytes_patch();
    assert_int_equal(kvt_check(look.path, &counter, &report), KVT_OK);
    assert_int_equal(report.damaged_count, REFUSED);
    assert_int_equal(report.block_count, 1);
    assert_int_equal(report.finding_count, record_count);
}

static void
a_scrub_needs_a_store_that_holds_still(void **state)
{
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    void *(*take)(void *context, size_t size);
    const kvt_namespace all = {0};
    kvt_store *store = open_store(0);

    (void)state;
    refused(kvt_scrub(store, all, NULL, &report), KVT_E_STATE, "reading");
    assert_int_equal(kvt_close(store), KVT_OK);
    store = open_store(KVT_OPEN_READ_ONLY);
    refused(kvt_scrub(store, all, NULL, NULL), KVT_E_INVAL, "report");
    look.progress_max = 1;
    assert_int_equal(kvt_scrub(store, all, &examiner, &report), KVT_CANCELLED);
    look.progress_max = UINT32_MAX;
    assert_int_equal(kvt_scrub(store, all, &examiner, &report), KVT_OK);
    assert_int_equal(report.block_count, BLOCKS);
    assert_int_equal(kvt_close(store), KVT_OK);
    /* The loop is at rest: nobody else takes memory. */
    look.options.flags = KVT_OPEN_READ_ONLY;
    assert_int_equal(kvt_open_env(look.path, &look.options, &look.env, &store), KVT_OK);
    take = look.memory.take;
    look.memory.take = take_nothing;
    refused(kvt_scrub(store, all, NULL, &report), KVT_E_NOMEM, "memory");
    look.memory.take = take;
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* Maps with a margin behind them, which nobody may write to. One of a page is perhaps no map, but
 * the page that a forked child sees as zero. */
static size_t
margin_of(size_t size)
{
    return size == PAGE_BYTES ? 0 : MARGIN_BYTES;
}

static void *
map_with_margin(void *context, size_t size)
{
    uint8_t *memory = look.map(context, size + margin_of(size));

    if (memory != NULL)
        memset(memory + size, MARGIN, margin_of(size));
    return memory;
}

static void
unmap_with_margin(void *context, void *memory, size_t size)
{
    const uint8_t *margin = (const uint8_t *)memory + size;

    for (size_t i = 0; i < margin_of(size); i++) {
        if (margin[i] != MARGIN)
            look.is_overwritten = true;
    }
    look.unmap(context, memory, size + margin_of(size));
}

/* A block is never longer than STORE says, whatever a header says: nothing of what is taken for
 * blocks has room for more. */
static void
a_rebuild_drops_what_is_longer_than_a_block_of_the_store(void **state)
{
    kvt_store *store = open_store(0);

    (void)state;
    assert_int_equal(kit_put(store, space_of(store), BLOCKS, 1, SHORT_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    block_bytes_patch();
    assert_int_equal(unlink(file_of("meta/data.mdb")), 0);
    look.options.block_bytes_max = 0;
    look.options.flags = 0;
    look.memory.map = map_with_margin;
    look.memory.unmap = unmap_with_margin;
    assert_int_equal(kvt_open_env(look.path, &look.options, &look.env, &store), KVT_OK);
    assert_int_equal(kit_stats(store).recover_block_count, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_false(look.is_overwritten);
}

/* While somebody else reads a damaged block, which leaves the store then, a scrub that has yet to
 * come to it goes on. */
static struct {
    kvt_store *store;
    kvt_namespace ns;
    uint64_t damaged;
    bool is_done;
} beside;

static int
progress_beside(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    uint64_t version;

    (void)context;
    (void)done_bytes;
    (void)total_bytes;
    if (!beside.is_done)
        assert_int_equal(kit_get(beside.store, beside.ns, beside.damaged, &version), KVT_MISS);
    beside.is_done = true;
    return 1;
}

/* The last page of the data that is not empty: of a payload, as its header stands before it. */
static void
last_page_damage(void)
{
    static uint8_t page[PAGE_BYTES];
    static const uint8_t empty[PAGE_BYTES];
    int fd = open(file_of("data/data.00"), O_RDWR | O_CLOEXEC);
    off_t at = lseek(fd, 0, SEEK_END);

    do {
        at -= PAGE_BYTES;
        assert_int_equal(pread(fd, page, sizeof(page), at), sizeof(page));
    } while (memcmp(page, empty, sizeof(page)) == 0);
    page[1] ^= 0x40;
    assert_int_equal(pwrite(fd, page, sizeof(page), at), sizeof(page));
    close(fd);
}

static void
a_scrub_goes_on_when_a_block_leaves_before_it_is_looked_at(void **state)
{
    const struct kvt_examiner slow = {.progress = progress_beside};
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    const kvt_namespace all = {0};
    uint64_t version;
    kvt_store *store;

    (void)state;
    look.options.nvme_capacity_bytes = 64 << 20;
    (void)snprintf(look.path, sizeof(look.path), "%s/larger", look.dir);
    store = open_store(0);
    for (uint64_t i = 0; i < SCRUBBED; i++)
        assert_int_equal(kit_put(store, space_of(store), i, 1, 64, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    last_page_damage();
    store = open_store(KVT_OPEN_READ_ONLY);
    beside.damaged = SCRUBBED;
    for (uint64_t i = 0; i < SCRUBBED; i++) {
        if (kit_get(store, space_of(store), i, &version) == KVT_MISS)
            beside.damaged = i;
    }
    assert_true(beside.damaged < SCRUBBED);
    assert_int_equal(kvt_close(store), KVT_OK);
    store = open_store(KVT_OPEN_READ_ONLY);
    beside.store = store;
    beside.ns = space_of(store);
    beside.is_done = false;
    assert_int_equal(kvt_scrub(store, all, &slow, &report), KVT_OK);
    assert_true(beside.is_done);
    assert_int_equal(report.block_count, SCRUBBED);
    assert_int_equal(report.damaged_count, 1);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* What kvt_check() says that it takes; and a block that is stored encoded has room in it. */
static void
a_check_takes_host_memory_by_the_longest_block(void **state)
{
    (void)state;
    for (uint64_t longest = PAGE_BYTES; longest <= KVT_BLOCK_BYTES_MAX; longest *= 2) {
        assert_in_range(scrub_host_bytes(longest), 64 << 20, 256 << 20);
        assert_true(scrub_host_bytes(longest) >= 2 * longest);
    }
    assert_int_equal(scrub_host_bytes(PAGE_BYTES), 64 << 20);
    assert_int_equal(scrub_host_bytes(KVT_BLOCK_BYTES_MAX), 256 << 20);
}

/* --- 3. Small questions ----------------------------------------------------------------------- */

static void
questions_that_make_no_sense_are_refused(void **state)
{
    kvt_store *store = open_store(0);
    kvt_namespace ns = space_of(store), none = {77};
    struct kvt_scan_entry entry = {0};
    struct kvt_block_facts facts;
    char text[4096];
    size_t length;

    (void)state;
    refused(kvt_machine_json(NULL, NULL, 100), KVT_E_INVAL, "target");
    refused(kvt_machine_json(NULL, text, 20), KVT_E_INVAL, "size");
    assert_int_equal(kvt_machine_json(look.path, text, sizeof(text)), KVT_OK);
    refused(kvt_caps_json(store, NULL, 100), KVT_E_INVAL, "target");
    refused(kvt_caps_json(store, text, 20), KVT_E_INVAL, "size");
    assert_int_equal(kvt_caps_json(store, text, sizeof(text)), KVT_OK);
    refused(kvt_block_facts_get(store, NULL, 1, &facts), KVT_E_INVAL, "entries");
    refused(kvt_block_facts_get(store, &entry, 0, &facts), KVT_E_INVAL, "count");
    refused(kvt_block_facts_get(store, &entry, 1, NULL), KVT_E_INVAL, "facts_out");
    refused(kvt_namespace_description(store, ns, NULL, 10, &length), KVT_E_INVAL, "target");
    refused(kvt_namespace_description(store, ns, text, 9, &length), KVT_E_INVAL, "size");
    refused(kvt_namespace_description(store, none, text, 10, &length), KVT_E_INVAL, "77");
    assert_int_equal(kvt_namespace_description(store, ns, text, 10, &length), KVT_OK);
    assert_memory_equal(text, "what it is", 10);
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* Block 20, and what it was put with; 21 and 22 are children of it, and of one with a long key. */
static struct kvt_put
told_put(const struct payload_key *name, const struct payload_key *parent, const uint8_t *bytes)
{
    return (struct kvt_put){.key = name->key,
        .parent = parent == NULL ? NULL : &parent->key,
        .source = bytes,
        .length = BLOCK_BYTES,
        .depth = 3,
        .token_start = 48,
        .token_count = 16,
        .recompute_us = 700,
        .importance = 9,
        .class_id = 5,
        .hint = 2};
}

static void
told_check(const struct kvt_block_facts *facts, const struct payload_key *parent)
{
    bool is_hashed = parent != NULL && parent->key.length > 64;

    assert_int_equal(facts->is_there, 1);
    assert_int_equal(facts->depth, 3);
    assert_int_equal(facts->token_start, 48);
    assert_int_equal(facts->token_count, 16);
    assert_int_equal(facts->recompute_us, 700);
    assert_int_equal(facts->importance, 9);
    assert_int_equal(facts->class_id, 5);
    assert_int_equal(facts->hint, 2);
    assert_int_equal(facts->has_parent, parent != NULL ? 1 : 0);
    assert_int_equal(facts->parent_is_hashed, is_hashed ? 1 : 0);
    assert_int_equal(facts->parent_component, 0);
    if (parent != NULL && !is_hashed) {
        assert_int_equal(facts->parent_length, parent->key.length);
        assert_memory_equal(facts->parent, parent->bytes, parent->key.length);
    }
}

static void
what_the_caller_said_of_a_block_is_told_also_by_the_next_life(void **state)
{
    enum {
        TOLD = 4,
        LONG = 26
    };
    static uint8_t bytes[BLOCK_BYTES];
    static const uint64_t numbers[TOLD] = {20, 21, LONG, 22};
    struct payload_key names[TOLD];
    const struct payload_key *parents[TOLD] = {NULL, &names[0], NULL, &names[2]};
    struct kvt_block_facts facts[TOLD + 1];
    struct kvt_scan_entry entries[TOLD + 1];
    kvt_store *store = open_store(0);
    kvt_namespace ns = space_of(store);
    struct kvt_put puts[TOLD];
    kvt_ticket *ticket;

    (void)state;
    for (uint32_t i = 0; i < TOLD; i++) {
        payload_key_make(&names[i], numbers[i]);
        puts[i] = told_put(&names[i], parents[i], bytes);
    }
    assert_true(names[2].key.length > 64);
    assert_int_equal(kvt_put_submit(store, ns, puts, TOLD, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    for (uint32_t life = 0; life < 2; life++) {
        struct kvt_scan_entry all[BLOCKS + TOLD];
        uint64_t cursor = 0;
        uint32_t count;

        assert_int_equal(kvt_scan(store, &cursor, all, BLOCKS + TOLD, &count), KVT_OK);
        assert_int_equal(count, BLOCKS + TOLD);
        memset(entries, 0, sizeof(entries));
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t n = 0; n < TOLD; n++) {
                if (all[i].is_hashed != 0
                        ? n == 2
                        : all[i].key_length == names[n].key.length &&
                              memcmp(all[i].key, names[n].bytes, names[n].key.length) == 0)
                    entries[n] = all[i];
            }
        }
        entries[TOLD] = entries[0];
        entries[TOLD].key[0] ^= 1; /* Nobody put that one. */
        memset(facts, 0xAA, sizeof(facts));
        assert_int_equal(kvt_block_facts_get(store, entries, TOLD + 1, facts), KVT_OK);
        for (uint32_t n = 0; n < TOLD; n++)
            told_check(&facts[n], parents[n]);
        assert_memory_equal(facts[3].parent, entries[2].key, entries[2].key_length);
        assert_int_equal(facts[TOLD].is_there, 0);
        assert_int_equal(facts[TOLD].depth, 0);
        assert_int_equal(kvt_close(store), KVT_OK);
        store = open_store(0);
    }
    assert_int_equal(kvt_close(store), KVT_OK);
}

/* --- 4. What an owner shows ------------------------------------------------------------------- */

static struct kvt_live live = {.struct_size = sizeof(live)};

static void
a_page_in_place_of_the_owners_is_refused(void **state)
{
    static uint8_t page[LIVE_PAGE_BYTES_MAX];
    kvt_store *store = open_store(0);
    ssize_t size;
    int fd;

    (void)state;
    for (int i = 0; i < PATIENCE && kvt_live_read(look.path, &live) != KVT_OK; i++)
        usleep(10000);
    assert_int_equal(kvt_live_read(look.path, &live), KVT_OK);
    fd = open(file_of("live"), O_RDONLY | O_CLOEXEC);
    size = read(fd, page, sizeof(page));
    assert_true(size > 0);
    close(fd);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(kvt_live_read(look.path, &live), KVT_MISS);
    for (uint32_t i = 0; i < 2; i++) {
        page[i == 0 ? AT_LIVE_VERSION : 0] ^= 0x40;
        fd = open(file_of("live"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, page, (size_t)size), size);
        close(fd);
        refused(kvt_live_read(look.path, &live), i == 0 ? KVT_E_FORMAT : KVT_E_CORRUPT, "live");
    }
    refused(kvt_live_read(NULL, &live), KVT_E_INVAL, "path");
    refused(kvt_live_read(look.path, NULL), KVT_E_INVAL, "live_out");
    refused(kvt_live_read(look.path, &(struct kvt_live){0}), KVT_E_INVAL, "struct_size");
}

static void
what_keeps_a_page_from_being_read_is_named(void **state)
{
    (void)state;
    look.failing_file = "live";
    refused(live_read_in(&look.env, look.path, &live), KVT_E_IO, "live");
    look.failing_file = NULL;
    look.memory.take = take_nothing;
    refused(live_read_in(&look.env, look.path, &live), KVT_E_NOMEM, "memory");
}

static void
a_page_of_somebody_elses_store_is_refused(void **state)
{
    int outcome = -1;
    pid_t child;

    (void)state;
    if (geteuid() != 0) {
        print_message("[  SKIPPED ] only root can become somebody else\n");
        skip();
    }
    assert_int_equal(chmod(look.dir, 0755), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(2);
        _exit(kvt_live_read(look.path, &live) == KVT_E_PERMISSION ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_int_equal(outcome, 0);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_list_says_why_it_cannot_be),
        TEST(a_list_of_a_store_that_is_not_known_or_damaged_is_refused),
        TEST(a_list_whose_world_fails_says_so),
        TEST(a_check_can_be_given_up_and_says_what_cannot_be_opened),
        TEST(a_check_counts_every_record_that_is_refused),
        TEST(a_scrub_needs_a_store_that_holds_still),
        TEST(a_rebuild_drops_what_is_longer_than_a_block_of_the_store),
        TEST(a_scrub_goes_on_when_a_block_leaves_before_it_is_looked_at),
        TEST(a_check_takes_host_memory_by_the_longest_block),
        TEST(questions_that_make_no_sense_are_refused),
        TEST(what_the_caller_said_of_a_block_is_told_also_by_the_next_life),
        TEST(a_page_in_place_of_the_owners_is_refused),
        TEST(what_keeps_a_page_from_being_read_is_named),
        TEST(a_page_of_somebody_elses_store_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
