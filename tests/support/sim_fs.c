/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_fs.c - the synchronous file calls over the simulated disk.
 *
 * Owns      open files and directories of the present life, and locks.
 * Not here  bytes and names (sim_disk.c), asynchronous transfers (sim_io.c).
 *
 * Every call that a device could fail counts as one io operation, may be hit by a rule, and may be
 * the one at which the power goes. After the power has gone each of them fails with KVT_E_IO.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "sim_world_internal.h"

enum {
    PATH_BYTES = 512,
    SYNC_NS = 150 * 1000,
    CALL_NS = 2000,
};

static const uint64_t SPACE_BYTES_DEFAULT = UINT64_C(1) << 40;

struct fs_dir {
    struct sim_world *world;
    struct fs_dir *next;
    struct sim_node *node;
    struct sim_node *parent; /* The root's: itself. */
    bool is_passed;          /* Opened with FS_FOLLOW. */
    char path[PATH_BYTES];
};

/* --- 1. What every call begins with ----------------------------------------------------------- */

static enum kvt_status
power_failure(const char *what, const char *name)
{
    return failure_set(KVT_E_IO, EIO, "%s %s: the simulated power is off", what, name);
}

/*
 * Count the call. *crashes_out: do it, as something that nobody will sync, and report the failure.
 * Effects that only a transfer can have leave the call alone.
 */
static enum kvt_status
call_begin(struct sim_world *world, enum sim_op op, const char *name, struct sim_verdict *out)
{
    static const char what[] = "simulated file call on";

    memset(out, 0, sizeof(*out));
    if (world->is_crashed)
        return power_failure(what, name);
    *out = sim_verdict_of(world, op, name, NULL);
    world->now_ns += CALL_NS + out->stall_ns;
    if (op == SIM_SYNC || op == SIM_DIR_SYNC)
        world->now_ns += SYNC_NS;
    if (out->effect == SIM_EIO || out->effect == SIM_TORN)
        return failure_set(KVT_E_IO, EIO, "%s %s: injected I/O error", what, name);
    if (out->effect == SIM_ENOSPC)
        return failure_set(KVT_E_NOSPC, ENOSPC, "%s %s: injected lack of space", what, name);
    if (out->effect == SIM_ENOMEM && (op == SIM_READ || op == SIM_WRITE))
        return failure_set(KVT_E_NOMEM, ENOMEM, "%s %s: injected lack of memory", what, name);
    return KVT_OK;
}

/* What a call reports that was done while the power went. */
static enum kvt_status
call_end(const struct sim_verdict *verdict, const char *name)
{
    return verdict->crashes ? power_failure("simulated file call on", name) : KVT_OK;
}

static enum kvt_status
check_name(const struct fs_dir *dir, const char *name)
{
    if (*name == '\0' || strchr(name, '/') != NULL || strstr(name, "..") != NULL ||
        strlen(name) >= SIM_NAME_BYTES)
        return failure_set(KVT_E_INVAL, 0, "'%s' is no name of a file below %s", name, dir->path);
    return KVT_OK;
}

/* One that is merely passed has nothing else done to it: the host's has no right to be read. */
static void
check_whole(const struct fs_dir *dir)
{
    if (dir->is_passed)
        sim_panic(dir->world, "%s was opened to be passed, and is used", dir->path);
}

/* --- 2. Directories --------------------------------------------------------------------------- */

static struct fs_dir *
dir_new(struct sim_world *world, struct sim_node *parent, struct sim_node *node, const char *path,
    unsigned flags)
{
    struct fs_dir *dir = calloc(1, sizeof(*dir));

    if (dir == NULL)
        sim_panic(world, "out of memory");
    dir->world = world;
    dir->node = node;
    dir->parent = parent;
    dir->is_passed = (flags & FS_FOLLOW) != 0;
    snprintf(dir->path, sizeof(dir->path), "%s", path);
    dir->next = world->dirs;
    world->dirs = dir;
    return dir;
}

/* Find or make the directory `name` of `parent`; `path` is what to call it. */
static enum kvt_status
dir_enter(struct sim_world *world, struct sim_node *parent, const char *name, const char *path,
    unsigned flags, struct fs_dir **dir_out)
{
    struct sim_node *node = disk_find(parent, name);
    struct sim_verdict verdict;
    enum kvt_status status = call_begin(world, SIM_OPEN, name, &verdict);

    if (status != KVT_OK)
        return status;
    if (node == NULL && (flags & FS_CREATE) == 0)
        return failure_set(KVT_MISS, ENOENT, "open %s: no such directory", path);
    if (node != NULL && !node->is_directory)
        return failure_set(KVT_E_INVAL, ENOTDIR, "open %s: not a directory", path);
    if (node != NULL && (flags & FS_EXCLUSIVE) != 0)
        return failure_set(KVT_EXISTS, EEXIST, "create %s: it is there", path);
    if (node == NULL) {
        node = disk_create(&world->disk, parent, name, true);
        if (!world->options.directories_sync_late)
            disk_sync(parent, UINT64_MAX);
    }
    if (verdict.crashes)
        return call_end(&verdict, path);
    *dir_out = dir_new(world, parent, node, path, flags);
    return KVT_OK;
}

static enum kvt_status
fs_dir_open(void *context, const char *path, unsigned flags, struct fs_dir **dir_out)
{
    struct sim_world *world = context;
    char parent_path[PATH_BYTES];
    struct sim_node *parent;
    const char *name;
    char *slash;

    *dir_out = NULL;
    if ((flags & FS_FOLLOW) != 0 && flags != FS_FOLLOW)
        sim_panic(world, "%s is opened to be passed, and to be made", path);
    if (snprintf(parent_path, sizeof(parent_path), "%s", path) >= PATH_BYTES)
        return failure_set(KVT_E_INVAL, ENAMETOOLONG, "path of %zu bytes", strlen(path));
    while (strlen(parent_path) > 1 && parent_path[strlen(parent_path) - 1] == '/')
        parent_path[strlen(parent_path) - 1] = '\0';
    if (strcmp(parent_path, "/") == 0 || strcmp(parent_path, ".") == 0) {
        *dir_out = dir_new(world, world->disk.root, world->disk.root, parent_path, flags);
        return KVT_OK;
    }
    slash = strrchr(parent_path, '/');
    name = slash == NULL ? parent_path : slash + 1;
    parent = world->disk.root;
    if (slash != NULL) {
        *slash = '\0';
        parent = disk_find_path(&world->disk, parent_path);
    }
    if (parent == NULL || !parent->is_directory)
        return failure_set(KVT_MISS, ENOENT, "open %s: no such directory", path);
    return dir_enter(world, parent, name, path, flags, dir_out);
}

static enum kvt_status
fs_dir_open_at(struct fs_dir *parent, const char *name, unsigned flags, struct fs_dir **dir_out)
{
    char path[PATH_BYTES];
    enum kvt_status status;

    *dir_out = NULL;
    check_whole(parent);
    status = check_name(parent, name);
    if (status != KVT_OK)
        return status;
    if (snprintf(path, sizeof(path), "%s/%s", parent->path, name) >= PATH_BYTES)
        return failure_set(KVT_E_INVAL, ENAMETOOLONG, "path below %s is too long", parent->path);
    return dir_enter(parent->world, parent->node, name, path, flags, dir_out);
}

static void
fs_dir_close(struct fs_dir *dir)
{
    struct fs_dir **link;

    if (dir == NULL)
        return;
    link = &dir->world->dirs;
    while (*link != NULL && *link != dir)
        link = &(*link)->next;
    if (*link == NULL)
        sim_panic(dir->world, "a directory is closed twice");
    *link = dir->next;
    free(dir);
}

static enum kvt_status
node_sync(struct fs_dir *dir, struct sim_node *node)
{
    struct sim_verdict verdict;
    enum kvt_status status = call_begin(dir->world, SIM_DIR_SYNC, dir->path, &verdict);

    check_whole(dir);
    if (verdict.crashes)
        return power_failure("sync", dir->path);
    if (status != KVT_OK)
        return status; /* The changes wait for a later sync: directories are in the journal. */
    disk_sync(node, UINT64_MAX);
    return KVT_OK;
}

static enum kvt_status
fs_dir_sync(struct fs_dir *dir)
{
    return node_sync(dir, dir->node);
}

static enum kvt_status
fs_dir_sync_parent(struct fs_dir *dir)
{
    return node_sync(dir, dir->parent);
}

static const char *
fs_dir_path(const struct fs_dir *dir)
{
    return dir->path;
}

static enum kvt_status
fs_dir_list(struct fs_dir *dir, bool (*visit)(void *visitor, const char *name), void *visitor)
{
    struct sim_verdict verdict;
    enum kvt_status status = call_begin(dir->world, SIM_LIST, dir->path, &verdict);

    check_whole(dir);
    if (status != KVT_OK)
        return status;
    for (size_t i = 0; i < dir->node->entries.count; i++) {
        if (!visit(visitor, dir->node->entries.items[i].name))
            break;
    }
    return call_end(&verdict, dir->path);
}

static uint64_t
space_limit(const struct sim_world *world)
{
    return world->options.space_bytes == 0 ? SPACE_BYTES_DEFAULT : world->options.space_bytes;
}

static const char *
fs_dir_network(const struct fs_dir *dir)
{
    (void)dir;
    return NULL;
}

static bool
fs_dir_has_locks(const struct fs_dir *dir)
{
    (void)dir;
    return true;
}

static enum kvt_status
fs_dir_space(struct fs_dir *dir, uint64_t *free_bytes_out)
{
    uint64_t used = disk_used(&dir->world->disk);
    uint64_t limit = space_limit(dir->world);

    if (dir->world->is_crashed)
        return power_failure("statvfs", dir->path);
    *free_bytes_out = used < limit ? limit - used : 0;
    return KVT_OK;
}

bool
sim_space_for(struct sim_world *world, const struct sim_node *node, uint64_t size)
{
    uint64_t used;

    if (size <= node->current.size)
        return true;
    used = disk_used(&world->disk);
    return size - node->current.size <= space_limit(world) &&
           used <= space_limit(world) - (size - node->current.size);
}

static enum kvt_status
fs_rename(struct fs_dir *dir, const char *from, const char *to)
{
    struct sim_verdict verdict;
    enum kvt_status status = check_name(dir, from);

    check_whole(dir);
    if (status == KVT_OK)
        status = check_name(dir, to);
    if (status == KVT_OK)
        status = call_begin(dir->world, SIM_RENAME, from, &verdict);
    if (status != KVT_OK)
        return status;
    if (!disk_rename(&dir->world->disk, dir->node, from, to))
        return failure_set(KVT_MISS, ENOENT, "rename %s/%s: no such file", dir->path, from);
    return call_end(&verdict, from);
}

static enum kvt_status
fs_rename_new(struct fs_dir *dir, const char *from, const char *to)
{
    if (disk_find(dir->node, to) != NULL)
        return failure_set(KVT_EXISTS, EEXIST, "rename %s/%s: %s is there", dir->path, from, to);
    return fs_rename(dir, from, to);
}

static enum kvt_status
fs_unlink(struct fs_dir *dir, const char *name)
{
    struct sim_verdict verdict;
    enum kvt_status status = check_name(dir, name);

    check_whole(dir);
    if (status == KVT_OK)
        status = call_begin(dir->world, SIM_UNLINK, name, &verdict);
    if (status != KVT_OK)
        return status;
    if (!disk_unlink(&dir->world->disk, dir->node, name))
        return failure_set(KVT_MISS, ENOENT, "unlink %s/%s: no such file", dir->path, name);
    return call_end(&verdict, name);
}

/* --- 3. Files --------------------------------------------------------------------------------- */

static struct sim_handle *
handle_of(struct fs_file *file)
{
    return (struct sim_handle *)file;
}

static const struct sim_handle *
handle_of_const(const struct fs_file *file)
{
    return (const struct sim_handle *)file;
}

static void
handle_new(struct sim_world *world, struct sim_node *node, const char *name, unsigned flags,
    struct fs_file **file_out)
{
    struct sim_handle *handle = calloc(1, sizeof(*handle));

    if (handle == NULL)
        sim_panic(world, "out of memory");
    handle->base.descriptor = -1;
    handle->world = world;
    handle->node = node;
    handle->flags = flags;
    snprintf(handle->name, sizeof(handle->name), "%s", name);
    handle->next = world->handles;
    world->handles = handle;
    *file_out = &handle->base;
}

static enum kvt_status
fs_open(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    struct sim_world *world = dir->world;
    struct sim_verdict verdict;
    struct sim_node *node;
    enum kvt_status status;

    *file_out = NULL;
    if ((flags & FS_FOLLOW) == 0)
        check_whole(dir);
    status = check_name(dir, name);
    if (status == KVT_OK)
        status = call_begin(world, SIM_OPEN, name, &verdict);
    if (status != KVT_OK)
        return status;
    node = disk_find(dir->node, name);
    if (node == NULL && (flags & FS_CREATE) == 0)
        return failure_set(KVT_MISS, ENOENT, "open %s/%s: no such file", dir->path, name);
    if (node != NULL && (flags & FS_CREATE) != 0 && (flags & FS_EXCLUSIVE) != 0)
        return failure_set(KVT_EXISTS, EEXIST, "create %s/%s: it is there", dir->path, name);
    if (node != NULL && node->is_directory)
        return failure_set(KVT_E_INVAL, EISDIR, "open %s/%s: a directory", dir->path, name);
    if (node == NULL)
        node = disk_create(&world->disk, dir->node, name, false);
    if (verdict.crashes)
        return call_end(&verdict, name);
    handle_new(world, node, name, flags, file_out);
    return KVT_OK;
}

static void
fs_close(struct fs_file *file)
{
    struct sim_handle *handle = handle_of(file);
    struct sim_handle **link;

    if (file == NULL)
        return;
    link = &handle->world->handles;
    while (*link != NULL && *link != handle)
        link = &(*link)->next;
    if (*link == NULL)
        sim_panic(handle->world, "a file is closed twice");
    *link = handle->next;
    if (handle->node->lock_owner == handle)
        handle->node->lock_owner = NULL;
    free(handle);
}

static bool
is_misaligned(const struct sim_handle *handle, const void *memory, size_t size, uint64_t offset)
{
    uint32_t align = sim_align_of(handle);

    return offset % align != 0 || size % align != 0 || (uintptr_t)memory % align != 0;
}

bool
sim_read_is_refused(const struct sim_handle *handle)
{
    return handle->world->options.direct_refused && (handle->flags & FS_DIRECT) != 0;
}

static enum kvt_status
fs_read_at(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    struct sim_handle *handle = handle_of(file);
    struct iovec piece = {.iov_base = target, .iov_len = size};
    struct sim_verdict verdict;
    enum kvt_status status = call_begin(handle->world, SIM_READ, handle->name, &verdict);

    if (status != KVT_OK)
        return status;
    if (is_misaligned(handle, target, size, offset))
        return failure_set(KVT_E_INVAL, EINVAL, "read %s: not aligned", handle->name);
    if (sim_read_is_refused(handle))
        return failure_set(KVT_E_INVAL, EINVAL, "read %s: not past the page cache", handle->name);
    if (verdict.crashes)
        return call_end(&verdict, handle->name);
    if (offset >= handle->node->current.size)
        piece.iov_len = 0;
    else if (piece.iov_len > handle->node->current.size - offset)
        piece.iov_len = (size_t)(handle->node->current.size - offset);
    image_read(&handle->node->current, offset, target, piece.iov_len);
    if (verdict.effect == SIM_FLIP || verdict.effect == SIM_MISDIRECT ||
        verdict.effect == SIM_STALE)
        sim_read_spoil(handle->world, handle->node, verdict.effect, offset, &piece, 1);
    *read_out = piece.iov_len;
    return KVT_OK;
}

void
sim_torn_write(struct sim_world *world, struct sim_node *node, const struct iovec *pieces,
    uint32_t piece_count, uint64_t offset)
{
    for (uint32_t i = 0; i < piece_count; i++) {
        const uint8_t *from = pieces[i].iov_base;

        for (size_t at = 0; at < pieces[i].iov_len; at += SIM_SECTOR_BYTES) {
            size_t left = pieces[i].iov_len - at;
            size_t size = left < SIM_SECTOR_BYTES ? left : SIM_SECTOR_BYTES;

            if (rng_below(&world->fault_rng, 2) == 0 &&
                sim_space_for(world, node, offset + at + size))
                disk_write(&world->disk, node, from + at, offset + at, size);
        }
        offset += pieces[i].iov_len;
    }
}

static enum kvt_status
check_writable(const struct sim_handle *handle)
{
    if ((handle->flags & FS_READ_ONLY) != 0)
        return failure_set(
            KVT_E_PERMISSION, EBADF, "write %s: opened for reading only", handle->name);
    return KVT_OK;
}

static enum kvt_status
fs_write_at(struct fs_file *file, const void *source, size_t size, uint64_t offset)
{
    struct sim_handle *handle = handle_of(file);
    struct sim_world *world = handle->world;
    struct iovec piece = {.iov_len = size};
    struct sim_verdict verdict;
    enum kvt_status status = check_writable(handle);

    if (status != KVT_OK)
        return status;
    memcpy(&piece.iov_base, &source, sizeof(source)); /* iovec has no const; it is only read. */
    status = call_begin(world, SIM_WRITE, handle->name, &verdict);
    if (verdict.effect == SIM_TORN)
        sim_torn_write(world, handle->node, &piece, 1, offset);
    if (status != KVT_OK)
        return status;
    if (is_misaligned(handle, source, size, offset))
        return failure_set(KVT_E_INVAL, EINVAL, "write %s: not aligned", handle->name);
    if (!sim_space_for(world, handle->node, offset + size))
        return failure_set(KVT_E_NOSPC, ENOSPC, "write %s: the disk is full", handle->name);
    disk_write(&world->disk, handle->node, source, offset, size);
    return call_end(&verdict, handle->name);
}

static enum kvt_status
fs_sync(struct fs_file *file)
{
    struct sim_handle *handle = handle_of(file);
    struct sim_verdict verdict;
    enum kvt_status status = call_begin(handle->world, SIM_SYNC, handle->name, &verdict);

    if (verdict.crashes)
        return power_failure("sync", handle->name);
    if (verdict.effect == SIM_EIO || verdict.effect == SIM_TORN || verdict.effect == SIM_ENOSPC)
        disk_sync_lossy(&handle->world->disk, handle->node, UINT64_MAX, &handle->world->fault_rng);
    if (status != KVT_OK)
        return status;
    disk_sync(handle->node, UINT64_MAX);
    return KVT_OK;
}

static enum kvt_status
fs_size(struct fs_file *file, uint64_t *size_out)
{
    struct sim_handle *handle = handle_of(file);

    if (handle->world->is_crashed)
        return power_failure("size of", handle->name);
    *size_out = handle->node->current.size;
    return KVT_OK;
}

static enum kvt_status
resize(struct sim_handle *handle, enum sim_op op, enum sim_change_kind kind, uint64_t size)
{
    struct sim_verdict verdict;
    enum kvt_status status = check_writable(handle);

    if (status == KVT_OK)
        status = call_begin(handle->world, op, handle->name, &verdict);
    if (status != KVT_OK)
        return status;
    if (!sim_space_for(handle->world, handle->node, size))
        return failure_set(KVT_E_NOSPC, ENOSPC, "%s: the disk has no room for %llu bytes",
            handle->name, (unsigned long long)size);
    disk_resize(&handle->world->disk, handle->node, kind, size);
    return call_end(&verdict, handle->name);
}

static enum kvt_status
fs_allocate(struct fs_file *file, uint64_t offset, uint64_t size)
{
    return resize(handle_of(file), SIM_ALLOCATE, CHANGE_GROW, offset + size);
}

static enum kvt_status
fs_truncate(struct fs_file *file, uint64_t size)
{
    return resize(handle_of(file), SIM_TRUNCATE, CHANGE_SIZE, size);
}

static bool
lock_is_free(void *context)
{
    const struct sim_handle *handle = context;

    return handle->node->lock_owner == NULL || handle->node->lock_owner == handle;
}

static enum kvt_status
fs_lock(struct fs_file *file, uint64_t timeout_ns)
{
    struct sim_handle *handle = handle_of(file);
    struct sim_world *world = handle->world;

    if (timeout_ns > 0 && !lock_is_free(handle))
        (void)sim_run(world, lock_is_free, handle, world->now_ns + timeout_ns);
    if (world->is_crashed)
        return power_failure("lock", handle->name);
    if (!lock_is_free(handle))
        return failure_set(KVT_E_LOCKED, EAGAIN, "lock %s: held elsewhere", handle->name);
    handle->node->lock_owner = handle;
    return KVT_OK;
}

static bool
fs_is_same(const struct fs_file *one, const struct fs_file *other)
{
    return handle_of_const(one)->node == handle_of_const(other)->node;
}

static bool
fs_is_direct(const struct fs_file *file)
{
    const struct sim_handle *handle = handle_of_const(file);

    return (handle->flags & FS_DIRECT) != 0 && !handle->world->options.direct_unsupported;
}

uint32_t
sim_align_of(const struct sim_handle *handle)
{
    if (!fs_is_direct(&handle->base))
        return 1;
    return handle->world->options.align_bytes == 0 ? SIM_SECTOR_BYTES
                                                   : handle->world->options.align_bytes;
}

static uint32_t
fs_align(const struct fs_file *file)
{
    return sim_align_of(handle_of_const(file));
}

const struct fs_ops sim_fs_ops = {
    .dir_open = fs_dir_open,
    .dir_open_at = fs_dir_open_at,
    .dir_close = fs_dir_close,
    .dir_sync = fs_dir_sync,
    .dir_sync_parent = fs_dir_sync_parent,
    .dir_path = fs_dir_path,
    .dir_list = fs_dir_list,
    .dir_network = fs_dir_network,
    .dir_has_locks = fs_dir_has_locks,
    .dir_space = fs_dir_space,
    .rename = fs_rename,
    .rename_new = fs_rename_new,
    .unlink = fs_unlink,
    .open = fs_open,
    .close = fs_close,
    .is_same = fs_is_same,
    .read_at = fs_read_at,
    .write_at = fs_write_at,
    .sync = fs_sync,
    .size = fs_size,
    .allocate = fs_allocate,
    .truncate = fs_truncate,
    .lock = fs_lock,
    .is_direct = fs_is_direct,
    .align = fs_align,
};

/* --- 4. The end of a life --------------------------------------------------------------------- */

void
sim_handles_clear(struct sim_world *world)
{
    while (world->handles != NULL) {
        struct sim_handle *handle = world->handles;

        world->handles = handle->next;
        free(handle);
    }
    while (world->dirs != NULL) {
        struct fs_dir *dir = world->dirs;

        world->dirs = dir->next;
        free(dir);
    }
}

uint64_t
sim_handle_count(const struct sim_world *world)
{
    uint64_t count = 0;

    for (const struct sim_handle *each = world->handles; each != NULL; each = each->next)
        count++;
    return count;
}

uint64_t
sim_dir_count(const struct sim_world *world)
{
    uint64_t count = 0;

    for (const struct fs_dir *each = world->dirs; each != NULL; each = each->next)
        count++;
    return count;
}
