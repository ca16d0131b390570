/* image_shape.c - computes the default size of a request from the size of its input image */
#include "pipeline/image_shape.h"

#include <math.h>
#include <stdlib.h>

#include "base/minmax.h"
#include "base/record.h"
#include "io/image.h"
#include "pipeline/context.h"
#include "pipeline/image_roles.h"
#include "pipeline/input_image.h"

/* Reads the size of the k-th input image of a request or, without such images, of its control
 * image. */
static xd_status size_of(const xd_request *r, int k, xd_grid *size)
{
    xd_pixel_source of = xd_job_has_image(r) ? xd_input_image_source(r, k)
                                             : xd_input_image_control(r, 0);
    xd_image        i;
    if (of.file || !of.pixels)
        return of.file ? xd_image_size(of.file, &size->cols, &size->rows, NULL) : XD_EINVAL;
    xd_image_init(&i);
    xd_status s = xd_record_read(&i, sizeof i, of.pixels, "xd_image", NULL);
    *size = (xd_grid){ i.height, i.width };
    return s == XD_OK && (i.height < 1 || i.width < 1) ? XD_EINVAL : s;
}

/* Reads the size of a video's first frame. */
static xd_status video_size(xd_pixel_source of, xd_grid *size)
{
    xd_input_video v;
    uint8_t       *rgb = NULL;
    xd_status      s = xd_input_video_open(&v, &of, NULL);
    if (s == XD_OK)
        s = xd_input_video_next(&v, &rgb, &size->cols, &size->rows, NULL);
    s = s == XD_OK && !rgb ? XD_EINVAL : s;
    free(rgb);
    xd_input_video_close(&v);
    return s;
}

/* Returns the size of a token in pixels along an axis: the height for axis 1, the width for axis
 * 2. */
static int64_t unit_of(const xd_context *ctx, int axis)
{
    return ctx->model.vae_info.cell[axis] * (int64_t)ctx->model.dit_info.patch[axis];
}

/* Rounds a side in pixels down to complete tokens, at least one token. */
static int64_t whole(const xd_context *ctx, int axis, double side)
{
    int64_t unit = unit_of(ctx, axis);
    return xd_max(1, (int64_t)(side + 1e-6) / unit) * unit;
}

/* Computes the side that the request does not give, from the given side and the ratio of the input
 * image. */
static xd_grid fill_side(const xd_context *ctx, const xd_request *r, xd_grid own)
{
    double ratio = (double)own.cols / (double)own.rows;
    if (r->height)
        return (xd_grid){ r->height, whole(ctx, 2, (double)r->height * ratio) };
    return (xd_grid){ whole(ctx, 1, (double)r->width / ratio), r->width };
}

/* Computes the size of the output from the input image's ratio and, for a video, the model's number
 * of pixels. */
static xd_grid shape_of(const xd_context *ctx, xd_grid own)
{
    const xd_dit_info *d = &ctx->model.dit_info;
    const int         *cell = ctx->model.vae_info.cell;
    double own_area = (double)(d->sample[1] * cell[1]) * (double)(d->sample[2] * cell[2]);
    double share = sqrt(own_area / ((double)own.rows * (double)own.cols));
    if (ctx->model.recipe->fps <= 0)
        share = fmin(share, 1);
    for (int i = 1; i < 3; i++)
        if (d->most[i]) /* the model has a max number of positions per side */
            share = fmin(share,
                         (double)(d->most[i] * cell[i]) / (double)(i == 1 ? own.rows : own.cols));
    return (xd_grid){ whole(ctx, 1, (double)own.rows * share),
                      whole(ctx, 2, (double)own.cols * share) };
}

void xd_image_shape_take(const xd_context *ctx, xd_request *r)
{
    const xd_recipe *p = ctx->model.recipe;
    xd_grid          size, own;
    int              by = p->sized_by == XD_SIZED_BY_LAST ? (int)xd_job_images(r) - 1 : 0;
    int              video = xd_role_of(p, 0)->reads_control_video;
    xd_pixel_source  of = xd_role_of(p, 0)->drives ? xd_input_video_pose(r)
                                                   : xd_input_video_control(r);
    if (video ? !of.file && !of.pixels : !xd_job_has_image(r) && !xd_job_has_control(r))
        return;
    if ((r->height && r->width) || ctx->model.dit_info.fixed || r->images.padding_mask_crop >= 0 ||
        (video ? video_size(of, &own) : size_of(r, by, &own)) != XD_OK)
        return;
    size = own;
    if (p->sized_by) {
        int64_t area = r->output.max_area  ? r->output.max_area
                       : p->reference_area ? p->reference_area
                                           : ctx->model.dit_info.area;
        int64_t unit = unit_of(ctx, 1);
        if (p->reference_size(unit, area, &size.rows, &size.cols, NULL) != XD_OK)
            return;
        size = (xd_grid){ size.rows / unit * unit, size.cols / unit * unit };
    } else if (!p->max_area) { /* with max_area, only the ratio of the image's sides matters */
        size = r->height || r->width ? fill_side(ctx, r, own) : shape_of(ctx, own);
    }
    r->height = r->height ? r->height : size.rows;
    r->width = r->width ? r->width : size.cols;
}
