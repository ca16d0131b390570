/* test_single.c - golden models read from single files generate the same bits as from their
 * folders.
 *
 *     test_single DIR             the test
 *     test_single DIR MODEL OUT   writes MODEL's files to the directory OUT, for other tests
 *
 * The files are made at test time (rename.h). The model that they are read with has all configs,
 * tokenizers and the scheduler, but no weights. What a stage hands on is compared bit by bit, in
 * bf16 where XDIT_BF16=emulate asks for it. */
#define _XOPEN_SOURCE 700       /* mkdtemp, P_tmpdir */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../unit/scratch.h"
#include "base/file.h"
#include "base/log.h"
#include "golden.h"
#include "rename.h"

enum { FILE_MAX = 64 << 20 };

static const char *golden;      /* tests/golden */
static char        heard[8192]; /* warnings */

static void hear(void *cookie, int level, const char *line)
{
    (void)cookie;
    if (level == XD_LOG_WARN)
        snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%s\n", line);
}

/* The path of a model's folder; good until the 32nd call after. */
static const char *folder_of(const char *model, const char *name)
{
    static char path[32][1024];
    static int  at;
    at = (at + 1) % 32;
    snprintf(path[at], sizeof path[at], "%s/%s/%s", golden, model, name);
    return path[at];
}

/* ---- a model without weights ---------------------------------------------------------------- */

static void copy_file(const char *from, const char *to)
{
    char  *data;
    size_t n;
    xd_err e = { 0 };
    must(xd_file_read(from, FILE_MAX, &data, &n, &e), &e, from);
    scratch_put(to, data, n);
    free(data);
}

/* MODEL's folders in the scratch directory, as "NAME.FOLDER", with everything but weights. */
static void strip(const char *model)
{
    static const char *const folders[] = {
        "",          "scheduler",   "text_encoder", "text_encoder_2", "text_encoder_3",
        "tokenizer", "tokenizer_2", "tokenizer_3",  "transformer",    "vae",
        "unet"
    };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char from[1500], to[400];
        DIR *d = opendir(folder_of(model, folders[i]));
        if (d)
            mkdir(in_scratch(folders[i]), 0700);
        for (struct dirent *f; d && (f = readdir(d));) {
            snprintf(from, sizeof from, "%s/%s", folder_of(model, folders[i]), f->d_name);
            snprintf(to, sizeof to, "%.100s/%.255s", folders[i], f->d_name);
            if (!xd_file_is_dir(from) && !strstr(f->d_name, ".safetensors"))
                copy_file(from, to);
        }
        if (d)
            closedir(d);
    }
}

/* ---- the files ------------------------------------------------------------------------------ */

static int has_folder(const char *model, const char *name)
{
    return xd_file_is_dir(folder_of(model, name));
}

static int is_sd3(const char *model)
{
    return strncmp(model, "sd3", 3) == 0;
}

static int is_auraflow(const char *model)
{
    return strcmp(model, "auraflow") == 0;
}

static void put_transformer(box *b, const char *model, const char *prefix)
{
    if (is_auraflow(model))
        box_auraflow(b, folder_of(model, "transformer"), prefix);
    else if (is_sd3(model))
        box_sd3(b, folder_of(model, "transformer"), prefix);
    else
        box_flux(b, folder_of(model, "transformer"), prefix);
}

static void write_one(box *b, const char *dir, const char *name)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    box_write(b, path);
    box_free(b);
}

/* How many CLIP encoders a model has; its T5 follows them. */
static int clips_of(const char *model)
{
    return has_folder(model, "text_encoder_3") ? 2 : has_folder(model, "text_encoder_2");
}

static const char *t5_of(const char *model)
{
    static const char *const folders[] = { "text_encoder", "text_encoder_2", "text_encoder_3" };
    return folder_of(model, folders[clips_of(model)]);
}

/* As published: each component in a file of its own. */
static void write_files(const char *model, const char *dir, const char *prefix)
{
    box b = { 0 };
    int clips = clips_of(model);
    put_transformer(&b, model, prefix);
    write_one(&b, dir, "model.safetensors");
    box_vae(&b, folder_of(model, "vae"), "");
    write_one(&b, dir, "ae.safetensors");
    if (clips > 0)
        box_clip(&b, folder_of(model, "text_encoder"), "", 1);
    if (clips > 0)
        write_one(&b, dir, "clip_l.safetensors");
    if (clips > 1)
        box_clip(&b, folder_of(model, "text_encoder_2"), "", 0);
    if (clips > 1)
        write_one(&b, dir, "clip_g.safetensors");
    box_t5(&b, t5_of(model), "");
    write_one(&b, dir, "t5xxl.safetensors");
}

/* Everything in one file, each component behind its prefix. */
static void write_all(const char *model, const char *dir)
{
    box b = { 0 };
    int clips = clips_of(model), aura = is_auraflow(model);
    put_transformer(&b, model, aura ? "model." : "model.diffusion_model.");
    box_vae(&b, folder_of(model, "vae"), aura ? "vae." : "first_stage_model.");
    if (clips > 0)
        box_clip(&b, folder_of(model, "text_encoder"), "text_encoders.clip_l.transformer.", 0);
    if (clips > 1)
        box_clip(&b, folder_of(model, "text_encoder_2"), "text_encoders.clip_g.transformer.", 1);
    box_t5(&b, t5_of(model),
           aura ? "text_encoders.pile_t5xl.transformer." : "text_encoders.t5xxl.transformer.");
    write_one(&b, dir, "all.safetensors");
}

/* ---- what a request hands on ---------------------------------------------------------------- */

typedef struct sums {
    uint64_t h;
    int      n;
} sums;

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void listen(void *cookie, const char *name, int step, int nd, const int64_t *d,
                   const float *data)
{
    sums  *s = cookie;
    size_t n = 1;
    for (int i = 0; i < nd; i++)
        n *= (size_t)d[i];
    s->h = mix(mix(mix(s->h, name, strlen(name)), &step, sizeof step), data, n * sizeof *data);
    s->n++;
}

/* Who listens in place of the sums. */
static void  (*listen_to)(void *, const char *, int, int, const int64_t *, const float *);
static void *listener;

static const char *edited;     /* the image of models that need one */
static const char *inpainted;  /* the model whose image and mask are given, or NULL */
static const char *controlled; /* the model whose control image is given, or NULL */

static int two_controls; /* 1: two control images are given */

static sums generate(const xd_open_args *a, const char *what)
{
    static const char       *images[1];
    static const char *const prompts[] = { "a red circle" };
    sums                     s = { 0 };
    xd_engine               *g = NULL;
    xd_result               *r = NULL;
    xd_request               q;
    xd_err                   e = { 0 };
    xd_request_init(&q);
    q.prompts = prompts;
    q.nprompts = 1;
    q.width = q.height = 64;
    q.num_frames =
        strstr(a->model, "/wan") || strstr(a->model, "/vace") || strstr(a->model, "/skyreels") ? 5
        : strstr(a->model, "/ltx")                                                             ? 9
                                                                                               : 0;
    q.num_inference_steps = 2;
    q.images.image = inpainted ? folder_of(inpainted, "image.png") : edited;
    q.images.mask_image = inpainted ? folder_of(inpainted, "mask.png") : NULL;
    q.images.control_image = controlled ? folder_of(controlled, "control.png") : NULL;
    images[0] = q.images.control_image;
    q.images.more_control_images = images;
    q.images.nmore_control_images = two_controls;
    int own_size = strstr(a->model, "/ltx") || strstr(a->model, "/hunyuanvideo") ||
                   strstr(a->model, "/cog");
    q.output.max_area = edited && !own_size ? 64 * 64 : 0;
    q.seed = 3;
    q.callbacks.on_tensor = listen_to ? listen_to : listen;
    q.callbacks.cookie = listen_to ? listener : &s;
    xd_status st = xd_open(&g, a, &e);
    if (st == XD_OK)
        st = xd_generate(g, &q, &r, &e);
    tap(st == XD_OK, "%s runs%s%s", what, st == XD_OK ? "" : ": ", e.msg);
    const xd_image *m = st == XD_OK ? xd_result_image(r, 0) : NULL;
    if (m)
        s.h = mix(s.h, m->data, (size_t)(m->height * m->width * m->channels));
    s.n += m != NULL;
    xd_result_free(&r);
    xd_close(&g);
    return s;
}

static void same(const sums *a, const sums *b, const char *model, const char *dtype,
                 const char *what)
{
    tap(a->n > 5 && a->n == b->n && a->h == b->h,
        "%s %s: %s give the same bits (%d and %d tensors "
        "and images, %016" PRIx64 " and %016" PRIx64 ")",
        model, dtype, what, a->n, b->n, a->h, b->h);
}

static xd_component_file files[8]; /* of the arguments that were made last */

/* Another file, or none, for a component. */
static void put(xd_open_args *a, const char *component, const char *path)
{
    int n = 0;
    for (int i = 0; i < a->nfiles; i++)
        if (strcmp(files[i].component, component) != 0)
            files[n++] = files[i];
    if (path)
        files[n++] = (xd_component_file){ component, path };
    a->files = files;
    a->nfiles = n;
}

/* The control networks, of which the first may be NULL. */
static void put_sides(xd_open_args *a, const char *first, const char *second)
{
    a->nfiles = 0;
    a->files = files;
    if (first)
        files[a->nfiles++] = (xd_component_file){ "controlnet", first };
    files[a->nfiles++] = (xd_component_file){ "controlnet", second };
}

static void put_all(xd_open_args *a, int clips, const char *path)
{
    static const char *const names[] = { "transformer", "vae", "t5xxl", "clip_l", "clip_g" };
    for (int i = 0; i < 3 + clips; i++)
        put(a, names[i], path);
}

static xd_open_args arguments(const char *model, const char *dtype)
{
    heard[0] = 0;
    return (xd_open_args){ .size = sizeof(xd_open_args),
                           .model = model,
                           .dtype = dtype,
                           .device = "cpu",
                           .threads = 2,
                           .log = hear,
                           .log_level = XD_LOG_WARN };
}

static void check(const char *model, const char *dtype, const char *prefix)
{
    int          clips = clips_of(model);
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         want = generate(&a, model);
    strip(model);
    write_files(model, scratch, prefix);
    a = arguments(scratch, dtype);
    put(&a, "transformer", in_scratch("model.safetensors"));
    put(&a, "vae", in_scratch("ae.safetensors"));
    put(&a, "clip_l", clips > 0 ? in_scratch("clip_l.safetensors") : NULL);
    put(&a, "clip_g", clips > 1 ? in_scratch("clip_g.safetensors") : NULL);
    put(&a, "t5xxl", in_scratch("t5xxl.safetensors"));
    sums got = generate(&a, "from one file a component");
    same(&want, &got, model, dtype, "single files");
    tap(!heard[0], "%s %s: nothing is said of single files %s", model, dtype, heard);
    write_all(model, scratch);
    a = arguments(scratch, dtype);
    put_all(&a, clips, in_scratch("all.safetensors"));
    got = generate(&a, "from one file for all");
    same(&want, &got, model, dtype, "one file for all");
    tap(!heard[0], "%s %s: nothing is said of one file for all %s", model, dtype, heard);
    a = arguments(folder_of(model, ""), dtype);
    put(&a, "transformer", folder_of(model, "transformer/diffusion_pytorch_model.safetensors"));
    put(&a, "vae", in_scratch("ae.safetensors"));
    got = generate(&a, "from a file of diffusers and one that is not");
    same(&want, &got, model, dtype, "a file of diffusers and one that is not");
    scratch_clean();
}

/* A block of OpenCLIP behind those of the config, and its projection, which nothing reads. */
static void add_unread(box *b, const char *prefix)
{
    static const char *const names[] = { "transformer.resblocks.3.ln_1.weight",
                                         "transformer.resblocks.3.attn.in_proj_weight",
                                         "text_projection" };
    for (int i = 0; i < 3; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s", prefix, names[i]);
        box_add(b, name, XD_BF16, i ? 2 : 1, (int64_t[]){ 40, 40 });
    }
}

/* A checkpoint with all components of a pipeline of a U-Net; the other arguments are prefixes of
 * the text encoders. Without a second encoder, one with a prefix of OpenCLIP is OpenCLIP. */
static void check_checkpoint(const char *model, const char *dtype, const char *clip_l,
                             const char *clip_g)
{
    int          open = strstr(clip_l, ".model.") != NULL;
    box          b = { 0 };
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         want = generate(&a, model);
    strip(model);
    box_unet(&b, folder_of(model, "unet"), "model.diffusion_model.");
    box_vae(&b, folder_of(model, "vae"), "first_stage_model.");
    if (!open)
        box_clip(&b, folder_of(model, "text_encoder"), clip_l, 1);
    if (open || clip_g)
        box_open_clip(&b, folder_of(model, open ? "text_encoder" : "text_encoder_2"),
                      open ? clip_l : clip_g);
    if (open)
        add_unread(&b, clip_l);
    write_one(&b, scratch, "all.safetensors");
    a = arguments(scratch, dtype);
    put(&a, "transformer", in_scratch("all.safetensors"));
    put(&a, "vae", in_scratch("all.safetensors"));
    put(&a, "clip_l", in_scratch("all.safetensors"));
    put(&a, "clip_g", clip_g ? in_scratch("all.safetensors") : NULL);
    sums got = generate(&a, "from a checkpoint");
    same(&want, &got, model, dtype, "one file");
    tap(!heard[0], "%s %s: nothing is said of one file %s", model, dtype, heard);
    scratch_clean();
}

/* Those of Stable Diffusion XL, 1.5 and 2. */
static void check_checkpoints(const char *dtype)
{
    check_checkpoint("sdxl", dtype, "conditioner.embedders.0.transformer.",
                     "conditioner.embedders.1.model.");
    check_checkpoint("sd", dtype, "cond_stage_model.transformer.", NULL);
    check_checkpoint("sd2", dtype, "cond_stage_model.model.", NULL);
}

static void refused(const xd_open_args *a, const char *what, xd_status code, const char *words);
static void refused_file(const char *name, const char *what, xd_status code, const char *words);

/* Puts the files of a model whose text encoder is a language model: `first` stands before its
 * blocks' names. */
static void write_three(const char *model, const char *prefix, const char *first)
{
    box  b = { 0 };
    char name[64];
    if (strncmp(model, "flux2", 5) == 0) {
        box_flux2(&b, folder_of(model, "transformer"), prefix);
        write_one(&b, scratch, "model.safetensors");
        box_vae2(&b, folder_of(model, "vae"), "");
    } else { /* a norm that nothing uses is in published files */
        (strcmp(model, "zimage") == 0 ? box_zimage
                                      : box_lumina2)(&b, folder_of(model, "transformer"), prefix);
        snprintf(name, sizeof name, "%snorm_final.weight", prefix);
        box_add(&b, name, XD_BF16, 1, (int64_t[]){ 24 });
        write_one(&b, scratch, "model.safetensors");
        box_vae(&b, folder_of(model, "vae"), "");
    }
    write_one(&b, scratch, "ae.safetensors");
    box_lm(&b, folder_of(model, "text_encoder"), "", first);
    box_add(&b, "tekken_model", XD_U8, 1, (int64_t[]){ 9 });
    write_one(&b, scratch, "llm.safetensors");
}

/* Files of all components, with LoRA files that name modules of either layout. */
static void check_three(const char *model, const char *with, const char *dtype, const char *prefix,
                        const char *first)
{
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         want = { 0 }, got, plain = generate(&a, model);
    strip(model);
    write_three(model, prefix, first);
    xd_lora lora[2] = { { folder_of(with ? with : "", "peft.safetensors"), 0.7 },
                        { folder_of(with ? with : "", "kohya.safetensors"), -0.4 } };
    for (int i = 0; i < (with ? 2 : 1); i++) {
        a = arguments(folder_of(model, ""), dtype);
        a.loras = lora, a.nloras = i ? 2 : 0;
        want = i ? generate(&a, with) : plain;
        a.model = scratch;
        put(&a, "transformer", in_scratch("model.safetensors"));
        put(&a, "vae", in_scratch("ae.safetensors"));
        put(&a, "llm", in_scratch("llm.safetensors"));
        got = generate(&a, i ? "from three files, with LoRA" : "from three files");
        same(&want, &got, model, dtype, i ? "three files and two of LoRA" : "three files");
        tap(!heard[0], "%s %s: nothing is said of three files %s", model, dtype, heard);
    }
    tap(!with || plain.h != want.h, "%s %s: LoRA changes something", model, dtype);
    a = arguments(folder_of(model, ""), dtype);
    put(&a, "transformer", folder_of(model, "transformer/diffusion_pytorch_model.safetensors"));
    got = generate(&a, "from a file of diffusers");
    same(&plain, &got, model, dtype, "a file of diffusers");
    scratch_clean();
}

/* A video's transformer and UMT5, with LoRA files that name modules as the original does. ComfyUI's
 * files of UMT5 bring the tokenizer along. */
/* The transformer of a video from an image, and both layouts of the encoder of images, with LoRA of
 * layers that read it. */
static void check_wan_image(const char *dtype, const char *prefix)
{
    xd_lora      lora[2] = { { folder_of("wan-i2v-lora", "peft.safetensors"), 0.7 },
                             { folder_of("wan-i2v-lora", "kohya.safetensors"), -0.4 } };
    box          b = { 0 };
    xd_open_args a = arguments(folder_of("wan-i2v", ""), dtype);
    edited = folder_of("wan-i2v", "image.png");
    sums want, got, plain = generate(&a, "wan-i2v");
    box_wan(&b, folder_of("wan-i2v", "transformer"), prefix);
    write_one(&b, scratch, "model.safetensors");
    for (int i = 0; i < 2; i++) {
        box_clip_vision(&b, folder_of("wan-i2v", "image_encoder"), i);
        write_one(&b, scratch, "clip_vision_h.safetensors");
        a = arguments(folder_of("wan-i2v", ""), dtype);
        a.loras = lora, a.nloras = i ? 2 : 0;
        want = i ? generate(&a, "wan-i2v-lora") : plain;
        put(&a, "transformer", in_scratch("model.safetensors"));
        put(&a, "clip_vision", in_scratch("clip_vision_h.safetensors"));
        got = generate(&a, i ? "from two files, with LoRA" : "from two files");
        same(&want, &got, "wan-i2v", dtype, i ? "two files and two of LoRA" : "two files");
        tap(!heard[0], "wan-i2v %s: nothing is said of two files %s", dtype, heard);
    }
    tap(plain.h != want.h, "wan-i2v %s: LoRA changes something", dtype);
    edited = NULL;
    scratch_clean();
}

static void check_video(const char *model, const char *with, const char *dtype,
                        void (*put_dit)(box *, const char *, const char *), const char *prefix)
{
    xd_lora      lora[2] = { { folder_of(with, "peft.safetensors"), 0.7 },
                             { folder_of(with, "kohya.safetensors"), -0.4 } };
    box          b = { 0 };
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         want, got, plain = generate(&a, model);
    put_dit(&b, folder_of(model, "transformer"), prefix);
    write_one(&b, scratch, "model.safetensors");
    box_t5(&b, folder_of(model, "text_encoder"), "");
    box_add(&b, "spiece_model", XD_U8, 1, (int64_t[]){ 9 });
    write_one(&b, scratch, "umt5.safetensors");
    for (int i = 0; i < 2; i++) {
        a = arguments(folder_of(model, ""), dtype);
        a.loras = lora, a.nloras = i ? 2 : 0;
        want = i ? generate(&a, with) : plain;
        put(&a, "transformer", in_scratch("model.safetensors"));
        put(&a, "t5xxl", in_scratch("umt5.safetensors"));
        got = generate(&a, i ? "from two files, with LoRA" : "from two files");
        same(&want, &got, model, dtype, i ? "two files and two of LoRA" : "two files");
        tap(!heard[0], "%s %s: nothing is said of two files %s", model, dtype, heard);
    }
    tap(plain.h != want.h, "%s %s: LoRA changes something", model, dtype);
    a = arguments(folder_of(model, ""), dtype);
    put(&a, "transformer", folder_of(model, "transformer/diffusion_pytorch_model.safetensors"));
    got = generate(&a, "from a file of diffusers");
    same(&plain, &got, model, dtype, "a file of diffusers");
    scratch_clean();
}

/* A transformer and an autoencoder in one file; the video begins with an image. */
static void check_both(const char *model, const char *dtype, int timed)
{
    box          b = { 0 };
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    edited = folder_of("ltx-i2v", "image.png");
    sums got, plain = generate(&a, model);
    box_ltx(&b, folder_of(model, "transformer"), "model.diffusion_model.");
    box_ltx_vae(&b, folder_of(model, "vae"), "vae.", timed);
    write_one(&b, scratch, "all.safetensors");
    put(&a, "transformer", in_scratch("all.safetensors"));
    put(&a, "vae", in_scratch("all.safetensors"));
    got = generate(&a, "from one file");
    same(&plain, &got, model, dtype, "one file");
    tap(!heard[0], "%s %s: nothing is said of one file %s", model, dtype, heard);
    a = arguments(folder_of(model, ""), dtype);
    put(&a, "vae", folder_of(model, "vae/diffusion_pytorch_model.safetensors"));
    got = generate(&a, "from an autoencoder's file of diffusers");
    same(&plain, &got, model, dtype, "an autoencoder's file of diffusers");
    edited = NULL;
    scratch_clean();
}

/* The file of a transformer alone, with the names of diffusers. */
static void check_transformer(const char *model, const char *dtype)
{
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         got, plain = generate(&a, model);
    put(&a, "transformer", folder_of(model, "transformer/diffusion_pytorch_model.safetensors"));
    got = generate(&a, "from the file of a transformer");
    same(&plain, &got, model, dtype, "a transformer's file");
}

/* Files of the transformer and of a language model, with two LoRA files. */
static void check_lm_too(const char *model, const char *with, const char *dtype,
                         void (*fill)(box *, const char *, const char *))
{
    const char  *prefix = tap_only_bf16() ? "" : "model.diffusion_model.";
    const char  *first = tap_only_bf16() ? "model." : "model.language_model.";
    xd_lora      lora[2] = { { folder_of(with, "peft.safetensors"), 0.7 },
                             { folder_of(with, "kohya.safetensors"), -0.4 } };
    box          b = { 0 };
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         want, got, plain = generate(&a, model);
    fill(&b, folder_of(model, "transformer"), prefix);
    write_one(&b, scratch, "model.safetensors");
    box_lm(&b, folder_of(model, "text_encoder"), "", first);
    write_one(&b, scratch, "lm.safetensors");
    for (int i = 0; i < 2; i++) {
        a = arguments(folder_of(model, ""), dtype);
        a.loras = lora, a.nloras = i ? 2 : 0;
        want = i ? generate(&a, with) : plain;
        put(&a, "transformer", in_scratch("model.safetensors"));
        put(&a, "llm", in_scratch("lm.safetensors"));
        got = generate(&a, i ? "from two files, with LoRA" : "from two files");
        same(&want, &got, model, dtype, i ? "two files and two of LoRA" : "two files");
    }
    tap(plain.h != want.h, "%s %s: LoRA changes something", model, dtype);
    scratch_clean();
    check_transformer(model, dtype);
}

/* A component's file of the original's names, behind a prefix. */
static void check_original(const char *model, const char *dtype, const char *component,
                           void (*put_it)(box *, const char *, const char *), const char *prefix)
{
    box          b = { 0 };
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         got, plain = generate(&a, model);
    put_it(&b, folder_of(model, component), prefix);
    write_one(&b, scratch, "one.safetensors");
    put(&a, component, in_scratch("one.safetensors"));
    heard[0] = 0;
    got = generate(&a, "from a file of the original's names");
    same(&plain, &got, model, dtype, "a file of the original's names");
    tap(!heard[0], "%s %s: nothing is said of this file %s", model, dtype, heard);
    scratch_clean();
}

/* Files of transformers and autoencoders with the names of diffusers. */
static void check_components(const char *dtype)
{
    static const char *const models[] = { "cog2b",          "cog15-i2v",      "hunyuanvideo",
                                          "hunyuanvideo15", "mochi",          "sana",
                                          "sana-video",     "sana-video-720", "latte",
                                          "alpha",          "hunyuan",        "wan22",
                                          "skyreels-df" };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char  *m = models[i];
        xd_open_args a = arguments(folder_of(m, ""), dtype);
        edited = strstr(m, "-i2v") ? folder_of(m, "image.png") : NULL;
        sums got, plain = generate(&a, m);
        put(&a, "transformer", folder_of(m, "transformer/diffusion_pytorch_model.safetensors"));
        put(&a, "vae", folder_of(m, "vae/diffusion_pytorch_model.safetensors"));
        heard[0] = 0;
        got = generate(&a, "from files of diffusers");
        same(&plain, &got, m, dtype, "files of diffusers");
        tap(!heard[0], "%s %s: nothing is said of files of diffusers %s", m, dtype, heard);
        edited = NULL;
    }
}

/* Files of the transformer and of both encoders, with LoRA files that name modules of either
 * layout. */
static void check_hunyuan_video(const char *model, const char *with, const char *dtype,
                                const char *prefix)
{
    xd_lora      lora[2] = { { folder_of(with, "peft.safetensors"), 0.7 },
                             { folder_of(with, "kohya.safetensors"), -0.4 } };
    box          b = { 0 };
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         want, got, plain = generate(&a, model);
    box_hunyuanvideo(&b, folder_of(model, "transformer"), prefix);
    write_one(&b, scratch, "model.safetensors");
    box_lm(&b, folder_of(model, "text_encoder"), "", "model.");
    write_one(&b, scratch, "llm.safetensors");
    box_clip(&b, folder_of(model, "text_encoder_2"), "", 1);
    write_one(&b, scratch, "clip_l.safetensors");
    for (int i = 0; i < 2; i++) {
        a = arguments(folder_of(model, ""), dtype);
        a.loras = lora, a.nloras = i ? 2 : 0;
        want = i ? generate(&a, with) : plain;
        put(&a, "transformer", in_scratch("model.safetensors"));
        put(&a, "llm",
            edited ? folder_of(model, "text_encoder/model.safetensors")
                   : in_scratch("llm.safetensors"));
        put(&a, "clip_l", in_scratch("clip_l.safetensors"));
        got = generate(&a, i ? "from three files, with LoRA" : "from three files");
        same(&want, &got, model, dtype, i ? "three files and two of LoRA" : "three files");
        tap(!heard[0], "%s %s: nothing is said of three files %s", model, dtype, heard);
    }
    tap(plain.h != want.h, "%s %s: LoRA changes something", model, dtype);
    scratch_clean();
    check_transformer(model, dtype);
}

/* Two transformers, each in a file of the original's names. The second step is the other's. */
static void check_two(const char *dtype)
{
    xd_open_args a = arguments(folder_of("wan22", ""), dtype);
    sums         got, plain = generate(&a, "wan22");
    for (int i = 0; i < 2; i++) {
        const char *part = i ? "transformer_2" : "transformer", *file = i ? "2" : "1";
        box         b = { 0 };
        box_wan(&b, folder_of("wan22", part), "");
        write_one(&b, scratch, file);
        put(&a, part, in_scratch(file));
    }
    got = generate(&a, "from two files");
    same(&plain, &got, "wan22", dtype, "two files");
    scratch_clean();
}

/* A transformer whose files have the names of diffusers, and its language model. */
static void check_same_names(const char *model, const char *dtype, const char *first)
{
    box          b = { 0 };
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         got, plain = generate(&a, model);
    box_lm(&b, folder_of(model, "text_encoder"), "", first);
    write_one(&b, scratch, "llm.safetensors");
    a = arguments(folder_of(model, ""), dtype);
    put(&a, "transformer", folder_of(model, "transformer/diffusion_pytorch_model.safetensors"));
    put(&a, "llm", in_scratch("llm.safetensors"));
    got = generate(&a, "from two files of the names of diffusers");
    same(&plain, &got, model, dtype, "two files of the names of diffusers");
    scratch_clean();
}

/* The control stream of VACE, in a file of the original's names and in one of diffusers'. */
static void check_vace(const char *dtype)
{
    xd_lora      lora[2] = { { folder_of("vace-lora", "peft.safetensors"), 0.8 },
                             { folder_of("vace-lora", "kohya.safetensors"), -0.5 } };
    box          b = { 0 };
    xd_open_args a = arguments(folder_of("vace", ""), dtype);
    sums         want, got, plain = generate(&a, "vace");
    box_wan(&b, folder_of("vace", "transformer"), "model.diffusion_model.");
    write_one(&b, scratch, "model.safetensors");
    for (int i = 0; i < 2; i++) {
        a = arguments(folder_of("vace", ""), dtype);
        a.loras = lora, a.nloras = i ? 2 : 0;
        want = i ? generate(&a, "vace-lora") : plain;
        put(&a, "transformer", in_scratch("model.safetensors"));
        got = generate(&a, i ? "from a file, with LoRA" : "from a file");
        same(&want, &got, "vace", dtype, i ? "a file and two of LoRA" : "a file");
        tap(!heard[0], "vace %s: nothing is said of a file %s", dtype, heard);
    }
    tap(plain.h != want.h, "vace %s: LoRA changes something", dtype);
    scratch_clean();
    check_transformer("vace", dtype);
}

/* Everything in one file, as ComfyUI saves a checkpoint: the encoder behind its own name, without
 * the blocks and the norm that nothing reads. */
static void check_cut_encoder(const char *model, const char *dtype, const char *encoder)
{
    box          b = { 0 };
    char         block[96];
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         plain = generate(&a, model), got;
    strip(model);
    box_flux2(&b, folder_of(model, "transformer"), "model.diffusion_model.");
    box_vae2(&b, folder_of(model, "vae"), "vae.");
    box_lm(&b, folder_of(model, "text_encoder"), encoder, "model.");
    snprintf(block, sizeof block, "%smodel.norm.", encoder);
    box_remove(&b, block);
    snprintf(block, sizeof block, "%smodel.layers.30.", encoder);
    box_remove(&b, block);
    box_write(&b, in_scratch("all.safetensors"));
    a = arguments(scratch, dtype);
    put(&a, "transformer", in_scratch("all.safetensors"));
    put(&a, "vae", in_scratch("all.safetensors"));
    put(&a, "llm", in_scratch("all.safetensors"));
    got = generate(&a, "from one file with a cut encoder");
    same(&plain, &got, model, dtype, "a cut encoder");
    tap(!heard[0], "%s %s: nothing is said of a cut encoder %s", model, dtype, heard);
    snprintf(block, sizeof block, "%smodel.layers.29.", encoder);
    box_remove(&b, block);
    write_one(&b, scratch, "all.safetensors");
    refused(&a, "a block that is read is missing", XD_EFORMAT, "has 29 blocks");
    scratch_clean();
}

/* LoRA files name tensors as they like, whatever the weights' file calls them. */
/* Control networks in files of XLabs, without a config: one, one beside the transformer's original
 * file, and two of which one has the names of diffusers. */
static void check_sides(const char *dtype)
{
    static const char *const what[] = { "XLabs' control network", "and an original transformer",
                                        "and a second one" };
    const char              *model = "flux-controlnet-pixels", *diffusers[2];
    xd_open_args             a;
    box                      b = { 0 };
    diffusers[0] = folder_of(model, "controlnet");
    diffusers[1] = folder_of(model, "controlnet_2");
    controlled = model;
    box_flux(&b, diffusers[0], "");
    write_one(&b, scratch, "xlabs.safetensors");
    box_flux(&b, folder_of(model, "transformer"), "");
    write_one(&b, scratch, "model.safetensors");
    for (int i = 0; i < 3; i++) {
        two_controls = i == 2;
        a = arguments(folder_of(model, ""), dtype);
        put_sides(&a, i == 2 ? diffusers[1] : NULL, diffusers[0]);
        sums want = generate(&a, model);
        a = arguments(folder_of(model, ""), dtype);
        put_sides(&a, i == 2 ? diffusers[1] : NULL, in_scratch("xlabs.safetensors"));
        if (i == 1)
            files[a.nfiles++] =
                (xd_component_file){ "transformer", in_scratch("model.safetensors") };
        sums got = generate(&a, what[i]);
        same(&want, &got, model, dtype, what[i]);
        tap(!heard[0], "%s: nothing is said of %s %s", dtype, what[i], heard);
    }
    two_controls = 0;
    controlled = NULL;
    a = arguments(folder_of("flux-schnell", ""), dtype);
    put_sides(&a, NULL, in_scratch("xlabs.safetensors"));
    refused(&a, "XLabs' control network of other cells", XD_EFORMAT,
            "a control network reads cells of 8 x 8 pixels, but");
    refused_file("xlabs.safetensors", "XLabs' control network as a transformer", XD_EINVAL,
                 "holds a control network of XLabs for FLUX.1, which");
    scratch_clean();
}

static void check_lora(const char *model, const char *with, const char *dtype)
{
    xd_lora      lora[2] = { { folder_of(with, "peft.safetensors"), 0.7 },
                             { folder_of(with, "kohya.safetensors"), -0.4 } };
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    sums         plain = generate(&a, model);
    a.loras = lora;
    a.nloras = 2;
    sums want = generate(&a, with);
    write_all(model, scratch);
    put_all(&a, clips_of(model), in_scratch("all.safetensors"));
    sums got = generate(&a, "from one file for all, with LoRA");
    same(&want, &got, with, dtype, "one file for all and two of LoRA");
    tap(plain.h != want.h, "%s %s: LoRA changes something", with, dtype);
    scratch_clean();
}

/* ---- fp8 ------------------------------------------------------------------------------------ */

static void whole(box *b)
{
    box_flux(b, folder_of("flux", "transformer"), "");
}

static xd_open_args fp8_args(const char *dtype, const char *kept, const char *file, const char *t5)
{
    xd_open_args a = arguments(folder_of("flux", ""), dtype);
    put(&a, "transformer", in_scratch(file));
    put(&a, "t5xxl", in_scratch(t5));
    a.weights_dtype = kept;
    return a;
}

static sums fp8_generate(const char *dtype, const char *kept, const char *file, const char *t5)
{
    xd_open_args a = fp8_args(dtype, kept, file, t5);
    return generate(&a, file);
}

/* fp8.safetensors has matrices in fp8, plain.safetensors the numbers that they mean in f32; the
 * same of t5-fp8 and t5-plain. */
static void write_fp8(xd_dtype type)
{
    box b = { 0 }, plain = { 0 };
    whole(&b);
    int n = box_fp8(&b, &plain, "", type, 1000), at;
    box_add(&b, "scaled_fp8", type, 1, (int64_t[]){ 2 });
    write_one(&b, scratch, "fp8.safetensors");
    write_one(&plain, scratch, "plain.safetensors");
    box_t5(&b, folder_of("flux", "text_encoder_2"), "");
    at = box_fp8(&b, &plain, "", type, 1000);
    tap(n > 30 && at > 10, "%d matrices of the transformer and %d of T5 are in fp8", n, at);
    write_one(&b, scratch, "t5-fp8.safetensors");
    write_one(&plain, scratch, "t5-plain.safetensors");
}

/* Files in fp8 generate what the numbers that they mean generate. */
static void check_fp8(const char *dtype, xd_dtype type)
{
    static const char *const kept[] = { NULL, "int8" };
    const char              *name = type == XD_F8E4M3 ? "e4m3" : "e5m2";
    write_fp8(type);
    for (int k = 0; k < 2; k++) {
        sums want = fp8_generate(dtype, kept[k], "plain.safetensors", "t5-plain.safetensors");
        sums got = fp8_generate(dtype, kept[k], "fp8.safetensors", "t5-fp8.safetensors");
        same(&want, &got, name, k ? "int8" : dtype, "fp8 and what it means");
        tap(!heard[0], "%s: nothing is said of fp8 %s", name, heard);
    }
    xd_lora      lora = { folder_of("flux-lora", "peft.safetensors"), 0.7 };
    xd_open_args a = fp8_args(dtype, NULL, "plain.safetensors", "t5-plain.safetensors");
    a.loras = &lora;
    a.nloras = 1;
    sums want = generate(&a, "what fp8 means with LoRA");
    put(&a, "transformer", in_scratch("fp8.safetensors"));
    sums got = generate(&a, "fp8 with LoRA");
    same(&want, &got, name, dtype, "fp8 and what it means, with LoRA");
}

/* The same of a language model. */
static void check_fp8_lm(const char *model, const char *dtype)
{
    box b = { 0 }, plain = { 0 };
    box_lm(&b, folder_of(model, "text_encoder"), "", "model.");
    int n = box_fp8(&b, &plain, "layers.", XD_F8E4M3, 1000);
    write_one(&b, scratch, "llm.safetensors");
    write_one(&plain, scratch, "plain.safetensors");
    xd_open_args a = arguments(folder_of(model, ""), dtype);
    put(&a, "llm", in_scratch("plain.safetensors"));
    sums want = generate(&a, "a language model as fp8 means it");
    put(&a, "llm", in_scratch("llm.safetensors"));
    sums got = generate(&a, "a language model in fp8");
    same(&want, &got, model, dtype, "fp8 and what it means");
    tap(n > 10 && !heard[0], "%s: %d matrices in fp8, nothing is said %s", model, n, heard);
    scratch_clean();
}

typedef struct last {
    float   v[4096];
    int64_t n;
} last;

static void keep_latents(void *cookie, const char *name, int step, int nd, const int64_t *d,
                         const float *data)
{
    last *l = cookie;
    (void)step;
    if (strcmp(name, "latents") != 0)
        return;
    l->n = 1;
    for (int i = 0; i < nd; i++)
        l->n *= d[i];
    l->n = l->n < 4096 ? l->n : 4096;
    memcpy(l->v, data, (size_t)l->n * sizeof *data);
}

static last latents_of(const char *dtype, const char *kept, const char *file)
{
    xd_open_args a = fp8_args(dtype, kept, file, "t5-plain.safetensors");
    last         l = { .n = 0 };
    listen_to = keep_latents;
    listener = &l;
    generate(&a, file);
    listen_to = NULL;
    return l;
}

/* e4m3 that is kept is the same matrix, added up in another order; one that is quantized again
 * is not. */
static void check_kept(const char *dtype, double most)
{
    write_fp8(XD_F8E4M3);
    last   want = latents_of(dtype, NULL, "plain.safetensors"),
           got = latents_of(dtype, "fp8", "fp8.safetensors");
    last   again = latents_of(dtype, "fp8", "plain.safetensors");
    double gap = 0, far = 0, peak = 0;
    for (int64_t i = 0; i < want.n; i++) {
        gap = fmax(gap, fabs((double)(got.v[i] - want.v[i])));
        far = fmax(far, fabs((double)(again.v[i] - want.v[i])));
        peak = fmax(peak, fabs((double)want.v[i]));
    }
    tap(want.n > 100 && want.n == got.n && gap <= most * peak && gap > 0,
        "%s: latents with e4m3 as it is are "
        "within %.1e of %.0e",
        dtype, gap / peak, most);
    tap(far > 5 * most * peak, "%s: those of another e4m3 are not: %.1e", dtype, far / peak);
    sums fp8 = fp8_generate(dtype, "fp8", "fp8.safetensors", "t5-plain.safetensors");
    sums choice = fp8_generate(dtype, "auto", "fp8.safetensors", "t5-plain.safetensors");
    same(&fp8, &choice, "e4m3", dtype, "auto and fp8 where the file has it");
    fp8 = fp8_generate(dtype, NULL, "plain.safetensors", "t5-plain.safetensors");
    choice = fp8_generate(dtype, "auto", "plain.safetensors", "t5-plain.safetensors");
    same(&fp8, &choice, "f32", dtype, "auto and nothing where it has not");
}

/* ---- refusals ------------------------------------------------------------------------------- */

/* The model's files are in the scratch directory; `bad` is the transformer. */
static void refused(const xd_open_args *a, const char *what, xd_status code, const char *words)
{
    xd_engine *g = NULL;
    xd_err     e = { 0 };
    xd_status  s = xd_open(&g, a, &e);
    tap(s == code && strstr(e.msg, words), "refused: %s (%s)", what, e.msg);
    xd_close(&g);
}

static void refused_file(const char *name, const char *what, xd_status code, const char *words)
{
    xd_open_args a = arguments(folder_of("flux", ""), "f32");
    put(&a, "transformer", in_scratch(name));
    refused(&a, what, code, words);
}

static void refused_box(box *b, const char *what, xd_status code, const char *words)
{
    write_one(b, scratch, "bad.safetensors");
    refused_file("bad.safetensors", what, code, words);
}

static void check_blocks(void)
{
    box b = { 0 };
    whole(&b);
    box_remove(&b, "double_blocks.1.");
    refused_box(&b, "a double block is missing", XD_EFORMAT, "has 1 blocks double_blocks.*, but");
    whole(&b);
    box_add(&b, "single_blocks.3.modulation.lin.weight", XD_BF16, 2, (int64_t[]){ 72, 24 });
    refused_box(&b, "a single block is left over", XD_EFORMAT, "has 4 blocks single_blocks.*, but");
    whole(&b);
    box_remove(&b, "guidance_in.");
    refused_box(&b, "tensors are missing", XD_EFORMAT,
                "4 of 126 tensors do not fit the config: time_text_embed.guidance_embedder");
    whole(&b);
    box_remove(&b, "double_blocks.0.txt_attn.qkv.weight");
    box_add(&b, "double_blocks.0.txt_attn.qkv.weight", XD_BF16, 2, (int64_t[]){ 73, 24 });
    refused_box(&b, "rows that cannot be cut", XD_EFORMAT, "is 73x24, expected 24x24");
    whole(&b);
    box_remove(&b, "single_blocks.2.linear1.bias");
    box_add(&b, "single_blocks.2.linear1.bias", XD_BF16, 1, (int64_t[]){ 161 });
    refused_box(&b, "another width", XD_EFORMAT, "is 23, expected 24");
}

static void check_kinds(void)
{
    box b = { 0 };
    box_vae(&b, folder_of("flux", "vae"), "");
    refused_box(&b, "an autoencoder as the transformer", XD_EINVAL,
                "holds a KL autoencoder in its");
    box_sd3(&b, folder_of("sd3", "transformer"), "model.diffusion_model.");
    refused_box(&b, "another model's transformer", XD_EINVAL, "holds a Stable Diffusion 3");
    box_add(&b, "transformer.x_embedder.lora_A.weight", XD_F32, 2, (int64_t[]){ 4, 16 });
    refused_box(&b, "a LoRA", XD_EINVAL, "name it with --lora");
    box_add(&b, "lora_unet_double_blocks_0_img_mlp_0.lora_down.weight", XD_F32, 1,
            (int64_t[]){ 4 });
    refused_box(&b, "a LoRA of another trainer", XD_EINVAL, "name it with --lora");
    box_add(&b, "one", XD_F32, 1, (int64_t[]){ 4 });
    box_add(&b, "two", XD_F32, 1, (int64_t[]){ 4 });
    refused_box(&b, "no known layout", XD_EUNSUPPORTED, "its 2 tensors begin with one, two");
    refused_box(&b, "no tensors", XD_EUNSUPPORTED, "its 0 tensors begin with (none)");
    whole(&b);
    box_remove(&b, "img_in.weight");
    box_add(&b, "img_in.weight", XD_I8, 2, (int64_t[]){ 24, 16 });
    refused_box(&b, "int8", XD_EUNSUPPORTED, "img_in.weight has the type I8 and an unknown");
    for (int nan = 0; nan < 2; nan++) {
        whole(&b);
        box_remove(&b, "img_in.weight");
        box_add(&b, "img_in.weight", XD_F8E4M3, 2, (int64_t[]){ 24, 16 });
        box_add(&b, "img_in.weight_scale", XD_F32, 1, (int64_t[]){ nan ? 1 : 24 });
        if (nan)
            memset(b.item[b.n - 1].t.p, 0xff, sizeof(float));
        refused_box(&b, nan ? "a scale that is no number" : "a scale a row",
                    nan ? XD_EFORMAT : XD_EUNSUPPORTED,
                    nan ? "the scale img_in.weight_scale is"
                        : "img_in.weight_scale of an fp8 weight has 24 elements");
    }
    scratch_put("x.gguf", "GGUF\3\0\0\0\0\0\0\0", 12);
    refused_file("x.gguf", "GGUF", XD_EFORMAT, "GGUF");
    scratch_put("x.ckpt", "PK\3\4\0\0\0\0\0\0\0\0", 12);
    refused_file("x.ckpt", "a pickle", XD_EFORMAT, "is a PyTorch pickle");
    refused_file("none.safetensors", "no file", XD_EIO, "does not exist");
}

static void check_encoders(void)
{
    xd_open_args a = arguments(folder_of("flux", ""), "f32");
    put(&a, "clip_g", folder_of("flux", "text_encoder/model.safetensors"));
    refused(&a, "an encoder that the model has not", XD_EINVAL,
            "flux has no such text encoder (it has clip_l, t5xxl)");
    put(&a, "clip_g", NULL);
    put(&a, "t5xxl", folder_of("flux", "text_encoder/model.safetensors"));
    refused(&a, "CLIP as T5", XD_EINVAL, "holds a CLIP text encoder, which");
    a = arguments(folder_of("sd3", ""), "f32");
    put(&a, "clip_l", folder_of("sd3", "text_encoder_2/model.safetensors"));
    refused(&a, "CLIP-G as CLIP-L", XD_EFORMAT, "do not fit the config");
    put(&a, "clip_l", NULL);
    a.without = "t5xxl";
    put(&a, "t5xxl", folder_of("sd3", "text_encoder_3/model.safetensors"));
    refused(&a, "T5 and none", XD_EINVAL, "which is also to be omitted");
    strip("flux");
    a = arguments(scratch, "f32");
    refused(&a, "no weights at all", XD_EIO, "has no weights");
}

static void check_leftovers(void)
{
    box          b = { 0 };
    xd_open_args a = arguments(folder_of("flux", ""), "f32");
    xd_engine   *g = NULL;
    xd_err       e = { 0 };
    whole(&b);
    box_add(&b, "double_blocks.0.extra.weight", XD_F32, 1, (int64_t[]){ 4 });
    write_one(&b, scratch, "more.safetensors");
    put(&a, "transformer", in_scratch("more.safetensors"));
    tap(xd_open(&g, &a, &e) == XD_OK &&
            strstr(heard,
                   "more.safetensors: 1 tensors are not used: double_blocks.0.extra.weight\n"),
        "a tensor too many is told: %s%s", e.msg, heard);
    xd_close(&g);
}

static void check_videos(const char *dtype)
{
    check_video("wan", "wan-lora", dtype, box_wan, tap_only_bf16() ? "diffusion_model." : "");
    check_video("ltx", "ltx-lora", dtype, box_ltx, tap_only_bf16() ? "model.diffusion_model." : "");
    check_both("ltx", dtype, 0);
    check_both("ltx-cond", dtype, 1);
    check_video("mochi", "mochi-lora", dtype, box_mochi,
                tap_only_bf16() ? "model.diffusion_model." : "");
    check_video("skyreels-df", "skyreels-df-lora", dtype, box_wan, "");
    check_wan_image(dtype, tap_only_bf16() ? "" : "model.diffusion_model.");
    check_hunyuan_video("hunyuanvideo", "hunyuanvideo-lora", dtype,
                        tap_only_bf16() ? "" : "model.diffusion_model.");
    edited = folder_of("hunyuanvideo-i2v", "image.png");
    check_hunyuan_video("hunyuanvideo-i2v", "hunyuanvideo-i2v-lora", dtype, "");
    edited = NULL;
    check_two(dtype);
    check_vace(dtype);
    check_original("hunyuanvideo15", dtype, "transformer", box_hunyuanvideo15,
                   tap_only_bf16() ? "" : "model.diffusion_model.");
    check_original("hunyuanvideo15-five", dtype, "transformer", box_hunyuanvideo15_apart, "");
    check_original("hunyuanvideo15", dtype, "vae", box_hunyuanvideo15_vae, "");
    check_original("mochi", dtype, "vae", box_mochi_vae, tap_only_bf16() ? "decoder." : "");
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: %s DIR [MODEL OUT]\n", argv[0]);
        return 2;
    }
    golden = argv[1];
    if (argc == 4) {
        write_files(argv[2], argv[3], "");
        write_all(argv[2], argv[3]);
        return 0;
    }
    if (tap_skip_isa())
        return 0;
    if (scratch_open() != 0) {
        printf("Bail out! no scratch directory\n");
        return 1;
    }
    const char *dtype = tap_only_bf16() ? "bf16" : "f32";
    check("flux", dtype, "");
    check("flux-schnell", dtype, "model.diffusion_model.");
    check("sd3", dtype, "model.diffusion_model.");
    check("sd35", dtype, "");
    check("chroma", dtype, "model.diffusion_model.");
    check("auraflow", dtype, "");
    check_checkpoints(dtype);
    inpainted = "flux-fill";
    check(inpainted, dtype, tap_only_bf16() ? "" : "model.diffusion_model.");
    inpainted = NULL;
    controlled = "flux-control";
    check(controlled, dtype, "");
    controlled = NULL;
    check_three("zimage", "zimage-lora", dtype, tap_only_bf16() ? "" : "model.diffusion_model.",
                "model.");
    check_three("lumina2", "lumina2-lora", dtype, tap_only_bf16() ? "model.diffusion_model." : "",
                tap_only_bf16() ? "text_encoders.gemma2_2b.transformer.model." : "model.");
    check_three("flux2-klein", "flux2-lora", dtype, tap_only_bf16() ? "model.diffusion_model." : "",
                tap_only_bf16() ? "" : "model.language_model.");
    check_three("flux2", NULL, dtype, "", "model.");
    check_cut_encoder("flux2", dtype, "text_encoders.mistral3_24b.transformer.");
    check_lm_too("krea2", "krea2-lora", dtype, box_krea2);
    check_lm_too("qwen21", "qwen21-lora", dtype, box_qwen21);
    check_videos(dtype);
    check_same_names("qwen", dtype, "model.language_model.");
    check_components(dtype);
    edited = folder_of("qwen-edit", "image.png");
    check_same_names("qwen-edit-plus", dtype, "model.language_model.");
    check_same_names("qwen-edit-plus", dtype, "model.");
    edited = NULL;
    check_sides(dtype);
    check_lora("flux", "flux-lora", dtype);
    check_lora("sd35", "sd35-lora", dtype);
    check_fp8(dtype, XD_F8E4M3);
    check_fp8_lm("zimage", dtype);
    check_kept(dtype, tap_only_bf16() ? 4e-3 : 2e-5);
    if (!tap_only_bf16()) {
        check_fp8(dtype, XD_F8E5M2);
        check_blocks();
        check_kinds();
        check_encoders();
        check_leftovers();
    }
    scratch_close();
    return tap_end();
}
