/* Goal: a path finds its row, and a wrong method or plane says what would be right.
 * Method: a table in the style of ours, walked with paths on both sides of every rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/router.h"

static void one(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg;
    (void)x;
    (void)p;
}

static const struct route first[] = {
    {PLANE_DATA, "POST", "/v1/chat/completions", one, 100},
    {PLANE_DATA, "GET", "/v1/models", one, 0},
    {PLANE_DATA, "GET", "/v1/models/{m}", one, 0},
    {PLANE_DATA, "POST", "/v2/models/{m}/infer", one, 100},
    {PLANE_DATA | PLANE_MGMT, "GET", "/health", one, 0},
    {PLANE_DATA, "POST", "/both", one, 1},
    {PLANE_DATA, "GET", "/both", one, 0},
    {0},
};
static const struct route second[] = {
    {PLANE_MGMT, "GET", "/metrics", one, 0},           {PLANE_DATA, "DELETE", "/both", one, 0},
    {PLANE_DATA, "GET", "/v1/models/special", one, 0}, /* behind {m}: never reached */
    {PLANE_DATA, "PUT", "/files/{*}", one, 0},         {0},
};
static const struct route *const tables[] = {first, second, NULL};

static const struct route *find(struct route_match *m, unsigned planes, const char *method,
                                const char *path) {
    router_find(m, tables, planes, method, path);
    return m->row;
}

static void literal_paths(void **state) {
    struct route_match m;
    (void)state;
    assert_ptr_equal(find(&m, PLANE_DATA, "POST", "/v1/chat/completions"), &first[0]);
    assert_true(m.path_known);
    static const char *const unknown[] = {
        "/",          "",          "/v1",        "/v1/chat/completions/", "/v1/chat/completion",
        "/v1/Models", "v1/models", "//v1/models"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_null(find(&m, PLANE_DATA, "GET", unknown[i]));
        assert_false(m.path_known);
        assert_string_equal(m.allow, "");
    }
}

static void planes(void **state) {
    struct route_match m;
    (void)state;
    assert_ptr_equal(find(&m, PLANE_MGMT, "GET", "/health"), &first[4]);
    assert_ptr_equal(find(&m, PLANE_DATA, "GET", "/health"), &first[4]);
    assert_null(find(&m, PLANE_METRICS, "GET", "/health"));
    assert_false(m.path_known);
    assert_null(find(&m, PLANE_DATA, "GET", "/metrics"));
    assert_ptr_equal(find(&m, PLANE_DATA | PLANE_MGMT, "GET", "/metrics"), &second[0]);
}

static void methods(void **state) {
    struct route_match m;
    (void)state;
    assert_null(find(&m, PLANE_DATA, "GET", "/v1/chat/completions"));
    assert_true(m.path_known);
    assert_string_equal(m.allow, "POST");
    assert_ptr_equal(find(&m, PLANE_DATA, "HEAD", "/v1/models"), &first[1]);
    assert_string_equal(m.allow, "GET, HEAD");
    assert_ptr_equal(find(&m, PLANE_DATA, "GET", "/both"), &first[6]);
    assert_ptr_equal(find(&m, PLANE_DATA, "DELETE", "/both"), &second[1]);
    assert_null(find(&m, PLANE_DATA, "get", "/both"));
    assert_string_equal(m.allow, "POST, GET, HEAD, DELETE");
}

static void model_segment(void **state) {
    struct route_match m;
    char path[300] = "/v1/models/";
    (void)state;
    assert_ptr_equal(find(&m, PLANE_DATA, "GET", "/v1/models/Qwen2.5-0_5B"), &first[2]);
    assert_string_equal(m.params.model, "Qwen2.5-0_5B");
    assert_string_equal(m.params.rest, "");
    assert_ptr_equal(find(&m, PLANE_DATA, "GET", "/v1/models/special"), &first[2]);
    assert_ptr_equal(find(&m, PLANE_DATA, "POST", "/v2/models/x/infer"), &first[3]);
    assert_string_equal(m.params.model, "x");
    static const char *const unknown[] = {
        "/v1/models/",       "/v1/models/a/b",      "/v1/models/a b",   "/v1/models/a%",
        "/v2/models//infer", "/v2/models/x/infer/", "/v2/models/x/infe"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        find(&m, PLANE_DATA, "GET", unknown[i]);
        assert_false(m.path_known);
        assert_string_equal(m.params.model, "");
    }
    size_t at = strlen(path);
    memset(path + at, 'm', 257);
    path[at + 256] = '\0';
    assert_ptr_equal(find(&m, PLANE_DATA, "GET", path), &first[2]);
    assert_int_equal(strlen(m.params.model), 256);
    path[at + 256] = 'm';
    path[at + 257] = '\0';
    assert_null(find(&m, PLANE_DATA, "GET", path));
}

static void rest_of_path(void **state) {
    struct route_match m;
    char path[1100] = "/files/";
    (void)state;
    assert_ptr_equal(find(&m, PLANE_DATA, "PUT", "/files/a/b c/../d"), &second[3]);
    assert_string_equal(m.params.rest, "a/b c/../d");
    assert_null(find(&m, PLANE_DATA, "PUT", "/files/"));
    assert_null(find(&m, PLANE_DATA, "PUT", "/files"));
    memset(path + 7, 'r', 1025);
    path[7 + 1024] = '\0';
    assert_ptr_equal(find(&m, PLANE_DATA, "PUT", path), &second[3]);
    path[7 + 1024] = 'r';
    path[7 + 1025] = '\0';
    assert_null(find(&m, PLANE_DATA, "PUT", path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(literal_paths), cmocka_unit_test(planes),       cmocka_unit_test(methods),
        cmocka_unit_test(model_segment), cmocka_unit_test(rest_of_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
