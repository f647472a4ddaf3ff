/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_host.c - pages that several processes write, and whether the maker of one is still there.
 *
 * A page is a memfd that cannot be cut. Its maker holds a lock of the file, by an open file
 * description that it gives to nobody: the kernel drops that lock with the process, however it
 * ends, and in whatever namespace it is. A forked child closes it at once (lock_host.c). The kernel
 * does not say whose such a lock is: one of anybody else who has the descriptor looks the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "env_host_internal.h"
#include "failure.h"
#include "fork_descriptor.h"
#include "streams_host.h"
#include "try.h"

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, /* The kernel may have set others too. */
    SEALS_READ_ONLY = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE,
    LOCK_TRIES = 100, /* Another thread forks meanwhile. */
    PATH_BYTES = 32,
};

static struct fs_host_file *
life_of(const struct shared_page *page)
{
    return (struct fs_host_file *)page->life;
}

/* Another open file description of the same file, locked. */
static enum kvt_status
life_begin(int descriptor, struct fs_host_file *life)
{
    enum kvt_status status = KVT_E_BUSY;

    for (int i = 0; i < LOCK_TRIES && status == KVT_E_BUSY; i++) {
        life->fork_count = lock_fork_count();
        (void)snprintf(life->path, PATH_BYTES, "/proc/self/fd/%d", descriptor);
        life->file.descriptor = streams_pass(open(life->path, O_RDWR | O_CLOEXEC));
        if (life->file.descriptor < 0)
            return failure_set(KVT_E_UNSUPPORTED, errno,
                "a page cannot be shared where %s cannot be opened", life->path);
        status = lock_take(life, 0);
        if (status != KVT_OK)
            lock_close(life);
    }
    return status;
}

static enum kvt_status
page_fill(struct shared_page *page)
{
    KVT_TRY(share_host_map(page->descriptor, PAGE_BYTES, PROT_READ | PROT_WRITE, &page->memory));
    KVT_TRY(share_host_seal(page->descriptor, SEALS));
    return life_begin(page->descriptor, life_of(page));
}

enum kvt_status
page_host_make(void *context, struct shared_page *page_out)
{
    struct fs_host_file *life = calloc(1, sizeof(*life) + PATH_BYTES);
    struct shared_page page = {.descriptor = -1};
    enum kvt_status status;

    (void)context;
    if (life == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a page that is shared");
    life->file.descriptor = -1;
    page.life = &life->file;
    status = share_host_file(PAGE_BYTES, &page.descriptor);
    if (status == KVT_OK)
        status = page_fill(&page);
    if (status == KVT_OK)
        *page_out = page;
    else
        page_host_end(context, &page);
    return status;
}

enum kvt_status
page_host_adopt(void *context, int descriptor, struct shared_page *page_out)
{
    int seals = fcntl(descriptor, F_GET_SEALS);
    struct shared_page page = {0};
    struct stat about;
    enum kvt_status status;

    (void)context;
    if (seals < 0 || (seals & SEALS) != SEALS || (seals & SEALS_READ_ONLY) != 0 ||
        fstat(descriptor, &about) != 0 || about.st_size != PAGE_BYTES ||
        !share_host_is_whole(&about))
        return failure_set(
            KVT_E_INVAL, 0, "descriptor %d is of no page that is shared", descriptor);
    KVT_TRY(share_host_duplicate(descriptor, &page.descriptor));
    status = share_host_map(page.descriptor, PAGE_BYTES, PROT_READ | PROT_WRITE, &page.memory);
    if (status == KVT_OK)
        *page_out = page;
    else
        share_host_close(page.descriptor);
    return status;
}

bool
page_host_is_made(void *context, const struct shared_page *page)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    (void)context;
    /* Who cannot be asked is there: nothing is given up for want of an answer. */
    return page->life != NULL || fcntl(page->descriptor, F_OFD_GETLK, &lock) != 0 ||
           lock.l_type != F_UNLCK;
}

void
page_host_end(void *context, struct shared_page *page)
{
    (void)context;
    if (page->life != NULL)
        lock_close(life_of(page));
    free(page->life);
    if (page->memory != NULL)
        (void)munmap(page->memory, PAGE_BYTES);
    if (page->descriptor >= 0)
        share_host_close(page->descriptor);
}
