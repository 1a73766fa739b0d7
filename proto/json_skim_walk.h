/* json_skim_walk: what json_skim.h promises, over blocks of 64 bytes, each of them turned into
 * masks of a bit a byte; what is done with these has no branch that depends on a byte, but where
 * something is found. Included by each file that has the vectors of an instruction set, behind its
 *
 *     struct vectors; load(p): 64 bytes;
 *     equal(&x, c), at_most_space(&x): a bit for each byte that is c, that is at most ' ' */
#include <string.h>
#include "proto/json_lex.h"
#include "proto/json_skim_ops.h"

/* ---- a block */

INLINE unsigned count(uint64_t x) {
    return (unsigned)__builtin_popcountll(x);
}

/* Bit i: whether an odd number of bits 0..i are set. */
INLINE uint64_t odd_so_far(uint64_t x) {
    for (int k = 1; k < 64; k *= 2) x ^= x << k;
    return x;
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

/* Of four brackets, open (o) and close (c) bits: how the depth changes, and its lowest on the way.
 */
#define STEP(o, c, i) (((o) >> (i)&1) - ((c) >> (i)&1))
#define TO(o, c, i)                                                                                \
    (STEP(o, c, 0) + ((i) > 0 ? STEP(o, c, 1) : 0) + ((i) > 1 ? STEP(o, c, 2) : 0) +               \
     ((i) > 2 ? STEP(o, c, 3) : 0))
#define LESS(a, b) ((a) < (b) ? (a) : (b))
#define LOW(o, c)  LESS(LESS(TO(o, c, 0), TO(o, c, 1)), LESS(TO(o, c, 2), TO(o, c, 3)))
#define NIBBLE(o, c)                                                                               \
    { TO(o, c, 3), LOW(o, c) }
#define NIBBLES4(o, c) NIBBLE(o, c), NIBBLE(o, (c) + 1), NIBBLE(o, (c) + 2), NIBBLE(o, (c) + 3)
#define NIBBLES(o)                                                                                 \
    { NIBBLES4(o, 0), NIBBLES4(o, 4), NIBBLES4(o, 8), NIBBLES4(o, 12) }
static const struct {
    signed char sum, low;
} nibbles[16][16] = {NIBBLES(0),  NIBBLES(1),  NIBBLES(2),  NIBBLES(3), NIBBLES(4),  NIBBLES(5),
                     NIBBLES(6),  NIBBLES(7),  NIBBLES(8),  NIBBLES(9), NIBBLES(10), NIBBLES(11),
                     NIBBLES(12), NIBBLES(13), NIBBLES(14), NIBBLES(15)};

/* Whether a depth, above `floor` at the block's begin, falls to it in the block. */
INLINE bool falls_to(size_t depth, size_t floor, uint64_t open, uint64_t close) {
    if (count(close) < depth - floor) return false;
    int d = (int)(depth - floor), low = d;
    uint64_t both = open | close;
    if (count(both) <= 8) {
        for (; both != 0 && d > 0; both &= both - 1) d += (open & both & (0 - both)) != 0 ? 1 : -1;
        return d == 0;
    }
    for (int i = 0; i < BLOCK; i += 4) {
        unsigned o = open >> i & 15, c = close >> i & 15;
        int l = d + nibbles[o][c].low;
        if (l < low) low = l;
        d += nibbles[o][c].sum;
    }
    return low <= 0;
}

/* The bit at which a depth that falls_to() the floor does so. */
INLINE unsigned where_it_falls(size_t depth, size_t floor, uint64_t open, uint64_t close) {
    for (uint64_t both = open | close;; both &= both - 1) {
        unsigned at = lowest(both);
        depth = (close >> at & 1) != 0 ? depth - 1 : depth + 1;
        if (depth == floor) return at;
    }
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

static size_t container_at(const char *text, size_t n, size_t at) {
    const unsigned char *p = (const unsigned char *)text;
    const char opens = text[at], closes = (char)(opens + 2); /* [ ] and { } stand two apart */
    unsigned char rest[BLOCK];
    struct carry carry = {0};
    size_t depth = 0;
    for (; at < n; at += BLOCK) {
        struct vectors x = block_at(p, n, at, rest);
        struct block b = strings_of(&x, &carry);
        if (~b.inside == 0) continue;
        uint64_t open = equal(&x, opens) & ~b.inside, close = equal(&x, closes) & ~b.inside;
        if (depth == 0) { /* the first bracket is the container's own */
            depth = 1;
            open &= open - 1;
        }
        if (falls_to(depth, 0, open, close)) return at + where_it_falls(depth, 0, open, close) + 1;
        depth = depth + count(open) - count(close);
    }
    return 0;
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
    return (size_t)((head * t->factor) >> 58) % JSON_SKIM_SLOTS;
}

struct members {
    const unsigned char *p;
    size_t n;
    const struct json_skim_names *names;
    size_t *found;
    size_t quotes[2]; /* the last two: the later first */
};

/* The last one counts, in whatever order those of a block are found. */
INLINE void found_at(const struct members *m, size_t i, size_t value) {
    if (value > m->found[i]) m->found[i] = value;
}

/* A name of len bytes that begins with head; rest: behind its first eight. */
INLINE void take_name(const struct members *m, uint64_t head, const unsigned char *rest, size_t len,
                      size_t value) {
    const size_t k = name_slot(m->names, head), i = m->names->slot[k].i;
    if (m->names->slot[k].head != head || m->names->slot[k].len != len) return;
    if (len > sizeof(head) &&
        memcmp(rest, m->names->name[i] + sizeof(head), len - sizeof(head)) != 0)
        return;
    found_at(m, i, value);
}

/* A name with escapes: none but \u00XX make one of ours. */
static void take_escaped(const struct members *m, const unsigned char *p, size_t len,
                         size_t value) {
    unsigned char rest[JSON_SKIM_NAME_BYTES_MAX];
    uint64_t head = 0;
    size_t k = 0, n;
    for (; len > 0 && k < JSON_SKIM_NAME_BYTES_MAX; p += n, len -= n, k++) {
        unsigned c = p[0];
        n = 1;
        if (c == '\\') {
            n = 6;
            if (len < n || memcmp(p + 1, "u00", 3) != 0) return;
            c = (unsigned)(p[4] - '0') * 16 + (p[5] <= '9' ? p[5] - '0' : (p[5] | 0x20) - 'a' + 10);
        }
        if (c - 'a' > 'z' - 'a' && c != '_') return;
        if (k < sizeof(head))
            head |= (uint64_t)c << 8 * k;
        else
            rest[k - sizeof(head)] = (unsigned char)c;
    }
    if (len == 0) take_name(m, head, rest, k, value);
}

/* Names of up to JSON_SKIM_SHORT_BYTES that lie in the block, all of a length at a time. The colons
 * of the others. */
INLINE uint64_t take_short(const struct members *m, const struct vectors *x, uint64_t colons,
                           uint64_t quote, size_t at) {
    uint64_t ended = colons & quote << 1; /* right behind the name */
    for (unsigned len = 1; len <= JSON_SKIM_SHORT_BYTES && ended != 0; len++) {
        const uint64_t these = ended & quote << (len + 2); /* no shorter one: no quote in between */
        ended &= ~these;
        if (these == 0) continue;
        for (size_t i = 0; i < m->names->n_of_len[len]; i++) {
            const unsigned char k = m->names->of_len[len][i];
            uint64_t hits = these;
            for (unsigned b = 0; b < len && hits != 0; b++)
                hits &= equal(x, m->names->name[k][b]) << (len + 1 - b);
            if (hits != 0) found_at(m, k, at + highest(hits) + 1);
        }
        colons &= ~these;
    }
    return colons;
}

/* Of long names, and those that began in an earlier block. */
INLINE void take_long(const struct members *m, uint64_t colons, uint64_t quote, size_t at,
                      uint64_t slashes) {
    for (; colons != 0; colons &= colons - 1) {
        unsigned colon = lowest(colons);
        uint64_t before = quote & below(colon);
        size_t end = m->quotes[0], open = m->quotes[1];
        if (before != 0) {
            unsigned bit = highest(before);
            end = at + bit;
            before ^= (uint64_t)1 << bit;
            open = before != 0 ? at + highest(before) : m->quotes[0];
        }
        size_t len = end - open - 1, value = at + colon + 1; /* 0: wraps below; none of ours */
        const unsigned char *name = m->p + open + 1;
        if (len - 1 >= 6 * JSON_SKIM_NAME_BYTES_MAX) continue;
        if (open < at || (slashes & below(colon) & ~below((unsigned)(open - at))) != 0)
            take_escaped(m, name, len, value);
        else if (len <= JSON_SKIM_NAME_BYTES_MAX)
            take_name(m, name_head(name, len, m->n - open - 1), name + sizeof(uint64_t), len,
                      value);
    }
}

static __attribute__((noinline)) void take_these(const struct members *m, const struct vectors *x,
                                                 uint64_t colons, uint64_t quote, size_t at,
                                                 uint64_t slashes) {
    take_long(m, take_short(m, x, colons, quote, at), quote, at, slashes);
}

/* The colons at these bits of the block at p[at] end names of the object. */
INLINE void take_names(const struct members *m, const struct vectors *x, uint64_t colons,
                       uint64_t quote, size_t at, uint64_t slashes) {
    colons &= ~((quote & quote << 1) << 1); /* behind "" */
    if (colons != 0) take_these(m, x, colons, quote, at, slashes);
}

INLINE void keep_quotes(struct members *m, uint64_t quote, size_t at) {
    if (quote == 0) return;
    unsigned last = highest(quote);
    quote ^= (uint64_t)1 << last;
    m->quotes[1] = quote != 0 ? at + highest(quote) : m->quotes[0];
    m->quotes[0] = at + last;
}

/* A block whose curly brackets nest in the objects beside or in them. *depth: of objects; 0 when
 * ours ends in it: the bit of its end. */
INLINE unsigned walk_nests(const struct members *m, const struct vectors *x, size_t *depth,
                           uint64_t open, uint64_t close, uint64_t colons, uint64_t quote,
                           size_t at, uint64_t slashes) {
    uint64_t both = open | close, ours = 0;
    unsigned from = 0;
    size_t d = *depth;
    for (; both != 0; both &= both - 1) {
        unsigned bit = lowest(both);
        if (d == 1) ours |= colons & below(bit) & ~below(from);
        from = bit;
        d = (close >> bit & 1) != 0 ? d - 1 : d + 1;
        if (d == 0) break;
    }
    if (d == 1) ours |= colons & ~below(from);
    take_names(m, x, ours, quote, at, slashes);
    *depth = d;
    return from;
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
        uint64_t empty = open & close >> 1;
        open &= ~empty;
        close &= ~(empty << 1);
        uint64_t in_other = odd_so_far(open | close);
        if ((open | close) == 0) {
            if (depth == 1) take_names(&m, &x, colons, b.quote, at, b.escapes);
        } else if (depth == 1 && (in_other & (open | close)) == open) { /* side by side */
            take_names(&m, &x, colons & ~in_other, b.quote, at, b.escapes);
            depth += in_other >> 63;
        } else if (depth == 2 && (~in_other & (open | close)) == open) {
            take_names(&m, &x, colons & in_other, b.quote, at, b.escapes);
            depth -= in_other >> 63;
        } else if (depth > 1 && !falls_to(depth, 1, open, close)) {
            depth = depth + count(open) - count(close);
        } else {
            unsigned end = walk_nests(&m, &x, &depth, open, close, colons, b.quote, at, b.escapes);
            if (depth == 0) {
                at += end + 1;
                break;
            }
        }
        keep_quotes(&m, b.quote, at);
    }
    if (depth != 0) return 0;
    for (size_t i = 0; i < names->n; i++)
        if (found[i] != 0) found[i] = space_at(text, n, found[i]);
    return at;
}

/* ---- items */

/* Items of the outermost array that end in the block, up to bit `end`. */
INLINE void count_items(struct json_skim_sum *s, size_t depth, uint64_t open, uint64_t close,
                        uint64_t commas) {
    uint64_t both = open | close;
    unsigned from = 0;
    if (s->n_items >= s->n_items_max) return;
    for (; both != 0; both &= both - 1) {
        unsigned bit = lowest(both);
        if (depth == 1) s->n_items += count(commas & below(bit) & ~below(from));
        from = bit;
        depth = (close >> bit & 1) != 0 ? depth - 1 : depth + 1;
    }
    if (depth == 1) s->n_items += count(commas & ~below(from));
}

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
        uint64_t one_deep = odd_so_far(open | close); /* where lists lie side by side */
        if (depth == 2) one_deep = ~one_deep;
        bool beside = depth <= 2 && (one_deep & (open | close)) == open;
        if (!beside && falls_to(depth, 0, open, close)) {
            bit = where_it_falls(depth, 0, open, close);
            stop = JSON_SKIM_END;
            upto = below(bit) | (uint64_t)1 << bit;
            outside &= upto;
            open &= upto;
            close &= upto;
        }
        commas &= outside;
        uint64_t scalar = outside & ~(b.quote | open | close | commas | curly | equal(&x, ':') |
                                      at_most_space(&x));
        s->n_scalars += count(scalar & ~(scalar << 1 | in_scalar));
        s->n_text_bytes += count(b.inside & ~b.quote & upto);
        if ((open | close) == 0) {
            if (depth == 1) s->n_items += count(commas);
        } else if (beside) {
            s->n_items += count(commas & ~one_deep);
            depth = 1 + (one_deep >> 63);
        } else {
            count_items(s, depth, open, close, commas);
            depth = depth + count(open) - count(close);
        }
        if (bit < BLOCK) {
            *at_ptr = at + bit + (stop == JSON_SKIM_END);
            *depth_ptr = depth;
            return stop;
        }
        in_scalar = scalar >> 63;
    }
    return JSON_SKIM_BAD;
}
