/* Goal: no guide text makes the compiler or the automaton crash, hang or leak.
 * Property: what compiles starts alive; every token of a mask can be taken, and no other; a refusal
 * has a text. */
#include <stdlib.h>
#include <string.h>
#include "common/guide/guide.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A vocabulary with the pieces that matter: structure, digits, halves of characters. */
static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<eos>\",\"special\":true},"
    "{\"id\":1,\"content\":\"<sp>\",\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":null,"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
    "\"vocab\":{\"a\":2,\"b\":3,\"ab\":4,\"\\\"\":5,\"{\":6,\"}\":7,\"[\":8,\"]\":9,\":\":10,"
    "\",\":11,\"1\":12,\"0\":13,\"-\":14,\".\":15,\"\\\"a\":16,\"\\\",\":17,\"{\\\"\":18,\"\\\\\":"
    "19,"
    "\"u\":20,\"true\":21,\"null\":22,\"\xC4\xA0\":23,\"\xC4\x8A\":24,\"\xC3\x83\":25,"
    "\"\xC2\xA9\":26,\"\\\":\":27,\"x\":28,\"e\":29,\"Z\":30,\"T\":31},\"merges\":[]}}";

struct world {
    struct tokenizer *t;
    struct guide_vocab *v;
    int n_ids;
};

/* Made at the first input and kept: libFuzzer has no other place for it. */
static const struct world *world(void) {
    static struct world w;
    static const int32_t eos = 0;
    if (w.v != NULL) return &w;
    struct errbuf eb = {.code = ERR_OK};
    if (tokenizer_parse(&w.t, tokenizer_json, sizeof(tokenizer_json) - 1, "fuzz", &eb) != ERR_OK)
        abort();
    w.n_ids = tokenizer_vocab_size(w.t);
    if (guide_vocab_create(&w.v, w.t, w.n_ids, &eos, 1) != ERR_OK) abort();
    return &w;
}

static void walk(const struct world *w, struct guide *g, uint64_t seed) {
    struct token_guide tg;
    uint64_t bits;
    if (guide_start(g, (struct detok_cut){0}, &tg) != ERR_OK) abort();
    for (int i = 0; i < 12; i++) {
        int32_t take = -1, n = 0;
        if (!tg.ops->mask(tg.state, &bits, w->n_ids)) break;
        for (int32_t id = 0; id < w->n_ids; id++) {
            void *copy = tg.ops->fork(tg.state);
            if (tg.ops->advance(copy, id) != (bits >> id & 1)) abort();
            tg.ops->free(copy);
            if (bits >> id & 1) n++;
        }
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        for (int32_t id = 0, k = (int32_t)((seed >> 33) % (uint64_t)n); id < w->n_ids; id++)
            if ((bits >> id & 1) && k-- == 0) take = id;
        if (!tg.ops->advance(tg.state, take)) abort();
    }
    tg.ops->free(tg.state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct world *w = world();
    struct guide *g;
    struct errbuf eb = {.code = ERR_OK};
    enum err e = guide_compile(&g, w->v, (const char *)data, size, NULL, &eb);
    if (e != ERR_OK) {
        if (g != NULL || eb.text[0] == '\0') abort();
        return 0;
    }
    walk(w, g, size);
    walk(w, g, size * 31 + 7);
    guide_unref(&g);
    return 0;
}
