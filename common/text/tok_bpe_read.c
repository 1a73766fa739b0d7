/* tok_bpe_read: the "model" member of tokenizer.json, less its vocabulary, which is in the store
 * already. */
#include "common/text/tok_bpe.h"

#include <stdlib.h>
#include <string.h>
#include "common/text/tok_bpe_table.h"
#include "common/text/tok_utf8.h"

static const char metaspace[] = "\xE2\x96\x81";

static enum err refuse_text(struct tok_at *at, const struct json_value *o, const char *key) {
    const char *s = "";
    size_t n = 0;
    enum json_got got = json_get_str(o, key, &s, &n);
    if (got == JSON_ABSENT || got == JSON_NULL || (got == JSON_OK && n == 0)) return ERR_OK;
    return tok_fail_at(at, key, "is not supported, must be null or empty");
}

static enum err read_options(struct tok_at *at, const struct json_value *o, struct tok_bpe *b) {
    double dropout = 0;
    enum json_got got = json_get_f64(o, "dropout", &dropout);
    const char *s;
    size_t n;
    enum err e;
    if (got == JSON_WRONG_TYPE || dropout != 0) {
        return tok_fail_at(at, "dropout", "is not supported, must be null");
    }
    if ((e = refuse_text(at, o, "continuing_subword_prefix")) != ERR_OK) return e;
    if ((e = refuse_text(at, o, "end_of_word_suffix")) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "fuse_unk", &b->fuse_unk)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "byte_fallback", &b->byte_fallback)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "ignore_merges", &b->ignore_merges)) != ERR_OK) return e;
    got = json_get_str(o, "unk_token", &s, &n);
    if (got == JSON_WRONG_TYPE) return tok_fail_at(at, "unk_token", "must be a string or null");
    b->unk_id = got == JSON_OK ? tok_vocab_find(b->vocab, s, n, TOK_IN_MODEL | TOK_ADDED) : -1;
    if (got == JSON_OK && b->unk_id < 0) {
        return tok_fail_at(at, "unk_token", "is not in the vocabulary");
    }
    return ERR_OK;
}

static void find_base_tokens(struct tok_bpe *b) {
    static const char hex[] = "0123456789ABCDEF";
    for (unsigned i = 0; i < 256; i++) {
        char s[8] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>'};
        b->fallback_id[i] = tok_vocab_find(b->vocab, s, 6, TOK_IN_MODEL);
        if (b->byte_level) {
            b->byte_id[i] = tok_vocab_find(
                b->vocab, s, tok_utf8_put(s, tok_byte_to_char((unsigned char)i)), TOK_IN_MODEL);
        } else {
            s[0] = (char)i;
            b->byte_id[i] = i < 128 ? tok_vocab_find(b->vocab, s, 1, TOK_IN_MODEL) : -1;
        }
    }
}

/* Whether every character becomes at least one symbol. */
static bool drops_nothing(const struct tok_bpe *b) {
    unsigned n = 0;
    while (b->byte_fallback && n < 256 && b->fallback_id[n] >= 0) n++;
    return n == 256 || b->unk_id >= 0;
}

enum err tok_bpe_begin(struct tok_bpe *b, size_t n_merges) {
    size_t n_slots = 16;
    find_base_tokens(b);
    /* a dropped character would bring two others together that a cut keeps apart */
    b->cut_at_metaspace = !b->byte_level && !b->ignore_merges && drops_nothing(b) &&
                          tok_vocab_find(b->vocab, metaspace, 3, TOK_IN_MODEL) >= 0;
    while (n_slots < n_merges + n_merges / 2) n_slots *= 2;
    b->merge = malloc(n_slots * sizeof *b->merge);
    if (b->merge == NULL) return ERR_NO_MEMORY;
    memset(b->merge, 0xFF, n_slots * sizeof *b->merge);
    b->merge_mask = (uint32_t)(n_slots - 1);
    return ERR_OK;
}

/* The two sides of one merge, written "left right" or ["left", "right"]. */
struct sides {
    const char *s[2];
    size_t n[2];
};

static enum err read_sides(struct tok_at *at, const struct json_value *m, struct sides *out) {
    const char *s, *gap;
    size_t n;
    struct json_value *arr;
    if (json_as_str(m, &s, &n) == JSON_OK) {
        gap = memchr(s, ' ', n);
        if (gap == NULL || memchr(gap + 1, ' ', n - (size_t)(gap + 1 - s)) != NULL) {
            return tok_fail(at, ERR_BAD_FILE, "must be two tokens with one space between");
        }
        out->s[0] = s;
        out->n[0] = (size_t)(gap - s);
        out->s[1] = gap + 1;
        out->n[1] = n - out->n[0] - 1;
        return ERR_OK;
    }
    if (json_as_arr(m, &arr) != JSON_OK || json_arr_len(arr) != 2 ||
        json_as_str(json_arr_at(arr, 0), &out->s[0], &out->n[0]) != JSON_OK ||
        json_as_str(json_arr_at(arr, 1), &out->s[1], &out->n[1]) != JSON_OK) {
        return tok_fail(at, ERR_BAD_FILE, "must be \"left right\" or [\"left\", \"right\"]");
    }
    return ERR_OK;
}

void tok_bpe_merge(struct tok_bpe *b, uint32_t left, uint32_t right, uint32_t rank,
                   uint32_t joined) {
    uint64_t key = (uint64_t)left << 32 | right;
    uint32_t k = tok_merge_slot(b, key);
    size_t n[2];
    const char *l = tok_vocab_text(b->vocab, left, &n[0]),
               *r = tok_vocab_text(b->vocab, right, &n[1]);
    while (b->merge[k].key != TOK_NO_MERGE && b->merge[k].key != key) k = (k + 1) & b->merge_mask;
    b->merge[k] = (struct tok_merge){.key = key, .rank = rank, .joined = joined};
    if (n[1] >= 3 && memcmp(r, metaspace, 3) == 0 &&
        !(n[0] >= 3 && memcmp(l + n[0] - 3, metaspace, 3) == 0))
        b->cut_at_metaspace = false;
}

static enum err read_merge(struct tok_at *at, const struct json_value *m, uint32_t rank,
                           struct tok_bpe *b) {
    struct sides sd;
    char joined[2 * TOK_TOKEN_BYTES_MAX];
    int32_t id[3];
    enum err e = read_sides(at, m, &sd);
    if (e != ERR_OK) return e;
    for (int k = 0; k < 2; k++) {
        id[k] = sd.n[k] <= TOK_TOKEN_BYTES_MAX
                    ? tok_vocab_find(b->vocab, sd.s[k], sd.n[k], TOK_IN_MODEL)
                    : -1;
        if (id[k] < 0 || sd.n[k] == 0) {
            return tok_fail(at, ERR_BAD_FILE, "token %.60s is not in the vocabulary", sd.s[k]);
        }
        memcpy(joined + (k ? sd.n[0] : 0), sd.s[k], sd.n[k]);
    }
    id[2] = tok_vocab_find(b->vocab, joined, sd.n[0] + sd.n[1], TOK_IN_MODEL);
    if (id[2] < 0) {
        return tok_fail(at, ERR_BAD_FILE, "its result %.*s is not in the vocabulary",
                        (int)(sd.n[0] + sd.n[1] < 80 ? sd.n[0] + sd.n[1] : 80), joined);
    }
    tok_bpe_merge(b, (uint32_t)id[0], (uint32_t)id[1], rank, (uint32_t)id[2]);
    return ERR_OK;
}

static enum err read_merges(struct tok_at *at, const struct json_value *o, struct tok_bpe *b) {
    struct json_value *arr;
    size_t n;
    enum err e = tok_need_arr(at, o, "merges", &arr);
    if (e != ERR_OK) return e;
    n = json_arr_len(arr);
    if (n > TOK_MERGES_MAX) {
        return tok_fail_at(at, "merges", "must have at most %d entries, got %zu", TOK_MERGES_MAX,
                           n);
    }
    e = tok_bpe_begin(b, n);
    for (size_t i = 0; i < n && e == ERR_OK; i++) {
        size_t old = tok_enter(at, ".merges[%zu]", i);
        e = read_merge(at, json_arr_at(arr, i), (uint32_t)i, b);
        tok_leave(at, old);
    }
    return e;
}

enum err tok_bpe_read(struct tok_at *at, const struct json_value *o, const struct tok_vocab *vocab,
                      bool byte_level, struct tok_bpe *out) {
    enum err e;
    *out = (struct tok_bpe){.vocab = vocab, .byte_level = byte_level, .unk_id = -1};
    if ((e = read_options(at, o, out)) != ERR_OK) return e;
    return read_merges(at, o, out);
}

void tok_bpe_fini(struct tok_bpe *b) {
    free(b->merge);
    *b = (struct tok_bpe){0};
}
