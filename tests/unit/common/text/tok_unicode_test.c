/* Goal: patterns know the characters of Unicode 15, whatever PCRE2 knows. Method: every general
 * category, alone and in every place a pattern can name it (in brackets, negated, both), against
 * utf8proc, which is the other source of categories in this tree, over all code points or over
 * those that PCRE2 lacks; scripts and other properties by the characters that they got; and words
 * of the pattern of Llama 3, through a whole tokenizer too. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tests/unit/common/text/tok_testlib.h"

#include <pcre2.h>
#include <utf8proc.h>
#include "common/text/tok_pre_names.h"
#include "common/text/tok_regex.h"
#include "common/text/tok_utf8.h"

enum { N_CODES = 0x110000, FRESH_OF_15 = 4489 };

/* In the order of utf8proc_category_t. */
static const char *const categories[] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

static struct buf all, fresh; /* every code point; Latin and those that PCRE2 has no category for */
static bool pcre_is_newer;
static bool *hit; /* [N_CODES]: what the last pattern took */

static void compile(const char *re, struct tok_pattern *p) {
    struct errbuf eb = {.code = ERR_OK};
    struct tok_at at = {.name = "test", .eb = &eb};
    if (tok_pattern_regex(&at, re, strlen(re), p) != ERR_OK) fail_msg("%s: %s", re, eb.text);
}

/* hit[c] for each character c of the text: whether a match of re holds it. */
static void match(const char *re, const struct buf *text) {
    struct tok_pattern p;
    struct tok_rx rx = {0};
    size_t start, end;
    enum tok_found r;
    compile(re, &p);
    struct tok_find f = {.p = &p, .rx = &rx, .s = text->data, .n = text->len};
    memset(hit, 0, N_CODES * sizeof *hit);
    while ((r = tok_find_next(&f, &start, &end)) == TOK_FOUND) {
        for (size_t i = start; i < end;) hit[tok_utf8_next(text->data, &i)] = true;
    }
    assert_int_equal(r, TOK_FOUND_NONE);
    tok_rx_fini(&rx);
    tok_pattern_fini(&p);
}

static bool takes(const char *re, uint32_t c) {
    char s[4];
    struct buf text = BUF_INIT;
    buf_append(&text, s, tok_utf8_put(s, c));
    match(re, &text);
    buf_free(&text);
    return hit[c];
}

static void put_code(struct buf *b, uint32_t c) {
    char s[4];
    buf_append(b, s, tok_utf8_put(s, c));
}

static int set_up(void **state) {
    char version[32] = "";
    int rc;
    PCRE2_SIZE where;
    pcre2_code *cn =
        pcre2_compile((PCRE2_SPTR) "\\p{Cn}", PCRE2_ZERO_TERMINATED, PCRE2_UTF, &rc, &where, NULL);
    pcre2_match_data *md = pcre2_match_data_create(1, NULL);
    size_t n_fresh = 0;
    (void)state;
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    pcre_is_newer = atoi(version) > 15;
    hit = malloc(N_CODES * sizeof *hit);
    for (uint32_t c = 0; c < N_CODES; c++) {
        char s[4];
        bool lacks;
        if (c >= 0xD800 && c < 0xE000) continue;
        put_code(&all, c);
        lacks = utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_CN &&
                pcre2_match(cn, (PCRE2_SPTR)s, tok_utf8_put(s, c), 0, 0, md, NULL) > 0;
        n_fresh += lacks;
        if (lacks || c < 0x300) put_code(&fresh, c);
    }
    pcre2_match_data_free(md);
    pcre2_code_free(cn);
    /* with Unicode 14 on one side and 15 on the other, the tests below have these to find */
    if (strncmp(version, "14.", 3) == 0 && strcmp(utf8proc_unicode_version(), "15.0.0") == 0) {
        assert_int_equal(n_fresh, FRESH_OF_15);
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    buf_free(&all);
    buf_free(&fresh);
    free(hit);
    return 0;
}

/* property: a category, the first letter of some, or L& */
static bool is_in(const char *property, uint32_t c) {
    const char *own = categories[utf8proc_category((utf8proc_int32_t)c)];
    if (strcmp(property, "L&") == 0) return own[0] == 'L' && strchr("ult", own[1]) != NULL;
    return strncmp(own, property, strlen(property)) == 0;
}

/* Checks that re took exactly the characters of the text that are in the property (or are not). */
static void check_took(const char *re, const char *property, bool neg, const struct buf *text) {
    match(re, text);
    for (size_t i = 0; i < text->len;) {
        uint32_t c = tok_utf8_next(text->data, &i);
        if (pcre_is_newer && utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_CN)
            continue;
        if (hit[c] != (is_in(property, c) != neg)) {
            fail_msg("%s: U+%04X is %s, but %s", re, c,
                     categories[utf8proc_category((utf8proc_int32_t)c)],
                     hit[c] ? "was taken" : "was not taken");
        }
    }
}

static void check_property(const char *name, const struct buf *text) {
    static const struct {
        const char *re;
        bool neg;
    } forms[] = {
        {"\\P{%s}+", true},     {"\\p{^%s}+", true},           {"\\P{^%s}+", false},
        {"[\\p{%s}]+", false},  {"[^\\p{%s}]+", true},         {"[\\P{%s}]+", true},
        {"[^\\P{%s}]+", false}, {"[\\P{%s}\\P{Any}]++", true}, {"(?i)[\\p{%s}]", false},
    };
    char re[64];
    snprintf(re, sizeof re, "\\p{%s}+", name);
    check_took(re, name, false, text);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        snprintf(re, sizeof re, forms[i].re, name);
        check_took(re, name, forms[i].neg, &fresh);
    }
}

static void test_categories(void **state) {
    static const char *const groups[] = {"C", "L", "M", "N", "P", "S", "Z", "L&"};
    (void)state;
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++) {
        if (strcmp(categories[i], "Cs") != 0) check_property(categories[i], &fresh);
    }
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) check_property(groups[i], &all);
}

/* The escapes and classes that are made of properties. */
static void test_escapes(void **state) {
    (void)state;
    check_took("\\d+", "Nd", false, &all);
    check_took("\\D+", "Nd", true, &fresh);
    check_took("[\\d]+", "Nd", false, &fresh);
    check_took("[^\\D]+", "Nd", false, &fresh);
    check_took("[[:digit:]]+", "Nd", false, &fresh);
    check_took("[[:^digit:]]+", "Nd", true, &fresh);
    match("\\w+", &all);
    for (size_t i = 0; i < all.len;) {
        uint32_t c = tok_utf8_next(all.data, &i);
        if (pcre_is_newer && utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_CN)
            continue;
        if (hit[c] != (tok_is_word(c) && c != 0x200C && c != 0x200D)) {
            fail_msg("\\w and U+%04X", c);
        }
    }
}

/* One character each: from (taken), or not. */
static void test_single(void **state) {
    static const struct {
        const char *re;
        uint32_t c;
        bool taken;
    } t[] = {
        {"\\p{Han}", 0x31350, true},
        {"\\p{hani}", 0x323AF, true},
        {"\\p{Han}", 0x323B0, false},
        {"\\P{Han}", 0x31350, false},
        {"[^\\p{Han}]", 0x31350, false},
        {"[\\p{Han}a]", 0x2B739, true},
        {"\\p{Ideographic}", 0x31350, true},
        {"\\p{Hiragana}", 0x1B132, true},
        {"\\p{Katakana}", 0x1B155, true},
        {"\\p{Katakana}", 0x1B132, false},
        {"\\p{Cyrillic}", 0x1E04F, true},
        {"\\p{Latin}", 0x1DF25, true},
        {"\\p{Kawi}", 0x11F51, true},
        {"\\p{Kawi}", 'a', false},
        {"\\P{Kawi}", 'a', true},
        {"\\P{Kawi}", 0x11F51, false},
        {"[^\\p{Kawi}]", 0x11F51, false},
        {"[a\\p{nag mundari}]", 0x1E4D0, true},
        {"[\\P{Nag_Mundari}]", 0x1E4D0, false},
        {"\\p{Lowercase}", 0x1E030, true},
        {"[[:lower:]]", 0x10FC, true},
        {"[[:^lower:]]", 0x10FC, false},
        {"[[:alpha:]]", 0x11F00, true},
        {"[[:alpha:]]", 0x11F42, false},
        {"[[:upper:]]", 0x1E030, false},
        {"[[:alnum:]]", 0x11F51, true},
        {"[[:^alnum:]]", 0x11F51, false},
        {"[[:^alnum:]]", '.', true},
        {"[[:punct:]]", 0x11B00, true},
        {"[[:^punct:]]", 0x11B00, false},
        {"[[:word:]]", 0x11F41, true},
        {"\\p{Emoji}", 0x1FAE8, true},
        {"\\p{Emoji}", 0x1F774, false},
        {"[\\W]", '.', true},
        {"[\\W]", 0x1E04F, false},
        {"[^\\W_]", 0x1E04F, true},
        {"[^\\W_]", '_', false},
        {"[^\\W_]", '.', false},
        {"[\\H]", 'a', false},
        {"[\\H]", 'g', true},
        {"[\\w\\W]", 0x11F42, true},
        {"[^\\w\\W]", 0x11F42, false},
        {"[\\D\\S]", '5', true},
        {"[\\d-z]", '-', true}, /* a hyphen behind a set is itself */
        {"[\\d-z]", 'y', false},
        {"[\\p{Kawi}-z]", 'y', false},
        {"(?<=\\D)a", 'a', false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        if (takes(t[i].re, t[i].c) != t[i].taken) {
            fail_msg("%s on U+%04X: want %s", t[i].re, t[i].c, t[i].taken ? "taken" : "not taken");
        }
    }
}

/* The pieces that re cuts text into, with "|" between them. */
static void check_pieces(const char *re, const char *text, const char *want) {
    struct tok_pattern p;
    struct tok_rx rx = {0};
    struct buf got = BUF_INIT;
    size_t start, end, at = 0, n = strlen(text);
    compile(re, &p);
    struct tok_find f = {.p = &p, .rx = &rx, .s = text, .n = n};
    while (tok_find_next(&f, &start, &end) == TOK_FOUND) {
        if (start > at) buf_printf(&got, "%.*s|", (int)(start - at), text + at);
        if (end > start) buf_printf(&got, "%.*s|", (int)(end - start), text + start);
        at = end;
    }
    if (at < n) buf_puts(&got, text + at);
    if (got.len > 0 && got.data[got.len - 1] == '|') got.len--;
    assert_same_text(&got, want, strlen(want));
    buf_free(&got);
    tok_rx_fini(&rx);
    tok_pattern_fini(&p);
}

#define EXT_D   "\xF0\x9E\x81\x8F" /* U+1E04F: a letter, Lm */
#define KAWI_1  "\xF0\x91\xBD\x91" /* U+11F51: a digit, Nd */
#define LAO     "\xE0\xBB\x8E"     /* U+0ECE: a mark, Mn */
#define SHAKING "\xF0\x9F\xAB\xA8" /* U+1FAE8: So */

static void test_pieces(void **state) {
    const char *llama3 = tok_pre_find("llama3", 6)->patterns[0];
    const char *o200k = tok_pre_find("gpt-4o", 6)->patterns[0];
    (void)state;
    check_pieces(llama3, "." EXT_D "a", "." EXT_D "a");
    check_pieces(llama3, " " KAWI_1, " |" KAWI_1);
    check_pieces(llama3, "x" KAWI_1 KAWI_1 "12", "x|" KAWI_1 KAWI_1 "1|2");
    check_pieces(llama3, "a " SHAKING "!b", "a| " SHAKING "!|b");
    check_pieces(o200k, "A" EXT_D LAO "b", "A" EXT_D LAO "b");
    /* listed letters, not categories: U+01BB is none */
    const struct tok_pre *listed = tok_pre_find("deepseek-llm", 12);
    check_pieces(listed->patterns[1], " Stra\u00dfe", " Stra\u00dfe");
    check_pieces(listed->patterns[1], "a\u01bbb \u01c5", "a|\u01bb|b| \u01c5");
    check_pieces(listed->patterns[1], "x \u4f60 Y1", "x| \u4f60| Y|1");
    check_pieces(listed->patterns[2], "1\uff0c(\u3002 2", "1|\uff0c(\u3002| 2");
    check_pieces(listed->patterns[3], "a  ", "a|  ");
    check_pieces(listed->patterns[4], "a\u4f60\u597d\uac00b", "a|\u4f60\u597d\uac00|b");
    check_pieces(listed->patterns[5], "a12b", "a|12|b");
    assert_null(listed->patterns[6]);
    size_t n = 10;
    const char *near = tok_pre_nearest("llama-bpee", &n);
    assert_int_equal(n, 9);
    assert_memory_equal(near, "llama-bpe", n);
    check_pieces("\\b", "a" EXT_D "." KAWI_1, "a" EXT_D "|.|" KAWI_1);
    check_pieces("\\B", "a" EXT_D ".", "a|" EXT_D ".");
}

/* A byte-level vocabulary with one merge of a sign and the first byte of the letter or digit: it
 * takes place within a word only. */
static void check_merge(unsigned char sign, const char *text, bool merged) {
    struct buf j = BUF_INIT;
    char first[5] = "", lead[5] = "";
    struct id_list ids = {0};
    struct tokenizer *t;
    first[tok_utf8_put(first, tok_byte_to_char(sign))] = '\0';
    lead[tok_utf8_put(lead, tok_byte_to_char(0xF0))] = '\0';
    buf_puts(&j, "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                 "\"pattern\":{\"Regex\":");
    const char *re = tok_pre_find("llama3", 6)->patterns[0];
    buf_json_str(&j, re, strlen(re));
    buf_puts(&j, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                 "\"add_prefix_space\":false,\"use_regex\":false}]},\"model\":{\"type\":\"BPE\","
                 "\"vocab\":{");
    for (uint32_t b = 0; b < 256; b++) {
        char c[4];
        size_t n = tok_utf8_put(c, tok_byte_to_char((unsigned char)b));
        buf_json_str(&j, c, n);
        buf_printf(&j, ":%u,", b);
    }
    buf_printf(&j, "\"%s%s\":256},\"merges\":[\"%s %s\"]}}", first, lead, first, lead);
    t = parse_or_fail(j.data, j.len);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), false, 99, &ids), ERR_OK);
    assert_int_equal(ids.n, strlen(text) - merged);
    assert_int_equal(ids.ids[0], merged ? 256 : sign);
    id_list_free(&ids);
    tokenizer_free(&t);
    buf_free(&j);
}

static void test_tokenizer(void **state) {
    (void)state;
    check_merge('.', "." EXT_D "a", true);
    check_merge(' ', " " KAWI_1, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_categories), cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_single),     cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_tokenizer),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
