/* bench_kv_link: what a KV link carries over loopback, plain and sealed, beside a raw TCP stream of
 * the same process in the same run: a shared machine moves by itself, so only the ratios say
 * anything.
 *
 *   bench_kv_link [--rounds N] [--mib M]
 *
 * One hand-over of M MiB at a time between two planes of one process: blocks are read from P's
 * memory, checked or sealed, sent, verified and written to D's memory. The TCP stream sends one
 * warm buffer in writes of 1 MiB and reads it into another: no copy into place, no check. Best
 * round of each. Lines are `name MB/s ratio-of-tcp frames/s`. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/kv_plane.h"
#include "tests/unit/common/instance/kv_pki.h"

enum { LAYERS = 8, BLOCK_TOKENS = 16, BLOCK_BYTES = 64 << 10, P_ID = 1, D_ID = 2 };

static void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench_kv_link: %s\n", what);
    exit(1);
}

/* ---- the ceiling */
struct stream {
    int fd;
    size_t bytes;
};

static void *sink(void *arg) {
    struct stream *s = arg;
    char *buf = malloc(1 << 20);
    require(buf != NULL, "no memory");
    for (size_t left = s->bytes; left > 0;) {
        ssize_t n = recv(s->fd, buf, left < (1 << 20) ? left : 1 << 20, 0);
        require(n > 0, "recv");
        left -= (size_t)n;
    }
    free(buf);
    return NULL;
}

static double tcp_mb_s(size_t bytes) {
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_sa = sizeof(sa);
    int door = socket(AF_INET, SOCK_STREAM, 0), out = socket(AF_INET, SOCK_STREAM, 0);
    require(bind(door, (struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(door, 1) == 0 &&
                getsockname(door, (struct sockaddr *)&sa, &n_sa) == 0 &&
                connect(out, (struct sockaddr *)&sa, sizeof(sa)) == 0,
            "no TCP connection");
    struct stream s = {accept(door, NULL, NULL), bytes};
    pthread_t thread;
    char *buf = malloc(1 << 20);
    require(buf != NULL && s.fd >= 0, "no TCP connection");
    memset(buf, 7, 1 << 20);
    uint64_t began = clock_us();
    require(pthread_create(&thread, NULL, sink, &s) == 0, "no thread");
    for (size_t left = bytes; left > 0;) {
        ssize_t n = send(out, buf, left < (1 << 20) ? left : 1 << 20, 0);
        require(n > 0, "send");
        left -= (size_t)n;
    }
    pthread_join(thread, NULL);
    double us = (double)(clock_us() - began);
    free(buf);
    close(out);
    close(s.fd);
    close(door);
    return (double)bytes / us;
}

/* ---- the link */
struct side {
    struct kv_plane *kp;
    uint8_t *memory;
    size_t n_blocks;
};

struct bench {
    struct loop *loop;
    struct side p, d;
    int32_t *table;
    struct kv_tx *tx;
    struct kv_rx *rx;
    struct kv_tx_stats st;
    unsigned n_ends;
    unsigned n_up;
};

static uint8_t *block_of(const void *memory, int layer, int32_t block) {
    const struct side *s = memory;
    return s->memory + ((size_t)layer * s->n_blocks + (size_t)block) * BLOCK_BYTES;
}

static void on_link(void *arg, struct kv_peer *peer, bool up) {
    struct bench *b = arg;
    (void)peer;
    require(up, "the link did not come up");
    if (++b->n_up == 2) loop_stop(b->loop);
}

static void on_rx_end(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    struct bench *b = arg;
    (void)c;
    require(e == ERR_OK, text);
    if (++b->n_ends == 2) loop_stop(b->loop);
}

static void on_tx_end(void *arg, enum err e, const char *text, const struct kv_tx_stats *st) {
    struct bench *b = arg;
    require(e == ERR_OK, text);
    b->st = *st;
    if (++b->n_ends == 2) loop_stop(b->loop);
}

static void on_offer(void *arg, struct kv_peer *peer, struct kv_rx *rx, struct infer_req *req,
                     uint32_t n_blocks) {
    struct bench *b = arg;
    (void)peer;
    infer_req_destroy(&req);
    b->rx = rx;
    require(kv_rx_grant(rx, b->table, (int)n_blocks, 0, on_rx_end, b) == ERR_OK, "no grant");
}

static void side_open(struct bench *b, struct side *s, struct tls *tls, size_t n_blocks) {
    struct kv_plane_opts o;
    struct errbuf eb = {0};
    kv_plane_opts_default(&o);
    s->n_blocks = n_blocks;
    s->memory = malloc(LAYERS * n_blocks * BLOCK_BYTES);
    require(s->memory != NULL, "no memory");
    memset(s->memory, s == &b->p ? 1 : 2, LAYERS * n_blocks * BLOCK_BYTES);
    o.loop = b->loop;
    o.bind_ip = "127.0.0.1";
    o.tls = tls;
    o.n_layers = LAYERS;
    o.n_kv_heads = 8;
    o.head_dim = 128;
    o.block_tokens = BLOCK_TOKENS;
    o.kv_dtype = DTYPE_BF16;
    o.block = block_of;
    o.memory = s;
    o.block_bytes = BLOCK_BYTES;
    o.on_link = on_link;
    o.arg = b;
    if (kv_plane_open(&s->kp, &o, &eb) != ERR_OK) require(false, eb.text);
    kv_plane_on_offer(s->kp, on_offer, b);
}

static void link_open(struct bench *b, struct tls *tls, size_t bytes) {
    size_t n_blocks = bytes / BLOCK_BYTES / LAYERS;
    *b = (struct bench){0};
    require(loop_create(&b->loop) == ERR_OK, "no loop");
    b->table = malloc(n_blocks * sizeof(*b->table));
    require(b->table != NULL, "no memory");
    for (size_t i = 0; i < n_blocks; i++) b->table[i] = (int32_t)i;
    side_open(b, &b->p, tls, n_blocks);
    side_open(b, &b->d, tls, n_blocks);
    struct role_node pn = {.server_ip = "127.0.0.1", .has_id = true, .id = P_ID}, dn = pn;
    pn.inter_comm_port = kv_plane_port(b->p.kp);
    dn.id = D_ID;
    dn.inter_comm_port = kv_plane_port(b->d.kp);
    require(kv_plane_want(b->d.kp, ROLE_DECODE, D_ID, &pn, 1) == ERR_OK &&
                kv_plane_want(b->p.kp, ROLE_PREFILL, P_ID, &dn, 1) == ERR_OK,
            "no link");
    loop_run(b->loop);
}

static void link_close(struct bench *b) {
    kv_plane_close(&b->p.kp);
    kv_plane_close(&b->d.kp);
    loop_destroy(&b->loop);
    free(b->p.memory);
    free(b->d.memory);
    free(b->table);
}

/* One hand-over; MB/s from the first frame to the ACK. */
static double hand_over(struct bench *b, unsigned round, double *frames_s) {
    struct infer_req *r = infer_req_create();
    struct kv_plane_stats before, after;
    char id[16];
    require(r != NULL, "no memory");
    snprintf(id, sizeof(id), "b%u", round);
    r->req_id = strdup(id);
    r->api = API_OPENAI_CHAT;
    r->n_ids = r->n_prompt = b->p.n_blocks * BLOCK_TOKENS;
    r->ids = calloc(r->n_ids, sizeof(*r->ids));
    r->sampling.new_tokens_max = 1;
    const struct kv_tx_opts o = {
        .req = r, .n_blocks = (uint32_t)b->p.n_blocks, .on_end = on_tx_end, .arg = b};
    b->n_ends = 0;
    kv_plane_stats(b->p.kp, &before);
    require(kv_tx_open(&b->tx, kv_plane_find_id(b->p.kp, D_ID), &o) == ERR_OK, "no transfer");
    infer_req_destroy(&r);
    for (int l = 0; l < LAYERS; l++) kv_tx_ready(b->tx, b->table, l, 0, (int)b->p.n_blocks);
    struct kv_commit c = {.tokens = calloc(1, sizeof(*c.tokens)), .n_tokens = 1};
    require(c.tokens != NULL, "no memory");
    kv_tx_commit(b->tx, &c);
    loop_run(b->loop);
    kv_plane_stats(b->p.kp, &after);
    kv_tx_free(&b->tx);
    kv_rx_free(&b->rx);
    double us = (double)b->st.transfer_us;
    *frames_s = (double)(after.n_frames_out - before.n_frames_out) / us * 1e6;
    return (double)b->st.bytes / us;
}

int main(int argc, char **argv) {
    unsigned rounds = 7, mib = 64;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0) rounds = (unsigned)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--mib") == 0) mib = (unsigned)atoi(argv[i + 1]);
    }
    require(rounds >= 1 && rounds <= 1000 && mib >= 1 && mib <= 256,
            "--rounds 1..1000, --mib 1..256");
    log_init(LOG_ERROR, STDERR_FILENO);
    struct pki pki;
    require(pki_make(&pki) == 0, "tools/make-pki.sh failed (run in the repository root)");
    struct tls *tls = pki_open(&pki, "peer", pki.dir, true);
    pki_remove(&pki);
    require(tls != NULL, "no TLS context");
    size_t bytes = (size_t)mib << 20;
    struct bench plain, sealed;
    link_open(&plain, NULL, bytes);
    link_open(&sealed, tls, bytes);
    double tcp = 0, best[2] = {0, 0}, frames[2] = {0, 0};
    for (unsigned i = 0; i < rounds; i++) { /* in turns: what disturbs one disturbs the others */
        double v = tcp_mb_s(bytes), f;
        if (v > tcp) tcp = v;
        if ((v = hand_over(&plain, i, &f)) > best[0]) best[0] = v, frames[0] = f;
        if ((v = hand_over(&sealed, i, &f)) > best[1]) best[1] = v, frames[1] = f;
    }
    printf("kv_link_tcp %.0f MB/s\n", tcp);
    printf("kv_link_plain %.0f MB/s %.2f of tcp %.0f frames/s\n", best[0], best[0] / tcp,
           frames[0]);
    printf("kv_link_sealed %.0f MB/s %.2f of tcp %.0f frames/s\n", best[1], best[1] / tcp,
           frames[1]);
    link_close(&plain);
    link_close(&sealed);
    tls_close(&tls);
    return 0;
}
