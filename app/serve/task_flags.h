/* task_flags.h - the arguments of a task, which the server sends to its worker: the request options
 * of xdit generate, and a few more */
#ifndef XD_SERVE_TASK_FLAGS_H
#define XD_SERVE_TASK_FLAGS_H

#include "cli/loras.h"
#include "cli/opt.h"
#include "cli/prompt_texts.h"

typedef struct xd_task_flags {
    const char   *id, *model;   /* task id; directory of the model                             */
    const char   *output;       /* file for the first image; others as in xd_output_name       */
    int           video;        /* the model must generate videos (1) or images (0)            */
    xd_opt_texts  prompts, images, loras;
    xd_prompt_texts texts;
    xd_loras_read lora;
    const char   *mask_image, *last_image;
    int           mask_alpha;   /* use the mask's transparency (xd_image_file_load_mask)        */
    xd_request    request;      /* points to the texts above                                   */
    /* Set by xd_task_flags_load: the images, then the mask and the last image. */
    xd_image         *pixels;   /* [npixels]                                                   */
    uint8_t         **data;
    const xd_image  **more;
    int               npixels;
} xd_task_flags;

/* Returns the file name of preview i (from 0) for a task with this output: with the extension of
 * the output; for a video .png. */
void      xd_task_preview_name(const char *output, int video, int i, char *path, size_t size);
/* Parses argv[0..argc); the record points into it. XD_EINVAL: the message names the argument. Call
 * xd_task_flags_free also after a failure. */
xd_status xd_task_flags_read(xd_task_flags *f, int argc, char **argv, xd_err *e);
/* Loads the images into the request as pixels, so that the result does not contain file names. */
xd_status xd_task_flags_load(xd_task_flags *f, xd_err *e);
void      xd_task_flags_free(xd_task_flags *f);

#endif
