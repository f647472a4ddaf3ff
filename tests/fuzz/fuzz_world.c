/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_world.c - the world of fuzz targets: the host's, but for files, which are bytes in memory.
 */
#include "fuzz_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "stop_on_proof.h"

enum {
    OPEN_MAX = 4,
};

struct fs_dir {
    struct fuzz_world *world;
};

struct open_file {
    struct fs_file file;
    const uint8_t *bytes;
    size_t size;
    bool is_open;
};

static struct fuzz_world the_world;
static struct fs_dir the_dir = {&the_world};
static struct open_file open_files[OPEN_MAX];
static const struct memory_ops *host_memory;
static struct memory_ops memory_ops;

const uint8_t fuzz_uuid[16] = "fuzz store uuid";
const uint8_t fuzz_secret[32] = "the secret of the store of fuzz";

_Noreturn void
fuzz_found(const char *expression, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, expression);
    abort();
}

/* --- Files ------------------------------------------------------------------------------------ */

struct fs_file *
fuzz_file_open(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < OPEN_MAX; i++) {
        struct open_file *file = &open_files[i];

        if (file->is_open)
            continue;
        *file = (struct open_file){
            .file.descriptor = -1, .bytes = bytes, .size = size, .is_open = true};
        the_world.open_count++;
        return &file->file;
    }
    fuzz_found("no more files are open than one needs", __FILE__, __LINE__);
}

static enum kvt_status
world_open(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    *file_out = NULL;
    FUZZ_REQUIRE(flags == FS_READ_ONLY);
    for (size_t i = 0; i < FUZZ_FILES_MAX; i++) {
        const struct fuzz_file *file = &dir->world->files[i];

        if (file->name != NULL && strcmp(file->name, name) == 0) {
            *file_out = fuzz_file_open(file->bytes, file->size);
            return KVT_OK;
        }
    }
    return KVT_MISS;
}

static void
world_close(struct fs_file *file)
{
    struct open_file *open = (struct open_file *)file;

    FUZZ_REQUIRE(open->is_open);
    open->is_open = false;
    the_world.open_count--;
}

static enum kvt_status
world_size(struct fs_file *file, uint64_t *size_out)
{
    *size_out = ((struct open_file *)file)->size;
    return KVT_OK;
}

static enum kvt_status
world_read_at(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    struct open_file *open = (struct open_file *)file;
    size_t there = offset >= open->size ? 0 : open->size - (size_t)offset;

    FUZZ_REQUIRE(open->is_open);
    *read_out = there < size ? there : size;
    if (*read_out > 0)
        memcpy(target, open->bytes + offset, *read_out);
    return KVT_OK;
}

static const char *
world_dir_path(const struct fs_dir *dir)
{
    (void)dir;
    return "fuzz";
}

static const struct fs_ops world_fs = {
    .dir_path = world_dir_path,
    .open = world_open,
    .close = world_close,
    .read_at = world_read_at,
    .size = world_size,
};

/* --- Memory ----------------------------------------------------------------------------------- */

/* Mapped once and given again and again: the kernel would have to clear it for every run. */
static void *
world_map(void *context, size_t size)
{
    static void *memory;
    static size_t mapped;

    if (mapped < size) {
        memory = host_memory->map(context, size);
        mapped = size;
    }
    return memory;
}

static void
world_unmap(void *context, void *memory, size_t size)
{
    (void)context;
    FUZZ_REQUIRE(memory != NULL && size > 0);
}

struct fuzz_world *
fuzz_world(void)
{
    if (the_world.dir == NULL) {
        env_host(&the_world.env);
        host_memory = the_world.env.memory;
        memory_ops = *host_memory;
        memory_ops.map = world_map;
        memory_ops.unmap = world_unmap;
        the_world.env.memory = &memory_ops;
        the_world.env.fs = &world_fs;
        the_world.dir = &the_dir;
        stop_on_proof();
    }
    memset(the_world.files, 0, sizeof(the_world.files));
    return &the_world;
}

/* --- Inputs ----------------------------------------------------------------------------------- */

uint64_t
fuzz_number(struct fuzz_input *input, size_t width)
{
    uint64_t number = 0;

    for (size_t i = 0; i < width && input->left > 0; i++) {
        number |= (uint64_t)*input->at++ << (8 * i);
        input->left--;
    }
    return number;
}
