#include "tools/load/load_sse.h"

#include <string.h>

void load_sse_free(struct load_sse *s) {
    buf_free(&s->line);
    buf_free(&s->data);
}

static bool end_event(struct load_sse *s) {
    if (!s->has_data) return true;
    buf_putc(&s->data, 0);
    const bool go_on = !s->data.failed && s->on_event(s->arg, s->data.data, s->data.len - 1);
    buf_clear(&s->data);
    s->has_data = false;
    return go_on;
}

static bool end_line(struct load_sse *s) {
    const char *p = s->line.data;
    size_t n = s->line.len;
    bool ok = true;
    if (n == 0) {
        ok = end_event(s);
    } else if (n >= 5 && memcmp(p, "data:", 5) == 0) {
        p += 5, n -= 5;
        if (n > 0 && *p == ' ') p++, n--;
        if (s->has_data) buf_putc(&s->data, '\n');
        buf_append(&s->data, p, n);
        s->has_data = true;
        ok = !s->data.failed && s->data.len <= LOAD_EVENT_BYTES_MAX;
    }
    buf_clear(&s->line);
    return ok;
}

bool load_sse_feed(struct load_sse *s, const char *p, size_t n) {
    while (n > 0) {
        if (s->after_cr && *p == '\n') {
            s->after_cr = false;
            p++, n--;
            continue;
        }
        s->after_cr = false;
        size_t len = 0;
        while (len < n && p[len] != '\n' && p[len] != '\r') len++;
        if (s->line.len + len > LOAD_EVENT_BYTES_MAX) return false;
        buf_append(&s->line, p, len);
        if (s->line.failed) return false;
        if (len == n) return true;
        s->after_cr = p[len] == '\r';
        p += len + 1, n -= len + 1;
        if (!end_line(s)) return false;
    }
    return true;
}
