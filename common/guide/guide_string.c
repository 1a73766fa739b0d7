/* guide_string: strings of a schema. Pattern, format and length each are an automaton over
 * characters; their product is written down as a JSON string. A pattern that is not anchored may
 * match anywhere, as JSON Schema has it. */
#include <stdlib.h>
#include <string.h>
#include "common/guide/guide.h"
#include "common/guide/guide_build.h"
#include "proto/json.h"

#define MONTH_DAY                                                                                  \
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
#define DATE "[1-9][0-9]{3}-" MONTH_DAY
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"                                     \
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL    "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define OCTET    "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define HEX4     "[0-9a-f]{1,4}"
#define URI_CHAR "[A-Za-z0-9._~!$&'()*+,;=:@/-]"

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P([0-9]{1,4}W|([0-9]{1,4}D|[0-9]{1,4}M([0-9]{1,4}D)?|[0-9]{1,4}Y([0-9]{1,4}M("
                 "[0-9]{1,4}D)?)?)(T([0-9]{1,4}S|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}H([0-9]{1,4}"
                 "M([0-9]{1,4}S)?)?))?|T([0-9]{1,4}S|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}H("
                 "[0-9]{1,4}M([0-9]{1,4}S)?)?))"},
    {"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@" LABEL "(\\." LABEL "){1,3}"},
    {"hostname", LABEL "(\\." LABEL "){0,3}"},
    {"ipv4", OCTET "(\\." OCTET "){3}"},
    {"ipv6", "(" HEX4 "(:" HEX4 "){7}|::|" HEX4 "(:" HEX4 "){0,2}::" HEX4 "(:" HEX4 "){0,3}|::" HEX4
             "(:" HEX4 "){0,6})"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri",
     "[A-Za-z][A-Za-z0-9+.-]{1,15}://" LABEL "(\\." LABEL "){0,3}(:[1-9][0-9]{0,3})?(/"
     "[A-Za-z0-9._~!$&'()*+,;=:@-]{0,64}){0,8}(\\?" URI_CHAR "{0,128})?(#" URI_CHAR "{0,64})?"},
    {"uri-reference",
     "(/[A-Za-z0-9._~!$&'()*+,;=:@-]{1,64}){1,8}(\\?" URI_CHAR "{0,128})?(#" URI_CHAR "{0,64})?"},
    {"json-pointer", "(/([A-Za-z0-9_-]|~0|~1){0,64}){0,8}"},
};

/* What the product so far has become. */
struct product {
    struct fa fa;
    bool any; /* nothing multiplied yet */
};

static enum err multiply(struct build *b, struct product *p, const struct nfa *a, int32_t start,
                         int32_t end) {
    struct fa one, both;
    enum err e = fa_build(&one, a, start, end, &b->net.work);
    if (e != ERR_OK) return net_fail(&b->net, e);
    if (p->any) {
        p->fa = one;
        p->any = false;
        return ERR_OK;
    }
    e = fa_and(&both, &p->fa, &one, &b->net.work);
    fa_fini(&one);
    if (e != ERR_OK) return net_fail(&b->net, e);
    fa_fini(&p->fa);
    p->fa = both;
    return ERR_OK;
}

static enum err multiply_regex(struct build *b, struct product *p, const char *re, size_t n,
                               bool search) {
    struct nfa a = {0};
    struct errbuf why = {.code = ERR_OK};
    int32_t start = nfa_state(&a), end = nfa_state(&a);
    enum err e = regex_emit(&a, start, end, re, n, search, &why);
    if (e == ERR_OK)
        e = multiply(b, p, &a, start, end);
    else if (e == ERR_INVALID)
        e = schema_fail(b, "Invalid json_schema: 'pattern': %s", why.text);
    else
        e = net_fail(&b->net, e);
    nfa_fini(&a);
    return e;
}

static enum err multiply_patterns(struct build *b, struct product *p, struct json_value *schema) {
    struct json_value *v, *item;
    const char *s;
    size_t n;
    if (!json_obj_find(schema, "pattern", &v)) return ERR_OK;
    bool list = json_is(v, json_type_array); /* of a merge */
    size_t n_items = list ? json_arr_len(v) : 1;
    for (size_t i = 0; i < n_items; i++) {
        item = list ? json_arr_at(v, i) : v;
        if (json_as_str(item, &s, &n) != JSON_OK)
            return schema_fail(b, "Invalid json_schema: '%s' must be a string", "pattern");
        enum err e = multiply_regex(b, p, s, n, true);
        if (e != ERR_OK) return e;
    }
    return ERR_OK;
}

/* A format that is not in the list is an annotation. */
static enum err multiply_format(struct build *b, struct product *p, struct json_value *schema) {
    const char *s;
    size_t n;
    if (json_get_str(schema, "format", &s, &n) != JSON_OK) return ERR_OK;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i].name, s) == 0)
            return multiply_regex(b, p, formats[i].regex, strlen(formats[i].regex), false);
    return ERR_OK;
}

/* min to max times step(from, to); max -1: no end. */
static enum err emit_counted(struct build *b, struct nfa *a, int32_t from, int32_t to, int min,
                             int max,
                             enum err (*step)(struct build *, struct nfa *, int32_t, int32_t)) {
    int last = max >= 0 ? max : min;
    enum err e = ERR_OK;
    for (int i = 0; i < last && e == ERR_OK; i++) {
        int32_t next = nfa_state(a);
        if (i >= min) nfa_eps(a, from, to);
        e = step(b, a, from, next);
        from = next;
    }
    if (max < 0 && e == ERR_OK) e = step(b, a, from, from);
    nfa_eps(a, from, to);
    return e;
}

static enum err any_char(struct build *b, struct nfa *a, int32_t from, int32_t to) {
    (void)b;
    nfa_range(a, from, 0, 0xD7FF, to);
    nfa_range(a, from, 0xE000, CP_MAX, to);
    return ERR_OK;
}

static enum err lengths(struct build *b, struct json_value *schema, int *min, int *max) {
    enum err e;
    *min = 0;
    *max = -1;
    if ((e = schema_count(b, schema, "minLength", min)) != ERR_OK ||
        (e = schema_count(b, schema, "maxLength", max)) != ERR_OK)
        return e;
    if (*max >= 0 && *max < *min)
        return schema_fail(b, "Invalid json_schema: '%s' is below 'minLength'", "maxLength");
    return ERR_OK;
}

static enum err multiply_lengths(struct build *b, struct product *p, int min, int max) {
    struct nfa a = {0};
    int32_t start = nfa_state(&a), end = nfa_state(&a);
    enum err e = emit_counted(b, &a, start, end, min, max, any_char);
    if (e == ERR_OK) e = multiply(b, p, &a, start, end);
    nfa_fini(&a);
    return e;
}

/* Pattern and format; lengths too when they matter. */
static enum err string_product(struct build *b, struct json_value *schema, int min, int max,
                               struct product *p) {
    enum err e;
    *p = (struct product){.any = true};
    if ((e = multiply_patterns(b, p, schema)) != ERR_OK ||
        (e = multiply_format(b, p, schema)) != ERR_OK)
        return e;
    if (!p->any && (min > 0 || max >= 0)) e = multiply_lengths(b, p, min, max);
    return e;
}

/* A rule for the characters between the quotes. */
static enum err quoted(struct build *b, struct nfa *a, int32_t from, int32_t to,
                       const struct fa *f) {
    int32_t rule = net_rule(&b->net, "a string"), open = nfa_state(a), close = nfa_state(a);
    bool empty;
    if (rule < 0 || fa_is_empty(f, &empty) != ERR_OK) return net_fail(&b->net, ERR_NO_MEMORY);
    if (empty)
        return schema_fail(b, "Invalid json_schema: no string satisfies '%s'",
                           "pattern, format and length");
    nfa_range(a, from, '"', '"', open);
    nfa_call(a, open, rule, close);
    nfa_range(a, close, '"', '"', to);
    return net_define(&b->net, rule, f, LOWER_QUOTED);
}

enum err schema_string(struct build *b, struct nfa *a, int32_t from, int32_t to,
                       struct json_value *schema) {
    struct product p = {.any = true};
    int min, max;
    enum err e = lengths(b, schema, &min, &max);
    if (e == ERR_OK) e = string_product(b, schema, min, max, &p);
    if (e != ERR_OK) {
        fa_fini(&p.fa);
        return e;
    }
    if (!p.any) {
        e = quoted(b, a, from, to, &p.fa);
        fa_fini(&p.fa);
        return e;
    }
    if (min == 0 && max < 0) return json_call(b, a, from, RULE_STRING, to);
    /* A rule of its own: its many states then lie close together and are shared by their users. */
    struct nfa own = {0};
    int32_t start = nfa_state(&own), open = nfa_state(&own), close = nfa_state(&own),
            end = nfa_state(&own), rule = net_rule(&b->net, "a string");
    if (rule < 0) return net_fail(&b->net, ERR_NO_MEMORY);
    nfa_range(&own, start, '"', '"', open);
    e = emit_counted(b, &own, open, close, min, max, json_char);
    nfa_range(&own, close, '"', '"', end);
    if (e == ERR_OK) e = net_define_nfa(&b->net, rule, &own, start, end, LOWER_RAW);
    nfa_fini(&own);
    nfa_call(a, from, rule, to);
    return e;
}

static bool fa_matches(const struct fa *f, const char *s, size_t n, bool *memory) {
    uint8_t *now = calloc((size_t)f->n_states * 2 + 2, 1), *next = now + f->n_states;
    struct scan in = {.p = (const unsigned char *)s, .n = n};
    bool yes = false;
    *memory = now != NULL;
    if (now == NULL || f->n_states == 0) {
        free(now);
        return false;
    }
    uint8_t *base = now;
    now[0] = 1;
    while (in.at < n) {
        uint32_t cp = scan_cp(&in);
        memset(next, 0, (size_t)f->n_states);
        for (int32_t q = 0; q < f->n_states; q++)
            for (uint32_t i = f->first[q]; now[q] && i < f->first[q + 1]; i++)
                if (f->edges[i].lo <= cp && cp <= f->edges[i].hi) next[f->edges[i].to] = 1;
        uint8_t *swap = now;
        now = next;
        next = swap;
    }
    for (int32_t q = 0; q < f->n_states; q++) yes |= now[q] && f->accept[q];
    free(base);
    return yes;
}

enum err schema_string_allows(struct build *b, struct json_value *schema, const char *s, size_t n,
                              bool *yes) {
    struct product p = {.any = true};
    int min, max, len = 0;
    bool memory = true;
    enum err e = lengths(b, schema, &min, &max);
    for (size_t i = 0; i < n; i++) len += ((unsigned char)s[i] & 0xC0) != 0x80;
    *yes = len >= min && (max < 0 || len <= max);
    if (e == ERR_OK && *yes) e = string_product(b, schema, 0, -1, &p);
    if (e == ERR_OK && *yes && !p.any) *yes = fa_matches(&p.fa, s, n, &memory);
    fa_fini(&p.fa);
    return memory ? e : net_fail(&b->net, ERR_NO_MEMORY);
}
