/* journal_follow: the copy of the leader's journal (journal_feed.h) that one which stands by has:
 * it reads along with whoever the lock in etcd names, until it leads itself. What it has of a
 * leader that died is what clients are served from. A leader of a lower term than one that was
 * followed is not believed. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_JOURNAL_FOLLOW_H
#define BATON_COORDINATOR_JOURNAL_FOLLOW_H

#include <stdbool.h>
#include "proto/err.h"

struct coordinator;
struct journal_follow;

enum err journal_follow_create(struct journal_follow **out, struct coordinator *co);
void journal_follow_destroy(struct journal_follow **f); /* before co->client and co->journal */
/* It has all that the leader has. */
bool journal_follow_is_synced(const struct journal_follow *f);
/* We lead: nobody is followed, and what is there may be come back to. */
void journal_follow_lead(struct journal_follow *f);

#endif
