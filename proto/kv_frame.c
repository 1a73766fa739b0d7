/* kv_frame: heads and payloads of the KV link. Every count from the wire is checked against its
 * limit and against the bytes that are left before memory is taken for it; a payload with left-over
 * bytes is refused. */
#include "proto/kv_frame.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/crc32c.h"

enum { KV_KEY_BYTES_MIN = 4 + 1 + 4 + 4, KV_RANGE_BYTES = 12 };
enum { HEAD_TYPE_AT = 5, HEAD_LENGTH_AT = 8, HEAD_SEQ_AT = 12 };

static const char *const type_names[KV_TYPE_COUNT] = {
    [KV_NONE] = "none",
    [KV_LINK_ASK] = "link-ask",
    [KV_LINK_ANSWER] = "link-answer",
    [KV_HELLO] = "hello",
    [KV_OK] = "ok",
    [KV_REFUSE_LINK] = "refuse-link",
    [KV_HEARTBEAT] = "heartbeat",
    [KV_OFFER] = "offer",
    [KV_GRANT] = "grant",
    [KV_BUSY] = "busy",
    [KV_REFUSE] = "refuse",
    [KV_DATA] = "data",
    [KV_CREDIT] = "credit",
    [KV_COMMIT] = "commit",
    [KV_ACK] = "ack",
    [KV_PULL] = "pull",
    [KV_RELEASE] = "release",
    [KV_CANCEL] = "cancel",
    [KV_TLS] = "tls",
    [KV_FETCH] = "fetch",
    [KV_LEND] = "lend",
    [KV_PROBE] = "probe",
    [KV_ECHO] = "echo",
};

const char *kv_type_name(enum kv_type t) {
    return (unsigned)t < KV_TYPE_COUNT ? type_names[t] : "?";
}

static const char *const code_texts[KV_LINK_CODE_COUNT] = {
    [KV_LINK_OK] = "ok",
    [KV_LINK_VERSION] = "protocol version differs",
    [KV_LINK_MODEL] = "the model differs",
    [KV_LINK_SHARDS] = "shape of the KV differs",
    [KV_LINK_DTYPE] = "type of KV or weights differs",
    [KV_LINK_BLOCK] = "block size differs",
    [KV_LINK_TOKENIZER] = "tokenizer hash differs",
    [KV_LINK_ROLE] = "roles do not fit",
    [KV_LINK_NOT_WANTED] = "not a wanted peer",
    [KV_LINK_TICKET] = "wrong ticket",
    [KV_LINK_TIMEOUT] = "no sign of life",
    [KV_LINK_UNREACHABLE] = "unreachable",
    [KV_LINK_DAMAGED] = "frames lost or damaged",
    [KV_LINK_SEAL] = "one side seals the link, the other does not",
    [KV_LINK_TLS] = "TLS handshake failed",
    [KV_LINK_ARITHMETIC] = "arithmetic of the kernels differs",
};

const char *kv_link_code_text(enum kv_link_code c) {
    return (unsigned)c < KV_LINK_CODE_COUNT ? code_texts[c] : "unknown code";
}

/* ---- frames */

static void put_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

size_t kv_frame_bytes(const void *p, size_t n, size_t n_max) {
    struct rd r = rd_of(p, n);
    uint32_t magic = 0, length = 0;
    uint8_t version, type, flags, tag_bytes = 0;
    if (n < KV_HEAD_BYTES) return 0;
    rd_u32(&r, &magic);
    rd_u8(&r, &version);
    rd_u8(&r, &type);
    rd_u8(&r, &flags);
    rd_u8(&r, &tag_bytes);
    rd_u32(&r, &length);
    if (magic != KV_MAGIC || length > KV_FRAME_BYTES_MAX) return SIZE_MAX;
    size_t n_frame = KV_HEAD_BYTES + (size_t)length + tag_bytes;
    return n_frame <= n_max ? n_frame : SIZE_MAX;
}

enum err kv_frame_head(struct kv_frame *f, const void *p, size_t n) {
    *f = (struct kv_frame){0};
    struct rd r = rd_of(p, n);
    uint32_t magic = 0, length = 0;
    uint8_t type = 0, flags = 0, tag_bytes = 0;
    if (!rd_u32(&r, &magic) || magic != KV_MAGIC || !rd_u8(&r, &f->version)) return ERR_BAD_FRAME;
    if (f->version != KV_VERSION) return ERR_MISMATCH;
    rd_u8(&r, &type);
    rd_u8(&r, &flags);
    rd_u8(&r, &tag_bytes);
    rd_u32(&r, &length);
    if (!rd_u32(&r, &f->seq)) return ERR_BAD_FRAME;
    if (type == KV_NONE || type >= KV_TYPE_COUNT) return ERR_BAD_FRAME;
    f->type = type;
    if ((flags & ~KV_FLAG_SEALED) != 0) return ERR_BAD_FRAME;
    f->sealed = flags != 0;
    if (tag_bytes != (f->sealed ? KV_SEAL_BYTES : KV_CRC_BYTES)) return ERR_BAD_FRAME;
    if (length > KV_FRAME_BYTES_MAX || rd_left(&r) != (size_t)length + tag_bytes) {
        return ERR_BAD_FRAME;
    }
    f->payload = rd_of((const uint8_t *)p + KV_HEAD_BYTES, length);
    return ERR_OK;
}

enum err kv_frame_open(struct kv_frame *f, const void *p, size_t n) {
    enum err e = kv_frame_head(f, p, n);
    if (e != ERR_OK) return e;
    if (f->sealed) return ERR_BAD_FRAME;
    size_t checked = n - KV_CRC_BYTES;
    struct rd r = rd_of((const uint8_t *)p + checked, KV_CRC_BYTES);
    uint32_t crc = 0;
    rd_u32(&r, &crc);
    if (crc != crc32c(0, p, checked)) {
        f->crc_failed = true;
        return ERR_BAD_FRAME;
    }
    return ERR_OK;
}

void kv_frame_begin(struct wr *w, enum kv_type type) {
    wr_clear(w);
    wr_u32(w, KV_MAGIC);
    wr_u8(w, KV_VERSION);
    wr_u8(w, (uint8_t)type);
    wr_u8(w, 0);
    wr_u8(w, KV_CRC_BYTES);
    wr_u32(w, 0);
    wr_u32(w, 0);
}

void kv_frame_end(struct wr *w, uint32_t seq) {
    if (w->failed || w->len < KV_HEAD_BYTES || w->len - KV_HEAD_BYTES > KV_FRAME_BYTES_MAX) {
        w->failed = true;
        return;
    }
    wr_patch_u32(w, HEAD_LENGTH_AT, (uint32_t)(w->len - KV_HEAD_BYTES));
    wr_patch_u32(w, HEAD_SEQ_AT, seq);
    wr_u32(w, crc32c(0, w->data, w->len));
}

void kv_frame_reseal(uint8_t *frame, size_t n, uint32_t seq) {
    put_u32(frame + HEAD_SEQ_AT, seq);
    put_u32(frame + n - KV_CRC_BYTES, crc32c(0, frame, n - KV_CRC_BYTES));
}

static enum err done(const struct rd *r) {
    return rd_done(r) ? ERR_OK : ERR_BAD_FRAME;
}

/* ---- keys */

void kv_key_set(struct kv_key *k, const char *req_id, uint32_t epoch, uint32_t part) {
    snprintf(k->req_id, sizeof(k->req_id), "%s", req_id);
    k->epoch = epoch;
    k->part = part;
}

bool kv_key_equal(const struct kv_key *a, const struct kv_key *b) {
    return a->epoch == b->epoch && a->part == b->part && strcmp(a->req_id, b->req_id) == 0;
}

void kv_key_pack(struct wr *w, const struct kv_key *k) {
    wr_cstr(w, k->req_id);
    wr_u32(w, k->epoch);
    wr_u32(w, k->part);
}

enum err kv_key_unpack(struct rd *r, struct kv_key *k) {
    /* Marks the cursor too, so that a message's reader may chain its reads and ask once. */
    if (!rd_cstr(r, k->req_id, sizeof(k->req_id)) || k->req_id[0] == '\0') r->failed = true;
    rd_u32(r, &k->epoch);
    if (!rd_u32(r, &k->part) || k->part >= PARTS_MAX) r->failed = true;
    return r->failed ? ERR_BAD_FRAME : ERR_OK;
}

enum err kv_key_only_unpack(struct rd *r, struct kv_key *k) {
    return kv_key_unpack(r, k) == ERR_OK ? done(r) : ERR_BAD_FRAME;
}

/* ---- the link itself */

void kv_link_ask_pack(struct wr *w, const struct kv_link_ask *m) {
    kv_frame_begin(w, KV_LINK_ASK);
    wr_u32(w, m->from_id);
    wr_u32(w, m->to_id);
    wr_u8(w, m->sealed);
}

enum err kv_link_ask_unpack(struct rd *r, struct kv_link_ask *m) {
    rd_u32(r, &m->from_id);
    rd_u32(r, &m->to_id);
    uint8_t sealed = 0;
    rd_u8(r, &sealed);
    if (sealed > 1) return ERR_BAD_FRAME;
    m->sealed = sealed;
    return done(r);
}

void kv_link_answer_pack(struct wr *w, const struct kv_link_answer *m) {
    kv_frame_begin(w, KV_LINK_ANSWER);
    wr_u16(w, m->code);
    wr_cstr(w, m->text);
    wr_u16(w, m->port);
    wr_u64(w, m->ticket);
}

enum err kv_link_answer_unpack(struct rd *r, struct kv_link_answer *m) {
    rd_u16(r, &m->code);
    rd_cstr(r, m->text, sizeof(m->text));
    rd_u16(r, &m->port);
    rd_u64(r, &m->ticket);
    return done(r);
}

void kv_tls_pack(struct wr *w, const void *bytes, size_t n) {
    kv_frame_begin(w, KV_TLS);
    if (n > KV_TLS_BYTES_MAX) w->failed = true;
    wr_bytes(w, bytes, n);
}

enum err kv_tls_unpack(struct rd *r, const uint8_t **bytes, size_t *n) {
    *n = rd_left(r);
    if (*n == 0 || *n > KV_TLS_BYTES_MAX) return ERR_BAD_FRAME;
    rd_bytes(r, bytes, *n);
    return done(r);
}

void kv_hello_pack(struct wr *w, const struct kv_hello *m) {
    kv_frame_begin(w, KV_HELLO);
    wr_u32(w, m->protocol); /* first: a later version can still be told apart and named */
    wr_u32(w, m->instance_id);
    wr_u8(w, m->role);
    wr_u8(w, m->may_differ);
    wr_bytes(w, m->conf_hash, sizeof(m->conf_hash));
    wr_bytes(w, m->model_hash, sizeof(m->model_hash));
    wr_bytes(w, m->tokenizer_hash, sizeof(m->tokenizer_hash));
    wr_u32(w, m->n_layers);
    wr_u32(w, m->n_kv_heads);
    wr_u32(w, m->head_dim);
    wr_u32(w, m->block_tokens);
    wr_u32(w, m->n_shards);
    wr_cstr(w, m->kv_dtype);
    wr_cstr(w, m->weight_dtype);
    wr_cstr(w, m->arithmetic);
    wr_u64(w, m->boot);
    wr_u64(w, m->ticket);
    wr_u64(w, m->window_bytes);
}

enum err kv_hello_unpack(struct rd *r, struct kv_hello *m) {
    rd_u32(r, &m->protocol);
    rd_u32(r, &m->instance_id);
    rd_u8(r, &m->role);
    rd_u8(r, &m->may_differ);
    rd_copy(r, m->conf_hash, sizeof(m->conf_hash));
    rd_copy(r, m->model_hash, sizeof(m->model_hash));
    rd_copy(r, m->tokenizer_hash, sizeof(m->tokenizer_hash));
    rd_u32(r, &m->n_layers);
    rd_u32(r, &m->n_kv_heads);
    rd_u32(r, &m->head_dim);
    rd_u32(r, &m->block_tokens);
    rd_u32(r, &m->n_shards);
    rd_cstr(r, m->kv_dtype, sizeof(m->kv_dtype));
    rd_cstr(r, m->weight_dtype, sizeof(m->weight_dtype));
    rd_cstr(r, m->arithmetic, sizeof(m->arithmetic));
    rd_u64(r, &m->boot);
    rd_u64(r, &m->ticket);
    rd_u64(r, &m->window_bytes);
    return done(r);
}

void kv_ok_pack(struct wr *w) {
    kv_frame_begin(w, KV_OK);
}

void kv_refuse_link_pack(struct wr *w, const struct kv_refuse_link *m) {
    kv_frame_begin(w, KV_REFUSE_LINK);
    wr_u16(w, m->code);
    wr_cstr(w, m->text);
}

enum err kv_refuse_link_unpack(struct rd *r, struct kv_refuse_link *m) {
    rd_u16(r, &m->code);
    rd_cstr(r, m->text, sizeof(m->text));
    return done(r);
}

void kv_heartbeat_pack(struct wr *w, const struct kv_heartbeat *m) {
    kv_frame_begin(w, KV_HEARTBEAT);
    wr_u32(w, m->instance_id);
    wr_u64(w, m->free_blocks);
    wr_u32(w, m->queue_len);
    wr_u32(w, (uint32_t)m->n_wanted);
    for (size_t i = 0; i < m->n_wanted; i++) kv_key_pack(w, &m->wanted[i]);
}

enum err kv_heartbeat_unpack(struct rd *r, struct kv_heartbeat *m) {
    *m = (struct kv_heartbeat){0};
    uint32_t n = 0;
    rd_u32(r, &m->instance_id);
    rd_u64(r, &m->free_blocks);
    rd_u32(r, &m->queue_len);
    if (!rd_u32(r, &n) || n > KV_WANTED_MAX || n > rd_left(r) / KV_KEY_BYTES_MIN) {
        return ERR_BAD_FRAME;
    }
    if (n > 0 && (m->wanted = calloc(n, sizeof(*m->wanted))) == NULL) return ERR_NO_MEMORY;
    for (; m->n_wanted < n; m->n_wanted++) {
        if (kv_key_unpack(r, &m->wanted[m->n_wanted]) != ERR_OK) break;
    }
    if (m->n_wanted != n || !rd_done(r)) {
        kv_heartbeat_free(m);
        return ERR_BAD_FRAME;
    }
    return ERR_OK;
}

void kv_heartbeat_free(struct kv_heartbeat *m) {
    free(m->wanted);
    m->wanted = NULL;
    m->n_wanted = 0;
}

/* ---- one request */

void kv_offer_pack(struct wr *w, const struct kv_key *key, uint32_t n_blocks, uint32_t lease_ms,
                   const struct infer_req *req) {
    kv_frame_begin(w, KV_OFFER);
    kv_key_pack(w, key);
    wr_u32(w, n_blocks);
    wr_u32(w, lease_ms);
    infer_req_pack(w, req);
}

enum err kv_offer_unpack(struct rd *r, struct kv_offer *m) {
    if (kv_key_unpack(r, &m->key) != ERR_OK) return ERR_BAD_FRAME;
    rd_u32(r, &m->n_blocks);
    if (!rd_u32(r, &m->lease_ms) || m->n_blocks == 0 || m->n_blocks > PROMPT_TOKENS_MAX) {
        return ERR_BAD_FRAME;
    }
    m->req_bytes = rd_left(r);
    return rd_bytes(r, &m->req, m->req_bytes) ? ERR_OK : ERR_BAD_FRAME;
}

void kv_fetch_pack(struct wr *w, const struct kv_key *key, uint32_t n_blocks, uint32_t n_held,
                   const struct infer_req *req) {
    kv_frame_begin(w, KV_FETCH);
    kv_key_pack(w, key);
    wr_u32(w, n_blocks);
    wr_u32(w, n_held);
    infer_req_pack(w, req);
}

enum err kv_fetch_unpack(struct rd *r, struct kv_fetch *m) {
    if (kv_key_unpack(r, &m->key) != ERR_OK) return ERR_BAD_FRAME;
    rd_u32(r, &m->n_blocks);
    if (!rd_u32(r, &m->n_held) || m->n_blocks > PROMPT_TOKENS_MAX || m->n_held >= m->n_blocks)
        return ERR_BAD_FRAME;
    m->req_bytes = rd_left(r);
    return rd_bytes(r, &m->req, m->req_bytes) ? ERR_OK : ERR_BAD_FRAME;
}

void kv_lend_pack(struct wr *w, const struct kv_lend *m) {
    kv_frame_begin(w, KV_LEND);
    kv_key_pack(w, &m->key);
    wr_u16(w, m->code);
    wr_u32(w, m->n_blocks);
    wr_cstr(w, m->text);
}

enum err kv_lend_unpack(struct rd *r, struct kv_lend *m) {
    kv_key_unpack(r, &m->key);
    rd_u16(r, &m->code);
    rd_u32(r, &m->n_blocks);
    rd_cstr(r, m->text, sizeof(m->text));
    return done(r);
}

void kv_grant_pack(struct wr *w, const struct kv_grant *m) {
    kv_frame_begin(w, KV_GRANT);
    kv_key_pack(w, &m->key);
    wr_u32(w, m->n_held);
}

enum err kv_grant_unpack(struct rd *r, struct kv_grant *m) {
    kv_key_unpack(r, &m->key);
    rd_u32(r, &m->n_held);
    return done(r);
}

void kv_busy_pack(struct wr *w, const struct kv_busy *m) {
    kv_frame_begin(w, KV_BUSY);
    kv_key_pack(w, &m->key);
    wr_u32(w, m->retry_after_ms);
}

enum err kv_busy_unpack(struct rd *r, struct kv_busy *m) {
    kv_key_unpack(r, &m->key);
    rd_u32(r, &m->retry_after_ms);
    return done(r);
}

void kv_refuse_pack(struct wr *w, const struct kv_refuse *m) {
    kv_frame_begin(w, KV_REFUSE);
    kv_key_pack(w, &m->key);
    wr_u16(w, m->code);
    wr_cstr(w, m->text);
}

enum err kv_refuse_unpack(struct rd *r, struct kv_refuse *m) {
    kv_key_unpack(r, &m->key);
    rd_u16(r, &m->code);
    rd_cstr(r, m->text, sizeof(m->text));
    return done(r);
}

size_t kv_data_bytes(const struct kv_key *k, size_t n_bytes) {
    return KV_HEAD_BYTES + 4 + strlen(k->req_id) + 8 + 12 + n_bytes + KV_CRC_BYTES;
}

uint8_t *kv_data_begin(uint8_t *frame, const struct kv_key *k, uint32_t layer, uint32_t first,
                       uint32_t n, size_t n_bytes) {
    size_t id_bytes = strlen(k->req_id);
    uint8_t *p = frame;
    put_u32(p, KV_MAGIC);
    p[4] = KV_VERSION;
    p[HEAD_TYPE_AT] = KV_DATA;
    p[6] = 0;
    p[7] = KV_CRC_BYTES;
    put_u32(p + HEAD_LENGTH_AT,
            (uint32_t)(kv_data_bytes(k, n_bytes) - KV_HEAD_BYTES - KV_CRC_BYTES));
    put_u32(p + HEAD_SEQ_AT, 0);
    p += KV_HEAD_BYTES;
    put_u32(p, (uint32_t)id_bytes);
    memcpy(p + 4, k->req_id, id_bytes);
    p += 4 + id_bytes;
    put_u32(p, k->epoch);
    put_u32(p + 4, k->part);
    put_u32(p + 8, layer);
    put_u32(p + 12, first);
    put_u32(p + 16, n);
    return p + 20;
}

void kv_data_end(uint8_t *frame, size_t frame_bytes, uint32_t seq) {
    kv_frame_reseal(frame, frame_bytes, seq);
}

enum err kv_data_unpack(struct rd *r, struct kv_data *m) {
    kv_key_unpack(r, &m->key);
    rd_u32(r, &m->layer);
    rd_u32(r, &m->first);
    if (!rd_u32(r, &m->n) || m->n == 0 || m->first > PROMPT_TOKENS_MAX ||
        m->n > PROMPT_TOKENS_MAX - m->first || m->layer >= KV_LAYERS_MAX) {
        return ERR_BAD_FRAME;
    }
    m->n_bytes = rd_left(r);
    if (m->n_bytes == 0 || !rd_bytes(r, &m->bytes, m->n_bytes)) return ERR_BAD_FRAME;
    return ERR_OK;
}

void kv_credit_pack(struct wr *w, uint64_t bytes_taken) {
    kv_frame_begin(w, KV_CREDIT);
    wr_u64(w, bytes_taken);
}

enum err kv_credit_unpack(struct rd *r, uint64_t *bytes_taken) {
    rd_u64(r, bytes_taken);
    return done(r);
}

void kv_probe_pack(struct wr *w, const struct kv_probe *m) {
    static const uint8_t filler[4096];
    kv_frame_begin(w, KV_PROBE);
    wr_u32(w, m->number);
    wr_u32(w, m->n_bytes);
    for (uint32_t n = m->n_bytes, part; n > 0; n -= part) {
        part = n < sizeof(filler) ? n : (uint32_t)sizeof(filler);
        wr_bytes(w, filler, part);
    }
}

enum err kv_probe_unpack(struct rd *r, struct kv_probe *m) {
    if (!rd_u32(r, &m->number) || !rd_u32(r, &m->n_bytes) || m->n_bytes > KV_PROBE_BYTES_MAX ||
        !rd_skip(r, m->n_bytes))
        return ERR_BAD_FRAME;
    return done(r);
}

void kv_echo_pack(struct wr *w, uint32_t number) {
    kv_frame_begin(w, KV_ECHO);
    wr_u32(w, number);
}

enum err kv_echo_unpack(struct rd *r, uint32_t *number) {
    rd_u32(r, number);
    return done(r);
}

void kv_commit_pack(struct wr *w, const struct kv_commit *m) {
    kv_frame_begin(w, KV_COMMIT);
    kv_key_pack(w, &m->key);
    wr_u32(w, m->n_blocks);
    wr_u32(w, m->n_layers);
    wr_u64(w, m->total_bytes);
    wr_u64(w, m->prefill_us);
    wr_u64(w, m->queue_wait_us);
    wr_u32(w, m->prefill_batch);
    wr_u32(w, m->cached_tokens);
    wr_u32(w, m->n_tokens);
    for (uint32_t i = 0; i < m->n_tokens; i++) token_event_pack(w, &m->tokens[i]);
    wr_u32(w, m->n_prompt_logprobs);
    wr_u8(w, (uint8_t)m->n_prompt_tops);
    for (uint32_t i = 0; i < m->n_prompt_logprobs; i++) {
        wr_f32(w, m->prompt_logprobs[i]);
        wr_i32(w, m->prompt_ranks != NULL ? m->prompt_ranks[i] : 0);
        for (uint32_t j = 0; j < m->n_prompt_tops; j++) {
            const struct top_logprob *t = &m->prompt_tops[(size_t)i * m->n_prompt_tops + j];
            wr_i32(w, t->id);
            wr_f32(w, t->logprob);
        }
    }
}

size_t kv_commit_bytes_max(size_t n_choices, size_t n_prompt_logprobs, size_t n_prompt_tops) {
    size_t token = 64 + 8 * TOP_LOGPROBS_MAX;
    return 256 + REQ_ID_BYTES_MAX + n_choices * token + n_prompt_logprobs * (8 + 8 * n_prompt_tops);
}

static enum err read_tokens(struct rd *r, struct kv_commit *m) {
    uint32_t n = 0;
    if (!rd_u32(r, &n) || n == 0 || n > 2 * CHOICES_MAX) return ERR_BAD_FRAME;
    if ((m->tokens = calloc(n, sizeof(*m->tokens))) == NULL) return ERR_NO_MEMORY;
    m->n_tokens = n;
    for (uint32_t i = 0; i < n; i++)
        if (token_event_unpack(r, &m->tokens[i]) != ERR_OK || m->tokens[i].choice != (int32_t)i)
            return ERR_BAD_FRAME;
    return ERR_OK;
}

static bool prompt_logprob_sound(float v) {
    return v <= 0 && v >= -FLT_MAX; /* false for NaN */
}

static enum err read_prompt(struct rd *r, struct kv_commit *m) {
    uint32_t n = 0;
    uint8_t k = 0;
    rd_u32(r, &n);
    if (!rd_u8(r, &k) || n > PROMPT_TOKENS_MAX || k > TOP_LOGPROBS_MAX || (n == 0 && k > 0) ||
        rd_left(r) != (size_t)n * (8 + 8 * (size_t)k))
        return ERR_BAD_FRAME;
    if (n > 0 && (m->prompt_logprobs = malloc(n * sizeof(float))) == NULL) return ERR_NO_MEMORY;
    if (n > 0 && (m->prompt_ranks = malloc(n * sizeof(int32_t))) == NULL) return ERR_NO_MEMORY;
    if (k > 0 && (m->prompt_tops = malloc((size_t)n * k * sizeof(*m->prompt_tops))) == NULL)
        return ERR_NO_MEMORY;
    m->n_prompt_logprobs = n;
    m->n_prompt_tops = k;
    for (uint32_t i = 0; i < n; i++) {
        rd_f32(r, &m->prompt_logprobs[i]);
        rd_i32(r, &m->prompt_ranks[i]);
        if (!prompt_logprob_sound(m->prompt_logprobs[i]) || m->prompt_ranks[i] < 0)
            return ERR_BAD_FRAME;
        for (uint32_t j = 0; j < k; j++) {
            struct top_logprob *t = &m->prompt_tops[(size_t)i * k + j];
            rd_i32(r, &t->id);
            rd_f32(r, &t->logprob);
            if (t->id < -1 || !prompt_logprob_sound(t->logprob)) return ERR_BAD_FRAME;
        }
    }
    return done(r);
}

enum err kv_commit_unpack(struct rd *r, struct kv_commit *m) {
    *m = (struct kv_commit){0};
    kv_key_unpack(r, &m->key);
    rd_u32(r, &m->n_blocks);
    rd_u32(r, &m->n_layers);
    rd_u64(r, &m->total_bytes);
    rd_u64(r, &m->prefill_us);
    rd_u64(r, &m->queue_wait_us);
    rd_u32(r, &m->prefill_batch);
    rd_u32(r, &m->cached_tokens);
    enum err e = read_tokens(r, m);
    if (e == ERR_OK) e = read_prompt(r, m);
    if (e != ERR_OK) kv_commit_free(m);
    return e;
}

void kv_commit_free(struct kv_commit *m) {
    free(m->tokens);
    free(m->prompt_logprobs);
    free(m->prompt_ranks);
    free(m->prompt_tops);
    m->tokens = NULL;
    m->prompt_ranks = NULL;
    m->prompt_logprobs = NULL;
    m->prompt_tops = NULL;
    m->n_tokens = m->n_prompt_logprobs = m->n_prompt_tops = 0;
}

void kv_ack_pack(struct wr *w, const struct kv_key *k) {
    kv_frame_begin(w, KV_ACK);
    kv_key_pack(w, k);
}

void kv_cancel_pack(struct wr *w, const struct kv_key *k) {
    kv_frame_begin(w, KV_CANCEL);
    kv_key_pack(w, k);
}

void kv_pull_pack(struct wr *w, const struct kv_pull *m) {
    kv_frame_begin(w, KV_PULL);
    kv_key_pack(w, &m->key);
    wr_u32(w, (uint32_t)m->n_ranges);
    for (size_t i = 0; i < m->n_ranges; i++) {
        wr_u32(w, m->ranges[i].layer);
        wr_u32(w, m->ranges[i].first);
        wr_u32(w, m->ranges[i].n);
    }
}

enum err kv_pull_unpack(struct rd *r, struct kv_pull *m) {
    m->ranges = NULL;
    m->n_ranges = 0;
    uint32_t n = 0;
    kv_key_unpack(r, &m->key);
    if (!rd_u32(r, &n) || n == 0 || n > KV_RANGES_MAX || rd_left(r) != (size_t)n * KV_RANGE_BYTES) {
        return ERR_BAD_FRAME;
    }
    if ((m->ranges = calloc(n, sizeof(*m->ranges))) == NULL) return ERR_NO_MEMORY;
    m->n_ranges = n;
    for (uint32_t i = 0; i < n; i++) {
        struct kv_range *g = &m->ranges[i];
        rd_u32(r, &g->layer);
        rd_u32(r, &g->first);
        rd_u32(r, &g->n);
        if (g->n == 0 || g->layer >= KV_LAYERS_MAX || g->first > PROMPT_TOKENS_MAX ||
            g->n > PROMPT_TOKENS_MAX - g->first) {
            kv_pull_free(m);
            return ERR_BAD_FRAME;
        }
    }
    return ERR_OK;
}

void kv_pull_free(struct kv_pull *m) {
    free(m->ranges);
    m->ranges = NULL;
    m->n_ranges = 0;
}

void kv_release_pack(struct wr *w, const struct kv_release *m) {
    kv_frame_begin(w, KV_RELEASE);
    kv_key_pack(w, &m->key);
    wr_u8(w, m->reason);
    wr_cstr(w, m->text);
}

enum err kv_release_unpack(struct rd *r, struct kv_release *m) {
    kv_key_unpack(r, &m->key);
    rd_u8(r, &m->reason);
    rd_cstr(r, m->text, sizeof(m->text));
    if (!rd_done(r) || m->reason >= KV_RELEASE_COUNT) return ERR_BAD_FRAME;
    return ERR_OK;
}
