/* near_path: edit distances of a path to every pattern that is served. */
#include "common/net/near_path.h"

#include <stdio.h>
#include <string.h>
#include "common/base/near_text.h"
#include "proto/api.h"

struct near {
    const char *method, *pattern;
    size_t distance;
};

struct search {
    const char *path;
    size_t path_len, far; /* distances from `far` on are not near */
    struct near best[NEAR_PATHS_MAX];
    size_t n;
};

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The pattern with what stands in the same place of path for {m} and {*}; false: it does not fit.
 */
static bool fill_pattern(char dst[NEAR_PATH_BYTES_MAX + 1], const char *pattern, const char *path) {
    size_t n = 0, literals = 0; /* of this segment, so far */
    while (*pattern != '\0') {
        bool rest = strncmp(pattern, "{*}", 3) == 0;
        if (rest || strncmp(pattern, "{m}", 3) == 0) {
            const char *from = path + least(literals, strcspn(path, "/"));
            size_t take = rest ? strlen(from) : strcspn(from, "/");
            if (take == 0 || n + take > NEAR_PATH_BYTES_MAX) return false;
            memcpy(dst + n, from, take);
            n += take;
            pattern += 3;
            continue;
        }
        if (n == NEAR_PATH_BYTES_MAX) return false;
        dst[n++] = *pattern;
        literals++;
        if (*pattern++ == '/') {
            path += strcspn(path, "/");
            path += *path == '/';
            literals = 0;
        }
    }
    dst[n] = '\0';
    return true;
}

/* Distances from it on are not near, of so many characters. */
static size_t far_of(size_t n) {
    return n < 5 ? 2 : n < 16 ? 4 : n / 4 + 1;
}

/* Characters of its own: what fills {m} and {*} is like the path by itself. */
static size_t literals_of(const char *pattern) {
    size_t n = 0;
    for (; *pattern != '\0'; pattern++, n++)
        if (*pattern == '{') {
            pattern += strlen("{m");
            n--;
        }
    return n;
}

static void consider(struct search *s, const char *method, const char *pattern) {
    char full[NEAR_PATH_BYTES_MAX + 1];
    if (strcmp(pattern, "/") == 0 || !fill_pattern(full, pattern, s->path)) return;
    size_t at, n = strlen(full), distance = near_distance(s->path, s->path_len, full, n);
    /* A path that leads to it: /v1/chat. */
    if (n > s->path_len && full[s->path_len] == '/' && strncmp(full, s->path, s->path_len) == 0)
        distance = least(distance, 1);
    if (distance >= least(s->far, far_of(literals_of(pattern)))) return;
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->best[i].pattern, pattern) == 0 && strcmp(s->best[i].method, method) == 0)
            return;
    for (at = s->n; at > 0 && s->best[at - 1].distance > distance; at--)
        if (at < NEAR_PATHS_MAX) s->best[at] = s->best[at - 1];
    if (at == NEAR_PATHS_MAX) return;
    s->best[at] = (struct near){method, pattern, distance};
    if (s->n < NEAR_PATHS_MAX) s->n++;
}

static size_t add(char *dst, size_t len, const char *s, size_t n) {
    if (len + n >= NEAR_PATHS_TEXT_BYTES) return len;
    memcpy(dst + len, s, n);
    dst[len + n] = '\0';
    return len + n;
}

static size_t add_path(char *dst, size_t len, const struct near *near) {
    const char *hole = strchr(near->pattern, '{');
    size_t head = hole != NULL ? (size_t)(hole - near->pattern) : strlen(near->pattern);
    if (len > 0) len = add(dst, len, ", ", 2);
    len = add(dst, len, near->method, strlen(near->method));
    len = add(dst, len, " ", 1);
    len = add(dst, len, near->pattern, head);
    if (hole == NULL) return len;
    len = add(dst, len, "...", 3);
    return add(dst, len, hole + 3, strlen(hole + 3));
}

size_t near_paths(char dst[NEAR_PATHS_TEXT_BYTES], const struct route *const *tables,
                  unsigned planes, const char *path) {
    struct search s = {.path = path, .path_len = strlen(path)};
    size_t len = 0;
    dst[0] = '\0';
    if (s.path_len < 2 || s.path_len > NEAR_PATH_BYTES_MAX) return 0;
    s.far = far_of(s.path_len);
    if ((planes & PLANE_DATA) != 0)
        for (const struct api_path *a = api_paths; a->path != NULL; a++)
            consider(&s, a->method, a->path);
    for (; *tables != NULL; tables++)
        for (const struct route *r = *tables; r->path != NULL; r++)
            if ((r->planes & planes) != 0) consider(&s, r->method, r->path);
    for (size_t i = 0; i < s.n; i++) len = add_path(dst, len, &s.best[i]);
    return s.n;
}
