/* py_scan: see py_scan.h. Source: the Python language reference, 2.4 (literals), 6.3.4 (calls). */
#include "common/endpoint/py_scan.h"

#include <stdio.h>
#include <string.h>
#include "proto/hash.h"

enum state {
    AT_ITEM,    /* where an item, or the container's end, may be */
    IN_NAME,    /* of an argument */
    AFTER_NAME, /* before its "=" */
    AT_VALUE,   /* behind "=" or ":" */
    IN_WORD,    /* a number, True, False or None */
    IN_STRING,
    IN_ESCAPE, /* behind a backslash */
    IN_HEX,
    AT_COLON, /* of a dict */
    AFTER_VALUE,
};

static bool is_space(unsigned char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
static bool is_digit(unsigned char c) {
    return c >= '0' && c <= '9';
}
static bool is_letter(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
}

void py_scan_start(struct py_scan *s) {
    *s = (struct py_scan){.state = AT_ITEM};
    s->open[s->depth++] = '(';
}

static char innermost(const struct py_scan *s) {
    return s->depth > 1 ? s->open[s->depth - 1] : 'f';
}

/* ---- containers */

static enum py_scan_step enter(struct py_scan *s, char c, struct buf *json) {
    if (s->depth == PY_SCAN_DEPTH_MAX) return PY_SCAN_BAD;
    s->open[s->depth++] = c;
    s->some = false;
    s->state = AT_ITEM;
    buf_putc(json, c == '{' ? '{' : '[');
    return PY_SCAN_MORE;
}

static enum py_scan_step leave(struct py_scan *s, char c, struct buf *json) {
    const char open = s->open[s->depth - 1];
    const bool call = s->depth == 1;
    if (c != (open == '[' ? ']' : open == '{' ? '}' : ')')) return PY_SCAN_BAD;
    /* a value in parentheses, no tuple: it would need to be known before it was written */
    if (!call && open == '(' && s->some) return PY_SCAN_BAD;
    if (call && !s->some) buf_putc(json, '{');
    buf_putc(json, call || open == '{' ? '}' : ']');
    s->certain = s->certain || call;
    if (call) return PY_SCAN_DONE;
    s->depth--;
    s->some = true;
    s->state = AFTER_VALUE;
    return PY_SCAN_MORE;
}

/* ---- text */

static void put_code(struct buf *json, uint32_t v) {
    char text[16];
    if (v >= 0x10000)
        snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd800 + ((v - 0x10000) >> 10 & 0x3ff),
                 0xdc00 + ((v - 0x10000) & 0x3ff));
    else
        snprintf(text, sizeof(text), "\\u%04x", v & 0xffff);
    buf_puts(json, text);
}

static void put_byte(struct buf *json, unsigned char c) {
    if (c == '"' || c == '\\') buf_putc(json, '\\');
    if (c < 0x20)
        put_code(json, c);
    else
        buf_putc(json, (char)c);
}

static enum py_scan_step string_byte(struct py_scan *s, unsigned char c, struct buf *json) {
    s->state = IN_STRING;
    if (c == '\\') {
        s->state = IN_ESCAPE;
    } else if (c == (unsigned char)s->quote) {
        buf_putc(json, '"');
        s->some = true;
        s->state = s->key ? AT_COLON : AFTER_VALUE;
        s->key = false;
    } else {
        put_byte(json, c);
    }
    return PY_SCAN_MORE;
}

static enum py_scan_step escape_byte(struct py_scan *s, unsigned char c, struct buf *json) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *at = c != '\0' ? strchr(from, c) : NULL;
    s->state = IN_STRING;
    if (at != NULL) {
        put_byte(json, (unsigned char)to[at - from]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        s->state = IN_HEX;
        s->escape = (char)c;
        s->hex_left = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        s->code = 0;
    } else if (is_digit(c) || c == 'N') {
        return PY_SCAN_BAD; /* octal, names of characters */
    } else if (c != '\n') {
        put_byte(json, '\\'); /* which is none: both stay */
        put_byte(json, c);
    }
    return PY_SCAN_MORE;
}

static enum py_scan_step hex_byte(struct py_scan *s, unsigned char c, struct buf *json) {
    const unsigned lower = c | 0x20u;
    if (!is_digit(c) && (lower < 'a' || lower > 'f')) return PY_SCAN_BAD;
    s->code = s->code << 4 | (is_digit(c) ? (unsigned)c - '0' : lower - 'a' + 10u);
    if (--s->hex_left > 0) return PY_SCAN_MORE;
    if (s->code > 0x10ffff || (s->code >= 0xd800 && s->code <= 0xdfff)) return PY_SCAN_BAD;
    put_code(json, s->code);
    s->state = IN_STRING;
    return PY_SCAN_MORE;
}

/* ---- words */

static bool is_number(const char *w) {
    if (*w == '-') w++;
    if (!is_digit((unsigned char)*w) || (w[0] == '0' && is_digit((unsigned char)w[1])))
        return false;
    while (is_digit((unsigned char)*w)) w++;
    if (*w == '.') {
        if (!is_digit((unsigned char)*++w)) return false;
        while (is_digit((unsigned char)*w)) w++;
    }
    if (*w == 'e' || *w == 'E') {
        w++;
        if (*w == '+' || *w == '-') w++;
        if (!is_digit((unsigned char)*w)) return false;
        while (is_digit((unsigned char)*w)) w++;
    }
    return *w == '\0';
}

static bool take(struct py_scan *s, unsigned char c) {
    if (s->word_len == PY_SCAN_WORD_BYTES - 1) return false;
    s->word[s->word_len++] = (char)c;
    s->word[s->word_len] = '\0';
    return true;
}

static bool put_word(struct py_scan *s, struct buf *json) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (int i = 0; i < 3; i++) {
        if (strcmp(s->word, words[i][0]) != 0) continue;
        buf_puts(json, words[i][1]);
        return true;
    }
    if (is_number(s->word)) buf_puts(json, s->word);
    return is_number(s->word);
}

/* ---- items */

static enum py_scan_step value(struct py_scan *s, unsigned char c, struct buf *json) {
    if (c == '"' || c == '\'') {
        s->quote = (char)c;
        buf_putc(json, '"');
        s->state = IN_STRING;
        return PY_SCAN_MORE;
    }
    if (c == '[' || c == '(' || c == '{') return enter(s, (char)c, json);
    s->word_len = 0;
    s->state = IN_WORD;
    return (is_letter(c) || is_digit(c) || c == '-') && take(s, c) ? PY_SCAN_MORE : PY_SCAN_BAD;
}

static enum py_scan_step item(struct py_scan *s, unsigned char c, struct buf *json) {
    const char in = innermost(s);
    if (c == ')' || c == ']' || c == '}') return leave(s, (char)c, json);
    if (in == 'f') { /* what has a name is put into the object with it */
        s->word_len = 0;
        s->state = IN_NAME;
        return is_letter(c) && take(s, c) ? PY_SCAN_MORE : PY_SCAN_BAD;
    }
    if (s->some) buf_puts(json, ", ");
    s->key = in == '{';
    return s->key && c != '"' && c != '\'' ? PY_SCAN_BAD : value(s, c, json);
}

static enum py_scan_step named(struct py_scan *s, struct buf *json) {
    const uint64_t hash = hash64_text(HASH64_BEGIN, s->word);
    for (int i = 0; i < s->n_names; i++)
        if (s->names[i] == hash) return PY_SCAN_BAD;
    if (s->n_names == PY_SCAN_NAMES_MAX) return PY_SCAN_BAD;
    s->names[s->n_names++] = hash;
    buf_puts(json, s->some ? ", \"" : "{\"");
    buf_puts(json, s->word);
    buf_puts(json, "\": ");
    s->some = s->certain = true;
    s->state = AT_VALUE;
    return PY_SCAN_MORE;
}

static enum py_scan_step after_value(struct py_scan *s, unsigned char c, struct buf *json) {
    s->some = true;
    s->state = AFTER_VALUE;
    if (is_space(c)) return PY_SCAN_MORE;
    if (c != ',') return leave(s, (char)c, json);
    if (s->depth > 1 && s->open[s->depth - 1] == '(') s->open[s->depth - 1] = ',';
    s->state = AT_ITEM;
    return PY_SCAN_MORE;
}

enum py_scan_step py_scan_byte(struct py_scan *s, unsigned char c, struct buf *json) {
    switch ((enum state)s->state) {
    case IN_STRING: return string_byte(s, c, json);
    case IN_ESCAPE: return escape_byte(s, c, json);
    case IN_HEX: return hex_byte(s, c, json);
    case IN_WORD:
        if (is_letter(c) || is_digit(c) || c == '.' || c == '+' || c == '-')
            return take(s, c) ? PY_SCAN_MORE : PY_SCAN_BAD;
        return put_word(s, json) ? after_value(s, c, json) : PY_SCAN_BAD;
    case IN_NAME:
        if (is_letter(c) || is_digit(c)) return take(s, c) ? PY_SCAN_MORE : PY_SCAN_BAD;
        s->state = AFTER_NAME;
        break;
    default: break;
    }
    if (is_space(c)) return PY_SCAN_MORE;
    switch ((enum state)s->state) {
    case AT_ITEM: return item(s, c, json);
    case AFTER_NAME: return c == '=' ? named(s, json) : PY_SCAN_BAD;
    case AT_COLON:
        if (c != ':') return PY_SCAN_BAD;
        buf_puts(json, ": ");
        s->state = AT_VALUE;
        return PY_SCAN_MORE;
    case AT_VALUE: return value(s, c, json);
    default: return after_value(s, c, json);
    }
}
