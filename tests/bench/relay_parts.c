/* relay_parts: the coordinator between instances that compute nothing. */
#include "tests/bench/relay_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/base64.h"
#include "common/base/clock.h"
#include "common/base/fds.h"
#include "common/net/http_server.h"
#include "proto/dresult.h"
#include "proto/grpc.h"
#include "proto/role_msg.h"

enum {
    SAMPLES_MAX = 1 << 20,
    PENDING_MAX = 1 << 18,
    MARK_BYTES = 28, /* of a time with its name, and what must be there to know it whole */
    HANG_MS = 60000,
    BEAT_MS = 1000,
    FDS_MORE = 2000, /* beside those of streams */
    STEP_MAX = 32,
    SLOTS = 5000,    /* of each instance, the most that it may say */
    TICK_MAX = 1000, /* events of one turn flat out */
    SHUFFLE_SEED = 1,
    D_PORT = 2001, /* of the KV link of the first decode instance, where nobody listens */
};
static const char mark[] = "\"t\":";

void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench_relay: %s\n", what);
    exit(1);
}

double relay_option(int argc, char **argv, const char *name, double least, double most,
                    double value) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0) value = atof(argv[i + 1]);
    require(value >= least && value <= most, name);
    return value;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- events as their readers find them */
void arrivals_open(struct arrivals *a) {
    memset(a, 0, sizeof(*a));
    a->us = malloc(SAMPLES_MAX * sizeof(*a->us));
    require(a->us != NULL, "no memory");
}

void arrivals_close(struct arrivals *a) {
    free(a->us);
    a->us = NULL;
}

static void note_event(struct arrivals *a, struct arrivals_tail *tail, const char *at,
                       uint64_t now) {
    uint64_t t = strtoull(at + 4, NULL, 10);
    if (!tail->begun) {
        tail->begun = true;
        atomic_fetch_add(&a->n_begun, 1);
        return;
    }
    if (atomic_load_explicit(&a->measures, memory_order_relaxed)) {
        unsigned i = atomic_fetch_add_explicit(&a->n_samples, 1, memory_order_relaxed);
        if (i < SAMPLES_MAX) a->us[i] = (float)(now - t) * 1e-3f;
    }
    atomic_fetch_add_explicit(&a->n_events, 1, memory_order_relaxed);
}

/* Of bytes that are there in one piece: what is left behind the last whole mark is the next tail.
 */
static void scan_piece(struct arrivals *a, struct arrivals_tail *tail, const char *p, size_t n,
                       uint64_t now) {
    const char *at = p, *end = p + n, *cut = NULL;
    while ((at = memmem(at, (size_t)(end - at), mark, 4)) != NULL) {
        if (end - at < MARK_BYTES) {
            cut = at;
            break;
        }
        note_event(a, tail, at, now);
        at += MARK_BYTES;
    }
    tail->n = cut != NULL ? (size_t)(end - cut) : n < 3 ? n : 3;
    memmove(tail->text, end - tail->n, tail->n);
}

void arrivals_scan(struct arrivals *a, struct arrivals_tail *tail, const char *p, size_t n) {
    const uint64_t now = now_ns();
    while (n > 0) {
        char piece[sizeof(tail->text) + 16384];
        const size_t part = n < 16384 ? n : 16384, n_tail = tail->n;
        memcpy(piece, tail->text, n_tail);
        memcpy(piece + n_tail, p, part);
        scan_piece(a, tail, piece, n_tail + part, now);
        p += part;
        n -= part;
    }
}

static int compare_f32(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double arrivals_percentile(struct arrivals *a, double q) {
    unsigned n = atomic_load(&a->n_samples);
    if (n > SAMPLES_MAX) n = SAMPLES_MAX;
    require(n > 0, "no event came");
    qsort(a->us, n, sizeof(*a->us), compare_f32);
    unsigned at = (unsigned)(q * n);
    return (double)a->us[at < n ? at : n - 1];
}

/* ---- the instances */
static void on_gone(void *arg) {
    *(struct http_x **)arg = NULL;
}

/* 0: the prefill instance; 1 to RELAY_DS. */
static struct relay_inst *inst_of(struct relay_bench *b, int i) {
    return i == 0 ? &b->p : &b->d[i - 1];
}

static void reply_status(struct relay_inst *in, struct http_x *x) {
    struct link_status links[RELAY_DS];
    for (size_t i = 0; i < in->n_peers; i++) {
        links[i] = (struct link_status){.target = in->peers[i], .ok = true, .text = "ok"};
        snprintf(links[i].server_ip, sizeof(links[i].server_ip), "127.0.0.1");
    }
    struct status_msg m = {.role_status =
                               in->role == ROLE_NONE ? ROLE_STATUS_UNKNOWN : ROLE_STATUS_READY,
                           .role = in->role,
                           .avail_slots = SLOTS,
                           .total_slots = SLOTS,
                           .avail_blocks = 1000000,
                           .free_blocks = 1000000,
                           .total_blocks = 1000000,
                           .links = links,
                           .n_links = in->n_peers};
    char *body = status_msg_format(&m, 2);
    require(body != NULL, "no memory");
    http_x_reply(x, 200, "application/json", body, strlen(body));
    free(body);
}

size_t relay_role_taken(struct http_x *x, uint32_t *peers, size_t max) {
    struct role_msg m;
    struct errbuf eb;
    size_t n;
    const char *body = http_x_body(x, &n);
    if (role_msg_parse(&m, 1, body, n, &eb) != ERR_OK) require(false, eb.text);
    require(m.n_peers <= max, "too many peers");
    for (n = 0; n < m.n_peers; n++) peers[n] = m.peers[n].id;
    role_msg_free(&m);
    http_x_reply(x, 200, "application/json", "{\"result\":\"ok\"}", 15);
    return n;
}

static void take_role(struct relay_inst *in, struct http_x *x, enum inst_role role) {
    in->role = role;
    in->n_peers = relay_role_taken(x, in->peers, RELAY_DS);
}

/* One more event: a line of a stream, or a message of gRPC whose text (field 4 of TGIS'
 * GenerationResponse) has the time. */
static size_t event_line(char out[RELAY_LINE_BYTES + 1]) {
    enum { DIGITS = 20 };
    static const char before[] =
        "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":"
        "1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\" and\","
        "\"logprobs\":null,\"finish_reason\":null}],\"t\":",
                      behind[] = ",\"x\":0}\n\n";
    char *at = out + sizeof(before) - 1;
    uint64_t t = now_ns();
    memcpy(out, before, sizeof(before) - 1);
    for (int i = DIGITS; i-- > 0; t /= 10) at[i] = (char)('0' + t % 10);
    memcpy(at + DIGITS, behind, sizeof(behind));
    return sizeof(before) - 1 + DIGITS + sizeof(behind) - 1;
}

static size_t put_message(char out[RELAY_LINE_BYTES + 1], uint64_t t) {
    enum { HEAD = GRPC_HEAD_BYTES + 4 };
    const int n = snprintf(out + HEAD, RELAY_LINE_BYTES + 1 - HEAD, " and\"t\":%020llu,\"x\":0}",
                           (unsigned long long)t);
    grpc_head_put((unsigned char *)out, (uint32_t)n + 4);
    out[GRPC_HEAD_BYTES] = 2 << 3; /* generated_token_count */
    out[GRPC_HEAD_BYTES + 1] = 1;
    out[GRPC_HEAD_BYTES + 2] = 4 << 3 | 2; /* text */
    out[GRPC_HEAD_BYTES + 3] = (char)n;
    return HEAD + (size_t)n;
}

static void reply_first_message(struct http_x *x, const char *id) {
    char body[512], message[RELAY_LINE_BYTES + 1];
    struct buf text = BUF_INIT;
    base64_put(&text, message, put_message(message, 1));
    buf_append(&text, "", 1);
    require(!text.failed, "no memory");
    int n = snprintf(body, sizeof(body),
                     "{\"reqId\":\"%s\",\"isStream\":true,\"isLastResp\":false,"
                     "\"outputBase64\":\"%s\"}",
                     id, text.data);
    buf_free(&text);
    http_x_reply(x, 200, "application/json", body, (size_t)n);
}

static void take_prompt(struct relay_bench *b, struct http_x *x) {
    const char *id = http_x_header(x, "req-id"), *epoch = http_x_header(x, "req-epoch"),
               *target = http_x_header(x, "d-target");
    char body[512];
    require(id != NULL && epoch != NULL && target != NULL && b->n_seqs < RELAY_STREAMS_MAX,
            "an odd request");
    const char *port = strchr(target, ';');
    require(port != NULL, "an odd d-target");
    struct seq *s = &b->seqs[b->n_seqs++];
    *s = (struct seq){.epoch = (uint32_t)strtoul(epoch, NULL, 10),
                      .d = (unsigned)atoi(port + 1) - D_PORT,
                      .grpc = grpc_is_path(http_x_path(x))};
    snprintf(s->req_id, sizeof(s->req_id), "%s", id);
    require(s->d < RELAY_DS, "an odd d-target");
    if (s->grpc) {
        reply_first_message(x, id);
        return;
    }
    int n = snprintf(body, sizeof(body),
                     "{\"reqId\":\"%s\",\"isStream\":true,\"isLastResp\":false,\"output\":"
                     "\"data: {\\\"t\\\":00000000000000000001,\\\"first\\\":0}\\n\\n\"}",
                     id);
    http_x_reply(x, 200, "application/json", body, (size_t)n);
}

static void on_request(void *arg, struct http_x *x) {
    struct relay_inst *in = arg;
    struct relay_bench *b = in->b;
    const char *path = http_x_path(x);
    static const char config[] = "{\"modelName\":\"m\",\"maxSeqLen\":1024,\"npuMemSize\":-1,"
                                 "\"cpuMemSize\":5,\"worldSize\":1,\"maxOutputLen\":512,"
                                 "\"cacheBlockSize\":16}";
    if (strcmp(path, "/v1/config") == 0) {
        http_x_reply(x, 200, "application/json", config, sizeof(config) - 1);
    } else if (strcmp(path, "/v2/status") == 0) {
        reply_status(in, x);
    } else if (strncmp(path, "/v1/role/", 9) == 0) {
        take_role(in, x, inst_role_parse(path + 9));
    } else if (strcmp(path, "/dresult") == 0) {
        in->dresult = x;
        http_x_on_close(x, on_gone, &in->dresult);
        http_x_stream_begin(x, 200, "text/event-stream");
    } else if (strcmp(path, "/direct") == 0) {
        static const char first[] = "data: {\"t\":00000000000000000001,\"first\":0}\n\n";
        b->direct = x;
        http_x_on_close(x, on_gone, &b->direct);
        http_x_stream_begin(x, 200, "text/event-stream");
        http_x_stream_write(x, first, sizeof(first) - 1);
    } else if (strstr(path, "stopInfer") != NULL || strcmp(http_x_method(x), "GET") == 0) {
        http_x_reply(x, 200, "application/json", "{}", 2);
    } else {
        take_prompt(b, x);
    }
}

static void put_frame(struct wr *w, struct seq *s, enum dresult_kind kind, const char *p,
                      size_t n) {
    struct dresult_frame f = {.kind = kind,
                              .req_id = s->req_id,
                              .epoch = s->epoch,
                              .seq = s->next++,
                              .body = p,
                              .body_len = n};
    require(dresult_pack(w, 2, &f) == ERR_OK, "no memory");
}

/* One event: of the next sequence in turn, or on the direct stream. */
static void write_event(struct relay_bench *b, struct wr w[RELAY_DS]) {
    char text[RELAY_LINE_BYTES + 1];
    if (b->direct != NULL) {
        http_x_stream_write(b->direct, text, event_line(text));
    } else {
        struct seq *s = &b->seqs[b->at++ % b->n_seqs];
        size_t n = s->grpc ? put_message(text, now_ns()) : event_line(text);
        put_frame(&w[s->d], s, DR_DATA, text, n);
    }
    b->n_written++;
}

static void send_frames(struct relay_bench *b, struct wr w[RELAY_DS]) {
    for (int i = 0; i < RELAY_DS; i++) {
        require(b->d[i].dresult != NULL, "the coordinator left the result stream");
        if (w[i].len > 0) http_x_stream_write(b->d[i].dresult, w[i].data, w[i].len);
        wr_free(&w[i]);
    }
}

void relay_finish(struct relay_bench *b) {
    static const char done[] = "data: [DONE]\n\n";
    struct wr w[RELAY_DS] = {0};
    for (unsigned i = 0; i < b->n_seqs; i++) {
        struct seq *s = &b->seqs[i];
        put_frame(&w[s->d], s, DR_LAST, done, s->grpc ? 0 : sizeof(done) - 1);
    }
    send_frames(b, w);
}

void relay_forget(struct relay_bench *b) {
    b->n_seqs = b->at = 0;
}

void relay_shuffle(struct relay_bench *b) {
    uint32_t r = SHUFFLE_SEED;
    for (unsigned i = b->n_seqs; i > 1; i--) {
        r = r * 1664525 + 1013904223;
        const unsigned j = (r >> 8) % i;
        struct seq s = b->seqs[i - 1];
        b->seqs[i - 1] = b->seqs[j];
        b->seqs[j] = s;
    }
}

static size_t pending(const struct relay_bench *b) {
    size_t most = 0;
    for (int i = 0; i < RELAY_DS; i++) {
        const size_t n = b->d[i].dresult != NULL ? http_x_pending(b->d[i].dresult) : 0;
        if (n > most) most = n;
    }
    return most;
}

static void on_tick(void *arg) {
    struct relay_bench *b = arg;
    struct wr w[RELAY_DS] = {0};
    unsigned n = b->step != 0 ? b->step : b->n_seqs < TICK_MAX ? b->n_seqs : TICK_MAX;
    while (b->n_written < b->n_wanted && n-- > 0) write_event(b, w);
    send_frames(b, w);
    if (b->step == 0 && b->n_written < b->n_wanted && pending(b) < PENDING_MAX &&
        loop_post(b->loop, on_tick, b) != ERR_OK)
        require(false, "no memory");
}

static void on_look(void *arg) {
    struct relay_bench *b = arg;
    if (b->step == 0 && b->n_written < b->n_wanted && pending(b) < PENDING_MAX) on_tick(b);
    if (atomic_load(&b->arrivals->n_events) >= b->n_wanted ||
        atomic_load(&b->arrivals->n_failed) > 0)
        loop_stop(b->loop);
    else
        require(clock_ms() < b->late_ms, "events are missing");
}

struct waiting {
    struct relay_bench *b;
    bool (*fact)(struct relay_bench *);
    uint64_t until_ms;
    const char *what;
};

static void on_wait(void *arg) {
    struct waiting *w = arg;
    require(clock_ms() < w->until_ms, w->what);
    if (w->fact(w->b)) loop_stop(w->b->loop);
}

void relay_wait(struct relay_bench *b, bool (*fact)(struct relay_bench *), const char *what) {
    struct waiting w = {b, fact, clock_ms() + HANG_MS, what};
    struct loop_timer *t = NULL;
    require(loop_timer_start(&t, b->loop, 1, 5, on_wait, &w) == ERR_OK, "no timer");
    loop_run(b->loop);
    loop_timer_stop(&t);
}

bool relay_all_begun(struct relay_bench *b) {
    return atomic_load(&b->arrivals->n_begun) == b->n_wished ||
           atomic_load(&b->arrivals->n_failed) > 0;
}

/* A request is answered 503 until all instances serve. */
bool relay_ready(struct relay_bench *b) {
    bool ready = b->p.n_peers == RELAY_DS;
    for (int i = 0; i < RELAY_DS; i++)
        ready = ready && b->d[i].n_peers > 0 && b->d[i].dresult != NULL;
    return ready;
}

void relay_pace(unsigned per_s, unsigned *step, unsigned *every_ms) {
    *every_ms = 5;
    *step = per_s >= 200 ? per_s / 200 : 1;
    while (*step > STEP_MAX && *every_ms > 1) {
        *step = *step * (*every_ms - 1) / *every_ms;
        (*every_ms)--;
    }
}

void relay_send(struct relay_bench *b, uint64_t n, unsigned step, unsigned every_ms) {
    struct loop_timer *tick = NULL, *look = NULL;
    atomic_store(&b->arrivals->n_events, 0);
    atomic_store(&b->arrivals->n_samples, 0);
    atomic_store(&b->arrivals->measures, step != 0);
    b->n_written = 0;
    b->n_wanted = n;
    b->step = step;
    b->late_ms = clock_ms() + HANG_MS + (step != 0 ? n / step * every_ms : 0);
    if (step != 0)
        require(loop_timer_start(&tick, b->loop, 1, every_ms, on_tick, b) == ERR_OK, "no timer");
    require(loop_timer_start(&look, b->loop, 1, 1, on_look, b) == ERR_OK, "no timer");
    loop_run(b->loop);
    loop_timer_stop(&tick);
    loop_timer_stop(&look);
}

/* A stream without a byte for long counts as lost. */
static void on_beat(void *arg) {
    struct relay_bench *b = arg;
    const struct dresult_frame f = {.kind = DR_HEARTBEAT, .req_id = "-", .body = ""};
    struct wr w = WR_INIT;
    require(dresult_pack(&w, 2, &f) == ERR_OK, "no memory");
    for (int i = 0; i <= RELAY_DS; i++) {
        struct http_x *x = inst_of(b, i)->dresult;
        if (x != NULL) http_x_stream_write(x, w.data, w.len);
    }
    wr_free(&w);
}

static void inst_open(struct relay_bench *b, struct relay_inst *in) {
    struct errbuf eb = {0};
    const struct http_server_opts o = {.host = "127.0.0.1",
                                       .conns_max = 2 * RELAY_STREAMS_MAX,
                                       .on_request = on_request,
                                       .arg = in};
    in->b = b;
    if (http_server_open(&in->server, b->loop, &o, &eb) != ERR_OK) require(false, eb.text);
    in->port = http_server_port(in->server);
}

void relay_bench_open(struct relay_bench *b, unsigned streams, unsigned n_h2) {
    const unsigned fds = FDS_MORE + streams - n_h2;
    memset(b, 0, sizeof(*b));
    b->n_most = streams;
    require(fds_raise(fds) >= fds, "too few descriptors: raise ulimit -n");
    require(loop_create(&b->loop) == ERR_OK, "no loop");
    inst_open(b, &b->p);
    for (int i = 0; i < RELAY_DS; i++) inst_open(b, &b->d[i]);
    require(loop_timer_start(&b->beat, b->loop, BEAT_MS, BEAT_MS, on_beat, b) == ERR_OK,
            "no timer");
}

void relay_bench_close(struct relay_bench *b) {
    loop_timer_stop(&b->beat);
    http_server_close(&b->p.server);
    for (int i = 0; i < RELAY_DS; i++) http_server_close(&b->d[i].server);
    loop_destroy(&b->loop);
}

/* ---- the coordinator */
static uint16_t free_port(void) {
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(bind(fd, (struct sockaddr *)&sa, n) == 0 &&
                getsockname(fd, (struct sockaddr *)&sa, &n) == 0,
            "no port");
    close(fd);
    return ntohs(sa.sin_port);
}

static FILE *file_in(const char *dir, const char *name) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    require(f != NULL, "cannot write a configuration");
    return f;
}

static void write_ranks(const char *dir, const struct relay_node *nodes, size_t n) {
    FILE *f = file_in(dir, "ranks.json");
    fprintf(f, "{\"version\":\"1.0\",\"status\":\"completed\",\"server_group_list\":[{\"group_id\":"
               "\"2\",\"server_list\":[");
    for (size_t i = 0; i < n; i++)
        fprintf(f,
                "%s{\"server_ip\":\"127.0.0.1\",\"predict_port\":\"%u\",\"mgmt_port\":\"%u\","
                "\"metric_port\":\"%u\",\"inter_comm_port\":\"%u\",\"label\":%d,\"device\":[{"
                "\"device_id\":\"0\",\"device_ip\":\"127.0.0.1\",\"rank_id\":\"0\"}]}",
                i == 0 ? "" : ",", nodes[i].port, nodes[i].port, nodes[i].port, nodes[i].kv_port,
                nodes[i].decodes ? 1 : 0);
    fprintf(f, "]}]}");
    fclose(f);
}

void relay_daemon_launch(struct relay_daemon *d, const struct relay_node *nodes, size_t n,
                         const struct relay_settings *s) {
    char conf[128], bin[256];
    const char *build = getenv("BUILD");
    snprintf(d->dir, sizeof(d->dir), "/tmp/baton-bench-XXXXXX");
    require(mkdtemp(d->dir) != NULL, "no folder");
    d->port = free_port();
    write_ranks(d->dir, nodes, n);
    FILE *f = file_in(d->dir, "conf.json");
    fprintf(f,
            "{\"coordinator\":{%s"
            "\"request_limit\":{\"single_node_max_requests\":15000,\"max_requests\":%u},"
            "\"http_config\":{\"predict_port\":\"%u\",\"manage_port\":\"%u\","
            "\"status_port\":\"%u\",\"external_port\":\"%u\"},"
            "\"log_info\":{\"log_level\":\"ERROR\"}},"
            "\"pd\":{%s\"limits\":{\"connections\":%u}},"
            "\"controller\":{\"default_p_rate\":1,\"default_d_rate\":%u,"
            "\"global_rank_table_file_path\":\"%s/ranks.json\"}}",
            s->coordinator, s->requests, d->port, free_port(), free_port(), free_port(), s->pd,
            s->requests, s->d_rate, d->dir);
    fclose(f);
    snprintf(conf, sizeof(conf), "%s/conf.json", d->dir);
    snprintf(bin, sizeof(bin), "%s/bin/coordinator", build != NULL ? build : "build");
    d->pid = fork();
    require(d->pid >= 0, "no process");
    if (d->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(bin, bin, "--config", conf, (char *)NULL);
        _exit(127);
    }
    require(clock_getcpuclockid(d->pid, &d->cpu) == 0, "the coordinator does not run");
}

void relay_daemon_start(struct relay_daemon *d, struct relay_bench *b, const char *tls) {
    struct relay_node nodes[1 + RELAY_DS];
    for (int i = 0; i <= RELAY_DS; i++)
        nodes[i] = (struct relay_node){
            .port = inst_of(b, i)->port, .kv_port = (uint16_t)(D_PORT - 1 + i), .decodes = i > 0};
    relay_daemon_launch(
        d, nodes, 1 + RELAY_DS,
        &(struct relay_settings){
            .coordinator = tls, .pd = "", .requests = b->n_most, .d_rate = RELAY_DS});
}

static bool is_left(struct relay_bench *b) {
    bool left = b->p.dresult == NULL;
    for (int i = 0; i < RELAY_DS; i++) left = left && b->d[i].dresult == NULL;
    return left;
}

void relay_daemon_end(struct relay_daemon *d) {
    char path[128];
    kill(d->pid, SIGKILL);
    waitpid(d->pid, NULL, 0);
    snprintf(path, sizeof(path), "%s/ranks.json", d->dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/conf.json", d->dir);
    unlink(path);
    rmdir(d->dir);
}

void relay_daemon_stop(struct relay_daemon *d, struct relay_bench *b) {
    relay_daemon_end(d);
    relay_wait(b, is_left, "the coordinator's connections remain");
    for (int i = 0; i <= RELAY_DS; i++) {
        inst_of(b, i)->role = ROLE_NONE;
        inst_of(b, i)->n_peers = 0;
    }
}

double relay_daemon_cpu(const struct relay_daemon *d) {
    struct timespec t;
    require(clock_gettime(d->cpu, &t) == 0, "the coordinator has ended");
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double relay_daemon_kb(const struct relay_daemon *d) {
    char path[64], line[256];
    double kb = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)d->pid);
    FILE *f = fopen(path, "r");
    require(f != NULL, "the coordinator has ended");
    while (fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0) kb = atof(line + 6);
    fclose(f);
    return kb;
}
