/* npy.h - reads arrays in the format .npy of NumPy. */
#ifndef XD_IO_NPY_H
#define XD_IO_NPY_H

#include "base/err.h"
#include "tensor/tensor.h"

/* Reads an array of float32 or float16 numbers in little-endian byte order and in C order. *data is
 * malloc'ed, owned by the caller, and holds the elements of *t. XD_EFORMAT: the file is damaged, or
 * its array has another type or order. */
xd_status xd_npy_read(const char *path, xd_tensor *t, char **data, xd_err *e);

#endif
