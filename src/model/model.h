/* model.h - a model directory: model_index.json, its components, its recipe */
#ifndef XD_MODEL_MODEL_H
#define XD_MODEL_MODEL_H

#include "model/component.h"
#include "model/recipe.h"
#include "sampler/sampler.h"
#include "tok/tok.h"

/* Files that stand for the weights of a component; NULL: those in its folder. Borrowed. */
typedef struct xd_weight_files {
    const char *transformer, *vae, *clip_l, *clip_g, *t5xxl;
} xd_weight_files;

typedef struct xd_model {
    char            *dir;
    xd_json         *index, *sched;     /* model_index.json, scheduler_config.json (or NULL)   */
    const xd_recipe *recipe;
    xd_component          text[XD_MAXTEXT], dit, vae;
    int              has_text[XD_MAXTEXT];      /* 0: optional and not there                   */
    int              no_t5;     /* optional encoders are not wanted                            */
    xd_weight_files  given;     /* while it is opened                                          */
    const char      *layers;    /* the same: xd_component_open_some                                 */
    xd_tok          *tok[XD_MAXTEXT];   /* opened by xd_model_tokenizers                            */
    xd_dit_info      dit_info;
    xd_vae_info      vae_info;
    struct xd_loras *loras;             /* what is added to the weights (lora.h); NULL: nothing */
} xd_model;

/* A directory as it is, or the newest snapshot of "org/name" in the local Hugging Face cache
 * (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub), or of the one model there that is called "name".
 * malloc'ed. */
xd_status xd_model_find(const char *model, char **dir, xd_err *e);
char     *xd_model_hub(void);   /* that cache, malloc'ed; NULL without memory or a home      */

/* Reads all configs and checks that the components fit each other; no weights, no tokenizers.
 * Closed with xd_model_close also after a failure. */
xd_status xd_model_open(xd_model *m, const char *model, int no_t5, xd_err *e);
/* layers: blocks of each kind (xd_component_open_some), of encoders the first number; NULL: all.    */
xd_status xd_model_open_with(xd_model *m, const char *model, int no_t5, const xd_weight_files *given,
                             const char *layers, xd_err *e);
int64_t   xd_model_pooled(const xd_model *m, int k);    /* width; 0: encoder k gives none       */
void      xd_model_close(xd_model *m);
xd_status xd_model_files(xd_model *m, xd_err *e);       /* weight files of all components       */
xd_status xd_model_tokenizers(xd_model *m, xd_err *e);       /* tokenizers                           */
xd_status xd_model_tok(xd_model *m, int i, xd_err *e);  /* that of encoder i                    */
/* What its scheduler_config.json says to this sampler. */
xd_status xd_model_sched(const xd_model *m, const xd_sampler *sampler, xd_sched_cfg *c, xd_err *e);
/* Fails unless that file is there and names a class. */
xd_status xd_model_named_sched(const xd_model *m, xd_err *e);
/* xd_fail_at that file, where it is there. */
xd_status xd_model_fail_sched(const xd_model *m, xd_status code, xd_err *e);
/* Of what is in the files: all of every config and of the tokenizers' files, and of weight files
 * what xd_st_hash takes, LoRA files among them. Directories may be called differently. Below 10 ms for usual models.
 * Fails for want of memory only. */
xd_status xd_model_hash(const xd_model *m, uint64_t *hash, xd_err *e);

#endif
