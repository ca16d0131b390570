/* rng.h - generates normally distributed noise for latents.
 *
 * The generator "torch" returns the values of torch.randn with
 * torch.Generator("cpu").manual_seed(seed) in f32, from mt19937 in torch's own Box-Muller order (16
 * values at a time for n >= 16, one by one for smaller n). The generator "philox" is counter-based
 * (Salmon et al. 2011, Philox 4x32-10): element i depends only on the seed and i, so every rank can
 * generate only its own rows. */
#ifndef XD_BASE_RNG_H
#define XD_BASE_RNG_H

#include <stdint.h>

typedef struct xd_rng {         /* a sequence of normal random numbers; copied by assignment   */
    int      torch;             /* 1: generator "torch", 0: generator "philox"                 */
    int64_t  seed, drawn;
    uint32_t state[624];        /* state of mt19937                                            */
    int      at;
} xd_rng;

/* Opens a generator. name: "torch" or "philox". */
void xd_rng_open(xd_rng *r, const char *name, int64_t seed);
/* Writes the next n normal random numbers. For "torch" the values depend on n, as torch.randn's
 * values depend on the number of elements. */
void xd_rng_normal(xd_rng *r, float *out, int64_t n);

/* Fill `out` with n normally distributed values, N(0,1). xd_noise_torch first skips `draw` earlier
 * draws of n values each. For philox, `first` is the index of the first element. */
void xd_noise_torch(float *out, int64_t n, int64_t seed, int draw);
void xd_noise_philox(float *out, int64_t first, int64_t n, int64_t seed);

/* Returns a random 32-bit seed from the system. */
uint32_t xd_rng_random_seed(void);

/* Return a 64-bit hash of a text (FNV-1a), and of a hash together with a number (splitmix64). The
 * hashes are seeds of random weights. */
uint64_t xd_hash_text(const char *s);
uint64_t xd_hash_mix(uint64_t h, uint64_t i);

#endif
