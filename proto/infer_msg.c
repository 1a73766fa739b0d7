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
#include "proto/infer_fields.h"
#include "proto/transcript.h"

enum { INFER_REQ_VERSION = 12, TOKEN_EVENT_VERSION = 3 };

/* Wide enough for a ban by bias, far from where sums of logits overflow. */
static const float BIAS_ABS_MAX = 1e9f;

/* Bits of lists that may be absent, which is not the same as empty. */
enum { TEXT_BIT = 1, ALLOWED_BIT = 2, REPLAY_BIT = 4, LIST_BITS = 8 };

static char **str_at(struct infer_req *req, const struct infer_field *f) {
    return (char **)((char *)req + f->at);
}

/* ---- life */

struct infer_req *infer_req_create(void) {
    struct infer_req *req = malloc(sizeof(*req));
    if (req != NULL) *req = infer_req_default;
    return req;
}

static void req_free(struct infer_req *req) {
    for (const struct infer_field *f = infer_fields; f->name != NULL; f++)
        if (f->type == INFER_STR) free(*str_at(req, f));
    free(req->answer.text);
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

static void field_pack(struct wr *w, const struct infer_field *f, const void *at) {
    switch (f->type) {
    case INFER_BOOL: wr_u8(w, *(const bool *)at); break;
    case INFER_ENUM: wr_u8(w, (uint8_t) * (const unsigned *)at); break;
    case INFER_I32: wr_i32(w, *(const int32_t *)at); break;
    case INFER_U32: wr_u32(w, *(const uint32_t *)at); break;
    case INFER_I64: wr_i64(w, *(const int64_t *)at); break;
    case INFER_U64: wr_u64(w, *(const uint64_t *)at); break;
    case INFER_F32: wr_f32(w, *(const float *)at); break;
    case INFER_STR: {
        const char *s = *(const char *const *)at;
        wr_u8(w, s != NULL);
        if (s != NULL) wr_cstr(w, s);
    }
    }
}

static void i32s_pack(struct wr *w, const int32_t *ids, size_t n) {
    wr_u32(w, (uint32_t)n);
    for (size_t i = 0; i < n; i++) wr_i32(w, ids[i]);
}

static void sampling_lists_pack(struct wr *w, const struct sampling *s) {
    i32s_pack(w, s->stop_token_ids, s->n_stop_token_ids);
    wr_u32(w, (uint32_t)s->n_logit_bias);
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        wr_i32(w, s->logit_bias[i].id);
        wr_f32(w, s->logit_bias[i].bias);
    }
    i32s_pack(w, s->allowed_ids, s->n_allowed_ids);
    i32s_pack(w, s->bad_words, s->n_bad_words);
}

void infer_req_pack(struct wr *w, const struct infer_req *req) {
    wr_u16(w, INFER_REQ_VERSION);
    wr_u8(w, (uint8_t)((req->answer.text != NULL ? TEXT_BIT : 0) |
                       (req->sampling.allowed_ids != NULL ? ALLOWED_BIT : 0) |
                       (req->replay != NULL ? REPLAY_BIT : 0)));
    for (const struct infer_field *f = infer_fields; f->name != NULL; f++)
        field_pack(w, f, (const char *)req + f->at);
    if (req->head.adapter != NULL)
        wr_bytes(w, req->head.adapter_hash, sizeof(req->head.adapter_hash));
    if (req->answer.text != NULL) wr_str(w, req->answer.text, req->answer.text_len);
    wr_u32(w, (uint32_t)req->n_prompt);
    i32s_pack(w, req->ids, req->n_ids);
    wr_u32(w, (uint32_t)req->n_stop);
    for (size_t i = 0; i < req->n_stop; i++) wr_cstr(w, req->stop[i]);
    sampling_lists_pack(w, &req->sampling);
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
    req->answer.text = malloc(n + 1);
    if (req->answer.text == NULL) return ERR_NO_MEMORY;
    if (n > 0) memcpy(req->answer.text, s, n);
    req->answer.text[n] = 0;
    req->answer.text_len = n;
    return ERR_OK;
}

static enum err rd_ids(struct rd *r, struct infer_req *req) {
    uint32_t n_prompt;
    size_t n_ids;
    if (!rd_u32(r, &n_prompt) || !rd_count(r, &n_ids, PROMPT_TOKENS_MAX, sizeof(int32_t)) ||
        n_prompt > n_ids)
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

static enum err biases_unpack(struct rd *r, struct sampling *s) {
    size_t n;
    if (!rd_count(r, &n, LOGIT_BIAS_MAX, sizeof(int32_t) + sizeof(float))) return ERR_BAD_FRAME;
    if (n == 0) return ERR_OK;
    s->logit_bias = calloc(n, sizeof(*s->logit_bias));
    if (s->logit_bias == NULL) return ERR_NO_MEMORY;
    s->n_logit_bias = n;
    for (size_t i = 0; i < n; i++)
        if (!rd_i32(r, &s->logit_bias[i].id) || !rd_f32(r, &s->logit_bias[i].bias) ||
            !in_f32(s->logit_bias[i].bias, -BIAS_ABS_MAX, BIAS_ABS_MAX))
            return ERR_BAD_FRAME;
    return ERR_OK;
}

static enum err sampling_lists_unpack(struct rd *r, struct sampling *s, bool allowed) {
    enum err e =
        rd_i32s(r, &s->stop_token_ids, &s->n_stop_token_ids, STOP_TOKEN_IDS_MAX, false, INT32_MIN);
    if (e == ERR_OK) e = biases_unpack(r, s);
    if (e == ERR_OK)
        e = rd_i32s(r, &s->allowed_ids, &s->n_allowed_ids, allowed ? ALLOWED_IDS_MAX : 0, allowed,
                    0);
    if (e == ERR_OK) e = rd_i32s(r, &s->bad_words, &s->n_bad_words, BAD_WORDS_IDS_MAX, false, 0);
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
    /* ids behind the prompt are those of the record, or there are none */
    const struct transcript_choice *c = &t->choices[0];
    const size_t n = req->n_ids - req->n_prompt;
    if (n > 0 && (t->n_choices != 1 || c->finish != FINISH_NONE || c->n_ids != n ||
                  memcmp(c->ids, req->ids + req->n_prompt, n * sizeof(*c->ids)) != 0))
        return ERR_BAD_FRAME;
    return ERR_OK;
}

static bool rd_enum(struct rd *r, unsigned *v) {
    uint8_t byte;
    if (!rd_u8(r, &byte)) return false;
    *v = byte;
    return true;
}

static bool rd_flag(struct rd *r, bool *v) {
    uint8_t byte;
    if (!rd_u8(r, &byte) || byte > 1) return false;
    *v = byte != 0;
    return true;
}

static enum err field_unpack(struct rd *r, const struct infer_field *f, void *at) {
    bool good = false, some;
    switch (f->type) {
    case INFER_BOOL: good = rd_flag(r, at); break;
    case INFER_ENUM: good = rd_enum(r, at); break;
    case INFER_I32: good = rd_i32(r, at); break;
    case INFER_U32: good = rd_u32(r, at); break;
    case INFER_I64: good = rd_i64(r, at); break;
    case INFER_U64: good = rd_u64(r, at); break;
    case INFER_F32: good = rd_f32(r, at); break;
    case INFER_STR:
        if (!rd_flag(r, &some)) return ERR_BAD_FRAME;
        return some ? rd_dup(r, at, (size_t)f->hi) : ERR_OK;
    }
    return good ? ERR_OK : ERR_BAD_FRAME;
}

static enum err req_body_unpack(struct rd *r, struct infer_req *req) {
    uint16_t version;
    uint8_t bits;
    enum err e = ERR_OK;
    if (!rd_u16(r, &version) || version != INFER_REQ_VERSION || !rd_u8(r, &bits) ||
        bits >= LIST_BITS)
        return ERR_BAD_FRAME;
    for (const struct infer_field *f = infer_fields; e == ERR_OK && f->name != NULL; f++)
        e = field_unpack(r, f, (char *)req + f->at);
    if (e != ERR_OK) return e;
    if (req->head.adapter != NULL &&
        !rd_copy(r, req->head.adapter_hash, sizeof(req->head.adapter_hash)))
        return ERR_BAD_FRAME;
    if ((bits & TEXT_BIT) != 0 && (e = rd_text(r, req)) != ERR_OK) return e;
    if ((e = rd_ids(r, req)) != ERR_OK) return e;
    if ((e = rd_stops(r, req)) != ERR_OK) return e;
    if ((e = sampling_lists_unpack(r, &req->sampling, (bits & ALLOWED_BIT) != 0)) != ERR_OK)
        return e;
    if (infer_fields_check(req, NULL) != ERR_OK) return ERR_BAD_FRAME;
    return (bits & REPLAY_BIT) != 0 ? rd_replay(r, req) : ERR_OK;
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
    if (!w.failed && infer_req_unpack(&r, &copy) == ERR_OK)
        copy->head.arrival_us = req->head.arrival_us;
    wr_free(&w);
    return copy;
}

enum err infer_req_resume(struct infer_req *req, uint32_t n_ids_max) {
    const struct transcript *t = req->replay;
    if (t == NULL || t->n_choices != 1 || req->n_ids > req->n_prompt) return ERR_OK;
    const struct transcript_choice *c = &t->choices[0];
    if (c->n_ids == 0 || c->finish != FINISH_NONE ||
        req->n_ids + c->n_ids > PROMPT_TOKENS_MAX / 2 || /* twice in an offer: here and as sent */
        req->n_ids + c->n_ids > n_ids_max)
        return ERR_OK;
    int32_t *grown = realloc(req->ids, (req->n_ids + c->n_ids) * sizeof(*grown));
    if (grown == NULL) return ERR_NO_MEMORY;
    memcpy(grown + req->n_ids, c->ids, c->n_ids * sizeof(*grown));
    req->ids = grown;
    req->n_ids += c->n_ids;
    return ERR_OK;
}

bool infer_req_is_resumed(const struct infer_req *req) {
    return req->replay != NULL && req->n_ids > req->n_prompt;
}

/* ---- the token */

void token_event_pack(struct wr *w, const struct token_event *ev) {
    wr_u8(w, TOKEN_EVENT_VERSION);
    wr_i32(w, ev->id);
    wr_i32(w, ev->choice);
    wr_i32(w, ev->index);
    wr_u8(w, (uint8_t)ev->finish);
    wr_f32(w, ev->logprob);
    wr_i32(w, ev->rank);
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
        !rd_f32(r, &ev->logprob) || !rd_i32(r, &ev->rank) || !rd_u32(r, &ev->batch_size) ||
        !rd_u32(r, &ev->queue_wait_us) || !rd_u32(r, &ev->step_us) || !rd_u8(r, &n_top))
        return ERR_BAD_FRAME;
    if (ev->id < 0 || ev->index < 0 || ev->choice < 0 || ev->choice >= 2 * CHOICES_MAX ||
        ev->rank < 0 || finish > FINISH_ERROR || n_top > TOP_LOGPROBS_MAX ||
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
