/* gguf.h - inside io: the header of a GGUF file, and the names of shards */
#ifndef XD_IO_GGUF_H
#define XD_IO_GGUF_H

#include "io/stfile.h"
#include "tensor/tensor.h"

typedef struct xd_gguf_tensor {
    char   *name;
    xd_dtype type;
    int     rank;               /* dimensions in the file; if more than XD_MAXDIM: not usable  */
    int64_t d[XD_MAXDIM];       /* outermost first; further dimensions are multiplied into the
                                   last one                                                    */
    size_t  at, bytes;          /* offset from the beginning of the data; size                 */
} xd_gguf_tensor;

typedef struct xd_gguf {
    xd_gguf_tensor *t;
    int64_t         n;
    /* [2 nmeta]: keys and values. Numbers are in decimal. Arrays are dropped; the array
     * "comfy.gguf.orig_shape.NAME" has replaced the shape of tensor NAME. */
    char          **meta;
    int             nmeta;
} xd_gguf;

/* Reads the header of an open file (GGUF version 2 or 3, little endian) and sets f->data. Checks
 * every count and length against the file size; refuses unsupported types by name. The caller
 * checks that tensors are inside the file and do not overlap. Call xd_gguf_free also after a
 * failure. */
xd_status xd_gguf_read(xd_gguf *g, xd_st_file *f, xd_err *e);
void      xd_gguf_free(xd_gguf *g);

/* Value of a key; NULL: none. */
const char *xd_gguf_meta(const xd_gguf *g, const char *key);

/* Returns 1 if `path` names a shard, "...-00002-of-00003.gguf", with its number and their count. */
int   xd_gguf_is_shard(const char *path, int *no, int *count);
/* Returns the path of shard `no` (from 1) of the same model; malloc'ed. */
char *xd_gguf_shard(const char *path, int no);

const char *xd_gguf_type_name(xd_dtype t);      /* "Q4_K"; NULL: not a type of GGUF             */

#endif
