/* from_xdit.h - a family's models in xDiT: scripts, supported methods, and the recipes here
 *
 * Data only. The program includes this header, too (tests/style/layers.py). Models that only xDiT
 * has are in app/from_xdit/xdit_models.c. */
#ifndef XD_FAMILIES_FROM_XDIT_H
#define XD_FAMILIES_FROM_XDIT_H

enum {
    XD_CAN_CFG = 1, XD_CAN_SP = 2, XD_CAN_RING = 4, XD_CAN_PP = 8, XD_CAN_TP = 16, XD_CAN_VAE = 32,
    XD_CAN_FSDP = 64,
    XD_CAN_USP = XD_CAN_SP | XD_CAN_RING,
    XD_HAS_GUIDANCE = 128,      /* the script passes --guidance_scale on                       */
    XD_HAS_ROWS = 256,          /* latents are split by rows, which must divide evenly          */
    XD_HAS_PAIRS = 512,         /* skips from block i to n-1-i: even number of equal stages       */
    XD_HAS_VIDEO = 1024,
    XD_HAS_PADDED_HEADS = 2048, /* heads are padded to any Ulysses degree                      */
};

typedef struct xd_xdit_model {
    const char *title;          /* "PixArt-alpha"                                              */
    const char *scripts;        /* without .py, space-separated; NULL: run by the runner         */
    const char *names;          /* runner: substrings of model names, space-separated           */
    const char *pipeline;       /* pipeline class or runner of xDiT                            */
    const char *own;            /* the recipe here; NULL: not supported                         */
    int         cell;           /* pixels per latent row that is split                          */
    int         patch;          /* latent rows per token                                        */
    unsigned    can;
    /* Name under which the script refuses PipeFusion and a parallel VAE; NULL: it does not
     * check. */
    const char *refuses;
    /* The class whose padding of uneven tokens has a wrong name; NULL: none. */
    const char *bad_padding;
    /* "FLUX": xDiT 0.4.0 counts tokens as in diffusers before 0.32; NULL: not affected. */
    const char *old_packing;
    int         text_rows;      /* video: text tokens of every request; 0: unknown             */
    const char *frame_pairs;    /* substrings of models with patches of two frames             */
    const char *steps, *guidance;       /* the runner's defaults, if different; or NULL         */
    const char *side, *text;    /* the same for height and width; max_sequence_length           */
} xd_xdit_model;

typedef struct xd_xdit_net {    /* properties by name of a transformer                         */
    const char *name;           /* a substring of the model's name                              */
    int         heads, blocks;
    int         cross;          /* heads of cross-attention, if different                       */
} xd_xdit_net;

/* A name in the runner's registry that differs from the hub's, and the hub's name. */
typedef struct xd_xdit_name { const char *name, *repo; } xd_xdit_name;

/* Each list ends with a row whose first value is NULL; the first row that is a substring of a name
 * applies. NULL: no rows. */
typedef struct xd_xdit_rows {
    const xd_xdit_model *models;
    const xd_xdit_net   *nets;
    const xd_xdit_name  *names;
} xd_xdit_rows;

const xd_xdit_rows *xd_xdit_rows_at(int i);     /* i-th of all families; NULL at the end       */

#endif
