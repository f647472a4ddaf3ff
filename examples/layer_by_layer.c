/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_by_layer.c - a program that computes with layer n of its blocks while layer n + 1 comes.
 *
 * Usage: layer_by_layer DIR. Keeps blocks of several layers on NVMe, then reads them to memory of
 * the device (emulated where there is no GPU), part by part.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/kvtier.h>
#include <kvtier/kvtier_unstable.h> /* kvt_device_*: memory of a device, also without a GPU. */

enum {
    LAYERS = 8,
    BLOCKS = 6,
    LAYER_BYTES = 16384,
    BLOCK_BYTES = LAYERS * LAYER_BYTES,
};

/* Ends the program when a call failed. */
static void
must(enum kvt_status status, const char *what)
{
    struct kvt_error error;

    if (status == KVT_OK)
        return;
    kvt_last_error(&error);
    fprintf(stderr, "layer_by_layer: %s: %s: %s\n", what, kvt_status_name(status), error.text);
    exit(1);
}

/* --- What a serving engine writes ------------------------------------------------------------- */

/* Reads all blocks to `pages`, and calls `compute` for each layer as soon as all blocks have it.
 * The status of the first layer that cannot be had; it and those behind it were not computed. */
static enum kvt_status
layers_run(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint8_t *pages,
    kvt_region region, void (*compute)(void *context, uint32_t layer), void *context)
{
    struct kvt_get gets[BLOCKS];
    kvt_ticket *ticket;
    enum kvt_status status, last;

    for (uint32_t i = 0; i < BLOCKS; i++)
        gets[i] = (struct kvt_get){.key = keys[i],
            .destination = pages + i * BLOCK_BYTES,
            .capacity = BLOCK_BYTES,
            .region = region,
            .flags = KVT_GET_BY_PART,
            .part_count = LAYERS};
    status = kvt_get_submit(store, ns, gets, BLOCKS, NULL, &ticket);
    if (status != KVT_OK)
        return status;
    for (uint32_t layer = 0; layer < LAYERS && status == KVT_OK; layer++) {
        status = kvt_ticket_part_wait(ticket, layer, KVT_FOREVER);
        if (status == KVT_OK)
            compute(context, layer);
    }
    /* Whatever came of it, the pages are not ours before stage 1. */
    last = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    kvt_ticket_free(ticket);
    return status != KVT_OK ? status : last;
}

/* --- The program around it -------------------------------------------------------------------- */

struct model {
    kvt_store *store;
    const uint8_t *pages;
    uint32_t layer_count; /* Computed so far. */
    uint32_t wrong_count;
};

static void
byte_of(uint8_t *bytes, uint32_t block, uint32_t layer)
{
    memset(bytes, (int)(1 + block * LAYERS + layer), LAYER_BYTES);
}

/* Looks at the layer of all blocks. */
static void
layer_compute(void *context, uint32_t layer)
{
    static uint8_t found[LAYER_BYTES], wanted[LAYER_BYTES];
    struct model *model = context;

    for (uint32_t i = 0; i < BLOCKS; i++) {
        must(kvt_device_read(model->store, 0, found,
                 model->pages + i * BLOCK_BYTES + layer * LAYER_BYTES, LAYER_BYTES),
            "cannot read a page");
        byte_of(wanted, i, layer);
        model->wrong_count += memcmp(found, wanted, LAYER_BYTES) != 0;
    }
    model->layer_count++;
}

/* Keeps the blocks, and gives up their copies in memory. */
static void
blocks_make(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys)
{
    static uint8_t bytes[BLOCKS][BLOCK_BYTES];
    struct kvt_put puts[BLOCKS];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < BLOCKS; i++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            byte_of(bytes[i] + layer * LAYER_BYTES, i, layer);
        puts[i] = (struct kvt_put){
            .key = keys[i], .source = bytes[i], .length = BLOCK_BYTES, .part_count = LAYERS};
    }
    must(kvt_put_submit(store, ns, puts, BLOCKS, KVT_SYNC, NULL, &ticket), "cannot put");
    must(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), "cannot wait");
    kvt_ticket_free(ticket);
    must(kvt_demote_submit(store, ns, keys, BLOCKS, KVT_TIER_NVME, NULL, &ticket), "cannot demote");
    must(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), "cannot wait");
    kvt_ticket_free(ticket);
}

int
main(int argc, char **argv)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = BLOCKS * BLOCK_BYTES};
    struct kvt_key keys[BLOCKS];
    char names[BLOCKS];
    struct model model = {0};
    kvt_namespace ns;
    kvt_region region;

    if (argc != 2) {
        fprintf(stderr, "usage: layer_by_layer DIR\n");
        return 2;
    }
    options.host_capacity_bytes = 16 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    options.device_mask = 1; /* For regions only: no HBM tier. */
    must(kvt_open(argv[1], &options, &model.store), "cannot open the store");
    must(kvt_namespace_open(model.store, "layers", "", 0, &ns), "cannot open a namespace");
    must(kvt_device_alloc(model.store, 0, about.size, &about.address), "no memory of the device");
    must(kvt_region_register(model.store, &about, &region), "cannot register the pages");
    model.pages = about.address;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        names[i] = (char)('a' + i);
        keys[i] = (struct kvt_key){.bytes = &names[i], .length = 1};
    }
    blocks_make(model.store, ns, keys);
    must(layers_run(model.store, ns, keys, about.address, region, layer_compute, &model),
        "a layer is missing");
    must(kvt_region_unregister(model.store, region), "cannot unregister the pages");
    kvt_device_free(model.store, 0, about.address, about.size);
    must(kvt_close(model.store), "cannot close the store");
    printf("%" PRIu32 " layers of %d blocks, %s\n", model.layer_count, BLOCKS,
        model.wrong_count == 0 ? "right" : "WRONG");
    return model.wrong_count == 0 ? 0 : 1;
}
