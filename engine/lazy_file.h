/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lazy_file.h - a small file of a store that is written now and then, so that a restart does not
 * begin anew: nothing but speed or knowledge depends on it.
 *
 * Owns      the file, and the one write of it that may be under way.
 *
 * It is written each minute while there is something to write, and by the close: beside the old
 * one, which it then replaces; never synced. A file that is missing, torn or damaged is no error:
 * it is passed over. Its head is {magic u32, CRC of what is behind it u32, size of what follows
 * u32}.
 *
 * Threads   the loop; one worker while it writes; who opens and closes.
 */
#ifndef KVT_ENGINE_LAZY_FILE_H
#define KVT_ENGINE_LAZY_FILE_H

#include "env.h"

struct kvt_store;
struct lazy_file;

struct lazy_file_kind {
    const char *name;
    const char *new_name;
    uint32_t magic;
    uint32_t bytes_max; /* Of what is kept, without the head. */
    /* By the worker that writes, beside the loop; else by the loop. */
    bool is_filled_apart;
    /* What is to be kept, as at most bytes_max bytes; returns how many, 0: nothing is to be
     * written. */
    size_t (*fill)(struct kvt_store *store, uint8_t *target);
    /* What was kept, and is whole; while the store is opened. False: it is not taken. */
    bool (*take)(struct kvt_store *store, const uint8_t *source, size_t size);
};

/* lazy_file_open - and `take` what is there. NULL without memory: nothing is kept. */
struct lazy_file *lazy_file_open(struct kvt_store *store, const struct lazy_file_kind *kind);

/* The others do nothing when `file` is NULL. */
void lazy_file_step(struct lazy_file *file);
/* lazy_file_write - once more, now that the threads are stopped. */
void lazy_file_write(struct lazy_file *file);
void lazy_file_close(struct lazy_file *file);

/*
 * lazy_file_read - what is kept in `dir`, which may be another's; any. KVT_MISS: it is not there.
 * KVT_E_CORRUPT: it is not whole. KVT_E_NOMEM, KVT_E_IO. With KVT_OK the caller gives the memory
 * back with lazy_file_put(); *source_out lies in it.
 */
struct lazy_bytes {
    uint8_t *memory;
    const uint8_t *source;
    size_t size;
};
enum kvt_status lazy_file_read(const struct kvt_env *env, struct fs_dir *dir,
    const struct lazy_file_kind *kind, struct lazy_bytes *bytes_out);
void lazy_file_put(
    const struct kvt_env *env, const struct lazy_file_kind *kind, struct lazy_bytes *bytes);

#endif /* KVT_ENGINE_LAZY_FILE_H */
