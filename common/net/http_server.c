/* http_server: the listener and what all its connections share: the clock tick and the end of the
 * pass. */
#include "common/net/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_conn.h"
#include "common/net/tls.h"

enum {
    BACKLOG = 1024,
    ACCEPTS_PER_PASS = 64,
    ACCEPT_PAUSE_MS =
        100, /* when descriptors or memory have run out: the listener would be ready for ever */
    TICK_MS_MIN = 5,
    TICK_MS_MAX = 1000,
    TICK_US_PER_PASS = 5000, /* for closing those that are late, */
    TICK_LOOKS = 32,         /* of which so many are closed without a look at the clock */
};

static void server_free(struct http_server *s) {
    tls_close(&s->opts.tls);
    free(s->name);
    free(s);
}

/* A connection that closes in here is marked dirty again and freed at the next pass end; no caller
 * holds it then. */
static void on_pass_end(void *arg) {
    struct http_server *s = arg;
    struct http_conn *c = s->dirty;
    s->pass_end_set = false;
    s->dirty = NULL;
    while (c != NULL) {
        struct http_conn *next = c->next_dirty;
        if (next != NULL) http_conn_fetch(next);
        c->is_dirty = false;
        if (c->phase == PHASE_DEAD)
            http_conn_free(c);
        else
            http_conn_pass_end(c);
        c = next;
    }
    if (s->closed && !s->pass_end_set) server_free(s);
}

static void want_pass_end(struct http_server *s) {
    if (!s->pass_end_set) loop_at_pass_end(s->loop, &s->pass_end, on_pass_end, s);
    s->pass_end_set = true;
}

void http_server_dirty(struct http_server *s, struct http_conn *c) {
    if (!c->is_dirty) {
        c->is_dirty = true;
        c->next_dirty = s->dirty;
        s->dirty = c;
    }
    want_pass_end(s);
}

void http_server_forget(struct http_server *s, struct http_conn *c) {
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next != NULL) c->next->prev = c->prev;
    s->n_conns--;
    http_server_dirty(s, c);
}

/* Anyone who reaches the port can fail a handshake: the lines are bounded in time. */
void http_server_tls_failed(struct http_server *s, const char *peer, const char *why) {
    uint64_t now_ms = clock_ms();
    s->n_tls_failed++;
    if (now_ms < s->tls_log_next_ms) return;
    log_warn("tls", "event=handshake_failed port=%u peer=%s count=%u why=\"%s\"", (unsigned)s->port,
             peer, s->n_tls_failed, why);
    s->n_tls_failed = 0;
    s->tls_log_next_ms = now_ms + HTTP_TLS_LOG_MS;
}

struct budget *http_server_budget(const struct http_server *s) {
    return s->opts.gate != NULL ? s->opts.gate->budget : NULL;
}

static struct http_conn *first_of(const struct http_list *l) {
    return l->first != NULL ? l->first->of : NULL;
}

/* Who is idle goes before who is slow, and the oldest first. */
bool http_server_make_room(struct http_server *s) {
    uint64_t now_ms = clock_ms();
    struct http_conn *c = first_of(&s->idle), *head = first_of(&s->heads),
                     *slow = first_of(&s->stalled);
    if (c == NULL && head != NULL && now_ms - head->since_ms >= HTTP_HEAD_YIELD_MS) c = head;
    if (c == NULL && slow != NULL && now_ms - slow->stalled_ms >= HTTP_YIELD_MS) c = slow;
    if (c == NULL) return false;
    http_conn_spare(c);
    return true;
}

/* Thousands may be late at once: those for whom there is no time now are, a pass later. */
static void end_late(void *arg) {
    struct http_server *s = arg;
    const uint64_t now_ms = clock_ms(), end_us = clock_us() + TICK_US_PER_PASS;
    unsigned n = 0;
    /* A callback may close any connection; its memory and its `next` stay good until the pass ends.
     */
    for (struct http_conn *c = s->conns; c != NULL; c = c->next) {
        if (c->phase != PHASE_DEAD) http_conn_tick(c, now_ms);
        if (++n % TICK_LOOKS != 0 || clock_us() < end_us) continue;
        loop_alarm_set(s->loop, &s->tick_on, 0, end_late, s);
        return;
    }
}

static void on_tick(void *arg) {
    struct http_server *s = arg;
    http_gate_sweep(s->opts.gate, NULL);
    end_late(s);
}

static uint64_t tick_ms(const struct http_server_opts *o) {
    uint64_t least = HTTP_LINGER_MS;
    if (o->idle_ms > 0 && o->idle_ms < least) least = o->idle_ms;
    if (o->head_ms > 0 && o->head_ms < least) least = o->head_ms;
    if (o->read_ms > 0 && o->read_ms < least) least = o->read_ms;
    if (o->body_ms > 0 && o->body_ms < least) least = o->body_ms;
    if (o->body_rate_min > 0 && o->body_grace_ms > 0 && o->body_grace_ms < least)
        least = o->body_grace_ms;
    if (o->write_ms > 0 && o->write_ms < least) least = o->write_ms;
    if (o->tls != NULL && o->handshake_ms > 0 && o->handshake_ms < least) least = o->handshake_ms;
    least /= 4;
    return least < TICK_MS_MIN ? TICK_MS_MIN : least > TICK_MS_MAX ? TICK_MS_MAX : least;
}

static void peer_text(char out[HTTP_PEER_BYTES], const struct sockaddr_storage *sa) {
    char ip[INET6_ADDRSTRLEN] = "?";
    if (sa->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)sa;
        inet_ntop(AF_INET6, &a->sin6_addr, ip, sizeof(ip));
        snprintf(out, HTTP_PEER_BYTES, "[%s]:%u", ip, (unsigned)ntohs(a->sin6_port));
    } else {
        const struct sockaddr_in *a = (const void *)sa;
        inet_ntop(AF_INET, &a->sin_addr, ip, sizeof(ip));
        snprintf(out, HTTP_PEER_BYTES, "%s:%u", ip, (unsigned)ntohs(a->sin_port));
    }
}

static void on_accept_again(void *arg) {
    struct http_server *s = arg;
    if (s->listen_w != NULL && loop_fd_set(s->listen_w, LOOP_READ) != ERR_OK)
        loop_alarm_set(s->loop, &s->accept_pause, ACCEPT_PAUSE_MS, on_accept_again, s);
}

/* Descriptors or memory have run out. An idle connection may give up its own; otherwise nothing is
 * accepted for a while, since the listener would be ready for ever. True: try again. */
static bool out_of_room(struct http_server *s) {
    budget_refused(http_server_budget(s), BUDGET_DESCRIPTORS);
    if (http_gate_make_room(s->opts.gate)) return true;
    loop_alarm_set(s->loop, &s->accept_pause, ACCEPT_PAUSE_MS, on_accept_again, s);
    loop_fd_set(s->listen_w, 0);
    return false;
}

static void take_conn(struct http_server *s, int fd, const struct sockaddr_storage *sa) {
    char peer[HTTP_PEER_BYTES];
    struct http_addr *addr = NULL;
    int one = 1;
    if (!s->opts.control && !http_gate_enter(s->opts.gate, &addr, sa)) {
        close(fd);
        return;
    }
    if (s->n_conns < s->opts.conns_max || http_server_make_room(s)) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        peer_text(peer, sa);
        if (http_conn_open(s, fd, peer, addr) == ERR_OK) return;
    } else {
        budget_refused(http_server_budget(s),
                       s->opts.control ? BUDGET_CONTROL_CONNS : BUDGET_CONNS);
    }
    http_gate_leave(s->opts.gate, addr);
    close(fd);
}

static void on_accept(void *arg, int fd, int events) {
    struct http_server *s = arg;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_PASS; i++) {
        struct sockaddr_storage sa = {0};
        socklen_t len = sizeof(sa);
        int conn = accept4(fd, (struct sockaddr *)&sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (conn >= 0) {
            take_conn(s, conn, &sa);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!out_of_room(s)) return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* The literal as a socket address; false when it is none. */
static bool parse_host(struct sockaddr_storage *sa, socklen_t *len, const char *host,
                       uint16_t port) {
    struct sockaddr_in *v4 = (void *)sa;
    struct sockaddr_in6 *v6 = (void *)sa;
    memset(sa, 0, sizeof(*sa));
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *len = sizeof(*v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        *len = sizeof(*v6);
        return true;
    }
    return false;
}

static enum err listen_on(struct http_server *s, const char *host, uint16_t port,
                          struct errbuf *eb) {
    struct sockaddr_storage sa;
    socklen_t len;
    int one = 1;
    if (host == NULL || !parse_host(&sa, &len, host, port))
        return err_set(eb, ERR_INVALID, "\"%s\" is not an IP address", host != NULL ? host : "");
    s->listen_fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listen_fd < 0)
        return err_set(eb, ERR_IO, "cannot listen on %s:%u: %s", host, (unsigned)port,
                       strerror(errno));
    setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (sa.ss_family == AF_INET6)
        setsockopt(s->listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    if (bind(s->listen_fd, (struct sockaddr *)&sa, len) != 0 || listen(s->listen_fd, BACKLOG) != 0)
        return err_set(eb, errno == EADDRINUSE ? ERR_CONFLICT : ERR_IO,
                       "cannot listen on %s:%u: %s", host, (unsigned)port, strerror(errno));
    len = sizeof(sa);
    getsockname(s->listen_fd, (struct sockaddr *)&sa, &len);
    s->port = ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
                                             : ((struct sockaddr_in *)&sa)->sin_port);
    return ERR_OK;
}

enum err http_server_open(struct http_server **out, struct loop *loop,
                          const struct http_server_opts *opts, struct errbuf *eb) {
    struct http_server *s = calloc(1, sizeof(*s));
    enum err e;
    *out = NULL;
    if (s == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for a listener");
    s->loop = loop;
    s->opts = *opts;
    s->opts.host = NULL;
    s->opts.tls = tls_ref(opts->tls);
    if (s->opts.handshake_ms == 0) s->opts.handshake_ms = HTTP_HANDSHAKE_MS_DEFAULT;
    s->listen_fd = -1;
    if (opts->name != NULL && (s->name = strdup(opts->name)) == NULL) {
        e = err_set(eb, ERR_NO_MEMORY, "no memory for a listener");
        goto fail;
    }
    s->opts.name = s->name;
    if (s->opts.head_bytes_max == 0) s->opts.head_bytes_max = HTTP_HEAD_BYTES_MAX;
    if (s->opts.h2_streams_max == 0) s->opts.h2_streams_max = HTTP_H2_STREAMS_DEFAULT;
    if (s->opts.h2_control_rate == 0) s->opts.h2_control_rate = HTTP_H2_CONTROL_DEFAULT;
    if (s->opts.h2_reset_rate == 0) s->opts.h2_reset_rate = HTTP_H2_RESETS_DEFAULT;
    if (s->opts.conns_max == 0) s->opts.conns_max = HTTP_CONNS_DEFAULT;
    if ((e = listen_on(s, opts->host, opts->port, eb)) != ERR_OK) goto fail;
    if ((e = loop_timer_start(&s->tick, loop, tick_ms(opts), tick_ms(opts), on_tick, s)) !=
            ERR_OK ||
        (e = loop_fd_watch(&s->listen_w, loop, s->listen_fd, LOOP_READ, on_accept, s)) != ERR_OK) {
        err_set(eb, e, "no memory for a listener");
        goto fail;
    }
    http_gate_join(s->opts.gate, s);
    *out = s;
    return ERR_OK;
fail:
    loop_timer_stop(&s->tick);
    if (s->listen_fd >= 0) close(s->listen_fd);
    server_free(s);
    return e;
}

uint16_t http_server_port(const struct http_server *s) {
    return s->port;
}

unsigned http_server_conns(const struct http_server *s) {
    return s->n_conns;
}

void http_server_stop_accepting(struct http_server *s) {
    loop_alarm_stop(&s->accept_pause);
    loop_fd_unwatch(&s->listen_w);
    if (s->listen_fd >= 0) close(s->listen_fd);
    s->listen_fd = -1;
}

void http_server_leave(struct http_server *s) {
    s->leaving = true;
    for (struct http_conn *c = s->conns; c != NULL; c = c->next) {
        c->leaves = true;
        http_server_dirty(s, c);
    }
}

void http_server_close(struct http_server **sp) {
    struct http_server *s = *sp;
    if (s == NULL) return;
    *sp = NULL;
    http_server_stop_accepting(s);
    loop_timer_stop(&s->tick);
    loop_alarm_stop(&s->tick_on);
    while (s->conns != NULL) http_conn_shutdown(s->conns);
    http_gate_part(s->opts.gate, s);
    s->closed = true;
    want_pass_end(
        s); /* the caller may be a handler, with a connection of ours further up the stack */
}
