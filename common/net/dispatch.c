/* dispatch: from a request to its handler. */
#include "common/net/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "common/base/budget.h"
#include "common/net/cors.h"
#include "common/net/grpc_many.h"
#include "common/net/near_path.h"
#include "common/net/origin.h"
#include "common/net/web_pages.h"
#include "proto/api.h"
#include "proto/grpc.h"
#include "proto/tensors.h"
#include "proto/pb.h"

enum { UNKNOWN_BODY_BYTES_MAX = 1 << 20 };

/* The request's id, by the name that clients of its family read. */
static void set_id(struct http_x *x) {
    http_x_set_header(x, "X-Request-Id", http_x_request_id(x));
    if (api_path_errors(http_x_path(x)) == API_ERRORS_ANTHROPIC ||
        http_x_header(x, ANTHROPIC_HEADER) != NULL) {
        http_x_set_header(x, "request-id", http_x_request_id(x));
        http_x_name_errors(x);
    }
}

static void reply_wrong_method(const struct dispatch *d, struct http_x *x, const char *allow) {
    if (strcmp(http_x_method(x), "OPTIONS") == 0) {
        cors_reply_options(x, d->cors_origin, allow);
        return;
    }
    http_x_set_header(x, "Allow", allow);
    d->reply_error(d->arg, x, 405, "The method is not allowed for this path.");
}

/* Where a request goes: found once, so that what is judged is what is served. */
struct target {
    char *path;                 /* without a version; the caller frees it */
    const struct api_path *row; /* of the user plane; NULL: m has it, if anything */
    char model[MODEL_NAME_BYTES_MAX + 1];
    char version[API_VERSION_BYTES]; /* that the path names; "": none */
    struct route_match m;
    char allow[API_ALLOW_BYTES]; /* methods of a path whose row is another method's */
};

/* "/v1/models/" is "/v1/models"; methods of gRPC have one name. */
static void drop_slash(char *path) {
    const size_t n = strlen(path);
    if (n <= 1 || path[n - 1] != '/' || path[n - 2] == '/') return;
    path[n - 1] = '\0';
    if (grpc_is_path(path)) path[n - 1] = '/';
}

static bool find_target(struct target *t, const struct dispatch_listener *l, const char *method,
                        const char *path) {
    memset(t, 0, sizeof(*t));
    t->path = strdup(path);
    if (t->path == NULL) return false;
    drop_slash(t->path);
    api_path_drop_version(t->path, t->version);
    bool data = (l->planes & PLANE_DATA) != 0;
    if (data) t->row = api_path_find(method, t->path, t->model);
    if (t->row != NULL) return true;
    if (data) api_path_methods(t->allow, t->path);
    router_find(&t->m, l->d.tables, l->planes, method, t->path);
    return true;
}

/* Served for clients; else only for those who run the cluster. */
static bool is_for_clients(const struct dispatch_listener *l, const struct target *t) {
    return (l->planes & PLANE_DATA) != 0 && (!t->m.path_known || (t->m.planes & PLANE_DATA) != 0);
}

/* Probes have no key, a browser asks before it shows one, and how to ask is no secret. */
static bool is_open(const struct target *t, const struct http_x *x) {
    return (t->m.planes & PLANE_OPEN) != 0 || (t->row != NULL && api_is_open(t->row)) ||
           strcmp(http_x_method(x), "OPTIONS") == 0;
}

/* The key of clients that have a header of their own for it; NULL: there is none. */
static const char *shown_key(const struct http_x *x) {
    const char *key = http_x_header(x, "x-api-key");
    return key != NULL ? key : http_x_header(x, "api-key");
}

/* The first of Authorization, x-api-key and api-key that is there decides. */
static bool shows_key(struct api_keys *keys, const struct http_x *x,
                      char tenant[TENANT_BYTES_MAX + 1]) {
    const char *authorization = http_x_header(x, "Authorization"), *key = shown_key(x);
    if (authorization != NULL || key == NULL) return api_keys_allow(keys, authorization, tenant);
    return api_keys_allow_key(keys, key, tenant);
}

/* tenant: set to that of the key it shows; NULL: the caller does not ask. */
static bool is_allowed(const struct dispatch_listener *l, const struct target *t,
                       const struct http_x *x, char tenant[TENANT_BYTES_MAX + 1]) {
    const struct dispatch *d = &l->d;
    return d->keys == NULL || (l->planes & PLANE_DATA) == 0 || is_open(t, x) ||
           shows_key(d->keys, x, tenant);
}

/* A link that somebody followed: a whole window of its own, which the other site cannot look into.
 */
static bool is_link(const struct target *t, const struct http_x *x) {
    const char *mode = http_x_header(x, "Sec-Fetch-Mode"),
               *dest = http_x_header(x, "Sec-Fetch-Dest");
    return t->m.row != NULL && (t->m.row->planes & PLANE_LINKED) != 0 && mode != NULL &&
           dest != NULL && strcmp(mode, "navigate") == 0 && strcmp(dest, "document") == 0;
}

/* The header by which a browser's page shows itself on a plane that is none of its business; NULL:
 * there is none. */
static const char *foreign_header(const struct dispatch_listener *l, const struct target *t,
                                  const struct http_x *x) {
    const char *names = l->d.management_hosts, *host = http_x_header(x, "Host"),
               *origin = http_x_header(x, "Origin"), *site = http_x_header(x, "Sec-Fetch-Site");
    if (names == NULL || is_for_clients(l, t)) return NULL;
    if (host != NULL && !l->has_tls && !origin_host_ok(host, names)) return "Host";
    if (origin != NULL) return origin_ok(origin, names) ? NULL : "Origin";
    /* An image or a form of another site has no Origin. */
    return site != NULL && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0 &&
                   !is_link(t, x)
               ? "Sec-Fetch-Site"
               : NULL;
}

/* A client that will be refused need not send its body. */
static bool on_wants_body(void *arg, const struct http_x *x) {
    const struct dispatch_listener *l = arg;
    struct target t;
    /* Without memory to see, it sends it: a handler takes what has no body for empty. */
    bool wants = !find_target(&t, l, http_x_method(x), http_x_path(x)) ||
                 (foreign_header(l, &t, x) == NULL && is_allowed(l, &t, x, NULL));
    free(t.path);
    return wants;
}

static bool is_for_limited(const struct target *t) {
    return t->m.row != NULL && (t->m.row->planes & PLANE_LIMITED) != 0;
}

static void reply_foreign(const struct dispatch *d, struct http_x *x, const char *header) {
    char text[320];
    budget_refused(d->budget, BUDGET_FOREIGN_ORIGIN);
    snprintf(text, sizeof(text),
             "This plane is for IP addresses, localhost and the names of managementHosts: %s "
             "\"%.128s\" is none of them.",
             header, http_x_header(x, header));
    d->reply_error(d->arg, x, 403, text);
}

/* The same for every daemon: a client's library looks for it, in the shape of its family; in the
 * reference's manner its families have OpenAI's. */
static void reply_unauthorized(const struct dispatch *d, struct http_x *x) {
    int status = 401;
    const char *text = http_x_header(x, "Authorization") == NULL && shown_key(x) == NULL
                           ? "No API key was given. Send it as Authorization: Bearer KEY."
                           : "Incorrect API key provided.";
    char *body =
        api_error_body(api_path_errors(http_x_path(x)), d->error_style, &status, text, NULL, NULL);
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

/* Tensors behind the JSON are for /infer; generate has texts, and the header is wrong
 * (inference-api 16.4). True: answered. */
static bool refuse_binary(const struct dispatch *d, struct http_x *x, const struct api_path *path) {
    char text[160];
    if (path->api != API_TRITON_TEXT || http_x_header(x, TENSORS_HEADER) == NULL) return false;
    snprintf(text, sizeof(text),
             "Failed to parse request context to json: %s is for the tensors of /infer, "
             "this path has texts",
             TENSORS_HEADER);
    d->reply_error(d->arg, x, 422, text);
    return true;
}

/* Triton's bodies come as they are (kserve-runtimes 8.4, 10.1). True: answered. */
static bool refuse_encoding(const struct dispatch *d, struct http_x *x,
                            const struct api_path *path) {
    const char *encoding = http_x_header(x, "Content-Encoding");
    if (path->api != API_TRITON_TEXT && path->frames != API_FRAMES_TENSORS) return false;
    if (encoding == NULL || encoding[0] == '\0' || strcasecmp(encoding, "identity") == 0)
        return false;
    d->reply_error(d->arg, x, 400, "Unsupported content-encoding, only 'identity' is supported.");
    return true;
}

/* What asks about a version is told that it is not there (kserve-runtimes 8.6); what wants work
 * done takes any, as clients of the reference send it (inference-api 1). True: answered. */
static bool refuse_version(const struct dispatch *d, struct http_x *x, const struct target *t) {
    const char *model = t->row != NULL ? t->model : t->m.params.model;
    char text[MODEL_NAME_BYTES_MAX + API_VERSION_BYTES + 64];
    bool shown = true;
    if (api_version_is_served(t->version) || strcmp(http_x_method(x), "POST") == 0) return false;
    for (const char *s = t->version; *s != '\0'; s++) shown = shown && *s > ' ' && *s < 0x7F;
    snprintf(text, sizeof(text), "Request for unknown model: '%s' version%s%s is not found", model,
             shown ? " " : "", shown ? t->version : "");
    d->reply_error(d->arg, x, 404, text);
    return true;
}

/* A coordinator passes a call on as an ordinary request (proto/grpc.h). */
static bool is_passed_on(const struct dispatch *d, const struct http_x *x) {
    const char *type = http_x_header(x, "Content-Type");
    return d->passed_on && type != NULL && strcmp(type, GRPC_INSIDE_TYPE) == 0;
}

static void reply_text(struct http_x *x, int status, const char *text) {
    http_x_reply(x, status, "text/plain; charset=utf-8", text, strlen(text));
}

static void reply_unknown_method(struct http_x *x) {
    const char *path = http_x_path(x), *slash = grpc_is_path(path) ? strrchr(path, '/') : NULL;
    char text[512];
    if (slash == NULL)
        snprintf(text, sizeof(text), "%.200s is no method of gRPC", path);
    else
        snprintf(text, sizeof(text), "unknown method %.128s for service %.*s", slash + 1,
                 (int)(slash - path < 200 ? slash - path - 1 : 200), path + 1);
    reply_text(x, 501, text);
}

/* Methods of gRPC are for calls, all else is not. True: x is answered. */
static bool refuse_framing(const struct dispatch *d, struct http_x *x, const struct target *t) {
    const bool method = t->row != NULL ? t->row->frames == API_FRAMES_GRPC
                                       : (t->m.row != NULL && (t->m.row->planes & PLANE_GRPC) != 0);
    if (http_x_is_grpc(x)) {
        if (method) return false;
        reply_unknown_method(x);
        return true;
    }
    if (!method || is_passed_on(d, x)) return false;
    reply_text(x, 415, "This is a method of gRPC: Content-Type must be " GRPC_TYPE ".\r\n");
    return true;
}

/* A type of body that the path does not read. True: x is answered. */
static bool refuse_type(const struct dispatch *d, struct http_x *x, const struct api_path *path) {
    const char *type = http_x_header(x, "Content-Type");
    char text[160];
    if (path->frames == API_FRAMES_GRPC || api_takes_type(path, type)) return false;
    if (path->json_only)
        snprintf(text, sizeof(text), "Unsupported Media Type: Only 'application/json' is allowed");
    else
        snprintf(text, sizeof(text), "Unsupported media type: %.100s.", type);
    d->reply_error(d->arg, x, 415, text);
    return true;
}

/* Of a path whose bodies are another's: the row of that. NULL: x is answered. */
static const struct api_path *row_of(const struct dispatch *d, struct http_x *x,
                                     const struct api_path *path) {
    size_t n;
    char text[192];
    if (path->work != API_BY_BODY) return path;
    const char *body = http_x_body(x, &n);
    const struct api_path *row = api_path_by_body(body, n);
    if (row != NULL) return row;
    snprintf(text, sizeof(text), "the body must be a JSON object with one of %s",
             api_body_members());
    d->reply_error(d->arg, x, 422, text);
    return NULL;
}

/* ---- calls whose clients stream too */

enum { INFER_ID = 3, STREAM_TEXT = 1, STREAM_ANSWER = 2 }; /* fields of open_inference.proto */
enum { INFER_ID_BYTES_MAX = 256 };

static void put_field(struct buf *out, unsigned number, const void *p, size_t n) {
    unsigned char head[2 * PB_VARINT_BYTES];
    size_t n_head = pb_put_varint(head, number << 3 | PB_BYTES);
    n_head += pb_put_varint(head + n_head, n);
    buf_append(out, head, n_head);
    buf_append(out, p, n);
}

/* Nobody has read the message: what is no text would make the answer unreadable. */
static bool id_ok(const struct pb_field *id) {
    for (size_t i = 0; i < id->n; i++)
        if (((const unsigned char *)id->bytes)[i] >= 0x80) return false;
    return id->n > 0 && id->n <= INFER_ID_BYTES_MAX;
}

/* What inference.GRPCInferenceService says of a request of a stream that failed: a
 * ModelStreamInferResponse with the text, and an answer that has the id of the request alone, where
 * that is ASCII (kserve-runtimes 11.1). */
static void put_stream_failure(struct buf *out, const char *request, size_t n, const char *text,
                               size_t n_text) {
    unsigned char head[GRPC_HEAD_BYTES];
    struct pb_reader r = pb_reader(request, n);
    struct pb_field f, id = {0};
    struct buf message = BUF_INIT, answer = BUF_INIT;
    while (pb_next(&r, &f))
        if (f.number == INFER_ID && f.wire == PB_BYTES) id = f;
    if (id_ok(&id)) put_field(&answer, INFER_ID, id.bytes, id.n);
    put_field(&message, STREAM_TEXT, text, n_text);
    put_field(&message, STREAM_ANSWER, answer.data, answer.len);
    grpc_head_put(head, (uint32_t)message.len);
    buf_append(out, head, sizeof(head));
    buf_append(out, message.data, message.len);
    out->failed = out->failed || message.failed || answer.failed;
    buf_free(&message);
    buf_free(&answer);
}

static bool has_many(const struct target *t) {
    if (t->row != NULL) return t->row->stream == API_STREAM_MANY;
    return t->m.row != NULL && (t->m.row->planes & PLANE_MANY) != 0;
}

static bool on_reads_body(void *arg, const struct http_x *x) {
    struct target t;
    const bool many = find_target(&t, arg, http_x_method(x), http_x_path(x)) && has_many(&t);
    free(t.path);
    return many;
}

static void serve_path(void *arg, struct http_x *one, const void *row) {
    const struct dispatch_listener *l = arg;
    l->d.on_path(l->d.arg, one, row, "");
}

static void serve_route(void *arg, struct http_x *one, const void *row) {
    const struct dispatch_listener *l = arg;
    const struct route_params none = {0};
    ((const struct route *)row)->fn(l->d.arg, one, &none);
}

static void serve_many(const struct dispatch_listener *l, struct http_x *x,
                       const struct target *t) {
    const bool path = t->row != NULL;
    const struct grpc_many how = {
        .serve = path ? serve_path : serve_route,
        .arg = (void *)(uintptr_t)l,
        .row = path ? (const void *)t->row : (const void *)t->m.row,
        .put_failure = path ? put_stream_failure : NULL,
    };
    grpc_many_start(x, &how);
}

static void serve(const struct dispatch_listener *l, struct http_x *x, const struct target *t) {
    const struct dispatch *d = &l->d;
    char allow[sizeof(t->allow) + sizeof(t->m.allow) + 2];
    if (refuse_framing(d, x, t)) return;
    if ((t->row != NULL || t->m.row != NULL) && d->refuses != NULL &&
        d->refuses(d->arg, x, t->row != NULL ? NULL : t->m.row))
        return;
    if (http_x_is_grpc(x) && has_many(t)) {
        serve_many(l, x, t);
    } else if ((t->row != NULL || t->m.row != NULL) && refuse_version(d, x, t)) {
        /* answered */
    } else if (t->row != NULL) {
        const struct api_path *row = refuse_type(d, x, t->row) ? NULL : row_of(d, x, t->row);
        if (row != NULL && !refuse_binary(d, x, row) && !refuse_encoding(d, x, row))
            d->on_path(d->arg, x, row, t->model);
    } else if (t->m.row != NULL) {
        t->m.row->fn(d->arg, x, &t->m.params);
    } else if (t->m.path_known || t->allow[0] != '\0') {
        bool both = t->m.allow[0] != '\0' && t->allow[0] != '\0';
        snprintf(allow, sizeof(allow), "%s%s%s", t->allow, both ? ", " : "", t->m.allow);
        reply_wrong_method(d, x, allow);
    } else {
        reply_unknown_path(l, x, t->path);
    }
}

/* True: a browser is on its way to the page of this plane. */
static bool lead_to_page(const struct dispatch_listener *l, struct http_x *x) {
    const char *page = (l->planes & PLANE_DATA) != 0 ? l->d.data_page : l->d.page;
    const bool has_it = (l->planes & (PLANE_DATA | PLANE_MGMT)) != 0;
    if (page == NULL || !has_it || !web_wants_page(x)) return false;
    http_x_set_header(x, "Location", page);
    http_x_set_header(x, "Vary", "Accept");
    http_x_reply(x, 302, NULL, "", 0);
    return true;
}

static void on_request(void *arg, struct http_x *x) {
    const struct dispatch_listener *l = arg;
    const struct dispatch *d = &l->d;
    struct target t;
    char tenant[TENANT_BYTES_MAX + 1] = "";
    cors_set(x, d->cors_origin);
    set_id(x);
    if (!find_target(&t, l, http_x_method(x), http_x_path(x))) {
        d->reply_error(d->arg, x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    const char *foreign = foreign_header(l, &t, x);
    if (foreign != NULL) {
        reply_foreign(d, x, foreign);
    } else if (lead_to_page(l, x)) {
        /* answered */
    } else if (!is_allowed(l, &t, x, tenant)) {
        reply_unauthorized(d, x);
    } else if (http_x_limited(x) && !is_for_limited(&t)) {
        d->reply_error(d->arg, x, 403, "The certificate of this client may not do this.");
    } else {
        if (tenant[0] != '\0') http_x_set_tenant(x, tenant);
        serve(l, x, &t);
    }
    free(t.path);
}

/* An unknown path may have a small body, so that it still gets its 404. */
static size_t on_head(void *arg, const char *method, const char *path) {
    const struct dispatch_listener *l = arg;
    size_t max = l->d.body_bytes_max;
    struct target t;
    if (!find_target(&t, l, method, path)) return max; /* no memory: said when it is all there */
    if (t.row != NULL) {
        if (api_is_infer(t.row) || t.row->chained) max += l->d.beside_bytes_max;
        if (strcmp(t.row->method, "GET") == 0) max = 0;
    } else {
        size_t row_max = t.m.row != NULL ? t.m.row->body_bytes_max : UNKNOWN_BODY_BYTES_MAX;
        if (row_max < max) max = row_max;
    }
    free(t.path);
    return max;
}

static void on_too_large(void *arg, struct http_x *x, size_t body_bytes_max) {
    const struct dispatch_listener *l = arg;
    char text[API_TOO_LARGE_BYTES];
    if (body_bytes_max > l->d.body_bytes_max) body_bytes_max = l->d.body_bytes_max;
    api_too_large_text(text, body_bytes_max);
    cors_set(x, l->d.cors_origin);
    set_id(x);
    l->d.reply_error(l->d.arg, x, 413, text);
}

static void on_refused(void *arg, struct http_x *x, int status, const char *text) {
    const struct dispatch_listener *l = arg;
    cors_set(x, l->d.cors_origin);
    set_id(x);
    if (status == 503) http_x_set_header(x, "Retry-After", "1");
    l->d.reply_error(l->d.arg, x, status, text);
}

enum err dispatch_listen(struct dispatch_listener *l, struct loop *loop, const struct dispatch *d,
                         unsigned planes, const struct http_server_opts *o, struct errbuf *eb) {
    struct http_server_opts with = *o;
    l->d = *d;
    l->planes = planes;
    l->has_tls = o->tls != NULL;
    with.body_bytes_max = on_head;
    with.wants_body = on_wants_body;
    with.on_too_large = on_too_large;
    with.on_refused = on_refused;
    with.on_request = on_request;
    with.reads_body = on_reads_body;
    with.arg = l;
    return http_server_open(&l->server, loop, &with, eb);
}
