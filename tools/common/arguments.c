/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments.c - one command's options and operands, from argv, against a table.
 */
#include "arguments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "kvtier/kvtier.h"

/* The option that `word` names up to its end or '=', or -1. */
static int
option_find(const struct command_line *line, const char *word)
{
    size_t length = strcspn(word, "=");

    for (int i = 0; line->options[i].name != NULL; i++) {
        if (strlen(line->options[i].name) == length &&
            memcmp(line->options[i].name, word, length) == 0)
            return i;
    }
    return -1;
}

/*
 * Takes the option at argv[*at], and its value. False, with a sentence, when it cannot be meant.
 */
static bool
option_take(
    const struct command_line *line, int argc, char **argv, int *at, struct arguments *arguments)
{
    const char *word = argv[*at];
    const char *equals = strchr(word, '=');
    int index = option_find(line, word);

    if (index < 0) {
        complain("%s has no option %.*s (try %s %s --help)", line->command, (int)strcspn(word, "="),
            word, line->program, line->command);
        return false;
    }
    if (arguments->values[index] != NULL) {
        complain("%s was given twice", line->options[index].name);
        return false;
    }
    if (line->options[index].value_name == NULL) {
        if (equals != NULL) {
            complain("%s takes no value", line->options[index].name);
            return false;
        }
        arguments->values[index] = "";
        return true;
    }
    if (equals != NULL) {
        arguments->values[index] = equals + 1;
        return true;
    }
    if (*at + 1 >= argc) {
        complain(
            "%s needs a value: %s", line->options[index].name, line->options[index].value_name);
        return false;
    }
    arguments->values[index] = argv[++*at];
    return true;
}

static bool
operand_take(const struct command_line *line, const char *word, struct arguments *arguments)
{
    if (arguments->operand_count == line->operand_max) {
        complain("there is one operand too many: %s (%s takes %s, %d at most)", word, line->command,
            line->operands[0] == '\0' ? "none" : line->operands, line->operand_max);
        return false;
    }
    arguments->operands[arguments->operand_count++] = word;
    return true;
}

bool
arguments_read(const struct command_line *line, int argc, char **argv,
    struct arguments *arguments_out, int *exit_out)
{
    bool options_ended = false;

    memset(arguments_out, 0, sizeof(*arguments_out));
    *exit_out = EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];

        if (!options_ended && strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (!options_ended && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            arguments_help(line);
            *exit_out = EXIT_FINE;
            return false;
        } else if (!options_ended && word[0] == '-' && word[1] != '\0') {
            if (!option_take(line, argc, argv, &i, arguments_out))
                return false;
        } else if (!operand_take(line, word, arguments_out)) {
            return false;
        }
    }
    if (arguments_out->operand_count < line->operand_min) {
        complain("%s needs %s (try %s %s --help)", line->command, line->operands, line->program,
            line->command);
        return false;
    }
    return true;
}

/* Prints `text` with every line indented to column `column`; the cursor stands at `position`. */
static void
print_indented(const char *text, int column, int position)
{
    for (;;) {
        size_t length = strcspn(text, "\n");

        printf("%*s%.*s\n", column - position, "", (int)length, text);
        if (text[length] == '\0')
            return;
        text += length + 1;
        position = 0;
    }
}

void
arguments_help(const struct command_line *line)
{
    printf("Usage: %s %s [OPTIONS]%s%s\n\n%s\n", line->program, line->command,
        line->operands[0] != '\0' ? " " : "", line->operands, line->summary);
    printf("\nOptions:\n");
    for (int i = 0; line->options[i].name != NULL; i++) {
        const struct argument_option *option = &line->options[i];
        int width = printf("  %s%s%s", option->name, option->value_name != NULL ? " " : "",
            option->value_name != NULL ? option->value_name : "");

        if (width > 25) {
            printf("\n");
            width = 0;
        }
        print_indented(option->help, 26, width);
    }
    printf("  --help                  this text\n");
    if (line->text != NULL)
        printf("\n%s\n", line->text);
}

static void
program_help(const struct program *program)
{
    printf("Usage: %s COMMAND [OPTIONS] ...\n\n%s\n\nCommands:\n", program->name, program->about);
    for (size_t i = 0; i < program->command_count; i++)
        printf(
            "  %-8s %s\n", program->commands[i].line->command, program->commands[i].line->summary);
    printf("\n%s COMMAND --help tells about one command; %s --version prints the version.\n%s\n",
        program->name, program->name, program->ending);
}

/* A full disk or a closed pipe behind stdout is a failure of the command. */
static int
output_finish(int exit_code)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return exit_code;
    complain("the output could not be written: %s", strerror(errno));
    return exit_code == EXIT_FINE ? EXIT_PROBLEM : exit_code;
}

/* What is opened later must not get the number of a closed stream: sentences would go into it.
 * Whoever uses such a stream is told EBADF, as before. */
static bool
streams_reserve(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) < 0 &&
            open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) != stream)
            return false;
    }
    return true;
}

int
program_run(const struct program *program, int argc, char **argv)
{
    if (!streams_reserve()) {
        complain(
            "a standard stream is closed, and /dev/null cannot be opened: %s", strerror(errno));
        return EXIT_PROBLEM;
    }
    if (argc < 2) {
        complain("a command is needed (try %s --help)", program->name);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        program_help(program);
        return output_finish(EXIT_FINE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("%s %s\n", program->name, kvt_version());
        return output_finish(EXIT_FINE);
    }
    for (size_t i = 0; i < program->command_count; i++) {
        if (strcmp(argv[1], program->commands[i].line->command) == 0)
            return output_finish(program->commands[i].run(argc - 1, argv + 1));
    }
    complain("there is no command %s (try %s --help)", argv[1], program->name);
    return EXIT_USAGE;
}
