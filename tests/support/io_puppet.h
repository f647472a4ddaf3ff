/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_puppet.h - an io engine for tests that does what a script says: fails, shortens or holds back
 * operations. Otherwise it makes the system calls at once, in the thread that submits.
 *
 * Threads   the script's functions any (one lock for everything); the io_ops as env.h says.
 */
#ifndef KVT_TESTS_IO_PUPPET_H
#define KVT_TESTS_IO_PUPPET_H

#include "env.h"

struct io_puppet;

/* io_puppet_create - set env.io to &io_puppet_ops and env.io_context to what it gives. */
struct io_puppet *io_puppet_create(void);
void io_puppet_destroy(struct io_puppet *script);
extern const struct io_ops io_puppet_ops;

/* io_puppet_fail - after `skip` more operations of that kind, the next `count` are answered with
 * -error and move nothing. Replaces what was scripted for that kind before. */
void io_puppet_fail(
    struct io_puppet *script, enum io_kind kind, uint32_t skip, uint32_t count, int error);
/* io_puppet_shorten - the next `count` operations of that kind move one page only. */
void io_puppet_shorten(struct io_puppet *script, enum io_kind kind, uint32_t count);

/* io_puppet_hold - operations of that kind (on `file`; NULL: any) are kept back from now on, not
 * even started. io_puppet_release lets those of that kind go, and later ones. */
void io_puppet_hold(struct io_puppet *script, enum io_kind kind, const struct fs_file *file);
void io_puppet_release(struct io_puppet *script, enum io_kind kind);

/* Operations of that kind that were submitted, and those kept back now. */
uint32_t io_puppet_count(struct io_puppet *script, enum io_kind kind);
uint32_t io_puppet_held(struct io_puppet *script, enum io_kind kind);

#endif /* KVT_TESTS_IO_PUPPET_H */
