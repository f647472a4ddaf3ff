/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number_list.c - numbers of a command line, separated by commas.
 */
#include "number_list.h"

#include <string.h>

#include "quantity.h"

bool
number_list_read(
    const char *text, uint64_t limit, uint64_t *numbers_out, uint32_t room, uint32_t *count_out)
{
    char word[QUANTITY_TEXT_BYTES];

    *count_out = 0;
    for (;;) {
        size_t length = strcspn(text, ",");

        if (length >= sizeof(word) || *count_out == room)
            return false;
        memcpy(word, text, length);
        word[length] = '\0';
        if (!quantity_size(word, &numbers_out[*count_out]) || numbers_out[*count_out] == 0 ||
            numbers_out[*count_out] > limit)
            return false;
        ++*count_out;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}
