/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_budget.c - tries twice the bytes in flight, and keeps them when that pays.
 */
#include "lane_budget.h"

#include <string.h>

enum {
    TRIAL_WINDOWS = 4,
};

void
budget_init(struct lane_budget *budget)
{
    memset(budget, 0, sizeof(*budget));
    budget->state = BUDGET_TRYING;
    budget->proven = BUDGET_FIRST_BYTES;
    budget->bytes = BUDGET_FIRST_BYTES;
    budget->skip_ns = BUDGET_SKIP_NS;
}

/* Bytes a millisecond; the windows are long, so nothing is lost by the division. */
static uint64_t
budget_rate(const struct lane_budget *budget, unsigned which)
{
    return budget->moved_bytes[which] / (budget->spent_ns[which] / 1000000 + 1);
}

static void
budget_judge(struct lane_budget *budget)
{
    uint64_t before = budget_rate(budget, 0);
    uint64_t after = budget_rate(budget, 1);
    bool pays = after > before + before * BUDGET_GAIN_PERCENT / 100;

    if (pays)
        budget->proven *= 2;
    if (!pays || budget->proven >= BUDGET_LAST_BYTES)
        budget->state = BUDGET_SETTLED;
    budget->window = 0;
    memset(budget->moved_bytes, 0, sizeof(budget->moved_bytes));
    memset(budget->spent_ns, 0, sizeof(budget->spent_ns));
}

static void
budget_window_end(struct lane_budget *budget)
{
    unsigned which = budget->window % 2;

    budget->moved_bytes[which] += budget->window_bytes;
    budget->spent_ns[which] += budget->window_ns;
    budget->window_bytes = 0;
    budget->window_ns = 0;
    budget->skip_ns = BUDGET_SKIP_NS;
    if (++budget->window == TRIAL_WINDOWS)
        budget_judge(budget);
    budget->bytes = budget->proven << (budget->window % 2);
}

void
budget_note(struct lane_budget *budget, uint64_t now_ns, uint64_t moved_bytes, bool is_full)
{
    uint64_t spent_ns = now_ns - budget->noted_ns;
    bool counts = budget->was_full && budget->state == BUDGET_TRYING;

    budget->noted_ns = now_ns;
    budget->was_full = is_full;
    if (!counts)
        return;
    if (budget->skip_ns > 0) {
        budget->skip_ns -= budget->skip_ns < spent_ns ? budget->skip_ns : spent_ns;
        return;
    }
    budget->window_bytes += moved_bytes;
    budget->window_ns += spent_ns;
    if (budget->window_ns >= BUDGET_WINDOW_NS)
        budget_window_end(budget);
}
