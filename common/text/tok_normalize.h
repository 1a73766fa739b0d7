/* tok_normalize: the "normalizer" member: what happens to the text before it is cut. */
#ifndef BATON_TEXT_TOK_NORMALIZE_H
#define BATON_TEXT_TOK_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"
#include "common/text/tok_charsmap.h"
#include "common/text/tok_json.h"
#include "common/text/tok_regex.h"

enum tok_norm_kind {
    NORM_FORM, /* NFC, NFD, NFKC, NFKD */
    NORM_PREPEND,
    NORM_REPLACE,
    NORM_LOWERCASE,
    NORM_STRIP,
    NORM_CLEAN,      /* control characters go, white space becomes blanks (BERT) */
    NORM_SPACE_CJK,  /* a blank on both sides of each ideograph */
    NORM_DROP_MARKS, /* combining marks go */
    NORM_CHARSMAP,   /* Precompiled */
};

struct tok_norm_step {
    enum tok_norm_kind kind;
    bool compat, compose;       /* NORM_FORM */
    bool left, right;           /* NORM_STRIP */
    bool all_marks;             /* NORM_DROP_MARKS: spacing ones too */
    struct tok_charsmap map;    /* NORM_CHARSMAP */
    struct tok_pattern pattern; /* NORM_REPLACE */
    char *text;                 /* what to prepend or to put in place */
    size_t text_bytes;
};

struct tok_norm {
    struct tok_norm_step step[TOK_STEPS_MAX];
    size_t n_steps;
};

/* o NULL: no steps. On an error tok_norm_fini() cleans up. */
enum err tok_norm_read(struct tok_at *at, const struct json_value *o, struct tok_norm *out);
void tok_norm_fini(struct tok_norm *t);

/* In: the text at *s. Out: the normalised text, still the same bytes when nothing changed, else in
 * one of the two buffers. ERR_TOO_LARGE: it grew out of proportion; ERR_NO_MEMORY; ERR_INTERNAL: a
 * pattern gave up. */
enum err tok_norm_run(const struct tok_norm *t, struct tok_rx *rx, struct buf tmp[2],
                      const char **s, size_t *n);

#endif
