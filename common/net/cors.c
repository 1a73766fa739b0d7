/* cors: headers, no decisions: what an origin may do is for the browser to enforce. */
#include "common/net/cors.h"

#include <stdio.h>
#include <string.h>

void cors_set(struct http_x *x, const char *origin) {
    if (origin[0] == '\0') return;
    http_x_set_header(x, "Access-Control-Allow-Origin", origin);
    http_x_set_header(x, "Access-Control-Expose-Headers", "RequestUUID, Retry-After, X-Request-Id");
    if (strcmp(origin, "*") != 0) http_x_set_header(x, "Vary", "Origin");
}

void cors_reply_options(struct http_x *x, const char *origin, const char *allow) {
    char methods[96];
    snprintf(methods, sizeof(methods), "%s, OPTIONS", allow);
    http_x_set_header(x, "Allow", methods);
    if (origin[0] != '\0') {
        const char *asked = http_x_header(x, "Access-Control-Request-Headers");
        http_x_set_header(x, "Access-Control-Allow-Methods", methods);
        http_x_set_header(x, "Access-Control-Allow-Headers",
                          asked != NULL ? asked : "Authorization, Content-Type, X-Request-Id");
        http_x_set_header(x, "Access-Control-Max-Age", "86400");
    }
    http_x_reply(x, 204, NULL, "", 0);
}
