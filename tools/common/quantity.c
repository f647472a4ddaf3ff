/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantity.c - numbers with units, as people write and read them.
 */
#include "quantity.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The digits at *at; moves *at behind them. False: there are none, or too many. */
static bool
digits_read(const char **at, uint64_t *number_out)
{
    const char *digit = *at;
    uint64_t number = 0;

    if (*digit < '0' || *digit > '9')
        return false;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*digit - '0'), &number))
            return false;
    }
    *at = digit;
    *number_out = number;
    return true;
}

/* Digits, and perhaps a point and more digits: at most nine on either side. */
static bool
decimal_read(const char **at, double *number_out)
{
    const char *start = *at;
    uint64_t whole = 0;
    uint64_t part = 0;

    if (!digits_read(at, &whole) || *at - start > 9)
        return false;
    *number_out = (double)whole;
    if (**at != '.')
        return true;
    start = ++*at;
    if (!digits_read(at, &part) || *at - start > 9)
        return false;
    *number_out += (double)part / pow(10.0, (double)(*at - start));
    return true;
}

bool
quantity_count(const char *text, uint64_t *count_out)
{
    uint64_t count = 0;

    if (!digits_read(&text, &count) || *text != '\0')
        return false;
    *count_out = count;
    return true;
}

bool
quantity_size(const char *text, uint64_t *bytes_out)
{
    static const char suffixes[] = "KMGT";
    uint64_t bytes = 0;

    if (!digits_read(&text, &bytes))
        return false;
    if (*text != '\0') {
        const char *suffix = strchr(suffixes, *text);

        if (suffix == NULL || text[1] != '\0' ||
            __builtin_mul_overflow(bytes, UINT64_C(1) << (10 * (suffix - suffixes + 1)), &bytes))
            return false;
    }
    *bytes_out = bytes;
    return true;
}

bool
quantity_share(const char *text, double *percent_out)
{
    double percent = 0;

    if (!decimal_read(&text, &percent) || strcmp(text, "%") != 0 || percent <= 0 || percent > 1000)
        return false;
    *percent_out = percent;
    return true;
}

bool
quantity_decimal(const char *text, double *number_out)
{
    double number = 0;

    if (!decimal_read(&text, &number) || *text != '\0')
        return false;
    *number_out = number;
    return true;
}

bool
quantity_seconds(const char *text, double *seconds_out)
{
    double seconds = 0;

    if (!quantity_decimal(text, &seconds) || seconds <= 0 || seconds > 86400)
        return false;
    *seconds_out = seconds;
    return true;
}

/* `value` in the largest unit in which it is at least 1. */
static const char *
scaled_text(char text[QUANTITY_TEXT_BYTES], double value, double step, const char *const units[])
{
    size_t unit = 0;

    while (value >= step && units[unit + 1] != NULL) {
        value /= step;
        unit++;
    }
    snprintf(text, QUANTITY_TEXT_BYTES, "%.*f %s",
        unit == 0 || value >= 100 ? 0
        : value >= 10             ? 1
                                  : 2,
        value, units[unit]);
    return text;
}

const char *
quantity_bytes_text(char text[QUANTITY_TEXT_BYTES], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", NULL};

    return scaled_text(text, bytes, 1024, units);
}

const char *
quantity_rate_text(char text[QUANTITY_TEXT_BYTES], double rate)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", NULL};

    return scaled_text(text, rate, 1000, units);
}

const char *
quantity_time_text(char text[QUANTITY_TEXT_BYTES], double time_ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};

    return scaled_text(text, time_ns, 1000, units);
}

const char *
quantity_count_text(char text[QUANTITY_TEXT_BYTES], uint64_t number)
{
    char digits[QUANTITY_TEXT_BYTES];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, number);
    char *at = text;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return text;
}
