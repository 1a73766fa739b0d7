/* bench_fleet: what a coordinator's watch over its instances costs when nobody asks for anything:
 * polls, roles that are kept, heartbeats, and the digests of prefix caches.
 *
 *   bench_fleet [--instances N] [--seconds S]     (BUILD names the build folder; its
 * bin/coordinator)
 *
 * Half of the N instances prefill, half decode. They are servers of this process that speak the
 * instance's side of the protocol and compute nothing. Three times are measured, in turns: polls
 * whose answers tell nothing of a cache; of DIGESTS_BUSY digests that came and as many that went in
 * each, as of an instance whose cache turns over with several prompts a second; and the same again
 * without, which shows what else changed meanwhile. Processor time is the coordinator's, over the
 * time of the clock on the wall. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/fds.h"
#include "common/base/log.h"
#include "common/net/http_server.h"
#include "proto/dresult.h"
#include "tests/bench/machine.h"
#include "tests/bench/relay_parts.h"

enum {
    FLEET_MAX = 1000,
    PEERS_MAX = 16, /* a group's */
    DIGESTS_WHOLE = 4096,
    DIGESTS_BUSY = 64, /* came, and went, with each poll */
    BEAT_MS = 500,     /* pd.heartbeat_ms by default */
    SETTLE_MS = 4000,
    KV_PORT = 2001, /* of the first, where nobody listens */
};

struct fleet {
    struct loop *loop;
    struct fleet_inst {
        struct fleet *f;
        struct http_server *server;
        struct http_x *dresult;
        enum inst_role role;
        uint32_t peers[PEERS_MAX];
        size_t n_peers;
        uint64_t n_digests; /* told so far; the last DIGESTS_WHOLE of them are there */
        uint64_t seq;
        unsigned index;
    } * inst;
    unsigned n;
    unsigned n_changes; /* digests that come and go with a poll */
    uint64_t n_polls, n_told;
};

/* ---- one instance */
static uint64_t digest_of(const struct fleet_inst *in, uint64_t i) {
    uint64_t d =
        (in->index + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ (i + 1) * UINT64_C(0xBF58476D1CE4E5B9);
    d ^= d >> 31;
    return (d * UINT64_C(0x94D049BB133111EB)) & ~PREFIX_GONE;
}

/* What the cache says behind the reader's last message, or all of it. */
static void tell_prefix(struct fleet_inst *in, const char *query, struct prefix_msg *m,
                        uint64_t digests[DIGESTS_WHOLE]) {
    char known[64];
    const unsigned n = in->f->n_changes;
    snprintf(known, sizeof(known), "prefix=%016x.%llu", in->index + 1, (unsigned long long)in->seq);
    *m = (struct prefix_msg){.epoch = in->index + 1, .digests = digests};
    if (strcmp(query, known) != 0) {
        m->whole = true;
        for (uint64_t i = 0; i < DIGESTS_WHOLE; i++)
            digests[m->n++] = digest_of(in, in->n_digests - DIGESTS_WHOLE + i);
    }
    for (unsigned i = 0; !m->whole && i < n; i++) {
        digests[m->n++] = digest_of(in, in->n_digests - DIGESTS_WHOLE) | PREFIX_GONE;
        digests[m->n++] = digest_of(in, in->n_digests++);
    }
    in->f->n_told += m->n;
    in->seq += m->n;
    m->seq = in->seq;
}

static void reply_status(struct fleet_inst *in, struct http_x *x) {
    struct link_status links[PEERS_MAX];
    uint64_t digests[DIGESTS_WHOLE];
    for (size_t i = 0; i < in->n_peers; i++) {
        links[i] = (struct link_status){.target = in->peers[i], .ok = true, .text = "ok"};
        snprintf(links[i].server_ip, sizeof(links[i].server_ip), "127.0.0.1");
    }
    struct status_msg m = {.role_status =
                               in->role == ROLE_NONE ? ROLE_STATUS_UNKNOWN : ROLE_STATUS_READY,
                           .role = in->role,
                           .avail_slots = 128,
                           .total_slots = 128,
                           .avail_blocks = 100000,
                           .free_blocks = 100000,
                           .total_blocks = 100000,
                           .links = links,
                           .n_links = in->n_peers};
    perf_add_prompt(&m.perf, 512, 0.2);
    perf_add_step(&m.perf, 8, 512, 0.02);
    snprintf(m.perf.kind, sizeof(m.perf.kind), "bench");
    tell_prefix(in, http_x_query(x), &m.prefix, digests);
    char *body = status_msg_format(&m, 2);
    require(body != NULL, "no memory");
    http_x_reply(x, 200, "application/json", body, strlen(body));
    free(body);
    in->f->n_polls++;
}

static void take_role(struct fleet_inst *in, struct http_x *x, enum inst_role role) {
    in->role = role;
    in->n_peers = relay_role_taken(x, in->peers, PEERS_MAX);
}

static void beat(struct fleet_inst *in, const char *text) {
    const struct dresult_frame f = {
        .kind = DR_HEARTBEAT, .req_id = "-", .body = text, .body_len = strlen(text)};
    struct wr w = WR_INIT;
    require(dresult_pack(&w, 2, &f) == ERR_OK, "no memory");
    http_x_stream_write(in->dresult, w.data, w.len);
    wr_free(&w);
}

static void on_gone(void *arg) {
    *(struct http_x **)arg = NULL;
}

static void begin_results(struct fleet_inst *in, struct http_x *x) {
    char hello[64];
    in->dresult = x;
    http_x_on_close(x, on_gone, &in->dresult);
    http_x_stream_begin(x, 200, "text/event-stream");
    snprintf(hello, sizeof(hello), DRESULT_HELLO "%x %u", in->index + 1, BEAT_MS);
    beat(in, hello);
}

static void on_request(void *arg, struct http_x *x) {
    static const char config[] = "{\"modelName\":\"m\",\"maxSeqLen\":1024,\"npuMemSize\":-1,"
                                 "\"cpuMemSize\":5,\"worldSize\":1,\"maxOutputLen\":512,"
                                 "\"cacheBlockSize\":16}";
    struct fleet_inst *in = arg;
    const char *path = http_x_path(x);
    if (strcmp(path, "/v1/config") == 0)
        http_x_reply(x, 200, "application/json", config, sizeof(config) - 1);
    else if (strcmp(path, "/v2/status") == 0)
        reply_status(in, x);
    else if (strncmp(path, "/v1/role/", 9) == 0)
        take_role(in, x, inst_role_parse(path + 9));
    else if (strcmp(path, "/dresult") == 0)
        begin_results(in, x);
    else
        http_x_reply(x, 200, "application/json", "{}", 2);
}

/* ---- all of them */
static void on_beat(void *arg) {
    struct fleet *f = arg;
    for (unsigned i = 0; i < f->n; i++)
        if (f->inst[i].dresult != NULL) beat(&f->inst[i], "");
}

static void fleet_open(struct fleet *f, unsigned n) {
    struct errbuf eb = {0};
    require(fds_raise(8 * n + 100) >= 8 * n + 100, "too few descriptors: raise ulimit -n");
    require(loop_create(&f->loop) == ERR_OK, "no loop");
    f->n = n;
    f->inst = calloc(n, sizeof(*f->inst));
    require(f->inst != NULL, "no memory");
    for (unsigned i = 0; i < n; i++) {
        struct fleet_inst *in = &f->inst[i];
        const struct http_server_opts o = {
            .host = "127.0.0.1", .on_request = on_request, .arg = in};
        *in = (struct fleet_inst){.f = f, .index = i, .n_digests = DIGESTS_WHOLE};
        if (http_server_open(&in->server, f->loop, &o, &eb) != ERR_OK) require(false, eb.text);
    }
}

static void fleet_close(struct fleet *f) {
    for (unsigned i = 0; i < f->n; i++) http_server_close(&f->inst[i].server);
    loop_destroy(&f->loop);
    free(f->inst);
}

static void fleet_daemon_start(struct fleet *f, struct relay_daemon *d) {
    struct relay_node *nodes = calloc(f->n, sizeof(*nodes));
    require(nodes != NULL, "no memory");
    for (unsigned i = 0; i < f->n; i++)
        nodes[i] = (struct relay_node){.port = http_server_port(f->inst[i].server),
                                       .kv_port = (uint16_t)(KV_PORT + i),
                                       .decodes = i % 2 == 1};
    relay_daemon_launch(
        d, nodes, f->n,
        &(struct relay_settings){
            .coordinator = "", .pd = "\"routing\":\"cost\",", .requests = 1000, .d_rate = 1});
    free(nodes);
}

static void fleet_run(struct fleet *f, unsigned ms) {
    struct loop_timer *end = NULL;
    require(loop_timer_start(&end, f->loop, ms, 0, (loop_fn *)loop_stop, f->loop) == ERR_OK,
            "no timer");
    loop_run(f->loop);
    loop_timer_stop(&end);
}

static bool fleet_serves(const struct fleet *f) {
    for (unsigned i = 0; i < f->n; i++)
        if (f->inst[i].n_peers == 0 || f->inst[i].dresult == NULL) return false;
    return true;
}

/* Percent of a core. */
static double fleet_cost(struct fleet *f, const struct relay_daemon *d, unsigned n_changes,
                         double seconds, const char *what) {
    f->n_changes = n_changes;
    fleet_run(f, 1000);
    f->n_polls = f->n_told = 0;
    const double from = bench_now(), cpu = relay_daemon_cpu(d);
    fleet_run(f, (unsigned)(seconds * 1000));
    const double s = bench_now() - from, percent = 100 * (relay_daemon_cpu(d) - cpu) / s;
    require(fleet_serves(f), "an instance was lost meanwhile");
    fprintf(stderr, "bench_fleet: %s: %.2f%% of a core, %.0f polls/s, %.0f digests/s\n", what,
            percent, (double)f->n_polls / s, (double)f->n_told / s);
    return percent;
}

int main(int argc, char **argv) {
    static struct fleet f;
    struct relay_daemon d;
    struct loop_timer *beats = NULL;
    const unsigned n = (unsigned)relay_option(argc, argv, "--instances", 2, FLEET_MAX, 400);
    const double seconds = relay_option(argc, argv, "--seconds", 1, 60, 10);
    log_init(LOG_ERROR, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    fleet_open(&f, n);
    require(loop_timer_start(&beats, f.loop, BEAT_MS, BEAT_MS, on_beat, &f) == ERR_OK, "no timer");
    fleet_daemon_start(&f, &d);
    for (const uint64_t late_ms = clock_ms() + 60000; !fleet_serves(&f);) {
        require(clock_ms() < late_ms, "not every instance serves");
        fleet_run(&f, 50);
    }
    fleet_run(&f, SETTLE_MS);
    const double before = fleet_cost(&f, &d, 0, seconds, "polls");
    const double busy = fleet_cost(&f, &d, DIGESTS_BUSY, seconds, "polls and digests");
    const double digests = (double)f.n_told / seconds, polls = (double)f.n_polls / seconds;
    const double after = fleet_cost(&f, &d, 0, seconds, "polls again");
    printf("fleet_%u_instances_cost %.2f %%_of_a_core polls_alone %.2f and %.2f polls_s %.0f "
           "digests_s %.0f memory_kb %.0f\n",
           n, busy, before, after, polls, digests, relay_daemon_kb(&d));
    relay_daemon_end(&d);
    loop_timer_stop(&beats);
    fleet_close(&f);
    return 0;
}
