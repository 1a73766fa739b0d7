/* worker_engine: the engine thread: obeys commands, steps the engine, and tells what came of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/instance/worker_priv.h"

enum { IDLE_WAIT_MS = 500 }; /* an idle engine thread shows so often that it lives */

static struct seq **find_known(struct worker *w, uint64_t seq_id) {
    struct seq **p = &w->known[worker_bucket(seq_id)];
    while (*p != NULL && (*p)->seq_id != seq_id) p = &(*p)->engine_next;
    return p;
}

static void forget_known(struct worker *w, uint64_t seq_id) {
    struct seq **p = find_known(w, seq_id);
    if (*p != NULL) *p = (*p)->engine_next;
}

/* m, NULL or not, with the events of this step. */
static struct worker_mail *mail_add(struct worker *w, struct worker_mail *m, enum mail_kind kind,
                                    uint64_t seq_id) {
    if (m == NULL) return NULL;
    *m = (struct worker_mail){.kind = kind, .seq_id = seq_id};
    *w->out_last = &m->head;
    w->out_last = &m->head.next;
    return m;
}

static struct worker_mail *mail_new(struct worker *w, enum mail_kind kind, uint64_t seq_id,
                                    size_t extra) {
    return mail_add(w, malloc(sizeof(struct worker_mail) + extra), kind, seq_id);
}

/* An event for which the room was taken with the sequence. NULL: it is used, the sequence has
 * failed before. */
static struct worker_mail *mail_spare(struct worker *w, struct worker_mail **spare,
                                      enum mail_kind kind, uint64_t seq_id) {
    struct worker_mail *m = *spare;
    *spare = NULL;
    return mail_add(w, m, kind, seq_id);
}

static void flush_mail(struct worker *w) {
    mailbox_put(w->mail, w->out);
    w->out = NULL;
    w->out_last = &w->out;
}

static void learn_table(struct worker *w, struct seq *s, int *n_held) {
    int held = 0;
    if (engine_seq_blocks(w->engine, s->seq_id, &s->table, &s->n_blocks, &held) != ERR_OK) {
        s->table = NULL;
        s->n_blocks = 0;
    }
    if (n_held != NULL) *n_held = held;
}

static void on_engine_failed(void *arg, uint64_t seq_id, enum err e) {
    struct worker *w = arg;
    struct seq *s = *find_known(w, seq_id);
    struct worker_mail *m =
        s != NULL ? mail_spare(w, &s->spare_failure, MAIL_FAILED, seq_id) : NULL;
    if (m == NULL) return;
    m->e = e;
    if (s->kind == SEQ_PREFILL) return; /* it holds its blocks all the same */
    m->last = true;
    forget_known(w, seq_id);
}

/* An event of it cannot be told: what follows would be an answer with a hole. The blocks of a
 * prefill may be on their way to D: it goes on until its owner, who hears of it, has let go. */
static void lose(struct worker *w, uint64_t seq_id) {
    const struct seq *s = *find_known(w, seq_id);
    if (s == NULL || s->kind != SEQ_PREFILL) engine_seq_cancel(w->engine, seq_id);
    on_engine_failed(w, seq_id, ERR_NO_MEMORY);
}

static void mail_admitted(struct worker *w, struct seq *s, int n_cached) {
    int n_held = 0;
    learn_table(w, s, &n_held);
    struct worker_mail *m =
        mail_new(w, MAIL_ADMITTED, s->seq_id, (size_t)s->n_blocks * sizeof(int32_t));
    if (m == NULL) {
        lose(w, s->seq_id);
        return;
    }
    m->u.admitted.n_blocks = s->n_blocks;
    m->u.admitted.n_held = n_held;
    m->u.admitted.n_cached = n_cached;
    if (s->n_blocks > 0) memcpy(m->table, s->table, (size_t)s->n_blocks * sizeof(int32_t));
}

static void on_engine_admitted(void *arg, uint64_t seq_id, int n_cached_tokens) {
    struct worker *w = arg;
    struct seq *s = *find_known(w, seq_id);
    if (s != NULL) mail_admitted(w, s, n_cached_tokens);
}

static void on_engine_token(void *arg, uint64_t seq_id, const struct token_event *ev) {
    struct worker *w = arg;
    struct seq *s = *find_known(w, seq_id);
    if (s == NULL) return;
    /* One that waits after its first tokens holds its blocks until it is told what to do. */
    const bool waits = s->kind == SEQ_PREFILL || s->kind == SEQ_STAGED;
    bool last = ev->finish != FINISH_NONE && !waits && --s->n_live == 0;
    struct worker_mail *m = mail_new(w, MAIL_TOKEN, seq_id, 0);
    if (m == NULL) {
        lose(w, seq_id);
        return;
    }
    m->u.token = *ev;
    m->last = last;
    if (last) forget_known(w, seq_id);
}

static void on_engine_kv(void *arg, uint64_t seq_id, int layer, int first, int n) {
    struct worker *w = arg;
    struct seq *s = *find_known(w, seq_id);
    if (s == NULL || s->ev.on_kv == NULL) return;
    if (s->table == NULL) learn_table(w, s, NULL);
    if (s->table != NULL) s->ev.on_kv(s->arg, seq_id, s->table, layer, first, n);
}

static void on_engine_prompt_logprob(void *arg, uint64_t seq_id, int position,
                                     const struct token_event *ev) {
    struct worker *w = arg;
    struct worker_mail *m = mail_new(w, MAIL_PROMPT_LOGPROB, seq_id, 0);
    if (m == NULL) {
        lose(w, seq_id);
        return;
    }
    m->u.prompt.position = position;
    m->u.prompt.ev = *ev;
}

static void on_engine_embedded(void *arg, uint64_t seq_id, const float *vector,
                               const float *scores) {
    struct worker *w = arg;
    const struct model_info *model = engine_model(w->engine);
    const size_t n = (size_t)model->hidden, n_scores = scores != NULL ? (size_t)model->n_labels : 0;
    struct worker_mail *m =
        mail_new(w, MAIL_EMBEDDED, seq_id, (n + n_scores) * sizeof(m->table[0]));
    if (m == NULL) {
        lose(w, seq_id);
        return;
    }
    m->last = true;
    m->u.embedded.n_vector = (int)n;
    m->u.embedded.n_scores = (int)n_scores;
    memcpy(m->table, vector, n * sizeof(float));
    if (scores != NULL) memcpy(m->table + n, scores, n_scores * sizeof(float));
    forget_known(w, seq_id);
}

static void refuse(struct worker *w, struct seq *s, enum err e, const char *text) {
    struct worker_mail *m = mail_spare(w, &s->spare_failure, MAIL_REFUSED, s->seq_id);
    if (m == NULL) return;
    m->e = e;
    m->last = true;
    snprintf(m->u.text, sizeof(m->u.text), "%s", text);
}

static void do_add(struct worker *w, struct command *c) {
    struct errbuf eb = {0};
    c->opts.ids = c->ids;
    c->opts.sampling = &c->sampling;
    /* Known before the engine is asked: nothing says that its events wait for the next step. */
    *find_known(w, c->seq_id) = c->seq;
    enum err e = engine_seq_add(w->engine, &c->opts, &eb);
    if (e != ERR_OK) {
        forget_known(w, c->seq_id);
        refuse(w, c->seq, e, eb.text[0] != '\0' ? eb.text : err_text(e));
    } else if (c->opts.kind == SEQ_IMPORT || c->opts.kind == SEQ_LEND ||
               c->opts.kind == SEQ_FETCH) {
        mail_admitted(w, c->seq, 0);
    }
}

static void do_start(struct worker *w, struct command *c) {
    struct seq *s = *find_known(w, c->seq_id);
    if (s == NULL) return; /* ended before it could start */
    enum err e = engine_seq_start(w->engine, c->seq_id, c->lists, c->n_ids);
    for (size_t i = 0; i < c->n_ids; i++) s->n_live -= c->lists[i].n == 0; /* they do not run */
    s->kind = SEQ_IMPORT; /* one that was staged, too: from here on there is no difference */
    if (e == ERR_OK) return;
    engine_seq_cancel(w->engine, c->seq_id);
    on_engine_failed(w, c->seq_id, e);
}

static void do_beam_start(struct worker *w, struct command *c) {
    if (*find_known(w, c->seq_id) == NULL) return; /* ended before it could start */
    enum err e = engine_beam_start(w->engine, c->seq_id, c->first, c->n_ids);
    if (e == ERR_OK) return;
    engine_seq_cancel(w->engine, c->seq_id);
    on_engine_failed(w, c->seq_id, e);
}

/* With the last choice the engine ends the sequence; who stopped it cancels it then, and its record
 * waits for that. */
static void do_stop(struct worker *w, struct command *c) {
    struct seq *s = *find_known(w, c->seq_id);
    if (s != NULL && engine_choice_stop(w->engine, c->seq_id, c->choice) == ERR_OK) s->n_live--;
}

static void do_end(struct worker *w, struct command *c) {
    if (*find_known(w, c->seq_id) == c->seq) {
        forget_known(w, c->seq_id);
        enum err e = ERR_NOT_FOUND;
        if (c->kind == CMD_RELEASE) e = engine_seq_release(w->engine, c->seq_id);
        if (c->kind == CMD_KEEP) e = engine_seq_keep(w->engine, c->seq_id, c->n_blocks);
        if (e != ERR_OK) engine_seq_cancel(w->engine, c->seq_id);
    }
    mail_spare(w, &c->seq->spare_end, MAIL_DONE, c->seq_id)->u.cmd = c;
}

static void do_tested(struct worker *w, struct command *c) {
    struct worker_mail *m = mail_spare(w, &c->answer, MAIL_TESTED, 0);
    if (c->kind == CMD_HOLD) w->held = c->held;
    m->u.cmd = c;
    m->e = c->kind == CMD_HOLD ? ERR_OK : engine_self_test(w->engine);
}

static void obey(struct worker *w, struct command *c) {
    switch (c->kind) {
    case CMD_ADD: do_add(w, c); break;
    case CMD_START: do_start(w, c); break;
    case CMD_BEAM_START: do_beam_start(w, c); break;
    case CMD_STOP: do_stop(w, c); break;
    case CMD_PAUSE: (void)engine_seq_pause(w->engine, c->seq_id, c->held); break;
    case CMD_CANCEL:
    case CMD_RELEASE:
    case CMD_KEEP: do_end(w, c); return; /* the command lives in the sequence's record */
    case CMD_SELF_TEST:
    case CMD_HOLD: do_tested(w, c); return;
    }
    worker_command_free(c);
}

static struct command *take_commands(struct worker *w, bool wait, bool *stop) {
    pthread_mutex_lock(&w->mutex);
    if (wait && w->first == NULL && !w->stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += IDLE_WAIT_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        while (w->first == NULL && !w->stop) {
            if (pthread_cond_timedwait(&w->wake, &w->mutex, &until) == ETIMEDOUT) break;
        }
    }
    struct command *list = w->first;
    w->first = NULL;
    w->last = &w->first;
    w->n_counted = 0;
    *stop = w->stop;
    pthread_mutex_unlock(&w->mutex);
    return list;
}

/* *before: rows of all steps until then. */
static void meter_step(struct worker *w, uint64_t *before) {
    struct metric *m = atomic_load_explicit(&w->step_tokens, memory_order_relaxed);
    struct engine_stats st;
    if (m == NULL) return;
    engine_stats(w->engine, &st);
    const uint64_t n = st.prompt_tokens + st.generated_tokens;
    if (n > *before) metric_observe(m, (double)(n - *before));
    *before = n;
}

static bool calibrate(struct worker *w) {
    if (!atomic_load_explicit(&w->calibrating, memory_order_relaxed)) return false;
    const bool more = engine_calibrate(w->engine);
    if (!more) atomic_store_explicit(&w->calibrating, false, memory_order_relaxed);
    return more;
}

void *worker_engine_main(void *arg) {
    struct worker *w = arg;
    bool busy = true;
    uint64_t n_rows = 0;
    pthread_setname_np(pthread_self(), "engine");
    for (;;) {
        bool stop = false;
        struct command *c = take_commands(w, !busy, &stop);
        while (c != NULL) {
            struct command *next = c->next; /* obey() gives c away */
            obey(w, c);
            c = next;
        }
        flush_mail(w); /* a cancel is answered before the next step, which may be long */
        if (stop) return NULL;
        engine_set_prefill_share(w->engine,
                                 atomic_load_explicit(&w->prefill_share, memory_order_relaxed));
        busy = !w->held && (engine_step(w->engine) || calibrate(w));
        flush_mail(w);
        if (busy) meter_step(w, &n_rows);
        atomic_store_explicit(&w->last_step_us, clock_us(), memory_order_relaxed);
    }
}

void worker_engine_events(struct worker *w) {
    const struct engine_events ev = {
        .on_token = on_engine_token,
        .on_kv = on_engine_kv,
        .on_admitted = on_engine_admitted,
        .on_prompt_logprob = on_engine_prompt_logprob,
        .on_embedded = on_engine_embedded,
        .on_failed = on_engine_failed,
        .arg = w,
    };
    engine_set_events(w->engine, &ev);
}
