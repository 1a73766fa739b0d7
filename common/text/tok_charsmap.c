/* tok_charsmap: see the header. Units of the trie are those of Darts-clone. */
#include "common/text/tok_charsmap.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "common/text/tok_utf8.h"

enum { GRAPHEME_BYTES = 6 }; /* from so many on a grapheme is taken apart */

enum err tok_charsmap_read(struct tok_at *at, const char *base64, size_t n,
                           struct tok_charsmap *out) {
    uint32_t trie_bytes = 0;
    *out = (struct tok_charsmap){0};
    if (n > TOK_CHARSMAP_BYTES_MAX || n % 4 != 0)
        return tok_fail_at(at, "precompiled_charsmap", "must be base64 of at most %d bytes",
                           TOK_CHARSMAP_BYTES_MAX);
    if (n == 0) return ERR_OK;
    if ((out->blob = malloc(n / 4 * 3)) == NULL) return ERR_NO_MEMORY;
    const int got = EVP_DecodeBlock(out->blob, (const unsigned char *)base64, (int)n);
    size_t bytes = got > 0 ? (size_t)got : 0;
    for (size_t i = n; got > 0 && i > n - 2 && base64[i - 1] == '='; i--) bytes--;
    for (int i = 0; bytes >= 4 && i < 4; i++) trie_bytes |= (uint32_t)out->blob[i] << (8 * i);
    if (bytes < 5 || trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= bytes - 4 ||
        out->blob[bytes - 1] != 0)
        return tok_fail_at(at, "precompiled_charsmap", "is no normaliser of SentencePiece");
    out->n_units = trie_bytes / 4;
    if ((out->unit = malloc(trie_bytes)) == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < out->n_units; i++) {
        const uint8_t *p = out->blob + 4 + 4 * i;
        out->unit[i] =
            (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    out->text = (const char *)out->blob + 4 + trie_bytes;
    out->n_text = bytes - 4 - trie_bytes;
    return tok_utf8_valid(out->text, out->n_text)
               ? ERR_OK
               : tok_fail_at(at, "precompiled_charsmap", "has a text that is not UTF-8");
}

void tok_charsmap_fini(struct tok_charsmap *m) {
    free(m->blob);
    free(m->unit);
    *m = (struct tok_charsmap){0};
}

static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* What the shortest entry that s[0..n) begins with is replaced by; NULL: there is none. */
static const char *look_up(const struct tok_charsmap *m, const char *s, size_t n) {
    if (m->n_units == 0) return NULL;
    size_t node = offset_of(m->unit[0]);
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)s[i];
        if (c == 0) return NULL;
        node ^= c;
        if (node >= m->n_units) return NULL;
        const uint32_t unit = m->unit[node];
        if ((unit & (1u << 31 | 0xFF)) != c) return NULL;
        node ^= offset_of(unit);
        if ((unit >> 8 & 1) == 0) continue;
        if (node >= m->n_units) return NULL;
        const uint32_t value = m->unit[node] & ~(1u << 31);
        return value < m->n_text ? m->text + value : NULL;
    }
    return NULL;
}

static void replace_or_keep(const struct tok_charsmap *m, const char *s, size_t n,
                            struct buf *out) {
    const char *text = look_up(m, s, n);
    if (text != NULL)
        buf_append(out, text, strlen(text));
    else
        buf_append(out, s, n);
}

static void run_grapheme(const struct tok_charsmap *m, const char *s, size_t n, struct buf *out) {
    const char *text = n < GRAPHEME_BYTES ? look_up(m, s, n) : NULL;
    if (text != NULL) {
        buf_append(out, text, strlen(text));
        return;
    }
    for (size_t i = 0, len; i < n; i += len) {
        len = tok_utf8_len(s[i]);
        replace_or_keep(m, s + i, len, out);
    }
}

void tok_charsmap_run(const struct tok_charsmap *m, const char *s, size_t n, struct buf *out) {
    utf8proc_int32_t state = 0, last = -1;
    size_t begin = 0;
    for (size_t i = 0, at; i < n;) {
        at = i;
        const utf8proc_int32_t c = (utf8proc_int32_t)tok_utf8_next(s, &i);
        if (last >= 0 && utf8proc_grapheme_break_stateful(last, c, &state)) {
            run_grapheme(m, s + begin, at - begin, out);
            begin = at;
        }
        last = c;
    }
    if (n > begin) run_grapheme(m, s + begin, n - begin, out);
}
