/* library.h - libraries that are loaded when they are needed, and their functions
 *
 * They stay open until the process ends: their threads and exit handlers need them. */
#ifndef XD_BASE_LIBRARY_H
#define XD_BASE_LIBRARY_H

#include <stddef.h>

typedef enum xd_library {
    XD_LIB_ONEDNN, XD_LIB_AVUTIL, XD_LIB_AVCODEC, XD_LIB_AVFORMAT, XD_LIB_SWSCALE, XD_LIB_CUDA,
    XD_LIB_CUBLASLT_13, XD_LIB_CUBLASLT_12, XD_LIB_CUDNN, XD_LIB_NCCL, XD_NLIBRARIES
} xd_library;

/* A function, and where its pointer is in a table of them. */
typedef struct xd_symbol {
    const char *name;
    size_t      at;
} xd_symbol;

/* The library under the first of its names that the loader finds; dir: NULL, or the only folder to
 * look into. NULL: it is not there, and `why` is what the loader says of its first name. */
void       *xd_library_open(xd_library l, const char *dir, char *why, size_t size);
const char *xd_library_name(xd_library l);      /* its first name                               */
/* Fills a table with functions of an open library. NULL, or the name of one that it lacks. */
const char *xd_library_find(void *library, const xd_symbol *symbols, size_t n, void *table);

#endif
