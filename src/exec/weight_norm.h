/* weight_norm.h - declares convolutions whose checkpoints store each kernel as a length and a
 * direction, and vectors whose loaded values are a function of the stored values.
 *
 * Row i of the weight is weight_g[i] / |weight_v[i]| weight_v[i], where |.| is the Euclidean norm
 * (Salimans and Kingma 2016, arXiv:1602.07868). A row is the part of a tensor with one index of the
 * first extent. */
#ifndef XD_EXEC_WEIGHT_NORM_H
#define XD_EXEC_WEIGHT_NORM_H

#include "exec/weight.h"

/* Declares a convolution over rows, "NAME.weight_v" [out, in, k] and "NAME.weight_g" [out, 1, 1],
 * with the bias "NAME.bias" [out] if `bias`. shape: out, in, k. */
void xd_w_conv_normed(xd_decl *d, xd_cnv *w, const char *name, const int64_t shape[3], int bias);
/* Declares a transposed convolution as xd_w_spread does, with the weight "NAME.weight_v"
 * [in, out, k] and "NAME.weight_g" [in, 1, 1]. */
void xd_w_spread_normed(xd_decl *d, xd_lin *w, xd_tensor *bias, const char *name,
                        const int64_t shape[3]);
/* Declares a vector [n] as xd_w_vec does, applying the function of() to each stored element. */
void xd_w_vec_of(xd_decl *d, xd_tensor *v, const char *name, int64_t n, float (*of)(float));

#endif
