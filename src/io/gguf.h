/* gguf.h - used only in src/io: reads the header of a GGUF file and the file names of a sharded
 * model. */
#ifndef XD_IO_GGUF_H
#define XD_IO_GGUF_H

#include "io/stfile.h"
#include "tensor/tensor.h"

typedef struct xd_gguf_tensor {
    char    *name;
    xd_dtype type;
    /* Number of dimensions of the tensor in the file; tensors with more than XD_MAXDIM dimensions
     * are refused. */
    int      rank;
    /* Extents of the tensor, outermost first; if there are more than XD_MAXDIM, the last element is
     * the product of the remaining extents. */
    int64_t  d[XD_MAXDIM];
    /* at: offset of the tensor in the file's data section; bytes: size of the tensor. */
    size_t   at, bytes;
} xd_gguf_tensor;

typedef struct xd_gguf {
    xd_gguf_tensor *t;
    int64_t         n;
    /* [2 nmeta]: list of the file's metadata keys, each followed by its value. Numbers in the
     * metadata are stored as decimal text. Metadata values that are arrays are not stored. The
     * metadata array with the key "comfy.gguf.orig_shape.NAME" is used as the shape of the tensor
     * NAME. */
    char          **meta;
    int             nmeta;
} xd_gguf;

/* Reads the header of an open file (GGUF version 2 or 3, little endian) and sets f->data, the
 * offset of the tensor data. Checks every count and length in the header against the file size.
 * Refuses unsupported element types with an error that names the type. The caller of xd_gguf_read
 * checks that tensors are inside the file and do not overlap. Call xd_gguf_free also if
 * xd_gguf_read fails. */
xd_status xd_gguf_read(xd_gguf *g, xd_st_file *f, xd_err *e);
void      xd_gguf_free(xd_gguf *g);

/* Returns 1 if `path` is named like a shard, such as "...-00002-of-00003.gguf". Sets *no to the
 * shard's number (2 in this example) and *count to the number of shards (3). */
int   xd_gguf_is_shard(const char *path, int *no, int *count);
/* Returns the malloc'ed path of shard `no` (counted from 1) of a sharded model; `path` is the path
 * of any shard of this model. */
char *xd_gguf_shard(const char *path, int no);

/* Returns GGUF's name of an element type, such as "Q4_K", or NULL if GGUF does not support the
 * type. */
const char *xd_gguf_type_name(xd_dtype t);

#endif
