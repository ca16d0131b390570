/* amx.h - configures and releases the eight tile registers of AMX, each of which has 16 rows of 64
 * bytes.
 *
 * Unless the comment of a kernel says otherwise, tiles 0 to 3 hold accumulators, tiles 4 and 5 hold
 * inputs, and tiles 6 and 7 hold weights. Files with AMX kernels are compiled with -mamx-tile and
 * with the compiler option of the tile multiply that they use, such as -mamx-bf16. */
#ifndef XD_BACKEND_CPU_AMX_H
#define XD_BACKEND_CPU_AMX_H

#include <immintrin.h>
#include <stdint.h>

typedef struct xd_tile_config { /* operand of the instruction ldtilecfg, 64 bytes */
    uint8_t  palette, start_row, unused[14];
    uint16_t bytes[16]; /* bytes in a row of each tile */
    uint8_t  rows[16];
} xd_tile_config;

/* Configures all eight tiles at full size. xd_tiles_begin also sets the tiles to zero. */
static inline void xd_tiles_begin(void)
{
    static const xd_tile_config whole = {
        .palette = 1,
        .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
        .rows = { 16, 16, 16, 16, 16, 16, 16, 16 },
    };
    _tile_loadconfig(&whole);
}

/* Releases the tiles. The operating system does not save released tiles at a context switch. */
static inline void xd_tiles_end(void)
{
    _tile_release();
}

#endif
