/* kv_seal: one cipher context per direction; the key schedule is set once an epoch, the nonce once
 * a frame. */
#include "common/instance/kv_seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_FLAGS_AT = 6, HEAD_TAG_BYTES_AT = 7, HEAD_LENGTH_AT = 8, HEAD_SEQ_AT = 12 };
enum { NONCE_BYTES = 12, KEY_BYTES = 32 };

struct kv_seal {
    EVP_CIPHER_CTX *gcm;
    bool seals;
    uint64_t count; /* frames done */
    uint32_t epoch; /* of the key in gcm */
    uint8_t secret[KV_SEAL_SECRET_BYTES];
};

static void put_le(uint8_t *p, uint64_t v, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) p[i] = (uint8_t)(v >> (8 * i));
}

/* One block of HKDF-Expand. */
static bool expand(const uint8_t secret[KV_SEAL_SECRET_BYTES], const char *label, uint8_t out[32]) {
    uint8_t info[32];
    unsigned n_out = 32;
    size_t n = strlen(label);
    memcpy(info, label, n);
    info[n] = 1;
    return HMAC(EVP_sha256(), secret, KV_SEAL_SECRET_BYTES, info, n + 1, out, &n_out) != NULL;
}

static bool use_secret(struct kv_seal *s) {
    uint8_t key[KEY_BYTES];
    bool ok = expand(s->secret, "baton kv key", key) &&
              EVP_CipherInit_ex(s->gcm, NULL, NULL, key, NULL, s->seals) == 1;
    OPENSSL_cleanse(key, sizeof(key));
    return ok;
}

static bool next_epoch(struct kv_seal *s) {
    uint8_t next[KV_SEAL_SECRET_BYTES];
    if (!expand(s->secret, "baton kv next", next)) return false;
    memcpy(s->secret, next, sizeof(next));
    OPENSSL_cleanse(next, sizeof(next));
    s->epoch++;
    return use_secret(s);
}

enum err kv_seal_create(struct kv_seal **out, enum kv_seal_side side,
                        const uint8_t secret[KV_SEAL_SECRET_BYTES]) {
    *out = NULL;
    struct kv_seal *s = calloc(1, sizeof(*s));
    if (s == NULL) return ERR_NO_MEMORY;
    s->seals = side == KV_SEALS;
    memcpy(s->secret, secret, sizeof(s->secret));
    s->gcm = EVP_CIPHER_CTX_new();
    if (s->gcm == NULL ||
        EVP_CipherInit_ex(s->gcm, EVP_aes_256_gcm(), NULL, NULL, NULL, s->seals) != 1 ||
        !use_secret(s)) {
        kv_seal_destroy(&s);
        return ERR_NO_MEMORY;
    }
    *out = s;
    return ERR_OK;
}

void kv_seal_destroy(struct kv_seal **sp) {
    struct kv_seal *s = *sp;
    if (s == NULL) return;
    *sp = NULL;
    EVP_CIPHER_CTX_free(s->gcm); /* wipes its key */
    OPENSSL_cleanse(s, sizeof(*s));
    free(s);
}

/* Sets key and nonce of the next frame and takes its head in. */
static enum err begin(struct kv_seal *s, const uint8_t *frame) {
    uint8_t nonce[NONCE_BYTES];
    int n;
    if (s->count / KV_SEAL_EPOCH_FRAMES > UINT32_MAX) return ERR_TOO_LARGE;
    if (s->count / KV_SEAL_EPOCH_FRAMES != s->epoch && !next_epoch(s)) return ERR_NO_MEMORY;
    s->count++;
    put_le(nonce, s->epoch, 4);
    put_le(nonce + 4, s->count, 8);
    return EVP_CipherInit_ex(s->gcm, NULL, NULL, NULL, nonce, s->seals) == 1 &&
                   EVP_CipherUpdate(s->gcm, NULL, &n, frame, KV_HEAD_BYTES) == 1
               ? ERR_OK
               : ERR_NO_MEMORY;
}

static bool cipher(struct kv_seal *s, uint8_t *to, const uint8_t *from, size_t n) {
    int done = 0;
    return n == 0 || (EVP_CipherUpdate(s->gcm, to, &done, from, (int)n) == 1 && (size_t)done == n);
}

enum err kv_seal_begin(struct kv_seal *s, uint8_t *frame, size_t n) {
    if (n < KV_HEAD_BYTES + KV_SEAL_BYTES || n > KV_MESSAGE_BYTES_MAX) return ERR_TOO_LARGE;
    frame[HEAD_FLAGS_AT] = KV_FLAG_SEALED;
    frame[HEAD_TAG_BYTES_AT] = KV_SEAL_BYTES;
    put_le(frame + HEAD_LENGTH_AT, n - KV_HEAD_BYTES - KV_SEAL_BYTES, 4);
    put_le(frame + HEAD_SEQ_AT, s->count + 1, 4);
    return begin(s, frame);
}

enum err kv_seal_piece(struct kv_seal *s, uint8_t *to, const uint8_t *from, size_t n) {
    return cipher(s, to, from, n) ? ERR_OK : ERR_NO_MEMORY;
}

enum err kv_seal_end(struct kv_seal *s, uint8_t *tag) {
    int n_final = 0;
    return EVP_CipherFinal_ex(s->gcm, tag, &n_final) == 1 &&
                   EVP_CIPHER_CTX_ctrl(s->gcm, EVP_CTRL_AEAD_GET_TAG, KV_SEAL_BYTES, tag) == 1
               ? ERR_OK
               : ERR_NO_MEMORY;
}

enum err kv_seal_frame(struct kv_seal *s, uint8_t *frame, size_t n) {
    enum err e = kv_seal_begin(s, frame, n);
    if (e != ERR_OK) return e;
    uint8_t *payload = frame + KV_HEAD_BYTES, *tag = frame + n - KV_SEAL_BYTES;
    e = kv_seal_piece(s, payload, payload, (size_t)(tag - payload));
    return e == ERR_OK ? kv_seal_end(s, tag) : e;
}

static enum err unseal(struct kv_seal *s, const struct kv_frame *f, uint8_t *frame, size_t n) {
    enum err e;
    if (!f->sealed || f->seq != (uint32_t)(s->count + 1)) return ERR_BAD_FRAME;
    size_t n_payload = n - KV_HEAD_BYTES - KV_SEAL_BYTES;
    uint8_t *payload = frame + KV_HEAD_BYTES, *tag = payload + n_payload;
    if ((e = begin(s, frame)) != ERR_OK) return e;
    int n_final = 0;
    return cipher(s, payload, payload, n_payload) &&
                   EVP_CIPHER_CTX_ctrl(s->gcm, EVP_CTRL_AEAD_SET_TAG, KV_SEAL_BYTES, tag) == 1 &&
                   EVP_CipherFinal_ex(s->gcm, tag, &n_final) == 1
               ? ERR_OK
               : ERR_BAD_FRAME;
}

enum err kv_unseal_frame(struct kv_seal *s, struct kv_frame *f, uint8_t *frame, size_t n) {
    enum err e = kv_frame_head(f, frame, n);
    if (e == ERR_OK) e = unseal(s, f, frame, n);
    if (e != ERR_OK) f->payload = rd_of(NULL, 0);
    return e;
}
