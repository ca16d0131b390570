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
    /* The transformer of steps below the boundary, if there is another one for those above it;
     * without a network where there is not. */
    xd_component     dit2;
    int              only_low;  /* `dit` is the second of two, and the first is absent         */
    int              has_two;   /* `dit2` is there                                             */
    double           boundary;  /* boundary_ratio of model_index.json; negative: none          */
    int              has_text[XD_MAXTEXT];      /* 0: optional and absent                      */
    const char      *without;   /* an encoder that is not wanted, only while the model is opened */
    xd_weight_files  given;     /* only while the model is opened                              */
    const char      *layers;    /* only while the model is opened (xd_component_open_some)     */
    xd_tok          *tok[XD_MAXTEXT];   /* opened by xd_model_tokenizers                       */
    xd_clip_processor clip_processor;   /* of an encoder of images, by xd_model_tokenizers      */
    int              told_chat; /* 1: xd_model_warn_chat was called                            */
    xd_dit_info      dit_info;
    xd_vae_info      vae_info;
    xd_image_processor processor;       /* of an encoder that sees images                      */
    xd_component     preview;   /* a tiny autoencoder of previews; without a network: none     */
    xd_vae_info      preview_info;
    xd_distilled usual;         /* defaults of requests; name NULL: those of the recipe        */
    int         lora_partial;   /* what does not fit of LoRA files is left out                 */
    struct xd_loras *loras;     /* differences added to the weights (lora.h); NULL: none       */
    struct xd_loras *loras_2;   /* the same, added to `dit2`                                   */
} xd_model;

/* Finds a model's directory: the given directory, the newest snapshot of "org/name" in the local
 * Hugging Face cache (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub), or that of the only
 * model there called "name". malloc'ed. */
xd_status xd_model_find(const char *model, char **dir, xd_err *e);
/* Completes the sentence about a file that is missing in a snapshot of that cache: by what it is
 * downloaded. Returns the code. */
xd_status xd_model_fail_cached(xd_err *e, xd_status code);
/* Appends the name of a model's directory to b as JSON: "org/name" of a snapshot in a Hugging Face
 * cache, else the last part of the path. For a file, its name without folders. */
void      xd_model_short_name(const char *path, xd_text_buf *b);
/* One line about the defaults of a distilled checkpoint, if it is one. */
/* Defaults of a request; of the recipe alone for one that starts from an image, or inpaints.  */
xd_usual  xd_model_usual(const xd_model *m, int from_image, int masked);
void      xd_model_tell_usual(const xd_model *m, char *line, size_t size);
char     *xd_model_hub(void);   /* that cache, malloc'ed; NULL without memory or a home      */

/* Reads all configs and checks that the components fit each other; opens no weights and no
 * tokenizers. Close with xd_model_close, also after a failure. */
xd_status xd_model_open(xd_model *m, const char *model, xd_err *e);
/* without: the slot of a text encoder to do without; NULL: none. layers: blocks of each kind
 * (xd_component_open_some); encoders use the first number; NULL: all. */
xd_status xd_model_open_with(xd_model *m, const char *model, const char *without,
                             const xd_weight_files *given, const char *layers, xd_err *e);
/* What encoder k is to hand out, without ids; the width of a row of it (0: it is absent). */
xd_text_read xd_model_reads(const xd_model *m, int k);
int64_t   xd_model_text_width(const xd_model *m, int k);
/* Rows of the table of text encoder k that ids are numbers of; 0: its config does not say.       */
int64_t   xd_model_vocab(const xd_model *m, int k);
/* Of encoder k, which reads images: their number, always as many, and the rows of all of them. 0:
 * it is absent, or reads text. */
int       xd_model_images(const xd_model *m, int k);
int64_t   xd_model_image_rows(const xd_model *m, int k);
/* From now on encoder k has only the blocks that its hidden states need (xd_model_open has called
 * it). Refuses numbers that it does not have, unless the number of layers is not the config's. */
xd_status xd_model_choose_blocks(xd_model *m, int k, xd_err *e);
int64_t   xd_model_pooled(const xd_model *m, int k); /* width; 0: encoder k has no pooled output */
void      xd_model_close(xd_model *m);
/* Opens the autoencoder of previews in this directory, or org/name of the Hub's cache, with its
 * files. Refused: one of other latents. */
xd_status xd_model_preview(xd_model *m, const char *path, xd_err *e);
xd_status xd_model_files(xd_model *m, xd_err *e);       /* weight files of all components       */
/* xd_component_cold_bytes of all components of each kind, whole ones, with their LoRA terms. */
void      xd_model_cold_bytes(xd_model *m, xd_dev *count, xd_dtype type, double cold[XD_KINDS]);
xd_status xd_model_tokenizers(xd_model *m, xd_err *e);  /* tokenizers */
/* That of encoder i; of one of images, its processor. */
xd_status xd_model_tok(xd_model *m, int i, xd_err *e);
/* Warns once of chat templates that lack special tokens of the pipeline's own text. */
void      xd_model_warn_chat(xd_model *m);
/* Transformer i of xd_model_dits: 0 `dit`, 1 `dit2`. */
xd_component *xd_model_dit(xd_model *m, int i);
int       xd_model_dits(const xd_model *m);
/* What its scheduler_config.json says to this sampler. */
xd_status xd_model_sched(const xd_model *m, const xd_sampler *sampler, xd_sched_cfg *c, xd_err *e);
/* Fails unless scheduler_config.json exists and names a class. */
xd_status xd_model_named_sched(const xd_model *m, xd_err *e);
/* xd_fail_at with the name of scheduler_config.json, if it exists. */
xd_status xd_model_fail_sched(const xd_model *m, xd_status code, xd_err *e);
/* Hash of the contents: all configs and tokenizer files, and for weight files and LoRA files what
 * xd_st_hash takes. Names of directories do not matter. Below 10 ms for usual models. The only
 * failure is XD_ENOMEM. */
xd_status xd_model_hash(const xd_model *m, uint64_t *hash, xd_err *e);

#endif
