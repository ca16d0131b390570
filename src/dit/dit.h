/* dit.h - diffusion transformers: noisy latents, time and text become a prediction.
 *
 * Latents are tokens: [N, F]. The features of a token are the cells of a patch in the order
 * (channel, frame, row, column): F = C patch[0] patch[1] patch[2]. An image has one frame. */
#ifndef XD_DIT_DIT_H
#define XD_DIT_DIT_H

#include "exec/net.h"

typedef struct xd_input {
    xd_tensor      lat;         /* [n mine, F] F32 noisy latents of this patch                 */
    const xd_cond *cond;        /* text of this pass, all rows                                 */
    xd_tensor      extra;       /* [n mine, F with extra_ch channels] F32 of an image, or absent */
    xd_tensor      txt;         /* [n mine, E] text rows to embed, if text flows; padding is 0 */
    xd_tensor      ref;         /* [n mine, F] F32 tokens of reference images, or absent        */
    double         t;           /* model time in the units of the scheduler (0..1000)           */
    int64_t        held;        /* so many image tokens, the first of all, have the time 0      */
    double         guidance;    /* distilled guidance scale, or NaN                            */
    double         size[2];     /* pixels: height, width (micro-conditions)                    */
} xd_input;

typedef struct xd_dit_info {
    int     nlayers, heads, head_dim;
    int     patch[3];           /* latent cells per token: t, h, w                             */
    int64_t dim;                /* hidden width                                                */
    int64_t lat_ch;             /* latent channels C                                           */
    int64_t extra_ch;           /* extra input channels (of an image), after the C channels     */
    int64_t sample[3];          /* latent cells of the training size: t, h, w                  */
    int     fixed;              /* positions exist for this size only                          */
    int64_t text_dim;           /* width E of the text embedding                               */
    int64_t text_rows;          /* required number of text rows; 0: any                          */
    int64_t text_cols[3];       /* width per encoder, where they differ; 0: text_dim            */
    int64_t image_dim;          /* width of rows of images, behind those of text; 0: it has none */
    int64_t image_rows;         /* their number, where each has a place; 0: those of one image   */
    int64_t pooled_dim;         /* width of the pooled text embedding; 0: not used              */
    int     guided;             /* takes a distilled guidance scale                            */
    int     txt_flows;          /* text rows pass through the blocks (joint attention)         */
    int64_t text_most;          /* most text rows with positions; 0: any number                */
    int64_t text_default;       /* text rows of a request that says nothing; 0: the pipeline's   */
    int     multiple;           /* text rows and image rows are padded to a multiple of it, the */
                                /* image's with rows of XD_PAD; 0: they are not                */
    int     sites;              /* self-attentions per block                                   */
    int64_t most[3];            /* most latent cells with positions: t, h, w; 0: any number    */
    int     refs;               /* tokens of reference images pass through the blocks, behind
                                 * the text and before the image (XD_REF); xd_ref_at has places */
    int     holds;              /* xd_input.held counts                                        */
    int     micro;              /* takes size[] (resolution and aspect ratio)                  */
    size_t  local_size;         /* bytes of xd_state.local                                     */
    size_t  kept_size;          /* bytes of xd_state.kept; 0: no kept tensors                  */
    int     lead;               /* blocks before those that step caches count: refiners        */
    int64_t probe_dim;          /* `probe` gives one row of so many features, the same on all  */
                                /* ranks; 0: those of the image's rows                         */
} xd_dit_info;

typedef struct xd_dit {         /* the one constant that a model file exports                  */
    xd_net_def net;
    void (*info)(const void *cfg, xd_dit_info *out);
    /* Long skips: the block whose output block `layer` reads as s->skip; -1: none. NULL: the
     * model has no long skips. They form a stack: the last one pushed is popped first. */
    int  (*skip_from)(const void *cfg, int layer);
    /* Text tensors that are equal in all steps and patches (keys and values of cross-attention).
     * `keep` allocates them in the arena for the blocks of the stage; `read` fills them, once
     * per request and pass. NULL: the text flows, or only cond reads it. */
    void (*keep)(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept);
    void (*read)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    /* What the modulations of a step are computed from, [1, active_width] in the compute type, and
     * the numbers of those of block `layer` (mods.h). NULL: there is nothing to compute ahead. */
    xd_tensor (*active)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    int64_t   (*active_width)(const void *cfg);
    int64_t   (*mod_width)(const void *cfg, int layer);
    /* s->local has local_size bytes, zeroed; a GPU replays the blocks where cond gives it the same
     * bytes in every step. What cond allocates in the arena lives until the end of the pass. */
    void (*cond) (xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);  /* every stage */
    void (*embed)(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);  /* first: s->h */
    xd_tensor (*head)(xd_exec *x, const xd_net *n, xd_state *s);  /* last: [img mine, F] F32     */
    /* First stage, behind embed: F32, the input of the first block of which TeaCache measures the
     * change (Liu et al. 2024, arXiv:2411.19108). NULL: the image's rows of s->h. */
    xd_tensor (*probe)(xd_exec *x, const xd_net *n, xd_state *s);
    /* The published polynomial that makes of it the change of the output, from the highest power;
     * 0: none is published for this config. */
    int  (*change_poly)(const void *cfg, double poly[5]);
} xd_dit;

/* Number of skip outputs in s->skips before block `layer`, and the largest number in the stage
 * of n. */
int  xd_dit_skips(const xd_dit *d, const void *cfg, int layer);
int  xd_dit_most_skips(const xd_dit *d, const xd_net *n);
/* Runs block `layer`: pops its long skip, and pushes its output if a later block reads it. */
void xd_dit_block(xd_exec *x, const xd_dit *d, const xd_net *n, int layer, xd_state *s);

#endif
