/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_trace.c - when chunks were read and copied: as a timeline, and as one figure.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "complain.h"
#include "json_writer.h"
#include "load_bench.h"

enum {
    ROWS = 2, /* Of each kind: neighbours overlap, and a row shows one thing at a time. */
};

struct span {
    const char *kind;
    uint64_t begin_ns, end_ns, size;
    uint32_t chunk, row;
};

static void
span_write(struct json *json, uint64_t start_ns, const struct span *span)
{
    char name[32];

    snprintf(name, sizeof(name), "%s %u", span->kind, span->chunk);
    json_object_begin(json, NULL);
    json_string(json, "name", name);
    json_string(json, "cat", span->kind);
    json_string(json, "ph", "X");
    json_real(json, "ts", (double)(span->begin_ns - start_ns) / 1e3);
    json_real(json, "dur", (double)(span->end_ns - span->begin_ns) / 1e3);
    json_number(json, "pid", 1);
    json_number(json, "tid", span->row);
    json_object_begin(json, "args");
    json_number(json, "bytes", span->size);
    json_object_end(json);
    json_object_end(json);
}

bool
load_trace_write(const char *path, const struct kvt_load_chunk *chunks, uint32_t count)
{
    FILE *out = fopen(path, "w");
    struct json json = JSON_INIT(out);
    uint64_t start_ns = count == 0 ? 0 : chunks[0].read_begin_ns;
    bool is_written;

    if (out == NULL) {
        complain("cannot write %s: %s", path, strerror(errno));
        return false;
    }
    json_object_begin(&json, NULL);
    json_string(&json, "displayTimeUnit", "ms");
    json_array_begin(&json, "traceEvents");
    for (uint32_t i = 0; i < count; i++) {
        const struct kvt_load_chunk *chunk = &chunks[i];

        span_write(&json, start_ns,
            &(struct span){
                "read", chunk->read_begin_ns, chunk->read_end_ns, chunk->size, i, 1 + i % ROWS});
        span_write(&json, start_ns,
            &(struct span){"copy", chunk->copy_begin_ns, chunk->copy_end_ns, chunk->size, i,
                1 + ROWS + i % ROWS});
    }
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
    is_written = ferror(out) == 0;
    is_written = fclose(out) == 0 && is_written;
    if (!is_written)
        complain("cannot write all of %s", path);
    return is_written;
}

/* Reads and copies begin in the order of chunks, so that one walk finds both unions. */
double
load_overlap(const struct kvt_load_chunk *chunks, uint32_t count)
{
    uint64_t covered_ns = 0, both_ns = 0, total_ns = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t begin_ns =
            chunks[i].copy_begin_ns > covered_ns ? chunks[i].copy_begin_ns : covered_ns;
        uint64_t end_ns = chunks[i].copy_end_ns, at_ns = begin_ns;

        if (end_ns <= begin_ns)
            continue;
        covered_ns = end_ns;
        total_ns += end_ns - begin_ns;
        for (uint32_t j = 0; j < count && at_ns < end_ns; j++) {
            uint64_t from_ns = chunks[j].read_begin_ns > at_ns ? chunks[j].read_begin_ns : at_ns;
            uint64_t to_ns = chunks[j].read_end_ns < end_ns ? chunks[j].read_end_ns : end_ns;

            if (to_ns <= from_ns)
                continue;
            both_ns += to_ns - from_ns;
            at_ns = to_ns;
        }
    }
    return total_ns == 0 ? 0 : (double)both_ns / (double)total_ns;
}
