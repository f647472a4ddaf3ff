/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_kit.h - small stores in temporary directories, for tests that use the public interface: one
 * block at a time, waited for, with payloads that follow from key and version (payload.h).
 */
#ifndef KVT_TESTS_STORE_KIT_H
#define KVT_TESTS_STORE_KIT_H

#include "kvtier/kvtier.h"
#include "payload.h"

enum {
    KIT_BLOCK_BYTES_MAX = 65536,
    KIT_PATH_BYTES = 256,
};

/* kit_dir_make - a fresh directory in /dev/shm (or KVT_TEST_TMP). kit_dir_remove - all of it. */
void kit_dir_make(char path_out[KIT_PATH_BYTES]);
void kit_dir_remove(const char *path);

/* kit_dir_copy - `target`, which must not be there, as a copy of `source`. */
void kit_dir_copy(const char *source, const char *target);

/* kit_options - 4 MiB HOST, 8 segments of 1 MiB, blocks up to 64 KiB, one worker. */
struct kvt_options kit_options(void);

/* kit_put - a block of `key` with this version; the outcome of stage 2 (SYNC, RELAXED) or 1. */
enum kvt_status kit_put(kvt_store *store, kvt_namespace ns, uint64_t key, uint64_t version,
    uint64_t length, enum kvt_durability durability);

/* kit_get - KVT_OK and the version that was found, KVT_MISS, an error, or KVT_E_CORRUPT when the
 * store gave bytes that are not a whole payload of this key. */
enum kvt_status kit_get(kvt_store *store, kvt_namespace ns, uint64_t key, uint64_t *version_out);

/* kit_delete - the outcome of stage 2. */
enum kvt_status kit_delete(kvt_store *store, kvt_namespace ns, uint64_t key);

/* kit_result - waits for this stage of a ticket of one block, frees it; what came of it. */
struct kvt_result kit_result(kvt_ticket *ticket, uint32_t stage);

/* kit_file_read - how many bytes the file has, up to `size`; 0: there is none. kit_file_write - the
 * file has these bytes and no others. kit_byte_damage - one bit of that byte is another. */
size_t kit_file_read(const char *path, void *target, size_t size);
void kit_file_write(const char *path, const void *source, size_t size);
void kit_byte_damage(const char *path, long offset);

struct kvt_stats kit_stats(kvt_store *store);

/* kit_entry - the number of the key's entry in the map; ENTRY_NONE. */
uint32_t kit_entry(const kvt_store *store, kvt_namespace ns, uint64_t key);

/* kit_audit - what the store counts is what there is (store_audit.h), once it is at rest; the test
 * holds nothing of it. */
void kit_audit(kvt_store *store);

/* kit_works - an open store that takes a block, gives it back, and is closed in order. */
void kit_works(kvt_store *store);

/* refused - the call was refused with this status and a sentence with this word in it. */
#define refused(call, wanted, word) kit_refused((call), (wanted), (word), __LINE__)
void kit_refused(enum kvt_status got, enum kvt_status wanted, const char *word, int line);

#endif /* KVT_TESTS_STORE_KIT_H */
