/* test_image.c - images written and read in every format.
 *
 * PNG and PPM come back bit by bit; JPEG and WebP of a smooth image, at quality 95, with every
 * value at most 16 of 255 off and 2 on average. */
#define _GNU_SOURCE /* P_tmpdir, memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <webp/encode.h>

#include "base/file.h"
#include "io/image.h"
#include "scratch.h"

enum { MAXSIDE = 80 };
static uint8_t image[MAXSIDE * MAXSIDE * 3];

static void generate(int w, int h)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            uint8_t *p = image + 3 * (y * w + x);
            p[0] = (uint8_t)(40 + 3 * x / 2);
            p[1] = (uint8_t)(250 - 2 * y);
            p[2] = (uint8_t)(x + y);
        }
}

static uint8_t *read_back(const char *name, int64_t w, int64_t h)
{
    uint8_t *rgb;
    int64_t  rw, rh;
    xd_err   e = { 0 };
    if (xd_image_read(in_scratch(name), &rgb, &rw, &rh, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
    assert_int_equal(rw, w);
    assert_int_equal(rh, h);
    return rgb;
}

static void check_round_trip(const char *name, int w, int h, const xd_image_text *texts, int exact)
{
    xd_err e = { 0 };
    int    worst = 0;
    long   sum = 0;
    generate(w, h);
    if (xd_image_write(in_scratch(name), image, w, h, texts, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
    uint8_t *rgb = read_back(name, w, h);
    for (int i = 0; i < w * h * 3; i++) {
        int d = abs(rgb[i] - image[i]);
        worst = d > worst ? d : worst;
        sum += d;
    }
    free(rgb);
    if (worst > (exact ? 0 : 16) || sum > (exact ? 0 : 2L * w * h * 3))
        fail_msg("%s of %dx%d: %d levels off, %ld in sum", name, w, h, worst, sum);
}

static const xd_image_text texts[] = {
    { "parameters", "a caf\xc3\xa9\nSteps: 20, Size: 4x4" },
    { "xdit", "{\"prompt\": \"\xe7\x8c\xab \xf0\x9f\x90\xb1\"}" },
    { NULL, NULL },
};
static const char *const names[] = { "a.png", "a.PNG", "a.ppm", "a.jpg", "a.jpeg", "a.webp" };
enum { NNAMES = sizeof names / sizeof *names };

static void images_come_back(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 1, 1 }, { 3, 2 }, { 17, 80 }, { 80, 33 }, { 64, 64 } };
    for (int i = 0; i < NNAMES; i++)
        for (int k = 0; k < 5; k++) {
            check_round_trip(names[i], sizes[k][0], sizes[k][1], NULL, i < 3);
            check_round_trip(names[i], sizes[k][0], sizes[k][1], texts, i < 3);
        }
    assert_int_equal(scratch_clean(), NNAMES);
}

/* Finds bytes in a file. */
static int has(const char *name, const char *bytes, size_t n)
{
    char  *data;
    size_t len;
    int    found = 0;
    xd_err e = { 0 };
    assert_int_equal(xd_file_read(in_scratch(name), 1 << 24, &data, &len, &e), XD_OK);
    for (size_t i = 0; i + n <= len; i++)
        found |= !memcmp(data + i, bytes, n);
    free(data);
    return found;
}

static void texts_travel(void **state)
{
    (void)state;
    static const char latin[] = "tEXtparameters\0a caf\xe9\nSteps: 20, Size: 4x4";
    static const char wide[] = "iTXtxdit\0\0\0\0\0{\"prompt\": \"\xe7\x8c\xab \xf0\x9f\x90\xb1\"}";
    static const char notes[] = "\n# Steps: 20, Size: 4x4\n# xdit: {";
    static const char utf16[] = "UNICODE\0\0a\0 \0c\0a\0f\0\xe9\0\n\0S\0t\0e\0p\0s\0:\0 \0"
                                "2\0"
                                "0";
    static const char ascii[] = "{\"prompt\": \"\\u732b \\ud83d\\udc31\"}";
    static const char lines[] = "parameters: a caf\xc3\xa9\nSteps: 20, Size: 4x4\nxdit: {\"prompt";
    xd_err            e = { 0 };
    generate(4, 4);
    for (int i = 0; i < NNAMES; i++)
        assert_int_equal(xd_image_write(in_scratch(names[i]), image, 4, 4, texts, &e), XD_OK);
    assert_true(has("a.png", latin, sizeof latin - 1));
    assert_true(has("a.png", wide, sizeof wide - 1));
    assert_true(has("a.jpg", lines, sizeof lines - 1));
    for (int i = 3; i < NNAMES; i++) {
        assert_true(has(names[i], utf16, sizeof utf16 - 1));
        assert_true(has(names[i], ascii, sizeof ascii));
    }
    assert_true(has("a.ppm", notes, sizeof notes - 1));
    assert_false(has("a.png", lines, sizeof lines - 1));
    scratch_clean();
}

/* Longer than one segment of a JPEG, with a character of two bytes at its end. */
static void long_texts_are_cut(void **state)
{
    (void)state;
    enum { N = 200001 };
    char *value = malloc(N + 1), *wide = malloc(N);
    assert_true(value && wide);
    for (int i = 0; i < N - 1; i += 2) {
        memcpy(value + i, "\xc3\xa9", 2);
        memcpy(wide + i, "\0\xe9", 2);
    }
    value[N - 1] = 'x';
    value[N] = 0;
    for (int i = 0; i < NNAMES; i++) {
        xd_image_text long_texts[] = { { i % 2 ? "k" : "parameters", value },
                                       { "xdit", "{}" },
                                       { NULL, NULL } };
        check_round_trip(names[i], 16, 8, long_texts, i < 3);
    }
    assert_true(has("a.jpg", value, 65000));
    assert_false(has("a.jpg", value, 65533));
    assert_true(has("a.jpeg", wide, 65000)); /* the JSON stays when it is short, the other is cut */
    assert_false(has("a.jpeg", wide, 65533));
    xd_image_text both[] = { { "parameters", value }, { "xdit", value }, { NULL, NULL } };
    check_round_trip("a.webp", 16, 8, both, 0);
    assert_true(has("a.webp", wide, N - 1));
    assert_true(has("a.webp", "\\u00e9\\u00e9", 12));
    check_round_trip("a.jpg", 16, 8, both, 0);
    assert_true(has("a.jpg", wide, 65000));
    assert_false(has("a.jpg", "\\u00e9", 6));
    free(wide);
    free(value);
    scratch_clean();
}

static void every_kind_of_png_is_read(void **state)
{
    (void)state;
    static const struct {
        png_uint_32 format;
        int         channels;
    } kinds[] = {
        { PNG_FORMAT_GRAY, 1 }, { PNG_FORMAT_GA, 2 }, { PNG_FORMAT_RGB, 3 }, { PNG_FORMAT_RGBA, 4 }
    };
    uint8_t px[4 * 6];
    for (int i = 0; i < 24; i++)
        px[i] = (uint8_t)(10 * i + 5);
    for (int k = 0; k < 4; k++) {
        png_image im = {
            .version = PNG_IMAGE_VERSION, .width = 3, .height = 2, .format = kinds[k].format
        };
        assert_true(png_image_write_to_file(&im, in_scratch("k.png"), 0, px, 0, NULL));
        uint8_t *rgb = read_back("k.png", 3, 2);
        for (int i = 0; i < 6; i++)
            for (int c = 0; c < 3; c++)
                assert_int_equal(rgb[3 * i + c],
                                 px[kinds[k].channels * i + (kinds[k].channels > 2 ? c : 0)]);
        free(rgb);
    }
    uint16_t  deep[] = { 0, 65535, 32896, 257, 514, 771 };
    png_image im = {
        .version = PNG_IMAGE_VERSION, .width = 2, .height = 1, .format = PNG_FORMAT_LINEAR_RGB
    };
    assert_true(png_image_write_to_file(&im, in_scratch("k.png"), 0, deep, 0, NULL));
    uint8_t *rgb = read_back("k.png", 2, 1);
    assert_memory_equal(rgb, ((uint8_t[]){ 0, 255, 128, 1, 2, 3 }), 6);
    free(rgb);
    scratch_clean();
}

/* Pixels of a mask of 3 x 2. */
static void check_mask(const char *name, const uint8_t want[18])
{
    uint8_t *rgb;
    int64_t  w, h;
    xd_err   e = { 0 };
    if (xd_image_read_mask(in_scratch(name), &rgb, &w, &h, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
    assert_true(w == 3 && h == 2);
    assert_memory_equal(rgb, want, 18);
    free(rgb);
}

static void save_webp(const char *name, const uint8_t *rgba)
{
    uint8_t *coded;
    size_t   n = WebPEncodeLosslessRGBA(rgba, 3, 2, 12, &coded);
    FILE    *f = fopen(in_scratch(name), "wb");
    assert_true(f && fwrite(coded, 1, n, f) == n && fclose(f) == 0);
    WebPFree(coded);
}

/* What is transparent is white, half is half; an image without a transparent pixel stays. */
static void alpha_is_a_mask(void **state)
{
    (void)state;
    uint8_t   alpha[] = { 255, 0, 128, 255, 255, 1 }, want[18], plain[18], px[24], grey[12];
    png_image im = { .version = PNG_IMAGE_VERSION, .width = 3, .height = 2 };
    for (int i = 0; i < 6; i++)
        for (int c = 0; c < 4; c++) {
            px[4 * i + c] = c < 3 ? (uint8_t)(7 * i + c) : alpha[i];
            want[3 * i + c % 3] = (uint8_t)(255 - alpha[i]);
            grey[2 * i + c % 2] = c % 2 ? alpha[i] : 90;
        }
    im.format = PNG_FORMAT_RGBA;
    assert_true(png_image_write_to_file(&im, in_scratch("m.png"), 0, px, 0, NULL));
    check_mask("m.png", want);
    im.format = PNG_FORMAT_GA;
    assert_true(png_image_write_to_file(&im, in_scratch("m.png"), 0, grey, 0, NULL));
    check_mask("m.png", want);
    uint8_t table[] = { 9, 9, 9, 255, 8, 8, 8, 0 }, index[] = { 0, 1, 0, 0, 0, 1 };
    im.format = PNG_FORMAT_RGBA_COLORMAP;
    im.colormap_entries = 2;
    assert_true(png_image_write_to_file(&im, in_scratch("m.png"), 0, index, 0, table));
    for (int i = 0; i < 18; i++)
        plain[i] = index[i / 3] ? 255 : 0;
    check_mask("m.png", plain);
    save_webp("m.webp", px);
    check_mask("m.webp", want);
    for (int i = 0; i < 6; i++) {
        px[4 * i + 3] = 255;
        memcpy(plain + 3 * i, px + 4 * i, 3);
    }
    im.format = PNG_FORMAT_RGBA;
    assert_true(png_image_write_to_file(&im, in_scratch("m.png"), 0, px, 0, NULL));
    check_mask("m.png", plain);
    save_webp("m.webp", px);
    check_mask("m.webp", plain);
    scratch_clean();
}

static size_t bytes_at(const char *name, int quality)
{
    char  *data;
    size_t len;
    xd_err e = { 0 };
    if (xd_image_write_at(in_scratch(name), image, 64, 64, quality, NULL, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
    assert_int_equal(xd_file_read(in_scratch(name), 1 << 20, &data, &len, &e), XD_OK);
    free(data);
    return len;
}

/* Less quality is a smaller file, of the formats with losses. */
static void quality_is_asked_for(void **state)
{
    static const int steps[] = { 0, 20, 60, XD_IMAGE_QUALITY, 100 };
    xd_err           e = { 0 };
    (void)state;
    generate(64, 64);
    for (int i = 0; i < 64 * 64 * 3; i++) /* noise, which costs bytes */
        image[i] = (uint8_t)(image[i] ^ ((unsigned)i * 2654435761u >> 27));
    for (int i = 0; i < NNAMES; i++) {
        int lossy = i >= 3;
        for (int k = 1; k < 5; k++)
            if (lossy ? bytes_at(names[i], steps[k - 1]) >= bytes_at(names[i], steps[k])
                      : bytes_at(names[i], steps[k - 1]) != bytes_at(names[i], steps[k]))
                fail_msg("%s at %d and %d", names[i], steps[k - 1], steps[k]);
        assert_int_equal(bytes_at(names[i], -1), bytes_at(names[i], XD_IMAGE_QUALITY));
    }
    assert_int_equal(xd_image_write_at(in_scratch("a.jpg"), image, 64, 64, 101, NULL, &e),
                     XD_EINVAL);
    assert_non_null(strstr(e.msg, "from 0 to 100"));
    scratch_clean();
}

/* Every beginning of every image is refused with a sentence that names the file. */
static void truncated_images_are_refused(void **state)
{
    (void)state;
    generate(20, 12);
    for (int i = 0; i < NNAMES; i++) {
        xd_err   e = { 0 };
        char    *data;
        size_t   len;
        uint8_t *rgb;
        int64_t  w, h;
        assert_int_equal(xd_image_write(in_scratch(names[i]), image, 20, 12, NULL, &e), XD_OK);
        assert_int_equal(xd_file_read(in_scratch(names[i]), 1 << 20, &data, &len, &e), XD_OK);
        /* an end mark may go, of a PNG with the sum before it */
        size_t end = strstr(names[i], ".j") ? len - 3 : i < 2 ? len - 16 : len - 1;
        for (size_t n = 0; n < end; n += n < 64 ? 1 : 7) {
            scratch_put("cut", data, n);
            xd_err_clear(&e);
            if (xd_image_read(in_scratch("cut"), &rgb, &w, &h, &e) != XD_EFORMAT || rgb ||
                !strstr(e.msg, "cut"))
                fail_msg("%zu of the %zu bytes of %s: status %d, \"%s\"", n, len, names[i],
                         (int)e.code, e.msg);
        }
        free(data);
    }
    scratch_clean();
}

/* Bits 6 and 7 of the second byte of a PNG's data say how thoroughly it was compressed: 0 is the
 * least, 2 the usual. */
static void images_without_texts_are_quick(void **state)
{
    (void)state;
    generate(20, 12);
    for (int i = 0; i < 2; i++) {
        xd_err e = { 0 };
        char  *data;
        size_t len, at = 8;
        assert_int_equal(xd_image_write(in_scratch("a.png"), image, 20, 12, i ? texts : NULL, &e),
                         XD_OK);
        assert_int_equal(xd_file_read(in_scratch("a.png"), 1 << 20, &data, &len, &e), XD_OK);
        while (at + 10 < len && memcmp(data + at, "IDAT", 4) != 0)
            at++;
        assert_int_equal((unsigned char)data[at + 5] >> 6, i ? 2 : 0);
        free(data);
    }
    scratch_clean();
}

static void sizes_are_read_alone(void **state)
{
    (void)state;
    generate(20, 12);
    for (int i = 0; i < NNAMES; i++) {
        xd_err  e = { 0 };
        char   *data;
        size_t  len;
        int64_t w = 0, h = 0;
        assert_int_equal(xd_image_write(in_scratch(names[i]), image, 20, 12, NULL, &e), XD_OK);
        assert_int_equal(xd_image_size(in_scratch(names[i]), &w, &h, &e), XD_OK);
        assert_true(w == 20 && h == 12);
        assert_int_equal(xd_file_read(in_scratch(names[i]), 1 << 20, &data, &len, &e), XD_OK);
        scratch_put("cut", data, 9); /* within the header */
        assert_int_equal(xd_image_size(in_scratch("cut"), &w, &h, &e), XD_EFORMAT);
        assert_non_null(strstr(e.msg, "cut"));
        free(data);
    }
    assert_int_equal(xd_image_size(in_scratch("none"), &(int64_t){ 0 }, &(int64_t){ 0 }, NULL),
                     XD_EIO);
    scratch_clean();
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t     w, h;
        xd_status   code;
        const char *why;
    } bad[] = {
        { "x.gif", 4, 4, XD_EINVAL, ".png, .jpg, .jpeg, .webp or .ppm" },
        { "png", 4, 4, XD_EINVAL, "has no image extension" },
        { "x.png", 0, 4, XD_EINVAL, "not 0x4" },
        { "x.png", 4, -1, XD_EINVAL, "not 4x-1" },
        { "x.webp", 16384, 1, XD_EINVAL, "sides of 1 to 16383 pixels, not 16384x1" },
        { "x.jpg", 1, 70000, XD_EINVAL, "JPEG images have sides of 1 to 65500 pixels" },
        { "none/x.png", 4, 4, XD_EIO, "none/x.png" },
    };
    uint8_t *rgb;
    int64_t  w, h;
    xd_err   e = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xd_err_clear(&e);
        assert_int_equal(
            xd_image_write(in_scratch(bad[i].name), image, bad[i].w, bad[i].h, NULL, &e),
            bad[i].code);
        if (!strstr(e.msg, bad[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].name, e.msg, bad[i].why);
    }
    xd_err_clear(&e);
    assert_int_equal(xd_image_read(in_scratch("x.png"), &rgb, &w, &h, &e), XD_EIO);
    scratch_put("x.png", "not an image at all", 20);
    xd_err_clear(&e);
    assert_int_equal(xd_image_read(in_scratch("x.png"), &rgb, &w, &h, &e), XD_EFORMAT);
    scratch_put("x.png", "P6 100000 100000 255\nabc", 24);
    xd_err_clear(&e);
    assert_int_equal(xd_image_read(in_scratch("x.png"), &rgb, &w, &h, &e), XD_EFORMAT);
    assert_int_equal(scratch_clean(), 1);
}

/* A progressive JPEG with one more scan many times, and one whose header claims 20,000 x 20,000
 * pixels: the coefficients of these would be gigabytes. */
static void small_files_ask_for_little(void **state)
{
    (void)state;
    static const char corpus[] = "tests/fuzz/corpus/image/";
    char              path[80], *data;
    uint8_t          *rgb = NULL;
    size_t            len;
    int64_t           w = 0, h = 0;
    xd_err            e = { 0 };
    struct rusage     before, after;
    snprintf(path, sizeof path, "%sjpeg_scans", corpus);
    assert_int_equal(xd_image_size(path, &w, &h, &e), XD_OK);
    assert_true(w == 9 && h == 7);
    assert_int_equal(xd_image_read(path, &rgb, &w, &h, &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "more than 100 scans"));
    snprintf(path, sizeof path, "%sjpeg_progressive", corpus);
    assert_int_equal(xd_file_read(path, 1 << 20, &data, &len, &e), XD_OK);
    char *head = memmem(data, len, "\xff\xc2", 2);
    assert_non_null(head);
    memcpy(head + 5, "\x4e\x20\x4e\x20", 4);
    scratch_put("large.jpg", data, len);
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(xd_image_size(in_scratch("large.jpg"), &w, &h, NULL), XD_OK);
    getrusage(RUSAGE_SELF, &after);
    assert_true(w == 20000 && h == 20000);
    assert_true(after.ru_maxrss - before.ru_maxrss < 100 << 10); /* KiB */
    free(data);
    scratch_clean();
}

static void names_tell_the_format(void **state)
{
    (void)state;
    assert_true(xd_image_known("a.png") && xd_image_known("d.x/a.JPG") &&
                xd_image_known("a.b.WebP"));
    assert_false(xd_image_known("a") || xd_image_known("a.safetensors") ||
                 xd_image_known("a.png/b"));
}

/* Pixels with alpha, and what Pillow 13 makes of them: resized to 7 x 3, and composed on white. */
enum { AW = 5, AH = 4 };
static const uint8_t resized[7 * 3 * 4] = {
    0,   149, 0,   29,  34,  192, 1,   156, 41,  201, 2,   211, 65,  225, 0,   70,  92,
    255, 0,   33,  135, 201, 32,  62,  160, 185, 57,  84,  7,   183, 3,   64,  0,   212,
    0,   24,  90,  154, 58,  48,  96,  146, 69,  132, 102, 136, 98,  75,  160, 169, 94,
    113, 160, 176, 82,  198, 33,  108, 0,   188, 40,  106, 12,  125, 89,  124, 79,  100,
    98,  137, 81,  147, 118, 145, 91,  84,  176, 176, 176, 13,  0,   0,   6,   0
};
static const uint8_t on_white[AW * AH * 3] = { 255, 255, 255, 37,  203, 0,   164, 230, 127, 212,
                                               241, 178, 254, 254, 252, 133, 213, 127, 192, 231,
                                               183, 253, 254, 252, 255, 255, 255, 159, 183, 68,
                                               252, 254, 252, 255, 255, 255, 96,  148, 68,  194,
                                               203, 178, 229, 225, 219, 33,  113, 0,   162, 185,
                                               153, 210, 214, 209, 254, 253, 254, 255, 255, 255 };

static void make_alpha(uint8_t *rgba)
{
    static const uint8_t levels[] = { 0, 255, 128, 77, 3 };
    for (int i = 0; i < AW * AH; i++) {
        int     x = i % AW, y = i / AW;
        uint8_t p[] = { (uint8_t)(37 * x + 11 * y), (uint8_t)(200 - 29 * y + 3 * x),
                        (uint8_t)(17 * x * y), levels[(x + 2 * y) % 5] };
        memcpy(rgba + 4 * i, p, 4);
    }
}

static void save_alpha(const char *name, const uint8_t *rgba)
{
    xd_err           e = { 0 };
    const xd_picture im = { rgba, AW, AH, 4 };
    if (xd_image_write_picture(in_scratch(name), &im, -1, texts, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
}

static uint8_t *read_alpha(const char *name)
{
    uint8_t *rgba;
    int64_t  w, h;
    xd_err   e = { 0 };
    if (xd_image_read_alpha(in_scratch(name), &rgba, &w, &h, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
    assert_int_equal(w, AW);
    assert_int_equal(h, AH);
    return rgba;
}

/* PNG keeps all channels; WebP keeps alpha, and its colours are lossy. Other formats get the image
 * on white, and an image without alpha is read as opaque. */
static void alpha_is_kept(void **state)
{
    uint8_t rgba[AW * AH * 4], *back;
    (void)state;
    make_alpha(rgba);
    save_alpha("a.png", rgba);
    back = read_alpha("a.png");
    assert_memory_equal(back, rgba, sizeof rgba);
    free(back);
    save_alpha("a.webp", rgba);
    back = read_alpha("a.webp");
    for (int i = 3; i < AW * AH * 4; i += 4)
        assert_int_equal(back[i], rgba[i]);
    free(back);
    save_alpha("a.ppm", rgba);
    back = read_back("a.ppm", AW, AH);
    assert_memory_equal(back, on_white, sizeof on_white);
    free(back);
    save_alpha("a.jpg", rgba);
    static const char *const opaque[] = { "a.ppm", "a.jpg" };
    for (int k = 0; k < 2; k++) {
        back = read_alpha(opaque[k]);
        for (int i = 0; i < AW * AH; i++)
            assert_int_equal(back[4 * i + 3], 255);
        for (int i = 0; i < AW * AH * 3 && !k; i++)
            assert_int_equal(back[i / 3 * 4 + i % 3], on_white[i]);
        free(back);
    }
    assert_true(xd_image_has_alpha("a.webp") && !xd_image_has_alpha("a.jpeg"));
    assert_int_equal(scratch_clean(), 4);
}

/* Alpha is resized with the colours multiplied by it, bitwise as by Pillow. */
static void alpha_is_resized(void **state)
{
    uint8_t *rgba = malloc(AW * AH * 4);
    xd_err   e = { 0 };
    (void)state;
    assert_non_null(rgba);
    make_alpha(rgba);
    assert_int_equal(xd_image_resize_alpha(&rgba, AW, AH, 7, 3, &e), XD_OK);
    assert_memory_equal(rgba, resized, sizeof resized);
    free(rgba);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_come_back),
        cmocka_unit_test(alpha_is_kept),
        cmocka_unit_test(alpha_is_resized),
        cmocka_unit_test(texts_travel),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(every_kind_of_png_is_read),
        cmocka_unit_test(alpha_is_a_mask),
        cmocka_unit_test(quality_is_asked_for),
        cmocka_unit_test(truncated_images_are_refused),
        cmocka_unit_test(images_without_texts_are_quick),
        cmocka_unit_test(sizes_are_read_alone),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(small_files_ask_for_little),
        cmocka_unit_test(names_tell_the_format),
    };
    return cmocka_run_group_tests_name("image", tests, scratch_set_up, scratch_tear_down);
}
