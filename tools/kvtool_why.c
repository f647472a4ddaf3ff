/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_why.c - `kvtool why`: where a block is, or what became of it.
 *
 * Of a closed store the library is asked. Of one that a process has open it is what that process
 * has written to DIR/fates, each minute: where a block is now only that process knows.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtool.h"
#include "kvtool_owner.h"
#include "quantity.h"

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_why_line = {
    .program = "kvtool",
    .command = "why",
    .operands = "DIR KEY",
    .summary = "Tell where a block is, or why it is not there.",
    .text =
        "A store that a process has open is told of as it was written last (each minute).\n"
        "JSON: {\"key\", \"is_open\", \"written_seconds\" (of an open one; 0: nothing yet), "
        "\"tiers\",\n"
        "\"fate\" (none, evicted, reclaimed, refused, damaged, deleted, cleared, put_failed,\n"
        "device_lost, closed), \"when_seconds\" (since 1970), \"score\", \"cut\" (what decided, "
        "or\n"
        "null), \"other_namespace\" (that has the key, or null)}. Exit code 0 whatever became of "
        "it.",
    .operand_min = 2,
    .operand_max = 2,
    .options = options,
};

static const char *const fate_names[] = {
    [KVT_FATE_NONE] = "none",
    [KVT_FATE_EVICTED] = "evicted",
    [KVT_FATE_RECLAIMED] = "reclaimed",
    [KVT_FATE_REFUSED] = "refused",
    [KVT_FATE_DAMAGED] = "damaged",
    [KVT_FATE_DELETED] = "deleted",
    [KVT_FATE_CLEARED] = "cleared",
    [KVT_FATE_PUT_FAILED] = "put_failed",
    [KVT_FATE_DEVICE_LOST] = "device_lost",
    [KVT_FATE_CLOSED] = "closed",
};

static const char *const fate_texts[] = {
    [KVT_FATE_NONE] = "",
    [KVT_FATE_EVICTED] = "evicted: memory was full and NVMe did not have it, or the map was full",
    [KVT_FATE_RECLAIMED] = "given up on NVMe with its segment, for room",
    [KVT_FATE_REFUSED] = "evicted from memory, for room, and not worth a write to NVMe",
    [KVT_FATE_DAMAGED] = "taken out because its bytes were damaged",
    [KVT_FATE_DELETED] = "deleted",
    [KVT_FATE_CLEARED] = "cleared with its namespace",
    [KVT_FATE_PUT_FAILED] = "put without success: there was no room, or its bytes did not arrive",
    [KVT_FATE_DEVICE_LOST] = "lost with a device, which alone had it",
    [KVT_FATE_CLOSED] = "only in memory when the store was closed",
};

struct answer {
    struct kvt_explanation why;
    const char *key;
    bool is_open;
    uint64_t written_seconds;
    char other[NAMESPACE_NAME_MAX + 1]; /* "": none. */
};

static const char *
age_text(char text[QUANTITY_TEXT_BYTES], uint64_t seconds)
{
    uint64_t now = (uint64_t)time(NULL);
    uint64_t age = now > seconds ? now - seconds : 0;
    const struct {
        uint64_t seconds;
        const char *unit;
    } units[] = {{86400, "days"}, {3600, "h"}, {60, "min"}};

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (age >= 2 * units[i].seconds) {
            snprintf(
                text, QUANTITY_TEXT_BYTES, "%" PRIu64 " %s", age / units[i].seconds, units[i].unit);
            return text;
        }
    }
    snprintf(text, QUANTITY_TEXT_BYTES, "%" PRIu64 " s", age);
    return text;
}

/* --- Asking ----------------------------------------------------------------------------------- */

static bool
other_name(kvt_store *store, struct answer *answer)
{
    struct kvt_namespace_info info;
    enum kvt_status status = KVT_OK;
    uint32_t cursor = 0;

    while (answer->why.other.id != 0 && answer->other[0] == '\0' && status == KVT_OK) {
        status = kvt_namespace_next(store, &cursor, &info);
        if (status == KVT_OK && info.ns.id == answer->why.other.id)
            snprintf(answer->other, sizeof(answer->other), "%s", info.name);
    }
    if (status >= 0)
        return true;
    complain_status(status, "cannot list the namespaces");
    return false;
}

static bool
closed_ask(const char *path, const struct spelled_key *key, struct answer *answer)
{
    kvt_store *store = store_open_to_read(path);
    struct kvt_namespace_info info;
    enum kvt_status status = KVT_OK;
    bool is_fine = false;

    if (store == NULL)
        return false;
    status = namespace_find(store, key->namespace_name, &info);
    if (status == KVT_OK)
        status = kvt_why(store, info.ns, &key->key, &answer->why);
    if (status == KVT_MISS)
        namespace_complain(key->namespace_name, path);
    else if (status != KVT_OK)
        complain_status(status, "cannot ask for %s", answer->key);
    else
        is_fine = other_name(store, answer);
    return store_close(store, path) && is_fine;
}

static bool
open_ask(const char *path, const struct spelled_key *key, struct answer *answer)
{
    enum kvt_status status =
        kvt_why_read(path, key->namespace_name, &key->key, &answer->why, &answer->written_seconds);

    if (status == KVT_OK)
        return true;
    complain_status(status, "cannot ask for %s in %s", answer->key, path);
    return false;
}

/* --- Answering -------------------------------------------------------------------------------- */

static void
score_print(const struct kvt_explanation *why)
{
    if (isnan(why->score))
        return;
    if (why->fate == KVT_FATE_REFUSED) {
        char texts[2][QUANTITY_TEXT_BYTES];

        printf(": it was expected to save %s there, and a write costs %s",
            quantity_time_text(texts[0], why->score), quantity_time_text(texts[1], why->cut));
        return;
    }
    printf(": it scored %.2g", why->score);
    if (isnan(why->cut))
        return;
    printf(why->fate == KVT_FATE_RECLAIMED ? ", the least that was written again %.2g"
                                           : ", the block that went before it %.2g",
        why->cut);
}

static void
answer_print(const struct answer *answer)
{
    const struct kvt_explanation *why = &answer->why;
    char text[QUANTITY_TEXT_BYTES];

    text_print(stdout, answer->key, 0);
    if (why->tiers != 0) {
        printf(" is there: %s\n", tiers_text(why->tiers));
        return;
    }
    if (why->fate != KVT_FATE_NONE && why->fate < sizeof(fate_texts) / sizeof(fate_texts[0])) {
        printf(" was %s, %s ago", fate_texts[why->fate], age_text(text, why->when_seconds));
        score_print(why);
        printf("\n");
    } else if (answer->is_open) {
        printf(" has not left, as far as is remembered: it is there, or was never stored\n");
    } else {
        printf(" was never stored, or is not remembered any more (%s blocks are), or was only in "
               "memory when its process ended\n",
            quantity_count_text(text, KVT_FATES_MAX));
    }
    if (answer->other[0] != '\0') {
        printf("the namespace ");
        text_print(stdout, answer->other, 0);
        printf(" has this key\n");
    }
    if (answer->is_open && answer->written_seconds == 0)
        printf("a process has the store open, and has written nothing of this yet\n");
    else if (answer->is_open)
        printf("a process has the store open: this is what it wrote %s ago; what has left may be "
               "back\n",
            age_text(text, answer->written_seconds));
}

static void
answer_print_json(const struct answer *answer)
{
    struct json json = JSON_INIT(stdout);
    const struct kvt_explanation *why = &answer->why;
    bool is_known = why->fate < sizeof(fate_names) / sizeof(fate_names[0]);

    json_object_begin(&json, NULL);
    json_string(&json, "key", answer->key);
    json_bool(&json, "is_open", answer->is_open);
    json_number(&json, "written_seconds", answer->written_seconds);
    json_string(&json, "tiers", tiers_text(why->tiers));
    json_string(&json, "fate", fate_names[is_known ? why->fate : KVT_FATE_NONE]);
    json_number(&json, "when_seconds", why->when_seconds);
    json_real(&json, "score", why->score);
    json_real(&json, "cut", why->cut);
    if (answer->other[0] != '\0')
        json_string(&json, "other_namespace", answer->other);
    else
        json_null(&json, "other_namespace");
    json_object_end(&json);
    json_end(&json);
}

int
kvtool_why(int argc, char **argv)
{
    struct arguments arguments;
    struct answer answer = {.why = {.struct_size = sizeof(answer.why)}};
    struct spelled_key key;
    struct owner *owner = NULL;
    int exit_code = EXIT_FINE;
    bool is_fine = false;

    if (!arguments_read(&kvtool_why_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    answer.key = arguments.operands[1];
    if (!spelled_key_read(&key, answer.key))
        return EXIT_USAGE;
    owner = malloc(sizeof(*owner));
    if (owner == NULL) {
        complain("there is no memory to look at %s", arguments.operands[0]);
    } else {
        owner_find(arguments.operands[0], owner);
        answer.is_open = owner->is_open;
        is_fine = answer.is_open ? open_ask(arguments.operands[0], &key, &answer)
                                 : closed_ask(arguments.operands[0], &key, &answer);
    }
    if (is_fine && arguments.values[OPTION_JSON] != NULL)
        answer_print_json(&answer);
    else if (is_fine)
        answer_print(&answer);
    free(owner);
    spelled_key_free(&key);
    return is_fine ? EXIT_FINE : EXIT_PROBLEM;
}
