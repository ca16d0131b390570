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

#endif
