/* npy.c - reads arrays in the format .npy of NumPy
 *
 * A file begins with the byte 0x93, "NUMPY", the version and the length of a header in ASCII, such
 * as {'descr': '<f4', 'fortran_order': False, 'shape': (4, 16, 16), }. The elements follow
 * (numpy.lib.format). */
#include "io/npy.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { BEGIN = 8, MOST_HEADER = 65536 };

/* Returns the text behind 'KEY': in a header, or NULL. */
static const char *value_of(const char *header, const char *key)
{
    const char *p = strstr(header, key);
    if (!p)
        return NULL;
    p += strlen(key);
    return p + strspn(p, " :");
}

/* Reads the extents between the parentheses. Returns 0 if the text is no tuple of at most XD_MAXDIM
 * positive numbers whose product is small enough. */
static int read_shape(const char *p, xd_tensor *t)
{
    int64_t d[XD_MAXDIM], all = 1;
    int     n = 0;
    if (!p || *p++ != '(')
        return 0;
    for (p += strspn(p, " ,"); *p >= '0' && *p <= '9'; p += strspn(p, " ,")) {
        char     *end;
        long long v = strtoll(p, &end, 10);
        if (n == XD_MAXDIM || v < 1 || v > INT32_MAX || all > INT32_MAX / v)
            return 0;
        all *= d[n++] = v;
        p = end;
    }
    *t = xd_view(NULL, t->type, n, d);
    return *p == ')' && n > 0;
}

static xd_status read_header(const char *path, const char *header, xd_tensor *t, xd_err *e)
{
    const char *type = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'");
    if (!type || !order || strncmp(order, "True", 4) == 0)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the array is not in C order; save numpy.ascontiguousarray(array)",
                       path);
    t->type = strncmp(type, "'<f2'", 5) == 0 ? XD_F16 : XD_F32;
    if (t->type != XD_F16 && strncmp(type, "'<f4'", 5) != 0)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the array has the type %.*s; it must be '<f4' or '<f2': save "
                       "array.astype('float32')",
                       path, (int)strcspn(type, ","), type);
    if (!read_shape(value_of(header, "'shape'"), t))
        return xd_fail(e, XD_EFORMAT, "%s: the array has no shape of 1 to %d extents above 0", path,
                       XD_MAXDIM);
    return XD_OK;
}

/* Finds the header, and ends it with a NUL. Returns the offset of the elements, or 0 if the file is
 * damaged. */
static size_t find_elements(char *data, size_t n, char **header)
{
    const unsigned char *b = (const unsigned char *)data;
    if (n < BEGIN + 4 || memcmp(data, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3)
        return 0;
    size_t wide = b[6] > 1 ? 4 : 2, len = b[8] + 256u * b[9];
    if (wide == 4)
        len += 65536u * (b[10] + 256u * b[11]);
    size_t at = BEGIN + wide + len;
    if (len < 1 || len > MOST_HEADER || at > n)
        return 0;
    *header = data + BEGIN + wide;
    data[at - 1] = 0; /* a line feed */
    return at;
}

xd_status xd_npy_read(const char *path, xd_tensor *t, char **data, xd_err *e)
{
    size_t    n = 0;
    char     *header = NULL;
    xd_status s = xd_file_read(path, (size_t)1 << 32, data, &n, e);
    size_t    at = s == XD_OK ? find_elements(*data, n, &header) : 0;
    if (s == XD_OK && !at)
        s = xd_fail(e, XD_EFORMAT, "%s is not a .npy file", path);
    if (s == XD_OK)
        s = read_header(path, header, t, e);
    if (s == XD_OK && n - at != xd_bytes(*t))
        s = xd_fail(e, XD_EFORMAT, "%s has %zu bytes of elements, not the %zu of its shape", path,
                    n - at, xd_bytes(*t));
    if (s == XD_OK) {
        memmove(*data, *data + at, n - at);
        t->p = *data;
        return XD_OK;
    }
    free(*data);
    *data = NULL;
    return s;
}
