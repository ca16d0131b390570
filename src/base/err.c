/* err.c - recording failures */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

void xd_one_line(char *text)
{
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
}

xd_status xd_vfail(xd_err *e, xd_status code, const char *fmt, va_list ap)
{
    if (!e || e->code != XD_OK)
        return code;
    e->code = code;
    e->rank = -1;
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    xd_one_line(e->msg);
    return code;
}

xd_status xd_fail(xd_err *e, xd_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    xd_vfail(e, code, fmt, ap);
    va_end(ap);
    return code;
}

const char *xd_status_name(xd_status s)
{
    switch (s) {
    case XD_OK: return "ok";
    case XD_ENOMEM: return "out of memory";
    case XD_EINVAL: return "invalid request";
    case XD_EIO: return "input/output error";
    case XD_EFORMAT: return "wrong format";
    case XD_EUNSUPPORTED: return "unsupported";
    case XD_ECOMM: return "communication error";
    case XD_EDEVICE: return "device error";
    case XD_ECANCELLED: return "cancelled";
    }
    return "unknown status";
}

void xd_err_clear(xd_err *e)
{
    memset(e, 0, sizeof *e);
    e->rank = -1;
}

xd_size xd_size_text(double bytes)
{
    static const char *const units[] = { "kB", "MB", "GB", "TB", "PB", "EB" };
    xd_size t;
    int     u = 0;
    for (bytes /= 1e3; bytes >= 999.5 && u < 5; bytes /= 1e3)
        u++;
    snprintf(t.s, sizeof t.s, "%.3g %s", bytes, units[u]);
    return t;
}
