/* What the tokenizer's tests share: data files, and a tokenizer from JSON text. */
#ifndef BATON_TEST_TOK_TESTLIB_H
#define BATON_TEST_TOK_TESTLIB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/text/tokenizer.h"
#include "proto/json.h"

#define TOK_DATA "tests/data/tokenizers/"

/* The unpacked content of a .gz file below TOK_DATA; tests run in the root of the tree. */
static inline struct buf gunzip(const char *path) {
    struct buf b = BUF_INIT;
    char cmd[256];
    FILE *f;
    size_t n;
    snprintf(cmd, sizeof cmd, "gzip -dc < " TOK_DATA "%s", path);
    f = popen(cmd, "r");
    assert_non_null(f);
    do {
        assert_true(buf_reserve(&b, b.len + 65536));
        n = fread(b.data + b.len, 1, b.cap - b.len - 1, f);
        b.len += n;
    } while (n > 0);
    assert_int_equal(pclose(f), 0);
    assert_true(b.len > 0);
    b.data[b.len] = '\0';
    return b;
}

static inline struct tokenizer *parse_or_fail(const char *json, size_t n) {
    struct tokenizer *t = NULL;
    struct errbuf eb = {.code = ERR_OK};
    if (tokenizer_parse(&t, json, n, "test", &eb) != ERR_OK) fail_msg("%s", eb.text);
    assert_non_null(t);
    return t;
}

static inline struct tokenizer *load_gz(const char *path) {
    struct buf b = gunzip(path);
    struct tokenizer *t = parse_or_fail(b.data, b.len);
    buf_free(&b);
    return t;
}

/* xorshift: the same numbers on every machine. */
static inline uint32_t rnd(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

/* UTF-8 as RFC 3629 has it, written apart from the code under test. */
static inline bool is_utf8(const char *s, size_t n) {
    const unsigned char *p = (const unsigned char *)s;
    for (size_t i = 0; i < n;) {
        uint32_t c = p[i], min;
        size_t more;
        if (c < 0x80) {
            i++;
            continue;
        }
        if (c >= 0xC0 && c < 0xE0) {
            more = 1, min = 0x80, c &= 0x1F;
        } else if (c >= 0xE0 && c < 0xF0) {
            more = 2, min = 0x800, c &= 0x0F;
        } else if (c >= 0xF0 && c < 0xF8) {
            more = 3, min = 0x10000, c &= 0x07;
        } else {
            return false;
        }
        if (i + more >= n) return false;
        for (size_t k = 1; k <= more; k++) {
            if ((p[i + k] & 0xC0) != 0x80) return false;
            c = c << 6 | (p[i + k] & 0x3F);
        }
        if (c < min || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
        i += more + 1;
    }
    return true;
}

/* Feeds ids one by one; checks that no piece holds half a character. */
static inline void stream_all(const struct tokenizer *t, const int32_t *ids, size_t n,
                              bool skip_special, struct buf *out) {
    struct detok *d = NULL;
    assert_int_equal(detok_create(&d, t, skip_special), ERR_OK);
    for (size_t i = 0; i <= n; i++) {
        struct buf piece = BUF_INIT;
        enum err e = i < n ? detok_feed(d, ids[i], &piece) : detok_flush(d, &piece);
        assert_int_equal(e, ERR_OK);
        if (piece.len > 0) {
            assert_true(is_utf8(piece.data, piece.len));
            buf_append(out, piece.data, piece.len);
        }
        buf_free(&piece);
    }
    detok_destroy(&d);
    assert_null(d);
}

static inline void assert_same_text(const struct buf *got, const char *want, size_t n) {
    if (got->len != n || (n > 0 && memcmp(got->data, want, n) != 0)) {
        fail_msg("got \"%.*s\", want \"%.*s\"", (int)got->len, got->len ? got->data : "", (int)n,
                 want);
    }
}

/* Compares with an array of ids in JSON; `what` is shown when they differ. */
static inline void assert_same_ids(const struct id_list *got, const struct json_value *want,
                                   const char *what, const char *text) {
    size_t n = json_arr_len(want);
    bool same = got->n == n;
    for (size_t i = 0; i < n && same; i++) {
        int64_t id;
        assert_int_equal(json_as_i64(json_arr_at(want, i), &id), JSON_OK);
        same = got->ids[i] == id;
    }
    if (!same) {
        struct buf b = BUF_INIT;
        for (size_t i = 0; i < got->n; i++) buf_printf(&b, " %d", got->ids[i]);
        fail_msg("%s: \"%s\": got%s, want %s", what, text, b.len ? b.data : " nothing",
                 json_to_text((struct json_value *)want, JSON_COMPACT, NULL));
    }
}

#endif
