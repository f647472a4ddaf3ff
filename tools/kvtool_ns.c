/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_ns.c - `kvtool ns`: the namespaces of a store, and what each holds.
 */
#include <stdio.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_names.h"

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_ns_line = {
    .program = "kvtool",
    .command = "ns",
    .operands = "DIR",
    .summary = "List the namespaces of the store in DIR: id, blocks, payload, name.",
    .text = "JSON: {\"namespaces\": [{\"id\", \"name\", \"blocks\", \"block_bytes\"} ...]}",
    .operand_min = 1,
    .operand_max = 1,
    .options = options,
};

static enum kvt_status
namespaces_print(kvt_store *store, struct json *json)
{
    struct kvt_namespace_info info;
    uint32_t cursor = 0;
    enum kvt_status status = KVT_OK;

    if (json != NULL) {
        json_object_begin(json, NULL);
        json_array_begin(json, "namespaces");
    }
    while ((status = kvt_namespace_next(store, &cursor, &info)) == KVT_OK) {
        if (json != NULL)
            namespace_print_json(json, &info);
        else
            namespace_print(&info);
    }
    if (json != NULL) {
        json_array_end(json);
        json_object_end(json);
        json_end(json);
    }
    return status == KVT_MISS ? KVT_OK : status;
}

int
kvtool_ns(int argc, char **argv)
{
    struct arguments arguments;
    struct json json = JSON_INIT(stdout);
    kvt_store *store = NULL;
    enum kvt_status status = KVT_OK;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_ns_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    store = store_open_to_read(arguments.operands[0]);
    if (store == NULL)
        return EXIT_PROBLEM;
    status = namespaces_print(store, arguments.values[OPTION_JSON] != NULL ? &json : NULL);
    if (status != KVT_OK)
        complain_status(status, "cannot list the namespaces of %s", arguments.operands[0]);
    if (!store_close(store, arguments.operands[0]) || status != KVT_OK)
        return EXIT_PROBLEM;
    return EXIT_FINE;
}
