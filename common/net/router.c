/* router: one walk over the rows, one walk over pattern and path per row. */
#include "common/net/router.h"

#include <string.h>

static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

/* Copies n bytes of s into dst; false when they do not fit or there are none. */
static bool bind(char *dst, size_t dst_bytes, const char *s, size_t n) {
    if (n == 0 || n >= dst_bytes) return false;
    memcpy(dst, s, n);
    dst[n] = '\0';
    return true;
}

static bool path_matches(const char *pattern, const char *path, struct route_params *p) {
    p->model[0] = '\0';
    p->rest[0] = '\0';
    while (*pattern != '\0') {
        if (strncmp(pattern, "{*}", 3) == 0)
            return bind(p->rest, sizeof(p->rest), path, strlen(path));
        if (strncmp(pattern, "{m}", 3) == 0) {
            size_t n = 0;
            while (name_char(path[n])) n++;
            if ((path[n] != '/' && path[n] != '\0') || !bind(p->model, sizeof(p->model), path, n))
                return false;
            pattern += 3;
            path += n;
            continue;
        }
        if (*pattern++ != *path++) return false;
    }
    return *path == '\0';
}

/* Adds a method to the list once. A list that is full stays as it is. */
static void allow_add(char *allow, size_t allow_bytes, const char *method) {
    size_t len = strlen(allow), n = strlen(method);
    for (const char *at = allow; (at = strstr(at, method)) != NULL; at += n)
        if ((at == allow || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0')) return;
    if (len + n + 3 > allow_bytes) return;
    if (len > 0) {
        memcpy(allow + len, ", ", 2);
        len += 2;
    }
    memcpy(allow + len, method, n + 1);
}

void router_find(struct route_match *out, const struct route *const *tables, unsigned planes,
                 const char *method, const char *path) {
    struct route_params p;
    memset(out, 0, sizeof(*out));
    for (; *tables != NULL; tables++) {
        for (const struct route *r = *tables; r->path != NULL; r++) {
            if ((r->planes & planes) == 0 || !path_matches(r->path, path, &p)) continue;
            bool get = strcmp(r->method, "GET") == 0;
            out->path_known = true;
            out->planes |= r->planes;
            allow_add(out->allow, sizeof(out->allow), r->method);
            if (get) allow_add(out->allow, sizeof(out->allow), "HEAD");
            if (out->row == NULL &&
                (strcmp(r->method, method) == 0 || (get && strcmp(method, "HEAD") == 0))) {
                out->row = r;
                out->params = p;
            }
        }
    }
}
