/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - what a store may answer: a plain map from names to states, with what a crash allows.
 *
 * Every payload is a function of the model's salt, its name and its version, so that any bytes a
 * store gives can be verified, and a wrong answer can be called by its name.
 *
 * A state of a name is 0 (nothing there) or the version that is there. The model keeps three sets
 * of states a name, as bit masks:
 *
 *   live      what an answer may show now
 *   kept      what the next open may find when the index is there
 *   rebuilt   what the next open may find when the index was lost
 *
 * and for each name the operations since the last one that was acknowledged as durable. What the
 * next open may find is the state that the last acknowledged operation left, or any state that a
 * later one might have left. A rebuild may also find what an earlier life had not acknowledged.
 *
 * Operations of one name that are in flight at the same time are a chain: stage 1 of them may come
 * in any order, but behind what was reached before they were submitted. The model keeps every order
 * that explains all of their answers (model_chain.c); there must be one.
 *
 * The model is pure: it knows no store. Answers that it does not allow end up in `failure`.
 */
#ifndef KVT_TESTS_MODEL_H
#define KVT_TESTS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MODEL_SPACES = 3,    /* Namespaces. */
    MODEL_KEYS_MAX = 64, /* Keys in each. */
    MODEL_VERSIONS = 62, /* Of one name. */
    MODEL_OPS = 48,      /* Of one name, since one was acknowledged. */
    MODEL_LINKS = 6,     /* Operations of one name in a chain. */
    MODEL_FAILURE_BYTES = 400,
};

#define MODEL_NOTHING UINT64_C(1) /* The mask of state 0. */

struct model_name {
    uint32_t space;
    uint32_t key;
};

/* Parts of a block. */
struct model_range {
    uint32_t first, count; /* count 0: the whole block. */
};

/* One operation that may or may not have become durable. */
struct model_op {
    uint64_t pending; /* States that it may have left. 0: it did nothing. */
    uint64_t settled; /* The state it left if it is durable. */
    bool is_lasting;  /* A flush or a close makes it durable, in the life that it is of. */
};

enum model_act {
    MODEL_PUT,
    MODEL_REPLACE,
    MODEL_DELETE,
    MODEL_READ
};

enum model_outcome {
    MODEL_UNTOLD,  /* Or it was cancelled, or failed: it did nothing. */
    MODEL_DONE,    /* A read: it saw one of `state`. */
    MODEL_ABSENT,  /* A delete: nothing was there. */
    MODEL_PRESENT, /* A put: something was there. */
    MODEL_REFUSED, /* A put. */
};

/* One operation of a chain. */
struct model_link {
    enum model_act act;
    enum model_outcome outcome;
    bool is_acked;
    uint32_t before; /* Bits of links that come before it. */
    uint64_t op;     /* But of a read. */
    uint64_t state;  /* Put: what it leaves, or found. Read: what it may have seen. */
};

struct model_chain {
    uint32_t count;
    bool is_open;              /* Not every answer is known. */
    bool may_be_gone;          /* The model's, when they were. */
    uint32_t reader;           /* Link whose answer model_read() hears. */
    uint64_t op_first, op_end; /* Operations of it. */
    uint64_t start, end;       /* States before the first, and behind the last. */
    struct model_link links[MODEL_LINKS];
};

struct model_key {
    uint64_t live;
    uint64_t kept;    /* Before the first of `ops`. */
    uint64_t rebuilt; /* The same. */
    uint32_t version_last;
    uint32_t op_count;
    uint64_t op_first; /* Number of ops[0]; later ones follow. */
    struct model_op ops[MODEL_OPS];
    struct model_chain chain; /* The last one; op_end <= op_first: it is of no account any more. */
};

struct model {
    uint64_t salt;
    uint32_t key_count;    /* In each namespace. */
    uint32_t length_shift; /* Blocks are 1, 2, 4 or 8 pages long, shifted by this. */
    bool may_miss;         /* A read may find nothing: it may have failed, or the block has gone. */
    bool may_be_gone;      /* Blocks may leave: nothing has to be there. */
    struct model_key keys[MODEL_SPACES][MODEL_KEYS_MAX];
    char failure[MODEL_FAILURE_BYTES]; /* The first one; empty: none. */
};

void model_init(struct model *model, uint64_t salt, uint32_t key_count, uint32_t length_shift);
void model_fail(struct model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- payloads --------------------------------------------------------------------------------- */

uint64_t model_length_max(const struct model *model);
uint64_t model_length(const struct model *model, struct model_name name, uint32_t version);
/* Equal parts of that length. */
uint32_t model_parts(const struct model *model, struct model_name name, uint32_t version);
void model_fill(
    const struct model *model, struct model_name name, uint32_t version, uint8_t *target);
bool model_is(const struct model *model, struct model_name name, uint32_t version,
    const void *bytes, uint64_t length);
/* The version whose payload these bytes are; 0: none of this name's. */
uint32_t model_identify(
    const struct model *model, struct model_name name, const void *bytes, uint64_t length);

/* --- operations: each returns its number among those of its name ------------------------------ */

/* False when the name has not so many versions or operations left: take another. */
bool model_has_room(const struct model *model, struct model_name name, uint32_t count);
/* A put of the next version is about to be submitted. */
uint64_t model_put(struct model *model, struct model_name name, bool replaces, bool is_lasting);
/* Its stage 1: it is visible; or something else was there; or it was refused. */
void model_put_visible(struct model *model, struct model_name name, uint64_t op);
void model_put_exists(struct model *model, struct model_name name, uint64_t op);
void model_put_refused(struct model *model, struct model_name name, uint64_t op);
/* Nobody was told whether it is visible or something else was there (not of a chain). */
void model_put_either(struct model *model, struct model_name name, uint64_t op);
/* It was cancelled before it began: it did nothing. (A delete too.) */
void model_cancelled(struct model *model, struct model_name name, uint64_t op);
uint64_t model_delete(struct model *model, struct model_name name);
/* Stage 1. That nothing was there is acknowledged like any other (stage 2), but by no flush. */
void model_deleted(struct model *model, struct model_name name, uint64_t op, bool was_there);
/* Operations of the whole namespace: one of each name, with this number for its own. */
void model_clear_begin(struct model *model, uint32_t space);
void model_clear_end(struct model *model, uint32_t space, bool is_cleared);

/* Durable. */
void model_ack(struct model *model, struct model_name name, uint64_t op);
/* Known not to be durable, or not known at all: a flush says nothing about it any more. */
void model_doubt(struct model *model, struct model_name name, uint64_t op);
/* Anything may be gone: reads were made to find damage. */
void model_doubt_all(struct model *model);
/* No other operation of the name came behind it, or may have. */
bool model_is_last(const struct model *model, struct model_name name, uint64_t op);
/* What the next open may not find may be gone now: it could not be written. */
void model_doubt_volatile(struct model *model);
/* A put that found its key there is durable: so is what is there, if nothing came in between. */
void model_ack_present(struct model *model, struct model_name name, uint64_t op);
/* Every lasting operation is durable (flush, close). */
void model_ack_all(struct model *model);

/* --- chains (model_chain.c) ------------------------------------------------------------------- */

/* From here on the name's operations are links of a chain, and what they answer says nothing before
 * all have: model_chain_end(). */
void model_chain_begin(struct model *model, struct model_name name);
/* It was submitted; stage 1 of the links in `before` had been reached then. A read has no `op`. The
 * number of its link. */
uint32_t model_chain_add(
    struct model *model, struct model_name name, enum model_act act, uint64_t op, uint32_t before);
/* What model_read() hears next is the answer of that link. */
void model_chain_hear(struct model *model, struct model_name name, uint32_t link);
void model_chain_end(struct model *model, struct model_name name);

/* --- answers ---------------------------------------------------------------------------------- */

/* A read gave these bytes (NULL: a miss). */
void model_read(struct model *model, struct model_name name, const void *bytes, uint64_t length);
/* A read of parts gave these bytes (NULL: the block has no such parts). */
void model_read_parts(struct model *model, struct model_name name, const struct model_range *range,
    const void *bytes, uint64_t length);
/* model_had - these bytes, of parts or of the whole block (count 0), are those of one of these
 * states; NULL: one of them has no such parts. */
bool model_had(const struct model *model, struct model_name name, uint64_t states,
    const struct model_range *range, const void *bytes, uint64_t length);
/* model_states - what an answer may show now. */
uint64_t model_states(const struct model *model, struct model_name name);
/* A lookup hit or missed. */
void model_found(struct model *model, struct model_name name, bool hit);
bool model_is_certain(const struct model *model, struct model_name name); /* It must be there. */
/* Something may have taken it away, but for an eviction. */
bool model_may_be_gone(const struct model *model, struct model_name name);

/* --- lives ------------------------------------------------------------------------------------ */

/* A new life begins; `is_rebuilt`: without the old index. */
void model_reopened(struct model *model, bool is_rebuilt);
/* model_undo - all that came of operations since the model was as in `before` is void; but no
 * version comes again. */
void model_undo(struct model *model, const struct model *before);
/* Every name was read since: what was found is what there is. Not `is_firm`: what was read may have
 * been a page cache's, and the next life may find something else again. */
void model_settled(struct model *model, bool is_firm);

#endif /* KVT_TESTS_MODEL_H */
