/* test_output.c - names of images and videos, and results written to them */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/image.h"
#include "io/video.h"
#include "pipeline/output.h"
#include "scratch.h"
#include "xdit/tools.h"

enum { N = 3, W = 16, H = 8 };
static uint8_t             pixels[N * W * H * 3];
static const xd_image_text texts[] = { { "parameters", "a cat" }, { NULL, NULL } };

static xd_image video(int64_t frames)
{
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(7 * i + i / 100);
    return (xd_image){
        .frames = frames, .height = H, .width = W, .channels = 3, .data = pixels, .fps = 8
    };
}

static void names_count_frames_or_videos(void **state)
{
    static const struct {
        const char *path;
        int         i, videos, frames;
        const char *want;
    } rows[] = {
        { "a.mp4", 0, 1, 49, "a.mp4" },
        { "a.mp4", 1, 2, 49, "a_0002.mp4" },
        { "a%d.gif", 1, 2, 49, "a2.gif" },
        { "d/a.png", 0, 1, 1, "d/a.png" },
        { "d/a.png", 1, 2, 1, "d/a_0002.png" },
        { "d/a.png", 0, 1, 49, "d/a_%04d.png" },
        { "d/a.png", 1, 2, 49, "d/a_0002_%04d.png" },
        { "d/f_%03d.webp", 0, 1, 49, "d/f_%03d.webp" },
        { "d/f_%03d.webp", 1, 2, 49, "d/f_0002_%03d.webp" },
        { "d/%d.png", 2, 3, 49, "d/0003_%d.png" },
        { "a.safetensors", 1, 2, 49, "a_0002.safetensors" },
        { "a", 0, 1, 49, "a" },
    };
    char   name[64];
    xd_err e = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(xd_output_video_name(rows[i].path, rows[i].i, rows[i].videos,
                                              rows[i].frames, name, sizeof name, &e),
                         XD_OK);
        assert_string_equal(name, rows[i].want);
    }
    assert_int_equal(xd_output_video_name("a_%d_%d.png", 0, 1, 9, name, sizeof name, &e),
                     XD_EINVAL);
    xd_err_clear(&e);
    assert_int_equal(xd_output_video_name("a_%d.png", 0, 2, 9, name, 12, &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "longer than 11 bytes"));
    assert_int_equal(xd_output_files("a_%d.png", 9), 9);
    assert_int_equal(xd_output_files("a.png", 1), 1);
    assert_int_equal(xd_output_files("a.gif", 9), 1);
}

static void check(const char *name, int code, const char *why)
{
    xd_err e = { 0 };
    assert_int_equal(xd_output_check(in_scratch(name), 2, &e), code);
    if (!strstr(e.msg, why))
        fail_msg("%s: \"%s\" does not say \"%s\"", name, e.msg, why);
}

static void names_are_checked(void **state)
{
    xd_err e = { 0 };
    (void)state;
    check("a.gif", XD_OK, "");
    check("a_%04d.png", XD_OK, "");
    check("a.rgb", XD_OK, "");
    check("none/a.gif", XD_EIO, "none/a");
    check("a.avi", XD_EINVAL, ".mp4, .mov, .mkv, .webm, .gif or .rgb");
    check("a_%d_%d.png", XD_EINVAL, "one %d");
    int has_mp4 = xd_video_ready("a.mp4", &e) == XD_OK;
    check("a.mp4", has_mp4 ? XD_OK : XD_EUNSUPPORTED, has_mp4 ? "" : "FFmpeg");
    assert_string_equal(xd_output_default(0), "output.png");
    assert_string_equal(xd_output_default(1), has_mp4 ? "output.mp4" : "output.gif");
    xd_err_clear(&e);
    assert_int_equal(xd_output_check_video("a.png", 0, &e), XD_OK);
    assert_int_equal(xd_output_check_video("a.png", 1, &e), XD_OK);
    assert_int_equal(xd_output_check_video("a.mp4", 1, &e), XD_OK);
    assert_int_equal(xd_output_check_video("a.safetensors", 0, &e), XD_OK);
    assert_int_equal(xd_output_check_video("a.mp4", 0, &e), XD_EINVAL);
    assert_non_null(strstr(e.msg, "a.mp4"));
    assert_int_equal(scratch_clean(), 0);
}

static void save(const char *name, const xd_image *im)
{
    xd_err e = { 0 };
    if (xd_output_write(in_scratch(name), im, -1, texts, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
}

static void same_image(const char *name, const uint8_t *want)
{
    uint8_t *rgb;
    int64_t  w, h;
    xd_err   e = { 0 };
    if (xd_image_read(in_scratch(name), &rgb, &w, &h, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
    assert_int_equal(w, W);
    assert_int_equal(h, H);
    assert_memory_equal(rgb, want, W * H * 3);
    free(rgb);
}

static void frames_become_files(void **state)
{
    xd_image im = video(N);
    char     name[16];
    (void)state;
    save("f_%02d.png", &im);
    save("g.ppm", &im);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "f_%02d.png", i + 1);
        same_image(name, pixels + i * W * H * 3);
        snprintf(name, sizeof name, "g_%04d.ppm", i + 1);
        same_image(name, pixels + i * W * H * 3);
    }
    assert_int_equal(scratch_clean(), 2 * N);
    im = video(1);
    save("f.png", &im);
    same_image("f.png", pixels);
    assert_int_equal(scratch_clean(), 1);
}

static void films_become_one_file(void **state)
{
    xd_image im = video(N);
    char    *data;
    size_t   len;
    xd_err   e = { 0 };
    (void)state;
    save("a.rgb", &im);
    save("a.gif", &im);
    assert_int_equal(xd_file_read(in_scratch("a.rgb"), 1 << 20, &data, &len, &e), XD_OK);
    assert_int_equal(len, sizeof pixels);
    assert_memory_equal(data, pixels, len);
    free(data);
    im = video(1);
    save("b.gif", &im);
    assert_int_equal(scratch_clean(), 3);
    im.fps = 0;
    assert_int_equal(xd_output_write(in_scratch("c.gif"), &im, -1, texts, &e), XD_EINVAL);
    assert_int_equal(scratch_clean(), 0);
}

/* Frames 0, 2, 4, 6 and 8 of 9, of one colour each, half as large, in rows of three. */
static void sheets_of_frames(void **state)
{
    enum { F = 9, FW = 8, FH = 6 };
    static uint8_t film[F * FW * FH * 3];
    xd_image       im;
    xd_err         e = { 0 };
    uint8_t       *rgb;
    int64_t        w, h;
    (void)state;
    for (int i = 0; i < F * FW * FH * 3; i++)
        film[i] = (uint8_t)(10 + 20 * (i / (FW * FH * 3)));
    xd_image_init(&im);
    im.frames = F, im.width = FW, im.height = FH, im.data = film, im.fps = 8;
    const char *path = in_scratch("a.png");
    assert_int_equal(xd_image_file_sheet(&im, 3, 5, 4, path, &e), XD_OK);
    assert_int_equal(xd_image_read(path, &rgb, &w, &h, &e), XD_OK);
    assert_true(w == 3 * 4 && h == 2 * 3);
    for (int y = 0; y < 6; y++)
        for (int x = 0; x < 12; x++) {
            int cell = y / 3 * 3 + x / 4;
            assert_int_equal(rgb[(y * 12 + x) * 3], cell < 5 ? 10 + 40 * cell : 0);
        }
    free(rgb);
    im.frames = 1;
    assert_int_equal(xd_image_file_sheet(&im, 3, 5, 100, path, &e), XD_OK);
    assert_int_equal(xd_image_size(path, &w, &h, &e), XD_OK);
    assert_true(w == FW && h == FH);
    assert_int_equal(xd_image_file_sheet(&im, 0, 5, 4, path, &e), XD_EINVAL);
    scratch_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_count_frames_or_videos),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(frames_become_files),
        cmocka_unit_test(films_become_one_file),
        cmocka_unit_test(sheets_of_frames),
    };
    return cmocka_run_group_tests_name("output", tests, scratch_set_up, scratch_tear_down);
}
