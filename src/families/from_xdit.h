/* from_xdit.h - declares tables of the models that xDiT supports: xDiT's scripts for a model, the
 * parallel methods that xDiT has for the model, and the recipe for the model in this library.
 *
 * Only data types and one function are declared here. The command-line program also includes
 * from_xdit.h (tests/style/layers.py allows it). Models that only xDiT supports are in
 * app/from_xdit/xdit_models.c. */
#ifndef XD_FAMILIES_FROM_XDIT_H
#define XD_FAMILIES_FROM_XDIT_H

enum {
    XD_CAN_CFG = 1,
    XD_CAN_SP = 2,
    XD_CAN_RING = 4,
    XD_CAN_PP = 8,
    XD_CAN_TP = 16,
    XD_CAN_VAE = 32,
    XD_CAN_FSDP = 64,
    XD_CAN_USP = XD_CAN_SP | XD_CAN_RING,
    XD_HAS_GUIDANCE = 128, /* the script of xDiT passes --guidance_scale to the pipeline */
    /* xDiT splits the latents by rows; the number of rows must be divisible by the number of
     * ranks. */
    XD_HAS_ROWS = 256,
    /* Blocks i and n-1-i share a skip connection, so xDiT needs an even number of equal pipeline
     * stages. */
    XD_HAS_PAIRS = 512,
    XD_HAS_VIDEO = 1024,
    XD_HAS_PADDED_HEADS = 2048, /* xDiT pads attention heads, so any Ulysses degree works */
    /* The model is a U-Net, which xDiT runs on one rank, or with CFG parallelism on two. */
    XD_IS_UNET = 4096,
};

typedef struct xd_xdit_model {
    const char *title; /* model name in lists, such as "PixArt-alpha" */
    /* Names of xDiT's scripts for the model, without .py and space-separated; NULL: xDiT's runner
     * runs the model. */
    const char *scripts;
    /* substrings by which xDiT's runner recognizes its models, space-separated */
    const char *names;
    const char *pipeline; /* xDiT's pipeline class or runner class */
    /* name of the model's recipe in this library; NULL: this library does not support the model */
    const char *own;
    const char
        /* for a model that is not supported: the reason, if known, and the nearest supported
             * model */
               *instead;
    int         cell;  /* pixels per latent row, if rows are split */
    int         patch; /* latent rows per token, if rows are split */
    unsigned    can;
    /* The model's name in the script's error messages, if xDiT's script refuses PipeFusion and a
     * parallel VAE; NULL: the script does not check. */
    const char *refuses;
    /* The model's name in the error message of a pipeline that refuses a parallel VAE, or NULL. */
    const char *whole_vae;
    /* number of which the script's height and width must be multiples; 0: any size */
    int         multiple;
    /* Name of the xDiT class in which padding an uneven number of tokens fails, because the call of
     * the padding method is misspelt; NULL: padding works. */
    const char *bad_padding;
    /* Name of the model family for a warning, if xDiT 0.4.0 counts this model's tokens as diffusers
     * did before version 0.32; NULL: xDiT counts the tokens correctly. */
    const char *old_packing;
    /* 1: xDiT splits the tokens over ranks without padding them to equal parts. */
    int         unpadded;
    int         text_rows; /* video model: number of text tokens; 0: unknown */
    /* Substrings of the names of models whose tokens cover two frames. */
    const char *frame_pairs;
    /* Default number of steps and guidance scale in xDiT's runner; NULL: the recipe's default. */
    const char *steps, *guidance;
    /* Default of height and width (side), and default max_sequence_length (text), in xDiT's runner;
     * NULL: the recipe's default. */
    const char *side, *text;
    /* Default height, width and number of frames in xDiT's runner, if the height differs from the
     * width or the model generates videos; NULL: the recipe's default. */
    const char *height, *width, *frames;
    /* file name of the control image that the script always reads; NULL: the script reads none */
    const char *control_image;
} xd_xdit_model;

typedef struct xd_xdit_net { /* properties of a transformer, found by model name */
    const char *name;        /* a substring of the model's name */
    int         heads, blocks;
    int         cross; /* number of heads of cross-attention, if it differs from `heads` */
} xd_xdit_net;

/* A model whose name in the registry of xDiT's runner (`name`) differs from its name on the Hugging
 * Face Hub (`repo`). */
typedef struct xd_xdit_name { const char *name, *repo; } xd_xdit_name;

/* Tables about xDiT's support for the models of one family. Each table ends with a row whose first
 * value is NULL; a NULL pointer is an empty table. The row for a model is the first one whose
 * `name` is a substring of the model's name. */
typedef struct xd_xdit_rows {
    const xd_xdit_model *models;
    const xd_xdit_net   *nets;
    const xd_xdit_name  *names;
} xd_xdit_rows;

/* Returns the xDiT tables of the i-th family, or NULL after the last family. */
const xd_xdit_rows *xd_xdit_rows_at(int i);

#endif
