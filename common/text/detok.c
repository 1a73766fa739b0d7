/* detok: ids to text, in one go or one by one. Both are the same pipe of decoder steps, so a
 * streamed answer is the whole one cut into pieces. */
#include <stdlib.h>
#include <string.h>
#include "common/text/tok_impl.h"
#include "common/text/tok_utf8.h"
#include "common/text/tokenizer.h"

struct detok {
    const struct tokenizer *t;
    struct tok_decode_run run;
    bool skip_special;
    struct buf due; /* text of the prompt that the pipe has yet to give: not to be told again */
    struct buf fresh;
};

static enum err detok_init(struct detok *d, const struct tokenizer *t, bool skip_special) {
    d->t = t;
    d->skip_special = skip_special;
    return tok_decode_init(&d->run, &t->decoder);
}

enum err detok_create(struct detok **out, const struct tokenizer *t, bool skip_special) {
    enum err e;
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return ERR_NO_MEMORY;
    e = detok_init(*out, t, skip_special);
    if (e != ERR_OK) detok_destroy(out);
    return e;
}

void detok_destroy(struct detok **d) {
    if (*d == NULL) return;
    tok_decode_fini(&(*d)->run);
    buf_free(&(*d)->due);
    buf_free(&(*d)->fresh);
    free(*d);
    *d = NULL;
}

static bool is_read(const struct tok_vocab *v, int32_t id, bool skip_special) {
    return tok_vocab_has(v, id) && !(skip_special && (v->flags[id] & TOK_SPECIAL) != 0);
}

static enum err run_feed(struct detok *d, int32_t id, struct buf *out) {
    size_t n;
    const char *s = tok_vocab_text(&d->t->vocab, (uint32_t)id, &n);
    d->run.out = out;
    return tok_decode_feed(&d->run, s, n);
}

/* Appends what is in d->fresh, less the characters that are still due to the prompt. Where the two
 * part, the prompt's end has become something else by what followed it. */
static void pass_on(struct detok *d, struct buf *out) {
    const char *s = d->fresh.data;
    size_t n = d->fresh.len, at = 0;
    while (at < n && d->due.len > 0) {
        size_t len = tok_utf8_len(s[at]);
        if (len > d->due.len || memcmp(s + at, d->due.data, len) != 0) {
            buf_clear(&d->due);
            break;
        }
        buf_consume(&d->due, len);
        at += len;
    }
    if (n > at) buf_append(out, s + at, n - at);
    buf_clear(&d->fresh);
}

enum err detok_feed(struct detok *d, int32_t id, struct buf *out) {
    enum err e;
    if (!is_read(&d->t->vocab, id, d->skip_special)) return ERR_OK;
    if (d->due.len == 0) return run_feed(d, id, out);
    e = run_feed(d, id, &d->fresh);
    pass_on(d, out);
    return e;
}

enum err detok_flush(struct detok *d, struct buf *out) {
    enum err e;
    d->run.out = d->due.len > 0 ? &d->fresh : out;
    e = tok_decode_flush(&d->run);
    if (d->run.out == &d->fresh) pass_on(d, out);
    return e;
}

/* The last of ids[0..n) behind which the pipe stands at the same place whatever came before; 0 when
 * there is none: then all of them count. */
static size_t settled_from(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip) {
    for (size_t i = n; i-- > 0;) {
        const char *s, *p;
        size_t n_s, n_p;
        if (!is_read(&t->vocab, ids[i], skip)) continue;
        s = tok_vocab_text(&t->vocab, (uint32_t)ids[i], &n_s);
        n_p = tokenizer_token_bytes(t, ids[i], &p);
        if (tok_decoder_settles(&t->decoder, s, n_s, p, n_p)) return i;
    }
    return 0;
}

/* What the pipe would give if nothing more came. */
static enum err note_due(struct detok *d) {
    struct tok_decode_run end;
    enum err e = tok_decode_copy(&end, &d->run);
    end.out = &d->due;
    if (e == ERR_OK) e = tok_decode_flush(&end);
    tok_decode_fini(&end);
    return e;
}

enum err detok_prompt(struct detok *d, const int32_t *ids, size_t n, bool skip_special) {
    enum err e = ERR_OK;
    for (size_t i = settled_from(d->t, ids, n, skip_special); i < n && e == ERR_OK; i++) {
        if (is_read(&d->t->vocab, ids[i], skip_special)) e = run_feed(d, ids[i], &d->fresh);
        buf_clear(&d->fresh);
    }
    return e == ERR_OK ? note_due(d) : e;
}

enum err detok_copy(struct detok **out, const struct detok *from) {
    struct detok *d = *out = calloc(1, sizeof **out);
    enum err e;
    if (d == NULL) return ERR_NO_MEMORY;
    d->t = from->t;
    d->skip_special = from->skip_special;
    e = tok_decode_copy(&d->run, &from->run);
    if (from->due.len > 0) buf_append(&d->due, from->due.data, from->due.len);
    if (e == ERR_OK && d->due.failed) e = ERR_NO_MEMORY;
    if (e != ERR_OK) detok_destroy(out);
    return e;
}

struct detok_cut detok_cut(const struct detok *d) {
    struct tok_dec_cut cut = tok_decode_cut(&d->run);
    if (cut.c != ' ') return (struct detok_cut){0};
    return (struct detok_cut){.n = cut.n, .of_token = cut.of_token};
}

size_t detok_cut_bytes(const struct tokenizer *t, struct detok_cut cut, int32_t id) {
    const char *p;
    size_t n = tokenizer_token_bytes(t, id, &p), k = 0;
    if (tokenizer_is_special(t, id)) return 0;
    while (k < n && k < cut.n && p[k] == ' ') k++;
    return k;
}

enum err tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                          bool skip_special, struct buf *out) {
    struct detok d = {0};
    enum err e = detok_init(&d, t, skip_special);
    for (size_t i = 0; i < n && e == ERR_OK; i++) e = detok_feed(&d, ids[i], out);
    if (e == ERR_OK) e = detok_flush(&d, out);
    tok_decode_fini(&d.run);
    return e;
}
