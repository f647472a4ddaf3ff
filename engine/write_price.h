/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_price.h - what a block written to NVMe must be worth, steered so that as many are written
 * as a budget allows.
 *
 * Each 10 s the price rises by e^0.15 for each budget that was written over what is due, and falls
 * by up to as much when less was. Writes come in bursts: were a burst to raise the price no more
 * than a pause lowers it, more than the budget would be written (on the conversation trace up to
 * 1.8 times as much).
 *
 * Due is the budget, less a 600th of what is owed each second. Owed is what was written over the
 * budget since the beginning, an hour of it at most: while the price is learnt more is written
 * (without the debt, budgets of 5 to 30 a second came to 1.07 to 1.19 of themselves on that
 * trace, with it to 0.99 to 1.01). What was not written is credit, ten minutes of the budget at
 * most: an idle night saves no flood up.
 *
 * Threads   the loop only.
 */
#ifndef KVT_ENGINE_WRITE_PRICE_H
#define KVT_ENGINE_WRITE_PRICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: free. */
struct write_price {
    double price_ns;
    double fixed_ns;      /* What the price was set to. */
    double budget;        /* Writes a second; 0: the price stays as it is. */
    double window_start;  /* Seconds. */
    uint64_t write_count; /* In the window. */
    double owed_count;    /* Writes; below 0: credit. */
    bool has_started;
};

/* write_price_set - the price, or where it begins, and the budget. The same price as before: it
 * goes on from where it is. Another budget: so it does; what is owed of the one before is as large
 * a part of this one (of as many bytes, when blocks have become larger or smaller). */
void write_price_set(struct write_price *price, uint64_t price_ns, double writes_per_second);

enum {
    WRITE_PRICE_STATE_BYTES = 16,
};

/* write_price_save - what was learnt of a budget, and what is owed (FORMAT.md section 3.8); returns
 * its size, 0 without a budget. write_price_restore - it goes on from there: false, and nothing has
 * changed, when these bytes are impossible. */
size_t write_price_save(const struct write_price *price, uint8_t *target);
bool write_price_restore(struct write_price *price, const uint8_t *source);

/* write_price_step - the time is `now` (seconds). */
void write_price_step(struct write_price *price, double now);

#endif /* KVT_ENGINE_WRITE_PRICE_H */
