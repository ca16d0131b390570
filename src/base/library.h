/* library.h - loads shared libraries with dlopen when they are first needed.
 *
 * Libraries are never closed, because their threads and exit handlers need them until the process
 * exits. */
#ifndef XD_BASE_LIBRARY_H
#define XD_BASE_LIBRARY_H

#include <stddef.h>

typedef enum xd_library {
    XD_LIB_ONEDNN,
    XD_LIB_AVUTIL,
    XD_LIB_AVCODEC,
    XD_LIB_AVFORMAT,
    XD_LIB_SWSCALE,
    XD_LIB_CUDA,
    XD_LIB_CUBLASLT_13,
    XD_LIB_CUBLASLT_12,
    XD_LIB_CUDNN,
    XD_LIB_NCCL,
    XD_NLIBRARIES
} xd_library;

/* Name of a function in a shared library, and offset of its pointer in a table of function
 * pointers. */
typedef struct xd_symbol {
    const char *name;
    size_t      at;
} xd_symbol;

/* Opens a library by the first of its file names that the loader finds. dir: the only directory to
 * search; NULL: the loader's directories. Returns NULL if the library is not found; `why` is then
 * the loader's error message for the first name. */
void       *xd_library_open(xd_library l, const char *dir, char *why, size_t size);
const char *xd_library_name(xd_library l); /* returns the first file name of the library */
/* Fills a table with pointers to functions of an open library. Returns NULL, or the name of a
 * function that the library lacks. */
const char *xd_library_find(void *library, const xd_symbol *symbols, size_t n, void *table);

#endif
