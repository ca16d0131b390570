/* distilled.c - recognizes checkpoints that are distilled for few steps, and lists their default
 * settings.
 *
 * For a distilled checkpoint, the checkpoint's defaults replace those of the pipeline. The defaults
 * are taken from the examples published with the checkpoints. */
#include "families/recipe.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shift that Krea-2-Turbo has for all sizes. */
static double largest_mu(int64_t tokens, int steps)
{
    (void)tokens, (void)steps;
    return 1.15;
}

/* A row of the table of distilled checkpoints. A checkpoint is recognized if its name matches
 * `words`, or if its configs have all the settings COMPONENT.KEY=VALUE of `config`; an absent key
 * counts as false. A checkpoint whose name matches `unless` is not recognized. The name of a
 * checkpoint is that of the model's directory or repository, or that of a file that replaces the
 * transformer. Words of a name are separated by "-", "_" and similar characters. The pattern "a
 * b|c" matches a name that has both words a and b, or the word c; "a*" matches a word that starts
 * with a. `recipe` may end with * to match all pipelines of a family. */
static const xd_distilled table[] = {
    { .name = "FLUX.1-schnell",
      .recipe = "flux",
      .config = "transformer.guidance_embeds=false scheduler.use_dynamic_shifting=false",
      .unless = "de|dedistill*|openflux*|libreflux*",
      .steps = 4,
      .guidance = 0,
      .max_text = 256 },
    { .name = "FLUX.2-klein",
      .recipe = "flux2-klein",
      .config = "model_index.is_distilled=true",
      .steps = 4,
      .guidance = 1 },
    { .name = "Z-Image-Turbo",
      .recipe = "z-image",
      .config = "scheduler.shift=3 scheduler.use_dynamic_shifting=false",
      .words = "turbo",
      .unless = "base|omni|edit",
      .steps = 9,
      .guidance = 0 },
    { .name = "Krea-2-Turbo",
      .recipe = "krea-2",
      .config = "model_index.is_distilled=true",
      .words = "turbo",
      .unless = "raw",
      .steps = 8,
      .guidance = 0,
      .mu = largest_mu },
    { .name = "SD3.5-large-turbo",
      .recipe = "sd3",
      .words = "large turbo|turbo sd3.5l*",
      .steps = 4,
      .guidance = 0 },
    { .name = "SD3.5-medium-turbo",
      .recipe = "sd3",
      .words = "medium turbo",
      .steps = 8,
      .guidance = 1.5 },
    { .name = "SDXL-Turbo",
      .recipe = "sdxl",
      .words = "sdxl turbo|sd xl turbo",
      .steps = 1,
      .guidance = 0 },
    { .name = "SDXL-Lightning",
      .recipe = "sdxl",
      .words = "sdxl lightning",
      .steps = 4,
      .guidance = 0 },
    { .name = "SD-Turbo", .recipe = "sd15", .words = "sd turbo", .steps = 1, .guidance = 0 },
    { .name = "LCM-SDXL", .recipe = "sdxl", .words = "lcm sdxl", .steps = 4, .guidance = 8 },
    { .name = "PixArt-LCM",
      .recipe = "pixart*",
      .config = "scheduler._class_name=LCMScheduler",
      .words = "lcm",
      .steps = 4,
      .guidance = 0 },
    { .name = "PixArt-DMD",
      .recipe = "pixart*",
      .words = "dmd",
      .steps = 1,
      .guidance = 1,
      .timesteps = "400" },
    { .name = "Qwen-Image-Lightning",
      .recipe = "qwen-image*",
      .config = "scheduler.base_shift=1.0986 scheduler.max_shift=1.0986",
      .words = "lightning|turbo",
      .steps = 4,
      .guidance = -1,
      .true_cfg = 1 },
    { .name = "HunyuanDiT-Distilled",
      .recipe = "hunyuandit",
      .words = "distilled",
      .steps = 25,
      .guidance = -1 },
    { .name = "HunyuanVideo-1.5 of few steps",
      .recipe = "hunyuan-video-1.5-i2v",
      .config = "transformer.use_meanflow=true",
      .words = "step distilled",
      .steps = 8,
      .guidance = 1 },
    { .name = "LTX-2 distilled",
      .recipe = "ltx2",
      .words = "distilled",
      .steps = 8,
      .guidance = 1,
      .sigmas = "1,0.99375,0.9875,0.98125,0.975,0.909375,0.725,0.421875" },
    { .name = "Chroma1-Flash", .recipe = "chroma", .words = "flash", .steps = 8, .guidance = 1 },
    { .name = "FastWan", .recipe = "wan*", .words = "fastwan*|dmd", .steps = 3, .guidance = 1 },
    { .name = "Wan of four steps",
      .recipe = "wan*",
      .words = "stepdistill|distill|lightning|lightx2v|causvid|turbo",
      .steps = 4,
      .guidance = 1 },
};

/* ---- names ---------------------------------------------------------------------------------- */

static int is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '.';
}

/* Returns 1 if a word of the name matches the pattern word[0 .. n), which may end with "*". */
static int has_word(const char *name, const char *word, size_t n)
{
    int open = n && word[n - 1] == '*';
    n -= (size_t)open;
    for (const char *c = name; *c;) {
        size_t k = 0, same = 0;
        while (is_letter(c[k]))
            k++;
        while (same < n && same < k && tolower((unsigned char)c[same]) == word[same])
            same++;
        if (n && same == n && (k == n || open))
            return 1;
        c += k;
        c += *c != 0;
    }
    return 0;
}

/* Returns 1 if the words of a name match a pattern. The pattern "a b|c" matches if the name has
 * both a and b, or has c. */
static int has_words(const char *name, const char *words)
{
    for (const char *c = words; c && *c; c += *c == '|') {
        int all = 1;
        while (*c && *c != '|') {
            size_t n = strcspn(c, " |");
            all &= has_word(name, c, n);
            c += n + (c[n] == ' ');
        }
        if (all)
            return 1;
    }
    return 0;
}

/* Returns the number before "step" in a name such as "8steps" or "8-step", or 0 if the name has no
 * such number. */
static int steps_of(const char *name)
{
    for (const char *c = name; *c; c++) {
        char *end;
        long  n = isdigit((unsigned char)*c) ? strtol(c, &end, 10) : 0;
        if (!n)
            continue;
        end += *end == '-' || *end == '_';
        if (n < 100 && strncmp(end, "step", 4) == 0)
            return (int)n;
        c = end > c ? end - 1 : c;
    }
    return 0;
}

/* ---- configs -------------------------------------------------------------------------------- */

static int holds_value(const xd_json *v, const char *want, size_t n)
{
    double number;
    int    on;
    char   text[64];
    snprintf(text, sizeof text, "%.*s", (int)n, want);
    if (xd_json_text(v))
        return strcmp(xd_json_text(v), text) == 0;
    if (xd_json_number(v, &number))
        return fabs(number - atof(text)) < 1e-4 && isdigit((unsigned char)*text);
    if (!xd_json_bool(v, &on))
        on = 0;
    return strcmp(text, on ? "true" : "false") == 0;
}

static int holds_all(const char *config, const xd_distilled_of *m)
{
    for (const char *c = config; *c; c += *c == ' ') {
        size_t         part = strcspn(c, "."), key = strcspn(c + part + 1, "=");
        const xd_json *j = *c == 't' ? m->transformer : *c == 's' ? m->scheduler : m->index;
        char           name[64];
        snprintf(name, sizeof name, "%.*s", (int)key, c + part + 1);
        c += part + 1 + key + 1;
        size_t n = strcspn(c, " ");
        if (!j || !holds_value(xd_json_get(j, name), c, n))
            return 0;
        c += n;
    }
    return 1;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int is_of(const char *recipe, const char *pattern)
{
    size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(recipe, pattern, n - 1) == 0
                                 : strcmp(recipe, pattern) == 0;
}

int xd_distilled_find(const xd_distilled_of *m, xd_distilled *found)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const xd_distilled *d = &table[i];
        if (!is_of(m->recipe, d->recipe) || has_words(m->name, d->unless))
            continue;
        if (!has_words(m->name, d->words) && (!d->config || !holds_all(d->config, m)))
            continue;
        *found = *d;
        if (steps_of(m->name) && !d->timesteps && !d->sigmas)
            found->steps = steps_of(m->name);
        return 1;
    }
    return 0;
}
