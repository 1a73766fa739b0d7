/* jinja_filters: filters on sequences and mappings. */
#include <string.h>
#include "common/text/jinja_call.h"
#include "common/text/jinja_ops.h"
#include "common/text/jinja_print.h"
#include "common/text/jinja_seq.h"
#include "common/text/jinja_strings.h"

/* ---- keys: by attribute, case ignored */

struct key_of {
    struct jv path;
    const struct jv *absent;
    bool ignore_case;
};

static bool lower_key(struct jinja_run *r, bool ignore_case, struct jv *key) {
    struct jv k = *key;
    return !ignore_case || k.type != JV_STR || jinja_str_recase(r, &k, RECASE_LOWER, key);
}

static bool key_of(struct jinja_run *r, const struct key_of *k, const struct jv *item,
                   struct jv *out) {
    return jinja_get_path(r, item, &k->path, k->absent, out) && lower_key(r, k->ignore_case, out);
}

/* A list of the filter's own, that it may reorder. */
static bool self_list(struct jinja_call *c, struct jv_list **out) {
    struct jv_list *l;
    if (!jinja_iterate(c->r, &c->self, &l) || !jv_list_new(c->r, l->n, out)) return false;
    if (l->n > 0) memcpy((*out)->v, l->v, l->n * sizeof(*l->v));
    (*out)->n = l->n;
    return jinja_tick(c->r, l->n);
}

static bool keys_for(struct jinja_call *c, const struct key_of *k, const struct jv_list *l,
                     struct jv_list **out) {
    if (!jv_list_new(c->r, l->n, out)) return false;
    for (size_t i = 0; i < l->n; i++) {
        struct jv key;
        if (!key_of(c->r, k, &l->v[i], &key) || !jv_list_push(c->r, *out, key)) return false;
    }
    return true;
}

/* ---- filters */

static bool f_length(struct jinja_call *c) {
    size_t n;
    if (!jinja_seq_len(c->r, &c->self, &n)) return false;
    *c->out = jv_int((int64_t)n);
    return true;
}

static bool f_default(struct jinja_call *c) {
    bool use = c->self.type == JV_UNDEF || (jinja_param_bool(c, 1, false) && !jv_truth(&c->self));
    *c->out = !use ? c->self : c->a[0].type == JV_ABSENT ? jv_cstr("") : c->a[0];
    return true;
}

static bool f_first(struct jinja_call *c) {
    struct jv_list *l;
    if (c->self.type == JV_ITER) { /* takes one and leaves the rest */
        struct jv_iter *it = c->self.iter;
        bool any = it->at < it->list->n;
        *c->out = any ? it->list->v[it->at++] : jv_undef_hint("No first item, sequence was empty.");
        return true;
    }
    if (!jinja_iterate(c->r, &c->self, &l)) return false;
    *c->out = l->n > 0 ? l->v[0] : jv_undef_hint("No first item, sequence was empty.");
    return true;
}

static bool f_last(struct jinja_call *c) {
    struct jv_list *l;
    if (c->self.type == JV_ITER) return jinja_fail(c->r, "'generator' object is not reversible");
    if (!jinja_iterate(c->r, &c->self, &l)) return false;
    *c->out = l->n > 0 ? l->v[l->n - 1] : jv_undef_hint("No last item, sequence was empty.");
    return true;
}

static bool f_list(struct jinja_call *c) {
    struct jv_list *l;
    if (!self_list(c, &l)) return false;
    *c->out = jv_of_list(l);
    return true;
}

static bool f_join(struct jinja_call *c) {
    struct jv sep = jv_cstr(""), v;
    struct jv_list *l, *parts;
    if (c->a[0].type != JV_ABSENT && !jinja_to_str(c->r, &c->a[0], &sep)) return false;
    if (!jinja_iterate(c->r, &c->self, &l)) return false;
    if (c->a[1].type != JV_ABSENT && c->a[1].type != JV_NONE) {
        if (!jv_list_new(c->r, l->n, &parts)) return false;
        for (size_t i = 0; i < l->n; i++) {
            if (!jinja_get_path(c->r, &l->v[i], &c->a[1], NULL, &v) ||
                !jv_list_push(c->r, parts, v))
                return false;
        }
        l = parts;
    }
    return jinja_str_join(c->r, &sep, l, false, c->out);
}

static bool f_reverse(struct jinja_call *c) {
    struct jv_list *l, *back;
    if (c->self.type == JV_STR) {
        struct jv none = {0}, step = jv_int(-1);
        return jinja_slice(c->r, &c->self, &none, &none, &step, c->out);
    }
    if (!jinja_iterate(c->r, &c->self, &l) || !jv_list_new(c->r, l->n, &back)) return false;
    for (size_t i = l->n; i > 0; i--) {
        if (!jv_list_push(c->r, back, l->v[i - 1])) return false;
    }
    if (c->self.type != JV_ITER) return jv_iter_new(c->r, back, c->out);
    *c->out = jv_of_list(back);
    return true;
}

/* "a,b": sorted by a, then by b. */
static bool f_sort(struct jinja_call *c) {
    struct jv_list *l, *keys, *key;
    struct key_of k = {.ignore_case = !jinja_param_bool(c, 1, false)};
    const struct jv *path = &c->a[2];
    if (!self_list(c, &l) || !jv_list_new(c->r, l->n, &keys)) return false;
    for (size_t i = 0; i < l->n; i++) {
        if (!jv_list_new(c->r, 1, &key)) return false;
        for (size_t at = 0; path->type == JV_STR ? at <= path->n : at == 0;) {
            struct jv v;
            size_t end = path->type == JV_STR ? jinja_text_find(path->s, path->n, at, ",", 1) : 0;
            if (end == SIZE_MAX) end = path->n;
            k.path = path->type == JV_STR ? jv_str(path->s + at, end - at) : *path;
            if (!key_of(c->r, &k, &l->v[i], &v) || !jv_list_push(c->r, key, v)) return false;
            at = end + 1;
        }
        if (!jv_list_push(c->r, keys, jv_of_list(key))) return false;
    }
    if (!jinja_sort(c->r, keys->v, l->v, l->n, jinja_param_bool(c, 0, false))) return false;
    *c->out = jv_of_list(l);
    return true;
}

static bool f_unique(struct jinja_call *c) {
    struct jv_list *l, *kept;
    struct jv_dict *seen;
    struct key_of k = {.ignore_case = !jinja_param_bool(c, 0, false), .path = c->a[1]};
    if (!jinja_iterate(c->r, &c->self, &l) || !jv_list_new(c->r, 0, &kept) ||
        !jv_dict_new(c->r, &seen))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        struct jv key, got;
        if (!key_of(c->r, &k, &l->v[i], &key) || !jv_dict_get(c->r, seen, &key, &got)) return false;
        if (got.type != JV_ABSENT) continue;
        if (!jv_dict_set(c->r, seen, &key, jv_bool(true)) || !jv_list_push(c->r, kept, l->v[i]))
            return false;
    }
    return jv_iter_new(c->r, kept, c->out);
}

static bool min_or_max(struct jinja_call *c, int sign) {
    struct jv_list *l, *keys;
    struct key_of k = {.ignore_case = !jinja_param_bool(c, 0, false), .path = c->a[1]};
    size_t best = 0;
    if (!jinja_iterate(c->r, &c->self, &l) || !keys_for(c, &k, l, &keys)) return false;
    for (size_t i = 1; i < l->n; i++) {
        int order;
        if (!jv_compare(c->r, &keys->v[i], &keys->v[best], sign < 0 ? "<" : ">", &order))
            return false;
        if (order * sign > 0) best = i;
    }
    *c->out = l->n > 0 ? l->v[best] : jv_undef_hint("No aggregated item, sequence was empty.");
    return true;
}

static bool f_min(struct jinja_call *c) {
    return min_or_max(c, -1);
}
static bool f_max(struct jinja_call *c) {
    return min_or_max(c, 1);
}

static bool f_sum(struct jinja_call *c) {
    struct jv_list *l;
    struct jv total = c->a[1].type == JV_ABSENT ? jv_int(0) : c->a[1];
    if (total.type == JV_STR) return jinja_fail(c->r, "sum() can't sum strings");
    if (!jinja_iterate(c->r, &c->self, &l)) return false;
    for (size_t i = 0; i < l->n; i++) {
        struct jv v, so_far = total;
        if (!jinja_get_path(c->r, &l->v[i], &c->a[0], NULL, &v)) return false;
        if (!jinja_arith(c->r, OP_ADD, &so_far, &v, &total)) return false;
    }
    *c->out = total;
    return true;
}

static bool f_items(struct jinja_call *c) {
    struct jv view = {.type = JV_VIEW, .sub = VIEW_ITEMS, .dict = c->self.dict};
    struct jv_list *l;
    if (c->self.type == JV_UNDEF) {
        view = c->self;
    } else if (c->self.type != JV_DICT) {
        return jinja_fail(c->r, "can only get item pairs from a mapping, not %s",
                          jv_type_name(&c->self));
    }
    return jinja_iterate(c->r, &view, &l) && jv_iter_new(c->r, l, c->out);
}

static bool f_dictsort(struct jinja_call *c) {
    struct jv by, view = {.type = JV_VIEW, .sub = VIEW_ITEMS, .dict = c->self.dict};
    struct jv_list *l, *keys;
    bool ignore_case = !jinja_param_bool(c, 0, false);
    if (c->self.type == JV_UNDEF) return jinja_fail_undef(c->r, &c->self);
    if (c->self.type != JV_DICT)
        return jinja_fail(c->r, "dictsort needs a mapping, got %s", jv_type_name(&c->self));
    if (!jinja_param_str(c, 1, "key", &by)) return false;
    bool by_value = jv_is_str(&by, "value");
    if (!by_value && !jv_is_str(&by, "key"))
        return jinja_fail(c->r, "dictsort: by must be \"key\" or \"value\"");
    if (!jinja_iterate(c->r, &view, &l) || !jv_list_new(c->r, l->n, &keys)) return false;
    for (size_t i = 0; i < l->n; i++) {
        struct jv key = l->v[i].list->v[by_value];
        if (!lower_key(c->r, ignore_case, &key) || !jv_list_push(c->r, keys, key)) return false;
    }
    if (!jinja_sort(c->r, keys->v, l->v, l->n, jinja_param_bool(c, 2, false))) return false;
    *c->out = jv_of_list(l);
    return true;
}

static bool f_groupby(struct jinja_call *c) {
    struct jv_list *l, *keys, *groups, *row = NULL, *members = NULL;
    const struct jv *absent =
        c->a[1].type == JV_ABSENT || c->a[1].type == JV_NONE ? NULL : &c->a[1];
    struct key_of k = {
        .path = c->a[0], .absent = absent, .ignore_case = !jinja_param_bool(c, 2, false)};
    struct key_of exact = {.path = c->a[0], .absent = absent};
    if (!self_list(c, &l) || !keys_for(c, &k, l, &keys) ||
        !jinja_sort(c->r, keys->v, l->v, l->n, false))
        return false;
    if (!jv_list_new(c->r, 0, &groups)) return false;
    for (size_t i = 0; i < l->n; i++) {
        bool same = false;
        struct jv grouper;
        if (i > 0 && !jv_equal(c->r, &keys->v[i - 1], &keys->v[i], &same)) return false;
        if (!same) {
            if (!jv_list_new(c->r, 2, &row) || !jv_list_new(c->r, 0, &members)) return false;
            if (!key_of(c->r, &exact, &l->v[i], &grouper)) return false;
            if (!jv_list_push(c->r, row, grouper) || !jv_list_push(c->r, row, jv_of_list(members)))
                return false;
            struct jv group = jv_of_tuple(row);
            group.sub = TUPLE_GROUP;
            if (!jv_list_push(c->r, groups, group)) return false;
        }
        if (!jv_list_push(c->r, members, l->v[i])) return false;
    }
    *c->out = jv_of_list(groups);
    return true;
}

static bool f_batch(struct jinja_call *c) {
    struct jv_list *l, *rows, *row = NULL;
    int64_t n;
    bool fill = c->a[1].type != JV_ABSENT && c->a[1].type != JV_NONE;
    if (!jinja_param_int(c, 0, 0, &n) || !jinja_iterate(c->r, &c->self, &l) ||
        !jv_list_new(c->r, 0, &rows)) {
        return false;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (row == NULL || (int64_t)row->n == n) {
            if (i == 0 && n == 0 &&
                !(jv_list_new(c->r, 0, &row) && jv_list_push(c->r, rows, jv_of_list(row)))) {
                return false; /* Python: a first, empty row */
            }
            if (!jv_list_new(c->r, 0, &row) || !jv_list_push(c->r, rows, jv_of_list(row)))
                return false;
        }
        if (!jv_list_push(c->r, row, l->v[i])) return false;
    }
    while (row != NULL && fill && (int64_t)row->n < n) {
        if (!jv_list_push(c->r, row, c->a[1])) return false;
    }
    return jv_iter_new(c->r, rows, c->out);
}

static bool f_slice(struct jinja_call *c) {
    struct jv_list *l, *rows, *row;
    int64_t n;
    bool fill = c->a[1].type != JV_ABSENT && c->a[1].type != JV_NONE;
    if (!jinja_param_int(c, 0, 0, &n) || !jinja_iterate(c->r, &c->self, &l) ||
        !jv_list_new(c->r, 0, &rows)) {
        return false;
    }
    if (n == 0) return jinja_fail(c->r, "slice: division by zero");
    for (int64_t i = 0, at = 0; i < n; i++) {
        int64_t per = (int64_t)l->n / n, extra = (int64_t)l->n % n, end = at + per + (i < extra);
        if (!jv_list_new(c->r, 0, &row)) return false;
        while (at < end) {
            if (!jv_list_push(c->r, row, l->v[at++])) return false;
        }
        if (fill && i >= extra && !jv_list_push(c->r, row, c->a[1])) return false;
        if (!jv_list_push(c->r, rows, jv_of_list(row))) return false;
    }
    return jv_iter_new(c->r, rows, c->out);
}

static bool f_attr(struct jinja_call *c) {
    struct jv name;
    if (!jinja_param_str(c, 0, NULL, &name)) return false;
    if (c->self.type == JV_DICT && jinja_method_find(&c->self, &name) == NULL) {
        *c->out = jv_undef_member(&c->self, &name); /* attributes only, no keys */
        return true;
    }
    return jinja_get_attr(c->r, &c->self, &name, c->out);
}

/* ---- filters that take the name of a filter or test */

static struct jinja_args args_from(const struct jinja_args *a, size_t n) {
    struct jinja_args rest = *a;
    rest.pos += n;
    rest.n_pos -= n;
    return rest;
}

static bool map_kwargs(struct jinja_call *c, struct jv *path, const struct jv **absent) {
    *path = (struct jv){0};
    *absent = NULL;
    for (size_t i = 0; i < c->args->n_kw; i++) {
        if (jv_is_str(&c->args->kw_names[i], "attribute")) {
            *path = c->args->kw[i];
        } else if (jv_is_str(&c->args->kw_names[i], "default")) {
            if (c->args->kw[i].type != JV_NONE) *absent = &c->args->kw[i];
        } else {
            return jinja_fail(c->r, "map takes no argument '%.*s'", (int)c->args->kw_names[i].n,
                              c->args->kw_names[i].s);
        }
    }
    return path->type != JV_ABSENT || jinja_fail(c->r, "map needs a filter or attribute=");
}

static bool f_map(struct jinja_call *c) {
    struct jv_list *l, *mapped;
    struct jv path, v;
    const struct jv *absent = NULL;
    const struct jinja_def *def = NULL;
    struct jinja_args rest = {0};
    if (!jv_list_new(c->r, 0, &mapped)) return false;
    if (!jv_truth(&c->self)) return jv_iter_new(c->r, mapped, c->out);
    if (c->args->n_pos == 0) {
        if (!map_kwargs(c, &path, &absent)) return false;
    } else {
        const struct jv *name = &c->args->pos[0];
        if (name->type == JV_STR) def = jinja_filter_find(name->s, name->n);
        if (def == NULL) return jinja_fail(c->r, "map: no filter of this name");
        rest = args_from(c->args, 1);
    }
    if (!jinja_iterate(c->r, &c->self, &l)) return false;
    for (size_t i = 0; i < l->n; i++) {
        bool ok = def != NULL ? jinja_call_def(c->r, def, &l->v[i], &rest, &v)
                              : jinja_get_path(c->r, &l->v[i], &path, absent, &v);
        if (!ok || !jv_list_push(c->r, mapped, v)) return false;
    }
    return jv_iter_new(c->r, mapped, c->out);
}

/* select, reject, selectattr, rejectattr: items whose test (of an attribute) gives `want`. */
static bool select_items(struct jinja_call *c, bool by_attr, bool want) {
    struct jv_list *l, *kept;
    const struct jinja_def *def = NULL;
    size_t off = by_attr ? 1 : 0;
    struct jinja_args rest = {0};
    if (!jv_list_new(c->r, 0, &kept)) return false;
    if (!jv_truth(&c->self)) return jv_iter_new(c->r, kept, c->out);
    if (c->args->n_pos < off) return jinja_fail(c->r, "%s needs the name of an attribute", c->name);
    if (c->args->n_pos > off) {
        const struct jv *name = &c->args->pos[off];
        if (name->type == JV_STR) def = jinja_test_find(name->s, name->n);
        if (def == NULL) return jinja_fail(c->r, "%s: no test of this name", c->name);
        rest = args_from(c->args, off + 1);
    }
    if (!jinja_iterate(c->r, &c->self, &l)) return false;
    for (size_t i = 0; i < l->n; i++) {
        struct jv v = l->v[i], verdict;
        if (by_attr && !jinja_get_path(c->r, &l->v[i], &c->args->pos[0], NULL, &v)) return false;
        verdict = v;
        if (def != NULL && !jinja_call_def(c->r, def, &v, &rest, &verdict)) return false;
        if (jv_truth(&verdict) == want && !jv_list_push(c->r, kept, l->v[i])) return false;
    }
    return jv_iter_new(c->r, kept, c->out);
}

static bool f_select(struct jinja_call *c) {
    return select_items(c, false, true);
}
static bool f_reject(struct jinja_call *c) {
    return select_items(c, false, false);
}
static bool f_selectattr(struct jinja_call *c) {
    return select_items(c, true, true);
}
static bool f_rejectattr(struct jinja_call *c) {
    return select_items(c, true, false);
}

static const struct jinja_def filters[] = {
    {"length", f_length, "", 0},
    {"count", f_length, "", 0},
    {"default", f_default, "default_value boolean", 0},
    {"d", f_default, "default_value boolean", 0},
    {"first", f_first, "", 0},
    {"last", f_last, "", 0},
    {"list", f_list, "", 0},
    {"join", f_join, "d attribute", 0},
    {"reverse", f_reverse, "", 0},
    {"sort", f_sort, "reverse case_sensitive attribute", 0},
    {"unique", f_unique, "case_sensitive attribute", 0},
    {"min", f_min, "case_sensitive attribute", 0},
    {"max", f_max, "case_sensitive attribute", 0},
    {"sum", f_sum, "attribute start", 0},
    {"items", f_items, "", 0},
    {"dictsort", f_dictsort, "case_sensitive by reverse", 0},
    {"groupby", f_groupby, "attribute default case_sensitive", 1},
    {"batch", f_batch, "linecount fill_with", 1},
    {"slice", f_slice, "slices fill_with", 1},
    {"attr", f_attr, "name", 1},
    {"map", f_map, NULL, 0},
    {"select", f_select, NULL, 0},
    {"reject", f_reject, NULL, 0},
    {"selectattr", f_selectattr, NULL, 0},
    {"rejectattr", f_rejectattr, NULL, 0},
};

const struct jinja_def *jinja_filter_find(const char *name, size_t n) {
    const struct jinja_def *def =
        jinja_def_find(filters, sizeof(filters) / sizeof(*filters), name, n);
    return def != NULL ? def : jinja_text_filter_find(name, n);
}
