/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_cache_device.h - the rows of one table that fetches to a device brought, in memory of
 * that device, while that lasts.
 *
 * Owns      memory of the device for rows; on the host their numbers (engram_tags.h), who uses
 *           which place, and what says whether keeping them pays (engram_judge.h).
 * Not here  copies: whoever asks has them made (engram_copy.c), and says when they have ended.
 * Threads   serial: the reader's actor, from the moment that the table has it.
 *
 * A place and the row whose number stands in it, and the function that makes each move:
 *
 *              keep()               filled()                 hold()
 *     EMPTY ----------> FILLING(f) ----------> READY  <------------------> READ by n
 *       ^                   |       it came      |     the last release()
 *       +-------------------+                    |
 *          filled(): it did not                  +--> keep() of another row: FILLING
 *
 *   FILLING  A copy to the place is in flight, of filler f: nobody else may read or write it.
 *   READY    It has the row's bytes: a fetch may find it, and another row may take the place.
 *   READ     n fetches have copies from it in flight: it may be found, and is not written to.
 *
 * So a place's bytes change only when nobody reads them, and are read only when they are there,
 * however late the device is. From a device that is lost nothing is found any more.
 */
#ifndef KVT_ENGINE_ENGRAM_CACHE_DEVICE_H
#define KVT_ENGINE_ENGRAM_CACHE_DEVICE_H

#include "device.h"
#include "engram_judge.h"

enum {
    CACHE_FILLING = 0x8000, /* In uses, with the filler's number; below: so many readers. */
};

struct engram_cache_device {
    struct device *device;
    struct engram_tags tags;
    struct engram_judge judge;
    uint8_t *memory; /* The host's: numbers and uses. */
    size_t memory_bytes;
    uint16_t *uses; /* Of each place: CACHE_FILLING | filler, or how many read it. */
    void *rows;     /* The device's. */
    uint64_t rows_bytes;
    uint32_t row_bytes;
    bool is_lost;
    /* Since the last judgement: */
    uint64_t window_found;     /* Rows that were copied from here. */
    uint64_t window_elsewhere; /* Hits of the sample that a cache in host memory would have, too. */
};

/* What a row takes, as measured lately. 0: nobody knows yet. */
struct cache_prices {
    uint64_t page_ns;   /* The read of its page. */
    uint64_t in_ns;     /* Its copy from the host to the device. */
    uint64_t within_ns; /* Its copy within the device. */
    uint64_t host_ns;   /* Finding it in a cache in host memory. */
};

/* engram_cache_device_open - within `capacity_bytes` of the device, all of which are taken now, and
 * 8 bytes a row of the host. KVT_E_NOMEM, KVT_E_GPU. */
enum kvt_status engram_cache_device_open(const struct kvt_env *env, struct device *device,
    uint64_t capacity_bytes, uint32_t row_bytes, struct engram_cache_device **cache_out);
/* engram_cache_device_close - no copy is in flight, or the device is lost. NULL is fine. */
void engram_cache_device_close(struct engram_cache_device *cache);

/* engram_cache_device_find - true: the row is there. `host` (NULL: there is none): what the same
 * row would be found by in host memory. */
bool engram_cache_device_find(
    struct engram_cache_device *cache, uint32_t row, const struct engram_judge *host);
/* engram_cache_device_hold - of a row that was found: it stays until engram_cache_device_release().
 * engram_cache_device_source: where it is. */
void engram_cache_device_hold(struct engram_cache_device *cache, uint32_t row);
void engram_cache_device_release(struct engram_cache_device *cache, uint32_t row);
const void *engram_cache_device_source(const struct engram_cache_device *cache, uint32_t row);

/* engram_cache_device_keep - a place for a row that was not found; true: `filler` (a number below
 * CACHE_FILLING) has its bytes copied to engram_cache_device_target(), and says with
 * engram_cache_device_filled() how that ended. */
bool engram_cache_device_keep(struct engram_cache_device *cache, uint32_t row, uint32_t filler);
/* engram_cache_device_target - NULL: this filler does not fill the row. */
void *engram_cache_device_target(
    const struct engram_cache_device *cache, uint32_t row, uint32_t filler);
/* engram_cache_device_filled - of any row; nothing when this filler does not fill it. */
void engram_cache_device_filled(
    struct engram_cache_device *cache, uint32_t row, uint32_t filler, bool is_there);

/* engram_cache_device_lose - the device is lost: nothing is found or kept from now on. */
void engram_cache_device_lose(struct engram_cache_device *cache);

/* engram_cache_device_judge - after rows were looked for. False: it is too early. */
bool engram_cache_device_judge(
    struct engram_cache_device *cache, const struct cache_prices *prices);

#endif /* KVT_ENGINE_ENGRAM_CACHE_DEVICE_H */
