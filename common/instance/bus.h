/* bus: nanomsg's only door: the PAIR sockets of the KV links, always non-blocking, with finite
 * receive limits and buffers that do not stall.
 *
 * nanomsg gives no delivery guarantee, no authentication and no sign of a vanished host: whoever
 * uses this brings acknowledgements, heartbeats and checks of his own (docs/wire-kv-link.md). A
 * bound socket takes in whoever connects, without a limit: bus_admit() says who may.
 * Thread: any one thread per socket; bus_close() by that thread. A process must not fork after its
 * first bus_open(): the child would have no nanomsg worker. */
#ifndef BATON_INSTANCE_BUS_H
#define BATON_INSTANCE_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

/* *sock: >= 0, or -1 on an error (ERR_BUSY: no socket left of the process's 512, no
 * descriptors, or no thread). A longer message ends the connection. */
enum err bus_open(int *sock, size_t message_bytes_max);
void bus_close(int *sock); /* -1 is fine; messages not yet on their way are lost */

/* Binds to a free port. ip: IPv4. ERR_CONFLICT: not an address of this host. */
enum err bus_bind_any(int sock, const char *ip, uint16_t *port);
/* From now on a bound socket of this process, found by its address, takes connections of this IPv4
 * address alone; NULL: of nobody. The kernel drops what others send (a socket filter), so it costs
 * no descriptor; connections that stand are not touched. ERR_NOT_FOUND: nothing listens there.
 * ERR_IO: the kernel has no such filters. */
enum err bus_admit(const char *ip, uint16_t port, const char *from_ip);
/* At once; the connection is made, and made again, behind. It comes from from_ip, an address of
 * this host (all-zero: the kernel chooses). */
enum err bus_connect(int sock, const char *from_ip, const char *ip, uint16_t port);

/* For poll() with POLLIN, never to be read: a message may be received; a message may be sent. */
int bus_recv_fd(int sock);
int bus_send_fd(int sock);

void *bus_message_alloc(size_t n); /* NULL: no memory. 16-byte alignment at best */
void bus_message_free(void *message);
/* ERR_OK: taken, *message is NULL. ERR_BUSY: not now, still the caller's. */
enum err bus_send(int sock, void **message);
/* ERR_OK: *message is the caller's. ERR_BUSY: nothing there. */
enum err bus_recv(int sock, void **message, size_t *n);

/* Connections that were made and have ended since the socket was opened: what was under way on them
 * may be lost. On a bound socket strangers count too, so there only the number of connections that
 * stand now says anything. */
uint64_t bus_n_broken(int sock);
uint64_t bus_n_connected(int sock);

#endif
