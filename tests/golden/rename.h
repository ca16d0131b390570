/* rename.h - for tests: the golden models' weights as original and ComfyUI files have them */
#ifndef XD_TESTS_RENAME_H
#define XD_TESTS_RENAME_H

#include "io/safetensors.h"

enum { BOX_MAX = 2048 };

typedef struct box { /* tensors of a file to be written; starts with {0} */
    xd_st_item item[BOX_MAX];
    int        n;
} box;

/* Adds the weights of a component, read from the folder of a diffusers model, each name behind
 * `prefix`. The process ends with a message when that fails. */
/* As flux1-dev.safetensors, Chroma1-HD.safetensors and flux-canny-controlnet-v3.safetensors. */
void box_flux(box *b, const char *folder, const char *prefix);
void box_sd3(box *b, const char *folder, const char *prefix);      /* as sd3_medium.safetensors */
void box_auraflow(box *b, const char *folder, const char *prefix); /* as aura_flow_0.3's */
void box_wan(box *b, const char *folder, const char *prefix);      /* as the original's */
void box_zimage(box *b, const char *folder, const char *prefix);   /* as ComfyUI's files */
void box_lumina2(box *b, const char *folder, const char *prefix);  /* as the original's */
void box_krea2(box *b, const char *folder, const char *prefix);    /* as the original's */
void box_qwen21(box *b, const char *folder, const char *prefix);   /* as ComfyUI's files */
void box_ltx(box *b, const char *folder, const char *prefix);      /* as ltx-video-2b-v0.9's */
/* The autoencoder as in that file or, if it reads a timestep, in ltx-video-2b-v0.9.5's. */
void box_ltx_vae(box *b, const char *folder, const char *prefix, int timed);
void box_mochi(box *b, const char *folder,
               const char *prefix); /* as the original dit.safetensors */
void box_hunyuanvideo(box *b, const char *folder, const char *prefix); /* as the original's */
/* As ComfyUI's hunyuanvideo1.5_720p_t2v_fp16, or with queries, keys and values apart. */
void box_hunyuanvideo15(box *b, const char *folder, const char *prefix);
void box_hunyuanvideo15_apart(box *b, const char *folder, const char *prefix);
void box_hunyuanvideo15_vae(box *b, const char *folder, const char *prefix); /* as the original's */
void box_mochi_vae(box *b, const char *folder, const char *prefix); /* as decoder.safetensors */
void box_unet(box *b, const char *folder, const char *prefix); /* as sd_xl_base_1.0.safetensors */
/* A CLIP text encoder as in sd_xl_base_1.0.safetensors, with a tensor that nothing reads. */
void box_open_clip(box *b, const char *folder, const char *prefix);
void box_flux2(box *b, const char *folder, const char *prefix); /* as flux-2-klein-4b.safetensors */
void box_vae(box *b, const char *folder, const char *prefix);   /* as ae.safetensors */
void box_t5(box *b, const char *folder, const char *prefix);    /* as t5xxl_fp16.safetensors */
/* FLUX.2's autoencoder, with names of convolutions as flux2-vae.safetensors has them. */
void box_vae2(box *b, const char *folder, const char *prefix);
/* A language model, each name behind `first` in place of what stands before "layers.". */
void box_lm(box *b, const char *folder, const char *prefix, const char *first);
/* As clip_l.safetensors when `long_names`, else without "text_model." before names. */
void box_clip(box *b, const char *folder, const char *prefix, int long_names);

/* As clip_vision_h.safetensors, or with OpenCLIP's names; with tensors that nothing reads. */
void box_clip_vision(box *b, const char *folder, int original);

void box_add(box *b, const char *name, xd_dtype type, int nd, const int64_t *d); /* zeros */
/* The first `most` matrices with `in` in their names become F8E4M3 or F8E5M2, two of three with
 * a scale beside them, as ComfyUI and as others call it; `plain` gets all tensors, these in f32
 * as the numbers that are meant. How many became it. */
int  box_fp8(box *b, box *plain, const char *in, xd_dtype type, int most);
/* All matrices with `in` in their names become I8 with scales, for two of three of rows, as ComfyUI
 * stores them; some tell their format, *meta tells that of the others (free it). Each row has the
 * number 127 and a power of 2 as its scale, so that their numbers in `plain` are quantized to the
 * same integers. group > 0: the integers are those of rows that were rotated in such groups. */
int  box_int8(box *b, box *plain, const char *in, int group, char **meta);
int  box_find(const box *b, const char *name); /* -1: none */
void box_remove(box *b, const char *begin);    /* all names that begin so */
void box_write(const box *b, const char *path);
void box_write_meta(const box *b, const char *path, const char *const *meta); /* xd_st_write */
void box_free(box *b);

#endif
