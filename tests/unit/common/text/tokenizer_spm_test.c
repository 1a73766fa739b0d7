/* Goal: SentencePiece's tokenizer.model gives the ids that its pieces, scores and settings say; the
 * files beside it count; what is cut or not supported is refused with a text. Method: models are
 * written here, field by field. Llama 2's own pieces against its tokenizer.json; random BPE models
 * against the rule (best score, leftmost) applied by looking at all pairs each time; random Unigram
 * models against the same model as tokenizer.json. */
#include <math.h>
#include <unistd.h>
#include "common/base/gguf.h"
#include "common/text/tokenizer_spm.h"
#include "tests/unit/common/text/tok_testlib.h"

#define SPACE "\xE2\x96\x81"

/* ---- writing protobuf */
static void varint(struct buf *b, uint64_t v) {
    for (; v > 127; v >>= 7) buf_append(b, &(char){(char)(v | 128)}, 1);
    buf_append(b, &(char){(char)v}, 1);
}

static void number(struct buf *b, uint32_t field, uint64_t v) {
    varint(b, field << 3);
    varint(b, v);
}

static void bytes(struct buf *b, uint32_t field, const void *p, size_t n) {
    varint(b, field << 3 | 2);
    varint(b, n);
    buf_append(b, p, n);
}

static void message(struct buf *b, uint32_t field, struct buf *inner) {
    bytes(b, field, inner->data, inner->len);
    buf_free(inner);
}

static void piece(struct buf *b, const char *s, size_t n, float score, int type) {
    struct buf p = BUF_INIT;
    bytes(&p, 1, s, n);
    varint(&p, 2 << 3 | 5);
    buf_append(&p, &score, sizeof(score));
    if (type != 1) number(&p, 3, (uint64_t)type);
    message(b, 1, &p);
}

struct spec {
    int model;
    bool byte_fallback, no_prefix, no_squeeze, suffix;
    int bos;
};

static void finish(struct buf *b, const struct spec *s) {
    struct buf t = BUF_INIT, n = BUF_INIT;
    if (s->model != 1) number(&t, 3, (uint64_t)s->model);
    if (s->byte_fallback) number(&t, 35, 1);
    if (s->suffix) number(&t, 24, 1);
    if (s->bos != 0) number(&t, 41, (uint64_t)(int64_t)s->bos);
    number(&t, 43, UINT64_MAX); /* pad_id -1 */
    bytes(&t, 1, "corpus.txt", 10);
    if (s->no_prefix) number(&n, 3, 0);
    if (s->no_squeeze) number(&n, 4, 0);
    bytes(&n, 1, "identity", 8);
    message(b, 2, &t);
    message(b, 3, &n);
}

static struct tokenizer *load(const struct buf *b, const char *config, const char *added) {
    struct tokenizer *t = NULL;
    struct json_value *c = NULL, *a = NULL;
    struct errbuf eb = {0};
    if (config != NULL) assert_int_equal(json_read(&c, config, strlen(config), NULL, &eb), ERR_OK);
    if (added != NULL) assert_int_equal(json_read(&a, added, strlen(added), NULL, &eb), ERR_OK);
    if (tokenizer_from_spm(&t, (const uint8_t *)b->data, b->len, "m", c, a, &eb) != ERR_OK)
        fail_msg("%s", eb.text);
    json_put(c);
    json_put(a);
    return t;
}

static void same(const struct tokenizer *a, const struct tokenizer *b, const char *text) {
    struct id_list x = {0}, y = {0};
    assert_int_equal(tokenizer_encode(a, text, strlen(text), true, 100000, &x), ERR_OK);
    assert_int_equal(tokenizer_encode(b, text, strlen(text), true, 100000, &y), ERR_OK);
    if (x.n != y.n || (x.n > 0 && memcmp(x.ids, y.ids, x.n * sizeof(*x.ids)) != 0)) {
        for (size_t i = 0; i < x.n || i < y.n; i++)
            print_error("%d %d\n", i < x.n ? x.ids[i] : -1, i < y.n ? y.ids[i] : -1);
        fail_msg("other ids of \"%s\"", text);
    }
    struct buf back = BUF_INIT, want = BUF_INIT;
    assert_int_equal(tokenizer_decode(a, x.ids, x.n, true, &back), ERR_OK);
    assert_int_equal(tokenizer_decode(b, y.ids, y.n, true, &want), ERR_OK);
    assert_int_equal(back.len, want.len);
    if (back.len > 0) assert_memory_equal(back.data, want.data, back.len);
    buf_free(&back);
    buf_free(&want);
    id_list_free(&x);
    id_list_free(&y);
}

/* ---- Llama 2: a piece's score is minus the place of the first merge that makes it */
enum { LLAMA_IDS = 32000 };

static void llama_2_is_its_tokenizer_json(void **state) {
    static const char *const texts[] = {
        "",
        " ",
        "Hello world",
        "  two  blanks ",
        "def f(x):\n    return x+1\n",
        "na\xC3\xAFve caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\xA6\x99",
        "<s>a</s> b<unk>c",
        "1234567890 3.14 $5 %",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    struct buf json = gunzip("llama2/tokenizer.json.gz"), b = BUF_INIT;
    struct json_value *root = NULL, *model = NULL, *merges = NULL;
    struct errbuf eb = {0};
    static float score[LLAMA_IDS];
    struct tokenizer *want = parse_or_fail(json.data, json.len);
    (void)state;
    assert_int_equal(tokenizer_vocab_size(want), LLAMA_IDS);
    assert_int_equal(json_read(&root, json.data, json.len, NULL, &eb), ERR_OK);
    assert_int_equal(json_get_obj(root, "model", &model), JSON_OK);
    assert_int_equal(json_get_arr(model, "merges", &merges), JSON_OK);
    for (size_t i = json_arr_len(merges); i-- > 0;) {
        const char *s = NULL;
        size_t n = 0;
        char joined[256];
        assert_int_equal(json_as_str(json_arr_at(merges, i), &s, &n), JSON_OK);
        const char *gap = strchr(s, ' ');
        snprintf(joined, sizeof(joined), "%.*s%.100s", (int)(gap - s), s, gap + 1);
        score[tokenizer_token_id(want, joined)] = -(float)i;
    }
    struct json_value *vocab = NULL;
    static const char *text[LLAMA_IDS];
    assert_int_equal(json_get_obj(model, "vocab", &vocab), JSON_OK);
    json_obj_foreach(vocab, key, v) {
        int64_t id = -1;
        assert_int_equal(json_as_i64(v, &id), JSON_OK);
        assert_in_range(id, 0, LLAMA_IDS - 1);
        text[id] = key;
    }
    for (int i = 0; i < LLAMA_IDS; i++)
        piece(&b, text[i], strlen(text[i]), score[i], i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
    finish(&b, &(struct spec){.model = 2, .byte_fallback = true, .no_squeeze = true});
    struct tokenizer *got = load(&b, NULL, NULL);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) same(got, want, texts[i]);
    tokenizer_free(&got);
    tokenizer_free(&want);
    json_put(root);
    buf_free(&json);
    buf_free(&b);
}

/* ---- random models */
enum { PIECES_MAX = 64, PIECE_MAX = 5, TEXT_MAX = 40 };

struct model {
    char s[PIECES_MAX][PIECE_MAX * 3 + 1];
    float score[PIECES_MAX];
    int n;
};

static int find(const struct model *m, const char *s, size_t n) {
    for (int i = 1; i < m->n; i++)
        if (strlen(m->s[i]) == n && memcmp(m->s[i], s, n) == 0) return i;
    return -1;
}

/* Letters a to c and the blank's sign; each single one is a piece but c. */
static void make_model(struct model *m, uint64_t *seed) {
    static const char *const letters[] = {"a", "b", SPACE, "c"};
    memset(m, 0, sizeof(*m));
    strcpy(m->s[0], "<unk>");
    m->n = 1;
    for (int i = 0; i < 3; i++) strcpy(m->s[m->n++], letters[i]);
    while (m->n < 40) {
        char s[PIECE_MAX * 3 + 1] = "";
        for (int left = 2 + (int)(rnd(seed) % (PIECE_MAX - 1)); left > 0; left--)
            strcat(s, letters[rnd(seed) % 3]);
        if (find(m, s, strlen(s)) < 0) strcpy(m->s[m->n++], s);
    }
    for (int i = 1; i < m->n; i++) m->score[i] = -(float)(rnd(seed) % 24) / 4 - 1;
}

static void make_text(char *text, uint64_t *seed) {
    const int n = (int)(rnd(seed) % TEXT_MAX);
    for (int i = 0; i < n; i++) text[i] = "ab c"[rnd(seed) % (rnd(seed) % 8 == 0 ? 4 : 3)];
    text[n] = '\0';
}

/* The rule itself: of all neighbours whose piece is known the best score, the leftmost of equals.
 */
static size_t merge_naively(const struct model *m, const char *text, int32_t *ids) {
    char s[TEXT_MAX + 2][TEXT_MAX * 3 + 4];
    size_t n = 0, n_ids = 0;
    if (text[0] != '\0') strcpy(s[n++], SPACE);
    for (; *text != '\0'; text++) {
        if (*text == ' ')
            strcpy(s[n++], SPACE);
        else
            snprintf(s[n++], sizeof(s[0]), "%c", *text);
    }
    for (;;) {
        size_t best = n;
        float top = -INFINITY;
        for (size_t i = 0; i + 1 < n; i++) {
            char both[sizeof(s[0]) * 2];
            memcpy(both, s[i], strlen(s[i]) + 1);
            memcpy(both + strlen(s[i]), s[i + 1], strlen(s[i + 1]) + 1);
            const int id = find(m, both, strlen(both));
            if (id > 0 && m->score[id] > top) {
                top = m->score[id];
                best = i;
            }
        }
        if (best == n) break;
        memcpy(s[best] + strlen(s[best]), s[best + 1], strlen(s[best + 1]) + 1);
        memmove(s[best + 1], s[best + 2], (n - best - 2) * sizeof(s[0]));
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        const int id = find(m, s[i], strlen(s[i]));
        if (id < 0 && n_ids > 0 && ids[n_ids - 1] == 0) continue; /* unknown ones are one token */
        ids[n_ids++] = id > 0 ? id : 0;
    }
    return n_ids;
}

static void random_bpe_follows_its_rule(void **state) {
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct model m;
        struct buf b = BUF_INIT;
        make_model(&m, &seed);
        for (int i = 0; i < m.n; i++) piece(&b, m.s[i], strlen(m.s[i]), m.score[i], i == 0 ? 2 : 1);
        finish(&b, &(struct spec){.model = 2, .no_squeeze = true, .bos = -1});
        struct tokenizer *t = load(&b, NULL, NULL);
        for (int k = 0; k < 50; k++) {
            char text[TEXT_MAX + 1];
            int32_t want[TEXT_MAX + 2];
            struct id_list got = {0};
            make_text(text, &seed);
            const size_t n = merge_naively(&m, text, want);
            assert_int_equal(tokenizer_encode(t, text, strlen(text), true, 1000, &got), ERR_OK);
            if (got.n != n || (n > 0 && memcmp(got.ids, want, n * sizeof(*want)) != 0))
                fail_msg("round %d: other ids of \"%s\"", round, text);
            id_list_free(&got);
        }
        tokenizer_free(&t);
        buf_free(&b);
    }
}

static void random_unigram_is_the_same_as_json(void **state) {
    uint64_t seed = 1181783497276652981u;
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct model m;
        struct buf b = BUF_INIT, json = BUF_INIT;
        make_model(&m, &seed);
        m.score[0] = -1;
        buf_puts(&json,
                 "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}],"
                 "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\","
                 "\"strip_left\":true,\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":"
                 "{\"Regex\":\" {2,}\"},\"content\":\" \"},{\"type\":\"Prepend\",\"prepend\":"
                 "\"" SPACE "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                 "\"content\":\"" SPACE "\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{"
                 "\"type\":\"Replace\",\"pattern\":{\"String\":\"" SPACE
                 "\"},\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
                 "\",\"start\":1,\"stop\":0}]},"
                 "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[");
        for (int i = 0; i < m.n; i++) {
            piece(&b, m.s[i], strlen(m.s[i]), m.score[i], i == 0 ? 2 : 1);
            buf_printf(&json, "%s[\"%s\",%.9g]", i > 0 ? "," : "", m.s[i], (double)m.score[i]);
        }
        buf_puts(&json, "]}}");
        finish(&b, &(struct spec){.model = 1, .bos = -1});
        struct tokenizer *t = load(&b, NULL, NULL), *want = parse_or_fail(json.data, json.len);
        for (int k = 0; k < 50; k++) {
            char text[TEXT_MAX + 1];
            make_text(text, &seed);
            same(t, want, text);
        }
        tokenizer_free(&t);
        tokenizer_free(&want);
        buf_free(&b);
        buf_free(&json);
    }
}

/* ---- what the files beside it say */
static void small(struct buf *b, const struct spec *s) {
    piece(b, "<unk>", 5, 0, 2);
    piece(b, "<s>", 3, 0, 3);
    piece(b, "</s>", 4, 0, 3);
    piece(b, SPACE, 3, -1, 1);
    piece(b, "a", 1, -2, 1);
    piece(b, SPACE "a", 4, -3, 1);
    piece(b, "[U]", 3, 0, 4);
    piece(b, "b", 1, -4, 5); /* unused */
    finish(b, s);
}

static void ids_are(const struct tokenizer *t, const char *text, const char *want) {
    struct id_list l = {0};
    char got[256] = "";
    assert_int_equal(tokenizer_encode(t, text, strlen(text), true, 100, &l), ERR_OK);
    for (size_t i = 0; i < l.n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%d", i > 0 ? " " : "", l.ids[i]);
    assert_string_equal(got, want);
    id_list_free(&l);
}

static void files_beside_it_count(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    small(&b, &(struct spec){.model = 2, .no_squeeze = true});
    struct tokenizer *t = load(&b, NULL, NULL);
    ids_are(t, "a a", "1 5 5");
    ids_are(t, "a[U]", "1 5 6");
    ids_are(t, "ab", "1 5 0"); /* unused pieces are not made */
    const uint8_t first = tokenizer_hash(t)[0];
    tokenizer_free(&t);
    t = load(&b, "{\"add_bos_token\":false,\"add_eos_token\":true}", NULL);
    ids_are(t, "a", "5 2");
    assert_true(tokenizer_hash(t)[0] != first);
    tokenizer_free(&t);
    t = load(
        &b,
        "{\"legacy\":false,\"added_tokens_decoder\":{\"9\":{\"content\":\"<x>\",\"special\":true},"
        "\"10\":{\"content\":\"<y>\",\"special\":false},\"1\":{\"content\":\"<s>\"}}}",
        "{\"<x>\":9}");
    ids_are(t, "a<x>a<y>a", "1 5 9 4 10 4");
    assert_int_equal(tokenizer_vocab_size(t), 11);
    assert_true(tokenizer_is_special(t, 9) && !tokenizer_is_special(t, 10));
    tokenizer_free(&t);
    t = load(&b, NULL, "{\"<x>\":8}");
    ids_are(t, "a<x>a", "1 5 8 5"); /* legacy: what follows a token begins with a blank */
    tokenizer_free(&t);
    buf_free(&b);
    small(&b, &(struct spec){.model = 2, .no_prefix = true});
    t = load(&b, NULL, NULL);
    ids_are(t, "  a   a ", "1 4 5"); /* squeezed, no blank before */
    tokenizer_free(&t);
    buf_free(&b);
}

/* ---- the same pieces in a GGUF file */
static void text_of(struct buf *b, const char *s) {
    const uint64_t n = strlen(s);
    buf_append(b, &n, sizeof(n));
    buf_append(b, s, n);
}

static void u32_of(struct buf *b, uint32_t v) {
    buf_append(b, &v, sizeof(v));
}

/* key, then the head of a list */
static void list_of(struct buf *b, const char *key, uint32_t kind, uint64_t n) {
    text_of(b, key);
    u32_of(b, 9);
    u32_of(b, kind);
    buf_append(b, &n, sizeof(n));
}

static void unigram_comes_from_gguf_too(void **state) {
    static const char *const tokens[] = {"<pad>", "</s>", "<unk>", SPACE, "a", SPACE "a", "ab"};
    static const float scores[] = {0, 0, 0, -2, -3, -2.5f, -3.5f};
    static const int32_t types[] = {3, 3, 2, 1, 1, 1, 1};
    const uint64_t counts[] = {0, 7};
    struct buf b = BUF_INIT;
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct errbuf eb = {0};
    (void)state;
    buf_puts(&b, "GGUF");
    u32_of(&b, 3);
    buf_append(&b, counts, sizeof(counts));
    text_of(&b, "tokenizer.ggml.model");
    u32_of(&b, 8);
    text_of(&b, "t5");
    list_of(&b, "tokenizer.ggml.tokens", 8, 7);
    for (int i = 0; i < 7; i++) text_of(&b, tokens[i]);
    list_of(&b, "tokenizer.ggml.scores", 6, 7);
    buf_append(&b, scores, sizeof(scores));
    list_of(&b, "tokenizer.ggml.token_type", 5, 7);
    buf_append(&b, types, sizeof(types));
    text_of(&b, "tokenizer.ggml.eos_token_id");
    u32_of(&b, 4);
    u32_of(&b, 1);
    text_of(&b, "tokenizer.ggml.add_space_prefix");
    u32_of(&b, 7);
    buf_append(&b, "\1", 1);
    text_of(&b, "tokenizer.ggml.remove_extra_whitespaces");
    u32_of(&b, 7);
    buf_append(&b, "\1", 1);
    if (gguf_open_bytes(&g, (const uint8_t *)b.data, b.len, "m.gguf", &eb) != ERR_OK ||
        tokenizer_from_gguf(&t, g, &eb) != ERR_OK)
        fail_msg("%s", eb.text);
    ids_are(t, " a   ab ", "5 3 6 1");
    ids_are(t, "axa", "5 2 4 1");
    tokenizer_free(&t);
    gguf_close(&g);
    buf_free(&b);
}

/* ---- what is refused */
static void refused(const struct buf *b, const char *config, const char *says) {
    struct tokenizer *t = NULL;
    struct json_value *c = NULL;
    struct errbuf eb = {0};
    if (config != NULL) assert_int_equal(json_read(&c, config, strlen(config), NULL, &eb), ERR_OK);
    assert_int_equal(
        tokenizer_from_spm(&t, (const uint8_t *)b->data, b->len, "tokenizer.model", c, NULL, &eb),
        ERR_BAD_FILE);
    assert_null(t);
    if (strstr(eb.text, says) == NULL) fail_msg("%s: not \"%s\"", eb.text, says);
    json_put(c);
}

static void what_is_wrong_is_told(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    buf_puts(&b, "IQ== 0\nIg== 1\n");
    refused(&b, NULL, "tokenizer.model: is no SentencePiece model: its first byte must be 0x0A");
    buf_free(&b);
    small(&b, &(struct spec){.model = 3});
    refused(&b, NULL, "model_type must be UNIGRAM or BPE");
    buf_free(&b);
    small(&b, &(struct spec){.model = 2, .suffix = true});
    refused(&b, NULL, "treat_whitespace_as_suffix");
    buf_free(&b);
    piece(&b, "a", 1, NAN, 1);
    finish(&b, &(struct spec){.model = 2});
    refused(&b, NULL, "the score of piece 0 must be a number");
    buf_free(&b);
    piece(&b, "<unk>", 5, 0, 2);
    piece(&b, "a\xCD", 2, 0, 1); /* a character that is cut: streamed, it would be half of one */
    finish(&b, &(struct spec){.model = 2});
    refused(&b, NULL, "token 1 is not UTF-8");
    buf_free(&b);
    piece(&b, "a", 1, 0, 1);
    finish(&b, &(struct spec){.model = 1});
    buf_free(&b);
    small(&b, &(struct spec){.model = 2});
    refused(&b, "{\"added_tokens_decoder\":{\"4\":{\"content\":\"c\"}}}",
            "tokenizer_config.json: token 4 is c, in tokenizer.model it is a");
    refused(&b, "{\"added_tokens_decoder\":{\"99999999\":{\"content\":\"c\"}}}",
            "must be a token with an id from 0 to 1048575");
    refused(&b, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"c\"}}}",
            "must be a token with an id");
    for (size_t n = 0; n < b.len; n++) { /* cut anywhere: told, or a model with fewer pieces */
        struct tokenizer *t = NULL;
        struct errbuf eb = {0};
        uint8_t *p = malloc(n > 0 ? n : 1);
        assert_non_null(p);
        memcpy(p, b.data, n);
        if (tokenizer_from_spm(&t, p, n, "m", NULL, NULL, &eb) != ERR_OK)
            assert_true(eb.text[0] != '\0' && t == NULL);
        tokenizer_free(&t);
        free(p);
    }
    buf_free(&b);
}

static void a_folder_may_have_only_that(void **state) {
    char dir[] = "/tmp/baton-spm-XXXXXX", path[64];
    struct tokenizer *t = NULL;
    struct errbuf eb = {0};
    struct buf b = BUF_INIT;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(tokenizer_load(&t, dir, &eb), ERR_NOT_FOUND);
    assert_non_null(strstr(eb.text, "tokenizer.json"));
    small(&b, &(struct spec){.model = 2});
    snprintf(path, sizeof(path), "%s/tokenizer.model", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    fclose(f);
    if (tokenizer_load(&t, dir, &eb) != ERR_OK) fail_msg("%s", eb.text);
    ids_are(t, "a", "1 5");
    tokenizer_free(&t);
    unlink(path);
    rmdir(dir);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_2_is_its_tokenizer_json),
        cmocka_unit_test(random_bpe_follows_its_rule),
        cmocka_unit_test(random_unigram_is_the_same_as_json),
        cmocka_unit_test(files_beside_it_count),
        cmocka_unit_test(unigram_comes_from_gguf_too),
        cmocka_unit_test(what_is_wrong_is_told),
        cmocka_unit_test(a_folder_may_have_only_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
