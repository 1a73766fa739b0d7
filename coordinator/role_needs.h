/* role_needs: how many prefill and decode instances a load needs, by what instances have measured
 * (proto/perf_msg.h) and by how unevenly the load comes (arrivals.h): so many that nine of ten
 * requests are within both targets. Pure.
 *
 * Prompts: seconds of prefill that arrive in a second + those that wait, over ROLE_HORIZON_S: a.
 * n instances have n - a to spare, and where the work of a second has the variance v, a prompt
 * waits longer than w for exp(-2 n w (n - a) / v) of the time (a queue under heavy load). Answers:
 * the sequences that decode at a time, m, as they arrive and wait, times their tokens, times the
 * seconds of a step; or what decodes now, when that is more. Nine of ten times there are no more
 * than m + 1.28 sqrt(v) with v their variance, which is m times that of a second's arrivals over
 * their mean; an instance has b of them, the largest batch whose step is within the target.
 *
 * Unsplit, an instance that is busy with prompts r of the time has 1 - r of it for steps, and while
 * there are prompts a step takes four times as long: an answer is slow that has too many beside
 * it. So many instances are needed that both targets hold. */
#ifndef BATON_COORDINATOR_ROLE_NEEDS_H
#define BATON_COORDINATOR_ROLE_NEEDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "coordinator/arrivals.h"
#include "proto/perf_msg.h"

enum { ROLE_HORIZON_S = 10 }; /* in so many seconds what waits should be done */

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
 * instance for each request. left: what part of a decode instance one is that gives 10, 20 .. 90
 * percent of its time to prompts: what is left allows but so long a step, and so many sequences. */
enum { ROLE_SHARES = 9 };
struct role_needs {
    double p, d, whole;
    double left[ROLE_SHARES];
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
 * it clearly more pressed. had: it is not split now, and stays so until a ratio is clearly better,
 * or the load is low.
 */
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
