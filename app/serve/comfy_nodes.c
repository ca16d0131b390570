/* comfy_nodes.c - the table of node classes, which checks of graphs and /object_info use
 *
 * Names, inputs and outputs are those of ComfyUI (nodes.py and comfy_extras), because clients send
 * graphs with these names. The nodes whose names begin with ETN are those of comfyui-tooling-nodes,
 * with which Krita sends and receives images. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/comfy.h"

/* ---- the table ------------------------------------------------------------------------------- */

#define SEED "INT 0 0 9007199254740992"
#define SIDE "INT 1024 16 16384"
#define BATCH "batch_size INT 1 1 4096"
#define STEPS "steps INT 20 1 10000"
#define DENOISE "denoise FLOAT 1 0 1"
#define SAMPLING "sampler_name @samplers; scheduler @schedulers"
#define PAIR "positive CONDITIONING; negative CONDITIONING"
#define LATENT "width " SIDE "; height " SIDE "; " BATCH
#define SCALES "nearest-exact|bilinear|area|bicubic|lanczos"
#define ENCODER "*@models"
#define DEVICE "?device *default|cpu"

static const xd_comfy_class classes[] = {
    { "CheckpointLoaderSimple", "Load Checkpoint", "loaders", "ckpt_name @models", "MODEL CLIP VAE",
      0 },
    { "UNETLoader", "Load Diffusion Model", "advanced/loaders",
      "unet_name @models; weight_dtype *default|fp8_e4m3fn|fp8_e4m3fn_fast|fp8_e5m2", "MODEL", 0 },
    { "CLIPLoader", "Load CLIP", "advanced/loaders",
      "clip_name " ENCODER
      "; type *stable_diffusion|sd3|flux|flux2|qwen_image|lumina2|pixart; " DEVICE,
      "CLIP", 0 },
    { "DualCLIPLoader", "DualCLIPLoader", "advanced/loaders",
      "clip_name1 " ENCODER "; clip_name2 " ENCODER "; type *sdxl|sd3|flux|hunyuan_image; " DEVICE,
      "CLIP", 0 },
    { "TripleCLIPLoader", "TripleCLIPLoader", "advanced/loaders",
      "clip_name1 " ENCODER "; clip_name2 " ENCODER "; clip_name3 " ENCODER, "CLIP", 0 },
    { "VAELoader", "Load VAE", "loaders", "vae_name " ENCODER, "VAE", 0 },
    { "LoraLoader", "Load LoRA", "loaders",
      "model MODEL; clip CLIP; lora_name @loras; strength_model FLOAT 1 -100 100; "
      "strength_clip FLOAT 1 -100 100",
      "MODEL CLIP", 0 },
    { "LoraLoaderModelOnly", "LoraLoaderModelOnly", "loaders",
      "model MODEL; lora_name @loras; strength_model FLOAT 1 -100 100", "MODEL", 0 },
    { "CLIPSetLastLayer", "CLIP Set Last Layer", "conditioning",
      "clip CLIP; stop_at_clip_layer INT -1 -24 -1", "CLIP", 0 },
    { "ModelSamplingSD3", "ModelSamplingSD3", "advanced/model", "model MODEL; shift FLOAT 3 0 100",
      "MODEL", 0 },
    { "ModelSamplingAuraFlow", "ModelSamplingAuraFlow", "advanced/model",
      "model MODEL; shift FLOAT 1.73 0 100", "MODEL", 0 },
    { "ModelSamplingFlux", "ModelSamplingFlux", "advanced/model",
      "model MODEL; max_shift FLOAT 1.15 0 100; base_shift FLOAT 0.5 0 100; width " SIDE
      "; height " SIDE,
      "MODEL", 0 },
    { "CLIPTextEncode", "CLIP Text Encode (Prompt)", "conditioning", "text STRING; clip CLIP",
      "CONDITIONING", 0 },
    { "CLIPTextEncodeFlux", "CLIPTextEncodeFlux", "advanced/conditioning/flux",
      "clip CLIP; clip_l STRING; t5xxl STRING; guidance FLOAT 3.5 0 100", "CONDITIONING", 0 },
    { "CLIPTextEncodeSD3", "CLIPTextEncodeSD3", "advanced/conditioning",
      "clip CLIP; clip_l STRING; clip_g STRING; t5xxl STRING; empty_padding none|empty_prompt",
      "CONDITIONING", 0 },
    { "TextEncodeQwenImageEdit", "TextEncodeQwenImageEdit", "advanced/conditioning",
      "clip CLIP; prompt STRING; ?vae VAE; ?image IMAGE", "CONDITIONING", 0 },
    { "TextEncodeQwenImageEditPlus", "TextEncodeQwenImageEditPlus", "advanced/conditioning",
      "clip CLIP; prompt STRING; ?vae VAE; ?image1 IMAGE; ?image2 IMAGE; ?image3 IMAGE",
      "CONDITIONING", 0 },
    { "FluxGuidance", "FluxGuidance", "advanced/conditioning/flux",
      "conditioning CONDITIONING; guidance FLOAT 3.5 0 100", "CONDITIONING", 0 },
    { "ConditioningZeroOut", "ConditioningZeroOut", "advanced/conditioning",
      "conditioning CONDITIONING", "CONDITIONING", 0 },
    { "ReferenceLatent", "ReferenceLatent", "advanced/conditioning/edit_models",
      "conditioning CONDITIONING; ?latent LATENT", "CONDITIONING", 0 },
    { "ControlNetLoader", "Load ControlNet Model", "loaders", "control_net_name @controls",
      "CONTROL_NET", 0 },
    { "ControlNetApplyAdvanced", "Apply ControlNet", "conditioning/controlnet",
      PAIR "; control_net CONTROL_NET; image IMAGE; strength FLOAT 1 0 10; "
           "start_percent FLOAT 0 0 1; end_percent FLOAT 1 0 1; ?vae VAE",
      "CONDITIONING CONDITIONING", 0 },
    { "InpaintModelConditioning", "InpaintModelConditioning", "conditioning/inpaint",
      PAIR "; vae VAE; pixels IMAGE; mask MASK; ?noise_mask BOOLEAN true",
      "CONDITIONING CONDITIONING LATENT", 0 },
    { "EmptyLatentImage", "Empty Latent Image", "latent", LATENT, "LATENT", 0 },
    { "EmptySD3LatentImage", "EmptySD3LatentImage", "latent/sd3", LATENT, "LATENT", 0 },
    { "EmptyFlux2LatentImage", "Empty Flux 2 Latent", "latent", LATENT, "LATENT", 0 },
    { "RepeatLatentBatch", "Repeat Latent Batch", "latent/batch",
      "samples LATENT; amount INT 1 1 64", "LATENT", 0 },
    { "VAEEncode", "VAE Encode", "latent", "pixels IMAGE; vae VAE", "LATENT", 0 },
    { "VAEEncodeForInpaint", "VAE Encode (for Inpainting)", "latent/inpaint",
      "pixels IMAGE; vae VAE; mask MASK; grow_mask_by INT 6 0 64", "LATENT", 0 },
    { "SetLatentNoiseMask", "Set Latent Noise Mask", "latent/inpaint", "samples LATENT; mask MASK",
      "LATENT", 0 },
    { "KSampler", "KSampler", "sampling",
      "model MODEL; seed " SEED "; " STEPS "; cfg FLOAT 8 0 100; " SAMPLING "; " PAIR
      "; latent_image LATENT; " DENOISE,
      "LATENT", 0 },
    { "KSamplerAdvanced", "KSampler (Advanced)", "sampling",
      "model MODEL; add_noise enable|disable; noise_seed " SEED "; " STEPS
      "; cfg FLOAT 8 0 100; " SAMPLING "; " PAIR "; latent_image LATENT; start_at_step INT 0 0 "
      "10000; end_at_step INT 10000 0 10000; return_with_leftover_noise disable|enable",
      "LATENT", 0 },
    { "SamplerCustom", "SamplerCustom", "sampling/custom_sampling",
      "model MODEL; add_noise BOOLEAN true; noise_seed " SEED "; cfg FLOAT 8 0 100; " PAIR
      "; sampler SAMPLER; sigmas SIGMAS; latent_image LATENT",
      "LATENT LATENT", 0 },
    { "SamplerCustomAdvanced", "SamplerCustomAdvanced", "sampling/custom_sampling",
      "noise NOISE; guider GUIDER; sampler SAMPLER; sigmas SIGMAS; latent_image LATENT",
      "LATENT LATENT", 0 },
    { "RandomNoise", "RandomNoise", "sampling/custom_sampling/noise", "noise_seed " SEED, "NOISE",
      0 },
    { "BasicGuider", "BasicGuider", "sampling/custom_sampling/guiders",
      "model MODEL; conditioning CONDITIONING", "GUIDER", 0 },
    { "CFGGuider", "CFGGuider", "sampling/custom_sampling/guiders",
      "model MODEL; " PAIR "; cfg FLOAT 8 0 100", "GUIDER", 0 },
    { "KSamplerSelect", "KSamplerSelect", "sampling/custom_sampling/samplers",
      "sampler_name @samplers", "SAMPLER", 0 },
    { "BasicScheduler", "BasicScheduler", "sampling/custom_sampling/schedulers",
      "model MODEL; scheduler @schedulers; " STEPS "; " DENOISE, "SIGMAS", 0 },
    { "Flux2Scheduler", "Flux2Scheduler", "sampling/custom_sampling/schedulers",
      STEPS "; width " SIDE "; height " SIDE, "SIGMAS", 0 },
    { "SplitSigmas", "SplitSigmas", "sampling/custom_sampling/sigmas",
      "sigmas SIGMAS; step INT 0 0 10000", "SIGMAS SIGMAS", 0 },
    { "VAEDecode", "VAE Decode", "latent", "samples LATENT; vae VAE", "IMAGE", 0 },
    { "VAEDecodeTiled", "VAE Decode (Tiled)", "_for_testing",
      "samples LATENT; vae VAE; tile_size INT 512 64 4096; ?overlap INT 64 0 4096; "
      "?temporal_size INT 64 8 4096; ?temporal_overlap INT 8 4 4096",
      "IMAGE", 0 },
    { "LoadImage", "Load Image", "image", "image *@files", "IMAGE MASK", 0 },
    { "LoadImageMask", "Load Image (as Mask)", "mask",
      "image *@files; channel alpha|red|green|blue", "MASK", 0 },
    { "ImageToMask", "Convert Image to Mask", "mask", "image IMAGE; channel red|green|blue|alpha",
      "MASK", 0 },
    { "InvertMask", "InvertMask", "mask", "mask MASK", "MASK", 0 },
    { "GrowMask", "GrowMask", "mask",
      "mask MASK; expand INT 0 -256 256; tapered_corners BOOLEAN true", "MASK", 0 },
    { "ImageScale", "Upscale Image", "image/upscaling",
      "image IMAGE; upscale_method " SCALES "; width INT 512 0 16384; height INT 512 0 16384; "
      "crop disabled|center",
      "IMAGE", 0 },
    { "FluxKontextImageScale", "FluxKontextImageScale", "advanced/conditioning/flux", "image IMAGE",
      "IMAGE", 0 },
    { "SaveImage", "Save Image", "image", "images IMAGE; filename_prefix STRING ComfyUI", "", 1 },
    { "PreviewImage", "Preview Image", "image", "images IMAGE", "", 1 },
    { "SaveImageWebsocket", "SaveImageWebsocket", "api/image", "images IMAGE", "", 1 },
    { "ETN_LoadImageCache", "Load Image (Cache)", "external_tooling", "id STRING", "IMAGE MASK",
      0 },
    { "ETN_SaveImageCache", "Save Image (Cache)", "external_tooling",
      "images IMAGE; ?format *PNG|JPEG|WEBP", "", 1 },
    { "PrimitiveInt", "Int", "utils/primitive",
      "value INT 0 -9223372036854775807 9223372036854775807", "INT", 0 },
    { "PrimitiveFloat", "Float", "utils/primitive",
      "value FLOAT 0 -9223372036854775807 9223372036854775807", "FLOAT", 0 },
    { "PrimitiveString", "String", "utils/primitive", "value STRING", "STRING", 0 },
    { "PrimitiveStringMultiline", "String (Multiline)", "utils/primitive", "value STRING", "STRING",
      0 },
    { "PrimitiveBoolean", "Boolean", "utils/primitive", "value BOOLEAN", "BOOLEAN", 0 },
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* Samplers of ComfyUI by the names of stable-diffusion-webui, which `scheduler` accepts. */
static const xd_comfy_setting samplers[] = {
    { "euler", "scheduler", "Euler" },
    { "euler_ancestral", "scheduler", "Euler a" },
    { "heun", "scheduler", "Heun" },
    { "dpmpp_2m", "scheduler", "DPM++ 2M" },
    { "dpmpp_2m_sde", "scheduler", "DPM++ 2M SDE" },
    { "dpmpp_2m_sde_gpu", "scheduler", "DPM++ 2M SDE" },
    { "ddpm", "scheduler", "DDPM" },
    { "lcm", "scheduler", "LCM" },
    { "ddim", "scheduler", "DDIM" },
    { "uni_pc", "scheduler", "UniPC" },
    { "uni_pc_bh2", "scheduler", "UniPC" },
    { "model_default", NULL, NULL },
};

static const xd_comfy_setting schedules[] = {
    { "normal", NULL, NULL },
    { "simple", NULL, NULL },
    { "karras", "use_karras_sigmas", "true" },
    { "exponential", "use_exponential_sigmas", "true" },
    { "beta", "use_beta_sigmas", "true" },
    { "sgm_uniform", "timestep_spacing", "trailing" },
    { "ddim_uniform", "timestep_spacing", "leading" },
};
enum {
    SAMPLERS = sizeof samplers / sizeof *samplers,
    SCHEDULES = sizeof schedules / sizeof *schedules
};

const xd_comfy_class *xd_comfy_class_find(const char *name)
{
    for (int i = 0; i < CLASSES; i++)
        if (strcmp(classes[i].name, name) == 0)
            return &classes[i];
    return NULL;
}

const xd_comfy_setting *xd_comfy_sampler(const char *name)
{
    for (int i = 0; i < SAMPLERS; i++)
        if (strcmp(samplers[i].name, name) == 0)
            return &samplers[i];
    return NULL;
}

const xd_comfy_setting *xd_comfy_schedule(const char *name)
{
    for (int i = 0; i < SCHEDULES; i++)
        if (strcmp(schedules[i].name, name) == 0)
            return &schedules[i];
    return NULL;
}

/* ---- reading of the table -------------------------------------------------------------------- */

/* Returns the length of the next word before a blank or semicolon, and sets *at to its begin. */
static size_t next_word(const char **at)
{
    *at += strspn(*at, " ");
    return strcspn(*at, " ;");
}

int xd_comfy_next_input(const char **at, xd_comfy_input *in)
{
    double *numbers[] = { &in->def, &in->min, &in->max };
    size_t  n = next_word(at);
    if (!n)
        return 0;
    memset(in, 0, sizeof *in);
    in->optional = **at == '?';
    snprintf(in->name, sizeof in->name, "%.*s", (int)n - in->optional, *at + in->optional);
    *at += n;
    n = next_word(at);
    in->any = **at == '*';
    in->list = *at + in->any;
    in->list_bytes = n - (size_t)in->any;
    int is_list = in->list[0] == '@' || memchr(in->list, '|', in->list_bytes);
    snprintf(in->type, sizeof in->type, "%.*s", is_list ? 5 : (int)n, is_list ? "COMBO" : *at);
    *at += n;
    n = next_word(at);
    in->text = *at;
    in->text_bytes = n;
    for (int i = 0; i < 3 && n; i++, n = next_word(at)) {
        *numbers[i] = strtod(*at, NULL);
        *at += n;
    }
    *at += **at == ';';
    return 1;
}

int xd_comfy_output_type(const xd_comfy_class *k, int slot, char type[XD_COMFY_NAME])
{
    const char *at = k->outputs;
    size_t      n = next_word(&at);
    for (; n && slot > 0; slot--) {
        at += n;
        n = next_word(&at);
    }
    snprintf(type, XD_COMFY_NAME, "%.*s", (int)n, at);
    return n > 0 && slot == 0;
}

int xd_comfy_is_value(const char *type)
{
    static const char *const types[] = { "INT", "FLOAT", "STRING", "BOOLEAN", "COMBO" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i], type) == 0)
            return 1;
    return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void add_text(xd_text_buf *b, const char *text)
{
    xd_buf_add(b, "%s", b->len && b->p[b->len - 1] != '[' ? "," : "");
    xd_buf_json_string(b, text);
}

static void add_models(xd_text_buf *b, const xd_server *s)
{
    for (int i = 0; i < s->nmodels; i++)
        if (xd_served_makes(&s->models[i], "image"))
            add_text(b, s->models[i].name);
}

static void add_loras(xd_text_buf *b, const xd_server *s)
{
    int    n;
    char **v = xd_server_loras(s->loras, &n);
    for (int i = 0; i < n; i++) {
        add_text(b, v[i]);
        free(v[i]);
    }
    free(v);
}

static void add_controls(xd_text_buf *b, const xd_server *s)
{
    for (int i = 0; i < s->ncontrols; i++)
        add_text(b, xd_comfy_control_name(s, i));
}

static void add_settings(xd_text_buf *b, const xd_comfy_setting *v, int n)
{
    for (int i = 0; i < n; i++)
        add_text(b, v[i].name);
}

static int is_list(const xd_comfy_input *in, const char *name)
{
    return in->list_bytes == strlen(name) && strncmp(in->list, name, in->list_bytes) == 0;
}

void xd_comfy_list(xd_text_buf *b, const xd_http_call *c, const xd_comfy_input *in)
{
    const xd_server *s = c->server;
    xd_buf_add(b, "[");
    if (is_list(in, "@models"))
        add_models(b, s);
    else if (is_list(in, "@loras"))
        add_loras(b, s);
    else if (is_list(in, "@controls"))
        add_controls(b, s);
    else if (is_list(in, "@samplers"))
        add_settings(b, samplers, SAMPLERS);
    else if (is_list(in, "@schedulers"))
        add_settings(b, schedules, SCHEDULES);
    else if (is_list(in, "@files"))
        xd_comfy_image_names(b, c);
    else
        for (size_t at = 0, n; at < in->list_bytes; at += n + 1) {
            char word[XD_COMFY_NAME];
            n = 0;
            while (at + n < in->list_bytes && in->list[at + n] != '|')
                n++;
            snprintf(word, sizeof word, "%.*s", (int)n, in->list + at);
            add_text(b, word);
        }
    xd_buf_add(b, "]");
}

int xd_comfy_list_has(const xd_http_call *c, const xd_comfy_input *in, const char *text)
{
    xd_text_buf b = { 0 };
    xd_json    *j = NULL;
    int         found = in->any;
    xd_comfy_list(&b, c, in);
    if (!b.failed && xd_json_parse(&j, b.p, b.len, "a list", NULL) == XD_OK)
        for (const xd_json *v = xd_json_first(j); v; v = xd_json_next(v))
            found |= strcmp(xd_json_text(v), text) == 0;
    xd_json_free(&j);
    xd_buf_free(&b);
    return found;
}

/* ---- /object_info ---------------------------------------------------------------------------- */

static void add_config(xd_text_buf *b, const xd_comfy_input *in)
{
    int whole = strcmp(in->type, "INT") == 0;
    if (whole || strcmp(in->type, "FLOAT") == 0)
        xd_buf_add(b,
                   whole ? ",{\"default\":%.0f,\"min\":%.0f,\"max\":%.0f%s}"
                         : ",{\"default\":%.10g,\"min\":%.10g,\"max\":%.10g,\"step\":0.01%s}",
                   in->def, in->min, in->max,
                   strstr(in->name, "seed") ? ",\"control_after_generate\":true" : "");
    else if (strcmp(in->type, "BOOLEAN") == 0)
        xd_buf_add(b, ",{\"default\":%s}",
                   strncmp(in->text, "true", in->text_bytes) == 0 && in->text_bytes ? "true"
                                                                                    : "false");
    else if (strcmp(in->type, "STRING") == 0)
        xd_buf_add(b, ",{\"default\":\"%.*s\",\"multiline\":%s}", (int)in->text_bytes, in->text,
                   in->text_bytes ? "false" : "true");
    else if (strcmp(in->name, "image") == 0 && strcmp(in->type, "COMBO") == 0)
        xd_buf_add(b, ",{\"image_upload\":true}");
}

/* Appends the inputs of a class that are optional, or those that are required. */
static void add_inputs(xd_text_buf *b, const xd_http_call *c, const xd_comfy_class *k, int optional,
                       int names)
{
    const char    *at = k->inputs;
    xd_comfy_input in;
    for (int n = 0; xd_comfy_next_input(&at, &in);) {
        if (in.optional != optional)
            continue;
        xd_buf_add(b, names ? "%s\"%s\"" : "%s\"%s\":[", n++ ? "," : "", in.name);
        if (names)
            continue;
        if (strcmp(in.type, "COMBO") == 0)
            xd_comfy_list(b, c, &in);
        else
            xd_buf_add(b, "\"%s\"", in.type);
        add_config(b, &in);
        xd_buf_add(b, "]");
    }
}

static void add_outputs(xd_text_buf *b, const xd_comfy_class *k)
{
    char type[XD_COMFY_NAME];
    xd_buf_add(b, "\"output\":[");
    for (int i = 0; xd_comfy_output_type(k, i, type); i++)
        xd_buf_add(b, "%s\"%s\"", i ? "," : "", type);
    xd_buf_add(b, "],\"output_is_list\":[");
    for (int i = 0; xd_comfy_output_type(k, i, type); i++)
        xd_buf_add(b, "%sfalse", i ? "," : "");
    xd_buf_add(b, "],\"output_name\":[");
    for (int i = 0; xd_comfy_output_type(k, i, type); i++)
        xd_buf_add(b, "%s\"%s\"", i ? "," : "", type);
    xd_buf_add(b, "]");
}

static void add_class(xd_text_buf *b, const xd_http_call *c, const xd_comfy_class *k)
{
    xd_buf_add(b, "\"%s\":{\"input\":{\"required\":{", k->name);
    add_inputs(b, c, k, 0, 0);
    xd_buf_add(b, "}");
    if (strchr(k->inputs, '?')) {
        xd_buf_add(b, ",\"optional\":{");
        add_inputs(b, c, k, 1, 0);
        xd_buf_add(b, "}");
    }
    xd_buf_add(b, "},\"input_order\":{\"required\":[");
    add_inputs(b, c, k, 0, 1);
    xd_buf_add(b, "]");
    if (strchr(k->inputs, '?')) {
        xd_buf_add(b, ",\"optional\":[");
        add_inputs(b, c, k, 1, 1);
        xd_buf_add(b, "]");
    }
    xd_buf_add(b, "},");
    add_outputs(b, k);
    xd_buf_add(b,
               ",\"name\":\"%s\",\"display_name\":\"%s\",\"description\":\"\","
               "\"python_module\":\"nodes\",\"category\":\"%s\",\"output_node\":%s}",
               k->name, k->title, k->category, k->saves ? "true" : "false");
}

void xd_comfy_object_info(xd_text_buf *b, const xd_http_call *c, const char *name)
{
    int n = 0;
    xd_buf_add(b, "{");
    for (int i = 0; i < CLASSES; i++) {
        if (name && strcmp(classes[i].name, name) != 0)
            continue;
        xd_buf_add(b, "%s", n++ ? "," : "");
        add_class(b, c, &classes[i]);
    }
    xd_buf_add(b, "}\n");
}
