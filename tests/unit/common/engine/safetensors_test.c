/* Goal: a safetensors file is taken only when every byte its header speaks of is there, and the
 * error says what is not. Method: one good header, then the same with one thing wrong at a time,
 * both sides of each bound; every truncation; then folders of shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/safetensors.h"
#include "tests/unit/common/engine/model_files.h"

#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static enum err parse(const char *header, size_t n_data, struct st_header *h, struct errbuf *eb) {
    uint8_t buf[8192];
    size_t n = safetensors_bytes(buf, header, NULL, n_data);
    /* a copy of exactly n bytes: a sanitizer sees a read past the end */
    uint8_t *exact = malloc(n);
    assert_non_null(exact);
    memcpy(exact, buf, n);
    enum err e = st_header_parse(h, exact, n, n, eb);
    free(exact);
    return e;
}

static void good_headers_are_read(void **state) {
    struct st_header h;
    struct errbuf eb = {0};
    (void)state;
    assert_int_equal(
        parse("{\"__metadata__\":{\"format\":\"pt\"}," TENSOR(
                  "b", "BF16", "[2,3]",
                  "[4,16]") "," TENSOR("a", "F32", "[1]",
                                       "[0,4]") "," TENSOR("empty", "F16", "[0,7]",
                                                           "[16,16]") "," TENSOR("ids", "I64", "[]",
                                                                                 "[16,24]") "}   ",
              24, &h, &eb),
        ERR_OK);
    assert_int_equal(h.n_tensors, 4);
    assert_string_equal(h.tensors[0].name, "a");
    assert_string_equal(h.tensors[1].name, "b");
    assert_int_equal(h.tensors[1].dtype, DTYPE_BF16);
    assert_int_equal(h.tensors[1].n_dims, 2);
    assert_int_equal(h.tensors[1].dims[1], 3);
    assert_int_equal(h.tensors[1].end - h.tensors[1].begin, 12);
    assert_int_equal(h.tensors[3].dtype, DTYPE_NONE);
    assert_string_equal(h.tensors[3].dtype_text, "I64");
    st_header_free(&h);
    assert_int_equal(parse("{}", 0, &h, &eb), ERR_OK);
    st_header_free(&h);
    assert_int_equal(parse("{" TENSOR("hole", "F32", "[1]", "[4,8]") "}", 100, &h, &eb), ERR_OK);
    st_header_free(&h);
}

static void bad_headers_are_refused(void **state) {
    static const struct {
        const char *header;
        size_t n_data;
        const char *says;
    } rows[] = {
        {"[]", 0, "must be a JSON object"},
        {"{ ", 0, "header: "},
        {"{} x", 0, "header: "},
        {"{\"a\":1}", 0, "tensor a: must be an object"},
        {"{\"\":{}}", 0, "name must have 1 to 512 bytes"},
        {"{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("a", "F32", "[1]", "[4,8]") "}", 8,
         "header: "},
        {"{" TENSOR("a", "F32", "[1]", "[0,4]") "}", 3, "must lie in the data of 3 bytes"},
        {"{" TENSOR("a", "F32", "[1]", "[0,3]") "}", 4,
         "3 bytes of data, but dtype and shape need 4"},
        {"{" TENSOR("a", "F32", "[2]", "[0,4]") "}", 4, "need 8"},
        {"{" TENSOR("a", "F32", "[1]", "[4,0]") "}", 4, "must lie in"},
        {"{" TENSOR("a", "F32", "[1]", "[0]") "}", 4, "data_offsets must be two integers"},
        {"{" TENSOR("a", "F32", "[1]", "[0,4.0]") "}", 4, "data_offsets must be two integers"},
        {"{" TENSOR("a", "F32", "[1]", "[-1,3]") "}", 4, "data_offsets must be two integers"},
        {"{" TENSOR("a", "F32", "[1]", "[0,18446744073709551616]") "}", 4,
         "data_offsets must be two integers"},
        {"{" TENSOR("a", "F32", "[-1]", "[0,4]") "}", 4, "shape must hold integers"},
        {"{" TENSOR("a", "F32", "\"1\"", "[0,4]") "}", 4, "shape must be a list"},
        {"{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4,
         "shape must be a list of at most 8"},
        {"{" TENSOR("a", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4, "exceeds 64 bits"},
        {"{" TENSOR("a", "F32", "[9223372036854775807]", "[0,4]") "}", 4,
         "its size exceeds 64 bits"},
        {"{" TENSOR("a", "F33", "[1]", "[0,4]") "}", 4, "unknown dtype F33"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype must be a string"},
        {"{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("b", "F16", "[2]", "[3,7]") "}", 8,
         "tensors a and b overlap"},
        {"{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("b", "F32", "[1]", "[0,4]") "}", 8,
         "overlap"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct st_header h;
        struct errbuf eb = {0};
        if (parse(rows[i].header, rows[i].n_data, &h, &eb) != ERR_BAD_FILE ||
            strstr(eb.text, rows[i].says) == NULL)
            fail_msg("%s: said \"%s\", not \"%s\"", rows[i].header, eb.text, rows[i].says);
        assert_int_equal(h.n_tensors, 0);
    }
}

static void the_length_is_checked(void **state) {
    uint8_t buf[64];
    struct st_header h;
    struct errbuf eb = {0};
    (void)state;
    size_t n = safetensors_bytes(buf, "{}", NULL, 0);
    assert_int_equal(st_header_parse(&h, buf, n, n, &eb), ERR_OK);
    st_header_free(&h);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(st_header_parse(&h, buf, cut, cut, &eb), ERR_BAD_FILE);
    static const uint64_t lengths[] = {0,
                                       1,
                                       3,
                                       ST_HEADER_BYTES_MAX,
                                       (uint64_t)ST_HEADER_BYTES_MAX + 1,
                                       UINT64_MAX,
                                       UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (int b = 0; b < 8; b++) buf[b] = (uint8_t)(lengths[i] >> (8 * b));
        assert_int_equal(st_header_parse(&h, buf, n, n, &eb), ERR_BAD_FILE);
    }
}

static void every_truncation_is_refused(void **state) {
    const char *header = "{" TENSOR("a", "F32", "[2]", "[0,8]") "}";
    uint8_t buf[256];
    struct st_header h;
    (void)state;
    size_t n = safetensors_bytes(buf, header, NULL, 8);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(st_header_parse(&h, buf, cut, cut, NULL), ERR_BAD_FILE);
    assert_int_equal(st_header_parse(&h, buf, n, n, NULL), ERR_OK);
    st_header_free(&h);
}

static void one_file_is_mapped(void **state) {
    struct model_files f;
    struct st_model *m = NULL;
    struct errbuf eb = {0};
    (void)state;
    files_make(&f);
    assert_int_equal(st_model_open(&m, f.dir, &eb), ERR_NOT_FOUND);
    assert_null(m);
    files_safetensors(&f, "model.safetensors", "{" TENSOR("x", "F32", "[2]", "[1,9]") "}",
                      "abcdefghi", 9);
    assert_int_equal(st_model_open(&m, f.dir, &eb), ERR_OK);
    assert_null(st_model_find(m, "y"));
    const struct st_tensor *t = st_model_find(m, "x");
    assert_non_null(t);
    assert_string_equal(st_model_file(m, t), "model.safetensors");
    assert_memory_equal(st_model_data(m, t), "bcdefghi", 8);
    st_model_drop(m, t, 0, 3);
    st_model_drop(m, t, 3, 5);
    assert_memory_equal(st_model_data(m, t), "bcdefghi", 8);
    st_model_close(&m);
    files_text(&f, "model.safetensors", "short");
    assert_int_equal(st_model_open(&m, f.dir, &eb), ERR_BAD_FILE);
    assert_non_null(strstr(eb.text, "model.safetensors: "));
    files_remove(&f);
}

static void shards_are_joined(void **state) {
    static const struct {
        const char *index, *says;
    } bad[] = {
        {"{\"weight_map\":{\"x\":\"../a.safetensors\"}}", "weight_map.x must be a plain file name"},
        {"{\"weight_map\":{\"x\":\"\"}}", "weight_map.x must be a plain file name"},
        {"{\"weight_map\":{\"x\":\"a\\u0000b\"}}", "weight_map.x must be a plain file name"},
        {"{\"weight_map\":{\"x\":\".a\"}}", "weight_map.x must be a plain file name"},
        {"{\"weight_map\":{\"x\":5}}", "weight_map.x must be a plain file name"},
        {"{\"weight_map\":{}}", "weight_map is empty"},
        {"{\"weight_map\":[]}", "weight_map must be an object"},
        {"{}", "weight_map must be an object"},
        {"{\"weight_map\":{\"x\":\"gone.safetensors\"}}",
         "gone.safetensors, which model.safetensors.index.json names, is missing"},
        {"{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"c.safetensors\"}}",
         "tensor x is in both"},
        {"{", "model.safetensors.index.json"},
    };
    struct model_files f;
    struct st_model *m = NULL;
    struct errbuf eb = {0};
    (void)state;
    files_make(&f);
    files_safetensors(&f, "a.safetensors", "{" TENSOR("x", "F32", "[1]", "[0,4]") "}", "aaaa", 4);
    files_safetensors(&f, "b.safetensors", "{" TENSOR("y", "F32", "[1]", "[0,4]") "}", "bbbb", 4);
    files_safetensors(&f, "c.safetensors", "{" TENSOR("x", "F32", "[1]", "[0,4]") "}", "cccc", 4);
    files_text(
        &f, "model.safetensors.index.json",
        "{\"metadata\":{},\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    assert_int_equal(st_model_open(&m, f.dir, &eb), ERR_OK);
    assert_memory_equal(st_model_data(m, st_model_find(m, "x")), "aaaa", 4);
    assert_memory_equal(st_model_data(m, st_model_find(m, "y")), "bbbb", 4);
    assert_string_equal(st_model_file(m, st_model_find(m, "y")), "b.safetensors");
    st_model_close(&m);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        files_text(&f, "model.safetensors.index.json", bad[i].index);
        enum err e = st_model_open(&m, f.dir, &eb);
        if ((e != ERR_BAD_FILE && e != ERR_NOT_FOUND) || strstr(eb.text, bad[i].says) == NULL)
            fail_msg("%s: %s \"%s\", not \"%s\"", bad[i].index, err_name(e), eb.text, bad[i].says);
        assert_null(m);
    }
    files_remove(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_headers_are_read), cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(the_length_is_checked), cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(one_file_is_mapped),    cmocka_unit_test(shards_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
