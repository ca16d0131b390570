/* step_cache.h - step caches: reuse of the output of blocks from an earlier step
 *
 * The blocks of a transformer are three ranges: the first Fn run in every step, the middle ones in
 * some steps, the last Bn in every step. After the first range the cache decides. If the middle
 * range is skipped, a correction replaces it: the range's last computed contribution to the hidden
 * state, or an extrapolation from the last few.
 *
 * Each pass and each patch of PipeFusion decides separately. The stage with the first block decides
 * and sends the decision with the hidden state; each stage keeps the correction of its own blocks.
 * Ranks that split tokens or features decide together. */
#ifndef XD_PIPELINE_STEP_CACHE_H
#define XD_PIPELINE_STEP_CACHE_H

#include "base/json.h"
#include "comm/comm.h"
#include "exec/net.h"

struct xd_denoise;
struct xd_job;

/* Passes of a step: with the prompt, with the negative prompt, and with the prompt but some layers
 * skipped (job_skip.c). */
enum { XD_PASS_PROMPT, XD_PASS_NEGATIVE, XD_PASS_SKIPPING, XD_MAXPASS };
enum { XD_NHID = 3 };           /* hidden states, used cyclically                              */
enum {
    XD_CACHE_ORDERS = 4,        /* terms of a Taylor expansion: up to third order              */
    XD_CACHE_POWERS = 5,        /* coefficients of a polynomial of degree 4                    */
};

/* ---- options -------------------------------------------------------------------- */

typedef struct xd_cache_options {
    int    first, last;         /* Fn and Bn: blocks that run in every step                    */
    double threshold;           /* max relative change for skipping the middle range           */
    int    warmup;              /* computed steps at the start                                 */
    int    max_cached;          /* max skipped steps in total; negative: no limit              */
    int    max_continuous;      /* max skipped steps in a row; negative: no limit              */
    int    order;               /* order of the Taylor expansion; 0: the last value            */
    int    interval, until;     /* compute every interval-th step; compute all steps from `until` */
                                /* on; negative: off                                           */
    double poly[XD_CACHE_POWERS];       /* highest power first; NaN: the model's               */
} xd_cache_options;

typedef struct xd_cache_unit xd_cache_unit;

typedef enum xd_cache_measure {
    XD_CACHE_ADDED,             /* change of the first blocks' residual, image rows            */
    XD_CACHE_INPUT,             /* change of the first block's input (xd_dit.probe)            */
    XD_CACHE_SCHEDULE,          /* none: the step's number decides; predictions are kept        */
} xd_cache_measure;

typedef struct xd_cache_kind {
    const char      *name, *help;
    const char      *options;   /* names of the accepted options                               */
    xd_cache_measure measure;
    xd_cache_options defaults;  /* default values                                              */
    /* Returns 1 if the middle range may be skipped after this relative change. NULL:
     * XD_CACHE_SCHEDULE. */
    int (*is_small)(const xd_cache_options *o, xd_cache_unit *u, double change);
    int              computes_last;     /* 1: the last step of a transformer is never skipped  */
    int              reports_changes;   /* 1: skips nothing, reports changes (xd_cache_pair)   */
} xd_cache_kind;

/* Relative change of the input, and of the output, of all blocks from one step to the next. */
typedef struct xd_cache_pair { double in, out; } xd_cache_pair;

extern const xd_cache_kind *const xd_caches[];  /* the registry; ends with NULL                */

typedef struct xd_cache_spec {
    const xd_cache_kind *kind;  /* NULL: none                                                  */
    xd_cache_options     o;
} xd_cache_spec;

/* Reads "fbcache:0.12" or "dbcache:Fn=8,threshold=0.08"; NULL and "none": no cache. XD_EINVAL:
 * unknown cache or option. */
xd_status xd_cache_read(xd_cache_spec *c, const char *text, xd_err *e);
/* Reads the cache of the request with the model's defaults. Refuses caches that the model does not
 * support. */
xd_status xd_cache_of_job(struct xd_job *j, xd_err *e);

/* ---- state ------------------------------------------------------------------------- */

struct xd_cache_unit {          /* per pass, and per patch or all tokens                       */
    int    known;               /* available terms of the expansion                            */
    int    measured;            /* 1: `before` is valid                                        */
    int    reused, run;         /* skipped steps: total, in a row                              */
    int    step;                /* last computed step                                          */
    int    turn;                /* index of the newest term in `value`                         */
    double sum;                 /* sum of changes since that step (teacache)                   */
};

typedef struct xd_cache_pass {
    xd_tensor      value[XD_CACHE_ORDERS];      /* [rows of all patches, features] F32         */
    xd_tensor      before;      /* last measured tensor                                        */
    xd_cache_unit *unit;        /* [npatch + 1]: per patch, then all tokens                    */
} xd_cache_pass;

typedef struct xd_step_cache {
    const xd_cache_spec *spec;
    int           lead;         /* first block after the measured ones                         */
    int           from, to;     /* middle range on this stage                                  */
    xd_cache_pass pass[XD_MAXPASS];
    int32_t       received[XD_NHID], sent[XD_NHID];  /* decisions between stages    */
    xd_req        in[XD_NHID], out[XD_NHID];
    int64_t       count[2];     /* ranges skipped by this rank, and all ranges                 */
} xd_step_cache;

/* Allocates the memory of a transformer's steps; discards the state of earlier steps. */
void xd_cache_open(struct xd_denoise *f);
void xd_cache_close(struct xd_denoise *f);
int  xd_cache_is_on(const struct xd_denoise *f);
/* Runs the blocks of this stage, or applies corrections in place of some. */
void xd_cache_run(struct xd_denoise *f, xd_state *s);
/* For caches that measure nothing: returns 1 if step `at` of a transformer is skipped. */
int  xd_cache_skips(const xd_cache_options *o, int at);
/* Returns 1 if the prediction of this step is extrapolated without running any block. */
int  xd_cache_predicts(const struct xd_denoise *f, int step);
/* Extrapolates the prediction on the last stage. unit: a patch or XD_ALL. */
void xd_cache_predict(struct xd_denoise *f, int step, int unit, int pass);
/* Last stage: keeps a computed prediction. */
void xd_cache_keep(struct xd_denoise *f, int step, int unit, int pass);
/* Decisions travel before hidden states; i is the index of the hidden state's buffer. Post the
 * receive, wait for it, send, wait for the send. */
void xd_cache_post(struct xd_denoise *f, int i);
void xd_cache_arrived(struct xd_denoise *f, int i);
void xd_cache_send(struct xd_denoise *f, int i);
void xd_cache_sent(struct xd_denoise *f, int i);
/* Cancels receives that no rank will answer. */
void xd_cache_drop(struct xd_denoise *f);
/* At the end of a transformer's steps: adds count[] of all passes to xd_job.cached, and logs the
 * sum after its last step. Collective over the replica. */
void xd_cache_count(struct xd_denoise *f);

#endif
