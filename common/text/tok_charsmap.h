/* tok_charsmap: SentencePiece's compiled normaliser ("Precompiled" of tokenizer.json): a
 * double-array trie from strings to what stands for them, as the HuggingFace library runs it: a
 * grapheme of fewer than six bytes is looked up whole, else each of its characters; the shortest
 * entry that it begins with replaces all of it. */
#ifndef BATON_TEXT_TOK_CHARSMAP_H
#define BATON_TEXT_TOK_CHARSMAP_H

#include <stdint.h>
#include "common/base/buf.h"
#include "common/text/tok_json.h"

enum { TOK_CHARSMAP_BYTES_MAX = 8 * 1024 * 1024 };

struct tok_charsmap {
    uint8_t *blob;  /* owned: the trie, then texts, each ended by a zero */
    uint32_t *unit; /* owned: [n_units] */
    size_t n_units, n_text;
    const char *text;
};

/* base64: of the file's bytes. On an error tok_charsmap_fini(). */
enum err tok_charsmap_read(struct tok_at *at, const char *base64, size_t n,
                           struct tok_charsmap *out);
void tok_charsmap_fini(struct tok_charsmap *m);

void tok_charsmap_run(const struct tok_charsmap *m, const char *s, size_t n, struct buf *out);

#endif
