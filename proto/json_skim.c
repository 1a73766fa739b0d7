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

INLINE uint64_t odd_so_far(uint64_t x) {
    for (int k = 1; k < 64; k *= 2) x ^= x << k;
    return x;
}

#include "proto/json_skim_walk.h"

const struct json_skim json_skim_plain = JSON_SKIM_OPS;

const struct json_skim *json_skim(void) {
    const struct json_skim *newer = json_skim_avx2();
    return newer != NULL ? newer : &json_skim_plain;
}

/* Every name has a slot of its own. */
static bool fill(struct json_skim_names *t) {
    memset(t->slot, 0, sizeof(t->slot));
    for (size_t i = 0; i < t->n; i++) {
        const size_t len = strlen(t->name[i]);
        const uint64_t head = name_head((const unsigned char *)t->name[i], len, len);
        const size_t k = name_slot(t, head);
        if (t->slot[k].len != 0) return false;
        t->slot[k].head = head;
        t->slot[k].len = (unsigned char)len;
        t->slot[k].i = (unsigned char)i;
    }
    return true;
}

void json_skim_names_init(struct json_skim_names *t, const char *const *names, size_t n) {
    *t = (struct json_skim_names){.name = names, .n = n, .factor = 0x9e3779b97f4a7c15u};
    while (!fill(t)) t->factor += 2;
}
