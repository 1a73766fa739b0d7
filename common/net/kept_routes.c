/* kept_routes: what clients ask of kept answers (client-apis 1.9). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/query.h"
#include "common/net/kept_priv.h"

enum { ITEMS_DEFAULT = 20, ITEMS_MAX = 100 };

void kept_reply_error(struct http_x *x, int status, const char *param, const char *code,
                      const char *text) {
    char *body = api_error_body(API_ERRORS_OPENAI, ERROR_STYLE_OPENAI, &status, text, param, code);
    http_x_reply(x, status, "application/json", body != NULL ? body : "",
                 body != NULL ? strlen(body) : 0);
    free(body);
}

static void reply_json(struct http_x *x, const char *p, size_t n) {
    http_x_reply(x, 200, "application/json; charset=utf-8", p, n);
}

static void reply_not_found(struct http_x *x, const char *id) {
    char text[160];
    snprintf(text, sizeof(text), "Response with id '%.90s' not found.", id);
    kept_reply_error(x, 404, NULL, "", text);
}

/* ---- the query */

/* False: it is not there. */
static bool query_value(const struct http_x *x, const char *name, char *dst, size_t dst_bytes) {
    const char *at = http_x_query(x);
    return query_next(&at, name, dst, dst_bytes);
}

/* False: x is answered. *v stays as it is where the query does not say. */
static bool query_number(struct http_x *x, const char *name, uint64_t lo, uint64_t hi,
                         uint64_t *v) {
    char value[24], text[120];
    if (!query_value(x, name, value, sizeof(value))) return true;
    const size_t n = strlen(value);
    const bool digits = n > 0 && n < 19 && strspn(value, "0123456789") == n;
    const unsigned long long got = digits ? strtoull(value, NULL, 10) : 0;
    if (digits && got >= lo && got <= hi) {
        *v = got;
        return true;
    }
    snprintf(text, sizeof(text), "%s must be an integer from %llu to %llu", name,
             (unsigned long long)lo, (unsigned long long)hi);
    kept_reply_error(x, 400, name, "invalid_value", text);
    return false;
}

/* ---- the response */

static void reply_response(struct http_x *x, const struct kept *k) {
    const struct kept_span response = kept_response(k);
    char text[256];
    if (response.n > 0) {
        reply_json(x, response.p, response.n);
        return;
    }
    const int n = snprintf(text, sizeof(text),
                           "{\"id\":\"%s\",\"object\":\"response\",\"status\":\"in_progress\","
                           "\"error\":null,\"incomplete_details\":null,\"output\":[],\"usage\":"
                           "null}",
                           k->id);
    reply_json(x, text, (size_t)n);
}

static void on_watcher_gone(void *arg) {
    struct kept_watcher *w = arg, **at = &w->of->watchers;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    w->of->n_watchers--;
    free(w);
}

/* The next events as they come. False: no memory. */
static bool watch(struct kept *k, struct http_x *x) {
    struct kept_record *r = k->user;
    struct kept_watcher *w = calloc(1, sizeof(*w));
    if (w == NULL) return false;
    *w = (struct kept_watcher){.next = r->watchers, .of = r, .x = x};
    r->watchers = w;
    r->n_watchers++;
    http_x_on_close(x, on_watcher_gone, w);
    return true;
}

/* Behind the event that the client has: starting_after, else Last-Event-ID ("resp_17:4"). False: x
 * is answered. */
static bool events_had(struct http_x *x, const struct kept *k, uint64_t *n) {
    const char *last = http_x_header(x, "Last-Event-ID");
    const size_t len = strlen(k->id);
    uint64_t after = UINT64_MAX;
    *n = 0;
    if (last != NULL && strncmp(last, k->id, len) == 0 && last[len] == ':' &&
        last[len + 1] >= '0' && last[len + 1] <= '9')
        after = strtoull(last + len + 1, NULL, 10);
    if (!query_number(x, "starting_after", 0, INT64_MAX, &after)) return false;
    if (after != UINT64_MAX) *n = after + 1;
    return true;
}

static void reply_events(struct http_x *x, struct kept *k) {
    const struct kept_record *r = k->user;
    uint64_t n_had;
    if (!k->has_events) {
        kept_reply_error(x, http_x_header(x, "Last-Event-ID") != NULL ? 404 : 400, "stream",
                         "unsupported_value",
                         "The events of this response are not there: it was no stream, or they "
                         "have given way to newer ones. Ask for it without stream.");
        return;
    }
    if (k->runs && r->n_watchers >= KEPT_WATCHERS_MAX) {
        http_x_set_header(x, "Retry-After", "1");
        kept_reply_error(x, 429, NULL, NULL, "Too many clients follow this response");
        return;
    }
    if (!events_had(x, k, &n_had)) return;
    const struct kept_span rest = kept_events_from(kept_stream(k), n_had);
    http_x_set_header(x, "Cache-Control", "no-cache");
    http_x_stream_paced(x); /* no more than is kept */
    http_x_stream_begin(x, 200, "text/event-stream; charset=utf-8");
    http_x_stream_write(x, rest.p, rest.n);
    if (!k->runs)
        http_x_stream_end(x);
    else if (!watch(k, x))
        http_x_abort(x);
}

static void on_get(struct kept_service *s, struct http_x *x, struct kept *k) {
    char stream[8] = "";
    (void)s;
    query_value(x, "stream", stream, sizeof(stream));
    if (strcmp(stream, "true") == 0 || http_x_header(x, "Last-Event-ID") != NULL)
        reply_events(x, k);
    else
        reply_response(x, k);
}

static void on_cancel(struct kept_service *s, struct http_x *x, struct kept *k) {
    char id[KEPT_ID_BYTES];
    memcpy(id, k->id, sizeof(id));
    if (k->runs) kept_cancel(k);
    k = kept_find(s->store, http_x_tenant(x), id);
    if (k != NULL)
        reply_response(x, k);
    else
        reply_not_found(x, id); /* it had said nothing yet */
}

static void on_delete(struct kept_service *s, struct http_x *x, struct kept *k) {
    char id[KEPT_ID_BYTES], text[KEPT_ID_BYTES + 64];
    memcpy(id, k->id, sizeof(id));
    if (k->runs) kept_cancel(k);
    k = kept_find(s->store, http_x_tenant(x), id);
    if (k != NULL) kept_remove(s->store, k);
    const int n = snprintf(text, sizeof(text),
                           "{\"id\":\"%s\",\"object\":\"response\",\"deleted\":true}", id);
    reply_json(x, text, (size_t)n);
}

/* ---- its input, in pages */

struct page {
    struct kept_span *items; /* [n], in their order */
    size_t n;
};

static bool page_read(struct page *p, struct kept_span input) {
    struct kept_items it = kept_items_of(input);
    struct kept_span item;
    size_t cap = 0;
    *p = (struct page){0};
    while (kept_items_next(&it, &item)) {
        if (p->n == cap) {
            cap = cap > 0 ? 2 * cap : 16;
            struct kept_span *more = realloc(p->items, cap * sizeof(*more));
            if (more == NULL) return false;
            p->items = more;
        }
        p->items[p->n++] = item;
    }
    return true;
}

/* The place of the item with that id; n: there is none. */
static size_t place_of(const struct page *p, const char *number, const char *id) {
    struct buf b = BUF_INIT;
    size_t i = 0;
    for (; i < p->n; i++) {
        buf_clear(&b);
        kept_put_item_id(&b, p->items[i], number, i);
        if (b.data != NULL && strcmp(b.data, id) == 0) break;
    }
    buf_free(&b);
    return i;
}

/* Items from `first` on, up or down. */
static void put_page(struct buf *out, const struct page *p, const char *number, size_t first,
                     size_t n, bool down) {
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t k = 0; k < n; k++) {
        const size_t i = down ? first - k : first + k;
        if (k > 0) buf_putc(out, ',');
        kept_put_item(out, p->items[i], number, i);
    }
    buf_puts(out, "],\"first_id\":");
    for (int last = 0; last <= 1; last++) {
        const size_t i = last == 0 ? first : down ? first - (n - 1) : first + (n - 1);
        if (last == 1) buf_puts(out, ",\"last_id\":");
        buf_putc(out, '"');
        if (n > 0) kept_put_item_id(out, p->items[i], number, i);
        buf_putc(out, '"');
    }
}

static void reply_page(struct http_x *x, const struct kept *k, const struct page *p) {
    uint64_t limit = ITEMS_DEFAULT;
    char order[8] = "", after[KEPT_ID_BYTES + 32];
    if (!query_number(x, "limit", 1, ITEMS_MAX, &limit)) return;
    if (query_value(x, "order", order, sizeof(order)) && strcmp(order, "asc") != 0 &&
        strcmp(order, "desc") != 0) {
        kept_reply_error(x, 400, "order", NULL, "order must be asc or desc");
        return;
    }
    const bool down = strcmp(order, "asc") != 0;
    size_t done = 0; /* of the order asked for */
    if (query_value(x, "after", after, sizeof(after))) {
        const size_t i = place_of(p, kept_number(k), after);
        if (i == p->n) {
            kept_reply_error(x, 404, "after", NULL, "No item of this response has that id");
            return;
        }
        done = (down ? p->n - 1 - i : i) + 1;
    }
    const size_t left = p->n - done, n = left < limit ? left : (size_t)limit;
    struct buf out = BUF_INIT;
    put_page(&out, p, kept_number(k), down ? p->n - 1 - done : done, n, down);
    buf_printf(&out, ",\"has_more\":%s}", n < left ? "true" : "false");
    if (out.failed)
        kept_reply_error(x, 503, NULL, NULL, err_text(ERR_NO_MEMORY));
    else
        reply_json(x, out.data, out.len);
    buf_free(&out);
}

static void on_items(struct kept_service *s, struct http_x *x, struct kept *k) {
    struct page p;
    (void)s;
    if (page_read(&p, (struct kept_span){k->input.data, k->input.len}))
        reply_page(x, k, &p);
    else
        kept_reply_error(x, 503, NULL, NULL, err_text(ERR_NO_MEMORY));
    free(p.items);
}

/* ---- paths */

void kept_serve(struct kept_service *s, struct http_x *x, const struct api_path *path,
                const char *id) {
    static void (*const handlers[INFO_COUNT])(struct kept_service *, struct http_x *,
                                              struct kept *) = {
        [INFO_KEPT_RESPONSE] = on_get,
        [INFO_KEPT_DELETE] = on_delete,
        [INFO_KEPT_CANCEL] = on_cancel,
        [INFO_KEPT_ITEMS] = on_items,
    };
    struct kept *k = kept_find(s->store, http_x_tenant(x), id);
    if (k != NULL)
        handlers[path->info](s, x, k);
    else
        reply_not_found(x, id);
}
