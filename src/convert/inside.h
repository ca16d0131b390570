/* inside.h - used only in src/convert: declares the plan of a model conversion (the output files
 * and their tensors), and the steps of the conversion.
 *
 * The plan of a conversion is made before anything is written. The plan describes every output file
 * with its header, so that the size of each file is known and files of an interrupted earlier run
 * are recognized. */
#ifndef XD_CONVERT_INSIDE_H
#define XD_CONVERT_INSIDE_H

#include "base/json.h"
#include "model/model.h"
#include "xdit/tools.h"

/* Output type that keeps the element types of the source files. */
enum { XD_CVT_STORED = XD_NDTYPES };

typedef struct xd_cvt_item { /* a tensor of the converted model */
    char     *name;          /* name of the output tensor; owned */
    xd_tensor t;             /* type and shape of the output tensor */
    /* Index in the source files of a tensor that the component does not declare and that is
     * therefore copied unchanged; -1 for other tensors. */
    int64_t   raw;
    /* Number of the group to which the tensor belongs; all tensors of a group are written to one
     * file. */
    int       unit;
    /* 1: the tensor is a quantized matrix; the other tensor of its group (`unit`) contains the
     * matrix's scales. */
    int       quantized;
    int       scales; /* 1: the tensor contains the scales of a quantized matrix */
    int       fours;  /* 1: the tensor is a Q4_0 matrix, which is stored as bytes (its blocks) */
    /* Group size of the rotation (xd_rotation) if the columns of a matrix are rotated; else 0. */
    int64_t   rotate;
    size_t    at; /* offset in the data section of the output file */
} xd_cvt_item;

/* An output file, which contains consecutive tensors of a component's list of tensors. */
typedef struct xd_cvt_file {
    /* `path` of the output file, and its `name` in the output directory
     * ("transformer/x.safetensors"); both owned. */
    char        *path, *name;
    xd_cvt_item *item; /* [n] tensors of the file, borrowed */
    int          n;
    xd_text_buf  header;
    size_t       bytes; /* size of the output file in bytes */
    int          done;  /* 1: an earlier run has written the file */
} xd_cvt_file;

typedef struct xd_cvt_part { /* a component of the model, and its output files */
    xd_component *p;         /* the component, borrowed; its files are open */
    int           type;      /* output type: F32, BF16, I8, F8E4M3, Q4_0 or XD_CVT_STORED */
    xd_cvt_item  *item;
    int           n;
    /* text of ComfyUI's metadata entry _quantization_metadata; empty: no entry is written */
    xd_text_buf   formats;
    xd_cvt_file  *file;
    int           nfile;
} xd_cvt_part;

typedef struct xd_cvt_copy { /* a file that is copied unchanged */
    char  *from, *to;        /* paths of the source file and of its copy; owned */
    size_t bytes;
    int    config; /* 1: the file is the config of a component that is converted */
} xd_cvt_copy;

typedef struct xd_cvt {
    const xd_convert_args *a;
    xd_model               m;
    xd_cvt_part            part[XD_MAXTEXT + 3];
    int                    nparts;
    xd_cvt_copy           *copy;
    int                    ncopies;
    xd_text_buf            asked;  /* arguments of the conversion, as text */
    uint64_t               source; /* hash of the source model of the conversion */
    /* Hash of the fields `asked` and `source`, stored in the header of every output file. */
    char                   tag[40];
    double                 done, total; /* bytes written so far; total bytes to write */
} xd_cvt;

/* ---- the plan (tensors.c, shards.c) ---------------------------------------------------------- */

/* Lists the output tensors of a component, in the order in which a model loads them. */
xd_status xd_cvt_list(xd_cvt_part *c, xd_err *e);
/* Distributes the output tensors of a component over files, and makes the files' headers. */
xd_status xd_cvt_shards(const xd_cvt *v, xd_cvt_part *c, xd_err *e);
/* For a component with several files, writes the safetensors index. */
xd_status xd_cvt_index(const xd_cvt *v, const xd_cvt_part *c, xd_err *e);
void      xd_cvt_part_free(xd_cvt_part *c);

/* ---- writing (write.c) ----------------------------------------------------------------------- */

/* Writes one weight file of a component. */
xd_status xd_cvt_write(xd_cvt *v, const xd_cvt_part *c, const xd_cvt_file *f, xd_err *e);
void      xd_cvt_progress(xd_cvt *v, const char *file, size_t bytes);

/* ---- the directory (copy.c, state.c) --------------------------------------------------------- */

/* Lists the files of the model that are copied unchanged, such as configs and tokenizers. */
xd_status xd_cvt_list_copies(xd_cvt *v, xd_err *e);
/* Copies the listed files of the model. If `last` is 0, xd_cvt_copy_files copies all files except
 * model_index.json; if `last` is 1, it copies only model_index.json. */
xd_status xd_cvt_copy_files(xd_cvt *v, int last, xd_err *e);
void      xd_cvt_copies_free(xd_cvt *v);

/* Checks that the output directory is empty or contains only files of the same conversion. Marks
 * complete files as done, checks that the disk has space for the other files, and prepares the
 * directory. */
xd_status xd_cvt_begin(xd_cvt *v, xd_err *e);
xd_status xd_cvt_end(const xd_cvt *v, xd_err *e);

/* Returns the malloc'ed path "DIR/a/b". If out of memory, returns NULL and sets *e. */
char *xd_cvt_path(const char *dir, const char *a, const char *b, xd_err *e);

#endif
