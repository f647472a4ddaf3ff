/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_put.c - `kvtool put`: keep a file or what a pipe brings, durable when the command ends.
 *
 * What fits into a block of the store is one; what is larger is parts and a manifest.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_content.h"
#include "kvtool_parts.h"
#include "kvtool_sweep.h"

enum {
    PART_BYTES_MAX = 8 << 20
};

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
        "NVMe capacity of a store that is made (default 8G); one that\n"
        "is there stays as it is (K, M, G, T: powers of two)"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_put_line = {
    .program = "kvtool",
    .command = "put",
    .operands = "DIR KEY [FILE|-]",
    .summary = "Keep the bytes of FILE (default: standard input) durably.",
    .text =
        "What is larger than a block of the store is kept as parts and a manifest, which is put\n"
        "last: a reader finds all or nothing, and so does one after Ctrl-C. A block that is there\n"
        "stays as it is, and the exit code is 0; a file that cannot be read any more is replaced.\n"
        "JSON: {\"key\", \"length_bytes\", \"outcome\": \"stored\" or \"exists\"}",
    .operand_min = 2,
    .operand_max = 3,
    .options = options,
};

/* --- Namespaces -------------------------------------------------------------------- */

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

/* --- Putting ---------------------------------------------------------------------------------- */

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

/* One block. KVT_OK: stored. KVT_EXISTS. Else with a sentence. */
static enum kvt_status
plain_put(kvt_store *store, const struct file_put *wish, const struct source *source,
    const char *spelling)
{
    struct kvt_put put = {
        .key = wish->key,
        .source = source->head,
        .length = source->head_length,
        .flags = wish->flags,
    };
    enum kvt_status status = block_put(store, wish->ns, &put);

    if (status != KVT_OK && status != KVT_EXISTS)
        complain_status(status, "cannot keep the block %s", spelling);
    return status;
}

static enum kvt_status
file_put_run(
    kvt_store *store, const struct file_put *wish, struct source *source, struct looked *stored_out)
{
    if ((wish->flags & KVT_PUT_REPLACE) == 0) {
        uint8_t tiers = 0;

        if (kvt_lookup(store, wish->ns, &wish->key, 1, &tiers, NULL, NULL) == KVT_OK && tiers != 0)
            return KVT_EXISTS;
    }
    return parts_put(store, wish, source, stored_out) ? KVT_OK : KVT_CANCELLED;
}

/* What the key has now gives way to what is put: when it is to be replaced, and when it is a file
 * that is not whole, which nobody can read. False, with a sentence: that could not be found out. */
static bool
old_content_look(kvt_store *store, struct file_put *wish, struct looked *old_out)
{
    bool is_replaced = (wish->flags & KVT_PUT_REPLACE) != 0;
    enum kvt_status status = file_look(store, wish->ns, &wish->key, !is_replaced, old_out);

    if (status == KVT_MISS)
        wish->flags |= KVT_PUT_REPLACE;
    if (status == KVT_CANCELLED)
        complain("interrupted");
    else if (status != KVT_OK && status != KVT_MISS)
        complain_status(status, "cannot read the file that is there");
    return status == KVT_OK || status == KVT_MISS;
}

/* What was put. */
struct outcome {
    enum kvt_status status; /* KVT_OK, KVT_EXISTS, or a failure that has its sentence. */
    struct looked there;    /* What the key has now. */
    bool is_file;
};

static struct outcome
put_into(kvt_store *store, const struct arguments *arguments, const struct spelled_key *key,
    struct source *source)
{
    struct kvt_options made = KVT_OPTIONS_INIT;
    struct file_put wish = {.key = key->key};
    struct looked old;
    struct outcome outcome = {.status = kvt_options_get(store, &made)};

    if (outcome.status == KVT_OK)
        outcome.status = namespace_take(
            store, key->namespace_name, arguments->values[OPTION_DESCRIPTION], &wish.ns);
    if (outcome.status != KVT_OK) {
        complain_status(outcome.status, "cannot open the namespace %s", key->namespace_name);
        return outcome;
    }
    wish.room_bytes = store_room_bytes(&made);
    wish.part_bytes = made.block_bytes_max < PART_BYTES_MAX ? made.block_bytes_max : PART_BYTES_MAX;
    if (arguments->values[OPTION_REPLACE] != NULL)
        wish.flags = KVT_PUT_REPLACE;
    if (!old_content_look(store, &wish, &old)) {
        outcome.status = KVT_CANCELLED;
        return outcome;
    }
    outcome.is_file = source->head_length == 0 || source->head_length > made.block_bytes_max ||
                      manifest_is_like(source->head, source->head_length);
    outcome.there = (struct looked){.length = source->head_length};
    outcome.status = outcome.is_file ? file_put_run(store, &wish, source, &outcome.there)
                                     : plain_put(store, &wish, source, arguments->operands[1]);
    if (outcome.status == KVT_EXISTS)
        outcome.there = old;
    if (outcome.status == KVT_OK && parts_sweep(store, wish.ns, &wish.key, outcome.there.file) < 0)
        complain("parts that nobody needs could not be deleted: the next put or rm does it");
    return outcome;
}

/*
 * What a file's last blocks have pushed out is known when the store is closed: until then segments
 * may be reclaimed. A file that lost a part is deleted, with a sentence; one of which that cannot
 * be found out is kept, with another.
 */
static bool
file_has_stayed(const char *path, const struct spelled_key *key, const char *spelling)
{
    struct kvt_options existing = KVT_OPTIONS_INIT;
    struct content content;
    kvt_store *store = store_open_to_read(path);
    enum kvt_status status;

    if (store == NULL)
        return false;
    status = content_find(store, path, key, spelling, &content);
    content_free(&content);
    if (!store_close(store, path) || status == KVT_OK)
        return status == KVT_OK;
    if (status != KVT_MISS) {
        complain("%s is stored, but that all of it is there could not be verified", spelling);
        return false;
    }
    existing.host_capacity_bytes = KVTOOL_HOST_BYTES;
    store = store_open_to_write(path, &existing, NULL);
    if (store == NULL)
        return false;
    (void)content_delete(store, key);
    (void)store_close(store, path);
    return false;
}

static int
put_content(const struct arguments *arguments, const struct spelled_key *key, uint64_t nvme_bytes,
    struct source *source)
{
    const char *path = arguments->operands[0];
    struct kvt_options existing = KVT_OPTIONS_INIT;
    struct kvt_options created;
    struct outcome outcome;
    kvt_store *store = NULL;
    bool may_create = arguments->values[OPTION_CREATE] != NULL;

    existing.host_capacity_bytes = KVTOOL_HOST_BYTES * 2 + source->head_length * 2;
    existing.host_capacity_bytes -= existing.host_capacity_bytes % KVTOOL_HOST_BYTES;
    created = existing;
    new_options_set(
        &created, nvme_bytes, source->head_length <= KVT_BLOCK_BYTES_MAX ? source->head_length : 0);
    if (may_create && store_is_missing(path) && !source_fits(source, store_room_bytes(&created)))
        return EXIT_PROBLEM;
    store = store_open_to_write(path, &existing, may_create ? &created : NULL);
    if (store == NULL)
        return EXIT_PROBLEM;
    outcome = put_into(store, arguments, key, source);
    if (!store_close(store, path) || (outcome.status != KVT_OK && outcome.status != KVT_EXISTS))
        return EXIT_PROBLEM;
    if (outcome.is_file && outcome.status == KVT_OK &&
        !file_has_stayed(path, key, arguments->operands[1]))
        return EXIT_PROBLEM;
    outcome_print(arguments, outcome.there.length, outcome.status == KVT_EXISTS);
    return EXIT_FINE;
}

/* --- The source ------------------------------------------------------------------------------- */

/* Opens it, and reads what could be one block: that much decides how it is kept. */
static bool
source_open(struct source *source, const char *file)
{
    uint64_t limit = KVT_BLOCK_BYTES_MAX + 1;
    struct stat facts;
    uint8_t *head = NULL;

    source->name = strcmp(file, "-") == 0 ? "standard input" : file;
    source->descriptor = STDIN_FILENO;
    if (strcmp(file, "-") != 0)
        source->descriptor = open(file, O_RDONLY | O_CLOEXEC);
    if (source->descriptor < 0) {
        complain("cannot read %s: %s", file, strerror(errno));
        return false;
    }
    if (source->descriptor != STDIN_FILENO && fstat(source->descriptor, &facts) == 0 &&
        S_ISREG(facts.st_mode))
        source->length = (uint64_t)facts.st_size;
    head = malloc(limit);
    if (head == NULL) {
        complain(
            "there is no memory for a block of up to %llu bytes", (unsigned long long)limit - 1);
        return false;
    }
    source->head_length = source_read(source, head, limit);
    source->head = head;
    return !source->is_bad;
}

static void
source_close(struct source *source)
{
    free(source->head);
    if (source->descriptor > STDIN_FILENO)
        close(source->descriptor);
}

int
kvtool_put(int argc, char **argv)
{
    struct arguments arguments;
    struct spelled_key key;
    struct source source = {0};
    uint64_t nvme_bytes = 0;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_put_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (!new_capacity_read(arguments.values[OPTION_NVME], &nvme_bytes))
        return EXIT_USAGE;
    if (!spelled_key_read(&key, arguments.operands[1]))
        return EXIT_USAGE;
    exit_code = EXIT_PROBLEM;
    interrupt_watch();
    if (source_open(&source, arguments.operand_count > 2 ? arguments.operands[2] : "-"))
        exit_code = put_content(&arguments, &key, nvme_bytes, &source);
    source_close(&source);
    spelled_key_free(&key);
    return exit_code;
}
