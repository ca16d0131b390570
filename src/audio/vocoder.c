/* vocoder.c - turns a mel spectrogram into samples like diffusers' LTX2Vocoder, which is the
 * generator of HiFi-GAN */
#include <stddef.h>
#include <string.h>

#include "audio/generator.h"

typedef struct cfg {
    xd_gen_cfg gen;
    int        antialias, rate;
    char       act[XD_FIELD_TEXT], last[XD_FIELD_TEXT];
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(gen.in), 'l', 128, NULL },
    { "hidden_channels", AT(gen.hidden), 'l', 1024, NULL },
    { "out_channels", AT(gen.out), 'l', 2, NULL },
    { "upsample_kernel_sizes", AT(gen.up_kernel), 'L', 0, NULL },
    { "upsample_factors", AT(gen.up), 'L', 0, NULL },
    { "resnet_kernel_sizes", AT(gen.kernel), 'L', 0, NULL },
    { "resnet_dilations", 0, '-', 0, NULL },
    { "act_fn", AT(act), 's', 0, "leaky_relu" },
    { "leaky_relu_negative_slope", AT(gen.slope), 'f', 0.1, NULL },
    { "antialias", AT(antialias), 'b', 0, NULL },
    { "antialias_ratio", 0, '-', 0, NULL },
    { "antialias_kernel_size", 0, '-', 0, NULL },
    { "final_act_fn", AT(last), 's', 0, "tanh" },
    { "final_bias", AT(gen.final_bias), 'b', 1, NULL },
    { "output_sampling_rate", AT(rate), 'i', 24000, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_gen_names names = {
    .in = "conv_in", .up = "upsamplers", .up_end = "", .branch = "resnets", .out = "conv_out"
};

static const xd_gen_keys keys = { .up = "upsample_factors",
                                  .up_kernel = "upsample_kernel_sizes",
                                  .kernel = "resnet_kernel_sizes",
                                  .dilation = "resnet_dilations",
                                  .hidden = "hidden_channels" };

static xd_status read_dilations(void *c, const xd_json *obj, const char *what, xd_err *e)
{
    return xd_gen_read(&((cfg *)c)->gen, &keys, obj, what, e);
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg        *c = c_;
    xd_gen_cfg *g = &c->gen;
    g->names = &names;
    if (!g->up.n)
        g->up = (xd_ints){ 5, { 6, 5, 2, 2, 2 } };
    if (!g->up_kernel.n)
        g->up_kernel = (xd_ints){ 5, { 16, 15, 8, 4, 4 } };
    if (!g->kernel.n)
        g->kernel = (xd_ints){ 3, { 3, 7, 11 } };
    if (!g->dilation[0].n)
        for (int i = 0; i < XD_GEN_KERNELS; i++)
            g->dilation[i] = (xd_ints){ 3, { 1, 3, 5 } };
    if (strcmp(c->act, "leaky_relu") || strcmp(c->last, "tanh") || c->antialias)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vocoder: act_fn '%s', final_act_fn '%s' or antialias %d is not supported; "
                       "only 'leaky_relu', 'tanh' and 0 are",
                       c->act, c->last, c->antialias);
    if (c->rate < 1)
        return xd_fail(e, XD_EFORMAT, "vocoder: output_sampling_rate %d is not positive", c->rate);
    return xd_gen_check(g, &keys, "vocoder", e);
}

static void info(const void *c_, xd_audio_info *out)
{
    const cfg *c = c_;
    *out = (xd_audio_info){ .in = c->gen.in, .out = c->gen.out, .rate = c->rate };
}

static int64_t rows(const void *c, int64_t n)
{
    return xd_gen_rows(&((const cfg *)c)->gen, n);
}

static void weights(xd_decl *d, const void *c, void *g)
{
    xd_gen_weights(d, &((const cfg *)c)->gen, g);
}

static void run(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out)
{
    xd_gen_run(x, &((const cfg *)n->cfg)->gen, n->glob, in, out);
}

extern const xd_audio xd_audio_vocoder;

const xd_audio xd_audio_vocoder = {
    .net = { .name = "vocoder",
             .classes = { "LTX2Vocoder" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(xd_gen),
             .read = read_dilations,
             .check = check_config,
             .weights = weights },
    .info = info,
    .rows = rows,
    .run = run,
};
