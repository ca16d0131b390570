/* palette.c - reduces an image to 256 colours by repeatedly splitting the box of colours with the
 * largest variance, and dithers the image */
#include "io/palette.h"

#include <stdlib.h>
#include <string.h>

typedef struct cell { /* all pixels whose colours have the same upper 6 bits in every channel */
    int64_t n, sum[3];
} cell;

typedef struct box {
    int64_t from, to, n; /* from, to: range of cells in the list; n: number of pixels */
    /* mean: mean colour; axis: colour channel with the largest squared error; worst: this squared
     * error */
    double  mean[3], worst;
    int     axis;
} box;

static int cell_of(const uint8_t *p)
{
    return p[0] >> 2 << 12 | p[1] >> 2 << 6 | p[2] >> 2;
}

static double axis_value(const cell *c, int axis)
{
    return (double)c->sum[axis] / (double)c->n;
}

static void measure_box(box *b, const cell *cells)
{
    double sum[3] = { 0 }, square[3] = { 0 };
    b->n = 0;
    b->worst = 0;
    for (int64_t i = b->from; i < b->to; i++) {
        b->n += cells[i].n;
        for (int k = 0; k < 3; k++) {
            double v = axis_value(&cells[i], k);
            sum[k] += (double)cells[i].sum[k];
            square[k] += v * v * (double)cells[i].n;
        }
    }
    for (int k = 0; k < 3; k++) {
        b->mean[k] = sum[k] / (double)b->n;
        double error = square[k] - b->mean[k] * sum[k];
        if (b->to - b->from > 1 && error >= b->worst)
            b->worst = error, b->axis = k;
    }
}

/* Splits the box `b` of colours at its mean: cells above the mean become the new box `more`.
 * Returns 0 if no cell is above the mean. */
static int split_box(box *b, box *more, cell *cells)
{
    int64_t at = b->from;
    double  mean = b->mean[b->axis];
    for (int64_t i = b->from; i < b->to; i++)
        if (axis_value(&cells[i], b->axis) <= mean) {
            cell c = cells[i];
            cells[i] = cells[at];
            cells[at++] = c;
        }
    if (at == b->from || at == b->to)
        return 0;
    *more = (box){ .from = at, .to = b->to };
    b->to = at;
    measure_box(b, cells);
    measure_box(more, cells);
    return 1;
}

static int worst_of(const box *b, int n)
{
    int at = -1;
    for (int i = 0; i < n; i++)
        if (b[i].to - b[i].from > 1 && b[i].worst >= 0 && (at < 0 || b[i].worst > b[at].worst))
            at = i;
    return at;
}

static int64_t fill_cells(cell *cells, const uint8_t *rgb, int64_t n)
{
    int64_t used = 0;
    for (int64_t i = 0; i < n; i++, rgb += 3) {
        cell *c = &cells[cell_of(rgb)];
        c->n++;
        for (int k = 0; k < 3; k++)
            c->sum[k] += rgb[k];
    }
    for (int i = 0; i < XD_PALETTE_CELLS; i++)
        if (cells[i].n)
            cells[used++] = cells[i];
    return used;
}

xd_status xd_palette_make(xd_palette *p, const uint8_t *rgb, int64_t n, xd_err *e)
{
    box   boxes[256] = { { 0 } };
    cell *cells = calloc(XD_PALETTE_CELLS, sizeof *cells);
    if (!cells)
        return xd_fail(e, XD_ENOMEM, "no memory to count colours");
    boxes[0].to = fill_cells(cells, rgb, n);
    measure_box(&boxes[0], cells);
    p->n = 1;
    for (int at; p->n < 256 && (at = worst_of(boxes, p->n)) >= 0;) {
        if (split_box(&boxes[at], &boxes[p->n], cells))
            p->n++;
        else
            boxes[at].worst = -1; /* all cells of the box are equal, so it cannot be split */
    }
    memset(p->nearest, -1, sizeof p->nearest);
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < 3; k++)
            p->rgb[i][k] = (uint8_t)(boxes[i].mean[k] + 0.5);
        if (boxes[i].to - boxes[i].from == 1)
            p->nearest[cell_of(p->rgb[i])] = (int16_t)i;
    }
    free(cells);
    return XD_OK;
}

static int nearest_color(xd_palette *p, const uint8_t *px)
{
    int at = cell_of(px), best = 1 << 30;
    if (p->nearest[at] >= 0)
        return p->nearest[at];
    for (int i = 0; i < p->n; i++) {
        int d = 0;
        for (int k = 0; k < 3; k++) {
            int v = ((px[k] & ~3) | 2) - p->rgb[i][k];
            d += v * v;
        }
        if (d < best)
            best = d, p->nearest[at] = (int16_t)i;
    }
    return p->nearest[at];
}

void xd_palette_draw(xd_palette *p, uint8_t *out, const uint8_t *rgb, int64_t w, int64_t h,
                     int *err)
{
    /* dithering errors, multiplied by 16, of the current and the next row, with padding on both
     * sides */
    int *here = err + 3, *next = here + (w + 2) * 3;
    memset(err, 0, sizeof *err * (size_t)(w + 2) * 6);
    for (int64_t y = 0; y < h; y++) {
        int64_t way = y % 2 ? -1 : 1;
        for (int64_t i = 0; i < w; i++) {
            int64_t x = way > 0 ? i : w - 1 - i;
            uint8_t px[3];
            for (int k = 0; k < 3; k++) {
                int v = rgb[(y * w + x) * 3 + k] +
                        (here[x * 3 + k] + 8 * (here[x * 3 + k] < 0 ? -1 : 1)) / 16;
                px[k] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
            int c = nearest_color(p, px);
            out[y * w + x] = (uint8_t)c;
            for (int k = 0; k < 3; k++) {
                int d = px[k] - p->rgb[c][k];
                here[(x + way) * 3 + k] += 7 * d;
                next[(x - way) * 3 + k] += 3 * d;
                next[x * 3 + k] += 5 * d;
                next[(x + way) * 3 + k] += d;
            }
        }
        int *swap = here;
        here = next;
        next = swap;
        memset(next - 3, 0, sizeof *next * (size_t)(w + 2) * 3);
    }
}
