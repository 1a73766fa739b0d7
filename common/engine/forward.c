/* forward: opening a model: config, kernels, threads, weights, scratch. The pass itself is in
 * forward_run.c. */
#include "common/engine/forward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/engine/forward_priv.h"
#include "common/engine/forward_split.h"
#include "common/engine/rope.h"

enum { ROWS_MAX = 65536, SCRATCH_ALIGN = 64 };

static void fill_info(struct forward *f, const struct engine_opts *o) {
    struct model_info *i = &f->info;
    const struct model_conf *c = &f->conf;
    _Static_assert(sizeof(i->family) == sizeof(c->family), "one size of family names");
    memcpy(i->family, c->family, sizeof(i->family));
    i->encoder = c->encoder;
    i->no_head = f->w->head.panels == NULL;
    i->is_embedder = c->is_embedder;
    i->pooling = c->pooling;
    i->matryoshka = c->matryoshka;
    i->n_labels = c->score.n_labels;
    i->score_pooling = c->score.pooling;
    i->score_raw = c->score_raw;
    i->two_types = c->n_token_types > 1;
    i->n_layers = c->n_layers;
    i->n_heads = c->n_heads;
    i->n_kv_heads = c->n_kv_heads;
    i->head_dim = c->head_dim;
    i->values_in_keys = c->latent.rank;
    i->hidden = c->hidden;
    i->intermediate = c->intermediate;
    i->vocab_size = c->vocab_size;
    i->rope_dim = c->rope_dim;
    i->adapter_pairs = c->adapter_pairs;
    if (!c->encoder && (c->rope.type == ROPE_DYNAMIC || c->rope.type == ROPE_LONGROPE))
        i->rope_short_max = (int)c->rope.original_context;
    i->rope_each_length = c->rope.type == ROPE_DYNAMIC;
    i->context_max = c->context_max;
    i->bos_id = c->bos_id;
    memcpy(i->eos_ids, c->eos_ids, sizeof(i->eos_ids));
    i->n_eos = c->n_eos;
    i->weight_dtype = f->w->dtype;
    i->kv_dtype = c->encoder ? DTYPE_F32 : o->kv_dtype;
    memcpy(i->file_type, f->w->file_type, sizeof(i->file_type));
    i->n_params = f->w->n_params;
    i->n_experts = c->experts.n;
    i->experts_used = c->experts.used;
    i->n_params_active = weights_active(c, f->w->n_params, f->w->n_expert_params);
    i->weight_bytes = f->w->bytes;
    memcpy(i->hash, f->w->hash, sizeof(i->hash));
    snprintf(i->kernels, sizeof(i->kernels), "%s", f->kn.name);
    i->n_threads = pool_threads(f->pool);
    i->arithmetic = kernels_arithmetic(&f->kn, f->w->some_bf16, i->kv_dtype);
    snprintf(i->weights_from, sizeof(i->weights_from), "%s", weights_from_name(f->w->from));
    i->gen.do_sample_set = c->gen.do_sample_set;
    i->gen.do_sample = c->gen.do_sample;
    i->gen.temperature_set = c->gen.temperature_set;
    i->gen.temperature = c->gen.temperature;
    i->gen.top_k_set = c->gen.top_k_set;
    i->gen.top_k = c->gen.top_k;
    i->gen.top_p_set = c->gen.top_p_set;
    i->gen.top_p = c->gen.top_p;
    i->gen.min_p_set = c->gen.min_p_set;
    i->gen.min_p = c->gen.min_p;
    i->gen.repetition_penalty_set = c->gen.repetition_penalty_set;
    i->gen.repetition_penalty = c->gen.repetition_penalty;
}

/* Hands out pieces of the scratch memory; with base NULL it only adds up. */
struct carver {
    uint8_t *base;
    size_t at;
};

static void *carve(struct carver *c, size_t n, size_t size) {
    size_t at = c->at;
    c->at = (at + n * size + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    return c->base != NULL ? c->base + at : NULL;
}

static int widest_of(const struct model_conf *m) {
    int q_dim = m->n_heads * m->head_dim,
        n = forward_mlp_width(m) > m->hidden ? forward_mlp_width(m) : m->hidden;
    if (m->experts.intermediate > n) n = m->experts.intermediate;
    if (m->latent.q_rank > n) n = m->latent.q_rank;
    if (m->latent.value * m->n_heads > n) n = m->latent.value * m->n_heads;
    return n > q_dim ? n : q_dim;
}

static size_t lanes_of(size_t n) {
    return (n + LANES - 1) / LANES * LANES;
}

/* A thread's part: a tile of rows gathered, the same packed, a tile of results. */
static void lay_out_lora(struct forward *f, struct carver *c, size_t rows, size_t threads) {
    struct lora_rows *l = &f->lora;
    size_t widest = (size_t)widest_of(&f->conf);
    if (l->rank_max == 0) return;
    l->stride = lanes_of((size_t)l->rank_max);
    l->gathered = lanes_of(TILE_ROWS * widest);
    l->packed = lanes_of(x_pack_bytes(TILE_ROWS, (int)widest) / sizeof(float));
    l->scratch_stride = l->gathered + l->packed + TILE_ROWS * (lanes_of(widest) + l->stride);
    l->rows = carve(c, rows, sizeof(*l->rows));
    l->chunks = carve(c, rows, sizeof(*l->chunks));
    l->down = carve(c, LORA_PRODUCTS * rows * l->stride, sizeof(float));
    l->scratch = carve(c, threads * l->scratch_stride, sizeof(float));
}

static size_t item_columns(const struct forward *f, int n) {
    return (size_t)forward_item_panels(f, n) * PANEL_ROWS;
}

static void lay_out_plan(struct attention_plan *p, struct carver *c) {
    p->tiles = carve(c, (size_t)p->tiles_max, sizeof(*p->tiles));
    p->items = carve(c, p->items_max, sizeof(*p->items));
    p->cuts = carve(c, (size_t)p->cuts_max, sizeof(*p->cuts));
    p->done = carve(c, (size_t)p->cuts_max * (size_t)attention_groups(&p->shape), sizeof(*p->done));
    p->parts = carve(c, p->parts_max, sizeof(float));
}

static void lay_out_experts(struct forward *f, struct carver *c, size_t rows, size_t threads) {
    struct expert_rows *x = &f->experts;
    const struct model_conf *m = &f->conf;
    const size_t n = (size_t)m->experts.n, used = (size_t)m->experts.used, pairs = rows * used;
    const int widest = m->hidden > m->experts.intermediate ? m->hidden : m->experts.intermediate;
    if (n == 0) return;
    x->scores = carve(c, rows * n, sizeof(float));
    x->shares = carve(c, pairs, sizeof(float));
    if (m->experts.on_input) x->inputs = carve(c, pairs, sizeof(float));
    x->chosen = carve(c, pairs, sizeof(int));
    x->place = carve(c, pairs, sizeof(int));
    x->row = carve(c, pairs, sizeof(int));
    x->first = carve(c, n + 1, sizeof(int));
    x->active = carve(c, n, sizeof(int));
    x->at = carve(c, n, sizeof(size_t));
    x->counts = carve(c, (size_t)m->n_layers * n, sizeof(*x->counts));
    /* each expert's rows are filled up to LANES */
    const size_t filled = pairs + (LANES - 1) * (n < pairs ? n : pairs);
    bool apart = false;
    for (int i = 0; i < m->n_layers; i++) {
        const struct expert_weights *e = f->w->layers[i].experts;
        for (size_t j = 0; e != NULL && j < n; j++)
            apart = apart || x_dtype(e[j].gate.dtype) != x_dtype(e[j].up.dtype);
    }
    x->packed_bytes = filled * x_pack_bytes(LANES, widest) / LANES;
    x->packed = carve(c, apart ? 2 : 1, x->packed_bytes);
    x->rows = carve(c, pairs * (size_t)m->hidden, sizeof(float));
    x->gate = carve(c, pairs * (size_t)m->experts.intermediate, sizeof(float));
    x->shared = carve(c, m->experts.shared > 0 ? rows * (size_t)m->hidden : 0, sizeof(float));
    x->open = carve(c, rows, sizeof(float));
    x->scratch = carve(c, threads * 2 * lanes_of(n), sizeof(float));
}

static void lay_out_latent(struct forward *f, struct carver *c, size_t rows, size_t threads) {
    struct latent_rows *x = &f->latent;
    const struct latent_conf *m = &f->conf.latent;
    const size_t heads = (size_t)f->conf.n_heads, query = (size_t)(m->still + f->conf.rope_dim);
    if (m->rank == 0) return;
    x->q_down = carve(c, rows * (size_t)m->q_rank, sizeof(float));
    x->q_normed = carve(c, rows * (size_t)m->q_rank, sizeof(float));
    x->heads = carve(c, rows * heads * (query > (size_t)m->value ? query : (size_t)m->value),
                     sizeof(float));
    x->packed_bytes = forward_latent_packed_bytes(&f->conf);
    x->packed = carve(c, threads, x->packed_bytes);
}

static int most_packings(const struct forward *f) {
    enum dtype x[PACKINGS_MAX];
    int most = 1;
    for (int i = 0; i < f->conf.n_layers; i++) {
        const struct layer_weights *l = &f->w->layers[i];
        const bool latent = f->conf.latent.rank > 0;
        const struct inputs shared[] = {latent ? inputs_latent(l) : inputs_qkv(l),
                                        inputs_mlp(&f->conf, l)};
        for (int j = 0; j < 2; j++) {
            const int n = inputs_packings(shared[j], x);
            most = n > most ? n : most;
        }
    }
    return most;
}

static void lay_out(struct forward *f, struct carver *c) {
    const struct model_conf *m = &f->conf;
    size_t r = (size_t)f->rows_max, threads = (size_t)pool_threads(f->pool);
    size_t q_dim = (size_t)m->n_heads * (size_t)m->head_dim,
           kv_dim = (size_t)m->n_kv_heads * (size_t)m->head_dim;
    int widest = widest_of(m);
    f->x = carve(c, r * (size_t)m->hidden, sizeof(float));
    f->normed = carve(c, r * (size_t)m->hidden, sizeof(float));
    f->q = carve(c, r * q_dim, sizeof(float));
    f->att = carve(c, r * q_dim, sizeof(float));
    f->k = carve(c, r * kv_dim, sizeof(float));
    f->v = carve(c, r * kv_dim, sizeof(float));
    f->gate = carve(c, r * (size_t)forward_mlp_width(m), sizeof(float));
    if (m->norms == NORMS_AROUND || m->norms == NORMS_BEHIND)
        f->branch = carve(c, r * (size_t)m->hidden, sizeof(float));
    if (m->alibi) f->slopes = carve(c, (size_t)m->n_heads, sizeof(float));
    if (m->qk_norm == QK_NORM_TURNED) f->ones = carve(c, (size_t)m->head_dim, sizeof(float));
    const size_t half = (size_t)m->rope_dim / 2, ropes = (size_t)f->n_ropes;
    f->cos = carve(c, ropes * r * half, sizeof(float));
    f->sin = carve(c, ropes * r * half, sizeof(float));
    f->packed_bytes = x_pack_bytes(f->rows_max + (threads > 1 ? SPLIT_SPARE_ROWS : 0), widest);
    f->packed = carve(c, (size_t)f->n_packings, f->packed_bytes);
    f->mlp = carve(c, (size_t)m->n_layers, sizeof(*f->mlp));
    f->att_scratch = carve(c, threads * f->att_stride, sizeof(float));
    const int widths[] = {m->hidden, m->intermediate, m->experts.intermediate, m->experts.shared};
    size_t most = 0;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        most = item_columns(f, widths[i]) > most ? item_columns(f, widths[i]) : most;
    f->item_stride = r * most;
    f->item_scratch = carve(c, threads * f->item_stride, sizeof(float));
    lay_out_plan(&f->plan, c);
    f->row_seq = carve(c, r, sizeof(*f->row_seq));
    f->freqs = carve(c, (ropes + 1) * half, sizeof(double));
    f->score_stride = lanes_of(forward_score_floats(f));
    f->score_scratch = carve(c, threads * f->score_stride, sizeof(float));
    lay_out_lora(f, c, r, threads);
    lay_out_experts(f, c, r, threads);
    lay_out_latent(f, c, r, threads);
}

/* ALiBi (Press et al. 2021): a geometric series of a power of two; what heads there are beyond it
 * take every second value of the series of twice as many. */
static void make_slopes(float *slopes, int n_heads) {
    int n = 1;
    while (2 * n <= n_heads) n *= 2;
    for (int h = 0; h < n_heads; h++)
        slopes[h] =
            (float)(h < n ? pow(2, -8.0 * (h + 1) / n) : pow(2, -4.0 * (2 * (h - n) + 1) / n));
}

static enum err make_scratch(struct forward *f, int seq_tokens_max, struct errbuf *eb) {
    struct carver c = {0};
    f->shape = (struct attention_shape){.n_heads = f->conf.n_heads,
                                        .n_kv_heads = f->conf.n_kv_heads,
                                        .head_dim = f->conf.head_dim,
                                        .scale = f->conf.score_scale,
                                        .cap = f->conf.score_cap,
                                        .values_in_keys = f->conf.latent.rank};
    if (f->conf.latent.rank > 0)
        f->shape.slices = forward_latent_slices(&f->conf, pool_threads(f->pool));
    f->n_ropes = f->conf.has_window_rope ? 2 : 1;
    f->n_packings = most_packings(f);
    f->att_stride = lanes_of(attention_scratch_floats(&f->shape));
    attention_plan_init(&f->plan, &f->shape, pool_threads(f->pool), f->rows_max, seq_tokens_max);
    lay_out(f, &c);
    size_t bytes = c.at;
    if (!mem_open(&f->memory, bytes, MEM_TRANSPARENT, true))
        return err_set(eb, ERR_NO_MEMORY, "no memory for %zu bytes of scratch", bytes);
    c = (struct carver){.base = f->memory.p};
    lay_out(f, &c);
    const struct model_conf *m = &f->conf;
    const size_t half = (size_t)m->rope_dim / 2;
    rope_freqs(f->freqs, &m->rope, m->rope_dim);
    if (f->n_ropes > 1) rope_freqs(f->freqs + half, &m->window_rope, m->rope_dim);
    rope_freqs_for(f->freqs + (size_t)f->n_ropes * half, &m->rope, m->rope_dim, INT32_MAX);
    if (f->slopes != NULL) make_slopes(f->slopes, m->n_heads);
    for (int i = 0; f->ones != NULL && i < m->head_dim; i++) f->ones[i] = 1;
    for (int i = 0; i < m->n_layers; i++) f->mlp[i] = inputs_mlp(m, &f->w->layers[i]);
    f->shape.slopes = f->slopes;
    return ERR_OK;
}

/* Of the last level; where nobody tells, as much as a large one. */
static size_t cache_bytes(void) {
    long n = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return n > 0 ? (size_t)n : (size_t)64 << 20;
}

static enum err open_parts(struct forward *f, const struct engine_opts *o, struct errbuf *eb) {
    enum err e;
    int seq_tokens_max = o->seq_tokens_max;
    if (kv_row_bytes(1, o->kv_dtype) == 0)
        return err_set(eb, ERR_BAD_CONFIG, "kv_dtype must be f32, bf16 or int8, got %s",
                       dtype_name(o->kv_dtype));
    if (f->rows_max < 1 || f->rows_max > ROWS_MAX)
        return err_set(eb, ERR_BAD_CONFIG, "rows of one pass must be from 1 to %d, got %d",
                       ROWS_MAX, f->rows_max);
    if (o->lora_rank_max < 0 || o->lora_rank_max > LORA_RANK_MAX)
        return err_set(eb, ERR_BAD_CONFIG, "maxLoraRank must be from 0 to %d, got %d",
                       LORA_RANK_MAX, o->lora_rank_max);
    f->lora.rank_max = o->lora_rank_max;
    if ((e = model_conf_read(&f->conf, o->model_dir, eb)) != ERR_OK) return e;
    if ((e = kernels_find(&f->kn, o->kernels, eb)) != ERR_OK) return e;
    if ((e = pool_create(&f->pool, o->n_threads, o->cpu_ids, eb)) != ERR_OK) return e;
    const struct weights_place place = {.setting = o->weight_cache,
                                        .verify = o->weight_cache_verify};
    if ((e = weights_open(&f->w, &f->conf, o->model_dir, &f->kn, o->weight_dtype, &place, f->pool,
                          o->progress, o->progress_arg, o->cancel, eb)) != ERR_OK)
        return e;
    if (f->kn.gemm_once != NULL && f->w->bytes > cache_bytes()) f->kn.gemm = f->kn.gemm_once;
    if (seq_tokens_max <= 0 || seq_tokens_max > f->conf.context_max)
        seq_tokens_max = f->conf.context_max;
    if (f->conf.encoder && f->rows_max < seq_tokens_max) f->rows_max = seq_tokens_max;
    if ((e = make_scratch(f, seq_tokens_max, eb)) != ERR_OK) return e;
    fill_info(f, o);
    e = model_conf_hash(&f->conf, f->info.conf_hash);
    return e == ERR_OK ? e : err_set(eb, e, "no memory to hash the model");
}

enum err forward_open(struct forward **out, const struct engine_opts *opts, int rows_max,
                      struct errbuf *eb) {
    struct forward *f = calloc(1, sizeof(*f));
    *out = NULL;
    if (f == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the model");
    f->rows_max = rows_max;
    enum err e = open_parts(f, opts, eb);
    if (e != ERR_OK)
        forward_close(&f);
    else
        pool_hand_over(f->pool); /* the thread that loads a model is not the one that runs it */
    *out = f;
    return e;
}

enum err forward_check(struct forward *f, engine_checked_fn *done, void *arg) {
    return f->check == NULL ? weights_check_start(&f->check, f->w, done, arg) : ERR_CONFLICT;
}

uint64_t forward_progress(const struct forward *f) {
    return pool_progress(f->pool);
}

const atomic_uint_least64_t *forward_expert_rows(const struct forward *f, int layer) {
    if (f->experts.counts == NULL || !f->conf.mixed[layer]) return NULL;
    return f->experts.counts + (size_t)layer * (size_t)f->conf.experts.n;
}

void forward_close(struct forward **f) {
    if (*f == NULL) return;
    weights_check_stop(&(*f)->check);
    weights_close(&(*f)->w);
    pool_destroy(&(*f)->pool);
    mem_close(&(*f)->memory);
    free(*f);
    *f = NULL;
}

const struct model_info *forward_model(const struct forward *f) {
    return &f->info;
}
