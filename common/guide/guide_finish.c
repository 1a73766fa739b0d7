/* guide_finish: from the network to the automaton that runs.
 *
 * States from which the text cannot end are cut off: so whatever is still alive can be completed.
 * A rule that calls itself before any text would make the stack grow for ever and is refused.
 * States that allow the same texts as far as the longest token reaches share their masks; they are
 * found by refining classes once per byte. A call counts as one byte at least there, so a state
 * that calls a rule with an empty text stays alone. */
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/guide/guide.h"
#include "common/guide/guide_net.h"

enum { ALIKE_MS_MAX = 400 };

void automaton_fini(struct automaton *a) {
    free(a->byte_first);
    free(a->call_first);
    free(a->bytes);
    free(a->calls);
    free(a->accept);
    free(a->alike);
    free(a->start);
    free(a->budget);
    free(a->twin);
    *a = (struct automaton){0};
}

struct finish_work {
    const struct net *g;
    size_t n;                         /* states */
    uint32_t *first;                  /* [n + 1] edges by state */
    uint32_t *edge;                   /* edge numbers */
    uint32_t *in_first, *in_edge;     /* by what they wait for: state they lead to */
    uint32_t *call_first, *call_edge; /* by the rule they call */
    uint8_t *live;                    /* a text can end from here */
    uint8_t *nullable;                /* [n_rules] */
    uint8_t *ruled;                   /* [n_rules] can derive a text */
    int32_t *owner;                   /* rule whose start this is, -1 */
};

static void work_fini(struct finish_work *w) {
    free(w->first);
    free(w->edge);
    free(w->in_first);
    free(w->in_edge);
    free(w->call_first);
    free(w->call_edge);
    free(w->live);
    free(w->nullable);
    free(w->ruled);
    free(w->owner);
}

static bool is_call(const struct net_edge *e) {
    return (e->lo & FA_CALL) != 0;
}

static size_t rule_of(const struct net_edge *e) {
    return e->lo & ~FA_CALL;
}

/* Edge numbers in the order of a key below n_keys; key_of gives n_keys for "not listed". */
static bool index_edges(const struct net *g, size_t n_keys, uint32_t **first, uint32_t **list,
                        size_t (*key_of)(const struct net_edge *e)) {
    *first = calloc(n_keys + 2, sizeof(**first));
    *list = malloc((g->n_edges + 1) * sizeof(**list));
    if (*first == NULL || *list == NULL) return false;
    for (size_t i = 0; i < g->n_edges; i++) {
        size_t k = key_of(&g->edges[i]);
        if (k < n_keys) (*first)[k + 2]++;
    }
    for (size_t k = 2; k <= n_keys + 1; k++) (*first)[k] += (*first)[k - 1];
    for (size_t i = 0; i < g->n_edges; i++) {
        size_t k = key_of(&g->edges[i]);
        if (k < n_keys) (*list)[(*first)[k + 1]++] = (uint32_t)i;
    }
    return true;
}

static size_t key_from(const struct net_edge *e) {
    return (size_t)e->from;
}
static size_t key_to(const struct net_edge *e) {
    return (size_t)e->to;
}
static size_t key_rule(const struct net_edge *e) {
    return is_call(e) ? rule_of(e) : SIZE_MAX;
}

/* Fixpoint from the accepting states backwards. only_empty: through calls of nullable rules alone,
 * which finds the nullable rules. */
static bool backwards(struct finish_work *w, uint8_t *mark, uint8_t *rule_mark, bool only_empty) {
    const struct net *g = w->g;
    int32_t *todo = malloc((w->n + 1) * sizeof(*todo));
    size_t n = 0;
    if (todo == NULL) return false;
    for (size_t q = 0; q < w->n; q++)
        if (g->accept[q]) {
            mark[q] = 1;
            todo[n++] = (int32_t)q;
        }
    while (n > 0) {
        int32_t q = todo[--n];
        for (uint32_t i = w->in_first[q]; i < w->in_first[q + 1]; i++) {
            const struct net_edge *e = &g->edges[w->in_edge[i]];
            if (mark[e->from]) continue;
            if (is_call(e) ? !rule_mark[rule_of(e)] : only_empty) continue;
            mark[e->from] = 1;
            todo[n++] = e->from;
        }
        int32_t rule = w->owner[q];
        if (rule < 0 || rule_mark[rule]) continue;
        rule_mark[rule] = 1;
        for (uint32_t i = w->call_first[rule]; i < w->call_first[rule + 1]; i++) {
            const struct net_edge *e = &g->edges[w->call_edge[i]];
            if (!mark[e->to] || mark[e->from]) continue;
            mark[e->from] = 1;
            todo[n++] = e->from;
        }
    }
    free(todo);
    return true;
}

/* ---- left recursion */

struct frame {
    int32_t rule;
    uint32_t at; /* of its list of rules that may come first */
};

/* Appends to list the rules that may begin rule r, before any byte. */
static bool first_calls(const struct finish_work *w, int32_t r, uint32_t *seen, uint32_t stamp,
                        int32_t *states, int32_t **list, size_t *n_list, size_t *cap) {
    size_t n = 0;
    int32_t start = w->g->rules[r].start;
    states[n++] = start;
    seen[start] = stamp;
    while (n > 0) {
        int32_t q = states[--n];
        for (uint32_t i = w->first[q]; i < w->first[q + 1]; i++) {
            const struct net_edge *e = &w->g->edges[w->edge[i]];
            if (!is_call(e) || !w->live[e->to] || !w->ruled[rule_of(e)]) continue;
            if (*n_list == *cap) {
                size_t more = *cap * 2 + 64;
                int32_t *p = realloc(*list, more * sizeof(*p));
                if (p == NULL) return false;
                *list = p;
                *cap = more;
            }
            (*list)[(*n_list)++] = (int32_t)rule_of(e);
            if (w->nullable[rule_of(e)] && seen[e->to] != stamp) {
                seen[e->to] = stamp;
                states[n++] = e->to;
            }
        }
    }
    return true;
}

/* Depth-first over "may begin with"; a rule met while it is open calls itself. */
static enum err check_recursion(const struct finish_work *w) {
    const struct net *g = w->g;
    size_t n_rules = g->n_rules, n_list = 0, cap = 0, n_open = 0;
    uint32_t *seen = calloc(w->n + 1, sizeof(*seen));
    int32_t *states = malloc((w->n + 1) * sizeof(*states)), *list = NULL;
    uint8_t *colour = calloc(n_rules + 1, 1); /* 0 new, 1 open, 2 done */
    struct frame *open = malloc((n_rules + 1) * sizeof(*open));
    size_t *ends = malloc((n_rules + 1) * sizeof(*ends));
    enum err e = ERR_NO_MEMORY;
    uint32_t stamp = 0;
    if (seen == NULL || states == NULL || colour == NULL || open == NULL || ends == NULL) goto end;
    for (size_t root = 0; root < n_rules; root++) {
        int32_t enter = (int32_t)root;
        if (colour[root] != 0 || !w->ruled[root]) continue;
        for (;;) {
            if (enter >= 0) {
                colour[enter] = 1;
                open[n_open] = (struct frame){.rule = enter, .at = (uint32_t)n_list};
                if (!first_calls(w, enter, seen, ++stamp, states, &list, &n_list, &cap)) goto end;
                ends[n_open++] = n_list;
                enter = -1;
            }
            if (n_open == 0) break;
            struct frame *top = &open[n_open - 1];
            if (top->at == ends[n_open - 1]) {
                colour[top->rule] = 2;
                n_open--;
                n_list = n_open > 0 ? ends[n_open - 1] : 0;
                continue;
            }
            int32_t next = list[top->at++];
            if (colour[next] == 1) {
                e = err_set(g->eb, ERR_INVALID, "%s refers to itself before any text",
                            g->rules[next].name);
                goto end;
            }
            if (colour[next] == 0) enter = next;
        }
    }
    e = ERR_OK;
end:
    free(seen);
    free(states);
    free(list);
    free(colour);
    free(open);
    free(ends);
    return e;
}

/* ---- the arrays */

static bool keeps(const struct finish_work *w, const struct net_edge *e) {
    return w->live[e->from] && w->live[e->to] && (!is_call(e) || w->ruled[rule_of(e)]);
}

static enum err fill(struct automaton *a, const struct finish_work *w) {
    const struct net *g = w->g;
    size_t n_calls = 0, n_bytes = 0, n = w->n;
    for (size_t i = 0; i < g->n_edges; i++) {
        if (!keeps(w, &g->edges[i])) continue;
        if (is_call(&g->edges[i]))
            n_calls++;
        else
            n_bytes++;
    }
    a->n_states = (int32_t)n;
    a->n_rules = (int32_t)g->n_rules;
    a->byte_first = calloc(n + 1, sizeof(*a->byte_first));
    a->call_first = calloc(n + 1, sizeof(*a->call_first));
    a->bytes = calloc(n_bytes + 1, sizeof(*a->bytes));
    a->calls = calloc(n_calls + 1, sizeof(*a->calls));
    a->accept = calloc(n + 1, 1);
    a->alike = calloc(n + 1, sizeof(*a->alike));
    a->start = calloc(g->n_rules + 1, sizeof(*a->start));
    if (a->byte_first == NULL || a->call_first == NULL || a->bytes == NULL || a->calls == NULL ||
        a->accept == NULL || a->alike == NULL || a->start == NULL)
        return ERR_NO_MEMORY;
    n_calls = n_bytes = 0;
    for (size_t q = 0; q < n; q++) {
        a->byte_first[q] = (uint32_t)n_bytes;
        a->call_first[q] = (uint32_t)n_calls;
        a->accept[q] = g->accept[q];
        a->alike[q] = (int32_t)q;
        for (uint32_t i = w->first[q]; i < w->first[q + 1]; i++) {
            const struct net_edge *e = &g->edges[w->edge[i]];
            if (!keeps(w, e)) continue;
            if (is_call(e))
                a->calls[n_calls++] = (struct auto_call){(int32_t)rule_of(e), e->to};
            else
                a->bytes[n_bytes++] = (struct auto_edge){(uint8_t)e->lo, (uint8_t)e->hi, e->to};
        }
    }
    a->byte_first[n] = (uint32_t)n_bytes;
    a->call_first[n] = (uint32_t)n_calls;
    for (size_t r = 0; r < g->n_rules; r++) a->start[r] = g->rules[r].start;
    a->main = a->start[0];
    if (g->n_budgets == 0) return ERR_OK;
    a->budget = malloc((n + 1) * sizeof(*a->budget));
    a->twin = calloc(n + 1, sizeof(*a->twin));
    if (a->budget == NULL || a->twin == NULL) return ERR_NO_MEMORY;
    memset(a->budget, -1, (n + 1) * sizeof(*a->budget));
    for (size_t i = 0; i < g->n_budgets; i++) {
        a->budget[g->budgets[i].state] = g->budgets[i].budget;
        a->twin[g->budgets[i].state] = g->budgets[i].twin;
    }
    return ERR_OK;
}

/* ---- states alike */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 31;
}

static uint64_t signature(const struct automaton *a, const uint32_t *cls, int32_t q) {
    uint64_t h = mix(a->accept[q], cls[q]);
    for (uint32_t i = a->byte_first[q]; i < a->byte_first[q + 1]; i++)
        h = mix(mix(h, (uint64_t)a->bytes[i].lo << 8 | a->bytes[i].hi), cls[a->bytes[i].to]);
    for (uint32_t i = a->call_first[q]; i < a->call_first[q + 1]; i++)
        h = mix(mix(h, UINT64_C(1) << 40 | (uint32_t)a->calls[i].rule), cls[a->calls[i].to]);
    return h;
}

static bool alone(const struct automaton *a, const struct finish_work *w, int32_t q) {
    if (a->budget != NULL && a->budget[q] >= 0) return true;
    for (uint32_t i = a->call_first[q]; i < a->call_first[q + 1]; i++)
        if (w->nullable[a->calls[i].rule]) return true;
    return false;
}

struct sig {
    uint64_t h;
    uint32_t cls; /* + 1; 0: free */
};

/* One refinement: classes of states whose edges lead to the same classes. Returns how many. */
static uint32_t refine(const struct automaton *a, const uint32_t *cls, uint32_t *next,
                       struct sig *table, size_t mask) {
    uint32_t n = 0;
    memset(table, 0, (mask + 1) * sizeof(*table));
    for (int32_t q = 0; q < a->n_states; q++) {
        uint64_t h = signature(a, cls, q);
        size_t at = (size_t)h & mask;
        while (table[at].cls != 0 && table[at].h != h) at = (at + 1) & mask;
        if (table[at].cls == 0) table[at] = (struct sig){.h = h, .cls = ++n};
        next[q] = table[at].cls;
    }
    return n;
}

/* Running out of time is no error: then every state keeps its own mask. */
static enum err find_alike(struct automaton *a, const struct finish_work *w, int rounds) {
    size_t n = (size_t)a->n_states, mask = 1023;
    while (mask < n * 2) mask = mask * 2 + 1;
    uint32_t *cls = calloc(n + 1, sizeof(*cls)), *next = calloc(n + 1, sizeof(*next)), n_cls = 0;
    struct sig *table = malloc((mask + 1) * sizeof(*table));
    int32_t *first = malloc((n + 2) * sizeof(*first));
    uint64_t stop_us = clock_thread_us() + ALIKE_MS_MAX * 1000;
    enum err e = ERR_NO_MEMORY;
    bool complete = true;
    if (cls == NULL || next == NULL || table == NULL || first == NULL) goto end;
    for (size_t q = 0; q < n; q++) cls[q] = alone(a, w, (int32_t)q) ? (uint32_t)q + 2 : 1;
    for (int i = 0; i < rounds; i++) {
        uint32_t was = n_cls;
        n_cls = refine(a, cls, next, table, mask);
        uint32_t *swap = cls;
        cls = next;
        next = swap;
        if (i > 0 && n_cls == was) break;
        if (clock_thread_us() > stop_us) {
            complete = false;
            break;
        }
    }
    memset(first, -1, (n + 2) * sizeof(*first));
    for (size_t q = 0; q < n && complete; q++) {
        if (first[cls[q]] < 0) first[cls[q]] = (int32_t)q;
        a->alike[q] = first[cls[q]];
    }
    e = ERR_OK;
end:
    free(cls);
    free(next);
    free(table);
    free(first);
    return e;
}

enum err automaton_make(struct automaton *out, const struct net *g, int token_bytes_max) {
    struct finish_work w = {.g = g, .n = g->n_states};
    enum err e = ERR_NO_MEMORY;
    *out = (struct automaton){0};
    w.live = calloc(w.n + 1, 1);
    w.nullable = calloc(g->n_rules + 1, 1);
    w.ruled = calloc(g->n_rules + 1, 1);
    w.owner = malloc((w.n + 1) * sizeof(*w.owner));
    if (w.live == NULL || w.nullable == NULL || w.ruled == NULL || w.owner == NULL) goto end;
    memset(w.owner, -1, (w.n + 1) * sizeof(*w.owner));
    for (size_t r = 0; r < g->n_rules; r++)
        if (g->rules[r].start >= 0) w.owner[g->rules[r].start] = (int32_t)r;
    if (!index_edges(g, w.n, &w.first, &w.edge, key_from) ||
        !index_edges(g, w.n, &w.in_first, &w.in_edge, key_to) ||
        !index_edges(g, g->n_rules, &w.call_first, &w.call_edge, key_rule))
        goto end;
    if (!backwards(&w, w.live, w.nullable, true)) goto end;
    memset(w.live, 0, w.n + 1);
    if (!backwards(&w, w.live, w.ruled, false)) goto end;
    if (!w.ruled[0]) {
        e = err_set(g->eb, ERR_INVALID, "no text satisfies the guide");
        goto end;
    }
    /* Each phase is linear, so one look between them is enough. */
    if ((e = work_limit_check(&g->work)) != ERR_OK || (e = check_recursion(&w)) != ERR_OK ||
        (e = work_limit_check(&g->work)) != ERR_OK)
        goto end;
    if ((e = fill(out, &w)) == ERR_OK) e = find_alike(out, &w, token_bytes_max);
    if (e == ERR_OK) e = work_limit_check(&g->work);
end:
    work_fini(&w);
    if (e != ERR_OK) automaton_fini(out);
    if (e == ERR_NO_MEMORY) return err_set(g->eb, e, "%s", err_text(e));
    return e;
}
