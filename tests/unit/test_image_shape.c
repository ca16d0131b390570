/* test_image_shape.c - the size of requests that ask for none, or for one side, by the image they
 * have: of models that start from an image or inpaint it, that edit, and that make videos of it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "pipeline/context.h"
#include "pipeline/image_shape.h"

typedef struct wanted {
    const char *pipeline;
    int64_t     sample; /* cells of a side of the model's own size */
    int64_t     most;   /* cells with positions; 0: any */
    int         fixed, crop;
    int64_t     image[2], asked[2], want[2]; /* width, height */
} wanted;

static const wanted cases[] = {
    /* smaller than the model's own: it stays, in whole tokens of 16 pixels */
    { "FluxPipeline", 128, 0, 0, 0, { 128, 96 }, { 0, 0 }, { 128, 96 } },
    { "FluxPipeline", 128, 0, 0, 0, { 127, 111 }, { 0, 0 }, { 112, 96 } },
    { "FluxPipeline", 128, 0, 0, 0, { 5, 900 }, { 0, 0 }, { 16, 896 } },
    { "FluxPipeline", 128, 0, 0, 0, { 1, 1 }, { 0, 0 }, { 16, 16 } },
    { "FluxPipeline", 128, 0, 0, 0, { 1024, 1024 }, { 0, 0 }, { 1024, 1024 } },
    { "FluxPipeline", 128, 0, 0, 0, { 2000, 500 }, { 0, 0 }, { 2000, 496 } },
    /* larger: its ratio, with the pixels of 1024 x 1024 at most */
    { "FluxPipeline", 128, 0, 0, 0, { 4000, 3000 }, { 0, 0 }, { 1168, 880 } },
    { "StableDiffusion3Pipeline", 128, 0, 0, 0, { 3000, 4000 }, { 0, 0 }, { 880, 1168 } },
    { "FluxFillPipeline", 128, 0, 0, 0, { 4096, 2048 }, { 0, 0 }, { 1440, 720 } },
    { "FluxControlPipeline", 128, 0, 0, 0, { 400, 300 }, { 0, 0 }, { 400, 288 } },
    { "QwenImagePipeline", 128, 0, 0, 0, { 640, 480 }, { 0, 0 }, { 640, 480 } },
    { "PixArtSigmaPipeline", 128, 0, 0, 0, { 640, 480 }, { 0, 0 }, { 640, 480 } },
    /* as long as there are positions */
    { "StableDiffusion3Pipeline", 128, 192, 0, 0, { 3072, 64 }, { 0, 0 }, { 1536, 32 } },
    /* one side is asked for, or both are */
    { "FluxPipeline", 128, 0, 0, 0, { 400, 300 }, { 640, 0 }, { 640, 480 } },
    { "FluxPipeline", 128, 0, 0, 0, { 400, 300 }, { 0, 96 }, { 128, 96 } },
    { "FluxPipeline", 128, 0, 0, 0, { 400, 300 }, { 64, 32 }, { 64, 32 } },
    /* the part that is cut out of an image has the model's size */
    { "FluxPipeline", 128, 0, 0, 1, { 400, 300 }, { 0, 0 }, { 0, 0 } },
    /* the ratio of what is edited, or its size by the recipe */
    { "FluxKontextPipeline", 128, 0, 0, 0, { 400, 300 }, { 0, 0 }, { 400, 300 } },
    { "Flux2Pipeline", 128, 0, 0, 0, { 400, 300 }, { 0, 0 }, { 400, 288 } },
    /* a video has the model's pixels and the image's ratio, or its only size */
    { "WanImageToVideoPipeline", 60, 0, 0, 0, { 1600, 900 }, { 0, 0 }, { 640, 352 } },
    { "SkyReelsV2ImageToVideoPipeline", 60, 0, 0, 0, { 1600, 900 }, { 0, 0 }, { 960, 528 } },
    { "WanVACEPipeline", 60, 0, 0, 0, { 1600, 900 }, { 0, 0 }, { 640, 352 } },
    { "CogVideoXImageToVideoPipeline", 60, 0, 0, 0, { 96, 54 }, { 0, 0 }, { 640, 352 } },
    { "CogVideoXImageToVideoPipeline", 60, 0, 1, 0, { 96, 54 }, { 0, 0 }, { 0, 0 } },
};

static void sizes_follow_the_image(void **state)
{
    static xd_context ctx;
    static uint8_t    pixels[4096 * 3072 * 3];
    int               bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wanted *c = &cases[i];
        xd_image      im;
        xd_request    r;
        memset(&ctx, 0, sizeof ctx);
        xd_request_init(&r);
        xd_image_init(&im);
        im.data = pixels, im.width = c->image[0], im.height = c->image[1];
        ctx.model.recipe = xd_recipe_find(c->pipeline, NULL);
        assert_non_null(ctx.model.recipe);
        if (ctx.model.recipe->role == XD_ROLE_CONTROL)
            r.images.control_pixels = &im;
        else if (ctx.model.recipe->role == XD_ROLE_CONTROL_VIDEO)
            r.images.control_frames = &im;
        else
            r.images.image_pixels = &im;
        r.width = c->asked[0], r.height = c->asked[1];
        r.images.padding_mask_crop = c->crop ? 8 : -1;
        ctx.model.dit_info.fixed = c->fixed;
        for (int k = 1; k < 3; k++) {
            ctx.model.dit_info.sample[k] = c->sample;
            ctx.model.dit_info.most[k] = c->most;
            ctx.model.dit_info.patch[k] = 2;
            ctx.model.vae_info.cell[k] = 8;
        }
        xd_image_shape_take(&ctx, &r);
        if (r.width != c->want[0] || r.height != c->want[1]) {
            print_error("%s, image of %d x %d: %d x %d, not %d x %d\n", c->pipeline,
                        (int)c->image[0], (int)c->image[1], (int)r.width, (int)r.height,
                        (int)c->want[0], (int)c->want[1]);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

/* Of a request without an image, or with one that cannot be read, the size is the model's. */
static void without_an_image(void **state)
{
    static xd_context ctx;
    xd_request        r;
    (void)state;
    ctx.model.recipe = xd_recipe_find("FluxPipeline", NULL);
    xd_request_init(&r);
    xd_image_shape_take(&ctx, &r);
    assert_true(!r.width && !r.height);
    r.images.image = "no-such-image.png";
    xd_image_shape_take(&ctx, &r);
    assert_true(!r.width && !r.height);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_the_image),
        cmocka_unit_test(without_an_image),
    };
    return cmocka_run_group_tests_name("image_shape", tests, NULL, NULL);
}
