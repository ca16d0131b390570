/* key_map.c - the known layouts: those of the families, and here of autoencoders and text encoders
 *
 * Original names are those of the published files (ae.safetensors of Black Forest Labs). Other
 * files have the same names with a prefix. Files of diffusers and transformers are a layout,
 * too. */
#include "model/single_file.h"

#include <stddef.h>

#include "families/family.h"

/* ---- the KL autoencoder of latent diffusion ----------------------------------------------- */

static const xd_stem ldm_res[] = {
    XD_STEM("norm1", "norm1"), XD_STEM("conv1", "conv1"),
    XD_STEM("norm2", "norm2"), XD_STEM("conv2", "conv2"),
    XD_STEM("conv_shortcut", "nin_shortcut"), XD_STEMS_END,
};

/* Matrices are stored as 1 x 1 convolutions with equal elements. */
static const xd_stem ldm_attn[] = {
    XD_STEM("group_norm", "norm"), XD_STEM("to_q", "q"), XD_STEM("to_k", "k"), XD_STEM("to_v", "v"),
    XD_STEM("to_out.0", "proj_out"), XD_STEMS_END,
};

static const xd_stem ldm_top[] = {
    XD_STEM("encoder.conv_in", "encoder.conv_in"),
    XD_STEM("encoder.conv_norm_out", "encoder.norm_out"),
    XD_STEM("encoder.conv_out", "encoder.conv_out"),
    XD_STEM("decoder.conv_in", "decoder.conv_in"),
    XD_STEM("decoder.conv_norm_out", "decoder.norm_out"),
    XD_STEM("decoder.conv_out", "decoder.conv_out"),
    XD_STEM("quant_conv", "quant_conv"),
    XD_STEM("post_quant_conv", "post_quant_conv"),
    XD_STEM("bn.running_mean", "bn.running_mean"),
    XD_STEM("bn.running_var", "bn.running_var"),
    XD_STEMS_END,
};

/* ---- all of them -------------------------------------------------------------------------- */

#define FIRST_STAGE { "", "first_stage_model.", "vae." }
/* Language models, whose names begin in the ways that src/text/decoder.c takes: as saved by
 * transformers, and in ComfyUI's checkpoints behind the model's name. */
#define LM(first)                                                                                  \
    { { "qwen3", "qwen2", "qwen2.5-vl", "mistral", "llama", "gemma2", "gemma3" },                  \
      "a language model", { first "layers.0.self_attn.o_proj.weight", NULL },                      \
      { "", "text_encoders.@.transformer.", "@.transformer.",                                      \
        "text_encoders.qwen3_4b.transformer.", "text_encoders.qwen3_8b.transformer.",              \
        "text_encoders.qwen25_7b.transformer.", "text_encoders.mistral3_24b.transformer.",         \
        "text_encoders.llama.transformer." },                                                      \
      { { first "layers.#.", first "layers.#.", NULL }, { "", "", NULL } } }
/* Blocks of an autoencoder. */
#define LDM_SCOPES                                                                        \
    { "encoder.down_blocks.#.resnets.#.", "encoder.down.#.block.#.", ldm_res },           \
    { "encoder.down_blocks.#.attentions.#.", "encoder.down.#.attn.#.", ldm_attn },        \
    { "encoder.down_blocks.#.downsamplers.0.", "encoder.down.#.downsample.", NULL },      \
    { "encoder.mid_block.resnets.0.", "encoder.mid.block_1.", ldm_res },                  \
    { "encoder.mid_block.resnets.1.", "encoder.mid.block_2.", ldm_res },                  \
    { "encoder.mid_block.attentions.0.", "encoder.mid.attn_1.", ldm_attn },               \
    { "decoder.up_blocks.#.resnets.#.", "decoder.up.~.block.#.", ldm_res },               \
    { "decoder.up_blocks.#.attentions.#.", "decoder.up.~.attn.#.", ldm_attn },            \
    { "decoder.up_blocks.#.upsamplers.0.", "decoder.up.~.upsample.", NULL },              \
    { "decoder.mid_block.resnets.0.", "decoder.mid.block_1.", ldm_res },                  \
    { "decoder.mid_block.resnets.1.", "decoder.mid.block_2.", ldm_res },                  \
    { "decoder.mid_block.attentions.0.", "decoder.mid.attn_1.", ldm_attn }

static const xd_key_map shared[] = {
    { { "kl-packed" }, "a KL autoencoder with a batch norm in its original layout",
      { "decoder.mid.block_1.conv1.weight", "decoder.post_quant_conv.weight" }, FIRST_STAGE,
      { LDM_SCOPES, { "quant_conv.", "encoder.quant_conv.", NULL },
        { "post_quant_conv.", "decoder.post_quant_conv.", NULL }, { "", "", ldm_top } } },
    { { "kl", "kl-packed" }, "a KL autoencoder in its original layout",
      { "decoder.mid.block_1.conv1.weight", NULL }, FIRST_STAGE,
      { LDM_SCOPES, { "", "", ldm_top } } },
    { { "kl", "kl-packed" }, "a KL autoencoder in the layout of diffusers",
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
    LM("model."), LM("language_model.model."), LM("model.language_model."),
    LM("language_model."), LM(""),
};

const xd_key_map *xd_key_map_at(int i)
{
    for (int f = 0; xd_families[f]; f++)
        for (const xd_key_map *k = xd_families[f]->key_maps; k && k->what; k++)
            if (i-- == 0)
                return k;
    return (size_t)i < sizeof shared / sizeof *shared ? &shared[i] : NULL;
}
