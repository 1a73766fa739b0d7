/* inst_gauge: see inst_gauge.h. */
#include "common/instance/inst_gauge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/engine/machine.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"
#include "proto/json.h"

enum { MEASURE_BODY = 4096, SWEEPS = 3, DATA_BYTES_MIN = 64 << 20 };
static const double PEAK_S = 0.1;

/* ---- the answer */

/* Frees body. Who asked may be gone. */
static void answer(struct inst_gauge *g, int status, char *body) {
    struct http_x *x = g->x;
    g->busy = false;
    g->x = NULL;
    if (x == NULL) {
        free(body);
        return;
    }
    http_x_on_close(x, NULL, NULL);
    if (status == 200)
        inst_reply_json(x, status, body);
    else
        inst_reply_wrapped(x, status, body != NULL ? body : err_text(ERR_NO_MEMORY));
    if (status != 200) free(body);
}

static void on_gone(void *arg) {
    ((struct inst_gauge *)arg)->x = NULL;
}

static char *printed(struct json_value *o) {
    const char *text = json_to_text(o, JSON_COMPACT, NULL);
    char *copy = text != NULL ? strdup(text) : NULL;
    json_put(o);
    return copy;
}

/* ---- the machine */

static void on_machine(void *arg) {
    struct instance *in = arg;
    struct inst_gauge *g = &in->gauge;
    if (!g->running) return; /* it was waited for while the instance closed */
    pthread_join(g->thread, NULL);
    g->running = false;
    if (g->why != NULL) {
        answer(g, 503, strdup(g->why));
        return;
    }
    struct json_value *o = json_new_obj();
    json_obj_set(o, "readBytesPerSecond", json_new_f64(g->read_bytes_s));
    json_obj_set(o, "operationsPerSecond", json_new_f64(g->ops_s));
    json_obj_set(o, "instruction", json_new_str(g->instruction));
    json_obj_set(o, "threads", json_new_i64(g->threads));
    answer(g, 200, printed(o));
}

static const char *gauge_machine(struct inst_gauge *g, enum dtype weights) {
    struct pool *pool = NULL;
    struct mem m;
    struct errbuf eb = {0};
    const uint64_t left = engine_free_memory();
    size_t bytes = MACHINE_DATA_BYTES;
    if (left > 0 && bytes > left / 4) bytes = (size_t)(left / 4) >> 20 << 20;
    if (bytes < DATA_BYTES_MIN || !mem_open(&m, bytes, MEM_TRANSPARENT, true))
        return "There is too little memory to measure with";
    const char *why = "No threads could be started";
    if (pool_create(&pool, g->threads, NULL, &eb) == ERR_OK) {
        const enum machine_peak p = machine_peak_of(weights);
        const bool here = p != PEAKS && machine_peak_here(p);
        g->instruction = here ? machine_peak_name(p) : "";
        g->ops_s = here ? machine_peak_rate(pool, p, PEAK_S, NULL) : 0;
        g->read_bytes_s = machine_read_rate(pool, m.p, bytes, (double)bytes, SWEEPS, NULL);
        why = NULL;
    }
    pool_destroy(&pool);
    mem_close(&m);
    return why;
}

static void *machine_main(void *arg) {
    struct instance *in = arg;
    const enum dtype weights = engine_model(worker_engine(in->worker))->weight_dtype;
    in->gauge.why = gauge_machine(&in->gauge, weights);
    loop_post_task(in->loop, &in->gauge.done, on_machine, in);
    return NULL;
}

static bool start_machine(struct instance *in) {
    struct inst_gauge *g = &in->gauge;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    g->threads = in->loader.n_cores > 0         ? in->loader.n_cores
                 : in->conf.compute_threads > 0 ? (int)in->conf.compute_threads
                                                : (int)cores;
    g->running = pthread_create(&g->thread, NULL, machine_main, in) == 0;
    return g->running;
}

/* ---- a link */

static void on_link(void *arg, enum err e, const char *text, const struct kv_measured *m) {
    struct instance *in = arg;
    if (e != ERR_OK) {
        answer(&in->gauge, e == ERR_TIMEOUT ? 504 : 503, strdup(text));
        return;
    }
    struct json_value *o = json_new_obj();
    json_obj_set(o, "bytesPerSecond", json_new_f64((double)m->bytes / m->seconds));
    json_obj_set(o, "rttMicroseconds", json_new_f64(m->rtt_s * 1e6));
    json_obj_set(o, "bytes", json_new_i64((int64_t)m->bytes));
    answer(&in->gauge, 200, printed(o));
}

/* ---- the question */

/* {"what":"machine"} or {"what":"link","peer":N}. False: eb. */
static bool read_question(struct http_x *x, bool *link, uint32_t *peer, struct errbuf *eb) {
    struct json_value *root = NULL;
    const char *what = "";
    uint64_t id = 0;
    size_t n, len;
    const char *body = http_x_body(x, &n);
    if (json_read(&root, body, n, NULL, eb) != ERR_OK) return false;
    (void)json_get_str(root, "what", &what, &len);
    *link = strcmp(what, "link") == 0;
    const bool known = *link || strcmp(what, "machine") == 0,
               ok = !*link || (json_get_u64(root, "peer", &id) == JSON_OK && id <= UINT32_MAX);
    if (!known) err_set(eb, ERR_INVALID, "Parameter what must be \"machine\" or \"link\".");
    if (known && !ok) err_set(eb, ERR_INVALID, "Parameter peer must be the id of an instance.");
    *peer = (uint32_t)id;
    json_put(root);
    return known && ok;
}

static void on_measure(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct inst_gauge *g = &in->gauge;
    struct errbuf eb = {0};
    bool link = false;
    uint32_t id = 0;
    (void)p;
    if (inst_guard(in, x)) return;
    if (!read_question(x, &link, &id, &eb)) {
        inst_reply_wrapped(x, 422, eb.text);
        return;
    }
    struct kv_peer *peer = link && in->kv_plane != NULL ? kv_plane_find_id(in->kv_plane, id) : NULL;
    if (link && peer == NULL) {
        inst_reply_wrapped(x, 404,
                           "Parameter peer must be an instance that this one has a link to.");
        return;
    }
    if (g->busy) {
        inst_reply_wrapped(x, 409, "Another measurement is under way.");
        return;
    }
    const bool begun =
        link ? kv_plane_measure(in->kv_plane, peer, on_link, in) == ERR_OK : start_machine(in);
    if (!begun) {
        inst_reply_wrapped(x, 503, link ? "The link is not up." : err_text(ERR_NO_MEMORY));
        return;
    }
    g->busy = true;
    g->x = x;
    http_x_on_close(x, on_gone, g);
}

const struct route inst_gauge_routes[] = {
    {PLANE_MGMT, "POST", "/v1/measure", on_measure, MEASURE_BODY},
    {0, NULL, NULL, NULL, 0},
};

void inst_gauge_fini(struct instance *in) {
    if (in->gauge.running) pthread_join(in->gauge.thread, NULL);
    in->gauge.running = false;
}
