/* journal_feed: the journal of a coordinator that leads, as those that stand by get it: the body of
 * the answer to GET JOURNAL_PATH on the management plane, without end (docs/wire-journal.md). First
 * comes all there is, entry by entry as the connection takes them, and then what happens.
 *
 * Who does not keep up is cut off, and begins again. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_JOURNAL_FEED_H
#define BATON_COORDINATOR_JOURNAL_FEED_H

#include <stddef.h>
#include "coordinator/journal.h"

struct http_x;
struct journal_feed;
struct loop;

#define JOURNAL_PATH "/v2/journal"

enum { JOURNAL_BEAT_MS = 1000, JOURNAL_FEEDS_MAX = 8 };

enum err journal_feed_create(struct journal_feed **out, struct loop *loop);
/* The listeners are closed. */
void journal_feed_destroy(struct journal_feed **f);
/* journal_opts.on_change of what is fed. */
void journal_feed_change(void *feed, const struct journal_entry *e, const struct journal_msg *m);

/* Takes x, which gets all of j from now on, under that term. False: there are enough already. */
bool journal_feed_serve(struct journal_feed *f, struct http_x *x, struct journal *j, uint64_t term);
/* We do not lead any more: all that is under way ends. */
void journal_feed_end(struct journal_feed *f);
/* Who is told, and of them those that have all there was. */
size_t journal_feed_count(const struct journal_feed *f, size_t *n_synced);
/* Bytes that wait for those that have been told all. */
size_t journal_feed_pending(const struct journal_feed *f);

#endif
