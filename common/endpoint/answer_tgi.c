/* answer_tgi: generated_text, details and token events of TGI (inference-api 6.3, 6.4). */
#include <math.h>
#include "common/endpoint/answer.h"

static void put_special(struct buf *out, const struct answer *a, int32_t id) {
    buf_puts(out, answer_is_special(a, id) ? "true" : "false");
}

/* An item of prefill or tokens. */
static void put_item(struct buf *out, const struct answer *a, int32_t id, float logprob) {
    buf_puts(out, "{\"id\":");
    put_i64(out, id);
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, logprob);
    buf_puts(out, ",\"special\":");
    put_special(out, a, id);
    buf_puts(out, ",\"text\":");
    put_token_text(out, a, id);
    buf_putc(out, '}');
}

/* "top_tokens": for each token [from, to) its alternatives. */
static void put_top_tokens(struct buf *out, const struct answer *a, size_t from, size_t to,
                           bool nested) {
    buf_puts(out, "\"top_tokens\":[");
    for (size_t i = from; i < to; i++) {
        const struct token_rec *rec = &a->recs[i];
        if (i > from) buf_putc(out, ',');
        if (nested) buf_putc(out, '[');
        for (size_t t = 0; t < rec->n_top; t++) {
            if (t > 0) buf_putc(out, ',');
            put_item(out, a, a->tops[rec->top_at + t].id, a->tops[rec->top_at + t].logprob);
        }
        if (nested) buf_putc(out, ']');
    }
    buf_putc(out, ']');
}

/* {"prompt_tokens":..,"finish_reason":..,"generated_tokens":.. */
static void put_details_head(struct buf *out, const struct answer *a) {
    buf_puts(out, "{\"prompt_tokens\":");
    put_u64(out, a->req->n_prompt);
    buf_puts(out, ",\"finish_reason\":");
    put_details_finish(out, a->finish);
    buf_puts(out, ",\"generated_tokens\":");
    put_u64(out, a->n_recs);
}

static void put_details(struct buf *out, const struct answer *a) {
    const struct infer_req *req = a->req;
    put_details_head(out, a);
    buf_puts(out, ",\"prefill\":[");
    for (size_t i = 0; req->decoder_input_details && i < req->n_prompt; i++) {
        if (i > 0) buf_putc(out, ',');
        put_item(out, a, req->ids[i],
                 a->prompt_logprobs != NULL && i > 0 ? a->prompt_logprobs[i] : NAN);
    }
    buf_puts(out, "],\"seed\":");
    put_u64(out, req->sampling.seed);
    buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; req->details && i < a->n_recs; i++) {
        if (i > 0) buf_putc(out, ',');
        put_item(out, a, a->recs[i].id, a->recs[i].logprob);
    }
    buf_putc(out, ']');
    if (req->details && req->sampling.top_logprobs > 0) {
        buf_putc(out, ',');
        put_top_tokens(out, a, 0, a->n_recs, true);
    }
    buf_putc(out, '}');
}

/* The whole text; after the prompt with return_full_text. */
static void put_generated(struct buf *out, struct answer *a) {
    const char *between = answer_conf(a)->tgi_legacy_space ? " " : "";
    put_all_text(out, a, a->req->return_full_text ? between : NULL);
}

static void tgi_body(struct answer *a, struct buf *out) {
    if (a->req->root_array) buf_putc(out, '[');
    buf_putc(out, '{');
    if (a->req->details || a->req->decoder_input_details) {
        buf_puts(out, "\"details\":");
        put_details(out, a);
        buf_putc(out, ',');
    }
    buf_puts(out, "\"generated_text\":");
    put_generated(out, a);
    buf_putc(out, '}');
    if (a->req->root_array) buf_putc(out, ']');
}

/* Ids since the previous event: a list, or with tokenIdScalar the last one alone. */
static void put_event_ids(struct buf *out, const struct answer *a) {
    if (!answer_conf(a)->token_id_scalar)
        put_id_list(out, a, a->recs_sent, a->n_recs);
    else if (a->n_recs > a->recs_sent)
        put_i64(out, a->recs[a->n_recs - 1].id);
    else
        buf_puts(out, "null");
}

static void tgi_event(struct answer *a, struct buf *out) {
    bool fresh =
        a->n_recs > a->recs_sent; /* an aborted request ends with an event without a token */
    const struct token_rec *rec = fresh ? &a->recs[a->n_recs - 1] : NULL;
    buf_puts(out, "data: {\"index\":");
    put_u64(out, a->n_recs);
    buf_puts(out, ",\"token\":{\"id\":");
    put_event_ids(out, a);
    buf_puts(out, ",\"text\":");
    put_new_text(out, a);
    buf_puts(out, ",\"logprob\":");
    put_logprob(out, fresh ? rec->logprob : NAN);
    buf_puts(out, ",\"special\":");
    if (fresh)
        put_special(out, a, rec->id);
    else
        buf_puts(out, "null");
    buf_putc(out, '}');
    if (a->req->sampling.top_logprobs > 0) {
        buf_putc(out, ',');
        put_top_tokens(out, a, a->recs_sent, a->n_recs, false);
    }
    if (a->finish == FINISH_NONE) {
        buf_puts(out, ",\"generated_text\":null,\"details\":null}\n\n");
        return;
    }
    buf_puts(out, ",\"generated_text\":");
    put_generated(out, a);
    buf_puts(out, ",\"details\":");
    if (a->req->details) {
        put_details_head(out, a);
        buf_puts(out, ",\"seed\":");
        put_u64(out, a->req->sampling.seed);
        buf_puts(out, ",\"input_length\":");
        put_u64(out, a->req->n_prompt);
        buf_putc(out, '}');
    } else {
        buf_puts(out, "null");
    }
    buf_puts(out, "}\n\n");
}

static void tgi_error(struct answer *a, const char *json, struct buf *out) {
    (void)a;
    buf_puts(out, "data: ");
    buf_puts(out, json);
    buf_puts(out, "\n\n");
}

const struct answer_ops answer_tgi = {
    .every_token = true,
    .event = tgi_event,
    .body = tgi_body,
    .error = tgi_error,
};
