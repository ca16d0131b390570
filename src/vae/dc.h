/* dc.h - inside vae: the config and weights of AutoencoderDC, which dc.c declares and dc_run.c
 * runs. */
#ifndef XD_VAE_DC_H
#define XD_VAE_DC_H

#include "exec/net.h"
#include "exec/op.h"
#include "vae/vae.h"

enum { XD_DC_LEVELS = 8, XD_DC_BLOCKS = 16, XD_DC_SCALES = 4 };

typedef struct xd_dc_cfg {
    int64_t  in_channels, latent_channels, head_dim;
    double   scaling;
    char     up[XD_FIELD_TEXT], down[XD_FIELD_TEXT], act[XD_FIELD_TEXT];
    int      shortcut[2]; /* encoder_out_shortcut, decoder_in_shortcut */
    /* Element [0] is for the encoder, [1] for the decoder; each list has one element per level, the
     * finest level first. scales: sizes of the convolutions of keys, queries and values (field kind
     * 'G'). */
    xd_ints  width[2], layers[2], scales[2];
    xd_names types[2], norms, acts;
} xd_dc_cfg;

typedef struct xd_dc_block {
    xd_cnv    conv[2];    /* convolutions of a ResBlock */
    xd_tensor gain, bias; /* norm of a ResBlock, or of the attention */
    /* Weights of an EfficientViTBlock: multi-scale attention and feed-forward. */
    xd_lin    qkv, out, up, down;
    xd_cnv    wide[XD_DC_SCALES], mix[XD_DC_SCALES], depth;
    xd_tensor ff_gain, ff_bias;
} xd_dc_block;

typedef struct xd_dc_level {
    xd_dc_block block[XD_DC_BLOCKS];
    /* The convolution that changes the size, before the blocks of a decoder level or after the
     * blocks of an encoder level. In a decoder with upsample_block_type interpolate, `enlarge`
     * replaces `size`. */
    xd_cnv      size, enlarge[4];
} xd_dc_level;

typedef struct xd_dc_half {
    xd_cnv      in, out;
    xd_tensor   gain, bias; /* norm before the last convolution of the decoder */
    xd_dc_level level[XD_DC_LEVELS];
} xd_dc_half;

typedef struct xd_dc_glob { xd_dc_half half[2]; } xd_dc_glob;

static inline int xd_dc_levels(const xd_dc_cfg *c)
{
    return c->width[0].n;
}

/* Returns 1 if the blocks of a level are of the kind EfficientViTBlock. */
int xd_dc_attends(const xd_dc_cfg *c, int dec, int level);
/* Writes the sizes of the convolutions in a level's attention, and returns the number of sizes. */
int xd_dc_scales(const xd_dc_cfg *c, int dec, int level, int size[XD_DC_SCALES]);
/* Returns 1 if upsampling of a level repeats pixels, or if downsampling is a convolution with
 * stride 2. Returns 0 if resampling moves pixels to channels or back. */
int xd_dc_plain(const xd_dc_cfg *c, int dec);

void xd_dc_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
void xd_dc_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);

#endif
