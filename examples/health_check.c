/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health_check.c - what a host program does about the state of its store.
 *
 * Usage: health_check DIR [read-only]. Opens the store and says what a serving engine should do.
 */
#include <stdio.h>
#include <string.h>

#include <kvtier/kvtier.h>

enum action {
    ACTION_GO_ON,
    ACTION_PUT_TO_MEMORY, /* Use KVT_MEMORY alone; what is there is still served. */
    ACTION_CHANGE_DEVICE, /* HBM copies of a lost device are gone; restart the worker. */
    ACTION_REOPEN,        /* kvt_close(), then kvt_open(). */
};

/* --- What a serving engine writes ------------------------------------------------------------- */

/* Opens the store at `path`. NULL: there will be no cache; serving goes on without. */
static kvt_store *
cache_open(const char *path, const struct kvt_options *options)
{
    struct kvt_error error;
    kvt_store *store;
    enum kvt_status status = kvt_open(path, options, &store);

    if (status == KVT_OK)
        return store;
    kvt_last_error(&error);
    fprintf(stderr, "health_check: no cache: %s: %s\n", kvt_status_name(status), error.text);
    return NULL;
}

/* What to do now, worst first. */
static enum action
health_action(kvt_store *store)
{
    uint32_t flags = 0;

    if (kvt_health(store, &flags) != KVT_OK || (flags & KVT_HEALTH_POISONED) != 0)
        return ACTION_REOPEN;
    if ((flags & KVT_HEALTH_GPU_LOST) != 0)
        return ACTION_CHANGE_DEVICE;
    if ((flags & (KVT_HEALTH_META_READONLY | KVT_HEALTH_ROOT_READONLY | KVT_HEALTH_READ_ONLY)) != 0)
        return ACTION_PUT_TO_MEMORY;
    return ACTION_GO_ON; /* IO_THREADS and DEVICE_EMULATED say how it works, not that it fails. */
}

/* --- The program around it -------------------------------------------------------------------- */

int
main(int argc, char **argv)
{
    static const char *const names[] = {[ACTION_GO_ON] = "go on",
        [ACTION_PUT_TO_MEMORY] = "put to memory only",
        [ACTION_CHANGE_DEVICE] = "change the device",
        [ACTION_REOPEN] = "open it again"};
    struct kvt_options options = KVT_OPTIONS_INIT;
    kvt_store *store;

    if (argc < 2) {
        fprintf(stderr, "usage: health_check DIR [read-only]\n");
        return 2;
    }
    options.host_capacity_bytes = 16 << 20;
    options.nvme_capacity_bytes = 64 << 20;
    if (argc > 2 && strcmp(argv[2], "read-only") == 0)
        options.flags = KVT_OPEN_READ_ONLY;
    store = cache_open(argv[1], &options);
    if (store == NULL)
        return 1;
    printf("%s\n", names[health_action(store)]);
    return kvt_close(store) == KVT_OK ? 0 : 1;
}
