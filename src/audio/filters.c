/* filters.c - changes the rate of rows like UpSample1d and DownSample1d of diffusers.
 *
 * Each tap is one combination of views of the rows, because all features have the same taps. */
#include "audio/filters.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

xd_taps xd_taps_antialias(int taps, int ratio)
{
    int edge = taps / ratio - 1;
    return (xd_taps){
        .n = taps, .ratio = ratio, .edge = edge, .skip = edge * ratio + (taps - ratio) / 2
    };
}

/* Computes the modified Bessel function of order 0 by its power series. */
static double bessel(double x)
{
    double term = 1, sum = 1;
    for (int k = 1; k < 40; k++) {
        term *= x / (2 * k) * (x / (2 * k));
        sum += term;
    }
    return sum;
}

/* The window's beta is that of Kaiser and Schafer (1980) for the attenuation of a transition width
 * of 0.6 times the lower rate. */
void xd_taps_kaiser(xd_taps *f)
{
    const double cutoff = 0.5 / f->ratio, width = 4 * 0.6 / f->ratio;
    const double attenuation = 2.285 * (f->n / 2 - 1) * pi * width + 7.95;
    const double beta = attenuation > 50 ? 0.1102 * (attenuation - 8.7)
                                         : 0.5842 * pow(fmax(attenuation - 21, 0), 0.4) +
                                               0.07886 * fmax(attenuation - 21, 0);
    double       tap[XD_MAXTAPS], sum = 0;
    for (int i = 0; i < f->n; i++) {
        const double at = i - f->n / 2 + 0.5, side = at / ((f->n - 1) / 2.0);
        const double turn = 2 * pi * cutoff * at;
        tap[i] = bessel(beta * sqrt(fmax(1 - side * side, 0))) * sin(turn) / turn;
        sum += tap[i];
    }
    for (int i = 0; i < f->n; i++)
        f->v[i] = (float)(tap[i] / sum);
}

xd_taps xd_taps_resample(int ratio)
{
    const double crossings = 6, rolloff = 0.99;
    const int    width = (int)ceil(crossings / rolloff);
    xd_taps      f = {
        .n = 2 * width * ratio + 1, .ratio = ratio, .edge = width, .skip = 2 * width * ratio
    };
    for (int i = 0; i < f.n; i++) {
        double t = ((double)i / ratio - width) * rolloff;
        double in = fmin(fmax(t, -crossings), crossings);
        double window = cos(in * pi / crossings / 2), sinc = t == 0 ? 1 : sin(pi * t) / (pi * t);
        f.v[i] = (float)(sinc * window * window * rolloff / ratio);
    }
    return f;
}

/* Sets n rows from row `at` to copies of another row. */
static void repeat(xd_exec *x, xd_tensor rows, int64_t at, int64_t n, int64_t from)
{
    xd_tensor one = xd_rows(rows, from, 1);
    one.d[0] = n, one.s[0] = 0;
    xd_copy_to(x, xd_rows(rows, at, n), one);
}

void xd_taps_enlarge(xd_exec *x, xd_tensor out, xd_tensor in, const xd_taps *f)
{
    const int64_t n = in.d[0], C = in.d[1], r = f->ratio;
    size_t        mark = xd_arena_mark(x->tmp);
    if (!n)
        return;
    xd_tensor all = xd_new_f32(x, n + 2 * f->edge, C);
    xd_copy_to(x, xd_rows(all, f->edge, n), in);
    repeat(x, all, 0, f->edge, f->edge);
    repeat(x, all, f->edge + n, f->edge, f->edge + n - 1);
    for (int64_t j = 0; j < f->n; j++) {
        int64_t   phase = ((j - f->skip) % r + r) % r;
        int       later = j >= r; /* an earlier tap has set these rows */
        xd_tensor to = xd_rows(out, phase, n);
        to.s[0] = r * out.s[0];
        xd_axpby(x, to, (float)r * f->v[j], xd_rows(all, (phase + f->skip - j) / r, n),
                 later ? 1 : 0);
    }
    xd_arena_rewind(x->tmp, mark);
}

int xd_taps_before(const xd_taps *f)
{
    return f->n / 2 + f->n % 2 - 1;
}

int xd_taps_after(const xd_taps *f)
{
    return f->n / 2;
}

void xd_taps_reduce(xd_exec *x, xd_tensor out, xd_tensor in, const xd_taps *f)
{
    const int64_t n = out.d[0], before = xd_taps_before(f), last = before + n * f->ratio - 1;
    if (!n)
        return;
    repeat(x, in, 0, before, before);
    repeat(x, in, last + 1, xd_taps_after(f), last);
    for (int64_t j = 0; j < f->n; j++) {
        xd_tensor from = xd_rows(in, j, n);
        from.s[0] = f->ratio * in.s[0];
        xd_axpby(x, out, f->v[j], from, j ? 1 : 0);
    }
}
