/* guide_net: rules from code points to bytes. Characters beyond ASCII become chains of bytes that
 * share their ends. A rule with very many states (a string with a large maxLength) calls rules for
 * such characters instead, or each of its states would get half a dozen of its own. */
#include "common/guide/guide_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/guide/grow.h"
#include "common/guide/guide.h"

enum { INLINE_STATES_MAX = 1024, UTF8_SEQS_MAX = 64 };

void net_fini(struct net *g) {
    free(g->edges);
    free(g->accept);
    free(g->rules);
    free(g->budgets);
    free(g->tails);
    g->edges = NULL;
    g->accept = NULL;
    g->rules = NULL;
    g->budgets = NULL;
    g->tails = NULL;
}

enum err net_fail(struct net *g, enum err e) {
    if (e == ERR_OK || (g->eb != NULL && g->eb->code != ERR_OK)) return e;
    switch (e) {
    case ERR_TOO_LARGE:
        return err_set(g->eb, e, "the guide needs more than %d states", (int)GUIDE_STATES_MAX);
    case ERR_TIMEOUT:
        return err_set(g->eb, e,
                       "the guide takes more than %d ms of processor time to compile "
                       "(limits.guideCompileMs)",
                       g->compile_ms);
    default: return err_set(g->eb, e, "%s", err_text(e));
    }
}

int32_t net_rule(struct net *g, const char *name) {
    if (g->n_rules >= GUIDE_STATES_MAX || !GROW(g->rules, g->n_rules, g->cap_rules)) return -1;
    g->rules[g->n_rules++] = (struct net_rule){.start = -1, .name = name};
    return (int32_t)g->n_rules - 1;
}

int32_t net_state(struct net *g, bool accept) {
    if (g->n_states >= GUIDE_STATES_MAX || !GROW(g->accept, g->n_states, g->cap_accept)) return -1;
    g->accept[g->n_states++] = accept;
    return (int32_t)g->n_states - 1;
}

enum err net_edge(struct net *g, int32_t from, uint32_t lo, uint32_t hi, int32_t to) {
    if (g->n_edges >= (size_t)16 * GUIDE_STATES_MAX) return ERR_TOO_LARGE;
    if (!GROW(g->edges, g->n_edges, g->cap_edges)) return ERR_NO_MEMORY;
    g->edges[g->n_edges++] = (struct net_edge){.from = from, .to = to, .lo = lo, .hi = hi};
    return ERR_OK;
}

/* ---- UTF-8 of a range, as sequences of byte ranges */

struct byte_seq {
    int n;
    struct {
        uint8_t lo, hi;
    } b[8];
};

static int utf8_put(uint32_t cp, uint8_t *p) {
    if (cp < 0x80) {
        p[0] = (uint8_t)cp;
        return 1;
    }
    int n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, cp >>= 6) p[i] = (uint8_t)(0x80 | (cp & 63));
    p[0] = (uint8_t)((n == 2 ? 0xC0u : n == 3 ? 0xE0u : 0xF0u) | cp);
    return n;
}

/* Splits lo..hi, of one length in UTF-8 each, where the trailing bytes do not cover all values. */
static void utf8_split(uint32_t lo, uint32_t hi, struct byte_seq *seqs, int *n_seqs) {
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF, CP_MAX};
    if (lo > hi) return;
    if (lo >= 0xD800 && lo <= 0xDFFF) lo = 0xE000;
    if (hi >= 0xD800 && hi <= 0xDFFF) hi = 0xD7FF;
    if (lo > hi) return;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (lo <= ends[i] && hi > ends[i]) {
            utf8_split(lo, ends[i], seqs, n_seqs);
            utf8_split(ends[i] == 0xD7FF ? 0xE000 : ends[i] + 1, hi, seqs, n_seqs);
            return;
        }
    for (int i = 1; i < 4 && lo >= 0x80; i++) {
        uint32_t m = (1u << (6 * i)) - 1;
        if ((lo & ~m) == (hi & ~m)) break;
        if ((lo & m) != 0) {
            utf8_split(lo, lo | m, seqs, n_seqs);
            utf8_split((lo | m) + 1, hi, seqs, n_seqs);
            return;
        }
        if ((hi & m) != m) {
            utf8_split(lo, (hi & ~m) - 1, seqs, n_seqs);
            utf8_split(hi & ~m, hi, seqs, n_seqs);
            return;
        }
    }
    if (*n_seqs >= UTF8_SEQS_MAX) return;
    uint8_t a[4], b[4];
    struct byte_seq *s = &seqs[(*n_seqs)++];
    s->n = utf8_put(lo, a);
    utf8_put(hi, b);
    for (int i = 0; i < s->n; i++) {
        s->b[i].lo = a[i];
        s->b[i].hi = b[i];
    }
}

static void text_seq(struct byte_seq *s, const char *text) {
    s->n = (int)strlen(text);
    for (int i = 0; i < s->n; i++) s->b[i].lo = s->b[i].hi = (uint8_t)text[i];
}

/* Inside a JSON string: characters that need an escape are taken out of lo..hi one by one. */
static void escape_seq(uint32_t cp, struct byte_seq *s) {
    static const char plain[] = "\"\\\b\f\n\r\t", name[] = "\"\\bfnrt";
    const char *at = cp != 0 ? strchr(plain, (int)cp) : NULL;
    char text[8];
    if (at != NULL)
        snprintf(text, sizeof(text), "\\%c", name[at - plain]);
    else
        snprintf(text, sizeof(text), "\\u%04x", (unsigned)(cp & 0xFFFF));
    text_seq(s, text);
}

/* ---- one rule */

struct suffix {
    int32_t to, from;
    uint8_t lo, hi;
    bool used;
};
struct lowering {
    struct net *g;
    enum lower how;
    int32_t base;
    bool share; /* calls for what lies beyond ASCII */
    struct suffix *suffixes;
    size_t n, mask;
};

static size_t suffix_hash(int32_t to, uint8_t lo, uint8_t hi) {
    uint64_t h = ((uint64_t)(uint32_t)to << 16 | (uint64_t)lo << 8 | hi) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 20);
}

static bool suffixes_double(struct lowering *l) {
    size_t mask = l->mask == 0 ? 255 : l->mask * 2 + 1;
    struct suffix *s = calloc(mask + 1, sizeof(*s));
    if (s == NULL) return false;
    for (size_t i = 0; l->mask != 0 && i <= l->mask; i++) {
        const struct suffix *old = &l->suffixes[i];
        if (!old->used) continue;
        size_t at = suffix_hash(old->to, old->lo, old->hi) & mask;
        while (s[at].used) at = (at + 1) & mask;
        s[at] = *old;
    }
    free(l->suffixes);
    l->suffixes = s;
    l->mask = mask;
    return true;
}

/* The state from which bytes lo..hi lead to `to`; shared by all who need it. */
static enum err suffix_state(struct lowering *l, uint8_t lo, uint8_t hi, int32_t to, int32_t *out) {
    if ((l->mask == 0 || l->n * 2 > l->mask) && !suffixes_double(l)) return ERR_NO_MEMORY;
    size_t at = suffix_hash(to, lo, hi) & l->mask;
    for (; l->suffixes[at].used; at = (at + 1) & l->mask) {
        const struct suffix *s = &l->suffixes[at];
        if (s->to != to || s->lo != lo || s->hi != hi) continue;
        *out = s->from;
        return ERR_OK;
    }
    *out = net_state(l->g, false);
    if (*out < 0) return ERR_TOO_LARGE;
    l->suffixes[at] = (struct suffix){.to = to, .from = *out, .lo = lo, .hi = hi, .used = true};
    l->n++;
    return net_edge(l->g, *out, lo, hi, to);
}

static enum err add_seq(struct lowering *l, int32_t from, const struct byte_seq *s, int32_t to) {
    for (int i = s->n - 1; i > 0; i--) {
        enum err e = suffix_state(l, s->b[i].lo, s->b[i].hi, to, &to);
        if (e != ERR_OK) return e;
    }
    return net_edge(l->g, from, s->b[0].lo, s->b[0].hi, to);
}

static enum err add_range(struct lowering *l, int32_t from, uint32_t lo, uint32_t hi, int32_t to) {
    struct byte_seq seqs[UTF8_SEQS_MAX];
    int n = 0;
    enum err e = ERR_OK;
    utf8_split(lo, hi, seqs, &n);
    for (int i = 0; i < n && e == ERR_OK; i++) e = add_seq(l, from, &seqs[i], to);
    return e;
}

/* A rule for lo..hi, beyond ASCII. */
static enum err tail_rule(struct net *g, uint32_t lo, uint32_t hi, int32_t *rule) {
    struct lowering l = {.g = g};
    for (size_t i = 0; i < g->n_tails; i++)
        if (g->tails[i].lo == lo && g->tails[i].hi == hi) {
            *rule = g->tails[i].rule;
            return ERR_OK;
        }
    if (!GROW(g->tails, g->n_tails, g->cap_tails)) return ERR_NO_MEMORY;
    *rule = net_rule(g, "a character");
    if (*rule < 0) return ERR_NO_MEMORY;
    g->tails[g->n_tails++] = (struct net_tail){lo, hi, *rule};
    int32_t from = net_state(g, false), to = net_state(g, true);
    if (from < 0 || to < 0) return ERR_TOO_LARGE;
    g->rules[*rule].start = from;
    enum err e = add_range(&l, from, lo, hi, to);
    free(l.suffixes);
    return e;
}

static enum err add_beyond_ascii(struct lowering *l, int32_t from, uint32_t lo, uint32_t hi,
                                 int32_t to) {
    int32_t rule;
    if (!l->share || lo == hi) return add_range(l, from, lo, hi, to);
    enum err e = tail_rule(l->g, lo, hi, &rule);
    if (e != ERR_OK) return e;
    return net_edge(l->g, from, FA_CALL | (uint32_t)rule, FA_CALL | (uint32_t)rule, to);
}

/* The path of a special token in the vocabulary's trie (guide_vocab.h). */
static void token_seq(uint32_t id, struct byte_seq *s) {
    s->n = 8;
    s->b[0].lo = s->b[0].hi = 0xFF;
    for (int i = 7; i > 0; i--, id >>= 3) s->b[i].lo = s->b[i].hi = (uint8_t)(0xF5 + (id & 7));
}

static enum err lower_edge(struct lowering *l, int32_t from, const struct fa_edge *x, int32_t to) {
    struct byte_seq seq;
    uint32_t lo = x->lo, hi = x->hi;
    enum err e = ERR_OK;
    if ((lo & FA_CALL) != 0) return net_edge(l->g, from, lo, hi, to);
    if ((lo & FA_TOKEN) != 0) {
        token_seq(lo & ~FA_TOKEN, &seq);
        return add_seq(l, from, &seq, to);
    }
    for (; lo <= hi && lo < 0x80 && l->how == LOWER_QUOTED && e == ERR_OK; lo++) {
        uint32_t last = lo;
        if (lo < 0x20 || lo == 0x7F || lo == '"' || lo == '\\') {
            escape_seq(lo, &seq);
            e = add_seq(l, from, &seq, to);
            continue;
        }
        while (last < hi && last < 0x7E && last + 1 != '"' && last + 1 != '\\') last++;
        e = net_edge(l->g, from, lo, last, to);
        lo = last;
    }
    if (e == ERR_OK && lo <= hi && lo < 0x80) {
        e = net_edge(l->g, from, lo, hi < 0x7F ? hi : 0x7F, to);
        lo = 0x80;
    }
    if (e != ERR_OK || lo > hi) return e;
    return add_beyond_ascii(l, from, lo, hi, to);
}

enum err net_define(struct net *g, int32_t rule, const struct fa *f, enum lower how) {
    struct lowering l = {.g = g, .how = how, .base = (int32_t)g->n_states};
    enum err e = ERR_OK;
    l.share = f->n_states > INLINE_STATES_MAX;
    for (int32_t q = 0; q < f->n_states; q++)
        if (net_state(g, f->accept[q]) < 0) return net_fail(g, ERR_TOO_LARGE);
    g->rules[rule].start = l.base;
    for (int32_t q = 0; q < f->n_states && e == ERR_OK; q++) {
        if ((q & 255) == 0) e = work_limit_check(&g->work);
        for (uint32_t i = f->first[q]; i < f->first[q + 1] && e == ERR_OK; i++)
            e = lower_edge(&l, l.base + q, &f->edges[i], l.base + f->edges[i].to);
    }
    free(l.suffixes);
    return net_fail(g, e);
}

enum err net_define_nfa(struct net *g, int32_t rule, const struct nfa *a, int32_t start,
                        int32_t end, enum lower how) {
    struct fa f;
    enum err e = fa_build(&f, a, start, end, &g->work);
    if (e != ERR_OK) return net_fail(g, e);
    e = net_define(g, rule, &f, how);
    fa_fini(&f);
    return e;
}
