/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hazard.c - counting reuses and exposure, and turning them into hazards and indices.
 */
#include "hazard.h"

#include <math.h>
#include <string.h>

#include "bytes.h"
#include "failure.h"

enum {
    ESTIMATE_SECONDS = 5,
    FADE_SECONDS = 7200, /* By half. */
    FAMILY_COUNT =
        HAZARD_USE_BUCKETS * HAZARD_GAPS, /* Classes with one segment and turn stand together. */
    MAP_BYTES = 2 << 20,
};

static const double strength = 10;     /* k: how much the prior weighs, in reuses. */
static const double prior_share = 0.5; /* The hazard before there are data: this / (age + 60 s). */

#define STATE_COUNT_MAX 1e18f /* Of what is restored: a thousand million blocks for 30 years. */

struct hazard {
    struct kvt_env env;
    uint32_t last_estimate; /* Ticks. */
    bool has_started;
    bool is_used[HAZARD_CLASSES]; /* Something was counted for the class. */
    double edges[HAZARD_BUCKETS + 1];
    double widths[HAZARD_BUCKETS];
    double reuses[HAZARD_CLASSES][HAZARD_BUCKETS];  /* H */
    double seconds[HAZARD_CLASSES][HAZARD_BUCKETS]; /* E */
    double horizon;                                 /* Seconds. */
    struct hazard_tables tables;
    struct cohorts cohorts;
};

_Static_assert(sizeof(struct hazard) <= MAP_BYTES, "one huge page, of which most is not touched");

/* --- Ages ------------------------------------------------------------------------------------- */

double
hazard_seconds(uint32_t ticks)
{
    return ticks * HAZARD_TICK_SECONDS;
}

static void
edges_set(struct hazard *hazard)
{
    for (uint32_t k = 1; k < HAZARD_BUCKETS; k++)
        hazard->edges[k] =
            (double)(1u << ((k - 1) / 2)) * ((k - 1) % 2 == 0 ? 1 : (double)HAZARD_ROOT_2);
    hazard->edges[HAZARD_BUCKETS] = HAZARD_AGE_MAX_SECONDS;
    for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
        hazard->widths[k] = hazard->edges[k + 1] - hazard->edges[k];
        hazard->tables.starts[k] = (float)hazard->edges[k];
        hazard->tables.widths_inverse[k] = (float)(1 / hazard->widths[k]);
    }
}

/* --- Classes ---------------------------------------------------------------------------------- */

uint8_t
hazard_segment_bucket(uint32_t length)
{
    return length < 4 ? 0 : length < 8 ? 1 : length < 16 ? 2 : 3;
}

void
hazard_traits_use(struct hazard_traits *traits, uint32_t age)
{
    double gap = hazard_seconds(age);

    if (traits->use_count < HAZARD_USES_MAX)
        traits->use_count++;
    traits->gap = gap < 20 ? 1 : gap < 80 ? 2 : gap < 320 ? 3 : 4;
}

/* --- Counting --------------------------------------------------------------------------------- */

/* Each of `count` blocks of the class has passed from one age to another (seconds). */
static void
exposure_add(struct hazard *hazard, uint32_t class_index, uint32_t count, const double span[2])
{
    double from = span[0];
    double to = span[1] < HAZARD_AGE_MAX_SECONDS ? span[1] : HAZARD_AGE_MAX_SECONDS;

    if (from >= to)
        return;
    hazard->is_used[class_index] = true;
    for (uint32_t k = hazard_bucket((float)from); k < HAZARD_BUCKETS && from < to; k++) {
        double end = hazard->edges[k + 1] < to ? hazard->edges[k + 1] : to;

        if (end <= from)
            continue;
        hazard->seconds[class_index][k] += count * (end - from);
        from = end;
    }
}

/* What a block that was used last at `last` has stood through since the last estimate. */
static void
exposure_catch_up(struct hazard *hazard, uint32_t class_index, uint32_t last, uint32_t now)
{
    uint32_t counted = hazard->last_estimate > last ? hazard->last_estimate - last : 0;

    exposure_add(hazard, class_index, 1,
        (const double[2]){hazard_seconds(counted), hazard_seconds(now - last)});
}

void
hazard_arrive(struct hazard *hazard, uint32_t class_index, uint32_t now)
{
    cohorts_join(&hazard->cohorts, class_index, now);
}

void
hazard_use(struct hazard *hazard, uint32_t from, uint32_t to, uint32_t last, uint32_t now)
{
    double age = hazard_seconds(now - last);

    exposure_catch_up(hazard, from, last, now);
    if (age < HAZARD_AGE_MAX_SECONDS) {
        hazard->is_used[from] = true;
        hazard->reuses[from][hazard_bucket((float)age)]++;
    }
    cohorts_leave(&hazard->cohorts, from, last);
    cohorts_join(&hazard->cohorts, to, now);
}

void
hazard_reclass(struct hazard *hazard, uint32_t from, uint32_t to, uint32_t last)
{
    cohorts_move(&hazard->cohorts, from, to, last);
}

void
hazard_forget(struct hazard *hazard, uint32_t class_index, uint32_t last, uint32_t now)
{
    exposure_catch_up(hazard, class_index, last, now);
    cohorts_leave(&hazard->cohorts, class_index, last);
}

/* All cohorts have stood through the time since the last estimate. */
static void
exposure_add_cohorts(struct hazard *hazard, uint32_t now)
{
    for (uint32_t row = 0; row < hazard->cohorts.count; row++) {
        uint32_t start = hazard->cohorts.starts[row];
        uint32_t counted = hazard->last_estimate > start ? hazard->last_estimate - start : 0;
        const double span[2] = {hazard_seconds(counted), hazard_seconds(now - start)};

        for (uint32_t plane = 0; plane < COHORT_PLANES; plane++) {
            const uint32_t *counts = cohorts_counts(&hazard->cohorts, plane, row);

            for (uint32_t i = 0; i < COHORT_CLASSES; i++) {
                if (counts[i] != 0)
                    exposure_add(hazard, plane * COHORT_CLASSES + i, counts[i], span);
            }
        }
    }
}

/* --- Estimating ------------------------------------------------------------------------------- */

/* What was counted of some classes, and the hazard that follows. */
struct estimate {
    double reuses[HAZARD_BUCKETS], seconds[HAZARD_BUCKETS];
    double rates[HAZARD_BUCKETS];
};

static void
estimate_add(struct estimate *estimate, const struct hazard *hazard, uint32_t class_index)
{
    for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
        estimate->reuses[k] += hazard->reuses[class_index][k];
        estimate->seconds[k] += hazard->seconds[class_index][k];
    }
}

/* The hazard of all classes together; its peak is returned. */
static uint32_t
pooled_estimate(const struct hazard *hazard, struct estimate *pooled)
{
    double weights[HAZARD_BUCKETS];
    uint32_t peak;

    *pooled = (struct estimate){.reuses = {0}};
    for (uint32_t c = 0; c < HAZARD_CLASSES; c++) {
        if (hazard->is_used[c])
            estimate_add(pooled, hazard, c);
    }
    for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
        double middle = hazard->edges[k] + hazard->widths[k] / 2;
        double prior = prior_share / (middle + HAZARD_PRIOR_SECONDS);

        weights[k] = pooled->seconds[k] + strength / prior;
        pooled->rates[k] = (pooled->reuses[k] + strength) / weights[k];
    }
    peak = hazard_peak(pooled->rates, weights);
    hazard_unimodal(pooled->rates, weights, peak);
    return peak;
}

/* The hazard of a part of those that have the hazard `prior` together. */
static void
part_estimate(struct estimate *part, const double prior[HAZARD_BUCKETS], uint32_t peak)
{
    double weights[HAZARD_BUCKETS];
    double seen = strength, expected = strength;

    for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
        seen += part->reuses[k];
        expected += part->seconds[k] * prior[k];
    }
    for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
        weights[k] = part->seconds[k] + strength * expected / (seen * prior[k]);
        part->rates[k] = (part->reuses[k] + strength) / weights[k];
    }
    hazard_unimodal(part->rates, weights, peak);
}

/* Reuses that are expected of a block between two ages. Behind the last edge the hazard stays. */
static double
reuses_expected(const struct hazard *hazard, const double *rates, double from, double to)
{
    double expected = 0;

    for (uint32_t k = 0; k < HAZARD_BUCKETS && hazard->edges[k] < to; k++) {
        double end =
            k + 1 == HAZARD_BUCKETS || hazard->edges[k + 1] > to ? to : hazard->edges[k + 1];
        double start = hazard->edges[k] > from ? hazard->edges[k] : from;

        if (start < end)
            expected += rates[k] * (end - start);
    }
    return expected;
}

/* The tables of a class that has these hazards. */
static void
class_set(struct hazard *hazard, uint32_t class_index, const double rates[HAZARD_BUCKETS])
{
    struct hazard_point *points = hazard->tables.points[class_index];
    double indices[HAZARD_BUCKETS];
    double tail = hazard->edges[HAZARD_BUCKETS - 1] + HAZARD_PRIOR_SECONDS;

    hazard_gittins(rates, hazard->widths, indices);
    for (uint32_t k = 0; k < HAZARD_BUCKETS; k++)
        points[k].index = (float)indices[k];
    for (uint32_t k = 0; k <= HAZARD_BUCKETS; k++) {
        double from = hazard->edges[k];

        points[k].chance =
            (float)-expm1(-reuses_expected(hazard, rates, from, from + hazard->horizon));
    }
    /* From the last edge on it falls as the prior does. */
    points[HAZARD_BUCKETS].index = (float)(indices[HAZARD_BUCKETS - 1] * tail /
                                           (HAZARD_AGE_MAX_SECONDS + HAZARD_PRIOR_SECONDS));
}

static void
class_copy(struct hazard *hazard, uint32_t class_index, uint32_t source)
{
    struct hazard_point(*points)[HAZARD_BUCKETS + 1] = hazard->tables.points;

    memcpy(points[class_index], points[source], sizeof(points[0]));
}

/* The classes of a family, those that differ in segment and turn only, end before this one. */
static uint32_t
family_end(uint32_t first)
{
    return first - first % COHORT_CLASSES + COHORT_CLASSES;
}

static bool
family_is_used(const struct hazard *hazard, uint32_t first)
{
    for (uint32_t c = first; c < family_end(first); c += FAMILY_COUNT) {
        if (hazard->is_used[c])
            return true;
    }
    return false;
}

static void
family_set(struct hazard *hazard, uint32_t first, const struct estimate *pooled, uint32_t peak)
{
    struct estimate family = {.reuses = {0}};
    const uint32_t end = family_end(first);
    uint32_t unused = HAZARD_CLASSES; /* The first class that has shown nothing: as all others. */

    for (uint32_t c = first; c < end; c += FAMILY_COUNT) {
        if (hazard->is_used[c])
            estimate_add(&family, hazard, c);
    }
    part_estimate(&family, pooled->rates, peak);
    for (uint32_t c = first; c < end; c += FAMILY_COUNT) {
        struct estimate own = {.reuses = {0}};

        if (hazard->is_used[c]) {
            estimate_add(&own, hazard, c);
            part_estimate(&own, family.rates, peak);
            class_set(hazard, c, own.rates);
        } else if (unused == HAZARD_CLASSES) {
            class_set(hazard, c, family.rates);
            unused = c;
        } else {
            class_copy(hazard, c, unused);
        }
    }
}

static void
tables_set(struct hazard *hazard)
{
    struct estimate pooled;
    uint32_t peak = pooled_estimate(hazard, &pooled);
    uint32_t blank = HAZARD_CLASSES; /* Of the first family that has shown nothing: as all such. */

    for (uint32_t i = 0; i < COHORT_PLANES * FAMILY_COUNT; i++) {
        uint32_t first = i / FAMILY_COUNT * COHORT_CLASSES + i % FAMILY_COUNT;
        bool is_blank = !family_is_used(hazard, first);

        if (is_blank && blank != HAZARD_CLASSES) {
            for (uint32_t c = first; c < family_end(first); c += FAMILY_COUNT)
                class_copy(hazard, c, blank);
            continue;
        }
        family_set(hazard, first, &pooled, peak);
        if (is_blank)
            blank = first;
    }
}

static void
counts_fade(struct hazard *hazard, double passed)
{
    double share = exp2(-passed / FADE_SECONDS);

    for (uint32_t c = 0; c < HAZARD_CLASSES; c++) {
        for (uint32_t k = 0; hazard->is_used[c] && k < HAZARD_BUCKETS; k++) {
            hazard->reuses[c][k] *= share;
            hazard->seconds[c][k] *= share;
        }
    }
}

void
hazard_step(struct hazard *hazard, uint32_t now)
{
    double passed = hazard_seconds(now - hazard->last_estimate);

    if (!hazard->has_started) {
        hazard->has_started = true;
        hazard->last_estimate = now;
        return;
    }
    if (passed < ESTIMATE_SECONDS)
        return;
    exposure_add_cohorts(hazard, now);
    tables_set(hazard);
    counts_fade(hazard, passed);
    hazard->last_estimate = now;
    cohorts_age(&hazard->cohorts, now, (uint32_t)(HAZARD_AGE_MAX_SECONDS / HAZARD_TICK_SECONDS));
}

/* --- Answers ---------------------------------------------------------------------------------- */

const struct hazard_tables *
hazard_tables(const struct hazard *hazard)
{
    return &hazard->tables;
}

uint32_t
hazard_since(const struct hazard *hazard, uint32_t tick, uint32_t now, uint32_t *in_span_out)
{
    return cohorts_since(&hazard->cohorts, tick, now, in_span_out);
}

void
hazard_horizon_set(struct hazard *hazard, double horizon)
{
    hazard->horizon = horizon;
}

void
hazard_counts(const struct hazard *hazard, uint32_t class_index, double reuses_out[HAZARD_BUCKETS],
    double seconds_out[HAZARD_BUCKETS])
{
    memcpy(reuses_out, hazard->reuses[class_index], HAZARD_BUCKETS * sizeof(*reuses_out));
    memcpy(seconds_out, hazard->seconds[class_index], HAZARD_BUCKETS * sizeof(*seconds_out));
}

/* --- Keeping ---------------------------------------------------------------------------------- */

enum {
    STATE_VERSION = 1,
    STATE_HEAD_BYTES = 8,                           /* u32 version, u32 number of classes. */
    STATE_CLASS_BYTES = 4 + 2 * 4 * HAZARD_BUCKETS, /* u32 class, H, E: u32 bits of floats. */
};

static void
put_float(uint8_t *target, double value)
{
    float narrow = (float)value;
    uint32_t bits;

    memcpy(&bits, &narrow, sizeof(bits));
    put_u32(target, bits);
}

/* Below 0: no count. */
static double
get_count(const uint8_t *source)
{
    uint32_t bits = get_u32(source);
    float value;

    memcpy(&value, &bits, sizeof(value));
    return isfinite(value) && value >= 0 && value <= STATE_COUNT_MAX ? (double)value : -1;
}

size_t
hazard_save(const struct hazard *hazard, uint8_t *target)
{
    uint8_t *at = target + STATE_HEAD_BYTES;
    uint32_t count = 0;

    for (uint32_t c = 0; c < HAZARD_CLASSES; c++) {
        if (!hazard->is_used[c])
            continue;
        put_u32(at, c);
        for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
            put_float(at + 4 + 4 * k, hazard->reuses[c][k]);
            put_float(at + 4 + 4 * (HAZARD_BUCKETS + k), hazard->seconds[c][k]);
        }
        at += STATE_CLASS_BYTES;
        count++;
    }
    put_u32(target, STATE_VERSION);
    put_u32(target + 4, count);
    return count == 0 ? 0 : (size_t)(at - target);
}

static bool
state_is_valid(const uint8_t *source, size_t size)
{
    uint32_t count, next = 0;

    if (size < STATE_HEAD_BYTES || get_u32(source) != STATE_VERSION)
        return false;
    count = get_u32(source + 4);
    if (count > HAZARD_CLASSES || size != STATE_HEAD_BYTES + (size_t)count * STATE_CLASS_BYTES)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = source + STATE_HEAD_BYTES + (size_t)i * STATE_CLASS_BYTES;

        if (get_u32(at) < next || get_u32(at) >= HAZARD_CLASSES)
            return false;
        next = get_u32(at) + 1;
        for (uint32_t k = 0; k < 2 * HAZARD_BUCKETS; k++) {
            if (get_count(at + 4 + 4 * k) < 0)
                return false;
        }
    }
    return true;
}

bool
hazard_restore(struct hazard *hazard, const uint8_t *source, size_t size)
{
    if (!state_is_valid(source, size))
        return false;
    for (uint32_t i = 0; i < get_u32(source + 4); i++) {
        const uint8_t *at = source + STATE_HEAD_BYTES + (size_t)i * STATE_CLASS_BYTES;
        uint32_t c = get_u32(at);

        hazard->is_used[c] = true;
        for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
            hazard->reuses[c][k] = get_count(at + 4 + 4 * k);
            hazard->seconds[c][k] = get_count(at + 4 + 4 * (HAZARD_BUCKETS + k));
        }
    }
    tables_set(hazard);
    return true;
}

/* --- Life ------------------------------------------------------------------------------------- */

enum kvt_status
hazard_open(const struct kvt_env *env, struct hazard **hazard_out)
{
    struct hazard *hazard = env_map(env, MAP_BYTES);

    *hazard_out = NULL;
    if (hazard == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for what is learned of blocks");
    hazard->env = *env;
    hazard->horizon = HAZARD_HORIZON_FIRST;
    edges_set(hazard);
    tables_set(hazard);
    *hazard_out = hazard;
    return KVT_OK;
}

void
hazard_close(struct hazard *hazard)
{
    struct kvt_env env;

    if (hazard == NULL)
        return;
    env = hazard->env;
    env_unmap(&env, hazard, MAP_BYTES);
}
