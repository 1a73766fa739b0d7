/* tok_decode: see the header. The steps form a pipe. Until a step fuses, each call carries one
 * whole token; behind it, each call carries more of the one token that the text has become, and a
 * step keeps back what the next bytes could still change:
 *
 *   ByteLevel      an unfinished character
 *   ByteFallback   a run of byte tokens: it is text if the whole run is, else one U+FFFD a byte
 *   Strip          the characters at the end that a stop would cut
 *   Replace        the start of a literal match; for a regular expression, everything
 */
#include "common/text/tok_decode.h"

#include <stdlib.h>
#include <string.h>

enum err tok_decode_init(struct tok_decode_run *r, const struct tok_decoder *d) {
    *r = (struct tok_decode_run){.d = d};
    r->st = calloc(d->n_steps + 1, sizeof *r->st);
    return r->st != NULL ? ERR_OK : ERR_NO_MEMORY;
}

void tok_decode_fini(struct tok_decode_run *r) {
    for (size_t k = 0; r->st != NULL && k < r->d->n_steps; k++) {
        buf_free(&r->st[k].held);
        buf_free(&r->st[k].scratch);
    }
    free(r->st);
    tok_rx_fini(&r->rx);
    *r = (struct tok_decode_run){0};
}

enum err tok_decode_copy(struct tok_decode_run *to, const struct tok_decode_run *from) {
    enum err e = tok_decode_init(to, from->d);
    bool failed = false;
    for (size_t k = 0; e == ERR_OK && k < from->d->n_steps; k++) {
        struct tok_dec_state *st = &to->st[k];
        *st = from->st[k];
        st->held = st->scratch = BUF_INIT;
        if (from->st[k].held.len > 0)
            buf_append(&st->held, from->st[k].held.data, from->st[k].held.len);
        failed = failed || st->held.failed;
    }
    to->e = from->e;
    return failed ? ERR_NO_MEMORY : e;
}

struct tok_dec_cut tok_decode_cut(const struct tok_decode_run *r) {
    for (size_t k = 0; k < r->d->n_steps; k++) {
        const struct tok_dec_step *step = &r->d->step[k];
        const struct tok_dec_state *st = &r->st[k];
        if (st->begun) continue;
        if (step->kind == DEC_STRIP && step->fused && st->n_cut < step->n_left)
            return (struct tok_dec_cut){.c = step->c, .n = step->n_left - st->n_cut};
        if (step->kind == DEC_METASPACE && step->drop_first)
            return (struct tok_dec_cut){.c = ' ', .n = UINT32_MAX, .of_token = true};
    }
    return (struct tok_dec_cut){0};
}

static void push(struct tok_decode_run *r, size_t k, const char *s, size_t n);

/* ---- steps that look at a token alone (also used for tokenizer_token_bytes) */

/* Its bytes; false when a character is no byte: then the token stands for itself. */
static bool byte_level_bytes(const char *s, size_t n, struct buf *out) {
    for (size_t i = 0; i < n;) {
        int b = tok_char_to_byte(tok_utf8_next(s, &i));
        if (b < 0) return false;
        buf_putc(out, (char)b);
    }
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of "<0x41>", -1 for any other token. */
static int fallback_byte(const char *s, size_t n) {
    int hi, lo;
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    hi = hex_digit(s[3]);
    lo = hex_digit(s[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static enum err replace(const struct tok_dec_step *st, struct tok_rx *rx, const char *s, size_t n,
                        struct buf *out) {
    struct tok_find f = {.p = &st->pattern, .rx = rx, .s = s, .n = n};
    size_t at = 0, start, end;
    enum tok_found found;
    while ((found = tok_find_next(&f, &start, &end)) == TOK_FOUND) {
        buf_append(out, s + at, start - at);
        buf_append(out, st->text, st->text_bytes);
        at = end;
    }
    buf_append(out, s + at, n - at);
    return tok_found_err(found);
}

static void metaspace(const struct tok_dec_step *st, bool first, const char *s, size_t n,
                      struct buf *out) {
    for (size_t i = 0; i < n;) {
        size_t from = i;
        if (tok_utf8_next(s, &i) != st->c) {
            buf_append(out, s + from, i - from);
        } else if (!first || !st->drop_first) {
            buf_putc(out, ' ');
        }
    }
}

/* Moves the ends of a whole token inwards. */
static void strip(const struct tok_dec_step *st, const char **s, size_t *n) {
    for (uint32_t k = 0; k<st->n_left && * n> 0; k++) {
        size_t i = 0;
        if (tok_utf8_next(*s, &i) != st->c) break;
        *s += i;
        *n -= i;
    }
    for (uint32_t k = 0; k<st->n_right && * n> 0; k++) {
        size_t last = tok_utf8_last(*s, *n), i = last;
        if (tok_utf8_next(*s, &i) != st->c) break;
        *n = last;
    }
}

/* Of a word that the token before began. */
static bool goes_on(const struct tok_dec_step *st, const char *s, size_t n) {
    return n >= st->text_bytes && memcmp(s, st->text, st->text_bytes) == 0;
}

/* Signs that follow their word at once. */
static bool is_close(const char *s, size_t n) {
    static const char *const signs[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        if (n >= strlen(signs[i]) && memcmp(s, signs[i], strlen(signs[i])) == 0) return true;
    return false;
}

void tok_decoder_token(const struct tok_decoder *d, struct tok_rx *rx, const char *s, size_t n,
                       struct buf *out) {
    struct buf b[2] = {BUF_INIT, BUF_INIT};
    for (size_t k = 0; k < d->n_steps && !d->step[k].fused; k++) {
        const struct tok_dec_step *st = &d->step[k];
        struct buf *to = s == b[0].data ? &b[1] : &b[0];
        int byte = -1;
        buf_clear(to);
        switch (st->kind) {
        case DEC_BYTE_LEVEL:
            if (!byte_level_bytes(s, n, to)) continue;
            break;
        case DEC_BYTE_FALLBACK:
            if ((byte = fallback_byte(s, n)) < 0) continue;
            buf_putc(to, (char)byte);
            k = d->n_steps; /* no longer text: later steps cannot read it */
            break;
        case DEC_METASPACE: metaspace(st, false, s, n, to); break;
        case DEC_REPLACE:
            if (replace(st, rx, s, n, to) != ERR_OK) continue;
            break;
        case DEC_STRIP: strip(st, &s, &n); continue;
        case DEC_WORDPIECE:
            if (!goes_on(st, s, n)) continue;
            s += st->text_bytes;
            n -= st->text_bytes;
            continue;
        case DEC_FUSE:
        case DEC_JOIN_SPACES: continue;
        }
        s = to->data != NULL ? to->data : "";
        n = to->len;
    }
    buf_append(out, s, n);
    buf_free(&b[0]);
    buf_free(&b[1]);
}

bool tok_decoder_settles(const struct tok_decoder *d, const char *s, size_t n, const char *p,
                         size_t n_bytes) {
    bool stays = false; /* it has a character that no Strip cuts */
    for (size_t k = 0; k < d->n_steps; k++) {
        if (d->step[k].kind == DEC_BYTE_FALLBACK && fallback_byte(s, n) >= 0) return false;
        if (d->step[k].kind == DEC_REPLACE && d->step[k].fused) return false;
    }
    if (!tok_utf8_valid(p, n_bytes)) return false;
    for (size_t i = 0; i < n_bytes && !stays;) {
        uint32_t c = tok_utf8_next(p, &i);
        stays = true;
        for (size_t k = 0; k < d->n_steps; k++)
            if (d->step[k].kind == DEC_STRIP && d->step[k].c == c) stays = false;
    }
    return stays;
}

/* ---- the pipe */

static void feed_byte_level(struct tok_decode_run *r, size_t k, const char *s, size_t n) {
    struct tok_dec_state *st = &r->st[k];
    size_t raw = 0;
    buf_clear(&st->scratch);
    buf_clear(&st->held);
    if (!byte_level_bytes(s, n, &st->held)) {
        buf_clear(&st->held);
        buf_append(&st->held, s, n);
    }
    raw = st->held.len;
    if (raw > 0) tok_lossy_feed(&st->lossy, st->held.data, raw, &st->scratch);
    if (st->scratch.len > 0) push(r, k + 1, st->scratch.data, st->scratch.len);
}

/* A run of byte tokens is over. */
static void end_fallback(struct tok_decode_run *r, size_t k) {
    struct buf *held = &r->st[k].held;
    if (held->len == 0) return;
    if (tok_utf8_valid(held->data, held->len)) {
        push(r, k + 1, held->data, held->len);
    } else {
        for (size_t i = 0; i < held->len; i++) push(r, k + 1, "\xEF\xBF\xBD", 3);
    }
    buf_clear(held);
}

static void feed_fallback(struct tok_decode_run *r, size_t k, const char *s, size_t n) {
    int byte = fallback_byte(s, n);
    if (byte >= 0) {
        buf_putc(&r->st[k].held, (char)byte);
        return;
    }
    end_fallback(r, k);
    push(r, k + 1, s, n);
}

/* What is held and came new, less the longest end that a match could start with. */
static void feed_replace_fused(struct tok_decode_run *r, size_t k, const char *s, size_t n) {
    const struct tok_dec_step *step = &r->d->step[k];
    struct tok_dec_state *st = &r->st[k];
    const char *lit = step->pattern.lit, *p, *hit;
    size_t lit_bytes = step->pattern.lit_bytes, left, keep;
    buf_append(&st->held, s, n);
    if (lit == NULL || st->held.len == 0) return;
    buf_clear(&st->scratch);
    p = st->held.data;
    left = st->held.len;
    while ((hit = tok_find_bytes(p, left, lit, lit_bytes)) != NULL) {
        buf_append(&st->scratch, p, (size_t)(hit - p));
        buf_append(&st->scratch, step->text, step->text_bytes);
        left -= (size_t)(hit - p) + lit_bytes;
        p = hit + lit_bytes;
    }
    keep = lit_bytes - 1 < left ? lit_bytes - 1 : left;
    while (keep > 0 && memcmp(p + left - keep, lit, keep) != 0) keep--;
    buf_append(&st->scratch, p, left - keep);
    buf_consume(&st->held, st->held.len - keep);
    if (st->scratch.len > 0) push(r, k + 1, st->scratch.data, st->scratch.len);
}

static void feed_replace(struct tok_decode_run *r, size_t k, const char *s, size_t n) {
    struct buf *to = &r->st[k].scratch;
    enum err e;
    if (r->d->step[k].fused) {
        feed_replace_fused(r, k, s, n);
        return;
    }
    buf_clear(to);
    e = replace(&r->d->step[k], &r->rx, s, n, to);
    if (e != ERR_OK && r->e == ERR_OK) r->e = e;
    push(r, k + 1, to->data != NULL ? to->data : "", to->len);
}

static void put_char(struct buf *b, uint32_t c) {
    char p[4];
    buf_append(b, p, tok_utf8_put(p, c));
}

static void feed_strip_fused(struct tok_decode_run *r, size_t k, const char *s, size_t n) {
    const struct tok_dec_step *step = &r->d->step[k];
    struct tok_dec_state *st = &r->st[k];
    buf_clear(&st->scratch);
    for (size_t i = 0; i < n;) {
        size_t from = i;
        uint32_t c = tok_utf8_next(s, &i);
        if (c == step->c && !st->begun && st->n_cut < step->n_left) {
            st->n_cut++;
            continue;
        }
        st->begun = true;
        if (c == step->c && st->n_tail < step->n_right) {
            st->n_tail++;
            continue;
        }
        if (c == step->c) { /* the oldest of those held is too far from the end now */
            put_char(&st->scratch, c);
            continue;
        }
        for (; st->n_tail > 0; st->n_tail--) put_char(&st->scratch, step->c);
        buf_append(&st->scratch, s + from, i - from);
    }
    if (st->scratch.len > 0) push(r, k + 1, st->scratch.data, st->scratch.len);
}

static void push(struct tok_decode_run *r, size_t k, const char *s, size_t n) {
    const struct tok_dec_step *step = &r->d->step[k];
    struct tok_dec_state *st = &r->st[k];
    if (k == r->d->n_steps) {
        buf_append(r->out, s, n);
        return;
    }
    switch (step->kind) {
    case DEC_BYTE_LEVEL: feed_byte_level(r, k, s, n); break;
    case DEC_BYTE_FALLBACK: feed_fallback(r, k, s, n); break;
    case DEC_REPLACE: feed_replace(r, k, s, n); break;
    case DEC_FUSE: push(r, k + 1, s, n); break;
    case DEC_METASPACE:
        buf_clear(&st->scratch);
        metaspace(step, step->fused || !st->begun, s, n, &st->scratch);
        st->begun = true;
        push(r, k + 1, st->scratch.data != NULL ? st->scratch.data : "", st->scratch.len);
        break;
    case DEC_STRIP:
        if (step->fused) {
            feed_strip_fused(r, k, s, n);
        } else {
            strip(step, &s, &n);
            push(r, k + 1, s, n);
        }
        break;
    case DEC_WORDPIECE:
        if (st->begun && goes_on(step, s, n)) {
            push(r, k + 1, s + step->text_bytes, n - step->text_bytes);
            break;
        }
        if (st->begun && !(step->cleanup && is_close(s, n))) push(r, k + 1, " ", 1);
        st->begun = true;
        push(r, k + 1, s, n);
        break;
    case DEC_JOIN_SPACES:
        if (st->begun) push(r, k + 1, " ", 1);
        st->begun = true;
        push(r, k + 1, s, n);
        break;
    }
}

/* What step k still holds, now that nothing more comes. */
static void end_step(struct tok_decode_run *r, size_t k) {
    const struct tok_dec_step *step = &r->d->step[k];
    struct tok_dec_state *st = &r->st[k];
    enum err e = ERR_OK;
    buf_clear(&st->scratch);
    if (step->kind == DEC_BYTE_LEVEL) {
        tok_lossy_flush(&st->lossy, &st->scratch);
    } else if (step->kind == DEC_BYTE_FALLBACK) {
        end_fallback(r, k);
    } else if (step->kind == DEC_REPLACE && st->held.len > 0) {
        e = replace(step, &r->rx, st->held.data, st->held.len, &st->scratch);
    }
    if (e != ERR_OK && r->e == ERR_OK) r->e = e;
    if (st->scratch.len > 0) push(r, k + 1, st->scratch.data, st->scratch.len);
}

static enum err outcome(const struct tok_decode_run *r) {
    bool failed = r->out->failed;
    for (size_t k = 0; k < r->d->n_steps; k++) {
        failed = failed || r->st[k].held.failed || r->st[k].scratch.failed;
    }
    return failed ? ERR_NO_MEMORY : r->e;
}

enum err tok_decode_feed(struct tok_decode_run *r, const char *s, size_t n) {
    push(r, 0, s, n);
    return outcome(r);
}

enum err tok_decode_flush(struct tok_decode_run *r) {
    for (size_t k = 0; k < r->d->n_steps; k++) end_step(r, k);
    return outcome(r);
}
