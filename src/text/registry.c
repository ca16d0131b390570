/* registry.c - lists all text encoders. To add an encoder, add its source file and a line in this
 * list. */
#include "text/decoder.h"

extern const xd_text xd_text_t5, xd_text_umt5, xd_text_clip, xd_text_clip_proj, xd_text_bert,
    xd_text_clip_vision, xd_text_siglip_vision, xd_text_connectors, xd_text_embedder;
extern const xd_text xd_text_decoders[XD_TEXT_DECODERS];

const xd_text *const xd_text_encoders[] = {
    &xd_text_t5,           &xd_text_umt5,         &xd_text_clip,
    &xd_text_clip_proj,    &xd_text_bert,         &xd_text_clip_vision,
    &xd_text_decoders[0],  &xd_text_decoders[1],  &xd_text_decoders[2],
    &xd_text_decoders[3],  &xd_text_decoders[4],  &xd_text_decoders[5],
    &xd_text_decoders[6],  &xd_text_decoders[7],  &xd_text_decoders[8],
    &xd_text_decoders[9],  &xd_text_decoders[10], &xd_text_decoders[11],
    &xd_text_decoders[12], &xd_text_decoders[13], &xd_text_decoders[14],
    &xd_text_decoders[15], &xd_text_decoders[16], &xd_text_decoders[17],
    &xd_text_decoders[18], &xd_text_decoders[19], &xd_text_decoders[20],
    &xd_text_decoders[21], &xd_text_decoders[22], &xd_text_siglip_vision,
    &xd_text_connectors,   &xd_text_embedder,     NULL,
};
