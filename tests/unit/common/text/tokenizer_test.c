/* Goal: two real vocabularies give the ids of the library that made them, and text comes back.
 * Method: every stored vector is encoded with and without special tokens; the ids go back to text
 * whole and streamed, which must agree with each other, and with the text itself where encoding
 * loses nothing. Random ids, which make every kind of broken character, are decoded whole, streamed
 * and by a plain reference. Long and hostile texts must stay cheap; threads share one tokenizer. */
#include "tests/unit/common/text/tok_testlib.h"

#include <pthread.h>
#include <time.h>

static struct tokenizer *llama2, *qwen2;

static int load_both(void **state) {
    (void)state;
    llama2 = load_gz("llama2/tokenizer.json.gz");
    qwen2 = load_gz("qwen2/tokenizer.json.gz");
    return 0;
}

static int free_both(void **state) {
    (void)state;
    tokenizer_free(&llama2);
    tokenizer_free(&qwen2);
    tokenizer_free(&qwen2); /* NULL is fine */
    return llama2 != NULL || qwen2 != NULL;
}

/* Whole and streamed text of ids agree; returned in *out. */
static void decode_both_ways(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip,
                             struct buf *out) {
    struct buf streamed = BUF_INIT;
    assert_int_equal(tokenizer_decode(t, ids, n, skip, out), ERR_OK);
    stream_all(t, ids, n, skip, &streamed);
    assert_same_text(out, streamed.data, streamed.len);
    buf_free(&streamed);
}

/* NFC leaves these texts alone, and no special token disappears from them. */
static bool survives(const struct tokenizer *t, const struct id_list *ids, const char *text) {
    static const char *const changed_by_nfc[] = {"e\xCC\x81", "\xE2\x84\xAB", "A\xCC\x8A"};
    for (size_t i = 0; i < ids->n; i++) {
        if (tokenizer_is_special(t, ids->ids[i])) return false;
    }
    for (size_t i = 0; i < sizeof changed_by_nfc / sizeof changed_by_nfc[0] && t == qwen2; i++) {
        if (strstr(text, changed_by_nfc[i]) != NULL) return false;
    }
    return true;
}

static void check_vector(const struct tokenizer *t, const struct json_value *v, size_t *n_same) {
    const char *text;
    size_t n;
    struct json_value *want;
    struct id_list plain = {0}, special = {0};
    struct buf back = BUF_INIT;
    assert_int_equal(json_get_str(v, "text", &text, &n), JSON_OK);
    assert_int_equal(tokenizer_encode(t, text, n, false, 1 << 20, &plain), ERR_OK);
    assert_int_equal(json_get_arr(v, "ids", &want), JSON_OK);
    assert_same_ids(&plain, want, "ids", text);
    assert_int_equal(tokenizer_encode(t, text, n, true, 1 << 20, &special), ERR_OK);
    assert_int_equal(json_get_arr(v, "ids_with_special", &want), JSON_OK);
    assert_same_ids(&special, want, "ids_with_special", text);
    decode_both_ways(t, special.ids, special.n, false, &back);
    buf_clear(&back);
    decode_both_ways(t, special.ids, special.n, true, &back);
    if (survives(t, &plain, text)) {
        assert_same_text(&back, text, n);
        ++*n_same;
    }
    buf_free(&back);
    id_list_free(&plain);
    id_list_free(&special);
}

static void check_vectors(const struct tokenizer *t, const char *path, size_t n_lines) {
    struct buf b = gunzip(path);
    char *save = NULL;
    size_t n = 0, n_same = 0;
    for (char *line = strtok_r(b.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct json_value *v;
        assert_int_equal(json_read(&v, line, strlen(line), NULL, NULL), ERR_OK);
        check_vector(t, v, &n_same);
        json_put(v);
        n++;
    }
    assert_int_equal(n, n_lines);
    assert_true(n_same > n_lines / 2); /* most vectors took part in the round trip */
    buf_free(&b);
}

static void test_vectors_llama2(void **state) {
    (void)state;
    check_vectors(llama2, "llama2/vectors.jsonl.gz", 357);
}

static void test_vectors_qwen2(void **state) {
    (void)state;
    check_vectors(qwen2, "qwen2/vectors.jsonl.gz", 357);
}

static void test_lookup(void **state) {
    const char *p;
    (void)state;
    assert_int_equal(tokenizer_vocab_size(llama2), 32000);
    assert_int_equal(tokenizer_vocab_size(qwen2), 151665);
    assert_int_equal(tokenizer_token_id(llama2, "<s>"), 1);
    assert_int_equal(tokenizer_token_id(qwen2, "<|im_end|>"), 151645);
    assert_int_equal(tokenizer_token_id(qwen2, "no such token"), -1);
    assert_true(tokenizer_is_special(qwen2, 151645));
    assert_false(tokenizer_is_special(qwen2, 151657)); /* <tool_call>: added, not special */
    assert_false(tokenizer_is_special(qwen2, -1));
    assert_false(tokenizer_is_special(qwen2, 1 << 30));
    /* U+2581 stands for a space, <0x0A> for a byte */
    assert_int_equal(tokenizer_token_bytes(llama2, 15043, &p), 6);
    assert_memory_equal(p, " Hello", 6);
    assert_int_equal(tokenizer_token_bytes(llama2, 13, &p), 1);
    assert_memory_equal(p, "\n", 1);
    assert_int_equal(tokenizer_token_bytes(llama2, 1, &p), 3);
    assert_memory_equal(p, "<s>", 3);
    /* byte level: half a character is possible */
    assert_int_equal(tokenizer_token_bytes(qwen2, 21927, &p), 6);
    assert_memory_equal(p, " Hello", 6);
    assert_int_equal(tokenizer_token_bytes(qwen2, 99, &p), 1);
    assert_int_equal((unsigned char)p[0], 0xA6); /* of the llama, F0 9F A6 99 */
    assert_int_equal(tokenizer_token_bytes(qwen2, 151665, &p), 0);
    assert_int_equal(tokenizer_token_bytes(qwen2, -1, &p), 0);
}

/* What the byte-level decoder means, the plain way: all bytes, then broken ones replaced by the
 * Unicode standard's advice (one U+FFFD per maximal part of a character). */
static void reference_byte_level(const struct tokenizer *t, const int32_t *ids, size_t n,
                                 struct buf *out) {
    struct buf raw = BUF_INIT;
    for (size_t i = 0; i < n; i++) {
        const char *p;
        size_t len = tokenizer_token_bytes(t, ids[i], &p);
        if (!tokenizer_is_special(t, ids[i])) buf_append(&raw, p, len);
    }
    for (size_t i = 0; i < raw.len;) {
        size_t best = 0, part = 0;
        for (size_t len = 1; len <= 4 && i + len <= raw.len; len++) {
            if (is_utf8(raw.data + i, len)) {
                best = len;
                break;
            }
        }
        if (best > 0) {
            buf_append(out, raw.data + i, best);
            i += best;
            continue;
        }
        /* a part counts when some bytes behind it would complete it */
        for (size_t len = 1; len <= 3 && i + len <= raw.len; len++) {
            char c[4];
            bool can = false;
            memcpy(c, raw.data + i, len);
            for (unsigned x = 0x80; x < 0xC0 && !can; x++) {
                for (size_t k = len; k < 4; k++) c[k] = (char)(k == len ? x : 0x80);
                for (size_t total = len + 1; total <= 4 && !can; total++) can = is_utf8(c, total);
            }
            if (can) part = len;
        }
        buf_append(out, "\xEF\xBF\xBD", 3);
        i += part > 0 ? part : 1;
    }
    buf_free(&raw);
}

static void test_random_ids(void **state) {
    uint64_t seed = 0x5eed5eed;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        const struct tokenizer *t = round % 2 ? llama2 : qwen2;
        int32_t ids[24];
        size_t n = 1 + rnd(&seed) % 24;
        struct buf whole = BUF_INIT, want = BUF_INIT;
        for (size_t i = 0; i < n; i++) {
            /* the lowest ids are single bytes; some ids belong to no token */
            uint32_t top = rnd(&seed) % 3 ? 259 : (uint32_t)tokenizer_vocab_size(t) + 3;
            ids[i] = (int32_t)(rnd(&seed) % top) - (rnd(&seed) % 50 == 0);
        }
        decode_both_ways(t, ids, n, true, &whole);
        assert_true(whole.len == 0 || is_utf8(whole.data, whole.len));
        if (t == qwen2) {
            reference_byte_level(t, ids, n, &want);
            assert_same_text(&whole, want.data, want.len);
        }
        buf_free(&whole);
        buf_free(&want);
    }
}

static size_t common_bytes(const struct buf *a, const struct buf *b) {
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n]) n++;
    return n;
}

/* The text of ids[at..n) behind ids[0..at), streamed by a copy. */
static void continue_behind(const struct tokenizer *t, const int32_t *ids, size_t at, size_t n,
                            struct buf *out) {
    struct detok *first = NULL, *d = NULL;
    struct buf piece = BUF_INIT;
    assert_int_equal(detok_create(&first, t, true), ERR_OK);
    assert_int_equal(detok_prompt(first, ids, at, true), ERR_OK);
    assert_int_equal(detok_copy(&d, first), ERR_OK);
    detok_destroy(&first);
    for (size_t i = at; i <= n; i++) {
        buf_clear(&piece);
        assert_int_equal(i < n ? detok_feed(d, ids[i], &piece) : detok_flush(d, &piece), ERR_OK);
        if (piece.len == 0) continue;
        assert_true(is_utf8(piece.data, piece.len));
        buf_append(out, piece.data, piece.len);
    }
    buf_free(&piece);
    detok_destroy(&d);
}

/* An answer behind a prompt is the text of both less the text of the prompt, wherever the prompt
 * ends; where its end is half a character that the answer completes, what is new of it. */
static void test_continuation(void **state) {
    uint64_t seed = 0xb1a2c;
    size_t n_whole = 0;
    (void)state;
    for (int round = 0; round < 6000; round++) {
        const struct tokenizer *t = round % 2 ? llama2 : qwen2;
        int32_t ids[40];
        size_t n = 1 + rnd(&seed) % 40, at = rnd(&seed) % (n + 1);
        struct buf whole = BUF_INIT, before = BUF_INIT, got = BUF_INIT;
        for (size_t i = 0; i < n; i++) {
            uint32_t kind = rnd(&seed) % 4; /* bytes, blanks, words */
            ids[i] = kind == 0   ? (int32_t)(rnd(&seed) % 259)
                     : kind == 1 ? tokenizer_token_id(t, t == llama2 ? "\xE2\x96\x81" : "\xC4\xA0")
                                 : (int32_t)(rnd(&seed) % 30000);
        }
        assert_int_equal(tokenizer_decode(t, ids, n, true, &whole), ERR_OK);
        assert_int_equal(tokenizer_decode(t, ids, at, true, &before), ERR_OK);
        continue_behind(t, ids, at, n, &got);
        size_t same = common_bytes(&whole, &before);
        if (same == before.len) {
            n_whole++;
            assert_same_text(&got, whole.data + same, whole.len - same);
        } else { /* all that is new from the character on where the two part */
            while (same > 0 && ((unsigned char)whole.data[same] & 0xC0) == 0x80) same--;
            if (same < whole.len) assert_same_text(&got, whole.data + same, whole.len - same);
        }
        buf_free(&whole);
        buf_free(&before);
        buf_free(&got);
    }
    assert_true(n_whole > 3000);
}

/* The blank that a decoder of the SentencePiece kind cuts is cut at a text's start alone. */
static void test_first_blank(void **state) {
    static const struct {
        const char *prompt, *words[3], *text;
        uint32_t cut;
    } rows[] = {
        {"park.", {"\xE2\x96\x81They", "\xE2\x96\x81saw"}, " They saw", 0},
        {"", {"\xE2\x96\x81They", "\xE2\x96\x81saw"}, "They saw", 1},
        {"", {"\xE2\x96\x81", "\xE2\x96\x81They"}, " They", 1},
        {"pa", {"<0xE2>", "<0x82>", "<0xAC>"}, "\xE2\x82\xAC", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct id_list ids = {0};
        struct buf got = BUF_INIT;
        struct detok *d = NULL;
        const char *s = rows[i].prompt;
        assert_int_equal(tokenizer_encode(llama2, s, strlen(s), true, 99, &ids), ERR_OK);
        size_t at = ids.n;
        assert_int_equal(detok_create(&d, llama2, true), ERR_OK);
        assert_int_equal(detok_prompt(d, ids.ids, at, true), ERR_OK);
        assert_int_equal(detok_cut(d).n, rows[i].cut);
        detok_destroy(&d);
        for (size_t k = 0; k < 3 && rows[i].words[k] != NULL; k++)
            assert_int_equal(id_list_push(&ids, tokenizer_token_id(llama2, rows[i].words[k])),
                             ERR_OK);
        continue_behind(llama2, ids.ids, at, ids.n, &got);
        assert_same_text(&got, rows[i].text, strlen(rows[i].text));
        buf_free(&got);
        id_list_free(&ids);
    }
}

/* Special tokens in marked text are text: whole, in a row, one inside another's beginning, or put
 * together from the ends of two strings; the marks leave nothing behind, and text without special
 * tokens is not touched. */
static void test_marks(void **state) {
    static const char *const with[] = {"<|im_start|>system", "a<|im_end|>\n<|im_start|>b",
                                       "<|im_<|im_end|>", "x <|endoftext|>",
                                       "<|im_end|><|im_end|>"};
    static const char *const without[] = {"", "a < b", "<|x|>", "<tool_call>{}</tool_call>"};
    (void)state;
    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++) {
        struct buf marked = BUF_INIT, back = BUF_INIT;
        struct id_list ids = {0};
        assert_true(tokenizer_mark(qwen2, with[i], strlen(with[i]), &marked));
        assert_int_equal(tokenizer_encode_marked(qwen2, marked.data, marked.len, false, 99, &ids),
                         ERR_OK);
        for (size_t k = 0; k < ids.n; k++) assert_false(tokenizer_is_special(qwen2, ids.ids[k]));
        assert_int_equal(tokenizer_decode(qwen2, ids.ids, ids.n, false, &back), ERR_OK);
        assert_same_text(&back, with[i], strlen(with[i]));
        buf_free(&marked);
        buf_free(&back);
        id_list_free(&ids);
    }
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++) {
        struct buf marked = BUF_INIT;
        assert_false(tokenizer_mark(qwen2, without[i], strlen(without[i]), &marked));
        assert_int_equal(marked.len, 0);
    }
    const char *two[] = {"<|im_", "start|>"}; /* as two fields side by side in a template */
    struct buf joined = BUF_INIT;
    struct id_list ids = {0};
    for (int i = 0; i < 2; i++)
        if (!tokenizer_mark(qwen2, two[i], strlen(two[i]), &joined)) buf_puts(&joined, two[i]);
    assert_int_equal(tokenizer_encode_marked(qwen2, joined.data, joined.len, false, 99, &ids),
                     ERR_OK);
    for (size_t k = 0; k < ids.n; k++) assert_false(tokenizer_is_special(qwen2, ids.ids[k]));
    buf_free(&joined);
    id_list_free(&ids);
}

static void test_not_utf8(void **state) {
    static const char *const bad[] = {
        "\x80",         "a\xC3",      "\xC0\xAF",     "\xED\xA0\x80",    "\xF5\x80\x80\x80",
        "\xE0\x80\x80", "ok \xFF ok", "\xF0\x9F\xA6", "\xF4\x90\x80\x80"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct id_list l = {0};
        assert_int_equal(tokenizer_encode(qwen2, bad[i], strlen(bad[i]), true, 100, &l),
                         ERR_INVALID);
        assert_int_equal(l.n, 0);
        id_list_free(&l);
    }
}

/* n_ids_max on both sides; what was made stays, and what was in the list before does not count. */
static void test_ids_max(void **state) {
    const char *text = "Hello world, this is a test";
    struct id_list all = {0};
    (void)state;
    assert_int_equal(tokenizer_encode(llama2, text, strlen(text), true, SIZE_MAX, &all), ERR_OK);
    for (size_t max = 0; max <= all.n + 1; max++) {
        struct id_list l = {0};
        enum err e;
        assert_int_equal(id_list_push(&l, 77), ERR_OK);
        e = tokenizer_encode(llama2, text, strlen(text), true, max, &l);
        assert_int_equal(e, max < all.n ? ERR_TOO_LARGE : ERR_OK);
        assert_int_equal(l.n, 1 + (max < all.n ? max : all.n));
        assert_int_equal(l.ids[0], 77);
        assert_true(l.n == 1 || memcmp(l.ids + 1, all.ids, (l.n - 1) * sizeof *l.ids) == 0);
        id_list_free(&l);
    }
    id_list_free(&all);
}

/* CPU seconds one encode takes; ids must decode to the text. */
static double encode_s(const struct tokenizer *t, const char *text, size_t n, bool lossless) {
    struct id_list l = {0};
    struct buf back = BUF_INIT;
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    assert_int_equal(tokenizer_encode(t, text, n, false, SIZE_MAX, &l), ERR_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    assert_int_equal(tokenizer_decode(t, l.ids, l.n, false, &back), ERR_OK);
    if (lossless) assert_true(back.len == n && memcmp(back.data, text, n) == 0);
    buf_free(&back);
    id_list_free(&l);
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
}

/* Each of these takes minutes to hours where any step is quadratic, and about a second in all where
 * none is; the bound leaves room for sanitizers and a busy machine. */
static void test_hostile_texts(void **state) {
    enum { N = 1 << 19 };
    static const char *const units[] = {"a",
                                        "ab",
                                        " ",
                                        "\n",
                                        " \n",
                                        "\t ",
                                        "\xE2\x96\x81",
                                        "'",
                                        "1",
                                        "\xCC\xA3\xCC\x81",
                                        "<|im_start|",
                                        "\xF0\x9F\xA6\x99"};
    char *text = malloc(N);
    (void)state;
    assert_non_null(text);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t len = strlen(units[u]), n = 0;
        bool marks = len == 4 && units[u][0] == '\xCC'; /* NFC puts the marks in order */
        for (; n + len <= N; n += len) memcpy(text + n, units[u], len);
        assert_true(encode_s(qwen2, text, n, !marks) < 30.0);
        /* llama2 decodes U+2581 to a space */
        assert_true(encode_s(llama2, text, n, units[u][0] != '\xE2') < 30.0);
    }
    free(text);
}

/* The bundled model's vocabulary, from its folder. */
static void test_fable(void **state) {
    static const char *const texts[] = {
        "Once upon a time there was a little fox. \"Who's there?\" he said.\n\nNobody answered.",
        "  two  spaces\tand a tab\n", "1984, 3.14 and 42!", "\xC3\xA4\xE4\xBD\xA0\xF0\x9F\xA6\x99",
        ""};
    struct errbuf eb = {.code = ERR_OK};
    struct tokenizer *t = NULL;
    (void)state;
    if (tokenizer_load(&t, "models/fable", &eb) != ERR_OK) fail_msg("%s", eb.text);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct id_list l = {0};
        struct buf back = BUF_INIT;
        size_t n = strlen(texts[i]);
        assert_int_equal(tokenizer_encode(t, texts[i], n, true, 1000, &l), ERR_OK);
        for (size_t k = 0; k < l.n; k++) assert_in_range(l.ids[k], 0, tokenizer_vocab_size(t) - 1);
        if (i == 0) assert_true(l.n < n / 3); /* it knows story English */
        decode_both_ways(t, l.ids, l.n, true, &back);
        assert_same_text(&back, texts[i], n);
        buf_free(&back);
        id_list_free(&l);
    }
    tokenizer_free(&t);
}

struct job {
    const struct tokenizer *t;
    const char *text;
    struct id_list want;
    bool same;
};

static void *encode_again(void *arg) {
    struct job *j = arg;
    j->same = true;
    for (int i = 0; i < 20 && j->same; i++) {
        struct id_list l = {0};
        struct buf back = BUF_INIT;
        j->same = tokenizer_encode(j->t, j->text, strlen(j->text), true, 1 << 20, &l) == ERR_OK &&
                  l.n == j->want.n && memcmp(l.ids, j->want.ids, l.n * sizeof *l.ids) == 0 &&
                  tokenizer_decode(j->t, l.ids, l.n, true, &back) == ERR_OK;
        id_list_free(&l);
        buf_free(&back);
    }
    return NULL;
}

static void test_threads(void **state) {
    enum { N = 4 };
    struct job jobs[N];
    pthread_t threads[N];
    struct buf text = BUF_INIT;
    (void)state;
    for (int i = 0; i < 200; i++) buf_printf(&text, "Word %d, another's word\xE2\x80\xA6 ", i * 7);
    for (int i = 0; i < N; i++) {
        jobs[i] = (struct job){.t = i % 2 ? llama2 : qwen2, .text = text.data};
        assert_int_equal(
            tokenizer_encode(jobs[i].t, text.data, text.len, true, 1 << 20, &jobs[i].want), ERR_OK);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, encode_again, &jobs[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_true(jobs[i].same);
        id_list_free(&jobs[i].want);
    }
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_llama2), cmocka_unit_test(test_vectors_qwen2),
        cmocka_unit_test(test_lookup),         cmocka_unit_test(test_random_ids),
        cmocka_unit_test(test_not_utf8),       cmocka_unit_test(test_ids_max),
        cmocka_unit_test(test_hostile_texts),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fable),          cmocka_unit_test(test_continuation),
        cmocka_unit_test(test_marks),          cmocka_unit_test(test_first_blank),
    };
    return cmocka_run_group_tests(tests, load_both, free_both);
}
