/* siphash: two rounds a word, four at the end; words are read little-endian whatever the host. */
#include "common/engine/siphash.h"

struct sip {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotl(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static void rounds(struct sip *s, int n) {
    for (; n > 0; n--) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 = rotl(s->v2, 32);
    }
}

static uint64_t word(const uint8_t *p, size_t n) {
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++) w |= (uint64_t)p[i] << (8 * i);
    return w;
}

static void absorb(struct sip *s, uint64_t w) {
    s->v3 ^= w;
    rounds(s, 2);
    s->v0 ^= w;
}

uint64_t siphash24(const uint8_t key[16], const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    uint64_t k0 = word(key, 8), k1 = word(key + 8, 8);
    struct sip s = {
        k0 ^ 0x736f6d6570736575u,
        k1 ^ 0x646f72616e646f6du,
        k0 ^ 0x6c7967656e657261u,
        k1 ^ 0x7465646279746573u,
    };
    uint64_t last = (uint64_t)n << 56;
    for (; n >= 8; p += 8, n -= 8) absorb(&s, word(p, 8));
    absorb(&s, last | word(p, n));
    s.v2 ^= 0xff;
    rounds(&s, 4);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
