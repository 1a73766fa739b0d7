/* guide_text: the guide's own JSON: what kinds there are, and how they are put together. */
#include <string.h>
#include "common/guide/grow.h"
#include "common/guide/guide.h"
#include "common/guide/guide_build.h"
#include "proto/json.h"

enum { ITEMS_MAX = 65536 };

static enum err emit_guide(struct build *b, struct nfa *a, int32_t from, int32_t to,
                           const struct json_value *v);

static enum err invalid(struct build *b, const char *text) {
    return err_set(b->eb, ERR_INVALID, "guide: %s", text);
}

static enum err get_text(struct build *b, const struct json_value *v, const char *key,
                         const char **s, size_t *n) {
    return json_get_str(v, key, s, n) == JSON_OK ? ERR_OK : invalid(b, "a text is missing");
}

/* Text in which a special token written out is that token. */
static void emit_literal(struct build *b, struct nfa *a, int32_t from, int32_t to, const char *s,
                         size_t n) {
    while (n > 0) {
        size_t plain = 0, len = 0;
        int32_t id = -1;
        while (plain < n && (id = guide_vocab_special(b->v, s + plain, n - plain, &len)) < 0)
            plain++;
        if (plain > 0) from = nfa_text(a, from, s, plain, -1);
        s += plain;
        n -= plain;
        if (id < 0) continue;
        int32_t next = nfa_state(a);
        nfa_range(a, from, FA_TOKEN | (uint32_t)id, FA_TOKEN | (uint32_t)id, next);
        from = next;
        s += len;
        n -= len;
    }
    nfa_eps(a, from, to);
}

static enum err emit_choice(struct build *b, struct nfa *a, int32_t from, int32_t to,
                            const struct json_value *v) {
    struct json_value *list;
    const char *s;
    size_t n;
    if (json_get_arr(v, "value", &list) != JSON_OK || json_arr_len(list) == 0 ||
        json_arr_len(list) > ITEMS_MAX)
        return invalid(b, "a choice needs an array of 1 to 65536 texts");
    for (size_t i = 0; i < json_arr_len(list); i++) {
        if (json_as_str(json_arr_at(list, i), &s, &n) != JSON_OK)
            return invalid(b, "an item of a choice is no text");
        emit_literal(b, a, from, to, s, n);
    }
    return ERR_OK;
}

static enum err emit_items(struct build *b, struct nfa *a, int32_t from, int32_t to,
                           const struct json_value *v, bool any) {
    struct json_value *list;
    enum err e = ERR_OK;
    if (json_get_arr(v, "items", &list) != JSON_OK || json_arr_len(list) > ITEMS_MAX ||
        (any && json_arr_len(list) == 0))
        return invalid(b, "items must be an array of guides");
    for (size_t i = 0; i < json_arr_len(list) && e == ERR_OK; i++) {
        struct json_value *item = json_arr_at(list, i);
        int32_t in = nfa_state(a), out = nfa_state(a);
        nfa_eps(a, from, in);
        e = emit_guide(b, a, in, out, item);
        if (any)
            nfa_eps(a, out, to);
        else
            from = out;
    }
    if (!any) nfa_eps(a, from, to);
    return e;
}

/* A guide as a rule of its own. */
static enum err rule_of(struct build *b, const struct json_value *v, int32_t *rule) {
    struct nfa own = {0};
    int32_t start = nfa_state(&own), end = nfa_state(&own);
    *rule = net_rule(&b->net, "a part of the guide");
    if (*rule < 0) return net_fail(&b->net, ERR_NO_MEMORY);
    enum err e = emit_guide(b, &own, start, end, v);
    if (e == ERR_OK) e = net_define_nfa(&b->net, *rule, &own, start, end, LOWER_RAW);
    nfa_fini(&own);
    return e;
}

static enum err emit_repeat(struct build *b, struct nfa *a, int32_t from, int32_t to,
                            const struct json_value *v) {
    struct json_value *item, *separator;
    int64_t min = 0, max = -1;
    int32_t rule, between = -1;
    enum err e;
    if (json_get_obj(v, "item", &item) != JSON_OK) return invalid(b, "repeat needs an item");
    if (json_get_i64(v, "min", &min) == JSON_WRONG_TYPE ||
        json_get_i64(v, "max", &max) == JSON_WRONG_TYPE || min < 0 || min > GUIDE_REPEAT_MAX ||
        max < -1 || max > GUIDE_REPEAT_MAX || (max >= 0 && max < min))
        return invalid(b, "min and max of repeat must be from 0 to 65536, min not above max");
    if ((e = rule_of(b, item, &rule)) != ERR_OK) return e;
    if (json_get_obj(v, "separator", &separator) == JSON_OK &&
        (e = rule_of(b, separator, &between)) != ERR_OK)
        return e;
    if (min == 0) nfa_eps(a, from, to);
    int64_t last = max >= 0 ? max : min > 0 ? min : 1;
    int32_t before = from, done = from;
    for (int64_t i = 0; i < last; i++) {
        int32_t again = done;
        done = nfa_state(a);
        before = again;
        if (i > 0 && between >= 0) {
            before = nfa_state(a);
            nfa_call(a, again, between, before);
        }
        nfa_call(a, before, rule, done);
        if (i + 1 >= min) nfa_eps(a, done, to);
    }
    if (max < 0) {
        int32_t loop = nfa_state(a);
        if (between >= 0)
            nfa_call(a, done, between, loop);
        else
            nfa_eps(a, done, loop);
        nfa_call(a, loop, rule, done);
    }
    return ERR_OK;
}

/* ---- free text up to a mark */

/* The bytes of the mark; special tokens as their path in the trie. */
static bool mark_bytes(struct build *b, const char *s, size_t n, struct buf *out) {
    while (n > 0) {
        size_t len;
        int32_t id = guide_vocab_special(b->v, s, n, &len);
        if (id < 0) {
            buf_putc(out, *s);
            len = 1;
        } else {
            buf_putc(out, (char)0xFF);
            for (int i = 6; i >= 0; i--) buf_putc(out, (char)(0xF5 + ((id >> (3 * i)) & 7)));
        }
        s += len;
        n -= len;
    }
    return !out->failed;
}

/* Where reading byte c leads when the first k bytes of the mark were just read: the longest
 * beginning of the mark that is an end of what was read (Knuth, Morris and Pratt). fail: [n]. */
static int kmp_next(const uint8_t *mark, const int *fail, int k, uint8_t c) {
    while (k > 0 && mark[k] != c) k = fail[k];
    return mark[k] == c ? k + 1 : 0;
}

/* States 0..n: so much of the mark was read; the last is the end. The forced chain spells the rest
 * of it. Bytes outside UTF-8 stand for special tokens and are read as they come. */
static enum err define_after(struct build *b, int32_t rule, const uint8_t *mark, int n,
                             int64_t budget) {
    struct net *g = &b->net;
    int32_t first = (int32_t)g->n_states, forced = first + n;
    int *fail = calloc((size_t)n + 1, sizeof(*fail));
    enum err e = ERR_OK;
    if (fail == NULL) return net_fail(g, ERR_NO_MEMORY);
    for (int i = 1; i < n; i++) {
        int k = i > 1 ? fail[i - 1] : 0;
        if (i > 1) {
            while (k > 0 && mark[k] != mark[i - 1]) k = fail[k];
            if (mark[k] == mark[i - 1]) k++;
        }
        fail[i] = k;
    }
    for (int i = 0; i <= 2 * n; i++)
        if (net_state(g, i == 2 * n) < 0) e = ERR_TOO_LARGE;
    int32_t end = forced + n;
    if (e == ERR_OK) g->rules[rule].start = first;
    for (int k = 0; k < n && e == ERR_OK; k++) {
        int run = 0; /* bytes run..c lead to the same state */
        for (int c = 1; c <= 256 && e == ERR_OK; c++) {
            int to = kmp_next(mark, fail, k, (uint8_t)run);
            if (c < 256 && kmp_next(mark, fail, k, (uint8_t)c) == to) continue;
            e = net_edge(g, first + k, (uint32_t)run, (uint32_t)c - 1, to == n ? end : first + to);
            run = c;
        }
        if (e == ERR_OK)
            e = net_edge(g, forced + k, mark[k], mark[k], k + 1 == n ? end : forced + k + 1);
        if (e != ERR_OK || budget < 0) continue;
        if (!GROW(g->budgets, g->n_budgets, g->cap_budgets)) {
            e = ERR_NO_MEMORY;
            break;
        }
        g->budgets[g->n_budgets++] =
            (struct net_budget){.state = first + k, .twin = forced + k, .budget = (int32_t)budget};
    }
    free(fail);
    return net_fail(g, e);
}

static enum err emit_after(struct build *b, struct nfa *a, int32_t from, int32_t to,
                           const struct json_value *v) {
    struct json_value *then;
    struct buf mark = BUF_INIT;
    const char *s;
    size_t n;
    int64_t budget = -1;
    int32_t rule, done = nfa_state(a);
    enum err e = get_text(b, v, "text", &s, &n);
    if (e != ERR_OK) return e;
    if (n < 1 || n > 1024) return invalid(b, "the text of after must have 1 to 1024 bytes");
    if (json_get_i64(v, "budget", &budget) == JSON_WRONG_TYPE || budget > INT32_MAX)
        return invalid(b, "budget must be an integer up to 2147483647");
    rule = net_rule(&b->net, "free text");
    if (rule < 0 || !mark_bytes(b, s, n, &mark)) {
        buf_free(&mark);
        return net_fail(&b->net, ERR_NO_MEMORY);
    }
    e = define_after(b, rule, (const uint8_t *)mark.data, (int)mark.len, budget);
    buf_free(&mark);
    nfa_call(a, from, rule, done);
    if (e != ERR_OK) return e;
    if (json_get_obj(v, "then", &then) == JSON_OK) return emit_guide(b, a, done, to, then);
    /* Nothing is asked of the rest, so the text may also end before the mark. */
    if ((e = json_call(b, a, done, RULE_FREE, to)) != ERR_OK || budget >= 0) return e;
    return json_call(b, a, from, RULE_FREE, to);
}

/* ---- kinds */

static enum err emit_named(struct build *b, struct nfa *a, int32_t from, int32_t to,
                           const struct json_value *v, const char *type) {
    struct json_value *schema;
    const char *s;
    size_t n;
    enum err e;
    if (strcmp(type, "json_object") == 0) return json_call(b, a, from, RULE_OBJECT, to);
    if (strcmp(type, "json_schema") == 0) {
        if (json_get(v, "schema", &schema) != JSON_OK) return invalid(b, "schema is missing");
        return schema_guide(b, a, from, to, schema);
    }
    if (strcmp(type, "choice") == 0) return emit_choice(b, a, from, to, v);
    if (strcmp(type, "sequence") == 0) return emit_items(b, a, from, to, v, false);
    if (strcmp(type, "any_of") == 0) return emit_items(b, a, from, to, v, true);
    if (strcmp(type, "repeat") == 0) return emit_repeat(b, a, from, to, v);
    if (strcmp(type, "after") == 0) return emit_after(b, a, from, to, v);
    if (strcmp(type, "literal") != 0 && strcmp(type, "regex") != 0 && strcmp(type, "grammar") != 0)
        return err_set(b->eb, ERR_INVALID, "guide: unknown type '%.40s'", type);
    if ((e = get_text(b, v, "value", &s, &n)) != ERR_OK) return e;
    if (strcmp(type, "literal") == 0) {
        emit_literal(b, a, from, to, s, n);
        return ERR_OK;
    }
    if (strcmp(type, "regex") == 0) return regex_emit(a, from, to, s, n, false, b->eb);
    return ebnf_guide(b, a, from, to, s, n);
}

static enum err emit_guide(struct build *b, struct nfa *a, int32_t from, int32_t to,
                           const struct json_value *v) {
    const char *type;
    size_t n;
    if (!json_is(v, json_type_object) || json_get_str(v, "type", &type, &n) != JSON_OK)
        return invalid(b, "a guide must be an object with a type");
    if (b->depth >= GUIDE_DEPTH_MAX) return invalid(b, "guides are nested too deep");
    if (a->err != ERR_OK) return net_fail(&b->net, a->err);
    b->depth++;
    enum err e = emit_named(b, a, from, to, v, type);
    b->depth--;
    return e == ERR_OK && a->err != ERR_OK ? net_fail(&b->net, a->err) : e;
}

enum err guide_build(struct build *b, const char *text, size_t n) {
    struct json_value *root = NULL;
    struct nfa a = {0};
    if (n > GUIDE_BYTES_MAX)
        return err_set(b->eb, ERR_TOO_LARGE, "the guide has %zu bytes, at most %d are allowed", n,
                       (int)GUIDE_BYTES_MAX);
    enum err e = json_read(&root, text, n, NULL, b->eb);
    if (e != ERR_OK) return e;
    int32_t rule = net_rule(&b->net, "the guide"), start = nfa_state(&a), end = nfa_state(&a);
    e = rule < 0 ? net_fail(&b->net, ERR_NO_MEMORY) : emit_guide(b, &a, start, end, root);
    if (e == ERR_OK) e = net_define_nfa(&b->net, rule, &a, start, end, LOWER_RAW);
    nfa_fini(&a);
    json_put(root);
    return e;
}
