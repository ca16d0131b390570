/* keys.c - lists the names of modules in LoRA files that were trained on original files of LTX-2 or
 * that ComfyUI reads */
#include "families/ltx2/keys.h"

#include <stddef.h>

/* Names of the embedding of a timestep and of the modulation that is computed from it. */
#define TIMED(from, to)                                                      \
    { from "_linear", to "_linear" },                                        \
        { from "_emb_timestep_embedder_linear_1", to "_emb_timestep_embedder_linear_1" }, \
        { from "_emb_timestep_embedder_linear_2", to "_emb_timestep_embedder_linear_2" }

const xd_lora_name xd_ltx2_lora_names[] = {
    { "patchify_proj", "proj_in" },
    { "audio_patchify_proj", "audio_proj_in" },
    TIMED("adaln_single", "time_embed"),
    TIMED("audio_adaln_single", "audio_time_embed"),
    TIMED("prompt_adaln_single", "prompt_adaln"),
    TIMED("audio_prompt_adaln_single", "audio_prompt_adaln"),
    TIMED("av_ca_video_scale_shift_adaln_single", "av_cross_attn_video_scale_shift"),
    TIMED("av_ca_a2v_gate_adaln_single", "av_cross_attn_video_a2v_gate"),
    TIMED("av_ca_audio_scale_shift_adaln_single", "av_cross_attn_audio_scale_shift"),
    TIMED("av_ca_v2a_gate_adaln_single", "av_cross_attn_audio_v2a_gate"),
    { NULL, NULL },
};
