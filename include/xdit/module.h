/* module.h - computes a single transformer or autoencoder, with weights from the program's memory.
 *
 *     xd_module_args a;
 *     xd_module     *m = NULL;
 *     xd_module_args_init(&a);
 *     a.config = config;                  // the text of config.json, with "_class_name"
 *     a.weights = weights;                // named tensors, as in the weight file
 *     a.nweights = n;
 *     if (xd_module_open(&m, &a, &e) == XD_OK)
 *         xd_module_pass(m, &pass, prediction, &e);
 *     xd_module_close(&m);
 *
 * A module is for programs with their own text encoders and sampler, such as pipelines of
 * diffusers. A module runs on the CPU, on one rank. The rules of xdit.h for errors, for records
 * (structs) and their versions, and for the program's threads also apply to modules, as if a module
 * were an engine. */
#ifndef XDIT_MODULE_H
#define XDIT_MODULE_H

#include "xdit/xdit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor in the program's memory, contiguous, in row-major order. The size of xd_array does not
 * change between versions. */
enum { XD_ARRAY_DIMS = 5 };
typedef struct xd_array {
    const char *name;  /* for a weight, the tensor's name in the weight file; else NULL */
    const char *dtype; /* element type: "f32", "bf16" or "f16" */
    const void *data;  /* address of the first element; NULL: the tensor is absent */
    int64_t     nd, d[XD_ARRAY_DIMS]; /* number of dimensions, and the shape d[0..nd) */
} xd_array;

typedef struct xd_module xd_module;

typedef struct xd_module_args { /* call xd_module_args_init, then set fields */
    size_t          size;
    const char     *config; /* config as JSON text; "_class_name" selects the network */
    /* [nweights] weights. Weights whose names the network does not declare are ignored. */
    const xd_array *weights;
    int64_t         nweights;
    /* compute type and type of the weight matrices, with the same values as in xd_open_args */
    const char     *dtype, *weights_dtype;
    /* in_place nonzero: f32 weight matrices are not copied. Each GEMM reads an f32 matrix from the
     * program's arrays and packs the rows of the matrix group by group. If in_place is nonzero, the
     * program must keep all weights unchanged until xd_module_close; if it is 0, all weights are
     * copied, and the program may free them when xd_module_open has returned. Results of a module
     * are bit-identical for both values of in_place. */
    int             in_place;
    int             threads;   /* number of threads; 0: all cores that this process may use */
    int             log_level; /* log lines up to this level are passed to `log` */
    int             reserved;  /* must be 0 */
    void            (*log)(void *cookie, int level, const char *line);
    void           *cookie; /* first argument of `log`; must stay valid until xd_module_close */
} xd_module_args;
#define xd_module_args_init(a) xd_module_args_init_size((a), sizeof *(a))
XD_API void xd_module_args_init_size(xd_module_args *a, size_t size);

/* Opens a module: reads the config, checks that `weights` has the weights that the network
 * declares, and packs the weights. XD_EFORMAT: a weight of the network is missing or has a wrong
 * shape. XD_EUNSUPPORTED: the library has no network for the class in the config. Close *m with
 * xd_module_close; *m is NULL after a failure. */
XD_API xd_status   xd_module_open(xd_module **m, const xd_module_args *a, xd_err *e);
XD_API void        xd_module_close(xd_module **m);
/* Returns the name of the i-th (from 0) class that xd_module_open supports, or NULL if there are no
 * more classes. `kind` is "transformer" or "vae". */
XD_API const char *xd_module_class(const char *kind, int i);
/* Returns the bytes of memory that the module has allocated for weights; weights that are used in
 * place are not counted. */
XD_API int64_t     xd_module_bytes(const xd_module *m);
/* Cancels the module's running call, which soon returns XD_ECANCELLED. xd_module_cancel has the
 * rules of xd_cancel: it may be called from any thread and from a signal handler. */
XD_API void        xd_module_cancel(xd_module *m);

/* ---- a transformer ------------------------------------------------------------------------- */

typedef struct xd_pass { /* inputs of a transformer, for one sample; call xd_pass_init,
                                   then set fields */
    size_t          size;
    /* The latents as an array [T,C,h,w], or [C,h,w] for one frame. If the field `grid` is nonzero,
     * `latents` is an array [N,F] of N tokens instead. The F values of a token are the latents of
     * one patch, in the order (channel, frame, row, column). If the model has further input
     * channels, such as a mask or an encoded image, the values of these channels follow the values
     * of the latents. */
    xd_array        latents;
    /* If `latents` are tokens: the numbers of frames, rows and columns of tokens; else all 0. */
    int64_t         grid[3];
    /* Tokens [R,F] of reference images, one image after the other; image i has references[i][0]
     * rows and references[i][1] columns of tokens. */
    xd_array        reference;
    /* [nreferences] pairs: the numbers of rows and columns of tokens of each reference image */
    const int64_t   (*references)[2];
    int64_t         nreferences;
    /* [n,E] text embeddings: n rows of width E. Rows of padding that the attention mask excludes
     * are omitted. */
    xd_array        text;
    /* If `text` concatenates the embeddings of two text encoders: the number of rows of each
     * encoder that are not padding. Models that replace padding of texts by learned embeddings read
     * the two numbers of rows in text_real. If both numbers in text_real are 0, no row of `text` is
     * padding. */
    int64_t         text_real[2];
    xd_array        image;  /* [m,E] embeddings of an image encoder: m rows of width E */
    xd_array        pooled; /* [P] or [1,P]: pooled text embedding */
    /* timestep in the scheduler's scale, from 1000 (pure noise) to 0 (no noise) */
    double          timestep;
    /* Distilled guidance scale; NaN (the default): the model gets no guidance input. */
    double          guidance;
    /* image size in pixels, for models that read the size as a condition */
    double          height, width;
    /* Number of tokens at the start of the latents that have no noise and therefore have the
     * timestep 0. */
    int64_t         held;
    /* Frames per second, for models that read the frame rate; 0: the model's usual rate. */
    double          fps;
    /* Height and width of the original image, of which the image is a crop, and top and left of the
     * crop. Only models that were trained with these sizes as conditions read `original` and
     * `crop`. `original` 0 (the default): the image is the original. */
    double          original[2], crop[2];
    /* Residuals of control networks that the program has computed: [nresiduals] arrays [n,D], with
     * one row for each token of the latents. residual_at has one number for each block of the
     * transformer: the index of the residual that is added to the image's tokens after the block,
     * or -1. */
    const xd_array *residuals;
    int64_t         nresiduals;
    const int64_t  *residual_at;
    int64_t         nresidual_at;
} xd_pass;
#define xd_pass_init(p) xd_pass_init_size((p), sizeof *(p))
XD_API void xd_pass_init_size(xd_pass *p, size_t size);

/* Computes the transformer's prediction, which is f32 and has the layout of the latents, [T,C,h,w]
 * or [N,F]. The prediction has no channels for a mask or an encoded image. The caller allocates
 * `prediction`; xd_module_predicted computes its shape. Tensors that depend only on the text
 * embeddings are cached for the last few texts. A cached tensor is used if the text embeddings are
 * the same in every byte. XD_EINVAL: an array of the inputs has a wrong shape; nothing is
 * computed. */
XD_API xd_status xd_module_pass(xd_module *m, const xd_pass *p, float *prediction, xd_err *e);

/* Computes the shape of the prediction for latents whose shape is latents[0..nd). The predicted
 * shape has nd dimensions, like the shape of the latents. XD_EINVAL: the transformer does not
 * accept latents of the shape that was passed. */
XD_API xd_status xd_module_predicted(const xd_module *m, int nd, const int64_t *latents,
                                     int64_t *prediction, xd_err *e);

/* ---- an autoencoder ------------------------------------------------------------------------ */

/* Decodes latents [T,C,h,w] or [C,h,w] to pixels, f32 [frames,H,W,K] in about -1 to 1. The program
 * must have divided the latents by the scaling factor. If `tiled` is 1, xd_module_decode uses
 * overlapping tiles for images that are larger than a tile. The caller allocates `pixels`;
 * xd_module_decoded computes their shape. */
XD_API xd_status xd_module_decode(xd_module *m, const xd_array *latents, int tiled, float *pixels,
                                  xd_err *e);
/* Encodes pixels [frames,H,W,K] in -1 to 1 to the moments of the latents, f32 [T,h,w,2C]. The 2C
 * channels of the moments are C means, followed by C logarithms of variances. The caller allocates
 * `moments`; xd_module_encoded computes their shape. */
XD_API xd_status xd_module_encode(xd_module *m, const xd_array *pixels, int tiled, float *moments,
                                  xd_err *e);
/* xd_module_decoded computes the shape [frames,H,W,K] of the pixels that latents of shape [T,C,h,w]
 * decode to. xd_module_encoded computes the shape [T,h,w,2C] of the moments of pixels
 * [frames,H,W,3]. XD_EINVAL: the autoencoder does not accept latents or pixels of the shape that
 * was passed. */
XD_API xd_status xd_module_decoded(const xd_module *m, const int64_t latents[4], int64_t pixels[4],
                                   xd_err *e);
XD_API xd_status xd_module_encoded(const xd_module *m, const int64_t pixels[4], int64_t moments[4],
                                   xd_err *e);

#ifdef __cplusplus
}
#endif

#endif
