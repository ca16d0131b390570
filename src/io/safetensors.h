/* safetensors.h - weights on disk: a safetensors or GGUF file, or shards of them.
 *
 * A tensor is mapped read-only while it is in use, and nothing else of its file, because a
 * checkpoint may be larger than the address space. If the file system cannot map files, tensors
 * are read into memory that `done` frees; this is logged once. */
#ifndef XD_IO_SAFETENSORS_H
#define XD_IO_SAFETENSORS_H

#include "base/err.h"
#include "base/json.h"
#include "tensor/tensor.h"

typedef struct xd_st xd_st;

/* Opens a component directory: `stem`.safetensors, or the shards of
 * `stem`.safetensors.index.json, or the file itself if `path` is one. stem:
 * "diffusion_pytorch_model" or "model"; a variant (stem.fp16.safetensors) is used if there is
 * nothing else, and after it the only .gguf file. Of a GGUF file in shards any shard may be named.
 * Headers are checked completely: offsets inside the file, no overlap, sizes that
 * match shapes. A truncated file is refused with both sizes. A directory with only .bin or .pt
 * files is refused with a remedy. */
xd_status xd_st_open(xd_st **s, const char *path, const char *stem, xd_err *e);
void      xd_st_close(xd_st **s);

int64_t     xd_st_count(const xd_st *s);
const char *xd_st_name(const xd_st *s, int64_t i);      /* sorted by name (bytes)              */
xd_tensor   xd_st_shape(const xd_st *s, int64_t i);     /* type and extents; p is NULL         */
int64_t     xd_st_find(const xd_st *s, const char *name);       /* -1: none                    */
/* The dtype as written in the file ("BF16"). A dtype that is unknown here appears as U8 in
 * xd_st_shape. xd_st_get refuses it, as it refuses a tensor of more than XD_MAXDIM dimensions. */
const char *xd_st_dtype(const xd_st *s, int64_t i);
/* Offset of tensor i in its file; returns the file's descriptor, borrowed. */
int         xd_st_place(const xd_st *s, int64_t i, size_t *at);
/* View of tensor i, contiguous, possibly unaligned. It stays valid until xd_st_done(s, i) was
 * called as often as xd_st_get, or until xd_st_release or close. XD_EIO if the file has become
 * shorter. */
xd_status   xd_st_get(xd_st *s, int64_t i, xd_tensor *t, xd_err *e);
void        xd_st_done(xd_st *s, int64_t i);
/* These bytes of a view of tensor i will not be read again soon: unmaps their pages. */
void        xd_st_past(const xd_st *s, int64_t i, const void *p, size_t bytes);
void        xd_st_release(xd_st *s);                    /* ends all views; s may be NULL       */
int         xd_st_mapped(const xd_st *s);       /* views use address space, not memory         */
/* Hash of the tensors' names, types, shapes and offsets, and for every file its size, its
 * complete header and 64 pages of 4 KiB at equal distances, including the first and the last. A
 * file of at most 64 pages is hashed completely; in a larger file a change between the pages
 * goes unnoticed. */
uint64_t    xd_st_hash(const xd_st *s);
/* Files, and a hash of all bytes of file i, which all threads read. XD_EIO: it cannot be read. */
int         xd_st_files(const xd_st *s);
const char *xd_st_file_path(const xd_st *s, int i);
xd_status   xd_st_file_digest(const xd_st *s, int i, uint64_t *digest, xd_err *e);
size_t      xd_st_bytes(const xd_st *s);                /* bytes of all tensors                */
/* Value of a key of `__metadata__` or of a GGUF header, from the first file that has it; NULL:
 * none. */
const char *xd_st_meta(const xd_st *s, const char *key);
const char *xd_st_path(const xd_st *s);         /* of the first file                           */
int         xd_st_is_gguf(const xd_st *s);      /* values of keys (xd_st_meta) may be numbers  */

/* Writes tensors (on the host, any strides; floats become f32 unless `keep`) with metadata (key,
 * value, ..., NULL; or NULL), atomically. */
typedef struct xd_st_item { const char *name; xd_tensor t; } xd_st_item;
xd_status xd_st_write(const char *path, const xd_st_item *items, int n, int keep,
                      const char *const *meta, xd_err *e);
/* The header of a file with such tensors as they are: appended, without its size in front, which
 * xd_st_size makes. The data begin behind both, at a multiple of `align`. */
enum { XD_ST_SIZE = 8 };
typedef struct xd_st_head { const xd_st_item *items; int n; const char *const *meta; } xd_st_head;
void xd_st_header(xd_text_buf *b, const xd_st_head *h, size_t align);
void xd_st_size(size_t n, unsigned char size[XD_ST_SIZE]);

#endif
