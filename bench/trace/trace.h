/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - a recorded request trace in memory: for each request its lengths and the ids of its
 * full blocks.
 *
 * The file has one JSON object a line (plain, or compressed by zstd): `input_length` (tokens) and
 * `hash_ids` (an array of ids) are needed; `timestamp` (ms), `output_length` and `session` are read
 * when there; other members are skipped. Nothing in the file is trusted: what is no such line is
 * refused with its number.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRACE_BLOCK_TOKENS = 512,
    TRACE_CHAIN_MAX = 65536, /* Ids in one request: a batch of kvtier. */
    TRACE_LINE_BYTES_MAX = 4 << 20,
    TRACE_REQUEST_MAX = 1 << 26,
    TRACE_MESSAGE_BYTES = 512,
};

struct trace_request {
    uint64_t timestamp_ms;
    uint64_t input_length; /* Tokens. */
    uint64_t output_length;
    size_t id_start; /* Its ids are trace.ids[id_start .. id_start + id_count - 1]. */
    uint32_t id_count;
};

struct trace {
    struct trace_request *requests;
    size_t request_count;
    size_t request_room;
    uint64_t *ids;
    size_t id_count;
    size_t id_room;
    uint64_t unique_count; /* Different ids. */
    uint32_t block_tokens; /* In a block; 0: TRACE_BLOCK_TOKENS, and every block is full. */
};

/*
 * trace_load - reads the file; `*.zst` or not is seen in its first bytes. False: nothing to free,
 * and a sentence with the line's number in `message`.
 */
bool trace_load(struct trace *trace_out, const char *path, char message[TRACE_MESSAGE_BYTES]);

/* trace_load_blocks - the same with blocks of so many tokens; the last one of a request may lack
 * some. */
bool trace_load_blocks(struct trace *trace_out, const char *path, uint32_t block_tokens,
    char message[TRACE_MESSAGE_BYTES]);
void trace_free(struct trace *trace);

/*
 * trace_line_parse - appends the request on one line (without its newline, ended by 0).
 * NULL: done. Otherwise what is wrong with it, a static text, and *trace is as before.
 */
const char *trace_line_parse(struct trace *trace, const char *line, size_t length);

#endif /* BENCH_TRACE_H */
