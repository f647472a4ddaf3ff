/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage.c - searches files for the beginning of a block.
 */
#include "damage.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "pattern.h"

enum {
    NEEDLE_BYTES = 64,
    BEHIND_BYTES = 200, /* The byte that is inverted, from the block's beginning on. */
    WINDOW_BYTES = 1 << 20,
};

struct search {
    uint8_t needle[NEEDLE_BYTES];
    uint8_t *window; /* WINDOW_BYTES of a file. */
    uint32_t found_count;
};

static bool
byte_invert(int fd, off_t offset)
{
    uint8_t byte = 0;

    if (pread(fd, &byte, 1, offset) != 1)
        return false;
    byte = (uint8_t)~byte;
    return pwrite(fd, &byte, 1, offset) == 1;
}

/* Looks through one window, which begins at `offset` of the file. False: an error. */
static bool
window_search(struct search *search, int fd, off_t offset, size_t size)
{
    const uint8_t *at = search->window;
    const uint8_t *end = search->window + size;

    while ((at = memmem(at, (size_t)(end - at), search->needle, NEEDLE_BYTES)) != NULL) {
        if (!byte_invert(fd, offset + (at - search->window) + BEHIND_BYTES))
            return false;
        search->found_count++;
        at += NEEDLE_BYTES;
    }
    return true;
}

/* Goes from data to data: holes of a large file cost nothing. */
static bool
descriptor_search(struct search *search, int fd)
{
    off_t offset = 0;

    for (;;) {
        ssize_t size = 0;
        off_t data = lseek(fd, offset, SEEK_DATA);

        if (data < 0)
            return errno == ENXIO;
        size = pread(fd, search->window, WINDOW_BYTES, data);
        if (size < 0 || !window_search(search, fd, data, (size_t)size))
            return false;
        if (size < WINDOW_BYTES)
            return true;
        /* One that lies across the border is seen too; two windows never share a whole one. */
        offset = data + WINDOW_BYTES - NEEDLE_BYTES + 1;
    }
}

static bool
file_search(struct search *search, const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool is_fine = fd >= 0 && descriptor_search(search, fd) && fsync(fd) == 0;

    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return is_fine;
}

static bool
directory_search(struct search *search, const char *directory)
{
    char *path = strdup(directory);
    char *const roots[] = {path, NULL};
    FTS *walk = path != NULL ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
    bool is_fine = walk != NULL;

    while (is_fine) {
        const FTSENT *entry = fts_read(walk);

        if (entry == NULL)
            break;
        if (entry->fts_info == FTS_F && entry->fts_statp->st_size >= NEEDLE_BYTES)
            is_fine = file_search(search, entry->fts_path);
    }
    if (walk != NULL)
        fts_close(walk);
    free(path);
    return is_fine;
}

bool
damage_block(const char *directory, uint64_t number, uint64_t block_bytes)
{
    struct search search = {.window = malloc(WINDOW_BYTES)};
    uint8_t *block = malloc(block_bytes);
    bool is_fine = false;

    if (block != NULL && search.window != NULL) {
        pattern_fill(number, block, block_bytes);
        memcpy(search.needle, block, NEEDLE_BYTES);
        is_fine = directory_search(&search, directory);
    }
    if (!is_fine)
        complain("cannot search %s: %s", directory, strerror(errno));
    else if (search.found_count == 0)
        complain("no file below %s holds block %llu", directory, (unsigned long long)number);
    free(search.window);
    free(block);
    return is_fine && search.found_count > 0;
}
