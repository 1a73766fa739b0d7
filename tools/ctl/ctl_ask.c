/* ctl_ask: one request and its answer; what is said when there is none. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/http_client.h"
#include "common/net/loop.h"
#include "common/net/tls.h"
#include "proto/err.h"
#include "tools/ctl/ctl.h"

enum { TIMEOUT_MS = 10000, ANSWER_BYTES_MAX = 16 << 20, DETAIL_BYTES = 300 };

struct call {
    struct loop *loop;
    struct ctl_answer *answer;
    char detail[DETAIL_BYTES];
};

static void on_done(void *arg, const struct http_result *r) {
    struct call *k = arg;
    struct ctl_answer *a = k->answer;
    if (r->err == ERR_OK && (a->body = malloc(r->body_len + 1)) != NULL) {
        memcpy(a->body, r->body, r->body_len);
        a->body[r->body_len] = 0;
        a->len = r->body_len;
        a->status = r->status;
    } else {
        snprintf(k->detail, sizeof(k->detail), "%s",
                 r->detail != NULL ? r->detail : err_text(r->err));
    }
    loop_stop(k->loop);
}

/* One request; false: why there is no answer is in why[n]. */
static bool ask(const struct ctl *c, const char *url, const char *method, const char *body,
                struct ctl_answer *a, char *why, size_t n) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct http_client *client = NULL;
    struct http_call *http;
    struct call k = {.answer = a};
    memset(a, 0, sizeof(*a));
    enum err e = loop_create(&k.loop);
    if (e == ERR_OK) e = http_client_create(&client, k.loop, "batonctl/1.0");
    const struct http_call_opts o = {.method = method,
                                     .url = url,
                                     .tls = c->tls,
                                     .headers = body != NULL ? headers : NULL,
                                     .body = body,
                                     .body_len = body != NULL ? strlen(body) : 0,
                                     .total_ms = c->timeout_ms != 0 ? c->timeout_ms : TIMEOUT_MS,
                                     .body_bytes_max = ANSWER_BYTES_MAX,
                                     .on_done = on_done,
                                     .arg = &k};
    if (e == ERR_OK) e = http_client_call(client, &o, &http);
    if (e == ERR_OK) loop_run(k.loop);
    http_client_destroy(&client);
    loop_destroy(&k.loop);
    if (a->status != 0) return true;
    snprintf(why, n, "%s",
             e != ERR_OK           ? err_text(e)
             : k.detail[0] != '\0' ? k.detail
                                   : "no answer");
    return false;
}

bool ctl_ask_quiet(const struct ctl *c, const char *base, const char *method, const char *path,
                   struct ctl_answer *a, char *why, size_t n) {
    char url[1024];
    snprintf(url, sizeof(url), "%s%s", base, path);
    return ask(c, url, method, NULL, a, why, n);
}

bool ctl_ask_at(const struct ctl *c, const char *base, const char *method, const char *path,
                const char *body, bool quiet, struct ctl_answer *a) {
    char url[1024], why[DETAIL_BYTES];
    snprintf(url, sizeof(url), "%s%s", base, path);
    if (ask(c, url, method, body, a, why, sizeof(why))) return true;
    if (quiet) return false;
    ctl_fail(c, 1, "%s: %s", url, why);
    if (strcmp(base, c->base) == 0)
        fprintf(stderr,
                "%s: tried %s%s; -m URL names the management plane of another coordinator. One is "
                "started by `baton serve MODEL --split` or `%s -c FILE`\n",
                c->name, base, c->base_by_default ? ", which is the default" : "",
                "baton-coordinator");
    return false;
}

bool ctl_ask(const struct ctl *c, const char *method, const char *path, const char *body,
             struct ctl_answer *a) {
    return ctl_ask_at(c, c->base, method, path, body, false, a);
}

void ctl_answer_free(struct ctl_answer *a) {
    free(a->body);
    memset(a, 0, sizeof(*a));
}

int ctl_refused(const struct ctl *c, const struct ctl_answer *a) {
    struct json_value *root = NULL;
    const char *text = a->body;
    size_t n;
    if (json_read(&root, a->body, a->len, NULL, NULL) == ERR_OK &&
        json_get_str(root, "error", &text, &n) != JSON_OK)
        text = a->body;
    const bool force = strstr(text, "\"force\": true") != NULL; /* a member of the request */
    ctl_fail(c, 1, "status %d: %s%s", a->status, text, force ? " (here: --force)" : "");
    json_put(root);
    return 1;
}

int ctl_fail(const struct ctl *c, int status, const char *fmt, ...) {
    struct buf text = BUF_INIT, line = BUF_INIT;
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    const char *said = text.data != NULL ? text.data : "out of memory";
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", c->name, said);
    if (c->json) {
        buf_puts(&line, "{\"error\":");
        buf_json_text(&line, said, strlen(said), true);
        buf_puts(&line, "}\n");
        if (!line.failed) fwrite(line.data, 1, line.len, stdout);
    }
    buf_free(&text);
    buf_free(&line);
    return status;
}

bool ctl_open(struct ctl *c) {
    return strncmp(c->base, "https://", 8) != 0 || ctl_open_certificates(c);
}

bool ctl_open_certificates(struct ctl *c) {
    struct tls_conf t = {.names = {.ca = "--ca",
                                   .cert = "--cert",
                                   .key = "--key",
                                   .passwd = "--pass",
                                   .peer_name = "--peer-name"},
                         .verify_host = true};
    const struct {
        const char *flag, *env;
        char *to;
        size_t cap;
    } texts[] = {{"--ca", "BATON_CA", t.ca[0], sizeof(t.ca[0])},
                 {"--cert", "BATON_CERT", t.cert, sizeof(t.cert)},
                 {"--key", "BATON_KEY", t.key, sizeof(t.key)},
                 {"--pass", "BATON_PASS", t.passwd, sizeof(t.passwd)},
                 {"--peer-name", "BATON_PEER_NAME", t.peer_name, sizeof(t.peer_name)}};
    struct errbuf eb = {0};
    if (c->tls != NULL) return true;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *v = ctl_option(c, texts[i].flag);
        if (v == NULL) v = getenv(texts[i].env);
        if (v == NULL) v = "";
        if (snprintf(texts[i].to, texts[i].cap, "%s", v) >= (int)texts[i].cap) {
            ctl_fail(c, 2, "%s must have at most %zu bytes", texts[i].flag, texts[i].cap - 1);
            return false;
        }
    }
    if (tls_open(&c->tls, &t, &eb) == ERR_OK) return true;
    ctl_fail(c, 2, "%s", eb.text);
    return false;
}

/* ---- what it says */

const char *ctl_str(const struct json_value *o, const char *key) {
    const char *s = "";
    size_t n;
    json_get_str(o, key, &s, &n);
    return s;
}

long long ctl_num(const struct json_value *o, const char *key) {
    int64_t v = 0;
    json_get_i64(o, key, &v);
    return v;
}

double ctl_real(const struct json_value *o, const char *key) {
    double v = 0;
    json_get_f64(o, key, &v);
    return v;
}

const struct json_value *ctl_instance(const struct json_value *status, const char *name) {
    struct json_value *arr;
    if (json_get_arr(status, "instances", &arr) != JSON_OK) return NULL;
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        const struct json_value *o = json_arr_at(arr, i);
        char id[24];
        snprintf(id, sizeof(id), "%lld", ctl_num(o, "id"));
        if (strcmp(ctl_str(o, "name"), name) == 0 || strcmp(ctl_str(o, "address"), name) == 0 ||
            strcmp(id, name) == 0)
            return o;
    }
    return NULL;
}

struct json_value *ctl_status(const struct ctl *c) {
    struct ctl_answer a;
    struct json_value *root = NULL, *co, *arr;
    if (!ctl_ask(c, "GET", "/v2/status", NULL, &a)) return NULL;
    if (a.status != 200) {
        ctl_refused(c, &a);
    } else if (json_read(&root, a.body, a.len, NULL, NULL) != ERR_OK ||
               json_get_obj(root, "coordinator", &co) != JSON_OK ||
               json_get_arr(root, "instances", &arr) != JSON_OK) {
        ctl_fail(c, 1,
                 "the answer is not a cluster status (is this the coordinator's management port?)");
        json_put(root);
        root = NULL;
    }
    ctl_answer_free(&a);
    return root;
}

bool ctl_base_of(const struct ctl *c, const char *name, char base[CTL_BASE_BYTES]) {
    snprintf(base, CTL_BASE_BYTES, "%s", c->base);
    if (name == NULL) return true;
    struct json_value *status = ctl_status(c);
    if (status == NULL) return false;
    const struct json_value *o = ctl_instance(status, name);
    if (o != NULL)
        snprintf(base, CTL_BASE_BYTES, "%s://%s",
                 strncmp(c->base, "https://", 8) == 0 ? "https" : "http", ctl_str(o, "management"));
    else
        ctl_fail(c, 1, "no instance is called %s", name);
    json_put(status);
    return o != NULL;
}
