/* amx.h - the tile registers of AMX: eight, of 16 rows of 64 bytes
 *
 * Tiles 0 to 3 are sums, 4 and 5 are loaded from inputs, 6 and 7 from weights, as far as a kernel
 * does not say otherwise. A kernel's file is compiled with -mamx-tile and what it multiplies. */
#ifndef XD_BACKEND_CPU_AMX_H
#define XD_BACKEND_CPU_AMX_H

#include <immintrin.h>
#include <stdint.h>

typedef struct xd_tile_config {         /* as ldtilecfg reads it: 64 bytes                    */
    uint8_t  palette, start_row, unused[14];
    uint16_t bytes[16];                 /* of a row                                           */
    uint8_t  rows[16];
} xd_tile_config;

/* All eight whole; they are zero then. */
static inline void xd_tiles_begin(void)
{
    static const xd_tile_config whole = {
        .palette = 1,
        .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
        .rows = { 16, 16, 16, 16, 16, 16, 16, 16 },
    };
    _tile_loadconfig(&whole);
}

/* Tiles that are not in use cost nothing when the system changes threads. */
static inline void xd_tiles_end(void)
{
    _tile_release();
}

#endif
