/* dit.h - diffusion transformers: noisy latents, time and text become a prediction.
 *
 * Latents are tokens: [N, F], features in the order (channel, frame, row, column) of a patch:
 * F = C patch[0] patch[1] patch[2]; an image has one frame. */
#ifndef XD_DIT_DIT_H
#define XD_DIT_DIT_H

#include "exec/net.h"

typedef struct xd_input {
    xd_tensor      lat;         /* [n mine, F] F32 noisy latents     of this patch             */
    const xd_cond *cond;        /* text of this pass, whole                                    */
    xd_tensor      extra;       /* [n mine, F with extra_ch channels] F32 beside the latents (an image), or absent */
    xd_tensor      txt;         /* [n mine, E] the text rows I must embed, if text flows       */
    double         t;           /* model time, in the units of the model's scheduler (0..1000)  */
    double         guidance;    /* distilled guidance, or NaN                                  */
    double         size[2];     /* pixels: height, width (micro-conditions)                    */
} xd_input;

typedef struct xd_dit_info {
    int     nlayers, heads, head_dim;
    int     patch[3];           /* latent cells of a token: t, h, w                            */
    int64_t dim;                /* hidden width                                                */
    int64_t lat_ch;             /* latent channels C                                           */
    int64_t extra_ch;           /* channels it reads beside them (of an image), after them      */
    int64_t sample[3];          /* latent cells the model was trained on: t, h, w              */
    int     fixed;              /* it has positions for just that many cells                   */
    int64_t text_dim;           /* E of the text it reads                                      */
    int64_t text_rows;          /* rows of text it reads, no more and no fewer; 0: any number    */
    int64_t text_cols[3];       /* of each encoder, where they differ; 0: as text_dim           */
    int64_t pooled_dim;         /* of the pooled text embedding it reads; 0: none               */
    int     guided;             /* reads a distilled guidance scale                            */
    int     txt_flows;          /* text rows pass through the blocks (joint attention)         */
    int     sites;              /* self-attentions of a block                                  */
    int64_t most[3];            /* latent cells that it has positions for; 0: any number       */
    int     micro;              /* reads size[] (resolution and aspect ratio)                  */
    size_t  local_size;         /* of xd_state.local                                           */
    size_t  kept_size;          /* of xd_state.kept; 0: nothing is kept                        */
} xd_dit_info;

typedef struct xd_dit {         /* the one const a model file exports                          */
    xd_net_def net;
    void (*info)(const void *cfg, xd_dit_info *out);
    /* Long skips: the block whose output block `layer` reads as s->skip, -1: none; NULL: no block does.
     * They are a stack: what is given last is taken first. */
    int  (*skip_from)(const void *cfg, int layer);
    /* What blocks read of the text is the same in all steps and patches (keys and values of
     * cross-attention): `keep` takes tensors for it from the arena, for the stage's blocks, and `read`
     * fills them, once a request and pass. NULL: the text flows, or is read by cond alone. */
    void (*keep)(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept);
    void (*read)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    /* s->local holds zeroed local_size bytes. What cond puts into the arena lives until the end
     * of the step's pass. */
    void (*cond) (xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);  /* every stage */
    void (*embed)(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);  /* first: fills s->h */
    xd_tensor (*head)(xd_exec *x, const xd_net *n, xd_state *s);  /* last: [img mine, F] F32 */
} xd_dit;

/* How many outputs lie in s->skips before block `layer`, and the most that do so in the stage of n. */
int  xd_dit_skips(const xd_dit *d, const void *cfg, int layer);
int  xd_dit_most_skips(const xd_dit *d, const xd_net *n);
/* Runs block `layer`, which takes its long skip and leaves one where a later block reads its output. */
void xd_dit_block(xd_exec *x, const xd_dit *d, const xd_net *n, int layer, xd_state *s);

extern const xd_dit *const xd_dits[];           /* the registry, NULL at the end               */

#endif
