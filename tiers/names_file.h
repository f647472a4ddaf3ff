/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names_file.h - NAMES.a and NAMES.b: the namespaces of a store and their epochs.
 *
 * Owns      the encoding (FORMAT.md section 3.2). The two copies follow store_file.h's rule. A
 *           clear, or a new namespace, is written and synced here before anything depends on it:
 *           records of an older epoch are dead, whatever the index or a rebuild finds.
 * Threads   the thread that calls, one at a time.
 */
#ifndef KVT_TIERS_NAMES_FILE_H
#define KVT_TIERS_NAMES_FILE_H

#include "env.h"

enum {
    NAMES_COUNT_MAX = 4096,       /* And the highest id. */
    NAME_BYTES_MAX = 255,         /* Of a namespace's name, 1.. */
    DESCRIPTION_BYTES_MAX = 4096, /* Of its description, 0.. */
};

struct name_entry {
    uint32_t id;    /* 1.., never reused. */
    uint32_t epoch; /* 1.., raised by a clear. */
    uint32_t name_length;
    uint32_t description_length;
    char name[NAME_BYTES_MAX + 1];
    uint8_t description[DESCRIPTION_BYTES_MAX];
};

struct names_file {
    const struct kvt_env *env;
    uint64_t sequence;
    uint8_t uuid[16]; /* The store's. */
    uint32_t id_seen; /* The highest that a record has, when its name is not here. */
    uint32_t count;
    uint32_t capacity;
    struct name_entry *entries; /* Owned. */
};

/* names_init - empty, for store `uuid`. names_deinit - gives the memory back; may be repeated. */
void names_init(struct names_file *names, const struct kvt_env *env, const uint8_t uuid[16]);
void names_deinit(struct names_file *names);

/* names_read - into an initialised, empty struct. KVT_MISS: neither copy is there. KVT_E_CORRUPT:
 * both are damaged, or belong to another store. On failure the struct stays empty. */
enum kvt_status names_read(struct names_file *names, struct fs_dir *dir);

/* names_examine - calls `found` for each copy that is missing or damaged. */
enum kvt_status names_examine(const struct names_file *names, struct fs_dir *dir,
    void (*found)(void *context, const char *name, const char *reason), void *context);

/*
 * names_write - the next sequence to the other copy, synced (file and directory), and then the one
 * after it to this copy: whoever can read only one of them later finds all in it. On failure the
 * copy that was valid still is, or its successor; KVT_E_NOMEM, or no descriptor
 * (failure_lacks_descriptor()): nothing was written.
 */
enum kvt_status names_write(struct names_file *names, struct fs_dir *dir);

/*
 * names_find - NULL when there is none. names_add - with the next id and epoch 1; KVT_E_NOMEM,
 * KVT_E_NOSPC (no id is left), KVT_E_INVAL (a length, or the name is there); entries found before
 * may have moved. names_id_note - a record has that id: names_add() does not give it to a name that
 * is new, to whose blocks those of a name that was lost would belong.
 */
struct name_entry *names_find(struct names_file *names, const char *name);
struct name_entry *names_find_id(struct names_file *names, uint32_t id);
void names_id_note(struct names_file *names, uint32_t id);
enum kvt_status names_add(struct names_file *names, const char *name, const void *description,
    size_t description_length, struct name_entry **entry_out);

#endif /* KVT_TIERS_NAMES_FILE_H */
