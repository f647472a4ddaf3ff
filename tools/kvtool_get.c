/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_get.c - `kvtool get`: one block's bytes, verified, to a file or a pipe.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"

enum {
    PAGE_BYTES = 4096
};

enum {
    OPTION_OUTPUT,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_OUTPUT] = {"-o", "FILE",
        "write the bytes here (-: standard output, which is the default)"},
    [OPTION_JSON] = {"--json", NULL, "print facts as JSON; needs -o FILE"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_get_line = {
    .program = "kvtool",
    .command = "get",
    .operands = "DIR KEY",
    .summary = "Read one block, verify it and write its bytes.",
    .text = "JSON: {\"key\", \"length_bytes\", \"tier\", \"file\"}. A block that is not there, or\n"
            "whose bytes are damaged, gives exit code 1 and no output.",
    .operand_min = 2,
    .operand_max = 2,
    .options = options,
};

/* A block's bytes in memory. */
struct block {
    void *bytes;
    uint64_t capacity;
    struct kvt_result result;
};

/* Reads into the buffer as it is. */
static enum kvt_status
block_read_once(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, struct block *block)
{
    struct kvt_get get = {
        .key = *key,
        .destination = block->bytes,
        .capacity = block->capacity,
        .flags = KVT_GET_TRANSIENT,
    };
    kvt_ticket *ticket = NULL;
    enum kvt_status status = kvt_get_submit(store, ns, &get, 1, NULL, &ticket);

    if (status != KVT_OK)
        return status;
    status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, &block->result, 1);
    kvt_ticket_free(ticket);
    return status != KVT_OK ? status : block->result.status;
}

static bool
block_resize(struct block *block, uint64_t length)
{
    free(block->bytes);
    block->capacity = (length + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    block->bytes = aligned_alloc(PAGE_BYTES, block->capacity);
    return block->bytes != NULL;
}

/* Reads the whole block: a buffer that is too small tells how large it must be. */
static enum kvt_status
block_read(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, struct block *block)
{
    enum kvt_status status = KVT_OK;

    if (!block_resize(block, PAGE_BYTES))
        return KVT_E_NOMEM;
    status = block_read_once(store, ns, key, block);
    if (status != KVT_E_INVAL || block->result.length <= block->capacity ||
        block->result.length > KVT_BLOCK_BYTES_MAX)
        return status;
    if (!block_resize(block, block->result.length))
        return KVT_E_NOMEM;
    return block_read_once(store, ns, key, block);
}

static bool
block_write(const struct block *block, const char *file)
{
    bool to_stdout = strcmp(file, "-") == 0;
    FILE *out = to_stdout ? stdout : fopen(file, "wbe");
    bool is_fine = false;

    if (out == NULL) {
        complain("cannot write %s: %s", file, strerror(errno));
        return false;
    }
    is_fine = fwrite(block->bytes, 1, block->result.length, out) == block->result.length;
    is_fine = fflush(out) == 0 && is_fine;
    if (!is_fine)
        complain("cannot write %s: %s", file, strerror(errno));
    if (!to_stdout && fclose(out) != 0 && is_fine) {
        complain("cannot write %s: %s", file, strerror(errno));
        is_fine = false;
    }
    return is_fine;
}

/* A miss may be a block that was never there, or one whose bytes are damaged. */
static void
miss_complain(kvt_store *store, const char *key)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (kvt_stats_get(store, &stats) == KVT_OK && stats.corrupt_count > 0)
        complain("the block %s is there, but its bytes are damaged: it counts as missing", key);
    else if (stats.read_failed_count > 0)
        complain("the block %s is there, but the device cannot read it: it counts as missing", key);
    else
        complain("there is no block %s", key);
}

static bool
block_find(kvt_store *store, const char *path, const struct spelled_key *key, const char *spelling,
    struct block *block)
{
    struct kvt_namespace_info info;
    enum kvt_status status = namespace_find(store, key->namespace_name, &info);

    if (status == KVT_MISS) {
        namespace_complain(key->namespace_name, path);
        return false;
    }
    if (status == KVT_OK)
        status = block_read(store, info.ns, &key->key, block);
    if (status == KVT_MISS)
        miss_complain(store, spelling);
    else if (status != KVT_OK)
        complain_status(status, "cannot read the block %s", spelling);
    return status == KVT_OK;
}

static void
facts_print(const char *key, const struct block *block, const char *file)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_string(&json, "key", key);
    json_number(&json, "length_bytes", block->result.length);
    json_string(&json, "tier", tiers_text((uint8_t)block->result.tier));
    json_string(&json, "file", file);
    json_object_end(&json);
    json_end(&json);
}

static bool
get(const struct arguments *arguments, const struct spelled_key *key, const char *file)
{
    const char *path = arguments->operands[0];
    kvt_store *store = store_open_to_read(path);
    struct block block = {0};
    bool is_fine = false;

    if (store == NULL)
        return false;
    is_fine =
        block_find(store, path, key, arguments->operands[1], &block) && block_write(&block, file);
    if (is_fine && arguments->values[OPTION_JSON] != NULL)
        facts_print(arguments->operands[1], &block, file);
    is_fine = store_close(store, path) && is_fine;
    free(block.bytes);
    return is_fine;
}

int
kvtool_get(int argc, char **argv)
{
    struct arguments arguments;
    struct spelled_key key;
    const char *file = "-";
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_get_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (arguments.values[OPTION_OUTPUT] != NULL)
        file = arguments.values[OPTION_OUTPUT];
    else if (isatty(STDOUT_FILENO) == 1) {
        complain("the bytes would go to the terminal: name a file with -o FILE, or -o -");
        return EXIT_USAGE;
    }
    if (arguments.values[OPTION_JSON] != NULL && strcmp(file, "-") == 0) {
        complain(
            "--json and the bytes cannot both go to standard output: name a file with -o FILE");
        return EXIT_USAGE;
    }
    if (!spelled_key_read(&key, arguments.operands[1]))
        return EXIT_USAGE;
    exit_code = get(&arguments, &key, file) ? EXIT_FINE : EXIT_PROBLEM;
    spelled_key_free(&key);
    return exit_code;
}
