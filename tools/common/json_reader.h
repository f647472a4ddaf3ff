/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_reader.h - walks one JSON text of known length, piece by piece; nothing of it is trusted.
 *
 * Whoever reads knows what should come: each function says whether that was there. After the first
 * false the reader stays bad. Objects and arrays: enter, then next before each element (false: the
 * end, or bad), which for objects gives the key.
 */
#ifndef TOOLS_JSON_READER_H
#define TOOLS_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_reader {
    const char *at, *end;
    bool is_bad;
    bool is_first; /* An object or array was just entered. */
};

bool json_enter(struct json_reader *reader, char bracket); /* '{' or '['. */
/* json_next_key - of an object, up to `size` - 1 bytes of it; a longer one is cut. */
bool json_next_key(struct json_reader *reader, char *key, size_t size);
bool json_next(struct json_reader *reader); /* Of an array. */

/* Values. Numbers are whole, 0 .. 2^64 - 1. Of strings, other escapes than \" \\ \/ are bad. */
bool json_read_number(struct json_reader *reader, uint64_t *number_out);
bool json_read_string(struct json_reader *reader, char *text, size_t size);
bool json_skip(struct json_reader *reader); /* Whatever it is, up to 64 levels of it. */

/* json_finish - nothing follows, and nothing was bad. */
bool json_finish(struct json_reader *reader);

#endif /* TOOLS_JSON_READER_H */
