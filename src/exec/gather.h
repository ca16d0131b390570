/* gather.h - inside exec: rows of a local matrix, gathered from the matrices of the checkpoint
 *
 * A local matrix is fused from parts and cut by tensor parallelism. Both are one operation here:
 * rows and columns of the parts are gathered one after the other. */
#ifndef XD_EXEC_GATHER_H
#define XD_EXEC_GATHER_H

#include "exec/matrix.h"

typedef struct xd_gather {      /* copies rows of a part to adjacent rows at `to`              */
    char                *to;
    xd_dtype             type;
    const xd_fetched    *f;
    const xd_mat_part   *p;
    const xd_mat_cols   *c;
    float                scale;
} xd_gather;
/* Copies rows [begin, end); ctx: an xd_gather. */
void xd_gather_copy(void *ctx, int64_t begin, int64_t end, int thread);

/* A matrix that is being gathered from its parts. */
typedef struct xd_gathering {
    const xd_mat_part *parts;
    const xd_mat_cols *c;
    int      n;
    int      whole;             /* 1: one part, uncut                                          */
    int      as_is;             /* 1: e4m3 is used as stored in the file                       */
    int      blocks;            /* 1: a part is stored in a block type or in codes             */
    int      known;             /* 1: a part is stored in codes of w with scales, which are kept */
    int      bytes;             /* 1: all are, and the integers are used as they lie there      */
    int      rotated;           /* 1: parts stay rotated                                       */
    int64_t  band;              /* rows of a band that is packed alone; 0: no bands            */
    int      copies;            /* 1: (some) rows are copied before they are packed            */
    int      sums;              /* 1: a part is a sum                                          */
    int      stays;             /* 1: the matrix stays as it is stored                         */
    xd_dtype type;              /* of the copy                                                 */
    size_t   copy_bytes;        /* bytes of the copy: of all rows, or of a band per thread     */
    char    *all, *at;          /* the copy; next free row                                     */
    float   *scale;             /* of rows with cut inputs, or of e4m3 as stored; or NULL       */
} xd_gathering;

/* Decides how a matrix is gathered. Scaled 8-bit elements are gathered in the compute type, or in
 * f32 if they are to be quantized, blocks likewise. F32 elements are also rounded when they are
 * gathered, which needs less memory; not so bands to which terms are added. stays: the matrix will
 * be packed in groups of rows; the device rounds decoded blocks faster than the gathering. */
xd_gathering xd_gather_plan(const xd_decl *d, const xd_weight *w, const xd_matrix *m, int stays);
/* Are all parts rows of integers that become those of w, as they lie in the file? *turned: some are
 * in another order. */
int    xd_gather_integers(const xd_decl *d, const xd_weight *w, const xd_matrix *m, int *turned);
/* Does w have rows whose scales the device cannot compute? They are packed as a whole. */
int    xd_gather_needs_scales(const xd_weight *w, const xd_gathering *g);
/* Sets the scales that the device cannot compute: those of rows whose inputs are cut, over the
 * whole row, so that all ranks quantize it equally; and those stored in the file. All rows of a
 * matrix have them where some do. */
void   xd_gather_scales(const xd_weight *w, const xd_gathering *g, const xd_gather *from);
/* Memory of the copy. NULL: none is left. */
void  *xd_gather_buffer(xd_decl *d, const xd_gathering *g);
/* Bytes that the sums of all parts take, which may be open at the same time. */
size_t xd_gather_sum_bytes(const xd_decl *d, const xd_gathering *g);
/* Reports the rows of its parts to the source. */
void   xd_gather_announce(xd_decl *d, const xd_matrix *m);

/* ---- band by band ------------------------------------------------------------------------- */

typedef struct xd_banding {
    const xd_decl   *d;
    const xd_weight *w;         /* what is packed: rows from row0 on of the local matrix        */
    int64_t          row0;
    const xd_gathering *g;
    const xd_fetched *f;
    float            stored[XD_MAXSEG];
    int              scans, keeps;      /* 1: searches for NaN; pages stay mapped              */
    int              bad[XD_MAXSEG], status;
} xd_banding;

/* The rows of a band that come from part k. */
typedef struct xd_gather_piece { int k; int64_t row, n; } xd_gather_piece;

/* The pieces of rows [row, row + n); returns how many they are. */
int       xd_gather_pieces(const xd_gathering *g, int64_t row, int64_t n,
                           xd_gather_piece to[XD_MAXSEG]);
/* A view of rows of a part: in the file, or copied to `to`, with their terms. */
xd_tensor xd_gather_rows(xd_banding *b, const xd_gather_piece *p, char *to, int thread);
/* Tells the source that the pages of these rows are no longer needed. */
void      xd_gather_release(const xd_banding *b, const xd_gather_piece *p);
/* Packs bands [begin, end); ctx: an xd_banding. */
void      xd_gather_bands(void *ctx, int64_t begin, int64_t end, int thread);
/* Finds the tensor of part i. 0: failed. */
int       xd_gather_open(xd_decl *d, xd_banding *b, xd_fetched *f, int i, float gain);
/* The parts are used. */
void      xd_gather_close(xd_decl *d, xd_banding *b, xd_fetched *f, int n);

#endif
