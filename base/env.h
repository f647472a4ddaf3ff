/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - everything a store may ask of the world: time, randomness, memory, threads, files and
 * asynchronous transfers, each behind a small vtable.
 *
 * Production (env_host.c) has the real ones; tests/support/sim_world.h has a virtual clock, a
 * seeded scheduler and faulty files. Code above base/ reaches the world only through this header.
 * A store keeps a copy of the struct; the contexts must outlive it.
 *
 * Every function that returns a status has recorded a sentence (failure.h) when it fails.
 */
#ifndef KVT_BASE_ENV_H
#define KVT_BASE_ENV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "kvtier/status.h"

/* --- 1. Time and randomness ------------------------------------------------------------------- */

struct clock_ops {
    uint64_t (*now_ns)(void *context);  /* Monotonic. */
    uint64_t (*wall_ns)(void *context); /* Since 1970, for people only: it may jump. */
};

struct random_ops {
    void (*fill)(void *context, void *target, size_t size); /* Unpredictable in production. */
};

/* --- 2. Memory -------------------------------------------------------------------------------- */

struct fs_file;

/* A page of 4096 bytes that its maker and other processes write. */
struct shared_page {
    void *memory;
    int descriptor;       /* Of its file. */
    struct fs_file *life; /* The maker's alone: NULL where it was adopted. */
};

struct memory_ops {
    /* Zeroed; NULL when there is none (the caller reports KVT_E_NOMEM). size > 0. */
    void *(*take)(void *context, size_t size);
    /* `memory` may be NULL. `size` is what was taken. */
    void (*put)(void *context, void *memory, size_t size);
    /*
     * Whole pages, zeroed, not inherited by a forked child; from 2 MiB on whole 2 MiB pages,
     * aligned to 2 MiB, huge where the system allows. For arenas, large tables and io.
     */
    void *(*map)(void *context, size_t size);
    void (*unmap)(void *context, void *memory, size_t size);
    /* One page that reads as zero in a forked child (MADV_WIPEONFORK); put back with unmap and
     * PAGE_BYTES. NULL when there is no memory. */
    void *(*fork_page)(void *context);
    /*
     * Memory that other processes may map to read, and nobody can cut: whole pages of 4096 bytes,
     * zeroed, aligned to 2 MiB from that size on, and all there: none is looked for when it is
     * touched. With the descriptor of its file, closed by exec. adopt: map what another process
     * shares; only to read. A forked child has none of both, and keeps none of it alive.
     * KVT_E_INVAL: the descriptor is of nothing like that. NULL, all three: there is no such
     * memory. KVT_E_UNSUPPORTED, KVT_E_NOMEM, KVT_E_IO.
     */
    enum kvt_status (*share)(void *context, size_t size, void **memory_out, int *descriptor_out);
    enum kvt_status (*share_adopt)(
        void *context, int descriptor, void **memory_out, size_t *size_out, int *descriptor_out);
    void (*share_end)(void *context, void *memory, size_t size, int descriptor);
    /*
     * A page that several processes write, zeroed, which nobody can cut. adopt: of another's, from
     * its descriptor, which is only borrowed; KVT_E_INVAL: it is of nothing like that. is_made:
     * false when its maker has ended it, or is gone, however it went; and nobody else who has the
     * descriptor locks the file. end: of both; with `memory` NULL, what was mapped there stays. A
     * forked child has none of it and keeps none of it alive. NULL where share is.
     */
    enum kvt_status (*page_make)(void *context, struct shared_page *page_out);
    enum kvt_status (*page_adopt)(void *context, int descriptor, struct shared_page *page_out);
    bool (*page_is_made)(void *context, const struct shared_page *page);
    void (*page_end)(void *context, struct shared_page *page);
};

/* --- 3. Actors: what production runs on threads and the simulation steps one by one ----------- */

/*
 * A gate is a word on which a thread may wait until its value changes. gate_post() raises it.
 * The pattern: read the value, test the condition, and if it does not hold wait with that value.
 */
struct gate {
    _Atomic uint32_t value;
    _Atomic uint32_t waiters;
};

/*
 * An actor never blocks in `step`. It returns true when it did something (and wants to be called
 * again at once) and writes the time at which it must be called at the latest (UINT64_MAX: only
 * after a wake). `park` and `wake` are NULL unless the actor waits for something besides its own
 * gate (the io actor waits for the kernel): then `park` blocks until that, a wake, or the time.
 */
struct actor {
    const char *name; /* At most 15 characters: the thread's name. */
    bool (*step)(void *context, uint64_t now_ns, uint64_t *next_ns_out);
    void (*park)(void *context, uint64_t now_ns, uint64_t until_ns);
    void (*wake)(void *context);
    void *context;
};

struct task; /* A started actor. */

struct sched_ops {
    enum kvt_status (*start)(void *context, const struct actor *actor, struct task **task_out);
    void (*wake)(void *context, struct task *task); /* Any thread; never blocks; never lost. */
    void (*stop)(void *context, struct task *task); /* No step runs after it returns. Frees. */
    /* Wait until gate->value != seen or the time has come. May return early. */
    void (*gate_wait)(void *context, struct gate *gate, uint32_t seen, uint64_t until_ns);
    void (*gate_post)(void *context, struct gate *gate); /* Any thread. */
    /* Signals: what a program can put into its own poll loop (eventfd). A simulated one is a
     * negative number that does nothing. open: *signal_out < 0 only in a simulation. */
    enum kvt_status (*signal_open)(void *context, int *signal_out);
    void (*signal_post)(void *context, int signal);
    void (*signal_clear)(void *context, int signal);
    void (*signal_close)(void *context, int signal);
};

/* --- 4. Files: synchronous, small, on any thread ---------------------------------------------- */

struct fs_dir; /* An open directory; names below it contain no '/' and no "..". */

/* An open file: the first member of what each implementation keeps for it. */
struct fs_file {
    int descriptor; /* For the io engines and LMDB; -1 in a simulated world. */
};

enum fs_open_flags {
    FS_READ_ONLY = 1,
    FS_CREATE = 2,    /* Create when missing, mode 0600. */
    FS_EXCLUSIVE = 4, /* With FS_CREATE: KVT_EXISTS when it is there. */
    FS_DIRECT = 8,    /* Bypass the page cache where the file system can; see fs_file_direct(). */
    FS_FOLLOW = 16,   /* With FS_READ_ONLY: a file that is not ours, perhaps by a link. */
};

struct fs_ops {
    /* Open a directory by path, creating the last element (mode 0700) with FS_CREATE: its name is
     * sure when its parent is synced. A path that is missing gives KVT_MISS, one that is no
     * directory KVT_E_INVAL. With FS_FOLLOW, and nothing else: one that is not ours. It need not be
     * readable, and only opens with FS_FOLLOW are made in it. */
    enum kvt_status (*dir_open)(
        void *context, const char *path, unsigned flags, struct fs_dir **dir_out);
    enum kvt_status (*dir_open_at)(
        struct fs_dir *parent, const char *name, unsigned flags, struct fs_dir **dir_out);
    void (*dir_close)(struct fs_dir *dir); /* NULL is fine. */
    enum kvt_status (*dir_sync)(struct fs_dir *dir);
    /* Of the directory that it lies in, of which the caller may have no handle. */
    enum kvt_status (*dir_sync_parent)(struct fs_dir *dir);
    const char *(*dir_path)(const struct fs_dir *dir);
    /* Calls `visit` for each name but "." and "..", until it returns false. */
    enum kvt_status (*dir_list)(
        struct fs_dir *dir, bool (*visit)(void *visitor, const char *name), void *visitor);
    /* The kind of network file system that it is on, "nfs" say; NULL: a local one, or unknown. */
    const char *(*dir_network)(const struct fs_dir *dir);
    /* Whether locks of its files are the kernel's own: they end with their description, and nobody
     * else is asked. Not so on network file systems and FUSE. */
    bool (*dir_has_locks)(const struct fs_dir *dir);
    /* Bytes that the file system still gives an ordinary user; UINT64_MAX: no bound, or unknown. */
    enum kvt_status (*dir_space)(struct fs_dir *dir, uint64_t *free_bytes_out);
    enum kvt_status (*rename)(struct fs_dir *dir, const char *from, const char *to);
    /* KVT_EXISTS: something has the new name. Where a file system cannot do that it is replaced. */
    enum kvt_status (*rename_new)(struct fs_dir *dir, const char *from, const char *to);
    enum kvt_status (*unlink)(struct fs_dir *dir, const char *name); /* Missing: KVT_MISS. */

    /* Links are not followed, but for FS_FOLLOW. Missing: KVT_MISS. */
    enum kvt_status (*open)(
        struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out);
    void (*close)(struct fs_file *file); /* NULL is fine. */
    /* Two opens of one file: what a name stands for may have been replaced in between. */
    bool (*is_same)(const struct fs_file *one, const struct fs_file *other);
    /* Reads until `size` or the end of the file; *read_out says how much. */
    enum kvt_status (*read_at)(
        struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out);
    /* All of it or an error. */
    enum kvt_status (*write_at)(
        struct fs_file *file, const void *source, size_t size, uint64_t offset);
    enum kvt_status (*sync)(struct fs_file *file);
    enum kvt_status (*size)(struct fs_file *file, uint64_t *size_out);
    enum kvt_status (*allocate)(struct fs_file *file, uint64_t offset, uint64_t size);
    enum kvt_status (*truncate)(struct fs_file *file, uint64_t size);
    /* Exclusive owner's lock (open file description lock); held elsewhere for `timeout_ns` from now
     * (0: now): KVT_E_LOCKED. Of a file that was opened with FS_READ_ONLY it is shared: nobody owns
     * the file meanwhile. In a forked child the descriptor is closed, so that the lock dies with
     * its owner; but transfers of the file that are in flight then keep it until they have ended.
     * KVT_E_UNSUPPORTED: the file system has no locks. KVT_E_BUSY: the process has forked since the
     * file was opened, and the child has it, too: open it anew. */
    enum kvt_status (*lock)(struct fs_file *file, uint64_t timeout_ns);
    bool (*is_direct)(const struct fs_file *file); /* FS_DIRECT was asked and took effect. */
    /* Alignment of memory and of offsets for direct transfers (STATX_DIOALIGN); 1 if none. */
    uint32_t (*align)(const struct fs_file *file);
    /*
     * A map of the first `size` bytes, which is only there to be proved: nobody reads through it. A
     * forked child has none. KVT_E_NOMEM. map_prove: pages of it are touched, without a signal:
     * KVT_E_IO where that would have been a SIGBUS. What read_at() could read may be such a page:
     * a fault needs all of the folio that the kernel keeps the page in, perhaps blocks beside it.
     * A kernel that cannot be asked says KVT_OK. NULL, all three: no maps of files are made.
     */
    enum kvt_status (*map)(struct fs_file *file, uint64_t size, void **map_out);
    void (*unmap)(void *map, uint64_t size); /* NULL is fine. */
    enum kvt_status (*map_prove)(struct fs_file *file, void *map, uint64_t offset, uint64_t size);
};

/* --- 5. Asynchronous transfers ---------------------------------------------------------------- */

enum io_kind {
    IO_READ,
    IO_WRITE,
    IO_SYNC, /* fdatasync; covers the writes that completed before it was submitted. */
};

enum {
    IO_PIECES_MAX = 64, /* iovec elements in one operation. */
};

/*
 * One operation of one kernel request. The operation and its iovec belong to the queue until its
 * completion was reaped. Each carries an id of the caller's, unique among those in flight.
 */
struct io_op {
    uint64_t id;
    enum io_kind kind;
    struct fs_file *file;
    uint64_t offset;
    const struct iovec *pieces; /* IO_SYNC: NULL. */
    uint32_t piece_count;
};

struct io_done {
    uint64_t id;
    int64_t result; /* Bytes moved (may be short), or minus an errno value. */
};

struct io_queue;

struct io_ops {
    const char *name; /* "uring", "threads", "sim". */
    /* At most `depth` operations will be in flight. KVT_E_UNSUPPORTED: the kernel denies it.
     * The queue belongs to the thread that makes the first submit or reap. */
    enum kvt_status (*open)(void *context, uint32_t depth, struct io_queue **queue_out);
    void (*close)(struct io_queue *queue); /* Nothing may be in flight. NULL is fine. */
    /* Memory that many operations will use (the pinned arena): a queue may register it with the
     * kernel; when it cannot it goes on without. Before the first submit. */
    void (*adopt)(struct io_queue *queue, void *memory, size_t size);
    /* Start operations; returns how many were taken (fewer when the queue is full). */
    size_t (*submit)(struct io_queue *queue, const struct io_op *const *ops, size_t count);
    /* Collect completions without blocking. */
    size_t (*reap)(struct io_queue *queue, struct io_done *done, size_t count_max);
    /* Block until something can be reaped, wake() was called since the last return, or the time. */
    void (*wait)(struct io_queue *queue, uint64_t now_ns, uint64_t until_ns);
    void (*wake)(struct io_queue *queue); /* Any thread. */
};

struct kvt_device_ops; /* Accelerators: base/device.h. */

/* --- 6. What the owner of a store shows other programs ---------------------------------------- */

/* Who shows it: enough to tell whether that process is still there. */
struct process_id {
    uint32_t pid;
    uint64_t start_time; /* When it began, in a unit of the system's: no two of one pid share it. */
    char program[64];
};

struct board;

/*
 * A board is a small file that its owner writes over and over and others read: nothing durable,
 * and nothing that is ever read back here. Writing fails silently, and whoever damages, cuts or
 * removes the file harms its readers only (a mapping would end the owner by SIGBUS).
 */
struct board_ops {
    /* A new file in the place of one that is there. `dir` must outlive the board. */
    enum kvt_status (*open)(
        void *context, struct fs_dir *dir, const char *name, struct board **board_out);
    void (*write)(struct board *board, const void *bytes, size_t size); /* At its beginning. */
    void (*close)(struct board *board); /* Removes the file. NULL is fine. */
    void (*self)(void *context, struct process_id *id_out);
    /* False: that process is gone. */
    bool (*is_alive)(void *context, const struct process_id *id);
};

/* --- 7. The world ----------------------------------------------------------------------------- */

struct kvt_env {
    const struct clock_ops *clock;
    void *clock_context;
    const struct random_ops *random;
    void *random_context;
    const struct memory_ops *memory;
    void *memory_context;
    const struct sched_ops *sched;
    void *sched_context;
    const struct fs_ops *fs;
    void *fs_context;
    const struct io_ops *io;
    void *io_context;
    const struct kvt_device_ops *device;
    void *device_context;
    const struct board_ops *board; /* NULL: nothing is shown. */
    void *board_context;
};

/* env_host - the real world, except `io` and `device`, which are set by whoever picks an io engine
 * (tiers/io) and a kind of device (tiers/device). */
void env_host(struct kvt_env *env_out);

static inline uint64_t
env_now(const struct kvt_env *env)
{
    return env->clock->now_ns(env->clock_context);
}

/* env_until - the moment `timeout_ns` from now; UINT64_MAX: never. */
static inline uint64_t
env_until(const struct kvt_env *env, uint64_t timeout_ns)
{
    uint64_t now_ns = env_now(env);

    return timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
}

static inline void *
env_take(const struct kvt_env *env, size_t size)
{
    return env->memory->take(env->memory_context, size);
}

static inline void
env_put(const struct kvt_env *env, void *memory, size_t size)
{
    env->memory->put(env->memory_context, memory, size);
}

static inline void *
env_map(const struct kvt_env *env, size_t size)
{
    return env->memory->map(env->memory_context, size);
}

static inline void
env_unmap(const struct kvt_env *env, void *memory, size_t size)
{
    env->memory->unmap(env->memory_context, memory, size);
}

static inline void
env_wake(const struct kvt_env *env, struct task *task)
{
    env->sched->wake(env->sched_context, task);
}

static inline void
gate_post(const struct kvt_env *env, struct gate *gate)
{
    env->sched->gate_post(env->sched_context, gate);
}

static inline void
gate_wait(const struct kvt_env *env, struct gate *gate, uint32_t seen, uint64_t until_ns)
{
    env->sched->gate_wait(env->sched_context, gate, seen, until_ns);
}

#endif /* KVT_BASE_ENV_H */
