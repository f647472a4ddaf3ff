/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_oracle.c - the possible outcomes of every key (crash_oracle.h).
 */
#include "crash_oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
oracle_init(struct oracle *oracle)
{
    memset(oracle, 0, sizeof(*oracle));
    for (uint32_t i = 0; i < ORACLE_KEYS; i++)
        oracle->keys[i].outcome_count = 1; /* Absent, since ever. */
}

static bool
outcome_add(struct oracle *oracle, uint64_t key, uint64_t version)
{
    if (key >= ORACLE_KEYS)
        return false;
    struct oracle_key *entry = &oracle->keys[key];
    if (entry->outcome_count == ORACLE_OUTCOMES_MAX)
        return false; /* A workload without acknowledgements proves nothing. */
    entry->outcomes[entry->outcome_count++] = (struct oracle_outcome){.version = version};
    entry->is_used = entry->is_used || version != 0;
    if (version > entry->version_last)
        entry->version_last = version;
    return true;
}

/* The last request with this outcome is acknowledged: what is older cannot come back. */
static bool
outcome_confirm(struct oracle *oracle, uint64_t key, uint64_t version)
{
    if (key >= ORACLE_KEYS)
        return false;
    struct oracle_key *entry = &oracle->keys[key];
    uint32_t at = entry->outcome_count;
    while (
        at > 0 && (entry->outcomes[at - 1].version != version || entry->outcomes[at - 1].is_left))
        at--;
    /* Late news of a version that a later request, acknowledged before, has replaced. */
    if (at == 0)
        return version != 0 && version <= entry->version_last;
    entry->outcome_count -= at - 1;
    memmove(entry->outcomes, &entry->outcomes[at - 1],
        entry->outcome_count * sizeof(entry->outcomes[0]));
    oracle->acknowledged_count++;
    return true;
}

static bool
oracle_left(struct oracle *oracle, uint64_t key)
{
    struct oracle_key *entry = &oracle->keys[key];

    if (entry->outcomes[entry->outcome_count - 1].version == 0)
        return true;
    if (!outcome_add(oracle, key, 0))
        return false;
    entry->outcomes[entry->outcome_count - 1].is_left = true;
    return true;
}

/* Just older than the put that goes on: whose acknowledgement ends that, too. */
static bool
oracle_left_early(struct oracle_key *entry)
{
    struct oracle_outcome *last = &entry->outcomes[entry->outcome_count - 1];

    if (last->version == 0 || (entry->outcome_count > 1 && last[-1].is_left))
        return true;
    if (entry->outcome_count == ORACLE_OUTCOMES_MAX)
        return false;
    last[1] = last[0];
    last[0] = (struct oracle_outcome){.is_left = true};
    entry->outcome_count++;
    return true;
}

/* It is durable: only a request makes it missing. */
static void
oracle_back(struct oracle *oracle, struct oracle_key *entry)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < entry->outcome_count; i++) {
        if (!entry->outcomes[i].is_left)
            entry->outcomes[count++] = entry->outcomes[i];
    }
    oracle->acknowledged_count += count != entry->outcome_count;
    entry->outcome_count = count;
}

void
oracle_found(struct oracle *oracle, uint32_t key, uint64_t version)
{
    struct oracle_key *entry = &oracle->keys[key];

    entry->outcomes[0] = (struct oracle_outcome){.version = version};
    entry->outcome_count = 1;
}

const char *const departure_marks[] = {"left", "early", "back"};

bool
oracle_depart(struct oracle *oracle, uint64_t key, enum departure what)
{
    if (key >= ORACLE_KEYS)
        return false;
    if (what == DEPARTURE_BACK) {
        oracle_back(oracle, &oracle->keys[key]);
        return true;
    }
    oracle->left_count++;
    return what == DEPARTURE_LEFT ? oracle_left(oracle, key)
                                  : oracle_left_early(&oracle->keys[key]);
}

static bool
namespace_mark(struct oracle *oracle, uint64_t number, bool is_confirmed)
{
    bool is_good = number < ORACLE_NAMESPACES;

    for (uint64_t i = 0; i < ORACLE_NAMESPACE_KEYS && is_good; i++) {
        uint64_t key = number * ORACLE_NAMESPACE_KEYS + i;
        if (!oracle->keys[key].is_used)
            continue;
        is_good = is_confirmed ? outcome_confirm(oracle, key, 0) : outcome_add(oracle, key, 0);
    }
    return is_good;
}

bool
oracle_mark(struct oracle *oracle, const char *line, size_t length)
{
    char text[128], verb[32];
    uint64_t a = 0, b = 0;

    if (length >= sizeof(text))
        return false;
    memcpy(text, line, length);
    text[length] = 0;
    if (sscanf(text, "%31s %" SCNu64 " %" SCNu64, verb, &a, &b) < 1)
        return false;
    if (strcmp(verb, "put") == 0)
        return b != 0 && outcome_add(oracle, a, b);
    if (strcmp(verb, "put_ok") == 0)
        return b != 0 && outcome_confirm(oracle, a, b);
    if (strcmp(verb, "del") == 0)
        return outcome_add(oracle, a, 0);
    if (strcmp(verb, "del_ok") == 0)
        return outcome_confirm(oracle, a, 0);
    if (strcmp(verb, "clear") == 0 || strcmp(verb, "clear_ok") == 0)
        return namespace_mark(oracle, a, verb[5] != 0);
    for (int i = DEPARTURE_LEFT; i <= DEPARTURE_BACK; i++) {
        if (strcmp(verb, departure_marks[i]) == 0)
            return oracle_depart(oracle, a, (enum departure)i);
    }
    if (strcmp(verb, "look") == 0 || strcmp(verb, "looked") == 0)
        return true; /* crash_states.c reads them. */
    if (strcmp(verb, "open") != 0)
        return false;
    oracle->acknowledged_count += oracle->is_open ? 0 : 1;
    oracle->is_open = true;
    return true;
}

bool
oracle_allows(const struct oracle *oracle, uint32_t key, uint64_t version)
{
    const struct oracle_key *entry = &oracle->keys[key];

    for (uint32_t i = 0; i < entry->outcome_count; i++) {
        if (entry->outcomes[i].version == version)
            return true;
    }
    return false;
}

void
oracle_describe(const struct oracle *oracle, uint32_t key, char *target, size_t size)
{
    const struct oracle_key *entry = &oracle->keys[key];
    size_t used = 0;

    for (uint32_t i = 0; i < entry->outcome_count && used < size; i++) {
        int count = snprintf(target + used, size - used, "%s%" PRIu64, i == 0 ? "" : ", ",
            entry->outcomes[i].version);
        used += count > 0 ? (size_t)count : 0;
    }
}
