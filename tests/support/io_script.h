/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_script.h - an io engine for tests that does what a script says: fails, shortens or holds back
 * operations. Otherwise it makes the system calls at once, in the thread that submits.
 *
 * Threads   the script's functions any (one lock for everything); the io_ops as env.h says.
 */
#ifndef KVT_TESTS_IO_SCRIPT_H
#define KVT_TESTS_IO_SCRIPT_H

#include "env.h"

struct io_script;

/* io_script_create - set env.io to &io_script_ops and env.io_context to what it gives. */
struct io_script *io_script_create(void);
void io_script_destroy(struct io_script *script);
extern const struct io_ops io_script_ops;

/* io_script_fail - after `skip` more operations of that kind, the next `count` are answered with
 * -error and move nothing. Replaces what was scripted for that kind before. */
void io_script_fail(
    struct io_script *script, enum io_kind kind, uint32_t skip, uint32_t count, int error);
/* io_script_shorten - the next `count` operations of that kind move one page only. */
void io_script_shorten(struct io_script *script, enum io_kind kind, uint32_t count);

/* io_script_hold - operations of that kind (on `file`; NULL: any) are kept back from now on, not even
 * started. io_script_release lets those of that kind go, and later ones. */
void io_script_hold(struct io_script *script, enum io_kind kind, const struct fs_file *file);
void io_script_release(struct io_script *script, enum io_kind kind);

/* Operations of that kind that were submitted, and those kept back now. */
uint32_t io_script_count(struct io_script *script, enum io_kind kind);
uint32_t io_script_held(struct io_script *script, enum io_kind kind);

#endif /* KVT_TESTS_IO_SCRIPT_H */
