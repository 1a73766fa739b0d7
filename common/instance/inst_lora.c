/* inst_lora: statuses and texts of inference-api 15. */
#include "common/instance/inst_lora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"
#include "proto/json.h"

enum { LOADS_WAITING_MAX = 16, REAP_MS = 20, BODY_BYTES_MAX = 1 << 16, TEXT_BYTES = 2048 };

static void folder_of(const struct instance *in, const char *path, char dir[2 * CONF_PATH_BYTES]) {
    snprintf(dir, 2 * CONF_PATH_BYTES, "%s%s%s", path[0] == '/' ? "" : in->conf.dir,
             path[0] == '/' ? "" : "/", path);
}

/* ---- at the start */

enum err inst_lora_load_configured(struct instance *in, const struct model_info *base,
                                   struct errbuf *eb) {
    const struct inst_conf *c = &in->conf;
    for (int i = 0; i < CONF_LORAS_MAX; i++) {
        char name[ADAPTER_NAME_BYTES_MAX + 1], dir[2 * CONF_PATH_BYTES];
        const char *s = c->lora_modules[i], *eq = strchr(s, '=');
        struct lora *lora = NULL;
        struct errbuf why = {0};
        if (eq == NULL) continue;
        snprintf(name, sizeof(name), "%.*s", (int)(eq - s), s);
        folder_of(in, eq + 1, dir);
        enum err e = lora_set_reserve(in->loras, name);
        if (e != ERR_OK) {
            err_set(&why, e, "%s", e == ERR_CONFLICT ? "named twice" : err_text(e));
        } else {
            e = lora_open(&lora, dir, base, (int)c->max_lora_rank, &why);
        }
        if (e != ERR_OK)
            return err_set(eb, e, "BatonConfig.loraModules: adapter %s in %s: %s", name, dir,
                           why.text);
        log_info("lora", "name=%s event=loaded rank=%d bytes=%zu", name, lora->rank, lora->bytes);
        lora_set_serve(in->loras, name, &lora, eq + 1, clock_unix_s());
    }
    return ERR_OK;
}

/* ---- answers */

static void reply(const struct instance *in, struct http_x *x, const char *text) {
    http_x_reply(x, 200, in->conf.lora_legacy_status ? "application/json" : "text/plain", text,
                 strlen(text));
}

/* legacy: the status of the reference. why: what is wrong, beyond its text; NULL: nothing. The
 * cause says to a coordinator what neither status nor text may: with legacy statuses both are the
 * reference's. */
static void reply_failure(const struct instance *in, struct http_x *x, enum cause cause, int status,
                          int legacy, const char *text, const char *why) {
    char full[TEXT_BYTES];
    http_x_set_header(x, CAUSE_HEADER, cause_name(cause));
    if (in->conf.lora_legacy_status) {
        http_x_reply(x, legacy, "application/json", text, strlen(text));
        return;
    }
    snprintf(full, sizeof(full), "%s%s%s", text, why != NULL ? " " : "", why != NULL ? why : "");
    inst_reply_wrapped(x, status, full);
}

/* CAUSE_NONE: it went well. */
static void reply_named(const struct instance *in, struct http_x *x, enum cause cause, int status,
                        const char *before, const char *name, const char *after, const char *why) {
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "%s'%s'%s", before, name, after);
    if (cause == CAUSE_NONE) {
        reply(in, x, text);
    } else {
        reply_failure(in, x, cause, status, 200, text, why);
    }
}

static void reply_unknown(const struct instance *in, struct http_x *x, const char *name) {
    reply_named(in, x, CAUSE_ADAPTER_MISSING, 404, "The LoRA adapter ", name, " cannot be found.",
                NULL);
}

static void reply_leaving(const struct instance *in, struct http_x *x, const char *name) {
    reply_named(in, x, CAUSE_ADAPTER_LEAVING, 409, "The LoRA adapter ", name,
                " is waiting to unload.", NULL);
}

/* ---- bodies */

struct lora_body {
    struct json_value *root;
    const char *name, *path;
    size_t path_len;
};

/* The base model's name as the reference, its documents and vLLM spell the member. */
static bool master_ok(struct instance *in, struct http_x *x, const struct json_value *root) {
    static const char *const spellings[] = {"master_model", "master_mode", "base_model_name"};
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        struct json_value *v;
        const char *s;
        char text[MODEL_NAME_BYTES_MAX + 64], got[MODEL_NAME_BYTES_MAX + 3];
        size_t n;
        if (json_get(root, spellings[i], &v) != JSON_OK) continue;
        if (json_as_str(v, &s, &n) == JSON_OK && strcmp(s, in->conf.model_name) == 0) continue;
        if (json_as_str(v, &s, &n) == JSON_OK) {
            snprintf(got, sizeof(got), "%s", s);
        } else {
            json_literal(got, sizeof(got), v);
        }
        snprintf(text, sizeof(text), "Model %s not found.", got);
        reply_failure(in, x, CAUSE_REQUEST, 404, 404, text, NULL);
        return false;
    }
    return true;
}

static bool body_read(struct lora_body *b, struct instance *in, struct http_x *x) {
    size_t n, name_len;
    const char *body = http_x_body(x, &n);
    *b = (struct lora_body){0};
    if (json_read(&b->root, body, n, NULL, NULL) != ERR_OK || !json_is(b->root, json_type_object)) {
        reply_failure(in, x, CAUSE_REQUEST, 400, 200, "Req body converts to json fail.", NULL);
        return false;
    }
    if (json_get_str(b->root, "lora_name", &b->name, &name_len) != JSON_OK ||
        !inst_lora_name_ok(b->name, name_len) || strcmp(b->name, "None") == 0 ||
        strcmp(b->name, in->conf.model_name) == 0) {
        reply_failure(in, x, CAUSE_REQUEST, 400, 503, "Input invalid lora name", NULL);
        return false;
    }
    return true;
}

/* ---- loading */

struct load_job {
    struct instance *in;
    struct http_x *x; /* NULL: the client is gone */
    const struct model_info *base;
    char name[ADAPTER_NAME_BYTES_MAX + 1], path[CONF_PATH_BYTES], dir[2 * CONF_PATH_BYTES];
    struct lora *lora;
    struct errbuf eb;
    enum err result;
};

static void load_gone(void *arg) {
    ((struct load_job *)arg)->x = NULL;
}

static void load_work(void *arg) {
    struct load_job *j = arg;
    j->result = lora_open(&j->lora, j->dir, j->base, (int)j->in->conf.max_lora_rank, &j->eb);
}

static void load_failed(struct load_job *j) {
    char text[TEXT_BYTES];
    switch (j->result) {
    case ERR_NOT_FOUND:
        snprintf(text, sizeof(text),
                 "Call to load LoRA method failed:Loading LoRA '%s' failed: No adapter found for "
                 "'%s'.",
                 j->name, j->path);
        reply_failure(j->in, j->x, CAUSE_REQUEST, 404, 200, text, j->eb.text);
        return;
    case ERR_TOO_LARGE:
        reply_failure(j->in, j->x, CAUSE_REQUEST, 400, 200,
                      "Call to load LoRA method failed:LoRA rank is greater than max_lora_rank.",
                      j->eb.text);
        return;
    case ERR_NO_MEMORY: inst_reply_wrapped(j->x, 503, j->eb.text); return;
    default:
        reply_named(j->in, j->x, CAUSE_REQUEST, 400,
                    "Call to load LoRA method failed: The LoRA adapter ", j->name, " is invalid.",
                    j->eb.text);
        return;
    }
}

static void load_done(void *arg) {
    struct load_job *j = arg;
    struct instance *in = j->in;
    if (j->x != NULL) http_x_on_close(j->x, NULL, NULL);
    if (j->result != ERR_OK) {
        log_warn("lora", "name=%s event=load_failed text=\"%s\"", j->name, j->eb.text);
        lora_set_drop(in->loras, j->name);
        if (j->x != NULL) load_failed(j);
    } else {
        log_info("lora", "name=%s event=loaded rank=%d bytes=%zu", j->name, j->lora->rank,
                 j->lora->bytes);
        lora_set_serve(in->loras, j->name, &j->lora, j->path, clock_unix_s());
        if (j->x != NULL)
            reply_named(in, j->x, CAUSE_NONE, 200, "Success: LoRA adapter ", j->name,
                        " added successfully.", NULL);
    }
    lora_unref(&j->lora);
    free(j);
}

/* False: x is answered. */
static bool reserve(struct instance *in, struct http_x *x, const char *name) {
    static const char full[] =
        "Call to load LoRA method failed:The number of LoRA adapters exceeds 'max_loras'";
    char text[TEXT_BYTES];
    lora_set_reap(in->loras);
    switch (lora_set_reserve(in->loras, name)) {
    case ERR_OK: return true;
    case ERR_CONFLICT:
        if (lora_set_state(in->loras, name) == LORA_RETIRED)
            reply_leaving(in, x, name);
        else
            reply_named(in, x, CAUSE_ADAPTER_PRESENT, 409, "The LoRA adapter ", name,
                        " has already been added.", NULL);
        return false;
    default:
        snprintf(text, sizeof(text), "%s, %s", full,
                 lora_set_reap(in->loras) > 0 ? "some adapters are currently being unloaded."
                                              : "and none are currently unloading.");
        reply_failure(in, x, CAUSE_REQUEST, 400, 200, text, NULL);
        return false;
    }
}

static void load_start(struct instance *in, struct http_x *x, const struct lora_body *b) {
    struct load_job *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        inst_reply_wrapped(x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    if (!reserve(in, x, b->name)) {
        free(j);
        return;
    }
    j->in = in;
    j->x = x;
    j->base = engine_model(worker_engine(in->worker));
    snprintf(j->name, sizeof(j->name), "%s", b->name);
    snprintf(j->path, sizeof(j->path), "%s", b->path);
    folder_of(in, j->path, j->dir);
    http_x_on_close(x, load_gone, j);
    if (text_pool_run(in->lora_pool, "", load_work, load_done, j) == ERR_OK) return;
    http_x_on_close(x, NULL, NULL);
    lora_set_drop(in->loras, j->name);
    free(j);
    http_x_set_header(x, "Retry-After", "1");
    inst_reply_wrapped(x, 429, "Too many requests");
}

static void on_load(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct lora_body b;
    (void)p;
    if (inst_guard(in, x)) return;
    if (!body_read(&b, in, x)) {
        json_put(b.root);
        return;
    }
    if (json_get_str(b.root, "lora_path", &b.path, &b.path_len) != JSON_OK ||
        !inst_lora_path_ok(b.path, b.path_len)) {
        reply_failure(in, x, CAUSE_REQUEST, 400, 503, "Input invalid lora path", NULL);
    } else if (!master_ok(in, x, b.root)) {
        /* answered */
    } else if (in->conf.max_loras == 0) {
        reply_failure(in, x, CAUSE_REQUEST, 501, 200,
                      "LoRA adapters are switched off: maxLoras is 0.", NULL);
    } else {
        load_start(in, x, &b);
    }
    json_put(b.root);
}

/* ---- unloading */

struct lora_unload {
    struct lora_unload *next, **at;
    struct http_x *x;
    char name[ADAPTER_NAME_BYTES_MAX + 1];
};

static void unload_free(struct lora_unload *u) {
    *u->at = u->next;
    if (u->next != NULL) u->next->at = u->at;
    free(u);
}

static void unload_gone(void *arg) {
    unload_free(arg);
}

static void reply_unloaded(struct instance *in, struct http_x *x, const char *name) {
    reply_named(in, x, CAUSE_NONE, 200, "Success: LoRA adapter ", name, " removed successfully.",
                NULL);
}

static void on_reap(void *arg) {
    struct instance *in = arg;
    if (lora_set_reap(in->loras) == 0) loop_timer_stop(&in->lora_timer);
    for (struct lora_unload *u = in->lora_unloads, *next; u != NULL; u = next) {
        next = u->next;
        if (lora_set_state(in->loras, u->name) == LORA_RETIRED) continue;
        log_info("lora", "name=%s event=unloaded", u->name);
        http_x_on_close(u->x, NULL, NULL);
        reply_unloaded(in, u->x, u->name);
        unload_free(u);
    }
}

/* The adapter is retired and in use: x is answered when it is gone. */
static void unload_wait(struct instance *in, struct http_x *x, const char *name) {
    struct lora_unload *u = calloc(1, sizeof(*u));
    if (u == NULL || (in->lora_timer == NULL && loop_timer_start(&in->lora_timer, in->loop, REAP_MS,
                                                                 REAP_MS, on_reap, in) != ERR_OK)) {
        free(u);
        inst_reply_wrapped(x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    log_info("lora", "name=%s event=draining", name);
    snprintf(u->name, sizeof(u->name), "%s", name);
    u->x = x;
    u->next = in->lora_unloads;
    u->at = &in->lora_unloads;
    if (u->next != NULL) u->next->at = &u->next;
    in->lora_unloads = u;
    http_x_on_close(x, unload_gone, u);
}

static void on_unload(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct lora_body b;
    (void)p;
    if (inst_guard(in, x)) return;
    if (!body_read(&b, in, x)) {
        json_put(b.root);
        return;
    }
    lora_set_reap(in->loras);
    if (lora_set_state(in->loras, b.name) == LORA_RETIRED) {
        reply_leaving(in, x, b.name);
    } else if (lora_set_retire(in->loras, b.name) != ERR_OK) {
        reply_unknown(in, x, b.name);
    } else if (lora_set_reap(in->loras), lora_set_state(in->loras, b.name) == LORA_RETIRED) {
        unload_wait(in, x, b.name);
    } else {
        log_info("lora", "name=%s event=unloaded", b.name);
        reply_unloaded(in, x, b.name);
    }
    json_put(b.root);
}

const struct route inst_lora_routes[] = {
    {PLANE_MGMT, "POST", "/v1/load_lora_adapter", on_load, BODY_BYTES_MAX},
    {PLANE_MGMT, "POST", "/v1/unload_lora_adapter", on_unload, BODY_BYTES_MAX},
    {0, NULL, NULL, NULL, 0},
};

/* ---- life */

enum err inst_lora_open(struct instance *in) {
    in->loras = lora_set_create((int)in->conf.max_loras);
    if (in->loras == NULL) return ERR_NO_MEMORY;
    return text_pool_open(&in->lora_pool, in->loop, 1, LOADS_WAITING_MAX);
}

void inst_lora_stop(struct instance *in) {
    text_pool_close(&in->lora_pool);
    loop_timer_stop(&in->lora_timer);
}

void inst_lora_fini(struct instance *in) {
    lora_set_destroy(&in->loras);
}
