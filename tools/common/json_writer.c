/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_writer.c - writes one JSON value to a stream, piece by piece, with commas and escapes right.
 */
#include "json_writer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "utf8.h"

static void
text_write(FILE *out, const char *text, size_t size)
{
    fputc('"', out);
    for (size_t i = 0; i < size;) {
        const char *at = text + i;
        size_t length = utf8_length(at, size - i);

        /* Of a control character of two bytes the second is its number. */
        if (length == 0)
            fputs("\\ufffd", out);
        else if (utf8_is_control(at, length))
            fprintf(out, "\\u%04x", (unsigned char)at[length - 1]);
        else
            fprintf(out, "%s%.*s", *at == '"' || *at == '\\' ? "\\" : "", (int)length, at);
        i += length == 0 ? 1 : length;
    }
    fputc('"', out);
}

static void
value_begin(struct json *json, const char *key)
{
    if (json->comma_due)
        fputc(',', json->out);
    json->comma_due = true;
    if (json->depth > 0 && json->depth <= 2 && !json->is_one_line)
        fprintf(json->out, "\n%*s", json->depth * 2, "");
    if (key != NULL) {
        text_write(json->out, key, strlen(key));
        fputs(": ", json->out);
    }
}

static void
nest_begin(struct json *json, const char *key, char bracket)
{
    value_begin(json, key);
    fputc(bracket, json->out);
    json->depth++;
    json->comma_due = false;
}

static void
nest_end(struct json *json, char bracket)
{
    json->depth--;
    if (json->depth <= 1 && json->comma_due && !json->is_one_line)
        fprintf(json->out, "\n%*s", json->depth * 2, "");
    fputc(bracket, json->out);
    json->comma_due = true;
}

void
json_object_begin(struct json *json, const char *key)
{
    nest_begin(json, key, '{');
}

void
json_object_end(struct json *json)
{
    nest_end(json, '}');
}

void
json_array_begin(struct json *json, const char *key)
{
    nest_begin(json, key, '[');
}

void
json_array_end(struct json *json)
{
    nest_end(json, ']');
}

void
json_string(struct json *json, const char *key, const char *text)
{
    json_string_bytes(json, key, text, strlen(text));
}

void
json_string_bytes(struct json *json, const char *key, const void *bytes, size_t size)
{
    value_begin(json, key);
    text_write(json->out, bytes, size);
}

void
json_number(struct json *json, const char *key, uint64_t number)
{
    value_begin(json, key);
    fprintf(json->out, "%" PRIu64, number);
}

void
json_real(struct json *json, const char *key, double number)
{
    value_begin(json, key);
    if (isfinite(number))
        fprintf(json->out, "%.6g", number);
    else
        fputs("null", json->out);
}

void
json_bool(struct json *json, const char *key, bool value)
{
    value_begin(json, key);
    fputs(value ? "true" : "false", json->out);
}

void
json_null(struct json *json, const char *key)
{
    value_begin(json, key);
    fputs("null", json->out);
}

void
json_raw(struct json *json, const char *key, const char *text)
{
    value_begin(json, key);
    fputs(text, json->out);
}

void
json_end(struct json *json)
{
    fputc('\n', json->out);
    fflush(json->out);
}
