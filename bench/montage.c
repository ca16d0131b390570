/* montage.c - puts PNGs of one size side by side and says how each differs from the first.
 *
 *   montage COLUMNS OUT.png FIRST.png OTHER.png ...
 *
 * Prints one line an image: its PSNR against the first in dB over all channels, or "same". */
#include <math.h>
#include <png.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 4 };               /* white pixels around each image                            */

static uint8_t *read_png(const char *path, png_image *m)
{
    *m = (png_image){ .version = PNG_IMAGE_VERSION };
    if (!png_image_begin_read_from_file(m, path))
        return NULL;
    m->format = PNG_FORMAT_RGB;
    uint8_t *rgb = malloc(PNG_IMAGE_SIZE(*m));
    if (!rgb || !png_image_finish_read(m, NULL, rgb, 0, NULL)) {
        png_image_free(m);
        free(rgb);
        return NULL;
    }
    return rgb;
}

static void say_psnr(const uint8_t *a, const uint8_t *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    if (sum > 0)
        printf("%.1f\n", 10 * log10(255.0 * 255.0 * (double)n / sum));
    else
        printf("same\n");
}

/* Reads image i and puts it into the sheet, which the first one opens. */
static int place(png_image *sheet, uint8_t **all, uint8_t **first, const char *path, size_t i,
                 size_t n, size_t columns)
{
    png_image m;
    uint8_t  *rgb = read_png(path, &m);
    size_t    w = m.width, h = m.height;
    if (!rgb)
        return -1;
    if (!*all) {
        sheet->width = (png_uint_32)(columns * (w + GAP) + GAP);
        sheet->height = (png_uint_32)((n + columns - 1) / columns * (h + GAP) + GAP);
        if ((*all = malloc(PNG_IMAGE_SIZE(*sheet))))
            memset(*all, 255, PNG_IMAGE_SIZE(*sheet));
        *first = rgb;
    }
    int fits = *all && (i / columns + 1) * (h + GAP) + GAP <= sheet->height &&
               columns * (w + GAP) + GAP == sheet->width;
    for (size_t y = 0; fits && y < h; y++)
        memcpy(*all + ((i / columns * (h + GAP) + GAP + y) * sheet->width +
                       i % columns * (w + GAP) + GAP) * 3, rgb + y * w * 3, w * 3);
    if (fits)
        say_psnr(*first, rgb, w * h * 3);
    if (rgb != *first)
        free(rgb);
    return fits ? 0 : -1;
}

int main(int argc, char **argv)
{
    int       columns = argc > 3 ? atoi(argv[1]) : 0, bad = 0;
    png_image sheet = { .version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_RGB };
    uint8_t  *all = NULL, *first = NULL;
    if (columns < 1) {
        fprintf(stderr, "usage: montage COLUMNS OUT.png FIRST.png ...\n");
        return 2;
    }
    for (int i = 3; i < argc && !bad; i++)
        if (place(&sheet, &all, &first, argv[i], (size_t)(i - 3), (size_t)(argc - 3),
                  (size_t)columns) != 0) {
            fprintf(stderr, "montage: cannot use %s\n", argv[i]);
            bad = 1;
        }
    if (!bad && !png_image_write_to_file(&sheet, argv[2], 0, all, 0, NULL)) {
        fprintf(stderr, "montage: cannot write %s\n", argv[2]);
        bad = 1;
    }
    free(all);
    free(first);
    return bad;
}
