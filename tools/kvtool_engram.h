/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_engram.h - what `kvtool engram` has from its command line, and its larger verbs.
 */
#ifndef KVTOOL_ENGRAM_H
#define KVTOOL_ENGRAM_H

#include "kvtool.h"

/* What to import from where. */
struct engram_order {
    const char *path; /* Of the store. */
    const char *name;
    const char *const *files;
    uint32_t file_count;
    const char *model;        /* A built-in profile's word (v41 or demo), */
    const char *profile_path; /* or a profile as JSON. */
    const char *class_map_path;
    const char *layer;          /* Its number in the model. */
    const char *weight, *scale; /* Names of tensors; NULL: the usual ones. */
    const char *nvme;           /* Size of a new store. */
    bool is_raw, may_create, is_unread, is_json;
};

/* engram_import - exit code. */
int engram_import(const struct engram_order *order);

/* engram_profile_read - the profile of an order, its class map checked. False: complained. */
bool engram_profile_read(const struct engram_order *order, struct kvt_engram_profile *profile);

/* engram_info_print_json - one table, as an element or a member. */
struct json;
void engram_info_print_json(struct json *json, const char *key, const struct kvt_engram_info *info);

#endif /* KVTOOL_ENGRAM_H */
