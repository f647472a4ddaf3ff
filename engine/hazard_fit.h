/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hazard_fit.h - the mathematics of hazards by age: curves with one peak, and the Gittins index.
 *
 * A hazard is the rate, per second, at which blocks of one age are used again. Ages are cut into
 * buckets; within a bucket the hazard is constant. Pure functions: no state, no memory.
 */
#ifndef KVT_ENGINE_HAZARD_FIT_H
#define KVT_ENGINE_HAZARD_FIT_H

#include <stdint.h>

enum {
    HAZARD_BUCKETS = 25,
};

/* hazard_unimodal - replace `values` by the nearest curve (least squares; each bucket has a weight
 * above 0) that does not fall up to `peak`, and does not rise behind it. With the exposure as
 * weight it is the likeliest such hazard. */
void hazard_unimodal(
    double values[HAZARD_BUCKETS], const double weights[HAZARD_BUCKETS], uint32_t peak);

/* hazard_peak - the peak with which hazard_unimodal() comes nearest; of equals the first. */
uint32_t hazard_peak(const double values[HAZARD_BUCKETS], const double weights[HAZARD_BUCKETS]);

/*
 * hazard_gittins - for each bucket k: the most reuses a block-second that keeping a block can earn
 * which has just reached that age, over all times to stop waiting (at a bucket's end). All rates
 * are above 0.
 */
void hazard_gittins(const double rates[HAZARD_BUCKETS], const double widths[HAZARD_BUCKETS],
    double index_out[HAZARD_BUCKETS]);

#endif /* KVT_ENGINE_HAZARD_FIT_H */
