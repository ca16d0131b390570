/* xdit_models.h - the models that xDiT runs: by which script, with which methods, and what they are
 * here */
#ifndef XD_CLI_XDIT_MODELS_H
#define XD_CLI_XDIT_MODELS_H

enum {
    XD_CAN_CFG = 1, XD_CAN_SP = 2, XD_CAN_RING = 4, XD_CAN_PP = 8, XD_CAN_TP = 16, XD_CAN_VAE = 32,
    XD_CAN_FSDP = 64,
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
    const char *own;            /* the model here; NULL: not built                              */
    int         cell;           /* pixels of a row of latents that is cut                       */
    int         patch;          /* such rows of a token                                         */
    unsigned    can;
} xd_xdit_model;

extern const xd_xdit_model xd_xdit_models[];    /* ends with a row without a title             */

typedef struct xd_xdit_net {    /* what a transformer's name says about it                     */
    const char *name;           /* a piece of the model's name                                  */
    int         heads, blocks;
    int         cross;          /* heads of cross-attention where they are others               */
} xd_xdit_net;

/* NULL: not known. `script` may have directories and .py. */
const xd_xdit_model *xd_xdit_by_script(const char *script);
const xd_xdit_model *xd_xdit_by_name(const char *model);
const xd_xdit_net   *xd_xdit_net_find(const char *model);
/* "org/name" of a name of the runner's, which takes it in small letters too. NULL: it has none
 * such. */
const char          *xd_xdit_repo(const char *name);

#endif
