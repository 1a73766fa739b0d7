/* forward_latent: attention's half of a layer with latent attention, in the form in which keys and
 * values are never made. With K = Wk c and V = Wv c of a head (c: what is kept of a position),
 *
 *   q K = q (Wk c) = (Wk^T q) c        sum of p V = Wv (sum of p c)
 *
 * so queries are brought to the rank once, attention runs over the rows kept, and its result is
 * brought to the heads' values. Prompts and decodes have the same form, so that a row's bits do not
 * depend on what it came with (docs/decisions/2026-11-23-latent-attention.md).
 *
 * Products of one head take up to ROWS rows at a time: a work item is a head and such rows. */
#include <string.h>
#include "common/engine/forward_pass.h"

enum { ROWS = 8 * TILE_ROWS };

size_t forward_latent_packed_bytes(const struct model_conf *c) {
    const int widest = c->latent.rank > c->latent.still ? c->latent.rank : c->latent.still;
    return x_pack_bytes(ROWS, widest);
}

/* More heads share what each walk over the rows costs, fewer share the work among threads. */
int forward_latent_slices(const struct model_conf *c, int threads) {
    int most = threads > 1 ? 8 : 16;
    while (c->n_heads % most != 0) most--;
    return c->n_heads / most;
}

static int last_row(const struct pass *p, int first, int n) {
    return first + n < p->n_rows ? first + n : p->n_rows;
}

static void norm_q_item(void *arg, int tile, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const int n = f->conf.latent.q_rank, first = tile * TILE_ROWS,
              end = last_row(p, first, TILE_ROWS);
    (void)thread;
    for (int r = first; r < end; r++)
        f->kn.rmsnorm(f->latent.q_normed + (size_t)r * (size_t)n,
                      f->latent.q_down + (size_t)r * (size_t)n, p->lw->q_norm, n, f->conf.norm_eps);
}

/* What is kept of row r, into the pool; and the turning parts of its queries, behind the place of
 * the others. */
static void store_row(const struct pass *p, int r) {
    const struct forward *f = p->f;
    const struct kv_shape *shape = kv_cache_shape(p->kv);
    const struct fwd_seq *s = &p->seqs[f->row_seq[r]];
    const int rank = f->conf.latent.rank, dim = f->conf.head_dim, half = f->conf.rope_dim / 2;
    const int position = s->n_past + r - s->first_row, heads = f->conf.n_heads;
    const size_t query = (size_t)(f->conf.latent.still + 2 * half);
    const float *c = f->cos + (size_t)r * (size_t)half, *sn = f->sin + (size_t)r * (size_t)half;
    const float *made = f->k + (size_t)r * (size_t)dim;
    float *kept = f->v + (size_t)r * (size_t)dim;
    f->kn.rmsnorm(kept, made, p->lw->k_norm, rank, f->conf.norm_eps);
    memcpy(kept + rank, made + rank, (size_t)(2 * half) * sizeof(float));
    f->kn.rope(kept + rank, c, sn, half);
    uint8_t *block =
        kv_block_ptr(p->kv, p->kv_layer, s->block_table[position / shape->block_tokens]);
    f->kn.store(block + (size_t)(position % shape->block_tokens) * kv_row_bytes(dim, shape->dtype),
                kept, dim, shape->dtype);
    for (int h = 0; h < heads; h++) {
        const size_t head = (size_t)r * (size_t)heads + (size_t)h;
        float *to = f->q + head * (size_t)dim + rank;
        memcpy(to, f->latent.heads + head * query + f->conf.latent.still,
               (size_t)(2 * half) * sizeof(float));
        f->kn.rope(to, c, sn, half);
    }
}

static void store_item(void *arg, int tile, int thread) {
    const struct pass *p = arg;
    const int first = tile * TILE_ROWS, end = last_row(p, first, TILE_ROWS);
    (void)thread;
    for (int r = first; r < end; r++) store_row(p, r);
}

/* One head's part of w, which has its matrices one below the other: y = w x for some rows. x, y: of
 * the first head in the first row, so many floats from row to row. */
static void head_item(const struct pass *p, const struct matrix *w, const float *x, size_t x_row,
                      size_t x_head, float *y, size_t y_row, size_t y_head, int item, int thread) {
    const struct forward *f = p->f;
    const int heads = f->conf.n_heads, n = w->n / heads;
    const size_t head = (size_t)(item % heads);
    const int first = item / heads * ROWS, rows = last_row(p, first, ROWS) - first;
    uint8_t *packed = f->latent.packed + (size_t)thread * f->latent.packed_bytes;
    const uint8_t *panels =
        w->panels + head * (size_t)(n / PANEL_ROWS) * panel_bytes(w->k, w->dtype);
    f->kn.x_pack(packed, x + (size_t)first * x_row + head * x_head, x_row, 0, rows, w->k, w->dtype);
    f->kn.gemm(y + (size_t)first * y_row + head * y_head, y_row, packed, panels, rows, w->k, n,
               w->dtype);
}

static void query_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const size_t heads = (size_t)f->conf.n_heads, dim = (size_t)f->conf.head_dim,
                 query = (size_t)(f->conf.latent.still + f->conf.rope_dim);
    head_item(p, &p->lw->k_up, f->latent.heads, heads * query, query, f->q, heads * dim, dim, item,
              thread);
}

static void value_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const size_t heads = (size_t)f->conf.n_heads, rank = (size_t)f->conf.latent.rank,
                 value = (size_t)f->conf.latent.value;
    head_item(p, &p->lw->v_up, f->att, heads * rank, rank, f->latent.heads, heads * value, value,
              item, thread);
}

void forward_latent(struct pass *p, void (*on_layer)(void *arg, int layer), void *arg) {
    struct forward *f = p->f;
    const struct layer_weights *l = p->lw;
    const bool two = f->conf.latent.q_rank > 0;
    const int items = f->conf.n_heads * ((p->n_rows + ROWS - 1) / ROWS);
    pass_pack_half(p, inputs_latent(l), 0);
    pass_product(p, LORA_MODULES, two ? &l->q_down : &l->q,
                 two ? f->latent.q_down : f->latent.heads, NULL, NULL);
    pass_product(p, LORA_MODULES, &l->k, f->k, NULL, NULL);
    pass_products_go(p);
    if (two) {
        pool_run(f->pool, norm_q_item, p, pass_row_tiles(p->n_rows));
        pass_pack(p, f->latent.q_normed, p->n_rows, (struct inputs){{&l->q}}, NULL, NULL);
        pass_product(p, LORA_MODULES, &l->q, f->latent.heads, NULL, NULL);
        pass_products_go(p);
    }
    pool_run(f->pool, store_item, p, pass_row_tiles(p->n_rows));
    if (on_layer != NULL) on_layer(arg, p->layer);
    pool_run(f->pool, query_item, p, items);
    pass_attention(p);
    pool_run(f->pool, value_item, p, items);
    pass_pack(p, f->latent.heads, p->n_rows, (struct inputs){{&l->o}}, NULL, NULL);
    pass_add_branch(p, LORA_MODULES, &l->o, NULL, 0);
}
