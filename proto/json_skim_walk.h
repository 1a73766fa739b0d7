/* json_skim_walk: what json_skim.h promises, over blocks of 64 bytes, each of them turned into
 * masks of a bit a byte; what is done with these has no branch that depends on a byte, but where
 * something is found. Included by each file that has the vectors of an instruction set, behind its
 *
 *     struct vectors; load(p): 64 bytes;
 *     equal(&x, c), at_most_space(&x): a bit for each byte that is c, that is at most ' '
 *     odd_so_far(m): bit i: whether an odd number of bits 0..i are set */
#include <string.h>
#include "proto/json_lex.h"
#include "proto/json_skim_ops.h"

/* ---- a block */

INLINE unsigned count(uint64_t x) {
    return (unsigned)__builtin_popcountll(x);
}

INLINE uint64_t below(unsigned bit) {
    return ((uint64_t)1 << bit) - 1;
}

INLINE unsigned lowest(uint64_t x) {
    return (unsigned)__builtin_ctzll(x);
}

INLINE unsigned highest(uint64_t x) {
    return 63 - (unsigned)__builtin_clzll(x);
}

/* What goes from a block to the next. */
struct carry {
    uint64_t inside;  /* all ones: a string goes on */
    uint64_t escaped; /* 1: the next byte has a backslash before it */
};

/* Bytes that a backslash before them escapes. A run of backslashes that begins at an even bit ends,
 * when it is odd in length, at an odd one; adding its first bit to it shows where it ends (Langdale
 * and Lemire, "Parsing gigabytes of JSON per second", 3.1.1). */
INLINE uint64_t escaped_of(uint64_t slash, uint64_t *carry) {
    const uint64_t even = 0x5555555555555555u;
    uint64_t first = *carry;
    slash &= ~first; /* escaped itself */
    uint64_t behind = slash << 1 | first, odd_starts = slash & ~even & ~behind,
             ends = odd_starts + slash;
    *carry = ends < slash;
    return (even ^ ends << 1) & behind;
}

struct block {
    uint64_t quote;   /* of strings: those that open and those that close them */
    uint64_t inside;  /* bytes of strings, with the opening quote, without the closing one */
    uint64_t escapes; /* backslashes in strings */
};

INLINE struct block strings_of(const struct vectors *x, struct carry *c) {
    struct block b = {.escapes = equal(x, '\\')};
    b.quote = equal(x, '"');
    if ((b.escapes | c->escaped) != 0) b.quote &= ~escaped_of(b.escapes, &c->escaped);
    b.inside = b.quote != 0 ? odd_so_far(b.quote) ^ c->inside : c->inside;
    c->inside = (uint64_t)0 - (b.inside >> 63);
    return b;
}

/* The 64 bytes at p[at], spaces behind the end of the text. */
INLINE struct vectors block_at(const unsigned char *p, size_t n, size_t at,
                               unsigned char rest[BLOCK]) {
    if (n - at >= BLOCK) return load(p + at);
    memset(rest, ' ', BLOCK);
    memcpy(rest, p + at, n - at);
    return load(rest);
}

/* ---- depth */

/* Where in a block the depth is 1, up to its end; what it becomes goes on in *depth, which is above
 * 0. *end: the bit of the bracket by which it falls to 0, BLOCK when none does.
 * The depth is counted bit by bit, at all bytes at once: each of its bits turns over at the
 * brackets that carry or borrow from the bit below. A depth that can come to 1 in the block stays
 * below 128 before the end; what is counted behind it means nothing. */
INLINE uint64_t one_deep(size_t *depth, uint64_t open, uint64_t close, unsigned *end) {
    size_t d = *depth;
    *end = BLOCK;
    *depth = d + count(open) - count(close);
    if (count(close) + 1 < d) return 0;
    uint64_t bit = odd_so_far(open | close) ^ ((uint64_t)0 - (d & 1)), odd = bit, more = 0;
    for (int i = 1; i < 7; i++) {
        open &= ~bit;
        close &= bit;
        d >>= 1;
        if ((open | close) == 0) { /* the bits from this one up stay as they are */
            if (d != 0) return 0;
            break;
        }
        bit = odd_so_far(open | close) ^ ((uint64_t)0 - (d & 1));
        more |= bit;
    }
    uint64_t none = ~(odd | more);
    if (none != 0) {
        *end = lowest(none);
        *depth = 0;
    }
    return odd & ~more & (none ^ (none - 1));
}

static size_t space_at(const char *text, size_t n, size_t at) {
    if (at < n && !json_is_space((unsigned char)text[at])) return at;
    while (n - at >= BLOCK) {
        struct vectors x = load((const unsigned char *)text + at);
        if (~at_most_space(&x) != 0) break;
        at += BLOCK;
    }
    while (at < n && json_is_space((unsigned char)text[at])) at++;
    return at;
}

/* Bytes of UTF-8 that the escape \uXXXX stands for, its digits at p; half of a pair: two. */
INLINE unsigned bytes_of_u(const unsigned char *p) {
    if (p[0] == '0' && p[1] <= '7') return p[1] != '0' || p[2] > '7' ? 2 : 1;
    return (p[0] | 0x20) == 'd' && p[1] > '7' ? 2 : 3;
}

static size_t string_at(const char *text, size_t n, size_t at, size_t *n_bytes) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned char rest[BLOCK];
    size_t from = at + 1, saved = 0;
    for (uint64_t carry = 0, end; from < n; from += BLOCK) {
        struct vectors x = block_at(p, n, from, rest);
        uint64_t quote = equal(&x, '"'), slash = equal(&x, '\\'), escaped = 0;
        if ((slash | carry) != 0) escaped = escaped_of(slash, &carry);
        end = quote & ~escaped;
        if (end != 0) escaped &= below(lowest(end));
        saved += count(escaped);
        if (escaped != 0) {
            for (uint64_t u = escaped & equal(&x, 'u'); u != 0; u &= u - 1) {
                size_t digits = from + lowest(u) + 1;
                if (n - digits >= 4) saved += 5 - bytes_of_u(p + digits);
            }
        }
        if (end == 0) continue;
        from += lowest(end);
        *n_bytes = from - at - 1 - (saved < from - at - 1 ? saved : 0);
        return from + 1;
    }
    return 0;
}

/* Behind the bracket by which the depth, counted by brackets of this kind, falls to 0. */
INLINE size_t end_of(const char *text, size_t n, size_t at, size_t depth, char opens) {
    const unsigned char *p = (const unsigned char *)text;
    const char closes = (char)(opens + 2); /* [ ] and { } stand two apart */
    unsigned char rest[BLOCK];
    struct carry carry = {0};
    for (; at < n; at += BLOCK) {
        struct vectors x = block_at(p, n, at, rest);
        struct block b = strings_of(&x, &carry);
        uint64_t open = equal(&x, opens) & ~b.inside, close = equal(&x, closes) & ~b.inside;
        unsigned end;
        if ((open | close) == 0) continue;
        (void)one_deep(&depth, open, close, &end);
        if (depth == 0) return at + end + 1;
    }
    return 0;
}

static size_t container_at(const char *text, size_t n, size_t at) {
    return end_of(text, n, at + 1, 1, text[at]);
}

static size_t arrays_end_from(const char *text, size_t n, size_t at, size_t depth) {
    return end_of(text, n, at, depth, '[');
}

/* ---- members */

/* The first eight of len bytes, of which `left` may be read; zeros behind the last. */
INLINE uint64_t name_head(const unsigned char *p, size_t len, size_t left) {
    uint64_t head = 0;
    if (left < sizeof(head)) {
        for (size_t i = 0; i < len; i++) head |= (uint64_t)p[i] << 8 * i;
        return head;
    }
    memcpy(&head, p, sizeof(head));
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) head = __builtin_bswap64(head);
    return len < sizeof(head) ? head & below((unsigned)len * 8) : head;
}

INLINE size_t name_slot(const struct json_skim_names *t, uint64_t head) {
    return (size_t)((head * t->factor) >> 57) % JSON_SKIM_SLOTS;
}

struct members {
    const unsigned char *p;
    size_t n;
    const struct json_skim_names *names;
    size_t *found;
    size_t open, close; /* quotes: the last ones of earlier blocks */
};

/* A name of len bytes that begins with head; rest: behind its first eight. The last one counts. */
INLINE void take_name(const struct members *m, uint64_t head, const unsigned char *rest, size_t len,
                      size_t value) {
    const size_t k = name_slot(m->names, head), i = m->names->slot[k].i;
    if (m->names->slot[k].head != head || m->names->slot[k].len != len) return;
    if (len > sizeof(head) &&
        memcmp(rest, m->names->name[i] + sizeof(head), len - sizeof(head)) != 0)
        return;
    m->found[i] = value;
}

INLINE unsigned hex_digit(unsigned char c) {
    return (c & 15u) + (c >> 6) * 9u;
}

enum { ESCAPE_BYTES = 6 }; /* \uXXXX */

/* A name with escapes, of valid JSON: none but \u00XX make one of ours. */
INLINE void take_escaped(const struct members *m, const unsigned char *p, size_t len,
                         size_t value) {
    unsigned char rest[JSON_SKIM_NAME_BYTES_MAX];
    const unsigned char *const end = p + len;
    uint64_t head = 0;
    size_t k = 0;
    for (; p < end && k < JSON_SKIM_NAME_BYTES_MAX; k++) {
        unsigned c = *p++;
        if (c == '\\') {
            if (end - p < ESCAPE_BYTES - 1 || memcmp(p - 1, "\\u00", 4) != 0) return;
            c = hex_digit(p[3]) << 4 | hex_digit(p[4]);
            p += ESCAPE_BYTES - 1;
        }
        if (k < sizeof(head))
            head |= (uint64_t)c << 8 * k;
        else
            rest[k - sizeof(head)] = (unsigned char)c;
    }
    if (p == end) take_name(m, head, rest, k, value);
}

/* A name that began in an earlier block, or has escapes. */
static __attribute__((noinline)) void take_rare(const struct members *m, size_t open, size_t close,
                                                size_t value) {
    const size_t len = close - open - 1;
    if (len - 1 < ESCAPE_BYTES * JSON_SKIM_NAME_BYTES_MAX)
        take_escaped(m, m->p + open + 1, len, value);
}

/* The name that a colon ends is in the block at p[at], from behind the last of opens up to the last
 * of closes. */
INLINE void take_whole(const struct members *m, uint64_t opens, uint64_t closes, uint64_t escapes,
                       size_t at, size_t value) {
    const unsigned open = highest(opens);
    const size_t from = at + open + 1, len = highest(closes) - open - 1;
    if (escapes >> open != 0) {
        if (len >= ESCAPE_BYTES) take_rare(m, from - 1, from + len, value);
    } else if (len - 1 < JSON_SKIM_NAME_BYTES_MAX) {
        take_name(m, name_head(m->p + from, len, m->n - from), m->p + from + sizeof(uint64_t), len,
                  value);
    }
}

/* The colons at these bits of the block at p[at] end names of the object. Only the first of them
 * can end one that began in an earlier block. */
INLINE void take_names(const struct members *m, uint64_t colons, const struct block *b, size_t at) {
    const struct members l = *m; /* which no store can change */
    const uint64_t opens = b->quote & b->inside, closes = b->quote & ~b->inside,
                   escapes = b->escapes;
    uint64_t upto = colons ^ (colons - 1);
    if (colons != 0 && (opens & upto) == 0) {
        take_rare(&l, l.open, (closes & upto) != 0 ? at + highest(closes & upto) : l.close,
                  at + lowest(colons) + 1);
    }
    colons &= (uint64_t)0 - (opens & ((uint64_t)0 - opens)); /* behind the first of opens */
    colons &= ~((opens & closes >> 1) << 2);                 /* behind "" */
    if (escapes != 0) {
        for (; colons != 0; colons &= colons - 1) {
            upto = colons ^ (colons - 1);
            take_whole(&l, opens & upto, closes & upto, escapes & upto, at,
                       at + lowest(colons) + 1);
        }
    } else {
        for (; colons != 0; colons &= colons - 1) {
            upto = colons ^ (colons - 1);
            take_whole(&l, opens & upto, closes & upto, 0, at, at + lowest(colons) + 1);
        }
    }
}

static size_t members_at(const char *text, size_t n, size_t at, const struct json_skim_names *names,
                         size_t *found) {
    const unsigned char *p = (const unsigned char *)text;
    struct members m = {.p = p, .n = n, .names = names, .found = found};
    unsigned char rest[BLOCK];
    struct carry carry = {0};
    size_t depth = 1;
    memset(found, 0, names->n * sizeof(*found));
    for (at++; at < n; at += BLOCK) {
        struct vectors x = block_at(p, n, at, rest);
        struct block b = strings_of(&x, &carry);
        if (~b.inside == 0 && b.quote == 0) continue;
        uint64_t open = equal(&x, '{') & ~b.inside, close = equal(&x, '}') & ~b.inside,
                 colons = equal(&x, ':') & ~b.inside;
        unsigned end = BLOCK;
        if ((open | close) != 0)
            colons &= one_deep(&depth, open, close, &end);
        else if (depth != 1)
            colons = 0;
        take_names(&m, colons, &b, at);
        if (depth == 0) {
            at += end + 1;
            break;
        }
        if ((b.quote & b.inside) != 0) m.open = at + highest(b.quote & b.inside);
        if ((b.quote & ~b.inside) != 0) m.close = at + highest(b.quote & ~b.inside);
    }
    if (depth != 0) return 0;
    for (size_t i = 0; i < names->n; i++)
        if (found[i] != 0) found[i] = space_at(text, n, found[i]);
    return at;
}

/* ---- items */

static enum json_skim_item items_from(const char *text, size_t n, size_t *at_ptr, size_t *depth_ptr,
                                      struct json_skim_sum *s) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned char rest[BLOCK];
    size_t at = *at_ptr, depth = *depth_ptr;
    bool in_scalar = false; /* the byte before belongs to one */
    for (; at < n; at += BLOCK) {
        struct carry carry = {
            0}; /* a string that goes on into the next block is given away whole */
        struct vectors x = block_at(p, n, at, rest);
        struct block b = strings_of(&x, &carry);
        uint64_t open = equal(&x, '['), close = equal(&x, ']'), commas = equal(&x, ','),
                 objects = equal(&x, '{') & ~b.inside, upto = ~(uint64_t)0;
        enum json_skim_item stop = JSON_SKIM_BAD;
        unsigned bit = BLOCK;
        uint64_t curly = objects | equal(&x, '}'); /* left of it below: those of {} */
        objects &= ~(equal(&x, '}') >> 1);
        uint64_t odd = (b.inside & b.escapes) | (carry.inside & (uint64_t)1 << 63);
        if (odd != 0) { /* the string that the first of them is in */
            bit = highest(b.quote & b.inside & (odd ^ (odd - 1)));
            stop = JSON_SKIM_STRING;
        }
        if (objects != 0 && lowest(objects) < bit) {
            bit = lowest(objects);
            stop = JSON_SKIM_OBJECT;
        }
        if (bit < BLOCK) upto = below(bit);
        uint64_t outside = ~b.inside & upto;
        open &= outside;
        close &= outside;
        uint64_t outermost = (uint64_t)0 - (depth == 1);
        if ((open | close) != 0) {
            unsigned end;
            outermost = one_deep(&depth, open, close, &end);
            if (depth == 0) {
                bit = end;
                stop = JSON_SKIM_END;
                upto = below(bit) | (uint64_t)1 << bit;
                outside &= upto;
            }
        }
        commas &= outside;
        uint64_t scalar = outside & ~(b.quote | open | close | commas | curly | equal(&x, ':') |
                                      at_most_space(&x));
        s->n_scalars += count(scalar & ~(scalar << 1 | in_scalar));
        s->n_text_bytes += count(b.inside & ~b.quote & upto);
        s->n_items += count(commas & outermost);
        if (bit < BLOCK) {
            *at_ptr = at + bit + (stop == JSON_SKIM_END);
            *depth_ptr = depth;
            return stop;
        }
        in_scalar = scalar >> 63;
    }
    return JSON_SKIM_BAD;
}
