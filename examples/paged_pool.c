/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged_pool.c - blocks that lie in the paged KV pool of a serving engine: one tensor
 * [2 (K, V), pages, page bytes] for each layer, a block being one page of all layers.
 *
 * Usage: paged_pool DIR. Fills pages, keeps them, gives the pages to others, and reads the blocks
 * back to other pages: nothing is copied together by the program.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/kvtier.h>
#include <kvtier/kvtier_unstable.h> /* kvt_device_*: memory of a device, also without a GPU. */

enum {
    LAYERS = 4,
    PAGES = 16,
    PAGE_BYTES = 8192,
    POOL_BYTES = 2 * PAGES * PAGE_BYTES, /* Of one layer. */
    BLOCK_BYTES = LAYERS * 2 * PAGE_BYTES,
    PROMPT_PAGES = 6,
};

struct pool {
    uint8_t *layers[LAYERS]; /* Memory of the device. */
    kvt_region regions[LAYERS];
    kvt_layout layout;
};

/* Ends the program when a call failed. */
static void
must(enum kvt_status status, const char *what)
{
    struct kvt_error error;

    if (status == KVT_OK)
        return;
    kvt_last_error(&error);
    fprintf(stderr, "paged_pool: %s: %s: %s\n", what, kvt_status_name(status), error.text);
    exit(1);
}

/* --- What a serving engine writes ------------------------------------------------------------- */

/* Once: the pool's memory, and where the pieces of a page are in it. */
static enum kvt_status
pool_register(kvt_store *store, struct pool *pool)
{
    struct kvt_run runs[LAYERS];
    struct kvt_layout_options layout = {
        .struct_size = sizeof(layout), .run_count = LAYERS, .runs = runs, .slot_count = PAGES};

    for (uint32_t i = 0; i < LAYERS; i++) {
        struct kvt_region_options about = {.struct_size = sizeof(about),
            .tier = KVT_TIER_HBM,
            .address = pool->layers[i],
            .size = POOL_BYTES};
        enum kvt_status status = kvt_region_register(store, &about, &pool->regions[i]);

        if (status != KVT_OK)
            return status;
        runs[i] = (struct kvt_run){.address = pool->layers[i],
            .region = pool->regions[i],
            .piece_count = 2, /* K and V ... */
            .piece_bytes = PAGE_BYTES,
            .piece_stride = PAGES * PAGE_BYTES, /* ... that lie so far from each other. */
            .slot_stride = PAGE_BYTES};         /* From one page to the next. */
    }
    return kvt_layout_register(store, &layout, &pool->layout);
}

/* Keeps the blocks that lie in these pages: stage 1, after which the pages may be used again. */
static enum kvt_status
pages_put(kvt_store *store, kvt_namespace ns, const struct pool *pool, const struct kvt_key *keys,
    const uint32_t *pages)
{
    struct kvt_put puts[PROMPT_PAGES];
    kvt_ticket *ticket;
    enum kvt_status status;

    for (uint32_t i = 0; i < PROMPT_PAGES; i++)
        puts[i] = (struct kvt_put){.key = keys[i],
            .parent = i > 0 ? &keys[i - 1] : NULL,
            .depth = i,
            .layout = pool->layout,
            .slot = pages[i],
            .length = BLOCK_BYTES,
            .part_count = LAYERS, /* So each layer can be read alone. */
            .tier = KVT_TIER_HBM};
    status = kvt_put_submit(store, ns, puts, PROMPT_PAGES, KVT_RELAXED, NULL, &ticket);
    if (status != KVT_OK)
        return status;
    status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    kvt_ticket_free(ticket); /* Stage 2 comes without us. */
    return status;
}

/* Reads blocks to these pages. Returns how many of them, from the first, are in place. */
static uint32_t
pages_get(kvt_store *store, kvt_namespace ns, const struct pool *pool, const struct kvt_key *keys,
    const uint32_t *pages)
{
    struct kvt_get gets[PROMPT_PAGES];
    struct kvt_result results[PROMPT_PAGES];
    kvt_ticket *ticket;
    uint32_t count = 0;

    for (uint32_t i = 0; i < PROMPT_PAGES; i++)
        gets[i] = (struct kvt_get){.key = keys[i], .layout = pool->layout, .slot = pages[i]};
    if (kvt_get_submit(store, ns, gets, PROMPT_PAGES, NULL, &ticket) != KVT_OK)
        return 0;
    if (kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER) == KVT_OK &&
        kvt_ticket_results(ticket, KVT_STAGE_DONE, results, PROMPT_PAGES) == KVT_OK)
        while (count < PROMPT_PAGES && results[count].status == KVT_OK)
            count++;
    kvt_ticket_free(ticket);
    return count;
}

/* --- The program around it -------------------------------------------------------------------- */

/* Writes, or compares, what the page `page` of every layer has when it holds block `block`. */
static int
page_differs(kvt_store *store, const struct pool *pool, uint32_t page, uint32_t block, int is_write)
{
    static uint8_t wanted[PAGE_BYTES], found[PAGE_BYTES];
    int differs = 0;

    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        uint8_t *place = pool->layers[i / 2] + (i % 2 * PAGES + page) * PAGE_BYTES;

        memset(wanted, (int)(1 + block * 2 * LAYERS + i), sizeof(wanted));
        if (is_write)
            must(kvt_device_write(store, 0, place, wanted, PAGE_BYTES), "cannot write a page");
        else
            must(kvt_device_read(store, 0, found, place, PAGE_BYTES), "cannot read a page");
        differs |= !is_write && memcmp(wanted, found, PAGE_BYTES) != 0;
    }
    return differs;
}

static int
pool_serve(kvt_store *store, kvt_namespace ns, struct pool *pool)
{
    static const uint32_t before[PROMPT_PAGES] = {3, 9, 0, 15, 4, 7};
    static const uint32_t after[PROMPT_PAGES] = {1, 2, 12, 3, 6, 14};
    struct kvt_key keys[PROMPT_PAGES];
    char names[PROMPT_PAGES][2];
    uint32_t count;
    int differs = 0;

    for (uint32_t i = 0; i < PROMPT_PAGES; i++) {
        names[i][0] = 'p';
        names[i][1] = (char)('0' + i);
        keys[i] = (struct kvt_key){.bytes = names[i], .length = 2};
        page_differs(store, pool, before[i], i, 1);
    }
    must(pages_put(store, ns, pool, keys, before), "cannot keep the pages");
    for (uint32_t i = 0; i < PROMPT_PAGES; i++)
        page_differs(store, pool, before[i], 20, 1); /* Another request's. */
    count = pages_get(store, ns, pool, keys, after);
    for (uint32_t i = 0; i < count; i++)
        differs |= page_differs(store, pool, after[i], i, 0);
    printf("%" PRIu32 " of %d pages read back, %s\n", count, PROMPT_PAGES,
        differs ? "WRONG" : "right");
    return count == PROMPT_PAGES && !differs ? 0 : 1;
}

int
main(int argc, char **argv)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    const char *model = "example: 4 layers, pages of 8 KiB";
    struct pool pool = {.layout = {0}};
    kvt_store *store;
    kvt_namespace ns;
    void *memory;
    int code;

    if (argc != 2) {
        fprintf(stderr, "usage: paged_pool DIR\n");
        return 2;
    }
    options.hbm_capacity_bytes = 8 << 20; /* Of a GPU, or emulated where there is none. */
    options.host_capacity_bytes = 16 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    must(kvt_open(argv[1], &options, &store), "cannot open the store");
    must(kvt_namespace_open(store, "pages", model, strlen(model), &ns), "cannot open a namespace");
    for (uint32_t i = 0; i < LAYERS; i++) {
        must(kvt_device_alloc(store, 0, POOL_BYTES, &memory), "no memory of the device");
        pool.layers[i] = memory;
    }
    must(pool_register(store, &pool), "cannot register the pool");
    code = pool_serve(store, ns, &pool);
    must(kvt_layout_unregister(store, pool.layout), "cannot unregister the layout");
    for (uint32_t i = 0; i < LAYERS; i++) {
        must(kvt_region_unregister(store, pool.regions[i]), "cannot unregister the pool");
        kvt_device_free(store, 0, pool.layers[i], POOL_BYTES);
    }
    must(kvt_close(store), "cannot close the store");
    return code;
}
