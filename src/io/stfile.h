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
} xd_st_file;

typedef struct xd_st_view {     /* bytes of a file in memory; {0}: none                        */
    void       *p;              /* the first of them                                          */
    void       *map;            /* the pages they lie in; NULL: p is malloc'ed                 */
    size_t      len;            /* of map                                                     */
} xd_st_view;

void xd_st_file_init(xd_st_file *f);    /* a closed one                                        */

/* Opens f->path and reads its header: malloc'ed JSON text, the caller's. Checks sizes. */
xd_status xd_st_file_open(xd_st_file *f, char **header, size_t *len, xd_err *e);
void      xd_st_file_close(xd_st_file *f);

int       xd_st_file_maps(const xd_st_file *f);         /* can it be mapped at all?            */
/* Maps the pages of some bytes; where that fails (which is said once a process) reads them. They
 * are given back with put. `name` is for errors; a file that has shrunk is refused. */
xd_status xd_st_file_take(const xd_st_file *f, size_t at, size_t bytes, const char *name,
                          xd_st_view *v, xd_err *e);
void      xd_st_file_put(xd_st_view *v);
/* Unmaps the pages that these bytes of a view fill; reading them maps them again. */
void      xd_st_file_past(const xd_st_view *v, const void *p, size_t bytes);

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
