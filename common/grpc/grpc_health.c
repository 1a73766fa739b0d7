/* grpc_health: three methods; watchers are looked at while there are any. */
#include "common/grpc/grpc_health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/grpc/grpc_json.h"
#include "proto/grpc.h"

/* Watchers need no key and stay as long as they like: they may not take the streams of others. */
enum { LOOK_MS = 200, WATCHERS_MAX = 256 };

struct watcher {
    struct watcher *next, **at;
    struct grpc_health *h;
    struct http_x *x;
    const struct grpc_message *message;
    bool known; /* the service is one of ours */
    bool said;  /* as serving */
};

struct grpc_health {
    struct loop *loop;
    bool (*serving)(const void *arg);
    bool (*has_model)(const void *arg, const char *name);
    const void *arg;
    struct watcher *first;
    unsigned n_watchers;
    struct loop_alarm look;
};

/* "" is all of them. */
static bool is_service(const char *name, size_t n) {
    if (n == 0) return true;
    for (const char *const *s = grpc_services; *s != NULL; s++)
        if (strlen(*s) == n && memcmp(*s, name, n) == 0) return true;
    return false;
}

static const char *word(bool serving) {
    return serving ? "{\"status\":\"SERVING\"}" : "{\"status\":\"NOT_SERVING\"}";
}

static bool serving(const struct grpc_health *h) {
    return h->serving(h->arg);
}

/* ---- Watch */

static void say(struct watcher *w, const char *json) {
    struct buf out = BUF_INIT;
    grpc_put_text(&out, w->message, json, strlen(json));
    http_x_stream_write(w->x, out.data, out.failed ? 0 : out.len);
    buf_free(&out);
}

static void watcher_free(struct watcher *w) {
    *w->at = w->next;
    if (w->next != NULL) w->next->at = w->at;
    w->h->n_watchers--;
    if (w->h->first == NULL) loop_alarm_stop(&w->h->look);
    free(w);
}

static void on_gone(void *arg) {
    watcher_free(arg);
}

static void on_look(void *arg) {
    struct grpc_health *h = arg;
    const bool now = serving(h);
    for (struct watcher *w = h->first; w != NULL; w = w->next) {
        if (!w->known || w->said == now) continue;
        w->said = now;
        say(w, word(now));
    }
    loop_alarm_set(h->loop, &h->look, LOOK_MS, on_look, h);
}

static void watch(struct grpc_health *h, struct http_x *x, const struct grpc_method *m,
                  bool known) {
    if (h->n_watchers == WATCHERS_MAX) {
        char text[64];
        const int n = snprintf(text, sizeof(text), "there are %d watchers already, no more than %d",
                               WATCHERS_MAX, WATCHERS_MAX);
        http_x_reply(x, 429, NULL, text, (size_t)n);
        return;
    }
    struct watcher *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        http_x_reply(x, 503, NULL, "out of memory", 13);
        return;
    }
    *w = (struct watcher){.next = h->first,
                          .at = &h->first,
                          .h = h,
                          .x = x,
                          .message = m->out,
                          .known = known,
                          .said = serving(h)};
    if (h->first == NULL) loop_alarm_set(h->loop, &h->look, LOOK_MS, on_look, h);
    if (w->next != NULL) w->next->at = &w->next;
    h->first = w;
    h->n_watchers++;
    http_x_on_close(x, on_gone, w);
    http_x_stream_begin(x, 200, GRPC_TYPE);
    say(w, known ? word(w->said) : "{\"status\":\"SERVICE_UNKNOWN\"}");
}

/* ---- Check, List */

static void reply(struct http_x *x, const struct grpc_method *m, const char *json, size_t n) {
    struct buf out = BUF_INIT;
    grpc_put_text(&out, m->out, json, n);
    if (out.failed)
        http_x_reply(x, 503, NULL, "out of memory", 13);
    else
        http_x_reply(x, 200, GRPC_TYPE, out.data, out.len);
    buf_free(&out);
}

static void list(const struct grpc_health *h, struct http_x *x, const struct grpc_method *m) {
    const char *of = word(serving(h));
    struct buf json = BUF_INIT;
    buf_printf(&json, "{\"statuses\":{\"\":%s", of);
    for (const char *const *s = grpc_services; *s != NULL; s++)
        buf_printf(&json, ",\"%s\":%s", *s, of);
    buf_puts(&json, "}}");
    reply(x, m, json.data != NULL ? json.data : "", json.len);
    buf_free(&json);
}

/* The model, in its one version. */
static bool names_model(const struct grpc_health *h, const struct json_value *body) {
    const char *name = "", *version = "";
    size_t n = 0, n_version = 0;
    json_get_str(body, "name", &name, &n);
    json_get_str(body, "version", &version, &n_version);
    return (n_version == 0 || (n_version == 1 && version[0] == '1')) && strlen(name) == n &&
           h->has_model(h->arg, name);
}

/* ServerLive, ServerReady and ModelReady of inference.GRPCInferenceService. */
static void probe(const struct grpc_health *h, struct http_x *x, const struct grpc_method *m,
                  const struct json_value *body) {
    const char *live = "{\"live\":true}";
    const bool model = strstr(m->path, "/ModelReady") != NULL;
    const char *ready = serving(h) && (!model || names_model(h, body)) ? "{\"ready\":true}" : "{}";
    const char *json = strstr(m->path, "/ServerLive") != NULL ? live : ready;
    reply(x, m, json, strlen(json));
}

static void serve(struct grpc_health *h, struct http_x *x, const struct grpc_method *m,
                  const struct json_value *body) {
    const char *name = "";
    size_t n = 0;
    char text[160];
    if (strncmp(m->path, GRPC_PROBE_PREFIX, sizeof(GRPC_PROBE_PREFIX) - 1) == 0) {
        probe(h, x, m, body);
        return;
    }
    json_get_str(body, "service", &name, &n);
    const bool known = is_service(name, n);
    if (m->server_streams) {
        watch(h, x, m, known);
    } else if (strstr(m->path, "/List") != NULL) {
        list(h, x, m);
    } else if (known) {
        reply(x, m, word(serving(h)), strlen(word(serving(h))));
    } else {
        const int len = snprintf(text, sizeof(text), "there is no service %.100s", name);
        http_x_reply(x, 404, NULL, text, (size_t)len);
    }
}

void grpc_health_serve(struct grpc_health *h, struct http_x *x) {
    const struct grpc_method *m = grpc_method_find(http_x_path(x));
    struct grpc_body b = {.encoding = http_x_header(x, GRPC_ENCODING_HEADER),
                          .message_bytes_max = GRPC_HEALTH_BODY_BYTES};
    struct buf text = BUF_INIT;
    struct json_value *body = NULL;
    struct errbuf eb = {0};
    int status = 501;
    if (m == NULL) {
        err_set(&eb, ERR_NOT_FOUND, "the service has no such method");
    } else {
        b.message = m->in;
        b.p = http_x_body(x, &b.n);
    }
    if (m == NULL || !grpc_body_read(&b, NULL, &text, &body, &status, &eb))
        http_x_reply(x, status, NULL, eb.text, strlen(eb.text));
    else
        serve(h, x, m, body);
    json_put(body);
    buf_free(&text);
}

/* ---- life */

enum err grpc_health_create(struct grpc_health **out, struct loop *loop,
                            bool (*serves)(const void *arg),
                            bool (*has_model)(const void *arg, const char *name), const void *arg) {
    struct grpc_health *h = calloc(1, sizeof(*h));
    *out = h;
    if (h == NULL) return ERR_NO_MEMORY;
    *h = (struct grpc_health){.loop = loop, .serving = serves, .has_model = has_model, .arg = arg};
    return ERR_OK;
}

void grpc_health_destroy(struct grpc_health **hp) {
    struct grpc_health *h = *hp;
    if (h == NULL) return;
    while (h->first != NULL) {
        struct http_x *x = h->first->x;
        http_x_on_close(x, NULL, NULL);
        watcher_free(h->first);
        http_x_stream_fail(x, 503, "the service has been stopped", 28);
    }
    loop_alarm_stop(&h->look);
    free(h);
    *hp = NULL;
}
