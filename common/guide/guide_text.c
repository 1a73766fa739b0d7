/* guide_text: the guide's own JSON: what kinds there are, and how they are put together. */
#include <stdlib.h>
#include <string.h>
#include "common/guide/grow.h"
#include "common/guide/guide.h"
#include "common/guide/guide_build.h"
#include "proto/json.h"

/* MARKS_BYTES_MAX: of all texts of an "after", special tokens as their bytes. */
enum { ITEMS_MAX = 65536, NEVER_MAX = 16, MARKS_BYTES_MAX = 4096 };

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

/* The mark, then what may never be (Aho and Corasick 1975): node k up to the mark's length n stands
 * for its first k bytes. */
struct marks {
    int n, n_nodes;
    int (*next)[256]; /* the node for what was read with one byte more */
    int *fail;        /* the longest other beginning of a text that is an end of this one */
    uint8_t *kind;    /* MARK_.. */
    int *on;          /* the longest beginning of the mark that is an end of it */
};
enum { MARK_NONE, MARK_END, MARK_NEVER };

static void marks_fini(struct marks *m) {
    free(m->next);
    free(m->fail);
    free(m->kind);
    free(m->on);
}

static bool marks_init(struct marks *m, size_t n_nodes_max) {
    *m = (struct marks){.n_nodes = 1};
    m->next = calloc(n_nodes_max, sizeof(*m->next));
    m->fail = calloc(n_nodes_max, sizeof(*m->fail));
    m->kind = calloc(n_nodes_max, sizeof(*m->kind));
    m->on = calloc(n_nodes_max, sizeof(*m->on));
    return m->next != NULL && m->fail != NULL && m->kind != NULL && m->on != NULL;
}

static void marks_add(struct marks *m, const uint8_t *s, size_t n, uint8_t kind) {
    int at = 0;
    for (size_t i = 0; i < n; i++) {
        int *to = &m->next[at][s[i]];
        if (*to == 0) *to = m->n_nodes++;
        at = *to;
    }
    if (m->kind[at] == MARK_NONE) m->kind[at] = kind;
}

/* Children become transitions, the shorter texts first. */
static bool marks_link(struct marks *m) {
    int *queue = calloc((size_t)m->n_nodes, sizeof(*queue)), n_queue = 1;
    if (queue == NULL) return false;
    for (int q = 0; q < n_queue; q++) {
        const int at = queue[q], fail = m->fail[at];
        if (m->kind[fail] == MARK_END || m->kind[at] == MARK_NONE) m->kind[at] = m->kind[fail];
        m->on[at] = at <= m->n ? at : m->on[fail];
        for (int c = 0; c < 256; c++) {
            const int to = m->next[at][c], other = at > 0 ? m->next[fail][c] : 0;
            if (to == 0) {
                m->next[at][c] = other;
                continue;
            }
            m->fail[to] = other;
            queue[n_queue++] = to;
        }
    }
    free(queue);
    return true;
}

/* The edges of one node: to the end, to where a beginning of a mark was read, nowhere where
 * something would be that may not. id: the states of nodes, counted from first. */
static enum err mark_edges(struct net *g, const struct marks *m, int node, const int32_t *id,
                           int32_t end) {
    enum err e = ERR_OK;
    int run = 0; /* bytes run..c lead to the same node */
    for (int c = 1; c <= 256 && e == ERR_OK; c++) {
        const int to = m->next[node][run];
        if (c < 256 && m->next[node][c] == to) continue;
        if (m->kind[to] != MARK_NEVER)
            e = net_edge(g, id[node], (uint32_t)run, (uint32_t)c - 1,
                         m->kind[to] == MARK_END ? end : id[to]);
        run = c;
    }
    return e;
}

/* A state for each node at which the text goes on, then the forced chain, which spells the rest of
 * the mark. Bytes outside UTF-8 stand for special tokens and are read as they come. */
static enum err define_after(struct build *b, int32_t rule, const struct marks *m,
                             const uint8_t *mark, int64_t budget) {
    struct net *g = &b->net;
    int32_t first = (int32_t)g->n_states, n_free = 0;
    int32_t *id = calloc((size_t)m->n_nodes, sizeof(*id));
    enum err e = ERR_OK;
    if (id == NULL) return net_fail(g, ERR_NO_MEMORY);
    for (int i = 0; i < m->n_nodes; i++)
        if (m->kind[i] == MARK_NONE) id[i] = first + n_free++;
    const int32_t forced = first + n_free, end = forced + m->n;
    for (int i = 0; i <= n_free + m->n; i++)
        if (net_state(g, i == n_free + m->n) < 0) e = ERR_TOO_LARGE;
    if (e == ERR_OK) g->rules[rule].start = first;
    for (int k = 0; k < m->n && e == ERR_OK; k++)
        e = net_edge(g, forced + k, mark[k], mark[k], k + 1 == m->n ? end : forced + k + 1);
    for (int i = 0; i < m->n_nodes && e == ERR_OK; i++) {
        if (m->kind[i] != MARK_NONE) continue;
        e = mark_edges(g, m, i, id, end);
        if (e != ERR_OK || budget < 0) continue;
        if (!GROW(g->budgets, g->n_budgets, g->cap_budgets)) {
            e = ERR_NO_MEMORY;
            break;
        }
        g->budgets[g->n_budgets++] = (struct net_budget){
            .state = id[i], .twin = forced + m->on[i], .budget = (int32_t)budget};
    }
    free(id);
    return net_fail(g, e);
}

/* One more text of the free text, as bytes; adds to *total. */
static enum err get_mark(struct build *b, const char *s, size_t n, struct buf *out, size_t *total) {
    if (n < 1 || n > 1024) return invalid(b, "the texts of after must have 1 to 1024 bytes each");
    if (!mark_bytes(b, s, n, out)) return net_fail(&b->net, ERR_NO_MEMORY);
    *total += out->len;
    return *total <= MARKS_BYTES_MAX ? ERR_OK : invalid(b, "the texts of after are too long");
}

/* The texts of v, and their automaton. mark: the bytes of the first. */
static enum err read_marks(struct build *b, const struct json_value *v, struct marks *m,
                           struct buf *mark) {
    struct buf never[NEVER_MAX] = {{0}};
    struct json_value *list = NULL;
    const char *s;
    size_t n, total = 0;
    enum json_got g = json_get_arr(v, "never", &list);
    const size_t n_never = g == JSON_OK ? json_arr_len(list) : 0;
    enum err e = get_text(b, v, "text", &s, &n);
    if (e == ERR_OK && ((g != JSON_OK && g != JSON_ABSENT) || n_never > NEVER_MAX))
        e = invalid(b, "never must be an array of up to 16 texts");
    if (e == ERR_OK) e = get_mark(b, s, n, mark, &total);
    for (size_t i = 0; i < n_never && e == ERR_OK; i++) {
        if (json_as_str(json_arr_at(list, i), &s, &n) != JSON_OK)
            e = invalid(b, "an item of never is no text");
        else
            e = get_mark(b, s, n, &never[i], &total);
    }
    if (e == ERR_OK && !marks_init(m, total + 1)) e = net_fail(&b->net, ERR_NO_MEMORY);
    if (e == ERR_OK) {
        m->n = (int)mark->len;
        marks_add(m, (const uint8_t *)mark->data, mark->len, MARK_END);
        for (size_t i = 0; i < n_never; i++)
            marks_add(m, (const uint8_t *)never[i].data, never[i].len, MARK_NEVER);
        if (!marks_link(m)) e = net_fail(&b->net, ERR_NO_MEMORY);
    }
    if (e == ERR_OK) /* else free text could go on, but never end */
        for (int k = 1; k < m->n; k++)
            if (m->kind[k] != MARK_NONE) e = invalid(b, "a text of never is within that of after");
    for (size_t i = 0; i < NEVER_MAX; i++) buf_free(&never[i]);
    return e;
}

static enum err emit_after(struct build *b, struct nfa *a, int32_t from, int32_t to,
                           const struct json_value *v) {
    struct json_value *then;
    struct buf mark = BUF_INIT;
    struct marks m = {0};
    int64_t budget = -1;
    int32_t rule, done = nfa_state(a);
    enum err e = ERR_OK;
    if (json_get_i64(v, "budget", &budget) == JSON_WRONG_TYPE || budget > INT32_MAX)
        return invalid(b, "budget must be an integer up to 2147483647");
    rule = net_rule(&b->net, "free text");
    if (rule < 0) return net_fail(&b->net, ERR_NO_MEMORY);
    e = read_marks(b, v, &m, &mark);
    if (e == ERR_OK) e = define_after(b, rule, &m, (const uint8_t *)mark.data, budget);
    marks_fini(&m);
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
