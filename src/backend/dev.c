/* dev.c - devices by name */
#include "backend/backend.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/count/count.h"
#include "backend/cpu/cpu.h"

xd_status xd_dev_open(xd_dev **d, const char *name, xd_err *e)
{
    *d = NULL;
    if (!name || strcmp(name, "cpu") == 0)
        return xd_cpu_open(d, e);
    return xd_fail(e, XD_EINVAL, "there is no device \"%s\"; this version computes on the cpu", name);
}

void xd_dev_close(xd_dev **d)
{
    if (d && *d)
        (*d)->mem->close(*d);
    if (d)
        *d = NULL;
}

xd_dtype xd_dev_compute(const xd_dev *d, xd_dtype want)
{
    const xd_dev *real = d->counts ? xd_count_real(d) : d;
    return real ? xd_cpu_compute(real, want) : want;
}

xd_dtype xd_dev_best(const xd_dev *d)
{
    const xd_dev *real = d->counts ? xd_count_real(d) : d;
    return real ? xd_cpu_best(real) : XD_F32;
}

int xd_is_quantized(xd_dtype t)
{
    return t == XD_I8 || t == XD_F8E4M3;
}

float xd_quant_scale(xd_dtype t, float most)
{
    float s = most / (t == XD_I8 ? 127.0f : 448.0f);
    return s < FLT_MIN ? 0.0f : isfinite(most) ? s : NAN;
}
