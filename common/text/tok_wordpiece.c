/* tok_wordpiece: see the header. */
#include "common/text/tok_wordpiece.h"

#include <string.h>
#include "common/text/tok_utf8.h"

void tok_wordpiece_init(struct tok_wordpiece *w, const struct tok_vocab *vocab, int32_t unk_id) {
    *w = (struct tok_wordpiece){
        .vocab = vocab, .unk_id = unk_id, .word_chars_max = 100, .prefix = "##", .prefix_bytes = 2};
    for (uint32_t id = 0; id < vocab->n_ids; id++)
        if ((vocab->flags[id] & TOK_IN_MODEL) != 0 && vocab->len[id] > w->piece_bytes_max)
            w->piece_bytes_max = vocab->len[id];
}

enum err tok_wordpiece_read(struct tok_at *at, const struct json_value *o,
                            const struct tok_vocab *vocab, struct tok_wordpiece *out) {
    const char *s;
    size_t n;
    enum err e = tok_need_str(at, o, "unk_token", TOK_TOKEN_BYTES_MAX, &s, &n);
    if (e != ERR_OK) return e;
    tok_wordpiece_init(out, vocab, tok_vocab_find(vocab, s, n, TOK_IN_MODEL | TOK_ADDED));
    if (out->unk_id < 0) return tok_fail_at(at, "unk_token", "must be a token of the vocabulary");
    e = tok_need_str(at, o, "continuing_subword_prefix", TOK_CONTINUING_BYTES_MAX, &s, &n);
    if (e != ERR_OK) return e;
    memcpy(out->prefix, s, n);
    out->prefix_bytes = n;
    return tok_need_u32(at, o, "max_input_chars_per_word", TOK_WORD_CHARS_MAX,
                        &out->word_chars_max);
}

/* The longest token that s[from..n) begins with; *end: behind it. -1: none. */
static int32_t longest(const struct tok_wordpiece *w, const char *s, size_t n, size_t from,
                       size_t *end) {
    char piece[TOK_TOKEN_BYTES_MAX + TOK_CONTINUING_BYTES_MAX];
    const size_t head = from > 0 ? w->prefix_bytes : 0;
    size_t most = n - from, room = w->piece_bytes_max > head ? w->piece_bytes_max - head : 0;
    if (most > room) most = room;
    while (most > 0 && from + most < n && ((unsigned char)s[from + most] & 0xC0) == 0x80) most--;
    memcpy(piece, w->prefix, head);
    memcpy(piece + head, s + from, most);
    for (; most > 0; most = tok_utf8_last(s + from, most)) {
        const int32_t id = tok_vocab_find(w->vocab, piece, head + most, TOK_IN_MODEL);
        *end = from + most;
        if (id >= 0) return id;
    }
    return -1;
}

static enum err put(struct id_list *out, int32_t id, size_t n_ids_max) {
    return out->n < n_ids_max ? id_list_push(out, id) : ERR_TOO_LARGE;
}

enum err tok_wordpiece_word(const struct tok_wordpiece *w, const char *s, size_t n,
                            size_t n_ids_max, struct id_list *out) {
    const size_t before = out->n;
    size_t chars = 0, end = 0;
    for (size_t i = 0; i < n && chars <= w->word_chars_max; i += tok_utf8_len(s[i])) chars++;
    if (chars > w->word_chars_max) return put(out, w->unk_id, n_ids_max);
    for (size_t at = 0; at < n; at = end) {
        const int32_t id = longest(w, s, n, at, &end);
        if (id < 0) {
            out->n = before;
            return put(out, w->unk_id, n_ids_max);
        }
        enum err e = put(out, id, n_ids_max);
        if (e != ERR_OK) return e;
    }
    return ERR_OK;
}
