/* role_needs: how many prefill and decode instances a load needs, by what instances have measured
 * (proto/perf_msg.h). Pure.
 *
 * Prompts need (seconds of prefill that arrive in a second + those that wait, over ROLE_HORIZON_S)
 * / u instances, where u is how busy a prefill instance may be so that a mean prompt waits no
 * longer than the target for the first token leaves it. Answers need (sequences that arrive and
 * wait, times their tokens, times the seconds of a step) / b, where b is the largest batch whose
 * step is within the target for a token; or what decodes now / b, when that is more.
 *
 * Unsplit, an instance that is busy with prompts r of the time has 1 - r of it for steps: the
 * target for a token is (1 - r) times as long there, and a prompt takes longer by what steps take
 * between its parts. So many are needed that both hold. */
#ifndef BATON_COORDINATOR_ROLE_NEEDS_H
#define BATON_COORDINATOR_ROLE_NEEDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/perf_msg.h"

enum { ROLE_HORIZON_S = 10 }; /* in so many seconds what waits should be done */

/* What arrived in the last seconds; old arrivals fade with window_s. */
struct arrivals {
    double window_s;
    double prompts, tokens, sequences, prompt_s; /* faded sums */
    uint64_t first_us, last_us;                  /* of one clock; 0: none yet */
};
/* A request of n_prompts prompts of so many tokens together, and of what is drawn from them. */
void arrivals_add(struct arrivals *a, double n_prompts, double tokens, double sequences,
                  double prompt_s, uint64_t now_us);

/* Requests a second, lately. */
double arrivals_per_s(const struct arrivals *a, uint64_t now_us);

struct role_load {
    struct arrivals arrivals;
    double waiting_prompt_s, waiting_sequences; /* that have no pair yet */
    double backlog_prompt_s;                    /* at prefill instances, not computed yet */
    double decoding;                            /* sequences */
    double new_tokens;                          /* of a sequence, mean */
};
struct role_targets {
    double first_token_s, token_s;
    double slots; /* of a decode instance */
};
/* The batch to run: the largest whose step is within the target; where no batch is, that of the
 * highest rate. */
double role_batch_for(const struct perf_msg *perf, const struct role_targets *t, double context);

/* All 0: nothing is known. whole: instances that would do if each computed prompts and decoded, one
 * instance for each request. */
struct role_needs {
    double p, d, whole;
};
/* A part of them. */
struct role_needs role_needs_part(const struct role_needs *all, double part);
void role_needs_of(struct role_needs *out, const struct role_load *l, const struct role_targets *t,
                   const struct perf_msg *perf, uint64_t now_us);

/* Of n_p prefill and n_d decode instances with these needs: 1: one more should prefill, -1: one
 * more should decode, 0: it is well as it is. There is a move only under pressure, and only one
 * that relieves it clearly. */
int role_needs_lean(const struct role_needs *need, size_t n_p, size_t n_d);

/* Whether a group of so many should not be split: under pressure, where the best ratio would leave
 * it clearly more pressed. had: it is not split now: it stays so until a ratio is as good, or the
 * load is low. */
bool role_needs_unsplit(const struct role_needs *need, size_t n_p, size_t n_d, bool had);

/* What one instance that does both takes off: of_p: one of the n_p, else of the n_d. */
struct role_share {
    bool of_p;
    int percent; /* of its work that is prefill, in tens, 10 to 90; 0: none is to do both */
};
/* The share that relieves most, under pressure and where it relieves a tenth at least. had: there
 * is one already: it stays down to a lower pressure. */
struct role_share role_needs_share(const struct role_needs *need, size_t n_p, size_t n_d, bool had);

#endif
