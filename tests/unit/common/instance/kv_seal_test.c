/* Goal: a sealed frame opens once, in its place, with the right key, to what was sealed; anything
 * else is refused and gives no payload; the bytes are those of docs/wire-kv-link.md. Method:
 * properties over sizes, every bit of a frame, every order of frames; an implementation of the key
 * schedule made from the document with OpenSSL's HKDF, on both sides of a change of key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <string.h>

#include "common/instance/kv_seal.h"

static const uint8_t secret_a[32] = "the secret of one direction....", secret_b[32] = "another";

static struct kv_seal *seal(enum kv_seal_side side, const uint8_t *secret) {
    struct kv_seal *s = NULL;
    assert_int_equal(kv_seal_create(&s, side, secret), ERR_OK);
    return s;
}

/* A finished data-like frame of so many payload bytes with room for the tag; *n is its length. */
static uint8_t *frame_of(size_t n_payload, size_t *n) {
    struct wr w = WR_INIT;
    kv_frame_begin(&w, KV_DATA);
    for (size_t i = 0; i < n_payload; i++) wr_u8(&w, (uint8_t)(i * 31 + 7));
    kv_frame_end(&w, 0);
    assert_false(w.failed);
    *n = w.len + KV_SEAL_BYTES - KV_CRC_BYTES;
    uint8_t *frame = calloc(1, *n);
    assert_non_null(frame);
    memcpy(frame, w.data, w.len);
    wr_free(&w);
    return frame;
}

static void check_payload(const struct kv_frame *f, size_t n_payload) {
    assert_int_equal(f->type, KV_DATA);
    assert_int_equal(rd_left(&f->payload), n_payload);
    for (size_t i = 0; i < n_payload; i++)
        if (f->payload.p[i] != (uint8_t)(i * 31 + 7)) fail_msg("byte %zu differs", i);
}

static void opens_to_what_was_sealed(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 15, 16, 17, 4096, 1 << 20, KV_FRAME_BYTES_MAX};
    struct kv_seal *a = seal(KV_SEALS, secret_a), *b = seal(KV_UNSEALS, secret_a);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t n;
        struct kv_frame f;
        uint8_t *frame = frame_of(sizes[i], &n), *plain = frame_of(sizes[i], &n);
        assert_int_equal(kv_seal_frame(a, frame, n), ERR_OK);
        if (sizes[i] >= 15)
            assert_memory_not_equal(frame + KV_HEAD_BYTES, plain + KV_HEAD_BYTES, sizes[i]);
        assert_int_equal(kv_unseal_frame(b, &f, frame, n), ERR_OK);
        assert_true(f.sealed);
        assert_int_equal(f.seq, i + 1);
        check_payload(&f, sizes[i]);
        free(frame);
        free(plain);
    }
    kv_seal_destroy(&a);
    kv_seal_destroy(&b);
    assert_null(a);
}

/* Whatever the cuts, and whether a piece lies in the frame or elsewhere. */
static void pieces_seal_to_the_bytes_of_the_whole(void **state) {
    (void)state;
    enum { N = 5000 };
    static const size_t cuts[] = {0, 1, 15, 16, 17, 47, 1000, N};
    struct kv_seal *a = seal(KV_SEALS, secret_a), *b = seal(KV_SEALS, secret_a);
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        size_t n;
        uint8_t *whole = frame_of(N, &n), *pieces = frame_of(N, &n), *source = frame_of(N, &n);
        assert_int_equal(kv_seal_frame(a, whole, n), ERR_OK);
        uint8_t *to = pieces + KV_HEAD_BYTES;
        const uint8_t *from = source + KV_HEAD_BYTES;
        assert_int_equal(kv_seal_begin(b, pieces, n), ERR_OK);
        assert_int_equal(kv_seal_piece(b, to, to, cuts[i]), ERR_OK);
        memset(to + cuts[i], 0, N - cuts[i]);
        for (size_t at = cuts[i]; at < N; at += 700) {
            size_t left = N - at;
            assert_int_equal(kv_seal_piece(b, to + at, from + at, left < 700 ? left : 700), ERR_OK);
        }
        assert_int_equal(kv_seal_end(b, to + N), ERR_OK);
        assert_memory_equal(pieces, whole, n);
        free(whole);
        free(pieces);
        free(source);
    }
    kv_seal_destroy(&a);
    kv_seal_destroy(&b);
}

static void equal_frames_seal_differently(void **state) {
    (void)state;
    struct kv_seal *a = seal(KV_SEALS, secret_a);
    size_t n;
    uint8_t *one = frame_of(64, &n), *two = frame_of(64, &n);
    assert_int_equal(kv_seal_frame(a, one, n), ERR_OK);
    assert_int_equal(kv_seal_frame(a, two, n), ERR_OK);
    assert_memory_not_equal(one + KV_HEAD_BYTES, two + KV_HEAD_BYTES, 64);
    free(one);
    free(two);
    kv_seal_destroy(&a);
}

/* Opens bytes with a fresh key, as the first frame. */
static enum err open_first(const uint8_t *secret, const uint8_t *bytes, size_t n) {
    struct kv_seal *s = seal(KV_UNSEALS, secret);
    uint8_t *copy = malloc(n > 0 ? n : 1);
    struct kv_frame f;
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    enum err e = kv_unseal_frame(s, &f, copy, n);
    if (e != ERR_OK) assert_int_equal(rd_left(&f.payload), 0);
    free(copy);
    kv_seal_destroy(&s);
    return e;
}

static void every_flipped_bit_is_refused(void **state) {
    (void)state;
    struct kv_seal *a = seal(KV_SEALS, secret_a);
    size_t n;
    uint8_t *frame = frame_of(48, &n);
    assert_int_equal(kv_seal_frame(a, frame, n), ERR_OK);
    for (size_t bit = 0; bit < n * 8; bit++) {
        frame[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        if (open_first(secret_a, frame, n) == ERR_OK) fail_msg("bit %zu may be flipped", bit);
        frame[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    assert_int_equal(open_first(secret_a, frame, n), ERR_OK);
    free(frame);
    kv_seal_destroy(&a);
}

/* Also with a length in the head that fits the bytes. */
static void other_lengths_are_refused(void **state) {
    (void)state;
    struct kv_seal *a = seal(KV_SEALS, secret_a);
    size_t n;
    uint8_t *frame = frame_of(48, &n), *longer = calloc(1, n + 1);
    assert_non_null(longer);
    assert_int_equal(kv_seal_frame(a, frame, n), ERR_OK);
    memcpy(longer, frame, n);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        if (cut == n) continue;
        memcpy(longer, frame, n);
        assert_int_not_equal(open_first(secret_a, longer, cut), ERR_OK);
        if (cut < KV_HEAD_BYTES + KV_SEAL_BYTES) continue;
        longer[8] = (uint8_t)(cut - KV_HEAD_BYTES - KV_SEAL_BYTES);
        assert_int_equal(open_first(secret_a, longer, cut), ERR_BAD_FRAME);
    }
    free(frame);
    free(longer);
    kv_seal_destroy(&a);
}

static void wrong_keys_are_refused(void **state) {
    (void)state;
    struct kv_seal *a = seal(KV_SEALS, secret_a);
    size_t n;
    uint8_t *frame = frame_of(48, &n);
    assert_int_equal(kv_seal_frame(a, frame, n), ERR_OK);
    assert_int_equal(open_first(secret_b, frame, n), ERR_BAD_FRAME);
    assert_int_equal(open_first(secret_a, frame, n), ERR_OK);
    free(frame);
    kv_seal_destroy(&a);
}

/* Frame `at` of three comes where frame `as` is due: only at == as is taken. */
static void only_the_next_frame_is_taken(void **state) {
    (void)state;
    for (int as = 0; as < 3; as++) {
        for (int at = 0; at < 3; at++) {
            struct kv_seal *a = seal(KV_SEALS, secret_a), *b = seal(KV_UNSEALS, secret_a);
            uint8_t *frames[3], *copy;
            size_t n;
            struct kv_frame f;
            for (int i = 0; i < 3; i++) {
                frames[i] = frame_of(20, &n);
                assert_int_equal(kv_seal_frame(a, frames[i], n), ERR_OK);
            }
            assert_non_null(copy = malloc(n));
            for (int i = 0; i < as; i++) {
                memcpy(copy, frames[i], n);
                assert_int_equal(kv_unseal_frame(b, &f, copy, n), ERR_OK);
            }
            memcpy(copy, frames[at], n);
            assert_int_equal(kv_unseal_frame(b, &f, copy, n), at == as ? ERR_OK : ERR_BAD_FRAME);
            if (at != as) { /* nor with the count it should have */
                memcpy(copy, frames[at], n);
                copy[12] = (uint8_t)(as + 1);
                assert_int_equal(kv_unseal_frame(b, &f, copy, n), ERR_BAD_FRAME);
            }
            free(copy);
            for (int i = 0; i < 3; i++) free(frames[i]);
            kv_seal_destroy(&a);
            kv_seal_destroy(&b);
        }
    }
}

static void plain_frames_are_refused(void **state) {
    (void)state;
    struct wr w = WR_INIT;
    kv_ok_pack(&w);
    kv_frame_end(&w, 1);
    struct kv_frame f;
    assert_int_equal(kv_frame_open(&f, w.data, w.len), ERR_OK);
    assert_int_equal(open_first(secret_a, w.data, w.len), ERR_BAD_FRAME);
    wr_free(&w);
}

static void too_short_for_a_tag_is_an_error(void **state) {
    (void)state;
    struct kv_seal *a = seal(KV_SEALS, secret_a);
    uint8_t bytes[KV_HEAD_BYTES + KV_SEAL_BYTES] = {0x42, 0x56, 0x4b, 0x31, KV_VERSION, KV_OK};
    assert_int_equal(kv_seal_frame(a, bytes, sizeof(bytes) - 1), ERR_TOO_LARGE);
    assert_int_equal(kv_seal_frame(a, bytes, sizeof(bytes)), ERR_OK);
    assert_int_equal(open_first(secret_a, bytes, sizeof(bytes)), ERR_OK);
    kv_seal_destroy(&a);
}

/* ---- the document, once more */

static void expand(const uint8_t secret[32], const char *label, uint8_t out[32]) {
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *c = EVP_KDF_CTX_new(kdf);
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    char digest[] = "SHA256";
    OSSL_PARAM p[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret, 32),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)label, strlen(label)),
        OSSL_PARAM_construct_end(),
    };
    assert_int_equal(EVP_KDF_derive(c, out, 32, p), 1);
    EVP_KDF_CTX_free(c);
    EVP_KDF_free(kdf);
}

static bool opens_by_hand(const uint8_t secret[32], uint32_t epoch, uint64_t count,
                          const uint8_t *frame, size_t n, uint8_t *out) {
    uint8_t key[32], nonce[12];
    int m;
    expand(secret, "baton kv key", key);
    for (int i = 0; i < 4; i++) nonce[i] = (uint8_t)(epoch >> (8 * i));
    for (int i = 0; i < 8; i++) nonce[4 + i] = (uint8_t)(count >> (8 * i));
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n_payload = (int)(n - KV_HEAD_BYTES - KV_SEAL_BYTES);
    bool ok = EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, nonce) == 1 &&
              EVP_DecryptUpdate(c, NULL, &m, frame, KV_HEAD_BYTES) == 1 &&
              EVP_DecryptUpdate(c, out, &m, frame + KV_HEAD_BYTES, n_payload) == 1 &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, KV_SEAL_BYTES,
                                  (void *)(frame + n - KV_SEAL_BYTES)) == 1 &&
              EVP_DecryptFinal_ex(c, out, &m) == 1;
    EVP_CIPHER_CTX_free(c);
    return ok;
}

static void keys_change_as_documented(void **state) {
    (void)state;
    struct kv_seal *a = seal(KV_SEALS, secret_a), *b = seal(KV_UNSEALS, secret_a);
    uint8_t secrets[2][32], out[8];
    size_t n;
    uint8_t *plain = frame_of(8, &n), *frame = malloc(n);
    assert_non_null(frame);
    memcpy(secrets[0], secret_a, 32);
    expand(secret_a, "baton kv next", secrets[1]);
    for (uint64_t count = 1; count <= KV_SEAL_EPOCH_FRAMES + 2; count++) {
        struct kv_frame f;
        memcpy(frame, plain, n);
        assert_int_equal(kv_seal_frame(a, frame, n), ERR_OK);
        if (count <= 2 || count >= KV_SEAL_EPOCH_FRAMES - 1) {
            uint32_t epoch = count > KV_SEAL_EPOCH_FRAMES;
            assert_true(opens_by_hand(secrets[epoch], epoch, count, frame, n, out));
            assert_memory_equal(out, plain + KV_HEAD_BYTES, 8);
            assert_false(opens_by_hand(secrets[1 - epoch], epoch, count, frame, n, out));
        }
        assert_int_equal(kv_unseal_frame(b, &f, frame, n), ERR_OK);
        assert_int_equal(f.seq, count);
    }
    free(plain);
    free(frame);
    kv_seal_destroy(&a);
    kv_seal_destroy(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_to_what_was_sealed),
        cmocka_unit_test(pieces_seal_to_the_bytes_of_the_whole),
        cmocka_unit_test(equal_frames_seal_differently),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(other_lengths_are_refused),
        cmocka_unit_test(wrong_keys_are_refused),
        cmocka_unit_test(only_the_next_frame_is_taken),
        cmocka_unit_test(plain_frames_are_refused),
        cmocka_unit_test(too_short_for_a_tag_is_an_error),
        cmocka_unit_test(keys_change_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
