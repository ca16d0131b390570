/* lora.h - LoRA files: low-rank differences that are added to a model's weights
 *
 * A file has two matrices for each module; the model computes with W + scale * (alpha / rank) * up
 * * down (Hu et al. 2021, https://arxiv.org/abs/2106.09685). LoHa files use the elementwise product
 * of two such products (https://arxiv.org/abs/2108.06098), LoKr files a Kronecker product
 * (https://arxiv.org/abs/2309.14859). With a magnitude (DoRA, https://arxiv.org/abs/2402.09353)
 * each row of the sum is then rescaled to that norm. Files are opened and checked with the model.
 * They become terms of the component's source (xd_source_sums): while rows of a weight are packed,
 * the terms are added in f32, before rounding or quantization, and only for the columns of this
 * rank. Therefore LoRA works with every plan.
 *
 * Terms belong to the model and are looked up when weights are read. To change LoRA files at run
 * time, drop a component, set other terms and load it again. */
#ifndef XD_MODEL_LORA_H
#define XD_MODEL_LORA_H

#include "base/json.h"
#include "families/key_map.h"
#include "model/model.h"

typedef struct xd_loras xd_loras;

/* Opens the files and adds their terms to the sources of the components of `m`, whose weight files
 * are open. Refuses: a file that is not safetensors, half of a pair, rank 0, NaN or infinities,
 * unsupported methods (OFT, Tucker factors), a file of which no tensor fits the model. Also refuses
 * single tensors that fit no module or have another shape; with m->lora_partial, a warning lists
 * these instead. A warning counts tensors of text encoders that the model does without. *l belongs
 * to the model; close it after the components. */
xd_status xd_loras_open(xd_loras **l, const xd_lora *asked, int n, xd_model *m, xd_err *e);
/* As xd_loras_open, for the second of two transformers (m->loras_2), without text encoders. */
xd_status xd_loras_open_2(xd_loras **l, const xd_lora *asked, int n, xd_model *m, xd_err *e);
void      xd_loras_close(xd_loras **l);
/* Returns 1 if l has exactly these files and scales, in this order. l NULL: no files. */
int       xd_loras_equal(const xd_loras *l, const xd_lora *asked, int n);
/* Returns 1 if the files change the transformer (part 0) or text encoder k (part 1 + k). */
int       xd_loras_change(const xd_loras *l, int part);
/* Returns the open file i; NULL after the last one. */
const struct xd_st *xd_loras_file(const xd_loras *l, int i);

/* Adds to cold[kind] the bytes of LoRA tensors of each kind of component that are not in the page
 * cache; nothing if l is NULL. Opening reads the files, so they are cold only after memory was
 * short. */
void      xd_loras_cold_bytes(const xd_loras *l, double cold[XD_KINDS]);
/* Returns a hash of the files (xd_st_hash) and scales, continued from h; h itself if l is NULL. */
uint64_t  xd_loras_hash(const xd_loras *l, uint64_t h);
/* Append the files as JSON, `, "MEMBER": [{"path": ..., "scale": ...}]`, and as text, `, LoRA:
 * "name:scale"`; nothing if there are none. omit_folders: write file names without folders. */
void      xd_loras_json(const xd_loras *l, const char *member, int omit_folders, xd_text_buf *b);
void      xd_loras_text(const xd_loras *l, xd_text_buf *b);

/* ---- inside: names (lora_keys.c) ---------------------------------------------------------- */

/* The role of a file's tensor in its module. */
typedef enum xd_lora_slot {
    XD_LORA_DOWN,               /* [rank, in]: "A"                                             */
    XD_LORA_UP,                 /* [out, rank]: "B"                                            */
    XD_LORA_UP_BIAS,            /* [out], added to the bias with the scale of up * down        */
    XD_LORA_ALPHA,              /* one element                                                 */
    XD_LORA_DIFF,               /* shape of the weight: a full-rank difference                 */
    XD_LORA_DIFF_BIAS,          /* shape of the bias                                           */
    /* LoHa: (w1_a w1_b) * (w2_a w2_b), elementwise; [out, rank], [rank, in].                   */
    XD_LORA_HADA_1A, XD_LORA_HADA_1B, XD_LORA_HADA_2A, XD_LORA_HADA_2B,
    /* LoKr: the Kronecker product of w1 and w2; each is one matrix, or a product a b.          */
    XD_LORA_KRON_1, XD_LORA_KRON_1A, XD_LORA_KRON_1B,
    XD_LORA_KRON_2, XD_LORA_KRON_2A, XD_LORA_KRON_2B,
    XD_LORA_MAGNITUDE,          /* DoRA: norms of the rows: [out], with or without 1s          */
    XD_LORA_DORA_SCALE,         /* the same; if [1, in]: norms of the columns                  */
    XD_LORA_NEW, XD_LORA_NEW_BIAS,      /* replaces the weight or bias                        */
    XD_LORA_SLOTS,
    XD_LORA_UNSUPPORTED = XD_LORA_SLOTS, /* part of an unsupported method: refuse the file     */
    XD_LORA_OTHER
} xd_lora_slot;

enum { XD_LORA_COMPONENTS = XD_MAXTEXT + 1, XD_LORA_NAME = 256, XD_LORA_TARGETS = 4 };

typedef struct xd_lora_place {  /* a tensor of the model that terms may be added to            */
    char *flat;                 /* its module with _ for .: "transformer_blocks_0_attn_to_q"   */
    /* Index of the component; 1: the module's bias, 0: its weight; index in the component's
     * list. */
    int   part, bias, item;
} xd_lora_place;

typedef struct xd_lora_keys {   /* names of all tensors that LoRA files may change             */
    xd_component  *part[XD_LORA_COMPONENTS];    /* the transformer, then text encoders or NULL */
    int            ntext;
    const xd_text_use *text;    /* [ntext], from the recipe                                    */
    const xd_lora_name *others; /* alternative names of the transformer's family; NULL: none   */
    xd_lora_place *place;       /* [n], sorted by `flat`                                       */
    int            n;
} xd_lora_keys;

typedef struct xd_lora_target { /* the tensors that get the rows of a LoRA module, in order    */
    int n, part, item[XD_LORA_TARGETS];
    int halves;                 /* 1: if it has twice a tensor's rows, swap their halves       */
} xd_lora_target;

/* Lists the names of the transformer and all text encoders; second: of the second of two
 * transformers only. */
xd_status xd_lora_keys_open(xd_lora_keys *s, xd_model *m, int second, xd_err *e);
void      xd_lora_keys_close(xd_lora_keys *s);

/* Parses a key: "lora_unet_x_attn.lora_down.weight" is XD_LORA_DOWN of module "lora_unet_x_attn".
 * The module's name is the first *len bytes of the key. */
xd_lora_slot xd_lora_slot_of(const char *key, size_t *len);
/* Finds the tensors of a module's weight (or bias) by any of the known names.
 * Returns 1 if found. */
int       xd_lora_target_of(const xd_lora_keys *s, const char *module, int bias,
                            xd_lora_target *target);
/* Returns the module's name without the component's prefix; *part is the index of the component,
 * -1: unknown. */
const char *xd_lora_inner(const xd_lora_keys *s, const char *module, int *part);
/* Returns 1 if the module is of an optional text encoder that this model lacks. */
int       xd_lora_left_out(const xd_lora_keys *s, const char *module);

/* ---- inside: peft's settings of a file (lora_notes.c) -------------------------------------- */

/* Settings of peft: per component in the header of a file that diffusers wrote, or for one
 * component in adapter_config.json next to adapter_model.safetensors. */
typedef struct xd_lora_notes xd_lora_notes;
/* Reads the settings of the file that was opened as `path`. Refuses invalid JSON, regular
 * expressions that Python rejects, and adapters that need more than their file. */
xd_status xd_lora_notes_open(xd_lora_notes **n, const char *path, const xd_st *file,
                             const xd_lora_keys *s, xd_err *e);
void      xd_lora_notes_close(xd_lora_notes **n);
/* Computes the scale of a module's product: alpha / rank from the settings, 1 without settings.
 * rank 0: its factors have no rank. lycoris: 1 for LoHa and LoKr. */
xd_status xd_lora_notes_gain(const xd_lora_notes *n, int part, const char *inner, double rank,
                             int lycoris, double *gain, xd_err *e);
/* Returns 1 if tensors of the file replace weights and biases of the model. */
int       xd_lora_notes_replace(const xd_lora_notes *n);
uint64_t  xd_lora_notes_hash(const xd_lora_notes *n, uint64_t h);
/* Returns the stem of the LoRA file in a folder: "adapter_model" of peft, else that of
 * diffusers. */
const char *xd_lora_stem(const char *path);

/* ---- inside: terms and sums (lora_source.c) ----------------------------------------------- */

typedef enum xd_lora_kind { XD_LORA_PRODUCT, XD_LORA_HADAMARD, XD_LORA_KRONECKER } xd_lora_kind;

typedef struct xd_lora_factor { /* a matrix [rows, cols] of a file                             */
    int64_t a, b;       /* tensors: [rows, rank] and [rank, cols]; b -1: `a` is the matrix     */
    int64_t rows, cols, rank;   /* rank 0: not factorized                                      */
} xd_lora_factor;

typedef struct xd_lora_term {   /* gain * up[row0 .., :] * down is added to one tensor         */
    int     part, item;
    xd_st  *file;
    int64_t up, down;           /* tensors of the file; down -1: `up` is the full difference   */
    xd_lora_kind   kind;        /* HADAMARD, KRONECKER: the product of w[0] and w[1] is added  */
    xd_lora_factor w[2];
    int64_t row0, rows, cols, rank;
    int     swap;               /* 1: the two halves of the rows are swapped                   */
    int     replaces;           /* 1: `up` replaces the tensor                                 */
    int64_t magnitude;          /* tensor of the file: DoRA norms of the sum; -1: none         */
    int     columns;            /* 1: these are norms of columns, 0: of rows                   */
    double  gain;
    int     order;              /* terms are added in the order of the request                 */
} xd_lora_term;

/* Adds the terms of one component to its source. terms: sorted by item, borrowed. Does nothing if n
 * is 0. */
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
    uint64_t     *noted;        /* hash of each file's peft settings; 0: none                  */
    xd_lora_term *terms;        /* sorted by component and tensor                              */
    int           nterms, cap;
    xd_lora_src  *src[XD_LORA_COMPONENTS];
};

#endif
