/* registry.c - list of the text encoders. A new one is a file and a line here. */
#include "text/text.h"

extern const xd_text xd_text_t5, xd_text_clip, xd_text_clip_proj, xd_text_bert;

const xd_text *const xd_text_encoders[] = {
    &xd_text_t5, &xd_text_clip, &xd_text_clip_proj, &xd_text_bert, NULL,
};
