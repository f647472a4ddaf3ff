/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_verify.c - `kvtool verify`: read single blocks, or files in parts, and tell whether they
 * are whole.
 */
#include "complain.h"
#include "interrupt.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_content.h"

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_verify_line = {
    .program = "kvtool",
    .command = "verify",
    .operands = "DIR KEY...",
    .summary = "Read the blocks or files of these keys and tell whether they are whole.",
    .text = "JSON: {\"keys\" [{\"key\", \"is_whole\", \"length_bytes\"} ...]}. The exit code is 1 "
            "when one\n"
            "is missing or damaged; a sentence says which.",
    .operand_min = 2,
    .operand_max = ARGUMENT_OPERAND_MAX,
    .options = options,
};

static bool
bytes_pass(void *context, const void *bytes, uint64_t size)
{
    (void)context;
    (void)bytes;
    (void)size;
    if (interrupt_came())
        complain("interrupted");
    return !interrupt_came();
}

/* Reads it. False, with a sentence: it is not whole. */
static bool
key_verify(kvt_store *store, const char *path, const char *spelling, struct json *json)
{
    struct spelled_key key;
    struct content content;
    bool is_whole = false;

    if (!spelled_key_read(&key, spelling))
        return false;
    is_whole = content_find(store, path, &key, spelling, &content) == KVT_OK &&
               content_read(store, &key, spelling, &content, bytes_pass, NULL);
    if (json != NULL) {
        json_object_begin(json, NULL);
        json_string(json, "key", spelling);
        json_bool(json, "is_whole", is_whole);
        json_number(json, "length_bytes", is_whole ? content.length : 0);
        json_object_end(json);
    } else if (is_whole) {
        text_print(stdout, spelling, 0);
        printf(" is whole\n");
    }
    content_free(&content);
    spelled_key_free(&key);
    return is_whole;
}

int
kvtool_verify(int argc, char **argv)
{
    struct arguments arguments;
    struct json json = JSON_INIT(stdout);
    struct json *out = NULL;
    kvt_store *store = NULL;
    bool is_fine = true;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_verify_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    for (int i = 1; i < arguments.operand_count; i++) {
        struct spelled_key key;

        if (!spelled_key_read(&key, arguments.operands[i]))
            return EXIT_USAGE;
        spelled_key_free(&key);
    }
    store = store_open_to_read(arguments.operands[0]);
    if (store == NULL)
        return EXIT_PROBLEM;
    interrupt_watch();
    if (arguments.values[OPTION_JSON] != NULL) {
        out = &json;
        json_object_begin(out, NULL);
        json_array_begin(out, "keys");
    }
    for (int i = 1; i < arguments.operand_count && !interrupt_came(); i++)
        is_fine = key_verify(store, arguments.operands[0], arguments.operands[i], out) && is_fine;
    if (out != NULL) {
        json_array_end(out);
        json_object_end(out);
        json_end(out);
    }
    return store_close(store, arguments.operands[0]) && is_fine && !interrupt_came() ? EXIT_FINE
                                                                                     : EXIT_PROBLEM;
}
