/* keys.c - lists the names of tensors in single files of Wan (the original files, and ComfyUI's
 * wan2.1_t2v_1.3B_bf16.safetensors), and the names of modules in LoRA files that were trained on
 * these files */
#include "families/wan/keys.h"

#include <stddef.h>

/* Names of the tensors of a block. The norm before cross-attention is called norm3 in the original
 * files; no other norm of a block has gains. */
static const xd_stem wan_block[] = {
    XD_STEM("scale_shift_table", "modulation"),
    XD_STEM("attn1.to_q", "self_attn.q"),
    XD_STEM("attn1.to_k", "self_attn.k"),
    XD_STEM("attn1.to_v", "self_attn.v"),
    XD_STEM("attn1.to_out.0", "self_attn.o"),
    XD_STEM("attn1.norm_q.weight", "self_attn.norm_q.weight"),
    XD_STEM("attn1.norm_k.weight", "self_attn.norm_k.weight"),
    XD_STEM("attn2.to_q", "cross_attn.q"),
    XD_STEM("attn2.to_k", "cross_attn.k"),
    XD_STEM("attn2.to_v", "cross_attn.v"),
    XD_STEM("attn2.to_out.0", "cross_attn.o"),
    XD_STEM("attn2.norm_q.weight", "cross_attn.norm_q.weight"),
    XD_STEM("attn2.norm_k.weight", "cross_attn.norm_k.weight"),
    XD_STEM("attn2.add_k_proj", "cross_attn.k_img"),
    XD_STEM("attn2.add_v_proj", "cross_attn.v_img"),
    XD_STEM("attn2.norm_added_k.weight", "cross_attn.norm_k_img.weight"),
    XD_STEM("norm2", "norm3"),
    XD_STEM("ffn.net.0.proj", "ffn.0"),
    XD_STEM("ffn.net.2", "ffn.2"),
    XD_STEM("proj_in", "before_proj"), /* in the blocks of the control stream */
    XD_STEM("proj_out", "after_proj"),
    XD_STEMS_END,
};

static const xd_stem wan_top[] = {
    XD_STEM("patch_embedding", "patch_embedding"),
    XD_STEM("vace_patch_embedding", "vace_patch_embedding"),
    XD_STEM("condition_embedder.time_embedder.linear_1", "time_embedding.0"),
    XD_STEM("condition_embedder.time_embedder.linear_2", "time_embedding.2"),
    XD_STEM("condition_embedder.time_proj", "time_projection.1"),
    XD_STEM("condition_embedder.text_embedder.linear_1", "text_embedding.0"),
    XD_STEM("condition_embedder.text_embedder.linear_2", "text_embedding.2"),
    XD_STEM("condition_embedder.image_embedder.norm1", "img_emb.proj.0"),
    XD_STEM("condition_embedder.image_embedder.ff.net.0.proj", "img_emb.proj.1"),
    XD_STEM("condition_embedder.image_embedder.ff.net.2", "img_emb.proj.3"),
    XD_STEM("condition_embedder.image_embedder.norm2", "img_emb.proj.4"),
    XD_STEM("condition_embedder.image_embedder.pos_embed", "img_emb.emb_pos"),
    XD_STEM("scale_shift_table", "head.modulation"),
    XD_STEM("proj_out", "head.head"),
    XD_STEM("fps_embedding.weight", "fps_embedding.weight"), /* in SkyReels-V2 */
    XD_STEM("fps_projection.net.0.proj", "fps_projection.0"),
    XD_STEM("fps_projection.net.2", "fps_projection.2"),
    XD_STEMS_END,
};

const xd_key_map xd_wan_key_maps[] = {
    { { "wan-vace" },
      "a Wan VACE transformer in its original layout",
      { "vace_blocks.0.self_attn.q.weight", "time_projection.1.weight" },
      XD_DIT_PREFIXES,
      { { "blocks.#.", "blocks.#.", wan_block },
        { "vace_blocks.#.", "vace_blocks.#.", wan_block },
        { "", "", wan_top } } },
    { { "wan-vace" },
      "a Wan VACE transformer in the layout of diffusers",
      { "condition_embedder.time_proj.weight", "vace_blocks.0.attn1.to_q.weight" },
      XD_DIT_PREFIXES,
      { { "blocks.#.", "blocks.#.", NULL },
        { "vace_blocks.#.", "vace_blocks.#.", NULL },
        { "", "", NULL } } },
    { { "wan-animate" },
      "a Wan Animate transformer in the layout of diffusers",
      { "condition_embedder.time_proj.weight", "face_adapter.0.to_q.weight" },
      XD_DIT_PREFIXES,
      { { "blocks.#.", "blocks.#.", NULL },
        { "face_adapter.#.", "face_adapter.#.", NULL },
        { "", "", NULL } } },
    { { "wan", "skyreels-v2" },
      "a Wan or SkyReels-V2 transformer in its original layout",
      { "blocks.0.self_attn.q.weight", "time_projection.1.weight" },
      XD_DIT_PREFIXES,
      { { "blocks.#.", "blocks.#.", wan_block }, { "", "", wan_top } } },
    { { "wan", "skyreels-v2" },
      "a Wan or SkyReels-V2 transformer in the layout of diffusers",
      { "condition_embedder.time_proj.weight", "blocks.0.attn1.to_q.weight" },
      XD_DIT_PREFIXES,
      { { "blocks.#.", "blocks.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

/* A module of a block, which is in the main list or in VACE's control stream. */
#define MODULE(list, from, to) { list "_#_" from, list "_#_" to }
#define MODULES(list)                                                     \
    MODULE(list, "self_attn_q", "attn1_to_q"),                            \
    MODULE(list, "self_attn_k", "attn1_to_k"),                            \
    MODULE(list, "self_attn_v", "attn1_to_v"),                            \
    MODULE(list, "self_attn_o", "attn1_to_out_0"),                        \
    MODULE(list, "cross_attn_q", "attn2_to_q"),                           \
    MODULE(list, "cross_attn_k", "attn2_to_k"),                           \
    MODULE(list, "cross_attn_v", "attn2_to_v"),                           \
    MODULE(list, "cross_attn_o", "attn2_to_out_0"),                       \
    MODULE(list, "norm3", "norm2"),                                       \
    MODULE(list, "self_attn_norm_q", "attn1_norm_q"),                     \
    MODULE(list, "self_attn_norm_k", "attn1_norm_k"),                     \
    MODULE(list, "cross_attn_norm_q", "attn2_norm_q"),                    \
    MODULE(list, "cross_attn_norm_k", "attn2_norm_k"),                    \
    MODULE(list, "ffn_0", "ffn_net_0_proj"),                              \
    MODULE(list, "ffn_2", "ffn_net_2")

const xd_lora_name xd_wan_lora_names[] = {
    MODULES("blocks"),
    MODULES("vace_blocks"),
    MODULE("blocks", "cross_attn_k_img", "attn2_add_k_proj"),
    MODULE("blocks", "cross_attn_v_img", "attn2_add_v_proj"),
    MODULE("blocks", "cross_attn_norm_k_img", "attn2_norm_added_k"),
    MODULE("vace_blocks", "before_proj", "proj_in"),
    MODULE("vace_blocks", "after_proj", "proj_out"),
    { "time_embedding_0", "condition_embedder_time_embedder_linear_1" },
    { "time_embedding_2", "condition_embedder_time_embedder_linear_2" },
    { "time_projection_1", "condition_embedder_time_proj" },
    { "text_embedding_0", "condition_embedder_text_embedder_linear_1" },
    { "text_embedding_2", "condition_embedder_text_embedder_linear_2" },
    { "img_emb_proj_0", "condition_embedder_image_embedder_norm1" },
    { "img_emb_proj_4", "condition_embedder_image_embedder_norm2" },
    { "img_emb_proj_1", "condition_embedder_image_embedder_ff_net_0_proj" },
    { "img_emb_proj_3", "condition_embedder_image_embedder_ff_net_2" },
    { "head_head", "proj_out" },
    { "fps_projection_0", "fps_projection_net_0_proj" },
    { "fps_projection_2", "fps_projection_net_2" },
    { NULL, NULL },
};
