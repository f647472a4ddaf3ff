/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.c - what this machine and this build offer to a store.
 */
#include <stdarg.h>
#include <stdio.h>

#include "codec.h"
#include "device_kinds.h"
#include "io_engines.h"
#include "kvtier/kvtier_unstable.h"
#include "store_internal.h"

/* JSON that grows in the caller's memory; `length` goes on counting when it is full. */
struct text {
    char *target;
    size_t size;
    size_t length;
};

static void __attribute__((format(printf, 2, 3)))
text_add(struct text *text, const char *format, ...)
{
    size_t left = text->length < text->size ? text->size - text->length : 0;
    va_list arguments;
    int count;

    va_start(arguments, format);
    count = vsnprintf(left > 0 ? text->target + text->length : NULL, left, format, arguments);
    va_end(arguments);
    text->length += count > 0 ? (size_t)count : 0;
}

/* A sentence as a JSON string. */
static void
text_add_sentence(struct text *text, const char *sentence)
{
    text_add(text, "\"");
    for (; *sentence != '\0'; sentence++) {
        if (*sentence == '"' || *sentence == '\\')
            text_add(text, "\\%c", *sentence);
        else
            text_add(text, "%c", (unsigned char)*sentence < 0x20 ? ' ' : *sentence);
    }
    text_add(text, "\"");
}

static void
io_describe(struct text *text)
{
    enum kvt_status status = io_uring_probe();

    text_add(text,
        "\"io_engine\": \"%s\", \"io_engine_reason\": ", status == KVT_OK ? "uring" : "threads");
    text_add_sentence(text, status == KVT_OK ? "a ring can be made" : failure_last()->text);
}

/* Runs below which length a kernel copies on each device, as a store would find it. */
static void
plans_describe(struct text *text, const struct kvt_device_ops *ops, uint32_t count)
{
    struct kvt_env env;

    env_host(&env);
    text_add(text, ", \"copy_plans\": [");
    for (uint32_t i = 0; i < count && ops->plan != NULL; i++) {
        struct device_plan plan = {.is_measured = false};
        struct device *device = NULL;
        enum kvt_status status = ops->open(NULL, &env, i, &device);

        if (status == KVT_OK)
            status = ops->plan(device, DEVICE_PLAN_MEASURE, &plan);
        text_add(text, "%s{\"device\": %u, ", i == 0 ? "" : ", ", i);
        if (status == KVT_OK) {
            text_add(text,
                "\"kernel_below_bytes_in\": %llu, \"kernel_below_bytes_out\": %llu, "
                "\"is_measured\": %s}",
                (unsigned long long)plan.kernel_below_bytes[DEVICE_IN],
                (unsigned long long)plan.kernel_below_bytes[DEVICE_OUT],
                plan.is_measured ? "true" : "false");
        } else {
            text_add(text, "\"reason\": ");
            text_add_sentence(text, failure_last()->text);
            text_add(text, "}");
        }
        ops->close(device);
    }
    text_add(text, "]");
}

static void
devices_describe(struct text *text)
{
    const struct kvt_device_ops *ops;
    uint32_t count = 0;
    enum kvt_status status = device_choose(DEVICE_CUDA, &ops);

    if (status == KVT_OK)
        status = ops->count(NULL, &count);
#ifdef KVT_WITH_CUDA
    text_add(text, ", \"is_cuda_built_in\": true");
#else
    text_add(text, ", \"is_cuda_built_in\": false");
#endif
    text_add(text, ", \"devices\": \"%s\", \"device_count\": %u, \"devices_reason\": ",
        status == KVT_OK ? "cuda" : "emulation", count);
    text_add_sentence(text, status == KVT_OK ? "usable devices are there" : failure_last()->text);
    if (status == KVT_OK)
        plans_describe(text, ops, count);
}

/* How the file system of a folder takes direct transfers: asked of a file that is there. */
static void
folder_describe(struct text *text, const char *path)
{
    struct kvt_env env;
    struct fs_dir *dir = NULL;
    struct fs_file *file = NULL;
    uint64_t free_bytes = 0;

    env_host(&env);
    if (env.fs->dir_open(env.fs_context, path, 0, &dir) != KVT_OK) {
        text_add(text, ", \"folder\": null");
        return;
    }
    (void)env.fs->dir_space(dir, &free_bytes);
    text_add(text, ", \"folder\": {\"free_bytes\": %llu", (unsigned long long)free_bytes);
    if (env.fs->open(dir, "STORE.a", FS_READ_ONLY | FS_DIRECT, &file) == KVT_OK) {
        text_add(text, ", \"is_direct\": %s, \"align_bytes\": %u",
            env.fs->is_direct(file) ? "true" : "false", env.fs->align(file));
        env.fs->close(file);
    }
    text_add(text, "}");
    env.fs->dir_close(dir);
}

enum kvt_status
kvt_machine_json(const char *path, char *target, size_t size)
{
    struct text text = {.target = target, .size = size};
    char hashes[128];

    if (target == NULL || size == 0)
        return failure_set(KVT_E_INVAL, 0, "target is NULL or size is 0");
    text_add(&text, "{");
    io_describe(&text);
    devices_describe(&text);
    text_add(&text, ", \"codecs\": [\"bf16\", \"fp16\"]");
    if (path != NULL)
        folder_describe(&text, path);
    hash_versions(hashes, sizeof(hashes));
    text_add(&text, ", \"versions\": {\"kvtier\": \"%s\", \"lmdb\": \"%s\", \"liburing\": \"%s\", ",
        kvt_version(), index_lmdb_version(), KVT_URING_VERSION);
    text_add(&text, "\"zstd\": \"%s\", %s}}", codec_zstd_version(), hashes);
    if (text.length >= size)
        return failure_set(KVT_E_INVAL, 0, "size %zu does not hold %zu bytes", size, text.length);
    return KVT_OK;
}

enum kvt_status
kvt_caps_json(kvt_store *store, char *target, size_t size)
{
    struct nvme_caps caps = {.io_engine = "none"};
    bool is_direct = false, is_read_only;
    uint32_t align_bytes = 0;
    int length;

    if (target == NULL || size == 0)
        return failure_set(KVT_E_INVAL, 0, "target is NULL or size is 0");
    KVT_TRY(store_enter(store));
    is_read_only = store->is_read_only;
    if (store->nvme != NULL)
        nvme_caps_get(store->nvme, &caps);
    for (uint32_t i = 0; store->nvme != NULL && i < store->file.root_count; i++) {
        is_direct = (i == 0 || is_direct) && caps.is_direct[i];
        is_read_only = is_read_only || caps.is_read_only[i];
        if (caps.align_bytes[i] > align_bytes)
            align_bytes = caps.align_bytes[i];
    }
    length = snprintf(target, size,
        "{\"io_engine\": \"%s\", \"is_direct\": %s, \"align_bytes\": %u, \"is_read_only\": %s}",
        caps.io_engine, is_direct ? "true" : "false", align_bytes, is_read_only ? "true" : "false");
    if (length < 0 || (size_t)length >= size)
        return failure_set(KVT_E_INVAL, 0, "size %zu does not hold %d bytes", size, length + 1);
    return KVT_OK;
}
