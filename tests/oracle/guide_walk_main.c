/* guide_walk: outputs of random walks along the masks of a guide, for test_guide.py to validate.
 * Reads lines {"guide":{..},"seed":n,"walks":n}; answers each with a line
 * {"outputs":[text or null,..]}, null for a walk that was cut, or {"error":text}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/guide/guide.h"
#include "proto/json.h"

enum { TOKENS_MAX = 600 };

struct world {
    struct tokenizer *tok;
    struct guide_vocab *v;
    uint64_t *bits;
    int n_ids;
    int32_t eos;
};

static uint64_t next_random(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static bool allowed(const struct world *w, int32_t id) {
    return (w->bits[id >> 6] >> (id & 63) & 1) != 0;
}

/* Any allowed token; now and then one that closes something, or walks would hardly end. */
static int32_t draw(const struct world *w, uint64_t *seed) {
    bool close = next_random(seed) % 4 == 0;
    int32_t from = (int32_t)(next_random(seed) % (uint64_t)w->n_ids), any = -1;
    if (allowed(w, w->eos) && next_random(seed) % 2 == 0) return w->eos;
    for (int32_t i = 0; i < w->n_ids; i++) {
        int32_t id = (from + i) % w->n_ids;
        const char *p;
        if (!allowed(w, id)) continue;
        if (any < 0) any = id;
        if (!close) break;
        if (tokenizer_token_bytes(w->tok, id, &p) > 0 && strchr("\"]}", p[0]) != NULL) return id;
    }
    return any;
}

static void walk(const struct world *w, struct guide *g, uint64_t *seed, struct buf *out) {
    struct token_guide tg;
    struct buf text = BUF_INIT;
    bool done = false;
    if (guide_start(g, (struct detok_cut){0}, &tg) != ERR_OK) abort();
    for (int i = 0; i < TOKENS_MAX && !done; i++) {
        const char *p;
        if (!tg.ops->mask(tg.state, w->bits, w->n_ids)) abort();
        int32_t id = draw(w, seed);
        if (!tg.ops->advance(tg.state, id)) abort();
        done = id == w->eos;
        size_t n = done ? 0 : tokenizer_token_bytes(w->tok, id, &p);
        if (n > 0) buf_append(&text, p, n);
    }
    if (done)
        buf_json_str(out, text.data != NULL ? text.data : "", text.len);
    else
        buf_puts(out, "null");
    buf_free(&text);
    tg.ops->free(tg.state);
}

static void answer(const struct world *w, const char *line, struct buf *out) {
    struct json_value *root = NULL, *guide;
    struct errbuf eb = {.code = ERR_OK};
    struct guide *g;
    int64_t seed = 1, walks = 1;
    if (json_read(&root, line, strlen(line), NULL, &eb) != ERR_OK ||
        json_get_obj(root, "guide", &guide) != JSON_OK) {
        fprintf(stderr, "guide_walk: bad line: %s\n", eb.text);
        exit(1);
    }
    json_get_i64(root, "seed", &seed);
    json_get_i64(root, "walks", &walks);
    const char *text = json_to_text(guide, JSON_COMPACT, NULL);
    if (guide_compile(&g, w->v, text, strlen(text), NULL, &eb) != ERR_OK) {
        buf_puts(out, "{\"error\":");
        buf_json_str(out, eb.text, strlen(eb.text));
        buf_puts(out, "}\n");
    } else {
        uint64_t x = (uint64_t)seed;
        buf_puts(out, "{\"outputs\":[");
        for (int64_t i = 0; i < walks; i++) {
            if (i > 0) buf_putc(out, ',');
            walk(w, g, &x, out);
        }
        buf_puts(out, "]}\n");
        guide_unref(&g);
    }
    json_put(root);
}

int main(int argc, char **argv) {
    struct world w = {0};
    struct errbuf eb = {.code = ERR_OK};
    struct buf out = BUF_INIT;
    char *line = NULL;
    size_t cap = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: guide_walk MODEL_DIR EOS_TOKEN < LINES\n");
        return 2;
    }
    if (tokenizer_load(&w.tok, argv[1], &eb) != ERR_OK) {
        fprintf(stderr, "guide_walk: %s\n", eb.text);
        return 1;
    }
    w.n_ids = tokenizer_vocab_size(w.tok);
    w.eos = tokenizer_token_id(w.tok, argv[2]);
    w.bits = calloc((size_t)w.n_ids / 64 + 1, sizeof(*w.bits));
    if (w.eos < 0 || w.bits == NULL ||
        guide_vocab_create(&w.v, w.tok, w.n_ids, &w.eos, 1) != ERR_OK)
        return 1;
    while (getline(&line, &cap, stdin) > 0) {
        buf_clear(&out);
        answer(&w, line, &out);
        fwrite(out.data, 1, out.len, stdout);
    }
    free(line);
    buf_free(&out);
    free(w.bits);
    guide_vocab_destroy(&w.v);
    tokenizer_free(&w.tok);
    return 0;
}
