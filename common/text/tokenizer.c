/* tokenizer: reads tokenizer.json into its parts and runs a text through them:
 *
 *   text -> added tokens -> normalizer -> added tokens again -> pre_tokenizer -> BPE ->
 * post_processor
 *
 * The order and the fine points are those of the HuggingFace tokenizers library, which made the
 * files. `truncation` and `padding` are settings of training batches and are ignored. */
#include "common/text/tokenizer.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/gguf.h"
#include "common/base/heap.h"
#include "common/text/tok_impl.h"
#include "common/text/tokenizer_spm.h"
#include "common/text/tok_utf8.h"

enum { TOK_PATH_BYTES = 4096, TOK_BESIDE_BYTES_MAX = 16 * 1024 * 1024 };

/* ---- ids */

void id_list_free(struct id_list *l) {
    free(l->ids);
    *l = (struct id_list){0};
}

enum err id_list_push(struct id_list *l, int32_t id) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 32;
        int32_t *p = cap <= SIZE_MAX / sizeof *p ? realloc(l->ids, cap * sizeof *p) : NULL;
        if (p == NULL) return ERR_NO_MEMORY;
        l->ids = p;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return ERR_OK;
}

/* ---- loading */

/* An id of the model's vocabulary object; checks the token with it. */
static enum err vocab_entry(struct tok_at *at, const char *key, const struct json_value *v,
                            uint32_t *id) {
    int64_t x = -1;
    if (strlen(key) > TOK_TOKEN_BYTES_MAX) {
        return tok_fail(at, ERR_BAD_FILE, "a token has more than %d bytes", TOK_TOKEN_BYTES_MAX);
    }
    if (json_as_i64(v, &x) != JSON_OK || x < 0 || x >= TOK_IDS_MAX) {
        return tok_fail(at, ERR_BAD_FILE, "the id of %.60s must be an integer from 0 to %d", key,
                        TOK_IDS_MAX - 1);
    }
    *id = (uint32_t)x;
    return ERR_OK;
}

/* The added tokens take the ids the model has for them, else those of the file. */
static enum err settle_added(struct tok_at *at, struct tokenizer *t) {
    enum err e = ERR_OK;
    for (size_t i = 0; i < t->added.n_tokens && e == ERR_OK; i++) {
        struct tok_added_token *a = &t->added.token[i];
        int32_t id = tok_vocab_find(&t->vocab, a->s, a->n, TOK_IN_MODEL | TOK_ADDED);
        uint8_t flags = (uint8_t)(TOK_ADDED | (a->special ? TOK_SPECIAL : 0));
        if (id >= 0) {
            a->id = id;
            t->vocab.flags[id] |= flags;
        } else if (t->vocab.flags[a->id] != 0) {
            e = tok_fail(at, ERR_BAD_FILE, "added_tokens[%zu]: id %d of %.60s is taken already", i,
                         a->id, a->s);
        } else {
            e = tok_vocab_add(&t->vocab, (uint32_t)a->id, a->s, a->n, flags);
        }
    }
    return e;
}

static enum err read_vocab(struct tok_at *at, struct json_value *model, struct tokenizer *t) {
    struct json_value *vocab;
    uint32_t n_ids = 0, id = 0;
    size_t n_tokens, old = tok_enter(at, "model.vocab");
    enum err e = ERR_OK;
    if (json_get_obj(model, "vocab", &vocab) != JSON_OK) {
        return tok_fail(at, ERR_BAD_FILE, "must be an object from tokens to ids");
    }
    n_tokens = json_obj_len(vocab) + t->added.n_tokens;
    if (n_tokens > TOK_IDS_MAX) {
        return tok_fail(at, ERR_BAD_FILE, "at most %d tokens are supported, got %zu", TOK_IDS_MAX,
                        n_tokens);
    }
    json_obj_foreach(vocab, key, val) {
        if ((e = vocab_entry(at, key, val, &id)) != ERR_OK) return e;
        if (id >= n_ids) n_ids = id + 1;
    }
    for (size_t i = 0; i < t->added.n_tokens; i++) {
        if ((uint32_t)t->added.token[i].id >= n_ids) n_ids = (uint32_t)t->added.token[i].id + 1;
    }
    if (n_ids == 0) return tok_fail(at, ERR_BAD_FILE, "must not be empty");
    if ((e = tok_vocab_init(&t->vocab, n_ids, (uint32_t)n_tokens)) != ERR_OK) return e;
    json_obj_foreach(vocab, key2, val2) {
        if ((e = vocab_entry(at, key2, val2, &id)) != ERR_OK) return e;
        if (t->vocab.flags[id] != 0) {
            return tok_fail(at, ERR_BAD_FILE, "id %u is given to two tokens, one is %.60s", id,
                            key2);
        }
        e = tok_vocab_add(&t->vocab, id, key2, strlen(key2), TOK_IN_MODEL);
        if (e != ERR_OK) return e;
    }
    tok_leave(at, old);
    return settle_added(at, t);
}

/* Unigram: a list of [piece, score], whose places are the ids. */
static enum err read_pieces(struct tok_at *at, struct json_value *model, struct tokenizer *t) {
    struct json_value *list, *pair;
    const char *s;
    size_t n, old = tok_enter(at, "model.vocab");
    enum err e = ERR_OK;
    if (json_get_arr(model, "vocab", &list) != JSON_OK)
        return tok_fail(at, ERR_BAD_FILE, "must be a list of [piece, score]");
    uint32_t n_ids = (uint32_t)json_arr_len(list);
    if (json_arr_len(list) == 0 || json_arr_len(list) + t->added.n_tokens > TOK_IDS_MAX)
        return tok_fail(at, ERR_BAD_FILE, "1 to %d tokens are supported, got %zu", TOK_IDS_MAX,
                        json_arr_len(list) + t->added.n_tokens);
    for (size_t i = 0; i < t->added.n_tokens; i++)
        if ((uint32_t)t->added.token[i].id >= n_ids) n_ids = (uint32_t)t->added.token[i].id + 1;
    e = tok_vocab_init(&t->vocab, n_ids, (uint32_t)(json_arr_len(list) + t->added.n_tokens));
    for (size_t i = 0; e == ERR_OK && i < json_arr_len(list); i++) {
        if (json_as_arr(json_arr_at(list, i), &pair) != JSON_OK || json_arr_len(pair) != 2 ||
            json_as_str(json_arr_at(pair, 0), &s, &n) != JSON_OK || n > TOK_TOKEN_BYTES_MAX)
            return tok_fail(at, ERR_BAD_FILE, "[%zu] must be [piece, score]", i);
        /* Of pieces that are there twice the first is found. */
        const bool again = tok_vocab_find(&t->vocab, s, n, TOK_IN_MODEL) >= 0;
        e = tok_vocab_add(&t->vocab, (uint32_t)i, again ? "" : s, again ? 0 : n, TOK_IN_MODEL);
    }
    tok_leave(at, old);
    return e == ERR_OK ? settle_added(at, t) : e;
}

static enum err find_model(struct tok_at *at, const char *type, enum tok_model *out) {
    static const char *const names[] = {"BPE", "WordPiece", "Unigram"};
    for (int i = 0; type != NULL && i < 3; i++) {
        if (strcmp(type, names[i]) != 0) continue;
        *out = (enum tok_model)i;
        return ERR_OK;
    }
    return tok_fail(at, ERR_BAD_FILE,
                    "model type %s is not supported (BPE, WordPiece and Unigram are)",
                    type != NULL ? type : "(none)");
}

/* The bytes behind tokenizer_token_bytes(). A special token stands for itself. */
enum err tokenizer_build_bytes(struct tokenizer *t) {
    struct tok_rx rx = {0};
    t->bytes_off = calloc(t->vocab.n_ids + 1u, sizeof *t->bytes_off);
    if (t->bytes_off == NULL) return ERR_NO_MEMORY;
    for (uint32_t id = 0; id < t->vocab.n_ids; id++) {
        size_t n;
        const char *s = tok_vocab_text(&t->vocab, id, &n);
        if ((t->vocab.flags[id] & TOK_SPECIAL) != 0) {
            buf_append(&t->token_bytes, s, n);
        } else if (t->vocab.flags[id] != 0) {
            tok_decoder_token(&t->decoder, &rx, s, n, &t->token_bytes);
        }
        if (t->token_bytes.len > UINT32_MAX) t->token_bytes.failed = true;
        t->bytes_off[id + 1] = (uint32_t)t->token_bytes.len;
    }
    tok_rx_fini(&rx);
    return t->token_bytes.failed ? ERR_NO_MEMORY : ERR_OK;
}

/* A member that is absent or null gives NULL. The path is left at the member. */
static struct json_value *member(struct tok_at *at, const struct json_value *root,
                                 const char *key) {
    struct json_value *o = NULL;
    snprintf(at->path, sizeof at->path, "%s", key);
    return json_get(root, key, &o) == JSON_OK ? o : NULL;
}

static enum err read_model(struct tok_at *at, struct json_value *root, struct tokenizer *t) {
    struct json_value *model = member(at, root, "model");
    const char *type = NULL;
    size_t n = 0;
    struct json_value *vocab;
    enum err e;
    if (!json_is(model, json_type_object)) {
        return tok_fail(at, ERR_BAD_FILE, "is missing, must be an object");
    }
    if (json_get_str(model, "type", &type, &n) ==
        JSON_ABSENT) { /* of the library's first versions */
        if (json_get_arr(model, "merges", &vocab) == JSON_OK)
            type = "BPE";
        else if (json_get_arr(model, "vocab", &vocab) == JSON_OK)
            type = "Unigram";
        else if (json_get(model, "max_input_chars_per_word", &vocab) == JSON_OK)
            type = "WordPiece";
    }
    if ((e = find_model(at, type, &t->model)) != ERR_OK) return e;
    at->path[0] = '\0';
    e = t->model == TOK_UNIGRAM ? read_pieces(at, model, t) : read_vocab(at, model, t);
    if (e != ERR_OK) return e;
    snprintf(at->path, sizeof at->path, "model");
    if (t->model == TOK_UNIGRAM) return tok_unigram_read(at, model, &t->vocab, &t->unigram);
    if (t->model == TOK_WORDPIECE) return tok_wordpiece_read(at, model, &t->vocab, &t->wordpiece);
    return tok_bpe_read(at, model, &t->vocab, t->pretok.byte_level, &t->bpe);
}

static enum err read_parts(struct tok_at *at, struct json_value *root, struct tokenizer *t) {
    enum err e;
    if (!json_is(root, json_type_object)) {
        return tok_fail(at, ERR_BAD_FILE, "must hold an object");
    }
    e = tok_added_read(at, member(at, root, "added_tokens"), &t->added);
    if (e == ERR_OK) e = tok_norm_read(at, member(at, root, "normalizer"), &t->norm);
    if (e == ERR_OK) e = tok_pretok_read(at, member(at, root, "pre_tokenizer"), &t->pretok);
    if (e == ERR_OK) e = read_model(at, root, t);
    if (e == ERR_OK) e = tok_post_read(at, member(at, root, "post_processor"), &t->vocab, &t->post);
    if (e == ERR_OK) e = tok_decoder_read(at, member(at, root, "decoder"), &t->decoder);
    snprintf(at->path, sizeof at->path, "added_tokens");
    if (e == ERR_OK) e = tok_added_build(at, &t->added, &t->norm);
    return e == ERR_OK ? tokenizer_build_bytes(t) : e;
}

enum err tokenizer_parse(struct tokenizer **out, const char *json, size_t n, const char *name,
                         struct errbuf *eb) {
    struct tok_at at = {.name = name, .eb = eb};
    struct json_limits lim = {.depth_max = 24};
    struct json_value *root = NULL;
    struct errbuf why = {.code = ERR_OK};
    enum err e;
    *out = NULL;
    if (n > TOK_FILE_BYTES_MAX) {
        return tok_fail(&at, ERR_BAD_FILE, "must have at most %d bytes, got %zu",
                        TOK_FILE_BYTES_MAX, n);
    }
    e = json_read(&root, json, n, &lim, &why);
    if (e != ERR_OK) {
        return tok_fail(&at, e == ERR_BAD_JSON ? ERR_BAD_FILE : e, "%s", why.text);
    }
    *out = calloc(1, sizeof **out);
    e = *out == NULL ? ERR_NO_MEMORY : read_parts(&at, root, *out);
    if (e == ERR_OK && EVP_Digest(json, n, (*out)->hash, NULL, EVP_sha256(), NULL) != 1) {
        e = tok_fail(&at, ERR_NO_MEMORY, "no memory for its SHA-256");
    }
    if (e == ERR_NO_MEMORY) err_set(eb, e, "%s: out of memory", name);
    if (e != ERR_OK) tokenizer_free(out);
    json_put(root);
    heap_trim(); /* the tree of a large file is ten times its result, and this is done once */
    return e;
}

/* Up to one byte more than is allowed. */
static enum err read_file(struct buf *text, const char *file, struct errbuf *eb) {
    FILE *f = fopen(file, "rb");
    enum err e = ERR_OK;
    size_t got = 1;
    if (f == NULL) return err_set(eb, ERR_NOT_FOUND, "%s: %s", file, strerror(errno));
    while (e == ERR_OK && got > 0 && text->len <= TOK_FILE_BYTES_MAX) {
        if (!buf_reserve(text, text->len + 65536)) {
            e = ERR_NO_MEMORY;
            break;
        }
        got = fread(text->data + text->len, 1, text->cap - text->len - 1, f);
        text->len += got;
    }
    if (ferror(f)) e = err_set(eb, ERR_IO, "%s: cannot be read", file);
    fclose(f);
    return e;
}

static enum err load_file(struct tokenizer **out, const char *file, struct errbuf *eb) {
    struct buf text = BUF_INIT;
    *out = NULL;
    enum err e = read_file(&text, file, eb);
    if (e == ERR_OK) e = tokenizer_parse(out, text.data, text.len, file, eb);
    buf_free(&text);
    return e;
}

/* NULL in *out: there is no such file. */
static enum err read_beside(struct json_value **out, const char *dir, const char *name,
                            struct errbuf *eb) {
    char path[TOK_PATH_BYTES + 64];
    struct errbuf why = {.code = ERR_OK};
    *out = NULL;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    enum err e = json_read_file(out, path, TOK_BESIDE_BYTES_MAX, NULL, &why);
    if (e == ERR_OK || e == ERR_NOT_FOUND) return ERR_OK;
    return err_set(eb, e == ERR_NO_MEMORY ? e : ERR_BAD_FILE, "%s", why.text);
}

/* A model that has only SentencePiece's own file. */
static enum err load_spm(struct tokenizer **out, const char *dir, const char *file,
                         struct errbuf *eb) {
    struct buf bytes = BUF_INIT;
    struct json_value *config = NULL, *added = NULL;
    enum err e = read_file(&bytes, file, eb);
    if (e == ERR_OK && bytes.len > TOK_FILE_BYTES_MAX)
        e = err_set(eb, ERR_BAD_FILE, "%s: must have at most %d bytes", file, TOK_FILE_BYTES_MAX);
    if (e == ERR_OK) e = read_beside(&config, dir, "tokenizer_config.json", eb);
    if (e == ERR_OK) e = read_beside(&added, dir, "added_tokens.json", eb);
    if (e == ERR_OK)
        e = tokenizer_from_spm(out, (const uint8_t *)bytes.data, bytes.len, file, config, added,
                               eb);
    json_put(config);
    json_put(added);
    buf_free(&bytes);
    return e;
}

/* A tokenizer.json beside the file is the model's own, and goes before the metadata. */
static enum err load_gguf(struct tokenizer **out, const char *file, struct errbuf *eb) {
    struct gguf *g = NULL;
    const char *json;
    size_t n;
    enum err e = gguf_open(&g, file, eb);
    if (e != ERR_OK) return e;
    if (gguf_str(g, "tokenizer.huggingface.json", &json, &n))
        e = tokenizer_parse(out, json, n, gguf_name(g), eb);
    else
        e = tokenizer_from_gguf(out, g, eb);
    gguf_close(&g);
    return e;
}

enum err tokenizer_load(struct tokenizer **out, const char *path, struct errbuf *eb) {
    char gguf[TOK_PATH_BYTES], json[TOK_PATH_BYTES + sizeof("/tokenizer.json")];
    struct errbuf why = {.code = ERR_OK};
    *out = NULL;
    enum err e = gguf_locate(gguf, sizeof(gguf), path, &why);
    if (e != ERR_OK && e != ERR_NOT_FOUND) return err_set(eb, e, "%s", why.text);
    const char *slash = e == ERR_OK ? strrchr(gguf, '/') : NULL;
    const int dir_bytes = e != ERR_OK ? (int)strlen(path) : slash != NULL ? (int)(slash - gguf) : 0;
    if (dir_bytes >= TOK_PATH_BYTES) return err_set(eb, ERR_BAD_FILE, "the path is too long");
    snprintf(json, sizeof(json), "%.*s%s/tokenizer.json", dir_bytes, e == ERR_OK ? gguf : path,
             dir_bytes == 0 ? "." : "");
    if (e == ERR_OK && access(json, F_OK) != 0) return load_gguf(out, gguf, eb);
    if (e != ERR_OK && access(json, F_OK) != 0) {
        snprintf(gguf, sizeof(gguf), "%.*s/tokenizer.model", dir_bytes, path);
        if (access(gguf, F_OK) == 0) return load_spm(out, path, gguf, eb);
    }
    return load_file(out, json, eb);
}

void tokenizer_free(struct tokenizer **t) {
    struct tokenizer *x = *t;
    if (x == NULL) return;
    tok_bpe_fini(&x->bpe);
    tok_unigram_fini(&x->unigram);
    tok_post_fini(&x->post);
    tok_decoder_fini(&x->decoder);
    tok_pretok_fini(&x->pretok);
    tok_norm_fini(&x->norm);
    tok_added_fini(&x->added);
    tok_vocab_fini(&x->vocab);
    buf_free(&x->token_bytes);
    free(x->bytes_off);
    free(x);
    *t = NULL;
}

/* ---- encoding */

struct encode {
    const struct tokenizer *t;
    struct id_list *out;
    size_t n_ids_max;
    struct tok_rx rx;
    struct tok_pretok_run pretok;
    struct tok_bpe_run bpe;
    struct tok_unigram_run unigram;
    struct buf norm[2];
    bool marked; /* marks are taken out */
    struct buf clean;
};

static enum err put_id(struct encode *en, int32_t id) {
    return en->out->n < en->n_ids_max ? id_list_push(en->out, id) : ERR_TOO_LARGE;
}

static enum err put_list(struct encode *en, const struct id_list *l) {
    enum err e = ERR_OK;
    for (size_t i = 0; i < l->n && e == ERR_OK; i++) e = put_id(en, l->ids[i]);
    return e;
}

static enum err on_word(void *arg, const char *s, size_t n) {
    struct encode *en = arg;
    if (en->t->model == TOK_WORDPIECE)
        return tok_wordpiece_word(&en->t->wordpiece, s, n, en->n_ids_max, en->out);
    if (en->t->model == TOK_UNIGRAM)
        return tok_unigram_word(&en->t->unigram, &en->unigram, s, n, en->n_ids_max, en->out);
    return tok_bpe_word(&en->t->bpe, &en->bpe, s, n, en->n_ids_max, en->out);
}

/* Text without tokens of either kind. */
static enum err encode_text(struct encode *en, const char *s, size_t n, bool at_start) {
    const char *mark;
    if (!en->marked || tok_find_bytes(s, n, TOK_MARK, TOK_MARK_BYTES) == NULL)
        return tok_pretok_cut(&en->t->pretok, &en->pretok, s, n, at_start);
    buf_clear(&en->clean);
    while ((mark = tok_find_bytes(s, n, TOK_MARK, TOK_MARK_BYTES)) != NULL) {
        buf_append(&en->clean, s, (size_t)(mark - s));
        n -= (size_t)(mark - s) + TOK_MARK_BYTES;
        s = mark + TOK_MARK_BYTES;
    }
    buf_append(&en->clean, s, n);
    if (en->clean.failed) return ERR_NO_MEMORY;
    if (en->clean.len == 0) return ERR_OK;
    return tok_pretok_cut(&en->t->pretok, &en->pretok, en->clean.data, en->clean.len, at_start);
}

/* Text without tokens of the raw kind. */
static enum err encode_piece(struct encode *en, const char *s, size_t n, bool at_start) {
    struct tok_seg_iter it = {.a = &en->t->added, .trie = &en->t->added.norm};
    struct tok_seg seg;
    enum err e = tok_norm_run(&en->t->norm, &en->rx, en->norm, &s, &n);
    it.s = s;
    it.n = n;
    while (e == ERR_OK && tok_seg_next(&it, &seg)) {
        if (seg.id >= 0) {
            e = put_id(en, seg.id);
        } else {
            e = encode_text(en, s + seg.start, seg.end - seg.start, at_start && seg.start == 0);
        }
    }
    return e;
}

static enum err encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
                       size_t n_ids_max, bool marked, struct id_list *out) {
    struct encode en = {.t = t, .out = out, .n_ids_max = n_ids_max, .marked = marked};
    struct tok_seg_iter it = {.a = &t->added, .trie = &t->added.raw, .s = text, .n = n};
    struct tok_seg seg;
    enum err e = ERR_OK;
    if (!tok_utf8_valid(text, n)) return ERR_INVALID;
    if (n_ids_max > SIZE_MAX - out->n) n_ids_max = SIZE_MAX - out->n;
    en.n_ids_max = out->n + n_ids_max;
    en.pretok.rx = &en.rx;
    en.pretok.word = on_word;
    en.pretok.arg = &en;
    if (t->model == TOK_BPE) tok_bpe_run_init(&en.bpe, n);
    if (add_special) e = put_list(&en, &t->post.before);
    while (e == ERR_OK && tok_seg_next(&it, &seg)) {
        if (seg.id >= 0) {
            e = put_id(&en, seg.id);
        } else {
            e = encode_piece(&en, text + seg.start, seg.end - seg.start, seg.start == 0);
        }
    }
    if (e == ERR_OK && add_special) e = put_list(&en, &t->post.after);
    tok_bpe_run_fini(&en.bpe);
    tok_unigram_run_fini(&en.unigram);
    tok_pretok_run_fini(&en.pretok);
    tok_rx_fini(&en.rx);
    buf_free(&en.norm[0]);
    buf_free(&en.norm[1]);
    buf_free(&en.clean);
    return e;
}

enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
                          size_t n_ids_max, struct id_list *out) {
    return encode(t, text, n, add_special, n_ids_max, false, out);
}

enum err tokenizer_encode_marked(const struct tokenizer *t, const char *text, size_t n,
                                 bool add_special, size_t n_ids_max, struct id_list *out) {
    return encode(t, text, n, add_special, n_ids_max, true, out);
}

bool tokenizer_mark(const struct tokenizer *t, const char *s, size_t n, struct buf *out) {
    return tok_added_mark(&t->added, s, n, out);
}

/* ---- what the post-processor adds */

size_t tokenizer_special_count(const struct tokenizer *t, bool pair) {
    const struct tok_post *p = &t->post;
    return pair ? p->pair_before.n + p->pair_between.n + p->pair_after.n : p->before.n + p->after.n;
}

static enum err append(struct id_list *out, const struct id_list *more) {
    enum err e = ERR_OK;
    for (size_t i = 0; i < more->n && e == ERR_OK; i++) e = id_list_push(out, more->ids[i]);
    return e;
}

enum err tokenizer_wrap(const struct tokenizer *t, const struct id_list *a, struct id_list *out) {
    const struct id_list *const parts[] = {&t->post.before, a, &t->post.after};
    enum err e = ERR_OK;
    for (int i = 0; i < 3 && e == ERR_OK; i++) e = append(out, parts[i]);
    return e;
}

bool tokenizer_has_pairs(const struct tokenizer *t) {
    return t->post.pairs;
}

enum err tokenizer_wrap_pair(const struct tokenizer *t, const struct id_list *a,
                             const struct id_list *b, struct id_list *out, size_t *n_first) {
    const struct tok_post *p = &t->post;
    const struct id_list *const parts[] = {&p->pair_before, a, &p->pair_between, b, &p->pair_after};
    enum err e = p->pairs ? ERR_OK : ERR_INVALID;
    *n_first = p->pair_before.n + a->n + p->n_between_first;
    for (int i = 0; i < 5 && e == ERR_OK; i++) e = append(out, parts[i]);
    return e;
}

/* ---- looking up */

struct tokenizer_kind tokenizer_kind(const struct tokenizer *t) {
    switch (t->model) {
    case TOK_WORDPIECE: return (struct tokenizer_kind){"bert", 3};
    case TOK_UNIGRAM: return (struct tokenizer_kind){"t5", 4};
    default: break;
    }
    return t->bpe.byte_fallback ? (struct tokenizer_kind){"llama", 1}
                                : (struct tokenizer_kind){"gpt2", 2};
}

int32_t tokenizer_vocab_size(const struct tokenizer *t) {
    return (int32_t)t->vocab.n_ids;
}

int32_t tokenizer_token_id(const struct tokenizer *t, const char *token) {
    return tok_vocab_find(&t->vocab, token, strlen(token), TOK_IN_MODEL | TOK_ADDED);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id) {
    return tok_vocab_has(&t->vocab, id) && (t->vocab.flags[id] & TOK_SPECIAL) != 0;
}

size_t tokenizer_token_bytes(const struct tokenizer *t, int32_t id, const char **p) {
    *p = "";
    if (!tok_vocab_has(&t->vocab, id)) return 0;
    *p = t->token_bytes.data + t->bytes_off[id];
    return t->bytes_off[id + 1] - t->bytes_off[id];
}

size_t tokenizer_token_piece(const struct tokenizer *t, int32_t id, const char **p) {
    size_t n = 0;
    *p = "";
    if (tok_vocab_has(&t->vocab, id)) *p = tok_vocab_text(&t->vocab, (uint32_t)id, &n);
    return n;
}

const uint8_t *tokenizer_hash(const struct tokenizer *t) {
    return t->hash;
}
