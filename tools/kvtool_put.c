/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_put.c - `kvtool put`: keep one block, durable when the command ends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"
#include "quantity.h"

/* A store made without geometry has 64 segments, or 256 MiB ones where there is more room, and
 * takes blocks of a quarter of a segment; without a capacity it has 8 GiB (kvtier.h). */
enum {
    BLOCKS_PER_CAPACITY = 256,
    BLOCK_BYTES_LEAST = 256 << 10, /* A quarter of the smallest segment. */
};

static const uint64_t nvme_bytes_default = UINT64_C(8) << 30;

enum {
    OPTION_DESCRIPTION,
    OPTION_REPLACE,
    OPTION_CREATE,
    OPTION_NVME,
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_DESCRIPTION] = {"--namespace-description", "TEXT",
        "what must agree for blocks of the namespace to be\n"
        "usable; only for a namespace that is new, or as it was"},
    [OPTION_REPLACE] = {"--replace", NULL, "replace a block that is there"},
    [OPTION_CREATE] = {"--create", NULL, "make the store when there is none"},
    [OPTION_NVME] = {"--nvme", "SIZE",
        "NVMe capacity: of the new store, or from now on\n(K, M, G, T: powers of two)"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_put_line = {
    .program = "kvtool",
    .command = "put",
    .operands = "DIR KEY [FILE|-]",
    .summary = "Keep the bytes of FILE (default: standard input) as one block, durably.",
    .text =
        "JSON: {\"key\", \"length_bytes\", \"outcome\": \"stored\" or \"exists\"}. A block that\n"
        "is there stays as it is, and the exit code is 0.",
    .operand_min = 2,
    .operand_max = 3,
    .options = options,
};

/* What to put. */
struct content {
    uint8_t *bytes;
    uint64_t length;
};

static bool
content_read_from(FILE *in, const char *file, struct content *content)
{
    size_t limit = (size_t)KVT_BLOCK_BYTES_MAX + 1;

    content->bytes = malloc(limit);
    if (content->bytes == NULL) {
        complain("there is no memory for a block of up to %zu bytes", limit - 1);
        return false;
    }
    content->length = fread(content->bytes, 1, limit, in);
    if (ferror(in) != 0) {
        complain("cannot read %s: %s", file, strerror(errno));
        return false;
    }
    if (content->length == 0 || content->length == limit) {
        complain("%s has %s bytes: a block has 1 to %zu", file,
            content->length == 0 ? "no" : "too many", limit - 1);
        return false;
    }
    return true;
}

static bool
content_read(const char *file, struct content *content)
{
    FILE *in = stdin;
    bool is_fine = false;

    if (strcmp(file, "-") == 0)
        return content_read_from(in, "standard input", content);
    in = fopen(file, "rbe");
    if (in == NULL) {
        complain("cannot read %s: %s", file, strerror(errno));
        return false;
    }
    is_fine = content_read_from(in, file, content);
    fclose(in);
    return is_fine;
}

/* The namespace as it is, or a new one with the description that was given. */
static enum kvt_status
namespace_take(kvt_store *store, const char *name, const char *description, kvt_namespace *ns_out)
{
    struct kvt_namespace_info info;
    enum kvt_status status = KVT_MISS;

    if (description == NULL)
        status = namespace_find(store, name, &info);
    if (status == KVT_OK)
        *ns_out = info.ns;
    if (status != KVT_MISS)
        return status;
    if (description == NULL)
        description = "";
    return kvt_namespace_open(store, name, description, strlen(description), ns_out);
}

/* Waits for both stages. KVT_OK: stored and committed; KVT_EXISTS: it was there, and is durable. */
static enum kvt_status
block_put(kvt_store *store, kvt_namespace ns, const struct kvt_put *put)
{
    struct kvt_result visible = {0};
    struct kvt_result durable = {0};
    kvt_ticket *ticket = NULL;
    enum kvt_status status = kvt_put_submit(store, ns, put, 1, KVT_SYNC, NULL, &ticket);

    if (status != KVT_OK)
        return status;
    status = kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, &visible, 1);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DURABLE, &durable, 1);
    kvt_ticket_free(ticket);
    if (status != KVT_OK)
        return status;
    if (visible.status < 0)
        return visible.status;
    if (durable.status != KVT_OK && durable.status != KVT_EXISTS)
        return durable.status;
    return visible.status;
}

static void
outcome_print(const struct arguments *arguments, uint64_t length, bool was_there)
{
    const char *outcome = was_there ? "exists" : "stored";
    struct json json = JSON_INIT(stdout);

    if (arguments->values[OPTION_JSON] == NULL) {
        text_print(stdout, arguments->operands[1], 0);
        printf(" %s\n", was_there ? "was there already; nothing changed" : "is stored");
        return;
    }
    json_object_begin(&json, NULL);
    json_string(&json, "key", arguments->operands[1]);
    json_number(&json, "length_bytes", length);
    json_string(&json, "outcome", outcome);
    json_object_end(&json);
    json_end(&json);
}

static int
put_into(kvt_store *store, const struct arguments *arguments, const struct spelled_key *key,
    const struct content *content)
{
    struct kvt_put put = {
        .key = key->key,
        .source = content->bytes,
        .length = content->length,
        .flags = arguments->values[OPTION_REPLACE] != NULL ? KVT_PUT_REPLACE : 0,
    };
    kvt_namespace ns = {0};
    enum kvt_status status =
        namespace_take(store, key->namespace_name, arguments->values[OPTION_DESCRIPTION], &ns);

    if (status != KVT_OK) {
        complain_status(status, "cannot open the namespace %s", key->namespace_name);
        return EXIT_PROBLEM;
    }
    status = block_put(store, ns, &put);
    if (status != KVT_OK && status != KVT_EXISTS) {
        complain_status(status, "cannot keep the block %s", arguments->operands[1]);
        return EXIT_PROBLEM;
    }
    outcome_print(arguments, content->length, status == KVT_EXISTS);
    return EXIT_FINE;
}

/* The largest block of a new store: what its capacity suggests, or what this block needs. */
static uint64_t
new_block_bytes_max(uint64_t nvme_bytes, uint64_t length)
{
    uint64_t capacity = nvme_bytes == 0 ? nvme_bytes_default : nvme_bytes;
    uint64_t block_bytes = BLOCK_BYTES_LEAST;

    while (block_bytes < KVT_BLOCK_BYTES_MAX &&
           (block_bytes < length || block_bytes <= capacity / BLOCKS_PER_CAPACITY / 2))
        block_bytes *= 2;
    return block_bytes;
}

/* Larger blocks than a store was made for are refused before a namespace is made for them. */
static bool
block_fits(kvt_store *store, const char *path, uint64_t length)
{
    struct kvt_options made = KVT_OPTIONS_INIT;
    enum kvt_status status = kvt_options_get(store, &made);

    if (status != KVT_OK) {
        complain_status(status, "cannot ask %s for its options", path);
        return false;
    }
    if (length <= made.block_bytes_max)
        return true;
    complain("a block of %llu bytes does not fit %s, which was made for blocks of 1 to %llu bytes",
        (unsigned long long)length, path, (unsigned long long)made.block_bytes_max);
    return false;
}

static int
put_content(const struct arguments *arguments, const struct spelled_key *key, uint64_t nvme_bytes,
    const struct content *content)
{
    const char *path = arguments->operands[0];
    struct kvt_options existing = KVT_OPTIONS_INIT;
    struct kvt_options created;
    kvt_store *store = NULL;
    int exit_code = EXIT_PROBLEM;

    existing.host_capacity_bytes = KVTOOL_HOST_BYTES + content->length * 2;
    existing.host_capacity_bytes -= existing.host_capacity_bytes % KVTOOL_HOST_BYTES;
    existing.nvme_capacity_bytes = nvme_bytes;
    created = existing;
    created.block_bytes_max = new_block_bytes_max(nvme_bytes, content->length);
    store = store_open_to_write(
        path, &existing, arguments->values[OPTION_CREATE] != NULL ? &created : NULL);
    if (store == NULL)
        return EXIT_PROBLEM;
    if (block_fits(store, path, content->length))
        exit_code = put_into(store, arguments, key, content);
    return store_close(store, path) ? exit_code : EXIT_PROBLEM;
}

int
kvtool_put(int argc, char **argv)
{
    struct arguments arguments;
    struct spelled_key key;
    struct content content = {0};
    uint64_t nvme_bytes = 0;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_put_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (arguments.values[OPTION_NVME] != NULL &&
        !quantity_size(arguments.values[OPTION_NVME], &nvme_bytes)) {
        complain("--nvme %s is no size", arguments.values[OPTION_NVME]);
        return EXIT_USAGE;
    }
    if (!spelled_key_read(&key, arguments.operands[1]))
        return EXIT_USAGE;
    exit_code = EXIT_PROBLEM;
    if (content_read(arguments.operand_count > 2 ? arguments.operands[2] : "-", &content))
        exit_code = put_content(&arguments, &key, nvme_bytes, &content);
    free(content.bytes);
    spelled_key_free(&key);
    return exit_code;
}
