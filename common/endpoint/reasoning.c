/* reasoning: one byte at a time, so how the text is cut cannot matter. */
#include "common/endpoint/reasoning.h"

#include <string.h>

void reasoning_init(struct reasoning *r, bool open) {
    *r = (struct reasoning){.state = open ? REASONING_THINKING : REASONING_START, .first = open};
}

void reasoning_fini(struct reasoning *r) {
    buf_free(&r->held);
    buf_free(&r->text);
}

static void release(struct reasoning *r, struct buf *to) {
    if (r->held.len > 0) buf_append(to, r->held.data, r->held.len);
    buf_clear(&r->held);
    r->matched = 0;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Follows a tag that stands at the beginning, after space alone. True: the byte is taken. */
static bool opening(struct reasoning *r, char c) {
    if (r->matched == 0 && is_space(c)) {
        buf_putc(&r->held, c);
        return true;
    }
    if (c != THINK_OPEN[r->matched]) return false;
    buf_putc(&r->held, c);
    if (THINK_OPEN[++r->matched] == '\0') {
        buf_clear(&r->held);
        r->matched = 0;
        r->state = REASONING_THINKING;
        r->first = false;
    }
    return true;
}

/* The tag begins with a character that is nowhere else in it, so after a mismatch only the last
 * byte can begin another. */
static void thinking(struct reasoning *r, char c) {
    if (c != THINK_CLOSE[r->matched]) release(r, &r->text);
    if (c != THINK_CLOSE[r->matched]) {
        buf_putc(&r->text, c);
        return;
    }
    buf_putc(&r->held, c);
    if (THINK_CLOSE[++r->matched] != '\0') return;
    buf_clear(&r->held);
    r->state = REASONING_OVER;
    r->closed = true;
    r->close_at = r->taken + 1 - r->matched;
}

/* There was no tag: what looked like one is thinking, and may hold the beginning of the end tag. */
static void no_opening(struct reasoning *r) {
    struct buf held = r->held;
    r->held = BUF_INIT;
    r->matched = 0;
    r->first = false;
    for (size_t i = 0; i < held.len; i++) thinking(r, held.data[i]);
    buf_free(&held);
}

static void take(struct reasoning *r, char c, struct buf *content) {
    if (r->state == REASONING_START) {
        if (opening(r, c)) return;
        release(r, content);
        r->state = REASONING_OVER;
    }
    if (r->state == REASONING_THINKING && r->first) {
        if (opening(r, c)) return;
        no_opening(r);
    }
    if (r->state == REASONING_THINKING)
        thinking(r, c);
    else
        buf_putc(content, c);
}

void reasoning_feed(struct reasoning *r, const char *s, size_t n, struct buf *content) {
    for (size_t i = 0; i < n; i++, r->taken++) take(r, s[i], content);
}

void reasoning_finish(struct reasoning *r, struct buf *content) {
    release(r, r->state == REASONING_THINKING ? &r->text : content);
    r->state = REASONING_OVER;
}
