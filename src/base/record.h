/* record.h - initializes and copies public structs that programs allocate and that get more fields
 * in later versions.
 *
 * A record is a struct that a program allocates. The first field of a record is a size_t, the
 * struct's size in the program's build, which the struct's init function sets. New fields are added
 * at the end of the record, never to a struct inside the record. The size of a record is always a
 * multiple of 8, and a record has no padding at its end. Because of these two rules, a new field
 * never overlaps bytes that were padding in an older version. */
#ifndef XD_BASE_RECORD_H
#define XD_BASE_RECORD_H

#include "base/err.h"

/* Zeroes a program's struct of `size` bytes and sets the struct's size field. */
void      xd_record_init(void *record, size_t size);
/* Copies a program's struct to `own`, this library's struct of `size` bytes, in which all fields
 * have their defaults. Fields that the program's version of the struct lacks keep their defaults.
 * XD_EINVAL: the struct was not initialised, or a field that is newer than this library is set.
 * name: name of the struct in errors, "xd_request". */
xd_status xd_record_read(void *own, size_t size, const void *record, const char *name, xd_err *e);
/* Copies the results `own` to a program's struct, up to the struct's size. */
xd_status xd_record_write(void *record, const void *own, size_t size, const char *name, xd_err *e);

#endif
