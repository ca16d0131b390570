/* task_flags.c - the arguments of one task */
#include "serve/task_flags.h"

#include <stddef.h>
#include <stdlib.h>

#define AT(field) offsetof(xd_task_flags, field)

static const xd_option rows[] = {
    { "id", XD_OPT_TEXT, AT(id), 0, 0, NULL, "ID", "of the task" },
    { "model", XD_OPT_TEXT, AT(model), 0, 0, NULL, "DIR", "the model" },
    { "output", XD_OPT_TEXT, AT(output), 0, 0, NULL, "FILE", "of the first image" },
    { "preview", XD_OPT_TEXT, AT(preview), 0, 0, NULL, "FILE", "of previews" },
    { "previews", XD_OPT_INT, AT(previews), 0, 1000, NULL, "N", "how many of an image" },
    { "prompt", XD_OPT_TEXT, AT(prompts), 0, XD_OPT_MANY, NULL, "TEXT", "what to generate" },
    { "image", XD_OPT_TEXT, AT(images), 0, XD_OPT_MANY, NULL, "FILE", "image to start from" },
    { "mask_image", XD_OPT_TEXT, AT(mask_image), 0, 0, NULL, "FILE", "what to inpaint of it" },
    { "lora", XD_OPT_TEXT, AT(loras), 0, XD_OPT_MANY, NULL, "FILE[:SCALE]", "low-rank file" },
};

xd_status xd_task_flags_read(xd_task_flags *f, int argc, char **argv, xd_err *e)
{
    int              n;
    const xd_option *request = xd_request_options(&n);
    *f = (xd_task_flags){ .id = NULL };
    xd_request_init(&f->request);
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, f },
                                    { request, n, &f->request } };
    const xd_opt_spec  spec = { .tables = tables, .ntables = 2 };
    xd_status          s = xd_opt_parse(&spec, argc, argv, NULL, e);
    if (s == XD_OK)
        s = xd_loras_parse(&f->lora, &f->loras, "lora", e);
    if (s == XD_OK && (!f->id || !f->model || !f->output || !f->prompts.n))
        s = xd_fail(e, XD_EINVAL, "a task has an id, a model, an output and a prompt");
    f->request.prompts = f->prompts.v;
    f->request.nprompts = f->prompts.n;
    return s;
}

xd_status xd_task_flags_load(xd_task_flags *f, xd_err *e)
{
    int       n = f->images.n + (f->mask_image != NULL);
    xd_status s = XD_OK;
    if (!n)
        return XD_OK;
    f->pixels = calloc((size_t)n, sizeof *f->pixels);
    f->data = calloc((size_t)n, sizeof *f->data);
    f->more = calloc((size_t)n, sizeof *f->more);
    if (!f->pixels || !f->data || !f->more)
        return xd_fail(e, XD_ENOMEM, "no memory for %d images", n);
    for (; s == XD_OK && f->npixels < n; f->npixels++) {
        int         i = f->npixels;
        const char *path = i < f->images.n ? f->images.v[i] : f->mask_image;
        s = xd_image_file_load(path, &f->pixels[i], &f->data[i], e);
        if (i > 0)
            f->more[i - 1] = &f->pixels[i];
    }
    if (f->images.n) {
        f->request.image_pixels = &f->pixels[0];
        f->request.more_pixels = f->more;
        f->request.nmore_images = f->images.n - 1;
    }
    if (f->mask_image)
        f->request.mask_pixels = &f->pixels[n - 1];
    return s;
}

void xd_task_flags_free(xd_task_flags *f)
{
    xd_opt_texts_free(&f->prompts);
    xd_opt_texts_free(&f->images);
    xd_opt_texts_free(&f->loras);
    xd_loras_read_free(&f->lora);
    for (int i = 0; i < f->npixels; i++)
        free(f->data[i]);
    free(f->pixels);
    free(f->data);
    free(f->more);
}
