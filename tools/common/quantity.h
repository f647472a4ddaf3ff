/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantity.h - numbers with units, as people write and read them.
 *
 * Sizes are powers of two: 64K is 65,536 bytes. Nothing is guessed: a number that does not fit, a
 * sign, an unknown suffix and empty text are refused.
 */
#ifndef TOOLS_QUANTITY_H
#define TOOLS_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QUANTITY_TEXT_BYTES = 32
};

/* quantity_count - a plain decimal number. */
bool quantity_count(const char *text, uint64_t *count_out);

/* quantity_size - a number with K, M, G or T, or none. */
bool quantity_size(const char *text, uint64_t *bytes_out);

/* quantity_share - "5%" or "0.5%": 0 < percent <= 1000. */
bool quantity_share(const char *text, double *percent_out);

/* quantity_decimal - "0.8" or "4": a number that is not negative. */
bool quantity_decimal(const char *text, double *number_out);

/* quantity_seconds - a decimal number of seconds above 0, at most a day. */
bool quantity_seconds(const char *text, double *seconds_out);

/* Text for a table, into `text`, which is returned. */
const char *quantity_bytes_text(char text[QUANTITY_TEXT_BYTES], double bytes);    /* "1.5 GiB" */
const char *quantity_rate_text(char text[QUANTITY_TEXT_BYTES], double rate);      /* "1.61 GB/s" */
const char *quantity_time_text(char text[QUANTITY_TEXT_BYTES], double time_ns);   /* "1.3 ms" */
const char *quantity_count_text(char text[QUANTITY_TEXT_BYTES], uint64_t number); /* "94,174" */

#endif /* TOOLS_QUANTITY_H */
