/* expert_metrics: see expert_metrics.h. Series are made at the first reading, when the model is
 * known. */
#include "common/instance/expert_metrics.h"

#include <stdio.h>
#include <stdlib.h>

static const struct metric_def imbalance_def = {.name = "moe_expert_imbalance",
                                                .kind = METRIC_GAUGE,
                                                .labels = {"layer"},
                                                .help = "Rows of the layer's busiest expert over "
                                                        "the mean of all its experts."},
                               unused_def = {.name = "moe_experts_unused",
                                             .kind = METRIC_GAUGE,
                                             .labels = {"layer"},
                                             .help = "Experts that no row has gone to."},
                               rows_def = {.name = "moe_expert_rows_total",
                                           .labels = {"layer", "expert"},
                                           .help = "Rows that went to the expert."};

struct layer_series {
    int layer;
    struct metric *imbalance, *unused;
    struct metric **rows; /* [n_experts], or NULL */
};

struct expert_metrics {
    struct metric_family *imbalance, *unused, *rows;
    struct layer_series *layers; /* [n_layers]; NULL: not read yet, or no experts */
    int n_layers;
    struct metric **series; /* of all layers */
};

enum err expert_metrics_create(struct expert_metrics **out, struct metrics *reg) {
    struct expert_metrics *x = calloc(1, sizeof(*x));
    *out = x;
    if (x == NULL) return ERR_NO_MEMORY;
    x->imbalance = metrics_family(reg, &imbalance_def);
    x->unused = metrics_family(reg, &unused_def);
    x->rows = metrics_family(reg, &rows_def);
    return x->imbalance != NULL && x->unused != NULL && x->rows != NULL ? ERR_OK : ERR_NO_MEMORY;
}

void expert_metrics_destroy(struct expert_metrics **xp) {
    struct expert_metrics *x = *xp;
    if (x == NULL) return;
    *xp = NULL;
    free(x->layers);
    free(x->series);
    free(x);
}

static void make_layer(struct expert_metrics *x, int layer, int n_experts) {
    struct layer_series *s = &x->layers[x->n_layers++];
    char at[16], of[16];
    snprintf(at, sizeof(at), "%d", layer);
    s->layer = layer;
    s->imbalance = metric_of(x->imbalance, (const char *const[]){at, NULL});
    s->unused = metric_of(x->unused, (const char *const[]){at, NULL});
    if (x->series == NULL) return;
    s->rows = x->series + (size_t)(x->n_layers - 1) * (size_t)n_experts;
    for (int i = 0; i < n_experts; i++) {
        snprintf(of, sizeof(of), "%d", i);
        s->rows[i] = metric_of(x->rows, (const char *const[]){at, of, NULL});
    }
}

/* Without memory there are fewer series. */
static void make_series(struct expert_metrics *x, const struct engine *e) {
    const struct model_info *m = engine_model(e);
    int mixed = 0;
    for (int i = 0; i < m->n_layers; i++) mixed += engine_expert_rows(e, i) != NULL;
    if ((x->layers = calloc((size_t)mixed + 1, sizeof(*x->layers))) == NULL) return;
    if (mixed * m->n_experts <= METRIC_SERIES_MAX)
        x->series = calloc((size_t)mixed * (size_t)m->n_experts + 1, sizeof(struct metric *));
    for (int i = 0; i < m->n_layers; i++)
        if (engine_expert_rows(e, i) != NULL) make_layer(x, i, m->n_experts);
}

void expert_metrics_read(struct expert_metrics *x, const struct engine *e) {
    const int n = engine_model(e)->n_experts;
    if (n == 0) return;
    if (x->layers == NULL) make_series(x, e);
    for (int i = 0; i < x->n_layers; i++) {
        const struct layer_series *s = &x->layers[i];
        const atomic_uint_least64_t *rows = engine_expert_rows(e, s->layer);
        double sum = 0, most = 0;
        int unused = 0;
        for (int k = 0; k < n; k++) {
            const double v = (double)atomic_load_explicit(&rows[k], memory_order_relaxed);
            if (s->rows != NULL) metric_set(s->rows[k], v);
            unused += v == 0;
            most = v > most ? v : most;
            sum += v;
        }
        metric_set(s->imbalance, sum > 0 ? most * n / sum : 1);
        metric_set(s->unused, unused);
    }
}
