/* Goal: a step allocates nothing and frees nothing, so its time never depends on an allocator.
 * Method: malloc, calloc, realloc and free are this program's own and count; 1,000 steps of a tiny
 * Llama on two threads run random sequences (every filter and penalty, log-probabilities, several
 * answers, beams, guessed tokens, cancels from inside events), and the counts of each step must not
 * move. Sequences are added between the steps, where memory may be taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "common/engine/engine.h"
#include "tests/unit/alloc_fault.h"
#include "tests/unit/common/engine/tiny_llama.h"

enum { STEPS = 1000, WARM_UP = 20, BATCH = 8 };

struct world {
    struct engine *e;
    uint64_t rng, next_id, cancel_id;
    long n_tokens, n_ends, n_cancels;
};

struct count {
    long taken; /* by all threads */
    long live;  /* of this one */
};

/* A sanitizer owns malloc: then it looks for what is used after its end, or never buried. */
static struct count count(void) {
#if OWN_MALLOC
    return (struct count){atomic_load(&allocs_taken), alloc_fault.live};
#else
    return (struct count){0, 0};
#endif
}

static int rnd_to(struct world *w, int n) {
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    return (int)((w->rng >> 33) % (uint64_t)n);
}

static void on_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct world *w = arg;
    w->n_tokens++;
    w->n_ends += ev->finish != FINISH_NONE;
    if (ev->finish == FINISH_NONE && rnd_to(w, 40) == 0)
        w->n_cancels += engine_seq_cancel(w->e, id) == ERR_OK;
}

static void add(struct world *w) {
    static int32_t stops[] = {7, 11}, words[] = {2, 3, 4, 1, 9};
    static struct logit_bias bias[] = {{5, 2.0f}, {6, -2.0f}};
    int32_t ids[24];
    int n = 1 + rnd_to(w, 24);
    for (int i = 0; i < n; i++) ids[i] = rnd_to(w, 6) * 3;
    struct sampling p = {.temperature = 0.9f,
                         .top_p = 1,
                         .typical_p = 1,
                         .repetition_penalty = 1,
                         .seed = w->next_id,
                         .new_tokens_max = 1 + rnd_to(w, 16),
                         .n_choices = 1};
    p.do_sample = rnd_to(w, 2);
    p.ignore_eos = rnd_to(w, 2);
    if (rnd_to(w, 3) == 0) p.top_k = 1 + rnd_to(w, 8);
    if (rnd_to(w, 3) == 0) p.top_p = 0.8f;
    if (rnd_to(w, 3) == 0) p.min_p = 0.05f;
    if (rnd_to(w, 3) == 0) p.typical_p = 0.9f;
    if (rnd_to(w, 3) == 0) p.repetition_penalty = 1.2f;
    if (rnd_to(w, 3) == 0) p.frequency_penalty = p.presence_penalty = 0.2f;
    if (rnd_to(w, 3) == 0) p.logprobs = true, p.top_logprobs = rnd_to(w, 5);
    if (rnd_to(w, 4) == 0) p.prompt_logprobs = true, p.prompt_top_logprobs = 2;
    if (rnd_to(w, 3) == 0) p.stop_token_ids = stops, p.n_stop_token_ids = 2;
    if (rnd_to(w, 3) == 0) p.logit_bias = bias, p.n_logit_bias = 2;
    if (rnd_to(w, 3) == 0) p.bad_words = words, p.n_bad_words = 5;
    if (rnd_to(w, 3) == 0) p.n_choices = 1 + rnd_to(w, 3);
    if (rnd_to(w, 6) == 0) {
        p.beam = true;
        p.do_sample = false;
        p.n_choices = 2;
    } else if (p.n_choices == 1 && rnd_to(w, 2) == 0) {
        p.lookup_tokens = 4;
    }
    const struct seq_opts o = {.seq_id = w->next_id++,
                               .kind = SEQ_WHOLE,
                               .ids = ids,
                               .n_ids = (size_t)n,
                               .n_prompt = (size_t)n,
                               .sampling = &p,
                               .priority = 1 + rnd_to(w, 5)};
    (void)engine_seq_add(w->e, &o, NULL); /* the queue may be full */
}

static void steps_take_no_memory(void **state) {
    (void)state;
    struct model_files files;
    struct errbuf eb = {0};
    struct world w = {.rng = 7, .next_id = 1};
    log_init(LOG_NONE, 2);
    write_model(&files, NULL, NULL);
    const struct engine_opts o = {.model_dir = files.dir,
                                  .weight_dtype = DTYPE_BF16,
                                  .kv_dtype = DTYPE_INT8,
                                  .n_threads = 2,
                                  .block_tokens = 4,
                                  .kv_bytes = 1 << 18,
                                  .seq_tokens_max = CONTEXT,
                                  .batch_max = BATCH,
                                  .prefill_batch_max = 4,
                                  .step_tokens_max = 32,
                                  .chunk_tokens = 8,
                                  .queue_max = 16,
                                  .prefix_cache = true};
    if (engine_open(&w.e, &o, &eb) != ERR_OK) fail_msg("%s", eb.text);
    const struct engine_events ev = {.on_token = on_token, .arg = &w};
    engine_set_events(w.e, &ev);
    for (int step = 0; step < WARM_UP + STEPS; step++) {
        while (rnd_to(&w, 3) > 0) add(&w);
        const struct count before = count();
        bool busy = engine_step(w.e);
        const struct count after = count();
        if (!busy || step < WARM_UP) continue;
        if (after.taken != before.taken || after.live != before.live)
            fail_msg("step %d took %ld allocations and freed %ld", step, after.taken - before.taken,
                     before.live - after.live);
    }
    /* it was no idle run, and what was buried is gone */
    assert_true(w.n_tokens > STEPS && w.n_ends > 100 && w.n_cancels > 10);
    while (engine_step(w.e)) {}
    struct engine_stats s;
    engine_stats(w.e, &s);
    assert_true(s.slots_free == s.slots_total && s.blocks_free == s.blocks_total);
    engine_close(&w.e);
    files_remove(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_take_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
