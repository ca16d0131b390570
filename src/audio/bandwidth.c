/* bandwidth.c - turns a mel spectrogram into samples like diffusers' LTX2VocoderWithBWE.
 *
 * A first generator makes samples of a lower rate. Their mel spectrogram is the input of a second
 * generator, whose output is added to the samples resampled to the higher rate (bandwidth
 * extension). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "audio/audio.h"
#include "audio/filters.h"
#include "audio/generator.h"
#include "base/minmax.h"
#include "base/par.h"
#include "exec/op.h"

enum { MAXWINDOW = 4096 };

typedef struct cfg {
    xd_generator low, high;
    int          window, filter, hop, mels, low_rate, rate;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    XD_GENERATOR_FIELDS("", cfg, low, 1536, "snakebeta", 1, "", 0),
    XD_GENERATOR_FIELDS("bwe_", cfg, high, 512, "snakebeta", 1, "", 0),
    { "filter_length", AT(filter), 'i', 512, NULL },
    { "window_length", AT(window), 'i', 512, NULL },
    { "hop_length", AT(hop), 'i', 80, NULL },
    { "num_mel_channels", AT(mels), 'i', 64, NULL },
    { "input_sampling_rate", AT(low_rate), 'i', 16000, NULL },
    { "output_sampling_rate", AT(rate), 'i', 48000, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_generator_weights low, high;
    xd_tensor            wave; /* [2F,1,window] window times cosines, then window times sines */
    xd_tensor            mel;  /* [mels,F] */
} glob;

static xd_status read_config(void *c_, const xd_json *obj, const char *what, xd_err *e)
{
    cfg      *c = c_;
    xd_status s = xd_generator_read(&c->low, &xd_generator_vocoder, obj, "", what, e);
    return s == XD_OK ? xd_generator_read(&c->high, &xd_generator_vocoder, obj, "bwe_", what, e)
                      : s;
}

static int ratio_of(const cfg *c)
{
    return c->rate / c->low_rate;
}

/* Checks the numbers that the two generators share. */
static xd_status check_sizes(const cfg *c, xd_err *e)
{
    if (c->low_rate < 1 || c->rate < c->low_rate || c->rate % c->low_rate || ratio_of(c) > 8)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vocoder: output_sampling_rate %d is not 1 to 8 times input_sampling_rate "
                       "%d",
                       c->rate, c->low_rate);
    if (c->window != c->filter || c->window < 2 || c->window > MAXWINDOW || c->window % 2 ||
        c->hop < 1 || c->hop > c->window || c->mels < 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vocoder: filter_length %d, window_length %d, hop_length %d and "
                       "num_mel_channels %d are not supported; the first two must be the same "
                       "even number up to %d, and not less than hop_length",
                       c->filter, c->window, c->hop, c->mels, MAXWINDOW);
    if (c->high.in != c->low.out * c->mels || c->high.out != c->low.out)
        return xd_fail(e, XD_EFORMAT,
                       "vocoder: bwe_in_channels %lld and bwe_out_channels %lld do not fit to "
                       "num_mel_channels %d of out_channels %lld",
                       (long long)c->high.in, (long long)c->high.out, c->mels,
                       (long long)c->low.out);
    for (int64_t n = 1; n < 3; n++)
        if (xd_generator_rows(&c->high, n) != n * c->hop * ratio_of(c))
            return xd_fail(e, XD_EFORMAT,
                           "vocoder: bwe_upsample_factors make %lld samples of %lld times "
                           "hop_length %d, but the rates %d and %d make %lld",
                           (long long)xd_generator_rows(&c->high, n), (long long)n, c->hop,
                           c->low_rate, c->rate, (long long)(n * c->hop * ratio_of(c)));
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    static const xd_ints up[] = { { 6, { 5, 2, 2, 2, 2, 2 } }, { 5, { 6, 5, 2, 2, 2 } } };
    static const xd_ints kernel[] = { { 6, { 11, 4, 4, 4, 4, 4 } }, { 5, { 12, 11, 4, 4, 4 } } };
    cfg                 *c = c_;
    xd_status s = xd_generator_check(&c->low, &xd_generator_vocoder, &up[0], &kernel[0], e);
    if (s == XD_OK)
        s = xd_generator_check(&c->high, &xd_generator_vocoder, &up[1], &kernel[1], e);
    return s == XD_OK ? check_sizes(c, e) : s;
}

static void info(const void *c_, xd_audio_info *out)
{
    const cfg *c = c_;
    *out = (xd_audio_info){ .in = c->low.in, .out = c->high.out, .rate = c->rate };
}

static int64_t rows(const void *c, int64_t n)
{
    return xd_generator_rows(&((const cfg *)c)->low, n) * ratio_of(c);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg    *c = c_;
    glob         *g = g_;
    const int64_t F = c->filter / 2 + 1, basis[] = { 2 * F, 1, c->filter };
    xd_w_enter(d, "vocoder");
    xd_generator_declare(d, &c->low, &g->low);
    xd_w_leave(d);
    xd_w_enter(d, "bwe_generator");
    xd_generator_declare(d, &c->high, &g->high);
    xd_w_leave(d);
    xd_w_enter(d, "mel_stft");
    xd_w_vec(d, &g->mel, "mel_basis", 2, (int64_t[]){ c->mels, F });
    xd_w_vec(d, &g->wave, "stft_fn.forward_basis", 3, basis);
    xd_w_unread(d, "stft_fn.inverse_basis", 3, basis);
    xd_w_leave(d);
}

/* ---- spectrogram ---------------------------------------------------------------------------- */

typedef struct mel_work {
    const cfg   *c;
    const float *wave;   /* [n,channels] samples */
    const float *basis;  /* [window,2F] */
    const float *filter; /* [mels,F] */
    float       *out;    /* [n/hop,channels mels] */
} mel_work;

/* Computes rows of the spectrogram. A window ends with the samples of its row, and there are zeros
 * before the first sample. */
static void mel_rows(void *w_, int64_t begin, int64_t end, int thread)
{
    const mel_work *w = w_;
    const int       window = w->c->window, hop = w->c->hop, F = window / 2 + 1, m = w->c->mels;
    const int64_t   channels = w->c->low.out;
    float           sum[MAXWINDOW + 2];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / channels, k = i % channels, first = (row + 1) * hop - window;
        memset(sum, 0, sizeof sum);
        for (int64_t j = first < 0 ? -first : 0; j < window; j++) {
            const float v = w->wave[(first + j) * channels + k], *b = w->basis + j * 2 * F;
            for (int f = 0; f < 2 * F; f++)
                sum[f] += v * b[f];
        }
        for (int f = 0; f < F; f++)
            sum[f] = sqrtf(sum[f] * sum[f] + sum[F + f] * sum[F + f]);
        for (int j = 0; j < m; j++) {
            double mel = 0;
            for (int f = 0; f < F; f++)
                mel += (double)w->filter[j * F + f] * (double)sum[f];
            w->out[i * m + j] = (float)log(mel > 1e-5 ? mel : 1e-5);
        }
    }
}

/* Computes the spectrogram `mel` of samples [n,channels] in host memory. */
static void compute_mel(xd_exec *x, const cfg *c, const glob *g, xd_tensor wave, xd_tensor mel)
{
    const int64_t n = xd_count(wave), F = c->window / 2 + 1, basis = 2 * F * c->window;
    float        *all = malloc((size_t)(n + 2 * basis + c->mels * F + xd_count(mel)) * sizeof *all);
    if (!all) {
        xd_exec_fail(x, XD_ENOMEM, "no memory for the spectrogram of %lld samples", (long long)n);
        return;
    }
    float   *turned = all + n, *stored = turned + basis, *filter = stored + basis;
    mel_work w = { c, all, turned, filter, filter + c->mels * F };
    xd_get(x, all, wave);
    xd_get(x, stored, g->wave);
    xd_get(x, filter, g->mel);
    if (xd_ok(x)) {
        for (int64_t f = 0; f < 2 * F; f++)
            for (int64_t j = 0; j < c->window; j++)
                turned[j * 2 * F + f] = stored[f * c->window + j];
        xd_par_for(mel.d[0] * c->low.out, mel_rows, &w);
        xd_put(x, mel, w.out);
    }
    free(all);
}

/* ---- running -------------------------------------------------------------------------------- */

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
}

static void run(xd_exec *x, const xd_net *net, xd_tensor in, xd_tensor out)
{
    const cfg  *c = net->cfg;
    const glob *g = net->glob;
    size_t      mark = xd_arena_mark(x->tmp);
    int64_t     n = xd_generator_rows(&c->low, in.d[0]), all = xd_round_up(n, c->hop);
    xd_taps     f = xd_taps_resample(ratio_of(c));
    xd_tensor   wave = xd_new_f32(x, all, c->low.out);
    xd_tensor   mel = xd_new_f32(x, all / c->hop, c->high.in);
    xd_tensor   wide = xd_new_f32(x, all * f.ratio, c->low.out);
    xd_tensor   more = xd_new_f32(x, all * f.ratio, c->low.out);
    xd_tensor   rest = xd_rows(wave, n, all - n);
    size_t      bytes = xd_bytes(rest);
    if (bytes)
        xd_fill(x, rest, fill_zeros, &bytes);
    xd_generator_run(x, &c->low, &g->low, in, xd_rows(wave, 0, n));
    if (!xd_counting(x) && xd_ok(x))
        compute_mel(x, c, g, wave, mel);
    xd_generator_run(x, &c->high, &g->high, mel, more);
    xd_taps_enlarge(x, wide, wave, &f);
    xd_add(x, wide, more);
    xd_audio_clamp(x, wide);
    xd_copy_to(x, out, xd_rows(wide, 0, out.d[0]));
    xd_arena_rewind(x->tmp, mark);
}

extern const xd_audio xd_audio_bandwidth;

const xd_audio xd_audio_bandwidth = {
    .net = { .name = "wide vocoder",
             .classes = { "LTX2VocoderWithBWE" },
             .unread = { "mel_stft.stft_fn.inverse_basis" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .read = read_config,
             .check = check_config,
             .weights = weights },
    .info = info,
    .rows = rows,
    .run = run,
};
