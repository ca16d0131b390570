/* step_cache.h - step caches, which skip blocks of a denoising step and reuse their effect in an
 * earlier step.
 *
 * The blocks of a transformer are three ranges. The first Fn blocks and the last Bn blocks run in
 * every step, and the blocks in the middle in some steps. After the first range the cache decides
 * whether to skip the middle range. If so, a correction replaces it: the contribution that the
 * middle range made to the hidden state when it last ran, or an extrapolation from its last few
 * contributions.
 *
 * The cache decides separately for each pass and each PipeFusion patch. The stage with the first
 * block decides, and sends the decision with the hidden state; each stage stores the correction for
 * its own blocks. Ranks that split tokens or features decide together. */
#ifndef XD_PIPELINE_STEP_CACHE_H
#define XD_PIPELINE_STEP_CACHE_H

#include "base/json.h"
#include "comm/comm.h"
#include "exec/net.h"

struct xd_denoise;
struct xd_job;

/* The passes of a step: with the prompt, with the negative prompt, and with the prompt while some
 * layers are skipped (job_skip.c). */
enum { XD_PASS_PROMPT, XD_PASS_NEGATIVE, XD_PASS_SKIPPING, XD_MAXPASS };
enum { XD_NHID = 3 };           /* number of hidden-state buffers, used cyclically             */
enum {
    XD_CACHE_ORDERS = 4,        /* max terms of a Taylor expansion: up to third order          */
    XD_CACHE_POWERS = 5,        /* coefficients of a polynomial of degree 4                    */
};

/* ---- options -------------------------------------------------------------------- */

typedef struct xd_cache_options {
    int    first, last; /* numbers of first and last blocks (Fn, Bn) that run in every step */
    double threshold; /* max relative change for which the middle range of blocks is skipped */
    int    warmup;              /* number of steps at the start that skip nothing              */
    int    max_cached;          /* max number of skipped steps; negative: no limit             */
    int    max_continuous;      /* max number of skipped steps in a row; negative: no limit    */
    int    order;               /* order of the Taylor expansion; 0: use the last value        */
    /* Every interval-th step is computed, and all steps from step `until` on (negative: never). */
    int    interval, until;
    /* Coefficients of teacache's polynomial, highest power first; NaN: the model's polynomial. */
    double poly[XD_CACHE_POWERS];
} xd_cache_options;

typedef struct xd_cache_unit xd_cache_unit;

typedef enum xd_cache_measure {
    XD_CACHE_ADDED,             /* measures the change of what the first blocks add to image rows */
    XD_CACHE_INPUT,             /* measures the change of the first block's input (xd_dit.probe) */
    XD_CACHE_SCHEDULE,          /* measures nothing: the number of the step decides             */
} xd_cache_measure;

typedef struct xd_cache_kind {
    const char      *name, *help;
    const char      *options;   /* names of the accepted options                               */
    xd_cache_measure measure;
    xd_cache_options defaults;  /* default values of the options                               */
    /* Returns 1 if the middle range of blocks may be skipped after this relative change. The
     * pointer is NULL for XD_CACHE_SCHEDULE. */
    int (*is_small)(const xd_cache_options *o, xd_cache_unit *u, double change);
    int              computes_last;     /* 1: the last step of a transformer is never skipped  */
    int              reports_changes;   /* 1: skips nothing, only reports changes (xd_cache_pair) */
} xd_cache_kind;

/* How much the first block's input and the last block's output change from one step to the next,
 * relative to their size. */
typedef struct xd_cache_pair { double in, out; } xd_cache_pair;

/* all kinds of step caches; the array ends with NULL */
extern const xd_cache_kind *const xd_caches[];

typedef struct xd_cache_spec {
    const xd_cache_kind *kind;  /* kind of step cache; NULL: no cache                          */
    xd_cache_options     o;
} xd_cache_spec;

/* Reads the option `cache` of a request: "fbcache:0.12" or "dbcache:Fn=8,threshold=0.08"; NULL and
 * "none" mean no cache. Returns XD_EINVAL if the cache or an option is unknown. */
xd_status xd_cache_read(xd_cache_spec *c, const char *text, xd_err *e);
/* Reads the step cache of a request, with the model's values as defaults. Refuses caches that the
 * model does not support. */
xd_status xd_cache_of_job(struct xd_job *j, xd_err *e);

/* ---- state ------------------------------------------------------------------------- */

struct xd_cache_unit {          /* state of a guidance pass for one patch, or for all tokens   */
    int    known;               /* number of available terms of the Taylor expansion           */
    int    measured;            /* 1: xd_cache_pass.before is valid                            */
    int    reused, run; /* number of skipped steps: in total; since the last computed step */
    int    step;                /* index of the last step that was computed                    */
    int    turn;                /* index of the newest term in xd_cache_pass.value             */
    double sum;                 /* sum of changes since the last computed step (teacache)      */
};

typedef struct xd_cache_pass {
    /* [rows of all patches, features] F32 terms of the Taylor expansion */
    xd_tensor      value[XD_CACHE_ORDERS];
    xd_tensor      before;      /* tensor whose change is measured, as it was in the last step */
    xd_cache_unit *unit;        /* [npatch + 1] state of each patch, then for all tokens       */
} xd_cache_pass;

typedef struct xd_step_cache {
    const xd_cache_spec *spec;
    int           lead;         /* index of the first block after the first range of blocks    */
    /* blocks of this stage that are in the middle range, which may be skipped */
    int           from, to;
    xd_cache_pass pass[XD_MAXPASS];
    /* decisions that pipeline stages send each other */
    int32_t       received[XD_NHID], sent[XD_NHID];
    xd_req        in[XD_NHID], out[XD_NHID];
    int64_t       count[2]; /* number of middle ranges that this rank has skipped; of all ranges */
} xd_step_cache;

/* Allocates the cache's memory for the steps of one transformer, and discards the state of earlier
 * steps. */
void xd_cache_open(struct xd_denoise *f);
void xd_cache_close(struct xd_denoise *f);
int  xd_cache_is_on(const struct xd_denoise *f);
/* Runs the blocks of this pipeline stage, or applies the correction in place of the stage's middle
 * blocks. */
void xd_cache_run(struct xd_denoise *f, xd_state *s);
/* For caches of kind XD_CACHE_SCHEDULE: returns 1 if step number `at` of a transformer is
 * skipped. */
int  xd_cache_skips(const xd_cache_options *o, int at);
/* Returns 1 if the prediction of this step is extrapolated without running any block. */
int  xd_cache_predicts(const struct xd_denoise *f, int step);
/* On the last pipeline stage: extrapolates the prediction of a guidance pass. `unit` is the number
 * of a patch, or XD_ALL for all tokens. */
void xd_cache_predict(struct xd_denoise *f, int step, int unit, int pass);
/* On the last pipeline stage: stores a computed prediction for later extrapolation. */
void xd_cache_keep(struct xd_denoise *f, int step, int unit, int pass);
/* Messages between stages with the decision whether the middle range is skipped. A decision is sent
 * before its hidden state; `i` is the index of the hidden state's buffer. The functions post a
 * receive, wait for the receive, send, and wait for the send. */
void xd_cache_post(struct xd_denoise *f, int i);
void xd_cache_arrived(struct xd_denoise *f, int i);
void xd_cache_send(struct xd_denoise *f, int i);
void xd_cache_sent(struct xd_denoise *f, int i);
/* Cancels receives of decisions that no rank will send. */
void xd_cache_drop(struct xd_denoise *f);
/* Call at the end of a transformer's steps: adds the counted ranges (count) of all ranks to
 * xd_job.cached, and logs the sum after the request's last step. Collective over the replica. */
void xd_cache_count(struct xd_denoise *f);

#endif
