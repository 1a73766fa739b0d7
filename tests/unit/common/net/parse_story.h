/* parse_story: what a request parser made of some bytes, as text, for the parser's unit test and
 * fuzz target. A story is "METHOD path?query field=value;... |body| END" per request, or "ERROR
 * status". */
#ifndef BATON_TESTS_PARSE_STORY_H
#define BATON_TESTS_PARSE_STORY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/http_parse.h"

struct story {
    struct http_parser p;
    struct buf text;
    bool over;
};

static inline void story_init(struct story *s, size_t head_bytes_max) {
    *s = (struct story){0};
    http_parser_init(&s->p, head_bytes_max);
}

static inline void story_fini(struct story *s) {
    http_parser_fini(&s->p);
    buf_free(&s->text);
}

static inline void story_head(struct story *s) {
    const struct http_head *h = &s->p.head;
    buf_printf(&s->text, "%s %s?%s", http_head_method(h), http_head_path(h), http_head_query(h));
    buf_printf(&s->text, " 1.%d%s%s", h->minor, h->keep_alive ? "" : " close",
               h->expect_continue ? " expect" : "");
    for (size_t i = 0; i < h->n_fields; i++)
        buf_printf(&s->text, " %s=%s;", h->raw.data + h->fields[i].name,
                   h->raw.data + h->fields[i].value);
    buf_puts(&s->text, " |");
}

/* Gives n more bytes, in a block of exactly their size. */
static inline void story_feed(struct story *s, const char *data, size_t n) {
    char *copy = malloc(n > 0 ? n : 1);
    size_t at = 0, used;
    if (copy == NULL) abort();
    if (n > 0) memcpy(copy, data, n);
    while (!s->over) {
        bool more = true;
        switch (http_parser_feed(&s->p, copy + at, n - at, &used)) {
        case HTTP_EV_MORE: more = false; break;
        case HTTP_EV_HEAD: story_head(s); break;
        case HTTP_EV_BODY: buf_append(&s->text, s->p.piece, s->p.piece_len); break;
        case HTTP_EV_END:
            buf_puts(&s->text, "| END ");
            http_parser_next(&s->p);
            break;
        case HTTP_EV_ERROR:
            buf_printf(&s->text, "ERROR %d", s->p.status);
            if (s->p.why == NULL) abort();
            s->over = true;
            break;
        }
        if (used > n - at) abort();
        at += used;
        if (!more && at != n) abort(); /* it asked for more and left some */
        if (!more) break;
    }
    free(copy);
}

#endif
