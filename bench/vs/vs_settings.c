/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vs_settings.c - the command line of `tierbench vs`.
 */
#include "vs_settings.h"

#include <string.h>

#include "complain.h"
#include "number_list.h"
#include "quantity.h"
#include "tierbench.h"

enum {
    BATCH_MAX = 1024,
    BLOCK_BYTES_MAX = 16 << 20,
    BLOCK_BYTES_STEP = 4096,
    COUNT_MIN = 16,
    COUNT_MAX = 10000000,
};

enum {
    OPTION_DIR,
    OPTION_BLOCK_BYTES,
    OPTION_BYTES,
    OPTION_COUNT,
    OPTION_BATCH,
    OPTION_SECONDS,
    OPTION_ROUNDS,
    OPTION_PEERS,
    OPTION_DAMAGE,
    OPTION_CSV,
    OPTION_PLOT,
    OPTION_JSON,
};

static const struct argument_option options[] = {
    [OPTION_DIR] = {"--dir", "DIR", "where to measure; made when missing"},
    [OPTION_BLOCK_BYTES] = {"--block-bytes", "SIZES",
        "separated by commas, multiples of 4K up to 16M (default\n64K,1M)"},
    [OPTION_BYTES] = {"--bytes", "SIZE", "that each peer keeps (default 2G)"},
    [OPTION_COUNT] = {"--count", "N", "the same as a number of blocks"},
    [OPTION_BATCH] = {"--batch", "N",
        "blocks of a submission, MultiGet or transaction\n(default: 4 MiB of them, 4 to 64)"},
    [OPTION_SECONDS] = {"--seconds", "S",
        "of gets for each peer and number of threads, all\nrounds together (default 2)"},
    [OPTION_ROUNDS] = {"--rounds", "N", "1 to 15 (default 3)"},
    [OPTION_PEERS] = {"--peers", "NAMES",
        "of kvtier,rocksdb,sqlite,files,files_cached (default:\nall)"},
    [OPTION_DAMAGE] = {"--damage", NULL,
        "change a byte of block 0 in the files of each peer\n"
        "before the gets: is it noticed?"},
    [OPTION_CSV] = OUTPUT_CSV_OPTION,
    [OPTION_PLOT] = OUTPUT_PLOT_OPTION("draw the best gets and their CPU as bars (gnuplot)"),
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_vs_line = {
    .program = "tierbench",
    .command = "vs",
    .operands = "",
    .summary = "Measure kvtier beside RocksDB, SQLite and one file for each block.",
    .text =
        "The same durable puts and the same cold gets in random order through each of them, one\n"
        "after the other in every round, medians of the rounds, each with several numbers of\n"
        "threads. All bytes are compared with what they must be, outside of the time. The work is\n"
        "done by tierbench-peers beside tierbench, which is built where librocksdb-dev and\n"
        "libsqlite3-dev are installed. Exit code 1 when a byte was wrong or a get was refused.\n"
        "\n"
        "JSON: \"dir\", \"rounds\", \"seconds\", \"wrong_bytes\", \"refused_blocks\", \"results\"\n"
        "[for each block size: \"block_bytes\", \"block_count\", \"batch_blocks\",\n"
        "\"lap_blocks\" (moved between two comparisons), \"ceiling_bytes_per_s\" and\n"
        "\"ceiling_depth\" (raw reads of kvtier's data file in the same rounds), \"peers\" "
        "[{\"peer\", \"version\",\n"
        "\"settings\", \"puts\" and \"gets\" [{\"threads\", \"bytes_per_s\", \"cpu_ns\" (of a\n"
        "block, all threads of the process), \"read_bytes\" (gets: from storage, of a block)}],\n"
        "{put,get}_best_{threads,bytes_per_s,cpu_ns}, \"get_best_read_bytes\",\n"
        "\"get_best_ceiling_share\", \"is_cold\" (each\n"
        "block was read from storage), \"got_blocks\", \"wrong_bytes\", \"wrong_blocks\",\n"
        "\"refused_blocks\"}], \"ratios\" [{\"ratio\", \"value\", \"bar\", \"is_reached\"}] "
        "(kvtier\n"
        "to another; of the rates at least the bar, of the CPU at most; bars for 64K and 1M)]",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

/* Names separated by commas. */
static bool
peers_read(const char *text, bool has_peer[VS_PEERS])
{
    static const char *const names[VS_PEERS] = {
        [VS_KVTIER] = "kvtier",
        [VS_ROCKSDB] = "rocksdb",
        [VS_SQLITE] = "sqlite",
        [VS_FILES] = "files",
        [VS_FILES_CACHED] = "files_cached",
    };

    for (uint32_t i = 0; i < VS_PEERS; i++)
        has_peer[i] = text == NULL;
    while (text != NULL) {
        size_t length = strcspn(text, ",");
        uint32_t found = 0;

        while (found < VS_PEERS &&
               (strlen(names[found]) != length || memcmp(names[found], text, length) != 0))
            found++;
        if (found == VS_PEERS)
            return false;
        has_peer[found] = true;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return true;
}

/* What there is to move. */
static bool
blocks_read(const struct arguments *arguments, struct vs_settings *settings)
{
    const char *sizes = arguments->values[OPTION_BLOCK_BYTES];
    const char *bytes = arguments->values[OPTION_BYTES];
    const char *count = arguments->values[OPTION_COUNT];
    bool is_fine = number_list_read(sizes != NULL ? sizes : "64K,1M", BLOCK_BYTES_MAX,
        settings->block_bytes, VS_SIZES_MAX, &settings->size_count);
    uint64_t least = 0;

    for (uint32_t i = 0; is_fine && i < settings->size_count; i++) {
        is_fine = settings->block_bytes[i] % BLOCK_BYTES_STEP == 0;
        if (settings->block_bytes[i] > least)
            least = settings->block_bytes[i];
    }
    if (!is_fine) {
        complain("--block-bytes %s is no list of up to 8 multiples of 4K up to 16M", sizes);
        return false;
    }
    if (bytes != NULL && count != NULL) {
        complain("--bytes and --count say the same: only one of them can be given");
        return false;
    }
    if (bytes != NULL && (!quantity_size(bytes, &settings->total_bytes) ||
                             settings->total_bytes < COUNT_MIN * least ||
                             settings->total_bytes > UINT64_C(1) << 42)) {
        complain("--bytes %s is no size of 16 blocks to 4T", bytes);
        return false;
    }
    if (count != NULL &&
        (!quantity_count(count, &settings->block_count) || settings->block_count < COUNT_MIN ||
            settings->block_count > COUNT_MAX)) {
        complain("--count %s is no count of 16 to 10000000", count);
        return false;
    }
    return true;
}

/* How it is moved. */
static bool
ways_read(const struct arguments *arguments, struct vs_settings *settings)
{
    const char *batch = arguments->values[OPTION_BATCH];
    const char *seconds = arguments->values[OPTION_SECONDS];
    const char *rounds = arguments->values[OPTION_ROUNDS];
    const char *peers = arguments->values[OPTION_PEERS];
    uint64_t number = 0;

    if (batch != NULL && (!quantity_count(batch, &number) || number == 0 || number > BATCH_MAX)) {
        complain("--batch %s is no count of 1 to 1024", batch);
        return false;
    }
    settings->batch_blocks = (uint32_t)number;
    if (seconds != NULL && !quantity_seconds(seconds, &settings->seconds)) {
        complain("--seconds %s is no time: seconds above 0", seconds);
        return false;
    }
    number = settings->rounds;
    if (rounds != NULL &&
        (!quantity_count(rounds, &number) || number == 0 || number > VS_ROUNDS_MAX)) {
        complain("--rounds %s is no count of 1 to 15", rounds);
        return false;
    }
    settings->rounds = (uint32_t)number;
    if (!peers_read(peers, settings->has_peer)) {
        complain("--peers %s is no list of kvtier, rocksdb, sqlite, files and files_cached", peers);
        return false;
    }
    return true;
}

bool
vs_settings_read(struct vs_settings *settings_out, int argc, char **argv, int *exit_out)
{
    struct arguments arguments;

    if (!arguments_read(&tierbench_vs_line, argc, argv, &arguments, exit_out))
        return false;
    *exit_out = EXIT_USAGE;
    *settings_out = (struct vs_settings){
        .directory = arguments.values[OPTION_DIR],
        .total_bytes = UINT64_C(2) << 30,
        .seconds = 2,
        .rounds = 3,
        .has_damage = arguments.values[OPTION_DAMAGE] != NULL,
        .as_json = arguments.values[OPTION_JSON] != NULL,
        .outputs = {arguments.values[OPTION_CSV], arguments.values[OPTION_PLOT]},
    };
    if (settings_out->directory == NULL) {
        complain("vs needs --dir DIR");
        return false;
    }
    return blocks_read(&arguments, settings_out) && ways_read(&arguments, settings_out);
}
