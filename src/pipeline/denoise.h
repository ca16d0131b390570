/* denoise.h - the denoising loop: which stage computes which patch, pass and step, and when
 *
 * One driver serves all topologies; one rank means one stage and one patch. Exact steps process all
 * tokens at once; later steps process patch after patch. Stages overlap because sends do not block
 * and receives are posted one work item ahead. */
#ifndef XD_PIPELINE_DENOISE_H
#define XD_PIPELINE_DENOISE_H

#include "base/rng.h"
#include "dit/mods.h"
#include "exec/tables.h"
#include "observe/trace.h"
#include "parallel/method.h"
#include "pipeline/replay.h"
#include "pipeline/step_cache.h"
#include "plan/plan.h"
#include "sampler/sampler.h"

struct xd_job;

enum { XD_NKEEP = 3 };

typedef struct xd_denoise {
    xd_exec         x;
    struct xd_job  *j;
    const xd_plan  *plan;
    const xd_topo  *topo;
    const xd_net   *net;
    xd_trace       *trace;      /* NULL: no recording                                          */
    xd_layout       lay;
    int             begin, end; /* steps [begin, end) of `net`                                 */
    size_t          mark;       /* arena mark: memory from here on is for these steps          */
    xd_method_stack stack;
    xd_replay       replay;     /* passes recorded by the device                               */
    xd_mods         mods[XD_MAXPASS];   /* adaLN: [0] for all passes, or per pass with text     */
    xd_step_cache   cache;      /* reuse of earlier steps' work                                 */
    xd_tables       tables;     /* position tables on the device                                 */
    xd_cond         cond[XD_MAXPASS]; /* text per pass: prompt, negative prompt                  */
    /* This rank's image rows, patch by patch [n,C p^2]: latents (first and last stage),
     * predictions and history (last stage). */
    xd_tensor       lat, pred[XD_MAXPASS], hist[XD_MAXHIST];
    xd_tensor       noise;    /* noise of this step (last stage); absent: none drawn              */
    xd_tensor       extra;      /* further input channels (first stage)                        */
    /* Inpainting (last stage): mask (1: inpainted); latents of the image, and noise, both 0 where
     * the mask is 1. */
    xd_tensor       keep[XD_NKEEP];
    xd_tensor       clean;      /* clean latents (last stage); absent: no previews               */
    xd_tensor       ref;        /* this rank's tokens of reference images (first stage)        */
    xd_tensor       h[XD_NHID]; /* hidden states, used cyclically; all rows of this rank       */
    xd_req          h_in[XD_NHID], h_out[XD_NHID];
    xd_tensor       skip[XD_NHID];      /* long skip connections of h, if the model has any    */
    int             nskip;      /* number of skip buffers, also used cyclically                */
    int             skips[2];   /* skips received and sent with a hidden state                 */
    xd_req          skip_in[XD_NHID], skip_out[XD_NHID];
    xd_req         *lat_in, *lat_out;   /* [npatch + 1]: per patch, then all tokens            */
    int64_t         piece_index; /* started work items                                          */
    int32_t         verdict, worst;     /* errors of this step: this rank's, all ranks'        */
    xd_req          agree;
    void           *local;
    void           *kept[XD_MAXPASS];   /* the model's cached data of the text, per pass       */
    int             read[XD_MAXPASS];   /* 1: `kept` is filled                                 */
    xd_rng          rng;        /* of the image's noise                                        */
    double        (*sums)[4];   /* [npatch]: sums of predictions, for guidance_rescale         */
    /* Host latents: this rank's rows; all rows; all rows in image order. */
    float          *mine, *rows, *whole;
} xd_denoise;

/* Allocates the request's tensors in the arena and opens the method stack. Errors are sticky on
 * f->x. cond[p].tok is complete on every rank. Collective over the replica. */
void xd_denoise_open(xd_denoise *f, struct xd_job *j, xd_dev *dev, const xd_topo *topo,
                     xd_arena *tmp, const xd_net *net, const xd_cond *cond);
void xd_denoise_close(xd_denoise *f);
/* Returns 1 if every rank of the replica is ready. Only then may steps begin, because a rank that
 * fails later still takes part in all messages. The failure is on f->x. Collective. */
int  xd_denoise_ready(xd_denoise *f);
void xd_denoise_noise(xd_denoise *f, int64_t seed, int image);  /* draws the initial noise */
/* Switches to transformer `net` for `step` and the rest of its steps. Cached text data and stale
 * keys and values are discarded. Call xd_denoise_finish before and xd_denoise_ready after.
 * Collective over the replica. */
void xd_denoise_change(xd_denoise *f, const xd_net *net, int step);
/* Runs one step; returns 0 if the ranks have agreed that one of them failed in an earlier step. */
int  xd_denoise_step(xd_denoise *f, int step);
/* Ends the loop, or the steps of a transformer: waits for pending messages, and gives every rank of
 * the replica the first error of any rank, if there was one. */
void xd_denoise_finish(xd_denoise *f);
/* Writes the complete latents [t,C,h,w] as F32 to host memory on every rank of the replica. */
void xd_denoise_latents(xd_denoise *f, float *out);
/* Calls on_tensor and on_latents, if set, with the latents after a step; the next step continues
 * from the latents that on_latents leaves on the replica's first rank. `lat`: buffer for them.
 * Collective over the replica. */
void xd_denoise_report(xd_denoise *f, int step, const xd_progress *p, float *lat);
/* As xd_denoise_latents for the clean latents predicted by the last step (if xd_preview_due). */
void xd_denoise_clean(xd_denoise *f, float *out);
/* Counts the arena bytes of this rank, and the further bytes of its methods. `len`: text tokens of
 * each pass. */
xd_status xd_denoise_count(struct xd_job *j, const int64_t len[XD_MAXPASS], size_t *bytes,
                           size_t *method_bytes, xd_err *e);
/* Runs one exact pass of the model over all tokens; the prediction is in f->pred[pass]. */
void xd_denoise_pass(xd_denoise *f, int step, int pass);

#endif
