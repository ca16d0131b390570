/* keys.c - lists the names of tensors in single files of LTX-Video (ltx-video-2b-v0.9.safetensors),
 * and the names of modules in LoRA files that were trained on these files */
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

const xd_key_map xd_ltx_key_maps[] = {
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
