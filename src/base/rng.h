/* rng.h - normal noise for latents.
 *
 * "torch": the values of torch.randn with torch.Generator("cpu").manual_seed(seed) in f32: mt19937
 * and torch's own Box-Muller order (16 at a time for n >= 16, one by one below).
 * "philox": counter-based (Salmon et al. 2011, Philox 4x32-10). Element i depends on seed and i
 * alone, so every rank can generate just its own rows. */
#ifndef XD_BASE_RNG_H
#define XD_BASE_RNG_H

#include <stdint.h>

typedef struct xd_rng {         /* sequence of normal numbers; copied by assignment            */
    int      torch;             /* 1: torch, 0: philox                                         */
    int64_t  seed, drawn;
    uint32_t state[624];        /* mt19937                                                     */
    int      at;
} xd_rng;

/* name: "torch" or "philox". */
void xd_rng_open(xd_rng *r, const char *name, int64_t seed);
/* Writes the next n numbers. For torch, their values depend on n, the size passed to
 * torch.randn. */
void xd_rng_normal(xd_rng *r, float *out, int64_t n);

/* Fills n values of N(0,1). draw: number of earlier draws of n values from the generator. */
void xd_noise_torch(float *out, int64_t n, int64_t seed, int draw);
void xd_noise_philox(float *out, int64_t first, int64_t n, int64_t seed);

/* Returns a random 32-bit seed from the system. */
uint32_t xd_rng_random_seed(void);

/* 64-bit hash of a text (FNV-1a), and the combination of a hash with a number (splitmix64): seeds
 * of random weights. */
uint64_t xd_hash_text(const char *s);
uint64_t xd_hash_mix(uint64_t h, uint64_t i);

#endif
