/* kv_plane: all KV links of an instance (design 6, cluster-api 5.3, 5.4; docs/wire-kv-link.md) over
 * nanomsg. One PAIR socket per pair of instances, for hand-overs in either direction that their
 * roles allow; the instance's listener (a TCP socket of its own at interCommPort) gives a wanted
 * peer, known by its address and port, the port and a one-time ticket of its PAIR, so a stranger
 * cannot occupy it. The one with the lower id connects, whatever their roles. State comes from
 * hellos and heartbeats; the socket's own word only ever ends a link early.
 *
 * Thread: the loop thread, except kv_tx_ready(). One I/O thread of its own talks to nanomsg.
 * Callbacks come on the loop thread, never from inside a call, except that kv_plane_close() runs
 * the on_end of transfers that still live. Order at the end: roles stop, then kv_plane_close(),
 * then worker_close(). A process must not fork after kv_plane_open(). */
#ifndef BATON_INSTANCE_KV_PLANE_H
#define BATON_INSTANCE_KV_PLANE_H

#include "common/engine/engine.h"
#include "common/net/loop.h"
#include "proto/kv_fit.h"
#include "proto/kv_frame.h"
#include "proto/role_msg.h"
#include "proto/status_msg.h"

struct kv_plane;
struct tls;
struct budget;
struct kv_peer; /* lives as long as the plane */

struct kv_plane_opts {
    struct loop *loop;
    const char *bind_ip; /* of the listener and the pairs: the interComm address, never all-zero */
    uint16_t port;       /* interCommPort; 0: the kernel picks one, see kv_plane_port() */
    struct tls *tls;     /* seals every link, and refuses plain peers; NULL: none. Referenced */
    struct budget *budget; /* BUDGET_KV_LISTENER, BUDGET_KV_LENDS; borrowed, and outlives every
                              transfer; NULL: no limits */

    /* What must be the same on both sides of a link. */
    uint8_t conf_hash[KV_HASH_BYTES], model_hash[KV_HASH_BYTES], tokenizer_hash[KV_HASH_BYTES];
    uint32_t n_layers, n_kv_heads, head_dim, block_tokens;
    enum dtype kv_dtype, weight_dtype;
    const char *arithmetic; /* of the kernels, static; NULL: "" */
    uint8_t may_differ;     /* but for these: bits of enum kv_may_differ */

    /* Where the blocks are: one layer of one block, block_bytes long. Any thread. */
    uint8_t *(*block)(const void *memory, int layer, int32_t block);
    const void *memory;
    size_t block_bytes;
    /* For heartbeats; any thread; may be NULL. */
    void (*load)(const void *memory, uint64_t *free_blocks, uint32_t *queue_len);

    size_t inflight_bytes_max;         /* KV bytes under way and not acknowledged, per peer */
    unsigned heartbeat_ms, misses_max; /* so many silent periods: the link has failed */
    unsigned lease_ms; /* a request neither renewed by a heartbeat nor moved on for so long is given
                          up */
    unsigned settle_ms;  /* a peer not linked after so long shows as failed (tries go on) */
    unsigned connect_ms; /* one attempt: listener, hello */
    /* Between attempts at a failed link: doubled each time, up to backoff_ms_max, which is how long
     * a link stays away after its network has come back; up to mismatch_ms_max where the two do not
     * fit together, which only a restart changes. */
    unsigned backoff_ms, backoff_ms_max, mismatch_ms_max;
    unsigned trans_ms; /* kv_trans_timeout: D completes a committed request in this time or gives it
                          up */
    unsigned handover_ms; /* P waits so long for room on D */
    /* The side that prefills measures the round trip of a link so long after it has come up, and
     * each ten times as long; where nothing went over any link for 15 times as long, its bandwidth
     * too, with little filler, and again after 60 times as long. 0: never. */
    unsigned idle_ms;

    /* The wanted set has no link in progress (n_ok of n_wanted). Comes after every kv_plane_want()
     * and whenever it becomes so. */
    void (*on_settled)(void *arg, unsigned n_ok, unsigned n_wanted);
    void (*on_link)(void *arg, struct kv_peer *peer, bool up);
    void *arg;
};

/* Times and sizes of the product; the caller fills in the rest. */
void kv_plane_opts_default(struct kv_plane_opts *o);
/* Shape, hash and block memory of an engine, which must outlive the plane. */
void kv_plane_opts_of_engine(struct kv_plane_opts *o, const struct engine *e);

/* Opens the listener and starts the I/O thread. ERR_CONFLICT: the port is taken (eb names it). */
enum err kv_plane_open(struct kv_plane **out, const struct kv_plane_opts *o, struct errbuf *eb);
/* Transfers that live end now; their kv_tx and kv_rx are still to be freed, then or later. */
void kv_plane_close(struct kv_plane **kp);
uint16_t kv_plane_port(const struct kv_plane *kp);

/* ---- links */

/* The wanted set of peers, as the last role body gave it: peers not in it are unlinked, new ones
 * are linked, failed ones are tried again at once. can: what this instance can do (role.h), 0 wants
 * nobody; a link comes up where one side prefills and the other decodes. The lower id connects, the
 * other waits; towards a peer without an id who only prefills connects. Another id, or nothing in
 * common with what it could before, begins every link anew. Links settle in the background; see
 * on_settled. A node without inter_comm_port has its listener at the own port number.
 */
enum err kv_plane_want(struct kv_plane *kp, unsigned can, uint32_t self_id,
                       const struct role_node *peers, size_t n_peers);
/* Link states for /v1/status: *links is malloc'd, the caller frees. Links in progress are not
 * listed. */
size_t kv_plane_links(const struct kv_plane *kp, struct link_status **links);
void kv_plane_counts(const struct kv_plane *kp, unsigned *n_wanted, unsigned *n_ok,
                     unsigned *n_failed, unsigned *n_linking);

/* "ip" or "ip;port" as header d-target has it, port being the peer's interCommPort: the wanted peer
 * of that address, a linked one first. NULL: none. */
struct kv_peer *kv_plane_find(const struct kv_plane *kp, const char *target);
/* Whether target names this instance itself. */
bool kv_plane_is_self(const struct kv_plane *kp, const char *target);
struct kv_peer *kv_plane_find_id(const struct kv_plane *kp, uint32_t id);
uint32_t kv_peer_id(const struct kv_peer *p);
bool kv_peer_up(const struct kv_peer *p);
/* A transfer to it took so long: what the link can do is the best of the last ones, as one that
 * waits for the prompt's computing says too little. */
void kv_peer_note_rate(struct kv_peer *p, uint64_t bytes, uint64_t us);
const char *kv_peer_text(
    const struct kv_peer *p); /* "ok", "linking", "failed : 11: why"; for logs and error texts */

/* ---- how fast a link is, for who asks; some tens of megabytes of filler go over it */
struct kv_measured {
    uint64_t bytes; /* of filler */
    double seconds; /* that it took, the last echo included */
    double rtt_s;   /* the least of some round trips */
};
typedef void kv_measured_fn(void *arg, enum err e, const char *text, const struct kv_measured *m);
/* One at a time: ERR_BUSY. ERR_PEER_LOST: not linked. fn comes once, unless the plane closes
 * before: ERR_OK, ERR_PEER_LOST, ERR_TIMEOUT; text says more. */
enum err kv_plane_measure(struct kv_plane *kp, struct kv_peer *peer, kv_measured_fn *fn, void *arg);

/* ---- the prefill side: one transfer per attempt of a request */
struct kv_tx;

struct kv_tx_stats {
    uint64_t bytes;       /* of KV that went over the link */
    uint64_t transfer_us; /* first frame to ACK; 0 when no block had to be sent */
    uint64_t exposed_us;  /* kv_tx_commit() to ACK: what the client waits for the transfer */
    uint32_t n_blocks, n_held;
    uint32_t n_repaired; /* blocks of a layer sent a second time */
};

struct kv_tx_opts {
    const struct infer_req *req;                    /* one part; packed during the call */
    uint32_t n_blocks;                              /* blocks that hold req->ids */
    void (*on_granted)(void *arg, uint32_t n_held); /* may be NULL */
    /* Exactly once, unless kv_tx_open() failed. After it no block is read. ERR_OK: the request is
     * D's. ERR_BUSY: D had no room in handover_ms. ERR_MISMATCH: D has not the request's
     * adapter. ERR_TOO_LARGE: D can never have room for it. ERR_STOPPING: D is being
     * stopped. ERR_REFUSED, ERR_PEER_LOST, ERR_TIMEOUT
     * (lease), ERR_CANCELLED: text says more. */
    void (*on_end)(void *arg, enum err e, const char *text, const struct kv_tx_stats *st);
    void *arg;
};

/* Begins a transfer of which D knows nothing yet; it ends with the link. ERR_PEER_LOST: not linked.
 * ERR_TOO_LARGE: the offer or its commit does not fit into a frame. */
enum err kv_tx_open(struct kv_tx **out, struct kv_peer *peer, const struct kv_tx_opts *o);
/* Whose room a prompt for peer takes first: false: ours, and then it is offered; true: what peer
 * grants, and then ours. What is granted is held until P has computed it, and P's blocks until D
 * has them, so one who has the one waits for the other. Between instances that only prefill and
 * those that only decode it is ours first: D's are held by nobody who waits. Two that do both could
 * wait for each other; so all of them take the room of the lower id first, and those who wait stand
 * in one row. */
bool kv_peer_grants_first(const struct kv_peer *peer);
/* Offers the request to D, and again while D is busy. Once; when the blocks here are reserved, or
 * before that where kv_peer_grants_first(). */
void kv_tx_offer(struct kv_tx *tx);
/* D has other parts of the request, whose end makes room for this one: handover_ms does not bound
 * the wait any more. */
void kv_tx_patient(struct kv_tx *tx);
/* Blocks [0, first + n) of the sequence are final in this layer. table: [n_blocks] pool numbers;
 * must stay as they are until on_end. ANY thread, one at a time; never blocks. May come before the
 * offer. */
void kv_tx_ready(struct kv_tx *tx, const int32_t *table, int layer, int first, int n);
/* The first tokens exist: *c (tokens, times, prompt_logprobs, prompt_tops; the rest is filled in
 * here) goes to D behind the last block. Takes its arrays and clears *c. Once. */
void kv_tx_commit(struct kv_tx *tx, struct kv_commit *c);
void kv_tx_cancel(struct kv_tx *tx); /* on_end follows: ERR_CANCELLED, or what came first */
/* After on_end, when kv_tx_ready() cannot be called any more. Clears *tx. */
void kv_tx_free(struct kv_tx **tx);

/* ---- the decode side */
struct kv_rx;

/* A request is offered. req is the callee's. The callee answers, now or later, with exactly one of
 * kv_rx_grant, kv_rx_busy, kv_rx_refuse. Without a callee every offer is refused. */
typedef void kv_offer_fn(void *arg, struct kv_peer *peer, struct kv_rx *rx, struct infer_req *req,
                         uint32_t n_blocks);
void kv_plane_on_offer(struct kv_plane *kp, kv_offer_fn *fn, void *arg);
/* An offer ended before its answer: P took it back, or is gone. The callee still answers it, and
 * may have done so meanwhile. Hears nothing while there is no kv_offer_fn. */
typedef void kv_withdrawn_fn(void *arg, const struct kv_key *key);
void kv_plane_on_withdrawn(struct kv_plane *kp, kv_withdrawn_fn *fn, void *arg);

/* Blocks [n_held, rx's n_blocks) of table are written from now on until on_end. on_end comes
 * exactly once: ERR_OK with the commit (lives during the call, its arrays too) when every
 * block of every layer is there and verified and P has been told so; otherwise ERR_CANCELLED (by P
 * or by kv_rx_cancel), ERR_PEER_LOST, ERR_TIMEOUT, ERR_NO_MEMORY, ERR_IO ("Pull kv failed
 * irreversibly."). */
typedef void kv_rx_end_fn(void *arg, enum err e, const char *text, const struct kv_commit *c);
enum err kv_rx_grant(struct kv_rx *rx, const int32_t *table, int n_table, int n_held,
                     kv_rx_end_fn *on_end, void *arg);
void kv_rx_busy(struct kv_rx **rx, unsigned retry_after_ms);
void kv_rx_refuse(struct kv_rx **rx, enum err code, const char *text);
/* After kv_rx_grant. P hears text, and whether the request was stopped (why ERR_CANCELLED: its
 * transfer ends so) or is only not wanted here (ERR_REFUSED there). */
void kv_rx_cancel(struct kv_rx *rx, enum err why, const char *text);
void kv_rx_free(struct kv_rx **rx); /* after on_end */

/* ---- blocks of a request that has moved: from the decode instance it left to the prefill instance
 * of its next attempt, over the link between the two. Nothing depends on it: whoever asks computes
 * what does not come. */

/* P: asks peer for the full blocks before the last of req's ids: [n_held, n_table) of table are
 * written from now on until on_end, which comes exactly once: ERR_OK with a commit of which only
 * n_blocks is meant: so many leading blocks are there, checked like those of a hand-over. Otherwise
 * ERR_REFUSED (text says why), ERR_CANCELLED, ERR_PEER_LOST, ERR_TIMEOUT, ERR_NO_MEMORY. No block
 * is asked for a second time: one that was damaged on the way never ends this by itself, so the
 * caller bounds its wait with kv_rx_cancel(). Errors as kv_tx_open(). */
enum err kv_rx_fetch(struct kv_rx **out, struct kv_peer *peer, const struct infer_req *req,
                     const int32_t *table, int n_table, int n_held, kv_rx_end_fn *on_end,
                     void *arg);
/* D: a peer asks. req is the callee's, n_blocks what it asks for. The callee answers, now or later,
 * with exactly one of kv_tx_lend() and kv_tx_decline(). Without a callee all are declined. */
typedef void kv_fetch_fn(void *arg, struct kv_peer *peer, struct kv_tx *tx, struct infer_req *req,
                         uint32_t n_blocks);
void kv_plane_on_fetch(struct kv_plane *kp, kv_fetch_fn *fn, void *arg);
/* Blocks [0, n_table) of table are read from now on until on_end (as kv_tx_opts has it), for
 * KV_LEND_MS at most. */
enum { KV_LEND_MS = 2000 };
enum err kv_tx_lend(struct kv_tx *tx, const int32_t *table, int n_table,
                    void (*on_end)(void *arg, enum err e, const char *text,
                                   const struct kv_tx_stats *st),
                    void *arg);
void kv_tx_decline(struct kv_tx **tx, enum err code, const char *text);

/* ---- what was seen on the links since the plane opened; any thread */
struct kv_plane_stats {
    uint64_t n_frames_in, n_frames_out, bytes_in, bytes_out;
    uint64_t n_corrupt;      /* CRC or length wrong */
    uint64_t n_repeated;     /* frames or blocks that were there already */
    uint64_t n_lost;         /* frames missing in the count of a link */
    uint64_t n_stale;        /* of an older or other epoch of a request */
    uint64_t n_unknown;      /* of a request that is not live here */
    uint64_t n_out_of_range; /* layer, block or length not as granted */
    uint64_t n_protocol;     /* well-formed, but not allowed in this state */
    uint64_t n_strangers;    /* at the listener or on a pair without a right ticket */
    uint64_t n_pulls, n_leases_expired;
    uint64_t inflight_bytes_peak; /* largest unacknowledged amount towards one peer */
};
void kv_plane_stats(const struct kv_plane *kp, struct kv_plane_stats *out);

#endif
