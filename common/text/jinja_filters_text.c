/* jinja_filters_text: filters on text and numbers. */
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_call.h"
#include "common/text/jinja_format.h"
#include "common/text/jinja_print.h"
#include "common/text/jinja_seq.h"
#include "common/text/jinja_strings.h"

static bool self_str(struct jinja_call *c, struct jv *out) {
    return jinja_to_str(c->r, &c->self, out);
}

static bool recase(struct jinja_call *c, enum jinja_recase how) {
    struct jv s;
    return self_str(c, &s) && jinja_str_recase(c->r, &s, how, c->out);
}

static bool f_upper(struct jinja_call *c) {
    return recase(c, RECASE_UPPER);
}
static bool f_lower(struct jinja_call *c) {
    return recase(c, RECASE_LOWER);
}
static bool f_capitalize(struct jinja_call *c) {
    return recase(c, RECASE_CAPITALIZE);
}
static bool f_string(struct jinja_call *c) {
    return self_str(c, c->out);
}

/* Words start after white space, '-' and opening brackets: Jinja's own rule, not str.title(). */
static bool f_title(struct jinja_call *c) {
    struct jv s;
    struct jinja_sb t;
    bool in_word = false;
    if (!self_str(c, &s)) return false;
    jinja_sb_init(&t, c->r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    for (size_t at = 0; at < s.n && !t.failed;) {
        int32_t ch = jinja_char_next(s.s, s.n, &at), mapped[3];
        int n = jinja_char_case(ch, in_word ? CASE_LOWER : CASE_UPPER, mapped);
        for (int i = 0; i < n; i++) jinja_sb_addc(&t, mapped[i]);
        in_word =
            !(jinja_is_space(ch) || ch == '-' || ch == '(' || ch == '{' || ch == '[' || ch == '<');
    }
    return jinja_sb_take(&t, c->out);
}

static bool f_trim(struct jinja_call *c) {
    struct jv s, chars;
    bool all = c->a[0].type == JV_ABSENT || c->a[0].type == JV_NONE;
    if (!self_str(c, &s) || (!all && !jinja_param_str(c, 0, NULL, &chars))) return false;
    if (!all) return jinja_str_strip_chars(c->r, &s, &chars, STRIP_LEFT | STRIP_RIGHT, c->out);
    *c->out = jinja_str_strip(&s, STRIP_LEFT | STRIP_RIGHT);
    return true;
}

static bool f_replace(struct jinja_call *c) {
    struct jv s, old, new;
    int64_t n;
    if (c->a[2].type == JV_NONE) c->a[2].type = JV_ABSENT;
    if (!self_str(c, &s) || !jinja_to_str(c->r, &c->a[0], &old) ||
        !jinja_to_str(c->r, &c->a[1], &new))
        return false;
    return jinja_param_int(c, 2, -1, &n) && jinja_str_replace(c->r, &s, &old, &new, n, c->out);
}

static bool f_center(struct jinja_call *c) {
    struct jv s;
    int64_t width;
    return self_str(c, &s) && jinja_param_int(c, 0, 80, &width) &&
           jinja_str_pad(c->r, &s, width, '^', ' ', c->out);
}

static bool f_indent(struct jinja_call *c) {
    struct jv pad = c->a[0];
    struct jv_list *lines;
    struct jinja_sb t;
    int64_t width;
    bool first = jinja_param_bool(c, 1, false), blank = jinja_param_bool(c, 2, false);
    if (c->self.type == JV_UNDEF) return jinja_fail_undef(c->r, &c->self);
    if (c->self.type != JV_STR)
        return jinja_fail(c->r, "indent needs a string, got %s", jv_type_name(&c->self));
    if (pad.type != JV_STR) {
        struct jv empty = jv_cstr("");
        if (!jinja_param_int(c, 0, 4, &width) ||
            !jinja_str_pad(c->r, &empty, width, '>', ' ', &pad))
            return false;
    }
    if (!jinja_str_lines(c->r, &c->self, false, &lines)) return false;
    /* Jinja appends a newline before it splits, so an empty text has one line, and a line end at
     * the end makes one more. */
    char end = c->self.n > 0 ? c->self.s[c->self.n - 1] : '\0';
    if ((c->self.n == 0 || (jinja_is_line_end(end) && end != '\r')) &&
        !jv_list_push(c->r, lines, jv_cstr(""))) {
        return false;
    }
    jinja_sb_init(&t, c->r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    for (size_t i = 0; i < lines->n && !t.failed; i++) {
        if (i > 0) jinja_sb_addc(&t, '\n');
        if (i == 0 ? first : blank || lines->v[i].n > 0) jinja_sb_add(&t, pad.s, pad.n);
        jinja_sb_add(&t, lines->v[i].s, lines->v[i].n);
    }
    return jinja_sb_take(&t, c->out);
}

static bool f_wordcount(struct jinja_call *c) {
    struct jv s;
    int64_t n = 0;
    bool in_word = false;
    if (!self_str(c, &s)) return false;
    for (size_t at = 0; at < s.n;) {
        bool word = jinja_is_word(jinja_char_next(s.s, s.n, &at));
        n += word && !in_word;
        in_word = word;
    }
    *c->out = jv_int(n);
    return jinja_tick(c->r, s.n / 128);
}

static bool f_truncate(struct jinja_call *c) {
    struct jv end;
    int64_t length, leeway;
    if (!jinja_param_int(c, 0, 255, &length) || !jinja_param_str(c, 2, "...", &end)) return false;
    if (c->a[3].type == JV_NONE) c->a[3].type = JV_ABSENT;
    if (!jinja_param_int(c, 3, 5, &leeway)) return false;
    int64_t end_len = (int64_t)jinja_text_len(end.s, end.n);
    if (length < end_len || leeway < 0) {
        return jinja_fail(c->r, "truncate: length must be at least %lld and leeway at least 0",
                          (long long)end_len);
    }
    size_t len;
    if (!jinja_seq_len(c->r, &c->self, &len)) return false;
    if ((int64_t)len - leeway <= length) {
        *c->out = c->self; /* of whatever type */
        return true;
    }
    if (c->self.type != JV_STR)
        return jinja_fail(c->r, "truncate needs a string, got %s", jv_type_name(&c->self));
    struct jv kept =
        jv_str(c->self.s, jinja_text_offset(c->self.s, c->self.n, (size_t)(length - end_len)));
    if (!jinja_param_bool(c, 1, false)) {
        struct jv blank = jv_cstr(" ");
        size_t space;
        if (!jinja_str_rfind(c->r, &kept, &blank, &space)) return false;
        if (space != SIZE_MAX) kept.n = (uint32_t)space;
    }
    struct jinja_sb t;
    jinja_sb_init(&t, c->r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    jinja_sb_add(&t, kept.s, kept.n);
    jinja_sb_add(&t, end.s, end.n);
    return jinja_sb_take(&t, c->out);
}

bool jinja_escape(struct jinja_run *r, const struct jv *v, struct jv *out) {
    struct jv s;
    struct jinja_sb t;
    if (!jinja_to_str(r, v, &s)) return false;
    *out = s;
    out->sub = STR_SAFE;
    if (s.sub == STR_SAFE) return true;
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    for (size_t i = 0, done = 0; i <= s.n && !t.failed; i++) {
        char c = i < s.n ? s.s[i] : '\0';
        const char *as = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : NULL;
        if (as == NULL && i < s.n) continue;
        jinja_sb_add(&t, s.s + done, i - done);
        if (as != NULL) jinja_sb_adds(&t, as);
        done = i + 1;
    }
    if (!jinja_sb_take(&t, out)) return false;
    out->sub = STR_SAFE;
    return true;
}

static bool f_escape(struct jinja_call *c) {
    return jinja_escape(c->r, &c->self, c->out);
}

static bool f_forceescape(struct jinja_call *c) {
    struct jv s;
    if (!self_str(c, &s)) return false;
    s.sub = STR_PLAIN;
    return jinja_escape(c->r, &s, c->out);
}

static bool f_safe(struct jinja_call *c) {
    if (!self_str(c, c->out)) return false;
    c->out->sub = STR_SAFE;
    return true;
}

static bool f_format(struct jinja_call *c) {
    struct jv s, arg;
    struct jv_list *l;
    struct jv_dict *d;
    if (!self_str(c, &s)) return false;
    if (c->args->n_pos > 0 && c->args->n_kw > 0) {
        return jinja_fail(c->r, "format takes positional or keyword arguments, not both");
    }
    if (c->args->n_kw > 0) {
        if (!jv_dict_new(c->r, &d)) return false;
        for (size_t i = 0; i < c->args->n_kw; i++) {
            if (!jv_dict_set(c->r, d, &c->args->kw_names[i], c->args->kw[i])) return false;
        }
        arg = jv_of_dict(d);
    } else {
        if (!jv_list_new(c->r, 0, &l)) return false;
        for (size_t i = 0; i < c->args->n_pos; i++) {
            if (!jv_list_push(c->r, l, c->args->pos[i])) return false;
        }
        arg = jv_of_tuple(l);
    }
    return jinja_format_percent(c->r, &s, &arg, c->out);
}

/* As HuggingFace replaces it: json.dumps, not Jinja's escaping for HTML. */
static bool f_tojson(struct jinja_call *c) {
    struct jinja_json_style st = {.ascii = jinja_param_bool(c, 0, false),
                                  .sort_keys = jinja_param_bool(c, 3, false)};
    struct jv *indent = &c->a[1], *seps = &c->a[2], empty = jv_cstr("");
    int64_t width;
    st.multiline = indent->type != JV_ABSENT && indent->type != JV_NONE;
    if (indent->type == JV_STR) {
        st.indent = *indent;
    } else if (st.multiline) {
        if (!jinja_param_int(c, 1, 0, &width)) return false;
        if (!jinja_str_pad(c->r, &empty, width, '>', ' ', &st.indent)) return false;
    }
    st.item_sep = jv_cstr(st.multiline ? "," : ", ");
    st.key_sep = jv_cstr(": ");
    if (seps->type != JV_ABSENT && seps->type != JV_NONE) {
        struct jv_list *l;
        if (!jinja_iterate(c->r, seps, &l)) return false;
        if (l->n != 2 || l->v[0].type != JV_STR || l->v[1].type != JV_STR) {
            return jinja_fail(c->r, "tojson: separators must be two strings");
        }
        st.item_sep = l->v[0];
        st.key_sep = l->v[1];
    }
    return jinja_to_json(c->r, &c->self, &st, c->out);
}

/* ---- numbers */

static bool float_to_int(struct jinja_call *c, double f) {
    if (isnan(f)) {
        *c->out = c->a[0].type == JV_ABSENT ? jv_int(0) : c->a[0];
        return true;
    }
    if (!(f > -9223372036854775809.0 && f < 9223372036854775808.0)) {
        return jinja_fail(c->r, "cannot convert a float of this size to an integer");
    }
    *c->out = jv_int((int64_t)f);
    return true;
}

static bool f_int(struct jinja_call *c) {
    int64_t i, base;
    double f;
    bool too_big;
    const struct jv *v = &c->self;
    if (!jinja_param_int(c, 1, 10, &base)) return false;
    if (v->type == JV_UNDEF) return jinja_fail_undef(c->r, v);
    if (v->type == JV_BIG) return jinja_fail(c->r, "int: an integer beyond 64 bits");
    if (jv_as_int(v, &i)) {
        *c->out = jv_int(i);
        return true;
    }
    if (v->type == JV_FLOAT) return float_to_int(c, v->f);
    if (v->type == JV_STR &&
        jinja_str_to_int(v, (int)(base < 0 || base > 36 ? 1 : base), &i, &too_big)) {
        if (too_big) return jinja_fail(c->r, "int: the number does not fit 64 bits");
        *c->out = jv_int(i);
        return true;
    }
    if (v->type == JV_STR && jinja_str_to_float(v, &f)) return float_to_int(c, f);
    *c->out = c->a[0].type == JV_ABSENT ? jv_int(0) : c->a[0];
    return true;
}

static bool f_float(struct jinja_call *c) {
    double f;
    const struct jv *v = &c->self;
    if (v->type == JV_UNDEF) return jinja_fail_undef(c->r, v);
    if (jv_is_number(v)) {
        *c->out = jv_float(jv_as_float(v));
    } else if (v->type == JV_BIG) {
        *c->out = jv_float((double)v->u);
    } else if (v->type == JV_STR && jinja_str_to_float(v, &f)) {
        *c->out = jv_float(f);
    } else {
        *c->out = c->a[0].type == JV_ABSENT ? jv_float(0) : c->a[0];
    }
    return true;
}

static bool f_abs(struct jinja_call *c) {
    int64_t i;
    if (c->self.type == JV_FLOAT) {
        *c->out = jv_float(fabs(c->self.f));
        return true;
    }
    if (c->self.type == JV_UNDEF) return jinja_fail_undef(c->r, &c->self);
    if (!jv_as_int(&c->self, &i))
        return jinja_fail(c->r, "bad operand type for abs(): '%s'", jv_type_name(&c->self));
    if (i == INT64_MIN) return jinja_fail(c->r, "the result of abs does not fit 64 bits");
    *c->out = jv_int(i < 0 ? -i : i);
    return true;
}

/* round(x, digits): half to even of the exact value, which is how printf rounds. */
static bool round_common(struct jinja_call *c, int64_t digits) {
    char b[400];
    double f;
    int64_t i;
    if (jv_as_int(&c->self, &i)) {
        *c->out = jv_int(i);
        if (digits >= 0) return true;
        if (digits < -18) {
            *c->out = jv_int(0);
            return true;
        }
        int64_t unit = 1, low, rest;
        for (int64_t k = digits; k < 0; k++) unit *= 10;
        rest = i % unit;
        if (rest < 0) rest += unit;
        if (__builtin_sub_overflow(i, rest, &low)) return jinja_fail(c->r, "round: out of range");
        bool up = rest > unit - rest || (rest == unit - rest && (low / unit) % 2 != 0);
        if (up && __builtin_add_overflow(low, unit, &low))
            return jinja_fail(c->r, "round: out of range");
        *c->out = jv_int(low);
        return true;
    }
    f = c->self.f;
    *c->out = c->self;
    if (!isfinite(f) || digits > 323) return true;
    if (digits >= 0) {
        if (digits > 50)
            return true; /* beyond what a double holds unless it is tiny; Python agrees from 22 on
                          */
        snprintf(b, sizeof(b), "%.*f", (int)digits, f);
        *c->out = jv_float(strtod(b, NULL));
        return true;
    }
    double unit = digits < -308 ? INFINITY : pow(10, (double)-digits);
    *c->out = jv_float(isinf(unit) ? copysign(0, f) : nearbyint(f / unit) * unit);
    return true;
}

static bool f_round(struct jinja_call *c) {
    int64_t digits;
    struct jv method;
    if (!jinja_param_int(c, 0, 0, &digits) || !jinja_param_str(c, 1, "common", &method))
        return false;
    if (c->self.type == JV_UNDEF) return jinja_fail_undef(c->r, &c->self);
    if (!jv_is_number(&c->self))
        return jinja_fail(c->r, "round needs a number, got %s", jv_type_name(&c->self));
    if (jv_is_str(&method, "common")) return round_common(c, digits);
    bool up = jv_is_str(&method, "ceil");
    if (!up && !jv_is_str(&method, "floor"))
        return jinja_fail(c->r, "round: method must be common, ceil or floor");
    if (digits < -300 || digits > 300) return jinja_fail(c->r, "round: precision out of range");
    double unit = pow(10, (double)digits), f = jv_as_float(&c->self) * unit;
    if (!isfinite(f)) return jinja_fail(c->r, "round: cannot convert to an integer");
    *c->out = jv_float((up ? ceil(f) : floor(f)) / unit);
    return true;
}

static const struct jinja_def filters[] = {
    {"upper", f_upper, "", 0},
    {"lower", f_lower, "", 0},
    {"title", f_title, "", 0},
    {"capitalize", f_capitalize, "", 0},
    {"string", f_string, "", 0},
    {"trim", f_trim, "chars", 0},
    {"replace", f_replace, "old new count", 2},
    {"center", f_center, "width", 0},
    {"indent", f_indent, "width first blank", 0},
    {"wordcount", f_wordcount, "", 0},
    {"truncate", f_truncate, "length killwords end leeway", 0},
    {"escape", f_escape, "", 0},
    {"e", f_escape, "", 0},
    {"forceescape", f_forceescape, "", 0},
    {"safe", f_safe, "", 0},
    {"format", f_format, NULL, 0},
    {"tojson", f_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"int", f_int, "default base", 0},
    {"float", f_float, "default", 0},
    {"abs", f_abs, "", 0},
    {"round", f_round, "precision method", 0},
};

const struct jinja_def *jinja_text_filter_find(const char *name, size_t n) {
    return jinja_def_find(filters, sizeof(filters) / sizeof(*filters), name, n);
}
