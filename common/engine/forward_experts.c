/* forward_experts: the feed-forward half of a layer with experts. The rows of a pass, whatever
 * their sequences, are sorted by expert, so that the panels of an expert are read once, and only
 * those of experts that have rows. What comes out for a row depends on that row alone: each product
 * does (kernels.h), and the outputs of a row's experts are added by share, the largest first. */
#include <math.h>
#include <string.h>
#include "common/engine/forward_pass.h"

/* 1 / (1 + exp(-v)), by the exponential of the kernels. */
static float sigmoid(const struct kernels *kn, float v) {
    float s[LANES] = {v, 0}, max;
    const float sum = kn->softmax(s, 2, &max);
    return s[0] / sum;
}

/* How good a group is: its two best, or its best alone. */
static float group_score(const struct experts_conf *c, const float *t, int n) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (t[i] > first) {
            second = first;
            first = t[i];
        } else if (t[i] > second) {
            second = t[i];
        }
    }
    return n > 1 && !c->group_best ? first + second : first;
}

/* Leaves those of the best groups, of equals the first. */
static void keep_groups(const struct experts_conf *c, float *t) {
    const int per = c->n / c->groups;
    bool kept[MODEL_EXPERTS_MAX] = {false};
    float scores[MODEL_EXPERTS_MAX];
    for (int g = 0; g < c->groups; g++) scores[g] = group_score(c, t + g * per, per);
    for (int i = 0; i < c->groups_used; i++) {
        int best = -1;
        for (int g = 0; g < c->groups; g++)
            if (!kept[g] && (best < 0 || scores[g] > scores[best])) best = g;
        if (best >= 0) kept[best] = true;
    }
    for (int e = 0; e < c->n; e++)
        if (!kept[e / per]) t[e] = -INFINITY;
}

/* The chosen of row r: the largest scores, of equals the first. Scores that are no numbers choose
 * someone too. s: scratch, [2][lanes_up(n)]. */
static void choose(const struct forward *f, const float *bias, int r, float *s) {
    const struct expert_rows *x = &f->experts;
    const struct experts_conf *c = &f->conf.experts;
    const size_t at = (size_t)r * (size_t)c->used;
    float max, sum = 1, of_chosen = 0, *t = s;
    memcpy(s, x->scores + (size_t)r * (size_t)c->n, (size_t)c->n * sizeof(*s));
    if (!c->sigmoid) sum = f->kn.softmax(s, c->n, &max);
    for (int e = 0; c->sigmoid && e < c->n; e++) s[e] = sigmoid(&f->kn, s[e]);
    if (c->on_input) { /* sigmoids of large scores are all 1 */
        t = s + lanes_up(c->n);
        memcpy(t, x->scores + (size_t)r * (size_t)c->n, (size_t)c->n * sizeof(*t));
    }
    if (bias != NULL || c->groups > 0) {
        t = s + lanes_up(c->n);
        for (int e = 0; e < c->n; e++) t[e] = s[e] + (bias != NULL ? bias[e] : 0);
    }
    if (c->groups > 0) keep_groups(c, t);
    for (int i = 0; i < c->used; i++) {
        int best = -1;
        for (int e = 0; e < c->n; e++) {
            bool taken = false;
            for (int j = 0; best < 0 && j < i; j++) taken = taken || x->chosen[at + (size_t)j] == e;
            if (!taken && (best < 0 || t[e] > t[best])) best = e;
        }
        x->chosen[at + (size_t)i] = best;
        x->shares[at + (size_t)i] = s[best];
        of_chosen += s[best];
        t[best] = -INFINITY;
    }
    for (int i = 0; i < c->used; i++)
        x->shares[at + (size_t)i] =
            x->shares[at + (size_t)i] / (c->normalise ? of_chosen + 1e-20f : sum) * c->scale;
}

static void choose_item(void *arg, int tile, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const int first = tile * TILE_ROWS,
              end = first + TILE_ROWS < p->n_rows ? first + TILE_ROWS : p->n_rows;
    float *s = f->experts.scratch + (size_t)thread * 2 * (size_t)lanes_up(f->conf.experts.n);
    for (int r = first; r < end; r++) choose(f, p->lw->choice_bias, r, s);
}

/* Sorts the pairs by expert: counting sort, so that the rows of an expert stay in order. */
static void sort_pairs(struct forward *f, int n_rows, int layer) {
    struct expert_rows *x = &f->experts;
    const int n = f->conf.experts.n, used = f->conf.experts.used;
    size_t at = 0;
    memset(x->first, 0, ((size_t)n + 1) * sizeof(*x->first));
    for (int i = 0; i < n_rows * used; i++) x->first[x->chosen[i] + 1]++;
    x->n_active = 0;
    for (int e = 0; e < n; e++) {
        const int rows = x->first[e + 1];
        x->first[e + 1] += x->first[e];
        if (rows == 0) continue;
        atomic_fetch_add_explicit(&x->counts[(size_t)layer * (size_t)n + (size_t)e], (uint64_t)rows,
                                  memory_order_relaxed);
        x->at[x->n_active] = at;
        x->active[x->n_active++] = e;
        const int hidden = f->conf.hidden, inter = f->conf.experts.intermediate;
        at += x_pack_bytes(rows, hidden > inter ? hidden : inter);
    }
    for (int i = 0; i < n_rows * used; i++) {
        const int place = x->first[x->chosen[i]]++;
        x->place[i] = place;
        x->row[place] = i / used;
        if (x->inputs != NULL) x->inputs[place] = x->shares[i];
    }
    memmove(x->first + 1, x->first, (size_t)n * sizeof(*x->first));
    x->first[0] = 0;
}

static bool packed_apart(const struct expert_weights *w) {
    return x_dtype(w->up.dtype) != x_dtype(w->gate.dtype);
}

/* The rows of one expert, from the packings of the pass's rows: a row is packed once, however many
 * experts it goes to. */
static void gather_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const struct expert_rows *x = &f->experts;
    const int e = x->active[item], first = x->first[e], n = x->first[e + 1] - first;
    const struct expert_weights *w = &p->lw->experts[e];
    (void)thread;
    f->kn.x_gather(x->packed + x->at[item], pass_packed_for(p, &w->gate), p->n_rows, x->row + first,
                   n, f->conf.hidden, w->gate.dtype);
    if (packed_apart(w))
        f->kn.x_gather(x->packed + x->packed_bytes + x->at[item], pass_packed_for(p, &w->up),
                       p->n_rows, x->row + first, n, f->conf.hidden, w->up.dtype);
}

static void repack_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const struct expert_rows *x = &f->experts;
    const int e = x->active[item], first = x->first[e], n = x->first[e + 1] - first;
    const size_t k = (size_t)f->conf.experts.intermediate;
    (void)thread;
    f->kn.x_pack(x->packed + x->at[item], x->gate + (size_t)first * k, k, 0, n, (int)k,
                 p->lw->experts[e].down.dtype);
}

/* Work items of the products of one expert with a matrix of n rows. */
static int items_of(const struct forward *f, int n) {
    const int columns = forward_item_panels(f, n) * PANEL_ROWS;
    return (n + columns - 1) / columns;
}

/* Some columns of the product of an expert's rows, as they are packed, with w. */
static void multiply(const struct forward *f, const struct matrix *w, const float *bias,
                     const uint8_t *packed, int active, int first, int n, float *y, size_t stride) {
    const struct expert_rows *x = &f->experts;
    const int e = x->active[active];
    const uint8_t *panels = w->panels + (size_t)(first / PANEL_ROWS) * panel_bytes(w->k, w->dtype);
    const int rows = x->first[e + 1] - x->first[e];
    f->kn.gemm(y, stride, packed, panels, rows, w->k, n, w->dtype);
    for (int r = 0; bias != NULL && r < rows; r++)
        f->kn.add(y + (size_t)r * stride, bias + first, n);
}

/* What a pair's input is multiplied with, its products with two matrices are. */
static void scale_inputs(const struct forward *f, int pair, float *gate, float *up, int n) {
    if (f->experts.inputs == NULL) return;
    f->kn.scale(gate, gate, f->experts.inputs[pair], n);
    f->kn.scale(up, up, f->experts.inputs[pair], n);
}

static void gate_up_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const struct expert_rows *x = &f->experts;
    const int width = f->conf.experts.intermediate, items = items_of(f, width);
    const int columns = forward_item_panels(f, width) * PANEL_ROWS, active = item / items;
    const int first = item % items * columns, e = x->active[active];
    const int n = width - first < columns ? width - first : columns;
    float *gate = x->gate + (size_t)x->first[e] * (size_t)width + first,
          *up = f->item_scratch + (size_t)thread * f->item_stride;
    const struct expert_weights *w = &p->lw->experts[e];
    const uint8_t *for_gate = x->packed + x->at[active],
                  *for_up = for_gate + (packed_apart(w) ? x->packed_bytes : 0);
    if (p->n_rows == 1) { /* which is every chosen expert's */
        for_gate = pass_packed_for(p, &w->gate);
        for_up = pass_packed_for(p, &w->up);
    }
    multiply(f, &w->gate, w->gate_bias, for_gate, active, first, n, gate, (size_t)width);
    multiply(f, &w->up, w->up_bias, for_up, active, first, n, up, (size_t)n);
    for (int r = 0; r < x->first[e + 1] - x->first[e]; r++) {
        scale_inputs(f, x->first[e] + r, gate + (size_t)r * (size_t)width,
                     up + (size_t)r * (size_t)n, n);
        forward_activate(f, gate + (size_t)r * (size_t)width, up + (size_t)r * (size_t)n, n);
    }
}

static void down_item(void *arg, int item, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const struct expert_rows *x = &f->experts;
    const int width = f->conf.hidden, items = items_of(f, width), active = item / items;
    const int columns = forward_item_panels(f, width) * PANEL_ROWS, first = item % items * columns;
    const int n = width - first < columns ? width - first : columns, e = x->active[active];
    const struct expert_weights *w = &p->lw->experts[e];
    (void)thread;
    multiply(f, &w->down, w->down_bias, x->packed + x->at[active], active, first, n,
             x->rows + (size_t)x->first[e] * (size_t)width + first, (size_t)width);
}

/* Row r of the branch, in the place of its first pair. */
static float *add_up(const struct forward *f, int r) {
    const struct expert_rows *x = &f->experts;
    const int hidden = f->conf.hidden, used = f->conf.experts.used;
    const size_t at = (size_t)r * (size_t)used;
    float *sum = x->rows + (size_t)x->place[at] * (size_t)hidden;
    if (x->inputs == NULL) f->kn.scale(sum, sum, x->shares[at], hidden);
    for (int i = 1; i < used; i++) {
        float *y = x->rows + (size_t)x->place[at + (size_t)i] * (size_t)hidden;
        if (x->inputs == NULL) f->kn.scale(y, y, x->shares[at + (size_t)i], hidden);
        f->kn.add(sum, y, hidden);
    }
    if (f->conf.experts.shared == 0) return sum;
    float *shared = x->shared + (size_t)r * (size_t)hidden;
    if (f->conf.experts.shared_gate)
        f->kn.scale(shared, shared, sigmoid(&f->kn, x->open[r]), hidden);
    f->kn.add(sum, shared, hidden);
    return sum;
}

static void add_item(void *arg, int tile, int thread) {
    const struct pass *p = arg;
    const struct forward *f = p->f;
    const int hidden = f->conf.hidden, first = tile * TILE_ROWS,
              end = first + TILE_ROWS < p->n_rows ? first + TILE_ROWS : p->n_rows;
    (void)thread;
    for (int r = first; r < end; r++) {
        float *y = add_up(f, r);
        if (f->conf.residual_scale != 1) f->kn.scale(y, y, f->conf.residual_scale, hidden);
        f->kn.add(f->x + (size_t)r * (size_t)hidden, y, hidden);
    }
}

/* Into x->shared, a dense feed-forward half of the rows that are packed. */
static void shared_expert(struct pass *p) {
    struct forward *f = p->f;
    const struct layer_weights *l = p->lw;
    pass_product(p, LORA_MODULES, &l->gate, f->gate, NULL, NULL);
    pass_product(p, LORA_MODULES, &l->up, NULL, NULL, NULL);
    pass_gate_up(p);
    pass_pack(p, f->gate, p->n_rows, (struct inputs){{&l->down}}, NULL, NULL);
    pass_product(p, LORA_MODULES, &l->down, f->experts.shared, NULL, NULL);
    pass_products_go(p);
}

void forward_experts(struct pass *p) {
    struct forward *f = p->f;
    const struct layer_weights *l = p->lw;
    struct expert_rows *x = &f->experts;
    pass_pack_half(p, f->mlp[p->layer], 1);
    pass_product(p, LORA_MODULES, &l->router, x->scores, l->router_bias, NULL);
    if (l->shared_gate.panels != NULL)
        pass_product(p, LORA_MODULES, &l->shared_gate, x->open, NULL, NULL);
    pass_products_go(p);
    pool_run(f->pool, choose_item, p, pass_row_tiles(p->n_rows));
    sort_pairs(f, p->n_rows, p->layer);
    if (p->n_rows > 1) pool_run(f->pool, gather_item, p, x->n_active);
    pool_run(f->pool, gate_up_item, p, x->n_active * items_of(f, f->conf.experts.intermediate));
    pool_run(f->pool, repack_item, p, x->n_active);
    pool_run(f->pool, down_item, p, x->n_active * items_of(f, f->conf.hidden));
    if (f->conf.experts.shared > 0) shared_expert(p); /* last: it packs other rows */
    pool_run(f->pool, add_item, p, pass_row_tiles(p->n_rows));
}
