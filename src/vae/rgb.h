/* rgb.h - inside vae: known linear maps from latents to RGB, for previews */
#ifndef XD_VAE_RGB_H
#define XD_VAE_RGB_H

#include <stdint.h>

/* Returns xd_vae_info.rgb of the autoencoder with this number of latent channels, width of the
 * finest level and scaling_factor (1: none); NULL: unknown. */
const float (*xd_vae_rgb(int64_t channels, int64_t width, double scaling))[3];

#endif
