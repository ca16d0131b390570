/* key_map.c - lists all known layouts of tensor names in weight files.
 *
 * The layouts of transformers are in the files of their families; the layouts of VAEs and text
 * encoders are in this file. A layout describes the original names in the published files (such as
 * ae.safetensors of Black Forest Labs). Some other weight files have the original names with a
 * prefix. The names of diffusers and transformers are also described by a layout. */
#include "model/single_file.h"

#include <stddef.h>
#include <string.h>

#include "families/family.h"
#include "vae/vae.h"

/* ---- the KL VAE of latent diffusion ------------------------------------------------------- */

static const xd_stem ldm_res[] = {
    XD_STEM("norm1", "norm1"),
    XD_STEM("conv1", "conv1"),
    XD_STEM("norm2", "norm2"),
    XD_STEM("conv2", "conv2"),
    XD_STEM("conv_shortcut", "nin_shortcut"),
    XD_STEMS_END,
};

/* Tensor names of the attention of a KL VAE. The attention's matrices are stored as 1 x 1
 * convolutions, which have the same elements. */
static const xd_stem ldm_attn[] = {
    XD_STEM("group_norm", "norm"),
    XD_STEM("to_q", "q"),
    XD_STEM("to_k", "k"),
    XD_STEM("to_v", "v"),
    XD_STEM("to_out.0", "proj_out"),
    XD_STEMS_END,
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

/* ---- the causal VAE ----------------------------------------------------------------------- */

/* Tensor names of a residual block of a causal VAE. The file has a block as a list of modules; only
 * the modules that are named here have weights. */
#define CAUSAL_RES(want, have)                                                            \
    XD_STEM(want "norm1.gamma", have "residual.0.gamma"),                                 \
    XD_STEM(want "conv1", have "residual.2"),                                             \
    XD_STEM(want "norm2.gamma", have "residual.3.gamma"),                                 \
    XD_STEM(want "conv2", have "residual.6"), XD_STEM(want "conv_shortcut", have "shortcut")
#define CAUSAL_RESAMPLE(want, have)                                                       \
    XD_STEM(want "resample.1", have "resample.1"), XD_STEM(want "time_conv", have "time_conv")
/* Tensor names of a resolution level of a causal VAE's decoder. The modules of all levels are
 * numbered consecutively: the modules of this level have the numbers a, b, c and d. */
#define CAUSAL_UP(a, b, c, d)                                                             \
    { CAUSAL_RES("resnets.0.", a "."), CAUSAL_RES("resnets.1.", b "."),                   \
      CAUSAL_RES("resnets.2.", c "."), CAUSAL_RESAMPLE("upsamplers.0.", d "."), XD_STEMS_END }

static const xd_stem causal_part[] = { CAUSAL_RES("", ""), CAUSAL_RESAMPLE("", ""), XD_STEMS_END };
static const xd_stem causal_up0[] = CAUSAL_UP("0", "1", "2", "3");
static const xd_stem causal_up1[] = CAUSAL_UP("4", "5", "6", "7");
static const xd_stem causal_up2[] = CAUSAL_UP("8", "9", "10", "11");
static const xd_stem causal_up3[] = CAUSAL_UP("12", "13", "14", "15");
/* Tensor names of a resolution level of the encoder, for VAEs whose levels have shortcuts. */
static const xd_stem causal_down[] = {
    CAUSAL_RES("resnets.0.", "0."),
    CAUSAL_RES("resnets.1.", "1."),
    CAUSAL_RESAMPLE("downsampler.", "2."),
    XD_STEMS_END,
};
static const xd_stem causal_up[] = {
    CAUSAL_RES("resnets.0.", "0."),
    CAUSAL_RES("resnets.1.", "1."),
    CAUSAL_RES("resnets.2.", "2."),
    CAUSAL_RESAMPLE("upsampler.", "3."),
    XD_STEMS_END,
};
static const xd_stem causal_top[] = {
    XD_STEM("encoder.conv_in", "encoder.conv1"),
    XD_STEM("encoder.norm_out.gamma", "encoder.head.0.gamma"),
    XD_STEM("encoder.conv_out", "encoder.head.2"),
    XD_STEM("decoder.conv_in", "decoder.conv1"),
    XD_STEM("decoder.norm_out.gamma", "decoder.head.0.gamma"),
    XD_STEM("decoder.conv_out", "decoder.head.2"),
    XD_STEM("quant_conv", "conv1"),
    XD_STEM("post_quant_conv", "conv2"),
    XD_STEMS_END,
};
#define CAUSAL_MIDDLE(half)                                                               \
    { half ".mid_block.resnets.0.", half ".middle.0.", causal_part },                     \
    { half ".mid_block.attentions.0.", half ".middle.1.", NULL },                         \
    { half ".mid_block.resnets.1.", half ".middle.2.", causal_part }

/* ---- CLIP ---------------------------------------------------------------------------------- */

/* Tensor names of an attention layer of CLIP. The file stores queries, keys and values as rows of
 * one weight matrix and of one bias. */
#define CLIP_QKV(have)                                                                    \
    XD_STEM_ROWS("self_attn.q_proj.weight", have "weight", 0, 1, 3),                      \
    XD_STEM_ROWS("self_attn.k_proj.weight", have "weight", 1, 1, 3),                      \
    XD_STEM_ROWS("self_attn.v_proj.weight", have "weight", 2, 1, 3),                      \
    XD_STEM_ROWS("self_attn.q_proj.bias", have "bias", 0, 1, 3),                          \
    XD_STEM_ROWS("self_attn.k_proj.bias", have "bias", 1, 1, 3),                          \
    XD_STEM_ROWS("self_attn.v_proj.bias", have "bias", 2, 1, 3)

/* Tensor names of a block of OpenCLIP (open_clip_pytorch_model.safetensors). */
static const xd_stem clip_block[] = {
    XD_STEM("layer_norm1", "ln_1"),
    XD_STEM("layer_norm2", "ln_2"),
    CLIP_QKV("attn.in_proj_"),
    XD_STEM("self_attn.out_proj", "attn.out_proj"),
    XD_STEM("mlp.fc1", "mlp.c_fc"),
    XD_STEM("mlp.fc2", "mlp.c_proj"),
    XD_STEMS_END,
};
static const xd_stem clip_top[] = {
    XD_STEM("vision_model.embeddings.class_embedding", "class_embedding"),
    XD_STEM("vision_model.embeddings.patch_embedding", "conv1"),
    XD_STEM("vision_model.embeddings.position_embedding.weight", "positional_embedding"),
    XD_STEM("vision_model.pre_layrnorm", "ln_pre"),
    XD_STEMS_END,
};

/* Tensor names of OpenCLIP's text model, whose projection is transposed. Stable Diffusion 2 reads
 * the output of the last block but one, so its config has a block less than its files. */
static const xd_stem clip_text_top[] = {
    XD_STEM("text_model.embeddings.token_embedding", "token_embedding"),
    XD_STEM("text_model.embeddings.position_embedding.weight", "positional_embedding"),
    XD_STEM("text_model.final_layer_norm", "ln_final"),
    XD_STEM_SWAP("text_projection.weight", "text_projection", XD_SWAP_SIDES),
    XD_STEMS_END,
};

/* ---- text encoders in GGUF files of llama.cpp --------------------------------------------- */

static const xd_stem gguf_t5_block[] = {
    XD_STEM("layer.0.layer_norm", "attn_norm"),
    XD_STEM("layer.0.SelfAttention.q", "attn_q"),
    XD_STEM("layer.0.SelfAttention.k", "attn_k"),
    XD_STEM("layer.0.SelfAttention.v", "attn_v"),
    XD_STEM("layer.0.SelfAttention.o", "attn_o"),
    XD_STEM("layer.0.SelfAttention.relative_attention_bias", "attn_rel_b"),
    XD_STEM("layer.1.layer_norm", "ffn_norm"),
    XD_STEM("layer.1.DenseReluDense.wi_0", "ffn_gate"),
    XD_STEM("layer.1.DenseReluDense.wi_1", "ffn_up"),
    XD_STEM("layer.1.DenseReluDense.wi", "ffn_up"),
    XD_STEM("layer.1.DenseReluDense.wo", "ffn_down"),
    XD_STEMS_END,
};
static const xd_stem gguf_t5_top[] = {
    XD_STEM("shared", "token_embd"),
    XD_STEM("encoder.final_layer_norm", "enc.output_norm"),
    XD_STEMS_END,
};

#define GGUF_LM(q, k)                                                                     \
    XD_STEM("input_layernorm", "attn_norm"), q, k,                                        \
    XD_STEM("self_attn.v_proj", "attn_v"), XD_STEM("self_attn.o_proj", "attn_output"),    \
    XD_STEM("self_attn.q_norm", "attn_q_norm"),                                           \
    XD_STEM("self_attn.k_norm", "attn_k_norm"),                                           \
    XD_STEM("post_attention_layernorm", "ffn_norm"), XD_STEM("mlp.gate_proj", "ffn_gate"), \
    XD_STEM("mlp.up_proj", "ffn_up"), XD_STEM("mlp.down_proj", "ffn_down"), XD_STEMS_END
static const xd_stem gguf_qwen[] = {
    GGUF_LM(XD_STEM("self_attn.q_proj", "attn_q"), XD_STEM("self_attn.k_proj", "attn_k")),
};
/* Tensor names of a block of Llama or Mistral in a GGUF file. In the file, the rows of a head's
 * queries and keys are in pairs that RoPE rotates together (XD_SWAP_QUERIES). */
static const xd_stem gguf_llama[] = {
    GGUF_LM(XD_STEM_SWAP("self_attn.q_proj", "attn_q", XD_SWAP_QUERIES),
            XD_STEM_SWAP("self_attn.k_proj", "attn_k", XD_SWAP_KEYS)),
};
static const xd_stem gguf_lm_top[] = {
    XD_STEM("embed_tokens", "token_embd"),
    XD_STEM("norm", "output_norm"),
    XD_STEMS_END,
};
#define GGUF_SCOPES(block) { { "model.layers.#.", "blk.#.", block }, { "model.", "", gguf_lm_top } }
#define GGUF_MARKS { "blk.0.attn_output.weight", "token_embd.weight" }

/* ---- all of them -------------------------------------------------------------------------- */

/* Layouts of language models. Names have one of the two kinds of prefixes that src/text/decoder.c
 * accepts: the prefixes that transformers saves, or the prefixes after the model's name in
 * ComfyUI's checkpoints. */
#define LLAVA_BLOCK "vision_tower.vision_model.encoder.layers.#."
#define LM(first)                                                                                  \
    { { "qwen3", "qwen3-vl", "qwen2", "qwen2.5-vl", "mistral", "llama", "llava", "gemma2",         \
        "gemma3" },                                                                                \
      "a language model", { first "layers.0.self_attn.o_proj.weight", NULL },                      \
      { "", "text_encoders.@.transformer.", "@.transformer.",                                      \
        "text_encoders.qwen3_4b.transformer.", "text_encoders.qwen3_8b.transformer.",              \
        "text_encoders.qwen25_7b.transformer.", "text_encoders.mistral3_24b.transformer.",         \
        "text_encoders.llama.transformer.", "text_encoders.gemma2_2b.transformer.",                \
        "text_encoders.qwen3vl_4b.transformer." },                                                 \
      { { first "layers.#.", first "layers.#.", NULL },                                            \
        { LLAVA_BLOCK, LLAVA_BLOCK, NULL },                                                        \
        { "", "", NULL } } }
/* Blocks of a KL VAE's encoder and decoder. */
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
    { { "kl-packed" },
      "a KL autoencoder with a batch norm in its original layout",
      { "decoder.mid.block_1.conv1.weight", "decoder.post_quant_conv.weight" },
      XD_VAE_PREFIXES,
      { LDM_SCOPES,
        { "quant_conv.", "encoder.quant_conv.", NULL },
        { "post_quant_conv.", "decoder.post_quant_conv.", NULL },
        { "", "", ldm_top } } },
    { { "kl", "kl-packed" },
      "a KL autoencoder in its original layout",
      { "decoder.mid.block_1.conv1.weight", NULL },
      XD_VAE_PREFIXES,
      { LDM_SCOPES, { "", "", ldm_top } } },
    { { "kl", "kl-packed" },
      "a KL autoencoder in the layout of diffusers",
      { "decoder.mid_block.resnets.0.conv1.weight", "decoder.conv_norm_out.weight" },
      XD_VAE_PREFIXES,
      { { "encoder.down_blocks.#.", "encoder.down_blocks.#.", NULL },
        { "decoder.up_blocks.#.", "decoder.up_blocks.#.", NULL },
        { "", "", NULL } } },
    { { "tiny" },
      "a tiny autoencoder in the layout of diffusers",
      { "decoder.layers.0.weight", NULL },
      { "" },
      { { "", "", NULL } } },
    { { "tiny" },
      "the decoder of a tiny autoencoder (TAESD)",
      { "1.weight", "3.conv.0.weight" },
      { "" },
      { { "", "", NULL } } },
    { { "taehv" },
      "a tiny autoencoder of videos (TAEHV)",
      { "decoder.1.weight", "decoder.3.conv.0.weight" },
      { "" },
      { { "", "", NULL } } },
    { { "taehv" },
      "a tiny autoencoder of videos (TAEHV, super)",
      { "decoder.0.weight", "decoder.1.conv.0.weight" },
      { "" },
      { { "", "", NULL } } },
    { { "causal", "causal-image" },
      "a causal autoencoder in its original layout",
      { "decoder.middle.0.residual.0.gamma", "decoder.upsamples.0.residual.0.gamma" },
      XD_VAE_PREFIXES,
      { CAUSAL_MIDDLE("encoder"),
        CAUSAL_MIDDLE("decoder"),
        { "encoder.down_blocks.#.", "encoder.downsamples.#.", causal_part },
        { "decoder.up_blocks.0.", "decoder.upsamples.", causal_up0 },
        { "decoder.up_blocks.1.", "decoder.upsamples.", causal_up1 },
        { "decoder.up_blocks.2.", "decoder.upsamples.", causal_up2 },
        { "decoder.up_blocks.3.", "decoder.upsamples.", causal_up3 },
        { "", "", causal_top } } },
    { { "causal" },
      "a causal autoencoder with patches in its original layout",
      { "decoder.middle.0.residual.0.gamma", "decoder.upsamples.0.upsamples.0.residual.0.gamma" },
      XD_VAE_PREFIXES,
      { CAUSAL_MIDDLE("encoder"),
        CAUSAL_MIDDLE("decoder"),
        { "encoder.down_blocks.#.", "encoder.downsamples.#.downsamples.", causal_down },
        { "decoder.up_blocks.#.", "decoder.upsamples.#.upsamples.", causal_up },
        { "", "", causal_top } } },
    { { "causal", "causal-image" },
      "a causal autoencoder in the layout of diffusers",
      { "decoder.mid_block.resnets.0.norm1.gamma", "decoder.mid_block.resnets.0.conv1.weight" },
      XD_VAE_PREFIXES,
      { { "encoder.down_blocks.#.", "encoder.down_blocks.#.", NULL },
        { "decoder.up_blocks.#.", "decoder.up_blocks.#.", NULL },
        { "", "", NULL } } },
    { { "clip", "clip-proj" },
      "a CLIP text encoder",
      { "text_model.embeddings.token_embedding.weight", NULL },
      { "", "text_encoders.@.transformer.", "@.transformer.",
        "clip_l=conditioner.embedders.0.transformer.", "clip_l=cond_stage_model.transformer." },
      { { "text_model.encoder.layers.#.", "text_model.encoder.layers.#.", NULL },
        { "", "", NULL } } },
    { { "clip", "clip-proj" },
      "a CLIP text encoder",
      { "embeddings.token_embedding.weight", NULL },
      { "", "text_encoders.@.transformer.", "@.transformer." },
      { { "encoder.layers.#.", "encoder.layers.#.", NULL }, { "", "", NULL } } },
    { { "clip", "clip-proj" },
      "a CLIP text encoder in its original layout",
      { "token_embedding.weight", "transformer.resblocks.0.attn.in_proj_weight" },
      { "", "clip_g=conditioner.embedders.1.model.", "clip_l=cond_stage_model.model." },
      { { "text_model.encoder.layers.#.", "transformer.resblocks.#+.", clip_block },
        { "", "", clip_text_top } } },
    { { "clip-vision" },
      "a CLIP encoder of images",
      { "vision_model.embeddings.class_embedding", NULL },
      { "", "@." },
      { { "vision_model.encoder.layers.#.", "vision_model.encoder.layers.#.", NULL },
        { "", "", NULL } } },
    { { "clip-vision" },
      "a CLIP encoder of images in its original layout",
      { "visual.class_embedding", NULL },
      { "", "@." },
      { { "vision_model.encoder.layers.#.", "visual.transformer.resblocks.#.", clip_block },
        { "", "visual.", clip_top } } },
    { { "t5" },
      "a T5 text encoder",
      { "encoder.block.0.layer.0.SelfAttention.q.weight", NULL },
      { "", "text_encoders.@.transformer.", "@.transformer.",
        "text_encoders.pile_t5xl.transformer.", "pile_t5xl.transformer." },
      { { "encoder.block.#.", "encoder.block.#.", NULL }, { "", "", NULL } } },
    { { "t5" },
      "a T5 text encoder of llama.cpp",
      { "enc.blk.0.attn_q.weight", NULL },
      { "" },
      { { "encoder.block.#.", "enc.blk.#.", gguf_t5_block }, { "", "", gguf_t5_top } } },
    LM("model."),
    LM("language_model.model."),
    LM("model.language_model."),
    LM("language_model."),
    LM(""),
};

/* Language models in GGUF files of llama.cpp. All language models have the same tensor names in
 * these files, so the architecture key in the file distinguishes the models. */
static const struct lm {
    xd_key_map  map;
    const char *archs;
} lms[] = {
    { { { "qwen3", "qwen3-vl" },
        "a Qwen3 of llama.cpp",
        GGUF_MARKS,
        { "" },
        GGUF_SCOPES(gguf_qwen) },
      "qwen3 qwen3vl" },
    { { { "qwen2", "qwen2.5-vl" },
        "a Qwen2 of llama.cpp",
        GGUF_MARKS,
        { "" },
        GGUF_SCOPES(gguf_qwen) },
      "qwen2 qwen2vl" },
    { { { "llama", "mistral" },
        "a Llama or Mistral of llama.cpp",
        GGUF_MARKS,
        { "" },
        GGUF_SCOPES(gguf_llama) },
      "llama mistral3" },
};
enum { LMS = sizeof lms / sizeof *lms };

const char *xd_key_map_archs(const xd_key_map *k)
{
    for (int i = 0; i < LMS; i++)
        if (k == &lms[i].map)
            return lms[i].archs;
    return NULL;
}

const xd_key_map *xd_key_map_at(int i)
{
    for (int f = 0; xd_families[f]; f++)
        for (const xd_key_map *k = xd_families[f]->key_maps; k && k->what; k++)
            if (i-- == 0)
                return k;
    if (i < LMS)
        return &lms[i].map;
    i -= LMS;
    return (size_t)i < sizeof shared / sizeof *shared ? &shared[i] : NULL;
}

static int is_transformer(const char *net)
{
    const xd_dit *d;
    for (int i = 0; (d = xd_dit_at(i)); i++)
        if (strcmp(d->net.name, net) == 0)
            return 1;
    return 0;
}

static int is_vae(const char *net)
{
    for (int i = 0; xd_vaes[i]; i++)
        if (strcmp(xd_vaes[i]->net.name, net) == 0)
            return 1;
    return 0;
}

int xd_key_map_suits(const xd_key_map *k, const char *slot)
{
    const char *net = k->nets[0];
    if (strcmp(slot, XD_SIDE_SLOT) == 0)
        return strstr(net, "." XD_SIDE_SLOT) != NULL;
    if (strcmp(slot, "transformer") == 0)
        return is_transformer(net);
    if (strcmp(slot, "vae") == 0)
        return is_vae(net);
    if (strcmp(slot, "clip_vision") == 0)
        return strcmp(net, "clip-vision") == 0;
    if (strncmp(slot, "clip", 4) == 0)
        return strcmp(net, "clip") == 0;
    if (strcmp(slot, "t5xxl") == 0)
        return strcmp(net, "t5") == 0;
    return !strcmp(net, "qwen3") || !strcmp(net, "qwen2") || !strcmp(net, "llama");
}
