/* autoencode.c - decodes a program's latents to pixels, and encodes pixels to the mean and
 * log-variance of latents */
#include <stdio.h>

#include "exec/op.h"
#include "module/inside.h"
#include "pipeline/arenas.h"

typedef struct call { /* state of one call of decode or encode */
    xd_module *m;
    xd_tensor  from;          /* the program's input array */
    int64_t    in[4], out[4]; /* shapes of input and output, channels last */
    int        encodes, tiled;
} call;

static xd_status check_vae(const xd_module *m, xd_err *e)
{
    return m->part.kind == XD_KIND_VAE
               ? XD_OK
               : xd_fail(e, XD_EINVAL, "a %s is no autoencoder", m->part.class_name);
}

static xd_status refuse_shape(const xd_module *m, const char *what, const int64_t d[4],
                              const char *takes, xd_err *e)
{
    char text[96];
    return xd_fail(e, XD_EINVAL, "%s have the shape %s, but %s needs %s", what,
                   xd_shape_text(4, d, text, sizeof text), m->part.class_name, takes);
}

xd_status xd_module_decoded(const xd_module *m, const int64_t l[4], int64_t pixels[4], xd_err *e)
{
    const xd_vae_info *v = &m->vae;
    const int64_t      max = 1 << 20;
    xd_status          s = check_vae(m, e);
    if (s != XD_OK)
        return s;
    if (l[1] != v->channels || l[0] < 1 || l[2] < 1 || l[3] < 1 || l[0] > max || l[2] > max ||
        l[3] > max) {
        char takes[64];
        snprintf(takes, sizeof takes, "frames of %lld channels, [T,%lld,h,w]",
                 (long long)v->channels, (long long)v->channels);
        return refuse_shape(m, "latents", l, takes, e);
    }
    pixels[0] = xd_vae_frames(v, l[0]);
    pixels[1] = l[2] * v->cell[1];
    pixels[2] = l[3] * v->cell[2];
    pixels[3] = xd_vae_pixel_channels(v);
    return XD_OK;
}

xd_status xd_module_encoded(const xd_module *m, const int64_t p[4], int64_t moments[4], xd_err *e)
{
    const xd_vae_info *v = &m->vae;
    const int64_t      max = 1 << 24;
    xd_status          s = check_vae(m, e);
    if (s != XD_OK)
        return s;
    if (p[3] != xd_vae_pixel_channels(v) || p[0] < 1 || p[1] < 1 || p[2] < 1 || p[0] > max ||
        p[1] > max || p[2] > max || p[1] % v->cell[1] || p[2] % v->cell[2]) {
        char takes[96];
        snprintf(takes, sizeof takes, "frames [frames,H,W,%d] whose sides are multiples of %d",
                 xd_vae_pixel_channels(v), v->cell[1]);
        return refuse_shape(m, "pixels", p, takes, e);
    }
    moments[0] = xd_vae_latents(v, p[0]);
    moments[1] = p[1] / v->cell[1];
    moments[2] = p[2] / v->cell[2];
    moments[3] = 2 * v->channels;
    return XD_OK;
}

/* Copies the program's input to device memory, channels last. */
static xd_tensor put_input(const call *c, xd_exec *x)
{
    xd_tensor in = xd_new_as(x, XD_F32, 4, c->in);
    if (xd_counting(x) || !xd_ok(x))
        return in;
    if (c->encodes) {
        xd_array_read(in.p, c->from, 0, xd_count(in));
        return in;
    }
    int64_t   d[4] = { c->in[0], c->in[3], c->in[1], c->in[2] };
    xd_tensor view = xd_view(c->from.p, c->from.type, 4, d);
    xd_copy_to(x, in, xd_permute(view, (int[]){ 0, 2, 3, 1 }));
    return in;
}

static void compute(const call *c, xd_exec *x, const xd_net *n, float *to)
{
    const xd_vae *v = c->m->part.vae;
    xd_tensor     in = put_input(c, x), out = xd_new_as(x, XD_F32, 4, c->out);
    if (c->encodes && c->tiled)
        xd_vae_encode_tiled(x, v, &c->m->vae, n, in, out, NULL);
    else if (c->encodes)
        v->encode(x, n, in, out);
    else if (c->tiled)
        xd_vae_decode_tiled(x, v, &c->m->vae, n, in, out, NULL);
    else
        v->decode(x, n, in, out);
    xd_get(x, to, out);
}

static xd_status count(const call *c, size_t *bytes, xd_err *e)
{
    xd_module *m = c->m;
    xd_exec    x;
    xd_arena   a;
    xd_status  s = xd_device_arena_open(&a, m->count, 0, e);
    if (s != XD_OK)
        return s;
    xd_exec_init(&x, m->count, &a, m->type);
    compute(c, &x, &m->part.count->shadow, NULL);
    *bytes = xd_arena_peak(&a);
    xd_device_arena_close(&a, m->count);
    return xd_module_end(&x, e);
}

static xd_status run(const call *c, float *to, xd_err *e)
{
    xd_module       *m = c->m;
    const xd_logger *before = xd_log_enter(&m->log);
    size_t           bytes;
    xd_exec          x;
    xd_cancel_reset(&m->cancel);
    xd_status s = count(c, &bytes, e);
    if (s == XD_OK)
        s = xd_module_arena(m, bytes, e);
    if (s == XD_OK) {
        xd_exec_init(&x, m->dev, &m->arena, m->type);
        x.cancel = &m->cancel;
        compute(c, &x, &m->part.w->net, to);
        s = xd_module_end(&x, e);
    }
    xd_log_enter(before);
    return s;
}

/* Reads the shape of an array as four dimensions. An array with three dimensions is a single
 * frame. */
static xd_status shape_of(const xd_array *a, const char *what, xd_tensor *t, int64_t d[4],
                          xd_err *e)
{
    xd_status s = xd_array_tensor(a, what, t, e);
    if (s == XD_OK && t->nd != 3 && t->nd != 4)
        s = xd_fail(e, XD_EINVAL, "%s have %d dimensions; they need 4, or 3 for one frame", what,
                    t->nd);
    d[0] = 1;
    for (int i = 0; s == XD_OK && i < t->nd; i++)
        d[i + 4 - t->nd] = t->d[i];
    return s;
}

xd_status xd_module_decode(xd_module *m, const xd_array *latents, int tiled, float *pixels,
                           xd_err *e)
{
    call      c = { .m = m, .tiled = tiled };
    int64_t   d[4];
    xd_status s = check_vae(m, e);
    if (s == XD_OK)
        s = shape_of(latents, "latents", &c.from, d, e);
    if (s == XD_OK)
        s = xd_module_decoded(m, d, c.out, e);
    if (s != XD_OK)
        return s;
    c.in[0] = d[0], c.in[1] = d[2], c.in[2] = d[3], c.in[3] = d[1];
    return run(&c, pixels, e);
}

xd_status xd_module_encode(xd_module *m, const xd_array *pixels, int tiled, float *moments,
                           xd_err *e)
{
    call      c = { .m = m, .tiled = tiled, .encodes = 1 };
    xd_status s = check_vae(m, e);
    if (s == XD_OK)
        s = shape_of(pixels, "pixels", &c.from, c.in, e);
    if (s == XD_OK)
        s = xd_module_encoded(m, c.in, c.out, e);
    return s == XD_OK ? run(&c, moments, e) : s;
}
