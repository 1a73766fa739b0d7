/* kv_listener: where a KV link begins, both ends of it. Who connects asks at the other's
 * interCommPort where its pair is; that one binds one for it and answers with port and ticket.
 *
 * The listener is a TCP socket of our own, since nanomsg takes in everybody and tells nobody's
 * address. Here the address is what counts: the question comes from the asker's own interCommPort,
 * a port that only it can have, so a question from a peer's address and port is the peer's, and any
 * other is a stranger's. A stranger is told so and changes nothing: it takes one of a few places,
 * for a second at most, and loses it to the next one; a peer needs none of these places. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/bus.h"
#include "common/instance/kv_link.h"

enum {
    LISTENER_BURST = 64,
    LISTENER_BACKLOG = 4096,
    LISTENER_REST_MS = 100,
    LISTENER_SAY_MS = 1000,
    CROSSED_MAX = 50,
    CROSSED_MS_MAX = 20
};

static bool set(int fd, int level, int option, int value) {
    return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

/* The socket ends at once, and nothing of it stays in the kernel: neither of a crowd of strangers,
 * nor of a question of ours, whose two addresses are the same the next time. */
static void end_without_trace(int fd) {
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

/* A socket bound to our own address at the cluster plane. shared: beside the listener, for a
 * question.
 */
static int own_socket(const struct kv_plane *kp, uint16_t port, bool shared) {
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, kp->bind_ip, &sa.sin_addr) != 1) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (set(fd, SOL_SOCKET, SO_REUSEADDR, 1) && (!shared || set(fd, SOL_SOCKET, SO_REUSEPORT, 1)) &&
        bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

enum err kv_listener_open(struct kv_plane *kp, struct errbuf *eb) {
    struct sockaddr_in sa;
    socklen_t n = sizeof(sa);
    kp->listener = own_socket(kp, kp->o.port, false);
    /* Only now may our own questions share the port: a second instance must not. */
    if (kp->listener < 0 || !set(kp->listener, SOL_SOCKET, SO_REUSEPORT, 1) ||
        listen(kp->listener, LISTENER_BACKLOG) != 0 ||
        getsockname(kp->listener, (struct sockaddr *)&sa, &n) != 0) {
        bool taken = errno == EADDRINUSE || errno == EADDRNOTAVAIL || errno == EACCES;
        return err_set(
            eb, taken ? ERR_CONFLICT : ERR_IO,
            "KV link: cannot listen on %s:%u (interCommPort): %s", kp->bind_ip, kp->o.port,
            taken ? "the port is taken or the address is not of this host" : strerror(errno));
    }
    kp->port = ntohs(sa.sin_port);
    return ERR_OK;
}

/* ---- the end that waits: guests */

static void guest_end(struct kv_plane *kp, struct kv_guest **at) {
    struct kv_guest *g = *at;
    *at = g->next;
    if (g->stranger) {
        kp->n_strangers--;
        budget_give(kp->o.budget, BUDGET_KV_LISTENER, 1);
    }
    close(g->fd);
    free(g);
}

void kv_listener_close(struct kv_plane *kp) {
    while (kp->guests != NULL) guest_end(kp, &kp->guests);
    if (kp->listener >= 0) close(kp->listener);
    kp->listener = -1;
}

static struct kv_link *link_at(const struct kv_plane *kp, const char *ip, uint16_t port) {
    for (struct kv_link *l = kp->links; l != NULL; l = l->next) {
        if (l->port == port && (strcmp(l->ip, ip) == 0 || strcmp(l->host_ip, ip) == 0)) return l;
    }
    return NULL;
}

/* Makes room for a stranger from this address: the one that has been here longest goes. */
static void make_room(struct kv_plane *kp, const char *ip) {
    struct kv_guest **oldest = NULL, **oldest_of_ip = NULL;
    size_t n_of_ip = 0;
    for (struct kv_guest **at = &kp->guests; *at != NULL; at = &(*at)->next) {
        if (!(*at)->stranger) continue;
        if (oldest == NULL) oldest = at;
        if (strcmp((*at)->ip, ip) != 0) continue;
        if (oldest_of_ip == NULL) oldest_of_ip = at;
        n_of_ip++;
    }
    struct kv_guest **goes = n_of_ip >= KV_STRANGERS_PER_IP_MAX    ? oldest_of_ip
                             : kp->n_strangers >= KV_STRANGERS_MAX ? oldest
                                                                   : NULL;
    if (goes == NULL) return;
    budget_refused(kp->o.budget, BUDGET_KV_LISTENER);
    end_without_trace((*goes)->fd);
    guest_end(kp, goes);
}

/* Takes fd. */
static void guest_begin(struct kv_plane *kp, int fd, const struct sockaddr_in *from,
                        uint64_t now_ms) {
    struct kv_guest *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        end_without_trace(fd);
        close(fd);
        return;
    }
    g->fd = fd;
    g->port = ntohs(from->sin_port);
    inet_ntop(AF_INET, &from->sin_addr, g->ip, sizeof(g->ip));
    g->stranger = link_at(kp, g->ip, g->port) == NULL;
    g->until_ms = now_ms + (g->stranger ? KV_STRANGER_MS : kp->o.connect_ms);
    set(fd, IPPROTO_TCP, TCP_LINGER2, -1); /* closed means gone, not a minute later */
    if (g->stranger) {
        make_room(kp, g->ip);
        kp->n_strangers++;
        budget_take(kp->o.budget, BUDGET_KV_LISTENER, 1);
    }
    struct kv_guest **at = &kp->guests;
    while (*at != NULL) at = &(*at)->next;
    *at = g;
}

static void take_in(struct kv_plane *kp, uint64_t now_ms) {
    if (now_ms < kp->listener_rest_ms) {
        kv_due(kp, kp->listener_rest_ms);
        return;
    }
    for (int i = 0; i < LISTENER_BURST; i++) {
        struct sockaddr_in from = {0};
        socklen_t n = sizeof(from);
        int fd = accept4(kp->listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            guest_begin(kp, fd, &from, now_ms);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        /* No descriptor or no memory: the listener would stay readable all the time. */
        if (now_ms >= kp->listener_said_ms + LISTENER_SAY_MS) {
            log_warn("kv_link", "event=listener_rests why=\"%s\"", strerror(errno));
            kp->listener_said_ms = now_ms;
        }
        kp->listener_rest_ms = now_ms + LISTENER_REST_MS;
        kv_due(kp, kp->listener_rest_ms);
        return;
    }
}

/* ---- the end that waits: answers */

static uint64_t random_u64(void) {
    uint64_t v = 0;
    if (getrandom(&v, sizeof(v), 0) != sizeof(v)) v = clock_unix_us() * 0x9e3779b97f4a7c15u;
    return v;
}

static void open_pair(struct kv_plane *kp, struct kv_link *l, const char *from_ip,
                      struct kv_link_answer *a) {
    int sock = -1;
    kv_pipe_retire(kp, &l->fresh); /* an earlier attempt */
    do {
        a->ticket = random_u64();
    } while (a->ticket == 0);
    if (bus_open(&sock, KV_MESSAGE_BYTES_MAX) != ERR_OK ||
        bus_bind_any(sock, kp->bind_ip, &a->port) != ERR_OK) {
        bus_close(&sock);
        a->code = KV_LINK_UNREACHABLE;
        snprintf(a->text, sizeof(a->text), "the peer has no socket left");
        return;
    }
    enum err e = bus_admit(kp->bind_ip, a->port, from_ip);
    if (e != ERR_OK && !kp->said_unguarded) {
        kp->said_unguarded = true;
        log_warn("kv_link", "event=pairs_unguarded why=\"no socket filter (%s)\"", err_name(e));
    }
    if (kv_link_begin(kp, l, sock, a->port, a->ticket) != ERR_OK) {
        a->code = KV_LINK_UNREACHABLE;
        snprintf(a->text, sizeof(a->text), "the peer is out of memory");
    }
}

/* Both sides show it, or someone would look for the reason on the wrong one. */
static void refuse_unsealed(struct kv_plane *kp, struct kv_link *l, const struct kv_link_ask *ask,
                            struct kv_link_answer *a) {
    a->code = KV_LINK_SEAL;
    snprintf(a->text, sizeof(a->text),
             "interCommTLSEnabled: instance %u has %s, instance %u has %s", kp->io_self_id,
             kp->o.tls != NULL ? "true" : "false", ask->from_id, ask->sealed ? "true" : "false");
    if (!l->up && l->fresh == NULL) kv_link_attempt_failed(kp, l, a->code, a->text, false);
}

static void answer_ask(struct kv_plane *kp, const struct kv_guest *g, const struct kv_link_ask *ask,
                       struct kv_link_answer *a) {
    struct kv_link *l = link_at(kp, g->ip, g->port);
    if (kp->io_can == 0) {
        a->code = KV_LINK_ROLE;
        snprintf(a->text, sizeof(a->text), "role: instance %u has none", kp->io_self_id);
    } else if (ask->to_id != 0 && ask->to_id != kp->io_self_id) {
        a->code = KV_LINK_NOT_WANTED;
        snprintf(a->text, sizeof(a->text), "instance id: mine %u, asked for %u", kp->io_self_id,
                 ask->to_id);
    } else if (l == NULL) {
        a->code = KV_LINK_NOT_WANTED;
        snprintf(a->text, sizeof(a->text),
                 "%s:%u, which says that it is instance %u, is not the address and interCommPort "
                 "of a peer of instance %u",
                 g->ip, g->port, ask->from_id, kp->io_self_id);
    } else if (l->id != 0 && ask->from_id != 0 && l->id != ask->from_id) {
        a->code = KV_LINK_NOT_WANTED;
        snprintf(a->text, sizeof(a->text), "%s:%u is instance %u to instance %u, not instance %u",
                 g->ip, g->port, l->id, kp->io_self_id, ask->from_id);
    } else if (kv_link_connects(kp, l)) {
        a->code = KV_LINK_ROLE;
        snprintf(a->text, sizeof(a->text),
                 "instance %u connects, not instance %u, whose id is not lower", kp->io_self_id,
                 ask->from_id);
    } else if (ask->sealed != (kp->o.tls != NULL)) {
        refuse_unsealed(kp, l, ask, a);
    } else {
        open_pair(kp, l, g->ip, a);
    }
}

/* A whole question. False: it was none, and nobody is told anything. */
static bool answer(struct kv_plane *kp, const struct kv_guest *g) {
    struct kv_frame f;
    struct kv_link_ask ask = {0};
    struct kv_link_answer a = {0};
    enum err e = kv_frame_open(&f, g->bytes, g->n);
    if (e == ERR_OK)
        e = f.type == KV_LINK_ASK ? kv_link_ask_unpack(&f.payload, &ask) : ERR_BAD_FRAME;
    if (e == ERR_MISMATCH) {
        a.code = KV_LINK_VERSION;
        snprintf(a.text, sizeof(a.text), "protocol version: mine %d, theirs %u", KV_VERSION,
                 f.version);
    } else if (e != ERR_OK) {
        return false;
    } else {
        answer_ask(kp, g, &ask, &a);
    }
    kv_link_answer_pack(&kp->scratch, &a);
    kv_frame_end(&kp->scratch, 0);
    /* Far less than what a fresh socket takes at once; an asker that gets no answer asks again. */
    if (!kp->scratch.failed)
        (void)!send(g->fd, kp->scratch.data, kp->scratch.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    return true;
}

/* True: this guest goes. */
static bool hear(struct kv_plane *kp, struct kv_guest *g, uint64_t now_ms) {
    ssize_t got = recv(g->fd, g->bytes + g->n, sizeof(g->bytes) - g->n, MSG_DONTWAIT);
    bool waits = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (got > 0) g->n += (size_t)got;
    size_t n_frame = kv_frame_bytes(g->bytes, g->n, sizeof(g->bytes));
    bool whole = n_frame != 0 && n_frame <= g->n;
    if (whole) g->n = n_frame;
    if (whole && answer(kp, g)) {
        if (g->stranger) KV_COUNT(kp, n_strangers, 1);
        return true;
    }
    if (!whole && n_frame != SIZE_MAX && (got > 0 || waits) && now_ms < g->until_ms) return false;
    end_without_trace(g->fd);
    KV_COUNT(kp, n_strangers, 1);
    return true;
}

void kv_listener_tick(struct kv_plane *kp, uint64_t now_ms) {
    take_in(kp, now_ms);
    for (struct kv_guest **at = &kp->guests; *at != NULL;) {
        if (hear(kp, *at, now_ms)) {
            guest_end(kp, at);
        } else {
            kv_due(kp, (*at)->until_ms);
            at = &(*at)->next;
        }
    }
}

/* ---- the end that connects */

void kv_listener_ask_end(struct kv_link *l) {
    if (l->ask_fd >= 0) close(l->ask_fd);
    l->ask_fd = -1;
    l->asked = false;
    l->n_answer = 0;
}

static void unreachable(struct kv_plane *kp, struct kv_link *l, const char *what, int why) {
    char text[128];
    snprintf(text, sizeof(text), "%s: %s", what, strerror(why));
    kv_link_attempt_failed(kp, l, KV_LINK_UNREACHABLE, text, true);
}

/* Two that ask each other (each thinks that its id is lower) use the same two addresses, and so get
 * in each other's way: one of them comes first if both do not try at once again. */
static void crossed(struct kv_plane *kp, struct kv_link *l) {
    if (++l->n_crossed > CROSSED_MAX) {
        l->n_crossed = 0;
        unreachable(kp, l, "the listener cannot be reached", EADDRNOTAVAIL);
        return;
    }
    kv_listener_ask_end(l);
    l->next_try_ms = clock_ms() + 1 + random_u64() % CROSSED_MS_MAX;
    kv_due(kp, l->next_try_ms);
}

void kv_listener_ask(struct kv_plane *kp, struct kv_link *l) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(l->port)};
    uint64_t ask_ms = kp->o.connect_ms < KV_ASK_MS ? kp->o.connect_ms : KV_ASK_MS;
    l->try_deadline_ms = clock_ms() + ask_ms;
    kv_due(kp, l->try_deadline_ms);
    if (inet_pton(AF_INET, l->ip, &to.sin_addr) != 1) {
        kv_link_attempt_failed(kp, l, KV_LINK_UNREACHABLE, "not an address", true);
        return;
    }
    if ((l->ask_fd = own_socket(kp, kp->port, true)) < 0) {
        unreachable(kp, l, "no socket at the own interCommPort", errno);
        return;
    }
    end_without_trace(l->ask_fd);
    if (connect(l->ask_fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EINPROGRESS) return;
    if (errno == EADDRNOTAVAIL) {
        crossed(kp, l);
    } else {
        unreachable(kp, l, "the listener cannot be reached", errno);
    }
}

static void ask(struct kv_plane *kp, struct kv_link *l) {
    struct kv_link_ask m = {.from_id = kp->io_self_id, .to_id = l->id, .sealed = kp->o.tls != NULL};
    kv_link_ask_pack(&kp->scratch, &m);
    kv_frame_end(&kp->scratch, 0);
    if (kp->scratch.failed) return;
    ssize_t put = send(l->ask_fd, kp->scratch.data, kp->scratch.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put == (ssize_t)kp->scratch.len) {
        l->asked = true;
    } else if (put >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        unreachable(kp, l, "the listener cannot be reached", put >= 0 ? EPIPE : errno);
    }
}

static void connect_pair(struct kv_plane *kp, struct kv_link *l, const struct kv_link_answer *a) {
    int sock = -1;
    kv_listener_ask_end(l);
    if (bus_open(&sock, KV_MESSAGE_BYTES_MAX) != ERR_OK ||
        bus_connect(sock, kp->bind_ip, l->ip, a->port) != ERR_OK) {
        bus_close(&sock);
        kv_link_attempt_failed(kp, l, KV_LINK_UNREACHABLE, "no socket", true);
        return;
    }
    if (kv_link_begin(kp, l, sock, 0, a->ticket) != ERR_OK)
        kv_link_attempt_failed(kp, l, KV_LINK_UNREACHABLE, "out of memory", true);
}

static void take_answer(struct kv_plane *kp, struct kv_link *l, size_t n_frame) {
    struct kv_frame f;
    struct kv_link_answer a = {0};
    enum err e = kv_frame_open(&f, l->answer, n_frame);
    if (e == ERR_OK && f.type == KV_LINK_ASK) {
        crossed(kp, l);
        return;
    }
    l->n_crossed = 0;
    if (e == ERR_OK)
        e = f.type == KV_LINK_ANSWER ? kv_link_answer_unpack(&f.payload, &a) : ERR_BAD_FRAME;
    if (e == ERR_MISMATCH) {
        char why[64];
        snprintf(why, sizeof(why), "protocol version: mine %d, theirs %u", KV_VERSION, f.version);
        kv_link_attempt_failed(kp, l, KV_LINK_VERSION, why, false);
    } else if (e != ERR_OK) {
        kv_link_attempt_failed(kp, l, KV_LINK_UNREACHABLE, "the listener speaks no KV link", true);
    } else if (a.code != KV_LINK_OK) {
        kv_link_attempt_failed(kp, l, a.code, a.text, !kv_link_is_hard(a.code));
    } else {
        connect_pair(kp, l, &a);
    }
}

void kv_listener_ask_ready(struct kv_plane *kp, struct kv_link *l) {
    if (!l->asked) {
        ask(kp, l);
        return;
    }
    ssize_t got =
        recv(l->ask_fd, l->answer + l->n_answer, sizeof(l->answer) - l->n_answer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got < 0) {
        unreachable(kp, l, "the listener has closed", errno);
        return;
    }
    l->n_answer += (size_t)got;
    size_t n_frame = kv_frame_bytes(l->answer, l->n_answer, sizeof(l->answer));
    if (got == 0 || n_frame == SIZE_MAX) {
        kv_link_attempt_failed(kp, l, KV_LINK_UNREACHABLE, "the listener speaks no KV link", true);
    } else if (n_frame != 0 && n_frame <= l->n_answer) {
        take_answer(kp, l, n_frame);
    }
}
