/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_oracle.h - what may be found after a crash, from the marks that a workload left in the log.
 *
 * Owns      for each key the outcomes that are possible now: a version, or absent. A request adds
 *           its outcome; its acknowledgement removes every outcome that is older than it.
 *
 * Marks (key = namespace * ORACLE_NAMESPACE_KEYS + number):
 *   put KEY VERSION      put_ok KEY VERSION     a put was submitted; it is acknowledged as durable
 *   del KEY              del_ok KEY
 *   clear NAMESPACE      clear_ok NAMESPACE     all keys of the namespace
 *   open                 the store was opened: from now on every open must succeed
 *   left KEY             its block left NVMe for want of room: it may be missing, ...
 *   back KEY             ... and is durable there again
 *   early KEY            so may the one that a put replaces, without that, until that is durable
 *   look, looked         around those that were found at one time (crash_departures.h)
 */
#ifndef KVT_TESTS_CRASH_ORACLE_H
#define KVT_TESTS_CRASH_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ORACLE_NAMESPACE_KEYS = 4096,
    ORACLE_NAMESPACES = 2,
    ORACLE_KEYS = ORACLE_NAMESPACE_KEYS * ORACLE_NAMESPACES,
    ORACLE_OUTCOMES_MAX = 64,
};

/* What is told of a key besides requests (crash_departures.h); the marks of it. */
enum departure {
    DEPARTURE_LEFT,
    DEPARTURE_EARLY,
    DEPARTURE_BACK,
};

extern const char *const departure_marks[];

struct oracle_outcome {
    uint64_t version; /* 0: absent */
    bool is_left;     /* By no request, but for want of room. */
};

struct oracle_key {
    bool is_used;          /* A put named it. */
    uint64_t version_last; /* The highest that a put named. */
    uint32_t outcome_count;
    struct oracle_outcome outcomes[ORACLE_OUTCOMES_MAX];
};

struct oracle {
    uint64_t acknowledged_count; /* Rises with everything that makes the oracle stricter. */
    bool is_open;
    uint64_t left_count; /* Times that a key left, or may have left early. */
    struct oracle_key keys[ORACLE_KEYS];
};

void oracle_init(struct oracle *oracle);

/* oracle_mark - take in one line. False when it is none of the above. */
bool oracle_mark(struct oracle *oracle, const char *line, size_t length);

/* oracle_depart - take in a departure. False: there is no such key, or no room for it. */
bool oracle_depart(struct oracle *oracle, uint64_t key, enum departure what);

/* oracle_found - after a crash the key had this version (0: it was missing), and keeps it. */
void oracle_found(struct oracle *oracle, uint32_t key, uint64_t version);

/* oracle_allows - whether a lookup of `key` may give this version (0: a miss). */
bool oracle_allows(const struct oracle *oracle, uint32_t key, uint64_t version);

/* oracle_describe - the possible outcomes of a key, for people. */
void oracle_describe(const struct oracle *oracle, uint32_t key, char *target, size_t size);

#endif /* KVT_TESTS_CRASH_ORACLE_H */
