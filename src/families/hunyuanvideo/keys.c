/* keys.c - lists the names of tensors in HunyuanVideo's files in the layout of the original code,
 * which GGUF files also have, and the names of modules in LoRA files that were trained with it */
#include "families/hunyuanvideo/keys.h"

#include <stddef.h>

static const xd_stem pair[] = {
    XD_STEM("norm1.linear", "img_mod.linear"),
    XD_STEM("norm1_context.linear", "txt_mod.linear"),
    XD_STEM_ROWS("attn.to_q", "img_attn_qkv", 0, 1, 3),
    XD_STEM_ROWS("attn.to_k", "img_attn_qkv", 1, 1, 3),
    XD_STEM_ROWS("attn.to_v", "img_attn_qkv", 2, 1, 3),
    XD_STEM_ROWS("attn.add_q_proj", "txt_attn_qkv", 0, 1, 3),
    XD_STEM_ROWS("attn.add_k_proj", "txt_attn_qkv", 1, 1, 3),
    XD_STEM_ROWS("attn.add_v_proj", "txt_attn_qkv", 2, 1, 3),
    XD_STEM("attn.norm_q.weight", "img_attn_q_norm.weight"),
    XD_STEM("attn.norm_k.weight", "img_attn_k_norm.weight"),
    XD_STEM("attn.norm_added_q.weight", "txt_attn_q_norm.weight"),
    XD_STEM("attn.norm_added_k.weight", "txt_attn_k_norm.weight"),
    XD_STEM("attn.to_out.0", "img_attn_proj"),
    XD_STEM("attn.to_add_out", "txt_attn_proj"),
    XD_STEM("ff.net.0.proj", "img_mlp.fc1"),
    XD_STEM("ff.net.2", "img_mlp.fc2"),
    XD_STEM("ff_context.net.0.proj", "txt_mlp.fc1"),
    XD_STEM("ff_context.net.2", "txt_mlp.fc2"),
    XD_STEMS_END,
};

/* Names of the tensors of a single block. The tensor linear1 contains the rows of query, key, value
 * and feed-forward; the feed-forward has four times as many rows as the query. */
static const xd_stem solo[] = {
    XD_STEM("norm.linear", "modulation.linear"),
    XD_STEM_ROWS("attn.to_q", "linear1", 0, 1, 7),
    XD_STEM_ROWS("attn.to_k", "linear1", 1, 1, 7),
    XD_STEM_ROWS("attn.to_v", "linear1", 2, 1, 7),
    XD_STEM_ROWS("proj_mlp", "linear1", 3, 4, 7),
    XD_STEM("attn.norm_q.weight", "q_norm.weight"),
    XD_STEM("attn.norm_k.weight", "k_norm.weight"),
    XD_STEM("proj_out", "linear2"),
    XD_STEMS_END,
};

static const xd_stem refiner[] = {
    XD_STEM("norm1", "norm1"),
    XD_STEM_ROWS("attn.to_q", "self_attn_qkv", 0, 1, 3),
    XD_STEM_ROWS("attn.to_k", "self_attn_qkv", 1, 1, 3),
    XD_STEM_ROWS("attn.to_v", "self_attn_qkv", 2, 1, 3),
    XD_STEM("attn.to_out.0", "self_attn_proj"),
    XD_STEM("norm2", "norm2"),
    XD_STEM("ff.net.0.proj", "mlp.fc1"),
    XD_STEM("ff.net.2", "mlp.fc2"),
    XD_STEM("norm_out.linear", "adaLN_modulation.1"),
    XD_STEMS_END,
};

/* Names of the tensors outside the blocks. The final modulation's rows are stored as (shift, scale)
 * in the original files, but the network declares them as (scale, shift). */
static const xd_stem top[] = {
    XD_STEM("x_embedder.proj", "img_in.proj"),
    XD_STEM("context_embedder.proj_in", "txt_in.input_embedder"),
    XD_STEM("context_embedder.time_text_embed.timestep_embedder.linear_1",
            "txt_in.t_embedder.mlp.0"),
    XD_STEM("context_embedder.time_text_embed.timestep_embedder.linear_2",
            "txt_in.t_embedder.mlp.2"),
    XD_STEM("context_embedder.time_text_embed.text_embedder.linear_1",
            "txt_in.c_embedder.linear_1"),
    XD_STEM("context_embedder.time_text_embed.text_embedder.linear_2",
            "txt_in.c_embedder.linear_2"),
    XD_STEM("time_text_embed.timestep_embedder.linear_1", "time_in.mlp.0"),
    XD_STEM("time_text_embed.timestep_embedder.linear_2", "time_in.mlp.2"),
    XD_STEM("time_text_embed.guidance_embedder.linear_1", "guidance_in.mlp.0"),
    XD_STEM("time_text_embed.guidance_embedder.linear_2", "guidance_in.mlp.2"),
    XD_STEM("time_text_embed.text_embedder.linear_1", "vector_in.in_layer"),
    XD_STEM("time_text_embed.text_embedder.linear_2", "vector_in.out_layer"),
    XD_STEM_SWAP("norm_out.linear", "final_layer.adaLN_modulation.1", XD_SWAP_ALWAYS),
    XD_STEM("proj_out", "final_layer.linear"),
    XD_STEMS_END,
};

/* Names of the tensors of a block of HunyuanVideo-1.5, whose files have separate queries, keys and
 * values. */
static const xd_stem pair15[] = {
    XD_STEM("norm1.linear", "img_mod.linear"),
    XD_STEM("norm1_context.linear", "txt_mod.linear"),
    XD_STEM("attn.to_q", "img_attn_q"),
    XD_STEM("attn.to_k", "img_attn_k"),
    XD_STEM("attn.to_v", "img_attn_v"),
    XD_STEM("attn.add_q_proj", "txt_attn_q"),
    XD_STEM("attn.add_k_proj", "txt_attn_k"),
    XD_STEM("attn.add_v_proj", "txt_attn_v"),
    XD_STEM("attn.norm_q.weight", "img_attn_q_norm.weight"),
    XD_STEM("attn.norm_k.weight", "img_attn_k_norm.weight"),
    XD_STEM("attn.norm_added_q.weight", "txt_attn_q_norm.weight"),
    XD_STEM("attn.norm_added_k.weight", "txt_attn_k_norm.weight"),
    XD_STEM("attn.to_out.0", "img_attn_proj"),
    XD_STEM("attn.to_add_out", "txt_attn_proj"),
    XD_STEM("ff.net.0.proj", "img_mlp.fc1"),
    XD_STEM("ff.net.2", "img_mlp.fc2"),
    XD_STEM("ff_context.net.0.proj", "txt_mlp.fc1"),
    XD_STEM("ff_context.net.2", "txt_mlp.fc2"),
    XD_STEMS_END,
};

static const xd_stem top15[] = {
    XD_STEM("x_embedder.proj", "img_in.proj"),
    XD_STEM("context_embedder.proj_in", "txt_in.input_embedder"),
    XD_STEM("context_embedder.time_text_embed.timestep_embedder.linear_1",
            "txt_in.t_embedder.mlp.0"),
    XD_STEM("context_embedder.time_text_embed.timestep_embedder.linear_2",
            "txt_in.t_embedder.mlp.2"),
    XD_STEM("context_embedder.time_text_embed.text_embedder.linear_1",
            "txt_in.c_embedder.linear_1"),
    XD_STEM("context_embedder.time_text_embed.text_embedder.linear_2",
            "txt_in.c_embedder.linear_2"),
    XD_STEM("context_embedder_2.norm", "byt5_in.layernorm"),
    XD_STEM("context_embedder_2.linear_1", "byt5_in.fc1"),
    XD_STEM("context_embedder_2.linear_2", "byt5_in.fc2"),
    XD_STEM("context_embedder_2.linear_3", "byt5_in.fc3"),
    XD_STEM("image_embedder.norm_in", "vision_in.proj.0"),
    XD_STEM("image_embedder.linear_1", "vision_in.proj.1"),
    XD_STEM("image_embedder.linear_2", "vision_in.proj.3"),
    XD_STEM("image_embedder.norm_out", "vision_in.proj.4"),
    XD_STEM("cond_type_embed.weight", "cond_type_embedding.weight"),
    XD_STEM("time_embed.timestep_embedder.linear_1", "time_in.mlp.0"),
    XD_STEM("time_embed.timestep_embedder.linear_2", "time_in.mlp.2"),
    XD_STEM("time_embed.timestep_embedder_r.linear_1", "time_r_in.mlp.0"),
    XD_STEM("time_embed.timestep_embedder_r.linear_2", "time_r_in.mlp.2"),
    XD_STEM_SWAP("norm_out.linear", "final_layer.adaLN_modulation.1", XD_SWAP_ALWAYS),
    XD_STEM("proj_out", "final_layer.linear"),
    XD_STEMS_END,
};

/* Names of the tensors of HunyuanVideo-1.5's autoencoder, for a residual block, for the attention
 * and for the ends of encoder and decoder. */
static const xd_stem vae15_attn[] = {
    XD_STEM("norm.gamma", "norm.gamma"),
    XD_STEM("to_q", "q"),
    XD_STEM("to_k", "k"),
    XD_STEM("to_v", "v"),
    XD_STEM("proj_out", "proj_out"),
    XD_STEMS_END,
};
#define VAE15(half, down, sample)                                                         \
    { half ".mid_block.resnets.0.", half ".mid.block_1.", NULL },                         \
        { half ".mid_block.resnets.1.", half ".mid.block_2.", NULL },                     \
        { half ".mid_block.attentions.0.", half ".mid.attn_1.", vae15_attn },             \
        { half "." down "_blocks.#.resnets.#.", half "." down ".#.block.#.", NULL },      \
        { half "." down "_blocks.#." down "samplers.0.", half "." down ".#." sample ".", NULL }

#define REFINER "context_embedder.token_refiner.refiner_blocks.#."

const xd_key_map xd_hunyuanvideo_key_maps[] = {
    { { "hunyuanvideo-vae" },
      "HunyuanVideo's autoencoder",
      { "decoder.mid_block.resnets.0.conv1.conv.weight", "decoder.conv_norm_out.weight" },
      XD_VAE_PREFIXES,
      { { "", "", NULL } } },
    { { "hunyuanvideo15-vae" },
      "HunyuanVideo-1.5's autoencoder in its original layout",
      { "decoder.mid.block_1.norm1.gamma", "decoder.up.0.upsample.conv.conv.weight" },
      XD_VAE_PREFIXES,
      { VAE15("encoder", "down", "downsample"),
        VAE15("decoder", "up", "upsample"),
        { "", "", NULL } } },
    { { "hunyuanvideo15-vae" },
      "HunyuanVideo-1.5's autoencoder in the layout of diffusers",
      { "decoder.mid_block.resnets.0.conv1.conv.weight", "decoder.norm_out.gamma" },
      XD_VAE_PREFIXES,
      { { "", "", NULL } } },
    { { "hunyuanvideo" },
      "a HunyuanVideo transformer in its original layout",
      { "double_blocks.0.img_attn_qkv.weight",
        "txt_in.individual_token_refiner.blocks.0.self_attn_qkv.weight" },
      XD_DIT_PREFIXES,
      { { REFINER, "txt_in.individual_token_refiner.blocks.#.", refiner },
        { "transformer_blocks.#.", "double_blocks.#.", pair },
        { "single_transformer_blocks.#.", "single_blocks.#.", solo },
        { "", "", top } } },
    { { "hunyuanvideo" },
      "a HunyuanVideo transformer in the layout of diffusers",
      { "x_embedder.proj.weight",
        "context_embedder.token_refiner.refiner_blocks.0.norm_out.linear.weight" },
      XD_DIT_PREFIXES,
      { { REFINER, REFINER, NULL },
        { "transformer_blocks.#.", "transformer_blocks.#.", NULL },
        { "single_transformer_blocks.#.", "single_transformer_blocks.#.", NULL },
        { "", "", NULL } } },
    { { "hunyuanvideo15" },
      "a HunyuanVideo-1.5 transformer in its original layout",
      { "double_blocks.0.img_attn_q.weight", "byt5_in.fc1.weight" },
      XD_DIT_PREFIXES,
      { { REFINER, "txt_in.individual_token_refiner.blocks.#.", refiner },
        { "transformer_blocks.#.", "double_blocks.#.", pair15 },
        { "", "", top15 } } },
    { { "hunyuanvideo15" },
      "a HunyuanVideo-1.5 transformer with queries, keys and values in one tensor",
      { "double_blocks.0.img_attn_qkv.weight", "byt5_in.fc1.weight" },
      XD_DIT_PREFIXES,
      { { REFINER, "txt_in.individual_token_refiner.blocks.#.", refiner },
        { "transformer_blocks.#.", "double_blocks.#.", pair },
        { "", "", top15 } } },
    { { "hunyuanvideo15" },
      "a HunyuanVideo-1.5 transformer in the layout of diffusers",
      { "x_embedder.proj.weight", "context_embedder_2.linear_3.weight" },
      XD_DIT_PREFIXES,
      { { REFINER, REFINER, NULL },
        { "transformer_blocks.#.", "transformer_blocks.#.", NULL },
        { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

#define FROM "txt_in_individual_token_refiner_blocks_#_"
#define TO "context_embedder_token_refiner_refiner_blocks_#_"
#define PAIR "transformer_blocks_#_"
#define SOLO "single_transformer_blocks_#_"

const xd_lora_name xd_hunyuanvideo_lora_names[] = {
    { "double_blocks_#_img_attn_qkv", PAIR "attn_to_q " PAIR "attn_to_k " PAIR "attn_to_v" },
    { "double_blocks_#_txt_attn_qkv",
      PAIR "attn_add_q_proj " PAIR "attn_add_k_proj " PAIR "attn_add_v_proj" },
    { "double_blocks_#_img_attn_proj", PAIR "attn_to_out_0" },
    { "double_blocks_#_txt_attn_proj", PAIR "attn_to_add_out" },
    { "double_blocks_#_img_mlp_fc1", PAIR "ff_net_0_proj" },
    { "double_blocks_#_img_mlp_fc2", PAIR "ff_net_2" },
    { "double_blocks_#_txt_mlp_fc1", PAIR "ff_context_net_0_proj" },
    { "double_blocks_#_txt_mlp_fc2", PAIR "ff_context_net_2" },
    { "double_blocks_#_img_mod_linear", PAIR "norm1_linear" },
    { "double_blocks_#_txt_mod_linear", PAIR "norm1_context_linear" },
    { "single_blocks_#_linear1",
      SOLO "attn_to_q " SOLO "attn_to_k " SOLO "attn_to_v " SOLO "proj_mlp" },
    { "single_blocks_#_linear2", SOLO "proj_out" },
    { "single_blocks_#_modulation_linear", SOLO "norm_linear" },
    { FROM "self_attn_qkv", TO "attn_to_q " TO "attn_to_k " TO "attn_to_v" },
    { FROM "self_attn_proj", TO "attn_to_out_0" },
    { FROM "mlp_fc1", TO "ff_net_0_proj" },
    { FROM "mlp_fc2", TO "ff_net_2" },
    { FROM "adaLN_modulation_1", TO "norm_out_linear" },
    { "img_in_proj", "x_embedder_proj" },
    { "txt_in_input_embedder", "context_embedder_proj_in" },
    { "txt_in_t_embedder_mlp_0", "context_embedder_time_text_embed_timestep_embedder_linear_1" },
    { "txt_in_t_embedder_mlp_2", "context_embedder_time_text_embed_timestep_embedder_linear_2" },
    { "txt_in_c_embedder_linear_1", "context_embedder_time_text_embed_text_embedder_linear_1" },
    { "txt_in_c_embedder_linear_2", "context_embedder_time_text_embed_text_embedder_linear_2" },
    { "time_in_mlp_0", "time_text_embed_timestep_embedder_linear_1" },
    { "time_in_mlp_2", "time_text_embed_timestep_embedder_linear_2" },
    { "time_in_mlp_0", "time_embed_timestep_embedder_linear_1" },
    { "time_in_mlp_2", "time_embed_timestep_embedder_linear_2" },
    { "guidance_in_mlp_0", "time_text_embed_guidance_embedder_linear_1" },
    { "guidance_in_mlp_2", "time_text_embed_guidance_embedder_linear_2" },
    { "double_blocks_#_img_attn_q", PAIR "attn_to_q" },
    { "double_blocks_#_img_attn_k", PAIR "attn_to_k" },
    { "double_blocks_#_img_attn_v", PAIR "attn_to_v" },
    { "double_blocks_#_txt_attn_q", PAIR "attn_add_q_proj" },
    { "double_blocks_#_txt_attn_k", PAIR "attn_add_k_proj" },
    { "double_blocks_#_txt_attn_v", PAIR "attn_add_v_proj" },
    { "byt5_in_fc1", "context_embedder_2_linear_1" },
    { "byt5_in_fc2", "context_embedder_2_linear_2" },
    { "byt5_in_fc3", "context_embedder_2_linear_3" },
    { "vision_in_proj_1", "image_embedder_linear_1" },
    { "vision_in_proj_3", "image_embedder_linear_2" },
    { "time_r_in_mlp_0", "time_embed_timestep_embedder_r_linear_1" },
    { "time_r_in_mlp_2", "time_embed_timestep_embedder_r_linear_2" },
    { "vector_in_in_layer", "time_text_embed_text_embedder_linear_1" },
    { "vector_in_out_layer", "time_text_embed_text_embedder_linear_2" },
    { "final_layer_linear", "proj_out" },
    { "final_layer_adaLN_modulation_1", "~norm_out_linear" },
    { NULL, NULL },
};
