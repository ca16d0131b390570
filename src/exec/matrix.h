/* matrix.h - inside exec: loads matrices, and the tensors that they are made from */
#ifndef XD_EXEC_MATRIX_H
#define XD_EXEC_MATRIX_H

#include "exec/tokens.h"
#include "exec/weight.h"

/* ---- elements (weight.c) ------------------------------------------------------------------- */

typedef struct xd_made {        /* random elements of a tensor                                */
    uint64_t hash;
    float    gain, mean;
} xd_made;

typedef struct xd_fetched {     /* a checkpoint tensor, or random elements                    */
    char      name[512];
    xd_tensor t;
    xd_made   made;             /* for XD_VISIT_RANDOM                                         */
    void     *hold;             /* memory of random elements and of sums, or NULL              */
    void     *sum;              /* terms to add to rows (xd_sum_open), or NULL                 */
    xd_coding  codes;            /* if the tensor is stored as codes                            */
} xd_fetched;

typedef struct xd_fetch {       /* request for a tensor                                       */
    const char    *names, *suffix;      /* as in xd_load_name                                  */
    int            nd;
    const int64_t *shape;
    float          gain, mean;  /* of random elements                                         */
    int            coded;       /* 1: do not decode a tensor stored as codes                   */
    int            rotated;     /* 1: and keep it in its stored (rotated) basis                */
} xd_fetch;

/* Writes the full name of a tensor: the first of the aliases "names" + suffix in the source. */
void  xd_load_name(const xd_decl *d, const char *names, const char *suffix, char out[512]);
/* Reads a tensor, valid until xd_load_release; without files makes random elements in memory.
 * Tensors stored as codes are decoded. Returns 0 on failure. */
int   xd_load_fetch(xd_decl *d, const xd_fetch *what, xd_fetched *f);
/* As xd_load_fetch without making or decoding elements: t.p is NULL without files, and xd_load_make
 * makes the elements. */
int   xd_load_find(xd_decl *d, const xd_fetch *what, xd_fetched *f);
void  xd_load_release(xd_decl *d, xd_fetched *f);
void  xd_load_make(const xd_made *m, int64_t first, int64_t n, float *to);
/* Returns the scale by which the stored elements of a tensor are multiplied. */
float xd_load_scale(xd_decl *d, const char *name, xd_dtype stored);
/* Records that a tensor has NaN or infinite elements; logs the first such tensor. */
void  xd_load_nonfinite(xd_decl *d, const char *name);
void  xd_load_warn(xd_decl *d, const char *name, xd_tensor t);  /* the same, if t has any     */
/* Allocates memory for a weight. *mine is 0 if another process fills it. */
void *xd_load_allocate(xd_decl *d, size_t bytes, const char *name, int *mine);
void  xd_load_count(xd_decl *d, size_t bytes);          /* adds a weight to the count         */
/* COUNT: announces to the source (if d->announces) the elements of a tensor that a load will
 * read. */
void  xd_load_will(xd_decl *d, const char *names, const char *suffix, int64_t first, int64_t n);
void  xd_load_count_work(xd_decl *d, int slot, size_t bytes); /* COUNT: working memory of a slot */

/* ---- elements (elements.c) ------------------------------------------------------------------ */

/* Converts elements [first, first + n) of a contiguous tensor of a file, possibly within blocks of
 * a block type, to type tt, multiplied by `scale`. */
void  xd_load_elements(void *to, xd_dtype tt, xd_tensor from, int64_t first, int64_t n,
                       float scale);
/* Returns the maximum magnitude of such elements; NaN if one of them is not finite. */
float xd_load_most(xd_tensor from, int64_t first, int64_t n, float scale);

/* ---- codes (codes.c) ----------------------------------------------------------------------- */

/* xd_load_elements and xd_load_most for a part of a row of a tensor stored as codes. */
void  xd_load_decoded(void *to, xd_dtype tt, const xd_coding *c, int64_t row, int64_t column,
                      int64_t n);
float xd_load_decoded_most(const xd_coding *c, int64_t row, int64_t n);
/* Finds how to decode a tensor, if it is stored as codes. Returns 0 on failure. */
int   xd_load_coding(xd_decl *d, xd_fetched *f, int rotated);
/* Replaces a tensor that is stored as codes by its decoded elements. Returns 0 on failure. */
int   xd_load_decode(xd_decl *d, xd_fetched *f);

/* ---- sums (sums.c) ------------------------------------------------------------------------- */

/* Returns 1 if the source adds terms to this tensor (names as in xd_load_name). */
int    xd_sum_is(const xd_decl *d, const char *names, const char *suffix);
/* Returns the bytes of its sum, 0 if it has no terms; whole: with all n elements in f32. */
size_t xd_sum_bytes(const xd_decl *d, const char *names, const char *suffix, int64_t n, int whole);
/* Prepares the terms of a tensor that has some. Returns 0 on failure. */
int    xd_sum_open(xd_decl *d, xd_fetched *f, const xd_span *span, int n);
void   xd_sum_add(const xd_decl *d, const xd_fetched *f, int64_t row, int64_t n, float *to,
                  int thread);
void   xd_sum_close(const xd_decl *d, xd_fetched *f);
/* Replaces a tensor that has terms by its sum. Returns 0 on failure. */
int    xd_sum_whole(xd_decl *d, xd_fetched *f);

/* ---- matrices (matrix.c) ------------------------------------------------------------------- */

typedef struct xd_mat_part {    /* checkpoint matrix in a local matrix                         */
    const char *name;
    int64_t     out, in;        /* extents in the checkpoint                                   */
    int64_t     rows;           /* number of this rank's rows                                  */
    int64_t     row0;           /* first of this rank's rows                                   */
} xd_mat_part;

/* Returns 1 if part i is from the same tensor as the previous part. */
int   xd_mat_repeats(const xd_mat_part *parts, int i);

typedef struct xd_mat_cols {    /* this rank's columns, equal for all parts                    */
    int     n;
    xd_span span[XD_MAXSEG];
    int64_t total;
} xd_mat_cols;

typedef struct xd_matrix {      /* a local matrix                                              */
    const xd_mat_part *parts;
    int                n;       /* number of parts                                             */
    xd_mat_cols        cols;
    int                nd;      /* with one part: shape in the checkpoint                      */
    const int64_t     *shape;   /* NULL: [out, in]                                             */
    int64_t            rotate;  /* xd_lin.rotate: parts stay rotated                           */
} xd_matrix;

typedef struct xd_lin_kind { xd_split split; int bias, few; } xd_lin_kind;

/* Sets the type of w. Quantizes matrices that tensor parallelism splits, which matter for memory
 * and time, and matrices that few rows use, which matter for memory; these become integers, which
 * are more precise than e4m3. The type must not depend on the split. Returns 1 if the matrix is
 * held in groups of four-bit integers and multiplied in the compute type. */
int xd_mat_type(const xd_decl *d, const xd_lin_kind *kind, const xd_matrix *m, xd_weight *w);
/* Sets and returns w->rotate of a matrix: the group size in which its inputs are rotated, because
 * its rows are stored as rotated integers and stay so; 0: inputs are not rotated, and the type of w
 * may have changed. */
int64_t xd_mat_rotation(xd_decl *d, xd_lin *w, const xd_matrix *m);
/* Counts the size of w and the working memory of its load. */
void xd_mat_count(xd_decl *d, xd_weight *w, const xd_matrix *m);
/* Allocates and fills w. */
void xd_mat_load(xd_decl *d, xd_weight *w, const xd_matrix *m);
void xd_mat_pack(xd_decl *d, xd_weight *w, xd_tensor src, const char *name);

/* ---- matrices packed for each GEMM (stored.c) ----------------------------------- */

/* Returns 1 if a matrix stays as stored: its parts are the integers of w, a part has a block type,
 * or all matrices stay (d->stays). */
int     xd_mat_stays(const xd_decl *d, const xd_weight *w, const xd_matrix *m);
/* xd_mat_count and xd_mat_load for such a matrix. */
void    xd_mat_count_stored(xd_decl *d, xd_lin *l, const xd_matrix *m);
void    xd_mat_load_stored(xd_decl *d, xd_lin *l, const xd_matrix *m);
/* Returns 1 if a matrix to be quantized is held in groups of four-bit integers. */
int     xd_mat_takes_four(const xd_decl *d, const xd_matrix *m);
/* Returns the group size in which the inputs of such a matrix are rotated like its rows
 * (xd_four_rotation); 0: a split is within a group, so rows are rotated back when gathered. */
int64_t xd_mat_four_rotation(const xd_decl *d, const xd_matrix *m);
/* Returns 1 if a matrix is stored in such groups; it stays so. *rotate: group size in which its
 * columns stay rotated; 0: rows are rotated back, if necessary, each time they are gathered. */
int     xd_mat_is_four(const xd_decl *d, const xd_matrix *m, int64_t *rotate);
/* xd_mat_count and xd_mat_load for such a matrix; l->rotate is set. */
void    xd_mat_count_four(xd_decl *d, xd_lin *l, const xd_matrix *m);
void    xd_mat_load_four(xd_decl *d, xd_lin *l, const xd_matrix *m);

#endif
