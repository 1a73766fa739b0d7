/* tok_unigram: see the header. */
#include "common/text/tok_unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/text/tok_utf8.h"

static const double UNK_PENALTY = 10;

/* The best way to the place behind s[0..i). */
struct tok_unigram_node {
    double score;
    int32_t id;    /* of its last piece; UNKNOWN: one character */
    uint32_t from; /* where that begins; NOWHERE: no way */
};
enum { UNKNOWN = -1 };
#define NOWHERE UINT32_MAX

static void find_bytes(struct tok_unigram *u) {
    char name[8];
    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof(name), "<0x%02X>", b);
        u->byte_id[b] = tok_vocab_find(u->vocab, name, 6, TOK_IN_MODEL);
    }
}

static enum err read_scores(struct tok_at *at, const struct json_value *pieces,
                            struct tok_unigram *u) {
    double worst = 0;
    for (size_t i = 0; i < json_arr_len(pieces); i++) {
        struct json_value *pair = NULL;
        double score = 0;
        if (json_as_arr(json_arr_at(pieces, i), &pair) != JSON_OK || json_arr_len(pair) != 2 ||
            json_as_f64(json_arr_at(pair, 1), &score) != JSON_OK || !isfinite(score))
            return tok_fail(at, ERR_BAD_FILE, "vocab[%zu] must be [piece, score]", i);
        u->score[i] = score;
        if (i == 0 || score < worst) worst = score;
        if (u->vocab->len[i] > u->piece_bytes_max) u->piece_bytes_max = u->vocab->len[i];
    }
    u->unk_score = worst - UNK_PENALTY;
    return ERR_OK;
}

static bool has_all_bytes(const struct tok_unigram *u) {
    for (int i = 0; i < 256; i++)
        if (u->byte_id[i] < 0) return false;
    return true;
}

enum err tok_unigram_read(struct tok_at *at, const struct json_value *o,
                          const struct tok_vocab *vocab, struct tok_unigram *out) {
    struct json_value *pieces, *v = NULL;
    int64_t unk = -1;
    enum err e = tok_need_arr(at, o, "vocab", &pieces);
    *out = (struct tok_unigram){.vocab = vocab, .unk_id = -1};
    if (e != ERR_OK) return e;
    if (json_arr_len(pieces) > vocab->n_ids) return tok_fail_at(at, "vocab", "is too long");
    if ((out->score = calloc(vocab->n_ids, sizeof(*out->score))) == NULL) return ERR_NO_MEMORY;
    if (json_get(o, "unk_id", &v) == JSON_OK) {
        if (json_as_i64(v, &unk) != JSON_OK || unk < 0 || unk >= (int64_t)vocab->n_ids ||
            !tok_vocab_has(vocab, (int32_t)unk))
            return tok_fail_at(at, "unk_id", "must be null or an id of the vocabulary");
        out->unk_id = (int32_t)unk;
    }
    if ((e = tok_opt_bool(at, o, "byte_fallback", &out->byte_fallback)) != ERR_OK) return e;
    if ((e = read_scores(at, pieces, out)) != ERR_OK) return e;
    find_bytes(out);
    if (out->unk_id < 0 && !(out->byte_fallback && has_all_bytes(out)))
        return tok_fail_at(at, "unk_id", "is missing, and there are no 256 byte tokens instead");
    return ERR_OK;
}

enum err tok_unigram_begin(struct tok_unigram *u, const struct tok_vocab *vocab, double *score,
                           double worst, int32_t unk_id, bool byte_fallback) {
    *u = (struct tok_unigram){.vocab = vocab,
                              .score = score,
                              .unk_score = worst - UNK_PENALTY,
                              .unk_id = unk_id,
                              .byte_fallback = byte_fallback};
    for (uint32_t i = 0; i < vocab->n_ids; i++)
        if (vocab->len[i] > u->piece_bytes_max) u->piece_bytes_max = vocab->len[i];
    find_bytes(u);
    return unk_id >= 0 || (byte_fallback && has_all_bytes(u)) ? ERR_OK : ERR_BAD_FILE;
}

void tok_unigram_fini(struct tok_unigram *u) {
    free(u->score);
    *u = (struct tok_unigram){0};
}

void tok_unigram_run_fini(struct tok_unigram_run *run) {
    free(run->node);
    *run = (struct tok_unigram_run){0};
}

static void offer(struct tok_unigram_node *to, double score, int32_t id, size_t from) {
    if (to->from != NOWHERE && !(score > to->score)) return;
    *to = (struct tok_unigram_node){.score = score, .id = id, .from = (uint32_t)from};
}

static void search(const struct tok_unigram *u, struct tok_unigram_node *node, const char *s,
                   size_t n) {
    for (size_t i = 0; i <= n; i++) node[i].from = NOWHERE;
    node[0] = (struct tok_unigram_node){.from = 0};
    for (size_t at = 0; at < n; at += tok_utf8_len(s[at])) {
        const size_t one = tok_utf8_len(s[at]);
        const size_t most = n - at < u->piece_bytes_max ? n - at : u->piece_bytes_max;
        bool single = false;
        for (size_t len = one; len <= most; len += tok_utf8_len(s[at + len])) {
            const int32_t id = tok_vocab_find(u->vocab, s + at, len, TOK_IN_MODEL);
            if (id >= 0) {
                offer(&node[at + len], node[at].score + u->score[id], id, at);
                single = single || len == one;
            }
            if (at + len >= n) break;
        }
        if (!single) offer(&node[at + one], node[at].score + u->unk_score, UNKNOWN, at);
    }
}

static enum err put(struct id_list *out, int32_t id, size_t n_ids_max) {
    return out->n < n_ids_max ? id_list_push(out, id) : ERR_TOO_LARGE;
}

/* Unknown characters in a row. */
static enum err put_unknown(const struct tok_unigram *u, const char *s, size_t n, size_t n_ids_max,
                            struct id_list *out) {
    bool bytes = u->byte_fallback;
    enum err e = ERR_OK;
    for (size_t i = 0; i < n && bytes; i++) bytes = u->byte_id[(unsigned char)s[i]] >= 0;
    if (!bytes) return put(out, u->unk_id, n_ids_max);
    for (size_t i = 0; i < n && e == ERR_OK; i++)
        e = put(out, u->byte_id[(unsigned char)s[i]], n_ids_max);
    return e;
}

/* From the end back to the start, turning the way round: a place on it then has the piece that
 * begins there, and as `from` where it ends. */
static void turn(struct tok_unigram_node *node, size_t n) {
    size_t at = n, from = node[n].from;
    int32_t id = node[n].id;
    for (;;) {
        const struct tok_unigram_node before = node[from];
        node[from].id = id;
        node[from].from = (uint32_t)at;
        if (from == 0) return;
        at = from;
        from = before.from;
        id = before.id;
    }
}

enum err tok_unigram_word(const struct tok_unigram *u, struct tok_unigram_run *run, const char *s,
                          size_t n, size_t n_ids_max, struct id_list *out) {
    if (n == 0) return ERR_OK;
    if (n >= NOWHERE) return ERR_TOO_LARGE;
    if (run->cap < n + 1) {
        struct tok_unigram_node *grown = realloc(run->node, (n + 1) * 2 * sizeof(*grown));
        if (grown == NULL) return ERR_NO_MEMORY;
        run->node = grown;
        run->cap = (n + 1) * 2;
    }
    struct tok_unigram_node *node = run->node;
    search(u, node, s, n);
    turn(node, n);
    enum err e = ERR_OK;
    for (size_t at = 0, end; at < n && e == ERR_OK; at = end) {
        end = node[at].from;
        if (node[at].id != UNKNOWN) {
            e = put(out, node[at].id, n_ids_max);
            continue;
        }
        while (end < n && node[end].id == UNKNOWN) end = node[end].from;
        e = put_unknown(u, s + at, end - at, n_ids_max, out);
    }
    return e;
}
