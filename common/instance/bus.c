/* bus: thin calls around nanomsg; its errors become ours here. */
#include "common/instance/bus.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <nanomsg/nn.h>
#include <nanomsg/pair.h>
#include <nanomsg/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SOCKET_BUFFER_BYTES =
        4 * 1024 * 1024, /* the default of 128 KiB halves the rate, 16 KiB stalls on delayed ACKs */
    BIND_TRIES = 16,
    DESCRIPTORS_MIN = 8,
};

static enum err set(int sock, int level, int option, int value) {
    return nn_setsockopt(sock, level, option, &value, sizeof(value)) == 0 ? ERR_OK : ERR_IO;
}

/* nanomsg ends the process where it finds no descriptor while it begins, */
static bool descriptors_left(void) {
    int fds[DESCRIPTORS_MIN], n = 0;
    while (n < DESCRIPTORS_MIN && (fds[n] = eventfd(0, EFD_CLOEXEC)) >= 0) n++;
    for (int i = 0; i < n; i++) close(fds[i]);
    return n == DESCRIPTORS_MIN;
}

static void *nothing(void *arg) {
    return arg;
}

/* or cannot start its thread. */
static bool thread_left(void) {
    pthread_t t;
    if (pthread_create(&t, NULL, nothing, NULL) != 0) return false;
    pthread_join(t, NULL);
    return true;
}

enum err bus_open(int *sock, size_t message_bytes_max) {
    *sock = -1;
    if (!descriptors_left() || !thread_left()) return ERR_BUSY;
    *sock = nn_socket(AF_SP, NN_PAIR);
    if (*sock < 0) {
        *sock = -1;
        return nn_errno() == EMFILE ? ERR_BUSY : ERR_IO;
    }
    enum err e = set(*sock, NN_SOL_SOCKET, NN_RCVMAXSIZE, (int)message_bytes_max);
    /* Off by default: a small frame behind another one would wait 40 ms for a delayed ACK. */
    if (e == ERR_OK) e = set(*sock, NN_TCP, NN_TCP_NODELAY, 1);
    if (e == ERR_OK) e = set(*sock, NN_SOL_SOCKET, NN_SNDBUF, SOCKET_BUFFER_BYTES);
    if (e == ERR_OK) e = set(*sock, NN_SOL_SOCKET, NN_RCVBUF, SOCKET_BUFFER_BYTES);
    if (e != ERR_OK) bus_close(sock);
    return e;
}

void bus_close(int *sock) {
    if (*sock < 0) return;
    while (nn_close(*sock) != 0 && nn_errno() == EINTR) continue;
    *sock = -1;
}

static enum err bind_to(int sock, const char *ip, uint16_t port) {
    char a[64];
    snprintf(a, sizeof(a), "tcp://%s:%u", ip, port);
    if (nn_bind(sock, a) >= 0) return ERR_OK;
    return nn_errno() == EADDRINUSE || nn_errno() == EADDRNOTAVAIL || nn_errno() == EACCES
               ? ERR_CONFLICT
               : ERR_IO;
}

/* nanomsg does not say which port the kernel picked for port 0, so the kernel is asked by a socket
 * of our own. Another process may take the port in between: then the next one is tried. */
static enum err free_port(const char *ip, uint16_t *port) {
    struct sockaddr_in sa = {.sin_family = AF_INET};
    socklen_t n = sizeof(sa);
    if (inet_pton(AF_INET, ip, &sa.sin_addr) != 1) return ERR_INVALID;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return ERR_IO;
    bool ok = bind(fd, (struct sockaddr *)&sa, n) == 0 &&
              getsockname(fd, (struct sockaddr *)&sa, &n) == 0;
    close(fd);
    *port = ntohs(sa.sin_port);
    return ok ? ERR_OK : ERR_IO;
}

enum err bus_bind_any(int sock, const char *ip, uint16_t *port) {
    enum err e = ERR_IO;
    for (int i = 0; i < BIND_TRIES; i++) {
        if ((e = free_port(ip, port)) != ERR_OK) return e;
        if ((e = bind_to(sock, ip, *port)) != ERR_CONFLICT) return e;
    }
    return e;
}

static bool is_listener(int fd, struct in_addr ip, uint16_t port) {
    struct sockaddr_in sa = {0};
    int listens = 0;
    socklen_t n = sizeof(listens), n_sa = sizeof(sa);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) == 0 && listens != 0 &&
           getsockname(fd, (struct sockaddr *)&sa, &n_sa) == 0 && sa.sin_family == AF_INET &&
           sa.sin_addr.s_addr == ip.s_addr && ntohs(sa.sin_port) == port;
}

/* nanomsg keeps its descriptors to itself, so they are looked for among the process's. */
static int listener_of(struct in_addr ip, uint16_t port) {
    DIR *fds = opendir("/proc/self/fd");
    int found = -1;
    if (fds == NULL) return -1;
    for (struct dirent *d; found < 0 && (d = readdir(fds)) != NULL;) {
        int fd = d->d_name[0] == '.' ? -1 : atoi(d->d_name);
        if (fd >= 0 && is_listener(fd, ip, port)) found = fd;
    }
    closedir(fds);
    return found;
}

enum err bus_admit(const char *ip, uint16_t port, const char *from_ip) {
    struct in_addr at, from = {0};
    if (inet_pton(AF_INET, ip, &at) != 1 ||
        (from_ip != NULL && inet_pton(AF_INET, from_ip, &from) != 1))
        return ERR_INVALID;
    int fd = listener_of(at, port);
    if (fd < 0) return ERR_NOT_FOUND;
    const unsigned source_at = (unsigned)SKF_NET_OFF + 12; /* of the IPv4 header */
    struct sock_filter from_one[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, source_at),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(from.s_addr), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_filter from_nobody[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    const struct sock_fprog program = from_ip != NULL
                                          ? (struct sock_fprog){.len = 4, .filter = from_one}
                                          : (struct sock_fprog){.len = 1, .filter = from_nobody};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0 ? ERR_OK
                                                                                        : ERR_IO;
}

enum err bus_connect(int sock, const char *from_ip, const char *ip, uint16_t port) {
    char a[64];
    bool any = strcmp(from_ip, "0.0.0.0") == 0;
    snprintf(a, sizeof(a), "tcp://%s%s%s:%u", any ? "" : from_ip, any ? "" : ";", ip, port);
    return nn_connect(sock, a) >= 0 ? ERR_OK : ERR_IO;
}

static int event_fd(int sock, int option) {
    int fd = -1;
    size_t n = sizeof(fd);
    return nn_getsockopt(sock, NN_SOL_SOCKET, option, &fd, &n) == 0 ? fd : -1;
}

int bus_recv_fd(int sock) {
    return event_fd(sock, NN_RCVFD);
}

int bus_send_fd(int sock) {
    return event_fd(sock, NN_SNDFD);
}

void *bus_message_alloc(size_t n) {
    return nn_allocmsg(n, 0);
}

void bus_message_free(void *message) {
    if (message != NULL) nn_freemsg(message);
}

enum err bus_send(int sock, void **message) {
    for (;;) {
        if (nn_send(sock, message, NN_MSG, NN_DONTWAIT) >= 0) {
            *message = NULL;
            return ERR_OK;
        }
        if (nn_errno() == EINTR) continue;
        return nn_errno() == EAGAIN ? ERR_BUSY : ERR_IO;
    }
}

enum err bus_recv(int sock, void **message, size_t *n) {
    for (;;) {
        int got = nn_recv(sock, message, NN_MSG, NN_DONTWAIT);
        if (got >= 0) {
            *n = (size_t)got;
            return ERR_OK;
        }
        if (nn_errno() == EINTR) continue;
        return nn_errno() == EAGAIN || nn_errno() == EFSM ? ERR_BUSY : ERR_IO;
    }
}

uint64_t bus_n_broken(int sock) {
    return nn_get_statistic(sock, NN_STAT_BROKEN_CONNECTIONS);
}

uint64_t bus_n_connected(int sock) {
    return nn_get_statistic(sock, NN_STAT_CURRENT_CONNECTIONS);
}
