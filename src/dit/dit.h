/* dit.h - declares diffusion transformers, which map noisy latents, a timestep and text to a
 * prediction.
 *
 * Latents are passed to a transformer as tokens [N,F]. A token has the features of one patch, in
 * the order (channel, frame, row, column), so F = C patch[0] patch[1] patch[2]. An image has one
 * frame of latents. */
#ifndef XD_DIT_DIT_H
#define XD_DIT_DIT_H

#include "exec/net.h"

typedef struct xd_input {
    xd_tensor      lat; /* [n,F] F32 noisy latents: this rank's rows of the current patch */
    /* text embeddings of this forward pass, with the rows of all ranks */
    const xd_cond *cond;
    /* [n, extra_ch patch[0] patch[1] patch[2]] F32 extra channels, or absent */
    xd_tensor      extra;
    xd_tensor      txt; /* [n,E] text rows to embed, if txt_flows; padding rows are 0 */
    /* [n,F] F32 tokens of reference images, or absent. With xd_dit_info.prefix_refs, all ranks of
     * the first pipeline stage have the tokens of all images. */
    xd_tensor      ref;
    /* [n,F] F32 noisy latents of audio: this rank's rows of the current patch, or absent. If a
     * token of audio has fewer than F features, the features come first and zeros follow. */
    xd_tensor      audio;
    int            isolated; /* 1: tokens of the image and of audio do not attend to each other */
    /* [layers] 1 for each block in which attention within the image and within the audio returns
     * each token's own values; NULL: no such block */
    const uint8_t *perturbs;
    double         t;       /* timestep in the scheduler's units (0..1000) */
    double         audio_t; /* timestep of audio, which may have its own scheduler */
    /* next[i] is the timestep of the i-th step after the next step; next[0] is the timestep of the
     * next step, and 0 in the last step. next NULL: the pipeline does not pass the next timesteps
     * to the transformer. */
    const double  *next;
    int64_t        held; /* the first `held` image tokens have timestep 0 */
    /* [grid[0]] timesteps of the tokens of each frame; NULL: all tokens after the first `held` ones
     * have the timestep t */
    const float   *frame_t;
    /* [grid[0]] times of the frames in seconds; NULL: multiples of step[0] */
    const double  *frame_s;
    double         guidance; /* distilled guidance scale, or NaN */
    /* [hints] factors of the hints of a control stream; NULL: all factors are 1 */
    const double  *hint_scales;
    /* [sides] kind of each side network's control image, for networks that support several kinds;
     * NULL: 0 for all networks */
    const int     *modes;
    /* Distances between neighbouring tokens: of frames in seconds, of rows and columns in
     * pixels. */
    double         step[3];
    /* Heights and widths in pixels that models read as micro-conditions: of the result, and of the
     * original image, of which the result is a crop with the given top and left. original 0: the
     * model's default. */
    double         size[2], original[2], crop[2];
    double         fps; /* frames per second of a video; 0: unknown */
} xd_input;

/* What a side network for inpainting reads in its channels after the lat_ch latents of the control
 * image. In the mask, 1 marks what is kept. XD_FILL_IMAGE: the mask, then the latents of the
 * request's image, in which the masked part is grey. XD_FILL_CONTROL: the mask; the masked part of
 * the control image is black. */
typedef enum xd_side_fill { XD_FILL_NONE, XD_FILL_IMAGE, XD_FILL_CONTROL } xd_side_fill;

/* Maximum number of side networks of a transformer. */
enum { XD_MAXSIDES = 4 };
/* Name of a side network (ControlNet) in model_index.json and in xd_component_file. */
#define XD_SIDE_SLOT "controlnet"
/* Key of the config of a transformer with side networks: the list of the side networks' configs. */
#define XD_SIDES_KEY "controlnets"
/* Format of the prefix of side network i's tensor names among the tensor names of the
 * transformer. */
#define XD_SIDES_PREFIX XD_SIDE_SLOT ".%d."

typedef struct xd_dit_info {
    int          nlayers, heads, head_dim;
    int          key_heads; /* number of heads of keys and values; 0: the number `heads` */
    int          patch[3];  /* size of a token in latent cells: frames, rows, columns */
    int64_t      dim;       /* width of a hidden state */
    /* Number of hidden states of each token, which pass through the blocks together: 2 if a control
     * stream flows beside the image's state; 0 and 1: one state. xd_state.h has space for all
     * states, one after the other. */
    int          states;
    /* Number of factors in xd_input.hint_scales: the number of blocks that add a control stream's
     * hint to the image's state, or the number of side networks. */
    int          hints;
    /* 1: residuals of control networks may be added to the image's tokens between blocks, because
     * no block reads values that the previous block has computed from these tokens. */
    int          residuals;
    /* Number of side networks (xd_side), each of which reads the latents of one control image. */
    int          sides;
    /* Bit i is 1: the latents of control image i are scaled, but not shifted by the autoencoder's
     * shift. */
    int          unshifted;
    /* Bit i is 1: side network i reads features that xd_side.read_pixels computes from the pixels
     * of control image i, not its latents. */
    int          pixels;
    /* For each side network, the number of kinds of control images (xd_input.modes); 0: the network
     * supports one kind. */
    int          modes[XD_MAXSIDES];
    /* Number of channels that each side network reads; 0: lat_ch. Channels after the latents of the
     * control image are zeros, except those of `side_fill`. */
    int64_t      side_ch[XD_MAXSIDES];
    xd_side_fill side_fill[XD_MAXSIDES];
    int64_t      lat_ch;    /* number of latent channels C */
    int64_t      extra_ch;  /* number of extra input channels, which follow the C latent channels */
    int64_t      sample[3]; /* latent cells of the training size: frames, rows, columns */
    /* Area in pixels of the videos on which the model was trained, which sets the default size of a
     * video from an image; 0: the pipeline has a default. */
    int64_t      area;
    int          fixed;     /* 1: the model has positions only for the training size */
    int64_t      text_dim;  /* width E of the text embedding */
    int64_t      text_rows; /* required number of text rows; 0: any number */
    /* width of the rows of text encoder i, if it differs from text_dim; else 0 */
    int64_t      text_cols[3];
    /* Width of the rows from an image encoder, which follow the text rows; 0: the model reads no
     * such rows. */
    int64_t      image_dim;
    /* Number of rows of the image encoder for all images together, if the transformer has a
     * position embedding for each row. 0: the transformer has no such embeddings, and the rows are
     * those of one image. */
    int64_t      image_rows;
    int64_t      pooled_dim; /* width of the pooled text embedding; 0: not used */
    int          guided;     /* 1: the model reads a distilled guidance scale */
    int          txt_flows;  /* 1: text rows pass through the blocks (joint attention) */
    /* maximum number of text rows for which the model has positions; 0: no limit */
    int64_t      text_most;
    int64_t      text_default; /* default number of text rows; 0: the pipeline's default */
    /* The model pads the number of text rows and the number of image rows to a multiple of this
     * number; padding rows of the image form the stream XD_PAD. 0: no padding. */
    int          multiple;
    /* Number of rows before the text that only side networks read (XD_LEAD). */
    int          lead_rows;
    /* Number of learned rows that the model puts in the place of the last text rows, after the rows
     * of the text encoders (with txt_flows). */
    int          registers;
    int          sites; /* number of self-attention layers per block */
    /* 1: the text is a prefix of the tokens and does not attend to them. `read` computes the keys
     * and values of the text in all blocks, and blocks call xd_attn_after */
    int          prefix;
    /* Reference images are part of the prefix: one row of the text encoder stands for a square of
     * the image with prefix_refs tokens on a side. `read` puts the image's tokens (xd_input.ref) in
     * the places of its rows (xd_cond.images). 0: the prefix has only text. */
    int          prefix_refs;
    int          grouped; /* 1: attention is in groups of image tokens (xd_attn_grouped) */
    int          linear;  /* 1: attention over tokens is linear (xd_attn_linear) */
    /* Reason, as the end of a sentence "the network ...", why each rank computes the whole network
     * for all tokens, so that only guidance passes and images can be split over ranks. whole NULL:
     * blocks, tokens and features can be split. */
    const char  *whole;
    /* Width of a feed-forward whose two halves pass through a convolution over the tokens
     * (xd_conv_tokens); 0: the model has no such convolution. */
    int64_t      conv_dim;
    /* Number of channels of a convolution over the frames of a video (xd_conv_frames); 0: the model
     * has no such convolution. */
    int64_t      frames_dim;
    /* Maximum number of latent cells (frames, rows, columns) for which the model has positions; 0:
     * no limit. */
    int64_t      most[3];
    /* 1: tokens of reference images pass through the blocks, after the text and before the image
     * (XD_REF; see xd_ref_at) */
    int          refs;
    /* 1: the model supports image tokens with different timesteps (xd_input: held, frame_t). */
    int          holds;
    /* Number of features of an audio token, which is at most the number of features of an image
     * token. Audio tokens pass through the blocks after the image (XD_AUDIO), and the model
     * predicts them like the image. audio 0: the model has no audio. */
    int64_t      audio;
    double       audio_rate; /* number of audio tokens per second, for each side */
    int          perturbs;   /* 1: the model reads xd_input.perturbs */
    /* 2: each point in time has a token for left and a token for right; all tokens of the left side
     * come first. 0 and 1: each point in time has one token. */
    int          audio_sides;
    int          begins;     /* 1: the model only generates videos whose first frame is given */
    int          micro;      /* 1: the model reads xd_input.size (resolution, aspect ratio) */
    size_t       local_size; /* size in bytes of the model's data in xd_state.local */
    size_t       kept_size;  /* size in bytes of the struct xd_state.kept; 0: no such struct */
    /* number of refiner blocks, which come first and which step caches never skip */
    int          lead;
    /* Number of features of the row that `probe` returns, if `probe` returns a single row, which is
     * equal on all ranks. 0: `probe` returns the image's rows. */
    int64_t      probe_dim;
} xd_dit_info;

typedef struct xd_dit xd_dit;

/* Describes the side networks (ControlNets) that a transformer can have. A side network has blocks
 * like the transformer's blocks, and adds their outputs to activations of the transformer. The
 * transformer and its side networks form one network, which has the blocks of all of them. Because
 * of this, parallel methods, memory plans and weights treat the blocks of a side network like the
 * transformer's own blocks. The hidden state of a side network is a further state of a token
 * (xd_dit_info.states). The configs of the side networks are the list XD_SIDES_KEY of the
 * transformer's config, and the tensor names of side network i have the prefix XD_SIDES_PREFIX.
 * Side network i reads the features of control image i, which follow the features of control image
 * i - 1 in xd_input.extra. */
typedef struct xd_side {
    const char *classes[4]; /* values of `_class_name` in the config of a side network */
    /* Computes features [1,h,w,lat_ch] F32 of control image i from its pixels rgb [1,H,W,3], F32 in
     * [-1,1]. A cell of the features has `cell` x `cell` pixels. read_pixels NULL: no side network
     * reads pixels. */
    int         cell;
    void        (*read_pixels)(xd_exec *x, const xd_net *n, int i, xd_tensor rgb, xd_tensor out);
    /* Appends the config of the side network in a published weight file without config.json to b,
     * as a JSON object; `transformer` is the transformer's config. Appends nothing for other files.
     * NULL: a weight file needs a config.json beside it. */
    xd_status   (*describe)(const xd_source *file, const xd_json *transformer, xd_text_buf *b,
                            xd_err *e);
} xd_side;

/* Functions of a transformer. The source file of a transformer exports only this struct. */
struct xd_dit {
    xd_net_def     net;
    /* description of the side networks that the transformer can have; NULL: no side networks */
    const xd_side *side;
    /* Name of the weight [D, channels] of the layer that reads the latents, if LoRA files may have
     * more or fewer channels for this layer, else NULL. */
    const char    *input;
    void           (*info)(const void *cfg, xd_dit_info *out);
    /* Returns the index of the earlier block whose output is the long skip (s->skip) that block
     * `layer` reads, or -1 if block `layer` reads no long skip. skip_from NULL: the model has no
     * long skips. Outputs that later blocks read form a stack: the last output that was pushed is
     * popped first. */
    int            (*skip_from)(const void *cfg, int layer);
    /* `keep` and `read` make tensors that depend only on the text, such as the keys and values of
     * cross-attention. The tensors of `keep` and `read` are equal in all steps and patches. `keep`
     * allocates the tensors in the arena, for the blocks of this pipeline stage; `read` computes
     * the tensors once per request and guidance pass. keep NULL: the model has no such tensors,
     * because text rows pass through the blocks, or because only `cond` reads the text. */
    void           (*keep)(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept);
    void           (*read)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    /* Returns the hidden state of a prefix (xd_dit_info.prefix) in `kept`, F32 [m,D]. On the first
     * pipeline stage, `read` computes the prefix; on every stage, `read` runs the stage's blocks on
     * it. The hidden state of the prefix is sent from stage to stage. prefix NULL: `read` of a
     * stage needs nothing from the previous stage. */
    xd_tensor      (*prefix)(const void *kept);
    /* `active` returns the input rows from which the modulations of a step are computed,
     * [active_rows, active_width] in the compute type: one row for each timestep of the step.
     * active_rows 0: one row. mod_width returns the number of modulation values of block
     * `layer` (mods.h). active NULL: the modulations of later steps cannot be computed in
     * advance. */
    xd_tensor      (*active)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    int            active_rows;
    int64_t        (*active_width)(const void *cfg);
    int64_t        (*mod_width)(const void *cfg, int layer);
    /* The functions cond, embed and head are the parts of a forward pass before and after the
     * blocks. `cond` writes data for one forward pass to s->local, which has local_size zeroed
     * bytes. If `cond` writes the same bytes in every step, a GPU replays recorded kernel launches
     * of the blocks. Arena memory that `cond` allocates is valid until the end of the forward
     * pass. */
    /* `cond` is called on every pipeline stage. */
    void           (*cond)(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);
    /* Called on the first pipeline stage: makes the hidden state s->h. */
    void           (*embed)(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);
    /* Called on the last pipeline stage: returns the prediction for this rank's image rows,
     * followed by its audio rows, [rows,F] F32. Audio rows with fewer features than F end in
     * zeros. */
    xd_tensor      (*head)(xd_exec *x, const xd_net *n, xd_state *s);
    /* Called on the first pipeline stage, after `embed`: returns an input of the first block, in
     * F32. TeaCache (Liu et al. 2024, arXiv:2411.19108) measures how much the tensor of `probe`
     * changes from step to step. probe NULL: TeaCache measures the change of the image's rows of
     * s->h. */
    xd_tensor      (*probe)(xd_exec *x, const xd_net *n, xd_state *s);
    /* Writes the coefficients, highest power first, of the polynomial that TeaCache publishes for
     * this model. The polynomial maps the change of `probe`'s tensor to the change of the model's
     * output. Returns 0 if no polynomial is published for this config. */
    int            (*change_poly)(const void *cfg, double poly[5]);
};

/* Returns the number of heads of keys and values. Each head of keys and values belongs to the same
 * number of neighbouring heads of queries, which tensor parallelism and Ulysses keep on one
 * rank. */
static inline int xd_dit_key_heads(const xd_dit_info *d)
{
    return d->key_heads ? d->key_heads : d->heads;
}
/* Returns the number of features of a row of xd_state.h, which includes the features of all hidden
 * states. */
static inline int64_t xd_dit_width(const xd_dit_info *d)
{
    return d->dim * (d->states > 1 ? d->states : 1);
}
/* Returns the number of channels that side network i reads of its control image. */
static inline int64_t xd_dit_side_channels(const xd_dit_info *d, int i)
{
    return d->side_ch[i] ? d->side_ch[i] : d->lat_ch;
}
/* Returns 1 if a side network reads a mask in the way `fill`. */
static inline int xd_dit_fills(const xd_dit_info *d, xd_side_fill fill)
{
    int found = 0;
    for (int i = 0; i < d->sides; i++)
        found |= d->side_fill[i] == fill;
    return found;
}
/* Returns hidden state i of the tokens, [rows of s->h, dim]: a view of s->h. */
static inline xd_tensor xd_dit_state(const xd_state *s, int64_t dim, int i)
{
    int64_t n = s->h.d[0];
    return xd_view((float *)s->h.p + i * n * dim, XD_F32, 2, (int64_t[]){ n, dim });
}
/* xd_dit_skips returns how many block outputs for long skips are in s->skips before block `layer`;
 * xd_dit_most_skips returns the maximum of this number over the blocks of this pipeline stage. */
int  xd_dit_skips(const xd_dit *d, const void *cfg, int layer);
int  xd_dit_most_skips(const xd_dit *d, const xd_net *n);
/* Runs block `layer`. If the block reads a long skip, xd_dit_block first pops the skip from the
 * stack s->skips. If a later block reads the output as a long skip, xd_dit_block pushes the output
 * to the stack. */
void xd_dit_block(xd_exec *x, const xd_dit *d, const xd_net *n, int layer, xd_state *s);

#endif
