/* compare_runs.c - measures the difference that approximations make to the images of a request; see
 * compare_runs.h */
#include "cli/compare_runs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"

/* Appends the names of all options that save time by changing the image to `names`. Returns how
 * many of these options the request sets. */
static int list_savings(const xd_request *r, xd_text_buf *names)
{
    int              n, given = 0, listed = 0;
    const xd_option *o = xd_request_options(&n);
    for (int i = 0; i < n; i++)
        if (xd_request_option_about(o[i].name)->saves) {
            given += xd_request_gives(r, o[i].name);
            xd_buf_add(names, "%s--%s", listed++ ? ", " : "", o[i].name);
        }
    return given;
}

xd_status xd_compare_check(const xd_request *r, xd_err *e)
{
    if (r->random_seed)
        return xd_fail(e, XD_EINVAL,
                       "--compare generates twice with one seed: --seed must not "
                       "be -1");
    if (r->callbacks.wanted)
        return xd_fail(e, XD_EINVAL,
                       "--compare generates every image and excludes "
                       "--skip_existing");
    xd_text_buf names = { 0 };
    xd_status   s = XD_OK;
    if (!list_savings(r, &names))
        s = xd_fail(e, XD_EINVAL,
                    "--compare needs one of %s to compare with; xdit compare "
                    "compares two files",
                    names.p ? names.p : "the options that save time");
    else if (r->output.latents_only)
        s = xd_fail(e, XD_EINVAL,
                    "--compare needs images, not latents: change the extension of "
                    "--output");
    xd_buf_free(&names);
    return s;
}

static void print_head(void)
{
    xd_cli_line(NULL, "  PSNR, dB     SSIM    mean  largest  seconds  exact, s  times faster  "
                      "image");
}

static void print_row(const xd_comparison *c, double seconds, double exact, const char *name)
{
    char psnr[32] = "equal", line[4400];
    if (isfinite(c->psnr))
        snprintf(psnr, sizeof psnr, "%.2f", c->psnr);
    snprintf(line, sizeof line, "%10s  %.5f  %6.3f  %7" PRId64 "  %7.2f  %8.2f  %12.2f  %s", psnr,
             c->ssim, c->mean, c->most, seconds, exact, exact / seconds, name);
    xd_cli_line(NULL, line);
}

static void print_object(const xd_comparison *c, double seconds, double exact, const char *name)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"compared\": ");
    xd_buf_json_string(&b, name);
    if (isfinite(c->psnr))
        xd_buf_add(&b, ", \"psnr\": %.9g", c->psnr);
    else
        xd_buf_add(&b, ", \"psnr\": null");
    xd_buf_add(&b,
               ", \"ssim\": %.8g, \"mean\": %.8g, \"largest\": %" PRId64 ", \"seconds\": %.6g, "
               "\"exact_seconds\": %.6g}",
               c->ssim, c->mean, c->most, seconds, exact);
    if (b.p && !b.failed)
        xd_cli_line(NULL, b.p);
    xd_buf_free(&b);
}

/* Prints the difference between the image that was generated with time-saving options and the exact
 * image, for every image that has pixels in both results. */
static xd_status print_images(const xd_result *saved, const xd_result *exact, int json,
                              const char *(*name)(void *cookie, int i), void *cookie, xd_err *e)
{
    xd_status s = XD_OK;
    if (!json)
        print_head();
    for (int i = 0; s == XD_OK && i < xd_result_count(saved); i++) {
        const xd_image *a = xd_result_image(saved, i), *b = xd_result_image(exact, i);
        xd_comparison   c;
        xd_comparison_init(&c);
        if (!a || !b)
            continue;
        s = xd_compare_images(&c, a, b, e);
        if (s == XD_OK)
            (json ? print_object : print_row)(&c, xd_result_image_seconds(saved, i, "denoise"),
                                              xd_result_image_seconds(exact, i, "denoise"),
                                              name(cookie, i));
    }
    return s;
}

xd_status xd_compare_runs(xd_engine *g, const xd_request *r, const xd_result *saved, int json,
                          const char *(*name)(void *cookie, int i), void *cookie, xd_err *e)
{
    xd_request exact = *r, plain;
    xd_result *res = NULL;
    xd_request_init(&plain);
    exact.savings = plain.savings;
    exact.previews = plain.previews;
    exact.callbacks.on_image = NULL;
    exact.callbacks.on_preview = NULL;
    xd_status s = xd_generate(g, &exact, &res, e);
    if (s == XD_OK && xd_rank(g) == 0)
        s = print_images(saved, res, json, name, cookie, e);
    xd_result_free(&res);
    return s;
}
