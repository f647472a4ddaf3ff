/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_tensors.c - see kvtool_tensors.h.
 */
#include "kvtool_tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "json_reader.h"
#include "little_endian.h"

enum {
    LENGTH_BYTES = 8,
    HEADER_BYTES_MAX = 100 << 20, /* The format's own bound. */
    NAME_BYTES = 512,
};

static bool
file_read(const char *path, int descriptor, uint64_t offset, void *target, uint64_t size)
{
    char *bytes = target;

    while (size > 0) {
        ssize_t count = pread(descriptor, bytes, size, (off_t)offset);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            complain(
                "cannot read %s: %s", path, count == 0 ? "it ends too early" : strerror(errno));
            return false;
        }
        bytes += count;
        offset += (uint64_t)count;
        size -= (uint64_t)count;
    }
    return true;
}

bool
tensor_read(const struct tensor *tensor, uint64_t offset, void *target, uint64_t size)
{
    return file_read(tensor->path, tensor->descriptor, tensor->offset + offset, target, size);
}

void
tensor_close(struct tensor *tensor)
{
    if (tensor->descriptor >= 0)
        close(tensor->descriptor);
    tensor->descriptor = -1;
}

/* {"dtype": "F8_E4M3", "shape": [rows, 256], "data_offsets": [begin, end]} */
static bool
facts_read(struct json_reader *reader, struct tensor *tensor)
{
    char key[NAME_BYTES];
    uint64_t offsets[2] = {0};
    uint32_t offset_count = 0;
    uint64_t number = 0;

    if (!json_enter(reader, '{'))
        return false;
    while (json_next_key(reader, key, sizeof(key))) {
        if (strcmp(key, "dtype") == 0) {
            (void)json_read_string(reader, tensor->type, sizeof(tensor->type));
        } else if (strcmp(key, "shape") == 0 && json_enter(reader, '[')) {
            while (json_next(reader) && json_read_number(reader, &number)) {
                if (tensor->dimension_count < TENSOR_DIMENSIONS_MAX)
                    tensor->shape[tensor->dimension_count++] = number;
            }
        } else if (strcmp(key, "data_offsets") == 0 && json_enter(reader, '[')) {
            while (json_next(reader) && json_read_number(reader, &number)) {
                if (offset_count < 2)
                    offsets[offset_count++] = number;
            }
        } else {
            (void)json_skip(reader);
        }
    }
    tensor->offset = offsets[0];
    tensor->size = offsets[1] - offsets[0];
    return !reader->is_bad && offset_count == 2 && offsets[1] >= offsets[0];
}

/* Looks through a header. False: it is none. */
static bool
header_search(
    const char *header, uint64_t size, const char *name, struct tensor *found, bool *is_found)
{
    struct json_reader reader = {.at = header, .end = header + size};
    char key[NAME_BYTES];

    if (!json_enter(&reader, '{'))
        return false;
    while (json_next_key(&reader, key, sizeof(key))) {
        struct tensor tensor = {.descriptor = -1};

        if (strcmp(key, name) != 0) {
            (void)json_skip(&reader);
            continue;
        }
        if (*is_found || !facts_read(&reader, &tensor))
            return false;
        *found = tensor;
        *is_found = true;
    }
    return json_finish(&reader);
}

/* The header of an open file and where the tensors' bytes begin. NULL: complained. */
static char *
header_read(const char *path, int descriptor, uint64_t file_bytes, uint64_t *size_out)
{
    uint8_t length[LENGTH_BYTES];
    char *header = NULL;

    if (file_bytes < LENGTH_BYTES) {
        complain("%s is no safetensors file: it is too short", path);
        return NULL;
    }
    if (!file_read(path, descriptor, 0, length, sizeof(length)))
        return NULL;
    *size_out = load_u64(length);
    if (*size_out > HEADER_BYTES_MAX || *size_out > file_bytes - LENGTH_BYTES) {
        complain("%s is no safetensors file: its header has an impossible length", path);
        return NULL;
    }
    header = malloc(*size_out + 1);
    if (header == NULL) {
        complain("there is no memory for the header of %s", path);
        return NULL;
    }
    if (file_read(path, descriptor, LENGTH_BYTES, header, *size_out))
        return header;
    free(header);
    return NULL;
}

bool
tensor_find(const char *path, const char *name, struct tensor *tensor)
{
    struct stat facts = {0};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t size = 0, data_bytes = 0;
    bool is_found = false;
    bool is_fine = false;
    char *header = NULL;

    if (descriptor < 0 || fstat(descriptor, &facts) != 0) {
        complain("cannot read %s: %s", path, strerror(errno));
        if (descriptor >= 0)
            close(descriptor);
        return false;
    }
    header = header_read(path, descriptor, (uint64_t)facts.st_size, &size);
    if (header != NULL) {
        is_fine = header_search(header, size, name, tensor, &is_found);
        data_bytes = (uint64_t)facts.st_size - LENGTH_BYTES - size;
        if (is_fine && is_found &&
            (tensor->size > data_bytes || tensor->offset > data_bytes - tensor->size))
            is_fine = false;
        if (!is_fine)
            complain("%s is no safetensors file: its header is damaged, or names bytes that it "
                     "does not have",
                path);
        free(header);
    }
    if (!is_fine || !is_found) {
        close(descriptor);
        tensor->descriptor = -1;
        return is_fine;
    }
    tensor->path = path;
    tensor->descriptor = descriptor;
    tensor->offset += LENGTH_BYTES + size;
    return true;
}
