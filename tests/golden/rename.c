/* rename.c - golden models rewritten into the layouts of original files.
 *
 * The tables go from the file's tensors to those of diffusers, the other way than the engine's:
 * a tensor is made of one or several, one after the other, or of one with its halves swapped.
 * '#' is a block's number, counted up until there is none. */
#define _XOPEN_SOURCE 700       /* strdup */
#include "rename.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/json.h"
#include "golden.h"

enum { PARTS = 4 };

typedef struct row {
    const char *to, *from[PARTS];
    int         swap; /* 1: halves swapped; 2: in the last block only */
} row;

static const row flux[] = {
    { "img_in", { "x_embedder" }, 0 },
    { "txt_in", { "context_embedder" }, 0 },
    { "time_in.in_layer", { "time_text_embed.timestep_embedder.linear_1" }, 0 },
    { "time_in.out_layer", { "time_text_embed.timestep_embedder.linear_2" }, 0 },
    { "guidance_in.in_layer", { "time_text_embed.guidance_embedder.linear_1" }, 0 },
    { "guidance_in.out_layer", { "time_text_embed.guidance_embedder.linear_2" }, 0 },
    { "vector_in.in_layer", { "time_text_embed.text_embedder.linear_1" }, 0 },
    { "vector_in.out_layer", { "time_text_embed.text_embedder.linear_2" }, 0 },
    { "distilled_guidance_layer.in_proj", { "distilled_guidance_layer.in_proj" }, 0 },
    { "distilled_guidance_layer.out_proj", { "distilled_guidance_layer.out_proj" }, 0 },
    { "distilled_guidance_layer.layers.#.in_layer",
      { "distilled_guidance_layer.layers.#.linear_1" },
      0 },
    { "distilled_guidance_layer.layers.#.out_layer",
      { "distilled_guidance_layer.layers.#.linear_2" },
      0 },
    { "distilled_guidance_layer.norms.#.scale", { "distilled_guidance_layer.norms.#.weight" }, 0 },
    { "final_layer.linear", { "proj_out" }, 0 },
    { "final_layer.adaLN_modulation.1", { "norm_out.linear" }, 1 },
    { "double_blocks.#.img_mod.lin", { "transformer_blocks.#.norm1.linear" }, 0 },
    { "double_blocks.#.img_attn.qkv",
      { "transformer_blocks.#.attn.to_q", "transformer_blocks.#.attn.to_k",
        "transformer_blocks.#.attn.to_v" },
      0 },
    { "double_blocks.#.img_attn.norm.query_norm.scale",
      { "transformer_blocks.#.attn.norm_q.weight" },
      0 },
    { "double_blocks.#.img_attn.norm.key_norm.scale",
      { "transformer_blocks.#.attn.norm_k.weight" },
      0 },
    { "double_blocks.#.img_attn.proj", { "transformer_blocks.#.attn.to_out.0" }, 0 },
    { "double_blocks.#.img_mlp.0", { "transformer_blocks.#.ff.net.0.proj" }, 0 },
    { "double_blocks.#.img_mlp.2", { "transformer_blocks.#.ff.net.2" }, 0 },
    { "double_blocks.#.txt_mod.lin", { "transformer_blocks.#.norm1_context.linear" }, 0 },
    { "double_blocks.#.txt_attn.qkv",
      { "transformer_blocks.#.attn.add_q_proj", "transformer_blocks.#.attn.add_k_proj",
        "transformer_blocks.#.attn.add_v_proj" },
      0 },
    { "double_blocks.#.txt_attn.norm.query_norm.scale",
      { "transformer_blocks.#.attn.norm_added_q.weight" },
      0 },
    { "double_blocks.#.txt_attn.norm.key_norm.scale",
      { "transformer_blocks.#.attn.norm_added_k.weight" },
      0 },
    { "double_blocks.#.txt_attn.proj", { "transformer_blocks.#.attn.to_add_out" }, 0 },
    { "double_blocks.#.txt_mlp.0", { "transformer_blocks.#.ff_context.net.0.proj" }, 0 },
    { "double_blocks.#.txt_mlp.2", { "transformer_blocks.#.ff_context.net.2" }, 0 },
    { "single_blocks.#.modulation.lin", { "single_transformer_blocks.#.norm.linear" }, 0 },
    { "single_blocks.#.linear1",
      { "single_transformer_blocks.#.attn.to_q", "single_transformer_blocks.#.attn.to_k",
        "single_transformer_blocks.#.attn.to_v", "single_transformer_blocks.#.proj_mlp" },
      0 },
    { "single_blocks.#.linear2", { "single_transformer_blocks.#.proj_out" }, 0 },
    { "single_blocks.#.norm.query_norm.scale",
      { "single_transformer_blocks.#.attn.norm_q.weight" },
      0 },
    { "single_blocks.#.norm.key_norm.scale",
      { "single_transformer_blocks.#.attn.norm_k.weight" },
      0 },
    { "pos_embed_input", { "controlnet_x_embedder" }, 0 },
    { "controlnet_blocks.#", { "controlnet_blocks.#" }, 0 },
    { "input_hint_block.0", { "input_hint_block.conv_in" }, 0 },
    { "input_hint_block.2", { "input_hint_block.blocks.0" }, 0 },
    { "input_hint_block.4", { "input_hint_block.blocks.1" }, 0 },
    { "input_hint_block.6", { "input_hint_block.blocks.2" }, 0 },
    { "input_hint_block.8", { "input_hint_block.blocks.3" }, 0 },
    { "input_hint_block.10", { "input_hint_block.blocks.4" }, 0 },
    { "input_hint_block.12", { "input_hint_block.blocks.5" }, 0 },
    { "input_hint_block.14", { "input_hint_block.conv_out" }, 0 },
    { NULL, { NULL }, 0 },
};

static const row flux2[] = {
    { "img_in", { "x_embedder" }, 0 },
    { "txt_in", { "context_embedder" }, 0 },
    { "time_in.in_layer", { "time_guidance_embed.timestep_embedder.linear_1" }, 0 },
    { "time_in.out_layer", { "time_guidance_embed.timestep_embedder.linear_2" }, 0 },
    { "guidance_in.in_layer", { "time_guidance_embed.guidance_embedder.linear_1" }, 0 },
    { "guidance_in.out_layer", { "time_guidance_embed.guidance_embedder.linear_2" }, 0 },
    { "double_stream_modulation_img.lin", { "double_stream_modulation_img.linear" }, 0 },
    { "double_stream_modulation_txt.lin", { "double_stream_modulation_txt.linear" }, 0 },
    { "single_stream_modulation.lin", { "single_stream_modulation.linear" }, 0 },
    { "final_layer.linear", { "proj_out" }, 0 },
    { "final_layer.adaLN_modulation.1", { "norm_out.linear" }, 1 },
    { "double_blocks.#.img_attn.qkv",
      { "transformer_blocks.#.attn.to_q", "transformer_blocks.#.attn.to_k",
        "transformer_blocks.#.attn.to_v" },
      0 },
    { "double_blocks.#.img_attn.norm.query_norm.scale",
      { "transformer_blocks.#.attn.norm_q.weight" },
      0 },
    { "double_blocks.#.img_attn.norm.key_norm.scale",
      { "transformer_blocks.#.attn.norm_k.weight" },
      0 },
    { "double_blocks.#.img_attn.proj", { "transformer_blocks.#.attn.to_out.0" }, 0 },
    { "double_blocks.#.img_mlp.0", { "transformer_blocks.#.ff.linear_in" }, 0 },
    { "double_blocks.#.img_mlp.2", { "transformer_blocks.#.ff.linear_out" }, 0 },
    { "double_blocks.#.txt_attn.qkv",
      { "transformer_blocks.#.attn.add_q_proj", "transformer_blocks.#.attn.add_k_proj",
        "transformer_blocks.#.attn.add_v_proj" },
      0 },
    { "double_blocks.#.txt_attn.norm.query_norm.scale",
      { "transformer_blocks.#.attn.norm_added_q.weight" },
      0 },
    { "double_blocks.#.txt_attn.norm.key_norm.scale",
      { "transformer_blocks.#.attn.norm_added_k.weight" },
      0 },
    { "double_blocks.#.txt_attn.proj", { "transformer_blocks.#.attn.to_add_out" }, 0 },
    { "double_blocks.#.txt_mlp.0", { "transformer_blocks.#.ff_context.linear_in" }, 0 },
    { "double_blocks.#.txt_mlp.2", { "transformer_blocks.#.ff_context.linear_out" }, 0 },
    { "single_blocks.#.linear1", { "single_transformer_blocks.#.attn.to_qkv_mlp_proj" }, 0 },
    { "single_blocks.#.linear2", { "single_transformer_blocks.#.attn.to_out" }, 0 },
    { "single_blocks.#.norm.query_norm.scale",
      { "single_transformer_blocks.#.attn.norm_q.weight" },
      0 },
    { "single_blocks.#.norm.key_norm.scale",
      { "single_transformer_blocks.#.attn.norm_k.weight" },
      0 },
    { NULL, { NULL }, 0 },
};

static const row sd3[] = {
    { "pos_embed", { "pos_embed.pos_embed" }, 0 },
    { "x_embedder.proj", { "pos_embed.proj" }, 0 },
    { "context_embedder", { "context_embedder" }, 0 },
    { "t_embedder.mlp.0", { "time_text_embed.timestep_embedder.linear_1" }, 0 },
    { "t_embedder.mlp.2", { "time_text_embed.timestep_embedder.linear_2" }, 0 },
    { "y_embedder.mlp.0", { "time_text_embed.text_embedder.linear_1" }, 0 },
    { "y_embedder.mlp.2", { "time_text_embed.text_embedder.linear_2" }, 0 },
    { "final_layer.linear", { "proj_out" }, 0 },
    { "final_layer.adaLN_modulation.1", { "norm_out.linear" }, 1 },
    { "joint_blocks.#.x_block.adaLN_modulation.1", { "transformer_blocks.#.norm1.linear" }, 0 },
    { "joint_blocks.#.x_block.attn.qkv",
      { "transformer_blocks.#.attn.to_q", "transformer_blocks.#.attn.to_k",
        "transformer_blocks.#.attn.to_v" },
      0 },
    { "joint_blocks.#.x_block.attn.ln_q.weight", { "transformer_blocks.#.attn.norm_q.weight" }, 0 },
    { "joint_blocks.#.x_block.attn.ln_k.weight", { "transformer_blocks.#.attn.norm_k.weight" }, 0 },
    { "joint_blocks.#.x_block.attn.proj", { "transformer_blocks.#.attn.to_out.0" }, 0 },
    { "joint_blocks.#.x_block.attn2.qkv",
      { "transformer_blocks.#.attn2.to_q", "transformer_blocks.#.attn2.to_k",
        "transformer_blocks.#.attn2.to_v" },
      0 },
    { "joint_blocks.#.x_block.attn2.ln_q.weight",
      { "transformer_blocks.#.attn2.norm_q.weight" },
      0 },
    { "joint_blocks.#.x_block.attn2.ln_k.weight",
      { "transformer_blocks.#.attn2.norm_k.weight" },
      0 },
    { "joint_blocks.#.x_block.attn2.proj", { "transformer_blocks.#.attn2.to_out.0" }, 0 },
    { "joint_blocks.#.x_block.mlp.fc1", { "transformer_blocks.#.ff.net.0.proj" }, 0 },
    { "joint_blocks.#.x_block.mlp.fc2", { "transformer_blocks.#.ff.net.2" }, 0 },
    { "joint_blocks.#.context_block.adaLN_modulation.1",
      { "transformer_blocks.#.norm1_context.linear" },
      2 },
    { "joint_blocks.#.context_block.attn.qkv",
      { "transformer_blocks.#.attn.add_q_proj", "transformer_blocks.#.attn.add_k_proj",
        "transformer_blocks.#.attn.add_v_proj" },
      0 },
    { "joint_blocks.#.context_block.attn.ln_q.weight",
      { "transformer_blocks.#.attn.norm_added_q.weight" },
      0 },
    { "joint_blocks.#.context_block.attn.ln_k.weight",
      { "transformer_blocks.#.attn.norm_added_k.weight" },
      0 },
    { "joint_blocks.#.context_block.attn.proj", { "transformer_blocks.#.attn.to_add_out" }, 0 },
    { "joint_blocks.#.context_block.mlp.fc1", { "transformer_blocks.#.ff_context.net.0.proj" }, 0 },
    { "joint_blocks.#.context_block.mlp.fc2", { "transformer_blocks.#.ff_context.net.2" }, 0 },
    { NULL, { NULL }, 0 },
};

#define DOUBLE "joint_transformer_blocks.#."
#define SINGLE "single_transformer_blocks.#."
static const row auraflow[] = {
    { "register_tokens", { "register_tokens" }, 0 },
    { "positional_encoding", { "pos_embed.pos_embed" }, 0 },
    { "init_x_linear", { "pos_embed.proj" }, 0 },
    { "cond_seq_linear", { "context_embedder" }, 0 },
    { "t_embedder.mlp.0", { "time_step_proj.linear_1" }, 0 },
    { "t_embedder.mlp.2", { "time_step_proj.linear_2" }, 0 },
    { "modF.1", { "norm_out.linear" }, 1 },
    { "final_linear", { "proj_out" }, 0 },
    { "double_layers.#.attn.w1q", { DOUBLE "attn.add_q_proj" }, 0 },
    { "double_layers.#.attn.w1k", { DOUBLE "attn.add_k_proj" }, 0 },
    { "double_layers.#.attn.w1v", { DOUBLE "attn.add_v_proj" }, 0 },
    { "double_layers.#.attn.w1o", { DOUBLE "attn.to_add_out" }, 0 },
    { "double_layers.#.attn.w2q", { DOUBLE "attn.to_q" }, 0 },
    { "double_layers.#.attn.w2k", { DOUBLE "attn.to_k" }, 0 },
    { "double_layers.#.attn.w2v", { DOUBLE "attn.to_v" }, 0 },
    { "double_layers.#.attn.w2o", { DOUBLE "attn.to_out.0" }, 0 },
    { "double_layers.#.mlpC.c_fc1", { DOUBLE "ff_context.linear_1" }, 0 },
    { "double_layers.#.mlpC.c_fc2", { DOUBLE "ff_context.linear_2" }, 0 },
    { "double_layers.#.mlpC.c_proj", { DOUBLE "ff_context.out_projection" }, 0 },
    { "double_layers.#.mlpX.c_fc1", { DOUBLE "ff.linear_1" }, 0 },
    { "double_layers.#.mlpX.c_fc2", { DOUBLE "ff.linear_2" }, 0 },
    { "double_layers.#.mlpX.c_proj", { DOUBLE "ff.out_projection" }, 0 },
    { "double_layers.#.modC.1", { DOUBLE "norm1_context.linear" }, 0 },
    { "double_layers.#.modX.1", { DOUBLE "norm1.linear" }, 0 },
    { "single_layers.#.attn.w1q", { SINGLE "attn.to_q" }, 0 },
    { "single_layers.#.attn.w1k", { SINGLE "attn.to_k" }, 0 },
    { "single_layers.#.attn.w1v", { SINGLE "attn.to_v" }, 0 },
    { "single_layers.#.attn.w1o", { SINGLE "attn.to_out.0" }, 0 },
    { "single_layers.#.mlp.c_fc1", { SINGLE "ff.linear_1" }, 0 },
    { "single_layers.#.mlp.c_fc2", { SINGLE "ff.linear_2" }, 0 },
    { "single_layers.#.mlp.c_proj", { SINGLE "ff.out_projection" }, 0 },
    { "single_layers.#.modCX.1", { SINGLE "norm1.linear" }, 0 },
    { NULL, { NULL }, 0 },
};

/* The blocks of one list. */
#define BLOCKS(list)                                                                               \
    { list ".#.attention.qkv",                                                                     \
      { list ".#.attention.to_q", list ".#.attention.to_k", list ".#.attention.to_v" }, 0 },       \
    { list ".#.attention.out", { list ".#.attention.to_out.0" }, 0 },                              \
    { list ".#.attention.q_norm", { list ".#.attention.norm_q" }, 0 },                             \
    { list ".#.attention.k_norm", { list ".#.attention.norm_k" }, 0 },                             \
    { list ".#.feed_forward.w1", { list ".#.feed_forward.w1" }, 0 },                               \
    { list ".#.feed_forward.w2", { list ".#.feed_forward.w2" }, 0 },                               \
    { list ".#.feed_forward.w3", { list ".#.feed_forward.w3" }, 0 },                               \
    { list ".#.attention_norm1", { list ".#.attention_norm1" }, 0 },                               \
    { list ".#.attention_norm2", { list ".#.attention_norm2" }, 0 },                               \
    { list ".#.ffn_norm1", { list ".#.ffn_norm1" }, 0 },                                           \
    { list ".#.ffn_norm2", { list ".#.ffn_norm2" }, 0 },                                           \
    { list ".#.adaLN_modulation.0", { list ".#.adaLN_modulation.0" }, 0 }

static const row zimage[] = {
    { "x_embedder", { "all_x_embedder.2-1" }, 0 },
    { "final_layer.linear", { "all_final_layer.2-1.linear" }, 0 },
    { "final_layer.adaLN_modulation.1", { "all_final_layer.2-1.adaLN_modulation.1" }, 0 },
    { "cap_embedder.0", { "cap_embedder.0" }, 0 },
    { "cap_embedder.1", { "cap_embedder.1" }, 0 },
    { "t_embedder.mlp.0", { "t_embedder.mlp.0" }, 0 },
    { "t_embedder.mlp.2", { "t_embedder.mlp.2" }, 0 },
    { "x_pad_token", { "x_pad_token" }, 0 },
    { "cap_pad_token", { "cap_pad_token" }, 0 },
    BLOCKS("noise_refiner"),
    BLOCKS("context_refiner"),
    BLOCKS("layers"),
    { NULL, { NULL }, 0 },
};

/* The blocks of one list: `first` is the norm before attention. */
#define LUMINA(list, first)                                                                        \
    { list ".#.attention.qkv", { list ".#.attn.to_q", list ".#.attn.to_k", list ".#.attn.to_v" },  \
      0 },                                                                                         \
    { list ".#.attention.out", { list ".#.attn.to_out.0" }, 0 },                                   \
    { list ".#.attention.q_norm", { list ".#.attn.norm_q" }, 0 },                                  \
    { list ".#.attention.k_norm", { list ".#.attn.norm_k" }, 0 },                                  \
    { list ".#.feed_forward.w1", { list ".#.feed_forward.linear_1" }, 0 },                         \
    { list ".#.feed_forward.w2", { list ".#.feed_forward.linear_2" }, 0 },                         \
    { list ".#.feed_forward.w3", { list ".#.feed_forward.linear_3" }, 0 },                         \
    { list ".#.attention_norm1", { list ".#." first }, 0 },                                        \
    { list ".#.attention_norm2", { list ".#.norm2" }, 0 },                                         \
    { list ".#.ffn_norm1", { list ".#.ffn_norm1" }, 0 },                                           \
    { list ".#.ffn_norm2", { list ".#.ffn_norm2" }, 0 },                                           \
    { list ".#.adaLN_modulation.1", { list ".#.norm1.linear" }, 0 }

static const row lumina2[] = {
    { "x_embedder", { "x_embedder" }, 0 },
    { "final_layer.linear", { "norm_out.linear_2" }, 0 },
    { "final_layer.adaLN_modulation.1", { "norm_out.linear_1" }, 0 },
    { "cap_embedder.0", { "time_caption_embed.caption_embedder.0" }, 0 },
    { "cap_embedder.1", { "time_caption_embed.caption_embedder.1" }, 0 },
    { "t_embedder.mlp.0", { "time_caption_embed.timestep_embedder.linear_1" }, 0 },
    { "t_embedder.mlp.2", { "time_caption_embed.timestep_embedder.linear_2" }, 0 },
    LUMINA("noise_refiner", "norm1.norm"),
    LUMINA("context_refiner", "norm1"),
    LUMINA("layers", "norm1.norm"),
    { NULL, { NULL }, 0 },
};

/* The blocks of one list. */
#define KREA(list, from)                                                                           \
    { list ".#.attn.wq", { from ".#.attn.to_q" }, 0 },                                             \
    { list ".#.attn.wk", { from ".#.attn.to_k" }, 0 },                                             \
    { list ".#.attn.wv", { from ".#.attn.to_v" }, 0 },                                             \
    { list ".#.attn.gate", { from ".#.attn.to_gate" }, 0 },                                        \
    { list ".#.attn.wo", { from ".#.attn.to_out.0" }, 0 },                                         \
    { list ".#.mlp.gate", { from ".#.ff.gate" }, 0 },                                              \
    { list ".#.mlp.up", { from ".#.ff.up" }, 0 },                                                  \
    { list ".#.mlp.down", { from ".#.ff.down" }, 0 },                                              \
    { list ".#.attn.qknorm.qnorm.scale", { from ".#.attn.norm_q.weight" }, 0 },                    \
    { list ".#.attn.qknorm.knorm.scale", { from ".#.attn.norm_k.weight" }, 0 },                    \
    { list ".#.prenorm.scale", { from ".#.norm1.weight" }, 0 },                                    \
    { list ".#.postnorm.scale", { from ".#.norm2.weight" }, 0 }

static const row krea2[] = {
    { "first", { "img_in" }, 0 },
    { "tmlp.0", { "time_embed.linear_1" }, 0 },
    { "tmlp.2", { "time_embed.linear_2" }, 0 },
    { "tproj.1", { "time_mod_proj" }, 0 },
    { "txtmlp.0.scale", { "txt_in.norm.weight" }, 0 },
    { "txtmlp.1", { "txt_in.linear_1" }, 0 },
    { "txtmlp.3", { "txt_in.linear_2" }, 0 },
    { "txtfusion.projector", { "text_fusion.projector" }, 0 },
    { "last.linear", { "final_layer.linear" }, 0 },
    { "last.norm.scale", { "final_layer.norm.weight" }, 0 },
    { "last.modulation.lin", { "final_layer.scale_shift_table" }, 0 },
    { "blocks.#.mod.lin", { "transformer_blocks.#.scale_shift_table" }, 0 },
    KREA("txtfusion.layerwise_blocks", "text_fusion.layerwise_blocks"),
    KREA("txtfusion.refiner_blocks", "text_fusion.refiner_blocks"),
    KREA("blocks", "transformer_blocks"),
    { NULL, { NULL }, 0 },
};

static const row qwen21[] = {
    { "img_in", { "img_in" }, 0 },
    { "txt_in.text_norm", { "txt_in.text_norm" }, 0 },
    { "txt_in.in_layer", { "txt_in.in_layer" }, 0 },
    { "txt_in.out_layer", { "txt_in.out_layer" }, 0 },
    { "time_text_embed.timestep_embedder.linear_1",
      { "time_text_embed.timestep_embedder.linear_1" },
      0 },
    { "time_text_embed.timestep_embedder.linear_2",
      { "time_text_embed.timestep_embedder.linear_2" },
      0 },
    { "modulation.1", { "modulation.1" }, 0 },
    { "norm_out.linear", { "norm_out.linear" }, 0 },
    { "proj_out", { "proj_out" }, 0 },
    { "transformer_blocks.#.attn.to_q", { "transformer_blocks.#.attn.to_q" }, 0 },
    { "transformer_blocks.#.attn.to_k", { "transformer_blocks.#.attn.to_k" }, 0 },
    { "transformer_blocks.#.attn.to_v", { "transformer_blocks.#.attn.to_v" }, 0 },
    { "transformer_blocks.#.attn.to_out.0", { "transformer_blocks.#.attn.to_out.0" }, 0 },
    { "transformer_blocks.#.attn.norm_q", { "transformer_blocks.#.attn.norm_q" }, 0 },
    { "transformer_blocks.#.attn.norm_k", { "transformer_blocks.#.attn.norm_k" }, 0 },
    { "transformer_blocks.#.img_mlp.gate_up",
      { "transformer_blocks.#.img_mlp.gate_layer", "transformer_blocks.#.img_mlp.proj" },
      0 },
    { "transformer_blocks.#.img_mlp.out", { "transformer_blocks.#.img_mlp.out" }, 0 },
    { NULL, { NULL }, 0 },
};

static const row ltx[] = {
    { "patchify_proj", { "proj_in" }, 0 },
    { "adaln_single.emb.timestep_embedder.linear_1",
      { "time_embed.emb.timestep_embedder.linear_1" },
      0 },
    { "adaln_single.emb.timestep_embedder.linear_2",
      { "time_embed.emb.timestep_embedder.linear_2" },
      0 },
    { "adaln_single.linear", { "time_embed.linear" }, 0 },
    { "caption_projection.linear_1", { "caption_projection.linear_1" }, 0 },
    { "caption_projection.linear_2", { "caption_projection.linear_2" }, 0 },
    { "scale_shift_table", { "scale_shift_table" }, 0 },
    { "proj_out", { "proj_out" }, 0 },
    { "transformer_blocks.#.scale_shift_table", { "transformer_blocks.#.scale_shift_table" }, 0 },
    { "transformer_blocks.#.attn1.q_norm", { "transformer_blocks.#.attn1.norm_q" }, 0 },
    { "transformer_blocks.#.attn1.k_norm", { "transformer_blocks.#.attn1.norm_k" }, 0 },
    { "transformer_blocks.#.attn2.q_norm", { "transformer_blocks.#.attn2.norm_q" }, 0 },
    { "transformer_blocks.#.attn2.k_norm", { "transformer_blocks.#.attn2.norm_k" }, 0 },
    { "transformer_blocks.#.attn1.to_q", { "transformer_blocks.#.attn1.to_q" }, 0 },
    { "transformer_blocks.#.attn1.to_k", { "transformer_blocks.#.attn1.to_k" }, 0 },
    { "transformer_blocks.#.attn1.to_v", { "transformer_blocks.#.attn1.to_v" }, 0 },
    { "transformer_blocks.#.attn1.to_out.0", { "transformer_blocks.#.attn1.to_out.0" }, 0 },
    { "transformer_blocks.#.attn2.to_q", { "transformer_blocks.#.attn2.to_q" }, 0 },
    { "transformer_blocks.#.attn2.to_k", { "transformer_blocks.#.attn2.to_k" }, 0 },
    { "transformer_blocks.#.attn2.to_v", { "transformer_blocks.#.attn2.to_v" }, 0 },
    { "transformer_blocks.#.attn2.to_out.0", { "transformer_blocks.#.attn2.to_out.0" }, 0 },
    { "transformer_blocks.#.ff.net.0.proj", { "transformer_blocks.#.ff.net.0.proj" }, 0 },
    { "transformer_blocks.#.ff.net.2", { "transformer_blocks.#.ff.net.2" }, 0 },
    { NULL, { NULL }, 0 },
};

#define LTX_RES(to, from)                                                                          \
    { to ".conv1.conv", { from ".conv1.conv" }, 0 },                                               \
        { to ".conv2.conv", { from ".conv2.conv" }, 0 },                                           \
        { to ".norm3.norm", { from ".norm3" }, 0 },                                                \
        { to ".conv_shortcut", { from ".conv_shortcut.conv" }, 0 },                                \
        { to ".per_channel_scale1", { from ".per_channel_scale1" }, 0 },                           \
        { to ".per_channel_scale2", { from ".per_channel_scale2" }, 0 },                           \
        { to ".scale_shift_table", { from ".scale_shift_table" }, 0 }
#define LTX_TIME(to, from)                                                                         \
    { to ".timestep_embedder.linear_1", { from ".timestep_embedder.linear_1" }, 0 },               \
        { to ".timestep_embedder.linear_2", { from ".timestep_embedder.linear_2" }, 0 }
#define LTX_BLOCKS(half, to, from)                                                                 \
    LTX_RES(half "_blocks." to ".res_blocks.#", from ".resnets.#"),                                \
        LTX_TIME(half "_blocks." to ".time_embedder", from ".time_embedder")
#define LTX_MOVE(half, to, from) { half "_blocks." to ".conv", { from ".0.conv" }, 0 }
#define LTX_MOVES(half, to, from) { half "_blocks." to ".conv.conv", { from ".0.conv.conv" }, 0 }
#define LTX_DOWN(l) "encoder.down_blocks." l
#define LTX_UP(l) "decoder.up_blocks." l
#define LTX_ENDS                                                                                   \
    { "encoder.conv_in.conv", { "encoder.conv_in.conv" }, 0 },                                     \
        { "encoder.conv_out.conv", { "encoder.conv_out.conv" }, 0 },                               \
        { "decoder.conv_in.conv", { "decoder.conv_in.conv" }, 0 },                                 \
        { "decoder.conv_out.conv", { "decoder.conv_out.conv" }, 0 },                               \
        { "per_channel_statistics.mean-of-means", { "latents_mean" }, 0 },                         \
        { "per_channel_statistics.std-of-means", { "latents_std" }, 0 }, { NULL, { NULL }, 0 }

/* The autoencoder of LTX-Video 0.9.0. */
static const row ltx_vae[] = {
    LTX_BLOCKS("encoder.down", "0", LTX_DOWN("0")),
    LTX_MOVE("encoder.down", "1", LTX_DOWN("0") ".downsamplers"),
    LTX_RES("encoder.down_blocks.2", LTX_DOWN("0") ".conv_out"),
    LTX_BLOCKS("encoder.down", "3", LTX_DOWN("1")),
    LTX_MOVE("encoder.down", "4", LTX_DOWN("1") ".downsamplers"),
    LTX_RES("encoder.down_blocks.5", LTX_DOWN("1") ".conv_out"),
    LTX_BLOCKS("encoder.down", "6", LTX_DOWN("2")),
    LTX_MOVE("encoder.down", "7", LTX_DOWN("2") ".downsamplers"),
    LTX_BLOCKS("encoder.down", "8", LTX_DOWN("3")),
    LTX_BLOCKS("encoder.down", "9", "encoder.mid_block"),
    LTX_BLOCKS("decoder.up", "0", "decoder.mid_block"),
    LTX_BLOCKS("decoder.up", "1", LTX_UP("0")),
    LTX_MOVES("decoder.up", "2", LTX_UP("1") ".upsamplers"),
    LTX_BLOCKS("decoder.up", "3", LTX_UP("1")),
    LTX_RES("decoder.up_blocks.4", LTX_UP("2") ".conv_in"),
    LTX_MOVES("decoder.up", "5", LTX_UP("2") ".upsamplers"),
    LTX_BLOCKS("decoder.up", "6", LTX_UP("2")),
    LTX_RES("decoder.up_blocks.7", LTX_UP("3") ".conv_in"),
    LTX_MOVES("decoder.up", "8", LTX_UP("3") ".upsamplers"),
    LTX_BLOCKS("decoder.up", "9", LTX_UP("3")),
    LTX_ENDS,
};

/* The autoencoder of LTX-Video 0.9.5, whose decoder reads a timestep. */
static const row ltx_vae_timed[] = {
    LTX_BLOCKS("encoder.down", "0", LTX_DOWN("0")),
    LTX_MOVES("encoder.down", "1", LTX_DOWN("0") ".downsamplers"),
    LTX_BLOCKS("encoder.down", "2", LTX_DOWN("1")),
    LTX_MOVES("encoder.down", "3", LTX_DOWN("1") ".downsamplers"),
    LTX_BLOCKS("encoder.down", "4", LTX_DOWN("2")),
    LTX_MOVES("encoder.down", "5", LTX_DOWN("2") ".downsamplers"),
    LTX_BLOCKS("encoder.down", "6", LTX_DOWN("3")),
    LTX_MOVES("encoder.down", "7", LTX_DOWN("3") ".downsamplers"),
    LTX_BLOCKS("encoder.down", "8", "encoder.mid_block"),
    LTX_BLOCKS("decoder.up", "0", "decoder.mid_block"),
    LTX_MOVES("decoder.up", "1", LTX_UP("0") ".upsamplers"),
    LTX_BLOCKS("decoder.up", "2", LTX_UP("0")),
    LTX_MOVES("decoder.up", "3", LTX_UP("1") ".upsamplers"),
    LTX_BLOCKS("decoder.up", "4", LTX_UP("1")),
    LTX_MOVES("decoder.up", "5", LTX_UP("2") ".upsamplers"),
    LTX_BLOCKS("decoder.up", "6", LTX_UP("2")),
    LTX_TIME("decoder.last_time_embedder", "decoder.time_embedder"),
    { "decoder.last_scale_shift_table", { "decoder.scale_shift_table" }, 0 },
    { "decoder.timestep_scale_multiplier", { "decoder.timestep_scale_multiplier" }, 0 },
    LTX_ENDS,
};

static const row mochi[] = {
    { "x_embedder.proj", { "patch_embed.proj" }, 0 },
    { "pos_frequencies", { "pos_frequencies" }, 0 },
    { "t_embedder.mlp.0", { "time_embed.timestep_embedder.linear_1" }, 0 },
    { "t_embedder.mlp.2", { "time_embed.timestep_embedder.linear_2" }, 0 },
    { "t5_y_embedder.to_q", { "time_embed.pooler.to_q" }, 0 },
    { "t5_y_embedder.to_kv", { "time_embed.pooler.to_kv" }, 0 },
    { "t5_y_embedder.to_out", { "time_embed.pooler.to_out" }, 0 },
    { "t5_yproj", { "time_embed.caption_proj" }, 0 },
    { "final_layer.mod", { "norm_out.linear" }, 1 },
    { "final_layer.linear", { "proj_out" }, 0 },
    { "blocks.#.mod_x", { "transformer_blocks.#.norm1.linear" }, 0 },
    { "blocks.#.mod_y", { "transformer_blocks.#.norm1_context.linear" }, 0 },
    { "blocks.#.mod_y", { "transformer_blocks.#.norm1_context.linear_1" }, 0 },
    { "blocks.#.attn.q_norm_x", { "transformer_blocks.#.attn1.norm_q" }, 0 },
    { "blocks.#.attn.k_norm_x", { "transformer_blocks.#.attn1.norm_k" }, 0 },
    { "blocks.#.attn.q_norm_y", { "transformer_blocks.#.attn1.norm_added_q" }, 0 },
    { "blocks.#.attn.k_norm_y", { "transformer_blocks.#.attn1.norm_added_k" }, 0 },
    { "blocks.#.attn.proj_x", { "transformer_blocks.#.attn1.to_out.0" }, 0 },
    { "blocks.#.attn.proj_y", { "transformer_blocks.#.attn1.to_add_out" }, 0 },
    { "blocks.#.mlp_x.w1", { "transformer_blocks.#.ff.net.0.proj" }, 1 },
    { "blocks.#.mlp_x.w2", { "transformer_blocks.#.ff.net.2" }, 0 },
    { "blocks.#.mlp_y.w1", { "transformer_blocks.#.ff_context.net.0.proj" }, 1 },
    { "blocks.#.mlp_y.w2", { "transformer_blocks.#.ff_context.net.2" }, 0 },
    { "blocks.#.attn.qkv_x",
      { "transformer_blocks.#.attn1.to_q", "transformer_blocks.#.attn1.to_k",
        "transformer_blocks.#.attn1.to_v" },
      0 },
    { "blocks.#.attn.qkv_y",
      { "transformer_blocks.#.attn1.add_q_proj", "transformer_blocks.#.attn1.add_k_proj",
        "transformer_blocks.#.attn1.add_v_proj" },
      0 },
    { NULL, { NULL }, 0 },
};

#define HYV(n) "context_embedder." n
static const row hunyuanvideo[] = {
    { "img_in.proj", { "x_embedder.proj" }, 0 },
    { "txt_in.input_embedder", { HYV("proj_in") }, 0 },
    { "txt_in.t_embedder.mlp.0", { HYV("time_text_embed.timestep_embedder.linear_1") }, 0 },
    { "txt_in.t_embedder.mlp.2", { HYV("time_text_embed.timestep_embedder.linear_2") }, 0 },
    { "txt_in.c_embedder.linear_1", { HYV("time_text_embed.text_embedder.linear_1") }, 0 },
    { "txt_in.c_embedder.linear_2", { HYV("time_text_embed.text_embedder.linear_2") }, 0 },
    { "time_in.mlp.0", { "time_text_embed.timestep_embedder.linear_1" }, 0 },
    { "time_in.mlp.2", { "time_text_embed.timestep_embedder.linear_2" }, 0 },
    { "guidance_in.mlp.0", { "time_text_embed.guidance_embedder.linear_1" }, 0 },
    { "guidance_in.mlp.2", { "time_text_embed.guidance_embedder.linear_2" }, 0 },
    { "vector_in.in_layer", { "time_text_embed.text_embedder.linear_1" }, 0 },
    { "vector_in.out_layer", { "time_text_embed.text_embedder.linear_2" }, 0 },
    { "final_layer.linear", { "proj_out" }, 0 },
    { "final_layer.adaLN_modulation.1", { "norm_out.linear" }, 1 },
#define REFINE(n) HYV("token_refiner.refiner_blocks.#." n)
#define REFINED "txt_in.individual_token_refiner.blocks.#."
    { REFINED "norm1", { REFINE("norm1") }, 0 },
    { REFINED "norm2", { REFINE("norm2") }, 0 },
    { REFINED "self_attn_qkv",
      { REFINE("attn.to_q"), REFINE("attn.to_k"), REFINE("attn.to_v") },
      0 },
    { REFINED "self_attn_proj", { REFINE("attn.to_out.0") }, 0 },
    { REFINED "mlp.fc1", { REFINE("ff.net.0.proj") }, 0 },
    { REFINED "mlp.fc2", { REFINE("ff.net.2") }, 0 },
    { REFINED "adaLN_modulation.1", { REFINE("norm_out.linear") }, 0 },
#define BOTH(n) "transformer_blocks.#." n
    { "double_blocks.#.img_mod.linear", { BOTH("norm1.linear") }, 0 },
    { "double_blocks.#.txt_mod.linear", { BOTH("norm1_context.linear") }, 0 },
    { "double_blocks.#.img_attn_qkv",
      { BOTH("attn.to_q"), BOTH("attn.to_k"), BOTH("attn.to_v") },
      0 },
    { "double_blocks.#.txt_attn_qkv",
      { BOTH("attn.add_q_proj"), BOTH("attn.add_k_proj"), BOTH("attn.add_v_proj") },
      0 },
    { "double_blocks.#.img_attn_q_norm", { BOTH("attn.norm_q") }, 0 },
    { "double_blocks.#.img_attn_k_norm", { BOTH("attn.norm_k") }, 0 },
    { "double_blocks.#.txt_attn_q_norm", { BOTH("attn.norm_added_q") }, 0 },
    { "double_blocks.#.txt_attn_k_norm", { BOTH("attn.norm_added_k") }, 0 },
    { "double_blocks.#.img_attn_proj", { BOTH("attn.to_out.0") }, 0 },
    { "double_blocks.#.txt_attn_proj", { BOTH("attn.to_add_out") }, 0 },
    { "double_blocks.#.img_mlp.fc1", { BOTH("ff.net.0.proj") }, 0 },
    { "double_blocks.#.img_mlp.fc2", { BOTH("ff.net.2") }, 0 },
    { "double_blocks.#.txt_mlp.fc1", { BOTH("ff_context.net.0.proj") }, 0 },
    { "double_blocks.#.txt_mlp.fc2", { BOTH("ff_context.net.2") }, 0 },
#define ONE(n) "single_transformer_blocks.#." n
    { "single_blocks.#.linear1",
      { ONE("attn.to_q"), ONE("attn.to_k"), ONE("attn.to_v"), ONE("proj_mlp") },
      0 },
    { "single_blocks.#.linear2", { ONE("proj_out") }, 0 },
    { "single_blocks.#.modulation.linear", { ONE("norm.linear") }, 0 },
    { "single_blocks.#.q_norm", { ONE("attn.norm_q") }, 0 },
    { "single_blocks.#.k_norm", { ONE("attn.norm_k") }, 0 },
    { NULL, { NULL }, 0 },
};

/* What HunyuanVideo-1.5 has beside these names. */
static const row hunyuanvideo15[] = {
    { "byt5_in.layernorm", { "context_embedder_2.norm" }, 0 },
    { "byt5_in.fc1", { "context_embedder_2.linear_1" }, 0 },
    { "byt5_in.fc2", { "context_embedder_2.linear_2" }, 0 },
    { "byt5_in.fc3", { "context_embedder_2.linear_3" }, 0 },
    { "vision_in.proj.0", { "image_embedder.norm_in" }, 0 },
    { "vision_in.proj.1", { "image_embedder.linear_1" }, 0 },
    { "vision_in.proj.3", { "image_embedder.linear_2" }, 0 },
    { "vision_in.proj.4", { "image_embedder.norm_out" }, 0 },
    { "cond_type_embedding", { "cond_type_embed" }, 0 },
    { "time_in.mlp.0", { "time_embed.timestep_embedder.linear_1" }, 0 },
    { "time_in.mlp.2", { "time_embed.timestep_embedder.linear_2" }, 0 },
    { "time_r_in.mlp.0", { "time_embed.timestep_embedder_r.linear_1" }, 0 },
    { "time_r_in.mlp.2", { "time_embed.timestep_embedder_r.linear_2" }, 0 },
    { NULL, { NULL }, 0 },
};

/* Queries, keys and values apart, as Tencent's files have them. */
static const row hunyuanvideo15_apart[] = {
    { "double_blocks.#.img_attn_q", { BOTH("attn.to_q") }, 0 },
    { "double_blocks.#.img_attn_k", { BOTH("attn.to_k") }, 0 },
    { "double_blocks.#.img_attn_v", { BOTH("attn.to_v") }, 0 },
    { "double_blocks.#.txt_attn_q", { BOTH("attn.add_q_proj") }, 0 },
    { "double_blocks.#.txt_attn_k", { BOTH("attn.add_k_proj") }, 0 },
    { "double_blocks.#.txt_attn_v", { BOTH("attn.add_v_proj") }, 0 },
    { NULL, { NULL }, 0 },
};

#define HY15_RES(to, from)                                                            \
    { to ".norm1.gamma", { from ".norm1.gamma" }, 0 },                                \
        { to ".norm2.gamma", { from ".norm2.gamma" }, 0 },                            \
        { to ".conv1.conv", { from ".conv1.conv" }, 0 },                              \
        { to ".conv2.conv", { from ".conv2.conv" }, 0 }
#define HY15_LEVEL(half, way, l)                                                      \
    HY15_RES(half "." way "." l ".block.#", half "." way "_blocks." l ".resnets.#"),  \
        { half "." way "." l "." way "sample.conv.conv",                              \
          { half "." way "_blocks." l "." way "samplers.0.conv.conv" },               \
          0 }
#define HY15_ATTN(half, to, from)                                                     \
    { half ".mid.attn_1." to, { half ".mid_block.attentions.0." from }, 0 }
#define HY15_HALF(half, way)                                                          \
    { half ".conv_in.conv", { half ".conv_in.conv" }, 0 },                            \
        { half ".conv_out.conv", { half ".conv_out.conv" }, 0 },                      \
        { half ".norm_out.gamma", { half ".norm_out.gamma" }, 0 },                    \
        HY15_RES(half ".mid.block_1", half ".mid_block.resnets.0"),                   \
        HY15_RES(half ".mid.block_2", half ".mid_block.resnets.1"),                   \
        HY15_ATTN(half, "norm.gamma", "norm.gamma"), HY15_ATTN(half, "q", "to_q"),    \
        HY15_ATTN(half, "k", "to_k"), HY15_ATTN(half, "v", "to_v"),                   \
        HY15_ATTN(half, "proj_out", "proj_out"), HY15_LEVEL(half, way, "0"),          \
        HY15_LEVEL(half, way, "1"), HY15_LEVEL(half, way, "2"),                       \
        HY15_LEVEL(half, way, "3"), HY15_LEVEL(half, way, "4")
static const row hunyuanvideo15_vae[] = {
    HY15_HALF("encoder", "down"),
    HY15_HALF("decoder", "up"),
    { NULL, { NULL }, 0 },
};

#define MOCHI_RES(to, from)                                                           \
    { to ".stack.0", { from ".norm1.norm_layer" }, 0 },                               \
        { to ".stack.2", { from ".conv1.conv" }, 0 },                                 \
        { to ".stack.3", { from ".norm2.norm_layer" }, 0 },                           \
        { to ".stack.5", { from ".conv2.conv" }, 0 }
#define MOCHI_UP(to, from)                                                            \
    MOCHI_RES("blocks." to ".blocks.#", "decoder.up_blocks." from ".resnets.#"),      \
        { "blocks." to ".proj", { "decoder.up_blocks." from ".proj" }, 0 }
static const row mochi_vae[] = {
    { "blocks.0.0", { "decoder.conv_in" }, 0 },
    { "output_proj", { "decoder.proj_out" }, 0 },
    MOCHI_RES("blocks.0.1", "decoder.block_in.resnets.0"),
    MOCHI_UP("1", "0"),
    MOCHI_UP("2", "1"),
    MOCHI_UP("3", "2"),
    MOCHI_RES("blocks.4.#", "decoder.block_out.resnets.#"),
    { NULL, { NULL }, 0 },
};

/* The modules of a block, which is of the main list or of VACE's control stream. */
#define WAN_BLOCK(list)                                                             \
    { list ".#.modulation", { list ".#.scale_shift_table" }, 0 },                   \
    { list ".#.self_attn.q", { list ".#.attn1.to_q" }, 0 },                         \
    { list ".#.self_attn.k", { list ".#.attn1.to_k" }, 0 },                         \
    { list ".#.self_attn.v", { list ".#.attn1.to_v" }, 0 },                         \
    { list ".#.self_attn.o", { list ".#.attn1.to_out.0" }, 0 },                     \
    { list ".#.self_attn.norm_q", { list ".#.attn1.norm_q" }, 0 },                  \
    { list ".#.self_attn.norm_k", { list ".#.attn1.norm_k" }, 0 },                  \
    { list ".#.cross_attn.q", { list ".#.attn2.to_q" }, 0 },                        \
    { list ".#.cross_attn.k", { list ".#.attn2.to_k" }, 0 },                        \
    { list ".#.cross_attn.v", { list ".#.attn2.to_v" }, 0 },                        \
    { list ".#.cross_attn.o", { list ".#.attn2.to_out.0" }, 0 },                    \
    { list ".#.cross_attn.norm_q", { list ".#.attn2.norm_q" }, 0 },                 \
    { list ".#.cross_attn.norm_k", { list ".#.attn2.norm_k" }, 0 },                 \
    { list ".#.norm3", { list ".#.norm2" }, 0 },                                    \
    { list ".#.ffn.0", { list ".#.ffn.net.0.proj" }, 0 },                           \
    { list ".#.ffn.2", { list ".#.ffn.net.2" }, 0 }

static const row wan[] = {
    { "patch_embedding", { "patch_embedding" }, 0 },
    { "vace_patch_embedding", { "vace_patch_embedding" }, 0 },
    { "time_embedding.0", { "condition_embedder.time_embedder.linear_1" }, 0 },
    { "time_embedding.2", { "condition_embedder.time_embedder.linear_2" }, 0 },
    { "time_projection.1", { "condition_embedder.time_proj" }, 0 },
    { "text_embedding.0", { "condition_embedder.text_embedder.linear_1" }, 0 },
    { "text_embedding.2", { "condition_embedder.text_embedder.linear_2" }, 0 },
    { "img_emb.proj.0", { "condition_embedder.image_embedder.norm1" }, 0 },
    { "img_emb.proj.1", { "condition_embedder.image_embedder.ff.net.0.proj" }, 0 },
    { "img_emb.proj.3", { "condition_embedder.image_embedder.ff.net.2" }, 0 },
    { "img_emb.proj.4", { "condition_embedder.image_embedder.norm2" }, 0 },
    { "img_emb.emb_pos", { "condition_embedder.image_embedder.pos_embed" }, 0 },
    { "head.modulation", { "scale_shift_table" }, 0 },
    { "head.head", { "proj_out" }, 0 },
    { "fps_embedding", { "fps_embedding" }, 0 },
    { "fps_projection.0", { "fps_projection.net.0.proj" }, 0 },
    { "fps_projection.2", { "fps_projection.net.2" }, 0 },
    { "blocks.#.cross_attn.k_img", { "blocks.#.attn2.add_k_proj" }, 0 },
    { "blocks.#.cross_attn.v_img", { "blocks.#.attn2.add_v_proj" }, 0 },
    { "blocks.#.cross_attn.norm_k_img", { "blocks.#.attn2.norm_added_k" }, 0 },
    WAN_BLOCK("blocks"),
    WAN_BLOCK("vace_blocks"),
    { "vace_blocks.#.before_proj", { "vace_blocks.#.proj_in" }, 0 },
    { "vace_blocks.#.after_proj", { "vace_blocks.#.proj_out" }, 0 },
    { NULL, { NULL }, 0 },
};

#define LAYER "vision_model.encoder.layers.#."
#define BLOCK "visual.transformer.resblocks.#."
#define OPEN_CLIP_BLOCK(to, from) \
    { to "ln_1", { from "layer_norm1" }, 0 }, \
    { to "ln_2", { from "layer_norm2" }, 0 }, \
    { to "attn.in_proj_weight", \
      { from "self_attn.q_proj.weight", from "self_attn.k_proj.weight", \
        from "self_attn.v_proj.weight" }, \
      0 }, \
    { to "attn.in_proj_bias", \
      { from "self_attn.q_proj.bias", from "self_attn.k_proj.bias", \
        from "self_attn.v_proj.bias" }, \
      0 }, \
    { to "attn.out_proj", { from "self_attn.out_proj" }, 0 }, \
    { to "mlp.c_fc", { from "mlp.fc1" }, 0 }, \
    { to "mlp.c_proj", { from "mlp.fc2" }, 0 }

static const row open_clip[] = {
    { "visual.class_embedding", { "vision_model.embeddings.class_embedding" }, 0 },
    { "visual.conv1", { "vision_model.embeddings.patch_embedding" }, 0 },
    { "visual.positional_embedding", { "vision_model.embeddings.position_embedding.weight" }, 0 },
    { "visual.ln_pre", { "vision_model.pre_layrnorm" }, 0 },
    OPEN_CLIP_BLOCK(BLOCK, LAYER),
    { NULL, { NULL }, 0 },
};

/* ---- the box ------------------------------------------------------------------------------ */

static void put(box *b, const char *prefix, const char *name, xd_tensor t)
{
    char *full = malloc(strlen(prefix) + strlen(name) + 1);
    if (b->n == BOX_MAX || !full) {
        printf("Bail out! more than %d tensors, or no memory\n", BOX_MAX);
        exit(1);
    }
    sprintf(full, "%s%s", prefix, name);
    b->item[b->n++] = (xd_st_item){ full, t };
}

static void *room(size_t n)
{
    void *p = calloc(n + 1, 1);
    if (!p) {
        printf("Bail out! no memory for %zu bytes\n", n);
        exit(1);
    }
    return p;
}

void box_add(box *b, const char *name, xd_dtype type, int nd, const int64_t *d)
{
    xd_tensor t = xd_view(NULL, type, nd, d);
    t.p = room(xd_bytes(t));
    put(b, "", name, t);
}

/* The numbers of a matrix over `scale`, in eight bits; of e5m2, which nothing here writes, the
 * upper halves of halves. */
static xd_tensor eight_bits(xd_tensor t, xd_dtype type, float scale)
{
    xd_tensor q = xd_view(room((size_t)xd_count(t)), type, t.nd, t.d);
    for (int64_t i = 0; i < xd_count(t); i++) {
        float v;
        xd_convert(&v, XD_F32, (char *)t.p + (size_t)i * xd_dtype_size(t.type), t.type, 1);
        v /= scale;
        ((uint8_t *)q.p)[i] = type == XD_F8E4M3 ? xd_f32_f8e4m3(v) : (uint8_t)(xd_f32_f16(v) >> 8);
    }
    return q;
}

static xd_tensor meant(xd_tensor q, float scale)
{
    xd_tensor t = xd_view(room((size_t)xd_count(q) * sizeof(float)), XD_F32, q.nd, q.d);
    xd_convert(t.p, XD_F32, q.p, q.type, xd_count(q));
    for (int64_t i = 0; i < xd_count(q); i++)
        ((float *)t.p)[i] *= scale;
    return t;
}

static xd_tensor copy_of(xd_tensor t)
{
    xd_tensor c = xd_view(room(xd_bytes(t)), t.type, t.nd, t.d);
    memcpy(c.p, t.p, xd_bytes(t));
    return c;
}

static void put_scale(box *b, const char *weight, float scale, int k)
{
    char    name[512];
    int64_t one = 1;
    snprintf(name, sizeof name, "%.*s%s", (int)strlen(weight) - 6, weight,
             k == 1 ? "scale_weight" : "weight_scale");
    box_add(b, name, XD_F32, k - 1, &one);
    memcpy(b->item[b->n - 1].t.p, &scale, sizeof scale);
}

int box_fp8(box *b, box *plain, const char *in, xd_dtype type, int most)
{
    static const float scales[3] = { 1.0f, 0.0023f, 0.37f };
    int                n = b->n, done = 0;
    for (int i = 0; i < n; i++) {
        xd_st_item *t = &b->item[i];
        size_t      len = strlen(t->name);
        int         k = done % 3;
        if (t->t.nd != 2 || !strstr(t->name, in) || len < 7 ||
            strcmp(t->name + len - 7, ".weight") || done == most) {
            put(plain, "", t->name, copy_of(t->t));
            continue;
        }
        xd_tensor q = eight_bits(t->t, type, scales[k]);
        put(plain, "", t->name, meant(q, scales[k]));
        free(t->t.p);
        t->t = q;
        if (k)
            put_scale(b, t->name, scales[k], k);
        done++;
    }
    return done;
}

/* The power of 2 that takes numbers up to `most` below 127. */
static float power_for(float most)
{
    int k;
    frexpf(most / 127, &k);
    return ldexpf(1, k);
}

/* Rows as integers; rows [0, n) of `scale` are theirs, and those of a matrix with one scale are
 * equal. */
static xd_tensor integers_of(xd_tensor t, float *scale, int one)
{
    xd_tensor q = xd_view(room((size_t)xd_count(t)), XD_I8, 2, t.d);
    float    *x = room((size_t)xd_count(t) * sizeof *x), most = 0;
    xd_convert(x, XD_F32, t.p, t.type, xd_count(t));
    for (int64_t i = 0; i < xd_count(t); i++) {
        most = i % t.d[1] || one ? fmaxf(most, fabsf(x[i])) : fabsf(x[i]);
        scale[i / t.d[1]] = power_for(most);
    }
    for (int64_t i = 0; i < xd_count(t); i++) {
        float s = scale[one ? t.d[0] - 1 : i / t.d[1]];
        ((int8_t *)q.p)[i] = i % t.d[1] ? (int8_t)lrintf(x[i] / s) : 127;
    }
    scale[0] = one ? scale[t.d[0] - 1] : scale[0];
    free(x);
    return q;
}

static xd_tensor meant_rows(xd_tensor q, const float *scale, int one, int group)
{
    xd_tensor t = xd_view(room((size_t)xd_count(q) * sizeof(float)), XD_F32, 2, q.d);
    for (int64_t i = 0; i < xd_count(q); i++)
        ((float *)t.p)[i] = (float)((int8_t *)q.p)[i] * scale[one ? 0 : i / q.d[1]];
    for (int64_t i = 0; group && i < xd_count(q); i += group)
        xd_rotation((float *)t.p + i, group);
    return t;
}

static void put_note(box *b, const char *weight, int own, int group, xd_text_buf *meta)
{
    char      name[512], note[128];
    const int stem = (int)strlen(weight) - 7;
    int       n = snprintf(note, sizeof note,
                           "{\"format\": \"int8_tensorwise\", \"convrot\": %s, "
                           "\"convrot_groupsize\": %d}",
                           group ? "true" : "false", group);
    if (!own) {
        xd_buf_add(meta, "%s\"%.*s\": %s", meta->len ? ", " : "{\"layers\": {", stem, weight, note);
        return;
    }
    snprintf(name, sizeof name, "%.*s.comfy_quant", stem, weight);
    box_add(b, name, XD_U8, 1, (int64_t[]){ n });
    memcpy(b->item[b->n - 1].t.p, note, (size_t)n);
}

int box_int8(box *b, box *plain, const char *in, int group, char **meta)
{
    xd_text_buf text = { 0 };
    int         n = b->n, done = 0;
    for (int i = 0; i < n; i++) {
        xd_tensor  *t = &b->item[i].t;
        const char *name = b->item[i].name;
        size_t      len = strlen(name);
        char        side[512];
        int         one = done % 3 == 2;
        if (t->nd != 2 || !strstr(name, in) || len < 7 || strcmp(name + len - 7, ".weight")) {
            put(plain, "", name, copy_of(*t));
            continue;
        }
        float    *scale = room((size_t)t->d[0] * sizeof *scale);
        xd_tensor q = integers_of(*t, scale, one);
        put(plain, "", name, meant_rows(q, scale, one, group));
        free(t->p);
        *t = q;
        snprintf(side, sizeof side, "%.*sweight_scale", (int)len - 6, name);
        box_add(b, side, XD_F32, one ? 0 : 2, (int64_t[]){ one ? 1 : q.d[0], 1 });
        memcpy(b->item[b->n - 1].t.p, scale, xd_bytes(b->item[b->n - 1].t));
        free(scale);
        put_note(b, name, done++ % 2, group, &text);
    }
    xd_buf_add(&text, "}}");
    *meta = text.p;
    return done;
}

int box_find(const box *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->item[i].name, name) == 0)
            return i;
    return -1;
}

static void drop_item(box *b, int i)
{
    free(b->item[i].t.p);
    free((char *)(uintptr_t)b->item[i].name);
    b->item[i] = b->item[--b->n];
}

void box_remove(box *b, const char *begin)
{
    for (int i = b->n - 1; i >= 0; i--)
        if (strncmp(b->item[i].name, begin, strlen(begin)) == 0)
            drop_item(b, i);
}

void box_write(const box *b, const char *path)
{
    box_write_meta(b, path, NULL);
}

void box_write_meta(const box *b, const char *path, const char *const *meta)
{
    xd_err e = { 0 };
    must(xd_st_write(path, b->item, b->n, 1, meta, &e), &e, path);
}

void box_free(box *b)
{
    while (b->n)
        drop_item(b, b->n - 1);
}

/* ---- filling it ----------------------------------------------------------------------------- */

/* '#' becomes the number. */
static void fill(const char *pattern, int number, const char *suffix, char out[256])
{
    size_t n = strcspn(pattern, "#");
    if (pattern[n])
        snprintf(out, 256, "%.*s%d%s%s", (int)n, pattern, number, pattern + n + 1, suffix);
    else
        snprintf(out, 256, "%s%s", pattern, suffix);
}

/* The tensors of a row, one below the other; 0 when the model has none of them. */
static int join(xd_st *st, const row *r, int number, const char *suffix, int swap, xd_tensor *out)
{
    int64_t d[XD_MAXDIM] = { 0 };
    size_t  at = 0;
    char   *all = NULL;
    for (int i = 0; i < PARTS && r->from[i]; i++) {
        char      name[256];
        xd_err    e = { 0 };
        xd_tensor t;
        fill(r->from[i], number, suffix, name);
        int64_t k = xd_st_find(st, name);
        if (k < 0)
            return 0;
        must(xd_st_get(st, k, &t, &e), &e, name);
        size_t n = xd_bytes(t), half = swap ? n / 2 : 0;
        all = realloc(all, at + n);
        memcpy(all + at, (char *)t.p + half, n - half);
        memcpy(all + at + n - half, t.p, half);
        at += n;
        int64_t rows = d[0] + t.d[0];
        memcpy(d, t.d, sizeof d);
        d[0] = rows;
        *out = xd_view(all, t.type, t.nd, d);
        xd_st_done(st, k);
    }
    return all != NULL;
}

static int blocks_of(const xd_st *st, const char *pattern)
{
    int n = 0, len = (int)strcspn(pattern, "#");
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        const char *name = xd_st_name(st, i);
        if (strncmp(name, pattern, (size_t)len) == 0 && atoi(name + len) >= n)
            n = atoi(name + len) + 1;
    }
    return n;
}

static void box_rows_of(box *b, const char *folder, const char *file, const char *prefix,
                        const row *rows)
{
    static const char *const suffixes[] = { "", ".weight", ".bias" };
    xd_st                   *st;
    xd_err                   e = { 0 };
    must(xd_st_open(&st, folder, file, &e), &e, folder);
    for (const row *r = rows; r->to; r++) {
        int n = strchr(r->to, '#') ? blocks_of(st, r->from[0]) : 1;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 3; k++) {
                char      name[256];
                xd_tensor t;
                int       swap = r->swap == 1 || (r->swap == 2 && i == n - 1);
                fill(r->to, i, suffixes[k], name);
                if (join(st, r, i, suffixes[k], swap, &t))
                    put(b, prefix, name, t);
            }
    }
    xd_st_close(&st);
}

static void box_rows(box *b, const char *folder, const char *prefix, const row *rows)
{
    box_rows_of(b, folder, "diffusion_pytorch_model", prefix, rows);
}

void box_flux(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, flux);
}

void box_sd3(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, sd3);
}

void box_auraflow(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, auraflow);
}

void box_wan(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, wan);
}

void box_zimage(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, zimage);
}

void box_lumina2(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, lumina2);
}

/* The tables of the blocks have one extent. */
void box_krea2(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, krea2);
    for (int i = 0; i < b->n; i++) {
        xd_tensor  *t = &b->item[i].t;
        const char *end = strstr(b->item[i].name, ".mod.lin");
        if (end && !end[strlen(".mod.lin")])
            *t = xd_view(t->p, t->type, 1, (int64_t[]){ xd_count(*t) });
    }
}

void box_qwen21(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, qwen21);
}

void box_ltx(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, ltx);
}

void box_ltx_vae(box *b, const char *folder, const char *prefix, int timed)
{
    box_rows(b, folder, prefix, timed ? ltx_vae_timed : ltx_vae);
}

void box_mochi(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, mochi);
}

void box_hunyuanvideo(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, hunyuanvideo);
}

void box_hunyuanvideo15(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, hunyuanvideo);
    box_rows(b, folder, prefix, hunyuanvideo15);
}

void box_hunyuanvideo15_apart(box *b, const char *folder, const char *prefix)
{
    box_hunyuanvideo15(b, folder, prefix);
    for (int i = b->n - 1; i >= 0; i--)
        if (strstr(b->item[i].name, "_attn_qkv") && strstr(b->item[i].name, "double_blocks."))
            drop_item(b, i);
    box_rows(b, folder, prefix, hunyuanvideo15_apart);
}

void box_hunyuanvideo15_vae(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, hunyuanvideo15_vae);
}

void box_mochi_vae(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, mochi_vae);
}

void box_flux2(box *b, const char *folder, const char *prefix)
{
    box_rows(b, folder, prefix, flux2);
}

/* ---- the autoencoder ------------------------------------------------------------------------ */

/* In a name, once: `from` becomes `to`. Returns whether it did. */
static int change(char name[256], const char *from, const char *to)
{
    char  out[256];
    char *at = strstr(name, from);
    if (!at)
        return 0;
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
    memcpy(name, out, sizeof out);
    return 1;
}

/* decoder.up counts levels from the finest, up_blocks from the coarsest. */
static void turn_level(char name[256], int levels)
{
    char from[32], to[32];
    for (int i = 0; i < levels; i++) {
        snprintf(from, sizeof from, "up_blocks.%d.", i);
        snprintf(to, sizeof to, "up.%d.", levels - 1 - i);
        if (change(name, from, to))
            return;
    }
}

static void vae_name(char name[256], int levels)
{
    turn_level(name, levels);
    change(name, "down_blocks.", "down.");
    change(name, "mid_block.resnets.0.", "mid.block_1.");
    change(name, "mid_block.resnets.1.", "mid.block_2.");
    change(name, ".resnets.", ".block.");
    change(name, ".downsamplers.0.", ".downsample.");
    change(name, ".upsamplers.0.", ".upsample.");
    change(name, "conv_shortcut", "nin_shortcut");
    change(name, "conv_norm_out", "norm_out");
    if (change(name, "mid_block.attentions.0.", "mid.attn_1.")) {
        change(name, "group_norm", "norm");
        change(name, "to_q", "q");
        change(name, "to_k", "k");
        change(name, "to_v", "v");
        change(name, "to_out.0", "proj_out");
    }
}

static xd_tensor copy(xd_tensor t)
{
    void *p = room(xd_bytes(t));
    memcpy(p, t.p, xd_bytes(t));
    return xd_view(p, t.type, t.nd, t.d);
}

void box_vae(box *b, const char *folder, const char *prefix)
{
    xd_st *st;
    xd_err e = { 0 };
    must(xd_st_open(&st, folder, "diffusion_pytorch_model", &e), &e, folder);
    int levels = blocks_of(st, "decoder.up_blocks.#");
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        char      name[256];
        xd_tensor t;
        must(xd_st_get(st, i, &t, &e), &e, folder);
        snprintf(name, sizeof name, "%s", xd_st_name(st, i));
        vae_name(name, levels);
        t = copy(t);
        if (strstr(name, "attn_1") && t.nd == 2) /* a matrix is stored as a convolution */
            t = xd_view(t.p, t.type, 4, (int64_t[]){ t.d[0], t.d[1], 1, 1 });
        put(b, prefix, name, t);
        xd_st_done(st, i);
    }
    xd_st_close(&st);
}

void box_vae2(box *b, const char *folder, const char *prefix)
{
    size_t len = strlen(prefix);
    int    first = b->n;
    box_vae(b, folder, prefix);
    for (int i = first; i < b->n; i++) {
        const char *name = b->item[i].name + len;
        int         to = strncmp(name, "quant_conv.", 11) == 0;
        char        full[256];
        if (!to && strncmp(name, "post_quant_conv.", 16) != 0)
            continue;
        snprintf(full, sizeof full, "%s%s%s", prefix, to ? "encoder." : "decoder.", name);
        free((char *)(uintptr_t)b->item[i].name);
        b->item[i].name = strdup(full);
    }
}

/* ---- text encoders -------------------------------------------------------------------------- */

static void box_text(box *b, const char *folder, const char *prefix, const char *drop,
                     const char *add)
{
    xd_st *st;
    xd_err e = { 0 };
    must(xd_st_open(&st, folder, "model", &e), &e, folder);
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        const char *name = xd_st_name(st, i);
        char        full[256];
        xd_tensor   t;
        must(xd_st_get(st, i, &t, &e), &e, folder);
        if (strncmp(name, drop, strlen(drop)) == 0)
            name += strlen(drop);
        const char *front = strncmp(name, "text_projection", 15) ? add : "";
        if (strncmp(name, "visual.", 7) == 0) /* a tower stands beside the language model */
            front = strcmp(add, "model.language_model.") == 0 ? "model." : "";
        snprintf(full, sizeof full, "%s%s", front, name);
        put(b, prefix, full, copy(t));
        xd_st_done(st, i);
    }
    xd_st_close(&st);
}

void box_t5(box *b, const char *folder, const char *prefix)
{
    box_text(b, folder, prefix, "", "");
}

void box_clip(box *b, const char *folder, const char *prefix, int long_names)
{
    box_text(b, folder, prefix, "text_model.", long_names ? "text_model." : "");
}

/* The end of a U-Net's name. */
static void unet_end(const char *end, char out[128])
{
    static const char *const ends[][2] = {
        { "norm1.", "in_layers.0." },          { "conv1.", "in_layers.2." },
        { "time_emb_proj.", "emb_layers.1." }, { "norm2.", "out_layers.0." },
        { "conv2.", "out_layers.3." },         { "conv_shortcut.", "skip_connection." },
    };
    snprintf(out, 128, "%s", end);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strncmp(end, ends[i][0], strlen(ends[i][0])) == 0)
            snprintf(out, 128, "%s%s", ends[i][1], end + strlen(ends[i][0]));
}

/* A U-Net's name in the original's order of blocks, n in a level. cross: its level has
 * transformers. */
static void unet_name(const char *name, int n, int cross, char out[256])
{
    static const char *const top[][2] = {
        { "conv_in.", "input_blocks.0.0." },
        { "time_embedding.linear_1.", "time_embed.0." },
        { "time_embedding.linear_2.", "time_embed.2." },
        { "add_embedding.linear_1.", "label_emb.0.0." },
        { "add_embedding.linear_2.", "label_emb.0.2." },
        { "conv_norm_out.", "out.0." },
        { "conv_out.", "out.2." },
    };
    char end[128];
    int  l = 0, j = 0, at = 0, up = name[0] == 'u';
    for (size_t i = 0; i < sizeof top / sizeof *top; i++)
        if (strncmp(name, top[i][0], strlen(top[i][0])) == 0)
            snprintf(out, 256, "%s%s", top[i][1], name + strlen(top[i][0]));
    const char *s = strchr(name, '_') + 1;
    if (sscanf(s, "blocks.%d.resnets.%d.%n", &l, &j, &at) == 2) {
        unet_end(s + at, end);
        snprintf(out, 256, "%s.%d.0.%s", up ? "output_blocks" : "input_blocks", l * n + j + !up,
                 end);
    } else if (sscanf(s, "blocks.%d.attentions.%d.%n", &l, &j, &at) == 2) {
        snprintf(out, 256, "%s.%d.1.%s", up ? "output_blocks" : "input_blocks", l * n + j + !up,
                 s + at);
    } else if (sscanf(s, "blocks.%d.downsamplers.0.conv.%n", &l, &at) == 1 && at) {
        snprintf(out, 256, "input_blocks.%d.0.op.%s", (l + 1) * n, s + at);
    } else if (sscanf(s, "blocks.%d.upsamplers.0.conv.%n", &l, &at) == 1 && at) {
        snprintf(out, 256, "output_blocks.%d.%d.conv.%s", l * n + n - 1, 1 + cross, s + at);
    } else if (sscanf(s, "block.resnets.%d.%n", &j, &at) == 1) {
        unet_end(s + at, end);
        snprintf(out, 256, "middle_block.%d.%s", 2 * j, end);
    } else if (sscanf(s, "block.attentions.0.%n", &at) == 0 && at) {
        snprintf(out, 256, "middle_block.1.%s", s + at);
    }
}

void box_unet(box *b, const char *folder, const char *prefix)
{
    xd_st *st;
    xd_err e = { 0 };
    must(xd_st_open(&st, folder, "diffusion_pytorch_model", &e), &e, folder);
    int n = blocks_of(st, "up_blocks.0.resnets.#");
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        char      name[256] = "", level[64];
        xd_tensor t;
        snprintf(level, sizeof level, "%.11s.attentions.0.norm.weight", xd_st_name(st, i));
        unet_name(xd_st_name(st, i), n, xd_st_find(st, level) >= 0, name);
        must(xd_st_get(st, i, &t, &e), &e, folder);
        put(b, prefix, name, copy(t));
        xd_st_done(st, i);
    }
    xd_st_close(&st);
}

/* Rows of OpenCLIP's text model. */
static const row open_clip_text[] = {
    { "token_embedding", { "text_model.embeddings.token_embedding" }, 0 },
    { "positional_embedding", { "text_model.embeddings.position_embedding.weight" }, 0 },
    { "ln_final", { "text_model.final_layer_norm" }, 0 },
    OPEN_CLIP_BLOCK("transformer.resblocks.#.", "text_model.encoder.layers.#."),
    { NULL, { NULL }, 0 },
};

void box_open_clip(box *b, const char *folder, const char *prefix)
{
    xd_st    *st;
    xd_err    e = { 0 };
    xd_tensor t, to;
    box_rows_of(b, folder, "model", prefix, open_clip_text);
    put(b, prefix, "logit_scale", copy(b->item[0].t));
    must(xd_st_open(&st, folder, "model", &e), &e, folder);
    int64_t i = xd_st_find(st, "text_projection.weight");
    if (i >= 0) { /* the parameter is multiplied from the right, so it is transposed */
        must(xd_st_get(st, i, &t, &e), &e, folder);
        to = copy(t);
        to = xd_view(to.p, to.type, 2, (int64_t[]){ t.d[1], t.d[0] });
        size_t size = xd_dtype_bytes(t.type, 1);
        for (int64_t r = 0; r < t.d[0]; r++)
            for (int64_t c = 0; c < t.d[1]; c++)
                memcpy((char *)to.p + (size_t)(c * t.d[0] + r) * size,
                       (const char *)t.p + (size_t)(r * t.d[1] + c) * size, size);
        put(b, prefix, "text_projection", to);
        xd_st_done(st, i);
    }
    xd_st_close(&st);
}

void box_clip_vision(box *b, const char *folder, int original)
{
    int64_t E = 0;
    if (original)
        box_rows_of(b, folder, "model", "", open_clip);
    else
        box_text(b, folder, "", "", "");
    E = b->item[0].t.d[b->item[0].t.nd - 1];
    box_add(b, original ? "visual.ln_post.weight" : "vision_model.post_layernorm.weight", XD_BF16,
            1, &E);
    box_add(b, original ? "visual.proj" : "visual_projection.weight", XD_BF16, 2,
            (int64_t[]){ E, E });
}

/* What stands before "layers." in the names of a folder's tensors. */
static void first_of(const char *folder, char first[64])
{
    xd_st *st;
    xd_err e = { 0 };
    must(xd_st_open(&st, folder, "model", &e), &e, folder);
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        const char *name = xd_st_name(st, i), *at = strstr(name, "layers.");
        if (at)
            snprintf(first, 64, "%.*s", (int)(at - name), name);
    }
    xd_st_close(&st);
}

void box_lm(box *b, const char *folder, const char *prefix, const char *first)
{
    char drop[64] = "";
    first_of(folder, drop);
    box_text(b, folder, prefix, drop, first);
}
