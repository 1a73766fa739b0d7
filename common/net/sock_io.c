/* sock_io: the plain table. */
#include "common/net/sock_io.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static ssize_t plain_result(ssize_t n) {
    if (n >= 0) return n;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? SOCK_AGAIN : SOCK_FAILED;
}

static ssize_t plain_read(struct sock_io *io, void *p, size_t n) {
    return plain_result(recv(io->fd, p, n, 0));
}

static ssize_t plain_write(struct sock_io *io, const void *p, size_t n) {
    return plain_result(send(io->fd, p, n, MSG_NOSIGNAL));
}

static void plain_shutdown(struct sock_io *io) {
    shutdown(io->fd, SHUT_WR);
}

static void plain_close(struct sock_io *io) {
    close(io->fd);
    io->fd = -1;
}

static const struct sock_ops plain_ops = {plain_read, plain_write, plain_shutdown, plain_close};

struct sock_io sock_io_plain(int fd) {
    return (struct sock_io){.ops = &plain_ops, .fd = fd};
}
