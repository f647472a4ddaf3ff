/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_text.c - see engram_text.h.
 */
#include "engram_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"

enum {
    PAIRS_A_PASS = 64,
    OFTEN = 4, /* A pair that comes less is no token. */
    IDS_MIN = 4096,
    PATH_BYTES = 4096,
};

/* How often each pair comes, by {first, second}; and what it becomes. */
struct pairs {
    uint32_t *counts;
    uint16_t *becomes; /* 0: nothing. */
};

static size_t
pair_of(uint32_t first, uint32_t second)
{
    return (size_t)first * ENGRAM_TEXT_CLASSES + second;
}

static bool
file_read(const char *path, struct engram_text *text)
{
    FILE *file = fopen(path, "rb");
    bool is_read;
    int byte;

    if (file == NULL) {
        complain("cannot read %s: %s", path, strerror(errno));
        return false;
    }
    while (text->count < ENGRAM_TEXT_BYTES_MAX && (byte = getc(file)) != EOF)
        text->ids[text->count++] = (uint32_t)byte;
    is_read = ferror(file) == 0;
    if (!is_read)
        complain("cannot read %s: %s", path, strerror(errno));
    fclose(file);
    return is_read;
}

static bool
files_read(const char *paths, struct engram_text *text)
{
    while (*paths != '\0') {
        size_t length = strcspn(paths, ",");
        char path[PATH_BYTES];

        if (length == 0 || length >= sizeof(path)) {
            complain("--text: a path of %zu bytes", length);
            return false;
        }
        memcpy(path, paths, length);
        path[length] = '\0';
        if (!file_read(path, text))
            return false;
        paths += length + (paths[length] == ',');
    }
    return true;
}

/* The commonest pairs, and those that come three quarters as often, become tokens. False: no pair
 * comes often. */
static bool
pairs_choose(struct engram_text *text, struct pairs *pairs)
{
    uint32_t most = 0, chosen = 0;

    for (uint32_t i = 0; i + 1 < text->count; i++) {
        uint32_t count = ++pairs->counts[pair_of(text->ids[i], text->ids[i + 1])];

        most = count > most ? count : most;
    }
    if (most < OFTEN)
        return false;
    for (uint32_t i = 0; i + 1 < text->count && chosen < PAIRS_A_PASS; i++) {
        size_t pair = pair_of(text->ids[i], text->ids[i + 1]);

        if (pairs->becomes[pair] != 0 || pairs->counts[pair] < OFTEN ||
            pairs->counts[pair] < most - most / 4 || text->class_count == ENGRAM_TEXT_CLASSES)
            continue;
        pairs->becomes[pair] = (uint16_t)text->class_count++;
        chosen++;
    }
    return chosen > 0;
}

/* One pass: choose, replace. False: that was the last. */
static bool
text_shorten(struct engram_text *text, struct pairs *pairs)
{
    size_t size = (size_t)ENGRAM_TEXT_CLASSES * ENGRAM_TEXT_CLASSES;
    uint32_t kept = 0;

    memset(pairs->counts, 0, size * sizeof(*pairs->counts));
    memset(pairs->becomes, 0, size * sizeof(*pairs->becomes));
    if (!pairs_choose(text, pairs))
        return false;
    for (uint32_t i = 0; i < text->count; i++) {
        uint16_t becomes =
            i + 1 < text->count ? pairs->becomes[pair_of(text->ids[i], text->ids[i + 1])] : 0;

        text->ids[kept++] = becomes != 0 ? becomes : text->ids[i];
        i += becomes != 0;
    }
    text->count = kept;
    return true;
}

bool
engram_text_read(const char *paths, struct engram_text *text_out)
{
    size_t size = (size_t)ENGRAM_TEXT_CLASSES * ENGRAM_TEXT_CLASSES;
    struct pairs pairs = {.counts = calloc(size, sizeof(*pairs.counts)),
        .becomes = calloc(size, sizeof(*pairs.becomes))};
    struct engram_text text = {
        .ids = calloc(ENGRAM_TEXT_BYTES_MAX, sizeof(*text.ids)), .class_count = 256};
    bool is_fine = text.ids != NULL && pairs.counts != NULL && pairs.becomes != NULL;

    if (!is_fine)
        complain("there is no memory for text");
    is_fine = is_fine && files_read(paths, &text);
    text.byte_count = text.count;
    while (is_fine && text.class_count < ENGRAM_TEXT_CLASSES && text_shorten(&text, &pairs))
        ;
    if (is_fine && text.count < IDS_MIN) {
        complain("--text %s: %u tokens are too few, it takes %d", paths, text.count, IDS_MIN);
        is_fine = false;
    }
    free(pairs.counts);
    free(pairs.becomes);
    if (!is_fine)
        engram_text_free(&text);
    *text_out = text;
    return is_fine;
}

void
engram_text_free(struct engram_text *text)
{
    free(text->ids);
    memset(text, 0, sizeof(*text));
}
