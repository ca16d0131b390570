/* weight.h - a model declares its weights once; listing, counting, loading, cutting, packing and
 * random filling follow from the declaration.
 *
 * A declaration is visited: the model's `weights` function calls xd_w_* for every tensor, with its
 * name in the checkpoint below the current scope. */
#ifndef XD_EXEC_WEIGHT_H
#define XD_EXEC_WEIGHT_H

#include "backend/backend.h"
#include "base/arena.h"
#include "exec/tokens.h"

/* How tensor parallelism cuts a linear layer: not at all, by outputs, or by inputs. */
typedef enum xd_split { XD_REPLICATED, XD_COL, XD_ROW } xd_split;

enum { XD_MAXSEG = 8, XD_QUANT_MIN = 16 };

typedef struct xd_stored xd_stored;     /* exec/stored.h                                       */

typedef struct xd_lin {         /* y = x w^T + b: this rank's share                           */
    xd_weight w;
    xd_tensor b;                /* [out] F32, or absent                                       */
    xd_split  split;
    int       nseg;
    int64_t   seg[XD_MAXSEG];   /* local widths of the parts of a fused output                */
    int64_t   rotate;           /* inputs are rotated in groups of so many before; 0: not     */
    /* 0: w is packed. Else w is not: it stays as its files store it, and so many rows of it at a
     * time are packed whenever it is multiplied. */
    int64_t   group;
    size_t    copy;             /* bytes in which these rows are gathered                      */
    xd_stored *stored;          /* where they come from; NULL while counting                   */
} xd_lin;

typedef struct xd_cnv {         /* a convolution                                              */
    xd_weight w;
    xd_tensor b;                /* [out] F32, or absent                                       */
} xd_cnv;

typedef struct xd_decl xd_decl;

/* One linear layer: "NAME.weight" [out, in]; "NAME.bias" [out] if `bias`. An input of several
 * tensors side by side has widths parts[0..nparts), which add up to the width in place of `in`;
 * tensor parallelism cuts each of them. An output of several tensors side by side has widths
 * outs[0..nouts), which add up to the width in place of `out` and are the parts of xd_seg. */
typedef struct xd_linear_spec {
    int64_t        in, out;
    int            nparts;      /* 0: one part of width `in`                                   */
    const int64_t *parts;
    int            nouts;       /* 0: one part of width `out`                                  */
    const int64_t *outs;
    xd_split       split;
    int64_t        unit;        /* features that a cut keeps together (those of a head); 0: 1  */
    int            bias;
    int            few;         /* few rows read it, as a modulation: quantized though uncut    */
} xd_linear_spec;
void xd_w_linear(xd_decl *d, xd_lin *w, const char *name, const xd_linear_spec *s);

/* Several linear layers of the checkpoint that read the same input, fused: part i is
 * "names[i].weight" [out[i], in]. Each entry of names may be a "|"-separated list of aliases, of
 * which the first that the checkpoint has is used. */
typedef struct xd_fused_spec {
    int                n;
    const char *const *names;   /* [n]                                                         */
    int64_t            in, out[XD_MAXSEG];
    xd_split           split;
    int64_t            unit;    /* as in xd_linear_spec                                        */
    const int64_t     *units;   /* [n]: of each part, in place of `unit`; or NULL              */
    int                bias;
} xd_fused_spec;
void xd_w_fused(xd_decl *d, xd_lin *w, const xd_fused_spec *s);

/* A replicated linear layer whose weight the checkpoint stores as a convolution or in another
 * shape: "NAME.weight" has the shape shape[0..nd), where shape[0] is out and the rest multiplies to
 * in. */
void xd_w_linear_as(xd_decl *d, xd_lin *w, const char *name, int nd, const int64_t *shape,
                    int bias);

/* A convolution kernel "NAME.weight" [out, in, (kt,) kh, kw], "NAME.bias" [out]. */
typedef struct xd_conv_spec {
    int64_t out, in;
    int     nk;                 /* extents of the kernel in the checkpoint: 2 or 3             */
    int     kernel[3];
    int     stride[3];          /* 0: 1                                                        */
    int     bias;
    /* Of a kernel over frames, kernel[0] > 1: only its last frame is kept, as a kernel of two
     * extents. It convolves a frame before which there is none. */
    int     last;
} xd_conv_spec;
void xd_w_conv(xd_decl *d, xd_cnv *w, const char *name, const xd_conv_spec *s);

/* A 3 x 3 kernel "NAME.weight" [out, in, 3, 3] that reads a map enlarged by 2 x 2 (nearest
 * neighbour). Pixel (2y + i, 2x + j) depends on only 2 x 2 cells of the map before enlargement,
 * with sums of the kernel's weights. w[2 i + j] is the convolution for it, starting at cell
 * (y - 1 + i, x - 1 + j); the four share the bias. 16 multiplications instead of 36. */
void xd_w_conv_enlarged(xd_decl *d, xd_cnv w[4], const char *name, int64_t out, int64_t in);

/* A vector or small tensor, as F32 in device memory. `name` is the full name below the scope
 * ("norm.weight"). */
void xd_w_vec(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape);
/* The gains "NAME.weight" and the biases "NAME.bias" of a norm, [n] each. */
void xd_w_affine(xd_decl *d, const char *name, xd_tensor *gain, xd_tensor *bias, int64_t n);

/* A table read by rows (an embedding): used in place when mapped, in the file's type. */
void xd_w_table(xd_decl *d, xd_tensor *v, const char *name, int64_t rows, int64_t cols);

/* xd_w_table of a tensor of another shape, whose last extent is the columns: [1, rows, cols]. */
void xd_w_table_as(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape);

/* A tensor that files hold and nothing reads: for lists of all that a file holds (`whole`). */
void xd_w_unread(xd_decl *d, const char *name, int nd, const int64_t *shape);

/* Enters the scope "prefix." below the current one until the matching leave. */
void xd_w_enter(xd_decl *d, const char *fmt, ...) XD_PRINTF(2, 3);
void xd_w_leave(xd_decl *d);

/* ---- for the engine ----------------------------------------------------------------------- */

/* Terms that a source adds to some of its tensors, in f32. `get` gives such a tensor as it is
 * stored; who reads rows of it adds their terms. Rows are those of its first extent. */
typedef struct xd_source_sums {
    int       (*has)(void *self, const char *name);     /* 1: there are terms                  */
    /* Bytes that a sum takes from `open` to `close` (at most, whatever columns). */
    size_t    (*takes)(void *self, const char *name);
    /* Prepares the terms of columns span[0 .. n), side by side, on all threads. */
    xd_status (*open)(void *self, const char *name, const xd_span *span, int n, void **sum,
                      xd_err *e);
    /* Adds the terms of rows [row, row + n) to rows of f32 at `to`. From any thread; thread: its
     * number, below xd_par_threads() at `open`. */
    void      (*add)(const void *sum, int64_t row, int64_t n, float *to, int thread);
    void      (*close)(void *sum);
} xd_source_sums;

/* How rows of a tensor are read that is stored in codes of a quantizer, scales beside them. Such a
 * tensor has the type I8 or U8 in `has` and `get`, and the shape of its decoded elements. */
typedef struct xd_coding xd_coding;
struct xd_coding {
    /* Elements [column, column + n) of a row as numbers, in the basis they are stored in. From any
     * thread; not before `get`, which makes `data`. NULL: the tensor is not stored in codes. */
    void  (*read)(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to);
    /* What the codes of a row are multiplied by; NULL: there is more than one scale. */
    float (*scale)(const xd_coding *c, int64_t row);
    /* Codes are: I8 integers within +-127; F8E4M3; Q4_0 blocks of a row; F32 others. With I8 and
     * F8E4M3 there are scales. */
    xd_dtype    type;
    /* Rows were rotated by xd_rotation of this group (a power of 4) along their columns; 0: not. */
    int64_t     rotate;
    const void *self, *data;    /* of the source; what `get` has returned                      */
    /* Row r is the stored row first + (r + turn) % rows. */
    int64_t     first, turn, rows;
};

/* Where tensors come from. `get` returns a view of a tensor (host memory, contiguous, perhaps
 * unaligned; valid until `done`). `has` returns 0 if there is no tensor of this name. */
typedef struct xd_source {
    int  (*has)(void *self, const char *name, xd_tensor *shape);        /* p is not set        */
    xd_status (*get)(void *self, const char *name, xd_tensor *t, xd_err *e);
    void (*done)(void *self, const char *name);         /* its pages are no longer needed      */
    int  in_place;              /* views stay valid as long as the source                      */
    void *self;
    /* The scale of an 8-bit tensor, by which its elements are multiplied; NULL: 1 for all. */
    xd_status (*scale)(void *self, const char *name, float *s, xd_err *e);
    /* These bytes of a tensor in use will not be read again soon, so their pages may be unmapped.
     * From any thread; NULL: no use for it. */
    void (*past)(void *self, const char *name, const void *p, size_t bytes);
    /* Elements [first, first + n) of a tensor will be read soon; NULL: no use for it. */
    void (*will)(void *self, const char *name, int64_t first, int64_t n);
    const xd_source_sums *sums;         /* NULL: no terms                                      */
    void                 *sums_self;
    /* 1: a tensor is stored in codes. All of *c but `data` is set. NULL: none is. */
    int  (*codes)(void *self, const char *name, xd_coding *c);
} xd_source;

int     xd_is_coded(xd_dtype t);        /* 1: the type of tensors in codes                     */
int64_t xd_coding_row(const xd_coding *c, int64_t row);   /* the stored row                      */

/* Finds the first of several names, separated by "|", that the source has; 0: none of them. */
int xd_source_name(const xd_source *src, const char *names, char *out, size_t size);

typedef struct xd_declared {    /* one tensor as declared                                      */
    char    name[512];          /* full name with aliases: "a.query|a.to_q"                    */
    int     nd;
    int64_t d[XD_MAXDIM];
    int     unread;             /* files hold it and nothing reads it                          */
    xd_dtype type;              /* of what a load with the list's `type` and `blocks` makes of it */
} xd_declared;

typedef struct xd_store xd_store;       /* memory of loaded weights                            */

typedef enum xd_visit {
    XD_VISIT_LIST,              /* names and shapes only                                       */
    XD_VISIT_COUNT,             /* fills the structs with addresses without storage, adds bytes */
    XD_VISIT_LOAD,              /* loads from the source                                       */
    XD_VISIT_RANDOM,            /* makes elements from a hash of name and index                */
} xd_visit;

/* Which matrices stay as their files store them, on a device in the host's memory. */
typedef enum xd_stays {
    XD_STAYS_NONE,              /* all are packed                                              */
    XD_STAYS_INTEGERS,          /* those that are stored as the integers of an I8 matrix       */
    XD_STAYS_BLOCKS,            /* these, and those in block types (xd_dtype_block)            */
    XD_STAYS_ALL,               /* all; their pages are given back after each use               */
} xd_stays;

struct xd_decl {
    xd_visit   visit;
    xd_dev    *dev;
    xd_dtype   type;            /* compute type                                                */
    xd_dtype   blocks;          /* I8, F8E4M3 or as `type`: of matrices that tensor parallelism */
                                /* can cut (attention, feed-forward) with XD_QUANT_MIN inputs */
                                /* and outputs or more; others have `type`                      */
    const xd_source *src;
    int        tp, tp_at;       /* tensor degree and my coordinate                             */
    int        cut;             /* the last blocks are not visited: nor is what only they need */
    int        whole;           /* LIST: of unread tensors, too                                */
    int        announces;       /* COUNT: report to the source what a load will read           */
    xd_store  *store;           /* owns the loaded weights (LOAD, RANDOM)                      */
    xd_declared *list;          /* LIST: the result, grows                                     */
    int        nlist, caplist;
    xd_stays   stays;
    size_t     mapped;          /* bytes of files that are read in place again and again        */
    size_t     packed;          /* bytes of the weights: needed (COUNT) or taken               */
    /* NULL, or [blocks]: of block_bytes and mapped, and of mapped, those of each block. */
    size_t     *blocks_of, *mapped_of;
    size_t     block_bytes;     /* these bytes with each weight rounded up, as in a block      */
    size_t     work[3];         /* COUNT: working memory of a load: slots of xd_store_scratch,  */
                                /* and memory of what the source makes                         */
    int        nturned;         /* LOAD: number of matrices that were rotated back            */
    int        nnonfinite;      /* LOAD: number of tensors with NaN or infinite elements       */
    char       nonfinite[512];  /* name of the first such tensor                               */
    xd_err    *err;             /* sticky                                                      */
    const char *prefix;         /* optional prefix of full names in files; NULL: none          */
    const char *const *prefixes;        /* others that files may have in its place; or NULL     */
    const char *lead;           /* the one of these, or "", that is tried first; NULL: prefix   */
    const char *beside;         /* names that begin so stand beside those with `prefix`, or     */
                                /* behind it; NULL: none                                       */
    char       scope[192];
    int        depth;           /* number of nested scopes                                     */
    size_t     outer[16];       /* length of the scope before each was entered                 */
};

xd_status xd_store_open(xd_store **s, xd_dev *dev, xd_err *e);
/* Device memory. NULL: none is left. *mine is 0 if another process fills it. */
void     *xd_store_get(xd_store *s, size_t bytes, int *mine);
/* From now on weights are placed one after the other in a block (at a multiple of XD_ALIGN,
 * borrowed) that `parts` processes share: each requests all weights and fills its part of them. */
void      xd_store_use_block(xd_store *s, void *base, size_t bytes, int part, int parts);
/* The same in a block of the device that the store, still empty, gets for it, with `beside` bytes
 * behind it, which are returned. NULL: no memory. */
void     *xd_store_own_block(xd_store *s, size_t bytes, size_t beside);
/* From now on weights are placed in another block, of memory that the store has, until this is
 * called with what it has returned as `back`. */
xd_arena  xd_store_swap_block(xd_store *s, void *base, size_t bytes, const xd_arena *back);
/* 0: from now on another process fills the weights that are requested. */
void      xd_store_fills(xd_store *s, int fills);
size_t    xd_store_block_bytes(size_t bytes);           /* of a weight in such a block         */
size_t    xd_store_bytes(const xd_store *s);            /* of all its weights                  */
/* Working memory of a load, reused from one weight to the next: slot 0 or 1 with at least `bytes`.
 * NULL: none is left. xd_store_trim releases it. */
void     *xd_store_scratch(xd_store *s, int slot, size_t bytes);
void      xd_store_trim(xd_store *s);
/* The store closes `object` with `close` when it is closed; at once, and returns 0, if there is no
 * memory to remember it. */
int       xd_store_owns(xd_store *s, void *object, void (*close)(void *object));
void      xd_store_close(xd_store **s);
void      xd_decl_free(xd_decl *d);     /* frees d->list                                       */

/* Does a float tensor (contiguous, perhaps unaligned) have NaN or infinite elements? Reads all of
 * it, on all threads. */
int       xd_nonfinite(xd_tensor t);
/* Random value of element i of a weight: f32 in about [-1.7, 1.7], variance 1. */
float     xd_random_weight(uint64_t name_hash, uint64_t i);

/* Compares the declared tensors with those of a source. XD_EFORMAT with one error that lists the
 * first ten missing or wrongly shaped tensors with expected and found shapes. */
xd_status xd_declared_check(const xd_declared *list, int n, const xd_source *src,
                            const char *what, xd_err *e);

#endif
