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
#include "proto/transcript.h"

enum {
    INFER_REQ_VERSION = 6,
    TOKEN_EVENT_VERSION = 2,
    PRIORITY_LAST = 5,
    TIMEOUT_S_MAX = 65535,
};

/* Wide enough for a ban by bias, far from where sums of logits overflow. */
static const float BIAS_ABS_MAX = 1e9f;
static const float PENALTY_ABS_MAX = 2.0f;

/* Booleans travel as bits of one u64, in this order; a bit without a row is refused. */
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
    offsetof(struct infer_req, show_prompt_logprobs),
    offsetof(struct infer_req, show_logprobs),
    offsetof(struct infer_req, top_tokens),
    offsetof(struct infer_req, parallel_tools),
    offsetof(struct infer_req, tools_forced),
    offsetof(struct infer_req, reasoning),
    offsetof(struct infer_req, thinking_open),
    offsetof(struct infer_req, drop_reasoning),
    offsetof(struct infer_req, sampling.do_sample),
    offsetof(struct infer_req, sampling.ignore_eos),
    offsetof(struct infer_req, sampling.logprobs),
    offsetof(struct infer_req, sampling.prompt_logprobs),
    offsetof(struct infer_req, sampling.beam),
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
    {offsetof(struct infer_req, guide), GUIDE_BYTES_MAX},
    {offsetof(struct infer_req, adapter), ADAPTER_NAME_BYTES_MAX},
    {offsetof(struct infer_req, trace), TRACE_BYTES_MAX},
    {offsetof(struct infer_req, tenant), TENANT_BYTES_MAX},
};
enum { N_REQ_STRS = sizeof(req_strs) / sizeof(req_strs[0]) };
enum { TEXT_BIT = N_REQ_BOOLS + N_REQ_STRS, ALLOWED_BIT, REPLAY_BIT, N_BITS };
_Static_assert(N_BITS <= 64, "the flags are one u64");

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
    req->n = 1;
    req->n_parts = 1;
    req->parallel_tools = true;
    req->sampling = (struct sampling){
        .temperature = 1.0f,
        .top_p = 1.0f,
        .typical_p = 1.0f,
        .repetition_penalty = 1.0f,
        .new_tokens_max = INT32_MAX,
        .n_choices = 1,
    };
    return req;
}

static void req_free(struct infer_req *req) {
    for (int i = 0; i < N_REQ_STRS; i++) free(*req_str(req, i));
    free(req->text);
    free(req->ids);
    for (size_t i = 0; i < req->n_stop; i++) free(req->stop[i]);
    free(req->stop);
    sampling_free(&req->sampling);
    if (req->replay != NULL) transcript_free(req->replay);
    free(req->replay);
    if (req->guide_drop != NULL) req->guide_drop(req->guide_compiled);
    free(req);
}

void infer_req_destroy(struct infer_req **req) {
    for (struct infer_req *r = *req, *next; r != NULL; r = next) {
        next = r->next_part;
        req_free(r);
    }
    *req = NULL;
}

void sampling_free(struct sampling *s) {
    free(s->stop_token_ids);
    free(s->logit_bias);
    free(s->allowed_ids);
    free(s->bad_words);
    s->stop_token_ids = s->allowed_ids = s->bad_words = NULL;
    s->logit_bias = NULL;
    s->n_stop_token_ids = s->n_logit_bias = s->n_allowed_ids = s->n_bad_words = 0;
}

/* A copy of n items; NULL for a NULL, room for one item where n is 0. *ok turns false when there is
 * no memory. */
static void *dup_items(const void *src, size_t n, size_t item_bytes, bool *ok) {
    if (src == NULL || !*ok) return NULL;
    void *p = calloc(n > 0 ? n : 1, item_bytes);
    if (p == NULL) {
        *ok = false;
    } else if (n > 0) {
        memcpy(p, src, n * item_bytes);
    }
    return p;
}

enum err sampling_copy(struct sampling *dst, const struct sampling *src) {
    struct sampling s = *src;
    bool ok = true;
    s.stop_token_ids =
        dup_items(src->stop_token_ids, src->n_stop_token_ids, sizeof(*s.stop_token_ids), &ok);
    s.logit_bias = dup_items(src->logit_bias, src->n_logit_bias, sizeof(*s.logit_bias), &ok);
    s.allowed_ids = dup_items(src->allowed_ids, src->n_allowed_ids, sizeof(*s.allowed_ids), &ok);
    s.bad_words = dup_items(src->bad_words, src->n_bad_words, sizeof(*s.bad_words), &ok);
    if (!ok) sampling_free(&s);
    *dst = s;
    return ok ? ERR_OK : ERR_NO_MEMORY;
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
    wr_i32(w, s->prompt_top_logprobs);
    wr_i32(w, s->n_choices);
    wr_i32(w, s->lookup_tokens);
    wr_u32(w, (uint32_t)s->n_stop_token_ids);
    for (size_t i = 0; i < s->n_stop_token_ids; i++) wr_i32(w, s->stop_token_ids[i]);
    wr_u32(w, (uint32_t)s->n_logit_bias);
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        wr_i32(w, s->logit_bias[i].id);
        wr_f32(w, s->logit_bias[i].bias);
    }
    wr_u32(w, (uint32_t)s->n_allowed_ids);
    for (size_t i = 0; i < s->n_allowed_ids; i++) wr_i32(w, s->allowed_ids[i]);
    wr_u32(w, (uint32_t)s->n_bad_words);
    for (size_t i = 0; i < s->n_bad_words; i++) wr_i32(w, s->bad_words[i]);
}

void infer_req_pack(struct wr *w, const struct infer_req *req) {
    uint64_t bits = 0;
    for (int i = 0; i < N_REQ_BOOLS; i++) {
        const bool *b = (const bool *)((const char *)req + req_bools[i]);
        if (*b) bits |= UINT64_C(1) << i;
    }
    for (int i = 0; i < N_REQ_STRS; i++)
        if (req_str_of(req, i) != NULL) bits |= UINT64_C(1) << (N_REQ_BOOLS + i);
    if (req->text != NULL) bits |= UINT64_C(1) << TEXT_BIT;
    if (req->sampling.allowed_ids != NULL) bits |= UINT64_C(1) << ALLOWED_BIT;
    if (req->replay != NULL) bits |= UINT64_C(1) << REPLAY_BIT;

    wr_u16(w, INFER_REQ_VERSION);
    wr_u64(w, bits);
    for (int i = 0; i < N_REQ_STRS; i++)
        if (req_str_of(req, i) != NULL) wr_cstr(w, req_str_of(req, i));
    wr_u32(w, req->epoch);
    wr_u32(w, req->part);
    wr_u32(w, req->n_parts);
    wr_i32(w, req->n);
    wr_u8(w, (uint8_t)req->api);
    wr_u8(w, (uint8_t)req->tools);
    if (req->adapter != NULL) wr_bytes(w, req->adapter_hash, sizeof(req->adapter_hash));
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
    if (req->replay != NULL) transcript_pack(w, req->replay);
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

/* A count, then ids of at least id_min; *out stays NULL for none unless `some` says that there is
 * an array, if an empty one. */
static enum err rd_i32s(struct rd *r, int32_t **out, size_t *n_out, size_t n_max, bool some,
                        int32_t id_min) {
    size_t n;
    if (!rd_count(r, &n, n_max, sizeof(int32_t))) return ERR_BAD_FRAME;
    if (n == 0 && !some) return ERR_OK;
    *out = calloc(n > 0 ? n : 1, sizeof(**out));
    if (*out == NULL) return ERR_NO_MEMORY;
    *n_out = n;
    for (size_t i = 0; i < n; i++)
        if (!rd_i32(r, &(*out)[i]) || (*out)[i] < id_min) return ERR_BAD_FRAME;
    return ERR_OK;
}

/* Every length leads to the next one, and the last to the end. */
static bool bad_words_sound(const struct sampling *s) {
    size_t at = 0;
    while (at < s->n_bad_words) {
        size_t len = (size_t)s->bad_words[at];
        if (len == 0 || len >= s->n_bad_words - at) return false;
        at += 1 + len;
    }
    return true;
}

static enum err sampling_unpack(struct rd *r, struct sampling *s, bool allowed) {
    size_t n;
    if (!rd_f32(r, &s->temperature) || !rd_i32(r, &s->top_k) || !rd_f32(r, &s->top_p) ||
        !rd_f32(r, &s->min_p) || !rd_f32(r, &s->typical_p) || !rd_f32(r, &s->repetition_penalty) ||
        !rd_f32(r, &s->frequency_penalty) || !rd_f32(r, &s->presence_penalty) ||
        !rd_u64(r, &s->seed) || !rd_i32(r, &s->new_tokens_max) || !rd_i32(r, &s->new_tokens_min) ||
        !rd_i32(r, &s->top_logprobs) || !rd_i32(r, &s->prompt_top_logprobs) ||
        !rd_i32(r, &s->n_choices) || !rd_i32(r, &s->lookup_tokens))
        return ERR_BAD_FRAME;
    if (!in_f32(s->temperature, s->do_sample ? FLT_TRUE_MIN : 0.0f, FLT_MAX) || s->top_k < 0 ||
        !in_f32(s->top_p, FLT_TRUE_MIN, 1.0f) || !in_f32(s->min_p, 0.0f, 1.0f) ||
        !in_f32(s->typical_p, FLT_TRUE_MIN, 1.0f) ||
        !in_f32(s->repetition_penalty, FLT_TRUE_MIN, FLT_MAX) ||
        !in_f32(s->frequency_penalty, -PENALTY_ABS_MAX, PENALTY_ABS_MAX) ||
        !in_f32(s->presence_penalty, -PENALTY_ABS_MAX, PENALTY_ABS_MAX))
        return ERR_BAD_FRAME;
    if (s->new_tokens_max < 1 || s->new_tokens_min < 0 || s->top_logprobs < 0 ||
        s->top_logprobs > TOP_LOGPROBS_MAX || s->prompt_top_logprobs < 0 ||
        s->prompt_top_logprobs > TOP_LOGPROBS_MAX || s->n_choices < 1 ||
        s->n_choices > CHOICES_MAX || s->lookup_tokens < 0 || s->lookup_tokens > LOOKUP_TOKENS_MAX)
        return ERR_BAD_FRAME;
    if (s->beam && (s->do_sample || s->new_tokens_max > BEAM_TOKENS_MAX)) return ERR_BAD_FRAME;

    enum err e =
        rd_i32s(r, &s->stop_token_ids, &s->n_stop_token_ids, STOP_TOKEN_IDS_MAX, false, INT32_MIN);
    if (e != ERR_OK) return e;
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
    e = rd_i32s(r, &s->allowed_ids, &s->n_allowed_ids, ALLOWED_IDS_MAX, allowed, 0);
    if (e == ERR_OK && !allowed && s->n_allowed_ids > 0) e = ERR_BAD_FRAME;
    if (e == ERR_OK) e = rd_i32s(r, &s->bad_words, &s->n_bad_words, BAD_WORDS_IDS_MAX, false, 0);
    if (e == ERR_OK && !bad_words_sound(s)) e = ERR_BAD_FRAME;
    return e;
}

/* As many choices as the request draws, none with more tokens than it may have. */
static enum err rd_replay(struct rd *r, struct infer_req *req) {
    if ((req->replay = calloc(1, sizeof(*req->replay))) == NULL) return ERR_NO_MEMORY;
    enum err e = transcript_unpack(r, req->replay, NULL);
    if (e != ERR_OK) return e;
    const struct transcript *t = req->replay;
    if (t->n_parts != 1 || t->n_choices != (uint32_t)req->sampling.n_choices) return ERR_BAD_FRAME;
    for (uint32_t i = 0; i < t->n_choices; i++)
        if (t->choices[i].n_ids > (uint32_t)req->sampling.new_tokens_max) return ERR_BAD_FRAME;
    return ERR_OK;
}

static enum err req_body_unpack(struct rd *r, struct infer_req *req) {
    uint16_t version;
    uint64_t bits;
    uint8_t api, tools;
    const uint8_t *hash;
    enum err e;
    if (!rd_u16(r, &version) || version != INFER_REQ_VERSION || !rd_u64(r, &bits) ||
        (bits >> N_BITS) != 0)
        return ERR_BAD_FRAME;
    for (int i = 0; i < N_REQ_BOOLS; i++) *req_bool(req, i) = (bits >> i & 1) != 0;
    for (int i = 0; i < N_REQ_STRS; i++)
        if ((bits >> (N_REQ_BOOLS + i) & 1) != 0 &&
            (e = rd_dup(r, req_str(req, i), req_strs[i].bytes_max)) != ERR_OK)
            return e;
    if (!rd_u32(r, &req->epoch) || !rd_u32(r, &req->part) || !rd_u32(r, &req->n_parts) ||
        !rd_i32(r, &req->n) || !rd_u8(r, &api) || !rd_u8(r, &tools))
        return ERR_BAD_FRAME;
    if (req->n_parts < 1 || req->n_parts > PARTS_MAX || req->part >= req->n_parts ||
        tools >= TOOLS_COUNT)
        return ERR_BAD_FRAME;
    req->tools = (enum tool_format)tools;
    if (req->adapter != NULL) {
        if (!rd_bytes(r, &hash, sizeof(req->adapter_hash))) return ERR_BAD_FRAME;
        memcpy(req->adapter_hash, hash, sizeof(req->adapter_hash));
    }
    if (!rd_i64(r, &req->created_unix_s) || !rd_i32(r, &req->priority) ||
        !rd_i32(r, &req->timeout_s))
        return ERR_BAD_FRAME;
    if (api >= API_COUNT || req->priority < 1 || req->priority > PRIORITY_LAST ||
        req->timeout_s < 0 || req->timeout_s > TIMEOUT_S_MAX)
        return ERR_BAD_FRAME;
    req->api = (enum api)api;
    if ((bits >> TEXT_BIT & 1) != 0 && (e = rd_text(r, req)) != ERR_OK) return e;
    if ((e = rd_ids(r, req)) != ERR_OK) return e;
    if ((e = rd_stops(r, req)) != ERR_OK) return e;
    if ((e = sampling_unpack(r, &req->sampling, (bits >> ALLOWED_BIT & 1) != 0)) != ERR_OK)
        return e;
    if (req->n < 1 || req->n > req->sampling.n_choices) return ERR_BAD_FRAME;
    if (!rd_u64(r, &req->prefill_us) || !rd_u64(r, &req->queue_wait_us) ||
        !rd_u32(r, &req->prefill_batch) || !rd_u32(r, &req->cached_tokens))
        return ERR_BAD_FRAME;
    if (req->cached_tokens > PROMPT_TOKENS_MAX) return ERR_BAD_FRAME;
    return (bits >> REPLAY_BIT & 1) != 0 ? rd_replay(r, req) : ERR_OK;
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

struct infer_req *infer_req_clone(const struct infer_req *req) {
    struct infer_req *copy = NULL;
    struct wr w = WR_INIT;
    infer_req_pack(&w, req);
    struct rd r = rd_of(w.data, w.len);
    if (!w.failed && infer_req_unpack(&r, &copy) == ERR_OK) copy->arrival_us = req->arrival_us;
    wr_free(&w);
    return copy;
}

/* ---- the token */

void token_event_pack(struct wr *w, const struct token_event *ev) {
    wr_u8(w, TOKEN_EVENT_VERSION);
    wr_i32(w, ev->id);
    wr_i32(w, ev->choice);
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
        !rd_i32(r, &ev->choice) || !rd_i32(r, &ev->index) || !rd_u8(r, &finish) ||
        !rd_f32(r, &ev->logprob) || !rd_u32(r, &ev->batch_size) || !rd_u32(r, &ev->queue_wait_us) ||
        !rd_u32(r, &ev->step_us) || !rd_u8(r, &n_top))
        return ERR_BAD_FRAME;
    if (ev->id < 0 || ev->index < 0 || ev->choice < 0 || ev->choice >= 2 * CHOICES_MAX ||
        finish > FINISH_ERROR || n_top > TOP_LOGPROBS_MAX || !in_f32(ev->logprob, -FLT_MAX, 0.0f))
        return ERR_BAD_FRAME;
    ev->finish = (enum finish)finish;
    ev->n_top = n_top;
    for (int32_t i = 0; i < ev->n_top; i++)
        if (!rd_i32(r, &ev->top[i].id) || !rd_f32(r, &ev->top[i].logprob) || ev->top[i].id < 0 ||
            !in_f32(ev->top[i].logprob, -FLT_MAX, 0.0f))
            return ERR_BAD_FRAME;
    return ERR_OK;
}
