/* emulated/tiles: see tiles.h. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/unit/emulated/avx512.h"
#include "tests/unit/emulated/tiles.h"

enum { TILES = 8, ROWS = 16, LINE = 64 };

static _Thread_local struct {
    bool held;
    size_t products;
    struct tile {
        int rows, bytes; /* 0: not configured */
        uint8_t data[ROWS][LINE];
    } tiles[TILES];
} state;

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "emulated AMX: fault: %s\n", what);
    abort();
}

static struct tile *tile(int t) {
    must(state.held, "no tile configuration is loaded");
    must(t >= 0 && t < TILES && state.tiles[t].rows > 0, "the tile is not configured");
    return &state.tiles[t];
}

void emu_tile_loadconfig(const void *config) {
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } c;
    memcpy(&c, config, sizeof(c));
    must(c.palette == 1 && c.start_row == 0, "palette and start row");
    for (int i = 0; i < 14; i++) must(c.zero[i] == 0, "reserved bytes are not zero");
    for (int t = 0; t < 16; t++) {
        must(c.rows[t] <= ROWS && c.bytes[t] <= LINE, "a tile of at most 16 rows of 64 bytes");
        must((c.rows[t] == 0) == (c.bytes[t] == 0), "rows without bytes or bytes without rows");
        must(t < TILES || c.rows[t] == 0, "palette 1 has eight tiles");
    }
    memset(state.tiles, 0, sizeof(state.tiles));
    for (int t = 0; t < TILES; t++) {
        state.tiles[t].rows = c.rows[t];
        state.tiles[t].bytes = c.bytes[t];
    }
    state.held = true;
}

void emu_tile_release(void) {
    memset(state.tiles, 0, sizeof(state.tiles));
    state.held = false;
}

void emu_tile_zero(int t) {
    memset(tile(t)->data, 0, sizeof(tile(t)->data));
}

void emu_tile_load(int t, const void *from, size_t stride) {
    struct tile *to = tile(t);
    memset(to->data, 0, sizeof(to->data));
    for (int r = 0; r < to->rows; r++)
        memcpy(to->data[r], (const uint8_t *)from + (size_t)r * stride, (size_t)to->bytes);
}

void emu_tile_store(int t, void *to, size_t stride) {
    const struct tile *from = tile(t);
    for (int r = 0; r < from->rows; r++)
        memcpy((uint8_t *)to + (size_t)r * stride, from->data[r], (size_t)from->bytes);
}

/* The shapes that a product asks for: acc rows(a) x bytes(b), a ... x 4 rows(b). */
static void shapes(int acc, int a, int b) {
    must(acc != a && acc != b && a != b, "a product takes three different tiles");
    must(tile(acc)->rows == tile(a)->rows, "rows of the accumulator and of the first factor");
    must(tile(acc)->bytes == tile(b)->bytes, "bytes of the accumulator and of the second factor");
    must(tile(a)->bytes == 4 * tile(b)->rows, "bytes of the first factor and rows of the second");
    state.products++;
}

/* TDPBF16PS: even and odd k apart, from zero; then their sum is added. */
void emu_tile_dpbf16ps(int acc, int a, int b) {
    shapes(acc, a, b);
    struct tile *to = tile(acc);
    const int pairs = tile(b)->rows;
    float w[ROWS][LINE / 2];
    for (int p = 0; p < pairs; p++) {
        uint16_t h[LINE / 2];
        memcpy(h, tile(b)->data[p], LINE);
        for (int i = 0; i < LINE / 2; i++) w[p][i] = emu_widened(h[i]);
    }
    for (int m = 0; m < to->rows; m++) {
        uint16_t x[LINE / 2];
        float part[LINE / 2] = {0}, sum[LINE / 4];
        memcpy(x, tile(a)->data[m], LINE);
        for (int p = 0; p < pairs; p++) {
            const float even = emu_widened(x[2 * p]), odd = emu_widened(x[2 * p + 1]);
            for (int i = 0; i < LINE / 2; i++)
                part[i] = emu_flushed(fmaf(i % 2 == 0 ? even : odd, w[p][i], part[i]));
        }
        memcpy(sum, to->data[m], LINE);
        for (int n = 0; n < LINE / 4; n++)
            sum[n] = emu_flushed(emu_flushed(sum[n]) + emu_flushed(part[2 * n] + part[2 * n + 1]));
        memcpy(to->data[m], sum, (size_t)to->bytes);
    }
}

/* TDPB..D: 32-bit sums that wrap. */
void emu_tile_dpb(int acc, int a, bool a_signed, int b, bool b_signed) {
    shapes(acc, a, b);
    struct tile *to = tile(acc);
    for (int m = 0; m < to->rows; m++) {
        uint32_t sum[LINE / 4];
        memcpy(sum, to->data[m], LINE);
        for (int k = 0; k < tile(a)->bytes; k++) {
            const uint8_t x = tile(a)->data[m][k];
            const int v = a_signed ? (int8_t)x : x;
            for (int n = 0; n < LINE / 4; n++) {
                const uint8_t y = tile(b)->data[k / 4][4 * n + k % 4];
                sum[n] += (uint32_t)(v * (b_signed ? (int8_t)y : y));
            }
        }
        memcpy(to->data[m], sum, (size_t)to->bytes);
    }
}

bool emu_tiles_held(void) {
    return state.held;
}
size_t emu_tile_products(void) {
    return state.products;
}
