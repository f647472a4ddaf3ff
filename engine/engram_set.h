/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_set.h - the Engram tables of a store: which are in use, their files, who reads them.
 *
 * Threads   any. A name is in use by any number of open tables, or by one import or drop.
 */
#ifndef KVT_ENGINE_ENGRAM_SET_H
#define KVT_ENGINE_ENGRAM_SET_H

#include <pthread.h>

#include "engram_cache.h"
#include "engram_cache_device.h"
#include "engram_file.h"
#include "engram_internal.h"
#include "engram_pin.h"
#include "store_internal.h"

enum {
    ENGRAM_CHUNK_PAGES = 256, /* Read or written at a time by who is in no hurry. */
    ENGRAM_CHUNK_BYTES = ENGRAM_CHUNK_PAGES * PAGE_BYTES,
    ENGRAM_FILE_NAME_BYTES = ENGRAM_NAME_BYTES_MAX + 12,
};

#define ENGRAM_ENDING ".engram"         /* A table's file: its name and this. */
#define ENGRAM_ENDING_NEW ".engram.new" /* While it is imported. */

struct engram_reader; /* engram_reader.h */

/* Somebody uses a name. */
struct engram_use {
    struct engram_use *next;
    char name[ENGRAM_NAME_BYTES_MAX + 1];
    bool is_alone; /* Nobody else may. */
};

struct kvt_engram {
    struct kvt_store *store;
    struct kvt_engram *next; /* Guarded by the set's lock. */
    struct engram_use use;
    struct engram_head head; /* Constant, as what follows. */
    struct fs_file *file;    /* NULL: it is shared by another process, and has no name in use. */
    struct engram_pin pin;
    /* (F4) Released whole; acquired by the reader. NULL: there is none. */
    struct engram_cache *_Atomic cache;
    struct engram_cache_device *_Atomic device_caches[POLICY_DEVICES_MAX];
    _Atomic uint32_t fetch_count; /* Targets that have not been freed. */
};

struct engram_set {
    /* Of two imports one asks for room at a time, and no other gives its table the name meanwhile.
     * Taken before the others. */
    pthread_mutex_t space_lock;
    pthread_mutex_t life_lock; /* Taken before lock, never by the loop. */
    /* Guarded by life_lock: */
    struct fs_dir *dir;           /* NULL: nobody asked yet. */
    bool is_dir_sure;             /* Its name was synced in this life. */
    struct engram_reader *reader; /* NULL: no table was opened yet. Then constant. */
    pthread_mutex_t lock;         /* The loop's too: nobody calls the file system under it. */
    /* Guarded by lock: */
    struct engram_use *uses;
    struct kvt_engram *tables;
    struct kvt_engram_fetch *fetches;
    uint32_t table_count;
    uint64_t names_changed; /* In the folder, so often; 1 at first, for the lives before. */
    uint64_t names_synced;  /* What of that is durable. */
};

enum kvt_status engrams_open(struct kvt_store *store);
/* engrams_close - tables and fetches that are out are void. engrams_free - behind devices_close():
 * the rest. */
void engrams_close(struct kvt_store *store);
void engrams_free(struct kvt_store *store);
uint32_t engrams_open_count(struct kvt_store *store);
uint64_t engrams_pinned_bytes(struct kvt_store *store);

/* engram_cache_tell, engram_cache_device_tell - what the cache has counted, to the statistics.
 * engram_caches_end - they go; the reader does not use them any more. */
void engram_cache_tell(struct kvt_store *store, struct engram_cache *cache, bool was_on);
void engram_cache_device_tell(
    struct kvt_store *store, struct engram_cache_device *cache, bool was_on);
void engram_caches_end(struct kvt_engram *table);

/* --- Files ------------------------------------------------------------------------------------ */

/* engram_dir - the folder. `is_to_write`: made when missing, and sure to be there after a crash.
 * KVT_MISS. */
enum kvt_status engram_dir(struct kvt_store *store, bool is_to_write, struct fs_dir **dir_out);

/* engram_names_sync - what the folder says of a name that is in use is durable; it syncs only when
 * something of it may not be. engram_names_changed - behind each change, by who has the name alone.
 * engram_unlink - such a change. KVT_MISS. */
void engram_names_changed(struct kvt_store *store);
enum kvt_status engram_names_sync(struct kvt_store *store, struct fs_dir *dir);
enum kvt_status engram_unlink(struct kvt_store *store, struct fs_dir *dir, const char *file_name);

/* engram_use_begin - KVT_E_STATE: somebody is in the way. KVT_E_INVAL: no name. */
enum kvt_status engram_use_begin(
    struct kvt_store *store, const char *name, bool is_alone, struct engram_use *use);
void engram_use_end(struct kvt_store *store, struct engram_use *use);
/* engram_use_is_alone - whether an import or a drop has the name, `length` bytes of `name`. */
bool engram_use_is_alone(struct kvt_store *store, const char *name, size_t length);

void engram_file_name(const char *name, const char *ending, char file_name[ENGRAM_FILE_NAME_BYTES]);

/* engram_name_length - of the table's name in a file's. 0: it is no table's. */
size_t engram_name_length(const char *file_name, bool *is_new_out);

/* engram_file_open - direct where that works; `flags` as of fs_ops.open. KVT_MISS, KVT_EXISTS.
 * KVT_E_INVAL: no regular file. */
enum kvt_status engram_file_open(struct kvt_store *store, struct fs_dir *dir, const char *file_name,
    unsigned flags, struct fs_file **file_out);

/* engram_head_read - the better of both heads. KVT_E_CORRUPT, KVT_E_FORMAT. KVT_E_IO: one that
 * cannot be read may be it.
 * *is_second_out (may be NULL): which it is. */
enum kvt_status engram_head_read(struct kvt_store *store, struct fs_file *file,
    const char *file_name, struct engram_head *head_out, bool *is_second_out);

/* engram_table_add - among the open ones. Whoever is the first starts the reader. */
enum kvt_status engram_table_add(struct kvt_store *store, struct kvt_engram *table);

/* engram_pages_read - some pages as they are. KVT_E_IO: the file ends before that. */
enum kvt_status engram_pages_read(
    struct kvt_store *store, struct fs_file *file, uint32_t first, uint32_t count, uint8_t *buffer);

/* engram_buffer - memory that direct reads and writes may use; NULL, with a sentence. */
void *engram_buffer(struct kvt_store *store, size_t size);

/* Who reads all pages of a file, and what was found. */
struct engram_survey {
    struct kvt_store *store;
    struct fs_file *file;
    const struct engram_head *head;
    int (*progress)(void *context, uint64_t rows_done, uint64_t row_count);
    void *context;
    struct kvt_engram_findings findings;
    uint64_t unread_count;         /* Of the damaged pages: these could not be read. */
    enum kvt_status unread_status; /* Of the first of them, */
    struct failure unread_failure; /* and its sentence. */
};

enum kvt_status engram_survey_run(struct engram_survey *survey);

/* --- engram_reader.c, engram_fetch.c ---------------------------------------------------------- */

enum kvt_status engram_reader_open(struct kvt_store *store, struct engram_reader **reader_out);
/* engram_reader_close - what is not settled is cancelled; in flight it is waited for. Its actor
 * stays, with nothing to do, until engram_reader_free(): a mover may wake it after its last answer
 * was taken. */
void engram_reader_close(struct engram_reader *reader);
void engram_reader_free(struct engram_reader *reader);
void engram_fetch_destroy(struct kvt_engram_fetch *fetch);

#endif /* KVT_ENGINE_ENGRAM_SET_H */
