/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_rig.c - see engram_rig.h.
 */
#include "engram_rig.h"

#include <stdlib.h>
#include <string.h>

#include "engram_set.h"
#include "rng.h"

void
engram_rig_row(const struct engram_rig *rig, uint32_t layer_index, uint64_t row, uint8_t *row_out)
{
    struct rng rng = {.state = rig->seed * 1000003 + layer_index * 7919u + row * 104729};

    for (uint32_t i = 0; i < rig->profile.row_bytes; i++)
        row_out[i] = (uint8_t)(rng_next(&rng) >> 32);
}

static enum kvt_status
rig_read(void *context, uint64_t row_first, uint64_t row_count, void *rows_out)
{
    struct engram_rig *rig = context;
    uint8_t *rows = rows_out;

    if (row_first < rig->first_asked)
        rig->first_asked = row_first;
    rig->asked_count += row_count;
    for (uint64_t i = 0; i < row_count; i++, rows += rig->profile.row_bytes) {
        if (rig->fail_at != 0 && row_first + i == rig->fail_at)
            return KVT_E_BUSY;
        engram_rig_row(rig, rig->source.layer_index, row_first + i, rows);
    }
    return KVT_OK;
}

static int
rig_progress(void *context, uint64_t rows_done, uint64_t row_count)
{
    const struct engram_rig *rig = context;

    (void)row_count;
    return rig->stop_at == 0 || rows_done < rig->stop_at;
}

void
engram_rig_init(
    struct engram_rig *rig, const char *name, uint32_t row_bytes, uint32_t rows_a_column)
{
    memset(rig, 0, sizeof(*rig));
    rig->seed = 1;
    rig->profile = (struct kvt_engram_profile){.struct_size = sizeof(rig->profile),
        .layer_count = 2,
        .order_max = 3,
        .head_count = 2,
        .class_count = RIG_CLASSES,
        .pad_class = 2,
        .row_bytes = row_bytes};
    for (uint32_t i = 0; i < 2; i++) {
        struct kvt_engram_layer *layer = &rig->profile.layers[i];

        layer->number = 3 + 4 * i;
        for (uint32_t s = 0; s < 3; s++)
            layer->multipliers[s] = 1000003 + 2 * (7 * s + i) * (s + 1);
        for (uint32_t c = 0; c < 4; c++) {
            layer->primes[c] = rows_a_column + 2 * c + i;
            layer->offsets[c] = layer->row_count;
            layer->row_count += layer->primes[c];
        }
    }
    rig->source = (struct kvt_engram_source){.struct_size = sizeof(rig->source),
        .name = name,
        .profile = &rig->profile,
        .read = rig_read,
        .progress = rig_progress,
        .context = rig};
}

enum kvt_status
engram_rig_import(struct engram_rig *rig, kvt_store *store, const char *name, uint32_t layer_index)
{
    rig->source.name = name;
    rig->source.layer_index = layer_index;
    rig->first_asked = UINT64_MAX;
    rig->asked_count = 0;
    return kvt_engram_import(store, &rig->source);
}

bool
engram_rig_has(const struct engram_rig *rig, kvt_engram *table, uint32_t layer_index)
{
    uint64_t count = rig->profile.layers[layer_index].row_count;
    size_t row_bytes = rig->profile.row_bytes;
    uint8_t *rows = malloc(count * row_bytes);
    uint8_t wanted[RIG_ROW_BYTES_MAX];
    bool is_same = rows != NULL && kvt_engram_read(table, 0, count, rows) == KVT_OK;

    for (uint64_t i = 0; is_same && i < count; i++) {
        engram_rig_row(rig, layer_index, i, wanted);
        is_same = memcmp(rows + i * row_bytes, wanted, row_bytes) == 0;
    }
    free(rows);
    return is_same;
}

void
engram_rig_cache_on(kvt_engram *table, uint32_t device)
{
    struct engram_judge *judge = &table->device_caches[device]->judge;

    if (!judge->is_on)
        COUNT(table->store, engram_cache_device_on_now, 1);
    judge->is_on = true;
    judge->window_rows = 0;
}
