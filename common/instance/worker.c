/* worker: the engine thread's door (the thread: worker_engine.c). Commands wait in a list under a
 * mutex; events of one engine step go to the loop in one mailbox put.
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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/entropy.h"
#include "common/base/log.h"
#include "common/engine/lora_set.h"
#include "common/engine/siphash.h"
#include "common/instance/worker_priv.h"
#include "proto/hash.h"

enum { WATCH_MS = 250 }; /* the loop looks so often whether the engine thread gets on */

/* ---- tables */

static struct seq **find_live(struct worker *w, uint64_t seq_id) {
    struct seq **p = &w->live[worker_bucket(seq_id)];
    while (*p != NULL && (*p)->seq_id != seq_id) p = &(*p)->loop_next;
    return p;
}

/* ---- commands */

void worker_command_free(struct command *c) {
    free(c->ids);
    free(c->lists);
    free(c->first);
    free(c->answer);
    if (c->kind == CMD_ADD) {
        sampling_free(&c->sampling);
        lora_unref(&c->opts.lora);
        if (c->opts.guide.ops != NULL) c->opts.guide.ops->free(c->opts.guide.state);
    }
    free(c);
}

void worker_seq_free(struct seq *s) {
    if (s == NULL) return;
    free(s->spare_end);
    free(s->spare_failure);
    free(s->resume);
    free(s);
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

void worker_meter_steps(struct worker *w, struct metric *m) {
    atomic_store(&w->step_tokens, m);
}

void worker_calibrate(struct worker *w) {
    atomic_store_explicit(&w->calibrating, true, memory_order_relaxed);
}

void worker_set_prefill_share(struct worker *w, int percent) {
    atomic_store_explicit(&w->prefill_share, percent, memory_order_relaxed);
}

void worker_share_prefixes(struct worker *w, bool shared) {
    w->shared_prefixes = shared;
}

uint64_t worker_prefix_salt(const struct worker *w, const struct infer_req *req) {
    const char *owner = tenant_owner(req->head.tenant), *salt = req->head.cache_salt;
    const uint64_t of_owner =
        w->shared_prefixes || owner[0] == '\0' ? 0 : siphash24(w->salt_key, owner, strlen(owner));
    if (salt == NULL) return of_owner;
    /* Under a key of each owner's, none of which is the one that owners' names are hashed with: a
     * salt that is spelt as a name meets nobody's blocks. */
    uint8_t key[sizeof(w->salt_key)];
    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = w->salt_key[i] ^ (uint8_t)(i < 8 ? of_owner >> 8 * i : 0xff);
    return siphash24(key, salt, strlen(salt));
}

uint64_t worker_digest_seed(const struct worker *w, const struct infer_req *req) {
    uint64_t adapter = 0;
    if (req->head.adapter != NULL) memcpy(&adapter, req->head.adapter_hash, sizeof(adapter));
    return prefix_digest_seed(w->shared_prefixes ? "" : tenant_owner(req->head.tenant),
                              req->head.cache_salt, adapter);
}

uint64_t worker_tenant(const struct infer_req *req) {
    if (req->head.tenant == NULL) return 0;
    const uint64_t h = hash64_text(HASH64_BEGIN, req->head.tenant); /* equal ones share, no more */
    return h != 0 ? h : 1;
}

enum err worker_adapter(const struct worker *w, const struct infer_req *req, struct lora **out,
                        struct errbuf *eb) {
    *out = NULL;
    if (req->head.adapter == NULL) return ERR_OK;
    if (w->loras != NULL) *out = lora_set_take(w->loras, req->head.adapter, req->head.adapter_hash);
    if (*out != NULL) return ERR_OK;
    return err_set(eb, ERR_MISMATCH,
                   w->loras != NULL && lora_set_state(w->loras, req->head.adapter) == LORA_SERVED
                       ? "The LoRA adapter '%s' is another one here."
                       : "The LoRA adapter '%s' cannot be found.",
                   req->head.adapter);
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
    s->spare_end = malloc(sizeof(*s->spare_end));
    s->spare_failure = malloc(sizeof(*s->spare_failure));
    if (s->spare_end == NULL || s->spare_failure == NULL) goto fail;
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
    if (c->ids == NULL) goto fail;
    if (o->sampling != NULL && sampling_copy(&c->sampling, o->sampling) != ERR_OK) goto fail;
    s->seq_id = o->seq_id;
    s->kind = o->kind;
    s->n_live = o->sampling != NULL ? o->sampling->n_choices : 1;
    s->ev = *ev;
    s->arg = arg;
    if ((e = push(w, c)) != ERR_OK) goto fail;
    *find_live(w, o->seq_id) = s; /* the end of its chain */
    return ERR_OK;
fail:
    if (c != NULL) worker_command_free(c);
    worker_seq_free(s);
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
    if (e != ERR_OK) worker_command_free(c);
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
    if (e != ERR_OK) worker_command_free(c);
    return e;
}

static bool end_seq(struct worker *w, enum command_kind kind, uint64_t seq_id, int n_blocks,
                    loop_fn *done, void *done_arg) {
    struct seq **p = find_live(w, seq_id);
    struct seq *s = *p;
    if (s == NULL) return false;
    *p = s->loop_next;
    s->end = (struct command){.kind = kind,
                              .seq_id = seq_id,
                              .seq = s,
                              .n_blocks = n_blocks,
                              .done = done,
                              .done_arg = done_arg};
    push(w, &s->end);
    return true;
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

static struct command *pause_command(uint64_t seq_id, bool paused) {
    struct command *c = calloc(1, sizeof(*c));
    if (c != NULL) *c = (struct command){.kind = CMD_PAUSE, .seq_id = seq_id, .held = paused};
    return c;
}

bool worker_pause(struct worker *w, uint64_t seq_id) {
    struct seq *s = *find_live(w, seq_id);
    if (s == NULL || s->resume != NULL) return s != NULL;
    struct command *c = pause_command(seq_id, true);
    s->resume = pause_command(seq_id, false);
    if (c == NULL || s->resume == NULL) {
        free(c);
        free(s->resume);
        s->resume = NULL;
        return false;
    }
    (void)push(w, c); /* not counted: always taken */
    return true;
}

void worker_resume(struct worker *w, uint64_t seq_id) {
    struct seq *s = *find_live(w, seq_id);
    if (s == NULL || s->resume == NULL) return;
    (void)push(w, s->resume); /* not counted: always taken */
    s->resume = NULL;
}

bool worker_cancel(struct worker *w, uint64_t seq_id, loop_fn *done, void *done_arg) {
    return end_seq(w, CMD_CANCEL, seq_id, 0, done, done_arg);
}

bool worker_keep(struct worker *w, uint64_t seq_id, int n_blocks, loop_fn *done, void *done_arg) {
    return end_seq(w, CMD_KEEP, seq_id, n_blocks, done, done_arg);
}

bool worker_release(struct worker *w, uint64_t seq_id, loop_fn *done, void *done_arg) {
    return end_seq(w, CMD_RELEASE, seq_id, 0, done, done_arg);
}

/* What it does is told, once: its room is there before it is asked for. */
static enum err push_told(struct worker *w, enum command_kind kind, bool held,
                          void (*done)(void *arg, enum err e), void *arg) {
    struct command *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    c->kind = kind;
    c->counted = kind == CMD_SELF_TEST;
    c->held = held;
    c->tested = done;
    c->done_arg = arg;
    c->answer = malloc(sizeof(*c->answer));
    enum err e = c->answer != NULL ? push(w, c) : ERR_NO_MEMORY;
    if (e != ERR_OK) worker_command_free(c);
    return e;
}

enum err worker_self_test(struct worker *w, void (*done)(void *arg, enum err e), void *arg) {
    return push_told(w, CMD_SELF_TEST, false, done, arg);
}

enum err worker_hold(struct worker *w, bool held, void (*done)(void *arg, enum err e), void *arg) {
    return push_told(w, CMD_HOLD, held, done, arg);
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
        worker_seq_free(c->seq);
        free(m);
        if (done != NULL) done(done_arg);
        return;
    }
    if (m->kind == MAIL_TESTED) {
        struct command *c = m->u.cmd;
        enum err e = m->e;
        free(m);
        if (c->tested != NULL) c->tested(c->done_arg, e);
        worker_command_free(c);
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
        worker_seq_free(s);
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
    case MAIL_EMBEDDED: {
        const float *vector = (const float *)(const void *)m->table;
        if (ev.on_embedded != NULL)
            ev.on_embedded(seq_arg, m->seq_id, vector,
                           m->u.embedded.n_scores > 0 ? vector + m->u.embedded.n_vector : NULL);
        break;
    }
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
    worker_engine_events(w);
    if (pthread_create(&w->thread, NULL, worker_engine_main, w) != 0) {
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
        if (c->kind == CMD_CANCEL || c->kind == CMD_RELEASE || c->kind == CMD_KEEP) {
            loop_fn *done = c->done;
            void *done_arg = c->done_arg;
            worker_seq_free(c->seq);
            if (done != NULL) done(done_arg);
        } else {
            if (c->kind == CMD_ADD) {
                struct seq **p = find_live(w, c->seq_id);
                if (*p == c->seq) {
                    *p = c->seq->loop_next;
                    worker_seq_free(c->seq);
                }
            }
            worker_command_free(c);
        }
    }
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        while (w->live[i] != NULL) {
            struct seq *s = w->live[i];
            w->live[i] = s->loop_next;
            worker_seq_free(s);
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
