/* safetensors.h - weights on disk: one file, or shards with an index.
 *
 * A tensor is mapped read-only while it is used, and nothing else of its file: a checkpoint may be
 * larger than the address space. Where mapping fails (file systems that cannot) tensors are read
 * into memory that `done` gives back; that is said once. */
#ifndef XD_IO_SAFETENSORS_H
#define XD_IO_SAFETENSORS_H

#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_st xd_st;

/* A component directory: `stem`.safetensors, or `stem`.safetensors.index.json with shards, or a
 * single file when `path` is one. stem: "diffusion_pytorch_model" or "model"; variants
 * (stem.fp16.safetensors) are taken when nothing else is there. Headers are checked whole:
 * offsets inside the file, no overlap, sizes equal shapes; a truncated file is refused with both
 * sizes. A directory that has only .bin or .pt files is refused with what to do. */
xd_status xd_st_open(xd_st **s, const char *path, const char *stem, xd_err *e);
void      xd_st_close(xd_st **s);

int64_t     xd_st_count(const xd_st *s);
const char *xd_st_name(const xd_st *s, int64_t i);      /* sorted by name (bytes)             */
xd_tensor   xd_st_shape(const xd_st *s, int64_t i);     /* type and extents; p is NULL         */
int64_t     xd_st_find(const xd_st *s, const char *name);       /* -1: none                    */
/* The dtype as the file has it ("BF16"); one that is not known here shows as U8 in xd_st_shape
 * and is refused by xd_st_get, as is a tensor of more than XD_MAXDIM dimensions. */
const char *xd_st_dtype(const xd_st *s, int64_t i);
/* Where the bytes of tensor i begin in its file, whose descriptor is returned, borrowed. */
int         xd_st_place(const xd_st *s, int64_t i, size_t *at);
/* View of tensor i, contiguous, perhaps unaligned; valid until as many xd_st_done(s, i) as there
 * were gets, xd_st_release or close. A file that has become shorter is refused (XD_EIO). */
xd_status   xd_st_get(xd_st *s, int64_t i, xd_tensor *t, xd_err *e);
void        xd_st_done(xd_st *s, int64_t i);
/* Bytes of a view of tensor i are not read again soon: their pages are unmapped. */
void        xd_st_past(const xd_st *s, int64_t i, const void *p, size_t bytes);
void        xd_st_release(xd_st *s);                    /* ends all views; s may be NULL       */
int         xd_st_mapped(const xd_st *s);       /* views cost address space, not memory        */
/* Of what the tensors are and where they lie, and of every file its size, its whole header and 64
 * pages of 4 KiB at even distances, the first and the last among them. A file of at most 64 pages
 * is taken whole; a change between the pages of a larger one is not seen. */
uint64_t    xd_st_hash(const xd_st *s);
size_t      xd_st_bytes(const xd_st *s);                /* of all tensors                      */
/* What `__metadata__` has under a key, of the first file that has it; NULL: nothing. */
const char *xd_st_meta(const xd_st *s, const char *key);

/* Writes tensors (host, any strides; floats become f32 unless `keep`) with string metadata pairs
 * (key, value, ..., NULL; or NULL), atomically. */
typedef struct xd_st_item { const char *name; xd_tensor t; } xd_st_item;
xd_status xd_st_write(const char *path, const xd_st_item *items, int n, int keep,
                      const char *const *meta, xd_err *e);

#endif
