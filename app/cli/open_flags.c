/* open_flags.c - defines and reads the options for opening a model: weights, types, device, memory,
 * ranks */
#include "cli/open_flags.h"

#include <stddef.h>
#include <string.h>

#include "cli/type_rows.h"
#include "families/help.h"
#include "launch/launch.h"

/* Components of a model whose weights the user may give as a separate file. For each component
 * there is an option with the file's name; the enumerators are indices of xd_open_flags.files. */
enum { TRANSFORMER, TRANSFORMER_2, VAE, CLIP_L, CLIP_G, T5XXL, LLM, CLIP_VISION };
static const char *const components[XD_OPEN_FILES] = {
    "transformer", "transformer_2", "vae",         "clip_l",          "clip_g",
    "t5xxl",       "llm",           "clip_vision", "latent_upsampler"
};

#define AT(field) offsetof(xd_open_flags, field)

static xd_option rows[] = {
    { "transformer", XD_OPT_TEXT, AT(files[TRANSFORMER]), 0, 0, NULL, "FILE",
      NULL }, /* xd_opt_explain sets this help text at run time */
    { "transformer_2", XD_OPT_TEXT, AT(files[TRANSFORMER_2]), 0, 0, NULL, "FILE",
      "weights of the second (low-noise) transformer, for models with two" },
    { "vae", XD_OPT_TEXT, AT(files[VAE]), 0, 0, NULL, "FILE",
      "weights of the VAE, such as ae.safetensors" },
    { "clip_l", XD_OPT_TEXT, AT(files[CLIP_L]), 0, 0, NULL, "FILE",
      "weights of the CLIP-L text encoder" },
    { "clip_g", XD_OPT_TEXT, AT(files[CLIP_G]), 0, 0, NULL, "FILE",
      "weights of the CLIP-G text encoder" },
    { "t5xxl", XD_OPT_TEXT, AT(files[T5XXL]), 0, 0, NULL, "FILE",
      "weights of the T5 text encoder, such as t5xxl_fp16.safetensors" },
    { "llm", XD_OPT_TEXT, AT(files[LLM]), 0, 0, NULL, "FILE",
      "weights of a language model used as text encoder, such as qwen_3_4b.safetensors" },
    { "clip_vision", XD_OPT_TEXT, AT(files[CLIP_VISION]), 0, 0, NULL, "FILE",
      "weights of the CLIP or SigLIP image encoder, such as clip_vision_h.safetensors" },
    { "latent_upsampler", XD_OPT_TEXT, AT(files[XD_OPEN_UPSAMPLER]), 0, 0, NULL, "DIR",
      NULL }, /* as above */
    { "controlnet", XD_OPT_TEXT, AT(controlnets), 0, XD_OPT_MANY, NULL, "DIR",
      NULL }, /* as above */
    { "preview_decoder", XD_OPT_TEXT, AT(preview_decoder), 0, 0, NULL, "DIR",
      "tiny autoencoder that decodes previews (AutoencoderTiny of diffusers): a directory, or "
      "org/name in the local Hugging Face cache" },
    { "lora", XD_OPT_TEXT, AT(loras), 0, XD_OPT_MANY, NULL, "FILE[:SCALE]",
      "LoRA file and its scale (default 1); may be repeated" },
    { "lora_2", XD_OPT_TEXT, AT(loras_2), 0, XD_OPT_MANY, NULL, "FILE[:SCALE]",
      "LoRA file for the second transformer; --lora is then for the first" },
    { "lora_partial", XD_OPT_FLAG, AT(lora_partial), 0, 0, NULL, NULL,
      "skip tensors of LoRA files that do not match the model, with a warning that lists them" },
    XD_TYPE_ROWS,
    { "threads", XD_OPT_INT, AT(threads), 1, 4096, NULL, "N",
      "threads of each rank (default: one per core, divided by the ranks)" },
    { "bind", XD_OPT_TEXT, AT(bind), 0, 0, "auto cores none", "HOW",
      "CPU binding: auto binds each of several ranks on a host to its share of the cores, unless a "
      "launcher or OMP_ variables do; cores binds a single rank, too; none (default auto)" },
    { "nproc", XD_OPT_INT, AT(nproc), 1, 65536, NULL, "N",
      "number of ranks to start (default: as the degrees need)" },
    XD_LAUNCH_TIMEOUT(AT(start_timeout)),
    { "verify_weights", XD_OPT_FLAG, AT(verify_weights), 0, 0, NULL, NULL,
      "compare all bytes of the weight files of all ranks at the start, and fail if a file differs "
      "(default: compare 64 pages of each file)" },
    { "plan", XD_OPT_TEXT, AT(plan), 0, 0, NULL, "PLAN",
      "auto, or degrees such as u2r2pp2cfg2 (default auto). auto: use the fastest predicted plan "
      "that fits in memory and generates the same image as one rank; degrees that are given are "
      "kept. auto-stale: also consider PipeFusion" },
    { "cluster", XD_OPT_TEXT, AT(cluster), 0, 0, NULL, "NAME",
      "machine that the plan is chosen for: a file of `xdit probe`, or a name such as 8xH100 (see "
      "xdit plan --help; default: this machine)" },
    { "balance", XD_OPT_TEXT, AT(balance), 0, 0, "even measured adaptive", "HOW",
      "shares of the ranks: even; measured: by their speed in a short test at the start; adaptive: "
      "also between steps, if a rank becomes slower or faster (default even)" },
    { "no_t5", XD_OPT_FLAG, AT(no_t5), 0, 0, NULL, NULL, NULL },
    { "device", XD_OPT_TEXT, AT(device), 0, 0, NULL, "NAME",
      "auto, cpu, cuda or cuda:N (default auto). auto: one GPU per rank if the request fits in its "
      "memory, else the CPU" },
    { "offload", XD_OPT_TEXT, AT(offload), 0, 0, "auto none stream", "HOW",
      "auto, none or stream (default: auto on a GPU, none on the CPU). auto: keep the blocks that "
      "do "
      "not fit in host memory (for a GPU) or in their files (for the CPU), and fetch them while "
      "others compute. stream: fetch all blocks; least memory. none: refuse a request that does "
      "not fit" },
    { "memory", XD_OPT_TEXT, AT(memory), 0, 0, NULL, "SIZE",
      "memory limit: 12GB, 11.5GiB, 800MB or bytes (default: all free memory). A limit for all "
      "ranks of a host together, or for each GPU; a request that needs more is refused" },
    { "fit", XD_OPT_TEXT, AT(fit), 0, 0, "auto none", "HOW",
      "auto or none: what to do if a request does not fit in memory (default none). auto: use "
      "--offload auto, else smaller weight types, and print which; flags that are given are kept. "
      "none: refuse it" },
    { "stream_weights", XD_OPT_FLAG, AT(by_layer), 0, 1, NULL, NULL, "same as --offload stream" },
    { "enable_model_cpu_offload", XD_OPT_FLAG, AT(by_model), 0, 1, NULL, NULL,
      "same as --offload auto (xDiT's name)" },
    { "enable_sequential_cpu_offload", XD_OPT_FLAG, AT(by_layer), 0, 1, NULL, NULL,
      "same as --offload stream (xDiT's name)" },
};

enum { ROWS = sizeof rows / sizeof *rows };

const xd_option *xd_open_flags_rows(int *n)
{
    static char file[192], no_t5[128], sides[256], upsampler[320]; /* help texts that name models */
    snprintf(file, sizeof file,
             "weights of the transformer from this file instead of DIR, such "
             "as %s: as published, of ComfyUI or diffusers, or GGUF",
             xd_family_says(XD_WORD_FILE));
    snprintf(no_t5, sizeof no_t5, "do not use the T5 text encoder (%s)",
             xd_family_says(XD_WORD_OPTIONAL_TEXT));
    snprintf(sides, sizeof sides,
             "control network (ControlNet), which reads a control image: a directory with "
             "config.json, its weight file, or org/name in the local Hugging Face cache (%s); may "
             "be repeated",
             xd_family_says(XD_WORD_SIDES));
    snprintf(upsampler, sizeof upsampler,
             "network that enlarges latents: a first pass generates half of the width and height, "
             "and a second pass (--denoise_strength) runs at full size; a directory with "
             "config.json, its weight file, or org/name in the local Hugging Face cache (%s)",
             xd_family_says(XD_WORD_UPSAMPLES));
    xd_opt_explain(rows, ROWS, "latent_upsampler", upsampler);
    xd_opt_explain(rows, ROWS, "transformer", file);
    xd_opt_explain(rows, ROWS, "controlnet", sides);
    xd_opt_explain(rows, ROWS, "no_t5", no_t5);
    *n = ROWS;
    return rows;
}

void xd_open_flags_init(xd_open_flags *f)
{
    *f = (xd_open_flags){ .start_timeout = -1 };
}

void xd_open_flags_free(xd_open_flags *f)
{
    xd_opt_texts_free(&f->loras);
    xd_opt_texts_free(&f->loras_2);
    xd_opt_texts_free(&f->controlnets);
    xd_loras_read_free(&f->lora);
    xd_loras_read_free(&f->lora_2);
}

static xd_status read_plan(xd_open_flags *f, xd_err *e)
{
    const char *plan = f->plan;
    if (!plan || strcmp(plan, "auto") == 0 || strcmp(plan, "auto-stale") == 0)
        return XD_OK;
    f->plan = NULL;
    return xd_parallel_read(&f->parallel, plan, e);
}

xd_status xd_open_flags_read(xd_open_flags *f, xd_err *e)
{
    xd_status st = xd_loras_parse(&f->lora, &f->loras, "lora", e);
    if (st == XD_OK)
        st = xd_loras_parse(&f->lora_2, &f->loras_2, "lora_2", e);
    if (st == XD_OK && f->controlnets.n > XD_OPEN_SIDES)
        st = xd_fail(e, XD_EINVAL, "%d control networks are given; at most %d are supported",
                     f->controlnets.n, XD_OPEN_SIDES);
    if (st == XD_OK && f->memory)
        st = xd_size_read(f->memory, "memory", &f->budget, e);
    return st == XD_OK ? read_plan(f, e) : st;
}

xd_open_args xd_open_flags_args(xd_open_flags *f, const char *model)
{
    xd_open_args a = { .size = sizeof a,
                       .model = model,
                       .dtype = f->dtype,
                       .device = f->device ? f->device : "auto",
                       .weights_dtype = f->weights_dtype,
                       .text_weights_dtype = f->text_weights_dtype,
                       .threads = f->threads,
                       .parallel = f->parallel,
                       .without = f->no_t5 ? components[T5XXL] : NULL,
                       .files = f->file,
                       .loras = f->lora.v,
                       .nloras = f->lora.n,
                       .loras_2 = f->lora_2.v,
                       .nloras_2 = f->lora_2.n,
                       .lora_partial = f->lora_partial,
                       .verify_weights = f->verify_weights,
                       .preview_decoder = f->preview_decoder,
                       .memory = f->budget,
                       .fit = f->fit,
                       .plan = f->plan ? f->plan : "auto",
                       .cluster = f->cluster,
                       .balance = f->balance,
                       .offload = f->offload    ? f->offload
                                  : f->by_layer ? "stream"
                                                : NULL,
                       .bind = f->bind ? f->bind : "auto" };
    for (int i = 0; i < XD_OPEN_FILES; i++)
        if (f->files[i])
            f->file[a.nfiles++] = (xd_component_file){ components[i], f->files[i] };
    for (int i = 0; i < f->controlnets.n; i++)
        f->file[a.nfiles++] = (xd_component_file){ "controlnet", f->controlnets.v[i] };
    return a;
}

xd_advise_args xd_open_flags_advise(const xd_open_flags *f, const char *model)
{
    xd_advise_args a;
    xd_advise_args_init(&a);
    a.model = model;
    a.dtype = f->dtype;
    a.weights_dtype = f->weights_dtype;
    a.text_weights_dtype = f->text_weights_dtype;
    a.parallel = f->parallel;
    a.controlnets = f->controlnets.v;
    a.ncontrolnets = f->controlnets.n;
    a.latent_upsampler = f->files[XD_OPEN_UPSAMPLER];
    return a;
}
