/* hash: FNV-1a (Fowler, Noll and Vo, draft-eastlake-fnv): numbers that tell texts apart by chance,
 * for tables and for names of contents. Pure; no secret, and no guard against those who choose what
 * is hashed. These numbers go over the wire and stay in files, so they are what they are. */
#ifndef BATON_PROTO_HASH_H
#define BATON_PROTO_HASH_H

#include <stddef.h>
#include <stdint.h>

/* What every hash begins with. */
#define HASH64_BEGIN UINT64_C(0xcbf29ce484222325)
#define HASH32_BEGIN UINT32_C(0x811c9dc5)

/* h with one more value: a byte, as the definition has it, or something wider where only our own
 * processes compare. */
static inline uint64_t hash64_add(uint64_t h, uint64_t v) {
    return (h ^ v) * UINT64_C(0x100000001b3);
}
static inline uint32_t hash32_add(uint32_t h, uint32_t v) {
    return (h ^ v) * UINT32_C(0x01000193);
}

static inline uint64_t hash64_bytes(uint64_t h, const void *p, size_t n) {
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) h = hash64_add(h, b[i]);
    return h;
}
static inline uint32_t hash32_bytes(uint32_t h, const void *p, size_t n) {
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) h = hash32_add(h, b[i]);
    return h;
}

/* Up to its end, which is not part of it. */
static inline uint64_t hash64_text(uint64_t h, const char *s) {
    for (; *s != '\0'; s++) h = hash64_add(h, (unsigned char)*s);
    return h;
}
static inline uint32_t hash32_text(uint32_t h, const char *s) {
    for (; *s != '\0'; s++) h = hash32_add(h, (unsigned char)*s);
    return h;
}

#endif
