/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_pair.h - two copies of a small file, one of which is whole at any moment.
 *
 * Owns      the rule of the two copies that STORE and NAMES share: the copy that is not the current
 *           one is written and synced, and then counts, and then the other; a reader takes the
 *           intact copy with the highest sequence. A torn or failed write can only hurt the copy
 *           that does not count, and either has what was written, also for who cannot read one.
 * Not here  what the bytes mean, beyond the head that both files have: magic u32 at 0, crc u32 at 4
 *           (of everything behind it), sequence u64 at 8 (FORMAT.md sections 3.1 and 3.2).
 * Threads   the thread that calls, one at a time.
 */
#ifndef KVT_TIERS_COPY_PAIR_H
#define KVT_TIERS_COPY_PAIR_H

#include "env.h"

struct copy_format {
    const char *names[2];
    uint32_t magic;
    size_t size_min;
    size_t size_max;
    size_t length_at; /* Where the file says its own length (u32); 0: it is size_min. */
};

enum copy_state {
    COPY_ABSENT,
    COPY_DAMAGED,
    COPY_UNREADABLE, /* The disk says so, perhaps for once: it may be whole. */
    COPY_INTACT,
};

struct copy {
    enum copy_state state;
    const char *reason; /* Why it is not intact; NULL when it is. */
    uint64_t sequence;
    uint8_t *bytes; /* Owned; NULL unless intact. */
    size_t size;
};

struct copy_pair {
    const struct kvt_env *env;
    const struct copy_format *format;
    struct copy copies[2];
};

/* copy_pair_read - look at both copies. Fails only when it cannot tell: KVT_E_NOMEM, and denied
 * access (KVT_E_PERMISSION and the like). Give back with copy_pair_deinit(), which may be
 * repeated. */
enum kvt_status copy_pair_read(const struct kvt_env *env, struct fs_dir *dir,
    const struct copy_format *format, struct copy_pair *pair_out);
void copy_pair_deinit(struct copy_pair *pair);

/* copy_pair_best - the intact copy with the highest sequence; NULL when there is none. */
struct copy *copy_pair_best(struct copy_pair *pair);

/* copy_pair_reject - the meaning of an intact copy is wrong: it counts as damaged. */
void copy_pair_reject(struct copy *copy, const char *reason);

/* copy_pair_examine - calls `found` for each copy that is not intact. */
void copy_pair_examine(const struct copy_pair *pair,
    void (*found)(void *context, const char *name, const char *reason), void *context);

/* copy_pair_failure - KVT_MISS when both are absent; otherwise record what is wrong with which copy
 * and return KVT_E_IO when one cannot be read, else KVT_E_CORRUPT. For when copy_pair_best() finds
 * nothing. */
enum kvt_status copy_pair_failure(const struct copy_pair *pair, struct fs_dir *dir);

/*
 * copy_pair_write - put head fields into `bytes` and write them beside the copy whose sequence is
 * *sequence (0: there is none yet), synced with the directory, and then, with the next sequence,
 * over that copy. KVT_OK: *sequence is the last one. Otherwise the copy that *sequence names is
 * whole; but for KVT_E_NOMEM, and where a descriptor was lacking (failure_lacks_descriptor()), with
 * which nothing was written, what was written may count later. `pair` was read before: when there
 * was a copy that counts, none is intact and one cannot be read, nothing is written (KVT_E_IO).
 */
enum kvt_status copy_pair_write(
    struct copy_pair *pair, struct fs_dir *dir, uint8_t *bytes, size_t size, uint64_t *sequence);

#endif /* KVT_TIERS_COPY_PAIR_H */
