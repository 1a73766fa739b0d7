/* tokenizer_gguf: the tokenizer in the metadata of a GGUF file: byte-level BPE ("gpt2") with its
 * merges and a pre-tokeniser known by name, SentencePiece's pieces (tok_pieces.h) as BPE ("llama")
 * or Unigram ("t5"), and WordPiece ("bert"). The steps around the model are those of the
 * tokenizer.json of such models, and read as such. */
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/gguf.h"
#include "common/text/tok_impl.h"
#include "common/text/tok_pieces.h"
#include "common/text/tok_pre_names.h"

#define KEY(name) "tokenizer.ggml." name

struct reading {
    const struct gguf *g;
    struct tokenizer *t;
    struct tok_at at;
    const struct gguf_pair *tokens, *types, *scores, *merges;
    bool spm, unigram, wordpiece;
    struct buf piece;          /* WordPiece: a token as tokenizer.json has it */
    const struct tok_pre *pre; /* of byte-level BPE */
};

static enum err bad(struct reading *r, const char *key, const char *rule) {
    return err_set(r->at.eb, ERR_BAD_FILE, "%s: key %s %s", r->at.name, key, rule);
}

/* ---- which kind */
static enum err read_kind(struct reading *r) {
    const char *s = "", *pre = "";
    size_t n = 0, n_pre = 0;
    if (!gguf_str(r->g, KEY("model"), &s, &n)) return bad(r, KEY("model"), "is missing");
    r->spm = n == 5 && memcmp(s, "llama", 5) == 0;
    r->unigram = n == 2 && memcmp(s, "t5", 2) == 0;
    r->wordpiece = n == 4 && memcmp(s, "bert", 4) == 0;
    if (r->spm || r->unigram || r->wordpiece) return ERR_OK;
    if (n != 4 || memcmp(s, "gpt2", 4) != 0)
        return err_set(r->at.eb, ERR_BAD_FILE,
                       "%s: key %s must be one of \"gpt2\" \"llama\" \"t5\" \"bert\", got \"%.*s\"",
                       r->at.name, KEY("model"), n < 40 ? (int)n : 40, s);
    gguf_str(r->g, KEY("pre"), &pre, &n_pre);
    r->pre = tok_pre_find(pre, n_pre);
    if (r->pre != NULL) return ERR_OK;
    n = n_pre;
    s = tok_pre_nearest(pre, &n);
    return err_set(
        r->at.eb, ERR_BAD_FILE,
        "%s: key %s: the pre-tokeniser \"%.*s\" is not supported, the nearest is \"%.*s\"",
        r->at.name, KEY("pre"), n_pre < 40 ? (int)n_pre : 40, pre, (int)n, s);
}

static enum err find_lists(struct reading *r) {
    r->tokens = gguf_find(r->g, KEY("tokens"));
    r->types = gguf_find(r->g, KEY("token_type"));
    r->scores = gguf_find(r->g, KEY("scores"));
    r->merges = gguf_find(r->g, KEY("merges"));
    if (r->tokens == NULL || !r->tokens->is_array || r->tokens->kind != GGUF_STRING)
        return bad(r, KEY("tokens"), "must be a list of strings");
    if (r->tokens->n == 0 || r->tokens->n > TOK_IDS_MAX)
        return err_set(r->at.eb, ERR_BAD_FILE, "%s: key %s must have 1 to %d entries, got %llu",
                       r->at.name, KEY("tokens"), TOK_IDS_MAX, (unsigned long long)r->tokens->n);
    if (r->types != NULL && (r->types->n != r->tokens->n || r->types->kind == GGUF_STRING))
        return bad(r, KEY("token_type"), "must be a list of numbers, one for each token");
    const bool pieces = r->spm || r->unigram;
    if (pieces &&
        (r->scores == NULL || r->scores->n != r->tokens->n || r->scores->kind == GGUF_STRING))
        return bad(r, KEY("scores"), "must be a list of numbers, one for each token");
    if (r->wordpiece || pieces) return ERR_OK;
    if (r->merges == NULL || !r->merges->is_array || r->merges->kind != GGUF_STRING)
        return bad(r, KEY("merges"), "must be a list of strings");
    if (r->merges->n > TOK_MERGES_MAX)
        return err_set(r->at.eb, ERR_BAD_FILE, "%s: key %s must have at most %d entries, got %llu",
                       r->at.name, KEY("merges"), TOK_MERGES_MAX, (unsigned long long)r->merges->n);
    return ERR_OK;
}

static int type_of(const struct reading *r, uint64_t id) {
    int64_t v = TOK_PIECE_NORMAL;
    if (r->types != NULL) gguf_pair_i64(r->types, id, &v);
    return (int)v;
}

/* ---- vocabulary */

/* GGUF marks the beginning of a word (U+2581) where tokenizer.json marks its going on; "[X]" stands
 * for itself in both. */
static void wordpiece_of(struct reading *r, const char **s, size_t *n) {
    static const char begin[] = "\xE2\x96\x81";
    if (*n >= 2 && (*s)[0] == '[' && (*s)[*n - 1] == ']') return;
    if (*n >= 3 && memcmp(*s, begin, 3) == 0) {
        *s += 3;
        *n -= 3;
        return;
    }
    buf_clear(&r->piece);
    buf_puts(&r->piece, "##");
    buf_append(&r->piece, *s, *n);
    *s = r->piece.data;
    *n = r->piece.len;
}

static enum err read_tokens(struct reading *r) {
    struct gguf_cursor at = {0};
    struct tok_added *added = &r->t->added;
    const char *s;
    size_t n, n_added = 0, added_bytes = 0;
    for (uint64_t id = 0; id < r->tokens->n; id++) n_added += tok_piece_is_added(type_of(r, id));
    if (n_added > TOK_ADDED_MAX)
        return err_set(r->at.eb, ERR_BAD_FILE,
                       "%s: at most %d tokens may be no normal ones, got %zu", r->at.name,
                       TOK_ADDED_MAX, n_added);
    if ((added->token = calloc(n_added + 1, sizeof(*added->token))) == NULL) return ERR_NO_MEMORY;
    enum err e = tok_vocab_init(&r->t->vocab, (uint32_t)r->tokens->n, (uint32_t)r->tokens->n);
    while (e == ERR_OK && gguf_next_str(r->tokens, &at, &s, &n)) {
        const uint32_t id = (uint32_t)(at.idx - 1);
        if (r->wordpiece && n <= TOK_TOKEN_BYTES_MAX) wordpiece_of(r, &s, &n);
        if (r->piece.failed) return ERR_NO_MEMORY;
        e = tok_piece_add(&r->at, r->t, id, s, n, type_of(r, id), &added_bytes);
    }
    return e;
}

/* ---- merges of byte-level BPE: "left right", cut at the first blank that is not the first byte */
static enum err read_merges(struct reading *r, struct tok_bpe *b) {
    struct gguf_cursor at = {0};
    const char *s;
    size_t n;
    enum err e = tok_bpe_begin(b, (size_t)r->merges->n);
    if (e != ERR_OK) return e;
    while (gguf_next_str(r->merges, &at, &s, &n)) {
        char joined[2 * TOK_TOKEN_BYTES_MAX];
        const char *gap = n > 2 ? memchr(s + 1, ' ', n - 1) : NULL;
        if (gap == NULL || n > sizeof(joined))
            return err_set(r->at.eb, ERR_BAD_FILE,
                           "%s: key %s[%llu] must be two tokens with a blank between", r->at.name,
                           KEY("merges"), (unsigned long long)at.idx - 1);
        const size_t left = (size_t)(gap - s), right = n - left - 1;
        memcpy(joined, s, left);
        memcpy(joined + left, gap + 1, right);
        const int32_t l = tok_vocab_find(b->vocab, s, left, TOK_IN_MODEL),
                      rt = tok_vocab_find(b->vocab, gap + 1, right, TOK_IN_MODEL),
                      j = tok_vocab_find(b->vocab, joined, left + right, TOK_IN_MODEL);
        if (l >= 0 && rt >= 0 && j >= 0) /* else it can never be used */
            tok_bpe_merge(b, (uint32_t)l, (uint32_t)rt, (uint32_t)at.idx, (uint32_t)j);
    }
    return ERR_OK;
}

static enum err read_wordpiece(struct reading *r) {
    struct tokenizer *t = r->t;
    uint64_t id = 0;
    if (!gguf_u64(r->g, KEY("unknown_token_id"), &id) || id >= r->tokens->n)
        return bad(r, KEY("unknown_token_id"), "must be an id of the vocabulary");
    t->model = TOK_WORDPIECE;
    tok_wordpiece_init(&t->wordpiece, &t->vocab, (int32_t)id);
    return ERR_OK;
}

static enum err read_model(struct reading *r) {
    struct tok_bpe *b = &r->t->bpe;
    if (r->wordpiece) return read_wordpiece(r);
    *b = (struct tok_bpe){.vocab = &r->t->vocab,
                          .byte_level = true,
                          .ignore_merges = r->pre->ignore_merges,
                          .unk_id = -1};
    return read_merges(r, b);
}

/* ---- the steps around it, as tokenizer.json has them */
static void put_pre(struct buf *b, const struct tok_pre *pre) {
    buf_puts(b, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (const char *const *p = pre->patterns; *p != NULL; p++) {
        buf_puts(b, "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{"
                    "\"Regex\":");
        buf_json_str(b, *p, strlen(*p));
        buf_puts(b, "}},");
    }
    buf_puts(b, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}");
}

static void put_steps(struct buf *b, const struct reading *r) {
    if (r->wordpiece) {
        buf_puts(b, "{\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true},"
                    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
                    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}");
        return;
    }
    buf_puts(b, "{\"normalizer\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
                "\"pre_tokenizer\":");
    put_pre(b, r->pre);
    buf_puts(b, "}");
}

static enum err read_steps(struct reading *r) {
    struct buf text = BUF_INIT;
    put_steps(&text, r);
    enum err e = tok_read_steps(&r->at, r->t, &text);
    buf_free(&text);
    return e;
}

/* The id behind `key`, where the flag says so; -1: none. */
static int32_t id_if(const struct reading *r, const char *flag, bool absent, const char *key) {
    uint64_t id;
    gguf_bool(r->g, flag, &absent);
    return absent && gguf_u64(r->g, key, &id) && id < r->tokens->n ? (int32_t)id : -1;
}

/* Beginning and end of a text. */
static enum err read_post(struct reading *r) {
    uint64_t id, sep;
    if (r->wordpiece) {
        if (!gguf_u64(r->g, KEY("cls_token_id"), &id) && !gguf_u64(r->g, KEY("bos_token_id"), &id))
            return bad(r, KEY("cls_token_id"), "is missing");
        if (!gguf_u64(r->g, KEY("seperator_token_id"), &sep))
            return bad(r, KEY("seperator_token_id"), "is missing");
        if (id >= r->tokens->n || sep >= r->tokens->n)
            return bad(r, KEY("seperator_token_id"), "must be an id of the vocabulary");
        return tok_post_bert(&r->t->post, (int32_t)id, (int32_t)sep, false);
    }
    enum err e = ERR_OK;
    const int32_t bos = id_if(r, KEY("add_bos_token"), r->pre->add_bos, KEY("bos_token_id")),
                  eos = id_if(r, KEY("add_eos_token"), false, KEY("eos_token_id"));
    if (bos >= 0) e = id_list_push(&r->t->post.before, bos);
    if (e == ERR_OK && eos >= 0) e = id_list_push(&r->t->post.after, eos);
    return e;
}

/* ---- SentencePiece's pieces */
static enum err read_piece_list(struct reading *r, struct tok_piece *piece) {
    struct gguf_cursor at = {0};
    const char *s;
    size_t n;
    while (gguf_next_str(r->tokens, &at, &s, &n)) {
        const uint64_t id = at.idx - 1;
        piece[id] = (struct tok_piece){.s = s, .n = n, .type = type_of(r, id)};
        if (!gguf_pair_f64(r->scores, id, &piece[id].score) || isnan(piece[id].score))
            return err_set(r->at.eb, ERR_BAD_FILE, "%s: key %s[%llu] must be a number", r->at.name,
                           KEY("scores"), (unsigned long long)id);
    }
    return ERR_OK;
}

static enum err read_pieces(struct reading *r) {
    const struct gguf_pair *map = gguf_find(r->g, KEY("precompiled_charsmap"));
    struct tok_piece *piece = calloc((size_t)r->tokens->n, sizeof(*piece));
    struct tok_pieces p = {.piece = piece,
                           .n = (size_t)r->tokens->n,
                           .unigram = r->unigram,
                           .byte_fallback = true,
                           .unk_id = r->unigram ? 2 : -1,
                           .space_prefix = !r->unigram};
    uint64_t id;
    if (piece == NULL) return ERR_NO_MEMORY;
    gguf_bool(r->g, KEY("add_space_prefix"), &p.space_prefix);
    if (r->unigram) gguf_bool(r->g, KEY("remove_extra_whitespaces"), &p.squeeze);
    if (r->unigram && map != NULL && map->is_array &&
        (map->kind == GGUF_U8 || map->kind == GGUF_I8)) {
        p.charsmap = map->value;
        p.charsmap_bytes = (size_t)map->n;
    }
    if (gguf_u64(r->g, KEY("unknown_token_id"), &id)) p.unk_id = (int32_t)id;
    if (p.unk_id < 0 || (size_t)p.unk_id >= p.n) p.unk_id = -1;
    p.before = id_if(r, KEY("add_bos_token"), !r->unigram, KEY("bos_token_id"));
    p.after = id_if(r, KEY("add_eos_token"), r->unigram, KEY("eos_token_id"));
    enum err e = read_piece_list(r, piece);
    if (e == ERR_OK) e = tok_pieces_build(&r->at, &p, r->t);
    free(piece);
    return e;
}

/* ---- the hash: all that the tokenizer is made of */
static bool hash_pair(EVP_MD_CTX *ctx, const struct gguf *g, const char *key) {
    const struct gguf_pair *p = gguf_find(g, key);
    struct gguf_cursor at = {0};
    const char *s;
    size_t n;
    double v;
    bool ok = EVP_DigestUpdate(ctx, key, strlen(key) + 1) == 1;
    while (ok && p != NULL && gguf_next_str(p, &at, &s, &n))
        ok = EVP_DigestUpdate(ctx, &n, sizeof(n)) == 1 && EVP_DigestUpdate(ctx, s, n) == 1;
    for (uint64_t i = 0; ok && p != NULL && p->kind != GGUF_STRING && i < p->n; i++) {
        if (p->kind == GGUF_BOOL)
            v = p->value[i];
        else if (!gguf_pair_f64(p, i, &v))
            v = 0;
        ok = EVP_DigestUpdate(ctx, &v, sizeof(v)) == 1;
    }
    return ok;
}

static enum err make_hash(struct reading *r) {
    static const char *const keys[] = {KEY("model"),
                                       KEY("pre"),
                                       KEY("tokens"),
                                       KEY("token_type"),
                                       KEY("scores"),
                                       KEY("merges"),
                                       KEY("bos_token_id"),
                                       KEY("eos_token_id"),
                                       KEY("add_bos_token"),
                                       KEY("add_eos_token"),
                                       KEY("add_space_prefix"),
                                       KEY("remove_extra_whitespaces"),
                                       KEY("precompiled_charsmap"),
                                       KEY("unknown_token_id"),
                                       KEY("cls_token_id"),
                                       KEY("seperator_token_id")};
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; ok && i < sizeof(keys) / sizeof(keys[0]); i++)
        ok = hash_pair(ctx, r->g, keys[i]);
    ok = ok && EVP_DigestFinal_ex(ctx, r->t->hash, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    return ok ? ERR_OK : err_set(r->at.eb, ERR_NO_MEMORY, "no memory for its SHA-256");
}

/* Byte-level BPE and WordPiece. */
static enum err read_words(struct reading *r) {
    struct tokenizer *t = r->t;
    enum err e = read_tokens(r);
    if (e == ERR_OK) e = read_steps(r);
    if (e == ERR_OK) e = read_model(r);
    if (e == ERR_OK) e = read_post(r);
    if (e == ERR_OK) e = tok_added_build(&r->at, &t->added, &t->norm);
    return e == ERR_OK ? tokenizer_build_bytes(t) : e;
}

enum err tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, struct errbuf *eb) {
    struct tokenizer *t = *out = calloc(1, sizeof(*t));
    struct reading r = {.g = g, .t = t, .at = {.name = gguf_name(g), .eb = eb}};
    enum err e = t != NULL ? read_kind(&r) : ERR_NO_MEMORY;
    if (e == ERR_OK) e = find_lists(&r);
    if (e == ERR_OK) e = r.spm || r.unigram ? read_pieces(&r) : read_words(&r);
    if (e == ERR_OK) e = make_hash(&r);
    buf_free(&r.piece);
    if (e == ERR_NO_MEMORY) err_set(eb, e, "%s: out of memory", r.at.name);
    if (e != ERR_OK) tokenizer_free(out);
    return e;
}
