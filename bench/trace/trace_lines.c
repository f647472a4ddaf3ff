/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_lines.c - the lines of a text file that is plain or compressed by zstd.
 *
 * Invariants
 *   (1) text[line_start .. text_end - 1] was read and not yet handed out; text[text_end] is room.
 *   (2) A line is at most TRACE_LINE_BYTES_MAX long, so the buffer never grows: what a hostile zstd
 *       frame expands to is bounded too.
 */
#include "trace_lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "trace.h"

enum {
    INPUT_BYTES = 128 << 10,
    TEXT_BYTES = TRACE_LINE_BYTES_MAX + 1,
    WINDOW_LOG_MAX = 27, /* zstd's own default limit: 128 MiB of memory for a frame. */
};

struct trace_lines {
    FILE *file;
    ZSTD_DStream *decoder; /* NULL: the file is plain. */
    ZSTD_inBuffer input;
    size_t frame_left; /* 0: the last frame is complete. */
    size_t line_start;
    size_t text_end;
    bool has_ended;
    char input_bytes[INPUT_BYTES];
    char text[TEXT_BYTES];
};

/* The first four bytes of a zstd frame (RFC 8878, section 3.1.1). */
static const unsigned char zstd_magic[4] = {0x28, 0xB5, 0x2F, 0xFD};

static const char *
decoder_open(struct trace_lines *lines)
{
    lines->decoder = ZSTD_createDStream();
    if (lines->decoder == NULL)
        return "there is no memory to decompress it";
    if (ZSTD_isError(ZSTD_initDStream(lines->decoder)) ||
        ZSTD_isError(ZSTD_DCtx_setParameter(lines->decoder, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
        return "zstd cannot be set up";
    return NULL;
}

static const char *
lines_start(struct trace_lines *lines, const char *path)
{
    lines->file = fopen(path, "rbe");
    if (lines->file == NULL)
        return strerror(errno);
    lines->input.src = lines->input_bytes;
    lines->input.size = fread(lines->input_bytes, 1, INPUT_BYTES, lines->file);
    if (ferror(lines->file) != 0)
        return strerror(errno);
    if (lines->input.size >= sizeof(zstd_magic) &&
        memcmp(lines->input_bytes, zstd_magic, sizeof(zstd_magic)) == 0)
        return decoder_open(lines);
    return NULL;
}

struct trace_lines *
trace_lines_open(const char *path, const char **wrong_out)
{
    struct trace_lines *lines = calloc(1, sizeof(*lines));

    *wrong_out = "there is no memory";
    if (lines == NULL)
        return NULL;
    *wrong_out = lines_start(lines, path);
    if (*wrong_out == NULL)
        return lines;
    trace_lines_close(lines);
    return NULL;
}

void
trace_lines_close(struct trace_lines *lines)
{
    if (lines == NULL)
        return;
    if (lines->file != NULL)
        fclose(lines->file);
    ZSTD_freeDStream(lines->decoder);
    free(lines);
}

/* Reads more of the file when all of it was used. */
static const char *
input_fill(struct trace_lines *lines)
{
    if (lines->input.pos < lines->input.size)
        return NULL;
    lines->input.pos = 0;
    lines->input.size = fread(lines->input_bytes, 1, INPUT_BYTES, lines->file);
    return ferror(lines->file) != 0 ? strerror(errno) : NULL;
}

/* Decompresses into the room behind the text; sets has_ended when the file has no more. */
static const char *
text_decode(struct trace_lines *lines)
{
    ZSTD_outBuffer output = {lines->text, TEXT_BYTES - 1, lines->text_end};
    bool input_is_empty = lines->input.size == 0;

    lines->frame_left = input_is_empty && lines->frame_left == 0
                            ? 0
                            : ZSTD_decompressStream(lines->decoder, &output, &lines->input);
    if (ZSTD_isError(lines->frame_left))
        return ZSTD_getErrorName(lines->frame_left);
    if (output.pos == lines->text_end && input_is_empty) {
        lines->has_ended = true;
        if (lines->frame_left != 0)
            return "the compressed file is cut off";
    }
    lines->text_end = output.pos;
    return NULL;
}

static const char *
text_fill(struct trace_lines *lines)
{
    size_t room = 0;
    size_t left = 0;
    const char *wrong = NULL;

    memmove(lines->text, lines->text + lines->line_start, lines->text_end - lines->line_start);
    lines->text_end -= lines->line_start;
    lines->line_start = 0;
    room = TEXT_BYTES - 1 - lines->text_end;
    if (room == 0)
        return "the line is longer than 4 MiB";
    wrong = input_fill(lines);
    if (wrong != NULL)
        return wrong;
    if (lines->decoder != NULL)
        return text_decode(lines);
    left = lines->input.size - lines->input.pos;
    if (left > room)
        left = room;
    memcpy(lines->text + lines->text_end, lines->input_bytes + lines->input.pos, left);
    lines->input.pos += left;
    lines->text_end += left;
    lines->has_ended = left == 0;
    return NULL;
}

bool
trace_lines_next(
    struct trace_lines *lines, char **line_out, size_t *length_out, const char **wrong_out)
{
    size_t searched = 0; /* Bytes behind line_start that have no newline. */
    char *newline = NULL;

    *wrong_out = NULL;
    for (;;) {
        size_t length = lines->text_end - lines->line_start;

        newline = memchr(lines->text + lines->line_start + searched, '\n', length - searched);
        if (newline != NULL)
            break;
        searched = length;
        if (lines->has_ended) {
            if (length == 0)
                return false;
            newline = lines->text + lines->text_end; /* The last line may lack its newline. */
            lines->text_end++;
            break;
        }
        *wrong_out = text_fill(lines);
        if (*wrong_out != NULL)
            return false;
    }
    *newline = '\0';
    *line_out = lines->text + lines->line_start;
    *length_out = (size_t)(newline - *line_out);
    lines->line_start += *length_out + 1;
    return true;
}
