/* lora.h - LoRA files: low-rank differences that are added to weights of a model.
 *
 * A file names modules and gives each two matrices; W + scale * (alpha / rank) * up * down is what
 * the model computes with (Hu et al. 2021, https://arxiv.org/abs/2106.09685). Files are opened and
 * checked with the model. The sum is made in f32 when a tensor of the checkpoint is read, by a
 * source that stands in front of the component's own: fusing, cutting and packing come later and do
 * not notice, whatever the plan.
 *
 * A change at run time needs no other interface: terms belong to the model and are looked up when
 * weights are read, so that dropping a component, giving it other terms and loading it again
 * changes them. */
#ifndef XD_MODEL_LORA_H
#define XD_MODEL_LORA_H

#include "base/json.h"
#include "model/model.h"

typedef struct xd_loras xd_loras;

/* Opens the files and gives the components of `m` (whose weight files are open) their sources.
 * Refused: no safetensors file, other shapes than the model's, half of a pair, a rank of 0, NaN or
 * infinite numbers, kinds of difference that are not known (DoRA, LoHa, LoKr), a file of which
 * nothing fits. Keys that nothing is known of are listed as a warning. *l stays with the model and
 * is closed after its components. */
xd_status xd_loras_open(xd_loras **l, const xd_lora *asked, int n, xd_model *m, xd_err *e);
void      xd_loras_close(xd_loras **l);

/* Of the files (as xd_st_hash says) and scales, on top of h; h itself when l is NULL. */
uint64_t  xd_loras_hash(const xd_loras *l, uint64_t h);
/* Appends `, "loras": [{"path": ..., "scale": ...}]` and `, LoRA: "name:scale"`; nothing when there
 * are none. */
void      xd_loras_json(const xd_loras *l, xd_text_buf *b);
void      xd_loras_text(const xd_loras *l, xd_text_buf *b);

/* ---- inside: names (lora_names.c) --------------------------------------------------------- */

/* What a tensor of a file is for its module. */
typedef enum xd_lora_slot {
    XD_LORA_DOWN,               /* [rank, in]: "A"                                            */
    XD_LORA_UP,                 /* [out, rank]: "B"                                           */
    XD_LORA_UP_BIAS,            /* [out], added to the bias like the product to the weight      */
    XD_LORA_ALPHA,              /* one number                                                  */
    XD_LORA_DIFF,               /* of the shape of the weight: a whole difference               */
    XD_LORA_DIFF_BIAS,          /* of that of the bias                                         */
    XD_LORA_SLOTS,
    XD_LORA_UNSUPPORTED = XD_LORA_SLOTS,      /* of another method, without which the rest is wrong   */
    XD_LORA_OTHER
} xd_lora_slot;

enum { XD_LORA_COMPONENTS = XD_MAXTEXT + 1, XD_LORA_NAME = 256, XD_LORA_TARGETS = 4 };

typedef struct xd_lora_place {  /* a tensor that terms may be added to                          */
    char *flat;                 /* its module with _ for .: "transformer_blocks_0_attn_to_q"    */
    int   part, bias, item;     /* of which component; its weight or bias; in the part's list   */
} xd_lora_place;

typedef struct xd_lora_keys {  /* of all components that files may name                        */
    xd_component       *part[XD_LORA_COMPONENTS];         /* the transformer, then text encoders or NULL  */
    int            ntext;
    xd_lora_place *place;       /* sorted                                                      */
    int            n;
} xd_lora_keys;

typedef struct xd_lora_target {    /* what the rows of one module are added to, in their order     */
    int n, part, item[XD_LORA_TARGETS];
    int halves;                 /* the two halves of the rows may stand in the other order      */
} xd_lora_target;

xd_status xd_lora_keys_open(xd_lora_keys *s, xd_model *m, xd_err *e);
void      xd_lora_keys_close(xd_lora_keys *s);

/* "lora_unet_x_attn.lora_down.weight" is XD_LORA_DOWN of module "lora_unet_x_attn", whose text is
 * the first *len bytes of the key. */
xd_lora_slot xd_lora_slot_of(const char *key, size_t *len);
/* 1, and where the weight (or bias) of a module is, in any of the known ways to call it. */
int       xd_lora_target_of(const xd_lora_keys *s, const char *module, int bias, xd_lora_target *aim);
/* The module's name without that of its component; *part is where it belongs, -1: unknown. */
const char *xd_lora_inner(const xd_lora_keys *s, const char *module, int *part);

/* ---- inside: terms and sums (lora_add.c) -------------------------------------------------- */

typedef struct xd_lora_term {   /* gain * up[row0 .., :] * down is added to one tensor          */
    int     part, item;
    xd_st  *file;
    int64_t up, down;           /* tensors of the file; down -1: up is the whole difference     */
    int64_t row0, rows, cols, rank;
    int     swap;               /* the halves of the rows change places                         */
    double  gain;
    int     order;              /* in which terms were asked for, and so are added              */
} xd_lora_term;

/* Puts a source with the terms of one component in front of its own; the terms, sorted by item, are
 * borrowed. Nothing when n is 0. */
typedef struct xd_lora_src xd_lora_src;
xd_status xd_lora_src_open(xd_lora_src **s, xd_component *p, const xd_lora_term *terms, int n, xd_err *e);
void      xd_lora_src_close(xd_lora_src **s);

#endif
