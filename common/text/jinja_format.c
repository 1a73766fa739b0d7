/* jinja_format: one field writer, two notations. */
#include "common/text/jinja_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_ops.h"
#include "common/text/jinja_print.h"
#include "common/text/jinja_strings.h"

struct field {
    char align; /* '<', '>', '^', '=' (between sign and digits) or 0: as the type has it */
    int32_t fill;
    char sign; /* '+', ' ', or 0 */
    bool alternate, zero, comma;
    int width, precision; /* precision -1: none */
    char type;            /* 0: none given */
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A decimal number at *at; FORMAT_WIDTH_MAX is the bound. */
static bool read_number(struct jinja_run *r, const struct jv *s, size_t *at, int *out) {
    *out = 0;
    for (; *at < s->n && is_digit(s->s[*at]); (*at)++) {
        *out = *out * 10 + (s->s[*at] - '0');
        if (*out > FORMAT_WIDTH_MAX)
            return jinja_fail(r, "format: width or precision above %d", FORMAT_WIDTH_MAX);
    }
    return true;
}

static void add_padded(struct jinja_sb *t, const struct field *f, const char *prefix,
                       const char *body, size_t n, char usual) {
    size_t n_prefix = strlen(prefix), len = jinja_text_len(body, n) + n_prefix;
    size_t pad = (size_t)f->width > len ? (size_t)f->width - len : 0;
    char align = f->align != 0 ? f->align : usual;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0, mid = align == '=' ? pad : 0;
    jinja_sb_pad(t, f->fill, left);
    jinja_sb_add(t, prefix, n_prefix);
    jinja_sb_pad(t, f->fill, mid);
    jinja_sb_add(t, body, n);
    jinja_sb_pad(t, f->fill, pad - left - mid);
}

static void group_thousands(const char *digits, char *dst) {
    size_t n = strspn(digits, "0123456789"), at = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) dst[at++] = ',';
        dst[at++] = digits[i];
    }
    strcpy(dst + at, digits + n);
}

static void add_number(struct jinja_sb *t, const struct field *f, bool minus, const char *base,
                       const char *digits) {
    char prefix[8], grouped[2 * (FORMAT_WIDTH_MAX + 400)];
    snprintf(prefix, sizeof(prefix), "%s%s",
             minus            ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             base);
    if (f->comma) {
        group_thousands(digits, grouped);
        digits = grouped;
    }
    add_padded(t, f, prefix, digits, strlen(digits), '>');
}

static bool format_int(struct jinja_sb *t, const struct field *f, int64_t i) {
    char digits[80];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *base = "";
    switch (f->type) {
    case 'x':
        snprintf(digits, sizeof(digits), "%" PRIx64, u);
        base = "0x";
        break;
    case 'X':
        snprintf(digits, sizeof(digits), "%" PRIX64, u);
        base = "0X";
        break;
    case 'o':
        snprintf(digits, sizeof(digits), "%" PRIo64, u);
        base = "0o";
        break;
    case 'b': {
        int n = 0;
        for (int bit = 63; bit >= 0; bit--) {
            if (n > 0 || bit == 0 || (u >> bit & 1)) digits[n++] = (char)('0' + (u >> bit & 1));
        }
        digits[n] = '\0';
        base = "0b";
        break;
    }
    default: snprintf(digits, sizeof(digits), "%" PRIu64, u); break;
    }
    add_number(t, f, i < 0, f->alternate ? base : "", digits);
    return !t->failed;
}

static bool format_float(struct jinja_sb *t, const struct field *f, double d) {
    char digits[FORMAT_WIDTH_MAX + 400], spec[8];
    int precision = f->precision < 0 ? 6 : f->precision;
    bool percent = f->type == '%';
    if (percent) d *= 100;
    if (f->type == 0 && f->precision < 0) { /* format(1.5, '') is str() */
        jinja_float_text(digits, fabs(d));
    } else {
        snprintf(spec, sizeof(spec), "%%%s.*%c", f->alternate ? "#" : "",
                 percent        ? 'f'
                 : f->type == 0 ? 'g'
                                : f->type);
        snprintf(digits, sizeof(digits), spec, precision, fabs(d));
        if (percent) strcat(digits, "%");
    }
    add_number(t, f, signbit(d) && !isnan(d), "", digits);
    return !t->failed;
}

static bool format_str(struct jinja_sb *t, const struct field *f, const struct jv *v, char usual) {
    size_t n = f->precision < 0 ? v->n : jinja_text_offset(v->s, v->n, (size_t)f->precision);
    add_padded(t, f, "", v->s, n, usual);
    return !t->failed;
}

static bool repr_of(struct jinja_run *r, const struct jv *v, struct jv *out) {
    struct jinja_sb t;
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    jinja_print_repr(&t, v);
    return jinja_sb_take(&t, out);
}

/* ---- "..." % args */

static bool percent_field(struct jinja_sb *t, struct field *f, const struct jv *v) {
    struct jinja_run *r = t->r;
    struct jv s;
    int64_t i;
    char c[4];
    switch (f->type) {
    case 's': return jinja_to_str(r, v, &s) && format_str(t, f, &s, '>');
    case 'r':
    case 'a': return repr_of(r, v, &s) && format_str(t, f, &s, '>');
    case 'c':
        if (v->type == JV_STR && jinja_text_len(v->s, v->n) == 1) return format_str(t, f, v, '>');
        if (!jv_as_int(v, &i) || i < 0 || i > 0x10FFFF)
            return jinja_fail(r, "%%c requires int or char");
        s = jv_str(c, jinja_char_put(c, (int32_t)i));
        return format_str(t, f, &s, '>');
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (v->type == JV_FLOAT && f->type != 'x' && f->type != 'X' && f->type != 'o') {
            if (!(fabs(v->f) < 9223372036854775808.0))
                return jinja_fail(r, "%%%c: number out of range", f->type);
            i = (int64_t)v->f;
        } else if (!jv_as_int(v, &i)) {
            return jinja_fail(r, "%%%c format: a number is required, not %s", f->type,
                              jv_type_name(v));
        }
        return format_int(t, f, i);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jv_is_number(v)) return jinja_fail(r, "must be real number, not %s", jv_type_name(v));
        return format_float(t, f, jv_as_float(v));
    default: return jinja_fail(r, "unsupported format character '%c'", f->type);
    }
}

struct percent_args {
    const struct jv *arg;
    size_t used;
    bool by_name;
};

static bool next_arg(struct jinja_run *r, struct percent_args *a, const struct jv **out) {
    size_t n = a->arg->type == JV_TUPLE ? a->arg->list->n : 1;
    if (a->used >= n) return jinja_fail(r, "not enough arguments for format string");
    *out = a->arg->type == JV_TUPLE ? &a->arg->list->v[a->used] : a->arg;
    a->used++;
    return true;
}

static bool star_or_number(struct jinja_run *r, const struct jv *s, size_t *at,
                           struct percent_args *a, int *out) {
    const struct jv *v;
    int64_t i;
    if (*at >= s->n || s->s[*at] != '*') return read_number(r, s, at, out);
    (*at)++;
    if (!next_arg(r, a, &v)) return false;
    if (!jv_as_int(v, &i) || i < -FORMAT_WIDTH_MAX || i > FORMAT_WIDTH_MAX) {
        return jinja_fail(r, "* wants an integer up to %d", FORMAT_WIDTH_MAX);
    }
    *out = (int)i;
    return true;
}

/* One conversion; *at is behind the % sign. */
static bool percent_one(struct jinja_sb *t, const struct jv *s, size_t *at,
                        struct percent_args *a) {
    struct field f = {.fill = ' ', .precision = -1};
    struct jinja_run *r = t->r;
    const struct jv *v = NULL;
    struct jv named;
    bool minus = false;
    if (*at < s->n && s->s[*at] == '(') {
        size_t end = jinja_text_find(s->s, s->n, *at, ")", 1);
        if (end == SIZE_MAX) return jinja_fail(r, "incomplete format key");
        if (a->arg->type != JV_DICT) return jinja_fail(r, "format requires a mapping");
        struct jv key = jv_str(s->s + *at + 1, end - *at - 1);
        if (!jv_dict_get(r, a->arg->dict, &key, &named)) return false;
        if (named.type == JV_ABSENT)
            return jinja_fail(r, "format: no key '%.*s'", (int)key.n, key.s);
        v = &named;
        a->by_name = true;
        *at = end + 1;
    }
    for (; *at < s->n && s->s[*at] != '\0' && strchr("-+ #0", s->s[*at]) != NULL; (*at)++) {
        char c = s->s[*at];
        minus |= c == '-';
        f.alternate |= c == '#';
        f.zero |= c == '0';
        if (c == '+' || (c == ' ' && f.sign == 0)) f.sign = c;
    }
    if (!star_or_number(r, s, at, a, &f.width)) return false;
    if (f.width < 0) {
        minus = true;
        f.width = -f.width;
    }
    if (*at < s->n && s->s[*at] == '.') {
        (*at)++;
        if (!star_or_number(r, s, at, a, &f.precision)) return false;
        if (f.precision < 0) f.precision = 0;
    }
    while (*at < s->n && s->s[*at] != '\0' && strchr("hlL", s->s[*at]) != NULL) (*at)++;
    if (*at >= s->n) return jinja_fail(r, "incomplete format");
    f.type = s->s[(*at)++];
    if (f.type == '%') {
        jinja_sb_addc(t, '%');
        return !t->failed;
    }
    bool number = strchr("diuxXoeEfFgG", f.type) != NULL && f.type != '\0';
    f.align = minus ? '<' : f.zero && number ? '=' : '>';
    if (f.align == '=') f.fill = '0';
    if (v == NULL && !next_arg(r, a, &v)) return false;
    return percent_field(t, &f, v);
}

bool jinja_format_percent(struct jinja_run *r, const struct jv *fmt, const struct jv *arg,
                          struct jv *out) {
    struct jinja_sb t;
    struct percent_args a = {.arg = arg};
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    for (size_t at = 0; at < fmt->n;) {
        size_t next = jinja_text_find(fmt->s, fmt->n, at, "%", 1);
        if (next == SIZE_MAX) next = fmt->n;
        jinja_sb_add(&t, fmt->s + at, next - at);
        at = next + 1;
        if (next < fmt->n && !percent_one(&t, fmt, &at, &a)) return false;
    }
    /* Python lets anything with a __getitem__ stand unused, since it may be meant for %(name)s. */
    bool indexable = arg->type == JV_DICT || arg->type == JV_LIST || arg->type == JV_RANGE ||
                     arg->type == JV_UNDEF;
    bool spare = arg->type == JV_TUPLE ? a.used < arg->list->n : a.used == 0 && !indexable;
    if (spare && !a.by_name)
        return jinja_fail(r, "not all arguments converted during string formatting");
    return jinja_sb_take(&t, out);
}

/* ---- "...".format() */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static bool read_spec(struct jinja_run *r, const struct jv *s, struct field *f) {
    size_t at = 0, next = 0;
    *f = (struct field){.fill = ' ', .precision = -1};
    int32_t first = s->n > 0 ? jinja_char_next(s->s, s->n, &next) : 0;
    if (next > 0 && next < s->n && strchr("<>^=", s->s[next]) != NULL) {
        f->fill = first;
        f->align = s->s[next];
        at = next + 1;
    } else if (s->n > 0 && s->s[0] != '\0' && strchr("<>^=", s->s[0]) != NULL) {
        f->align = s->s[0];
        at = 1;
    }
    if (at < s->n && (s->s[at] == '+' || s->s[at] == '-' || s->s[at] == ' ')) f->sign = s->s[at++];
    if (at < s->n && s->s[at] == '#') f->alternate = s->s[at++] == '#';
    if (at < s->n && s->s[at] == '0') {
        at++;
        if (f->align == 0) {
            f->zero = true;
            f->fill = '0';
        }
    }
    if (!read_number(r, s, &at, &f->width)) return false;
    if (at < s->n && s->s[at] == ',') f->comma = s->s[at++] == ',';
    if (at < s->n && s->s[at] == '.') {
        at++;
        if (at >= s->n || !is_digit(s->s[at]))
            return jinja_fail(r, "format specifier missing precision");
        if (!read_number(r, s, &at, &f->precision)) return false;
    }
    if (at < s->n) f->type = s->s[at++];
    return at == s->n || jinja_fail(r, "invalid format specifier '%.*s'", (int)s->n, s->s);
}

static bool brace_value(struct jinja_sb *t, const struct jv *spec, const struct jv *v) {
    struct field f;
    struct jv s;
    int64_t i;
    if (!read_spec(t->r, spec, &f)) return false;
    if (v->type != JV_BOOL && jv_is_number(v) &&
        (f.type == 0 || strchr("dxXobeEfFgG%", f.type) != NULL)) {
        if (f.align == 0 && f.zero) f.align = '=';
        bool as_float = f.type != 0 && strchr("eEfFgG%", f.type) != NULL;
        if (jv_as_int(v, &i) && !as_float) return format_int(t, &f, i);
        if (f.type == 0 || as_float) return format_float(t, &f, jv_as_float(v));
    } else if (v->type == JV_STR || (spec->n == 0 && f.type == 0)) {
        if (f.type != 0 && f.type != 's')
            return jinja_fail(t->r, "unknown format code '%c' for str", f.type);
        return jinja_to_str(t->r, v, &s) && format_str(t, &f, &s, '<');
    }
    return jinja_fail(t->r, "format '%.*s' does not fit a value of type %s", (int)spec->n, spec->s,
                      jv_type_name(v));
}

/* a.b[0] behind the first part of a field name */
static bool brace_path(struct jinja_run *r, const struct jv *name, size_t at, struct jv *v) {
    while (at < name->n) {
        struct jv key, from = *v;
        bool item = name->s[at] == '[';
        size_t end = ++at;
        if (!item && name->s[at - 1] != '.')
            return jinja_fail(r, "format: only '.' or '[' may follow ']'");
        while (end < name->n &&
               (item ? name->s[end] != ']' : name->s[end] != '.' && name->s[end] != '['))
            end++;
        if (end == at || (item && end == name->n))
            return jinja_fail(r, "format: empty or open part in a field name");
        key = jv_str(name->s + at, end - at);
        size_t digits = 0;
        int64_t i = 0;
        for (; digits < key.n && is_digit(key.s[digits]) && i < 100000000; digits++)
            i = i * 10 + (key.s[digits] - '0');
        if (item && digits == key.n) key = jv_int(i);
        if (!(item ? jinja_get_item(r, &from, &key, v) : jinja_get_attr(r, &from, &key, v)))
            return false;
        at = end + item;
    }
    return true;
}

struct brace_args {
    const struct jinja_args *args;
    size_t next;
    int numbering; /* 0 not seen, 1 by itself ({}), 2 by hand ({0}) */
};

static bool brace_lookup(struct jinja_run *r, const struct jv *name, struct brace_args *a,
                         struct jv *out) {
    size_t n = 0, idx = 0;
    bool digits = true;
    while (n < name->n && name->s[n] != '.' && name->s[n] != '[') {
        digits &= is_digit(name->s[n]);
        if (digits && idx < 1000000) idx = idx * 10 + (size_t)(name->s[n] - '0');
        n++;
    }
    if (digits) {
        int how = n == 0 ? 1 : 2;
        if (a->numbering != 0 && a->numbering != how) {
            return jinja_fail(r, "format: cannot mix {} and {0} numbering");
        }
        a->numbering = how;
        if (n == 0) idx = a->next++;
        if (idx >= a->args->n_pos)
            return jinja_fail(r, "format: replacement index %zu out of range", idx);
        *out = a->args->pos[idx];
        return brace_path(r, name, n, out);
    }
    for (size_t i = 0; i < a->args->n_kw; i++) {
        const struct jv *kw = &a->args->kw_names[i];
        if (kw->n == n && memcmp(kw->s, name->s, n) == 0) {
            *out = a->args->kw[i];
            return brace_path(r, name, n, out);
        }
    }
    return jinja_fail(r, "format: no argument '%.*s'", (int)n, name->s);
}

/* {name!conversion:spec}; inner is what stands between the braces. */
static bool brace_field(struct jinja_sb *t, const struct jv *inner, struct brace_args *a) {
    size_t colon = jinja_text_find(inner->s, inner->n, 0, ":", 1);
    size_t bang = jinja_text_find(inner->s, inner->n, 0, "!", 1);
    struct jv spec = jv_cstr(""), v, s;
    char conv = '\0';
    size_t end = inner->n;
    if (colon != SIZE_MAX) {
        spec = jv_str(inner->s + colon + 1, inner->n - colon - 1);
        end = colon;
    }
    if (bang < end) {
        if (end - bang != 2) return jinja_fail(t->r, "format: expected one character behind '!'");
        conv = inner->s[bang + 1];
        end = bang;
    }
    if (memchr(spec.s, '{', spec.n) != NULL)
        return jinja_fail(t->r, "format: fields inside fields are not supported");
    struct jv name = jv_str(inner->s, end);
    if (!brace_lookup(t->r, &name, a, &v)) return false;
    if (conv == 'r' || conv == 'a') {
        if (!repr_of(t->r, &v, &s)) return false;
        v = s;
    } else if (conv == 's') {
        if (!jinja_to_str(t->r, &v, &s)) return false;
        v = s;
    } else if (conv != '\0') {
        return jinja_fail(t->r, "format: unknown conversion '%c'", conv);
    }
    return brace_value(t, &spec, &v);
}

bool jinja_format_braces(struct jinja_run *r, const struct jv *fmt, const struct jinja_args *args,
                         struct jv *out) {
    struct jinja_sb t;
    struct brace_args a = {.args = args};
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    for (size_t at = 0; at < fmt->n && !t.failed;) {
        char c = fmt->s[at];
        bool twice = at + 1 < fmt->n && fmt->s[at + 1] == c;
        if ((c == '{' || c == '}') && twice) {
            jinja_sb_addc(&t, c);
            at += 2;
        } else if (c == '}') {
            return jinja_fail(r, "format: single '}' in format string");
        } else if (c == '{') {
            size_t end = at + 1, depth = 1;
            while (end < fmt->n && (depth += fmt->s[end] == '{', depth -= fmt->s[end] == '}') > 0)
                end++;
            if (end == fmt->n) return jinja_fail(r, "format: single '{' in format string");
            struct jv inner = jv_str(fmt->s + at + 1, end - at - 1);
            if (!brace_field(&t, &inner, &a)) return false;
            at = end + 1;
        } else {
            size_t end = at + 1;
            while (end < fmt->n && fmt->s[end] != '{' && fmt->s[end] != '}') end++;
            jinja_sb_add(&t, fmt->s + at, end - at);
            at = end;
        }
    }
    return jinja_sb_take(&t, out);
}
