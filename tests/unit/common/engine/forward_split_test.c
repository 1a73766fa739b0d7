/* Goal: up to 64 threads have the same to do in a prompt's products, to within 5%, and every column
 * of every row is made once. Method: the items that the real splitting code gives for shapes of
 * real models are counted and handed to 1 to 64 threads as the pool does, the next one to whoever
 * is free; what items cost is what they multiply. No clock: the threads are numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/attention_plan.h"
#include "common/engine/forward_split.h"
#include "common/engine/kernels.h"

enum { THREADS_MAX = 64, CHUNK = 512 };

struct shape {
    const char *name;
    int hidden, intermediate, heads, kv_heads, head_dim, vocab;
};
static const struct shape shapes[] = {
    {"TinyLlama-1.1B", 2048, 5632, 32, 4, 64, 32000},
    {"Qwen2.5-0.5B", 896, 4864, 14, 2, 64, 151936},
    {"Llama-3-8B", 4096, 14336, 32, 8, 128, 128256},
    {"Qwen2.5-32B", 5120, 27648, 40, 8, 128, 152064},
    {"Llama-3-70B", 8192, 28672, 64, 8, 128, 128256},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* What threads have done so far in a region; and over regions, in which the slowest one counts. */
struct crew {
    int threads;
    double busy[THREADS_MAX];
    double waited, worked; /* all regions: of the slowest thread; of a fair share */
};

static void take(struct crew *c, double cost) {
    int free = 0;
    for (int t = 1; t < c->threads; t++)
        if (c->busy[t] < c->busy[free]) free = t;
    c->busy[free] += cost;
    c->worked += cost / c->threads;
}

/* Returns the slowest thread's work over a fair share. */
static double region_over(struct crew *c, double worked_before) {
    double most = 0;
    for (int t = 0; t < c->threads; t++) {
        most = c->busy[t] > most ? c->busy[t] : most;
        c->busy[t] = 0;
    }
    c->waited += most;
    return most / (c->worked - worked_before);
}

static int panels_of(int n) {
    return (n + PANEL_ROWS - 1) / PANEL_ROWS;
}

/* Products of one region: columns n[0 .. n_products), all with `times` matrices of k inputs. */
static double products(struct crew *c, int rows, const int *n, int n_products, int k, int times,
                       int widest, bool whole) {
    int panels[3];
    const double before = c->worked;
    for (int i = 0; i < n_products; i++) panels[i] = panels_of(n[i]);
    const struct split s = forward_split(rows, panels, n_products, c->threads, widest, whole);
    for (int part = 0; part < s.all_parts; part++) {
        const int r = split_part(&s, rows, part).n;
        for (int i = 0; i < n_products; i++) {
            for (int p = 0; p < panels[i]; p += s.panels) {
                const int wide = panels[i] - p < s.panels ? panels[i] - p : s.panels;
                take(c, (double)r * wide * PANEL_ROWS * k * times);
            }
        }
    }
    return region_over(c, before);
}

/* A layer's products; returns the worst region. */
static double layer(struct crew *c, const struct shape *m, int rows, int widest) {
    const int qkv[] = {m->heads * m->head_dim, m->kv_heads * m->head_dim,
                       m->kv_heads * m->head_dim};
    double worst = products(c, rows, qkv, 3, m->hidden, 1, widest, false), x;
    if ((x = products(c, rows, &m->hidden, 1, m->heads * m->head_dim, 1, widest, false)) > worst)
        worst = x;
    if ((x = products(c, rows, &m->intermediate, 1, m->hidden, 2, widest, false)) > worst)
        worst = x;
    if ((x = products(c, rows, &m->hidden, 1, m->intermediate, 1, widest, false)) > worst)
        worst = x;
    return worst;
}

/* Prompt passes of 512 rows, of as many as nothing divides, and of more. */
static void prompts_keep_all_threads_busy(void **state) {
    static const int rows[] = {512, 500, 1024, 2048};
    static const int widths[] = {4, 8}; /* of the sets of vectors, and of tiles */
    double worst = 0;
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        for (int w = 0; w < 2; w++) {
            for (int threads = 1; threads <= THREADS_MAX; threads++) {
                for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
                    struct crew c = {.threads = threads};
                    layer(&c, &shapes[i], rows[r], widths[w]);
                    const double over = c.waited / c.worked;
                    if (over > worst) worst = over;
                    if (over > 1.05)
                        fail_msg("%s, %d rows, items of %d panels, %d threads: %.3f",
                                 shapes[i].name, rows[r], widths[w], threads, over);
                }
            }
        }
    }
    print_message("layers of prompts: the slowest thread has at most %.3f of a fair share\n",
                  worst);
}

/* A pass of few rows has few large parts, and small ones behind them. */
static void short_prompts_too(void **state) {
    static const int rows[] = {96, 97, 128, 200, 256, 383};
    double worst = 0;
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        for (int threads = 1; threads <= THREADS_MAX; threads++) {
            for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
                struct crew c = {.threads = threads};
                layer(&c, &shapes[i], rows[r], 4);
                const double over = c.waited / c.worked;
                worst = over > worst ? over : worst;
                if (over > 1.05)
                    fail_msg("%s, %d rows, %d threads: %.3f", shapes[i].name, rows[r], threads,
                             over);
            }
        }
    }
    print_message("short prompts: at most %.3f\n", worst);
}

/* One row cannot be cut finer than panels. */
static void a_row_is_cut_to_panels(void **state) {
    static const int widest = 4;
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        for (int threads = 1; threads <= THREADS_MAX; threads++) {
            const struct shape *m = &shapes[i];
            const int widths[] = {m->hidden, m->intermediate, m->vocab};
            for (int j = 0; j < 3; j++) {
                struct crew c = {.threads = threads};
                const double over = products(&c, 1, &widths[j], 1, 64, 1, widest, false);
                const int n = panels_of(widths[j]);
                const double least = (double)((n + threads - 1) / threads) * threads / n;
                if (over > 1.05 && over > least + 1e-9)
                    fail_msg("%s, %d columns, %d threads: %.3f, %.3f can be", m->name, widths[j],
                             threads, over, least);
            }
        }
    }
}

/* And their packings lie apart, inside of what is there for them. */
static void parts_cover_all_once(const struct split *s, int rows) {
    int next = 0;
    size_t packed = 0;
    for (int i = 0; i < s->all_parts; i++) {
        const struct split_part p = split_part(s, rows, i);
        const size_t at = x_pack_bytes(p.at, 64);
        assert_true(p.row == next && p.n >= 1 && at >= packed && p.row % TILE_ROWS == 0);
        assert_true(split_part_of(s, p.row) == i && split_part_of(s, p.row + p.n - 1) == i);
        next += p.n;
        packed = at + x_pack_bytes(p.n, 64);
    }
    assert_int_equal(next, rows);
    assert_true(packed <= x_pack_bytes(rows + (s->small > 0 ? SPLIT_SPARE_ROWS : 0), 64));
}

static void items_cover_all_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= THREADS_MAX; threads += 7) {
        for (int rows = 1; rows <= 700; rows += 23) {
            for (int n = 1; n <= 400; n += 57) {
                for (int whole = 0; whole < 2; whole++) {
                    const int panels[] = {n, 3};
                    const struct split s = forward_split(rows, panels, 2, threads, 8, whole != 0);
                    assert_true(s.rows >= 1 && s.panels >= 1 && s.panels <= 8);
                    assert_true(s.all_parts == 1 || whole == 0);
                    assert_true(s.parts <= 1 || s.rows % SPLIT_ROWS == 0);
                    assert_true(s.small % TILE_ROWS == 0);
                    assert_true(s.parts <= SPLIT_PARTS_MAX &&
                                s.all_parts - s.parts <= SPLIT_SMALL_MAX);
                    if (threads == 1) assert_true(s.all_parts == 1 && s.panels == 8);
                    parts_cover_all_once(&s, rows);
                }
            }
        }
    }
}

/* ---- attention: the plan of real tiles */

/* Multiply-adds of an item: its rows by the positions of its chunks that any of them sees. */
static double attention_cost(const struct attention_plan *p, const struct attention_item *it) {
    const struct attention_tile *t = &p->tiles[it->tile];
    const int seen = t->position + it->row + it->n;
    if (it->cut < 0) return (double)it->n * seen;
    const int first = (p->cuts[it->cut].first + it->chunk) * ATTENTION_CHUNK;
    return (double)t->n * (seen - first < ATTENTION_CHUNK ? seen - first : ATTENTION_CHUNK);
}

/* One sequence's rows from `past` on, beside `others` that decode at a context of their own. */
static double attention(struct crew *c, const struct shape *m, int past, int rows, int others,
                        int context) {
    const double before = c->worked, each = 2.0 * m->heads / m->kv_heads * m->head_dim;
    const struct attention_shape s = {
        .n_heads = m->heads, .n_kv_heads = m->kv_heads, .head_dim = m->head_dim, .scale = 1};
    const int most = attention_rows(&s), tiles_max = rows + others;
    struct attention_plan p;
    attention_plan_init(&p, &s, c->threads, tiles_max, 32768);
    p.tiles = calloc((size_t)tiles_max, sizeof(*p.tiles));
    p.items = calloc(p.items_max, sizeof(*p.items));
    p.cuts = calloc((size_t)p.cuts_max + 1, sizeof(*p.cuts));
    for (int i = 0; i < others; i++)
        p.tiles[p.n_tiles++] = (struct attention_tile){.row = i, .n = 1, .position = context - 1};
    for (int r = 0; r < rows; r += most)
        p.tiles[p.n_tiles++] = (struct attention_tile){
            .row = others + r, .n = rows - r < most ? rows - r : most, .position = past + r};
    attention_plan_make(&p, 0);
    for (int i = 0; i < p.n_items; i++)
        for (int g = 0; g < attention_groups(&s); g++)
            take(c, each * attention_cost(&p, &p.items[i]));
    free(p.tiles);
    free(p.items);
    free(p.cuts);
    return region_over(c, before);
}

static void layers_keep_all_threads_busy(void **state) {
    double worst = 0, worst_attention = 0;
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        for (int threads = 1; threads <= THREADS_MAX; threads++) {
            for (int past = 0; past <= 3 * CHUNK; past += CHUNK) {
                struct crew c = {.threads = threads};
                const double alone = attention(&c, &shapes[i], past, CHUNK, 4, 300);
                layer(&c, &shapes[i], CHUNK + 4, 4);
                const double over = c.waited / c.worked;
                worst = over > worst ? over : worst;
                worst_attention = alone > worst_attention ? alone : worst_attention;
                if (over > 1.05 || alone > 1.05)
                    fail_msg("%s, %d threads, rows from %d: %.3f, attention %.3f", shapes[i].name,
                             threads, past, over, alone);
            }
        }
    }
    print_message("layers with attention: at most %.3f; attention alone %.3f\n", worst,
                  worst_attention);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_keep_all_threads_busy), cmocka_unit_test(short_prompts_too),
        cmocka_unit_test(a_row_is_cut_to_panels),        cmocka_unit_test(items_cover_all_once),
        cmocka_unit_test(layers_keep_all_threads_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
