/* Goal: on every listener a request finds its handler, or the answer that says why not: 404 with
 * paths nearby, 405 with Allow, OPTIONS, 413 by path, 401; and every answer has its headers.
 * Method: a listener with small tables on a loop thread, raw requests by tables; handlers say which
 * they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "common/net/dispatch.h"
#include "common/net/http_tensors.h"
#include "tests/unit/common/net/raw_http.h"

#define KEY "a-key-of-24-characters-x"

static struct {
    struct loop_thread t;
    struct dispatch d;
    struct dispatch_listener l;
    unsigned planes;
    struct errbuf eb;
    enum err e;
} fx;

static void say(struct http_x *x, int status, const char *text) {
    http_x_reply(x, status, "text/plain", text, strlen(text));
}

static void on_row(void *arg, struct http_x *x, const struct route_params *p) {
    char text[300];
    size_t n;
    (void)arg;
    http_x_body(x, &n);
    snprintf(text, sizeof(text), "row %s %zu", p->model, n);
    say(x, 200, text);
}
/* An answer with tensors, of as many bytes behind its JSON as the path says. */
static void on_tensors(void *arg, struct http_x *x, const struct route_params *p) {
    const size_t n = strtoul(p->model, NULL, 10);
    char body[128];
    (void)arg;
    const int n_json =
        snprintf(body, sizeof(body), "{\"o\":[{\"parameters\":{\"binary_data_size\":%zu}}]}", n);
    memset(body + n_json, 0, n);
    http_tensors_reply(x, "application/json", body, (size_t)n_json + n);
}
static void on_infer(void *arg, struct http_x *x, const struct api_path *path, const char *model) {
    char text[400];
    (void)arg;
    snprintf(text, sizeof(text), "infer %s %s", path->path, model);
    say(x, 200, text);
}
static void reply_error(void *arg, struct http_x *x, int status, const char *text) {
    (void)arg;
    say(x, status, text);
}
static void reply_unknown(void *arg, struct http_x *x, const char *text) {
    (void)arg;
    http_x_set_header(x, "X-Unknown", "1");
    say(x, 404, text);
}

static const struct route rows[] = {
    {PLANE_DATA, "GET", "/test/models", on_row, 0},
    {PLANE_DATA, "GET", "/test/models/{m}", on_row, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/test/models/{m}/ready", on_row, 0},
    {PLANE_DATA, "POST", "/test/tokenize", on_row, 10},
    {PLANE_DATA, "GET", "/test/tensors/{m}", on_tensors, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/health", on_row, 0},
    {PLANE_MGMT, "POST", "/v1/role", on_row, SIZE_MAX},
    {PLANE_MGMT, "GET", "/v1/role", on_row, 0},
    {0, NULL, NULL, NULL, 0},
};
static const struct route *const tables[] = {rows, NULL};

static void open_listener(void *arg) {
    const struct http_server_opts o = {.host = "127.0.0.1",
                                       .conns_max = 100,
                                       .idle_ms = 60000,
                                       .read_ms = 60000,
                                       .write_ms = 60000};
    (void)arg;
    fx.e = dispatch_listen(&fx.l, fx.t.loop, &fx.d, fx.planes, &o, &fx.eb);
}
static void close_listener(void *arg) {
    (void)arg;
    http_server_close(&fx.l.server);
}

static void up(unsigned planes) {
    fx.planes = planes;
    loop_thread_start(&fx.t);
    run_on_loop(&fx.t, open_listener, NULL);
    if (fx.e != ERR_OK) fail_msg("%s", fx.eb.text);
}
static void down(void) {
    run_on_loop(&fx.t, close_listener, NULL);
    loop_thread_stop(&fx.t);
}

static int setup(void **state) {
    (void)state;
    log_init(LOG_NONE, 2);
    fx.d = (struct dispatch){.tables = tables,
                             .body_bytes_max = 100,
                             .cors_origin = "",
                             .not_found = "nothing here",
                             .on_path = on_infer,
                             .reply_error = reply_error,
                             .reply_unknown_path = reply_unknown};
    return 0;
}

/* The whole answer to one request on its own connection; body_len bytes of 'x'. */
static void ask(struct buf *answer, const char *method, const char *path, const char *headers,
                size_t body_len) {
    int fd = raw_connect(http_server_port(fx.l.server));
    struct buf b = BUF_INIT;
    char head[1024];
    snprintf(head, sizeof(head),
             "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n",
             method, path, headers, body_len);
    raw_send(fd, head);
    char *body = malloc(body_len + 1);
    memset(body, 'x', body_len);
    raw_send_n(fd, body, body_len); /* refused early: that is an answer, too */
    free(body);
    raw_answer(fd, &b, answer, strcmp(method, "HEAD") == 0);
    buf_free(&b);
    close(fd);
}

static void expect(const char *method, const char *path, const char *headers, size_t body_len,
                   int status, const char *text) {
    struct buf a = BUF_INIT;
    char line[32];
    ask(&a, method, path, headers, body_len);
    snprintf(line, sizeof(line), "HTTP/1.1 %d ", status);
    const char *body = strstr(a.data, "\r\n\r\n") + 4;
    if (strncmp(a.data, line, strlen(line)) != 0 || strstr(a.data, "X-Request-Id: ") == NULL ||
        (text != NULL && strcmp(body, text) != 0))
        fail_msg("%s %s:\n%s\nexpected %d \"%s\"", method, path, a.data, status,
                 text != NULL ? text : "");
    buf_free(&a);
}

static void expect_header(const char *method, const char *path, const char *headers,
                          const char *want) {
    struct buf a = BUF_INIT;
    ask(&a, method, path, headers, 0);
    if (strstr(a.data, want) == NULL) fail_msg("%s %s lacks %s:\n%s", method, path, want, a.data);
    buf_free(&a);
}

/* Also where there are no bytes, and where all of them are zero. */
static void answers_of_bytes_say_so(void **state) {
    static const char *const sizes[] = {"0", "3", "8"};
    (void)state;
    up(PLANE_DATA);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char path[32];
        snprintf(path, sizeof(path), "/test/tensors/%s", sizes[i]);
        expect_header("GET", path, "", "Inference-Header-Content-Length: 45\r\n");
        expect_header("GET", path, "", "Content-Type: application/octet-stream\r\n");
    }
    down();
}

static void a_request_finds_its_handler(void **state) {
    (void)state;
    up(PLANE_DATA);
    expect("POST", "/v1/chat/completions", "", 2, 200, "infer /v1/chat/completions ");
    expect("POST", "/v2/models/fable/generate", "", 2, 200, "infer /v2/models/{m}/generate fable");
    expect("POST", "/v2/models/fable/versions/1/generate", "", 2, 200,
           "infer /v2/models/{m}/generate fable");
    expect("GET", "/v2/models/fable/versions/1", "", 0, 200, "infer /v2/models/{m} fable");
    expect("GET", "/v2/models/fable/versions/7", "", 0, 404,
           "Request for unknown model: 'fable' version 7 is not found");
    expect("GET", "/v2/models/fable/versions/01/config", "", 0, 404,
           "Request for unknown model: 'fable' version 01 is not found");
    expect("POST", "/v2/models/fable/versions/01/generate", "", 2, 200,
           "infer /v2/models/{m}/generate fable");
    expect("GET", "/v2/models/fable/versions/%C3%A4/config", "", 0, 404,
           "Request for unknown model: 'fable' version is not found");
    expect("GET", "/v2/models/fable/versions/7/generate", "", 0, 405, NULL);
    expect("POST", "/v2/models/fable/generate", "Content-Encoding: gzip\r\n", 2, 400,
           "Unsupported content-encoding, only 'identity' is supported.");
    expect("POST", "/v2/models/fable/infer", "Content-Encoding: deflate\r\n", 2, 400,
           "Unsupported content-encoding, only 'identity' is supported.");
    expect("POST", "/v2/models/fable/infer", "Content-Encoding: Identity\r\n", 2, 200, NULL);
    expect("POST", "/v1/completions", "Content-Encoding: gzip\r\n", 2, 200, NULL);
    expect("GET", "/test/models/fable", "", 0, 200, "row fable 0");
    expect("GET", "/v1/models/some/model", "", 0, 200, "infer /v1/models/{*} some/model");
    expect("GET", "/test/models?x=1", "", 0, 200, "row  0");
    expect("POST", "/test/tokenize", "", 10, 200, "row  10");
    down();
    up(PLANE_MGMT); /* nothing of another plane */
    expect("POST", "/v1/role", "", 50, 200, "row  50");
    expect("POST", "/v1/chat/completions", "", 2, 404, "nothing here");
    expect("GET", "/test/models", "", 0, 404, "nothing here");
    down();
}

static void methods(void **state) {
    (void)state;
    static const char wrong[] = "The method is not allowed for this path.";
    up(PLANE_DATA | PLANE_MGMT);
    expect("GET", "/v1/chat/completions", "", 0, 405, wrong);
    expect_header("GET", "/v1/chat/completions", "", "Allow: POST\r\n");
    expect("DELETE", "/v1/role", "", 0, 405, wrong);
    expect_header("DELETE", "/v1/role", "", "Allow: POST, GET, HEAD\r\n");
    expect("OPTIONS", "/v1/chat/completions", "", 0, 204, "");
    expect_header("OPTIONS", "/test/models", "", "Allow: GET, HEAD, OPTIONS\r\n");
    expect("HEAD", "/test/models", "", 0, 200, NULL);
    expect("OPTIONS", "/nope", "", 0, 404, "nothing here");
    down();
}

static void unknown_paths(void **state) {
    (void)state;
    up(PLANE_DATA);
    expect("POST", "/v1/chat/completion", "", 2, 404, "nothing here");
    expect_header("GET", "/nope", "", "X-Unknown: 1\r\n");
    down();
    fx.d.not_found = NULL;
    up(PLANE_DATA);
    expect("POST", "/v1/chat/completion", "", 2, 404,
           "The path /v1/chat/completion does not exist; near it: POST /v1/chat/completions, "
           "POST /v3/chat/completions, POST /chat/completions. GET /docs shows all paths.");
    expect("GET", "/v1/fine_tuning", "", 0, 404,
           "The path /v1/fine_tuning does not exist. GET /docs shows all paths.");
    expect("GET", "/a%20b%22", "", 0, 404, /* not repeated: it cannot be printed */
           "The path does not exist. GET /docs shows all paths.");
    down();
    up(PLANE_MGMT);
    expect("GET", "/v1/roles", "", 0, 404,
           "The path /v1/roles does not exist; near it: POST /v1/role, GET /v1/role.");
    down();
}

/* Of inference the configured limit, of a row its own, of an unknown path enough for its 404. */
static void bodies(void **state) {
    (void)state;
    static const char text[] = "Request body too large. Maximum allowed size is 0MB.";
    up(PLANE_DATA | PLANE_MGMT);
    expect("POST", "/v1/completions", "", 100, 200, NULL);
    expect("POST", "/v1/completions", "", 101, 413, text);
    expect("POST", "/v2/models/fable/versions/1/generate", "", 101, 413, text);
    expect("POST", "/test/tokenize", "", 11, 413, text);
    expect("POST", "/v1/role", "", 100, 200, "row  100"); /* SIZE_MAX: as inference */
    expect("POST", "/v1/role", "", 101, 413, text);
    expect("POST", "/nope", "", 100, 404, "nothing here");
    expect("POST", "/nope", "", 101, 413, text);
    down();
    fx.d.beside_bytes_max = 3 << 20; /* the text names the limit of a client's body all the same */
    up(PLANE_DATA | PLANE_MGMT);
    expect("POST", "/v1/completions", "", (3 << 20) + 100, 200, NULL);
    expect("POST", "/v1/completions", "", (3 << 20) + 101, 413, text);
    expect("POST", "/v1/role", "", 101, 413, text);
    down();
}

static void origins(void **state) {
    (void)state;
    static const char *const paths[] = {"/test/models", "/nope", "/test/tokenize"};
    static const char page[] = "Origin: http://localhost:3000\r\n";
    fx.d.cors_origin = "http://localhost:*";
    up(PLANE_DATA);
    for (int i = 0; i < 3; i++)
        expect_header("GET", paths[i], page,
                      "Access-Control-Allow-Origin: http://localhost:3000\r\n");
    expect_header("POST", "/test/tokenize", page, "Vary: Origin\r\n");
    down();
}

static struct api_keys *open_keys(void) {
    char dir[] = "/tmp/dispatch_test.XXXXXX", path[64];
    struct api_keys *keys = NULL;
    struct errbuf eb;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/keys", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(KEY "\n", f) >= 0 && fclose(f) == 0 && chmod(path, 0600) == 0);
    if (api_keys_open(&keys, "t.keys", dir, "keys", &eb) != ERR_OK) fail_msg("%s", eb.text);
    remove(path);
    rmdir(dir);
    return keys;
}

static void keys(void **state) {
    (void)state;
    static const char right[] = "Authorization: Bearer " KEY "\r\n",
                      wrong[] = "Authorization: Bearer " KEY "y\r\n";
    struct api_keys *k = fx.d.keys = open_keys();
    up(PLANE_DATA);
    expect("POST", "/v1/completions", right, 2, 200, NULL);
    expect("POST", "/v1/completions", "", 2, 401, NULL);
    expect("POST", "/v1/completions", wrong, 2, 401, NULL);
    expect("GET", "/test/models", "", 0, 401, NULL);
    expect("GET", "/nope", "", 0, 401, NULL); /* what there is is not told to strangers */
    expect_header("GET", "/test/models", "", "WWW-Authenticate: Bearer\r\n");
    expect_header("GET", "/test/models", wrong, "\"code\":\"invalid_api_key\"");
    expect_header("GET", "/v2/models/fable", "", "{\"error\":{\"message\":\"No API key");
    expect("GET", "/health", "", 0, 200, NULL);
    expect("GET", "/test/models/fable/ready", "", 0, 200, NULL);
    expect("GET", "/version", "", 0, 200, NULL);
    expect("GET", "/v1/models", "", 0, 401, NULL);
    expect("GET", "/v2/models/fable/versions/ready", "", 0, 401, NULL); /* a model's version */
    expect("OPTIONS", "/test/models", "", 0, 204, NULL);
    down();
    up(PLANE_MGMT); /* keys are for clients */
    expect("GET", "/v1/role", "", 0, 200, NULL);
    down();
    fx.d.keys = NULL;
    api_keys_close(&k);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup(fn, setup)
    const struct CMUnitTest tests[] = {
        T(answers_of_bytes_say_so),
        T(a_request_finds_its_handler),
        T(methods),
        T(unknown_paths),
        T(bodies),
        T(origins),
        T(keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
