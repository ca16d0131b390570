/* qwenimage.c - runs AutoencoderKLQwenImage and AutoencoderKLQwenImage21, which are the causal
 * autoencoder (causal.h) for single images */
#include "vae/causal.h"

static const xd_field fields[] = {
    XD_CAUSAL_FIELDS,
    { "input_channels", offsetof(xd_causal_cfg, in_channels), 'l', 3, NULL },
    { NULL, 0, 0, 0, NULL },
};

static xd_status check_config(void *cfg, xd_err *e)
{
    xd_causal_cfg *c = cfg;
    c->images = 1;
    c->colours = c->in_channels == 4 ? 4 : 3;
    c->out_channels = c->in_channels;
    return xd_causal_check(c, e);
}

static void info(const void *cfg, xd_vae_info *out)
{
    xd_causal_info(cfg, out);
}

static void weights(xd_decl *d, const void *cfg, void *glob)
{
    xd_causal_weights(d, cfg, glob);
}

/* The autoencoder of Qwen-Image. The convolutions that change the number of frames (time_conv) are
 * not read, because this autoencoder only encodes and decodes single images. */
extern const xd_vae xd_vae_qwenimage;

const xd_vae xd_vae_qwenimage = {
    .net = { .name = "causal-image",
             .classes = { "AutoencoderKLQwenImage" },
             .fields = fields,
             .unread = { "*.time_conv.weight", "*.time_conv.bias" },
             .cfg_size = sizeof(xd_causal_cfg),
             .glob_size = sizeof(xd_causal_glob),
             .check = check_config,
             .weights = weights },
    .info = info,
    .decode = xd_causal_decode,
    .encode = xd_causal_encode,
};

/* ---- Qwen-Image-2.1 ------------------------------------------------------------------------- */

static const xd_field fields_21[] = {
    XD_CAUSAL_FIELDS,
    { "in_channels", offsetof(xd_causal_cfg, in_channels), 'l', 4, NULL },
    { "out_channels", offsetof(xd_causal_cfg, out_channels), 'l', 4, NULL },
    { "is_residual", offsetof(xd_causal_cfg, residual), 'b', 1, NULL },
    { "patch_size", offsetof(xd_causal_cfg, patch), 'l', 1, NULL },
    { "decoder_base_dim", offsetof(xd_causal_cfg, dec_width), 'l', 144, NULL },
    { "scale_factor_temporal", 0, '-', 0, NULL }, /* ignored: the levels determine it */
    { "scale_factor_spatial", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static xd_status check_21(void *cfg, xd_err *e)
{
    xd_causal_cfg *c = cfg;
    c->images = c->flat = 1;
    c->colours = 4;
    if (c->patch > 1)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: patch_size is %lld; only 1 is supported",
                       (long long)c->patch);
    return xd_causal_check(c, e);
}

extern const xd_vae xd_vae_qwenimage21;

const xd_vae xd_vae_qwenimage21 = {
    .net = { .name = "causal-alpha",
             .classes = { "AutoencoderKLQwenImage21" },
             .fields = fields_21,
             .unread = { "*.time_conv.weight", "*.time_conv.bias" },
             .cfg_size = sizeof(xd_causal_cfg),
             .glob_size = sizeof(xd_causal_glob),
             .check = check_21,
             .weights = weights },
    .info = info,
    .decode = xd_causal_decode,
    .encode = xd_causal_encode,
};
