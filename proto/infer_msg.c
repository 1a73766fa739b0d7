/* infer_msg: the request and the token as bytes. The order of the fields below is the format; any
 * change of it is a new INFER_REQ_VERSION or TOKEN_EVENT_VERSION, and a peer of another version is
 * refused rather than guessed at.
 *
 * Strings that may be absent have a presence bit beside the booleans, so that "" and NULL stay
 * apart. */
#include "proto/infer_msg.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    INFER_REQ_VERSION = 1,
    TOKEN_EVENT_VERSION = 1,
    PRIORITY_LAST = 5,
    TIMEOUT_S_MAX = 65535,
};

/* Wide enough for a ban by bias, far from where sums of logits overflow. */
static const float BIAS_ABS_MAX = 1e9f;
static const float PENALTY_ABS_MAX = 2.0f;

/* Booleans travel as bits of one u32, in this order; a bit without a row is refused. */
static const size_t req_bools[] = {
    offsetof(struct infer_req, stream),
    offsetof(struct infer_req, is_recompute),
    offsetof(struct infer_req, include_stop),
    offsetof(struct infer_req, skip_special),
    offsetof(struct infer_req, details),
    offsetof(struct infer_req, decoder_input_details),
    offsetof(struct infer_req, return_full_text),
    offsetof(struct infer_req, perf_stat),
    offsetof(struct infer_req, echo),
    offsetof(struct infer_req, root_array),
    offsetof(struct infer_req, include_usage),
    offsetof(struct infer_req, include_usage_set),
    offsetof(struct infer_req, continuous_usage),
    offsetof(struct infer_req, seed_given),
    offsetof(struct infer_req, sampling.do_sample),
    offsetof(struct infer_req, sampling.ignore_eos),
    offsetof(struct infer_req, sampling.logprobs),
    offsetof(struct infer_req, sampling.prompt_logprobs),
};
enum { N_REQ_BOOLS = sizeof(req_bools) / sizeof(req_bools[0]) };

/* Optional strings: one presence bit each after the booleans, and the longest allowed. */
static const struct {
    size_t at;
    size_t bytes_max;
} req_strs[] = {
    {offsetof(struct infer_req, req_id), REQ_ID_BYTES_MAX},
    {offsetof(struct infer_req, client_id), CLIENT_ID_BYTES_MAX},
    {offsetof(struct infer_req, model), MODEL_NAME_BYTES_MAX},
    {offsetof(struct infer_req, output_name), MODEL_NAME_BYTES_MAX},
};
enum { N_REQ_STRS = sizeof(req_strs) / sizeof(req_strs[0]) };
enum { TEXT_BIT = N_REQ_BOOLS + N_REQ_STRS, N_BITS = TEXT_BIT + 1 };
_Static_assert(N_BITS <= 32, "the flags are one u32");

static bool *req_bool(struct infer_req *req, int i) {
    return (bool *)((char *)req + req_bools[i]);
}

static char **req_str(struct infer_req *req, int i) {
    return (char **)((char *)req + req_strs[i].at);
}

static const char *req_str_of(const struct infer_req *req, int i) {
    const char *const *s = (const char *const *)((const char *)req + req_strs[i].at);
    return *s;
}

/* ---- life */

struct infer_req *infer_req_create(void) {
    struct infer_req *req = calloc(1, sizeof(*req));
    if (req == NULL) return NULL;
    req->skip_special = true;
    req->priority = PRIORITY_LAST;
    req->sampling = (struct sampling){
        .temperature = 1.0f,
        .top_p = 1.0f,
        .typical_p = 1.0f,
        .repetition_penalty = 1.0f,
        .new_tokens_max = INT32_MAX,
    };
    return req;
}

void infer_req_destroy(struct infer_req **req_ptr) {
    struct infer_req *req = *req_ptr;
    if (req == NULL) return;
    for (int i = 0; i < N_REQ_STRS; i++) free(*req_str(req, i));
    free(req->text);
    free(req->ids);
    for (size_t i = 0; i < req->n_stop; i++) free(req->stop[i]);
    free(req->stop);
    sampling_free(&req->sampling);
    free(req);
    *req_ptr = NULL;
}

void sampling_free(struct sampling *s) {
    free(s->stop_token_ids);
    free(s->logit_bias);
    s->stop_token_ids = NULL;
    s->logit_bias = NULL;
    s->n_stop_token_ids = s->n_logit_bias = 0;
}

enum err sampling_copy(struct sampling *dst, const struct sampling *src) {
    struct sampling s = *src;
    s.stop_token_ids = NULL;
    s.logit_bias = NULL;
    if (src->n_stop_token_ids > 0) {
        s.stop_token_ids = calloc(src->n_stop_token_ids, sizeof(*s.stop_token_ids));
        if (s.stop_token_ids == NULL) goto fail;
        memcpy(s.stop_token_ids, src->stop_token_ids,
               src->n_stop_token_ids * sizeof(*s.stop_token_ids));
    }
    if (src->n_logit_bias > 0) {
        s.logit_bias = calloc(src->n_logit_bias, sizeof(*s.logit_bias));
        if (s.logit_bias == NULL) goto fail;
        memcpy(s.logit_bias, src->logit_bias, src->n_logit_bias * sizeof(*s.logit_bias));
    }
    *dst = s;
    return ERR_OK;
fail:
    sampling_free(&s);
    *dst = s;
    return ERR_NO_MEMORY;
}

/* ---- the request, out */

static void sampling_pack(struct wr *w, const struct sampling *s) {
    wr_f32(w, s->temperature);
    wr_i32(w, s->top_k);
    wr_f32(w, s->top_p);
    wr_f32(w, s->min_p);
    wr_f32(w, s->typical_p);
    wr_f32(w, s->repetition_penalty);
    wr_f32(w, s->frequency_penalty);
    wr_f32(w, s->presence_penalty);
    wr_u64(w, s->seed);
    wr_i32(w, s->new_tokens_max);
    wr_i32(w, s->new_tokens_min);
    wr_i32(w, s->top_logprobs);
    wr_u32(w, (uint32_t)s->n_stop_token_ids);
    for (size_t i = 0; i < s->n_stop_token_ids; i++) wr_i32(w, s->stop_token_ids[i]);
    wr_u32(w, (uint32_t)s->n_logit_bias);
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        wr_i32(w, s->logit_bias[i].id);
        wr_f32(w, s->logit_bias[i].bias);
    }
}

void infer_req_pack(struct wr *w, const struct infer_req *req) {
    uint32_t bits = 0;
    for (int i = 0; i < N_REQ_BOOLS; i++) {
        const bool *b = (const bool *)((const char *)req + req_bools[i]);
        if (*b) bits |= 1u << i;
    }
    for (int i = 0; i < N_REQ_STRS; i++)
        if (req_str_of(req, i) != NULL) bits |= 1u << (N_REQ_BOOLS + i);
    if (req->text != NULL) bits |= 1u << TEXT_BIT;

    wr_u16(w, INFER_REQ_VERSION);
    wr_u32(w, bits);
    for (int i = 0; i < N_REQ_STRS; i++)
        if (req_str_of(req, i) != NULL) wr_cstr(w, req_str_of(req, i));
    wr_u32(w, req->epoch);
    wr_u8(w, (uint8_t)req->api);
    wr_i64(w, req->created_unix_s);
    wr_i32(w, req->priority);
    wr_i32(w, req->timeout_s);
    if (req->text != NULL) wr_str(w, req->text, req->text_len);
    wr_u32(w, (uint32_t)req->n_ids);
    wr_u32(w, (uint32_t)req->n_prompt);
    for (size_t i = 0; i < req->n_ids; i++) wr_i32(w, req->ids[i]);
    wr_u32(w, (uint32_t)req->n_stop);
    for (size_t i = 0; i < req->n_stop; i++) wr_cstr(w, req->stop[i]);
    sampling_pack(w, &req->sampling);
    wr_u64(w, req->prefill_us);
    wr_u64(w, req->queue_wait_us);
    wr_u32(w, req->prefill_batch);
    wr_u32(w, req->cached_tokens);
}

/* ---- the request, in */

/* Both bounds included; NaN is in no range. */
static bool in_f32(float v, float min, float max) {
    return v >= min && v <= max;
}

/* A count of items of item_bytes each: within its limit and within the bytes that are there, so
 * that no allocation is larger than a small multiple of what the peer really sent. */
static bool rd_count(struct rd *r, size_t *n, size_t n_max, size_t item_bytes) {
    uint32_t u;
    if (!rd_u32(r, &u) || u > n_max || u > rd_left(r) / item_bytes) return false;
    *n = u;
    return true;
}

/* A terminated copy of a string of at most bytes_max bytes without a zero byte inside. */
static enum err rd_dup(struct rd *r, char **out, size_t bytes_max) {
    const char *s;
    size_t n;
    if (!rd_str(r, &s, &n, bytes_max)) return ERR_BAD_FRAME;
    if (n > 0 && memchr(s, 0, n) != NULL) return ERR_BAD_FRAME;
    char *copy = malloc(n + 1);
    if (copy == NULL) return ERR_NO_MEMORY;
    if (n > 0) memcpy(copy, s, n);
    copy[n] = 0;
    *out = copy;
    return ERR_OK;
}

static enum err rd_text(struct rd *r, struct infer_req *req) {
    const char *s;
    size_t n;
    if (!rd_str(r, &s, &n, PROMPT_TEXT_BYTES_MAX)) return ERR_BAD_FRAME;
    req->text = malloc(n + 1);
    if (req->text == NULL) return ERR_NO_MEMORY;
    if (n > 0) memcpy(req->text, s, n);
    req->text[n] = 0;
    req->text_len = n;
    return ERR_OK;
}

static enum err rd_ids(struct rd *r, struct infer_req *req) {
    uint32_t n_ids, n_prompt;
    if (!rd_u32(r, &n_ids) || !rd_u32(r, &n_prompt)) return ERR_BAD_FRAME;
    if (n_ids > PROMPT_TOKENS_MAX || n_prompt > n_ids || n_ids > rd_left(r) / sizeof(int32_t))
        return ERR_BAD_FRAME;
    req->n_prompt = n_prompt;
    if (n_ids == 0) return ERR_OK;
    req->ids = calloc(n_ids, sizeof(*req->ids));
    if (req->ids == NULL) return ERR_NO_MEMORY;
    req->n_ids = n_ids;
    for (size_t i = 0; i < n_ids; i++)
        if (!rd_i32(r, &req->ids[i]) || req->ids[i] < 0) return ERR_BAD_FRAME;
    return ERR_OK;
}

static enum err rd_stops(struct rd *r, struct infer_req *req) {
    size_t n, left = STOP_STRINGS_BYTES_MAX;
    if (!rd_count(r, &n, STOP_STRINGS_MAX, sizeof(uint32_t))) return ERR_BAD_FRAME;
    if (n == 0) return ERR_OK;
    req->stop = calloc(n, sizeof(*req->stop));
    if (req->stop == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        enum err e = rd_dup(r, &req->stop[i], left);
        if (e != ERR_OK) return e;
        req->n_stop = i + 1;
        left -= strlen(req->stop[i]);
        if (req->stop[i][0] == 0) return ERR_BAD_FRAME; /* would match at once */
    }
    return ERR_OK;
}

static enum err sampling_unpack(struct rd *r, struct sampling *s) {
    size_t n;
    if (!rd_f32(r, &s->temperature) || !rd_i32(r, &s->top_k) || !rd_f32(r, &s->top_p) ||
        !rd_f32(r, &s->min_p) || !rd_f32(r, &s->typical_p) || !rd_f32(r, &s->repetition_penalty) ||
        !rd_f32(r, &s->frequency_penalty) || !rd_f32(r, &s->presence_penalty) ||
        !rd_u64(r, &s->seed) || !rd_i32(r, &s->new_tokens_max) || !rd_i32(r, &s->new_tokens_min) ||
        !rd_i32(r, &s->top_logprobs))
        return ERR_BAD_FRAME;
    if (!in_f32(s->temperature, s->do_sample ? FLT_TRUE_MIN : 0.0f, FLT_MAX) || s->top_k < 0 ||
        !in_f32(s->top_p, FLT_TRUE_MIN, 1.0f) || !in_f32(s->min_p, 0.0f, 1.0f) ||
        !in_f32(s->typical_p, FLT_TRUE_MIN, 1.0f) ||
        !in_f32(s->repetition_penalty, FLT_TRUE_MIN, FLT_MAX) ||
        !in_f32(s->frequency_penalty, -PENALTY_ABS_MAX, PENALTY_ABS_MAX) ||
        !in_f32(s->presence_penalty, -PENALTY_ABS_MAX, PENALTY_ABS_MAX))
        return ERR_BAD_FRAME;
    if (s->new_tokens_max < 1 || s->new_tokens_min < 0 || s->top_logprobs < 0 ||
        s->top_logprobs > TOP_LOGPROBS_MAX)
        return ERR_BAD_FRAME;

    if (!rd_count(r, &n, STOP_TOKEN_IDS_MAX, sizeof(int32_t))) return ERR_BAD_FRAME;
    if (n > 0) {
        s->stop_token_ids = calloc(n, sizeof(*s->stop_token_ids));
        if (s->stop_token_ids == NULL) return ERR_NO_MEMORY;
        s->n_stop_token_ids = n;
    }
    for (size_t i = 0; i < n; i++)
        if (!rd_i32(r, &s->stop_token_ids[i])) return ERR_BAD_FRAME;

    if (!rd_count(r, &n, LOGIT_BIAS_MAX, sizeof(int32_t) + sizeof(float))) return ERR_BAD_FRAME;
    if (n > 0) {
        s->logit_bias = calloc(n, sizeof(*s->logit_bias));
        if (s->logit_bias == NULL) return ERR_NO_MEMORY;
        s->n_logit_bias = n;
    }
    for (size_t i = 0; i < n; i++)
        if (!rd_i32(r, &s->logit_bias[i].id) || !rd_f32(r, &s->logit_bias[i].bias) ||
            !in_f32(s->logit_bias[i].bias, -BIAS_ABS_MAX, BIAS_ABS_MAX))
            return ERR_BAD_FRAME;
    return ERR_OK;
}

static enum err req_body_unpack(struct rd *r, struct infer_req *req) {
    uint16_t version;
    uint32_t bits;
    uint8_t api;
    enum err e;
    if (!rd_u16(r, &version) || version != INFER_REQ_VERSION || !rd_u32(r, &bits) ||
        (bits >> N_BITS) != 0)
        return ERR_BAD_FRAME;
    for (int i = 0; i < N_REQ_BOOLS; i++) *req_bool(req, i) = (bits >> i & 1) != 0;
    for (int i = 0; i < N_REQ_STRS; i++)
        if ((bits >> (N_REQ_BOOLS + i) & 1) != 0 &&
            (e = rd_dup(r, req_str(req, i), req_strs[i].bytes_max)) != ERR_OK)
            return e;
    if (!rd_u32(r, &req->epoch) || !rd_u8(r, &api) || !rd_i64(r, &req->created_unix_s) ||
        !rd_i32(r, &req->priority) || !rd_i32(r, &req->timeout_s))
        return ERR_BAD_FRAME;
    if (api >= API_COUNT || req->priority < 1 || req->priority > PRIORITY_LAST ||
        req->timeout_s < 0 || req->timeout_s > TIMEOUT_S_MAX)
        return ERR_BAD_FRAME;
    req->api = (enum api)api;
    if ((bits >> TEXT_BIT & 1) != 0 && (e = rd_text(r, req)) != ERR_OK) return e;
    if ((e = rd_ids(r, req)) != ERR_OK) return e;
    if ((e = rd_stops(r, req)) != ERR_OK) return e;
    if ((e = sampling_unpack(r, &req->sampling)) != ERR_OK) return e;
    if (!rd_u64(r, &req->prefill_us) || !rd_u64(r, &req->queue_wait_us) ||
        !rd_u32(r, &req->prefill_batch) || !rd_u32(r, &req->cached_tokens))
        return ERR_BAD_FRAME;
    if (req->cached_tokens > PROMPT_TOKENS_MAX) return ERR_BAD_FRAME;
    return ERR_OK;
}

enum err infer_req_unpack(struct rd *r, struct infer_req **out) {
    *out = NULL;
    struct infer_req *req = infer_req_create();
    if (req == NULL) return ERR_NO_MEMORY;
    enum err e = req_body_unpack(r, req);
    if (e != ERR_OK) {
        infer_req_destroy(&req);
        return e;
    }
    *out = req;
    return ERR_OK;
}

/* ---- the token */

void token_event_pack(struct wr *w, const struct token_event *ev) {
    wr_u8(w, TOKEN_EVENT_VERSION);
    wr_i32(w, ev->id);
    wr_i32(w, ev->index);
    wr_u8(w, (uint8_t)ev->finish);
    wr_f32(w, ev->logprob);
    wr_u32(w, ev->batch_size);
    wr_u32(w, ev->queue_wait_us);
    wr_u32(w, ev->step_us);
    wr_u8(w, (uint8_t)ev->n_top);
    for (int32_t i = 0; i < ev->n_top; i++) {
        wr_i32(w, ev->top[i].id);
        wr_f32(w, ev->top[i].logprob);
    }
}

enum err token_event_unpack(struct rd *r, struct token_event *ev) {
    uint8_t version, finish, n_top;
    memset(ev, 0, sizeof(*ev));
    if (!rd_u8(r, &version) || version != TOKEN_EVENT_VERSION || !rd_i32(r, &ev->id) ||
        !rd_i32(r, &ev->index) || !rd_u8(r, &finish) || !rd_f32(r, &ev->logprob) ||
        !rd_u32(r, &ev->batch_size) || !rd_u32(r, &ev->queue_wait_us) || !rd_u32(r, &ev->step_us) ||
        !rd_u8(r, &n_top))
        return ERR_BAD_FRAME;
    if (ev->id < 0 || ev->index < 0 || finish > FINISH_ERROR || n_top > TOP_LOGPROBS_MAX ||
        !in_f32(ev->logprob, -FLT_MAX, 0.0f))
        return ERR_BAD_FRAME;
    ev->finish = (enum finish)finish;
    ev->n_top = n_top;
    for (int32_t i = 0; i < ev->n_top; i++)
        if (!rd_i32(r, &ev->top[i].id) || !rd_f32(r, &ev->top[i].logprob) || ev->top[i].id < 0 ||
            !in_f32(ev->top[i].logprob, -FLT_MAX, 0.0f))
            return ERR_BAD_FRAME;
    return ERR_OK;
}
