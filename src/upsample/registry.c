/* registry.c - lists the networks that enlarge latents */
#include <stddef.h>

#include "upsample/upsample.h"

extern const xd_upsampler xd_upsampler_ltx, xd_upsampler_ltx2;

const xd_upsampler *const xd_upsamplers[] = { &xd_upsampler_ltx, &xd_upsampler_ltx2, NULL };
