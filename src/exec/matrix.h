/* matrix.h - inside exec: matrices while they are loaded, and the numbers they come from */
#ifndef XD_EXEC_MATRIX_H
#define XD_EXEC_MATRIX_H

#include "exec/tokens.h"
#include "exec/weight.h"

/* ---- numbers (weight.c) -------------------------------------------------------------------- */

typedef struct xd_made {        /* random numbers for one tensor                              */
    uint64_t hash;
    float    gain, mean;
} xd_made;

typedef struct xd_fetched {     /* one tensor of the checkpoint, or what is made instead       */
    char      name[512];
    xd_tensor t;
    xd_made   made;             /* for XD_VISIT_RANDOM                                         */
    void     *hold;             /* of made numbers, or NULL                                    */
} xd_fetched;

/* The first of the aliases "names" + suffix that the source has, as a whole name. */
void  xd_load_name(const xd_decl *d, const char *names, const char *suffix, char out[512]);
/* A tensor until let_go, made in memory when there are no files; 0 after a failure. */
int   xd_load_fetch(xd_decl *d, const char *names, const char *suffix, int nd, const int64_t *shape,
                    float gain, float mean, xd_fetched *f);
/* The same without making numbers: t.p is NULL then, and they are had from xd_load_make. */
int   xd_load_find(xd_decl *d, const char *names, const char *suffix, int nd, const int64_t *shape,
                   float gain, float mean, xd_fetched *f);
void  xd_load_let_go(xd_decl *d, xd_fetched *f);
void  xd_load_make(const xd_made *m, int64_t first, int64_t n, float *to);
/* What stored numbers of a tensor are multiplied by. */
float xd_load_scale(xd_decl *d, const char *name, xd_dtype stored);
void  xd_load_convert(void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t n, float scale);
/* Notes that a tensor holds NaN or infinite numbers, and says so of the first. */
void  xd_load_nonfinite(xd_decl *d, const char *name);
void  xd_load_warn(xd_decl *d, const char *name, xd_tensor t);  /* looks whether it does       */
/* Memory of a weight; *mine is 0 when another process fills it. */
void *xd_load_take(xd_decl *d, size_t bytes, const char *name, int *mine);
void  xd_load_count(xd_decl *d, size_t bytes);          /* adds a weight                      */
/* COUNT: tells the source, if it is to hear, which numbers of a tensor a load reads. */
void  xd_load_will(xd_decl *d, const char *names, const char *suffix, int64_t first, int64_t n);
void  xd_load_works(xd_decl *d, int slot, size_t bytes);        /* working memory that it takes       */

/* ---- matrices (matrix.c) ------------------------------------------------------------------- */

typedef struct xd_mat_part {    /* one matrix of the checkpoint within a local one             */
    const char *name;
    int64_t     out, in;        /* its whole extents                                           */
    int64_t     rows;           /* of it that are mine, from row0                              */
    int64_t     row0;
} xd_mat_part;

typedef struct xd_mat_cols {    /* my columns of every part: the same for all                  */
    int     n;
    xd_span span[XD_MAXSEG];
    int64_t total;
} xd_mat_cols;

/* The size of w, and the working memory that loading it takes. */
void xd_mat_count(xd_decl *d, xd_weight *w, const xd_mat_part *parts, int n, const xd_mat_cols *c);
/* Memory for w, filled. shape: of the tensor in the checkpoint when there is one part. */
void xd_mat_load(xd_decl *d, xd_weight *w, const xd_mat_part *parts, int n, const xd_mat_cols *c, int nd,
                 const int64_t *shape);
void xd_mat_pack(xd_decl *d, xd_weight *w, xd_tensor src, const char *name);

#endif
