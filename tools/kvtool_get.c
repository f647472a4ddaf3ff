/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_get.c - `kvtool get`: the bytes of a block or of a file in parts, verified, to a file or a
 * pipe.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "interrupt.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_content.h"
#include "kvtool_output.h"

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
    .summary = "Read a block, or a file in parts, verify it and write its bytes.",
    .text =
        "JSON: {\"key\", \"length_bytes\", \"tier\", \"file\"}. What is not there, or not whole,\n"
        "gives exit code 1, and FILE is not touched.",
    .operand_min = 2,
    .operand_max = 2,
    .options = options,
};

static void
facts_print(const char *key, const struct content *content, const char *file)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_string(&json, "key", key);
    json_number(&json, "length_bytes", content->length);
    json_string(&json, "tier", tiers_text((uint8_t)content->block.result.tier));
    json_string(&json, "file", file);
    json_object_end(&json);
    json_end(&json);
}

static bool
content_write(kvt_store *store, const struct spelled_key *key, const char *spelling,
    const struct content *content, const char *file)
{
    struct output output;
    bool is_fine = false;

    if (!output_open(&output, file))
        return false;
    is_fine = content_read(store, key, spelling, content, output_write, &output);
    return output_close(&output, is_fine) && is_fine;
}

static bool
get(const struct arguments *arguments, const struct spelled_key *key, const char *file)
{
    const char *path = arguments->operands[0];
    const char *spelling = arguments->operands[1];
    kvt_store *store = store_open_to_read(path);
    struct content content = {0};
    bool is_fine = false;

    if (store == NULL)
        return false;
    is_fine = content_find(store, path, key, spelling, &content) == KVT_OK &&
              content_write(store, key, spelling, &content, file);
    if (is_fine && arguments->values[OPTION_JSON] != NULL)
        facts_print(spelling, &content, file);
    content_free(&content);
    return store_close(store, path) && is_fine;
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
    interrupt_watch();
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
