/* vocoder.c - turns a mel spectrogram into samples like diffusers' LTX2Vocoder, a generator whose
 * output are the samples */
#include "audio/audio.h"
#include "audio/generator.h"

typedef struct cfg {
    xd_generator g;
    int          rate;
} cfg;

static const xd_field fields[] = {
    XD_GENERATOR_FIELDS("", cfg, g, 1024, "leaky_relu", 0, "tanh", 1),
    { "output_sampling_rate", offsetof(cfg, rate), 'i', 24000, NULL },
    { NULL, 0, 0, 0, NULL },
};

static xd_status read_config(void *c, const xd_json *obj, const char *what, xd_err *e)
{
    return xd_generator_read(&((cfg *)c)->g, &xd_generator_vocoder, obj, "", what, e);
}

static xd_status check_config(void *c_, xd_err *e)
{
    static const xd_ints up = { 5, { 6, 5, 2, 2, 2 } }, kernel = { 5, { 16, 15, 8, 4, 4 } };
    cfg                 *c = c_;
    if (c->rate < 1)
        return xd_fail(e, XD_EFORMAT, "vocoder: output_sampling_rate %d is not positive", c->rate);
    return xd_generator_check(&c->g, &xd_generator_vocoder, &up, &kernel, e);
}

static void info(const void *c_, xd_audio_info *out)
{
    const cfg *c = c_;
    *out = (xd_audio_info){ .in = c->g.in, .out = c->g.out, .rate = c->rate };
}

static int64_t rows(const void *c, int64_t n)
{
    return xd_generator_rows(&((const cfg *)c)->g, n);
}

static void weights(xd_decl *d, const void *c, void *g)
{
    xd_generator_declare(d, &((const cfg *)c)->g, g);
}

static void run(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out)
{
    xd_generator_run(x, &((const cfg *)n->cfg)->g, n->glob, in, out);
}

extern const xd_audio xd_audio_vocoder;

const xd_audio xd_audio_vocoder = {
    .net = { .name = "vocoder",
             .classes = { "LTX2Vocoder" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(xd_generator_weights),
             .read = read_config,
             .check = check_config,
             .weights = weights },
    .info = info,
    .rows = rows,
    .run = run,
};
