/* tok_pieces: see the header. */
#include "common/text/tok_pieces.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include "common/text/tok_utf8.h"

enum { PIECE_BYTES_MAX = 512 }; /* of a piece that merges make: longer ones are never made */
#define METASPACE "\xE2\x96\x81"

/* ---- vocabulary */

bool tok_piece_is_added(int type) {
    return type == TOK_PIECE_CONTROL || type == TOK_PIECE_USER || type == TOK_PIECE_UNKNOWN;
}

static uint8_t flags_of(int type) {
    if (type == TOK_PIECE_USER) return TOK_ADDED | TOK_IN_MODEL;
    return tok_piece_is_added(type) ? TOK_ADDED | TOK_SPECIAL : TOK_IN_MODEL;
}

static enum err add_token(struct tok_at *at, struct tokenizer *t, uint32_t id, const char *s,
                          size_t n, int type, uint8_t flags, size_t *added_bytes) {
    if (n > TOK_TOKEN_BYTES_MAX)
        return err_set(at->eb, ERR_BAD_FILE, "%s: token %u has %zu bytes, at most %d", at->name, id,
                       n, TOK_TOKEN_BYTES_MAX);
    if (!tok_utf8_valid(s, n))
        return err_set(at->eb, ERR_BAD_FILE, "%s: token %u is not UTF-8", at->name, id);
    /* Empty places and texts that are there already cannot be written, only decoded. */
    const bool again = tok_vocab_find(&t->vocab, s, n, 0xff) >= 0;
    enum err e = tok_vocab_add(&t->vocab, id, again ? "" : s, again ? 0 : n, flags);
    if (e != ERR_OK || again || n == 0 || !tok_piece_is_added(type)) return e;
    *added_bytes += n;
    if (*added_bytes > TOK_ADDED_BYTES_MAX)
        return err_set(at->eb, ERR_BAD_FILE,
                       "%s: all tokens that are no normal ones must have at most %d bytes",
                       at->name, TOK_ADDED_BYTES_MAX);
    t->added.token[t->added.n_tokens++] = (struct tok_added_token){
        .s = s, .n = n, .id = (int32_t)id, .special = type != TOK_PIECE_USER};
    return ERR_OK;
}

enum err tok_piece_add(struct tok_at *at, struct tokenizer *t, uint32_t id, const char *s, size_t n,
                       int type, size_t *added_bytes) {
    return add_token(at, t, id, s, n, type, flags_of(type), added_bytes);
}

static enum err read_tokens(struct tok_at *at, const struct tok_pieces *p, struct tokenizer *t) {
    size_t n_added = 0, added_bytes = 0;
    for (size_t i = 0; i < p->n; i++) n_added += tok_piece_is_added(p->piece[i].type);
    if (n_added > TOK_ADDED_MAX)
        return err_set(at->eb, ERR_BAD_FILE, "%s: at most %d tokens may be no normal ones, got %zu",
                       at->name, TOK_ADDED_MAX, n_added);
    if ((t->added.token = calloc(n_added + 1, sizeof(*t->added.token))) == NULL)
        return ERR_NO_MEMORY;
    enum err e = tok_vocab_init(&t->vocab, (uint32_t)p->n, (uint32_t)p->n);
    for (size_t i = 0; e == ERR_OK && i < p->n; i++) {
        const struct tok_piece *x = &p->piece[i];
        const bool skip = p->skip_unused && x->type == TOK_PIECE_UNUSED;
        e = add_token(at, t, (uint32_t)i, x->s, x->n, x->type, skip ? TOK_ADDED : flags_of(x->type),
                      &added_bytes);
    }
    return e;
}

/* ---- scores as ranks */
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

static enum err rank_pieces(struct tok_at *at, const struct tok_pieces *p, struct tokenizer *t) {
    const struct tok_vocab *v = &t->vocab;
    struct scored *list = malloc((size_t)v->n_ids * sizeof(*list));
    size_t n = 0, n_merges = 0;
    enum err e = list != NULL ? ERR_OK : ERR_NO_MEMORY;
    for (uint32_t id = 0; e == ERR_OK && id < v->n_ids; id++) {
        if ((v->flags[id] & TOK_IN_MODEL) == 0) continue;
        list[n++] = (struct scored){p->piece[id].score, id};
        n_merges += cut_piece(v, NULL, id, 0);
    }
    if (e == ERR_OK && n_merges > TOK_MERGES_MAX)
        e = err_set(at->eb, ERR_BAD_FILE,
                    "%s: the pieces can be put together in %zu ways, at most %d are supported",
                    at->name, n_merges, TOK_MERGES_MAX);
    if (e == ERR_OK) e = tok_bpe_begin(&t->bpe, n_merges);
    if (e == ERR_OK && n > 0) qsort(list, n, sizeof(*list), best_first);
    uint32_t rank = 0;
    for (size_t i = 0; e == ERR_OK && i < n; i++) {
        if (i > 0 && list[i].score != list[i - 1].score) rank++;
        cut_piece(v, &t->bpe, list[i].id, rank);
    }
    free(list);
    return e;
}

/* ---- the models */

/* Added tokens are found before; what is unknown costs ten more than the worst normal piece. */
static enum err read_unigram(struct tok_at *at, const struct tok_pieces *p, struct tokenizer *t) {
    double worst = 0, *score = calloc(p->n, sizeof(*score));
    bool any = false;
    if (score == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < p->n; i++) {
        score[i] = p->piece[i].type == TOK_PIECE_USER ? 0 : p->piece[i].score;
        if (p->piece[i].type == TOK_PIECE_NORMAL && (!any || score[i] < worst)) worst = score[i];
        any = any || p->piece[i].type == TOK_PIECE_NORMAL;
    }
    enum err e =
        tok_unigram_begin(&t->unigram, &t->vocab, score, worst, p->unk_id, p->byte_fallback);
    if (e == ERR_BAD_FILE)
        err_set(at->eb, e, "%s: there is neither an unknown piece nor 256 byte pieces", at->name);
    return e;
}

static enum err read_model(struct tok_at *at, const struct tok_pieces *p, struct tokenizer *t) {
    for (size_t i = 0; i < p->n; i++)
        if (p->unigram ? !isfinite(p->piece[i].score) : isnan(p->piece[i].score))
            return err_set(at->eb, ERR_BAD_FILE, "%s: the score of piece %zu must be a number",
                           at->name, i);
    if (p->unigram) {
        t->model = TOK_UNIGRAM;
        return read_unigram(at, p, t);
    }
    t->bpe = (struct tok_bpe){.vocab = &t->vocab,
                              .byte_fallback = p->byte_fallback,
                              .fuse_unk = true,
                              .unk_id = p->unk_id};
    return rank_pieces(at, p, t);
}

/* ---- the steps around it, as tokenizer.json has them */

static void put_charsmap(struct buf *b, const struct tok_pieces *p) {
    const size_t room = (p->charsmap_bytes + 2) / 3 * 4 + 1;
    buf_puts(b, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
    if (buf_reserve(b, b->len + room))
        b->len += (size_t)EVP_EncodeBlock((unsigned char *)b->data + b->len, p->charsmap,
                                          (int)p->charsmap_bytes);
    buf_puts(b, "\"},");
}

static void put_steps(struct buf *b, const struct tok_pieces *p) {
    buf_puts(b, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    if (p->charsmap_bytes > 0) put_charsmap(b, p);
    if (p->squeeze)
        buf_puts(b, "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},"
                    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"},");
    if (p->space_prefix && !p->prefix_once)
        buf_printf(b, "{\"type\":\"Prepend\",\"prepend\":\"%s\"},", p->no_escape ? " " : METASPACE);
    buf_printf(b,
               "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"%s\"}]},"
               "\"pre_tokenizer\":",
               p->no_escape ? " " : METASPACE);
    buf_puts(b, p->space_prefix && p->prefix_once
                    ? "{\"type\":\"Metaspace\",\"replacement\":\"" METASPACE
                      "\",\"prepend_scheme\":\"first\",\"split\":false}"
                    : "null");
    buf_printf(
        b,
        ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"" METASPACE "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"}%s]}}",
        p->space_prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
}

static struct json_value *step(const struct json_value *root, const char *key) {
    struct json_value *o = NULL;
    return json_get(root, key, &o) == JSON_OK ? o : NULL;
}

enum err tok_read_steps(struct tok_at *at, struct tokenizer *t, const struct buf *json) {
    const struct json_limits lim = {.depth_max = 24};
    struct json_value *root = NULL;
    enum err e =
        json->failed ? ERR_NO_MEMORY : json_read(&root, json->data, json->len, &lim, at->eb);
    if (e == ERR_OK) e = tok_norm_read(at, step(root, "normalizer"), &t->norm);
    if (e == ERR_OK) e = tok_pretok_read(at, step(root, "pre_tokenizer"), &t->pretok);
    if (e == ERR_OK) e = tok_decoder_read(at, step(root, "decoder"), &t->decoder);
    json_put(root);
    return e;
}

enum err tok_pieces_build(struct tok_at *at, const struct tok_pieces *p, struct tokenizer *t) {
    struct buf steps = BUF_INIT;
    enum err e = read_tokens(at, p, t);
    if (e == ERR_OK && p->charsmap_bytes > TOK_CHARSMAP_BYTES_MAX)
        e = err_set(at->eb, ERR_BAD_FILE, "%s: the normaliser must have at most %d bytes, got %zu",
                    at->name, TOK_CHARSMAP_BYTES_MAX, p->charsmap_bytes);
    if (e == ERR_OK) {
        put_steps(&steps, p);
        e = tok_read_steps(at, t, &steps);
    }
    buf_free(&steps);
    if (e == ERR_OK) e = read_model(at, p, t);
    if (e == ERR_OK && p->before >= 0) e = id_list_push(&t->post.before, p->before);
    if (e == ERR_OK && p->after >= 0) e = id_list_push(&t->post.after, p->after);
    if (e == ERR_OK) e = tok_added_build(at, &t->added, &t->norm);
    return e == ERR_OK ? tokenizer_build_bytes(t) : e;
}
