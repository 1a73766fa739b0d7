/* replay_send: asks the requests of a recording again. */
#ifndef BATON_TOOLS_REPLAY_SEND_H
#define BATON_TOOLS_REPLAY_SEND_H

#include <stdbool.h>
#include <stddef.h>
#include "proto/err.h"
#include "tools/replay_run.h"

struct tls;

enum { REPLAY_AT_ONCE_MAX = 1024 };

struct replay_target {
    const char *base;
    struct tls *tls;     /* NULL: plain */
    const char *api_key; /* NULL: none */
    unsigned n_at_once;  /* 0: spaced as they were recorded; else so many under way, 1 to
                            REPLAY_AT_ONCE_MAX */
};

struct replay_sent {
    size_t n_answered, n_lost; /* with any status; without an answer */
    char first_lost[240];      /* why */
};

/* Returns when the last answer has ended. A request is sent when all have ended that had ended when
 * it came. ERR_NO_MEMORY. */
enum err replay_send(struct replay_sent *out, const struct run *run, const struct replay_target *t);

#endif
