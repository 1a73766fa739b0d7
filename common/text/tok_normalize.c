/* tok_normalize: see the header. The normal forms are built from utf8proc's tables character by
 * character, not with utf8proc_map(): its canonical ordering moves marks one place at a time, which
 * a text of a million combining marks turns into hours. ASCII passes through untouched; a stretch
 * of other characters is taken together with the one ASCII character before it, the only one it can
 * compose with. */
#include "common/text/tok_normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "common/text/tok_utf8.h"

enum {
    GROWTH_MAX = 64, /* times the text's own size: NFKD can take 18 */
    GROWTH_FREE_BYTES = 65536,
};

/* ---- reading */

static enum err dup_text(struct tok_norm_step *st, const char *s, size_t n) {
    st->text = malloc(n + 1);
    if (st->text == NULL) return ERR_NO_MEMORY;
    memcpy(st->text, s, n);
    st->text[n] = '\0';
    st->text_bytes = n;
    return ERR_OK;
}

static enum err add_step(struct tok_at *at, struct tok_norm *t, enum tok_norm_kind kind,
                         struct tok_norm_step **out) {
    if (t->n_steps == TOK_STEPS_MAX)
        return tok_fail(at, ERR_BAD_FILE, "at most %d steps are supported", TOK_STEPS_MAX);
    *out = &t->step[t->n_steps++];
    **out = (struct tok_norm_step){.kind = kind};
    return ERR_OK;
}

/* BertNormalizer is steps of ours in a row; strip_accents absent: as lowercase. */
static enum err read_bert(struct tok_at *at, const struct json_value *o, struct tok_norm *t) {
    bool clean = true, cjk = true, lower = true;
    struct tok_norm_step *st;
    enum err e = ERR_OK;
    if ((e = tok_opt_bool(at, o, "clean_text", &clean)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "handle_chinese_chars", &cjk)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "lowercase", &lower)) != ERR_OK) return e;
    bool accents = lower;
    if ((e = tok_opt_bool(at, o, "strip_accents", &accents)) != ERR_OK) return e;
    if (clean && (e = add_step(at, t, NORM_CLEAN, &st)) != ERR_OK) return e;
    if (cjk && (e = add_step(at, t, NORM_SPACE_CJK, &st)) != ERR_OK) return e;
    if (accents && (e = add_step(at, t, NORM_FORM, &st)) != ERR_OK) return e;
    if (accents && (e = add_step(at, t, NORM_DROP_MARKS, &st)) != ERR_OK) return e;
    return lower ? add_step(at, t, NORM_LOWERCASE, &st) : ERR_OK;
}

static enum err read_charsmap(struct tok_at *at, const struct json_value *o, struct tok_norm *t) {
    struct tok_norm_step *st = NULL;
    const char *s = "";
    size_t n = 0;
    struct json_value *v = NULL;
    enum err e = add_step(at, t, NORM_CHARSMAP, &st);
    if (e == ERR_OK && json_get(o, "precompiled_charsmap", &v) == JSON_OK)
        e = tok_need_str(at, o, "precompiled_charsmap", SIZE_MAX, &s, &n);
    return e == ERR_OK ? tok_charsmap_read(at, s, n, &st->map) : e;
}

static enum err read_step(struct tok_at *at, const struct json_value *o, const char *type,
                          void *arg) {
    struct tok_norm *t = arg;
    struct tok_norm_step *st = &t->step[t->n_steps];
    const char *s;
    size_t n;
    enum err e = ERR_OK;
    if (strcmp(type, "BertNormalizer") == 0) return read_bert(at, o, t);
    if (strcmp(type, "Precompiled") == 0) return read_charsmap(at, o, t);
    if (t->n_steps == TOK_STEPS_MAX) {
        return tok_fail(at, ERR_BAD_FILE, "at most %d steps are supported", TOK_STEPS_MAX);
    }
    *st = (struct tok_norm_step){0};
    t->n_steps++;
    if (strcmp(type, "NFC") == 0 || strcmp(type, "NFD") == 0 || strcmp(type, "NFKC") == 0 ||
        strcmp(type, "NFKD") == 0) {
        st->kind = NORM_FORM;
        st->compat = type[2] == 'K';
        st->compose = type[strlen(type) - 1] == 'C';
        return ERR_OK;
    }
    if (strcmp(type, "Lowercase") == 0) {
        st->kind = NORM_LOWERCASE;
        return ERR_OK;
    }
    if (strcmp(type, "StripAccents") == 0) {
        st->kind = NORM_DROP_MARKS;
        st->all_marks = true;
        return ERR_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        st->kind = NORM_STRIP;
        if ((e = tok_need_bool(at, o, "strip_left", &st->left)) != ERR_OK) return e;
        return tok_need_bool(at, o, "strip_right", &st->right);
    }
    if (strcmp(type, "Prepend") == 0) {
        st->kind = NORM_PREPEND;
        e = tok_need_str(at, o, "prepend", TOK_STRING_BYTES_MAX, &s, &n);
        return e == ERR_OK ? dup_text(st, s, n) : e;
    }
    if (strcmp(type, "Replace") == 0) {
        st->kind = NORM_REPLACE;
        if ((e = tok_pattern_read(at, o, "pattern", &st->pattern)) != ERR_OK) return e;
        e = tok_need_str(at, o, "content", TOK_STRING_BYTES_MAX, &s, &n);
        return e == ERR_OK ? dup_text(st, s, n) : e;
    }
    return tok_fail(at, ERR_BAD_FILE,
                    "normalizer type %s is not supported (NFC, NFD, NFKC, NFKD, Lowercase, Strip, "
                    "StripAccents, Prepend, Replace, BertNormalizer, Precompiled, Sequence are)",
                    type);
}

enum err tok_norm_read(struct tok_at *at, const struct json_value *o, struct tok_norm *out) {
    *out = (struct tok_norm){0};
    return tok_each_step(at, o, "normalizers", read_step, out);
}

void tok_norm_fini(struct tok_norm *t) {
    for (size_t i = 0; i < t->n_steps; i++) {
        free(t->step[i].text);
        tok_pattern_fini(&t->step[i].pattern);
        tok_charsmap_fini(&t->step[i].map);
    }
    *t = (struct tok_norm){0};
}

/* ---- normal forms */

struct runes {
    utf8proc_int32_t *c;
    size_t n, cap;
};

static bool runes_reserve(struct runes *r, size_t n_more) {
    size_t cap = r->cap ? r->cap : 64;
    utf8proc_int32_t *c;
    if (r->cap - r->n >= n_more) return true;
    while (cap - r->n < n_more) cap *= 2;
    c = realloc(r->c, cap * sizeof *c);
    if (c == NULL) return false;
    r->c = c;
    r->cap = cap;
    return true;
}

static int ccc(utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
}

/* Stable sort of one run of non-starters by combining class: insertion for the short runs that real
 * text has, counting for the others. */
static bool order_marks(utf8proc_int32_t *c, size_t n) {
    size_t count[256] = {0}, sum = 0;
    utf8proc_int32_t *copy;
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t x = c[i];
            int cls = ccc(x);
            size_t k = i;
            for (; k > 0 && ccc(c[k - 1]) > cls; k--) c[k] = c[k - 1];
            c[k] = x;
        }
        return true;
    }
    copy = malloc(n * sizeof *copy);
    if (copy == NULL) return false;
    memcpy(copy, c, n * sizeof *copy);
    for (size_t i = 0; i < n; i++) count[ccc(c[i]) & 255]++;
    for (size_t k = 0; k < 256; k++) {
        size_t here = count[k];
        count[k] = sum;
        sum += here;
    }
    for (size_t i = 0; i < n; i++) c[count[ccc(copy[i]) & 255]++] = copy[i];
    free(copy);
    return true;
}

static bool order_runes(struct runes *r) {
    for (size_t i = 0; i < r->n;) {
        size_t from = i;
        while (i < r->n && ccc(r->c[i]) != 0) i++;
        if (i - from > 1 && !order_marks(r->c + from, i - from)) return false;
        if (i == from) i++;
    }
    return true;
}

static bool form_stretch(const struct tok_norm_step *st, const char *s, size_t n, struct runes *r,
                         struct buf *out) {
    utf8proc_option_t opt = UTF8PROC_DECOMPOSE | (st->compat ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t len;
    r->n = 0;
    for (size_t i = 0; i < n;) {
        int boundclass = 0;
        utf8proc_int32_t c = (utf8proc_int32_t)tok_utf8_next(s, &i);
        if (!runes_reserve(r, 32)) return false; /* no character decomposes to more than 18 */
        len = utf8proc_decompose_char(c, r->c + r->n, (utf8proc_ssize_t)(r->cap - r->n), opt,
                                      &boundclass);
        if (len < 0 || (size_t)len > r->cap - r->n) return false;
        r->n += (size_t)len;
    }
    if (!order_runes(r)) return false;
    len = (utf8proc_ssize_t)r->n;
    if (st->compose) {
        len = utf8proc_normalize_utf32(r->c, len, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (len < 0) return false;
    }
    for (utf8proc_ssize_t i = 0; i < len; i++) {
        char p[4];
        buf_append(out, p, tok_utf8_put(p, (uint32_t)r->c[i]));
    }
    return true;
}

static bool run_form(const struct tok_norm_step *st, const char *s, size_t n, struct buf *out) {
    struct runes r = {0};
    size_t i = 0;
    bool ok = true;
    while (i < n && ok) {
        size_t ascii = tok_ascii_span(s + i, n - i), from;
        if (i + ascii == n) {
            buf_append(out, s + i, ascii);
            break;
        }
        if (ascii > 0) {
            buf_append(out, s + i, ascii - 1);
            i += ascii - 1;
        }
        from = i++;
        while (i < n && (unsigned char)s[i] >= 0x80) i++;
        ok = form_stretch(st, s + from, i - from, &r, out);
    }
    free(r.c);
    return ok;
}

/* ---- the other steps */

static void run_lowercase(const char *s, size_t n, struct buf *out) {
    for (size_t i = 0; i < n;) {
        char p[4];
        uint32_t c = tok_utf8_next(s, &i);
        if (c < 0x80) {
            buf_putc(out, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
        } else if (c == 0x130) { /* the one character whose lower case is two: i and a dot above */
            buf_append(out, "i\xCC\x87", 3);
        } else {
            c = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
            buf_append(out, p, tok_utf8_put(p, c));
        }
    }
}

/* What BERT takes out: zero, U+FFFD, all of category C but tab and line ends. */
static bool is_control(uint32_t c) {
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if (c == '\t' || c == '\n' || c == '\r') return false;
    return c == 0xFFFD || k == UTF8PROC_CATEGORY_CN || k == UTF8PROC_CATEGORY_CC ||
           k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CS || k == UTF8PROC_CATEGORY_CO;
}

static bool is_ideograph(uint32_t c) {
    static const uint32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

static bool is_mark(uint32_t c, bool all) {
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_MN ||
           (all && (k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME));
}

/* The steps that look at one character at a time. */
static void run_characters(const struct tok_norm_step *st, const char *s, size_t n,
                           struct buf *out) {
    for (size_t i = 0, from; i < n;) {
        from = i;
        const uint32_t c = tok_utf8_next(s, &i);
        const bool ideograph = st->kind == NORM_SPACE_CJK && is_ideograph(c);
        if (st->kind == NORM_CLEAN && is_control(c)) continue;
        if (st->kind == NORM_DROP_MARKS && is_mark(c, st->all_marks)) continue;
        if (ideograph) buf_putc(out, ' ');
        if (st->kind == NORM_CLEAN && tok_is_space(c))
            buf_putc(out, ' ');
        else
            buf_append(out, s + from, i - from);
        if (ideograph) buf_putc(out, ' ');
    }
}

static void run_strip(const struct tok_norm_step *st, const char **s, size_t *n) {
    while (st->left && *n > 0) {
        size_t i = 0;
        if (!tok_is_space(tok_utf8_next(*s, &i))) break;
        *s += i;
        *n -= i;
    }
    while (st->right && *n > 0) {
        size_t last = tok_utf8_last(*s, *n), i = last;
        if (!tok_is_space(tok_utf8_next(*s, &i))) break;
        *n = last;
    }
}

static enum err run_replace(const struct tok_norm_step *st, struct tok_rx *rx, const char *s,
                            size_t n, struct buf *out) {
    struct tok_find f = {.p = &st->pattern, .rx = rx, .s = s, .n = n};
    size_t at = 0, start, end, out_max = n * GROWTH_MAX + GROWTH_FREE_BYTES;
    enum tok_found r;
    while ((r = tok_find_next(&f, &start, &end)) == TOK_FOUND) {
        buf_append(out, s + at, start - at);
        buf_append(out, st->text, st->text_bytes);
        at = end;
        if (out->len > out_max) return ERR_TOO_LARGE;
    }
    buf_append(out, s + at, n - at);
    return tok_found_err(r);
}

enum err tok_norm_run(const struct tok_norm *t, struct tok_rx *rx, struct buf tmp[2],
                      const char **s, size_t *n) {
    for (size_t i = 0; i<t->n_steps && * n> 0; i++) {
        const struct tok_norm_step *st = &t->step[i];
        struct buf *out = tmp[0].data != NULL && *s >= tmp[0].data && *s <= tmp[0].data + tmp[0].len
                              ? &tmp[1]
                              : &tmp[0];
        enum err e = ERR_OK;
        if (st->kind == NORM_STRIP) {
            run_strip(st, s, n);
            continue;
        }
        if (st->kind == NORM_FORM && tok_ascii_span(*s, *n) == *n) continue;
        buf_clear(out);
        switch (st->kind) {
        case NORM_FORM:
            if (!run_form(st, *s, *n, out)) e = ERR_NO_MEMORY;
            break;
        case NORM_PREPEND:
            buf_append(out, st->text, st->text_bytes);
            buf_append(out, *s, *n);
            break;
        case NORM_REPLACE: e = run_replace(st, rx, *s, *n, out); break;
        case NORM_LOWERCASE: run_lowercase(*s, *n, out); break;
        case NORM_CLEAN:
        case NORM_SPACE_CJK:
        case NORM_DROP_MARKS: run_characters(st, *s, *n, out); break;
        case NORM_CHARSMAP: tok_charsmap_run(&st->map, *s, *n, out); break;
        case NORM_STRIP: break;
        }
        if (e == ERR_OK && out->failed) e = ERR_NO_MEMORY;
        if (e != ERR_OK) return e;
        *s = out->data != NULL ? out->data : "";
        *n = out->len;
    }
    return ERR_OK;
}
