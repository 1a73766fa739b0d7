/* inst_facts: see inst_facts.h. */
#include "common/instance/inst_facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/build.h"
#include "common/base/clock.h"
#include "common/base/host_facts.h"
#include "common/engine/kernels.h"
#include "common/engine/model_conf.h"
#include "common/engine/weights.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"
#include "common/net/tls_facts.h"
#include "proto/crc32c.h"
#include "proto/json.h"

enum { FULL_PATH_BYTES = 2 * CONF_PATH_BYTES };

static void add_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}
static void add_u64(struct json_value *o, const char *key, uint64_t v) {
    json_obj_set(o, key, json_new_i64(v < INT64_MAX ? (int64_t)v : INT64_MAX));
}
static void add_bool(struct json_value *o, const char *key, bool on) {
    json_obj_set(o, key, json_new_bool(on));
}
static void add_hash(struct json_value *o, const char *key, const uint8_t hash[32]) {
    char text[65];
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
    add_str(o, key, text);
}

static const char *beside(char out[FULL_PATH_BYTES], const struct inst_conf *c, const char *path) {
    const bool whole = path[0] == '/';
    snprintf(out, FULL_PATH_BYTES, "%s%s%s", whole ? "" : c->dir, whole ? "" : "/", path);
    return out;
}

static void add_plane(struct json_value *arr, const char *name, const char *ip, int64_t port,
                      bool tls) {
    struct json_value *o = json_new_obj();
    add_str(o, "plane", name);
    add_str(o, "ip", ip);
    add_u64(o, "port", (uint64_t)port);
    add_bool(o, "tls", tls);
    json_arr_add(arr, o);
}

static struct json_value *planes_json(const struct inst_conf *c) {
    struct json_value *arr = json_new_arr();
    add_plane(arr, "business", c->ip, c->port, c->https_enabled);
    add_plane(arr, "management", c->management_ip, c->management_port, c->https_enabled);
    add_plane(arr, "metrics", c->management_ip, c->metrics_port, c->https_enabled);
    if (strcmp(c->infer_mode, "dmi") == 0)
        add_plane(arr, "cluster", c->ip, c->inter_comm_port, c->inter_comm_tls_enabled);
    return arr;
}

static struct json_value *tls_json(const struct instance *in) {
    const struct inst_conf *c = &in->conf;
    struct json_value *arr = json_new_arr();
    for (int i = 0; i < INST_PLANE_COUNT; i++) {
        struct tls_conf o;
        struct errbuf eb = {0};
        const enum inst_plane plane = (enum inst_plane)i;
        if (!inst_tls_uses(c, plane) || inst_tls_conf(&o, c, plane, &eb) != ERR_OK) continue;
        json_arr_add(arr, tls_facts_json(inst_plane_name(plane), &o, in->tls.plane[i]));
    }
    return arr;
}

/* ---- the model */

struct model_facts {
    struct model_conf conf;
    char line[MODEL_CONF_LINE_BYTES];
};

static uint64_t kv_bytes_of(const struct model_conf *m, enum dtype kv) {
    return m->encoder ? 0
                      : (m->latent.rank > 0 ? 1 : 2) * (uint64_t)m->n_layers *
                            (uint64_t)m->n_kv_heads * kv_row_bytes(m->head_dim, kv);
}

/* Of the files: config, headers of the tensors, tokenizer. */
static void add_files(struct json_value *o, const struct inst_conf *c, const char *path,
                      struct model_facts *f) {
    struct errbuf eb = {0};
    struct kernels kn;
    struct weights_size size;
    struct tokenizer *t = NULL;
    enum err e = kernels_find(&kn, c->kernels, &eb);
    if (e == ERR_OK) {
        add_str(o, "kernels", kn.name);
        e = model_conf_read(&f->conf, path, &eb);
    }
    if (e == ERR_OK)
        e = weights_measure(&size, &f->conf, path, &kn, dtype_of_name(c->weight_dtype), &eb);
    if (e == ERR_OK) {
        const uint64_t active = weights_active(&f->conf, size.n_params, size.n_expert_params),
                       token = kv_bytes_of(&f->conf, dtype_of_name(c->kv_dtype));
        char shape[9];
        const size_t n = (size_t)model_conf_line(&f->conf, f->line);
        uint32_t crc = crc32c(0, f->line, n);
        crc = crc32c(crc, &size.n_params, sizeof(size.n_params));
        snprintf(shape, sizeof(shape), "%08" PRIx32, crc);
        add_str(o, "shape", shape);
        add_str(o, "family", f->conf.family);
        add_str(o, "dtype", dtype_name(size.dtype));
        add_u64(o, "weightBytes", size.bytes);
        add_u64(o, "readBytes",
                size.n_params > 0
                    ? (uint64_t)((double)size.bytes * (double)active / (double)size.n_params)
                    : 0);
        add_u64(o, "kvTokenBytes", token);
        add_u64(o, "kvBytes",
                c->kv_cache_mib > 0 ? (uint64_t)c->kv_cache_mib << 20
                : c->npu_mem_gb > 0 ? (uint64_t)c->npu_mem_gb << 30
                                    : 0);
        e = tokenizer_load(&t, path, &eb);
    }
    if (e == ERR_OK) add_hash(o, "tokenizer", tokenizer_hash(t));
    tokenizer_free(&t);
    if (e != ERR_OK) add_str(o, "error", eb.text);
}

/* Of what is loaded. */
static void add_engine(struct json_value *o, const struct instance *in) {
    const struct engine *e = worker_engine(in->worker);
    const struct model_info *m = engine_model(e);
    struct kv_plane_opts kv;
    struct engine_stats st;
    kv_plane_opts_default(&kv);
    kv_plane_opts_of_engine(&kv, e);
    engine_stats(e, &st);
    const uint64_t block = m->encoder ? 0 : (uint64_t)engine_kv_block_bytes(e) * kv.n_layers;
    add_str(o, "kernels", m->kernels);
    add_hash(o, "hash", m->hash);
    add_str(o, "family", m->family);
    add_str(o, "dtype", dtype_name(m->weight_dtype));
    add_u64(o, "weightBytes", m->weight_bytes);
    add_u64(o, "readBytes",
            m->n_params > 0 ? (uint64_t)((double)m->weight_bytes * (double)m->n_params_active /
                                         (double)m->n_params)
                            : 0);
    add_u64(o, "kvTokenBytes", block / (uint64_t)engine_block_tokens(e));
    add_u64(o, "kvBytes", block * (uint64_t)st.blocks_total);
    add_hash(o, "tokenizer", tokenizer_hash(in->tokenizer));
    add_str(o, "weightsFrom", m->weights_from);
}

static struct json_value *model_json(const struct instance *in) {
    const struct inst_conf *c = &in->conf;
    struct json_value *o = json_new_obj();
    char path[FULL_PATH_BYTES];
    beside(path, c, c->model_weight_path);
    add_str(o, "name", c->model_name);
    add_str(o, "path", path);
    add_str(o, "kvDtype", c->kv_dtype);
    add_str(o, "wantedDtype", c->weight_dtype);
    add_str(o, "wantedKernels", c->kernels);
    add_bool(o, "mixedWeights", c->allow_mixed_weight_dtype);
    add_u64(o, "blockTokens", (uint64_t)c->cache_block_size);
    add_u64(o, "slots", (uint64_t)c->max_batch);
    add_u64(o, "seqTokensMax", (uint64_t)c->max_seq_len);
    if (in->loaded) {
        add_engine(o, in);
        return o;
    }
    struct model_facts *f = in->loop == NULL ? calloc(1, sizeof(*f)) : NULL;
    if (f != NULL) add_files(o, c, path, f);
    free(f);
    return o;
}

/* ---- limits */

static struct json_value *cores_json(const struct inst_conf *c) {
    struct json_value *arr = json_new_arr();
    int cores[CONF_CPUS_MAX];
    struct errbuf eb = {0};
    const int n = c->pin_threads ? inst_conf_cores(c, cores, &eb) : 0;
    for (int i = 0; i < n; i++) json_arr_add(arr, json_new_i64(cores[i]));
    return arr;
}

static void add_cache(struct json_value *o, const struct inst_conf *c) {
    char model[FULL_PATH_BYTES], path[FULL_PATH_BYTES];
    uint64_t left = 0;
    if (strcmp(c->weight_cache_path, "off") == 0 || c->weight_cache_path[0] == 0) return;
    beside(model, c, c->model_weight_path);
    const bool automatic = strcmp(c->weight_cache_path, "auto") == 0;
    beside(path, c, automatic ? c->model_weight_path : c->weight_cache_path);
    struct json_value *cache = json_new_obj();
    add_str(cache, "path", path);
    add_bool(cache, "automatic", automatic);
    add_bool(cache, "writable", host_disk_free(path, &left));
    add_u64(cache, "freeBytes", left);
    json_obj_set(o, "weightCache", cache);
}

struct json_value *inst_facts(struct instance *in) {
    const struct inst_conf *c = &in->conf;
    struct json_value *o = json_new_obj();
    struct host_facts host;
    char address[96];
    const bool live = in->loop != NULL;
    host_facts_read(&host, "");
    snprintf(address, sizeof(address), "%s:%" PRId64, c->ip, c->port);
    add_str(o, "kind", "instance");
    add_str(o, "name", c->instance_name[0] != 0 ? c->instance_name : address);
    add_str(o, "version", BATON_VERSION);
    add_str(o, "commit", build_commit());
    add_bool(o, "live", live);
    add_bool(o, "loaded", in->loaded);
    json_obj_set(o, "unixSeconds", json_new_f64((double)clock_unix_us() * 1e-6));
    add_str(o, "mode", c->infer_mode);
    add_bool(o, "insecure", c->allow_insecure);
    json_obj_set(o, "planes", planes_json(c));
    json_obj_set(o, "tls", tls_json(in));
    add_str(o, "registerUrl", c->register_url);
    if (live && c->register_url[0] != 0)
        add_bool(o, "registered", in->registered_ms != 0 && !in->register_failed);
    json_obj_set(o, "model", model_json(in));
    add_u64(o, "threads", (uint64_t)c->compute_threads);
    json_obj_set(o, "cores", cores_json(c));
    add_str(o, "kvHugePages", c->kv_huge_pages);
    add_u64(o, "descriptorsWanted", inst_descriptors_wanted(c));
    add_cache(o, c);
    struct json_value *machine = host_facts_json(&host);
    add_u64(machine, "mtu", host_mtu_of(c->ip));
    json_obj_set(o, "host", machine);
    return o;
}

int inst_facts_print(struct instance *in) {
    return host_facts_print(inst_facts(in));
}

static void on_facts(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    inst_reply_tree(x, inst_facts(arg));
}

const struct route inst_facts_routes[] = {
    {PLANE_MGMT, "GET", "/v1/facts", on_facts, 0},
    {0, NULL, NULL, NULL, 0},
};
