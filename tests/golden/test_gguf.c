/* test_gguf.c - golden models read from GGUF files generate the same bits as from safetensors files
 * with the numbers that the blocks stand for; those of files with integers of ComfyUI, too.
 *
 *     test_gguf DIR
 *
 * That these numbers are those of the package gguf is what unit_blocks and cli_gguf are about. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../unit/scratch.h"
#include "base/file.h"
#include "base/log.h"
#include "gguf_box.h"
#include "golden.h"

static const char *golden;      /* tests/golden */
static char        heard[8192]; /* warnings */

static void hear(void *cookie, int level, const char *line)
{
    (void)cookie;
    if (level == XD_LOG_WARN)
        snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%s\n", line);
}

/* The path of a model's folder; good until the 16th call after. */
static const char *folder_of(const char *model, const char *name)
{
    static char path[16][1024];
    static int  at;
    at = (at + 1) % 16;
    snprintf(path[at], sizeof path[at], "%s/%s/%s", golden, model, name);
    return path[at];
}

/* ---- requests ----------------------------------------------------------------------------- */

typedef struct sums {
    uint64_t h;
    int      n;
} sums;

static void listen(void *cookie, const char *name, int step, int nd, const int64_t *d,
                   const float *data)
{
    sums  *s = cookie;
    size_t n = sizeof *data;
    (void)name, (void)step;
    for (int i = 0; i < nd; i++)
        n *= (size_t)d[i];
    for (size_t i = 0; i < n; i++)
        s->h = (s->h ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    s->n++;
}

typedef struct trial { /* a model with files, and how it is computed */
    const char *model, *slot, *slot2;
    const char *dtype, *weights;
    xd_lora    *loras;
    int         nloras;
} trial;

static sums generate(const trial *t, const char *file, const char *file2)
{
    static const char *const prompts[] = { "a red circle" };
    xd_component_file        files[2] = { { t->slot, file }, { t->slot2, file2 } };
    xd_open_args             a = { .size = sizeof a,
                                   .model = folder_of(t->model, ""),
                                   .dtype = t->dtype,
                                   .weights_dtype = t->weights,
                                   .text_weights_dtype = t->weights,
                                   .device = "cpu",
                                   .threads = 2,
                                   .loras = t->loras,
                                   .nloras = t->nloras,
                                   .log = hear,
                                   .log_level = XD_LOG_WARN,
                                   .files = files,
                                   .nfiles = !file   ? 0
                                             : file2 ? 2
                                                     : 1 };
    sums                     s = { 0 };
    xd_engine               *g = NULL;
    xd_result               *r = NULL;
    xd_request               q;
    xd_err                   e = { 0 };
    heard[0] = 0;
    xd_request_init(&q);
    q.prompts = prompts;
    q.nprompts = 1;
    q.width = q.height = 64;
    q.num_frames = strncmp(t->model, "wan", 3) == 0 || strcmp(t->model, "vace") == 0 ||
                           strcmp(t->model, "skyreels") == 0
                       ? 5
                       : 0;
    q.images.image = strstr(t->model, "-i2v") ? folder_of(t->model, "image.png") : NULL;
    q.images.control_image = strstr(t->model, "-control") ? folder_of(t->model, "control.png")
                                                          : NULL;
    q.num_inference_steps = 2;
    q.seed = 3;
    q.callbacks.on_tensor = listen;
    q.callbacks.cookie = &s;
    xd_status st = xd_open(&g, &a, &e);
    if (st == XD_OK)
        st = xd_generate(g, &q, &r, &e);
    tap(st == XD_OK, "%s runs with %s%s%s", t->model, file ? strrchr(file, '/') + 1 : "its files",
        st == XD_OK ? "" : ": ", e.msg);
    xd_result_free(&r);
    xd_close(&g);
    return s;
}

static void compare(const trial *t, const char *gguf, const char *plain, const char *gguf2,
                    const char *plain2)
{
    sums want = generate(t, plain, plain2), got = generate(t, gguf, gguf2);
    tap(want.n > 5 && want.n == got.n && want.h == got.h,
        "%s %s, weights %s: blocks give the bits of their numbers (%d and %d tensors, %016" PRIx64
        " and %016" PRIx64 ")",
        t->model, t->dtype, t->weights ? t->weights : "as computed", want.n, got.n, want.h, got.h);
    tap(!strstr(heard, "not used"), "%s: every tensor is used %s", t->model, heard);
}

/* ---- files -------------------------------------------------------------------------------- */

/* Writes NAME.gguf with blocks and NAME.safetensors with their numbers. */
static void write_both(box *b, const char *name, gguf_how how, int least)
{
    box  plain = { 0 };
    char file[64];
    int  n = box_blocks(b, &plain);
    tap(n >= least, "%s: %d tensors are blocks", name, n);
    snprintf(file, sizeof file, "%s.gguf", name);
    box_write_gguf(b, in_scratch(file), how);
    snprintf(file, sizeof file, "%s.safetensors", name);
    box_write(&plain, in_scratch(file));
    box_free(b);
    box_free(&plain);
}

static void check_dit(const char *model, const char *dtype, const char *arch,
                      void (*fill)(box *, const char *, const char *), const char *prefix)
{
    static const char *const weights[] = { NULL, "int8", "fp8" };
    box                      b = { 0 };
    trial                    t = { .model = model, .slot = "transformer", .dtype = dtype };
    const char              *folder =
        folder_of(model, xd_file_is_dir(folder_of(model, "unet")) ? "unet" : "transformer");
    if (fill)
        fill(&b, folder, prefix);
    else
        box_folder(&b, folder, "diffusion_pytorch_model");
    /* few widths of some tiny models are whole blocks */
    int least = strcmp(model, "qwen21") == 0                           ? 1
                : strstr(model, "sana") || strcmp(model, "krea2") == 0 ? 3
                                                                       : 12;
    write_both(&b, "dit", (gguf_how){ .arch = arch, .ggml = 1 }, least);
    for (int i = 0; i < 3; i++) {
        t.weights = weights[i];
        compare(&t, in_scratch("dit.gguf"), in_scratch("dit.safetensors"), NULL, NULL);
    }
    scratch_clean();
}

/* LoRA of either layout on top of blocks, which the parts of fused matrices have in several
 * types; and the file in shards. */
static void check_lora(const char *dtype)
{
    xd_lora lora[2] = { { folder_of("flux-lora", "peft.safetensors"), 0.7 },
                        { folder_of("flux-lora", "kohya.safetensors"), -0.4 } };
    trial   t = { .model = "flux", .slot = "transformer", .dtype = dtype };
    box     b = { 0 };
    box_flux(&b, folder_of("flux", "transformer"), "model.diffusion_model.");
    write_both(&b, "dit-00001-of-00001", (gguf_how){ .arch = "flux", .shards = 3 }, 12);
    const char *gguf = in_scratch("dit-00002-of-00003.gguf"),
               *plain = in_scratch("dit-00001-of-00001.safetensors");
    sums before = generate(&t, plain, NULL);
    compare(&t, gguf, plain, NULL, NULL);
    t.loras = lora, t.nloras = 2;
    compare(&t, gguf, plain, NULL, NULL);
    sums after = generate(&t, plain, NULL);
    tap(before.h != after.h, "LoRA changes something");
    t.weights = "int8";
    compare(&t, gguf, plain, NULL, NULL);
    scratch_clean();
}

static void check_t5(const char *model, const char *dtype, const char *folder)
{
    box   b = { 0 };
    trial t = { .model = model, .slot = "t5xxl", .dtype = dtype };
    box   plain = { 0 };
    box_t5(&b, folder_of(model, folder), "");
    int n = box_blocks(&b, &plain);
    tap(n >= 8, "%s: %d tensors of its T5 are blocks", model, n);
    box_t5_names(&b);
    box_add(&b, "dec.blk.0.attn_q.weight", XD_F32, 2, (int64_t[]){ 4, 4 }); /* not read */
    box_write_gguf(&b, in_scratch("t5.gguf"), (gguf_how){ .arch = "t5" });
    box_write(&plain, in_scratch("t5.safetensors"));
    box_free(&b);
    box_free(&plain);
    compare(&t, in_scratch("t5.gguf"), in_scratch("t5.safetensors"), NULL, NULL);
    t.weights = "int8";
    compare(&t, in_scratch("t5.gguf"), in_scratch("t5.safetensors"), NULL, NULL);
    scratch_clean();
}

/* The text encoder is a language model; `how` as its file tells it. */
static void check_lm(const char *model, const char *dtype, gguf_how how, int pairs)
{
    box   b = { 0 }, plain = { 0 };
    trial t = { .model = model, .slot = "llm", .dtype = dtype };
    box_lm(&b, folder_of(model, "text_encoder"), "", "model.");
    box_remove(&b, "visual.");
    box_remove(&b, "model.visual.");
    box_remove(&b, "vision_tower.");
    box_remove(&b, "multi_modal_projector.");
    if (!pairs) {
        int n = box_blocks(&b, &plain);
        tap(n >= 8, "%s: %d tensors of its language model are blocks", model, n);
    } else { /* rows in pairs are blocks of the same rows: as they are */
        for (int i = 0; i < b.n; i++) {
            box_add(&plain, b.item[i].name, b.item[i].t.type, b.item[i].t.nd, b.item[i].t.d);
            memcpy(plain.item[i].t.p, b.item[i].t.p, xd_bytes(b.item[i].t));
        }
        box_pairs(&b, how.heads, how.kv);
    }
    box_lm_names(&b);
    box_write_gguf(&b, in_scratch("lm.gguf"), how);
    box_write(&plain, in_scratch("lm.safetensors"));
    box_free(&b);
    box_free(&plain);
    compare(&t, in_scratch("lm.gguf"), in_scratch("lm.safetensors"), NULL, NULL);
    scratch_clean();
}

/* ---- integers ----------------------------------------------------------------------------- */

/* NAME-int8.safetensors holds matrices of b with `in` in their names as integers of ComfyUI,
 * NAME-plain.safetensors the numbers that they mean. */
static void write_int8(box *b, const char *name, const char *in, int group)
{
    box   plain = { 0 };
    char *meta = NULL, file[64];
    int   n = box_int8(b, &plain, in, group, &meta);
    tap(n >= 8, "%s: %d matrices are integers", name, n);
    snprintf(file, sizeof file, "%s-int8.safetensors", name);
    box_write_meta(b, in_scratch(file),
                   (const char *const[]){ "_quantization_metadata", meta, NULL });
    snprintf(file, sizeof file, "%s-plain.safetensors", name);
    box_write(&plain, in_scratch(file));
    box_free(b);
    box_free(&plain);
    free(meta);
}

/* In every type of weights, with LoRA, too; names, fused matrices and halves of the original. */
static void check_int8(const char *dtype, int group)
{
    static const char *const weights[] = { NULL, "int8", "fp8" };
    xd_lora                  lora = { folder_of("flux-lora", "peft.safetensors"), 0.7 };
    trial                    t = {
        .model = "flux", .slot = "transformer", .slot2 = "t5xxl", .dtype = dtype, .loras = &lora
    };
    box b = { 0 };
    box_flux(&b, folder_of("flux", "transformer"), "model.diffusion_model.");
    write_int8(&b, "dit", "", group);
    box_t5(&b, folder_of("flux", "text_encoder_2"), "");
    write_int8(&b, "t5", "SelfAttention", 0);
    const char *int8 = in_scratch("dit-int8.safetensors"),
               *plain = in_scratch("dit-plain.safetensors"),
               *t5 = in_scratch("t5-int8.safetensors"),
               *t5_plain = in_scratch("t5-plain.safetensors");
    for (int k = 0; k < 6; k++) {
        t.weights = weights[k % 3];
        t.nloras = k >= 3;
        if (!group || k % 3 == 0) /* integers of rotated inputs are others */
            compare(&t, int8, plain, t5, t5_plain);
    }
    t.nloras = 0;
    t.weights = "auto";
    sums choice = generate(&t, int8, t5);
    t.weights = "int8";
    sums want = generate(&t, int8, t5);
    tap(choice.h == want.h && want.n > 5, "auto is int8 where the file has it");
    scratch_clean();
}

/* ---- what is refused ---------------------------------------------------------------------- */

static void refused(const char *model, const char *slot, const char *file, xd_status code,
                    const char *words)
{
    xd_component_file one = { slot, in_scratch(file) };
    xd_open_args      a = { .size = sizeof a,
                            .model = folder_of(model, ""),
                            .dtype = "f32",
                            .device = "cpu",
                            .threads = 2,
                            .log = hear,
                            .log_level = XD_LOG_WARN,
                            .files = &one,
                            .nfiles = 1 };
    xd_engine        *g = NULL;
    xd_err            e = { 0 };
    xd_status         s = xd_open(&g, &a, &e);
    tap(s == code && strstr(e.msg, words), "%s as the %s of %s: %s", file, slot, model, e.msg);
    xd_close(&g);
}

static void check_refusals(void)
{
    box b = { 0 };
    box_sd3(&b, folder_of("sd35", "transformer"), "");
    box_write_gguf(&b, in_scratch("sd3.gguf"), (gguf_how){ .arch = "sd3" });
    refused("flux", "transformer", "sd3.gguf", XD_EINVAL, "(its general.architecture is sd3)");
    box_free(&b);
    box_add(&b, "some.weight", XD_F32, 2, (int64_t[]){ 4, 4 });
    box_write_gguf(&b, in_scratch("other.gguf"), (gguf_how){ .arch = "hyvid" });
    refused("flux", "transformer", "other.gguf", XD_EUNSUPPORTED,
            "(its general.architecture is hyvid); its 1 tensors begin with some.weight");
    box_free(&b);
    box_lm(&b, folder_of("zimage", "text_encoder"), "", "model.");
    box_lm_names(&b);
    box_write_gguf(&b, in_scratch("llama.gguf"), (gguf_how){ .arch = "llama" });
    refused("zimage", "llm", "llama.gguf", XD_EINVAL, "holds a Llama or Mistral of llama.cpp");
    box_write_gguf(&b, in_scratch("gemma.gguf"), (gguf_how){ .arch = "gemma3" });
    refused("zimage", "llm", "gemma.gguf", XD_EUNSUPPORTED, "is gemma3");
    box_free(&b);
    box_lm(&b, folder_of("qwen-edit", "text_encoder"), "", "model.");
    box_remove(&b, "visual.");
    box_lm_names(&b);
    box_write_gguf(&b, in_scratch("blind.gguf"), (gguf_how){ .arch = "qwen2vl" });
    refused("qwen-edit", "llm", "blind.gguf", XD_EUNSUPPORTED, "without its vision tower");
    box_free(&b);
    box_lm(&b, folder_of("flux2", "text_encoder"), "", "model.");
    box_lm_names(&b);
    box_write_gguf(&b, in_scratch("heads.gguf"), (gguf_how){ .arch = "llama" });
    box_free(&b);
    refused("flux2", "llm", "heads.gguf", XD_EFORMAT, "0 heads (llama.attention.head_count)");
    scratch_clean();
}

/* Copies a folder of a model, but for weights where `bare`. */
static void copy_folder(const char *model, const char *name, int bare)
{
    DIR *d = opendir(folder_of(model, name));
    mkdir(in_scratch(name), 0700);
    for (struct dirent *f; d && (f = readdir(d));) {
        char   from[2048], to[512], *data;
        size_t n;
        xd_err e = { 0 };
        snprintf(from, sizeof from, "%s/%s", folder_of(model, name), f->d_name);
        snprintf(to, sizeof to, "%.100s/%.255s", name, f->d_name);
        if (xd_file_is_dir(from) || (bare && strstr(f->d_name, ".safetensors")))
            continue;
        must(xd_file_read(from, (size_t)64 << 20, &data, &n, &e), &e, from);
        scratch_put(to, data, n);
        free(data);
    }
    if (d)
        closedir(d);
}

/* A model whose transformer and T5 are the only GGUF files of their folders. */
static void check_folder(const char *dtype)
{
    static const char *const folders[] = { "",    "scheduler",    "tokenizer",
                                           "vae", "text_encoder", "transformer" };
    box                      b[2] = { { .n = 0 } }, plain[2] = { { .n = 0 } };
    trial t = { .model = "alpha", .slot = "transformer", .slot2 = "t5xxl", .dtype = dtype };
    box_folder(&b[0], folder_of("alpha", "transformer"), "diffusion_pytorch_model");
    box_t5(&b[1], folder_of("alpha", "text_encoder"), "");
    for (int i = 0; i < 2; i++)
        tap(box_blocks(&b[i], &plain[i]) > 8, "tensors are blocks");
    box_t5_names(&b[1]);
    box_write(&plain[0], in_scratch("dit.safetensors"));
    box_write(&plain[1], in_scratch("t5.safetensors"));
    sums want = generate(&t, in_scratch("dit.safetensors"), in_scratch("t5.safetensors"));
    for (int i = 0; i < 6; i++)
        copy_folder("alpha", folders[i], i >= 4);
    box_write_gguf(&b[0], in_scratch("transformer/x-Q4_K.gguf"), (gguf_how){ .arch = NULL });
    box_write_gguf(&b[1], in_scratch("text_encoder/t5-00001-of-00002.gguf"),
                   (gguf_how){ .arch = "t5", .shards = 2 });
    for (int i = 0; i < 2; i++) {
        box_free(&b[i]);
        box_free(&plain[i]);
    }
    golden = scratch;
    t.model = "";
    sums got = generate(&t, NULL, NULL);
    tap(want.n > 5 && want.n == got.n && want.h == got.h,
        "GGUF files in folders give the bits of "
        "their numbers (%d and %d tensors)",
        want.n, got.n);
    tap(!strstr(heard, "not used"), "every tensor of folders is used %s", heard);
    scratch_clean();
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    golden = argv[1];
    if (tap_skip_isa())
        return 0;
    if (scratch_open() != 0) {
        printf("Bail out! no scratch directory\n");
        return 1;
    }
    const char *dtype = tap_only_bf16() ? "bf16" : "f32";
    check_dit("flux", dtype, "flux", box_flux, "");
    check_dit("sd35", dtype, "sd3", box_sd3, "model.diffusion_model.");
    check_dit("chroma", dtype, "chroma", box_flux, "");
    check_dit("auraflow", dtype, "auraflow", box_auraflow, "");
    check_dit("flux2-klein", dtype, "flux2", box_flux2, "");
    check_dit("zimage", dtype, "lumina2", box_zimage, "model.diffusion_model.");
    check_dit("lumina2", dtype, "lumina2", box_lumina2, "");
    check_dit("krea2", dtype, "krea2", box_krea2, "");
    check_dit("qwen21", dtype, "qwen_image21", box_qwen21, "");
    check_dit("wan", dtype, "wan", box_wan, "");
    check_dit("ltx", dtype, "ltxv", box_ltx, "");
    check_dit("hunyuanvideo", dtype, "hyvid", box_hunyuanvideo, "");
    check_dit("hunyuanvideo-i2v", dtype, "hyvid", box_hunyuanvideo, "");
    check_dit("hunyuanvideo15", dtype, "hyvid", box_hunyuanvideo15, "");
    check_dit("hunyuanvideo15-i2v", dtype, "hyvid", box_hunyuanvideo15, "");
    check_dit("mochi", dtype, "mochi", box_mochi, "");
    check_dit("skyreels", dtype, "wan", box_wan, "");
    check_dit("vace", dtype, "wan", box_wan, "");
    check_dit("flux-control", dtype, "flux", box_flux, "");
    check_dit("sana", dtype, "sana", NULL, NULL);
    check_dit("sana-video", dtype, "sana", NULL, NULL);
    check_dit("latte", dtype, "pig", NULL, NULL);
    check_dit("cog2b", dtype, "cogvideox", NULL, NULL);
    check_dit("qwen", dtype, "qwen_image", NULL, NULL);
    check_dit("sdxl", dtype, "sdxl", box_unet, "");
    check_dit("sd", dtype, "sd1", box_unet, "model.diffusion_model.");
    check_dit("alpha", dtype, "pig", NULL, NULL);
    check_lora(dtype);
    check_t5("flux", dtype, "text_encoder_2");
    check_t5("wan", dtype, "text_encoder");
    check_lm("zimage", dtype, (gguf_how){ .arch = "qwen3" }, 0);
    check_lm("qwen", dtype, (gguf_how){ .arch = "qwen2vl" }, 0);
    check_lm("flux2", dtype, (gguf_how){ .arch = "llama", .heads = 4, .kv = 2 }, 1);
    check_int8(dtype, 0);
    check_int8(dtype, 4);
    check_refusals();
    check_folder(dtype); /* after it the models are not found */
    scratch_close();
    return tap_end();
}
