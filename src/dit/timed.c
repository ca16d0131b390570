/* timed.c - modulation of video tokens that have one of several timesteps (timed.h) */
#include "dit/timed.h"

#include "base/minmax.h"

/* Returns the index of a timestep in time[0..*n), to which it is added if it is new. */
static int index_of(double time[XD_TIMES], int *n, double t)
{
    int i = 0;
    while (i < *n && time[i] != t)
        i++;
    if (i == *n && *n < XD_TIMES)
        time[(*n)++] = t;
    return i;
}

/* Sets the timesteps of all tokens of the video, which are equal on all ranks. */
static int set_times(xd_exec *x, const xd_input *in, double time[XD_TIMES])
{
    int n = 1, fit = 1;
    time[0] = in->t;
    for (int64_t f = 0; in->frame_t && f < x->lay->grid[0]; f++)
        fit &= index_of(time, &n, (double)in->frame_t[f]) < XD_TIMES;
    if (in->held)
        fit &= index_of(time, &n, 0) < XD_TIMES;
    xd_check(x, fit, "the frames of a video have more than %d timesteps", XD_TIMES);
    return n;
}

/* Returns the timestep of token `at`. Sets *n to the number of tokens from `at` on that have it for
 * the same reason. */
static double time_at(const xd_exec *x, const xd_input *in, int64_t at, int64_t *n)
{
    int64_t frame = x->lay->grid[1] * x->lay->grid[2];
    *n = at < in->held ? in->held - at : in->frame_t ? frame - at % frame : INT64_MAX;
    return at < in->held ? 0 : in->frame_t ? (double)in->frame_t[at / frame] : in->t;
}

static void add_run(xd_exec *x, xd_timed *l, xd_time_run r)
{
    xd_time_run *last = l->n ? &l->run[l->n - 1] : NULL;
    if (last && (last->time == r.time || !last->rows.n)) {
        last->rows.n += r.rows.n;
        last->time = r.time;
    } else if (xd_check(x, l->n < XD_TIME_RUNS, "the timesteps of frames change more than %d times",
                        XD_TIME_RUNS)) {
        l->run[l->n++] = r;
    }
}

xd_timed xd_timed_of(xd_exec *x, const xd_input *in, double time[XD_TIMES])
{
    xd_timed l = { .times = set_times(x, in, time) };
    int64_t  rows = xd_n(x, XD_IMG), n;
    add_run(x, &l, (xd_time_run){ { 0, 0 }, 0 });
    for (int64_t row = 0; row < rows; row += n) {
        double t = time_at(x, in, xd_where(x, XD_IMG, row), &n);
        n = xd_min(n, xd_where_run(x, XD_IMG, row));
        add_run(x, &l, (xd_time_run){ { row, n }, index_of(time, &l.times, t) });
    }
    return l;
}

xd_tensor xd_timed_norm(xd_exec *x, const xd_timed *l, const xd_norm *as, xd_tensor h,
                        const xd_tensor *mod, int scale, int shift, const xd_lin *w)
{
    xd_tensor out = { 0 };
    for (int i = 0; i < l->n; i++) {
        xd_span   r = l->run[i].rows;
        xd_tensor m = mod[l->run[i].time];
        xd_norm   a = { .in = xd_rows(h, r.start, r.n),
                        .gain = as->gain,
                        .scale = xd_rows(m, scale, 1),
                        .shift = xd_rows(m, shift, 1),
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
    for (int i = 0; i < l->n; i++) {
        xd_span r = l->run[i].rows;
        xd_linear_add(x, xd_rows(h, r.start, r.n), xd_rows(mod[l->run[i].time], gate, 1),
                      xd_rows(in, r.start, r.n), w);
    }
}
