/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_world.h - what fuzz targets share: files that are the input's bytes, and ways to read an
 * input as numbers.
 *
 * A target is one file with LLVMFuzzerTestOneInput(). The same file is linked with libFuzzer
 * (clang, `make fuzz`) and with fuzz_replay.c, which runs it over the corpus in every build. What
 * reads checksums is compiled for it with KVT_FUZZING (base/hash.h).
 */
#ifndef KVT_TESTS_FUZZ_WORLD_H
#define KVT_TESTS_FUZZ_WORLD_H

#include "env.h"

enum {
    FUZZ_FILES_MAX = 2,
};

/* A file that can be read and not written. The bytes are borrowed. */
struct fuzz_file {
    const char *name;
    const uint8_t *bytes;
    size_t size;
};

/* A directory with such files in it, and the world that they belong to. */
struct fuzz_world {
    struct kvt_env env;
    struct fs_dir *dir;
    struct fuzz_file files[FUZZ_FILES_MAX];
    size_t open_count; /* Files that are open: 0 after each run. */
};

/* fuzz_world - the one world there is, without files. From here on a false proof stops. */
struct fuzz_world *fuzz_world(void);

/* fuzz_file_open - `bytes` as a file by itself; closed with env.fs->close(). */
struct fs_file *fuzz_file_open(const uint8_t *bytes, size_t size);

/* The store's identity in all seeds. */
extern const uint8_t fuzz_uuid[16];
extern const uint8_t fuzz_secret[32];

/* An input that is read from its beginning; behind its end there are zeros. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

uint64_t fuzz_number(struct fuzz_input *input, size_t width); /* Little endian, 1..8 bytes. */

/* FUZZ_REQUIRE - a finding, unless `x` holds. */
#define FUZZ_REQUIRE(x) ((x) ? (void)0 : fuzz_found(#x, __FILE__, __LINE__))
_Noreturn void fuzz_found(const char *expression, const char *file, int line);

/* The entry of a target, as libFuzzer calls it. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif /* KVT_TESTS_FUZZ_WORLD_H */
