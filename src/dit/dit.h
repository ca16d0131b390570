/* dit.h - declares diffusion transformers, which map noisy latents, a timestep and text to a
 * prediction.
 *
 * Latents are passed to a transformer as tokens [N,F]. A token consists of the latents of patch[0]
 * frames, patch[1] rows and patch[2] columns with C channels each, in the order (channel, frame,
 * row, column), so F = C patch[0] patch[1] patch[2]. An image has one frame of latents. */
#ifndef XD_DIT_DIT_H
#define XD_DIT_DIT_H

#include "exec/net.h"

typedef struct xd_input {
    /* [n,F] F32 noisy latents: this rank's tokens of the current PipeFusion patch */
    xd_tensor      lat;
    /* text embeddings of all text tokens, including those of other ranks, for this forward pass */
    const xd_cond *cond;
    /* [n, extra_ch patch[0] patch[1] patch[2]] F32 extra channels, or absent */
    xd_tensor      extra;
    /* [n,E] text tokens of this rank, if xd_dit_info.txt_flows is set; padding tokens are zeros */
    xd_tensor      txt;
    /* [n,F] F32 tokens of reference images, or absent. If the images precede the text
     * (xd_dit_info.prefix_refs), all ranks of the first pipeline stage hold the tokens of all
     * images. */
    xd_tensor      ref;
    /* [n,F] F32 noisy latents of audio: this rank's tokens of the current PipeFusion patch, or
     * absent. An audio token with fewer than F features is filled up with zeros. */
    xd_tensor      audio;
    int            isolated; /* 1: tokens of the image and of audio do not attend to each other */
    /* [layers] 1 for each block in which attention within the image and within the audio returns
     * each token's own values; NULL: no such block */
    const uint8_t *perturbs;
    /* Pixels [frames,S,S,3] F32 in [-1,1], in host memory, of the face video that `read` reads
     * (xd_dit_info.face_size). NULL: all pixels are -1. */
    const float   *face;
    double         t;       /* timestep in the scheduler's units (0..1000) */
    double         audio_t; /* timestep of audio, which may have its own scheduler */
    /* next[i] is the timestep of the i-th step after the next step; next[0] is the timestep of the
     * next step, and 0 in the last step. If `next` is NULL, the pipeline does not pass the next
     * timesteps to the transformer. */
    const double  *next;
    int64_t        held; /* the first `held` image tokens have timestep 0 */
    /* [grid[0]] timesteps of the tokens of each frame; NULL: all tokens after the first `held` ones
     * have the timestep t */
    const float   *frame_t;
    /* [grid[0]] frames of the video for which each latent frame stands; NULL: those of the model's
     * autoencoder, in order */
    const xd_span *frame_spans;
    double         guidance; /* distilled guidance scale, or NaN */
    /* [hints] factors by which outputs of a control stream or side networks (hints) are multiplied;
     * NULL: all are 1 */
    const double  *hint_scales;
    /* [sides] number of the kind of each side network's control image, such as canny or depth;
     * NULL: all are 0 */
    const int     *modes;
    /* Distances between neighbouring tokens: between frames in seconds, between rows and between
     * columns in pixels. */
    double         step[3];
    /* Numbers in pixels that models read as micro-conditions: height and width of the result,
     * height and width of the original image, and the top and left of the crop of the original
     * image that the result shows. If `original` is 0, the model's default is used. */
    double         size[2], original[2], crop[2];
    double         fps; /* frames per second of a video; 0: unknown */
} xd_input;

/* Channels that a side network for inpainting reads after the latents of the control image.
 * XD_FILL_IMAGE: the mask, then the latents of the request's image with a grey masked area.
 * XD_FILL_CONTROL: the mask; the masked area of the control image is black. In the mask, 1 marks
 * pixels that are kept. */
typedef enum xd_side_fill { XD_FILL_NONE, XD_FILL_IMAGE, XD_FILL_CONTROL } xd_side_fill;

/* Maximum number of side networks of a transformer. */
enum { XD_MAXSIDES = 4 };
/* Name of a side network (such as a ControlNet) in model_index.json and in xd_component_file. */
#define XD_SIDE_SLOT "controlnet"
/* Key of the config of a transformer with side networks: the list of the side networks' configs. */
#define XD_SIDES_KEY "controlnets"
/* Format of the prefix of side network i's tensor names among the tensor names of the
 * transformer. */
#define XD_SIDES_PREFIX XD_SIDE_SLOT ".%d."

typedef struct xd_dit_info {
    int          nlayers, heads, head_dim;
    /* number of attention heads of keys and values; 0: as many as query heads */
    int          key_heads;
    int          patch[3]; /* size of a token in latent cells: frames, rows, columns */
    int64_t      dim;      /* width of a hidden state */
    /* Number of hidden states of each token, which pass through the blocks together: 2 if a control
     * stream has its own hidden states; 0 and 1: one state. The tensor h of xd_state holds the
     * first states of all tokens, then the second states. */
    int          states;
    /* Number of factors in xd_input.hint_scales: the number of blocks that add the output of a
     * control stream to the image's hidden state, or the number of side networks. */
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
    /* Number of channels that each side network reads; 0: the number of latent channels. Channels
     * after the latents of the control image are zeros, except those that `side_fill` describes. */
    int64_t      side_ch[XD_MAXSIDES];
    xd_side_fill side_fill[XD_MAXSIDES];
    int64_t      lat_ch;    /* number of latent channels C */
    int64_t      extra_ch;  /* number of extra input channels, which follow the C latent channels */
    int64_t      sample[3]; /* number of latent frames, rows and columns of the training size */
    /* Area in pixels of the videos on which the model was trained, from which the default size of a
     * video from an image follows; 0: the pipeline has its own default. */
    int64_t      area;
    int          fixed;     /* 1: the model has positions only for the training size */
    int64_t      text_dim;  /* width E of the text embedding */
    int64_t      text_rows; /* required number of text tokens; 0: any number */
    /* width of the embeddings of text encoder i, if it differs from text_dim; else 0 */
    int64_t      text_cols[3];
    /* Side S in pixels of the frames of a face video, which `read` reads; 0: the model reads no
     * face video. */
    int64_t      face_size;
    /* Width of an image encoder's embeddings, which follow the text embeddings; 0: the model reads
     * no image embeddings. */
    int64_t      image_dim;
    /* Number of rows of image embeddings for all images together, if the transformer has a position
     * embedding for each row. 0: the transformer has no position embeddings for them, and reads the
     * rows of one image. */
    int64_t      image_rows;
    int64_t      pooled_dim; /* width of the pooled text embedding; 0: not used */
    int          guided;     /* 1: the model reads a distilled guidance scale */
    int          txt_flows;  /* 1: text tokens pass through the blocks (joint attention) */
    /* maximum number of text tokens for which the model has positions; 0: no limit */
    int64_t      text_most;
    int64_t      text_default; /* default number of text tokens; 0: the pipeline's default */
    /* The model pads the text tokens and the image tokens to a multiple of this number; padding
     * tokens of the image form the stream XD_PAD. 0: no padding. */
    int          multiple;
    /* Number of tokens before the text that only side networks read (XD_LEAD). */
    int          lead_rows;
    /* Number of learned tokens that the model inserts after the tokens of the text encoders, in
     * place of the last text tokens (if txt_flows is set). */
    int          registers;
    int          sites; /* number of self-attention layers per block */
    /* 1: image tokens attend to the text, but the text does not attend to image tokens (it is a
     * prefix). xd_dit.read computes the keys and values of the text for all blocks, and blocks call
     * xd_attn_after */
    int          prefix;
    /* Above 0: the prefix also contains reference images. In a prefix with reference images, one
     * row of the text encoder stands for a square of prefix_refs x prefix_refs image tokens, and
     * xd_dit.read replaces these rows (xd_cond.images) by the image's tokens (xd_input.ref). 0: the
     * prefix contains only text. */
    int          prefix_refs;
    /* 1: image tokens attend only to the tokens of their own group (xd_attn_grouped) */
    int          grouped;
    int          linear; /* 1: attention over tokens is linear (xd_attn_linear) */
    /* Reason, as the end of a sentence that begins "the network", why each rank must compute the
     * whole network for all tokens; only guidance passes and images can then be split over ranks.
     * If `whole` is NULL, blocks, tokens and features can be split over ranks. */
    const char  *whole;
    /* Width of a feed-forward layer that contains a convolution over the image tokens
     * (xd_conv_tokens); 0: the model has no such convolution. */
    int64_t      conv_dim;
    /* Number of channels of a convolution over the frames of a video (xd_conv_frames); 0: the model
     * has no such convolution. */
    int64_t      frames_dim;
    /* Maximum numbers of latent frames, rows and columns for which the model has positions; 0: no
     * limit. */
    int64_t      most[3];
    /* 1: tokens of reference images (stream XD_REF) pass through the blocks, after the text and
     * before the image */
    int          refs;
    /* 1: the model supports image tokens with different timesteps (xd_input: held, frame_t). */
    int          holds;
    /* Number of features of an audio token, which is at most the number of features of an image
     * token. Audio tokens (stream XD_AUDIO) pass through the blocks after the image, and the model
     * predicts them like the image. If `audio` is 0, the model generates no audio. */
    int64_t      audio;
    /* number of audio tokens per second, for each channel (left, right) that has its own tokens */
    double       audio_rate;
    int          perturbs; /* 1: the model reads xd_input.perturbs */
    /* 2: each point in time has one token for the left and one for the right channel; all tokens of
     * the left channel come first. 0 and 1: each point in time has one token. */
    int          audio_sides;
    int          begins; /* 1: the model only generates videos whose first frame is given */
    /* 1: the model reads the result's height and width (xd_input.size) as an input */
    int          micro;
    size_t       local_size; /* size in bytes of the model's data in xd_state.local */
    size_t       kept_size;  /* size in bytes of the struct xd_state.kept; 0: no such struct */
    /* number of refiner blocks, which run before the other blocks and which step caches never
     * skip */
    int          lead;
    /* Number of features that the function `probe` returns, if it returns a single row, which is
     * equal on all ranks. 0: `probe` returns a row for each image token. */
    int64_t      probe_dim;
} xd_dit_info;

typedef struct xd_dit xd_dit;

/* Describes the side networks (ControlNets) that a transformer can have. A side network has blocks
 * like the transformer's blocks, and adds their outputs to activations of the transformer. The
 * transformer and its side networks form one network with the blocks of all of them. Parallel
 * methods, memory plans and weight loading therefore treat the blocks of a side network like the
 * transformer's own blocks. The hidden state of a side network is an additional hidden state of
 * each token (xd_dit_info.states). The configs of the side networks are the list XD_SIDES_KEY of
 * the transformer's config, and the tensor names of side network i have the prefix XD_SIDES_PREFIX.
 * Side network i reads the features of control image i, which follow the features of control image
 * i - 1 in xd_input.extra. */
typedef struct xd_side {
    const char *classes[4]; /* values of `_class_name` in the config of a side network */
    /* Computes features [1,h,w,lat_ch] F32 of control image i from its pixels rgb [1,H,W,3], F32 in
     * [-1,1]. Each position of the h x w features represents `cell` x `cell` pixels. If read_pixels
     * is NULL, no side network reads pixels. */
    int         cell;
    void        (*read_pixels)(xd_exec *x, const xd_net *n, int i, xd_tensor rgb, xd_tensor out);
    /* Appends the config of the side network in a published weight file without config.json to b,
     * as a JSON object; `transformer` is the transformer's config. If the function does not
     * recognize the file, it appends nothing. If `describe` is NULL, a weight file needs a
     * config.json in its folder. */
    xd_status   (*describe)(const xd_source *file, const xd_json *transformer, xd_text_buf *b,
                            xd_err *e);
    /* Name of the side networks in layouts of tensor names (families/key_map.h), which ends in
     * "." XD_SIDE_SLOT; NULL: all files have the names of diffusers. */
    const char *net;
} xd_side;

/* Functions and properties of a transformer. The source file of each transformer exports only a
 * struct of this type. */
struct xd_dit {
    xd_net_def     net;
    /* description of the side networks that the transformer can have; NULL: no side networks */
    const xd_side *side;
    /* Name of the weight [D, channels] of the layer that reads the latents, if LoRA files may have
     * more or fewer channels for this layer, else NULL. */
    const char    *input;
    void           (*info)(const void *cfg, xd_dit_info *out);
    /* Returns the index of the earlier block whose output block `layer` also reads (a long skip,
     * s->skip), or -1 if block `layer` reads no long skip. If skip_from is NULL, the model has no
     * long skips. Outputs that later blocks read form a stack: the last output that was pushed is
     * popped first. */
    int            (*skip_from)(const void *cfg, int layer);
    /* `keep` and `read` make tensors that depend only on the text, such as the keys and values of
     * cross-attention. Tensors that depend only on the text are equal in all steps and patches.
     * `keep` allocates the tensors in the arena, for the blocks of this pipeline stage; `read`
     * computes the tensors once per request and guidance pass. If `keep` is NULL, the model has no
     * such tensors, because text tokens pass through the blocks, or because only `cond` reads the
     * text. */
    void           (*keep)(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept);
    void           (*read)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    /* Returns the hidden state, F32 [m,D], of a text prefix (xd_dit_info.prefix) whose tensors are
     * in `kept`. On the first pipeline stage, `read` computes the hidden state; on every stage,
     * `read` runs the stage's blocks on it. Each stage sends the hidden state to the next one. If
     * `prefix` is NULL, `read` of a stage needs nothing from the previous stage. */
    xd_tensor      (*prefix)(const void *kept);
    /* `active` returns the input rows from which the modulations of a step are computed,
     * [active_rows, active_width] in the compute type: one row for each timestep of the step. If
     * active_rows is 0, the step has one row. mod_width returns the number of modulation values of
     * block `layer` (mods.h). If `active` is NULL, the modulations of later steps cannot be
     * computed in advance. */
    xd_tensor      (*active)(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept);
    int            active_rows;
    int64_t        (*active_width)(const void *cfg);
    int64_t        (*mod_width)(const void *cfg, int layer);
    /* The functions `cond` and `embed` run before the blocks in a forward pass, and `head` runs
     * after them. `cond` writes data for one forward pass to s->local, which has local_size zeroed
     * bytes. If `cond` writes equal bytes in every step, a GPU replays recorded kernel launches of
     * the blocks. Arena memory that `cond` allocates is valid until the end of the forward pass. */
    /* `cond` is called on every pipeline stage. */
    void           (*cond)(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);
    /* Called on the first pipeline stage: makes the hidden state s->h. */
    void           (*embed)(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s);
    /* Called on the last pipeline stage: returns the prediction for this rank's image tokens,
     * followed by its audio tokens, [tokens,F] F32. Audio tokens with fewer than F features are
     * filled up with zeros. */
    xd_tensor      (*head)(xd_exec *x, const xd_net *n, xd_state *s);
    /* Called on the first pipeline stage, after `embed`: returns an input of the first block, in
     * F32. TeaCache (Liu et al. 2024, arXiv:2411.19108) measures how much the tensor of `probe`
     * changes from step to step. If `probe` is NULL, TeaCache measures the change of the image
     * tokens' hidden states s->h. */
    xd_tensor      (*probe)(xd_exec *x, const xd_net *n, xd_state *s);
    /* Writes the coefficients, highest power first, of the polynomial that TeaCache publishes for
     * this model. The polynomial maps the change of `probe`'s tensor to the change of the model's
     * output. Returns 0 if no polynomial is published for this config. */
    int            (*change_poly)(const void *cfg, double poly[5]);
};

/* Returns the number of heads of keys and values. Each head of keys and values serves an equal
 * number of neighbouring query heads, which tensor parallelism and Ulysses keep on one rank. */
static inline int xd_dit_key_heads(const xd_dit_info *d)
{
    return d->key_heads ? d->key_heads : d->heads;
}
/* Returns the number of features of a token in all its hidden states together (a row of the tensor
 * h in xd_state). */
static inline int64_t xd_dit_width(const xd_dit_info *d)
{
    return d->dim * (d->states > 1 ? d->states : 1);
}
/* Returns the number of input channels of side network i. */
static inline int64_t xd_dit_side_channels(const xd_dit_info *d, int i)
{
    return d->side_ch[i] ? d->side_ch[i] : d->lat_ch;
}
/* Returns 1 if a side network for inpainting reads the channels that `fill` describes
 * (xd_side_fill). */
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
/* xd_dit_skips returns how many outputs of earlier blocks s->skips holds for later blocks (long
 * skips) before block `layer`; xd_dit_most_skips returns the maximum of this number over the blocks
 * of this pipeline stage. */
int  xd_dit_skips(const xd_dit *d, const void *cfg, int layer);
int  xd_dit_most_skips(const xd_dit *d, const xd_net *n);
/* Runs block `layer`. Runs block `layer`. If the block reads an earlier block's output (a long
 * skip), xd_dit_block first pops this output from the stack s->skips. If a later block reads this
 * block's output, xd_dit_block pushes it to the stack. */
void xd_dit_block(xd_exec *x, const xd_dit *d, const xd_net *n, int layer, xd_state *s);

#endif
