/* from_xdit.h - what a family says of xDiT: the scripts that run its models there, with which
 * methods, and what they are here
 *
 * Data only, and a header that the program reads, too (tests/style/layers.py). Models that xDiT
 * has and this program has not are in app/cli/xdit_models.c. */
#ifndef XD_FAMILIES_FROM_XDIT_H
#define XD_FAMILIES_FROM_XDIT_H

enum {
    XD_CAN_CFG = 1, XD_CAN_SP = 2, XD_CAN_RING = 4, XD_CAN_PP = 8, XD_CAN_TP = 16, XD_CAN_VAE = 32,
    XD_CAN_FSDP = 64,
    XD_CAN_USP = XD_CAN_SP | XD_CAN_RING,
    XD_HAS_GUIDANCE = 128,      /* the script hands --guidance_scale on                        */
    XD_HAS_ROWS = 256,          /* latents are cut by rows, which must be divisible             */
    XD_HAS_PAIRS = 512,         /* block i feeds block n-1-i: stages must be even and of one size */
    XD_HAS_VIDEO = 1024,
    XD_HAS_PADDED_HEADS = 2048, /* heads are padded to any Ulysses degree                      */
};

typedef struct xd_xdit_model {
    const char *title;          /* "PixArt-alpha"                                              */
    const char *scripts;        /* without .py, apart by spaces; NULL: it is one of the runner's */
    const char *names;          /* of the runner: pieces of the model's name, apart by spaces   */
    const char *pipeline;       /* class or runner of xDiT                                     */
    const char *own;            /* the recipe here; NULL: not built                             */
    int         cell;           /* pixels of a row of latents that is cut                       */
    int         patch;          /* such rows of a token                                         */
    unsigned    can;
    /* The script refuses PipeFusion, and a parallel VAE by this name; NULL: it does not look. */
    const char *refuses;
    /* The class that calls the padding of uneven tokens by a wrong name; NULL: none does. */
    const char *bad_padding;
    /* Whose tokens xDiT 0.4.0 counts as diffusers before 0.32 did, "FLUX"; NULL: not its. */
    const char *old_packing;
    int         text_rows;      /* of a video: text tokens of every request; 0: not known      */
    const char *frame_pairs;    /* pieces of names of models with patches of two frames        */
    const char *steps, *guidance;       /* the runner's, where the pipeline has others; or NULL */
    const char *side, *text;    /* the same: height and width; max_sequence_length              */
} xd_xdit_model;

typedef struct xd_xdit_net {    /* what a transformer's name says about it                     */
    const char *name;           /* a piece of the model's name                                  */
    int         heads, blocks;
    int         cross;          /* heads of cross-attention where they are others               */
} xd_xdit_net;

/* A name of the runner's registry that is no name of the hub's, and the name there. */
typedef struct xd_xdit_name { const char *name, *repo; } xd_xdit_name;

/* Each list ends with a row without its first value; a piece of a name is looked for from the first
 * row on. NULL: no rows. */
typedef struct xd_xdit_rows {
    const xd_xdit_model *models;
    const xd_xdit_net   *nets;
    const xd_xdit_name  *names;
} xd_xdit_rows;

const xd_xdit_rows *xd_xdit_rows_at(int i);     /* of all families, in order; NULL at the end  */

#endif
