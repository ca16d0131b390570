/* rng.h - generates normally distributed noise for latents.
 *
 * The generator "torch" returns, in f32, the values of torch.randn with
 * torch.Generator("cpu").manual_seed(seed). Like torch, "torch" converts the output of mt19937 by
 * the Box-Muller method, for n >= 16 in groups of 16 values, otherwise one value at a time. The
 * generator "philox" is counter-based (Salmon et al. 2011, Philox 4x32-10). In "philox", element i
 * depends only on the seed and i, so every rank can generate only its own rows. */
#ifndef XD_BASE_RNG_H
#define XD_BASE_RNG_H

#include <stdint.h>

typedef struct xd_rng { /* a sequence of normal random numbers; copied by assignment */
    int      torch;     /* 1: generator "torch", 0: generator "philox" */
    int64_t  seed, drawn;
    uint32_t state[624]; /* state of mt19937 */
    int      at;
} xd_rng;

/* Opens a generator. name: "torch" or "philox". */
void xd_rng_open(xd_rng *r, const char *name, int64_t seed);
/* Writes the next n normal random numbers. As in torch.randn, the values of the generator "torch"
 * also depend on n, because an n below 16 and a remainder of n / 16 are treated differently. */
void xd_rng_normal(xd_rng *r, float *out, int64_t n);

/* Fill `out` with n normally distributed values, N(0,1). xd_noise_torch writes what the draw number
 * `draw` of n values with torch's generator returns, counted from 0. xd_noise_philox writes the
 * elements from index `first` on. */
void xd_noise_torch(float *out, int64_t n, int64_t seed, int draw);
void xd_noise_philox(float *out, int64_t first, int64_t n, int64_t seed);

/* Returns a random 32-bit seed from the system. */
uint32_t xd_rng_random_seed(void);

/* xd_hash_text returns a 64-bit hash of a text (FNV-1a), and xd_hash_mix combines a hash with a
 * number into a new hash (splitmix64). The hashes of xd_hash_text and xd_hash_mix are seeds of
 * random weights. */
uint64_t xd_hash_text(const char *s);
uint64_t xd_hash_mix(uint64_t h, uint64_t i);

#endif
