/* test_dit.c - diffusion transformers: what they declare, refuse and compute */
#include "models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "PixArt-alpha/PixArt-XL-2-512x512/transformer",
        "PixArt-alpha/PixArt-XL-2-1024-MS/transformer",
        "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS/transformer",
        "black-forest-labs/FLUX.1-dev/transformer",
        "black-forest-labs/FLUX.1-Fill-dev/transformer",
        "black-forest-labs/FLUX.1-Canny-dev/transformer",
        "black-forest-labs/FLUX.1-schnell/transformer",
        "maxin-cn/Latte-1/transformer",
        "stabilityai/stable-diffusion-3-medium-diffusers/transformer",
        "stabilityai/stable-diffusion-3.5-medium/transformer",
        "stabilityai/stable-diffusion-3.5-large/transformer",
        "Tencent-Hunyuan/HunyuanDiT-Diffusers/transformer",
        "Tongyi-MAI/Z-Image-Turbo/transformer",
        "Alpha-VLLM/Lumina-Image-2.0/transformer",
        "Efficient-Large-Model/Sana_1600M_1024px_diffusers/transformer",
        "Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers/transformer",
        "Efficient-Large-Model/Sana_Sprint_1.6B_1024px_diffusers/transformer",
        "krea/Krea-2-Raw/transformer",
        "krea/Krea-2-Turbo/transformer",
        "black-forest-labs/FLUX.2-klein-4B/transformer",
        "black-forest-labs/FLUX.2-dev/transformer",
        "Qwen/Qwen-Image/transformer",
        "Qwen/Qwen-Image-2.1/transformer",
        "fal/AuraFlow-v0.3/transformer",
        "hunyuanvideo-community/HunyuanVideo/transformer",
        "hunyuanvideo-community/HunyuanVideo-I2V/transformer",
        "hunyuanvideo-community/HunyuanVideo-I2V-33ch/transformer",
        "stabilityai/stable-diffusion-xl-base-1.0/unet",
        "stabilityai/sdxl-turbo/unet",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v/transformer",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-720p_t2v/transformer",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_i2v/transformer",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-720p_i2v/transformer",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_i2v_step_distilled/transformer",
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void files_in_the_tree(void **state)
{
    (void)state;
    check_tree("transformer");
}

/* Of models without a listing: what diffusers' class has with its defaults, or with the config of
 * Stable Diffusion 1.5 and 2.1, the published sizes. */
static void published_numbers(void **state)
{
#define SD                                                                                         \
    "{\"block_out_channels\":[320,640,1280,1280],\"up_block_types\":[\"UpBlock2D\","               \
    "\"CrossAttnUpBlock2D\",\"CrossAttnUpBlock2D\",\"CrossAttnUpBlock2D\"],"                       \
    "\"down_block_types\":[\"CrossAttnDownBlock2D\",\"CrossAttnDownBlock2D\","                     \
    "\"CrossAttnDownBlock2D\",\"DownBlock2D\"],"
    (void)state;
    declares("ChromaTransformer2DModel", "{}", 1023, INT64_C(8899983424));
    declares("UNet2DConditionModel", SD "\"attention_head_dim\":8,\"cross_attention_dim\":768}",
             686, 859520964);
    declares("UNet2DConditionModel",
             SD "\"attention_head_dim\":[5,10,20,20],\"cross_attention_dim\":1024,"
                "\"use_linear_projection\":true}",
             686, 865910724);
#undef SD
}

static void refusals_of_videos(void **state)
{
    (void)state;
    refuses("LatteTransformer3DModel", "{}", XD_EUNSUPPORTED, "norm_type");
    refuses("LatteTransformer3DModel",
            "{\"norm_type\":\"ada_norm_single\",\"norm_elementwise_affine\":false,"
            "\"activation_fn\":\"gelu\",\"video_length\":-1,\"in_channels\":4,"
            "\"patch_size\":2,\"cross_attention_dim\":1408,\"caption_channels\":64}",
            XD_EFORMAT, "video_length");
}

static void refusals_of_krea2(void **state)
{
    const char *krea2 = "Krea2Transformer2DModel";
    (void)state;
    refuses(krea2, "{\"axes_dims_rope\":[32,48,46]}", XD_EFORMAT, "126 features");
    refuses(krea2, "{\"axes_dims_rope\":[64,64]}", XD_EFORMAT, "2 axes");
    refuses(krea2, "{\"axes_dims_rope\":[31,49,48]}", XD_EFORMAT, "31");
    refuses(krea2, "{\"num_key_value_heads\":11}", XD_EFORMAT, "num_key_value_heads 11");
    refuses(krea2, "{\"text_num_key_value_heads\":3}", XD_EFORMAT, "text_num_key_value_heads 3");
    refuses(krea2, "{\"text_num_attention_heads\":19}", XD_EFORMAT, "2560");
    refuses(krea2, "{\"in_channels\":62}", XD_EFORMAT, "in_channels 62");
    refuses(krea2, "{\"timestep_embed_dim\":255}", XD_EFORMAT, "timestep_embed_dim 255");
    refuses(krea2, "{\"num_refiner_text_blocks\":9}", XD_EFORMAT, "num_refiner_text_blocks is 9");
    refuses(krea2, "{\"norm_eps\":0}", XD_EFORMAT, "norm_eps 0");
}

static void refusals(void **state)
{
    const char *pix = "PixArtTransformer2DModel", *old = "Transformer2DModel";
    const char *flux = "FluxTransformer2DModel", *sd3 = "SD3Transformer2DModel",
               *hun = "HunyuanDiT2DModel", *two = "Flux2Transformer2DModel";
    (void)state;
    refuses(two, "{\"patch_size\":2}", XD_EUNSUPPORTED, "patch_size");
    refuses(two, "{\"axes_dims_rope\":[32,32,64]}", XD_EUNSUPPORTED, "3 axes");
    refuses(two, "{\"axes_dims_rope\":[32,32,32,30]}", XD_EFORMAT, "126");
    refuses(two, "{\"mlp_ratio\":0}", XD_EFORMAT, "mlp_ratio");
    refuses(old, "{\"num_attention_heads\":8}", XD_EUNSUPPORTED, "norm_type");
    refuses(old, "{\"norm_type\":\"ada_norm_zero\"}", XD_EUNSUPPORTED, "ada_norm_zero");
    refuses(pix, "{\"activation_fn\":\"geglu\"}", XD_EUNSUPPORTED, "geglu");
    refuses(pix, "{\"attention_type\":\"gated\"}", XD_EUNSUPPORTED, "gated");
    refuses(pix, "{\"norm_elementwise_affine\":true}", XD_EUNSUPPORTED, "norm_elementwise_affine");
    refuses(pix, "{\"attention_head_dim\":0}", XD_EFORMAT, "attention_head_dim");
    refuses(pix, "{\"num_attention_heads\":-3}", XD_EFORMAT, "num_attention_heads");
    refuses(pix, "{\"num_layers\":2000000000}", XD_EFORMAT, "num_layers");
    refuses(pix, "{\"patch_size\":0}", XD_EFORMAT, "patch_size");
    refuses(pix, "{\"sample_size\":1,\"patch_size\":2}", XD_EFORMAT, "sample_size");
    refuses(pix, "{\"out_channels\":12}", XD_EUNSUPPORTED, "12");
    refuses(pix, "{\"caption_channels\":64,\"cross_attention_dim\":64}", XD_EFORMAT, "64");
    refuses(pix, "{\"num_attention_heads\":2,\"attention_head_dim\":16}", XD_EFORMAT, "32");
    refuses(pix, "{\"interpolation_scale\":0}", XD_EFORMAT, "interpolation_scale");
    refuses(pix, "{\"num_layers\":\"many\"}", XD_EFORMAT, "num_layers");
    refuses(flux, "{\"patch_size\":2}", XD_EUNSUPPORTED, "patch_size");
    refuses(flux, "{\"in_channels\":64,\"out_channels\":384}", XD_EUNSUPPORTED, "384");
    refuses(flux, "{\"axes_dims_rope\":[16,56,54]}", XD_EFORMAT, "126");
    refuses(flux, "{\"axes_dims_rope\":[15,57,56]}", XD_EFORMAT, "15");
    refuses(flux, "{\"axes_dims_rope\":[64,64]}", XD_EUNSUPPORTED, "2 axes");
    refuses(flux, "{\"num_attention_heads\":0}", XD_EFORMAT, "num_attention_heads");
    const char *chroma = "ChromaTransformer2DModel";
    refuses(chroma, "{\"patch_size\":2}", XD_EUNSUPPORTED, "patch_size");
    refuses(chroma, "{\"axes_dims_rope\":[16,56,54]}", XD_EFORMAT, "126");
    refuses(chroma, "{\"approximator_num_channels\":60}", XD_EFORMAT, "60");
    refuses(chroma, "{\"approximator_layers\":17}", XD_EFORMAT, "approximator_layers");
    refuses(chroma, "{\"approximator_hidden_dim\":0}", XD_EFORMAT, "approximator_hidden_dim");
    const char *aura = "AuraFlowTransformer2DModel";
    refuses(aura, "{\"out_channels\":8}", XD_EUNSUPPORTED, "8");
    refuses(aura, "{\"caption_projection_dim\":64}", XD_EFORMAT, "64");
    refuses(aura, "{\"pos_embed_max_size\":0}", XD_EFORMAT, "pos_embed_max_size");
    refuses(aura, "{\"attention_head_dim\":0}", XD_EFORMAT, "attention_head_dim");
    refuses(aura, "{\"num_single_dit_layers\":-1}", XD_EFORMAT, "num_single_dit_layers");
    const char *qwen = "QwenImageTransformer2DModel";
    refuses(qwen, "{\"out_channels\":8}", XD_EUNSUPPORTED, "out_channels 8");
    refuses(qwen, "{\"guidance_embeds\":true}", XD_EUNSUPPORTED, "guidance_embeds");
    refuses(qwen, "{\"axes_dims_rope\":[16,56,54]}", XD_EFORMAT, "126");
    refuses(qwen, "{\"joint_attention_dim\":0}", XD_EFORMAT, "joint_attention_dim");
    refuses(sd3, "{\"qk_norm\":\"layer_norm\"}", XD_EUNSUPPORTED, "layer_norm");
    refuses(sd3, "{\"caption_projection_dim\":64}", XD_EFORMAT, "64");
    refuses(sd3, "{\"dual_attention_layers\":[0,18]}", XD_EFORMAT, "18");
    refuses(sd3, "{\"out_channels\":8}", XD_EUNSUPPORTED, "8");
    refuses(sd3, "{\"num_layers\":0}", XD_EFORMAT, "num_layers");
#define HUN "{\"in_channels\":4,\"patch_size\":2,\"hidden_size\":1408,"
    refuses(hun, HUN "\"norm_type\":\"ada_norm\"}", XD_EUNSUPPORTED, "ada_norm");
    refuses(hun, HUN "\"activation_fn\":\"geglu\"}", XD_EUNSUPPORTED, "geglu");
    refuses(hun, HUN "\"num_layers\":7}", XD_EFORMAT, "7");
    refuses(hun, HUN "\"num_attention_heads\":8}", XD_EFORMAT, "704");
    refuses(hun, HUN "\"attention_head_dim\":22,\"num_attention_heads\":64}", XD_EFORMAT, "22");
    refuses(hun, HUN "\"cross_attention_dim_t5\":20}", XD_EFORMAT, "20");
    refuses(hun, HUN "\"mlp_ratio\":0}", XD_EFORMAT, "mlp_ratio");
    refuses(hun, HUN "\"text_len\":0}", XD_EFORMAT, "text_len");
    refuses(hun, "{\"patch_size\":2,\"hidden_size\":1408}", XD_EFORMAT, "in_channels");
#undef HUN
    const char *zimage = "ZImageTransformer2DModel";
    refuses(zimage, "{\"all_patch_size\":[2,4]}", XD_EUNSUPPORTED, "all_patch_size");
    refuses(zimage, "{\"all_f_patch_size\":[2]}", XD_EUNSUPPORTED, "all_f_patch_size");
    refuses(zimage, "{\"siglip_feat_dim\":1152}", XD_EUNSUPPORTED, "1152");
    refuses(zimage, "{\"n_kv_heads\":10}", XD_EUNSUPPORTED, "n_kv_heads 10");
    refuses(zimage, "{\"dim\":3841}", XD_EFORMAT, "3841");
    refuses(zimage, "{\"axes_dims\":[32,48,46]}", XD_EFORMAT, "126");
    refuses(zimage, "{\"axes_dims\":[31,49,48]}", XD_EFORMAT, "31");
    refuses(zimage, "{\"axes_lens\":[1536,512]}", XD_EUNSUPPORTED, "axes_lens 2");
    refuses(zimage, "{\"axes_lens\":[33,512,512]}", XD_EFORMAT, "axes_lens");
    refuses(zimage, "{\"n_layers\":-1}", XD_EFORMAT, "n_layers");
}

static void lumina_refusals(void **state)
{
    const char *lumina = "Lumina2Transformer2DModel";
    (void)state;
    refuses(lumina, "{\"patch_size\":1}", XD_EUNSUPPORTED, "patch_size 1");
    refuses(lumina, "{\"out_channels\":32}", XD_EUNSUPPORTED, "out_channels 32");
    refuses(lumina, "{\"hidden_size\":2305}", XD_EFORMAT, "2305");
    refuses(lumina, "{\"num_kv_heads\":7}", XD_EFORMAT, "num_kv_heads 7");
    refuses(lumina, "{\"num_kv_heads\":-1}", XD_EFORMAT, "num_kv_heads");
    refuses(lumina, "{\"multiple_of\":0}", XD_EFORMAT, "multiple_of");
    refuses(lumina, "{\"ffn_dim_multiplier\":-1}", XD_EFORMAT, "ffn_dim_multiplier is -1");
    refuses(lumina, "{\"sample_size\":0}", XD_EFORMAT, "sample_size");
    refuses(lumina, "{\"axes_dim_rope\":[32,32,30]}", XD_EFORMAT, "axes_dim_rope is 94");
    refuses(lumina, "{\"axes_dim_rope\":[32,32]}", XD_EUNSUPPORTED, "2 axes");
    refuses(lumina, "{\"axes_lens\":[1,512,512]}", XD_EFORMAT, "axes_lens");
    refuses(lumina, "{\"num_layers\":-1}", XD_EFORMAT, "num_layers");
}

static void hunyuan_video_refusals(void **state)
{
    const char *name = "HunyuanVideoTransformer3DModel";
    (void)state;
    refuses(name, "{\"qk_norm\":\"layer_norm\"}", XD_EUNSUPPORTED, "layer_norm");
    refuses(name, "{\"mlp_ratio\":3}", XD_EUNSUPPORTED, "mlp_ratio 3");
    refuses(name, "{\"image_condition_type\":\"latent_concat\"}", XD_EUNSUPPORTED,
            "in_channels 16 is not 2 out_channels + 1, 33");
    refuses(name, "{\"image_condition_type\":\"token_replace\",\"in_channels\":33}",
            XD_EUNSUPPORTED, "in_channels 33 is not out_channels, 16");
    refuses(name, "{\"image_condition_type\":\"token_replace\",\"patch_size_t\":2}",
            XD_EUNSUPPORTED, "patch_size_t is 2");
    refuses(name, "{\"image_condition_type\":\"first\"}", XD_EUNSUPPORTED, "'first'");
    refuses(name, "{\"out_channels\":8}", XD_EUNSUPPORTED, "out_channels, 8");
    refuses(name, "{\"rope_axes_dim\":[16,56,54]}", XD_EFORMAT, "126");
    refuses(name, "{\"rope_axes_dim\":[16,56]}", XD_EUNSUPPORTED, "2 axes");
    refuses(name, "{\"rope_theta\":0}", XD_EFORMAT, "rope_theta 0");
    refuses(name, "{\"num_refiner_layers\":-1}", XD_EFORMAT, "num_refiner_layers");
    refuses(name, "{\"text_embed_dim\":0}", XD_EFORMAT, "text_embed_dim");
    refuses(name, "{\"pooled_projection_dim\":0}", XD_EFORMAT, "pooled_projection_dim");
    refuses(name, "{\"patch_size_t\":0}", XD_EFORMAT, "patch_size_t");
}

/* U-Nets of other models, and of impossible sizes. */
static void unet_refusals(void **state)
{
#define UNET                                                                                   \
    "\"addition_embed_type\":\"text_time\",\"addition_time_embed_dim\":8,"                       \
    "\"projection_class_embeddings_input_dim\":64,"                                            \
    "\"down_block_types\":[\"DownBlock2D\",\"CrossAttnDownBlock2D\"],"                         \
    "\"up_block_types\":[\"CrossAttnUpBlock2D\",\"UpBlock2D\"],"
#define LISTS "\"attention_head_dim\":[2,4],\"transformer_layers_per_block\":[1,2],"
    const char *unet = "UNet2DConditionModel";
    (void)state;
    refuses(unet, "{}", XD_EFORMAT, "number of block_out_channels");
    refuses(unet, "{\"addition_embed_type\":\"image\"}", XD_EUNSUPPORTED,
            "addition_embed_type is 'image'");
    refuses(unet, "{" UNET "\"time_cond_proj_dim\":255}", XD_EFORMAT, "time_cond_proj_dim is 255");
    refuses(unet, "{" UNET "\"out_channels\":8}", XD_EUNSUPPORTED, "out_channels 8");
    refuses(unet, "{\"in_channels\":9,\"out_channels\":4}", XD_EUNSUPPORTED, "in_channels 9");
    refuses(unet, "{" UNET "\"block_out_channels\":[320]}", XD_EFORMAT,
            "number of block_out_channels");
    refuses(unet, "{" UNET "\"attention_head_dim\":[2,4,8],\"block_out_channels\":[64,128]}",
            XD_EUNSUPPORTED, "must be lists of 2 numbers");
    refuses(unet, "{" UNET LISTS "\"block_out_channels\":[64,100]}", XD_EFORMAT,
            "block_out_channels has 100");
    refuses(unet, "{" UNET LISTS "\"block_out_channels\":[64,128],\"layers_per_block\":4}",
            XD_EFORMAT, "layers_per_block is 4");
    refuses(unet,
            "{" UNET LISTS "\"block_out_channels\":[64,128],"
            "\"addition_time_embed_dim\":16}",
            XD_EFORMAT, "projection_class_embeddings_input_dim 64");
    refuses(unet,
            "{" UNET LISTS "\"block_out_channels\":[64,128],"
            "\"down_block_types\":[\"DownBlock2D\",\"AttnDownBlock2D\"]}",
            XD_EUNSUPPORTED, "AttnDownBlock2D");
#undef UNET
#undef LISTS
}

static void hunyuan_video15_refusals(void **state)
{
    const char *name = "HunyuanVideo15Transformer3DModel";
    (void)state;
    refuses(name, "{\"qk_norm\":\"layer_norm\"}", XD_EUNSUPPORTED, "layer_norm");
    refuses(name, "{\"mlp_ratio\":3}", XD_EUNSUPPORTED, "mlp_ratio 3");
    refuses(name, "{\"task_type\":\"v2v\"}", XD_EUNSUPPORTED, "'v2v'");
    refuses(name, "{\"in_channels\":32}", XD_EUNSUPPORTED, "in_channels 32");
    refuses(name, "{\"rope_axes_dim\":[16,56,54]}", XD_EFORMAT, "126");
    refuses(name, "{\"rope_theta\":0}", XD_EFORMAT, "rope_theta 0");
    refuses(name, "{\"num_refiner_layers\":17}", XD_EFORMAT, "num_refiner_layers");
    refuses(name, "{\"text_embed_2_dim\":0}", XD_EFORMAT, "text_embed_2_dim");
    refuses(name, "{\"image_embed_dim\":0}", XD_EFORMAT, "image_embed_dim");
    refuses(name, "{\"target_size\":8}", XD_EFORMAT, "target_size");
    refuses(name, "{\"patch_size_t\":0}", XD_EFORMAT, "patch_size_t");
}

static void qwen21_refusals(void **state)
{
    const char *qwen = "QwenImage21Transformer2DModel";
    (void)state;
    refuses(qwen, "{\"causal_condition\":false}", XD_EUNSUPPORTED, "causal_condition");
    refuses(qwen, "{\"patch_size\":2}", XD_EUNSUPPORTED, "patch_size 2");
    refuses(qwen, "{\"out_channels\":32}", XD_EUNSUPPORTED, "out_channels 32");
    refuses(qwen, "{\"mlp_ratio\":0}", XD_EFORMAT, "mlp_ratio is 0");
    refuses(qwen, "{\"eps\":-1}", XD_EFORMAT, "eps is -1");
    refuses(qwen, "{\"axes_dims_rope\":[16,56]}", XD_EUNSUPPORTED, "axes_dims_rope has 2");
}

static void sana_refusals(void **state)
{
    const char *sana = "SanaTransformer2DModel", *video = "SanaVideoTransformer3DModel";
    (void)state;
    refuses(sana, "{\"qk_norm\":\"layer_norm\"}", XD_EUNSUPPORTED, "qk_norm 'layer_norm'");
    refuses(sana, "{\"norm_elementwise_affine\":true}", XD_EUNSUPPORTED, "elementwise_affine");
    refuses(sana, "{\"interpolation_scale\":2}", XD_EUNSUPPORTED, "interpolation_scale 2");
    refuses(sana, "{\"out_channels\":48}", XD_EUNSUPPORTED, "out_channels 48");
    refuses(sana, "{\"num_cross_attention_heads\":21}", XD_EFORMAT, "21");
    refuses(sana, "{\"cross_attention_dim\":1152}", XD_EFORMAT, "1152");
    refuses(sana, "{\"attention_head_dim\":256}", XD_EFORMAT, "attention_head_dim is 256");
    refuses(sana, "{\"mlp_ratio\":-1}", XD_EFORMAT, "mlp_ratio is -1");
    refuses(sana, "{\"patch_size\":0}", XD_EFORMAT, "patch_size");
    refuses(video, "{\"patch_size\":[2,2]}", XD_EFORMAT, "patch_size has 2");
    refuses(video, "{\"patch_size\":[1,0,2]}", XD_EFORMAT, "patch_size has 0");
    refuses(video, "{\"guidance_embeds\":true}", XD_EUNSUPPORTED, "guidance_embeds");
    refuses(video, "{\"attention_head_dim\":111}", XD_EFORMAT, "attention_head_dim 111");
}

/* ---- golden: transformers ----------------------------------------------------------------- */

/* [C,H,W] and tokens [N, C p^2]: which way is told by `to_tokens`. */
static void patches(float *tok, float *lat, int64_t C, int64_t H, int64_t W, int64_t p,
                    int to_tokens)
{
    for (int64_t c = 0; c < C; c++)
        for (int64_t y = 0; y < H; y++)
            for (int64_t z = 0; z < W; z++) {
                int64_t n = y / p * (W / p) + z / p, f = (c * p + y % p) * p + z % p;
                float  *a = &tok[n * C * p * p + f], *b = &lat[(c * H + y) * W + z];
                *(to_tokens ? a : b) = *(to_tokens ? b : a);
            }
}

typedef struct scene { /* one golden case of a transformer, opened */
    part        p;
    bench       b;
    xd_st      *g;
    xd_dit_info info;
    xd_layout   lay;
    int64_t     C, H, W, N, F; /* latents, tokens, features of a token */
    float      *lat, *tok;     /* latents as tokens; text */
    xd_tensor   text;
    double      t, size[2];
} scene;

static void open_scene(scene *s, int at, xd_dtype want, int counts, const char *embeds)
{
    char      path[1024];
    xd_decl   d;
    xd_tensor t;
    xd_err    e = { 0 };
    memset(s, 0, sizeof *s);
    snprintf(path, sizeof path, "%s/transformer", golden[at].model);
    open_config(&s->p, path);
    open_files(&s->p, path);
    s->p.dit->info(s->p.net.cfg, &s->info);
    snprintf(path, sizeof path, "tests/golden/%s/golden.safetensors", golden[at].name);
    ok(xd_st_open(&s->g, path, "model", &e), &e);
    open_bench(&s->b, want, counts);
    visit(&s->p, s->b.dev, s->b.type, counts ? XD_VISIT_COUNT : XD_VISIT_LOAD, &d);

    float  *in = reference(s->g, "dit.in", &t), *v;
    int64_t p = s->info.patch[1];
    s->C = t.d[0], s->H = t.d[1], s->W = t.d[2];
    s->N = s->H / p * (s->W / p), s->F = s->C * p * p;
    s->lat = malloc((size_t)(s->N * s->F) * sizeof *s->lat);
    patches(s->lat, in, s->C, s->H, s->W, p, 1);
    s->lay = (xd_layout){
        .len = { s->N, 0, 0 }, .grid = { 1, s->H / p, s->W / p }, .npatch = 1, .nsp = 1
    };
    s->tok = reference(s->g, embeds, &s->text);
    s->text.p = s->tok, s->text.type = XD_F32;
    s->t = (double)*(v = reference(s->g, "timesteps", NULL));
    free(v), free(in);
    v = reference(s->g, "dit.size", NULL);
    s->size[0] = (double)v[0], s->size[1] = (double)v[1];
    free(v);
    assert_int_equal(s->C, s->info.lat_ch);
    assert_int_equal(s->text.d[1], s->info.text_dim);
}

static void close_scene(scene *s)
{
    free(s->lat), free(s->tok);
    xd_st_close(&s->g);
    close_part(&s->p);
    close_bench(&s->b);
}

static void start(scene *s, xd_exec *x)
{
    xd_exec_init(x, s->b.dev, &s->b.tmp, s->b.type);
    x->lay = &s->lay;
}

/* Runs a step of B equal samples as the engine does; returns [B*N, F] (in the arena). */
static xd_tensor run_step(scene *s, xd_exec *x, int B)
{
    const xd_dit *m = s->p.dit;
    xd_tensor     lat = xd_new_f32(x, B * s->N, s->F);
    xd_tensor     text = xd_new_f32(x, s->text.d[0], s->text.d[1]);
    xd_cond       c = { .tok = text };
    xd_input      in = { .lat = lat,
                         .cond = &c,
                         .t = s->t,
                         .guidance = (double)NAN,
                         .size = { s->size[0], s->size[1] } };
    xd_state      st = { .h = xd_new_f32(x, B * s->N, s->info.dim) };
    x->B = B;
    for (int b = 0; b < B; b++)
        xd_put(x, xd_rows(lat, b * s->N, s->N), s->lat);
    xd_put(x, text, s->tok);
    st.local = calloc(1, s->info.local_size);
    void *kept = calloc(1, s->info.kept_size + 1);
    if (m->keep) {
        m->keep(x, &s->p.net, &c, kept);
        m->read(x, &s->p.net, &in, kept);
    }
    st.kept = kept;
    m->cond(x, &s->p.net, &in, &st);
    m->embed(x, &s->p.net, &in, &st);
    for (int i = 0; i < s->p.net.nlayers; i++) {
        size_t mark = xd_arena_mark(x->tmp);
        xd_net_block(x, &s->p.net, i, &st);
        xd_arena_rewind(x->tmp, mark);
    }
    xd_tensor out = m->head(x, &s->p.net, &st);
    free(st.local), free(kept);
    ok(x->err.code, &x->err);
    assert_int_equal(out.d[0], B * s->N);
    assert_int_equal(out.d[1], s->F);
    assert_int_equal(out.type, XD_F32);
    return out;
}

static void compare_out(scene *s, xd_exec *x, xd_tensor out, const char *name, double tol)
{
    xd_tensor t;
    float    *want = reference(s->g, name, &t); /* [Cout,H,W]: noise first, then sigma */
    float    *got = malloc((size_t)(s->N * s->F) * sizeof *got);
    float    *lat = malloc((size_t)(s->N * s->F) * sizeof *lat);
    xd_get(x, got, out);
    patches(got, lat, s->C, s->H, s->W, s->info.patch[1], 0);
    near(name, lat, want, s->N * s->F, tol);
    free(want), free(got), free(lat);
}

static void run_dit(int at, xd_dtype want, double tol)
{
    scene   s;
    xd_exec x;
    for (int k = 0; k < 2; k++) {
        int look = k == 0 && golden[at].dit_blocks;
        open_scene(&s, at, want, 0, k ? "negative_prompt_embeds" : "prompt_embeds");
        watcher w = { s.g, "dit.block", tol, 0 };
        if (look)
            watch(&s.p, compare_block, &w);
        start(&s, &x);
        compare_out(&s, &x, run_step(&s, &x, 1), k ? "dit.uncond" : "dit.cond", tol);
        assert_int_equal(w.seen, look ? s.p.net.nlayers : 0);
        close_scene(&s);
    }
}

static void dit_golden_f32(void **state)
{
    (void)state;
    for (int i = 0; i < NGOLDEN; i++)
        run_dit(i, XD_F32, 2e-4);
}

static void dit_golden_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < NGOLDEN; i++)
        run_dit(i, XD_BF16, 3e-2);
}

/* Several samples in a batch, each as if alone. */
static void dit_batch(void **state)
{
    scene   s;
    xd_exec x;
    (void)state;
    open_scene(&s, MICRO, XD_F32, 0, "prompt_embeds");
    start(&s, &x);
    xd_tensor out = run_step(&s, &x, 3);
    for (int b = 0; b < 3; b++)
        compare_out(&s, &x, xd_rows(out, b * s.N, s.N), "dit.cond", 2e-4);
    close_scene(&s);
}

/* A model holds any rows of the image: their embeddings are those of the whole image. */
static void dit_embeds_its_rows(void **state)
{
    scene     s;
    xd_exec   x;
    xd_tensor t;
    (void)state;
    open_scene(&s, ALPHA, XD_F32, 0, "prompt_embeds");
    float *want = reference(s.g, "dit.embed", &t);
    s.lay.npatch = 3, s.lay.nsp = 2;
    int64_t D = s.info.dim, seen = 0;
    for (int patch = XD_ALL; patch < 3; patch++)
        for (int sp = 0; sp < 2; sp++) {
            start(&s, &x);
            x.patch = patch, x.sp = sp;
            int64_t   n = xd_n(&x, XD_IMG);
            xd_tensor lat = xd_new_f32(&x, n, s.F);
            xd_state  st = { .h = xd_new_f32(&x, n, D) };
            float    *got = malloc((size_t)(n * D) * sizeof *got + 1);
            for (int64_t i = 0; i < n; i++)
                xd_put(&x, xd_rows(lat, i, 1), s.lat + xd_where(&x, XD_IMG, i) * s.F);
            s.p.dit->embed(&x, &s.p.net, &(xd_input){ .lat = lat }, &st);
            ok(x.err.code, &x.err);
            xd_get(&x, got, st.h);
            for (int64_t i = 0; i < n; i++, seen++)
                near("dit.embed", got + i * D, want + xd_where(&x, XD_IMG, i) * D, D, 2e-4);
            free(got);
            xd_arena_rewind(&s.b.tmp, 0);
        }
    assert_int_equal(seen, 2 * s.N);
    free(want);
    close_scene(&s);
}

/* ---- HunyuanDiT --------------------------------------------------------------------------- */

/* Its text, its skips and its numbers: transformers of random weights against diffusers. */
static void run_hunyuan(const char *name, xd_dtype want, double tol)
{
    part        p;
    bench       b;
    xd_exec     x;
    xd_dit_info info;
    xd_tensor   shape;
    xd_st      *st = open_form("hunyuan-forms", name, want, &p, &b, &info, &x);

    float *grid = reference(st, "grid", NULL), *t = reference(st, "time", NULL);
    float *real = reference(st, "real", NULL), *size = reference(st, "size", NULL);
    float *out = reference(st, "out", &shape), *got = malloc((size_t)xd_count(shape) * sizeof *got);
    xd_layout lay = { .len = { shape.d[0], 0, 0 },
                      .npatch = 1,
                      .nsp = 1,
                      .grid = { (int64_t)grid[0], (int64_t)grid[1], (int64_t)grid[2] } };
    xd_cond   c = { .tok = given(&x, st, "text"), .real = { (int64_t)real[0], (int64_t)real[1] } };
    xd_input  in = { .lat = given(&x, st, "latents"),
                     .cond = &c,
                     .t = (double)t[0],
                     .guidance = (double)NAN,
                     .size = { (double)size[0], (double)size[1] } };
    int       most = xd_dit_most_skips(p.dit, &p.net);
    void     *kept = calloc(1, info.kept_size);
    xd_state  s = { .h = xd_new_f32(&x, shape.d[0], info.dim),
                    .local = calloc(1, info.local_size),
                    .kept = kept,
                    .skips = xd_new(&x, most * shape.d[0], info.dim) };
    x.lay = &lay;
    assert_int_equal(most, info.nlayers / 2 - 1);
    assert_int_equal(c.tok.d[0], info.text_rows);
    p.dit->keep(&x, &p.net, &c, kept);
    p.dit->read(&x, &p.net, &in, kept);
    p.dit->cond(&x, &p.net, &in, &s);
    p.dit->embed(&x, &p.net, &in, &s);
    for (int i = 0; i < p.net.nlayers; i++)
        xd_dit_block(&x, p.dit, &p.net, i, &s);
    xd_get(&x, got, p.dit->head(&x, &p.net, &s));
    ok(x.err.code, &x.err);
    near(name, got, out, xd_count(shape), tol);
    free(grid), free(t), free(real), free(size), free(out), free(got), free(s.local), free(kept);
    xd_st_close(&st);
    close_part(&p);
    close_bench(&b);
}

static void hunyuan_golden(void **state)
{
    static const char *const forms[] = { "1.1", "1.2", "two" };
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        run_hunyuan(forms[i], XD_F32, 2e-4);
        run_hunyuan(forms[i], XD_BF16, 3e-2);
    }
}

/* The blocks of one half read the outputs of the other, the last the first. */
static void hunyuan_skips(void **state)
{
    part p;
    (void)state;
    open_config(&p, "tests/golden/hunyuan-forms/1.2");
    static const int before[9] = { 0, 1, 2, 3, 3, 3, 2, 1, 0 };
    for (int i = 0; i <= 8; i++)
        assert_int_equal(xd_dit_skips(p.dit, p.net.cfg, i), before[i]);
    for (int i = 0; i < 8; i++)
        assert_int_equal(p.dit->skip_from(p.net.cfg, i), i > 4 ? 7 - i : -1);
    close_part(&p);
}

/* ---- counting ----------------------------------------------------------------------------- */

/* A counting run follows no address (it has none) and needs exactly the room of a real one. */
static void counts_as_it_runs(void **state)
{
    (void)state;
    for (int i = 0; i < NGOLDEN; i++) {
        size_t peak[2];
        for (int counts = 0; counts < 2; counts++) {
            scene     s;
            xd_exec   x;
            xd_counts c;
            open_scene(&s, i, XD_F32, counts, "prompt_embeds");
            start(&s, &x);
            run_step(&s, &x, 1);
            peak[counts] = xd_arena_peak(&s.b.tmp);
            if (counts) {
                xd_dev_counts(s.b.dev, &c, 1);
                /* at least the blocks' matrices: q,k,v,o,q,o of D x D and the mlp of 8 D x D */
                double D = (double)s.info.dim;
                assert_true(c.gemm_flops >= 2.0 * 14 * D * D * (double)s.N * s.info.nlayers);
                assert_true(c.attn_flops >= 4.0 * D * (double)(s.N * s.N) * s.info.nlayers);
            }
            close_scene(&s);
        }
        assert_int_equal(peak[0], peak[1]);
    }
}

/* ---- layers of an image -------------------------------------------------------------------- */

static const char *const layered[] = { "qwen-forms/layers", "qwen-forms/many" };

static void layers_f32(void **state)
{
    (void)state;
    run_forms(layered, 2, XD_F32, NULL);
}

static void layers_bf16(void **state)
{
    (void)state;
    run_forms(layered, 2, XD_BF16, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings),
        cmocka_unit_test(published_numbers),
        cmocka_unit_test(files_in_the_tree),
        cmocka_unit_test(refusals),
        cmocka_unit_test(refusals_of_krea2),
        cmocka_unit_test(refusals_of_videos),
        cmocka_unit_test(lumina_refusals),
        cmocka_unit_test(hunyuan_video_refusals),
        cmocka_unit_test(hunyuan_video15_refusals),
        cmocka_unit_test(qwen21_refusals),
        cmocka_unit_test(sana_refusals),
        cmocka_unit_test(unet_refusals),
        cmocka_unit_test(dit_golden_f32),
        cmocka_unit_test(dit_golden_bf16),
        cmocka_unit_test(dit_batch),
        cmocka_unit_test(dit_embeds_its_rows),
        cmocka_unit_test(layers_f32),
        cmocka_unit_test(layers_bf16),
        cmocka_unit_test(hunyuan_golden),
        cmocka_unit_test(hunyuan_skips),
        cmocka_unit_test(counts_as_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
