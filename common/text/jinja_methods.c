/* jinja_methods: methods of str, list, tuple and dict. Positions are characters, as in Python. */
#include <string.h>
#include "common/text/jinja_call.h"
#include "common/text/jinja_format.h"
#include "common/text/jinja_loop.h"
#include "common/text/jinja_seq.h"
#include "common/text/jinja_strings.h"

static bool give_int(struct jinja_call *c, int64_t i) {
    *c->out = jv_int(i);
    return true;
}

static bool give_bool(struct jinja_call *c, bool b) {
    *c->out = jv_bool(b);
    return true;
}

/* Text between two arguments start and end (characters), as Python's str methods take them.
 * *from: where it starts, in bytes. False in *inside: start lies behind the end of the text. */
static bool window(struct jinja_call *c, int at, struct jv *text, size_t *from, bool *inside) {
    int64_t len = (int64_t)jinja_text_len(c->self.s, c->self.n), start, end;
    for (int i = at; i < at + 2; i++) {
        if (c->a[i].type == JV_NONE) c->a[i].type = JV_ABSENT;
    }
    if (!jinja_param_int(c, at, 0, &start) || !jinja_param_int(c, at + 1, len, &end)) return false;
    if (start < 0 && (start += len) < 0) start = 0;
    if (end < 0 && (end += len) < 0) end = 0;
    if (end > len) end = len;
    *inside = start <= len && start <= end;
    *from = *inside ? jinja_text_offset(c->self.s, c->self.n, (size_t)start) : c->self.n;
    size_t to = *inside ? jinja_text_offset(c->self.s, c->self.n, (size_t)end) : *from;
    *text = jv_str(c->self.s + *from, to - *from);
    return jinja_tick(c->r, c->self.n / 128);
}

/* ---- trimming, case */

static bool strip(struct jinja_call *c, int sides) {
    struct jv chars;
    bool space = c->a[0].type == JV_ABSENT || c->a[0].type == JV_NONE;
    if (!space && !jinja_param_str(c, 0, NULL, &chars)) return false;
    if (!space) return jinja_str_strip_chars(c->r, &c->self, &chars, sides, c->out);
    *c->out = jinja_str_strip(&c->self, sides);
    return true;
}

static bool s_strip(struct jinja_call *c) {
    return strip(c, STRIP_LEFT | STRIP_RIGHT);
}
static bool s_lstrip(struct jinja_call *c) {
    return strip(c, STRIP_LEFT);
}
static bool s_rstrip(struct jinja_call *c) {
    return strip(c, STRIP_RIGHT);
}
static bool s_upper(struct jinja_call *c) {
    return jinja_str_recase(c->r, &c->self, RECASE_UPPER, c->out);
}
static bool s_lower(struct jinja_call *c) {
    return jinja_str_recase(c->r, &c->self, RECASE_LOWER, c->out);
}
static bool s_title(struct jinja_call *c) {
    return jinja_str_recase(c->r, &c->self, RECASE_TITLE, c->out);
}
static bool s_swapcase(struct jinja_call *c) {
    return jinja_str_recase(c->r, &c->self, RECASE_SWAP, c->out);
}

static bool s_capitalize(struct jinja_call *c) {
    return jinja_str_recase(c->r, &c->self, RECASE_CAPITALIZE, c->out);
}

/* ---- splitting */

/* Without a separator: at runs of white space, none at the ends. */
static bool split_space(struct jinja_call *c, int64_t n_max, bool from_right, struct jv_list *l) {
    struct jv rest = jinja_str_strip(&c->self, from_right ? STRIP_RIGHT : STRIP_LEFT);
    while (rest.n > 0) {
        size_t at = from_right ? rest.n : 0;
        if (n_max >= 0 && (int64_t)l->n == n_max) at = from_right ? 0 : rest.n;
        while (from_right ? at > 0 : at < rest.n) {
            size_t next = at;
            int32_t ch = from_right ? jinja_char_prev(rest.s, &next)
                                    : jinja_char_next(rest.s, rest.n, &next);
            if (jinja_is_space(ch)) break;
            at = next;
        }
        struct jv part = from_right ? jv_str(rest.s + at, rest.n - at) : jv_str(rest.s, at);
        rest = from_right ? jv_str(rest.s, at) : jv_str(rest.s + at, rest.n - at);
        rest = jinja_str_strip(&rest, from_right ? STRIP_RIGHT : STRIP_LEFT);
        /* The last part takes what is left as it is, up to white space at the far end. */
        if (!jv_list_push(c->r, l, part)) return false;
    }
    return true;
}

static bool split_at(struct jinja_call *c, const struct jv *sep, int64_t n_max, bool from_right,
                     struct jv_list *l) {
    struct jv rest = c->self;
    if (sep->n == 0) return jinja_fail(c->r, "%s: empty separator", c->name);
    for (;;) {
        size_t at = SIZE_MAX;
        if (n_max < 0 || (int64_t)l->n < n_max) {
            at = from_right ? SIZE_MAX : jinja_text_find(rest.s, rest.n, 0, sep->s, sep->n);
            if (from_right && !jinja_str_rfind(c->r, &rest, sep, &at)) return false;
        }
        if (at == SIZE_MAX) return jv_list_push(c->r, l, rest);
        size_t behind = at + sep->n;
        struct jv part = from_right ? jv_str(rest.s + behind, rest.n - behind) : jv_str(rest.s, at);
        rest = from_right ? jv_str(rest.s, at) : jv_str(rest.s + behind, rest.n - behind);
        if (!jv_list_push(c->r, l, part)) return false;
    }
}

/* Parts of text that is marked as safe are safe. */
static bool give_parts(struct jinja_call *c, struct jv_list *l, bool tuple) {
    for (size_t i = 0; i < l->n; i++) l->v[i].sub = c->self.sub;
    *c->out = tuple ? jv_of_tuple(l) : jv_of_list(l);
    return true;
}

static bool split(struct jinja_call *c, bool from_right) {
    struct jv_list *l;
    struct jv sep;
    int64_t n_max;
    bool space = c->a[0].type == JV_ABSENT || c->a[0].type == JV_NONE;
    if (!space && !jinja_param_str(c, 0, NULL, &sep)) return false;
    if (!jinja_param_int(c, 1, -1, &n_max) || !jv_list_new(c->r, 0, &l)) return false;
    if (!jinja_tick(c->r, c->self.n / 64)) return false;
    if (!(space ? split_space(c, n_max, from_right, l) : split_at(c, &sep, n_max, from_right, l)))
        return false;
    for (size_t i = 0; from_right && i < l->n / 2; i++) {
        struct jv v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
    return give_parts(c, l, false);
}

static bool s_split(struct jinja_call *c) {
    return split(c, false);
}
static bool s_rsplit(struct jinja_call *c) {
    return split(c, true);
}

static bool s_splitlines(struct jinja_call *c) {
    struct jv_list *l;
    if (!jinja_str_lines(c->r, &c->self, jinja_param_bool(c, 0, false), &l)) return false;
    return give_parts(c, l, false);
}

static bool partition(struct jinja_call *c, bool from_right) {
    struct jv_list *l;
    struct jv sep, s = c->self;
    if (!jinja_param_str(c, 0, NULL, &sep) || !jv_list_new(c->r, 3, &l)) return false;
    if (sep.n == 0) return jinja_fail(c->r, "%s: empty separator", c->name);
    size_t at = from_right ? SIZE_MAX : jinja_text_find(s.s, s.n, 0, sep.s, sep.n);
    if (from_right && !jinja_str_rfind(c->r, &s, &sep, &at)) return false;
    l->n = 3;
    if (at == SIZE_MAX) {
        l->v[0] = l->v[1] = l->v[2] = jv_cstr("");
        l->v[from_right ? 2 : 0] = s;
    } else {
        l->v[0] = jv_str(s.s, at);
        l->v[1] = sep;
        l->v[2] = jv_str(s.s + at + sep.n, s.n - at - sep.n);
    }
    return jinja_tick(c->r, s.n / 64) && give_parts(c, l, true);
}

static bool s_partition(struct jinja_call *c) {
    return partition(c, false);
}
static bool s_rpartition(struct jinja_call *c) {
    return partition(c, true);
}

/* ---- searching */

static bool affix_matches(const struct jv *s, const struct jv *affix, bool at_end) {
    if (affix->n > s->n) return false;
    return memcmp(at_end ? s->s + (s->n - affix->n) : s->s, affix->s, affix->n) == 0;
}

static bool has_affix(struct jinja_call *c, bool at_end) {
    struct jv s;
    size_t from;
    bool inside, any = false;
    const struct jv *one = &c->a[0];
    size_t n = 1;
    if (!window(c, 1, &s, &from, &inside)) return false;
    if (one->type == JV_TUPLE) {
        n = one->list->n;
        one = one->list->v;
    }
    for (size_t i = 0; i < n; i++) {
        if (one[i].type != JV_STR) {
            return jinja_fail(c->r, "%s: first argument must be str or a tuple of str, not %s",
                              c->name, jv_type_name(&one[i]));
        }
        any |= inside && affix_matches(&s, &one[i], at_end);
    }
    return give_bool(c, any);
}

static bool s_startswith(struct jinja_call *c) {
    return has_affix(c, false);
}
static bool s_endswith(struct jinja_call *c) {
    return has_affix(c, true);
}

static bool find(struct jinja_call *c, bool from_right, bool must) {
    struct jv s, what;
    size_t from, at;
    bool inside;
    if (!jinja_param_str(c, 0, NULL, &what) || !window(c, 1, &s, &from, &inside)) return false;
    at = from_right ? SIZE_MAX : jinja_text_find(s.s, s.n, 0, what.s, what.n);
    if (from_right && !jinja_str_rfind(c->r, &s, &what, &at)) return false;
    if (!inside || at == SIZE_MAX)
        return must ? jinja_fail(c->r, "%s: substring not found", c->name) : give_int(c, -1);
    return give_int(c, (int64_t)jinja_text_len(c->self.s, from + at));
}

static bool s_find(struct jinja_call *c) {
    return find(c, false, false);
}
static bool s_rfind(struct jinja_call *c) {
    return find(c, true, false);
}
static bool s_index(struct jinja_call *c) {
    return find(c, false, true);
}
static bool s_rindex(struct jinja_call *c) {
    return find(c, true, true);
}

static bool s_count(struct jinja_call *c) {
    struct jv s, what;
    size_t from;
    bool inside;
    int64_t n = 0;
    if (!jinja_param_str(c, 0, NULL, &what) || !window(c, 1, &s, &from, &inside)) return false;
    if (!inside) return give_int(c, 0);
    if (what.n == 0) return give_int(c, (int64_t)jinja_text_len(s.s, s.n) + 1);
    for (size_t at = 0; (at = jinja_text_find(s.s, s.n, at, what.s, what.n)) != SIZE_MAX;
         at += what.n)
        n++;
    return give_int(c, n);
}

/* ---- building */

static bool s_replace(struct jinja_call *c) {
    struct jv old, new;
    int64_t n;
    return jinja_param_str(c, 0, NULL, &old) && jinja_param_str(c, 1, NULL, &new) &&
           jinja_param_int(c, 2, -1, &n) &&
           jinja_str_replace(c->r, &c->self, &old, &new, n, c->out);
}

static bool s_join(struct jinja_call *c) {
    struct jv_list *l;
    return jinja_iterate(c->r, &c->a[0], &l) && jinja_str_join(c->r, &c->self, l, true, c->out);
}

static bool remove_affix(struct jinja_call *c, bool at_end) {
    struct jv affix;
    if (!jinja_param_str(c, 0, NULL, &affix)) return false;
    *c->out = c->self;
    if (affix_matches(&c->self, &affix, at_end)) {
        *c->out = jv_str(c->self.s + (at_end ? 0 : affix.n), c->self.n - affix.n);
    }
    return true;
}

static bool s_removeprefix(struct jinja_call *c) {
    return remove_affix(c, false);
}
static bool s_removesuffix(struct jinja_call *c) {
    return remove_affix(c, true);
}

static bool pad(struct jinja_call *c, char align) {
    struct jv fill;
    int64_t width;
    size_t at = 0;
    if (!jinja_param_int(c, 0, 0, &width) || !jinja_param_str(c, 1, " ", &fill)) return false;
    if (jinja_text_len(fill.s, fill.n) != 1)
        return jinja_fail(c->r, "%s: the fill must be one character", c->name);
    return jinja_str_pad(c->r, &c->self, width, align, jinja_char_next(fill.s, fill.n, &at),
                         c->out);
}

static bool s_ljust(struct jinja_call *c) {
    return pad(c, '<');
}
static bool s_rjust(struct jinja_call *c) {
    return pad(c, '>');
}
static bool s_center(struct jinja_call *c) {
    return pad(c, '^');
}

static bool s_zfill(struct jinja_call *c) {
    int64_t width;
    struct jv rest = c->self, digits;
    if (!jinja_param_int(c, 0, 0, &width)) return false;
    bool sign = rest.n > 0 && (rest.s[0] == '-' || rest.s[0] == '+');
    if (sign) rest = jv_str(rest.s + 1, rest.n - 1);
    if (!jinja_str_pad(c->r, &rest, width - sign, '>', '0', &digits)) return false;
    struct jv first = jv_str(c->self.s, sign), parts[] = {first, digits}, none = jv_cstr("");
    struct jv_list l = {.v = parts, .n = 2};
    return jinja_str_join(c->r, &none, &l, true, c->out);
}

static bool s_format(struct jinja_call *c) {
    return jinja_format_braces(c->r, &c->self, c->args, c->out);
}

/* ---- asking */

static bool is_ascii(int32_t ch) {
    return ch >= 0 && ch < 0x80;
}
static bool s_isdigit(struct jinja_call *c) {
    return give_bool(c, jinja_str_all(&c->self, jinja_is_digit));
}
static bool s_isdecimal(struct jinja_call *c) {
    return give_bool(c, jinja_str_all(&c->self, jinja_is_decimal));
}
static bool s_isalpha(struct jinja_call *c) {
    return give_bool(c, jinja_str_all(&c->self, jinja_is_alpha));
}
static bool s_isalnum(struct jinja_call *c) {
    return give_bool(c, jinja_str_all(&c->self, jinja_is_alnum));
}
static bool s_isspace(struct jinja_call *c) {
    return give_bool(c, jinja_str_all(&c->self, jinja_is_space));
}
static bool s_islower(struct jinja_call *c) {
    return give_bool(c, jinja_str_is_case(&c->self, true));
}
static bool s_isupper(struct jinja_call *c) {
    return give_bool(c, jinja_str_is_case(&c->self, false));
}

static bool s_isascii(struct jinja_call *c) {
    return give_bool(c, c->self.n == 0 || jinja_str_all(&c->self, is_ascii));
}

/* ---- list, tuple, range */

static bool l_index(struct jinja_call *c) {
    struct jv_list *l;
    bool same;
    if (!jinja_iterate(c->r, &c->self, &l)) return false;
    for (size_t i = 0; i < l->n; i++) {
        if (!jinja_tick(c->r, 1) || !jv_equal(c->r, &l->v[i], &c->a[0], &same)) return false;
        if (same) return give_int(c, (int64_t)i);
    }
    return jinja_fail(c->r, "index: the value is not in the %s", jv_type_name(&c->self));
}

static bool l_count(struct jinja_call *c) {
    struct jv_list *l;
    int64_t n = 0;
    bool same;
    if (!jinja_iterate(c->r, &c->self, &l)) return false;
    for (size_t i = 0; i < l->n; i++) {
        if (!jinja_tick(c->r, 1) || !jv_equal(c->r, &l->v[i], &c->a[0], &same)) return false;
        n += same;
    }
    return give_int(c, n);
}

static bool give_self(struct jinja_call *c) { /* copy(): nothing can change the original */
    *c->out = c->self;
    return true;
}

/* ---- dict */

static bool d_get(struct jinja_call *c) {
    if (!jv_dict_get(c->r, c->self.dict, &c->a[0], c->out)) return false;
    if (c->out->type == JV_ABSENT) *c->out = c->a[1].type == JV_ABSENT ? jv_none() : c->a[1];
    return true;
}

static bool view(struct jinja_call *c, enum jv_view which) {
    *c->out = (struct jv){.type = JV_VIEW, .sub = (uint8_t)which, .dict = c->self.dict};
    return true;
}

static bool d_items(struct jinja_call *c) {
    return view(c, VIEW_ITEMS);
}
static bool d_keys(struct jinja_call *c) {
    return view(c, VIEW_KEYS);
}
static bool d_values(struct jinja_call *c) {
    return view(c, VIEW_VALUES);
}

static const struct jinja_def str_methods[] = {
    {"strip", s_strip, "chars", 0},
    {"lstrip", s_lstrip, "chars", 0},
    {"rstrip", s_rstrip, "chars", 0},
    {"upper", s_upper, "", 0},
    {"lower", s_lower, "", 0},
    {"casefold", s_lower, "", 0},
    {"title", s_title, "", 0},
    {"capitalize", s_capitalize, "", 0},
    {"swapcase", s_swapcase, "", 0},
    {"split", s_split, "sep maxsplit", 0},
    {"rsplit", s_rsplit, "sep maxsplit", 0},
    {"splitlines", s_splitlines, "keepends", 0},
    {"partition", s_partition, "sep", 1},
    {"rpartition", s_rpartition, "sep", 1},
    {"startswith", s_startswith, "prefix start end", 1},
    {"endswith", s_endswith, "suffix start end", 1},
    {"find", s_find, "sub start end", 1},
    {"rfind", s_rfind, "sub start end", 1},
    {"index", s_index, "sub start end", 1},
    {"rindex", s_rindex, "sub start end", 1},
    {"count", s_count, "sub start end", 1},
    {"replace", s_replace, "old new count", 2},
    {"join", s_join, "iterable", 1},
    {"removeprefix", s_removeprefix, "prefix", 1},
    {"removesuffix", s_removesuffix, "suffix", 1},
    {"ljust", s_ljust, "width fillchar", 1},
    {"rjust", s_rjust, "width fillchar", 1},
    {"center", s_center, "width fillchar", 1},
    {"zfill", s_zfill, "width", 1},
    {"format", s_format, NULL, 0},
    {"isdigit", s_isdigit, "", 0},
    {"isdecimal", s_isdecimal, "", 0},
    {"isnumeric", s_isdigit, "", 0},
    {"isalpha", s_isalpha, "", 0},
    {"isalnum", s_isalnum, "", 0},
    {"isspace", s_isspace, "", 0},
    {"islower", s_islower, "", 0},
    {"isupper", s_isupper, "", 0},
    {"isascii", s_isascii, "", 0},
};

static const struct jinja_def list_methods[] = {
    {"index", l_index, "value", 1},
    {"count", l_count, "value", 1},
    {"copy", give_self, "", 0}, /* the last row: tuples and ranges have none */
};

static const struct jinja_def dict_methods[] = {
    {"get", d_get, "key default", 1}, {"items", d_items, "", 0},  {"keys", d_keys, "", 0},
    {"values", d_values, "", 0},      {"copy", give_self, "", 0},
};

#define ROWS(table) (sizeof(table) / sizeof(*(table)))

const struct jinja_def *jinja_method_find(const struct jv *of, const struct jv *name) {
    switch ((enum jv_type)of->type) {
    case JV_STR: return jinja_def_find(str_methods, ROWS(str_methods), name->s, name->n);
    case JV_LIST: return jinja_def_find(list_methods, ROWS(list_methods), name->s, name->n);
    case JV_TUPLE:
    case JV_RANGE: return jinja_def_find(list_methods, ROWS(list_methods) - 1, name->s, name->n);
    case JV_DICT: return jinja_def_find(dict_methods, ROWS(dict_methods), name->s, name->n);
    case JV_LOOP: return jinja_def_find(jinja_loop_methods, LOOP_METHODS, name->s, name->n);
    default: return NULL;
    }
}

bool jinja_method_is_unsafe(const struct jv *of, const struct jv *name) {
    static const char *const of_list[] = {"append", "reverse", "insert", "sort", "extend",
                                          "remove", "pop",     "clear",  NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *word = of->type == JV_LIST ? of_list : of->type == JV_DICT ? of_dict : NULL;
    for (; word != NULL && *word != NULL; word++) {
        if (jv_is_str(name, *word)) return true;
    }
    return false;
}
