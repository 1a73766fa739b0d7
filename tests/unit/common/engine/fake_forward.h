/* fake_forward: a forward pass for tests of everything around it. It writes a mark of (layer,
 * position, id) into every cell of the KV of its rows and takes its logits from a hash of all marks
 * it finds through the block table from position 0 on. So a wrong block, a missing layer, a row
 * that ran twice or out of order, or KV that was overwritten changes the tokens. fake_logits()
 * gives the same logits from the ids alone. */
#ifndef BATON_TESTS_FAKE_FORWARD_H
#define BATON_TESTS_FAKE_FORWARD_H

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/engine/engine_priv.h"
#include "common/engine/kernels.h"

enum {
    FAKE_LAYERS = 3,
    FAKE_HEADS = 2,
    FAKE_DIM = 2,
    FAKE_HIDDEN = 4,
    FAKE_LABELS = 2,
    FAKE_VOCAB = 97,
    FAKE_CONTEXT = 4096,
    FAKE_EOS = 7
};

struct forward {
    struct model_info info;
    enum dtype kv_dtype;
    int rows_max, block_tokens;
    int rows_run, passes, logits_run; /* counters for tests */
    int tile, rows_paid;              /* rows as they would cost in tiles of so many; 0: of 1 */
    int each_run;
    float *maxima;
    bool all_nan; /* give no finite logit */
};

static bool fake_is_encoder; /* of models opened from now on */

/* The forward pass of the engine opened last: tests open one at a time or look at it right after.
 */
static inline struct forward *fake_of(const struct engine *e) {
    return e->fwd;
}

static inline uint64_t fake_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* An exact small float, so that every pool keeps it: 0 .. 255. */
static inline float fake_mark(int layer, int pos, int32_t id, int cell) {
    return (float)(fake_mix((uint64_t)id * 1000003u + (uint64_t)pos * 7919u +
                            (uint64_t)layer * 131u + (uint64_t)cell) &
                   255);
}

/* Value dim of a KV row. In an int8 row it needs its byte of the scale too, so that a lost scale
 * shows. */
static inline void fake_store(uint8_t *row, int dim, enum dtype t, float v) {
    uint32_t u;
    memcpy(&u, &v, 4);
    if (t == DTYPE_F32)
        memcpy(row + 4 * dim, &u, 4);
    else if (t == DTYPE_BF16) {
        uint16_t h = (uint16_t)(u >> 16);
        memcpy(row + 2 * dim, &h, 2);
    } else {
        row[dim] = (uint8_t)(167 * (int)v + 13);
        row[KV_SCALE_BYTES + dim] = (uint8_t)(row[dim] ^ (uint8_t)v);
    }
}

static inline float fake_load(const uint8_t *row, int dim, enum dtype t) {
    uint32_t u = 0;
    float v;
    if (t == DTYPE_INT8) return (float)(row[dim] ^ row[KV_SCALE_BYTES + dim]);
    if (t == DTYPE_F32)
        memcpy(&u, row + 4 * dim, 4);
    else {
        uint16_t h;
        memcpy(&h, row + 2 * dim, 2);
        u = (uint32_t)h << 16;
    }
    memcpy(&v, &u, 4);
    return v;
}

/* Row of cell c (K of each head and dimension, then V) of one token inside a layer's block. */
static inline size_t fake_row(int c, int tok, int bt, enum dtype t) {
    size_t head = (size_t)c / FAKE_DIM; /* those of V follow those of K */
    return (head * (size_t)bt + (size_t)tok) * kv_row_bytes(FAKE_DIM, t);
}

static inline uint64_t fake_hash_step(uint64_t h, float mark) {
    return fake_mix(h * 31 + (uint64_t)mark + 1);
}

static inline void fake_logits_of(uint64_t h, float *logits) {
    for (int v = 0; v < FAKE_VOCAB; v++)
        logits[v] =
            (float)(fake_mix(h + (uint64_t)v * 0x9e3779b97f4a7c15u) >> 40) / 2097152.0f - 4.0f;
}

/* Logits after ids[0..n). */
static inline void fake_logits(const int32_t *ids, int n, float *logits) {
    uint64_t h = 1;
    for (int pos = 0; pos < n; pos++)
        for (int layer = 0; layer < FAKE_LAYERS; layer++)
            for (int c = 0; c < 2 * FAKE_HEADS * FAKE_DIM; c++)
                h = fake_hash_step(h, fake_mark(layer, pos, ids[pos], c));
    fake_logits_of(h, logits);
}

/* Of id under the softmax of logits, which are changed. */
static inline float fake_logprob(float *logits, int32_t id) {
    struct sample_scratch *s;
    struct token_event ev = {0};
    assert(sample_scratch_create(&s, FAKE_VOCAB) == ERR_OK);
    sample_prompt(s, logits, FAKE_VOCAB, id, 0, false, &ev);
    sample_scratch_destroy(&s);
    return ev.logprob;
}

static inline enum err fake_open(struct forward **out, const struct engine_opts *opts, int rows_max,
                                 struct errbuf *eb) {
    (void)eb;
    struct forward *f = calloc(1, sizeof(*f));
    *out = f;
    if (f == NULL) return ERR_NO_MEMORY;
    f->rows_max = rows_max;
    f->kv_dtype = opts->kv_dtype;
    f->block_tokens = opts->block_tokens;
    f->info = (struct model_info){.family = "fake",
                                  .n_layers = FAKE_LAYERS,
                                  .n_heads = FAKE_HEADS,
                                  .encoder = fake_is_encoder,
                                  .no_head = fake_is_encoder,
                                  .pooling = fake_is_encoder ? POOL_MEAN : POOL_LAST,
                                  .score_pooling = POOL_CLS,
                                  .n_labels = fake_is_encoder ? FAKE_LABELS : 0,
                                  .hidden = FAKE_HIDDEN,
                                  .kv_dtype = opts->kv_dtype,
                                  .n_kv_heads = FAKE_HEADS,
                                  .head_dim = FAKE_DIM,
                                  .vocab_size = FAKE_VOCAB,
                                  .context_max = FAKE_CONTEXT,
                                  .eos_ids = {FAKE_EOS},
                                  .n_eos = 1};
    return ERR_OK;
}

static inline void fake_close(struct forward **f) {
    free(*f);
    *f = NULL;
}

static inline const struct model_info *fake_model(const struct forward *f) {
    return &f->info;
}

/* Marks of one position, as the pool has them. */
static inline uint64_t fake_hash_at(const struct forward *f, struct kv_cache *kv,
                                    const struct fwd_seq *q, int pos, uint64_t h) {
    const int bt = f->block_tokens;
    for (int layer = 0; layer < model_kv_layers(&f->info); layer++) {
        const uint8_t *p = kv_block_ptr(kv, layer, q->block_table[pos / bt]);
        for (int c = 0; c < 2 * FAKE_HEADS * FAKE_DIM; c++)
            h = fake_hash_step(h, fake_load(p + fake_row(c, pos % bt, bt, f->kv_dtype),
                                            c % FAKE_DIM, f->kv_dtype));
    }
    return h;
}

static inline void fake_vector(uint64_t h, float *v) {
    for (int i = 0; i < FAKE_HIDDEN; i++) v[i] = (float)((h >> (8 * i)) & 255);
}

/* The hash of positions 0 .. n-1 says what a row's vector is; a mean is that of each prefix. */
static inline void fake_pool(const struct forward *f, struct kv_cache *kv,
                             const struct fwd_seq *q) {
    uint64_t h = 1;
    float v[FAKE_HIDDEN];
    if (q->pooled == NULL) return;
    if (q->n_past == 0) memset(q->pooled, 0, FAKE_HIDDEN * sizeof(float));
    for (int pos = 0; pos < q->n_past + q->n_rows; pos++) {
        h = fake_hash_at(f, kv, q, pos, h);
        if (pos < q->n_past) continue;
        fake_vector(h, v);
        for (int i = 0; i < FAKE_HIDDEN; i++) {
            if (q->pooling == POOL_MEAN)
                q->pooled[i] += v[i];
            else if (pos == (q->pooling == POOL_CLS ? 0 : q->n_ids - 1))
                q->pooled[i] = v[i];
        }
    }
    if (q->n_past + q->n_rows < q->n_ids) return;
    for (int i = 0; f->all_nan && i < FAKE_HIDDEN; i++) q->pooled[i] = NAN;
    for (int i = 0; q->scores != NULL && i < FAKE_LABELS; i++)
        q->scores[i] = q->pooled[i] + (float)q->n_first;
}

/* What comes of ids[0..n) in a model of n_layers. */
static inline void fake_embed(const int32_t *ids, int n, enum pooling pooling, int n_layers,
                              float out[FAKE_HIDDEN]) {
    uint64_t h = 1;
    float v[FAKE_HIDDEN];
    memset(out, 0, FAKE_HIDDEN * sizeof(float));
    for (int pos = 0; pos < n; pos++) {
        for (int layer = 0; layer < n_layers; layer++)
            for (int c = 0; c < 2 * FAKE_HEADS * FAKE_DIM; c++)
                h = fake_hash_step(h, fake_mark(layer, pos, ids[pos], c));
        fake_vector(h, v);
        for (int i = 0; i < FAKE_HIDDEN; i++) {
            if (pooling == POOL_MEAN)
                out[i] += v[i];
            else if (pos == (pooling == POOL_CLS ? 0 : n - 1))
                out[i] = v[i];
        }
    }
}

static inline void fake_run(struct forward *f, struct kv_cache *kv, const int32_t *ids, int n_rows,
                            const struct fwd_seq *seqs, int n_seqs, const int *logit_rows,
                            int n_logits, float *logits, void (*on_layer)(void *arg, int layer),
                            void *arg) {
    int rows = 0, bt = f->block_tokens;
    assert(n_rows >= 1 && (n_rows <= f->rows_max || (f->info.encoder && n_seqs == 1)));
    for (int i = 0; i < n_seqs; i++) /* an encoder's text comes whole */
        assert(!f->info.encoder || (seqs[i].n_past == 0 && seqs[i].n_rows == seqs[i].n_ids));
    for (int layer = 0; layer < model_kv_layers(&f->info); layer++) {
        for (int i = 0; i < n_seqs; i++)
            for (int r = 0; r < seqs[i].n_rows; r++) {
                int pos = seqs[i].n_past + r;
                uint8_t *p = kv_block_ptr(kv, layer, seqs[i].block_table[pos / bt]);
                for (int c = 0; c < 2 * FAKE_HEADS * FAKE_DIM; c++)
                    fake_store(p + fake_row(c, pos % bt, bt, f->kv_dtype), c % FAKE_DIM,
                               f->kv_dtype, fake_mark(layer, pos, ids[seqs[i].first_row + r], c));
            }
        if (on_layer != NULL) on_layer(arg, layer);
    }
    for (int i = 0; i < n_seqs; i++) {
        assert(seqs[i].n_rows >= 1 && seqs[i].first_row == rows);
        rows += seqs[i].n_rows;
    }
    assert(rows == n_rows);
    for (int l = 0; l < n_logits; l++) {
        assert(l == 0 || logit_rows[l] > logit_rows[l - 1]);
        const struct fwd_seq *q = seqs;
        while (logit_rows[l] >= q->first_row + q->n_rows) q++;
        uint64_t h = 1;
        for (int pos = 0; pos <= q->n_past + logit_rows[l] - q->first_row; pos++)
            h = fake_hash_at(f, kv, q, pos, h);
        float *row = logits + (size_t)l * FAKE_VOCAB;
        fake_logits_of(h, row);
        for (int v = 0; f->all_nan && v < FAKE_VOCAB; v++) row[v] = NAN;
        if (f->maxima != NULL)
            sample_maxima(f->maxima + l * sample_groups(FAKE_VOCAB), row, FAKE_VOCAB);
    }
    for (int i = 0; i < n_seqs; i++) fake_pool(f, kv, &seqs[i]);
    f->rows_run += n_rows;
    f->rows_paid += f->tile > 0 && n_rows > 1 ? (n_rows + f->tile - 1) / f->tile * f->tile : n_rows;
    f->logits_run += n_logits;
    f->passes++;
}

static inline void fake_maxima(struct forward *f, float *to) {
    f->maxima = to;
}

/* Whoever comes first may do the work of all. */
static inline void fake_each(struct forward *f, void (*fn)(void *arg, int item, int thread),
                             void *arg, int n) {
    f->each_run++;
    for (int i = n; i-- > 0;) fn(arg, i, 0);
}

static const struct forward_ops fake_ops = {.open = fake_open,
                                            .close = fake_close,
                                            .model = fake_model,
                                            .run = fake_run,
                                            .maxima = fake_maxima,
                                            .each = fake_each};

static inline struct engine_opts fake_opts(void) {
    return (struct engine_opts){.weight_dtype = DTYPE_F32,
                                .kv_dtype = DTYPE_F32,
                                .block_tokens = 4,
                                .seq_tokens_max = 256,
                                .batch_max = 8,
                                .prefill_batch_max = 8,
                                .step_tokens_max = 64,
                                .chunk_tokens = 16,
                                .queue_max = 32,
                                .prefix_cache = true};
}

/* Bytes of a pool of n blocks of bt tokens. */
static inline uint64_t fake_pool_bytes(int n_blocks, int bt, enum dtype t) {
    const struct kv_shape s = {.n_layers = 1,
                               .n_kv_heads = FAKE_HEADS,
                               .head_dim = FAKE_DIM,
                               .block_tokens = bt,
                               .dtype = t};
    return (uint64_t)n_blocks * FAKE_LAYERS * kv_block_stride(&s);
}

/* What a correct engine says: the tokens of one choice after ids[0..n_ids), by the same sampler on
 * logits from the ids alone. Returns how many; *finish is why it ended. */
static inline int fake_expect_choice(const struct sampling *p, int choice, const int32_t *ids,
                                     int n_ids, int n_prompt, int seq_tokens_max, int32_t *out,
                                     enum finish *finish) {
    struct sample_scratch *s;
    float logits[FAKE_VOCAB];
    int32_t *all = calloc((size_t)seq_tokens_max + 1, sizeof(*all));
    int n = n_ids;
    assert(all != NULL && sample_scratch_create(&s, FAKE_VOCAB) == ERR_OK);
    memcpy(all, ids, (size_t)n_ids * sizeof(*all));
    *finish = FINISH_NONE;
    while (*finish == FINISH_NONE) {
        struct token_event ev = {0};
        int32_t ends[1 + STOP_TOKEN_IDS_MAX];
        int n_ends = 0;
        if (!p->ignore_eos) ends[n_ends++] = FAKE_EOS;
        for (size_t i = 0; i < p->n_stop_token_ids; i++) ends[n_ends++] = p->stop_token_ids[i];
        const struct sample_in in = {.p = p,
                                     .history = all,
                                     .n_history = n,
                                     .n_prompt = n_prompt,
                                     .ends = ends,
                                     .n_ends = n_ends,
                                     .no_end = n - n_prompt < p->new_tokens_min,
                                     .choice = choice};
        fake_logits(all, n, logits);
        sample_token(s, logits, FAKE_VOCAB, &in, &ev);
        all[n++] = ev.id;
        out[n - n_ids - 1] = ev.id;
        if (!p->ignore_eos && ev.id == FAKE_EOS) *finish = FINISH_EOS;
        for (size_t i = 0; *finish == FINISH_NONE && i < p->n_stop_token_ids; i++)
            if (p->stop_token_ids[i] == ev.id) *finish = FINISH_STOP_TOKEN;
        if (*finish == FINISH_NONE && (n - n_prompt == p->new_tokens_max || n == seq_tokens_max))
            *finish = FINISH_LENGTH;
    }
    sample_scratch_destroy(&s);
    free(all);
    return n - n_ids;
}

static inline int fake_expect(const struct sampling *p, const int32_t *ids, int n_ids, int n_prompt,
                              int seq_tokens_max, int32_t *out, enum finish *finish) {
    return fake_expect_choice(p, 0, ids, n_ids, n_prompt, seq_tokens_max, out, finish);
}

/* Starts an import of one choice with so many ids. */
static inline enum err start_one(struct engine *e, uint64_t id, const int32_t *ids, size_t n) {
    const struct first_ids first = {ids, n};
    return engine_seq_start(e, id, &first, 1);
}
/* Starts an import with one id for each choice; negative: it has ended. */
static inline enum err start_each(struct engine *e, uint64_t id, const int32_t *ids, size_t n) {
    struct first_ids first[CHOICES_MAX];
    for (size_t i = 0; i < n; i++) first[i] = (struct first_ids){&ids[i], ids[i] >= 0};
    return engine_seq_start(e, id, first, n);
}

#endif
