/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_page.c - the bytes of the file in which an owner shows what it does.
 *
 * A reader may come while it is written: a checksum over everything tells a torn page from a whole
 * one (a counter before and after could not, because a file's bytes need not become visible in the
 * order in which they were written).
 */
#include "live_page.h"

#include <assert.h>

#include "bytes.h"
#include "failure.h"
#include "hash.h"

#define LIVE_MAGIC UINT64_C(0x8E1C5F0BD7A39264)

enum {
    LIVE_VERSION = 1,
    HEADER_BYTES = 320,
    LATENCY_FIELDS = 6,
    LEASE_BYTES = 160,
    /* Offsets; FORMAT.md has their meaning. */
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_SIZE = 12,
    AT_CHECK = 16,
    AT_SEQUENCE = 24,
    AT_WRITTEN = 32,
    AT_OPENED = 40,
    AT_PID = 48,
    AT_HEALTH = 52,
    AT_START_TIME = 56,
    AT_PROGRAM = 64,
    AT_VERSION_TEXT = 128,
    AT_COUNTERS = 144,
    AT_LATENCIES = 148,
    AT_OPTIONS = 152,
    AT_LEASES = 156,
    AT_WORK = 160,
    AT_LEASE_SUMS = 208,
};

static_assert(sizeof(((struct kvt_live *)0)->program) == AT_VERSION_TEXT - AT_PROGRAM, "fits");
static_assert(sizeof(((struct kvt_live *)0)->version) == AT_COUNTERS - AT_VERSION_TEXT, "fits");

#define COUNT_ONE(name, text) +1
enum {
    COUNTER_COUNT = 0 KVT_COUNTERS(COUNT_ONE),
    LATENCY_COUNT = 0 KVT_LATENCIES(COUNT_ONE),
};
#undef COUNT_ONE

static_assert(HEADER_BYTES + 8 * COUNTER_COUNT + 8 * LATENCY_FIELDS * LATENCY_COUNT +
                      sizeof(struct kvt_options) + LEASE_BYTES * KVT_LIVE_LEASES_MAX <=
                  LIVE_PAGE_BYTES_MAX,
    "the largest page fits");

/* Where the values of a list stand in struct kvt_stats: only ever appended to. */
static const size_t counter_places[COUNTER_COUNT] = {
#define PLACE(name, text) offsetof(struct kvt_stats, name),
    KVT_COUNTERS(PLACE)};
static const size_t latency_places[LATENCY_COUNT] = {KVT_LATENCIES(PLACE)};
#undef PLACE

/* --- Writing ---------------------------------------------------------------------------------- */

static uint8_t *
stats_write(uint8_t *to, const struct kvt_stats *stats)
{
    const char *from = (const char *)stats;

    for (uint32_t i = 0; i < COUNTER_COUNT; i++, to += 8) {
        uint64_t value;

        memcpy(&value, from + counter_places[i], sizeof(value));
        put_u64(to, value);
    }
    for (uint32_t i = 0; i < LATENCY_COUNT; i++) {
        uint64_t values[LATENCY_FIELDS];

        memcpy(values, from + latency_places[i], sizeof(values));
        for (uint32_t j = 0; j < LATENCY_FIELDS; j++, to += 8)
            put_u64(to, values[j]);
    }
    return to;
}

static uint8_t *
lease_write(uint8_t *to, const struct kvt_live_lease *lease, uint64_t now_ns)
{
    put_u64(to, now_ns - lease->age_ns);
    put_u32(to + 8, lease->ns.id);
    put_u32(to + 12, lease->block_count);
    put_u16(to + 16, lease->component);
    to[18] = lease->tiers;
    to[19] = lease->is_hashed;
    put_u32(to + 20, lease->key_length);
    memcpy(to + 24, lease->key, sizeof(lease->key));
    memcpy(to + 24 + sizeof(lease->key), lease->namespace_name, sizeof(lease->namespace_name));
    return to + LEASE_BYTES;
}

static_assert(24 + sizeof(((struct kvt_live_lease *)0)->key) +
                      sizeof(((struct kvt_live_lease *)0)->namespace_name) <=
                  LEASE_BYTES,
    "a lease fits");

size_t
live_page_write(uint8_t page_out[LIVE_PAGE_BYTES_MAX], const struct kvt_live *live, uint64_t now_ns)
{
    struct kvt_options options = live->options;
    uint8_t *to = page_out;

    memset(page_out, 0, HEADER_BYTES + sizeof(options) + LEASE_BYTES * live->lease_shown_count);
    put_u64(to + AT_MAGIC, LIVE_MAGIC);
    put_u32(to + AT_VERSION, LIVE_VERSION);
    put_u64(to + AT_SEQUENCE, live->sequence);
    put_u64(to + AT_WRITTEN, now_ns);
    put_u64(to + AT_OPENED, live->opened_wall_ns);
    put_u32(to + AT_PID, live->pid);
    put_u32(to + AT_HEALTH, live->health);
    put_u64(to + AT_START_TIME, live->start_time);
    memcpy(to + AT_PROGRAM, live->program, sizeof(live->program));
    memcpy(to + AT_VERSION_TEXT, live->version, sizeof(live->version));
    put_u32(to + AT_COUNTERS, COUNTER_COUNT);
    put_u32(to + AT_LATENCIES, LATENCY_COUNT);
    put_u32(to + AT_OPTIONS, sizeof(options));
    put_u32(to + AT_LEASES, live->lease_shown_count);
    for (size_t i = 0; i < KVT_LIVE_WORKS; i++)
        put_u64(to + AT_WORK + 8 * i, live->work[i]);
    put_u64(to + AT_LEASE_SUMS, live->lease_count);
    put_u64(to + AT_LEASE_SUMS + 8, live->lease_seen_count);
    put_u64(to + AT_LEASE_SUMS + 16, live->lease_count == 0 ? 0 : now_ns - live->lease_oldest_ns);
    put_u64(to + AT_LEASE_SUMS + 24, live->leased_hbm_bytes);
    put_u64(to + AT_LEASE_SUMS + 32, live->leased_host_bytes);
    put_u64(to + AT_LEASE_SUMS + 40, live->leased_nvme_bytes);
    to = stats_write(to + HEADER_BYTES, &live->stats);
    /* Addresses are nobody else's business. */
    options.roots = NULL;
    options.log = NULL;
    options.log_context = NULL;
    memcpy(to, &options, sizeof(options));
    to += sizeof(options);
    for (uint32_t i = 0; i < live->lease_shown_count; i++)
        to = lease_write(to, &live->leases[i], now_ns);
    put_u32(page_out + AT_SIZE, (uint32_t)(to - page_out));
    put_u64(page_out + AT_CHECK,
        hash_payload(page_out + AT_SEQUENCE, (size_t)(to - page_out) - AT_SEQUENCE).low);
    return (size_t)(to - page_out);
}

/* --- Reading ---------------------------------------------------------------------------------- */

static uint64_t
age_of(uint64_t now_ns, uint64_t then_ns)
{
    return then_ns < now_ns ? now_ns - then_ns : 0;
}

/* Text that ends, whatever the bytes are. */
static void
text_read(char *text_out, size_t size, const uint8_t *from)
{
    memcpy(text_out, from, size);
    text_out[size - 1] = '\0';
}

/* Of a longer list, what this version knows; what a shorter one lacks stays 0. */
static void
stats_read(const uint8_t *from, uint32_t counter_count, uint32_t latency_count,
    struct kvt_stats *stats_out)
{
    char *to = (char *)stats_out;

    stats_out->struct_size = sizeof(*stats_out);
    for (uint32_t i = 0; i < counter_count && i < COUNTER_COUNT; i++) {
        uint64_t value = get_u64(from + 8 * (size_t)i);

        memcpy(to + counter_places[i], &value, sizeof(value));
    }
    from += 8 * (size_t)counter_count;
    for (uint32_t i = 0; i < latency_count && i < LATENCY_COUNT; i++) {
        uint64_t values[LATENCY_FIELDS];

        for (uint32_t j = 0; j < LATENCY_FIELDS; j++)
            values[j] = get_u64(from + 8 * ((size_t)i * LATENCY_FIELDS + j));
        memcpy(to + latency_places[i], values, sizeof(values));
    }
}

static void
options_read(const uint8_t *from, uint32_t size, struct kvt_options *options_out)
{
    memcpy(options_out, from, size < sizeof(*options_out) ? size : sizeof(*options_out));
    options_out->struct_size = sizeof(*options_out);
    options_out->roots = NULL;
    options_out->log = NULL;
    options_out->log_context = NULL;
}

static void
lease_read(const uint8_t *from, uint64_t now_ns, struct kvt_live_lease *lease_out)
{
    lease_out->age_ns = age_of(now_ns, get_u64(from));
    lease_out->ns.id = get_u32(from + 8);
    lease_out->block_count = get_u32(from + 12);
    lease_out->component = get_u16(from + 16);
    lease_out->tiers = from[18] & (KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME);
    lease_out->is_hashed = from[19] != 0;
    lease_out->key_length = get_u32(from + 20);
    memcpy(lease_out->key, from + 24, sizeof(lease_out->key));
    text_read(lease_out->namespace_name, sizeof(lease_out->namespace_name),
        from + 24 + sizeof(lease_out->key));
}

/* The lengths of the lists give the size. */
static bool
lists_fit(const uint8_t *page, uint32_t size)
{
    uint64_t sum = HEADER_BYTES;

    sum += 8 * (uint64_t)get_u32(page + AT_COUNTERS);
    sum += 8 * (uint64_t)LATENCY_FIELDS * get_u32(page + AT_LATENCIES);
    sum += get_u32(page + AT_OPTIONS);
    sum += (uint64_t)LEASE_BYTES * get_u32(page + AT_LEASES);
    return sum == size && get_u32(page + AT_LEASES) <= KVT_LIVE_LEASES_MAX;
}

static enum kvt_status
page_check(const uint8_t *page, size_t size)
{
    uint32_t page_size;

    if (size < HEADER_BYTES || get_u64(page + AT_MAGIC) != LIVE_MAGIC)
        return failure_set(KVT_E_CORRUPT, 0, "live: %zu bytes that are no page of an owner", size);
    if (get_u32(page + AT_VERSION) != LIVE_VERSION)
        return failure_set(KVT_E_FORMAT, 0, "live: version %u, this program reads %d",
            get_u32(page + AT_VERSION), LIVE_VERSION);
    page_size = get_u32(page + AT_SIZE);
    if (page_size < HEADER_BYTES || page_size > size)
        return failure_set(
            KVT_E_CORRUPT, 0, "live: a page of %u bytes in a file of %zu", page_size, size);
    if (checksum_differs(get_u64(page + AT_CHECK) !=
                         hash_payload(page + AT_SEQUENCE, (size_t)page_size - AT_SEQUENCE).low))
        return failure_set(KVT_E_CORRUPT, 0, "live: the checksum differs: torn or damaged");
    if (!lists_fit(page, page_size))
        return failure_set(
            KVT_E_CORRUPT, 0, "live: the lists do not make a page of %u bytes", page_size);
    return KVT_OK;
}

static void
header_read(const uint8_t *page, uint64_t now_ns, struct kvt_live *live_out)
{
    live_out->sequence = get_u64(page + AT_SEQUENCE);
    live_out->age_ns = age_of(now_ns, get_u64(page + AT_WRITTEN));
    live_out->opened_wall_ns = get_u64(page + AT_OPENED);
    live_out->pid = get_u32(page + AT_PID);
    live_out->health = get_u32(page + AT_HEALTH);
    live_out->start_time = get_u64(page + AT_START_TIME);
    text_read(live_out->program, sizeof(live_out->program), page + AT_PROGRAM);
    text_read(live_out->version, sizeof(live_out->version), page + AT_VERSION_TEXT);
    for (size_t i = 0; i < KVT_LIVE_WORKS; i++)
        live_out->work[i] = get_u64(page + AT_WORK + 8 * i);
    live_out->lease_count = get_u64(page + AT_LEASE_SUMS);
    live_out->lease_seen_count = get_u64(page + AT_LEASE_SUMS + 8);
    if (live_out->lease_count > 0)
        live_out->lease_oldest_ns = age_of(now_ns, get_u64(page + AT_LEASE_SUMS + 16));
    live_out->leased_hbm_bytes = get_u64(page + AT_LEASE_SUMS + 24);
    live_out->leased_host_bytes = get_u64(page + AT_LEASE_SUMS + 32);
    live_out->leased_nvme_bytes = get_u64(page + AT_LEASE_SUMS + 40);
    live_out->lease_shown_count = get_u32(page + AT_LEASES);
}

enum kvt_status
live_page_read(const uint8_t *page, size_t size, uint64_t now_ns, struct kvt_live *live_out)
{
    enum kvt_status status = page_check(page, size);
    uint32_t counter_count;
    uint32_t latency_count;
    uint32_t options_size;

    if (status != KVT_OK)
        return status;
    memset(live_out, 0, sizeof(*live_out));
    live_out->struct_size = sizeof(*live_out);
    header_read(page, now_ns, live_out);
    counter_count = get_u32(page + AT_COUNTERS);
    latency_count = get_u32(page + AT_LATENCIES);
    options_size = get_u32(page + AT_OPTIONS);
    page += HEADER_BYTES;
    stats_read(page, counter_count, latency_count, &live_out->stats);
    page += 8 * ((size_t)counter_count + (size_t)LATENCY_FIELDS * latency_count);
    options_read(page, options_size, &live_out->options);
    page += options_size;
    for (uint32_t i = 0; i < live_out->lease_shown_count; i++, page += LEASE_BYTES)
        lease_read(page, now_ns, &live_out->leases[i]);
    return KVT_OK;
}
