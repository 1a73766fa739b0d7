/* detok: ids to text, in one go or one by one. Both are the same pipe of decoder steps, so a
 * streamed answer is the whole one cut into pieces. */
#include <stdlib.h>
#include "common/text/tok_impl.h"
#include "common/text/tokenizer.h"

struct detok {
    const struct tokenizer *t;
    struct tok_decode_run run;
    bool skip_special;
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
    free(*d);
    *d = NULL;
}

enum err detok_feed(struct detok *d, int32_t id, struct buf *out) {
    const struct tok_vocab *v = &d->t->vocab;
    const char *s;
    size_t n;
    if (!tok_vocab_has(v, id)) return ERR_OK;
    if (d->skip_special && (v->flags[id] & TOK_SPECIAL) != 0) return ERR_OK;
    s = tok_vocab_text(v, (uint32_t)id, &n);
    d->run.out = out;
    return tok_decode_feed(&d->run, s, n);
}

enum err detok_flush(struct detok *d, struct buf *out) {
    d->run.out = out;
    return tok_decode_flush(&d->run);
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
