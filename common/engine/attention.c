/* attention: see attention.h. Walks the block table; the arithmetic is in the kernels. */
#include "common/engine/attention.h"

#include <string.h>

int attention_rows(const struct attention_shape *s) {
    int n = ATTENTION_QUERIES / (s->n_heads / s->n_kv_heads);
    return n < 1 ? 1 : n > ATTENTION_ROWS_MAX ? ATTENTION_ROWS_MAX : n;
}

static size_t queries(const struct attention_shape *s) {
    return (size_t)attention_rows(s) * (size_t)(s->n_heads / s->n_kv_heads);
}

/* Scores of a query: one more group of lanes than positions, for the padding of softmax. */
static size_t scores_stride(int n_positions) {
    return (size_t)lanes_up(n_positions) + LANES;
}

size_t attention_scratch_floats(const struct attention_shape *s, int seq_tokens_max) {
    return queries(s) * (2 * (size_t)lanes_up(s->head_dim) + scores_stride(seq_tokens_max)) +
           (size_t)lanes_up((int)queries(s));
}

/* Where one call finds its keys and values: positions [low, high) in all. */
struct walk {
    const struct kv_cache *kv;
    const struct attention_tile *t;
    int layer, kv_head, block_tokens, low, high;
    size_t head_bytes; /* of one KV head in a block: K or V */
    enum dtype dtype;
};

/* K (which 0) or V (which 1) of the walk's head from `position` on; *n: positions that follow in
 * the same block. */
static const uint8_t *rows_at(const struct walk *w, int which, int position, int *n) {
    const struct kv_shape *shape = kv_cache_shape(w->kv);
    int in_block = position % w->block_tokens;
    const uint8_t *block =
        kv_block_ptr(w->kv, w->layer, w->t->block_table[position / w->block_tokens]);
    *n = w->block_tokens - in_block;
    return block + ((size_t)(which * shape->n_kv_heads + w->kv_head)) * w->head_bytes +
           w->head_bytes / (size_t)w->block_tokens * (size_t)in_block;
}

static int row_low(int window, int position) {
    return window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
}

/* Adds positions [low, high) to n outputs from query `first` on; nothing when the range is empty.
 */
static void mix_range(const struct kernels *kn, const struct walk *w, float *o, const float *score,
                      size_t stride, int hd, int first, int n_q, int low, int high) {
    const size_t hd_up = (size_t)lanes_up(hd);
    for (int p = low, n = 0; p < high; p += n) {
        const uint8_t *values = rows_at(w, 1, p, &n);
        if (n > high - p) n = high - p;
        kn->mix(o + (size_t)first * hd_up, hd_up,
                score + (size_t)first * stride + (size_t)(p - w->low), stride, n_q, values, n, hd,
                w->dtype);
    }
}

void attention_tile(const struct kernels *kn, const struct attention_shape *s,
                    const struct kv_cache *kv, int layer, int window,
                    const struct attention_tile *t, int kv_head, const float *q, float *out,
                    float *scratch) {
    const struct kv_shape *shape = kv_cache_shape(kv);
    const int g = s->n_heads / s->n_kv_heads, n_q = t->n * g, hd = s->head_dim;
    const size_t hd_up = (size_t)lanes_up(hd), row_stride = (size_t)s->n_heads * (size_t)hd;
    struct walk w = {.kv = kv,
                     .t = t,
                     .layer = layer,
                     .kv_head = kv_head,
                     .block_tokens = shape->block_tokens,
                     .low = row_low(window, t->position),
                     .high = t->position + t->n,
                     .head_bytes = (size_t)shape->block_tokens * kv_row_bytes(hd, shape->dtype),
                     .dtype = shape->dtype};
    const size_t stride = scores_stride(w.high - w.low);
    float *query = scratch, *o = query + (size_t)n_q * hd_up, *sum = o + (size_t)n_q * hd_up;
    float *score = sum + lanes_up(n_q);

    memset(query, 0, 2 * (size_t)n_q * hd_up * sizeof(float));
    for (int i = 0; i < n_q; i++)
        memcpy(query + (size_t)i * hd_up,
               q + (size_t)(t->row + i / g) * row_stride +
                   (size_t)(kv_head * g + i % g) * (size_t)hd,
               (size_t)hd * sizeof(float));
    for (int p = w.low, n = 0; p < w.high; p += n) {
        const uint8_t *keys = rows_at(&w, 0, p, &n);
        if (n > w.high - p) n = w.high - p;
        kn->scores(score + (p - w.low), stride, query, hd_up, n_q, keys, n, hd, w.dtype, s->scale);
    }
    /* [shared_low, shared_high): what every row sees. There all rows mix at once; before it (a
     * window's edge) and behind it (the diagonal) each row alone. */
    const int shared_high = t->position + 1, last_low = row_low(window, t->position + t->n - 1),
              shared_low = last_low < shared_high ? last_low : shared_high;
    for (int r = 0; r < t->n; r++) {
        const int low = row_low(window, t->position + r), high = t->position + r + 1;
        for (int i = r * g; i < (r + 1) * g; i++)
            sum[i] = kn->softmax(score + (size_t)i * stride + (size_t)(low - w.low), high - low);
        mix_range(kn, &w, o, score, stride, hd, r * g, g, low,
                  shared_low < high ? shared_low : high);
    }
    mix_range(kn, &w, o, score, stride, hd, 0, n_q, shared_low, shared_high);
    for (int r = 0; r < t->n; r++) {
        const int low = row_low(window, t->position + r);
        mix_range(kn, &w, o, score, stride, hd, r * g, g, low > shared_high ? low : shared_high,
                  t->position + r + 1);
        for (int i = 0; i < g; i++)
            kn->scale(out + (size_t)(t->row + r) * row_stride +
                          (size_t)(kv_head * g + i) * (size_t)hd,
                      o + (size_t)(r * g + i) * hd_up, 1.0f / sum[r * g + i], hd);
    }
}
