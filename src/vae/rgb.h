/* rgb.h - used only in src/vae: returns known matrices that convert the latents of an autoencoder
 * to RGB, for previews. */
#ifndef XD_VAE_RGB_H
#define XD_VAE_RGB_H

#include <stdint.h>

/* Returns the matrix that converts the latents of an autoencoder to RGB (xd_vae_info.rgb), or NULL
 * if none is known. The autoencoder is recognized by its number of latent channels, the width of
 * its finest level and its scaling_factor (1 if the config has none). */
const float (*xd_vae_rgb(int64_t channels, int64_t width, double scaling))[3];

#endif
