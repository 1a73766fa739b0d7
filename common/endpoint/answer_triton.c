/* answer_triton: the token tensor (inference-api 11.1) and the text with its details (11.2). */
#include "common/endpoint/answer.h"

/* {"id":..: the client's own id, or the internal one. */
static void put_id(struct buf *out, const struct infer_req *req) {
    buf_puts(out, "{\"id\":");
    put_cstr(out, req->head.client_id != NULL ? req->head.client_id : req->head.req_id);
}

/* ---- tokens */

static void token_body(struct answer *a, struct buf *out) {
    struct choice *c = a->shown[0];
    put_id(out, c->req);
    buf_puts(out, ",\"outputs\":[{\"name\":");
    put_cstr(out, c->req->answer.output_name);
    buf_puts(out, ",\"shape\":[1,");
    put_u64(out, c->n_recs);
    buf_puts(out, "],\"datatype\":\"UINT32\",\"data\":");
    put_id_list(out, c, 0, c->n_recs);
    buf_puts(out, "}],\"model_name\":");
    put_cstr(out, c->req->head.model);
    buf_puts(out, ",\"model_version\":null}");
}

/* ---- text */

static void put_perf_stat(struct buf *out, const struct choice *c) {
    buf_puts(out, ",\"perf_stat\":[");
    for (size_t i = 0; i < c->n_recs; i++) {
        buf_puts(out, i > 0 ? ",[" : "[");
        put_i64(out, c->recs[i].id);
        buf_putc(out, ',');
        put_ms(out, rec_step_us(c, i));
        buf_putc(out, ']');
    }
    buf_putc(out, ']');
}

/* "details":{.. up to perf_stat; the finish reason once there is one. */
static void put_details_head(struct buf *out, const struct choice *c) {
    buf_puts(out, ",\"details\":{");
    if (c->finish != FINISH_NONE) {
        buf_puts(out, "\"finish_reason\":");
        put_details_finish(out, c->finish);
        buf_putc(out, ',');
    }
    buf_puts(out, "\"generated_tokens\":");
    put_u64(out, c->n_recs);
    buf_puts(out, ",\"first_token_cost\":null,\"decode_cost\":null");
    if (c->req->answer.perf_stat) put_perf_stat(out, c);
}

static void put_text_head(struct buf *out, const struct infer_req *req) {
    put_id(out, req);
    buf_puts(out, ",\"model_name\":");
    put_cstr(out, req->head.model);
    buf_puts(out, ",\"model_version\":null,\"text_output\":");
}

static void text_body(struct answer *a, struct buf *out) {
    struct choice *c = a->shown[0];
    put_text_head(out, c->req);
    put_all_text(out, c, NULL);
    if (c->req->answer.details) {
        put_details_head(out, c);
        buf_puts(out, ",\"batch_size\":[");
        for (size_t i = 0; i < c->n_recs; i++) {
            if (i > 0) buf_putc(out, ',');
            put_u64(out, rec_batch(c, i));
        }
        buf_puts(out, "],\"queue_wait_time\":[");
        for (size_t i = 0; i < c->n_recs; i++) {
            if (i > 0) buf_putc(out, ',');
            put_u64(out, rec_queue_us(c, i));
        }
        buf_puts(out, "]}");
    }
    buf_putc(out, '}');
}

static void text_open(struct answer *a) {
    if (!a->req->answer.stream) return;
    buf_puts(&a->head, "data:"); /* no space: the vendor's framing */
    put_text_head(&a->head, a->req);
}

static void text_event(struct choice *c, struct buf *out) {
    bool fresh = c->n_recs > c->recs_sent;
    size_t last = c->n_recs - 1;
    buf_append(out, c->a->head.data, c->a->head.len);
    put_new_text(out, c);
    if (c->req->answer.details) {
        put_details_head(out, c);
        buf_puts(out, ",\"batch_size\":");
        put_u64(out, fresh ? rec_batch(c, last) : 0);
        buf_puts(out, ",\"queue_wait_time\":");
        put_u64(out, fresh ? rec_queue_us(c, last) : 0);
        buf_putc(out, '}');
    }
    buf_puts(out, ",\"prefill_time\":");
    if (fresh && last == 0)
        put_ms(out, rec_step_us(c, 0));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"decode_time\":");
    if (fresh && last > 0)
        put_ms(out, rec_step_us(c, last));
    else
        buf_puts(out, "null");
    buf_puts(out, "}\n\n");
}

const struct answer_ops answer_triton_token = {
    .tokens_only = true, .body = token_body, /* it never streams */
};

const struct answer_ops answer_triton_text = {
    .every_token = true,
    .controls = true,
    .open = text_open,
    .event = text_event,
    .body = text_body,
    .frames = API_FRAMES_SSE_BARE,
};
