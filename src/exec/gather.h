/* gather.h - used only in src/exec: copies the rows and columns of checkpoint matrices that make up
 * a rank's weight matrix.
 *
 * The weight matrix that a rank computes with (the local matrix) can be fused from several matrices
 * of the checkpoint, and tensor parallelism can select some of their rows or columns. Fusing and
 * selecting are one operation, which copies the selected rows and columns of one checkpoint matrix
 * after the other. */
#ifndef XD_EXEC_GATHER_H
#define XD_EXEC_GATHER_H

#include "exec/matrix.h"

/* Arguments for copying rows of one checkpoint matrix to consecutive rows at `to`. */
typedef struct xd_gather {
    char              *to;
    xd_dtype           type;
    const xd_fetched  *f;
    const xd_mat_part *p;
    const xd_mat_cols *c;
    float              scale;
} xd_gather;
/* Copies rows [begin, end) of one checkpoint matrix. `ctx` points to an xd_gather. */
void xd_gather_copy(void *ctx, int64_t begin, int64_t end, int thread);

/* Description of how a rank's weight matrix (the local matrix) is gathered from matrices of the
 * checkpoint (its parts). */
typedef struct xd_gathering {
    const xd_mat_part *parts;
    const xd_mat_cols *c;
    int                n;
    int                whole; /* 1: the local matrix is one complete checkpoint matrix */
    int                as_is; /* 1: e4m3 elements are used unchanged, as stored in the file */
    /* 1: a checkpoint matrix is stored in a GGUF block type or as quantized codes */
    int                blocks;
    /* 1: a checkpoint matrix is stored as quantized codes of the local matrix's type, whose scales
     * are kept. */
    int                known;
    /* 1: all checkpoint matrices are integer codes of the local matrix's type, used in place */
    int                bytes;
    int                rotated; /* 1: checkpoint matrices have rotated rows, which stay rotated */
    int64_t  band;   /* number of rows in each band that is packed separately; 0: no bands */
    int      copies; /* 1: some rows are copied before they are packed */
    int      sums;   /* 1: LoRA terms are added to a checkpoint matrix */
    xd_dtype type;   /* element type of the copied rows */
    /* bytes of the buffer for copied rows: of all rows, or of one band of rows per thread */
    size_t   copy_bytes;
    /* all: start of the buffer for copied rows; at: address in the buffer to which the next row is
     * copied. */
    char    *all, *at;
    float   *scale; /* scale of each row (xd_gather_scales), or NULL */
} xd_gathering;

/* Decides how the local matrix w is gathered from the checkpoint. Scaled 8-bit elements and
 * elements of block types are gathered in the compute type, or in f32 if they are then quantized.
 * F32 elements are rounded to the compute type while they are gathered, which saves memory. F32
 * elements of bands to which LoRA terms are added are not rounded. `stays` is 1 if the matrix stays
 * in its file and is packed in groups of rows. In a matrix that stays in its file, elements of
 * block types are not rounded while they are gathered, because the device rounds faster. */
xd_gathering xd_gather_plan(const xd_decl *d, const xd_weight *w, const xd_matrix *m, int stays);
/* Returns 1 if all checkpoint matrices of the local matrix w are stored as integers that w uses
 * unconverted. Sets *turned to 1 if the file stores the rows of some of these checkpoint matrices
 * in another order. */
int    xd_gather_integers(const xd_decl *d, const xd_weight *w, const xd_matrix *m, int *turned);
/* Returns 1 if the quantized matrix w has rows whose scales the device cannot compute. If
 * xd_gather_needs_scales returns 1, the complete matrix is packed at once. */
int    xd_gather_needs_scales(const xd_weight *w, const xd_gathering *g);
/* Sets the scales of quantized rows that the device cannot compute. If the inputs of a row are
 * split over ranks, the scale is computed from the complete row, so that all ranks quantize the row
 * equally. Scales that need not be computed are read from the file. If the device cannot compute
 * the scales of some rows of a matrix, the scales of all its rows are set. */
void   xd_gather_scales(const xd_weight *w, const xd_gathering *g, const xd_gather *from);
/* Allocates the buffer for rows that are copied from checkpoint matrices. Returns NULL if out of
 * memory. */
void  *xd_gather_buffer(xd_decl *d, const xd_gathering *g);
/* Returns the bytes of memory for adding LoRA terms to the checkpoint matrices of a local matrix.
 * The memory suffices for all checkpoint matrices of the local matrix together, because all may be
 * open at the same time. */
size_t xd_gather_sum_bytes(const xd_decl *d, const xd_gathering *g);
/* Tells the weight source which rows of m's checkpoint matrices will be read. */
void   xd_gather_announce(xd_decl *d, const xd_matrix *m);

/* ---- band by band ------------------------------------------------------------------------- */

typedef struct xd_banding {
    const xd_decl      *d;
    /* destination of the packed rows: the rows of the local matrix from row0 on */
    const xd_weight    *w;
    int64_t             row0;
    const xd_gathering *g;
    const xd_fetched   *f;
    float               stored[XD_MAXSEG];
    /* `scans` is 1 if rows are checked for NaN. `keeps` is 1 if the pages of the files stay mapped
     * after use. */
    int                 scans, keeps;
    int                 bad[XD_MAXSEG], status;
} xd_banding;

/* Rows of a band that come from one checkpoint matrix, which has the index k among the checkpoint
 * matrices of the local matrix. */
typedef struct xd_gather_piece {
    int     k;
    int64_t row, n;
} xd_gather_piece;

/* Divides rows [row, row + n) of the local matrix into pieces, each with the rows of one checkpoint
 * matrix. Returns the number of pieces, each of which belongs to one checkpoint matrix. */
int xd_gather_pieces(const xd_gathering *g, int64_t row, int64_t n, xd_gather_piece to[XD_MAXSEG]);
/* Returns a view of those rows of a checkpoint matrix that piece `p` contains: of the mapped file
 * or, if LoRA terms are added to the rows, of a copy at `to`. */
xd_tensor xd_gather_rows(xd_banding *b, const xd_gather_piece *p, char *to, int thread);
/* Tells the weight source that the pages with the rows of piece p are no longer needed. */
void      xd_gather_release(const xd_banding *b, const xd_gather_piece *p);
/* Packs the bands with indices [begin, end) of a matrix. A band is a group of rows that are packed
 * together. `ctx` points to an xd_banding. */
void      xd_gather_bands(void *ctx, int64_t begin, int64_t end, int thread);
/* Opens the checkpoint tensor number i of a local matrix. Returns 0 if the checkpoint tensor cannot
 * be opened. */
int       xd_gather_open(xd_decl *d, xd_banding *b, xd_fetched *f, int i, float gain);
/* Releases the n checkpoint tensors of a local matrix after use. */
void      xd_gather_close(xd_decl *d, xd_banding *b, xd_fetched *f, int n);

#endif
