/* Two instances' worth of block memory, a loop that runs until a fact holds, and a peer made by
 * hand that can say anything on the wire. For the tests of the KV links. */
#ifndef BATON_TESTS_KV_FIXTURE_H
#define BATON_TESTS_KV_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/bus.h"
#include "common/instance/kv_plane.h"
#include "common/instance/kv_seal.h"
#include "tests/unit/common/instance/kv_pki.h"
#include "tests/unit/pace.h"

#define UNUSED __attribute__((unused))

#define DEADLINE_MS pace_ms(20000)
enum { LAYERS = 3, BLOCK_TOKENS = 4, BLOCK_BYTES = 4096, POOL_BLOCKS = 64, P_ID = 11, D_ID = 21 };

/* ---- memory: every block starts with bytes that name its owner, so that a wrong one shows */
struct memory {
    uint8_t *bytes; /* [LAYERS][POOL_BLOCKS][BLOCK_BYTES] */
};

static uint8_t *memory_block(const void *memory, int layer, int32_t block) {
    const struct memory *m = memory;
    return m->bytes + ((size_t)layer * POOL_BLOCKS + (size_t)block) * BLOCK_BYTES;
}

static void UNUSED memory_fill(struct memory *m, unsigned seed) {
    size_t n = (size_t)LAYERS * POOL_BLOCKS * BLOCK_BYTES;
    if (m->bytes == NULL) m->bytes = malloc(n);
    assert_non_null(m->bytes);
    uint64_t s = 0x9e3779b97f4a7c15u * (seed + 1);
    for (size_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        m->bytes[i] = (uint8_t)(s >> 56);
    }
}

/* ---- the same tests over sealed links: a group with this setup */
static struct pki link_pki;
static struct tls *link_tls; /* NULL: plain */

static int UNUSED seal_links(void **state) {
    (void)state;
    log_init(LOG_NONE, 2);
    if (pki_make(&link_pki) != 0) return -1;
    link_tls = pki_open(&link_pki, "peer", link_pki.dir, true);
    return link_tls != NULL ? 0 : -1;
}
static int UNUSED unseal_links(void **state) {
    (void)state;
    tls_close(&link_tls);
    pki_remove(&link_pki);
    return 0;
}

/* ---- one plane and what it was told */
struct side {
    struct loop *loop;
    struct kv_plane *kp;
    struct kv_plane_opts o;
    struct memory mem;
    unsigned n_settled, n_ok, n_wanted;
    unsigned n_ups, n_downs;
    /* the last offer */
    unsigned n_offers;
    struct kv_rx *rx;
    struct infer_req *req;
    uint32_t n_blocks;
};

static void side_on_settled(void *arg, unsigned n_ok, unsigned n_wanted) {
    struct side *s = arg;
    s->n_settled++;
    s->n_ok = n_ok;
    s->n_wanted = n_wanted;
}

static void side_on_link(void *arg, struct kv_peer *peer, bool up) {
    struct side *s = arg;
    (void)peer;
    ++*(up ? &s->n_ups : &s->n_downs);
}

static void UNUSED side_on_offer(void *arg, struct kv_peer *peer, struct kv_rx *rx,
                                 struct infer_req *req, uint32_t n_blocks) {
    struct side *s = arg;
    assert_non_null(peer);
    infer_req_destroy(&s->req);
    s->n_offers++;
    s->rx = rx;
    s->req = req;
    s->n_blocks = n_blocks;
}

/* Options with short times; a test may change s->o before side_open(). */
static void UNUSED side_init(struct side *s, struct loop *loop, unsigned seed) {
    *s = (struct side){.loop = loop};
    memory_fill(&s->mem, seed);
    kv_plane_opts_default(&s->o);
    s->o.loop = loop;
    s->o.bind_ip = "127.0.0.1";
    s->o.tls = link_tls;
    memset(s->o.conf_hash, 4, 32);
    memset(s->o.model_hash, 1, 32);
    memset(s->o.tokenizer_hash, 2, 32);
    s->o.n_layers = LAYERS;
    s->o.n_kv_heads = 2;
    s->o.head_dim = 8;
    s->o.block_tokens = BLOCK_TOKENS;
    s->o.kv_dtype = s->o.weight_dtype = DTYPE_BF16;
    s->o.block = memory_block;
    s->o.memory = &s->mem;
    s->o.block_bytes = BLOCK_BYTES;
    s->o.heartbeat_ms = 100;
    s->o.misses_max = 20; /* 2 s: a loaded machine must not lose a link by accident */
    s->o.lease_ms = 10000;
    s->o.settle_ms = 8000;
    s->o.backoff_ms = 20;
    s->o.backoff_ms_max = 200;
    s->o.idle_ms = 0;
    s->o.on_settled = side_on_settled;
    s->o.on_link = side_on_link;
    s->o.arg = s;
}

static void UNUSED side_open(struct side *s) {
    struct errbuf eb = {0};
    enum err e = kv_plane_open(&s->kp, &s->o, &eb);
    if (e != ERR_OK) fail_msg("kv_plane_open: %s", eb.text);
    kv_plane_on_offer(s->kp, side_on_offer, s);
}

static void UNUSED side_close(struct side *s) {
    kv_plane_close(&s->kp);
    infer_req_destroy(&s->req);
    free(s->mem.bytes);
    s->mem.bytes = NULL;
}

static struct role_node UNUSED node(uint32_t id, uint16_t port) {
    return (struct role_node){.server_ip = "127.0.0.1",
                              .host_ip = "127.0.0.1",
                              .has_id = true,
                              .id = id,
                              .inter_comm_port = port};
}

static struct kv_plane_stats UNUSED stats_of(const struct side *s) {
    struct kv_plane_stats st;
    kv_plane_stats(s->kp, &st);
    return st;
}

/* "failed : 2" of the only listed link, or "" */
static UNUSED const char *link_text(const struct side *s) {
    static char text[160];
    struct link_status *links = NULL;
    size_t n = kv_plane_links(s->kp, &links);
    snprintf(text, sizeof(text), "%s", n > 0 ? links[0].text : "");
    free(links);
    return text;
}

/* ---- running the loop until a fact holds */
typedef bool fact_fn(void *arg);

struct wait {
    struct loop *loop;
    fact_fn *fact;
    void *arg;
    uint64_t until_ms;
    bool held;
};

static void wait_tick(void *arg) {
    struct wait *w = arg;
    w->held = w->fact(w->arg);
    if (w->held || clock_ms() >= w->until_ms) loop_stop(w->loop);
}

static bool UNUSED wait_for_ms(struct loop *loop, fact_fn *fact, void *arg, unsigned ms) {
    struct wait w = {loop, fact, arg, clock_ms() + ms, false};
    struct loop_timer *t = NULL;
    if (fact(arg)) return true;
    assert_int_equal(loop_timer_start(&t, loop, 1, 1, wait_tick, &w), ERR_OK);
    loop_run(loop);
    loop_timer_stop(&t);
    return w.held;
}

#define WAIT_FOR(loop, fact, arg)                                                                  \
    do {                                                                                           \
        if (!wait_for_ms(loop, fact, arg, DEADLINE_MS)) fail_msg("%s did not come true", #fact);   \
    } while (0)

/* Until a counter of side s, which its I/O thread raises, has the value. */
#define WAIT_COUNT(s, member, value)                                                               \
    do {                                                                                           \
        uint64_t until_ = clock_ms() + DEADLINE_MS;                                                \
        while (stats_of(s).member < (value) && clock_ms() < until_) poll(NULL, 0, 1);              \
        assert_int_equal(stats_of(s).member, value);                                               \
    } while (0)

static bool UNUSED fact_up(void *arg) {
    const struct side *s = arg;
    unsigned wanted, ok, failed, linking;
    kv_plane_counts(s->kp, &wanted, &ok, &failed, &linking);
    return wanted > 0 && ok == wanted;
}
static bool UNUSED fact_failed(void *arg) {
    const struct side *s = arg;
    unsigned wanted, ok, failed, linking;
    kv_plane_counts(s->kp, &wanted, &ok, &failed, &linking);
    return failed > 0;
}
static bool UNUSED fact_offered(void *arg) {
    return ((struct side *)arg)->n_offers > 0;
}

/* Links p and d; both are up when it returns. */
static void UNUSED link_sides(struct side *p, struct side *d) {
    struct role_node pn = node(P_ID, kv_plane_port(p->kp)), dn = node(D_ID, kv_plane_port(d->kp));
    assert_int_equal(kv_plane_want(d->kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    assert_int_equal(kv_plane_want(p->kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(p->loop, fact_up, p);
    WAIT_FOR(d->loop, fact_up, d);
}

/* ---- requests */
static UNUSED struct infer_req *request(const char *id, uint32_t epoch, size_t n_ids) {
    struct infer_req *r = infer_req_create();
    assert_non_null(r);
    r->head.req_id = strdup(id);
    r->head.epoch = epoch;
    r->answer.api = API_OPENAI_CHAT;
    r->ids = malloc(n_ids * sizeof(*r->ids));
    assert_non_null(r->ids);
    for (size_t i = 0; i < n_ids; i++) r->ids[i] = (int32_t)(i % 100);
    r->n_ids = r->n_prompt = n_ids;
    r->sampling.new_tokens_max = 8;
    return r;
}

struct ended {
    bool done;
    unsigned n;
    enum err e;
    char text[256];
    struct kv_tx_stats st;
    struct kv_commit commit; /* its arrays are gone, but for the first token */
    struct token_event first;
    float logprobs[8];
    unsigned n_granted;
    uint32_t n_held;
    struct kv_tx **free_tx; /* to be freed from on_end */
};

static void UNUSED on_tx_end(void *arg, enum err e, const char *text,
                             const struct kv_tx_stats *st) {
    struct ended *x = arg;
    x->done = true;
    x->n++;
    x->e = e;
    x->st = *st;
    snprintf(x->text, sizeof(x->text), "%s", text);
    if (x->free_tx != NULL) kv_tx_free(x->free_tx);
}
static void UNUSED on_granted(void *arg, uint32_t n_held) {
    struct ended *x = arg;
    x->n_granted++;
    x->n_held = n_held;
}
static void UNUSED on_rx_end(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    struct ended *x = arg;
    x->done = true;
    x->n++;
    x->e = e;
    snprintf(x->text, sizeof(x->text), "%s", text);
    assert_true((c != NULL) == (e == ERR_OK));
    if (c == NULL) return;
    x->commit = *c;
    for (uint32_t i = 0; i < c->n_prompt_logprobs && i < 8; i++)
        x->logprobs[i] = c->prompt_logprobs[i];
    x->commit.prompt_logprobs = NULL;
    x->first = c->tokens[0];
    x->commit.tokens = &x->first;
}
static bool UNUSED fact_done(void *arg) {
    return ((struct ended *)arg)->done;
}
static bool UNUSED fact_granted(void *arg) {
    return ((struct ended *)arg)->n_granted > 0;
}

static UNUSED struct kv_tx *offer(struct side *p, const char *id, uint32_t epoch, size_t n_ids,
                                  struct ended *x) {
    struct infer_req *r = request(id, epoch, n_ids);
    const struct kv_tx_opts o = {
        .req = r,
        .n_blocks = (uint32_t)((n_ids + BLOCK_TOKENS - 1) / BLOCK_TOKENS),
        .on_granted = on_granted,
        .on_end = on_tx_end,
        .arg = x,
    };
    struct kv_tx *tx = NULL;
    *x = (struct ended){0};
    assert_int_equal(kv_tx_open(&tx, kv_plane_find_id(p->kp, D_ID), &o), ERR_OK);
    kv_tx_offer(tx);
    infer_req_destroy(&r);
    return tx;
}

static struct kv_commit UNUSED commit_of(int32_t id) {
    struct kv_commit c = {.n_tokens = 1,
                          .prefill_us = 1000,
                          .queue_wait_us = 10,
                          .prefill_batch = 2,
                          .cached_tokens = 4};
    c.tokens = malloc(sizeof(*c.tokens));
    assert_non_null(c.tokens);
    c.tokens[0] = (struct token_event){.id = id, .batch_size = 1};
    return c;
}

/* Spreads sequence blocks over the pool: block i of a sequence is pool block (start + i * step) %
 * POOL_BLOCKS, step odd. */
static void UNUSED make_table(int32_t *table, int n, int start, int step) {
    for (int i = 0; i < n; i++) table[i] = (int32_t)((start + i * step) % POOL_BLOCKS);
}

static bool UNUSED same_blocks(const struct side *a, const int32_t *ta, const struct side *b,
                               const int32_t *tb, int first, int n) {
    for (int l = 0; l < LAYERS; l++) {
        for (int i = first; i < first + n; i++) {
            if (memcmp(memory_block(&a->mem, l, ta[i]), memory_block(&b->mem, l, tb[i]),
                       BLOCK_BYTES) != 0)
                return false;
        }
    }
    return true;
}

/* ---- a peer made by hand */
struct raw {
    int pair;
    uint16_t pair_port;
    uint32_t seq_out;
    struct kv_seal *seal_out, *seal_in; /* NULL: plain */
    struct wr w;
    void *message; /* of the last raw_recv */
    size_t n;
    struct kv_frame f;
};

static bool UNUSED raw_wait_message(int sock, void **message, size_t *n, unsigned ms) {
    uint64_t until = clock_ms() + ms;
    for (;;) {
        if (bus_recv(sock, message, n) == ERR_OK) return true;
        uint64_t now = clock_ms();
        if (now >= until) return false;
        struct pollfd p = {.fd = bus_recv_fd(sock), .events = POLLIN};
        poll(&p, 1, (int)(until - now < 50 ? until - now : 50));
    }
}

static void UNUSED raw_put(int sock, const void *bytes, size_t n) {
    uint64_t until = clock_ms() + DEADLINE_MS;
    void *m = bus_message_alloc(n);
    assert_non_null(m);
    memcpy(m, bytes, n);
    while (bus_send(sock, &m) != ERR_OK) {
        if (clock_ms() >= until) fail_msg("the peer takes no message");
        struct pollfd p = {.fd = bus_send_fd(sock), .events = POLLIN};
        poll(&p, 1, 50);
    }
}

/* Gives r->w, a finished frame with a CRC, the next count and, on a sealed link, its seal. */
static void UNUSED raw_seal(struct raw *r) {
    if (r->seal_out == NULL) {
        kv_frame_reseal(r->w.data, r->w.len, ++r->seq_out);
        return;
    }
    for (int i = KV_CRC_BYTES; i < KV_SEAL_BYTES; i++) wr_u8(&r->w, 0);
    assert_false(r->w.failed);
    assert_int_equal(kv_seal_frame(r->seal_out, r->w.data, r->w.len), ERR_OK);
}

/* Sends r->w, which was packed and not ended, with the next count. */
static void UNUSED raw_send(struct raw *r) {
    kv_frame_end(&r->w, 0);
    assert_false(r->w.failed);
    raw_seal(r);
    raw_put(r->pair, r->w.data, r->w.len);
}

/* The next frame that is neither heartbeat nor credit; false: none in time. */
static bool UNUSED raw_recv_any(struct raw *r, unsigned ms) {
    uint64_t until = clock_ms() + ms;
    for (;;) {
        uint64_t now = clock_ms();
        bus_message_free(r->message);
        r->message = NULL;
        if (now >= until || !raw_wait_message(r->pair, &r->message, &r->n, (unsigned)(until - now)))
            return false;
        enum err e = r->seal_in != NULL ? kv_unseal_frame(r->seal_in, &r->f, r->message, r->n)
                                        : kv_frame_open(&r->f, r->message, r->n);
        assert_int_equal(e, ERR_OK);
        if (r->f.type != KV_HEARTBEAT && r->f.type != KV_CREDIT) return true;
    }
}

static void UNUSED raw_expect(struct raw *r, enum kv_type type) {
    if (!raw_recv_any(r, DEADLINE_MS)) fail_msg("no %s came", kv_type_name(type));
    if (r->f.type != type) fail_msg("%s came, not %s", kv_type_name(r->f.type), kv_type_name(type));
}

static void UNUSED raw_beat(struct raw *r, uint32_t id, const struct kv_key *wanted, size_t n) {
    kv_heartbeat_pack(&r->w, &(struct kv_heartbeat){.instance_id = id,
                                                    .wanted = (struct kv_key *)wanted,
                                                    .n_wanted = n});
    raw_send(r);
}

static struct kv_hello UNUSED raw_hello(const struct side *like, enum inst_role role, uint32_t id,
                                        uint64_t ticket) {
    struct kv_hello h = {
        .instance_id = id,
        .role = (uint8_t)role,
        .protocol = KV_VERSION,
        .n_layers = like->o.n_layers,
        .n_kv_heads = like->o.n_kv_heads,
        .head_dim = like->o.head_dim,
        .block_tokens = like->o.block_tokens,
        .n_shards = 1,
        .boot = 5,
        .ticket = ticket,
        .window_bytes = 64u << 20,
    };
    snprintf(h.kv_dtype, sizeof(h.kv_dtype), "%s", dtype_name(like->o.kv_dtype));
    snprintf(h.weight_dtype, sizeof(h.weight_dtype), "%s", dtype_name(like->o.weight_dtype));
    snprintf(h.arithmetic, sizeof(h.arithmetic), "%s",
             like->o.arithmetic != NULL ? like->o.arithmetic : "");
    memcpy(h.conf_hash, like->o.conf_hash, 32);
    memcpy(h.model_hash, like->o.model_hash, 32);
    memcpy(h.tokenizer_hash, like->o.tokenizer_hash, 32);
    return h;
}

/* The interCommPort of peers made by hand: theirs while the program runs. */
static uint16_t UNUSED hand_port(void) {
    static struct sockaddr_in sa = {.sin_family = AF_INET};
    static int held = -1;
    socklen_t n = sizeof(sa);
    const int on = 1;
    if (held < 0) {
        held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(held >= 0);
        inet_pton(AF_INET, "127.0.0.1", &sa.sin_addr);
        assert_int_equal(setsockopt(held, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
        assert_int_equal(bind(held, (struct sockaddr *)&sa, sizeof(sa)), 0);
        assert_int_equal(getsockname(held, (struct sockaddr *)&sa, &n), 0);
    }
    return ntohs(sa.sin_port);
}

/* A connection to d's listener, from this port (0: any). It leaves no trace when it is closed. */
static int UNUSED raw_dial_from(const struct side *d, uint16_t port) {
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    const struct linger none = {.l_onoff = 1};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    inet_pton(AF_INET, "127.0.0.1", &sa.sin_addr);
    if (port != 0) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    sa.sin_port = htons(kv_plane_port(d->kp));
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0)
        fail_msg("connect: %s", strerror(errno));
    return fd;
}

/* What d's listener answers these bytes; false: it closes without a word. */
static bool UNUSED raw_dial_says(int fd, const void *bytes, size_t n, struct kv_link_answer *a) {
    uint8_t in[1024];
    size_t n_in = 0;
    ssize_t got;
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
    while ((got = recv(fd, in + n_in, sizeof(in) - n_in, 0)) > 0) n_in += (size_t)got;
    close(fd);
    if (n_in == 0) return false;
    struct kv_frame f;
    assert_int_equal(kv_frame_open(&f, in, n_in), ERR_OK);
    assert_int_equal(f.type, KV_LINK_ANSWER);
    assert_int_equal(kv_link_answer_unpack(&f.payload, a), ERR_OK);
    return true;
}

/* Asks d's listener as instance `from`, from this port. */
static struct kv_link_answer UNUSED raw_ask_from(const struct side *d, uint16_t port, uint32_t from,
                                                 uint32_t to) {
    struct wr w = WR_INIT;
    struct kv_link_answer a = {0};
    kv_link_ask_pack(
        &w, &(struct kv_link_ask){.from_id = from, .to_id = to, .sealed = d->o.tls != NULL});
    kv_frame_end(&w, 0);
    if (!raw_dial_says(raw_dial_from(d, port), w.data, w.len, &a))
        fail_msg("the listener does not answer");
    wr_free(&w);
    return a;
}
static struct kv_link_answer UNUSED raw_ask(const struct side *d, uint32_t from, uint32_t to) {
    return raw_ask_from(d, hand_port(), from, to);
}

/* The handshake of a sealed link by hand, then its keys. */
static void UNUSED raw_handshake(struct raw *r) {
    struct tls_session *t;
    uint8_t bytes[16384], secrets[2][KV_SEAL_SECRET_BYTES];
    size_t n;
    assert_int_equal(tls_session_create(&t, link_tls, TLS_CLIENT, "127.0.0.1"), ERR_OK);
    for (;;) {
        if ((n = tls_session_drain(t, bytes, sizeof(bytes))) > 0) {
            kv_tls_pack(&r->w, bytes, n);
            raw_send(r);
        }
        if (tls_session_state(t) == TLS_UP) break;
        raw_expect(r, KV_TLS);
        const uint8_t *theirs;
        assert_int_equal(kv_tls_unpack(&r->f.payload, &theirs, &n), ERR_OK);
        assert_int_equal(tls_session_feed(t, theirs, n), ERR_OK);
    }
    assert_int_equal(tls_session_export(t, "EXPORTER-Baton-KV-link-1", secrets, sizeof(secrets)),
                     ERR_OK);
    assert_int_equal(kv_seal_create(&r->seal_out, KV_SEALS, secrets[0]), ERR_OK);
    assert_int_equal(kv_seal_create(&r->seal_in, KV_UNSEALS, secrets[1]), ERR_OK);
    tls_session_free(&t);
}

/* Takes the pair that d's listener, as `to`, gives its peer `from`. Returns the ticket. */
static uint64_t UNUSED raw_pair_as(struct raw *r, const struct side *d, uint32_t from,
                                   uint32_t to) {
    *r = (struct raw){.pair = -1};
    struct kv_link_answer a = raw_ask(d, from, to);
    assert_int_equal(a.code, KV_LINK_OK);
    r->pair_port = a.port;
    assert_int_equal(bus_open(&r->pair, KV_MESSAGE_BYTES_MAX), ERR_OK);
    assert_int_equal(bus_connect(r->pair, "127.0.0.1", "127.0.0.1", a.port), ERR_OK);
    return a.ticket;
}
static uint64_t UNUSED raw_pair(struct raw *r, const struct side *d) {
    return raw_pair_as(r, d, P_ID, D_ID);
}

/* The rest of the way, from the pair to the link. */
static void UNUSED raw_finish_as(struct raw *r, struct side *d, enum inst_role role, uint32_t id,
                                 uint64_t ticket) {
    if (d->o.tls != NULL) raw_handshake(r);
    struct kv_hello h = raw_hello(d, role, id, ticket);
    kv_hello_pack(&r->w, &h);
    raw_send(r);
    raw_expect(r, KV_HELLO);
    raw_expect(r, KV_OK);
    kv_ok_pack(&r->w);
    raw_send(r);
    WAIT_FOR(d->loop, fact_up, d);
}
static void UNUSED raw_finish(struct raw *r, struct side *d, uint64_t ticket) {
    raw_finish_as(r, d, ROLE_PREFILL, P_ID, ticket);
}

/* Links by hand to d as its peer P_ID. */
static void UNUSED raw_link(struct raw *r, struct side *d) {
    uint64_t ticket = raw_pair(r, d);
    raw_finish(r, d, ticket);
}

static void UNUSED raw_close(struct raw *r) {
    bus_message_free(r->message);
    r->message = NULL;
    bus_close(&r->pair);
    kv_seal_destroy(&r->seal_out);
    kv_seal_destroy(&r->seal_in);
    wr_free(&r->w);
}

/* Builds one data frame into r->w, sealed with the next count; blocks come from `from` by table. */
static void UNUSED raw_data(struct raw *r, const struct kv_key *k, const struct memory *from,
                            const int32_t *table, uint32_t layer, uint32_t first, uint32_t n) {
    size_t n_frame = kv_data_bytes(k, (size_t)n * BLOCK_BYTES);
    uint8_t *frame = malloc(n_frame);
    assert_non_null(frame);
    uint8_t *to = kv_data_begin(frame, k, layer, first, n, (size_t)n * BLOCK_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(to + (size_t)i * BLOCK_BYTES,
               memory_block(from, (int)layer % LAYERS, table[first + i]), BLOCK_BYTES);
    }
    wr_clear(&r->w);
    wr_bytes(&r->w, frame, n_frame);
    free(frame);
    raw_seal(r);
}

static void UNUSED raw_send_data(struct raw *r, const struct kv_key *k, const struct memory *from,
                                 const int32_t *table, uint32_t layer, uint32_t first, uint32_t n) {
    raw_data(r, k, from, table, layer, first, n);
    raw_put(r->pair, r->w.data, r->w.len);
}

static void UNUSED raw_offer(struct raw *r, const char *id, uint32_t epoch, size_t n_ids) {
    struct infer_req *req = request(id, epoch, n_ids);
    struct kv_key k;
    kv_key_set(&k, id, epoch, 0);
    kv_offer_pack(&r->w, &k, (uint32_t)((n_ids + BLOCK_TOKENS - 1) / BLOCK_TOKENS), 10000, req);
    raw_send(r);
    infer_req_destroy(&req);
}

static void UNUSED raw_commit(struct raw *r, const struct kv_key *k, uint32_t n_blocks,
                              uint32_t n_layers) {
    struct kv_commit c = commit_of(42);
    c.key = *k;
    c.n_blocks = n_blocks;
    c.n_layers = n_layers;
    kv_commit_pack(&r->w, &c);
    raw_send(r);
    kv_commit_free(&c);
}

/* An offer of n_blocks blocks that d has granted into table. */
static void UNUSED raw_granted(struct raw *r, struct side *d, const char *id, uint32_t epoch,
                               int n_blocks, int32_t *table, struct ended *x) {
    d->n_offers = 0;
    *x = (struct ended){0};
    raw_offer(r, id, epoch, (size_t)n_blocks * BLOCK_TOKENS);
    WAIT_FOR(d->loop, fact_offered, d);
    assert_int_equal(d->n_blocks, n_blocks);
    assert_int_equal(kv_rx_grant(d->rx, table, n_blocks, 0, on_rx_end, x), ERR_OK);
    raw_expect(r, KV_GRANT);
}

/* ---- every test starts and ends so */
static int UNUSED loop_setup(void **state) {
    struct loop *loop = NULL;
    log_init(LOG_NONE, 2);
    if (loop_create(&loop) != ERR_OK) return -1;
    *state = loop;
    return 0;
}
static int UNUSED loop_teardown(void **state) {
    struct loop *loop = *state;
    loop_destroy(&loop);
    return 0;
}

#endif
