/* inst_metrics: gauges are read where they live: at each scrape, and rates each second. */
#include "common/instance/inst_metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/build.h"
#include "common/base/clock.h"
#include "common/instance/expert_metrics.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"

enum {
    SAMPLE_MS = 1000,
    SAMPLES = 6,
    WINDOW_DEFAULT = 1000,
    WINDOW_MAX = 1000000,
    LORA_LABEL_BYTES_MAX = 512, /* names of adapters in one label; others are left out */
};

enum gauge {
    RUNNING,
    WAITING,
    SWAPPED,
    PROMPT_RATE,
    GENERATION_RATE,
    FAILED_PART,
    CACHE_USAGE,
    CPU_CACHE_USAGE,
    HIT_RATE,
    ALL_MATCH,
    HIT_MATCH,
    BLOCKS_TOTAL,
    QUERIES,
    HITS,
    DRAFTS,
    DRAFT_TOKENS,
    DRAFT_ACCEPTED,
    SHARED_STEPS,
    SHARED_ROWS,
    SHARED_ROWS_MAX,
    DECODE_STEP,
    PROMPT_ROW,
    N_GAUGES
};

static const struct {
    struct metric_def def;
    const char *other[2]; /* vLLM's names for it */
} gauges[N_GAUGES] = {
    [RUNNING] = {{.name = "num_requests_running",
                  .help = "Requests in work.",
                  .kind = METRIC_GAUGE},
                 {"vllm:num_requests_running"}},
    [WAITING] = {{.name = "num_requests_waiting",
                  .help = "Requests not yet in work.",
                  .kind = METRIC_GAUGE},
                 {"vllm:num_requests_waiting"}},
    [SWAPPED] = {{.name = "num_requests_swapped",
                  .help = "Requests whose KV is swapped out; nothing is swapped.",
                  .kind = METRIC_GAUGE},
                 {"vllm:num_requests_swapped"}},
    [PROMPT_RATE] = {{.name = "avg_prompt_throughput_toks_per_s",
                      .help = "Prompt tokens a second, over the last five seconds.",
                      .kind = METRIC_GAUGE},
                     {"vllm:avg_prompt_throughput_toks_per_s"}},
    [GENERATION_RATE] = {{.name = "avg_generation_throughput_toks_per_s",
                          .help = "Generated tokens a second, over the last five seconds.",
                          .kind = METRIC_GAUGE},
                         {"vllm:avg_generation_throughput_toks_per_s"}},
    [FAILED_PART] = {{.name = "failed_request_perc",
                      .help = "Failed of received requests, 0 to 1.",
                      .kind = METRIC_GAUGE},
                     {NULL}},
    [CACHE_USAGE] = {{.name = "npu_cache_usage_perc",
                      .help = "Part of the KV blocks in use, 0 to 1.",
                      .kind = METRIC_GAUGE},
                     {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}},
    [CPU_CACHE_USAGE] = {{.name = "cpu_cache_usage_perc",
                          .help = "Part of the swap blocks in use; there are none.",
                          .kind = METRIC_GAUGE},
                         {"vllm:cpu_cache_usage_perc"}},
    [HIT_RATE] = {{.name = "npu_prefix_cache_hit_rate",
                   .help = "Part of the looked-up prompt blocks that the prefix cache had, 0 to 1.",
                   .kind = METRIC_GAUGE},
                  {NULL}},
    [ALL_MATCH] = {{.name = "all_radix_match_num",
                    .help = "Prompt blocks looked up in the prefix cache.",
                    .kind = METRIC_GAUGE},
                   {NULL}},
    [HIT_MATCH] = {{.name = "npu_radix_match_hit_num",
                    .help = "Prompt blocks found in the prefix cache.",
                    .kind = METRIC_GAUGE},
                   {NULL}},
    [BLOCKS_TOTAL] = {{.name = "npu_cache_blocks",
                       .help = "KV blocks of the pool.",
                       .kind = METRIC_GAUGE},
                      {NULL}},
    [QUERIES] = {{.name = "prefix_cache_queries_total",
                  .help = "Prompt tokens looked up in the prefix cache."},
                 {"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"}},
    [HITS] = {{.name = "prefix_cache_hits_total",
               .help = "Prompt tokens found in the prefix cache."},
              {"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"}},
    [DRAFTS] = {{.name = "spec_decode_num_drafts_total",
                 .help = "Times a sequence brought guesses of its next tokens to a step."},
                {"vllm:spec_decode_num_drafts_total"}},
    [DRAFT_TOKENS] = {{.name = "spec_decode_num_draft_tokens_total",
                       .help = "Tokens guessed by prompt lookup."},
                      {"vllm:spec_decode_num_draft_tokens_total"}},
    [DRAFT_ACCEPTED] = {{.name = "spec_decode_num_accepted_tokens_total",
                         .help = "Guessed tokens that were right."},
                        {"vllm:spec_decode_num_accepted_tokens_total"}},
    [SHARED_STEPS] = {{.name = "shared_steps_total",
                       .help = "Steps of the engine in which sequences decoded and prompts were "
                               "computed."},
                      {NULL}},
    [SHARED_ROWS] = {{.name = "shared_steps_prompt_tokens_total",
                      .help = "Prompt tokens computed in these steps."},
                     {NULL}},
    [SHARED_ROWS_MAX] = {{.name = "shared_step_prompt_tokens_max",
                          .help = "Most prompt tokens of one of them.",
                          .kind = METRIC_GAUGE},
                         {NULL}},
    [DECODE_STEP] = {{.name = "decode_step_seconds",
                      .help = "What a step that only decodes takes at the present batch size, "
                              "measured; 0: unknown.",
                      .kind = METRIC_GAUGE},
                     {NULL}},
    [PROMPT_ROW] = {{.name = "prompt_token_seconds",
                     .help = "What a prompt token adds to such a step at the latest prompts' "
                             "positions, measured; 0: unknown.",
                     .kind = METRIC_GAUGE},
                    {NULL}},
};

static const struct metric_def
    adapters_def = {.name = "lora_adapters",
                    .kind = METRIC_GAUGE,
                    .help = "LoRA adapters that requests may name."},
    lora_def = {.name = "vllm:lora_requests_info",
                .kind = METRIC_GAUGE,
                .labels = {"max_lora", "running_lora_adapters", "waiting_lora_adapters"},
                .help = "When these LoRA adapters were in use last; those of waiting requests "
                        "are among the running ones."},
    cache_def = {.name = "vllm:cache_config_info",
                 .kind = METRIC_GAUGE,
                 .labels = {"block_size", "num_gpu_blocks"},
                 .help = "The KV cache, in labels."},
    vectors_def = {.name = "num_vector_requests_running",
                   .kind = METRIC_GAUGE,
                   .help = "Requests for vectors or scores, until they are answered."},
    leases_def = {.name = "pd_kv_leases_held",
                  .kind = METRIC_GAUGE,
                  .help = "Requests whose KV is held for a peer."},
    expired_def = {.name = "pd_kv_lease_expired_total",
                   .help = "Requests given up because their peer let the lease run out."},
    pulls_def = {.name = "pd_kv_repairs_total",
                 .help = "Blocks asked for again after a lost or damaged frame."},
    corrupt_def = {.name = "pd_kv_corrupt_frames_total",
                   .help = "Frames of a KV link whose length or checksum was wrong."},
    link_def = {.name = "pd_link_up",
                .kind = METRIC_GAUGE,
                .labels = {"peer"},
                .help = "1: the KV link to this peer is up."},
    rtt_def = {.name = "pd_link_rtt_seconds",
               .kind = METRIC_GAUGE,
               .labels = {"peer"},
               .help = "Round trip of the KV link to this peer, measured while nothing goes over "
                       "it; no series before that."},
    rate_def = {.name = "pd_link_bytes_per_second",
                .kind = METRIC_GAUGE,
                .labels = {"peer"},
                .help = "Bandwidth of the KV link to this peer: the best of the last hand-overs, "
                        "or of some filler while there were none."},
    role_def = {.name = "pd_role",
                .kind = METRIC_GAUGE,
                .labels = {"role"},
                .help = "1 for the role the instance has."};

static const double rows_buckets[] = {1,   8,    16,   32,   64,   128,  256,
                                      512, 1024, 2048, 4096, 8192, 16384};

static const struct metric_def steps_def = {
    .name = "vllm:iteration_tokens_total",
    .kind = METRIC_HISTOGRAM,
    .buckets = rows_buckets,
    .n_buckets = sizeof(rows_buckets) / sizeof(rows_buckets[0]),
    .help = "Tokens of a step of the engine: of prompts, and those made.",
};

/* Tokens ever, at one moment. */
struct sample {
    uint64_t at_us;
    double prompt, generated;
};

struct inst_metrics {
    struct instance *in;
    struct metrics *reg;
    struct budget_metrics *limits;
    struct build_metrics *build;
    struct expert_metrics *experts;
    struct req_meters *requests;
    struct metric *gauges[N_GAUGES];
    struct metric *roles[ROLE_MIXED + 1];
    struct metric *adapters;
    struct metric_family *lora, *cache;
    struct metric *vectors;
    struct metric *leases, *expired, *pulls, *corrupt; /* NULL in standard mode */
    struct metric_family *links, *link_rtt, *link_rate;
    struct metric *step_tokens;
    struct sample samples[SAMPLES];
    size_t n_samples; /* ever taken */
    struct loop_timer *timer;
    bool enabled;
};

/* ---- gauges */

static void take_sample(void *arg) {
    struct inst_metrics *im = arg;
    struct sample *s = &im->samples[im->n_samples % SAMPLES];
    s->at_us = clock_us();
    req_meters_tokens(im->requests, &s->prompt, &s->generated);
    im->n_samples++;
    const struct sample *old = &im->samples[im->n_samples < SAMPLES ? 0 : im->n_samples % SAMPLES];
    double seconds = (double)(s->at_us - old->at_us) / 1e6;
    if (seconds <= 0) return;
    metric_set(im->gauges[PROMPT_RATE], (s->prompt - old->prompt) / seconds);
    metric_set(im->gauges[GENERATION_RATE], (s->generated - old->generated) / seconds);
}

static void read_engine(struct inst_metrics *im) {
    const struct engine *e = worker_engine(im->in->worker);
    struct engine_stats st;
    engine_stats(e, &st);
    double looked_up = (double)st.prefix_lookup_blocks, hit = (double)st.prefix_hit_blocks,
           tokens = engine_block_tokens(e);
    metric_set(im->gauges[CACHE_USAGE],
               st.blocks_total > 0 ? 1 - (double)st.blocks_free / st.blocks_total : 0);
    metric_set(im->gauges[BLOCKS_TOTAL], st.blocks_total);
    metric_set(im->gauges[ALL_MATCH], looked_up);
    metric_set(im->gauges[HIT_MATCH], hit);
    metric_set(im->gauges[HIT_RATE], looked_up > 0 ? hit / looked_up : 0);
    metric_set(im->gauges[QUERIES], looked_up * tokens);
    metric_set(im->gauges[HITS], hit * tokens);
    metric_set(im->gauges[DRAFTS], (double)st.drafts);
    metric_set(im->gauges[DRAFT_TOKENS], (double)st.draft_tokens);
    metric_set(im->gauges[DRAFT_ACCEPTED], (double)st.draft_accepted);
    metric_set(im->gauges[SHARED_STEPS], (double)st.shared_steps);
    metric_set(im->gauges[SHARED_ROWS], (double)st.shared_prompt_rows);
    metric_set(im->gauges[SHARED_ROWS_MAX], (double)st.shared_prompt_rows_max);
    metric_set(im->gauges[DECODE_STEP], st.decode_step_us * 1e-6);
    metric_set(im->gauges[PROMPT_ROW], st.prompt_row_us * 1e-6);
    expert_metrics_read(im->experts, e);
}

static void read_loras(struct inst_metrics *im) {
    struct lora_info l;
    struct buf names = BUF_INIT;
    char max[16];
    int n = 0;
    for (int i = 0; lora_set_at(im->in->loras, i, &l); i++) {
        n += l.state == LORA_SERVED;
        if (l.in_use && names.len + strlen(l.name) < LORA_LABEL_BYTES_MAX)
            buf_printf(&names, "%s%s", names.len > 0 ? "," : "", l.name);
    }
    metric_set(im->adapters, n);
    snprintf(max, sizeof(max), "%d", (int)im->in->conf.max_loras);
    metric_clear(im->lora);
    metric_set(
        metric_of(im->lora, (const char *const[]){max, names.len > 0 ? names.data : "", "", NULL}),
        (double)clock_unix_s());
    buf_free(&names);
}

static void read_cache(struct inst_metrics *im) {
    const struct engine *e = worker_engine(im->in->worker);
    struct engine_stats st;
    char block[16], blocks[16];
    engine_stats(e, &st);
    snprintf(block, sizeof(block), "%d", engine_block_tokens(e));
    snprintf(blocks, sizeof(blocks), "%d", (int)st.blocks_total);
    metric_set(metric_of(im->cache, (const char *const[]){block, blocks, NULL}), 1);
}

static void read_links(struct inst_metrics *im) {
    struct kv_plane_stats st;
    struct link_status *links = NULL;
    kv_plane_stats(im->in->kv_plane, &st);
    metric_set(im->expired, (double)st.n_leases_expired);
    metric_set(im->pulls, (double)st.n_pulls);
    metric_set(im->corrupt, (double)st.n_corrupt);
    struct metric_family *const of_peers[] = {im->links, im->link_rtt, im->link_rate};
    for (int i = 0; i < 3; i++)
        metric_clear(of_peers[i]); /* a peer that is not wanted any more has no series */
    size_t n = kv_plane_links(im->in->kv_plane, &links);
    for (size_t i = 0; i < n; i++) {
        const struct link_status *l = &links[i];
        const uint64_t rate = l->bytes_per_s > 0 ? l->bytes_per_s : l->idle_bytes_per_s;
        char id[16];
        const char *const peer[] = {id, NULL};
        snprintf(id, sizeof(id), "%u", l->target);
        metric_set(metric_of(im->links, peer), l->ok ? 1 : 0);
        if (l->rtt_us > 0) metric_set(metric_of(im->link_rtt, peer), (double)l->rtt_us * 1e-6);
        if (l->ok && rate > 0) metric_set(metric_of(im->link_rate, peer), (double)rate);
    }
    free(links);
}

static void read_role(struct inst_metrics *im, struct role_load *load) {
    enum inst_role role = role_ctl_role(im->in->role_ctl);
    req_set_load(im->in->reqs, ROLE_NONE, load);
    metric_set(im->gauges[RUNNING], load->running);
    metric_set(im->gauges[WAITING], load->waiting);
    metric_set(im->gauges[FAILED_PART], req_meters_failed_part(im->requests));
    metric_set(im->vectors, im->in->n_vector_jobs);
    if (im->leases != NULL) metric_set(im->leases, load->leases);
    for (int r = ROLE_NONE; r <= ROLE_MIXED; r++) metric_set(im->roles[r], (int)role == r ? 1 : 0);
}

/* ---- answers */

static void on_metrics(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct inst_metrics *im = in->metrics;
    struct role_load load;
    struct buf b = BUF_INIT;
    (void)p;
    if (!im->enabled) {
        inst_reply_wrapped(x, 500, "Environment variable MIES_SERVICE_MONITOR_MODE is not set.");
        return;
    }
    read_role(im, &load);
    if (in->loaded) {
        read_engine(im);
        read_cache(im);
        read_loras(im);
        if (in->kv_plane != NULL) read_links(im);
    }
    budget_metrics_read(im->limits);
    build_metrics_read(im->build);
    cred_watch_metrics_read(in->creds);
    metrics_write(im->reg, &b);
    if (b.failed) {
        inst_reply_wrapped(x, 500, err_text(ERR_NO_MEMORY));
    } else {
        http_x_reply(x, 200, "text/plain; charset=utf-8", b.data, b.len);
    }
    buf_free(&b);
}

static void put_json(struct buf *b, const struct instance *in, const char *name, double value) {
    const struct inst_conf *c = &in->conf;
    if (b->data[b->len - 1] != '[') buf_putc(b, ',');
    buf_printf(b,
               "{\"metric\":[{\"__name__\":\"%s\",\"job\":\"node\",\"instance\":\"%s:%lld\"}],"
               "\"value\":\"%.10g\"}",
               name, c->management_ip, (long long)c->management_port, value);
}

static void on_metrics_json(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct engine_stats st;
    struct role_load load;
    struct buf b = BUF_INIT;
    (void)p;
    if (inst_guard(in, x)) return;
    engine_stats(worker_engine(in->worker), &st);
    req_set_load(in->reqs, ROLE_NONE, &load);
    buf_puts(&b, "{\"resultType\":\"vector\",\"result\":[");
    if (!b.failed) {
        put_json(&b, in, "TTFT", req_meters_ttft_ms(in->metrics->requests));
        put_json(&b, in, "TBT", req_meters_tbt_ms(in->metrics->requests));
        put_json(&b, in, "waitingInferRequestNum", load.waiting);
        put_json(&b, in, "processingInferRequestNum", load.running);
        put_json(&b, in, "remainBlocks", st.blocks_free);
    }
    buf_puts(&b, "]}");
    if (b.failed) {
        http_x_reply(x, 500, NULL, "", 0);
    } else {
        http_x_reply(x, 200, "application/json", b.data, b.len);
    }
    buf_free(&b);
}

const struct route inst_metrics_routes[] = {
    {PLANE_METRICS, "GET", "/metrics", on_metrics, 0},
    {PLANE_MGMT, "GET", "/metrics-json", on_metrics_json, 0},
    {0, NULL, NULL, NULL, 0},
};

/* ---- life */

static size_t window_size(void) {
    const char *word = getenv("DYNAMIC_AVERAGE_WINDOW_SIZE");
    unsigned long n =
        word != NULL && word[0] >= '0' && word[0] <= '9' ? strtoul(word, NULL, 10) : 0;
    return n >= 1 && n <= WINDOW_MAX ? n : WINDOW_DEFAULT;
}

static enum err create_gauges(struct inst_metrics *im) {
    for (int i = 0; i < N_GAUGES; i++) {
        struct metric_family *f = metrics_family(im->reg, &gauges[i].def);
        if ((im->gauges[i] = metric_of(f, NULL)) == NULL) return ERR_NO_MEMORY;
        for (int k = 0; k < 2 && gauges[i].other[k] != NULL; k++)
            if (metrics_alias(im->reg, f, gauges[i].other[k], gauges[i].def.help) != ERR_OK)
                return ERR_NO_MEMORY;
    }
    struct metric_family *f = metrics_family(im->reg, &role_def);
    for (int r = ROLE_NONE; r <= ROLE_MIXED; r++) {
        const char *const name[] = {inst_role_name((enum inst_role)r), NULL};
        if ((im->roles[r] = metric_of(f, name)) == NULL) return ERR_NO_MEMORY;
    }
    im->adapters = metric_of(metrics_family(im->reg, &adapters_def), NULL);
    im->lora = metrics_family(im->reg, &lora_def);
    im->cache = metrics_family(im->reg, &cache_def);
    im->vectors = metric_of(metrics_family(im->reg, &vectors_def), NULL);
    if (im->adapters == NULL || im->lora == NULL || im->cache == NULL || im->vectors == NULL)
        return ERR_NO_MEMORY;
    if (strcmp(im->in->conf.infer_mode, "dmi") != 0) return ERR_OK;
    im->leases = metric_of(metrics_family(im->reg, &leases_def), NULL);
    im->expired = metric_of(metrics_family(im->reg, &expired_def), NULL);
    im->pulls = metric_of(metrics_family(im->reg, &pulls_def), NULL);
    im->corrupt = metric_of(metrics_family(im->reg, &corrupt_def), NULL);
    im->links = metrics_family(im->reg, &link_def);
    im->link_rtt = metrics_family(im->reg, &rtt_def);
    im->link_rate = metrics_family(im->reg, &rate_def);
    return im->corrupt != NULL && im->links != NULL && im->link_rtt != NULL && im->link_rate != NULL
               ? ERR_OK
               : ERR_NO_MEMORY;
}

enum err inst_metrics_create(struct inst_metrics **out, struct instance *in) {
    struct inst_metrics *im = calloc(1, sizeof(*im));
    const char *mode = getenv("MIES_SERVICE_MONITOR_MODE");
    *out = im;
    if (im == NULL) return ERR_NO_MEMORY;
    im->in = in;
    im->enabled = in->conf.metrics_enabled || (mode != NULL && strcmp(mode, "1") == 0);
    enum err e = metrics_create(&im->reg);
    if (e == ERR_OK) e = metrics_common_label(im->reg, "model_name", in->conf.model_name);
    if (e == ERR_OK) e = req_meters_create(&im->requests, im->reg, window_size());
    if (e == ERR_OK) e = create_gauges(im);
    if (e == ERR_OK &&
        (im->step_tokens = metric_of(metrics_family(im->reg, &steps_def), NULL)) == NULL)
        e = ERR_NO_MEMORY;
    if (e == ERR_OK) {
        im->limits = budget_metrics_create(im->reg, &in->budget, "instance");
        if (im->limits == NULL) e = ERR_NO_MEMORY;
    }
    if (e == ERR_OK) e = build_metrics_create(&im->build, im->reg);
    if (e == ERR_OK) e = expert_metrics_create(&im->experts, im->reg);
    if (e == ERR_OK && in->creds != NULL) e = cred_watch_metrics(in->creds, im->reg);
    if (e == ERR_OK)
        e = loop_timer_start(&im->timer, in->loop, SAMPLE_MS, SAMPLE_MS, take_sample, im);
    if (e != ERR_OK) inst_metrics_destroy(out);
    return e;
}

struct metric *inst_metrics_steps(struct inst_metrics *im) {
    return im != NULL ? im->step_tokens : NULL;
}

void inst_metrics_destroy(struct inst_metrics **imp) {
    struct inst_metrics *im = *imp;
    if (im == NULL) return;
    *imp = NULL;
    loop_timer_stop(&im->timer);
    req_meters_destroy(&im->requests);
    metrics_destroy(&im->reg);
    budget_metrics_destroy(&im->limits);
    expert_metrics_destroy(&im->experts);
    build_metrics_destroy(&im->build);
    free(im);
}

struct req_meters *inst_metrics_requests(struct inst_metrics *im) {
    return im->requests;
}
