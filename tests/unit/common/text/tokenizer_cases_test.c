/* Goal: each construct of tokenizer.json does what the library does that defined it: split
 * behaviours, patterns of published models, normalizers, flags of added tokens, prefix spaces,
 * templates, decoders. Method: 160 small tokenizers with texts and ids whose answers are stored
 * (tests/data/tokenizers/README.md). Besides, BPE itself against a plain reference: random merges,
 * random words, short and long, so that every way through the merge loop is taken. */
#include "tests/unit/common/text/tok_testlib.h"

/* One stored tokenizer: a base with some members replaced. */
static struct tokenizer *case_tokenizer(const struct json_value *root, const struct json_value *c) {
    struct json_value *bases, *base, *set, *model, *copy = NULL;
    const char *name, *text;
    struct tokenizer *t;
    size_t n;
    assert_int_equal(json_get_obj(root, "bases", &bases), JSON_OK);
    assert_int_equal(json_get_str(c, "base", &name, &n), JSON_OK);
    assert_int_equal(json_get_obj(bases, name, &base), JSON_OK);
    text = json_to_text(base, JSON_COMPACT, &n);
    assert_int_equal(json_read(&copy, text, n, NULL, NULL), ERR_OK);
    assert_int_equal(json_get_obj(c, "set", &set), JSON_OK);
    json_obj_foreach(set, key, val) {
        if (strcmp(key, "model") == 0) {
            assert_int_equal(json_get_obj(copy, "model", &model), JSON_OK);
            json_obj_foreach(val, key2, val2) {
                json_obj_set(model, key2, json_ref(val2));
            }
        } else {
            json_obj_set(copy, key, json_ref(val));
        }
    }
    text = json_to_text(copy, JSON_COMPACT, &n);
    t = parse_or_fail(text, n);
    json_put(copy);
    return t;
}

static void check_decode(const struct tokenizer *t, const struct json_value *x, const int32_t *ids,
                         size_t n_ids, const char *key, bool skip) {
    struct buf whole = BUF_INIT, streamed = BUF_INIT;
    const char *want;
    size_t n;
    assert_int_equal(json_get_str(x, key, &want, &n), JSON_OK);
    assert_int_equal(tokenizer_decode(t, ids, n_ids, skip, &whole), ERR_OK);
    assert_same_text(&whole, want, n);
    stream_all(t, ids, n_ids, skip, &streamed);
    assert_same_text(&streamed, want, n);
    buf_free(&whole);
    buf_free(&streamed);
}

static void check_text(const struct tokenizer *t, const char *name, const struct json_value *x) {
    struct id_list plain = {0}, special = {0};
    struct json_value *want;
    const char *text;
    size_t n;
    assert_int_equal(json_get_str(x, "text", &text, &n), JSON_OK);
    assert_int_equal(tokenizer_encode(t, text, n, false, 1 << 20, &plain), ERR_OK);
    assert_int_equal(json_get_arr(x, "ids", &want), JSON_OK);
    assert_same_ids(&plain, want, name, text);
    assert_int_equal(tokenizer_encode(t, text, n, true, 1 << 20, &special), ERR_OK);
    assert_int_equal(json_get_arr(x, "ids_with_special", &want), JSON_OK);
    assert_same_ids(&special, want, name, text);
    check_decode(t, x, special.ids, special.n, "decoded", true);
    check_decode(t, x, special.ids, special.n, "decoded_all", false);
    id_list_free(&plain);
    id_list_free(&special);
}

static void check_id_list(const struct tokenizer *t, const struct json_value *x) {
    struct json_value *arr;
    struct id_list l = {0};
    assert_int_equal(json_get_arr(x, "ids", &arr), JSON_OK);
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        int64_t id;
        assert_int_equal(json_as_i64(json_arr_at(arr, i), &id), JSON_OK);
        assert_int_equal(id_list_push(&l, (int32_t)id), ERR_OK);
    }
    check_decode(t, x, l.ids, l.n, "decoded", true);
    check_decode(t, x, l.ids, l.n, "decoded_all", false);
    id_list_free(&l);
}

static void test_cases(void **state) {
    struct buf b = gunzip("cases.json.gz");
    struct json_value *root, *cases, *arr;
    size_t n_texts = 0, n_lists = 0;
    (void)state;
    assert_int_equal(json_read(&root, b.data, b.len, NULL, NULL), ERR_OK);
    buf_free(&b);
    assert_int_equal(json_get_arr(root, "cases", &cases), JSON_OK);
    for (size_t i = 0; i < json_arr_len(cases); i++) {
        const struct json_value *c = json_arr_at(cases, i);
        struct tokenizer *t = case_tokenizer(root, c);
        const char *name;
        size_t n;
        assert_int_equal(json_get_str(c, "name", &name, &n), JSON_OK);
        assert_int_equal(json_get_arr(c, "texts", &arr), JSON_OK);
        for (size_t k = 0; k < json_arr_len(arr); k++, n_texts++) {
            check_text(t, name, json_arr_at(arr, k));
        }
        assert_int_equal(json_get_arr(c, "id_lists", &arr), JSON_OK);
        for (size_t k = 0; k < json_arr_len(arr); k++, n_lists++) {
            check_id_list(t, json_arr_at(arr, k));
        }
        tokenizer_free(&t);
    }
    json_put(root);
    assert_int_equal(n_texts, 8860); /* none was passed over */
    assert_int_equal(n_lists, 432);
}

/* ---- BPE against a plain reference */

enum { TOKENS_MAX = 64, WORD_MAX = 400 };

struct model {
    char token[TOKENS_MAX][64];
    int left[TOKENS_MAX], right[TOKENS_MAX]; /* of the merge that makes the token */
    int n_base, n;
};

/* Tokens a, b, c and joins of those there already, each written once. */
static struct tokenizer *random_model(uint64_t *seed, struct model *m) {
    struct buf b = BUF_INIT;
    struct tokenizer *t;
    *m = (struct model){.n_base = 3, .n = 3};
    for (int i = 0; i < 3; i++) m->token[i][0] = (char)('a' + i);
    for (int tries = 0; tries < 60 && m->n < TOKENS_MAX; tries++) {
        int l = (int)(rnd(seed) % (uint32_t)m->n), r = (int)(rnd(seed) % (uint32_t)m->n);
        char joined[128];
        bool there = false;
        snprintf(joined, sizeof joined, "%s%s", m->token[l], m->token[r]);
        for (int i = 0; i < m->n; i++) there = there || strcmp(m->token[i], joined) == 0;
        if (there || strlen(joined) >= sizeof m->token[0]) continue;
        m->left[m->n] = l;
        m->right[m->n] = r;
        memcpy(m->token[m->n++], joined, strlen(joined) + 1);
    }
    buf_puts(&b, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < m->n; i++) buf_printf(&b, "%s\"%s\":%d", i ? "," : "", m->token[i], i);
    buf_puts(&b, "},\"merges\":[");
    for (int i = m->n_base; i < m->n; i++) {
        buf_printf(&b, "%s\"%s %s\"", i > m->n_base ? "," : "", m->token[m->left[i]],
                   m->token[m->right[i]]);
    }
    buf_puts(&b, "]}}");
    t = parse_or_fail(b.data, b.len);
    buf_free(&b);
    return t;
}

/* Merge k makes token k, so the lowest rank is the lowest id. */
static size_t reference_bpe(const struct model *m, int *id, size_t n) {
    for (;;) {
        int best = m->n;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (int k = m->n_base; k < best; k++) {
                if (m->left[k] == id[i] && m->right[k] == id[i + 1]) {
                    best = k;
                    at = i;
                }
            }
        }
        if (best == m->n) return n;
        id[at] = best;
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        n--;
    }
}

static void test_bpe_reference(void **state) {
    uint64_t seed = 0xba70;
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct model m;
        struct tokenizer *t = random_model(&seed, &m);
        for (int word = 0; word < 30; word++) {
            char s[WORD_MAX];
            int want[WORD_MAX];
            size_t n = rnd(&seed) % (word % 3 ? 40 : WORD_MAX), n_want;
            struct id_list l = {0};
            for (size_t i = 0; i < n; i++) {
                want[i] = (int)(rnd(&seed) % 3);
                s[i] = (char)('a' + want[i]);
            }
            n_want = reference_bpe(&m, want, n);
            assert_int_equal(tokenizer_encode(t, s, n, false, WORD_MAX, &l), ERR_OK);
            assert_int_equal(l.n, n_want);
            for (size_t i = 0; i < n_want; i++) assert_int_equal(l.ids[i], want[i]);
            id_list_free(&l);
        }
        tokenizer_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_bpe_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
