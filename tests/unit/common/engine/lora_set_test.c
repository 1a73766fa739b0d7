/* Goal: an adapter lives from its loading to the end of the last sequence that uses it, and no
 * longer; sequences of different adapters share no prefix. Method: adapters that are nothing but a
 * reference and a hash, in a set of two places and in an engine on the fake forward pass; threads
 * that take and let go while the adapter is retired and reaped. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/lora_set.h"
#include "tests/unit/common/engine/engine_rig.h"

static struct lora *empty_lora(uint8_t mark) {
    struct lora *l = calloc(1, sizeof(*l));
    assert_non_null(l);
    atomic_init(&l->refs, 1);
    memset(l->hash, mark, sizeof(l->hash));
    l->rank = 4;
    return l;
}

static void serve(struct lora_set *s, const char *name, uint8_t mark) {
    struct lora *l = empty_lora(mark);
    assert_int_equal(lora_set_reserve(s, name), ERR_OK);
    lora_set_serve(s, name, &l, "/adapters/of/mine//", 77);
    assert_null(l);
}

static void from_loading_to_the_end(void **state) {
    struct lora_set *s = lora_set_create(2);
    uint8_t hash[LORA_HASH_BYTES], other[LORA_HASH_BYTES] = {0};
    struct lora_info info;
    (void)state;
    assert_non_null(s);
    assert_int_equal(lora_set_reserve(s, ""), ERR_INVALID);
    assert_int_equal(lora_set_reserve(s, "a"), ERR_OK);
    assert_int_equal(lora_set_reserve(s, "a"), ERR_CONFLICT);
    assert_int_equal(lora_set_state(s, "a"), LORA_RESERVED);
    assert_false(lora_set_find(s, "a", hash));
    assert_int_equal(lora_set_retire(s, "a"), ERR_NOT_FOUND);
    lora_set_drop(s, "a");
    assert_int_equal(lora_set_state(s, "a"), LORA_ABSENT);

    serve(s, "a", 1);
    serve(s, "b", 2);
    assert_int_equal(lora_set_reserve(s, "c"), ERR_BUSY);
    assert_true(lora_set_find(s, "b", hash));
    assert_int_equal(hash[0], 2);
    lora_set_drop(s, "b"); /* only a reserved place is given back */
    assert_true(lora_set_at(s, 1, &info));
    assert_string_equal(info.name, "b");
    assert_string_equal(info.path, "/adapters/of/mine//");
    assert_string_equal(info.root, "mine");
    assert_string_equal(info.root, "mine");
    assert_int_equal(info.loaded_unix_s, 77);
    assert_false(lora_set_at(s, 2, &info));
    assert_false(lora_set_at(s, -1, &info));

    assert_null(lora_set_take(s, "b", other));
    struct lora *l = lora_set_take(s, "b", hash);
    assert_non_null(l);
    assert_int_equal(lora_set_retire(s, "b"), ERR_OK);
    assert_int_equal(lora_set_retire(s, "b"), ERR_NOT_FOUND);
    assert_false(lora_set_find(s, "b", hash)); /* no new request */
    assert_int_equal(lora_set_reap(s), 1);     /* but this one still runs */
    assert_int_equal(lora_set_reserve(s, "b"), ERR_CONFLICT);
    assert_int_equal(lora_set_reserve(s, "c"), ERR_BUSY);
    struct lora *late = lora_set_take(s, "b", hash); /* its hand-over comes */
    assert_ptr_equal(late, l);
    lora_unref(&l);
    assert_int_equal(lora_set_reap(s), 1);
    lora_unref(&late);
    assert_int_equal(lora_set_reap(s), 0);
    assert_int_equal(lora_set_state(s, "b"), LORA_ABSENT);
    assert_int_equal(lora_set_reserve(s, "c"), ERR_OK);
    l = lora_set_take(s, "a", (uint8_t[LORA_HASH_BYTES]){0});
    assert_null(l);
    lora_set_destroy(&s);
    assert_null(s);
    assert_null(lora_set_create(LORA_SET_MAX + 1));
}

struct taker {
    struct lora_set *set;
    _Atomic bool *stop;
    _Atomic long *n_taken;
};

static void *take_and_let_go(void *arg) {
    const struct taker *t = arg;
    uint8_t hash[LORA_HASH_BYTES];
    memset(hash, 5, sizeof(hash));
    while (!*t->stop) {
        struct lora *l = lora_set_take(t->set, "x", hash);
        if (l == NULL) continue;
        assert(l->hash[0] == 5);
        (*t->n_taken)++;
        lora_unref(&l);
    }
    return NULL;
}

static void threads_take_what_is_being_retired(void **state) {
    _Atomic bool stop = false;
    _Atomic long n_taken = 0;
    struct lora_set *s = lora_set_create(1);
    struct taker t = {s, &stop, &n_taken};
    pthread_t threads[2];
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_let_go, &t), 0);
    for (int i = 0; i < 200 || n_taken == 0; i++) {
        serve(s, "x", 5);
        assert_int_equal(lora_set_retire(s, "x"), ERR_OK);
        while (lora_set_reap(s) > 0) sched_yield();
        assert_int_equal(lora_set_state(s, "x"), LORA_ABSENT);
    }
    stop = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    lora_set_destroy(&s);
}

/* ---- in the engine */

static enum err add_with(struct rig *rig, uint64_t id, const int32_t *ids, int n,
                         const struct sampling *p, struct lora *l) {
    const struct seq_opts o = {.seq_id = id,
                               .kind = SEQ_WHOLE,
                               .ids = ids,
                               .n_ids = (size_t)n,
                               .n_prompt = (size_t)n,
                               .sampling = p,
                               .priority = 5,
                               .lora = l};
    return engine_seq_add(rig->e, &o, NULL);
}

static void sequences_keep_their_adapter(void **state) {
    struct engine_opts o = fake_opts();
    struct rig rig;
    struct lora *a = empty_lora(1), *b = empty_lora(2);
    const struct sampling p = neutral(3);
    int32_t ids[24];
    (void)state;
    o.prefix_cache = true;
    o.lora_rank_max = 4;
    rig_open(&rig, &o);
    prompt_of(1, ids, 24);
    const struct {
        struct lora *l;
        bool hit;
    } steps[] = {{NULL, false}, {a, false}, {b, false}, {a, true}, {NULL, true}, {b, true}};
    for (uint64_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        assert_int_equal(add_with(&rig, i, ids, 24, &p, steps[i].l), ERR_OK);
        if (steps[i].l != NULL) assert_int_equal(lora_refs(steps[i].l), 2);
        run_dry(&rig);
        assert_int_equal(rig.heard[i].n_cached > 0, steps[i].hit);
        if (steps[i].l != NULL) assert_int_equal(lora_refs(steps[i].l), 1);
    }
    /* cancelled in the queue and while it runs; refused; and the owner's reference gone first */
    assert_int_equal(add_with(&rig, 10, ids, 24, &p, a), ERR_OK);
    assert_int_equal(engine_seq_cancel(rig.e, 10), ERR_OK);
    assert_int_equal(lora_refs(a), 1);
    assert_int_equal(add_with(&rig, 11, ids, 24, &p, a), ERR_OK);
    assert_int_equal(add_with(&rig, 11, ids, 24, &p, a), ERR_CONFLICT);
    assert_int_equal(lora_refs(a), 2);
    assert_true(engine_step(rig.e));
    rig.heard[11].cancelled = true;
    assert_int_equal(engine_seq_cancel(rig.e, 11), ERR_OK);
    assert_int_equal(lora_refs(a), 1);
    a->rank = 5; /* over maxLoraRank */
    assert_int_equal(add_with(&rig, 12, ids, 24, &p, a), ERR_INVALID);
    assert_int_equal(lora_refs(a), 1);
    assert_int_equal(add_with(&rig, 13, ids, 24, &p, b), ERR_OK);
    lora_unref(&b);
    run_dry(&rig); /* the last reference: valgrind or ASan would tell of a leak */
    assert_int_equal(rig.heard[13].n_tokens, 3);
    lora_unref(&a);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_loading_to_the_end),
        cmocka_unit_test(threads_take_what_is_being_retired),
        cmocka_unit_test(sequences_keep_their_adapter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
