/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env_host_internal.h - what the files of the real world (env_host.c, sched_host.c, fs_host.c,
 * lock_host.c, map_host.c, board_host.c, share_host.c, page_host.c) show each other.
 */
#ifndef KVT_BASE_ENV_HOST_INTERNAL_H
#define KVT_BASE_ENV_HOST_INTERNAL_H

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "env.h"

/* Since Linux 5.1; an older C library does not name it. */
#ifndef F_SEAL_FUTURE_WRITE
#    define F_SEAL_FUTURE_WRITE 0x0010
#endif

extern const struct sched_ops sched_host_ops;
extern const struct fs_ops fs_host_ops;
extern const struct board_ops board_host_ops;

/* share_host.c: what stands in struct memory_ops. */
enum kvt_status share_host_make(void *context, size_t size, void **memory_out, int *descriptor_out);
enum kvt_status share_host_adopt(
    void *context, int descriptor, void **memory_out, size_t *size_out, int *descriptor_out);
void share_host_end(void *context, void *memory, size_t size, int descriptor);
/* A file of memory of that size, with all its pages; another descriptor of one; the end of both,
 * neither of which a forked child has; seals of it; its memory, of which that has none either;
 * whether a file that others made has all its pages. */
enum kvt_status share_host_file(size_t size, int *descriptor_out);
enum kvt_status share_host_duplicate(int descriptor, int *descriptor_out);
void share_host_close(int descriptor);
enum kvt_status share_host_seal(int descriptor, int seals);
enum kvt_status share_host_map(int descriptor, size_t size, int protection, void **memory_out);
bool share_host_is_whole(const struct stat *about);

/* page_host.c: what stands there too. */
enum kvt_status page_host_make(void *context, struct shared_page *page_out);
enum kvt_status page_host_adopt(void *context, int descriptor, struct shared_page *page_out);
bool page_host_is_made(void *context, const struct shared_page *page);
void page_host_end(void *context, struct shared_page *page);

enum {
    NS_PER_S = 1000000000,
};

/* A file of the real world. */
struct fs_host_file {
    struct fs_file file; /* First: the vtable's functions get a pointer to it. */
    bool is_direct;
    uint32_t align;
    uint64_t fork_count;               /* lock_fork_count() before it was opened. */
    struct fs_host_file *locked_next;  /* lock_host.c: the list of locked files. */
    struct fs_host_file *locked_prior; /* lock_host.c; undefined unless is_locked. */
    bool is_locked;                    /* On that list. */
    char path[];                       /* For sentences. */
};

/* lock_fork_count - forks of this process so far; read it before opening what may be locked. */
uint64_t lock_fork_count(void);

/*
 * lock_take - make this process the owner of an open file, until lock_close().
 *
 * KVT_E_LOCKED: somebody else is, and still was after `timeout_ns`. KVT_E_BUSY: the process forked
 * between opening the file and now, so the child shares the description and would keep the lock;
 * close, open and try again. KVT_E_UNSUPPORTED: there are no locks on that file system.
 */
enum kvt_status lock_take(struct fs_host_file *file, uint64_t timeout_ns);

/* lock_close - close the descriptor, and give up the lock if there is one. */
void lock_close(struct fs_host_file *file);

/* map_host.c: what stands in struct fs_ops; and how it asks a kernel that is older than 5.14: 0, or
 * EFAULT. */
enum kvt_status map_host_make(struct fs_file *file, uint64_t size, void **map_out);
void map_host_end(void *map, uint64_t size);
enum kvt_status map_host_prove(struct fs_file *file, void *map, uint64_t offset, uint64_t size);
int map_host_peek(void *map, uint64_t size);

/* network_host.c: the kind of network file system with this magic number; NULL: it is none. */
const char *fs_network_name(uint32_t magic);

/* fs_space_bytes - what statvfs() says of a file system's blocks; UINT64_MAX: it does not say. */
uint64_t fs_space_bytes(uint64_t block_count, uint64_t free_count, uint64_t block_bytes);

static inline uint64_t
clock_read_ns(clockid_t clock)
{
    struct timespec time = {0};

    (void)clock_gettime(clock, &time); /* Cannot fail for the clocks that Linux always has. */
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

#endif /* KVT_BASE_ENV_HOST_INTERNAL_H */
