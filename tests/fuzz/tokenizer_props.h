/* tokenizer_props: what holds of every tokenizer, from whatever file it was read: it encodes any
 * text or gives up cleanly, ids lie in the vocabulary, streamed text equals whole text and is
 * UTF-8. */
#ifndef BATON_TESTS_TOKENIZER_PROPS_H
#define BATON_TESTS_TOKENIZER_PROPS_H

#include <stdlib.h>
#include <string.h>
#include "common/text/tok_utf8.h"
#include "common/text/tokenizer.h"

static const char text[] = " Hello  w\xC3\xB6rld's 123 \xE4\xBD\xA0\xE5\xA5\xBD\xF0\x9F\xA6\x99 "
                           "\xE2\x96\x81"
                           "a\xCC\x81<s>ab \n\t";

static void decode(const struct tokenizer *t, const int32_t *ids, size_t n) {
    struct buf whole = BUF_INIT, streamed = BUF_INIT;
    struct detok *d = NULL;
    enum err e = tokenizer_decode(t, ids, n, false, &whole), s;
    if ((s = detok_create(&d, t, false)) != ERR_OK) abort();
    for (size_t i = 0; i < n && s == ERR_OK; i++) s = detok_feed(d, ids[i], &streamed);
    if (s == ERR_OK) s = detok_flush(d, &streamed);
    if (s != e || whole.len != streamed.len) abort();
    if (whole.len > 0 && memcmp(whole.data, streamed.data, whole.len) != 0) abort();
    if (whole.len > 0 && !tok_utf8_valid(whole.data, whole.len)) abort();
    detok_destroy(&d);
    buf_free(&whole);
    buf_free(&streamed);
}

/* Aborts where one does not. */
static void check_tokenizer(const struct tokenizer *t) {
    struct id_list l = {0};
    const char *p;
    if (tokenizer_encode(t, text, sizeof text - 1, true, 1000, &l) == ERR_INVALID) abort();
    for (size_t i = 0; i < l.n; i++) {
        if (l.ids[i] < 0 || l.ids[i] >= tokenizer_vocab_size(t)) abort();
        (void)tokenizer_token_bytes(t, l.ids[i], &p);
    }
    decode(t, l.ids, l.n);
    id_list_free(&l);
    for (int32_t id = tokenizer_vocab_size(t); id >= -1 && l.n < 300; id--) {
        if (id_list_push(&l, id) != ERR_OK) abort();
    }
    decode(t, l.ids, l.n);
    id_list_free(&l);
}

#endif
