/* prefill_fetch: a sequence that holds the room (SEQ_FETCH), a transfer into it, and an alarm. */
#include "prefill/prefill_fetch.h"

#include <stdlib.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/req_meter.h"
#include "common/instance/req_set.h"

enum { WAIT_MS_MIN = 200, WAIT_MS_MAX = 1000 };

struct prefill_fetch {
    struct instance *in;
    struct kv_peer *peer;
    const struct infer_req *req;
    struct req_seq *seq;
    uint32_t n_held;
    uint64_t began_us;
    struct loop_alarm late;
    prefill_fetch_fn *fn;
    void *arg;
};

/* n_blocks: that are there now, those included that were here before; 0: none came. */
static void end(struct prefill_fetch *f, enum err e, const char *text, uint32_t n_blocks) {
    const uint32_t n_came = n_blocks > f->n_held ? n_blocks - f->n_held : 0;
    prefill_fetch_fn *fn = f->fn;
    void *arg = f->arg;
    loop_alarm_stop(&f->late);
    log_info("prefill",
             "req=%s epoch=%u part=%u event=%s peer=%u blocks=%u held=%u took_us=%llu err=%s "
             "text=\"%s\"",
             f->req->head.req_id, f->req->head.epoch, f->req->head.part,
             e == ERR_OK ? "fetched" : "not_fetched", kv_peer_id(f->peer), n_came, f->n_held,
             (unsigned long long)(clock_us() - f->began_us), err_name(e), text);
    req_meters_fetch(instance_meters(f->in), e, n_came);
    if (n_came > 0)
        req_seq_keep(&f->seq, n_blocks);
    else
        req_seq_drop(&f->seq, ERR_CANCELLED, text);
    free(f);
    fn(arg, n_came);
}

static void on_late(void *arg) {
    end(arg, ERR_TIMEOUT, "to compute it takes no longer", 0);
}

/* What computing so many blocks takes here, by the last prompts; negative: there was none. */
static double compute_ms(struct instance *in, size_t n_blocks) {
    const struct engine *e = worker_engine(instance_worker(in));
    struct engine_stats st;
    engine_stats(e, &st);
    if (st.prefill_tokens_per_s <= 0) return -1;
    return 1e3 * (double)n_blocks * engine_block_tokens(e) / st.prefill_tokens_per_s;
}

/* Whether so many blocks are worth asking for. */
static bool gains(struct instance *in, size_t n_blocks) {
    const double ms = compute_ms(in, n_blocks);
    return n_blocks > 0 && (ms < 0 || ms >= (double)instance_conf(in)->kv_fetch_ms_min);
}

/* As long as computing it would take. */
static uint64_t wait_ms(const struct prefill_fetch *f, int n_blocks) {
    const double ms = compute_ms(f->in, (size_t)n_blocks);
    return ms < 0 || ms > WAIT_MS_MAX ? WAIT_MS_MAX : ms < WAIT_MS_MIN ? WAIT_MS_MIN : (uint64_t)ms;
}

static void on_admitted(void *arg, const int32_t *table, int n_blocks, int n_held, int n_cached) {
    struct prefill_fetch *f = arg;
    (void)n_cached;
    f->n_held = (uint32_t)n_held;
    if (!gains(f->in, (size_t)(n_blocks - n_held))) { /* it is here but for too little */
        end(f, ERR_OK, "", (uint32_t)n_held);
        return;
    }
    enum err e = req_seq_fetch_from(f->seq, f->peer, f->req, table, n_blocks, n_held);
    if (e != ERR_OK)
        end(f, e, err_text(e), 0);
    else
        loop_alarm_set(instance_loop(f->in), &f->late, wait_ms(f, n_blocks - n_held), on_late, f);
}

static void on_refused(void *arg, enum err e, const char *text) {
    end(arg, e, text, 0);
}

static void on_failed(void *arg, enum err e) {
    end(arg, e, err_text(e), 0);
}

static void on_received(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    end(arg, e, text, e == ERR_OK ? c->n_blocks : 0);
}

static const struct req_seq_owner owner = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_failed = on_failed,
    .on_received = on_received,
};

struct prefill_fetch *prefill_fetch_start(struct instance *in, const char *target,
                                          const struct infer_req *req, prefill_fetch_fn *fn,
                                          void *arg) {
    const size_t bt = (size_t)engine_block_tokens(worker_engine(instance_worker(in)));
    struct kv_peer *peer = target[0] != '\0' ? kv_plane_find(instance_kv_plane(in), target) : NULL;
    /* Where the log-probabilities of the prompt are asked for, all of it is computed. */
    if (peer == NULL || !kv_peer_up(peer) || req->sampling.prompt_logprobs ||
        !instance_conf(in)->prefix_cache || !gains(in, (req->n_ids - 1) / bt))
        return NULL;
    struct prefill_fetch *f = calloc(1, sizeof(*f));
    if (f == NULL) return NULL;
    *f = (struct prefill_fetch){
        .in = in, .peer = peer, .req = req, .began_us = clock_us(), .fn = fn, .arg = arg};
    f->seq = req_seq_open(req_set_seqs(instance_reqs(in)), instance_worker(in),
                          instance_endpoint(in), &owner, f);
    if (f->seq != NULL && req_seq_add(f->seq, SEQ_FETCH, req, NULL) == ERR_OK) return f;
    req_seq_drop(&f->seq, ERR_CANCELLED, "");
    free(f);
    return NULL;
}

void prefill_fetch_cancel(struct prefill_fetch **fp) {
    struct prefill_fetch *f = *fp;
    if (f == NULL) return;
    *fp = NULL;
    loop_alarm_stop(&f->late);
    req_seq_drop(&f->seq, ERR_CANCELLED, "");
    free(f);
}
