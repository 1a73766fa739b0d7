/* forward_run: one pass. Every step is a region of the compute pool: over tiles of rows, over
 * panels of a matrix, or over (rows, KV head). A pass of a few rows does the row work as a single
 * item, so on the calling thread alone. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include "common/engine/forward_pass.h"
#include "common/engine/rope.h"
#include "common/engine/sample.h"

/* ---- rows */

static void embed_item(void *arg, int tile, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const size_t hidden = (size_t)f->conf.hidden;
    int first = tile * TILE_ROWS,
        end = first + TILE_ROWS < p->n_rows ? first + TILE_ROWS : p->n_rows;
    (void)thread;
    for (int r = first; r < end; r++) {
        const struct fwd_seq *s = &p->seqs[f->row_seq[r]];
        const int position = s->n_past + r - s->first_row;
        forward_embed_row(f, s, p->ids[r], position, f->x + (size_t)r * hidden,
                          f->normed + (size_t)r * hidden);
        forward_rope_row(f, s, r, position);
    }
}

void forward_norm(const struct forward *f, float *y, const float *x, const struct norm *norm) {
    if (f->conf.norm == NORM_RMS)
        f->kn.rmsnorm(y, x, norm->weight, f->conf.hidden, f->conf.norm_eps);
    else
        f->kn.layernorm(y, x, norm->weight, norm->bias, f->conf.hidden, f->conf.norm_eps);
}

static void pack_item(void *arg, int tile, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    int first = tile * TILE_ROWS,
        end = first + TILE_ROWS < p->pack_rows ? first + TILE_ROWS : p->pack_rows;
    (void)thread;
    const size_t k = (size_t)p->pack_k;
    for (int r = first; p->norm != NULL && r < end; r++) {
        int from = p->pick != NULL ? p->pick[r] : r;
        forward_norm(f, f->normed + (size_t)r * k, p->src + (size_t)from * k, p->norm);
    }
    const struct split_part part =
        split_part(&p->split, p->pack_rows, split_part_of(&p->split, first));
    for (int i = 0; i < p->n_packings; i++)
        f->kn.x_pack(f->packed + (size_t)i * f->packed_bytes + x_pack_bytes(part.at, p->pack_k),
                     p->input + (size_t)part.row * k, k, first - part.row, end - part.row,
                     p->pack_k, p->pack_for[i]);
}

int inputs_packings(struct inputs in, enum dtype x[PACKINGS_MAX]) {
    int n = 0;
    for (int i = 0; i < PACKINGS_MAX && in.w[i] != NULL; i++) {
        bool there = false;
        for (int j = 0; j < n; j++) there = there || x[j] == x_dtype(in.w[i]->dtype);
        if (!there) x[n++] = x_dtype(in.w[i]->dtype);
    }
    return n;
}

/* Of matrices that are there: w joins those whose packing nobody has yet. */
static void inputs_add(struct inputs *in, const struct matrix *w) {
    int i = 0;
    if (w->panels == NULL) return;
    while (i < PACKINGS_MAX && in->w[i] != NULL) {
        if (x_dtype(in->w[i++]->dtype) == x_dtype(w->dtype)) return;
    }
    assert(i < PACKINGS_MAX);
    in->w[i] = w;
}

struct inputs inputs_mlp(const struct model_conf *c, const struct layer_weights *l) {
    struct inputs in = {{NULL}};
    inputs_add(&in, &l->gate);
    inputs_add(&in, &l->up);
    if (l->experts == NULL) return in;
    inputs_add(&in, &l->router);
    inputs_add(&in, &l->shared_gate);
    for (int e = 0; e < c->experts.n; e++) {
        inputs_add(&in, &l->experts[e].gate);
        inputs_add(&in, &l->experts[e].up);
    }
    return in;
}

const uint8_t *pass_packed_for(const struct pass *p, const struct matrix *w) {
    int i = 0;
    while (i < p->n_packings && p->pack_for[i] != x_dtype(w->dtype)) i++;
    assert(i < p->n_packings);
    return p->f->packed + (size_t)i * p->f->packed_bytes;
}

/* Of the products of `meets`, which are those of one region where rows may be parted. */
static struct split split_of(const struct pass *p, struct inputs meets) {
    const struct forward *f = p->f;
    const int threads = pool_threads(f->pool);
    int panels[PACKINGS_MAX], n = 0;
    for (; n < PACKINGS_MAX && meets.w[n] != NULL; n++)
        panels[n] = (meets.w[n]->n + PANEL_ROWS - 1) / PANEL_ROWS;
    if (f->kn.item_panels == 0)
        return (struct split){.rows = p->pack_rows, .parts = 1, .all_parts = 1};
    return forward_split(p->pack_rows, panels, n, threads, f->kn.item_panels,
                         p->whole || f->lora.n_chunks > 0);
}

void pass_pack(struct pass *p, const float *src, int n_rows, struct inputs meets,
               const struct norm *norm, const int *pick) {
    p->src = src;
    p->input = norm != NULL ? p->f->normed : src;
    p->pack_rows = n_rows;
    p->pack_k = meets.w[0]->k;
    p->n_packings = inputs_packings(meets, p->pack_for);
    p->split = split_of(p, meets);
    p->norm = norm;
    p->pick = pick;
    pool_run(p->f->pool, pack_item, p, pass_row_tiles(n_rows));
}

/* n_heads heads of dim values. spare: as many. */
static void norm_heads(const struct forward *f, float *x, const float *weight, int n_heads, int dim,
                       float *spare) {
    const size_t n = (size_t)n_heads * (size_t)dim;
    const enum qk_norm kind = f->conf.qk_norm;
    if (weight == NULL) return;
    if (kind == QK_NORM_ROW) f->kn.rmsnorm(spare, x, weight, (int)n, f->conf.norm_eps);
    for (size_t at = 0; (kind == QK_NORM_HEAD || kind == QK_NORM_TURNED) && at < n;
         at += (size_t)dim)
        f->kn.rmsnorm(spare + at, x + at, weight, dim, f->conf.norm_eps);
    for (size_t at = 0; kind == QK_NORM_HEADS && at < n; at += (size_t)dim)
        f->kn.layernorm(spare + at, x + at, weight + at, NULL, dim, f->conf.norm_eps);
    memcpy(x, spare, n * sizeof(float));
}

/* spare: a row like q. */
static void norm_qk(const struct forward *f, const float *of_q, const float *of_k, float *q,
                    float *k, float *spare) {
    norm_heads(f, q, of_q, f->conf.n_heads, f->conf.head_dim, spare);
    norm_heads(f, k, of_k, f->conf.n_kv_heads, f->conf.head_dim, spare);
}

/* The temperature of a layer without RoPE: by how much the queries of a position are sharpened. */
static float query_factor(const struct model_conf *c, int position) {
    return (float)(1 + (double)c->still_scale * log1p((position + 1) / c->still_floor));
}

/* Bias is in; norms of q and k, rotation, and K and V of the row into the pool. */
static void store_item(void *arg, int tile, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const struct kv_shape *shape = kv_cache_shape(p->kv);
    const int hd = f->conf.head_dim, nh = f->conf.n_heads, nkv = f->conf.n_kv_heads,
              half = f->conf.rope_dim / 2;
    const size_t row_bytes = kv_row_bytes(hd, shape->dtype);
    const size_t head_bytes = (size_t)shape->block_tokens * row_bytes;
    int first = tile * TILE_ROWS,
        end = first + TILE_ROWS < p->n_rows ? first + TILE_ROWS : p->n_rows;
    (void)thread;
    for (int r = first; r < end; r++) {
        const struct fwd_seq *s = &p->seqs[f->row_seq[r]];
        const int position = s->n_past + r - s->first_row;
        const float *c = f->cos + p->rope + (size_t)r * (size_t)half,
                    *sn = f->sin + p->rope + (size_t)r * (size_t)half;
        float *q = f->q + (size_t)r * (size_t)nh * (size_t)hd,
              *k = f->k + (size_t)r * (size_t)nkv * (size_t)hd;
        const float *v = f->v + (size_t)r * (size_t)nkv * (size_t)hd;
        uint8_t *at =
            kv_block_ptr(p->kv, p->kv_layer, s->block_table[position / shape->block_tokens]) +
            (size_t)(position % shape->block_tokens) * row_bytes;
        float *spare = f->att + (size_t)r * (size_t)nh * (size_t)hd;
        norm_qk(f, p->lw->q_norm, p->lw->k_norm, q, k, spare);
        for (int h = 0; p->turns && h < nh + nkv; h++)
            f->kn.rope(h < nh ? q + (size_t)h * (size_t)hd : k + (size_t)(h - nh) * (size_t)hd, c,
                       sn, half);
        if (p->turns) norm_qk(f, f->ones, f->ones, q, k, spare);
        if (!p->turns && f->conf.still_scale != 0)
            f->kn.scale(q, q, query_factor(&f->conf, position), nh * hd);
        for (int h = 0; h < nkv; h++) {
            f->kn.store(at + (size_t)h * head_bytes, k + (size_t)h * (size_t)hd, hd, shape->dtype);
            f->kn.store(at + (size_t)(nkv + h) * head_bytes, v + (size_t)h * (size_t)hd, hd,
                        shape->dtype);
        }
    }
}

static void attention_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    attention_plan_run(&f->plan, &p->attention, item,
                       f->att_scratch + (size_t)thread * f->att_stride);
}

void pass_attention(struct pass *p) {
    struct forward *f = p->f;
    const int window = f->conf.window[p->layer];
    if (p->layer == 0 || window != p->attention.window) attention_plan_make(&f->plan, window);
    p->attention = (struct attention){.kn = &f->kn,
                                      .shape = &f->shape,
                                      .kv = p->kv,
                                      .layer = p->kv_layer,
                                      .window = window,
                                      .sinks = p->lw->sinks,
                                      .q = f->q,
                                      .out = f->att};
    pool_run(f->pool, attention_item, p, f->plan.n_items * attention_groups(&f->shape));
}

/* ---- products */

int forward_item_panels(const struct forward *f, int n) {
    const int panels = (n + PANEL_ROWS - 1) / PANEL_ROWS, threads = pool_threads(f->pool);
    return f->kn.item_panels > 0 ? f->kn.item_panels : (panels + threads - 1) / threads;
}

void pass_product(struct pass *p, enum lora_module module, const struct matrix *w, float *y,
                  const float *bias, float *add_to) {
    const int panels = (w->n + PANEL_ROWS - 1) / PANEL_ROWS;
    const int share = p->split.panels > 0 ? p->split.panels : forward_item_panels(p->f, w->n);
    p->modules[p->n_products] = module;
    p->products[p->n_products++] = (struct product){.w = w,
                                                    .y = y,
                                                    .bias = bias,
                                                    .add_to = add_to,
                                                    .scale = 1,
                                                    .items = (panels + share - 1) / share,
                                                    .item_panels = share};
}

/* What item number `item` of product x has: columns [first, + n) of rows [row, + n_rows), which are
 * packed at `at`. */
struct block {
    int first, n, row, n_rows, at;
};

static struct block block_of(const struct pass *p, const struct product *x, int part, int item) {
    const int wide = x->item_panels * PANEL_ROWS;
    const struct split_part rows = split_part(&p->split, p->pack_rows, part);
    struct block b = {.first = item * wide, .row = rows.row, .n_rows = rows.n, .at = rows.at};
    b.n = x->w->n - b.first < wide ? x->w->n - b.first : wide;
    return b;
}

/* Returns the columns of the item, *stride floats from row to row. What follows a product is done
 * here, while they are in the cache. */
static float *product_run(const struct pass *p, int idx, const struct block *b, int thread,
                          size_t *stride) {
    const struct forward *f = p->f;
    const struct product *x = &p->products[idx];
    const int first = b->first, n = b->n, k = x->w->k;
    const size_t row = (size_t)b->row, wide = (size_t)x->w->n;
    float *y = x->y != NULL ? x->y + row * wide + first
                            : f->item_scratch + (size_t)thread * f->item_stride;
    *stride = x->y != NULL ? wide : (size_t)n;
    const uint8_t *panels =
        x->w->panels + (size_t)(first / PANEL_ROWS) * panel_bytes(k, x->w->dtype);
    f->kn.gemm(y, *stride, pass_packed_for(p, x->w) + x_pack_bytes(b->at, k), panels, b->n_rows, k,
               n, x->w->dtype);
    for (int r = 0; x->bias != NULL && r < b->n_rows; r++)
        f->kn.add(y + (size_t)r * *stride, x->bias + first, n);
    if (f->lora.n_chunks > 0 && p->modules[idx] < LORA_MODULES)
        forward_lora_up(f, p->layer, p->modules[idx], idx, y, *stride, first, n, thread);
    for (int r = 0; x->scale != 1 && r < b->n_rows; r++)
        f->kn.scale(y + (size_t)r * *stride, y + (size_t)r * *stride, x->scale, n);
    for (int r = 0; x->cap > 0 && r < b->n_rows; r++)
        f->kn.softcap(y + (size_t)r * *stride, x->cap, n);
    for (int r = 0; x->maxima != NULL && r < b->n_rows; r++)
        sample_maxima(x->maxima + (row + (size_t)r) * (size_t)sample_groups(x->w->n) +
                          (size_t)(first / SAMPLE_GROUP),
                      y + (size_t)r * *stride, n);
    for (int r = 0; x->add_to != NULL && r < b->n_rows; r++)
        f->kn.add(x->add_to + (row + (size_t)r) * wide + (size_t)first, y + (size_t)r * *stride, n);
    return y;
}

static void products_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    size_t stride;
    int i = 0, all = p->products[0].items; /* each has one at least */
    for (int j = 1; j < p->n_products; j++) all += p->products[j].items;
    const int part = item / all; /* the last, which may be the smallest, comes last */
    for (item %= all; item >= p->products[i].items; i++) item -= p->products[i].items;
    const struct block b = block_of(p, &p->products[i], part, item);
    product_run(p, i, &b, thread, &stride);
}

static void lora_down_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    forward_lora_down(p->f, p->layer, p->modules, item, p->input, p->pack_k, thread);
}

/* The narrow half of the adapters' products: every column of the wide one needs all of it. */
static void lora_down(struct pass *p) {
    int n_chunks = p->f->lora.n_chunks;
    if (n_chunks > 0 && p->modules[0] < LORA_MODULES)
        pool_run(p->f->pool, lora_down_item, p, p->n_products * n_chunks);
}

void pass_products_go(struct pass *p) {
    int items = 0;
    lora_down(p);
    for (int i = 0; i < p->n_products; i++) items += p->products[i].items;
    pool_run(p->f->pool, products_item, p, items * p->split.all_parts);
    p->n_products = 0;
}

/* g sigmoid(alpha g) (u + 1) as swiglu(alpha g, (u + 1) / alpha), of values within their limits. A
 * NaN stays one. */
static void clamp_both(const struct model_conf *c, float *gate, float *up, int n) {
    const float most = c->act_limit, alpha = c->act_alpha;
    for (int i = 0; i < n; i++) {
        gate[i] = alpha * (gate[i] > most ? most : gate[i]);
        up[i] = ((up[i] > most ? most : up[i] < -most ? -most : up[i]) + 1) / alpha;
    }
}

void forward_activate(const struct forward *f, float *gate, float *up, int n) {
    const struct kernels *kn = &f->kn;
    const enum activation act = f->conf.act;
    if (act == ACT_SILU_CLAMPED) clamp_both(&f->conf, gate, up, n);
    if (act == ACT_SILU || act == ACT_SILU_CLAMPED) {
        kn->swiglu(gate, up, n);
        return;
    }
    if (act == ACT_GELU_TANH)
        kn->gelu_tanh(gate, n);
    else
        kn->gelu(gate, n);
    if (up != NULL) kn->mul(gate, up, n);
}

/* Product 0 is gate, product 1, where there is one, is up, of one shape: the same columns of both,
 * then gate = act(gate) * up. Nobody else wants up. */
static void gate_up_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    size_t stride, up_stride = 0;
    const int items = p->products[0].items;
    const struct block b = block_of(p, &p->products[0], item / items, item % items);
    float *gate = product_run(p, 0, &b, thread, &stride), *up = NULL;
    if (p->n_products > 1) up = product_run(p, 1, &b, thread, &up_stride);
    for (int r = 0; r < b.n_rows; r++)
        forward_activate(p->f, gate + (size_t)r * stride,
                         up != NULL ? up + (size_t)r * up_stride : NULL, b.n);
}

void pass_gate_up(struct pass *p) {
    lora_down(p);
    pool_run(p->f->pool, gate_up_item, p, p->products[0].items * p->split.all_parts);
    p->n_products = 0;
}

/* ---- the pass */

void pass_pack_half(struct pass *p, struct inputs meets, int half) {
    struct forward *f = p->f;
    const struct norm *norm = &f->w->norms[2 * p->layer + half];
    if (f->conf.norms == NORMS_ONE && half == 1) {
        pass_pack(p, f->normed, p->n_rows, meets, NULL, NULL);
        return;
    }
    pass_pack(p, f->x, p->n_rows, meets, norm->weight != NULL ? norm : NULL, NULL);
    if (f->conf.norms != NORMS_OF_SUMS && !(f->conf.embed_norm && p->layer == 0 && half == 0))
        return;
    float *stream = f->x;
    f->x = f->normed;
    f->normed = stream;
}

static void branch_item(void *arg, int tile, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const size_t hidden = (size_t)f->conf.hidden;
    int first = tile * TILE_ROWS,
        end = first + TILE_ROWS < p->n_rows ? first + TILE_ROWS : p->n_rows;
    (void)thread;
    for (int r = first; r < end; r++) {
        float *normed = f->normed + (size_t)r * hidden;
        forward_norm(f, normed, f->branch + (size_t)r * hidden, p->norm);
        f->kn.add(f->x + (size_t)r * hidden, normed, (int)hidden);
    }
}

void pass_add_branch(struct pass *p, enum lora_module module, const struct matrix *w,
                     const float *bias, int half) {
    struct forward *f = p->f;
    const struct norm *norm = &f->w->branch_norms[2 * p->layer + half];
    const bool normed = norm->weight != NULL;
    pass_product(p, module, w, normed ? f->branch : NULL, bias, normed ? NULL : f->x);
    p->products[0].scale = f->conf.residual_scale;
    pass_products_go(p);
    if (!normed) return;
    p->norm = norm;
    pool_run(f->pool, branch_item, p, pass_row_tiles(p->n_rows));
}

static void attention_half(struct pass *p, void (*on_layer)(void *arg, int layer), void *arg) {
    struct forward *f = p->f;
    const struct layer_weights *l = p->lw;
    pass_pack_half(p, inputs_qkv(l), 0);
    pass_product(p, LORA_Q, &l->q, f->q, l->q_bias, NULL);
    pass_product(p, LORA_K, &l->k, f->k, l->k_bias, NULL);
    pass_product(p, LORA_V, &l->v, f->v, l->v_bias, NULL);
    pass_products_go(p);
    pool_run(f->pool, store_item, p, pass_row_tiles(p->n_rows));
    if (on_layer != NULL) on_layer(arg, p->layer);
    pass_attention(p);
    pass_pack(p, f->att, p->n_rows, (struct inputs){{&l->o}}, NULL, NULL);
    pass_add_branch(p, LORA_O, &l->o, l->o_bias, 0);
}

static void mlp_half(struct pass *p) {
    struct forward *f = p->f;
    const struct layer_weights *l = p->lw;
    pass_pack_half(p, f->mlp[p->layer], 1);
    pass_product(p, LORA_GATE, &l->gate, f->gate, l->gate_bias, NULL);
    if (f->conf.gated) pass_product(p, LORA_UP, &l->up, NULL, l->up_bias, NULL);
    pass_gate_up(p);
    pass_pack(p, f->gate, p->n_rows, (struct inputs){{&l->down}}, NULL, NULL);
    pass_add_branch(p, LORA_DOWN, &l->down, l->down_bias, 1);
}

/* Which sequence a row belongs to, and the tiles of attention. */
static void map_rows(struct pass *p, int n_seqs) {
    struct forward *f = p->f;
    const int most = attention_rows(&f->shape);
    f->plan.n_tiles = 0;
    for (int i = 0; i < n_seqs; i++) {
        const struct fwd_seq *s = &p->seqs[i];
        for (int r = 0; r < s->n_rows; r++) f->row_seq[s->first_row + r] = i;
        for (int r = 0; r < s->n_rows; r += most) {
            f->plan.tiles[f->plan.n_tiles++] =
                (struct attention_tile){.block_table = s->block_table,
                                        .row = s->first_row + r,
                                        .n = s->n_rows - r < most ? s->n_rows - r : most,
                                        .position = s->n_past + r,
                                        .end = f->conf.encoder ? s->n_rows : 0};
        }
    }
}

static void pool_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    if (p->seqs[item].pooled != NULL) forward_pool(p->f, &p->seqs[item], thread);
}

static void layer_begin(struct pass *p) {
    const struct forward *f = p->f;
    p->lw = &f->w->layers[p->layer];
    p->whole = f->conf.latent.rank > 0 || p->lw->experts != NULL; /* others read their packings */
    p->kv_layer = f->conf.encoder ? 0 : p->layer;
    p->turns = !f->conf.no_rope && !f->conf.still[p->layer];
    p->rope = f->n_ropes > 1 && f->conf.window[p->layer] > 0
                  ? (size_t)f->rows_max * (size_t)(f->conf.rope_dim / 2)
                  : 0;
}

/* The largest of each group are taken by the item that has the group. */
static void want_maxima(struct product *x, float *to) {
    enum { PANELS = SAMPLE_GROUP / PANEL_ROWS };
    const int panels = (x->w->n + PANEL_ROWS - 1) / PANEL_ROWS;
    x->maxima = to;
    x->item_panels = (x->item_panels + PANELS - 1) / PANELS * PANELS;
    x->items = (panels + x->item_panels - 1) / x->item_panels;
}

void forward_run(struct forward *f, struct kv_cache *kv, const int32_t *ids, int n_rows,
                 const struct fwd_seq *seqs, int n_seqs, const int *logit_rows, int n_logits,
                 float *logits, void (*on_layer)(void *arg, int layer), void *arg) {
    struct pass p = {.f = f, .kv = kv, .ids = ids, .seqs = seqs, .n_rows = n_rows};
    map_rows(&p, n_seqs);
    forward_lora_map(f, seqs, n_seqs);
    pool_run(f->pool, embed_item, &p, pass_row_tiles(n_rows));
    for (p.layer = 0; p.layer < f->conf.n_layers; p.layer++) {
        layer_begin(&p);
        if (f->conf.latent.rank > 0)
            forward_latent(&p, on_layer, arg);
        else
            attention_half(&p, on_layer, arg);
        if (p.lw->experts != NULL)
            forward_experts(&p);
        else
            mlp_half(&p);
    }
    pool_run(f->pool, pool_item, &p, n_seqs);
    if (n_logits == 0) return;
    p.whole = true;
    pass_pack(&p, f->x, n_logits, (struct inputs){{&f->w->head}},
              &f->w->norms[2 * f->conf.n_layers], logit_rows);
    pass_product(&p, LORA_MODULES, &f->w->head, logits, NULL, NULL);
    p.products[0].scale = f->conf.logit_scale;
    p.products[0].cap = f->conf.logit_cap;
    if (f->maxima != NULL) want_maxima(&p.products[0], f->maxima);
    pass_products_go(&p);
}

int forward_row_tile(const struct forward *f) {
    const enum dtype w = f->w->layers[0].o.dtype;
    const int rows = w == DTYPE_BF16     ? f->kn.tile_rows_bf16
                     : dtype_is_quant(w) ? f->kn.tile_rows_quant
                                         : f->kn.tile_rows;
    return rows > 0 ? rows : 1;
}

void forward_maxima(struct forward *f, float *to) {
    f->maxima = to;
}

void forward_each(struct forward *f, void (*fn)(void *arg, int item, int thread), void *arg,
                  int n) {
    pool_run(f->pool, fn, arg, n);
}
