/* decode_role: the contract: what the instance asks of the role, and what only time tells. */
#include "decode/decode_role.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "decode/decode_req.h"

enum { SCAN_MS = 250 };

/* Requests come by the KV link only. */
static void decode_request(void *self, struct http_x *x, const struct api_path *path,
                           const char *path_model) {
    struct decode *role = self;
    (void)path_model;
    http_x_set_header(x, CAUSE_HEADER, cause_name(CAUSE_P_NOT_PREFILL));
    instance_reply_error(role->in, x, path, 400,
                         "DMI inference requests can be sent only to the prefill node or "
                         "p_percentage of the flex node == 0");
}

/* Nobody has listened for too long: the coordinator is gone, and with it the clients. */
static void check_listener(struct decode *role, uint64_t now) {
    const struct inst_conf *c = instance_conf(role->in);
    if (role->reqs.first == NULL || dresult_out_has_listener(instance_dresult(role->in))) {
        role->listener_seen_ms = now;
        return;
    }
    if (now - role->listener_seen_ms < (uint64_t)c->listener_grace_s * 1000) return;
    log_warn("decode", "event=no_listener requests=%u", role->reqs.n);
    while (role->reqs.first != NULL)
        dreq_fail(role->reqs.first, CAUSE_D_UNREAD, 500, "no listener takes the results");
}

static void on_scan(void *arg) {
    struct decode *role = arg;
    const struct inst_conf *c = instance_conf(role->in);
    uint64_t now = clock_ms();
    for (struct dreq *d = role->reqs.first, *next; d != NULL; d = next) {
        next = d->next;
        if (d->answer == NULL) { /* P and the link watch over it until it is all here */
            if (!dreq_forgotten(d, now)) continue;
            log_warn("decode", "req=%s epoch=%u event=forgotten parts=%u of=%u",
                     d->req->head.req_id, d->req->head.epoch, d->n_committed, d->n_parts);
            dreq_drop(d, ERR_TIMEOUT, "the prefill instance offers no further part");
            continue;
        }
        uint64_t own =
            d->req->head.timeout_s > 0 ? (uint64_t)d->req->head.timeout_s * 1000 : UINT64_MAX;
        uint64_t since = d->req->answer.stream ? d->last_token_ms : d->arrival_ms;
        uint64_t wait = now > since ? now - since : 0;
        if (wait >= own) {
            dreq_fail(d, CAUSE_REQUEST_TIMEOUT, 500, "Engine callback timeout: client timeout");
        } else if (wait >= (uint64_t)c->token_timeout_s * 1000) {
            dreq_fail(d, CAUSE_REQUEST_TIMEOUT, 500,
                      "Engine callback timeout: server tokenTimeout");
        } else if (now > d->arrival_ms &&
                   now - d->arrival_ms >= (uint64_t)c->e2e_timeout_s * 1000) {
            dreq_fail(d, CAUSE_REQUEST_TIMEOUT, 500, "Engine callback timeout: server e2eTimeout");
        }
    }
    check_listener(role, now);
}

static enum err decode_start(void **self, struct instance *in) {
    *self = NULL;
    struct decode *role = calloc(1, sizeof(*role));
    if (role == NULL) return ERR_NO_MEMORY;
    role->in = in;
    role->listener_seen_ms = clock_ms();
    enum err e = loop_timer_start(&role->scan, instance_loop(in), SCAN_MS, SCAN_MS, on_scan, role);
    if (e != ERR_OK) {
        free(role);
        return e;
    }
    kv_plane_on_offer(instance_kv_plane(in), decode_on_offer, role);
    kv_plane_on_withdrawn(instance_kv_plane(in), decode_on_withdrawn, role);
    *self = role;
    return ERR_OK;
}

static bool decode_stop_request(void *self, const char *id, const char *tenant, uint32_t epoch) {
    struct decode *role = self;
    for (struct dreq *d = role->reqs.first; d != NULL; d = d->next) {
        if (strcmp(d->req->head.req_id, id) != 0 &&
            (d->req->head.client_id == NULL || strcmp(d->req->head.client_id, id) != 0))
            continue;
        if (tenant != NULL && !tenant_same_owner(d->req->head.tenant, tenant)) continue;
        if (d->req->head.epoch > epoch) continue;
        dreq_stop(d);
        return true;
    }
    return false;
}

static void decode_load(void *self, struct role_load *out) {
    const struct decode *role = self;
    *out = (struct role_load){.running = role->winding.n};
    for (const struct dreq *d = role->reqs.first; d != NULL; d = d->next) {
        if (d->n_committed > 0) {
            out->running++;
        } else {
            out->waiting++;
        }
    }
}

static void decode_abort_all(void *self, enum err why) {
    struct decode *role = self;
    const bool stopping = err_http_status(why) == 503;
    while (role->reqs.first != NULL)
        dreq_fail(role->reqs.first, stopping ? CAUSE_D_STOPPING : CAUSE_D_FAILED,
                  stopping ? 503 : 500, err_text(why));
}

static void decode_stop(void **self) {
    struct decode *role = *self;
    if (role == NULL) return;
    *self = NULL;
    decode_abort_all(role, ERR_STOPPING);
    kv_plane_on_offer(instance_kv_plane(role->in), NULL, NULL);
    kv_plane_on_withdrawn(instance_kv_plane(role->in), NULL, NULL);
    while (role->winding.first != NULL)
        dreq_list_remove(role->winding.first); /* they wind down alone */
    loop_timer_stop(&role->scan);
    loop_alarm_stop(&role->room);
    for (size_t i = 0; i < RECENT_MAX; i++) free(role->recent[i].req_id);
    free(role);
}

const struct role_ops decode_role = {
    .role = ROLE_DECODE,
    .start = decode_start,
    .on_request = decode_request,
    .stop_request = decode_stop_request,
    .load = decode_load,
    .abort_all = decode_abort_all,
    .stop = decode_stop,
};
