/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_world_internal.h - what the parts of the simulated world share.
 *
 *   sim_world.c   assembly, clock, randomness, trace, crashes
 *   sim_fault.c   rules, counting of operations, verdicts
 *   sim_memory.c  memory_ops
 *   sim_sched.c   sched_ops, the order of steps, the passing of time
 *   sim_disk.c    bytes and names, synced or not
 *   sim_fs.c      fs_ops
 *   sim_io.c      io_ops
 *   sim_index.c   index_ops over index_mem
 */
#ifndef KVT_TESTS_SIM_WORLD_INTERNAL_H
#define KVT_TESTS_SIM_WORLD_INTERNAL_H

#include "rng.h"
#include "sim_disk.h"
#include "sim_world.h"

struct sim_allocation; /* sim_memory.c */
struct sim_handle;     /* sim_fs.c */

/* One owner of memory: a life, or the world itself. */
struct sim_heap {
    struct sim_world *world;
    struct sim_allocation *allocations;
    uint64_t count; /* Of allocations that were not put back. */
    uint64_t asked;
    uint64_t fail_at; /* Value of `asked` that fails; 0: none. */
    bool fails_on;    /* All after it fail too. */
};

struct sim_rule_state {
    struct sim_rule rule;
    uint64_t seen;
};

/* What happens to one operation. */
struct sim_verdict {
    enum sim_effect effect;
    bool crashes; /* The power goes now: the operation may have happened. */
    uint64_t stall_ns;
};

/* What the index has on the disk, without sim_world.c knowing about the index. */
struct sim_guest {
    struct index_disk *disk;
    bool is_damaged;
    uint64_t change_count; /* What it was asked for that changes it. */
    void (*cut)(struct sim_world *world);
    void (*destroy)(struct sim_world *world);
};

struct sim_world {
    struct sim_options options;
    struct rng sched_rng;
    struct rng io_rng;
    struct rng fault_rng;
    struct rng random_rng;
    struct rng cut_rng;
    uint64_t now_ns;
    uint64_t trace;
    struct kvt_env env;
    struct kvt_env outer_env;
    struct sim_heap life;
    struct sim_heap outer;

    struct task *tasks;   /* Oldest first. */
    struct task *current; /* Being stepped. */
    uint64_t step_count;
    uint32_t stuck_count;
    int signal_count; /* Ever opened: the next one's name. */
    int signals_open;

    struct sim_disk disk;
    struct sim_handle *handles; /* Open files. */
    struct fs_dir *dirs;        /* Open directories. */
    struct io_queue *queues;

    struct sim_rule_state rules[SIM_RULES_MAX];
    uint32_t rule_count;
    uint64_t fault_count;
    uint64_t io_count;
    uint64_t crash_at; /* Value of io_count; 0: never. */
    bool is_crashed;
    struct sim_guest guest;
    struct board *board; /* NULL: the store shows nothing. */
};

/* What is open of a file. */
struct sim_handle {
    struct fs_file base; /* First: fs_file * is sim_handle *. */
    struct sim_world *world;
    struct sim_handle *next;
    struct sim_node *node;
    unsigned flags;
    char name[SIM_NAME_BYTES];
};

/* sim_board_clear - the life that wrote it is over: what it wrote stays. NULL is fine. */
void sim_board_clear(struct board *board);
void sim_board_free(struct board *board);

/* sim_panic - a rule of env.h was broken: say so, with the seed, and stop. */
_Noreturn void sim_panic(const struct sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What goes into the trace besides a test's own facts. */
enum sim_trace_kind {
    TRACE_STEP = 1,
    TRACE_CLOCK,
    TRACE_IO,
    TRACE_DONE,
    TRACE_CUT,
    TRACE_TEST,
};
void sim_trace_mix(struct sim_world *world, enum sim_trace_kind kind, uint64_t fact);

/* --- sim_fault.c ------------------------------------------------------------------------------ */

/* sim_verdict_of - count one operation and say what happens to it. Not after a crash. `node`: the
 * file of a transfer; NULL: another operation. */
struct sim_verdict sim_verdict_of(
    struct sim_world *world, enum sim_op op, const char *file, const struct sim_node *node);

/* Spoil bytes that were read well, as the effect says. */
void sim_read_spoil(struct sim_world *world, const struct sim_node *node, enum sim_effect effect,
    uint64_t offset, const struct iovec *pieces, uint32_t piece_count);

/* --- sim_memory.c ----------------------------------------------------------------------------- */

extern const struct memory_ops sim_memory_ops; /* Context: struct sim_heap *. */
void sim_heap_clear(struct sim_heap *heap);
/* sim_memory_prepare - before memory is taken of a world. Left to itself calloc() learns from what
 * is put back to take large ones from its heap, and zeroes them: a life took up to five times as
 * long. */
void sim_memory_prepare(void);

/* --- sim_sched.c ------------------------------------------------------------------------------ */

extern const struct sched_ops sim_sched_ops; /* Context: the world. */
void sim_tasks_clear(struct sim_world *world);
uint64_t sim_task_count(const struct sim_world *world);

/* --- sim_fs.c --------------------------------------------------------------------------------- */

extern const struct fs_ops sim_fs_ops; /* Context: the world. */
void sim_handles_clear(struct sim_world *world);
uint64_t sim_handle_count(const struct sim_world *world);
uint64_t sim_dir_count(const struct sim_world *world);
/* sim_space_for - the file may become `size` long. */
bool sim_space_for(struct sim_world *world, const struct sim_node *node, uint64_t size);
uint32_t sim_align_of(const struct sim_handle *handle);
/* sim_read_is_refused - because the file was opened to be read past the page cache. */
bool sim_read_is_refused(const struct sim_handle *handle);
/* sim_torn_write - some sectors of a write arrive. */
void sim_torn_write(struct sim_world *world, struct sim_node *node, const struct iovec *pieces,
    uint32_t piece_count, uint64_t offset);

/* --- sim_io.c --------------------------------------------------------------------------------- */

extern const struct io_ops sim_io_ops; /* Context: the world. */
/* Complete what is due; true when something was. */
bool sim_io_advance(struct sim_world *world);
uint64_t sim_io_next_ns(const struct sim_world *world); /* UINT64_MAX: nothing is in flight. */
/* The machine stops: transfers in flight may or may not have arrived. */
void sim_io_freeze(struct sim_world *world);
void sim_queues_clear(struct sim_world *world);
uint64_t sim_queue_count(const struct sim_world *world);
bool sim_io_has_news(const struct sim_world *world, const struct task *task);

#endif /* KVT_TESTS_SIM_WORLD_INTERNAL_H */
