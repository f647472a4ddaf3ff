/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_reader.c - see json_reader.h.
 */
#include "json_reader.h"

#include <string.h>

enum {
    LEVELS_MAX = 64,
};

static bool
bad(struct json_reader *reader)
{
    reader->is_bad = true;
    reader->at = reader->end;
    return false;
}

/* The next character that counts; 0 at the end. */
static char
peek(struct json_reader *reader)
{
    while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) != NULL && *reader->at != 0)
        reader->at++;
    return reader->at < reader->end ? *reader->at : 0;
}

static bool
take(struct json_reader *reader, char wanted)
{
    if (reader->is_bad || peek(reader) != wanted || wanted == 0)
        return bad(reader);
    reader->at++;
    return true;
}

bool
json_enter(struct json_reader *reader, char bracket)
{
    reader->is_first = true;
    return take(reader, bracket);
}

/* Before an element: past the comma. False: the end, which is taken, or bad. */
static bool
element_next(struct json_reader *reader, char closing)
{
    bool is_first = reader->is_first;

    reader->is_first = false;
    if (reader->is_bad)
        return false;
    if (peek(reader) == closing) {
        reader->at++;
        return false;
    }
    return is_first || take(reader, ',');
}

bool
json_next(struct json_reader *reader)
{
    return element_next(reader, ']');
}

bool
json_next_key(struct json_reader *reader, char *key, size_t size)
{
    return element_next(reader, '}') && json_read_string(reader, key, size) && take(reader, ':');
}

bool
json_read_string(struct json_reader *reader, char *text, size_t size)
{
    size_t length = 0;

    if (!take(reader, '"'))
        return false;
    while (reader->at < reader->end && *reader->at != '"') {
        char byte = *reader->at++;

        if (byte == '\\') {
            if (reader->at == reader->end || strchr("\"\\/", *reader->at) == NULL ||
                *reader->at == 0)
                return bad(reader);
            byte = *reader->at++;
        }
        if ((unsigned char)byte < ' ')
            return bad(reader);
        if (length + 1 < size)
            text[length++] = byte;
    }
    if (size > 0)
        text[length] = 0;
    return take(reader, '"');
}

bool
json_read_number(struct json_reader *reader, uint64_t *number_out)
{
    uint64_t number = 0;
    const char *begin;

    (void)peek(reader);
    begin = reader->at;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') {
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*reader->at - '0'), &number))
            return bad(reader);
        reader->at++;
    }
    if (reader->at == begin ||
        (reader->at < reader->end && strchr(".eE+-", *reader->at) != NULL && *reader->at != 0))
        return bad(reader);
    *number_out = number;
    return !reader->is_bad;
}

/* A string with any escape. */
static bool
string_skip(struct json_reader *reader)
{
    if (!take(reader, '"'))
        return false;
    while (reader->at < reader->end && *reader->at != '"')
        reader->at += *reader->at == '\\' && reader->end - reader->at > 1 ? 2 : 1;
    return take(reader, '"');
}

bool
json_skip(struct json_reader *reader)
{
    int level = 0;

    do {
        char next = peek(reader);

        if (next == 0 || reader->is_bad || (level == 0 && (next == ',' || next == ':')))
            return bad(reader);
        if (next == '"') {
            if (!string_skip(reader))
                return false;
            continue;
        }
        if ((next == '{' || next == '[') && ++level > LEVELS_MAX)
            return bad(reader);
        if ((next == '}' || next == ']') && --level < 0)
            return bad(reader);
        reader->at++;
        if (strchr("{}[],:", next) != NULL)
            continue;
        while (reader->at < reader->end && strchr(" \t\r\n{}[],:\"", *reader->at) == NULL)
            reader->at++;
    } while (level > 0);
    return true;
}

bool
json_finish(struct json_reader *reader)
{
    return !reader->is_bad && peek(reader) == 0 && reader->at == reader->end;
}
