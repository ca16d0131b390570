/* test_lora.c - LoRA files in all their spellings, and those that are refused.
 *
 *     test_lora DIR
 *
 * DIR is tests/golden; the model is its FLUX. One difference (the q, k and v of a block and the
 * q of a CLIP layer) is written in every form that is understood: latents must be the same bits,
 * and others than without it. What diffusers makes of LoRA files is in test_golden, plans in
 * test_lora_ranks.c. f32. */
#define _XOPEN_SOURCE 700       /* mkdtemp, P_tmpdir */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/scratch.h"
#include "base/file.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "golden.h"
#include "pipeline/result.h"

enum { D = 24, RANK = 4, MAXITEM = 32 };

static char        model[1024], heard[8192];
static int         partial; /* what does not fit is left out */
static const char *without; /* a text encoder that is left out, or NULL */
static float      *numbers; /* random: what all files take theirs from */
static size_t working; /* bytes that loading the transformer took beside its weights, as counted */

typedef struct file { /* tensors to be written; {0}: none */
    xd_st_item  item[MAXITEM];
    char        name[MAXITEM][256];
    int         n;
    const char *meta[3]; /* key, value, NULL; or NULL */
} file;

static void hear(void *cookie, int level, const char *line)
{
    (void)cookie;
    if (level == XD_LOG_WARN)
        snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%s;", line);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void put(file *f, const char *module, const char *end, const float *v, int64_t rows,
                int64_t cols)
{
    int i = f->n++;
    snprintf(f->name[i], sizeof f->name[i], "%s%s", module, end);
    f->item[i] = (xd_st_item){ f->name[i], xd_view2((void *)(uintptr_t)v, XD_F32, rows, cols) };
}

static const char *write_file(const file *f)
{
    static char path[1100];
    xd_err      e = { 0 };
    snprintf(path, sizeof path, "%s", in_scratch("lora.safetensors"));
    must(xd_st_write(path, f->item, f->n, 1, f->meta[0] ? f->meta : NULL, &e), &e, path);
    return path;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* Latents (malloc'ed) with one LoRA file, or none; NULL and e when it fails. */
static float *generate(const char *path, double scale, int64_t *n, xd_err *e)
{
    const char  *prompt = "a star";
    xd_engine   *g = NULL;
    xd_result   *r = NULL;
    xd_request   q;
    float       *out = NULL;
    xd_lora      l = { path, scale };
    xd_open_args a = { .size = sizeof a,
                       .model = model,
                       .dtype = "f32",
                       .device = "cpu",
                       .threads = 1,
                       .lora_partial = partial,
                       .without = without,
                       .loras = &l,
                       .nloras = path != NULL,
                       .log = hear,
                       .log_level = XD_LOG_WARN };
    heard[0] = 0;
    xd_request_init(&q);
    q.prompts = &prompt, q.nprompts = 1;
    q.width = 32, q.height = 24, q.num_inference_steps = 1, q.texts.max_sequence_length = 5;
    q.output.latents_only = 1;
    if (xd_open(&g, &a, e) == XD_OK && xd_generate(g, &q, &r, e) == XD_OK) {
        const float *lat = xd_result_lat(r, 0, n);
        out = malloc((size_t)*n * sizeof *out);
        memcpy(out, lat, (size_t)*n * sizeof *out);
        working = g->ctx.model.dit.count->work;
    }
    xd_result_free(&r);
    xd_close(&g);
    return out;
}

/* The largest difference as a share of the largest value; infinite when there is none to
 * compare. */
static double apart(const float *a, const float *b, int64_t n)
{
    double worst = 0, top = 0;
    for (int64_t i = 0; a && b && i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        worst = d > worst || isnan(d) ? d : worst;
        top = fmax(top, fabs((double)b[i]));
    }
    return a && b && top > 0 ? worst / top : INFINITY;
}

/* ---- spellings ------------------------------------------------------------------------------ */

static const struct form {
    const char *what;
    const char *dit[3];    /* modules of q, k, v; or one of all */
    const char *down, *up; /* ends of their keys */
    const char *text, *tdown, *tup;
} forms[] = {
    { "Kohya",
      { "lora_unet_double_blocks_0_img_attn_qkv" },
      ".lora_down.weight",
      ".lora_up.weight",
      "lora_te1_text_model_encoder_layers_0_self_attn_q_proj",
      ".lora_down.weight",
      ".lora_up.weight" },
    { "PEFT",
      { "transformer.transformer_blocks.0.attn.to_q", "transformer.transformer_blocks.0.attn.to_k",
        "transformer.transformer_blocks.0.attn.to_v" },
      ".lora_A.weight",
      ".lora_B.weight",
      "text_encoder.text_model.encoder.layers.0.self_attn.q_proj",
      ".lora_A.weight",
      ".lora_B.weight" },
    { "older diffusers",
      { "transformer.transformer_blocks.0.attn.processor.to_q",
        "transformer.transformer_blocks.0.attn.processor.to_k",
        "transformer.transformer_blocks.0.attn.processor.to_v" },
      "_lora.down.weight",
      "_lora.up.weight",
      "text_encoder.text_model.encoder.layers.0.self_attn.to_q",
      "_lora.down.weight",
      "_lora.up.weight" },
    { "lora.down, lora_linear_layer",
      { "transformer.transformer_blocks.0.attn.to_q", "transformer.transformer_blocks.0.attn.to_k",
        "transformer.transformer_blocks.0.attn.to_v" },
      ".lora.down.weight",
      ".lora.up.weight",
      "text_encoder.text_model.encoder.layers.0.self_attn.q_proj",
      ".lora_linear_layer.down.weight",
      ".lora_linear_layer.up.weight" },
    { "ComfyUI",
      { "diffusion_model.double_blocks.0.img_attn.qkv" },
      ".lora_A.weight",
      ".lora_B.weight",
      "text_encoders.clip_l.transformer.text_model.encoder.layers.0.self_attn.q_proj",
      ".lora_A.weight",
      ".lora_B.weight" },
    { "X-Labs",
      { "double_blocks.0.processor.qkv_lora1" },
      ".down.weight",
      ".up.weight",
      "lora_te_text_model_encoder_layers_0_self_attn_q_proj",
      ".lora_down.weight",
      ".lora_up.weight" },
    { "OneTrainer",
      { "lora_transformer_transformer_blocks_0_attn_to_q",
        "lora_transformer_transformer_blocks_0_attn_to_k",
        "lora_transformer_transformer_blocks_0_attn_to_v" },
      ".lora_down.weight",
      ".lora_up.weight",
      "lora_te1_text_model_encoder_layers_0_self_attn_q_proj",
      ".lora_down.weight",
      ".lora_up.weight" },
    { "a PEFT model",
      { "base_model.model.transformer_blocks.0.attn.to_q",
        "base_model.model.transformer_blocks.0.attn.to_k",
        "base_model.model.transformer_blocks.0.attn.to_v" },
      ".lora_A.default.weight",
      ".lora_B.default.weight",
      "text_encoder.encoder.layers.0.self_attn.q_proj",
      ".lora_A.weight",
      ".lora_B.weight" },
};

/* The same numbers in one form. */
static void spell(file *f, const struct form *w)
{
    const float *down = numbers, *up = down + RANK * D, *tdown = up + 3 * D * RANK;
    int          n = w->dit[1] ? 3 : 1;
    for (int i = 0; i < n; i++) {
        put(f, w->dit[i], w->down, down, RANK, D);
        put(f, w->dit[i], w->up, up + (int64_t)i * D * RANK, 3 * D / n, RANK);
    }
    put(f, w->text, w->tdown, tdown, RANK, D);
    put(f, w->text, w->tup, tdown + RANK * D, D, RANK);
}

/* q, k and v as whole differences; malloc'ed numbers go to *mine. */
static void spell_whole(file *f, float **mine)
{
    static const char *const names[] = { "diffusion_model.transformer_blocks.0.attn.to_q.weight",
                                         "diffusion_model.double_blocks.0.img_attn.qkv" };
    const float             *down = numbers, *up = down + RANK * D;
    *mine = calloc((size_t)(3 * D * D), sizeof **mine);
    for (int r = 0; r < 3 * D; r++)
        for (int k = 0; k < RANK; k++)
            for (int c = 0; c < D; c++)
                (*mine)[r * D + c] += up[r * RANK + k] * down[k * D + c];
    put(f, names[1], ".diff", *mine, 3 * D, D);
}

static void check_forms(const float *plain, int64_t n)
{
    float *first = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        file    f = { .n = 0 };
        xd_err  e = { 0 };
        int64_t m = 0;
        spell(&f, &forms[i]);
        float *lat = generate(write_file(&f), 0.5, &m, &e);
        if (!first) {
            first = lat;
            tap(lat && apart(lat, plain, n) > 1e-2,
                "%s: changes the latents by %.1e, at least 1e-2%s%s", forms[i].what,
                apart(lat, plain, n), *e.msg ? ": " : "", e.msg);
            continue;
        }
        tap(lat && m == n && memcmp(lat, first, (size_t)n * sizeof *lat) == 0 && !*heard,
            "%s: the same bits as Kohya's (%.1e apart)%s%s%s", forms[i].what, apart(lat, first, n),
            *e.msg ? ": " : "", e.msg, heard);
        free(lat);
    }
    free(first);
}

static void check_whole(void)
{
    file    f = { .n = 0 }, w = { .n = 0 };
    xd_err  e = { 0 };
    int64_t n = 0;
    float  *mine;
    spell(&f, &forms[0]);
    f.n -= 2; /* without the text encoder */
    float *a = generate(write_file(&f), 0.5, &n, &e);
    spell_whole(&w, &mine);
    float *b = generate(write_file(&w), 0.5, &n, &e);
    tap(apart(b, a, n) <= 1e-5, "a whole difference: %.1e from its product, at most 1e-5%s",
        apart(b, a, n), e.msg);
    free(a), free(b), free(mine);
}

/* ---- alphas --------------------------------------------------------------------------------- */

/* Latents with an alpha tensor (NULL: none), a note, and a scale. */
static float *with_alpha(const float *alpha, const char *note, double scale, int64_t *n)
{
    file   f = { .meta = { note ? "lora_adapter_metadata" : NULL, note } };
    xd_err e = { 0 };
    spell(&f, &forms[1]);
    for (int i = 0; alpha && i < 3; i++)
        put(&f, forms[1].dit[i], ".alpha", alpha, 1, 1);
    float *lat = generate(write_file(&f), scale, n, &e);
    if (!lat)
        tap_note("%s", e.msg);
    return lat;
}

/* An alpha tensor against a note; either may be NULL. */
static void same(const float *alpha, const char *note, const char *what)
{
    int64_t n = 0, m = 0;
    float  *a = with_alpha(alpha, NULL, 1, &n), *b = with_alpha(NULL, note, 1, &m);
    tap(a && b && n > 0 && n == m && memcmp(a, b, (size_t)n * sizeof *a) == 0,
        "%s (%.1e apart, at most 0)", what, apart(a, b, n));
    free(a), free(b);
}

static void check_alphas(void)
{
    static const float two = 2, four = 4;
    int64_t            n = 0;
    same(&four, NULL, "an alpha of the rank is as none");
    same(&two, "{\"transformer.lora_alpha\": 2, \"text_encoder.r\": 4}",
         "an alpha noted in the header is as one in the file");
    same(&two, "{\"transformer.lora_alpha\": 1, \"transformer.use_rslora\": true}",
         "alpha 1 of rank 4, rank-stabilised, is as alpha 2");
    same(&two,
         "{\"transformer.alpha_pattern\": {\"transformer_blocks.0.attn.to_q\": 2, "
         "\"to_k\": 2, \"attn.to_v\": 2}}",
         "alphas noted by module");
    float *a = with_alpha(&two, NULL, 1, &n), *b = with_alpha(&four, NULL, 1, &n);
    tap(apart(a, b, n) > 1e-3 && apart(a, b, n) < 10, "alphas 2 and 4 differ: %.1e, at least 1e-3",
        apart(a, b, n));
    free(a), free(b);
}

/* Keys of patterns are expressions for the end of a module's name, and the first one counts. */
static void check_patterns(void)
{
    static const float two = 2;
    static const struct {
        const char *what, *pattern;
    } notes[] = {
        { "as diffusers saves them",
          "\"^transformer_blocks.0.attn.to_q\": 2, "
          "\"^transformer_blocks.0.attn.to_k\": 2, \"^transformer_blocks.0.attn.to_v\": 2" },
        { "of expressions", "\"transformer_blocks\\\\.\\\\d+\\\\.attn\\\\.to_[qk]\": 2, "
                            "\"(?:nothing|.*\\\\.to_v)\": 2" },
        { "of which the first one counts", "\"to_.\": 2, \"transformer_blocks.0.attn.to_q\": 8, "
                                           "\"to_k\": 16, \"to_v\": 1" },
        { "that begin within a part of the name", "\"o_q\": 7, \"ttn.to_k\": 7, \"to\": 7, "
                                                  "\"to_[qkv]\": 2" },
        { "that begin elsewhere", "\"^to_q\": 7, \"^attn.*\": 7, \"transformer.*\": 2" },
        { "in capitals", "\"TO_Q\": 7, \"(?i:TO_Q)\": 2, \"to_[^q]\": 2" },
    };
    char note[512], what[128];
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        snprintf(note, sizeof note,
                 "{\"transformer.lora_alpha\": 3, "
                 "\"transformer.alpha_pattern\": {%s}}",
                 notes[i].pattern);
        snprintf(what, sizeof what, "alphas by keys %s", notes[i].what);
        same(&two, note, what);
    }
}

/* ---- a folder of peft ------------------------------------------------------------------------ */

/* Latents of DIR (whole: DIR/adapter_model.safetensors) with these settings (NULL: no file). */
static float *of_folder(const char *config, int whole, int64_t *n, xd_err *e)
{
    char path[1200];
    file f = { .n = 0 };
    spell(&f, &forms[7]);
    f.n -= 2; /* without the text encoder */
    snprintf(path, sizeof path, "%s", in_scratch("adapter"));
    mkdir(path, 0700);
    scratch_put("adapter/adapter_model.safetensors", "", 0);
    must(xd_st_write(in_scratch("adapter/adapter_model.safetensors"), f.item, f.n, 1, NULL, e), e,
         path);
    unlink(in_scratch("adapter/adapter_config.json"));
    if (config)
        scratch_put("adapter/adapter_config.json", config, strlen(config));
    return generate(whole ? in_scratch("adapter/adapter_model.safetensors") : path, 1, n, e);
}

/* The settings of a folder against one alpha for all modules; config NULL: there is no file. */
static void check_settings(const char *config, float alpha, const char *what)
{
    xd_err  e = { 0 };
    int64_t n = 0, m = 0;
    file    f = { .n = 0 };
    spell(&f, &forms[7]);
    f.n -= 2;
    for (int i = 0; i < 3; i++)
        put(&f, forms[7].dit[i], ".alpha", &alpha, 1, 1);
    float *want = generate(write_file(&f), 1, &n, &e);
    for (int whole = !config; whole < 2; whole++) {
        float *lat = of_folder(config, whole, &m, &e);
        tap(want && lat && n == m && apart(lat, want, n) <= 1e-5,
            "%s%s (%.1e apart, at most 1e-5)%s", what, whole ? ", its file named" : "",
            apart(lat, want, n), e.msg);
        free(lat);
    }
    free(want);
}

static void refuse_settings(const char *config, xd_status code, const char *word)
{
    xd_err  e = { 0 };
    int64_t n = 0;
    float  *lat = of_folder(config, 0, &n, &e);
    tap(!lat && e.code == code && strstr(e.msg, word) && strstr(e.msg, "adapter_config.json") &&
            strstr(e.msg, in_scratch("adapter")),
        "refused with \"%s\": %s", word, e.msg);
    free(lat);
}

static void check_folder(void)
{
    check_settings(NULL, RANK, "without settings the alpha is the rank");
    check_settings("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 32}", 32,
                   "the alpha of adapter_config.json");
    check_settings("{\"r\": 4}", 8, "its default");
    check_settings("{\"r\": 4, \"lora_alpha\": 3, \"use_rslora\": true}", 6,
                   "rank-stabilised settings");
    check_settings("{\"r\": 2, \"rank_pattern\": {\"to_.\": 4}, \"lora_alpha\": 3, "
                   "\"alpha_pattern\": {\"attn\\\\.to_[qkv]\": 9, \"to_q\": 1}}",
                   9, "the patterns of a folder");
    refuse_settings("{\"lora_alpha\": 3", XD_EFORMAT, "not JSON");
    refuse_settings("{\"alpha_pattern\": {\"to_(q\": 3}}", XD_EFORMAT, "to_(q");
    refuse_settings("{\"alpha_pattern\": {\"\\\\Qto_q\\\\E\": 3}}", XD_EFORMAT, "Qto_q");
    refuse_settings("{\"alpha_pattern\": {\"(?|to_q)\": 3}}", XD_EFORMAT, "(?|to_q)");
    refuse_settings("{\"rank_pattern\": {\"to_q\": \"four\"}}", XD_EFORMAT, "to_q");
    refuse_settings("{\"init_lora_weights\": \"pissa_niter_4\"}", XD_EUNSUPPORTED, "pissa");
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void refuse_at(const char *path, double scale, xd_status code, const char *part)
{
    xd_err  e = { 0 };
    int64_t n = 0;
    float  *lat = generate(path, scale, &n, &e);
    tap(!lat && e.code == code && strstr(e.msg, part), "refused with \"%s\": %s", part, e.msg);
    free(lat);
}

static void refuse(const file *f, xd_status code, const char *part)
{
    refuse_at(write_file(f), 1, code, part);
}

static void check_refused(void)
{
    static const float   nan_at[RANK * D] = { [7] = NAN };
    static const int32_t whole[RANK * D] = { 1 };
    const char *const    q = "transformer.transformer_blocks.0.attn.to_q";
    file                 f = { .n = 0 };
    put(&f, q, ".lora_A.weight", numbers, RANK, D);
    refuse(&f, XD_EFORMAT, "has only its down (A) matrix");
    put(&f, q, ".lora_B.weight", numbers, D, RANK + 1);
    refuse(&f, XD_EFORMAT,
           "to_q.lora_B.weight is 24x5, expected 24x4 for "
           "transformer_blocks.0.attn.to_q.weight");
    f.n = 0;
    put(&f, q, ".lora_A.weight", numbers, RANK, D - 1);
    put(&f, q, ".lora_B.weight", numbers, D, RANK);
    refuse(&f, XD_EFORMAT, "is 4x23, expected RANKx24");
    f.n = 0;
    put(&f, q, ".lora_A.weight", numbers, 0, D);
    put(&f, q, ".lora_B.weight", numbers, D, 0);
    refuse(&f, XD_EFORMAT, "its rank is 0");
    f.n = 0;
    put(&f, q, ".lora_A.weight", nan_at, RANK, D);
    put(&f, q, ".lora_B.weight", numbers, D, RANK);
    refuse(&f, XD_EFORMAT, "holds NaN or infinite numbers");
    f.item[0].t = xd_view2((void *)(uintptr_t)whole, XD_I32, RANK, D);
    refuse(&f, XD_EUNSUPPORTED, "has type I32");
    f.item[0].t = xd_view2(numbers, XD_F32, RANK, D);
    put(&f, q, ".alpha", nan_at + 7, 1, 1);
    refuse(&f, XD_EFORMAT, "to_q.alpha is not a finite number");
    f.n--;
    put(&f, q, ".lora_down.weight", numbers, RANK, D);
    refuse(&f, XD_EFORMAT, "are the same matrix");
    f.n--;
    put(&f, q, ".oft_blocks", numbers, 1, D);
    refuse(&f, XD_EUNSUPPORTED, "unsupported method");
    f.n--;
    refuse_at(write_file(&f), NAN, XD_EINVAL, "has the scale nan");
    f.meta[0] = "lora_adapter_metadata", f.meta[1] = "{";
    refuse(&f, XD_EFORMAT, "lora_adapter_metadata in its header: not JSON");
    f.meta[0] = NULL;
    f.n = 0;
    put(&f, "lora_unet_input_blocks_1_attn_to_q", ".lora_down.weight", numbers, RANK, D);
    refuse(&f, XD_EFORMAT,
           "none of its 1 tensors fits this model; their names are lora_unet_input");
    f.n = 0;
    refuse(&f, XD_EFORMAT, "none of its 0 tensors");
    refuse_at(in_scratch("nothing.safetensors"), 1, XD_EIO, "nothing.safetensors does not exist");
    scratch_put("text.safetensors", "this is a text and no file of tensors", 37);
    refuse_at(in_scratch("text.safetensors"), 1, XD_EFORMAT, "text.safetensors");
}

/* Twelve unknown keys and a good pair: refused with the number and ten names. What Kohya's names
 * say again beside those of diffusers is known. */
static void check_unknown(void)
{
    file f = { .n = 0 };
    char name[64];
    spell(&f, &forms[1]);
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "transformer.strange_%02d", i);
        put(&f, name, i % 2 ? ".weight" : ".lora_A.weight", numbers, 1, 1);
    }
    put(&f, "lora_unet_double_blocks_0_img_attn_qkv", ".lora_up.weight", numbers, 1, 1);
    refuse(&f, XD_EFORMAT,
           "12 of its 21 tensors fit nothing in this model: "
           "transformer.strange_00");
    refuse(&f, XD_EFORMAT, "transformer.strange_09.weight, ...");
}

/* What fits of a file that does not fit the model: names, a shape, factors of another one. */
static void check_partial(void)
{
    static const char norm[] = "transformer.transformer_blocks.0.norm1.linear";
    const char *const mlp = "transformer.transformer_blocks.0.ff.net.2";
    file              f = { .n = 0 };
    xd_err            e = { 0 };
    int64_t           n = 0, m = 0;
    spell(&f, &forms[1]);
    float *want = generate(write_file(&f), 1, &n, &e);
    put(&f, "transformer.transformer_blocks.0.attn.add_k_img", ".lora_A.weight", numbers, RANK, D);
    put(&f, "transformer.transformer_blocks.0.attn.add_k_img", ".lora_B.weight", numbers, D, RANK);
    refuse(&f, XD_EFORMAT, "--lora_partial");
    put(&f, norm, ".lora_A.weight", numbers, RANK, D);
    put(&f, norm, ".lora_B.weight", numbers, D, RANK);
    put(&f, mlp, ".lokr_w1", numbers, 2, 2);
    put(&f, mlp, ".lokr_w2", numbers, 5, 5);
    partial = 1;
    float *lat = generate(write_file(&f), 1, &m, &e);
    tap(want && lat && n == m && memcmp(lat, want, (size_t)n * sizeof *lat) == 0 &&
            strstr(heard, "6 of 14 tensors") && strstr(heard, "norm1.linear.lora_A") &&
            strstr(heard, "lokr_w2") && strstr(heard, "add_k_img"),
        "what fits of a file has the bits of a file of that alone: %s%s", e.msg, heard);
    free(lat);
    f.n = 0;
    put(&f, norm, ".lora_A.weight", numbers, RANK, D);
    put(&f, norm, ".lora_B.weight", numbers, D, RANK);
    refuse(&f, XD_EFORMAT, "none of its 2 tensors fits");
    partial = 0;
    free(want);
}

/* Biases and modules that peft trained whole replace those of the model, where its settings say so,
 * and differences are added to them. */
static void check_replaced(void)
{
    static const char q[] = "base_model.model.transformer_blocks.0.attn.to_q";
    static const char bias[] = "{\"r\": 4, \"lora_alpha\": 4, \"bias\": \"all\"}";
    xd_err            e = { 0 };
    int64_t           n = 0, m = 0;
    file              f = { .n = 0 };
    mkdir(in_scratch("adapter"), 0700);
    scratch_put("adapter/adapter_config.json", bias, sizeof bias - 1);
    put(&f, q, ".base_layer.bias", numbers, D, 1);
    put(&f, q, ".lora_A.weight", numbers, RANK, D);
    put(&f, q, ".lora_B.weight", numbers, D, RANK);
    f.item[0].t = xd_view(numbers, XD_F32, 1, (int64_t[]){ D });
    const char *path = in_scratch("adapter/adapter_model.safetensors");
    must(xd_st_write(path, f.item, f.n, 1, NULL, &e), &e, path);
    float *once = generate(path, 1, &n, &e);
    must(e.code, &e, path);
    must(xd_st_write(path, f.item, 1, 1, NULL, &e), &e, path);
    float *alone = generate(path, 1, &m, &e), *half = generate(path, 0.5, &m, &e);
    tap(once && alone && half && memcmp(alone, half, (size_t)n * sizeof *half) == 0 &&
            apart(once, alone, n) > 1e-3,
        "a bias is replaced whatever the scale: %.1e from it with a "
        "difference, at least 1e-3%s",
        apart(once, alone, n), e.msg);
    scratch_put("adapter/adapter_config.json", "{}", 2);
    refuse_at(path, 1, XD_EFORMAT, "to_q.base_layer.bias");
    free(once), free(alone), free(half);
}

/* Keys of a text encoder that is left out are counted; those of one that the model has not are
 * refused. */
static void check_left_out(const char *dir)
{
    static const char q[] = "lora_te3_encoder_block_0_layer_0_SelfAttention_q";
    const char *const dit = forms[1].dit[0];
    file              f = { .n = 0 };
    xd_err            e = { 0 };
    int64_t           n = 0;
    put(&f, dit, ".lora_A.weight", numbers, RANK, D);
    put(&f, dit, ".lora_B.weight", numbers, D, RANK);
    put(&f, q, ".lora_down.weight", numbers, RANK, 40);
    put(&f, q, ".lora_up.weight", numbers, D, RANK);
    snprintf(model, sizeof model, "%s/sd3", dir);
    without = "t5xxl";
    float *lat = generate(write_file(&f), 1, &n, &e);
    tap(lat && strstr(heard, "2 of 4 tensors for text encoders"),
        "a text encoder that is left out: %s%s", e.msg, heard);
    free(lat);
    without = NULL;
    snprintf(model, sizeof model, "%s/chroma", dir);
    f.n = 2;
    put(&f, "lora_te2_text_model_encoder_layers_0_mlp_fc1", ".lora_down.weight", numbers, RANK, D);
    refuse(&f, XD_EFORMAT, "1 of its 3 tensors fit nothing in this model: lora_te2_text_model");
    snprintf(model, sizeof model, "%s/flux", dir);
}

/* ---- LoHa and LoKr -------------------------------------------------------------------------- */

/* Element [r,c] of the matrix a [rows, n] times b [n, cols]. */
static double product(const float *a, const float *b, int n, int cols, int r, int c)
{
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += (double)a[r * n + k] * (double)b[k * cols + c];
    return sum;
}

static const char *const kohya_qkv = "lora_unet_double_blocks_0_img_attn_qkv";

/* Latents of a file against those of the whole difference `mine` of q, k and v, which is freed. */
static void as_whole(const file *f, float *mine, const char *what)
{
    file    w = { .n = 0 };
    xd_err  e = { 0 };
    int64_t n = 0;
    float  *a = generate(write_file(f), 0.5, &n, &e);
    put(&w, kohya_qkv, ".diff", mine, 3 * D, D);
    float *b = generate(write_file(&w), 0.5, &n, &e);
    tap(apart(b, a, n) <= 1e-5, "%s: %.1e from its product, at most 1e-5%s", what, apart(b, a, n),
        e.msg);
    free(a), free(b), free(mine);
}

/* alpha 3 of rank 2 */
static void check_hadamard(void)
{
    static const float three = 3;
    enum { R = 2 };
    const float *u1 = numbers, *d1 = u1 + 3 * D * R, *u2 = d1 + R * D, *d2 = u2 + 3 * D * R;
    float       *mine = calloc(3 * D * D, sizeof *mine);
    file         f = { .n = 0 };
    for (int i = 0; i < 3 * D * D; i++)
        mine[i] = (float)(1.5 * product(u1, d1, R, D, i / D, i % D) *
                          product(u2, d2, R, D, i / D, i % D));
    put(&f, kohya_qkv, ".hada_w1_a", u1, 3 * D, R);
    put(&f, kohya_qkv, ".hada_w1_b", d1, R, D);
    put(&f, kohya_qkv, ".hada_w2_a", u2, 3 * D, R);
    put(&f, kohya_qkv, ".hada_w2_b", d2, R, D);
    put(&f, kohya_qkv, ".alpha", &three, 1, 1);
    as_whole(&f, mine, "LoHa");
    f.n -= 2;
    refuse(&f, XD_EFORMAT, "img_attn_qkv lacks a factor of its product");
    put(&f, kohya_qkv, ".hada_w2_b", d2, R + 1, D);
    refuse(&f, XD_EFORMAT, "has the rank 2, but");
}

/* w1 [8,4] (x) w2 [9,6], both whole or products of rank 3; alpha 6 counts for products only. */
static void check_kronecker(int low)
{
    static const float six = 6;
    enum { R = 3, O1 = 8, I1 = 4, O2 = 9, I2 = 6 };
    const float *w1 = numbers, *a = w1 + O1 * I1, *b = a + O2 * R, *w2 = b + R * I2;
    float       *mine = calloc(3 * D * D, sizeof *mine);
    file         f = { .n = 0 };
    for (int r = 0; r < 3 * D; r++)
        for (int c = 0; c < D; c++) {
            double v = low ? 2 * product(a, b, R, I2, r % O2, c % I2)
                           : (double)w2[r % O2 * I2 + c % I2];
            mine[r * D + c] = (float)((double)w1[r / O2 * I1 + c / I2] * v);
        }
    put(&f, kohya_qkv, ".lokr_w1", w1, O1, I1);
    if (low) {
        put(&f, kohya_qkv, ".lokr_w2_a", a, O2, R);
        put(&f, kohya_qkv, ".lokr_w2_b", b, R, I2);
    } else {
        put(&f, kohya_qkv, ".lokr_w2", w2, O2, I2);
    }
    put(&f, kohya_qkv, ".alpha", &six, 1, 1);
    as_whole(&f, mine, low ? "LoKr of a matrix and a product" : "LoKr of two matrices");
    f.item[0].t = xd_view2(numbers, XD_F32, O1 - 1, I1);
    refuse(&f, XD_EFORMAT, "7x4 and 9x6, is not 72x24");
    put(&f, kohya_qkv, ".lokr_t2", numbers, 1, 1);
    refuse(&f, XD_EUNSUPPORTED, "lokr_t2 belongs to an unsupported method");
}

/* The difference of a norm's gains. */
static void check_norm(const float *plain, int64_t n)
{
    file    f = { .n = 0 };
    xd_err  e = { 0 };
    int64_t m = 0;
    put(&f, "diffusion_model.transformer_blocks.0.attn.norm_q", ".diff", numbers, 1, 8);
    f.item[0].t = xd_view(numbers, XD_F32, 1, (int64_t[]){ 8 });
    float *lat = generate(write_file(&f), 1, &m, &e);
    tap(lat && m == n && apart(lat, plain, n) > 1e-4,
        "the difference of a norm moves latents by "
        "%.1e, at least 1e-4%s",
        apart(lat, plain, n), e.msg);
    free(lat);
}

/* A matrix that is there fused and in parts is added once. */
static void check_fused(void)
{
    static const char fused[] = "diffusion_model.double_blocks.0.img_attn.qkv";
    file              f = { .n = 0 };
    xd_err            e = { 0 };
    int64_t           n = 0, m = 0;
    spell(&f, &forms[7]);
    float *once = generate(write_file(&f), 1, &n, &e);
    put(&f, fused, ".lora_A.weight", numbers, RANK, D);
    put(&f, fused, ".lora_B.weight", numbers + RANK * D, 3 * D, RANK);
    float *both = generate(write_file(&f), 1, &m, &e);
    tap(once && both && n == m && memcmp(once, both, (size_t)n * sizeof *once) == 0 &&
            strstr(heard, "2 of its 10 tensors are not used: diffusion_model.double_blocks.0"),
        "a module that is there fused, too, is added once: %s", *e.msg ? e.msg : heard);
    free(once);
    free(both);
    f.n = 0;
    put(&f, fused, ".lora_A.weight", numbers, RANK, D);
    put(&f, fused, ".lora_B.weight", numbers + RANK * D, 3 * D, RANK);
    put(&f, forms[7].dit[1], forms[7].down, numbers, RANK, D);
    put(&f, forms[7].dit[1], forms[7].up, numbers + RANK * D, D, RANK);
    refuse(&f, XD_EFORMAT, "qkv contains transformer_blocks.0.attn.to_k.weight, which");
}

/* bare: what loading takes without a file. Of the three matrices that are packed as one each has
 * a sum. */
static void check_zero(float *plain, int64_t n, size_t bare)
{
    file    f = { .n = 0 };
    xd_err  e = { 0 };
    int64_t m = 0;
    spell(&f, &forms[0]);
    float *lat = generate(write_file(&f), 0, &m, &e);
    tap(lat && m == n && memcmp(lat, plain, (size_t)n * sizeof *lat) == 0,
        "a scale of 0 leaves the bits as they are%s", e.msg);
    free(lat);
    lat = generate(write_file(&f), 1, &m, &e);
    tap(lat && working >= bare + 3 * 24 * 24 * sizeof(float),
        "sums are counted: %zu bytes, %zu without", working, bare);
    free(lat);
}

static double cold_sum(xd_engine *g)
{
    double cold[XD_KINDS];
    xd_model_cold_bytes(&g->ctx.model, g->ctx.count, g->ctx.type, cold);
    return cold[XD_KIND_TEXT] + cold[XD_KIND_DIT];
}

/* What memory has lost of a file since it was opened must be read again: each matrix once. */
static void check_cold(void)
{
    file       f = { .n = 0 };
    xd_err     e = { 0 };
    xd_engine *g = NULL;
    double     want = 0;
    spell(&f, &forms[0]);
    xd_lora      l = { write_file(&f), 1 };
    xd_open_args a = { .size = sizeof a,
                       .model = model,
                       .dtype = "f32",
                       .device = "cpu",
                       .threads = 1,
                       .loras = &l,
                       .nloras = 1 };
    for (int i = 0; i < f.n; i++)
        want += (double)xd_bytes(f.item[i].t);
    int fd = open(l.path, O_RDONLY);
    must(fd >= 0 && fsync(fd) == 0 ? xd_open(&g, &a, &e) : XD_EIO, &e, l.path);
    double before = cold_sum(g);
    xd_file_drop_cached(fd);
    int    skip = xd_file_cold_bytes(fd, 0, 1 << 20) == 0;
    double after = cold_sum(g);
    tap(skip || after - before == want,
        "a file that is not in memory is counted: %.0f of %.0f "
        "bytes%s",
        after - before, want, skip ? " # SKIP the file system keeps its files" : "");
    close(fd);
    xd_close(&g);
}

int main(int argc, char **argv)
{
    xd_err  e = { 0 };
    int64_t n = 0;
    enum { COUNT = 4096 };
    if (argc != 2 || scratch_open() != 0) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    snprintf(model, sizeof model, "%s/flux", argv[1]);
    numbers = malloc(COUNT * sizeof *numbers);
    xd_noise_philox(numbers, 0, COUNT, 5);
    for (int i = 0; i < COUNT; i++)
        numbers[i] *= 0.3f;
    float *plain = generate(NULL, 0, &n, &e);
    must(e.code, &e, "without LoRA files");
    size_t bare = working;
    check_forms(plain, n);
    check_whole();
    check_alphas();
    check_patterns();
    check_folder();
    check_partial();
    check_replaced();
    check_zero(plain, n, bare);
    check_cold();
    check_unknown();
    check_fused();
    check_hadamard();
    check_kronecker(0);
    check_kronecker(1);
    check_norm(plain, n);
    check_left_out(argv[1]);
    check_refused();
    free(plain);
    free(numbers);
    scratch_clean();
    scratch_close();
    return tap_end();
}
