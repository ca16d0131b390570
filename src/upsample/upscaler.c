/* upscaler.c - lists the networks that enlarge images, and computes their layers (upscaler.h) */
#include "upsample/upscaler.h"

#include <stdio.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "vae/bands.h"
#include "vae/maps.h"

extern const xd_upscaler xd_upscaler_rrdb, xd_upscaler_compact;

const xd_upscaler *const xd_upscalers[] = { &xd_upscaler_rrdb, &xd_upscaler_compact, NULL };

/* Number of elements of a map whose negative values are copied at a time. */
static const int64_t few_elements = (int64_t)1 << 22;

int xd_upscaler_shape(const xd_source *src, const char *name, xd_tensor *d)
{
    char full[256];
    snprintf(full, sizeof full, "%s.weight", name);
    return src->has(src->self, full, d);
}

void xd_upscaler_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in)
{
    xd_w_conv(d, w, name,
              &(xd_conv_spec){ .out = out, .in = in, .nk = 2, .kernel = { 1, 3, 3 }, .bias = 1 });
}

void xd_upscaler_convolve(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor plus)
{
    const int pad[3] = { 0, 1, 1 };
    xd_conv_rows_into(x, out, in, w, &(xd_conv_options){ .lo = pad, .hi = pad, .residual = plus });
}

void xd_upscaler_convolve_rows(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                               xd_tensor plus)
{
    xd_band_conv(x, &(xd_banded){ .feed = { .in = in },
                                  .w = w,
                                  .out = out,
                                  .plus = plus,
                                  .stride = 1,
                                  .lo = { 0, 1, 1 },
                                  .hi = { 0, 1, 1 } });
}

void xd_upscaler_slope(xd_exec *x, xd_tensor map, xd_tensor minus)
{
    const xd_tensor none = { 0 };
    xd_tensor       rows = xd_map_rows(map);
    int64_t         C = rows.d[1], n = xd_max(1, few_elements / C);
    size_t          mark = xd_arena_mark(x->tmp);
    xd_tensor       below = xd_new_f32(x, xd_min(n, rows.d[0]), C);
    for (int64_t i = 0; i < rows.d[0]; i += n) {
        int64_t   k = xd_min(n, rows.d[0] - i), all = k * C;
        xd_tensor part = xd_rows(rows, i, k), neg = xd_rows(below, 0, k);
        xd_copy_to(x, neg, part);
        xd_axpby(x, xd_reshape(neg, 1, &all), 0, none, -1);
        xd_activate(x, neg, XD_RELU);
        xd_activate(x, part, XD_RELU);
        xd_add_gated(x, part, minus, neg);
    }
    xd_arena_rewind(x->tmp, mark);
}
