/* registry.c - lists the networks that enlarge latents */
#include <stddef.h>

#include "upsample/upsample.h"

extern const xd_upsampler xd_upsample_ltx, xd_upsample_ltx2;

const xd_upsampler *const xd_upsamplers[] = { &xd_upsample_ltx, &xd_upsample_ltx2, NULL };
