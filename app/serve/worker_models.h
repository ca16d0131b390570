/* worker_models.h - the models that a worker keeps open, and the engines of each
 *
 * All ranks make the same calls in the same order, unless a comment says otherwise. */
#ifndef XD_SERVE_WORKER_MODELS_H
#define XD_SERVE_WORKER_MODELS_H

#include "cli/open_flags.h"
#include "serve/task_flags.h"

enum { XD_ENGINES_BESIDE = 7 };         /* tasks of one model that wait for a turn              */

typedef struct xd_opened {      /* a model that is kept                                        */
    xd_engine        *engine;
    xd_engine        *beside[XD_ENGINES_BESIDE];        /* for tasks in the turns of others     */
    xd_engine        *alone;    /* of this rank by itself; NULL: none yet                      */
    int               busy;     /* tasks that compute with its weights, also waiting ones       */
    char             *key;      /* its directory                                               */
    struct xd_opened *next;     /* used before this one                                        */
} xd_opened;

typedef struct xd_worker_models {
    xd_open_flags *open;
    xd_opened     *first;       /* the one that was used last                                  */
    void         (*on_log)(void *cookie, int level, const char *line);
    void         (*on_open)(void *cookie);      /* a model is about to be opened                */
    void          *cookie;
    int            verbose;
} xd_worker_models;

/* The model of a task, at the head of the list. Others make way where memory asks for it. */
xd_status xd_worker_models_take(xd_worker_models *m, const xd_task_flags *f, xd_opened **o,
                                xd_err *e);
/* An engine of the model that is not busy, with the LoRA files of the task; counts it as busy until
 * xd_worker_models_give. */
xd_status xd_worker_models_engine(xd_worker_models *m, xd_opened *o, const xd_task_flags *f,
                                  xd_engine **g, xd_err *e);
void      xd_worker_models_give(xd_opened *o);
/* Makes the engine of one rank for this rank, with all weights; counts the model as busy, too. */
xd_status xd_worker_models_alone(xd_worker_models *m, xd_opened *o, const xd_task_flags *f,
                                 xd_err *e);
/* Frees weights with LoRA files that no task uses; else closes the model that was used longest ago
 * of those that are not busy, but the first one of the list. 0: there is none. */
int       xd_worker_models_make_room(xd_worker_models *m);
int       xd_worker_models_count(const xd_worker_models *m);
void      xd_worker_models_close(xd_worker_models *m);

#endif
