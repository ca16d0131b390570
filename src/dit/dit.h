/* dit.h - diffusion transformers: map noisy latents, time and text to a prediction
 *
 * Latents are tokens [N,F]. The features of a token are the cells of a patch in the order (channel,
 * frame, row, column): F = C patch[0] patch[1] patch[2]. An image has one frame. */
#ifndef XD_DIT_DIT_H
#define XD_DIT_DIT_H

#include "exec/net.h"

typedef struct xd_input {
    xd_tensor      lat;         /* [n,F] F32 noisy latents: own rows of this patch             */
    const xd_cond *cond;        /* text of this pass, all rows                                 */
    xd_tensor      extra;       /* [n, F with extra_ch channels] F32, or absent                  */
    xd_tensor      txt;         /* [n,E] text rows to embed, if text flows; padding: 0         */
    xd_tensor      ref;         /* [n,F] F32 tokens of reference images, or absent              */
    double         t;           /* timestep in the scheduler's units (0..1000)                  */
    int64_t        held;        /* number of leading image tokens with timestep 0               */
    double         guidance;    /* distilled guidance scale, or NaN                            */
    double         size[2];     /* pixels: height, width (micro-conditions)                    */
} xd_input;

typedef struct xd_dit_info {
    int     nlayers, heads, head_dim;
    int     patch[3];           /* latent cells per token: t, h, w                             */
    int64_t dim;                /* hidden width                                                */
    int64_t lat_ch;             /* latent channels C                                           */
    int64_t extra_ch;           /* extra input channels, after the C channels                   */
    int64_t sample[3];          /* latent cells of the training size: t, h, w                  */
    int     fixed;              /* 1: positions exist for this size only                       */
    int64_t text_dim;           /* width E of the text embedding                               */
    int64_t text_rows;          /* required number of text rows; 0: any number                   */
    int64_t text_cols[3];       /* width per encoder, if different; 0: text_dim                 */
    int64_t image_dim;          /* width of image encoder rows after text rows; 0: none          */
    int64_t image_rows;         /* their number, if positional; 0: rows of one image             */
    int64_t pooled_dim;         /* width of the pooled text embedding; 0: not used              */
    int     guided;             /* 1: reads a distilled guidance scale                         */
    int     txt_flows;          /* 1: text rows pass through the blocks (joint attention)      */
    int64_t text_most;          /* max text rows with positions; 0: no limit                   */
    int64_t text_default;       /* default text rows; 0: the pipeline's                          */
    int     multiple;           /* text rows and image rows are padded to a multiple of it (the */
                                /* image's with XD_PAD rows); 0: no padding                    */
    int     sites;              /* self-attentions per block                                   */
    int64_t most[3];            /* max latent cells with positions: t, h, w; 0: no limit       */
    int     refs;               /* 1: tokens of reference images pass through the blocks, after
                                   the text and before the image (XD_REF); see xd_ref_at       */
    int     holds;              /* 1: supports xd_input.held                                   */
    int     micro;              /* 1: reads size[] (resolution and aspect ratio)               */
    size_t  local_size;         /* bytes of xd_state.local                                     */
    size_t  kept_size;          /* bytes of xd_state.kept; 0: none                             */
    int     lead;               /* leading blocks that step caches ignore (refiners)           */
    int64_t probe_dim;          /* features of `probe`'s single row, equal on all ranks; 0: it  */
                                /* returns the image's rows                                    */
} xd_dit_info;

typedef struct xd_dit {         /* the one constant that a model file exports                  */
    xd_net_def net;
    void (*info)(const void *cfg, xd_dit_info *out);
    /* Long skips: index of the block whose output block `layer` reads as s->skip; -1: none. NULL:
     * the model has none. They form a stack: the last one pushed is popped first. */
    int  (*skip_from)(const void *cfg, int layer);
    /* Text tensors that are equal in all steps and patches (keys and values of cross-attention).
     * `keep` allocates them in the arena for the blocks of the stage; `read` fills them once per
     * request and pass. NULL: the text flows, or only cond reads it. */
    void (*keep)(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept);
    void (*read)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    /* Input of the modulations of a step, [1, active_width] in the compute type, and the number of
     * modulation values of block `layer` (mods.h). NULL: nothing can be computed ahead. */
    xd_tensor (*active)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    int64_t   (*active_width)(const void *cfg);
    int64_t   (*mod_width)(const void *cfg, int layer);
    /* s->local has local_size bytes, zeroed; a GPU replays blocks if cond writes the same bytes in
     * every step. Arena memory that cond allocates is valid until the end of the pass. */
    void (*cond) (xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);  /* every stage */
    void (*embed)(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);  /* first: s->h */
    xd_tensor (*head)(xd_exec *x, const xd_net *n, xd_state *s);  /* last: [own rows,F] F32     */
    /* First stage, after embed: F32, the input of the first block, whose change TeaCache measures
     * (Liu et al. 2024, arXiv:2411.19108). NULL: the image's rows of s->h. */
    xd_tensor (*probe)(xd_exec *x, const xd_net *n, xd_state *s);
    /* Writes the published polynomial that maps that change to the output's, highest power first;
     * returns 0 if none is published for this config. */
    int  (*change_poly)(const void *cfg, double poly[5]);
} xd_dit;

/* Number of skip outputs in s->skips before block `layer`, and the maximum number in the stage of
 * n. */
int  xd_dit_skips(const xd_dit *d, const void *cfg, int layer);
int  xd_dit_most_skips(const xd_dit *d, const xd_net *n);
/* Runs block `layer`: pops its long skip, and pushes its output if a later block reads it. */
void xd_dit_block(xd_exec *x, const xd_dit *d, const xd_net *n, int layer, xd_state *s);

#endif
