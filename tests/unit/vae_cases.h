/* vae_cases.h - autoencoders against what tools/golden wrote with diffusers.
 *
 * A case is a folder with a config and a golden file. Weights and inputs are the random numbers
 * that this program makes of a name. A tensor "decode.T" is what T latent frames become, "encode.T"
 * the moments of T frames. Cases whose name begins with "tiles" run in tiles. */
#ifndef XD_TESTS_UNIT_VAE_CASES_H
#define XD_TESTS_UNIT_VAE_CASES_H

#include "models.h"

/* Runs n cases of tests/golden/FOLDER in the type `want`. Tolerances are shares of the largest
 * value. Every run is counted first, and must then use exactly the memory that was counted. */
void vae_cases(const char *folder, const char *const *cases, size_t n, xd_dtype want, double tol);

/* What the defaults of a class say; some numbers of latent frames, and the frames that they become,
 * end with {0}, and so do those of frames that are encoded. */
typedef struct vae_numbers {
    int64_t channels;
    int     cell[3];
    double  scaling;
    int     alone, tile;    /* side of a square tile in cells */
    int64_t size[2], tiles; /* rows and columns of cells, and the tiles that they are */
    int64_t decoded[6][2], encoded[6][2];
} vae_numbers;
void vae_infos(const char *class_name, const vae_numbers *want);

/* What decoding T latent frames of h x w cells takes in bf16, in GiB. */
typedef struct vae_memory { double maps, weights, result; } vae_memory;
vae_memory vae_memory_of(const char *class_name, int64_t T, int64_t h, int64_t w);

#endif
