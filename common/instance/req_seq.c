/* req_seq: the table, the one function that writes a state, and what entering a state does. */
#include "common/instance/req_seq.h"

#include <stdlib.h>
#include "common/base/log.h"
#include "common/engine/lora.h"

/* clang-format off */
/* One more than the state, so that a forgotten cell (0) refuses. */
#define TO(s) ((unsigned char)(RSEQ_##s + 1))
static const unsigned char table[RSEQ_STATES][RSEQ_EVENTS] = {
    [RSEQ_OUT] = {
        [RSEQ_EV_ADDED]        = TO(QUEUED),
        [RSEQ_EV_UNLINKED]     = TO(OUT),
        [RSEQ_EV_DROPPED]      = TO(LEAVING),
        [RSEQ_EV_DROPPED_LATE] = TO(DETACHING),
    },
    [RSEQ_QUEUED] = {
        [RSEQ_EV_REFUSED]      = TO(OUT),
        [RSEQ_EV_ADMITTED]     = TO(PREFILLING),
        [RSEQ_EV_RESERVED]     = TO(IMPORTING),
        [RSEQ_EV_LENT]         = TO(HELD),
        [RSEQ_EV_FAILED]       = TO(OUT),
        [RSEQ_EV_FAILED_HELD]  = TO(HELD),
        [RSEQ_EV_UNLINKED]     = TO(QUEUED),
        [RSEQ_EV_DROPPED]      = TO(LEAVING),
        [RSEQ_EV_DROPPED_LATE] = TO(DETACHING),
    },
    [RSEQ_PREFILLING] = {
        [RSEQ_EV_TOKEN]        = TO(DECODING),
        [RSEQ_EV_COMPUTED]     = TO(HELD),
        [RSEQ_EV_FAILED]       = TO(OUT),
        [RSEQ_EV_FAILED_HELD]  = TO(HELD),
        [RSEQ_EV_UNLINKED]     = TO(PREFILLING),
        [RSEQ_EV_DROPPED]      = TO(LEAVING),
        [RSEQ_EV_DROPPED_LATE] = TO(DETACHING),
    },
    [RSEQ_IMPORTING] = {
        [RSEQ_EV_STARTED]      = TO(DECODING),
        [RSEQ_EV_FAILED]       = TO(OUT),
        [RSEQ_EV_UNLINKED]     = TO(IMPORTING),
        [RSEQ_EV_DROPPED]      = TO(LEAVING),
        [RSEQ_EV_DROPPED_LATE] = TO(DETACHING),
    },
    [RSEQ_HELD] = {
        [RSEQ_EV_STARTED]      = TO(DECODING),
        [RSEQ_EV_FAILED]       = TO(OUT),
        [RSEQ_EV_COMPUTED]     = TO(HELD), /* the next choice */
        [RSEQ_EV_FAILED_HELD]  = TO(HELD),
        [RSEQ_EV_UNLINKED]     = TO(HELD),
        [RSEQ_EV_DROPPED]      = TO(LEAVING),
        [RSEQ_EV_DROPPED_LATE] = TO(DETACHING),
    },
    [RSEQ_DECODING] = {
        [RSEQ_EV_TOKEN]        = TO(DECODING),
        [RSEQ_EV_FAILED]       = TO(OUT),
        [RSEQ_EV_DROPPED]      = TO(LEAVING),
    },
    [RSEQ_DETACHING] = { /* the engine knows nothing of it */
        [RSEQ_EV_REFUSED]      = TO(DETACHING),
        [RSEQ_EV_ADMITTED]     = TO(DETACHING),
        [RSEQ_EV_RESERVED]     = TO(DETACHING),
        [RSEQ_EV_LENT]         = TO(DETACHING),
        [RSEQ_EV_COMPUTED]     = TO(DETACHING),
        [RSEQ_EV_FAILED]       = TO(DETACHING),
        [RSEQ_EV_FAILED_HELD]  = TO(DETACHING),
        [RSEQ_EV_UNLINKED]     = TO(LEAVING),
    },
    [RSEQ_LEAVING] = {
        [RSEQ_EV_LEFT]         = TO(GONE),
    },
};
#undef TO
/* clang-format on */

enum req_seq_state req_seq_next(enum req_seq_state s, enum req_seq_event e) {
    const unsigned char to = table[s][e];
    return to == 0 ? RSEQ_STATES : (enum req_seq_state)(to - 1);
}

const char *req_seq_state_name(enum req_seq_state s) {
    static const char *const names[RSEQ_STATES] = {"out",       "queued",  "prefilling",
                                                   "importing", "held",    "decoding",
                                                   "detaching", "leaving", "gone"};
    return names[s];
}

const char *req_seq_event_name(enum req_seq_event e) {
    static const char *const names[RSEQ_EVENTS] = {
        "added",   "refused", "admitted",    "reserved", "lent",         "token",    "computed",
        "started", "failed",  "failed_held", "dropped",  "dropped_late", "unlinked", "left"};
    return names[e];
}

struct req_seq {
    struct req_seqs *count;
    struct worker *worker;
    const struct endpoint *ep;
    const struct req_seq_owner *owner; /* NULL: dropped */
    void *arg;
    uint64_t id; /* 0: the engine has never seen it */
    enum seq_kind kind;
    enum req_seq_state state;
    struct kv_tx *tx;
    struct kv_rx *rx;
    bool offered;     /* rx waits for our answer */
    bool asked;       /* tx waits for it */
    uint32_t n_keep;  /* blocks that stay in the prefix cache */
    bool linked;      /* the transfer is not over: it may work on the blocks */
    bool taken;       /* the other instance has it, so the sequence is released, not cancelled */
    bool grant_first; /* the other instance's room comes before ours */
    const struct infer_req *waiting; /* to be added when it is granted; the owner's */
};

static void step(struct req_seq *s, enum req_seq_event e);

static unsigned *winding_of(struct req_seq *s) {
    return s->kind == SEQ_PREFILL || s->kind == SEQ_LEND ? &s->count->n_winding_held
                                                         : &s->count->n_winding;
}

static void on_left(void *arg) {
    step(arg, RSEQ_EV_LEFT);
}

static void leave_engine(struct req_seq *s) {
    const bool under_way = s->n_keep > 0 ? worker_keep(s->worker, s->id, (int)s->n_keep, on_left, s)
                           : s->taken    ? worker_release(s->worker, s->id, on_left, s)
                                         : worker_cancel(s->worker, s->id, on_left, s);
    if (!under_way) step(s, RSEQ_EV_LEFT); /* it is over there already */
}

static void free_it(struct req_seq *s) {
    --*winding_of(s);
    if (s->tx != NULL) kv_tx_free(&s->tx);
    kv_rx_free(&s->rx);
    free(s);
}

/* The only writer of a state. What comes unexpectedly changes nothing; it is a fault of ours. s may
 * be gone afterwards. */
static void step(struct req_seq *s, enum req_seq_event e) {
    const enum req_seq_state was = s->state, next = req_seq_next(was, e);
    if (next == RSEQ_STATES) {
        log_error("seq", "seq=%llu event=unexpected state=%s got=%s", (unsigned long long)s->id,
                  req_seq_state_name(was), req_seq_event_name(e));
        return;
    }
    s->state = next;
    if (next == RSEQ_LEAVING)
        leave_engine(s);
    else if (next == RSEQ_GONE)
        free_it(s);
}

/* ---- what the engine says */

static void on_admitted(void *arg, uint64_t seq_id, const int32_t *blocks, int n_blocks, int n_held,
                        int n_cached) {
    struct req_seq *s = arg;
    (void)seq_id;
    step(s, s->kind == SEQ_IMPORT || s->kind == SEQ_FETCH ? RSEQ_EV_RESERVED
            : s->kind == SEQ_LEND                         ? RSEQ_EV_LENT
                                                          : RSEQ_EV_ADMITTED);
    if (s->owner == NULL) return;
    if (s->tx != NULL && !s->grant_first && !s->asked)
        kv_tx_offer(s->tx); /* nothing here can keep the other side waiting */
    s->owner->on_admitted(s->arg, blocks, n_blocks, n_held, n_cached);
}

static void on_refused(void *arg, uint64_t seq_id, enum err e, const char *text) {
    struct req_seq *s = arg;
    (void)seq_id;
    step(s, RSEQ_EV_REFUSED);
    if (s->owner != NULL) s->owner->on_refused(s->arg, e, text);
}

static void on_token(void *arg, uint64_t seq_id, const struct token_event *ev) {
    struct req_seq *s = arg;
    (void)seq_id;
    const bool staged = s->kind == SEQ_STAGED && s->state != RSEQ_DECODING;
    step(s, s->kind == SEQ_PREFILL || staged ? RSEQ_EV_COMPUTED : RSEQ_EV_TOKEN);
    if (s->owner != NULL) s->owner->on_token(s->arg, ev);
}

static void on_prompt_logprob(void *arg, uint64_t seq_id, int position,
                              const struct token_event *ev) {
    struct req_seq *s = arg;
    (void)seq_id;
    if (s->owner != NULL) s->owner->on_prompt_logprob(s->arg, position, ev);
}

/* A prefill holds its blocks until it is let go: the transfer may be reading them. */
static void on_failed(void *arg, uint64_t seq_id, enum err e) {
    struct req_seq *s = arg;
    (void)seq_id;
    step(s, s->kind == SEQ_PREFILL ? RSEQ_EV_FAILED_HELD : RSEQ_EV_FAILED);
    if (s->owner != NULL) s->owner->on_failed(s->arg, e);
}

/* The engine thread: hands over, no more. tx is set before the engine knows the sequence and
 * outlives it. */
static void on_kv(void *arg, uint64_t seq_id, const int32_t *blocks, int layer, int first, int n) {
    struct req_seq *s = arg;
    (void)seq_id;
    if (s->tx != NULL) kv_tx_ready(s->tx, blocks, layer, first, n);
}

static const struct worker_events from_engine = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_failed = on_failed,
    .on_kv = on_kv,
};

/* ---- its life */

struct req_seq *req_seq_open(struct req_seqs *count, struct worker *w, const struct endpoint *ep,
                             const struct req_seq_owner *owner, void *arg) {
    struct req_seq *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    *s = (struct req_seq){.count = count, .worker = w, .ep = ep, .owner = owner, .arg = arg};
    return s;
}

static enum err enter(struct req_seq *s, enum seq_kind kind, const struct infer_req *req,
                      struct lora *lora) {
    s->id = worker_next_seq_id(s->worker);
    struct seq_opts o = {
        .seq_id = s->id,
        .kind = kind,
        .ids = req->ids,
        .n_ids = req->n_ids,
        .n_prompt = req->n_prompt,
        .sampling = &req->sampling,
        .priority = req->head.priority,
        .tenant = worker_tenant(req),
        .prefix_salt = worker_prefix_salt(s->worker, req),
        .digest_seed = worker_digest_seed(s->worker, req),
        .lora = lora,
    };
    enum err e = ERR_OK;
    if (kind != SEQ_LEND && kind != SEQ_FETCH) e = endpoint_guide_start(s->ep, req, &o.guide);
    if (e == ERR_OK) e = worker_add(s->worker, &o, &from_engine, s);
    if (o.guide.ops != NULL) o.guide.ops->free(o.guide.state);
    if (e == ERR_OK) step(s, RSEQ_EV_ADDED);
    return e;
}

enum err req_seq_add(struct req_seq *s, enum seq_kind kind, const struct infer_req *req,
                     struct errbuf *eb) {
    struct lora *lora;
    enum err e = worker_adapter(s->worker, req, &lora, eb);
    if (e != ERR_OK) return e;
    s->kind = kind;
    if (s->grant_first) {
        s->waiting = req;
        kv_tx_offer(s->tx);
    } else {
        e = enter(s, kind, req, lora);
    }
    lora_unref(&lora);
    return e;
}

void req_seq_give(struct req_seq *s, const struct req_seq_owner *owner, void *arg) {
    s->owner = owner;
    s->arg = arg;
}

enum err req_seq_start(struct req_seq *s, const struct first_ids *first, size_t n_choices) {
    enum err e = worker_start(s->worker, s->id, first, n_choices);
    if (e == ERR_OK) step(s, RSEQ_EV_STARTED);
    return e;
}

enum err req_seq_beam_start(struct req_seq *s, const struct token_event *first, size_t n_first) {
    enum err e = worker_beam_start(s->worker, s->id, first, n_first);
    if (e == ERR_OK) step(s, RSEQ_EV_STARTED);
    return e;
}

void req_seq_choice_stop(struct req_seq *s, int choice) {
    worker_choice_stop(s->worker, s->id, choice);
}

void req_seq_pause(struct req_seq *s, bool on) {
    if (on)
        (void)worker_pause(s->worker, s->id); /* without memory it runs on */
    else
        worker_resume(s->worker, s->id);
}

enum req_seq_state req_seq_state(const struct req_seq *s) {
    return s->state;
}

/* ---- to another instance */

static void on_sent(void *arg, enum err e, const char *text, const struct kv_tx_stats *st) {
    struct req_seq *s = arg;
    const struct req_seq_owner *owner = s->owner;
    void *of = s->arg;
    s->linked = false;
    s->taken = e == ERR_OK;
    step(s, RSEQ_EV_UNLINKED); /* s may be gone, if it was dropped */
    if (owner != NULL) owner->on_sent(of, e, text, st);
}

/* There is room for it over there: now for ours. */
static void on_granted(void *arg, uint32_t n_held) {
    struct req_seq *s = arg;
    struct errbuf eb = {0};
    struct lora *lora;
    (void)n_held;
    if (s->owner == NULL || s->waiting == NULL) return;
    enum err e = worker_adapter(s->worker, s->waiting, &lora, &eb);
    if (e == ERR_OK) {
        e = enter(s, s->kind, s->waiting, lora);
        lora_unref(&lora);
    }
    s->waiting = NULL;
    if (e != ERR_OK) s->owner->on_refused(s->arg, e, eb.text[0] != '\0' ? eb.text : err_text(e));
}

enum err req_seq_send_to(struct req_seq *s, struct kv_peer *peer, const struct infer_req *req) {
    const unsigned bt = (unsigned)engine_block_tokens(worker_engine(s->worker));
    const struct kv_tx_opts o = {
        .req = req,
        .n_blocks = (uint32_t)((req->n_ids + bt - 1) / bt),
        .on_granted = on_granted,
        .on_end = on_sent,
        .arg = s,
    };
    s->grant_first = kv_peer_grants_first(peer);
    enum err e = kv_tx_open(&s->tx, peer, &o);
    s->linked = e == ERR_OK;
    return e;
}

void req_seq_patient(struct req_seq *s) {
    kv_tx_patient(s->tx);
}

void req_seq_commit(struct req_seq *s, struct kv_commit *c) {
    kv_tx_commit(s->tx, c);
}

/* ---- from another instance */

static void on_received(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    struct req_seq *s = arg;
    const struct req_seq_owner *owner = s->owner;
    void *of = s->arg;
    s->linked = false;
    step(s, RSEQ_EV_UNLINKED); /* s may be gone, if it was dropped */
    if (owner != NULL) owner->on_received(of, e, text, c);
}

void req_seq_take_offer(struct req_seq *s, struct kv_rx *rx) {
    s->rx = rx;
    s->offered = true;
    s->kind = SEQ_IMPORT;
}

enum err req_seq_grant(struct req_seq *s, const int32_t *blocks, int n_blocks, int n_held) {
    enum err e = kv_rx_grant(s->rx, blocks, n_blocks, n_held, on_received, s);
    s->linked = e == ERR_OK;
    s->offered = e != ERR_OK;
    return e;
}

bool req_seq_is_offered(const struct req_seq *s) {
    return s->offered;
}

bool req_seq_is_linked(const struct req_seq *s) {
    return s->linked || s->offered;
}

/* ---- blocks of a request that has moved */

enum err req_seq_fetch_from(struct req_seq *s, struct kv_peer *peer, const struct infer_req *req,
                            const int32_t *blocks, int n_blocks, int n_held) {
    enum err e = kv_rx_fetch(&s->rx, peer, req, blocks, n_blocks, n_held, on_received, s);
    s->linked = e == ERR_OK;
    return e;
}

void req_seq_keep(struct req_seq **sp, uint32_t n_blocks) {
    (*sp)->n_keep = n_blocks;
    req_seq_drop(sp, ERR_OK, "");
}

void req_seq_take_fetch(struct req_seq *s, struct kv_tx *tx) {
    s->tx = tx;
    s->asked = true;
    s->kind = SEQ_LEND;
}

enum err req_seq_lend(struct req_seq *s, const int32_t *blocks, int n_blocks) {
    enum err e = kv_tx_lend(s->tx, blocks, n_blocks, on_sent, s);
    s->linked = e == ERR_OK;
    s->asked = e != ERR_OK;
    return e;
}

/* ---- the end */

static void give_up(struct req_seq *s) {
    s->owner = NULL;
    ++*winding_of(s);
    step(s, s->linked ? RSEQ_EV_DROPPED_LATE : RSEQ_EV_DROPPED);
}

void req_seq_send_away(struct req_seq **sp, unsigned retry_after_ms) {
    struct req_seq *s = *sp;
    *sp = NULL;
    kv_rx_busy(&s->rx, retry_after_ms);
    give_up(s);
}

void req_seq_drop(struct req_seq **sp, enum err why, const char *text) {
    struct req_seq *s = *sp;
    if (s == NULL) return;
    *sp = NULL;
    if (s->linked && s->tx != NULL)
        kv_tx_cancel(s->tx);
    else if (s->linked)
        kv_rx_cancel(s->rx, why, text);
    else if (s->offered)
        kv_rx_refuse(&s->rx, why, text);
    else if (s->asked)
        kv_tx_decline(&s->tx, why, text);
    give_up(s);
}
