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

#endif
