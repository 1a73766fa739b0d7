/* tok_regex: compiles and runs the patterns. The JIT is used where PCRE2 has one and the system
 * lets it map executable memory; otherwise, and for the rare match that outgrows the JIT's stack,
 * the interpreter does the same work. Text is checked to be UTF-8 once by the tokenizer and never
 * here: a check per match would make a long text quadratic. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/text/tok_regex.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include "common/text/tok_utf8.h"

enum {
    MATCH_STEPS_MAX = 100 * 1000 * 1000, /* of one match; a run of n spaces needs n */
    MATCH_HEAP_KIB_MAX = 128 * 1024,
};

enum err tok_pattern_literal(struct tok_pattern *out, const char *s, size_t n) {
    *out = (struct tok_pattern){0};
    out->lit = malloc(n + 1);
    if (out->lit == NULL) return ERR_NO_MEMORY;
    memcpy(out->lit, s, n);
    out->lit[n] = '\0';
    out->lit_bytes = n;
    return ERR_OK;
}

enum err tok_pattern_regex(struct tok_at *at, const char *s, size_t n, struct tok_pattern *out) {
    struct buf re = BUF_INIT;
    pcre2_compile_context *cc = pcre2_compile_context_create(NULL);
    PCRE2_SIZE where = 0;
    int rc = 0;
    enum err e = tok_regex_translate(at, s, n, &re);
    *out = (struct tok_pattern){0};
    if (e == ERR_OK && (re.failed || cc == NULL)) e = ERR_NO_MEMORY;
    if (e == ERR_OK) {
        pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
        out->code = pcre2_compile((PCRE2_SPTR)(re.data ? re.data : ""), re.len,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                  &rc, &where, cc);
        if (out->code == NULL) {
            char msg[128] = "";
            pcre2_get_error_message(rc, (PCRE2_UCHAR *)msg, sizeof msg);
            e = tok_fail(at, ERR_BAD_FILE, "does not compile near byte %zu: %s", (size_t)where,
                         msg);
        } else {
            out->jit = pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE) == 0;
        }
    }
    pcre2_compile_context_free(cc);
    buf_free(&re);
    return e;
}

enum err tok_pattern_read(struct tok_at *at, const struct json_value *o, const char *key,
                          struct tok_pattern *out) {
    struct json_value *p;
    const char *s;
    size_t n, old = tok_enter(at, ".%s", key);
    enum err e = ERR_OK;
    if (json_get_obj(o, key, &p) != JSON_OK) {
        e = tok_fail(at, ERR_BAD_FILE, "must be {\"String\": ...} or {\"Regex\": ...}");
    } else if (json_get_str(p, "String", &s, &n) == JSON_OK) {
        if (n == 0 || n > TOK_STRING_BYTES_MAX) {
            e = tok_fail(at, ERR_BAD_FILE, "String must have 1 to %d bytes, got %zu",
                         TOK_STRING_BYTES_MAX, n);
        } else {
            e = tok_pattern_literal(out, s, n);
        }
    } else if (json_get_str(p, "Regex", &s, &n) == JSON_OK) {
        if (n == 0 || n > TOK_PATTERN_BYTES_MAX) {
            e = tok_fail(at, ERR_BAD_FILE, "Regex must have 1 to %d bytes, got %zu",
                         TOK_PATTERN_BYTES_MAX, n);
        } else {
            e = tok_pattern_regex(at, s, n, out);
        }
    } else {
        e = tok_fail(at, ERR_BAD_FILE, "must hold a string named String or Regex");
    }
    tok_leave(at, old);
    return e;
}

void tok_pattern_fini(struct tok_pattern *p) {
    free(p->lit);
    pcre2_code_free(p->code);
    *p = (struct tok_pattern){0};
}

void tok_rx_fini(struct tok_rx *rx) {
    pcre2_match_data_free(rx->match_data);
    pcre2_match_context_free(rx->match_context);
    *rx = (struct tok_rx){0};
}

static bool rx_ready(struct tok_rx *rx) {
    if (rx->match_data == NULL) rx->match_data = pcre2_match_data_create(1, NULL);
    if (rx->match_context == NULL) {
        rx->match_context = pcre2_match_context_create(NULL);
        if (rx->match_context == NULL) return false;
        pcre2_set_match_limit(rx->match_context, MATCH_STEPS_MAX);
        pcre2_set_heap_limit(rx->match_context, MATCH_HEAP_KIB_MAX);
    }
    return rx->match_data != NULL;
}

static enum tok_found search(struct tok_find *f, size_t *start, size_t *end) {
    const struct tok_pattern *p = f->p;
    const PCRE2_SIZE *ov;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->lit != NULL) {
        const char *hit = tok_find_bytes(f->s + f->from, f->n - f->from, p->lit, p->lit_bytes);
        if (hit == NULL) return TOK_FOUND_NONE;
        *start = (size_t)(hit - f->s);
        *end = *start + p->lit_bytes;
        return TOK_FOUND;
    }
    if (!rx_ready(f->rx)) return TOK_FOUND_NO_MEMORY;
    if (p->jit) {
        rc = pcre2_jit_match(p->code, (PCRE2_SPTR)f->s, f->n, f->from, 0, f->rx->match_data,
                             f->rx->match_context);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc =
            pcre2_match(p->code, (PCRE2_SPTR)f->s, f->n, f->from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        f->rx->match_data, f->rx->match_context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return TOK_FOUND_NONE;
    if (rc == PCRE2_ERROR_NOMEMORY) return TOK_FOUND_NO_MEMORY;
    if (rc < 0) return TOK_FOUND_GAVE_UP;
    ov = pcre2_get_ovector_pointer(f->rx->match_data);
    *start = ov[0];
    *end = ov[1];
    /* \K can move the start anywhere; only what lies ahead is a piece of this text */
    if (*start < f->last_end || *end < *start) return TOK_FOUND_GAVE_UP;
    return TOK_FOUND;
}

enum err tok_found_err(enum tok_found f) {
    if (f == TOK_FOUND_GAVE_UP) return ERR_INTERNAL;
    return f == TOK_FOUND_NO_MEMORY ? ERR_NO_MEMORY : ERR_OK;
}

enum tok_found tok_find_next(struct tok_find *f, size_t *start, size_t *end) {
    while (f->from <= f->n) {
        enum tok_found r = search(f, start, end);
        if (r != TOK_FOUND) return r;
        if (*start == *end && f->has_last && f->last_end == *end) {
            if (f->from >= f->n) break;
            f->from += tok_utf8_len(f->s[f->from]);
            continue;
        }
        f->from = f->last_end = *end;
        f->has_last = true;
        return TOK_FOUND;
    }
    return TOK_FOUND_NONE;
}
