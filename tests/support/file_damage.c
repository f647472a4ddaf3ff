/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_damage.c - seeded damage to a paged file.
 */
#include "file_damage.h"

#include <string.h>

#include "bytes.h"

enum {
    FLIPS_MAX = 8,
    META_PAGES = 2,
    META_WEIGHT = 8,    /* One in so many pieces falls on the meta pages. */
    META_FIELDS = 152,  /* Bytes of a meta page that mean something. */
    HEADER_FIELDS = 48, /* Where the fields of most consequence are. */
    PAGE_BYTES_LIMIT = 65536,
};

const char *
file_damage_name(enum file_damage kind)
{
    static const char *const names[DAMAGE_KIND_COUNT] = {
        "flip", "field", "zero", "duplicate", "swap", "garbage", "truncate"};

    return names[kind];
}

static size_t
page_pick(const struct damaged_file *file, struct rng *rng)
{
    if (rng_below(rng, META_WEIGHT) == 0)
        return rng_below(rng, META_PAGES);
    return rng_below(rng, (uint32_t)file->page_used_count);
}

static uint8_t *
page_at(const struct damaged_file *file, size_t page)
{
    return file->bytes + page * file->page_bytes;
}

/* An offset in a page: half of the time among its first fields. */
static size_t
offset_pick(const struct damaged_file *file, size_t page, struct rng *rng)
{
    if (page < META_PAGES)
        return rng_below(rng, META_FIELDS);
    if (rng_below(rng, 2) == 0)
        return rng_below(rng, HEADER_FIELDS);
    return rng_below(rng, (uint32_t)file->page_bytes);
}

static void
flip(struct damaged_file *file, struct rng *rng)
{
    uint32_t count = 1 + rng_below(rng, FLIPS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        size_t page = page_pick(file, rng);

        page_at(file, page)[offset_pick(file, page, rng)] ^= (uint8_t)(1u << rng_below(rng, 8));
    }
}

static uint64_t
value_pick(uint64_t old, struct rng *rng)
{
    switch (rng_below(rng, 6)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return old + 1;
    case 3:
        return old - 1;
    case 4:
        return old ^ 1ull << rng_below(rng, 64);
    default:
        return rng_next(rng);
    }
}

static void
field_change(struct damaged_file *file, struct rng *rng)
{
    size_t page = page_pick(file, rng);
    size_t width = (size_t)2 << rng_below(rng, 3);
    size_t offset = offset_pick(file, page, rng) / 2 * 2;
    uint8_t bytes[8] = {0};

    if (offset + width > file->page_bytes)
        offset = file->page_bytes - width;
    memcpy(bytes, page_at(file, page) + offset, width);
    put_u64(bytes, value_pick(get_u64(bytes), rng));
    memcpy(page_at(file, page) + offset, bytes, width);
}

static void
garbage(struct damaged_file *file, struct rng *rng)
{
    size_t page = page_pick(file, rng);
    size_t begin = rng_below(rng, 2) == 0 ? 0 : offset_pick(file, page, rng);
    size_t size = 1 + rng_below(rng, (uint32_t)(file->page_bytes - begin));

    for (size_t i = begin; i < begin + size; i++)
        page_at(file, page)[i] = (uint8_t)rng_next(rng);
}

static void
swap(struct damaged_file *file, struct rng *rng)
{
    static uint8_t spare[PAGE_BYTES_LIMIT];
    uint8_t *a = page_at(file, page_pick(file, rng));
    uint8_t *b = page_at(file, page_pick(file, rng));

    memcpy(spare, a, file->page_bytes);
    memmove(a, b, file->page_bytes);
    memcpy(b, spare, file->page_bytes);
}

static void
truncate_file(struct damaged_file *file, struct rng *rng)
{
    size_t used = (size_t)file->page_used_count * file->page_bytes;

    switch (rng_below(rng, 4)) {
    case 0: /* Somewhere. */
        file->size = rng_below(rng, (uint32_t)file->size);
        break;
    case 1: /* The last used page is cut. */
        file->size = used - 1 - rng_below(rng, (uint32_t)file->page_bytes);
        break;
    case 2: /* Only what no page needs. */
        file->size = used + rng_below(rng, (uint32_t)(file->size - used));
        break;
    default: /* Almost nothing is left. */
        file->size = rng_below(rng, (uint32_t)(3 * file->page_bytes));
        break;
    }
}

enum file_damage
file_damage_apply(struct damaged_file *file, struct rng *rng)
{
    enum file_damage kind = (enum file_damage)rng_below(rng, DAMAGE_KIND_COUNT);

    switch (kind) {
    case DAMAGE_FLIP:
        flip(file, rng);
        break;
    case DAMAGE_FIELD:
        field_change(file, rng);
        break;
    case DAMAGE_ZERO:
        memset(page_at(file, page_pick(file, rng)), 0, file->page_bytes);
        break;
    case DAMAGE_DUPLICATE:
        memmove(page_at(file, page_pick(file, rng)), page_at(file, page_pick(file, rng)),
            file->page_bytes);
        break;
    case DAMAGE_SWAP:
        swap(file, rng);
        break;
    case DAMAGE_GARBAGE:
        garbage(file, rng);
        break;
    case DAMAGE_TRUNCATE:
    case DAMAGE_KIND_COUNT:
        truncate_file(file, rng);
        break;
    }
    return kind;
}
