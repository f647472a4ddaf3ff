/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_copy_chunk.c - how the copy kernel cuts a chunk into accesses, at all alignments.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "copy_chunk.h"

static const uint64_t FAR = UINT64_C(0x7fffdeadb000);

static void
chunk_keeps_addresses_and_size(void **state)
{
    const uint64_t highest = (UINT64_C(1) << COPY_ADDRESS_BITS) - 1;
    struct copy_chunk chunk = copy_chunk_make(FAR + 3, highest, COPY_CHUNK_BYTES_MAX);

    (void)state;
    assert_int_equal(chunk.target, FAR + 3);
    assert_int_equal(copy_chunk_source(chunk), highest);
    assert_int_equal(copy_chunk_size(chunk), COPY_CHUNK_BYTES_MAX);
    assert_int_equal(sizeof(chunk), 16);
}

/* The widest word whose multiples both addresses reach after the same number of bytes. */
static uint32_t
width_of(uint64_t target, uint64_t source)
{
    static const uint32_t widths[] = {16, 8, 4};

    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        if (target % widths[i] == source % widths[i])
            return widths[i];
    }
    return 1;
}

static void
every_byte_is_copied_once_by_aligned_words(void **state)
{
    (void)state;
    for (uint64_t target = FAR; target < FAR + 32; target++) {
        for (uint64_t source = FAR; source < FAR + 32; source++) {
            for (uint32_t size = 0; size <= 70; size++) {
                struct copy_split split = copy_chunk_split(copy_chunk_make(target, source, size));

                assert_int_equal(split.width, width_of(target, source));
                assert_true(split.head <= size && split.body <= size - split.head);
                assert_true(split.head < split.width && split.body % split.width == 0);
                /* What is left is less than a word, if there is any word at all. */
                assert_true(size - split.head - split.body < split.width);
                if (split.body == 0)
                    continue;
                assert_int_equal((target + split.head) % split.width, 0);
                assert_int_equal((source + split.head) % split.width, 0);
            }
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunk_keeps_addresses_and_size),
        cmocka_unit_test(every_byte_is_copied_once_by_aligned_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
