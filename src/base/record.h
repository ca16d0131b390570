/* record.h - records that programs allocate and that grow from version to version
 *
 * Such a record begins with a size_t: its size in the program, set by its init function. Fields are
 * added at the end, where the size stays a multiple of 8, so that no field lies in what was padding
 * before. */
#ifndef XD_BASE_RECORD_H
#define XD_BASE_RECORD_H

#include "base/err.h"

/* Empties a program's record of `size` bytes and writes its size. */
void      xd_record_init(void *record, size_t size);
/* Copies a program's record over `own`, which holds the defaults and has `size` bytes. Fields that
 * the program does not have keep their defaults. XD_EINVAL: the record was not initialised, or it
 * has a field behind the end of `own` that is set. name: "xd_request". */
xd_status xd_record_take(void *own, size_t size, const void *record, const char *name, xd_err *e);
/* Copies the results `own` to a program's record, as many bytes as it has. */
xd_status xd_record_give(void *record, const void *own, size_t size, const char *name, xd_err *e);

#endif
