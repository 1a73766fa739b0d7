/* engine_step: one pass over the model: admit, choose rows, run, sample, report.
 *
 * Callbacks may end sequences that are part of the step. So the plan is an array of pointers that
 * engine_seq_end() clears, and nothing here keeps a sequence over a callback without looking again.
 */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/engine/engine_priv.h"

static const double RATE_FADE_S = 5.0;

/* ---- the plan */

/* The rows of the schedule, for its cost. */
static struct step_seen rows_seen(const struct engine *e, int n_views) {
    struct step_seen seen = {0};
    double positions = 0;
    for (int i = 0; i < n_views; i++) {
        const int n = e->view_rows[i];
        if (e->views[i].decoding) {
            seen.decode_rows += n;
        } else {
            seen.prompt_rows += n;
            positions += n * (e->view_choices[i]->n_past + n / 2.0);
        }
    }
    if (seen.prompt_rows > 0) seen.context = positions / seen.prompt_rows;
    return seen;
}

/* The prompt that is first in line; NULL: there is none. */
static const struct choice *first_prompt(const struct engine *e, int n_views) {
    int first = -1;
    for (int i = 0; i < n_views; i++) {
        const struct sched_seq *v = &e->views[i], *f = first >= 0 ? &e->views[first] : v;
        if (v->decoding) continue;
        if (first < 0 || v->priority < f->priority ||
            (v->priority == f->priority && v->age < f->age))
            first = i;
    }
    return first >= 0 ? e->view_choices[first] : NULL;
}

static int min_int(int a, int b) {
    return a < b ? a : b;
}

/* Rows that prompts may have beside so many: at most `bound`, in full tiles as long as chunks go
 * on. */
static int beside_decode(const struct engine *e, int n_views, int n_decode, int bound) {
    int want = 0, chunks = 0;
    for (int i = 0; i < n_views; i++) {
        if (e->views[i].decoding) continue;
        want += min_int(e->views[i].pending, e->limits.rows_max);
        chunks += min_int(e->views[i].pending, e->limits.chunk_max);
        if (chunks >= e->limits.rows_max) break;
    }
    if (chunks == 0) return bound;
    return step_cost_in_tiles(&e->cost, n_decode, want > chunks ? min_int(bound, chunks) : bound,
                              want);
}

/* Gives the views their rows. How many prompts have depends on where in their texts these rows are,
 * which is known once they have them: the first in line is asked, and then what came of it. */
static int schedule(struct engine *e, int n_views) {
    const struct choice *first = first_prompt(e, n_views);
    int n_decode = 0, n_drafts = 0, n_rows = 0;
    for (int i = 0; i < n_views; i++) {
        n_decode += e->views[i].decoding;
        n_drafts += e->views[i].draft;
    }
    n_decode = min_int(n_decode, e->limits.decode_max);
    if (n_drafts > e->limits.draft_rows_max - n_decode)
        n_drafts = n_decode < e->limits.draft_rows_max ? e->limits.draft_rows_max - n_decode : 0;
    double context = first != NULL ? first->n_past : 0;
    for (int turn = 0; turn < 2; turn++) {
        const int n = n_decode + n_drafts,
                  bound =
                      step_cost_prompt_rows(&e->cost, &e->bounds, n, context, e->limits.rows_max);
        e->limits.beside_decode_max = n > 0 ? beside_decode(e, n_views, n, bound) : bound;
        n_rows = sched_step(e->views, n_views, &e->limits, e->view_rows, e->order);
        e->seen = rows_seen(e, n_views);
        if (n_decode == 0 || e->seen.context <= context) break;
        context = e->seen.context;
    }
    return n_rows;
}

/* Decoding rows first, then chunks: a fixed order is easier to read in a trace; the numbers do not
 * depend on it. */
static int plan_make(struct engine *e) {
    int n_views = 0, n_rows;
    for (int i = 0; i < engine_slots_used(e); i++) {
        struct choice *c = e->slots[i];
        const struct seq *s = c->seq;
        if (s->state != SEQ_ST_RUNNING || s->paused || c->parked || (!s->forked && c->idx != 0))
            continue;
        int pending = c->n_ids - c->n_past;
        bool decoding = pending == 1 && c->n_ids > s->n_input;
        e->view_choices[n_views] = c;
        e->views[n_views++] = (struct sched_seq){
            .pending = pending,
            .decoding = decoding,
            .draft = decoding ? engine_draft(c) : 0,
            .whole = e->info.encoder,
            .all_logits = s->sampling.prompt_logprobs && c->n_past + 1 < s->n_prompt,
            .priority = s->priority,
            .tenant = s->tenant->id,
            .age = c->age,
            .last_step = c->last_step,
        };
    }
    n_rows = schedule(e, n_views);
    e->n_plan = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n_views; i++) {
            if (e->view_rows[i] == 0 || e->views[i].decoding != (pass == 0)) continue;
            e->parts[e->n_plan].n_rows = e->view_rows[i];
            e->view_choices[i]->plan_idx = e->n_plan;
            engine_draft_plan(e, e->view_choices[i], pass == 0 ? e->view_rows[i] - 1 : 0);
            e->plan[e->n_plan++] = e->view_choices[i];
        }
    return n_rows;
}

/* Row at position pos: are its logits looked at? */
static bool wants_logits(const struct choice *c, int pos) {
    if (c->seq->kind == SEQ_EMBED) return false;
    return pos >= c->n_ids - 1 || (c->seq->sampling.prompt_logprobs && pos + 1 < c->seq->n_prompt);
}

/* Lays the rows of the plan out; returns how many of them give logits. */
static int rows_fill(struct engine *e, uint64_t now_us) {
    int row = 0, n_logits = 0;
    for (int i = 0; i < e->n_plan; i++) {
        struct choice *c = e->plan[i];
        struct fwd_seq *part = &e->parts[i];
        part->block_table = c->blocks;
        part->lora = c->seq->lora;
        part->n_past = c->n_past;
        part->first_row = row;
        part->pooled = c->seq->pooled;
        part->pooling = c->seq->embed.pooling;
        part->n_ids = c->seq->n_input;
        part->n_first = c->seq->embed.n_first;
        part->scores = c->seq->scores;
        part->n_tokens = c->seq->rope_tokens;
        e->part_logit[i] = n_logits;
        for (int r = 0; r < part->n_rows; r++, row++) {
            e->row_ids[row] = c->ids[c->n_past + r];
            if (wants_logits(c, c->n_past + r)) e->logit_rows[n_logits++] = row;
        }
        c->last_step = e->steps;
        if (c->wait_open) c->wait_us = now_us - c->ready_us;
        c->wait_open = false;
    }
    return n_logits;
}

/* ---- the pass */

/* Blocks no later row will write: full ones, and at the end of the prompt the last one as it is. */
static int final_blocks(const struct engine *e, const struct seq *s, int n_past) {
    return n_past == s->n_input ? (n_past + e->block_tokens - 1) / e->block_tokens
                                : n_past / e->block_tokens;
}

static void on_layer(void *arg, int layer) {
    struct engine *e = arg;
    if (e->ev.on_kv == NULL) return;
    for (int i = 0; i < e->n_plan; i++) {
        const struct choice *c = e->plan[i];
        const struct seq *s = c->seq;
        if (s->kind != SEQ_PREFILL || s->state == SEQ_ST_DOOMED) continue;
        int n = final_blocks(e, s, c->n_past + e->parts[i].n_rows) - s->n_final_blocks;
        if (n > 0) e->ev.on_kv(e->ev.arg, s->id, layer, s->n_final_blocks, n);
    }
}

static void advance(struct engine *e) {
    for (int i = 0; i < e->n_plan; i++) {
        struct choice *c = e->plan[i];
        if (c == NULL) continue;
        struct seq *s = c->seq;
        if (c->n_past < s->n_input) e->prompt_tokens += (uint64_t)e->parts[i].n_rows;
        c->n_past += e->parts[i].n_rows - c->n_draft;
        if (s->kind == SEQ_PREFILL) s->n_final_blocks = final_blocks(e, s, c->n_past);
        engine_choice_publish(e, c);
    }
}

/* ---- tokens */

static bool holds_id(const int32_t *ids, size_t n, int32_t id) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

enum finish engine_finish_of(const struct engine *e, const struct seq *s, int32_t id, int n_ids) {
    const struct sampling *p = &s->sampling;
    if (!p->ignore_eos && holds_id(e->info.eos_ids, (size_t)e->info.n_eos, id)) return FINISH_EOS;
    if (holds_id(p->stop_token_ids, p->n_stop_token_ids, id)) return FINISH_STOP_TOKEN;
    return n_ids == s->ids_max ? FINISH_LENGTH : FINISH_NONE;
}

/* Tells the prompt's log-probabilities that this chunk gave. False when the sequence ended
 * meanwhile. */
static bool emit_prompt_logprobs(struct engine *e, int i) {
    int logit = e->part_logit[i];
    for (int r = 0; r < e->parts[i].n_rows; r++) {
        const struct choice *c = e->plan[i];
        if (c == NULL) return false;
        const struct seq *s = c->seq;
        int pos = e->parts[i].n_past + r;
        if (!s->sampling.prompt_logprobs || pos + 1 >= s->n_prompt) break;
        float *row = e->logits + (size_t)logit++ * (size_t)e->info.vocab_size;
        if (e->ev.on_prompt_logprob == NULL) continue;
        struct token_event ev = {.index = pos + 1};
        sample_prompt(e->tools[0].scratch, row, e->info.vocab_size, c->ids[pos + 1],
                      s->sampling.prompt_top_logprobs, s->sampling.ranks, &ev);
        e->ev.on_prompt_logprob(e->ev.arg, s->id, pos + 1, &ev);
    }
    return e->plan[i] != NULL;
}

void engine_seq_fail(struct engine *e, struct seq *s, enum err why) {
    uint64_t id = s->id;
    if (s->kind != SEQ_PREFILL) engine_seq_end(e, s);
    e->telling = NULL;
    if (e->ev.on_failed != NULL) e->ev.on_failed(e->ev.arg, id, why);
}

/* Keeps the token and tells it; a choice that ends with it has given everything back before. True:
 * the token was the guess of the pass's next row, whose logits give the one after it. */
static bool emit_token(struct engine *e, struct choice *c, struct drawn *d) {
    struct token_event *ev = &d->ev;
    uint64_t id = c->seq->id;
    if (d->why != ERR_OK) {
        engine_seq_fail(e, c->seq, d->why);
        return false;
    }
    e->generated_tokens++;
    ev->more = engine_draft_check(e, c, ev->id) && ev->finish == FINISH_NONE;
    c->ids[c->n_ids++] = ev->id;
    if (c->guide.ops != NULL) (void)c->guide.ops->advance(c->guide.state, ev->id);
    c->token_us = c->ready_us = e->pass_us;
    c->wait_open = true;
    if (ev->more) {
        c->n_past++;
        engine_choice_publish(e, c);
    }
    if (ev->finish != FINISH_NONE) (void)engine_choice_end(e, c);
    if (e->ev.on_token != NULL) e->ev.on_token(e->ev.arg, id, ev);
    return ev->more;
}

float *engine_plan_row(const struct engine *e, int i) {
    const int end = i + 1 < e->n_plan ? e->part_logit[i + 1] : e->n_plan_logits;
    const int last = end - 1 - e->plan[i]->n_draft;
    return e->logits + (size_t)last * (size_t)e->info.vocab_size;
}

/* The token after the newest id of a choice, then those after its guesses while they are right. A
 * callback may end the choice in between. */
static void emit_run(struct engine *e, int i, float *row) {
    struct drawn d = e->drawn[i];
    for (;; row += e->info.vocab_size, d.there = false) {
        struct choice *c = e->plan[i];
        if (!d.there) engine_draw(e, c, c->idx, row, engine_maxima(e, row), &d);
        if (!emit_token(e, c, &d) || e->plan[i] == NULL) return;
    }
}

/* The prompt is computed: each choice draws its first token from the same logits, in the same
 * step. A callback may end any of them, or the sequence: e->telling is NULL then. */
static void emit_first(struct engine *e, struct seq *s, float *logits, const struct drawn *ahead) {
    size_t row_bytes = (size_t)e->info.vocab_size * sizeof(float);
    uint64_t id = s->id;
    int n = s->sampling.n_choices;
    const bool waits = s->kind == SEQ_PREFILL || s->kind == SEQ_STAGED;
    struct choice *lead = &s->choices[0];
    struct drawn d = *ahead;
    e->telling = s;
    if (waits) {
        e->plan[lead->plan_idx] = NULL;
        lead->plan_idx = -1;
        if (s->kind == SEQ_PREFILL)
            engine_seq_hold(e, s);
        else
            engine_seq_stage(e, s);
    } else if (!engine_fork(e, s)) {
        return;
    }
    for (int i = 0; i < n && e->telling != NULL; i++) {
        struct choice *c = waits ? lead : &s->choices[i];
        float *row = logits;
        if (!c->live) continue;
        if (n > 1) row = memcpy(e->row, logits, row_bytes);
        if (!d.there) engine_draw(e, c, i, row, engine_maxima(e, logits), &d);
        d.there = false;
        if (!waits) {
            (void)emit_token(e, c, &d);
        } else if (d.why != ERR_OK) {
            engine_seq_fail(e, s, d.why);
        } else {
            e->generated_tokens++;
            if (e->ev.on_token != NULL) e->ev.on_token(e->ev.arg, id, &d.ev);
        }
    }
    e->telling = NULL;
}

static bool all_finite(const float *v, int n) {
    for (int i = 0; i < n; i++)
        if (!isfinite(v[i])) return false;
    return true;
}

/* The vector of plan[i] is complete. */
static void emit_embedded(struct engine *e, int i) {
    struct seq *s = e->plan[i]->seq;
    if (!all_finite(s->pooled, e->info.hidden) ||
        (s->scores != NULL && !all_finite(s->scores, e->info.n_labels))) {
        engine_seq_fail(e, s, ERR_INTERNAL);
        return;
    }
    e->embedded++;
    if (e->ev.on_embedded != NULL) e->ev.on_embedded(e->ev.arg, s->id, s->pooled, s->scores);
    if (e->plan[i] != NULL) engine_seq_end(e, s); /* not cancelled inside the callback */
}

/* What plan[i] gave. */
static void emit_part(struct engine *e, int i) {
    struct choice *c = e->plan[i];
    const bool complete = c->n_past == c->n_ids;
    if (c->seq->sampling.prompt_logprobs && !emit_prompt_logprobs(e, i)) return;
    if (!complete) return;
    if (c->seq->kind == SEQ_EMBED) {
        emit_embedded(e, i);
        return;
    }
    float *row = engine_plan_row(e, i);
    if (c->seq->search != NULL)
        engine_beam_logits(e, c, row, e->pass_us);
    else if (c->seq->forked)
        emit_run(e, i, row);
    else
        emit_first(e, c->seq, row, &e->drawn[i]);
}

/* Those whose draws take long come last, and wait for nobody but their like. */
static void emit(struct engine *e) {
    for (int i = 0; i < e->n_plan; i++) {
        e->drawn[i].there = false;
        if (e->plan[i] != NULL) e->drawn[i].when = engine_draw_when(e, i);
    }
    for (enum draw_when when = DRAW_QUICK; when <= DRAW_LATE; when++) {
        if (when == DRAW_AHEAD) engine_draw_ahead(e);
        for (int i = 0; i < e->n_plan; i++)
            if (e->plan[i] != NULL && e->drawn[i].when == when) emit_part(e, i);
    }
    for (int i = 0; i < e->n_plan; i++)
        if (e->plan[i] != NULL) e->plan[i]->plan_idx = -1;
    e->n_plan = 0;
}

/* ---- statistics */

static void cost_add(struct engine *e, uint64_t us) {
    e->seen.us = (double)us;
    step_cost_add(&e->cost, &e->seen);
    if (e->seen.decode_rows > 0) e->decode_rows = e->seen.decode_rows;
    if (e->seen.prompt_rows > 0) e->context = e->seen.context;
    if (e->seen.decode_rows == 0 || e->seen.prompt_rows == 0) return;
    const uint64_t n = (uint64_t)e->seen.prompt_rows;
    e->shared_steps++;
    e->shared_prompt_rows += n;
    if (n > e->shared_prompt_rows_max) e->shared_prompt_rows_max = n;
}

static void rate_add(struct rate *r, int tokens, double s) {
    if (tokens == 0) return;
    double keep = exp(-s / RATE_FADE_S);
    r->tokens = r->tokens * keep + tokens;
    r->s = r->s * keep + s;
}

/* Rows of a step share its time. A prompt is told when its last row is computed. */
static void measure(struct engine *e, int n_rows, int n_decode, double s) {
    double context = 0;
    for (int i = 0; i < e->n_plan; i++) {
        const struct choice *c = e->plan[i];
        struct seq *q = c->seq;
        context += c->n_past;
        if (q->kind == SEQ_EMBED || c->n_past >= q->n_input) continue;
        q->prompt_s += s * e->parts[i].n_rows / n_rows;
        if (c->n_past + e->parts[i].n_rows < q->n_input) continue;
        perf_add_prompt(&e->perf, q->n_input - q->n_cached_blocks * e->block_tokens, q->prompt_s);
    }
    if (n_decode == n_rows) perf_add_step(&e->perf, n_decode, context / e->n_plan, s);
}

bool engine_step(struct engine *e) {
    if (e->in_step) return false; /* from a callback: the step is under way */
    e->in_step = true;
    bool admitted = engine_admit(e);
    uint64_t start_us = clock_us(), began = e->step_clock();
    int n_rows = plan_make(e);
    if (n_rows > 0) {
        int n_decode = 0, n_prefill = 0;
        uint64_t accepted = e->draft_accepted;
        e->steps++;
        int n_logits = e->n_plan_logits = rows_fill(e, start_us);
        for (int i = 0; i < e->n_plan; i++) {
            const struct choice *c = e->plan[i];
            int n = e->parts[i].n_rows - c->n_draft;
            *(n == 1 && c->n_past >= c->seq->n_input ? &n_decode : &n_prefill) += n;
        }
        e->in_pass = true;
        e->ops->run(e->fwd, e->kv, e->row_ids, n_rows, e->parts, e->n_plan, e->logit_rows, n_logits,
                    e->logits, on_layer, e);
        e->in_pass = false;
        e->pass_us = clock_us();
        double s = (double)(e->pass_us - start_us) * 1e-6;
        measure(e, n_rows, n_decode, s);
        engine_reap_doomed(e);
        advance(e);
        emit(e);
        cost_add(e, e->step_clock() - began);
        rate_add(&e->prefill_rate, n_prefill, s);
        rate_add(&e->decode_rate, n_decode + (int)(e->draft_accepted - accepted), s);
    }
    e->in_step = false;
    if (n_rows == 0 && !admitted) {
        engine_bury(e);
        return false;
    }
    engine_stats_publish(e);
    return true;
}
