/* model.h - declares xd_model, an open model directory: model_index.json, the components, and the
 * recipe of the pipeline. */
#ifndef XD_MODEL_MODEL_H
#define XD_MODEL_MODEL_H

#include "model/component.h"
#include "model/clip_processor.h"
#include "model/image_processor.h"
#include "families/recipe.h"
#include "sampler/sampler.h"
#include "tok/tok.h"
#include "xdit/xdit.h"

/* Maximum number of components of a model (xd_model_part). The components of a model are two
 * transformers, the VAE, the text encoders, the networks of audio, the VAE for previews and the
 * latent upsampler. */
enum { XD_MODEL_PARTS = 2 + 1 + XD_MAXTEXT + XD_MAXAUDIO + 2 };

/* Short name (slot) that selects the latent upsampler in xd_weight_files. */
#define XD_UPSAMPLER_SLOT "latent_upsampler"

/* Short name (slot) that selects the prior network (xd_text_use.prior) in xd_weight_files. */
#define XD_PRIOR_SLOT "redux"

/* Borrowed list of files that replace the weights of components. The list names a component by its
 * short name (slot), such as "clip_l". From the LoRA files in this struct, xd_model_open_with reads
 * only how many channels the transformer's input layer needs. */
typedef struct xd_weight_files {
    const xd_component_file *v;
    int                      n;
    const xd_lora           *loras;
    int                      nloras;
} xd_weight_files;

typedef struct xd_model {
    char              *dir;
    /* contents of model_index.json and scheduler_config.json (or NULL) */
    xd_json           *index, *sched;
    /* scheduler_config.json of the audio's scheduler; NULL: audio has no scheduler of its own */
    xd_json           *audio_sched;
    const xd_recipe   *recipe;
    xd_component       text[XD_MAXTEXT], dit, vae;
    /* audio networks in the recipe's order; net.def NULL: the model has no such network */
    xd_component       audio[XD_MAXAUDIO];
    /* The low-noise transformer of a model with two transformers, which computes the steps below
     * the boundary; the high-noise transformer is then `dit`. If dit2.net.def is NULL, the model
     * has only `dit`. */
    xd_component       dit2;
    /* 1: the model has only the low-noise transformer, which is `dit`. */
    int                only_low;
    int                has_two;  /* 1: the model has the low-noise transformer `dit2` */
    double             guidance; /* default guidance scale of the pipeline or of its guider */
    /* value of boundary_ratio in model_index.json; negative: the key is missing */
    double             boundary;
    /* hidden states of text encoder i that model_index.json lists; if nstates[i] is 0, the recipe's
     * list is used */
    int                nstates[XD_MAXTEXT], states[XD_MAXTEXT][XD_MAXSTATES];
    int                has_text[XD_MAXTEXT]; /* 0: text encoder i is optional and absent */
    char              *prior;                /* directory of the prior; NULL: none */
    const char        *without; /* text encoder to omit; valid only while the model is opened */
    xd_weight_files    given; /* files that replace weights; valid only while the model is opened */
    /* paths of the side networks; valid only while the model is opened */
    char              *sides[XD_MAXSIDES];
    int                nsides;
    /* Value of the option that sets the numbers of blocks (xd_component_open_some); valid only
     * while the model is opened. */
    const char        *layers;
    xd_tok            *tok[XD_MAXTEXT]; /* tokenizers, opened by xd_model_tokenizers */
    /* Image preprocessing settings for a CLIP image encoder, which xd_model_tokenizers reads. */
    xd_clip_processor  clip_processor;
    /* 1: xd_model_warn_chat has already warned. */
    int                warned_chat;
    xd_dit_info        dit_info;
    xd_vae_info        vae_info;
    xd_image_processor processor; /* image preprocessing settings for vision-language encoders */
    /* a tiny VAE for previews; if preview.net.def is NULL, no such VAE is open */
    xd_component       preview;
    xd_vae_info        preview_info;
    /* the latent upsampler; if upsampler.net.def is NULL, the model has no upsampler */
    xd_component       upsampler;
    xd_upsampler_info  upsampler_info;
    /* default values of a distilled checkpoint; if usual.name is NULL, the recipe's defaults are
     * used */
    xd_distilled       usual;
    /* number of noise levels (sigmas) that model_index.json lists; 0: no list */
    int                nsigmas;
    double             sigmas[XD_MAXSIGMAS];
    int              lora_partial; /* 1: warn about LoRA tensors that do not fit; 0: refuse them */
    struct xd_loras *loras;        /* LoRA files (lora.h); NULL: none */
    struct xd_loras *loras_2;      /* LoRA files of `dit2`; NULL: none */
} xd_model;

/* Finds the directory of a model. `name` is the directory itself, or "org/name" for the newest
 * snapshot of this model in the local Hugging Face cache (HF_HUB_CACHE, HF_HOME/hub,
 * ~/.cache/huggingface/hub), or "name" for the newest snapshot of the only model in this cache with
 * that name. *dir is malloc'ed. */
xd_status xd_model_find(const char *model, char **dir, xd_err *e);
/* If a file is missing in a snapshot of the Hugging Face cache, appends to the error the command
 * that downloads the file. Returns its argument `code`. */
xd_status xd_model_fail_cached(xd_err *e, xd_status code);
/* Appends the short name of a model to b as JSON. The short name is "org/name" for a snapshot in a
 * Hugging Face cache. The short name of another directory is the last part of its path, and that of
 * a file is its name without folders. */
void      xd_model_short_name(const char *path, xd_text_buf *b);
/* Returns the default values of a request: those of a distilled checkpoint or, if the request
 * starts from an image or inpaints, those of the recipe. */
xd_usual  xd_model_usual(const xd_model *m, int from_image, int masked);
/* Writes one line about the defaults of a distilled checkpoint; for other models, writes an empty
 * string. */
void      xd_model_usual_text(const xd_model *m, char *line, size_t size);
/* Returns the malloc'ed path of the local Hugging Face cache, or NULL if out of memory or if there
 * is no home directory. */
char     *xd_model_hub(void);

/* Opens a model: reads all configs and checks that the components fit each other. xd_model_open
 * opens neither weights nor tokenizers. After a failure, xd_model_close must be called as well. */
xd_status xd_model_open(xd_model *m, const char *model, xd_err *e);
/* Opens a model as xd_model_open does, with options. without: short name (slot) of a text encoder
 * to omit, or XD_SIDE_SLOT to omit a side network in the directory; NULL: nothing is omitted.
 * given: files that replace weights, side networks, and a latent upsampler. layers: number of
 * transformer blocks of each kind (xd_component_open_some), of which text encoders use the first;
 * NULL: all blocks. */
xd_status xd_model_open_with(xd_model *m, const char *model, const char *without,
                             const xd_weight_files *given, const char *layers, xd_err *e);
/* Writes the paths of side networks to the list `files` for xd_model_open_with, and returns their
 * number. If the paths are too many, the list contains one more than a model can use, so that
 * xd_model_open_with refuses them. */
int xd_model_side_files(xd_component_file files[XD_MAXSIDES + 1], const char *const *paths, int n);
/* Returns the directory that contains the folders of text encoder k: the model's or the prior
 * network's. */
const char   *xd_model_text_dir(const xd_model *m, int k);
/* xd_model_reads returns which hidden states of text encoder k the pipeline reads, in a struct
 * whose token ids are not set. xd_model_text_width returns the width of a row of the encoder's
 * output, or 0 if the encoder is absent. */
xd_text_read  xd_model_reads(const xd_model *m, int k);
int64_t       xd_model_text_width(const xd_model *m, int k);
/* Returns the number of rows of text encoder k's embedding table; returns 0 if the encoder's config
 * does not have this number. */
int64_t       xd_model_vocab(const xd_model *m, int k);
/* xd_model_images returns the fixed number of images that image encoder k reads, and
 * xd_model_image_rows the number of output rows for these images together. xd_model_images and
 * xd_model_image_rows return 0 if the encoder is absent or reads text. */
int           xd_model_images(const xd_model *m, int k);
/* Returns the side in pixels of the images that encoder k reads, if all images have one size; else
 * 0. */
int64_t       xd_model_image_side(const xd_model *m, int k);
int64_t       xd_model_image_rows(const xd_model *m, int k);
/* Drops the blocks of text encoder k whose outputs the pipeline does not need. Refuses to read
 * hidden states that the encoder does not have, unless the number of layers was overridden.
 * xd_model_open calls xd_model_choose_blocks. */
xd_status     xd_model_choose_blocks(xd_model *m, int k, xd_err *e);
/* Returns the width of text encoder k's pooled output, or 0 if the encoder has no pooled output. */
int64_t       xd_model_pooled(const xd_model *m, int k);
void          xd_model_close(xd_model *m);
/* Opens a tiny VAE for previews, and its weight files. `path` is the directory of the preview VAE,
 * or "org/name" in the Hugging Face cache. Refuses a preview VAE that does not decode this model's
 * latents. */
xd_status     xd_model_preview(xd_model *m, const char *path, xd_err *e);
/* Opens the weight files of all components. */
xd_status     xd_model_files(xd_model *m, xd_err *e);
/* For each kind of component, sets cold[kind] to the bytes that must be read from disk to load all
 * components of this kind with their LoRA tensors (sums of xd_component_cold_bytes). */
void          xd_model_cold_bytes(xd_model *m, xd_dev *count, xd_dtype type, double cold[XD_KINDS]);
/* xd_model_tokenizers opens all tokenizers, and reads the settings of all image processors;
 * xd_model_tok opens the tokenizer of encoder i. */
xd_status     xd_model_tokenizers(xd_model *m, xd_err *e);
xd_status     xd_model_tok(xd_model *m, int i, xd_err *e);
/* The first call warns if a tokenizer lacks special tokens of the pipeline's chat template. */
void          xd_model_warn_chat(xd_model *m);
/* xd_model_dit returns transformer i (0: m->dit, 1: m->dit2), xd_model_dits the number of
 * transformers. */
xd_component *xd_model_dit(xd_model *m, int i);
/* xd_model_text returns text encoder k, and xd_model_part returns component i, which is less than
 * XD_MODEL_PARTS. xd_model_text and xd_model_part return NULL if the model does not have the
 * component. */
xd_component *xd_model_text(xd_model *m, int k);
xd_component *xd_model_part(xd_model *m, int i);
int           xd_model_dits(const xd_model *m);
/* Returns 1 if the weights of any transformer are loaded. */
int           xd_model_has_dits(const xd_model *m);
/* Reads the model's scheduler_config.json into *c, as a config of the given sampler. */
xd_status xd_model_sched(const xd_model *m, const xd_sampler *sampler, xd_sched_cfg *c, xd_err *e);
/* Reads the scheduler_config.json of the audio's scheduler into *c, as a config of the given
 * sampler. */
xd_status xd_model_audio_sched(const xd_model *m, const xd_sampler *sampler, xd_sched_cfg *c,
                               xd_err *e);
/* Fails if the model has no scheduler_config.json, or if this file does not name a scheduler
 * class. */
xd_status xd_model_named_sched(const xd_model *m, xd_err *e);
/* If scheduler_config.json exists, adds its path to an error, as xd_fail_at does. */
xd_status xd_model_fail_sched(const xd_model *m, xd_status code, xd_err *e);
/* Computes a hash of the contents of a model: of all configs and tokenizer files, and of those
 * bytes of weight files and LoRA files that xd_st_hash reads. The hash does not depend on directory
 * names. For typical models the hash is computed in less than 10 ms. xd_model_hash fails only with
 * XD_ENOMEM. */
xd_status xd_model_hash(const xd_model *m, uint64_t *hash, xd_err *e);

#endif
