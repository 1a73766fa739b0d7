/* tokenizer_gguf: the tokenizer in the metadata of a GGUF file: byte-level BPE ("gpt2") with its
 * merges and a pre-tokeniser known by name, and SentencePiece BPE ("llama"), whose pieces have
 * scores: the pair whose piece has the highest score is joined first, of equals the leftmost. So a
 * score is a rank, and every way to put a piece together from two others is a merge. The steps
 * around the model are those of the tokenizer.json of such models, and read as such. */
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/gguf.h"
#include "common/text/tok_impl.h"
#include "common/text/tok_pre_names.h"
#include "common/text/tok_utf8.h"

#define KEY(name) "tokenizer.ggml." name

enum { PIECE_BYTES_MAX = 512 }; /* of a piece that merges make: longer ones are never made */

enum piece_type { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED };

struct reading {
    const struct gguf *g;
    struct tokenizer *t;
    struct tok_at at;
    const struct gguf_pair *tokens, *types, *scores, *merges;
    bool spm;
    bool wordpiece;
    struct buf piece;          /* WordPiece: a token as tokenizer.json has it */
    const struct tok_pre *pre; /* of byte-level BPE */
    bool space_prefix;         /* SPM: a text begins with a blank */
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
    if (r->spm) {
        r->space_prefix = true;
        gguf_bool(r->g, KEY("add_space_prefix"), &r->space_prefix);
        return ERR_OK;
    }
    r->wordpiece = n == 4 && memcmp(s, "bert", 4) == 0;
    if (r->wordpiece) return ERR_OK;
    if (n != 4 || memcmp(s, "gpt2", 4) != 0)
        return err_set(r->at.eb, ERR_BAD_FILE,
                       "%s: key %s must be one of \"gpt2\" \"llama\" \"bert\", got \"%.*s\"",
                       r->at.name, KEY("model"), n < 40 ? (int)n : 40, s);
    gguf_str(r->g, KEY("pre"), &pre, &n_pre);
    r->pre = tok_pre_find(pre, n_pre);
    return r->pre != NULL ? ERR_OK
                          : err_set(r->at.eb, ERR_BAD_FILE,
                                    "%s: key %s: the pre-tokeniser \"%.*s\" is not supported",
                                    r->at.name, KEY("pre"), n_pre < 40 ? (int)n_pre : 40, pre);
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
    if (r->spm &&
        (r->scores == NULL || r->scores->n != r->tokens->n || r->scores->kind == GGUF_STRING))
        return bad(r, KEY("scores"), "must be a list of numbers, one for each token");
    if (r->wordpiece) return ERR_OK;
    if (!r->spm && (r->merges == NULL || !r->merges->is_array || r->merges->kind != GGUF_STRING))
        return bad(r, KEY("merges"), "must be a list of strings");
    if (!r->spm && r->merges->n > TOK_MERGES_MAX)
        return err_set(r->at.eb, ERR_BAD_FILE, "%s: key %s must have at most %d entries, got %llu",
                       r->at.name, KEY("merges"), TOK_MERGES_MAX, (unsigned long long)r->merges->n);
    return ERR_OK;
}

static int type_of(const struct reading *r, uint64_t id) {
    int64_t v = PIECE_NORMAL;
    if (r->types != NULL) gguf_pair_i64(r->types, id, &v);
    return (int)v;
}

/* ---- vocabulary */

/* Tokens that are found in a text before the model sees it. */
static bool is_added(int type) {
    return type == PIECE_CONTROL || type == PIECE_USER || type == PIECE_UNKNOWN;
}

static uint8_t flags_of(int type) {
    if (type == PIECE_USER) return TOK_ADDED | TOK_IN_MODEL;
    return is_added(type) ? TOK_ADDED | TOK_SPECIAL : TOK_IN_MODEL;
}

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
    for (uint64_t id = 0; id < r->tokens->n; id++) n_added += is_added(type_of(r, id));
    if (n_added > TOK_ADDED_MAX)
        return err_set(r->at.eb, ERR_BAD_FILE,
                       "%s: at most %d tokens may be no normal ones, got %zu", r->at.name,
                       TOK_ADDED_MAX, n_added);
    if ((added->token = calloc(n_added + 1, sizeof(*added->token))) == NULL) return ERR_NO_MEMORY;
    enum err e = tok_vocab_init(&r->t->vocab, (uint32_t)r->tokens->n, (uint32_t)r->tokens->n);
    while (e == ERR_OK && gguf_next_str(r->tokens, &at, &s, &n)) {
        const uint32_t id = (uint32_t)(at.idx - 1);
        const int type = type_of(r, id);
        if (n > TOK_TOKEN_BYTES_MAX)
            return err_set(r->at.eb, ERR_BAD_FILE, "%s: token %u has %zu bytes, at most %d",
                           r->at.name, id, n, TOK_TOKEN_BYTES_MAX);
        if (r->wordpiece) wordpiece_of(r, &s, &n);
        if (r->piece.failed) return ERR_NO_MEMORY;
        /* Empty places and texts that are there already cannot be written, only decoded. */
        const bool again = tok_vocab_find(&r->t->vocab, s, n, 0xff) >= 0;
        e = tok_vocab_add(&r->t->vocab, id, again ? "" : s, again ? 0 : n, flags_of(type));
        if (again || n == 0 || !is_added(type)) continue;
        added_bytes += n;
        if (added_bytes > TOK_ADDED_BYTES_MAX)
            return err_set(r->at.eb, ERR_BAD_FILE,
                           "%s: all tokens that are no normal ones must have at most %d bytes",
                           r->at.name, TOK_ADDED_BYTES_MAX);
        added->token[added->n_tokens++] = (struct tok_added_token){
            .s = s, .n = n, .id = (int32_t)id, .special = type != PIECE_USER};
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

/* ---- scores of SentencePiece as ranks */
struct scored {
    double score;
    uint32_t id;
};

static int best_first(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    return x->score != y->score ? (x->score > y->score ? -1 : 1)
                                : (x->id < y->id ? -1 : x->id > y->id);
}

/* Calls for every way to cut piece id in two pieces; b NULL: counts only. */
static size_t cut_piece(const struct tok_vocab *v, struct tok_bpe *b, uint32_t id, uint32_t rank) {
    size_t n, count = 0;
    const char *s = tok_vocab_text(v, id, &n);
    if (n < 2 || n > PIECE_BYTES_MAX) return 0;
    for (size_t i = tok_utf8_len(s[0]); i < n; i += tok_utf8_len(s[i])) {
        const int32_t l = tok_vocab_find(v, s, i, TOK_IN_MODEL),
                      r = tok_vocab_find(v, s + i, n - i, TOK_IN_MODEL);
        if (l < 0 || r < 0) continue;
        count++;
        if (b != NULL) tok_bpe_merge(b, (uint32_t)l, (uint32_t)r, rank, id);
    }
    return count;
}

static enum err rank_pieces(struct reading *r, struct tok_bpe *b) {
    const struct tok_vocab *v = &r->t->vocab;
    struct scored *list = malloc((size_t)v->n_ids * sizeof(*list));
    size_t n = 0, n_merges = 0;
    enum err e = list != NULL ? ERR_OK : ERR_NO_MEMORY;
    for (uint32_t id = 0; e == ERR_OK && id < v->n_ids; id++) {
        double score = 0;
        size_t bytes;
        const char *s = tok_vocab_text(v, id, &bytes);
        if ((v->flags[id] & TOK_IN_MODEL) == 0 || !tok_utf8_valid(s, bytes)) continue;
        if (!gguf_pair_f64(r->scores, id, &score) || isnan(score)) {
            e = err_set(r->at.eb, ERR_BAD_FILE, "%s: key %s[%u] must be a number", r->at.name,
                        KEY("scores"), id);
            break;
        }
        list[n++] = (struct scored){score, id};
        n_merges += cut_piece(v, NULL, id, 0);
    }
    if (e == ERR_OK && n_merges > TOK_MERGES_MAX)
        e = err_set(r->at.eb, ERR_BAD_FILE,
                    "%s: the pieces can be put together in %zu ways, at most %d are supported",
                    r->at.name, n_merges, TOK_MERGES_MAX);
    if (e == ERR_OK) e = tok_bpe_begin(b, n_merges);
    if (e == ERR_OK && n > 0) qsort(list, n, sizeof(*list), best_first);
    uint32_t rank = 0;
    for (size_t i = 0; e == ERR_OK && i < n; i++) {
        if (i > 0 && list[i].score != list[i - 1].score) rank++;
        cut_piece(v, b, list[i].id, rank);
    }
    free(list);
    return e;
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
    uint64_t id;
    if (r->wordpiece) return read_wordpiece(r);
    *b = (struct tok_bpe){.vocab = &r->t->vocab, .byte_level = !r->spm, .unk_id = -1};
    b->byte_fallback = r->spm;
    b->fuse_unk = r->spm;
    b->ignore_merges = !r->spm && r->pre->ignore_merges;
    if (r->spm && gguf_u64(r->g, KEY("unknown_token_id"), &id) && id < r->tokens->n)
        b->unk_id = (int32_t)id;
    return r->spm ? rank_pieces(r, b) : read_merges(r, b);
}

/* ---- the steps around it, as tokenizer.json has them */
#define METASPACE "\xE2\x96\x81"

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
    static const char prepend[] = "{\"type\":\"Prepend\",\"prepend\":\"" METASPACE "\"},",
                      strip[] = ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}";
    if (r->wordpiece) {
        buf_puts(b, "{\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true},"
                    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
                    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}");
        return;
    }
    if (!r->spm) {
        buf_puts(b, "{\"normalizer\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
                    "\"pre_tokenizer\":");
        put_pre(b, r->pre);
        buf_puts(b, "}");
        return;
    }
    buf_printf(b,
               "{\"pre_tokenizer\":null,\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s{"
               "\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" METASPACE
               "\"}]},",
               r->space_prefix ? prepend : "");
    buf_printf(b,
               "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
               "{\"String\":\"" METASPACE "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
               "{\"type\":\"Fuse\"}%s]}}",
               r->space_prefix ? strip : "");
}

static struct json_value *step(const struct json_value *root, const char *key) {
    struct json_value *o = NULL;
    return json_get(root, key, &o) == JSON_OK ? o : NULL;
}

static enum err read_steps(struct reading *r) {
    const struct json_limits lim = {.depth_max = 24};
    struct json_value *root = NULL;
    struct buf text = BUF_INIT;
    put_steps(&text, r);
    enum err e =
        text.failed ? ERR_NO_MEMORY : json_read(&root, text.data, text.len, &lim, r->at.eb);
    if (e == ERR_OK) e = tok_norm_read(&r->at, step(root, "normalizer"), &r->t->norm);
    if (e == ERR_OK) e = tok_pretok_read(&r->at, step(root, "pre_tokenizer"), &r->t->pretok);
    if (e == ERR_OK) e = tok_decoder_read(&r->at, step(root, "decoder"), &r->t->decoder);
    json_put(root);
    buf_free(&text);
    return e;
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
    bool bos = r->spm || r->pre->add_bos, eos = false;
    enum err e = ERR_OK;
    gguf_bool(r->g, KEY("add_bos_token"), &bos);
    gguf_bool(r->g, KEY("add_eos_token"), &eos);
    if (bos && gguf_u64(r->g, KEY("bos_token_id"), &id) && id < r->tokens->n)
        e = id_list_push(&r->t->post.before, (int32_t)id);
    if (e == ERR_OK && eos && gguf_u64(r->g, KEY("eos_token_id"), &id) && id < r->tokens->n)
        e = id_list_push(&r->t->post.after, (int32_t)id);
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

enum err tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, struct errbuf *eb) {
    struct tokenizer *t = *out = calloc(1, sizeof(*t));
    struct reading r = {.g = g, .t = t, .at = {.name = gguf_name(g), .eb = eb}};
    enum err e = t != NULL ? read_kind(&r) : ERR_NO_MEMORY;
    if (e == ERR_OK) e = find_lists(&r);
    if (e == ERR_OK) e = read_tokens(&r);
    if (e == ERR_OK) e = read_steps(&r);
    if (e == ERR_OK) e = read_model(&r);
    if (e == ERR_OK) e = read_post(&r);
    if (e == ERR_OK) e = tok_added_build(&r.at, &t->added, &t->norm);
    if (e == ERR_OK) e = tokenizer_build_bytes(t);
    if (e == ERR_OK) e = make_hash(&r);
    buf_free(&r.piece);
    if (e == ERR_NO_MEMORY) err_set(eb, e, "%s: out of memory", r.at.name);
    if (e != ERR_OK) tokenizer_free(out);
    return e;
}
