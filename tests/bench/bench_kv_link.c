/* bench_kv_link: what a KV link carries over loopback, plain and sealed, beside a raw TCP stream
 * between the same two processes in the same run: a shared machine moves by itself, so only the
 * ratios say anything.
 *
 *   bench_kv_link [--rounds N] [--mib M]
 *
 * One hand-over of M MiB at a time from a plane of this process to one of a child: blocks are read
 * from P's memory, checked or sealed, sent, verified and written to D's memory. kv_link_tcp moves
 * the same bytes from the one memory into the other by send() and recv() of 1 MiB, and nothing
 * else; kv_link_tcp_warm sends and overwrites one buffer of 1 MiB that never leaves the caches, so
 * it moves no memory at all. Medians over the rounds, each round's ratio to its own stream. Lines
 * are `name MB/s ratio of kv_link_tcp ratio of kv_link_tcp_warm frames/s`; sealed, also `allowed`:
 * the ratio at which the stream's own processor time and sealing and unsealing, at the rate of
 * kv_seal alone, fill this machine's cores. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/kv_plane.h"
#include "common/instance/kv_seal.h"
#include "tests/bench/machine.h"
#include "tests/unit/common/instance/kv_pki.h"

enum {
    LAYERS = 8,
    BLOCK_TOKENS = 16,
    BLOCK_BYTES = 64 << 10,
    PIECE = 1 << 20,
    FRAME_BYTES = 2 << 20,
    P_ID = 1,
    D_ID = 2
};

static void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench_kv_link: %s\n", what);
    exit(1);
}

/* ---- the ceiling: the child receives what the head of the stream announces, and answers a byte */
struct head {
    uint64_t bytes, warm;
};

static void recv_all(int fd, void *p, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = recv(fd, (char *)p + at, n - at < PIECE ? n - at : PIECE, 0);
        require(got > 0, "recv");
        at += (size_t)got;
    }
}

static void send_all(int fd, const void *p, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t put = send(fd, (const char *)p + at, n - at < PIECE ? n - at : PIECE, 0);
        require(put > 0, "send");
        at += (size_t)put;
    }
}

struct sink {
    int door;
    uint8_t *memory;
};

static void *sink_main(void *arg) {
    const struct sink *s = arg;
    int fd = accept(s->door, NULL, NULL);
    struct head h;
    require(fd >= 0, "no TCP connection");
    for (;;) {
        recv_all(fd, &h, sizeof(h));
        for (size_t at = 0; at < h.bytes; at += PIECE)
            recv_all(fd, s->memory + (h.warm ? 0 : at), PIECE);
        send_all(fd, "k", 1);
    }
    return NULL;
}

static double tcp_mb_s(int fd, const uint8_t *memory, size_t bytes, bool warm) {
    const struct head h = {bytes, warm};
    char done;
    uint64_t began = clock_us();
    send_all(fd, &h, sizeof(h));
    for (size_t at = 0; at < bytes; at += PIECE) send_all(fd, memory + (warm ? 0 : at), PIECE);
    recv_all(fd, &done, 1);
    return (double)bytes / (double)(clock_us() - began);
}

/* Processor time of this process and its child, us. */
static double cpu_us(pid_t child) {
    double us = 0;
    for (int i = 0; i < 2; i++) {
        clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
        struct timespec t;
        require((i == 0 || clock_getcpuclockid(child, &clock) == 0) &&
                    clock_gettime(clock, &t) == 0,
                "no processor time");
        us += (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
    }
    return us;
}

/* What one thread seals, and another unseals, at best; MB/s. */
static double seal_mb_s(struct kv_seal *seal, uint8_t *frame, size_t n) {
    double best = 0;
    for (int i = 0; i < 8; i++) {
        const double began = bench_wall();
        require(kv_seal_frame(seal, frame, n) == ERR_OK, "no seal");
        const double rate = (double)n / (bench_wall() - began) * 1e-6;
        if (rate > best) best = rate;
    }
    return best;
}

static int tcp_door(uint16_t *port) {
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(sa);
    int door = socket(AF_INET, SOCK_STREAM, 0);
    require(bind(door, (struct sockaddr *)&sa, n) == 0 && listen(door, 1) == 0 &&
                getsockname(door, (struct sockaddr *)&sa, &n) == 0,
            "no TCP door");
    *port = ntohs(sa.sin_port);
    return door;
}

static int tcp_connect(uint16_t port) {
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0, "no TCP connection");
    return fd;
}

/* ---- the link */
struct side {
    struct kv_plane *kp;
    uint8_t *memory;
    size_t n_blocks;
};

struct link {
    struct bench *b;
    struct side side; /* P's or D's, whichever this process is */
    struct kv_tx *tx;
    struct kv_rx *rx;
    struct kv_tx_stats st;
};

struct bench {
    struct loop *loop;
    struct link links[2]; /* plain, sealed */
    size_t n_blocks;
    int32_t *table;
    unsigned n_up;
    int to_other; /* a socket between the two processes */
    bool is_p;
};

static uint8_t *block_of(const void *memory, int layer, int32_t block) {
    const struct side *s = memory;
    return s->memory + ((size_t)layer * s->n_blocks + (size_t)block) * BLOCK_BYTES;
}

static void on_link(void *arg, struct kv_peer *peer, bool up) {
    struct link *l = arg;
    (void)peer;
    require(up, "the link did not come up");
    if (++l->b->n_up == 2 && l->b->is_p) loop_stop(l->b->loop);
}

static void on_rx_end(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    (void)arg;
    (void)c;
    require(e == ERR_OK, text);
}

static void on_tx_end(void *arg, enum err e, const char *text, const struct kv_tx_stats *st) {
    struct link *l = arg;
    require(e == ERR_OK, text);
    l->st = *st;
    loop_stop(l->b->loop);
}

static void on_offer(void *arg, struct kv_peer *peer, struct kv_rx *rx, struct infer_req *req,
                     uint32_t n_blocks) {
    struct link *l = arg;
    (void)peer;
    infer_req_destroy(&req);
    if (l->rx != NULL) kv_rx_free(&l->rx); /* the last hand-over's, which has ended */
    l->rx = rx;
    require(kv_rx_grant(rx, l->b->table, (int)n_blocks, 0, on_rx_end, l) == ERR_OK, "no grant");
}

static void side_open(struct link *l, struct tls *tls, uint8_t *memory) {
    struct kv_plane_opts o;
    struct errbuf eb = {0};
    kv_plane_opts_default(&o);
    l->side.n_blocks = l->b->n_blocks;
    l->side.memory = memory;
    o.loop = l->b->loop;
    o.bind_ip = "127.0.0.1";
    o.tls = tls;
    o.n_layers = LAYERS;
    o.n_kv_heads = 8;
    o.head_dim = 128;
    o.block_tokens = BLOCK_TOKENS;
    o.kv_dtype = DTYPE_BF16;
    o.block = block_of;
    o.memory = &l->side;
    o.block_bytes = BLOCK_BYTES;
    o.on_link = on_link;
    o.arg = l;
    if (kv_plane_open(&l->side.kp, &o, &eb) != ERR_OK) require(false, eb.text);
    kv_plane_on_offer(l->side.kp, on_offer, l);
}

/* Both processes: two planes, the ports exchanged, the links wanted. */
static void planes_open(struct bench *b, struct tls *tls, uint8_t *memory) {
    require(loop_create(&b->loop) == ERR_OK, "no loop");
    b->table = malloc(b->n_blocks * sizeof(*b->table));
    require(b->table != NULL, "no memory");
    for (size_t i = 0; i < b->n_blocks; i++) b->table[i] = (int32_t)i;
    uint16_t mine[2], theirs[2];
    for (int i = 0; i < 2; i++) {
        b->links[i].b = b;
        side_open(&b->links[i], i == 0 ? NULL : tls, memory);
        mine[i] = kv_plane_port(b->links[i].side.kp);
    }
    send_all(b->to_other, mine, sizeof(mine));
    recv_all(b->to_other, theirs, sizeof(theirs));
    for (int i = 0; i < 2; i++) {
        struct role_node other = {.server_ip = "127.0.0.1",
                                  .has_id = true,
                                  .id = b->is_p ? D_ID : P_ID,
                                  .inter_comm_port = theirs[i]};
        require(kv_plane_want(b->links[i].side.kp, b->is_p ? CAN_PREFILL : CAN_DECODE,
                              b->is_p ? P_ID : D_ID, &other, 1) == ERR_OK,
                "no link");
    }
    loop_run(b->loop);
}

/* One hand-over; MB/s from the first frame to the ACK. */
static double hand_over(struct link *l, unsigned round, double *frames_s) {
    struct infer_req *r = infer_req_create();
    struct kv_plane_stats before, after;
    char id[16];
    require(r != NULL, "no memory");
    snprintf(id, sizeof(id), "b%u", round);
    r->head.req_id = strdup(id);
    r->answer.api = API_OPENAI_CHAT;
    r->n_ids = r->n_prompt = l->side.n_blocks * BLOCK_TOKENS;
    r->ids = calloc(r->n_ids, sizeof(*r->ids));
    r->sampling.new_tokens_max = 1;
    const struct kv_tx_opts o = {
        .req = r, .n_blocks = (uint32_t)l->side.n_blocks, .on_end = on_tx_end, .arg = l};
    kv_plane_stats(l->side.kp, &before);
    require(kv_tx_open(&l->tx, kv_plane_find_id(l->side.kp, D_ID), &o) == ERR_OK, "no transfer");
    kv_tx_offer(l->tx);
    infer_req_destroy(&r);
    for (int i = 0; i < LAYERS; i++) kv_tx_ready(l->tx, l->b->table, i, 0, (int)l->side.n_blocks);
    struct kv_commit c = {.tokens = calloc(1, sizeof(*c.tokens)), .n_tokens = 1};
    require(c.tokens != NULL, "no memory");
    kv_tx_commit(l->tx, &c);
    loop_run(l->b->loop);
    kv_plane_stats(l->side.kp, &after);
    kv_tx_free(&l->tx);
    double us = (double)l->st.transfer_us;
    *frames_s = (double)(after.n_frames_out - before.n_frames_out) / us * 1e6;
    return (double)l->st.bytes / us;
}

static uint8_t *pool_memory(size_t bytes, int value) {
    uint8_t *p = malloc(bytes);
    require(p != NULL, "no memory");
    memset(p, value, bytes);
    return p;
}

/* The decode side: the links and the sink, until the parent ends it. */
static void child_main(struct bench *b, struct tls *tls, size_t bytes) {
    uint8_t *memory = pool_memory(bytes, 2);
    struct sink s = {.memory = memory};
    uint16_t port;
    pthread_t thread;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    s.door = tcp_door(&port);
    require(pthread_create(&thread, NULL, sink_main, &s) == 0, "no thread");
    send_all(b->to_other, &port, sizeof(port));
    planes_open(b, tls, memory);
    exit(1);
}

int main(int argc, char **argv) {
    enum { ROUNDS_MAX = 101 };
    unsigned rounds = 9, mib = 64;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0) rounds = (unsigned)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--mib") == 0) mib = (unsigned)atoi(argv[i + 1]);
    }
    require(rounds >= 1 && rounds <= ROUNDS_MAX && mib >= 1 && mib <= 256,
            "--rounds 1..101, --mib 1..256");
    log_init(LOG_ERROR, STDERR_FILENO);
    struct pki pki;
    require(pki_make(&pki) == 0, "tools/make-pki.sh failed (run in the repository root)");
    struct tls *tls = pki_open(&pki, "peer", pki.dir, true);
    pki_remove(&pki);
    require(tls != NULL, "no TLS context");
    size_t bytes = (size_t)mib << 20;
    static struct bench b;
    int pair[2];
    b.n_blocks = bytes / BLOCK_BYTES / LAYERS;
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "no sockets");
    pid_t child = fork(); /* before nanomsg starts its thread */
    require(child >= 0, "no process");
    b.is_p = child != 0;
    b.to_other = pair[b.is_p ? 0 : 1];
    if (child == 0) child_main(&b, tls, bytes);
    uint16_t port;
    uint8_t *memory = pool_memory(bytes, 1);
    recv_all(b.to_other, &port, sizeof(port));
    int fd = tcp_connect(port);
    planes_open(&b, tls, memory);
    const uint8_t secret[KV_SEAL_SECRET_BYTES] = {1};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct kv_seal *seal;
    require(kv_seal_create(&seal, KV_SEALS, secret) == ERR_OK, "no seal");
    uint8_t *frame = pool_memory(FRAME_BYTES, 3);
    double v[4][ROUNDS_MAX], over[2][2][ROUNDS_MAX], frames[2][ROUNDS_MAX], allowed[ROUNDS_MAX];
    for (unsigned i = 0; i < rounds; i++) { /* in turns: what disturbs one disturbs the others */
        fprintf(stderr, "bench_kv_link: round %u of %u\n", i + 1, rounds);
        const double before = cpu_us(child);
        v[0][i] = tcp_mb_s(fd, memory, bytes, false);
        const double of_stream = cpu_us(child) - before,
                     sealing = (double)bytes / seal_mb_s(seal, frame, FRAME_BYTES),
                     all = (of_stream + 2 * sealing) / (double)cores;
        allowed[i] = (double)bytes / v[0][i] / (all > sealing ? all : sealing);
        v[1][i] = tcp_mb_s(fd, memory, bytes, true);
        for (int k = 0; k < 2; k++) {
            v[2 + k][i] = hand_over(&b.links[k], i, &frames[k][i]);
            for (int j = 0; j < 2; j++) over[k][j][i] = v[2 + k][i] / v[j][i];
        }
    }
    printf("kv_link_tcp %.0f MB/s\n", bench_median(v[0], (int)rounds));
    printf("kv_link_tcp_warm %.0f MB/s\n", bench_median(v[1], (int)rounds));
    for (int k = 0; k < 2; k++) {
        printf("kv_link_%s %.0f MB/s %.2f of kv_link_tcp %.2f of kv_link_tcp_warm %.0f frames/s",
               k == 0 ? "plain" : "sealed", bench_median(v[2 + k], (int)rounds),
               bench_median(over[k][0], (int)rounds), bench_median(over[k][1], (int)rounds),
               bench_median(frames[k], (int)rounds));
        if (k == 1) printf(" allowed %.2f", bench_median(allowed, (int)rounds));
        putchar('\n');
    }
    fflush(stdout);
    kill(child, SIGKILL); /* its links would report the loss of ours */
    waitpid(child, NULL, 0);
    for (int k = 0; k < 2; k++) kv_plane_close(&b.links[k].side.kp);
    loop_destroy(&b.loop);
    tls_close(&tls);
    kv_seal_destroy(&seal);
    free(b.table);
    free(memory);
    free(frame);
    return 0;
}
