/* Goal: the CRC is the published one, whatever computes it and however the bytes are cut.
 * Method: vectors of RFC 3720 B.4; instruction and table against each other over lengths,
 * alignments and cuts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/crc32c.h"

static void known_vectors(void **state) {
    uint8_t b[32];
    (void)state;
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
    memset(b, 0, 32);
    assert_int_equal(crc32c(0, b, 32), 0x8A9136AA);
    memset(b, 0xFF, 32);
    assert_int_equal(crc32c(0, b, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++) b[i] = (uint8_t)i;
    assert_int_equal(crc32c(0, b, 32), 0x46DD794E);
    assert_int_equal(crc32c_soft(0, b, 32), 0x46DD794E);
}

static void both_ways_agree(void **state) {
    uint8_t b[600];
    uint32_t x = 1;
    (void)state;
    for (size_t i = 0; i < sizeof(b); i++) {
        x = x * 1664525u + 1013904223u;
        b[i] = (uint8_t)(x >> 24);
    }
    for (size_t start = 0; start < 9; start++)
        for (size_t n = 0; n + start <= sizeof(b); n += n < 40 ? 1 : 37) {
            uint32_t whole = crc32c_soft(0, b + start, n);
            assert_int_equal(crc32c(0, b + start, n), whole);
            assert_int_equal(crc32c(crc32c(0, b + start, n / 3), b + start + n / 3, n - n / 3),
                             whole);
        }
}

/* Inputs long enough for the lanes: around whole numbers of their blocks, from odd addresses. */
static void long_inputs_agree(void **state) {
    enum { STEP = 3 * 4096, BYTES = 4 * STEP + 64 };
    uint8_t *b = malloc(BYTES);
    uint32_t x = 7;
    (void)state;
    assert_non_null(b);
    for (size_t i = 0; i < BYTES; i++) {
        x = x * 1664525u + 1013904223u;
        b[i] = (uint8_t)(x >> 24);
    }
    for (size_t start = 0; start < 9; start += 2)
        for (size_t k = 1; k <= 4; k++)
            for (size_t n = k * STEP - 9; n <= k * STEP + 17; n++)
                assert_int_equal(crc32c(x, b + start, n), crc32c_soft(x, b + start, n));
    uint32_t good = crc32c(0, b, 2 * STEP);
    for (size_t at = 5; at < 2 * STEP; at += 1021) {
        b[at] ^= 0x10;
        assert_int_not_equal(crc32c(0, b, 2 * STEP), good);
        b[at] ^= 0x10;
    }
    free(b);
}

static void every_flipped_bit_shows(void **state) {
    uint8_t b[40] = "one frame of the link";
    uint32_t good = crc32c(0, b, sizeof(b));
    (void)state;
    for (size_t bit = 0; bit < sizeof(b) * 8; bit++) {
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(crc32c(0, b, sizeof(b)), good);
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors),
        cmocka_unit_test(both_ways_agree),
        cmocka_unit_test(long_inputs_agree),
        cmocka_unit_test(every_flipped_bit_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
