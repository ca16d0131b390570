/* panel_tmpl.h - multiplies a panel of weights by a block of input rows, tile by tile. The header
 * block.h explains the words panel, block, tile and unit.
 *
 * The including file must include tile_tmpl.h first. If tiles read the packed layout of weights
 * directly, the including file defines PANELS_IN_PLACE. If register tiles read another layout than
 * the packed one, the including file defines panel_in_l1 and LINES. panel_in_l1 returns the address
 * of `units` units of the panel, from unit k on, in the layout that tiles read. LINES is the number
 * of cache lines that one unit of the panel occupies in the packed weight. */
#ifndef XD_BACKEND_CPU_GEMM_PANEL_TMPL_H
#define XD_BACKEND_CPU_GEMM_PANEL_TMPL_H

#ifdef PANELS_IN_PLACE
enum { LINES = XD_UNIT_BYTES / 64 };

static inline const char *panel_in_l1(const char *w, int64_t k, int64_t units, char *place)
{
    (void)units;
    (void)place;
    return w + k * XD_UNIT_BYTES;
}
#endif

static void multiply_panel(const xd_gemm_job *p, int64_t at, int64_t count, int64_t r0, int64_t n,
                           char *tmp)
{
    (void)count;
    float         near[XD_TILE * XD_PANEL] __attribute__((aligned(64)));
    const int64_t whole = p->units - p->rest;
    const char   *w = p->w + at * p->panel_bytes;
    for (int64_t k = 0, kn, last = 0; !last; k += kn) {
        kn = whole - k <= p->deep ? whole - k : p->deep;
        last = k + kn == whole;
        const char *b =
            panel_in_l1(w, k, last ? p->units - k : kn, tmp ? tmp + p->sum_bytes : NULL);
        const char *next = w + (k + kn) * 64 * LINES;
        for (int64_t i = 0, rows; i < n; i += rows) {
            float    *c = p->sum_bytes ? (float *)(void *)tmp + i * XD_PANEL : near;
            tile_args t = { kn,
                            p->in + (r0 + i) * p->ldi + k * 4,
                            p->ldi,
                            b,
                            c,
                            k > 0,
                            last && p->rest,
                            next,
                            (int)last };
            rows = xd_tile_rows(n - i);
            tiles[rows](&t, p, at, r0 + i);
            next = i < (LINES - 1) * XD_TILE ? next + kn * 64 : b;
            if (last)
                finish_rows(p, c, at * XD_PANEL, XD_PANEL, r0 + i, rows);
        }
    }
}

#endif
