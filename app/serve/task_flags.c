/* task_flags.c - parses the arguments of a task and loads its images; see task_flags.h */
#include "serve/task_flags.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Max number of bytes of a video's frames in memory. */
static const int64_t MAX_VIDEO = (int64_t)4 << 30;

#define AT(field) offsetof(xd_task_flags, field)

static const xd_option rows[] = {
    { "id", XD_OPT_TEXT, AT(id), 0, 0, NULL, "ID", "id of the task" },
    { "model", XD_OPT_TEXT, AT(model), 0, 0, NULL, "DIR", "directory of the model" },
    { "output", XD_OPT_TEXT, AT(output), 0, 0, NULL, "FILE", "file for the first image" },
    { "video", XD_OPT_FLAG, AT(video), 0, 0, NULL, NULL, "the result is a video" },
    { "prompt", XD_OPT_TEXT, AT(prompts), 0, XD_OPT_MANY, NULL, "TEXT", "what to generate" },
    { "image", XD_OPT_TEXT, AT(images), 0, XD_OPT_MANY, NULL, "FILE", "image to start from" },
    { "mask_image", XD_OPT_TEXT, AT(mask_image), 0, 0, NULL, "FILE", "inpainting mask" },
    { "mask_alpha", XD_OPT_FLAG, AT(mask_alpha), 0, 0, NULL, NULL, "mask by transparency" },
    { "last_image", XD_OPT_TEXT, AT(last_image), 0, 0, NULL, "FILE", "last frame of a video" },
    { "control_image", XD_OPT_TEXT, AT(control_images), 0, XD_OPT_MANY, NULL, "FILE",
      "edges or depth" },
    { "control_video", XD_OPT_TEXT, AT(control_video), 0, 0, NULL, "FILE", "video to change" },
    { "pose_video", XD_OPT_TEXT, AT(pose_video), 0, 0, NULL, "FILE", "video of poses" },
    { "face_video", XD_OPT_TEXT, AT(face_video), 0, 0, NULL, "FILE", "video of a face" },
    { "redux_image", XD_OPT_TEXT, AT(redux_images), 0, XD_OPT_MANY, NULL, "FILE", "image to vary" },
    { "lora", XD_OPT_TEXT, AT(loras), 0, XD_OPT_MANY, NULL, "FILE[:SCALE]", "LoRA file" },
};

const char *xd_task_image_path(const char *arg)
{
    static const char *const options[] = { "--image=",         "--mask_image=",    "--last_image=",
                                           "--control_image=", "--control_video=", "--redux_image=",
                                           "--pose_video=",    "--face_video=" };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strncmp(arg, options[i], strlen(options[i])) == 0)
            return arg + strlen(options[i]);
    return NULL;
}

void xd_task_preview_name(const char *output, int video, int i, char *path, size_t size)
{
    const char *dot = video ? NULL : strrchr(output, '.');
    snprintf(path, size, "%s.preview%d%s", output, i, dot ? dot : ".png");
}

xd_status xd_task_flags_read(xd_task_flags *f, int argc, char **argv, xd_err *e)
{
    int              n;
    const xd_option *request = xd_request_options(&n);
    *f = (xd_task_flags){ .id = NULL };
    xd_request_init(&f->request);
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, f },
                                    xd_prompt_texts_table(&f->texts),
                                    { request, n, &f->request } };
    const xd_opt_spec  spec = { .tables = tables, .ntables = 3 };
    xd_status          s = xd_opt_parse(&spec, argc, argv, NULL, e);
    if (s == XD_OK)
        s = xd_loras_parse(&f->lora, &f->loras, "lora", e);
    if (s == XD_OK && (!f->id || !f->model || !f->output || !f->prompts.n))
        s = xd_fail(e, XD_EINVAL, "a task needs --id, --model, --output and --prompt");
    f->request.prompts = f->prompts.v;
    f->request.nprompts = f->prompts.n;
    return s == XD_OK ? xd_prompt_texts_set(&f->texts, &f->request, e) : s;
}

static xd_status load_one(xd_task_flags *f, const char *path, const xd_image **to, xd_err *e)
{
    int i = f->npixels, masks = f->mask_alpha && path == f->mask_image;
    int video = path == f->control_video || path == f->pose_video || path == f->face_video ||
                (path == f->mask_image && f->control_video);
    /* If frame_index places the images at frames of a video, these images may be videos
     * themselves. */
    video |= f->request.images.frame_index && path != f->mask_image;
    if (!path)
        return XD_OK;
    *to = &f->pixels[i];
    f->npixels++;
    if (video)
        return xd_video_file_load(path, MAX_VIDEO, &f->pixels[i], &f->data[i], e);
    xd_status s = (masks ? xd_image_file_load_mask
                   : path == f->mask_image
                       ? xd_image_file_load
                       : xd_image_file_load_alpha)(path, &f->pixels[i], &f->data[i], e);
    return s != XD_OK && path != f->mask_image &&
                   xd_video_file_load(path, MAX_VIDEO, &f->pixels[i], &f->data[i], NULL) == XD_OK
               ? XD_OK
               : s;
}

xd_status xd_task_flags_load(xd_task_flags *f, xd_err *e)
{
    xd_request *r = &f->request;
    int         n = f->images.n, controls = f->control_images.n, redux = f->redux_images.n;
    size_t      most = (size_t)n + (size_t)controls + (size_t)redux + 5;
    xd_status   s = XD_OK;
    f->pixels = calloc(most, sizeof *f->pixels);
    f->data = calloc(most, sizeof *f->data);
    f->more = calloc(most, sizeof *f->more);
    f->more_controls = calloc(most, sizeof *f->more_controls);
    f->more_redux = calloc(most, sizeof *f->more_redux);
    if (!f->pixels || !f->data || !f->more || !f->more_controls || !f->more_redux)
        return xd_fail(e, XD_ENOMEM, "no memory for %d images", n + controls + redux);
    for (int i = 0; i < n && s == XD_OK; i++)
        s = load_one(f, f->images.v[i], i ? &f->more[i - 1] : &r->images.image_pixels, e);
    if (s == XD_OK)
        s = load_one(f, f->mask_image, &r->images.mask_pixels, e);
    if (s == XD_OK)
        s = load_one(f, f->last_image, &r->images.last_pixels, e);
    for (int i = 0; i < controls && s == XD_OK; i++)
        s = load_one(f, f->control_images.v[i],
                     i ? &f->more_controls[i - 1] : &r->images.control_pixels, e);
    if (s == XD_OK)
        s = load_one(f, f->control_video, &r->images.control_frames, e);
    if (s == XD_OK)
        s = load_one(f, f->pose_video, &r->driving.pose_frames, e);
    if (s == XD_OK)
        s = load_one(f, f->face_video, &r->driving.face_frames, e);
    for (int i = 0; i < redux && s == XD_OK; i++)
        s = load_one(f, f->redux_images.v[i], i ? &f->more_redux[i - 1] : &r->redux.image_pixels,
                     e);
    r->redux.more_pixels = f->more_redux;
    r->redux.nmore_images = redux > 1 ? redux - 1 : 0;
    r->images.more_pixels = f->more;
    r->images.nmore_images = n > 1 ? n - 1 : 0;
    r->images.more_control_pixels = f->more_controls;
    r->images.nmore_control_images = controls > 1 ? controls - 1 : 0;
    return s;
}

void xd_task_flags_free(xd_task_flags *f)
{
    xd_opt_texts_free(&f->prompts);
    xd_prompt_texts_free(&f->texts);
    xd_opt_texts_free(&f->images);
    xd_opt_texts_free(&f->control_images);
    xd_opt_texts_free(&f->redux_images);
    xd_opt_texts_free(&f->loras);
    xd_loras_read_free(&f->lora);
    for (int i = 0; i < f->npixels; i++)
        free(f->data[i]);
    free(f->pixels);
    free(f->data);
    free(f->more);
    free(f->more_controls);
    free(f->more_redux);
}
