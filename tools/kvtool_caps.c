/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_caps.c - `kvtool caps`: what this machine and this build can do for a store.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "complain.h"
#include "json_writer.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtool.h"

enum {
    MACHINE_BYTES = 8192,
    LINE_BYTES = 256
};

enum {
    OPTION_JSON
};

static const struct argument_option options[] = {
    [OPTION_JSON] = {"--json", NULL, "print JSON"},
    {NULL, NULL, NULL},
};

const struct command_line kvtool_caps_line = {
    .program = "kvtool",
    .command = "caps",
    .operands = "[DIR]",
    .summary = "Tell what this machine and this build can do; of DIR how its disk is read.",
    .text =
        "JSON: {\"kernel\", \"processor_count\", \"memory_bytes\", \"huge_pages\" (transparent),\n"
        "\"huge_page_count\" (reserved), \"memlock_bytes\" (null: no limit), \"library\": "
        "{io_engine,\n"
        "io_engine_reason, is_cuda_built_in, devices, device_count, devices_reason,\n"
        "copy_plans [{device, kernel_below_bytes_in, kernel_below_bytes_out, is_measured}],\n"
        "codecs, folder {free_bytes, is_direct, align_bytes}, versions {...}}}. Not stable.",
    .operand_min = 0,
    .operand_max = 1,
    .options = options,
};

/* What the system says of itself. */
struct machine {
    struct utsname name;
    uint64_t processor_count;
    uint64_t memory_bytes;
    char huge_pages[64];
    uint64_t huge_page_count;
    uint64_t memlock_bytes; /* UINT64_MAX: no limit. */
    char library[MACHINE_BYTES];
};

static void
line_read(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");

    line[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(line, (int)size, file) == NULL)
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}

/* Of "always [madvise] never" the word in brackets. */
static void
chosen_word(const char *line, char *word_out, size_t size)
{
    const char *start = strchr(line, '[');
    size_t length = start == NULL ? 0 : strcspn(start + 1, "]");

    snprintf(word_out, size, "%.*s", (int)length, start == NULL ? "" : start + 1);
    if (word_out[0] == '\0')
        snprintf(word_out, size, "unknown");
}

static enum kvt_status
machine_ask(struct machine *machine, const char *path)
{
    struct rlimit limit = {0};
    char line[LINE_BYTES];
    unsigned long long count = 0;

    if (uname(&machine->name) != 0)
        snprintf(machine->name.release, sizeof(machine->name.release), "unknown");
    machine->processor_count = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    machine->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    line_read("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line));
    chosen_word(line, machine->huge_pages, sizeof(machine->huge_pages));
    line_read("/proc/sys/vm/nr_hugepages", line, sizeof(line));
    if (sscanf(line, "%llu", &count) == 1)
        machine->huge_page_count = count;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    machine->memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
    return kvt_machine_json(path, machine->library, sizeof(machine->library));
}

static void
machine_print_json(const struct machine *machine)
{
    struct json json = JSON_INIT(stdout);

    json_object_begin(&json, NULL);
    json_string(&json, "kernel", machine->name.release);
    json_number(&json, "processor_count", machine->processor_count);
    json_number(&json, "memory_bytes", machine->memory_bytes);
    json_string(&json, "huge_pages", machine->huge_pages);
    json_number(&json, "huge_page_count", machine->huge_page_count);
    if (machine->memlock_bytes == UINT64_MAX)
        json_null(&json, "memlock_bytes");
    else
        json_number(&json, "memlock_bytes", machine->memlock_bytes);
    json_raw(&json, "library", machine->library);
    json_object_end(&json);
    json_end(&json);
}

/* The library's object, a member a line, without its punctuation: it is for people. */
static void
library_print(const char *json)
{
    int depth = 0;
    bool is_text = false;
    bool line_due = false;
    char last = 0;

    for (; *json != '\0'; json++) {
        if (*json == '"' && last != '\\') {
            is_text = !is_text;
            if (line_due)
                printf("\n%*s", depth * 2 - 2, "");
            line_due = false;
        } else if (is_text) {
            fputc(*json, stdout);
        } else if (*json == '{') {
            line_due = true;
            depth++;
        } else if (*json == '}') {
            depth--;
        } else if (*json == ',') {
            line_due = true;
        } else if (*json != '[' && *json != ']' && !line_due) {
            fputc(*json, stdout);
        }
        last = *json;
    }
    printf("\n");
}

static void
machine_print(const struct machine *machine)
{
    printf("kernel: %s\n", machine->name.release);
    printf("processors: %" PRIu64 "\n", machine->processor_count);
    printf("memory: %" PRIu64 " MiB\n", machine->memory_bytes >> 20);
    printf("transparent huge pages: %s, reserved: %" PRIu64 "\n", machine->huge_pages,
        machine->huge_page_count);
    if (machine->memlock_bytes == UINT64_MAX)
        printf("locked memory: no limit");
    else
        printf("locked memory: at most %" PRIu64 " KiB (above it the io engine registers no "
               "buffers, which costs some speed)",
            machine->memlock_bytes >> 10);
    library_print(machine->library);
}

int
kvtool_caps(int argc, char **argv)
{
    struct arguments arguments;
    struct machine machine = {.processor_count = 0};
    const char *path = NULL;
    struct stat facts = {0};
    enum kvt_status status = KVT_OK;
    int exit_code = EXIT_FINE;

    if (!arguments_read(&kvtool_caps_line, argc, argv, &arguments, &exit_code))
        return exit_code;
    if (arguments.operand_count > 0)
        path = arguments.operands[0];
    if (path != NULL && (stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode))) {
        complain("cannot look at the folder %s: %s", path,
            strerror(facts.st_mode != 0 ? ENOTDIR : errno));
        return EXIT_PROBLEM;
    }
    status = machine_ask(&machine, path);
    if (status != KVT_OK) {
        complain_status(status, "cannot ask the library");
        return EXIT_PROBLEM;
    }
    if (arguments.values[OPTION_JSON] != NULL)
        machine_print_json(&machine);
    else
        machine_print(&machine);
    return EXIT_FINE;
}
