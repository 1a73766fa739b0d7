/* answer_caikit: generated texts as Caikit's data model has them (kserve-runtimes 4, 6.2): as the
 * JSON of REST, and of the same JSON the messages of gRPC. */
#include <math.h>
#include "common/endpoint/answer.h"
#include "common/grpc/grpc_json.h"

#define PRODUCER "{\"name\":\"Text Generation\",\"version\":\"0.1.0\"}"

static void put_token(struct buf *out, const struct choice *c, int32_t id, float logprob,
                      int32_t rank) {
    const struct infer_answer *show = &c->req->answer;
    put_raw_piece(out, c->a, id);
    buf_puts(out, ",\"logprob\":");
    if (show->token_logprobs && !isnan(logprob))
        put_logprob(out, logprob);
    else
        buf_puts(out, "0.0");
    buf_printf(out, ",\"rank\":%d}", show->token_ranks ? (int)rank : 0);
}

static void put_tokens(struct buf *out, const struct choice *c, size_t from, size_t to) {
    buf_puts(out, "\"tokens\":[");
    for (size_t i = from; c->req->answer.details && i < to; i++) {
        if (i > from) buf_putc(out, ',');
        put_token(out, c, c->recs[i].id, c->recs[i].logprob, c->recs[i].rank);
    }
    buf_putc(out, ']');
}

static void put_input_tokens(struct buf *out, const struct choice *c) {
    buf_puts(out, "\"input_tokens\":[");
    for (size_t i = 0; c->req->answer.decoder_input_details && i < c->req->n_prompt; i++) {
        const struct prompt_rec *p = c->part->prompt != NULL ? &c->part->prompt[i] : NULL;
        if (i > 0) buf_putc(out, ',');
        put_token(out, c, c->req->ids[i], p != NULL ? p->logprob : NAN, p != NULL ? p->rank : 0);
    }
    buf_putc(out, ']');
}

static void put_seed(struct buf *out, const struct choice *c) {
    buf_puts(out, "\"seed\":");
    if (c->req->answer.seed_given)
        put_u64(out, c->req->sampling.seed);
    else
        buf_puts(out, "null");
}

/* ---- whole */

static void put_whole(struct answer *a, struct buf *out) {
    struct choice *c = a->shown[0];
    buf_puts(out, "{\"generated_text\":");
    put_all_text(out, c, c->req->answer.return_full_text ? "" : NULL);
    buf_printf(out, ",\"generated_tokens\":%zu,\"finish_reason\":\"%s\",\"producer_id\":" PRODUCER,
               c->n_recs, tgis_reason(c));
    buf_printf(out, ",\"input_token_count\":%zu,", c->req->n_prompt);
    put_seed(out, c);
    buf_putc(out, ',');
    put_tokens(out, c, 0, c->n_recs);
    buf_putc(out, ',');
    put_input_tokens(out, c);
    buf_putc(out, '}');
}

static void rest_body(struct answer *a, struct buf *out) {
    put_whole(a, out);
}

static void grpc_body(struct answer *a, struct buf *out) {
    struct buf json = BUF_INIT;
    put_whole(a, &json);
    grpc_put_made(out, &grpc_caikit_data_model_nlp_GeneratedTextResult, &json);
}

/* ---- streamed */

static void put_details(struct buf *out, const struct choice *c, size_t n, const char *reason) {
    buf_printf(out, ",\"details\":{\"finish_reason\":\"%s\",\"generated_tokens\":%zu,", reason, n);
    put_seed(out, c);
    buf_printf(out, ",\"input_token_count\":%zu},\"producer_id\":null,", c->req->n_prompt);
}

/* What is known of the prompt. */
static void put_begin(struct choice *c, struct buf *out) {
    buf_puts(out, "{\"generated_text\":");
    buf_json_text(out, c->req->answer.text != NULL ? c->req->answer.text : "",
                  c->req->answer.text_len, true);
    buf_puts(out, ",\"tokens\":[]");
    put_details(out, c, 0, "NOT_FINISHED");
    put_input_tokens(out, c);
    buf_putc(out, '}');
}

static void put_step(struct choice *c, struct buf *out) {
    buf_puts(out, "{\"generated_text\":");
    put_new_text(out, c);
    buf_putc(out, ',');
    put_tokens(out, c, c->recs_sent, c->n_recs);
    put_details(out, c, c->n_recs, tgis_reason(c));
    buf_puts(out, "\"input_tokens\":[]}");
}

static void rest_event(struct choice *c, struct buf *out,
                       void (*put)(struct choice *c, struct buf *out)) {
    buf_puts(out, "event: message\r\ndata: ");
    put(c, out);
    buf_puts(out, "\r\n\r\n");
}

static void rest_begin(struct choice *c, struct buf *out) {
    rest_event(c, out, put_begin);
}

static void rest_step(struct choice *c, struct buf *out) {
    rest_event(c, out, put_step);
}

static void grpc_begin(struct choice *c, struct buf *out) {
    struct buf json = BUF_INIT;
    put_begin(c, &json);
    grpc_put_made(out, &grpc_caikit_data_model_nlp_GeneratedTextStreamResult, &json);
}

static void grpc_step(struct choice *c, struct buf *out) {
    struct buf json = BUF_INIT;
    put_step(c, &json);
    grpc_put_made(out, &grpc_caikit_data_model_nlp_GeneratedTextStreamResult, &json);
}

const struct answer_ops answer_caikit = {
    .frames = API_FRAMES_SSE_EVENTS,
    .controls = true,
    .begin = rest_begin,
    .event = rest_step,
    .body = rest_body,
};

const struct answer_ops answer_caikit_grpc = {
    .frames = API_FRAMES_GRPC,
    .controls = true,
    .begin = grpc_begin,
    .event = grpc_step,
    .body = grpc_body,
};
