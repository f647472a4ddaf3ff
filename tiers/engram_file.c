/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_file.c - see engram_file.h.
 */
#include "engram_file.h"

#include "failure.h"
#include "hash.h"

#define HEAD_MAGIC 0xD96B3FA2u

enum {
    HEAD_VERSION = 1,

    AT_CRC = 4,
    AT_VERSION = 8,
    AT_STATE = 10,
    AT_ROW_BYTES = 12,
    AT_UUID = 16,
    AT_ROW_COUNT = 32,
    AT_ROWS_PER_PAGE = 36,
    AT_PAGE_COUNT = 40,
    AT_PAGES_DONE = 44,
    AT_CONTENT_SUM = 48,
    AT_CREATED = 56,
    AT_SOURCE = 64,
    AT_NAME = 96,
    AT_LAYER = 160,
    AT_ENCODING = 164,
    AT_VALUE_COUNT = 168,
    AT_SCALE_COUNT = 172,
    AT_ORDER_MAX = 176,
    AT_HEAD_COUNT = 180,
    AT_CLASS_COUNT = 184,
    AT_PAD_CLASS = 188,
    AT_TOKEN_COUNT = 192,
    AT_PAD_TOKEN = 196,
    AT_MAP_SHA256 = 200,
    AT_RESERVED = 232,
    AT_MULTIPLIERS = 256,
    AT_PRIMES = 320,
    AT_RESERVED_TOO = 576,
};

_Static_assert(AT_MULTIPLIERS + 8 * KVT_ENGRAM_ORDER_MAX == AT_PRIMES, "FORMAT.md 3.9");
_Static_assert(AT_PRIMES + 4 * KVT_ENGRAM_COLUMNS_MAX == AT_RESERVED_TOO, "FORMAT.md 3.9");
_Static_assert(AT_NAME + ENGRAM_NAME_BYTES_MAX == AT_LAYER, "FORMAT.md 3.9");

/* --- The head --------------------------------------------------------------------------------- */

void
engram_head_shape(struct engram_head *head)
{
    uint64_t rows = engram_row_count(head);

    KVT_ASSERT(head->profile.row_bytes > 0 && head->profile.row_bytes <= ENGRAM_PAGE_ROOM);
    head->rows_per_page = ENGRAM_PAGE_ROOM / head->profile.row_bytes;
    head->page_count = (uint32_t)((rows + head->rows_per_page - 1) / head->rows_per_page);
}

bool
engram_name_is_fine(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strnlen(name, ENGRAM_NAME_BYTES_MAX + 1);

    return length >= 1 && length <= ENGRAM_NAME_BYTES_MAX && name[0] != '.' &&
           strspn(name, allowed) == length;
}

static uint32_t
head_columns(const struct kvt_engram_profile *profile)
{
    return (profile->order_max - 1) * profile->head_count;
}

void
engram_head_encode(const struct engram_head *head, uint8_t page[PAGE_BYTES])
{
    const struct kvt_engram_profile *profile = &head->profile;
    const struct kvt_engram_layer *layer = &profile->layers[0];

    memset(page, 0, PAGE_BYTES);
    put_u32(page, HEAD_MAGIC);
    put_u16(page + AT_VERSION, HEAD_VERSION);
    put_u16(page + AT_STATE, (uint16_t)head->state);
    put_u32(page + AT_ROW_BYTES, profile->row_bytes);
    memcpy(page + AT_UUID, head->uuid, sizeof(head->uuid));
    put_u32(page + AT_ROW_COUNT, layer->row_count);
    put_u32(page + AT_ROWS_PER_PAGE, head->rows_per_page);
    put_u32(page + AT_PAGE_COUNT, head->page_count);
    put_u32(page + AT_PAGES_DONE, head->pages_done);
    put_u64(page + AT_CONTENT_SUM, head->content_sum);
    put_u64(page + AT_CREATED, head->created_ns);
    memcpy(page + AT_SOURCE, head->source, sizeof(head->source));
    memcpy(page + AT_NAME, head->name, strnlen(head->name, ENGRAM_NAME_BYTES_MAX));
    put_u32(page + AT_LAYER, layer->number);
    put_u32(page + AT_ENCODING, profile->encoding);
    put_u32(page + AT_VALUE_COUNT, profile->value_count);
    put_u32(page + AT_SCALE_COUNT, profile->scale_count);
    put_u32(page + AT_ORDER_MAX, profile->order_max);
    put_u32(page + AT_HEAD_COUNT, profile->head_count);
    put_u32(page + AT_CLASS_COUNT, profile->class_count);
    put_u32(page + AT_PAD_CLASS, profile->pad_class);
    put_u32(page + AT_TOKEN_COUNT, profile->token_count);
    put_u32(page + AT_PAD_TOKEN, profile->pad_token);
    memcpy(page + AT_MAP_SHA256, profile->class_map_sha256, sizeof(profile->class_map_sha256));
    for (uint32_t s = 0; s < profile->order_max; s++)
        put_u64(page + AT_MULTIPLIERS + 8 * s, layer->multipliers[s]);
    for (uint32_t i = 0; i < head_columns(profile); i++)
        put_u32(page + AT_PRIMES + 4 * i, layer->primes[i]);
    put_u32(page + AT_CRC, crc32c(0, page + AT_VERSION, PAGE_BYTES - AT_VERSION));
}

static void
profile_decode(const uint8_t *page, struct kvt_engram_profile *profile)
{
    struct kvt_engram_layer *layer = &profile->layers[0];

    profile->struct_size = sizeof(*profile);
    profile->layer_count = 1;
    profile->order_max = get_u32(page + AT_ORDER_MAX);
    profile->head_count = get_u32(page + AT_HEAD_COUNT);
    profile->class_count = get_u32(page + AT_CLASS_COUNT);
    profile->pad_class = get_u32(page + AT_PAD_CLASS);
    profile->token_count = get_u32(page + AT_TOKEN_COUNT);
    profile->pad_token = get_u32(page + AT_PAD_TOKEN);
    profile->encoding = get_u32(page + AT_ENCODING);
    profile->row_bytes = get_u32(page + AT_ROW_BYTES);
    profile->value_count = get_u32(page + AT_VALUE_COUNT);
    profile->scale_count = get_u32(page + AT_SCALE_COUNT);
    memcpy(profile->class_map_sha256, page + AT_MAP_SHA256, sizeof(profile->class_map_sha256));
    layer->number = get_u32(page + AT_LAYER);
    layer->row_count = get_u32(page + AT_ROW_COUNT);
    for (uint32_t s = 0; s < KVT_ENGRAM_ORDER_MAX; s++)
        layer->multipliers[s] = get_u64(page + AT_MULTIPLIERS + 8 * s);
    for (uint32_t i = 0, rows = 0; i < KVT_ENGRAM_COLUMNS_MAX; i++) {
        layer->primes[i] = get_u32(page + AT_PRIMES + 4 * i);
        layer->offsets[i] = layer->primes[i] == 0 ? 0 : rows;
        rows += layer->primes[i]; /* What wraps here is refused with the profile. */
    }
}

/* What must hold of a head besides its manifest. */
static const char *
head_verify(const uint8_t *page, const struct engram_head *head)
{
    struct engram_head wanted = *head;

    if (head->state != ENGRAM_FILE_IMPORTING && head->state != ENGRAM_FILE_WHOLE)
        return "its state is impossible";
    if (head->profile.row_bytes == 0 || head->profile.row_bytes > ENGRAM_PAGE_ROOM ||
        engram_row_count(head) == 0)
        return "its rows are impossible";
    engram_head_shape(&wanted);
    if (wanted.rows_per_page != head->rows_per_page || wanted.page_count != head->page_count ||
        head->pages_done > head->page_count ||
        (head->state == ENGRAM_FILE_WHOLE && head->pages_done != head->page_count))
        return "its pages are impossible";
    if (!engram_name_is_fine(head->name) || !bytes_are_zero(page + AT_NAME + strlen(head->name),
                                                ENGRAM_NAME_BYTES_MAX - strlen(head->name)))
        return "its name is impossible";
    if (!bytes_are_zero(page + AT_RESERVED, AT_MULTIPLIERS - AT_RESERVED) ||
        !bytes_are_zero(page + AT_RESERVED_TOO, PAGE_BYTES - AT_RESERVED_TOO))
        return "its reserved bytes are not zero";
    return NULL;
}

const char *
engram_head_decode(
    const uint8_t page[PAGE_BYTES], struct engram_head *head_out, bool *is_foreign_out)
{
    struct engram_head head = {.state = (enum engram_file_state)get_u16(page + AT_STATE)};
    const char *reason;

    *is_foreign_out = false;
    if (get_u32(page) != HEAD_MAGIC)
        return "it does not begin as a table's head";
    if (get_u32(page + AT_CRC) != crc32c(0, page + AT_VERSION, PAGE_BYTES - AT_VERSION))
        return "its checksum is wrong";
    if (get_u16(page + AT_VERSION) != HEAD_VERSION) {
        *is_foreign_out = true;
        return "its version is not known";
    }
    memcpy(head.uuid, page + AT_UUID, sizeof(head.uuid));
    head.rows_per_page = get_u32(page + AT_ROWS_PER_PAGE);
    head.page_count = get_u32(page + AT_PAGE_COUNT);
    head.pages_done = get_u32(page + AT_PAGES_DONE);
    head.content_sum = get_u64(page + AT_CONTENT_SUM);
    head.created_ns = get_u64(page + AT_CREATED);
    memcpy(head.source, page + AT_SOURCE, sizeof(head.source));
    memcpy(head.name, page + AT_NAME, ENGRAM_NAME_BYTES_MAX);
    profile_decode(page, &head.profile);
    reason = head_verify(page, &head);
    if (reason == NULL)
        *head_out = head;
    return reason;
}

/* --- Pages ------------------------------------------------------------------------------------ */

/* A page of another table, or from another place, has another checksum. */
static uint64_t
page_hash(const struct engram_head *head, uint32_t number, const uint8_t *page)
{
    return hash_page(get_u64(head->uuid) ^ number, page, ENGRAM_PAGE_ROOM);
}

uint64_t
engram_page_seal(
    const struct engram_head *head, uint32_t number, uint32_t row_count, uint8_t page[PAGE_BYTES])
{
    size_t used = (size_t)row_count * head->profile.row_bytes;
    uint64_t sum;

    KVT_ASSERT(used <= ENGRAM_PAGE_ROOM);
    memset(page + used, 0, ENGRAM_PAGE_ROOM - used);
    sum = page_hash(head, number, page);
    put_u64(page + ENGRAM_PAGE_ROOM, sum);
    return sum;
}

bool
engram_page_is_intact(
    const struct engram_head *head, uint32_t number, const uint8_t page[PAGE_BYTES])
{
    return engram_page_sum(page) == page_hash(head, number, page);
}

uint64_t
engram_page_sum(const uint8_t page[PAGE_BYTES])
{
    return get_u64(page + ENGRAM_PAGE_ROOM);
}
