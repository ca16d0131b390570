/* record.h - initializes and copies public structs that programs allocate and to which later
 * versions of the library add fields.
 *
 * A record is a struct that a program allocates. The first field of a record is a size_t, the
 * struct's size in the program's build, which the struct's init function sets. New fields are added
 * at the end of the record, never to a struct inside the record. The size of a record is always a
 * multiple of 8, and a record has no padding at its end. A new field never overlaps bytes that were
 * padding in an older version. */
#ifndef XD_BASE_RECORD_H
#define XD_BASE_RECORD_H

#include "base/err.h"

/* Zeroes a program's struct of `size` bytes and sets the struct's size field. */
void      xd_record_init(void *record, size_t size);
/* Copies a program's struct to `own`, this library's struct of `size` bytes, in which all fields
 * have their defaults. Fields that the program's version of the struct lacks keep their defaults.
 * Returns XD_EINVAL if the struct was not initialised, or if a field that this library does not
 * know is set. name: name of the struct for error messages, such as "xd_request". */
xd_status xd_record_read(void *own, size_t size, const void *record, const char *name, xd_err *e);
/* Copies the library's struct `own` to the program's struct `record`, as far as the program's
 * version of the struct reaches. */
xd_status xd_record_write(void *record, const void *own, size_t size, const char *name, xd_err *e);

#endif
