/* step_cache.h - step caches: blocks whose effect in an earlier step stands for that in this one
 *
 * The blocks of a transformer are three ranges: the first Fn are computed in every step, the middle
 * ones in some, the last Bn in every step again. Behind the first range a cache decides; where the
 * middle range is left out, a correction takes its place: what the range added to the hidden state
 * when it was computed last, or what follows from the last times it was.
 *
 * Every pass decides for itself, and every patch of PipeFusion. The stage with the first block
 * decides and sends its decision with the hidden state; each stage keeps the correction of its own
 * blocks. Ranks that share tokens or features decide together. */
#ifndef XD_PIPELINE_STEP_CACHE_H
#define XD_PIPELINE_STEP_CACHE_H

#include "base/json.h"
#include "comm/comm.h"
#include "exec/net.h"

struct xd_denoise;
struct xd_job;

/* Passes of a step: with the prompt, with the negative prompt, and with the prompt but without some
 * layers (job_skip.c). */
enum { XD_PASS_PROMPT, XD_PASS_NEGATIVE, XD_PASS_SKIPPING, XD_MAXPASS };
enum { XD_NHID = 3 };           /* hidden states that take turns                               */
enum {
    XD_CACHE_ORDERS = 4,        /* values of a Taylor expansion: up to the third order         */
    XD_CACHE_POWERS = 5,        /* coefficients of a polynomial of degree 4                    */
};

/* ---- what is asked for -------------------------------------------------------------------- */

typedef struct xd_cache_options {
    int    first, last;         /* Fn and Bn: blocks that every step computes                  */
    double threshold;           /* of the change up to which the middle range is left out      */
    int    warmup;              /* steps at the beginning that are computed                    */
    int    most, running;       /* steps that are left out: of all, in a row; negative: any    */
    int    order;               /* of the Taylor expansion; 0: the last value                  */
    int    interval, until;     /* every such step is computed, and all from this one on;      */
                                /* negative: none are                                          */
    double poly[XD_CACHE_POWERS];       /* from the highest power; NaN: the model's            */
} xd_cache_options;

typedef struct xd_cache_unit xd_cache_unit;

typedef enum xd_cache_measure {
    XD_CACHE_ADDED,             /* the change of what the first blocks add to the image's rows */
    XD_CACHE_INPUT,             /* of the first block's input (xd_dit.probe)                   */
    XD_CACHE_SCHEDULE,          /* nothing: the step's number decides, and predictions are kept */
} xd_cache_measure;

typedef struct xd_cache_kind {
    const char      *name, *help;
    const char      *takes;     /* names of its options                                        */
    xd_cache_measure measure;
    xd_cache_options plain;     /* what is not given                                           */
    /* May the middle range be left out after a relative change? NULL: of XD_CACHE_SCHEDULE. */
    int (*is_small)(const xd_cache_options *o, xd_cache_unit *u, double change);
    int              ends;      /* 1: the last step of a transformer is computed               */
    int              tells;     /* 1: it leaves out nothing, and tells changes (xd_cache_pair)   */
} xd_cache_kind;

/* The relative changes of the input and of the output of all blocks from one step to the next. */
typedef struct xd_cache_pair { double in, out; } xd_cache_pair;

extern const xd_cache_kind *const xd_caches[];  /* the registry; ends with NULL                */

typedef struct xd_cache_spec {
    const xd_cache_kind *kind;  /* NULL: none                                                  */
    xd_cache_options     o;
} xd_cache_spec;

/* Reads "fbcache:0.12" or "dbcache:Fn=8,threshold=0.08"; NULL and "none": no cache. XD_EINVAL:
 * there is no such cache or option. */
xd_status xd_cache_read(xd_cache_spec *c, const char *text, xd_err *e);
/* The cache of the request, with what the model says of it. Refuses what the model cannot. */
xd_status xd_cache_of_job(struct xd_job *j, xd_err *e);

/* ---- what is kept ------------------------------------------------------------------------- */

struct xd_cache_unit {          /* of a pass and a patch, or all tokens                        */
    int    known;               /* values of the expansion                                     */
    int    measured;            /* there is something to compare with                          */
    int    reused, run;         /* steps that were left out: of all, in a row                  */
    int    step;                /* that was computed last                                      */
    int    turn;                /* where its values begin in `value`                           */
    double sum;                 /* of changes since then (teacache)                            */
};

typedef struct xd_cache_pass {
    xd_tensor      value[XD_CACHE_ORDERS];      /* [rows of all patches, features] F32         */
    xd_tensor      before;      /* what was measured last                                      */
    xd_cache_unit *unit;        /* [npatch + 1]: of each patch, and of all                     */
} xd_cache_pass;

typedef struct xd_step_cache {
    const xd_cache_spec *spec;
    int           lead;         /* where the measured blocks begin                             */
    int           from, to;     /* the middle range, of this stage                             */
    xd_cache_pass pass[XD_MAXPASS];
    int32_t       got[XD_NHID], told[XD_NHID];  /* decisions between stages    */
    xd_req        in[XD_NHID], out[XD_NHID];
    int64_t       count[2];     /* ranges that this rank has left out, and all                 */
} xd_step_cache;

/* Takes the memory of a transformer's steps; what was kept of earlier ones is forgotten. */
void xd_cache_open(struct xd_denoise *f);
void xd_cache_close(struct xd_denoise *f);
int  xd_cache_is_on(const struct xd_denoise *f);
/* Runs the blocks of this stage, or what stands for some of them. */
void xd_cache_run(struct xd_denoise *f, xd_state *s);
/* Does a cache that measures nothing leave out step `at` of a transformer? */
int  xd_cache_skips(const xd_cache_options *o, int at);
/* Is the prediction of this step made without any block? */
int  xd_cache_predicts(const struct xd_denoise *f, int step);
/* Makes it, on the last stage. unit: a patch or XD_ALL. */
void xd_cache_predict(struct xd_denoise *f, int step, int unit, int pass);
/* Last stage: keeps a prediction that was computed. */
void xd_cache_keep(struct xd_denoise *f, int step, int unit, int pass);
/* Decisions travel in front of hidden states, of which i is the buffer: posts the receive, waits
 * for it, sends, waits until it is sent. */
void xd_cache_post(struct xd_denoise *f, int i);
void xd_cache_arrived(struct xd_denoise *f, int i);
void xd_cache_send(struct xd_denoise *f, int i);
void xd_cache_sent(struct xd_denoise *f, int i);
/* Gives up receives that no rank will answer. */
void xd_cache_drop(struct xd_denoise *f);
/* At the end of a transformer's steps: adds count[] of all passes to those of the image
 * (xd_job.cached), and says them behind its last step. Collective over the replica. */
void xd_cache_count(struct xd_denoise *f);

#endif
