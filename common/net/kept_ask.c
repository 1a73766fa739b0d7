/* kept_ask: what lies before a body: the conversation that it goes on behind, and items that it
 * names by their ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/net/kept_priv.h"

enum {
    ITEMS_LOOKED_AT = 32768,
    /* An item is looked for from the beginning of its list, on the loop: so many bytes in all. */
    LOOKED_THROUGH_MAX = 2 * CONTEXT_BYTES_MAX,
};

static bool refuse(struct http_x *x, const char *param, const char *code, const char *fmt,
                   const char *what) {
    char text[200];
    snprintf(text, sizeof(text), fmt, what);
    kept_reply_error(x, 400, param, code, text);
    return false;
}

static bool too_large(struct http_x *x) {
    char text[160];
    snprintf(text, sizeof(text),
             "The conversation before the body is over the limit of %d bytes. This model's maximum "
             "context length is shorter.",
             CONTEXT_BYTES_MAX);
    kept_reply_error(x, 400, "previous_response_id", "context_length_exceeded", text);
    return false;
}

/* ---- the conversation */

static void put_items_of(struct buf *out, const struct kept *k, bool *some) {
    const struct kept_span response = kept_response(k);
    kept_put_items(out, (struct kept_span){k->input.data, k->input.len}, some);
    kept_put_items(out, kept_member(response, "output"), some);
}

/* Oldest first. False: x is answered. */
static bool put_chain(struct kept_service *s, struct http_x *x, const char *id, struct buf *out) {
    const size_t n_max = kept_count(s->store);
    const struct kept **chain = calloc(n_max + 1, sizeof(*chain));
    const uint64_t now = clock_ms();
    size_t n = 0, bytes = 0;
    bool good = chain != NULL, some = false;
    if (!good) kept_reply_error(x, 503, NULL, NULL, err_text(ERR_NO_MEMORY));
    while (good && id[0] != '\0') {
        struct kept *k = n <= n_max ? kept_find(s->store, http_x_tenant(x), id) : NULL;
        if (k == NULL) {
            good = refuse(x, "previous_response_id", "previous_response_not_found",
                          "Previous response with id '%.90s' not found.", id);
        } else if (k->runs) {
            good = refuse(x, "previous_response_id", "invalid_value",
                          "The response '%.90s' is still in progress.", id);
        } else if ((bytes += k->input.len + k->n) > CONTEXT_BYTES_MAX) {
            good = too_large(x);
        } else {
            kept_use(k, now);
            chain[n++] = k;
            id = k->previous;
        }
    }
    while (good && n > 0) put_items_of(out, chain[--n], &some);
    free(chain);
    return good;
}

/* ---- items by their ids */

/* The response that an item's id names, "msg_17_0" or "msg_17_i0", and which item of it. */
static const struct kept *response_of(struct kept_service *s, struct http_x *x, const char *id,
                                      bool *of_input, size_t *i) {
    char name[KEPT_ID_BYTES + 32];
    const char *from = strchr(id, '_'), *to = strrchr(id, '_'), *digits;
    if (from == NULL || to == from) return NULL;
    *of_input = to[1] == 'i';
    digits = to + 1 + *of_input;
    if (*digits < '0' || *digits > '9' || strlen(digits) > 9) return NULL;
    *i = strtoul(digits, NULL, 10);
    snprintf(name, sizeof(name), KEPT_ID_PREFIX "%.*s", (int)(to - from - 1), from + 1);
    struct kept *k = kept_find(s->store, http_x_tenant(x), name);
    return k != NULL && !k->runs ? k : NULL;
}

/* n 0: there is none. Adds to *looked the bytes it went through. */
static struct kept_span item_of(const struct kept *k, bool of_input, size_t i, size_t *looked) {
    const struct kept_span input = {k->input.data, k->input.len},
                           list = of_input ? input : kept_member(kept_response(k), "output");
    struct kept_items it = kept_items_of(list);
    struct kept_span item = {0};
    if (!of_input) *looked += k->n;
    for (size_t at = 0; kept_items_next(&it, &item); at++) {
        if (at < i) continue;
        *looked += (size_t)(item.p - list.p) + item.n;
        return item;
    }
    *looked += list.n;
    return (struct kept_span){0};
}

/* One that nobody knows is left to who reads the body. */
static void put_referenced(struct kept_service *s, struct http_x *x, const char *id,
                           struct buf *out, size_t *looked) {
    bool of_input;
    size_t i;
    const struct kept *k = response_of(s, x, id, &of_input, &i);
    const struct kept_span item =
        k != NULL ? item_of(k, of_input, i, looked) : (struct kept_span){0};
    if (item.n == 0) return;
    if (out->len > 0) buf_putc(out, ',');
    buf_json_str(out, id, strlen(id));
    buf_putc(out, ':');
    if (of_input)
        kept_put_item(out, item, kept_number(k), i);
    else
        buf_append(out, item.p, item.n);
}

struct ids {
    struct kept_span at[KEPT_REFERENCES_MAX];
    size_t n;
};

static bool is_new(const struct ids *ids, struct kept_span id) {
    for (size_t i = 0; i < ids->n; i++)
        if (ids->at[i].n == id.n && memcmp(ids->at[i].p, id.p, id.n) == 0) return false;
    return true;
}

static bool put_references(struct kept_service *s, struct http_x *x, struct kept_span input,
                           struct buf *out) {
    struct kept_items it = kept_items_of(input);
    struct kept_span item, id;
    char plain[KEPT_ID_BYTES + 16];
    struct ids *ids = NULL;
    size_t looked = 0;
    bool good = true;
    for (size_t i = 0; good && i < ITEMS_LOOKED_AT && kept_items_next(&it, &item); i++) {
        if (!kept_is_reference(item, &id) || !kept_plain(plain, sizeof(plain), id)) continue;
        if (ids == NULL && (ids = calloc(1, sizeof(*ids))) == NULL) {
            out->failed = true;
            break;
        }
        if (!is_new(ids, id)) continue;
        if (ids->n == KEPT_REFERENCES_MAX) {
            good = refuse(x, "input", "array_above_max_length",
                          "input may name at most 1024 items by their ids%s.", "");
            break;
        }
        ids->at[ids->n++] = id;
        put_referenced(s, x, plain, out, &looked);
        if (out->len > CONTEXT_BYTES_MAX)
            good = too_large(x);
        else if (looked > LOOKED_THROUGH_MAX)
            good = refuse(x, "input", "context_length_exceeded",
                          "input names items that lie behind more than 32 MiB of others: send them "
                          "themselves%s.",
                          "");
    }
    free(ids);
    return good;
}

/* ---- both */

static bool count(struct kept_service *s, struct http_x *x, struct kept_ask *a) {
    if (a->context.len > CONTEXT_BYTES_MAX) return too_large(x);
    if (budget_take(s->budget, BUDGET_BODY_BYTES, a->context.len)) {
        a->counted = a->context.len;
        return true;
    }
    http_x_set_header(x, "Retry-After", "1");
    kept_reply_error(x, 503, NULL, NULL,
                     "No room for the conversation before the body (limits.bodiesInFlightMiB)");
    return false;
}

static bool put_context(struct kept_service *s, struct http_x *x, const struct kept_body *body,
                        struct kept_ask *a) {
    struct buf items = BUF_INIT, referenced = BUF_INIT;
    bool good =
        put_chain(s, x, a->previous, &items) && put_references(s, x, body->input, &referenced);
    if (good && (a->previous[0] != '\0' || referenced.len > 0)) {
        buf_puts(&a->context, "{\"items\":[");
        buf_append(&a->context, items.data, items.len);
        buf_puts(&a->context, "],\"referenced\":{");
        buf_append(&a->context, referenced.data, referenced.len);
        buf_puts(&a->context, "}}");
        if (items.failed || referenced.failed) a->context.failed = true;
    }
    if (good && a->context.failed) {
        kept_reply_error(x, 503, NULL, NULL, err_text(ERR_NO_MEMORY));
        good = false;
    }
    buf_free(&items);
    buf_free(&referenced);
    return good && (a->context.len == 0 || count(s, x, a));
}

bool kept_ask_read(struct kept_service *s, struct http_x *x, struct kept_ask *out) {
    struct kept_body body;
    size_t n;
    const char *p = http_x_body(x, &n);
    *out = (struct kept_ask){0};
    kept_body_look(&body, p, n);
    if (!body.is_object) return true; /* who reads it says so */
    out->store = body.store;
    out->input = body.input;
    if (body.previous.n > 0 && body.previous.p[0] == '"' &&
        !kept_plain(out->previous, sizeof(out->previous), body.previous))
        return refuse(x, "previous_response_id", "previous_response_not_found",
                      "Previous response with that id not found.%s", "");
    if (put_context(s, x, &body, out)) return true;
    kept_ask_free(s, out);
    return false;
}

void kept_ask_free(struct kept_service *s, struct kept_ask *a) {
    if (a->counted > 0) budget_give(s->budget, BUDGET_BODY_BYTES, a->counted);
    buf_free(&a->context);
    a->counted = 0;
}
