/* answer: parts and choices, and what goes out when. Everything here is a function of the requests
 * and the tokens fed, so a decode instance that feeds the prefill instance's tokens again stands
 * where that one stood (endpoint.h). */
#include "common/endpoint/answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"

/* An error for which there is no memory. */
#define NO_MEMORY_FLAT "{\"error\":\"out of memory\",\"error_type\":\"Service Unavailable\"}"
#define NO_MEMORY_NESTED                                                                           \
    "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,"          \
    "\"code\":\"service_unavailable\"}}"

const struct endpoint_conf *answer_conf(const struct answer *a) {
    return &a->ep->conf;
}

const struct tokenizer *answer_tokenizer(const struct answer *a) {
    return a->ep->tok;
}

bool answer_is_special(const struct answer *a, int32_t id) {
    return tokenizer_is_special(a->ep->tok, id);
}

bool answer_keeps_controls(const struct answer *a) {
    const enum api_errors errors = a->req->answer.errors;
    bool own = errors != API_ERRORS_PLAIN && errors != API_ERRORS_V1;
    return a->ops->controls && (own || a->ep->conf.error_style == ERROR_STYLE_OPENAI);
}

int answer_n_tokens(const struct answer *a) {
    size_t n = 0;
    for (size_t p = 0; p < a->n_parts; p++)
        for (size_t i = 0; a->parts[p].req != NULL && i < a->n_choices; i++)
            n += a->parts[p].choices[i].n_recs;
    return (int)n;
}

bool answer_done(const struct answer *a) {
    return a->ended;
}

const char *answer_content_type(const struct answer *a) {
    const struct api_framing *f = &api_framings[a->ops->frames];
    return a->req->answer.stream ? f->type : f->whole;
}

const char *answer_comment(const struct answer *a) {
    return a->req->answer.stream && api_framings[a->ops->frames].comments ? ":\n\n" : NULL;
}

/* ---- the prompt */

void answer_prompt_logprob(struct answer *a, uint32_t part, int position,
                           const struct token_event *ev) {
    if (part >= a->n_parts || a->parts[part].req == NULL) return;
    struct answer_part *p = &a->parts[part];
    if (position < 0 || (size_t)position >= p->req->n_prompt) return;
    if (p->prompt == NULL) {
        p->prompt = calloc(p->req->n_prompt, sizeof(*p->prompt));
        for (size_t i = 0; p->prompt != NULL && i < p->req->n_prompt; i++)
            p->prompt[i].logprob = NAN;
    }
    size_t n_top = ev->n_top > 0 && ev->n_top <= TOP_LOGPROBS_MAX ? (size_t)ev->n_top : 0;
    struct top_logprob *top = n_top > 0 ? calloc(n_top, sizeof(*top)) : NULL;
    if (p->prompt == NULL || (n_top > 0 && top == NULL)) {
        free(top);
        a->no_memory = true;
        return;
    }
    struct prompt_rec *rec = &p->prompt[position];
    if (n_top > 0) memcpy(top, ev->top, n_top * sizeof(*top));
    free(rec->top);
    *rec = (struct prompt_rec){
        .logprob = ev->logprob, .rank = ev->rank, .n_top = (uint32_t)n_top, .top = top};
}

/* ---- what is shown, and in which order */

bool answer_ranked(const struct answer_ops *ops, const struct infer_req *req) {
    int32_t drawn = req->sampling.n_choices;
    if (req->sampling.beam) return false; /* the engine has ranked them */
    return drawn > req->answer.n || (drawn > 1 && ops->best_first && !req->answer.stream);
}

/* Likelier sequences first, then those drawn first; a sum that is not known ranks last. */
static int by_rank(const void *x, const void *y) {
    const struct choice *a = *(struct choice *const *)x, *b = *(struct choice *const *)y;
    double sa = isnan(a->logprob_sum) ? -INFINITY : a->logprob_sum;
    double sb = isnan(b->logprob_sum) ? -INFINITY : b->logprob_sum;
    if (sa != sb) return sa > sb ? -1 : 1;
    return (a > b) - (a < b);
}

/* The n best of each part's choices; all of them in their own order when nothing is left out. */
static void choose_shown(struct answer *a) {
    size_t n = (size_t)a->req->answer.n;
    a->n_shown = 0;
    for (size_t p = 0; p < a->n_parts; p++) {
        struct choice **of_part = a->shown + a->n_shown;
        if (a->parts[p].req == NULL) continue;
        for (size_t i = 0; i < a->n_choices; i++) of_part[i] = &a->parts[p].choices[i];
        if (a->ranked) qsort(of_part, a->n_choices, sizeof(*of_part), by_rank);
        for (size_t i = 0; i < n; i++) of_part[i]->index = p * n + i;
        a->n_shown += n;
    }
}

/* ---- what goes out */

void choice_mark_sent(struct choice *c) {
    c->n_events++;
    c->sent = c->ready;
    c->recs_sent = c->n_recs;
    c->closed = c->finish != FINISH_NONE;
    choice_written(c);
}

static bool has_news(const struct choice *c) {
    if (c->finish != FINISH_NONE) return !c->closed;
    return c->chat != NULL ? chat_text_news(c->chat) : c->ready > c->sent;
}

static void emit_choice(struct choice *c, struct buf *out) {
    const struct answer_ops *ops = c->a->ops;
    bool echo = c->req->answer.echo && c->n_events == 0;
    /* A beam search streams one chunk of each sequence (inference-api 8.8). */
    if (!c->begun && ops->begin != NULL && !c->req->sampling.beam) {
        ops->begin(c, out);
        choice_written(c);
    }
    c->begun = true;
    if (!ops->every_token && !echo && !has_news(c)) return;
    ops->event(c, out);
    choice_mark_sent(c);
}

static void emit_joint(struct answer *a, struct buf *out) {
    bool news = false;
    for (size_t i = 0; i < a->n_shown; i++) news |= has_news(a->shown[i]);
    if (!news) return;
    a->ops->event(a->shown[0], out);
    for (size_t i = 0; i < a->n_shown; i++) choice_mark_sent(a->shown[i]);
}

/* Nobody after c of its part has yet to get a token of this step. */
static bool step_complete(const struct choice *c) {
    const struct choice *end = c->part->choices + c->a->n_choices;
    for (const struct choice *o = c + 1; o < end; o++)
        if (o->finish == FINISH_NONE) return false;
    return true;
}

static void emit_all(struct answer *a, struct buf *out) {
    choose_shown(a);
    if (a->ops->joint) {
        emit_joint(a, out);
        return;
    }
    for (size_t i = 0; i < a->n_shown; i++)
        if (!a->shown[i]->closed) emit_choice(a->shown[i], out);
}

static void emit_end(struct answer *a, struct buf *out) {
    if (a->req->answer.stream && a->ops->end != NULL) a->ops->end(a, out);
    if (!a->req->answer.stream) {
        choose_shown(a);
        a->ops->body(a, out);
    }
    a->ended = true;
}

static void note_failures(struct answer *a, struct buf *out) {
    bool failed =
        a->no_memory || a->head.failed || a->mid.failed || a->tail.failed || a->scratch.failed;
    if (failed) out->failed = true;
    if (out->failed) a->ended = false; /* what ends it is not out */
}

/* more: the same step has made another token of c, which brings what there is to say of this one
 * along unless the family tells every token by itself (inference-api 5.3). */
void answer_emit(struct choice *c, bool more, struct buf *out) {
    struct answer *a = c->a;
    bool waits = more && c->finish == FINISH_NONE && !a->ops->every_token && !a->ops->blocks;
    const bool at_end = (c->req->answer.tensors & TENSOR_AT_END) != 0;
    waits = waits || ((c->req->sampling.beam || at_end) && c->finish == FINISH_NONE);
    if (a->req->answer.stream && !waits) {
        if (a->ranked && a->n_live == 0)
            emit_all(a, out);
        else if (!a->ranked && !a->ops->joint)
            emit_choice(c, out);
        else if (!a->ranked && step_complete(c))
            emit_joint(a, out);
    }
    if (a->n_live == 0) emit_end(a, out);
    if (c->text.failed) out->failed = true;
    note_failures(a, out);
}

enum finish answer_token(struct answer *a, uint32_t part, const struct token_event *ev,
                         struct buf *out) {
    if (part >= a->n_parts || a->parts[part].req == NULL || ev->choice < 0 ||
        (size_t)ev->choice >= a->n_choices)
        return FINISH_ERROR;
    struct choice *c = &a->parts[part].choices[ev->choice];
    if (c->finish != FINISH_NONE) return c->finish;
    if (a->ended) return FINISH_ABORT;
    choice_token(c, ev);
    if (a->tells_at_once) choice_written(c);
    a->n_live -= c->finish != FINISH_NONE;
    answer_emit(c, ev->more, out);
    return c->finish;
}

void answer_abort(struct answer *a, struct buf *out) {
    if (a->ended) return;
    for (size_t p = 0; p < a->n_parts; p++) {
        for (size_t i = 0; a->parts[p].req != NULL && i < a->n_choices; i++) {
            struct choice *c = &a->parts[p].choices[i];
            if (c->finish == FINISH_NONE) choice_end(c, FINISH_ABORT);
            if (c->text.failed) out->failed = true;
        }
    }
    a->n_live = 0;
    if (a->req->answer.stream) emit_all(a, out);
    emit_end(a, out);
    note_failures(a, out);
}

static void put_error(struct answer *a, const char *json, struct buf *out) {
    const struct api_framing *f = &api_framings[a->ops->frames];
    if (a->req->answer.stream && a->ops->error != NULL) {
        a->ops->error(a, json, out);
        return;
    }
    if (a->req->answer.stream) buf_puts(out, f->before);
    buf_puts(out, a->req->answer.stream && f->opened ? json + 1 : json);
    if (a->req->answer.stream) buf_append(out, f->after, f->after_bytes);
}

void answer_error(struct answer *a, int status, const char *text, struct buf *out) {
    if (a->ended) return;
    a->ended = true;
    const size_t before = out->len;
    const enum api_errors errors = a->req->answer.errors;
    struct api_answer err;
    ep_answer_error(a->ep, errors, status, text, &err);
    if (err.body.len > 0 && !err.body.failed) put_error(a, err.body.data, out);
    if (out->failed || out->len == before) {
        bool nested = errors == API_ERRORS_OPENAI ||
                      (errors != API_ERRORS_PLAIN && a->ep->conf.error_style == ERROR_STYLE_OPENAI);
        out->failed = false;
        out->len = before;
        put_error(a,
                  errors == API_ERRORS_GRPC ? "out of memory"
                  : nested                  ? NO_MEMORY_NESTED
                                            : NO_MEMORY_FLAT,
                  out);
    }
    buf_free(&err.body);
}

void answer_error_alone(const struct endpoint *ep, const struct infer_req *req, int status,
                        const char *text, struct buf *out) {
    struct answer a = {.ep = ep, .req = req, .ops = ep_family_of(ep, req->answer.api)->answer};
    answer_error(&a, status, text, out);
}

/* ---- life */

/* Tokens a recompute brought along: their pieces went out before, from another instance.
 * Log-probabilities and times of them are lost. Those of a record come by answer_replay(). */
static void feed_recompute(struct answer *a, const struct infer_req *req) {
    struct buf discard = BUF_INIT;
    if (infer_req_is_resumed(req)) return;
    for (size_t i = req->n_prompt; i < req->n_ids; i++) {
        struct token_event ev = {
            .id = req->ids[i], .index = (int32_t)(i - req->n_prompt), .logprob = NAN};
        answer_token(a, req->head.part, &ev, &discard);
        if (discard.failed) a->no_memory = true;
        buf_clear(&discard);
    }
    answer_sent(a, NULL, NULL);
    buf_free(&discard);
}

enum err answer_add_part(struct answer *a, const struct infer_req *req) {
    if (req->head.part >= a->n_parts || req->head.n_parts != a->n_parts ||
        (size_t)req->sampling.n_choices != a->n_choices || req->answer.n != a->req->answer.n ||
        req->answer.api != a->req->answer.api)
        return ERR_INVALID;
    struct answer_part *p = &a->parts[req->head.part];
    if (p->req != NULL) return ERR_CONFLICT;
    p->choices = calloc(a->n_choices, sizeof(*p->choices));
    if (p->choices == NULL) return ERR_NO_MEMORY;
    p->req = req;
    for (size_t i = 0; i < a->n_choices; i++) {
        struct choice *c = &p->choices[i];
        *c = (struct choice){.a = a, .part = p, .req = req};
        c->index = req->head.part * (size_t)req->answer.n + i;
        enum err e = choice_open(c);
        if (e != ERR_OK) return e;
    }
    choose_shown(a);
    feed_recompute(a, req);
    return a->no_memory ? ERR_NO_MEMORY : ERR_OK;
}

enum err answer_create(struct answer **out, const struct endpoint *ep,
                       const struct infer_req *req) {
    *out = NULL;
    const struct family *fam = ep_family_of(ep, req->answer.api);
    int32_t drawn = req->sampling.n_choices;
    if (fam == NULL || req->head.n_parts < 1 || req->head.n_parts > PARTS_MAX ||
        req->answer.n < 1 || drawn < req->answer.n || drawn > CHOICES_MAX)
        return ERR_INVALID;
    struct answer *a = calloc(1, sizeof(*a));
    if (a == NULL) return ERR_NO_MEMORY;
    a->ep = ep;
    a->req = req;
    a->ops = fam->answer;
    a->n_parts = req->head.n_parts;
    a->n_choices = (size_t)drawn;
    a->n_live = a->n_parts * a->n_choices;
    a->ranked = answer_ranked(fam->answer, req);
    a->tells_at_once = !req->answer.stream && answer_has_transcript(req, ep);
    a->parts = calloc(a->n_parts, sizeof(*a->parts));
    a->shown = calloc(a->n_live, sizeof(struct choice *));
    a->written = calloc(a->n_live, sizeof(struct choice *));
    enum err e =
        a->parts != NULL && a->shown != NULL && a->written != NULL ? ERR_OK : ERR_NO_MEMORY;
    if (e == ERR_OK && a->ops->open != NULL) a->ops->open(a);
    for (; e == ERR_OK && req != NULL; req = req->next_part) e = answer_add_part(a, req);
    if (e != ERR_OK) {
        answer_destroy(&a);
        return e;
    }
    *out = a;
    return ERR_OK;
}

static void part_close(struct answer_part *p, size_t n_choices) {
    for (size_t i = 0; p->choices != NULL && i < n_choices; i++) choice_close(&p->choices[i]);
    for (size_t i = 0; p->prompt != NULL && i < p->req->n_prompt; i++) free(p->prompt[i].top);
    free(p->choices);
    free(p->prompt);
}

void answer_destroy(struct answer **a_ptr) {
    struct answer *a = *a_ptr;
    if (a == NULL) return;
    for (size_t p = 0; a->parts != NULL && p < a->n_parts; p++)
        part_close(&a->parts[p], a->n_choices);
    buf_free(&a->head);
    buf_free(&a->mid);
    buf_free(&a->tail);
    buf_free(&a->scratch);
    free(a->parts);
    free(a->shown);
    free(a->written);
    free(a);
    *a_ptr = NULL;
}
