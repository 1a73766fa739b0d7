/* kernels_tile_loops: what the matrix products of one instruction set have in common: how far ahead
 * weights are fetched, and a loop for every count of rows and panels. ONCE_AHEAD_BYTES, optional:
 * the set has gemm_once, which fetches so far ahead. */
#define INLINE static inline __attribute__((always_inline))

/* Of both kinds of products. Weights are fetched so far ahead, all panels of a tile together: the
 * hardware stops at every 4 KiB. And up to so many rows take all of k in one: memory is read in one
 * stream then. More rows take it in slices: a tile of rows meets all panels of an item while it is
 * at hand, and these stay in a cache (SLICE_BYTES) for the next tile. */
enum { AHEAD_BYTES = 4096, ITEM_PANELS = 4 };
#ifndef WHOLE_K_ROWS
#define WHOLE_K_ROWS 32
#endif
/* Of a single row. */
#ifndef ROW_AHEAD_BYTES
#define ROW_AHEAD_BYTES AHEAD_BYTES
#endif

/* once: see gemm_once in kernels.h. A set without ONCE_AHEAD_BYTES knows no such fetches. */
INLINE size_t ahead_bytes(int rows, int panels, bool once) {
#ifdef ONCE_AHEAD_BYTES
    if (once) return ONCE_AHEAD_BYTES / (size_t)panels;
#endif
    (void)once;
    return (rows == 1 ? ROW_AHEAD_BYTES : AHEAD_BYTES) / (size_t)panels;
}

INLINE void fetch(const void *p, bool once) {
    if (once)
        __builtin_prefetch(p, 0, 0);
    else
        __builtin_prefetch(p);
}

/* LOOP(rows, panels, once) for the tile at hand, of either kind: constants make a loop each. */
#define TILE_CASE(LOOP, R, P)                                                                      \
    case (R)*8 + (P):                                                                              \
        LOOP(R, P, false);                                                                         \
        break;
#define TILE_CASE_1(LOOP, P)                                                                       \
    case 8 + (P):                                                                                  \
        if (once) {                                                                                \
            LOOP(1, P, true);                                                                      \
        } else {                                                                                   \
            LOOP(1, P, false);                                                                     \
        }                                                                                          \
        break;
#if TILE_PANELS(6) == 4
#define TILE_WIDE(LOOP)                                                                            \
    TILE_CASE(LOOP, 2, 4)                                                                          \
    TILE_CASE(LOOP, 3, 2)                                                                          \
    TILE_CASE(LOOP, 3, 4)                                                                          \
    TILE_CASE(LOOP, 4, 2)                                                                          \
    TILE_CASE(LOOP, 4, 4)                                                                          \
    TILE_CASE(LOOP, 5, 2)                                                                          \
    TILE_CASE(LOOP, 5, 4)                                                                          \
    TILE_CASE(LOOP, 6, 2)                                                                          \
    TILE_CASE(LOOP, 6, 4)
#else
#define TILE_WIDE(LOOP)
#endif
#define TILE_SWITCH(LOOP)                                                                          \
    switch (rows * 8 + panels) {                                                                   \
        TILE_CASE_1(LOOP, 1)                                                                       \
        TILE_CASE_1(LOOP, 2)                                                                       \
        TILE_CASE_1(LOOP, 4)                                                                       \
        TILE_CASE(LOOP, 2, 1)                                                                      \
        TILE_CASE(LOOP, 2, 2)                                                                      \
        TILE_CASE(LOOP, 3, 1)                                                                      \
        TILE_CASE(LOOP, 4, 1)                                                                      \
        TILE_CASE(LOOP, 5, 1)                                                                      \
        TILE_CASE(LOOP, 6, 1)                                                                      \
        TILE_WIDE(LOOP)                                                                            \
    }
