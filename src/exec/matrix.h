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
} xd_fetched;

typedef struct xd_fetch {       /* which tensor                                               */
    const char    *names, *suffix;      /* as in xd_load_name                                  */
    int            nd;
    const int64_t *shape;
    float          gain, mean;  /* of random elements                                         */
} xd_fetch;

/* The full name of a tensor: the first of the aliases "names" + suffix that the source has. */
void  xd_load_name(const xd_decl *d, const char *names, const char *suffix, char out[512]);
/* Gets a tensor, valid until xd_load_release; without files its elements are made in memory.
 * 0: failed. */
int   xd_load_fetch(xd_decl *d, const xd_fetch *what, xd_fetched *f);
/* xd_load_fetch that makes no elements: t.p is then NULL, and xd_load_make gives the elements. */
int   xd_load_find(xd_decl *d, const xd_fetch *what, xd_fetched *f);
void  xd_load_release(xd_decl *d, xd_fetched *f);
void  xd_load_make(const xd_made *m, int64_t first, int64_t n, float *to);
/* The scale by which the stored elements of a tensor are multiplied. */
float xd_load_scale(xd_decl *d, const char *name, xd_dtype stored);
void  xd_load_convert(void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t n, float scale);
/* Records that a tensor has NaN or infinite elements; logs the first such tensor. */
void  xd_load_nonfinite(xd_decl *d, const char *name);
void  xd_load_warn(xd_decl *d, const char *name, xd_tensor t);  /* records it if t has any    */
/* Memory of a weight. *mine is 0 if another process fills it. */
void *xd_load_allocate(xd_decl *d, size_t bytes, const char *name, int *mine);
void  xd_load_count(xd_decl *d, size_t bytes);          /* adds a weight                      */
/* COUNT: reports to the source (if d->announces) which elements of a tensor a load will read. */
void  xd_load_will(xd_decl *d, const char *names, const char *suffix, int64_t first, int64_t n);
void  xd_load_count_work(xd_decl *d, int slot, size_t bytes); /* COUNT: working memory of a slot */

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
} xd_matrix;

/* Counts the size of w and the working memory of its load. */
void xd_mat_count(xd_decl *d, xd_weight *w, const xd_matrix *m);
/* Allocates and fills w. */
void xd_mat_load(xd_decl *d, xd_weight *w, const xd_matrix *m);
void xd_mat_pack(xd_decl *d, xd_weight *w, xd_tensor src, const char *name);

#endif
