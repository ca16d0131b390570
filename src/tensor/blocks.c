/* blocks.c - decodes the block types of GGUF files: the elements are integers of 2 to 8 bits, and
 * each 16 or 32 elements have a common scale.
 *
 * Each function of this file decodes one block. The layout of blocks and the order of operations
 * are those of ggml, so that values are rounded as in ggml. For the same reason, the compiler must
 * not fuse a product with the following addition. */
#include "tensor/blocks.h"

#include <string.h>

typedef uint8_t u8;

static float half_at(const u8 *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return xd_f16_f32(h);
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

static void q8_0(float *out, const u8 *b)
{
    const float d = half_at(b);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)b[2 + i];
}

/* Block of 32 elements: the low nibbles of 16 bytes are elements 0 to 15, the high nibbles elements
 * 16 to 31. */
static void q4_0(float *out, const u8 *b)
{
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((b[2 + i] & 15) - 8);
        out[16 + i] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static void q4_1(float *out, const u8 *b)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)(b[4 + i] & 15) + m;
        out[16 + i] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* Returns the fifth bits of 32 elements, each as the value 16 or 0. */
static void fifth_bits(int *out, const u8 *b)
{
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 8; i++)
            out[8 * k + i] = (b[k] >> i & 1) << 4;
}

static void q5_0(float *out, const u8 *b)
{
    const float d = half_at(b);
    int         high[32];
    fifth_bits(high, b + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((b[6 + i] & 15) + high[i] - 16);
        out[16 + i] = d * (float)((b[6 + i] >> 4) + high[16 + i] - 16);
    }
}

static void q5_1(float *out, const u8 *b)
{
    const float d = half_at(b), m = half_at(b + 2);
    int         high[32];
    fifth_bits(high, b + 4);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((b[8 + i] & 15) + high[i]) + m;
        out[16 + i] = d * (float)((b[8 + i] >> 4) + high[16 + i]) + m;
    }
}

/* The 16 values that an element of type IQ4_NL or IQ4_XS can have before scaling; the values are
 * denser near zero. */
static const float iq4_values[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
};

static void iq4_32(float *out, const u8 *q, float d)
{
    for (int i = 0; i < 16; i++) {
        out[i] = d * iq4_values[q[i] & 15];
        out[16 + i] = d * iq4_values[q[i] >> 4];
    }
}

static void iq4_nl(float *out, const u8 *b)
{
    iq4_32(out, b + 2, half_at(b));
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* A Q2_K block has 16 scales and minima of 4 bits, 64 bytes of 2-bit elements, then the f16 factors
 * d and dmin of the scales and the minima. 32 consecutive elements are in 32 consecutive bytes, at
 * the same bit position of each byte. */
static void q2_k(float *out, const u8 *b)
{
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int g = 0; g < 16; g++) { /* g: index of a group of 16 elements, which has one scale */
        const u8   *q = b + 16 + 32 * (g / 8) + 16 * (g % 2);
        const int   shift = 2 * (g / 2 % 4);
        const float dl = d * (float)(b[g] & 15), ml = dmin * (float)(b[g] >> 4);
        for (int i = 0; i < 16; i++)
            out[16 * g + i] = dl * (float)(q[i] >> shift & 3) - ml;
    }
}

/* A Q3_K block has 32 bytes of third bits, 64 bytes of 2-bit elements, 12 bytes with 16 scales of 6
 * bits, then the f16 factor d of the scales. An element whose third bit is 0 is decreased by 4. */
static void q3_k(float *out, const u8 *b)
{
    const float d = half_at(b + 108);
    const u8   *s = b + 96;
    for (int g = 0; g < 16; g++) {
        const u8   *q = b + 32 + 32 * (g / 8) + 16 * (g % 2), *high = b + 16 * (g % 2);
        const int   shift = 2 * (g / 2 % 4), bit = g / 2;
        const int   low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
        const int   scale = low | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4;
        const float dl = d * (float)(scale - 32);
        for (int i = 0; i < 16; i++)
            out[16 * g + i] = dl * (float)((q[i] >> shift & 3) - 4 + ((high[i] >> bit & 1) << 2));
    }
}

/* Returns the 6-bit scale and minimum of group g of 32 elements, from the 12 bytes of scales in a
 * block of Q4_K or Q5_K. */
static void scale_min(const u8 *s, int g, float *scale, float *min)
{
    const int low = g < 4;
    *scale = (float)(low ? s[g] & 63 : (s[4 + g] & 15) | (s[g - 4] >> 2 & 0x30));
    *min = (float)(low ? s[4 + g] & 63 : s[4 + g] >> 4 | (s[g] >> 2 & 0x30));
}

/* A Q4_K block has the f16 factors d and dmin, 12 bytes of scales and minima, and 128 bytes of
 * 4-bit elements. The low nibbles of 32 bytes are 32 elements, and the high nibbles of these bytes
 * are the next 32 elements. */
static void q4_k(float *out, const u8 *b)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int g = 0; g < 8; g++) {
        const u8 *q = b + 16 + 32 * (g / 2);
        const int shift = 4 * (g % 2);
        float     scale, min;
        scale_min(b + 4, g, &scale, &min);
        scale *= d;
        min *= dmin;
        for (int i = 0; i < 32; i++)
            out[32 * g + i] = scale * (float)(q[i] >> shift & 15) - min;
    }
}

/* A Q5_K block is a Q4_K block with 32 bytes of fifth bits before the 4-bit elements. */
static void q5_k(float *out, const u8 *b)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    const u8   *high = b + 16;
    for (int g = 0; g < 8; g++) {
        const u8 *q = b + 48 + 32 * (g / 2);
        const int shift = 4 * (g % 2);
        float     scale, min;
        scale_min(b + 4, g, &scale, &min);
        scale *= d;
        min *= dmin;
        for (int i = 0; i < 32; i++)
            out[32 * g + i] =
                scale * (float)((q[i] >> shift & 15) + ((high[i] >> g & 1) << 4)) - min;
    }
}

/* A Q6_K block has 128 bytes of low nibbles, 64 bytes of pairs of upper bits, 16 scales of 8 bits,
 * then the f16 factor d of the scales. */
static void q6_k(float *out, const u8 *b)
{
    const float d = half_at(b + 208);
    for (int g = 0; g < 16; g++) {
        const u8   *low = b + 64 * (g / 8) + 16 * (g % 4);
        const u8   *high = b + 128 + 32 * (g / 8) + 16 * (g % 2);
        const int   shift = 4 * (g / 4 % 2), pair = 2 * (g / 2 % 4);
        const float dl = d * (float)(int8_t)b[192 + g];
        for (int i = 0; i < 16; i++)
            out[16 * g + i] =
                dl * (float)((low[i] >> shift & 15) + ((high[i] >> pair & 3) << 4) - 32);
    }
}

/* An IQ4_XS block has the f16 factor d, 8 scales of 6 bits (upper pairs in 2 bytes, low nibbles in
 * 4 bytes), and 8 x 16 bytes of elements as in IQ4_NL. */
static void iq4_xs(float *out, const u8 *b)
{
    const float d = half_at(b);
    for (int g = 0; g < 8; g++) {
        const int low = b[4 + g / 2] >> 4 * (g % 2) & 15, high = b[2 + g / 4] >> 2 * (g % 4) & 3;
        iq4_32(out + 32 * g, b + 8 + 16 * g, d * (float)((low | high << 4) - 32));
    }
}

void xd_blocks_f32(float *to, const void *from, xd_dtype type, int64_t n)
{
    static void (*const decode[XD_NDTYPES])(float *, const u8 *) = {
        [XD_Q8_0] = q8_0, [XD_Q4_0] = q4_0, [XD_Q4_1] = q4_1,     [XD_Q5_0] = q5_0,
        [XD_Q5_1] = q5_1, [XD_Q2_K] = q2_k, [XD_Q3_K] = q3_k,     [XD_Q4_K] = q4_k,
        [XD_Q5_K] = q5_k, [XD_Q6_K] = q6_k, [XD_IQ4_NL] = iq4_nl, [XD_IQ4_XS] = iq4_xs,
    };
    const u8     *b = from;
    const int64_t block = xd_dtype_block(type);
    const size_t  bytes = xd_dtype_block_bytes(type);
    for (int64_t i = 0; i + block <= n; i += block, b += bytes)
        decode[type](to + i, b);
}
