/* denoise.h - the denoising loop: which stage computes which patch, pass and step, and when
 *
 * One driver serves all topologies; one rank is the case of one stage and one patch. Exact steps
 * run all tokens at once; later steps run patch after patch. Stages overlap because sends do not
 * block and receives are posted one piece of work ahead. */
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
    xd_trace       *trace;      /* NULL: nothing is recorded                                   */
    xd_layout       lay;
    int             begin, end; /* the steps that `net` computes                               */
    size_t          mark;       /* of the arena: what begins here belongs to these steps       */
    xd_method_stack stack;
    xd_replay       replay;     /* passes that the device has recorded                         */
    xd_mods         mods[XD_MAXPASS];   /* of all passes, or of each where the text enters      */
    xd_step_cache   cache;      /* work of earlier steps that stands for that of later ones     */
    xd_tables       tables;     /* of positions, where the host cannot reach the device's memory */
    xd_cond         cond[XD_MAXPASS]; /* text of each pass: the prompt, then the negative prompt */
    /* This rank's image rows, patch by patch [n,C p^2]: latents (first and last stage),
     * predictions and history (last stage). */
    xd_tensor       lat, pred[XD_MAXPASS], hist[XD_MAXHIST];
    xd_tensor       noise;    /* noise of this step's sampler (last stage); absent: it draws none */
    xd_tensor       extra;      /* model input beside the latents (first stage)                */
    /* With a mask (last stage): 1 where it shows what is inpainted; latents of the image and noise
     * where it does not, else 0. */
    xd_tensor       keep[XD_NKEEP];
    xd_tensor       clean;      /* clean latents of this step (last stage); absent: no previews  */
    xd_tensor       ref;        /* this rank's tokens of reference images (first stage)        */
    xd_tensor       h[XD_NHID]; /* hidden states, used in turn; all of this rank's rows        */
    xd_req          h_in[XD_NHID], h_out[XD_NHID];
    xd_tensor       skip[XD_NHID];      /* their long skips, if the model has any              */
    int             nskip;      /* buffers for them, also used in turn                         */
    int             skips[2];   /* number received and sent with a hidden state                */
    xd_req          skip_in[XD_NHID], skip_out[XD_NHID];
    xd_req         *lat_in, *lat_out;   /* [npatch + 1]: of each patch, and of all             */
    int64_t         piece_index; /* pieces of work begun                                        */
    int32_t         verdict, worst;     /* errors of this step: of this rank, of all ranks     */
    xd_req          agree;
    void           *local;
    void           *kept[XD_MAXPASS];   /* the model's cached data of each pass's text         */
    int             read[XD_MAXPASS];   /* `kept` is filled                                    */
    xd_rng          rng;        /* of the image's noise                                        */
    double        (*sums)[4];   /* [npatch]: sums of predictions, for guidance_rescale         */
    /* Host latents: this rank's rows, all rows, all in image order. */
    float          *mine, *rows, *whole;
} xd_denoise;

/* Takes the request's tensors from the arena and opens the method stack. Errors are sticky on
 * f->x. cond[p].tok is whole on every rank. Collective over the replica. */
void xd_denoise_open(xd_denoise *f, struct xd_job *j, xd_dev *dev, const xd_topo *topo,
                     xd_arena *tmp, const xd_net *net, const xd_cond *cond);
void xd_denoise_close(xd_denoise *f);
/* Returns 1 if every rank of the replica is ready. Steps may begin only then, because a rank that
 * fails later still takes part in all messages. Collective; the failure is on f->x. */
int  xd_denoise_ready(xd_denoise *f);
void xd_denoise_noise(xd_denoise *f, int64_t seed, int image);      /* of the request's images    */
/* From now on `net` computes, from `step` to the end of that transformer's steps: what is kept of
 * the text, and keys and values of earlier steps, begin anew. Messages have ended
 * (xd_denoise_finish), and xd_denoise_ready follows. Collective over the replica. */
void xd_denoise_change(xd_denoise *f, const xd_net *net, int step);
/* Runs one step; returns 0 if the ranks have agreed that one of them failed in an earlier step. */
int  xd_denoise_step(xd_denoise *f, int step);
/* Ends the loop, or the steps of a transformer: waits for pending messages, agrees on the errors of
 * the last step, and gives every rank of the replica the first cause. */
void xd_denoise_finish(xd_denoise *f);
/* The whole latents as [t,C,h,w], F32 on the host of every rank of the replica. */
void xd_denoise_latents(xd_denoise *f, float *out);
/* Calls on_tensor and on_latents, where they are set, with the latents behind a step; the next step
 * goes on from what on_latents leaves on the replica's first rank. `lat`: memory for them.
 * Collective over the replica. */
void xd_denoise_report(xd_denoise *f, int step, const xd_progress *p, float *lat);
/* The same of the clean latents that the last step, one of xd_preview_due, has predicted. */
void xd_denoise_clean(xd_denoise *f, float *out);
/* Counts the arena bytes of this rank, and the bytes that its methods hold in addition. `len`:
 * text tokens of each pass. */
xd_status xd_denoise_count(struct xd_job *j, const int64_t len[XD_MAXPASS], size_t *bytes,
                           size_t *method_bytes, xd_err *e);
/* One exact pass of the model over all tokens; the prediction is in f->pred[pass]. */
void xd_denoise_pass(xd_denoise *f, int step, int pass);

#endif
