/* registry.c - lists the supported autoencoders */
#include <stddef.h>
#include <string.h>

#include "base/minmax.h"
#include "vae/vae.h"

extern const xd_vae xd_vae_kl, xd_vae_flux2, xd_vae_cogvideox, xd_vae_wan, xd_vae_qwenimage,
    xd_vae_qwenimage21, xd_vae_hunyuanvideo, xd_vae_hunyuanvideo15, xd_vae_mochi, xd_vae_ltx,
    xd_vae_ltx2, xd_vae_tiny, xd_vae_dc, xd_vae_minimaxh3, xd_vae_taehv;

const xd_vae *const xd_vaes[] = {
    &xd_vae_kl,        &xd_vae_flux2,       &xd_vae_cogvideox,    &xd_vae_wan,
    &xd_vae_qwenimage, &xd_vae_qwenimage21, &xd_vae_hunyuanvideo, &xd_vae_hunyuanvideo15,
    &xd_vae_mochi,     &xd_vae_ltx,         &xd_vae_ltx2,         &xd_vae_tiny,
    &xd_vae_dc,        &xd_vae_minimaxh3,   &xd_vae_taehv,        NULL
};

xd_status xd_vae_colours(int64_t in_channels, int64_t out_channels, xd_err *e)
{
    if (in_channels == 3 && out_channels == 3)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "vae: in_channels is %lld and out_channels %lld; only 3 channels are "
                   "supported",
                   (long long)in_channels, (long long)out_channels);
}

xd_status xd_vae_blocks(xd_names *t, const char *key, const char *type, int n, xd_err *e)
{
    for (int i = 0; !t->n && i < 4; i++) /* diffusers' default has four entries */
        strcpy(t->v[i], type);
    t->n = t->n ? t->n : 4;
    if (t->n != n)
        return xd_fail(e, XD_EFORMAT, "vae: %s has %d entries, block_out_channels %d", key, t->n,
                       n);
    for (int i = 0; i < n; i++)
        if (strcmp(t->v[i], type) != 0)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s has %s; only %s is supported", key, t->v[i],
                           type);
    return XD_OK;
}

int64_t xd_vae_frames(const xd_vae_info *v, int64_t t)
{
    if (v->chunk[0])
        return xd_max((t - v->shared[0]) / v->chunk[0], 1) * v->chunk[1] + v->shared[1];
    if (v->alone)
        return (t - 1) * v->cell[0] + 1;
    return t % 2 ? (t - 1) * v->cell[0] + 1 : t * v->cell[0];
}

/* Returns the number of latent frames of n video frames. Frames are processed in batches of eight;
 * the first batch also has the remaining frames. In each batch, the number of frames is halved
 * log2(cell[0]) times; if an odd number is halved, the first frame stays single. */
int64_t xd_vae_latents(const xd_vae_info *v, int64_t n)
{
    if (v->chunk[0])
        return xd_max(xd_ceil_div(n - v->shared[1], v->chunk[1]), 1) * v->chunk[0] + v->shared[0];
    if (v->alone)
        return (n - 1) / v->cell[0] + 1;
    int64_t first = n < 8 ? n : 8 + n % 8, rest = (n - first) / v->cell[0];
    for (int c = v->cell[0]; c > 1; c /= 2)
        first = first % 2 ? (first + 1) / 2 : first / 2;
    return first + rest;
}
