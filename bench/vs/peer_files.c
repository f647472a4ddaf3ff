/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_files.c - one file for each block, in 256 directories, as many offloading connectors do.
 *
 * A durable put makes the file, writes it and calls fsync(); a get opens it and reads it into the
 * caller's memory. A caller takes the files of its batch one behind the other. There are two peers:
 * one that reads and writes by way of the page cache, as most connectors do, and one with O_DIRECT.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "pattern.h"
#include "peer.h"

enum {
    FOLDER_COUNT = 256,
    PATH_BYTES = 64
};

struct files_state {
    int folder_fd;
    int flags; /* O_DIRECT or none, of every open. */
    uint64_t block_bytes;
    uint64_t block_count;
};

static void
file_path(uint64_t number, char path_out[PATH_BYTES])
{
    uint64_t mixed = pattern_mix(number);

    snprintf(path_out, PATH_BYTES, "%02x/%016" PRIx64, (unsigned)(mixed % FOLDER_COUNT), number);
}

static void *
files_open(const struct peer_place *place, int flags)
{
    struct files_state *state = calloc(1, sizeof(*state));

    if (state == NULL) {
        complain("there is no memory");
        return NULL;
    }
    state->flags = flags;
    state->block_bytes = place->block_bytes;
    state->block_count = place->block_count;
    state->folder_fd = open(place->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; state->folder_fd >= 0 && i < FOLDER_COUNT; i++) {
        char name[8];

        snprintf(name, sizeof(name), "%02x", i);
        if (mkdirat(state->folder_fd, name, 0700) != 0 && errno != EEXIST) {
            close(state->folder_fd);
            state->folder_fd = -1;
        }
    }
    if (state->folder_fd >= 0)
        return state;
    complain("cannot make the folders of %s: %s", place->directory, strerror(errno));
    free(state);
    return NULL;
}

static void *
files_direct_open(const struct peer_place *place)
{
    return files_open(place, O_DIRECT);
}

static void *
files_cached_open(const struct peer_place *place)
{
    return files_open(place, 0);
}

static bool
block_write(int fd, const uint8_t *bytes, uint64_t size)
{
    for (uint64_t done = 0; done < size;) {
        ssize_t count = pwrite(fd, bytes + done, size - done, (off_t)done);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        done += (uint64_t)count;
    }
    return fsync(fd) == 0;
}

static bool
files_put(void *opened, uint32_t caller, const struct peer_block *blocks, uint32_t count)
{
    const struct files_state *state = opened;
    char path[PATH_BYTES];

    (void)caller;
    for (uint32_t i = 0; i < count; i++) {
        bool is_fine = false;
        int fd = -1;

        file_path(blocks[i].number, path);
        fd = openat(
            state->folder_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | state->flags, 0600);
        if (fd >= 0) {
            is_fine = block_write(fd, blocks[i].bytes, state->block_bytes);
            is_fine = close(fd) == 0 && is_fine;
        }
        if (!is_fine) {
            complain("cannot write the file %s: %s", path, strerror(errno));
            return false;
        }
    }
    return true;
}

/* False: there is no such file, or it is shorter, or cannot be read. */
static bool
block_read(int fd, uint8_t *bytes, uint64_t size)
{
    for (uint64_t done = 0; done < size;) {
        ssize_t count = pread(fd, bytes + done, size - done, (off_t)done);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        done += (uint64_t)count;
    }
    return true;
}

static bool
files_get(void *opened, uint32_t caller, struct peer_block *blocks, uint32_t count)
{
    const struct files_state *state = opened;
    char path[PATH_BYTES];

    (void)caller;
    for (uint32_t i = 0; i < count; i++) {
        int fd = -1;

        file_path(blocks[i].number, path);
        fd = openat(state->folder_fd, path, O_RDONLY | O_CLOEXEC | state->flags);
        blocks[i].is_refused = fd < 0 || !block_read(fd, blocks[i].bytes, state->block_bytes);
        if (fd >= 0)
            close(fd);
    }
    return true;
}

/* Every file leaves the page cache: it is clean since its fsync(). */
static bool
files_forget(void *opened)
{
    const struct files_state *state = opened;
    char path[PATH_BYTES];
    int error = 0;

    for (uint64_t number = 0; number < state->block_count && error == 0; number++) {
        int fd;

        file_path(number, path);
        fd = openat(state->folder_fd, path, O_RDONLY | O_CLOEXEC);
        error = fd < 0 ? errno : posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (fd >= 0)
            close(fd);
    }
    if (error != 0)
        complain("cannot drop the file %s from the page cache: %s", path, strerror(error));
    return error == 0;
}

static bool
files_close(void *opened)
{
    struct files_state *state = opened;

    close(state->folder_fd);
    free(state);
    return true;
}

static void
files_describe(struct peer_facts *facts_out, const char *way)
{
    snprintf(facts_out->version, sizeof(facts_out->version), "none");
    snprintf(facts_out->settings, sizeof(facts_out->settings),
        "one file for each block in 256 folders, %s, fsync of each file, opened for each get, no "
        "checksums, into the caller's huge pages",
        way);
}

static void
files_direct_describe(const struct peer_place *place, struct peer_facts *facts_out)
{
    (void)place;
    files_describe(facts_out, "O_DIRECT");
}

static void
files_cached_describe(const struct peer_place *place, struct peer_facts *facts_out)
{
    (void)place;
    files_describe(facts_out, "by way of the page cache, which is dropped before each lap");
}

const struct peer peer_files = {
    .name = "files",
    .put_callers = {1, 8},
    .get_callers = {1, 8},
    .open = files_direct_open,
    .put_batch = files_put,
    .get_batch = files_get,
    .close = files_close,
    .describe = files_direct_describe,
};

const struct peer peer_files_cached = {
    .name = "files_cached",
    .put_callers = {1, 8},
    .get_callers = {1, 8},
    .open = files_cached_open,
    .put_batch = files_put,
    .get_batch = files_get,
    .forget = files_forget,
    .close = files_close,
    .describe = files_cached_describe,
};
