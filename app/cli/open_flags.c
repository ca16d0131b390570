/* open_flags.c - the flags that say how a model is opened */
#include "cli/open_flags.h"

#include <stddef.h>
#include <string.h>

#include "cli/launch.h"
#include "cli/type_rows.h"
#include "families/help.h"

/* As flags and the library name the components. */
enum { TRANSFORMER, TRANSFORMER_2, VAE, CLIP_L, CLIP_G, T5XXL, LLM, CLIP_VISION };
static const char *const components[XD_OPEN_FILES] = {
    "transformer", "transformer_2", "vae", "clip_l", "clip_g", "t5xxl", "llm", "clip_vision" };

#define AT(field) offsetof(xd_open_flags, field)

static xd_option rows[] = {
    { "transformer", XD_OPT_TEXT, AT(files[TRANSFORMER]), 0, 0, NULL, "FILE",
      NULL },                   /* explain                                                     */
    { "transformer_2", XD_OPT_TEXT, AT(files[TRANSFORMER_2]), 0, 0, NULL, "FILE",
      "the same of the second of two transformers, that of little noise" },
    { "vae", XD_OPT_TEXT, AT(files[VAE]), 0, 0, NULL, "FILE",
      "the same of the VAE: ae.safetensors" },
    { "clip_l", XD_OPT_TEXT, AT(files[CLIP_L]), 0, 0, NULL, "FILE",
      "the same of the CLIP-L text encoder" },
    { "clip_g", XD_OPT_TEXT, AT(files[CLIP_G]), 0, 0, NULL, "FILE",
      "the same of the CLIP-G text encoder" },
    { "t5xxl", XD_OPT_TEXT, AT(files[T5XXL]), 0, 0, NULL, "FILE",
      "the same of the T5 text encoder: t5xxl_fp16.safetensors" },
    { "llm", XD_OPT_TEXT, AT(files[LLM]), 0, 0, NULL, "FILE",
      "the same of a language model that is the text encoder: qwen_3_4b.safetensors" },
    { "clip_vision", XD_OPT_TEXT, AT(files[CLIP_VISION]), 0, 0, NULL, "FILE",
      "the same of the CLIP encoder of images: clip_vision_h.safetensors" },
    { "preview_decoder", XD_OPT_TEXT, AT(preview_decoder), 0, 0, NULL, "DIR",
      "decode previews by the tiny autoencoder in this directory (AutoencoderTiny of diffusers), "
      "or by org/name of the local Hugging Face cache" },
    { "lora", XD_OPT_TEXT, AT(loras), 0, XD_OPT_MANY, NULL, "FILE[:SCALE]",
      "low-rank differences to add to the weights, SCALE times (default: 1); may be repeated" },
    { "lora_2", XD_OPT_TEXT, AT(loras_2), 0, XD_OPT_MANY, NULL, "FILE[:SCALE]",
      "the same, added to the second of two transformers; --lora is for the first then" },
    { "lora_partial", XD_OPT_FLAG, AT(lora_partial), 0, 0, NULL, NULL,
      "leave out tensors of LoRA files that do not fit the model (those of images on a model of "
      "text alone), and list them in a warning" },
    XD_TYPE_ROWS,
    { "threads", XD_OPT_INT, AT(threads), 1, 4096, NULL, "N",
      "of each rank; default: one for each core this process may use, shared by the ranks" },
    { "bind", XD_OPT_TEXT, AT(bind), 0, 0, "auto cores none", "HOW",
      "cpus of a rank: auto, of several ranks on a host each keeps to its share of the cores, "
      "unless a launcher or "
      "OMP_ variables say where; cores, a rank alone as well; none (default: auto)" },
    { "nproc", XD_OPT_INT, AT(nproc), 1, 65536, NULL, "N",
      "ranks to start (default: as many as the degrees need)" },
    XD_LAUNCH_TIMEOUT(AT(start_timeout)),
    { "verify_weights", XD_OPT_FLAG, AT(verify_weights), 0, 0, NULL, NULL,
      "compare all bytes of the ranks' weight files at the start, as fast as they are read, and "
      "name one that differs (default: 64 pages of each file)" },
    { "plan", XD_OPT_TEXT, AT(plan), 0, 0, NULL, "PLAN",
      "auto: the degrees that are not given are those predicted to be fastest on the ranks there "
      "are, in "
      "memory that is there and with the image of one rank; auto-stale: PipeFusion as well; or "
      "degrees "
      "that are kept, as u2r2pp2cfg2 (default: auto)" },
    { "cluster", XD_OPT_TEXT, AT(cluster), 0, 0, NULL, "NAME",
      "machine to plan for: a file of `xdit probe` or a name, as 8xH100 (see xdit plan --help; "
      "default: what was measured here, or a quick guess)" },
    { "balance", XD_OPT_TEXT, AT(balance), 0, 0, "even measured", "HOW",
      "shares of the ranks: even, or by their speed in a short test (default: even)" },
    { "no_t5", XD_OPT_FLAG, AT(no_t5), 0, 0, NULL, NULL,
      NULL },
    { "device", XD_OPT_TEXT, AT(device), 0, 0, NULL, "NAME",
      "auto (default): a GPU a rank where there is one that holds the request, else the CPU; cpu, "
      "cuda, cuda:1 ..." },
    { "offload", XD_OPT_TEXT, AT(offload), 0, 0, "auto none stream", "HOW",
      "blocks of networks that memory does not hold: auto, as many as have to be wait in the "
      "host's memory for a GPU, in their files for the CPU, and are fetched while others compute; "
      "none, the request is refused; stream, all blocks wait there, for the least memory "
      "(default: auto on a GPU, none on the CPU)" },
    { "memory", XD_OPT_TEXT, AT(memory), 0, 0, NULL, "SIZE",
      "bytes of weights, activations and kernels, of all ranks of a host together: 12GB, 11.5GiB, "
      "800MB or a number; on a GPU of its memory; what needs more is refused (default: all that is "
      "free)" },
    { "fit", XD_OPT_TEXT, AT(fit), 0, 0, "auto none", "HOW",
      "where a request does not fit: auto, what would fit is taken, as far as it is not given: "
      "--offload auto, or else types of weights; a line says so; none, it is refused (default: "
      "none)" },
    { "stream_weights", XD_OPT_FLAG, AT(by_layer), 0, 1, NULL, NULL,
      "as --offload stream: the least memory" },
    { "enable_model_cpu_offload", XD_OPT_FLAG, AT(by_model), 0, 1, NULL, NULL,
      "as --offload auto (xDiT's name)" },
    { "enable_sequential_cpu_offload", XD_OPT_FLAG, AT(by_layer), 0, 1, NULL, NULL,
      "as --offload stream (xDiT's name)" },
};

enum { ROWS = sizeof rows / sizeof *rows };

const xd_option *xd_open_flags_rows(int *n)
{
    static char file[192], no_t5[128];          /* these help texts name models                */
    snprintf(file, sizeof file, "its weights from this file, not from DIR: %s or the like, as "
             "published, of ComfyUI or of diffusers, or a GGUF file", xd_family_says(XD_WORD_FILE));
    snprintf(no_t5, sizeof no_t5, "do without the T5 text encoder where the model can (%s)",
             xd_family_says(XD_WORD_OPTIONAL_TEXT));
    xd_opt_explain(rows, ROWS, "transformer", file);
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
                       .offload = f->offload ? f->offload : f->by_layer ? "stream" : NULL,
                       .bind = f->bind ? f->bind : "auto" };
    for (int i = 0; i < XD_OPEN_FILES; i++)
        if (f->files[i])
            f->file[a.nfiles++] = (xd_component_file){ components[i], f->files[i] };
    return a;
}
