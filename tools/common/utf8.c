/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.c - which bytes are a character (RFC 3629, section 4), and which characters are controls
 * (ISO 6429: C0, DELETE, C1).
 */
#include "utf8.h"

size_t
utf8_length(const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char first = bytes[0];
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    size_t length = 0;

    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        length = 2;
    else if (first >= 0xE0 && first <= 0xEF)
        length = 3;
    else if (first >= 0xF0 && first <= 0xF4)
        length = 4;
    if (length == 0 || length > size)
        return 0;
    if (first == 0xE0)
        low = 0xA0;
    else if (first == 0xF0)
        low = 0x90;
    else if (first == 0xED)
        high = 0x9F;
    else if (first == 0xF4)
        high = 0x8F;
    if (bytes[1] < low || bytes[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
    }
    return length;
}

bool
utf8_is_control(const char *text, size_t length)
{
    unsigned char first = (unsigned char)text[0];

    if (length == 1)
        return first < 0x20 || first == 0x7F;
    return first == 0xC2 && (unsigned char)text[1] < 0xA0;
}
