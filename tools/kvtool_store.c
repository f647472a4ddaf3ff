/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_store.c - opening a closed store for one command, finding namespaces in it, closing it.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtool.h"
#include "kvtool_owner.h"
#include "quantity.h"
#include "utf8.h"

/* A store made without geometry has 64 segments, or 256 MiB ones where there is more room, and
 * takes blocks of a quarter of a segment; without a capacity it has 8 GiB (kvtier.h). */
enum {
    SEGMENTS_WANTED = 64,
    SEGMENT_BYTES_LEAST = 1 << 20,
    SEGMENT_BYTES_MAX = 256 << 20,
    NVME_HIGH_PERCENT = 97,
    BLOCKS_PER_CAPACITY = 256,
    BLOCK_BYTES_LEAST = 256 << 10, /* A quarter of the smallest segment. */
    BLOCKS_AT_LEAST = 32,          /* Eight segments of four. */
};

static const uint64_t nvme_bytes_default = UINT64_C(8) << 30;

/* The store, or NULL with a sentence. */
static kvt_store *
open_end(const char *path, kvt_store *store, enum kvt_status status)
{
    if (status == KVT_OK)
        return store;
    if (status == KVT_MISS)
        complain("there is no store in %s", path);
    else if (status == KVT_E_LOCKED)
        owner_complain(path);
    else
        complain_status(status, "cannot open %s", path);
    return NULL;
}

kvt_store *
store_open_to_read(const char *path)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    kvt_store *store = NULL;
    enum kvt_status status = KVT_OK;

    options.flags = KVT_OPEN_READ_ONLY;
    options.host_capacity_bytes = KVTOOL_HOST_BYTES;
    status = kvt_open(path, &options, &store);
    return open_end(path, store, status);
}

/* What a store that goes on has to say. */
static void
warning_print(void *context, int level, const char *module, const char *line)
{
    (void)context;
    (void)level;
    complain("%s: %s", module, line);
}

/* The index that root rebuilds cannot be read by whose store it is. */
static void
owner_warn(const char *path)
{
    struct stat facts;

    if (geteuid() == 0 && stat(path, &facts) == 0 && facts.st_uid != 0)
        complain("%s is of user %u, who cannot open it any more when files of it belong to root: "
                 "run this as that user, or give all of it back with chown -R",
            path, facts.st_uid);
}

kvt_store *
store_open_to_write(
    const char *path, const struct kvt_options *options, const struct kvt_options *options_new)
{
    struct kvt_options existing = *options;
    kvt_store *store = NULL;
    enum kvt_status status = KVT_OK;

    owner_warn(path);
    existing.flags |= KVT_OPEN_EXISTING;
    existing.log = warning_print;
    existing.log_level = KVT_LOG_WARN;
    status = kvt_open(path, &existing, &store);
    if (status == KVT_MISS && options_new != NULL)
        status = kvt_open(path, options_new, &store);
    return open_end(path, store, status);
}

bool
new_capacity_read(const char *text, uint64_t *bytes_out)
{
    *bytes_out = 0;
    if (text == NULL || (quantity_size(text, bytes_out) && *bytes_out > 0))
        return true;
    complain("--nvme %s is no size of a store", text);
    return false;
}

/* The largest block of a store that is to be made: what its capacity suggests, or what this content
 * needs, when there is room for blocks of that size. */
static uint64_t
new_block_bytes_max(uint64_t capacity, uint64_t length)
{
    uint64_t block_bytes = BLOCK_BYTES_LEAST;

    while (block_bytes < KVT_BLOCK_BYTES_MAX &&
           (block_bytes <= capacity / BLOCKS_PER_CAPACITY / 2 ||
               (block_bytes < length && block_bytes <= capacity / BLOCKS_AT_LEAST / 2)))
        block_bytes *= 2;
    return block_bytes;
}

void
new_options_set(struct kvt_options *options, uint64_t nvme_bytes, uint64_t length)
{
    uint64_t capacity = nvme_bytes == 0 ? nvme_bytes_default : nvme_bytes;
    uint64_t segment_bytes = SEGMENT_BYTES_LEAST;

    options->nvme_capacity_bytes = capacity;
    options->block_bytes_max = new_block_bytes_max(capacity, length);
    while (segment_bytes < 4 * options->block_bytes_max ||
           (segment_bytes < SEGMENT_BYTES_MAX && segment_bytes <= capacity / SEGMENTS_WANTED / 2))
        segment_bytes *= 2;
    options->segment_bytes = segment_bytes;
    options->nvme_high_percent = NVME_HIGH_PERCENT;
}

/* For kvt_list(): one block is enough. */
static int
entry_stop(void *context, const struct kvt_scan_entry *entry, const char *name)
{
    (void)context;
    (void)entry;
    (void)name;
    return 1;
}

bool
store_is_missing(const char *path)
{
    return kvt_list(path, NULL, entry_stop, NULL) == KVT_MISS;
}

uint64_t
store_room_bytes(const struct kvt_options *made)
{
    uint64_t roots = made->root_count == 0 ? 1 : made->root_count;
    uint64_t segments = made->nvme_capacity_bytes / made->segment_bytes / roots;
    uint64_t free_count = segments * (100 - made->nvme_high_percent) / 100;
    uint64_t least = segments < 64 ? 3 : 4;

    if (free_count < least)
        free_count = least;
    return segments > free_count ? (segments - free_count) * roots * made->segment_bytes : 0;
}

bool
store_is_whole(kvt_store *store, const char *path)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    enum kvt_status status = kvt_stats_get(store, &stats);
    uint64_t lost_count = stats.recover_dropped_count + stats.recover_unread_count;

    if (status != KVT_OK)
        complain_status(status, "cannot say whether %s is whole", path);
    else if (lost_count > 0)
        complain("%" PRIu64 " records of %s were refused when it was opened: their blocks, of "
                 "whichever namespace, are not there; kvtool check names them",
            lost_count, path);
    return status == KVT_OK && lost_count == 0;
}

bool
store_close(kvt_store *store, const char *path)
{
    enum kvt_status status = kvt_close(store);

    if (status == KVT_OK)
        return true;
    complain_status(status, "%s was closed, but not everything could be written", path);
    return false;
}

enum kvt_status
namespace_find(kvt_store *store, const char *name, struct kvt_namespace_info *out)
{
    uint32_t cursor = 0;

    for (;;) {
        struct kvt_namespace_info info;
        enum kvt_status status = kvt_namespace_next(store, &cursor, &info);

        if (status != KVT_OK)
            return status;
        if (strcmp(info.name, name) == 0) {
            *out = info;
            return KVT_OK;
        }
    }
}

void
namespace_complain(const char *name, const char *path)
{
    complain("there is no namespace %s in %s", name, path);
}

void
text_print(FILE *out, const char *text, int width)
{
    size_t size = strlen(text);
    int printed = 0;

    for (size_t at = 0; at < size; printed++) {
        size_t length = utf8_length(text + at, size - at);

        if (length == 0 || utf8_is_control(text + at, length))
            fputc('?', out);
        else
            fwrite(text + at, 1, length, out);
        at += length == 0 ? 1 : length;
    }
    fprintf(out, "%*s", printed < width ? width - printed : 0, "");
}

const char *
tiers_text(uint8_t tiers)
{
    static const char *const texts[] = {
        "-", "hbm", "host", "hbm,host", "nvme", "hbm,nvme", "host,nvme", "hbm,host,nvme"};

    return texts[tiers & (KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME)];
}
