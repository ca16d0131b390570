/* record.h - public structs that programs allocate and that grow from version to version
 *
 * Such a struct begins with a size_t: its size in the program's build, set by its init function.
 * New fields are added at the end. The size is always a multiple of 8 without padding, so that a
 * new field never takes the place of an older version's padding. */
#ifndef XD_BASE_RECORD_H
#define XD_BASE_RECORD_H

#include "base/err.h"

/* Zeroes a program's struct of `size` bytes and sets its size field. */
void      xd_record_init(void *record, size_t size);
/* Copies a program's struct over `own`, which has `size` bytes and holds the defaults. Fields that
 * the program's version lacks keep their defaults. XD_EINVAL: the struct was not initialised, or a
 * field that is newer than this library is set. name: "xd_request". */
xd_status xd_record_read(void *own, size_t size, const void *record, const char *name, xd_err *e);
/* Copies the results `own` to a program's struct, up to the struct's size. */
xd_status xd_record_write(void *record, const void *own, size_t size, const char *name, xd_err *e);

#endif
