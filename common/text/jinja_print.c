/* jinja_print: str(), repr(), json.dumps(). */
#include "common/text/jinja_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_ast.h"
#include "common/text/jinja_call.h"
#include "common/text/jinja_seq.h"
#include "common/text/jinja_text.h"

void jinja_float_text(char dst[FLOAT_TEXT_BYTES], double f) {
    if (isnan(f)) {
        strcpy(dst, "nan");
        return;
    }
    if (isinf(f)) {
        strcpy(dst, f > 0 ? "inf" : "-inf");
        return;
    }
    char e[FLOAT_TEXT_BYTES], digits[20];
    for (int prec = 0; prec <= 16; prec++) { /* 17 digits always read back */
        snprintf(e, sizeof(e), "%.*e", prec, f);
        if (strtod(e, NULL) == f) break;
    }
    const char *mark = strchr(e, 'e');
    int exp10 = atoi(mark + 1), n = 0;
    for (const char *p = e; p < mark && n < (int)sizeof(digits); p++) {
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    }
    char *d = dst;
    if (signbit(f)) *d++ = '-';
    if (exp10 < -4 || exp10 >= 16) {
        *d++ = digits[0];
        if (n > 1) {
            *d++ = '.';
            memcpy(d, digits + 1, (size_t)n - 1);
            d += n - 1;
        }
        snprintf(d, 16, "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
        return;
    }
    if (exp10 < 0) {
        *d++ = '0';
        *d++ = '.';
        for (int i = -1; i > exp10; i--) *d++ = '0';
        memcpy(d, digits, (size_t)n);
        d += n;
    } else {
        for (int i = 0; i <= exp10; i++) *d++ = i < n ? digits[i] : '0';
        *d++ = '.';
        for (int i = exp10 + 1; i < n; i++) *d++ = digits[i];
        if (n <= exp10 + 1) *d++ = '0';
    }
    *d = '\0';
}

static void print_int(struct jinja_sb *t, int64_t i) {
    char b[24];
    snprintf(b, sizeof(b), "%" PRId64, i);
    jinja_sb_adds(t, b);
}

static void repr_str(struct jinja_sb *t, const char *s, size_t n) {
    bool single = memchr(s, '\'', n) != NULL, dbl = memchr(s, '"', n) != NULL;
    char quote = single && !dbl ? '"' : '\'', b[16];
    jinja_sb_addc(t, quote);
    for (size_t at = 0; at < n && !t->failed;) {
        size_t from = at;
        int32_t c = jinja_char_next(s, n, &at);
        if (c == quote || c == '\\') {
            jinja_sb_addc(t, '\\');
            jinja_sb_addc(t, c);
        } else if (c == '\n') {
            jinja_sb_adds(t, "\\n");
        } else if (c == '\r') {
            jinja_sb_adds(t, "\\r");
        } else if (c == '\t') {
            jinja_sb_adds(t, "\\t");
        } else if (c >= 0 && !jinja_is_printable(c)) {
            snprintf(b, sizeof(b),
                     c < 0x100     ? "\\x%02x"
                     : c < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     (unsigned)c);
            jinja_sb_adds(t, b);
        } else {
            jinja_sb_add(t, s + from, at - from);
        }
    }
    jinja_sb_addc(t, quote);
}

static void repr_items(struct jinja_sb *t, const struct jv *v, size_t n, const char *open,
                       const char *close) {
    jinja_sb_adds(t, open);
    for (size_t i = 0; i < n && !t->failed; i++) {
        struct jv item;
        if (i > 0) jinja_sb_adds(t, ", ");
        if (!jinja_seq_at(t->r, v, i, &item)) {
            t->failed = true;
            return;
        }
        jinja_print_repr(t, &item);
    }
    if (v->type == JV_TUPLE && n == 1) jinja_sb_addc(t, ',');
    jinja_sb_adds(t, close);
}

static void repr_dict(struct jinja_sb *t, const struct jv_dict *d) {
    jinja_sb_addc(t, '{');
    for (size_t i = 0; i < d->n && !t->failed; i++) {
        if (i > 0) jinja_sb_adds(t, ", ");
        jinja_print_repr(t, &d->e[i].key);
        jinja_sb_adds(t, ": ");
        jinja_print_repr(t, &d->e[i].value);
    }
    jinja_sb_addc(t, '}');
}

static void repr_range(struct jinja_sb *t, const struct jv_range *g) {
    jinja_sb_adds(t, "range(");
    print_int(t, g->start);
    jinja_sb_adds(t, ", ");
    /* Python keeps the stop it was given; after slicing it is the next item, as here */
    print_int(t, g->stop);
    if (g->step != 1) {
        jinja_sb_adds(t, ", ");
        print_int(t, g->step);
    }
    jinja_sb_addc(t, ')');
}

static void repr_container(struct jinja_sb *t, const struct jv *v) {
    static const char *const view_open[] = {[VIEW_KEYS] = "dict_keys([",
                                            [VIEW_VALUES] = "dict_values([",
                                            [VIEW_ITEMS] = "dict_items(["};
    switch ((enum jv_type)v->type) {
    case JV_LIST: repr_items(t, v, v->list->n, "[", "]"); break;
    case JV_TUPLE: repr_items(t, v, v->list->n, "(", ")"); break;
    case JV_VIEW: repr_items(t, v, v->dict->n, view_open[v->sub], "])"); break;
    case JV_NAMESPACE:
        jinja_sb_adds(t, "<Namespace ");
        repr_dict(t, v->dict);
        jinja_sb_addc(t, '>');
        break;
    default: repr_dict(t, v->dict); break;
    }
}

void jinja_print_repr(struct jinja_sb *t, const struct jv *v) {
    char b[FLOAT_TEXT_BYTES];
    if (t->failed) return;
    switch ((enum jv_type)v->type) {
    case JV_ABSENT:
    case JV_UNDEF: jinja_sb_adds(t, "Undefined"); return;
    case JV_NONE: jinja_sb_adds(t, "None"); return;
    case JV_BOOL: jinja_sb_adds(t, v->b ? "True" : "False"); return;
    case JV_INT: print_int(t, v->i); return;
    case JV_BIG:
        snprintf(b, sizeof(b), "%" PRIu64, v->u);
        jinja_sb_adds(t, b);
        return;
    case JV_FLOAT:
        jinja_float_text(b, v->f);
        jinja_sb_adds(t, b);
        return;
    case JV_STR:
        if (v->sub == STR_SAFE) jinja_sb_adds(t, "Markup(");
        repr_str(t, v->s, v->n);
        if (v->sub == STR_SAFE) jinja_sb_addc(t, ')');
        return;
    case JV_RANGE: repr_range(t, v->range); return;
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_VIEW:
    case JV_NAMESPACE:
        if (!jinja_enter(t->r)) {
            t->failed = true;
            return;
        }
        repr_container(t, v);
        jinja_leave(t->r);
        return;
    case JV_MACRO:
        jinja_sb_adds(t, "<Macro ");
        repr_str(t, v->macro->def->name.s, v->macro->def->name.n);
        jinja_sb_addc(t, '>');
        return;
    case JV_METHOD:
        jinja_sb_adds(t, "<method ");
        jinja_sb_adds(t, v->method->def->name);
        jinja_sb_addc(t, '>');
        return;
    case JV_FUNC:
        jinja_sb_adds(t, "<function ");
        jinja_sb_adds(t, v->func->name);
        jinja_sb_addc(t, '>');
        return;
    case JV_ITER: jinja_sb_adds(t, "<generator>"); return;
    case JV_LOOP: jinja_sb_adds(t, "<loop>"); return;
    }
}

void jinja_print_str(struct jinja_sb *t, const struct jv *v) {
    if (v->type == JV_STR) {
        jinja_sb_add(t, v->s, v->n);
    } else if (v->type != JV_UNDEF) {
        jinja_print_repr(t, v);
    }
}

bool jinja_to_str(struct jinja_run *r, const struct jv *v, struct jv *out) {
    if (v->type == JV_STR) {
        *out = *v;
        return true;
    }
    struct jinja_sb t;
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    jinja_print_str(&t, v);
    return jinja_sb_take(&t, out);
}

/* ---- JSON */

static void json_str(struct jinja_sb *t, const struct jinja_json_style *st, const char *s,
                     size_t n) {
    char b[16];
    size_t done = 0;
    jinja_sb_addc(t, '"');
    for (size_t at = 0; at < n && !t->failed;) {
        size_t from = at;
        int32_t c = jinja_char_next(s, n, &at);
        const char *esc = c == '"'    ? "\\\""
                          : c == '\\' ? "\\\\"
                          : c == '\n' ? "\\n"
                          : c == '\r' ? "\\r"
                          : c == '\t' ? "\\t"
                          : c == '\f' ? "\\f"
                          : c == '\b' ? "\\b"
                                      : NULL;
        if (esc == NULL && (c < 0 || c >= 32) && !(st->ascii && c > 126)) continue;
        jinja_sb_add(t, s + done, from - done);
        done = at;
        if (esc != NULL) {
            jinja_sb_adds(t, esc);
        } else if (c < 0x10000) {
            snprintf(b, sizeof(b), "\\u%04x", (unsigned)c);
            jinja_sb_adds(t, b);
        } else {
            unsigned x = (unsigned)c - 0x10000;
            snprintf(b, sizeof(b), "\\u%04x\\u%04x", 0xD800 + (x >> 10), 0xDC00 + (x & 0x3FF));
            jinja_sb_adds(t, b);
        }
    }
    jinja_sb_add(t, s + done, n - done);
    jinja_sb_addc(t, '"');
}

static void json_value(struct jinja_sb *t, const struct jinja_json_style *st, const struct jv *v,
                       size_t level);

static void json_newline(struct jinja_sb *t, const struct jinja_json_style *st, size_t level) {
    if (!st->multiline) return;
    jinja_sb_addc(t, '\n');
    for (size_t i = 0; i < level && !t->failed; i++) jinja_sb_add(t, st->indent.s, st->indent.n);
}

static void json_key(struct jinja_sb *t, const struct jinja_json_style *st, const struct jv *k) {
    if (k->type == JV_STR) {
        json_str(t, st, k->s, k->n);
        return;
    }
    if (k->type != JV_NONE && k->type != JV_BIG && !jv_is_number(k)) {
        jinja_fail(t->r, "tojson: keys must be str, int, float, bool or None, not %s",
                   jv_type_name(k));
        t->failed = true;
        return;
    }
    jinja_sb_addc(t, '"');
    json_value(t, st, k, 0);
    jinja_sb_addc(t, '"');
}

/* The order in which a dict is written: as it is, or by key. An insertion sort would be quadratic
 * in a tool's parameters, so merge the two halves. */
static bool sort_keys(struct jinja_run *r, const struct jv_dict *d, size_t *idx, size_t *tmp,
                      size_t n) {
    if (n < 2) return true;
    size_t half = n / 2;
    if (!sort_keys(r, d, idx, tmp, half) || !sort_keys(r, d, idx + half, tmp, n - half))
        return false;
    memcpy(tmp, idx, n * sizeof(*idx));
    for (size_t i = 0, a = 0, b = half; i < n; i++) {
        int order = 0;
        if (a < half && b < n && !jv_compare(r, &d->e[tmp[b]].key, &d->e[tmp[a]].key, "<", &order))
            return false;
        bool left = a < half && (b == n || order >= 0);
        idx[i] = left ? tmp[a++] : tmp[b++];
    }
    return true;
}

static void json_dict(struct jinja_sb *t, const struct jinja_json_style *st,
                      const struct jv_dict *d, size_t level) {
    size_t *idx = NULL;
    if (st->sort_keys && d->n > 0) {
        idx = jinja_alloc(t->r, 2 * d->n * sizeof(*idx));
        for (size_t i = 0; idx != NULL && i < d->n; i++) idx[i] = i;
        if (idx == NULL || !sort_keys(t->r, d, idx, idx + d->n, d->n)) {
            t->failed = true;
            return;
        }
    }
    jinja_sb_addc(t, '{');
    for (size_t i = 0; i < d->n && !t->failed; i++) {
        const struct jv_pair *p = &d->e[idx == NULL ? i : idx[i]];
        if (i > 0) jinja_sb_add(t, st->item_sep.s, st->item_sep.n);
        json_newline(t, st, level + 1);
        json_key(t, st, &p->key);
        jinja_sb_add(t, st->key_sep.s, st->key_sep.n);
        json_value(t, st, &p->value, level + 1);
    }
    if (d->n > 0) json_newline(t, st, level);
    jinja_sb_addc(t, '}');
}

static void json_list(struct jinja_sb *t, const struct jinja_json_style *st,
                      const struct jv_list *l, size_t level) {
    jinja_sb_addc(t, '[');
    for (size_t i = 0; i < l->n && !t->failed; i++) {
        if (i > 0) jinja_sb_add(t, st->item_sep.s, st->item_sep.n);
        json_newline(t, st, level + 1);
        json_value(t, st, &l->v[i], level + 1);
    }
    if (l->n > 0) json_newline(t, st, level);
    jinja_sb_addc(t, ']');
}

static void json_value(struct jinja_sb *t, const struct jinja_json_style *st, const struct jv *v,
                       size_t level) {
    if (t->failed) return;
    switch ((enum jv_type)v->type) {
    case JV_NONE: jinja_sb_adds(t, "null"); return;
    case JV_BOOL: jinja_sb_adds(t, v->b ? "true" : "false"); return;
    case JV_INT:
    case JV_BIG: jinja_print_repr(t, v); return;
    case JV_FLOAT:
        if (isfinite(v->f)) {
            jinja_print_repr(t, v);
        } else {
            jinja_sb_adds(t, isnan(v->f) ? "NaN" : v->f > 0 ? "Infinity" : "-Infinity");
        }
        return;
    case JV_STR: json_str(t, st, v->s, v->n); return;
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
        t->failed = !jinja_enter(t->r);
        if (t->failed) return;
        if (v->type == JV_DICT) {
            json_dict(t, st, v->dict, level);
        } else {
            json_list(t, st, v->list, level);
        }
        jinja_leave(t->r);
        return;
    default:
        jinja_fail(t->r, "tojson: object of type %s is not JSON serializable", jv_type_name(v));
        t->failed = true;
        return;
    }
}

bool jinja_to_json(struct jinja_run *r, const struct jv *v, const struct jinja_json_style *style,
                   struct jv *out) {
    struct jinja_sb t;
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    json_value(&t, style, v, 0);
    return jinja_sb_take(&t, out);
}
