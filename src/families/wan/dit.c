/* dit.c - runs the transformer of Wan 2.1 and 2.2 (Wan Team 2025, arXiv:2503.20314) like diffusers'
 * WanTransformer3DModel, that of VACE (Jiang et al. 2025, arXiv:2503.07598) like diffusers'
 * WanVACETransformer3DModel, that of Animate (Cheng et al. 2025, arXiv:2509.14055) like diffusers'
 * WanAnimateTransformer3DModel, and that of SkyReels-V2 (Chen et al. 2025, arXiv:2504.13074) like
 * diffusers' SkyReelsV2Transformer3DModel.
 *
 * Video tokens attend to each other and, by cross-attention, to the text and to an image that is
 * given as the first frame; the image's rows follow the text's rows. The timestep enters as one
 * modulation [6,D] for all blocks, to which each block adds its own table. Queries and keys are
 * RMS-normed over all heads together, so with tensor parallelism, which splits the heads over
 * ranks, the ranks exchange sums of squares.
 *
 * VACE has a second hidden state, the control stream, and blocks of the same kind that change it. A
 * control block's output, its hint, is added to the video's hidden state after the main block that
 * vace_layers names. Diffusers computes all hints before the main blocks. The control stream never
 * reads the video's hidden state after the embedding, so here each control block runs directly
 * after its main block, and both states pass through the pipeline stages together.
 *
 * Animate adds the patches of a pose video to those of all latent frames but the first, which is a
 * still image. After some main blocks a face adapter runs, a block with a cross-attention to the
 * rows of a face video (face.h): the tokens of a latent frame attend to the rows of this frame.
 * These rows depend on no timestep, so their keys and values are computed once, with the text's.
 *
 * A SkyReels-V2 model with inject_sample_info adds an embedding of the frame rate to the modulation
 * of all blocks. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/layers.h"
#include "dit/timed.h"
#include "exec/wide.h"
#include "families/wan/face.h"

static const double theta = 10000;
static const float  look_eps = 1e-5f; /* epsilon of the norms of image embeddings */

typedef struct cfg {
    xd_ints     patch; /* latent cells per token: frames, rows, columns */
    int64_t     head_dim, in_ch, out_ch, text, waves, ff, image, added, places, most;
    int         heads, nlayers, cross_norm;
    float       eps;
    char        qk_norm[XD_FIELD_TEXT];
    /* The main blocks, ascending, that are followed by a control block (VACE) or a face adapter
     * (Animate); no blocks in other models. */
    xd_ints     followed;
    int64_t     control; /* VACE: channels of the control latents */
    int         rated;   /* SkyReels-V2: 1: the modulation depends on the frame rate */
    int64_t     causal;  /* SkyReels-V2: latent frames of a block of causal attention; 1: none */
    int64_t     latent;  /* Animate: channels of the latents of the pose video */
    int64_t     dim;     /* D = heads * head_dim */
    xd_ints     axes;    /* number of head features rotated by frame, row, column */
    xd_face_cfg face;    /* Animate: networks that read the face video */
} cfg;

#define AT(m) offsetof(cfg, m)
/* The fields of all models; the arguments are defaults. */
#define FIELDS(nheads, input, channels, ffn, depth)                       \
    { "patch_size", AT(patch), 'L', 0, NULL },                            \
    { "num_attention_heads", AT(heads), 'i', nheads, NULL },              \
    { "attention_head_dim", AT(head_dim), 'l', 128, NULL },               \
    { "in_channels", AT(in_ch), 'l', input, NULL },                       \
    { "out_channels", AT(out_ch), 'l', channels, NULL },                  \
    { "text_dim", AT(text), 'l', 4096, NULL },                            \
    { "freq_dim", AT(waves), 'l', 256, NULL },                            \
    { "ffn_dim", AT(ff), 'l', ffn, NULL },                                \
    { "num_layers", AT(nlayers), 'i', depth, NULL },                      \
    { "cross_attn_norm", AT(cross_norm), 'b', 1, NULL },                  \
    { "qk_norm", AT(qk_norm), 's', 0, "rms_norm_across_heads" },          \
    { "eps", AT(eps), 'f', 1e-6, NULL },                                  \
    { "image_dim", AT(image), 'l', 0, NULL },                             \
    { "added_kv_proj_dim", AT(added), 'l', 0, NULL },                     \
    { "rope_max_seq_len", AT(most), 'l', 1024, NULL },                    \
    { "pos_embed_seq_len", AT(places), 'l', 0, NULL },                    \
    { "window_size", 0, '-', 0, NULL },                                   \
    { "add_img_emb", 0, '-', 0, NULL }

static const xd_field fields[] = {
    FIELDS(40, 16, 0, 13824, 40),
    { NULL, 0, 0, 0, NULL },
};

static const xd_field vace_fields[] = {
    FIELDS(40, 16, 0, 13824, 40),
    { "vace_layers", AT(followed), 'L', 0, NULL },
    { "vace_in_channels", AT(control), 'l', 96, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_field animate_fields[] = {
    FIELDS(40, 36, 16, 13824, 40),
    { "latent_channels", AT(latent), 'l', 16, NULL },
    { "motion_encoder_size", AT(face.size), 'l', 512, NULL },
    { "motion_style_dim", AT(face.style), 'l', 512, NULL },
    { "motion_dim", AT(face.motions), 'l', 20, NULL },
    { "motion_encoder_dim", AT(face.vector), 'l', 512, NULL },
    { "face_encoder_hidden_dim", AT(face.hidden), 'l', 1024, NULL },
    { "face_encoder_num_heads", AT(face.heads), 'l', 4, NULL },
    { "inject_face_latents_blocks", AT(face.every), 'i', 5, NULL },
    { "motion_encoder_channel_sizes", 0, '-', 0, NULL }, /* read by xd_face_config */
    { "motion_encoder_batch_size", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_field skyreels_fields[] = {
    FIELDS(16, 16, 16, 8192, 32),
    { "inject_sample_info", AT(rated), 'b', 0, NULL },
    { "num_frame_per_block", AT(causal), 'l', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct blk {
    xd_tensor mod; /* [1,6,D]: table added to the modulation */
    xd_lin    qkv, out, q, kv, cross, up, down;
    xd_tensor q_gain, k_gain, cross_q, cross_k; /* [D]: gains of the norms over all heads */
    xd_tensor gain, bias;                       /* [D]: norm before cross-attention, or absent */
    xd_lin    image_kv;                         /* key and value layer for the image's rows */
    xd_tensor image_k;
} blk;

typedef struct control_blk {
    blk    b;
    xd_lin hint; /* layer from the control stream to the hint */
} control_blk;

typedef struct face_blk { /* a face adapter */
    xd_lin    q, kv, out;
    xd_tensor q_gain, k_gain; /* [head_dim]: gains of the norms of each head */
} face_blk;

typedef struct look {           /* projects the rows of an image embedding to width D */
    xd_tensor places;           /* [1,n,image_dim]: position embedding, or absent */
    xd_tensor gain[2], bias[2]; /* norms before `up` and after `down` */
    xd_lin    up, down;
} look;

typedef struct glob {
    xd_lin          patch; /* [D, C pt p p]: patch embedding */
    /* VACE: patch embedding of the control latents, and the first layer of the control stream */
    xd_lin          control_patch, control_in;
    xd_lin          pose; /* Animate: patch embedding of the pose latents */
    xd_mlp          time, text;
    look            image;
    xd_lin          mod, out; /* modulation [6D, D]; output layer [pt p p Cout, D] */
    xd_tensor       last;     /* [1,2,D]: modulation of the last norm */
    xd_tensor       rates; /* [2,D]: embeddings of 16 and of other frames per second, or absent */
    xd_mlp          rate;  /* layers from a row of `rates` to a term [6D] of the modulation */
    xd_wide         wide;  /* norms of q and k */
    xd_face_weights face;
} glob;

typedef struct local {
    xd_timed  timed;
    xd_tensor emb; /* [times,D] F32: timestep embeddings */
    /* [6 times,D] F32: for each timestep, shift, scale and gate of attention and MLP */
    xd_tensor mod;
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's video tokens */
    xd_tensor scales;   /* [hints,D] F32: the factor of each hint, or absent */
} local;

typedef struct kept {
    /* [blocks of this stage, m, 2 x this rank's part of D]: keys and values of the text */
    xd_tensor kv;
    xd_tensor image; /* keys and values of the image's rows, or absent */
    /* [face adapters of this stage, rows, 2 x this rank's part of D]: keys and values of the face
     * video, or absent */
    xd_tensor face;
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_patch(cfg *c, xd_err *e)
{
    if (c->patch.n == 0)
        c->patch = (xd_ints){ 3, { 1, 2, 2 } };
    if (c->patch.n != 3)
        return xd_fail(e, XD_EFORMAT, "transformer: patch_size has %d numbers, not 3", c->patch.n);
    for (int i = 0; i < 3; i++)
        if (c->patch.v[i] < 1 || c->patch.v[i] > 64)
            return xd_fail(e, XD_EFORMAT, "transformer: patch_size has %lld; it must be 1 to 64",
                           (long long)c->patch.v[i]);
    return XD_OK;
}

/* Checks the settings for image embeddings. The rows of image embeddings are part of the text
 * tensor, in its first image_dim columns. */
static xd_status check_image(const cfg *c, xd_err *e)
{
    if (c->image < 0 || c->image > c->text)
        return xd_fail(e, XD_EFORMAT, "transformer: image_dim %lld is not 0 to text_dim %lld",
                       (long long)c->image, (long long)c->text);
    if (c->places < 0 || c->places > 1 << 20)
        return xd_fail(e, XD_EFORMAT, "transformer: pos_embed_seq_len %lld is not 0 to %d",
                       (long long)c->places, 1 << 20);
    if (!c->image == !c->added && (!c->added || c->added == c->dim))
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "transformer: image_dim %lld and added_kv_proj_dim %lld: both "
                   "are absent, or the second is the width %lld",
                   (long long)c->image, (long long)c->added, (long long)c->dim);
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    c->dim = c->heads * c->head_dim;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "out_channels", c->out_ch, 1, 65536 },
        { "in_channels", c->in_ch, c->out_ch, 65536 },
        { "text_dim", c->text, 1, 1 << 24 },
        { "freq_dim", c->waves, 2, 1 << 16 },
        { "ffn_dim", c->ff, 1, 1 << 24 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "rope_max_seq_len", c->most, 1, 1 << 20 },
    };
    if (check_patch(c, e) != XD_OK || xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    if (strcmp(c->qk_norm, "rms_norm_across_heads") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: qk_norm '%s' is not "
                       "'rms_norm_across_heads'",
                       c->qk_norm);
    if (check_image(c, e) != XD_OK)
        return XD_EFORMAT;
    if (c->head_dim % 2)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: attention_head_dim %lld is odd, and rope "
                       "rotates pairs",
                       (long long)c->head_dim);
    int64_t side = 2 * (c->head_dim / 6);
    c->axes = (xd_ints){ 3, { c->head_dim - 2 * side, side, side } };
    return XD_OK;
}

/* Checks the settings of VACE. */
static xd_status check_vace(void *c_, xd_err *e)
{
    cfg      *c = c_;
    xd_status s = check_config(c, e);
    if (s != XD_OK)
        return s;
    if (!c->followed.n)
        c->followed = (xd_ints){ 8, { 0, 5, 10, 15, 20, 25, 30, 35 } };
    const xd_config_range r[] = { { "vace_in_channels", c->control, 1, 65536 } };
    if (xd_check_ranges(r, 1, e) != XD_OK)
        return XD_EFORMAT;
    for (int i = 0; i < c->followed.n; i++)
        if (c->followed.v[i] >= c->nlayers ||
            (i ? c->followed.v[i] <= c->followed.v[i - 1] : c->followed.v[0] != 0))
            return xd_fail(e, XD_EFORMAT,
                           "transformer: vace_layers has %lld as number %d; the numbers must "
                           "ascend from 0 and be below num_layers, %d",
                           (long long)c->followed.v[i], i + 1, c->nlayers);
    if (c->in_ch != c->out_ch)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: in_channels %lld and out_channels %lld differ, but a model "
                       "with vace_layers reads no further channels",
                       (long long)c->in_ch, (long long)c->out_ch);
    if (c->image)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: image_dim %lld is not supported in a model with vace_layers",
                       (long long)c->image);
    return XD_OK;
}

static xd_status read_animate(void *c, const xd_json *obj, const char *what, xd_err *e)
{
    (void)what;
    return xd_face_config(&((cfg *)c)->face, obj, e);
}

/* Checks the settings of Animate. */
static xd_status check_animate(void *c_, xd_err *e)
{
    cfg      *c = c_;
    xd_status s = check_config(c, e);
    if (s == XD_OK)
        s = xd_face_check(&c->face, c->nlayers, e);
    if (s != XD_OK)
        return s;
    if (c->latent < 1 || c->out_ch != c->latent || c->in_ch != 2 * c->latent + 4)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: in_channels %lld, latent_channels %lld and out_channels %lld: "
                       "the first must be twice the second and 4 more, and the last two equal",
                       (long long)c->in_ch, (long long)c->latent, (long long)c->out_ch);
    if (c->patch.v[0] != 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: patch_size has %lld latent frames; a face video needs 1",
                       (long long)c->patch.v[0]);
    for (int i = 0; i < c->nlayers; i += c->face.every)
        c->followed.v[c->followed.n++] = i;
    return XD_OK;
}

/* Checks the settings of SkyReels-V2. */
static xd_status check_skyreels(void *c_, xd_err *e)
{
    cfg      *c = c_;
    xd_status s = check_config(c, e);
    if (s != XD_OK || c->causal == 1)
        return s;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "transformer: num_frame_per_block %lld is not supported: only models whose "
                   "attention is not causal (num_frame_per_block 1) are",
                   (long long)c->causal);
}

/* Describes the model. The default size is that of WanPipeline, 81 frames of 480 x 832 pixels: 21
 * latent frames. A latent cell has 8 x 8 pixels, or 16 x 16 if the autoencoder has more than 16
 * channels. */
static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    int64_t    cell = c->out_ch > 16 ? 16 : 8;
    *out = (xd_dit_info){
        .nlayers = c->nlayers + c->followed.n,
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .dim = c->dim,
        .lat_ch = c->out_ch,
        .extra_ch = c->control ? c->control : c->in_ch - c->out_ch + c->latent,
        .states = c->control ? 2 : 1,
        .hints = c->control ? c->followed.n : 0,
        .face_size = c->face.size,
        .sample = { 21, 480 / cell, 832 / cell },
        .text_dim = c->text,
        .holds = 1,
        .image_dim = c->image,
        .image_rows = c->image ? c->places : 0,
        .sites = 1,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
        .probe_dim = c->dim,
    };
    for (int i = 0; i < 3; i++) {
        out->patch[i] = (int)c->patch.v[i];
        out->most[i] = c->most * c->patch.v[i];
    }
}

/* Describes a SkyReels-V2 model. The default size is that of SkyReelsV2Pipeline, 97 frames of 544 x
 * 960 pixels. */
static void info_skyreels(const void *c, xd_dit_info *out)
{
    static const int64_t sample[] = { 25, 68, 120 };
    info(c, out);
    memcpy(out->sample, sample, sizeof sample);
}

/* Describes an Animate model. The default size is that of WanAnimatePipeline, segments of 77 frames
 * of 720 x 1280 pixels. */
static void info_animate(const void *c, xd_dit_info *out)
{
    static const int64_t sample[] = { 20, 90, 160 };
    info(c, out);
    memcpy(out->sample, sample, sizeof sample);
}

static int nlayers(const void *c_)
{
    const cfg *c = c_;
    return c->nlayers + c->followed.n;
}

/* Returns the index of block `layer` among the control blocks or face adapters, or -1 for a main
 * block. Block i of these follows main block followed.v[i]. */
static int follower_of(const cfg *c, int layer)
{
    for (int i = 0; i < c->followed.n; i++)
        if (c->followed.v[i] + i + 1 == layer)
            return i;
    return -1;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void self_weights(xd_decl *d, const cfg *c, blk *w)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    int64_t                  D = c->dim, hd = c->head_dim;
    xd_w_enter(d, "attn1");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_vec(d, &w->q_gain, "norm_q.weight", 1, &D);
    xd_w_vec(d, &w->k_gain, "norm_k.weight", 1, &D);
    xd_w_leave(d);
}

static void cross_weights(xd_decl *d, const cfg *c, blk *w)
{
    static const char *const kv[] = { "to_k", "to_v" };
    static const char *const added[] = { "add_k_proj", "add_v_proj" };
    int64_t                  D = c->dim, hd = c->head_dim;
    xd_w_enter(d, "attn2");
    xd_w_linear(d, &w->q, "to_q",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_COL, .unit = hd, .bias = 1 });
    xd_w_fused(d, &w->kv,
               &(xd_fused_spec){ .n = 2,
                                 .names = kv,
                                 .in = D,
                                 .out = { D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->cross, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_vec(d, &w->cross_q, "norm_q.weight", 1, &D);
    xd_w_vec(d, &w->cross_k, "norm_k.weight", 1, &D);
    if (c->image) {
        xd_w_fused(d, &w->image_kv,
                   &(xd_fused_spec){ .n = 2,
                                     .names = added,
                                     .in = D,
                                     .out = { D, D },
                                     .split = XD_COL,
                                     .unit = hd,
                                     .bias = 1 });
        xd_w_vec(d, &w->image_k, "norm_added_k.weight", 1, &D);
    }
    xd_w_leave(d);
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    blk       *w = w_;
    (void)layer;
    xd_w_vec(d, &w->mod, "scale_shift_table", 3, (int64_t[]){ 1, 6, c->dim });
    self_weights(d, c, w);
    cross_weights(d, c, w);
    if (c->cross_norm)
        xd_w_affine(d, "norm2", &w->gain, &w->bias, c->dim);
    xd_w_linear(d, &w->up, "ffn.net.0.proj",
                &(xd_linear_spec){ .in = c->dim, .out = c->ff, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "ffn.net.2",
                &(xd_linear_spec){ .in = c->ff, .out = c->dim, .split = XD_ROW, .bias = 1 });
}

static void control_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg   *c = c_;
    control_blk *w = w_;
    blk_weights(d, c, layer, &w->b);
    xd_w_linear(d, &w->hint, "proj_out",
                &(xd_linear_spec){ .in = c->dim, .out = c->dim, .bias = 1 });
}

static void face_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const kv[] = { "to_k", "to_v" };
    const cfg               *c = c_;
    face_blk                *w = w_;
    int64_t                  D = c->dim, hd = c->head_dim;
    (void)layer;
    xd_w_linear(d, &w->q, "to_q",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_COL, .unit = hd, .bias = 1 });
    xd_w_fused(d, &w->kv,
               &(xd_fused_spec){ .n = 2,
                                 .names = kv,
                                 .in = D,
                                 .out = { D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->out, "to_out",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_vec(d, &w->q_gain, "norm_q.weight", 1, &hd);
    xd_w_vec(d, &w->k_gain, "norm_k.weight", 1, &hd);
}

static void look_weights(xd_decl *d, const cfg *c, look *w)
{
    int64_t I = c->image;
    xd_w_enter(d, "image_embedder");
    if (c->places)
        xd_w_vec(d, &w->places, "pos_embed", 3, (int64_t[]){ 1, c->places, I });
    xd_w_affine(d, "norm1", &w->gain[0], &w->bias[0], I);
    xd_w_linear(d, &w->up, "ff.net.0.proj", &(xd_linear_spec){ .in = I, .out = I, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2", &(xd_linear_spec){ .in = I, .out = c->dim, .bias = 1 });
    xd_w_affine(d, "norm2", &w->gain[1], &w->bias[1], c->dim);
    xd_w_leave(d);
}

static void rate_weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t D = c->dim;
    xd_w_vec(d, &g->rates, "fps_embedding.weight", 2, (int64_t[]){ 2, D });
    xd_w_enter(d, "fps_projection.net");
    xd_w_linear(d, &g->rate.a, "0.proj", &(xd_linear_spec){ .in = D, .out = D, .bias = 1 });
    xd_w_linear(d, &g->rate.b, "2", &(xd_linear_spec){ .in = D, .out = 6 * D, .bias = 1 });
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg     *c = c_;
    glob          *g = g_;
    int64_t        D = c->dim, hd = c->head_dim;
    const int64_t *p = c->patch.v;
    if (c->rated)
        rate_weights(d, c, g);
    xd_w_linear_as(d, &g->patch, "patch_embedding", 5, (int64_t[]){ D, c->in_ch, p[0], p[1], p[2] },
                   1);
    if (c->face.size) {
        xd_w_linear_as(d, &g->pose, "pose_patch_embedding", 5,
                       (int64_t[]){ D, c->latent, p[0], p[1], p[2] }, 1);
        xd_face_declare(d, &c->face, D, &g->face);
    }
    if (c->control) {
        xd_w_linear_as(d, &g->control_patch, "vace_patch_embedding", 5,
                       (int64_t[]){ D, c->control, p[0], p[1], p[2] }, 1);
        xd_w_enter(d, "vace_blocks.0");
        xd_w_linear(d, &g->control_in, "proj_in",
                    &(xd_linear_spec){ .in = D, .out = D, .bias = 1 });
        xd_w_leave(d);
    }
    xd_w_enter(d, "condition_embedder");
    xd_mlp_weights(d, "time_embedder", &g->time, c->waves, D, D);
    xd_w_linear(d, &g->mod, "time_proj",
                &(xd_linear_spec){ .in = D, .out = 6 * D, .bias = 1, .few = 1 });
    xd_mlp_weights(d, "text_embedder", &g->text, c->text, D, D);
    if (c->image)
        look_weights(d, c, &g->image);
    xd_w_leave(d);
    xd_w_vec(d, &g->last, "scale_shift_table", 3, (int64_t[]){ 1, 2, D });
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = p[0] * p[1] * p[2] * c->out_ch, .bias = 1 });
    g->wide = xd_wide_of(d, c->heads, hd, c->eps);
}

/* ---- conditioning ------------------------------------------------------------------------- */

static void fill_angles(void *ctx, float *buf)
{
    const cfg *c = ((const xd_rope *)ctx)->cfg;
    xd_rope_video(ctx, buf, theta, &c->axes);
}

typedef struct scaling {
    const double *scales;
    int64_t       n, dim;
} scaling;

static void fill_scales(void *ctx, float *buf)
{
    const scaling *t = ctx;
    for (int64_t i = 0; i < t->n * t->dim; i++)
        buf[i] = t->scales ? (float)t->scales[i / t->dim] : 1;
}

/* Adds a term that depends on the frame rate, fps_projection(fps_embedding), to the modulation mod
 * [times,6D]. Diffusers' pipelines distinguish 16 frames per second from all other rates. */
static void add_rate(xd_exec *x, const glob *g, xd_tensor mod, double fps)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor row = xd_rows(g->rates, fps == 16 ? 0 : 1, 1);
    xd_tensor term = xd_mlp_run(x, row, &g->rate, XD_SILU);
    for (int64_t t = 0; t < mod.d[0]; t++)
        xd_add(x, xd_rows(mod, t, 1), term);
    xd_arena_rewind(x->tmp, mark);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    double      t[XD_TIMES];
    l->timed = xd_timed_of(x, in, t);
    l->emb = xd_mlp_run(x, xd_time_embed(x, t, l->timed.times, c->waves, 1, 0), &g->time, XD_SILU);
    xd_tensor mod = xd_linear_f32(x, xd_gated(x, l->emb, (xd_tensor){ 0 }, XD_SILU), &g->mod);
    if (c->rated)
        add_rate(x, g, mod, in->fps);
    l->mod = xd_reshape(mod, 2, (int64_t[]){ 6 * l->timed.times, c->dim });
    l->cos = xd_rope_table(x, xd_n(x, XD_IMG), c->head_dim / 2, fill_angles, c, cos);
    l->sin = xd_rope_table(x, xd_n(x, XD_IMG), c->head_dim / 2, fill_angles, c, sin);
    if (c->control) {
        scaling of = { in->hint_scales, c->followed.n, c->dim };
        l->scales = xd_new_f32(x, of.n, of.dim);
        xd_fill(x, l->scales, fill_scales, &of);
    }
}

/* Returns how many image rows, which the second encoder computes, follow the text rows. */
static int64_t image_rows(const cfg *c, const xd_cond *text)
{
    return c->image ? text->real[1] : 0;
}

/* Returns 1 if block `layer` is a face adapter. */
static int is_adapter(const cfg *c, int layer)
{
    return c->face.size && follower_of(c, layer) >= 0;
}

/* Returns how many of the blocks [n->first, layer) are face adapters, or how many are not. */
static int count_blocks(const xd_net *n, int layer, int adapters)
{
    int count = 0;
    for (int i = n->first; i < layer; i++)
        count += is_adapter(n->cfg, i) == adapters;
    return count;
}

/* Returns the weights of this stage's first block that is a face adapter, or that is not; NULL:
 * there is none. */
static const void *first_block(const xd_net *n, int adapters)
{
    int i = n->first;
    while (i < n->last && is_adapter(n->cfg, i) != adapters)
        i++;
    return i < n->last ? n->layer[i] : NULL;
}

static xd_tensor new_kv(xd_exec *x, const xd_net *n, int adapters, int64_t rows, int64_t width)
{
    return xd_new_as(x, x->act, 3, (int64_t[]){ count_blocks(n, n->last, adapters), rows, width });
}

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    kept           *k = kept_;
    const cfg      *c = n->cfg;
    const blk      *w = first_block(n, 0);
    const face_blk *f = first_block(n, 1);
    int64_t         image = image_rows(c, text);
    k->kv = new_kv(x, n, 0, text->tok.d[0] - image, w ? w->kv.w.out : 0);
    if (image)
        k->image = new_kv(x, n, 0, image, w ? w->image_kv.w.out : 0);
    if (c->face.size)
        k->face = new_kv(x, n, 1, x->lay->grid[0] * xd_face_rows(&c->face), f ? f->kv.w.out : 0);
}

/* Projects the rows of an image embedding [m,image_dim] to [m,D], the width that the text rows have
 * after projection. */
static xd_tensor see_image(xd_exec *x, const xd_net *n, xd_tensor in)
{
    const look *w = &((const glob *)n->glob)->image;
    xd_tensor   t = xd_new_f32(x, in.d[0], in.d[1]);
    xd_copy_to(x, t, in);
    if (w->places.p && xd_check(x, t.d[0] == w->places.d[1],
                                "%lld rows of an image, and there are "
                                "%lld places",
                                (long long)t.d[0], (long long)w->places.d[1]))
        xd_add(x, t, xd_reshape(w->places, 2, w->places.d + 1));
    t = xd_layer_norm(x, t, w->gain[0], w->bias[0], look_eps);
    t = xd_linear_f32(x, xd_linear_act(x, t, &w->up, XD_GELU_ERF), &w->down);
    return xd_layer_norm(x, t, w->gain[1], w->bias[1], look_eps);
}

/* Computes `kv`, the keys and values of the rows of the text or of the image; all video tokens
 * attend to these rows. */
static void fill_kv(xd_exec *x, const xd_net *n, xd_tensor kv, xd_tensor rows, const xd_lin *w,
                    xd_tensor gain)
{
    const xd_wide *g = &((const glob *)n->glob)->wide;
    size_t         mark = xd_arena_mark(x->tmp);
    xd_tensor      keys = xd_seg(kv, w, 0);
    xd_linear_into(x, kv, rows, w);
    xd_wide_norm(x, g, keys, keys,
                 &(xd_wide_how){ .gain = gain,
                                 .factor = xd_wide_factor(xd_wide_factors(x, g, &keys, 1), 0) });
    xd_arena_rewind(x->tmp, mark);
}

/* Computes `kv`, the keys and values of the rows [m,D] of the face video. */
static void fill_face(xd_exec *x, const xd_net *n, xd_tensor kv, xd_tensor rows, const face_blk *w)
{
    const cfg *c = n->cfg;
    size_t     mark = xd_arena_mark(x->tmp);
    xd_tensor  none = { 0 };
    xd_linear_into(x, kv, xd_norm_mod(x, rows, none, none, c->eps), &w->kv);
    xd_tensor keys = xd_heads(xd_seg(kv, &w->kv, 0), c->head_dim);
    xd_qk_norm_into(x, &(xd_qknorm){ .out = keys, .in = keys, .gain = w->k_gain, .eps = c->eps });
    xd_arena_rewind(x->tmp, mark);
}

static void read_text(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const kept *k = kept_;
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    size_t      mark = xd_arena_mark(x->tmp);
    int64_t     image = image_rows(c, in->cond);
    xd_tensor   tok = in->cond->tok, seen = { 0 }, face = { 0 };
    int64_t     rows = tok.d[0] - image;
    xd_tensor   t = xd_mlp_run(x, xd_rows(tok, 0, rows), &g->text, XD_GELU_TANH);
    t = xd_as(x, t, x->act);
    if (image)
        seen = see_image(x, n, xd_cols(xd_rows(tok, rows, image), 0, c->image));
    if (k->face.nd && k->face.d[0])
        face = xd_face_read(x, &c->face, &g->face, c->dim, in->face, x->lay->grid[0]);
    for (int i = n->first; i < n->last; i++) {
        const void *layer = xd_net_layer(x, n, i);
        const blk  *w = layer;
        int         at = count_blocks(n, i, is_adapter(c, i));
        if (is_adapter(c, i)) {
            fill_face(x, n, xd_text_kv(k->face, at), face, layer);
            continue;
        }
        fill_kv(x, n, xd_text_kv(k->kv, at), t, &w->kv, w->cross_k);
        if (image)
            fill_kv(x, n, xd_text_kv(k->image, at), seen, &w->image_kv, w->image_k);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* Returns the number of this rank's video tokens, from row `row` on, that are next to each other in
 * one latent frame, and sets *frame to this latent frame. */
static int64_t frame_run(const xd_exec *x, int64_t row, int64_t *frame)
{
    int64_t at = xd_where(x, XD_IMG, row), one = x->lay->grid[1] * x->lay->grid[2],
            left = one - at % one, run = xd_where_run(x, XD_IMG, row);
    *frame = at / one;
    return left < run ? left : run;
}

/* Adds the patches of the pose video, the last channels of in->extra, to the tokens h of all latent
 * frames but the first. */
static void add_pose(xd_exec *x, const xd_net *n, xd_tensor extra, xd_tensor h)
{
    const glob *g = n->glob;
    int64_t     frame, run, F = g->pose.w.in;
    xd_tensor   pose = xd_new_f32(x, h.d[0], F);
    xd_copy_to(x, pose, xd_cols(extra, extra.d[1] - F, F));
    pose = xd_linear_f32(x, pose, &g->pose);
    for (int64_t row = 0; row < h.d[0]; row += run) {
        run = frame_run(x, row, &frame);
        if (frame)
            xd_add(x, xd_rows(h, row, run), xd_rows(pose, row, run));
    }
}

/* Returns one of the hidden states: 0 is the video's, 1 the control stream. Each is contiguous. */
static xd_tensor hidden(const cfg *c, const xd_state *s, int i)
{
    int64_t n = s->h.d[0];
    return c->control
               ? xd_view((float *)s->h.p + i * n * c->dim, XD_F32, 2, (int64_t[]){ n, c->dim })
               : s->h;
}

/* Computes the hidden states: h = patch(latents) and, in VACE, control = layer(patch(control
 * latents)) + h. */
static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    int64_t     rows = xd_n(x, XD_IMG);
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   h = hidden(c, s, 0), control = hidden(c, s, 1);
    if (!xd_check(x, in->lat.d[0] == rows && s->h.d[0] == rows,
                  "%lld video tokens do not match %lld rows of state and %lld of latents",
                  (long long)rows, (long long)s->h.d[0], (long long)in->lat.d[0]))
        return;
    xd_input read = *in;
    if (c->face.size && in->extra.nd)
        read.extra = xd_cols(in->extra, 0, in->extra.d[1] - g->pose.w.in);
    xd_linear_into(x, h, c->control ? in->lat : xd_join_channels(x, &read), &g->patch);
    if (c->face.size && in->extra.nd)
        add_pose(x, n, in->extra, h);
    if (c->control) {
        xd_linear_into(x, control, xd_linear(x, in->extra, &g->control_patch), &g->control_in);
        xd_add(x, control, h);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- step caches -------------------------------------------------------------------------- */

/* Returns the embedding of the timestep, the tensor whose change TeaCache4Wan2.1 measures (without
 * use_ret_steps). */
static xd_tensor probe(xd_exec *x, const xd_net *n, xd_state *s)
{
    const local *l = s->local;
    (void)x, (void)n;
    return xd_rows(l->emb, 0, 1);
}

/* Writes the polynomial that TeaCache4Wan2.1 publishes for this model. Polynomials are published
 * for Wan 1.3B, for 14B, and for 14B image to video at 480p. */
static int change_poly(const void *c_, double poly[5])
{
    static const double of[3][5] = {
        { 2.39676752e+03, -1.31110545e+03, 2.01331979e+02, -8.29855975e+00, 1.37887774e-01 },
        { -5784.54975374, 5449.50911966, -1811.16591783, 256.27178429, -13.02252404 },
        { -3.02331670e+02, 2.23948934e+02, -5.25463970e+01, 5.87348440e+00, -2.01973289e-01 },
    };
    const cfg *c = c_;
    int        i = c->dim == 1536 ? 0 : c->dim != 5120 ? -1 : c->image ? 2 : 1;
    if (i < 0 || c->control || c->face.size || c->out_ch != 16 || (i < 2 && c->in_ch != c->out_ch))
        return 0;
    memcpy(poly, of[i], sizeof of[i]);
    return 1;
}

/* ---- running ------------------------------------------------------------------------------ */

static xd_tensor attend_self(xd_exec *x, const xd_net *n, const blk *w, const local *l, xd_tensor y)
{
    const xd_wide *g = &((const glob *)n->glob)->wide;
    const cfg     *c = n->cfg;
    int64_t        rows = y.d[0], mine = w->qkv.seg[0];
    xd_tensor      in[2] = { xd_seg(y, &w->qkv, 0), xd_seg(y, &w->qkv, 1) };
    xd_tensor      q = xd_new(x, rows, mine), k = xd_new(x, rows, mine);
    xd_tensor      f = xd_wide_factors(x, g, in, 2);
    xd_turn        t = { 0 };
    xd_tensor      qh = xd_heads(q, c->head_dim), kh = xd_heads(k, c->head_dim);
    if (f.p)
        t = (xd_turn){ l->cos, l->sin };
    xd_wide_norm(x, g, q, in[0],
                 &(xd_wide_how){ .gain = w->q_gain, .factor = xd_wide_factor(f, 0), .turn = t });
    xd_wide_norm(x, g, k, in[1],
                 &(xd_wide_how){ .gain = w->k_gain, .factor = xd_wide_factor(f, 1), .turn = t });
    if (!f.p) /* one launch rotates q and k */
        xd_qk_norm_into(x, &(xd_qknorm){ .out = qh,
                                         .in = qh,
                                         .also = { .out = kh, .in = kh },
                                         .cos = l->cos,
                                         .sin = l->sin });
    return xd_flat(xd_attn(x, qh, kh, xd_heads(xd_seg(y, &w->qkv, 2), c->head_dim), 0));
}

static xd_tensor attend_text(xd_exec *x, const xd_net *n, const blk *w, const kept *k, xd_tensor h)
{
    const xd_wide *g = &((const glob *)n->glob)->wide;
    const cfg     *c = n->cfg;
    xd_tensor      in = h;
    if (w->gain.p)
        in = xd_layer_norm(x, h, w->gain, w->bias, c->eps);
    xd_tensor q = xd_linear(x, in, &w->q);
    xd_wide_norm(x, g, q, q,
                 &(xd_wide_how){ .gain = w->cross_q,
                                 .factor = xd_wide_factor(xd_wide_factors(x, g, &q, 1), 0) });
    int       at = count_blocks(n, x->layer, 0);
    xd_tensor o = xd_attn_text(x, q, xd_text_kv(k->kv, at), &w->kv, c->head_dim);
    if (k->image.p)
        xd_add(x, o, xd_attn_text(x, q, xd_text_kv(k->image, at), &w->image_kv, c->head_dim));
    return o;
}

static void run_block(xd_exec *x, const xd_net *n, const blk *w, xd_state *s, xd_tensor h)
{
    const local  *l = s->local;
    const xd_norm as = { .eps = ((const cfg *)n->cfg)->eps };
    xd_tensor     m[XD_TIMES];
    for (int t = 0; t < l->timed.times; t++)
        m[t] = xd_mod_table(x, w->mod, xd_rows(l->mod, 6 * t, 6));

    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_linear(x, xd_timed_norm(x, &l->timed, &as, h, m, 1, 0, &w->qkv), &w->qkv);
    xd_timed_add(x, &l->timed, h, m, 2, attend_self(x, n, w, l, y), &w->out);
    xd_arena_rewind(x->tmp, mark);

    xd_linear_add(x, h, (xd_tensor){ 0 }, attend_text(x, n, w, s->kept, h), &w->cross);
    xd_arena_rewind(x->tmp, mark);

    y = xd_linear_act(x, xd_timed_norm(x, &l->timed, &as, h, m, 4, 3, &w->up), &w->up,
                      XD_GELU_TANH);
    xd_timed_add(x, &l->timed, h, m, 5, y, &w->down);
}

static void forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    run_block(x, n, w, s, hidden(n->cfg, s, 0));
}

/* Runs a block of the control stream, and adds its hint to the video's hidden state. */
static void forward_control(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const control_blk *w = w_;
    const local       *l = s->local;
    const cfg         *c = n->cfg;
    xd_tensor          h = hidden(c, s, 0), control = hidden(c, s, 1);
    run_block(x, n, &w->b, s, control);
    xd_linear_add(x, h, xd_rows(l->scales, follower_of(c, x->layer), 1), control, &w->hint);
}

/* Runs a face adapter: the tokens of each latent frame attend to this frame's rows of the face
 * video. */
static void forward_face(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const face_blk *w = w_;
    const cfg      *c = n->cfg;
    const kept     *k = s->kept;
    xd_tensor       kv = xd_text_kv(k->face, count_blocks(n, x->layer, 1)), none = { 0 };
    xd_tensor       q = xd_linear(x, xd_norm_mod(x, s->h, none, none, c->eps), &w->q);
    xd_tensor       qh = xd_heads(q, c->head_dim), out = xd_new(x, q.d[0], q.d[1]);
    xd_tensor       oh = xd_heads(out, c->head_dim);
    int64_t         frame, run, rows = xd_face_rows(&c->face);
    xd_qk_norm_into(x, &(xd_qknorm){ .out = qh, .in = qh, .gain = w->q_gain, .eps = c->eps });
    for (int64_t row = 0; row < q.d[0]; row += run) {
        run = frame_run(x, row, &frame);
        xd_tensor own = xd_rows(kv, frame * rows, rows);
        xd_attn_over_into(x, xd_rows(oh, row, run), xd_rows(qh, row, run),
                          xd_heads(xd_seg(own, &w->kv, 0), c->head_dim),
                          xd_heads(xd_seg(own, &w->kv, 1), c->head_dim), &(xd_attn_how){ 0 });
    }
    xd_linear_add(x, s->h, none, out, &w->out);
}

static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob   *g = n->glob;
    const cfg    *c = n->cfg;
    const local  *l = s->local;
    xd_tensor     h = hidden(c, s, 0), out = xd_new_f32(x, h.d[0], g->out.w.out);
    size_t        mark = xd_arena_mark(x->tmp);
    const xd_norm as = { .eps = ((const cfg *)n->cfg)->eps };
    xd_tensor     m[XD_TIMES];
    for (int t = 0; t < l->timed.times; t++)
        m[t] = xd_mod_table(x, g->last, xd_rows(l->emb, t, 1));
    xd_tensor a = xd_timed_norm(x, &l->timed, &as, h, m, 1, 0, &g->out);
    xd_by_channel(x, out, xd_linear_f32(x, a, &g->out), c->out_ch);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static const xd_block kind = { "blocks.%d", sizeof(blk), blk_weights, forward };
static const xd_block control_kind = { "vace_blocks.%d", sizeof(control_blk), control_weights,
                                       forward_control };

static const xd_block face_kind = { "face_adapter.%d", sizeof(face_blk), face_weights,
                                    forward_face };

static const xd_block *block(const void *c_, int layer)
{
    const cfg *c = c_;
    return follower_of(c, layer) < 0 ? &kind : c->face.size ? &face_kind : &control_kind;
}

#define NET(title, class, table, reads, checks) \
    { .name = title,                     \
      .classes = { class },              \
      .fields = table,                   \
      .cfg_size = sizeof(cfg),           \
      .glob_size = sizeof(glob),         \
      .read = reads,                     \
      .check = checks,                   \
      .nlayers = nlayers,                \
      .block = block,                    \
      .weights = weights,                \
      .unread = { "*norm_added_q.weight" } }
#define FUNCTIONS                                                                               \
    .keep = keep_text, .read = read_text, .cond = cond, .embed = embed, .head = head,           \
    .probe = probe

extern const xd_dit xd_dit_wan, xd_dit_wan_vace, xd_dit_wan_animate, xd_dit_skyreels;

const xd_dit xd_dit_wan = {
    .net = NET("wan", "WanTransformer3DModel", fields, NULL, check_config),
    .info = info,
    .change_poly = change_poly,
    FUNCTIONS,
};

const xd_dit xd_dit_wan_vace = {
    .net = NET("wan-vace", "WanVACETransformer3DModel", vace_fields, NULL, check_vace),
    .info = info,
    .change_poly = change_poly,
    FUNCTIONS,
};

const xd_dit xd_dit_wan_animate = {
    .net = NET("wan-animate", "WanAnimateTransformer3DModel", animate_fields, read_animate,
               check_animate),
    .info = info_animate,
    FUNCTIONS,
};

const xd_dit xd_dit_skyreels = {
    .net =
        NET("skyreels-v2", "SkyReelsV2Transformer3DModel", skyreels_fields, NULL, check_skyreels),
    .info = info_skyreels,
    FUNCTIONS,
};
