/* minimaxh3.c - turns latents of audio into samples like the decoder of diffusers'
 * AutoencoderKLMiniMaxH3Audio: a linear layer and the generator of BigVGAN.
 *
 * The samples are those of one side; latents of left and right are decoded one after the other. */
#include <stddef.h>
#include <stdio.h>

#include "audio/generator.h"
#include "exec/op.h"

typedef struct cfg {
    xd_generator gen;
    int64_t      latent, base;
    xd_ints      down; /* factors of the encoder's levels */
    int          rate;
    xd_reals     mean, std;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "latent_channels", AT(latent), 'l', 32, NULL },
    { "latent_dim", AT(gen.in), 'l', 2048, NULL },
    { "decoder_dim", AT(gen.hidden), 'l', 1024, NULL },
    { "decoder_rates", AT(gen.up), 'L', 0, NULL },
    { "decoder_kernel_sizes", AT(gen.up_kernel), 'L', 0, NULL },
    { "resblock_kernel_sizes", AT(gen.kernel), 'L', 0, NULL },
    { "resblock_dilation_sizes", 0, '-', 0, NULL },
    { "sampling_rate", AT(rate), 'i', 32000, NULL },
    { "latents_mean", AT(mean), 'D', 0, NULL },
    { "latents_std", AT(std), 'D', 0, NULL },
    { "encoder_dim", AT(base), 'l', 64, NULL },
    { "encoder_rates", AT(down), 'L', 0, NULL },
    { "num_attention_heads", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_generator_form form = {
    .what = "audio_vae",
    .hidden_key = "decoder_dim",
    .up_key = "decoder_rates",
    .up_kernel_key = "decoder_kernel_sizes",
    .kernel_key = "resblock_kernel_sizes",
    .dilation_key = "resblock_dilation_sizes",
    .in = "conv_pre",
    .up = "ups",
    .up_end = ".0",
    .branch = "resblocks",
    .out = "conv_post",
    .act = { "activations.%d", "activations.%d" },
    .last_act = "activation_post",
    .act_step = 2,
    .normed = 1,
};

typedef struct glob {
    xd_lin               in;
    xd_generator_weights gen;
} glob;

static xd_status read_dilations(void *c, const xd_json *obj, const char *what, xd_err *e)
{
    return xd_generator_read(&((cfg *)c)->gen, &form, obj, "", what, e);
}

static xd_status check_config(void *c_, xd_err *e)
{
    static const xd_ints up = { 7, { 5, 5, 2, 2, 2, 2, 2 } };
    static const xd_ints kernel = { 7, { 9, 9, 4, 4, 4, 4, 4 } };
    cfg                 *c = c_;
    xd_generator        *g = &c->gen;
    g->out = 1, g->antialias = 1, g->ratio = 2, g->taps = 12;
    snprintf(g->act, sizeof g->act, "snakebeta");
    snprintf(g->last, sizeof g->last, "clamp");
    if (!c->down.n)
        c->down = (xd_ints){ 5, { 2, 4, 4, 5, 5 } };
    if (c->latent < 1 || c->rate < 1)
        return xd_fail(e, XD_EFORMAT,
                       "audio_vae: latent_channels %lld or sampling_rate %d is not positive",
                       (long long)c->latent, c->rate);
    if ((c->mean.n && c->mean.n != c->latent) || c->std.n != c->mean.n)
        return xd_fail(e, XD_EFORMAT,
                       "audio_vae: latents_mean has %d numbers and latents_std %d, but "
                       "latent_channels is %lld",
                       c->mean.n, c->std.n, (long long)c->latent);
    return xd_generator_check(g, &form, &up, &kernel, e);
}

static void info(const void *c_, xd_audio_info *out)
{
    const cfg *c = c_;
    *out = (xd_audio_info){ .in = c->latent, .out = 1, .rate = c->rate };
}

static int64_t rows(const void *c, int64_t n)
{
    return xd_generator_rows(&((const cfg *)c)->gen, n);
}

static void unread_conv(xd_decl *d, const char *name, int64_t out, int64_t in, int64_t taps)
{
    xd_w_enter(d, "%s", name);
    xd_w_unread(d, "weight_g", 3, (int64_t[]){ out, 1, 1 });
    xd_w_unread(d, "weight_v", 3, (int64_t[]){ out, in, taps });
    xd_w_unread(d, "bias", 1, &out);
    xd_w_leave(d);
}

static void unread_snake(xd_decl *d, const char *name, int64_t n)
{
    xd_w_enter(d, "%s", name);
    xd_w_unread(d, "alpha", 3, (int64_t[]){ 1, n, 1 });
    xd_w_leave(d);
}

/* Declares one level of the encoder: three residual units, and a convolution with a stride. */
static void unread_level(xd_decl *d, int64_t n, int64_t stride)
{
    for (int i = 0; i < 3; i++) {
        xd_w_enter(d, "block.%d", i);
        unread_snake(d, "block.0", n);
        unread_conv(d, "block.1", n, n, 7);
        unread_snake(d, "block.2", n);
        unread_conv(d, "block.3", n, n, 1);
        xd_w_leave(d);
    }
    unread_snake(d, "block.3", n);
    unread_conv(d, "block.4", 2 * n, n, 2 * stride);
}

/* Declares the layers between the encoder and the latents, whose attention has n features. */
static void unread_latents(xd_decl *d, int64_t n, int64_t latent)
{
    xd_w_unread_layer(d, "mean_proj", 3, (int64_t[]){ latent, latent, 1 });
    xd_w_unread_layer(d, "logs_proj", 3, (int64_t[]){ latent, latent, 1 });
    xd_w_enter(d, "pre_block");
    xd_w_unread_layer(d, "norm1", 1, &n);
    xd_w_unread_layer(d, "norm2", 1, &latent);
    xd_w_unread_layer(d, "norm3", 1, &n);
    xd_w_unread_layer(d, "proj", 2, (int64_t[]){ latent, n });
    xd_w_enter(d, "attn");
    xd_w_unread(d, "qkv.weight", 2, (int64_t[]){ 3 * n, n });
    xd_w_unread(d, "q_bias", 1, &n);
    xd_w_unread(d, "v_bias", 1, &n);
    xd_w_unread(d, "zero_k_bias", 1, &n);
    xd_w_unread_layer(d, "proj", 2, (int64_t[]){ latent, latent });
    xd_w_leave(d);
    xd_w_enter(d, "mlp");
    xd_w_unread_layer(d, "norm", 1, &latent);
    xd_w_unread_layer(d, "w0", 2, (int64_t[]){ 2 * latent, latent });
    xd_w_unread_layer(d, "w1", 2, (int64_t[]){ 2 * latent, latent });
    xd_w_unread_layer(d, "w2", 2, (int64_t[]){ latent, 2 * latent });
    xd_w_leave(d);
    xd_w_leave(d);
}

/* Declares the encoder, which files contain but decoding does not read. */
static void unread_encoder(xd_decl *d, const cfg *c)
{
    int64_t n = c->base;
    char    name[24];
    xd_w_enter(d, "encoder");
    unread_conv(d, "block.0", n, 1, 7);
    for (int l = 0; l < c->down.n; l++, n *= 2) {
        xd_w_enter(d, "block.%d", l + 1);
        unread_level(d, n, c->down.v[l]);
        xd_w_leave(d);
    }
    snprintf(name, sizeof name, "block.%d", c->down.n + 1);
    unread_snake(d, name, n);
    snprintf(name, sizeof name, "block.%d", c->down.n + 2);
    unread_conv(d, name, c->gen.in, n, 3);
    xd_w_leave(d);
    unread_latents(d, c->gen.in, c->latent);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    xd_w_linear_as(d, &g->in, "dec_in_proj", 3, (int64_t[]){ c->gen.in, c->latent, 1 }, 1);
    xd_w_enter(d, "decoder");
    xd_generator_declare(d, &c->gen, &g->gen);
    xd_w_leave(d);
    unread_encoder(d, c);
}

static void fill_reals(void *ctx, float *buf)
{
    const xd_reals *r = ctx;
    for (int i = 0; i < r->n; i++)
        buf[i] = (float)r->v[i];
}

/* Returns latents with the mean and the deviation of the config, which may lack them. */
static xd_tensor restored(xd_exec *x, const cfg *c, xd_tensor in)
{
    if (!c->mean.n)
        return in;
    xd_tensor out = xd_new_f32(x, in.d[0], in.d[1]), std = xd_new_f32(x, 1, in.d[1]);
    xd_tensor mean = xd_new_f32(x, 1, in.d[1]);
    xd_reals  values[2] = { c->std, c->mean };
    xd_fill(x, std, fill_reals, &values[0]);
    xd_fill(x, mean, fill_reals, &values[1]);
    mean.d[0] = in.d[0], mean.s[0] = 0;
    xd_copy_to(x, out, mean);
    xd_add_gated(x, out, std, in);
    return out;
}

static void run(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   rows_in = xd_linear_f32(x, restored(x, c, in), &g->in);
    xd_generator_run(x, &c->gen, &g->gen, rows_in, out);
    xd_arena_rewind(x->tmp, mark);
}

extern const xd_audio xd_audio_minimaxh3;

const xd_audio xd_audio_minimaxh3 = {
    .net = { .name = "waveform",
             .classes = { "AutoencoderKLMiniMaxH3Audio" },
             .unread = { "encoder.*", "pre_block.*", "mean_proj.*", "logs_proj.*", "*.filter" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .read = read_dilations,
             .check = check_config,
             .weights = weights },
    .info = info,
    .rows = rows,
    .run = run,
};
