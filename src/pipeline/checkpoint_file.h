/* checkpoint_file.h - reads and writes checkpoint files of images (checkpoint.h).
 *
 * The state of an image is saved in image-NNNN.safetensors in the checkpoint folder. A second host
 * saves a copy as image-NNNN.copy.safetensors; the names differ because both hosts may use one
 * folder of a shared file system. */
#ifndef XD_PIPELINE_CHECKPOINT_FILE_H
#define XD_PIPELINE_CHECKPOINT_FILE_H

#include "base/json.h"
#include "pipeline/denoise.h"
#include "pipeline/job.h"
#include "pipeline/options.h"

enum { XD_CHECKPOINT_PATH = 4096, XD_CHECKPOINT_ITEMS = 1 + XD_MAXHIST };
enum { XD_NOTES = 8 + XD_JOB_TEXTS + XD_OPTION_ROWS };

/* Metadata of a checkpoint file: a list of keys and values in turn, with NULL at the end. */
typedef struct xd_notes {
    const char *v[2 * XD_NOTES + 5];
    xd_text_buf text[XD_NOTES]; /* the values */
    int         n;
} xd_notes;

/* Contents of a checkpoint file, copied from the request so that another thread can write the
 * file. */
typedef struct xd_snapshot {
    char     path[XD_CHECKPOINT_PATH];
    int      finished, items; /* number of finished steps, and number of tensors in the file */
    int64_t  numbers, lat[4]; /* number of elements and shape of each tensor */
    float   *state;           /* [items,numbers] */
    xd_notes notes;
} xd_snapshot;

/* Sets `path` to the path of an image's checkpoint file, or of the copy of that file. */
void      xd_checkpoint_path(const xd_job *j, int image, int copy, char path[XD_CHECKPOINT_PATH]);
/* Sets *finished to the number of finished steps in the newest usable checkpoint file of an image,
 * or to 0 if no file is usable. Returns an error if the files belong to another request, or if both
 * the file and its copy are damaged. */
xd_status xd_checkpoint_steps(const xd_job *j, int image, int *finished, xd_err *e);
/* Reads the image's state after `finished` steps to `to`, from the checkpoint file or its copy. */
xd_status xd_checkpoint_read(const xd_job *j, int image, int finished, float *to, xd_err *e);
/* Returns a snapshot that has memory for an image's state, or NULL if out of memory. */
xd_snapshot *xd_snapshot_make(const xd_job *j);
/* Sets all fields of a snapshot except the image's state. */
xd_status    xd_snapshot_set(xd_snapshot *p, const xd_job *j, int image, int finished, int copy,
                             xd_err *e);
/* Implements the functions of xd_saver_ops. xd_snapshot_write writes the checkpoint file; its error
 * message names the step. */
xd_status    xd_snapshot_write(void *snapshot, xd_err *e);
void         xd_snapshot_free(void *snapshot);

#endif
