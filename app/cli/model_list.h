/* model_list.h - the models of this machine: those of the local Hugging Face cache, and those below
 * a directory, of which single files of weights are listed, too */
#ifndef XDIT_CLI_MODEL_LIST_H
#define XDIT_CLI_MODEL_LIST_H

#include "base/err.h"

typedef struct xd_listed {
    char *name;                 /* for --model: "org/name", or a path                           */
    char *dir;                  /* with model_index.json; or a file                            */
    int   hub, file;            /* 1: of the cache; a file of weights                          */
} xd_listed;

typedef struct xd_model_list { xd_listed *v; int n; } xd_model_list;

/* Adds the models of the cache: the newest snapshots that have a model_index.json, in alphabetical
 * order. A cache that is not there has none. Its directory is copied to `cache`, which may be
 * NULL. */
xd_status xd_model_list_hub(xd_model_list *l, char *cache, size_t size, xd_err *e);
/* Adds the directories in `dir` with a model_index.json, files *.safetensors and *.gguf, and those
 * one level deeper (org/name, diffusion_models/file); or `dir` itself, if it is a model. XD_EIO: it
 * cannot be read. */
xd_status xd_model_list_dir(xd_model_list *l, const char *dir, xd_err *e);
void      xd_model_list_free(xd_model_list *l);

#endif
