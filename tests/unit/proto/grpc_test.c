/* Goal: the bytes and words of gRPC and of protocol buffers are read strictly, and written as they
 * are read. Method: tables of texts and of hand-made bytes; every truncation of a good message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "proto/grpc.h"
#include "proto/pb.h"

static void types_of_grpc(void **state) {
    static const char *const good[] = {"application/grpc", "application/grpc+proto",
                                       "application/grpc; charset=utf-8", "Application/GRPC"};
    static const char *const bad[] = {"application/grpc-web", "application/json", "",
                                      "application/grp", "text/application/grpc"};
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) assert_true(grpc_is_type(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) assert_false(grpc_is_type(bad[i]));
    assert_false(grpc_is_type(NULL));
}

static void timeouts(void **state) {
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"1S", 1000},
                {"250m", 250},
                {"1H", 3600000},
                {"2M", 120000},
                {"1u", 1},
                {"1n", 1},
                {"0m", 0},
                {"1500u", 2},
                {"99999999m", 99999999},
                {"99999999H", 99999999ull * 3600000}};
    static const char *const bad[] = {"",    "S",    "1",   "1s", "123456789S",
                                      "-1S", "1.5S", "1SS", " 1S"};
    uint64_t ms;
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(grpc_timeout_read(good[i].text, &ms));
        assert_true(ms == good[i].ms);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(grpc_timeout_read(bad[i], &ms));
}

static void statuses(void **state) {
    static const int rows[][2] = {{200, GRPC_OK},
                                  {400, GRPC_INVALID_ARGUMENT},
                                  {401, GRPC_UNAUTHENTICATED},
                                  {404, GRPC_NOT_FOUND},
                                  {413, GRPC_RESOURCE_EXHAUSTED},
                                  {422, GRPC_INVALID_ARGUMENT},
                                  {429, GRPC_RESOURCE_EXHAUSTED},
                                  {500, GRPC_INTERNAL},
                                  {501, GRPC_UNIMPLEMENTED},
                                  {503, GRPC_UNAVAILABLE},
                                  {504, GRPC_DEADLINE_EXCEEDED},
                                  {GRPC_UNREADABLE, GRPC_INTERNAL},
                                  {418, GRPC_UNKNOWN},
                                  {599, GRPC_INTERNAL}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(grpc_status_of(rows[i][0]), rows[i][1]);
}

static void messages_of_calls(void **state) {
    struct grpc_frame f;
    (void)state;
    assert_null(grpc_one_message("\0\0\0\0\0", 5));
    assert_null(grpc_one_message("\1\0\0\0\1x", 6));
    assert_non_null(grpc_one_message("", 0));
    assert_non_null(grpc_one_message("\0\0\0\0", 4));
    assert_non_null(grpc_one_message("\0\0\0\0\2x", 6));
    assert_non_null(grpc_one_message("\0\0\0\0\1xy", 7));
    assert_non_null(grpc_one_message("\2\0\0\0\0", 5));
    assert_int_equal(grpc_frame_take(&f, "\1\0\0\0\2abc", 8), GRPC_TOOK);
    assert_true(f.compressed && f.n == 2 && memcmp(f.p, "ab", 2) == 0);
    assert_int_equal(grpc_frame_take(&f, "\0\xff\xff\xff\xff", 5), GRPC_MORE);
    assert_int_equal(grpc_frame_take(&f, "\3", 1), GRPC_BAD);
}

static void texts_are_encoded(void **state) {
    char dst[14];
    (void)state;
    grpc_text_put(dst, sizeof(dst), "a b%\n\xc3\xa9", 7);
    assert_string_equal(dst, "a b%25%0A%C3");
    char wide[64];
    grpc_text_put(wide, sizeof(wide), "a b%\n\xc3\xa9", 7);
    assert_string_equal(wide, "a b%25%0A%C3%A9");
}

static void paths_of_methods(void **state) {
    (void)state;
    assert_true(grpc_is_path("/fmaas.GenerationService/Generate"));
    assert_false(grpc_is_path("/v1/models"));
    assert_false(grpc_is_path("/a.b/c/d"));
    assert_false(grpc_is_path("/a.b/"));
    assert_false(grpc_is_path("/a.b"));
    assert_false(grpc_is_path(""));
}

static void fields(void **state) {
    static const unsigned char bytes[] = {0x08, 0x96, 0x01, 0x12, 0x02, 'h', 'i', 0x1d, 0, 0,   0,
                                          0x3f, 0x21, 0,    0,    0,    0,   0,   0,    0, 0x40};
    struct pb_reader r = pb_reader(bytes, sizeof(bytes));
    struct pb_field f;
    (void)state;
    assert_true(pb_next(&r, &f) && f.number == 1 && f.wire == PB_VARINT && f.u == 150);
    assert_true(pb_next(&r, &f) && f.number == 2 && f.n == 2 && memcmp(f.bytes, "hi", 2) == 0);
    assert_true(pb_next(&r, &f) && f.number == 3 && pb_f32(f.u) == 0.5f);
    assert_true(pb_next(&r, &f) && f.number == 4 && pb_f64(f.u) == 2.0);
    assert_false(pb_next(&r, &f));
    assert_false(r.bad);
    static const size_t borders[] = {0, 3, 7, 12, sizeof(bytes)};
    for (size_t n = 0; n < sizeof(bytes); n++) {
        bool whole = false;
        for (size_t i = 0; i < 5; i++) whole |= borders[i] == n;
        r = pb_reader(bytes, n);
        while (pb_next(&r, &f)) {}
        assert_int_equal(r.bad, !whole);
    }
}

static void what_is_no_field(void **state) {
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {{"\x00\x01", 2},                                      /* number 0 */
               {"\x0b", 1},                                          /* a group */
               {"\x0c", 1},                                          /* its end */
               {"\x0e\x00", 2},                                      /* no type of wire */
               {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11}, /* over 64 bits */
               {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
               {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}}; /* a length of 2^64-1 */
    struct pb_field f;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pb_reader r = pb_reader(bad[i].bytes, bad[i].n);
        assert_false(pb_next(&r, &f));
        assert_true(r.bad);
    }
}

static void numbers(void **state) {
    static const uint64_t values[] = {0, 1, 127, 128, 300, UINT32_MAX, UINT64_MAX};
    unsigned char bytes[PB_VARINT_BYTES];
    uint64_t u;
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct pb_reader r = pb_reader(bytes, pb_put_varint(bytes, values[i]));
        assert_true(pb_packed(&r, PB_VARINT, &u) && u == values[i]);
        assert_true(pb_zagzig(pb_zigzag(values[i])) == values[i]);
    }
    assert_true(pb_zigzag(1) == -1 && pb_zigzag(2) == 1 && pb_zagzig(-2) == 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_of_grpc),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(statuses),
        cmocka_unit_test(messages_of_calls),
        cmocka_unit_test(texts_are_encoded),
        cmocka_unit_test(paths_of_methods),
        cmocka_unit_test(fields),
        cmocka_unit_test(what_is_no_field),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
