/* dispatch: from a request to its handler. */
#include "common/net/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/cors.h"
#include "common/net/near_path.h"

enum { UNKNOWN_BODY_BYTES_MAX = 1 << 20 };

static void reply_wrong_method(const struct dispatch *d, struct http_x *x, const char *allow) {
    if (strcmp(http_x_method(x), "OPTIONS") == 0) {
        cors_reply_options(x, d->cors_origin, allow);
        return;
    }
    http_x_set_header(x, "Allow", allow);
    d->reply_error(d->arg, x, 405, "The method is not allowed for this path.");
}

/* The inference row of a path on these planes, or NULL. */
static const struct api_path *infer_path(unsigned planes, const char *path,
                                         char model[MODEL_NAME_BYTES_MAX + 1]) {
    return (planes & PLANE_DATA) != 0 ? api_path_find(path, model) : NULL;
}

/* Probes have no key, a browser asks before it shows one, and how to ask is no secret. */
static bool is_open(const struct http_x *x) {
    static const char *const exact[] = {"/health",       "/v1/startup", "/v1/health",
                                        "/v1/readiness", "/docs",       "/openapi.json"};
    static const char *const below[] = {"/health/", "/v2/health/"};
    const char *path = http_x_path(x), *end = strrchr(path, '/');
    if (strcmp(http_x_method(x), "OPTIONS") == 0) return true;
    for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++)
        if (strcmp(path, exact[i]) == 0) return true;
    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++)
        if (strncmp(path, below[i], strlen(below[i])) == 0) return true;
    return strncmp(path, "/v2/models/", 11) == 0 && end != NULL && strcmp(end, "/ready") == 0;
}

/* tenant: set to that of the key it shows; NULL: the caller does not ask. */
static bool is_allowed(const struct dispatch *d, unsigned planes, const struct http_x *x,
                       char tenant[TENANT_BYTES_MAX + 1]) {
    return d->keys == NULL || (planes & PLANE_DATA) == 0 || is_open(x) ||
           api_keys_allow(d->keys, http_x_header(x, "Authorization"), tenant);
}

/* A client that will get 401 need not send its body. */
static bool on_wants_body(void *arg, const struct http_x *x) {
    const struct dispatch_listener *l = arg;
    return is_allowed(&l->d, l->planes, x, NULL);
}

/* The same for every daemon and errorStyle: a client's library looks for it. */
static void reply_unauthorized(struct http_x *x) {
    int status = 401;
    char *body = api_error_body(false, ERROR_STYLE_OPENAI, &status, NULL,
                                http_x_header(x, "Authorization") == NULL
                                    ? "No API key was given. Send it as Authorization: Bearer KEY."
                                    : "Incorrect API key provided.");
    http_x_set_header(x, "WWW-Authenticate", "Bearer");
    http_x_reply(x, status, "application/json", body != NULL ? body : "",
                 body != NULL ? strlen(body) : 0);
    free(body);
}

/* Says what is there instead. The path is repeated only when it can be printed. */
static void reply_unknown_path(const struct dispatch_listener *l, struct http_x *x,
                               const char *path) {
    const struct dispatch *d = &l->d;
    char near[NEAR_PATHS_TEXT_BYTES], text[NEAR_PATHS_TEXT_BYTES + 2 * NEAR_PATH_BYTES_MAX + 128];
    size_t n = 0;
    while (n <= NEAR_PATH_BYTES_MAX && path[n] > ' ' && path[n] < 0x7F) n++;
    bool shown = path[n] == '\0';
    if (d->not_found != NULL) {
        d->reply_unknown_path(d->arg, x, d->not_found);
        return;
    }
    bool some = near_paths(near, d->tables, l->planes, path) > 0;
    snprintf(text, sizeof(text), "The path%s%s does not exist%s%s.%s", shown ? " " : "",
             shown ? path : "", some ? "; near it: " : "", near,
             (l->planes & PLANE_DATA) != 0 ? " GET /docs shows all paths." : "");
    d->reply_unknown_path(d->arg, x, text);
}

static bool is_for_limited(const struct dispatch *d, const struct http_x *x, const char *path) {
    struct route_match m;
    router_find(&m, d->tables, PLANE_LIMITED, http_x_method(x), path);
    return m.row != NULL;
}

static void on_request(void *arg, struct http_x *x) {
    const struct dispatch_listener *l = arg;
    const struct dispatch *d = &l->d;
    struct route_match m;
    char model[MODEL_NAME_BYTES_MAX + 1], tenant[TENANT_BYTES_MAX + 1] = "";
    char *path = strdup(http_x_path(x));
    cors_set(x, d->cors_origin);
    http_x_set_header(x, "X-Request-Id", http_x_request_id(x));
    if (!is_allowed(d, l->planes, x, tenant)) {
        reply_unauthorized(x);
        free(path);
        return;
    }
    if (tenant[0] != '\0') http_x_set_tenant(x, tenant);
    if (path == NULL) {
        d->reply_error(d->arg, x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    api_path_drop_version(path);
    const struct api_path *ap = infer_path(l->planes, path, model);
    if (http_x_limited(x) && !is_for_limited(d, x, path)) {
        d->reply_error(d->arg, x, 403, "The certificate of this client may not do this.");
    } else if (ap != NULL && strcmp(http_x_method(x), "POST") == 0) {
        d->on_infer(d->arg, x, ap, model);
    } else if (ap != NULL) {
        reply_wrong_method(d, x, "POST");
    } else {
        router_find(&m, d->tables, l->planes, http_x_method(x), path);
        if (m.row != NULL) {
            m.row->fn(d->arg, x, &m.params);
        } else if (m.path_known) {
            reply_wrong_method(d, x, m.allow);
        } else {
            reply_unknown_path(l, x, path);
        }
    }
    free(path);
}

/* An unknown path may have a small body, so that it still gets its 404. */
static size_t on_head(void *arg, const char *method, const char *path) {
    const struct dispatch_listener *l = arg;
    size_t max = l->d.body_bytes_max;
    struct route_match m;
    char model[MODEL_NAME_BYTES_MAX + 1], *p = strdup(path);
    if (p == NULL) return 0;
    api_path_drop_version(p);
    if (infer_path(l->planes, p, model) == NULL) {
        router_find(&m, l->d.tables, l->planes, method, p);
        size_t row_max = m.row != NULL ? m.row->body_bytes_max : UNKNOWN_BODY_BYTES_MAX;
        if (row_max < max) max = row_max;
    }
    free(p);
    return max;
}

static void on_too_large(void *arg, struct http_x *x, size_t body_bytes_max) {
    const struct dispatch_listener *l = arg;
    char text[API_TOO_LARGE_BYTES];
    api_too_large_text(text, body_bytes_max);
    cors_set(x, l->d.cors_origin);
    http_x_set_header(x, "X-Request-Id", http_x_request_id(x));
    l->d.reply_error(l->d.arg, x, 413, text);
}

static void on_refused(void *arg, struct http_x *x, int status, const char *text) {
    const struct dispatch_listener *l = arg;
    cors_set(x, l->d.cors_origin);
    http_x_set_header(x, "X-Request-Id", http_x_request_id(x));
    if (status == 503) http_x_set_header(x, "Retry-After", "1");
    l->d.reply_error(l->d.arg, x, status, text);
}

enum err dispatch_listen(struct dispatch_listener *l, struct loop *loop, const struct dispatch *d,
                         unsigned planes, const struct http_server_opts *o, struct errbuf *eb) {
    struct http_server_opts with = *o;
    l->d = *d;
    l->planes = planes;
    with.body_bytes_max = on_head;
    with.wants_body = on_wants_body;
    with.on_too_large = on_too_large;
    with.on_refused = on_refused;
    with.on_request = on_request;
    with.arg = l;
    return http_server_open(&l->server, loop, &with, eb);
}
