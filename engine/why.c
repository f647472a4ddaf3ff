/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why.c - kvt_why(): where a block is, or what became of it; and the same of a store that another
 * process has open, as far as its files tell.
 */
#include <math.h>

#include "kvtier/kvtier_unstable.h"
#include "lookup.h"
#include "store_internal.h"

static void
fate_show(const struct fate *fate, struct kvt_explanation *why)
{
    why->fate = fate->kind;
    why->when_seconds = fate->when_s;
    why->score = fate->score;
    why->cut = fate->cut;
}

static const struct kvt_explanation why_nothing = {
    .struct_size = sizeof(struct kvt_explanation), .score = NAN, .cut = NAN};

static enum kvt_status
why_check(const struct kvt_explanation *why)
{
    if (why == NULL)
        return failure_set(KVT_E_INVAL, 0, "why_out is NULL");
    if (why->struct_size != sizeof(*why))
        return failure_set(
            KVT_E_INVAL, 0, "struct_size %u is not %zu", why->struct_size, sizeof(*why));
    return KVT_OK;
}

/* --- An open store ---------------------------------------------------------------------------- */

/* Where the key of that namespace is; 0: nowhere. */
static uint8_t
tiers_find(struct kvt_store *store, uint32_t namespace_id, const struct kvt_key *key,
    struct hash128 *fingerprint_out)
{
    struct block_key block_key;
    uint32_t number;
    uint8_t tiers;

    /* Checked before: it cannot fail. */
    (void)key_init(
        &block_key, store->file.secret, namespace_id, key->component, key->bytes, key->length);
    *fingerprint_out = key_fingerprint(store->fingerprint_seed, &block_key);
    (void)residency_find_pin(store->map, fingerprint_out, &block_key, 1, &number, &tiers);
    if (number == ENTRY_NONE)
        return 0;
    if ((tiers & TIER_HBM) != 0 &&
        device_is_lost(store, entry_device(residency_at(store->map, number))))
        tiers &= (uint8_t)~TIER_HBM;
    lease_unpin(store, number);
    return tiers;
}

/* A namespace that has the key; 0: none. */
static uint32_t
other_find(struct kvt_store *store, const struct kvt_key *key)
{
    uint32_t count = atomic_load_explicit(&store->namespace_count, memory_order_acquire);
    struct hash128 fingerprint;

    for (uint32_t id = 1; id <= count; id++) {
        if (namespace_at(store, id) != NULL && tiers_find(store, id, key, &fingerprint) != 0)
            return id;
    }
    return 0;
}

enum kvt_status
kvt_why(
    kvt_store *store, kvt_namespace ns, const struct kvt_key *key, struct kvt_explanation *why_out)
{
    struct hash128 fingerprint;
    struct fate fate;

    KVT_TRY(lookup_check(store, ns, key, 1));
    KVT_TRY(why_check(why_out));
    *why_out = why_nothing;
    why_out->tiers = tiers_find(store, ns.id, key, &fingerprint);
    if (why_out->tiers != 0)
        return KVT_OK;
    if (fates_find(store, fingerprint, &fate))
        fate_show(&fate, why_out);
    why_out->other.id = other_find(store, key);
    return KVT_OK;
}

/* --- A store that another process has open ---------------------------------------------------- */

/* The fingerprint of the key there. */
static enum kvt_status
fingerprint_read(const struct kvt_env *env, struct fs_dir *dir, const char *namespace_name,
    const struct kvt_key *key, struct hash128 *fingerprint_out)
{
    bool is_unwritable;
    struct store_file file;
    struct names_file names;
    struct block_key block_key;
    const struct name_entry *name;
    enum kvt_status status;

    KVT_TRY(store_file_read(env, dir, &file, &is_unwritable));
    names_init(&names, env, file.uuid);
    status = names_read(&names, dir);
    if (status == KVT_OK) {
        name = names_find(&names, namespace_name);
        if (name == NULL)
            status = failure_set(KVT_MISS, 0, "there is no namespace \"%s\"", namespace_name);
        else if (!key_init(
                     &block_key, file.secret, name->id, key->component, key->bytes, key->length))
            status = failure_set(
                KVT_E_INVAL, 0, "key.length %u is not in 1..%u", key->length, KVT_KEY_BYTES_MAX);
        else
            *fingerprint_out = key_fingerprint(fingerprint_seed(file.secret), &block_key);
    }
    names_deinit(&names);
    return status;
}

static enum kvt_status
fate_read(const struct kvt_env *env, struct fs_dir *dir, struct hash128 fingerprint,
    struct kvt_explanation *why, uint64_t *written_out)
{
    struct lazy_bytes bytes;
    struct fate fate;

    KVT_TRY(lazy_file_read(env, dir, &fates_file, &bytes));
    if (fates_are_known(bytes.source, bytes.size, written_out) &&
        fate_in_records(
            bytes.source + FATES_HEAD_BYTES, bytes.size - FATES_HEAD_BYTES, fingerprint.low, &fate))
        fate_show(&fate, why);
    lazy_file_put(env, &fates_file, &bytes);
    return KVT_OK;
}

enum kvt_status
kvt_why_read(const char *path, const char *namespace_name, const struct kvt_key *key,
    struct kvt_explanation *why_out, uint64_t *written_seconds_out)
{
    struct kvt_explanation why = why_nothing;
    uint64_t written_seconds = 0;
    struct hash128 fingerprint;
    struct fs_dir *dir;
    struct kvt_env env;
    enum kvt_status status;

    if (path == NULL || namespace_name == NULL || key == NULL || key->bytes == NULL ||
        written_seconds_out == NULL)
        return failure_set(
            KVT_E_INVAL, 0, "path, namespace_name, key, key.bytes or written_seconds_out is NULL");
    if (key->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0, "key.reserved0 is not zero");
    KVT_TRY(why_check(why_out));
    env_host(&env);
    KVT_TRY(env.fs->dir_open(env.fs_context, path, 0, &dir));
    status = fingerprint_read(&env, dir, namespace_name, key, &fingerprint);
    if (status == KVT_OK) {
        status = fate_read(&env, dir, fingerprint, &why, &written_seconds);
        /* Nothing was written yet, or nothing that can be used. */
        if (status == KVT_MISS || status == KVT_E_CORRUPT)
            status = KVT_OK;
    }
    env.fs->dir_close(dir);
    if (status != KVT_OK)
        return status;
    *why_out = why;
    *written_seconds_out = written_seconds;
    return KVT_OK;
}
