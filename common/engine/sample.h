/* sample: logits to a token id: a pure function of (logits, parameters, seed, position). The
 * generator is Philox 4x32-10 (Salmon et al., SC'11), key = seed, counter = position, so a replayed
 * request draws the same tokens.
 *
 * Order (inference-api 4.5): repetition penalty over prompt and output, presence and frequency
 * penalties over the output -> logit_bias -> banned ids -> [log-probabilities are taken here] ->
 * temperature -> top_k -> top_p -> min_p -> typical_p -> softmax -> draw. Each filter works on what
 * the one before left, renormalised. Equal values rank by id, lowest first, so top_k keeps exactly
 * k. NaN counts as minus infinity and plus infinity as the largest float. */
#ifndef BATON_ENGINE_SAMPLE_H
#define BATON_ENGINE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/infer_msg.h"

struct sample_scratch; /* reused buffers for one vocabulary size; no state between calls */

enum err sample_scratch_create(struct sample_scratch **out, int vocab_size);
void sample_scratch_destroy(struct sample_scratch **s);

/* logits: f32 [vocab_size], changed in place. history: prompt ids then generated ids ([n_history],
 * the first n_prompt are the prompt). banned: ids that may not be chosen (EOS and stop tokens
 * before new_tokens_min). position: absolute position of the token to choose (n_history). Fills
 * out->id, logprob, n_top, top. logprob is 0 unless p->logprobs; alternatives at minus infinity are
 * left out. Ids outside the vocabulary in history, banned and logit_bias are ignored. Returns false
 * when no logit is left above minus infinity: then id is the lowest one not banned and means
 * nothing. */
bool sample_token(struct sample_scratch *s, float *logits, int vocab_size, const struct sampling *p,
                  const int32_t *history, int n_history, int n_prompt, const int32_t *banned,
                  int n_banned, struct token_event *out);

/* Log-probability of id under softmax(logits), at most 0, never below -FLT_MAX. logits: f32
 * [vocab_size], not changed. */
float sample_logprob(const float *logits, int vocab_size, int32_t id);

/* Philox 4x32-10: four 32-bit words for (key, counter). */
void philox4x32(uint32_t out[4], uint64_t key, uint64_t counter);
/* The same with the whole 128-bit counter of the paper; words from the lowest up. */
void philox4x32_words(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

#endif
