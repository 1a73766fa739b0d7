/* http_gate: counters of the budget, and who is closed when one of them is full. */
#include "common/net/http_gate.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include "common/base/clock.h"
#include "common/net/http_conn.h"

enum {
    ADDR_BUCKETS = 4096,
    SWEEP_EVERY_MS = 100,
    SWEEP_ROUNDS_MAX = 8,
    HANDSHAKE_US_PER_PASS = 5000, /* what a flood of them may add to everybody's latency */
};

struct http_addr {
    struct http_addr *next;
    uint64_t key;
    bool v6;
    unsigned n;
};

/* ---- lists */
void http_list_add(struct http_list *l, struct http_link *k, void *of) {
    *k = (struct http_link){.prev = l->last, .in = l, .of = of};
    *(l->last != NULL ? &l->last->next : &l->first) = k;
    l->last = k;
}

void http_list_drop(struct http_link *k) {
    if (k->in == NULL) return;
    *(k->prev != NULL ? &k->prev->next : &k->in->first) = k->next;
    *(k->next != NULL ? &k->next->prev : &k->in->last) = k->prev;
    *k = (struct http_link){0};
}

/* ---- life */
static void allow_handshakes(struct http_gate *g) {
    g->handshake_us_left[0] = g->handshake_us_left[1] = HANDSHAKE_US_PER_PASS;
}

enum err http_gate_create(struct http_gate **out, struct loop *loop, struct budget *budget) {
    struct http_gate *g = calloc(1, sizeof(*g));
    *out = NULL;
    if (g == NULL) return ERR_NO_MEMORY;
    g->loop = loop;
    g->budget = budget;
    allow_handshakes(g);
    if (budget_limit(budget, BUDGET_ADDRESS_CONNS) != UINT64_MAX) {
        g->addrs = calloc(ADDR_BUCKETS, sizeof(struct http_addr *));
        if (g->addrs == NULL) {
            free(g);
            return ERR_NO_MEMORY;
        }
        /* Without it, who knows the table could fill one bucket: slower, no more. */
        if (getrandom(&g->addr_seed, sizeof(g->addr_seed), 0) != (ssize_t)sizeof(g->addr_seed))
            g->addr_seed = clock_us();
    }
    *out = g;
    return ERR_OK;
}

void http_gate_destroy(struct http_gate **gp) {
    struct http_gate *g = *gp;
    *gp = NULL;
    if (g == NULL) return;
    free(g->addrs);
    free(g);
}

void http_gate_limits(struct budget *b, const struct limits_conf *l, unsigned conns_max,
                      unsigned streams_max, unsigned control_max) {
    const uint64_t half = budget_bodies_default() / 2;
    budget_limit_set(b, BUDGET_BODY_BYTES,
                     l->bodies_mib > 0 ? (uint64_t)l->bodies_mib << 20 : 2 * half);
    budget_limit_set(b, BUDGET_BUFFER_BYTES,
                     l->buffers_mib > 0 ? (uint64_t)l->buffers_mib << 20 : half);
    budget_limit_set(b, BUDGET_CONNS, conns_max);
    budget_limit_set(b, BUDGET_CONTROL_CONNS, control_max);
    budget_limit_set(b, BUDGET_STREAMS, streams_max);
    if (l->conns_per_address > 0)
        budget_limit_set(b, BUDGET_ADDRESS_CONNS, (uint64_t)l->conns_per_address);
}

void http_gate_options(struct http_server_opts *o, struct http_gate *g,
                       const struct limits_conf *l) {
    o->gate = g;
    o->head_ms = (unsigned)l->head_s * 1000;
    o->handshake_ms = (unsigned)l->handshake_s * 1000;
    o->body_ms = (unsigned)l->body_s * 1000;
    o->body_grace_ms = (unsigned)l->body_grace_s * 1000;
    o->body_rate_min = (unsigned)l->body_rate;
    o->h2_streams_max = (unsigned)l->h2_streams;
    o->h2_control_rate = (unsigned)l->h2_control;
    o->h2_reset_rate = (unsigned)l->h2_resets;
}

void http_gate_join(struct http_gate *g, struct http_server *s) {
    if (g == NULL) return;
    s->next_in_gate = g->servers;
    g->servers = s;
}

void http_gate_part(struct http_gate *g, struct http_server *s) {
    if (g == NULL) return;
    for (struct http_server **at = &g->servers; *at != NULL; at = &(*at)->next_in_gate) {
        if (*at != s) continue;
        *at = s->next_in_gate;
        return;
    }
}

/* ---- places */
static void key_of(const struct sockaddr_storage *sa, uint64_t *key, bool *v6) {
    *v6 = sa->ss_family == AF_INET6;
    *key = 0;
    if (*v6) /* who has one address of a /64 has them all */
        memcpy(key, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, sizeof(*key));
    else
        *key = ((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr;
}

static struct http_addr **bucket_of(struct http_gate *g, uint64_t key) {
    uint64_t h = (key ^ g->addr_seed) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
    return &g->addrs[(h >> 32) % ADDR_BUCKETS];
}

bool http_gate_enter(struct http_gate *g, struct http_addr **addr,
                     const struct sockaddr_storage *sa) {
    uint64_t key;
    bool v6;
    *addr = NULL;
    if (g == NULL || g->addrs == NULL) return true;
    key_of(sa, &key, &v6);
    struct http_addr **at = bucket_of(g, key), *a = *at;
    while (a != NULL && (a->key != key || a->v6 != v6)) a = a->next;
    if (a != NULL && a->n >= budget_limit(g->budget, BUDGET_ADDRESS_CONNS)) {
        budget_refused(g->budget, BUDGET_ADDRESS_CONNS);
        return false;
    }
    if (a == NULL) {
        a = calloc(1, sizeof(*a));
        if (a == NULL) return false;
        *a = (struct http_addr){.next = *at, .key = key, .v6 = v6};
        *at = a;
    }
    a->n++;
    *addr = a;
    return true;
}

void http_gate_leave(struct http_gate *g, struct http_addr *addr) {
    if (addr == NULL || --addr->n > 0) return;
    struct http_addr **at = bucket_of(g, addr->key);
    while (*at != addr) at = &(*at)->next;
    *at = addr->next;
    free(addr);
}

bool http_gate_make_room(struct http_gate *g) {
    if (g == NULL) return false;
    for (int control = 0; control < 2; control++)
        for (struct http_server *s = g->servers; s != NULL; s = s->next_in_gate)
            if (s->opts.control == (control == 1) && http_server_make_room(s)) return true;
    return false;
}

/* ---- bodies */
static bool fits(const struct http_gate *g, size_t n, uint64_t most) {
    uint64_t used = budget_used(g->budget, BUDGET_BODY_BYTES);
    return used <= most && n <= most - used;
}

static struct http_x *next_old_body(const struct http_link *k, const struct http_x *but,
                                    uint64_t now_ms) {
    while (k != NULL && k->of == but) k = k->next;
    struct http_x *x = k != NULL ? k->of : NULL;
    return x != NULL && now_ms - x->clock.since_ms >= HTTP_YIELD_MS ? x : NULL;
}

/* Slow bodies give way, if that is enough. */
static void yield_bodies(struct http_gate *g, const struct http_x *but, size_t n, uint64_t most) {
    uint64_t now_ms = clock_ms(), used = budget_used(g->budget, BUDGET_BODY_BYTES), freed = 0;
    struct http_x *x = next_old_body(g->bodies.first, but, now_ms);
    if (n > most) return;
    while (x != NULL && used - freed + n > most) {
        freed += x->body_taken;
        x = next_old_body(x->reads.next, but, now_ms);
    }
    if (used - freed + n > most) return;
    while (!fits(g, n, most) && (x = next_old_body(g->bodies.first, but, now_ms)) != NULL)
        http_req_yield(x);
}

bool http_gate_take_body(struct http_gate *g, struct http_x *x, size_t n) {
    if (g == NULL) return true;
    uint64_t most = budget_limit(g->budget, BUDGET_BODY_BYTES);
    if (x->body_taken + n > HTTP_SMALL_BODY_BYTES && most != UINT64_MAX) most -= most / 8;
    if (!fits(g, n, most)) yield_bodies(g, x, n, most);
    if (!fits(g, n, most)) {
        budget_refused(g->budget, BUDGET_BODY_BYTES);
        return false;
    }
    budget_hold(g->budget, BUDGET_BODY_BYTES, n);
    x->gate = g;
    x->body_taken += n;
    return true;
}

/* ---- what waits */
void http_gate_hold(struct http_gate *g, struct http_conn *c, size_t held) {
    if (g == NULL || held == c->held) return;
    if (held > c->held)
        budget_hold(g->budget, BUDGET_BUFFER_BYTES, held - c->held);
    else
        budget_give(g->budget, BUDGET_BUFFER_BYTES, c->held - held);
    c->held = held;
}

static bool too_much(const struct http_gate *g) {
    return budget_used(g->budget, BUDGET_BUFFER_BYTES) >
           budget_limit(g->budget, BUDGET_BUFFER_BYTES);
}

/* Slow for so long that others may want what it holds. */
static bool is_slow(const struct http_conn *c, uint64_t now_ms) {
    bool asks = c->phase == PHASE_HANDSHAKE || c->phase == PHASE_HEAD || c->phase == PHASE_BODY;
    bool ahead = c->phase == PHASE_ANSWER && c->ops->is_ahead(c);
    if (c->phase == PHASE_DEAD || c->held == 0) return false;
    if ((asks || ahead) && now_ms - c->since_ms >= HTTP_YIELD_MS) return true;
    return c->waits_ms != 0 && now_ms - c->waits_ms >= HTTP_YIELD_MS && !c->ops->is_paced(c);
}

/* One round: whoever holds its part of what slow ones hold, or more, goes until it is enough. */
static unsigned sweep_round(struct http_gate *g, const struct http_conn *but, uint64_t now_ms) {
    uint64_t held = 0, n = 0;
    unsigned closed = 0;
    for (struct http_server *s = g->servers; s != NULL; s = s->next_in_gate)
        for (struct http_conn *c = s->conns; c != NULL; c = c->next)
            if (c != but && is_slow(c, now_ms)) {
                held += c->held;
                n++;
            }
    if (n == 0) return 0;
    for (struct http_server *s = g->servers; s != NULL; s = s->next_in_gate)
        for (struct http_conn *c = s->conns; c != NULL && too_much(g); c = c->next) {
            if (c == but || !is_slow(c, now_ms) || c->held < held / n) continue;
            budget_refused(g->budget, BUDGET_BUFFER_BYTES);
            http_conn_gone(c); /* c->next stays good until the pass ends */
            closed++;
        }
    return closed;
}

bool http_gate_sweep(struct http_gate *g, const struct http_conn *but) {
    if (g == NULL || !too_much(g)) return true;
    uint64_t now_ms = clock_ms();
    if (now_ms < g->sweep_next_ms) return false;
    g->sweep_next_ms = now_ms + SWEEP_EVERY_MS;
    for (int i = 0; i < SWEEP_ROUNDS_MAX && too_much(g); i++)
        if (sweep_round(g, but, now_ms) == 0) break;
    return !too_much(g);
}

/* ---- handshakes */
static void on_pass_end(void *arg) {
    struct http_gate *g = arg;
    g->pass_end_set = false;
    allow_handshakes(g);
}

bool http_gate_handshake_begin(struct http_gate *g, bool control, uint64_t *began_us) {
    if (g == NULL) return true;
    /* Not now: the socket stays readable for the next pass. */
    if (g->handshake_us_left[control] == 0) return false;
    *began_us = clock_us();
    return true;
}

void http_gate_handshake_end(struct http_gate *g, bool control, uint64_t began_us) {
    if (g == NULL) return;
    uint64_t us = clock_us() - began_us;
    if (!g->pass_end_set) loop_at_pass_end(g->loop, &g->pass_end, on_pass_end, g);
    g->pass_end_set = true;
    unsigned *left = &g->handshake_us_left[control];
    *left = us < *left ? *left - (unsigned)us : 0;
}
