/* dispatch: from a request to its handler. */
#include "common/net/dispatch.h"

#include <stdlib.h>
#include <string.h>
#include "common/net/cors.h"

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

void dispatch_serve(const struct dispatch *d, unsigned planes, struct http_x *x) {
    struct route_match m;
    char model[MODEL_NAME_BYTES_MAX + 1], *path = strdup(http_x_path(x));
    cors_set(x, d->cors_origin);
    if (path == NULL) {
        d->reply_error(d->arg, x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    api_path_drop_version(path);
    const struct api_path *ap = infer_path(planes, path, model);
    if (ap != NULL && strcmp(http_x_method(x), "POST") == 0) {
        d->on_infer(d->arg, x, ap, model);
    } else if (ap != NULL) {
        reply_wrong_method(d, x, "POST");
    } else {
        router_find(&m, d->tables, planes, http_x_method(x), path);
        if (m.row != NULL) {
            m.row->fn(d->arg, x, &m.params);
        } else if (m.path_known) {
            reply_wrong_method(d, x, m.allow);
        } else {
            d->reply_error(d->arg, x, 404, d->not_found);
        }
    }
    free(path);
}

size_t dispatch_body_bytes_max(const struct dispatch *d, unsigned planes, const char *method,
                               const char *path) {
    size_t max = d->body_bytes_max;
    struct route_match m;
    char model[MODEL_NAME_BYTES_MAX + 1], *p = strdup(path);
    if (p == NULL) return 0;
    api_path_drop_version(p);
    if (infer_path(planes, p, model) == NULL) {
        router_find(&m, d->tables, planes, method, p);
        size_t row_max = m.row != NULL ? m.row->body_bytes_max : UNKNOWN_BODY_BYTES_MAX;
        if (row_max < max) max = row_max;
    }
    free(p);
    return max;
}

void dispatch_reply_too_large(const struct dispatch *d, struct http_x *x, size_t body_bytes_max) {
    char text[API_TOO_LARGE_BYTES];
    api_too_large_text(text, body_bytes_max);
    cors_set(x, d->cors_origin);
    d->reply_error(d->arg, x, 413, text);
}
