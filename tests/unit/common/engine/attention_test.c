/* Goal: attention is right around the bounds of its chunks, and a row's bits do not depend on the
 * tile it is in, on who computes which chunk, on threads, blocks or what else the plan holds.
 * Method: single rows against a plain sum in double; within one chunk against the kernels called
 * straight through, bit for bit; then everything else (tiles, chunks out of order, plans run by
 * pools of threads) against single rows, bit for bit. Plans are checked as lists too, so that what
 * is compared was cut when it should be. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/attention_plan.h"
#include "common/engine/half.h"
#include "common/engine/pool.h"
#include "tests/unit/pace.h"

enum {
    C = ATTENTION_CHUNK,
    LONGEST = 3 * C + 7,
    HEADS = 6,
    KV_HEADS = 2,
    Q_GROUP = HEADS / KV_HEADS,
    HEAD_DIM = 24,
    ROW = HEADS * HEAD_DIM,
    ROWS_MAX = 128,
    LAYERS = 2,
    LAYER = 1, /* the one that is looked at */
};

static const struct attention_shape shape = {
    .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .scale = 0.2f};
static const int contexts[] = {1, 2, C - 1, C, C + 1, 2 * C, LONGEST};
/* below 0: chunks of the family, which are not those of the sums; the first four are a sample */
static const int windows[] = {0,         C + 1, -C + 1, 7,  1,      C - 1,      C,
                              2 * C + 3, -1,    -7,     -C, -C - 1, -2 * C - 3, -2 * LONGEST};
static size_t n_windows(void) {
    return pace_rounds(sizeof(windows) / sizeof(windows[0]), 4);
}

/* One sequence's keys and values, also in the pool, and queries for ROWS_MAX rows. Values are such
 * that bf16 holds them; of int8 they are read back. */
struct rig {
    struct kv_cache *kv;
    struct kernels kn;
    int32_t *table;
    float (*k)[KV_HEADS][HEAD_DIM], (*v)[KV_HEADS][HEAD_DIM]; /* [LONGEST] */
    float q[ROWS_MAX][ROW], out[ROWS_MAX][ROW];
    float *scratch;
};

static uint32_t dice;
static float value(float size) {
    dice = dice * 1664525u + 1013904223u;
    return size * ((float)(dice >> 25) / 64.0f - 1.0f);
}

static float *floats(size_t n) {
    float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0x5a, n * sizeof(float));
    return p;
}

/* Stores a row; x becomes what was kept. */
static void keep_row(const struct kernels *kn, uint8_t *at, float *x, enum dtype t) {
    uint16_t scale;
    kn->store(at, x, HEAD_DIM, t);
    if (t != DTYPE_INT8) return;
    memcpy(&scale, at, sizeof(scale));
    for (int d = 0; d < HEAD_DIM; d++)
        x[d] = f32_of_bf16(scale) * (float)((const int8_t *)at)[KV_SCALE_BYTES + d];
}

/* loud: from this position on keys are 16 times as large, so that the last chunks outweigh all
 * others; negative: from 0 to minus that. */
static struct rig *rig_make(const char *set, enum dtype t, int block, int loud) {
    struct rig *r = calloc(1, sizeof(*r));
    const int n_blocks = (LONGEST + block - 1) / block;
    const struct kv_shape s = {LAYERS, KV_HEADS, HEAD_DIM, block, n_blocks, t, 0};
    struct errbuf eb = {0};
    assert_non_null(r);
    assert_int_equal(kernels_find(&r->kn, set, &eb), ERR_OK);
    assert_int_equal(kv_cache_create(&r->kv, &s, &eb), ERR_OK);
    r->table = malloc(sizeof(*r->table) * (size_t)n_blocks);
    r->k = malloc(sizeof(*r->k) * LONGEST);
    r->v = malloc(sizeof(*r->v) * LONGEST);
    assert_true(r->table != NULL && r->k != NULL && r->v != NULL);
    r->scratch = floats(attention_scratch_floats(&shape));
    for (int i = 0; i < n_blocks; i++) r->table[i] = n_blocks - 1 - i;
    dice = 7;
    const size_t bytes = kv_row_bytes(HEAD_DIM, t);
    for (int p = 0; p < LONGEST; p++) {
        const float size = (loud >= 0 ? p >= loud : p < -loud) ? 16 : 1;
        uint8_t *at = kv_block_ptr(r->kv, LAYER, r->table[p / block]);
        for (int h = 0; h < KV_HEADS; h++) {
            for (int d = 0; d < HEAD_DIM; d++) {
                r->k[p][h][d] = value(size);
                r->v[p][h][d] = value(1);
            }
            keep_row(&r->kn, at + (size_t)(h * block + p % block) * bytes, r->k[p][h], t);
            keep_row(&r->kn, at + (size_t)((KV_HEADS + h) * block + p % block) * bytes, r->v[p][h],
                     t);
        }
    }
    for (int i = 0; i < ROWS_MAX; i++) {
        for (int d = 0; d < ROW; d++) r->q[i][d] = value(1);
    }
    return r;
}

static void rig_free(struct rig *r) {
    kv_cache_destroy(&r->kv);
    free(r->table);
    free(r->k);
    free(r->v);
    free(r->scratch);
    free(r);
}

static struct attention layer_of(const struct rig *r, int window, float *out) {
    return (struct attention){.kn = &r->kn,
                              .shape = &shape,
                              .kv = r->kv,
                              .layer = LAYER,
                              .window = window,
                              .q = r->q[0],
                              .out = out};
}

/* Row `row` of q at `position`, alone, to out[row]. */
static void run_row(struct rig *r, int window, int row, int position, float *out) {
    const struct attention a = layer_of(r, window, out);
    const struct attention_tile t = {r->table, row, 1, position, 0};
    for (int h = 0; h < KV_HEADS; h++) attention_tile(&a, &t, h, r->scratch);
}

static void same_row(const float *a, const float *b, const char *what, int window, int position) {
    if (memcmp(a, b, ROW * sizeof(float)) != 0)
        fail_msg("%s: window=%d position=%d", what, window, position);
}

/* ---- one row */

static int lowest(int window, int position) {
    if (window < 0) return position / -window * -window;
    return window > 0 && position >= window ? position - window + 1 : 0;
}

static void check_oracle(struct rig *r, int window, int position, double bound) {
    static double e[LONGEST];
    run_row(r, window, 0, position, r->out[0]);
    const int low = lowest(window, position);
    for (int h = 0; h < HEADS; h++) {
        const float *q = &r->q[0][h * HEAD_DIM];
        double most = -INFINITY, sum = 0;
        for (int p = low; p <= position; p++) {
            e[p] = 0;
            for (int d = 0; d < HEAD_DIM; d++) e[p] += (double)q[d] * r->k[p][h / Q_GROUP][d];
            e[p] *= (double)shape.scale;
            most = e[p] > most ? e[p] : most;
        }
        for (int p = low; p <= position; p++) sum += e[p] = exp(e[p] - most);
        for (int d = 0; d < HEAD_DIM; d++) {
            double want = 0;
            for (int p = low; p <= position; p++) want += e[p] * r->v[p][h / Q_GROUP][d];
            double got = (double)r->out[0][h * HEAD_DIM + d];
            if (!(fabs(got - want / sum) <= bound))
                fail_msg("%s: window=%d position=%d head=%d: %.9g, want %.9g", r->kn.name, window,
                         position, h, got, want / sum);
        }
    }
}

/* Sets with products of bf16 for KV of bf16 round queries and weights: weights by 2^-9, scores of
 * up to 4.8 by as much, which moves a weight by 2%. */
static bool by_products(const struct kernels *k, enum dtype t) {
    return k->chunk_scores != NULL && t == DTYPE_BF16;
}

static void a_row_is_the_sum(void **state) {
    static const struct {
        enum dtype t;
        int block, loud;
    } rigs[] = {{DTYPE_F32, 16, LONGEST},
                {DTYPE_BF16, 7, LONGEST},
                {DTYPE_INT8, 9, LONGEST},
                {DTYPE_F32, 128, 2 * C}, /* the last chunks outweigh the first by e^60 */
                {DTYPE_F32, 16, -C}};    /* and the other way */
    struct kernels k;
    (void)state;
    for (int s = 0; kernels_at(&k, s); s++) {
        for (size_t i = 0; i < sizeof(rigs) / sizeof(rigs[0]); i++) {
            struct rig *r = rig_make(k.name, rigs[i].t, rigs[i].block, rigs[i].loud);
            for (size_t c = 0; c < sizeof(contexts) / sizeof(contexts[0]); c++) {
                for (size_t w = 0; w < n_windows(); w++)
                    check_oracle(r, windows[w], contexts[c] - 1,
                                 by_products(&k, rigs[i].t) ? 0.02
                                 : rigs[i].loud == LONGEST  ? 2e-6
                                                            : 1e-4);
            }
            rig_free(r);
        }
    }
}

/* A context of one chunk has nothing to fold. */
static void one_chunk_is_the_kernels_alone(void **state) {
    struct rig *r = rig_make("auto", DTYPE_F32, C / 4, LONGEST);
    const int n = C - 3, low = 5; /* a window that starts off the groups of lanes */
    const size_t up = (size_t)lanes_up(HEAD_DIM);
    float *q = floats(up), *o = floats(up), *score = floats(C + LANES), max;
    (void)state;
    run_row(r, n - low, 3, n - 1, r->out[0]);
    for (int h = 0; h < HEADS; h++) {
        memset(q, 0, up * sizeof(float));
        memset(o, 0, up * sizeof(float));
        memcpy(q, &r->q[3][h * HEAD_DIM], HEAD_DIM * sizeof(float));
        for (int p = low; p < n; p++)
            r->kn.scores(score + p - low, C, q, up, 1, r->k[p][h / Q_GROUP], 1, HEAD_DIM, DTYPE_F32,
                         shape.scale);
        float sum = r->kn.softmax(score, n - low, &max);
        for (int p = low; p < n; p++)
            r->kn.mix(o, up, score + p - low, C, 1, r->v[p][h / Q_GROUP], 1, HEAD_DIM, DTYPE_F32);
        r->kn.scale(q, o, 1.0f / sum, HEAD_DIM);
        assert_memory_equal(q, &r->out[3][h * HEAD_DIM], HEAD_DIM * sizeof(float));
    }
    free(q);
    free(o);
    free(score);
    rig_free(r);
}

/* Ten rows at once. */
static void run_tile(struct rig *r, int window, int position) {
    const struct attention a = layer_of(r, window, r->out[0]);
    const struct attention_tile t = {r->table, 0, 10, position, 0};
    for (int h = 0; h < KV_HEADS; h++) attention_tile(&a, &t, h, r->scratch);
}

/* The plain set's bits, or its own of another block. */
static void check_sets_and_blocks(enum dtype t) {
    struct kernels k;
    for (int s = 0; kernels_at(&k, s); s++) {
        struct rig *ref = rig_make(by_products(&k, t) ? k.name : "ref", t, 16, 2 * C);
        struct rig *r = rig_make(k.name, t, 5 + s, 2 * C);
        for (size_t c = 0; c < sizeof(contexts) / sizeof(contexts[0]); c++) {
            for (size_t w = 0; w < n_windows(); w++) {
                run_row(ref, windows[w], 0, contexts[c] - 1, ref->out[0]);
                run_row(r, windows[w], 0, contexts[c] - 1, r->out[0]);
                same_row(r->out[0], ref->out[0], k.name, windows[w], contexts[c] - 1);
                if (contexts[c] + 9 > LONGEST) continue;
                run_tile(ref, windows[w], contexts[c] - 1);
                run_tile(r, windows[w], contexts[c] - 1);
                for (int i = 0; i < 10; i++)
                    same_row(r->out[i], ref->out[i], k.name, windows[w], contexts[c] - 1 + i);
            }
        }
        rig_free(r);
        rig_free(ref);
    }
}

/* What is not finite shows in the rows that see it, and in no other. */
static void what_is_not_finite_stays_where_it_is_seen(void **state) {
    enum { AT = C + 40, ROWS = 8, FIRST = AT - 3 };
    struct kernels k;
    (void)state;
    for (int s = 0; kernels_at(&k, s); s++) {
        for (int which = 0; which < 2; which++) {
            struct rig *r = rig_make(k.name, DTYPE_BF16, 16, LONGEST);
            const struct attention a = layer_of(r, 0, r->out[0]);
            const struct attention_tile t = {r->table, 0, ROWS, FIRST, 0};
            float want[ROWS][ROW];
            for (int h = 0; h < KV_HEADS; h++) attention_tile(&a, &t, h, r->scratch);
            memcpy(want, r->out, sizeof(want));
            for (int h = 0; h < KV_HEADS; h++) {
                uint16_t *row =
                    (uint16_t *)(void *)(kv_block_ptr(r->kv, LAYER, r->table[AT / 16]) +
                                         (size_t)((which * KV_HEADS + h) * 16 + AT % 16) *
                                             HEAD_DIM * 2);
                row[5] = 0x7fc0;
            }
            for (int h = 0; h < KV_HEADS; h++) attention_tile(&a, &t, h, r->scratch);
            for (int i = 0; i < ROWS; i++) {
                if (FIRST + i < AT)
                    same_row(r->out[i], want[i], k.name, 0, FIRST + i);
                else
                    assert_true(isnan(r->out[i][5]));
            }
            rig_free(r);
        }
    }
}

static void sets_and_blocks_give_the_same_bits(void **state) {
    (void)state;
    check_sets_and_blocks(DTYPE_BF16);
    check_sets_and_blocks(DTYPE_INT8);
}

/* ---- tiles and chunks */

static void check_tile(struct rig *r, int window, int position, int n) {
    static float alone[ROWS_MAX][ROW];
    const struct attention a = layer_of(r, window, r->out[0]);
    const struct attention_tile t = {r->table, 2, n, position, 0};
    const size_t part = attention_part_floats(&shape, n);
    int first, n_chunks = attention_chunks(&t, window, &first);
    for (int i = 0; i < n; i++) run_row(r, window, 2 + i, position + i, alone[0]);
    memset(r->out, 0, sizeof(r->out));
    for (int h = 0; h < KV_HEADS; h++) attention_tile(&a, &t, h, r->scratch);
    for (int i = 0; i < n; i++) same_row(r->out[2 + i], alone[2 + i], "tile", window, position + i);
    /* no other row is written */
    for (int i = 0; i < ROW; i++) assert_true(r->out[1][i] == 0 && r->out[2 + n][i] == 0);

    float *parts = floats((size_t)n_chunks * part);
    memset(r->out, 0, sizeof(r->out));
    for (int h = 0; h < KV_HEADS; h++) {
        for (int c = n_chunks - 1; c >= 0; c--)
            attention_chunk(&a, &t, h, first + c, parts + (size_t)c * part, r->scratch);
        attention_join(&a, &t, h, parts, n_chunks);
    }
    for (int i = 0; i < n; i++)
        same_row(r->out[2 + i], alone[2 + i], "chunks", window, position + i);
    free(parts);
}

static void a_tile_is_its_rows(void **state) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT8};
    const int most = attention_rows(&shape);
    (void)state;
    assert_int_equal(most, 21); /* 64 queries in rows of 3 */
    for (int i = 0; i < 3; i++) {
        struct rig *r = rig_make("auto", types[i], 16, i == 0 ? LONGEST : C);
        for (size_t w = 0; w < n_windows(); w++) {
            for (int bound = 0; bound <= 3 * C; bound += C) {
                /* the bound before, in and behind the tile */
                for (int p = bound - most; p <= bound; p += most / 2)
                    if (p >= 0 && p + most <= LONGEST) check_tile(r, windows[w], p, most);
                check_tile(r, windows[w], bound, 1);
                check_tile(r, windows[w], bound, 3);
            }
        }
        rig_free(r);
    }
}

static void chunks_are_counted(void **state) {
    static const struct {
        int position, n, window, first, chunks;
    } want[] = {{0, 1, 0, 0, 1},         {C - 1, 1, 0, 0, 1},     {C, 1, 0, 0, 2},
                {C - 1, 2, 0, 0, 2},     {3 * C + 6, 1, 0, 0, 4}, {C, 1, 1, 1, 1},
                {C, 1, 2, 0, 2},         {2 * C - 1, 1, C, 1, 1}, {2 * C - 1, 1, C + 1, 0, 2},
                {2 * C - 1, 2, C, 1, 2}, {2 * C, 1, C, 1, 2},     {5, 3, 100, 0, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        const struct attention_tile t = {.n = want[i].n, .position = want[i].position};
        int first, n = attention_chunks(&t, want[i].window, &first);
        if (first != want[i].first || n != want[i].chunks)
            fail_msg("position=%d n=%d window=%d: %d chunks from %d", t.position, t.n,
                     want[i].window, n, first);
    }
}

/* ---- plans */

static struct attention_plan plan_make(const struct rig *r, int threads, const int (*tiles)[2],
                                       int n_tiles) {
    struct attention_plan p;
    attention_plan_init(&p, &shape, threads, ROWS_MAX, LONGEST);
    p.tiles = calloc((size_t)p.tiles_max, sizeof(*p.tiles));
    p.items = calloc(p.items_max, sizeof(*p.items));
    p.cuts = calloc((size_t)p.cuts_max + 1, sizeof(*p.cuts));
    p.done = calloc((size_t)p.cuts_max * KV_HEADS + 1, sizeof(*p.done));
    p.parts = floats(p.parts_max + 1);
    assert_true(p.tiles != NULL && p.items != NULL && p.cuts != NULL && p.done != NULL);
    for (int row = 0; p.n_tiles < n_tiles; p.n_tiles++) {
        const int *t = tiles[p.n_tiles];
        p.tiles[p.n_tiles] = (struct attention_tile){r->table, row, t[1], t[0], 0};
        row += t[1];
        assert_true(row <= ROWS_MAX);
    }
    return p;
}

static void plan_free(struct attention_plan *p) {
    for (int i = 0; i < p->cuts_max * KV_HEADS; i++) assert_int_equal(atomic_load(&p->done[i]), 0);
    free(p->tiles);
    free(p->items);
    free(p->cuts);
    free((void *)p->done);
    free(p->parts);
}

/* Every row of a tile once, or the tile in each of its chunks once; parts lie apart, inside. */
static void check_plan(const struct attention_plan *p, int window) {
    static bool seen[ROWS_MAX][8], rows[ROWS_MAX][ROWS_MAX];
    size_t used = 0;
    memset(seen, 0, sizeof(seen));
    memset(rows, 0, sizeof(rows));
    assert_true(p->n_cuts <= p->cuts_max && (size_t)p->n_items <= p->items_max);
    for (int i = 0; i < p->n_items; i++) {
        const struct attention_item *it = &p->items[i];
        int chunk = it->chunk;
        if (it->cut >= 0) {
            assert_true(it->cut < p->n_cuts && p->cuts[it->cut].tile == it->tile);
            assert_true(chunk >= 0 && chunk < p->cuts[it->cut].n_chunks);
            assert_false(seen[it->tile][chunk]);
            assert_true(it->row == 0 && it->n == p->tiles[it->tile].n);
        } else {
            chunk = 7;
            assert_true(it->n > 0 && it->row >= 0 && it->row + it->n <= p->tiles[it->tile].n);
            for (int r = it->row; r < it->row + it->n; r++) {
                assert_false(rows[it->tile][r]);
                rows[it->tile][r] = true;
            }
        }
        seen[it->tile][chunk] = true;
    }
    for (int i = 0; i < p->n_tiles; i++) {
        int first, n = attention_chunks(&p->tiles[i], window, &first), in_chunks = 0;
        for (int c = 0; c < 7; c++) in_chunks += seen[i][c];
        assert_int_equal(in_chunks, seen[i][7] ? 0 : n);
        for (int r = 0; r < p->tiles[i].n; r++) assert_int_equal(rows[i][r], seen[i][7]);
    }
    for (int i = 0; i < p->n_cuts; i++) {
        assert_int_equal(p->cuts[i].parts, used);
        used += (size_t)p->cuts[i].n_chunks * KV_HEADS *
                attention_part_floats(&shape, p->tiles[p->cuts[i].tile].n);
    }
    assert_true(used <= p->parts_max);
}

struct region {
    const struct attention_plan *p;
    const struct attention *a;
    float *scratch;
};

static void item(void *arg, int n, int thread) {
    const struct region *g = arg;
    attention_plan_run(g->p, g->a, n,
                       g->scratch + (size_t)thread * attention_scratch_floats(&shape));
}

enum { LATE = 3 * C };
static const int one_long[][2] = {{LONGEST - 1, 1}};
static const int one_short[][2] = {{C - 1, 1}};
static const int guesses[][2] = {{LONGEST - 6, 6}};
static const int long_beside_short[][2] = {{LONGEST - 1, 1}, {3, 1},  {C, 1},       {40, 1},
                                           {LATE, 2},        {0, 10}, {C + 100, 1}, {C - 1, 4}};
static const int prompt[][2] = {{2 * C - 30, 10}, {2 * C - 20, 10}, {2 * C - 10, 10},
                                {2 * C, 10},      {2 * C + 10, 10}, {2 * C + 20, 10}};
/* so many rows that they are handed out one by one at the end, beside one that is cut */
static const int large_prompt[][2] = {{LONGEST - 1, 1}, {C - 50, 21}, {C - 29, 21},
                                      {C - 8, 21},      {C + 13, 21}, {C + 34, 21}};
static const struct {
    const int (*tiles)[2]; /* position, rows */
    int n, cuts2, cuts8;   /* cuts of 2 and of 8 threads without a window */
} batches[] = {{one_long, 1, 1, 1},          {one_short, 1, 0, 0}, {guesses, 1, 1, 1},
               {long_beside_short, 8, 2, 5}, {prompt, 6, 2, 6},    {large_prompt, 6, 0, 0}};

static void plans_give_the_same_bits(void **state) {
    static float want[ROWS_MAX][ROW];
    struct rig *r = rig_make("auto", DTYPE_BF16, 16, C);
    float *scratch = floats(8 * attention_scratch_floats(&shape));
    (void)state;
    for (int threads = 1; threads <= 8; threads += threads == 1 ? 1 : 6) {
        struct pool *pool;
        assert_int_equal(pool_create(&pool, threads, NULL, NULL), ERR_OK);
        for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
            struct attention_plan p = plan_make(r, threads, batches[b].tiles, batches[b].n);
            for (size_t w = 0; w < n_windows(); w++) {
                const struct attention a = layer_of(r, windows[w], r->out[0]);
                attention_plan_make(&p, windows[w]);
                check_plan(&p, windows[w]);
                if (windows[w] == 0)
                    assert_int_equal(p.n_cuts, threads == 1   ? 0
                                               : threads == 2 ? batches[b].cuts2
                                                              : batches[b].cuts8);
                memset(r->out, 0, sizeof(r->out));
                for (int again = 0; again < 3; again++)
                    pool_run(pool, item, &(struct region){&p, &a, scratch}, p.n_items * KV_HEADS);
                for (int i = 0; i < p.n_tiles; i++) {
                    const struct attention_tile *t = &p.tiles[i];
                    for (int j = 0; j < t->n; j++) {
                        run_row(r, windows[w], t->row + j, t->position + j, want[0]);
                        same_row(r->out[t->row + j], want[t->row + j], "plan", windows[w],
                                 t->position + j);
                    }
                }
            }
            plan_free(&p);
        }
        pool_destroy(&pool);
    }
    free(scratch);
    rig_free(r);
}

/* What finds no room stays whole; room for the parts of exactly one row is room for one. */
static void plans_keep_to_their_memory(void **state) {
    static const int two[][2] = {{LONGEST - 1, 1}, {LONGEST - 2, 1}};
    struct rig *r = rig_make("auto", DTYPE_BF16, 16, LONGEST);
    const size_t one = 4 * KV_HEADS * attention_part_floats(&shape, 1);
    (void)state;
    for (int room = 0; room <= 2; room++) {
        struct attention_plan p = plan_make(r, 8, two, 2);
        assert_true(p.parts_max >= 2 * one);
        p.parts_max = (size_t)room * one;
        attention_plan_make(&p, 0);
        check_plan(&p, 0);
        assert_int_equal(p.n_cuts, room);
        p.parts_max -= room > 0 ? 1 : 0;
        attention_plan_make(&p, 0);
        check_plan(&p, 0);
        assert_int_equal(p.n_cuts, room > 0 ? room - 1 : 0);
        plan_free(&p);
    }
    rig_free(r);
}

/* ---- values in the keys, one KV head, its queries in groups */

enum { L_HEADS = 12, L_DIM = 40, L_VALUES = 24, L_LONG = C + 77, L_ROWS = 7 };

/* The values of `bare` are in its keys; of `both` they have rows, which are the keys once more. */
struct latent_rig {
    struct kernels kn;
    struct kv_cache *bare, *both;
    int32_t table[(L_LONG + 8) / 9];
    float q[L_ROWS][L_HEADS * L_DIM];
};

static struct latent_rig *latent_make(const char *set, enum dtype t) {
    struct latent_rig *r = calloc(1, sizeof(*r));
    struct errbuf eb = {0};
    assert_non_null(r);
    const struct kv_shape s = {.n_layers = 1,
                               .n_kv_heads = 1,
                               .head_dim = L_DIM,
                               .block_tokens = 9,
                               .n_blocks = (L_LONG + 8) / 9,
                               .dtype = t};
    struct kv_shape in_keys = s;
    in_keys.values_in_keys = L_VALUES;
    assert_int_equal(kernels_find(&r->kn, set, &eb), ERR_OK);
    assert_int_equal(kv_cache_create(&r->both, &s, &eb), ERR_OK);
    assert_int_equal(kv_cache_create(&r->bare, &in_keys, &eb), ERR_OK);
    assert_int_equal(2 * kv_block_bytes(&in_keys), kv_block_bytes(&s));
    for (int i = 0; i < s.n_blocks; i++) r->table[i] = s.n_blocks - 1 - i;
    const size_t bytes = kv_row_bytes(L_DIM, t);
    dice = 11;
    for (int p = 0; p < L_LONG; p++) {
        float row[L_DIM];
        for (int d = 0; d < L_DIM; d++) row[d] = value(1);
        uint8_t *one = kv_block_ptr(r->bare, 0, r->table[p / 9]) + (size_t)(p % 9) * bytes,
                *two = kv_block_ptr(r->both, 0, r->table[p / 9]) + (size_t)(p % 9) * bytes;
        r->kn.store(one, row, L_DIM, t);
        memcpy(two, one, bytes);
        memcpy(two + 9 * bytes, one, bytes);
    }
    for (int i = 0; i < L_ROWS; i++)
        for (int d = 0; d < L_HEADS * L_DIM; d++) r->q[i][d] = value(1);
    return r;
}

static void latent_run(struct latent_rig *r, const struct attention_shape *s, const void *kv,
                       int position, float *out) {
    const struct attention a = {.kn = &r->kn, .shape = s, .kv = kv, .q = r->q[0], .out = out};
    float *scratch = floats(attention_scratch_floats(s));
    const int most = attention_rows(s);
    for (int row = 0; row < L_ROWS; row += most) {
        const struct attention_tile t = {.block_table = r->table,
                                         .row = row,
                                         .n = L_ROWS - row < most ? L_ROWS - row : most,
                                         .position = position + row};
        for (int g = 0; g < attention_groups(s); g++) attention_tile(&a, &t, g, scratch);
    }
    free(scratch);
}

static void values_in_keys_are_the_keys_beginning(void **state) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT8};
    static const int positions[] = {0, 5, C - 3, L_LONG - L_ROWS};
    static float want[L_ROWS][L_HEADS][L_DIM], got[L_ROWS][L_HEADS][L_VALUES];
    struct kernels k;
    (void)state;
    for (int set = 0; kernels_at(&k, set); set++) {
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
            struct latent_rig *r = latent_make(k.name, types[i]);
            struct attention_shape s = {
                .n_heads = L_HEADS, .n_kv_heads = 1, .head_dim = L_DIM, .scale = 0.2f};
            for (size_t p = 0; p < sizeof(positions) / sizeof(positions[0]); p++) {
                s.values_in_keys = s.slices = 0;
                latent_run(r, &s, r->both, positions[p], want[0][0]);
                s.values_in_keys = L_VALUES;
                for (s.slices = 0; s.slices <= L_HEADS; s.slices += s.slices < 4 ? 1 : 2) {
                    if (s.slices > 0 && L_HEADS % s.slices != 0) continue;
                    memset(got, 0x5a, sizeof(got));
                    latent_run(r, &s, r->bare, positions[p], got[0][0]);
                    for (int j = 0; j < L_ROWS * L_HEADS; j++)
                        if (memcmp(got[j / L_HEADS][j % L_HEADS], want[j / L_HEADS][j % L_HEADS],
                                   sizeof(got[0][0])) != 0)
                            fail_msg("%s: position=%d slices=%d row=%d head=%d", k.name,
                                     positions[p], s.slices, j / L_HEADS, j % L_HEADS);
                }
            }
            kv_cache_destroy(&r->bare);
            kv_cache_destroy(&r->both);
            free(r);
        }
    }
}

static void groups_share_the_work_of_a_head(void **state) {
    struct attention_shape s = {
        .n_heads = 128, .n_kv_heads = 1, .head_dim = 576, .values_in_keys = 512, .scale = 1};
    struct attention_plan p;
    (void)state;
    assert_int_equal(attention_rows(&s), 1);
    s.slices = 16;
    assert_int_equal(attention_rows(&s), 8);
    assert_int_equal(attention_groups(&s), 16);
    assert_int_equal(attention_value_dim(&s), 512);
    attention_plan_init(&p, &s, 8, 30, C + 1);
    assert_int_equal(p.cuts_max, 2); /* four tiles' worth of items a thread */
}

/* Sizes at open: nothing to cut with one thread or one chunk; a bound for many threads and a
 * context of millions, where one row still fits. */
static void plans_have_a_size(void **state) {
    static const struct attention_shape large = {
        .n_heads = 128, .n_kv_heads = 8, .head_dim = 256, .scale = 1};
    const int millions = 4 * 1000 * 1000;
    struct attention_plan p;
    (void)state;
    attention_plan_init(&p, &shape, 1, 30, LONGEST);
    assert_true(p.cuts_max == 0 && p.parts_max == 0 && p.items_max == 30);
    attention_plan_init(&p, &shape, 8, 30, C);
    assert_true(p.cuts_max == 0 && p.parts_max == 0 && p.items_max == 30);
    attention_plan_init(&p, &shape, 8, 30, C + 1);
    assert_true(p.cuts_max == 16 && p.items_max == 30 + 16 * 2);
    assert_int_equal(p.parts_max, 16 * 2 * KV_HEADS * attention_part_floats(&shape, 21));
    attention_plan_init(&p, &shape, 8, 3, C + 1);
    assert_int_equal(p.cuts_max, 3);
    attention_plan_init(&p, &large, 64, 512, 64 * C);
    assert_int_equal(p.parts_max, ATTENTION_PARTS_BYTES / sizeof(float));
    assert_int_equal(p.items_max, 512 + p.parts_max / (8 * attention_part_floats(&large, 1)));
    attention_plan_init(&p, &large, 64, 512, millions);
    assert_int_equal(p.parts_max,
                     (millions + C - 1) / C * (size_t)8 * attention_part_floats(&large, 1));
    assert_int_equal(p.items_max, 512 + (millions + C - 1) / C);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_the_sum),
        cmocka_unit_test(one_chunk_is_the_kernels_alone),
        cmocka_unit_test(sets_and_blocks_give_the_same_bits),
        cmocka_unit_test(what_is_not_finite_stays_where_it_is_seen),
        cmocka_unit_test(a_tile_is_its_rows),
        cmocka_unit_test(chunks_are_counted),
        cmocka_unit_test(plans_give_the_same_bits),
        cmocka_unit_test(plans_keep_to_their_memory),
        cmocka_unit_test(plans_have_a_size),
        cmocka_unit_test(values_in_keys_are_the_keys_beginning),
        cmocka_unit_test(groups_share_the_work_of_a_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
