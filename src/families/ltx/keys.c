/* keys.c - lists the names of tensors in single files of LTX-Video (ltx-video-2b-v0.9.safetensors),
 * which contain the transformer and the autoencoder, and the names of modules in LoRA files that
 * were trained on these files */
#include "families/ltx/keys.h"

#include <stddef.h>

/* Names of the tensors of an attention. */
#define ATTN(a)                                                                                \
    XD_STEM(a ".to_q", a ".to_q"), XD_STEM(a ".to_k", a ".to_k"), XD_STEM(a ".to_v", a ".to_v"), \
        XD_STEM(a ".to_out.0", a ".to_out.0"),                                                   \
        XD_STEM(a ".norm_q.weight", a ".q_norm.weight"),                                         \
        XD_STEM(a ".norm_k.weight", a ".k_norm.weight")

static const xd_stem block[] = {
    ATTN("attn1"),
    ATTN("attn2"),
    XD_STEM("scale_shift_table", "scale_shift_table"),
    XD_STEM("ff.net.0.proj", "ff.net.0.proj"),
    XD_STEM("ff.net.2", "ff.net.2"),
    XD_STEMS_END,
};

static const xd_stem top[] = {
    XD_STEM("proj_in", "patchify_proj"),
    XD_STEM("time_embed.emb.timestep_embedder.linear_1",
            "adaln_single.emb.timestep_embedder.linear_1"),
    XD_STEM("time_embed.emb.timestep_embedder.linear_2",
            "adaln_single.emb.timestep_embedder.linear_2"),
    XD_STEM("time_embed.linear", "adaln_single.linear"),
    XD_STEM("caption_projection.linear_1", "caption_projection.linear_1"),
    XD_STEM("caption_projection.linear_2", "caption_projection.linear_2"),
    XD_STEM("scale_shift_table", "scale_shift_table"),
    XD_STEM("proj_out", "proj_out"),
    XD_STEMS_END,
};

/* ---- the autoencoder ---------------------------------------------------------------------- */

/* Tensor names of a residual block. */
static const xd_stem vae_res[] = {
    XD_STEM("conv1.conv", "conv1.conv"),
    XD_STEM("conv2.conv", "conv2.conv"),
    XD_STEM("norm3", "norm3.norm"),
    XD_STEM("conv_shortcut.conv", "conv_shortcut"),
    XD_STEM("per_channel_scale1", "per_channel_scale1"),
    XD_STEM("per_channel_scale2", "per_channel_scale2"),
    XD_STEM("scale_shift_table", "scale_shift_table"),
    XD_STEMS_END,
};

static const xd_stem vae_top[] = {
    XD_STEM("encoder.conv_in.conv", "encoder.conv_in.conv"),
    XD_STEM("encoder.conv_out.conv", "encoder.conv_out.conv"),
    XD_STEM("decoder.conv_in.conv", "decoder.conv_in.conv"),
    XD_STEM("decoder.conv_out.conv", "decoder.conv_out.conv"),
    XD_STEM("decoder.time_embedder.timestep_embedder.linear_1",
            "decoder.last_time_embedder.timestep_embedder.linear_1"),
    XD_STEM("decoder.time_embedder.timestep_embedder.linear_2",
            "decoder.last_time_embedder.timestep_embedder.linear_2"),
    XD_STEM("decoder.scale_shift_table", "decoder.last_scale_shift_table"),
    XD_STEM("decoder.timestep_scale_multiplier", "decoder.timestep_scale_multiplier"),
    XD_STEM("latents_mean", "per_channel_statistics.mean-of-means"),
    XD_STEM("latents_std", "per_channel_statistics.std-of-means"),
    XD_STEMS_END,
};

/* The modules of a half of the autoencoder are one list in the file. RES is a list of residual
 * blocks, MOVE a layer that changes the resolution, and SIDE a residual block that changes the
 * number of channels. */
#define RES(want, have) { want ".resnets.#.", have ".res_blocks.#.", vae_res }
#define MOVE(want, have) { want ".0.", have ".", NULL }
#define SIDE(want, have) { want ".", have ".", vae_res }
/* A level of a decoder that reads a timestep: module `have` is the list of blocks. */
#define TIMED(want, have) RES(want, have), { want ".time_embedder.", have ".time_embedder.", NULL }
#define UP(l, move, have)                                                                 \
    MOVE("decoder.up_blocks." l ".upsamplers", "decoder.up_blocks." move),                \
        TIMED("decoder.up_blocks." l, "decoder.up_blocks." have)
#define UPS                                                                               \
    TIMED("decoder.mid_block", "decoder.up_blocks.0"), UP("0", "1", "2"), UP("1", "3", "4"), \
        UP("2", "5", "6"), UP("3", "7", "8")
#define DOWN(l, have, move)                                                               \
    RES("encoder.down_blocks." l, "encoder.down_blocks." have),                           \
        MOVE("encoder.down_blocks." l ".downsamplers", "encoder.down_blocks." move)
/* The encoder of versions 0.9.0 and 0.9.1. */
#define DOWNS                                                                             \
    DOWN("0", "0", "1"), SIDE("encoder.down_blocks.0.conv_out", "encoder.down_blocks.2"), \
        DOWN("1", "3", "4"), SIDE("encoder.down_blocks.1.conv_out", "encoder.down_blocks.5"), \
        DOWN("2", "6", "7"), RES("encoder.down_blocks.3", "encoder.down_blocks.8"),       \
        RES("encoder.mid_block", "encoder.down_blocks.9")

const xd_key_map xd_ltx_key_maps[] = {
    { { "ltx-vae" },
      "LTX-Video's autoencoder 0.9.1 in its original layout",
      { "decoder.last_scale_shift_table", "encoder.down_blocks.9.res_blocks.0.conv1.conv.weight" },
      XD_VAE_PREFIXES,
      { DOWNS, UPS, { "", "", vae_top } } },
    { { "ltx-vae" },
      "LTX-Video's autoencoder 0.9.5 in its original layout",
      { "decoder.last_scale_shift_table", "encoder.down_blocks.8.res_blocks.0.conv1.conv.weight" },
      XD_VAE_PREFIXES,
      { DOWN("0", "0", "1"),
        DOWN("1", "2", "3"),
        DOWN("2", "4", "5"),
        DOWN("3", "6", "7"),
        RES("encoder.mid_block", "encoder.down_blocks.8"),
        UPS,
        { "", "", vae_top } } },
    { { "ltx-vae" },
      "LTX-Video's autoencoder 0.9.0 in its original layout",
      { "decoder.up_blocks.9.res_blocks.0.conv1.conv.weight",
        "encoder.down_blocks.9.res_blocks.0.conv1.conv.weight" },
      XD_VAE_PREFIXES,
      { DOWNS,
        RES("decoder.mid_block", "decoder.up_blocks.0"),
        RES("decoder.up_blocks.0", "decoder.up_blocks.1"),
        MOVE("decoder.up_blocks.1.upsamplers", "decoder.up_blocks.2"),
        RES("decoder.up_blocks.1", "decoder.up_blocks.3"),
        SIDE("decoder.up_blocks.2.conv_in", "decoder.up_blocks.4"),
        MOVE("decoder.up_blocks.2.upsamplers", "decoder.up_blocks.5"),
        RES("decoder.up_blocks.2", "decoder.up_blocks.6"),
        SIDE("decoder.up_blocks.3.conv_in", "decoder.up_blocks.7"),
        MOVE("decoder.up_blocks.3.upsamplers", "decoder.up_blocks.8"),
        RES("decoder.up_blocks.3", "decoder.up_blocks.9"),
        { "", "", vae_top } } },
    { { "ltx-vae", "ltx2-vae" },
      "LTX-Video's autoencoder in the layout of diffusers",
      { "encoder.mid_block.resnets.0.conv1.conv.weight", "latents_mean" },
      XD_VAE_PREFIXES,
      { { "", "", NULL } } },
    { { "ltx" },
      "an LTX-Video transformer in its original layout",
      { "patchify_proj.weight", "adaln_single.emb.timestep_embedder.linear_1.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", block }, { "", "", top } } },
    { { "ltx" },
      "an LTX-Video transformer in the layout of diffusers",
      { "time_embed.emb.timestep_embedder.linear_1.weight", "caption_projection.linear_1.weight" },
      XD_DIT_PREFIXES,
      { { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

const xd_lora_name xd_ltx_lora_names[] = {
    { "patchify_proj", "proj_in" },
    { "adaln_single_linear", "time_embed_linear" },
    { "adaln_single_emb_timestep_embedder_linear_1", "time_embed_emb_timestep_embedder_linear_1" },
    { "adaln_single_emb_timestep_embedder_linear_2", "time_embed_emb_timestep_embedder_linear_2" },
    { NULL, NULL },
};
