/* inspect_uses.c - prints a model's kind of output and its possible inputs */
#include "report/inspect_uses.h"

#include "pipeline/image_roles.h"

/* Returns how many of a video's frames the model's image encoder reads: 1 (the first frame), 2
 * (first and last frame), or 0 if the model has no image encoder. */
static int frames_read(const xd_model *m)
{
    int n = 0;
    for (int k = 0; k < m->recipe->ntext && !n; k++)
        n = m->has_text[k] ? xd_model_images(m, k) : 0;
    return n;
}

static void add_word(xd_text_buf *b, int *n, int holds, const char *word)
{
    if (holds)
        xd_buf_add(b, "%s\"%s\"", (*n)++ ? ", " : "", word);
}

/* Returns 1 if the model's text encoder was opened without the vision tower that reads images. */
static int is_blind(const xd_model *m)
{
    for (int i = 0; i < m->recipe->ntext; i++)
        if (m->recipe->text[i].image_text && !m->text[i].text->tower)
            return 1;
    return 0;
}

static void add_fields(xd_text_buf *b, const xd_model *m)
{
    const xd_recipe   *p = m->recipe;
    const xd_role_row *role = xd_role_of_model(m, 0);
    int                n = 0, needed = 0, reads = role->read && !is_blind(m);
    xd_buf_add(b, "\"takes\": [");
    add_word(b, &n, reads, "image");
    add_word(b, &n, xd_recipe_inpaints(p) || role->reads_control_video, "mask_image");
    add_word(b, &n, (role->reads_video && frames_read(m) != 1) || p->placed == XD_ROLE_KEYFRAMES,
             "last_image");
    add_word(b, &n, role->reads_control, "control_image");
    add_word(b, &n, role->reads_control_video, "control_video");
    add_word(b, &n, role->drives, "pose_video");
    add_word(b, &n, role->drives, "face_video");
    add_word(b, &n, m->prior != NULL, "redux_image");
    add_word(b, &n, xd_role_of_model(m, 1)->starts, "strength");
    xd_buf_add(b, "], \"needs\": [");
    add_word(b, &needed, p->needs_image, "image");
    add_word(b, &needed, role->reads_mask || xd_dit_fills(&m->dit_info, XD_FILL_CONTROL),
             "mask_image");
    add_word(b, &needed, role->reads_video && frames_read(m) > 1, "last_image");
    add_word(b, &needed, role->reads_control, "control_image");
    add_word(b, &needed, role->drives, "pose_video");
    add_word(b, &needed, role->drives, "face_video");
    xd_buf_add(b, "], \"images\": %d", !reads ? 0 : p->references > 0 ? p->references : 1);
    xd_buf_add(b, ", \"control_images\": %d",
               m->dit_info.sides ? m->dit_info.sides : role->reads_control);
}

void xd_inspect_uses(xd_text_buf *b, const xd_model *m)
{
    const xd_recipe   *p = m->recipe;
    const xd_dit_info *d = &m->dit_info;
    const int         *cell = m->vae_info.cell;
    double             fps = d->patch[0] > 1 && p->pairs_fps > 0 ? p->pairs_fps : p->fps;
    xd_buf_add(b, "\"makes\": \"%s\", \"distilled\": %s, ", p->fps > 0 ? "video" : "image",
               p->distilled ? "true" : "false");
    add_fields(b, m);
    xd_buf_add(b, ", \"multiple\": %lld", (long long)(d->patch[2] * cell[2]));
    xd_buf_add(b,
               ", \"defaults\": {\"width\": %lld, \"height\": %lld, \"num_inference_steps\": %d,"
               " \"guidance_scale\": %.10g",
               (long long)(d->sample[2] * cell[2]), (long long)(d->sample[1] * cell[1]),
               m->usual.steps, m->usual.guidance);
    if (xd_role_of_model(m, 1)->starts)
        xd_buf_add(b, ", \"strength\": %.10g", p->strength > 0 ? p->strength : 0.6);
    if (m->usual.true_cfg > 0)
        xd_buf_add(b, ", \"true_cfg_scale\": %.10g", m->usual.true_cfg);
    if (m->usual.name)
        xd_buf_add(b, ", \"max_sequence_length\": %d", m->usual.max_text);
    if (p->fps > 0)
        xd_buf_add(b, ", \"num_frames\": %lld, \"fps\": %.10g",
                   (long long)xd_vae_frames(&m->vae_info, d->sample[0]), fps);
    if (p->layers)
        xd_buf_add(b, ", \"layers\": %d", p->layers);
    xd_buf_add(b, "}");
}
