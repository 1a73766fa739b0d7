/* sample: logits to a token id: a pure function of (logits, parameters, seed, position). The
 * generator is Philox 4x32-10 (Salmon et al., SC'11), key = seed, counter = (position, choice), so
 * a replayed request draws the same tokens and each choice of a prompt has a stream of its own.
 *
 * Order (inference-api 4.5): repetition penalty over prompt and output, presence and frequency
 * penalties over the output -> logit_bias -> mask of a guide -> allowed_ids -> bad_words -> no end
 * before new_tokens_min -> what ends becomes likelier (decay_factor) -> [log-probabilities are
 * taken here] -> temperature -> top_k -> top_p -> min_p -> typical_p -> softmax -> draw. Each
 * filter works on what the one before left, renormalised. Equal values rank by id, lowest first, so
 * top_k keeps exactly k. NaN counts as minus infinity and plus infinity as the largest float. */
#ifndef BATON_ENGINE_SAMPLE_H
#define BATON_ENGINE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/infer_msg.h"

struct sample_scratch; /* reused buffers for one vocabulary size; no state between calls */

enum err sample_scratch_create(struct sample_scratch **out, int vocab_size);
void sample_scratch_destroy(struct sample_scratch **s);

/* What a token is chosen by, besides the logits. Ids outside the vocabulary are ignored everywhere.
 */
struct sample_in {
    const struct sampling *p;
    const int32_t
        *history; /* prompt ids then generated ids: [n_history], n_prompt of them prompt */
    int n_history, n_prompt;
    const int32_t *ends; /* [n_ends] ids that end a sequence: EOS unless ignored, stop tokens */
    int n_ends;
    bool no_end;          /* it is too early for them */
    int choice;           /* which of the prompt's choices */
    const uint64_t *mask; /* bit id % 64 of word id / 64: may be chosen; NULL: every id */
    /* What sample_maxima() says of the logits: greedy decoding and top_k then look at those groups
     * alone that hold what they choose from. NULL: not known. */
    const float *maxima;
};

enum { SAMPLE_GROUP = 64 };
static inline int sample_groups(int n) {
    return (n + SAMPLE_GROUP - 1) / SAMPLE_GROUP;
}
/* The largest logit of each group, NaN where one of them is NaN or plus infinity: f32
 * [sample_groups(n)]. Any thread. */
void sample_maxima(float *to, const float *logits, int n);

/* With maxima such a request looks at a few groups only: greedy decoding or top_k, and nothing
 * asked for that all logits have a part in. */
bool sample_is_quick(const struct sampling *p);

/* logits: f32 [vocab_size], changed in place. Fills out->id, logprob, n_top, top. logprob is 0
 * unless p->logprobs; alternatives at minus infinity are left out. allowed_ids let `ends` be
 * chosen too where a guide does; a bad word is forbidden at its last id, when the generated ids end
 * with the ones before. Returns false when no logit is left above minus infinity: then id means
 * nothing. */
bool sample_token(struct sample_scratch *s, float *logits, int vocab_size,
                  const struct sample_in *in, struct token_event *out);

/* The n_max likeliest tokens, best first, equal logits by id, with their log-probabilities (at most
 * 0, never below -FLT_MAX): what a beam goes on with. Logits and what is left out as in
 * sample_token(). Returns how many. */
int sample_best(struct sample_scratch *s, float *logits, int vocab_size, const struct sample_in *in,
                int n_max, struct top_logprob *out);

/* What the logits after the ids before it say of a prompt's token: out->id, logprob (at most 0,
 * never below -FLT_MAX) and the n_top largest. logits: f32 [vocab_size], changed in place. */
/* rank: whether out->rank is wanted. */
void sample_prompt(struct sample_scratch *s, float *logits, int vocab_size, int32_t id, int n_top,
                   bool rank, struct token_event *out);

/* Philox 4x32-10: four 32-bit words for (key, counter). */
void philox4x32(uint32_t out[4], uint64_t key, uint64_t counter);
/* The same with the whole 128-bit counter of the paper; words from the lowest up. */
void philox4x32_words(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

#endif
