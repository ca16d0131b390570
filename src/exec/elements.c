/* elements.c - converts elements of tensors in files to another type, and finds their largest
 * magnitude */
#include "exec/matrix.h"

#include <math.h>

#include "base/minmax.h"

enum { CHUNK = 1024 }; /* number of elements that are converted at a time */

void xd_load_elements(void *to, xd_dtype tt, xd_tensor from, int64_t first, int64_t n, float scale)
{
    char *out = to;
    float x[CHUNK];
    if (scale == 1.0f) {
        xd_convert_at(to, tt, from.p, from.type, first, n);
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        m = xd_min(n - i, CHUNK);
        xd_convert_at(x, XD_F32, from.p, from.type, first + i, m);
        for (int64_t k = 0; k < m; k++)
            x[k] *= scale;
        xd_convert(out + xd_dtype_bytes(tt, i), tt, x, XD_F32, m);
    }
}

float xd_load_most(xd_tensor from, int64_t first, int64_t n, float scale)
{
    float most = 0, x[CHUNK];
    for (int64_t i = 0, m; i < n; i += m) {
        m = xd_min(n - i, CHUNK);
        xd_convert_at(x, XD_F32, from.p, from.type, first + i, m);
        for (int64_t k = 0; k < m; k++) {
            float v = fabsf(x[k] * scale);
            if (!isfinite(v))
                return NAN;
            most = v > most ? v : most;
        }
    }
    return most;
}
