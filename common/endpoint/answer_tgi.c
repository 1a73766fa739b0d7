/* answer_tgi: generated_text, details and token events of TGI (inference-api 6.3, 6.4). */
#include <math.h>
#include "common/endpoint/answer.h"

static void put_special(struct buf *out, const struct answer *a, int32_t id) {
    buf_puts(out, answer_is_special(a, id) ? "true" : "false");
}

/* An item of prefill or tokens. */
static void put_item(struct buf *out, const struct answer *a, int32_t id, float logprob,
                     struct detok_cut cut) {
    buf_puts(out, "{\"id\":");
    put_i64(out, id);
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, logprob);
    buf_puts(out, ",\"special\":");
    put_special(out, a, id);
    buf_puts(out, ",\"text\":");
    put_token_text(out, a, id, cut);
    buf_putc(out, '}');
}

/* "top_tokens": for each token [from, to) its alternatives. */
static void put_top_tokens(struct buf *out, const struct choice *c, size_t from, size_t to,
                           bool nested) {
    buf_puts(out, "\"top_tokens\":[");
    for (size_t i = from; i < to; i++) {
        const struct token_rec *rec = &c->recs[i];
        if (i > from) buf_putc(out, ',');
        if (nested) buf_putc(out, '[');
        for (size_t t = 0; t < rec->n_top; t++) {
            if (t > 0) buf_putc(out, ',');
            const struct top_logprob *top = &c->tops[rec->top_at + t];
            put_item(out, c->a, top->id, top->logprob, rec->cut);
        }
        if (nested) buf_putc(out, ']');
    }
    buf_putc(out, ']');
}

/* {"prompt_tokens":..,"finish_reason":..,"generated_tokens":.. */
static void put_details_head(struct buf *out, const struct choice *c) {
    buf_puts(out, "{\"prompt_tokens\":");
    put_u64(out, c->req->n_prompt);
    buf_puts(out, ",\"finish_reason\":");
    put_details_finish(out, c->finish);
    buf_puts(out, ",\"generated_tokens\":");
    put_u64(out, c->n_recs);
}

/* The whole text; after the prompt with return_full_text. */
static void put_generated(struct buf *out, struct choice *c) {
    const char *between = answer_conf(c->a)->tgi_legacy_space ? " " : "";
    put_all_text(out, c, c->req->answer.return_full_text ? between : NULL);
}

/* ,"prefill":[..],"seed":..,"tokens":[..] and what else is asked for. */
static void put_details_tokens(struct buf *out, const struct choice *c, bool with_prefill) {
    const struct infer_req *req = c->req;
    buf_puts(out, ",\"prefill\":[");
    for (size_t i = 0; with_prefill && i < req->n_prompt; i++) {
        if (i > 0) buf_putc(out, ',');
        put_item(out, c->a, req->ids[i],
                 c->part->prompt != NULL && i > 0 ? c->part->prompt[i].logprob : NAN,
                 (struct detok_cut){0});
    }
    buf_puts(out, "],\"seed\":");
    put_u64(out, req->sampling.seed);
    buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; req->answer.details && i < c->n_recs; i++) {
        if (i > 0) buf_putc(out, ',');
        put_item(out, c->a, c->recs[i].id, c->recs[i].logprob, c->recs[i].cut);
    }
    buf_putc(out, ']');
    if (req->answer.top_tokens) {
        buf_putc(out, ',');
        put_top_tokens(out, c, 0, c->n_recs, true);
    }
}

/* The sequences of best_of that came after the best. */
static void put_others(struct buf *out, const struct answer *a) {
    buf_puts(out, ",\"best_of_sequences\":[");
    for (size_t i = 1; i < a->n_shown; i++) {
        struct choice *c = a->shown[i];
        if (i > 1) buf_putc(out, ',');
        buf_puts(out, "{\"generated_text\":");
        put_generated(out, c);
        buf_puts(out, ",\"finish_reason\":");
        put_details_finish(out, c->finish);
        buf_puts(out, ",\"generated_tokens\":");
        put_u64(out, c->n_recs);
        put_details_tokens(out, c, false);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static void put_details(struct buf *out, const struct choice *c) {
    put_details_head(out, c);
    put_details_tokens(out, c, c->req->answer.decoder_input_details);
    if (c->req->answer.details && c->a->n_shown > 1) put_others(out, c->a);
    buf_putc(out, '}');
}

static void tgi_body(struct answer *a, struct buf *out) {
    struct choice *c = a->shown[0];
    if (c->req->answer.root_array) buf_putc(out, '[');
    buf_putc(out, '{');
    if (c->req->answer.details || c->req->answer.decoder_input_details) {
        buf_puts(out, "\"details\":");
        put_details(out, c);
        buf_putc(out, ',');
    }
    buf_puts(out, "\"generated_text\":");
    put_generated(out, c);
    buf_putc(out, '}');
    if (c->req->answer.root_array) buf_putc(out, ']');
}

/* Ids since the previous event: a list, or with tokenIdScalar the last one alone. */
static void put_event_ids(struct buf *out, const struct choice *c) {
    if (!answer_conf(c->a)->token_id_scalar)
        put_id_list(out, c, c->recs_sent, c->n_recs);
    else if (c->n_recs > c->recs_sent)
        put_i64(out, c->recs[c->n_recs - 1].id);
    else
        buf_puts(out, "null");
}

static void tgi_event(struct choice *c, struct buf *out) {
    bool fresh =
        c->n_recs > c->recs_sent; /* an aborted request ends with an event without a token */
    const struct token_rec *rec = fresh ? &c->recs[c->n_recs - 1] : NULL;
    buf_puts(out, "data: {\"index\":");
    put_u64(out, c->n_recs);
    buf_puts(out, ",\"token\":{\"id\":");
    put_event_ids(out, c);
    buf_puts(out, ",\"text\":");
    put_new_text(out, c);
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, fresh ? rec->logprob : NAN);
    buf_puts(out, ",\"special\":");
    if (fresh)
        put_special(out, c->a, rec->id);
    else
        buf_puts(out, "null");
    buf_putc(out, '}');
    if (c->req->answer.top_tokens) {
        buf_putc(out, ',');
        put_top_tokens(out, c, c->recs_sent, c->n_recs, false);
    }
    if (c->finish == FINISH_NONE) {
        buf_puts(out, ",\"generated_text\":null,\"details\":null}\n\n");
        return;
    }
    buf_puts(out, ",\"generated_text\":");
    put_generated(out, c);
    buf_puts(out, ",\"details\":");
    if (c->req->answer.details) {
        put_details_head(out, c);
        buf_puts(out, ",\"seed\":");
        put_u64(out, c->req->sampling.seed);
        buf_puts(out, ",\"input_length\":");
        put_u64(out, c->req->n_prompt);
        buf_putc(out, '}');
    } else {
        buf_puts(out, "null");
    }
    buf_puts(out, "}\n\n");
}

const struct answer_ops answer_tgi = {
    .every_token = true,
    .best_first = true,
    .event = tgi_event,
    .body = tgi_body,
    .frames = API_FRAMES_SSE,
};
