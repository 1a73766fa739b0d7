/* sample: logits to a token id: a pure function of (logits, parameters, seed, position). The generator is Philox 4x32-10
 * (Salmon et al., SC'11), key = seed, counter = position, so a replayed request draws the same tokens.
 * Order: inference-api 4.5. */
#ifndef BATON_ENGINE_SAMPLE_H
#define BATON_ENGINE_SAMPLE_H

#include <stdint.h>
#include "proto/infer_msg.h"

struct sample_scratch; /* reused buffers for one vocabulary size; no state between calls */

enum err sample_scratch_create(struct sample_scratch **out, int vocab_size);
void sample_scratch_destroy(struct sample_scratch **s);

/* logits: f32 [vocab_size], changed in place. history: prompt ids then generated ids ([n_history], the first n_prompt are the prompt).
 * banned: ids that may not be chosen (EOS and stop tokens before new_tokens_min). position: absolute position of the token to choose
 * (n_history). Fills out->id, logprob, n_top, top. */
void sample_token(struct sample_scratch *s, float *logits, int vocab_size, const struct sampling *p,
                  const int32_t *history, int n_history, int n_prompt, const int32_t *banned, int n_banned,
                  struct token_event *out);

/* Philox 4x32-10: four 32-bit words for (key, counter). */
void philox4x32(uint32_t out[4], uint64_t key, uint64_t counter);

#endif
