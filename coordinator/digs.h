/* digs: the reference's daily decision of roles (cluster-api 7.3, 7.4): how many requests a second
 * a prefill instance, a decode instance and the link between them can do, and the counts of each
 * that fit. Abilities come from what instances have measured, or from the reference's formulas over
 * a model file and a machine file (11.4). Pure, but for digs_files_read(). */
#ifndef BATON_COORDINATOR_DIGS_H
#define BATON_COORDINATOR_DIGS_H

#include "coordinator/role_needs.h"
#include "proto/err.h"

/* Of the model file: hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
 * num_key_value_heads; bytes of a value by torch_dtype (2: float16, bfloat16; 4: float32). */
struct digs_model {
    double hidden, intermediate, layers, heads, kv_heads, value_bytes;
};
/* Of the machine file, in its units. */
struct digs_machine {
    double bw_gb, bw_eff, bw_rdma_gb, tflops, tflops_eff, mbw_tb, mbw_eff, alpha_us, memory_gb,
        eta_oom, transfer_delay_s;
};
/* What a mean request is, and how long it may take. */
struct digs_load {
    double input, output; /* tokens */
    double prefill_slo_ms, decode_slo_ms;
};
/* Requests a second; 0: it can do none, or nobody knows. */
struct digs_abilities {
    double p, d, t;
};

/* By the formulas, for one instance without parallelism (tp = pp = 1). The time of a batch is that
 * of its arithmetic or of fetching what it reads, whichever is longer, and of the exchange. */
void digs_by_formula(struct digs_abilities *out, const struct digs_model *m,
                     const struct digs_machine *x, const struct digs_load *l);
/* By what instances have measured. t: 0. */
void digs_measured(struct digs_abilities *out, const struct perf_msg *perf,
                   const struct role_targets *t, const struct digs_load *l);

/* Of n instances so many prefill: one after the other where less can be done. At least one of each
 * where n is 2 or more; half where an ability is 0. */
size_t digs_fill(const struct digs_abilities *a, size_t n);

/* ERR_NOT_FOUND: no such file. ERR_BAD_CONFIG, ERR_BAD_JSON: eb names file and member. */
enum err digs_files_read(struct digs_model *m, struct digs_machine *x, const char *model_path,
                         const char *machine_path, struct errbuf *eb);

#endif
