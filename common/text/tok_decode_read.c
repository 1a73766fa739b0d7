/* tok_decode_read: the "decoder" member of tokenizer.json. */
#include "common/text/tok_decode.h"

#include <stdlib.h>
#include <string.h>

static enum err read_char(struct tok_at *at, const struct json_value *o, const char *key,
                          uint32_t *out) {
    const char *s;
    size_t n, i = 0;
    enum err e = tok_need_str(at, o, key, TOK_STRING_BYTES_MAX, &s, &n);
    if (e != ERR_OK) return e;
    if (n == 0 || tok_utf8_len(s[0]) != n) return tok_fail_at(at, key, "must be one character");
    *out = tok_utf8_next(s, &i);
    return ERR_OK;
}

static enum err read_metaspace(struct tok_at *at, const struct json_value *o,
                               struct tok_dec_step *st) {
    const char *s;
    size_t n;
    enum err e;
    st->kind = DEC_METASPACE;
    st->drop_first = true;
    if ((e = read_char(at, o, "replacement", &st->c)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "add_prefix_space", &st->drop_first)) != ERR_OK) return e;
    if (json_get_str(o, "prepend_scheme", &s, &n) == JSON_OK) {
        st->drop_first = strcmp(s, "never") != 0;
    }
    return ERR_OK;
}

static enum err read_replace(struct tok_at *at, const struct json_value *o,
                             struct tok_dec_step *st) {
    const char *s;
    size_t n;
    enum err e;
    st->kind = DEC_REPLACE;
    if ((e = tok_pattern_read(at, o, "pattern", &st->pattern)) != ERR_OK) return e;
    if ((e = tok_need_str(at, o, "content", TOK_STRING_BYTES_MAX, &s, &n)) != ERR_OK) return e;
    st->text = malloc(n + 1);
    if (st->text == NULL) return ERR_NO_MEMORY;
    memcpy(st->text, s, n + 1);
    st->text_bytes = n;
    return ERR_OK;
}

static enum err read_wordpiece(struct tok_at *at, const struct json_value *o,
                               struct tok_dec_step *st) {
    const char *s;
    size_t n;
    st->kind = DEC_WORDPIECE;
    enum err e = tok_need_str(at, o, "prefix", TOK_STRING_BYTES_MAX, &s, &n);
    if (e != ERR_OK || (e = tok_opt_bool(at, o, "cleanup", &st->cleanup)) != ERR_OK) return e;
    if ((st->text = malloc(n + 1)) == NULL) return ERR_NO_MEMORY;
    memcpy(st->text, s, n + 1);
    st->text_bytes = n;
    return ERR_OK;
}

static enum err read_strip(struct tok_at *at, const struct json_value *o, struct tok_dec_step *st) {
    enum err e;
    st->kind = DEC_STRIP;
    if ((e = read_char(at, o, "content", &st->c)) != ERR_OK) return e;
    if ((e = tok_need_u32(at, o, "start", 65535, &st->n_left)) != ERR_OK) return e;
    return tok_need_u32(at, o, "stop", 65535, &st->n_right);
}

static enum err read_step(struct tok_at *at, const struct json_value *o, const char *type,
                          void *arg) {
    struct tok_decoder *d = arg;
    struct tok_dec_step *st = &d->step[d->n_steps];
    bool fused = d->n_steps > 0 &&
                 (st[-1].fused || st[-1].kind == DEC_FUSE || st[-1].kind == DEC_BYTE_LEVEL);
    if (d->n_steps == TOK_STEPS_MAX) {
        return tok_fail(at, ERR_BAD_FILE, "at most %d steps are supported", TOK_STEPS_MAX);
    }
    *st = (struct tok_dec_step){.kind = DEC_FUSE, .fused = fused};
    d->n_steps++;
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "ByteFallback") == 0) {
        /* behind a Fuse these would look at the text as at one token: nobody means that */
        if (fused) return tok_fail(at, ERR_BAD_FILE, "%s behind a fusing decoder", type);
        st->kind = strcmp(type, "ByteLevel") == 0 ? DEC_BYTE_LEVEL : DEC_BYTE_FALLBACK;
        return ERR_OK;
    }
    if (strcmp(type, "Fuse") == 0) return ERR_OK;
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(at, o, st);
    if (strcmp(type, "Replace") == 0) return read_replace(at, o, st);
    if (strcmp(type, "WordPiece") == 0) return read_wordpiece(at, o, st);
    if (strcmp(type, "Strip") == 0) return read_strip(at, o, st);
    return tok_fail(at, ERR_BAD_FILE,
                    "decoder type %s is not supported (ByteLevel, ByteFallback, Fuse, Metaspace, "
                    "Replace, Strip, WordPiece, Sequence are)",
                    type);
}

enum err tok_decoder_read(struct tok_at *at, const struct json_value *o, struct tok_decoder *out) {
    *out = (struct tok_decoder){0};
    if (o == NULL) {
        out->step[out->n_steps++] = (struct tok_dec_step){.kind = DEC_JOIN_SPACES};
        return ERR_OK;
    }
    return tok_each_step(at, o, "decoders", read_step, out);
}

void tok_decoder_fini(struct tok_decoder *d) {
    for (size_t i = 0; i < d->n_steps; i++) {
        free(d->step[i].text);
        tok_pattern_fini(&d->step[i].pattern);
    }
    *d = (struct tok_decoder){0};
}
