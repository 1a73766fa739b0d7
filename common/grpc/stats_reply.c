/* stats_reply: one JSON for both framings. */
#include "common/grpc/stats_reply.h"

#include <stdio.h>
#include <string.h>
#include "common/grpc/grpc_json.h"
#include "proto/grpc.h"

enum { QUESTION_BYTES_MAX = 4096 };

/* Which of what is served is asked for. */
struct question {
    char name[MODEL_NAME_BYTES_MAX + 1]; /* "": all */
    char version[MODEL_NAME_BYTES_MAX + 1];
    bool odd; /* nothing has such a name */
};

static void put_duration(struct buf *out, const char *name, uint64_t count, uint64_t us) {
    buf_printf(out, "%s\"%s\":{\"count\":%llu,\"ns\":%llu}",
               out->data[out->len - 1] == '{' ? "" : ",", name, (unsigned long long)count,
               (unsigned long long)(us * 1000));
}

/* Each request is executed by itself, whatever shares its steps: there are no batches to tell of,
 * and no answer comes out of a cache. */
static void put_model(struct buf *out, const char *name, const struct model_counts *c) {
    buf_puts(out, "{\"name\":");
    buf_json_str(out, name, strlen(name));
    buf_printf(out,
               ",\"version\":\"1\",\"last_inference\":%llu,\"inference_count\":%llu,"
               "\"execution_count\":%llu,\"inference_stats\":{",
               (unsigned long long)c->last_unix_ms, (unsigned long long)c->n_prompts,
               (unsigned long long)c->n_ok);
    if (out->failed) return;
    put_duration(out, "success", c->n_ok, c->ok_us);
    put_duration(out, "fail", c->n_failed, c->failed_us);
    put_duration(out, "queue", c->n_ok, c->queue_us);
    put_duration(out, "compute_input", c->n_ok, c->input_us);
    put_duration(out, "compute_infer", c->n_ok, c->infer_us);
    put_duration(out, "compute_output", c->n_ok, c->output_us);
    put_duration(out, "cache_hit", 0, 0);
    put_duration(out, "cache_miss", 0, 0);
    buf_puts(out, "},\"response_stats\":{},\"batch_stats\":[],\"memory_usage\":[]}");
}

static bool is_asked(const struct question *q, const char *name) {
    return !q->odd && (q->name[0] == '\0' || strcmp(q->name, name) == 0);
}

static void put_one(struct buf *out, const struct stats_served *s, const char *name,
                    const char *adapter, unsigned *n) {
    struct model_counts c;
    model_stats_get(s->stats, adapter, &c);
    if ((*n)++ > 0) buf_putc(out, ',');
    put_model(out, name, &c);
}

/* The number of models that were meant. */
static unsigned put_all(struct buf *out, const struct stats_served *s, const struct question *q) {
    char adapter[ADAPTER_NAME_BYTES_MAX + 1];
    unsigned n = 0;
    buf_puts(out, "{\"model_stats\":[");
    if (is_asked(q, s->model)) put_one(out, s, s->model, NULL, &n);
    for (int at = 0; s->next_adapter(s->arg, &at, adapter);)
        if (is_asked(q, adapter)) put_one(out, s, adapter, adapter, &n);
    buf_puts(out, "]}");
    return n;
}

/* ---- the two framings */

/* False: x is answered. */
static bool read_message(struct question *q, struct http_x *x, const struct grpc_method *m) {
    struct grpc_body b = {.message = m->in,
                          .encoding = http_x_header(x, GRPC_ENCODING_HEADER),
                          .message_bytes_max = QUESTION_BYTES_MAX};
    struct buf text = BUF_INIT;
    struct json_value *body = NULL;
    struct errbuf eb = {0};
    const char *name = "", *version = "";
    size_t n = 0, n_version = 0;
    int status = 500;
    b.p = http_x_body(x, &b.n);
    const bool good = grpc_body_read(&b, NULL, &text, &body, &status, &eb);
    if (good) {
        json_get_str(body, "name", &name, &n);
        json_get_str(body, "version", &version, &n_version);
        q->odd = strlen(name) != n || n > MODEL_NAME_BYTES_MAX || strlen(version) != n_version;
        snprintf(q->name, sizeof(q->name), "%s", name);
        snprintf(q->version, sizeof(q->version), "%s", version);
    } else {
        http_x_reply(x, status, NULL, eb.text, strlen(eb.text));
    }
    json_put(body);
    buf_free(&text);
    return good;
}

static void reply_unknown(struct http_x *x, const struct question *q, bool grpc,
                          const struct stats_served *s) {
    char text[2 * MODEL_NAME_BYTES_MAX + 80];
    const bool versioned = !api_version_is_served(q->version);
    snprintf(text, sizeof(text), "Request for unknown model: '%s'%s%s is not found", q->name,
             versioned ? " version " : "", versioned ? q->version : "");
    if (grpc)
        http_x_reply(x, 404, NULL, text, strlen(text));
    else
        s->reply_error(s->arg, x, 404, text);
}

static void reply_json(struct http_x *x, const struct grpc_method *m, struct buf *json,
                       const struct stats_served *s) {
    struct buf out = BUF_INIT;
    if (m == NULL) {
        if (json->failed)
            s->reply_error(s->arg, x, 503, err_text(ERR_NO_MEMORY));
        else
            http_x_reply(x, 200, "application/json", json->data, json->len);
        return;
    }
    grpc_put_made(&out, m->out, json);
    if (out.failed)
        http_x_reply(x, 503, NULL, "out of memory", 13);
    else
        http_x_reply(x, 200, GRPC_TYPE, out.data, out.len);
    buf_free(&out);
}

void stats_reply(struct http_x *x, const struct api_path *path, const char *name,
                 const struct stats_served *s) {
    const struct grpc_method *m =
        path->frames == API_FRAMES_GRPC ? grpc_method_find(path->path) : NULL;
    struct question q = {.version = ""};
    struct buf json = BUF_INIT;
    snprintf(q.name, sizeof(q.name), "%s", name);
    if (m != NULL && !read_message(&q, x, m)) return;
    if (!api_version_is_served(q.version) || (put_all(&json, s, &q) == 0 && !json.failed))
        reply_unknown(x, &q, m != NULL, s);
    else
        reply_json(x, m, &json, s);
    buf_free(&json);
}
