/* qwenimage.c - runs AutoencoderKLQwenImage, which is the causal autoencoder (causal.h) for single
 * images */
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
