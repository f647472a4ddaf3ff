/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_tensors.c - where the tensors of a safetensors file lie: its header is a JSON object behind
 * 8 bytes with its length. Nothing in it is trusted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "json_reader.h"
#include "little_endian.h"
#include "load_bench.h"

enum {
    HEADER_BYTES_MAX = 100 << 20, /* What its reference reader takes. */
    KEY_BYTES = 32,
};

/* One tensor's object; its bytes lie within the data. */
static bool
tensor_read(struct json_reader *reader, struct load_range *range)
{
    char key[KEY_BYTES];
    uint64_t begin = UINT64_MAX, end = 0;

    if (!json_enter(reader, '{'))
        return false;
    while (json_next_key(reader, key, sizeof(key))) {
        if (strcmp(key, "data_offsets") != 0) {
            json_skip(reader);
            continue;
        }
        if (!json_enter(reader, '[') || !json_next(reader) || !json_read_number(reader, &begin) ||
            !json_next(reader) || !json_read_number(reader, &end) || json_next(reader))
            return false;
    }
    if (reader->is_bad || begin > end || end > range->length)
        return false;
    range->tensor_count++;
    range->tensor_bytes += end - begin;
    return true;
}

static bool
header_read(const char *text, uint64_t size, struct load_range *range)
{
    struct json_reader reader = {.at = text, .end = text + size};
    char key[KEY_BYTES];

    if (!json_enter(&reader, '{'))
        return false;
    while (json_next_key(&reader, key, sizeof(key))) {
        if (strcmp(key, "__metadata__") == 0)
            json_skip(&reader);
        else if (!tensor_read(&reader, range))
            return false;
    }
    while (reader.at < reader.end && *reader.at == ' ') /* The padding of its writer. */
        reader.at++;
    return json_finish(&reader);
}

static bool
tensors_find(int descriptor, const char *path, struct load_range *range)
{
    uint8_t prefix[8];
    uint64_t size = 0;
    char *text = NULL;
    bool is_read = pread(descriptor, prefix, sizeof(prefix), 0) == (ssize_t)sizeof(prefix);

    if (is_read)
        size = load_u64(prefix);
    is_read = is_read && size > 0 && size <= HEADER_BYTES_MAX && size <= range->length - 8;
    if (is_read)
        text = malloc(size);
    is_read = text != NULL && pread(descriptor, text, size, 8) == (ssize_t)size;
    range->offset = 8 + size;
    range->length -= range->offset;
    is_read = is_read && header_read(text, size, range);
    free(text);
    if (!is_read)
        complain("%s is no safetensors file", path);
    range->is_safetensors = true;
    return is_read;
}

bool
load_range_find(const char *path, struct load_range *range_out)
{
    static const char ending[] = ".safetensors";
    size_t length = strlen(path);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    bool is_found = true;
    struct stat facts;

    *range_out = (struct load_range){0};
    if (descriptor < 0 || fstat(descriptor, &facts) != 0) {
        complain("cannot read %s: %s", path, strerror(errno));
        if (descriptor >= 0)
            close(descriptor);
        return false;
    }
    range_out->length = (uint64_t)facts.st_size;
    if (length >= sizeof(ending) && strcmp(path + length - sizeof(ending) + 1, ending) == 0)
        is_found = tensors_find(descriptor, path, range_out);
    close(descriptor);
    return is_found;
}
