/* xdit_translate.c - translates the flags, defaults and launcher of an xDiT command; see
 * xdit_translate.h */
#include "from_xdit/xdit_translate.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

XD_PRINTF(2, 3) static void add_flag_text(xd_translation *o, const char *fmt, ...)
{
    va_list ap, again;
    if (o->n == o->cap) {
        char **w = realloc(o->word, (size_t)(o->cap * 2 + 32) * sizeof *w);
        if (!w) {
            o->failed = 1;
            return;
        }
        o->word = w;
        o->cap = o->cap * 2 + 32;
    }
    va_start(ap, fmt);
    va_copy(again, ap);
    int   n = vsnprintf(NULL, 0, fmt, ap);
    char *text = malloc((size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    if (text)
        o->word[o->n++] = text;
    else
        o->failed = 1;
}

static void set_plan(xd_translation *o, const xd_line *l)
{
    const xd_given *list = xd_line_given(l, "attn_layer_num_for_pp");
    xd_text_buf     b = { 0 };
    o->plan = (xd_parallel){
        .tensor_parallel_degree = xd_line_int(l, "tensor_parallel_degree", 1),
        .ulysses_degree = xd_line_int(l, "ulysses_degree", 1),
        .ring_degree = xd_line_int(l, "ring_degree", 1),
        .pipefusion_parallel_degree = xd_line_int(l, "pipefusion_parallel_degree", 1),
        .data_parallel_degree = xd_line_int(l, "data_parallel_degree", 1),
        .use_cfg_parallel = xd_line_on(l, "use_cfg_parallel"),
        .num_pipeline_patch = xd_line_int(l, "num_pipeline_patch", 0),
        .warmup_steps = xd_line_int(l, "warmup_steps", 1),
        .use_parallel_vae = xd_line_on(l, "use_parallel_vae"),
        .text_tensor_parallel_degree = 1,
    };
    for (int i = 0; list && i < list->count; i++)
        xd_buf_add(&b, "%s%s", i ? "," : "", list->v[i]);
    o->list = b.p;
    o->failed |= b.failed;
    if (o->list)
        o->plan.attn_layer_num_for_pp = o->list;
    if (o->plan.pipefusion_parallel_degree == 1)
        /* without pipeline stages, xDiT ignores num_pipeline_patch, so the translation omits it */
        o->plan.num_pipeline_patch = 0;
    o->ranks = xd_parallel_ranks(&o->plan);
    o->hosts = l->nnodes;
    if (o->ranks == 1 && l->world > 1) {
        int dit = xd_line_int(l, "dit_parallel_size", 0);
        o->ranks = dit > 0 && dit < l->world ? dit : l->world;
    }
}

static void add_launcher(xd_translation *o)
{
    if (o->hosts > 1 && o->ranks > 1) {
        add_flag_text(o, "mpirun");
        add_flag_text(o, "--hostfile");
        add_flag_text(o, "hosts");
        add_flag_text(o, "--map-by");
        add_flag_text(o, "ppr:%d:node", (o->ranks + o->hosts - 1) / o->hosts);
        add_flag_text(o, "-n");
        add_flag_text(o, "%d", o->ranks);
    }
    add_flag_text(o, "xdit");
    add_flag_text(o, "generate");
}

/* Returns 1 if the flag has no effect: a degree of 1, a number of frames for an image model, or the
 * number of patches or warmup steps for a single pipeline stage. */
static int is_idle(const xd_line *l, const xd_xdit_flag *f)
{
    size_t n = strlen(f->name);
    if (!strcmp(f->name, "num_pipeline_patch") || !strcmp(f->name, "warmup_steps"))
        return xd_line_int(l, "pipefusion_parallel_degree", 1) == 1;
    if (n > 7 && !strcmp(f->name + n - 7, "_degree") && xd_line_int(l, f->name, 1) == 1)
        return 1;
    return !strcmp(f->name, "num_frames") && l->model && !(l->model->can & XD_HAS_VIDEO);
}

/* Translates a flag of xDiT to a flag of xdit with a value, such as --weights_dtype int8. If the
 * translated command already has the option, it is not added again. */
static void as_value(xd_translation *o, const xd_xdit_flag *f)
{
    const char *blank = strchr(f->own, ' ');
    char        name[64];
    snprintf(name, sizeof name, "--%.*s", (int)(blank - f->own), f->own);
    for (int i = 0; i < o->n; i++)
        if (strcmp(o->word[i], name) == 0)
            return;
    add_flag_text(o, "%s", name);
    add_flag_text(o, "%s", blank + 1);
}

/* Translates --output_type: the type "latent" becomes the file extension of --output. Returns 1 for
 * the types "latent" and "pil" ("pil" means images, xdit's default output); returns 0 for other
 * types. */
static int as_output(xd_translation *o, const xd_line *l)
{
    const char *type = xd_line_text(l, "output_type");
    if (type && !strcmp(type, "latent")) {
        add_flag_text(o, "--output");
        add_flag_text(o, "latents.safetensors");
    }
    return type && (!strcmp(type, "latent") || !strcmp(type, "pil"));
}

/* Translates --output_directory: the directory becomes a part of --output. Returns 0 if the output
 * directory is the default directory, or if it is unknown whether the output is an image or a
 * video. */
static int as_directory(xd_translation *o, const xd_line *l)
{
    const char *to = xd_line_text(l, "output_directory");
    if (!to || !l->model)
        return 0;
    add_flag_text(o, "--output");
    add_flag_text(o, "%s/output.%s", to, l->model->can & XD_HAS_VIDEO ? "mp4" : "png");
    return 1;
}

/* Returns the Hugging Face name of a model that is named as in the registry of xDiT's runner; other
 * names are returned unchanged. */
static const char *model_of(const xd_line *l, const char *name)
{
    const char *repo = l->runner && !xd_file_is_dir(name) ? xd_xdit_repo(name) : NULL;
    return repo ? repo : name;
}

/* Adds the option --cache of a step cache of xDiT. The members of --cache_config, a JSON object,
 * are options of the cache with the same names. */
static void as_cache(xd_translation *o, const xd_line *l, const char *method)
{
    const char *text = xd_line_text(l, "cache_config");
    xd_json    *j = NULL;
    xd_err      e = { 0 };
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "%s", method);
    if (text && xd_json_parse(&j, text, strlen(text), "--cache_config", &e) == XD_OK) {
        int n = 0;
        for (const xd_json *v = xd_json_first(j); v; v = xd_json_next(v)) {
            xd_buf_add(&b, "%c%s=", n++ ? ',' : ':', xd_json_key(v));
            xd_buf_json(&b, v);
        }
    } else if (text) {
        snprintf(o->note, sizeof o->note, "%.400s; its options are left out", e.msg);
    }
    o->failed |= b.failed;
    add_flag_text(o, "--cache");
    add_flag_text(o, "%s", b.p ? b.p : method);
    free(b.p);
    xd_json_free(&j);
}

/* Adds the type of weights that is nearest to xDiT's type of GEMMs. */
static void as_weights(xd_translation *o, const char *type)
{
    int known = !strcmp(type, "fp8") || !strcmp(type, "int8");
    if (!strcmp(type, "none"))
        return;
    add_flag_text(o, "--weights_dtype");
    add_flag_text(o, "%s", known ? type : "fp8");
    if (!known)
        snprintf(o->note, sizeof o->note,
                 "--gemm_quantization %.60s is not supported; the nearest is --weights_dtype fp8, "
                 "or int4, which needs half the memory of fp8",
                 type);
}

static void add_flag(xd_translation *o, const xd_line *l, const xd_xdit_flag *f)
{
    const xd_given *g = xd_line_given(l, f->name);
    const char     *name = f->kind == XD_FLAG_OTHER ? f->own : f->name;
    if (!g || is_idle(l, f) || !strcmp(f->name, "ray_world_size") ||
        (!strcmp(f->name, "output_type") && as_output(o, l)) ||
        (!strcmp(f->name, "output_directory") && as_directory(o, l)))
        return;
    if (f->kind == XD_FLAG_VALUE) {
        as_value(o, f);
    } else if (!strcmp(f->name, "determinism_check")) {
        if (xd_line_int(l, f->name, 0) > 0)
            add_flag_text(o, "--determinism_check");
    } else if (!strcmp(f->name, "cache_method") && g->count) {
        as_cache(o, l, g->v[g->count - 1]);
    } else if (!strcmp(f->name, "gemm_quantization") && g->count) {
        as_weights(o, g->v[g->count - 1]);
    } else if (!strcmp(f->name, "cache_config") && xd_line_given(l, "cache_method")) {
        return; /* the translation of the flag is a part of the option --cache */
    } else if (!strcmp(f->name, "model") && g->count) {
        o->model = model_of(l, g->v[g->count - 1]);
        add_flag_text(o, "--model");
        add_flag_text(o, "%s", o->model);
    } else if (f->kind != XD_FLAG_SAME && f->kind != XD_FLAG_OTHER) {
        if (!g->off)
            o->left[o->nleft++] = f;
    } else if (!f->value) {
        add_flag_text(o, "--%s", name);
    } else if (!strcmp(f->name, "attn_layer_num_for_pp")) {
        add_flag_text(o, "--%s", name);
        add_flag_text(o, "%s", o->list);
    } else if (!strcmp(f->name, "prompt") || !strcmp(f->name, "negative_prompt")) {
        for (int i = 0; i < g->count; i++) {
            add_flag_text(o, "--%s", name);
            add_flag_text(o, "%s", g->v[i]);
        }
    } else if (g->count) {
        add_flag_text(o, "--%s", name);
        add_flag_text(o, "%s", f->value <= 'Z' ? g->v[0] : g->v[g->count - 1]);
        if (g->count > 1)
            snprintf(o->note, sizeof o->note,
                     "--%s accepts one value here: the first of %d is "
                     "used",
                     name, g->count);
    }
}

/* Adds an option to the translated command, unless the command has the option already. Does nothing
 * if the value is NULL. */
static void by_default(xd_translation *o, const xd_line *l, const char *name, const char *value)
{
    if (!value || xd_line_given(l, name))
        return;
    add_flag_text(o, "--%s", name);
    add_flag_text(o, "%s", value);
}

static void add_runner_defaults(xd_translation *o, const xd_line *l, const xd_xdit_model *m)
{
    by_default(o, l, "num_inference_steps", m->steps);
    by_default(o, l, "guidance_scale", m->guidance);
    by_default(o, l, "height", m->side ? m->side : m->height);
    by_default(o, l, "width", m->side ? m->side : m->width);
    by_default(o, l, "num_frames", m->frames);
    by_default(o, l, "max_sequence_length", m->text);
}

/* Adds options for xDiT's defaults that differ from xdit's defaults. */
static void add_defaults(xd_translation *o, const xd_line *l)
{
    unsigned can = l->model ? l->model->can : 0;
    if (!l->runner) {
        if (!xd_line_given(l, "prompt"))
            by_default(o, l, "prompt", "");
        by_default(o, l, "height", "1024");
        by_default(o, l, "width", "1024");
        if (can & XD_HAS_VIDEO)
            by_default(o, l, "num_frames", "49");
        by_default(o, l, "num_inference_steps", "20");
        if (can & XD_HAS_GUIDANCE)
            by_default(o, l, "guidance_scale", "3.5");
    }
    if (l->runner && l->model)
        add_runner_defaults(o, l, l->model);
    if (l->model && l->model->control_image) {
        add_flag_text(o, "--control_image");
        add_flag_text(o, "%s", l->model->control_image);
    }
    by_default(o, l, "seed", "42");
}

void xd_translate(xd_translation *o, const xd_line *l)
{
    set_plan(o, l);
    add_launcher(o);
    for (int i = 0; xd_xdit_flags[i].name; i++)
        add_flag(o, l, &xd_xdit_flags[i]);
    if (o->hosts > 1 && xd_line_product(l) == 1 && o->ranks > 1) {
        add_flag_text(o, "--ulysses_degree");
        add_flag_text(o, "%d", o->ranks);
    } else if (xd_line_product(l) == 1 && o->ranks > 1) {
        add_flag_text(o, "--nproc");
        add_flag_text(o, "%d", o->ranks);
    }
    add_defaults(o, l);
    if (xd_parallel_ranks(&o->plan) == 1 && o->ranks > 1)
        o->plan.ulysses_degree = o->ranks; /* --nproc without degrees sets the Ulysses
                                                   degree */
}

/* Returns 1 if the word contains control characters other than newlines, or bytes that are not
 * UTF-8. */
static int has_controls(const char *word)
{
    for (size_t n; *word; word += n) {
        unsigned char c = (unsigned char)*word, next = (unsigned char)word[1];
        n = xd_utf8_bytes(word);
        if (n == 0 || (c < 32 && c != '\n') || c == 127 || (c == 0xc2 && next < 0xa0))
            return 1;
    }
    return 0;
}

/* Prints a character of a word that is quoted with '', or with $'' if the word has control
 * characters. */
static int quote_letter(FILE *f, char c, int controls)
{
    char text[8];
    if (c == '\'')
        snprintf(text, sizeof text, "%s", controls ? "\\'" : "'\\''");
    else if (controls && c == '\\')
        snprintf(text, sizeof text, "\\\\");
    else if (controls && ((unsigned char)c < 32 || (unsigned char)c >= 127))
        snprintf(text, sizeof text, "\\%03o", (unsigned)(unsigned char)c);
    else
        snprintf(text, sizeof text, "%c", c);
    if (f)
        fputs(text, f);
    return (int)strlen(text);
}

int xd_shell_quote(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=,:@%+";
    int               controls = has_controls(word), columns = 2 + controls;
    if (*word && strspn(word, plain) == strlen(word)) {
        if (f)
            fputs(word, f);
        return (int)strlen(word);
    }
    if (f)
        fputs(controls ? "$'" : "'", f);
    for (const char *p = word; *p; p++)
        columns += quote_letter(f, *p, controls);
    if (f)
        fputc('\'', f);
    return columns;
}

void xd_translation_print(FILE *f, const xd_translation *o)
{
    int at = fprintf(f, "  ") - 2;
    for (int i = 0; i < o->n; i++) {
        int with = i + 1 < o->n && o->word[i][0] == '-' && strncmp(o->word[i + 1], "--", 2) != 0;
        int wide = xd_shell_quote(NULL, o->word[i]) +
                   (with ? 1 + xd_shell_quote(NULL, o->word[i + 1]) : 0);
        if (i && at + 1 + wide > 92) {
            fputs(" \\\n      ", f);
            at = 4;
        } else if (i) {
            fputc(' ', f), at++;
        }
        at += xd_shell_quote(f, o->word[i]);
        if (with) {
            fputc(' ', f);
            at += 1 + xd_shell_quote(f, o->word[++i]);
        }
    }
    fputc('\n', f);
}

void xd_translation_free(xd_translation *o)
{
    for (int i = 0; i < o->n; i++)
        free(o->word[i]);
    free(o->word);
    free(o->list);
    *o = (xd_translation){ 0 };
}

void xd_translation_plan(const xd_parallel *p, char *text, size_t size)
{
    const struct {
        const char *name;
        int         n;
    } part[] = {
        { "data", p->data_parallel_degree },
        { "cfg", p->use_cfg_parallel ? 2 : 1 },
        { "pipefusion", p->pipefusion_parallel_degree },
        { "ring", p->ring_degree },
        { "ulysses", p->ulysses_degree },
        { "tensor", p->tensor_parallel_degree },
    };
    size_t at = 0;
    snprintf(text, size, "1 rank");
    for (size_t i = 0; i < sizeof part / sizeof *part && at < size; i++)
        if (part[i].n != 1)
            at += (size_t)snprintf(text + at, size - at, "%s%s %d", at ? " x " : "", part[i].name,
                                   part[i].n);
}
