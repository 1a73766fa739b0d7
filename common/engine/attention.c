/* attention: see attention.h. Walks the block table; the arithmetic is in the kernels, apart from
 * the fold. */
#include "common/engine/attention.h"

#include <string.h>

int attention_rows(const struct attention_shape *s) {
    int n = ATTENTION_QUERIES / (s->n_heads / attention_groups(s));
    return n < 1 ? 1 : n > ATTENTION_ROWS_MAX ? ATTENTION_ROWS_MAX : n;
}

/* Scores of a query: one more group of lanes than positions, for the padding of softmax. */
enum { SCORES_STRIDE = ATTENTION_CHUNK + LANES };

/* What a chunk, or all up to some chunk, give the n queries of a tile's group. Where values are in
 * the keys, whole keys are summed: what is behind the values is not looked at. */
struct part {
    float *o;   /* [n][lanes_up(head_dim)]: sum over p of exp(s[p] - max) V[p] */
    float *max; /* [n] */
    float *sum; /* [n]: of exp(s[p] - max), thus 1 or more; 0: sees nothing here */
};

static int queries(const struct attention_shape *s, int n_rows) {
    return n_rows * (s->n_heads / attention_groups(s));
}

size_t attention_part_floats(const struct attention_shape *s, int n_rows) {
    int n = queries(s, n_rows);
    return (size_t)n * (size_t)lanes_up(s->head_dim) + 2 * (size_t)lanes_up(n);
}

static struct part part_at(const struct attention_shape *s, int n_rows, float *at) {
    int n = queries(s, n_rows);
    struct part p = {.o = at};
    p.max = at + (size_t)n * (size_t)lanes_up(s->head_dim);
    p.sum = p.max + lanes_up(n);
    return p;
}

size_t attention_scratch_floats(const struct attention_shape *s) {
    int rows = attention_rows(s);
    return (size_t)queries(s, rows) * ((size_t)lanes_up(s->head_dim) + SCORES_STRIDE) +
           2 * attention_part_floats(s, rows);
}

/* Where one call finds its keys and values: positions [low, high) in all. */
struct walk {
    const struct attention *a;
    const struct attention_tile *t;
    const struct kv_shape *kv;
    int kv_head, low, high;
    int head, n_heads; /* the group: its first head, how many */
    int n_q;           /* queries of the tile */
    size_t row_bytes, hd_up;
};

static int row_low(int window, int position) {
    if (window < 0) return position - position % -window;
    return window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
}

/* Behind what row r of the tile sees last. */
static int row_end(const struct attention_tile *t, int window, int r) {
    if (t->end == 0) return t->position + r + 1;
    return window > 0 && window < t->end - t->position - r ? t->position + r + window : t->end;
}

int attention_chunks(const struct attention_tile *t, int window, int *first) {
    *first = row_low(window, t->position) / ATTENTION_CHUNK;
    return (row_end(t, window, t->n - 1) - 1) / ATTENTION_CHUNK - *first + 1;
}

static struct walk walk_of(const struct attention *a, const struct attention_tile *t, int group) {
    const struct kv_shape *kv = kv_cache_shape(a->kv);
    const int groups = attention_groups(a->shape), n_heads = a->shape->n_heads / groups;
    return (struct walk){.a = a,
                         .t = t,
                         .kv = kv,
                         .kv_head = group / (groups / a->shape->n_kv_heads),
                         .low = row_low(a->window, t->position),
                         .high = row_end(t, a->window, t->n - 1),
                         .head = group * n_heads,
                         .n_heads = n_heads,
                         .n_q = queries(a->shape, t->n),
                         .row_bytes = kv_row_bytes(kv->head_dim, kv->dtype),
                         .hd_up = (size_t)lanes_up(a->shape->head_dim)};
}

/* K (which 0) or V (which 1) of the walk's head from `position` on; *n: positions that follow in
 * the same block. */
static const uint8_t *rows_at(const struct walk *w, int which, int position, int *n) {
    const size_t tokens = (size_t)w->kv->block_tokens;
    if (w->kv->values_in_keys > 0) which = 0;
    size_t in_block = (size_t)position % tokens;
    const uint8_t *block =
        kv_block_ptr(w->a->kv, w->a->layer, w->t->block_table[(size_t)position / tokens]);
    *n = (int)(tokens - in_block);
    return block +
           ((size_t)(which * w->kv->n_kv_heads + w->kv_head) * tokens + in_block) * w->row_bytes;
}

/* Adds positions [low, high) to n outputs from query `first` on; nothing when the range is empty.
 * score[0] is at position `from`. */
static void mix_range(const struct walk *w, float *o, const float *score, int from, int first,
                      int n_q, int low, int high) {
    for (int p = low, n = 0; p < high; p += n) {
        const uint8_t *values = rows_at(w, 1, p, &n);
        if (n > high - p) n = high - p;
        w->a->kn->mix(o + (size_t)first * w->hd_up, w->hd_up,
                      score + (size_t)first * SCORES_STRIDE + (size_t)(p - from), SCORES_STRIDE,
                      n_q, values, n, w->a->shape->head_dim, w->kv->dtype);
    }
}

static int max_of(int a, int b) {
    return a > b ? a : b;
}
static int min_of(int a, int b) {
    return a < b ? a : b;
}

static void gather_queries(const struct walk *w, float *query) {
    const size_t hd = (size_t)w->a->shape->head_dim, heads = (size_t)w->a->shape->n_heads;
    memset(query, 0, (size_t)w->n_q * w->hd_up * sizeof(float));
    for (int i = 0; i < w->n_q; i++) {
        size_t row = (size_t)(w->t->row + i / w->n_heads),
               head = (size_t)(w->head + i % w->n_heads);
        memcpy(query + (size_t)i * w->hd_up, w->a->q + (row * heads + head) * hd,
               hd * sizeof(float));
    }
}

/* What a family does with its scores, before they are told apart by what rows see. */
static void change_scores(const struct walk *w, float *score, int low, int n) {
    const struct attention_shape *s = w->a->shape;
    for (int i = 0; i < w->n_q; i++) {
        float *row = score + (size_t)i * SCORES_STRIDE;
        if (s->cap > 0) w->a->kn->softcap(row, s->cap, n);
        if (s->slopes == NULL) continue;
        const float slope = s->slopes[w->head + i % w->n_heads];
        const int at = w->t->position + i / w->n_heads;
        for (int p = 0; p < n; p++) row[p] += slope * (float)(low + p - at);
    }
}

/* KV rows of a chunk's positions [low, high), K or V as rows_at(); NULL for the others. */
static void rows_of_chunk(const struct walk *w, int which, int low, int high,
                          const void *rows[ATTENTION_CHUNK]) {
    const int base = low / ATTENTION_CHUNK * ATTENTION_CHUNK;
    for (int p = 0; p < ATTENTION_CHUNK; p++) rows[p] = NULL;
    for (int p = low, n = 0; p < high; p += n) {
        const uint8_t *at = rows_at(w, which, p, &n);
        for (int i = 0; i < n && p + i < high; i++)
            rows[p + i - base] = at + (size_t)i * w->row_bytes;
    }
}

/* A chunk on products of bf16: all queries meet all that any of them sees, and what one does not
 * see has no weight. */
static void chunk_products(const struct walk *w, int chunk, const float *query, struct part part,
                           float *score) {
    const struct kernels *kn = w->a->kn;
    const struct attention_tile *t = w->t;
    const void *rows[ATTENTION_CHUNK];
    const int base = chunk * ATTENTION_CHUNK, g = w->n_heads, dim = w->a->shape->head_dim;
    const int low = max_of(w->low, base), high = min_of(w->high, base + ATTENTION_CHUNK);
    rows_of_chunk(w, 0, low, high, rows);
    kn->chunk_scores(score, SCORES_STRIDE, query, w->hd_up, w->n_q, rows, dim, w->a->shape->scale);
    if (w->a->shape->cap > 0 || w->a->shape->slopes != NULL)
        change_scores(w, score + (low - base), low, high - low);
    int firsts[ATTENTION_ROWS_MAX], ends[ATTENTION_ROWS_MAX];
    for (int r = 0; r < t->n; r++) {
        const int first = min_of(max_of(row_low(w->a->window, t->position + r), low), high),
                  end = max_of(min_of(row_end(t, w->a->window, r), high), first);
        firsts[r] = first;
        ends[r] = end;
        for (int i = r * g; i < (r + 1) * g; i++) {
            float *s = score + (size_t)i * SCORES_STRIDE;
            part.max[i] = part.sum[i] = 0;
            if (first < end)
                part.sum[i] = kn->softmax(s + (first - base), end - first, &part.max[i]);
            memset(s, 0, (size_t)(first - base) * sizeof(float));
            memset(s + (end - base), 0, (size_t)(base + ATTENTION_CHUNK - end) * sizeof(float));
        }
    }
    if (w->kv->values_in_keys == 0) rows_of_chunk(w, 1, low, high, rows);
    if (kn->chunk_mix(part.o, w->hd_up, score, SCORES_STRIDE, w->n_q, rows, dim)) return;
    for (int r = 0; r < t->n; r++) {
        rows_of_chunk(w, 1, firsts[r], ends[r], rows);
        (void)kn->chunk_mix(part.o + (size_t)(r * g) * w->hd_up, w->hd_up,
                            score + (size_t)(r * g) * SCORES_STRIDE, SCORES_STRIDE, g, rows, dim);
    }
}

static void chunk_part(const struct walk *w, int chunk, const float *query, struct part part,
                       float *score) {
    if (w->a->kn->chunk_scores != NULL && w->kv->dtype == DTYPE_BF16) {
        chunk_products(w, chunk, query, part, score);
        return;
    }
    const struct kernels *kn = w->a->kn;
    const struct attention_tile *t = w->t;
    const int window = w->a->window, g = w->n_heads;
    const int low = max_of(w->low, chunk * ATTENTION_CHUNK),
              high = min_of(w->high, (chunk + 1) * ATTENTION_CHUNK);
    for (int p = low, n = 0; p < high; p += n) {
        const uint8_t *keys = rows_at(w, 0, p, &n);
        if (n > high - p) n = high - p;
        kn->scores(score + (p - low), SCORES_STRIDE, query, w->hd_up, w->n_q, keys, n,
                   w->a->shape->head_dim, w->kv->dtype, w->a->shape->scale);
    }
    if (w->a->shape->cap > 0 || w->a->shape->slopes != NULL)
        change_scores(w, score, low, high - low);
    /* [shared_low, shared_high): what every row sees. There all rows mix at once; before it (a
     * window's edge) and behind it (the diagonal, or the other edge) each row alone. */
    const int shared_high = min_of(row_end(t, window, 0), high),
              shared_low = max_of(row_low(window, t->position + t->n - 1), low);
    memset(part.o, 0, (size_t)w->n_q * w->hd_up * sizeof(float));
    for (int r = 0; r < t->n; r++) {
        const int first = max_of(row_low(window, t->position + r), low),
                  end = min_of(row_end(t, window, r), high);
        for (int i = r * g; i < (r + 1) * g; i++) {
            part.max[i] = part.sum[i] = 0;
            if (first < end)
                part.sum[i] = kn->softmax(score + (size_t)i * SCORES_STRIDE + (first - low),
                                          end - first, &part.max[i]);
        }
        if (shared_low < shared_high)
            mix_range(w, part.o, score, low, r * g, g, first, min_of(shared_low, end));
        else
            mix_range(w, part.o, score, low, r * g, g, first, end);
    }
    if (shared_low >= shared_high) return;
    mix_range(w, part.o, score, low, 0, w->n_q, shared_low, shared_high);
    for (int r = 0; r < t->n; r++)
        mix_range(w, part.o, score, low, r * g, g, shared_high,
                  min_of(row_end(t, window, r), high));
}

/* acc and the part of the next chunk, as if they had been one: both are brought to the greater
 * maximum. The factors come from the kernels' softmax, so that every set has the same. */
static void fold(const struct walk *w, struct part acc, struct part next) {
    const size_t hd = (size_t)w->a->shape->head_dim;
    for (int i = 0; i < w->n_q; i++) {
        float *o = acc.o + (size_t)i * w->hd_up;
        const float *add = next.o + (size_t)i * w->hd_up;
        if (next.sum[i] == 0) continue;
        if (acc.sum[i] == 0) {
            memcpy(o, add, hd * sizeof(float));
            acc.max[i] = next.max[i];
            acc.sum[i] = next.sum[i];
            continue;
        }
        _Alignas(64) float f[LANES] = {acc.max[i], next.max[i]};
        w->a->kn->softmax(f, 2, &acc.max[i]);
        acc.sum[i] = acc.sum[i] * f[0] + next.sum[i] * f[1];
        for (size_t d = 0; d < hd; d++) o[d] = o[d] * f[0] + add[d] * f[1];
    }
}

/* What a sum of exp(s[p] - max) V[p] is divided by when the sink's score counts too: the inverse.
 */
static float with_sink(const struct walk *w, float sink, float max, float sum) {
    _Alignas(64) float f[LANES] = {max, sink};
    float most;
    w->a->kn->softmax(f, 2, &most);
    return f[0] / (sum * f[0] + f[1]);
}

static void write_out(const struct walk *w, struct part p) {
    const size_t dim = (size_t)attention_value_dim(w->a->shape),
                 heads = (size_t)w->a->shape->n_heads;
    for (int i = 0; i < w->n_q; i++) {
        size_t row = (size_t)(w->t->row + i / w->n_heads),
               head = (size_t)(w->head + i % w->n_heads);
        float f = 1.0f / p.sum[i];
        if (w->a->sinks != NULL) f = with_sink(w, w->a->sinks[head], p.max[i], p.sum[i]);
        w->a->kn->scale(w->a->out + (row * heads + head) * dim, p.o + (size_t)i * w->hd_up, f,
                        (int)dim);
    }
}

void attention_tile(const struct attention *a, const struct attention_tile *t, int group,
                    float *scratch) {
    const struct walk w = walk_of(a, t, group);
    float *query = scratch, *score = query + (size_t)w.n_q * w.hd_up;
    float *parts = score + (size_t)w.n_q * SCORES_STRIDE;
    const struct part acc = part_at(a->shape, t->n, parts),
                      next = part_at(a->shape, t->n, parts + attention_part_floats(a->shape, t->n));
    int first, n = attention_chunks(t, a->window, &first);
    gather_queries(&w, query);
    chunk_part(&w, first, query, acc, score);
    for (int i = 1; i < n; i++) {
        chunk_part(&w, first + i, query, next, score);
        fold(&w, acc, next);
    }
    write_out(&w, acc);
}

void attention_chunk(const struct attention *a, const struct attention_tile *t, int group,
                     int chunk, float *part, float *scratch) {
    const struct walk w = walk_of(a, t, group);
    gather_queries(&w, scratch);
    chunk_part(&w, chunk, scratch, part_at(a->shape, t->n, part),
               scratch + (size_t)w.n_q * w.hd_up);
}

void attention_join(const struct attention *a, const struct attention_tile *t, int group,
                    float *parts, int n_parts) {
    const struct walk w = walk_of(a, t, group);
    const size_t stride = attention_part_floats(a->shape, t->n);
    const struct part acc = part_at(a->shape, t->n, parts);
    for (int i = 1; i < n_parts; i++)
        fold(&w, acc, part_at(a->shape, t->n, parts + (size_t)i * stride));
    write_out(&w, acc);
}
