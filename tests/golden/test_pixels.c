/* test_pixels.c - an image to start from as a file, and the same one as pixels
 *
 * usage: test_pixels GOLDEN FULL, the folder of the images and that of models with weights. The
 * latents of both requests have the same bits, whatever the layout of the pixels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "io/image.h"

static uint64_t hash; /* of the latents of a request, after all steps */

static void listen(void *cookie, const char *name, int step, int nd, const int64_t *d,
                   const float *v)
{
    int64_t n = 1;
    (void)cookie, (void)step;
    if (strcmp(name, "latents") != 0)
        return;
    for (int i = 0; i < nd; i++)
        n *= d[i];
    for (int64_t i = 0; i < n * (int64_t)sizeof *v; i++)
        hash = (hash ^ ((const unsigned char *)v)[i]) * 0x100000001b3;
}

static xd_request request(void)
{
    static const char *const prompt = "a red circle";
    xd_request               r;
    xd_request_init(&r);
    r.prompts = &prompt, r.nprompts = 1;
    r.num_inference_steps = 4;
    r.output.latents_only = 1;
    r.output.no_resolution_binning = 1;
    r.callbacks.on_tensor = listen;
    return r;
}

/* The hash of the latents; 0: the request failed. */
static uint64_t generate(xd_engine *g, const xd_request *r, const char **json, xd_err *e)
{
    static char kept[8192];
    xd_result  *out = NULL;
    hash = 0xcbf29ce484222325;
    memset(e, 0, sizeof *e);
    if (xd_generate(g, r, &out, e) != XD_OK)
        return 0;
    snprintf(kept, sizeof kept, "%s", xd_result_json(out, 0));
    *json = kept;
    xd_result_free(&out);
    return hash;
}

/* The pixels rgb in another layout: every byte that is none of a pixel's colours is 77. */
static uint8_t *laid_out(const uint8_t *rgb, int64_t w, int64_t h, int channels, int64_t stride)
{
    uint8_t *p = malloc((size_t)(h * stride));
    if (!p)
        abort();
    memset(p, 77, (size_t)(h * stride));
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++)
            memcpy(p + y * stride + x * channels, rgb + (y * w + x) * 3, 3);
    return p;
}

static void check_layouts(xd_engine *g, const char *name, uint64_t want, const uint8_t *rgb,
                          int64_t w, int64_t h)
{
    static const struct {
        int         channels, gap;
        const char *what;
    } layouts[] = { { 3, 0, "RGB" },
                    { 3, 5, "RGB with gaps between rows" },
                    { 4, 0, "RGBA" },
                    { 4, 12, "RGBA with gaps between rows" } };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        int         c = layouts[i].channels;
        int64_t     stride = w * c + layouts[i].gap;
        const char *json = "";
        xd_err      e;
        xd_request  r = request();
        xd_image    image;
        uint8_t    *p = laid_out(rgb, w, h, c, stride);
        xd_image_init(&image);
        image.width = w, image.height = h, image.channels = c, image.data = p;
        image.stride = layouts[i].gap ? stride : 0;
        r.images.image_pixels = &image;
        uint64_t got = generate(g, &r, &json, &e);
        tap(got == want, "%s: %s generates as the file does %s", name, layouts[i].what, e.msg);
        tap(strstr(json, "\"image\": \"(pixels)\"") != NULL, "%s: its parameters say so", name);
        free(p);
    }
}

static void refused(xd_engine *g, const xd_image *image, const char *path, const char *words)
{
    xd_err      e;
    const char *json;
    xd_request  r = request();
    r.images.image_pixels = image;
    r.images.image = path;
    tap(!generate(g, &r, &json, &e) && e.code == XD_EINVAL && strstr(e.msg, words), "refused: %s",
        e.msg);
}

static void check_refusals(xd_engine *g, const char *path)
{
    uint8_t        pixel[4] = { 0 };
    const xd_image plain = {
        .size = sizeof plain, .frames = 1, .height = 1, .width = 1, .channels = 3, .data = pixel
    };
    xd_image i = plain;
    refused(g, &i, path, "image and image_pixels are given");
    i.size = 0, refused(g, &i, NULL, "call xd_image_init before"), i = plain;
    i.data = NULL, refused(g, &i, NULL, "has no data"), i = plain;
    i.channels = 2, refused(g, &i, NULL, "2 channels"), i = plain;
    i.frames = 2, refused(g, &i, NULL, "2 frames"), i = plain;
    i.width = 0, refused(g, &i, NULL, "0 x 1 pixels"), i = plain;
    i.stride = 2, refused(g, &i, NULL, "a stride of 2 bytes"), i = plain;
}

/* Grey pixels are those of an RGB image whose channels are equal. */
static void check_grey(xd_engine *g)
{
    uint8_t     grey[8 * 8], rgb[8 * 8 * 3];
    const char *json;
    xd_err      e;
    xd_request  r = request();
    xd_image    image;
    for (int i = 0; i < 64; i++)
        memset(rgb + 3 * i, grey[i] = (uint8_t)(3 * i), 3);
    xd_image_init(&image);
    image.width = image.height = 8, image.data = rgb;
    r.images.image_pixels = &image;
    uint64_t want = generate(g, &r, &json, &e);
    image.channels = 1, image.data = grey;
    tap(want && generate(g, &r, &json, &e) == want, "one channel is grey");
}

/* The mask as pixels, grey too, is the mask as a file. */
static void check_mask(xd_engine *g, const char *golden, const char *with)
{
    char        image[1024], path[1024];
    const char *json = "";
    xd_err      e = { 0 };
    xd_request  r = request();
    uint8_t    *rgb = NULL;
    xd_image    mask;
    xd_image_init(&mask);
    snprintf(image, sizeof image, "%s/%s/image.png", golden, with);
    snprintf(path, sizeof path, "%s/%s/mask.png", golden, with);
    must(xd_image_read(path, &rgb, &mask.width, &mask.height, &e), &e, path);
    r.images.image = image, r.images.strength = 1;
    uint64_t whole = generate(g, &r, &json, &e);
    r.images.mask_image = path;
    uint64_t want = generate(g, &r, &json, &e);
    tap(want && want != whole, "%s: the mask makes a difference %s", with, e.msg);
    tap(strstr(json, "\"mask_image\": \"/") != NULL, "%s: its parameters name it", with);
    r.images.mask_pixels = &mask;
    mask.data = rgb;
    tap(!generate(g, &r, &json, &e) && strstr(e.msg, "mask_image and mask_pixels are given"),
        "refused: %s", e.msg);
    r.images.mask_image = NULL;
    tap(generate(g, &r, &json, &e) == want, "%s: as pixels it is the same %s", with, e.msg);
    r.images.padding_mask_crop = 2;
    tap(generate(g, &r, &json, &e) != want && strstr(json, "\"padding_mask_crop\": 2"),
        "%s: a crop makes a difference %s", with, e.msg);
    r.images.padding_mask_crop = -1;
    mask.channels = 2;
    tap(!generate(g, &r, &json, &e) && strstr(e.msg, "mask_pixels has 2 channels"), "refused: %s",
        e.msg);
    free(rgb);
}

static void check(const char *golden, const char *full, const char *model, const char *with)
{
    char         dir[1024], path[1024];
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    xd_open_args a;
    uint8_t     *rgb = NULL;
    int64_t      w, h;
    const char  *json = "";
    xd_request   r = request();
    snprintf(dir, sizeof dir, "%s/%s", full, model);
    snprintf(path, sizeof path, "%s/%s/image.png", golden, with);
    xd_open_args_init(&a);
    a.model = dir, a.dtype = "f32", a.threads = 2;
    must(xd_open(&g, &a, &e), &e, dir);
    must(xd_image_read(path, &rgb, &w, &h, &e), &e, path);
    uint64_t plain = strstr(model, "i2v") ? 0 : generate(g, &r, &json, &e);
    r.images.image = path;
    uint64_t want = generate(g, &r, &json, &e);
    tap(want && want != plain, "%s: the file makes a difference %s", model, e.msg);
    check_layouts(g, model, want, rgb, w, h);
    rgb[0] ^= 255;
    r.images.image = NULL;
    xd_image image = {
        .size = sizeof image, .frames = 1, .height = h, .width = w, .channels = 3, .data = rgb
    };
    r.images.image_pixels = &image;
    tap(generate(g, &r, &json, &e) != want, "%s: another pixel makes another image", model);
    check_grey(g);
    check_refusals(g, path);
    if (strstr(model, "i2v") == NULL)
        check_mask(g, golden, strcmp(model, "flux") == 0 ? "flux-mask" : "sd3-mask");
    free(rgb);
    xd_close(&g);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    check(argv[1], argv[2], "flux", "flux-image");
    check(argv[1], argv[2], "sd3", "sd3-image");
    check(argv[1], argv[2], "cog15-i2v", "cog15-i2v");
    return tap_end();
}
