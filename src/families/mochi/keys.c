/* keys.c - lists the names of tensors in single files of Mochi 1 (the original dit.safetensors and
 * decoder.safetensors, ComfyUI's mochi_preview_dit_bf16.safetensors and mochi_vae.safetensors), and
 * the names of modules in LoRA files that were trained on these files */
#include "families/mochi/keys.h"

#include <stddef.h>

/* One layer of a file has the queries, keys and values. The feed-forward's first layer has the half
 * to which SiLU is applied first; in diffusers this half is last. In the last block, the modulation
 * of the text is called linear_1 by diffusers, because it has only a scale. */
static const xd_stem block[] = {
    XD_STEM("norm1.linear", "mod_x"),
    XD_STEM("norm1_context.linear", "mod_y"),
    XD_STEM("norm1_context.linear_1", "mod_y"),
    XD_STEM_ROWS("attn1.to_q", "attn.qkv_x", 0, 1, 3),
    XD_STEM_ROWS("attn1.to_k", "attn.qkv_x", 1, 1, 3),
    XD_STEM_ROWS("attn1.to_v", "attn.qkv_x", 2, 1, 3),
    XD_STEM_ROWS("attn1.add_q_proj", "attn.qkv_y", 0, 1, 3),
    XD_STEM_ROWS("attn1.add_k_proj", "attn.qkv_y", 1, 1, 3),
    XD_STEM_ROWS("attn1.add_v_proj", "attn.qkv_y", 2, 1, 3),
    XD_STEM("attn1.norm_q.weight", "attn.q_norm_x.weight"),
    XD_STEM("attn1.norm_k.weight", "attn.k_norm_x.weight"),
    XD_STEM("attn1.norm_added_q.weight", "attn.q_norm_y.weight"),
    XD_STEM("attn1.norm_added_k.weight", "attn.k_norm_y.weight"),
    XD_STEM("attn1.to_out.0", "attn.proj_x"),
    XD_STEM("attn1.to_add_out", "attn.proj_y"),
    XD_STEM_SWAP("ff.net.0.proj", "mlp_x.w1", XD_SWAP_ALWAYS),
    XD_STEM("ff.net.2", "mlp_x.w2"),
    XD_STEM_SWAP("ff_context.net.0.proj", "mlp_y.w1", XD_SWAP_ALWAYS),
    XD_STEM("ff_context.net.2", "mlp_y.w2"),
    XD_STEMS_END,
};

/* The final modulation has the shift before the scale in a file. */
static const xd_stem top[] = {
    XD_STEM("patch_embed.proj", "x_embedder.proj"),
    XD_STEM("pos_frequencies", "pos_frequencies"),
    XD_STEM("time_embed.timestep_embedder.linear_1", "t_embedder.mlp.0"),
    XD_STEM("time_embed.timestep_embedder.linear_2", "t_embedder.mlp.2"),
    XD_STEM("time_embed.pooler.to_q", "t5_y_embedder.to_q"),
    XD_STEM("time_embed.pooler.to_kv", "t5_y_embedder.to_kv"),
    XD_STEM("time_embed.pooler.to_out", "t5_y_embedder.to_out"),
    XD_STEM("time_embed.caption_proj", "t5_yproj"),
    XD_STEM_SWAP("norm_out.linear", "final_layer.mod", XD_SWAP_ALWAYS),
    XD_STEM("proj_out", "final_layer.linear"),
    XD_STEMS_END,
};

/* Names of the decoder's tensors. A residual block is a list of modules, and the blocks of the
 * first resolution follow a convolution. */
static const xd_stem vae_res[] = {
    XD_STEM("norm1.norm_layer", "stack.0"),
    XD_STEM("conv1.conv", "stack.2"),
    XD_STEM("norm2.norm_layer", "stack.3"),
    XD_STEM("conv2.conv", "stack.5"),
    XD_STEMS_END,
};
static const xd_stem vae_up[] = { XD_STEM("proj", "proj"), XD_STEMS_END };
static const xd_stem vae_top[] = {
    XD_STEM("decoder.conv_in", "blocks.0.0"),
    XD_STEM("decoder.proj_out", "output_proj"),
    XD_STEMS_END,
};
#define FIRST(i, at) { "decoder.block_in.resnets." i ".", "blocks.0." at ".", vae_res }
#define UP(i, at)                                                                         \
    { "decoder.up_blocks." i ".resnets.#.", "blocks." at ".blocks.#.", vae_res },         \
        { "decoder.up_blocks." i ".", "blocks." at ".", vae_up }

const xd_key_map xd_mochi_key_maps[] = {
    { { "mochi-vae" },
      "Mochi's autoencoder in its original layout",
      { "blocks.0.1.stack.0.weight", "output_proj.weight" },
      { "", "decoder.", "vae.decoder.", "first_stage_model.decoder." },
      { FIRST("0", "1"),
        FIRST("1", "2"),
        FIRST("2", "3"),
        UP("0", "1"),
        UP("1", "2"),
        UP("2", "3"),
        { "decoder.block_out.resnets.#.", "blocks.4.#.", vae_res },
        { "", "", vae_top } } },
    { { "mochi-vae" },
      "Mochi's autoencoder in the layout of diffusers",
      { "decoder.block_in.resnets.0.conv1.conv.weight", "decoder.proj_out.weight" },
      XD_VAE_PREFIXES,
      { { "", "", NULL } } },
    { { "mochi" },
      "a Mochi transformer in its original layout",
      { "blocks.0.attn.qkv_x.weight", "t5_y_embedder.to_kv.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "blocks.#.", block }, { "", "", top } } },
    { { "mochi" },
      "a Mochi transformer in the layout of diffusers",
      { "pos_frequencies", "time_embed.pooler.to_kv.weight" },
      XD_DIT_PREFIXES,
      { { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

#define MODULE(from, to) { "blocks_#_" from, "transformer_blocks_#_" to }
#define QKV(stream, q, k, v)                                                                      \
    { "blocks_#_attn_qkv_" stream,                                                                \
      "transformer_blocks_#_attn1_" q " transformer_blocks_#_attn1_" k                            \
      " transformer_blocks_#_attn1_" v }

const xd_lora_name xd_mochi_lora_names[] = {
    MODULE("mod_x", "norm1_linear"),
    MODULE("mod_y", "norm1_context_linear"),
    QKV("x", "to_q", "to_k", "to_v"),
    QKV("y", "add_q_proj", "add_k_proj", "add_v_proj"),
    MODULE("attn_proj_x", "attn1_to_out_0"),
    MODULE("attn_proj_y", "attn1_to_add_out"),
    { "blocks_#_mlp_x_w1", "~transformer_blocks_#_ff_net_0_proj" },
    MODULE("mlp_x_w2", "ff_net_2"),
    { "blocks_#_mlp_y_w1", "~transformer_blocks_#_ff_context_net_0_proj" },
    MODULE("mlp_y_w2", "ff_context_net_2"),
    { "t_embedder_mlp_0", "time_embed_timestep_embedder_linear_1" },
    { "t_embedder_mlp_2", "time_embed_timestep_embedder_linear_2" },
    { "t5_y_embedder_to_q", "time_embed_pooler_to_q" },
    { "t5_y_embedder_to_kv", "time_embed_pooler_to_kv" },
    { "t5_y_embedder_to_out", "time_embed_pooler_to_out" },
    { "t5_yproj", "time_embed_caption_proj" },
    { "final_layer_mod", "~norm_out_linear" },
    { "final_layer_linear", "proj_out" },
    { NULL, NULL },
};
