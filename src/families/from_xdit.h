/* from_xdit.h - tables of the models that xDiT supports: xDiT's scripts for a model, its parallel
 * methods, and the recipe for the model in this library.
 *
 * This header declares only data. The program includes this header, too (tests/style/layers.py).
 * Models that only xDiT has are in app/from_xdit/xdit_models.c. */
#ifndef XD_FAMILIES_FROM_XDIT_H
#define XD_FAMILIES_FROM_XDIT_H

enum {
    XD_CAN_CFG = 1, XD_CAN_SP = 2, XD_CAN_RING = 4, XD_CAN_PP = 8, XD_CAN_TP = 16, XD_CAN_VAE = 32,
    XD_CAN_FSDP = 64,
    XD_CAN_USP = XD_CAN_SP | XD_CAN_RING,
    XD_HAS_GUIDANCE = 128,      /* the script passes --guidance_scale to the pipeline          */
    /* Latents are split by rows, whose number must be divisible by the ranks. */
    XD_HAS_ROWS = 256,
    /* Blocks i and n-1-i share a skip connection: needs an even number of equal stages. */
    XD_HAS_PAIRS = 512,
    XD_HAS_VIDEO = 1024,
    XD_HAS_PADDED_HEADS = 2048, /* attention heads are padded, so any Ulysses degree is possible */
};

typedef struct xd_xdit_model {
    const char *title;          /* model name in lists, "PixArt-alpha"                         */
    /* xDiT's scripts without .py, space-separated; NULL: xDiT's runner runs the model. */
    const char *scripts;
    const char *names;          /* for the runner: substrings of model names, space-separated   */
    const char *pipeline;       /* xDiT's pipeline class or runner class                       */
    const char *own;            /* recipe in this library; NULL: not supported                  */
    int         cell;           /* pixels per latent row, if rows are split                     */
    int         patch;          /* latent rows per token                                        */
    unsigned    can;
    /* Name that the script prints when it refuses PipeFusion and a parallel VAE. NULL: the script
     * does not check. */
    const char *refuses;
    /* Class of xDiT whose method for padding an uneven number of tokens has a wrong name, so that
     * it fails. NULL: none. */
    const char *bad_padding;
    /* "FLUX": xDiT 0.4.0 counts tokens as in diffusers before 0.32; NULL: the model is not
     * affected. */
    const char *old_packing;
    int         text_rows;      /* for a video model: text tokens of every request; 0: unknown */
    /* Substrings of the names of models whose patches have two frames. */
    const char *frame_pairs;
    /* The runner's default steps and guidance scale if they differ from the recipe's, or NULL. */
    const char *steps, *guidance;
    /* Runner's default height and width, and default max_sequence_length, if different, or NULL. */
    const char *side, *text;
} xd_xdit_model;

typedef struct xd_xdit_net {    /* properties of a transformer, found by model name            */
    const char *name;           /* a substring of the model's name                              */
    int         heads, blocks;
    int         cross;          /* number of heads of cross-attention, if it differs from `heads` */
} xd_xdit_net;

/* A model name in the registry of xDiT's runner that differs from the name on the Hugging Face Hub,
 * and the Hub's name. */
typedef struct xd_xdit_name { const char *name, *repo; } xd_xdit_name;

/* The xDiT tables of one family. Each list ends with a row whose first value is NULL, and NULL is
 * an empty list. For a model name, the first row whose name is a substring of the model name
 * applies. */
typedef struct xd_xdit_rows {
    const xd_xdit_model *models;
    const xd_xdit_net   *nets;
    const xd_xdit_name  *names;
} xd_xdit_rows;

/* Returns the xDiT tables of the i-th family; NULL after the last one. */
const xd_xdit_rows *xd_xdit_rows_at(int i);

#endif
