/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_import_source.h - an archive that can be read twice: a file, or a copy of what a pipe
 * brings.
 */
#ifndef KVTOOL_IMPORT_SOURCE_H
#define KVTOOL_IMPORT_SOURCE_H

/* import_source_open - a descriptor of `file` ("-": standard input) that can be rewound. What comes
 * from a pipe is copied first, into a file that has no name. Below 0: with a sentence. `name_out`
 * is for sentences. */
int import_source_open(const char *file, const char **name_out);

#endif /* KVTOOL_IMPORT_SOURCE_H */
