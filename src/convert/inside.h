/* inside.h - inside convert: the plan of a conversion (output files and their tensors) and its
 * steps
 *
 * The plan is made before anything is written: every output file with its header, so that its size
 * is known, and files of an interrupted earlier run are recognized. */
#ifndef XD_CONVERT_INSIDE_H
#define XD_CONVERT_INSIDE_H

#include "base/json.h"
#include "model/model.h"
#include "xdit/tools.h"

enum { XD_CVT_STORED = XD_NDTYPES };    /* in place of a type: as the tensors are stored       */

typedef struct xd_cvt_item {    /* a tensor of the output                                      */
    char     *name;             /* owned                                                       */
    xd_tensor t;                /* type and shape                                              */
    int64_t   raw;              /* index in the source files of an undeclared tensor, copied
                                   as is; -1: the component declares the tensor                */
    int       unit;             /* tensors of one unit go to the same file                     */
    int       quantized;        /* 1: a matrix whose scales are the other tensor of its unit   */
    int       scales;           /* 1: the scales of that matrix                                */
    int       fours;            /* 1: a Q4_0 matrix, as bytes of its blocks                    */
    int64_t   rotate;           /* group size of the columns' rotation (xd_rotation); 0: none  */
    size_t    at;               /* offset in the data of its file                              */
} xd_cvt_item;

typedef struct xd_cvt_file {    /* an output file: consecutive items                           */
    char       *path, *name;    /* owned; name: in the output, "transformer/x.safetensors"     */
    xd_cvt_item *item;          /* [n], borrowed                                               */
    int         n;
    xd_text_buf header;
    size_t      bytes;          /* size of the file                                            */
    int         done;           /* 1: an earlier run has written it                            */
} xd_cvt_file;

typedef struct xd_cvt_part {    /* a component                                                 */
    xd_component *p;            /* borrowed; its files are open                                */
    int           type;         /* F32, BF16, I8, F8E4M3, Q4_0 or XD_CVT_STORED                */
    xd_cvt_item  *item;
    int           n;
    xd_text_buf   formats;      /* ComfyUI's _quantization_metadata, or empty                  */
    xd_cvt_file  *file;
    int           nfile;
} xd_cvt_part;

typedef struct xd_cvt_copy {    /* a file that is copied                                       */
    char  *from, *to;           /* owned                                                       */
    size_t bytes;
    int    config;              /* 1: the config of a component whose weights are written      */
} xd_cvt_copy;

typedef struct xd_cvt {
    const xd_convert_args *a;
    xd_model     m;
    xd_cvt_part  part[XD_MAXTEXT + 3];
    int          nparts;
    xd_cvt_copy *copy;
    int          ncopies;
    xd_text_buf  asked;         /* the arguments, as text                                      */
    uint64_t     source;        /* hash of the source model                                    */
    char         tag[40];       /* hash of arguments and source, written into the headers      */
    double       done, total;   /* bytes written so far; bytes in all                          */
} xd_cvt;

/* ---- the plan (tensors.c, shards.c) ---------------------------------------------------------- */

/* Lists the output tensors of a part, in the order in which they are loaded. */
xd_status xd_cvt_list(xd_cvt_part *c, xd_err *e);
/* Distributes them over files and makes the headers. */
xd_status xd_cvt_shards(const xd_cvt *v, xd_cvt_part *c, xd_err *e);
/* Writes the index of a part that has several files. */
xd_status xd_cvt_index(const xd_cvt *v, const xd_cvt_part *c, xd_err *e);
void      xd_cvt_part_free(xd_cvt_part *c);
/* "diffusion_pytorch_model" or "model". */
const char *xd_cvt_stem(const xd_component *p);

/* ---- writing (write.c) ----------------------------------------------------------------------- */

/* Writes a file of a part. */
xd_status xd_cvt_write(xd_cvt *v, const xd_cvt_part *c, const xd_cvt_file *f, xd_err *e);
void      xd_cvt_progress(xd_cvt *v, const char *file, size_t bytes);

/* ---- the directory (copy.c, state.c) --------------------------------------------------------- */

/* Lists the other files of the model, which are copied: configs, tokenizers. */
xd_status xd_cvt_list_copies(xd_cvt *v, xd_err *e);
/* Copies them; last 0: all except model_index.json; 1: only model_index.json. */
xd_status xd_cvt_copy_files(xd_cvt *v, int last, xd_err *e);
void      xd_cvt_copies_free(xd_cvt *v);

/* Checks that the output directory is empty or has files of the same conversion, marks these as
 * done, checks the free disk space for the others, and prepares the directory. */
xd_status xd_cvt_begin(xd_cvt *v, xd_err *e);
xd_status xd_cvt_end(const xd_cvt *v, xd_err *e);

/* Returns "DIR/a/b", malloc'ed. NULL: out of memory, and *e is set. */
char     *xd_cvt_path(const char *dir, const char *a, const char *b, xd_err *e);

#endif
