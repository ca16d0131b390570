/* model.h - a model directory: model_index.json, its components, its recipe */
#ifndef XD_MODEL_MODEL_H
#define XD_MODEL_MODEL_H

#include "model/component.h"
#include "model/clip_processor.h"
#include "model/image_processor.h"
#include "families/recipe.h"
#include "sampler/sampler.h"
#include "tok/tok.h"
#include "xdit/xdit.h"

/* Transformers, VAE, text encoders, preview VAE (xd_model_part). */
enum { XD_MODEL_PARTS = 2 + 1 + XD_MAXTEXT + 1 };

/* Files that replace the weights of components (slots of the recipe). Borrowed. */
typedef struct xd_weight_files {
    const xd_component_file *v;
    int                      n;
} xd_weight_files;

typedef struct xd_model {
    char            *dir;
    xd_json         *index, *sched;     /* model_index.json, scheduler_config.json (or NULL)   */
    const xd_recipe *recipe;
    xd_component     text[XD_MAXTEXT], dit, vae;
    /* The low-noise transformer of a model with two, for steps below the boundary; `dit`
     * is then the high-noise one. net.def NULL: the model has only `dit`. */
    xd_component     dit2;
    int              only_low;  /* 1: the high-noise transformer is absent; `dit` is the other */
    int              has_two;   /* 1: `dit2` is present                                        */
    double           boundary;  /* boundary_ratio of model_index.json; negative: none          */
    int              has_text[XD_MAXTEXT];      /* 0: optional and absent                      */
    const char      *without;   /* slot of an encoder to omit; valid only during opening       */
    xd_weight_files  given;     /* valid only during opening                                   */
    const char      *layers;    /* as in xd_component_open_some; valid only during opening     */
    xd_tok          *tok[XD_MAXTEXT];   /* opened by xd_model_tokenizers                       */
    xd_clip_processor clip_processor;   /* of a CLIP image encoder, by xd_model_tokenizers     */
    int              warned_chat;       /* 1: xd_model_warn_chat was called                    */
    xd_dit_info      dit_info;
    xd_vae_info      vae_info;
    xd_image_processor processor;       /* of a vision-language encoder                        */
    xd_component     preview;   /* a tiny VAE for previews; net.def NULL: none                 */
    xd_vae_info      preview_info;
    xd_distilled usual;         /* defaults of requests; name NULL: those of the recipe        */
    int         lora_partial;   /* 1: warn of LoRA tensors that do not fit, 0: refuse          */
    struct xd_loras *loras;     /* LoRA files (lora.h); NULL: none                             */
    struct xd_loras *loras_2;   /* LoRA files of `dit2`; NULL: none                            */
} xd_model;

/* Finds a model's directory: the given directory, the newest snapshot of "org/name" in the local
 * Hugging Face cache (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub), or that of the only
 * model there called "name". *dir is malloc'ed. */
xd_status xd_model_find(const char *model, char **dir, xd_err *e);
/* Appends the download command to an error about a file that is missing in a snapshot of that
 * cache. Returns the code. */
xd_status xd_model_fail_cached(xd_err *e, xd_status code);
/* Appends the name of a model's directory to b as JSON: "org/name" of a snapshot in a Hugging Face
 * cache, else the last part of the path. For a file, its name without folders. */
void      xd_model_short_name(const char *path, xd_text_buf *b);
/* Returns the defaults of a request; those of the recipe, not of a distilled checkpoint, if it
 * starts from an image or inpaints. */
xd_usual  xd_model_usual(const xd_model *m, int from_image, int masked);
/* Writes one line about the defaults of a distilled checkpoint; "" if it is none. */
void      xd_model_usual_text(const xd_model *m, char *line, size_t size);
/* Returns the path of that cache, malloc'ed; NULL: out of memory, or no home directory. */
char     *xd_model_hub(void);

/* Reads all configs and checks that the components fit each other; opens no weights and no
 * tokenizers. Close with xd_model_close, also after a failure. */
xd_status xd_model_open(xd_model *m, const char *model, xd_err *e);
/* As xd_model_open. without: the slot of a text encoder to omit; NULL: none. layers: number of
 * blocks of each kind (xd_component_open_some); encoders use the first number; NULL: all. */
xd_status xd_model_open_with(xd_model *m, const char *model, const char *without,
                             const xd_weight_files *given, const char *layers, xd_err *e);
/* Returns the hidden states to read from encoder k, without ids; and the width of a row (0: the
 * encoder is absent). */
xd_text_read xd_model_reads(const xd_model *m, int k);
int64_t   xd_model_text_width(const xd_model *m, int k);
/* Returns the rows of text encoder k's embedding table; 0: not in its config. */
int64_t   xd_model_vocab(const xd_model *m, int k);
/* For an image encoder k: the fixed number of images it reads, and the rows of its output for all
 * of them. 0: the encoder is absent, or reads text. */
int       xd_model_images(const xd_model *m, int k);
int64_t   xd_model_image_rows(const xd_model *m, int k);
/* Drops the blocks of encoder k after the last hidden state that the pipeline reads (xd_model_open
 * calls it). Refuses hidden states that it does not have, unless the number of layers was
 * overridden. */
xd_status xd_model_choose_blocks(xd_model *m, int k, xd_err *e);
int64_t   xd_model_pooled(const xd_model *m, int k); /* width; 0: encoder k has no pooled output */
void      xd_model_close(xd_model *m);
/* Opens the preview VAE in this directory, or org/name in the Hub's cache, with its weight files.
 * Refuses a VAE for other latents. */
xd_status xd_model_preview(xd_model *m, const char *path, xd_err *e);
/* Opens the weight files of all components. */
xd_status xd_model_files(xd_model *m, xd_err *e);
/* Sets cold[kind] to the sum of xd_component_cold_bytes of all components of each kind, with their
 * LoRA tensors. */
void      xd_model_cold_bytes(xd_model *m, xd_dev *count, xd_dtype type, double cold[XD_KINDS]);
/* Opens all tokenizers and image processors; xd_model_tok: that of encoder i. */
xd_status xd_model_tokenizers(xd_model *m, xd_err *e);
xd_status xd_model_tok(xd_model *m, int i, xd_err *e);
/* Warns once if a tokenizer's chat template lacks special tokens of the pipeline's template. */
void      xd_model_warn_chat(xd_model *m);
/* Returns transformer i: 0 `dit`, 1 `dit2`; and the number of transformers. */
xd_component *xd_model_dit(xd_model *m, int i);
/* Returns text encoder k, or component i of XD_MODEL_PARTS; NULL: the model does not have it. */
xd_component *xd_model_text(xd_model *m, int k);
xd_component *xd_model_part(xd_model *m, int i);
int       xd_model_dits(const xd_model *m);
int       xd_model_has_dits(const xd_model *m);        /* 1: weights of a transformer are loaded  */
/* Reads scheduler_config.json for this sampler. */
xd_status xd_model_sched(const xd_model *m, const xd_sampler *sampler, xd_sched_cfg *c, xd_err *e);
/* Fails unless scheduler_config.json exists and names a class. */
xd_status xd_model_named_sched(const xd_model *m, xd_err *e);
/* xd_fail_at with the name of scheduler_config.json, if it exists. */
xd_status xd_model_fail_sched(const xd_model *m, xd_status code, xd_err *e);
/* Hashes the contents: all configs and tokenizer files, and the parts of weight files and LoRA
 * files that xd_st_hash reads. Does not depend on directory names. Takes less than 10 ms for
 * typical models. The only failure is XD_ENOMEM. */
xd_status xd_model_hash(const xd_model *m, uint64_t *hash, xd_err *e);

#endif
