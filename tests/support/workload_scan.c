/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_scan.c - scans and counters, held against the model.
 */
#include "workload_internal.h"

enum {
    SCAN_BATCH = 16,
};

static void
scan_entry_check(struct workload *work, const struct kvt_scan_entry *entry,
    bool seen[MODEL_SPACES][MODEL_KEYS_MAX])
{
    struct model_name name;

    if (entry->is_hashed)
        return;
    if (!workload_key_parse(entry->key, entry->key_length, entry->component, &name) ||
        entry->ns.id != work->spaces[name.space].id) {
        model_fail(&work->model, "kvt_scan gives a key that nobody put");
        return;
    }
    if (seen[name.space][name.key])
        model_fail(&work->model, "space %u key %u: scanned twice", name.space, name.key);
    seen[name.space][name.key] = true;
    if (entry->tiers == 0)
        model_fail(&work->model, "space %u key %u: scanned in no tier", name.space, name.key);
    model_found(&work->model, name, true);
}

void
workload_scan(struct workload *work)
{
    bool seen[MODEL_SPACES][MODEL_KEYS_MAX] = {{false}};
    struct kvt_scan_entry entries[SCAN_BATCH];
    uint64_t cursor = 0;
    uint32_t count;
    enum kvt_status status;

    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        if (work->flights[i].kind != FLIGHT_FREE)
            flight_land(work, &work->flights[i]);
    }
    workload_mood(work);
    do {
        status = kvt_scan(work->store, &cursor, entries, SCAN_BATCH, &count);
        for (uint32_t i = 0; status == KVT_OK && i < count; i++)
            scan_entry_check(work, &entries[i], seen);
    } while (status == KVT_OK);
    if (status != KVT_MISS) {
        workload_expect(work, "kvt_scan", status);
        return;
    }
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t key = 0; key < work->model.key_count; key++) {
            struct model_name name = {.space = space, .key = key};

            if (!workload_key_is_long(name) && !seen[space][key] &&
                model_is_certain(&work->model, name) && !workload_tolerates(work))
                model_fail(&work->model, "space %u key %u: the scan missed it", space, key);
        }
    }
}

void
workload_stats(struct workload *work)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    uint64_t leases = 0;

    if (!workload_expect(work, "kvt_stats_get", kvt_stats_get(work->store, &stats)))
        return;
    for (uint32_t i = 0; i < LEASES_MAX; i++)
        leases += work->leases[i].lease.id != 0;
    /* Those that wait for a stream are counted, too. */
    if (stats.lease_count_now < leases ||
        stats.lease_count_now - leases > (work->late.device == NULL ? 0 : work->late_lease_count))
        model_fail(&work->model, "%llu leases are out, the store counts %llu",
            (unsigned long long)leases, (unsigned long long)stats.lease_count_now);
    if (stats.lease_stale_count != work->stale_count)
        model_fail(&work->model, "%llu leases were given back again, the store counts %llu",
            (unsigned long long)work->stale_count, (unsigned long long)stats.lease_stale_count);
    if (workload_tolerates(work) || work->finds_damage)
        return;
    if (stats.corrupt_count + stats.read_failed_count + stats.batch_failed_count +
            stats.commit_failed_count >
        work->calmed_count)
        model_fail(&work->model,
            "without faults: corrupt %llu, read failed %llu, batch failed %llu, commit failed %llu",
            (unsigned long long)stats.corrupt_count, (unsigned long long)stats.read_failed_count,
            (unsigned long long)stats.batch_failed_count,
            (unsigned long long)stats.commit_failed_count);
}
