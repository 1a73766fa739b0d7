/* kept_store: answers that clients may come back to (OpenAI's Responses, client-apis 1.4): what was
 * asked, which answer it goes on behind, and what was answered, as it went out. Everything is in
 * memory; kept_dir.h keeps it over restarts.
 *
 * Bounds: bytes of all, their number, bytes of one, time since the last use. Over the first two,
 * the tenant that holds most (bytes or number) gives way: first the events of its oldest answers,
 * of which the last state stays, then the oldest answers. What runs never gives way; where nothing
 * else is left, the new one is not kept.
 *
 * Who may see one: its owner (proto/tenant.h). Thread: the loop thread. Times are the caller's. */
#ifndef BATON_NET_KEPT_STORE_H
#define BATON_NET_KEPT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/budget.h"
#include "common/base/buf.h"
#include "proto/err.h"
#include "proto/limits.h"
#include "proto/tenant.h"

enum {
    KEPT_ID_BYTES = 88, /* with the terminator; longer names nothing */
    KEPT_PARTS = 8,     /* one answer may have this part of all bytes */
};

struct kept_limits {
    uint64_t bytes_max; /* at least KEPT_PARTS KiB */
    size_t count_max;   /* 0: nothing is kept */
    uint64_t idle_ms;
};

struct kept_tenant;

/* An answer. Written by the functions below alone. */
struct kept {
    char id[KEPT_ID_BYTES];       /* "resp_17" */
    char previous[KEPT_ID_BYTES]; /* the one it goes on behind; "": none */
    char tenant_name[TENANT_BYTES_MAX + 1];
    bool runs;
    bool has_events;  /* text begins with a stream, from its first event on */
    size_t events;    /* of text: bytes of the stream */
    struct buf input; /* JSON: a text, or a list of items; empty: there was none */
    struct buf text;  /* the stream, or the response alone */
    size_t at, n;     /* of text: the response's JSON; n 0: not known yet */
    uint64_t used_ms; /* created, or gone on behind */
    void *user;       /* of who serves it */
    uint64_t bytes;   /* counted */
    struct kept_tenant *tenant;
    struct kept *hash_next;
    struct kept *older, *newer;               /* of the tenant, by use; not while it runs */
    struct kept *older_events, *newer_events; /* of those with events */
};

struct kept_store;

/* budget: BUDGET_KEPT_BYTES and BUDGET_KEPT count what is there, and what was not kept. */
enum err kept_store_create(struct kept_store **out, const struct kept_limits *limits,
                           struct budget *budget);
void kept_store_destroy(struct kept_store **s);
/* removed(arg, k): k goes, or lost its events; for who keeps a copy. */
typedef void kept_gone_fn(void *arg, const struct kept *k);
void kept_store_watch(struct kept_store *s, kept_gone_fn *gone, void *arg);

/* One that runs. NULL: no room, no memory, a limit of 0, or the id is taken. */
struct kept *kept_add(struct kept_store *s, const char *id, const char *tenant,
                      const char *previous, const char *input, size_t n_input, uint64_t now_ms);
/* More of its text. False: it became too large, or there is no room: it is of no use any more. */
bool kept_append(struct kept_store *s, struct kept *k, const void *p, size_t n);
/* It is over; its response is text[at .. at + n), its events text[0 .. events). False: no memory.
 */
bool kept_finish(struct kept_store *s, struct kept *k, size_t at, size_t n, size_t events,
                 uint64_t now_ms);
void kept_remove(struct kept_store *s, struct kept *k);
/* By the client of that tenant; NULL: there is none. */
struct kept *kept_find(const struct kept_store *s, const char *tenant, const char *id);
void kept_use(struct kept *k, uint64_t now_ms);
/* Those that nobody used for too long go. */
void kept_expire(struct kept_store *s, uint64_t now_ms);
size_t kept_count(const struct kept_store *s);
uint64_t kept_one_max(const struct kept_store *s); /* bytes that one may have */

#endif
