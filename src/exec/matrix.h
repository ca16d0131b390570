/* matrix.h - used only in src/exec: loads weight matrices, and the checkpoint tensors from which
 * they are made. */
#ifndef XD_EXEC_MATRIX_H
#define XD_EXEC_MATRIX_H

#include "exec/tokens.h"
#include "exec/weight.h"

/* ---- elements (weight.c) ------------------------------------------------------------------- */

typedef struct xd_made { /* parameters of a tensor's random elements */
    uint64_t hash;
    float    gain, mean;
} xd_made;

typedef struct xd_fetched { /* a tensor that was read from the checkpoint, or random elements */
    char      name[512];
    xd_tensor t;
    xd_made   made; /* if weights are random: parameters of the random elements */
    void     *hold; /* memory that contains random elements or sums with LoRA terms, or NULL */
    /* terms to add to the tensor's rows, such as those of a LoRA (xd_sum_open), or NULL */
    void     *sum;
    xd_coding codes; /* how to decode the tensor, if it is stored as quantized codes */
} xd_fetched;

typedef struct xd_fetch {          /* tells which tensor is read, and how */
    const char    *names, *suffix; /* as in xd_load_name */
    int            nd;
    const int64_t *shape;
    float          gain, mean; /* gain and mean of random elements */
    int            coded; /* 1: a tensor stored as quantized codes is not decoded when it is read */
    int            rotated; /* 1: a rotated tensor stays rotated, as stored */
} xd_fetch;

/* Writes the full name that a tensor has in the weight source: the first of the alternative names
 * in `names` that the source contains, followed by `suffix`. */
void  xd_load_name(const xd_decl *d, const char *names, const char *suffix, char out[512]);
/* Reads a tensor, which is valid until xd_load_release. If weights are random, there are no files,
 * and xd_load_fetch makes the elements in memory. xd_load_fetch decodes a tensor that is stored as
 * codes. Returns 0 if the tensor cannot be read. */
int   xd_load_fetch(xd_decl *d, const xd_fetch *what, xd_fetched *f);
/* Finds a tensor as xd_load_fetch does, but neither makes random elements nor decodes quantized
 * ones. If weights are random, sets f->t.p to NULL; the caller then makes the elements with
 * xd_load_make. */
int   xd_load_find(xd_decl *d, const xd_fetch *what, xd_fetched *f);
void  xd_load_release(xd_decl *d, xd_fetched *f);
void  xd_load_make(const xd_made *m, int64_t first, int64_t n, float *to);
/* Returns the scale by which the stored elements of a tensor are multiplied. */
float xd_load_scale(xd_decl *d, const char *name, xd_dtype stored);
/* Records that a tensor has NaN or infinite elements; logs the first such tensor. */
void  xd_load_nonfinite(xd_decl *d, const char *name);
/* Calls xd_load_nonfinite if the tensor t contains NaN or infinite elements. */
void  xd_load_warn(xd_decl *d, const char *name, xd_tensor t);
/* Allocates memory for a weight. Sets *mine to 1 if this process must write the weight, 0 if
 * another process does. */
void *xd_load_allocate(xd_decl *d, size_t bytes, const char *name, int *mine);
/* Adds the `bytes` of one weight to the counted bytes of all weights. */
void  xd_load_count(xd_decl *d, size_t bytes);
/* Call xd_load_will while memory is counted. If d->announces is 1, tells the weight source which
 * elements of a tensor will be read when the weights are loaded. */
void  xd_load_will(xd_decl *d, const char *names, const char *suffix, int64_t first, int64_t n);
/* Call xd_load_count_work while memory is counted. Counts `bytes` of working memory that loading a
 * weight needs in scratch buffer `slot` of the weight store (xd_store_scratch). */
void  xd_load_count_work(xd_decl *d, int slot, size_t bytes);

/* ---- elements (elements.c) ------------------------------------------------------------------ */

/* Converts elements [first, first + n) of a contiguous tensor in a file to type tt, multiplied by
 * `scale`. The tensor may be of a GGUF block type, and the range of elements may begin or end
 * inside a quantization block. */
void xd_load_elements(void *to, xd_dtype tt, xd_tensor from, int64_t first, int64_t n, float scale);
/* Returns the maximum magnitude of elements [first, first + n) of a tensor, times `scale`; NaN if
 * an element is not finite. */
float xd_load_most(xd_tensor from, int64_t first, int64_t n, float scale);

/* ---- codes (codes.c) ----------------------------------------------------------------------- */

/* Functions for a row of a tensor that is stored as quantized codes. xd_load_decoded converts n
 * elements of the row, and xd_load_decoded_most returns the maximum magnitude of n elements. */
void  xd_load_decoded(void *to, xd_dtype tt, const xd_coding *c, int64_t row, int64_t column,
                      int64_t n);
float xd_load_decoded_most(const xd_coding *c, int64_t row, int64_t n);
/* If the tensor f is stored as quantized codes, sets f->codes, which tells how to decode it.
 * Returns 0 if the codes cannot be decoded. */
int   xd_load_coding(xd_decl *d, xd_fetched *f, int rotated);
/* Replaces a tensor that is stored as quantized codes by its decoded elements. Returns 0 if the
 * tensor cannot be decoded. */
int   xd_load_decode(xd_decl *d, xd_fetched *f);

/* ---- sums (sums.c) ------------------------------------------------------------------------- */

/* Returns 1 if the weight source adds terms, such as those of a LoRA, to this tensor (names and
 * suffix as in xd_load_name). */
int    xd_sum_is(const xd_decl *d, const char *names, const char *suffix);
/* Returns how many bytes of memory are needed to add a tensor's terms; 0 if the tensor has no
 * terms. If `whole` is 1, the number of bytes includes memory for all n elements of the sum in
 * f32. */
size_t xd_sum_bytes(const xd_decl *d, const char *names, const char *suffix, int64_t n, int whole);
/* If the source adds terms to the tensor f, prepares these terms for xd_sum_add. Returns 0 if the
 * terms to add to the tensor cannot be prepared. */
int    xd_sum_open(xd_decl *d, xd_fetched *f, const xd_span *span, int n);
void   xd_sum_add(const xd_decl *d, const xd_fetched *f, int64_t row, int64_t n, float *to,
                  int thread);
void   xd_sum_close(const xd_decl *d, xd_fetched *f);
/* If the source adds terms to the tensor f, replaces f by the sum of the stored tensor and all its
 * terms. Returns 0 if the sum of the tensor and its added terms cannot be computed. */
int    xd_sum_whole(xd_decl *d, xd_fetched *f);

/* ---- matrices (matrix.c) ------------------------------------------------------------------- */

typedef struct xd_mat_part { /* a checkpoint matrix from which rows of a local matrix are copied */
    const char *name;
    int64_t     out, in; /* number of rows (out) and of columns (in) of the checkpoint matrix */
    int64_t     rows;    /* number of rows of this checkpoint matrix on this rank */
    int64_t     row0;    /* index, in the checkpoint matrix, of this rank's first row */
} xd_mat_part;

/* Returns 1 if parts[i] and parts[i - 1] of a local matrix are rows of one checkpoint tensor. */
int xd_mat_repeats(const xd_mat_part *parts, int i);

typedef struct xd_mat_cols { /* this rank's columns of a matrix, as spans of columns */
    int     n;
    xd_span span[XD_MAXSEG];
    int64_t total;
} xd_mat_cols;

typedef struct xd_matrix { /* a local matrix: the rows and columns with which this rank computes */
    const xd_mat_part *parts;
    int                n; /* number of checkpoint matrices that are fused to this local matrix */
    xd_mat_cols        cols;
    int                nd;    /* number of extents in `shape`, if n is 1 */
    const int64_t     *shape; /* shape of the matrix in the checkpoint; NULL: [out, in] */
    /* Group size in which rows are stored rotated and stay rotated (xd_lin.rotate); 0: rows are not
     * rotated. */
    int64_t            rotate;
} xd_matrix;

typedef struct xd_lin_kind {
    xd_split split;
    int      bias, few;
} xd_lin_kind;

/* Sets the element type of a weight matrix w. If the user requests quantized weights, two kinds of
 * matrices are quantized: those that tensor parallelism can split, to save memory and time, and
 * those that multiply only a few input rows, to save memory. Matrices that multiply only a few
 * input rows become int8, which is more precise than e4m3. The element type of a matrix does not
 * depend on the tensor-parallel degree. Returns 1 if the matrix is stored in groups of four-bit
 * integers and is multiplied in the compute type. */
int     xd_mat_type(const xd_decl *d, const xd_lin_kind *kind, const xd_matrix *m, xd_weight *w);
/* Decides whether a layer whose matrix is stored as rotated integers rotates its inputs. If so, the
 * matrix stays rotated, and w->rotate is set to the group size of the rotation. If the layer does
 * not rotate its inputs, w->rotate is set to 0, and w may get another element type. Returns
 * w->rotate. */
int64_t xd_mat_rotation(xd_decl *d, xd_lin *w, const xd_matrix *m);
/* Adds the size of w, and the working memory for loading w, to the counted memory. */
void    xd_mat_count(xd_decl *d, xd_weight *w, const xd_matrix *m);
/* Allocates and loads the local matrix w. */
void    xd_mat_load(xd_decl *d, xd_weight *w, const xd_matrix *m);
void    xd_mat_pack(xd_decl *d, xd_weight *w, xd_tensor src, const char *name);

/* ---- stored matrices (stored.c) ------------------------------------------------- */

/* Returns 1 if a matrix stays in its file instead of being packed when loaded (exec/stored.h), as
 * d->stays selects: because the file stores it as the integers of w, because a part of it has a
 * GGUF block type, or because all matrices stay. */
int     xd_mat_stays(const xd_decl *d, const xd_weight *w, const xd_matrix *m);
/* For a matrix that stays in its file as stored there, xd_mat_count_stored and xd_mat_load_stored
 * replace xd_mat_count and xd_mat_load. */
void    xd_mat_count_stored(xd_decl *d, xd_lin *l, const xd_matrix *m);
void    xd_mat_load_stored(xd_decl *d, xd_lin *l, const xd_matrix *m);
/* Returns 1 if matrix m, which will be quantized, is quantized to groups of four-bit integers. */
int     xd_mat_takes_four(const xd_decl *d, const xd_matrix *m);
/* Returns the group size in which the inputs of a four-bit matrix are rotated like its rows
 * (xd_four_rotation). Returns 0 if tensor parallelism gives the columns of one rotation group to
 * different ranks. If the function returns 0, the rotation of stored rows is undone when the rows
 * are gathered. */
int64_t xd_mat_four_rotation(const xd_decl *d, const xd_matrix *m);
/* Returns 1 if a matrix is stored in groups of four-bit integers, and stays in these groups when
 * loaded. Sets *rotate to the group size in which the matrix's columns stay rotated. If *rotate is
 * 0, the rows are not rotated, or their rotation is undone each time they are gathered. */
int     xd_mat_is_four(const xd_decl *d, const xd_matrix *m, int64_t *rotate);
/* For a matrix in groups of four-bit integers, xd_mat_count_four and xd_mat_load_four replace
 * xd_mat_count and xd_mat_load. Before xd_mat_count_four and xd_mat_load_four, the caller must set
 * l->rotate. */
void    xd_mat_count_four(xd_decl *d, xd_lin *l, const xd_matrix *m);
void    xd_mat_load_four(xd_decl *d, xd_lin *l, const xd_matrix *m);

#endif
