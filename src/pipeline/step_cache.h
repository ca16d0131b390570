/* step_cache.h - implements step caches, which skip transformer blocks in some denoising steps. In
 * some denoising steps, a step cache skips transformer blocks and reuses the effect that these
 * blocks had in earlier steps.
 *
 * The blocks of a transformer are divided into three ranges. The first range (of Fn blocks) and the
 * last range (of Bn blocks) run in every step; the middle range runs only in some steps. After the
 * first range has run, the step cache decides whether to skip the middle range. A skipped middle
 * range is replaced by a correction: the contribution that the middle range made to the hidden
 * state when it last ran, or an extrapolation from its last few contributions.
 *
 * The step cache decides separately for each guidance pass and each PipeFusion patch. The first
 * pipeline stage decides whether to skip blocks, and sends its decision to the next stages together
 * with the hidden state. Each pipeline stage stores the correction for its own blocks. Ranks that
 * split the tokens or features of a stage make equal decisions. */
#ifndef XD_PIPELINE_STEP_CACHE_H
#define XD_PIPELINE_STEP_CACHE_H

#include "base/json.h"
#include "comm/comm.h"
#include "exec/net.h"

struct xd_denoise;
struct xd_job;

/* Kinds of guidance passes of a step (xd_job.kinds). The first guidance pass of a step reads the
 * prompt. Further passes of a step read the negative prompt, skip some layers (job_skip.c), replace
 * the attention of some blocks, or isolate video and audio from each other (job_streams.c). */
typedef enum xd_pass_kind {
    XD_PASS_PROMPT,
    XD_PASS_NEGATIVE,
    XD_PASS_SKIPPING,
    XD_PASS_PERTURBED,
    XD_PASS_ISOLATED
} xd_pass_kind;
enum { XD_MAXPASS = 4 }; /* maximum number of guidance passes of a step */
enum { XD_NHID = 3 };    /* number of hidden-state buffers, used cyclically */
enum {
    /* maximum number of terms of a Taylor expansion: the terms of order 0 to 3 */
    XD_CACHE_ORDERS = 4,
    XD_CACHE_POWERS = 5, /* number of coefficients of a polynomial of degree 4 */
};

/* ---- options of a step cache ---------------------------------------------------- */

typedef struct xd_cache_options {
    /* number of blocks at the beginning (Fn), and at the end (Bn), that run in every step */
    int    first, last;
    double threshold;  /* maximum relative change for which the middle range of blocks is skipped */
    int    warmup;     /* number of steps at the start in which no block is skipped */
    int    max_cached; /* maximum number of steps that skip blocks; negative: no limit */
    /* maximum number of consecutive steps that skip blocks; negative: no limit */
    int    max_continuous;
    /* order of the Taylor expansion that extrapolates the correction; 0: the correction does not
     * change */
    int    order;
    /* After the warm-up, only every interval-th step is computed. From step `until` on, all blocks
     * run in every step. A negative `until` has no effect. */
    int    interval, until;
    /* Coefficients of teacache's polynomial, highest power first. If the coefficients are NaN,
     * those that are published for the model are used. */
    double poly[XD_CACHE_POWERS];
} xd_cache_options;

typedef struct xd_cache_unit xd_cache_unit;

typedef enum xd_cache_measure {
    /* Measure: change, since an earlier step, of what the first blocks add to the hidden states of
     * the image tokens. */
    XD_CACHE_ADDED,
    /* Measure: change of the input of the first block (xd_dit.probe), compared with an earlier
     * step. */
    XD_CACHE_INPUT,
    /* The step cache measures nothing: the number of the step decides whether blocks are
     * skipped. */
    XD_CACHE_SCHEDULE,
} xd_cache_measure;

typedef struct xd_cache_kind {
    const char      *name, *help;
    const char      *options; /* names of the options that the step cache accepts */
    xd_cache_measure measure;
    xd_cache_options defaults; /* default values of the step cache's options */
    /* Returns 1 if the middle range of blocks may be skipped although the measured tensor has the
     * relative change `change`. For XD_CACHE_SCHEDULE, the pointer is_small is NULL. */
    int              (*is_small)(const xd_cache_options *o, xd_cache_unit *u, double change);
    int              computes_last; /* 1: the last step of a transformer is never skipped */
    /* 1: the step cache never skips blocks and only reports how much the hidden states change */
    int              reports_changes;
} xd_cache_kind;

/* Changes of the first block's input and of the last block's output from one step to the next,
 * relative to their size. */
typedef struct xd_cache_pair { double in, out; } xd_cache_pair;

/* List of all kinds of step caches. The array xd_caches ends with NULL. */
extern const xd_cache_kind *const xd_caches[];

typedef struct xd_cache_spec {
    const xd_cache_kind *kind; /* kind of step cache; NULL: no cache */
    xd_cache_options     o;
} xd_cache_spec;

/* Reads the option `cache` of a request from its text, for example "fbcache:0.12" or
 * "dbcache:Fn=8,threshold=0.08". NULL and "none" mean that there is no cache. Returns XD_EINVAL if
 * the step cache or one of its options is unknown. */
xd_status xd_cache_read(xd_cache_spec *c, const char *text, xd_err *e);
/* Reads the step cache of a request; options that the request does not set have the values of the
 * model. Refuses a step cache that the model does not support. */
xd_status xd_cache_of_job(struct xd_job *j, xd_err *e);

/* ---- state of a step cache --------------------------------------------------------- */

struct xd_cache_unit { /* state of a guidance pass for one patch, or for all tokens */
    int    known;      /* number of available terms of the Taylor expansion */
    int    measured;   /* 1: the tensor xd_cache_pass.before is valid */
    /* reused: total number of steps that skipped blocks. run: number of consecutive steps, up to
     * now, that skipped blocks. */
    int    reused, run;
    int    step; /* index of the last step that was computed */
    int    turn; /* index of the newest term in xd_cache_pass.value */
    double sum;  /* sum of changes since the last computed step (teacache) */
};

typedef struct xd_cache_pass {
    /* [rows of all patches, features] F32 terms of the Taylor expansion */
    xd_tensor      value[XD_CACHE_ORDERS];
    xd_tensor      before; /* the tensor that was measured in the last step */
    xd_cache_unit *unit;   /* [npatch + 1] state of each patch, then the state for all tokens */
} xd_cache_pass;

typedef struct xd_step_cache {
    const xd_cache_spec *spec;
    int                  lead; /* index of the block that follows the first range of blocks */
    /* This pipeline stage runs blocks [from, to) of the middle range. */
    int                  from, to;
    xd_cache_pass        pass[XD_MAXPASS];
    /* decisions that pipeline stages send each other */
    int32_t              received[XD_NHID], sent[XD_NHID];
    xd_req               in[XD_NHID], out[XD_NHID];
    /* count[0] is how often this rank has skipped the middle range of blocks; count[1] is how often
     * it has either skipped or run this range. */
    int64_t              count[2];
} xd_step_cache;

/* Allocates the memory of the step cache for the steps of one transformer, and discards the state
 * of earlier steps. */
void xd_cache_open(struct xd_denoise *f);
void xd_cache_close(struct xd_denoise *f);
int  xd_cache_is_on(const struct xd_denoise *f);
/* Runs the transformer blocks of this pipeline stage, or skips some of them. If the middle range of
 * blocks is skipped, xd_cache_run adds the correction to the hidden state instead. */
void xd_cache_run(struct xd_denoise *f, xd_state *s);
/* For a cache with the measure XD_CACHE_SCHEDULE, returns 1 if step number `at` of a transformer is
 * skipped. */
int  xd_cache_skips(const xd_cache_options *o, int at);
/* Returns 1 if the prediction of this step is extrapolated without running any block. */
int  xd_cache_predicts(const struct xd_denoise *f, int step);
/* On the last pipeline stage, extrapolates the prediction of a guidance pass from the predictions
 * of earlier steps. `unit` is the number of a patch, or XD_ALL for all tokens. */
void xd_cache_predict(struct xd_denoise *f, int step, int unit, int pass);
/* On the last pipeline stage, stores a computed prediction, from which predictions of later steps
 * are extrapolated. */
void xd_cache_keep(struct xd_denoise *f, int step, int unit, int pass);
/* Each pipeline stage sends the next stage first the decision whether the middle range is skipped,
 * and then the hidden state. xd_cache_post posts the receive of a decision, and xd_cache_arrived
 * waits for the receive. xd_cache_send sends a decision, and xd_cache_sent waits for the send. `i`
 * is the index of the buffer of the hidden state to which the decision belongs. */
void xd_cache_post(struct xd_denoise *f, int i);
void xd_cache_arrived(struct xd_denoise *f, int i);
void xd_cache_send(struct xd_denoise *f, int i);
void xd_cache_sent(struct xd_denoise *f, int i);
/* Cancels posted receives of decisions that no pipeline stage will send any more. */
void xd_cache_drop(struct xd_denoise *f);
/* Call xd_cache_count at the end of a transformer's steps. Adds the counters xd_step_cache.count of
 * all ranks to xd_job.cached. After the request's last step, logs how many block ranges were
 * skipped. The call is collective over the ranks of the replica. */
void xd_cache_count(struct xd_denoise *f);

#endif
