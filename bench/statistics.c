/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statistics.c - the middle and the tail of a few measured values.
 */
#include "statistics.h"

#include <stdlib.h>

static int
double_compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

double
median(double *values, uint32_t count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof(*values), double_compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static int
number_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

uint64_t
number_percentile(uint64_t *numbers, uint32_t count, double share)
{
    uint32_t index = (uint32_t)(share * (double)count);

    if (count == 0)
        return 0;
    qsort(numbers, count, sizeof(*numbers), number_compare);
    return numbers[index < count ? index : count - 1];
}
