/* generator.h - declares the generator of HiFi-GAN (Kong et al. 2020, arXiv:2010.05646) and BigVGAN
 * (Lee et al. 2022, arXiv:2206.04658), which turns rows into samples.
 *
 * Each stage of the generator multiplies the number of rows by a transposed convolution, and then
 * computes the mean of several branches of residual convolutions with different kernels and
 * dilations. */
#ifndef XD_AUDIO_GENERATOR_H
#define XD_AUDIO_GENERATOR_H

#include <stddef.h>

#include "audio/audio.h"

enum {
    XD_GENERATOR_STAGES = 8,
    XD_GENERATOR_KERNELS = 8,
    XD_GENERATOR_DILATIONS = 8,
};

/* Describes how a kind of checkpoint names the config keys and tensors of a generator. */
typedef struct xd_generator_form {
    const char *what; /* name of the network in messages */
    /* Config keys of the generator's sizes. */
    const char *hidden_key, *up_key, *up_kernel_key, *kernel_key, *dilation_key;
    /* Names of convolutions in the checkpoint; the name of a transposed convolution begins with
     * `up` and ends with `up_end`. */
    const char *in, *up, *up_end, *branch, *out;
    /* Formats of the tensor names of the activations before the first and the second convolution of
     * a residual block, and tensor name of the last activation. */
    const char *act[2], *last_act;
    /* 2: the two activations of pair i have the numbers 2 i and 2 i + 1; 1: both have the number
     * i */
    int         act_step;
    int         normed; /* 1: convolutions are weight-normalized (exec/weight_norm.h) */
    /* 1: the taps of filters against aliasing are read from the checkpoint; 0: they are computed */
    int         filters;
} xd_generator_form;

typedef struct xd_generator { /* config */
    const xd_generator_form *form;
    int64_t                  in, hidden, out;
    /* for each stage, the kernel size and the factor of its transposed convolution */
    xd_ints                  up_kernel, up;
    /* for each branch, its kernel size and its dilations */
    xd_ints                  kernel, dilation[XD_GENERATOR_KERNELS];
    int                      antialias, ratio, taps, final_bias;
    /* slope of leaky ReLU for negative values, except in the last leaky ReLU */
    float                    slope;
    char                     act[XD_FIELD_TEXT], last[XD_FIELD_TEXT];
} xd_generator;

/* The names that diffusers' vocoders use. */
extern const xd_generator_form xd_generator_vocoder;

/* Table rows (xd_field) that read the keys beginning with P into member m, an xd_generator, of a
 * config struct of type T. HIDDEN to BIAS are the defaults of the Python class. */
#define XD_GENERATOR_FIELDS(P, T, m, HIDDEN, ACT, FILTERED, LAST, BIAS)                            \
    { P "in_channels", offsetof(T, m.in), 'l', 128, NULL },                                        \
        { P "hidden_channels", offsetof(T, m.hidden), 'l', HIDDEN, NULL },                         \
        { P "out_channels", offsetof(T, m.out), 'l', 2, NULL },                                    \
        { P "upsample_kernel_sizes", offsetof(T, m.up_kernel), 'L', 0, NULL },                     \
        { P "upsample_factors", offsetof(T, m.up), 'L', 0, NULL },                                 \
        { P "resnet_kernel_sizes", offsetof(T, m.kernel), 'L', 0, NULL },                          \
        { P "act_fn", offsetof(T, m.act), 's', 0, ACT },                                           \
        { P "resnet_dilations", 0, '-', 0, NULL },                                                 \
        { P "leaky_relu_negative_slope", offsetof(T, m.slope), 'f', 0.1, NULL },                   \
        { P "antialias", offsetof(T, m.antialias), 'b', FILTERED, NULL },                          \
        { P "antialias_ratio", offsetof(T, m.ratio), 'i', 2, NULL },                               \
        { P "antialias_kernel_size", offsetof(T, m.taps), 'i', 12, NULL },                         \
        { P "final_act_fn", offsetof(T, m.last), 's', 0, LAST },                                   \
        { P "final_bias", offsetof(T, m.final_bias), 'b', BIAS, NULL }

/* Weights of the activation snake: x + sin(a x)^2 / b, with a = exp(alpha) and b = exp(beta). */
typedef struct xd_snake {
    xd_tensor rate, gain; /* [C] a and 1 / b */
    /* [1,1,taps] taps of the filters against aliasing, if the checkpoint contains them */
    xd_tensor up, down;
} xd_snake;

typedef struct xd_generator_branch {
    xd_cnv   conv1[XD_GENERATOR_DILATIONS], conv2[XD_GENERATOR_DILATIONS];
    xd_snake act1[XD_GENERATOR_DILATIONS], act2[XD_GENERATOR_DILATIONS];
} xd_generator_branch;

typedef struct xd_generator_weights {
    xd_cnv   in, out;
    xd_snake act;
    struct {
        xd_lin              up;
        xd_tensor           bias;
        xd_generator_branch branch[XD_GENERATOR_KERNELS];
    } stage[XD_GENERATOR_STAGES];
} xd_generator_weights;

/* Reads the config keys that no table row can describe; their names begin with `prefix`. what: name
 * of the config in messages. */
xd_status xd_generator_read(xd_generator *g, const xd_generator_form *form, const xd_json *obj,
                            const char *prefix, const char *what, xd_err *e);
/* Sets lists that are missing in the config to defaults (factors and kernel sizes to the
 * arguments), and refuses unsupported values. */
xd_status xd_generator_check(xd_generator *g, const xd_generator_form *form, const xd_ints *up,
                             const xd_ints *up_kernel, xd_err *e);
/* Returns the number of output rows of the generator for n input rows. */
int64_t   xd_generator_rows(const xd_generator *g, int64_t n);
void      xd_generator_declare(xd_decl *d, const xd_generator *g, xd_generator_weights *w);
/* Computes the output rows `out`, F32, from n input rows `in`, F32. */
void      xd_generator_run(xd_exec *x, const xd_generator *g, const xd_generator_weights *w,
                           xd_tensor in, xd_tensor out);
/* Clamps F32 elements to [-1, 1]. */
void      xd_audio_clamp(xd_exec *x, xd_tensor io);

#endif
