/* size_buckets.c - the sizes PixArt and Hunyuan-DiT were trained on, by aspect ratio
 *
 * PixArt-alpha and Sigma were trained on a few dozen sizes per resolution (Chen et al. 2023,
 * "multi-scale training"). Their pipelines generate the size with the ratio height / width nearest
 * to the requested one and resize the image afterwards. The ratios for the choice are the
 * published ones, rounded to two decimals. Hunyuan-DiT's pipeline chooses by the ratio width /
 * height, then by area, and does not resize the image. */
#include "model/recipe.h"

#include <math.h>
#include <stdlib.h>

static const xd_size_bucket bins_256[] = {
    { 0.25, 128, 512 }, { 0.28, 128, 464 }, { 0.32, 144, 448 }, { 0.33, 144, 432 },
    { 0.35, 144, 416 }, { 0.4, 160, 400 }, { 0.42, 160, 384 }, { 0.48, 176, 368 },
    { 0.5, 176, 352 }, { 0.52, 176, 336 }, { 0.57, 192, 336 }, { 0.6, 192, 320 },
    { 0.68, 208, 304 }, { 0.72, 208, 288 }, { 0.78, 224, 288 }, { 0.82, 224, 272 },
    { 0.88, 240, 272 }, { 0.94, 240, 256 }, { 1.0, 256, 256 }, { 1.07, 256, 240 },
    { 1.13, 272, 240 }, { 1.21, 272, 224 }, { 1.29, 288, 224 }, { 1.38, 288, 208 },
    { 1.46, 304, 208 }, { 1.67, 320, 192 }, { 1.75, 336, 192 }, { 2.0, 352, 176 },
    { 2.09, 368, 176 }, { 2.4, 384, 160 }, { 2.5, 400, 160 }, { 3.0, 432, 144 }, { 4.0, 512, 128 },
};

static const xd_size_bucket bins_512[] = {
    { 0.25, 256, 1024 }, { 0.28, 256, 928 }, { 0.32, 288, 896 }, { 0.33, 288, 864 },
    { 0.35, 288, 832 }, { 0.4, 320, 800 }, { 0.42, 320, 768 }, { 0.48, 352, 736 },
    { 0.5, 352, 704 }, { 0.52, 352, 672 }, { 0.57, 384, 672 }, { 0.6, 384, 640 },
    { 0.68, 416, 608 }, { 0.72, 416, 576 }, { 0.78, 448, 576 }, { 0.82, 448, 544 },
    { 0.88, 480, 544 }, { 0.94, 480, 512 }, { 1.0, 512, 512 }, { 1.07, 512, 480 },
    { 1.13, 544, 480 }, { 1.21, 544, 448 }, { 1.29, 576, 448 }, { 1.38, 576, 416 },
    { 1.46, 608, 416 }, { 1.67, 640, 384 }, { 1.75, 672, 384 }, { 2.0, 704, 352 },
    { 2.09, 736, 352 }, { 2.4, 768, 320 }, { 2.5, 800, 320 }, { 3.0, 864, 288 }, { 4.0, 1024, 256 },
};

static const xd_size_bucket bins_1024[] = {
    { 0.25, 512, 2048 }, { 0.28, 512, 1856 }, { 0.32, 576, 1792 }, { 0.33, 576, 1728 },
    { 0.35, 576, 1664 }, { 0.4, 640, 1600 }, { 0.42, 640, 1536 }, { 0.48, 704, 1472 },
    { 0.5, 704, 1408 }, { 0.52, 704, 1344 }, { 0.57, 768, 1344 }, { 0.6, 768, 1280 },
    { 0.68, 832, 1216 }, { 0.72, 832, 1152 }, { 0.78, 896, 1152 }, { 0.82, 896, 1088 },
    { 0.88, 960, 1088 }, { 0.94, 960, 1024 }, { 1.0, 1024, 1024 }, { 1.07, 1024, 960 },
    { 1.13, 1088, 960 }, { 1.21, 1088, 896 }, { 1.29, 1152, 896 }, { 1.38, 1152, 832 },
    { 1.46, 1216, 832 }, { 1.67, 1280, 768 }, { 1.75, 1344, 768 }, { 2.0, 1408, 704 },
    { 2.09, 1472, 704 }, { 2.4, 1536, 640 }, { 2.5, 1600, 640 }, { 3.0, 1728, 576 },
    { 4.0, 2048, 512 },
};

static const xd_size_bucket bins_2048[] = {
    { 0.25, 1024, 4096 }, { 0.26, 1024, 3968 }, { 0.27, 1024, 3840 }, { 0.28, 1024, 3712 },
    { 0.32, 1152, 3584 }, { 0.33, 1152, 3456 }, { 0.35, 1152, 3328 }, { 0.4, 1280, 3200 },
    { 0.42, 1280, 3072 }, { 0.48, 1408, 2944 }, { 0.5, 1408, 2816 }, { 0.52, 1408, 2688 },
    { 0.57, 1536, 2688 }, { 0.6, 1536, 2560 }, { 0.68, 1664, 2432 }, { 0.72, 1664, 2304 },
    { 0.78, 1792, 2304 }, { 0.82, 1792, 2176 }, { 0.88, 1920, 2176 }, { 0.94, 1920, 2048 },
    { 1.0, 2048, 2048 }, { 1.07, 2048, 1920 }, { 1.13, 2176, 1920 }, { 1.21, 2176, 1792 },
    { 1.29, 2304, 1792 }, { 1.38, 2304, 1664 }, { 1.46, 2432, 1664 }, { 1.67, 2560, 1536 },
    { 1.75, 2688, 1536 }, { 2.0, 2816, 1408 }, { 2.09, 2944, 1408 }, { 2.4, 3072, 1280 },
    { 2.5, 3200, 1280 }, { 2.89, 3328, 1152 }, { 3.0, 3456, 1152 }, { 3.11, 3584, 1152 },
    { 3.62, 3712, 1024 }, { 3.75, 3840, 1024 }, { 3.88, 3968, 1024 }, { 4.0, 4096, 1024 },
};

#define TABLE(t) { t, (int)(sizeof t / sizeof t[0]) }
static const struct {
    const xd_size_bucket *bin;
    int           n;
} tables[] = { TABLE(bins_256), TABLE(bins_512), TABLE(bins_1024), TABLE(bins_2048) };

int xd_size_bucket_nearest(int64_t sample, int64_t largest, int64_t *height, int64_t *width)
{
    int which = sample == 32 ? 0 : sample == 64 ? 1 : sample == 128 ? 2 : sample == 256 ? 3 : -1;
    if (which < 0 || sample > largest)
        return 0;
    const xd_size_bucket *best = tables[which].bin;
    double        ratio = (double)*height / (double)*width;
    for (int i = 1; i < tables[which].n; i++) {
        const xd_size_bucket *b = &tables[which].bin[i];
        if (fabs(b->ratio - ratio) < fabs(best->ratio - ratio))
            best = b;
    }
    *height = best->height;
    *width = best->width;
    return 1;
}

static const struct { int width, height; } standard[] = {
    { 1024, 1024 }, { 1280, 1280 }, { 1024, 768 }, { 1152, 864 }, { 1280, 960 },
    { 768, 1024 }, { 864, 1152 }, { 960, 1280 }, { 1280, 768 }, { 768, 1280 },
};
/* The nominal ratio of each size; 1280 x 768 stands for 16:9, though its ratio differs. */
static const double stands_for[] = { 1, 1, 4.0 / 3, 4.0 / 3, 4.0 / 3, 3.0 / 4, 3.0 / 4, 3.0 / 4,
                                     16.0 / 9, 9.0 / 16 };

void xd_size_bucket_standard(int64_t *height, int64_t *width)
{
    int64_t h = *height < 16 ? 16 : *height / 16 * 16, w = *width < 16 ? 16 : *width / 16 * 16;
    int     n = (int)(sizeof standard / sizeof *standard), best = 0;
    double  ratio = (double)w / (double)h, gap = INFINITY;
    for (int i = 0; i < n; i++)
        gap = fmin(gap, fabs(stands_for[i] - ratio));
    while (fabs(stands_for[best] - ratio) != gap)
        best++;
    for (int i = best; i < n && stands_for[i] == stands_for[best]; i++)
        if (llabs((int64_t)standard[i].width * standard[i].height - w * h) <
            llabs((int64_t)standard[best].width * standard[best].height - w * h))
            best = i;
    *height = standard[best].height;
    *width = standard[best].width;
}
