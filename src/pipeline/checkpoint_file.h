/* checkpoint_file.h - reads and writes the files of checkpoints (checkpoint.h).
 *
 * The state of an image is image-NNNN.safetensors in the folder of the request, and a second host
 * keeps a copy of the same contents as image-NNNN.copy.safetensors, so that both can be in one
 * folder of a shared file system. */
#ifndef XD_PIPELINE_CHECKPOINT_FILE_H
#define XD_PIPELINE_CHECKPOINT_FILE_H

#include "base/json.h"
#include "pipeline/denoise.h"
#include "pipeline/job.h"
#include "pipeline/options.h"

enum { XD_CHECKPOINT_PATH = 4096, XD_CHECKPOINT_ITEMS = 1 + XD_MAXHIST };
enum { XD_NOTES = 8 + XD_JOB_TEXTS + XD_OPTION_ROWS };

/* The metadata of a file: keys and their values, in pairs, and NULL at the end. */
typedef struct xd_notes {
    const char *v[2 * XD_NOTES + 5];
    xd_text_buf text[XD_NOTES]; /* the values */
    int         n;
} xd_notes;

/* The contents of a file, apart from the request, so that another thread can write it. */
typedef struct xd_snapshot {
    char     path[XD_CHECKPOINT_PATH];
    int      finished, items; /* number of finished steps, and of tensors */
    int64_t  numbers, lat[4]; /* number of elements and shape of each tensor */
    float   *state;           /* [items,numbers] */
    xd_notes notes;
} xd_snapshot;

/* Writes the name of an image's file, or of its copy. */
void      xd_checkpoint_path(const xd_job *j, int image, int copy, char path[XD_CHECKPOINT_PATH]);
/* Sets *finished to the number of finished steps in the newest file of an image that can be
 * continued, 0 if there is none. Refuses files of another request, and a damaged file unless the
 * other one is good. */
xd_status xd_checkpoint_steps(const xd_job *j, int image, int *finished, xd_err *e);
/* Reads the state after `finished` steps to `to`, from the file or its copy. */
xd_status xd_checkpoint_read(const xd_job *j, int image, int finished, float *to, xd_err *e);
/* Returns a snapshot with memory for an image's state; NULL: no memory. */
xd_snapshot *xd_snapshot_make(const xd_job *j);
/* Sets all of a snapshot except its state. */
xd_status    xd_snapshot_set(xd_snapshot *p, const xd_job *j, int image, int finished, int copy,
                             xd_err *e);
/* Functions of xd_saver_ops: xd_snapshot_write writes the file, and its error names the step. */
xd_status    xd_snapshot_write(void *snapshot, xd_err *e);
void         xd_snapshot_free(void *snapshot);

#endif
