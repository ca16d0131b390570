/* palette.h - inside io: 256 colours for many pixels */
#ifndef XD_IO_PALETTE_H
#define XD_IO_PALETTE_H

#include <stdint.h>

#include "base/err.h"

enum { XD_PALETTE_CELLS = 1 << 18 };    /* colours of 6 bits a channel                         */

typedef struct xd_palette {
    int     n;                          /* 1 .. 256                                            */
    uint8_t rgb[256][3];
    int16_t nearest[XD_PALETTE_CELLS];  /* of a cell's middle, from -1: not looked for yet     */
} xd_palette;

/* Chooses colours for n pixels of 3 bytes: boxes in colour space are cut where the squared error of
 * generating all of a box in its mean is greatest. Images of up to 256 cells keep their colours
 * (the mean of each cell's). */
xd_status xd_palette_make(xd_palette *p, const uint8_t *rgb, int64_t n, xd_err *e);

/* An image as numbers of colours, w * h bytes, errors diffused to the neighbours (Floyd and
 * Steinberg) in rows of alternating direction. `err` has room for 2 * (w + 2) * 3 ints. */
void      xd_palette_draw(xd_palette *p, uint8_t *out, const uint8_t *rgb, int64_t w, int64_t h, int *err);

#endif
