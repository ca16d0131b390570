/* palette.h - used only in src/io: reduces the colours of an image to 256. */
#ifndef XD_IO_PALETTE_H
#define XD_IO_PALETTE_H

#include <stdint.h>

#include "base/err.h"

/* Number of cells into which colour space is divided: 64 for each of three channels. */
enum { XD_PALETTE_CELLS = 1 << 18 };

typedef struct xd_palette {
    int     n; /* number of colours, 1 .. 256 */
    uint8_t rgb[256][3];
    /* [cell]: index of the palette colour that is nearest to the centre of the cell, or -1 if it
     * has not been computed yet. */
    int16_t nearest[XD_PALETTE_CELLS];
} xd_palette;

/* Chooses at most 256 colours for n pixels of 3 bytes. Colour space is repeatedly split: each time,
 * the box of colours with the largest squared error to its mean colour is divided. If the image's
 * colours occupy at most 256 cells of colour space, the palette consists of the mean colours of
 * these cells. */
xd_status xd_palette_make(xd_palette *p, const uint8_t *rgb, int64_t n, xd_err *e);

/* Converts an image to palette indices, w * h bytes, with error diffusion (Floyd and Steinberg) in
 * rows of alternating direction. err: scratch memory of 2 * (w + 2) * 3 ints. */
void xd_palette_draw(xd_palette *p, uint8_t *out, const uint8_t *rgb, int64_t w, int64_t h,
                     int *err);

#endif
