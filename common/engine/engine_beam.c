/* engine_beam: beam search (engine.h says what it does). The beams of a search are the choices of a
 * sequence: slots, block tables and ids are theirs, and an ordinary decoding row is all the pass
 * sees. What differs is who goes on: a choice whose logits are in waits (parked) for the others,
 * and when all are in, the best continuations of all of them are dealt out.
 *
 * Tokens. A beam's tokens are a path in a tree of nodes that only grows, so a beam is forked by
 * pointing at a node, and one that has ended needs no slot.
 *
 * Blocks. The first child of a beam stays in its parent's choice, so nothing that is read is ever
 * written; another child moves into a choice whose beam died: it takes references to its parent's
 * full blocks, drops its own at those places, and copies the partly filled one. Full blocks are
 * never written again, and all beams are equally long, so the blocks from the partly filled one on
 * are always the choice's own: those reserved at admission are enough, whoever forks. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/engine/engine_priv.h"

struct node {
    int parent; /* -1: the first token */
    int32_t id;
    float logprob;
    int n_top;
    uint32_t batch_size, queue_wait_us, step_us;
};

/* A sequence that has ended. */
struct done {
    double score;
    int node;
    enum finish finish;
};

/* What a choice carries. */
struct beam {
    double score; /* sum of the log-probabilities */
    int node;     /* -1: the prompt alone */
    int n_cands;  /* -1: its logits are not in yet */
    int next;     /* the best candidate that is not dealt out yet */
    bool forced;  /* the guide lets nothing follow: the one candidate ends it */
    uint32_t batch_size, queue_wait_us, step_us;
    struct top_logprob *cands; /* [k] best first */
};

/* A continuation that was chosen. */
struct pick {
    struct choice *from; /* of the parent */
    struct top_logprob token;
    double score;
    int node;
    enum finish finish;
};

struct beam_search {
    int width, k, n_tops, steps_max;
    struct beam *beams;       /* [width] by choice */
    struct top_logprob *cand; /* [width][k] */
    struct choice **run;      /* [n_run] the choices with a beam, best first */
    int n_run, n_waiting;     /* of them those whose logits are not in */
    struct pick *picks;       /* [2 * width] */
    struct done *pool;        /* [n_pool] best first */
    int n_pool;
    struct node *nodes; /* [n_nodes] */
    int n_nodes;
    struct top_logprob *tops; /* [nodes][n_tops] */
    int *path;                /* [steps_max] */
    bool *taken;              /* [width] choices that carry a beam of the next step */
};

/* ---- life */

void engine_beam_free(struct beam_search **b_ptr) {
    struct beam_search *b = *b_ptr;
    if (b == NULL) return;
    free(b->beams);
    free(b->cand);
    free(b->run);
    free(b->picks);
    free(b->pool);
    free(b->nodes);
    free(b->tops);
    free(b->path);
    free(b->taken);
    free(b);
    *b_ptr = NULL;
}

bool engine_beam_open(struct seq *s) {
    const struct sampling *p = &s->sampling;
    struct beam_search *b = s->search = calloc(1, sizeof(*b));
    if (b == NULL) return false;
    b->width = p->n_choices;
    b->n_tops = p->top_logprobs;
    b->k = 2 * b->width > b->n_tops ? 2 * b->width : b->n_tops;
    b->steps_max = s->kind == SEQ_PREFILL ? 1 : s->ids_max - s->n_input;
    size_t width = (size_t)b->width, k = (size_t)b->k, steps = (size_t)b->steps_max;
    size_t n_nodes = 2 * width * steps; /* a step picks no more */
    b->beams = calloc(width, sizeof(*b->beams));
    b->cand = calloc(width * k, sizeof(*b->cand));
    b->run = calloc(width, sizeof(struct choice *));
    b->picks = calloc(2 * width, sizeof(*b->picks));
    b->pool = calloc(width, sizeof(*b->pool));
    b->nodes = calloc(n_nodes, sizeof(*b->nodes));
    b->tops = calloc(n_nodes * (size_t)b->n_tops + 1, sizeof(*b->tops));
    b->path = calloc(steps, sizeof(*b->path));
    b->taken = calloc(width, sizeof(*b->taken));
    if (b->beams == NULL || b->cand == NULL || b->run == NULL || b->picks == NULL ||
        b->pool == NULL || b->nodes == NULL || b->tops == NULL || b->path == NULL ||
        b->taken == NULL)
        return false;
    for (size_t i = 0; i < width; i++)
        b->beams[i] = (struct beam){.node = -1, .n_cands = -1, .cands = b->cand + i * k};
    b->run[0] = &s->choices[0];
    b->n_run = b->n_waiting = 1;
    return true;
}

static int node_add(struct beam_search *b, const struct node *n, const struct top_logprob *tops) {
    b->nodes[b->n_nodes] = *n;
    if (n->n_top > 0)
        memcpy(b->tops + (size_t)b->n_nodes * (size_t)b->n_tops, tops,
               (size_t)n->n_top * sizeof(*tops));
    return b->n_nodes++;
}

/* The width best, those first that ended first. False: it is none of them. */
static bool pool_add(struct beam_search *b, double score, int node, enum finish finish) {
    int at = b->n_pool < b->width ? b->n_pool++ : b->width;
    if (at == b->width && !(score > b->pool[--at].score)) return false;
    for (; at > 0 && score > b->pool[at - 1].score; at--) b->pool[at] = b->pool[at - 1];
    b->pool[at] = (struct done){.score = score, .node = node, .finish = finish};
    return true;
}

/* Nothing that runs can still come among the best: sums only fall. */
static bool is_settled(const struct beam_search *b, double best_running) {
    return b->n_pool == b->width && b->pool[b->width - 1].score >= best_running;
}

/* ---- telling */

/* Tells one sequence. False: a callback has ended the search. */
static bool tell_one(struct engine *e, struct seq *s, int choice, bool last) {
    struct beam_search *b = s->search;
    const struct done *d = &b->pool[choice % b->n_pool];
    bool prefill = s->kind == SEQ_PREFILL;
    uint64_t id = s->id;
    int n = 0;
    for (int node = d->node; node >= 0; node = b->nodes[node].parent) b->path[n++] = node;
    for (int i = n - 1; i >= 0; i--) {
        const struct node *nd = &b->nodes[b->path[i]];
        struct token_event ev = {
            .id = nd->id,
            .choice = choice,
            .index = n - 1 - i,
            .finish = i == 0 ? d->finish : FINISH_NONE,
            .more = prefill ? !last : i > 0,
            .logprob = nd->logprob,
            .n_top = nd->n_top,
            .batch_size = nd->batch_size,
            .queue_wait_us = nd->queue_wait_us,
            .step_us = nd->step_us,
        };
        if (nd->n_top > 0)
            memcpy(ev.top, b->tops + (size_t)b->path[i] * (size_t)b->n_tops,
                   (size_t)nd->n_top * sizeof(ev.top[0]));
        if (last && i == 0 && !prefill) engine_seq_end(e, s);
        if (e->ev.on_token != NULL) e->ev.on_token(e->ev.arg, id, &ev);
        if (e->telling == NULL) return false;
    }
    return true;
}

/* The search is over: gives back what it holds, then tells the best. */
static void tell_all(struct engine *e, struct seq *s) {
    int width = s->search->width;
    if (s->kind == SEQ_PREFILL) engine_seq_hold(e, s);
    for (int i = 0; i < s->n_choices && s->kind != SEQ_PREFILL; i++)
        engine_choice_give(e, &s->choices[i]);
    e->telling = s;
    for (int i = 0; i < width; i++)
        if (!tell_one(e, s, i, i == width - 1)) break;
    e->telling = NULL;
}

/* A prefill whose search goes on tells its first tokens as they were picked: what
 * engine_beam_start() wants. */
static void tell_picks(struct engine *e, struct seq *s, int n_picks) {
    struct beam_search *b = s->search;
    uint64_t id = s->id;
    engine_seq_hold(e, s);
    e->telling = s;
    for (int i = 0; i < n_picks && e->telling != NULL; i++) {
        const struct pick *p = &b->picks[i];
        const struct node *nd = &b->nodes[p->node];
        struct token_event ev = {
            .id = nd->id,
            .choice = i,
            .finish = p->finish,
            .more = i + 1 < n_picks,
            .logprob = nd->logprob,
            .n_top = nd->n_top,
            .batch_size = nd->batch_size,
            .queue_wait_us = nd->queue_wait_us,
            .step_us = nd->step_us,
        };
        if (nd->n_top > 0)
            memcpy(ev.top, b->tops + (size_t)p->node * (size_t)b->n_tops,
                   (size_t)nd->n_top * sizeof(ev.top[0]));
        if (e->ev.on_token != NULL) e->ev.on_token(e->ev.arg, id, &ev);
    }
    e->telling = NULL;
}

/* ---- forking */

/* The beam of one choice, its logits in and its ids without the next, in another choice too. */
static bool fork_into(struct engine *e, struct choice *to, const struct choice *from) {
    const struct seq *s = from->seq;
    int n_full = from->n_past / e->block_tokens;
    memcpy(to->ids + s->n_input, from->ids + s->n_input,
           (size_t)(from->n_ids - s->n_input) * sizeof(*to->ids));
    for (int i = s->n_shared; i < n_full; i++) {
        if (to->blocks[i] == from->blocks[i]) continue;
        kv_block_ref(e->kv, from->blocks[i]);
        kv_blocks_unref(e->kv, &to->blocks[i], 1);
        to->blocks[i] = from->blocks[i];
        e->n_frees++; /* it may have been the last reference */
    }
    if (from->n_past % e->block_tokens != 0)
        engine_block_copy(e, to->blocks[n_full], from->blocks[n_full]);
    to->n_ids = from->n_ids;
    to->n_past = from->n_past;
    to->last_step = from->last_step;
    to->wait_us = from->wait_us;
    if (from->guide.ops == NULL) return true;
    void *state = from->guide.ops->fork(from->guide.state);
    if (to->guide.ops != NULL) to->guide.ops->free(to->guide.state);
    to->guide = (struct token_guide){0};
    if (state == NULL) return false;
    to->guide = (struct token_guide){.ops = from->guide.ops, .state = state};
    return true;
}

/* Deals the picks that go on out to the choices, best first. False: no memory for a guide. */
static bool deal(struct engine *e, struct seq *s, int n_picks, uint64_t now_us) {
    struct beam_search *b = s->search;
    bool ok = true;
    memset(b->taken, 0, (size_t)b->width * sizeof(*b->taken));
    b->n_run = 0;
    for (int i = 0; i < n_picks; i++) {
        const struct pick *p = &b->picks[i];
        if (p->finish != FINISH_NONE) continue;
        bool stays = !b->taken[p->from->idx];
        if (stays) b->taken[p->from->idx] = true;
        b->run[b->n_run++] = stays ? p->from : NULL;
    }
    /* All forks before any parent moves on. */
    for (int i = 0, r = 0, idx = 0; i < n_picks; i++) {
        const struct pick *p = &b->picks[i];
        if (p->finish != FINISH_NONE) continue;
        if (b->run[r++] != NULL) continue;
        while (b->taken[idx]) idx++;
        b->taken[idx] = true;
        b->run[r - 1] = &s->choices[idx];
        ok = ok && fork_into(e, &s->choices[idx], p->from);
    }
    if (!ok) return false;
    for (int i = 0, r = 0; i < n_picks; i++) {
        const struct pick *p = &b->picks[i];
        if (p->finish != FINISH_NONE) continue;
        struct choice *c = b->run[r++];
        struct beam *beam = &b->beams[c->idx];
        c->ids[c->n_ids++] = p->token.id;
        if (c->guide.ops != NULL) (void)c->guide.ops->advance(c->guide.state, p->token.id);
        c->token_us = c->ready_us = now_us;
        c->wait_open = true;
        beam->score = p->score;
        beam->node = p->node;
        beam->n_cands = -1;
    }
    for (int i = 0; i < s->n_choices; i++) s->choices[i].parked = !b->taken[i];
    b->n_waiting = b->n_run;
    s->forked = true;
    return true;
}

/* ---- choosing */

/* The best candidate left: the sum counts, then the parent's rank, then the rank among its own.
 * NULL: there is none. */
static struct choice *best_next(const struct beam_search *b, double *score) {
    struct choice *best = NULL;
    for (int r = 0; r < b->n_run; r++) {
        const struct beam *beam = &b->beams[b->run[r]->idx];
        if (beam->next >= beam->n_cands) continue;
        double sum = beam->score + (double)beam->cands[beam->next].logprob;
        if (best != NULL && !(sum > *score)) continue;
        best = b->run[r];
        *score = sum;
    }
    return best;
}

/* Fills picks; *best_running is the sum of the first that goes on. Returns how many picks. */
static int pick_best(struct engine *e, struct seq *s, double *best_running) {
    struct beam_search *b = s->search;
    int n_picks = 0, n_next = 0;
    double score;
    *best_running = -DBL_MAX;
    for (int i = 0; i < b->n_run; i++) b->beams[b->run[i]->idx].next = 0;
    for (int seen = 0; seen < 2 * b->width && n_next < b->width; seen++) {
        struct choice *from = best_next(b, &score);
        if (from == NULL) break;
        struct beam *beam = &b->beams[from->idx];
        struct pick p = {.from = from, .token = beam->cands[beam->next++], .score = score};
        p.finish = beam->forced ? FINISH_EOS : engine_finish_of(e, s, p.token.id, from->n_ids + 1);
        int n_top = beam->forced ? 0 : beam->n_cands < b->n_tops ? beam->n_cands : b->n_tops;
        const struct node nd = {
            .parent = beam->node,
            .id = p.token.id,
            .logprob = p.token.logprob,
            .n_top = n_top,
            .batch_size = beam->batch_size,
            .queue_wait_us = beam->queue_wait_us,
            .step_us = beam->step_us,
        };
        p.node = node_add(b, &nd, beam->cands);
        if (p.finish != FINISH_NONE) {
            if (!pool_add(b, score, p.node, p.finish)) continue;
        } else {
            if (n_next++ == 0) *best_running = score;
        }
        b->picks[n_picks++] = p;
    }
    e->generated_tokens += (uint64_t)n_picks;
    return n_picks;
}

static void expand(struct engine *e, struct seq *s, uint64_t now_us) {
    struct beam_search *b = s->search;
    double best_running;
    int n_picks = pick_best(e, s, &best_running);
    if (n_picks == 0 && b->n_pool == 0) {
        if (s->kind == SEQ_PREFILL) engine_seq_hold(e, s);
        engine_seq_fail(e, s, ERR_INTERNAL);
        return;
    }
    if (best_running == -DBL_MAX || is_settled(b, best_running)) {
        tell_all(e, s);
    } else if (s->kind == SEQ_PREFILL) {
        tell_picks(e, s, n_picks);
    } else if (!deal(e, s, n_picks, now_us)) {
        engine_seq_fail(e, s, ERR_INTERNAL);
    }
}

void engine_beam_logits(struct engine *e, struct choice *c, float *row, uint64_t now_us) {
    struct seq *s = c->seq;
    struct beam_search *b = s->search;
    struct beam *beam = &b->beams[c->idx];
    const struct sample_in in = {
        .p = &s->sampling,
        .history = c->ids,
        .n_history = c->n_ids,
        .n_prompt = s->n_prompt,
        .ends = s->ends,
        .n_ends = s->n_ends,
        .no_end = c->n_ids - s->n_prompt < s->sampling.new_tokens_min,
        .mask = c->guide.ops != NULL ? e->tools[0].mask : NULL,
        .maxima = engine_maxima(e, row),
    };
    beam->batch_size = (uint32_t)e->n_plan;
    beam->queue_wait_us = c->wait_us < UINT32_MAX ? (uint32_t)c->wait_us : UINT32_MAX;
    uint64_t step_us = now_us - c->token_us;
    beam->step_us = step_us < UINT32_MAX ? (uint32_t)step_us : UINT32_MAX;
    beam->n_cands = 0;
    beam->forced = false;
    if (c->guide.ops == NULL || engine_guide_mask(e, c, e->tools[0].mask))
        beam->n_cands =
            sample_best(e->tools[0].scratch, row, e->info.vocab_size, &in, b->k, beam->cands);
    enum err why = beam->n_cands == 0 ? engine_guide_failure(c) : ERR_OK;
    if (why != ERR_OK) {
        engine_seq_fail(e, s, why);
        return;
    }
    if (beam->n_cands == 0 && engine_may_run_out(c)) { /* its text is complete */
        beam->forced = true;
        beam->n_cands = 1;
        beam->cands[0] = (struct top_logprob){.id = e->info.n_eos > 0 ? e->info.eos_ids[0] : 0};
    }
    c->parked = true;
    if (--b->n_waiting == 0) expand(e, s, now_us);
}

/* ---- D's side of a split search */

static bool first_sound(const struct engine *e, const struct seq *s,
                        const struct token_event *first, size_t n) {
    size_t n_next = 0, width = (size_t)s->search->width;
    if (n > 2 * width || s->ids_max - s->n_input < 2) return false;
    for (size_t i = 0; i < n; i++) {
        const struct token_event *ev = &first[i];
        if (ev->id < 0 || ev->id >= e->info.vocab_size || !(ev->logprob <= 0) || ev->n_top < 0 ||
            ev->n_top > TOP_LOGPROBS_MAX)
            return false;
        n_next += ev->finish == FINISH_NONE;
    }
    return n_next >= 1 && n_next <= width && n - n_next <= width;
}

enum err engine_beam_start(struct engine *e, uint64_t seq_id, const struct token_event *first,
                           size_t n) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state != SEQ_ST_IMPORTING || s->search == NULL) return ERR_CONFLICT;
    if (!first_sound(e, s, first, n)) return ERR_INVALID;
    struct beam_search *b = s->search;
    for (size_t i = 0; i < n; i++) {
        const struct token_event *ev = &first[i];
        const struct node nd = {
            .parent = -1,
            .id = ev->id,
            .logprob = ev->logprob,
            .n_top = ev->n_top < b->n_tops ? ev->n_top : b->n_tops,
            .batch_size = ev->batch_size,
            .queue_wait_us = ev->queue_wait_us,
            .step_us = ev->step_us,
        };
        b->picks[i] = (struct pick){
            .from = &s->choices[0],
            .token = {.id = ev->id, .logprob = ev->logprob},
            .score = (double)ev->logprob,
            .node = node_add(b, &nd, ev->top),
            .finish = ev->finish,
        };
        if (ev->finish != FINISH_NONE)
            (void)pool_add(b, (double)ev->logprob, b->picks[i].node, ev->finish);
    }
    engine_import_over(e, s);
    bool ok = deal(e, s, (int)n, clock_us());
    engine_stats_publish(e);
    return ok ? ERR_OK : ERR_NO_MEMORY;
}
