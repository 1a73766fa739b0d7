/* tok_decode: the "decoder" member: from written tokens to text, one token at a time. A run of it
 * gives the same text whether tokens come one by one or all at once. */
#ifndef BATON_TEXT_TOK_DECODE_H
#define BATON_TEXT_TOK_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/text/tok_json.h"
#include "common/text/tok_regex.h"
#include "common/text/tok_utf8.h"

enum tok_dec_kind {
    DEC_BYTE_LEVEL,    /* printable characters back to bytes, bytes to text */
    DEC_BYTE_FALLBACK, /* "<0x41>" to bytes, runs of them to text */
    DEC_METASPACE,
    DEC_REPLACE,
    DEC_STRIP,
    DEC_FUSE,        /* from here on the text is one token */
    DEC_WORDPIECE,   /* a space between tokens, but before those that go on a word */
    DEC_JOIN_SPACES, /* what no decoder at all means: a space between tokens */
};

struct tok_dec_step {
    enum tok_dec_kind kind;
    bool fused;                 /* its input is one token that comes in pieces */
    struct tok_pattern pattern; /* DEC_REPLACE */
    char *text;   /* DEC_REPLACE: what comes in place; DEC_WORDPIECE: before what goes on a word */
    bool cleanup; /* DEC_WORDPIECE: no space before . ? ! , n't 'm 's 've 're either */
    size_t text_bytes;
    uint32_t c;               /* DEC_METASPACE: the replacement; DEC_STRIP: what is stripped */
    bool drop_first;          /* DEC_METASPACE: the first token loses its replacements */
    uint32_t n_left, n_right; /* DEC_STRIP: at most that many */
};

struct tok_decoder {
    struct tok_dec_step step[TOK_STEPS_MAX];
    size_t n_steps;
};

/* o NULL: tokens joined by spaces. On an error tok_decoder_fini(). */
enum err tok_decoder_read(struct tok_at *at, const struct json_value *o, struct tok_decoder *out);
void tok_decoder_fini(struct tok_decoder *d);

/* Appends the bytes one token stands for, apart from its neighbours (no strip at the ends of the
 * text, no joining); may be half a character. */
void tok_decoder_token(const struct tok_decoder *d, struct tok_rx *rx, const char *s, size_t n,
                       struct buf *out);

/* Characters that the pipe cuts from the start of a text: so many, or with of_token all that the
 * first token has. */
struct tok_dec_cut {
    uint32_t c;
    uint32_t n; /* 0: none */
    bool of_token;
};

/* Whether the pipe stands at the same place behind this token whatever came before it; s: its
 * written form, p: its bytes alone. */
bool tok_decoder_settles(const struct tok_decoder *d, const char *s, size_t n, const char *p,
                         size_t n_bytes);

/* What a step remembers between tokens. */
struct tok_dec_state {
    struct tok_lossy lossy; /* DEC_BYTE_LEVEL */
    struct buf held;        /* not decided yet: fallback bytes, start of a match */
    struct buf scratch;     /* a token while the step changes it */
    bool begun;             /* a token came already */
    uint32_t n_cut, n_tail; /* DEC_STRIP: cut at the start; characters held back at the end */
};
struct tok_decode_run {
    const struct tok_decoder *d;
    struct tok_dec_state *st; /* [d->n_steps] */
    struct tok_rx rx;
    struct buf *out; /* set before each call */
    enum err e;      /* the first error of a step */
};
enum err tok_decode_init(struct tok_decode_run *r, const struct tok_decoder *d);
void tok_decode_fini(struct tok_decode_run *r);
/* A run that stands where `from` stands. */
enum err tok_decode_copy(struct tok_decode_run *to, const struct tok_decode_run *from);
/* What would still be cut from the text's start if the next token began with it. */
struct tok_dec_cut tok_decode_cut(const struct tok_decode_run *r);
/* Appends to *r->out; ERR_NO_MEMORY, or ERR_INTERNAL when a pattern gave up. */
enum err tok_decode_feed(struct tok_decode_run *r, const char *s, size_t n);
enum err tok_decode_flush(struct tok_decode_run *r); /* the end; then only tok_decode_fini() */

#endif
