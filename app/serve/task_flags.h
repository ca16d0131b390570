/* task_flags.h - the arguments of one task, as the server sends them to its worker: those of
 * xdit generate that belong to a request, and a few more */
#ifndef XD_SERVE_TASK_FLAGS_H
#define XD_SERVE_TASK_FLAGS_H

#include "cli/loras.h"
#include "cli/opt.h"
#include "cli/prompt_texts.h"

typedef struct xd_task_flags {
    const char   *id, *model;   /* the model's directory                                       */
    const char   *output;       /* file that the first image gets; others as xd_output_name says */
    int           video;        /* the model must make videos, else images                     */
    xd_opt_texts  prompts, images, loras;
    xd_prompt_texts texts;
    xd_loras_read lora;
    const char   *mask_image, *last_image;
    int           mask_alpha;   /* what is transparent of the mask is inpainted, if anything is  */
    xd_request    request;      /* with the texts above                                        */
    /* Of xd_task_flags_load: the images and, behind them, the mask and the last image. */
    xd_image         *pixels;   /* [npixels]                                                   */
    uint8_t         **data;
    const xd_image  **more;
    int               npixels;
} xd_task_flags;

/* The file of preview i, from 0, of a task with this output: an image of its format, of a video
 * PNG. */
void      xd_task_preview_name(const char *output, int video, int i, char *path, size_t size);
/* Reads argv[0..argc), which the record then points into. XD_EINVAL with a sentence that names the
 * argument. xd_task_flags_free also after a failure. */
xd_status xd_task_flags_read(xd_task_flags *f, int argc, char **argv, xd_err *e);
/* Reads the images into the request, as pixels: names of files do not reach the result. */
xd_status xd_task_flags_load(xd_task_flags *f, xd_err *e);
void      xd_task_flags_free(xd_task_flags *f);

#endif
