/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench.h - the commands of tierbench.
 */
#ifndef TIERBENCH_H
#define TIERBENCH_H

#include "arguments.h"

extern const struct command_line tierbench_replay_line;
extern const struct command_line tierbench_ceiling_line;
extern const struct command_line tierbench_sweep_line;
extern const struct command_line tierbench_scale_line;
extern const struct command_line tierbench_engram_line;
extern const struct command_line tierbench_load_line;
extern const struct command_line tierbench_gpu_line;
extern const struct command_line tierbench_vs_line;
extern const struct command_line tierbench_sim_line;

int tierbench_replay(int argc, char **argv);
int tierbench_ceiling(int argc, char **argv);
int tierbench_sweep(int argc, char **argv);
int tierbench_scale(int argc, char **argv);
int tierbench_engram(int argc, char **argv);
int tierbench_load(int argc, char **argv);
int tierbench_gpu(int argc, char **argv);
int tierbench_vs(int argc, char **argv);
int tierbench_sim(int argc, char **argv);

#endif /* TIERBENCH_H */
