/* rng.c - draws normally distributed noise for latents, with Torch's values.
 *
 * Torch's random values depend on where Torch rounds to f32, so this file rounds to f32 at the same
 * steps as Torch. Only the logarithm, sine and cosine are computed more exactly (in double) and
 * rounded once. */
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double two_pi = 6.283185307179586476925286766559;

/* ---- mt19937 (Matsumoto and Nishimura 1998) ---------------------------------------------- */

enum { MTN = 624, MTM = 397 };
typedef xd_rng twister;

static void twister_seed(twister *t, uint32_t seed)
{
    t->state[0] = seed;
    for (uint32_t i = 1; i < MTN; i++)
        t->state[i] = 1812433253u * (t->state[i - 1] ^ (t->state[i - 1] >> 30)) + i;
    t->at = MTN;
}

static void twister_refill(twister *t)
{
    for (int i = 0; i < MTN; i++) {
        uint32_t y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % MTN] & 0x7fffffffu);
        t->state[i] = t->state[(i + MTM) % MTN] ^ (y >> 1) ^ ((y & 1) ? 0x9908b0dfu : 0);
    }
    t->at = 0;
}

static uint32_t twister_next(twister *t)
{
    if (t->at == MTN)
        twister_refill(t);
    uint32_t y = t->state[t->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static float uniform24(twister *t)
{
    return (float)(twister_next(t) & 0xffffffu) * 0x1p-24f;
}

static double uniform53(twister *t)
{
    uint64_t hi = twister_next(t), lo = twister_next(t);
    return (double)(((hi << 32) | lo) & 0x1fffffffffffffu) * 0x1p-53;
}

/* Draws fewer than 16 normal values. Values are computed in double, in pairs: first the value from
 * the cosine, then the value from the sine. */
static void draw_few(float *out, int64_t n, twister *t)
{
    for (int64_t i = 0; i < n; i += 2) {
        double u1 = uniform53(t), u2 = uniform53(t);
        double radius = sqrt(-2 * log1p(-u2)), angle = two_pi * u1;
        out[i] = (float)(radius * cos(angle));
        if (i + 1 < n)
            out[i + 1] = (float)(radius * sin(angle));
    }
}

/* Converts sixteen uniform values in place to normal ones: value j is paired with value j + 8. */
static void draw_sixteen(float *p)
{
    for (int j = 0; j < 8; j++) {
        float radius = sqrtf(-2.0f * (float)log(1.0 - (double)p[j]));
        float angle = (float)two_pi * p[j + 8];
        p[j] = radius * (float)cos((double)angle);
        p[j + 8] = radius * (float)sin((double)angle);
    }
}

static void draw_torch(float *out, int64_t n, twister *t)
{
    if (n < 16) {
        draw_few(out, n, t);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = uniform24(t);
    for (int64_t i = 0; i + 16 <= n; i += 16)
        draw_sixteen(out + i);
    /* As in Torch, if n is not a multiple of 16, the last 16 values are all drawn again. */
    if (n % 16) {
        for (int64_t i = n - 16; i < n; i++)
            out[i] = uniform24(t);
        draw_sixteen(out + n - 16);
    }
}

void xd_noise_torch(float *out, int64_t n, int64_t seed, int draw)
{
    twister t;
    twister_seed(&t, (uint32_t)((uint64_t)seed & 0xffffffffu));
    for (int i = 0; i <= draw; i++)
        draw_torch(out, n, &t);
}

/* ---- Philox 4x32-10 ---------------------------------------------------------------------- */

static void philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    for (int r = 0; r < 10; r++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c[3] = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* Computes the four normal values of Philox's counter value `block`. */
static void philox_normal(float v[4], int64_t block, int64_t seed)
{
    uint64_t at = (uint64_t)block, key = (uint64_t)seed;
    uint32_t c[4] = { (uint32_t)at, (uint32_t)(at >> 32), 0, 0 };
    philox(c, (uint32_t)key, (uint32_t)(key >> 32));
    for (int i = 0; i < 4; i += 2) {
        double u1 = ((double)c[i] + 0.5) * 0x1p-32, u2 = (double)c[i + 1] * 0x1p-32;
        double radius = sqrt(-2 * log(u1));
        v[i] = (float)(radius * cos(two_pi * u2));
        v[i + 1] = (float)(radius * sin(two_pi * u2));
    }
}

void xd_noise_philox(float *out, int64_t first, int64_t n, int64_t seed)
{
    for (int64_t i = 0; i < n;) {
        int64_t block = (first + i) / 4, at = (first + i) % 4;
        int64_t m = n - i < 4 - at ? n - i : 4 - at;
        float   v[4];
        philox_normal(v, block, seed);
        memcpy(out + i, v + at, (size_t)m * sizeof *v);
        i += m;
    }
}

/* ---- sequences --------------------------------------------------------------------------- */

void xd_rng_open(xd_rng *r, const char *name, int64_t seed)
{
    memset(r, 0, sizeof *r);
    r->torch = strcmp(name, "torch") == 0;
    r->seed = seed;
    if (r->torch)
        twister_seed(r, (uint32_t)((uint64_t)seed & 0xffffffffu));
}

void xd_rng_normal(xd_rng *r, float *out, int64_t n)
{
    if (r->torch)
        draw_torch(out, n, r);
    else
        xd_noise_philox(out, r->drawn, n, r->seed);
    r->drawn += n;
}

/* ---- hashes ------------------------------------------------------------------------------ */

/* Mixes the bits of a hash with the finalizer of splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t finalize(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t xd_hash_text(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return finalize(h);
}

uint64_t xd_hash_mix(uint64_t h, uint64_t i)
{
    return finalize(h + (i + 1) * 0x9e3779b97f4a7c15u);
}

/* ---- a random seed ------------------------------------------------------------------------ */

uint32_t xd_rng_random_seed(void)
{
    uint32_t        v = 0;
    struct timespec t = { 0, 0 };
    FILE           *f = fopen("/dev/urandom", "rb");
    size_t          n = f ? fread(&v, sizeof v, 1, f) : 0;
    if (f)
        fclose(f);
    if (n == 1)
        return v;
    /* Without /dev/urandom, the seed is made from the time and the process id. */
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint32_t)xd_hash_mix((uint64_t)t.tv_sec << 32 | (uint64_t)t.tv_nsec,
                                 (uint64_t)getpid());
}
