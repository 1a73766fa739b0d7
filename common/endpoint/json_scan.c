/* json_scan: the states of JSON's grammar, and a bit for each open container. */
#include "common/endpoint/json_scan.h"

#include <string.h>

enum {
    S_VALUE,        /* a value must begin */
    S_FIRST_ITEM,   /* after [: a value or ] */
    S_FIRST_MEMBER, /* after {: a name or } */
    S_MEMBER,       /* after , in an object: a name */
    S_COLON,
    S_NEXT, /* after a value in a container: , or its end */
    S_STRING,
    S_ESCAPE,
    S_HEX,
    S_WORD,
    S_MINUS,
    S_ZERO,
    S_INT,
    S_POINT, /* a digit must follow */
    S_FRACTION,
    S_E, /* sign or digit */
    S_E_SIGN,
    S_EXPONENT,
};

void json_scan_start(struct json_scan *s) {
    *s = (struct json_scan){.state = S_VALUE};
}

static bool is_space(unsigned char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(unsigned char c) {
    return c >= '0' && c <= '9';
}

static bool is_hex(unsigned char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool in_object(const struct json_scan *s) {
    unsigned at = s->depth - 1u;
    return (s->is_object[at / 8] >> at % 8 & 1) != 0;
}

/* A value ended with this byte. */
static enum json_scan_step ended(struct json_scan *s) {
    s->state = S_NEXT;
    return s->depth == 0 ? JSON_SCAN_DONE : JSON_SCAN_MORE;
}

static enum json_scan_step to(struct json_scan *s, uint8_t state) {
    s->state = state;
    return JSON_SCAN_MORE;
}

static enum json_scan_step open_container(struct json_scan *s, bool object) {
    if (s->depth >= JSON_SCAN_DEPTH_MAX) return JSON_SCAN_BAD;
    uint8_t bit = (uint8_t)(1u << s->depth % 8);
    if (object)
        s->is_object[s->depth / 8] |= bit;
    else
        s->is_object[s->depth / 8] &= (uint8_t)~bit;
    s->depth++;
    return to(s, object ? S_FIRST_MEMBER : S_FIRST_ITEM);
}

static enum json_scan_step close_container(struct json_scan *s) {
    s->depth--;
    return ended(s);
}

static enum json_scan_step open_string(struct json_scan *s, bool key) {
    s->key = key;
    return to(s, S_STRING);
}

static enum json_scan_step open_word(struct json_scan *s, const char *rest) {
    s->word = rest;
    return to(s, S_WORD);
}

static enum json_scan_step value(struct json_scan *s, unsigned char c) {
    switch (c) {
    case '{': return open_container(s, true);
    case '[': return open_container(s, false);
    case '"': return open_string(s, false);
    case 't': return open_word(s, "rue");
    case 'f': return open_word(s, "alse");
    case 'n': return open_word(s, "ull");
    case '-': return to(s, S_MINUS);
    case '0': return to(s, S_ZERO);
    default: return is_digit(c) ? to(s, S_INT) : JSON_SCAN_BAD;
    }
}

static enum json_scan_step next(struct json_scan *s, unsigned char c) {
    bool object = in_object(s);
    if (c == ',') return to(s, object ? S_MEMBER : S_VALUE);
    return c == (object ? '}' : ']') ? close_container(s) : JSON_SCAN_BAD;
}

static enum json_scan_step string(struct json_scan *s, unsigned char c) {
    if (c == '\\') return to(s, S_ESCAPE);
    if (c < 0x20) return JSON_SCAN_BAD;
    if (c != '"') return JSON_SCAN_MORE;
    return s->key ? to(s, S_COLON) : ended(s);
}

static enum json_scan_step escape(struct json_scan *s, unsigned char c) {
    if (c == 'u') {
        s->hex_left = 4;
        return to(s, S_HEX);
    }
    return c != '\0' && strchr("\"\\/bfnrt", c) != NULL ? to(s, S_STRING) : JSON_SCAN_BAD;
}

/* The byte after a number: the number was the whole value, or the container goes on with it. */
static enum json_scan_step after_number(struct json_scan *s, unsigned char c) {
    s->state = S_NEXT;
    if (s->depth == 0) return JSON_SCAN_AFTER;
    return is_space(c) ? JSON_SCAN_MORE : next(s, c);
}

static enum json_scan_step number(struct json_scan *s, unsigned char c) {
    bool digit = is_digit(c), e = c == 'e' || c == 'E';
    switch (s->state) {
    case S_MINUS:
        if (!digit) return JSON_SCAN_BAD;
        return to(s, c == '0' ? S_ZERO : S_INT);
    case S_POINT: return digit ? to(s, S_FRACTION) : JSON_SCAN_BAD;
    case S_E:
        if (c == '+' || c == '-') return to(s, S_E_SIGN);
        return digit ? to(s, S_EXPONENT) : JSON_SCAN_BAD;
    case S_E_SIGN: return digit ? to(s, S_EXPONENT) : JSON_SCAN_BAD;
    case S_INT:
    case S_ZERO:
        if (c == '.') return to(s, S_POINT);
        if (digit && s->state == S_ZERO) return JSON_SCAN_BAD;
        break;
    default: break;
    }
    if (digit) return JSON_SCAN_MORE;
    if (e && s->state != S_EXPONENT) return to(s, S_E);
    return after_number(s, c);
}

enum json_scan_step json_scan_byte(struct json_scan *s, unsigned char c) {
    switch (s->state) {
    case S_STRING: return string(s, c);
    case S_ESCAPE: return escape(s, c);
    case S_HEX:
        if (!is_hex(c)) return JSON_SCAN_BAD;
        return --s->hex_left == 0 ? to(s, S_STRING) : JSON_SCAN_MORE;
    case S_WORD:
        if (c != (unsigned char)*s->word++) return JSON_SCAN_BAD;
        return *s->word == '\0' ? ended(s) : JSON_SCAN_MORE;
    case S_MINUS:
    case S_ZERO:
    case S_INT:
    case S_POINT:
    case S_FRACTION:
    case S_E:
    case S_E_SIGN:
    case S_EXPONENT: return number(s, c);
    default: break;
    }
    if (is_space(c)) return JSON_SCAN_MORE;
    switch (s->state) {
    case S_VALUE: return value(s, c);
    case S_FIRST_ITEM: return c == ']' ? close_container(s) : value(s, c);
    case S_FIRST_MEMBER:
        if (c == '}') return close_container(s);
        return c == '"' ? open_string(s, true) : JSON_SCAN_BAD;
    case S_MEMBER: return c == '"' ? open_string(s, true) : JSON_SCAN_BAD;
    case S_COLON: return c == ':' ? to(s, S_VALUE) : JSON_SCAN_BAD;
    default: return s->depth > 0 ? next(s, c) : JSON_SCAN_BAD;
    }
}
