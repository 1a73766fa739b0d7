/* bench_relay: what the coordinator adds to a stream of tokens: relayed events per second of its
 * processor time, latency at 1, 100 and 1,000 streams, memory per stream.
 *
 *   bench_relay [--seconds S]       (BUILD names the build folder; runs its bin/coordinator)
 *
 * The coordinator is the real daemon. P and D are servers of this process that speak the instance's
 * side of the protocol and compute nothing; clients are sockets of a second thread. D writes one
 * frame per sequence and step, as a decode instance does, each with the time it was written.
 * Latency is from D's write to the client's read; what is added is that less the same for a stream
 * that D writes to a client directly. Rates are per second of the coordinator's processor time
 * (its threads together), so a busy machine changes them little: live at 20 tokens a second of each
 * stream, where every event is a read and a write of its own, and flat out, where what waits goes
 * out together. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_server.h"
#include "proto/dresult.h"
#include "proto/role_msg.h"
#include "proto/status_msg.h"
#include "tests/bench/machine.h"

enum { STREAMS_MAX = 1000, SAMPLES_MAX = 1 << 20, LINE = 220, PENDING_MAX = 1 << 18 };
static const char mark[] = "\"t\":";

static void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench_relay: %s\n", what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- clients: one thread, any number of sockets */
struct client {
    int fd;
    char tail[64]; /* the end of what was read, in case a mark is cut */
    size_t n_tail;
    bool begun;
};

struct clients {
    int epoll;
    uint16_t port;
    pthread_t thread;
    struct client *c[STREAMS_MAX];
    unsigned n;
    atomic_uint n_begun;   /* have their first event */
    atomic_ulong n_events; /* with a time */
    atomic_uint n_samples;
    atomic_bool measures, stops;
    float *us; /* [SAMPLES_MAX] */
};

static void client_scan(struct clients *s, struct client *c, const char *p, size_t n) {
    uint64_t now = now_ns();
    for (const char *at = p; (at = memmem(at, n - (size_t)(at - p), mark, 4)) != NULL; at += 4) {
        if ((size_t)(at - p) + 28 > n) break; /* its number may be cut: with the next piece */
        uint64_t t = strtoull(at + 4, NULL, 10);
        if (!c->begun) {
            c->begun = true;
            atomic_fetch_add(&s->n_begun, 1);
            continue;
        }
        if (atomic_load_explicit(&s->measures, memory_order_relaxed)) {
            unsigned i = atomic_fetch_add_explicit(&s->n_samples, 1, memory_order_relaxed);
            if (i < SAMPLES_MAX) s->us[i] = (float)(now - t) * 1e-3f;
        }
        atomic_fetch_add_explicit(&s->n_events, 1, memory_order_relaxed);
    }
}

static void client_read(struct clients *s, struct client *c) {
    char buf[64 + 65536];
    memcpy(buf, c->tail, c->n_tail);
    ssize_t got = recv(c->fd, buf + c->n_tail, sizeof(buf) - c->n_tail, MSG_DONTWAIT);
    if (got <= 0) {
        require(got < 0 && errno == EAGAIN, "a stream broke");
        return;
    }
    size_t n = c->n_tail + (size_t)got;
    client_scan(s, c, buf, n);
    /* keep what begins a mark whose number is not whole */
    size_t keep = n < 31 ? n : 31, from = n - keep;
    const char *cut = NULL;
    for (const char *at = buf + from; (at = memmem(at, n - (size_t)(at - buf), mark, 4)) != NULL;
         at += 4)
        if ((size_t)(at - buf) + 28 > n && cut == NULL) cut = at;
    if (cut != NULL) {
        c->n_tail = n - (size_t)(cut - buf);
    } else {
        c->n_tail = n < 3 ? n : 3;
    }
    memmove(c->tail, buf + n - c->n_tail, c->n_tail);
}

static void *clients_main(void *arg) {
    struct clients *s = arg;
    struct epoll_event ev[256];
    while (!atomic_load(&s->stops)) {
        int n = epoll_wait(s->epoll, ev, 256, 50);
        for (int i = 0; i < n; i++) client_read(s, ev[i].data.ptr);
    }
    return NULL;
}

static void client_open(struct clients *s, uint16_t port, const char *path) {
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct client *c = calloc(1, sizeof(*c));
    char head[512];
    static const char body[] = "{\"model\":\"m\",\"prompt\":\"once\",\"stream\":true}";
    require(c != NULL && s->n < STREAMS_MAX, "too many streams");
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(connect(c->fd, (struct sockaddr *)&sa, sizeof(sa)) == 0, "no connection");
    int n = snprintf(head, sizeof(head),
                     "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     path, sizeof(body) - 1, body);
    require(send(c->fd, head, (size_t)n, MSG_NOSIGNAL) == n, "send");
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    require(epoll_ctl(s->epoll, EPOLL_CTL_ADD, c->fd, &ev) == 0, "epoll");
    s->c[s->n++] = c;
}

static void clients_start(struct clients *s) {
    s->us = malloc(SAMPLES_MAX * sizeof(*s->us));
    require(s->us != NULL, "no memory");
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    require(pthread_create(&s->thread, NULL, clients_main, s) == 0, "no thread");
}

static void clients_stop(struct clients *s) {
    atomic_store(&s->stops, true);
    pthread_join(s->thread, NULL);
    for (unsigned i = 0; i < s->n; i++) {
        close(s->c[i]->fd);
        free(s->c[i]);
    }
    close(s->epoll);
    free(s->us);
}

static int compare_f32(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts the samples. */
static double percentile(struct clients *s, double q) {
    unsigned n = atomic_load(&s->n_samples);
    if (n > SAMPLES_MAX) n = SAMPLES_MAX;
    require(n > 0, "no event came");
    qsort(s->us, n, sizeof(*s->us), compare_f32);
    unsigned at = (unsigned)(q * n);
    return (double)s->us[at < n ? at : n - 1];
}

/* ---- the instances */
struct seq {
    char req_id[32];
    uint32_t epoch;
    uint64_t next;
};

struct bench {
    struct loop *loop;
    struct inst {
        struct bench *b;
        struct http_server *server;
        enum inst_role role;
        uint32_t peer;
        bool has_peer;
        uint16_t port;
    } p, d;
    struct http_x *dresult, *direct;
    struct seq seqs[STREAMS_MAX];
    unsigned n_seqs, at;
    uint64_t n_written, n_wanted;
    unsigned step; /* events of one timer tick; 0: as many as the socket takes */
    struct clients *clients;
    bool done;
};

static void on_gone(void *arg) {
    *(struct http_x **)arg = NULL;
}

static void reply_status(struct inst *in, struct http_x *x) {
    struct link_status link = {.target = in->peer, .ok = true, .text = "ok"};
    struct status_msg m = {.role_status =
                               in->role == ROLE_NONE ? ROLE_STATUS_UNKNOWN : ROLE_STATUS_READY,
                           .role = in->role,
                           .avail_slots = 5000,
                           .total_slots = 5000,
                           .avail_blocks = 1000000,
                           .free_blocks = 1000000,
                           .total_blocks = 1000000,
                           .links = &link,
                           .n_links = in->has_peer};
    snprintf(link.server_ip, sizeof(link.server_ip), "127.0.0.1");
    char *body = status_msg_format(&m, 2);
    require(body != NULL, "no memory");
    http_x_reply(x, 200, "application/json", body, strlen(body));
    free(body);
}

static void take_role(struct inst *in, struct http_x *x, enum inst_role role) {
    struct role_msg m;
    struct errbuf eb;
    size_t n;
    const char *body = http_x_body(x, &n);
    if (role_msg_parse(&m, 1, body, n, &eb) != ERR_OK) require(false, eb.text);
    in->role = role;
    in->has_peer = m.n_peers > 0;
    if (in->has_peer) in->peer = m.peers[0].id;
    role_msg_free(&m);
    http_x_reply(x, 200, "application/json", "{\"result\":\"ok\"}", 15);
}

static size_t event_text(char out[LINE + 1]) {
    int n =
        snprintf(out, LINE + 1,
                 "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1700000000,"
                 "\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\" and\",\"logprobs\":null,"
                 "\"finish_reason\":null}],\"t\":%020llu,\"x\":0}\n\n",
                 (unsigned long long)now_ns());
    return (size_t)n;
}

static void take_prompt(struct bench *b, struct http_x *x) {
    const char *id = http_x_header(x, "req-id"), *epoch = http_x_header(x, "req-epoch");
    char body[512];
    require(id != NULL && epoch != NULL && b->n_seqs < STREAMS_MAX, "an odd request");
    struct seq *s = &b->seqs[b->n_seqs++];
    *s = (struct seq){.epoch = (uint32_t)strtoul(epoch, NULL, 10)};
    snprintf(s->req_id, sizeof(s->req_id), "%s", id);
    int n = snprintf(body, sizeof(body),
                     "{\"reqId\":\"%s\",\"isStream\":true,\"isLastResp\":false,\"output\":"
                     "\"data: {\\\"t\\\":00000000000000000001,\\\"first\\\":0}\\n\\n\"}",
                     id);
    http_x_reply(x, 200, "application/json", body, (size_t)n);
}

static void on_request(void *arg, struct http_x *x) {
    struct inst *in = arg;
    struct bench *b = in->b;
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
        if (in != &b->d) {
            http_x_stream_begin(x, 200, "text/event-stream");
            return;
        }
        b->dresult = x;
        http_x_on_close(x, on_gone, &b->dresult);
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

/* One event: of the next sequence in turn, or on the direct stream. */
static void write_event(struct bench *b, struct wr *w) {
    char text[LINE + 1];
    size_t n = event_text(text);
    if (b->direct != NULL) {
        http_x_stream_write(b->direct, text, n);
    } else {
        struct seq *s = &b->seqs[b->at++ % b->n_seqs];
        struct dresult_frame f = {.kind = DR_DATA,
                                  .req_id = s->req_id,
                                  .epoch = s->epoch,
                                  .seq = s->next++,
                                  .body = text,
                                  .body_len = n};
        require(dresult_pack(w, 2, &f) == ERR_OK, "no memory");
    }
    b->n_written++;
}

static void on_tick(void *arg) {
    struct bench *b = arg;
    struct wr w = WR_INIT;
    require(b->dresult != NULL, "the coordinator left the result stream");
    unsigned n = b->step != 0 ? b->step : b->n_seqs;
    while (b->n_written < b->n_wanted && n-- > 0) write_event(b, &w);
    if (w.len > 0) http_x_stream_write(b->dresult, w.data, w.len);
    wr_free(&w);
    if (b->step == 0 && b->n_written < b->n_wanted && http_x_pending(b->dresult) < PENDING_MAX &&
        loop_post(b->loop, on_tick, b) != ERR_OK)
        require(false, "no memory");
}

static void on_look(void *arg) {
    struct bench *b = arg;
    if (b->step == 0 && b->n_written < b->n_wanted && http_x_pending(b->dresult) < PENDING_MAX)
        on_tick(b);
    if (atomic_load(&b->clients->n_events) < b->n_wanted) return;
    b->done = true;
    loop_stop(b->loop);
}

struct waiting {
    struct bench *b;
    bool (*fact)(struct bench *);
    uint64_t until_ms;
    const char *what;
};

static void on_wait(void *arg) {
    struct waiting *w = arg;
    require(clock_ms() < w->until_ms, w->what);
    if (w->fact(w->b)) loop_stop(w->b->loop);
}

/* Turns the loop until fact() is there. */
static void wait_for(struct bench *b, bool (*fact)(struct bench *), const char *what) {
    struct waiting w = {b, fact, clock_ms() + 60000, what};
    struct loop_timer *t = NULL;
    require(loop_timer_start(&t, b->loop, 1, 5, on_wait, &w) == ERR_OK, "no timer");
    loop_run(b->loop);
    loop_timer_stop(&t);
}

static bool all_begun(struct bench *b) {
    return atomic_load(&b->clients->n_begun) == b->clients->n;
}

/* n events in steps of `step` every every_ms; step 0: flat out. */
static void send_events(struct bench *b, uint64_t n, unsigned step, unsigned every_ms) {
    struct loop_timer *tick = NULL, *look = NULL;
    atomic_store(&b->clients->n_events, 0);
    atomic_store(&b->clients->n_samples, 0);
    atomic_store(&b->clients->measures, step != 0);
    b->n_written = 0;
    b->n_wanted = n;
    b->step = step;
    if (step != 0)
        require(loop_timer_start(&tick, b->loop, 1, every_ms, on_tick, b) == ERR_OK, "no timer");
    require(loop_timer_start(&look, b->loop, 1, 1, on_look, b) == ERR_OK, "no timer");
    loop_run(b->loop);
    loop_timer_stop(&tick);
    loop_timer_stop(&look);
}

/* ---- the coordinator */
struct daemon {
    pid_t pid;
    clockid_t cpu;
    uint16_t port;
    char dir[64];
};

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

static void daemon_start(struct daemon *d, const struct bench *b) {
    char conf[128], bin[256];
    const char *build = getenv("BUILD");
    snprintf(d->dir, sizeof(d->dir), "/tmp/baton-bench-XXXXXX");
    require(mkdtemp(d->dir) != NULL, "no folder");
    d->port = free_port();
    FILE *f = file_in(d->dir, "ranks.json");
    fprintf(f, "{\"version\":\"1.0\",\"status\":\"completed\",\"server_group_list\":[{\"group_id\":"
               "\"2\",\"server_list\":[");
    for (int i = 0; i < 2; i++)
        fprintf(f,
                "%s{\"server_ip\":\"127.0.0.1\",\"predict_port\":\"%u\",\"mgmt_port\":\"%u\","
                "\"metric_port\":\"%u\",\"inter_comm_port\":\"2000\",\"label\":%d,\"device\":[{"
                "\"device_id\":\"0\",\"device_ip\":\"127.0.0.1\",\"rank_id\":\"0\"}]}",
                i == 0 ? "" : ",", i == 0 ? b->p.port : b->d.port, i == 0 ? b->p.port : b->d.port,
                i == 0 ? b->p.port : b->d.port, i);
    fprintf(f, "]}]}");
    fclose(f);
    f = file_in(d->dir, "conf.json");
    fprintf(f,
            "{\"coordinator\":{\"http_config\":{\"predict_port\":\"%u\",\"manage_port\":\"%u\","
            "\"status_port\":\"%u\",\"external_port\":\"%u\"},\"log_info\":{\"log_level\":"
            "\"ERROR\"}},\"controller\":{\"default_p_rate\":1,"
            "\"default_d_rate\":1,\"global_rank_table_file_path\":\"%s/ranks.json\"}}",
            d->port, free_port(), free_port(), free_port(), d->dir);
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

static void daemon_stop(struct daemon *d) {
    char path[128];
    kill(d->pid, SIGKILL);
    waitpid(d->pid, NULL, 0);
    snprintf(path, sizeof(path), "%s/ranks.json", d->dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/conf.json", d->dir);
    unlink(path);
    rmdir(d->dir);
}

static double daemon_cpu(const struct daemon *d) {
    struct timespec t;
    require(clock_gettime(d->cpu, &t) == 0, "the coordinator has ended");
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double daemon_kb(const struct daemon *d) {
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

/* A request is answered 503 until both instances serve. */
static bool is_ready(struct bench *b) {
    return b->p.has_peer && b->d.has_peer && b->dresult != NULL;
}

/* ---- what is measured */
static double direct_p50(struct bench *b, unsigned n) {
    struct clients s = {0};
    b->clients = &s;
    clients_start(&s);
    client_open(&s, b->d.port, "/direct");
    wait_for(b, all_begun, "no direct stream");
    send_events(b, n, 1, 2);
    double p50 = percentile(&s, 0.5);
    clients_stop(&s);
    while (b->direct != NULL) wait_for(b, all_begun, "the direct stream does not end");
    return p50;
}

/* Budgets on the way of an event: one is taken and given for what waits at the client's connection,
 * one for a piece that waits for P. Most events need neither; here each has both. event_s: of the
 * coordinator's processor time, measured before in the same run. */
static void print_budget_cost(double event_s) {
    enum { N = 2000000, PAIRS = 2 };
    struct budget b;
    budget_init(&b);
    budget_limit_set(&b, BUDGET_ANSWER_BYTES, UINT64_C(1) << 30);
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int i = 0; i < N; i++) {
        require(budget_take(&b, BUDGET_ANSWER_BYTES, LINE), "a budget");
        budget_give(&b, BUDGET_ANSWER_BYTES, LINE);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    double pair_s =
        ((double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec)) / N;
    printf("relay_budgets_cost %.2f %%_of_an_event pair_ns %.1f event_ns %.0f\n",
           100 * PAIRS * pair_s / event_s, 1e9 * pair_s, 1e9 * event_s);
}

static void through(struct bench *b, const struct daemon *d, unsigned streams, double seconds,
                    double direct, double idle_kb) {
    struct clients s = {0};
    fprintf(stderr, "bench_relay: streams %u\n", streams);
    b->clients = &s;
    b->n_seqs = b->at = 0;
    clients_start(&s);
    for (unsigned i = 0; i < streams; i++) client_open(&s, d->port, "/v1/completions");
    wait_for(b, all_begun, "not every stream began");
    double kb = (daemon_kb(d) - idle_kb) / streams;
    /* 20 tokens a second of each stream, at most 32 sequences a step; at least one event in 5 ms */
    unsigned per_s = streams * 20, step = per_s >= 200 ? per_s / 200 : 1;
    unsigned every_ms = 5;
    while (step > 32 && every_ms > 1) {
        step = step * (every_ms - 1) / every_ms;
        every_ms--;
    }
    double rate_paced = step * 1000.0 / every_ms;
    const uint64_t n_paced = (uint64_t)(rate_paced * seconds);
    double cpu_paced = daemon_cpu(d);
    send_events(b, n_paced, step, every_ms);
    cpu_paced = daemon_cpu(d) - cpu_paced;
    double p50 = percentile(&s, 0.5), p99 = percentile(&s, 0.99);
    double cpu = daemon_cpu(d), t = bench_now();
    uint64_t n = (uint64_t)(60000 * seconds);
    send_events(b, n, 0, 0);
    cpu = daemon_cpu(d) - cpu;
    t = bench_now() - t;
    printf("relay_%u_streams_latency_p50 %.3f ms added %.3f p99 %.3f direct %.3f\n", streams,
           p50 * 1e-3, (p50 - direct) * 1e-3, p99 * 1e-3, direct * 1e-3);
    printf("relay_%u_streams_live_rate %.0f events/s_of_one_core\n", streams,
           (double)n_paced / cpu_paced);
    printf("relay_%u_streams_flat_out_rate %.0f events/s_of_one_core %.0f events/s_here\n", streams,
           (double)n / cpu, (double)n / t);
    if (streams >= 1000) print_budget_cost(cpu_paced / (double)n_paced);
    if (streams >= 1000) printf("relay_stream_memory %.1f KB\n", kb);
    fflush(stdout);
    clients_stop(&s);
}

static void inst_open(struct bench *b, struct inst *in) {
    struct errbuf eb = {0};
    const struct http_server_opts o = {
        .host = "127.0.0.1", .conns_max = 4000, .on_request = on_request, .arg = in};
    in->b = b;
    if (http_server_open(&in->server, b->loop, &o, &eb) != ERR_OK) require(false, eb.text);
    in->port = http_server_port(in->server);
}

int main(int argc, char **argv) {
    static struct bench b;
    struct daemon d;
    double seconds = argc == 3 && strcmp(argv[1], "--seconds") == 0 ? atof(argv[2]) : 3;
    require(seconds > 0 && seconds <= 60, "--seconds over 0, up to 60");
    log_init(LOG_ERROR, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    require(loop_create(&b.loop) == ERR_OK, "no loop");
    inst_open(&b, &b.p);
    inst_open(&b, &b.d);
    daemon_start(&d, &b);
    wait_for(&b, is_ready, "the coordinator does not take the instances");
    double direct = direct_p50(&b, (unsigned)(seconds * 200));
    /* The first request shows that all is settled; its memory is not a stream's. */
    through(&b, &d, 1, seconds, direct, daemon_kb(&d));
    through(&b, &d, 100, seconds, direct, daemon_kb(&d));
    through(&b, &d, 1000, seconds, direct, daemon_kb(&d));
    daemon_stop(&d);
    http_server_close(&b.p.server);
    http_server_close(&b.d.server);
    loop_destroy(&b.loop);
    return 0;
}
