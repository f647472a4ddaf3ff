/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_engram_import.c - `kvtool engram import`: rows from tensors of a checkpoint, or from a
 * file of nothing but rows.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "complain.h"
#include "interrupt.h"
#include "json_writer.h"
#include "kvtool_engram.h"
#include "kvtool_tensors.h"
#include "progress.h"
#include "quantity.h"

enum {
    NAME_BYTES = 256,
    ROWS_AT_ONCE = 4096,
};

struct import {
    const struct engram_order *order;
    uint64_t layer;      /* Its number. */
    uint64_t nvme_bytes; /* Of a new store. */
    struct kvt_engram_profile profile;
    struct kvt_engram_source source;
    struct tensor weight; /* Raw: the whole file. */
    struct tensor scale;  /* -1: rows have no scales of their own. */
    uint8_t *scales;      /* Of ROWS_AT_ONCE rows. */
    uint64_t rows_before; /* progress() was told last. */
    struct progress progress;
    bool is_complained;
    bool is_read_back;
};

/* --- Where rows come from --------------------------------------------------------------------- */

/* A whole file as if it were a tensor. */
static bool
raw_open(struct import *import)
{
    struct stat facts = {0};
    struct tensor *rows = &import->weight;

    rows->path = import->order->files[0];
    rows->descriptor = open(rows->path, O_RDONLY | O_CLOEXEC);
    if (rows->descriptor < 0 || fstat(rows->descriptor, &facts) != 0) {
        complain("cannot read %s: %s", rows->path, strerror(errno));
        return false;
    }
    rows->size = (uint64_t)facts.st_size;
    return true;
}

/* The tensor in the first of the files that has it. */
static bool
tensor_open(const struct import *import, const char *name, struct tensor *tensor)
{
    const struct engram_order *order = import->order;

    for (uint32_t i = 0; i < order->file_count && tensor->descriptor < 0; i++) {
        if (!tensor_find(order->files[i], name, tensor))
            return false;
    }
    if (tensor->descriptor < 0)
        complain("none of the files has the tensor %s", name);
    return tensor->descriptor >= 0;
}

/* [rows, columns] of that type. */
static bool
tensor_check(
    const struct import *import, const struct tensor *tensor, const char *name, uint64_t columns)
{
    uint64_t rows = import->profile.layers[import->source.layer_index].row_count;

    if (tensor->dimension_count != 2 || tensor->shape[0] != rows || tensor->shape[1] != columns ||
        tensor->size != rows * columns) {
        complain("the tensor %s has %" PRIu64 " x %" PRIu64 " in %" PRIu64
                 " bytes; the profile has %" PRIu64 " x %" PRIu64,
            name, tensor->shape[0], tensor->shape[1], tensor->size, rows, columns);
        return false;
    }
    return true;
}

static bool
tensors_open(struct import *import)
{
    const struct engram_order *order = import->order;
    const struct kvt_engram_profile *profile = &import->profile;
    uint32_t number = profile->layers[import->source.layer_index].number;
    char weight[NAME_BYTES], scale[NAME_BYTES];

    if (profile->encoding != KVT_ENGRAM_E4M3_E8M0) {
        complain("tensors are imported for rows of E4M3 with E8M0 scales only: use --raw");
        return false;
    }
    snprintf(weight, sizeof(weight), "layers.%" PRIu32 ".engram.embed.weight", number);
    snprintf(scale, sizeof(scale), "layers.%" PRIu32 ".engram.embed.scale", number);
    if (order->weight != NULL)
        snprintf(weight, sizeof(weight), "%s", order->weight);
    if (order->scale != NULL)
        snprintf(scale, sizeof(scale), "%s", order->scale);
    if (!tensor_open(import, weight, &import->weight) ||
        !tensor_open(import, scale, &import->scale))
        return false;
    if (strcmp(import->weight.type, "F8_E4M3") != 0 || strcmp(import->scale.type, "F8_E8M0") != 0) {
        complain("%s is %s and %s is %s, not F8_E4M3 and F8_E8M0", weight, import->weight.type,
            scale, import->scale.type);
        return false;
    }
    return tensor_check(import, &import->weight, weight, profile->value_count) &&
           tensor_check(import, &import->scale, scale, profile->scale_count);
}

/* Name, size, time and place: what says that a later import has the same rows. */
static void
mark_make(struct import *import)
{
    const struct tensor *tensors[] = {&import->weight, &import->scale};
    char text[2 * 4096] = "";
    XXH128_canonical_t canonical;
    size_t used = 0;

    for (uint32_t i = 0; i < 2 && tensors[i]->descriptor >= 0; i++) {
        struct stat facts = {0};
        int count;

        (void)fstat(tensors[i]->descriptor, &facts);
        count = snprintf(text + used, sizeof(text) - used,
            "%s %lld %lld.%09ld %" PRIu64 " %" PRIu64 "\n", tensors[i]->path,
            (long long)facts.st_size, (long long)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec,
            tensors[i]->offset, tensors[i]->size);
        used += count < 0 || (size_t)count >= sizeof(text) - used ? 0 : (size_t)count;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text, used));
    memcpy(import->source.mark, canonical.digest, sizeof(canonical.digest));
}

/* Rows of values, and their scales behind each. */
static bool
rows_join(struct import *import, uint64_t first, uint64_t count, uint8_t *rows)
{
    uint64_t values = import->profile.value_count, scales = import->profile.scale_count;

    if (!tensor_read(&import->weight, first * values, rows, count * values) ||
        !tensor_read(&import->scale, first * scales, import->scales, count * scales))
        return false;
    /* From the last: each row moves behind where it was read. */
    for (uint64_t i = count; i-- > 0;) {
        memmove(rows + i * (values + scales), rows + i * values, values);
        memcpy(rows + i * (values + scales) + values, import->scales + i * scales, scales);
    }
    return true;
}

static enum kvt_status
rows_read(void *context, uint64_t row_first, uint64_t row_count, void *rows_out)
{
    struct import *import = context;
    uint64_t row_bytes = import->profile.row_bytes;
    uint8_t *rows = rows_out;
    bool is_fine = true;

    while (row_count > 0 && is_fine) {
        uint64_t count = row_count < ROWS_AT_ONCE ? row_count : ROWS_AT_ONCE;

        is_fine = import->scale.descriptor < 0
                      ? tensor_read(&import->weight, row_first * row_bytes, rows, count * row_bytes)
                      : rows_join(import, row_first, count, rows);
        rows += count * row_bytes;
        row_first += count;
        row_count -= count;
    }
    import->is_complained = import->is_complained || !is_fine;
    return is_fine ? KVT_OK : KVT_E_IO;
}

static int
rows_progress(void *context, uint64_t rows_done, uint64_t row_count)
{
    struct import *import = context;

    if (rows_done < import->rows_before && !import->is_read_back) {
        progress_end(&import->progress);
        import->is_read_back = true;
        progress_begin(
            &import->progress, "verify", PROGRESS_BYTES, 0, row_count * import->profile.row_bytes);
    }
    import->rows_before = rows_done;
    progress_at(&import->progress, rows_done * import->profile.row_bytes);
    return interrupt_came() ? 0 : 1;
}

/* --- The verb --------------------------------------------------------------------------------- */

/* Whether the command line can be meant, before any file is opened. */
static bool
order_check(struct import *import)
{
    const struct engram_order *order = import->order;

    if ((order->model == NULL) == (order->profile_path == NULL)) {
        complain("import needs --model v41, --model demo, or --profile FILE");
        return false;
    }
    if (order->model != NULL && strcmp(order->model, "demo") != 0 &&
        strcmp(order->model, "v41") != 0) {
        complain("--model %s: v41 and demo are built in", order->model);
        return false;
    }
    if (order->layer == NULL || !quantity_count(order->layer, &import->layer)) {
        complain("import needs --layer NUMBER");
        return false;
    }
    if (order->is_raw && order->file_count != 1) {
        complain("--raw takes one file");
        return false;
    }
    if (order->is_raw && (order->weight != NULL || order->scale != NULL)) {
        complain("--raw takes no tensors: leave out --weight and --scale");
        return false;
    }
    return new_capacity_read(order->nvme, &import->nvme_bytes);
}

static bool
layer_choose(struct import *import)
{
    const struct kvt_engram_profile *profile = &import->profile;

    while (import->source.layer_index < profile->layer_count &&
           profile->layers[import->source.layer_index].number != import->layer)
        import->source.layer_index++;
    if (import->source.layer_index == profile->layer_count)
        complain("--layer %s: the profile has no such layer", import->order->layer);
    return import->source.layer_index < profile->layer_count;
}

static bool
rows_open(struct import *import)
{
    const struct kvt_engram_profile *profile = &import->profile;
    uint64_t wanted =
        (uint64_t)profile->layers[import->source.layer_index].row_count * profile->row_bytes;

    import->scales = malloc((size_t)ROWS_AT_ONCE * (profile->scale_count + 1));
    if (import->scales == NULL) {
        complain("there is no memory for rows");
        return false;
    }
    if (!import->order->is_raw)
        return tensors_open(import);
    if (!raw_open(import))
        return false;
    if (import->weight.size == wanted)
        return true;
    complain("%s has %" PRIu64 " bytes, the rows of the profile %" PRIu64, import->weight.path,
        import->weight.size, wanted);
    return false;
}

static bool
table_make(struct import *import, kvt_store *store)
{
    uint64_t row_count = import->profile.layers[import->source.layer_index].row_count;
    enum kvt_status status;

    progress_begin(
        &import->progress, "import", PROGRESS_BYTES, 0, row_count * import->profile.row_bytes);
    status = kvt_engram_import(store, &import->source);
    progress_end(&import->progress);
    if (status == KVT_CANCELLED)
        complain("interrupted: the same command goes on with it");
    else if (status != KVT_OK && !import->is_complained)
        complain_status(status, "cannot import the table %s", import->order->name);
    return status == KVT_OK;
}

static bool
table_print(const struct import *import, kvt_store *store)
{
    char texts[2][QUANTITY_TEXT_BYTES];
    struct kvt_engram_info info;
    kvt_engram *table = NULL;
    enum kvt_status status = kvt_engram_open(store, import->order->name, &table);

    if (status == KVT_OK)
        status = kvt_engram_info_get(table, &info);
    if (status != KVT_OK) {
        complain_status(status, "cannot open the table %s", import->order->name);
        return false;
    }
    if (import->order->is_json) {
        struct json json = JSON_INIT(stdout);

        engram_info_print_json(&json, NULL, &info);
        json_end(&json);
    } else {
        printf("%s: layer %" PRIu32 ", %s rows of %" PRIu32 " bytes, %s\n", info.name, info.layer,
            quantity_count_text(texts[0], info.row_count), info.row_bytes,
            quantity_bytes_text(texts[1], (double)info.file_bytes));
    }
    return kvt_engram_close(table) == KVT_OK;
}

static bool
import_run(struct import *import)
{
    struct kvt_options existing = KVT_OPTIONS_INIT;
    struct kvt_options created = KVT_OPTIONS_INIT;
    kvt_store *store = NULL;
    bool is_fine = false;

    existing.host_capacity_bytes = created.host_capacity_bytes = KVTOOL_HOST_BYTES;
    created.nvme_capacity_bytes = import->nvme_bytes;
    store = store_open_to_write(
        import->order->path, &existing, import->order->may_create ? &created : NULL);
    if (store == NULL)
        return false;
    is_fine = table_make(import, store) && table_print(import, store);
    return store_close(store, import->order->path) && is_fine;
}

int
engram_import(const struct engram_order *order)
{
    struct import import = {.order = order,
        .weight.descriptor = -1,
        .scale.descriptor = -1,
        .source = {.struct_size = sizeof(import.source),
            .flags = order->is_unread ? KVT_ENGRAM_IMPORT_UNREAD : 0,
            .name = order->name,
            .read = rows_read,
            .progress = rows_progress}};
    bool is_fine = false;

    import.source.context = &import;
    import.source.profile = &import.profile;
    if (!order_check(&import))
        return EXIT_USAGE;
    interrupt_watch();
    if (engram_profile_read(order, &import.profile) && layer_choose(&import) &&
        rows_open(&import)) {
        mark_make(&import);
        is_fine = import_run(&import);
    }
    tensor_close(&import.weight);
    tensor_close(&import.scale);
    free(import.scales);
    return is_fine ? EXIT_FINE : EXIT_PROBLEM;
}
