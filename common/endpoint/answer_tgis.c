/* answer_tgis: the messages of fmaas.GenerationService (kserve-runtimes 7.1), printed as the JSON
 * of their fields. A stream's first message says what is known of the prompt. */
#include <math.h>
#include "common/endpoint/answer.h"
#include "common/grpc/grpc_json.h"

void put_raw_piece(struct buf *out, const struct answer *a, int32_t id) {
    const char *p;
    const size_t n = tokenizer_token_piece(answer_tokenizer(a), id, &p);
    buf_puts(out, "{\"text\":");
    buf_json_text(out, p, n, true);
}

static void put_shown_logprob(struct buf *out, float logprob) {
    if (isnan(logprob)) return; /* not known */
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, logprob);
}

struct detail {
    float logprob;
    int32_t rank;
    const struct top_logprob *top;
    uint32_t n_top;
};

static void put_token(struct buf *out, const struct choice *c, int32_t id, const struct detail *d) {
    const struct infer_answer *show = &c->req->answer;
    put_raw_piece(out, c->a, id);
    if (show->token_logprobs) put_shown_logprob(out, d->logprob);
    if (show->token_ranks) buf_printf(out, ",\"rank\":%d", (int)d->rank);
    if (d->n_top > 0) buf_puts(out, ",\"top_tokens\":[");
    for (uint32_t i = 0; i < d->n_top; i++) {
        if (i > 0) buf_putc(out, ',');
        put_raw_piece(out, c->a, d->top[i].id);
        put_shown_logprob(out, d->top[i].logprob);
        buf_putc(out, '}');
    }
    buf_puts(out, d->n_top > 0 ? "]}" : "}");
}

static void put_tokens(struct buf *out, const struct choice *c, size_t from, size_t to) {
    if (!c->req->answer.details || from == to) return;
    buf_puts(out, ",\"tokens\":[");
    for (size_t i = from; i < to; i++) {
        const struct token_rec *rec = &c->recs[i];
        const struct detail d = {rec->logprob, rec->rank, c->tops + rec->top_at, rec->n_top};
        if (i > from) buf_putc(out, ',');
        put_token(out, c, rec->id, &d);
    }
    buf_putc(out, ']');
}

static void put_input_tokens(struct buf *out, const struct choice *c) {
    if (!c->req->answer.decoder_input_details) return;
    buf_puts(out, ",\"input_tokens\":[");
    for (size_t i = 0; i < c->req->n_prompt; i++) {
        struct detail d = {.logprob = NAN};
        if (c->part->prompt != NULL)
            d = (struct detail){c->part->prompt[i].logprob, c->part->prompt[i].rank,
                                c->part->prompt[i].top, c->part->prompt[i].n_top};
        if (i > 0) buf_putc(out, ',');
        put_token(out, c, c->req->ids[i], &d);
    }
    buf_putc(out, ']');
}

static void put_prompt_facts(struct buf *out, const struct choice *c) {
    buf_printf(out, ",\"input_token_count\":%zu", c->req->n_prompt);
    if (c->req->sampling.do_sample)
        buf_printf(out, ",\"seed\":%llu", (unsigned long long)c->req->sampling.seed);
    put_input_tokens(out, c);
}

/* The length was the request's, or there was no room for more. */
static const char *length_reason(const struct choice *c) {
    const size_t n = c->req->n_prompt + c->n_recs;
    return n >= (size_t)answer_conf(c->a)->max_seq_len ? "TOKEN_LIMIT" : "MAX_TOKENS";
}

const char *tgis_reason(const struct choice *c) {
    switch (c->finish) {
    case FINISH_NONE: return "NOT_FINISHED";
    case FINISH_EOS:
    case FINISH_STOP_TOKEN: return "EOS_TOKEN";
    case FINISH_STOP_STRING: return "STOP_SEQUENCE";
    case FINISH_LENGTH: return length_reason(c);
    case FINISH_ABORT: return c->req->head.time_limit_ms > 0 ? "TIME_LIMIT" : "CANCELLED";
    case FINISH_ERROR: break;
    }
    return "ERROR";
}

static void put_end(struct buf *out, const struct choice *c) {
    buf_printf(out, "{\"generated_token_count\":%zu,\"stop_reason\":\"%s\"", c->n_recs,
               tgis_reason(c));
    if (c->finish != FINISH_STOP_STRING) return;
    buf_puts(out, ",\"stop_sequence\":");
    put_cstr(out, c->req->stop[c->stop_idx]);
}

static void tgis_begin(struct choice *c, struct buf *out) {
    struct buf json = BUF_INIT;
    buf_puts(&json, "{\"text\":");
    buf_json_text(&json, c->req->answer.text != NULL ? c->req->answer.text : "",
                  c->req->answer.text_len, true);
    put_prompt_facts(&json, c);
    buf_putc(&json, '}');
    grpc_put_made(out, &grpc_fmaas_GenerationResponse, &json);
}

static void tgis_event(struct choice *c, struct buf *out) {
    struct buf json = BUF_INIT;
    put_end(&json, c);
    buf_puts(&json, ",\"text\":");
    put_new_text(&json, c);
    put_tokens(&json, c, c->recs_sent, c->n_recs);
    buf_putc(&json, '}');
    grpc_put_made(out, &grpc_fmaas_GenerationResponse, &json);
}

static void tgis_body(struct answer *a, struct buf *out) {
    struct buf json = BUF_INIT;
    buf_puts(&json, "{\"responses\":[");
    for (size_t i = 0; i < a->n_shown; i++) {
        struct choice *c = a->shown[i];
        if (i > 0) buf_putc(&json, ',');
        put_end(&json, c);
        buf_puts(&json, ",\"text\":");
        put_all_text(&json, c, c->req->answer.return_full_text ? "" : NULL);
        put_prompt_facts(&json, c);
        put_tokens(&json, c, 0, c->n_recs);
        buf_putc(&json, '}');
    }
    buf_puts(&json, "]}");
    grpc_put_made(out, &grpc_fmaas_BatchedGenerationResponse, &json);
}

const struct answer_ops answer_tgis = {
    .frames = API_FRAMES_GRPC,
    .controls = true,
    .begin = tgis_begin,
    .event = tgis_event,
    .body = tgis_body,
};
