/* answer_llamacpp: the objects of llama.cpp's completion (client-apis 4.2). */
#include <string.h>
#include "common/endpoint/answer.h"

static const char *stop_type(enum finish f) {
    switch (f) {
    case FINISH_EOS:
    case FINISH_STOP_TOKEN: return "eos";
    case FINISH_STOP_STRING: return "word";
    case FINISH_LENGTH: return "limit";
    default: return "none";
    }
}

static void put_flag(struct buf *out, const char *key, bool on) {
    buf_printf(out, ",\"%s\":%s", key, on ? "true" : "false");
}

/* The number as it reads back, without the digits of a float's double. */
static void put_f(struct buf *out, const char *key, float v) {
    buf_printf(out, ",\"%s\":%.6g", key, (double)v);
}

/* ---- probabilities */

static void put_prob(struct buf *out, const struct choice *c, int32_t id, float logprob,
                     struct detok_cut cut) {
    const char *p = "";
    const size_t n = token_text(c->a, id, cut, &p);
    buf_puts(out, "{\"id\":");
    put_i64(out, id);
    buf_puts(out, ",\"token\":");
    put_token_text(out, c->a, id, cut);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_putc(out, ',');
        put_u64(out, (unsigned char)p[i]);
    }
    buf_puts(out, "],\"logprob\":");
    put_logprob(out, logprob);
}

static void put_probs(struct buf *out, const struct choice *c, size_t from, size_t to) {
    if (!c->req->answer.show_logprobs) return;
    buf_puts(out, ",\"completion_probabilities\":[");
    for (size_t i = from; i < to; i++) {
        const struct token_rec *rec = &c->recs[i];
        if (i > from) buf_putc(out, ',');
        put_prob(out, c, rec->id, rec->logprob, rec->cut);
        buf_puts(out, ",\"top_logprobs\":[");
        for (size_t t = 0; t < rec->n_top; t++) {
            const struct top_logprob *top = &c->tops[rec->top_at + t];
            if (t > 0) buf_putc(out, ',');
            put_prob(out, c, top->id, top->logprob, rec->cut);
            buf_putc(out, '}');
        }
        buf_puts(out, "]}");
    }
    buf_putc(out, ']');
}

/* ---- the last object */

static void put_settings(struct buf *out, const struct infer_req *req) {
    const struct sampling *s = &req->sampling;
    const int n_predict = req->answer.prompt_only ? 0 : (int)s->new_tokens_max;
    buf_printf(out, ",\"generation_settings\":{\"seed\":%llu", (unsigned long long)s->seed);
    put_f(out, "temperature", s->do_sample ? s->temperature : 0);
    buf_printf(out, ",\"top_k\":%d", (int)s->top_k);
    put_f(out, "top_p", s->top_p);
    put_f(out, "min_p", s->min_p);
    put_f(out, "typical_p", s->typical_p);
    put_f(out, "repeat_penalty", s->repetition_penalty);
    buf_printf(out, ",\"repeat_last_n\":%d", s->penalty_window > 0 ? (int)s->penalty_window : -1);
    put_f(out, "presence_penalty", s->presence_penalty);
    put_f(out, "frequency_penalty", s->frequency_penalty);
    buf_printf(out, ",\"n_predict\":%d,\"max_tokens\":%d,\"n_probs\":%d", n_predict, n_predict,
               (int)s->top_logprobs);
    put_flag(out, "ignore_eos", s->ignore_eos);
    put_flag(out, "stream", req->answer.stream);
    buf_puts(out, ",\"stop\":[");
    for (size_t i = 0; i < req->n_stop; i++) {
        if (i > 0) buf_putc(out, ',');
        put_cstr(out, req->stop[i]);
    }
    buf_puts(out, "]}");
}

/* n tokens in us. */
static void put_rate(struct buf *out, const char *what, uint64_t n, uint64_t us) {
    const double ms = (double)us / 1e3;
    buf_printf(out, ",\"%s_n\":%llu,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f",
               what, (unsigned long long)n, what, ms, what, n > 0 ? ms / (double)n : 0, what,
               us > 0 ? (double)n * 1e6 / (double)us : 0);
}

/* Of a prompt that is computed alone, here or at P. */
static uint64_t alone_step_us(const struct choice *c) {
    return c->alone.step_us > 0 ? c->alone.step_us : c->req->measured.prefill_us;
}

static uint64_t alone_queue_us(const struct choice *c) {
    return c->alone.step_us > 0 ? c->alone.queue_us : c->req->measured.queue_wait_us;
}

/* Of tokens that another instance generated the times are lost. */
static void put_timings(struct buf *out, const struct choice *c) {
    const uint64_t cached = c->req->measured.cached_tokens, n = c->req->n_prompt,
                   first = c->n_recs > 0 ? rec_step_us(c, 0) : alone_step_us(c),
                   queue = c->n_recs > 0 ? rec_queue_us(c, 0) : alone_queue_us(c);
    uint64_t us = 0;
    for (size_t i = 1; i < c->n_recs; i++) us += rec_step_us(c, i);
    buf_printf(out, ",\"timings\":{\"cache_n\":%llu", (unsigned long long)cached);
    put_rate(out, "prompt", n > cached ? n - cached : 0, first > queue ? first - queue : 0);
    put_rate(out, "predicted", c->n_recs, us);
    buf_putc(out, '}');
}

static void put_model(struct buf *out, const struct choice *c) {
    buf_puts(out, ",\"model\":");
    put_cstr(out, c->req->head.model != NULL ? c->req->head.model : answer_conf(c->a)->model_name);
}

/* Behind "tokens":[..] of the last object. */
static void put_end(struct buf *out, const struct choice *c) {
    const char *text = c->text.data != NULL ? c->text.data : "";
    const enum finish f = c->finish;
    buf_puts(out, ",\"id_slot\":0,\"stop\":true");
    put_model(out, c);
    buf_printf(out, ",\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu", c->n_recs,
               c->req->n_prompt);
    put_settings(out, c->req);
    buf_puts(out, ",\"prompt\":");
    buf_json_text(out, c->req->answer.text != NULL ? c->req->answer.text : "",
                  c->req->answer.text_len, true);
    put_flag(out, "has_new_line", memchr(text, '\n', c->text.len) != NULL);
    put_flag(out, "truncated", false);
    buf_printf(out, ",\"stop_type\":\"%s\",\"stopping_word\":", stop_type(f));
    put_cstr(out, f == FINISH_STOP_STRING ? c->req->stop[c->stop_idx] : "");
    put_flag(out, "stopped_eos", f == FINISH_EOS || f == FINISH_STOP_TOKEN);
    put_flag(out, "stopped_word", f == FINISH_STOP_STRING);
    put_flag(out, "stopped_limit", f == FINISH_LENGTH);
    buf_printf(out, ",\"tokens_cached\":%zu", c->req->n_prompt + c->n_recs);
    put_timings(out, c);
}

static void llamacpp_body(struct answer *a, struct buf *out) {
    if (a->req->answer.root_array) buf_putc(out, '[');
    for (size_t i = 0; i < a->n_shown; i++) {
        struct choice *c = a->shown[i];
        if (i > 0) buf_putc(out, ',');
        buf_printf(out, "{\"index\":%zu,\"content\":", c->index);
        put_all_text(out, c, NULL);
        buf_puts(out, ",\"tokens\":");
        put_id_list(out, c, 0, c->n_recs);
        put_end(out, c);
        put_probs(out, c, 0, c->n_recs);
        buf_putc(out, '}');
    }
    if (a->req->answer.root_array) buf_putc(out, ']');
}

/* What there is to say, then the last object without text. */
static void llamacpp_event(struct choice *c, struct buf *out) {
    const bool last = c->finish != FINISH_NONE;
    if (!last || c->ready > c->sent || c->n_recs > c->recs_sent) {
        buf_printf(out, "data: {\"index\":%zu,\"content\":", c->index);
        put_new_text(out, c);
        buf_puts(out, ",\"tokens\":");
        put_id_list(out, c, c->recs_sent, c->n_recs);
        buf_printf(out,
                   ",\"stop\":false,\"id_slot\":0,\"tokens_predicted\":%zu,"
                   "\"tokens_evaluated\":%zu",
                   c->n_recs, c->req->n_prompt);
        put_probs(out, c, c->recs_sent, c->n_recs);
        buf_puts(out, "}\n\n");
    }
    if (!last) return;
    buf_printf(out, "data: {\"index\":%zu,\"content\":\"\",\"tokens\":[]", c->index);
    put_end(out, c);
    buf_puts(out, "}\n\n");
}

const struct answer_ops answer_llamacpp = {
    .frames = API_FRAMES_SSE,
    .controls = true,
    .event = llamacpp_event,
    .body = llamacpp_body,
};
