/* timed.c - modulation of video tokens that have one of two timesteps (timed.h) */
#include "dit/timed.h"

/* Returns how many of the first `held` tokens of the video are on this rank. */
static int64_t held_rows(const xd_exec *x, int64_t held)
{
    int64_t n = xd_n(x, XD_IMG), rows = 0;
    while (rows < n && xd_where(x, XD_IMG, rows) < held) {
        int64_t run = xd_where_run(x, XD_IMG, rows), left = held - xd_where(x, XD_IMG, rows);
        rows += run < left ? run : left;
    }
    return rows;
}

xd_timed xd_timed_of(const xd_exec *x, const xd_input *in, double time[XD_TIMES])
{
    int64_t held = held_rows(x, in->held), rows = xd_n(x, XD_IMG);
    time[0] = in->t, time[1] = 0;
    return (xd_timed){ .times = in->held ? XD_TIMES : 1,
                       .rows = { { held, rows - held }, { 0, held } } };
}

xd_tensor xd_timed_norm(xd_exec *x, const xd_timed *l, const xd_norm *as, xd_tensor h,
                        const xd_tensor *mod, int scale, int shift, const xd_lin *w)
{
    xd_tensor out = { 0 };
    for (int t = 0; t < l->times; t++) {
        xd_span r = l->rows[t];
        xd_norm a = { .in = xd_rows(h, r.start, r.n),
                      .scale = xd_rows(mod[t], scale, 1),
                      .shift = xd_rows(mod[t], shift, 1),
                      .rms = as->rms,
                      .eps = as->eps };
        if (r.n == h.d[0])
            return xd_norm_for(x, &a, w, NULL);
        if (!out.p)
            out = xd_new(x, h.d[0], h.d[1]);
        a.out = xd_rows(out, r.start, r.n);
        xd_norm_into(x, &a);
    }
    return out;
}

void xd_timed_add(xd_exec *x, const xd_timed *l, xd_tensor h, const xd_tensor *mod, int gate,
                  xd_tensor in, const xd_lin *w)
{
    for (int t = 0; t < l->times; t++) {
        xd_span r = l->rows[t];
        xd_linear_add(x, xd_rows(h, r.start, r.n), xd_rows(mod[t], gate, 1),
                      xd_rows(in, r.start, r.n), w);
    }
}
