/* key_map.c - the known layouts
 *
 * Original names are those of the published files: flux1-dev.safetensors and ae.safetensors (Black
 * Forest Labs), sd3_medium.safetensors and its successors (Stability AI). Other files have the
 * same names with a prefix. Files of diffusers and transformers are a layout, too. */
#include "model/key_map.h"

#include <stddef.h>

#define END { NULL, NULL, 0, 0, 0, XD_SWAP_NOT }
#define SAME(want, have) { want, have, 0, 0, 0, XD_SWAP_NOT }
#define PART(want, have, at, n, of) { want, have, at, n, of, XD_SWAP_NOT }

/* ---- FLUX.1 ------------------------------------------------------------------------------- */

static const xd_stem flux_double[] = {
    SAME("norm1.linear", "img_mod.lin"),
    SAME("norm1_context.linear", "txt_mod.lin"),
    PART("attn.to_q", "img_attn.qkv", 0, 1, 3),
    PART("attn.to_k", "img_attn.qkv", 1, 1, 3),
    PART("attn.to_v", "img_attn.qkv", 2, 1, 3),
    PART("attn.add_q_proj", "txt_attn.qkv", 0, 1, 3),
    PART("attn.add_k_proj", "txt_attn.qkv", 1, 1, 3),
    PART("attn.add_v_proj", "txt_attn.qkv", 2, 1, 3),
    SAME("attn.norm_q.weight", "img_attn.norm.query_norm.scale"),
    SAME("attn.norm_k.weight", "img_attn.norm.key_norm.scale"),
    SAME("attn.norm_added_q.weight", "txt_attn.norm.query_norm.scale"),
    SAME("attn.norm_added_k.weight", "txt_attn.norm.key_norm.scale"),
    SAME("attn.to_out.0", "img_attn.proj"),
    SAME("attn.to_add_out", "txt_attn.proj"),
    SAME("ff.net.0.proj", "img_mlp.0"),
    SAME("ff.net.2", "img_mlp.2"),
    SAME("ff_context.net.0.proj", "txt_mlp.0"),
    SAME("ff_context.net.2", "txt_mlp.2"),
    END,
};

/* linear1 contains query, key, value and the feed-forward, which is four times as wide as each. */
static const xd_stem flux_single[] = {
    SAME("norm.linear", "modulation.lin"),
    PART("attn.to_q", "linear1", 0, 1, 7),
    PART("attn.to_k", "linear1", 1, 1, 7),
    PART("attn.to_v", "linear1", 2, 1, 7),
    PART("proj_mlp", "linear1", 3, 4, 7),
    SAME("attn.norm_q.weight", "norm.query_norm.scale"),
    SAME("attn.norm_k.weight", "norm.key_norm.scale"),
    SAME("proj_out", "linear2"),
    END,
};

/* The final modulation is (shift, scale) in these files and (scale, shift) as declared. */
static const xd_stem flux_top[] = {
    SAME("x_embedder", "img_in"),
    SAME("context_embedder", "txt_in"),
    SAME("time_text_embed.timestep_embedder.linear_1", "time_in.in_layer"),
    SAME("time_text_embed.timestep_embedder.linear_2", "time_in.out_layer"),
    SAME("time_text_embed.guidance_embedder.linear_1", "guidance_in.in_layer"),
    SAME("time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer"),
    SAME("time_text_embed.text_embedder.linear_1", "vector_in.in_layer"),
    SAME("time_text_embed.text_embedder.linear_2", "vector_in.out_layer"),
    { "norm_out.linear", "final_layer.adaLN_modulation.1", 0, 0, 0, XD_SWAP_ALWAYS },
    SAME("proj_out", "final_layer.linear"),
    END,
};

/* ---- Stable Diffusion 3 ------------------------------------------------------------------- */

/* The text of the last block has only (shift, scale), in the order of the final modulation. */
static const xd_stem sd3_block[] = {
    SAME("norm1.linear", "x_block.adaLN_modulation.1"),
    { "norm1_context.linear", "context_block.adaLN_modulation.1", 0, 0, 0, XD_SWAP_LAST },
    PART("attn.to_q", "x_block.attn.qkv", 0, 1, 3),
    PART("attn.to_k", "x_block.attn.qkv", 1, 1, 3),
    PART("attn.to_v", "x_block.attn.qkv", 2, 1, 3),
    PART("attn.add_q_proj", "context_block.attn.qkv", 0, 1, 3),
    PART("attn.add_k_proj", "context_block.attn.qkv", 1, 1, 3),
    PART("attn.add_v_proj", "context_block.attn.qkv", 2, 1, 3),
    PART("attn2.to_q", "x_block.attn2.qkv", 0, 1, 3),
    PART("attn2.to_k", "x_block.attn2.qkv", 1, 1, 3),
    PART("attn2.to_v", "x_block.attn2.qkv", 2, 1, 3),
    SAME("attn.norm_q", "x_block.attn.ln_q"),
    SAME("attn.norm_k", "x_block.attn.ln_k"),
    SAME("attn.norm_added_q", "context_block.attn.ln_q"),
    SAME("attn.norm_added_k", "context_block.attn.ln_k"),
    SAME("attn2.norm_q", "x_block.attn2.ln_q"),
    SAME("attn2.norm_k", "x_block.attn2.ln_k"),
    SAME("attn.to_out.0", "x_block.attn.proj"),
    SAME("attn.to_add_out", "context_block.attn.proj"),
    SAME("attn2.to_out.0", "x_block.attn2.proj"),
    SAME("ff.net.0.proj", "x_block.mlp.fc1"),
    SAME("ff.net.2", "x_block.mlp.fc2"),
    SAME("ff_context.net.0.proj", "context_block.mlp.fc1"),
    SAME("ff_context.net.2", "context_block.mlp.fc2"),
    END,
};

static const xd_stem sd3_top[] = {
    SAME("pos_embed.pos_embed", "pos_embed"),
    SAME("pos_embed.proj", "x_embedder.proj"),
    SAME("context_embedder", "context_embedder"),
    SAME("time_text_embed.timestep_embedder.linear_1", "t_embedder.mlp.0"),
    SAME("time_text_embed.timestep_embedder.linear_2", "t_embedder.mlp.2"),
    SAME("time_text_embed.text_embedder.linear_1", "y_embedder.mlp.0"),
    SAME("time_text_embed.text_embedder.linear_2", "y_embedder.mlp.2"),
    { "norm_out.linear", "final_layer.adaLN_modulation.1", 0, 0, 0, XD_SWAP_ALWAYS },
    SAME("proj_out", "final_layer.linear"),
    END,
};

/* ---- the KL autoencoder of latent diffusion ----------------------------------------------- */

static const xd_stem ldm_res[] = {
    SAME("norm1", "norm1"), SAME("conv1", "conv1"), SAME("norm2", "norm2"), SAME("conv2", "conv2"),
    SAME("conv_shortcut", "nin_shortcut"), END,
};

/* Matrices are stored as 1 x 1 convolutions with equal elements. */
static const xd_stem ldm_attn[] = {
    SAME("group_norm", "norm"), SAME("to_q", "q"), SAME("to_k", "k"), SAME("to_v", "v"),
    SAME("to_out.0", "proj_out"), END,
};

static const xd_stem ldm_top[] = {
    SAME("encoder.conv_in", "encoder.conv_in"),
    SAME("encoder.conv_norm_out", "encoder.norm_out"),
    SAME("encoder.conv_out", "encoder.conv_out"),
    SAME("decoder.conv_in", "decoder.conv_in"),
    SAME("decoder.conv_norm_out", "decoder.norm_out"),
    SAME("decoder.conv_out", "decoder.conv_out"),
    SAME("quant_conv", "quant_conv"),
    SAME("post_quant_conv", "post_quant_conv"),
    END,
};

/* ---- all of them -------------------------------------------------------------------------- */

#define DIFFUSION { "", "model.diffusion_model.", "diffusion_model." }
#define FIRST_STAGE { "", "first_stage_model.", "vae." }

const xd_key_map xd_namings[] = {
    { { "flux" }, "a FLUX.1 transformer in its original layout",
      { "double_blocks.0.img_attn.qkv.weight", "img_in.weight" }, DIFFUSION,
      { { "transformer_blocks.#.", "double_blocks.#.", flux_double },
        { "single_transformer_blocks.#.", "single_blocks.#.", flux_single },
        { "", "", flux_top } } },
    { { "flux" }, "a FLUX.1 transformer in the layout of diffusers",
      { "x_embedder.weight", "context_embedder.weight" }, DIFFUSION,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL },
        { "single_transformer_blocks.#.", "single_transformer_blocks.#.", NULL },
        { "", "", NULL } } },
    { { "sd3" }, "a Stable Diffusion 3 transformer in its original layout",
      { "joint_blocks.0.x_block.attn.qkv.weight", "x_embedder.proj.weight" }, DIFFUSION,
      { { "transformer_blocks.#.", "joint_blocks.#.", sd3_block }, { "", "", sd3_top } } },
    { { "sd3" }, "a Stable Diffusion 3 transformer in the layout of diffusers",
      { "pos_embed.proj.weight", "context_embedder.weight" }, DIFFUSION,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { { "pixart" }, "a PixArt transformer in the layout of diffusers",
      { "pos_embed.proj.weight", "caption_projection.linear_1.weight" }, DIFFUSION,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { { "hunyuandit" }, "a HunyuanDiT transformer in the layout of diffusers",
      { "text_embedding_padding", "time_extra_emb.pooler.positional_embedding" }, DIFFUSION,
      { { "blocks.#.", "blocks.#.", NULL }, { "", "", NULL } } },
    { { "kl" }, "a KL autoencoder in its original layout",
      { "decoder.mid.block_1.conv1.weight", NULL }, FIRST_STAGE,
      { { "encoder.down_blocks.#.resnets.#.", "encoder.down.#.block.#.", ldm_res },
        { "encoder.down_blocks.#.attentions.#.", "encoder.down.#.attn.#.", ldm_attn },
        { "encoder.down_blocks.#.downsamplers.0.", "encoder.down.#.downsample.", NULL },
        { "encoder.mid_block.resnets.0.", "encoder.mid.block_1.", ldm_res },
        { "encoder.mid_block.resnets.1.", "encoder.mid.block_2.", ldm_res },
        { "encoder.mid_block.attentions.0.", "encoder.mid.attn_1.", ldm_attn },
        { "decoder.up_blocks.#.resnets.#.", "decoder.up.~.block.#.", ldm_res },
        { "decoder.up_blocks.#.attentions.#.", "decoder.up.~.attn.#.", ldm_attn },
        { "decoder.up_blocks.#.upsamplers.0.", "decoder.up.~.upsample.", NULL },
        { "decoder.mid_block.resnets.0.", "decoder.mid.block_1.", ldm_res },
        { "decoder.mid_block.resnets.1.", "decoder.mid.block_2.", ldm_res },
        { "decoder.mid_block.attentions.0.", "decoder.mid.attn_1.", ldm_attn },
        { "", "", ldm_top } } },
    { { "kl" }, "a KL autoencoder in the layout of diffusers",
      { "decoder.mid_block.resnets.0.conv1.weight", NULL }, FIRST_STAGE,
      { { "encoder.down_blocks.#.", "encoder.down_blocks.#.", NULL },
        { "decoder.up_blocks.#.", "decoder.up_blocks.#.", NULL }, { "", "", NULL } } },
    { { "clip", "clip-proj" }, "a CLIP text encoder",
      { "text_model.embeddings.token_embedding.weight", NULL },
      { "", "text_encoders.@.transformer.", "@.transformer." },
      { { "text_model.encoder.layers.#.", "text_model.encoder.layers.#.", NULL },
        { "", "", NULL } } },
    { { "clip", "clip-proj" }, "a CLIP text encoder",
      { "embeddings.token_embedding.weight", NULL },
      { "", "text_encoders.@.transformer.", "@.transformer." },
      { { "encoder.layers.#.", "encoder.layers.#.", NULL }, { "", "", NULL } } },
    { { "t5" }, "a T5 text encoder",
      { "encoder.block.0.layer.0.SelfAttention.q.weight", NULL },
      { "", "text_encoders.@.transformer.", "@.transformer." },
      { { "encoder.block.#.", "encoder.block.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};
