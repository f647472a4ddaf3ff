/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_closed.c - what the workload asks of a store that was closed in order: opened for
 * reading only, all that is durable is read, and nothing is taken; on this machine the tools for
 * closed stores list the same blocks, and find nothing wrong.
 */
#include <string.h>

#include "kvtier/kvtier_unstable.h"
#include "workload_internal.h"

/* --- 1. Opened for reading only --------------------------------------------------------------- */

/* Each durable block is read once more, as a tool does it. */
static void
scrub_try(struct workload *work)
{
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    enum kvt_status status = kvt_scrub(work->store, (kvt_namespace){0}, NULL, &report);

    if (!workload_expect(work, "kvt_scrub", status) || work->finds_damage)
        return;
    workload_note(work, 41, report.block_count);
    if (report.finding_count != 0 || report.damaged_count != 0)
        model_fail(&work->model, "kvt_scrub finds %llu things wrong, %llu blocks damaged",
            (unsigned long long)report.finding_count, (unsigned long long)report.damaged_count);
    work->asked_count[ASKED_SCRUB] += report.block_count;
}

/* Nothing that it does there lasts. */
static void
read_only_look(struct workload *work)
{
    static struct model before;

    before = work->model;
    if (workload_open(work, KVT_OPEN_READ_ONLY, false) == KVT_OK) {
        workload_read_only(work);
        scrub_try(work);
        (void)workload_close(work);
    }
    model_undo(&work->model, &before);
}

/* --- 2. Closed -------------------------------------------------------------------------------- */

struct listing {
    struct workload *work;
    uint64_t block_count;
    bool seen[MODEL_SPACES][MODEL_KEYS_MAX];
};

static int
listing_see(void *context, const struct kvt_scan_entry *entry, const char *space_name)
{
    struct listing *listing = context;
    struct workload *work = listing->work;
    struct model_name name;

    listing->block_count++;
    if (entry->is_hashed)
        return 0;
    if (!workload_key_parse(entry->key, entry->key_length, entry->component, &name) ||
        strcmp(space_name, workload_space_name(name.space)) != 0 ||
        listing->seen[name.space][name.key] || entry->tiers != KVT_TIER_NVME) {
        model_fail(
            &work->model, "kvt_list gives a key that nobody put, or one twice, of %s", space_name);
        return 1;
    }
    listing->seen[name.space][name.key] = true;
    return 0;
}

/* What the next open finds. */
static void
listing_judge(struct workload *work, const struct listing *listing)
{
    model_reopened(&work->model, false);
    workload_mood(work);
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        for (uint32_t key = 0; key < work->model.key_count; key++) {
            struct model_name name = {.space = space, .key = key};

            if (!workload_key_is_long(name))
                model_found(&work->model, name, listing->seen[space][key]);
        }
    }
    work->asked_count[ASKED_LIST] += listing->block_count;
}

static void
tools_try(struct workload *work, const char *path)
{
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    struct listing all = {.work = work}, parts = {.work = work};
    enum kvt_status status = kvt_list(path, NULL, listing_see, &all);

    workload_expect(work, "kvt_list", status);
    for (uint32_t i = 0; i < MODEL_SPACES && status == KVT_OK; i++) {
        status = kvt_list(path, workload_space_name(i), listing_see, &parts);
        workload_expect(work, "kvt_list of a namespace", status);
    }
    if (all.block_count != parts.block_count)
        model_fail(&work->model, "kvt_list gives %llu blocks, %llu namespace by namespace",
            (unsigned long long)all.block_count, (unsigned long long)parts.block_count);
    listing_judge(work, &all);
    refused_judge(
        work, "kvt_list of no namespace", KVT_E_INVAL, kvt_list(path, "none", listing_see, &parts));
    if (!workload_expect(work, "kvt_check", kvt_check(path, NULL, &report)))
        return;
    if (report.finding_count != 0 || report.damaged_count != 0 ||
        report.block_count != all.block_count)
        model_fail(&work->model,
            "kvt_check: %llu findings, %llu of %llu blocks damaged; %llu listed",
            (unsigned long long)report.finding_count, (unsigned long long)report.damaged_count,
            (unsigned long long)report.block_count, (unsigned long long)all.block_count);
}

void
workload_closed(struct workload *work)
{
    const char *path = work->host.path != NULL ? work->host.path(work->host.context) : NULL;

    if (path != NULL)
        tools_try(work, path);
    if (work->model.failure[0] == '\0')
        read_only_look(work);
}
