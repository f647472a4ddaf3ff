/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_fault.c - which operation goes wrong, and what wrong bytes look like.
 *
 * Owns      the rules, the count of operations, the moment of the crash.
 * Not here  what an effect does to each kind of operation (sim_fs.c, sim_io.c, sim_index.c).
 */
#include <string.h>

#include "sim_world_internal.h"

void
sim_rule_add(struct sim_world *world, const struct sim_rule *rule)
{
    if (world->rule_count == SIM_RULES_MAX)
        sim_panic(world, "more than %d rules", SIM_RULES_MAX);
    world->rules[world->rule_count].rule = *rule;
    world->rules[world->rule_count].seen = 0;
    world->rule_count++;
}

void
sim_rules_clear(struct sim_world *world)
{
    world->rule_count = 0;
}

uint64_t
sim_fault_count(const struct sim_world *world)
{
    return world->fault_count;
}

uint64_t
sim_io_count(const struct sim_world *world)
{
    return world->io_count;
}

void
sim_crash_after(struct sim_world *world, uint64_t n)
{
    world->crash_at = n == 0 ? 0 : world->io_count + n;
}

static bool
rule_fires(struct sim_world *world, struct sim_rule_state *state, enum sim_op op, const char *file,
    const struct sim_node *node)
{
    const struct sim_rule *rule = &state->rule;

    if ((rule->ops & (unsigned)op) == 0)
        return false;
    if (rule->file != NULL && strncmp(file, rule->file, strlen(rule->file)) != 0)
        return false;
    if (rule->path != NULL && (node == NULL || node != disk_find_path(&world->disk, rule->path)))
        return false;
    state->seen++;
    if (rule->nth == 0)
        return rng_below(&world->fault_rng, 1000) < rule->per_mille;
    return state->seen == rule->nth || (rule->sticky && state->seen > rule->nth);
}

struct sim_verdict
sim_verdict_of(
    struct sim_world *world, enum sim_op op, const char *file, const struct sim_node *node)
{
    struct sim_verdict verdict = {.effect = SIM_NOTHING};

    world->io_count++;
    for (uint32_t i = 0; i < world->rule_count; i++) {
        if (!rule_fires(world, &world->rules[i], op, file, node) || verdict.effect != SIM_NOTHING)
            continue;
        verdict.effect = world->rules[i].rule.effect;
        verdict.stall_ns = world->rules[i].rule.stall_ns;
        world->fault_count++;
    }
    if (world->crash_at != 0 && world->io_count >= world->crash_at) {
        verdict.crashes = true;
        world->is_crashed = true;
        sim_io_freeze(world);
    }
    sim_trace_mix(world, TRACE_IO, ((uint64_t)op << 8) + (uint64_t)verdict.effect);
    return verdict;
}

static uint64_t
pieces_size(const struct iovec *pieces, uint32_t piece_count)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < piece_count; i++)
        size += pieces[i].iov_len;
    return size;
}

static void
flip_bit(struct sim_world *world, const struct iovec *pieces, uint32_t piece_count)
{
    uint64_t size = pieces_size(pieces, piece_count);
    uint64_t at = size == 0 ? 0 : rng_next(&world->fault_rng) % size;

    for (uint32_t i = 0; i < piece_count; i++) {
        if (at < pieces[i].iov_len) {
            ((uint8_t *)pieces[i].iov_base)[at] ^= (uint8_t)(1u << rng_below(&world->fault_rng, 8));
            return;
        }
        at -= pieces[i].iov_len;
    }
}

static void
pieces_read(const struct sim_image *image, uint64_t offset, const struct iovec *pieces,
    uint32_t piece_count)
{
    for (uint32_t i = 0; i < piece_count; i++) {
        image_read(image, offset, pieces[i].iov_base, pieces[i].iov_len);
        offset += pieces[i].iov_len;
    }
}

void
sim_read_spoil(struct sim_world *world, const struct sim_node *node, enum sim_effect effect,
    uint64_t offset, const struct iovec *pieces, uint32_t piece_count)
{
    uint64_t pages = node->current.size / 4096;

    if (effect == SIM_FLIP)
        flip_bit(world, pieces, piece_count);
    else if (effect == SIM_STALE)
        pieces_read(&node->previous, offset, pieces, piece_count);
    else if (effect == SIM_MISDIRECT && pages > 0)
        pieces_read(
            &node->current, rng_next(&world->fault_rng) % pages * 4096, pieces, piece_count);
}
