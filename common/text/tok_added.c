/* tok_added: see the header. A trie with first-child and next-sibling links; texts hold few starts
 * of tokens, so most bytes cost one look-up (or none, when all tokens start alike). */
#include "common/text/tok_added.h"

#include <stdlib.h>
#include <string.h>
#include "common/text/tokenizer.h"
#include "common/text/tok_utf8.h"

/* ---- reading */

static enum err read_one(struct tok_at *at, const struct json_value *o, struct tok_added_token *t) {
    uint32_t id;
    enum err e;
    *t = (struct tok_added_token){.normalized = true};
    if (!json_is(o, json_type_object)) {
        return tok_fail(at, ERR_BAD_FILE, "must be an object");
    }
    if ((e = tok_need_u32(at, o, "id", TOK_IDS_MAX - 1, &id)) != ERR_OK) return e;
    if ((e = tok_need_str(at, o, "content", TOK_TOKEN_BYTES_MAX, &t->s, &t->n)) != ERR_OK) return e;
    if (t->n == 0) return tok_fail_at(at, "content", "must not be empty");
    if ((e = tok_opt_bool(at, o, "special", &t->special)) != ERR_OK) return e;
    t->normalized = !t->special;
    if ((e = tok_opt_bool(at, o, "normalized", &t->normalized)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "lstrip", &t->lstrip)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "rstrip", &t->rstrip)) != ERR_OK) return e;
    if ((e = tok_opt_bool(at, o, "single_word", &t->single_word)) != ERR_OK) return e;
    t->id = (int32_t)id;
    return ERR_OK;
}

enum err tok_added_read(struct tok_at *at, const struct json_value *o, struct tok_added *out) {
    size_t n, n_bytes = 0;
    enum err e = ERR_OK;
    *out = (struct tok_added){0};
    if (o == NULL) return ERR_OK;
    if (!json_is(o, json_type_array)) {
        return tok_fail(at, ERR_BAD_FILE, "must be an array or null");
    }
    n = json_arr_len(o);
    if (n > TOK_ADDED_MAX) {
        return tok_fail(at, ERR_BAD_FILE, "must have at most %d entries, got %zu", TOK_ADDED_MAX,
                        n);
    }
    out->token = calloc(n + 1, sizeof *out->token);
    if (out->token == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < n && e == ERR_OK; i++) {
        size_t old = tok_enter(at, "[%zu]", i);
        e = read_one(at, json_arr_at(o, i), &out->token[i]);
        n_bytes += out->token[i].n;
        if (e == ERR_OK && n_bytes > TOK_ADDED_BYTES_MAX) {
            e = tok_fail(at, ERR_BAD_FILE, "all contents together must have at most %d bytes",
                         TOK_ADDED_BYTES_MAX);
        }
        tok_leave(at, old);
    }
    out->n_tokens = n;
    return e;
}

/* ---- the tries */

static void trie_init(struct tok_trie *t) {
    *t = (struct tok_trie){.first_byte = -1};
    for (int i = 0; i < 256; i++) t->root[i] = -1;
}

static int32_t trie_node(struct tok_trie *t, unsigned char byte, int32_t sibling) {
    if (t->n_nodes == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        struct tok_trie_node *q = realloc(t->node, cap * sizeof *q);
        if (q == NULL) return -1;
        t->node = q;
        t->cap = cap;
    }
    t->node[t->n_nodes] =
        (struct tok_trie_node){.child = -1, .sibling = sibling, .token = -1, .byte = byte};
    return (int32_t)t->n_nodes++;
}

static int32_t trie_child(const struct tok_trie *t, int32_t node, unsigned char byte) {
    int32_t c = t->node[node].child;
    while (c >= 0 && t->node[c].byte != byte) c = t->node[c].sibling;
    return c;
}

/* n > 0. Of two tokens with the same bytes the first stays. */
static enum err trie_add(struct tok_trie *t, const char *s, size_t n, int32_t token) {
    int32_t at = t->root[(unsigned char)s[0]];
    if (at < 0) {
        if ((at = trie_node(t, (unsigned char)s[0], -1)) < 0) return ERR_NO_MEMORY;
        t->root[(unsigned char)s[0]] = at;
    }
    for (size_t i = 1; i < n; i++) {
        int32_t c = trie_child(t, at, (unsigned char)s[i]);
        if (c < 0) {
            if ((c = trie_node(t, (unsigned char)s[i], t->node[at].child)) < 0)
                return ERR_NO_MEMORY;
            t->node[at].child = c;
        }
        at = c;
    }
    if (t->node[at].token < 0) t->node[at].token = token;
    return ERR_OK;
}

static void trie_finish(struct tok_trie *t) {
    int n_first = 0;
    for (int i = 0; i < 256; i++) {
        if (t->root[i] >= 0) {
            n_first++;
            t->first_byte = i;
        }
    }
    if (n_first != 1) t->first_byte = -1;
}

enum err tok_added_build(struct tok_at *at, struct tok_added *a, const struct tok_norm *norm) {
    struct tok_rx rx = {0};
    struct buf tmp[2] = {BUF_INIT, BUF_INIT};
    enum err e = ERR_OK;
    trie_init(&a->raw);
    trie_init(&a->norm);
    trie_init(&a->special);
    for (size_t i = 0; i < a->n_tokens && e == ERR_OK; i++) {
        const char *s = a->token[i].s;
        size_t n = a->token[i].n;
        a->token[i].s = NULL;
        if (a->token[i].special && n > 1) e = trie_add(&a->special, s, n, (int32_t)i);
        if (e != ERR_OK) break;
        if (!a->token[i].normalized) {
            e = trie_add(&a->raw, s, n, (int32_t)i);
            continue;
        }
        e = tok_norm_run(norm, &rx, tmp, &s, &n);
        if (e != ERR_OK) {
            e = tok_fail(at, ERR_BAD_FILE, "the content of entry %zu cannot be normalised", i);
        } else if (n > 0) {
            e = trie_add(&a->norm, s, n, (int32_t)i);
        }
    }
    trie_finish(&a->raw);
    trie_finish(&a->norm);
    trie_finish(&a->special);
    tok_rx_fini(&rx);
    buf_free(&tmp[0]);
    buf_free(&tmp[1]);
    return e;
}

void tok_added_fini(struct tok_added *a) {
    free(a->token);
    free(a->raw.node);
    free(a->norm.node);
    free(a->special.node);
    *a = (struct tok_added){0};
}

/* ---- searching */

/* Whether a token begins at s[i], or its beginning ends the text. */
static bool begins(const struct tok_trie *t, const char *s, size_t n, size_t i) {
    int32_t node = t->root[(unsigned char)s[i]];
    for (size_t k = i + 1; node >= 0; k++) {
        if (t->node[node].token >= 0 || k == n) return true;
        node = trie_child(t, node, (unsigned char)s[k]);
    }
    return false;
}

bool tok_added_mark(const struct tok_added *a, const char *s, size_t n, struct buf *out) {
    size_t end = n, done = 0;
    while (end > 0 && strchr(" \t\r\n", s[end - 1]) != NULL) end--; /* templates trim */
    for (size_t i = 0; i < end; i++) {
        if (a->special.first_byte >= 0) {
            const char *hit = memchr(s + i, a->special.first_byte, end - i);
            if (hit == NULL) break;
            i = (size_t)(hit - s);
        }
        if (!begins(&a->special, s, end, i)) continue;
        size_t next = i + tok_utf8_len(s[i]);
        buf_append(out, s + done, next - done);
        buf_append(out, TOK_MARK, TOK_MARK_BYTES);
        done = next;
    }
    if (done == 0) return false;
    buf_append(out, s + done, n - done);
    return true;
}

/* The leftmost token at or behind `from`, the longest of those; false: none. */
static bool find(const struct tok_trie *t, const char *s, size_t n, size_t from, size_t *start,
                 size_t *end, int32_t *token) {
    for (size_t i = from; i < n; i++) {
        int32_t node;
        if (t->first_byte >= 0) {
            const char *hit = memchr(s + i, t->first_byte, n - i);
            if (hit == NULL) return false;
            i = (size_t)(hit - s);
        }
        *token = -1;
        node = t->root[(unsigned char)s[i]];
        for (size_t k = i + 1; node >= 0; k++) {
            if (t->node[node].token >= 0) {
                *token = t->node[node].token;
                *end = k;
            }
            node = k < n ? trie_child(t, node, (unsigned char)s[k]) : -1;
        }
        if (*token >= 0) {
            *start = i;
            return true;
        }
    }
    return false;
}

static bool word_before(const char *s, size_t n) {
    size_t i = n > 0 ? tok_utf8_last(s, n) : 0;
    return n > 0 && tok_is_word(tok_utf8_next(s, &i));
}

static bool word_after(const char *s, size_t at, size_t n) {
    return at < n && tok_is_word(tok_utf8_next(s, &at));
}

/* Hands out the text up to start, if any, and keeps the token for the next call. */
static bool hand_out(struct tok_seg_iter *it, size_t start, size_t end, int32_t id,
                     struct tok_seg *seg) {
    size_t from = it->done;
    it->done = end;
    if (start > from) {
        it->has_token = true;
        it->token_start = start;
        it->token_end = end;
        it->token_id = id;
        *seg = (struct tok_seg){from, start, -1};
    } else {
        *seg = (struct tok_seg){start, end, id};
    }
    return true;
}

bool tok_seg_next(struct tok_seg_iter *it, struct tok_seg *seg) {
    size_t start, end;
    int32_t k;
    if (it->has_token) {
        it->has_token = false;
        *seg = (struct tok_seg){it->token_start, it->token_end, it->token_id};
        return true;
    }
    while (it->trie->n_nodes > 0 && find(it->trie, it->s, it->n, it->search, &start, &end, &k)) {
        const struct tok_added_token *t = &it->a->token[k];
        it->search = end;
        if (t->single_word && (word_before(it->s, start) || word_after(it->s, end, it->n)))
            continue;
        while (t->lstrip && start > it->done) {
            size_t last = tok_utf8_last(it->s, start), i = last;
            if (!tok_is_space(tok_utf8_next(it->s, &i))) break;
            start = last;
        }
        /* the spaces before may have gone to the token before */
        if (t->lstrip && start < it->done) start = it->done;
        while (t->rstrip && end < it->n) {
            size_t i = end;
            if (!tok_is_space(tok_utf8_next(it->s, &i))) break;
            end = i;
        }
        return hand_out(it, start, end, t->id, seg);
    }
    it->search = it->n;
    if (it->done >= it->n) return false;
    *seg = (struct tok_seg){it->done, it->n, -1};
    it->done = it->n;
    return true;
}
