/* open_flags.c - defines and reads the options for opening a model: weights, types, device, memory,
 * ranks */
#include "cli/open_flags.h"

#include <stddef.h>
#include <string.h>

#include "cli/type_rows.h"
#include "families/help.h"
#include "launch/launch.h"

/* Components of a model whose weights the user may give as a separate file. Each component of a
 * model has an option for its weight file; the enumerators below are indices of these options in
 * the array xd_open_flags.files. */
enum { TRANSFORMER, TRANSFORMER_2, VAE, CLIP_L, CLIP_G, T5XXL, LLM, CLIP_VISION };
static const char *const components[XD_OPEN_FILES] = {
    "transformer", "transformer_2", "vae",         "clip_l", "clip_g",
    "t5xxl",       "llm",           "clip_vision", "redux",  "latent_upsampler"
};

#define AT(field) offsetof(xd_open_flags, field)

static xd_option rows[] = {
    { "transformer", XD_OPT_TEXT, AT(files[TRANSFORMER]), 0, 0, NULL, "FILE",
      NULL }, /* xd_opt_explain sets this help text at run time */
    { "transformer_2", XD_OPT_TEXT, AT(files[TRANSFORMER_2]), 0, 0, NULL, "FILE",
      "weights of the second (low-noise) transformer" },
    { "vae", XD_OPT_TEXT, AT(files[VAE]), 0, 0, NULL, "FILE",
      "weights of the VAE, such as ae.safetensors, or a tiny autoencoder (TAESD, TAEF2, TAEHV)" },
    { "clip_l", XD_OPT_TEXT, AT(files[CLIP_L]), 0, 0, NULL, "FILE",
      "weights of the CLIP-L text encoder" },
    { "clip_g", XD_OPT_TEXT, AT(files[CLIP_G]), 0, 0, NULL, "FILE",
      "weights of the CLIP-G text encoder" },
    { "t5xxl", XD_OPT_TEXT, AT(files[T5XXL]), 0, 0, NULL, "FILE",
      "weights of the T5 text encoder, such as t5xxl_fp16.safetensors" },
    { "llm", XD_OPT_TEXT, AT(files[LLM]), 0, 0, NULL, "FILE",
      "weights of a language model as text encoder, such as qwen_3_4b.safetensors" },
    { "clip_vision", XD_OPT_TEXT, AT(files[CLIP_VISION]), 0, 0, NULL, "FILE",
      "weights of the CLIP or SigLIP image encoder, such as clip_vision_h.safetensors" },
    { "latent_upsampler", XD_OPT_TEXT, AT(files[XD_OPEN_UPSAMPLER]), 0, 0, NULL, "DIR",
      NULL },                                                                    /* as above */
    { "redux", XD_OPT_TEXT, AT(files[XD_OPEN_REDUX]), 0, 0, NULL, "DIR", NULL }, /* as above */
    { "controlnet", XD_OPT_TEXT, AT(controlnets), 0, XD_OPT_MANY, NULL, "DIR",
      NULL }, /* as above */
    { "preview_decoder", XD_OPT_TEXT, AT(preview_decoder), 0, 0, NULL, "PATH",
      "tiny autoencoder to decode previews: a file (TAESD, TAEF2, TAEHV), a directory with "
      "config.json, or org/name in the Hugging Face cache" },
    { "upscale", XD_OPT_TEXT, AT(upscale), 0, 0, NULL, "FILE",
      "file of an upscaler, .safetensors, with which results are enlarged (see xdit upscale)" },
    { "lora", XD_OPT_TEXT, AT(loras), 0, XD_OPT_MANY, NULL, "FILE[:SCALE]",
      "LoRA file and scale (default 1); may be repeated" },
    { "lora_2", XD_OPT_TEXT, AT(loras_2), 0, XD_OPT_MANY, NULL, "FILE[:SCALE]",
      "LoRA file of the second of two transformers; then --lora applies to the first "
      "transformer" },
    { "lora_partial", XD_OPT_FLAG, AT(lora_partial), 0, 0, NULL, NULL,
      "skip LoRA tensors that do not match the model, and list the skipped tensors in a "
      "warning" },
    XD_TYPE_ROWS,
    { "threads", XD_OPT_INT, AT(threads), 1, 4096, NULL, "N",
      "number of threads per rank (default: the rank's share of cores)" },
    { "bind", XD_OPT_TEXT, AT(bind), 0, 0, "auto cores none", "HOW",
      "binding of ranks to CPU cores (default auto). auto: if a host has several ranks, and "
      "neither launcher nor OMP_ variables bind; cores: always; none: ranks are never bound to "
      "cores" },
    { "nproc", XD_OPT_INT, AT(nproc), 1, 65536, NULL, "N",
      "ranks to start (default: as the degrees need)" },
    XD_LAUNCH_TIMEOUT(AT(start_timeout)),
    { "verify_weights", XD_OPT_FLAG, AT(verify_weights), 0, 0, NULL, NULL,
      "fail if weight files of ranks differ in any byte (default: compare 64 pages of each "
      "file)" },
    { "plan", XD_OPT_TEXT, AT(plan), 0, 0, NULL, "PLAN",
      "degrees such as u2r2pp2cfg2, or auto (default): the fastest predicted plan that fits in "
      "memory, generates the same image as one rank and has the given degrees; auto-stale: "
      "also PipeFusion" },
    { "cluster", XD_OPT_TEXT, AT(cluster), 0, 0, NULL, "NAME",
      "machine for which the plan is chosen (default: this machine): a file of `xdit probe`, or a "
      "name such as 8xH100 (see xdit plan --help)" },
    { "balance", XD_OPT_TEXT, AT(balance), 0, 0, "even measured adaptive", "HOW",
      "division of tokens among ranks: even (default), measured (by the speed of each rank at the "
      "start), or adaptive (by speeds that are measured again if steps become slower)" },
    { "no_t5", XD_OPT_FLAG, AT(no_t5), 0, 0, NULL, NULL, NULL },
    { "device", XD_OPT_TEXT, AT(device), 0, 0, NULL, "NAME",
      "auto, cpu, cuda or cuda:N (default auto). With auto, ranks use GPUs if the request fits "
      "in them (one GPU per rank), and otherwise the CPU" },
    { "offload", XD_OPT_TEXT, AT(offload), 0, 0, "auto none stream", "HOW",
      "weight streaming (default: auto, on CPUs none): auto fetches blocks that do not fit, "
      "from memory of the host (GPUs) or from files (CPUs); stream fetches all blocks; none "
      "refuses the request" },
    { "memory", XD_OPT_TEXT, AT(memory), 0, 0, NULL, "SIZE",
      "memory limit of a host's ranks together, or of each GPU: 12GB, 11.5GiB, 800MB or bytes "
      "(default: all free memory). Larger requests fail" },
    { "fit", XD_OPT_TEXT, AT(fit), 0, 0, "auto none", "HOW",
      "auto: fit requests by --offload auto, otherwise by smaller weight types; given flags "
      "stay, and changes are printed. none: refuse (default none)" },
    { "stream_weights", XD_OPT_FLAG, AT(by_layer), 0, 1, NULL, NULL, "same as --offload stream" },
    { "enable_model_cpu_offload", XD_OPT_FLAG, AT(by_model), 0, 1, NULL, NULL,
      "same as --offload auto (xDiT's name)" },
    { "enable_sequential_cpu_offload", XD_OPT_FLAG, AT(by_layer), 0, 1, NULL, NULL,
      "same as --offload stream (xDiT's name)" },
};

enum { ROWS = sizeof rows / sizeof *rows };

const xd_option *xd_open_flags_rows(int *n)
{
    static char file[192], no_t5[128], sides[256], upsampler[320],
        redux[256]; /* help texts that name models */
    snprintf(file, sizeof file,
             "weights of the transformer in place of DIR's: %s, ComfyUI, diffusers, GGUF",
             xd_family_says(XD_WORD_FILE));
    snprintf(no_t5, sizeof no_t5, "omit the T5 text encoder (%s)",
             xd_family_says(XD_WORD_OPTIONAL_TEXT));
    snprintf(sides, sizeof sides,
             "control network (ControlNet) for control images: a directory with config.json, a "
             "weight file, or org/name in the Hugging Face cache (repeatable) (%s)",
             xd_family_says(XD_WORD_SIDES));
    snprintf(upsampler, sizeof upsampler,
             "network that doubles the size of latents between two passes (%s): a directory with "
             "config.json, a weight file, or org/name in the local Hugging Face cache",
             xd_family_says(XD_WORD_UPSAMPLES));
    snprintf(redux, sizeof redux,
             "prior (Redux), which varies images (--redux_image): a directory with the folders "
             "image_encoder, image_embedder and feature_extractor, or org/name in the local "
             "Hugging Face cache (%s)",
             xd_family_says(XD_WORD_PRIOR));
    xd_opt_explain(rows, ROWS, "redux", redux);
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
                       .upscale = f->upscale,
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
    a.redux = f->files[XD_OPEN_REDUX];
    return a;
}
