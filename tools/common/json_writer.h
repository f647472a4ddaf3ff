/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_writer.h - writes one JSON value to a stream, piece by piece, with commas and escapes right.
 *
 * A key of NULL is for an element of an array, and for the outermost value. Strings that are not
 * UTF-8 have U+FFFD for each bad byte, so that the output is always JSON.
 */
#ifndef TOOLS_JSON_WRITER_H
#define TOOLS_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *out;
    bool comma_due; /* A value stands before this place at its level. */
    int depth;
    bool is_one_line; /* No newline but json_end()'s. */
};

#define JSON_INIT(stream) \
    {                     \
        .out = (stream)   \
    }

void json_object_begin(struct json *json, const char *key);
void json_object_end(struct json *json);
void json_array_begin(struct json *json, const char *key);
void json_array_end(struct json *json);

void json_string(struct json *json, const char *key, const char *text);
void json_string_bytes(struct json *json, const char *key, const void *bytes, size_t size);
void json_number(struct json *json, const char *key, uint64_t number);
/* Not finite: null. */
void json_real(struct json *json, const char *key, double number);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

/* json_raw - `text` must be one JSON value. */
void json_raw(struct json *json, const char *key, const char *text);

/* json_end - the newline behind the outermost value. */
void json_end(struct json *json);

#endif /* TOOLS_JSON_WRITER_H */
