/* Goal:   every sequence's owner hears what it must, in order and on the loop thread, and nothing
 * after it cancelled; ending one gives slot and blocks back; a full queue is an answer; a burst of
 * events wakes the loop once. Method: the worker over an engine without a model (tests/unit/fakes),
 * whose steps the test can hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/instance/worker.h"
#include "tests/unit/alloc_fault.h"
#include "tests/unit/fakes/fake_engine.h"
#include "tests/unit/pace.h"

#define DEADLINE_MS pace_ms(20000)
enum { BLOCK_TOKENS = 4, HEARD_MAX = 256 };

struct fixture {
    struct loop *loop;
    struct worker *w;
    struct engine *engine; /* the worker's; for the fake's switches */
    pthread_t loop_thread;
};

/* What one owner heard. */
struct heard {
    struct fixture *f;
    uint64_t seq_id;
    unsigned n_admitted, n_refused, n_tokens, n_failed, n_done, n_prompt;
    enum err err;
    char text[128];
    int32_t tokens[HEARD_MAX];
    enum finish finish;
    int n_blocks, n_held;
    int32_t table[64];
    bool cancelled;
    bool starves;     /* with its last blocks the engine thread's memory is at an end, once */
    atomic_uint n_kv; /* on the engine thread */
    atomic_int kv_next[FAKE_LAYERS];
    atomic_bool kv_after_done, kv_on_loop_thread, kv_gap;
    atomic_bool done;
};

static void check_heard(struct heard *h, uint64_t seq_id) {
    assert_true(pthread_equal(pthread_self(), h->f->loop_thread));
    assert_int_equal(seq_id, h->seq_id);
    assert_false(h->cancelled);
}
static void on_admitted(void *arg, uint64_t seq_id, const int32_t *table, int n_blocks, int n_held,
                        int n_cached) {
    struct heard *h = arg;
    check_heard(h, seq_id);
    h->n_admitted++;
    h->n_blocks = n_blocks;
    h->n_held = n_held;
    assert_true(n_cached == 0 && n_blocks <= 64 && h->n_tokens == 0);
    memcpy(h->table, table, (size_t)n_blocks * sizeof(*table));
}
static void on_refused(void *arg, uint64_t seq_id, enum err e, const char *text) {
    struct heard *h = arg;
    check_heard(h, seq_id);
    h->n_refused++;
    h->err = e;
    snprintf(h->text, sizeof(h->text), "%s", text);
}
static void on_token(void *arg, uint64_t seq_id, const struct token_event *ev) {
    struct heard *h = arg;
    check_heard(h, seq_id);
    assert_true(h->n_tokens < HEARD_MAX && h->finish == FINISH_NONE);
    h->tokens[h->n_tokens++] = ev->id;
    h->finish = ev->finish;
}
static void on_prompt_logprob(void *arg, uint64_t seq_id, int position,
                              const struct token_event *ev) {
    struct heard *h = arg;
    check_heard(h, seq_id);
    assert_true((unsigned)position == h->n_prompt + 1 || h->starves);
    assert_true(ev->logprob == -(float)position && h->n_tokens == 0);
    h->n_prompt++;
}
static void on_failed(void *arg, uint64_t seq_id, enum err e) {
    struct heard *h = arg;
    check_heard(h, seq_id);
    h->n_failed++;
    h->err = e;
}
static void on_kv(void *arg, uint64_t seq_id, const int32_t *table, int layer, int first, int n) {
    struct heard *h = arg;
    (void)seq_id;
    atomic_fetch_add(&h->n_kv, (unsigned)n);
    if (pthread_equal(pthread_self(), h->f->loop_thread)) atomic_store(&h->kv_on_loop_thread, true);
    if (atomic_load(&h->done)) atomic_store(&h->kv_after_done, true);
    if (atomic_exchange(&h->kv_next[layer], first + n) != first || table == NULL)
        atomic_store(&h->kv_gap, true);
#if OWN_MALLOC
    if (h->starves && layer == FAKE_LAYERS - 1) alloc_fault_once(0);
#endif
}
static void on_done(void *arg) {
    struct heard *h = arg;
    assert_true(pthread_equal(pthread_self(), h->f->loop_thread));
    h->n_done++;
    atomic_store(&h->done, true);
}
static const struct worker_events events = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_failed = on_failed,
    .on_kv = on_kv,
};

/* ---- fixture */

static void open_worker(struct fixture *f, size_t n_commands, int n_blocks, int batch) {
    const struct fake_engine_opts o = {.n_blocks = n_blocks,
                                       .batch_max = batch,
                                       .queue_max = 8,
                                       .block_tokens = BLOCK_TOKENS,
                                       .beams_twice = true,
                                       .chunk_blocks = 2};
    struct engine *e = fake_engine_create(&o);
    f->engine = e;
    f->loop_thread = pthread_self();
    assert_int_equal(loop_create(&f->loop), ERR_OK);
    assert_int_equal(worker_open(&f->w, f->loop, &e, n_commands), ERR_OK);
    assert_null(e);
}
static void close_worker(struct fixture *f) {
    worker_close(&f->w);
    assert_null(f->w);
    loop_destroy(&f->loop);
}

struct wait {
    struct fixture *f;
    bool (*fact)(void *arg);
    void *arg;
    uint64_t until;
};
static void tick(void *arg) {
    struct wait *w = arg;
    if (w->fact(w->arg) || clock_ms() > w->until) loop_stop(w->f->loop);
}
static bool wait_ms(struct fixture *f, bool (*fact)(void *), void *arg, unsigned ms) {
    struct wait w = {f, fact, arg, clock_ms() + ms};
    struct loop_timer *t;
    if (fact(arg)) return true;
    assert_int_equal(loop_timer_start(&t, f->loop, 1, 1, tick, &w), ERR_OK);
    loop_run(f->loop);
    loop_timer_stop(&t);
    return fact(arg);
}
#define WAIT_FOR(f, fact, arg) assert_true(wait_ms(f, fact, arg, DEADLINE_MS))

static bool finished(void *arg) {
    return ((struct heard *)arg)->finish != FINISH_NONE;
}
static bool has_token(void *arg) {
    return ((struct heard *)arg)->n_tokens > 0;
}
static bool has_all_continuations(void *arg) {
    return ((struct heard *)arg)->n_tokens == 2 * CHOICES_MAX;
}
static bool admitted(void *arg) {
    return ((struct heard *)arg)->n_admitted > 0;
}
static bool refused(void *arg) {
    return ((struct heard *)arg)->n_refused > 0;
}
static bool failed(void *arg) {
    return ((struct heard *)arg)->n_failed > 0;
}
static bool is_done(void *arg) {
    return ((struct heard *)arg)->n_done > 0;
}
static bool all_free(void *arg) {
    struct engine_stats st;
    engine_stats(worker_engine(((struct fixture *)arg)->w), &st);
    return st.blocks_free == st.blocks_total && st.slots_free == st.slots_total &&
           st.held + st.waiting + st.importing == 0;
}

static int32_t prompt[64];

static enum err add(struct fixture *f, struct heard *h, enum seq_kind kind, size_t n_ids,
                    int new_tokens) {
    struct sampling s = {
        .new_tokens_max = new_tokens, .ignore_eos = true, .prompt_logprobs = kind == SEQ_PREFILL};
    for (size_t i = 0; i < 64; i++) prompt[i] = (int32_t)(i * i % 97);
    *h = (struct heard){.f = f, .seq_id = worker_next_seq_id(f->w)};
    int32_t stop = 5;
    s.stop_token_ids = &stop;
    s.n_stop_token_ids = 1;
    const struct seq_opts o = {.seq_id = h->seq_id,
                               .kind = kind,
                               .ids = prompt,
                               .n_ids = n_ids,
                               .n_prompt = n_ids,
                               .sampling = &s,
                               .priority = 3};
    enum err e = worker_add(f->w, &o, &events, h);
    memset(&s, 0xff, sizeof(s)); /* all was copied */
    return e;
}

static void expect_tokens(const struct heard *h, size_t n_ids, size_t n) {
    assert_int_equal(h->n_tokens, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(h->tokens[i],
                         fake_token(prompt, n_ids, n_ids, BLOCK_TOKENS, h->tokens, i));
    }
}

/* ---- tests */

static void a_whole_sequence_runs_to_its_end(void **state) {
    (void)state;
    struct fixture f;
    struct heard h[3];
    open_worker(&f, 16, 64, 4);
    for (int i = 0; i < 3; i++)
        assert_int_equal(add(&f, &h[i], SEQ_WHOLE, 5 + (size_t)i * 6, 4 + i), ERR_OK);
    for (int i = 0; i < 3; i++) {
        WAIT_FOR(&f, finished, &h[i]);
        assert_int_equal(h[i].finish, FINISH_LENGTH);
        assert_int_equal(h[i].n_admitted, 1);
        expect_tokens(&h[i], 5 + (size_t)i * 6, (size_t)(4 + i));
        /* over already: cancelling it is harmless and still reported */
        worker_cancel(f.w, h[i].seq_id, on_done, &h[i]);
        assert_int_equal(h[i].n_done, 0); /* not from inside the call */
        WAIT_FOR(&f, is_done, &h[i]);
    }
    WAIT_FOR(&f, all_free, &f);
    assert_int_equal(worker_stuck_ms(f.w), 0);
    close_worker(&f);
}

static void a_prefill_holds_until_it_is_released(void **state) {
    (void)state;
    struct fixture f;
    struct heard h;
    struct engine_stats st;
    open_worker(&f, 16, 64, 4);
    assert_int_equal(add(&f, &h, SEQ_PREFILL, 30, 4), ERR_OK);
    WAIT_FOR(&f, has_token, &h);
    expect_tokens(&h, 30, 1);
    assert_int_equal(h.n_blocks, 8);
    assert_int_equal(h.n_prompt, 29);
    assert_int_equal(atomic_load(&h.n_kv), 8 * FAKE_LAYERS);
    assert_false(atomic_load(&h.kv_gap));
    assert_false(atomic_load(&h.kv_on_loop_thread));
    engine_stats(worker_engine(f.w), &st);
    assert_int_equal(st.held, 1);
    assert_int_equal(st.blocks_free, 56);
    worker_release(f.w, h.seq_id, on_done, &h);
    WAIT_FOR(&f, is_done, &h);
    assert_true(all_free(&f)); /* done means given back */
    close_worker(&f);
}

#if OWN_MALLOC
static bool has_failed(void *arg) {
    return ((struct heard *)arg)->n_failed > 0;
}

/* What it has computed may be on its way to D, read from its blocks by another thread. */
static void a_prefill_that_cannot_be_told_keeps_its_blocks(void **state) {
    (void)state;
    struct fixture f;
    struct heard h;
    struct engine_stats st;
    open_worker(&f, 16, 64, 4);
    fake_engine_hold(f.engine, true);
    assert_int_equal(add(&f, &h, SEQ_PREFILL, 30, 4), ERR_OK);
    h.starves = true;
    fake_engine_hold(f.engine, false);
    worker_self_test(f.w, NULL, NULL); /* wakes it */
    WAIT_FOR(&f, has_failed, &h);
    assert_int_equal(h.err, ERR_NO_MEMORY);
    engine_stats(worker_engine(f.w), &st);
    assert_int_equal(st.blocks_free, 56);
    worker_cancel(f.w, h.seq_id, on_done, &h);
    WAIT_FOR(&f, is_done, &h);
    assert_int_equal(h.n_failed, 1);
    assert_true(all_free(&f));
    close_worker(&f);
}
#endif

/* The widest beam search tells twice as many continuations as a sequence can have choices. */
static void every_continuation_of_the_widest_beams_is_heard(void **state) {
    (void)state;
    struct fixture f;
    struct heard h;
    const struct sampling s = {.new_tokens_max = 4, .n_choices = CHOICES_MAX, .beam = true};
    const int32_t ids[] = {1, 2, 3};
    open_worker(&f, 16, 64, CHOICES_MAX);
    h = (struct heard){.f = &f, .seq_id = worker_next_seq_id(f.w)};
    const struct seq_opts o = {.seq_id = h.seq_id,
                               .kind = SEQ_PREFILL,
                               .ids = ids,
                               .n_ids = 3,
                               .n_prompt = 3,
                               .sampling = &s,
                               .priority = 3};
    assert_int_equal(worker_add(f.w, &o, &events, &h), ERR_OK);
    WAIT_FOR(&f, has_all_continuations, &h);
    worker_choice_stop(f.w, h.seq_id, CHOICES_MAX); /* none that could be stopped */
    worker_release(f.w, h.seq_id, on_done, &h);
    WAIT_FOR(&f, is_done, &h);
    assert_true(all_free(&f));
    close_worker(&f);
}

/* What is paused makes no token, keeps what it has, and goes on where it stood. */
static void a_paused_sequence_stands_still(void **state) {
    (void)state;
    struct fixture f;
    struct heard h[2];
    open_worker(&f, 16, 64, 4);
    fake_engine_hold(f.engine, true);
    for (int i = 0; i < 2; i++) assert_int_equal(add(&f, &h[i], SEQ_WHOLE, 5, 9), ERR_OK);
    assert_true(worker_pause(f.w, h[0].seq_id));
    assert_false(worker_pause(f.w, 4711)); /* unknown */
    fake_engine_hold(f.engine, false);
    assert_int_equal(worker_self_test(f.w, NULL, NULL), ERR_OK); /* wakes it */
    WAIT_FOR(&f, finished, &h[1]);
    expect_tokens(&h[1], 5, 9);
    assert_true(h[0].n_tokens <= 1); /* the fake makes the first with the prompt */
    worker_resume(f.w, h[0].seq_id);
    WAIT_FOR(&f, finished, &h[0]);
    expect_tokens(&h[0], 5, 9);
    WAIT_FOR(&f, all_free, &f);
    close_worker(&f);
}

/* A prefill hands its blocks over, an import of another engine goes on: the split changes no token.
 */
static void an_import_continues_what_a_prefill_began(void **state) {
    (void)state;
    struct fixture p, d;
    struct heard hp, hd, hw;
    open_worker(&p, 16, 64, 4);
    open_worker(&d, 16, 40, 4);
    assert_int_equal(add(&p, &hp, SEQ_PREFILL, 21, 9), ERR_OK);
    WAIT_FOR(&p, has_token, &hp);
    assert_int_equal(add(&d, &hd, SEQ_IMPORT, 21, 9), ERR_OK);
    WAIT_FOR(&d, admitted, &hd);
    assert_int_equal(hd.n_blocks, hp.n_blocks);
    for (int l = 0; l < FAKE_LAYERS; l++) {
        for (int i = 0; i < hd.n_blocks; i++) {
            memcpy(engine_kv_block(worker_engine(d.w), l, hd.table[i]),
                   engine_kv_block(worker_engine(p.w), l, hp.table[i]),
                   engine_kv_block_bytes(worker_engine(p.w)));
        }
    }
    const struct first_ids first = {hp.tokens, 1};
    assert_int_equal(worker_start(d.w, hd.seq_id, &first, 1), ERR_OK);
    WAIT_FOR(&d, finished, &hd);
    assert_int_equal(add(&p, &hw, SEQ_WHOLE, 21, 9), ERR_OK);
    WAIT_FOR(&p, finished, &hw);
    assert_int_equal(hd.n_tokens, 8);
    assert_int_equal(hw.tokens[0], hp.tokens[0]);
    assert_memory_equal(hw.tokens + 1, hd.tokens, 8 * sizeof(int32_t));
    assert_int_equal(worker_start(d.w, 999, &first, 1), ERR_NOT_FOUND);
    worker_cancel(p.w, hp.seq_id, NULL, NULL);
    WAIT_FOR(&p, all_free, &p);
    close_worker(&p);
    close_worker(&d);
}

static void refusals_carry_the_engine_s_words(void **state) {
    (void)state;
    struct fixture f;
    struct heard h, big, second;
    open_worker(&f, 16, 8, 1);
    assert_int_equal(add(&f, &big, SEQ_WHOLE, 40, 8), ERR_OK);
    WAIT_FOR(&f, refused, &big);
    assert_int_equal(big.err, ERR_TOO_LARGE);
    assert_string_equal(big.text, "needs 12 KV blocks, the pool has 8");
    assert_int_equal(add(&f, &h, SEQ_IMPORT, 4, 4), ERR_OK);
    WAIT_FOR(&f, admitted, &h);
    assert_int_equal(add(&f, &second, SEQ_IMPORT, 4, 4), ERR_OK);
    WAIT_FOR(&f, refused, &second);
    assert_int_equal(second.err, ERR_BUSY);
    assert_int_equal(second.n_admitted, 0);
    /* an id that is live is refused at once */
    struct sampling s = {.new_tokens_max = 1};
    const struct seq_opts o = {.seq_id = h.seq_id,
                               .kind = SEQ_WHOLE,
                               .ids = prompt,
                               .n_ids = 1,
                               .n_prompt = 1,
                               .sampling = &s,
                               .priority = 1};
    assert_int_equal(worker_add(f.w, &o, &events, &h), ERR_CONFLICT);
    worker_cancel(f.w, h.seq_id, on_done, &h);
    WAIT_FOR(&f, is_done, &h);
    close_worker(&f);
}

static void nothing_is_heard_after_a_cancel(void **state) {
    (void)state;
    struct fixture f;
    static struct heard h[64];
    open_worker(&f, 128, 256, 8);
    unsigned seed = 1;
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 6; i++) {
            struct heard *x = &h[i];
            enum seq_kind kind = (enum seq_kind)((seed = seed * 1103515245 + 12345) >> 16 & 3) % 3;
            assert_int_equal(add(&f, x, kind, 3 + (seed >> 20) % 40, 20), ERR_OK);
            if ((seed >> 8 & 3) == 0)
                wait_ms(&f, admitted, x, (seed >> 10) % 3); /* some get further than others */
        }
        for (int i = 0; i < 6; i++) {
            h[i].cancelled = true; /* check_heard() fails on whatever comes now */
            if (i % 2 == 0) {
                worker_cancel(f.w, h[i].seq_id, on_done, &h[i]);
            } else {
                worker_release(f.w, h[i].seq_id, on_done,
                               &h[i]); /* in whatever state: the same end */
            }
            worker_cancel(f.w, h[i].seq_id, NULL, NULL); /* again: unknown by now */
        }
        for (int i = 0; i < 6; i++) {
            WAIT_FOR(&f, is_done, &h[i]);
            assert_int_equal(h[i].n_done, 1);
            assert_false(atomic_load(&h[i].kv_after_done));
        }
        WAIT_FOR(&f, all_free, &f);
    }
    close_worker(&f);
}

static void a_full_queue_is_busy_but_never_for_a_cancel(void **state) {
    (void)state;
    struct fixture f;
    struct heard h, filler[64];
    open_worker(&f, 2, 64, 4);
    assert_int_equal(add(&f, &h, SEQ_IMPORT, 4, 4), ERR_OK);
    WAIT_FOR(&f, admitted, &h);
    /* Faster than the engine thread reads: with room for two, sooner or later one is turned away.
     */
    bool busy = false;
    unsigned n = 0;
    uint64_t until = clock_ms() + DEADLINE_MS;
    while (!busy && clock_ms() < until) {
        for (n = 0; n < 64; n++) {
            if (add(&f, &filler[n], SEQ_IMPORT, 4, 4) == ERR_BUSY) {
                busy = true;
                break;
            }
        }
        for (unsigned i = 0; i < n; i++) {
            filler[i].cancelled = true;
            worker_cancel(f.w, filler[i].seq_id, NULL, NULL);
        }
    }
    assert_true(busy);
    worker_cancel(f.w, h.seq_id, on_done, &h);
    WAIT_FOR(&f, is_done, &h);
    WAIT_FOR(&f, all_free, &f);
    close_worker(&f);
}

static void a_failing_sequence_is_reported_and_gone(void **state) {
    (void)state;
    struct fixture f;
    struct heard h;
    open_worker(&f, 16, 64, 4);
    fake_engine_hold(f.engine, true);
    assert_int_equal(add(&f, &h, SEQ_WHOLE, 4, 4), ERR_OK);
    fake_engine_fail_next(f.engine);
    fake_engine_hold(f.engine, false);
    WAIT_FOR(&f, failed, &h);
    assert_int_equal(h.err, ERR_INTERNAL);
    WAIT_FOR(&f, all_free, &f);
    close_worker(&f);
}

struct tested {
    unsigned n;
    enum err e;
};
static void on_tested(void *arg, enum err e) {
    struct tested *t = arg;
    t->n++;
    t->e = e;
}
static bool was_tested(void *arg) {
    return ((struct tested *)arg)->n > 0;
}

static void the_self_test_reports(void **state) {
    (void)state;
    struct fixture f;
    struct tested t = {0};
    open_worker(&f, 16, 64, 4);
    assert_int_equal(worker_self_test(f.w, on_tested, &t), ERR_OK);
    WAIT_FOR(&f, was_tested, &t);
    assert_int_equal(t.e, ERR_OK);
    fake_engine_hold(f.engine, true);
    t.n = 0;
    assert_int_equal(worker_self_test(f.w, on_tested, &t), ERR_OK);
    WAIT_FOR(&f, was_tested, &t);
    assert_int_equal(t.e, ERR_TIMEOUT);
    uint64_t before = worker_last_step_us(f.w);
    uint64_t until = clock_ms() + DEADLINE_MS;
    while (worker_last_step_us(f.w) == before && clock_ms() < until)
        wait_ms(&f, was_tested, &(struct tested){0}, 20);
    assert_true(worker_last_step_us(f.w) > before); /* an idle thread shows that it lives */
    close_worker(&f);
}

static bool is_stuck(void *arg) {
    return worker_stuck_ms(*(struct worker **)arg) > 0;
}
static bool is_not_stuck(void *arg) {
    return !is_stuck(arg);
}

/* A step that stands still shows, and no longer than it does so. */
static void a_step_that_stands_still_shows(void **state) {
    (void)state;
    struct fixture f;
    struct heard h;
    open_worker(&f, 16, 64, 4);
    fake_engine_hang(f.engine, true);
    const uint64_t began = clock_ms();
    assert_int_equal(add(&f, &h, SEQ_WHOLE, 4, 4), ERR_OK);
    assert_int_equal(worker_stuck_ms(f.w), 0);
    WAIT_FOR(&f, is_stuck, &f.w);
    const uint64_t took_ms = clock_ms() - began;
    assert_true(took_ms >= WORKER_STALL_MS - 300 && took_ms < 5000);
    assert_true(worker_stuck_ms(f.w) >= WORKER_STALL_MS);
    fake_engine_hang(f.engine, false);
    WAIT_FOR(&f, finished, &h);
    WAIT_FOR(&f, is_not_stuck, &f.w);
    close_worker(&f);
}

/* Held: what comes is taken and waits, what goes is gone, no step is taken; then all goes on. */
static void a_held_engine_takes_no_step(void **state) {
    (void)state;
    struct fixture f;
    struct heard h, gone;
    struct tested t = {0};
    open_worker(&f, 16, 64, 4);
    assert_int_equal(worker_hold(f.w, true, on_tested, &t), ERR_OK);
    WAIT_FOR(&f, was_tested, &t);
    assert_int_equal(t.e, ERR_OK);
    unsigned before = fake_engine_n_steps(f.engine);
    assert_int_equal(add(&f, &h, SEQ_WHOLE, 4, 4), ERR_OK);
    assert_int_equal(add(&f, &gone, SEQ_WHOLE, 4, 4), ERR_OK);
    gone.cancelled = true;
    worker_cancel(f.w, gone.seq_id, on_done, &gone);
    WAIT_FOR(&f, is_done, &gone);
    t.n = 0;
    assert_int_equal(worker_self_test(f.w, on_tested, &t), ERR_OK);
    WAIT_FOR(&f, was_tested, &t); /* the thread has been round since */
    assert_int_equal(t.e, ERR_OK);
    assert_int_equal(fake_engine_n_steps(f.engine), before);
    assert_int_equal(h.n_tokens, 0);
    assert_int_equal(worker_stuck_ms(f.w), 0);
    t.n = 0;
    assert_int_equal(worker_hold(f.w, false, on_tested, &t), ERR_OK);
    WAIT_FOR(&f, finished, &h);
    assert_int_equal(t.n, 1);
    assert_true(fake_engine_n_steps(f.engine) > before);
    WAIT_FOR(&f, all_free, &f);
    close_worker(&f);
}

/* Whoever waits for an end hears it even if the worker closes first; nobody else hears anything. */
static void closing_reports_the_ends_under_way(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct fixture f;
        struct heard h[4];
        open_worker(&f, 16, 64, 4);
        for (int k = 0; k < 4; k++)
            assert_int_equal(add(&f, &h[k], (enum seq_kind)(k % 3), 20, 20), ERR_OK);
        if (i % 2 == 0) WAIT_FOR(&f, admitted, &h[0]);
        for (int k = 0; k < 4; k++) h[k].cancelled = true;
        worker_cancel(f.w, h[0].seq_id, on_done, &h[0]);
        worker_release(f.w, h[1].seq_id, on_done, &h[1]);
        close_worker(&f);
        assert_int_equal(h[0].n_done, 1);
        assert_int_equal(h[1].n_done, 1);
        assert_int_equal(h[2].n_done, 0);
    }
}

/* Blocks are found by the requests of one key, by all of no key, and by everybody where that is
 * asked for. */
static void prefix_blocks_belong_to_an_owner(void **state) {
    struct fixture f = {0};
    (void)state;
    open_worker(&f, 64, 8, 2);
    char a[] = "key-0a", b[] = "key-0b", ten[] = "addr-10.0.0.1", eleven[] = "addr-10.0.0.2";
    struct infer_req of_a = {.head.tenant = a}, of_b = {.head.tenant = b},
                     of_ten = {.head.tenant = ten}, of_eleven = {.head.tenant = eleven},
                     of_none = {0};
    uint64_t salt = worker_prefix_salt(f.w, &of_a);
    assert_true(salt == worker_prefix_salt(f.w, &of_a));
    assert_true(salt != worker_prefix_salt(f.w, &of_b));
    assert_true(salt != worker_prefix_salt(f.w, &of_none));
    assert_true(worker_prefix_salt(f.w, &of_ten) == worker_prefix_salt(f.w, &of_none));
    assert_true(worker_prefix_salt(f.w, &of_ten) == worker_prefix_salt(f.w, &of_eleven));

    char s[] = "s", t[] = "t"; /* salts of clients */
    struct infer_req a_s = {.head = {.tenant = a, .cache_salt = s}},
                     a_t = {.head = {.tenant = a, .cache_salt = t}},
                     b_s = {.head = {.tenant = b, .cache_salt = s}},
                     none_s = {.head.cache_salt = s}, none_a = {.head.cache_salt = a};
    assert_true(worker_prefix_salt(f.w, &a_s) == worker_prefix_salt(f.w, &a_s));
    assert_true(worker_prefix_salt(f.w, &a_s) != worker_prefix_salt(f.w, &a_t));
    assert_true(worker_prefix_salt(f.w, &a_s) != worker_prefix_salt(f.w, &of_a));
    assert_true(worker_prefix_salt(f.w, &a_s) != worker_prefix_salt(f.w, &b_s));
    assert_true(worker_prefix_salt(f.w, &a_s) != worker_prefix_salt(f.w, &none_s));
    assert_true(worker_prefix_salt(f.w, &none_a) != worker_prefix_salt(f.w, &of_a));

    worker_share_prefixes(f.w, true);
    assert_true(worker_prefix_salt(f.w, &a_s) == worker_prefix_salt(f.w, &b_s));
    assert_true(worker_prefix_salt(f.w, &a_s) != worker_prefix_salt(f.w, &a_t));
    assert_true(worker_prefix_salt(f.w, &of_a) == worker_prefix_salt(f.w, &of_b));
    assert_true(worker_prefix_salt(f.w, &of_a) == worker_prefix_salt(f.w, &of_none));
    close_worker(&f);
}

/* The engine knows a new share before the next step. */
static void the_share_of_prefill_comes_with_the_next_step(void **state) {
    (void)state;
    struct fixture f;
    struct heard h;
    open_worker(&f, 16, 64, 4);
    worker_set_prefill_share(f.w, 25);
    assert_int_equal(add(&f, &h, SEQ_WHOLE, 5, 1), ERR_OK);
    WAIT_FOR(&f, finished, &h);
    assert_int_equal(fake_engine_share(f.engine), 25);
    close_worker(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_blocks_belong_to_an_owner),
        cmocka_unit_test(a_whole_sequence_runs_to_its_end),
        cmocka_unit_test(the_share_of_prefill_comes_with_the_next_step),
        cmocka_unit_test(a_prefill_holds_until_it_is_released),
#if OWN_MALLOC
        cmocka_unit_test(a_prefill_that_cannot_be_told_keeps_its_blocks),
#endif
        cmocka_unit_test(every_continuation_of_the_widest_beams_is_heard),
        cmocka_unit_test(a_paused_sequence_stands_still),
        cmocka_unit_test(an_import_continues_what_a_prefill_began),
        cmocka_unit_test(refusals_carry_the_engine_s_words),
        cmocka_unit_test(nothing_is_heard_after_a_cancel),
        cmocka_unit_test(a_full_queue_is_busy_but_never_for_a_cancel),
        cmocka_unit_test(a_failing_sequence_is_reported_and_gone),
        cmocka_unit_test(the_self_test_reports),
        cmocka_unit_test(a_step_that_stands_still_shows),
        cmocka_unit_test(a_held_engine_takes_no_step),
        cmocka_unit_test(closing_reports_the_ends_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
