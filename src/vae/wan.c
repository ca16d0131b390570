/* wan.c - runs AutoencoderKLWan, which is the causal autoencoder (causal.h) for videos */
#include "vae/causal.h"

static const xd_field fields[] = {
    XD_CAUSAL_FIELDS,
    { "in_channels", offsetof(xd_causal_cfg, in_channels), 'l', 3, NULL },
    { "out_channels", offsetof(xd_causal_cfg, out_channels), 'l', 3, NULL },
    { "is_residual", offsetof(xd_causal_cfg, residual), 'b', 0, NULL },
    { "patch_size", offsetof(xd_causal_cfg, patch), 'l', 1, NULL },
    { "scale_factor_temporal", 0, '-', 0, NULL }, /* ignored: the levels determine it */
    { "scale_factor_spatial", 0, '-', 0, NULL },
    { "clip_output", 0, '-', 0, NULL },
    { "decoder_base_dim", offsetof(xd_causal_cfg, dec_width), 'l', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static xd_status check_config(void *cfg, xd_err *e)
{
    return xd_causal_check(cfg, e);
}

static void info(const void *cfg, xd_vae_info *out)
{
    xd_causal_info(cfg, out);
}

static void weights(xd_decl *d, const void *cfg, void *glob)
{
    xd_causal_weights(d, cfg, glob);
}

extern const xd_vae xd_vae_wan;

const xd_vae xd_vae_wan = {
    .net = { .name = "causal",
             .classes = { "AutoencoderKLWan" },
             .fields = fields,
             .cfg_size = sizeof(xd_causal_cfg),
             .glob_size = sizeof(xd_causal_glob),
             .check = check_config,
             .weights = weights },
    .info = info,
    .decode = xd_causal_decode,
    .encode = xd_causal_encode,
};
