/* answer_native: /infer and /infer_token (inference-api 10.2, 10.3). */
#include "common/endpoint/answer.h"

/* Milliseconds with at most two decimals. */
static void put_ms2(struct buf *out, uint64_t us) {
    uint64_t cents = (us + 5) / 10;
    put_u64(out, cents / 100);
    cents %= 100;
    if (cents == 0) return;
    buf_putc(out, '.');
    buf_putc(out, (char)('0' + cents / 10));
    if (cents % 10 != 0) buf_putc(out, (char)('0' + cents % 10));
}

static void put_details(struct buf *out, const struct choice *c, bool with_ids) {
    buf_puts(out, "{\"finish_reason\":");
    put_details_finish(out, c->finish);
    buf_puts(out, ",\"generated_tokens\":");
    put_u64(out, c->n_recs);
    if (with_ids) {
        buf_puts(out, ",\"generated_token_ids\":");
        put_id_list(out, c, 0, c->n_recs);
    }
    buf_puts(out, ",\"seed\":");
    put_u64(out, c->req->sampling.seed);
    buf_putc(out, '}');
}

static void native_body(struct answer *a, struct buf *out) {
    struct choice *c = a->shown[0];
    buf_puts(out, "{\"generated_text\":");
    put_all_text(out, c, NULL);
    if (c->req->answer.details) {
        buf_puts(out, ",\"details\":");
        put_details(out, c, true);
    }
    buf_putc(out, '}');
}

static void native_event(struct choice *c, struct buf *out) {
    bool fresh = c->n_recs > c->recs_sent;
    size_t last = c->n_recs - 1;
    buf_puts(out, "data: {\"prefill_time\":");
    if (fresh && last == 0)
        put_ms2(out, rec_step_us(c, 0));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"decode_time\":");
    if (fresh && last > 0)
        put_ms2(out, rec_step_us(c, last));
    else
        buf_puts(out, "null");
    if (c->finish != FINISH_NONE) {
        buf_puts(out, ",\"generated_text\":");
        put_all_text(out, c, NULL);
        buf_puts(out, ",\"details\":");
        if (c->req->answer.details)
            put_details(out, c, false);
        else
            buf_puts(out, "null");
    }
    buf_puts(out, ",\"token\":{\"id\":");
    if (!answer_conf(c->a)->token_id_scalar)
        put_id_list(out, c, c->recs_sent, c->n_recs);
    else if (fresh)
        put_i64(out, c->recs[last].id);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"text\":");
    if (c->finish != FINISH_NONE)
        buf_puts(out, "null"); /* the whole text is in generated_text: a documented quirk */
    else
        put_new_text(out, c);
    buf_puts(out, "}}\n\n");
}

const struct answer_ops answer_native = {
    .every_token = true,
    .event = native_event,
    .body = native_body,
    .frames = API_FRAMES_SSE,
};
