/* sock_io: a non-blocking socket behind four calls, so that a connection does not know whether
 * bytes travel plain or sealed. The second table of the same calls is tls_session.c's. */
#ifndef BATON_NET_SOCK_IO_H
#define BATON_NET_SOCK_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sock_io;

enum { SOCK_AGAIN = -1, SOCK_FAILED = -2 };

struct sock_ops {
    ssize_t (*read)(struct sock_io *io, void *p,
                    size_t n); /* > 0: bytes; 0: end; SOCK_AGAIN; SOCK_FAILED */
    ssize_t (*write)(struct sock_io *io, const void *p,
                     size_t n);           /* > 0: bytes taken; SOCK_AGAIN; SOCK_FAILED */
    void (*shutdown)(struct sock_io *io); /* no more writes; the peer reads the end */
    void (*close)(struct sock_io *io);
};

struct tls_conn;

struct sock_io {
    const struct sock_ops *ops;
    int fd;
    struct tls_conn *tls; /* of tls_sock_io(); NULL: plain */
    bool handshaking;     /* nothing can be written yet; reading moves the handshake on */
    bool want_write;      /* read again when the socket has room to write */
};

struct sock_io sock_io_plain(int fd); /* owns fd until close */

#endif
