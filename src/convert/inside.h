/* inside.h - inside convert: what is written, and from which tensors
 *
 * A plan is made before anything is written: every file with its header, so that its size is known
 * and a file that is there already can be recognized. */
#ifndef XD_CONVERT_INSIDE_H
#define XD_CONVERT_INSIDE_H

#include "base/json.h"
#include "model/model.h"
#include "xdit/tools.h"

enum { XD_CVT_STORED = XD_NDTYPES };    /* in place of a type: as the tensors are stored       */

typedef struct xd_cvt_item {    /* a tensor of the output                                      */
    char     *name;             /* owned                                                       */
    xd_tensor t;                /* type and extents                                            */
    int64_t   raw;              /* tensor of the files that nothing declares; -1: declared     */
    int       unit;             /* tensors of one unit stand in one file                       */
    int       quantized;        /* a matrix whose scales are the other tensor of its unit      */
    int       scales;           /* they are                                                    */
    int       fours;            /* a matrix of blocks of Q4_0, in bytes                        */
    int64_t   rotate;           /* in which groups these are rotated; 0: they are not          */
    size_t    at;               /* in the data of its file                                     */
} xd_cvt_item;

typedef struct xd_cvt_file {    /* a file of the output: some items, one after the other       */
    char       *path, *name;    /* owned; below the output: "transformer/x.safetensors"        */
    xd_cvt_item *item;          /* [n], borrowed                                               */
    int         n;
    xd_text_buf header;
    size_t      bytes;          /* of the whole file                                           */
    int         done;           /* it is there                                                 */
} xd_cvt_file;

typedef struct xd_cvt_part {    /* a component                                                 */
    xd_component *p;            /* borrowed; its files are open                                */
    int           type;         /* F32, BF16, I8, F8E4M3, Q4_0 or XD_CVT_STORED                */
    xd_cvt_item  *item;
    int           n;
    xd_text_buf   formats;      /* what ComfyUI writes of quantized matrices, or empty         */
    xd_cvt_file  *file;
    int           nfile;
} xd_cvt_part;

typedef struct xd_cvt_copy {    /* a file that is copied                                       */
    char  *from, *to;           /* owned                                                       */
    size_t bytes;
    int    config;              /* the config of a component whose weights are written         */
} xd_cvt_copy;

typedef struct xd_cvt {
    const xd_convert_args *a;
    xd_model     m;
    xd_cvt_part  part[XD_MAXTEXT + 3];
    int          nparts;
    xd_cvt_copy *copy;
    int          ncopies;
    xd_text_buf  asked;         /* the arguments, as text                                      */
    uint64_t     source;        /* hash of what is read                                        */
    char         tag[40];       /* of both, for the headers                                    */
    double       done, total;   /* bytes written, of all                                       */
} xd_cvt;

/* ---- what is written (tensors.c, shards.c) --------------------------------------------------- */

/* Lists the tensors of a part, in the order in which a load reads them. */
xd_status xd_cvt_list(xd_cvt_part *c, xd_err *e);
/* Distributes them over files and makes their headers. */
xd_status xd_cvt_shards(const xd_cvt *v, xd_cvt_part *c, xd_err *e);
/* The index of a part in several files; nothing for one in one. */
xd_status xd_cvt_index(const xd_cvt *v, const xd_cvt_part *c, xd_err *e);
void      xd_cvt_part_free(xd_cvt_part *c);
/* "diffusion_pytorch_model" or "model". */
const char *xd_cvt_stem(const xd_component *p);

/* ---- writing (write.c) ----------------------------------------------------------------------- */

/* Writes a file of a part. */
xd_status xd_cvt_write(xd_cvt *v, const xd_cvt_part *c, const xd_cvt_file *f, xd_err *e);
void      xd_cvt_progress(xd_cvt *v, const char *file, size_t bytes);

/* ---- the directory (copy.c, state.c) --------------------------------------------------------- */

/* Lists what is copied beside the weights. */
xd_status xd_cvt_list_copies(xd_cvt *v, xd_err *e);
/* Copies it; last: model_index.json alone, else all but it. */
xd_status xd_cvt_copy_files(xd_cvt *v, int last, xd_err *e);
void      xd_cvt_copies_free(xd_cvt *v);

/* Is the output a place for this conversion? Marks the files of an earlier run that are there, sees
 * to it that there is room for the others, and prepares the directory. */
xd_status xd_cvt_begin(xd_cvt *v, xd_err *e);
xd_status xd_cvt_end(const xd_cvt *v, xd_err *e);

/* "DIR/a/b", malloc'ed; XD_ENOMEM sets *e. */
char     *xd_cvt_path(const char *dir, const char *a, const char *b, xd_err *e);

#endif
