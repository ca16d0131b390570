/* lora.h - reads LoRA files, whose low-rank differences are added to a model's weights.
 *
 * A LoRA file has two matrices, up and down, for each module (layer) that it changes. With the LoRA
 * file, the model computes with W + scale * (alpha / rank) * up * down in place of the weight W (Hu
 * et al. 2021, https://arxiv.org/abs/2106.09685). LoHa files have the elementwise product of two
 * products up * down (https://arxiv.org/abs/2108.06098), LoKr files a Kronecker product
 * (https://arxiv.org/abs/2309.14859). If the file has magnitudes (DoRA,
 * https://arxiv.org/abs/2402.09353), each row of the changed weight is rescaled at the end so that
 * the row's norm equals its magnitude. LoRA files are opened and checked when the model is opened.
 * The matrices of LoRA files become terms of the component's weight source (xd_source_sums): while
 * the rows of a weight are rearranged for the kernels, the terms are added in f32, before rounding
 * or quantization, and only for the columns of this rank. Because the terms are added to the
 * weights themselves, LoRA works with every parallel plan.
 *
 * The model owns the LoRA terms, and the code that reads a weight looks them up. To change LoRA
 * files at run time, drop the component's weights, set other terms and load the weights again. */
#ifndef XD_MODEL_LORA_H
#define XD_MODEL_LORA_H

#include "base/json.h"
#include "families/key_map.h"
#include "model/model.h"

typedef struct xd_loras xd_loras;

/* Opens n LoRA files and adds their terms to the weight sources of the components of `m`, whose
 * weight files must be open. xd_loras_open refuses a file that is not safetensors, one matrix of a
 * pair without the other, rank 0, NaN or infinities, unsupported methods (OFT, Tucker factors), and
 * a file none of whose tensors fits the model. xd_loras_open also refuses a file if some of its
 * tensors fit no module or have another shape; if m->lora_partial is 1, it only warns about these
 * tensors. Tensors for text encoders that the model omits are ignored; a warning prints their
 * number. *The list *l belongs to the model; close it after the components. */
xd_status xd_loras_open(xd_loras **l, const xd_lora *asked, int n, xd_model *m, xd_err *e);
/* Opens LoRA files for the second of two transformers (m->loras_2), as xd_loras_open does for the
 * first. In LoRA files for the second transformer, tensors for text encoders are ignored. */
xd_status xd_loras_open_2(xd_loras **l, const xd_lora *asked, int n, xd_model *m, xd_err *e);
/* Sets *channels to the largest number of input channels that a LoRA file needs in the
 * transformer's input layer (xd_dit.input), or to 0 if no file changes this layer. In `m`, the
 * transformer and the text encoders must be open, but not their weight files. */
xd_status xd_loras_channels(const xd_lora *asked, int n, xd_model *m, int64_t *channels, xd_err *e);
void      xd_loras_close(xd_loras **l);
/* Returns 1 if `l` consists of exactly the n LoRA files of `asked`, with equal scales and in the
 * same order. An `l` that is NULL stands for an empty list of LoRA files. */
int       xd_loras_equal(const xd_loras *l, const xd_lora *asked, int n);
/* Returns 1 if the LoRA files change component number `part` of the model: 0 is the transformer, 1
 * + k is text encoder k. */
int       xd_loras_change(const xd_loras *l, int part);
/* Returns the open LoRA file i, or NULL after the last one. */
const struct xd_st *xd_loras_file(const xd_loras *l, int i);

/* For each kind of component, adds to cold[kind] the bytes of its LoRA tensors that are not in the
 * page cache. If l is NULL, xd_loras_cold_bytes adds nothing. Opening a LoRA file reads it into the
 * page cache, so bytes are missing there only if the system has since dropped them. */
void     xd_loras_cold_bytes(const xd_loras *l, double cold[XD_KINDS]);
/* Adds the LoRA files (xd_st_hash) and their scales to the hash h, and returns the new hash. If l
 * is NULL, xd_loras_hash returns h. */
uint64_t xd_loras_hash(const xd_loras *l, uint64_t h);
/* Append the list of LoRA files to a buffer. xd_loras_json appends JSON, `, "MEMBER": [{"path":
 * ..., "scale": ...}]`; xd_loras_text appends text, `, LoRA: "name:scale"`. If there are no LoRA
 * files, xd_loras_json and xd_loras_text append nothing. If omit_folders is 1, file names are
 * written without folders. */
void     xd_loras_json(const xd_loras *l, const char *member, int omit_folders, xd_text_buf *b);
void     xd_loras_text(const xd_loras *l, xd_text_buf *b);

/* ---- inside: names (lora_keys.c) ---------------------------------------------------------- */

/* Role that a tensor of a LoRA file has in its module. */
typedef enum xd_lora_slot {
    XD_LORA_DOWN, /* the matrix down [rank, in], named "A" */
    XD_LORA_UP,   /* the matrix up [out, rank], named "B" */
    /* [out]: a difference that is added to the bias, with the scale of up * down */
    XD_LORA_UP_BIAS,
    XD_LORA_ALPHA,     /* the scalar alpha (scale = alpha / rank), one element */
    XD_LORA_DIFF,      /* a full-rank difference with the weight's shape */
    XD_LORA_DIFF_BIAS, /* a full-rank difference that is added to the bias */
    /* Tensors of a LoHa file, which describes the elementwise product (w1_a w1_b) * (w2_a w2_b).
     * The shape of w1_a and w2_a is [out, rank], and the shape of w1_b and w2_b is [rank, in]. */
    XD_LORA_HADA_1A,
    XD_LORA_HADA_1B,
    XD_LORA_HADA_2A,
    XD_LORA_HADA_2B,
    /* Tensors of a LoKr file, which describes the Kronecker product of w1 and w2. Each of w1 and w2
     * is one matrix, or a product of two matrices a and b. */
    XD_LORA_KRON_1,
    XD_LORA_KRON_1A,
    XD_LORA_KRON_1B,
    XD_LORA_KRON_2,
    XD_LORA_KRON_2A,
    XD_LORA_KRON_2B,
    /* For DoRA: the norms of the weight's rows, [out], possibly with more dimensions of size 1. */
    XD_LORA_MAGNITUDE,
    /* DoRA: norms of the weight's rows or, if the shape is [1, in], of its columns */
    XD_LORA_DORA_SCALE,
    XD_LORA_NEW,
    XD_LORA_NEW_BIAS, /* tensor that replaces the weight or bias */
    XD_LORA_SLOTS,
    /* A tensor of an unsupported method; files with such tensors are refused. */
    XD_LORA_UNSUPPORTED = XD_LORA_SLOTS,
    XD_LORA_OTHER
} xd_lora_slot;

enum { XD_LORA_COMPONENTS = XD_MAXTEXT + 1, XD_LORA_NAME = 256, XD_LORA_TARGETS = 4 };

typedef struct xd_lora_place { /* a tensor of the model to which LoRA terms can be added */
    /* module name with _ in place of dots: "transformer_blocks_0_attn_to_q" */
    char *flat;
    /* part: index of the component; bias: 1 for the module's bias, 0 for its weight; item: index of
     * the tensor in the component's list. */
    int   part, bias, item;
} xd_lora_place;

typedef struct xd_lora_keys { /* names of all tensors that LoRA files may change */
    /* the transformer, followed by the text encoders; NULL: the model has no such encoder */
    xd_component       *part[XD_LORA_COMPONENTS];
    int                 ntext;
    const xd_text_use  *text;   /* [ntext] text encoders of the model's pipeline */
    const xd_lora_name *others; /* alternative module names of the model family; NULL: none */
    const char         *input;  /* the transformer's input layer (xd_dit.input) or NULL */
    xd_lora_place      *place;  /* [n] tensors, sorted by `flat` */
    int                 n;
} xd_lora_keys;

/* The model's tensors to which the rows of one LoRA module are added, in the order of the rows. */
typedef struct xd_lora_target {
    int n, part, item[XD_LORA_TARGETS];
    /* 1: the two halves of the rows are swapped if the LoRA module has twice as many rows as the
     * tensor. */
    int halves;
} xd_lora_target;

/* Lists the tensors of the transformer and of all text encoders that LoRA files may change. If
 * `second` is 1, lists only tensors of the second of two transformers. */
xd_status xd_lora_keys_open(xd_lora_keys *s, xd_model *m, int second, xd_err *e);
void      xd_lora_keys_close(xd_lora_keys *s);

/* Parses the name of a tensor in a LoRA file, and returns the tensor's role. For example,
 * "lora_unet_x_attn.lora_down.weight" is XD_LORA_DOWN of module "lora_unet_x_attn". The first *len
 * bytes of the key are the name of the module. */
xd_lora_slot xd_lora_slot_of(const char *key, size_t *len);
/* Returns 1 if the key names the gain of a norm of queries or keys, which replaces the gain of the
 * model in LoRA files that also widen the transformer's input layer (xd_dit.input). */
int          xd_lora_is_gain(const char *key);
/* Finds the tensors of the model that are the weight (or, if `bias` is 1, the bias) of a LoRA
 * module, whose name may follow any of the known naming schemes. Returns 1 if tensors of the model
 * were found. */
int xd_lora_target_of(const xd_lora_keys *s, const char *module, int bias, xd_lora_target *target);
/* Returns the name of a LoRA module without the component's prefix. Sets *part to the index of the
 * component, or to -1 if the component is unknown. */
const char *xd_lora_inner(const xd_lora_keys *s, const char *module, int *part);
/* Returns 1 if the LoRA module belongs to an optional text encoder that this model lacks. */
int         xd_lora_left_out(const xd_lora_keys *s, const char *module);

/* ---- inside: peft's settings of a file (lora_notes.c) -------------------------------------- */

/* Settings of the library peft for LoRA files. The library diffusers writes the settings of each
 * component into the header of the LoRA file. The library peft writes the settings of one component
 * into adapter_config.json, next to adapter_model.safetensors. */
typedef struct xd_lora_notes xd_lora_notes;
/* Reads the peft settings of the LoRA file that was opened as `path`. Refuses invalid JSON, regular
 * expressions that Python rejects, and settings that change the model by more than the tensors of
 * the LoRA file. */
xd_status   xd_lora_notes_open(xd_lora_notes **n, const char *path, const xd_st *file,
                               const xd_lora_keys *s, xd_err *e);
void        xd_lora_notes_close(xd_lora_notes **n);
/* Returns the scale of a LoRA module's product up * down: alpha / rank by the peft settings, or 1
 * if the file has no settings. rank: rank of the product; 0: the module stores complete matrices.
 * lycoris: 1 for LoHa and LoKr. */
xd_status   xd_lora_notes_gain(const xd_lora_notes *n, int part, const char *inner, double rank,
                               int lycoris, double *gain, xd_err *e);
/* Returns 1 if, by its peft settings, a LoRA file has full tensors that replace weights and biases
 * of the model. */
int         xd_lora_notes_replace(const xd_lora_notes *n);
uint64_t    xd_lora_notes_hash(const xd_lora_notes *n, uint64_t h);
/* Returns the name, without extension, of the LoRA file in the folder `path`: "adapter_model" if
 * peft wrote the folder, else the name that diffusers uses. */
const char *xd_lora_stem(const char *path);

/* ---- inside: terms and sums (lora_source.c) ----------------------------------------------- */

typedef enum xd_lora_kind { XD_LORA_PRODUCT, XD_LORA_HADAMARD, XD_LORA_KRONECKER } xd_lora_kind;

/* A matrix [rows, cols] that a LoRA file stores as one tensor or as the product of two tensors. */
typedef struct xd_lora_factor {
    /* Indices of the tensors a [rows, rank] and b [rank, cols] in the LoRA file. If b is -1, `a` is
     * the complete matrix [rows, cols]. */
    int64_t a, b;
    int64_t rows, cols, rank; /* rank of the product; 0: the matrix is stored as one tensor */
} xd_lora_factor;

/* A LoRA term: gain * up[row0 .., :] * down is added to one tensor. */
typedef struct xd_lora_term {
    int            part, item;
    xd_st         *file;
    /* Indices of the tensors `up` and `down` in the LoRA file. If `down` is -1, `up` is the
     * complete difference. */
    int64_t        up, down;
    /* for LoHa (HADAMARD) and LoKr (KRONECKER), the term is the product of w[0] and w[1] */
    xd_lora_kind   kind;
    xd_lora_factor w[2];
    /* cols: number of columns of the difference, which may be lower than the tensor's number of
     * columns */
    int64_t        row0, rows, cols, rank;
    /* number of columns of the module's weight, if the tensor may be its bias; 0: the number
     * `cols` */
    int64_t        width;
    int            swap;     /* 1: the two halves of the rows are swapped */
    int            replaces; /* 1: `up` replaces the model's tensor */
    /* index of the file's tensor with DoRA's norms; -1: no such tensor */
    int64_t        magnitude;
    int            columns; /* 1: the norms of DoRA are norms of columns; 0: norms of rows */
    double         gain;
    /* Position of the term in the order in which terms are added: the order in which the request
     * lists the LoRA files. */
    int            order;
} xd_lora_term;

/* xd_lora_src_open makes the weight source of component p add n LoRA terms to the component's
 * tensors. The array `terms` is sorted by item, and borrowed. If n is 0, xd_lora_src_open does
 * nothing. */
typedef struct xd_lora_src xd_lora_src;
xd_status xd_lora_src_open(xd_lora_src **s, xd_component *p, const xd_lora_term *terms, int n,
                           xd_err *e);
void      xd_lora_src_close(xd_lora_src **s);

/* ---- inside: all files (lora.c, lora_about.c) --------------------------------------------- */

struct xd_loras {
    int           n;
    char        **path;
    double       *scale;
    xd_st       **file;
    uint64_t     *noted; /* hash of each file's peft settings; 0: none */
    xd_lora_term *terms; /* LoRA terms, sorted by component and tensor */
    int           nterms, cap;
    xd_lora_src  *src[XD_LORA_COMPONENTS];
};

#endif
