/* access_log: a line of JSON for each request of a listener, when it is over: when it came, whose
 * it was, what it asked for, how it was answered, in which time; of requests that were generated
 * what their handler adds (http_x_note()). Neither bodies nor keys nor queries are in it.
 *
 * Thread: the loop thread; line_file.h says who writes, and what happens when that is slow. */
#ifndef BATON_NET_ACCESS_LOG_H
#define BATON_NET_ACCESS_LOG_H

#include "proto/err.h"

struct access_log;
struct http_server_opts;

/* path "": *out is NULL, and nothing is written; a relative one begins in the folder dir.
 * ERR_BAD_CONFIG: eb names key and file. */
enum err access_log_open(struct access_log **out, const char *key, const char *dir,
                         const char *path, struct errbuf *eb);
/* After the listeners. */
void access_log_close(struct access_log **a);
/* Has the listener's requests written. */
void access_log_watch(struct access_log *a, struct http_server_opts *o);

#endif
