/* registry.c - list of the text encoders. A new one is a file and a line here. */
#include "text/text.h"

extern const xd_text xd_text_t5, xd_text_clip, xd_text_clip_proj, xd_text_bert, xd_text_qwen3,
    xd_text_qwen2, xd_text_qwen25vl, xd_text_mistral, xd_text_llama, xd_text_gemma2,
    xd_text_gemma3;

const xd_text *const xd_text_encoders[] = {
    &xd_text_t5,       &xd_text_clip,    &xd_text_clip_proj, &xd_text_bert,
    &xd_text_qwen3,    &xd_text_qwen2,   &xd_text_qwen25vl,  &xd_text_mistral,
    &xd_text_llama,    &xd_text_gemma2,  &xd_text_gemma3,    NULL,
};
