/* ep_sampling: what the parameters together mean: the rules of n and best_of (inference-api 4.4),
 * whether sampling is on (4.5), the model's defaults, lengths; then everything goes into the
 * request. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

enum { TOP_K_DEFAULT = 1000 }; /* when sampling and nobody says otherwise */

/* ---- defaults of other servers */

enum { REPEAT_LAST_N_DEFAULT = 64 };

static void penalty_window(struct ep_params *p) {
    const int32_t n = p->given[P_REPEAT_LAST_N] ? p->repeat_last_n : REPEAT_LAST_N_DEFAULT;
    p->repeat_last_n = n > 0 ? n : 0; /* -1: all */
    if (n != 0) return;
    p->given[P_REPETITION_PENALTY] = true;
    p->repetition_penalty = 1;
    p->frequency_penalty = p->presence_penalty = 0;
}

void ep_drawn_by_default(struct ep_read *r, float temperature, int32_t top_k, float top_p) {
    struct ep_params *p = &r->p;
    const struct model_info *m = r->ep->model;
    if (p->given[P_SEED] && (p->seed == UINT64_MAX || p->seed == UINT32_MAX))
        p->given[P_SEED] = false; /* -1: any */
    p->given[P_DO_SAMPLE] = true;
    p->do_sample = !p->given[P_TEMPERATURE] || p->temperature > 0;
    if (!p->given[P_TEMPERATURE] && !m->gen.temperature_set) {
        p->given[P_TEMPERATURE] = true;
        p->temperature = temperature;
    }
    if (!p->given[P_TOP_K] && !m->gen.top_k_set) {
        p->given[P_TOP_K] = true;
        p->top_k = top_k;
    }
    if (!p->given[P_TOP_P] && !m->gen.top_p_set) {
        p->given[P_TOP_P] = true;
        p->top_p = top_p;
    }
    penalty_window(p);
}

/* ---- n and best_of */

static void count_text(char out[24], bool given, uint64_t v, const char *absent) {
    if (given)
        snprintf(out, 24, "%llu", (unsigned long long)v);
    else
        snprintf(out, 24, "%s", absent);
}

static bool nbest_failed(struct ep_read *r, const char *text, const char *absent) {
    char b[24], n[24];
    ep_at(r, r->p.given[P_BEST_OF] ? "best_of" : "n");
    bool given_b = r->p.given[P_BEST_OF], given_n = r->p.given[P_N];
    count_text(b, given_b || given_n, given_b ? r->p.best_of : r->p.n, absent);
    count_text(n, given_n, r->p.n, absent);
    return ep_fail_with(r, 422, text, "{b}", b, "{n}", n, NULL);
}

/* What the reference refuses in a P/D cluster; here it works, unless pdRefusals asks for its texts.
 */
static bool pd_rules(struct ep_read *r) {
    const struct ep_params *p = &r->p;
    char got[24];
    if (!r->ep->conf.split || !r->ep->conf.pd_refusals) return true;
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
    if (p->chat_logprobs || p->given[P_LOGPROBS])
        return ep_fail(r, 422, "logprobs is not supported in dmi mode");
    if (p->given[P_TOP_LOGPROBS])
        return ep_fail(r, 422, "top_logprobs is not supported in dmi mode");
    if (!r->fam->pd_stop_refused) return true;
    if (r->req->n_stop > 0) return ep_fail(r, 422, "stop is not supported in dmi mode");
    if (r->req->sampling.n_stop_token_ids > 0)
        return ep_fail(r, 422, "stop_token_ids is not supported in dmi mode");
    if (p->include_stop)
        return ep_fail(r, 422, "include_stop_str_in_output is not supported in dmi mode");
    return true;
}

/* Whether the parameters switch sampling on (4.5), a number of choices aside. */
static bool sampling_asked(const struct ep_read *r) {
    const struct ep_params *p = &r->p;
    if (p->given[P_DO_SAMPLE]) return p->do_sample;
    if (p->given[P_TEMPERATURE] && p->temperature == 0) return false;
    if (p->given[P_TEMPERATURE] || p->given[P_TOP_K] || p->given[P_TOP_P]) return true;
    return r->ep->model->gen.do_sample_set && r->ep->model->gen.do_sample;
}

/* Absent temperature counts as 0, the vendor's rule; OpenAI's own default is 1. */
static bool sampling_for_nbest(const struct ep_read *r) {
    if (r->fam->nbest.any_sampling) return sampling_asked(r);
    if (r->p.given[P_TEMPERATURE]) return r->p.temperature > 0;
    return ep_openai_manner(r);
}

/* Sequences that are drawn from one prompt: best_of, else n, which a beam search goes by alone. */
static uint64_t n_drawn(const struct ep_read *r) {
    if (r->p.beam) return r->p.given[P_N] ? r->p.n : 1;
    return r->p.given[P_BEST_OF] ? r->p.best_of : r->p.given[P_N] ? r->p.n : 1;
}

/* Room for all of them: slots of the batch, and what one client request may make of the queue. */
static bool check_room(struct ep_read *r) {
    uint64_t best = n_drawn(r), parts = r->n_prompts > 0 ? r->n_prompts : 1;
    int batch = r->ep->conf.max_batch_size;
    char got[24], max[24];
    ep_at(r, r->p.given[P_BEST_OF] ? "best_of" : "n");
    count_text(got, true, best, "");
    snprintf(max, sizeof(max), "%d", batch);
    if (batch > 0 && best > (uint64_t)batch)
        return ep_fail_with(r, 422,
                            "The best_of parameter ({n}) exceeds 'max_batch_size' ({m}). Please "
                            "reduce best_of or increase 'max_batch_size' in config.json of "
                            "mindie-service. ",
                            "{n}", got, "{m}", max, NULL);
    if (best * parts > SEQUENCES_MAX) {
        count_text(got, true, best * parts, "");
        return ep_fail_with(r, 422,
                            "The number of prompts times best_of must be in [1, 1024], got {got}.",
                            "{got}", got, NULL);
    }
    ep_at(r, "");
    return true;
}

int32_t ep_tokens_asked(const struct ep_params *p) {
    return p->given[P_MAX_COMPLETION_TOKENS] ? p->max_completion_tokens
           : p->given[P_MAX_TOKENS]          ? p->max_tokens
                                             : 0;
}

static bool beam_rules(struct ep_read *r) {
    ep_at(r, "use_beam_search");
    if (r->fam->answer != &answer_chat && r->fam->answer != &answer_completions)
        return ep_fail(r, 422, "use_beam_search is not supported by this endpoint");
    ep_at(r, "max_tokens");
    if (ep_tokens_asked(&r->p) > BEAM_TOKENS_MAX)
        return ep_fail(r, 422,
                       "Please set the max_tokens to be not larger than 128 when the "
                       "use_beam_search is on.");
    return true;
}

bool ep_nbest(struct ep_read *r) {
    const struct nbest_texts *t = &r->fam->nbest;
    const struct ep_params *p = &r->p;
    uint64_t n = p->given[P_N] ? p->n : 1, best = n_drawn(r);
    if (!pd_rules(r)) return false;
    if (p->beam) return beam_rules(r) && check_room(r);
    if (r->stream && best > 1 && t->in_stream != NULL) return ep_fail(r, 422, t->in_stream);
    if (r->stream && t->stream_without_n != NULL && p->given[P_BEST_OF]) {
        if (!p->given[P_N]) return nbest_failed(r, t->stream_without_n, "None");
        if (best != n) return nbest_failed(r, t->stream_unequal, "None");
    }
    if (t->below_n != NULL && best < n) return nbest_failed(r, t->below_n, "None");
    if (best > 1 && t->no_sampling != NULL && !sampling_for_nbest(r))
        return nbest_failed(r, t->no_sampling, t->absent);
    return check_room(r);
}

/* ---- is sampling on? */

static bool sampling_on(const struct ep_read *r) {
    if (r->p.beam) return false;
    return sampling_asked(r) || (n_drawn(r) > 1 && !r->p.given[P_DO_SAMPLE] &&
                                 !(r->p.given[P_TEMPERATURE] && r->p.temperature == 0));
}

static void build_choice(const struct ep_read *r, struct sampling *s) {
    const struct ep_params *p = &r->p;
    const struct model_info *m = r->ep->model;
    float temperature = 1.0f, top_p = 1.0f, penalty = 1.0f;
    if (m->gen.temperature_set && m->gen.temperature > 0 && n_drawn(r) == 1)
        temperature = m->gen.temperature; /* with several choices the default is OpenAI's, 1 */
    if (m->gen.top_p_set && m->gen.top_p > 0 && m->gen.top_p <= 1) top_p = m->gen.top_p;
    if (m->gen.repetition_penalty_set && m->gen.repetition_penalty > 0)
        penalty = m->gen.repetition_penalty;
    if (p->given[P_TEMPERATURE]) temperature = p->temperature;
    if (p->given[P_TOP_P]) top_p = p->top_p;
    if (p->given[P_REPETITION_PENALTY]) penalty = p->repetition_penalty;

    s->repetition_penalty = penalty;
    s->penalty_window = p->repeat_last_n;
    s->frequency_penalty = p->frequency_penalty;
    s->presence_penalty = p->presence_penalty;
    s->do_sample = sampling_on(r) && temperature > 0;
    if (!s->do_sample)
        return; /* greedy: the other parameters are ignored, the neutral values stay */
    s->temperature = temperature;
    s->top_p = top_p > 0 ? top_p : 1;
    s->top_k = top_p == 0          ? 1 /* no share of the probability: the likeliest token alone */
               : p->given[P_TOP_K] ? p->top_k
               : m->gen.top_k_set && m->gen.top_k >= 0 ? m->gen.top_k
                                                       : TOP_K_DEFAULT;
    if (s->top_k < 0) s->top_k = 0;
    s->min_p = p->given[P_MIN_P] ? p->min_p : m->gen.min_p_set ? m->gen.min_p : 0;
    if (p->given[P_TYPICAL_P]) s->typical_p = p->typical_p;
}

static void build_logprobs(const struct ep_read *r, struct sampling *s) {
    const struct ep_params *p = &r->p;
    struct infer_req *req = r->req;
    int32_t top = p->given[P_TOP_LOGPROBS]   ? p->top_logprobs
                  : p->given[P_LOGPROBS]     ? p->logprobs
                  : p->given[P_TOP_N_TOKENS] ? p->top_n_tokens
                                             : 0;
    bool shown = r->fam->needs_logprobs && (r->stream || p->details);
    bool echoed = p->echo && p->given[P_LOGPROBS];
    req->answer.show_logprobs =
        p->chat_logprobs || p->given[P_TOP_LOGPROBS] || p->given[P_LOGPROBS] || shown;
    req->answer.top_tokens = shown && p->given[P_TOP_N_TOKENS] && top > 0;
    /* The rank of a choice is its log-probability. */
    s->logprobs = req->answer.show_logprobs || answer_ranked(r->fam->answer, req);
    s->top_logprobs = req->answer.show_logprobs ? top : 0;
    req->answer.show_prompt_logprobs = p->given[P_PROMPT_LOGPROBS];
    s->prompt_logprobs = p->decoder_input_details || echoed || req->answer.show_prompt_logprobs;
    s->prompt_top_logprobs = req->answer.show_prompt_logprobs ? p->prompt_logprobs : 0;
    s->ranks = s->ranks || req->answer.show_prompt_logprobs;
    bool topped = echoed || (r->fam->tops_of_prompt && p->decoder_input_details);
    if (topped && top > s->prompt_top_logprobs) s->prompt_top_logprobs = top;
}

/* min(asked, maxIterTimes, room left), over the whole request: what a recompute brings along
 * counts. */
static bool build_length(struct ep_read *r, struct sampling *s) {
    const struct endpoint_conf *c = &r->ep->conf;
    const struct ep_params *p = &r->p;
    int64_t room = (int64_t)ep_seq_len(r) - (int64_t)(r->ids.n - r->n_generated);
    int64_t max = r->fam->new_tokens_default > 0 ? r->fam->new_tokens_default : c->max_iter_times;
    if (p->given[P_MAX_NEW_TOKENS]) max = p->max_new_tokens;
    if (p->given[P_MAX_TOKENS]) max = p->max_tokens;
    if (p->given[P_MAX_COMPLETION_TOKENS]) max = p->max_completion_tokens;
    if (r->req->answer.prompt_only) max = 1; /* which nobody sees */
    /* The token form of a recompute has its limit reduced already; the request counts from its
     * start. */
    if (r->fam->recompute_reduced && r->in->is_recompute) max += (int64_t)r->n_generated;
    if (max > c->max_iter_times) max = c->max_iter_times;
    if (s->beam && max > BEAM_TOKENS_MAX) max = BEAM_TOKENS_MAX; /* nobody asked for more */
    if (max > room) max = room;
    if (max <= (int64_t)r->n_generated) return ep_fail(r, 424, "Failed to generate infer request");
    s->new_tokens_max = (int32_t)max;
    s->new_tokens_min = p->min_tokens < s->new_tokens_max ? p->min_tokens : s->new_tokens_max;
    return true;
}

/* ---- the request */

/* The prompt's text travels only where an answer repeats it. A recompute, and token input, have it
 * from the ids. */
static bool build_text(struct ep_read *r, struct infer_req *req) {
    struct buf b = BUF_INIT;
    if (!req->answer.return_full_text && !req->answer.echo &&
        (!r->fam->prompt_in_answer || r->stream))
        return true;
    if (r->prompt != NULL) {
        req->answer.text = ep_dup(r->prompt, r->prompt_len);
        req->answer.text_len = r->prompt_len;
    } else {
        tokenizer_decode(r->ep->tok, r->ids.ids, r->ids.n - r->n_generated, true, &b);
        req->answer.text_len = b.len;
        req->answer.text = buf_steal(&b);
    }
    return req->answer.text != NULL || ep_fail_memory(r);
}

/* What every prompt of the body has in common. */
static void build_options(struct ep_read *r) {
    struct infer_req *req = r->req;
    const struct ep_params *p = &r->p;
    struct sampling *s = &req->sampling;

    req->answer.stream = r->stream;
    req->answer.include_stop = p->include_stop;
    req->answer.skip_special = p->skip_special;
    req->answer.details = p->details;
    req->answer.decoder_input_details = p->decoder_input_details;
    req->answer.return_full_text = p->return_full_text;
    req->answer.perf_stat = p->perf_stat && p->details;
    req->answer.echo = p->echo;
    req->answer.prompt_only =
        p->given[P_MAX_TOKENS] && p->max_tokens == 0 && !p->given[P_MAX_COMPLETION_TOKENS];
    req->answer.token_ids = p->return_token_ids;
    req->answer.tokens_as_ids = p->tokens_as_ids;
    req->answer.seed_given = p->given[P_SEED];
    if (p->given[P_PRIORITY]) req->head.priority = (int32_t)p->priority;
    if (p->given[P_OPENAI_PRIORITY])
        req->head.priority = p->openai_priority < 1   ? 1
                             : p->openai_priority > 5 ? 5
                                                      : (int32_t)p->openai_priority;
    if (p->given[P_TIMEOUT]) req->head.timeout_s = (int32_t)p->timeout;

    s->seed = p->given[P_SEED] ? p->seed : r->in->random_seed;
    s->ignore_eos = p->ignore_eos;
    s->lookup_tokens = p->beam                     ? 0 /* beams do not guess */
                       : p->given[P_LOOKUP_TOKENS] ? p->lookup_tokens
                                                   : r->ep->conf.prompt_lookup_tokens;
    s->beam = p->beam;
    if (s->beam) s->new_tokens_max = BEAM_TOKENS_MAX; /* until build_length() */
    s->n_choices = (int32_t)n_drawn(r);
    req->answer.n = p->given[P_N] ? (int32_t)p->n : s->n_choices;
    build_choice(r, s);
    build_logprobs(r, s);
}

/* The prompt that is in r->prompt and r->ids now. */
static bool build_prompt(struct ep_read *r, struct infer_req *req) {
    ep_at(r, r->fam->input);
    if (!ep_admit(r) || !build_length(r, &req->sampling) || !build_text(r, req)) return false;
    req->ids = r->ids.ids;
    req->n_ids = r->ids.n;
    req->n_prompt = r->ids.n - r->n_generated;
    r->ids = (struct id_list){0};
    return true;
}

/* Part i of the body: a copy of the options with a prompt of its own. */
static bool build_part(struct ep_read *r, struct infer_req *req, size_t i) {
    struct ep_prompt *p = &r->prompts[i];
    req->head.part = (uint32_t)i;
    r->prompt = p->text;
    r->prompt_len = p->len;
    r->ids = p->ids;
    p->ids = (struct id_list){0};
    return build_prompt(r, req);
}

bool ep_build(struct ep_read *r) {
    build_options(r);
    if (r->in->is_recompute && r->n_generated > 0 && (r->req->sampling.n_choices > 1 || r->p.beam))
        return ep_fail(r, 424, "Failed to generate infer request"); /* of which choice? */
    if (r->prompts == NULL) return build_prompt(r, r->req);
    r->req->head.n_parts = (uint32_t)r->n_prompts;
    struct infer_req *last = r->req;
    for (size_t i = 1; i < r->n_prompts; i++, last = last->next_part)
        if ((last->next_part = infer_req_clone(r->req)) == NULL) return ep_fail_memory(r);
    last = r->req;
    for (size_t i = 0; i < r->n_prompts; i++, last = last->next_part)
        if (!build_part(r, last, i)) return false;
    return true;
}
