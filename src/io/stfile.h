/* stfile.h - used only in src/io: maps or reads one safetensors or GGUF file, and chooses the
 * weight file in a directory. */
#ifndef XD_IO_STFILE_H
#define XD_IO_STFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct xd_st_file {
    char  *path; /* path of the file; owned */
    int    fd;
    size_t size, data; /* size: bytes of the file; data: offset at which tensor data begins */
    int    gguf;       /* 1: the file has the magic number of GGUF */
} xd_st_file;

typedef struct xd_st_view { /* view of some bytes of a file in memory; {0}: no view */
    void  *p;               /* first byte of the view */
    void  *map;             /* start of the mapped pages; NULL: p is malloc'ed */
    size_t len;             /* bytes of the mapped pages */
} xd_st_view;

void xd_st_file_init(xd_st_file *f); /* initializes f as a file that is not open */

/* Opens the file f->path and reads its header into *header: malloc'ed JSON text, owned by the
 * caller. xd_st_file_open checks the sizes in the header. Sets *header to NULL for a GGUF file,
 * whose header xd_gguf_read reads. */
xd_status xd_st_file_open(xd_st_file *f, char **header, size_t *len, xd_err *e);
/* Reads bytes [at, at + n) of an open file. */
xd_status xd_st_file_read(const xd_st_file *f, void *to, size_t n, size_t at, xd_err *e);
void      xd_st_file_close(xd_st_file *f);

int       xd_st_file_maps(const xd_st_file *f); /* returns 1 if the file can be mapped */
/* Makes a view of a byte range of the file: maps its pages or, if mapping fails (logged once per
 * process), reads the bytes. Free the view with xd_st_file_put. name: name of the tensor in error
 * messages. Refuses a weight file that was truncated. */
xd_status xd_st_file_take(const xd_st_file *f, size_t at, size_t bytes, const char *name,
                          xd_st_view *v, xd_err *e);
void      xd_st_file_put(xd_st_view *v);
/* Releases the memory pages of a view that lie completely inside the `bytes` bytes at p. A later
 * access reads the released pages again. */
void      xd_st_file_past(const xd_st_view *v, const void *p, size_t bytes);

#define XD_ST_HASH_START UINT64_C(0xcbf29ce484222325)
/* Adds n bytes to an FNV-1a hash. */
uint64_t xd_st_hash_bytes(uint64_t h, const void *p, size_t n);
/* Hashes the file's size, its header, and 64 pages at equal distances. xd_st_file_hash uses read()
 * even if the file can be mapped. */
uint64_t xd_st_file_hash(const xd_st_file *f, uint64_t h);

/* Hashes all bytes of a file with all threads. */
xd_status xd_st_file_hash_all(const xd_st_file *f, uint64_t *hash, xd_err *e);

typedef struct xd_st_which {
    char *path; /* malloc'ed path of a weight file, or of an index of files */
    int   sharded;
} xd_st_which;

/* Chooses the weight file for a path and a stem by the rules of xd_st_open (safetensors.h). */
xd_status xd_st_choose(xd_st_which *w, const char *path, const char *stem, xd_err *e);

#endif
