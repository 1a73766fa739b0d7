/* Bytes of a peer to any message of the KV link. The frame's own check is passed over (a fuzzer
 * would never find a CRC): the first byte names the type, the rest is the payload. Whatever is
 * taken must pack to the very bytes it came from. The same bytes also go through kv_frame_open() as
 * a whole frame. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/kv_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(const struct wr *w, const uint8_t *payload, size_t n) {
    if (w->failed || w->len != KV_HEAD_BYTES + n ||
        memcmp(w->data + KV_HEAD_BYTES, payload, n) != 0)
        abort();
}

/* Unpacks m of its type and, when it was taken, packs and compares. */
#define ROUND_TRIP(type, name)                                                                     \
    do {                                                                                           \
        struct type m;                                                                             \
        if (name##_unpack(&r, &m) != ERR_OK) break;                                                \
        name##_pack(&w, &m);                                                                       \
        expect(&w, payload, n);                                                                    \
    } while (0)

static void try_data(struct rd *r, const uint8_t *payload, size_t n) {
    struct kv_data m;
    if (kv_data_unpack(r, &m) != ERR_OK) return;
    size_t n_frame = kv_data_bytes(&m.key, m.n_bytes);
    uint8_t *frame = malloc(n_frame);
    if (frame == NULL) return;
    memcpy(kv_data_begin(frame, &m.key, m.layer, m.first, m.n, m.n_bytes), m.bytes, m.n_bytes);
    kv_data_end(frame, n_frame, 1);
    struct kv_frame f;
    if (n_frame != KV_HEAD_BYTES + n + KV_CRC_BYTES ||
        memcmp(frame + KV_HEAD_BYTES, payload, n) != 0)
        abort();
    if (kv_frame_open(&f, frame, n_frame) != ERR_OK) abort();
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kv_frame f;
    if (size == 0) return 0;
    if (kv_frame_open(&f, data, size) == ERR_OK && (f.sealed || f.crc_failed)) abort();
    size_t n_frame = kv_frame_bytes(data, size, KV_MESSAGE_BYTES_MAX);
    if (kv_frame_head(&f, data, size) == ERR_OK && n_frame != size) abort();
    const uint8_t *payload = data + 1;
    size_t n = size - 1;
    struct rd r = rd_of(payload, n);
    struct wr w = WR_INIT;
    struct kv_key k;
    switch (data[0] % KV_TYPE_COUNT) {
    case KV_LINK_ASK: ROUND_TRIP(kv_link_ask, kv_link_ask); break;
    case KV_LINK_ANSWER: ROUND_TRIP(kv_link_answer, kv_link_answer); break;
    case KV_HELLO: ROUND_TRIP(kv_hello, kv_hello); break;
    case KV_REFUSE_LINK: ROUND_TRIP(kv_refuse_link, kv_refuse_link); break;
    case KV_GRANT: ROUND_TRIP(kv_grant, kv_grant); break;
    case KV_BUSY: ROUND_TRIP(kv_busy, kv_busy); break;
    case KV_REFUSE: ROUND_TRIP(kv_refuse, kv_refuse); break;
    case KV_RELEASE: ROUND_TRIP(kv_release, kv_release); break;
    case KV_HEARTBEAT: {
        struct kv_heartbeat m;
        if (kv_heartbeat_unpack(&r, &m) != ERR_OK) break;
        kv_heartbeat_pack(&w, &m);
        expect(&w, payload, n);
        kv_heartbeat_free(&m);
        break;
    }
    case KV_COMMIT: {
        struct kv_commit m;
        if (kv_commit_unpack(&r, &m) != ERR_OK) break;
        kv_commit_pack(&w, &m);
        expect(&w, payload, n);
        kv_commit_free(&m);
        break;
    }
    case KV_PULL: {
        struct kv_pull m;
        if (kv_pull_unpack(&r, &m) != ERR_OK) break;
        kv_pull_pack(&w, &m);
        expect(&w, payload, n);
        kv_pull_free(&m);
        break;
    }
    case KV_OFFER: {
        struct kv_offer m;
        if (kv_offer_unpack(&r, &m) != ERR_OK) break;
        struct rd body = rd_of(m.req, m.req_bytes);
        struct infer_req *req = NULL;
        if (infer_req_unpack(&body, &req) != ERR_OK) break;
        if (rd_done(&body)) {
            kv_offer_pack(&w, &m.key, m.n_blocks, m.lease_ms, req);
            expect(&w, payload, n);
        }
        infer_req_destroy(&req);
        break;
    }
    case KV_LEND: ROUND_TRIP(kv_lend, kv_lend); break;
    case KV_PROBE: { /* the filler is not looked at */
        struct kv_probe m;
        if (kv_probe_unpack(&r, &m) != ERR_OK) break;
        if (m.n_bytes > KV_PROBE_BYTES_MAX || n != 8 + (size_t)m.n_bytes) abort();
        kv_probe_pack(&w, &m);
        if (memcmp(w.data + KV_HEAD_BYTES, payload, 8) != 0) abort();
        break;
    }
    case KV_ECHO: {
        uint32_t number;
        if (kv_echo_unpack(&r, &number) != ERR_OK) break;
        kv_echo_pack(&w, number);
        expect(&w, payload, n);
        break;
    }
    case KV_FETCH: {
        struct kv_fetch m;
        if (kv_fetch_unpack(&r, &m) != ERR_OK) break;
        struct rd body = rd_of(m.req, m.req_bytes);
        struct infer_req *req = NULL;
        if (infer_req_unpack(&body, &req) != ERR_OK) break;
        if (rd_done(&body)) {
            kv_fetch_pack(&w, &m.key, m.n_blocks, m.n_held, req);
            expect(&w, payload, n);
        }
        infer_req_destroy(&req);
        break;
    }
    case KV_DATA: try_data(&r, payload, n); break;
    case KV_CREDIT: {
        uint64_t taken;
        if (kv_credit_unpack(&r, &taken) != ERR_OK) break;
        kv_credit_pack(&w, taken);
        expect(&w, payload, n);
        break;
    }
    case KV_ACK:
    case KV_CANCEL:
        if (kv_key_only_unpack(&r, &k) != ERR_OK) break;
        kv_ack_pack(&w, &k);
        expect(&w, payload, n);
        break;
    case KV_TLS: {
        const uint8_t *bytes;
        size_t n_bytes;
        if (kv_tls_unpack(&r, &bytes, &n_bytes) != ERR_OK) break;
        kv_tls_pack(&w, bytes, n_bytes);
        expect(&w, payload, n);
        break;
    }
    default: break;
    }
    wr_free(&w);
    return 0;
}
