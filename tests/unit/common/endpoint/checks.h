/* checks: rows of (body, status, error text) against endpoint_read. Bodies use ' for ", because
 * JSON inside C strings reads badly otherwise. */
#ifndef BATON_TESTS_ENDPOINT_CHECKS_H
#define BATON_TESTS_ENDPOINT_CHECKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/json.h"
#include "tests/unit/common/endpoint/fixture.h"

struct row {
    const char *body;
    int status;
    const char *text;
};

static char *unquote(const char *s) {
    char *out = strdup(s);
    for (char *p = out; *p != '\0'; p++)
        if (*p == '\'') *p = '"';
    return out;
}

static void check(struct fixture *f, const char *path, const char *body, int status,
                  const char *text) {
    struct infer_req *req;
    struct api_answer err;
    struct json_value *o = NULL;
    const char *got = "";
    size_t n;
    bool good = fixture_read(f, path, body, &req, &err);
    if (status == 200) {
        if (!good) fail_msg("%s %s\n refused: %s", path, body, err.body.data);
        infer_req_destroy(&req);
        return;
    }
    if (good) fail_msg("%s %s\n was taken, expected %s", path, body, text);
    assert_null(req);
    assert_int_equal(json_read(&o, err.body.data, err.body.len, NULL, NULL), ERR_OK);
    if (json_get_str(o, "error", &got, &n) != JSON_OK) {
        struct json_value *in;
        assert_int_equal(json_get_obj(o, "error", &in), JSON_OK);
        assert_int_equal(json_get_str(in, "message", &got, &n), JSON_OK);
    }
    if (err.status != status || strcmp(got, text) != 0)
        fail_msg("%s %s\n got      %d %s\n expected %d %s", path, body, err.status, got, status,
                 text);
    assert_string_equal(err.content_type, "application/json");
    json_put(o);
    buf_free(&err.body);
}

/* The text of req's ids, special ones too, is `prompt`. Frees it. */
static inline void expect_text_of(struct fixture *f, struct infer_req *req, const char *prompt) {
    struct buf text = BUF_INIT;
    tokenizer_decode(f->tok, req->ids, req->n_ids, false, &text);
    buf_putc(&text, '\0');
    assert_string_equal(text.data, prompt);
    buf_free(&text);
    infer_req_destroy(&req);
}

/* What is answered to `quoted` when the model says `text`, a token a byte, and ends. */
static inline void answer_to(struct fixture *f, const char *path, const char *quoted,
                             const char *text, struct buf *out) {
    int32_t script[512];
    size_t n = 0;
    char *body = unquote(quoted);
    assert_true(strlen(text) < sizeof(script) / sizeof(script[0]));
    for (; *text != '\0'; text++) script[n++] = fixture_byte_id((unsigned char)*text);
    script[n++] = TOK_EOS;
    assert_int_equal(fixture_ask(f, path, body, script, n, out), 200);
    free(body);
}

/* What an endpoint tells without its model: the status, and a text that is somewhere in it. */
static inline void expect_informed(struct fixture *f, const char *method, const char *path,
                                   const char *quoted, int status, const char *want) {
    char model[257], *body = unquote(quoted);
    struct api_answer a;
    const struct endpoint_ask ask = {
        .path = api_path_find(method, path, model), .name = model, .body = body, .n = strlen(body)};
    endpoint_inform(f->ep, &ask, &a);
    buf_putc(&a.body, '\0');
    if (strstr(a.body.data, want) == NULL) fail_msg("%s: %s\n not in %s", path, want, a.body.data);
    assert_int_equal(a.status, status);
    buf_free(&a.body);
    free(body);
}

static inline void run_rows(struct fixture *f, const char *path, const struct row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char *body = unquote(rows[i].body);
        check(f, path, body, rows[i].status, rows[i].text);
        free(body);
    }
}
#define RUN(f, path, rows) run_rows(f, path, rows, sizeof(rows) / sizeof(rows[0]))

#define TYPE(key, type) key " must be " type " type."

static int setup(void **state) {
    static struct fixture f;
    fixture_init(&f, false);
    fixture_open(&f);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture_close(*state);
    return 0;
}

/* The same, with the formats of tool calls and thinking that Qwen3 has. */
static inline int setup_parsers(void **state) {
    setup(state);
    struct fixture *f = *state;
    f->conf.tool_call_parser = "hermes";
    f->conf.reasoning_parser = "qwen3";
    fixture_open(f);
    return 0;
}

#endif
