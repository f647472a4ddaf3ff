/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_parse.c - one line of a trace: a JSON parser for just this, which believes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "trace.h"

enum {
    NESTING_MAX = 16
};

/* What was read of a line so far. The line ends with a 0, which no token contains. */
struct parser {
    struct trace *trace;
    const char *at;
    const char *end;
    const char *wrong; /* The first thing that was wrong; NULL: nothing. */
    struct trace_request request;
    uint32_t seen; /* Bit i: members[i] was there. */
};

static bool
fail(struct parser *parser, const char *wrong)
{
    if (parser->wrong == NULL)
        parser->wrong = wrong;
    return false;
}

static void
spaces_skip(struct parser *parser)
{
    while (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\r' || *parser->at == '\n')
        parser->at++;
}

/* Takes `expected` with the spaces before it, if it stands there. */
static bool
sign_take(struct parser *parser, char expected)
{
    spaces_skip(parser);
    if (*parser->at != expected)
        return false;
    parser->at++;
    return true;
}

/* A string; *text_out is what stands between its quotes, escapes untouched. */
static bool
string_read(struct parser *parser, const char **text_out, size_t *length_out)
{
    const char *start = NULL;

    if (!sign_take(parser, '"'))
        return fail(parser, "a string was expected");
    start = parser->at;
    while (*parser->at != '"') {
        if ((unsigned char)*parser->at < 0x20)
            return fail(parser, "a string does not end, or has a control character");
        if (*parser->at == '\\')
            parser->at++;
        if (parser->at == parser->end)
            return fail(parser, "a string does not end");
        parser->at++;
    }
    *text_out = start;
    *length_out = (size_t)(parser->at - start);
    parser->at++;
    return true;
}

/* A number that is whole and not negative; a fraction of zeros is allowed, as in 12.0. */
static bool
whole_read(struct parser *parser, uint64_t *number_out)
{
    uint64_t number = 0;

    spaces_skip(parser);
    if (*parser->at < '0' || *parser->at > '9')
        return fail(parser, "a whole number that is not negative was expected");
    for (; *parser->at >= '0' && *parser->at <= '9'; parser->at++) {
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*parser->at - '0'), &number))
            return fail(parser, "a number is too large for 64 bits");
    }
    if (*parser->at == '.') {
        parser->at++;
        while (*parser->at == '0')
            parser->at++;
    }
    if (*parser->at != '\0' && strchr("0123456789.eE+-", *parser->at) != NULL)
        return fail(parser, "a number is not whole");
    *number_out = number;
    return true;
}

/* Any value of a member that is not ours; `depth` bounds the recursion. */
static bool
value_skip(struct parser *parser, int depth)
{
    const char *text = NULL;
    size_t length = 0;
    char closing = '\0';

    spaces_skip(parser);
    if (*parser->at == '"')
        return string_read(parser, &text, &length);
    if (*parser->at != '{' && *parser->at != '[') {
        length = strcspn(parser->at, " \t\r\n,]}\"[{:");
        parser->at += length;
        return length > 0 || fail(parser, "a value is missing");
    }
    if (depth == NESTING_MAX)
        return fail(parser, "values are nested too deeply");
    closing = *parser->at == '{' ? '}' : ']';
    parser->at++;
    if (sign_take(parser, closing))
        return true;
    do {
        if (closing == '}' && (!string_read(parser, &text, &length) || !sign_take(parser, ':')))
            return fail(parser, "a member has no name");
        if (!value_skip(parser, depth + 1))
            return false;
    } while (sign_take(parser, ','));
    return sign_take(parser, closing) || fail(parser, "a bracket is not closed");
}

/* Makes room for one more id. */
static bool
id_append(struct parser *parser, uint64_t id)
{
    struct trace *trace = parser->trace;

    if (parser->request.id_count == TRACE_CHAIN_MAX)
        return fail(parser, "there are more than 65536 ids in one request");
    if (trace->id_count == trace->id_room) {
        size_t room = trace->id_room == 0 ? 65536 : trace->id_room * 2;
        uint64_t *ids = realloc(trace->ids, room * sizeof(*ids));

        if (ids == NULL)
            return fail(parser, "there is no memory for more ids");
        trace->ids = ids;
        trace->id_room = room;
    }
    trace->ids[trace->id_count++] = id;
    parser->request.id_count++;
    return true;
}

static bool
ids_read(struct parser *parser)
{
    if (!sign_take(parser, '['))
        return fail(parser, "hash_ids is no array");
    if (sign_take(parser, ']'))
        return true;
    do {
        uint64_t id = 0;

        if (!whole_read(parser, &id) || !id_append(parser, id))
            return false;
    } while (sign_take(parser, ','));
    return sign_take(parser, ']') || fail(parser, "hash_ids does not end");
}

enum {
    MEMBER_INPUT,
    MEMBER_IDS,
    MEMBER_TIMESTAMP,
    MEMBER_OUTPUT,
    MEMBER_COUNT
};

static const char *const members[MEMBER_COUNT] = {
    [MEMBER_INPUT] = "input_length",
    [MEMBER_IDS] = "hash_ids",
    [MEMBER_TIMESTAMP] = "timestamp",
    [MEMBER_OUTPUT] = "output_length",
};

static bool
member_read(struct parser *parser)
{
    const char *name = NULL;
    size_t length = 0;
    uint32_t member = 0;

    if (!string_read(parser, &name, &length))
        return false;
    if (!sign_take(parser, ':'))
        return fail(parser, "a colon is missing");
    while (member < MEMBER_COUNT &&
           (strlen(members[member]) != length || memcmp(members[member], name, length) != 0))
        member++;
    if (member == MEMBER_COUNT)
        return value_skip(parser, 0);
    if ((parser->seen & (1u << member)) != 0)
        return fail(parser, "a member is there twice");
    parser->seen |= 1u << member;
    if (member == MEMBER_IDS)
        return ids_read(parser);
    return whole_read(parser, member == MEMBER_INPUT    ? &parser->request.input_length
                              : member == MEMBER_OUTPUT ? &parser->request.output_length
                                                        : &parser->request.timestamp_ms);
}

static bool
ids_fit(struct parser *parser)
{
    uint64_t tokens = parser->request.input_length;
    uint32_t block_tokens = parser->trace->block_tokens;

    if (block_tokens == 0 && tokens / TRACE_BLOCK_TOKENS < parser->request.id_count)
        return fail(parser, "there are more ids than input_length has blocks of 512 tokens");
    if (block_tokens > 0 &&
        tokens / block_tokens + (tokens % block_tokens > 0) < parser->request.id_count)
        return fail(parser, "there are more ids than input_length has blocks");
    return true;
}

static bool
object_read(struct parser *parser)
{
    if (!sign_take(parser, '{'))
        return fail(parser, "the line is no JSON object");
    if (!sign_take(parser, '}')) {
        do {
            if (!member_read(parser))
                return false;
        } while (sign_take(parser, ','));
        if (!sign_take(parser, '}'))
            return fail(parser, "the object does not end");
    }
    spaces_skip(parser);
    if (parser->at != parser->end)
        return fail(parser, "something stands behind the object, or a zero byte in it");
    if ((parser->seen & (1u << MEMBER_IDS)) == 0)
        return fail(parser, "there is no hash_ids");
    if ((parser->seen & (1u << MEMBER_INPUT)) == 0)
        return fail(parser, "there is no input_length");
    return ids_fit(parser);
}

/* Makes room for one more request. */
static bool
request_append(struct parser *parser)
{
    struct trace *trace = parser->trace;

    if (trace->request_count == TRACE_REQUEST_MAX)
        return fail(parser, "there are too many requests");
    if (trace->request_count == trace->request_room) {
        size_t room = trace->request_room == 0 ? 4096 : trace->request_room * 2;
        struct trace_request *requests = realloc(trace->requests, room * sizeof(*requests));

        if (requests == NULL)
            return fail(parser, "there is no memory for more requests");
        trace->requests = requests;
        trace->request_room = room;
    }
    trace->requests[trace->request_count++] = parser->request;
    return true;
}

const char *
trace_line_parse(struct trace *trace, const char *line, size_t length)
{
    struct parser parser = {
        .trace = trace,
        .at = line,
        .end = line + length,
        .request = {.id_start = trace->id_count},
    };

    if (object_read(&parser) && request_append(&parser))
        return NULL;
    trace->id_count = parser.request.id_start;
    return parser.wrong;
}
