/* safetensors.h - reads weight files, in safetensors or GGUF format, as one file or several shards.
 *
 * Only tensors in use are memory-mapped (read-only), not complete files, because a checkpoint may
 * be larger than the address space. If the file system cannot map files, tensors are read into
 * memory that xd_st_done frees, and a log line says so. */
#ifndef XD_IO_SAFETENSORS_H
#define XD_IO_SAFETENSORS_H

#include "base/err.h"
#include "base/json.h"
#include "tensor/tensor.h"

typedef struct xd_st xd_st;

/* Opens the weight files in a component's directory. In a directory, the first of the following
 * that exists is opened: STEM.safetensors, or the shards that STEM.safetensors.index.json lists; a
 * variant such as STEM.fp16.safetensors; the only .gguf file. STEM is the argument `stem`. If
 * `path` is a file, opens that file; for a sharded GGUF model, the file may be any shard. stem:
 * "diffusion_pytorch_model" or "model". All headers are checked: offsets are inside the file,
 * tensors do not overlap, and sizes match shapes. The error message for a truncated file contains
 * the actual and the expected size. If a directory has only .bin or .pt files, the error message
 * tells how to convert them. */
xd_status xd_st_open(xd_st **s, const char *path, const char *stem, xd_err *e);
/* Adds the tensors of the weight files in `more` to *s, with `prefix` before their names, and frees
 * `more`. */
xd_status xd_st_join(xd_st *s, xd_st **more, const char *prefix, xd_err *e);
void      xd_st_close(xd_st **s);

int64_t     xd_st_count(const xd_st *s); /* returns the number of tensors */
/* Returns the name of tensor i; tensors are sorted by name, bytewise. */
const char *xd_st_name(const xd_st *s, int64_t i);
/* Returns the type and extents of tensor i; its address p is NULL. */
xd_tensor   xd_st_shape(const xd_st *s, int64_t i);
/* Returns the index of the tensor with this name, or -1 if there is no such tensor. */
int64_t     xd_st_find(const xd_st *s, const char *name);
/* Returns the dtype of tensor i as written in the file ("BF16"). If a dtype is not supported,
 * xd_st_shape returns U8, and xd_st_get returns an error. xd_st_get also refuses a tensor of more
 * than XD_MAXDIM dimensions. */
const char *xd_st_dtype(const xd_st *s, int64_t i);
/* Sets *at to the offset of tensor i in its file, and returns the descriptor of this file, which is
 * borrowed. */
int         xd_st_place(const xd_st *s, int64_t i, size_t *at);
/* Maps tensor i and sets *t to a contiguous view of the tensor, whose address may be unaligned. A
 * view is valid until xd_st_done(s, i) was called as often as xd_st_get, or until xd_st_release or
 * xd_st_close. Returns XD_EIO if the file was truncated. */
xd_status   xd_st_get(xd_st *s, int64_t i, xd_tensor *t, xd_err *e);
void        xd_st_done(xd_st *s, int64_t i);
/* Tells that `bytes` bytes at p, in the view of tensor i, will not be read again soon, and releases
 * the memory pages that lie completely inside them. A later access reads the released pages
 * again. */
void        xd_st_past(const xd_st *s, int64_t i, const void *p, size_t bytes);
void        xd_st_release(xd_st *s); /* unmaps all views; s may be NULL */
/* Returns 1 if tensors are mapped, 0 if they are read into memory. */
int         xd_st_mapped(const xd_st *s);
/* Returns a hash of the tensors' names, types, shapes and offsets, and of every file's size,
 * complete header and 64 pages of 4 KiB at equal distances, including the first and the last. A
 * file of at most 64 pages is hashed completely; in a larger file, changes between the hashed pages
 * do not change the hash. */
uint64_t    xd_st_hash(const xd_st *s);
/* xd_st_files returns the number of files, and xd_st_file_path returns the path of file i.
 * xd_st_file_digest computes a hash of all bytes of file i with all threads, and returns XD_EIO if
 * the file cannot be read. */
int         xd_st_files(const xd_st *s);
const char *xd_st_file_path(const xd_st *s, int i);
xd_status   xd_st_file_digest(const xd_st *s, int i, uint64_t *digest, xd_err *e);
size_t      xd_st_bytes(const xd_st *s); /* returns the total size of all tensors in bytes */
/* Returns the value of a metadata key, from the first file that has the key in `__metadata__` or in
 * its GGUF header. Returns NULL if no file has the key. */
const char *xd_st_meta(const xd_st *s, const char *key);
const char *xd_st_path(const xd_st *s); /* returns the path of the first file */
/* Returns 1 if the file is GGUF, so that xd_st_meta may return numbers as decimal text. */
int         xd_st_is_gguf(const xd_st *s);

/* Writes a safetensors file atomically, with n host tensors of any strides. Elements of
 * floating-point types are converted to f32 unless `keep` is 1. `meta` is NULL, or a list of
 * metadata keys, each followed by its value, with NULL at the end. */
typedef struct xd_st_item {
    const char *name;
    xd_tensor   t;
} xd_st_item;
xd_status xd_st_write(const char *path, const xd_st_item *items, int n, int keep,
                      const char *const *meta, xd_err *e);
/* xd_st_header appends the JSON header of a safetensors file in which the tensors of `h` keep their
 * element types. The file begins with the size of the header (8 bytes, made by xd_st_size). The
 * second item of the file is the header, padded so that the tensors' data begin at a multiple of
 * `align`. */
enum { XD_ST_SIZE = 8 };
typedef struct xd_st_head {
    const xd_st_item  *items;
    int                n;
    const char *const *meta;
} xd_st_head;
void xd_st_header(xd_text_buf *b, const xd_st_head *h, size_t align);
void xd_st_size(size_t n, unsigned char size[XD_ST_SIZE]);

#endif
