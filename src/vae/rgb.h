/* rgb.h - inside vae: returns known linear maps from the latents of an autoencoder to RGB, for
 * previews. */
#ifndef XD_VAE_RGB_H
#define XD_VAE_RGB_H

#include <stdint.h>

/* Returns the linear map (xd_vae_info.rgb) of an autoencoder, which is recognized by its number of
 * latent channels, the width of its finest level and its scaling_factor (1 if the config has none).
 * Returns NULL if no map of the autoencoder is known. */
const float (*xd_vae_rgb(int64_t channels, int64_t width, double scaling))[3];

#endif
