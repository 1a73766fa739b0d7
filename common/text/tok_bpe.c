/* tok_bpe: see the header. Three ways to the same ids, by length of the word:
 *
 *   up to CACHE_WORD_BYTES  from the call's cache, when the word was met before in this text
 *   up to SCAN_SYMBOLS_MAX  the lowest rank is looked for in a short array: no allocation, no links
 *   longer                  a heap of pairs over a linked list, n log n: a "word" of a megabyte
 *                           (a text without cuts, or an attack) stays cheap
 *
 * The cache belongs to one call, so threads share nothing that is written. */
#include "common/text/tok_bpe.h"

#include <stdlib.h>
#include <string.h>
#include "common/text/tok_bpe_table.h"
#include "common/text/tok_utf8.h"

enum {
    CACHE_WORD_BYTES = 30,
    CACHE_WORD_IDS = 8,
    CACHE_SLOTS_MAX = 4096,
    CACHE_TEXT_BYTES_MIN = 256, /* shorter texts repeat too little */
    SCAN_SYMBOLS_MAX = 64,
};

#define RANK_NONE UINT32_MAX
#define END       UINT32_MAX

struct tok_word {           /* one cache line */
    uint8_t n_bytes, n_ids; /* n_bytes 0: free */
    char s[CACHE_WORD_BYTES];
    int32_t id[CACHE_WORD_IDS];
};

void tok_bpe_run_init(struct tok_bpe_run *run, size_t text_bytes) {
    size_t n = 16;
    *run = (struct tok_bpe_run){0};
    if (text_bytes < CACHE_TEXT_BYTES_MIN) return;
    while (n < text_bytes / 16 && n < CACHE_SLOTS_MAX) n *= 2;
    run->cache = calloc(n, sizeof *run->cache);
    run->cache_mask = (uint32_t)(n - 1);
}

void tok_bpe_run_fini(struct tok_bpe_run *run) {
    free(run->cache);
    free(run->id);
    free(run->rank);
    free(run->joined);
    free(run->prev);
    free(run->next);
    free(run->heap);
    *run = (struct tok_bpe_run){0};
}

static bool grow_u32(uint32_t **p, size_t cap) {
    uint32_t *q = realloc(*p, cap * sizeof *q);
    if (q == NULL) return false;
    *p = q;
    return true;
}

static bool reserve_ids(struct tok_bpe_run *run, size_t n) {
    size_t cap = run->cap ? run->cap : 128;
    if (n <= run->cap) return true;
    while (cap < n) cap *= 2;
    if (!grow_u32(&run->id, cap) || !grow_u32(&run->rank, cap) || !grow_u32(&run->joined, cap) ||
        !grow_u32(&run->prev, cap) || !grow_u32(&run->next, cap)) {
        return false;
    }
    run->cap = cap;
    return true;
}

/* ---- the symbols a word starts as */

struct symbols {
    uint32_t *id;
    size_t n;
    bool unk; /* an unknown token waits to be appended, so that it can take up the next unknown */
};

/* A character without token: its bytes' tokens when all exist, else the unknown token, else
 * nothing. The order is the HuggingFace library's: a waiting unknown goes behind such bytes. */
static void add_missing(const struct tok_bpe *b, const char *s, size_t n, struct symbols *y) {
    if (b->byte_fallback) {
        size_t k = 0;
        while (k < n && b->fallback_id[(unsigned char)s[k]] >= 0) k++;
        if (k == n) {
            for (k = 0; k < n; k++) y->id[y->n++] = (uint32_t)b->fallback_id[(unsigned char)s[k]];
            return;
        }
    }
    if (b->unk_id < 0) return;
    if (y->unk && !b->fuse_unk) y->id[y->n++] = (uint32_t)b->unk_id;
    y->unk = true;
}

/* At most 2 n + 1 symbols: a byte's character has up to two bytes that may fall back. */
static size_t word_symbols(const struct tok_bpe *b, const char *s, size_t n, uint32_t *id) {
    struct symbols y = {.id = id};
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = 1;
        int32_t found = b->byte_id[c];
        if (!b->byte_level && c >= 0x80) {
            len = tok_utf8_len(s[i]);
            found = tok_vocab_find(b->vocab, s + i, len, TOK_IN_MODEL);
        }
        if (found >= 0) {
            if (y.unk) y.id[y.n++] = (uint32_t)b->unk_id;
            y.unk = false;
            y.id[y.n++] = (uint32_t)found;
        } else if (b->byte_level) {
            char mapped[4];
            add_missing(b, mapped, tok_utf8_put(mapped, tok_byte_to_char(c)), &y);
        } else {
            add_missing(b, s + i, len, &y);
        }
        i += len;
    }
    if (y.unk) y.id[y.n++] = (uint32_t)b->unk_id;
    return y.n;
}

/* ---- joining */

/* Looks up the pair at i: its rank and what it becomes. */
static inline void rank_pair(const struct tok_bpe *b, struct tok_bpe_run *run, size_t i,
                             size_t right) {
    const struct tok_merge *m = tok_merge_find(b, run->id[i], run->id[right]);
    run->rank[i] = m != NULL ? m->rank : RANK_NONE;
    if (m != NULL) run->joined[i] = m->joined;
}

/* n of at least 1; the result lies at the front of run->id. */
static size_t join_scan(const struct tok_bpe *b, struct tok_bpe_run *run, size_t n) {
    for (size_t i = 0; i + 1 < n; i++) rank_pair(b, run, i, i + 1);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (run->rank[i] < run->rank[best]) best = i;
        }
        if (run->rank[best] == RANK_NONE) break;
        run->id[best] = run->joined[best];
        n--;
        memmove(run->id + best + 1, run->id + best + 2, (n - best - 1) * sizeof *run->id);
        memmove(run->rank + best, run->rank + best + 1, (n - best) * sizeof *run->rank);
        memmove(run->joined + best, run->joined + best + 1, (n - best) * sizeof *run->joined);
        if (best + 1 < n) rank_pair(b, run, best, best + 1);
        if (best > 0) rank_pair(b, run, best - 1, best);
    }
    return n;
}

/* A binary heap of rank << 32 | position. An entry whose pair has since changed its rank is stale
 * and skipped when it comes up; a pair that got a new rank was pushed anew. */
static void sift_down(uint64_t *h, size_t n, size_t i) {
    uint64_t x = h[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && h[c + 1] < h[c]) c++;
        if (h[c] >= x) break;
        h[i] = h[c];
    }
    h[i] = x;
}

static void heap_push(uint64_t *h, size_t *n, uint64_t x) {
    size_t i = (*n)++;
    for (; i > 0 && h[(i - 1) / 2] > x; i = (i - 1) / 2) h[i] = h[(i - 1) / 2];
    h[i] = x;
}

static uint64_t heap_entry(const struct tok_bpe_run *run, size_t i) {
    return (uint64_t)run->rank[i] << 32 | (uint32_t)i;
}

/* Each join takes one entry and adds at most two, and n - 1 are there at first: 2 n is room enough,
 * as a join needs an entry popped before it pushes. */
static bool join_heap(const struct tok_bpe *b, struct tok_bpe_run *run, size_t *n_symbols) {
    size_t n = *n_symbols, n_heap = 0, out = 0;
    if (run->heap_cap < 2 * n) {
        uint64_t *h = realloc(run->heap, 2 * n * sizeof *h);
        if (h == NULL) return false;
        run->heap = h;
        run->heap_cap = 2 * n;
    }
    for (size_t i = 0; i < n; i++) {
        run->prev[i] = i > 0 ? (uint32_t)(i - 1) : END;
        run->next[i] = i + 1 < n ? (uint32_t)(i + 1) : END;
        run->rank[i] = RANK_NONE;
        if (i + 1 < n) rank_pair(b, run, i, i + 1);
        if (run->rank[i] != RANK_NONE) run->heap[n_heap++] = heap_entry(run, i);
    }
    for (size_t i = n_heap / 2; i-- > 0;) sift_down(run->heap, n_heap, i);
    while (n_heap > 0) {
        uint64_t top = run->heap[0];
        uint32_t i = (uint32_t)top, gone;
        run->heap[0] = run->heap[--n_heap];
        if (n_heap > 0) sift_down(run->heap, n_heap, 0);
        if (run->rank[i] != top >> 32) continue;
        gone = run->next[i];
        run->id[i] = run->joined[i];
        run->rank[gone] = RANK_NONE; /* its entries are stale from here on */
        run->next[i] = run->next[gone];
        run->rank[i] = RANK_NONE;
        if (run->next[i] != END) {
            run->prev[run->next[i]] = i;
            rank_pair(b, run, i, run->next[i]);
            if (run->rank[i] != RANK_NONE) heap_push(run->heap, &n_heap, heap_entry(run, i));
        }
        if (run->prev[i] != END) {
            uint32_t p = run->prev[i];
            rank_pair(b, run, p, i);
            if (run->rank[p] != RANK_NONE) heap_push(run->heap, &n_heap, heap_entry(run, p));
        }
    }
    for (uint32_t i = 0; i != END; i = run->next[i]) run->id[out++] = run->id[i];
    *n_symbols = out;
    return true;
}

/* ---- words */

static enum err put_ids(struct id_list *out, const uint32_t *id, size_t n, size_t n_ids_max) {
    for (size_t i = 0; i < n; i++) {
        enum err e;
        if (out->n >= n_ids_max) return ERR_TOO_LARGE;
        if ((e = id_list_push(out, (int32_t)id[i])) != ERR_OK) return e;
    }
    return ERR_OK;
}

/* The word as a whole in the vocabulary, -1 when it is not. */
static int32_t whole_word(const struct tok_bpe *b, const char *s, size_t n) {
    char written[2 * TOK_TOKEN_BYTES_MAX];
    size_t k = 0;
    if (n > TOK_TOKEN_BYTES_MAX) return -1;
    if (!b->byte_level) return tok_vocab_find(b->vocab, s, n, TOK_IN_MODEL);
    for (size_t i = 0; i < n; i++) {
        k += tok_utf8_put(written + k, tok_byte_to_char((unsigned char)s[i]));
    }
    return tok_vocab_find(b->vocab, written, k, TOK_IN_MODEL);
}

static enum err merge_word(const struct tok_bpe *b, struct tok_bpe_run *run, const char *s,
                           size_t n, size_t *n_ids) {
    int32_t whole = b->ignore_merges ? whole_word(b, s, n) : -1;
    if (n > UINT32_MAX / 4) return ERR_TOO_LARGE;
    if (!reserve_ids(run, 2 * n + 1)) return ERR_NO_MEMORY;
    if (whole >= 0) {
        run->id[0] = (uint32_t)whole;
        *n_ids = 1;
        return ERR_OK;
    }
    *n_ids = word_symbols(b, s, n, run->id);
    if (*n_ids <= SCAN_SYMBOLS_MAX) {
        if (*n_ids > 1) *n_ids = join_scan(b, run, *n_ids);
        return ERR_OK;
    }
    return join_heap(b, run, n_ids) ? ERR_OK : ERR_NO_MEMORY;
}

static enum err cached_word(const struct tok_bpe *b, struct tok_bpe_run *run, const char *s,
                            size_t n, size_t n_ids_max, struct id_list *out) {
    struct tok_word *w = NULL;
    size_t n_ids;
    enum err e;
    if (run->cache != NULL && n <= CACHE_WORD_BYTES) {
        w = &run->cache[tok_hash(s, n) & run->cache_mask];
        if (w->n_bytes == n && memcmp(w->s, s, n) == 0) {
            return put_ids(out, (const uint32_t *)w->id, w->n_ids, n_ids_max);
        }
    }
    if ((e = merge_word(b, run, s, n, &n_ids)) != ERR_OK) return e;
    if (w != NULL && n_ids <= CACHE_WORD_IDS) {
        w->n_bytes = (uint8_t)n;
        w->n_ids = (uint8_t)n_ids;
        memcpy(w->s, s, n);
        memcpy(w->id, run->id, n_ids * sizeof *w->id);
    }
    return put_ids(out, run->id, n_ids, n_ids_max);
}

/* Where s can be cut in two without changing its ids: before the first U+2581 that follows another
 * character; n when nowhere. */
static size_t metaspace_cut(const char *s, size_t n) {
    size_t from = 0;
    while (from + 3 <= n && memcmp(s + from, "\xE2\x96\x81", 3) == 0) from += 3;
    if (from < n) {
        const char *hit = tok_find_bytes(s + from, n - from, "\xE2\x96\x81", 3);
        if (hit != NULL) return (size_t)(hit - s);
    }
    return n;
}

enum err tok_bpe_word(const struct tok_bpe *b, struct tok_bpe_run *run, const char *s, size_t n,
                      size_t n_ids_max, struct id_list *out) {
    enum err e = ERR_OK;
    while (n > 0 && e == ERR_OK) {
        size_t cut = b->cut_at_metaspace ? metaspace_cut(s, n) : n;
        e = cached_word(b, run, s, cut, n_ids_max, out);
        s += cut;
        n -= cut;
    }
    return e;
}
