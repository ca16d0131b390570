/* module.h - a transformer or an autoencoder by itself: weights from the program's memory, one pass
 *
 *     xd_module_args a;
 *     xd_module     *m = NULL;
 *     xd_module_args_init(&a);
 *     a.config = config;                  // the text of its config.json, with "_class_name"
 *     a.weights = weights;                // named tensors, those of its file
 *     a.nweights = n;
 *     if (xd_module_open(&m, &a, &e) == XD_OK)
 *         xd_module_pass(m, &pass, prediction, &e);
 *     xd_module_close(&m);
 *
 * A program that has its own text encoders and sampler, such as a pipeline of diffusers, computes
 * single passes so. A module works on the CPU, on one rank. The rules of xdit.h hold here, too:
 * errors, records and their versions, threads of the program. A module counts as an engine. */
#ifndef XDIT_MODULE_H
#define XDIT_MODULE_H

#include "xdit/xdit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers in the program's memory, contiguous, the last extent innermost. Fixed size. */
enum { XD_ARRAY_DIMS = 5 };
typedef struct xd_array {
    const char *name;           /* of a weight: that of the file; else NULL                    */
    const char *dtype;          /* "f32", "bf16" or "f16"                                      */
    const void *data;           /* NULL: there is no such array                                */
    int64_t     nd, d[XD_ARRAY_DIMS];
} xd_array;

typedef struct xd_module xd_module;

typedef struct xd_module_args { /* call xd_module_args_init, then set fields                   */
    size_t          size;
    const char     *config;     /* JSON text; "_class_name" selects the network                */
    const xd_array *weights;    /* [nweights]; those that the network does not declare count not */
    int64_t         nweights;
    const char     *dtype, *weights_dtype;      /* as in xd_open_args                          */
    /* Nonzero: matrices stay where they are and are packed by groups of rows for each product; the
     * program keeps the memory of all weights, unchanged, until xd_module_close. 0: all weights are
     * copied, and the program may free them when xd_module_open has returned. Results are the same,
     * bit for bit. */
    int             in_place;
    int             threads;    /* 0: all cores that this process may use                     */
    int             log_level;  /* lines up to this level are passed to `log`                   */
    int             reserved;   /* 0                                                         */
    void          (*log)(void *cookie, int level, const char *line);
    void           *cookie;     /* `log` and `cookie` are used until xd_module_close            */
} xd_module_args;
#define xd_module_args_init(a) xd_module_args_init_size((a), sizeof *(a))
XD_API void      xd_module_args_init_size(xd_module_args *a, size_t size);

/* Reads the config, compares the weights with what it declares, and packs them. */
XD_API xd_status xd_module_open(xd_module **m, const xd_module_args *a, xd_err *e);
XD_API void      xd_module_close(xd_module **m);
/* The i-th class of transformers ("transformer") or autoencoders ("vae") that xd_module_open knows;
 * NULL: there are no more. */
XD_API const char *xd_module_class(const char *kind, int i);
/* Bytes of memory of its weights: copied ones, without those that are used in place. */
XD_API int64_t   xd_module_bytes(const xd_module *m);
/* Makes the running call end soon with XD_ECANCELLED, as xd_cancel. */
XD_API void      xd_module_cancel(xd_module *m);

/* ---- a transformer ------------------------------------------------------------------------- */

typedef struct xd_pass {        /* one sample; call xd_pass_init, then set fields              */
    size_t   size;
    /* Latent cells [T,C,h,w], or [C,h,w] of one frame; or tokens [N,F] of `grid`, in the order
     * (channel, frame, row, column) of the cells of a patch. Channels that the model reads beside
     * the latents are behind them. */
    xd_array latents;
    int64_t  grid[3];           /* of tokens: their frames, rows, columns; of cells: 0          */
    /* Tokens [R,F] of reference images, one after the other, of references[i] rows and columns. */
    xd_array       reference;
    const int64_t (*references)[2];     /* [nreferences]                                       */
    int64_t        nreferences;
    xd_array text;              /* [n,E] rows of text, without padding that is masked           */
    /* Where the model puts rows of its own in place of padding: the rows of text of each encoder
     * that are none, of a text whose rows are those of one encoder behind those of the other. 0:
     * there is no padding. */
    int64_t  text_real[2];
    xd_array image;             /* [m,E] rows of an image's encoder                            */
    xd_array pooled;            /* [P] or [1,P]                                                */
    double   timestep;          /* in the units of the scheduler: 1000 is noise, 0 none          */
    double   guidance;          /* a distilled guidance scale; NaN, the default: none           */
    double   height, width;     /* pixels, of micro-conditions                                 */
    int64_t  held;              /* so many tokens, the first of all, have the time 0            */
} xd_pass;
#define xd_pass_init(p) xd_pass_init_size((p), sizeof *(p))
XD_API void      xd_pass_init_size(xd_pass *p, size_t size);

/* Computes the prediction: f32 in the layout of the latents, [T,C,h,w] or [N,F], without channels
 * that are read beside them. What depends on the text alone is computed once for a text: the last
 * few texts are compared byte by byte. XD_EINVAL: an array has another shape than the model takes;
 * nothing is computed. */
XD_API xd_status xd_module_pass(xd_module *m, const xd_pass *p, float *prediction, xd_err *e);

/* The shape of the prediction for latents of a shape: as many extents. XD_EINVAL: the transformer
 * takes no such latents. */
XD_API xd_status xd_module_predicted(const xd_module *m, int nd, const int64_t *latents,
                                     int64_t *prediction, xd_err *e);

/* ---- an autoencoder ------------------------------------------------------------------------ */

/* Latents [T,C,h,w] or [C,h,w] -> pixels, f32 [frames,H,W,3] in about -1 to 1. tiled: in
 * overlapping tiles where one does not cover the image. Latents are what the network reads: they
 * have been divided by the scaling factor. */
XD_API xd_status xd_module_decode(xd_module *m, const xd_array *latents, int tiled, float *pixels,
                                  xd_err *e);
/* Pixels [frames,H,W,3] in -1 to 1 -> moments, f32 [T,h,w,2C]: means and logs of variances. */
XD_API xd_status xd_module_encode(xd_module *m, const xd_array *pixels, int tiled, float *moments,
                                  xd_err *e);
/* The shape [frames,H,W,3] of the pixels of latents of shape [T,C,h,w], and [T,h,w,2C] of the
 * moments of pixels [frames,H,W,3]. XD_EINVAL: it takes no such shape. */
XD_API xd_status xd_module_decoded(const xd_module *m, const int64_t latents[4], int64_t pixels[4],
                                   xd_err *e);
XD_API xd_status xd_module_encoded(const xd_module *m, const int64_t pixels[4], int64_t moments[4],
                                   xd_err *e);

#ifdef __cplusplus
}
#endif

#endif
