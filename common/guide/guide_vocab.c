/* guide_vocab: tokens sorted by their bytes, which is the order of the trie's nodes. */
#include "common/guide/guide_vocab.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/guide/grow.h"

struct sorted {
    const uint8_t *p;
    uint32_t len;
    int32_t id;
};

static int by_bytes(const void *a, const void *b) {
    const struct sorted *x = a, *y = b;
    uint32_t n = x->len < y->len ? x->len : y->len;
    int c = memcmp(x->p, y->p, n);
    if (c != 0) return c;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool is_eos(const struct guide_vocab *v, int32_t id) {
    for (int i = 0; i < v->n_eos; i++)
        if (v->eos[i] == id) return true;
    return false;
}

static bool is_text(const char *p, size_t n) {
    if (n < 1 || n > VOCAB_TOKEN_BYTES_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        if (c == 0xC0 || c == 0xC1 || c >= 0xF5) return false;
    }
    return true;
}

static void special_path(struct buf *b, int32_t id) {
    buf_putc(b, (char)0xFF);
    for (int i = 6; i >= 0; i--) buf_putc(b, (char)(0xF5 + ((id >> (3 * i)) & 7)));
}

static bool add_special(struct guide_vocab *v, struct buf *texts, const char *p, size_t n,
                        int32_t id) {
    if (!GROW(v->specials, v->n_specials, v->cap_specials)) return false;
    v->specials[v->n_specials++] =
        (struct vocab_special){.off = (uint32_t)texts->len, .len = (uint32_t)n, .id = id};
    buf_append(texts, p, n);
    return true;
}

/* Paths of all tokens. */
static bool collect(struct guide_vocab *v, const struct tokenizer *tok) {
    struct buf bytes = BUF_INIT, texts = BUF_INIT;
    bool ok = true;
    for (int32_t id = 0; id < v->n_ids && ok; id++) {
        const char *p = NULL;
        size_t n = tokenizer_token_bytes(tok, id, &p);
        v->off[id] = (uint32_t)bytes.len;
        if (is_eos(v, id) || n == 0) continue;
        if (tokenizer_is_special(tok, id)) {
            ok = id < 1 << 21 && add_special(v, &texts, p, n, id);
            special_path(&bytes, id);
        } else if (is_text(p, n)) {
            buf_append(&bytes, p, n);
        }
    }
    v->off[v->n_ids] = (uint32_t)bytes.len;
    ok = ok && !bytes.failed && !texts.failed && bytes.len < UINT32_MAX;
    v->bytes = (uint8_t *)buf_steal(&bytes);
    v->special_text = (uint8_t *)buf_steal(&texts);
    buf_free(&bytes);
    buf_free(&texts);
    return ok;
}

static uint32_t common_prefix(const struct sorted *a, const struct sorted *b) {
    uint32_t n = 0;
    while (n < a->len && n < b->len && a->p[n] == b->p[n]) n++;
    return n;
}

static bool build(struct guide_vocab *v, const struct sorted *s, uint32_t n) {
    uint32_t open[VOCAB_TOKEN_BYTES_MAX + 2], depth = 0; /* open nodes by depth */
    size_t n_nodes = 1;
    for (uint32_t i = 0; i < n; i++)
        n_nodes += s[i].len - (i > 0 ? common_prefix(&s[i - 1], &s[i]) : 0);
    v->byte = calloc(n_nodes, 1);
    v->depth = calloc(n_nodes, 1);
    v->end = calloc(n_nodes, sizeof(*v->end));
    v->tok_first = calloc(n_nodes + 1, sizeof(*v->tok_first));
    v->toks = calloc((size_t)n + 1, sizeof(*v->toks));
    if (v->byte == NULL || v->depth == NULL || v->end == NULL || v->tok_first == NULL ||
        v->toks == NULL)
        return false;
    v->n_nodes = 1;
    open[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t keep = i > 0 ? common_prefix(&s[i - 1], &s[i]) : 0;
        for (; depth > keep; depth--) v->end[open[depth]] = v->n_nodes;
        for (; depth < s[i].len; depth++) {
            uint32_t node = v->n_nodes++;
            v->byte[node] = s[i].p[depth];
            v->depth[node] = (uint8_t)(depth + 1);
            v->tok_first[node] = i;
            open[depth + 1] = node;
        }
        v->toks[i] = s[i].id;
    }
    for (; depth > 0; depth--) v->end[open[depth]] = v->n_nodes;
    v->end[0] = v->n_nodes;
    v->tok_first[v->n_nodes] = n;
    return true;
}

enum err guide_vocab_create(struct guide_vocab **out, const struct tokenizer *tok, int vocab_size,
                            const int32_t *eos_ids, int n_eos) {
    struct guide_vocab *v = calloc(1, sizeof(*v));
    struct sorted *s = NULL;
    uint32_t n = 0;
    *out = NULL;
    if (v == NULL || vocab_size < 1) goto fail;
    v->n_ids = vocab_size;
    guide_vocab_limits(v, GUIDE_COMPILE_MS, GUIDE_STEP_MS);
    for (int i = 0; i < n_eos && i < (int)(sizeof(v->eos) / sizeof(v->eos[0])); i++)
        if (eos_ids[i] >= 0 && eos_ids[i] < vocab_size) v->eos[v->n_eos++] = eos_ids[i];
    v->off = calloc((size_t)vocab_size + 1, sizeof(*v->off));
    s = calloc((size_t)vocab_size, sizeof(*s));
    if (v->off == NULL || s == NULL || !collect(v, tok)) goto fail;
    for (int32_t id = 0; id < vocab_size; id++) {
        uint32_t len = v->off[id + 1] - v->off[id];
        if (len == 0) continue;
        s[n++] = (struct sorted){.p = v->bytes + v->off[id], .len = len, .id = id};
        if ((int)len > v->token_bytes_max) v->token_bytes_max = (int)len;
    }
    if (n > 0) qsort(s, n, sizeof(*s), by_bytes);
    if (!build(v, s, n)) goto fail;
    free(s);
    *out = v;
    return ERR_OK;
fail:
    free(s);
    guide_vocab_destroy(&v);
    return ERR_NO_MEMORY;
}

void guide_vocab_limits(struct guide_vocab *v, int compile_ms, int step_ms) {
    v->compile_ms = compile_ms;
    v->step_ms = step_ms;
}

void guide_vocab_destroy(struct guide_vocab **v_ptr) {
    struct guide_vocab *v = *v_ptr;
    if (v == NULL) return;
    free(v->bytes);
    free(v->off);
    free(v->byte);
    free(v->depth);
    free(v->end);
    free(v->tok_first);
    free(v->toks);
    free(v->special_text);
    free(v->specials);
    free(v);
    *v_ptr = NULL;
}

int32_t guide_vocab_special(const struct guide_vocab *v, const char *p, size_t n, size_t *len) {
    int32_t id = -1;
    *len = 0;
    for (size_t i = 0; i < v->n_specials; i++) {
        const struct vocab_special *s = &v->specials[i];
        if (s->len > n || s->len <= *len || memcmp(v->special_text + s->off, p, s->len) != 0)
            continue;
        id = s->id;
        *len = s->len;
    }
    return id;
}
