/* err.c - writes the message and code of a failure to an xd_err */
#include "base/err.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

size_t xd_utf8_bytes(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned             c = s[0], low = 0x80, high = 0xbf;
    size_t               n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    if (c == 0xe0)
        low = 0xa0;
    if (c == 0xed)
        high = 0x9f;
    if (c == 0xf0)
        low = 0x90;
    if (c == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

size_t xd_utf8_invalid_at(const char *s)
{
    const char *p = s;
    for (size_t n; *p && (n = xd_utf8_bytes(p)) > 0;)
        p += n;
    return (size_t)(p - s);
}

void xd_clean(char *text, const char *keep)
{
    char *to = text;
    for (const char *p = text; *p;) {
        size_t n = xd_utf8_bytes(p);
        int    c0 = n == 1 && ((unsigned char)*p < ' ' || *p == 0x7f) && !strchr(keep, *p);
        int    c1 = n == 2 && (unsigned char)p[0] == 0xc2 && (unsigned char)p[1] < 0xa0;
        if (n == 0 || c0 || c1)
            *to++ = '?';
        else
            memmove(to, p, n), to += n;
        p += n ? n : 1;
    }
    *to = 0;
}

void xd_one_line(char *text)
{
    xd_clean(text, "");
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

xd_status xd_fail_at(xd_err *e, xd_status code, const char *path)
{
    int   about = code == XD_EIO || code == XD_EFORMAT || code == XD_EUNSUPPORTED;
    char  was[sizeof e->msg];
    char *clean = e && about && path ? strdup(path) : NULL;
    if (!clean)
        return code;
    xd_one_line(clean);
    if (!strstr(e->msg, clean)) {
        memcpy(was, e->msg, sizeof was);
        snprintf(e->msg, sizeof e->msg, "%s: %.*s", clean, (int)sizeof was / 2, was);
        xd_one_line(e->msg); /* truncation may have cut the last character */
    }
    free(clean);
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
    xd_size                  t;
    int                      u = 0;
    for (bytes /= 1e3; bytes >= 999.5 && u < 5; bytes /= 1e3)
        u++;
    snprintf(t.s, sizeof t.s, "%.3g %s", bytes, units[u]);
    return t;
}

/* Returns the number of bytes in a unit such as "GiB", or 0 if the unit is unknown. */
static double unit_bytes(const char *unit)
{
    static const char letters[] = "kMGT";
    double            bytes = 1;
    if (!unit[0] || strcasecmp(unit, "B") == 0)
        return 1;
    for (int i = 0; letters[i]; i++) {
        int binary = tolower((unsigned char)unit[1]) == 'i';
        bytes *= binary ? 1024 : 1000;
        if (tolower((unsigned char)unit[0]) == tolower((unsigned char)letters[i]))
            return strcasecmp(unit + 1, binary ? "iB" : "B") == 0 ? bytes : 0;
    }
    return 0;
}

xd_status xd_size_read(const char *text, const char *name, int64_t *bytes, xd_err *e)
{
    char  *end;
    double n = strtod(text, &end), unit;
    int    digits = end > text && isdigit((unsigned char)end[-1]);
    unit = unit_bytes(end + strspn(end, " "));
    if (!digits || !(unit > 0) || !(n * unit >= 1) || n * unit > 9e18)
        return xd_fail(e, XD_EINVAL,
                       "%s is \"%s\"; it must be a size, such as 12GB, 11.5GiB, "
                       "800MB or a number of bytes",
                       name, text);
    *bytes = (int64_t)(n * unit);
    return XD_OK;
}
