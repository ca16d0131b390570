/* model_list.h - lists the models of this machine: the models in the local Hugging Face cache, or
 * the models and single weight files below a directory */
#ifndef XDIT_CLI_MODEL_LIST_H
#define XDIT_CLI_MODEL_LIST_H

#include "base/err.h"

typedef struct xd_listed {
    char *name; /* value of --model that selects the model: "org/name", or a path */
    char *dir;  /* the directory with model_index.json, or the weight file */
    /* hub is 1 if the model is in the Hugging Face cache; file is 1 if the model is a single weight
     * file. */
    int   hub, file;
} xd_listed;

typedef struct xd_model_list {
    xd_listed *v;
    int        n;
} xd_model_list;

/* Appends the models of the Hugging Face cache in alphabetical order. For each model in the cache,
 * only the newest snapshot that has a model_index.json is listed. If there is no Hugging Face
 * cache, no models are appended. Copies the path of the cache to `cache`, unless it is NULL. */
xd_status xd_model_list_hub(xd_model_list *l, char *cache, size_t size, xd_err *e);
/* Appends the models and the weight files (*.safetensors, *.gguf) in `dir` and in its
 * subdirectories, one level deep, such as org/name or diffusion_models/file. If `dir` itself is a
 * model, appends only `dir`. XD_EIO: `dir` cannot be read. */
xd_status xd_model_list_dir(xd_model_list *l, const char *dir, xd_err *e);
void      xd_model_list_free(xd_model_list *l);

#endif
