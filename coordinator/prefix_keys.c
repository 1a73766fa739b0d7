/* prefix_keys: eight bytes at a time; a key closes the running state with what is left of a word.
 */
#include "coordinator/prefix_keys.h"

#include <string.h>

enum { STEP = 256, PART = 16, WORD = 8 };

static uint64_t fold(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 32;
}

static uint64_t word_at(const char *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)(unsigned char)p[i] << 8 * i;
    return v;
}

/* Of whole words from p on. */
static uint64_t fold_words(uint64_t h, const char *p, size_t n) {
    for (size_t i = 0; i + WORD <= n; i += WORD) {
        uint64_t v;
        memcpy(&v, p + i, WORD);
        h = fold(h, v);
    }
    return h;
}

static uint64_t close_with(uint64_t h, const char *p, size_t n) {
    h = fold(fold(h, word_at(p, n)), n + 1);
    return h != 0 ? h : 1;
}

uint64_t prefix_keys_mix(uint64_t seed, const char *p, size_t n) {
    const size_t whole = n / WORD * WORD;
    return close_with(fold_words(seed, p, whole), p + whole, n - whole);
}

/* Behind the last braces, first to last. */
static size_t braces_of(size_t out[PREFIX_KEY_BRACES], const char *p, size_t n) {
    size_t found = 0;
    while (found < PREFIX_KEY_BRACES) {
        const char *b = n > 0 ? memrchr(p, '}', n) : NULL;
        if (b == NULL) break;
        n = (size_t)(b - p);
        out[found++] = n + 1;
    }
    for (size_t i = 0; i < found / 2; i++) {
        const size_t other = out[i];
        out[i] = out[found - 1 - i];
        out[found - 1 - i] = other;
    }
    return found;
}

/* The next cut by length alone. */
static size_t step_from(size_t at) {
    return at + (at < (size_t)PART * STEP ? STEP : at / PART / STEP * STEP);
}

size_t prefix_keys_of(struct prefix_key out[PREFIX_KEYS_MAX], uint64_t seed, const char *p,
                      size_t n) {
    size_t braces[PREFIX_KEY_BRACES], n_out = 0, brace = 0, whole = 0, step = STEP;
    if (n > PREFIX_KEY_BYTES_MAX) n = PREFIX_KEY_BYTES_MAX;
    const size_t n_braces = braces_of(braces, p, n);
    uint64_t h = seed;
    while (n_out < PREFIX_KEYS_MAX) {
        const size_t by_brace = brace < n_braces ? braces[brace] : SIZE_MAX;
        const size_t at = by_brace < step ? by_brace : step;
        const bool behind_brace = by_brace == at;
        if (at > n) break;
        if (by_brace == at) brace++;
        if (step == at) step = step_from(at);
        h = fold_words(h, p + whole, at - whole);
        whole = at / WORD * WORD;
        out[n_out++] =
            (struct prefix_key){close_with(h, p + whole, at - whole), (uint32_t)at, behind_brace};
    }
    return n_out;
}
