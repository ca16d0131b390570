/* inpaint.c - crops and resizes the masked region of an image for inpainting, and pastes the
 * inpainted region back */
#include "io/inpaint.h"

#include <stdlib.h>
#include <string.h>

#include "io/image.h"

static uint8_t *new_pixels(int64_t w, int64_t h, xd_err *e)
{
    uint8_t *p = calloc((size_t)(w * h), 3);
    if (!p)
        xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld", (long long)w, (long long)h);
    return p;
}

xd_status xd_image_grey(uint8_t **grey, const uint8_t *rgb, int64_t n, xd_err *e)
{
    if (!(*grey = malloc((size_t)n + 1)))
        return xd_fail(e, XD_ENOMEM, "no memory for a mask of %lld pixels", (long long)n);
    /* brightness by ITU-R 601-2, in fixed point with 16 fractional bits */
    for (int64_t i = 0; i < n; i++, rgb += 3)
        (*grey)[i] = (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
    return XD_OK;
}

/* ---- the region of a mask ------------------------------------------------------------------ */

static int find_bounds(const uint8_t *grey, int64_t w, int64_t h, xd_box *b)
{
    *b = (xd_box){ w, h, 0, 0 };
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            if (!grey[y * w + x])
                continue;
            b->left = x < b->left ? x : b->left;
            b->right = x + 1 > b->right ? x + 1 : b->right;
            b->top = y < b->top ? y : b->top;
            b->bottom = y + 1;
        }
    return b->right > 0;
}

/* Enlarges the interval [*a, *b) by `more` on both sides, then shifts and clips the interval to [0,
 * n). */
static void lengthen(int64_t *a, int64_t *b, int64_t more, int64_t n)
{
    *a -= more / 2;
    *b += more - more / 2;
    if (*b >= n) {
        *a -= *b - n;
        *b = n;
    }
    if (*a < 0) {
        *b -= *a;
        *a = 0;
    }
    *b = *b < n ? *b : n;
}

int xd_mask_region(const uint8_t *grey, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                   int64_t pad, xd_box *out)
{
    xd_box b;
    if (!find_bounds(grey, w, h, &b))
        return 0;
    b.left = b.left > pad ? b.left - pad : 0;
    b.top = b.top > pad ? b.top - pad : 0;
    b.right = b.right + pad < w ? b.right + pad : w;
    b.bottom = b.bottom + pad < h ? b.bottom + pad : h;
    double wide = (double)(b.right - b.left), high = (double)(b.bottom - b.top);
    double ratio = (double)to_w / (double)to_h;
    if (wide / high > ratio)
        lengthen(&b.top, &b.bottom, (int64_t)(wide / ratio - high), h);
    else
        lengthen(&b.left, &b.right, (int64_t)(high * ratio - wide), w);
    *out = b;
    return 1;
}

xd_status xd_image_crop(uint8_t **rgb, int64_t w, xd_box box, xd_err *e)
{
    int64_t  n = box.right - box.left, rows = box.bottom - box.top;
    uint8_t *out = new_pixels(n, rows, e);
    if (!out)
        return XD_ENOMEM;
    for (int64_t y = 0; y < rows; y++)
        memcpy(out + y * n * 3, *rgb + ((box.top + y) * w + box.left) * 3, (size_t)n * 3);
    free(*rgb);
    *rgb = out;
    return XD_OK;
}

/* ---- other aspect ratios ------------------------------------------------------------------- */

/* Copies an image into a second image at position (left, top), which may be negative. Pixels
 * outside of the second image are dropped. */
static void paste(uint8_t *to, int64_t to_w, int64_t to_h, const uint8_t *from, int64_t w,
                  int64_t h, int64_t left, int64_t top)
{
    int64_t skip = left < 0 ? -left : 0, n = w - skip;
    left += skip;
    n = n < to_w - left ? n : to_w - left;
    for (int64_t y = 0; y < h && n > 0; y++)
        if (top + y >= 0 && top + y < to_h)
            memcpy(to + ((top + y) * to_w + left) * 3, from + (y * w + skip) * 3, (size_t)n * 3);
}

/* Resizes an image to w x h pixels, and centres the result in a black image of to_w x to_h
 * pixels. */
static xd_status resize_into(uint8_t **rgb, int64_t from_w, int64_t from_h, int64_t w, int64_t h,
                             int64_t to_w, int64_t to_h, xd_err *e)
{
    w = w > 0 ? w : 1, h = h > 0 ? h : 1;
    xd_status s = xd_image_resize(rgb, from_w, from_h, w, h, e);
    if (s != XD_OK || (w == to_w && h == to_h))
        return s;
    uint8_t *out = new_pixels(to_w, to_h, e);
    if (!out)
        return XD_ENOMEM;
    paste(out, to_w, to_h, *rgb, w, h, to_w / 2 - w / 2, to_h / 2 - h / 2);
    free(*rgb);
    *rgb = out;
    return XD_OK;
}

/* Extrapolates an image by one pixel. `at` is the pixel at the edge, and `next` is the pixel beside
 * it, further inside the image. The weights of the two pixels, 9/8 and -1/8, are those of Pillow's
 * bicubic filter for a box of zero width. */
static uint8_t before_edge(uint8_t at, uint8_t next)
{
    int v = (9 * at - next + 4) >> 3;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Only the lines (rows or columns) [first, last) of the image are set. Fills the other lines by
 * extrapolation from the first and the last line that is set. The complete image has n lines of
 * `size` bytes. Neighbouring lines are `step` bytes apart, and neighbouring bytes of a line are
 * `each` bytes apart. */
static void continue_edges(uint8_t *p, int64_t n, int64_t step, int64_t size, int64_t each,
                           int64_t first, int64_t last)
{
    int64_t more = last - first > 1 ? step : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t edge = (i < first ? first : last - 1) * step, in = i < first ? more : -more;
        for (int64_t k = 0; k < size && (i < first || i >= last); k++) {
            uint8_t *at = p + k / 3 * each + k % 3;
            at[i * step] = before_edge(at[edge], at[edge + in]);
        }
    }
}

xd_status xd_image_fill(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h, xd_err *e)
{
    double  ratio = (double)to_w / (double)to_h, own = (double)w / (double)h;
    int64_t in_w = ratio < own ? to_w : w * to_h / h, in_h = ratio >= own ? to_h : h * to_w / w;
    in_w = in_w > 0 ? in_w : 1, in_h = in_h > 0 ? in_h : 1;
    int64_t   left = to_w / 2 - in_w / 2, top = to_h / 2 - in_h / 2;
    xd_status s = resize_into(rgb, w, h, in_w, in_h, to_w, to_h, e);
    if (s != XD_OK)
        return s;
    if (ratio < own && top > 0)
        continue_edges(*rgb, to_h, to_w * 3, to_w * 3, 3, top, top + in_h);
    else if (ratio > own && left > 0)
        continue_edges(*rgb, to_w, 3, to_h * 3, to_w * 3, left, left + in_w);
    return XD_OK;
}

xd_status xd_image_inset(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h, xd_err *e)
{
    double ratio = (double)to_w / (double)to_h, own = (double)w / (double)h;
    return resize_into(rgb, w, h, ratio < own ? to_w : w * to_h / h,
                       ratio >= own ? to_h : h * to_w / w, to_w, to_h, e);
}

xd_status xd_image_cover(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h, xd_err *e)
{
    double ratio = (double)to_w / (double)to_h, own = (double)w / (double)h;
    return resize_into(rgb, w, h, ratio > own ? to_w : w * to_h / h,
                       ratio <= own ? to_h : h * to_w / w, to_w, to_h, e);
}

/* ---- the overlay --------------------------------------------------------------------------- */

static uint32_t over_255(uint32_t v)
{
    return ((v >> 8) + v) >> 8;
}

/* Returns a level of a colour with this alpha on an opaque level, as Pillow's alpha_composite
 * computes it, with 7 extra bits. */
static uint8_t composite(uint32_t over, uint32_t alpha, uint32_t under)
{
    uint32_t v = over * (alpha << 7) + under * ((255 - alpha) << 7);
    return (uint8_t)(over_255(v + (0x80 << 7)) >> 7);
}

uint8_t *xd_image_on_white(const uint8_t *rgba, int64_t n)
{
    uint8_t *rgb = malloc((size_t)n * 3 + 1);
    for (int64_t i = 0; rgb && i < 3 * n; i++) {
        const uint8_t *pixel = rgba + i / 3 * 4;
        rgb[i] = pixel[3] ? composite(pixel[i % 3], pixel[3], 255) : 255;
    }
    return rgb;
}

/* Draws the image `over` onto the image `under` through the mask `grey`. The steps and roundings
 * are those of Pillow: conversion to premultiplied alpha, blending, conversion back, and
 * alpha_composite. */
void xd_image_overlay(uint8_t *under, const uint8_t *over, const uint8_t *grey, int64_t n)
{
    for (int64_t i = 0; i < n * 3; i++) {
        uint32_t alpha = 255u - grey[i / 3], v = over_255(over[i] * alpha + 128);
        if (!alpha)
            continue;
        v = alpha == 255 ? v : 255 * v / alpha;
        under[i] = composite(v < 255 ? v : 255, alpha, under[i]);
    }
}
