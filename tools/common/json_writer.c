/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_writer.c - writes one JSON value to a stream, piece by piece, with commas and escapes right.
 */
#include "json_writer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The length of the UTF-8 sequence at `bytes`, or 0 when there is none (RFC 3629, section 4). */
static size_t
utf8_length(const unsigned char *bytes, size_t size)
{
    unsigned char first = bytes[0];
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    size_t length = 0;

    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        length = 2;
    else if (first >= 0xE0 && first <= 0xEF)
        length = 3;
    else if (first >= 0xF0 && first <= 0xF4)
        length = 4;
    if (length == 0 || length > size)
        return 0;
    if (first == 0xE0)
        low = 0xA0;
    else if (first == 0xF0)
        low = 0x90;
    else if (first == 0xED)
        high = 0x9F;
    else if (first == 0xF4)
        high = 0x8F;
    if (bytes[1] < low || bytes[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
    }
    return length;
}

static void
text_write(FILE *out, const unsigned char *bytes, size_t size)
{
    fputc('"', out);
    for (size_t i = 0; i < size;) {
        size_t length = utf8_length(bytes + i, size - i);

        if (length == 0) {
            fputs("\\ufffd", out);
            i++;
        } else if (bytes[i] == '"' || bytes[i] == '\\') {
            fputc('\\', out);
            fputc(bytes[i++], out);
        } else if (bytes[i] < 0x20 || bytes[i] == 0x7F) {
            fprintf(out, "\\u%04x", bytes[i++]);
        } else {
            fwrite(bytes + i, 1, length, out);
            i += length;
        }
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
        text_write(json->out, (const unsigned char *)key, strlen(key));
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
