/* inst_load: loads model and tokenizer on a thread of their own, so that health endpoints answer
 * meanwhile. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/cores.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_lora.h"

enum {
    INST_CACHE_PATH_BYTES = 2 * CONF_PATH_BYTES + 2,
    CANCEL_WAIT_S = 1,
    LAST_LINE_MS = 200,
    TELL_MS = 5000
};

static void on_progress(void *arg, const char *what, uint64_t done, uint64_t total) {
    struct inst_loader *l = arg;
    struct load_progress *p = &l->progress;
    const uint64_t now = clock_ms();
    const int tenth = total > 0 ? (int)(done * 10 / total) : 10;
    if (p->what != what) p->began_ms = now;
    p->done = done;
    p->total = total;
    p->what = what;
    if (tenth == l->last_tenth && now - l->told_ms < TELL_MS) return;
    l->last_tenth = tenth;
    l->told_ms = now;
    struct load_state s;
    inst_load_state(l, &s);
    log_info("load", "what=\"%s\" percent=%d mb_s=%.0f seconds_left=%.0f", what, s.percent, s.mb_s,
             s.seconds_left);
}

bool inst_load_state(struct inst_loader *l, struct load_state *out) {
    const struct load_progress *p = &l->progress;
    *out = (struct load_state){.what = p->what};
    if (out->what == NULL) return false;
    const double done = (double)p->done, total = (double)p->total,
                 seconds = (double)(clock_ms() - p->began_ms) / 1000;
    out->percent = total > 0 ? (int)(100 * done / total) : 100;
    if (seconds > 0) out->mb_s = done / seconds / 1e6;
    if (done > 0 && total > done) out->seconds_left = seconds * (total - done) / done;
    return true;
}

/* The engine speaks of files by name; whoever runs several models wants to know whose they are. */
static void name_folder(struct inst_loader *l) {
    struct errbuf why = l->eb;
    if (strncmp(why.text, l->model_dir, strlen(l->model_dir)) != 0)
        err_set(&l->eb, why.code, "%s: %s", l->model_dir, why.text);
}

/* A word of its own, or a folder, relative to the configuration file. */
static const char *cache_folder(const struct inst_conf *c, char path[INST_CACHE_PATH_BYTES]) {
    const char *v = c->weight_cache_path;
    if (v[0] == '/' || v[0] == 0 || strcmp(v, "auto") == 0 || strcmp(v, "off") == 0) return v;
    snprintf(path, INST_CACHE_PATH_BYTES, "%s/%s", c->dir, v);
    return path;
}

static enum mem_pages kv_pages(const struct inst_conf *c) {
    return strcmp(c->kv_huge_pages, "hugetlb") == 0 ? MEM_HUGETLB
           : strcmp(c->kv_huge_pages, "off") == 0   ? MEM_SMALL
                                                    : MEM_TRANSPARENT;
}

static enum err load_engine(struct instance *in, struct inst_loader *l) {
    const struct inst_conf *c = &in->conf;
    char cache[INST_CACHE_PATH_BYTES];
    struct engine_opts o = {
        .model_dir = l->model_dir,
        .weight_dtype = dtype_of_name(c->weight_dtype),
        .kv_dtype = dtype_of_name(c->kv_dtype),
        .kernels = c->kernels,
        .n_threads = (int)c->compute_threads,
        .block_tokens = (int)c->cache_block_size,
        .kv_bytes = c->kv_cache_mib > 0 ? (uint64_t)c->kv_cache_mib << 20
                    : c->npu_mem_gb > 0 ? (uint64_t)c->npu_mem_gb << 30
                                        : 0,
        .seq_tokens_max = (int)c->max_seq_len,
        .batch_max = (int)c->max_batch,
        .prefill_batch_max = (int)c->max_prefill_batch,
        .step_tokens_max = (int)(c->max_prefill_tokens < c->chunk_tokens + c->max_batch
                                     ? c->max_prefill_tokens
                                     : c->chunk_tokens + c->max_batch),
        .chunk_tokens = (int)c->chunk_tokens,
        .decode_gap_percent = (int)c->decode_gap_percent,
        .decode_gap_ms = (int)c->decode_gap_ms,
        .queue_max = (int)c->queue_max,
        .prefix_cache = c->prefix_cache,
        .weight_cache = cache_folder(c, cache),
        .weight_cache_verify = c->weight_cache_verify,
        .kv_pages = kv_pages(c),
        .lora_rank_max = c->max_loras > 0 ? (int)c->max_lora_rank : 0,
        .progress = on_progress,
        .progress_arg = l,
        .cancel = &l->cancel,
    };
    if (l->n_cores > 0) {
        o.cpu_ids = l->cores;
        o.n_threads = l->n_cores;
    }
    return engine_open(&l->engine, &o, &l->eb);
}

static enum err load_endpoint(struct instance *in, struct inst_loader *l) {
    const struct inst_conf *c = &in->conf;
    const struct model_info *model = engine_model(l->engine);
    int32_t ids = tokenizer_vocab_size(l->tokenizer);
    if (ids > model->vocab_size)
        return err_set(&l->eb, ERR_BAD_FILE,
                       "%s: tokenizer.json has ids up to %d, config.json's vocab_size is %d",
                       l->model_dir, ids - 1, model->vocab_size);
    struct endpoint_conf e = {
        .model_name = c->model_name,
        .model_dir = l->model_dir,
        .max_seq_len = engine_seq_tokens_max(l->engine),
        .max_input_token_len = (int)c->max_input_token_len,
        .max_iter_times = (int)c->max_iter_times,
        .max_batch_size = (int)c->max_batch,
        .max_prefill_batch_size = (int)c->max_prefill_batch,
        .max_prefill_tokens = (int)c->max_prefill_tokens,
        .max_n = (int)c->max_n,
        .truncation = (int)c->truncation,
        .max_request_bytes = (size_t)c->request_mib_max << 20,
        .prefill_policy = (int)c->prefill_policy,
        .decode_policy = (int)c->decode_policy,
        .cpu_mem_gb = (int)c->cpu_mem_gb,
        .npu_mem_gb = (int)c->npu_mem_gb,
        .world_size = (int)c->world_size,
        .split = strcmp(c->infer_mode, "dmi") == 0,
        .pd_refusals = c->pd_refusals,
        .tool_call_parser = c->tool_call_parser,
        .reasoning_parser = c->reasoning_parser,
        .openai_vllm_mode = strcmp(c->open_ai_support, "vllm") == 0,
        .full_text = c->full_text_enabled,
        .error_style =
            strcmp(c->error_style, "openai") == 0 ? ERROR_STYLE_OPENAI : ERROR_STYLE_MINDIE,
        .strict_ranges = c->strict_ranges,
        .token_id_scalar = c->token_id_scalar,
        .tgi_legacy_space = c->tgi_legacy_space,
        .vllm_legacy_space = c->vllm_legacy_space,
        .benchmark_info = c->benchmark_info,
        .openai_id_prefix = c->open_ai_id_prefix,
        .vllm_delimiter = strcmp(c->vllm_delimiter, "newline") == 0 ? '\n' : '\0',
        .json_depth_max = (int)c->json_depth_max,
        .prompt_lookup_tokens = (int)c->prompt_lookup_tokens,
        .prefix_cache = c->prefix_cache,
        .loaded_unix_s = clock_unix_s(),
        .special_as_text = strcmp(c->special_tokens_in_content, "text") == 0,
        .template_ms = (int)c->template_ms,
        .guide_compile_ms = (int)c->guide_compile_ms,
        .guide_step_ms = (int)c->guide_step_ms,
        .budget = &in->budget,
        .loras = in->loras,
    };
    return endpoint_create(&l->endpoint, &e, l->tokenizer, model, &l->eb);
}

static void on_done(void *arg) {
    inst_on_loaded(arg);
}

static void *thread_main(void *arg) {
    struct instance *in = arg;
    struct inst_loader *l = &in->loader;
    enum err e = tokenizer_load(&l->tokenizer, l->model_dir, &l->eb);
    if (e == ERR_OK) e = load_engine(in, l);
    if (e == ERR_BAD_FILE || e == ERR_IO) name_folder(l);
    if (e == ERR_OK && atomic_load(&l->cancel)) e = ERR_STOPPING;
    if (e == ERR_OK) e = inst_lora_load_configured(in, engine_model(l->engine), &l->eb);
    if (e == ERR_OK) e = load_endpoint(in, l);
    l->result = e;
    loop_post_task(in->loop, &l->done, on_done, in);
    return NULL;
}

/* Without those that this process may not use, as far as others are left: where none is, the first
 * thread's core is named as one that cannot be used. */
static int usable_cores(int *cores, int n) {
    int may[CORES_CPUS_MAX], usable[CONF_CPUS_MAX];
    const int n_may = cores_allowed(may);
    memcpy(usable, cores, (size_t)n * sizeof(*cores));
    const int kept = cores_keep(may, n_may, usable, n);
    if (kept == 0 || kept == n) return n;
    log_warn("start",
             "event=cores_left_out asked=%d usable=%d why=\"offline, or outside this process's "
             "cpuset or affinity\"",
             n, kept);
    memcpy(cores, usable, (size_t)kept * sizeof(*cores));
    return kept;
}

void inst_place(struct instance *in) {
    const struct inst_conf *c = &in->conf;
    struct inst_loader *l = &in->loader;
    int n_nodes, n = c->pin_threads ? inst_conf_cores(c, l->cores, NULL) : 0;
    l->n_cores = 0;
    if (n <= 0) return;
    n = usable_cores(l->cores, n);
    int n_threads = (int)c->compute_threads, n_own = cores_order("/sys", l->cores, n, &n_nodes);
    if (n_threads == 0) n_threads = n_own;
    l->n_cores = n_threads < n ? n_threads : n;
    bool left = cores_leave("/sys", l->cores, l->n_cores);
    log_info("start", "event=placed threads=%d first_cpu=%d cores=%d nodes=%d others=%s",
             l->n_cores, l->cores[0], n_own, n_nodes, left ? "elsewhere" : "anywhere");
}

enum err inst_load_start(struct instance *in) {
    struct inst_loader *l = &in->loader;
    const char *path = in->conf.model_weight_path;
    if (path[0] == '/') {
        snprintf(l->model_dir, sizeof(l->model_dir), "%s", path);
    } else {
        snprintf(l->model_dir, sizeof(l->model_dir), "%s/%s", in->conf.dir, path);
    }
    l->last_tenth = -1;
    if (pthread_create(&l->thread, NULL, thread_main, in) != 0) return ERR_NO_MEMORY;
    l->running = true;
    return ERR_OK;
}

/* ---- kept weights, in the background */

static void on_bad_weights(void *arg) {
    struct instance *in = arg;
    if (in->closing) return;
    log_error("load", "%s", in->loader.eb.text);
    in->exit_status = 1;
    in->stopping = true;
    req_set_abort(in->reqs, ROLE_NONE, ERR_STOPPING);
    loop_stop(in->loop);
}

/* On the thread of the check. */
static void on_checked(void *arg, enum err e, const char *text) {
    struct instance *in = arg;
    if (e == ERR_OK) return;
    err_set(&in->loader.eb, e, "%s", text); /* the loader's thread has ended */
    loop_post_task(in->loop, &in->loader.bad, on_bad_weights, in);
}

void inst_load_check(struct instance *in) {
    enum err e = engine_check_weights(in->loader.engine, on_checked, in);
    if (e != ERR_OK) log_warn("load", "event=weights_not_checked why=\"%s\"", err_text(e));
}

void inst_load_wait(struct instance *in) {
    if (!in->loader.running) return;
    if (atomic_load(&in->loader.cancel)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += CANCEL_WAIT_S;
        if (pthread_timedjoin_np(in->loader.thread, NULL, &until) != 0) {
            log_warn("stop", "event=load_left_behind");
            log_flush(LAST_LINE_MS);
            _exit(in->exit_status);
        }
    } else {
        pthread_join(in->loader.thread, NULL);
    }
    in->loader.running = false;
}
