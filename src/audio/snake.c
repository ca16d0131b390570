/* snake.c - computes Snake activations at twice the number of rows, between low-pass filters
 *
 * The filters are sinc functions in a Kaiser window, as in alias-free-torch: a cutoff of half the
 * Nyquist frequency, TAPS taps whose sum is 1, and rows that repeat the first and the last row
 * beyond the ends. They are computed here, because files store the same numbers. */
#include <math.h>

#include "audio/generator.h"
#include "exec/op.h"
#include "exec/weight_norm.h"

/* FRONT, BACK: rows before the first and after the last row that the second filter reads. SIDE:
 * rows that the first filter reads on either side. */
enum { TAPS = 12, TWICE = 2, SIDE = TAPS / TWICE - 1, FRONT = TAPS / 2 - 1, BACK = TAPS / 2 };

static float rate_of(float log_rate)
{
    return expf(log_rate);
}

static float gain_of(float log_beta)
{
    return 1.0f / (expf(log_beta) + 1e-9f);
}

void xd_w_snake(xd_decl *d, xd_snake *w, int64_t C)
{
    xd_w_vec_of(d, &w->rate, "alpha", C, rate_of);
    xd_w_vec_of(d, &w->gain, "beta", C, gain_of);
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

/* Computes the taps of a filter. The window's beta is that of Kaiser and Schafer (1980) for the
 * attenuation of a transition width of 0.6 times the rate. */
static void find_taps(float to[TAPS])
{
    const double pi = 3.14159265358979323846, cutoff = 0.5 / TWICE, width = 4 * 0.6 / TWICE;
    const double attenuation = 2.285 * (TAPS / 2 - 1) * pi * width + 7.95;
    const double beta = attenuation > 50
                            ? 0.1102 * (attenuation - 8.7)
                            : 0.5842 * pow(attenuation - 21, 0.4) + 0.07886 * (attenuation - 21);
    double       tap[TAPS], sum = 0;
    for (int i = 0; i < TAPS; i++) {
        const double at = i - TAPS / 2 + 0.5, side = at / ((TAPS - 1) / 2.0);
        const double turn = 2 * pi * cutoff * at;
        tap[i] = bessel(beta * sqrt(fmax(1 - side * side, 0))) * sin(turn) / turn;
        sum += tap[i];
    }
    for (int i = 0; i < TAPS; i++)
        to[i] = (float)(tap[i] / sum);
}

/* Returns rows first, first + TWICE, ... of t: n of them. */
static xd_tensor every_second(xd_tensor t, int64_t first, int64_t n)
{
    xd_tensor v = xd_view((float *)t.p + first * t.d[1], XD_F32, 2, (int64_t[]){ n, t.d[1] });
    v.s[0] = TWICE * t.d[1];
    return v;
}

/* Returns a row of t, repeated n times. */
static xd_tensor repeated(xd_tensor t, int64_t row, int64_t n)
{
    xd_tensor v = xd_rows(t, row, 1);
    v.d[0] = n, v.s[0] = 0;
    return v;
}

/* Fills the first `front` and the last `back` rows of t with copies of the rows next to them. */
static void repeat_ends(xd_exec *x, xd_tensor t, int64_t front, int64_t back)
{
    const int64_t end = t.d[0] - back;
    xd_copy_to(x, xd_rows(t, 0, front), repeated(t, front, front));
    xd_copy_to(x, xd_rows(t, end, back), repeated(t, end - 1, back));
}

/* Enlarges n rows, which `in` has between SIDE others, to 2 n rows. Tap m of an input row i is
 * added to output row 2 i + m - 15 of the rows with SIDE others. */
static void enlarge(xd_exec *x, xd_tensor out, xd_tensor in, const float tap[TAPS])
{
    const int64_t n = out.d[0] / TWICE;
    const int     skipped = SIDE * TWICE + (TAPS - TWICE) / 2;
    for (int phase = 0; phase < TWICE; phase++)
        for (int m = (phase + skipped) % TWICE, first = 1; m < TAPS; m += TWICE, first = 0)
            xd_axpby(x, every_second(out, phase, n), TWICE * tap[m],
                     xd_rows(in, (phase + skipped - m) / TWICE, n), first ? 0 : 1);
}

xd_tensor xd_snake_rows(xd_exec *x, const xd_snake *w, xd_tensor in)
{
    const int64_t n = in.d[0], C = in.d[1];
    float         tap[TAPS];
    xd_tensor     out = xd_new_f32(x, n, C), rate = w->rate, gain = w->gain;
    size_t        mark = xd_arena_mark(x->tmp);
    if (!n)
        return out;
    find_taps(tap);
    xd_tensor wide = xd_new_f32(x, SIDE + n + SIDE, C);
    xd_tensor all = xd_new_f32(x, FRONT + TWICE * n + BACK, C);
    xd_tensor h = xd_rows(all, FRONT, TWICE * n), wave = xd_new_f32(x, TWICE * n, C);
    xd_copy_to(x, xd_rows(wide, SIDE, n), in);
    repeat_ends(x, wide, SIDE, SIDE);
    enlarge(x, h, wide, tap);
    rate.nd = 2, rate.d[1] = C, rate.s[1] = 1, rate.d[0] = TWICE * n, rate.s[0] = 0;
    gain.nd = 2, gain.d[1] = C, gain.s[1] = 1, gain.d[0] = 1, gain.s[0] = C;
    xd_gated_into(x, wave, h, rate, XD_NONE);
    xd_activate(x, wave, XD_SINE_SQUARED);
    xd_add_gated(x, h, gain, wave);
    repeat_ends(x, all, FRONT, BACK);
    for (int m = 0; m < TAPS; m++)
        xd_axpby(x, out, tap[m], every_second(all, m, n), m ? 1 : 0);
    xd_arena_rewind(x->tmp, mark);
    return out;
}
