/* cors: headers, no decisions: what an origin may do is for the browser to enforce. */
#include "common/net/cors.h"

#include <stdio.h>
#include <string.h>

/* The next entry of the list; NULL: none is left. */
static const char *next_entry(const char **list, size_t *n) {
    const char *entry = *list + strspn(*list, " ");
    *n = strcspn(entry, " ");
    *list = entry + *n;
    return *n > 0 ? entry : NULL;
}

static bool any_port(const char *entry, size_t n) {
    return n > 2 && memcmp(entry + n - 2, ":*", 2) == 0;
}

/* "" or a port: ":8080". */
static bool port_ok(const char *s, size_t n) {
    return n == 0 || (n >= 2 && n <= 6 && s[0] == ':' && strspn(s + 1, "0123456789") >= n - 1);
}

/* scheme://host, then nothing, a port or ":*". Browsers write them in lower case. */
static bool entry_ok(const char *entry, size_t n) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    if (n == 1 && entry[0] == '*') return true;
    bool any = any_port(entry, n);
    if (any) n -= 2;
    size_t scheme = strspn(entry, letters);
    if (scheme == 0 || scheme + 3 >= n || memcmp(entry + scheme, "://", 3) != 0) return false;
    const char *host = entry + scheme + 3;
    size_t left = n - scheme - 3, len = 0;
    if (host[0] == '[') {
        len = strspn(host + 1, "0123456789abcdef:.") + 2;
        if (len > left || len < 4 || host[len - 1] != ']') return false;
    } else {
        while (len < left && host[len] != '*' &&
               (strchr(letters, host[len]) != NULL || strchr("0123456789.-_", host[len]) != NULL))
            len++;
    }
    return len > 0 && (any ? len == left : port_ok(host + len, left - len));
}

bool cors_origins_ok(const char *origins) {
    const char *entry;
    size_t n;
    while ((entry = next_entry(&origins, &n)) != NULL)
        if (!entry_ok(entry, n)) return false;
    return true;
}

bool cors_allows(const char *origins, const char *origin) {
    const char *entry;
    size_t n, len = strlen(origin);
    while ((entry = next_entry(&origins, &n)) != NULL) {
        if (n == 1 && entry[0] == '*') return true;
        if (n == len && memcmp(entry, origin, n) == 0) return true;
        if (any_port(entry, n) && len >= n - 2 && memcmp(entry, origin, n - 2) == 0 &&
            port_ok(origin + n - 2, len - (n - 2)))
            return true;
    }
    return false;
}

void cors_set(struct http_x *x, const char *origins) {
    const char *origin = http_x_header(x, "Origin");
    bool all = strcmp(origins, "*") == 0;
    if (origins[0] == '\0') return;
    if (!all) http_x_set_header(x, "Vary", "Origin");
    if (!all && (origin == NULL || !cors_allows(origins, origin))) return;
    http_x_set_header(x, "Access-Control-Allow-Origin", all ? "*" : origin);
    http_x_set_header(x, "Access-Control-Expose-Headers", "RequestUUID, Retry-After, X-Request-Id");
}

void cors_reply_options(struct http_x *x, const char *origins, const char *allow) {
    const char *origin = http_x_header(x, "Origin");
    char methods[96];
    snprintf(methods, sizeof(methods), "%s, OPTIONS", allow);
    http_x_set_header(x, "Allow", methods);
    if (cors_allows(origins, origin != NULL ? origin : "")) {
        const char *asked = http_x_header(x, "Access-Control-Request-Headers");
        http_x_set_header(x, "Access-Control-Allow-Methods", methods);
        http_x_set_header(x, "Access-Control-Allow-Headers",
                          asked != NULL ? asked : "Authorization, Content-Type, X-Request-Id");
        http_x_set_header(x, "Access-Control-Max-Age", "86400");
    }
    http_x_reply(x, 204, NULL, "", 0);
}
