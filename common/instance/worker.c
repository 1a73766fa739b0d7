/* worker: the engine thread. Commands wait in a list under a mutex; events of one engine step go to
 * the loop in one mailbox put.
 *
 * A sequence has one record (struct seq) that both threads know: the loop thread by its table of
 * live sequences, the engine thread by its own. Which thread may free it follows from how the
 * sequence ends:
 *   - refused, failed or finished: the engine thread forgets the record and sends the event; the
 * loop thread frees the record with it;
 *   - cancelled or released by the loop: the loop thread forgets the record and sends the command
 * that lives inside it; the engine thread forgets it and sends it back as the "done" event, with
 * which it is freed. Events carry the id, never the record, so an event that was under way when the
 * loop cancelled finds no record and is dropped. */
#include "common/instance/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/entropy.h"
#include "common/base/log.h"
#include "common/engine/lora_set.h"
#include "common/engine/siphash.h"
#include "common/instance/mailbox.h"

enum {
    TABLE_SIZE = 1024,  /* buckets of each table of sequences; a power of two */
    IDLE_WAIT_MS = 500, /* an idle engine thread shows so often that it lives */
    WATCH_MS = 250,     /* the loop looks so often whether the engine thread gets on */
};

enum command_kind {
    CMD_ADD,
    CMD_START,
    CMD_BEAM_START,
    CMD_STOP,
    CMD_PAUSE,
    CMD_CANCEL,
    CMD_RELEASE,
    CMD_SELF_TEST,
    CMD_HOLD
};

struct command {
    struct command *next;
    enum command_kind kind;
    bool counted; /* against n_commands_max */
    uint64_t seq_id;
    struct seq
        *seq; /* CMD_ADD, CMD_CANCEL, CMD_RELEASE: the record; NULL when the loop knew none */
    struct seq_opts opts;      /* CMD_ADD: ids and sampling are the command's own, the adapter is a
                                  reference */
    int32_t *ids;              /* CMD_ADD; CMD_START: of all lists */
    struct first_ids *lists;   /* CMD_START: [n_ids] */
    struct token_event *first; /* CMD_BEAM_START: [n_ids] */
    int choice;                /* CMD_STOP */
    size_t n_ids;
    struct sampling sampling;
    loop_fn *done;                         /* CMD_CANCEL, CMD_RELEASE */
    bool held;                             /* CMD_HOLD, CMD_PAUSE */
    void (*tested)(void *arg, enum err e); /* CMD_SELF_TEST, CMD_HOLD */
    void *done_arg;
};

enum mail_kind {
    MAIL_ADMITTED,
    MAIL_REFUSED,
    MAIL_TOKEN,
    MAIL_PROMPT_LOGPROB,
    MAIL_FAILED,
    MAIL_DONE,
    MAIL_TESTED
};

struct worker_mail {
    struct mail head;
    enum mail_kind kind;
    bool last; /* the sequence has ended with this event */
    uint64_t seq_id;
    enum err e;
    union {
        struct {
            int n_blocks, n_held, n_cached;
        } admitted;
        char text[ERR_TEXT_BYTES_MAX];
        struct token_event token;
        struct {
            int position;
            struct token_event ev;
        } prompt;
        struct command *cmd; /* MAIL_DONE, MAIL_TESTED */
    } u;
    int32_t table[]; /* MAIL_ADMITTED */
};

struct seq {
    struct seq *loop_next;   /* chain of the loop's table */
    struct seq *engine_next; /* chain of the engine's table */
    uint64_t seq_id;
    enum seq_kind kind;
    struct worker_events ev;
    void *arg;
    uint64_t stopped[(CHOICES_MAX + 63) / 64]; /* loop thread: choices of which nothing is told */
    int n_live;           /* engine thread: choices that have not ended there */
    const int32_t *table; /* engine thread: block table once admitted */
    int n_blocks;
    struct command end; /* the cancel or release command */
};

struct worker {
    struct loop *loop;
    struct engine *engine;
    struct lora_set *loras;
    bool shared_prefixes;
    uint8_t salt_key[16];
    struct mailbox *mail;
    pthread_t thread;
    bool started;
    uint64_t last_seq_id;
    struct seq *live[TABLE_SIZE]; /* loop thread */
    struct loop_timer *watch;     /* loop thread, with what follows */
    uint64_t seen_progress;
    unsigned n_still; /* looks in a row that saw nothing move */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;   /* on the monotonic clock */
    struct command *first, **last;
    size_t n_counted, n_counted_max;
    bool stop;

    bool held;                     /* engine thread: no steps */
    struct seq *known[TABLE_SIZE]; /* engine thread */
    struct mail *out, **out_last;  /* engine thread: events of the step under way */
    _Atomic uint64_t last_step_us;
};

static void *thread_main(void *arg);

/* ---- tables */

static size_t bucket(uint64_t seq_id) {
    return (size_t)((seq_id * 0x9e3779b97f4a7c15u) >> 54) & (TABLE_SIZE - 1);
}

static struct seq **find_live(struct worker *w, uint64_t seq_id) {
    struct seq **p = &w->live[bucket(seq_id)];
    while (*p != NULL && (*p)->seq_id != seq_id) p = &(*p)->loop_next;
    return p;
}

static struct seq **find_known(struct worker *w, uint64_t seq_id) {
    struct seq **p = &w->known[bucket(seq_id)];
    while (*p != NULL && (*p)->seq_id != seq_id) p = &(*p)->engine_next;
    return p;
}

static void forget_known(struct worker *w, uint64_t seq_id) {
    struct seq **p = find_known(w, seq_id);
    if (*p != NULL) *p = (*p)->engine_next;
}

/* ---- commands */

static void command_free(struct command *c) {
    free(c->ids);
    free(c->lists);
    free(c->first);
    if (c->kind == CMD_ADD) {
        sampling_free(&c->sampling);
        lora_unref(&c->opts.lora);
        if (c->opts.guide.ops != NULL) c->opts.guide.ops->free(c->opts.guide.state);
    }
    free(c);
}

static int32_t *ids_copy(const int32_t *ids, size_t n) {
    int32_t *copy = malloc((n > 0 ? n : 1) * sizeof(*copy));
    if (copy != NULL && n > 0) memcpy(copy, ids, n * sizeof(*copy));
    return copy;
}

static enum err push(struct worker *w, struct command *c) {
    pthread_mutex_lock(&w->mutex);
    bool full = c->counted && w->n_counted >= w->n_counted_max;
    if (!full) {
        if (c->counted) w->n_counted++;
        c->next = NULL;
        *w->last = c;
        w->last = &c->next;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->mutex);
    return full ? ERR_BUSY : ERR_OK;
}

void worker_set_loras(struct worker *w, struct lora_set *set) {
    w->loras = set;
}

void worker_share_prefixes(struct worker *w, bool shared) {
    w->shared_prefixes = shared;
}

uint64_t worker_prefix_salt(const struct worker *w, const struct infer_req *req) {
    const char *owner = tenant_owner(req->tenant);
    return w->shared_prefixes || owner[0] == '\0' ? 0
                                                  : siphash24(w->salt_key, owner, strlen(owner));
}

uint64_t worker_tenant(const struct infer_req *req) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a: equal numbers share, no more */
    if (req->tenant == NULL) return 0;
    for (const char *s = req->tenant; *s != 0; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h != 0 ? h : 1;
}

enum err worker_adapter(const struct worker *w, const struct infer_req *req, struct lora **out,
                        struct errbuf *eb) {
    *out = NULL;
    if (req->adapter == NULL) return ERR_OK;
    if (w->loras != NULL) *out = lora_set_take(w->loras, req->adapter, req->adapter_hash);
    if (*out != NULL) return ERR_OK;
    return err_set(eb, ERR_MISMATCH,
                   w->loras != NULL && lora_set_state(w->loras, req->adapter) == LORA_SERVED
                       ? "The LoRA adapter '%s' is another one here."
                       : "The LoRA adapter '%s' cannot be found.",
                   req->adapter);
}

uint64_t worker_next_seq_id(struct worker *w) {
    return ++w->last_seq_id;
}

enum err worker_add(struct worker *w, const struct seq_opts *o, const struct worker_events *ev,
                    void *arg) {
    if (*find_live(w, o->seq_id) != NULL) return ERR_CONFLICT;
    struct command *c = calloc(1, sizeof(*c));
    struct seq *s = calloc(1, sizeof(*s));
    enum err e = ERR_NO_MEMORY;
    if (c == NULL || s == NULL) goto fail;
    c->kind = CMD_ADD;
    c->counted = true;
    c->seq_id = o->seq_id;
    c->seq = s;
    c->opts = *o;
    c->opts.lora = lora_ref(o->lora);
    c->opts.guide = (struct token_guide){0};
    if (o->guide.ops != NULL) {
        c->opts.guide.state = o->guide.ops->fork(o->guide.state);
        if (c->opts.guide.state == NULL) goto fail;
        c->opts.guide.ops = o->guide.ops;
    }
    c->ids = ids_copy(o->ids, o->n_ids);
    c->n_ids = o->n_ids;
    if (c->ids == NULL || sampling_copy(&c->sampling, o->sampling) != ERR_OK) goto fail;
    s->seq_id = o->seq_id;
    s->kind = o->kind;
    s->n_live = o->sampling->n_choices;
    s->ev = *ev;
    s->arg = arg;
    if ((e = push(w, c)) != ERR_OK) goto fail;
    *find_live(w, o->seq_id) = s; /* the end of its chain */
    return ERR_OK;
fail:
    if (c != NULL) command_free(c);
    free(s);
    return e;
}

/* Copies the lists, and the ids of all of them into one array. */
static bool lists_copy(struct command *c, const struct first_ids *first, size_t n) {
    size_t n_all = 0, at = 0;
    for (size_t i = 0; i < n; i++) n_all += first[i].n;
    c->ids = calloc(n_all + 1, sizeof(*c->ids));
    c->lists = calloc(n + 1, sizeof(*c->lists));
    c->n_ids = n;
    if (c->ids == NULL || c->lists == NULL) return false;
    for (size_t i = 0; i < n; i++) {
        c->lists[i] = (struct first_ids){c->ids + at, first[i].n};
        if (first[i].n > 0) memcpy(c->ids + at, first[i].ids, first[i].n * sizeof(*c->ids));
        at += first[i].n;
    }
    return true;
}

enum err worker_start(struct worker *w, uint64_t seq_id, const struct first_ids *first,
                      size_t n_choices) {
    if (*find_live(w, seq_id) == NULL) return ERR_NOT_FOUND;
    struct command *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    c->kind = CMD_START;
    c->counted = true;
    c->seq_id = seq_id;
    enum err e = lists_copy(c, first, n_choices) ? push(w, c) : ERR_NO_MEMORY;
    if (e != ERR_OK) command_free(c);
    return e;
}

enum err worker_beam_start(struct worker *w, uint64_t seq_id, const struct token_event *first,
                           size_t n_first) {
    if (*find_live(w, seq_id) == NULL) return ERR_NOT_FOUND;
    struct command *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    c->kind = CMD_BEAM_START;
    c->counted = true;
    c->seq_id = seq_id;
    c->first = calloc(n_first > 0 ? n_first : 1, sizeof(*c->first));
    c->n_ids = n_first;
    if (c->first != NULL && n_first > 0) memcpy(c->first, first, n_first * sizeof(*first));
    enum err e = c->first == NULL ? ERR_NO_MEMORY : push(w, c);
    if (e != ERR_OK) command_free(c);
    return e;
}

static void end_seq(struct worker *w, enum command_kind kind, uint64_t seq_id, loop_fn *done,
                    void *done_arg) {
    struct seq **p = find_live(w, seq_id);
    struct seq *s = *p;
    if (s == NULL) {
        /* Over already: nothing is held, but the caller still waits to hear so, not from inside
         * this call. */
        if (done != NULL && loop_post(w->loop, done, done_arg) != ERR_OK) {
            log_error("worker", "out of memory: the end of sequence %llu is not reported",
                      (unsigned long long)seq_id);
        }
        return;
    }
    *p = s->loop_next;
    s->end = (struct command){
        .kind = kind, .seq_id = seq_id, .seq = s, .done = done, .done_arg = done_arg};
    push(w, &s->end);
}

void worker_choice_stop(struct worker *w, uint64_t seq_id, int choice) {
    struct seq *s = *find_live(w, seq_id);
    if (s == NULL || choice < 0 || choice >= CHOICES_MAX) return;
    s->stopped[choice / 64] |= 1ull << (choice % 64);
    struct command *c = calloc(1, sizeof(*c));
    if (c == NULL) { /* it runs on unheard until its own end, or that of the sequence */
        log_error("worker", "out of memory: choice %d of sequence %llu runs on", choice,
                  (unsigned long long)seq_id);
        return;
    }
    c->kind = CMD_STOP;
    c->seq_id = seq_id;
    c->choice = choice;
    (void)push(w, c); /* not counted: always taken */
}

void worker_pause(struct worker *w, uint64_t seq_id, bool paused) {
    struct command *c = *find_live(w, seq_id) != NULL ? calloc(1, sizeof(*c)) : NULL;
    if (c == NULL) return;
    c->kind = CMD_PAUSE;
    c->seq_id = seq_id;
    c->held = paused;
    (void)push(w, c); /* not counted: always taken */
}

void worker_cancel(struct worker *w, uint64_t seq_id, loop_fn *done, void *done_arg) {
    end_seq(w, CMD_CANCEL, seq_id, done, done_arg);
}

void worker_release(struct worker *w, uint64_t seq_id, loop_fn *done, void *done_arg) {
    end_seq(w, CMD_RELEASE, seq_id, done, done_arg);
}

enum err worker_self_test(struct worker *w, void (*done)(void *arg, enum err e), void *arg) {
    struct command *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    c->kind = CMD_SELF_TEST;
    c->counted = true;
    c->tested = done;
    c->done_arg = arg;
    enum err e = push(w, c);
    if (e != ERR_OK) command_free(c);
    return e;
}

enum err worker_hold(struct worker *w, bool held, void (*done)(void *arg, enum err e), void *arg) {
    struct command *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    c->kind = CMD_HOLD;
    c->held = held;
    c->tested = done;
    c->done_arg = arg;
    return push(w, c);
}

/* ---- the engine thread */

static struct worker_mail *mail_new(struct worker *w, enum mail_kind kind, uint64_t seq_id,
                                    size_t extra) {
    struct worker_mail *m = calloc(1, sizeof(*m) + extra);
    if (m == NULL) {
        log_error("worker", "out of memory: an event of sequence %llu is lost",
                  (unsigned long long)seq_id);
        return NULL;
    }
    m->kind = kind;
    m->seq_id = seq_id;
    *w->out_last = &m->head;
    w->out_last = &m->head.next;
    return m;
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

static void mail_admitted(struct worker *w, struct seq *s, int n_cached) {
    int n_held = 0;
    learn_table(w, s, &n_held);
    struct worker_mail *m =
        mail_new(w, MAIL_ADMITTED, s->seq_id, (size_t)s->n_blocks * sizeof(int32_t));
    if (m == NULL) return;
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
    /* A prefill sequence holds its blocks after its tokens until it is released. */
    bool last = ev->finish != FINISH_NONE && s->kind != SEQ_PREFILL && --s->n_live == 0;
    struct worker_mail *m = mail_new(w, MAIL_TOKEN, seq_id, 0);
    if (m == NULL) return;
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
    if (m == NULL) return;
    m->u.prompt.position = position;
    m->u.prompt.ev = *ev;
}

static void on_engine_failed(void *arg, uint64_t seq_id, enum err e) {
    struct worker *w = arg;
    struct worker_mail *m = mail_new(w, MAIL_FAILED, seq_id, 0);
    if (m == NULL) return;
    m->e = e;
    struct seq *s = *find_known(w, seq_id);
    if (s != NULL && s->kind == SEQ_PREFILL) return; /* it holds its blocks all the same */
    m->last = true;
    forget_known(w, seq_id);
}

static void refuse(struct worker *w, uint64_t seq_id, enum err e, const char *text) {
    struct worker_mail *m = mail_new(w, MAIL_REFUSED, seq_id, 0);
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
        refuse(w, c->seq_id, e, eb.text[0] != '\0' ? eb.text : err_text(e));
    } else if (c->opts.kind == SEQ_IMPORT) {
        mail_admitted(w, c->seq, 0);
    }
}

static void do_start(struct worker *w, struct command *c) {
    struct seq *s = *find_known(w, c->seq_id);
    if (s == NULL) return; /* ended before it could start */
    enum err e = engine_seq_start(w->engine, c->seq_id, c->lists, c->n_ids);
    for (size_t i = 0; i < c->n_ids; i++) s->n_live -= c->lists[i].n == 0; /* they do not run */
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
        enum err e =
            c->kind == CMD_RELEASE ? engine_seq_release(w->engine, c->seq_id) : ERR_NOT_FOUND;
        if (e != ERR_OK) engine_seq_cancel(w->engine, c->seq_id);
    }
    struct worker_mail *m = mail_new(w, MAIL_DONE, c->seq_id, 0);
    if (m != NULL) m->u.cmd = c;
}

static void do_tested(struct worker *w, struct command *c) {
    struct worker_mail *m = mail_new(w, MAIL_TESTED, 0, 0);
    if (c->kind == CMD_HOLD) w->held = c->held;
    if (m == NULL) {
        command_free(c);
        return;
    }
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
    case CMD_RELEASE: do_end(w, c); return; /* the command lives in the sequence's record */
    case CMD_SELF_TEST:
    case CMD_HOLD: do_tested(w, c); return;
    }
    command_free(c);
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

static void *thread_main(void *arg) {
    struct worker *w = arg;
    bool busy = true;
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
        busy = !w->held && engine_step(w->engine);
        flush_mail(w);
        atomic_store_explicit(&w->last_step_us, clock_us(), memory_order_relaxed);
    }
}

/* ---- events on the loop thread */

/* A prefill's beam search counts its continuations, up to two for each choice; none of them is one
 * that could be stopped. */
static bool is_stopped(const struct seq *s, int choice) {
    return choice < CHOICES_MAX && (s->stopped[choice / 64] >> (choice % 64) & 1) != 0;
}

static void deliver(void *arg, struct mail *mail) {
    struct worker *w = arg;
    struct worker_mail *m = (struct worker_mail *)mail;
    if (m->kind == MAIL_DONE) {
        struct command *c = m->u.cmd;
        loop_fn *done = c->done;
        void *done_arg = c->done_arg;
        free(c->seq);
        free(m);
        if (done != NULL) done(done_arg);
        return;
    }
    if (m->kind == MAIL_TESTED) {
        struct command *c = m->u.cmd;
        enum err e = m->e;
        free(m);
        if (c->tested != NULL) c->tested(c->done_arg, e);
        command_free(c);
        return;
    }
    struct seq **p = find_live(w, m->seq_id);
    struct seq *s = *p;
    if (s == NULL) { /* cancelled while the event was under way */
        free(m);
        return;
    }
    struct worker_events ev = s->ev;
    void *seq_arg = s->arg;
    int choice = m->kind == MAIL_TOKEN ? m->u.token.choice : 0;
    bool suppressed = m->kind == MAIL_TOKEN && is_stopped(s, choice);
    if (m->last) {
        *p = s->loop_next;
        free(s);
    }
    switch (m->kind) {
    case MAIL_ADMITTED:
        if (ev.on_admitted == NULL) break;
        ev.on_admitted(seq_arg, m->seq_id, m->table, m->u.admitted.n_blocks, m->u.admitted.n_held,
                       m->u.admitted.n_cached);
        break;
    case MAIL_REFUSED:
        if (ev.on_refused != NULL) ev.on_refused(seq_arg, m->seq_id, m->e, m->u.text);
        break;
    case MAIL_TOKEN:
        if (ev.on_token != NULL && !suppressed) ev.on_token(seq_arg, m->seq_id, &m->u.token);
        break;
    case MAIL_PROMPT_LOGPROB:
        if (ev.on_prompt_logprob == NULL) break;
        ev.on_prompt_logprob(seq_arg, m->seq_id, m->u.prompt.position, &m->u.prompt.ev);
        break;
    case MAIL_FAILED:
        if (ev.on_failed != NULL) ev.on_failed(seq_arg, m->seq_id, m->e);
        break;
    case MAIL_DONE:
    case MAIL_TESTED: break;
    }
    free(m);
}

/* Events left over when the worker closes: only the ends that someone waits for are still told. */
static void flush_one(void *arg, struct mail *mail) {
    struct worker_mail *m = (struct worker_mail *)mail;
    if (m->kind == MAIL_DONE || m->kind == MAIL_TESTED) {
        deliver(arg, mail);
    } else {
        free(m);
    }
}

/* Looks are counted, not time: when the whole process was stopped for a while, that is one look. */
static void watch(void *arg) {
    struct worker *w = arg;
    uint64_t now = engine_progress(w->engine) + worker_last_step_us(w);
    bool was_stuck = worker_stuck_ms(w) > 0;
    if (now != w->seen_progress) {
        if (was_stuck)
            log_warn("worker", "event=engine_moves after_ms=%llu",
                     (unsigned long long)worker_stuck_ms(w));
        w->seen_progress = now;
        w->n_still = 0;
        return;
    }
    if (w->n_still < UINT32_MAX) w->n_still++;
    if (!was_stuck && worker_stuck_ms(w) > 0)
        log_error("worker", "event=engine_stuck for_ms=%llu",
                  (unsigned long long)worker_stuck_ms(w));
}

/* ---- life */

enum err worker_open(struct worker **out, struct loop *loop, struct engine **engine,
                     size_t n_commands_max) {
    *out = NULL;
    struct worker *w = calloc(1, sizeof(*w));
    if (w == NULL) return ERR_NO_MEMORY;
    w->loop = loop;
    w->last = &w->first;
    w->out_last = &w->out;
    w->n_counted_max = n_commands_max;
    if (!entropy_get(w->salt_key, sizeof(w->salt_key))) {
        free(w);
        return ERR_INTERNAL;
    }
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    atomic_store(&w->last_step_us, clock_us());
    enum err e = mailbox_open(&w->mail, loop, deliver, w);
    if (e != ERR_OK) goto fail;
    if ((e = loop_timer_start(&w->watch, loop, WATCH_MS, WATCH_MS, watch, w)) != ERR_OK) goto fail;
    w->engine = *engine;
    const struct engine_events ev = {
        .on_token = on_engine_token,
        .on_kv = on_engine_kv,
        .on_admitted = on_engine_admitted,
        .on_prompt_logprob = on_engine_prompt_logprob,
        .on_failed = on_engine_failed,
        .arg = w,
    };
    engine_set_events(w->engine, &ev);
    if (pthread_create(&w->thread, NULL, thread_main, w) != 0) {
        e = ERR_NO_MEMORY;
        goto fail;
    }
    w->started = true;
    *engine = NULL;
    *out = w;
    return ERR_OK;
fail:
    w->engine = NULL; /* stays the caller's */
    worker_close(&w);
    return e;
}

void worker_close(struct worker **wp) {
    struct worker *w = *wp;
    if (w == NULL) return;
    *wp = NULL;
    loop_timer_stop(&w->watch);
    if (w->started) {
        pthread_mutex_lock(&w->mutex);
        w->stop = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->thread, NULL);
    }
    mailbox_close(&w->mail, flush_one, w);
    /* A `done` above may have ended another sequence: the thread is gone, so obey on its behalf and
     * tell its waiter too. */
    struct command *c;
    while ((c = w->first) != NULL) {
        if ((w->first = c->next) == NULL) w->last = &w->first;
        if (c->kind == CMD_CANCEL || c->kind == CMD_RELEASE) {
            loop_fn *done = c->done;
            void *done_arg = c->done_arg;
            free(c->seq);
            if (done != NULL) done(done_arg);
        } else {
            if (c->kind == CMD_ADD) {
                struct seq **p = find_live(w, c->seq_id);
                if (*p == c->seq) {
                    *p = c->seq->loop_next;
                    free(c->seq);
                }
            }
            command_free(c);
        }
    }
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        while (w->live[i] != NULL) {
            struct seq *s = w->live[i];
            w->live[i] = s->loop_next;
            free(s);
        }
    }
    engine_close(&w->engine);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

const struct engine *worker_engine(const struct worker *w) {
    return w->engine;
}

uint64_t worker_last_step_us(const struct worker *w) {
    return atomic_load_explicit(&w->last_step_us, memory_order_relaxed);
}

uint64_t worker_stuck_ms(const struct worker *w) {
    return w->n_still < WORKER_STALL_MS / WATCH_MS ? 0 : (uint64_t)w->n_still * WATCH_MS;
}
