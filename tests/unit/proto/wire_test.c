/* Goal: what a writer wrote a reader reads back; no truncation of it is read without notice.
 * Method: one message with every type and its extreme values; all its prefixes; fixed bytes for the
 * byte order; both sides of every length limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <float.h>
#include "proto/wire.h"

static void put_all(struct wr *w) {
    wr_u8(w, 0xFE);
    wr_u16(w, 0xFEDC);
    wr_u32(w, 0xFEDCBA98);
    wr_u64(w, 0xFEDCBA9876543210);
    wr_i32(w, INT32_MIN);
    wr_i64(w, INT64_MIN);
    wr_f32(w, -FLT_MIN);
    wr_f64(w, DBL_MAX);
    wr_bytes(w, "xyz", 3);
    wr_str(w, "a\0b", 3);
    wr_cstr(w, "name");
}

static bool take_all(struct rd *r) {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    const uint8_t *p;
    const char *s;
    size_t n;
    char name[5];
    if (!rd_u8(r, &u8) || !rd_u16(r, &u16) || !rd_u32(r, &u32) || !rd_u64(r, &u64) ||
        !rd_i32(r, &i32) || !rd_i64(r, &i64) || !rd_f32(r, &f32) || !rd_f64(r, &f64) ||
        !rd_bytes(r, &p, 3) || !rd_str(r, &s, &n, 3) || !rd_cstr(r, name, sizeof(name)) ||
        !rd_done(r))
        return false;
    assert_int_equal(u8, 0xFE);
    assert_int_equal(u16, 0xFEDC);
    assert_int_equal(u32, 0xFEDCBA98);
    assert_true(u64 == 0xFEDCBA9876543210);
    assert_true(i32 == INT32_MIN && i64 == INT64_MIN);
    assert_true(f32 == -FLT_MIN && f64 == DBL_MAX);
    assert_memory_equal(p, "xyz", 3);
    assert_int_equal(n, 3);
    assert_memory_equal(s, "a\0b", 3);
    assert_string_equal(name, "name");
    return true;
}

static void write_then_read(void **state) {
    struct wr w = WR_INIT;
    (void)state;
    put_all(&w);
    assert_false(w.failed);
    struct rd r = rd_of(w.data, w.len);
    assert_true(take_all(&r));
    assert_int_equal(rd_left(&r), 0);
    for (size_t n = 0; n < w.len; n++) {
        uint8_t *cut =
            malloc(n + 1); /* its own block, so that a sanitizer sees a step over the end */
        assert_non_null(cut);
        memcpy(cut, w.data, n);
        r = rd_of(cut, n);
        assert_false(take_all(&r));
        assert_true(r.failed);
        free(cut);
    }
    wr_u8(&w, 0);
    r = rd_of(w.data, w.len);
    assert_false(take_all(&r)); /* a byte left over */
    assert_false(r.failed);
    wr_free(&w);
    assert_null(w.data);
}

static void little_endian(void **state) {
    struct wr w = WR_INIT;
    (void)state;
    wr_u16(&w, 0x0201);
    wr_u32(&w, 0x06050403);
    wr_u64(&w, 0x0E0D0C0B0A090807);
    for (size_t i = 0; i < 14; i++) assert_int_equal(w.data[i], i + 1);
    wr_free(&w);
}

static void failure_sticks_and_touches_nothing(void **state) {
    uint32_t v = 42;
    uint8_t one = 7;
    (void)state;
    struct rd r = rd_of(&one, 1);
    assert_false(rd_u32(&r, &v));
    assert_int_equal(v, 42);
    assert_false(rd_u8(&r, &one)); /* there is one, but the cursor has failed */
    assert_int_equal(one, 7);
    assert_int_equal(rd_left(&r), 0);
    assert_false(rd_done(&r));
    assert_false(rd_skip(&r, 0));
}

static void string_limits(void **state) {
    struct wr w = WR_INIT;
    const char *s;
    size_t n;
    char four[4];
    (void)state;
    wr_cstr(&w, "abc");
    struct rd r = rd_of(w.data, w.len);
    assert_true(rd_str(&r, &s, &n, 3));
    r = rd_of(w.data, w.len);
    assert_false(rd_str(&r, &s, &n, 2));
    r = rd_of(w.data, w.len);
    assert_true(rd_cstr(&r, four, 4));
    r = rd_of(w.data, w.len);
    assert_false(rd_cstr(&r, four, 3));
    r = rd_of(w.data, w.len);
    assert_false(rd_cstr(&r, four, 0));
    wr_clear(&w);
    wr_str(&w, "a\0b", 3);
    r = rd_of(w.data, w.len);
    assert_false(rd_cstr(&r, four, 4)); /* a zero inside */
    wr_clear(&w);
    wr_u32(&w, UINT32_MAX); /* a length from a liar */
    r = rd_of(w.data, w.len);
    assert_false(rd_str(&r, &s, &n, SIZE_MAX));
    wr_free(&w);
}

static void patch(void **state) {
    struct wr w = WR_INIT;
    uint32_t v;
    (void)state;
    wr_u8(&w, 1);
    wr_u32(&w, 0);
    wr_patch_u32(&w, 1, 77);
    struct rd r = rd_of(w.data + 1, 4);
    assert_true(rd_u32(&r, &v));
    assert_int_equal(v, 77);
    wr_patch_u32(&w, 2, 5); /* one byte over the end */
    assert_true(w.failed);
    wr_u8(&w, 1);
    assert_int_equal(w.len, 5);
    wr_clear(&w);
    wr_patch_u32(&w, SIZE_MAX, 5);
    assert_true(w.failed);
    wr_free(&w);
}

static void grows(void **state) {
    struct wr w = WR_INIT;
    (void)state;
    for (uint32_t i = 0; i < 100000; i++) wr_u32(&w, i);
    assert_int_equal(w.len, 400000);
    struct rd r = rd_of(w.data, w.len);
    for (uint32_t i = 0, v; i < 100000; i++) {
        assert_true(rd_u32(&r, &v));
        assert_int_equal(v, i);
    }
    wr_bytes(&w, "", SIZE_MAX / 2); /* never allocated, never copied */
    assert_true(w.failed);
    assert_int_equal(w.len, 400000);
    wr_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_then_read),
        cmocka_unit_test(little_endian),
        cmocka_unit_test(failure_sticks_and_touches_nothing),
        cmocka_unit_test(string_limits),
        cmocka_unit_test(patch),
        cmocka_unit_test(grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
