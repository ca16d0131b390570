/* registry.c - list of the diffusion transformers. A new model is a file and a line here. */
#include "dit/dit.h"

extern const xd_dit xd_dit_pixart, xd_dit_pixart_2d, xd_dit_flux, xd_dit_sd3, xd_dit_cogvideox,
    xd_dit_hunyuan;

const xd_dit *const xd_dits[] = { &xd_dit_pixart, &xd_dit_pixart_2d, &xd_dit_flux, &xd_dit_sd3,
                                &xd_dit_cogvideox, &xd_dit_hunyuan, NULL };
