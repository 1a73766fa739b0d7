/* Goal: WordPiece and Unigram cut words as the models say; BERT's steps around them; pairs. Method:
 * a real WordPiece vocabulary (BGE's) with texts and ids made by llama.cpp (tests/data/tokenizers);
 * Unigram against a search over all ways to cut a word, on random vocabularies; the compiled
 * normaliser on a trie made by hand. */
#include <math.h>
#include <unistd.h>
#include "tests/unit/common/text/tok_testlib.h"

#define DATA "tests/data/tokenizers/bert/"

/* ---- WordPiece */

static char *read_all(const char *path) {
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

static struct tokenizer *bge(void) {
    char path[] = "/tmp/baton-bge-XXXXXX.gguf";
    struct tokenizer *t = NULL;
    struct errbuf eb = {0};
    const int fd = mkstemps(path, 5);
    struct buf file = gunzip("bert/vocab.gguf.gz");
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file.data, file.len), file.len);
    close(fd);
    buf_free(&file);
    enum err e = tokenizer_load(&t, path, &eb);
    if (e != ERR_OK) fail_msg("%s", eb.text);
    unlink(path);
    return t;
}

static void bge_cuts_as_its_vectors_say(void **state) {
    static const char gap[] = "\n__ggml_vocab_test__\n";
    struct tokenizer *t = bge();
    char *texts = read_all(DATA "texts.inp"), *ids = read_all(DATA "ids.out"), *text = texts,
         *line = ids;
    int n_texts = 0;
    (void)state;
    for (char *end; text != NULL && *line != '\0'; text = end, n_texts++) {
        struct id_list got = {0};
        char want[4096], have[4096] = "";
        char *stop = strchr(line, '\n');
        size_t n, at = 0;
        assert_non_null(stop);
        snprintf(want, sizeof(want), "%.*s", (int)(stop - line), line);
        line = stop + 1;
        if ((end = strstr(text, gap)) != NULL) {
            n = (size_t)(end - text);
            end += sizeof(gap) - 1;
        } else {
            n = strlen(text);
            if (n > 0 && text[n - 1] == '\n') n--;
        }
        assert_int_equal(tokenizer_encode(t, text, n, false, 1 << 20, &got), ERR_OK);
        for (size_t i = 0; i < got.n; i++)
            at += (size_t)snprintf(have + at, sizeof(have) - at, " %d", got.ids[i]);
        if (strcmp(have, want) != 0)
            fail_msg("\"%.*s\": \"%s\", not \"%s\"", (int)n, text, have, want);
        id_list_free(&got);
    }
    assert_true(n_texts > 30);
    free(texts);
    free(ids);
    tokenizer_free(&t);
}

static void check_ids(const struct id_list *got, const int32_t *want, size_t n) {
    assert_int_equal(got->n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(got->ids[i], want[i]);
}

static void bge_wraps_and_decodes(void **state) {
    struct tokenizer *t = bge();
    struct id_list a = {0}, b = {0}, out = {0}, one = {0};
    struct buf text = BUF_INIT;
    size_t n_first = 0;
    (void)state;
    assert_int_equal(tokenizer_encode(t, "Hello world", 11, false, 99, &a), ERR_OK);
    assert_int_equal(tokenizer_encode(t, "hello!", 6, false, 99, &b), ERR_OK);
    assert_true(tokenizer_has_pairs(t));
    assert_int_equal(tokenizer_special_count(t, false), 2);
    assert_int_equal(tokenizer_special_count(t, true), 3);
    assert_int_equal(tokenizer_wrap_pair(t, &a, &b, &out, &n_first), ERR_OK);
    check_ids(&out, (const int32_t[]){101, 7592, 2088, 102, 7592, 999, 102}, 7);
    assert_int_equal(n_first, 4);
    assert_int_equal(tokenizer_wrap(t, &a, &one), ERR_OK);
    check_ids(&one, (const int32_t[]){101, 7592, 2088, 102}, 4);
    one.n = 0;
    assert_int_equal(tokenizer_encode(t, "Hello world", 11, true, 99, &one), ERR_OK);
    check_ids(&one, (const int32_t[]){101, 7592, 2088, 102}, 4);
    assert_int_equal(tokenizer_decode(t, out.ids, out.n, true, &text), ERR_OK);
    assert_same_text(&text, "hello world hello!", 18);
    /* a word of more than a hundred characters is unknown; so is one with an unknown character */
    char word[102];
    memset(word, 'a', sizeof(word));
    one.n = 0;
    assert_int_equal(tokenizer_encode(t, word, 101, false, 99, &one), ERR_OK);
    check_ids(&one, (const int32_t[]){100}, 1);
    one.n = 0;
    assert_int_equal(tokenizer_encode(t, word, 100, false, 99, &one), ERR_OK);
    assert_true(one.n > 10);
    one.n = 0;
    assert_int_equal(tokenizer_encode(t, word, 100, false, 3, &one), ERR_TOO_LARGE);
    id_list_free(&a);
    id_list_free(&b);
    id_list_free(&out);
    id_list_free(&one);
    buf_free(&text);
    tokenizer_free(&t);
}

/* ---- Unigram */

enum { PIECES = 12, WORD = 9 };
static uint64_t rng_state = 3;
static uint32_t dice(uint32_t n) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

struct pieces {
    char text[PIECES][5];
    double score[PIECES];
    double worst;
};

/* The best sum over all ways to cut s; unknown characters cost worst - 10 each. */
static double best_sum(const struct pieces *p, const char *s) {
    double best = -INFINITY;
    bool single = false;
    if (*s == '\0') return 0;
    for (int i = 1; i < PIECES; i++) {
        const size_t n = strlen(p->text[i]);
        if (strncmp(p->text[i], s, n) != 0) continue;
        if (n == 1) single = true;
        const double sum = p->score[i] + best_sum(p, s + n);
        if (sum > best) best = sum;
    }
    if (single) return best;
    const double sum = p->worst - 10 + best_sum(p, s + 1);
    return sum > best ? sum : best;
}

static struct tokenizer *unigram(const struct pieces *p) {
    struct buf b = BUF_INIT;
    struct tokenizer *t;
    buf_puts(&b,
             "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
             "\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"Unigram\","
             "\"unk_id\":0,\"vocab\":[[\"<unk>\",0]");
    for (int i = 1; i < PIECES; i++) buf_printf(&b, ",[\"%s\",%.17g]", p->text[i], p->score[i]);
    buf_puts(&b, "]}}");
    t = parse_or_fail(b.data, b.len);
    buf_free(&b);
    return t;
}

static void unigram_finds_the_best_sum(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct pieces p = {.worst = 0};
        for (int i = 1; i < PIECES; i++) { /* each once */
            bool again;
            do {
                const uint32_t n = 1 + dice(3);
                for (uint32_t k = 0; k < n; k++) p.text[i][k] = (char)('a' + dice(3));
                p.text[i][n] = '\0';
                again = false;
                for (int j = 1; j < i; j++) again = again || strcmp(p.text[j], p.text[i]) == 0;
            } while (again);
            p.score[i] = -1.0 - dice(1000) / 100.0;
            if (p.score[i] < p.worst) p.worst = p.score[i];
        }
        struct tokenizer *t = unigram(&p);
        for (int k = 0; k < 20; k++) {
            char word[WORD + 1] = "";
            struct id_list got = {0};
            double sum = 0;
            size_t at = 0;
            const uint32_t n = 1 + dice(WORD);
            for (uint32_t i = 0; i < n; i++) word[i] = (char)('a' + dice(4)); /* d is unknown */
            assert_int_equal(tokenizer_encode(t, word, n, false, 99, &got), ERR_OK);
            for (size_t i = 0; i < got.n; i++) {
                if (got.ids[i] != 0) {
                    const char *piece = p.text[got.ids[i]];
                    assert_memory_equal(word + at, piece, strlen(piece));
                    sum += p.score[got.ids[i]];
                    at += strlen(piece);
                    continue;
                }
                assert_true(i == 0 || got.ids[i - 1] != 0); /* in a row they are one */
                /* as far as the next piece matches; its characters are unknown alone */
                size_t end = at;
                const char *next = i + 1 < got.n ? p.text[got.ids[i + 1]] : "";
                while (word[end] != '\0' &&
                       (end == at || *next == '\0' || strncmp(word + end, next, strlen(next)) != 0))
                    end++;
                sum += (p.worst - 10) * (double)(end - at);
                at = end;
            }
            if (at == n) assert_true(fabs(sum - best_sum(&p, word)) < 1e-9);
            id_list_free(&got);
        }
        tokenizer_free(&t);
    }
}

/* ---- the compiled normaliser */

static void put_unit(uint8_t *units, size_t idx, uint32_t v) {
    for (int i = 0; i < 4; i++) units[4 * idx + (size_t)i] = (uint8_t)(v >> (8 * i));
}

static void b64(struct buf *out, const uint8_t *p, size_t n) {
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0u);
        buf_putc(out, set[v >> 18]);
        buf_putc(out, set[v >> 12 & 63]);
        buf_putc(out, i + 1 < n ? set[v >> 6 & 63] : '=');
        buf_putc(out, i + 2 < n ? set[v & 63] : '=');
    }
}

/* One entry, of three bytes: U+FB01 (a ligature) becomes "fi". Each node has 256 units of its own.
 */
static void charsmap_replaces_what_it_holds(void **state) {
    enum { UNITS = 1280, TEXT = 4 };
    static uint8_t blob[4 + 4 * UNITS + TEXT];
    const uint8_t key[3] = {0xEF, 0xAC, 0x81};
    struct buf json = BUF_INIT;
    struct id_list ids = {0};
    (void)state;
    memset(blob, 0, sizeof(blob));
    put_unit(blob, 0, 4 * UNITS);
    uint8_t *units = blob + 4;
    size_t node = 0, base = 256;
    put_unit(units, 0, 256u << 10);
    for (int i = 0; i < 3; i++, base += 256) {
        node = base ^ key[i];
        put_unit(units, node,
                 (uint32_t)(node ^ (base + 256)) << 10 | (i == 2 ? 1u << 8 : 0) | key[i]);
    }
    put_unit(units, base, 1u << 31);
    memcpy(blob + 4 + 4 * UNITS, "fi", 3);
    buf_puts(&json, "{\"version\":\"1.0\",\"added_tokens\":[],\"pre_tokenizer\":null,"
                    "\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"Unigram\","
                    "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"f\",-1],[\"i\",-1],[\"x\",-1]]},"
                    "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
    b64(&json, blob, sizeof(blob));
    buf_puts(&json, "\"}}");
    struct tokenizer *t = parse_or_fail(json.data, json.len);
    assert_int_equal(tokenizer_encode(t, "x\xEF\xAC\x81x", 5, false, 99, &ids), ERR_OK);
    check_ids(&ids, (const int32_t[]){3, 1, 2, 3}, 4);
    ids.n = 0; /* half of the key is no entry */
    assert_int_equal(tokenizer_encode(t, "\xEF\xAC\x82i", 4, false, 99, &ids), ERR_OK);
    check_ids(&ids, (const int32_t[]){0, 2}, 2);
    id_list_free(&ids);
    buf_free(&json);
    tokenizer_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bge_cuts_as_its_vectors_say),
        cmocka_unit_test(bge_wraps_and_decodes),
        cmocka_unit_test(unigram_finds_the_best_sum),
        cmocka_unit_test(charsmap_replaces_what_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
