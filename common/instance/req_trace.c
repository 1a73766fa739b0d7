/* req_trace: an allow-list of headers to one line. */
#include "common/instance/req_trace.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "proto/api.h"

static bool is_loggable(const char *v) {
    for (; *v != 0; v++)
        if ((unsigned char)*v < 0x20 || (unsigned char)*v > 0x7e || *v == '"' || *v == '\\')
            return false;
    return true;
}

/* Appends ` name=value` in lower case and, where it has a space, quotes; nothing when there is no
 * room. */
static void put(char out[TRACE_BYTES_MAX + 1], const char *name, const char *value) {
    size_t n = strlen(out), room = TRACE_BYTES_MAX + 1 - n;
    const char *quote = strchr(value, ' ') != NULL ? "\"" : "";
    if (value[0] == 0 || !is_loggable(value)) return;
    int len = snprintf(out + n, room, "%s%s=%s%s%s", n > 0 ? " " : "", name, quote, value, quote);
    if (len < 0 || (size_t)len >= room) {
        out[n] = 0;
        return;
    }
    for (char *p = out + n; *p != '='; p++) *p = (char)tolower((unsigned char)*p);
}

char *req_trace_read(struct http_x *x) {
    char line[TRACE_BYTES_MAX + 1] = "";
    put(line, "request_id", http_x_request_id(x));
    for (const char *const *name = api_trace_headers; *name != NULL; name++) {
        const char *v = http_x_header(x, *name);
        if (v != NULL) put(line, *name, v);
    }
    return strdup(line);
}
