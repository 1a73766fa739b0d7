/* tok_pretok: see the header. Steps run depth first: a piece goes through all later steps before
 * the next one is cut, so no list of pieces is ever built, and a step that changes text needs one
 * buffer only. */
#include "common/text/tok_pretok.h"

#include <string.h>
#include "common/text/tok_utf8.h"

/* What ByteLevel with use_regex means: the pattern of GPT-2. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* What Whitespace means: words and runs of anything else that is no space, all between removed. */
static const char whitespace_pattern[] = "[\\w\\u200c\\u200d]+|[^\\w\\u200c\\u200d\\s]+";

/* ---- reading */

static enum err add_step(struct tok_at *at, struct tok_pretok *t, enum tok_cut_kind kind,
                         struct tok_cut_step **out) {
    if (t->n_steps == TOK_STEPS_MAX) {
        return tok_fail(at, ERR_BAD_FILE, "at most %d steps are supported", TOK_STEPS_MAX);
    }
    *out = &t->step[t->n_steps++];
    **out = (struct tok_cut_step){.kind = kind, .mode = CUT_ISOLATED};
    return ERR_OK;
}

static enum err read_mode(struct tok_at *at, const struct json_value *o, bool needed,
                          enum tok_cut_mode *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *s;
    size_t n;
    enum err e;
    struct json_value *v;
    if (!needed && json_get(o, "behavior", &v) == JSON_ABSENT) return ERR_OK;
    e = tok_need_str(at, o, "behavior", TOK_STRING_BYTES_MAX, &s, &n);
    if (e != ERR_OK) return e;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(s, names[i]) == 0) {
            *out = (enum tok_cut_mode)i;
            return ERR_OK;
        }
    }
    return tok_fail_at(at, "behavior",
                       "must be Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                       "Contiguous, got %s",
                       s);
}

static enum err read_byte_level(struct tok_at *at, const struct json_value *o,
                                struct tok_pretok *t) {
    struct tok_cut_step *st = NULL;
    bool prefix = false, regex = true;
    enum err e;
    if ((e = tok_need_bool(at, o, "add_prefix_space", &prefix)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "use_regex", &regex)) != ERR_OK) return e;
    if (prefix && (e = add_step(at, t, CUT_PREFIX_SPACE, &st)) != ERR_OK) return e;
    if (regex) {
        if ((e = add_step(at, t, CUT_SPLIT, &st)) != ERR_OK) return e;
        e = tok_pattern_regex(at, gpt2_pattern, sizeof gpt2_pattern - 1, &st->pattern);
        if (e != ERR_OK) return e;
    }
    return add_step(at, t, CUT_BYTE_CHARS, &st);
}

static enum err read_metaspace(struct tok_at *at, const struct json_value *o,
                               struct tok_pretok *t) {
    struct tok_cut_step *st = NULL;
    const char *s;
    size_t n;
    bool prefix = true, split = true;
    enum json_got got;
    enum err e;
    if ((e = add_step(at, t, CUT_METASPACE, &st)) != ERR_OK) return e;
    if ((e = tok_need_str(at, o, "replacement", TOK_STRING_BYTES_MAX, &s, &n)) != ERR_OK) return e;
    if (n == 0 || tok_utf8_len(s[0]) != n) {
        return tok_fail_at(at, "replacement", "must be one character");
    }
    memcpy(st->text, s, n);
    if ((e = tok_opt_bool(at, o, "add_prefix_space", &prefix)) != ERR_OK) return e;
    st->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    got = json_get_str(o, "prepend_scheme", &s, &n);
    if (got != JSON_ABSENT) {
        if (got == JSON_OK && strcmp(s, "always") == 0) {
            st->prepend = PREPEND_ALWAYS;
        } else if (got == JSON_OK && strcmp(s, "first") == 0) {
            st->prepend = PREPEND_FIRST;
        } else if (got == JSON_OK && strcmp(s, "never") == 0) {
            st->prepend = PREPEND_NEVER;
        } else {
            return tok_fail_at(at, "prepend_scheme", "must be always, first or never");
        }
        if (!prefix && st->prepend != PREPEND_NEVER) {
            return tok_fail_at(at, "prepend_scheme",
                               "must be never when add_prefix_space is false");
        }
    }
    if ((e = tok_opt_bool(at, o, "split", &split)) != ERR_OK || !split) return e;
    s = st->text;
    if ((e = add_step(at, t, CUT_SPLIT, &st)) != ERR_OK) return e;
    st->mode = CUT_MERGED_NEXT;
    return tok_pattern_literal(&st->pattern, s, strlen(s));
}

static enum err read_split(struct tok_at *at, const struct json_value *o, struct tok_pretok *t) {
    struct tok_cut_step *st = NULL;
    enum err e;
    if ((e = add_step(at, t, CUT_SPLIT, &st)) != ERR_OK) return e;
    if ((e = tok_pattern_read(at, o, "pattern", &st->pattern)) != ERR_OK) return e;
    if ((e = read_mode(at, o, true, &st->mode)) != ERR_OK) return e;
    return tok_need_bool(at, o, "invert", &st->invert);
}

static enum err read_bert(struct tok_at *at, struct tok_pretok *t) {
    struct tok_cut_step *st = NULL;
    enum err e = add_step(at, t, CUT_SPLIT, &st);
    if (e != ERR_OK) return e;
    st->cls = CLASS_SPACE;
    st->mode = CUT_REMOVED;
    if ((e = add_step(at, t, CUT_SPLIT, &st)) != ERR_OK) return e;
    st->cls = CLASS_PUNCT;
    return ERR_OK;
}

static enum err read_step(struct tok_at *at, const struct json_value *o, const char *type,
                          void *arg) {
    struct tok_pretok *t = arg;
    struct tok_cut_step *st = NULL;
    bool individual = false;
    enum err e;
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(at, o, t);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(at, o, t);
    if (strcmp(type, "BertPreTokenizer") == 0) return read_bert(at, t);
    if (strcmp(type, "Split") == 0) return read_split(at, o, t);
    if (strcmp(type, "Digits") == 0) {
        if ((e = add_step(at, t, CUT_SPLIT, &st)) != ERR_OK) return e;
        if ((e = tok_need_bool(at, o, "individual_digits", &individual)) != ERR_OK) return e;
        st->cls = CLASS_NUMERIC;
        st->mode = individual ? CUT_ISOLATED : CUT_CONTIGUOUS;
        return ERR_OK;
    }
    if (strcmp(type, "Punctuation") == 0) {
        if ((e = add_step(at, t, CUT_SPLIT, &st)) != ERR_OK) return e;
        st->cls = CLASS_PUNCT;
        return read_mode(at, o, false, &st->mode);
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        if ((e = add_step(at, t, CUT_SPLIT, &st)) != ERR_OK) return e;
        st->cls = CLASS_SPACE;
        st->mode = CUT_REMOVED;
        return ERR_OK;
    }
    if (strcmp(type, "Whitespace") == 0) {
        if ((e = add_step(at, t, CUT_SPLIT, &st)) != ERR_OK) return e;
        st->mode = CUT_REMOVED;
        st->invert = true;
        return tok_pattern_regex(at, whitespace_pattern, sizeof whitespace_pattern - 1,
                                 &st->pattern);
    }
    return tok_fail(at, ERR_BAD_FILE,
                    "pre_tokenizer type %s is not supported (ByteLevel, Split, Digits, Metaspace, "
                    "Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, Sequence are)",
                    type);
}

enum err tok_pretok_read(struct tok_at *at, const struct json_value *o, struct tok_pretok *out) {
    enum err e;
    *out = (struct tok_pretok){0};
    e = tok_each_step(at, o, "pretokenizers", read_step, out);
    if (e == ERR_OK && out->n_steps > 0 && out->step[out->n_steps - 1].kind == CUT_BYTE_CHARS) {
        out->n_steps--;
        out->byte_level = true;
    }
    return e;
}

void tok_pretok_fini(struct tok_pretok *t) {
    for (size_t i = 0; i < t->n_steps; i++) tok_pattern_fini(&t->step[i].pattern);
    *t = (struct tok_pretok){0};
}

void tok_pretok_run_fini(struct tok_pretok_run *run) {
    for (size_t i = 0; i < TOK_STEPS_MAX; i++) buf_free(&run->tmp[i]);
}

/* ---- cutting */

/* One piece on its way through the steps. */
struct piece {
    const struct tok_pretok *t;
    struct tok_pretok_run *run;
    const char *s;
    size_t n, k; /* k: the step to take next */
    bool at_start;
};

static enum err take_step(const struct piece *p);

/* The sub-piece [start, end) goes to the next step; empty ones disappear. */
static enum err pass(const struct piece *p, size_t start, size_t end) {
    struct piece sub = {.t = p->t,
                        .run = p->run,
                        .s = p->s + start,
                        .n = end - start,
                        .k = p->k + 1,
                        .at_start = p->at_start && start == 0};
    return end > start ? take_step(&sub) : ERR_OK;
}

/* Turns the stretches of a text, each a match or what lies between, into pieces. */
struct cutter {
    const struct piece *p;
    enum tok_cut_mode mode;
    bool has_open, prev_match;
    size_t start, end; /* the piece that may still grow */
};

static enum err cut_flush(struct cutter *c) {
    if (!c->has_open) return ERR_OK;
    c->has_open = false;
    return pass(c->p, c->start, c->end);
}

static enum err cut_add(struct cutter *c, size_t start, size_t end, bool match) {
    bool grow = false;
    enum err e;
    switch (c->mode) {
    case CUT_REMOVED: return match ? ERR_OK : pass(c->p, start, end);
    case CUT_ISOLATED: return pass(c->p, start, end);
    case CUT_MERGED_PREV: grow = match && !c->prev_match; break;
    case CUT_MERGED_NEXT: grow = !match && c->prev_match; break;
    case CUT_CONTIGUOUS: grow = match == c->prev_match; break;
    }
    c->prev_match = match;
    if (grow && c->has_open) {
        c->end = end;
        return ERR_OK;
    }
    e = cut_flush(c);
    c->has_open = true;
    c->start = start;
    c->end = end;
    return e;
}

static bool in_class(enum tok_cut_class cls, uint32_t c) {
    switch (cls) {
    case CLASS_NUMERIC: return tok_is_numeric(c);
    case CLASS_PUNCT: return tok_is_punct(c);
    case CLASS_SPACE: return tok_is_space(c);
    case CLASS_NONE: break;
    }
    return false;
}

/* The next match at or behind *from: of the pattern, or one character of the class. */
static enum tok_found next_match(const struct tok_cut_step *st, struct tok_find *f, size_t *start,
                                 size_t *end) {
    if (st->cls == CLASS_NONE) return tok_find_next(f, start, end);
    while (f->from < f->n) {
        *start = f->from;
        if (in_class(st->cls, tok_utf8_next(f->s, &f->from))) {
            *end = f->from;
            return TOK_FOUND;
        }
    }
    return TOK_FOUND_NONE;
}

static enum err split(const struct piece *p, const struct tok_cut_step *st) {
    struct tok_find f = {.p = &st->pattern, .rx = p->run->rx, .s = p->s, .n = p->n};
    struct cutter c = {.p = p, .mode = st->mode};
    size_t at = 0, start, end;
    enum tok_found r;
    enum err e = ERR_OK;
    while (e == ERR_OK && (r = next_match(st, &f, &start, &end)) == TOK_FOUND) {
        if (start > at) e = cut_add(&c, at, start, st->invert);
        if (e == ERR_OK) e = cut_add(&c, start, end, !st->invert);
        at = end;
    }
    if (e != ERR_OK) return e;
    if ((e = tok_found_err(r)) != ERR_OK) return e;
    if (at < p->n && (e = cut_add(&c, at, p->n, st->invert)) != ERR_OK) return e;
    return cut_flush(&c);
}

/* The piece goes on as the bytes in its step's buffer. */
static enum err pass_changed(const struct piece *p, const struct buf *b) {
    struct piece sub = *p;
    if (b->failed) return ERR_NO_MEMORY;
    sub.s = b->data;
    sub.n = b->len;
    return pass(&sub, 0, sub.n);
}

static enum err metaspace(const struct piece *p, const struct tok_cut_step *st, struct buf *b) {
    size_t text_bytes = strlen(st->text), at = 0;
    bool has = p->s[0] == ' ' || (p->n >= text_bytes && memcmp(p->s, st->text, text_bytes) == 0);
    buf_clear(b);
    if (!has && (st->prepend == PREPEND_ALWAYS || (st->prepend == PREPEND_FIRST && p->at_start))) {
        buf_append(b, st->text, text_bytes);
    }
    while (at < p->n) {
        const char *sp = memchr(p->s + at, ' ', p->n - at);
        size_t stop = sp != NULL ? (size_t)(sp - p->s) : p->n;
        buf_append(b, p->s + at, stop - at);
        if (sp != NULL) buf_append(b, st->text, text_bytes);
        at = sp != NULL ? stop + 1 : stop;
    }
    return pass_changed(p, b);
}

static enum err byte_chars(const struct piece *p, struct buf *b) {
    buf_clear(b);
    for (size_t i = 0; i < p->n; i++) {
        char c[4];
        buf_append(b, c, tok_utf8_put(c, tok_byte_to_char((unsigned char)p->s[i])));
    }
    return pass_changed(p, b);
}

static enum err take_step(const struct piece *p) {
    const struct tok_cut_step *st = &p->t->step[p->k];
    struct buf *b;
    if (p->k == p->t->n_steps) return p->run->word(p->run->arg, p->s, p->n);
    b = &p->run->tmp[p->k];
    switch (st->kind) {
    case CUT_SPLIT: return split(p, st);
    case CUT_METASPACE: return metaspace(p, st, b);
    case CUT_BYTE_CHARS: return byte_chars(p, b);
    case CUT_PREFIX_SPACE: break;
    }
    if (p->s[0] == ' ') return pass(p, 0, p->n);
    buf_clear(b);
    buf_putc(b, ' ');
    buf_append(b, p->s, p->n);
    return pass_changed(p, b);
}

enum err tok_pretok_cut(const struct tok_pretok *t, struct tok_pretok_run *run, const char *s,
                        size_t n, bool at_start) {
    struct piece p = {.t = t, .run = run, .s = s, .n = n, .k = 0, .at_start = at_start};
    return n > 0 ? take_step(&p) : ERR_OK;
}
