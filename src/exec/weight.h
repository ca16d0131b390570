/* weight.h - a model declares its weights once; loading, cutting, packing, counting, listing
 * and random filling follow from the declaration.
 *
 * A declaration is a visit: the model's `weights` function calls xd_w_* for every tensor it
 * has, with the name in the checkpoint below the current scope. */
#ifndef XD_EXEC_WEIGHT_H
#define XD_EXEC_WEIGHT_H

#include "backend/backend.h"

/* How tensor parallelism cuts a linear layer: not at all, its outputs, or its inputs. */
typedef enum xd_split { XD_REPLICATED, XD_COL, XD_ROW } xd_split;

enum { XD_MAXSEG = 8, XD_QUANT_LEAST = 16 };

typedef struct xd_lin {         /* y = x w^T + b: this rank's share                           */
    xd_weight w;
    xd_tensor b;                /* [out] F32, or absent                                       */
    xd_split  split;
    int       nseg;
    int64_t   seg[XD_MAXSEG];   /* local widths of the parts of a fused output                */
} xd_lin;

typedef struct xd_cnv {         /* a convolution                                              */
    xd_weight w;
    xd_tensor b;                /* [out] F32, or absent                                       */
} xd_cnv;

typedef struct xd_decl xd_decl;

/* One linear layer. in, out: widths of the parts of its input and output (a fused layer has
 * several); unit: features that a cut keeps together (a head's), 1 when any will do.
 * "NAME.weight" is [sum out, sum in]; "NAME.bias" is [sum out] when `bias`. */
void xd_w_linear(xd_decl *d, xd_lin *w, const char *name, xd_split split, int64_t unit,
                 int nin, const int64_t *in, int nout, const int64_t *out, int bias);

/* Several linear layers of the checkpoint that read the same input, as one: part i is
 * "names[i].weight" [out[i], in]. Also the way to alias names: each entry of names is a
 * "|"-separated list of which the first that the checkpoint has is taken. */
void xd_w_fused(xd_decl *d, xd_lin *w, xd_split split, int64_t unit, int64_t in, int n,
                const char *const *names, const int64_t *out, int bias);

/* A weight of a linear layer that the checkpoint stores as a convolution or in another shape:
 * "NAME.weight" has shape d[0..nd) with d[0] = out and the rest multiplying to in. */
void xd_w_linear_as(xd_decl *d, xd_lin *w, const char *name, xd_split split, int64_t unit,
                    int nd, const int64_t *shape, int bias);

/* A convolution kernel "NAME.weight" [out, in / groups, (kt,) kh, kw], "NAME.bias" [out]. */
void xd_w_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in, int nk,
               const int kernel[3], const int stride[3], int groups, int bias);

/* A 3 x 3 kernel "NAME.weight" [out, in, 3, 3] that reads a map enlarged by 2 x 2, nearest
 * neighbour: the pixel (2y + i, 2x + j) reads only 2 x 2 of the map before that, with sums of the
 * kernel's weights. w[2 i + j] is its convolution, from the cells (y - 1 + i, x - 1 + j) on; they
 * share the bias. 16 multiplications instead of 36. */
void xd_w_conv_enlarged(xd_decl *d, xd_cnv w[4], const char *name, int64_t out, int64_t in);

/* A vector or small tensor, as F32 in device memory. `name` is the whole name below the scope
 * ("norm.weight"). */
void xd_w_vec(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape);
/* The gains "NAME.weight" and the biases "NAME.bias" of a norm, [n] each. */
void xd_w_affine(xd_decl *d, const char *name, xd_tensor *gain, xd_tensor *bias, int64_t n);

/* A table read by rows (an embedding): used in place when mapped, in the file's type. */
void xd_w_table(xd_decl *d, xd_tensor *v, const char *name, int64_t rows, int64_t cols);

/* The same stored in another shape, whose last extent is the columns: [1, rows, cols]. */
void xd_w_table_as(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape);

/* Enters "prefix." below the current scope until the matching leave. */
void xd_w_enter(xd_decl *d, const char *fmt, ...) XD_PRINTF(2, 3);
void xd_w_leave(xd_decl *d);

/* ---- for the engine ----------------------------------------------------------------------- */

/* Where tensors come from. `get` returns the view of a tensor (host memory, contiguous, perhaps
 * unaligned; valid until `done`); 0 when there is none of this name. */
typedef struct xd_source {
    int  (*has)(void *self, const char *name, xd_tensor *shape);        /* p is not set        */
    xd_status (*get)(void *self, const char *name, xd_tensor *t, xd_err *e);
    void (*done)(void *self, const char *name);         /* its pages are not needed any more   */
    int  in_place;              /* views stay valid as long as the source                      */
    void *self;
    /* What the numbers of a tensor of eight bits are multiplied by; NULL: 1 for all.          */
    xd_status (*scale)(void *self, const char *name, float *s, xd_err *e);
    /* These bytes of a tensor in use are not read again soon: their pages need not stay mapped.
     * From any thread; NULL: nothing is gained.                                               */
    void (*past)(void *self, const char *name, const void *p, size_t bytes);
    /* Bytes that a tensor takes from `get` to `done`, where it is made and not mapped; NULL: none.  */
    size_t (*takes)(void *self, const char *name);
    /* Numbers [first, first + n) of a tensor will be read soon; NULL: nobody wants to know.    */
    void (*will)(void *self, const char *name, int64_t first, int64_t n);
} xd_source;

/* Of names with "|" between them the first that the source has; 0: it has none. */
int xd_source_name(const xd_source *src, const char *names, char *out, size_t size);

typedef struct xd_declared {    /* one tensor as declared                                      */
    char    name[512];          /* with aliases: "a.query|a.to_q", whole names                 */
    int     nd;
    int64_t d[XD_MAXDIM];
} xd_declared;

typedef struct xd_store xd_store;       /* memory of loaded weights                            */

typedef enum xd_visit {
    XD_VISIT_LIST,              /* names and shapes only                                       */
    XD_VISIT_COUNT,             /* fills the structs with addresses without memory, adds bytes */
    XD_VISIT_LOAD,              /* from the source                                             */
    XD_VISIT_RANDOM,            /* from a hash of name and index                               */
} xd_visit;

struct xd_decl {
    xd_visit   visit;
    xd_dev    *dev;
    xd_dtype   type;            /* compute type                                                */
    xd_dtype   blocks;          /* I8 or F8E4M3: of matrices that are cut by tensor parallelism  */
                                /* where it is used (attention and feed-forward of blocks), if  */
                                /* they have XD_QUANT_LEAST inputs and outputs; others: as type  */
    const xd_source *src;
    int        tp, tp_at;       /* tensor degree and my coordinate                             */
    int        tells;           /* COUNT: the source hears what a load will read               */
    xd_store  *store;           /* owns what is loaded (LOAD, RANDOM)                          */
    xd_declared *list;          /* LIST: grows                                                 */
    int        nlist, caplist;
    size_t     packed;          /* bytes the weights need (COUNT), or took                     */
    size_t     room;            /* the same, each rounded up as in one block                   */
    size_t     work[3];         /* COUNT: working memory of a load, by slot (xd_store_scratch), and */
                                /* of what the source makes                                    */
    int        nodd;            /* LOAD: tensors with NaN or infinite numbers                  */
    char       odd[512];        /* the name of the first                                       */
    xd_err    *err;             /* sticky                                                      */
    const char *prefix;         /* of whole names: without it they are names too; NULL: none   */
    char       scope[192];
    int        depth;           /* of nested scopes                                            */
    size_t     outer[16];       /* the scope's length before each was entered                  */
};

xd_status xd_store_open(xd_store **s, xd_dev *dev, xd_err *e);
/* Device memory; NULL: none is left. *mine is 0 when another process fills it. */
void     *xd_store_get(xd_store *s, size_t bytes, int *mine);
/* From now on weights come one after the other from a block (a multiple of XD_ALIGN, borrowed) that
 * `parts` processes see: each of them takes the same weights and fills its share of them. */
void      xd_store_use_block(xd_store *s, void *base, size_t bytes, int part, int parts);
size_t    xd_store_block_bytes(size_t bytes);                  /* that a weight takes in such a block  */
size_t    xd_store_bytes(const xd_store *s);            /* of its weights                      */
/* Working memory of a load, kept from one weight to the next: slot 0 or 1 with at least `bytes`;
 * NULL: none is left. Given back by trim. */
void     *xd_store_scratch(xd_store *s, int slot, size_t bytes);
void      xd_store_trim(xd_store *s);
void      xd_store_close(xd_store **s);
void      xd_decl_free(xd_decl *d);     /* the list                                            */

/* Elements of a float tensor (contiguous, perhaps unaligned) that are NaN or infinite: does it
 * have any? Reads all of it, on all threads. */
int       xd_nonfinite(xd_tensor t);
/* Random values for element i of a weight: f32 in about [-1.7, 1.7], variance 1. */
float     xd_random_weight(uint64_t name_hash, uint64_t i);

/* Compares what a model declares with what a source has: XD_EFORMAT with one error that lists
 * the first ten missing or wrongly shaped tensors with expected and found shapes. */
xd_status xd_declared_check(const xd_declared *list, int n, const xd_source *src,
                            const char *what, xd_err *e);

#endif
