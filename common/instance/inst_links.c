/* inst_links: opens the KV plane with the engine's shape and the configured limits, and passes its
 * events on. */
#include "common/instance/inst_links.h"

#include <string.h>
#include "common/base/log.h"
#include "common/instance/inst_internal.h"

static void on_settled(void *arg, unsigned n_ok, unsigned n_wanted) {
    struct instance *in = arg;
    (void)n_wanted;
    enum role_status was = role_ctl_status(in->role_ctl);
    role_ctl_on_settled(in->role_ctl, n_ok);
    if (role_ctl_status(in->role_ctl) != was) dresult_out_note(in->dresult, "role");
}

static void on_link(void *arg, struct kv_peer *peer, bool up) {
    struct instance *in = arg;
    (void)peer;
    dresult_out_note(in->dresult, up ? "link up" : "link down");
}

enum err inst_links_open(struct instance *in, struct errbuf *eb) {
    const struct inst_conf *c = &in->conf;
    struct kv_plane_opts o;
    kv_plane_opts_default(&o);
    kv_plane_opts_of_engine(&o, worker_engine(in->worker));
    memcpy(o.tokenizer_hash, tokenizer_hash(in->tokenizer), sizeof(o.tokenizer_hash));
    /* Where answers differ by the weights anyway, the kernels need not agree. */
    if (c->allow_mixed_weight_dtype) o.may_differ |= KV_MAY_WEIGHTS | KV_MAY_ARITHMETIC;
    if (c->allow_mixed_isa) o.may_differ |= KV_MAY_ARITHMETIC;
    o.loop = in->loop;
    o.bind_ip = c->ip;
    o.port = (uint16_t)c->inter_comm_port;
    o.tls = in->tls.plane[INST_PLANE_CLUSTER];
    if (o.tls == NULL)
        log_warn("start", "event=plain_kv_links why=\"ServerConfig.interCommTLSEnabled is false\"");
    o.budget = &in->budget;
    o.inflight_bytes_max = (size_t)c->kv_inflight_mib << 20;
    o.heartbeat_ms = (unsigned)c->kv_heartbeat_ms;
    o.lease_ms = (unsigned)c->kv_lease_s * 1000;
    /* When a peer that is not there shows as failed; tries go on, so a long kv_link_timeout would
     * only hide it. */
    if (c->kv_link_timeout_s * 1000 < (int64_t)o.settle_ms)
        o.settle_ms = (unsigned)c->kv_link_timeout_s * 1000;
    o.trans_ms = (unsigned)c->kv_trans_timeout_s * 1000;
    o.handover_ms = (unsigned)c->handover_timeout_s * 1000;
    o.on_settled = on_settled;
    o.on_link = on_link;
    o.arg = in;
    enum err e = kv_plane_open(&in->kv_plane, &o, eb);
    if (e != ERR_OK) return e;
    e = kv_lends_create(&in->lends, in);
    return e == ERR_OK ? e : err_set(eb, e, "%s", err_text(e));
}

void inst_links_close(struct instance *in) {
    kv_lends_destroy(&in->lends);
    kv_plane_close(&in->kv_plane);
}
