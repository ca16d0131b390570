/* family.c - describes the pipeline of AuraFlow */
#include "families/family.h"

#include "families/auraflow/keys.h"

extern const xd_dit xd_dit_auraflow;

/* This recipe has the text encoder, defaults and rules of diffusers' AuraFlowPipeline.__call__.
 * The transformer reads the rows of padding as zeros, and its attention does not mask them. */
static const xd_recipe auraflow = {
    .name = "auraflow",
    .pipelines = { "AuraFlowPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST,
                .masked = 1,
                .blank = 1 } },
    .ntext = 1,
    .steps = 50,
    .guidance = 3.5,
    .max_text = 256,
    .max_shift = 1.15,
};

extern const xd_family xd_family_auraflow;

const xd_family xd_family_auraflow = {
    .title = "AuraFlow",
    .dits = XD_LIST(xd_dit, &xd_dit_auraflow),
    .recipes = XD_LIST(xd_recipe, &auraflow),
    .key_maps = xd_auraflow_key_maps,
    .lora_names = xd_auraflow_lora_names,
    .examples = { .file = "aura_flow_0.3.safetensors",
                  .hub = "fal/AuraFlow-v0.3",
                  .layers = "2,4" },
};
