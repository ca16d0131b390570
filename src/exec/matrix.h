/* matrix.h - inside exec: loading of matrices, and of the elements they are made from */
#ifndef XD_EXEC_MATRIX_H
#define XD_EXEC_MATRIX_H

#include "exec/tokens.h"
#include "exec/weight.h"

/* ---- elements (weight.c) ------------------------------------------------------------------- */

typedef struct xd_made {        /* random elements of one tensor                              */
    uint64_t hash;
    float    gain, mean;
} xd_made;

typedef struct xd_fetched {     /* one tensor of the checkpoint, or random elements instead   */
    char      name[512];
    xd_tensor t;
    xd_made   made;             /* for XD_VISIT_RANDOM                                         */
    void     *hold;             /* memory of random elements and of sums, or NULL              */
    void     *sum;              /* terms to add to rows (xd_sum_open), or NULL                 */
    xd_coding  codes;            /* of a tensor in codes                                        */
} xd_fetched;

typedef struct xd_fetch {       /* which tensor                                               */
    const char    *names, *suffix;      /* as in xd_load_name                                  */
    int            nd;
    const int64_t *shape;
    float          gain, mean;  /* of random elements                                         */
    int            coded;       /* 1: a tensor in codes is not decoded                         */
    int            rotated;     /* 1: and is read in the basis it is stored in                 */
} xd_fetch;

/* The full name of a tensor: the first of the aliases "names" + suffix that the source has. */
void  xd_load_name(const xd_decl *d, const char *names, const char *suffix, char out[512]);
/* Gets a tensor, valid until xd_load_release; without files its elements are made in memory, as are
 * those of a tensor in codes. 0: failed. */
int   xd_load_fetch(xd_decl *d, const xd_fetch *what, xd_fetched *f);
/* xd_load_fetch that makes no elements: t.p is then NULL, and xd_load_make gives the elements. A
 * tensor in codes stays so. */
int   xd_load_find(xd_decl *d, const xd_fetch *what, xd_fetched *f);
void  xd_load_release(xd_decl *d, xd_fetched *f);
void  xd_load_make(const xd_made *m, int64_t first, int64_t n, float *to);
/* The scale by which the stored elements of a tensor are multiplied. */
float xd_load_scale(xd_decl *d, const char *name, xd_dtype stored);
/* Records that a tensor has NaN or infinite elements; logs the first such tensor. */
void  xd_load_nonfinite(xd_decl *d, const char *name);
void  xd_load_warn(xd_decl *d, const char *name, xd_tensor t);  /* records it if t has any    */
/* Memory of a weight. *mine is 0 if another process fills it. */
void *xd_load_allocate(xd_decl *d, size_t bytes, const char *name, int *mine);
void  xd_load_count(xd_decl *d, size_t bytes);          /* adds a weight                      */
/* COUNT: reports to the source (if d->announces) which elements of a tensor a load will read. */
void  xd_load_will(xd_decl *d, const char *names, const char *suffix, int64_t first, int64_t n);
void  xd_load_count_work(xd_decl *d, int slot, size_t bytes); /* COUNT: working memory of a slot */

/* ---- numbers (elements.c) ------------------------------------------------------------------ */

/* Elements [first, first + n) of a contiguous tensor of a file, perhaps within blocks of a block
 * type, times `scale`, as numbers of type tt. */
void  xd_load_elements(void *to, xd_dtype tt, xd_tensor from, int64_t first, int64_t n,
                       float scale);
/* The largest magnitude of such elements; NaN if one of them is not finite. */
float xd_load_most(xd_tensor from, int64_t first, int64_t n, float scale);

/* ---- codes (codes.c) ----------------------------------------------------------------------- */

/* xd_load_elements and xd_load_most of a part of a row of a tensor in codes. */
void  xd_load_decoded(void *to, xd_dtype tt, const xd_coding *c, int64_t row, int64_t column,
                      int64_t n);
float xd_load_decoded_most(const xd_coding *c, int64_t row, int64_t n);
/* Finds how a tensor that was got is decoded, if it is in codes. 0: failed. */
int   xd_load_coding(xd_decl *d, xd_fetched *f, int rotated);
/* Replaces a tensor, if it is in codes, by its numbers. 0: failed. */
int   xd_load_decode(xd_decl *d, xd_fetched *f);

/* ---- sums (sums.c) ------------------------------------------------------------------------- */

/* Does the source add terms to this tensor (names as in xd_load_name)? */
int    xd_sum_is(const xd_decl *d, const char *names, const char *suffix);
/* Bytes that its sum takes, 0 if it is none; whole: with all n elements in f32. */
size_t xd_sum_bytes(const xd_decl *d, const char *names, const char *suffix, int64_t n, int whole);
/* Prepares the terms of a tensor that has some. 0: failed. */
int    xd_sum_open(xd_decl *d, xd_fetched *f, const xd_span *span, int n);
void   xd_sum_add(const xd_decl *d, const xd_fetched *f, int64_t row, int64_t n, float *to,
                  int thread);
void   xd_sum_close(const xd_decl *d, xd_fetched *f);
/* Replaces a tensor that has terms by its sum. 0: failed. */
int    xd_sum_whole(xd_decl *d, xd_fetched *f);

/* ---- matrices (matrix.c) ------------------------------------------------------------------- */

typedef struct xd_mat_part {    /* a checkpoint matrix that is part of a local matrix          */
    const char *name;
    int64_t     out, in;        /* extents in the checkpoint                                   */
    int64_t     rows;           /* number of my rows                                           */
    int64_t     row0;           /* first of my rows                                            */
} xd_mat_part;

/* Is part i of the same tensor as the part before it? */
int   xd_mat_repeats(const xd_mat_part *parts, int i);

typedef struct xd_mat_cols {    /* my columns, equal for all parts                             */
    int     n;
    xd_span span[XD_MAXSEG];
    int64_t total;
} xd_mat_cols;

typedef struct xd_matrix {      /* a local matrix                                              */
    const xd_mat_part *parts;
    int                n;       /* number of parts                                             */
    xd_mat_cols        cols;
    int                nd;      /* with one part: shape of its tensor in the checkpoint        */
    const int64_t     *shape;   /* NULL: [out, in]                                             */
    int64_t            rotate;  /* of xd_lin: parts stay rotated                               */
} xd_matrix;

typedef struct xd_lin_kind { xd_split split; int bias, few; } xd_lin_kind;

/* Sets the type of w. Quantizes the matrices that tensor parallelism cuts, which matter for memory
 * and time, and those that few rows read, which matter for memory: integers are nearer to their
 * numbers than e4m3. The type must not depend on how they are cut. 1: the matrix is held in groups
 * of four-bit integers; it is multiplied in the compute type. */
int xd_mat_type(const xd_decl *d, const xd_lin_kind *kind, const xd_matrix *m, xd_weight *w);
/* Sets and returns w->rotate of a matrix: in which groups its inputs are rotated, because its rows
 * are stored as integers that were rotated and stay so; 0: they do not, and w's type may have
 * changed. */
int64_t xd_mat_rotation(xd_decl *d, xd_lin *w, const xd_matrix *m);
/* Counts the size of w and the working memory of its load. */
void xd_mat_count(xd_decl *d, xd_weight *w, const xd_matrix *m);
/* Allocates and fills w. */
void xd_mat_load(xd_decl *d, xd_weight *w, const xd_matrix *m);
void xd_mat_pack(xd_decl *d, xd_weight *w, xd_tensor src, const char *name);

/* ---- matrices that are packed for each product (stored.c) ----------------------------------- */

/* Does a matrix stay as it is stored? One whose parts are the integers of w does, one with a part
 * in a block type, or every one. */
int     xd_mat_stays(const xd_decl *d, const xd_weight *w, const xd_matrix *m);
/* xd_mat_count and xd_mat_load of such a matrix. */
void    xd_mat_count_stored(xd_decl *d, xd_lin *l, const xd_matrix *m);
void    xd_mat_load_stored(xd_decl *d, xd_lin *l, const xd_matrix *m);
/* Is a matrix that is to be quantized held in groups of four-bit integers? */
int     xd_mat_takes_four(const xd_decl *d, const xd_matrix *m);
/* In which groups the inputs of such a matrix are rotated as its rows are (xd_four_rotation); 0: a
 * cut is within a group, so rows are rotated back each time that they are gathered. */
int64_t xd_mat_four_rotation(const xd_decl *d, const xd_matrix *m);
/* Is a matrix stored in such groups? It stays as it is. *rotate: in which groups its columns stay
 * rotated; 0: each time that rows are gathered they are rotated back, if they are rotated. */
int     xd_mat_is_four(const xd_decl *d, const xd_matrix *m, int64_t *rotate);
/* xd_mat_count and xd_mat_load of such a matrix; l->rotate is set. */
void    xd_mat_count_four(xd_decl *d, xd_lin *l, const xd_matrix *m);
void    xd_mat_load_four(xd_decl *d, xd_lin *l, const xd_matrix *m);

#endif
