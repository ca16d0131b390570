/* keys.c - lists the names of tensors in single files of Krea-2 (original code, ComfyUI and GGUF
 * files, such as krea2_turbo_bf16.safetensors), and the names of modules in LoRA files that were
 * trained on these files */
#include "families/krea2/keys.h"

#include <stddef.h>

#define BLOCK                                                                                     \
    XD_STEM("attn.to_q", "attn.wq"), XD_STEM("attn.to_k", "attn.wk"),                             \
    XD_STEM("attn.to_v", "attn.wv"), XD_STEM("attn.to_gate", "attn.gate"),                        \
    XD_STEM("attn.to_out.0", "attn.wo"),                                                          \
    XD_STEM("attn.norm_q.weight", "attn.qknorm.qnorm.scale"),                                     \
    XD_STEM("attn.norm_k.weight", "attn.qknorm.knorm.scale"),                                     \
    XD_STEM("ff.gate", "mlp.gate"), XD_STEM("ff.up", "mlp.up"), XD_STEM("ff.down", "mlp.down"),   \
    XD_STEM("norm1.weight", "prenorm.scale"), XD_STEM("norm2.weight", "postnorm.scale")

static const xd_stem block[] = {
    BLOCK,
    XD_STEM_FOLD("scale_shift_table", "mod.lin", 6),
    XD_STEMS_END,
};
static const xd_stem fusion[] = { BLOCK, XD_STEMS_END };

static const xd_stem top[] = {
    XD_STEM("img_in", "first"),
    XD_STEM("time_embed.linear_1", "tmlp.0"),
    XD_STEM("time_embed.linear_2", "tmlp.2"),
    XD_STEM("time_mod_proj", "tproj.1"),
    XD_STEM("txt_in.norm.weight", "txtmlp.0.scale"),
    XD_STEM("txt_in.linear_1", "txtmlp.1"),
    XD_STEM("txt_in.linear_2", "txtmlp.3"),
    XD_STEM("text_fusion.projector", "txtfusion.projector"),
    XD_STEM("final_layer.linear", "last.linear"),
    XD_STEM("final_layer.norm.weight", "last.norm.scale"),
    XD_STEM_FOLD("final_layer.scale_shift_table", "last.modulation.lin", 2),
    XD_STEMS_END,
};

const xd_key_map xd_krea2_key_maps[] = {
    { { "krea2" },
      "a Krea-2 transformer in its original layout",
      { "txtfusion.projector.weight", "blocks.0.attn.wq.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "blocks.#.", block },
        { "text_fusion.layerwise_blocks.#.", "txtfusion.layerwise_blocks.#.", fusion },
        { "text_fusion.refiner_blocks.#.", "txtfusion.refiner_blocks.#.", fusion },
        { "", "", top } } },
    { { "krea2" },
      "a Krea-2 transformer in the layout of diffusers",
      { "text_fusion.projector.weight", "transformer_blocks.0.attn.to_q.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

#define BLOCKS(list, to)                                                                           \
    { list "_#_attn_wq", to "_#_attn_to_q" }, { list "_#_attn_wk", to "_#_attn_to_k" },            \
    { list "_#_attn_wv", to "_#_attn_to_v" }, { list "_#_attn_gate", to "_#_attn_to_gate" },       \
    { list "_#_attn_wo", to "_#_attn_to_out_0" }, { list "_#_mlp_gate", to "_#_ff_gate" },         \
    { list "_#_mlp_up", to "_#_ff_up" }, { list "_#_mlp_down", to "_#_ff_down" }

const xd_lora_name xd_krea2_lora_names[] = {
    BLOCKS("blocks", "transformer_blocks"),
    BLOCKS("txtfusion_layerwise_blocks", "text_fusion_layerwise_blocks"),
    BLOCKS("txtfusion_refiner_blocks", "text_fusion_refiner_blocks"),
    { "txtfusion_projector", "text_fusion_projector" },
    { "first", "img_in" },
    { "tmlp_0", "time_embed_linear_1" },
    { "tmlp_2", "time_embed_linear_2" },
    { "tproj_1", "time_mod_proj" },
    { "txtmlp_1", "txt_in_linear_1" },
    { "txtmlp_3", "txt_in_linear_2" },
    { "last_linear", "final_layer_linear" },
    { NULL, NULL },
};
