/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoder_loop.c - a toy decoder that keeps its KV in a store: a serving engine in small.
 *
 * Usage: decoder_loop DIR. Serves a conversation of three turns and a stranger with the same system
 * prompt. Each request looks up what is known of its tokens, reads that into memory of the device,
 * computes the rest, and keeps the blocks that are new. A second run finds all of them.
 *
 * The decoder attends with integers, so that every machine gets the same numbers; each row depends
 * on all rows before it: one wrong byte of KV changes everything behind it. decoder_loop.py is the
 * same program for Python, and finds the blocks of this one.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/kvtier.h>
#include <kvtier/kvtier_unstable.h> /* kvt_device_*: memory of a device, also without a GPU. */

enum {
    DIMENSIONS = 32,
    BLOCK_TOKENS = 16,
    BLOCKS_MAX = 16,
    TOKENS_MAX = BLOCK_TOKENS * BLOCKS_MAX,
    ANSWER_TOKENS = 20,
    KEY_BYTES = 16,
};

/* What one token leaves behind in the KV cache. */
struct row {
    uint32_t key[DIMENSIONS];
    uint32_t value[DIMENSIONS];
};

#define BLOCK_BYTES (BLOCK_TOKENS * sizeof(struct row))

struct conversation {
    uint32_t tokens[TOKENS_MAX];
    uint32_t count;
    struct row rows[TOKENS_MAX]; /* Of tokens[0 .. row_count - 1]. */
    uint32_t row_count;
};

struct cache {
    kvt_store *store;
    kvt_namespace ns;
    uint8_t *pages; /* BLOCKS_MAX pages on the device, as the KV pages of a serving engine. */
    kvt_region region;
};

/* Ends the program when a call failed. None of those here has another good outcome than KVT_OK. */
static void
must(enum kvt_status status, const char *what)
{
    struct kvt_error error;

    if (status == KVT_OK)
        return;
    kvt_last_error(&error);
    fprintf(stderr, "decoder_loop: %s: %s: %s\n", what, kvt_status_name(status), error.text);
    exit(1);
}

/* --- The decoder ------------------------------------------------------------------------------ */

static uint32_t
mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

/* Computes the next row: attends to all rows before it. */
static void
row_compute(struct conversation *talk)
{
    uint32_t position = talk->row_count++;
    struct row *row = &talk->rows[position];
    uint32_t query[DIMENSIONS];
    uint32_t context[DIMENSIONS] = {0};

    for (uint32_t d = 0; d < DIMENSIONS; d++)
        query[d] = mix(talk->tokens[position] * DIMENSIONS + d);
    for (uint32_t past = 0; past < position; past++) {
        uint32_t weight = 0;

        for (uint32_t d = 0; d < DIMENSIONS; d++)
            weight += query[d] * talk->rows[past].key[d];
        for (uint32_t d = 0; d < DIMENSIONS; d++)
            context[d] += (weight >> 28) * talk->rows[past].value[d];
    }
    for (uint32_t d = 0; d < DIMENSIONS; d++) {
        row->key[d] = mix(query[d] ^ position);
        row->value[d] = mix(context[d] + query[d]);
    }
}

/* The user, or the decoder, says something. */
static void
token_add(struct conversation *talk, uint32_t token)
{
    talk->tokens[talk->count++] = token;
}

/* --- The cache -------------------------------------------------------------------------------- */

/* A block's key names all tokens up to its end (FNV-1a in two lanes; engines take a real hash). */
static void
keys_make(
    const struct conversation *talk, uint32_t count, uint64_t bytes[][2], struct kvt_key *keys)
{
    uint64_t lanes[2] = {0xCBF29CE484222325u, 0x84222325CBF29CE4u};

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t t = i * BLOCK_TOKENS; t < (i + 1) * BLOCK_TOKENS; t++) {
            lanes[0] = (lanes[0] ^ talk->tokens[t]) * 0x100000001B3u;
            lanes[1] = (lanes[1] ^ ~talk->tokens[t]) * 0x100000001B3u;
        }
        memcpy(bytes[i], lanes, KEY_BYTES);
        keys[i] = (struct kvt_key){.bytes = bytes[i], .length = KEY_BYTES};
    }
}

static void
cache_open(struct cache *cache, const char *path)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    const char *model = "toy decoder 1: 32 dimensions, 16 tokens a block, little endian";
    struct kvt_region_options about = {.struct_size = sizeof(about), .tier = KVT_TIER_HBM};

    options.hbm_capacity_bytes = 32 << 20; /* Of a GPU, or emulated where there is none. */
    options.host_capacity_bytes = 64 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    must(kvt_open(path, &options, &cache->store), "cannot open the store");
    must(kvt_namespace_open(cache->store, "toy", model, strlen(model), &cache->ns),
        "cannot open the namespace");
    about.size = BLOCKS_MAX * BLOCK_BYTES;
    must(kvt_device_alloc(cache->store, 0, about.size, &about.address), "no memory of the device");
    must(kvt_region_register(cache->store, &about, &cache->region), "cannot register the pages");
    cache->pages = about.address;
}

static void
cache_close(struct cache *cache)
{
    must(kvt_region_unregister(cache->store, cache->region), "cannot unregister the pages");
    kvt_device_free(cache->store, 0, cache->pages, BLOCKS_MAX * BLOCK_BYTES);
    must(kvt_close(cache->store), "cannot close the store"); /* What was put is durable now. */
}

/* Waits for a ticket's last stage that the loop needs, and frees it. */
static void
finish(kvt_ticket *ticket, struct kvt_result *results, uint32_t count)
{
    must(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), "cannot wait");
    must(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, count), "there are no results");
    kvt_ticket_free(ticket);
}

/* Reads the longest known prefix, of at most `count` blocks, into the pages and then to the rows.
 * Returns its length in blocks. */
static uint32_t
prefix_read(
    struct cache *cache, struct conversation *talk, const struct kvt_key *keys, uint32_t count)
{
    struct kvt_get gets[BLOCKS_MAX];
    struct kvt_result results[BLOCKS_MAX];
    kvt_ticket *ticket;
    kvt_lease lease;
    uint32_t found, right = 0;

    /* The lease keeps what was found until it is read; a lookup with a lease is one request. */
    must(kvt_lookup(cache->store, cache->ns, keys, count, NULL, &found, &lease), "cannot look up");
    if (found == 0) {
        kvt_lease_release(cache->store, lease);
        return 0;
    }
    for (uint32_t i = 0; i < found; i++)
        gets[i] = (struct kvt_get){.key = keys[i],
            .destination = cache->pages + i * BLOCK_BYTES,
            .capacity = BLOCK_BYTES,
            .region = cache->region};
    must(kvt_get_submit(cache->store, cache->ns, gets, found, NULL, &ticket), "cannot read");
    finish(ticket, results, found);
    kvt_lease_release(cache->store, lease);
    /* A block that turned out damaged, or whose device is gone, is computed like any other. */
    while (right < found && results[right].status == KVT_OK)
        right++;
    /* A real decoder attends to the pages where they are. This one runs on the host. */
    must(kvt_device_read(cache->store, 0, talk->rows, cache->pages, right * BLOCK_BYTES),
        "cannot read the pages");
    talk->row_count = right * BLOCK_TOKENS;
    return right;
}

/* Keeps blocks [first, end): written to the pages as a decoder would have done, then put to HBM. */
static void
blocks_keep(struct cache *cache, const struct conversation *talk, const struct kvt_key *keys,
    uint32_t first, uint32_t end)
{
    struct kvt_put puts[BLOCKS_MAX];
    struct kvt_result results[BLOCKS_MAX];
    kvt_ticket *ticket;
    uint32_t count = end - first;

    if (count == 0)
        return;
    must(kvt_device_write(cache->store, 0, cache->pages + first * BLOCK_BYTES,
             &talk->rows[first * BLOCK_TOKENS], count * BLOCK_BYTES),
        "cannot write the pages");
    for (uint32_t i = 0; i < count; i++)
        puts[i] = (struct kvt_put){.key = keys[first + i],
            .parent = first + i > 0 ? &keys[first + i - 1] : NULL,
            .source = cache->pages + (first + i) * BLOCK_BYTES,
            .length = BLOCK_BYTES,
            .region = cache->region,
            .depth = first + i,
            .token_start = (first + i) * BLOCK_TOKENS,
            .token_count = BLOCK_TOKENS,
            .tier = KVT_TIER_HBM};
    /* RELAXED: durable within a second; nobody waits for that here. The pages may be used again. */
    must(kvt_put_submit(cache->store, cache->ns, puts, count, KVT_RELAXED, NULL, &ticket),
        "cannot put");
    finish(ticket, results, count);
    for (uint32_t i = 0; i < count; i++)
        if (results[i].status < 0) /* No room, say: then it will be computed again. */
            fprintf(stderr, "decoder_loop: block %" PRIu32 " was not kept: %s\n", first + i,
                kvt_status_name(results[i].status));
}

/* --- Requests --------------------------------------------------------------------------------- */

/* Answers what is in `talk`. True: with the rows that a decoder without a cache computes. */
static bool
request_serve(struct cache *cache, struct conversation *talk, const char *name)
{
    static struct conversation plain;
    uint64_t bytes[BLOCKS_MAX][2];
    struct kvt_key keys[BLOCKS_MAX];
    uint32_t asked = talk->count / BLOCK_TOKENS;
    uint32_t computed = 0, found, full;
    bool is_right;

    talk->row_count = 0;
    keys_make(talk, asked, bytes, keys);
    found = prefix_read(cache, talk, keys, asked);
    for (uint32_t end = talk->count + ANSWER_TOKENS; talk->row_count < end; computed++) {
        if (talk->row_count == talk->count) /* All that is known: the answer's next token. */
            token_add(talk, mix(talk->rows[talk->count - 1].value[0]) % 50000);
        row_compute(talk);
    }
    full = talk->row_count / BLOCK_TOKENS;
    keys_make(talk, full, bytes, keys);
    blocks_keep(cache, talk, keys, found, full);

    memcpy(&plain, talk, sizeof(plain));
    for (plain.row_count = 0; plain.row_count < plain.count;)
        row_compute(&plain);
    is_right = memcmp(plain.rows, talk->rows, talk->row_count * sizeof(struct row)) == 0;
    printf("%-9s %3" PRIu32 " tokens, %2" PRIu32 " of %2" PRIu32 " blocks found, %3" PRIu32
           " rows computed, answer ends with %5" PRIu32 ", %s\n",
        name, talk->count, found, asked, computed, talk->tokens[talk->count - 1],
        is_right ? "right" : "WRONG");
    return is_right;
}

int
main(int argc, char **argv)
{
    static struct conversation talk, stranger;
    struct cache cache;
    bool is_right = true;

    if (argc != 2) {
        fprintf(stderr, "usage: decoder_loop DIR\n");
        return 2;
    }
    cache_open(&cache, argv[1]);
    for (uint32_t i = 0; i < 70; i++) { /* The system prompt. */
        token_add(&talk, mix(i) % 50000);
        token_add(&stranger, mix(i) % 50000);
    }
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t i = 0; i < 12; i++)
            token_add(&talk, mix(1000 * (turn + 1) + i) % 50000);
        is_right &= request_serve(&cache, &talk, "turn");
    }
    token_add(&stranger, 7);
    is_right &= request_serve(&cache, &stranger, "stranger");
    cache_close(&cache);
    return is_right ? 0 : 1;
}
