/* task_flags.h - parses the arguments of a task, which the server sends to its worker. The
 * arguments of a task are the request options of xdit generate, and some options that only the
 * server sets. */
#ifndef XD_SERVE_TASK_FLAGS_H
#define XD_SERVE_TASK_FLAGS_H

#include "cli/loras.h"
#include "cli/opt.h"
#include "cli/prompt_texts.h"

typedef struct xd_task_flags {
    const char      *id, *model; /* task id; directory of the model */
    const char      *output;     /* name of the first image's file; xd_output_name derives the names
                                   of further images */
    int              video;      /* 1: the model must generate videos; 0: it must generate images */
    xd_opt_texts     prompts, images, control_images, redux_images, loras;
    xd_prompt_texts  texts;
    xd_loras_read    lora;
    const char      *mask_image, *last_image, *control_video, *pose_video, *face_video;
    /* 1: transparent pixels of the mask image are the mask (xd_image_file_load_mask) */
    int              mask_alpha;
    xd_request       request; /* request to the library; its texts point into argv */
    /* Images that xd_task_flags_load has read from files, in this order: the reference images, the
     * mask, the last image, the control images, the control video, the pose video, the face video,
     * the images of a prior. */
    xd_image        *pixels; /* [npixels] loaded images */
    uint8_t        **data;
    const xd_image **more, **more_controls, **more_redux;
    int              npixels;
} xd_task_flags;

/* Returns the path in an argument that names a file with an input image, such as "--image=PATH";
 * NULL: the argument names no such file. */
const char *xd_task_image_path(const char *arg);
/* Writes the file name of a task's preview i (from 0) to `path`. The name of a preview is derived
 * from the name of the task's output file. The extension of a preview is that of the output file,
 * or .png for a video. */
void        xd_task_preview_name(const char *output, int video, int i, char *path, size_t size);
/* Parses the task's arguments argv[0..argc); the strings in *f point into argv. XD_EINVAL: an
 * argument is invalid; the error message names the argument. The caller must call
 * xd_task_flags_free also after a failure. */
xd_status   xd_task_flags_read(xd_task_flags *f, int argc, char **argv, xd_err *e);
/* Reads the task's image files and passes the images to the request as pixels. Since the request
 * has pixels in place of files, the parameters in the task's results do not contain file names. */
xd_status   xd_task_flags_load(xd_task_flags *f, xd_err *e);
void        xd_task_flags_free(xd_task_flags *f);

#endif
