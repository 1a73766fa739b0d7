/* kv_auth: TLS 1.3 over the first frames of a fresh pair, both sides with a certificate of the
 * cluster plane that names their address. TLS carries nothing but itself: its exporter gives the
 * secrets of the two directions, and from then on frames are sealed (kv_seal). */
#include <openssl/crypto.h>
#include <stdio.h>
#include "common/instance/kv_link.h"

#define EXPORT_LABEL "EXPORTER-Baton-KV-link-1"

/* Sends what TLS has for the other side. */
static bool send_flight(struct kv_plane *kp, struct kv_pipe *p) {
    uint8_t flight[KV_TLS_BYTES_MAX];
    size_t n;
    while ((n = tls_session_drain(p->tls, flight, sizeof(flight))) > 0) {
        kv_tls_pack(&kp->scratch, flight, n);
        kv_pipe_send_plain(kp, p);
    }
    return !p->failed;
}

enum err kv_auth_begin(struct kv_plane *kp, struct kv_link *l) {
    struct kv_pipe *p = l->fresh;
    enum err e = tls_session_create(&p->tls, kp->o.tls, p->bound ? TLS_SERVER : TLS_CLIENT, l->ip);
    if (e != ERR_OK) return e;
    p->state = PIPE_TLS;
    return send_flight(kp, p) ? ERR_OK : ERR_NO_MEMORY;
}

/* The connecting side's secret comes first. */
static enum err take_secrets(struct kv_pipe *p) {
    uint8_t secrets[2][KV_SEAL_SECRET_BYTES];
    enum err e = tls_session_export(p->tls, EXPORT_LABEL, secrets, sizeof(secrets));
    if (e == ERR_OK) e = kv_seal_create(&p->seal_out, KV_SEALS, secrets[p->bound ? 1 : 0]);
    if (e == ERR_OK) e = kv_seal_create(&p->seal_in, KV_UNSEALS, secrets[p->bound ? 0 : 1]);
    OPENSSL_cleanse(secrets, sizeof(secrets));
    return e;
}

bool kv_auth_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f,
                   char why[KV_TEXT_BYTES_MAX + 1]) {
    struct kv_pipe *p = l->fresh;
    const uint8_t *bytes;
    size_t n;
    why[0] = '\0';
    if (kv_tls_unpack(&f->payload, &bytes, &n) != ERR_OK) {
        snprintf(why, KV_TEXT_BYTES_MAX + 1, "an empty or too long flight");
        return false;
    }
    enum err e = tls_session_feed(p->tls, bytes, n);
    if (e != ERR_OK) {
        const char *said = tls_session_error(p->tls);
        snprintf(why, KV_TEXT_BYTES_MAX + 1, "%s", said[0] != '\0' ? said : err_name(e));
        return false;
    }
    if (!send_flight(kp, p)) {
        snprintf(why, KV_TEXT_BYTES_MAX + 1, "out of memory");
        return false;
    }
    if (tls_session_state(p->tls) != TLS_UP) return false;
    e = take_secrets(p);
    tls_session_free(&p->tls);
    if (e != ERR_OK) snprintf(why, KV_TEXT_BYTES_MAX + 1, "no keys: %s", err_name(e));
    return e == ERR_OK;
}
