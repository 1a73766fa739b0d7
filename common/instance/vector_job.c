/* vector_job: see the header. A few texts of a body are with the engine at a time, so that a body
 * of thousands leaves its queue to others; as one ends the next goes in. A text that the engine has
 * no place for waits for another of its own body to end. */
#include "common/instance/vector_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/base/clock.h"
#include "common/base/heap.h"
#include "common/endpoint/vectors.h"
#include "common/instance/inst_internal.h"
#include "common/instance/req_read.h"

enum { AT_ONCE = 64, QUEUE_SHARE = 4 }; /* at most, and that part of the queue */

struct vector_job;

struct lane {
    struct vector_job *job;
    size_t text;
    uint64_t seq_id; /* 0: not with the engine */
    bool again;      /* the text was refused for want of a place */
};

struct vector_job {
    struct instance *in;
    struct http_x *x;          /* NULL: the client is gone */
    struct pool_job *pool_job; /* reading, or writing the answer */
    bool in_pool;
    atomic_bool cancelled;
    char tenant[TENANT_BYTES_MAX + 1];
    struct endpoint_ask ask;
    struct vectors_req *v;
    struct lane lanes[AT_ONCE];
    size_t n_started, n_done, n_row;
    size_t n_running, width; /* texts with the engine, and how many may be */
    uint64_t arrival_us;
    float *rows;    /* [n_texts][n_row] */
    uint64_t taken; /* of BUDGET_ANSWER_BYTES: rows, ids, and the body where it is repeated */
    struct api_answer answer;
};

static void body_free(struct vector_job *j) {
    if (j->ask.body != NULL) heap_give(j->ask.body, j->ask.n + 1);
    j->ask.body = NULL;
}

static void job_free(struct vector_job *j) {
    j->in->n_vector_jobs--;
    budget_give(&j->in->budget, BUDGET_ANSWER_BYTES, j->taken);
    vectors_free(&j->v); /* its strings lie in the body */
    body_free(j);
    buf_free(&j->answer.body);
    free(j->rows);
    free(j);
}

static void leave_engine(struct vector_job *j) {
    for (int i = 0; i < AT_ONCE; i++) {
        if (j->lanes[i].seq_id == 0) continue;
        worker_cancel(j->in->worker, j->lanes[i].seq_id, NULL, NULL);
        j->lanes[i].seq_id = 0;
    }
}

static void on_gone(void *arg) {
    struct vector_job *j = arg;
    j->x = NULL;
    atomic_store(&j->cancelled, true);
    leave_engine(j);
    if (!j->in_pool || text_pool_drop(j->in->text_pool, j->pool_job)) job_free(j);
}

/* Ends the job with j->answer. */
static void reply(struct vector_job *j) {
    if (j->x != NULL) {
        http_x_on_close(j->x, NULL, NULL);
        instance_reply(j->x, &j->answer);
        j->answer.body = BUF_INIT;
    }
    job_free(j);
}

static void fail(struct vector_job *j, int status, const char *text) {
    leave_engine(j);
    if (status == 429 || status == 503) http_x_set_header(j->x, "Retry-After", "1");
    endpoint_error(j->in->endpoint, j->ask.path, status, text, &j->answer);
    reply(j);
}

/* ---- the answer */

static void write_work(void *arg) {
    struct vector_job *j = arg;
    vectors_answer(j->in->endpoint, j->v, j->rows, &j->answer);
}

static void write_done(void *arg) {
    struct vector_job *j = arg;
    j->in_pool = false;
    reply(j);
}

static void write_answer(struct vector_job *j) {
    enum err e =
        text_pool_start(j->in->text_pool, j->tenant, &j->pool_job, write_work, write_done, j);
    if (e == ERR_OK)
        j->in_pool = true;
    else
        fail(j, 429, "Too many requests");
}

/* ---- the engine */

static void feed(struct vector_job *j);

/* Texts of a job that may be with the engine at once. */
static size_t width_max(const struct vector_job *j) {
    const size_t n = (size_t)j->in->conf.queue_max / QUEUE_SHARE;
    return n < 1 ? 1 : n > AT_ONCE ? AT_ONCE : n;
}

static void on_embedded(void *arg, uint64_t seq_id, const float *vector, const float *scores) {
    struct lane *l = arg;
    struct vector_job *j = l->job;
    (void)seq_id;
    memcpy(j->rows + l->text * j->n_row, j->v->score ? scores : vector, j->n_row * sizeof(float));
    l->seq_id = 0;
    j->n_running--;
    if (j->width < width_max(j)) j->width++; /* the engine takes some again */
    if (++j->n_done == j->v->n_texts)
        write_answer(j);
    else
        feed(j);
}

/* No place for the text of a free lane: it waits for one of those that are with the engine to end,
 * and there are no more of them at once than now. False: there are none. */
static bool waits_for_own(struct vector_job *j, struct lane *l) {
    if (j->n_running == 0) return false;
    l->again = true;
    j->width = j->n_running;
    return true;
}

static void on_refused(void *arg, uint64_t seq_id, enum err e, const char *text) {
    struct lane *l = arg;
    (void)seq_id;
    l->seq_id = 0;
    l->job->n_running--;
    if (e == ERR_BUSY) {
        if (!waits_for_own(l->job, l)) fail(l->job, 429, "Too many requests");
    } else
        fail(l->job, e == ERR_INVALID || e == ERR_TOO_LARGE ? 400 : 503, text);
}

static void on_failed(void *arg, uint64_t seq_id, enum err e) {
    struct lane *l = arg;
    (void)seq_id;
    l->seq_id = 0;
    fail(l->job, e == ERR_NO_MEMORY ? 503 : 500, err_text(e));
}

/* With the text that was refused, or the next one. */
static enum err lane_start(struct vector_job *j, struct lane *l) {
    static const struct worker_events events = {
        .on_embedded = on_embedded, .on_refused = on_refused, .on_failed = on_failed};
    const size_t text = l->again ? l->text : j->n_started++;
    const struct vectors_text *t = &j->v->texts[text];
    struct worker *w = j->in->worker;
    const struct infer_req who = {.head.tenant = j->tenant[0] != '\0' ? j->tenant : NULL};
    *l = (struct lane){.job = j, .text = text, .seq_id = worker_next_seq_id(w)};
    const struct seq_opts o = {
        .seq_id = l->seq_id,
        .kind = SEQ_EMBED,
        .ids = t->ids.ids,
        .n_ids = t->ids.n,
        .n_prompt = t->ids.n,
        .priority = 5,
        .tenant = worker_tenant(&who),
        .prefix_salt = worker_prefix_salt(w, &who),
        .embed = {.pooling = POOL_NONE, .score = j->v->score, .n_first = (int)t->n_first}};
    enum err e = worker_add(w, &o, &events, l);
    if (e != ERR_OK)
        l->seq_id = 0;
    else
        j->n_running++;
    return e;
}

/* Fills what lanes are free. May end the job. */
static void feed(struct vector_job *j) {
    for (int i = 0; i < AT_ONCE && j->n_running < j->width; i++) {
        struct lane *l = &j->lanes[i];
        if (l->seq_id != 0 || (!l->again && j->n_started == j->v->n_texts)) continue;
        enum err e = lane_start(j, l);
        if (e == ERR_OK) continue;
        if (e == ERR_BUSY && waits_for_own(j, l)) return;
        fail(j, e == ERR_BUSY ? 429 : 503, e == ERR_BUSY ? "Too many requests" : err_text(e));
        return;
    }
}

/* ---- reading */

static void read_work(void *arg) {
    struct vector_job *j = arg;
    const struct inst_conf *c = &j->in->conf;
    const struct vectors_limits limits = {.texts_max = (size_t)c->embed_texts_max,
                                          .tokens_max = (uint64_t)c->embed_tokens_max};
    (void)vectors_read(j->in->endpoint, &j->ask, &limits, &j->v, &j->answer);
}

static void begin(struct vector_job *j) {
    j->n_row = vectors_row(j->in->endpoint, j->v);
    const uint64_t rows = (uint64_t)j->v->n_texts * j->n_row * sizeof(float),
                   kept = j->v->body != NULL ? j->ask.n + j->v->body_bytes : 0,
                   bytes = rows + kept + j->v->n_tokens * sizeof(int32_t),
                   most = budget_limit(&j->in->budget, BUDGET_ANSWER_BYTES);
    if (j->v->body == NULL) body_free(j);
    if (bytes > most) {
        char text[208];
        budget_refused(&j->in->budget, BUDGET_ANSWER_BYTES);
        snprintf(text, sizeof(text),
                 "The vectors and their texts would have %llu bytes, all answers under way may "
                 "have %llu "
                 "(limits.answersMiB). Ask for fewer texts.",
                 (unsigned long long)bytes, (unsigned long long)most);
        fail(j, 400, text);
        return;
    }
    if (!budget_take(&j->in->budget, BUDGET_ANSWER_BYTES, bytes)) {
        fail(j, 503, "all answers together are too large at present");
        return;
    }
    j->taken = bytes;
    if ((j->rows = malloc(rows > 0 ? rows : 1)) == NULL) {
        fail(j, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    j->v->serial = worker_next_seq_id(j->in->worker);
    j->v->created_unix_s = (int64_t)time(NULL);
    j->v->arrival_us = j->arrival_us;
    j->width = width_max(j);
    if (j->v->n_texts == 0)
        write_answer(j);
    else
        feed(j);
}

static void read_done(void *arg) {
    struct vector_job *j = arg;
    j->in_pool = false;
    if (j->x == NULL)
        job_free(j);
    else if (j->v == NULL)
        reply(j);
    else
        begin(j);
}

void vector_job_start(struct instance *in, struct http_x *x, const struct api_path *path,
                      const char *tenant) {
    struct vector_job *j = calloc(1, sizeof(*j));
    size_t n = 0;
    char *copy = j != NULL ? req_body_copy(x, &n) : NULL;
    if (copy == NULL) {
        free(j);
        http_x_set_header(x, "Retry-After", "1");
        instance_reply_error(in, x, path, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    in->n_vector_jobs++;
    j->in = in;
    j->x = x;
    j->arrival_us = clock_us();
    snprintf(j->tenant, sizeof(j->tenant), "%s", tenant);
    j->ask = (struct endpoint_ask){
        .path = path, .name = "", .body = copy, .n = n, .cancelled = &j->cancelled};
    req_meta_read(&j->ask.meta, x);
    http_x_on_close(x, on_gone, j);
    if (text_pool_start(in->text_pool, j->tenant, &j->pool_job, read_work, read_done, j) ==
        ERR_OK) {
        j->in_pool = true;
        return;
    }
    fail(j, 429, "Too many requests");
}
