/* sim_run: events in the order of their times; equal times in the order they were made. */
#include "tools/sim/sim_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "coordinator/plan.h"
#include "coordinator/route.h"
#include "coordinator/schedule.h"
#include "tools/sim/sim_cache.h"
#include "tools/sim/sim_events.h"

enum { NONE = UINT32_MAX, PLAN_EVERY_S = 1, TAIL_S = 3600, MEAN_OF = 32, NEW_TOKENS_GUESS = 128 };

static const double START_S = 1;     /* the planner's clocks take 0 for never */
static const double PROMPT_PART = 3; /* seconds of prompt to one of steps (BESIDE of route.c) */
static const double LOOK_S = 0.05;   /* who decodes as well looks so often for new sequences */
static const double RES_LIMIT = 1.1; /* the coordinator's own default */
static const unsigned QUEUE_MAX = 16, LOCAL_MAX = 64;
enum { BLOCK_TOKENS = 16, BLOCKS = 1 << 30 /* of a pool: room is not what is simulated */ };
enum { PASS_PARTS_MAX = 64, PASS_ROWS_MIN = 16 };

/* ASKED: the prompt is at its instance, once the ways there are done with (ASKING); SHOWN: the
 * first token is at its client. ON_HOST: the first of the jobs of a machine has ended, unless
 * another came or went since. */
enum what {
    ARRIVAL,
    ASKING,
    ASKED,
    WORKED,
    HANDED_OVER,
    SHOWING,
    SHOWN,
    SWITCHED,
    PLAN,
    ON_HOST,
    WHATS
};

struct req {
    double computed_s, prompt_s, left_s; /* prompt: expected by the router; all; not computed */
    double sent;                         /* tokens of it that its D does not have */
    double last_s;                       /* of the newest token */
    double first_s;
    double rows, piece; /* of the prompt: computed; in the pass under way */
    uint32_t p, d, next, done;
    uint32_t early; /* tokens that wait for the first one to be shown */
    bool shown;
};

struct queue {
    uint32_t first, last;
};

struct node {
    struct queue prompts, waiting; /* to be computed; computed, to be decoded */
    uint32_t *batch;
    unsigned n_batch, n_prompts, n_decodes, n_coming; /* of n_decodes, at their P still */
    double queue_s, pass, tokens, context; /* tokens: of its prompts; context: of its batch */
    bool busy, steps;                      /* at work; that work has a step in it */
    struct sim_cache *cache;               /* NULL: no prefix is kept */
    uint64_t booked, used; /* blocks: of its requests; of its batch at the last poll */
    double piece_s;        /* of prompts in that work */
};

struct sim {
    const struct sim_conf *c;
    const struct sim_ask *asks;
    struct sim_result *out;
    struct req *reqs;
    struct node *nodes;
    struct sim_events events;
    struct sim_host *hosts; /* [n_hosts]; NULL: instances take nothing from each other */
    uint64_t *host_events;  /* [n_hosts]: the event that counts of each */
    unsigned n_hosts, per_host;
    struct sim_pass pass;
    struct queue queue; /* that have no pair yet */
    uint64_t n_queued;
    double queued_s; /* of prompts */
    struct plan plan;
    struct plan_conf plan_conf;
    struct schedule_conf sched;
    struct arrivals arrivals, placed;
    double new_tokens; /* of an answer, mean of the last ones */
    double fresh;      /* the part of prompts that no cache had, likewise */
    struct inst_view *p, *d;
    size_t n_p, n_d;
    uint32_t *peers, *members; /* [instances] twice: places in members of each group */
    double *rates;
    double turn, d_turn, now;
    bool news; /* somebody may have room that had none */
    bool failed;
};

/* ---- events, and what machines do meanwhile */
static void at(struct sim *s, double when, enum what what, uint32_t of) {
    if (!sim_events_add(&s->events, when, (int)what, of)) s->failed = true;
}

static void look_at_host(struct sim *s, unsigned h) {
    double when;
    if (!sim_host_next(&s->hosts[h], &when)) return;
    s->host_events[h] = s->events.n_added;
    at(s, when > s->now ? when : s->now, ON_HOST, h);
}

/* So many seconds of a thread of instance i; SIM_HOP is of those beside its engine. WHATS: nobody
 * waits for it. */
static void spend(struct sim *s, uint32_t i, enum sim_work kind, double seconds, enum what what,
                  uint32_t of) {
    if (s->hosts == NULL) {
        if (what != WHATS) at(s, s->now + seconds, what, of);
        return;
    }
    const struct sim_job job = {.id = what == WHATS ? SIM_NOBODY : of * WHATS + what + 1,
                                .kind = kind,
                                .threads = kind == SIM_HOP ? 1 : (unsigned)s->c->times.threads,
                                .left_s = seconds};
    if (sim_host_add(&s->hosts[i / s->per_host], &job, s->now) != ERR_OK) s->failed = true;
    look_at_host(s, i / s->per_host);
}

/* ---- queues */
static void push(struct sim *s, struct queue *q, uint32_t r) {
    s->reqs[r].next = NONE;
    *(q->first == NONE ? &q->first : &s->reqs[q->last].next) = r;
    q->last = r;
}

static uint32_t pop(struct sim *s, struct queue *q) {
    const uint32_t r = q->first;
    q->first = s->reqs[r].next;
    return r;
}

/* ---- what an instance is */
static const struct plan_place *place_of(const struct sim *s, uint32_t i) {
    return &s->plan.nodes[i].place; /* ids are 1 .. n, in their order */
}

static bool works_as(const struct sim *s, uint32_t i, enum inst_role role) {
    const struct plan_place *at_ = place_of(s, i);
    return s->c->mode == SIM_STANDARD || at_->role == role || at_->stands_in || at_->share > 0;
}

/* It has all of a request, or nothing. */
static bool is_alone(const struct sim *s, uint32_t i) {
    return s->c->mode == SIM_STANDARD || plan_is_unsplit(place_of(s, i));
}

/* Seconds of prompt to one of steps. */
static double prompt_part(const struct sim *s, uint32_t i) {
    const int percent = place_of(s, i)->share / 10 * 10;
    return percent > 0 && !plan_is_unsplit(place_of(s, i)) ? percent / (100.0 - percent)
                                                           : PROMPT_PART;
}

/* ---- the work of an instance */
/* What lies outside the engine while it computes a prompt: its KV goes to the decode instance,
 * layer by layer. */
static void send_kv(struct sim *s, uint32_t i, double rows) {
    const double cpu = rows * s->c->times.prompt_token_cpu_s;
    if (cpu > 0) spend(s, i, SIM_HOP, cpu, WHATS, 0);
}

static double rows_of(const struct sim *s, const struct node *v) {
    double rows = 0;
    for (uint32_t r = v->prompts.first; r != NONE; r = s->reqs[r].next) rows += s->reqs[r].piece;
    return rows;
}

/* Gives prompts their parts of a pass, at most so many rows in all; returns its seconds. */
static double fill_pass(struct sim *s, struct node *v, double rows) {
    const struct sim_times *t = &s->c->times;
    struct sim_part parts[PASS_PARTS_MAX];
    size_t n = 0;
    for (uint32_t r = v->prompts.first; r != NONE; r = s->reqs[r].next) {
        struct req *q = &s->reqs[r];
        const bool room =
            n < PASS_PARTS_MAX && (t->pass_prompts <= 0 || (double)n < t->pass_prompts);
        q->piece = room ? fmin(fmin(s->asks[r].in - q->rows, t->chunk_tokens), rows) : 0;
        if (!(q->piece > 0)) continue;
        rows -= q->piece;
        parts[n++] = (struct sim_part){q->rows, q->rows + q->piece};
    }
    return sim_pass_s(&s->pass, parts, n) + t->step_s + (double)n * t->sequence_s;
}

/* One that takes longer than most_s is made smaller; it never has less than PASS_ROWS_MIN. */
static double pass_of(struct sim *s, struct node *v, double most_s) {
    const double all = s->c->times.pass_tokens > 0 ? s->c->times.pass_tokens : HUGE_VAL;
    const double seconds = fill_pass(s, v, all);
    if (!(seconds > most_s)) return seconds;
    return fill_pass(s, v, fmax(floor(rows_of(s, v) * most_s / seconds), PASS_ROWS_MIN));
}

/* Prompts whole, one after the other. */
static double piece_of(const struct sim *s, const struct node *v, double most_s) {
    return fmin(s->reqs[v->prompts.first].left_s, most_s);
}

static void work(struct sim *s, uint32_t i) {
    struct node *v = &s->nodes[i];
    double step = 0;
    if (v->busy) return;
    while (v->waiting.first != NONE && v->n_batch < s->c->slots) {
        const uint32_t r = pop(s, &v->waiting);
        v->batch[v->n_batch++] = r;
        v->context += s->asks[r].in + 1;
    }
    v->steps = v->n_batch > 0;
    v->piece_s = 0;
    if (v->steps)
        step = perf_step_s(&s->c->perf, v->n_batch, v->context / v->n_batch) + s->c->times.step_s +
               v->n_batch * s->c->times.sequence_s;
    if (v->prompts.first != NONE) {
        const bool parts = s->c->times.chunk_tokens > 0;
        const double most = v->steps                                ? step * prompt_part(s, i)
                            : !parts && works_as(s, i, ROLE_DECODE) ? LOOK_S
                                                                    : HUGE_VAL;
        v->piece_s = parts ? pass_of(s, v, most) : piece_of(s, v, most);
    } else if (!v->steps) {
        return;
    }
    v->busy = true;
    if (v->piece_s > 0 && s->c->times.chunk_tokens > 0) send_kv(s, i, rows_of(s, v));
    spend(s, i, v->steps && step > v->piece_s ? SIM_STEP : SIM_PROMPT, step + v->piece_s, WORKED,
          i);
}

static uint64_t blocks_of(const struct sim_ask *a) {
    return (a->in + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static void ended(struct sim *s, uint32_t r) {
    const struct sim_ask *a = &s->asks[r];
    const struct req *q = &s->reqs[r];
    const double gap = a->out > 1 ? (s->now - q->first_s) / (a->out - 1) : 0;
    const double ttft = q->first_s - START_S - a->at_s;
    s->news = true;
    s->nodes[q->d].n_decodes--;
    s->nodes[q->d].booked -= blocks_of(a);
    if (a->out > 1) load_hist_add(&s->out->mean_gaps, gap * 1e6);
    s->out->ended++;
    s->out->good += ttft <= s->c->first_token_s && gap <= s->c->token_s;
    s->out->end_s = s->now - START_S;
    s->new_tokens += (a->out - s->new_tokens) / MEAN_OF;
}

/* ---- the ways between client, coordinator and instances */
/* Half of what a request takes beside its prompt: processor time, then the rest of it. That of its
 * tokens is spent while they are computed (send_kv()). */
static void go(struct sim *s, uint32_t r, enum what what) {
    const struct sim_times *t = &s->c->times;
    const uint32_t i = what == ASKING ? s->reqs[r].p : s->reqs[r].d;
    spend(s, i, SIM_HOP, t->request_cpu_s / 2, what, r);
}

static void wait_on(struct sim *s, uint32_t r, enum what what) {
    const struct sim_times *t = &s->c->times;
    const double all = t->request_s + s->asks[r].in * t->prompt_token_s;
    at(s, s->now + fmax(all - t->request_cpu_s, 0) / 2, what, r);
}

static bool has_ways(const struct sim_times *t) {
    return t->request_s + t->prompt_token_s + t->request_cpu_s + t->prompt_token_cpu_s > 0;
}

static void asked(struct sim *s, uint32_t r) {
    push(s, &s->nodes[s->reqs[r].p].prompts, r);
    work(s, s->reqs[r].p);
}

/* The first token is at the client, and what came before it. */
static void shown(struct sim *s, uint32_t r) {
    struct req *q = &s->reqs[r];
    q->first_s = q->last_s = s->now;
    q->shown = true;
    load_hist_add(&s->out->ttft, (s->now - START_S - s->asks[r].at_s) * 1e6);
    for (uint32_t k = 0; k < q->early; k++) load_hist_add(&s->out->gaps, 0);
    if (q->done == s->asks[r].out) ended(s, r);
}

/* The KV is at the decode instance. */
static void handed_over(struct sim *s, uint32_t r) {
    struct req *q = &s->reqs[r];
    q->done = 1;
    s->out->tokens++;
    s->news = true;
    s->nodes[q->p].n_prompts--;
    s->nodes[q->d].n_coming--;
    if (has_ways(&s->c->times))
        go(s, r, SHOWING);
    else
        shown(s, r);
    if (s->asks[r].out == 1) return;
    push(s, &s->nodes[q->d].waiting, r);
    work(s, q->d);
}

static void prompt_done(struct sim *s, struct node *v, uint32_t r) {
    struct req *q = &s->reqs[r];
    double link = 0;
    v->queue_s -= q->computed_s;
    v->tokens -= s->asks[r].in;
    if (v->prompts.first == NONE) v->queue_s = v->tokens = 0; /* and what sums of parts leave */
    if (v->cache != NULL) {
        sim_cache_use(v->cache, &s->asks[r], s->asks[r].n_blocks);
        sim_cache_use(s->nodes[q->d].cache, &s->asks[r], s->asks[r].n_blocks);
    }
    if (q->p != q->d && s->c->link_bytes_per_s > 0)
        link = q->sent * s->c->kv_token_bytes / s->c->link_bytes_per_s - q->prompt_s;
    at(s, s->now + (link > 0 ? link : 0), HANDED_OVER, r);
}

/* A pass has been computed: those that are whole now leave the others. */
static void pass_done(struct sim *s, struct node *v) {
    struct queue left = {NONE, NONE}, whole = {NONE, NONE};
    while (v->prompts.first != NONE) {
        const uint32_t r = pop(s, &v->prompts);
        struct req *q = &s->reqs[r];
        q->rows += q->piece;
        q->piece = 0;
        push(s, q->rows < s->asks[r].in ? &left : &whole, r);
    }
    v->prompts = left;
    while (whole.first != NONE) prompt_done(s, v, pop(s, &whole));
}

static void piece_done(struct sim *s, struct node *v) {
    struct req *q = &s->reqs[v->prompts.first];
    q->left_s -= v->piece_s;
    if (q->left_s <= 1e-12) prompt_done(s, v, pop(s, &v->prompts));
}

static void step_done(struct sim *s, struct node *v) {
    unsigned n = 0;
    spend(s, (uint32_t)(v - s->nodes), SIM_HOP, v->n_batch * s->c->times.token_cpu_s, WHATS, 0);
    for (unsigned k = 0; k < v->n_batch; k++) {
        const uint32_t r = v->batch[k];
        struct req *q = &s->reqs[r];
        if (q->shown)
            load_hist_add(&s->out->gaps, (s->now - q->last_s) * 1e6);
        else
            q->early++;
        q->last_s = s->now;
        s->out->tokens++;
        v->context++;
        if (++q->done < s->asks[r].out) {
            v->batch[n++] = r;
            continue;
        }
        v->context -= (double)s->asks[r].in + q->done;
        if (q->shown) ended(s, r);
    }
    v->n_batch = n;
}

/* ---- prefixes */
/* Tokens of a prompt that an instance has; never all of it. */
static double cached_at(const struct sim *s, uint32_t i, uint32_t r) {
    const struct sim_ask *a = &s->asks[r];
    if (s->nodes[i].cache == NULL || a->n_blocks == 0) return 0;
    const double tokens = (double)sim_cache_find(s->nodes[i].cache, a) * a->block_tokens;
    return fmin(tokens, a->in - 1.0);
}

/* What of a prompt is computed at its P, with what that has or gets back from a D, and how long
 * both take. */
static void begin_prompt(struct sim *s, uint32_t r, const struct pair_choice *pair) {
    struct req *q = &s->reqs[r];
    const double in = s->asks[r].in, own = cached_at(s, q->p, r);
    const double given = pair->kv_at != 0 ? cached_at(s, pair->kv_at - 1, r) : 0;
    const double has = fmax(own, given);
    double fetch_s = 0;
    if (given > own && s->c->link_bytes_per_s > 0)
        fetch_s = (given - own) * s->c->kv_token_bytes / s->c->link_bytes_per_s;
    q->rows = has;
    q->prompt_s = q->left_s = perf_prompt_s(&s->c->perf, in - has) + fetch_s;
    q->sent = in - cached_at(s, q->d, r);
    s->out->prompt_tokens += in;
    s->out->cached_tokens += has;
    s->out->fetched += given > own;
    s->fresh += ((in - has) / in - s->fresh) / MEAN_OF;
}

/* ---- the router */
static void measure(const struct sim *s, struct inst_view *v, double in) {
    route_measure(v, &s->c->perf, 1, 1, in, in + s->new_tokens / 2);
}

static void fill(const struct sim *s, struct inst_view *v, uint32_t i, bool of_p, uint32_t r) {
    const double in = s->asks[r].in;
    const struct node *n = &s->nodes[i];
    v->open = place_of(s, i)->next == ROLE_NONE;
    v->slots_booked = of_p ? n->n_prompts : n->n_decodes;
    v->prefill_tokens = (uint64_t)n->tokens;
    v->blocks_total = BLOCKS;
    v->blocks_avail = BLOCKS - n->used;
    v->blocks_booked = n->booked;
    v->pass = n->pass;
    v->queue_s = n->queue_s;
    v->n_prompts = n->n_prompts;
    v->n_decoding = n->n_decodes;
    v->n_coming = n->n_coming;
    v->cached = s->c->blind ? 0 : cached_at(s, i, r);
    measure(s, v, in);
}

/* Who is in which list, and whom each is linked with: what a plan changes. */
static void list_all(struct sim *s) {
    const unsigned n = s->c->instances;
    uint32_t *next = s->members;
    s->news = true;
    s->n_p = s->n_d = 0;
    for (unsigned i = 0; i < n; i++) {
        const unsigned group = place_of(s, i)->group;
        uint32_t *mine = NULL;
        size_t n_mine = 0;
        for (unsigned k = 0; k < i && mine == NULL; k++)
            if (place_of(s, k)->group == group) {
                mine = s->members + s->peers[2 * k];
                n_mine = s->peers[2 * k + 1];
            }
        if (mine == NULL) {
            mine = next;
            for (unsigned k = 0; k < n; k++)
                if (place_of(s, k)->group == group) mine[n_mine++] = k + 1;
            next += n_mine;
        }
        s->peers[2 * i] = (uint32_t)(mine - s->members);
        s->peers[2 * i + 1] = (uint32_t)n_mine;
        const struct inst_view v = {.id = i + 1,
                                    .group = group,
                                    .slots_total = s->c->slots,
                                    .computes = true,
                                    .peer_rate = s->rates,
                                    .peers = mine,
                                    .n_peers = is_alone(s, i) ? 0 : n_mine};
        if (works_as(s, i, ROLE_PREFILL)) s->p[s->n_p++] = v;
        if (works_as(s, i, ROLE_DECODE)) s->d[s->n_d++] = v;
    }
}

/* What the router is shown of a request. */
static struct demand look(struct sim *s, uint32_t r) {
    const struct sim_ask *a = &s->asks[r];
    for (size_t i = 0; i < s->n_p; i++) fill(s, &s->p[i], s->p[i].id - 1, true, r);
    for (size_t j = 0; j < s->n_d; j++) fill(s, &s->d[j], s->d[j].id - 1, false, r);
    return (struct demand){.prompts = 1,
                           .slots = 1,
                           .blocks = blocks_of(a),
                           .prompt_tokens = a->in,
                           .new_tokens = fmin(a->out, s->new_tokens),
                           .whole = true};
}

/* False: no pair has room. */
static bool place(struct sim *s, uint32_t r) {
    const struct sim_ask *a = &s->asks[r];
    const struct demand demand = look(s, r);
    struct pair_choice pair;
    if (!schedule_pick(&pair, &s->sched, s->p, s->n_p, s->d, s->n_d, demand, 0, 0, 0)) return false;
    struct req *q = &s->reqs[r];
    q->d = s->d[pair.d].id - 1;
    q->p = pair.alone ? q->d : s->p[pair.p].id - 1;
    struct node *p = &s->nodes[q->p];
    if (!pair.alone) schedule_turn(&s->turn, &p->pass, 1);
    schedule_turn(&s->d_turn, &s->nodes[q->d].pass, 1);
    arrivals_add(&s->placed, 1, 0, 0, 0, (uint64_t)(s->now * 1e6));
    begin_prompt(s, r, &pair);
    q->computed_s = pair.prompt_s > 0 ? pair.prompt_s : q->prompt_s;
    p->queue_s += q->computed_s;
    p->tokens += a->in;
    p->n_prompts++;
    s->nodes[q->d].n_decodes++;
    s->nodes[q->d].n_coming++;
    s->nodes[q->d].booked += demand.blocks;
    if (has_ways(&s->c->times))
        go(s, r, ASKING);
    else
        asked(s, r);
    return true;
}

/* ---- the planner */
static void switched(struct sim *s, uint32_t i) {
    struct plan_node *v = &s->plan.nodes[i];
    v->place.role = v->reports = v->place.next;
    v->place.next = ROLE_NONE;
    v->switched_ms = (uint64_t)(s->now * 1e3);
    v->closed_ms = 0;
    list_all(s);
}

static void needs_of(struct sim *s, struct role_needs *out) {
    const struct role_targets t = {s->c->first_token_s, s->c->token_s, s->c->slots};
    struct role_load l = {.arrivals = s->arrivals,
                          .waiting_prompt_s = s->queued_s,
                          .waiting_sequences = (double)s->n_queued,
                          .new_tokens = s->new_tokens};
    double tokens = 0, in_prefill = 0;
    for (unsigned i = 0; i < s->c->instances; i++) {
        l.decoding += s->nodes[i].n_decodes;
        in_prefill += s->nodes[i].n_prompts;
        tokens += s->nodes[i].tokens;
    }
    l.decoding = fmax(l.decoding - in_prefill, 0);
    if (tokens > 0) l.backlog_prompt_s = perf_prompt_s(&s->c->perf, tokens);
    role_needs_of(out, &l, &t, &s->c->perf, (uint64_t)(s->now * 1e6));
}

/* What is known before: the window's ratio, at once and for nothing. Who has other work ends it. */
static void take_ratio(struct sim *s) {
    const struct sim_conf *c = s->c;
    const size_t k = (size_t)((s->now - START_S) / c->ratio_window_s + 1e-9);
    const unsigned p = c->ratios[k < c->n_ratios ? k : c->n_ratios - 1];
    bool changed = false;
    for (unsigned i = 0; i < c->instances; i++) {
        size_t n = 0, before = 0; /* of its group, of these with a lower id */
        for (unsigned m = 0; m < c->instances; m++) {
            if (place_of(s, m)->group != place_of(s, i)->group) continue;
            n++;
            before += m < i;
        }
        const enum inst_role role =
            before < plan_n_prefill(n, p, SIM_RATIO_PARTS - p) ? ROLE_PREFILL : ROLE_DECODE;
        struct plan_node *v = &s->plan.nodes[i];
        changed |= v->place.role != role;
        v->place.role = v->reports = role;
    }
    if (changed) list_all(s);
}

static void plan(struct sim *s) {
    for (unsigned i = 0; i < s->c->instances; i++)
        s->nodes[i].used = (uint64_t)fmax(s->nodes[i].context, 0) / BLOCK_TOKENS;
    if (s->c->mode == SIM_STANDARD) return;
    if (s->c->mode == SIM_FIXED && s->c->n_ratios > 0 && place_of(s, 0)->group != 0) {
        take_ratio(s);
        return;
    }
    if (s->c->mode == SIM_FOLLOW) needs_of(s, &s->plan_conf.needs);
    struct plan_node was[SIM_INSTANCES_MAX];
    const unsigned n = s->c->instances;
    for (unsigned i = 0; i < n; i++)
        s->plan.nodes[i].tasks = s->nodes[i].n_prompts + s->nodes[i].n_decodes;
    memcpy(was, s->plan.nodes, n * sizeof(*was));
    if (plan_make(&s->plan, &s->plan_conf, (uint64_t)(s->now * 1e3)) != ERR_OK) s->failed = true;
    bool changed = false;
    for (uint32_t i = 0; i < n; i++) {
        struct plan_node *v = &s->plan.nodes[i];
        const struct plan_place *a = &was[i].place, *b = &v->place;
        v->reports = b->role;
        changed |= a->role != b->role || a->group != b->group || a->share != b->share ||
                   a->stands_in != b->stands_in;
        if (a->share != b->share) {
            s->out->shares++;
            v->shared_ms = (uint64_t)(s->now * 1e3);
        }
        if (a->next == b->next || b->next == ROLE_NONE) continue;
        s->out->moves++;
        at(s, s->now + s->c->switch_s, SWITCHED, i);
    }
    if (changed) list_all(s);
}

/* ---- a run */
/* As relay_comes_too_late(). */
static bool comes_too_late(struct sim *s, uint32_t r) {
    const struct forecast_targets t = {.first_token_s = s->c->first_token_s,
                                       .token_s = s->c->token_s,
                                       .factor = s->c->reject_factor};
    struct forecast_facts f = {.n_before = (double)s->n_queued,
                               .placed_per_s =
                                   arrivals_per_s(&s->placed, (uint64_t)(s->now * 1e6))};
    struct forecast out;
    if (!(t.factor > 0)) return false;
    const struct demand demand = look(s, r);
    if (route_expect(s->p, s->n_p, s->d, s->n_d, &demand))
        for (size_t j = 0; j < s->n_d; j++) measure(s, &s->d[j], s->asks[r].in);
    route_look_ahead(&f, &s->sched, s->p, s->n_p, s->d, s->n_d, &demand);
    forecast_of(&out, &f, &t);
    return out.says != FORECAST_IN_TIME;
}

static void arrive(struct sim *s, uint32_t r) {
    const double prompt_s = perf_prompt_s(&s->c->perf, s->asks[r].in) * s->fresh;
    if (comes_too_late(s, r)) {
        s->out->refused++;
        return;
    }
    arrivals_add(&s->arrivals, 1, s->asks[r].in, 1, prompt_s, (uint64_t)(s->now * 1e6));
    push(s, &s->queue, r);
    s->n_queued++;
    s->queued_s += prompt_s;
}

static void drain_queue(struct sim *s) {
    while (s->queue.first != NONE && s->news) {
        const uint32_t r = s->queue.first, next = s->reqs[r].next; /* place() lists it elsewhere */
        if (!place(s, r)) {
            s->news = false; /* what has no room now has none until something ends */
            return;
        }
        s->queue.first = next;
        s->n_queued--;
        s->queued_s = s->n_queued > 0 ? s->queued_s - perf_prompt_s(&s->c->perf, s->asks[r].in) : 0;
    }
}

static void worked(struct sim *s, uint32_t i) {
    struct node *v = &s->nodes[i];
    v->busy = false;
    if (v->piece_s > 0 && s->c->times.chunk_tokens > 0)
        pass_done(s, v);
    else if (v->piece_s > 0)
        piece_done(s, v);
    if (v->steps) step_done(s, v);
    work(s, i);
}

static void happen(struct sim *s, enum what what, uint32_t of);

static void on_host(struct sim *s, const struct sim_event *e) {
    uint32_t id;
    if (s->host_events[e->of] != e->number) return;
    while (sim_host_take(&s->hosts[e->of], s->now, &id))
        happen(s, (enum what)((id - 1) % WHATS), (id - 1) / WHATS);
    look_at_host(s, e->of);
}

static void happen(struct sim *s, enum what what, uint32_t of) {
    switch (what) {
    case ARRIVAL: arrive(s, of); break;
    case ASKING: wait_on(s, of, ASKED); break;
    case ASKED: asked(s, of); break;
    case SHOWING: wait_on(s, of, SHOWN); break;
    case SHOWN: shown(s, of); break;
    case WORKED: worked(s, of); break;
    case HANDED_OVER: handed_over(s, of); break;
    case SWITCHED:
        switched(s, of);
        plan(s); /* as the coordinator does */
        break;
    case PLAN:
        plan(s);
        at(s, s->now + PLAN_EVERY_S, PLAN, 0);
        break;
    case ON_HOST:
    case WHATS: break;
    }
    drain_queue(s);
}

static bool start_hosts(struct sim *s) {
    const struct sim_times *t = &s->c->times;
    if (!(t->cores > 0)) return true;
    const struct sim_host_conf conf = sim_times_host(t);
    s->per_host = s->c->per_host > 0 ? s->c->per_host : 1;
    s->n_hosts = (s->c->instances + s->per_host - 1) / s->per_host;
    s->hosts = calloc(s->n_hosts, sizeof(*s->hosts));
    s->host_events = calloc(s->n_hosts, sizeof(*s->host_events));
    if (s->hosts == NULL || s->host_events == NULL) return false;
    for (unsigned h = 0; h < s->n_hosts; h++)
        if (sim_host_init(&s->hosts[h], &conf, START_S) != ERR_OK) return false;
    return true;
}

static bool start(struct sim *s, size_t n) {
    const unsigned n_inst = s->c->instances;
    s->reqs = calloc(n + 1, sizeof(*s->reqs));
    s->nodes = calloc(n_inst, sizeof(*s->nodes));
    s->plan.nodes = calloc(n_inst, sizeof(*s->plan.nodes));
    s->p = calloc(n_inst, sizeof(*s->p));
    s->d = calloc(n_inst, sizeof(*s->d));
    s->peers = calloc(2 * (size_t)n_inst, sizeof(*s->peers));
    s->members = calloc(n_inst, sizeof(*s->members));
    s->rates = calloc(n_inst, sizeof(*s->rates));
    if (s->reqs == NULL || s->nodes == NULL || s->plan.nodes == NULL || s->p == NULL ||
        s->d == NULL || s->peers == NULL || s->members == NULL || s->rates == NULL)
        return false;
    for (unsigned i = 0; i < n_inst; i++) {
        struct node *v = &s->nodes[i];
        v->prompts.first = v->waiting.first = NONE;
        v->batch = calloc(s->c->slots, sizeof(*v->batch));
        if (v->batch == NULL) return false;
        if (s->c->cache_blocks > 0 && (v->cache = sim_cache_create(s->c->cache_blocks)) == NULL)
            return false;
        s->rates[i] = s->c->link_bytes_per_s;
        s->plan.nodes[i] = (struct plan_node){.id = i + 1, .label = -1, .here = true};
    }
    s->queue.first = NONE;
    sim_pass_of(&s->pass, &s->c->perf, (unsigned)s->c->times.chunk_tokens);
    if (!start_hosts(s)) return false;
    s->plan.n = n_inst;
    s->plan.started_ms = (uint64_t)(START_S * 1e3);
    s->arrivals.window_s = s->placed.window_s = s->c->window_s;
    s->new_tokens = NEW_TOKENS_GUESS;
    s->fresh = 1;
    s->plan_conf = (struct plan_conf){.decides = true,
                                      .p_rate = s->c->mode == SIM_FIXED ? s->c->p_rate : 0,
                                      .d_rate = s->c->mode == SIM_FIXED ? s->c->d_rate : 0,
                                      .repair_ms = 30000,
                                      .fall_back = true,
                                      .flex = s->c->mode == SIM_FOLLOW && s->c->flex,
                                      .unsplit = s->c->mode == SIM_FOLLOW && s->c->unsplit,
                                      .cool_ms = (uint64_t)(s->c->cool_s * 1e3)};
    s->sched = (struct schedule_conf){.policy = s->c->reference ? POLICY_LOAD_BALANCE : POLICY_COST,
                                      .coefficients = {0, 0.22, 1024, 24, 6, 0, 1, 0, 1},
                                      .limit_demand = true,
                                      .res_limit_rate = RES_LIMIT,
                                      .weights = {1, 1, 1, 1},
                                      .local_tokens_max = LOCAL_MAX,
                                      .prefill_queue_max = QUEUE_MAX,
                                      .token_target_s = s->c->token_s,
                                      .kv_token_bytes = s->c->kv_token_bytes};
    return true;
}

static void stop(struct sim *s) {
    for (unsigned i = 0; s->nodes != NULL && i < s->c->instances; i++) {
        free(s->nodes[i].batch);
        sim_cache_destroy(&s->nodes[i].cache);
    }
    free(s->reqs);
    free(s->nodes);
    free(s->plan.nodes);
    free(s->p);
    free(s->d);
    free(s->peers);
    free(s->members);
    free(s->rates);
    for (unsigned h = 0; s->hosts != NULL && h < s->n_hosts; h++) sim_host_free(&s->hosts[h]);
    free(s->hosts);
    free(s->host_events);
    sim_events_free(&s->events);
}

enum err sim_run(struct sim_result *out, const struct sim_conf *c, const struct sim_ask *asks,
                 size_t n) {
    struct sim s = {.c = c, .asks = asks, .out = out, .now = START_S};
    memset(out, 0, sizeof(*out));
    out->asked = n;
    out->span_s = n > 0 ? asks[n - 1].at_s : 0;
    s.failed = !start(&s, n);
    if (!s.failed) {
        plan(&s);
        list_all(&s);
        if (c->mode == SIM_FIXED && c->n_ratios > 0) take_ratio(&s);
        out->moves = out->shares = 0;
        at(&s, START_S + PLAN_EVERY_S, PLAN, 0);
    }
    for (size_t next = 0; !s.failed && out->ended + out->refused < n;) {
        if (next < n && asks[next].at_s + START_S <= s.events.heap[0].at_s) {
            s.now = asks[next].at_s + START_S;
            happen(&s, ARRIVAL, (uint32_t)next++);
            continue;
        }
        const struct sim_event e = sim_events_take(&s.events);
        if (e.at_s > START_S + out->span_s + TAIL_S) break;
        s.now = e.at_s;
        if (e.what == ON_HOST)
            on_host(&s, &e);
        else
            happen(&s, (enum what)e.what, e.of);
    }
    out->unfinished = n - out->ended - out->refused;
    stop(&s);
    return s.failed ? ERR_NO_MEMORY : ERR_OK;
}
