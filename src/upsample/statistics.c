/* statistics.c - changes the distribution of latents after they were enlarged */
#include <math.h>

#include "upsample/upsample.h"

/* Computes the mean and the deviation (with n - 1) of channel c of latents [T,C,n]. */
static void moments(const float *v, const int64_t d[3], int64_t c, double out[2])
{
    double sum = 0, squares = 0, n = (double)d[0] * (double)d[2];
    for (int64_t t = 0; t < d[0]; t++)
        for (int64_t i = 0; i < d[2]; i++)
            sum += (double)v[(t * d[1] + c) * d[2] + i];
    out[0] = sum / n;
    for (int64_t t = 0; t < d[0]; t++)
        for (int64_t i = 0; i < d[2]; i++) {
            double x = (double)v[(t * d[1] + c) * d[2] + i] - out[0];
            squares += x * x;
        }
    out[1] = sqrt(squares / (n - 1));
}

void xd_upsample_adain(float *latents, const int64_t d[3], const float *like, const int64_t s[3],
                       double factor)
{
    for (int64_t c = 0; c < d[1]; c++) {
        double own[2], want[2];
        moments(latents, d, c, own);
        moments(like, s, c, want);
        for (int64_t t = 0; t < d[0]; t++)
            for (int64_t i = 0; i < d[2]; i++) {
                float *x = &latents[(t * d[1] + c) * d[2] + i];
                double y = ((double)*x - own[0]) / own[1] * want[1] + want[0];
                *x = (float)((double)*x + factor * (y - (double)*x));
            }
    }
}

void xd_upsample_tone_map(float *latents, int64_t n, double ratio)
{
    double scale = ratio * 0.75;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)latents[i];
        double part = 1 / (1 + exp(-4 * scale * (fabs(x) - 1)));
        latents[i] = (float)(x * (1 - 0.8 * scale * part));
    }
}
