/* beams: a beam search of the engine over a model directory, for tests/oracle/test_beams.py.
 *
 *   beams DIR --ids 1,2,3 --width N --new N [--penalty X] [--block N] [--rows N] [--adapter DIR]
 *
 * One line for each sequence, best first: the sum of its log-probabilities, how it ended (0: EOS,
 * 1: length), its ids. --rows: token rows of a step. Exit code 1 with the error's text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine/engine.h"
#include "common/engine/lora.h"

enum { IDS_MAX = 4096 };

struct args {
    const char *dir, *adapter;
    int32_t ids[IDS_MAX];
    int n_ids, width, n_new, block, rows;
    float penalty;
};

static bool parse_ids(const char *s, struct args *a) {
    while (*s != '\0' && a->n_ids < IDS_MAX) {
        char *end = NULL;
        a->ids[a->n_ids++] = (int32_t)strtol(s, &end, 10);
        if (end == s) return false;
        s = *end == ',' ? end + 1 : end;
    }
    return *s == '\0';
}

static bool parse(struct args *a, int argc, char **argv) {
    *a = (struct args){.width = 1, .n_new = 8, .block = 16, .rows = 64, .penalty = 1};
    if (argc < 2 || argc % 2 != 0) return false;
    a->dir = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (strcmp(k, "--ids") == 0) {
            if (!parse_ids(v, a)) return false;
        } else if (strcmp(k, "--width") == 0) {
            a->width = atoi(v);
        } else if (strcmp(k, "--new") == 0) {
            a->n_new = atoi(v);
        } else if (strcmp(k, "--penalty") == 0) {
            a->penalty = strtof(v, NULL);
        } else if (strcmp(k, "--block") == 0) {
            a->block = atoi(v);
        } else if (strcmp(k, "--rows") == 0) {
            a->rows = atoi(v);
        } else if (strcmp(k, "--adapter") == 0) {
            a->adapter = v;
        } else {
            return false;
        }
    }
    return a->n_ids > 0;
}

struct ear {
    double sum;
    int32_t ids[BEAM_TOKENS_MAX];
    int n;
    bool failed;
};

static void on_token(void *arg, uint64_t seq_id, const struct token_event *ev) {
    struct ear *e = arg;
    (void)seq_id;
    e->ids[e->n++] = ev->id;
    e->sum += (double)ev->logprob;
    if (ev->finish == FINISH_NONE) return;
    printf("%.9g %d", e->sum, ev->finish == FINISH_EOS ? 0 : 1);
    for (int i = 0; i < e->n; i++) printf(" %d", e->ids[i]);
    printf("\n");
    *e = (struct ear){0};
}

static void on_failed(void *arg, uint64_t seq_id, enum err err) {
    struct ear *e = arg;
    (void)seq_id, (void)err;
    e->failed = true;
}

static enum err search(struct engine *e, const struct args *a, struct lora *lora,
                       struct errbuf *eb) {
    struct ear ear = {0};
    const struct engine_events ev = {.on_token = on_token, .on_failed = on_failed, .arg = &ear};
    const struct sampling p = {.temperature = 1,
                               .top_p = 1,
                               .typical_p = 1,
                               .repetition_penalty = a->penalty,
                               .logprobs = true,
                               .beam = true,
                               .new_tokens_max = a->n_new,
                               .n_choices = a->width};
    const struct seq_opts o = {.seq_id = 1,
                               .kind = SEQ_WHOLE,
                               .ids = a->ids,
                               .n_ids = (size_t)a->n_ids,
                               .n_prompt = (size_t)a->n_ids,
                               .sampling = &p,
                               .priority = 5,
                               .lora = lora};
    engine_set_events(e, &ev);
    enum err err = engine_seq_add(e, &o, eb);
    while (err == ERR_OK && engine_step(e)) {}
    return ear.failed ? err_set(eb, ERR_INTERNAL, "the search failed") : err;
}

int main(int argc, char **argv) {
    struct args a;
    struct errbuf eb = {0};
    struct engine *e = NULL;
    struct lora *lora = NULL;
    if (!parse(&a, argc, argv)) {
        fprintf(stderr, "usage: beams DIR --ids 1,2,3 --width N --new N ...\n");
        return 2;
    }
    const struct engine_opts o = {.model_dir = a.dir,
                                  .weight_dtype = DTYPE_F32,
                                  .kv_dtype = DTYPE_F32,
                                  .n_threads = 1,
                                  .block_tokens = a.block,
                                  .seq_tokens_max = 512,
                                  .batch_max = a.width,
                                  .prefill_batch_max = 1,
                                  .step_tokens_max = a.rows,
                                  .chunk_tokens = a.rows,
                                  .queue_max = 1,
                                  .prefix_cache = true,
                                  .lora_rank_max = a.adapter != NULL ? LORA_RANK_MAX : 0};
    enum err err = engine_open(&e, &o, &eb);
    if (err == ERR_OK && a.adapter != NULL)
        err = lora_open(&lora, a.adapter, engine_model(e), LORA_RANK_MAX, &eb);
    if (err == ERR_OK) err = search(e, &a, lora, &eb);
    if (err != ERR_OK) fprintf(stderr, "%s: %s\n", err_name(err), eb.text);
    lora_unref(&lora);
    engine_close(&e);
    return err != ERR_OK;
}
