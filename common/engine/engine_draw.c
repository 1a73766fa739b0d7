/* engine_draw: which token follows the logits of a row.
 *
 * A draw looks at all logits or at few of them, and a guide's mask may take milliseconds. So that
 * no sequence waits for the draw of another, a step tells those first whose draws are quick; draws
 * that are not are made on the compute threads, side by side, before the first of them is told. A
 * draw changes nothing but its row of logits and, by a mask, what its own guide remembers; the
 * token is the same whenever and wherever it is drawn. */
#include <stdlib.h>
#include <string.h>

#include "common/engine/engine_priv.h"

bool engine_guide_mask(const struct engine *e, const struct choice *c, uint64_t *mask) {
    size_t n_words = ((size_t)e->info.vocab_size + 63) / 64;
    if (!c->guide.ops->mask(c->guide.state, mask, e->info.vocab_size)) return false;
    if (!c->seq->sampling.ignore_eos) return true;
    bool any = false;
    for (int i = 0; i < e->info.n_eos; i++) {
        uint32_t id = (uint32_t)e->info.eos_ids[i];
        if (id < (uint32_t)e->info.vocab_size) mask[id >> 6] &= ~(UINT64_C(1) << (id & 63));
    }
    for (size_t i = 0; i < n_words && !any; i++) any = mask[i] != 0;
    return any;
}

bool engine_may_run_out(const struct choice *c) {
    const struct sampling *p = &c->seq->sampling;
    return c->guide.ops != NULL || p->allowed_ids != NULL || p->n_bad_words > 0;
}

/* The guide is at its end, only EOS would do and may not be drawn yet, or the client has forbidden
 * every token: the text is complete. */
static void end_complete(const struct engine *e, struct token_event *ev) {
    ev->id = e->info.n_eos > 0 ? e->info.eos_ids[0] : 0;
    ev->finish = FINISH_EOS;
    ev->logprob = 0;
    ev->n_top = 0;
}

enum err engine_guide_failure(const struct choice *c) {
    if (c->guide.ops == NULL || c->guide.ops->failed == NULL) return ERR_OK;
    return c->guide.ops->failed(c->guide.state);
}

const float *engine_maxima(const struct engine *e, const float *row) {
    const size_t vocab = (size_t)e->info.vocab_size;
    if (e->maxima == NULL) return NULL;
    return e->maxima + (size_t)(row - e->logits) / vocab * (size_t)sample_groups((int)vocab);
}

static uint32_t us_u32(uint64_t us) {
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static void draw_with(const struct engine *e, const struct draw_tools *tools,
                      const struct choice *c, int idx, float *row, const float *maxima,
                      struct drawn *to) {
    const struct seq *s = c->seq;
    struct token_event *ev = &to->ev;
    *ev = (struct token_event){
        .choice = idx,
        .index = c->n_ids - s->n_prompt,
        .batch_size = (uint32_t)e->n_plan,
        .queue_wait_us = us_u32(c->wait_us),
        .step_us = us_u32(e->pass_us - c->token_us),
    };
    struct sample_in in = {
        .p = &s->sampling,
        .history = c->ids,
        .n_history = c->n_ids,
        .n_prompt = s->n_prompt,
        .ends = s->ends,
        .n_ends = s->n_ends,
        .no_end = ev->index < s->sampling.new_tokens_min,
        .choice = idx,
        .maxima = maxima,
    };
    bool guided = c->guide.ops != NULL;
    if (guided) in.mask = tools->mask;
    to->why = ERR_OK;
    if ((!guided || engine_guide_mask(e, c, tools->mask)) &&
        sample_token(tools->scratch, row, e->info.vocab_size, &in, ev))
        ev->finish = engine_finish_of(e, s, ev->id, c->n_ids + 1);
    else if (engine_guide_failure(c) != ERR_OK)
        to->why = engine_guide_failure(c);
    else if (engine_may_run_out(c))
        end_complete(e, ev);
    else
        to->why = ERR_INTERNAL;
}

void engine_draw(struct engine *e, const struct choice *c, int idx, float *row, const float *maxima,
                 struct drawn *to) {
    draw_with(e, &e->tools[0], c, idx, row, maxima, to);
}

/* ---- ahead of the telling */

enum draw_when engine_draw_when(const struct engine *e, int i) {
    const struct choice *c = e->plan[i];
    const struct seq *s = c->seq;
    const bool told = s->sampling.prompt_logprobs && !s->forked;
    if (c->n_past != c->n_ids || s->kind == SEQ_EMBED) return told ? DRAW_LATE : DRAW_QUICK;
    if (told || s->search != NULL) return DRAW_LATE;
    if (c->guide.ops == NULL && sample_is_quick(&s->sampling)) return DRAW_QUICK;
    return s->forked || s->sampling.n_choices == 1 ? DRAW_AHEAD : DRAW_LATE;
}

static bool tools_open(struct draw_tools *t, int vocab_size) {
    if (sample_scratch_create(&t->scratch, vocab_size) != ERR_OK) return false;
    t->mask = calloc((size_t)vocab_size / 64 + 1, sizeof(*t->mask));
    if (t->mask == NULL) sample_scratch_destroy(&t->scratch);
    return t->mask != NULL;
}

/* Memory that nobody draws with is not touched. */
bool engine_draw_open(struct engine *e, int n_threads) {
    int want = n_threads > 0 && n_threads < DRAW_WAYS ? n_threads : DRAW_WAYS;
    if (e->ops->each == NULL) want = 1;
    if (want > e->slots_max) want = e->slots_max;
    while (e->n_tools < want && tools_open(&e->tools[e->n_tools], e->info.vocab_size)) e->n_tools++;
    return e->n_tools == want;
}

void engine_draw_close(struct engine *e) {
    for (int i = 0; i < e->n_tools; i++) {
        sample_scratch_destroy(&e->tools[i].scratch);
        free(e->tools[i].mask);
    }
}

static void draw_item(void *arg, int way, int thread) {
    struct engine *e = arg;
    int k;
    (void)thread;
    while ((k = atomic_fetch_add_explicit(&e->n_ahead_taken, 1, memory_order_relaxed)) <
           e->n_ahead) {
        const int i = e->ahead[k];
        const struct choice *c = e->plan[i];
        float *row = engine_plan_row(e, i);
        struct drawn *to = &e->drawn[i];
        draw_with(e, &e->tools[way], c, c->seq->forked ? c->idx : 0, row, engine_maxima(e, row),
                  to);
        to->there = true;
    }
}

void engine_draw_ahead(struct engine *e) {
    e->n_ahead = 0;
    for (int i = 0; i < e->n_plan; i++)
        if (e->plan[i] != NULL && e->drawn[i].when == DRAW_AHEAD) e->ahead[e->n_ahead++] = i;
    if (e->n_ahead < 2 || e->n_tools < 2) return;
    atomic_store_explicit(&e->n_ahead_taken, 0, memory_order_relaxed);
    e->ops->each(e->fwd, draw_item, e, e->n_ahead < e->n_tools ? e->n_ahead : e->n_tools);
}
