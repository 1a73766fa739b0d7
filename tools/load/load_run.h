/* load_run: sends the requests of a source to one server that speaks OpenAI's API, and measures.
 *
 * Thread: the calling one, until the last answer has ended. Memory: that of the requests under way,
 * and struct load_result; an answer's text is not kept. */
#ifndef BATON_TOOLS_LOAD_RUN_H
#define BATON_TOOLS_LOAD_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"
#include "tools/load/load_hist.h"
#include "tools/load/load_source.h"
#include "tools/load/load_text.h"

struct tls;

enum { LOAD_CLIENTS_MAX = 4096, LOAD_SERIES_S = 3600, LOAD_MODEL_BYTES = 256 };

struct load_target {
    const char *base;    /* "http://HOST:PORT" and a prefix, without a slash at its end */
    const char *api_key; /* NULL: none */
    struct tls *tls;     /* of an https base */
    bool chat;           /* /v1/chat/completions, else /v1/completions */
    bool keep_eos;       /* answers may end before their length */
    char model[LOAD_MODEL_BYTES];
    struct load_tokens tokens; /* as load_target_prepare() measured them */
    bool measured;             /* false: the server tells no usage, and tokens is a guess */
};

struct load_plan {
    unsigned clients;  /* closed loop: so many at once; 0: open loop, as the source says */
    double seconds;    /* nothing is sent after them; 0: no limit */
    uint64_t requests; /* so many are sent at most; 0: no limit */
    double warm_up_s;  /* what is sent within them is not counted */
    double timeout_s;  /* of one request */
    uint64_t seed;
    double ttft_goal_ms, gap_goal_ms; /* 0: none. An answer is good when its first token and the
                                         mean gap of the others are within them */
    uint32_t long_tokens; /* above 0: one prompt of so many tokens at a time beside the others */
    double long_every_s;  /* from the end of one to the next */
    bool progress;        /* a line on stderr, written again each half second */
};

/* Times in microseconds. */
struct load_result {
    struct load_hist ttft, gap, mean_gap, whole;
    struct load_hist gap_calm, gap_beside, long_ttft; /* where long prompts were asked */
    uint64_t n_sent, n_ended, n_failed, n_good; /* counted requests; failed ones are among ended */
    uint64_t in_tokens, out_tokens;             /* of those that ended well */
    double seconds;  /* from the first counted request to the last answer's end */
    double late_us;  /* the most that a request was sent after its time */
    uint64_t n_held; /* not sent: LOAD_CLIENTS_MAX were under way */
    uint32_t tokens_in_second[LOAD_SERIES_S], n_seconds; /* events with text, by second */
    char first_failure[256];
};

/* Asks for the model unless it is named, and for two answers of one token, from which it learns
 * what prompts of our words take. eb says which address was tried. */
enum err load_target_prepare(struct load_target *t, struct errbuf *eb);

/* ERR_NO_MEMORY. Failed requests are counted, and no error. */
enum err load_run(struct load_result *out, const struct load_target *t,
                  const struct load_plan *plan, struct load_source *source);

/* What a second of answers gives. */
double load_result_rate(const struct load_result *r, double amount);

#endif
