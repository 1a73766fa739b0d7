/* emulated/tiles: the tiles of AMX in plain C, after Intel's SDM volume 2. What the processor
 * answers with a fault ends the program with a message. Tiles belong to a thread, as they do there.
 */
#ifndef BATON_TESTS_EMULATED_TILES_H
#define BATON_TESTS_EMULATED_TILES_H

#include <stdbool.h>
#include <stddef.h>

void emu_tile_loadconfig(const void *config);
void emu_tile_release(void);
void emu_tile_zero(int t);
void emu_tile_load(int t, const void *from, size_t stride);
void emu_tile_store(int t, void *to, size_t stride);
void emu_tile_dpbf16ps(int acc, int a, int b);
void emu_tile_dpb(int acc, int a, bool a_signed, int b, bool b_signed);
/* Whether the calling thread holds tiles. */
bool emu_tiles_held(void);
/* How many products this thread has run on tiles. */
size_t emu_tile_products(void);

#endif
