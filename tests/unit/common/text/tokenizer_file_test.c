/* Goal: a tokenizer.json that is broken or asks for what we do not do is refused with a line that
 * names the file, the member and the reason; it never crashes, never leaks, and is never half
 * understood. Method: a minimal good file with one member replaced at a time; both sides of every
 * bound; every truncation and random damage of good files; each allocation of an encode and a
 * decode fails once. */
#include "tests/unit/common/text/tok_testlib.h"

#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/unit/alloc_fault.h"

#define VOCAB  "\"a\":0,\"b\":1,\"ab\":2,\" \":3"
#define MODEL  "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[\"a b\"]}"
#define FUSE   "{\"type\":\"Fuse\"}"
#define A_ITEM "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"

/* A good file in which `member` (NULL: none) has the value given. */
static struct buf file_with(const char *member, const char *value) {
    static const char *const names[] = {"added_tokens", "normalizer",     "pre_tokenizer",
                                        "model",        "post_processor", "decoder"};
    static const char *const good[] = {"[]", "null", "null", MODEL, "null", FUSE};
    struct buf b = BUF_INIT;
    buf_puts(&b, "{\"version\":\"1.0\"");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool here = member != NULL && strcmp(member, names[i]) == 0;
        buf_printf(&b, ",\"%s\":", names[i]);
        buf_puts(&b, here ? value : good[i]);
    }
    buf_puts(&b, "}");
    assert_false(b.failed);
    return b;
}

static void assert_refused(const struct buf *b, const char *want) {
    struct tokenizer *t = (void *)1;
    struct errbuf eb = {.code = ERR_OK};
    enum err e = tokenizer_parse(&t, b->data, b->len, "some/tokenizer.json", &eb);
    if (e == ERR_OK) fail_msg("accepted, should say: %s", want);
    assert_null(t);
    assert_int_equal(e, ERR_BAD_FILE);
    assert_int_equal(eb.code, ERR_BAD_FILE);
    if (strstr(eb.text, want) == NULL || strncmp(eb.text, "some/tokenizer.json: ", 21) != 0) {
        fail_msg("says \"%s\", should say \"%s\"", eb.text, want);
    }
}

static void test_refused(void **state) {
    static const struct {
        const char *member, *value, *want;
    } rows[] = {
        {"model", "null", "model: is missing"},
        {"model", "7", "model: is missing, must be an object"},
        {"model", "{\"type\":\"Unigram\",\"vocab\":[]}", "model.vocab: 1 to 1048576 tokens"},
        {"model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}",
         "vocab[0] must be [piece, score]"},
        {"model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],\"unk_id\":1}",
         "model.unk_id: must be null or an id of the vocabulary"},
        {"model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]]}",
         "model.unk_id: is missing, and there are no 256 byte tokens instead"},
        {"model", "{\"type\":\"WordPiece\",\"vocab\":{}}", "model.vocab: must not be empty"},
        {"model", "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"b\"}",
         "model.unk_token: must be a token of the vocabulary"},
        {"model",
         "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"a\","
         "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":1001}",
         "model.max_input_chars_per_word"},
        {"normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}",
         "precompiled_charsmap: is no normaliser of SentencePiece"},
        {"post_processor", "{\"type\":\"BertProcessing\",\"sep\":[\"x\",7000],\"cls\":[\"x\",0]}",
         "must be [token, id of the vocabulary]"},
        {"model", "{\"type\":\"WordLevel\",\"vocab\":{}}", "model type WordLevel"},
        {"model", "{\"vocab\":{}}", "model type (none)"},
        {"model", "{\"type\":\"BPE\",\"merges\":[]}", "model.vocab: must be an object"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}",
         "model.vocab: must not be empty"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}", "the id of a must be"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":1048576},\"merges\":[]}", "0 to 1048575"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}", "must be an integer"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0.0},\"merges\":[]}", "must be an integer"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}", "two tokens"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "}}", "model.merges: is missing"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":{}}", "must be an array"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[\"ab\"]}",
         "model.merges[0]: must be two tokens"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[\"a b c\"]}", "one space"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[[\"a\"]]}", "[\"left\""},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[[\"a\",1]]}", "[\"left\""},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[3]}", "[\"left\""},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[\"a b\",\"a c\"]}",
         "model.merges[1]: token c is not in the vocabulary"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[\"b a\"]}",
         "its result ba is not in the vocabulary"},
        {"model", "{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[\" a\"]}",
         "is not in the vocabulary"},
        {"model", "{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{" VOCAB "},\"merges\":[]}",
         "model.dropout: is not supported"},
        {"model",
         "{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\",\"vocab\":{" VOCAB
         "},\"merges\":[]}",
         "model.continuing_subword_prefix: is not supported"},
        {"model",
         "{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{" VOCAB "},\"merges\":[]}",
         "model.end_of_word_suffix: is not supported"},
        {"model", "{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"vocab\":{" VOCAB "},\"merges\":[]}",
         "model.unk_token: is not in the vocabulary"},
        {"model", "{\"type\":\"BPE\",\"unk_token\":5,\"vocab\":{" VOCAB "},\"merges\":[]}",
         "model.unk_token: must be a string"},
        {"model", "{\"type\":\"BPE\",\"fuse_unk\":1,\"vocab\":{" VOCAB "},\"merges\":[]}",
         "model.fuse_unk: must be true or false"},
        {"added_tokens", "{}", "added_tokens: must be an array"},
        {"added_tokens", "[3]", "added_tokens[0]: must be an object"},
        {"added_tokens", "[{\"content\":\"x\"}]", "added_tokens[0].id: is missing"},
        {"added_tokens", "[{\"id\":4}]", "added_tokens[0].content: is missing"},
        {"added_tokens", "[{\"id\":4,\"content\":\"\"}]", "must not be empty"},
        {"added_tokens", "[{\"id\":1048576,\"content\":\"x\"}]", "0 to 1048575"},
        {"added_tokens", "[{\"id\":-1,\"content\":\"x\"}]", "0 to 1048575"},
        {"added_tokens", "[{\"id\":1,\"content\":\"x\"}]", "id 1 of x is taken already"},
        {"added_tokens", "[{\"id\":9,\"content\":\"x\",\"lstrip\":\"yes\"}]",
         "added_tokens[0].lstrip: must be true or false"},
        {"normalizer", "[]", "normalizer: must be an object or null"},
        {"normalizer", "{}", "normalizer.type: is missing"},
        {"normalizer", "{\"type\":\"Nmt\"}", "normalizer type Nmt"},
        {"normalizer", "{\"type\":\"Sequence\"}", "normalizer.normalizers: is missing"},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[null]}", "normalizer[0]: must be"},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":5}]}",
         "normalizer[1].type: must be a string"},
        {"normalizer", "{\"type\":\"Strip\",\"strip_left\":true}", "normalizer.strip_right"},
        {"normalizer", "{\"type\":\"Prepend\"}", "normalizer.prepend: is missing"},
        {"normalizer", "{\"type\":\"Replace\",\"content\":\"x\"}", "normalizer.pattern: must be"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}",
         "1 to 1024 bytes"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a\"},\"content\":\"x\"}",
         "normalizer.pattern: does not compile"},
        {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"}}",
         "normalizer.content: is missing"},
        {"pre_tokenizer", "{\"type\":\"UnicodeScripts\"}", "pre_tokenizer type UnicodeScripts"},
        {"pre_tokenizer", "{\"type\":\"ByteLevel\"}", "pre_tokenizer.add_prefix_space: is missing"},
        {"pre_tokenizer",
         "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Joined\","
         "\"invert\":false}",
         "behavior: must be Removed"},
        {"pre_tokenizer",
         "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Removed\"}",
         "pre_tokenizer.invert: is missing"},
        {"pre_tokenizer", "{\"type\":\"Digits\"}", "individual_digits: is missing"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", "one character"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"\"}", "one character"},
        {"pre_tokenizer",
         "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}",
         "always, first or never"},
        {"pre_tokenizer",
         "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false,"
         "\"prepend_scheme\":\"always\"}",
         "must be never when"},
        {"post_processor", "{\"type\":\"TemplateMatching\"}",
         "post_processor type TemplateMatching"},
        {"post_processor", "{\"type\":\"TemplateProcessing\"}",
         "post_processor.single: is missing"},
        {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}",
         "must hold Sequence A"},
        {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[{}]}",
         "post_processor.single[0]: must hold SpecialToken or Sequence"},
        {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[" A_ITEM "," A_ITEM "]}",
         "post_processor.single[1]: Sequence A must be there once"},
        {"post_processor",
         "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}," A_ITEM
         "]}",
         "x is not in special_tokens"},
        {"post_processor",
         "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}," A_ITEM
         "],\"special_tokens\":{\"x\":{\"ids\":[99]}}}",
         "ids[0] must be an id of the vocabulary"},
        {"post_processor",
         "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"TemplateProcessing\",\"single\":"
         "[" A_ITEM "]},{\"type\":\"TemplateProcessing\",\"single\":[" A_ITEM "]}]}",
         "post_processor[1]: only one TemplateProcessing"},
        {"decoder", "{\"type\":\"CTC\"}", "decoder type CTC is not supported"},
        {"decoder", "{\"type\":\"Sequence\",\"decoders\":[" FUSE ",{\"type\":\"ByteLevel\"}]}",
         "decoder[1]: ByteLevel behind a fusing decoder"},
        {"decoder", "{\"type\":\"Sequence\",\"decoders\":[" FUSE ",{\"type\":\"ByteFallback\"}]}",
         "decoder[1]: ByteFallback behind"},
        {"decoder", "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}",
         "decoder.start: must be an integer from 0"},
        {"decoder", "{\"type\":\"Strip\",\"content\":\"\",\"start\":0,\"stop\":0}",
         "one character"},
        {"decoder", "{\"type\":\"Metaspace\"}", "decoder.replacement: is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf b = file_with(rows[i].member, rows[i].value);
        assert_refused(&b, rows[i].want);
        buf_free(&b);
    }
}

static void test_not_json(void **state) {
    static const char *const texts[] = {"", "{", "[]", "null", "{\"model\":}", "{}", "\xFF", "7"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct buf b = BUF_INIT;
        buf_puts(&b, texts[i]);
        assert_refused(&b, "");
        buf_free(&b);
    }
}

/* What the Ruby syntax has and PCRE2 would misread is refused, not guessed. */
static void test_patterns_refused(void **state) {
    static const char *const patterns[] = {
        "[a-z&&[^e]]", "[a[bc]]",         "(?s:.)", "\\\\Qa", "\\\\xC3",   "a{2}?",
        "a{2,3}+",     "\\\\pL",          "a\\\\",  "[a",     "[[:foo:]]", "\\\\uD83",
        "\\\\C",       "\\\\p{Nope}",     "a**",    "(?<n>a", "\\\\M-x",   "[a-\\\\W]",
        "[\\\\W-z]",   "\\\\p{L\\u0000}", "\\\\p{}"};
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        char value[200];
        struct buf b;
        snprintf(value, sizeof value,
                 "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\","
                 "\"invert\":false}",
                 patterns[i]);
        b = file_with("pre_tokenizer", value);
        assert_refused(&b, "pre_tokenizer.pattern: ");
        buf_free(&b);
    }
}

/* The longest token, the longest literal, the most steps: one more is refused. */
static void test_bounds(void **state) {
    struct tokenizer *t;
    (void)state;
    for (size_t n = 4095; n <= 4097; n++) {
        struct buf v = BUF_INIT, b;
        buf_puts(&v, "{\"type\":\"BPE\",\"vocab\":{\"");
        for (size_t i = 0; i < n; i++) buf_putc(&v, 'x');
        buf_puts(&v, "\":0},\"merges\":[]}");
        b = file_with("model", v.data);
        if (n > 4096) {
            assert_refused(&b, "more than 4096 bytes");
        } else {
            t = parse_or_fail(b.data, b.len);
            tokenizer_free(&t);
        }
        buf_free(&b);
        buf_free(&v);
    }
    for (size_t n = 1023; n <= 1025; n++) {
        struct buf v = BUF_INIT, b;
        buf_puts(&v, "{\"type\":\"Prepend\",\"prepend\":\"");
        for (size_t i = 0; i < n; i++) buf_putc(&v, 'x');
        buf_puts(&v, "\"}");
        b = file_with("normalizer", v.data);
        if (n > 1024) {
            assert_refused(&b, "normalizer.prepend: must have at most 1024 bytes, got 1025");
        } else {
            t = parse_or_fail(b.data, b.len);
            tokenizer_free(&t);
        }
        buf_free(&b);
        buf_free(&v);
    }
    for (size_t n = 31; n <= 33; n++) {
        static const char *const kinds[][3] = {
            {"normalizer", "normalizers", "{\"type\":\"NFC\"}"},
            {"pre_tokenizer", "pretokenizers", "{\"type\":\"Punctuation\"}"},
            {"decoder", "decoders", FUSE}};
        for (int k = 0; k < 3; k++) {
            struct buf v = BUF_INIT, b;
            buf_printf(&v, "{\"type\":\"Sequence\",\"%s\":[", kinds[k][1]);
            for (size_t i = 0; i < n; i++) buf_printf(&v, "%s%s", i ? "," : "", kinds[k][2]);
            buf_puts(&v, "]}");
            b = file_with(kinds[k][0], v.data);
            if (n > 32) {
                assert_refused(&b, "[32]: at most 32 steps");
            } else {
                struct id_list l = {0};
                t = parse_or_fail(b.data, b.len);
                assert_int_equal(tokenizer_encode(t, "ab.ab", 5, true, 9, &l), ERR_OK);
                assert_int_equal(l.n, 2);
                id_list_free(&l);
                tokenizer_free(&t);
            }
            buf_free(&b);
            buf_free(&v);
        }
    }
}

/* Ids need not be dense: what no token has is left out in both directions. */
static void test_sparse_ids(void **state) {
    struct buf b =
        file_with("added_tokens", "[{\"id\":1048575,\"content\":\"<x>\",\"special\":true}]");
    struct tokenizer *t = parse_or_fail(b.data, b.len);
    int32_t ids[] = {0, 500, 1048575, 1048576, -5, INT32_MAX, INT32_MIN, 1};
    struct buf out = BUF_INIT;
    struct id_list l = {0};
    (void)state;
    assert_int_equal(tokenizer_vocab_size(t), 1048576);
    assert_int_equal(tokenizer_decode(t, ids, sizeof ids / sizeof ids[0], false, &out), ERR_OK);
    assert_same_text(&out, "a<x>b", 5);
    buf_clear(&out);
    assert_int_equal(tokenizer_decode(t, ids, sizeof ids / sizeof ids[0], true, &out), ERR_OK);
    assert_same_text(&out, "ab", 2);
    assert_int_equal(tokenizer_encode(t, "a<x>ab", 6, false, 9, &l), ERR_OK);
    assert_int_equal(l.n, 3);
    assert_int_equal(l.ids[1], 1048575);
    assert_int_equal(l.ids[2], 2);
    id_list_free(&l);
    buf_free(&out);
    tokenizer_free(&t);
    buf_free(&b);
}

/* A text that a pattern cannot finish on ends the call with an error, not the process. */
static void test_pattern_gives_up(void **state) {
    struct buf b = file_with("pre_tokenizer",
                             "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+$\"},\"behavior\":"
                             "\"Isolated\",\"invert\":false}");
    struct tokenizer *t = parse_or_fail(b.data, b.len);
    char text[64];
    struct id_list l = {0};
    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    assert_int_equal(tokenizer_encode(t, text, sizeof text, false, 99, &l), ERR_INTERNAL);
    assert_int_equal(tokenizer_encode(t, "aab", 3, false, 99, &l), ERR_OK);
    id_list_free(&l);
    tokenizer_free(&t);
    buf_free(&b);
}

/* Every truncation of a good file is refused; damaged ones are refused or usable. */
static void test_damage(void **state) {
    struct buf b = file_with(
        "decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
                   "{\"Regex\":\"[a-c]{1,2}\"},\"content\":\"x\"},{\"type\":\"ByteFallback\"},"
                   "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
                   "\"stop\":0}]}");
    uint64_t seed = 4711;
    (void)state;
    for (size_t n = 0; n < b.len; n++) {
        struct tokenizer *t;
        assert_int_equal(tokenizer_parse(&t, b.data, n, "x", NULL), ERR_BAD_FILE);
        assert_null(t);
    }
    for (int round = 0; round < 4000; round++) {
        struct tokenizer *t = NULL;
        struct buf bad = BUF_INIT, out = BUF_INIT;
        struct id_list l = {0};
        buf_append(&bad, b.data, b.len);
        for (uint32_t k = 0; k <= rnd(&seed) % 3; k++) {
            static const char chars[] = "\"{}[]:,01nulltrue\\abA ";
            bad.data[rnd(&seed) % bad.len] = chars[rnd(&seed) % (sizeof chars - 1)];
        }
        if (tokenizer_parse(&t, bad.data, bad.len, "x", NULL) == ERR_OK) {
            assert_int_equal(tokenizer_encode(t, "ab ba", 5, true, 50, &l), ERR_OK);
            assert_int_equal(tokenizer_decode(t, l.ids, l.n, true, &out), ERR_OK);
            assert_true(out.len == 0 || is_utf8(out.data, out.len));
        }
        id_list_free(&l);
        buf_free(&out);
        buf_free(&bad);
        tokenizer_free(&t);
    }
    buf_free(&b);
}

static void test_load_and_hash(void **state) {
    char dir[] = "/tmp/baton-tok-XXXXXX", path[64];
    struct buf b = file_with(NULL, NULL);
    struct tokenizer *t = NULL;
    struct errbuf eb = {.code = ERR_OK};
    unsigned char want[32];
    FILE *f;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(tokenizer_load(&t, dir, &eb), ERR_NOT_FOUND);
    assert_non_null(strstr(eb.text, path));
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(tokenizer_load(&t, dir, &eb), ERR_OK);
    assert_int_equal(EVP_Digest(b.data, b.len, want, NULL, EVP_sha256(), NULL), 1);
    assert_memory_equal(tokenizer_hash(t), want, 32);
    tokenizer_free(&t);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0); /* a folder of that name is no file */
    assert_int_equal(tokenizer_load(&t, dir, &eb), ERR_IO);
    assert_null(t);
    rmdir(path);
    rmdir(dir);
    buf_free(&b);
}

#if OWN_MALLOC
/* A file that uses every step that allocates. */
static struct buf busy_file(void) {
    struct buf b = BUF_INIT;
    buf_puts(&b, "{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\",\"special\":true},{\"id\":10,"
                 "\"content\":\"\xC3\x84\",\"normalized\":true}],\"normalizer\":{\"type\":"
                 "\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"},{"
                 "\"type\":\"Replace\",\"pattern\":{\"Regex\":\"b+\"},\"content\":\"b\"}]},"
                 "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                 "\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                 "\"[0-9]\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                 "\"add_prefix_space\":true}]},\"post_processor\":{\"type\":\"TemplateProcessing\","
                 "\"single\":[{\"SpecialToken\":{\"id\":\"<x>\"}}," A_ITEM "],\"special_tokens\":{"
                 "\"<x>\":{\"ids\":[9]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{"
                 "\"type\":\"Replace\",\"pattern\":{\"Regex\":\"_\"},\"content\":\" \"},{\"type\":"
                 "\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{"
                 "\"String\":\"b\"},\"content\":\"B\"},{\"type\":\"Strip\",\"content\":\" \","
                 "\"start\":1,\"stop\":1}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<u>\","
                 "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"_\":3,\"<u>\":4,\"<0x41>\":5},"
                 "\"merges\":[\"a b\"]}}");
    return b;
}

static enum err round_trip(const struct tokenizer *t, const struct buf *text, struct id_list *l,
                           struct buf *out) {
    enum err e = tokenizer_encode(t, text->data, text->len, true, 1 << 20, l);
    return e == ERR_OK ? tokenizer_decode(t, l->ids, l->n, false, out) : e;
}

static void test_no_memory(void **state) {
    struct buf file = busy_file(), text = BUF_INIT, want = BUF_INIT;
    struct tokenizer *t = parse_or_fail(file.data, file.len);
    struct id_list want_ids = {0};
    int n_hit = 0;
    (void)state;
    for (int i = 0; i < 40; i++) buf_puts(&text, "Ab a\xCC\x88 bbbbb7 <x>aaa \xEF\xBC\xA1 ");
    for (int i = 0; i < 100; i++) buf_puts(&text, "ab"); /* takes the heap */
    assert_int_equal(round_trip(t, &text, &want_ids, &want), ERR_OK);
    for (bool done = false; !done; n_hit++) {
        struct id_list l = {0};
        struct buf out = BUF_INIT;
        enum err e;
        alloc_fault_after(n_hit);
        e = round_trip(t, &text, &l, &out);
        done = !alloc_fault_end();
        if (e == ERR_OK) { /* the word cache is the one thing done without */
            assert_same_text(&out, want.data, want.len);
        } else {
            assert_int_equal(e, ERR_NO_MEMORY);
        }
        id_list_free(&l);
        buf_free(&out);
    }
    assert_true(n_hit > 20);
    for (int n = 0;; n++) { /* loading, which needs hundreds: every one of them */
        struct tokenizer *u = NULL;
        enum err e;
        alloc_fault_after(n);
        e = tokenizer_parse(&u, file.data, file.len, "x", NULL);
        bool failed = alloc_fault_end();
        if (e != ERR_OK) assert_null(u);
        tokenizer_free(&u);
        if (!failed) {
            assert_int_equal(e, ERR_OK);
            break;
        }
    }
    tokenizer_free(&t);
    id_list_free(&want_ids);
    buf_free(&want);
    buf_free(&text);
    buf_free(&file);
}
#else
static void test_no_memory(void **state) {
    (void)state;
    print_message("skipped: the sanitizer owns malloc\n");
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_not_json),
        cmocka_unit_test(test_patterns_refused), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_sparse_ids),       cmocka_unit_test(test_pattern_gives_up),
        cmocka_unit_test(test_no_memory),        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_load_and_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
