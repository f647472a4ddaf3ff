/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - the states that a store may show, and the payloads by which it shows them.
 */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_internal.h"
#include "rng.h"

enum {
    PAGE = 4096,
    TINY_BYTES = 16,
    ROW_WORDS = 64,
    ROW_BYTES = ROW_WORDS * sizeof(uint64_t), /* A sector: no two of a payload are alike. */
};

static uint64_t
mask_of(uint32_t state)
{
    return UINT64_C(1) << state;
}

static struct model_key *
key_of(struct model *model, struct model_name name)
{
    return &model->keys[name.space][name.key];
}

void
model_init(struct model *model, uint64_t salt, uint32_t key_count, uint32_t length_shift)
{
    memset(model, 0, sizeof(*model));
    model->salt = salt;
    model->key_count = key_count;
    model->length_shift = length_shift;
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t key = 0; key < MODEL_KEYS_MAX; key++) {
            model->keys[space][key].live = NOTHING;
            model->keys[space][key].kept = NOTHING;
            model->keys[space][key].rebuilt = NOTHING;
        }
    }
}

void
model_fail(struct model *model, const char *format, ...)
{
    va_list arguments;

    if (model->failure[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(model->failure, sizeof(model->failure), format, arguments);
    va_end(arguments);
}

/* --- 1. Payloads ------------------------------------------------------------------------------ */

static struct rng
payload_rng(const struct model *model, struct model_name name, uint32_t version)
{
    const uint32_t facts[3] = {name.space, name.key, version};
    struct rng rng = {.state = model->salt};

    for (uint32_t i = 0; i < 3; i++) {
        uint64_t next = rng_next(&rng); /* Not in one expression: compilers differ in its order. */

        rng.state ^= next + facts[i];
    }
    return rng;
}

uint64_t
model_length_max(const struct model *model)
{
    return (uint64_t)(8 * PAGE) << model->length_shift;
}

/* A few sizes in pages, any length within them; now and then a handful of bytes. Every other
 * version has the length and parts of the one before: it could be taken for that. */
static uint64_t
length_wanted(const struct model *model, struct model_name name, uint32_t version)
{
    struct rng rng = payload_rng(model, name, (version | 1) + 1000);
    uint32_t size = (uint32_t)(PAGE << rng_below(&rng, 4)) << model->length_shift;

    if (rng_below(&rng, 16) == 0)
        return 1 + rng_below(&rng, TINY_BYTES);
    if (rng_below(&rng, 4) == 0)
        return size;
    return size - rng_below(&rng, PAGE);
}

uint32_t
model_parts(const struct model *model, struct model_name name, uint32_t version)
{
    static const uint32_t counts[] = {1, 1, 1, 2, 3, 5, 16, 64};
    struct rng rng = payload_rng(model, name, (version | 1) + 2000);
    uint32_t count = counts[rng_below(&rng, 8)];

    return length_wanted(model, name, version) < count ? 1 : count;
}

uint64_t
model_length(const struct model *model, struct model_name name, uint32_t version)
{
    uint64_t length = length_wanted(model, name, version);

    return length - length % model_parts(model, name, version);
}

/* The bytes of a payload, row by row: a row of words that name and version give, plus a number
 * that each row has of its own. Every other payload looks like bfloat16 numbers of much the same
 * size. */
struct payload {
    uint64_t words[ROW_WORDS];
    uint64_t mask, ones; /* Of each word: what counts of it, what is set in all. */
    struct rng rows;
};

static void
payload_begin(
    struct payload *payload, const struct model *model, struct model_name name, uint32_t version)
{
    struct rng rng = payload_rng(model, name, version);

    for (uint32_t i = 0; i < ROW_WORDS; i++)
        payload->words[i] = rng_next(&rng);
    payload->mask = version % 2 == 0 ? UINT64_MAX : UINT64_C(0x81FF81FF81FF81FF);
    payload->ones = version % 2 == 0 ? 0 : UINT64_C(0x3C003C003C003C00);
    payload->rows = rng;
}

static void
payload_row(struct payload *payload, uint64_t row[ROW_WORDS])
{
    uint64_t more = rng_next(&payload->rows);

    for (uint32_t i = 0; i < ROW_WORDS; i++)
        row[i] = ((payload->words[i] + more) & payload->mask) | payload->ones;
}

static size_t
piece_of_row(uint64_t length, uint64_t at)
{
    return length - at < ROW_BYTES ? (size_t)(length - at) : ROW_BYTES;
}

void
model_fill(const struct model *model, struct model_name name, uint32_t version, uint8_t *target)
{
    uint64_t length = model_length(model, name, version);
    struct payload payload;
    uint64_t row[ROW_WORDS];

    payload_begin(&payload, model, name, version);
    for (uint64_t at = 0; at < length; at += ROW_BYTES) {
        payload_row(&payload, row);
        memcpy(target + at, row, piece_of_row(length, at));
    }
}

bool
model_is(const struct model *model, struct model_name name, uint32_t version, const void *bytes,
    uint64_t length)
{
    const uint8_t *from = bytes;
    struct payload payload;
    uint64_t row[ROW_WORDS];

    if (length != model_length(model, name, version))
        return false;
    payload_begin(&payload, model, name, version);
    for (uint64_t at = 0; at < length; at += ROW_BYTES) {
        payload_row(&payload, row);
        if (memcmp(from + at, row, piece_of_row(length, at)) != 0)
            return false;
    }
    return true;
}

uint32_t
model_identify(
    const struct model *model, struct model_name name, const void *bytes, uint64_t length)
{
    const struct model_key *key = &model->keys[name.space][name.key];

    /* What may be there comes first: payloads of a byte or two are alike now and then. */
    for (uint32_t version = key->version_last; version > 0; version--) {
        if ((key->live & mask_of(version)) != 0 && model_is(model, name, version, bytes, length))
            return version;
    }
    for (uint32_t version = key->version_last; version > 0; version--) {
        if (model_is(model, name, version, bytes, length))
            return version;
    }
    return 0;
}

/* Likewise, each that they may be. */
static uint64_t
versions_alike(
    const struct model *model, struct model_name name, const void *bytes, uint64_t length)
{
    uint64_t states = 0;

    for (uint32_t version = model->keys[name.space][name.key].version_last; version > 0; version--)
        states |= model_is(model, name, version, bytes, length) ? mask_of(version) : 0;
    return states;
}

/* --- 2. Operations ---------------------------------------------------------------------------- */

bool
model_has_room(const struct model *model, struct model_name name, uint32_t count)
{
    const struct model_key *key = &model->keys[name.space][name.key];

    return key->version_last + count <= MODEL_VERSIONS && key->op_count + count < MODEL_OPS;
}

struct model_op *
op_of(struct model_key *key, uint64_t number)
{
    if (number < key->op_first || number - key->op_first >= key->op_count)
        return NULL;
    return &key->ops[number - key->op_first];
}

/* Unacknowledged operations beyond the table are merged: all their states stay possible. */
static uint64_t
op_add(struct model_key *key, struct model_op op)
{
    if (key->op_count == MODEL_OPS) {
        chain_forget(key);
        key->kept |= key->ops[0].pending;
        key->rebuilt |= key->ops[0].pending;
        memmove(&key->ops[0], &key->ops[1], (MODEL_OPS - 1) * sizeof(key->ops[0]));
        key->op_count--;
        key->op_first++;
    }
    key->ops[key->op_count] = op;
    return key->op_first + key->op_count++;
}

uint64_t
model_put(struct model *model, struct model_name name, bool replaces, bool is_lasting)
{
    struct model_key *key = key_of(model, name);
    uint64_t version = mask_of(++key->version_last);

    return op_add(key, (struct model_op){.pending = version | (replaces ? NOTHING : 0),
                           .settled = version,
                           .is_lasting = is_lasting});
}

void
model_put_visible(struct model *model, struct model_name name, uint64_t op)
{
    struct model_key *key = key_of(model, name);
    const struct model_op *entry = op_of(key, op);

    if (chain_hears(key, op, MODEL_DONE) || entry == NULL)
        return;
    if ((entry->pending & NOTHING) == 0 && (key->live & NOTHING) == 0 && !model->may_be_gone)
        model_fail(model, "space %u key %u: a put without REPLACE replaced states %#llx",
            name.space, name.key, (unsigned long long)key->live);
    key->live = entry->settled;
}

static void
op_void(struct model_key *key, uint64_t op)
{
    struct model_op *entry = op_of(key, op);

    if (entry == NULL)
        return;
    entry->pending = 0;
    entry->is_lasting = false;
}

void
model_put_exists(struct model *model, struct model_name name, uint64_t op)
{
    struct model_key *key = key_of(model, name);

    op_void(key, op);
    if (chain_hears(key, op, MODEL_PRESENT))
        return;
    if (key->live == NOTHING)
        model_fail(model, "space %u key %u: a put says EXISTS, but nothing is there", name.space,
            name.key);
    else
        key->live &= ~NOTHING;
}

void
model_put_refused(struct model *model, struct model_name name, uint64_t op)
{
    struct model_key *key = key_of(model, name);
    struct model_op *entry = op_of(key, op);

    if (entry == NULL || (entry->pending & NOTHING) == 0) {
        op_void(key, op);
        return;
    }
    /* What it should have replaced may be gone; but no flush or close makes it durable. */
    entry->is_lasting = false;
    if (!chain_hears(key, op, MODEL_REFUSED))
        key->live |= NOTHING;
}

void
model_put_either(struct model *model, struct model_name name, uint64_t op)
{
    struct model_key *key = key_of(model, name);
    const struct model_op *entry = op_of(key, op);

    if (entry != NULL)
        key->live = (key->live & ~NOTHING) | entry->settled;
    model_doubt(model, name, op);
}

void
model_cancelled(struct model *model, struct model_name name, uint64_t op)
{
    op_void(key_of(model, name), op);
}

uint64_t
model_delete(struct model *model, struct model_name name)
{
    return op_add(key_of(model, name),
        (struct model_op){.pending = NOTHING, .settled = NOTHING, .is_lasting = true});
}

void
model_deleted(struct model *model, struct model_name name, uint64_t op, bool was_there)
{
    struct model_key *key = key_of(model, name);

    /* Its stage 2 may say that nothing comes back all the same (model_ack()); a flush does not. */
    if (!was_there)
        model_doubt(model, name, op);
    if (chain_hears(key, op, was_there ? MODEL_DONE : MODEL_ABSENT))
        return;
    if (was_there && key->live == NOTHING)
        model_fail(model, "space %u key %u: deleted, but nothing was there", name.space, name.key);
    if (!was_there && (key->live & NOTHING) == 0 && !model->may_be_gone)
        model_fail(model, "space %u key %u: a delete missed what was there (states %#llx)",
            name.space, name.key, (unsigned long long)key->live);
    key->live = NOTHING;
}

void
model_clear_begin(struct model *model, uint32_t space)
{
    for (uint32_t key = 0; key < model->key_count; key++)
        op_add(&model->keys[space][key],
            (struct model_op){.pending = NOTHING, .settled = NOTHING, .is_lasting = false});
}

void
model_clear_end(struct model *model, uint32_t space, bool is_cleared)
{
    for (uint32_t i = 0; i < model->key_count; i++) {
        struct model_key *key = &model->keys[space][i];
        struct model_name name = {.space = space, .key = i};

        if (!is_cleared)
            continue;
        key->live = NOTHING;
        model_ack(model, name, key->op_first + key->op_count - 1);
    }
}

void
ops_drop(struct model_key *key, uint64_t first)
{
    uint32_t done = (uint32_t)(first - key->op_first);

    memmove(&key->ops[0], &key->ops[done], (key->op_count - done) * sizeof(key->ops[0]));
    key->op_count -= done;
    key->op_first += done;
}

void
model_ack(struct model *model, struct model_name name, uint64_t op)
{
    struct model_key *key = key_of(model, name);
    const struct model_op *entry = op_of(key, op);

    if (entry == NULL || entry->pending == 0)
        return; /* A later one was acknowledged already, or it did nothing. */
    if (chain_ack(key, op))
        return;
    key->kept = entry->settled;
    key->rebuilt = entry->settled;
    ops_drop(key, op + 1);
}

void
model_doubt(struct model *model, struct model_name name, uint64_t op)
{
    struct model_op *entry = op_of(key_of(model, name), op);

    if (entry != NULL)
        entry->is_lasting = false;
}

void
model_doubt_all(struct model *model)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t i = 0; i < model->key_count; i++) {
            chain_forget(&model->keys[space][i]);
            model->keys[space][i].live |= NOTHING;
            model->keys[space][i].kept |= NOTHING;
            model->keys[space][i].rebuilt |= NOTHING;
        }
    }
}

bool
model_is_last(const struct model *model, struct model_name name, uint64_t op)
{
    const struct model_key *key = &model->keys[name.space][name.key];

    return op + 1 == key->op_first + key->op_count && !chain_has(key, op);
}

void
model_doubt_volatile(struct model *model)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t i = 0; i < model->key_count; i++) {
            struct model_key *key = &model->keys[space][i];
            uint64_t next = key->kept;

            chain_forget(key);
            for (uint32_t op = 0; op < key->op_count; op++)
                next |= key->ops[op].pending;
            key->live |= next & NOTHING;
        }
    }
}

void
model_ack_present(struct model *model, struct model_name name, uint64_t op)
{
    struct model_key *key = key_of(model, name);

    if (chain_ack_present(key, op))
        return;
    if (op + 1 != key->op_first + key->op_count)
        return; /* Something came in between. */
    if ((key->live & (key->live - 1)) != 0)
        return; /* Not known which version it was. */
    key->kept = key->live;
    key->rebuilt = key->live;
    key->op_first += key->op_count;
    key->op_count = 0;
}

void
model_ack_all(struct model *model)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t i = 0; i < model->key_count; i++) {
            struct model_key *key = &model->keys[space][i];
            struct model_name name = {.space = space, .key = i};

            for (uint64_t op = key->op_first + key->op_count; op > key->op_first; op--) {
                if (!op_of(key, op - 1)->is_lasting)
                    continue;
                model_ack(model, name, op - 1);
                /* Any other of its chain may be the last one. */
                if (!chain_has(key, op - 1))
                    break;
            }
        }
    }
}

/* --- 3. Answers ------------------------------------------------------------------------------- */

static void
found(struct model *model, struct model_name name, bool hit, bool may_miss)
{
    struct model_key *key = key_of(model, name);

    if (hit && key->live == NOTHING)
        model_fail(model, "space %u key %u: found, but it was deleted, cleared or never put",
            name.space, name.key);
    if (!hit && (key->live & NOTHING) == 0 && !may_miss)
        model_fail(model, "space %u key %u: not found; it may have states %#llx", name.space,
            name.key, (unsigned long long)key->live);
    if (model->failure[0] != '\0' || (may_miss && !hit))
        return;
    key->live &= hit ? ~NOTHING : NOTHING;
    chain_narrow(key);
}

void
model_found(struct model *model, struct model_name name, bool hit)
{
    found(model, name, hit, model->may_be_gone);
}

void
model_read(struct model *model, struct model_name name, const void *bytes, uint64_t length)
{
    struct model_key *key = key_of(model, name);
    uint32_t version;

    if (!key->chain.is_open)
        found(model, name, bytes != NULL, model->may_miss);
    if (bytes == NULL || model->failure[0] != '\0')
        return;
    version = model_identify(model, name, bytes, length);
    if (version == 0)
        model_fail(model, "space %u key %u: WRONG BYTES, %llu of them", name.space, name.key,
            (unsigned long long)length);
    else if (key->chain.is_open)
        chain_saw(key, versions_alike(model, name, bytes, length));
    else if ((key->live & mask_of(version)) == 0)
        model_fail(model, "space %u key %u: version %u came back; it may have states %#llx",
            name.space, name.key, version, (unsigned long long)key->live);
    else {
        key->live = mask_of(version);
        chain_narrow(key);
    }
}

/* Whether these are the bytes of the version's parts. */
static bool
parts_are(const struct model *model, struct model_name name, uint32_t version,
    const struct model_range *range, const void *bytes)
{
    uint64_t length = model_length(model, name, version);
    uint64_t part_bytes = length / model_parts(model, name, version);
    uint8_t *payload = malloc((size_t)length + 8);
    bool is_equal;

    if (payload == NULL)
        abort();
    model_fill(model, name, version, payload);
    is_equal = memcmp(payload + range->first * part_bytes, bytes,
                   (size_t)(range->count * part_bytes)) == 0;
    free(payload);
    return is_equal;
}

/* The same, of any of these states. */
static bool
parts_are_of(const struct model *model, struct model_name name, uint64_t states,
    const struct model_range *range, const void *bytes, uint64_t length)
{
    const struct model_key *key = &model->keys[name.space][name.key];
    bool is_known = false;

    for (uint32_t version = 1; version <= key->version_last && !is_known; version++) {
        uint32_t parts = model_parts(model, name, version);
        bool has_range = range->first + range->count <= parts;

        if ((states & mask_of(version)) == 0 || has_range != (bytes != NULL))
            continue;
        is_known =
            bytes == NULL || (length == model_length(model, name, version) / parts * range->count &&
                                 parts_are(model, name, version, range, bytes));
    }
    return is_known;
}

bool
model_had(const struct model *model, struct model_name name, uint64_t states,
    const struct model_range *range, const void *bytes, uint64_t length)
{
    if (range->count == 0)
        return (versions_alike(model, name, bytes, length) & states) != 0;
    return parts_are_of(model, name, states, range, bytes, length);
}

uint64_t
model_states(const struct model *model, struct model_name name)
{
    return model->keys[name.space][name.key].live;
}

void
model_read_parts(struct model *model, struct model_name name, const struct model_range *range,
    const void *bytes, uint64_t length)
{
    model_found(model, name, true);
    if (!parts_are_of(model, name, key_of(model, name)->live, range, bytes, length))
        model_fail(model, "space %u key %u: WRONG PARTS %u..%u, %llu bytes", name.space, name.key,
            range->first, range->first + range->count, (unsigned long long)length);
}

bool
model_is_certain(const struct model *model, struct model_name name)
{
    return (model->keys[name.space][name.key].live & NOTHING) == 0 && !model->may_miss;
}

bool
model_may_be_gone(const struct model *model, struct model_name name)
{
    return (model->keys[name.space][name.key].live & NOTHING) != 0;
}

/* --- 4. Lives --------------------------------------------------------------------------------- */

void
model_reopened(struct model *model, bool is_rebuilt)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t i = 0; i < model->key_count; i++) {
            struct model_key *key = &model->keys[space][i];

            chain_forget(key);
            key->chain.is_open = false;
            key->live = is_rebuilt ? key->rebuilt : key->kept;
            for (uint32_t op = 0; op < key->op_count; op++) {
                key->live |= key->ops[op].pending;
                key->ops[op].is_lasting = false;
            }
        }
    }
}

void
model_settled(struct model *model, bool is_firm)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t i = 0; i < model->key_count; i++) {
            struct model_key *key = &model->keys[space][i];

            chain_forget(key);
            for (uint32_t op = 0; op < key->op_count; op++) {
                key->rebuilt |= key->ops[op].pending;
                key->kept |= key->ops[op].pending;
            }
            if (is_firm)
                key->kept = key->live;
            key->op_first += key->op_count;
            key->op_count = 0;
        }
    }
}

void
model_undo(struct model *model, const struct model *before)
{
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t i = 0; i < model->key_count; i++) {
            uint32_t version_last = model->keys[space][i].version_last;

            model->keys[space][i] = before->keys[space][i];
            model->keys[space][i].version_last = version_last;
        }
    }
}
