/* gather.h - inside exec: gathers the rows of a local matrix from the matrices of the checkpoint
 *
 * A local matrix is fused from parts and split by tensor parallelism. Both are one operation here:
 * rows and columns of the parts are gathered one after the other. */
#ifndef XD_EXEC_GATHER_H
#define XD_EXEC_GATHER_H

#include "exec/matrix.h"

typedef struct xd_gather {      /* copies rows of a part to consecutive rows at `to`           */
    char                *to;
    xd_dtype             type;
    const xd_fetched    *f;
    const xd_mat_part   *p;
    const xd_mat_cols   *c;
    float                scale;
} xd_gather;
/* Copies rows [begin, end); ctx: an xd_gather. */
void xd_gather_copy(void *ctx, int64_t begin, int64_t end, int thread);

/* The gathering of one matrix from its parts. */
typedef struct xd_gathering {
    const xd_mat_part *parts;
    const xd_mat_cols *c;
    int      n;
    int      whole;             /* 1: one complete part                                        */
    int      as_is;             /* 1: e4m3 is used as stored in the file                       */
    int      blocks;            /* 1: a part is stored in a block type or as codes             */
    int      known;             /* 1: a part is stored as codes of w; scales are kept            */
    int      bytes;             /* 1: all are, and the integers are used in place               */
    int      rotated;           /* 1: parts stay rotated                                       */
    int64_t  band;              /* rows per separately packed band; 0: no bands                */
    int      copies;            /* 1: some rows are copied before packing                      */
    int      sums;              /* 1: a part is a sum (weight plus LoRA)                       */
    int      stays;             /* 1: the matrix stays as stored                               */
    xd_dtype type;              /* type of the copy                                            */
    size_t   copy_bytes;        /* bytes of the copy: all rows, or a band per thread           */
    char    *all, *at;          /* the copy; next free row                                     */
    float   *scale;             /* per row: split inputs, or e4m3 as stored; or NULL            */
} xd_gathering;

/* Decides how a matrix is gathered. Scaled 8-bit elements and blocks are gathered in the compute
 * type, or in f32 if they will be quantized. F32 elements are also rounded while they are gathered,
 * which needs less memory, except in bands with added terms. stays: 1 if the matrix will be packed
 * in groups of rows; the device then rounds decoded blocks faster. */
xd_gathering xd_gather_plan(const xd_decl *d, const xd_weight *w, const xd_matrix *m, int stays);
/* Returns 1 if all parts are rows of integers that are used in w as stored. *turned: 1 if some are
 * in another order. */
int    xd_gather_integers(const xd_decl *d, const xd_weight *w, const xd_matrix *m, int *turned);
/* Returns 1 if w has rows whose scales the device cannot compute. They are packed in one piece. */
int    xd_gather_needs_scales(const xd_weight *w, const xd_gathering *g);
/* Sets the scales that the device cannot compute: those of rows with split inputs, computed over
 * the complete row so that all ranks quantize it equally, and those stored in the file. If some
 * rows of a matrix have such scales, all have. */
void   xd_gather_scales(const xd_weight *w, const xd_gathering *g, const xd_gather *from);
/* Allocates the copy. NULL: no memory. */
void  *xd_gather_buffer(xd_decl *d, const xd_gathering *g);
/* Returns the bytes of the sums of all parts, which may be open at the same time. */
size_t xd_gather_sum_bytes(const xd_decl *d, const xd_gathering *g);
/* Announces the rows of the parts to the source. */
void   xd_gather_announce(xd_decl *d, const xd_matrix *m);

/* ---- band by band ------------------------------------------------------------------------- */

typedef struct xd_banding {
    const xd_decl   *d;
    const xd_weight *w;         /* the packed rows: from row0 of the local matrix               */
    int64_t          row0;
    const xd_gathering *g;
    const xd_fetched *f;
    float            stored[XD_MAXSEG];
    int              scans, keeps;      /* 1: check for NaN; 1: keep pages mapped              */
    int              bad[XD_MAXSEG], status;
} xd_banding;

/* Rows of a band that come from part k. */
typedef struct xd_gather_piece { int k; int64_t row, n; } xd_gather_piece;

/* Lists the pieces of rows [row, row + n); returns their number. */
int       xd_gather_pieces(const xd_gathering *g, int64_t row, int64_t n,
                           xd_gather_piece to[XD_MAXSEG]);
/* Returns a view of rows of a part: in the file, or copied to `to` with added terms. */
xd_tensor xd_gather_rows(xd_banding *b, const xd_gather_piece *p, char *to, int thread);
/* Tells the source that the pages of these rows are no longer needed. */
void      xd_gather_release(const xd_banding *b, const xd_gather_piece *p);
/* Packs bands [begin, end); ctx: an xd_banding. */
void      xd_gather_bands(void *ctx, int64_t begin, int64_t end, int thread);
/* Finds the tensor of part i. Returns 0 on failure. */
int       xd_gather_open(xd_decl *d, xd_banding *b, xd_fetched *f, int i, float gain);
/* Releases the n parts after use. */
void      xd_gather_close(xd_decl *d, xd_banding *b, xd_fetched *f, int n);

#endif
