/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names_file.c - the bytes of NAMES.a and NAMES.b (FORMAT.md section 3.2), and the list in memory.
 */
#include "names_file.h"

#include "array.h"
#include "bytes.h"
#include "copy_pair.h"
#include "failure.h"
#include "try.h"

#define NAMES_MAGIC 0x9BD25A6Eu

enum {
    AT_UUID = 16,
    AT_COUNT = 32,
    AT_LENGTH = 36,
    AT_RESERVED = 40,
    HEAD_BYTES = 64,

    ENTRY_HEAD_BYTES = 16,
    ENTRY_BYTES_MAX = 4368, /* 16 + 255 + 4096, to a multiple of 8. */
};

static const struct copy_format names_format = {
    .names = {"NAMES.a", "NAMES.b"},
    .magic = NAMES_MAGIC,
    .size_min = HEAD_BYTES,
    .size_max = HEAD_BYTES + (size_t)NAMES_COUNT_MAX * ENTRY_BYTES_MAX,
    .length_at = AT_LENGTH,
};

/* --- The list --------------------------------------------------------------------------------- */

void
names_init(struct names_file *names, const struct kvt_env *env, const uint8_t uuid[16])
{
    memset(names, 0, sizeof(*names));
    names->env = env;
    memcpy(names->uuid, uuid, sizeof(names->uuid));
}

void
names_deinit(struct names_file *names)
{
    if (names->entries != NULL)
        env_put(names->env, names->entries, names->capacity * sizeof(*names->entries));
    names->entries = NULL;
    names->count = 0;
    names->capacity = 0;
}

static enum kvt_status
entries_reserve(struct names_file *names, uint32_t count)
{
    while (names->capacity < count) {
        struct name_entry *grown =
            array_grow(names->env, names->entries, &names->capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "NAMES: no memory for %u namespaces", count);
        names->entries = grown;
    }
    return KVT_OK;
}

struct name_entry *
names_find(struct names_file *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->entries[i].name, name) == 0)
            return &names->entries[i];
    }
    return NULL;
}

struct name_entry *
names_find_id(struct names_file *names, uint32_t id)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (names->entries[i].id == id)
            return &names->entries[i];
    }
    return NULL;
}

void
names_id_note(struct names_file *names, uint32_t id)
{
    /* No name ever had a higher one. */
    if (id <= NAMES_COUNT_MAX && id > names->id_seen)
        names->id_seen = id;
}

enum kvt_status
names_add(struct names_file *names, const char *name, const void *description,
    size_t description_length, struct name_entry **entry_out)
{
    size_t name_length = strnlen(name, NAME_BYTES_MAX + 1);
    uint32_t id_max = names->id_seen;
    struct name_entry *entry;

    *entry_out = NULL;
    if (name_length == 0 || name_length > NAME_BYTES_MAX)
        return failure_set(KVT_E_INVAL, 0, "the name of a namespace has 1..%d bytes, not %zu",
            NAME_BYTES_MAX, strlen(name));
    if (description_length > DESCRIPTION_BYTES_MAX)
        return failure_set(KVT_E_INVAL, 0,
            "the description of a namespace has %zu bytes, not 0..%d", description_length,
            DESCRIPTION_BYTES_MAX);
    if (names_find(names, name) != NULL)
        return failure_set(KVT_E_INVAL, 0, "the namespace \"%s\" is there already", name);
    for (uint32_t i = 0; i < names->count; i++) {
        if (names->entries[i].id > id_max)
            id_max = names->entries[i].id;
    }
    if (id_max >= NAMES_COUNT_MAX)
        return failure_set(KVT_E_NOSPC, 0, "%u namespaces exist, and of their ids, 1..%d, the last",
            names->count, NAMES_COUNT_MAX);
    KVT_TRY(entries_reserve(names, names->count + 1));

    entry = &names->entries[names->count++];
    memset(entry, 0, sizeof(*entry));
    entry->id = id_max + 1;
    entry->epoch = 1;
    entry->name_length = (uint32_t)name_length;
    entry->description_length = (uint32_t)description_length;
    memcpy(entry->name, name, name_length);
    if (description_length > 0)
        memcpy(entry->description, description, description_length);
    *entry_out = entry;
    return KVT_OK;
}

/* --- Bytes ------------------------------------------------------------------------------------ */

static size_t
entry_bytes(const struct name_entry *entry)
{
    return round_up(ENTRY_HEAD_BYTES + (uint64_t)entry->name_length + entry->description_length, 8);
}

static void
names_encode(const struct names_file *names, uint8_t *bytes, size_t size)
{
    uint8_t *at = bytes + HEAD_BYTES;

    memcpy(bytes + AT_UUID, names->uuid, sizeof(names->uuid));
    put_u32(bytes + AT_COUNT, names->count);
    put_u32(bytes + AT_LENGTH, (uint32_t)size);
    for (uint32_t i = 0; i < names->count; i++) {
        const struct name_entry *entry = &names->entries[i];

        put_u32(at, entry->id);
        put_u32(at + 4, entry->epoch);
        put_u32(at + 8, entry->name_length);
        put_u32(at + 12, entry->description_length);
        memcpy(at + ENTRY_HEAD_BYTES, entry->name, entry->name_length);
        memcpy(at + ENTRY_HEAD_BYTES + entry->name_length, entry->description,
            entry->description_length);
        at += entry_bytes(entry);
    }
    KVT_ASSERT(at == bytes + size);
}

/* One entry at *at, which moves behind it. NULL, or what is wrong with it. */
static const char *
entry_decode(const uint8_t *bytes, size_t size, size_t *at, struct name_entry *entry)
{
    const uint8_t *from = bytes + *at;
    size_t used;

    if (size - *at < ENTRY_HEAD_BYTES)
        return "an entry is outside of it";
    entry->id = get_u32(from);
    entry->epoch = get_u32(from + 4);
    entry->name_length = get_u32(from + 8);
    entry->description_length = get_u32(from + 12);
    if (entry->id == 0 || entry->id > NAMES_COUNT_MAX || entry->epoch == 0)
        return "an entry has an impossible id or epoch";
    if (entry->name_length == 0 || entry->name_length > NAME_BYTES_MAX ||
        entry->description_length > DESCRIPTION_BYTES_MAX)
        return "an entry has an impossible length";
    used = ENTRY_HEAD_BYTES + (size_t)entry->name_length + entry->description_length;
    if (size - *at < entry_bytes(entry))
        return "an entry is outside of it";
    if (!bytes_are_zero(from + used, entry_bytes(entry) - used))
        return "its padding is not zero";
    if (memchr(from + ENTRY_HEAD_BYTES, 0, entry->name_length) != NULL)
        return "a name has a zero byte";
    memcpy(entry->name, from + ENTRY_HEAD_BYTES, entry->name_length);
    memcpy(entry->description, from + ENTRY_HEAD_BYTES + entry->name_length,
        entry->description_length);
    *at += entry_bytes(entry);
    return NULL;
}

/* What the head must say before its entries are looked at. */
static const char *
head_verify(const struct names_file *names, const uint8_t *bytes, size_t size)
{
    uint32_t count = get_u32(bytes + AT_COUNT);

    if (memcmp(bytes + AT_UUID, names->uuid, sizeof(names->uuid)) != 0)
        return "it belongs to another store";
    if (!bytes_are_zero(bytes + AT_RESERVED, HEAD_BYTES - AT_RESERVED))
        return "its reserved bytes are not zero";
    if (count > NAMES_COUNT_MAX || count > (size - HEAD_BYTES) / ENTRY_HEAD_BYTES)
        return "its number of entries is impossible";
    return NULL;
}

/* Fill an empty list. *reason_out: what is wrong with the bytes; NULL: nothing. */
static enum kvt_status
names_decode(struct names_file *names, const uint8_t *bytes, size_t size, const char **reason_out)
{
    uint32_t count = get_u32(bytes + AT_COUNT);
    size_t at = HEAD_BYTES;

    *reason_out = head_verify(names, bytes, size);
    if (*reason_out != NULL)
        return KVT_OK;
    KVT_TRY(entries_reserve(names, count));
    for (uint32_t i = 0; i < count; i++) {
        struct name_entry *entry = &names->entries[i];

        memset(entry, 0, sizeof(*entry));
        *reason_out = entry_decode(bytes, size, &at, entry);
        if (*reason_out == NULL &&
            (names_find(names, entry->name) != NULL || names_find_id(names, entry->id) != NULL))
            *reason_out = "it has a name or id twice";
        if (*reason_out != NULL)
            return KVT_OK;
        names->count++;
    }
    if (at != size)
        *reason_out = "it has bytes behind its last entry";
    return KVT_OK;
}

/* --- Reading and writing ---------------------------------------------------------------------- */

enum kvt_status
names_read(struct names_file *names, struct fs_dir *dir)
{
    struct copy_pair pair;
    enum kvt_status status;

    KVT_ASSERT(names->count == 0);
    KVT_TRY(copy_pair_read(names->env, dir, &names_format, &pair));
    for (;;) {
        struct copy *best = copy_pair_best(&pair);
        const char *reason;

        if (best == NULL) {
            status = copy_pair_failure(&pair, dir);
            break;
        }
        status = names_decode(names, best->bytes, best->size, &reason);
        if (status == KVT_OK && reason == NULL) {
            names->sequence = best->sequence;
            break;
        }
        names_deinit(names);
        if (status != KVT_OK)
            break;
        copy_pair_reject(best, reason);
    }
    copy_pair_deinit(&pair);
    return status;
}

enum kvt_status
names_write(struct names_file *names, struct fs_dir *dir)
{
    struct copy_pair pair;
    size_t size = HEAD_BYTES;
    uint8_t *bytes;
    enum kvt_status status;

    for (uint32_t i = 0; i < names->count; i++)
        size += entry_bytes(&names->entries[i]);
    bytes = env_take(names->env, size);
    if (bytes == NULL)
        return failure_set(KVT_E_NOMEM, 0, "NAMES: no memory for %zu bytes", size);
    names_encode(names, bytes, size);
    KVT_TRY_GOTO(copy_pair_read(names->env, dir, &names_format, &pair), put);
    for (uint32_t i = 0; i < 2; i++) {
        struct copy *copy = &pair.copies[i];

        /* A copy of another store must not be taken for the one that counts. */
        if (copy->state == COPY_INTACT &&
            memcmp(copy->bytes + AT_UUID, names->uuid, sizeof(names->uuid)) != 0)
            copy_pair_reject(copy, "it belongs to another store");
    }
    status = copy_pair_write(&pair, dir, bytes, size, &names->sequence);
    copy_pair_deinit(&pair);
put:
    env_put(names->env, bytes, size);
    return status;
}

enum kvt_status
names_examine(const struct names_file *names, struct fs_dir *dir,
    void (*found)(void *context, const char *name, const char *reason), void *context)
{
    struct copy_pair pair;
    enum kvt_status status = copy_pair_read(names->env, dir, &names_format, &pair);

    for (uint32_t i = 0; status == KVT_OK && i < 2; i++) {
        struct copy *copy = &pair.copies[i];
        struct names_file decoded;
        const char *reason = NULL;

        if (copy->state != COPY_INTACT)
            continue;
        names_init(&decoded, names->env, names->uuid);
        status = names_decode(&decoded, copy->bytes, copy->size, &reason);
        names_deinit(&decoded);
        if (status == KVT_OK && reason != NULL)
            copy_pair_reject(copy, reason);
    }
    if (status == KVT_OK)
        copy_pair_examine(&pair, found, context);
    copy_pair_deinit(&pair);
    return status;
}
