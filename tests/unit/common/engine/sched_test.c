/* Goal: every step obeys the limits, wastes no row that somebody could use, and starves nobody.
 * Method: the rules of sched.h checked on random sets of sequences and limits, then whole runs to
 * their end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "common/engine/sched.h"

enum { N_MAX = 40 };

static uint64_t rng_state;
static int rnd_to(int n) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((rng_state >> 33) % (uint64_t)n);
}
static int min_int(int a, int b) {
    return a < b ? a : b;
}

static struct sched_limits rnd_limits(void) {
    return (struct sched_limits){.rows_max = 1 + rnd_to(80),
                                 .decode_max = 1 + rnd_to(N_MAX),
                                 .prefill_max = 1 + rnd_to(6),
                                 .chunk_max = 1 + rnd_to(40),
                                 .logit_rows_max = 1 + rnd_to(10),
                                 .beside_decode_max = 1 + rnd_to(80)};
}
static int rnd_seqs(struct sched_seq *q) {
    int n = rnd_to(N_MAX + 1);
    for (int i = 0; i < n; i++) {
        q[i] = (struct sched_seq){.decoding = rnd_to(2) == 0,
                                  .all_logits = rnd_to(5) == 0,
                                  .priority = 1 + rnd_to(5),
                                  .age = (uint64_t)i * 7 % N_MAX + (uint64_t)N_MAX * (uint64_t)i,
                                  .last_step = (uint64_t)rnd_to(5)};
        q[i].pending = q[i].decoding ? 1 : 1 + rnd_to(100);
        if (q[i].decoding) q[i].all_logits = false;
    }
    return n;
}

static void test_one_step(void **state) {
    (void)state;
    struct sched_seq q[N_MAX];
    int rows[N_MAX], again[N_MAX], order[2 * N_MAX];
    rng_state = 1;
    for (int k = 0; k < 20000; k++) {
        struct sched_limits lim = rnd_limits();
        int n = rnd_seqs(q), total = sched_step(q, n, &lim, rows, order), sum = 0;
        int n_decodes = 0, n_decode_rows = 0, prompt_rows = 0, n_prefill = 0, wide = 0, prompts = 0;
        for (int i = 0; i < n; i++) {
            assert_true(rows[i] >= 0 && rows[i] <= q[i].pending);
            sum += rows[i];
            if (q[i].decoding) {
                n_decodes++;
                n_decode_rows += rows[i];
            } else {
                assert_true(rows[i] <= lim.chunk_max);
                prompts++;
                prompt_rows += rows[i];
                n_prefill += rows[i] > 0;
                if (q[i].all_logits) wide += rows[i];
            }
        }
        assert_int_equal(sum, total);
        assert_true(total <= lim.rows_max && n_prefill <= lim.prefill_max &&
                    wide <= lim.logit_rows_max);
        if (n > 0) assert_true(total > 0);
        assert_true(n_decode_rows <= lim.decode_max);
        if (n_decode_rows < n_decodes && n_decode_rows < lim.decode_max)
            assert_int_equal(total, lim.rows_max); /* a decode waits only in a full step */
        if (lim.rows_max > 1 && prompts > 0) assert_true(prompt_rows > 0);
        if (n_decodes > 0) {
            assert_true(n_decode_rows > 0);
            assert_true(prompt_rows <= lim.beside_decode_max);
        }
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                if (q[i].decoding && q[j].decoding && rows[i] > 0 && rows[j] == 0)
                    assert_true(q[i].last_step <= q[j].last_step); /* who waited longest is in */
                if (q[i].decoding || q[j].decoding || q[i].all_logits || q[j].all_logits) continue;
                bool first = q[i].priority < q[j].priority ||
                             (q[i].priority == q[j].priority && q[i].age < q[j].age);
                /* a prompt gets less than it could only when nothing is left for those behind it */
                if (first && rows[i] < min_int(q[i].pending, lim.chunk_max))
                    assert_int_equal(rows[j], 0);
            }
        /* the order of the views does not matter */
        struct sched_seq back[N_MAX];
        for (int i = 0; i < n; i++) back[i] = q[n - 1 - i];
        sched_step(back, n, &lim, again, order);
        for (int i = 0; i < n; i++) {
            if (q[i].decoding) continue;
            assert_int_equal(rows[i], again[n - 1 - i]);
        }
    }
}

/* Sequences with a prompt and an answer: all finish, whatever the limits, and no decode waits
 * longer than it must. */
static void test_runs_end(void **state) {
    (void)state;
    rng_state = 2;
    for (int k = 0; k < 500; k++) {
        struct sched_limits lim = rnd_limits();
        struct sched_seq q[N_MAX];
        int answer[N_MAX], rows[N_MAX], order[2 * N_MAX], wait[N_MAX] = {0};
        int n = 1 + rnd_to(N_MAX), left = n;
        if (lim.rows_max == 1) lim.rows_max = 2;
        for (int i = 0; i < n; i++) {
            q[i] = (struct sched_seq){.pending = 1 + rnd_to(60),
                                      .all_logits = rnd_to(4) == 0,
                                      .priority = 1 + rnd_to(5),
                                      .age = (uint64_t)i};
            answer[i] = 1 + rnd_to(20);
        }
        int decode_room =
            min_int(lim.decode_max, lim.rows_max - (lim.rows_max / 4 > 0 ? lim.rows_max / 4 : 1));
        for (uint64_t step = 1; left > 0; step++) {
            assert_true(step < 100000);
            assert_true(sched_step(q, left, &lim, rows, order) > 0);
            for (int i = 0; i < left; i++) {
                wait[i] = rows[i] > 0 || !q[i].decoding ? 0 : wait[i] + 1;
                assert_true(wait[i] <= N_MAX / decode_room + 1);
                if (rows[i] == 0) continue;
                q[i].last_step = step;
                q[i].pending -= rows[i];
                if (q[i].pending > 0) continue;
                q[i].decoding = true;
                q[i].all_logits = false;
                q[i].pending = 1;
                answer[i]--;
            }
            for (int i = 0; i < left; i++)
                if (answer[i] == 0) {
                    left--;
                    q[i] = q[left], answer[i] = answer[left], wait[i] = wait[left];
                    i--;
                }
        }
    }
}

static void test_examples(void **state) {
    (void)state;
    struct sched_limits lim = {.rows_max = 16,
                               .decode_max = 4,
                               .prefill_max = 2,
                               .chunk_max = 8,
                               .logit_rows_max = 4,
                               .beside_decode_max = 2048};
    int rows[4], order[8];
    struct sched_seq q[4] = {{.pending = 100, .priority = 5, .age = 1},
                             {.pending = 1, .decoding = true, .priority = 5, .age = 2},
                             {.pending = 100, .priority = 1, .age = 3},
                             {.pending = 100, .priority = 5, .age = 0}};
    assert_int_equal(sched_step(q, 4, &lim, rows, order), 16);
    assert_true(rows[0] == 0 && rows[1] == 1 && rows[2] == 8 &&
                rows[3] == 7); /* priority, then age */
    lim.beside_decode_max = 5; /* beside the second one, prompts together */
    assert_int_equal(sched_step(q, 4, &lim, rows, order), 6);
    assert_true(rows[0] == 0 && rows[1] == 1 && rows[2] == 5 && rows[3] == 0);
    q[1].decoding = false; /* nothing decodes: a row of it is one of a prompt */
    q[1].age = 4;
    assert_int_equal(sched_step(q, 4, &lim, rows, order), 16);
    q[1] = (struct sched_seq){.pending = 1, .decoding = true, .priority = 5, .age = 2};
    lim.beside_decode_max = 2048;
    q[2].all_logits = true;
    assert_int_equal(sched_step(q, 4, &lim, rows, order), 13);
    assert_true(rows[1] == 1 && rows[2] == 4 && rows[3] == 8);
    assert_int_equal(sched_step(q, 0, &lim, rows, order), 0);
}

/* Guesses take what is left and push nobody aside. */
static void test_drafts_take_what_is_left(void **state) {
    (void)state;
    struct sched_seq q[N_MAX];
    int rows[N_MAX], plain[N_MAX], order[2 * N_MAX];
    long n_given = 0, n_cut = 0;
    rng_state = 3;
    for (int k = 0; k < 20000; k++) {
        struct sched_limits lim = rnd_limits();
        int n = rnd_seqs(q), decode_rows = 0, given = 0;
        sched_step(q, n, &lim, plain, order);
        for (int i = 0; i < n; i++) q[i].draft = q[i].decoding ? rnd_to(9) : 0;
        lim.draft_rows_max = rnd_to(3) * 16;
        int total = sched_step(q, n, &lim, rows, order);
        for (int i = 0; i < n; i++) {
            assert_true(rows[i] >= plain[i] && rows[i] <= plain[i] + q[i].draft);
            if (plain[i] == 0) assert_int_equal(rows[i], 0);
            if (q[i].decoding) decode_rows += rows[i];
            given += rows[i] - plain[i];
        }
        if (given > 0) assert_true(decode_rows <= lim.draft_rows_max);
        for (int i = 0; i < n; i++) {
            if (plain[i] == 0 || rows[i] == plain[i] + q[i].draft) continue;
            n_cut++;
            assert_true(total == lim.rows_max || decode_rows >= lim.draft_rows_max);
        }
        n_given += given;
    }
    assert_true(n_given > 10000 && n_cut > 1000);
}

/* Tenants whose prompts are of the best priority get the same part of what decodes leave, as far as
 * they can use it; nothing is wasted for that, and less urgent tenants do not count. */
static void test_tenants_share_the_rows(void **state) {
    (void)state;
    struct sched_seq q[N_MAX];
    int rows[N_MAX], order[2 * N_MAX];
    rng_state = 4;
    for (int k = 0; k < 20000; k++) {
        struct sched_limits lim = rnd_limits();
        int n = rnd_seqs(q), best = 6, heads[N_MAX], n_heads = 0, decode_rows = 0, could = 0;
        lim.prefill_max = N_MAX;
        for (int i = 0; i < n; i++) {
            q[i].tenant = (uint64_t)rnd_to(4);
            q[i].all_logits = false;
            if (!q[i].decoding && q[i].priority < best) best = q[i].priority;
        }
        int total = sched_step(q, n, &lim, rows, order);
        for (int i = 0; i < n; i++) {
            if (q[i].decoding) {
                decode_rows += rows[i];
                continue;
            }
            could += min_int(q[i].pending, lim.chunk_max);
            bool head = q[i].priority == best;
            for (int j = 0; j < n; j++)
                head = head && (q[j].decoding || q[j].priority != best ||
                                q[j].tenant != q[i].tenant || q[j].age >= q[i].age);
            if (head) heads[n_heads++] = i;
        }
        int left = lim.rows_max - decode_rows;
        if (decode_rows > 0) left = min_int(left, lim.beside_decode_max);
        assert_int_equal(total - decode_rows, min_int(could, left));
        for (int i = 0; i < n_heads; i++) /* decodes may have had what prompts could not use */
            assert_true(rows[heads[i]] >=
                        min_int(min_int(q[heads[i]].pending, lim.chunk_max), left / n_heads));
    }
}

/* A short prompt is through as soon as if the other tenant had one prompt, not fifty. */
static void test_a_crowd_does_not_hold_up_another_tenant(void **state) {
    (void)state;
    struct sched_limits lim = {.rows_max = 64,
                               .decode_max = 32,
                               .prefill_max = 8,
                               .chunk_max = 64,
                               .logit_rows_max = 4,
                               .beside_decode_max = 2048};
    struct sched_seq q[31];
    int rows[31], order[62], n_steps = 0;
    for (int i = 0; i < 30; i++)
        q[i] = (struct sched_seq){.pending = 1000, .priority = 3, .tenant = 1, .age = (uint64_t)i};
    q[30] = (struct sched_seq){.pending = 100, .priority = 3, .tenant = 2, .age = 30};
    for (; q[30].pending > 0; n_steps++) {
        assert_int_equal(sched_step(q, 31, &lim, rows, order), 64);
        for (int i = 0; i < 31; i++) q[i].pending -= rows[i];
    }
    assert_int_equal(n_steps, 4); /* 32 rows a step */
    assert_int_equal(q[0].pending, 1000 - 4 * 32 - 28);
    assert_int_equal(q[1].pending, 1000);
}

/* One sequence beside a full batch of another tenant's has a row of every step, however young it
 * is; the others miss about as many each. Two tenants with too many have half of the rows each. */
static void test_tenants_share_decode_rows(void **state) {
    (void)state;
    enum { BATCH = 32, STEPS = 330 };
    for (int n_b = 1; n_b <= BATCH; n_b += BATCH - 1) {
        const struct sched_limits lim = {.rows_max = 2048,
                                         .decode_max = BATCH,
                                         .prefill_max = 8,
                                         .chunk_max = 512,
                                         .logit_rows_max = 1,
                                         .beside_decode_max = 2048};
        struct sched_seq q[2 * BATCH];
        int rows[2 * BATCH], order[4 * BATCH], had[2 * BATCH] = {0}, of_b = 0;
        const int n = BATCH + n_b;
        for (int i = 0; i < n; i++)
            q[i] = (struct sched_seq){.pending = 1,
                                      .decoding = true,
                                      .priority = i < BATCH ? 1 : 5, /* asks for more */
                                      .tenant = i < BATCH ? 1 : 2,
                                      .age = (uint64_t)i};
        for (uint64_t step = 1; step <= STEPS; step++) {
            assert_int_equal(sched_step(q, n, &lim, rows, order), BATCH);
            for (int i = 0; i < n; i++) {
                if (rows[i] == 0) continue;
                q[i].last_step = step;
                had[i]++;
                of_b += i >= BATCH;
            }
        }
        assert_int_equal(of_b, n_b == 1 ? STEPS : STEPS * BATCH / 2);
        for (int i = 0; i < n; i++) {
            const int want = q[i].tenant == 2 ? of_b / n_b : (STEPS * BATCH - of_b) / BATCH;
            assert_in_range(had[i], want - STEPS / 20, want + STEPS / 20);
        }
    }
}

/* All rows of such a prompt or none; a long one waits for a step of its own, and gets one. */
static void test_whole_prompts(void **state) {
    (void)state;
    struct sched_limits lim = {.rows_max = 64,
                               .decode_max = 4,
                               .prefill_max = 4,
                               .chunk_max = 8,
                               .logit_rows_max = 4,
                               .beside_decode_max = 2048};
    struct sched_seq q[5];
    const int pending[5] = {40, 30, 20, 100, 4};
    int rows[5], order[10];
    for (int i = 0; i < 5; i++)
        q[i] = (struct sched_seq){
            .pending = pending[i], .whole = true, .priority = 3, .tenant = 1, .age = (uint64_t)i};
    assert_int_equal(sched_step(q, 5, &lim, rows, order), 64);
    assert_true(rows[0] == 40 && rows[1] == 0 && rows[2] == 20 && rows[3] == 0 && rows[4] == 4);
    assert_int_equal(sched_step(q + 1, 2, &lim, rows, order), 50);
    assert_int_equal(sched_step(q + 3, 2, &lim, rows, order), 100);
    assert_true(rows[0] == 100 && rows[1] == 0);
    lim.prefill_max = 1;
    assert_int_equal(sched_step(q, 5, &lim, rows, order), 40);
    lim.beside_decode_max = 1; /* does not bind it, or it would never run */
    q[1] = (struct sched_seq){.pending = 1, .decoding = true, .priority = 3, .age = 1};
    assert_int_equal(sched_step(q, 2, &lim, rows, order), 41);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tenants_share_the_rows),
        cmocka_unit_test(test_tenants_share_decode_rows),
        cmocka_unit_test(test_a_crowd_does_not_hold_up_another_tenant),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_one_step),
        cmocka_unit_test(test_runs_end),
        cmocka_unit_test(test_whole_prompts),
        cmocka_unit_test(test_drafts_take_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
