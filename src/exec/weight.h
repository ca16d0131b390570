/* weight.h - declares the weights of models. A model declares its weights once, in its function
 * `weights`; the engine uses the declaration to list, count, load, split and pack the weights, or
 * to fill them with random values.
 *
 * To list, count or load weights, the engine runs the model's function `weights`, which calls
 * xd_w_* for every tensor, with the tensor's name in the checkpoint relative to the current scope
 * (prefix of names). */
#ifndef XD_EXEC_WEIGHT_H
#define XD_EXEC_WEIGHT_H

#include "backend/backend.h"
#include "base/arena.h"
#include "exec/tokens.h"

/* How tensor parallelism splits a linear layer. XD_REPLICATED: every rank computes the complete
 * layer. XD_COL: the outputs are split over the ranks. XD_ROW: the inputs are split over the
 * ranks. */
typedef enum xd_split { XD_REPLICATED, XD_COL, XD_ROW } xd_split;

enum { XD_MAXSEG = 8, XD_QUANT_MIN = 16 };

typedef struct xd_stored xd_stored; /* a weight matrix that stays in its file (exec/stored.h) */

typedef struct xd_lin { /* this rank's shard of a linear layer y = x w^T + b */
    xd_weight  w;
    xd_tensor  b; /* [out] F32, or absent */
    xd_split   split;
    int        nseg;
    /* widths, on this rank, of the tensors of which a fused layer's output consists */
    int64_t    seg[XD_MAXSEG];
    /* number of inputs that are rotated together before the layer multiplies them; 0: no
     * rotation */
    int64_t    rotate;
    /* 0: the weight w is packed when loaded. Above 0: w stays as stored in its file, and each GEMM
     * packs `group` rows at a time. */
    int64_t    group;
    size_t     copy; /* bytes of the scratch buffer in which `group` rows are packed */
    /* the stored matrix from which rows are packed; NULL on a device that only counts memory */
    xd_stored *stored;
} xd_lin;

typedef struct xd_cnv { /* weights of a convolution */
    xd_weight w;
    xd_tensor b; /* [out] F32, or absent */
} xd_cnv;

typedef struct xd_decl xd_decl;

/* Declares one linear layer: "NAME.weight" [out, in]; "NAME.bias" [out] if `bias`. If the input is
 * a concatenation of several tensors, parts[0..nparts) are their widths, and the sum of the widths
 * replaces `in`; tensor parallelism splits each part. If the output consists of several tensors
 * side by side, outs[0..nouts) are their widths, and the sum of the widths replaces `out`; xd_seg
 * returns one of the output tensors. */
typedef struct xd_linear_spec {
    int64_t        in, out;
    /* number of tensors that are concatenated to the input; 0: one tensor of width `in` */
    int            nparts;
    const int64_t *parts;
    /* number of tensors of which the output consists; 0: one tensor of width `out` */
    int            nouts;
    const int64_t *outs;
    xd_split       split;
    /* The layer is split only at multiples of `unit`, such as the features per head; 0 means 1. */
    int64_t        unit;
    int            bias;
    /* 1: the layer's input has only a few rows, as for modulation. The weight of a layer with few
     * input rows is quantized even if tensor parallelism does not split the layer. */
    int            few;
    /* Number of extents of 1 after [out,in] in the checkpoint; 2 for a convolution of 1 x 1. */
    int            ones;
} xd_linear_spec;
void xd_w_linear(xd_decl *d, xd_lin *w, const char *name, const xd_linear_spec *s);

/* Declares several linear layers of the checkpoint that have the same input and are computed as one
 * (fused) layer. Part i is "names[i].weight" [out[i], in]. Each entry of `names` may be a list of
 * alternative names separated by "|", of which the first one in the checkpoint is used. */
typedef struct xd_fused_spec {
    int                n;
    const char *const *names; /* [n] names of the fused layers in the checkpoint */
    int64_t            in, out[XD_MAXSEG];
    xd_split           split;
    /* Tensor parallelism splits the outputs of each fused layer only at multiples of this number of
     * features. */
    int64_t            unit;
    /* [n]: value of `unit` for each fused layer; NULL: all layers use `unit` */
    const int64_t     *units;
    int                bias;
} xd_fused_spec;
void xd_w_fused(xd_decl *d, xd_lin *w, const xd_fused_spec *s);

/* Declares a replicated linear layer whose weight the checkpoint stores in another shape, for
 * example as a convolution. "NAME.weight" has the shape shape[0..nd), where shape[0] is the number
 * of outputs and the product of the other extents is the number of inputs. */
void xd_w_linear_as(xd_decl *d, xd_lin *w, const char *name, int nd, const int64_t *shape,
                    int bias);

/* Declares a convolution with the kernel "NAME.weight" [out, in, (kt,) (kh,) kw] and the bias
 * "NAME.bias" [out]. A convolution of single channels (with `outs` set) has one group for each
 * channel. */
typedef struct xd_conv_spec {
    int64_t        out, in; /* in: number of input channels of one group */
    int            groups;  /* number of groups of channels; 0 means 1 */
    int            nk;      /* number of the kernel's extents in the checkpoint: 1 to 3 */
    int            kernel[3];
    int            stride[3]; /* strides of the convolution; 0 means 1 */
    int            bias;
    /* 1: only the last frame of a kernel over frames (kernel[0] > 1) is loaded, as a 2D kernel, for
     * a frame that has no predecessors. */
    int            last;
    /* For a convolution of single channels whose input was computed by a linear layer with the
     * split XD_COL: number and widths of that layer's output parts. Tensor parallelism gives each
     * rank the channels whose inputs it computes. If nouts is 0, the convolution is not split. */
    int            nouts;
    const int64_t *outs;
} xd_conv_spec;
void xd_w_conv(xd_decl *d, xd_cnv *w, const char *name, const xd_conv_spec *s);

/* Declares a 3 x 3 convolution "NAME.weight" [out, in, 3, 3] of a feature map whose height and
 * width are first doubled (nearest neighbour). Output pixel (2y + i, 2x + j) depends on only 2 x 2
 * pixels of the original map, each multiplied by a sum of the kernel's weights. For i and j of 0 or
 * 1, w[2 i + j] is the 2 x 2 convolution that computes output pixel (2y + i, 2x + j) from rows y -
 * 1 + i and y + i and columns x - 1 + j and x + j of the original map. All four 2 x 2 convolutions
 * share the bias. Per pixel of the original map, the four convolutions need 16 multiplications
 * instead of 36. */
void xd_w_conv_enlarged(xd_decl *d, xd_cnv w[4], const char *name, int64_t out, int64_t in);

/* Declares a transposed convolution over rows, "NAME.weight" [in, out, k] and "NAME.bias" [out]
 * F32. w becomes a linear layer without bias, [k out, in], whose outputs are ordered by tap of the
 * kernel. shape: in, out, k. */
void xd_w_spread(xd_decl *d, xd_lin *w, xd_tensor *bias, const char *name, const int64_t shape[3]);

/* Declares a vector or small tensor, which is loaded as F32 into device memory. name: the tensor's
 * complete name in the scope, such as "norm.weight". */
void xd_w_vec(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape);
/* Declares the gain of a norm, [n], from which files subtract 1: the loaded gain is the stored
 * value plus 1. name: the tensor's complete name in the scope. */
void xd_w_gain(xd_decl *d, xd_tensor *v, const char *name, int64_t n);
/* Declares the gain "NAME.weight" and the bias "NAME.bias" of a norm, [n] each. */
void xd_w_affine(xd_decl *d, const char *name, xd_tensor *gain, xd_tensor *bias, int64_t n);

/* Declares a table that is read by rows (an embedding). The table keeps its element type in the
 * file. If the file is memory-mapped, the table is read from the mapping, without a copy. */
void xd_w_table(xd_decl *d, xd_tensor *v, const char *name, int64_t rows, int64_t cols);

/* Declares a table as xd_w_table does, for a tensor of another shape whose last extent is the
 * number of columns, such as [1, rows, cols]. */
void xd_w_table_as(xd_decl *d, xd_tensor *v, const char *name, int nd, const int64_t *shape);

/* Declares a tensor that files contain but that no network reads. An unread tensor is only listed,
 * and only if d->whole is 1. */
void xd_w_unread(xd_decl *d, const char *name, int nd, const int64_t *shape);
/* Declares the unread tensors of a layer or norm: NAME.weight and, with shape[0] elements,
 * NAME.bias. */
void xd_w_unread_layer(xd_decl *d, const char *name, int nd, const int64_t *shape);

/* Enters a scope, which lasts until the matching call of xd_w_leave. All names declared in the
 * scope are prefixed with the formatted text and a dot. In nested scopes, the outer scope's prefix
 * comes before the inner scope's prefix. */
void xd_w_enter(xd_decl *d, const char *fmt, ...) XD_PRINTF(2, 3);
void xd_w_leave(xd_decl *d);

/* ---- for the engine ----------------------------------------------------------------------- */

/* Functions of a weight source that adds terms (LoRA) in f32 to some of its tensors. xd_source.get
 * returns a tensor as stored, and the code that reads rows of the tensor adds the terms. Rows of a
 * tensor are along its first extent. */
typedef struct xd_source_sums {
    int       (*has)(void *self, const char *name); /* returns 1 if terms are added to the tensor */
    /* Returns an upper limit, in bytes, of the memory that adding a tensor's terms uses between
     * `open` and `close`, whichever columns are read. */
    size_t    (*takes)(void *self, const char *name);
    /* Prepares the terms for selected columns of a tensor. The rows that `add` later gets consist
     * of the columns of span[0], then those of span[1], and so on. `open` computes on all
     * threads. */
    xd_status (*open)(void *self, const char *name, const xd_span *span, int n, void **sum,
                      xd_err *e);
    /* Adds the terms of rows [row, row + n) to the f32 rows at `to`. `add` may be called by any
     * thread. thread: index of the calling thread, below the value of xd_par_threads() at
     * `open`. */
    void      (*add)(const void *sum, int64_t row, int64_t n, float *to, int thread);
    void      (*close)(void *sum);
} xd_source_sums;

/* Describes how to read rows of a tensor that is stored as quantized codes with separate scales.
 * For a tensor of codes, xd_source.has and xd_source.get return a tensor of type I8 or U8 with the
 * shape of the decoded tensor. */
typedef struct xd_coding xd_coding;
struct xd_coding {
    /* Decodes elements [column, column + n) of row `row`, but does not undo a rotation of the row.
     * `read` may be called by any thread, after `data` was set to the address of the tensor that
     * xd_source.get returned. If `read` is NULL, the tensor is not stored as codes. */
    void        (*read)(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to);
    /* Returns the scale by which a row's codes are multiplied; NULL: a row has several scales. */
    float       (*scale)(const xd_coding *c, int64_t row);
    /* Type of quantized codes. XD_I8: codes are integers from -127 to 127. XD_F8E4M3: codes are
     * 8-bit floats. XD_Q4_0: codes are in GGUF blocks of 32 four-bit integers. XD_F32: codes have
     * any other format and are always decoded. I8 and F8E4M3 codes have separate scales. */
    xd_dtype    type;
    /* Group size (a power of 4) in which rows are rotated along their columns (xd_rotation); 0: no
     * rotation. */
    int64_t     rotate;
    /* self: the weight source's own data (xd_source.self); data: address of the codes */
    const void *self, *data;
    /* The file may store rows in another order: row r of the tensor is row first + (r + turn) %
     * rows of the file's tensor. */
    int64_t     first, turn, rows;
};

/* A weight source: functions that return tensors by name. The function `has` returns 0 if there is
 * no tensor of this name. `get` returns a view of a tensor in host memory, contiguous but possibly
 * unaligned, and valid until `done`. */
typedef struct xd_source {
    /* Finds the tensor and sets *shape to its shape and type, without reading the tensor. */
    int                   (*has)(void *self, const char *name, xd_tensor *shape);
    xd_status             (*get)(void *self, const char *name, xd_tensor *t, xd_err *e);
    /* Called when the pages of a tensor that `get` returned are not needed any more. */
    void                  (*done)(void *self, const char *name);
    int                   in_place; /* 1: views are valid until the source is closed */
    void                 *self;
    /* Returns the scale by which the elements of an 8-bit tensor are multiplied; NULL: the scale is
     * always 1. */
    xd_status             (*scale)(void *self, const char *name, float *s, xd_err *e);
    /* Tells the weight source that the `bytes` bytes at p, which belong to a tensor in use, will
     * not be read again soon, so that the source may unmap their pages. `past` may be called by any
     * thread, and may be NULL. */
    void                  (*past)(void *self, const char *name, const void *p, size_t bytes);
    /* Tells the weight source that elements [first, first + n) of a tensor will be read soon.
     * `will` may be NULL. */
    void                  (*will)(void *self, const char *name, int64_t first, int64_t n);
    const xd_source_sums *sums; /* functions that add LoRA terms to tensors; NULL: none */
    void                 *sums_self;
    /* Returns 1 if a tensor is stored as codes, and then sets all members of *c except `data`. If
     * `codes` is NULL, no tensor is stored as codes. */
    int                   (*codes)(void *self, const char *name, xd_coding *c);
} xd_source;

int     xd_is_coded(xd_dtype t); /* returns 1 if tensors of this type can be quantized codes */
/* Returns the file's row index for row `row` of the tensor. */
int64_t xd_coding_row(const xd_coding *c, int64_t row);

/* Finds the first of several names, separated by "|", that the source has, and writes it to `out`.
 * Returns 0 if the source has none of the names. */
int xd_source_name(const xd_source *src, const char *names, char *out, size_t size);

typedef struct xd_declared { /* a declared tensor */
    char     name[512];      /* complete name, with alternative names: "a.query|a.to_q" */
    int      nd;
    int64_t  d[XD_MAXDIM];
    int      unread; /* 1: the tensor is in files, but no network reads it */
    xd_dtype type;   /* element type after loading: xd_decl.type or xd_decl.blocks */
} xd_declared;

typedef struct xd_store xd_store; /* memory of loaded weights */

typedef enum xd_visit {
    XD_VISIT_LIST,   /* lists the names and shapes of declared tensors */
    XD_VISIT_COUNT,  /* counts bytes, and sets the weights' shapes but no valid addresses */
    XD_VISIT_LOAD,   /* loads the declared weights from the weight source */
    XD_VISIT_RANDOM, /* makes random elements from hashes of tensor name and index */
} xd_visit;

/* Selection of the weight matrices that stay as stored in their files and are not packed
 * (exec/stored.h). Matrices can stay only if the device computes in host memory. */
typedef enum xd_stays {
    XD_STAYS_NONE, /* no matrix stays in its file: all matrices are packed */
    /* matrices that the file stores as int8 and that the GEMM multiplies as int8 weights */
    XD_STAYS_INTEGERS,
    XD_STAYS_BLOCKS, /* int8 matrices, and matrices of GGUF block types (xd_dtype_block) */
    /* All matrices stay in their files; their pages in memory are released after each use. */
    XD_STAYS_ALL,
} xd_stays;

struct xd_decl {
    xd_visit         visit;
    xd_dev          *dev;
    xd_dtype         type; /* compute type, which is the type of activations */
    /* Element type of the large matrices: I8, F8E4M3 or `type`. Large matrices are those that
     * tensor parallelism can split (attention, feed-forward) and that have at least XD_QUANT_MIN
     * inputs and outputs. Smaller matrices have the compute type `type`. */
    xd_dtype         blocks;
    const xd_source *src;
    int              tp, tp_at; /* tp: tensor-parallel degree; tp_at: this rank's coordinate */
    /* 1: the network's last blocks are not declared, nor are the tensors that only these blocks
     * need, such as the final norm. */
    int              cut;
    int              whole;     /* 1: XD_VISIT_LIST also lists tensors that no network reads */
    int              announces; /* 1: XD_VISIT_COUNT tells the source which elements will be read */
    xd_store        *store; /* store that allocates the weights (XD_VISIT_LOAD, XD_VISIT_RANDOM) */
    xd_declared     *list;  /* list of the declared tensors, made by XD_VISIT_LIST */
    int              nlist, caplist;
    xd_stays         stays;
    /* bytes of weights that stay in their files and are read there in every step */
    size_t           mapped;
    size_t      packed; /* bytes of the packed weights, counted (XD_VISIT_COUNT) or allocated */
    /* Arrays with one element for each transformer block of this pipeline stage, or NULL.
     * blocks_of: bytes of the block's weights, packed or in files. mapped_of: bytes of the block's
     * weights that stay in files. */
    size_t     *blocks_of, *mapped_of;
    /* value of `packed` with each weight's size rounded up (xd_store_block_bytes) */
    size_t      block_bytes;
    /* Bytes of working memory that loading needs, counted by XD_VISIT_COUNT. work[0] and work[1]
     * are bytes of the two scratch buffers of xd_store_scratch, and work[2] is bytes of data that
     * the weight source allocates. */
    size_t      work[3];
    int         nturned; /* number of matrices whose rotation was undone during XD_VISIT_LOAD */
    /* number of tensors with NaN or infinities that XD_VISIT_LOAD has found */
    int         nnonfinite;
    char        nonfinite[512]; /* name of the first tensor with NaN or infinities */
    xd_err     *err;            /* first failure, after which all work is skipped */
    const char *prefix;         /* prefix that tensor names in files may have; NULL: no prefix */
    /* other prefixes that files may use in place of `prefix`, or NULL */
    const char *const *prefixes;
    /* Prefix, possibly "", of the tensor names that are tried first and printed in lists; NULL:
     * this prefix is the field `prefix`. */
    const char        *lead;
    /* Start of some declared tensor names, such as "visual.". In a file, a name that starts with
     * `beside` has either no prefix or `prefix`, but never one of `prefixes`. `beside` may be
     * NULL. */
    const char        *beside;
    /* A piece of some declared tensor names, such as "vision_model.", that names in files may lack;
     * NULL: no such piece. */
    const char        *omits;
    char               scope[192];
    int                depth;     /* number of nested scopes */
    size_t             outer[16]; /* lengths of the prefixes of the enclosing scopes */
};

xd_status xd_store_open(xd_store **s, xd_dev *dev, xd_err *e);
/* Allocates device memory for one weight of the store. Returns NULL if out of memory. Sets *mine to
 * 1 if this process loads the weight, or to 0 if another process loads it. */
void     *xd_store_get(xd_store *s, size_t bytes, int *mine);
/* Makes the store allocate later weights in a region of memory that `parts` processes share and
 * that the caller owns. Weights follow each other in the region, at multiples of XD_ALIGN. Each
 * process that shares the region requests all weights, but loads only some of them. */
void      xd_store_use_block(xd_store *s, void *base, size_t bytes, int part, int parts);
/* Makes an empty store allocate later weights in one region of device memory, which the store owns.
 * xd_store_own_block also allocates `beside` bytes directly after the region, and returns their
 * address. Returns NULL if out of memory. */
void     *xd_store_own_block(xd_store *s, size_t bytes, size_t beside);
/* Makes the store allocate later weights in another region of its memory, at `base`. Returns the
 * region in which the store has allocated until now. If `back` is a region that an earlier call
 * returned, the store allocates in that region again and ignores `base`. */
xd_arena  xd_store_swap_block(xd_store *s, void *base, size_t bytes, const xd_arena *back);
/* Sets which process loads the weights that are requested later: this process if `fills` is 1,
 * another process if `fills` is 0. */
void      xd_store_fills(xd_store *s, int fills);
/* Returns the bytes that a weight occupies in such a memory region: its size rounded up to a
 * multiple of XD_ALIGN. */
size_t    xd_store_block_bytes(size_t bytes);
/* Returns the total size of the store's weights. */
size_t    xd_store_bytes(const xd_store *s);
/* Returns at least `bytes` bytes of working memory for loading a weight. Loading the next weight
 * reuses the working memory. slot: 0 or 1. Returns NULL if out of memory. xd_store_trim frees the
 * working memory. */
void     *xd_store_scratch(xd_store *s, int slot, size_t bytes);
void      xd_store_trim(xd_store *s);
/* Registers an object, for which `close` is called when the store is closed. If out of memory,
 * closes the object at once and returns 0. */
int       xd_store_owns(xd_store *s, void *object, void (*close)(void *object));
void      xd_store_close(xd_store **s);
void      xd_decl_free(xd_decl *d); /* frees d->list */

/* Returns 1 if a float tensor (contiguous, possibly unaligned) has NaN or infinite elements.
 * xd_nonfinite reads all elements, on all threads. */
int   xd_nonfinite(xd_tensor t);
/* Returns the random value of element i of a weight: f32 in about [-1.7, 1.7] with variance 1. */
float xd_random_weight(uint64_t name_hash, uint64_t i);

/* Checks that a source has n declared tensors with their declared shapes. If tensors are missing or
 * have other shapes, returns XD_EFORMAT with an error message that lists the first ten missing or
 * wrongly shaped tensors, with the expected and the found shapes. */
xd_status xd_declared_check(const xd_declared *list, int n, const xd_source *src, const char *what,
                            xd_err *e);

#endif
