/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_tensors.h - tensors in safetensors files: eight bytes of length, a JSON object that names
 * tensors, then their bytes. The whole header is checked before anything of it is used.
 */
#ifndef KVTOOL_TENSORS_H
#define KVTOOL_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TENSOR_DIMENSIONS_MAX = 8,
    TENSOR_TYPE_BYTES = 16,
};

/* Where a tensor's bytes lie. */
struct tensor {
    const char *path;
    int descriptor; /* -1: not found. */
    char type[TENSOR_TYPE_BYTES];
    uint64_t shape[TENSOR_DIMENSIONS_MAX];
    uint32_t dimension_count;
    uint64_t offset; /* In the file. */
    uint64_t size;
};

/*
 * tensor_find - the tensor `name` in a file, if that has it. False: complained; the file cannot be
 * read, or is no safetensors file. Otherwise tensor->descriptor says whether it was found.
 */
bool tensor_find(const char *path, const char *name, struct tensor *tensor);
void tensor_close(struct tensor *tensor);

/* tensor_read - bytes [offset, offset + size) of the tensor. False: complained. */
bool tensor_read(const struct tensor *tensor, uint64_t offset, void *target, uint64_t size);

#endif /* KVTOOL_TENSORS_H */
