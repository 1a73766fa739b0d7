/* kv_frame: every message of the KV link between a prefill and a decode instance
 * (docs/wire-kv-link.md; cluster-api 5.3, 5.4, 12.3). Pure: bytes in, structs out, and back.
 *
 * Frame:  head (16 bytes: u32 magic, u8 version, u8 type, u8 flags, u8 tag_bytes, u32 length, u32
 * seq), payload [length], tag. The tag is the CRC32C of head and payload (4 bytes), or, with
 * KV_FLAG_SEALED, an AES-GCM tag of 16 (common/instance/kv_seal); nothing here reads such a
 * payload. seq counts the frames of one direction of one link from 1; the listener uses 0. Errors:
 * ERR_BAD_FRAME for whatever a peer sent wrongly; ERR_MISMATCH for a frame of another version.
 * Ownership: unpacked structs hold copies, except where a member says that it points into the
 * frame. */
#ifndef BATON_PROTO_KV_FRAME_H
#define BATON_PROTO_KV_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/infer_msg.h"
#include "proto/limits.h"
#include "proto/wire.h"

enum {
    KV_MAGIC = 0x314b5642, /* "BVK1" */
    KV_VERSION = 7,
    KV_HEAD_BYTES = 16,
    KV_CRC_BYTES = 4,
    KV_SEAL_BYTES = 16,
    KV_FLAG_SEALED = 1,
    KV_TEXT_BYTES_MAX = 255,
    KV_RANGES_MAX = 65536,    /* ranges of one KV_PULL */
    KV_WANTED_MAX = 16384,    /* requests named in one heartbeat */
    KV_TLS_BYTES_MAX = 65536, /* of one flight of the handshake */
    KV_PROBE_BYTES_MAX = 1 << 20,
    KV_DTYPE_BYTES = 8,       /* room for the name of a type */
    KV_ARITHMETIC_BYTES = 16, /* room for the name of an arithmetic */
    KV_HASH_BYTES = 32,
    KV_MESSAGE_BYTES_MAX = KV_HEAD_BYTES + KV_FRAME_BYTES_MAX + KV_SEAL_BYTES,
};

enum kv_type {
    KV_NONE,
    KV_LINK_ASK,    /* P -> D's listener: may I link? */
    KV_LINK_ANSWER, /* D -> P: where, with which ticket; or why not */
    KV_HELLO,       /* both ways on a fresh pair, P first */
    KV_OK,          /* the other's hello fits */
    KV_REFUSE_LINK, /* it does not, or the link is not wanted any more */
    KV_HEARTBEAT,
    KV_OFFER,   /* P -> D: here is a request, reserve room */
    KV_GRANT,   /* D -> P: room reserved */
    KV_BUSY,    /* D -> P: no room now */
    KV_REFUSE,  /* D -> P: never */
    KV_DATA,    /* P -> D: blocks of one layer */
    KV_CREDIT,  /* D -> P: bytes of KV_DATA taken in so far */
    KV_COMMIT,  /* P -> D: that was all, and the first tokens */
    KV_ACK,     /* D -> P: every block is here and verified; the request is D's */
    KV_PULL,    /* D -> P: send these ranges again */
    KV_RELEASE, /* D -> P: the blocks are not needed any more */
    KV_CANCEL,  /* P -> D: the request has ended */
    KV_TLS,     /* both ways on a fresh pair, before the hello: bytes of the TLS handshake */
    KV_FETCH,   /* P -> the D a request has left: send me what you have of it */
    KV_LEND,    /* D -> P: so many blocks, which follow as KV_DATA; or none, and why */
    KV_PROBE,   /* both ways: filler, by which a side measures the link */
    KV_ECHO,    /* a probe has come */
    KV_TYPE_COUNT
};
const char *kv_type_name(enum kv_type t); /* "heartbeat"; "?" outside the list */

/* Why a link was refused or failed: the number of `failed : <code>` in a status. */
enum kv_link_code {
    KV_LINK_OK,
    KV_LINK_VERSION = 1,
    KV_LINK_MODEL = 2,
    KV_LINK_SHARDS = 3, /* shards, layers, heads or head size differ */
    KV_LINK_DTYPE = 4,
    KV_LINK_BLOCK = 5,
    KV_LINK_TOKENIZER = 6,
    KV_LINK_ROLE = 7,
    KV_LINK_NOT_WANTED = 8,
    KV_LINK_TICKET = 9,
    KV_LINK_TIMEOUT = 10,
    KV_LINK_UNREACHABLE = 11,
    KV_LINK_DAMAGED = 12, /* frames lost, damaged or not authentic */
    KV_LINK_SEAL = 13,    /* one side seals the link, the other does not */
    KV_LINK_TLS = 14,     /* the TLS handshake failed */
    KV_LINK_ARITHMETIC = 15,
    KV_LINK_CODE_COUNT
};
const char *kv_link_code_text(enum kv_link_code c);

/* ---- frames */
struct kv_frame {
    enum kv_type type;
    uint8_t version;
    uint32_t seq;
    bool sealed;       /* the payload is not for reading until it is unsealed */
    bool crc_failed;   /* the head was sound, the check was not: type is what the bytes claim */
    struct rd payload; /* points into the frame */
};

/* For frames in a stream: how long the one is that begins at p, of which n bytes are there. 0: its
 * head is not whole yet; SIZE_MAX: no frame begins so, or one of more than n_max bytes. */
size_t kv_frame_bytes(const void *p, size_t n, size_t n_max);
/* Checks head and length of one whole frame, sealed or not, and nothing behind the head. */
enum err kv_frame_head(struct kv_frame *f, const void *p, size_t n);
/* Checks head, length and CRC of one whole frame; refuses a sealed one. On an error *f has what
 * could be read of the head. */
enum err kv_frame_open(struct kv_frame *f, const void *p, size_t n);
/* Starts a frame in *w (which is cleared) and ends it: patches length and seq and appends the CRC.
 * A payload over KV_FRAME_BYTES_MAX marks *w failed. */
void kv_frame_begin(struct wr *w, enum kv_type type);
void kv_frame_end(struct wr *w, uint32_t seq);
/* Gives a finished frame another seq and a fresh CRC. */
void kv_frame_reseal(uint8_t *frame, size_t n, uint32_t seq);

/* ---- payloads */
struct kv_key { /* one prompt of one attempt of one request: each is handed over by itself */
    char req_id[REQ_ID_BYTES_MAX + 1];
    uint32_t epoch;
    uint32_t part; /* infer_req.part, 0..PARTS_MAX-1 */
};
void kv_key_set(struct kv_key *k, const char *req_id, uint32_t epoch, uint32_t part);
bool kv_key_equal(const struct kv_key *a, const struct kv_key *b);
void kv_key_pack(struct wr *w, const struct kv_key *k);
enum err kv_key_unpack(struct rd *r, struct kv_key *k);
/* GRANT's, ACK's and CANCEL's payload is a key alone or begins with one; kv_key_only_unpack refuses
 * left-over bytes. */
enum err kv_key_only_unpack(struct rd *r, struct kv_key *k);

struct kv_link_ask {
    uint32_t from_id, to_id; /* instance ids; 0: not known */
    bool sealed;             /* the asker seals its links, and takes no other */
};
struct kv_link_answer {
    uint16_t code; /* enum kv_link_code; KV_LINK_OK: the rest is meant */
    char text[KV_TEXT_BYTES_MAX + 1];
    uint16_t port;   /* TCP port of the pair */
    uint64_t ticket; /* to be shown in the hello, good once */
};
struct kv_hello {
    uint32_t instance_id;
    uint8_t role;       /* enum inst_role of the sender */
    uint32_t protocol;  /* KV_VERSION */
    uint8_t may_differ; /* bits of enum kv_may_differ that the sender allows */
    /* conf_hash: what the model is, without a weight of it; model_hash: that and its weights. */
    uint8_t conf_hash[KV_HASH_BYTES], model_hash[KV_HASH_BYTES], tokenizer_hash[KV_HASH_BYTES];
    uint32_t n_layers, n_kv_heads, head_dim, block_tokens, n_shards;
    /* Names of types; the weights' too, for with others the same request gets other tokens. */
    char kv_dtype[KV_DTYPE_BYTES], weight_dtype[KV_DTYPE_BYTES];
    /* Kernels of the same name compute the same bits (kernels_arithmetic()). */
    char arithmetic[KV_ARITHMETIC_BYTES];
    uint64_t boot; /* epoch of the process */
    uint64_t ticket;
    uint64_t window_bytes; /* bytes of KV_DATA the sender lets come unacknowledged */
};
struct kv_refuse_link {
    uint16_t code;
    char text[KV_TEXT_BYTES_MAX + 1];
};
struct kv_heartbeat {
    uint32_t instance_id;
    uint64_t free_blocks;
    uint32_t queue_len;
    struct kv_key *wanted; /* requests the sender still wants the other to hold; malloc'd */
    size_t n_wanted;
};
struct kv_offer {
    struct kv_key key;
    uint32_t n_blocks; /* blocks of the prompt */
    uint32_t lease_ms;
    const uint8_t *req; /* infer_req_pack(); points into the frame */
    size_t req_bytes;
};
struct kv_fetch { /* key: of the attempt that is to go on */
    struct kv_key key;
    uint32_t n_blocks;  /* full blocks before the last of the request's ids */
    uint32_t n_held;    /* leading ones that P has: not to be sent; fewer than n_blocks */
    const uint8_t *req; /* infer_req_pack(); points into the frame */
    size_t req_bytes;
};
struct kv_lend {
    struct kv_key key;
    uint16_t code;     /* enum err; not ERR_OK: nothing follows */
    uint32_t n_blocks; /* leading blocks that D has */
    char text[KV_TEXT_BYTES_MAX + 1];
};
struct kv_grant {
    struct kv_key key;
    uint32_t n_held; /* leading blocks D has already: not to be sent */
};
struct kv_busy {
    struct kv_key key;
    uint32_t retry_after_ms;
};
struct kv_refuse {
    struct kv_key key;
    uint16_t code; /* enum err */
    char text[KV_TEXT_BYTES_MAX + 1];
};
struct kv_data {
    struct kv_key key;
    uint32_t layer, first, n; /* blocks [first, first + n) of the sequence */
    const uint8_t *bytes;     /* n blocks one after another; points into the frame */
    size_t n_bytes;
};
struct kv_commit {
    struct kv_key key;
    uint32_t n_blocks, n_layers;
    uint64_t total_bytes; /* of KV_DATA sent, repairs not counted */
    uint64_t prefill_us, queue_wait_us;
    uint32_t prefill_batch, cached_tokens;
    struct token_event *tokens; /* [n_tokens] the first one of choice 0, 1, .., those included that
                                 * end with it; of a beam search what engine.h says; malloc'd */
    uint32_t n_tokens;          /* 1..2 * CHOICES_MAX */
    float *prompt_logprobs; /* of prompt tokens 1 .. n_prompt_logprobs; malloc'd; NULL when none */
    int32_t *prompt_ranks;  /* the same tokens' (token_event.rank); malloc'd; NULL when none */
    uint32_t n_prompt_logprobs;
    struct top_logprob *prompt_tops; /* [n_prompt_logprobs][n_prompt_tops] their alternatives, most
                                      * likely first, then id -1; malloc'd; NULL when none */
    uint32_t n_prompt_tops;          /* 0..TOP_LOGPROBS_MAX */
};
struct kv_range {
    uint32_t layer, first, n;
};
struct kv_pull {
    struct kv_key key;
    struct kv_range *ranges; /* malloc'd */
    size_t n_ranges;
};
enum kv_release_reason {
    KV_RELEASE_OK,
    KV_RELEASE_FAILED,
    KV_RELEASE_REJECTED,
    KV_RELEASE_CANCEL,
    KV_RELEASE_COUNT
};
struct kv_release {
    struct kv_key key;
    uint8_t reason; /* enum kv_release_reason */
    char text[KV_TEXT_BYTES_MAX + 1];
};

/* Largest payload a commit for so many choices and logged prompt tokens can have. */
size_t kv_commit_bytes_max(size_t n_choices, size_t n_prompt_logprobs, size_t n_prompt_tops);

/* Whole frames but for seq and CRC: call kv_frame_end() after. */
void kv_link_ask_pack(struct wr *w, const struct kv_link_ask *m);
void kv_link_answer_pack(struct wr *w, const struct kv_link_answer *m);
void kv_hello_pack(struct wr *w, const struct kv_hello *m);
void kv_ok_pack(struct wr *w);
void kv_refuse_link_pack(struct wr *w, const struct kv_refuse_link *m);
void kv_heartbeat_pack(struct wr *w, const struct kv_heartbeat *m);
void kv_offer_pack(struct wr *w, const struct kv_key *key, uint32_t n_blocks, uint32_t lease_ms,
                   const struct infer_req *req);
void kv_fetch_pack(struct wr *w, const struct kv_key *key, uint32_t n_blocks, uint32_t n_held,
                   const struct infer_req *req);
void kv_lend_pack(struct wr *w, const struct kv_lend *m);
void kv_grant_pack(struct wr *w, const struct kv_grant *m);
void kv_busy_pack(struct wr *w, const struct kv_busy *m);
void kv_refuse_pack(struct wr *w, const struct kv_refuse *m);
void kv_credit_pack(struct wr *w, uint64_t bytes_taken);
void kv_commit_pack(struct wr *w, const struct kv_commit *m);
void kv_ack_pack(struct wr *w, const struct kv_key *k);
void kv_pull_pack(struct wr *w, const struct kv_pull *m);
void kv_release_pack(struct wr *w, const struct kv_release *m);
void kv_cancel_pack(struct wr *w, const struct kv_key *k);
void kv_tls_pack(struct wr *w, const void *bytes, size_t n); /* over KV_TLS_BYTES_MAX: failed */

/* KV_DATA is built in the message buffer itself: kv_data_bytes() long; kv_data_begin() writes what
 * stands before the blocks and returns where they go, kv_data_end() ends the frame. */
size_t kv_data_bytes(const struct kv_key *k, size_t n_bytes);
uint8_t *kv_data_begin(uint8_t *frame, const struct kv_key *k, uint32_t layer, uint32_t first,
                       uint32_t n, size_t n_bytes);
void kv_data_end(uint8_t *frame, size_t frame_bytes, uint32_t seq);

enum err kv_link_ask_unpack(struct rd *r, struct kv_link_ask *m);
enum err kv_link_answer_unpack(struct rd *r, struct kv_link_answer *m);
enum err kv_hello_unpack(struct rd *r, struct kv_hello *m);
enum err kv_refuse_link_unpack(struct rd *r, struct kv_refuse_link *m);
enum err kv_heartbeat_unpack(struct rd *r, struct kv_heartbeat *m); /* kv_heartbeat_free() */
enum err kv_offer_unpack(struct rd *r, struct kv_offer *m);
enum err kv_fetch_unpack(struct rd *r, struct kv_fetch *m);
enum err kv_lend_unpack(struct rd *r, struct kv_lend *m);
enum err kv_grant_unpack(struct rd *r, struct kv_grant *m);
enum err kv_busy_unpack(struct rd *r, struct kv_busy *m);
enum err kv_refuse_unpack(struct rd *r, struct kv_refuse *m);
enum err kv_data_unpack(struct rd *r, struct kv_data *m);
enum err kv_credit_unpack(struct rd *r, uint64_t *bytes_taken);
struct kv_probe {
    uint32_t number, n_bytes; /* n_bytes of filler, zeros, which nobody reads */
};
void kv_probe_pack(struct wr *w, const struct kv_probe *m);
enum err kv_probe_unpack(struct rd *r, struct kv_probe *m);
void kv_echo_pack(struct wr *w, uint32_t number);
enum err kv_echo_unpack(struct rd *r, uint32_t *number);
enum err kv_commit_unpack(struct rd *r, struct kv_commit *m); /* kv_commit_free() */
enum err kv_pull_unpack(struct rd *r, struct kv_pull *m);     /* kv_pull_free() */
enum err kv_release_unpack(struct rd *r, struct kv_release *m);
enum err kv_tls_unpack(struct rd *r, const uint8_t **bytes, size_t *n); /* points into the frame */
void kv_heartbeat_free(struct kv_heartbeat *m);
void kv_commit_free(struct kv_commit *m);
void kv_pull_free(struct kv_pull *m);

#endif
