/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.h - characters of UTF-8 in text that somebody else chose: keys, names, file names.
 */
#ifndef TOOLS_UTF8_H
#define TOOLS_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* utf8_length - bytes of the character at `text`, which has `size` (1..); 0 when none begins
 * there. */
size_t utf8_length(const char *text, size_t size);

/* utf8_is_control - whether the character of `length` bytes at `text` is a command to a terminal:
 * U+0000..U+001F, U+007F..U+009F. */
bool utf8_is_control(const char *text, size_t length);

#endif /* TOOLS_UTF8_H */
