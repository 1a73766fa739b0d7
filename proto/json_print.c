/* json_print: values as text, compact or with a member a line. */
#include <stdlib.h>
#include "proto/json_node.h"

struct out {
    char *p;
    size_t n, cap;
    bool grow; /* else what does not fit is left out, and full says so */
    bool full;
};

static void put(struct out *o, const char *s, size_t n) {
    if (o->full) return;
    if (o->cap - o->n < n && o->grow) {
        size_t cap = o->cap * 2 < o->n + n + 64 ? o->n + n + 64 : o->cap * 2;
        char *p = realloc(o->p, cap);
        if (p != NULL) {
            o->p = p;
            o->cap = cap;
        }
    }
    if (o->cap - o->n < n) {
        o->full = true;
        if (o->grow) return;
        n = o->cap - o->n;
    }
    memcpy(o->p + o->n, s, n);
    o->n += n;
}

static void put_string(struct out *o, const char *s, size_t n) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
    size_t done = 0;
    put(o, "\"", 1);
    for (size_t i = 0; i < n && !o->full; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        const char *f = c != 0 ? strchr(from, c) : NULL;
        char e[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        if (f != NULL) e[1] = to[f - from];
        put(o, s + done, i - done);
        put(o, e, f != NULL ? 2 : 6);
        done = i + 1;
    }
    put(o, s + done, n - done);
    put(o, "\"", 1);
}

static void put_int(struct out *o, const struct json_value *v) {
    const struct json_made *m = json_made_of(v);
    char text[24], *p = text + sizeof(text);
    if (m == NULL) {
        const char *s = json_text_of(v);
        size_t n = v->tag >> TAG_BITS;
        bool zero = n == 2 && s[0] == '-' && s[1] == '0';
        put(o, s + zero, n - zero);
        return;
    }
    const bool negative = m->i < 0 && !m->above;
    uint64_t u = negative ? 0 - (uint64_t)m->i : (uint64_t)m->i;
    do *--p = (char)('0' + u % 10);
    while ((u /= 10) > 0);
    if (negative) *--p = '-';
    put(o, p, (size_t)(text + sizeof(text) - p));
}

static void put_real(struct out *o, const struct json_value *v) {
    const struct json_made *m = json_made_of(v);
    put(o, m != NULL ? m->text : json_text_of(v), m != NULL ? m->n : v->tag >> TAG_BITS);
}

static void put_line(struct out *o, bool pretty, int depth) {
    if (!pretty) return;
    put(o, "\n", 1);
    for (int i = 0; i < depth; i++) put(o, "  ", 2);
}

static void put_value(struct out *o, const struct json_value *v, bool pretty, int depth);

static void put_array(struct out *o, const struct json_value *v, bool pretty, int depth) {
    size_t n = json_arr_len(v);
    put(o, "[", 1);
    for (size_t i = 0; i < n && !o->full; i++) {
        if (i > 0) put(o, ",", 1);
        put_line(o, pretty, depth + 1);
        put_value(o, json_arr_at(v, i), pretty, depth + 1);
    }
    if (n > 0) put_line(o, pretty, depth);
    put(o, "]", 1);
}

static void put_object(struct out *o, const struct json_value *v, bool pretty, int depth) {
    bool some = false;
    put(o, "{", 1);
    json_obj_foreach(v, name, child) {
        if (some) put(o, ",", 1);
        if (o->full) return;
        some = true;
        put_line(o, pretty, depth + 1);
        put_string(o, name, strlen(name));
        put(o, ": ", pretty ? 2 : 1);
        put_value(o, child, pretty, depth + 1);
    }
    if (some) put_line(o, pretty, depth);
    put(o, "}", 1);
}

static void put_value(struct out *o, const struct json_value *v, bool pretty, int depth) {
    switch (json_kind(v)) {
    case K_NULL: put(o, "null", 4); break;
    case K_FALSE: put(o, "false", 5); break;
    case K_TRUE: put(o, "true", 4); break;
    case K_INT: put_int(o, v); break;
    case K_REAL: put_real(o, v); break;
    case K_STRING: put_string(o, json_str(v), json_str_len(v)); break;
    case K_ARRAY: put_array(o, v, pretty, depth); break;
    case K_OBJECT: put_object(o, v, pretty, depth); break;
    }
}

const char *json_to_text(const struct json_value *v, enum json_style style, size_t *n) {
    struct out o = {.grow = true};
    if (n != NULL) *n = 4;
    if (v == NULL) return "null";
    if ((v->tag & TAG_MADE) != 0 && ((struct json_made *)(uintptr_t)v)->born != json_failures())
        return NULL; /* it may lack a part */
    put_value(&o, v, style == JSON_PRETTY, 0);
    put(&o, "", 1);
    if (o.full) {
        free(o.p);
        return NULL;
    }
    char **at = (v->tag & TAG_MADE) != 0 ? &((struct json_made *)(uintptr_t)v)->printed
                                         : &json_doc_of(v)->printed;
    free(*at);
    *at = o.p;
    if (n != NULL) *n = o.n - 1;
    return o.p;
}

size_t json_print_some(char *dst, size_t dst_bytes, const struct json_value *v) {
    struct out o = {.p = dst, .cap = dst_bytes};
    put_value(&o, v, false, 0);
    return o.n;
}
