/* decode_role: the contract: what the instance asks of the role, and what only time tells. */
#include "decode/decode_role.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "decode/decode_req.h"

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
static void check_listener(void *arg, uint64_t now) {
    struct decode *role = arg;
    struct req_set *set = instance_reqs(role->in);
    struct inst_req *r = req_set_next(set, &decode_kind, NULL);
    if (r == NULL || dresult_out_has_listener(instance_dresult(role->in))) {
        role->listener_seen_ms = now;
        return;
    }
    if (now - role->listener_seen_ms < (uint64_t)instance_conf(role->in)->listener_grace_s * 1000)
        return;
    log_warn("decode", "event=no_listener");
    for (; r != NULL; r = req_set_next(set, &decode_kind, NULL))
        dreq_fail((struct dreq *)r, CAUSE_D_UNREAD, 500, "no listener takes the results");
}

/* ---- as a request of the instance's */

static void on_fail(struct inst_req *r, enum cause cause, int status, const char *text) {
    dreq_fail((struct dreq *)r, cause, status, text);
}

static void on_stop(struct inst_req *r) {
    dreq_stop((struct dreq *)r);
}

static enum req_phase phase(const struct inst_req *r) {
    return ((const struct dreq *)r)->n_committed > 0 ? REQ_RUNNING : REQ_WAITING;
}

/* P and the link watch over it until it is all here. */
static bool is_timed(const struct inst_req *r) {
    return ((const struct dreq *)r)->answer != NULL;
}

static void look(struct inst_req *r, uint64_t now_ms) {
    struct dreq *d = (struct dreq *)r;
    if (d->answer != NULL || !dreq_forgotten(d, now_ms)) return;
    log_warn("decode", "req=%s epoch=%u event=forgotten parts=%u of=%u", d->req->head.req_id,
             d->req->head.epoch, d->n_committed, d->n_parts);
    dreq_drop(d, ERR_TIMEOUT, "the prefill instance offers no further part");
}

const struct req_kind decode_kind = {
    .area = "decode",
    .role = ROLE_DECODE,
    .stopping = CAUSE_D_STOPPING,
    .ended = CAUSE_D_FAILED,
    .late_status = 500,
    .fail = on_fail,
    .stop = on_stop,
    .phase = phase,
    .is_timed = is_timed,
    .look = look,
};

/* ---- the contract */

static enum err decode_start(void **self, struct instance *in) {
    struct decode *role = calloc(1, sizeof(*role));
    *self = role;
    if (role == NULL) return ERR_NO_MEMORY;
    role->in = in;
    role->listener_seen_ms = clock_ms();
    req_set_on_scan(instance_reqs(in), check_listener, role);
    kv_plane_on_offer(instance_kv_plane(in), decode_on_offer, role);
    kv_plane_on_withdrawn(instance_kv_plane(in), decode_on_withdrawn, role);
    return ERR_OK;
}

static void decode_stop(void **self) {
    struct decode *role = *self;
    if (role == NULL) return;
    *self = NULL;
    req_set_abort(instance_reqs(role->in), ROLE_DECODE, ERR_STOPPING);
    req_set_on_scan(instance_reqs(role->in), NULL, NULL);
    kv_plane_on_offer(instance_kv_plane(role->in), NULL, NULL);
    kv_plane_on_withdrawn(instance_kv_plane(role->in), NULL, NULL);
    loop_alarm_stop(&role->room);
    for (size_t i = 0; i < RECENT_MAX; i++) free(role->recent[i].req_id);
    free(role);
}

const struct role_ops decode_role = {
    .role = ROLE_DECODE,
    .needs = CAN_DECODE,
    .start = decode_start,
    .take = decode_take,
    .on_request = decode_request,
    .stop = decode_stop,
};
