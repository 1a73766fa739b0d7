#include "tools/load/load_text.h"

#include <math.h>
#include "tools/load/load_random.h"

static const char *const WORDS[] = {
    "the",    "and",   "was",   "that",  "with",  "they",   "then",  "when",  "once",   "little",
    "house",  "water", "green", "under", "over",  "night",  "day",   "went",  "came",   "old",
    "new",    "long",  "white", "black", "river", "forest", "king",  "queen", "child",  "mother",
    "father", "light", "dark",  "stone", "tree",  "bird",   "horse", "dog",   "cat",    "fish",
    "road",   "door",  "hand",  "head",  "eyes",  "voice",  "word",  "story", "young",  "great",
    "small",  "many",  "every", "never", "again", "after",  "first", "last",  "good",   "bad",
    "red",    "gold",  "sun",   "moon",  "wind",  "rain",   "snow",  "fire",  "earth",  "sea",
    "ship",   "town",  "field", "hill",  "bread", "milk",   "table", "bed",   "window", "garden",
};
enum { N_WORDS = sizeof(WORDS) / sizeof(WORDS[0]) };

void load_text_words(struct buf *out, uint64_t seed, size_t n) {
    struct load_random r = {seed};
    for (size_t i = 0; i < n; i++) {
        if (out->len > 0) buf_putc(out, ' ');
        buf_puts(out, WORDS[load_random_u64(&r) % N_WORDS]);
    }
}

static size_t words_of(double tokens, const struct load_tokens *t) {
    const double words = round(tokens / t->per_word);
    return words < 0 ? 0 : (size_t)words;
}

void load_text_prompt(struct buf *out, const struct load_ask *ask, const struct load_tokens *t,
                      uint64_t seed) {
    size_t left = words_of((double)ask->in - t->fixed, t);
    if (left == 0) left = 1;
    const size_t each = words_of(ask->shared_tokens, t);
    for (size_t i = 0; i < ask->n_shared && left > 0 && each > 0; i++) {
        const size_t n = left < each ? left : each;
        load_text_words(out, ask->shared[i] * 2 + 1, n);
        left -= n;
    }
    struct load_random own = {seed ^ (ask->number * 2 + 2)};
    load_text_words(out, load_random_u64(&own), left);
}

bool load_tokens_fit(struct load_tokens *out, size_t words1, int64_t tokens1, size_t words2,
                     int64_t tokens2) {
    if (words2 <= words1 || tokens2 <= tokens1) return false;
    out->per_word = (double)(tokens2 - tokens1) / (double)(words2 - words1);
    out->fixed = fmax(0, (double)tokens1 - out->per_word * (double)words1);
    return true;
}
