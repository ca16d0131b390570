/* xdit_models.c - the tables of xDiT's models */
#include "cli/xdit_models.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

enum {
    CFG = XD_CAN_CFG,
    USP = XD_CAN_SP | XD_CAN_RING,
    PP = XD_CAN_PP,
    TP = XD_CAN_TP,
    VAE = XD_CAN_VAE,
    FSDP = XD_CAN_FSDP,
    GUIDE = XD_HAS_GUIDANCE,
    ROWS = XD_HAS_ROWS,
    FILM = XD_HAS_VIDEO,
};

const xd_xdit_model xd_xdit_models[] = {
    /* example scripts */
    { "PixArt-alpha", "pixartalpha_example ray_pixartalpha_example pixartalpha_generate", NULL,
      "xFuserPixArtAlphaPipeline", "pixart-alpha", 8, 2, CFG | USP | PP | VAE | FSDP | ROWS },
    { "PixArt-Sigma", "pixartsigma_example ray_pixartsigma_example", NULL,
      "xFuserPixArtSigmaPipeline", "pixart-sigma", 8, 2, CFG | USP | PP | VAE | FSDP | ROWS },
    { "Stable Diffusion 3", "sd3_example sd3_ray_example ray_sd3_example", NULL,
      "xFuserStableDiffusion3Pipeline", "sd3", 8, 2, CFG | USP | PP | VAE | ROWS | GUIDE },
    { "FLUX.1", "flux_example flux_usp_example ray_flux_example flux flux_generate flux_service",
      NULL, "xFuserFluxPipeline", "flux", 16, 1, USP | PP | TP | VAE | ROWS | GUIDE },
    { "FLUX.1 control", "flux_control_example", NULL, "xFuserFluxControlPipeline", NULL, 16, 1,
      USP | PP | VAE | ROWS | GUIDE },
    { "FLUX.1 Kontext", "flux_kontext_example", NULL, "xFuserFluxKontextPipeline", NULL, 16, 1,
      USP | VAE | GUIDE },
    { "FLUX.2", "flux2_example", NULL, "xFuserFlux2Pipeline", NULL, 16, 1,
      USP | PP | VAE | FSDP | GUIDE },
    { "CogVideoX", "cogvideox_example cogvideox_usp_example cogvideox_teacache_example", NULL,
      "xFuserCogVideoXPipeline", "cogvideox", 8, 2, CFG | USP | ROWS | GUIDE | FILM },
    { "CogVideoX from an image", "cogvideox_i2v_example", NULL, "CogVideoXImageToVideoPipeline",
      "cogvideox-i2v", 8, 2, CFG | USP | ROWS | GUIDE | FILM },
    { "ConsisID", "consisid_example consisid_usp_example", NULL, "xFuserConsisIDPipeline", NULL, 8,
      2, CFG | USP | ROWS | GUIDE | FILM },
    { "HunyuanDiT", "hunyuandit_example ray_hunyuandit_example", NULL, "xFuserHunyuanDiTPipeline",
      "hunyuandit", 8, 2, CFG | USP | PP | VAE | ROWS | XD_HAS_PAIRS },
    { "HunyuanVideo", "hunyuan_video_usp_example", NULL, "HunyuanVideoPipeline", NULL, 8, 2,
      USP | GUIDE | FILM },
    { "HunyuanVideo-1.5", "hunyuan_video15_example", NULL, "HunyuanVideo15Pipeline", NULL, 16, 1,
      USP | GUIDE | FILM },
    { "SANA", "sana_example", NULL, "xFuserSanaPipeline", NULL, 32, 1,
      CFG | USP | PP | ROWS | GUIDE },
    { "SANA-Sprint", "sana_sprint_example", NULL, "xFuserSanaSprintPipeline", NULL, 32, 1,
      USP | ROWS | GUIDE },
    { "SDXL", "sdxl_example", NULL, "xFuserStableDiffusionXLPipeline", NULL, 8, 1, CFG | GUIDE },
    { "Latte", "latte_example", NULL, "xFuserLattePipeline", NULL, 8, 2, USP | ROWS | FILM },
    { "Wan", "wan_example wan_i2v_example wan_usp_example wan_pipeline_example", NULL,
      "WanPipeline", NULL, 8, 2, USP | FILM | GUIDE },
    { "Z-Image", "zimage_example ray_zimage_example", NULL, "ZImagePipeline", NULL, 8, 2,
      CFG | USP | GUIDE | XD_HAS_PADDED_HEADS },
    { "Lumina", "lumina2_example lumina_cfg_example", NULL, "Lumina2Pipeline", NULL, 8, 2,
      CFG | USP | GUIDE },
    /* of the runner; a name is looked for from the first row on */
    { "FLUX.1 Kontext", NULL, "FLUX.1-Kontext", "FluxKontext", NULL, 16, 1, USP | VAE | FSDP },
    { "FLUX.1", NULL, "FLUX.1", "Flux", "flux", 16, 1, USP | PP | VAE | FSDP },
    { "FLUX.2", NULL, "FLUX.2", "Flux2", NULL, 16, 1, USP | PP | VAE | FSDP },
    { "Stable Diffusion 3.5", NULL, "stable-diffusion-3.5 SD3.5", "StableDiffusion35", "sd3", 8, 2,
      CFG | USP | PP | FSDP | ROWS },
    { "HunyuanVideo-1.5", NULL, "HunyuanVideo-1.5", "HunyuanVideo15", NULL, 16, 1, USP | FILM },
    { "HunyuanVideo", NULL, "HunyuanVideo", "HunyuanVideo", NULL, 8, 2, USP | FILM },
    { "CausalWan", NULL, "CausalWan", "CausalWan", NULL, 8, 2, FSDP | FILM },
    { "Wan from an image", NULL, "I2V", "WanI2V", NULL, 8, 2, CFG | USP | VAE | FSDP | FILM },
    { "Wan", NULL, "Wan2", "Wan", NULL, 8, 2, USP | VAE | FSDP | FILM },
    { "LTX-2", NULL, "LTX-2", "LTX2", NULL, 32, 1, USP | FILM },
    { "Qwen-Image", NULL, "Qwen-Image", "QwenImage", NULL, 8, 2, USP | FSDP },
    { "Z-Image Turbo", NULL, "Z-Image-Turbo", "ZImageTurbo", NULL, 8, 2,
      USP | FSDP | XD_HAS_PADDED_HEADS },
    { "Z-Image", NULL, "Z-Image", "ZImage", NULL, 8, 2, CFG | USP | FSDP | XD_HAS_PADDED_HEADS },
    { "Krea-2", NULL, "Krea-2", "Krea2", NULL, 16, 1, XD_CAN_SP | FSDP },
    { "Cosmos3", NULL, "Cosmos3", "Cosmos3", NULL, 16, 2, CFG | USP | VAE | FSDP | FILM },
    { 0 },
};

static const xd_xdit_net nets[] = {
    { "PixArt", 16, 28, 0 },        { "FLUX.1", 24, 57, 0 },
    { "stable-diffusion-3.5-large", 38, 38, 0 },
    { "stable-diffusion-3", 24, 24, 0 },
    { "CogVideoX-2b", 30, 30, 0 },  { "CogVideoX", 48, 42, 0 },     { "ConsisID", 48, 42, 0 },
    { "HunyuanDiT", 16, 40, 0 },    { "HunyuanVideo-1.5", 16, 54, 0 },
    { "HunyuanVideo", 24, 60, 0 },  { "Wan2.1-T2V-1.3B", 12, 30, 0 }, { "VACE-1.3B", 12, 30, 0 },
    { "TI2V-5B", 24, 30, 0 },       { "Wan2", 40, 40, 0 },          { "Qwen-Image", 24, 60, 0 },
    { "FLUX.2-klein-9B", 32, 32, 0 }, { "FLUX.2-klein-4B", 24, 25, 0 }, { "FLUX.2", 48, 56, 0 },
    { "Z-Image", 30, 34, 0 },       { "Krea-2", 48, 28, 0 },        { "LTX-2", 32, 48, 0 },
    { "Latte", 16, 56, 0 },         { "Sana_1600M", 70, 20, 20 },   { "SANA1.5_1.6B", 70, 20, 20 },
    { "Sana_600M", 36, 28, 16 },    { "Cosmos3", 32, 36, 0 },
};

/* Names of the runner's registry that are no names of the hub's. */
static const struct { const char *name, *repo;
} registered[] = {
    { "FLUX.1-dev", "black-forest-labs/FLUX.1-dev" },
    { "FLUX.1-Kontext-dev", "black-forest-labs/FLUX.1-Kontext-dev" },
    { "FLUX.2-dev", "black-forest-labs/FLUX.2-dev" },
    { "FLUX.2-klein-9B", "black-forest-labs/FLUX.2-klein-9B" },
    { "FLUX.2-klein-4B", "black-forest-labs/FLUX.2-klein-4B" },
    { "SD3.5", "stabilityai/stable-diffusion-3.5-large" },
    { "stable-diffusion-3.5-large", "stabilityai/stable-diffusion-3.5-large" },
    { "HunyuanVideo", "tencent/HunyuanVideo" },
    { "Hunyuanvideo-1.5", "tencent/HunyuanVideo-1.5" },
    { "Hunyuanvideo-1.5-Sparse", "tencent/HunyuanVideo-1.5-Sparse" },
    { "Hunyuanvideo-1.5-Distilled",
      "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-720p_i2v_distilled" },
    { "CausalWan", "FastVideo/CausalWan2.2-I2V-A14B-Preview-Diffusers" },
    { "Wan2.1-I2V", "Wan-AI/Wan2.1-I2V-14B-720P-Diffusers" },
    { "Wan2.2-I2V", "Wan-AI/Wan2.2-I2V-A14B-Diffusers" },
    { "Wan2.1-T2V", "Wan-AI/Wan2.1-T2V-14B-Diffusers" },
    { "Wan2.2-T2V", "Wan-AI/Wan2.2-T2V-A14B-Diffusers" },
    { "Wan2.2-TI2V", "Wan-AI/Wan2.2-TI2V-5B-Diffusers" },
    { "Wan2.1-VACE-14B", "Wan-AI/Wan2.1-VACE-14B-diffusers" },
    { "Wan2.1-VACE-1.3B", "Wan-AI/Wan2.1-VACE-1.3B-diffusers" },
    { "LTX-2", "Lightricks/LTX-2" },
    { "LTX-2.3", "dg845/LTX-2.3-Diffusers" },
    { "Qwen-Image", "Qwen/Qwen-Image" },
    { "Qwen-Image-2512", "Qwen/Qwen-Image-2512" },
    { "Qwen-Image-Edit", "Qwen/Qwen-Image-Edit" },
    { "Qwen-Image-Edit-2509", "Qwen/Qwen-Image-Edit-2509" },
    { "Qwen-Image-Edit-2511", "Qwen/Qwen-Image-Edit-2511" },
    { "Z-Image", "Tongyi-MAI/Z-Image" },
    { "Z-Image-Turbo", "Tongyi-MAI/Z-Image-Turbo" },
    { "Krea-2-Raw", "krea/krea-2-raw" },
    { "Krea-2-Turbo", "krea/krea-2-turbo" },
    { "Cosmos3-Super", "nvidia/Cosmos3-Super" },
    { "Cosmos3-Nano", "nvidia/Cosmos3-Nano" },
};

static int same_letters(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i]))
            return 0;
    return 1;
}

/* Is one of the first n letters of `piece` in `text`, whatever their case? */
static int has(const char *text, const char *piece, size_t n)
{
    for (; strlen(text) >= n; text++)
        if (same_letters(text, piece, n))
            return 1;
    return 0;
}

const xd_xdit_model *xd_xdit_by_script(const char *script)
{
    const char *base = strrchr(script, '/') ? strrchr(script, '/') + 1 : script;
    size_t      n = strlen(base);
    if (n > 3 && strcmp(base + n - 3, ".py") == 0)
        n -= 3;
    for (const xd_xdit_model *m = xd_xdit_models; m->title; m++)
        for (const char *p = m->scripts; p && *p; p += strcspn(p, " "), p += *p == ' ')
            if (strcspn(p, " ") == n && strncmp(p, base, n) == 0)
                return m;
    return NULL;
}

const xd_xdit_model *xd_xdit_by_name(const char *model)
{
    for (const xd_xdit_model *m = xd_xdit_models; m->title; m++)
        for (const char *p = m->names; p && *p; p += strcspn(p, " "), p += *p == ' ')
            if (has(model, p, strcspn(p, " ")))
                return m;
    return NULL;
}

const xd_xdit_net *xd_xdit_net_find(const char *model)
{
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        if (has(model, nets[i].name, strlen(nets[i].name)))
            return &nets[i];
    return NULL;
}

const char *xd_xdit_repo(const char *name)
{
    for (size_t i = 0; i < sizeof registered / sizeof *registered; i++)
        if (strlen(name) == strlen(registered[i].name) &&
            same_letters(name, registered[i].name, strlen(name)))
            return registered[i].repo;
    return NULL;
}
