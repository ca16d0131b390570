/* weight.h - a model declares its weights once; listing, counting, loading, splitting, packing and
 * random filling follow from the declaration
 *
 * A declaration is visited: the model's `weights` function calls xd_w_* for every tensor, with its
 * name in the checkpoint relative to the current scope. */
#ifndef XD_EXEC_WEIGHT_H
#define XD_EXEC_WEIGHT_H

#include "backend/backend.h"
#include "base/arena.h"
#include "exec/tokens.h"

/* How tensor parallelism splits a linear layer: not at all, by outputs, or by inputs. */
typedef enum xd_split { XD_REPLICATED, XD_COL, XD_ROW } xd_split;

enum { XD_MAXSEG = 8, XD_QUANT_MIN = 16 };

typedef struct xd_stored xd_stored;     /* exec/stored.h                                       */

typedef struct xd_lin {         /* y = x w^T + b: this rank's shard                           */
    xd_weight w;
    xd_tensor b;                /* [out] F32, or absent                                       */
    xd_split  split;
    int       nseg;
    int64_t   seg[XD_MAXSEG];   /* local widths of a fused output's parts                     */
    int64_t   rotate;           /* group size of the rotation of inputs; 0: none              */
    /* 0: w is packed. Otherwise w stays as stored in the files, and groups of this many rows are
     * packed for each GEMM. */
    int64_t   group;
    size_t    copy;             /* bytes of the buffer for a group of rows                     */
    xd_stored *stored;          /* source of the rows; NULL while counting                     */
} xd_lin;

typedef struct xd_cnv {         /* convolution                                                */
    xd_weight w;
    xd_tensor b;                /* [out] F32, or absent                                       */
} xd_cnv;

typedef struct xd_decl xd_decl;

/* One linear layer: "NAME.weight" [out, in]; "NAME.bias" [out] if `bias`. An input concatenated
 * from several tensors has widths parts[0..nparts), whose sum replaces `in`; tensor parallelism
 * splits each of them. An output concatenated from several tensors has widths outs[0..nouts), whose
 * sum replaces `out`; they are the parts for xd_seg. */
typedef struct xd_linear_spec {
    int64_t        in, out;
    int            nparts;      /* 0: one part of width `in`                                   */
    const int64_t *parts;
    int            nouts;       /* 0: one part of width `out`                                  */
    const int64_t *outs;
    xd_split       split;
    int64_t        unit;        /* unit of a split (e.g. features per head); 0: 1              */
    int            bias;
    int            few;         /* 1: few input rows (modulation): quantized, not split         */
} xd_linear_spec;
void xd_w_linear(xd_decl *d, xd_lin *w, const char *name, const xd_linear_spec *s);

/* Several linear layers of the checkpoint with the same input, fused: part i is "names[i].weight"
 * [out[i], in]. Each entry of names may be a "|"-separated list of aliases; the first one in the
 * checkpoint is used. */
typedef struct xd_fused_spec {
    int                n;
    const char *const *names;   /* [n]                                                         */
    int64_t            in, out[XD_MAXSEG];
    xd_split           split;
    int64_t            unit;    /* as in xd_linear_spec                                        */
    const int64_t     *units;   /* [n]: per part, replaces `unit`; or NULL                     */
    int                bias;
} xd_fused_spec;
void xd_w_fused(xd_decl *d, xd_lin *w, const xd_fused_spec *s);

/* A replicated linear layer whose weight the checkpoint stores in another shape, e.g. as a
 * convolution: "NAME.weight" has the shape shape[0..nd); shape[0] is out and the product of the
 * rest is in. */
void xd_w_linear_as(xd_decl *d, xd_lin *w, const char *name, int nd, const int64_t *shape,
                    int bias);

/* A convolution kernel "NAME.weight" [out, in, (kt,) kh, kw], "NAME.bias" [out]. */
typedef struct xd_conv_spec {
    int64_t out, in;
    int     nk;                 /* extents of the kernel in the checkpoint: 2 or 3             */
    int     kernel[3];
    int     stride[3];          /* 0: 1                                                        */
    int     bias;
    /* For a kernel over frames, kernel[0] > 1: keep only its last frame, as a 2D kernel, which
     * convolves a frame without predecessors. */
    int     last;
} xd_conv_spec;
void xd_w_conv(xd_decl *d, xd_cnv *w, const char *name, const xd_conv_spec *s);

/* A 3 x 3 kernel "NAME.weight" [out, in, 3, 3] on a map that is upsampled by 2 x 2 (nearest
 * neighbour). Pixel (2y + i, 2x + j) depends on only 2 x 2 cells of the original map, with sums of
 * the kernel's weights. w[2 i + j] is the convolution for it, starting at cell (y - 1 + i,
 * x - 1 + j); all four share the bias. 16 multiplications instead of 36. */
void xd_w_conv_enlarged(xd_decl *d, xd_cnv w[4], const char *name, int64_t out, int64_t in);

/* A vector or small tensor, as F32 in device memory. `name` is the full name relative to the scope
 * ("norm.weight"). */
void xd_w_vec(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape);
/* Gain "NAME.weight" and bias "NAME.bias" of a norm, [n] each. */
void xd_w_affine(xd_decl *d, const char *name, xd_tensor *gain, xd_tensor *bias, int64_t n);

/* A table that is read by rows (an embedding): used in place if mapped, in the file's type. */
void xd_w_table(xd_decl *d, xd_tensor *v, const char *name, int64_t rows, int64_t cols);

/* xd_w_table for a tensor of another shape whose last extent is the columns: [1, rows, cols]. */
void xd_w_table_as(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape);

/* A tensor in files that no network reads: for lists of complete files (`whole`). */
void xd_w_unread(xd_decl *d, const char *name, int nd, const int64_t *shape);

/* Enters the scope "prefix." below the current one until the matching leave. */
void xd_w_enter(xd_decl *d, const char *fmt, ...) XD_PRINTF(2, 3);
void xd_w_leave(xd_decl *d);

/* ---- for the engine ----------------------------------------------------------------------- */

/* Terms (LoRA) that a source adds to some of its tensors, in f32. `get` returns such a tensor as
 * stored; the reader of its rows adds the terms. Rows are along its first extent. */
typedef struct xd_source_sums {
    int       (*has)(void *self, const char *name);     /* 1: the tensor has terms             */
    /* Max bytes that a sum needs from `open` to `close`, for any columns. */
    size_t    (*takes)(void *self, const char *name);
    /* Prepares the terms of columns span[0 .. n), concatenated, on all threads. */
    xd_status (*open)(void *self, const char *name, const xd_span *span, int n, void **sum,
                      xd_err *e);
    /* Adds the terms of rows [row, row + n) to f32 rows at `to`. From any thread; thread: index
     * below xd_par_threads() at `open`. */
    void      (*add)(const void *sum, int64_t row, int64_t n, float *to, int thread);
    void      (*close)(void *sum);
} xd_source_sums;

/* How to read rows of a tensor that is stored as quantized codes with separate scales. Such a
 * tensor has type I8 or U8 in `has` and `get`, and the shape of its decoded elements. */
typedef struct xd_coding xd_coding;
struct xd_coding {
    /* Decodes elements [column, column + n) of a row, in the stored basis. From any thread; not
     * before `get`, which sets `data`. NULL: the tensor is not stored as codes. */
    void  (*read)(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to);
    /* Returns the factor of a row's codes; NULL: a row has several scales. */
    float (*scale)(const xd_coding *c, int64_t row);
    /* Type of the codes: I8 integers within +-127; F8E4M3; Q4_0 blocks of a row; F32: other. I8 and
     * F8E4M3 have scales. */
    xd_dtype    type;
    /* Group size (a power of 4) in which rows are rotated along their columns (xd_rotation); 0: no
     * rotation. */
    int64_t     rotate;
    const void *self, *data;    /* for the source; data returned by `get`                      */
    /* Row r is stored as row first + (r + turn) % rows. */
    int64_t     first, turn, rows;
};

/* Where tensors come from. `get` returns a view of a tensor (host memory, contiguous, possibly
 * unaligned; valid until `done`). `has` returns 0 if there is no tensor of this name. */
typedef struct xd_source {
    int  (*has)(void *self, const char *name, xd_tensor *shape);        /* does not set p      */
    xd_status (*get)(void *self, const char *name, xd_tensor *t, xd_err *e);
    void (*done)(void *self, const char *name);         /* its pages are no longer needed      */
    int  in_place;              /* 1: views are valid as long as the source                    */
    void *self;
    /* Returns the scale by which the elements of an 8-bit tensor are multiplied; NULL: always 1. */
    xd_status (*scale)(void *self, const char *name, float *s, xd_err *e);
    /* These bytes of a tensor in use will not be read again soon, so their pages may be unmapped.
     * From any thread; NULL: ignored. */
    void (*past)(void *self, const char *name, const void *p, size_t bytes);
    /* Elements [first, first + n) of a tensor will be read soon; NULL: ignored. */
    void (*will)(void *self, const char *name, int64_t first, int64_t n);
    const xd_source_sums *sums;         /* NULL: no terms                                      */
    void                 *sums_self;
    /* Returns 1 if a tensor is stored as codes, and sets all of *c except `data`. NULL: none is. */
    int  (*codes)(void *self, const char *name, xd_coding *c);
} xd_source;

int     xd_is_coded(xd_dtype t);        /* 1: type of tensors stored as codes                  */
int64_t xd_coding_row(const xd_coding *c, int64_t row);   /* index of the stored row             */

/* Finds the first of several names, separated by "|", in the source; returns 0 if none is there. */
int xd_source_name(const xd_source *src, const char *names, char *out, size_t size);

typedef struct xd_declared {    /* one tensor as declared                                      */
    char    name[512];          /* full name with aliases: "a.query|a.to_q"                    */
    int     nd;
    int64_t d[XD_MAXDIM];
    int     unread;             /* 1: in files, but ignored                                    */
    xd_dtype type;              /* element type after loading with `type` and `blocks`            */
} xd_declared;

typedef struct xd_store xd_store;       /* memory of loaded weights                            */

typedef enum xd_visit {
    XD_VISIT_LIST,              /* names and shapes only                                       */
    XD_VISIT_COUNT,             /* fills structs with invalid addresses, counts bytes           */
    XD_VISIT_LOAD,              /* loads from the source                                       */
    XD_VISIT_RANDOM,            /* random elements from a hash of name and index               */
} xd_visit;

/* Which matrices stay as stored in their files, on a device in host memory. */
typedef enum xd_stays {
    XD_STAYS_NONE,              /* all are packed                                              */
    XD_STAYS_INTEGERS,          /* those stored as the integers of an I8 matrix                */
    XD_STAYS_BLOCKS,            /* these, and block types (xd_dtype_block)                     */
    XD_STAYS_ALL,               /* all; pages are released after each use                       */
} xd_stays;

struct xd_decl {
    xd_visit   visit;
    xd_dev    *dev;
    xd_dtype   type;            /* compute type                                                */
    xd_dtype   blocks;          /* I8, F8E4M3 or as `type`: for matrices that tensor parallelism */
                                /* can split (attention, feed-forward) with at least            */
                                /* XD_QUANT_MIN inputs and outputs; others have `type`          */
    const xd_source *src;
    int        tp, tp_at;       /* tensor degree and this rank's coordinate                    */
    int        cut;             /* 1: skip the last blocks and what only they need             */
    int        whole;           /* LIST: include ignored tensors                               */
    int        announces;       /* COUNT: announce to the source what a load reads             */
    xd_store  *store;           /* owns the loaded weights (LOAD, RANDOM)                      */
    xd_declared *list;          /* LIST: the result, grows                                     */
    int        nlist, caplist;
    xd_stays   stays;
    size_t     mapped;          /* bytes of files that are read in place repeatedly             */
    size_t     packed;          /* bytes of the weights: needed (COUNT) or used                */
    /* NULL, or [blocks]: block_bytes + mapped per block; mapped per block. */
    size_t     *blocks_of, *mapped_of;
    size_t     block_bytes;     /* packed, with each weight rounded up as in a block           */
    size_t     work[3];         /* COUNT: working memory of a load: slots of xd_store_scratch,  */
                                /* and memory for data made by the source                      */
    int        nturned;         /* LOAD: number of matrices rotated back                      */
    int        nnonfinite;      /* LOAD: number of tensors with NaN or infinities              */
    char       nonfinite[512];  /* name of the first such tensor                               */
    xd_err    *err;             /* sticky                                                      */
    const char *prefix;         /* optional prefix of full names in files; NULL: none          */
    const char *const *prefixes;        /* alternatives in files; or NULL                       */
    const char *lead;           /* the prefix (or "") tried first; NULL: prefix                 */
    const char *beside;         /* start of names that have no prefix in files, or `prefix`     */
                                /* before them; NULL: none                                     */
    char       scope[192];
    int        depth;           /* number of nested scopes                                     */
    size_t     outer[16];       /* length of the enclosing scopes                              */
};

xd_status xd_store_open(xd_store **s, xd_dev *dev, xd_err *e);
/* Allocates device memory. NULL: no memory. *mine is 0 if another process fills it. */
void     *xd_store_get(xd_store *s, size_t bytes, int *mine);
/* From now on allocates weights one after the other in a block (multiples of XD_ALIGN, borrowed)
 * that `parts` processes share: each requests all weights and fills its part of them. */
void      xd_store_use_block(xd_store *s, void *base, size_t bytes, int part, int parts);
/* The same with a device block that the store (still empty) allocates, followed by `beside` bytes,
 * which are returned. NULL: no memory. */
void     *xd_store_own_block(xd_store *s, size_t bytes, size_t beside);
/* From now on allocates weights in another block of the store's memory, until it is called with its
 * own result as `back`. */
xd_arena  xd_store_swap_block(xd_store *s, void *base, size_t bytes, const xd_arena *back);
/* fills 0: from now on another process fills the requested weights. */
void      xd_store_fills(xd_store *s, int fills);
size_t    xd_store_block_bytes(size_t bytes);           /* size of a weight in such a block    */
size_t    xd_store_bytes(const xd_store *s);            /* total size of its weights           */
/* Returns working memory for loads, reused from one weight to the next: slot 0 or 1 with at least
 * `bytes`. NULL: no memory. xd_store_trim frees it. */
void     *xd_store_scratch(xd_store *s, int slot, size_t bytes);
void      xd_store_trim(xd_store *s);
/* Registers `object` to be closed with `close` when the store is closed. If there is no memory for
 * that, closes it at once and returns 0. */
int       xd_store_owns(xd_store *s, void *object, void (*close)(void *object));
void      xd_store_close(xd_store **s);
void      xd_decl_free(xd_decl *d);     /* frees d->list                                       */

/* Returns 1 if a float tensor (contiguous, possibly unaligned) has NaN or infinite elements. Reads
 * all of it, on all threads. */
int       xd_nonfinite(xd_tensor t);
/* Random value of element i of a weight: f32 in about [-1.7, 1.7], variance 1. */
float     xd_random_weight(uint64_t name_hash, uint64_t i);

/* Compares the declared tensors with those of a source. XD_EFORMAT: one error that lists the first
 * ten missing or wrongly shaped tensors with expected and found shapes. */
xd_status xd_declared_check(const xd_declared *list, int n, const xd_source *src,
                            const char *what, xd_err *e);

#endif
