/* generator.h - declares the generator of HiFi-GAN (Kong et al. 2020, arXiv:2010.05646) and BigVGAN
 * (Lee et al. 2022, arXiv:2206.04658), which turns rows into samples.
 *
 * Each stage enlarges the rows by a transposed convolution, and then takes the mean of several
 * branches of residual convolutions with different kernels and dilations. */
#ifndef XD_AUDIO_GENERATOR_H
#define XD_AUDIO_GENERATOR_H

#include "audio/audio.h"

enum { XD_GEN_STAGES = 8, XD_GEN_KERNELS = 8, XD_GEN_DILATIONS = 8 };

/* Names of the parts of a generator in a checkpoint. */
typedef struct xd_gen_names {
    const char *in, *branch, *out;
    const char *up, *up_end; /* start and end of the name of a transposed convolution */
    /* Formats of the names of Snake activations: the one before convolution i of a branch, where
     * the convolutions of a pair are counted one after the other, and the last one. */
    const char *act, *last_act;
} xd_gen_names;

typedef struct xd_gen_cfg {
    const xd_gen_names *names;
    int64_t             in, hidden, out;
    /* for each stage, the kernel and the factor of its transposed convolution */
    xd_ints             up_kernel, up;
    /* for each branch, its kernel and dilations */
    xd_ints             kernel, dilation[XD_GEN_KERNELS];
    int                 normed;     /* 1: convolutions are weight-normalized (exec/weight_norm.h) */
    int                 final_bias; /* 1: the last convolution has a bias */
    /* 1: activations are Snake functions between filters (xd_snake_rows); none is before a
     * transposed convolution, and samples are clamped to -1..1. 0: they are leaky ReLU, and samples
     * are those of tanh. */
    int                 snake;
    float               slope; /* slope of leaky ReLU below 0, except the last one's */
} xd_gen_cfg;

/* A Snake activation x + sin(a x)^2 / b with a, b of each channel: rate has a, gain has 1 / b. */
typedef struct xd_snake { xd_tensor rate, gain; } xd_snake;

typedef struct xd_gen_branch {
    xd_cnv   conv1[XD_GEN_DILATIONS], conv2[XD_GEN_DILATIONS];
    xd_snake act1[XD_GEN_DILATIONS], act2[XD_GEN_DILATIONS];
} xd_gen_branch;

typedef struct xd_gen { /* weights */
    xd_cnv   in, out;
    xd_snake last;
    struct {
        xd_lin        up;
        xd_tensor     bias;
        xd_gen_branch branch[XD_GEN_KERNELS];
    } stage[XD_GEN_STAGES];
} xd_gen;

/* The keys of a config that have the lists of a generator. */
typedef struct xd_gen_keys { const char *up, *up_kernel, *kernel, *dilation, *hidden; } xd_gen_keys;

/* Reads the lists of dilations, one for each kernel size, from the key `keys->dilation`. */
xd_status xd_gen_read(xd_gen_cfg *c, const xd_gen_keys *keys, const xd_json *obj, const char *what,
                      xd_err *e);
/* Checks that the numbers of a generator fit together. what: name of the network in messages. */
xd_status xd_gen_check(const xd_gen_cfg *c, const xd_gen_keys *keys, const char *what, xd_err *e);
void      xd_gen_weights(xd_decl *d, const xd_gen_cfg *c, xd_gen *g);
/* Returns the number of samples that n rows become. */
int64_t   xd_gen_rows(const xd_gen_cfg *c, int64_t n);
/* Computes out [rows(n), out] F32 from in [n, in] F32. */
void      xd_gen_run(xd_exec *x, const xd_gen_cfg *c, const xd_gen *g, xd_tensor in, xd_tensor out);

/* Declares the logarithms "alpha" and "beta" [C] of a and b. */
void      xd_w_snake(xd_decl *d, xd_snake *w, int64_t C);
/* Computes a Snake activation of rows [n,C] F32 at twice the number of rows: low-pass filters with
 * 12 taps (the Kaiser window's of BigVGAN) enlarge the rows before it and reduce them after it, so
 * that its harmonics do not alias. Returns rows in new memory. */
xd_tensor xd_snake_rows(xd_exec *x, const xd_snake *w, xd_tensor in);

#endif
