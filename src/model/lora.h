/* lora.h - LoRA files: low-rank differences that are added to weights of a model
 *
 * A file names modules and has two matrices for each; the model computes with W + scale * (alpha /
 * rank) * up * down (Hu et al. 2021, https://arxiv.org/abs/2106.09685), or with another product:
 * of two such matrices element by element (LoHa, https://arxiv.org/abs/2108.06098), or the
 * Kronecker product of two (LoKr, https://arxiv.org/abs/2309.14859). With a magnitude (DoRA,
 * https://arxiv.org/abs/2402.09353) each row of the sum is then brought to that length. Files are
 * opened and checked with the model. The component's source then has terms (xd_source_sums), which
 * are added in f32 to rows while they are packed, before they are rounded or quantized, and for the
 * columns that a rank has. No plan needs anything else.
 *
 * Terms belong to the model and are looked up when weights are read. Therefore a change at run
 * time needs no other interface: drop a component, give it other terms, load it again. */
#ifndef XD_MODEL_LORA_H
#define XD_MODEL_LORA_H

#include "base/json.h"
#include "families/key_map.h"
#include "model/model.h"

typedef struct xd_loras xd_loras;

/* Opens the files and gives their terms to the sources of the components of `m`, whose weight files
 * are open. Refused: not a safetensors file, half of a pair, rank 0, NaN or infinities, unsupported
 * kinds of difference (OFT, Tucker factors), a file of which nothing fits; unless m->lora_partial,
 * in which case a warning lists them: a tensor that fits nothing, shapes that differ from the
 * model's. A warning counts tensors of text encoders that are left out. *l belongs to the model and
 * is closed after its components. */
xd_status xd_loras_open(xd_loras **l, const xd_lora *asked, int n, xd_model *m, xd_err *e);
/* The same of the second of two transformers, without text encoders (m->loras_2). */
xd_status xd_loras_open_2(xd_loras **l, const xd_lora *asked, int n, xd_model *m, xd_err *e);
void      xd_loras_close(xd_loras **l);
/* Are they these files with these scales, in this order? NULL: no files. */
int       xd_loras_equal(const xd_loras *l, const xd_lora *asked, int n);
/* Do they change the transformer (part 0), text encoder k (part 1 + k)? */
int       xd_loras_change(const xd_loras *l, int part);
/* The open file i; NULL: there are no more. */
const struct xd_st *xd_loras_file(const xd_loras *l, int i);

/* Adds the bytes of the terms of each kind of component that the page cache lacks now; nothing if l
 * is NULL. Opening reads them, so there are some only where memory was short since. */
void      xd_loras_cold_bytes(const xd_loras *l, double cold[XD_KINDS]);
/* Hash of the files (xd_st_hash) and scales, continued from h; h itself if l is NULL. */
uint64_t  xd_loras_hash(const xd_loras *l, uint64_t h);
/* Appends `, "loras": [{"path": ..., "scale": ...}]`, `member` for "loras", and `, LoRA:
 * "name:scale"`; nothing if there are none. omit_folders: paths are file names alone. */
void      xd_loras_json(const xd_loras *l, const char *member, int omit_folders, xd_text_buf *b);
void      xd_loras_text(const xd_loras *l, xd_text_buf *b);

/* ---- inside: names (lora_keys.c) ---------------------------------------------------------- */

/* The role of a file's tensor in its module. */
typedef enum xd_lora_slot {
    XD_LORA_DOWN,               /* [rank, in]: "A"                                             */
    XD_LORA_UP,                 /* [out, rank]: "B"                                            */
    XD_LORA_UP_BIAS,            /* [out], added to the bias as up * down is to the weight      */
    XD_LORA_ALPHA,              /* one element                                                 */
    XD_LORA_DIFF,               /* the weight's shape: a whole difference                      */
    XD_LORA_DIFF_BIAS,          /* the bias' shape                                             */
    /* Of LoHa: (w1_a w1_b) * (w2_a w2_b), element by element; [out, rank], [rank, in].         */
    XD_LORA_HADA_1A, XD_LORA_HADA_1B, XD_LORA_HADA_2A, XD_LORA_HADA_2B,
    /* Of LoKr: w1 (x) w2; each is whole, or the product of a and b.                            */
    XD_LORA_KRON_1, XD_LORA_KRON_1A, XD_LORA_KRON_1B,
    XD_LORA_KRON_2, XD_LORA_KRON_2A, XD_LORA_KRON_2B,
    XD_LORA_MAGNITUDE,          /* [out], perhaps with extents of 1: lengths of rows           */
    XD_LORA_DORA_SCALE,         /* the same; [1, in]: lengths of columns                       */
    XD_LORA_NEW, XD_LORA_NEW_BIAS,      /* in place of the weight or bias                     */
    XD_LORA_SLOTS,
    XD_LORA_UNSUPPORTED = XD_LORA_SLOTS, /* of another method; the file is wrong without it    */
    XD_LORA_OTHER
} xd_lora_slot;

enum { XD_LORA_COMPONENTS = XD_MAXTEXT + 1, XD_LORA_NAME = 256, XD_LORA_TARGETS = 4 };

typedef struct xd_lora_place {  /* a tensor that terms may be added to                         */
    char *flat;                 /* its module with _ for .: "transformer_blocks_0_attn_to_q"   */
    /* Number of the component; 1: its bias; index in the component's list. */
    int   part, bias, item;
} xd_lora_place;

typedef struct xd_lora_keys {   /* of all components that files may name                       */
    xd_component  *part[XD_LORA_COMPONENTS];    /* the transformer, then text encoders or NULL */
    int            ntext;
    const xd_text_use *text;    /* [ntext] of the recipe                                       */
    const xd_lora_name *others; /* of the transformer's family; NULL: none                     */
    xd_lora_place *place;       /* sorted                                                      */
    int            n;
} xd_lora_keys;

typedef struct xd_lora_target { /* the tensors that the rows of one module are added to, in order */
    int n, part, item[XD_LORA_TARGETS];
    int halves;                 /* the two halves of the rows may be in the other order        */
} xd_lora_target;

/* Of the transformer and of all text encoders; second: of the second of two transformers alone. */
xd_status xd_lora_keys_open(xd_lora_keys *s, xd_model *m, int second, xd_err *e);
void      xd_lora_keys_close(xd_lora_keys *s);

/* "lora_unet_x_attn.lora_down.weight" is XD_LORA_DOWN of module "lora_unet_x_attn"; the module's
 * name is the first *len bytes of the key. */
xd_lora_slot xd_lora_slot_of(const char *key, size_t *len);
/* Finds the tensors of a module's weight (or bias) by any of the known names.
 * Returns 1 if found. */
int       xd_lora_target_of(const xd_lora_keys *s, const char *module, int bias,
                            xd_lora_target *target);
/* The module's name without the component's; *part is the component's number, -1: unknown. */
const char *xd_lora_inner(const xd_lora_keys *s, const char *module, int *part);
/* 1: it is of a text encoder that the model may have and that is left out. */
int       xd_lora_left_out(const xd_lora_keys *s, const char *module);

/* ---- inside: what a file says of itself (lora_notes.c) ------------------------------------- */

/* Settings of peft: those that diffusers puts into the header of a file, by component, or those of
 * adapter_config.json beside adapter_model.safetensors, which are of one component. */
typedef struct xd_lora_notes xd_lora_notes;
/* Of the file that was opened as `path`. Refused: no JSON, an expression that peft would not read
 * either, an adapter whose weights need more than its file. */
xd_status xd_lora_notes_open(xd_lora_notes **n, const char *path, const xd_st *file,
                             const xd_lora_keys *s, xd_err *e);
void      xd_lora_notes_close(xd_lora_notes **n);
/* What the product of a module is multiplied by: alpha / rank of what is noted, 1 without. rank 0:
 * its factors have none. lycoris: it is no plain pair. */
xd_status xd_lora_notes_gain(const xd_lora_notes *n, int part, const char *inner, double rank,
                             int lycoris, double *gain, xd_err *e);
/* Does the file hold weights and biases that replace those of the model? */
int       xd_lora_notes_replace(const xd_lora_notes *n);
uint64_t  xd_lora_notes_hash(const xd_lora_notes *n, uint64_t h);
/* The file's name in a folder: "adapter_model" of peft, else that of diffusers. */
const char *xd_lora_stem(const char *path);

/* ---- inside: terms and sums (lora_source.c) ----------------------------------------------- */

typedef enum xd_lora_kind { XD_LORA_PRODUCT, XD_LORA_HADAMARD, XD_LORA_KRONECKER } xd_lora_kind;

typedef struct xd_lora_factor { /* a matrix [rows, cols] of a file                             */
    int64_t a, b;               /* tensors: [rows, rank] and [rank, cols]; b -1: a is all of it */
    int64_t rows, cols, rank;   /* rank 0: it is whole                                         */
} xd_lora_factor;

typedef struct xd_lora_term {   /* gain * up[row0 .., :] * down is added to one tensor         */
    int     part, item;
    xd_st  *file;
    int64_t up, down;           /* tensors of the file; down -1: `up` is the whole difference  */
    xd_lora_kind   kind;        /* of the other kinds the product of w[0] and w[1] is added    */
    xd_lora_factor w[2];
    int64_t row0, rows, cols, rank;
    int     swap;               /* the two halves of the rows are exchanged                    */
    int     replaces;           /* the whole difference is not added: it is the tensor         */
    int64_t magnitude;          /* tensor of the file: lengths of the rows of the sum; -1: none */
    int     columns;            /* they are lengths of its columns                             */
    double  gain;
    int     order;              /* the order in which terms were given and are added           */
} xd_lora_term;

/* Gives the terms of one component to its source; the terms, sorted by item, are borrowed. Does
 * nothing if n is 0. */
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
    uint64_t     *noted;        /* hash of what counts beside each file; 0: nothing            */
    xd_lora_term *terms;        /* sorted by component and tensor                              */
    int           nterms, cap;
    xd_lora_src  *src[XD_LORA_COMPONENTS];
};

#endif
