/* tokenizer_spm: see the header. The wire format of protobuf first, then the messages. */
#include "common/text/tokenizer_spm.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/text/tok_pieces.h"

/* ---- protobuf: a tag is a varint field << 3 | wire type */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct pb {
    const uint8_t *p, *end;
};

struct pb_field {
    uint32_t number;
    int type;
    uint64_t v; /* varint, or the 32 or 64 bits */
    struct pb bytes;
};

static bool pb_varint(struct pb *b, uint64_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && b->p < b->end; shift += 7) {
        const uint8_t byte = *b->p++;
        if (shift == 63 && byte > 1) return false;
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* False: the end, with b->p == b->end, or bytes that are no message. */
static bool pb_next(struct pb *b, struct pb_field *f) {
    uint64_t tag, n;
    if (b->p == b->end || !pb_varint(b, &tag) || tag >> 3 == 0 || tag >> 32 != 0) return false;
    *f = (struct pb_field){.number = (uint32_t)(tag >> 3), .type = (int)(tag & 7)};
    const size_t left = (size_t)(b->end - b->p);
    switch (f->type) {
    case WIRE_VARINT: return pb_varint(b, &f->v);
    case WIRE_64:
    case WIRE_32:
        n = f->type == WIRE_64 ? 8 : 4;
        if (left < n) return false;
        for (uint64_t i = 0; i < n; i++) f->v |= (uint64_t)b->p[i] << (8 * i);
        b->p += n;
        return true;
    case WIRE_BYTES:
        if (!pb_varint(b, &n) || n > (size_t)(b->end - b->p)) return false;
        f->bytes = (struct pb){b->p, b->p + n};
        b->p += n;
        return true;
    default: return false;
    }
}

/* ---- the messages */
enum model_type { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct reading {
    struct tok_at at;
    struct tok_piece *piece; /* [n] */
    size_t n;
    int model;
    bool suffix;
    int32_t unk, bos, eos;
    struct tok_pieces out;
};

static enum err bad(struct reading *r, const char *what) {
    return err_set(r->at.eb, ERR_BAD_FILE, "%s: %s", r->at.name, what);
}

static enum err read_piece(struct reading *r, struct pb b, struct tok_piece *out) {
    struct pb_field f;
    *out = (struct tok_piece){.s = "", .type = TOK_PIECE_NORMAL};
    while (pb_next(&b, &f)) {
        if (f.number == 1 && f.type == WIRE_BYTES) {
            out->s = (const char *)f.bytes.p;
            out->n = (size_t)(f.bytes.end - f.bytes.p);
        } else if (f.number == 2 && f.type == WIRE_32) {
            const uint32_t bits = (uint32_t)f.v;
            float score;
            memcpy(&score, &bits, sizeof(score));
            out->score = score;
        } else if (f.number == 3 && f.type == WIRE_VARINT) {
            if (f.v < TOK_PIECE_NORMAL || f.v > TOK_PIECE_BYTE)
                return bad(r, "a piece has an unknown type");
            out->type = (int)f.v;
        }
    }
    return b.p == b.end ? ERR_OK : bad(r, "a piece is cut");
}

static int32_t id_of(const struct reading *r, uint64_t v) {
    return v < r->n ? (int32_t)v : -1; /* a negative one is a huge one here */
}

static enum err read_trainer(struct reading *r, struct pb b) {
    struct pb_field f;
    while (pb_next(&b, &f)) {
        if (f.type != WIRE_VARINT) continue;
        switch (f.number) {
        case 3: r->model = f.v <= 4 ? (int)f.v : 0; break;
        case 24: r->suffix = f.v != 0; break;
        case 35: r->out.byte_fallback = f.v != 0; break;
        case 40: r->unk = id_of(r, f.v); break;
        case 41: r->bos = id_of(r, f.v); break;
        case 42: r->eos = id_of(r, f.v); break;
        default: break;
        }
    }
    return b.p == b.end ? ERR_OK : bad(r, "its trainer_spec is cut");
}

static enum err read_normalizer(struct reading *r, struct pb b) {
    struct pb_field f;
    while (pb_next(&b, &f)) {
        if (f.number == 2 && f.type == WIRE_BYTES) {
            r->out.charsmap = f.bytes.p;
            r->out.charsmap_bytes = (size_t)(f.bytes.end - f.bytes.p);
        } else if (f.type == WIRE_VARINT && f.number == 3) {
            r->out.space_prefix = f.v != 0;
        } else if (f.type == WIRE_VARINT && f.number == 4) {
            r->out.squeeze = f.v != 0;
        } else if (f.type == WIRE_VARINT && f.number == 5) {
            r->out.no_escape = f.v == 0;
        }
    }
    return b.p == b.end ? ERR_OK : bad(r, "its normalizer_spec is cut");
}

static enum err count_pieces(struct reading *r, struct pb b, size_t *n) {
    struct pb_field f;
    *n = 0;
    while (pb_next(&b, &f)) *n += f.number == 1 && f.type == WIRE_BYTES;
    if (b.p != b.end) return bad(r, "is no SentencePiece model, or it is cut");
    if (*n == 0 || *n > TOK_IDS_MAX)
        return err_set(r->at.eb, ERR_BAD_FILE, "%s: must have 1 to %d pieces, got %zu", r->at.name,
                       TOK_IDS_MAX, *n);
    return ERR_OK;
}

static enum err read_model(struct reading *r, struct pb b) {
    struct pb_field f;
    enum err e = ERR_OK;
    size_t id = 0;
    while (e == ERR_OK && pb_next(&b, &f)) {
        if (f.type != WIRE_BYTES) continue;
        if (f.number == 1) e = read_piece(r, f.bytes, &r->piece[id++]);
        if (f.number == 2) e = read_trainer(r, f.bytes);
        if (f.number == 3) e = read_normalizer(r, f.bytes);
    }
    if (e != ERR_OK) return e;
    if (r->model != MODEL_UNIGRAM && r->model != MODEL_BPE)
        return bad(r, "model_type must be UNIGRAM or BPE: words and characters are not supported");
    if (r->suffix) return bad(r, "treat_whitespace_as_suffix is not supported");
    return ERR_OK;
}

/* ---- tokens of the files beside it */

/* added_tokens_decoder: {"32000": {"content": "<x>", "special": true}}; added_tokens.json: {"<x>":
 * 32000}. */
static bool beside_token(const char *key, const struct json_value *v, bool by_id, int64_t *id,
                         struct tok_piece *out) {
    struct json_value *o = NULL;
    bool special = true;
    char *end = NULL;
    *out = (struct tok_piece){.type = TOK_PIECE_CONTROL};
    if (!by_id) {
        out->s = key;
        out->n = strlen(key);
        return json_as_i64(v, id) == JSON_OK;
    }
    *id = strtol(key, &end, 10);
    if (end == key || *end != '\0' || json_as_obj(v, &o) != JSON_OK ||
        json_get_str(o, "content", &out->s, &out->n) != JSON_OK)
        return false;
    if (json_get_bool(o, "special", &special) == JSON_OK && !special) out->type = TOK_PIECE_USER;
    return true;
}

static enum err put_beside(struct reading *r, const char *file, int64_t id,
                           const struct tok_piece *t, size_t n_model) {
    struct tok_piece *to = &r->piece[id];
    if (to->n > 0 && (to->n != t->n || memcmp(to->s, t->s, t->n) != 0))
        return err_set(r->at.eb, ERR_BAD_FILE, "%s: token %lld is %.*s, in %s it is %.*s", file,
                       (long long)id, t->n < 60 ? (int)t->n : 60, t->s, r->at.name,
                       to->n < 60 ? (int)to->n : 60, to->s);
    if ((size_t)id >= n_model)
        *to = *t;
    else if (to->type == TOK_PIECE_NORMAL || to->type == TOK_PIECE_UNUSED)
        to->type = t->type;
    return ERR_OK;
}

/* Two passes: which is the highest id, then the tokens. */
static enum err add_beside(struct reading *r, const char *file, const struct json_value *list,
                           bool by_id) {
    const size_t n_model = r->n;
    for (int pass = 0; pass < 2; pass++) {
        struct json_iter it = json_iter_begin(list), last = json_iter_end(list);
        size_t n = r->n;
        for (; !json_iter_equal(&it, &last); json_iter_next(&it)) {
            struct tok_piece t;
            int64_t id = -1;
            if (!beside_token(json_iter_name(&it), json_iter_value(&it), by_id, &id, &t) ||
                id < 0 || id >= TOK_IDS_MAX)
                return err_set(r->at.eb, ERR_BAD_FILE,
                               "%s: %.60s must be a token with an id from 0 to %d", file,
                               json_iter_name(&it), TOK_IDS_MAX - 1);
            if ((size_t)id >= n) n = (size_t)id + 1;
            enum err e = pass == 0 ? ERR_OK : put_beside(r, file, id, &t, n_model);
            if (e != ERR_OK) return e;
        }
        if (n == r->n) continue;
        struct tok_piece *grown = realloc(r->piece, n * sizeof(*grown));
        if (grown == NULL) return ERR_NO_MEMORY;
        for (size_t i = r->n; i < n; i++)
            grown[i] = (struct tok_piece){.s = "", .type = TOK_PIECE_UNUSED};
        r->piece = grown;
        r->n = n;
    }
    return ERR_OK;
}

static bool flag(const struct json_value *config, const char *key, bool absent) {
    bool v = absent;
    return config != NULL && json_get_bool(config, key, &v) == JSON_OK ? v : absent;
}

static enum err read_beside(struct reading *r, const struct json_value *config,
                            const struct json_value *added) {
    struct json_value *list = NULL, *o = NULL;
    enum err e = ERR_OK;
    if (added != NULL && json_as_obj(added, &o) == JSON_OK)
        e = add_beside(r, "added_tokens.json", o, false);
    if (e == ERR_OK && config != NULL &&
        json_get_obj(config, "added_tokens_decoder", &list) == JSON_OK)
        e = add_beside(r, "tokenizer_config.json", list, true);
    r->out.prefix_once = !flag(config, "legacy", true);
    r->out.before = flag(config, "add_bos_token", true) ? r->bos : -1;
    r->out.after = flag(config, "add_eos_token", false) ? r->eos : -1;
    return e;
}

/* ---- the hash: the file, and what came from beside it */
static enum err make_hash(struct reading *r, struct tokenizer *t, const uint8_t *p, size_t n) {
    const int32_t said[] = {r->out.before, r->out.after, r->out.prefix_once};
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
              EVP_DigestUpdate(ctx, p, n) == 1 && EVP_DigestUpdate(ctx, said, sizeof(said)) == 1;
    for (size_t i = 0; ok && i < r->n; i++) {
        const struct tok_piece *x = &r->piece[i];
        ok = EVP_DigestUpdate(ctx, &x->type, sizeof(x->type)) == 1 &&
             EVP_DigestUpdate(ctx, &x->n, sizeof(x->n)) == 1 &&
             EVP_DigestUpdate(ctx, x->s, x->n) == 1;
    }
    ok = ok && EVP_DigestFinal_ex(ctx, t->hash, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    return ok ? ERR_OK : err_set(r->at.eb, ERR_NO_MEMORY, "no memory for its SHA-256");
}

static enum err build(struct reading *r, struct tokenizer *t, const uint8_t *p, size_t n) {
    r->out.piece = r->piece;
    r->out.n = r->n;
    r->out.unigram = r->model == MODEL_UNIGRAM;
    r->out.skip_unused = true;
    r->out.unk_id = r->unk;
    for (size_t i = 0; r->unk < 0 && i < r->n; i++)
        if (r->piece[i].type == TOK_PIECE_UNKNOWN) r->out.unk_id = (int32_t)i;
    enum err e = tok_pieces_build(&r->at, &r->out, t);
    return e == ERR_OK ? make_hash(r, t, p, n) : e;
}

enum err tokenizer_from_spm(struct tokenizer **out, const uint8_t *p, size_t n, const char *name,
                            const struct json_value *config, const struct json_value *added,
                            struct errbuf *eb) {
    struct reading r = {.at = {.name = name, .eb = eb},
                        .model = MODEL_UNIGRAM,
                        .unk = 0,
                        .bos = 1,
                        .eos = 2,
                        .out = {.space_prefix = true, .squeeze = true}};
    const struct pb all = {p, p + n};
    *out = NULL;
    /* A tiktoken file is lines of base64 and a number; the first field here is a piece. */
    if (n == 0 || p[0] != 0x0A)
        return bad(&r, "is no SentencePiece model: its first byte must be 0x0A; of a tiktoken "
                       "vocabulary take the tokenizer.json");
    enum err e = count_pieces(&r, all, &r.n);
    if (e != ERR_OK) return e;
    r.bos = r.n > 1 ? 1 : -1;
    r.eos = r.n > 2 ? 2 : -1;
    *out = calloc(1, sizeof(**out));
    r.piece = calloc(r.n, sizeof(*r.piece));
    e = *out != NULL && r.piece != NULL ? read_model(&r, all) : ERR_NO_MEMORY;
    if (e == ERR_OK) e = read_beside(&r, config, added);
    if (e == ERR_OK) e = build(&r, *out, p, n);
    free(r.piece);
    if (e == ERR_NO_MEMORY) err_set(eb, e, "%s: out of memory", name);
    if (e != ERR_OK) tokenizer_free(out);
    return e;
}
