/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_settings.c - the command line of `tierbench replay`, and what it comes to.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "complain.h"
#include "quantity.h"
#include "replay.h"
#include "tierbench.h"

enum {
    OPTION_TRACE,
    OPTION_DIR,
    OPTION_REQUESTS,
    OPTION_BLOCK_BYTES,
    OPTION_HBM,
    OPTION_HOST,
    OPTION_NVME,
    OPTION_POLICY,
    OPTION_DURABILITY,
    OPTION_DURABLE_EVERY,
    OPTION_DEVICE,
    OPTION_IO,
    OPTION_RESUME_AT,
    OPTION_KILL_AT,
    OPTION_ACK_FD,
    OPTION_ACKS,
    OPTION_VERIFY_ACKS,
    OPTION_CEILING_SECONDS,
    OPTION_CSV,
    OPTION_PLOT,
    OPTION_JSON,
};

static const struct argument_option options[] = {
    [OPTION_TRACE] = {"--trace", "FILE[.zst]", "requests, one JSON object a line"},
    [OPTION_DIR] = {"--dir", "DIR", "the store; made when missing (its parent must be there)"},
    [OPTION_REQUESTS] = {"--requests", "N", "stop behind the first N requests of the trace"},
    [OPTION_BLOCK_BYTES] = {"--block-bytes", "SIZE", "of every block (default 64K)"},
    [OPTION_HBM] = {"--hbm", "SIZE",
        "HBM capacity (default 0: no HBM tier); blocks are put\n"
        "there, from memory of the device, and hits read to it"},
    [OPTION_HOST] = {"--host", "SIZE",
        "HOST capacity; 5% is that share of the trace's unique\n"
        "blocks, here, for --hbm and for --nvme"},
    [OPTION_NVME] = {"--nvme", "SIZE", "NVMe capacity"},
    [OPTION_POLICY] = {"--policy", "P", "what stays in memory: lru (default), s3fifo or ghi"},
    [OPTION_DURABILITY] = {"--durability", "D", "memory, relaxed (default) or sync"},
    [OPTION_DURABLE_EVERY] = {"--durable-every", "N",
        "only each N-th request is put with that durability,\n"
        "the others with memory (default 1: all)"},
    [OPTION_DEVICE] = {"--device", "KIND", "with --hbm: auto (default), cuda or emulation"},
    [OPTION_IO] = {"--io", "ENGINE", "auto (default), uring or threads"},
    [OPTION_RESUME_AT] = {"--resume-at", "N", "leave the first N requests out"},
    [OPTION_KILL_AT] = {"--kill-at", "N", "report and raise SIGKILL behind the first N requests"},
    [OPTION_ACK_FD] = {"--ack-fd", "FD",
        "write the key of each block that is durable to this\n"
        "descriptor, one a line in hex; of blocks put with\n"
        "memory those that are on NVMe at the end"},
    [OPTION_ACKS] = {"--acks", "FILE", "the same, appended to a file"},
    [OPTION_VERIFY_ACKS] = {"--verify-acks", "FILE",
        "first time the open, and read and verify every block\n"
        "that such a file lists; without --trace that is all"},
    [OPTION_CEILING_SECONDS] = {"--ceiling-seconds", "S",
        "for measuring each limit of the machine before the\n"
        "replay (default 0.3); none: do not measure"},
    [OPTION_CSV] = OUTPUT_CSV_OPTION,
    [OPTION_PLOT] = OUTPUT_PLOT_OPTION("draw the paths beside their ceilings (gnuplot)"),
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line tierbench_replay_line = {
    .program = "tierbench",
    .command = "replay",
    .operands = "",
    .summary = "Replay a recorded request trace through a store, verifying every byte.",
    .text =
        "For each request: look its chain up under a lease, read the leading hits into poisoned\n"
        "memory and compare them, keep the blocks that were missing, release. With --hbm that\n"
        "memory is the device's, and hits that were not in HBM are prefetched there. Exit code\n"
        "1 when a byte was wrong, a leased block was missing, an acknowledged block was lost, or\n"
        "one that was to be durable was refused or did not become so.\n"
        "\n"
        "JSON: \"requests\", \"blocks\" (accesses), \"hit_hbm_blocks\" (with --hbm),\n"
        "\"hit_host_blocks\", \"hit_nvme_blocks\" (on NVMe only), \"miss_blocks\",\n"
        "\"hit_percent\" (of blocks), \"input_tokens\", \"saved_tokens\" (prefill that hits\n"
        "make needless), \"prefix_hit_percent\" (of tokens), \"wrong_bytes\", \"wrong_blocks\",\n"
        "\"leased_miss_blocks\", \"put_blocks\", \"put_refused_blocks\", \"acknowledged_blocks\"\n"
        "(durable, as their tickets said), \"shown_blocks\" (on NVMe at the end, when some were\n"
        "put with memory), \"dropped_blocks\" (evicted before they were durable),\n"
        "\"elapsed_ns\", \"durable_wait_ns\" (of it, puts that waited for earlier ones to be\n"
        "durable), \"pattern_ns\" (making and comparing bytes), \"hbm_pool_ns\" (with --hbm:\n"
        "taking them to memory of the device and back), \"paths\" {\"caller_to_host\",\n"
        "\"host_to_nvme\", \"nvme_to_caller\", \"host_to_caller\", with --hbm\n"
        "\"caller_to_hbm\", \"hbm_to_caller\", \"hbm_to_host\", \"host_to_hbm\": each with\n"
        "\"bytes\", \"busy_ns\", \"bytes_per_s\", \"ceiling_bytes_per_s\", \"ceiling_share\" and\n"
        "\"ceiling\" (of what)}, \"latencies\" {name: {\"count\", \"sum_ns\",\n"
        "\"p50_ns\", \"p99_ns\", \"p999_ns\", \"max_ns\"}}, \"counters\" (kvtier/stats.h), and\n"
        "after --verify-acks \"verify\" {\"keys\", \"lost_blocks\", \"wrong_blocks\",\n"
        "\"wrong_bytes\", \"read_bytes\", \"read_ns\", \"open_ns\", \"reopen_ns\" (until 1,000\n"
        "keys were answered)}. A path's rate is over the time in which the caller waited for it;\n"
        "of those between two tiers over all of the time.",
    .operand_min = 0,
    .operand_max = 0,
    .options = options,
};

/* A word of a list, or -1. */
static int
word_find(const char *word, const char *const words[], int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(word, words[i]) == 0)
            return i;
    }
    return -1;
}

static bool
count_read(const struct arguments *arguments, int option, uint64_t *count_out)
{
    const char *text = arguments->values[option];

    if (text == NULL || quantity_count(text, count_out))
        return true;
    complain("%s %s is no count", options[option].name, text);
    return false;
}

static bool
words_read(const struct arguments *arguments, struct replay_settings *settings)
{
    static const char *const durabilities[] = {"memory", "relaxed", "sync"};
    static const char *const engines[] = {"auto", "uring", "threads"};
    static const char *const policies[] = {
        "lru", "s3fifo", "ghi"}; /* As enum kvt_policy from 1 on. */
    const char *policy = arguments->values[OPTION_POLICY];
    const char *durability = arguments->values[OPTION_DURABILITY];
    const char *engine = arguments->values[OPTION_IO];
    int policy_index = policy == NULL ? 0 : word_find(policy, policies, 3);
    int durability_index =
        durability == NULL ? KVT_RELAXED : word_find(durability, durabilities, 3);
    int engine_index = engine == NULL ? KVT_IO_AUTO : word_find(engine, engines, 3);

    if (policy_index < 0) {
        complain("--policy %s is none of lru, s3fifo, ghi", policy);
        return false;
    }
    if (durability_index < 0) {
        complain("--durability %s is none of memory, relaxed, sync", durability);
        return false;
    }
    if (engine_index < 0) {
        complain("--io %s is none of auto, uring, threads", engine);
        return false;
    }
    settings->policy = (enum kvt_policy)(policy_index + KVT_POLICY_LRU);
    settings->durability = (enum kvt_durability)durability_index;
    settings->io_engine = (uint32_t)engine_index;
    return true;
}

/* --device means something with --hbm only. */
static bool
device_read(const struct arguments *arguments, struct replay_settings *settings)
{
    static const char *const kinds[] = {"auto", "cuda", "emulation"}; /* As enum kvt_device_kind. */
    const char *kind = arguments->values[OPTION_DEVICE];
    int index = kind == NULL ? KVT_DEVICE_AUTO : word_find(kind, kinds, 3);

    if (index < 0) {
        complain("--device %s is none of auto, cuda, emulation", kind);
        return false;
    }
    if (kind != NULL && settings->hbm_text == NULL) {
        complain("--device %s needs --hbm", kind);
        return false;
    }
    settings->device_kind = (uint32_t)index;
    return true;
}

/* Where acknowledgements go. A wrong descriptor is found now, not after minutes. */
static bool
acks_open(const struct arguments *arguments, struct replay_settings *settings)
{
    const char *fd_text = arguments->values[OPTION_ACK_FD];
    const char *path = arguments->values[OPTION_ACKS];
    uint64_t fd = 0;

    settings->acks_fd = -1;
    if (fd_text != NULL && path != NULL) {
        complain("--ack-fd and --acks exclude each other");
        return false;
    }
    if (path != NULL) {
        settings->acks_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (settings->acks_fd < 0)
            complain("cannot write %s: %s", path, strerror(errno));
        return settings->acks_fd >= 0;
    }
    if (fd_text == NULL)
        return true;
    if (!quantity_count(fd_text, &fd) || fd > INT32_MAX || fcntl((int)fd, F_GETFD) < 0) {
        complain("--ack-fd %s is no open descriptor", fd_text);
        return false;
    }
    settings->acks_fd = (int)fd;
    return true;
}

static bool
sizes_read(const struct arguments *arguments, struct replay_settings *settings)
{
    const char *block_bytes = arguments->values[OPTION_BLOCK_BYTES];
    const char *seconds = arguments->values[OPTION_CEILING_SECONDS];

    if (block_bytes != NULL &&
        (!quantity_size(block_bytes, &settings->block_bytes) || settings->block_bytes == 0 ||
            settings->block_bytes > KVT_BLOCK_BYTES_MAX)) {
        complain("--block-bytes %s is no size of 1 to 64M", block_bytes);
        return false;
    }
    if (seconds != NULL && strcmp(seconds, "none") == 0) {
        settings->ceiling_seconds = 0;
    } else if (seconds != NULL && !quantity_seconds(seconds, &settings->ceiling_seconds)) {
        complain("--ceiling-seconds %s is no time: seconds above 0, or none", seconds);
        return false;
    }
    if (!count_read(arguments, OPTION_DURABLE_EVERY, &settings->durable_every))
        return false;
    if (settings->durable_every == 0) {
        complain("--durable-every 0 is no count above 0");
        return false;
    }
    if (!count_read(arguments, OPTION_REQUESTS, &settings->request_end))
        return false;
    if (settings->request_end == 0) {
        complain("--requests 0 is no count above 0");
        return false;
    }
    return count_read(arguments, OPTION_RESUME_AT, &settings->resume_at) &&
           count_read(arguments, OPTION_KILL_AT, &settings->kill_at);
}

static bool
needed_are_there(const struct replay_settings *settings)
{
    const char *missing = settings->directory == NULL   ? "--dir"
                          : settings->host_text == NULL ? "--host"
                          : settings->nvme_text == NULL ? "--nvme"
                                                        : NULL;

    if (missing == NULL && settings->trace_path == NULL && settings->verify_path == NULL)
        missing = "--trace";
    if (missing != NULL)
        complain("replay needs %s (try tierbench replay --help)", missing);
    return missing == NULL;
}

bool
replay_settings_read(struct replay_settings *settings, int argc, char **argv, int *exit_out)
{
    struct arguments arguments;

    *settings = (struct replay_settings){
        .block_bytes = 64 << 10,
        .request_end = UINT64_MAX,
        .kill_at = REPLAY_NO_REQUEST,
        .durable_every = 1,
        .ceiling_seconds = 0.3,
        .acks_fd = -1,
    };
    if (!arguments_read(&tierbench_replay_line, argc, argv, &arguments, exit_out))
        return false;
    *exit_out = EXIT_USAGE;
    settings->trace_path = arguments.values[OPTION_TRACE];
    settings->directory = arguments.values[OPTION_DIR];
    settings->verify_path = arguments.values[OPTION_VERIFY_ACKS];
    settings->hbm_text = arguments.values[OPTION_HBM];
    settings->host_text = arguments.values[OPTION_HOST];
    settings->nvme_text = arguments.values[OPTION_NVME];
    settings->as_json = arguments.values[OPTION_JSON] != NULL;
    settings->outputs =
        (struct outputs){arguments.values[OPTION_CSV], arguments.values[OPTION_PLOT]};
    return needed_are_there(settings) && words_read(&arguments, settings) &&
           device_read(&arguments, settings) && sizes_read(&arguments, settings) &&
           acks_open(&arguments, settings);
}

/* One tier's size in bytes, a share rounded up to whole units of 2 MiB. */
static bool
capacity_read(const char *option, const char *text, uint64_t unique_bytes, uint64_t *bytes_out)
{
    const uint64_t unit = 2 << 20;
    double percent = 0;

    if (quantity_size(text, bytes_out) && *bytes_out > 0)
        return true;
    if (!quantity_share(text, &percent)) {
        complain("%s %s is no size: 512M, 4G, or 5%% of the trace", option, text);
        return false;
    }
    if (unique_bytes == 0) {
        complain("%s %s needs --trace to be a share of", option, text);
        return false;
    }
    *bytes_out = (uint64_t)((double)unique_bytes * percent / 100);
    *bytes_out = (*bytes_out + unit - 1) / unit * unit;
    return true;
}

/* HBM may be none. */
static bool
hbm_capacity_read(struct replay_settings *settings, uint64_t unique_bytes)
{
    uint64_t bytes = 0;

    if (settings->hbm_text == NULL || (quantity_size(settings->hbm_text, &bytes) && bytes == 0))
        return true;
    return capacity_read("--hbm", settings->hbm_text, unique_bytes, &settings->hbm_bytes);
}

bool
replay_capacities(struct replay_settings *settings, const struct trace *trace)
{
    uint64_t unique_bytes = 0;

    if (__builtin_mul_overflow(trace->unique_count, settings->block_bytes, &unique_bytes)) {
        complain("the trace's blocks have more than 2^64 bytes");
        return false;
    }
    if (!hbm_capacity_read(settings, unique_bytes) ||
        !capacity_read("--host", settings->host_text, unique_bytes, &settings->host_bytes) ||
        !capacity_read("--nvme", settings->nvme_text, unique_bytes, &settings->nvme_bytes))
        return false;
    if (settings->request_end > trace->request_count)
        settings->request_end = trace->request_count;
    if (settings->trace_path != NULL && settings->resume_at >= settings->request_end) {
        complain("--resume-at %" PRIu64 " leaves none of %" PRIu64 " requests", settings->resume_at,
            settings->request_end);
        return false;
    }
    if (settings->kill_at != REPLAY_NO_REQUEST &&
        (settings->kill_at <= settings->resume_at || settings->kill_at > settings->request_end)) {
        complain("--kill-at %" PRIu64 " is never reached: requests %" PRIu64 " to %" PRIu64
                 " are replayed",
            settings->kill_at, settings->resume_at + 1, settings->request_end);
        return false;
    }
    return true;
}
