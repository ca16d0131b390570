/* sizes.h - declares the functions that choose one of the image sizes on which PixArt models were
 * trained (xd_recipe.trained_size). */
#ifndef XD_FAMILIES_PIXART_SIZES_H
#define XD_FAMILIES_PIXART_SIZES_H

#include <stdint.h>

/* Implements xd_recipe.trained_size for PixArt-alpha models, trained on sizes up to 1024 pixels. */
int xd_pixart_alpha_size(int64_t sample, int64_t *height, int64_t *width);
/* Implements xd_recipe.trained_size for PixArt-sigma models, trained on sizes up to 2048 pixels. */
int xd_pixart_sigma_size(int64_t sample, int64_t *height, int64_t *width);

#endif
