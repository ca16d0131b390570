/* rng.h - normal noise for latents.
 *
 * "torch": what torch.randn gives for torch.Generator("cpu").manual_seed(seed) in f32: mt19937
 * and torch's own Box-Muller order (16 at a time for n >= 16, one by one below).
 * "philox": counter-based (Salmon et al. 2011, Philox 4x32-10): element i depends on seed and i
 * alone, so every rank can make just its own rows. */
#ifndef XD_BASE_RNG_H
#define XD_BASE_RNG_H

#include <stdint.h>

typedef struct xd_rng {         /* normal numbers one after the other; copied by assignment     */
    int      torch;             /* else philox                                                 */
    int64_t  seed, drawn;
    uint32_t state[624];        /* of mt19937                                                  */
    int      at;
} xd_rng;

/* name: "torch" or "philox". */
void xd_rng_open(xd_rng *r, const char *name, int64_t seed);
/* The next n numbers. torch's depend on n: it is how many torch.randn was asked for. */
void xd_rng_normal(xd_rng *r, float *out, int64_t n);

/* Fills n values; both give N(0,1). draw: how many times as many values were drawn before from the
 * generator. */
void xd_noise_torch(float *out, int64_t n, int64_t seed, int draw);
void xd_noise_philox(float *out, int64_t first, int64_t n, int64_t seed);

/* 32 bits that nobody can predict, for a seed by chance: short enough to be written down. */
uint32_t xd_rng_chance(void);

/* A 64-bit hash of a text and a number, for random weights (splitmix64 over FNV-1a). */
uint64_t xd_hash_text(const char *s);
uint64_t xd_hash_mix(uint64_t h, uint64_t i);

#endif
