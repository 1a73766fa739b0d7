/* answer_infer: ModelInferResponse and ModelStreamInferResponse (kserve-runtimes 8.7, 11.1), and
 * the same outputs over REST (8.3, 8.4). The tensors are raw, as clients of Triton read them: their
 * bytes are put together here, the messages of the JSON of their fields; REST shows them as JSON,
 * or behind it. */
#include <string.h>
#include "common/base/base64.h"
#include "common/endpoint/answer.h"
#include "common/endpoint/ep_infer_tensor.h"
#include "common/grpc/grpc_json.h"
#include "proto/pb.h"

static const struct {
    const char *name;
    unsigned bytes;
} id_types[] = {{"INT64", 8}, {"INT32", 4}, {"UINT64", 8}, {"UINT32", 4}};

enum { OUTPUTS_MAX = 6 };

/* What is being written: outputs, their elements in raw bytes. */
struct output {
    const char *name, *type;
    uint32_t what; /* its bit; 0: the text or the ids */
    size_t rows, n;
    struct buf bytes;
};
struct tensors {
    struct output all[OUTPUTS_MAX];
    size_t n;
};

static void tensors_free(struct tensors *t) {
    for (size_t i = 0; i < t->n; i++) buf_free(&t->all[i].bytes);
}

static void put_number(struct buf *b, uint64_t v, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) buf_putc(b, (char)(v >> 8 * i));
}

/* An element of BYTES. */
static void put_text(struct buf *b, const char *p, size_t n) {
    put_number(b, n, 4);
    buf_append(b, p, n);
}

/* {"name":..,"datatype":..,"shape":[..]; the object is still open. */
static void put_head(struct buf *out, const struct output *o) {
    buf_puts(out, "{\"name\":");
    put_cstr(out, o->name);
    buf_printf(out, ",\"datatype\":\"%s\",\"shape\":[", o->type);
    if (o->rows > 0) buf_printf(out, "%zu,", o->rows);
    buf_printf(out, "%zu]", o->n);
}

/* ---- what a choice has */

/* Of an event the tokens since the last one, of a whole answer all. */
static size_t first_of(const struct choice *c) {
    return c->req->answer.stream ? c->recs_sent : 0;
}

static void text_of(struct buf *b, const struct choice *c) {
    const struct infer_answer *show = &c->req->answer;
    struct buf text = BUF_INIT;
    const size_t from = show->stream ? c->sent : 0, to = show->stream ? c->ready : c->text.len;
    if (show->return_full_text && show->text != NULL) buf_append(&text, show->text, show->text_len);
    if (to > from) buf_append(&text, c->text.data + from, to - from);
    put_text(b, text.data, text.len);
    b->failed = b->failed || text.failed;
    buf_free(&text);
}

static const char *finish_of(const struct choice *c) {
    switch (c->finish) {
    case FINISH_NONE: return "";
    case FINISH_LENGTH: return "length";
    case FINISH_ABORT: return "abort";
    default: return "stop";
    }
}

static void put_logprob_of(struct buf *json, const struct choice *c, int32_t id, float logprob) {
    buf_printf(json, "\"%d\":{\"logprob\":", (int)id);
    put_logprob(json, logprob);
    buf_puts(json, ",\"decoded_token\":");
    put_token_text(json, c->a, id, (struct detok_cut){0});
    buf_putc(json, '}');
}

/* As vLLM's backend has them: an object for each token. */
static void logprobs_of(struct buf *b, const struct choice *c) {
    struct buf json = BUF_INIT;
    buf_putc(&json, '[');
    for (size_t i = first_of(c); i < c->n_recs; i++) {
        const struct token_rec *rec = &c->recs[i];
        buf_puts(&json, i > first_of(c) ? ",{" : "{");
        put_logprob_of(&json, c, rec->id, rec->logprob);
        for (uint32_t k = 0; k < rec->n_top; k++) {
            const struct top_logprob *top = &c->tops[rec->top_at + k];
            if (top->id == rec->id) continue;
            buf_putc(&json, ',');
            put_logprob_of(&json, c, top->id, top->logprob);
        }
        buf_putc(&json, '}');
    }
    buf_putc(&json, ']');
    put_text(b, json.data, json.len);
    b->failed = b->failed || json.failed;
    buf_free(&json);
}

/* ---- the outputs of some choices */

typedef void element_fn(struct buf *b, const struct choice *c);

static void finish_element(struct buf *b, const struct choice *c) {
    put_text(b, finish_of(c), strlen(finish_of(c)));
}

static void sum_element(struct buf *b, const struct choice *c) {
    put_number(b, pb_of_f32((float)c->logprob_sum), 4);
}

static void n_input_element(struct buf *b, const struct choice *c) {
    put_number(b, c->req->n_prompt, 4);
}

static void n_output_element(struct buf *b, const struct choice *c) {
    put_number(b, c->n_recs - first_of(c), 4);
}

static void add_ids(struct tensors *t, const struct choice *c) {
    const uint32_t shown = c->req->answer.tensors;
    const unsigned type = shown >> TENSOR_TYPE_SHIFT & 3;
    struct buf b = BUF_INIT;
    for (size_t i = first_of(c); i < c->n_recs; i++)
        put_number(&b, (uint64_t)(int64_t)c->recs[i].id, id_types[type].bytes);
    t->all[t->n++] = (struct output){
        c->req->answer.output_name, id_types[type].name, 0, 1, c->n_recs - first_of(c), b};
}

static void add_outputs(struct tensors *t, struct choice *const *shown, size_t n) {
    static const struct {
        uint32_t what;
        const char *name, *type;
        element_fn *put;
    } extra[] = {{TENSOR_FINISH_REASON, "finish_reason", "BYTES", finish_element},
                 {TENSOR_CUMULATIVE_LOGPROB, "cumulative_logprob", "FP32", sum_element},
                 {TENSOR_LOGPROBS, "logprobs", "BYTES", logprobs_of},
                 {TENSOR_N_INPUT, "num_input_tokens", "UINT32", n_input_element},
                 {TENSOR_N_OUTPUT, "num_output_tokens", "UINT32", n_output_element}};
    const struct infer_answer *a = &shown[0]->req->answer;
    struct buf b = BUF_INIT;
    if ((a->tensors & TENSOR_NO_MAIN) != 0) {
        /* the others alone */
    } else if ((a->tensors & TENSOR_IDS) != 0) {
        add_ids(t, shown[0]);
    } else {
        for (size_t i = 0; i < n; i++) text_of(&b, shown[i]);
        t->all[t->n++] = (struct output){a->output_name, "BYTES", 0, 0, n, b};
    }
    for (size_t k = 0; k < sizeof(extra) / sizeof(extra[0]); k++) {
        if ((a->tensors & extra[k].what) == 0) continue;
        b = BUF_INIT;
        for (size_t i = 0; i < n; i++) extra[k].put(&b, shown[i]);
        t->all[t->n++] = (struct output){extra[k].name, extra[k].type, extra[k].what, 0, n, b};
    }
}

/* ---- messages */

static void put_outputs(struct buf *json, const struct tensors *t) {
    buf_puts(json, ",\"outputs\":[");
    for (size_t i = 0; i < t->n; i++) {
        if (i > 0) buf_putc(json, ',');
        put_head(json, &t->all[i]);
        buf_putc(json, '}');
    }
    buf_puts(json, "],\"raw_output_contents\":[");
    for (size_t i = 0; i < t->n; i++) {
        buf_puts(json, i > 0 ? ",\"" : "\"");
        base64_put(json, t->all[i].bytes.data, t->all[i].bytes.len);
        buf_putc(json, '"');
        json->failed = json->failed || t->all[i].bytes.failed;
    }
    buf_putc(json, ']');
}

/* shown NULL: without outputs. */
static void put_response(struct buf *out, const struct infer_req *req, struct choice *const *shown,
                         size_t n, bool last) {
    const bool many = (req->answer.tensors & TENSOR_IN_STREAM) != 0;
    struct tensors t = {.n = 0};
    struct buf json = BUF_INIT;
    if (shown != NULL) add_outputs(&t, shown, n);
    if (many) buf_puts(&json, "{\"infer_response\":");
    buf_puts(&json, "{\"model_name\":");
    put_cstr(&json, req->head.model);
    buf_puts(&json, ",\"model_version\":\"1\"");
    if (req->answer.echoed != NULL) buf_printf(&json, ",\"id\":%s", req->answer.echoed);
    if (many)
        buf_printf(&json, ",\"parameters\":{\"triton_final_response\":{\"bool_param\":%s}}",
                   last ? "true" : "false");
    put_outputs(&json, &t);
    buf_puts(&json, many ? "}}" : "}");
    tensors_free(&t);
    grpc_put_made(
        out, many ? &grpc_inference_ModelStreamInferResponse : &grpc_inference_ModelInferResponse,
        &json);
}

static bool has_empty_last(const struct infer_req *req) {
    const uint32_t both = TENSOR_IN_STREAM | TENSOR_EMPTY_LAST;
    return (req->answer.tensors & both) == both;
}

static void infer_event(struct choice *c, struct buf *out) {
    struct choice *one[] = {c};
    put_response(out, c->req, one, 1, c->finish != FINISH_NONE && !has_empty_last(c->req));
}

static void infer_end(struct answer *a, struct buf *out) {
    if (has_empty_last(a->req)) put_response(out, a->req, NULL, 0, true);
}

static void infer_body(struct answer *a, struct buf *out) {
    put_response(out, a->req, a->shown, a->n_shown, !has_empty_last(a->req));
    infer_end(a, out);
}

/* ---- the body of REST */

static uint64_t number_at(const char *p, unsigned bytes) {
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)(unsigned char)p[i] << 8 * i;
    return v;
}

/* The raw elements as JSON. */
static void put_data(struct buf *out, const struct output *o) {
    const struct infer_type *type = infer_type_of(o->type, strlen(o->type));
    const struct buf *b = &o->bytes;
    for (size_t at = 0, n; at < b->len; at += n) {
        if (at > 0) buf_putc(out, ',');
        n = type->class == INFER_TEXTS ? 4 : type->bytes;
        const uint64_t v = number_at(b->data + at, (unsigned)n);
        if (type->class == INFER_TEXTS) {
            buf_json_str(out, b->data + at + n, (size_t)v);
            n += (size_t)v;
        } else if (type->class == INFER_REALS) {
            put_logprob(out, pb_f32(v));
        } else if (type->is_signed) {
            put_i64(out, n == 4 ? (int32_t)(uint32_t)v : (int64_t)v);
        } else {
            put_u64(out, v);
        }
    }
}

/* Those that are answered in bytes lie behind the JSON, in its order. */
static void rest_body(struct answer *a, struct buf *out) {
    const struct infer_req *req = a->shown[0]->req;
    struct tensors t = {.n = 0};
    add_outputs(&t, a->shown, a->n_shown);
    buf_putc(out, '{');
    if (req->answer.echoed != NULL) buf_printf(out, "\"id\":%s,", req->answer.echoed);
    buf_puts(out, "\"model_name\":");
    put_cstr(out, req->head.model);
    buf_puts(out, ",\"model_version\":\"1\",\"outputs\":[");
    for (size_t i = 0; i < t.n; i++) {
        const struct output *o = &t.all[i];
        out->failed = out->failed || o->bytes.failed;
        if (i > 0) buf_putc(out, ',');
        put_head(out, o);
        if ((req->answer.tensors & tensor_binary_of(o->what)) != 0) {
            buf_printf(out, ",\"parameters\":{\"binary_data_size\":%zu}}", o->bytes.len);
            continue;
        }
        buf_puts(out, ",\"data\":[");
        if (!o->bytes.failed) put_data(out, o);
        buf_puts(out, "]}");
    }
    buf_puts(out, "]}");
    for (size_t i = 0; i < t.n; i++)
        if ((req->answer.tensors & tensor_binary_of(t.all[i].what)) != 0)
            buf_append(out, t.all[i].bytes.data, t.all[i].bytes.len);
    tensors_free(&t);
}

/* ---- the text of generate: outputs by their names, one element as itself */

static void put_text_answer(struct buf *out, const struct infer_req *req,
                            struct choice *const *shown, size_t n) {
    struct tensors t = {.n = 0};
    add_outputs(&t, shown, n);
    buf_putc(out, '{');
    if (req->answer.echoed != NULL) buf_printf(out, "\"id\":%s,", req->answer.echoed);
    buf_puts(out, "\"model_name\":");
    put_cstr(out, req->head.model);
    buf_puts(out, ",\"model_version\":\"1\"");
    for (size_t i = 0; i < t.n; i++) {
        const struct output *o = &t.all[i];
        out->failed = out->failed || o->bytes.failed;
        buf_printf(out, ",\"%s\":%s", o->name, o->n == 1 ? "" : "[");
        if (!o->bytes.failed) put_data(out, o);
        if (o->n != 1) buf_putc(out, ']');
    }
    buf_putc(out, '}');
    tensors_free(&t);
}

static void text_event(struct choice *c, struct buf *out) {
    struct choice *one[] = {c};
    buf_puts(out, "data: ");
    put_text_answer(out, c->req, one, 1);
    buf_puts(out, "\n\n");
}

static void text_body(struct answer *a, struct buf *out) {
    put_text_answer(out, a->shown[0]->req, a->shown, a->n_shown);
}

const struct answer_ops answer_infer_text = {
    .frames = API_FRAMES_SSE, .controls = true, .event = text_event, .body = text_body};

const struct answer_ops answer_infer_rest = {
    .frames = API_FRAMES_TENSORS, .controls = true, .body = rest_body, /* it never streams */
};

const struct answer_ops answer_infer = {
    .frames = API_FRAMES_GRPC,
    .controls = true,
    .event = infer_event,
    .end = infer_end,
    .body = infer_body,
};
