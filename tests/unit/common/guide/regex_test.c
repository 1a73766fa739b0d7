/* Goal: a regular expression means what it means to PCRE2, and sets of characters become the right
 * UTF-8. Method: random expressions over a small alphabet, and random texts, half of them made by
 * walking the automaton: the guide and pcre2_match (anchored at both ends, or anywhere for a
 * schema's pattern) must agree on every one; every code point against every class of a list. */
#include "tests/unit/common/guide/guide_testlib.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include "common/base/buf.h"

static struct guide_fixture fx;

static int open_all(void **state) {
    (void)state;
    fixture_open(&fx);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    fixture_close(&fx);
    return 0;
}

static unsigned pick(uint64_t *seed, unsigned n) {
    return (unsigned)(next_random(seed) >> 20) % n;
}

static void random_regex(struct buf *b, uint64_t *seed, int depth) {
    static const char *const atoms[] = {"a",
                                        "b",
                                        "c",
                                        "\xC3\xA9",
                                        "\xE2\x82\xAC",
                                        ".",
                                        "[ab]",
                                        "[^a]",
                                        "[a-c]",
                                        "\\d",
                                        "\\w",
                                        "\\s",
                                        "\\.",
                                        "[^\\w]",
                                        "\\x61",
                                        "[b-\xC3\xA9]",
                                        "[\\d-]",
                                        "\xF0\x9F\x98\x80",
                                        "[^\xE2\x82\xAC]"};
    static const char *const quant[] = {"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?"};
    unsigned n = 1 + pick(seed, 3);
    for (unsigned i = 0; i < n; i++) {
        unsigned kind = pick(seed, 8);
        if (depth > 0 && kind < 2) {
            buf_puts(b, kind == 0 ? "(" : "(?:");
            random_regex(b, seed, depth - 1);
            buf_puts(b, ")");
        } else {
            buf_puts(b, atoms[pick(seed, sizeof(atoms) / sizeof(atoms[0]))]);
        }
        if (pick(seed, 3) == 0) buf_puts(b, quant[pick(seed, sizeof(quant) / sizeof(quant[0]))]);
    }
    if (depth > 0 && pick(seed, 4) == 0) {
        buf_puts(b, "|");
        random_regex(b, seed, depth - 1);
    }
}

static void random_text(struct buf *b, uint64_t *seed) {
    static const char *const chars[] = {"a",
                                        "b",
                                        "c",
                                        "1",
                                        "_",
                                        " ",
                                        "\n",
                                        "-",
                                        ".",
                                        "\xC3\xA9",
                                        "\xE2\x82\xAC",
                                        "\xF0\x9F\x98\x80",
                                        "~"};
    for (unsigned n = pick(seed, 7); n > 0; n--)
        buf_puts(b, chars[pick(seed, sizeof(chars) / sizeof(chars[0]))]);
}

/* A text the guide allows; empty when the walk did not end. */
static void walked_text(struct guide *g, uint64_t *seed, struct buf *out) {
    struct token_guide tg;
    assert_int_equal(guide_start(g, (struct detok_cut){0}, &tg), ERR_OK);
    for (int i = 0; i < 12 && tg.ops->mask(tg.state, fx.bits, fx.n_ids); i++) {
        const char *p;
        int32_t id = has_bit(fx.bits, fx.eos) && i > 3 ? fx.eos : draw_bit(&fx, seed);
        if (id == fx.eos) break;
        size_t n = tokenizer_token_bytes(fx.tok, id, &p);
        buf_append(out, p, n);
        assert_true(tg.ops->advance(tg.state, id));
    }
    tg.ops->free(tg.state);
}

/* pcre2's `.` takes a carriage return and the two separators of lines, ours does not. */
static pcre2_code *pcre(const char *re, bool whole) {
    struct buf b = BUF_INIT;
    int err;
    PCRE2_SIZE at;
    for (const char *p = re; *p != '\0'; p++) {
        if (*p == '\\') {
            buf_append(&b, p++, 2);
            continue;
        }
        if (*p == '.')
            buf_puts(&b, "[^\\n\\r\\x{2028}\\x{2029}]");
        else
            buf_append(&b, p, 1);
    }
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)b.data, b.len,
                                     PCRE2_UTF | (whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0) |
                                         PCRE2_DOLLAR_ENDONLY,
                                     &err, &at, NULL);
    if (code == NULL) fail_msg("pcre2 refuses %s", re);
    buf_free(&b);
    return code;
}

static bool pcre_matches(pcre2_code *code, const char *s, size_t n) {
    pcre2_match_data *m = pcre2_match_data_create_from_pattern(code, NULL);
    int rc = pcre2_match(code, (PCRE2_SPTR)s, n, 0, 0, m, NULL);
    pcre2_match_data_free(m);
    return rc >= 0;
}

static void whole_texts_match_as_in_pcre(void **state) {
    (void)state;
    uint64_t seed = 4711;
    int n_yes = 0, n_no = 0;
    for (int i = 0; i < 400; i++) {
        struct buf re = BUF_INIT, guide = BUF_INIT;
        random_regex(&re, &seed, 2);
        buf_puts(&guide, "{\"type\":\"regex\",\"value\":");
        buf_json_str(&guide, re.data, re.len);
        buf_puts(&guide, "}");
        struct guide *g = compile(&fx, guide.data);
        pcre2_code *code = pcre(re.data, true);
        for (int k = 0; k < 12; k++) {
            struct buf text = BUF_INIT;
            bool whole;
            if (k % 2 == 0)
                random_text(&text, &seed);
            else
                walked_text(g, &seed, &text);
            const char *s = text.data != NULL ? text.data : "";
            assert_int_equal(guide_accepts(g, s, text.len, &whole), ERR_OK);
            /* Half a character at the end of a walk that was cut is no text to pcre2. */
            bool cut = text.len > 0 && (s[text.len - 1] & 0x80) != 0 && !whole;
            if (!cut && whole != pcre_matches(code, s, text.len))
                fail_msg("/%s/ on \"%s\": %d", re.data, s, whole);
            if (whole)
                n_yes++;
            else
                n_no++;
            buf_free(&text);
        }
        pcre2_code_free(code);
        guide_unref(&g);
        buf_free(&re);
        buf_free(&guide);
    }
    assert_true(n_yes > 500 && n_no > 500);
}

static void patterns_match_anywhere(void **state) {
    (void)state;
    static const char *const patterns[] = {"a+b",       "^a+b",       "a+b$",   "^a+b$",
                                           "^a|b$",     "(^a|c)",     "(a|b)c", "^(a|b)$",
                                           "^(a|bb)+$", "^[ab]{2}c?$"};
    uint64_t seed = 99;
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        struct buf guide = BUF_INIT;
        buf_printf(&guide,
                   "{\"type\":\"json_schema\",\"schema\":{\"type\":\"string\",\"pattern\":\"%s\"}}",
                   patterns[i]);
        struct guide *g = compile(&fx, guide.data);
        pcre2_code *code = pcre(patterns[i], false);
        for (int k = 0; k < 300; k++) {
            struct buf text = BUF_INIT, quoted = BUF_INIT;
            bool whole;
            for (unsigned n = pick(&seed, 5); n > 0; n--) buf_putc(&text, "abc"[pick(&seed, 3)]);
            const char *s = text.data != NULL ? text.data : "";
            buf_json_str(&quoted, s, text.len);
            assert_int_equal(guide_accepts(g, quoted.data, quoted.len, &whole), ERR_OK);
            if (whole != pcre_matches(code, s, text.len))
                fail_msg("%s on %s: %d", patterns[i], s, whole);
            buf_free(&text);
            buf_free(&quoted);
        }
        pcre2_code_free(code);
        guide_unref(&g);
        buf_free(&guide);
    }
}

static size_t utf8_put(uint32_t cp, char *p) {
    if (cp < 0x80) {
        p[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, cp >>= 6) p[i] = (char)(0x80 | (cp & 63));
    p[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | cp);
    return n;
}

static void classes_hold_the_right_characters(void **state) {
    (void)state;
    static const struct {
        const char *re;
        uint32_t lo, hi; /* the class, or what it leaves out */
        bool negated;
    } table[] = {
        {"[\\u0080-\\u07ff]", 0x80, 0x7FF, false},
        {"[\\u0416-\\u4e16]", 0x416, 0x4E16, false},
        {"[\\u{ffff}-\\u{10fffe}]", 0xFFFF, 0x10FFFE, false},
        {"[^\\u0800-\\u{10001}]", 0x800, 0x10001, true},
        {"[\\x41-\\u{10ffff}]", 0x41, 0x10FFFF, false},
        {"\\ud83d\\ude00", 0x1F600, 0x1F600, false},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct buf guide = BUF_INIT;
        buf_puts(&guide, "{\"type\":\"regex\",\"value\":");
        buf_json_str(&guide, table[i].re, strlen(table[i].re));
        buf_puts(&guide, "}");
        struct guide *g = compile(&fx, guide.data);
        for (uint32_t cp = 0; cp <= 0x10FFFF;
             cp += cp % 251 == 0 || cp % 64 < 2 || cp % 64 == 63 ? 1 : 7) {
            char s[4];
            bool whole, in = cp >= table[i].lo && cp <= table[i].hi;
            bool text = cp >= 0x20 ? cp != 0x7F : cp == '\t' || cp == '\n' || cp == '\r';
            if (cp >= 0xD800 && cp <= 0xDFFF) continue;
            assert_int_equal(guide_accepts(g, s, utf8_put(cp, s), &whole), ERR_OK);
            if (whole != (table[i].negated ? !in && text : in))
                fail_msg("%s: U+%04X", table[i].re, cp);
        }
        guide_unref(&g);
        buf_free(&guide);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_texts_match_as_in_pcre),
        cmocka_unit_test(patterns_match_anywhere),
        cmocka_unit_test(classes_hold_the_right_characters),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
