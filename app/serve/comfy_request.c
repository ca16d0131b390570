/* comfy_request.c - translates a graph of ComfyUI to one request
 *
 * The translation walks back from the outputs: VAEDecode, one sampler, and from the sampler to the
 * model, the texts, the latents and the images. A graph that one request cannot express is refused,
 * and the error names the node. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/comfy.h"

enum { MAX_ORIGINS = 64, MAX_LORAS = 32, MAX_IMAGES = 20 };
#define PREVIEWS "10" /* number of previews per image for clients with a WebSocket */

typedef struct origin { /* the node whose input has set an option */
    const char    *option, *input;
    xd_comfy_node *node;
} origin;

typedef struct image_input { /* an input that is linked to an image */
    xd_comfy_node *node;
    const char    *input;
} image_input;

typedef struct translation {
    xd_comfy_graph *g;
    xd_api_req      r;
    origin          origins[MAX_ORIGINS];
    int             norigins;
    xd_comfy_node  *decoder, *sampler;
    xd_comfy_node  *model, *text, *steps; /* nodes with the inputs model, positive, steps */
    xd_comfy_node  *loras[MAX_LORAS], *controls[MAX_IMAGES];
    int             nloras, ncontrols, nreferences;
    image_input     references[MAX_IMAGES];
    image_input     start, mask;
    int             grow;     /* as in xd_comfy_set_mask */
    int             starts;   /* 1: the steps start from the image `start` */
    xd_comfy_node  *guidance; /* node with the distilled guidance; NULL: none */
    int             zeroed;   /* 1: the negative conditioning is zero */
    double          batch;
} translation;

/* ---- errors and options ---------------------------------------------------------------------- */

static void refuse(translation *t, xd_comfy_node *node, const char *input, const char *text)
{
    t->r.failed = 1;
    xd_comfy_fail(t->g, node, "custom_validation_failed", input,
                  "Custom validation failed for node", "%s", text);
}

static int has_failed(const translation *t)
{
    return t->r.failed || *t->g->type;
}

/* Records the refusal of a request as an error of the node whose input has the value. */
static void on_refusal(void *cookie, unsigned status, const char *param, const char *text)
{
    translation    *t = cookie;
    xd_comfy_graph *g = t->g;
    g->status = status < 429 ? 400 : status;
    for (int i = 0; param && i < t->norigins; i++)
        if (strcmp(t->origins[i].option, param) == 0) {
            xd_comfy_fail(g, t->origins[i].node, "custom_validation_failed", t->origins[i].input,
                          "Custom validation failed for node", "%s", text);
            return;
        }
    if (*g->type)
        return;
    snprintf(g->type, sizeof g->type, "%s", status < 429 ? "invalid_prompt" : "not_queued");
    snprintf(g->message, sizeof g->message, "%.199s", text);
    snprintf(g->details, sizeof g->details, "%.999s", text);
}

static void note(translation *t, const char *option, xd_comfy_node *node, const char *input)
{
    if (t->norigins < MAX_ORIGINS)
        t->origins[t->norigins++] = (origin){ option, input, node };
}

static void set_text(translation *t, const char *option, xd_comfy_node *node, const char *input,
                     const char *value)
{
    note(t, option, node, input);
    if (strcmp(option, "prompt") == 0)
        xd_api_req_prompt(&t->r, value);
    else
        xd_api_req_option(&t->r, option, value);
}

static void set_number(translation *t, const char *option, xd_comfy_node *node, const char *input,
                       double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    set_text(t, option, node, input, text);
}

static double number(const translation *t, const xd_comfy_node *node, const char *input)
{
    return xd_comfy_number(t->g, node, input);
}

static const char *text_of(const translation *t, const xd_comfy_node *node, const char *input)
{
    return xd_comfy_text(t->g, node, input);
}

/* Refuses a link to a node whose class is not supported at this place. */
static void refuse_link(translation *t, xd_comfy_node *node, const char *input,
                        const xd_comfy_node *to, const char *known)
{
    char text[300];
    snprintf(text, sizeof text, "%s leads to %s; it must lead to %s", input,
             to ? to->class->name : "nothing", known);
    refuse(t, node, input, text);
}

/* ---- model and LoRA files -------------------------------------------------------------------- */

static void add_lora(translation *t, xd_comfy_node *node)
{
    if (t->nloras == MAX_LORAS)
        refuse(t, node, "lora_name", "the graph has too many LoRA files");
    else if (xd_comfy_is(node, "LoraLoader") &&
             fabs(number(t, node, "strength_model") - number(t, node, "strength_clip")) > 1e-9)
        refuse(t, node, "strength_clip", "strength_clip must be the same as strength_model");
    else
        t->loras[t->nloras++] = node;
}

static void set_loras(translation *t)
{
    char text[256];
    for (int i = t->nloras - 1; i >= 0 && !has_failed(t); i--) {
        double scale = number(t, t->loras[i], "strength_model");
        note(t, "lora", t->loras[i], "lora_name");
        snprintf(text, sizeof text, "%.200s:%.17g", text_of(t, t->loras[i], "lora_name"), scale);
        if (scale > 0 || scale < 0)
            xd_api_req_lora(&t->r, text);
    }
}

/* Checks a node that computes the model's own shift if its values are the defaults. */
static void check_own_shift(translation *t, xd_comfy_node *node)
{
    if (fabs(number(t, node, "max_shift") - 1.15) > 1e-9)
        refuse(t, node, "max_shift", "max_shift must be 1.15, which the model uses itself");
    else if (fabs(number(t, node, "base_shift") - 0.5) > 1e-9)
        refuse(t, node, "base_shift", "base_shift must be 0.5, which the model uses itself");
}

static void walk_model(translation *t)
{
    xd_comfy_node *from = t->model, *at, *shift = NULL;
    int            slot;
    while ((at = xd_comfy_linked(t->g, from, "model", &slot)) && !has_failed(t)) {
        if (xd_comfy_is(at, "CheckpointLoaderSimple") || xd_comfy_is(at, "UNETLoader")) {
            const char *input = xd_comfy_is(at, "UNETLoader") ? "unet_name" : "ckpt_name";
            note(t, "model", at, input);
            xd_api_req_model(&t->r, text_of(t, at, input));
            break;
        }
        if (xd_comfy_is(at, "LoraLoader") || xd_comfy_is(at, "LoraLoaderModelOnly"))
            add_lora(t, at);
        else if (xd_comfy_is(at, "ModelSamplingFlux"))
            check_own_shift(t, at);
        else if (!shift)
            shift = at;
        from = at;
    }
    if (shift && !has_failed(t))
        set_number(t, "flow_shift", shift, "shift", number(t, shift, "shift"));
}

/* Checks the CLIP of a text node: the text encoders are those of the model, so that the layer of
 * CLIPSetLastLayer must be the last one. */
static void check_clip(translation *t, xd_comfy_node *node)
{
    int slot;
    for (; (node = xd_comfy_linked(t->g, node, "clip", &slot));)
        if (xd_comfy_is(node, "CLIPSetLastLayer") && number(t, node, "stop_at_clip_layer") < -1)
            refuse(t, node, "stop_at_clip_layer", "stop_at_clip_layer must be -1");
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Sets a text for one encoder, unless it is the same as the first encoder's. */
static void set_other(translation *t, const char *option, xd_comfy_node *node, const char *input,
                      const char *first)
{
    if (strcmp(text_of(t, node, input), text_of(t, node, first)) != 0)
        set_text(t, option, node, input, text_of(t, node, input));
}

static void add_reference(translation *t, xd_comfy_node *node, const char *input)
{
    if (!xd_comfy_linked(t->g, node, input, NULL))
        return;
    if (t->nreferences == MAX_IMAGES)
        refuse(t, node, input, "the graph has too many images");
    else
        t->references[t->nreferences++] = (image_input){ node, input };
}

/* Sets the texts of a node that encodes texts. Returns 0 if the node encodes none. */
static int set_texts(translation *t, xd_comfy_node *node, int negative)
{
    const char *option = negative ? "negative_prompt" : "prompt";
    if (xd_comfy_is(node, "CLIPTextEncode")) {
        set_text(t, option, node, "text", text_of(t, node, "text"));
    } else if (xd_comfy_is(node, "CLIPTextEncodeFlux")) {
        set_text(t, option, node, "clip_l", text_of(t, node, "clip_l"));
        set_other(t, negative ? "negative_prompt_2" : "prompt_2", node, "t5xxl", "clip_l");
        t->guidance = negative || t->guidance ? t->guidance : node;
    } else if (xd_comfy_is(node, "CLIPTextEncodeSD3")) {
        set_text(t, option, node, "clip_l", text_of(t, node, "clip_l"));
        set_other(t, negative ? "negative_prompt_2" : "prompt_2", node, "clip_g", "clip_l");
        set_other(t, negative ? "negative_prompt_3" : "prompt_3", node, "t5xxl", "clip_l");
    } else if (xd_comfy_is(node, "TextEncodeQwenImageEdit") ||
               xd_comfy_is(node, "TextEncodeQwenImageEditPlus")) {
        static const char *const inputs[] = { "image", "image1", "image2", "image3" };
        set_text(t, option, node, "prompt", text_of(t, node, "prompt"));
        for (int i = 3; i >= 0 && !negative; i--) /* the list begins with the last image */
            add_reference(t, node, inputs[i]);
    } else {
        return 0;
    }
    check_clip(t, node);
    return 1;
}

/* Adds the reference image of a ReferenceLatent node. The node nearest to the sampler has the last
 * image. */
static void add_latent(translation *t, xd_comfy_node *node)
{
    xd_comfy_node *encode = xd_comfy_linked(t->g, node, "latent", NULL);
    if (encode && xd_comfy_is(encode, "VAEEncode"))
        add_reference(t, encode, "pixels");
    else if (encode)
        refuse_link(t, node, "latent", encode, "VAEEncode");
}

static void add_control(translation *t, xd_comfy_node *node)
{
    if (t->ncontrols == MAX_IMAGES)
        refuse(t, node, "control_net", "the graph has too many control networks");
    else
        t->controls[t->ncontrols++] = node;
}

static void walk_conditioning(translation *t, xd_comfy_node *from, const char *input, int negative)
{
    int            slot;
    xd_comfy_node *at;
    for (; (at = xd_comfy_linked(t->g, from, input, &slot)) && !has_failed(t); from = at) {
        if (set_texts(t, at, negative))
            return;
        input = "conditioning";
        if (xd_comfy_is(at, "ConditioningZeroOut") && negative) {
            t->zeroed = 1;
            return;
        }
        if (xd_comfy_is(at, "ConditioningZeroOut"))
            refuse_link(t, from, "positive", at, "a text");
        if (xd_comfy_is(at, "ControlNetApplyAdvanced") ||
            xd_comfy_is(at, "InpaintModelConditioning"))
            input = slot ? "negative" : "positive";
        if (negative)
            continue;
        if (xd_comfy_is(at, "ControlNetApplyAdvanced"))
            add_control(t, at);
        else if (xd_comfy_is(at, "ReferenceLatent"))
            add_latent(t, at);
        else if (xd_comfy_is(at, "FluxGuidance") && !t->guidance)
            t->guidance = at;
    }
}

/* Sets the guidance. In a model with distilled guidance, a node of its own sets guidance_scale, and
 * cfg is the scale of true classifier-free guidance; in other models cfg is guidance_scale. */
static void set_guidance(translation *t, xd_comfy_node *from, double cfg)
{
    int      distilled = 0;
    xd_json *uses = t->r.model ? xd_served_model_uses(t->r.model) : NULL;
    xd_json_bool(xd_json_get(uses, "distilled"), &distilled);
    xd_json_free(&uses);
    if (has_failed(t))
        return;
    if (t->guidance && !distilled)
        refuse(t, t->guidance, "guidance", "the model has no distilled guidance: use cfg instead");
    else if (t->guidance)
        set_number(t, "guidance_scale", t->guidance, "guidance",
                   number(t, t->guidance, "guidance"));
    set_number(t, distilled ? "true_cfg_scale" : "guidance_scale", from, "cfg", cfg);
    if (cfg > 1 || cfg < 1)
        walk_conditioning(t, from, "negative", 1);
    if (t->zeroed)
        refuse(t, from, "negative", "ConditioningZeroOut needs cfg 1");
}

/* ---- latents --------------------------------------------------------------------------------- */

static void set_size(translation *t, xd_comfy_node *node, double w, double h)
{
    set_number(t, "width", node, "width", w);
    set_number(t, "height", node, "height", h);
}

static void walk_latents(translation *t)
{
    xd_comfy_node *from = t->sampler, *at;
    const char    *input = "latent_image";
    int            slot;
    for (; (at = xd_comfy_linked(t->g, from, input, &slot)) && !has_failed(t); from = at) {
        input = "samples";
        if (strncmp(at->class->name, "Empty", 5) == 0) {
            set_size(t, at, number(t, at, "width"), number(t, at, "height"));
            t->batch *= number(t, at, "batch_size");
            note(t, "num_images_per_prompt", at, "batch_size");
            note(t, "n", at, "batch_size");
            note(t, "size", at, "width");
            return;
        }
        if (xd_comfy_is(at, "RepeatLatentBatch")) {
            t->batch *= number(t, at, "amount");
            note(t, "num_images_per_prompt", at, "amount");
            note(t, "n", at, "amount");
        } else if (xd_comfy_is(at, "SetLatentNoiseMask")) {
            if (!t->mask.node)
                t->mask = (image_input){ at, "mask" };
        } else if (xd_comfy_is(at, "VAEEncode")) {
            t->start = (image_input){ at, "pixels" };
            return;
        } else if (xd_comfy_is(at, "VAEEncodeForInpaint") ||
                   xd_comfy_is(at, "InpaintModelConditioning")) {
            t->start = (image_input){ at, "pixels" };
            t->mask = (image_input){ at, "mask" };
            t->grow = xd_comfy_is(at, "VAEEncodeForInpaint") ? (int)number(t, at, "grow_mask_by")
                                                             : -1;
            return;
        } else {
            refuse_link(t, from, input, at, "an empty latent image or VAEEncode");
        }
    }
}

/* Sets width and height to the size of the start image, rounded down to a size of the model. */
static void set_start_size(translation *t, const double size[2])
{
    double   multiple = 8;
    xd_json *uses = t->r.model ? xd_served_model_uses(t->r.model) : NULL;
    xd_json_number(xd_json_get(uses, "multiple"), &multiple);
    xd_json_free(&uses);
    if (size[0] >= multiple && size[1] >= multiple)
        set_size(t, t->start.node, floor(size[0] / multiple) * multiple,
                 floor(size[1] / multiple) * multiple);
}

static void set_image(translation *t, const char *option, const image_input *from, double size[2])
{
    note(t, option, from->node, from->input);
    xd_comfy_set_image(t->g, &t->r, option, from->node, from->input, size);
}

static void set_images(translation *t)
{
    double size[2];
    if (t->mask.node && !t->start.node)
        refuse(t, t->mask.node, t->mask.input, "a mask needs an image: use VAEEncode");
    for (int i = t->nreferences - 1; i >= 0 && !has_failed(t); i--)
        set_image(t, "image", &t->references[i], size);
    if (!t->starts || has_failed(t))
        return;
    set_image(t, "image", &t->start, size);
    if (!has_failed(t))
        set_start_size(t, size);
    if (t->mask.node && !has_failed(t)) {
        note(t, "mask", t->mask.node, t->mask.input);
        note(t, "mask_image", t->mask.node, t->mask.input);
        xd_comfy_set_mask(t->g, &t->r, t->mask.node, t->mask.input, t->grow);
    }
}

/* ---- control networks ------------------------------------------------------------------------ */

/* Returns the node that applies control network i of the server. Of several networks with the same
 * name, the first one is applied first. The list of nodes begins with the node that is applied
 * last. */
static xd_comfy_node *control_of(const translation *t, int i)
{
    const xd_server *s = t->g->call->server;
    const char      *name = xd_comfy_control_name(s, i);
    int              before = 0;
    for (int k = 0; k < i; k++)
        before += strcmp(xd_comfy_control_name(s, k), name) == 0;
    for (int k = t->ncontrols - 1; k >= 0; k--) {
        xd_comfy_node *load = xd_comfy_linked(t->g, t->controls[k], "control_net", NULL);
        if (strcmp(text_of(t, load, "control_net_name"), name) == 0 && before-- == 0)
            return t->controls[k];
    }
    return NULL;
}

/* Sets an option to a list with a number for each control network, unless all are the usual
 * number. */
static void set_control_numbers(translation *t, const char *option, const char *input, double usual)
{
    const xd_server *s = t->g->call->server;
    xd_text_buf      b = { 0 };
    int              other = 0;
    for (int i = 0; i < s->ncontrols; i++) {
        double v = number(t, control_of(t, i), input);
        other |= v < usual || v > usual;
        xd_buf_add(&b, "%s%.17g", i ? "," : "", v);
    }
    if (!b.failed && other)
        set_text(t, option, t->controls[0], input, b.p);
    xd_buf_free(&b);
}

static void set_controls(translation *t)
{
    const xd_server *s = t->g->call->server;
    double           size[2];
    if (!t->ncontrols || has_failed(t))
        return;
    for (int i = 0; i < s->ncontrols && !has_failed(t); i++) {
        char           text[200];
        xd_comfy_node *node = control_of(t, i);
        snprintf(text, sizeof text,
                 "the graph must apply each control network of the server once; '%.80s' is missing",
                 xd_comfy_control_name(s, i));
        if (!node || t->ncontrols != s->ncontrols)
            refuse(t, t->controls[0], "control_net", text);
        else
            set_image(t, "control_image", &(image_input){ node, "image" }, size);
    }
    if (has_failed(t))
        return;
    set_control_numbers(t, "conditioning_scale", "strength", -1);
    set_control_numbers(t, "control_guidance_start", "start_percent", 0);
    set_control_numbers(t, "control_guidance_end", "end_percent", 1);
}

/* ---- samplers -------------------------------------------------------------------------------- */

static void set_setting(translation *t, xd_comfy_node *node, const char *input,
                        const xd_comfy_setting *row)
{
    if (row && row->option)
        set_text(t, row->option, node, input, row->value);
}

static void set_seed(translation *t, xd_comfy_node *node, const char *input)
{
    const char *text = text_of(t, node, input);
    char        plain[40];
    snprintf(plain, sizeof plain, "%.0f", number(t, node, input));
    set_text(t, "seed", node, input, *text ? text : plain);
}

/* Sets the number of steps and the strength such that the last `run` of `all` steps run. The
 * quotient is rounded such that its product with `all` is `run` again. If the graph has reference
 * images and all steps run, the latents of an image only set the size of the result. */
static void set_strength(translation *t, xd_comfy_node *node, double run, double all)
{
    double s = run / all;
    set_number(t, "num_inference_steps", node, "steps", all);
    t->starts = t->start.node && (!t->nreferences || run < all || t->mask.node);
    if (run >= all && !t->starts)
        return;
    if (!t->start.node) {
        refuse(t, node, xd_comfy_is(node, "SplitSigmas") ? "step" : "denoise",
               "a part of the steps needs an image: use VAEEncode");
        return;
    }
    if (s * all > run)
        s = nextafter(s, 0);
    else if (s * all < run)
        s = nextafter(s, 1);
    if (run < all || xd_api_req_model_accepts(&t->r, "strength"))
        set_number(t, "strength", node, "denoise", s);
}

/* Sets steps and strength of `steps` steps with `denoise`, of which the first `skipped` do not run.
 * ComfyUI runs the last `steps` of steps / denoise steps. */
static void set_schedule(translation *t, xd_comfy_node *node, double skipped)
{
    double steps = floor(number(t, node, "steps")), all = steps,
           denoise = strstr(node->class->inputs, "denoise") ? number(t, node, "denoise") : 1;
    if (denoise < 1)
        all = denoise > 0 ? floor(steps / denoise) : 0;
    if (!(all > 0))
        refuse(t, node, "denoise", "denoise must be above 0");
    else if (skipped >= steps)
        refuse(t, node, "steps", "no step is left to run");
    else
        set_strength(t, node, steps - skipped, all);
}

static void read_ksampler(translation *t)
{
    set_seed(t, t->sampler, "seed");
    set_setting(t, t->sampler, "sampler_name",
                xd_comfy_sampler(text_of(t, t->sampler, "sampler_name")));
    set_setting(t, t->sampler, "scheduler", xd_comfy_schedule(text_of(t, t->sampler, "scheduler")));
    set_schedule(t, t->sampler, 0);
}

static void read_advanced(translation *t)
{
    xd_comfy_node *k = t->sampler;
    if (strcmp(text_of(t, k, "add_noise"), "enable") != 0)
        refuse(t, k, "add_noise", "add_noise must be enable");
    else if (strcmp(text_of(t, k, "return_with_leftover_noise"), "disable") != 0)
        refuse(t, k, "return_with_leftover_noise", "return_with_leftover_noise must be disable");
    else if (number(t, k, "end_at_step") < number(t, k, "steps"))
        refuse(t, k, "end_at_step", "end_at_step must be at least steps");
    if (has_failed(t))
        return;
    set_seed(t, k, "noise_seed");
    set_setting(t, k, "sampler_name", xd_comfy_sampler(text_of(t, k, "sampler_name")));
    set_setting(t, k, "scheduler", xd_comfy_schedule(text_of(t, k, "scheduler")));
    set_schedule(t, k, floor(number(t, k, "start_at_step")));
}

static void read_sigmas(translation *t)
{
    int            slot;
    double         skipped = 0;
    xd_comfy_node *from = t->sampler, *at = xd_comfy_linked(t->g, from, "sigmas", &slot);
    for (; at && xd_comfy_is(at, "SplitSigmas");
         from = at, at = xd_comfy_linked(t->g, at, "sigmas", &slot)) {
        skipped += floor(number(t, at, "step"));
        if (slot != 1) {
            refuse(t, from, "sigmas", "only the second output of SplitSigmas can be used");
            return;
        }
    }
    if (!at)
        return;
    if (xd_comfy_is(at, "BasicScheduler"))
        set_setting(t, at, "scheduler", xd_comfy_schedule(text_of(t, at, "scheduler")));
    set_schedule(t, at, skipped);
}

static void read_custom(translation *t)
{
    xd_comfy_node *k = t->sampler, *select = xd_comfy_linked(t->g, k, "sampler", NULL),
                  *noise = xd_comfy_linked(t->g, k, "noise", NULL);
    if (xd_comfy_is(k, "SamplerCustom") && !(number(t, k, "add_noise") > 0))
        refuse(t, k, "add_noise", "add_noise must be true");
    if (has_failed(t))
        return;
    set_seed(t, noise ? noise : k, "noise_seed");
    set_setting(t, select, "sampler_name", xd_comfy_sampler(text_of(t, select, "sampler_name")));
    read_sigmas(t);
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* Finds the node that decodes the images of all outputs. */
static void find_decoder(translation *t)
{
    for (int i = 0; i < t->g->n && !has_failed(t); i++) {
        xd_comfy_node *save = &t->g->nodes[i], *at;
        if (!save->class->saves)
            continue;
        at = xd_comfy_linked(t->g, save, "images", NULL);
        if (!xd_comfy_is(at, "VAEDecode") && !xd_comfy_is(at, "VAEDecodeTiled"))
            refuse_link(t, save, "images", at, "VAEDecode");
        else if (t->decoder && t->decoder != at)
            refuse(t, save, "images", "all outputs of a graph must show the same images");
        else
            t->decoder = at;
    }
    if (has_failed(t))
        return;
    t->sampler = xd_comfy_linked(t->g, t->decoder, "samples", NULL);
    if (!t->sampler || !(strncmp(t->sampler->class->name, "KSampler", 8) == 0 ||
                         strncmp(t->sampler->class->name, "SamplerCustom", 13) == 0))
        refuse_link(t, t->decoder, "samples", t->sampler, "a sampler");
}

static void set_tiles(translation *t)
{
    static const char *const options[][2] = {
        { "vae_tile_size_height", "tile_size" },
        { "vae_tile_size_width", "tile_size" },
        { "vae_tile_overlap_height", "overlap" },
        { "vae_tile_overlap_width", "overlap" },
    };
    if (!xd_comfy_is(t->decoder, "VAEDecodeTiled"))
        return;
    set_text(t, "enable_tiling", t->decoder, "tile_size", "true");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        set_number(t, options[i][0], t->decoder, options[i][1],
                   number(t, t->decoder, options[i][1]));
}

/* Translates the nodes before the sampler: model, texts, guidance, latents and images. */
static void translate(translation *t)
{
    xd_comfy_node *guider = xd_comfy_linked(t->g, t->sampler, "guider", NULL),
                  *from = guider ? guider : t->sampler;
    int  basic = xd_comfy_is(from, "BasicGuider");
    char images[24];
    t->model = from;
    walk_model(t);
    walk_latents(t);
    walk_conditioning(t, from, basic ? "conditioning" : "positive", 0);
    if (!has_failed(t))
        set_guidance(t, from, basic ? 1 : number(t, from, "cfg"));
    if (has_failed(t))
        return;
    if (xd_comfy_is(t->sampler, "KSampler"))
        read_ksampler(t);
    else if (xd_comfy_is(t->sampler, "KSamplerAdvanced"))
        read_advanced(t);
    else
        read_custom(t);
    set_loras(t);
    set_tiles(t);
    if (has_failed(t))
        return;
    set_images(t);
    set_controls(t);
    snprintf(images, sizeof images, "%.0f", t->batch);
    xd_api_req_option(&t->r, "num_images_per_prompt", images);
}

static int place_of(const xd_comfy_graph *g, const xd_comfy_node *node)
{
    int i = 0;
    while (i < g->norder && g->order[i] != node)
        i++;
    return i;
}

xd_task *xd_comfy_submit(xd_comfy_graph *g, xd_http_call *c, xd_comfy_places *places)
{
    translation *t = calloc(1, sizeof *t);
    xd_task     *task;
    if (!t) {
        g->status = 503;
        snprintf(g->type, sizeof g->type, "out_of_memory");
        return NULL;
    }
    t->g = g;
    t->batch = 1;
    t->grow = -1;
    xd_api_req_begin(&t->r, c, "image");
    t->r.refused = on_refusal;
    t->r.refused_cookie = t;
    find_decoder(t);
    if (!has_failed(t)) {
        translate(t);
        if (xd_json_text(xd_json_get(c->json, "client_id")))
            xd_api_req_option(&t->r, "previews", PREVIEWS);
        *places = (xd_comfy_places){ place_of(g, t->sampler), place_of(g, t->decoder) };
    }
    t->r.failed |= *g->type != 0;
    task = xd_api_req_submit(&t->r);
    free(t);
    return task;
}
