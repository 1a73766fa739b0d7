/* Goal: the GGUF reader takes what the format allows and names what it does not, on both sides of
 * each rule. Method: files built byte by byte; every truncation of a good one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/buf.h"
#include "common/base/gguf.h"

/* ---- a file being written */
static void put(struct buf *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) buf_putc(b, (char)(v >> (8 * i)));
}

static void put_text(struct buf *b, const char *s) {
    put(b, strlen(s), 8);
    buf_puts(b, s);
}

static void put_head(struct buf *b, int version, uint64_t n_tensors, uint64_t n_pairs) {
    buf_puts(b, "GGUF");
    put(b, (uint64_t)version, 4);
    put(b, n_tensors, 8);
    put(b, n_pairs, 8);
}

static void put_u32(struct buf *b, const char *key, uint32_t v) {
    put_text(b, key);
    put(b, GGUF_U32, 4);
    put(b, v, 4);
}

static void put_info(struct buf *b, const char *name, uint32_t type, uint64_t offset, int n_dims,
                     const uint64_t *dims) {
    put_text(b, name);
    put(b, (uint64_t)n_dims, 4);
    for (int i = 0; i < n_dims; i++) put(b, dims[i], 8);
    put(b, type, 4);
    put(b, offset, 8);
}

static void pad(struct buf *b, size_t align) {
    while (b->len % align != 0) buf_putc(b, 0);
}

static enum err parse(struct gguf_header *h, const struct buf *b, struct errbuf *eb) {
    uint8_t *exact = malloc(b->len > 0 ? b->len : 1); /* a sanitizer sees one byte too many */
    memcpy(exact, b->data, b->len);
    enum err e = gguf_header_parse(h, exact, b->len, b->len, eb);
    free(exact);
    return e;
}

static void refused(struct buf *b, const char *text) {
    struct gguf_header h;
    struct errbuf eb = {0};
    assert_int_equal(parse(&h, b, &eb), ERR_BAD_FILE);
    if (strstr(eb.text, text) == NULL) fail_msg("\"%s\" has no \"%s\"", eb.text, text);
    assert_null(h.pairs);
    assert_null(h.tensors);
    buf_free(b);
}

/* Two tensors of 16 f32, an array of strings, a number of each kind. */
static struct buf good(int version) {
    static const uint64_t dims[] = {16};
    struct buf b = BUF_INIT;
    put_head(&b, version, 2, 4);
    put_u32(&b, "a", 7);
    put_text(&b, "list");
    put(&b, GGUF_ARRAY, 4);
    put(&b, GGUF_STRING, 4);
    put(&b, 2, 8);
    put_text(&b, "one");
    put_text(&b, "");
    put_text(&b, "minus");
    put(&b, GGUF_I16, 4);
    put(&b, 0xfffe, 2);
    put_text(&b, "half");
    put(&b, GGUF_F32, 4);
    put(&b, 0x3f000000, 4);
    put_info(&b, "t.b", 0, 64, 1, dims);
    put_info(&b, "t.a", 0, 0, 1, dims);
    pad(&b, 32);
    for (int i = 0; i < 128; i++) buf_putc(&b, (char)i);
    return b;
}

static void takes_versions_2_and_3(void **state) {
    (void)state;
    for (int version = 2; version <= 3; version++) {
        struct buf b = good(version);
        struct gguf *g = NULL;
        struct errbuf eb = {0};
        uint64_t u;
        double d;
        bool on;
        assert_int_equal(gguf_open_bytes(&g, (const uint8_t *)b.data, b.len, "x.gguf", &eb),
                         ERR_OK);
        assert_true(gguf_u64(g, "a", &u) && u == 7);
        assert_true(gguf_f64(g, "a", &d) && d == 7.0);
        assert_true(gguf_f64(g, "half", &d) && d == 0.5);
        assert_false(gguf_u64(g, "half", &u));
        assert_false(gguf_u64(g, "minus", &u)); /* below 0 */
        assert_true(gguf_f64(g, "minus", &d) && d == -2.0);
        assert_false(gguf_bool(g, "a", &on));
        assert_false(gguf_u64(g, "list", &u));
        assert_null(gguf_find(g, "lis"));
        assert_null(gguf_find(g, "list2"));
        const struct gguf_pair *p = gguf_find(g, "list");
        struct gguf_cursor at = {0};
        const char *s;
        size_t n;
        assert_true(gguf_next_str(p, &at, &s, &n) && n == 3 && memcmp(s, "one", 3) == 0);
        assert_true(gguf_next_str(p, &at, &s, &n) && n == 0);
        assert_false(gguf_next_str(p, &at, &s, &n));
        assert_int_equal(gguf_n_tensors(g), 2);
        const struct gguf_tensor *t = gguf_tensor_find(g, "t.b");
        assert_non_null(t);
        assert_int_equal(gguf_tensor_data(g, t)[0], 64);
        assert_null(gguf_tensor_find(g, "t.c"));
        gguf_close(&g);
        buf_free(&b);
    }
}

static void every_truncation_is_refused(void **state) {
    struct buf b = good(3);
    const size_t whole = b.len;
    (void)state;
    for (b.len = 0; b.len < whole; b.len++) {
        struct gguf_header h;
        struct errbuf eb = {0};
        assert_int_equal(parse(&h, &b, &eb), ERR_BAD_FILE);
        assert_true(eb.text[0] != 0);
    }
    buf_free(&b);
}

static void refuses_heads(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    buf_puts(&b, "GGUX0000000000000000000000000000");
    refused(&b, "does not begin");
    put_head(&b, 1, 0, 0);
    refused(&b, "version must be 2 or 3, got 1");
    put_head(&b, 4, 0, 0);
    refused(&b, "got 4");
    put_head(&b, 0x03000000, 0, 0);
    refused(&b, "big-endian");
    put_head(&b, 3, 0, UINT64_MAX);
    refused(&b, "pairs of metadata");
    put_head(&b, 3, UINT64_C(1) << 62, 0);
    refused(&b, "tensors");
    buf_puts(&b, "version https://git-lfs.github.com/spec/v1\n");
    refused(&b, "git-lfs");
}

static void refuses_pairs(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    put_head(&b, 3, 0, 2);
    put_u32(&b, "a", 1);
    put_u32(&b, "a", 2);
    refused(&b, "key a is there twice");
    put_head(&b, 3, 0, 1);
    put_u32(&b, "", 1);
    refused(&b, "a key must have 1 to");
    put_head(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, 13, 4);
    put(&b, 0, 8);
    refused(&b, "its type must be from 0 to 12, got 13");
    put_head(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, GGUF_ARRAY, 4);
    put(&b, GGUF_ARRAY, 4);
    put(&b, 1, 8);
    refused(&b, "no array of arrays");
    put_head(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, GGUF_BOOL, 4);
    put(&b, 2, 1);
    refused(&b, "a bool must be 0 or 1, got 2");
    put_head(&b, 3, 0, 1); /* bytes of the array wrap */
    put_text(&b, "k");
    put(&b, GGUF_ARRAY, 4);
    put(&b, GGUF_U64, 4);
    put(&b, UINT64_C(1) << 61, 8);
    put(&b, 0, 8);
    refused(&b, "ends inside pair 0");
    for (uint32_t align = 0; align <= 48; align += 48) {
        put_head(&b, 3, 0, 1);
        put_u32(&b, "general.alignment", align);
        refused(&b, "general.alignment must be a power of two");
    }
}

static void one_tensor(struct buf *b, uint32_t type, uint64_t offset, int n_dims,
                       const uint64_t *dims, size_t data) {
    put_head(b, 3, 1, 0);
    put_info(b, "t", type, offset, n_dims, dims);
    pad(b, 32);
    for (size_t i = 0; i < data; i++) buf_putc(b, 0);
}

static void refuses_tensors(void **state) {
    static const uint64_t one[] = {8}, block[] = {33}, wraps[] = {UINT64_C(1) << 32, 1 << 30, 4, 1},
                          hidden[] = {UINT64_C(1) << 40, UINT64_C(1) << 40, 0, 1}, five[5] = {1};
    struct buf b = BUF_INIT;
    struct gguf_header h;
    struct errbuf eb = {0};
    (void)state;
    one_tensor(&b, 0, 0, 1, one, 32);
    assert_int_equal(parse(&h, &b, &eb), ERR_OK);
    gguf_header_free(&h);
    buf_free(&b);
    one_tensor(&b, 0, 0, 1, one, 31);
    refused(&b, "lie beyond the file's end");
    one_tensor(&b, 0, 16, 1, one, 64);
    refused(&b, "offset 16 is no multiple of 32");
    one_tensor(&b, 0, UINT64_MAX - 31, 1, one, 64);
    refused(&b, "lie beyond");
    one_tensor(&b, 4, 0, 1, one, 64);
    refused(&b, "type 4 is none");
    one_tensor(&b, 8, 0, 1, block, 64);
    refused(&b, "a multiple of 32 long for type Q8_0, got 33");
    one_tensor(&b, 0, 0, 4, wraps, 64);
    refused(&b, "exceeds 64 bits");
    one_tensor(&b, 0, 0, 4, hidden, 64);
    refused(&b, "exceeds 64 bits");
    one_tensor(&b, 0, 0, 5, five, 64);
    refused(&b, "must have 1 to 4 dimensions, got 5");
    one_tensor(&b, 0, 0, 0, one, 64);
    refused(&b, "must have 1 to 4 dimensions, got 0");
    for (int same = 0; same < 2; same++) {
        put_head(&b, 3, 2, 0);
        put_info(&b, "a", 0, 0, 1, one);
        put_info(&b, same ? "a" : "b", 0, same ? 32 : 0, 1, one);
        pad(&b, 32);
        for (int i = 0; i < 64; i++) buf_putc(&b, 0);
        refused(&b, same ? "tensor a is there twice" : "overlap");
    }
}

/* ---- files */
enum { BIG_FLOATS = 1 << 16 };

/* A file of one tensor of BIG_FLOATS. */
static void write_big(const char *path, uint8_t fill) {
    static const uint64_t dims[] = {BIG_FLOATS};
    struct buf b = BUF_INIT;
    put_head(&b, 3, 1, 0);
    put_info(&b, "t", 0, 0, 1, dims);
    pad(&b, 32);
    for (int i = 0; i < 4 * BIG_FLOATS; i++) buf_putc(&b, (char)fill);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    buf_free(&b);
}

/* Bytes that this process has mapped of files whose path has `name`. */
static size_t mapped_of(const char *name) {
    char line[1024];
    size_t total = 0;
    unsigned long from, to;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL)
        if (strstr(line, name) != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2)
            total += to - from;
    fclose(f);
    return total;
}

static void a_file_is_its_head_until_tensors_are_needed(void **state) {
    char path[] = "/tmp/baton_gguf_test_XXXXXX", other[sizeof(path) + 4];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct errbuf eb = {0};
    struct gguf *g;
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_big(path, 7);
    assert_int_equal(gguf_open(&g, path, &eb), ERR_OK);
    assert_int_equal(mapped_of("baton_gguf_test_"), page);
    assert_int_equal(gguf_part(g, 0)->mapped, page);
    for (int i = 0; i < 2; i++) assert_int_equal(gguf_map_tensors(g, &eb), ERR_OK);
    const struct gguf_tensor *t = gguf_tensor_find(g, "t");
    const uint8_t *data = gguf_tensor_data(g, t);
    for (size_t i = 0; i < 4 * BIG_FLOATS; i += page / 2) assert_int_equal(data[i], 7);
    gguf_tensor_drop(g, t, 0, t->bytes);
    assert_int_equal(data[t->bytes - 1], 7); /* what was let go is read again */
    gguf_close(&g);
    assert_int_equal(mapped_of("baton_gguf_test_"), 0);

    assert_int_equal(gguf_open(&g, path, &eb), ERR_OK);
    snprintf(other, sizeof(other), "%s.new", path);
    write_big(other, 8);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(gguf_map_tensors(g, &eb), ERR_BAD_FILE);
    assert_non_null(strstr(eb.text, "has been replaced or changed since it was opened"));
    unlink(path);
    assert_int_equal(gguf_map_tensors(g, &eb), ERR_NOT_FOUND);
    gguf_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_versions_2_and_3),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(refuses_heads),
        cmocka_unit_test(refuses_pairs),
        cmocka_unit_test(refuses_tensors),
        cmocka_unit_test(a_file_is_its_head_until_tensors_are_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
