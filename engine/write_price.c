/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_price.c - one multiplication each ten seconds.
 */
#include "write_price.h"

#include <math.h>

#include "bytes.h"

enum {
    WINDOW_SECONDS = 10,
    WINDOWS_MAX = 60, /* What a longer silence counts as. */
    PAYBACK_SECONDS = 600,
    OWED_SECONDS_MAX = 3600, /* Of the budget. */
    CREDIT_SECONDS_MAX = 600,
};

static const double gain = 0.15;
static const double excess_max = 10; /* Budgets over the budget. */
static const double price_first_ns = 1e6;
static const double price_min_ns = 1e3; /* From 0 no factor leads away. */
static const double price_max_ns = 1e13;

void
write_price_set(struct write_price *price, uint64_t price_ns, double writes_per_second)
{
    bool was_steered = price->budget > 0;

    if (was_steered)
        price->owed_count *= writes_per_second / price->budget;
    price->budget = writes_per_second;
    if (price->fixed_ns == (double)price_ns && was_steered == (writes_per_second > 0))
        return;
    price->fixed_ns = (double)price_ns;
    price->price_ns = (double)price_ns;
    if (writes_per_second > 0 && price->price_ns < price_min_ns)
        price->price_ns = price_first_ns;
}

size_t
write_price_save(const struct write_price *price, uint8_t *target)
{
    if (price->budget <= 0)
        return 0;
    put_u64(target, (uint64_t)price->price_ns);
    put_u64(target + 8, (uint64_t)(int64_t)(price->owed_count / price->budget * 1000));
    return WRITE_PRICE_STATE_BYTES;
}

bool
write_price_restore(struct write_price *price, const uint8_t *source)
{
    double price_ns = (double)get_u64(source);
    double owed_seconds = (double)(int64_t)get_u64(source + 8) / 1000;

    if (price_ns < price_min_ns || price_ns > price_max_ns || owed_seconds < -CREDIT_SECONDS_MAX ||
        owed_seconds > OWED_SECONDS_MAX)
        return false;
    /* As of a budget of one: the first that is set takes it over. */
    *price = (struct write_price){.price_ns = price_ns, .budget = 1, .owed_count = owed_seconds};
    return true;
}

void
write_price_step(struct write_price *price, double now)
{
    double passed = now - price->window_start;
    double rate, excess, windows;

    if (!price->has_started) {
        price->has_started = true;
        price->window_start = now;
        return;
    }
    if (passed < WINDOW_SECONDS)
        return;
    rate = (double)price->write_count / passed;
    price->write_count = 0;
    price->window_start = now;
    if (price->budget <= 0)
        return;
    price->owed_count += (rate - price->budget) * passed;
    price->owed_count = fmax(-CREDIT_SECONDS_MAX * price->budget,
        fmin(OWED_SECONDS_MAX * price->budget, price->owed_count));
    excess = rate - (price->budget - price->owed_count / PAYBACK_SECONDS);
    windows = fmin(floor(passed / WINDOW_SECONDS), WINDOWS_MAX);
    price->price_ns *= exp(gain * windows * fmax(-1, fmin(excess_max, excess / price->budget)));
    price->price_ns = fmax(price_min_ns, fmin(price_max_ns, price->price_ns));
}
