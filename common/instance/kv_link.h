/* kv_link: the inside of kv_plane, shared by its files only.
 *
 *   kv_plane.c  the loop thread's side: wanted peers, the calls of roles, delivery of events
 *   kv_fetch.c  the same of fetches: blocks of a request that has moved
 *   kv_io.c     the I/O thread: poll, commands, frames in and out of pipes
 *   kv_listener.c   where a link begins: who asks, who is told where its pair is
 *   kv_link.c   life of a link: hellos, heartbeats, failure and back-off
 *   kv_auth.c   the TLS handshake of a sealed link;  kv_seal.c  the seal of its frames
 *   kv_send.c   transfers out of this instance, which prefills
 *   kv_recv.c   transfers into it, which decodes
 *   kv_measure.c   how fast a link is
 *
 * Two threads share no state but the lists in `struct kv_plane` under its mutex and the atomics:
 * the loop thread sends commands, the I/O thread sends events (mailbox), and what a command or
 * event points to belongs to its receiver. Commands about a transfer live inside it, so that ending
 * one never needs memory. */
#ifndef BATON_INSTANCE_KV_LINK_H
#define BATON_INSTANCE_KV_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include "common/base/budget.h"
#include "common/base/silence.h"
#include "common/instance/kv_plane.h"
#include "common/instance/kv_seal.h"
#include "common/instance/mailbox.h"
#include "common/net/tls.h"

enum {
    KV_RECV_BURST = 16, /* frames taken from one link before the others have their turn */
    KV_SEND_BURST = 16,
    KV_CONTROL_FRAMES_MAX = 65536, /* queued towards one peer; over it the link fails */
    KV_DYING_MS = 200,             /* a retired pipe has so long to send its last words */
    KV_SOFT_RETRY_MS = 100,        /* between attempts while a link settles */
    KV_STRANGERS_MAX = 64,         /* connections at the listener from addresses of no peer */
    KV_STRANGERS_PER_IP_MAX = 16,
    KV_STRANGER_MS = 1000, /* one of them may stay so long */
    KV_ASK_MS = 800,       /* for the listener's answer. Shorter than TCP's second SYN, so that one
                              that was lost in a crowd costs less than a second */
    KV_ASK_BYTES_MAX = 64,
    KV_ANSWER_BYTES_MAX = 512,
    KV_LENDS_MAX = 256, /* fetches of all peers that are under way here (BUDGET_KV_LENDS) */
};

/* ---- commands: loop thread to I/O thread */
enum kv_cmd_kind {
    KV_CMD_ROLE,
    KV_CMD_LINK,
    KV_CMD_UNLINK,
    KV_CMD_RETRY,
    KV_CMD_MEASURE,
    KV_CMD_TX_OPEN,
    KV_CMD_TX_OFFER,
    KV_CMD_TX_COMMIT,
    KV_CMD_TX_CANCEL,
    KV_CMD_TX_FREE,
    KV_CMD_TX_LEND,
    KV_CMD_TX_DECLINE,
    KV_CMD_RX_GRANT,
    KV_CMD_RX_BUSY,
    KV_CMD_RX_REFUSE,
    KV_CMD_RX_CANCEL,
    KV_CMD_RX_FREE,
    KV_CMD_RX_FETCH,
};
struct kv_cmd {
    struct kv_cmd *next;
    enum kv_cmd_kind kind;
    struct kv_peer *peer; /* a name: the I/O thread looks at nothing of it but n_lends */
    struct kv_tx *tx;
    struct kv_rx *rx;
};
struct kv_link_cmd { /* KV_CMD_ROLE to KV_CMD_MEASURE; malloc'd, freed by the I/O thread */
    struct kv_cmd cmd;
    unsigned can;
    uint32_t self_id;
    uint32_t gen, id;
    char ip[16], host_ip[16];
    uint16_t port;
};

/* ---- events: I/O thread to loop thread */
enum kv_event_kind {
    KV_EV_LINK,
    KV_EV_SETTLE,
    KV_EV_MEASURED,
    KV_EV_OFFER,
    KV_EV_WITHDRAWN,
    KV_EV_FETCH,
    KV_EV_TX_GRANTED,
    KV_EV_TX_END,
    KV_EV_RX_END
};
struct kv_event {
    struct mail head;
    enum kv_event_kind kind;
    struct kv_peer *peer;
    uint32_t gen;
    bool up;
    enum err e;
    char code[32]; /* KV_EV_LINK: "11", "pull kv failed." */
    char text[KV_TEXT_BYTES_MAX + 1];
    struct kv_tx *tx;
    struct kv_rx *rx;
    struct infer_req *req;
    uint32_t n_blocks; /* KV_EV_OFFER, KV_EV_FETCH */
    struct kv_key key; /* KV_EV_WITHDRAWN: its kv_rx may be gone by then */
    uint32_t n_held;   /* KV_EV_TX_GRANTED */
    struct kv_tx_stats stats;
    struct kv_measured measured;
    bool idle; /* KV_EV_MEASURED: nobody asked for it */
};

/* ---- the I/O thread's objects */
struct kv_msg { /* a control frame on its way out */
    struct kv_msg *next;
    void *message;
    size_t n;
    bool plain; /* on a sealed pipe: part of the handshake, or why there is none */
};

enum kv_pipe_state { PIPE_NONE, PIPE_TLS, PIPE_AWAIT_HELLO, PIPE_AWAIT_OK, PIPE_OPEN };
struct kv_pipe {          /* one PAIR socket */
    struct kv_pipe *next; /* of the dying */
    int sock;
    enum kv_pipe_state state;
    bool bound;    /* the side that waits */
    uint16_t port; /* of a bound one */
    uint64_t ticket, deadline_ms;
    uint64_t window_bytes;              /* as the peer's hello says */
    uint32_t seq_out, seq_in;           /* of plain frames */
    struct tls_session *tls;            /* while the handshake runs */
    struct kv_seal *seal_out, *seal_in; /* after it: NULL on a plain link */
    uint32_t n_corrupt;                 /* damaged data frames not yet seen as a gap in seq_in */
    void *stuck;                        /* finished, but the socket was full */
    size_t stuck_bytes;
    struct kv_msg *first, **last;
    size_t n_queued;
    bool failed; /* a frame could not be queued or sealed */
};
/* Bytes a finished frame grows by when its check becomes a seal. */
static inline size_t kv_pipe_tag_growth(const struct kv_pipe *p) {
    return p->seal_out != NULL ? KV_SEAL_BYTES - KV_CRC_BYTES : 0;
}

struct kv_guest { /* at the listener: a connection whose question is not whole yet */
    struct kv_guest *next;
    int fd;
    char ip[16]; /* where it comes from */
    uint16_t port;
    bool stranger; /* from the address of no peer */
    uint64_t until_ms;
    size_t n;
    uint8_t bytes[KV_ASK_BYTES_MAX];
};

struct kv_ruler {  /* a measurement of a link: kv_measure.c */
    bool on, idle; /* idle: nobody asked for it, and a transfer ends it */
    uint32_t n_pings, n_frames, frame_bytes, under_way;
    uint32_t first;            /* number of its first probe */
    uint32_t n_sent, n_echoed; /* of its probes */
    uint32_t n_stale;          /* probes before those whose echoes are still to come */
    uint64_t sent_us, began_us,
        rtt_us; /* the last probe; the first with filler; the least so far */
    uint64_t deadline_ms;
};

struct kv_link { /* one wanted peer */
    struct kv_link *next;
    struct kv_peer *peer;
    uint32_t gen, id;
    char ip[16], host_ip[16];
    uint16_t port;
    bool up, declared; /* declared: the loop knows an outcome of the present attempt series */
    uint64_t began_ms; /* of the series */
    uint64_t next_try_ms, try_deadline_ms;
    unsigned backoff_ms;
    int ask_fd; /* who connects: the question at the listener; -1: none */
    bool asked;
    unsigned n_crossed; /* in a row: questions that met one of the other side */
    size_t n_answer;
    uint8_t answer[KV_ANSWER_BYTES_MAX];
    struct kv_pipe *pipe;   /* up */
    struct kv_pipe *fresh;  /* in hello */
    struct silence silence; /* of the peer */
    uint64_t beat_ms;
    char differs[KV_TEXT_BYTES_MAX + 1];  /* between the two, by leave of both */
    uint64_t window_bytes;                /* what the peer lets come */
    uint64_t sent_bytes, acked_bytes;     /* P: of data frames */
    uint64_t taken_bytes, credited_bytes; /* D */
    struct kv_tx *tx;
    struct kv_rx *rx;
    struct kv_ruler ruler;
    uint64_t up_ms, quiet_ms;  /* since when; since when nothing went */
    uint64_t ping_ms, fill_ms; /* the next round trips; the next filler */
};

/* TX_ASKED: a peer wants it, and the loop has not answered yet. */
enum kv_tx_state { TX_NEW, TX_OFFERED, TX_BUSY, TX_GRANTED, TX_COMMITTED, TX_ASKED, TX_ENDED };
struct kv_tx {
    struct kv_plane *kp;
    struct kv_peer *peer;
    /* loop thread */
    struct kv_tx_opts cb;
    bool over; /* on_end has run */
    struct kv_cmd open_cmd, offer_cmd, commit_cmd, cancel_cmd, free_cmd;
    bool offered, committed, cancelled;
    uint32_t gen;
    _Atomic bool patient; /* kv_tx_patient(); the I/O thread reads it */
    /* set before the I/O thread knows it */
    struct kv_key key;
    uint32_t n_blocks;
    struct wr offer;
    struct kv_commit commit; /* given by KV_CMD_TX_COMMIT */
    int32_t *lent_table;     /* with KV_CMD_TX_LEND, KV_CMD_TX_DECLINE */
    uint32_t n_lent;
    enum err decline_code;
    char decline_text[KV_TEXT_BYTES_MAX + 1];
    uint64_t commit_us;
    /* I/O thread */
    struct kv_tx *next;
    struct kv_link *link;
    enum kv_tx_state state;
    bool has_commit;
    bool lent;            /* for a peer that fetches: neither offer nor commit */
    enum err end;         /* why it ended before the answer came */
    uint64_t deadline_ms; /* of the grant */
    uint64_t retry_ms, lease_until_ms, first_frame_us;
    uint32_t n_held;
    struct kv_range *pulls; /* asked for again */
    size_t n_pulls, n_pulls_done;
    bool was_pulled;
    uint64_t data_bytes; /* sent, repairs not counted */
    uint32_t turn;       /* layer to look at first */
    uint32_t *sent;      /* [n_layers]: blocks [0, sent) are out or held */
    struct kv_tx_stats stats;
    /* the thread that computes writes, the I/O thread reads */
    _Atomic(const int32_t *) table;
    _Atomic uint32_t ready[]; /* [n_layers]: blocks [0, ready) are final */
};

/* RX_FETCHING: asked for, and not answered yet. */
enum kv_rx_state { RX_OFFERED, RX_FETCHING, RX_GRANTED, RX_COMMITTED, RX_ENDED };
struct kv_rx {
    struct kv_plane *kp;
    /* loop thread */
    kv_rx_end_fn *on_end;
    void *arg;
    bool cancelled;
    struct kv_cmd answer_cmd, cancel_cmd, free_cmd;
    /* given with the answer */
    int32_t *table; /* [n_blocks] */
    uint32_t n_held;
    uint32_t retry_after_ms;
    enum err answer_code, cancel_why;
    char answer_text[KV_TEXT_BYTES_MAX + 1], cancel_text[KV_TEXT_BYTES_MAX + 1];
    struct kv_peer *peer; /* of a fetch, with what asks for it */
    uint32_t gen;
    struct wr ask;
    /* I/O thread */
    struct kv_rx *next;
    struct kv_link *link; /* NULL once ended */
    enum kv_rx_state state;
    bool fetched; /* a fetch: it ends with its last block */
    bool granted; /* the loop's owner waits for on_end */
    enum err end; /* why it ended before the answer came */
    struct kv_key key;
    uint32_t n_blocks;
    uint64_t lease_until_ms, deadline_ms;
    uint64_t n_missing; /* (layer, block) pairs not yet there */
    uint8_t *have;      /* bitmap [n_layers][n_blocks] */
    bool has_commit, pulled;
    struct kv_commit commit;
};

struct kv_counters {
    _Atomic uint64_t n_frames_in, n_frames_out, bytes_in, bytes_out, n_corrupt, n_repeated, n_lost,
        n_stale, n_unknown, n_out_of_range, n_protocol, n_strangers, n_pulls, n_leases_expired,
        inflight_bytes_peak;
};

struct kv_peer { /* loop thread, but for n_lends */
    struct kv_peer *next;
    struct kv_plane *kp;
    uint32_t id, gen;
    char ip[16], host_ip[16];
    uint16_t port;
    bool wanted, up, failed;
    char text[48];                     /* "ok", "linking", "failed : 11" */
    char full[KV_TEXT_BYTES_MAX + 64]; /* with the reason */
    unsigned n_lends;                  /* I/O thread: fetches of its that are under way */
    double bytes_per_s;                /* kv_peer_note_rate(); 0: nothing was sent yet */
    double idle_bytes_per_s;           /* of filler, kv_measure.c; 0: not yet */
    uint64_t rtt_us;                   /* of the link that stands; 0: not yet */
};

struct kv_plane {
    struct kv_plane_opts o;
    char bind_ip[16];
    uint16_t port;
    uint64_t boot;
    struct mailbox *mail;
    struct mail *reserve; /* I/O thread: room for events when there is no other memory */
    unsigned n_reserved;
    pthread_t thread;
    bool started;
    int wake_fd;
    struct kv_counters count;
    atomic_uint n_refs; /* the plane's own and one of each transfer: kv_tx_ready() may come after
                           the close */
    atomic_bool poked;  /* wake_fd has been written and not yet read */

    pthread_mutex_t mutex; /* guards cmds and stop */
    struct kv_cmd *cmds, **cmds_last;
    bool stop;

    /* loop thread */
    struct kv_peer *peers;
    unsigned can;
    uint32_t self_id;
    kv_offer_fn *on_offer;
    void *on_offer_arg;
    kv_withdrawn_fn *on_withdrawn;
    void *on_withdrawn_arg;
    kv_fetch_fn *on_fetch;
    void *on_fetch_arg;
    kv_measured_fn *on_measured; /* of the measurement under way; NULL: none is */
    void *on_measured_arg;
    bool closing, closed;

    /* I/O thread */
    int listener;            /* a listening socket of our own: nanomsg would take in everybody */
    struct kv_guest *guests; /* oldest first */
    size_t n_strangers;
    bool said_unguarded;
    uint64_t listener_said_ms; /* when the log last said so: */
    uint64_t listener_rest_ms; /* no descriptor was left: nobody is taken in before */
    unsigned io_can;
    uint32_t io_self_id;
    struct kv_link *links;
    struct kv_pipe *dying;
    uint64_t due_ms;                /* something wants a tick sooner than the next regular one */
    uint64_t moved_bytes, moved_ms; /* of all links, and when that was seen to change */
    bool rested;                    /* since then heap_trim() was called */
    uint64_t fill_ms;               /* kv_measure.c: no filler on an idle link before */
    struct wr scratch;              /* one control frame at a time */
    struct pollfd *polls;
    size_t polls_cap;
};

/* ---- kv_measure.c */
void kv_measure_begin(struct kv_plane *kp, const struct kv_peer *peer, struct kv_link *l);
void kv_measure_end(struct kv_plane *kp, struct kv_link *l, enum err e, const char *text);
void kv_measure_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms);
void kv_measure_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f);
void kv_measure_deliver(struct kv_plane *kp, const struct kv_event *ev); /* loop thread */

/* ---- kv_plane.c */
enum err kv_link_command_send(struct kv_plane *kp, enum kv_cmd_kind kind, const struct kv_peer *p);
void kv_command(struct kv_plane *kp, struct kv_cmd *c); /* loop thread; takes c */
void kv_ref(struct kv_plane *kp);
void kv_unref(struct kv_plane *kp); /* frees what is left of a closed plane */
void kv_poke(struct kv_plane *kp);  /* any thread: wakes the I/O thread */

void kv_deliver_late(void *kp, struct mail *m); /* loop thread, while closing: only ends are told */

/* ---- kv_io.c (I/O thread) */
void *kv_io_main(void *kp);
/* One command, which it frees or gives back. has_links false: commands of links come too late. */
void kv_obey(struct kv_plane *kp, struct kv_cmd *c, bool has_links);
void kv_post(struct kv_plane *kp, const struct kv_event *ev); /* copies */
/* Appends the finished frame in kp->scratch (packed, not ended) to the pipe's queue. */
void kv_pipe_send(struct kv_plane *kp, struct kv_pipe *p);
void kv_pipe_send_plain(struct kv_plane *kp, struct kv_pipe *p); /* even when the pipe seals */
/* A frame could not be sealed: frees it, and the pipe has failed. */
void kv_pipe_unsealable(struct kv_pipe *p, void *message, enum err e);
struct kv_pipe *kv_pipe_create(int sock, bool bound);
void kv_pipe_close(struct kv_pipe **p);
void kv_pipe_retire(struct kv_plane *kp,
                    struct kv_pipe **p); /* sends what is queued, then closes */
/* Wants a tick at t at the latest. */
static inline void kv_due(struct kv_plane *kp, uint64_t t_ms) {
    if (t_ms < kp->due_ms) kp->due_ms = t_ms;
}
#define KV_COUNT(kp, member, n)                                                                    \
    atomic_fetch_add_explicit(&(kp)->count.member, (n), memory_order_relaxed)

/* ---- kv_link.c (I/O thread) */
void kv_link_command(struct kv_plane *kp, const struct kv_link_cmd *c);
void kv_link_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms);
/* One attempt came to nothing; soft: what may be over in a moment. */
void kv_link_attempt_failed(struct kv_plane *kp, struct kv_link *l, unsigned code, const char *why,
                            bool soft);
/* One side knows where its pair is, the other has bound it: the fresh pipe, on which hellos follow.
 * Takes sock. */
enum err kv_link_begin(struct kv_plane *kp, struct kv_link *l, int sock, uint16_t bound_port,
                       uint64_t ticket);
/* What will be the same in a moment, too. */
bool kv_link_is_hard(unsigned code);
/* Who begins a link: the lower id. Towards a peer without one, who only prefills. */
bool kv_link_connects(const struct kv_plane *kp, const struct kv_link *l);
void kv_link_recv_fresh(struct kv_plane *kp, struct kv_link *l); /* frames of the pipe in hello */
/* One checked frame of an open pipe. May end the link. */
void kv_link_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f, size_t n_bytes);
/* Ends what is up: transfers end with ERR_PEER_LOST; tries again later. code_text: "11" or "pull kv
 * failed." */
void kv_link_down(struct kv_plane *kp, struct kv_link *l, const char *code_text, const char *why);
void kv_link_free_all(struct kv_plane *kp);
struct kv_link *kv_link_of(struct kv_plane *kp, const struct kv_peer *peer);

/* ---- kv_listener.c */
enum err kv_listener_open(struct kv_plane *kp, struct errbuf *eb);
void kv_listener_close(struct kv_plane *kp); /* after the I/O thread */
/* I/O thread */
void kv_listener_tick(struct kv_plane *kp,
                      uint64_t now_ms); /* takes in, reads, answers, sends away */
void kv_listener_ask(struct kv_plane *kp, struct kv_link *l); /* begins a question */
void kv_listener_ask_ready(struct kv_plane *kp, struct kv_link *l);
void kv_listener_ask_end(struct kv_link *l);

/* ---- kv_auth.c (I/O thread): the TLS handshake on a fresh pipe, from which the seals come */
/* Begins it; the connecting side sends first. */
enum err kv_auth_begin(struct kv_plane *kp, struct kv_link *l);
/* One frame of the other side. True: it has ended well, the pipe seals. False and why "": more to
 * come; why: it has failed. */
bool kv_auth_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f,
                   char why[KV_TEXT_BYTES_MAX + 1]);

/* ---- kv_send.c (I/O thread) */
void kv_tx_command(struct kv_plane *kp, struct kv_cmd *c);
void kv_tx_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f);
void kv_tx_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms);
void kv_tx_end_all(struct kv_plane *kp, struct kv_link *l, enum err e, const char *text);
/* Builds and finishes the next data frame that credit allows; it must be the next one sent. False:
 * nothing to send now. Queues commits that have become due. */
bool kv_tx_next(struct kv_plane *kp, struct kv_link *l, void **message, size_t *n);
void kv_tx_renew(struct kv_plane *kp, struct kv_link *l, const struct kv_key *k, uint64_t now_ms);
void kv_tx_destroy(struct kv_tx *tx);

/* ---- kv_recv.c (I/O thread) */
void kv_rx_command(struct kv_plane *kp, struct kv_cmd *c);
void kv_rx_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f);
void kv_rx_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms);
void kv_rx_end_all(struct kv_plane *kp, struct kv_link *l, enum err e, const char *text);
void kv_rx_renew(struct kv_plane *kp, struct kv_link *l, const struct kv_key *k, uint64_t now_ms);
void kv_rx_destroy(struct kv_rx *rx);

#endif
