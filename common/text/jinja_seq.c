/* jinja_seq: lengths, walks, slices, membership, sorting. */
#include "common/text/jinja_seq.h"

#include <string.h>
#include "common/text/jinja_loop.h"
#include "common/text/jinja_text.h"

bool jinja_seq_len(struct jinja_run *r, const struct jv *v, size_t *out) {
    switch ((enum jv_type)v->type) {
    case JV_UNDEF: *out = 0; return true;
    case JV_STR: *out = jinja_text_len(v->s, v->n); return jinja_tick(r, v->n / 128);
    case JV_LIST:
    case JV_TUPLE: *out = v->list->n; return true;
    case JV_DICT:
    case JV_VIEW: *out = v->dict->n; return true;
    case JV_RANGE: *out = v->range->n; return true;
    case JV_LOOP: return jinja_loop_len(r, v->loop, out);
    default: return jinja_fail(r, "object of type '%s' has no len()", jv_type_name(v));
    }
}

bool jinja_seq_at(struct jinja_run *r, const struct jv *v, size_t i, struct jv *out) {
    struct jv_list *pair;
    switch ((enum jv_type)v->type) {
    case JV_RANGE: *out = jv_int(v->range->start + (int64_t)i * v->range->step); return true;
    case JV_VIEW:
        if (v->sub != VIEW_ITEMS) {
            *out = v->sub == VIEW_KEYS ? v->dict->e[i].key : v->dict->e[i].value;
            return true;
        }
        if (!jv_list_new(r, 2, &pair)) return false;
        pair->v[0] = v->dict->e[i].key;
        pair->v[1] = v->dict->e[i].value;
        pair->n = 2;
        *out = jv_of_tuple(pair);
        return true;
    default: *out = v->list->v[i]; return true;
    }
}

bool jinja_is_iterable(const struct jv *v) {
    switch ((enum jv_type)v->type) {
    case JV_UNDEF:
    case JV_STR:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_RANGE:
    case JV_VIEW:
    case JV_ITER: return true;
    default: return false;
    }
}

static bool chars_of(struct jinja_run *r, const struct jv *v, struct jv_list **out) {
    if (!jv_list_new(r, jinja_text_len(v->s, v->n), out)) return false;
    for (size_t at = 0; at < v->n;) {
        size_t from = at;
        jinja_char_next(v->s, v->n, &at);
        if (!jv_list_push(r, *out, jv_str(v->s + from, at - from))) return false;
    }
    return true;
}

bool jinja_iterate(struct jinja_run *r, const struct jv *v, struct jv_list **out) {
    struct jv keys = *v;
    size_t n;
    switch ((enum jv_type)v->type) {
    case JV_LIST:
    case JV_TUPLE: *out = v->list; return true;
    case JV_STR: return chars_of(r, v, out);
    case JV_UNDEF: return jv_list_new(r, 0, out);
    case JV_ITER:
        if (!jv_list_new(r, v->iter->list->n - v->iter->at, out)) return false;
        while (v->iter->at < v->iter->list->n) {
            if (!jv_list_push(r, *out, v->iter->list->v[v->iter->at++])) return false;
        }
        return true;
    case JV_DICT:
        keys.type = JV_VIEW;
        keys.sub = VIEW_KEYS;
        break;
    case JV_RANGE:
    case JV_VIEW: break;
    default: return jinja_fail(r, "'%s' object is not iterable", jv_type_name(v));
    }
    if (!jinja_seq_len(r, &keys, &n) || !jv_list_new(r, n, out)) return false;
    for (size_t i = 0; i < n; i++) {
        struct jv item;
        if (!jinja_seq_at(r, &keys, i, &item) || !jv_list_push(r, *out, item)) return false;
    }
    return true;
}

/* ---- slices */

static bool slice_bound(struct jinja_run *r, const struct jv *v, int64_t absent, int64_t *out) {
    *out = absent;
    if (v->type == JV_NONE || v->type == JV_ABSENT || jv_as_int(v, out)) return true;
    return jinja_fail(r, "slice indices must be integers or None, not %s", jv_type_name(v));
}

static int64_t clamp_bound(int64_t i, int64_t len, int64_t low, int64_t high) {
    if (i < 0) i += len;
    return i < low ? low : i > high ? high : i;
}

static bool slice_range(struct jinja_run *r, const struct jv_range *g, int64_t from, int64_t to,
                        int64_t step, size_t n, struct jv *out) {
    struct jv_range *s = jinja_alloc(r, sizeof(*s));
    if (s == NULL) return false;
    *s = (struct jv_range){
        .start = g->start + from * g->step, .stop = g->start + to * g->step, .n = n};
    if (__builtin_mul_overflow(g->step, step, &s->step))
        return jinja_fail(r, "slice step out of range");
    *out = (struct jv){.type = JV_RANGE, .range = s};
    return true;
}

bool jinja_slice(struct jinja_run *r, const struct jv *v, const struct jv *start,
                 const struct jv *stop, const struct jv *step_v, struct jv *out) {
    int64_t step, from, to;
    size_t n;
    if (v->type == JV_UNDEF) return jinja_fail_undef(r, v);
    if (v->type != JV_STR && v->type != JV_LIST && v->type != JV_TUPLE && v->type != JV_RANGE) {
        return jinja_fail(r, "'%s' object cannot be sliced", jv_type_name(v));
    }
    if (!slice_bound(r, step_v, 1, &step)) return false;
    if (step == 0) return jinja_fail(r, "slice step cannot be zero");
    if (!jinja_seq_len(r, v, &n)) return false;
    int64_t len = (int64_t)n, low = step > 0 ? 0 : -1, high = step > 0 ? len : len - 1;
    bool no_from = start->type == JV_NONE || start->type == JV_ABSENT;
    bool no_to = stop->type == JV_NONE || stop->type == JV_ABSENT;
    if (!slice_bound(r, start, 0, &from) || !slice_bound(r, stop, 0, &to)) return false;
    from = no_from ? (step > 0 ? low : high) : clamp_bound(from, len, low, high);
    to = no_to ? (step > 0 ? high : low) : clamp_bound(to, len, low, high);
    if (step > len) step = len + 1; /* takes one item as well, and cannot overflow */
    if (step < -len) step = -len - 1;
    int64_t count = step > 0 ? (to > from ? (to - from - 1) / step + 1 : 0)
                             : (from > to ? (from - to - 1) / -step + 1 : 0);
    if (v->type == JV_RANGE) return slice_range(r, v->range, from, to, step, (size_t)count, out);
    if (v->type == JV_STR && (step == 1 || count == 0)) {
        size_t a = count == 0 ? 0 : jinja_text_offset(v->s, v->n, (size_t)from);
        size_t b = count == 0 ? 0 : a + jinja_text_offset(v->s + a, v->n - a, (size_t)count);
        *out = jv_str(v->s + a, b - a);
        out->sub = v->sub;
        return true;
    }
    struct jv_list *items, *l;
    if (!jinja_iterate(r, v, &items)) return false;
    if (v->type == JV_STR) {
        char *s = jinja_alloc(r, v->n);
        size_t used = 0;
        if (s == NULL) return false;
        for (int64_t i = 0; i < count; i++) {
            const struct jv *c = &items->v[from + i * step];
            memcpy(s + used, c->s, c->n);
            used += c->n;
        }
        *out = jv_str(s, used);
        out->sub = v->sub;
        return true;
    }
    if (!jv_list_new(r, (size_t)count, &l)) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!jv_list_push(r, l, items->v[from + i * step])) return false;
    }
    *out = v->type == JV_TUPLE ? jv_of_tuple(l) : jv_of_list(l);
    return true;
}

/* ---- membership */

static bool list_contains(struct jinja_run *r, const struct jv *item, const struct jv_list *l,
                          size_t *at, bool *out) {
    *out = false;
    while (*at < l->n && !*out) {
        if (!jinja_tick(r, 1) || !jv_equal(r, &l->v[(*at)++], item, out)) return false;
    }
    return true;
}

bool jinja_contains(struct jinja_run *r, const struct jv *item, const struct jv *in, bool *out) {
    struct jv got;
    struct jv_list *l;
    size_t at = 0;
    int64_t i;
    switch ((enum jv_type)in->type) {
    case JV_UNDEF: *out = false; return true;
    case JV_STR:
        if (item->type != JV_STR) {
            return jinja_fail(r, "'in <string>' requires string as left operand, not %s",
                              jv_type_name(item));
        }
        *out = jinja_text_find(in->s, in->n, 0, item->s, item->n) != SIZE_MAX;
        return jinja_tick(r, in->n / 128);
    case JV_DICT:
        if (!jv_dict_get(r, in->dict, item, &got)) return false;
        *out = got.type != JV_ABSENT;
        return true;
    case JV_ITER: return list_contains(r, item, in->iter->list, &in->iter->at, out);
    case JV_VIEW:
        if (in->sub == VIEW_KEYS) {
            if (!jv_dict_get(r, in->dict, item, &got)) return false;
            *out = got.type != JV_ABSENT;
            return true;
        }
        break;
    case JV_RANGE:
        if (jv_as_int(item, &i)) {
            const struct jv_range *g = in->range;
            __int128 off = (__int128)i - g->start;
            *out = off % g->step == 0 && off / g->step >= 0 && off / g->step < (__int128)g->n;
            return true;
        }
        break;
    case JV_LIST:
    case JV_TUPLE: break;
    default: return jinja_fail(r, "argument of type '%s' is not iterable", jv_type_name(in));
    }
    if (!jinja_iterate(r, in, &l)) return false;
    return list_contains(r, item, l, &at, out);
}

/* ---- sorting: a merge sort, since the order may fail at any comparison and must be stable. */

struct sorter {
    struct jinja_run *r;
    struct jv *keys, *items, *tmp_keys, *tmp_items;
    bool reverse;
};

static bool sort_part(struct sorter *s, size_t lo, size_t hi) {
    if (hi - lo < 2) return true;
    size_t mid = lo + (hi - lo) / 2;
    if (!sort_part(s, lo, mid) || !sort_part(s, mid, hi)) return false;
    for (size_t i = lo, a = lo, b = mid; i < hi; i++) {
        bool right = a == mid;
        if (a < mid && b < hi) {
            int c;
            if (!jinja_tick(s->r, 1) || !jv_compare(s->r, &s->keys[b], &s->keys[a], "<", &c))
                return false;
            right = s->reverse ? c > 0 : c < 0;
        }
        size_t from = right ? b++ : a++;
        s->tmp_keys[i] = s->keys[from];
        s->tmp_items[i] = s->items[from];
    }
    memcpy(s->keys + lo, s->tmp_keys + lo, (hi - lo) * sizeof(*s->keys));
    memcpy(s->items + lo, s->tmp_items + lo, (hi - lo) * sizeof(*s->items));
    return true;
}

bool jinja_sort(struct jinja_run *r, struct jv *keys, struct jv *items, size_t n, bool reverse) {
    struct sorter s = {.r = r, .keys = keys, .items = items, .reverse = reverse};
    s.tmp_keys = jinja_alloc(r, n * sizeof(*keys));
    s.tmp_items = jinja_alloc(r, n * sizeof(*items));
    if (s.tmp_keys == NULL || s.tmp_items == NULL) return false;
    return sort_part(&s, 0, n);
}
