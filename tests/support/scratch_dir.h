/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch_dir.h - a directory of its own for one test, removed with all that is in it.
 */
#ifndef KVT_TESTS_SCRATCH_DIR_H
#define KVT_TESTS_SCRATCH_DIR_H

#include "env.h"

struct scratch_dir {
    char path[128];
};

/* scratch_dir_make - below $TMPDIR or /tmp; stops the test when it cannot. */
void scratch_dir_make(struct scratch_dir *scratch);
void scratch_dir_remove(struct scratch_dir *scratch);

/* scratch_path - "<directory>/<name>" in a static buffer, good until the next call. */
const char *scratch_path(const struct scratch_dir *scratch, const char *name);

/* Whole files, behind the back of the code under test. Stop the test on any error. */
size_t scratch_read(const struct scratch_dir *scratch, const char *name, void *target, size_t size);
void scratch_write(
    const struct scratch_dir *scratch, const char *name, const void *source, size_t size);
bool scratch_exists(const struct scratch_dir *scratch, const char *name);
void scratch_unlink(const struct scratch_dir *scratch, const char *name);

#endif /* KVT_TESTS_SCRATCH_DIR_H */
