/* dual.h - declares the double and single blocks of transformers. Double blocks have separate
 * weights for text and image; single blocks treat text and image as one sequence and compute
 * attention and feed-forward in parallel.
 *
 * Double blocks and single blocks normalize with adaLN and multiply their results by gates. Each
 * block computes its modulation vectors by a linear layer, or gets them as inputs. */
#ifndef XD_DIT_DUAL_H
#define XD_DIT_DUAL_H

#include "dit/layers.h"

/* number of axes of a token's position (image number, row, column) */
enum { XD_DUAL_AXES = 3 };

typedef struct xd_pair { xd_adaln img, txt; } xd_pair; /* weights of a double block */

typedef struct xd_solo { /* weights of a single block */
    xd_lin    mod;       /* modulation layer [3D,D], or absent */
    /* `out` reads the concatenated outputs of attention and feed-forward */
    xd_lin    qkv, up, out;
    xd_tensor norm_q, norm_k;
} xd_solo;

/* Config values that all models with double and single blocks have in common. The config struct of
 * each model with double and single blocks begins with an xd_dual_cfg. */
typedef struct xd_dual_cfg {
    int64_t head_dim, in_ch, out_ch, joint, patch;
    int     heads, ndouble, nsingle;
    int     modulated; /* 1: each block has linear layers for its modulation */
    /* for each position axis: the number of head features that RoPE rotates */
    xd_ints axes;
    int64_t dim; /* D, the width of the hidden state: heads * head_dim */
} xd_dual_cfg;

/* Rows of a table of config fields, which read config values into the members of an xd_dual_cfg.
 * The parameters of the macro are the defaults of in_channels, num_layers, num_single_layers,
 * num_attention_heads and joint_attention_dim. */
#define XD_DUAL_FIELDS(in_, double_, single_, heads_, joint_)                                     \
    { "patch_size", offsetof(xd_dual_cfg, patch), 'l', 1, NULL },                                 \
    { "in_channels", offsetof(xd_dual_cfg, in_ch), 'l', in_, NULL },                              \
    { "out_channels", offsetof(xd_dual_cfg, out_ch), 'l', 0, NULL },                              \
    { "num_layers", offsetof(xd_dual_cfg, ndouble), 'i', double_, NULL },                         \
    { "num_single_layers", offsetof(xd_dual_cfg, nsingle), 'i', single_, NULL },                  \
    { "attention_head_dim", offsetof(xd_dual_cfg, head_dim), 'l', 128, NULL },                    \
    { "num_attention_heads", offsetof(xd_dual_cfg, heads), 'i', heads_, NULL },                   \
    { "joint_attention_dim", offsetof(xd_dual_cfg, joint), 'l', joint_, NULL },                   \
    { "axes_dims_rope", offsetof(xd_dual_cfg, axes), 'L', 0, NULL }

/* Checks the numbers of a config; in_channels must be at least `channels`. xd_dual_check also
 * computes `dim`, and sets out_ch if the config has none. */
xd_status xd_dual_check(xd_dual_cfg *c, int64_t channels, xd_err *e);
/* Returns the number of blocks; it implements the function nlayers of xd_net_def. */
int       xd_dual_nlayers(const void *cfg);

/* xd_pair_weights declares the weights of a double block, and xd_solo_weights the weights of a
 * single block. xd_pair_weights and xd_solo_weights implement the function `weights` of
 * xd_block. */
void xd_pair_weights(xd_decl *d, const void *cfg, int layer, void *w);
void xd_solo_weights(xd_decl *d, const void *cfg, int layer, void *w);

/* Inputs of a double or single block other than its weights and the hidden state. */
typedef struct xd_dual_in {
    /* Modulation vectors of the text tokens (txt) and of the image tokens (img), [6,D] F32 each:
     * shift, scale and gate of the attention, then shift, scale and gate of the feed-forward. A
     * single block reads only `img`, which then has the shape [3,D]. */
    xd_tensor txt, img;
    /* Modulation vectors of the reference images' tokens; if absent, these tokens use `img`. */
    xd_tensor ref;
    /* Modulation vectors, shaped like `img`, of the first `held` image tokens of this rank, which
     * have timestep 0 (timed.h). If `held` is 0, all image tokens use `img`. */
    xd_tensor first;
    int64_t   held;
    xd_tensor cos, sin; /* [n,head_dim/2] F32 RoPE table of this rank's tokens */
    int64_t   head_dim;
} xd_dual_in;
/* xd_pair_run runs a double block on h [n,D], and xd_solo_run runs a single block. h begins with
 * the leading tokens (XD_LEAD), which are treated like text, followed by the text tokens. */
void xd_pair_run(xd_exec *x, xd_tensor h, const xd_pair *w, const xd_dual_in *in);
void xd_solo_run(xd_exec *x, xd_tensor h, const xd_solo *w, const xd_dual_in *in);

/* Checks the widths of the position axes in the config key `key`. If the config does not contain
 * the key, uses the widths in `usual`, or (16, 56, 56) if `usual` is NULL. The config's list must
 * contain as many widths as `usual`. */
xd_status xd_dual_axes(xd_ints *axes, const char *key, const xd_ints *usual, int64_t head_dim,
                       xd_err *e);
/* Returns the RoPE table of this rank's tokens, [n,head_dim/2] values of fn (cos or sin). The
 * position of an image token is (0, row, column), and the position of a token of reference image i
 * is (i + 1, row, column). Text tokens are at position 0, where RoPE is the identity. `text` is the
 * text of this forward pass if the guidance passes have different numbers of text tokens, else
 * NULL. */
xd_tensor xd_dual_angles(xd_exec *x, const void *text, const xd_ints *axes, double (*fn)(double));

/* Fills the hidden state h, except for leading tokens (XD_LEAD). The layer `text` computes the text
 * tokens; the layer `latents` computes the tokens of reference images and of the image. */
void      xd_dual_embed(xd_exec *x, const xd_input *in, xd_tensor h, const xd_lin *text,
                        const xd_lin *latents);
/* Returns out(norm(h) * (1 + scale) + shift), the prediction for this rank's image tokens, which
 * are the last rows of h. */
xd_tensor xd_dual_head(xd_exec *x, xd_tensor h, xd_tensor scale, xd_tensor shift,
                       const xd_lin *out);

#endif
