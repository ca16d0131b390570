/* stfile.h - inside io: one safetensors file, mapped or read, and which file a directory means */
#ifndef XD_IO_STFILE_H
#define XD_IO_STFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct xd_st_file {
    char       *path;           /* owned                                                      */
    int         fd;
    size_t      size, data;     /* bytes of the file; where the data begins                   */
    const void *map;            /* of the whole file; NULL: not mapped                        */
} xd_st_file;

void xd_st_file_init(xd_st_file *f);    /* a closed one                                        */

/* Opens f->path and reads its header: malloc'ed JSON text, the caller's. Checks sizes. */
xd_status xd_st_file_open(xd_st_file *f, char **header, size_t *len, xd_err *e);
void      xd_st_file_close(xd_st_file *f);

/* Maps the file; where that fails says so, once a process, and leaves f->map NULL. */
void      xd_st_file_map(xd_st_file *f);
/* Of a mapped file: these bytes will be read soon; these are not needed any more. */
void      xd_st_file_will(const xd_st_file *f, size_t at, size_t bytes);
void      xd_st_file_drop(const xd_st_file *f, size_t at, size_t bytes);
/* Of any file: reads bytes into malloc'ed memory; `name` is for errors. */
xd_status xd_st_file_read(const xd_st_file *f, size_t at, size_t bytes, const char *name,
                          void **data, xd_err *e);

#define XD_ST_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t  xd_st_hash_bytes(uint64_t h, const void *p, size_t n);        /* FNV-1a             */
/* Adds the file's size, its header, and 64 pages at even distances; reads, whether mapped or not. */
uint64_t  xd_st_file_hash(const xd_st_file *f, uint64_t h);

typedef struct xd_st_which {
    char *path;                 /* malloc'ed: a file of tensors, or an index of such files     */
    int   sharded;
} xd_st_which;

/* What to open for a path and a stem, as safetensors.h says. */
xd_status xd_st_choose(xd_st_which *w, const char *path, const char *stem, xd_err *e);

#endif
