/* recorder: the loop thread makes lines, another one writes them. */
#include "coordinator/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/base64.h"
#include "common/base/buf.h"
#include "common/base/build.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/whole_file.h"
#include "proto/json_lex.h"

enum { NAMES_MAX = 100, LAST_LINE_BYTES = 256, PATH_BYTES = 4096 };

struct recorder {
    char path[PATH_BYTES];
    int fd;
    uint64_t start_us, left; /* bytes that may still be written, but for the last line */
    struct buf line;         /* being made */
    bool over;               /* nothing more is taken */
    pthread_t thread;
    pthread_mutex_t lock; /* held for a copy of a line; guards what follows */
    pthread_cond_t more;
    struct buf waiting;
    bool closing;
    int error; /* errno of a write that failed; 0: none has */
};

/* ---- the thread that writes */

static void *writer(void *arg) {
    struct recorder *rec = arg;
    struct buf out = BUF_INIT;
    pthread_mutex_lock(&rec->lock);
    for (;;) {
        while (rec->waiting.len == 0 && !rec->closing) pthread_cond_wait(&rec->more, &rec->lock);
        if (rec->waiting.len == 0) break;
        struct buf taken = rec->waiting;
        rec->waiting = out;
        const bool failed = rec->error != 0;
        pthread_mutex_unlock(&rec->lock);
        const int error = failed ? 0 : whole_write(rec->fd, taken.data, taken.len);
        buf_clear(&taken);
        out = taken;
        pthread_mutex_lock(&rec->lock);
        if (error != 0) rec->error = error;
    }
    pthread_mutex_unlock(&rec->lock);
    buf_free(&out);
    return NULL;
}

/* ---- lines */

static void hand_over(struct recorder *rec) {
    buf_append(&rec->waiting, rec->line.data, rec->line.len);
    pthread_cond_signal(&rec->more);
}

/* rec->line gets its beginning. False: the recording has ended. */
static bool begin(struct recorder *rec, const char *event) {
    if (rec == NULL || rec->over) return false;
    buf_clear(&rec->line);
    buf_printf(&rec->line, "{\"event\":\"%s\",\"us\":%llu", event,
               (unsigned long long)(clock_us() - rec->start_us));
    return true;
}

static void put_str(struct recorder *rec, const char *key, const char *s) {
    buf_printf(&rec->line, ",\"%s\":", key);
    buf_json_str(&rec->line, s, strlen(s));
}

static void put_u64(struct recorder *rec, const char *key, uint64_t v) {
    buf_printf(&rec->line, ",\"%s\":%llu", key, (unsigned long long)v);
}

static void put_bool(struct recorder *rec, const char *key, bool v) {
    buf_printf(&rec->line, ",\"%s\":%s", key, v ? "true" : "false");
}

static void put_f64(struct recorder *rec, const char *key, double v) {
    buf_printf(&rec->line, ",\"%s\":", key);
    buf_json_double(&rec->line, v);
}

/* Nothing more comes; the last line of the file says why, where it can still be written. */
static void end(struct recorder *rec, const char *why) {
    begin(rec, "closed");
    put_str(rec, "why", why);
    buf_puts(&rec->line, "}\n");
    rec->over = true;
    pthread_mutex_lock(&rec->lock);
    if (!rec->line.failed && rec->line.len <= LAST_LINE_BYTES) hand_over(rec);
    pthread_mutex_unlock(&rec->lock);
}

static void give_up(struct recorder *rec, const char *why) {
    log_error("record", "event=ended file=%s detail=\"%s\"", rec->path, why);
    end(rec, why);
}

/* rec->line is whole. */
static void commit(struct recorder *rec) {
    bool slow = false;
    buf_puts(&rec->line, "}\n");
    if (rec->line.failed) {
        buf_free(&rec->line);
        give_up(rec, "no memory");
        return;
    }
    if (rec->line.len > rec->left) {
        give_up(rec, "it has the size that " RECORDER_ENV_MIB " allows");
        return;
    }
    rec->left -= rec->line.len;
    pthread_mutex_lock(&rec->lock);
    const int error = rec->error;
    if (rec->waiting.len > 0 && rec->waiting.len + rec->line.len > RECORDER_WAITING_BYTES_MAX)
        slow = true;
    else
        hand_over(rec);
    const bool no_memory = rec->waiting.failed;
    pthread_mutex_unlock(&rec->lock);
    if (error != 0) {
        give_up(rec, strerror(error));
    } else if (slow) {
        give_up(rec, "the disk is too slow");
    } else if (no_memory) {
        give_up(rec, "no memory");
    }
}

/* ---- bodies */

/* As text where it is UTF-8, so that people can read it. */
static void put_body(struct recorder *rec, const char *body, size_t n) {
    struct buf *b = &rec->line;
    const size_t before = b->len;
    struct json_span span;
    buf_puts(b, ",\"body\":");
    const size_t at = b->len;
    buf_json_str(b, body, n);
    if (b->failed) return;
    struct json_lex lex = {.p = (const unsigned char *)b->data, .n = b->len, .at = at};
    if (json_lex_string(&lex, &span) && lex.at == b->len) return;
    b->len = before;
    buf_puts(b, ",\"bodyBase64\":\"");
    base64_put(b, body, n);
    buf_putc(b, '"');
}

void recorder_request(struct recorder *rec, const struct record_request *q) {
    if (!begin(rec, "request")) return;
    put_str(rec, "id", q->id);
    put_str(rec, "path", q->path);
    put_str(rec, "tenant", q->tenant);
    put_bool(rec, "stream", q->stream);
    if (q->has_tensors) put_u64(rec, "jsonBytes", q->n_json);
    put_body(rec, q->body, q->n);
    commit(rec);
}

/* ---- decisions */

static void put_list(struct recorder *rec, const char *key, const double *v, size_t n) {
    buf_printf(&rec->line, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_putc(&rec->line, ',');
        buf_json_double(&rec->line, v[i]);
    }
    buf_putc(&rec->line, ']');
}

/* What POLICY_COST looks at; of others there is nothing. */
static void put_cost(struct recorder *rec, const struct inst_view *v) {
    const double all[RECORD_COSTS] = {v->start_s,     v->token_s,           v->step_s,
                                      v->step_more_s, v->queue_s,           v->cached,
                                      v->computes,    (double)v->n_prompts, (double)v->n_decoding};
    if (!(v->token_s > 0)) return;
    put_list(rec, "cost", all, RECORD_COSTS);
    if (v->peer_rate != NULL) put_list(rec, "rates", v->peer_rate, v->n_peers);
}

static void put_view(struct recorder *rec, const struct inst_view *v) {
    struct buf *b = &rec->line;
    buf_printf(b, "{\"id\":%u", v->id);
    put_u64(rec, "group", v->group);
    put_bool(rec, "open", v->open);
    put_u64(rec, "prefillTokens", v->prefill_tokens);
    put_f64(rec, "prefillRate", v->prefill_rate);
    put_u64(rec, "links", v->links);
    put_f64(rec, "pass", v->pass);
    put_u64(rec, "slotsTotal", v->slots_total);
    put_u64(rec, "blocksTotal", v->blocks_total);
    put_u64(rec, "slotsBooked", v->slots_booked);
    put_u64(rec, "blocksBooked", v->blocks_booked);
    put_u64(rec, "blocksAvail", v->blocks_avail);
    put_f64(rec, "tokenSum", v->token_sum);
    buf_puts(b, ",\"peers\":[");
    for (size_t i = 0; i < v->n_peers; i++)
        buf_printf(b, i > 0 ? ",%u" : "%u", (unsigned)v->peers[i]);
    buf_putc(b, ']');
    if (v->whole)
        put_list(rec, "free", (const double[]){(double)v->slots_free, (double)v->blocks_free}, 2);
    put_cost(rec, v);
    buf_putc(b, '}');
}

static void put_views(struct recorder *rec, const char *key, const struct inst_view *v, size_t n) {
    buf_printf(&rec->line, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_putc(&rec->line, ',');
        put_view(rec, &v[i]);
    }
    buf_putc(&rec->line, ']');
}

void recorder_decision(struct recorder *rec, const struct record_decision *d) {
    if (!begin(rec, "decision")) return;
    put_str(rec, "id", d->id);
    put_u64(rec, "epoch", d->epoch);
    put_u64(rec, "prompts", d->demand.prompts);
    put_u64(rec, "slots", d->demand.slots);
    put_u64(rec, "blocks", d->demand.blocks);
    put_u64(rec, "promptTokens", d->demand.prompt_tokens);
    put_f64(rec, "newTokens", d->demand.new_tokens);
    put_bool(rec, "whole", d->demand.whole);
    put_f64(rec, "kvTokenBytes", d->kv_token_bytes);
    put_u64(rec, "avoidP", d->avoid_p);
    put_u64(rec, "avoidD", d->avoid_d);
    put_u64(rec, "turn", d->turn);
    if (d->demand.token_target_s > 0) put_f64(rec, "tokenTargetS", d->demand.token_target_s);
    if (d->demand.home != 0) put_u64(rec, "home", d->demand.home);
    put_views(rec, "p", d->p, d->n_p);
    put_views(rec, "d", d->d, d->n_d);
    if (d->found)
        buf_printf(&rec->line, ",\"choice\":[%u,%u]",
                   (unsigned)(d->pick.alone ? d->d[d->pick.d].id : d->p[d->pick.p].id),
                   (unsigned)d->d[d->pick.d].id);
    else
        buf_puts(&rec->line, ",\"choice\":null");
    commit(rec);
}

/* ---- answers and faults */

static void put_tokens(struct recorder *rec, const struct emitted *tokens, size_t n) {
    char item[EMITTED_BYTES_MAX];
    buf_puts(&rec->line, ",\"tokens\":\"");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_putc(&rec->line, ',');
        buf_append(&rec->line, item, emitted_format(item, &tokens[i]));
    }
    buf_putc(&rec->line, '"');
}

void recorder_first(struct recorder *rec, const char *id, uint32_t epoch, const char *seed,
                    const struct emitted *tokens, size_t n_tokens) {
    if (!begin(rec, "first")) return;
    put_str(rec, "id", id);
    put_u64(rec, "epoch", epoch);
    put_str(rec, "seed", seed);
    put_tokens(rec, tokens, n_tokens);
    commit(rec);
}

void recorder_tokens(struct recorder *rec, const char *id, uint32_t epoch,
                     const struct emitted *tokens, size_t n_tokens) {
    if (n_tokens == 0 || !begin(rec, "tokens")) return;
    put_str(rec, "id", id);
    put_u64(rec, "epoch", epoch);
    put_tokens(rec, tokens, n_tokens);
    commit(rec);
}

void recorder_lost(struct recorder *rec, const struct record_loss *l) {
    if (!begin(rec, "lost")) return;
    put_str(rec, "id", l->id);
    put_u64(rec, "epoch", l->epoch);
    put_str(rec, "cause", l->cause);
    put_u64(rec, "p", l->p);
    put_u64(rec, "d", l->d);
    put_u64(rec, "kept", l->n_kept);
    commit(rec);
}

void recorder_end(struct recorder *rec, const char *id, int status, const char *cause,
                  unsigned n_attempts) {
    if (!begin(rec, "end")) return;
    put_str(rec, "id", id);
    put_u64(rec, "status", (uint64_t)status);
    put_str(rec, "cause", cause);
    put_u64(rec, "attempts", n_attempts);
    commit(rec);
}

void recorder_instance(struct recorder *rec, uint32_t id, const char *name, const char *role,
                       const char *what, const char *why) {
    if (!begin(rec, "instance")) return;
    put_u64(rec, "instance", id);
    put_str(rec, "name", name);
    put_str(rec, "role", role);
    put_str(rec, "what", what);
    put_str(rec, "why", why);
    commit(rec);
}

/* ---- its life */

/* A file that was not there. -1: errno says why not. */
static int make_file(char out[PATH_BYTES], const char *path) {
    int fd = -1;
    for (int i = 0; i < NAMES_MAX && fd < 0; i++) {
        const int n = i == 0 ? snprintf(out, PATH_BYTES, "%s", path)
                             : snprintf(out, PATH_BYTES, "%s.%d", path, i);
        if (n >= PATH_BYTES) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST) return -1;
    }
    return fd;
}

static void put_start(struct recorder *rec, const struct schedule_conf *c) {
    (void)begin(rec, "start");
    put_u64(rec, "version", RECORD_VERSION);
    put_str(rec, "baton", BATON_VERSION);
    put_str(rec, "commit", build_commit());
    put_u64(rec, "unixUs", clock_unix_us());
    put_str(rec, "policy", schedule_policy_name(c->policy));
    put_bool(rec, "limitDemand", c->limit_demand);
    put_f64(rec, "resLimitRate", c->res_limit_rate);
    put_list(rec, "coefficients", c->coefficients,
             sizeof(c->coefficients) / sizeof(c->coefficients[0]));
    if (c->policy == POLICY_COST) {
        put_list(rec, "weights", c->weights, sizeof(c->weights) / sizeof(c->weights[0]));
        put_f64(rec, "localTokensMax", c->local_tokens_max);
        put_u64(rec, "prefillQueueMax", c->prefill_queue_max);
        put_f64(rec, "tokenTargetS", c->token_target_s);
    }
    if (c->policy == POLICY_CACHE_AFFINITY)
        put_list(rec, "freeMin", (const double[]){c->slots_free_min, c->blocks_free_min}, 2);
    commit(rec);
}

enum err recorder_open(struct recorder **out, const char *path, uint64_t bytes_max,
                       const struct schedule_conf *c, struct errbuf *eb) {
    struct recorder *rec = calloc(1, sizeof(*rec));
    *out = NULL;
    if (rec == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for " RECORDER_ENV);
    rec->fd = make_file(rec->path, path);
    if (rec->fd < 0) {
        const int error = errno;
        free(rec);
        return err_set(eb, ERR_BAD_CONFIG, RECORDER_ENV ": cannot make the file %s: %s", path,
                       strerror(error));
    }
    rec->start_us = clock_us();
    rec->left = bytes_max > LAST_LINE_BYTES ? bytes_max - LAST_LINE_BYTES : 0;
    pthread_mutex_init(&rec->lock, NULL);
    pthread_cond_init(&rec->more, NULL);
    if (pthread_create(&rec->thread, NULL, writer, rec) != 0) {
        pthread_cond_destroy(&rec->more);
        pthread_mutex_destroy(&rec->lock);
        close(rec->fd);
        free(rec);
        return err_set(eb, ERR_NO_MEMORY, RECORDER_ENV ": no thread to write the file");
    }
    log_warn("record", "event=begun file=%s detail=\"clients' texts are written to it\"",
             rec->path);
    put_start(rec, c);
    *out = rec;
    return ERR_OK;
}

enum err recorder_open_env(struct recorder **out, const struct schedule_conf *c,
                           struct errbuf *eb) {
    const char *path = getenv(RECORDER_ENV), *mib = getenv(RECORDER_ENV_MIB);
    unsigned long long n = RECORDER_MIB_DEFAULT;
    char *rest;
    *out = NULL;
    if (path == NULL || path[0] == 0) return ERR_OK;
    if (mib != NULL && mib[0] != 0) {
        errno = 0;
        n = strtoull(mib, &rest, 10);
        if (errno != 0 || *rest != 0 || mib[0] < '0' || mib[0] > '9' || n < 1 ||
            n > RECORDER_MIB_MAX)
            return err_set(eb, ERR_BAD_CONFIG,
                           RECORDER_ENV_MIB " must be an integer from 1 to %d, got \"%.40s\"",
                           RECORDER_MIB_MAX, mib);
    }
    return recorder_open(out, path, n << 20, c, eb);
}

void recorder_close(struct recorder **recp) {
    struct recorder *rec = *recp;
    if (rec == NULL) return;
    const bool was_over = rec->over;
    if (!was_over) end(rec, "stopped");
    pthread_mutex_lock(&rec->lock);
    rec->closing = true;
    pthread_cond_signal(&rec->more);
    pthread_mutex_unlock(&rec->lock);
    pthread_join(rec->thread, NULL);
    if (!was_over && rec->error != 0) /* it was not noticed yet */
        log_error("record", "event=ended file=%s detail=\"%s\"", rec->path, strerror(rec->error));
    if (close(rec->fd) != 0)
        log_error("record", "event=not_closed file=%s detail=\"%s\"", rec->path, strerror(errno));
    pthread_cond_destroy(&rec->more);
    pthread_mutex_destroy(&rec->lock);
    buf_free(&rec->waiting);
    buf_free(&rec->line);
    free(rec);
    *recp = NULL;
}
