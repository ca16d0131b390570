/* record.c - copies the public structs that calling programs allocate. Newer versions of xdit
 * append fields to these structs, so a program's struct may be shorter or longer than xdit's. */
#include "base/record.h"
#include "base/version.h"

#include <string.h>

enum { MAX_SIZE = 65536 }; /* upper limit of a struct's valid size */

void xd_record_init(void *record, size_t size)
{
    memset(record, 0, size);
    memcpy(record, &size, sizeof size);
}

/* Reads the size of the program's struct. The size is stored in the first field of the struct. */
static xd_status size_of(const void *record, const char *name, size_t *size, xd_err *e)
{
    *size = 0;
    if (record)
        memcpy(size, record, sizeof *size);
    if (*size < sizeof *size || *size > MAX_SIZE)
        return xd_fail(e, XD_EINVAL,
                       "%s is not initialised (its size is %zu): call %s_init before "
                       "setting its fields",
                       name, *size, name);
    return XD_OK;
}

xd_status xd_record_read(void *own, size_t size, const void *record, const char *name, xd_err *e)
{
    size_t    theirs;
    xd_status s = size_of(record, name, &theirs, e);
    if (s != XD_OK)
        return s;
    for (size_t i = size; i < theirs; i++)
        if (((const char *)record)[i])
            return xd_fail(e, XD_EINVAL,
                           "%s has a field at byte %zu that this library, version %s, does not "
                           "know: the program was compiled for a newer version",
                           name, i, XDIT_VERSION);
    memcpy(own, record, theirs < size ? theirs : size);
    memcpy(own, &size, sizeof size);
    return XD_OK;
}

xd_status xd_record_write(void *record, const void *own, size_t size, const char *name, xd_err *e)
{
    size_t    theirs;
    xd_status s = size_of(record, name, &theirs, e);
    if (s != XD_OK)
        return s;
    memcpy(record, own, theirs < size ? theirs : size);
    memcpy(record, &theirs, sizeof theirs);
    return XD_OK;
}
