/* mailbox: events from a thread of ours to the loop. What is put while a delivery is under way goes
 * with it, so a burst of events costs one wake of the loop; nothing is delivered after
 * mailbox_close().
 *
 * Thread: mailbox_put() any thread; the rest the loop thread. */
#ifndef BATON_INSTANCE_MAILBOX_H
#define BATON_INSTANCE_MAILBOX_H

#include "common/net/loop.h"

struct mailbox;

/* The head of every event; the event itself is around it and is malloc'd. */
struct mail {
    struct mail *next;
};

/* On the loop thread: *m is the callee's from now on. */
typedef void mail_fn(void *arg, struct mail *m);

enum err mailbox_open(struct mailbox **out, struct loop *loop, mail_fn *deliver, void *arg);
/* Takes a chain of events in order (NULL is fine). Never fails, and needs no memory. */
void mailbox_put(struct mailbox *mb, struct mail *chain);
/* Every event still inside goes to flush(arg, m), which frees it. No call of deliver() comes after.
 */
void mailbox_close(struct mailbox **mb, mail_fn *flush, void *arg);

#endif
