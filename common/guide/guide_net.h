/* guide_net: the grammar as a network of rules whose edges carry bytes or calls, and the automaton
 * that runs: pruned to what can still end, and with states that masks cannot tell apart marked.
 * Private to common/guide. */
#ifndef BATON_GUIDE_NET_H
#define BATON_GUIDE_NET_H

#include "common/guide/fa.h"

struct net_edge {
    int32_t from, to;
    uint32_t lo, hi; /* bytes, or FA_CALL | rule */
};

/* In free text (guide "after"): from this state the text may be cut short after `budget` tokens by
 * going on from `twin` instead. */
struct net_budget {
    int32_t state, twin;
    int32_t budget; /* tokens */
};

struct net_rule {
    int32_t start;    /* -1: not defined yet */
    const char *name; /* for messages; lives as long as the net */
};

struct net {
    struct net_edge *edges;
    size_t n_edges, cap_edges;
    uint8_t *accept;
    size_t n_states, cap_accept;
    struct net_rule *rules;
    size_t n_rules, cap_rules;
    struct net_budget *budgets;
    size_t n_budgets, cap_budgets;
    struct net_tail {
        uint32_t lo, hi;
        int32_t rule;
    } * tails; /* rules for ranges of characters beyond ASCII */
    size_t n_tails, cap_tails;
    struct work_limit work;
    int compile_ms; /* what it began with, for messages */
    struct errbuf *eb;
};
void net_fini(struct net *g);
int32_t net_rule(struct net *g, const char *name); /* -1: no memory */
int32_t net_state(struct net *g, bool accept);     /* -1: over GUIDE_STATES_MAX, or no memory */
enum err net_edge(struct net *g, int32_t from, uint32_t lo, uint32_t hi, int32_t to);

enum lower {
    LOWER_RAW,    /* code points as UTF-8 */
    LOWER_QUOTED, /* as inside a JSON string, with the shortest escapes */
};
/* Gives the rule the texts of f, or of the nfa from start to end. */
enum err net_define(struct net *g, int32_t rule, const struct fa *f, enum lower how);
enum err net_define_nfa(struct net *g, int32_t rule, const struct nfa *a, int32_t start,
                        int32_t end, enum lower how);
enum err net_fail(struct net *g, enum err e); /* e with a text of its own, if it has none yet */

/* ---- what runs. Immutable. */
struct auto_edge {
    uint8_t lo, hi;
    int32_t to;
};
struct auto_call {
    int32_t rule, to;
};
struct automaton {
    int32_t n_states, n_rules;
    uint32_t *byte_first, *call_first; /* [n_states + 1] */
    struct auto_edge *bytes;
    struct auto_call *calls;
    uint8_t *accept;
    int32_t *alike; /* a state with the same texts up to the longest token; its own twin often */
    int32_t *start; /* [n_rules] -1: the rule is never called */
    int32_t *budget, *twin; /* NULL: no free text; budget -1: none */
    int32_t main;           /* start of rule 0 */
};
/* Rule 0 is the whole output. token_bytes_max: of the vocabulary. */
enum err automaton_make(struct automaton *out, const struct net *g, int token_bytes_max);
void automaton_fini(struct automaton *a);

#endif
