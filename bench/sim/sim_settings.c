/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_settings.c - the command line of `tierbench sim`.
 */
#include <stdio.h>
#include <string.h>

#include "complain.h"
#include "quantity.h"
#include "sim.h"
#include "tierbench.h"

enum {
    OPTION_TRACE,
    OPTION_POLICY,
    OPTION_CAPACITY,
    OPTION_TIERS,
    OPTION_WRITE_PRICE,
    OPTION_WRITE_BUDGET,
    OPTION_SEGMENT_BLOCKS,
    OPTION_SCORE_FROM,
    OPTION_BLOCK_TOKENS,
    OPTION_HINT_ACCURACY,
    OPTION_CSV,
    OPTION_PLOT,
    OPTION_JSON,
};

enum {
    WORD_BYTES = 64,
    BLOCK_TOKENS_MAX = 1 << 20,
};

static const struct argument_option options[] = {
    [OPTION_TRACE] = {"--trace", "FILE[.zst]", "requests, one JSON object a line"},
    [OPTION_POLICY] = {"--policy", "NAMES",
        "separated by commas: lru, s3fifo, default (those of the\n"
        "library; default is GHI, which learns); lfu, sieve, arc, gdsf, 2q, lfuda (from the\n"
        "literature, leaf-first); min (the optimum: it knows the\n"
        "future)"},
    [OPTION_CAPACITY] = {"--capacity", "SIZES",
        "of one tier, separated by commas: blocks, or a share of\n"
        "the trace's unique blocks, as in 1000 or 5%"},
    [OPTION_TIERS] = {"--tiers", "H,D,N", "capacities of HBM, HOST and NVMe instead"},
    [OPTION_WRITE_PRICE] = {"--write-price", "MS",
        "with --tiers: what a block written to NVMe costs beside\ntime (default 0, with a budget "
        "4)"},
    [OPTION_WRITE_BUDGET] = {"--write-budget", "N",
        "with --tiers: so many blocks a second; the price follows,\nand begins at that one"},
    [OPTION_SEGMENT_BLOCKS] = {"--segment-blocks", "N",
        "with --tiers: reclaim NVMe by segments of N blocks, as\nthe store does"},
    [OPTION_SCORE_FROM] = {"--score-from", "N",
        "count from request N on (from 0; those before\nrun too)"},
    [OPTION_BLOCK_TOKENS] = {"--block-tokens", "N", "in a block (default 512)"},
    [OPTION_HINT_ACCURACY] = {"--hint-accuracy", "P",
        "blocks come with a hint whether they will return, right\nwith probability P (0 to 1) for "
        "all of a request"},
    [OPTION_CSV] = OUTPUT_CSV_OPTION,
    [OPTION_PLOT] = {"--plot", "DIR",
        "draw the hits over the capacities, into a file there\nthat has the trace's name "
        "(gnuplot)"},
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_sim_line = {
    .program = "tierbench",
    .command = "sim",
    .operands = "",
    .summary = "Simulate what policies keep of a recorded trace.",
    .text =
        "One request at a time, in the order of their times. The leading blocks that are there "
        "are\n"
        "its hits; then all of its blocks are there, and what is over the capacity goes, children\n"
        "before their parents. With --tiers blocks come to HBM, go down to HOST and NVMe, and "
        "keep\n"
        "the copies that they have there when they come up again. Time: computing a block takes\n"
        "18 ms and 0.3 ms for each block above it, loading it 1.34 ms from HOST, 6.7 ms from "
        "NVMe.\n"
        "\n"
        "JSON: \"trace\", \"unique_blocks\", \"requests\", \"blocks\" (asked for), "
        "\"input_tokens\",\n"
        "\"policy\", \"capacity_blocks\", \"capacity_percent\" (of the unique blocks),\n"
        "\"prefix_token_hit_percent\" (input tokens that hits make needless),\n"
        "\"block_hit_percent\", \"ns_per_access\" (of the simulation; an access is a block asked\n"
        "for); with --tiers \"hbm_capacity_blocks\", \"host_capacity_blocks\",\n"
        "\"nvme_capacity_blocks\", \"hbm_hit_percent\", \"host_hit_percent\", "
        "\"nvme_hit_percent\"\n"
        "(of the blocks asked for), \"h2d_per_1000\" (of them: from HOST), \"d2h_per_1000\",\n"
        "\"nvme_reads_per_1000\", \"nvme_writes_per_1000\", \"nvme_writes_per_s\" (of the trace's\n"
        "time), \"time_saved_percent\"; with --segment-blocks \"write_amplification\" (blocks\n"
        "written for each that was admitted). With several policies or capacities \"results\" is\n"
        "an array of objects that have what differs. All but ns_per_access is the same each time.",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

static const struct sim_policy_ops *const policies[] = {
    &sim_lru_ops,
    &sim_s3fifo_ops,
    &sim_default_ops,
    &sim_lfu_ops,
    &sim_sieve_ops,
    &sim_arc_ops,
    &sim_gdsf_ops,
    &sim_two_queue_ops,
    &sim_lfuda_ops,
    &sim_min_ops,
};

_Static_assert(
    sizeof(policies) / sizeof(policies[0]) <= SIM_POLICIES_MAX, "all of them fit in one call");

/* The next word of a list; *text moves behind it and its comma, to NULL at the end. False: it is
 * empty or too long. */
static bool
word_take(const char **text, char word[WORD_BYTES])
{
    size_t length = strcspn(*text, ",");

    if (length == 0 || length >= WORD_BYTES)
        return false;
    memcpy(word, *text, length);
    word[length] = '\0';
    *text = (*text)[length] == ',' ? *text + length + 1 : NULL;
    return true;
}

static bool
policy_append(struct sim_settings *settings, const char *name)
{
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        if (strcmp(policies[i]->name, name) != 0)
            continue;
        for (uint32_t j = 0; j < settings->policy_count; j++) {
            if (settings->policies[j] == policies[i])
                return false;
        }
        settings->policies[settings->policy_count++] = policies[i];
        return true;
    }
    return false;
}

static bool
policies_read(const char *text, struct sim_settings *settings)
{
    const char *rest = text;
    char word[WORD_BYTES];

    while (rest != NULL) {
        if (word_take(&rest, word) && policy_append(settings, word))
            continue;
        complain(
            "--policy %s is no list of lru, s3fifo, default, lfu, sieve, arc, gdsf, 2q, lfuda, "
            "min, each once",
            text);
        return false;
    }
    return true;
}

static bool
capacity_read(const char *text, struct sim_capacity *capacity_out)
{
    *capacity_out = (struct sim_capacity){0};
    if (quantity_share(text, &capacity_out->percent))
        return true;
    return quantity_count(text, &capacity_out->blocks) && capacity_out->blocks > 0 &&
           capacity_out->blocks < BLOCK_NONE;
}

/* At most `room` of them; how many in *count_out. */
static bool
capacities_read(
    const char *text, struct sim_capacity *capacities_out, uint32_t room, uint32_t *count_out)
{
    char word[WORD_BYTES];

    for (*count_out = 0; text != NULL; (*count_out)++) {
        if (*count_out == room || !word_take(&text, word) ||
            !capacity_read(word, &capacities_out[*count_out]))
            return false;
    }
    return true;
}

static bool
sizes_read(const struct arguments *arguments, struct sim_settings *settings)
{
    const char *capacity = arguments->values[OPTION_CAPACITY];
    const char *tiers = arguments->values[OPTION_TIERS];
    uint32_t count = 0;

    if ((capacity == NULL) == (tiers == NULL)) {
        complain("sim needs one of --capacity and --tiers (try tierbench sim --help)");
        return false;
    }
    if (capacity != NULL) {
        if (capacities_read(
                capacity, settings->capacities, SIM_CAPACITIES_MAX, &settings->capacity_count))
            return true;
        complain("--capacity %s is no list of up to 16 capacities: 1000 blocks, or 5%%", capacity);
        return false;
    }
    settings->has_tiers = true;
    if (capacities_read(tiers, settings->tiers, SIM_PLACE_COUNT, &count) &&
        count == SIM_PLACE_COUNT)
        return true;
    complain("--tiers %s is not three capacities: 1000 blocks, or 5%%", tiers);
    return false;
}

static bool
count_read(const struct arguments *arguments, int option, uint64_t *count_out, uint64_t limit)
{
    const char *text = arguments->values[option];

    if (text == NULL)
        return true;
    if (quantity_count(text, count_out) && *count_out > 0 && *count_out <= limit)
        return true;
    complain("%s %s is no count above 0", options[option].name, text);
    return false;
}

/* What only tiers have. */
static bool
tier_options_read(const struct arguments *arguments, struct sim_settings *settings)
{
    static const int tier_options[] = {
        OPTION_WRITE_PRICE, OPTION_WRITE_BUDGET, OPTION_SEGMENT_BLOCKS};
    const char *price = arguments->values[OPTION_WRITE_PRICE];

    for (size_t i = 0; i < sizeof(tier_options) / sizeof(tier_options[0]); i++) {
        if (arguments->values[tier_options[i]] != NULL && !settings->has_tiers) {
            complain("%s needs --tiers", options[tier_options[i]].name);
            return false;
        }
    }
    if (price != NULL &&
        (!quantity_decimal(price, &settings->write_price_ms) || settings->write_price_ms > 1e6)) {
        complain("--write-price %s is no number of milliseconds up to a million", price);
        return false;
    }
    return count_read(
               arguments, OPTION_WRITE_BUDGET, &settings->writes_per_second_max, UINT32_MAX) &&
           count_read(arguments, OPTION_SEGMENT_BLOCKS, &settings->segment_blocks, 1u << 20);
}

/* DIR/conversation_h1.svg for some/where/conversation_h1.jsonl.zst */
static bool
plot_path_make(struct sim_settings *settings)
{
    const char *slash = strrchr(settings->trace_path, '/');
    const char *name = slash == NULL ? settings->trace_path : slash + 1;
    int length = snprintf(settings->plot_path, sizeof(settings->plot_path), "%s/%.*s.svg",
        settings->plot_directory, (int)strcspn(name, "."), name);

    if (length >= (int)sizeof(settings->plot_path)) {
        complain("--plot %s is too long", settings->plot_directory);
        return false;
    }
    settings->outputs.plot_path = settings->plot_path;
    return true;
}

static bool
outputs_read(const struct arguments *arguments, struct sim_settings *settings)
{
    settings->as_json = arguments->values[OPTION_JSON] != NULL;
    settings->outputs.csv_path = arguments->values[OPTION_CSV];
    settings->plot_directory = arguments->values[OPTION_PLOT];
    if (settings->plot_directory == NULL)
        return true;
    if (settings->has_tiers) {
        complain("--plot draws hits over capacities: it needs --capacity");
        return false;
    }
    return plot_path_make(settings);
}

bool
sim_settings_read(struct sim_settings *settings, int argc, char **argv, int *exit_out)
{
    struct arguments arguments;
    const char *hint, *policy, *score;

    *settings = (struct sim_settings){.block_tokens = TRACE_BLOCK_TOKENS, .hint_accuracy = -1};
    if (!arguments_read(&tierbench_sim_line, argc, argv, &arguments, exit_out))
        return false;
    *exit_out = EXIT_USAGE;
    settings->trace_path = arguments.values[OPTION_TRACE];
    policy = arguments.values[OPTION_POLICY];
    score = arguments.values[OPTION_SCORE_FROM];
    hint = arguments.values[OPTION_HINT_ACCURACY];
    if (settings->trace_path == NULL || policy == NULL) {
        complain("sim needs --trace and --policy (try tierbench sim --help)");
        return false;
    }
    if (score != NULL && !quantity_count(score, &settings->score_from)) {
        complain("--score-from %s is no request's number", score);
        return false;
    }
    if (hint != NULL &&
        (!quantity_decimal(hint, &settings->hint_accuracy) || settings->hint_accuracy > 1)) {
        complain("--hint-accuracy %s is no probability: 0 to 1", hint);
        return false;
    }
    return policies_read(policy, settings) && sizes_read(&arguments, settings) &&
           tier_options_read(&arguments, settings) &&
           count_read(&arguments, OPTION_BLOCK_TOKENS, &settings->block_tokens, BLOCK_TOKENS_MAX) &&
           outputs_read(&arguments, settings);
}
