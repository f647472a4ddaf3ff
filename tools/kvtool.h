/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool.h - what kvtool's commands share: their entry points, opening a closed store, and the
 * spelling of keys.
 *
 * A key is written `namespace/hex` or `namespace/"text"`, with `@component` behind it when the
 * component is not 0. In text, \" \\ and \xHH stand for a quote, a backslash and any byte. A name
 * of a namespace may itself have slashes: the key begins behind the last one, or at the first /".
 */
#ifndef KVTOOL_H
#define KVTOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "arguments.h"
#include "kvtier/kvtier.h"

extern const struct command_line kvtool_ls_line;
extern const struct command_line kvtool_stat_line;
extern const struct command_line kvtool_ns_line;
extern const struct command_line kvtool_leases_line;
extern const struct command_line kvtool_top_line;
extern const struct command_line kvtool_get_line;
extern const struct command_line kvtool_put_line;
extern const struct command_line kvtool_rm_line;
extern const struct command_line kvtool_export_line;
extern const struct command_line kvtool_import_line;
extern const struct command_line kvtool_engram_line;
extern const struct command_line kvtool_options_line;
extern const struct command_line kvtool_caps_line;
extern const struct command_line kvtool_verify_line;
extern const struct command_line kvtool_why_line;
extern const struct command_line kvtool_scrub_line;
extern const struct command_line kvtool_check_line;
extern const struct command_line kvtool_dump_line;

int kvtool_ls(int argc, char **argv);
int kvtool_stat(int argc, char **argv);
int kvtool_ns(int argc, char **argv);
int kvtool_leases(int argc, char **argv);
int kvtool_top(int argc, char **argv);
int kvtool_get(int argc, char **argv);
int kvtool_put(int argc, char **argv);
int kvtool_export(int argc, char **argv);
int kvtool_import(int argc, char **argv);
int kvtool_rm(int argc, char **argv);
int kvtool_engram(int argc, char **argv);
int kvtool_options(int argc, char **argv);
int kvtool_caps(int argc, char **argv);
int kvtool_verify(int argc, char **argv);
int kvtool_why(int argc, char **argv);
int kvtool_scrub(int argc, char **argv);
int kvtool_check(int argc, char **argv);
int kvtool_dump(int argc, char **argv);

enum {
    NAMESPACE_NAME_MAX = 255
};

/* A key from the command line. `key.bytes` points into `bytes`; spelled_key_free() frees them. */
struct spelled_key {
    char namespace_name[NAMESPACE_NAME_MAX + 1];
    uint8_t *bytes;
    struct kvt_key key;
};

/* spelled_key_read - false, with a sentence and nothing to free, when `text` is no key. */
bool spelled_key_read(struct spelled_key *key_out, const char *text);
void spelled_key_free(struct spelled_key *key);

/* spelled_key_text - the spelling of a stored key, as a new string; NULL without memory. The hash
 * of a key above 64 bytes is shown as `hash:hex`, which spelled_key_read() refuses. */
char *spelled_key_text(const char *namespace_name, const struct kvt_scan_entry *entry);

/* bytes_hex - lower case, as a new string; NULL without memory. */
char *bytes_hex(const uint8_t *bytes, size_t size);

/* How much HOST memory a command takes: enough to stage what it moves. */
enum {
    KVTOOL_HOST_BYTES = 64 << 20
};

/* store_open_to_read - NULL, with a sentence, when it cannot be. Changes nothing on disk. */
kvt_store *store_open_to_read(const char *path);

/* store_open_to_write - as above, but a store that is there is opened with `options`, and one that
 * is not is made with `options_new`; NULL: it is refused. The warnings of one that is there go to
 * stderr. */
kvt_store *store_open_to_write(
    const char *path, const struct kvt_options *options, const struct kvt_options *options_new);

/* new_capacity_read - what --nvme says (NULL: the default, 0) of a store that is to be made. False,
 * with a sentence: it is no size. */
bool new_capacity_read(const char *text, uint64_t *bytes_out);

/* new_options_set - the geometry of a store that is to be made, with what its capacity (0: the
 * default) suggests for it: a block is as large as this content needs, when there is room for
 * blocks of that size. */
void new_options_set(struct kvt_options *options, uint64_t nvme_bytes, uint64_t length);

/* store_is_missing - a put or import would make it. */
bool store_is_missing(const char *path);

/* store_room_bytes - what the store holds before it reclaims (docs/operations.md, 2): all but the
 * segments that are kept free. */
uint64_t store_room_bytes(const struct kvt_options *made);

/* store_is_whole - the open found all blocks that the index knows; else a sentence, and false. */
bool store_is_whole(kvt_store *store, const char *path);

/* store_close - closes, or complains. False: the last writes failed. NULL does nothing. */
bool store_close(kvt_store *store, const char *path);

/* namespace_find - KVT_MISS, without a sentence, when the store has no such namespace. */
enum kvt_status namespace_find(kvt_store *store, const char *name, struct kvt_namespace_info *out);

/* namespace_complain - "there is no namespace `name` in `path`". */
void namespace_complain(const char *name, const char *path);

/* text_print - to a table: control characters as '?', then spaces up to `width`. */
void text_print(FILE *out, const char *text, int width);

/* tiers_text - "host,nvme", or "-". Static. */
const char *tiers_text(uint8_t tiers);

#endif /* KVTOOL_H */
