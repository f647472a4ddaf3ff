/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments.h - one command's options and operands, from argv, against a table.
 *
 * A command states what it takes once, in a struct command_line; parsing, `--help` and the error
 * sentences come from that table. Options may stand before, between and behind operands; `--name=v`
 * and `--name v` are the same; `--` ends the options.
 */
#ifndef TOOLS_ARGUMENTS_H
#define TOOLS_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

/* Exit codes of every program here. */
enum {
    EXIT_FINE = 0,
    EXIT_PROBLEM = 1, /* Something was found wrong, or the work could not be done. */
    EXIT_USAGE = 2,   /* The command line cannot be meant. */
};

enum {
    ARGUMENT_OPTION_MAX = 24,
    ARGUMENT_OPERAND_MAX = 256,
};

struct argument_option {
    const char *name;       /* "--json", or "-o". */
    const char *value_name; /* "FILE"; NULL: a switch. */
    const char *help;       /* A clause without full stop; lines are broken at '\n'. */
};

/* What a command takes. Constant. */
struct command_line {
    const char *program;  /* "kvtool" */
    const char *command;  /* "ls" */
    const char *operands; /* "DIR KEY" */
    const char *summary;  /* One line for the list of commands. */
    const char *text;     /* Behind the options in --help; NULL: nothing. */
    int operand_min;
    int operand_max;
    const struct argument_option *options; /* Ends with a NULL name. At most ARGUMENT_OPTION_MAX. */
};

/* What was given. The strings are argv's. */
struct arguments {
    const char *values[ARGUMENT_OPTION_MAX]; /* In the table's order; NULL: not given. A switch that
                                              * was given has "". */
    const char *operands[ARGUMENT_OPERAND_MAX];
    int operand_count;
};

/*
 * arguments_read - fills *arguments_out. True: go on. False: leave with *exit_out; the help was
 * printed to stdout (EXIT_FINE) or a sentence to stderr (EXIT_USAGE). argv[0] is the command.
 */
bool arguments_read(const struct command_line *line, int argc, char **argv,
    struct arguments *arguments_out, int *exit_out);

/* arguments_help - what `--help` prints, to stdout. */
void arguments_help(const struct command_line *line);

/*
 * One word of a program, and what it runs. `run` gets argv from its own name on and returns an exit
 * code.
 */
struct command {
    const struct command_line *line;
    int (*run)(int argc, char **argv);
};

/* What a program is. Constant. */
struct program {
    const char *name;
    const char *about;  /* The first lines of --help. */
    const char *ending; /* Its last lines. */
    const struct command *commands;
    size_t command_count;
};

/* program_run - pick the command that argv[1] names and run it; --help and --version are here. */
int program_run(const struct program *program, int argc, char **argv);

#endif /* TOOLS_ARGUMENTS_H */
