/* emulated/amx: the intrinsics of AMX as tiles.h has them, for common/engine/kernels_amx.c; see
 * avx512.h. */
#ifndef BATON_TESTS_EMULATED_AMX_H
#define BATON_TESTS_EMULATED_AMX_H

#include "tests/unit/emulated/avx512.h"
#include "tests/unit/emulated/tiles.h"

#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#undef _tile_dpbusd
#define _tile_loadconfig(c)                 emu_tile_loadconfig(c)
#define _tile_release()                     emu_tile_release()
#define _tile_zero(t)                       emu_tile_zero(t)
#define _tile_loadd(t, from, stride)        emu_tile_load(t, from, stride)
#define _tile_stream_loadd(t, from, stride) emu_tile_load(t, from, stride)
#define _tile_stored(t, to, stride)         emu_tile_store(t, to, stride)
#define _tile_dpbf16ps(acc, a, b)           emu_tile_dpbf16ps(acc, a, b)
#define _tile_dpbssd(acc, a, b)             emu_tile_dpb(acc, a, true, b, true)
#define _tile_dpbusd(acc, a, b)             emu_tile_dpb(acc, a, false, b, true)

#endif
