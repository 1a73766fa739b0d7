/* service: tells the service manager how this process stands (sd_notify(3), written by ourselves):
 * that it is ready, what it is doing, that it ends, and that its loop still turns. Where nobody
 * listens (NOTIFY_SOCKET is not set) nothing is done.
 *
 * Thread: the loop thread. What is sent never blocks, and what is lost is sent again with the next
 * look. */
#ifndef BATON_NET_SERVICE_H
#define BATON_NET_SERVICE_H

#include <stddef.h>
#include "common/net/loop.h"

enum service_state { SERVICE_STARTING, SERVICE_READY, SERVICE_STOPPING };
enum { SERVICE_TEXT_BYTES = 128 };

struct service;

/* How it stands now, and one line of text about it. Called a few times a second. While it starts or
 * stops each call puts off the manager's time-out by SERVICE_EXTEND_S: what is under way has bounds
 * of its own. */
typedef enum service_state service_look_fn(void *arg, char text[SERVICE_TEXT_BYTES]);
enum { SERVICE_EXTEND_S = 30 };

/* Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment. *out NULL with
 * ERR_OK: nobody listens. ERR_INVALID: the socket's name is none; eb says it. */
enum err service_start(struct service **out, struct loop *loop, service_look_fn *look, void *arg,
                       struct errbuf *eb);
/* Looks at once: something has changed that may not last. NULL is fine, here and below. */
void service_look(struct service *s);
/* Files are read again; it is over at once. */
void service_reloaded(struct service *s);
void service_stop(struct service **s);

#endif
