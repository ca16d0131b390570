/* worker_task.c - runs one task and reports its stages, steps, images and end to the server */
#include "serve/worker_task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch.h"
#include "serve/folder.h"
#include "serve/task.h"

/* ---- reports of a task to the server --------------------------------------------------------- */

enum { NUMBER = 40, TOKENS = 3 };

static const char *number_text(char text[NUMBER], double v)
{
    snprintf(text, NUMBER, "%.17g", v);
    return text;
}

static void send_frame(const xd_task_run *t, xd_frame_kind kind, const char *const *v, int n)
{
    if (t->reports)
        xd_connection_send(t->connection, kind, v, n);
}

static void on_stage(void *cookie, const char *stage)
{
    xd_task_run *t = cookie;
    send_frame(t, XD_FRAME_STAGE, (const char *[]){ t->running.id, stage }, 2);
    xd_connection_repeat_cancel(t->connection, &t->running);
}

static void on_step(void *cookie, const xd_progress *p)
{
    xd_task_run *t = cookie;
    char         a[NUMBER], b[NUMBER], c[NUMBER], d[NUMBER];
    send_frame(t, XD_FRAME_STEP,
               (const char *[]){ t->running.id, number_text(a, p->step), number_text(b, p->steps),
                                 number_text(c, p->image), number_text(d, p->images) },
               5);
    xd_connection_repeat_cancel(t->connection, &t->running);
}

/* Writes a preview to its file and reports the file to the server. */
static void on_preview(void *cookie, const xd_image *image, const xd_progress *p)
{
    xd_task_run *t = cookie;
    char         path[4200], step[NUMBER];
    xd_task_preview_name(t->flags.output, t->flags.video, t->previews, path, sizeof path);
    if (xd_image_file_save(image, path, NULL) != XD_OK)
        return;
    t->previews++;
    send_frame(t, XD_FRAME_PREVIEW,
               (const char *[]){ t->running.id, number_text(step, p->step), path }, 3);
}

static xd_status on_turn(void *cookie, xd_err *e)
{
    xd_task_run *t = cookie;
    return t->on_turn(t->cookie, e);
}

/* Writes two image files next to the file of a video: the video's first frame, and a contact sheet
 * of at most 16 frames. */
static xd_status save_thumbnail(const xd_image *im, const char *name, xd_err *e)
{
    char     path[4200];
    xd_image first = *im;
    first.size = sizeof first;
    first.frames = 1;
    snprintf(path, sizeof path, "%s" XD_TASK_THUMBNAIL, name);
    xd_status s = xd_image_file_save(&first, path, e);
    snprintf(path, sizeof path, "%s" XD_TASK_SHEET, name);
    return s == XD_OK ? xd_image_file_sheet(im, 4, 16, 256, path, e) : s;
}

/* Writes the sound of a video to a file next to the video, because the format of the video may be
 * unable to contain sound. */
static xd_status save_sound(const xd_result *r, int i, const char *name, xd_err *e)
{
    char path[4200];
    snprintf(path, sizeof path, "%s" XD_TASK_SOUND, name);
    return xd_result_save(r, i, path, e);
}

/* Tells the server that image i, or the layer number `layer` of this image, is in the file `name`.
 * The numbers of tokens in the report are those of the complete image, and are sent with the
 * image's first layer. */
static void send_image(const xd_task_run *t, const xd_result *partial, int i, int layer,
                       const char *name)
{
    static const char *const counted[TOKENS] = { "text", "reference", "image" };
    char                     seed[NUMBER], a[NUMBER], b[NUMBER], c[NUMBER], d[NUMBER], f[NUMBER];
    char                     tokens[TOKENS][NUMBER];
    const xd_image          *im = xd_result_image(partial, i);
    xd_audio_size            size;
    const char *json = xd_result_json(partial, i), *text = xd_result_parameters(partial, i);
    xd_result_audio(partial, i, &size);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)xd_result_seed(partial, i));
    for (int k = 0; k < TOKENS; k++)
        number_text(tokens[k], layer ? 0 : (double)xd_result_tokens(partial, i, counted[k]));
    send_frame(t, XD_FRAME_IMAGE,
               (const char *[]){
                   t->running.id, name, seed, json ? json : "{}", text ? text : "",
                   number_text(a, (double)im->width), number_text(b, (double)im->height),
                   number_text(c, im->fps > 0 ? (double)im->frames : 1), number_text(d, im->fps),
                   number_text(f, size.rate), tokens[0], tokens[1], tokens[2] },
               10 + TOKENS);
}

static xd_status on_image(void *cookie, const xd_result *partial, int i, xd_err *e)
{
    xd_task_run    *t = cookie;
    char            name[4096], layer[4200];
    const xd_image *im = xd_result_image(partial, i);
    xd_audio_size   size;
    const float    *sound = xd_result_audio(partial, i, &size);
    int             layers = im->fps > 0 ? 1 : (int)im->frames;
    xd_status       s =
        xd_output_video_name(t->flags.output, i, t->images, im->frames, name, sizeof name, e);
    if (s == XD_OK)
        s = xd_result_save(partial, i, name, e);
    if (s == XD_OK && im->fps > 0)
        s = save_thumbnail(im, name, e);
    if (s == XD_OK && sound)
        s = save_sound(partial, i, name, e);
    for (int k = 0; s == XD_OK && k < layers; k++) {
        s = xd_output_name(name, k, layers, layer, sizeof layer, e);
        if (s == XD_OK)
            send_image(t, partial, i, k, layers > 1 ? layer : name);
    }
    return s;
}

static void send_done(const xd_task_run *t, const xd_result *res)
{
    static const char *const parts[] = {
        "text", "load", "denoise", "decode", "total", "first_step"
    };
    enum { PARTS = sizeof parts / sizeof *parts };
    const char *v[1 + 2 * PARTS] = { t->running.id };
    char        text[PARTS][NUMBER];
    int         n = 1;
    for (int i = 0; i < PARTS; i++) {
        double s = xd_result_seconds(res, parts[i]);
        if (s < 0)
            continue;
        v[n++] = parts[i];
        v[n++] = number_text(text[i], s);
    }
    send_frame(t, XD_FRAME_DONE, v, n);
}

static double resident_bytes(void)
{
    long  pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Reports the memory of this process and the number of open models. */
static void report_memory(const xd_task_run *t)
{
    char bytes[NUMBER], models[NUMBER];
    send_frame(t, XD_FRAME_MEMORY,
               (const char *[]){ number_text(bytes, resident_bytes()),
                                 number_text(models, xd_worker_models_count(t->models)) },
               2);
}

/* ---- checkpoints --------------------------------------------------------------------------- */

/* Seconds between two checkpoints of a task, which is the maximum time of computation that a
 * restarted server repeats. */
static const double CHECKPOINT_S = 2;

static int is_of_image(const char *name)
{
    return strncmp(name, "image-", 6) == 0;
}

/* Generates the images of a task. If a checkpoint file cannot be used, for example because another
 * version has written it, the task does not fail: its images start again from the first step. */
static xd_status generate_on(xd_task_run *t, xd_engine *g, xd_result **res, xd_err *e)
{
    const char *dir = t->flags.request.checkpoint.dir;
    int         had = dir && xd_folder_files(dir, is_of_image, 0);
    xd_status   s = xd_generate(g, &t->flags.request, res, e);
    if (!had || (s != XD_EINVAL && s != XD_EFORMAT && s != XD_EIO))
        return s;
    if (t->reports)
        xd_folder_files(dir, is_of_image, 1);
    *e = (xd_err){ .rank = -1 };
    return xd_generate(g, &t->flags.request, res, e);
}

/* ---- running --------------------------------------------------------------------------------- */

static xd_status generate(xd_task_run *t, xd_engine *g, xd_result **res, xd_err *e)
{
    xd_request *r = &t->flags.request;
    r->callbacks.on_stage = on_stage;
    r->callbacks.on_step = on_step;
    r->callbacks.on_image = on_image;
    r->callbacks.on_preview = t->reports ? on_preview : NULL;
    r->callbacks.on_turn = t->alone ? NULL : on_turn;
    r->callbacks.cookie = t;
    t->images = r->nprompts * r->num_images_per_prompt;
    xd_connection_set_engine(t->connection, &t->running, g);
    r->checkpoint.seconds = CHECKPOINT_S;
    if (!xd_launch_here()) /* with data parallelism on several hosts, checkpoints need a folder that
                              the hosts share */
        r->checkpoint.dir = NULL;
    xd_status s = generate_on(t, g, res, e);
    while (s == XD_ENOMEM && !t->alone && xd_worker_models_free_memory(t->models)) {
        *e = (xd_err){ .rank = -1 };
        s = generate_on(t, g, res, e);
    }
    xd_connection_set_engine(t->connection, &t->running, NULL);
    return s;
}

static xd_status check_kind(const xd_opened *o, const xd_task_flags *f, xd_err *e)
{
    int video = xd_makes_videos(o->engine);
    if (video == f->video)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   video ? "this model generates videos: send the request to "
                           "/v1/videos"
                         : "this model generates images: send the request to "
                           "/v1/images/generations");
}

static xd_status run_together(xd_task_run *t, xd_result **res, xd_err *e)
{
    xd_opened *o = NULL;
    xd_engine *g = NULL;
    xd_status  s = xd_worker_models_get(t->models, &t->flags, &o, e);
    if (s == XD_OK)
        s = check_kind(o, &t->flags, e);
    if (s == XD_OK)
        s = xd_worker_models_acquire_engine(t->models, o, &t->flags, &g, e);
    if (s != XD_OK)
        return s;
    s = generate(t, g, res, e);
    xd_worker_models_release(o);
    return s;
}

static xd_status run_alone(xd_task_run *t, xd_result **res, xd_err *e)
{
    xd_status s = t->alone->alone ? check_kind(t->alone, &t->flags, e)
                                  : xd_fail(e, XD_ENOMEM, "this rank has no engine of its own");
    return s == XD_OK ? generate(t, t->alone->alone, res, e) : s;
}

xd_status xd_task_run_frame(xd_task_run *t, const xd_frame *frame, int cancelled, xd_err *e)
{
    xd_result *res = NULL;
    xd_err     mine = { .rank = -1 };
    char       code[NUMBER];
    xd_connection_push_task(t->connection, &t->running, xd_frame_task_id(frame), cancelled);
    xd_status s = xd_task_flags_read(&t->flags, frame->n, frame->v, &mine);
    t->flags.request.output.omit_folders = t->omit_folders;
    if (s == XD_OK)
        s = xd_task_flags_load(&t->flags, &mine);
    if (s == XD_OK)
        s = t->alone ? run_alone(t, &res, &mine) : run_together(t, &res, &mine);
    if (s == XD_OK)
        send_done(t, res);
    else
        send_frame(t, XD_FRAME_FAILED,
                   (const char *[]){ t->running.id, number_text(code, s), mine.msg }, 3);
    xd_result_free(&res);
    xd_task_flags_free(&t->flags);
    xd_connection_pop_task(t->connection, &t->running);
    if (s != XD_ECOMM) {
        report_memory(t);
        return XD_OK;
    }
    *e = mine;
    return s;
}
