/* Bytes of a peer on a sealed link: never taken unless they were sealed. The first byte says how:
 * as they are (an attacker without the key: always refused), or as the payload of a frame that is
 * sealed, damaged at the place the next bytes name, and opened: taken only when nothing changed. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/instance/kv_seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static struct kv_seal *key(enum kv_seal_side side) {
    static const uint8_t secret[KV_SEAL_SECRET_BYTES] = {1, 2, 3};
    struct kv_seal *s;
    require(kv_seal_create(&s, side, secret) == ERR_OK);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4) return 0;
    struct kv_frame f;
    struct kv_seal *out = key(KV_SEALS), *in = key(KV_UNSEALS);
    size_t n_payload = size - 4, n = KV_HEAD_BYTES + n_payload + KV_SEAL_BYTES;
    uint8_t *frame = malloc(n);
    require(frame != NULL);
    if (data[0] % 2 == 0) {
        memcpy(frame, data + 1, size - 1);
        require(kv_unseal_frame(in, &f, frame, size - 1) != ERR_OK && rd_left(&f.payload) == 0);
    } else {
        struct wr w = WR_INIT;
        kv_frame_begin(&w, KV_OK);
        memcpy(frame, w.data, KV_HEAD_BYTES);
        wr_free(&w);
        memcpy(frame + KV_HEAD_BYTES, data + 4, n_payload);
        require(kv_seal_frame(out, frame, n) == ERR_OK);
        size_t at = ((size_t)data[1] << 8 | data[2]) % n;
        frame[at] ^= data[3];
        bool taken = kv_unseal_frame(in, &f, frame, n) == ERR_OK;
        require(taken == (data[3] == 0));
        require(!taken || memcmp(f.payload.p, data + 4, n_payload) == 0);
    }
    free(frame);
    kv_seal_destroy(&out);
    kv_seal_destroy(&in);
    return 0;
}
