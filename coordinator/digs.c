/* digs: the formulas of 7.3 as they stand there, and a greedy fill. */
#include "coordinator/digs.h"

#include <math.h>
#include <string.h>
#include "proto/json.h"

enum { BATCH_MAX = 100000, FILE_BYTES_MAX = 1 << 20 };
static const double GIB = 1024.0 * 1024 * 1024, TIB = 1024.0 * 1024 * 1024 * 1024;

/* ---- one batch of n */

struct batch {
    double tokens, context; /* computed; read */
    double times;           /* the arithmetic is done for so many */
    double kv_values;       /* read from the cache */
    double exchanged;       /* tokens whose rows go between devices */
};

static struct batch prefill_of(const struct digs_load *l, double n) {
    return (struct batch){
        .tokens = l->input, .context = l->input, .times = n, .exchanged = n * l->input};
}

static struct batch decode_of(const struct digs_model *m, const struct digs_load *l, double n) {
    const double context = l->input + l->output;
    return (struct batch){.tokens = n,
                          .context = context,
                          .times = 1,
                          .kv_values =
                              2 * n * context * m->hidden * m->layers * m->kv_heads / m->heads,
                          .exchanged = n};
}

static double time_ms(const struct digs_model *m, const struct digs_machine *x,
                      const struct batch *b) {
    const double h = m->hidden, f = m->intermediate, layers = m->layers, k = m->kv_heads / m->heads;
    const double operations = 2 * layers *
                              (2 * h * h * b->tokens + 2 * h * h * b->tokens * k +
                               2 * h * b->tokens * b->context + 2 * h * f * b->tokens) *
                              b->times;
    const double bytes = m->value_bytes * (2 * h * h * layers + 2 * h * h * layers * k +
                                           2 * h * f * layers + b->kv_values);
    const double compute = operations / (x->tflops * x->tflops_eff * 1e12) * 1000;
    const double fetch = bytes / (x->mbw_tb * x->mbw_eff * TIB) * 1000;
    const double exchange =
        b->exchanged * 2 * m->value_bytes * h * layers / (x->bw_gb * x->bw_eff * GIB) * 1000 +
        4 * x->alpha_us * layers / 1000;
    return (compute > fetch ? compute : fetch) + exchange;
}

static double memory_gb(const struct digs_model *m, double n, double tokens) {
    const double h = m->hidden, layers = m->layers, k = m->kv_heads / m->heads;
    const double weights =
        m->value_bytes * layers * (2 * h * h + 2 * h * h * k + 3 * h * m->intermediate);
    return (weights + n * tokens * 2 * m->value_bytes * h * layers * k) / GIB;
}

/* ---- abilities */

struct side {
    const struct digs_model *m;
    const struct digs_machine *x;
    const struct digs_load *l;
    bool decodes;
};

static double side_ms(const struct side *s, double n) {
    const struct batch b = s->decodes ? decode_of(s->m, s->l, n) : prefill_of(s->l, n);
    return time_ms(s->m, s->x, &b);
}

static bool fits(const struct side *s, double n) {
    const double tokens = s->l->input + (s->decodes ? s->l->output : 0);
    return side_ms(s, n) <= (s->decodes ? s->l->decode_slo_ms : s->l->prefill_slo_ms) &&
           memory_gb(s->m, n, tokens) < s->x->memory_gb * s->x->eta_oom;
}

/* Both bounds only grow with n. 0: not even one. */
static double largest(const struct side *s) {
    double low = 0, high = BATCH_MAX;
    while (low < high) {
        const double n = floor((low + high + 1) / 2);
        if (fits(s, n))
            low = n;
        else
            high = n - 1;
    }
    return low;
}

void digs_by_formula(struct digs_abilities *out, const struct digs_model *m,
                     const struct digs_machine *x, const struct digs_load *l) {
    const struct side p = {m, x, l, false}, d = {m, x, l, true};
    const double n_p = largest(&p), n_d = largest(&d);
    const double kv =
        2 * m->layers * l->input * m->value_bytes * m->hidden * m->kv_heads / m->heads;
    const double move_ms = kv / (x->bw_rdma_gb * x->bw_eff / 8 * GIB) * 1000 +
                           2 * x->transfer_delay_s * 1000 * m->layers * l->input / 128;
    *out = (struct digs_abilities){
        .p = n_p > 0 ? n_p / side_ms(&p, n_p) * 1000 : 0,
        .d = n_d > 0 && l->output > 0 ? n_d / side_ms(&d, n_d) / l->output * 1000 : 0,
        .t = move_ms > 0 ? 1000 / move_ms : 0};
}

void digs_measured(struct digs_abilities *out, const struct perf_msg *perf,
                   const struct role_targets *t, const struct digs_load *l) {
    const double context = l->input + l->output / 2;
    const double prompt_s = perf_prompt_s(perf, l->input), batch = role_batch_for(perf, t, context),
                 step_s = perf_step_s(perf, batch, context);
    *out = (struct digs_abilities){0};
    if (!(prompt_s > 0 && step_s > 0 && l->output > 0)) return;
    out->p = 1 / prompt_s;
    out->d = batch / (step_s * l->output);
}

size_t digs_fill(const struct digs_abilities *a, size_t n) {
    /* what the link cannot take nobody has to compute */
    const double p_each = a->t > 0 && a->t < a->p ? a->t : a->p,
                 d_each = a->t > 0 && a->t < a->d ? a->t : a->d;
    size_t p = 0, d = 0;
    if (!(p_each > 0 && d_each > 0)) return n / 2 > 0 ? n / 2 : n;
    while (p + d < n) {
        if (p_each * (double)p <= d_each * (double)d)
            p++;
        else
            d++;
    }
    if (n >= 2 && p == n) p = n - 1;
    return p;
}

/* ---- files */

struct member {
    const char *name;
    double *to;
};

static enum err read_members(const char *path, const struct member *list, size_t n,
                             struct json_value **root, struct errbuf *eb) {
    enum err e = json_read_file(root, path, FILE_BYTES_MAX, NULL, eb);
    for (size_t i = 0; e == ERR_OK && i < n; i++)
        if (json_get_f64(*root, list[i].name, list[i].to) != JSON_OK ||
            !(*list[i].to > 0 && *list[i].to < 1e12))
            e = err_set(eb, ERR_BAD_CONFIG, "%s: %s must be a number above 0", path, list[i].name);
    return e;
}

enum err digs_files_read(struct digs_model *m, struct digs_machine *x, const char *model_path,
                         const char *machine_path, struct errbuf *eb) {
    const struct member of_model[] = {{"hidden_size", &m->hidden},
                                      {"intermediate_size", &m->intermediate},
                                      {"num_hidden_layers", &m->layers},
                                      {"num_attention_heads", &m->heads},
                                      {"num_key_value_heads", &m->kv_heads}};
    const struct member of_machine[] = {{"BW_GB", &x->bw_gb},
                                        {"BWeff", &x->bw_eff},
                                        {"BW_RDMA_Gb", &x->bw_rdma_gb},
                                        {"TFLOPS", &x->tflops},
                                        {"TFLOPSeff", &x->tflops_eff},
                                        {"MBW_TB", &x->mbw_tb},
                                        {"MBW_TBeff", &x->mbw_eff},
                                        {"alpha", &x->alpha_us},
                                        {"MEMCapacity", &x->memory_gb},
                                        {"eta_OOM", &x->eta_oom},
                                        {"staticTransferDelay", &x->transfer_delay_s}};
    struct json_value *root = NULL;
    const char *dtype = "";
    size_t n;
    m->value_bytes = 2;
    enum err e =
        read_members(model_path, of_model, sizeof(of_model) / sizeof(of_model[0]), &root, eb);
    if (e == ERR_OK && json_get_str(root, "torch_dtype", &dtype, &n) == JSON_OK &&
        strcmp(dtype, "float32") == 0)
        m->value_bytes = 4;
    json_put(root);
    root = NULL;
    if (e == ERR_OK)
        e = read_members(machine_path, of_machine, sizeof(of_machine) / sizeof(of_machine[0]),
                         &root, eb);
    json_put(root);
    return e;
}
