/* plan_world: a cluster of which the planner is asked, and what two of its plans differ in; for the
 * tests of plan.h. Include after cmocka.h. */
#ifndef BATON_TESTS_PLAN_WORLD_H
#define BATON_TESTS_PLAN_WORLD_H

#include <string.h>
#include "coordinator/coord_conf.h"
#include "coordinator/plan.h"

/* Needs of instances that do both without a loss: half of a decode instance is half of one. */
static inline struct role_needs needs_are(double p, double d, double whole) {
    struct role_needs out = {.p = p, .d = d, .whole = whole};
    for (int i = 0; i < ROLE_SHARES; i++) out.left[i] = 1 - (i + 1) / 10.0;
    return out;
}

enum { NODES_MAX = 96 };

static const struct plan_conf conf = {
    .decides = true, .first_wait_ms = 180000, .settle_ms = 10000, .repair_ms = 30000};

/* ---- a cluster */
static struct world {
    struct plan_node nodes[NODES_MAX];
    uint32_t links[NODES_MAX][NODES_MAX];
    struct plan plan;
    struct plan_conf conf;
    uint64_t now_ms;
    uint64_t rng;
    uint32_t next_id;
} w;

static inline uint64_t rnd(uint64_t n) {
    w.rng ^= w.rng << 13;
    w.rng ^= w.rng >> 7;
    w.rng ^= w.rng << 17;
    return (w.rng >> 11) % n;
}

static inline void begin(uint64_t seed) {
    memset(&w, 0, sizeof(w));
    w.rng = seed * 0x9e3779b97f4a7c15u + 1;
    w.conf = conf;
    w.now_ms = 1000000;
    w.next_id = 100;
    w.plan = (struct plan){.nodes = w.nodes, .started_ms = w.now_ms};
}

static inline void after(uint64_t ms) {
    w.now_ms += ms;
}

static inline struct plan_node *add(int label) {
    assert_true(w.plan.n < NODES_MAX);
    struct plan_node *v = &w.nodes[w.plan.n++];
    *v = (struct plan_node){.id = w.next_id += 1 + (uint32_t)rnd(50), .label = label, .here = true};
    return v;
}

static inline struct plan_node *node(uint32_t id) {
    for (size_t i = 0; i < w.plan.n; i++)
        if (w.nodes[i].id == id) return &w.nodes[i];
    fail_msg("no node %u", id);
    return NULL;
}

static inline void forget(uint32_t id) {
    struct plan_node *v = node(id);
    *v = w.nodes[--w.plan.n];
}

static inline void make(void) {
    assert_int_equal(plan_make(&w.plan, &w.conf, w.now_ms), ERR_OK);
}

static inline bool is_open(const struct plan_node *v) {
    return v->here && v->closed_ms == 0 && v->place.next == ROLE_NONE;
}
static inline bool has_role(const struct plan_node *v) {
    return v->place.role != ROLE_NONE;
}
static inline size_t count(enum inst_role role) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) n += w.nodes[i].place.role == role;
    return n;
}
static inline size_t group_size(unsigned group) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) n += w.nodes[i].place.group == group;
    return n;
}
static inline size_t group_has(unsigned group, enum inst_role role) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++)
        n += w.nodes[i].place.group == group && w.nodes[i].place.role == role;
    return n;
}
static inline unsigned last_group(void) {
    unsigned last = 0;
    for (size_t i = 0; i < w.plan.n; i++)
        if (w.nodes[i].place.group > last) last = w.nodes[i].place.group;
    return last;
}
static inline unsigned n_groups(void) {
    unsigned n = 0;
    for (unsigned g = 1; g <= last_group(); g++) n += group_size(g) > 0;
    return n;
}

/* ---- before and after */
static struct plan_node was[NODES_MAX];
static size_t n_was;

static inline void note(void) {
    memcpy(was, w.nodes, sizeof(was));
    n_was = w.plan.n;
}

static inline const struct plan_node *before(uint32_t id) {
    for (size_t i = 0; i < n_was; i++)
        if (was[i].id == id) return &was[i];
    return NULL;
}

/* Instances that had a group and have another. */
static inline size_t n_moved(void) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) {
        const struct plan_node *b = before(w.nodes[i].id);
        n += b != NULL && b->place.group != 0 && b->place.group != w.nodes[i].place.group;
    }
    return n;
}
/* Switches that the plan has begun. */
static inline size_t n_begun(void) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) {
        const struct plan_node *b = before(w.nodes[i].id);
        n += w.nodes[i].place.next != ROLE_NONE && (b == NULL || b->place.next == ROLE_NONE);
    }
    return n;
}

#endif
