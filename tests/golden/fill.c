/* fill.c - weights of a model directory from the names of its tensors */
#define _XOPEN_SOURCE 700       /* strdup */
#include "fill.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/rng.h"
#include "families/recipe.h"
#include "golden.h"
#include "model/component.h"

enum { MOST = 64 << 20 }; /* bytes of a file that is copied */

static FILE *read_files; /* names of files that were read, for make; NULL: nobody asks */

static void broken(const char *what, const char *path)
{
    printf("Bail out! cannot %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static char *join(const char *dir, const char *name)
{
    char *p = xd_path_join(dir, name);
    if (!p)
        broken("name", name);
    return p;
}

static int ends(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

xd_dtype fill_type(const char *name)
{
    if (strcmp(name, "f32") != 0 && strcmp(name, "f16") != 0 && strcmp(name, "bf16") != 0) {
        printf("Bail out! weights are f32, f16 or bf16, not %s\n", name);
        exit(1);
    }
    return strcmp(name, "f32") == 0 ? XD_F32 : strcmp(name, "f16") == 0 ? XD_F16 : XD_BF16;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Matrices of variance 1/inputs, norms near one, small biases; logits of T5 near one, since it
 * does not divide them, and few pixels beyond the range of an image. */
static void scale_of(const xd_declared *t, float *gain, float *mean)
{
    float in = 1;
    for (int i = 1; i < t->nd; i++)
        in *= (float)t->d[i];
    *mean = t->nd == 1 && ends(t->name, "weight") ? 1.0f : 0.0f;
    *gain = 0.9f / sqrtf(in);
    if (ends(t->name, "running_var") || ends(t->name, "latents_std"))
        *gain = 0.3f, *mean = 1;
    else if (ends(t->name, "gamma"))
        *gain = 0.1f, *mean = 1;
    else if (t->nd == 1)
        *gain = 0.1f;
    else if (strncmp(t->name, "motion_encoder.", 15) == 0)
        *gain = 1.0f; /* the network divides by the root of the inputs itself */
    else if (ends(t->name, "mel_basis"))
        *gain = 0.1f, *mean = 0.3f; /* sums of magnitudes, whose logarithm is taken */
    else if (ends(t->name, "relative_attention_bias.weight"))
        *gain = 0.7f;
    else if (ends(t->name, "shared.weight") || ends(t->name, "pos_embedding") ||
             ends(t->name, "register_tokens"))
        *gain = 1.0f;
    else if (ends(t->name, "decoder.conv_out.conv.weight"))
        *gain *= 0.15f;
    else if (ends(t->name, "bwe_generator.conv_out.weight"))
        *gain *= 0.05f; /* samples that are not clamped */
    else if (ends(t->name, "decoder.proj_out.weight"))
        *gain *= 0.4f;
    else if (ends(t->name, "time_step_proj.linear_2.weight"))
        *gain *= 2.5f; /* gates of which attention is seen */
    else if (ends(t->name, ".q.weight") || ends(t->name, ".k.weight") ||
             ends(t->name, "conv_out.weight"))
        *gain *= 0.5f;
}

/* salt: before the name, of a second network with the same names. zero: gains are stored minus 1.
 */
static xd_st_item made(xd_declared *t, xd_dtype type, const char *salt, int zero)
{
    float gain, mean;
    char  salted[512];
    t->name[strcspn(t->name, "|")] = 0;
    scale_of(t, &gain, &mean);
    mean = zero && t->nd == 1 ? 0 : mean;
    xd_tensor v = xd_view(NULL, type, t->nd, t->d);
    int64_t   n = xd_count(v);
    snprintf(salted, sizeof salted, "%s%s", salt, t->name);
    uint64_t hash = xd_hash_text(salted);
    float   *f = malloc((size_t)n * sizeof *f + 1);
    if (!f || !(v.p = malloc(xd_bytes(v) + 1)))
        broken("make", t->name);
    for (int64_t i = 0; i < n; i++)
        f[i] = mean + gain * xd_random_weight(hash, (uint64_t)i);
    xd_convert(v.p, type, f, XD_F32, n);
    free(f);
    return (xd_st_item){ t->name, v };
}

/* ---- files ---------------------------------------------------------------------------------- */

static void copy_file(const char *from, const char *to)
{
    char  *data;
    size_t n;
    xd_err e = { 0 };
    must(xd_file_read(from, MOST, &data, &n, &e), &e, from);
    if (read_files)
        fprintf(read_files, " %s", from);
    FILE *f = fopen(to, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        broken("write", to);
    free(data);
}

/* Copies the files of a folder, and folders in it when `deep`; says whether weights were there. */
static int copy_folder(const char *from, const char *to, int deep)
{
    int  weights = 0;
    DIR *d = opendir(from);
    if (!d || (mkdir(to, 0777) != 0 && errno != EEXIST))
        broken(d ? "make" : "read", d ? to : from);
    if (read_files)
        fprintf(read_files, " %s", from);
    for (struct dirent *at; (at = readdir(d));) {
        char *a = join(from, at->d_name), *b = join(to, at->d_name);
        if (xd_file_is_dir(a)) {
            if (deep && at->d_name[0] != '.')
                copy_folder(a, b, 0);
        } else {
            copy_file(a, b);
            weights |= ends(at->d_name, ".safetensors");
        }
        free(a);
        free(b);
    }
    closedir(d);
    return weights;
}

/* Returns 1 if the model is opened with the vision tower of its text encoder. */
static int sees(const char *model, const xd_recipe *p, const char *name)
{
    char *path = join(model, "processor/preprocessor_config.json");
    int   found = xd_recipe_sees(p, name) && (p->needs_image || xd_file_exists(path));
    free(path);
    return found;
}

static void fill_part(const char *model, const char *to, const char *name, xd_kind kind,
                      const xd_json *index, xd_dtype type)
{
    const char  *hint = xd_json_text(xd_json_at(xd_json_get(index, name), 1));
    const char  *pipeline = xd_json_text(xd_json_get(index, "_class_name"));
    xd_component p;
    xd_err       e = { 0 };
    char        *folder = join(to, name);
    char         file[64];
    must(xd_component_open(&p, model, name, kind, hint, &e), &e, model);
    if (sees(model, xd_recipe_find(pipeline, index), name))
        must(xd_component_add_vision(&p, &e), &e, model);
    snprintf(file, sizeof file, "%s.safetensors", xd_component_stem(&p));
    char       *path = join(folder, file);
    xd_st_item *item = calloc((size_t)p.nlist + 1, sizeof *item);
    if (!item)
        broken("make", path);
    /* fill.py makes BERT's of the names behind a head, which files may lack. */
    const char *salt = strcmp(name, "transformer_2") == 0 ? "second."
                       : strcmp(p.def->name, "bert") == 0 ? "bert."
                                                          : "";
    for (int i = 0; i < p.nlist; i++)
        item[i] = made(&p.list[i], type, salt, strcmp(p.def->name, "krea2") == 0);
    must(xd_st_write(path, item, p.nlist, 1, NULL, &e), &e, path);
    for (int i = 0; i < p.nlist; i++)
        free(item[i].t.p);
    free(item);
    xd_component_close(&p);
    free(path);
    free(folder);
}

/* Makes the weights of a control network, which are declared as those of a transformer with it. */
static void fill_side(const char *model, const char *to, const char *name, xd_dtype type)
{
    enum { PREFIX = sizeof XD_SIDE_SLOT ".0." - 1 };
    char        *side = join(model, name), *folder = join(to, name);
    char        *path = join(folder, "diffusion_pytorch_model.safetensors");
    xd_component p;
    xd_err       e = { 0 };
    int          n = 0;
    must(xd_component_open(&p, model, "transformer", XD_KIND_DIT, NULL, &e), &e, model);
    must(xd_component_add_sides(&p, (const char *[]){ side }, 1, &e), &e, side);
    xd_st_item *item = calloc((size_t)p.nlist + 1, sizeof *item);
    if (!item)
        broken("make", path);
    for (int i = 0; i < p.nlist; i++)
        if (strncmp(p.list[i].name, XD_SIDE_SLOT ".0.", PREFIX) == 0) {
            memmove(p.list[i].name, p.list[i].name + PREFIX, strlen(p.list[i].name + PREFIX) + 1);
            char salt[64];
            snprintf(salt, sizeof salt, "%s.", name);
            item[n++] = made(&p.list[i], type, salt, 0);
        }
    must(xd_st_write(path, item, n, 1, NULL, &e), &e, path);
    for (int i = 0; i < n; i++)
        free(item[i].t.p);
    free(item);
    xd_component_close(&p);
    free(path);
    free(folder);
    free(side);
}

void fill_model(const char *from, const char *to, xd_dtype type)
{
    static const struct {
        const char *name;
        xd_kind     kind;
    } parts[] = {
        { "text_encoder", XD_KIND_TEXT },
        { "text_encoder_2", XD_KIND_TEXT },
        { "text_encoder_3", XD_KIND_TEXT },
        { "connectors", XD_KIND_TEXT },
        { "image_encoder", XD_KIND_TEXT },
        { "image_embedder", XD_KIND_TEXT },
        { "transformer", XD_KIND_DIT },
        { "transformer_2", XD_KIND_DIT },
        { "unet", XD_KIND_DIT },
        { "vae", XD_KIND_VAE },
        { "latent_upsampler", XD_KIND_UPSAMPLER },
        { "audio_vae", XD_KIND_AUDIO },
        { "vocoder", XD_KIND_AUDIO },
    };
    char *path = xd_model_index_path(from);
    if (!path)
        broken("name", from);
    xd_json *index = js_open(path);
    copy_folder(from, to, 1);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *a = join(from, parts[i].name), *b = join(to, parts[i].name);
        if (xd_file_is_dir(a) && !copy_folder(a, b, 0))
            fill_part(from, to, parts[i].name, parts[i].kind, index, type);
        free(a);
        free(b);
    }
    static const char *const sides[] = { "controlnet", "controlnet_2", "controlnet_3" };
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        char *a = join(from, sides[i]), *b = join(to, sides[i]);
        if (xd_file_is_dir(a) && !copy_folder(a, b, 0))
            fill_side(from, to, sides[i], type);
        free(a);
        free(b);
    }
    xd_json_free(&index);
    free(path);
}

/* ---- all models ----------------------------------------------------------------------------- */

/* The type in which golden.json wants weights that are missing; NULL: none are. */
static char *wanted(const char *folder)
{
    char    *path = join(folder, "golden.json"), *type = NULL;
    xd_json *j = xd_file_exists(path) ? js_open(path) : NULL;
    if (j && xd_json_text(xd_json_get(j, "weights")) && strcmp(js_text(j, "model"), ".") == 0 &&
        !(type = strdup(js_text(j, "weights"))))
        broken("read", path);
    xd_json_free(&j);
    free(path);
    return type;
}

void fill_all(const char *from, const char *to, const char *notes, const char *target)
{
    DIR *d = opendir(from);
    if (!d)
        broken("read", from);
    if (!(read_files = fopen(notes, "w")))
        broken("write", notes);
    fprintf(read_files, "%s:", target);
    copy_folder(from, to, 0);
    for (struct dirent *at; (at = readdir(d));) {
        char *a = join(from, at->d_name), *b = join(to, at->d_name), *type;
        if (at->d_name[0] != '.' && xd_file_is_dir(a)) {
            if ((type = wanted(a)))
                fill_model(a, b, fill_type(type));
            else
                copy_folder(a, b, 1);
            free(type);
        }
        free(a);
        free(b);
    }
    closedir(d);
    fprintf(read_files, "\n");
    FILE *f = fopen(target, "w");
    if (fclose(read_files) != 0 || !f || fclose(f) != 0)
        broken("write", target);
    read_files = NULL;
}
