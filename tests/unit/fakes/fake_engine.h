/* fake_engine: an engine.h without a model, for tests of what stands around it. Its "KV" is real
 * bytes that follow from the prompt's ids, and its tokens follow from those bytes and the ids
 * generated so far, so a block that was lost, swapped or damaged on the way changes the answer. One
 * engine step fills a few blocks of each prompt and makes one token for each running sequence. */
#ifndef BATON_TESTS_FAKE_ENGINE_H
#define BATON_TESTS_FAKE_ENGINE_H

#include "common/engine/engine.h"

enum { FAKE_LAYERS = 3, FAKE_VOCAB = 1000, FAKE_EOS = 7 };

struct fake_engine_opts {
    int n_blocks, batch_max, queue_max, block_tokens;
    int chunk_blocks;  /* blocks of a prompt filled in one step */
    bool beams_twice;  /* a prefill's beam search tells two continuations for each beam */
    bool prefix_cache; /* importing sequences find blocks that an earlier one left, by content, and
                          so do those that lend and fetch */
    double prefill_tokens_per_s; /* what its statistics say */
};
struct engine *fake_engine_create(const struct fake_engine_opts *o);

/* Any thread. While held, steps do nothing (and say so), but for n allowed steps that find work. An
 * idle worker looks only now and then: wake it (worker_self_test). */
void fake_engine_hold(struct engine *e, bool held);
void fake_engine_allow(struct engine *e, int n_steps);
void fake_engine_hang(struct engine *e, bool hang); /* the next step lasts until it is let go */
bool fake_engine_hangs(const struct engine *e);     /* it does */
void fake_engine_fail_next(struct engine *e); /* the next sequence to make a token fails instead */
unsigned fake_engine_n_steps(const struct engine *e);
int fake_engine_share(const struct engine *e); /* engine_set_prefill_share(), of any thread */
unsigned fake_engine_n_added(const struct engine *e);

/* What a whole run gives, computed straight: token i of a sequence with these ids, n_done of them
 * generated already. */
/* The same of one choice; 0: the one above. */
int32_t fake_token_of(int choice, const int32_t *ids, size_t n_ids, size_t n_prompt,
                      int block_tokens, const int32_t *generated, size_t n_generated);
int32_t fake_token(const int32_t *ids, size_t n_ids, size_t n_prompt, int block_tokens,
                   const int32_t *generated, size_t n_generated);

#endif
