/* forward_embed: what a pass begins with, the rows of the tables, and what it ends with when a text
 * is to become one vector: pooling and the head for scores. Each sequence's is one work item, and
 * its rows are added up in the order of their positions. */
#include <math.h>
#include <string.h>
#include "common/engine/forward_priv.h"
#include "common/engine/rope.h"

static void table_row(const struct forward *f, const struct matrix *m, int row, float *x) {
    f->kn.panel_row(x, m->panels + (size_t)(row / PANEL_ROWS) * panel_bytes(m->k, m->dtype),
                    row % PANEL_ROWS, m->k, m->dtype);
}

void forward_embed_row(const struct forward *f, const struct fwd_seq *s, int32_t id, int position,
                       float *x, float *spare) {
    const struct model_conf *c = &f->conf;
    table_row(f, &f->w->embed, id, x);
    if (c->embed_scale != 1) f->kn.scale(x, x, c->embed_scale, c->hidden);
    if (c->n_positions > 0) {
        table_row(f, &f->w->positions, c->first_position + position, spare);
        f->kn.add(x, spare, c->hidden);
    }
    if (c->n_token_types > 0) {
        const bool second = s->n_first > 0 && position >= s->n_first && c->n_token_types > 1;
        table_row(f, &f->w->types, second ? 1 : 0, spare);
        f->kn.add(x, spare, c->hidden);
    }
}

void forward_rope_row(const struct forward *f, const struct fwd_seq *s, int r, int position) {
    const struct model_conf *c = &f->conf;
    const int half = c->rope_dim / 2, n_tokens = c->encoder ? s->n_rows : s->n_tokens;
    const size_t table = (size_t)f->rows_max * (size_t)half, at = (size_t)r * (size_t)half;
    double longer[MODEL_HEAD_DIM_MAX / 2];
    const double *freqs = f->freqs;
    if (c->no_rope) return;
    if (rope_turns_by_length(&c->rope, n_tokens)) {
        freqs = f->freqs + (size_t)f->n_ropes * (size_t)half;
        if (c->rope.type == ROPE_DYNAMIC) {
            rope_freqs_for(longer, &c->rope, c->rope_dim, n_tokens);
            freqs = longer;
        }
    }
    rope_row(f->cos + at, f->sin + at, freqs, half, c->rope.attention_factor, position);
    if (f->n_ropes > 1)
        rope_row(f->cos + table + at, f->sin + table + at, f->freqs + half, half,
                 c->window_rope.attention_factor, position);
}

/* ---- scores */

size_t forward_score_floats(const struct forward *f) {
    const int hidden = f->conf.hidden;
    if (f->conf.score.n_labels == 0) return 0;
    return x_pack_bytes(1, hidden) / sizeof(float) + 2 * (size_t)lanes_up(hidden);
}

/* y = W x, one row. */
static void score_product(const struct forward *f, float *y, const struct matrix *w, const float *x,
                          const float *bias, float *packed) {
    f->kn.x_pack(packed, x, (size_t)w->k, 0, 1, w->k, w->dtype);
    f->kn.gemm(y, (size_t)w->n, packed, w->panels, 1, w->k, w->n, w->dtype);
    if (bias != NULL) f->kn.add(y, bias, w->n);
}

static void score(const struct forward *f, const struct fwd_seq *s, int thread) {
    const struct score_conf *c = &f->conf.score;
    const struct weights *w = f->w;
    const int hidden = f->conf.hidden;
    float *row = f->score_scratch + (size_t)thread * f->score_stride,
          *other = row + lanes_up(hidden), *packed = other + lanes_up(hidden);
    memcpy(row, s->pooled, (size_t)hidden * sizeof(float));
    if (c->dense) {
        score_product(f, other, &w->score_dense, row, w->score_dense_bias, packed);
        if (c->act == ACT_GELU) f->kn.gelu(other, hidden);
        for (int i = 0; c->act == ACT_TANH && i < hidden; i++) other[i] = tanhf(other[i]);
        memcpy(row, other, (size_t)hidden * sizeof(float));
    }
    if (c->norm) {
        f->kn.layernorm(other, row, w->score_norm, NULL, hidden, f->conf.norm_eps);
        memcpy(row, other, (size_t)hidden * sizeof(float));
    }
    score_product(f, s->scores, &w->score_out, row, w->score_out_bias, packed);
}

/* ---- pooling */

void forward_pool(const struct forward *f, const struct fwd_seq *s, int thread) {
    const size_t hidden = (size_t)f->conf.hidden;
    const struct norm *norm = &f->w->norms[2 * f->conf.n_layers];
    const bool begins = s->n_past == 0, ends = s->n_past + s->n_rows == s->n_ids;
    const float *rows = f->x + (size_t)s->first_row * hidden;
    if (begins && s->pooling == POOL_MEAN) memset(s->pooled, 0, hidden * sizeof(float));
    for (int r = 0; s->pooling == POOL_MEAN && r < s->n_rows; r++) {
        float *normed = f->normed + ((size_t)s->first_row + (size_t)r) * hidden;
        forward_norm(f, normed, rows + (size_t)r * hidden, norm);
        f->kn.add(s->pooled, normed, (int)hidden);
    }
    if (begins && s->pooling == POOL_CLS) forward_norm(f, s->pooled, rows, norm);
    if (ends && s->pooling == POOL_LAST)
        forward_norm(f, s->pooled, rows + (size_t)(s->n_rows - 1) * hidden, norm);
    if (!ends) return;
    if (s->pooling == POOL_MEAN)
        for (size_t i = 0; i < hidden; i++) s->pooled[i] /= (float)s->n_ids;
    if (s->scores != NULL) score(f, s, thread);
}
