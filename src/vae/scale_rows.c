/* scale_rows.c - multiplies rows by a factor per channel and adds an offset per channel
 * (scale_rows.h) */
#include "vae/scale_rows.h"

xd_tensor xd_scale_rows(xd_exec *x, xd_tensor in, const float *gain, const float *bias)
{
    int64_t   C = in.d[1];
    xd_tensor g = xd_new_f32(x, 1, C), b = xd_new_f32(x, 1, C), out = xd_new_f32(x, in.d[0], C);
    xd_put(x, g, gain);
    xd_put(x, b, bias);
    b.d[0] = in.d[0], b.s[0] = 0;
    xd_copy_to(x, out, b);
    xd_add_gated(x, out, g, in);
    return out;
}
