/* ep_sampling: what the parameters together mean: the rules of n and best_of (inference-api 4.4),
 * whether sampling is on (4.5), the model's defaults, lengths; then everything goes into the
 * request. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"

enum { TOP_K_DEFAULT = 1000 }; /* when sampling and nobody says otherwise */

/* ---- n and best_of */

static void count_text(char out[24], bool given, uint64_t v, const char *absent) {
    if (given)
        snprintf(out, 24, "%llu", (unsigned long long)v);
    else
        snprintf(out, 24, "%s", absent);
}

static bool nbest_failed(struct ep_read *r, const char *text, const char *absent) {
    char b[24], n[24];
    bool given_b = r->p.given[P_BEST_OF], given_n = r->p.given[P_N];
    count_text(b, given_b || given_n, given_b ? r->p.best_of : r->p.n, absent);
    count_text(n, given_n, r->p.n, absent);
    return ep_fail_with(r, 422, text, "{b}", b, "{n}", n, NULL);
}

static bool pd_rules(struct ep_read *r) {
    const struct ep_params *p = &r->p;
    char got[24];
    if (!r->ep->conf.split) return true;
    if (p->given[P_N] && p->n > 1) {
        count_text(got, true, p->n, "");
        return ep_fail_with(
            r, 422, "Parameter [n] can only be set to 1 in pd disaggregation mode, got {got}.",
            "{got}", got, NULL);
    }
    if (p->given[P_BEST_OF] && p->best_of > 1) {
        count_text(got, true, p->best_of, "");
        return ep_fail_with(
            r, 422, "Paramter [best_of] can only be set to 1 in pd disaggregation mode, got {got}.",
            "{got}", got, NULL);
    }
    if (p->beam)
        return ep_fail(r, 422,
                       "Request param use_beam_search can not be true in pd disaggregation mode.");
    return true;
}

/* Absent temperature counts as 0, the vendor's rule; OpenAI's own default is 1. */
static bool sampling_for_nbest(const struct ep_read *r) {
    if (r->p.given[P_TEMPERATURE]) return r->p.temperature > 0;
    return r->ep->conf.error_style == ERROR_STYLE_OPENAI;
}

bool ep_nbest(struct ep_read *r) {
    const struct nbest_texts *t = &r->fam->nbest;
    const struct ep_params *p = &r->p;
    uint64_t n = p->given[P_N] ? p->n : 1;
    uint64_t best = p->given[P_BEST_OF] ? p->best_of : n;
    if (!pd_rules(r)) return false;
    if (p->beam) return ep_fail(r, 422, "use_beam_search is not supported by this endpoint");
    if (r->stream && t->stream_without_n != NULL && p->given[P_BEST_OF]) {
        if (!p->given[P_N]) return nbest_failed(r, t->stream_without_n, "None");
        if (best != n) return nbest_failed(r, t->stream_unequal, "None");
    }
    if (t->below_n != NULL && best < n) return nbest_failed(r, t->below_n, "None");
    if (best > 1 && t->no_sampling != NULL && !sampling_for_nbest(r))
        return nbest_failed(r, t->no_sampling, t->absent);
    if (best > 1)
        return ep_fail(r, 422, "best_of/n greater than 1 are not supported by this endpoint");
    return true;
}

/* ---- is sampling on? */

static bool sampling_on(const struct ep_read *r) {
    const struct ep_params *p = &r->p;
    if (p->given[P_DO_SAMPLE]) return p->do_sample;
    if (p->given[P_TEMPERATURE] && p->temperature == 0) return false;
    if (p->given[P_TEMPERATURE] || p->given[P_TOP_K] || p->given[P_TOP_P]) return true;
    return r->ep->model->gen.do_sample_set && r->ep->model->gen.do_sample;
}

static void build_choice(const struct ep_read *r, struct sampling *s) {
    const struct ep_params *p = &r->p;
    const struct model_info *m = r->ep->model;
    float temperature = 1.0f, top_p = 1.0f, penalty = 1.0f;
    if (m->gen.temperature_set && m->gen.temperature > 0) temperature = m->gen.temperature;
    if (m->gen.top_p_set && m->gen.top_p > 0 && m->gen.top_p <= 1) top_p = m->gen.top_p;
    if (m->gen.repetition_penalty_set && m->gen.repetition_penalty > 0)
        penalty = m->gen.repetition_penalty;
    if (p->given[P_TEMPERATURE]) temperature = p->temperature;
    if (p->given[P_TOP_P]) top_p = p->top_p;
    if (p->given[P_REPETITION_PENALTY]) penalty = p->repetition_penalty;

    s->repetition_penalty = penalty;
    s->frequency_penalty = p->frequency_penalty;
    s->presence_penalty = p->presence_penalty;
    s->do_sample = sampling_on(r) && temperature > 0;
    if (!s->do_sample)
        return; /* greedy: the other parameters are ignored, the neutral values stay */
    s->temperature = temperature;
    s->top_p = top_p;
    s->top_k = p->given[P_TOP_K]                       ? p->top_k
               : m->gen.top_k_set && m->gen.top_k >= 0 ? m->gen.top_k
                                                       : TOP_K_DEFAULT;
    if (s->top_k < 0) s->top_k = 0;
    s->min_p = p->min_p;
    if (p->given[P_TYPICAL_P]) s->typical_p = p->typical_p;
}

static void build_logprobs(const struct ep_read *r, struct sampling *s) {
    const struct ep_params *p = &r->p;
    int32_t top = p->given[P_TOP_LOGPROBS]   ? p->top_logprobs
                  : p->given[P_LOGPROBS]     ? p->logprobs
                  : p->given[P_TOP_N_TOKENS] ? p->top_n_tokens
                                             : 0;
    bool shown = r->fam->needs_logprobs && (r->stream || p->details);
    s->logprobs = p->chat_logprobs || p->given[P_TOP_LOGPROBS] || p->given[P_LOGPROBS] || shown;
    r->req->show_logprobs = s->logprobs;
    s->top_logprobs = s->logprobs ? top : 0;
    s->prompt_logprobs = p->decoder_input_details || (p->echo && p->given[P_LOGPROBS]);
}

/* min(asked, maxIterTimes, room left), over the whole request: what a recompute brings along
 * counts. */
static bool build_length(struct ep_read *r, struct sampling *s) {
    const struct endpoint_conf *c = &r->ep->conf;
    const struct ep_params *p = &r->p;
    int64_t room = (int64_t)c->max_seq_len - (int64_t)(r->ids.n - r->n_generated);
    int64_t max = r->fam->new_tokens_default > 0 ? r->fam->new_tokens_default : c->max_iter_times;
    if (p->given[P_MAX_NEW_TOKENS]) max = p->max_new_tokens;
    if (p->given[P_MAX_TOKENS]) max = p->max_tokens;
    if (p->given[P_MAX_COMPLETION_TOKENS]) max = p->max_completion_tokens;
    /* The token form of a recompute has its limit reduced already; the request counts from its
     * start. */
    if (r->fam->recompute_reduced && r->in->is_recompute) max += (int64_t)r->n_generated;
    if (max > c->max_iter_times) max = c->max_iter_times;
    if (max > room) max = room;
    if (max <= (int64_t)r->n_generated) return ep_fail(r, 424, "Failed to generate infer request");
    s->new_tokens_max = (int32_t)max;
    s->new_tokens_min = p->min_tokens < s->new_tokens_max ? p->min_tokens : s->new_tokens_max;
    return true;
}

/* ---- the request */

/* The prompt's text travels only where an answer repeats it. A recompute, and token input, have it
 * from the ids. */
static bool build_text(struct ep_read *r) {
    struct infer_req *req = r->req;
    struct buf b = BUF_INIT;
    if (!req->return_full_text && !req->echo && (!r->fam->prompt_in_answer || r->stream))
        return true;
    if (r->prompt != NULL) {
        req->text = ep_dup(r->prompt, r->prompt_len);
        req->text_len = r->prompt_len;
    } else {
        tokenizer_decode(r->ep->tok, r->ids.ids, r->ids.n - r->n_generated, true, &b);
        req->text_len = b.len;
        req->text = buf_steal(&b);
    }
    return req->text != NULL || ep_fail_memory(r);
}

bool ep_build(struct ep_read *r) {
    struct infer_req *req = r->req;
    const struct ep_params *p = &r->p;
    struct sampling *s = &req->sampling;

    req->stream = r->stream;
    req->include_stop = p->include_stop;
    req->skip_special = p->skip_special;
    req->details = p->details;
    req->decoder_input_details = p->decoder_input_details;
    req->return_full_text = p->return_full_text;
    req->perf_stat = p->perf_stat && p->details;
    req->echo = p->echo;
    req->seed_given = p->given[P_SEED];
    if (p->given[P_PRIORITY]) req->priority = (int32_t)p->priority;
    if (p->given[P_OPENAI_PRIORITY])
        req->priority = p->openai_priority < 1   ? 1
                        : p->openai_priority > 5 ? 5
                                                 : (int32_t)p->openai_priority;
    if (p->given[P_TIMEOUT]) req->timeout_s = (int32_t)p->timeout;

    s->seed = p->given[P_SEED] ? p->seed : r->in->random_seed;
    s->ignore_eos = p->ignore_eos;
    build_choice(r, s);
    build_logprobs(r, s);
    if (!build_length(r, s) || !build_text(r)) return false;

    req->ids = r->ids.ids;
    req->n_ids = r->ids.n;
    req->n_prompt = r->ids.n - r->n_generated;
    r->ids = (struct id_list){0};
    return true;
}
