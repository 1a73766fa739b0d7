/* json_pull: one step of the grammar at a time. */
#include "proto/json_pull.h"

#include <string.h>

void json_pull_start(struct json_pull *j, const char *p, size_t n) {
    size_t bom = n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    j->lex = (struct json_lex){.p = (const unsigned char *)p, .n = n, .at = bom};
    j->depth = 0;
    j->fresh = j->bad = false;
}

static bool fail(struct json_pull *j) {
    j->bad = true;
    j->depth = 0;
    j->lex.at = j->lex.n;
    return false;
}

static inline int peek(struct json_pull *j) {
    if (j->lex.at < j->lex.n && j->lex.p[j->lex.at] > ' ') return j->lex.p[j->lex.at];
    json_lex_space(&j->lex);
    return j->lex.at < j->lex.n ? j->lex.p[j->lex.at] : -1;
}

static inline enum json_pulled open_container(struct json_pull *j, bool object) {
    if (j->depth > JSON_DEPTH_MAX) {
        fail(j);
        return JSON_PULL_BAD;
    }
    j->object[j->depth++] = object;
    j->fresh = true;
    j->lex.at++;
    return object ? JSON_PULL_OBJECT : JSON_PULL_ARRAY;
}

static inline enum json_pulled take_value(struct json_pull *j, struct json_span *s) {
    enum json_number number;
    enum json_pulled v = JSON_PULL_BAD;
    char word;
    int c = peek(j);
    switch (c) {
    case '{':
    case '[': return open_container(j, c == '{');
    case '"':
        if (json_lex_string(&j->lex, s)) v = JSON_PULL_STRING;
        break;
    case '-':
    case '0' ... '9':
        if (json_lex_number(&j->lex, &number))
            v = number == JSON_NUMBER_INT ? JSON_PULL_INT : JSON_PULL_REAL;
        break;
    case -1: break;
    default:
        if (json_lex_word(&j->lex, &word))
            v = word == 't' ? JSON_PULL_TRUE : word == 'f' ? JSON_PULL_FALSE : JSON_PULL_NULL;
    }
    if (v == JSON_PULL_BAD) fail(j);
    j->fresh = false;
    return v;
}

/* Whether something more comes in the innermost container, whose end is `close`. */
static inline bool more(struct json_pull *j, int close) {
    int c = peek(j);
    bool fresh = j->fresh;
    if (c == close && j->depth > 0) {
        j->lex.at++;
        j->depth--;
        j->fresh = false;
        return false;
    }
    j->fresh = false;
    if (j->bad || j->depth == 0) return fail(j);
    if (fresh) return true;
    if (c != ',') return fail(j);
    j->lex.at++;
    return true;
}

static inline bool next_member(struct json_pull *j, struct json_span *name) {
    if (!more(j, '}')) return false;
    if (peek(j) != '"' || !json_lex_string(&j->lex, name) || name->zero || peek(j) != ':')
        return fail(j);
    j->lex.at++;
    return true;
}

enum json_pulled json_pull_value(struct json_pull *j, struct json_span *s) {
    return take_value(j, s);
}

bool json_pull_item(struct json_pull *j) {
    return more(j, ']');
}

bool json_pull_member(struct json_pull *j, struct json_span *name) {
    return next_member(j, name);
}

/* On until no more than `outside` containers are open. */
static void walk_out(struct json_pull *j, int outside) {
    struct json_span s;
    while (j->depth > outside) {
        bool object = j->object[j->depth - 1];
        if (object ? next_member(j, &s) : more(j, ']')) take_value(j, &s);
    }
}

enum json_pulled json_pull_skip(struct json_pull *j) {
    struct json_span s;
    int outside = j->depth;
    enum json_pulled first = take_value(j, &s);
    walk_out(j, outside);
    return j->bad ? JSON_PULL_BAD : first;
}

void json_pull_rest(struct json_pull *j) {
    walk_out(j, j->depth - 1);
}

bool json_pull_end(struct json_pull *j) {
    return peek(j) < 0 && !j->bad && j->depth == 0;
}

bool json_pull_spells(const struct json_pull *j, const struct json_span *s, const char *name) {
    const unsigned char *p = j->lex.p + s->at;
    char c[4];
    for (size_t i = 0, n; i < s->len; i += n) {
        size_t k = json_put_utf8(c, json_next_char(p + i, &n));
        if (memcmp(name, c, k) != 0) return false;
        name += k;
    }
    return true;
}

bool json_pull_copy(const struct json_pull *j, const struct json_span *s, char *dst,
                    size_t dst_bytes) {
    if (s->n_bytes >= dst_bytes) return false;
    json_unescape(dst, j->lex.p + s->at, s->len);
    dst[s->n_bytes] = 0;
    return true;
}

enum json_found json_pull_find(const char *p, size_t n, const char *key, char *dst,
                               size_t dst_bytes, size_t *len) {
    struct json_pull j;
    struct json_span s;
    enum json_found found = JSON_FOUND_NONE;
    dst[0] = 0;
    *len = 0;
    json_pull_start(&j, p, n);
    if (json_pull_value(&j, &s) != JSON_PULL_OBJECT) return JSON_FOUND_NO_OBJECT;
    while (json_pull_member(&j, &s)) {
        if (!json_pull_name_is(&j, &s, key)) {
            json_pull_skip(&j);
            continue;
        }
        enum json_pulled kind = json_pull_value(&j, &s);
        if (kind >= JSON_PULL_ARRAY) json_pull_rest(&j);
        found = kind != JSON_PULL_STRING                 ? JSON_FOUND_NONE
                : json_pull_copy(&j, &s, dst, dst_bytes) ? JSON_FOUND
                                                         : JSON_FOUND_TOO_LONG;
        *len = s.n_bytes;
    }
    if (!json_pull_end(&j)) found = JSON_FOUND_NO_OBJECT;
    if (found != JSON_FOUND) dst[0] = 0;
    return found;
}
