/* guide_json: JSON as rules. White space is bounded, so that a model cannot lose itself in it:
 * nothing or one blank after ':' and ',', and wherever pretty printers break lines one line feed
 * with up to INDENT_MAX blanks. Numbers have bounded digits, or nothing would end them. */
#include <string.h>
#include "common/guide/guide_build.h"

void nfa_call(struct nfa *a, int32_t from, int32_t rule, int32_t to) {
    nfa_range(a, from, FA_CALL | (uint32_t)rule, FA_CALL | (uint32_t)rule, to);
}

enum err json_call(struct build *b, struct nfa *a, int32_t from, enum json_rule which, int32_t to) {
    int32_t rule;
    enum err e = json_rule(b, which, &rule);
    if (e == ERR_OK) nfa_call(a, from, rule, to);
    return e;
}

enum err json_gap(struct build *b, struct nfa *a, int32_t from, int32_t to) {
    nfa_eps(a, from, to);
    return json_call(b, a, from, RULE_GAP, to);
}

enum err json_comma(struct build *b, struct nfa *a, int32_t from, int32_t to) {
    int32_t q = nfa_state(a);
    nfa_range(a, from, ',', ',', q);
    nfa_range(a, q, ' ', ' ', to);
    return json_gap(b, a, q, to);
}

void json_colon(struct nfa *a, int32_t from, int32_t to) {
    int32_t q = nfa_state(a);
    nfa_range(a, from, ':', ':', q);
    nfa_range(a, q, ' ', ' ', to);
    nfa_eps(a, q, to);
}

void json_plain_chars(struct nfa *a, int32_t from, int32_t to) {
    nfa_range(a, from, 0x20, 0x21, to);
    nfa_range(a, from, 0x23, 0x5B, to);
    nfa_range(a, from, 0x5D, 0x7E, to);
    nfa_range(a, from, 0x80, 0xD7FF, to);
    nfa_range(a, from, 0xE000, CP_MAX, to);
}

enum err json_char(struct build *b, struct nfa *a, int32_t from, int32_t to) {
    json_plain_chars(a, from, to);
    return json_call(b, a, from, RULE_ESCAPE, to);
}

static void hex(struct nfa *a, int32_t from, int32_t to) {
    nfa_range(a, from, '0', '9', to);
    nfa_range(a, from, 'A', 'F', to);
    nfa_range(a, from, 'a', 'f', to);
}

static void letter(struct nfa *a, int32_t from, char lo, char hi, int32_t to) {
    nfa_range(a, from, (uint32_t)lo, (uint32_t)hi, to);
    nfa_range(a, from, (uint32_t)lo - 32, (uint32_t)hi - 32, to);
}

/* After `\u`: one character, of two halves where it needs them. */
static void emit_unicode(struct nfa *a, int32_t u, int32_t to) {
    int32_t three = nfa_state(a), two = nfa_state(a), one = nfa_state(a), d = nfa_state(a);
    int32_t low[7];
    nfa_range(a, u, '0', '9', three);
    letter(a, u, 'a', 'c', three);
    letter(a, u, 'e', 'f', three);
    letter(a, u, 'd', 'd', d);
    nfa_range(a, d, '0', '7', two);
    hex(a, three, two);
    hex(a, two, one);
    hex(a, one, to);
    for (int i = 0; i < 7; i++) low[i] = nfa_state(a);
    nfa_range(a, d, '8', '9', low[0]);
    letter(a, d, 'a', 'b', low[0]);
    hex(a, low[0], low[1]);
    hex(a, low[1], low[2]);
    nfa_range(a, low[2], '\\', '\\', low[3]);
    nfa_range(a, low[3], 'u', 'u', low[4]);
    letter(a, low[4], 'd', 'd', low[5]);
    letter(a, low[5], 'c', 'f', low[6]);
    int32_t last = nfa_state(a);
    hex(a, low[6], last);
    hex(a, last, to);
}

static void emit_escape(struct nfa *a, int32_t from, int32_t to) {
    int32_t q = nfa_state(a), u = nfa_state(a);
    nfa_range(a, from, '\\', '\\', q);
    for (const char *p = "\"\\/bfnrt"; *p != '\0'; p++)
        nfa_range(a, q, (uint32_t)*p, (uint32_t)*p, to);
    nfa_range(a, q, 'u', 'u', u);
    emit_unicode(a, u, to);
}

static void emit_gap(struct nfa *a, int32_t from, int32_t to) {
    int32_t q = nfa_state(a);
    nfa_range(a, from, '\n', '\n', q);
    for (int i = 0; i < INDENT_MAX; i++) {
        int32_t next = nfa_state(a);
        nfa_eps(a, q, to);
        nfa_range(a, q, ' ', ' ', next);
        q = next;
    }
    nfa_eps(a, q, to);
}

/* min to max digits. */
static void emit_digits(struct nfa *a, int32_t from, int min, int max, int32_t to) {
    for (int i = 0; i < max; i++) {
        int32_t next = nfa_state(a);
        if (i >= min) nfa_eps(a, from, to);
        nfa_range(a, from, '0', '9', next);
        from = next;
    }
    nfa_eps(a, from, to);
}

static void emit_integer(struct nfa *a, int32_t from, int32_t to) {
    int32_t q = nfa_state(a), digits = nfa_state(a);
    nfa_eps(a, from, q);
    nfa_range(a, from, '-', '-', q);
    nfa_range(a, q, '0', '0', to);
    nfa_range(a, q, '1', '9', digits);
    emit_digits(a, digits, 0, INT_DIGITS_MAX - 1, to);
}

static void emit_number(struct nfa *a, int32_t from, int32_t to) {
    int32_t whole = nfa_state(a), point = nfa_state(a), frac = nfa_state(a), exp = nfa_state(a),
            sign = nfa_state(a);
    emit_integer(a, from, whole);
    nfa_range(a, whole, '.', '.', point);
    emit_digits(a, point, 1, INT_DIGITS_MAX, frac);
    nfa_eps(a, whole, frac);
    nfa_eps(a, frac, to);
    letter(a, frac, 'e', 'e', exp);
    nfa_eps(a, exp, sign);
    nfa_range(a, exp, '+', '+', sign);
    nfa_range(a, exp, '-', '-', sign);
    emit_digits(a, sign, 1, 2, to);
}

static enum err emit_string(struct build *b, struct nfa *a, int32_t from, int32_t to) {
    int32_t q = nfa_state(a);
    nfa_range(a, from, '"', '"', q);
    nfa_range(a, q, '"', '"', to);
    return json_char(b, a, q, q);
}

static enum err emit_value(struct build *b, struct nfa *a, int32_t from, int32_t to) {
    static const enum json_rule any[] = {RULE_STRING, RULE_NUMBER, RULE_OBJECT, RULE_ARRAY};
    static const char *const words[] = {"true", "false", "null"};
    enum err e = ERR_OK;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        nfa_text(a, from, words[i], strlen(words[i]), to);
    for (size_t i = 0; i < sizeof(any) / sizeof(any[0]) && e == ERR_OK; i++)
        e = json_call(b, a, from, any[i], to);
    return e;
}

/* Open bracket, members with commas, close bracket. */
static enum err emit_container(struct build *b, struct nfa *a, int32_t from, int32_t to,
                               bool object) {
    int32_t open = nfa_state(a), member = nfa_state(a), done = nfa_state(a), close = nfa_state(a),
            empty = nfa_state(a);
    char ends[2] = {object ? '{' : '[', object ? '}' : ']'};
    enum err e;
    nfa_range(a, from, (uint32_t)ends[0], (uint32_t)ends[0], open);
    nfa_range(a, open, (uint32_t)ends[1], (uint32_t)ends[1], to);
    if ((e = json_gap(b, a, open, empty)) != ERR_OK) return e;
    nfa_eps(a, empty, member);
    nfa_eps(a, empty, close);
    if (object) {
        int32_t key = nfa_state(a), value = nfa_state(a);
        if ((e = json_call(b, a, member, RULE_STRING, key)) != ERR_OK) return e;
        json_colon(a, key, value);
        e = json_call(b, a, value, RULE_VALUE, done);
    } else {
        e = json_call(b, a, member, RULE_VALUE, done);
    }
    if (e != ERR_OK || (e = json_comma(b, a, done, member)) != ERR_OK ||
        (e = json_gap(b, a, done, close)) != ERR_OK)
        return e;
    nfa_range(a, close, (uint32_t)ends[1], (uint32_t)ends[1], to);
    return ERR_OK;
}

/* Bytes, not characters: free text is the model's own affair. What no UTF-8 holds is left to the
 * paths of special tokens. */
static enum err define_free(struct build *b, int32_t rule) {
    int32_t q = net_state(&b->net, true), s[VOCAB_PATH_BYTES];
    enum err e;
    if (q < 0) return net_fail(&b->net, ERR_TOO_LARGE);
    b->net.rules[rule].start = q;
    e = net_edge(&b->net, q, 0, 0xF4, q);
    s[0] = q;
    for (int i = 1; i < VOCAB_PATH_BYTES && e == ERR_OK; i++) {
        s[i] = net_state(&b->net, false);
        if (s[i] < 0) return net_fail(&b->net, ERR_TOO_LARGE);
        e = net_edge(&b->net, s[i - 1], i == 1 ? 0xFF : 0xF5, i == 1 ? 0xFF : 0xFC, s[i]);
    }
    if (e == ERR_OK) e = net_edge(&b->net, s[VOCAB_PATH_BYTES - 1], 0xF5, 0xFC, q);
    return net_fail(&b->net, e);
}

enum err json_rule(struct build *b, enum json_rule which, int32_t *rule) {
    static const char *const names[RULE_COUNT] = {"a gap",      "an escape", "a string",
                                                  "an integer", "a number",  "a value",
                                                  "an object",  "an array",  "free text"};
    struct nfa a = {0};
    int32_t from, to;
    enum err e = ERR_OK;
    if (b->shared[which] >= 0) {
        *rule = b->shared[which];
        return ERR_OK;
    }
    *rule = b->shared[which] = net_rule(&b->net, names[which]);
    if (*rule < 0) return net_fail(&b->net, ERR_NO_MEMORY);
    if (which == RULE_FREE) return define_free(b, *rule);
    from = nfa_state(&a);
    to = nfa_state(&a);
    switch (which) {
    case RULE_GAP: emit_gap(&a, from, to); break;
    case RULE_ESCAPE: emit_escape(&a, from, to); break;
    case RULE_STRING: e = emit_string(b, &a, from, to); break;
    case RULE_INTEGER: emit_integer(&a, from, to); break;
    case RULE_NUMBER: emit_number(&a, from, to); break;
    case RULE_VALUE: e = emit_value(b, &a, from, to); break;
    case RULE_OBJECT: e = emit_container(b, &a, from, to, true); break;
    case RULE_ARRAY: e = emit_container(b, &a, from, to, false); break;
    case RULE_FREE:
    case RULE_COUNT: break;
    }
    if (e == ERR_OK) e = net_define_nfa(&b->net, *rule, &a, from, to, LOWER_RAW);
    nfa_fini(&a);
    return e;
}
