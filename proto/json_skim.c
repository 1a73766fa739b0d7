/* json_skim: SSE2, which every x86-64 has, or bytes one by one; and the choice of the set. */
#include "proto/json_skim.h"

#include "proto/json_skim_ops.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifdef __SSE2__
INLINE uint64_t mask4(__m128i a, __m128i b, __m128i c, __m128i d) {
    return (uint64_t)(unsigned)_mm_movemask_epi8(a) |
           (uint64_t)(unsigned)_mm_movemask_epi8(b) << 16 |
           (uint64_t)(unsigned)_mm_movemask_epi8(c) << 32 |
           (uint64_t)(unsigned)_mm_movemask_epi8(d) << 48;
}

struct vectors {
    __m128i v[4];
};

INLINE struct vectors load(const unsigned char *p) {
    struct vectors x;
    for (int i = 0; i < 4; i++) x.v[i] = _mm_loadu_si128((const __m128i *)(const void *)p + i);
    return x;
}

INLINE uint64_t equal(const struct vectors *x, char c) {
    const __m128i w = _mm_set1_epi8(c);
    return mask4(_mm_cmpeq_epi8(x->v[0], w), _mm_cmpeq_epi8(x->v[1], w), _mm_cmpeq_epi8(x->v[2], w),
                 _mm_cmpeq_epi8(x->v[3], w));
}

/* At most ' ': outside of strings valid JSON has white space alone there. */
INLINE uint64_t at_most_space(const struct vectors *x) {
    const __m128i w = _mm_set1_epi8(' ');
    __m128i m[4];
    for (int i = 0; i < 4; i++) m[i] = _mm_cmpeq_epi8(_mm_min_epu8(x->v[i], w), x->v[i]);
    return mask4(m[0], m[1], m[2], m[3]);
}
#else
struct vectors {
    const unsigned char *p;
};

INLINE struct vectors load(const unsigned char *p) {
    return (struct vectors){p};
}

INLINE uint64_t equal(const struct vectors *x, char c) {
    uint64_t m = 0;
    for (int i = 0; i < BLOCK; i++) m |= (uint64_t)(x->p[i] == (unsigned char)c) << i;
    return m;
}

INLINE uint64_t at_most_space(const struct vectors *x) {
    uint64_t m = 0;
    for (int i = 0; i < BLOCK; i++) m |= (uint64_t)(x->p[i] <= ' ') << i;
    return m;
}
#endif

#include "proto/json_skim_walk.h"

const struct json_skim_ops json_skim_plain = JSON_SKIM_OPS;

static inline const struct json_skim_ops *ops(void) {
    const struct json_skim_ops *newer = json_skim_avx2();
    return newer != NULL ? newer : &json_skim_plain;
}

size_t json_skim_space(const char *p, size_t n, size_t at) {
    return ops()->space(p, n, at);
}

size_t json_skim_string(const char *p, size_t n, size_t at, size_t *n_bytes) {
    return ops()->string(p, n, at, n_bytes);
}

size_t json_skim_container(const char *p, size_t n, size_t at) {
    return ops()->container(p, n, at);
}

size_t json_skim_members(const char *p, size_t n, size_t at, json_skim_name_fn *which,
                         size_t *found, size_t n_found) {
    return ops()->members(p, n, at, which, found, n_found);
}

enum json_skim_item json_skim_items(const char *p, size_t n, size_t *at, size_t *depth,
                                    struct json_skim_sum *s) {
    return ops()->items(p, n, at, depth, s);
}
