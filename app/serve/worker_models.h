/* worker_models.h - opens and closes the models of a worker, and lends the engines of each model to
 * tasks.
 *
 * All ranks call the functions of this header in the same order, unless the comment of a function
 * states otherwise. */
#ifndef XD_SERVE_WORKER_MODELS_H
#define XD_SERVE_WORKER_MODELS_H

#include "cli/open_flags.h"
#include "serve/task_flags.h"

enum { XD_NESTED_ENGINES = 7 }; /* maximum number of interrupted tasks of a model */

typedef struct xd_opened { /* an open model with its engines */
    xd_engine        *engine;
    xd_engine        *nested[XD_NESTED_ENGINES]; /* engines for tasks that interrupt other
                                                           tasks */
    xd_engine        *alone; /* engine that runs on this rank alone while ranks are split; NULL:
                                   not opened */
    int               busy;  /* number of tasks that use the model, including interrupted ones */
    char             *key;   /* directory of the model */
    /* next entry in the list of open models, a model that was used less recently */
    struct xd_opened *next;
} xd_opened;

typedef struct xd_worker_models {
    xd_open_flags *open;  /* options with which models are opened */
    xd_opened     *first; /* the most recently used model */
    void           (*on_log)(void *cookie, int level, const char *line);
    void           (*on_open)(void *cookie); /* callback that is called before a model is opened */
    void          *cookie;
    int            verbose;
} xd_worker_models;

/* Opens the model of a task, unless the model is already open. Moves the model to the head of the
 * list of open models, which begins with the most recently used model. If memory is short, closes
 * open models that are not busy. */
xd_status xd_worker_models_get(xd_worker_models *m, const xd_task_flags *f, xd_opened **o,
                               xd_err *e);
/* Acquires a free engine of the model, with the LoRA files of the task selected. The caller
 * releases the acquired engine with xd_worker_models_release. */
xd_status xd_worker_models_acquire_engine(xd_worker_models *m, xd_opened *o, const xd_task_flags *f,
                                          xd_engine **g, xd_err *e);
void      xd_worker_models_release(xd_opened *o);
/* Opens the model's engine for split ranks (`alone`), which has all weights on this rank. The
 * caller releases the model with xd_worker_models_release. */
xd_status xd_worker_models_open_alone(xd_worker_models *m, xd_opened *o, const xd_task_flags *f,
                                      xd_err *e);
/* Frees the weights of one set of LoRA files that no task uses. If all sets of LoRA files are in
 * use, closes the least recently used model that no task uses and that is not the first in the list
 * of models. Returns 0 if no memory can be freed. */
int       xd_worker_models_free_memory(xd_worker_models *m);
int       xd_worker_models_count(const xd_worker_models *m);
void      xd_worker_models_close(xd_worker_models *m);

#endif
