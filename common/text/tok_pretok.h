/* tok_pretok: the "pre_tokenizer" member: cuts the text into the words that the model encodes one
 * by one. Every published kind is put together from four steps (struct tok_cut_step). */
#ifndef BATON_TEXT_TOK_PRETOK_H
#define BATON_TEXT_TOK_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"
#include "common/text/tok_json.h"
#include "common/text/tok_regex.h"

enum tok_cut_kind {
    CUT_PREFIX_SPACE, /* a piece that does not start with a space gets one */
    CUT_METASPACE,    /* spaces become text; text may be put in front */
    CUT_SPLIT,        /* at the matches of a pattern or of a class of characters */
    CUT_BYTE_CHARS,   /* bytes become the printable characters of tok_byte_to_char() */
};
enum tok_cut_class { CLASS_NONE, CLASS_NUMERIC, CLASS_PUNCT, CLASS_SPACE };
enum tok_cut_mode { CUT_REMOVED, CUT_ISOLATED, CUT_MERGED_PREV, CUT_MERGED_NEXT, CUT_CONTIGUOUS };
enum tok_prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct tok_cut_step {
    enum tok_cut_kind kind;
    enum tok_cut_class cls; /* CUT_SPLIT: CLASS_NONE means pattern */
    enum tok_cut_mode mode;
    bool invert;
    struct tok_pattern pattern;
    enum tok_prepend prepend; /* CUT_METASPACE */
    char text[5];             /* CUT_METASPACE: the character spaces become */
};

struct tok_pretok {
    struct tok_cut_step step[TOK_STEPS_MAX];
    size_t n_steps;
    /* The bytes of a word stand for their printable characters: a last CUT_BYTE_CHARS is not done
     * but left to the model, which looks bytes up directly. */
    bool byte_level;
};

enum err tok_pretok_read(struct tok_at *at, const struct json_value *o, struct tok_pretok *out);
void tok_pretok_fini(struct tok_pretok *t);

typedef enum err tok_word_fn(void *arg, const char *s, size_t n);

/* Zero it, set rx, word and arg; tok_pretok_run_fini() frees the scratch. */
struct tok_pretok_run {
    struct tok_rx *rx;
    tok_word_fn *word;
    void *arg;
    struct buf tmp[TOK_STEPS_MAX];
};
/* Hands the words of the piece s[0..n) to run->word in order. at_start: the piece begins the whole
 * text. Stops at the first error of word(); ERR_INTERNAL: a pattern gave up; ERR_NO_MEMORY. */
enum err tok_pretok_cut(const struct tok_pretok *t, struct tok_pretok_run *run, const char *s,
                        size_t n, bool at_start);
void tok_pretok_run_fini(struct tok_pretok_run *run);

#endif
