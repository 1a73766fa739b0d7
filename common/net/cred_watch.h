/* cred_watch: what proves who somebody is (certificates, keys, passwords, CRLs, API keys) follows
 * its files while the daemon runs, and what ends soon is said in time.
 *
 * A thread looks at every file once a second. When one has changed (device, inode, size or times,
 * so also when a symlinked folder on the way is swapped, as Kubernetes does with secrets) and
 * nothing moved since the look before, the block it belongs to is read again as a whole: handshakes
 * and requests from then on know the new one. A block that is wrong stays as it was: one log line
 * and a count; it is tried again when a file changes, or when it is asked for.
 *
 * Thread: that of the owner, but for cred_watch_now(), which any may call. */
#ifndef BATON_NET_CRED_WATCH_H
#define BATON_NET_CRED_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "common/net/api_keys.h"
#include "common/net/tls.h"
#include "proto/err.h"

struct cred_watch;
struct metrics;

enum { CRED_BLOCKS_MAX = 16, CRED_LOOK_MS = 1000 };

/* who: what the names of series begin with ("coordinator", "instance"); a static string. NULL: no
 * memory. */
struct cred_watch *cred_watch_create(const char *who);
/* Before the start, as soon as they are open. plane: a static string. A context that is there
 * already, or NULL, is left out; a reference is taken. Keys are borrowed. */
void cred_watch_tls(struct cred_watch *w, const char *plane, struct tls *t);
void cred_watch_keys(struct cred_watch *w, struct api_keys *k);
/* Series <who>_certificate_not_after_seconds{plane,file}, a Unix time, and
 * <who>_credential_reloads_total{plane,result}, result "ok" or "failed", plane "api_keys" for keys.
 * Before the start. w goes after m, which borrows the names. */
enum err cred_watch_metrics(struct cred_watch *w, struct metrics *m);
void cred_watch_metrics_read(struct cred_watch *w); /* before metrics_write(); NULL is fine */
/* look_ms: how often; CRED_LOOK_MS but for tests. */
enum err cred_watch_start(struct cred_watch *w, unsigned look_ms);
/* Reads every block again soon, whether its files have changed or not (SIGHUP). NULL is fine. */
void cred_watch_now(struct cred_watch *w);
void cred_watch_destroy(struct cred_watch **w); /* ends the thread */

/* When to say that something ends: 90, 30, 7 and 1 days ahead and at its end, from 30 days on once
 * a day besides. Zeroed at first. True: now; the caller says it. Pure. */
struct cred_notice {
    int stage;
    int64_t said_unix_s;
};
bool cred_notice_due(struct cred_notice *n, int64_t now_unix_s, int64_t end_unix_s);

#endif
