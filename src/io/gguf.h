/* gguf.h - inside io: the header of a GGUF file, and the names of shards */
#ifndef XD_IO_GGUF_H
#define XD_IO_GGUF_H

#include "io/stfile.h"
#include "tensor/tensor.h"

typedef struct xd_gguf_tensor {
    char   *name;
    xd_dtype type;
    int     rank;               /* extents in the file; more than XD_MAXDIM: not usable        */
    int64_t d[XD_MAXDIM];       /* outermost first; those beyond XD_MAXDIM are in the last one  */
    size_t  at, bytes;          /* from the beginning of the data                              */
} xd_gguf_tensor;

typedef struct xd_gguf {
    xd_gguf_tensor *t;
    int64_t         n;
    /* [2 nmeta]: keys and values. Numbers are in decimal; arrays are not kept but for
     * "comfy.gguf.orig_shape.NAME", which has become the shape of NAME. */
    char          **meta;
    int             nmeta;
} xd_gguf;

/* Reads the header of an open file and sets f->data. Version 2 and 3, little endian. Checks every
 * count and length against the file; a type that is not read here is refused by its name. Whether
 * tensors lie in the file and beside each other is the caller's to check. Free it also after a
 * failure. */
xd_status xd_gguf_read(xd_gguf *g, xd_st_file *f, xd_err *e);
void      xd_gguf_free(xd_gguf *g);

/* Value of a key; NULL: none. */
const char *xd_gguf_meta(const xd_gguf *g, const char *key);

/* Is `path` that of a shard, "...-00002-of-00003.gguf"? Returns its number and their count. */
int   xd_gguf_is_shard(const char *path, int *no, int *count);
/* The path of shard `no` (from 1) of the same file; malloc'ed. */
char *xd_gguf_shard(const char *path, int no);

const char *xd_gguf_type_name(xd_dtype t);      /* "Q4_K"; NULL: not a type of GGUF             */

#endif
