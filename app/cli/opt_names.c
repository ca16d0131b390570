/* opt_names.c - suggests known names for unknown options and commands */
#include <string.h>

#include "base/word_list.h"
#include "cli/opt.h"

enum { MAXNAME = 64 };

typedef struct synonym {
    const char *names; /* names in other programs, separated by spaces */
    const char *to;    /* name in xdit; NULL: xdit has no such option, and `hint` is printed */
    const char *hint;
} synonym;

/* Names of options in stable-diffusion.cpp, A1111, ComfyUI, diffusers and similar programs, with
 * their names in xdit. */
static const synonym flags[] = {
    { "cfg cfg_scale cfg_value guidance scale guidance_value distilled_guidance embedded_guidance",
      "guidance_scale", NULL },
    { "sampler sampling_method sampler_name sample_method solver noise_schedule schedule",
      "scheduler", NULL },
    { "init_img init_image input_image img start_image ref_image image_path source_image "
      "first_frame r i",
      "image", NULL },
    { "end_image end_img last_frame last_img tail_image flf_image", "last_image", NULL },
    { "clip_vision_h clip_vision_model", "clip_vision", NULL },
    { "mask mask_img mask_path mask_file inpaint inpaint_mask mask_video src_mask", "mask_image",
      NULL },
    { "control_img control_image_path depth_image canny_image", "control_image", NULL },
    { "video control_vid src_video input_video background_video", "control_video", NULL },
    { "pose dwpose src_pose src_pose_path", "pose_video", NULL },
    { "face src_face src_face_path", "face_video", NULL },
    { "clip_len segment_length", "segment_frame_length", NULL },
    { "refert_num", "prev_segment_conditioning_frames", NULL },
    { "motion_encode_batch_size", NULL,
      "the frames of --face_video are encoded one after the other, which changes no result" },
    { "reference_images reference_image src_ref_images ref_images", "image", NULL },
    { "vace_scale vace_strength control_scale control_strength controlnet_strength",
      "conditioning_scale", NULL },
    { "mask_padding mask_crop padding_crop inpaint_padding", "padding_mask_crop", NULL },
    { "denoise denoising denoising_strength img_strength image_strength", "strength", NULL },
    { "vae_tiling tiled_vae vae_tile_size", "enable_tiling", NULL },
    { "vae_slicing enable_slicing", NULL, "images are always decoded one at a time" },
    { "type wtype weight_type quant quantize quantization quant_type unet_dtype", "weights_dtype",
      NULL },
    { "torch_dtype precision half fp16 bf16 fp32 float16 bfloat16 mixed_precision", "dtype", NULL },
    { "b batch_count num_images n_iter n_images images number_of_images n_samples num_outputs",
      "num_images_per_prompt", NULL },
    { "neg neg_prompt n_prompt negprompt", "negative_prompt", NULL },
    { "out outfile output_file output_path outdir output_dir out_dir save save_path save_dir "
      "filename",
      "output", NULL },
    { "model_id model_name repo repo_id checkpoint ckpt ckpt_path pretrained_model_name_or_path "
      "pretrained_model model_dir sd_model weights",
      "model", NULL },
    { "diffusion_model unet dit high_noise_diffusion_model high_noise_model", "transformer", NULL },
    { "low_noise_model low_noise_diffusion_model", "transformer_2", NULL },
    { "clip clip_path", "clip_l", NULL },
    { "t5 t5_xxl", "t5xxl", NULL },
    { "llm_path qwen2vl", "llm", NULL },
    { "vae_path ae autoencoder", "vae", NULL },
    { "taesd_path tae tiny_vae", "preview_decoder", NULL },
    { "lora_model_dir lora_dir", "loras", NULL },
    { "lora_path lora_model_dir lora_dir loras lora_weights", "lora", NULL },
    { "video_frames frames num_video_frames n_frames", "num_frames", NULL },
    { "frame_rate framerate video_fps", "fps", NULL },
    { "n_threads num_threads cpu_threads nthreads", "threads", NULL },
    { "backend accelerator main_gpu", "device", NULL },
    { "gpus num_gpus n_gpus n_gpu ngpus num_processes ranks np workers devices tensor_split",
      "nproc", NULL },
    { "n_steps num_steps sample_steps sampling_steps ddim_steps", "num_inference_steps", NULL },
    { "tp tp_size tp_degree tensor_parallel tensor_parallel_size", "tensor_parallel_degree", NULL },
    { "sp sp_size sp_degree ulysses ulysses_size sequence_parallel sequence_parallel_size",
      "ulysses_degree", NULL },
    { "ring ring_size", "ring_degree", NULL },
    { "pp pp_size pp_degree pipefusion pipeline_parallel_size", "pipefusion_parallel_degree",
      NULL },
    { "dp dp_size dp_degree data_parallel_size", "data_parallel_degree", NULL },
    { "cfg_parallel cfg_parallel_size enable_cfg_parallel", "use_cfg_parallel", NULL },
    { "patches num_patches pp_num_patch", "num_pipeline_patch", NULL },
    { "prompt_file prompts_file from_file prompt_path", "prompts", NULL },
    { "silent", "quiet", NULL },
    { "debug", "verbose", NULL },
    { "size resolution image_size img_size dimensions", NULL, "the size is --width and --height" },
    { "upscaler upscale_model", "upscale", NULL },
    { "hires hires_fix hr_scale enable_hr", "hires_scale", NULL },
    { "hr_second_pass_steps", "hires_steps", NULL },
    { "upscale_repeats", NULL, "upscaling is repeated by xdit upscale of the result" },
    { "caption_upsample_temperature", NULL, "prompts are not rewritten by a language model" },
    { "control_net controlnet_path controlnet_model control_net_path", "controlnet", NULL },
    { "redux_path redux_model prior prior_redux style_model", "redux", NULL },
    { "ip_adapter", NULL, "image adapters are not supported" },
    { "offload_to_cpu cpu_offload lowvram low_vram medvram", "offload", NULL },
    { "clip_on_cpu vae_on_cpu control_net_cpu", NULL,
      "all components run on --device, one after the other" },
    { "preview_path", "preview", NULL },
    { "preview_interval", "preview_every", NULL },
    { "taesd", NULL, "previews (--preview FILE) need no extra network" },
    { "clip_skip", NULL, "skipping layers of a text encoder is not supported" },
    { "port host listen server api", NULL, "xdit serve is the HTTP server" },
    { "p", "port", NULL },
    { "http_port listen_port", "port", "xdit serve is the HTTP server" },
    { "l listen listen_ip bind_address addr address", "host", "xdit serve is the HTTP server" },
    { "ssl_certfile ssl_cert_file ssl_cert certfile", "tls_cert", NULL },
    { "ssl_keyfile ssl_key_file ssl_key keyfile", "tls_key", NULL },
    { "allowed_origins cors_allow_origins cors_origins", "cors", NULL },
    { "max_num_seqs max_queue max_queue_size", "queue", NULL },
    { "a alias served_model_name model_alias", NULL,
      "--model NAME=DIR gives a model the name that requests use" },
    { "ngl n_gpu_layers gpu_layers", NULL,
      "--device selects the device, and --offload "
      "the blocks kept in host memory" },
    { "c ctx_size max_model_len", NULL, "--max_sequence_length limits the prompt" },
    { "fa flash_attn flash_attention diffusion_fa xformers opt_sdp_attention use_flash_attn", NULL,
      "there is only one implementation of attention" },
    { "compile torch_compile", NULL, "xdit is a compiled program" },
    { 0 },
};

static const synonym commands[] = {
    { "txt2img img2img t2i t2v i2v txt2vid sample infer generate draw img_gen vid_gen imagine",
      "generate", NULL },
    { "benchmark", "bench", NULL },
    { "info show metadata", "inspect", NULL },
    { "translate", "from-xdit", NULL },
    { "measure tune", "probe", NULL },
    { "check diagnose env", "doctor", NULL },
    { "quantize export save", "convert", NULL },
    { "diff cmp psnr ssim", "compare", NULL },
    { "enlarge superres esrgan realesrgan", "upscale", NULL },
    { "server api daemon http", "serve", NULL },
    { "list ls", "models", NULL },
    { "download pull", NULL, "xdit downloads nothing: use \"hf download ORG/NAME\"" },
    { 0 },
};

static const char *look_up(const synonym *rows, const char *word, const char *const *names, int n,
                           const char **hint)
{
    for (const synonym *r = rows; r->names; r++) {
        if (!xd_list_has(r->names, word))
            continue;
        for (int i = 0; r->to && i < n; i++)
            if (strcmp(names[i], r->to) == 0) {
                *hint = NULL;
                return names[i];
            }
        *hint = *hint ? *hint : r->hint;
    }
    return NULL;
}

const char *xd_opt_synonym(const char *word, const char *const *names, int n, const char **hint)
{
    *hint = NULL;
    return look_up(flags, word, names, n, hint);
}

const char *xd_opt_command(const char *word, const char *const *names, int n, const char **hint)
{
    *hint = NULL;
    return look_up(commands, word, names, n, hint);
}

static int min3(int a, int b, int c)
{
    return a < b ? (a < c ? a : c) : (b < c ? b : c);
}

/* Returns the edit distance of two words; a swap of neighbouring letters counts as one edit. */
static int edits_between(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b), d[3][MAXNAME + 1];
    if (na >= MAXNAME || nb >= MAXNAME)
        return MAXNAME;
    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            row[j] = min3(up[j] + 1, row[j - 1] + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min3(row[j], up2[j - 2] + 1, row[j]);
        }
    }
    return d[na % 3][nb];
}

/* Returns 1 if `part` is one or several complete words of the option name `text`, whose words are
 * separated by underscores. */
static int has_part(const char *text, const char *part)
{
    size_t n = strlen(part);
    for (const char *p = text; (p = strstr(p, part)); p++)
        if ((p == text || p[-1] == '_') && (!p[n] || p[n] == '_'))
            return 1;
    return 0;
}

/* Returns the distance of a known name from the typed word. The distance is the edit distance, or
 * less if one of the two names is a part of the other, so that `--inference_steps` finds
 * `--num_inference_steps`. A part is ignored if it is shorter than half the typed word. */
static int name_distance(const char *word, const char *name)
{
    int    k = edits_between(word, name), part = 2 * MAXNAME;
    size_t n = strlen(word), m = strlen(name);
    if (n > 2 && (has_part(name, word) || strncmp(name, word, n) == 0))
        part = 1;
    else if (m > 2 && 2 * m >= n && has_part(word, name))
        part = 2;
    return part < k ? part : k;
}

const char *xd_opt_nearest(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    int         letters = (int)strlen(word), limit = letters < 5 ? 2 : (letters + 1) / 3 + 1;
    for (int i = 0; i < n; i++) {
        int k = name_distance(word, names[i]);
        if (k < limit)
            limit = k, best = names[i];
    }
    return best;
}
