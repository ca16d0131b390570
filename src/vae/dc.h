/* dc.h - used only in src/vae: defines the config and the weights of AutoencoderDC, which dc.c
 * declares and dc_run.c uses. */
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
    /* Numbers of channels (width), numbers of blocks (layers), and kernel sizes of the convolutions
     * of queries, keys and values (scales), for each level, the finest level first. Index 0 is for
     * the encoder, index 1 for the decoder. The field kind of `scales` is 'G'. */
    xd_ints  width[2], layers[2], scales[2];
    xd_names types[2], norms, acts;
} xd_dc_cfg;

typedef struct xd_dc_block {
    xd_cnv    conv[2];    /* convolutions of a ResBlock */
    xd_tensor gain, bias; /* gain and bias of the norm of a ResBlock or of an attention layer */
    /* Weights of an EfficientViTBlock: multi-scale attention and feed-forward. */
    xd_lin    qkv, out, up, down;
    xd_cnv    wide[XD_DC_SCALES], mix[XD_DC_SCALES], depth;
    xd_tensor ff_gain, ff_bias;
} xd_dc_block;

typedef struct xd_dc_level {
    xd_dc_block block[XD_DC_BLOCKS];
    /* Convolution that changes the number of rows and columns, before the blocks of a decoder level
     * or after the blocks of an encoder level. If upsample_block_type is "interpolate", the decoder
     * uses `enlarge` instead of `size`. */
    xd_cnv      size, enlarge[4];
} xd_dc_level;

typedef struct xd_dc_half {
    xd_cnv      in, out;
    xd_tensor   gain, bias; /* gain and bias of the norm before the decoder's last convolution */
    xd_dc_level level[XD_DC_LEVELS];
} xd_dc_half;

typedef struct xd_dc_glob { xd_dc_half half[2]; } xd_dc_glob;

static inline int xd_dc_levels(const xd_dc_cfg *c)
{
    return c->width[0].n;
}

/* Returns 1 if the blocks of a level are attention blocks (EfficientViTBlock). */
int xd_dc_attends(const xd_dc_cfg *c, int dec, int level);
/* Writes the kernel sizes of the convolutions in a level's attention, and returns their number. */
int xd_dc_scales(const xd_dc_cfg *c, int dec, int level, int size[XD_DC_SCALES]);
/* Returns 1 if upsampling of a level repeats pixels, or if downsampling is a convolution with
 * stride 2. Returns 0 if downsampling moves pixels to channels, or upsampling moves channels to
 * pixels. */
int xd_dc_plain(const xd_dc_cfg *c, int dec);

void xd_dc_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb);
void xd_dc_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments);

#endif
