/* Goal: the parser takes well-formed requests, refuses everything doubtful with the right status,
 * and does not care how the bytes are cut. Method: each case is told as a story (parse_story.h),
 * fed whole, byte by byte and cut once at every place; limits are tried on both sides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/common/net/parse_story.h"

#define HOST "Host: h\r\n"

static void assert_story(const char *bytes, size_t n, size_t head_max, const char *want) {
    struct story s;
    story_init(&s, head_max);
    story_feed(&s, bytes, n);
    if (s.text.data == NULL) buf_puts(&s.text, "");
    if (strcmp(s.text.data, want) != 0)
        fail_msg("%.*s\ntold: %s\nwant: %s", (int)(n < 300 ? n : 300), bytes, s.text.data, want);
    story_fini(&s);
    story_init(&s, head_max);
    for (size_t i = 0; i < n; i++) story_feed(&s, bytes + i, 1);
    if (s.text.data == NULL) buf_puts(&s.text, "");
    assert_string_equal(s.text.data, want);
    story_fini(&s);
    for (size_t cut = 0; cut <= n; cut += n < 2000 ? 1 : n / 97) {
        story_init(&s, head_max);
        story_feed(&s, bytes, cut);
        story_feed(&s, bytes + cut, n - cut);
        if (s.text.data == NULL) buf_puts(&s.text, "");
        assert_string_equal(s.text.data, want);
        story_fini(&s);
    }
}

static void told(const char *text, const char *want) {
    assert_story(text, strlen(text), 16384, want);
}

static void good_requests(void **state) {
    (void)state;
    told("GET / HTTP/1.1\r\n" HOST "\r\n", "GET /? 1.1 Host=h; || END ");
    told("GET /a%20b/%C3%A9%2Fc?q=%20&x HTTP/1.1\r\n" HOST "\r\n",
         "GET /a b/\xC3\xA9/c?q=%20&x 1.1 Host=h; || END ");
    /* one spelling of a path */
    told("GET //a/./b//c HTTP/1.1\r\n" HOST "\r\n", "GET /a/b/c? 1.1 Host=h; || END ");
    told("GET /a/../b/%2e%2E/c/. HTTP/1.1\r\n" HOST "\r\n", "GET /c/? 1.1 Host=h; || END ");
    told("GET /a/b/.. HTTP/1.1\r\n" HOST "\r\n", "GET /a/? 1.1 Host=h; || END ");
    told("GET /a%2f..%2fb/...?/../ HTTP/1.1\r\n" HOST "\r\n",
         "GET /b/...?/../ 1.1 Host=h; || END ");
    told("GET /./ HTTP/1.1\r\n" HOST "\r\n", "GET /? 1.1 Host=h; || END ");
    told("GET /%252e%252e/a HTTP/1.1\r\n" HOST "\r\n", "GET /%2e%2e/a? 1.1 Host=h; || END ");
    told("\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "GET /? 1.1 Host=h; || END ");
    told("GET /?? HTTP/1.1\r\nHost:\r\n\r\n", "GET /?? 1.1 Host=; || END ");
    told("GET http://host:80/p?q HTTP/1.1\r\n" HOST "\r\n", "GET /p?q 1.1 Host=h; || END ");
    told("GET HTTPS://host HTTP/1.1\r\n" HOST "\r\n", "GET /? 1.1 Host=h; || END ");
    told("GET http://[::1]:8?q HTTP/1.1\r\n" HOST "\r\n", "GET /?q 1.1 Host=h; || END ");
    told("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS *? 1.1 Host=h; || END ");
    told("M-SEARCH / HTTP/1.1\r\n" HOST "A:\t b \t\r\nB: x y\xC3\xA9\r\n\r\n",
         "M-SEARCH /? 1.1 Host=h; A=b; B=x y\xC3\xA9; || END ");
    told("GET / HTTP/1.0\r\n\r\n", "GET /? 1.0 close || END ");
    told("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
         "GET /? 1.0 Connection=Keep-Alive; || END ");
    told("GET / HTTP/1.1\r\n" HOST "Connection: foo ,close\r\n\r\n",
         "GET /? 1.1 close Host=h; Connection=foo ,close; || END ");
    told("POST / HTTP/1.1\r\n" HOST "content-length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n" HOST "\r\n",
         "POST /? 1.1 Host=h; content-length=5; |hello| END GET /? 1.1 Host=h; || END ");
    told("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n",
         "POST /? 1.1 Host=h; Content-Length=0; || END ");
    told("POST / HTTP/1.1\r\n" HOST "Content-Length: 0005\r\nExpect: 100-Continue\r\n\r\nhello",
         "POST /? 1.1 expect Host=h; Content-Length=0005; Expect=100-Continue; |hello| END ");
}

static void chunked_bodies(void **state) {
#define CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"
#define TOLD    "POST /? 1.1 Host=h; Transfer-Encoding=Chunked; |"
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"0\r\n\r\n", "| END "},
        {"5\r\nhello\r\n0\r\n\r\n", "hello| END "},
        {"5\r\nhello\r\n6\r\n world\r\n000\r\n\r\n", "hello world| END "},
        {"A;x=\"y z\"\r\n0123456789\r\n0;last\r\n\r\n", "0123456789| END "},
        {"a \t;x\r\n0123456789\r\n0\r\n\r\n", "0123456789| END "},
        {"0\r\nTrailer: dropped\r\nX: y\r\n\r\n", "| END "},
        {"000000000000005\r\nhello\r\n0\r\n\r\n", "hello| END "},
        {"0000000000000005\r\nhello\r\n0\r\n\r\n", "ERROR 413"}, /* 16 digits */
        {"FFFFFFFFFFFFFFFFF\r\n", "ERROR 413"},
        {"\r\n", "ERROR 400"},
        {";x\r\n", "ERROR 400"},
        {" 5\r\n", "ERROR 400"},
        {"5 \r\n", "ERROR 400"},
        {"5 x\r\n", "ERROR 400"},
        {"0x5\r\n", "ERROR 400"},
        {"-5\r\n", "ERROR 400"},
        {"+5\r\n", "ERROR 400"},
        {"5\n", "ERROR 400"},
        {"5\rx", "ERROR 400"},
        {"5;a\x01\r\n", "ERROR 400"},
        {"5\r\nhelloX", "helloERROR 400"},
        {"5\r\nhello\n", "helloERROR 400"},
        {"5\r\nhello\rX", "helloERROR 400"},
        {"0\r\n X: y\r\n\r\n", "ERROR 400"},
        {"0\r\nX : y\r\n\r\n", "ERROR 400"},
        {"0\r\nnocolon\r\n\r\n", "ERROR 400"},
        {"0\r\nX: y\n\r\n", "ERROR 400"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[400], want[400];
        snprintf(text, sizeof(text), "%s%s", CHUNKED, cases[i].body);
        snprintf(want, sizeof(want), "%s%s", TOLD, cases[i].want);
        told(text, want);
    }
}

static void refused_heads(void **state) {
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"\r\n\r\n", 400},
        {"GET /\r\n", 400},
        {"GET  / HTTP/1.1\r\n", 400},
        {"GET / HTTP/1.1 \r\n", 400},
        {" GET / HTTP/1.1\r\n", 400},
        {"GET / \r\n", 400},
        {"GET / HTTP/1\r\n", 400},
        {"GET / http/1.1\r\n", 400},
        {"GET / HTTP/1.11\r\n", 400},
        {"GET / HTTP/1.2\r\n", 505},
        {"GET / HTTP/0.9\r\n", 505},
        {"PRI * HTTP/2.0\r\n",
         505}, /* the preface of HTTP/2: the version comes before the target */
        {"GET / HTTP/2.0\r\n", 505},
        {"G(T / HTTP/1.1\r\n", 400},
        {"G\xC3\xA9T / HTTP/1.1\r\n", 400},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n", 400}, /* 33 characters */
        {"GET foo HTTP/1.1\r\n", 400},
        {"GET * HTTP/1.1\r\n", 400},
        {"CONNECT host:443 HTTP/1.1\r\n", 400},
        {"GET ftp://h/ HTTP/1.1\r\n", 400},
        {"GET http:///p HTTP/1.1\r\n", 400},
        {"GET http://a@b/p HTTP/1.1\r\n", 400},
        {"GET /%00 HTTP/1.1\r\n", 400},
        {"GET /%0a HTTP/1.1\r\n", 400},
        {"GET /%7f HTTP/1.1\r\n", 400},
        {"GET /% HTTP/1.1\r\n", 400},
        {"GET /%2 HTTP/1.1\r\n", 400},
        {"GET /.. HTTP/1.1\r\n", 400},
        {"GET /a/../../b HTTP/1.1\r\n", 400},
        {"GET /a/%2e%2e/.%2E HTTP/1.1\r\n", 400},
        {"GET /%zz HTTP/1.1\r\n", 400},
        {"GET /\xC3\xA9 HTTP/1.1\r\n", 400},
        {"GET /a\tb HTTP/1.1\r\n", 400},
        {"GET /#f HTTP/1.1\r\n", 400},
        {"GET /\"x\" HTTP/1.1\r\n", 400},
        {"GET / HTTP/1.1\n", 400},
        {"GET / HTTP/1.1\rX", 400},
        {"GET / HTTP/1.1\r\nHost: h\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400}, /* no Host */
        {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400},
        {"GET / HTTP/1.0\r\n" HOST HOST "\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost : h\r\n", 400},
        {"GET / HTTP/1.1\r\n: h\r\n", 400},
        {"GET / HTTP/1.1\r\nnocolon\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST " folded\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "\tfolded\r\n", 400},
        {"GET / HTTP/1.1\r\n Host: h\r\n", 400},
        {"GET / HTTP/1.1\r\nA: b\x01\r\n", 400},
        {"GET / HTTP/1.1\r\nA: b\x7F\r\n", 400},
        {"GET / HTTP/1.1\r\nA\xC3\xA9: b\r\n", 400},
        {"GET / HTTP/1.1\r\nA(: b\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: \r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: +5\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: -5\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 5,5\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 0x5\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 5 5\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n", 413},
        {"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST
         "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         400},
        {"POST / HTTP/1.1\r\n" HOST
         "Transfer-Encoding: xchunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         400},
        {"POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Expect: a-miracle\r\n", 417},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char want[32];
        snprintf(want, sizeof(want), "ERROR %d", cases[i].status);
        told(cases[i].text, want);
    }
    assert_story("GET / HTTP/1.1\r\nA: b\0c\r\n", 24, 16384, "ERROR 400");
    assert_story("GET /\0 HTTP/1.1\r\n", 17, 16384, "ERROR 400");
}

static char *repeat(char *to, const char *unit, size_t n) {
    size_t len = strlen(unit);
    for (size_t i = 0; i < n; i++, to += len) memcpy(to, unit, len);
    *to = '\0';
    return to;
}

static bool takes(const char *text, size_t head_max, int *status) {
    struct story s;
    story_init(&s, head_max);
    story_feed(&s, text, strlen(text));
    bool ok = s.text.data != NULL && strstr(s.text.data, "END") != NULL;
    *status = s.p.status;
    story_fini(&s);
    story_init(&s, head_max);
    for (const char *c = text; *c != '\0'; c++) story_feed(&s, c, 1);
    assert_int_equal(ok, s.text.data != NULL && strstr(s.text.data, "END") != NULL);
    assert_int_equal(*status, s.p.status);
    story_fini(&s);
    return ok;
}

static void limits(void **state) {
    char *text = malloc(2000000), *p;
    int status;
    (void)state;
    assert_non_null(text);
    /* the head in bytes, line ends and all */
    static const char small[] = "GET / HTTP/1.1\r\n" HOST "A: b\r\n\r\n";
    assert_true(takes(small, sizeof(small) - 1, &status));
    assert_false(takes(small, sizeof(small) - 2, &status));
    assert_int_equal(status, 431);
    assert_false(takes(small, 10, &status));
    assert_int_equal(status, 414);
    /* the target */
    for (size_t n = HTTP_TARGET_BYTES_MAX; n <= HTTP_TARGET_BYTES_MAX + 1; n++) {
        p = repeat(text, "GET /", 1);
        p = repeat(p, "a", n - 1);
        repeat(p, " HTTP/1.1\r\n" HOST "\r\n", 1);
        assert_int_equal(takes(text, 16384, &status), n == HTTP_TARGET_BYTES_MAX);
    }
    assert_int_equal(status, 414);
    /* fields */
    for (size_t n = HTTP_HEADERS_MAX; n <= HTTP_HEADERS_MAX + 1; n++) {
        p = repeat(text, "GET / HTTP/1.1\r\n" HOST, 1);
        p = repeat(p, "A: b\r\n", n - 1);
        repeat(p, "\r\n", 1);
        assert_int_equal(takes(text, 16384, &status), n == HTTP_HEADERS_MAX);
    }
    assert_int_equal(status, 431);
    /* a header that never ends; a request line that never ends */
    p = repeat(text, "GET / HTTP/1.1\r\n" HOST "A: ", 1);
    repeat(p, "x", 1000000);
    assert_false(takes(text, 16384, &status));
    assert_int_equal(status, 431);
    repeat(text, "x", 1000000);
    assert_false(takes(text, 16384, &status));
    assert_int_equal(status, 414);
    /* chunk lines, extensions of a body, trailers */
    for (size_t n = HTTP_CHUNK_LINE_BYTES_MAX; n <= HTTP_CHUNK_LINE_BYTES_MAX + 1; n++) {
        p = repeat(text, CHUNKED "0;", 1);
        p = repeat(p, "x", n - 2);
        repeat(p, "\r\n\r\n", 1);
        assert_int_equal(takes(text, 16384, &status), n == HTTP_CHUNK_LINE_BYTES_MAX);
    }
    assert_int_equal(status, 400);
    for (size_t n = HTTP_CHUNK_EXT_BYTES_MAX / 2 - 1; n <= HTTP_CHUNK_EXT_BYTES_MAX / 2; n++) {
        p = repeat(text, CHUNKED, 1);
        p = repeat(p, "1;x\r\nb\r\n", n);
        repeat(p, "0;x\r\n\r\n", 1);
        assert_int_equal(takes(text, 16384, &status), n == HTTP_CHUNK_EXT_BYTES_MAX / 2 - 1);
    }
    assert_int_equal(status, 400);
    for (size_t n = 1; n <= 2; n++) { /* a trailer line and the empty one fill the limit exactly */
        p = repeat(text, CHUNKED "0\r\nX:", 1);
        p = repeat(p, "x", HTTP_TRAILER_BYTES_MAX - 7 + n);
        repeat(p, "\r\n\r\n", 1);
        assert_int_equal(takes(text, 16384, &status), n == 1);
    }
    assert_int_equal(status, 431);
    for (size_t n = HTTP_HEADERS_MAX; n <= HTTP_HEADERS_MAX + 1; n++) {
        p = repeat(text, CHUNKED "0\r\n", 1);
        p = repeat(p, "X:\r\n", n);
        repeat(p, "\r\n", 1);
        assert_int_equal(takes(text, 16384, &status), n == HTTP_HEADERS_MAX);
    }
    assert_int_equal(status, 431);
    free(text);
}

static void head_outlives_the_parser(void **state) {
    static const char text[] =
        "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nX-Y: z\r\n\r\nok";
    struct http_parser p;
    struct http_head h;
    size_t used, at;
    (void)state;
    http_parser_init(&p, 1000);
    assert_true(http_parser_idle(&p));
    assert_int_equal(http_parser_feed(&p, text, 3, &used), HTTP_EV_MORE);
    assert_false(http_parser_idle(&p));
    assert_int_equal(http_parser_feed(&p, text + 3, sizeof(text) - 4, &used), HTTP_EV_HEAD);
    at = 3 + used;
    http_head_move(&h, &p.head);
    assert_int_equal(http_parser_feed(&p, text + at, sizeof(text) - 1 - at, &used), HTTP_EV_BODY);
    assert_int_equal(p.piece_len, 2);
    assert_int_equal(http_parser_feed(&p, "next", 4, &used), HTTP_EV_END);
    assert_int_equal(used, 0);
    http_parser_next(&p);
    assert_true(http_parser_idle(&p));
    http_parser_fini(&p);
    assert_string_equal(http_head_method(&h), "POST");
    assert_string_equal(http_head_path(&h), "/p");
    assert_string_equal(http_head_query(&h), "");
    assert_string_equal(http_head_field(&h, "x-y"), "z");
    assert_null(http_head_field(&h, "X"));
    http_head_free(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests),
        cmocka_unit_test(chunked_bodies),
        cmocka_unit_test(refused_heads),
        cmocka_unit_test(limits),
        cmocka_unit_test(head_outlives_the_parser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
