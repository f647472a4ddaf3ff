/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_acks.c - the blocks that a store called durable: written before a kill, read after.
 *
 * One line a block: its key in hex and a newline. A process that is killed while it writes leaves
 * at most one line without its newline.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "replay.h"

static void
line_print(char line[ACK_LINE_BYTES], uint64_t number)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t key[PATTERN_KEY_BYTES];

    pattern_key(number, key);
    for (size_t i = 0; i < PATTERN_KEY_BYTES; i++) {
        line[i * 2] = digits[key[i] >> 4];
        line[i * 2 + 1] = digits[key[i] & 15];
    }
    line[ACK_LINE_BYTES - 1] = '\n';
}

bool
acks_write(int fd, const uint64_t *numbers, uint32_t count)
{
    char lines[FLIGHT_BLOCKS_MAX][ACK_LINE_BYTES];
    const char *at = lines[0];
    size_t left = (size_t)count * ACK_LINE_BYTES;

    for (uint32_t i = 0; i < count; i++)
        line_print(lines[i], numbers[i]);
    while (left > 0) {
        ssize_t written = write(fd, at, left);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            complain("the acknowledgements cannot be written: %s", strerror(errno));
            return false;
        }
        at += written;
        left -= (size_t)written;
    }
    return true;
}

/* Of one round of the scan, those of the replay that are on NVMe. */
static uint32_t
shown_pick(const struct flights *flights, const struct kvt_scan_entry *entries, uint32_t count,
    uint64_t *numbers_out)
{
    uint32_t picked = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (entries[i].ns.id == flights->ns.id && (entries[i].tiers & KVT_TIER_NVME) != 0 &&
            entries[i].key_length == PATTERN_KEY_BYTES && entries[i].component == 0 &&
            pattern_key_number(entries[i].key, &numbers_out[picked]))
            picked++;
    }
    return picked;
}

bool
acks_write_shown(struct flights *flights)
{
    struct kvt_scan_entry entries[FLIGHT_BLOCKS_MAX];
    uint64_t numbers[FLIGHT_BLOCKS_MAX];
    uint64_t cursor = 0;
    uint32_t count = 0;
    enum kvt_status status = KVT_OK;

    while ((status = kvt_scan(flights->store, &cursor, entries, FLIGHT_BLOCKS_MAX, &count)) ==
           KVT_OK) {
        uint32_t picked = shown_pick(flights, entries, count, numbers);

        flights->totals->shown_count += picked;
        if (!acks_write(flights->acks_fd, numbers, picked))
            return false;
    }
    if (status == KVT_MISS)
        return true;
    complain_status(status, "cannot scan the store");
    return false;
}

/* The number whose line this is. */
static bool
line_read(const char line[ACK_LINE_BYTES], uint64_t *number_out)
{
    uint8_t key[PATTERN_KEY_BYTES];

    for (size_t i = 0; i < PATTERN_KEY_BYTES; i++) {
        unsigned int byte = 0;

        if (sscanf(line + i * 2, "%2x", &byte) != 1)
            return false;
        key[i] = (uint8_t)byte;
    }
    return line[ACK_LINE_BYTES - 1] == '\n' && pattern_key_number(key, number_out);
}

static int
number_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

static uint64_t
duplicates_drop(uint64_t *numbers, uint64_t count)
{
    uint64_t kept = 0;

    qsort(numbers, count, sizeof(*numbers), number_compare);
    for (uint64_t i = 0; i < count; i++) {
        if (i == 0 || numbers[i] != numbers[i - 1])
            numbers[kept++] = numbers[i];
    }
    return kept;
}

/* Reads all lines. False: complained, *numbers may hold memory. */
static bool
lines_read(FILE *in, const char *path, uint64_t **numbers, uint64_t *count)
{
    char line[ACK_LINE_BYTES];
    uint64_t room = 0;

    while (fread(line, 1, ACK_LINE_BYTES, in) == ACK_LINE_BYTES) {
        if (*count == room) {
            uint64_t *larger = NULL;

            room = room == 0 ? 65536 : room * 2;
            larger = realloc(*numbers, room * sizeof(*larger));
            if (larger == NULL) {
                complain("there is no memory for the acknowledgements of %s", path);
                return false;
            }
            *numbers = larger;
        }
        if (!line_read(line, &(*numbers)[*count])) {
            complain(
                "%s, line %llu: this is no acknowledged key", path, (unsigned long long)*count + 1);
            return false;
        }
        (*count)++;
    }
    if (ferror(in) == 0)
        return true;
    complain("cannot read %s: %s", path, strerror(errno));
    return false;
}

bool
acks_read(const char *path, uint64_t **numbers_out, uint64_t *count_out)
{
    FILE *in = fopen(path, "rbe");
    uint64_t *numbers = NULL;
    uint64_t count = 0;
    bool is_fine = false;

    if (in == NULL) {
        complain("cannot read %s: %s", path, strerror(errno));
        return false;
    }
    is_fine = lines_read(in, path, &numbers, &count);
    fclose(in);
    if (is_fine && count == 0) {
        complain("%s has no acknowledged key", path);
        is_fine = false;
    }
    if (!is_fine) {
        free(numbers);
        return false;
    }
    *count_out = duplicates_drop(numbers, count);
    *numbers_out = numbers;
    return true;
}
