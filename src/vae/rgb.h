/* rgb.h - inside vae: which autoencoders have known colours of latents */
#ifndef XD_VAE_RGB_H
#define XD_VAE_RGB_H

#include <stdint.h>

/* xd_vae_info.rgb of an autoencoder with so many latent channels, width of the finest level and
 * scaling_factor (1: none); NULL: none is known. */
const float (*xd_vae_rgb(int64_t channels, int64_t width, double scaling))[3];

#endif
