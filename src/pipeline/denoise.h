/* denoise.h - runs the denoising loop, which determines the order in which a pipeline stage
 * computes the patches and guidance passes of every step.
 *
 * One implementation of the denoising loop serves all parallel plans; without parallelism, it has
 * one pipeline stage and one patch. The first denoising steps are exact: they use no values of
 * earlier steps, and process all tokens at once. After the exact steps, a pipeline stage processes
 * one patch after the other. A work item is the computation of one patch for one prompt (the prompt
 * or the negative prompt). Pipeline stages work at the same time, because sends do not block and
 * each stage posts the receives of its next work item in advance. */
#ifndef XD_PIPELINE_DENOISE_H
#define XD_PIPELINE_DENOISE_H

#include "base/rng.h"
#include "dit/mods.h"
#include "exec/tables.h"
#include "observe/trace.h"
#include "parallel/method.h"
#include "pipeline/replay.h"
#include "pipeline/step_cache.h"
#include "pipeline/step_hash.h"
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
    xd_trace       *trace; /* recorder of events; NULL: no recording */
    xd_layout       lay;
    int             begin, end; /* the transformer `net` computes steps [begin, end) */
    size_t          mark; /* arena position at which the memory of steps [begin, end) starts */
    xd_method_stack stack;
    /* recorded kernel launches, replayed in later evaluations of the transformer */
    xd_replay       replay;
    /* adaLN parameters for each guidance pass (evaluation with the prompt or with the negative
     * prompt). If the adaLN parameters do not depend on the text, all guidance passes use
     * mods[0]. */
    xd_mods         mods[XD_MAXPASS];
    /* step cache, which reuses outputs of transformer blocks from earlier steps */
    xd_step_cache   cache;
    xd_step_hashing hashing;          /* hashes of the current step, if the request wants hashes */
    xd_tables       tables;           /* position tables on the device */
    xd_cond         cond[XD_MAXPASS]; /* text embeddings of each guidance pass */
    /* This rank's image tokens, one patch of PipeFusion after the other. A token is a row of C p^2
     * numbers: p x p latent cells of C channels. In `lat`, `pred`, `hist` and `noise`, the audio
     * tokens of all patches follow the image tokens of all patches. The first and the last pipeline
     * stage have the latents; the last stage also has the predictions and the sampler's history. */
    xd_tensor       lat, pred[XD_MAXPASS], hist[XD_MAXHIST];
    /* on the last stage: noise that the sampler adds in the step, or absent */
    xd_tensor       noise;
    xd_tensor       extra; /* further input channels of the transformer (on the first stage) */
    /* On the last pipeline stage, for inpainting: the mask (1 where the image is replaced), the
     * latents of the input image, and noise. Where the mask is 1, the latents of the input image
     * and the noise are 0. */
    xd_tensor       keep[XD_NKEEP];
    /* Initial latents of the given frames, and the noise that this step adds to them. `given` and
     * `given_noise` exist only on the first and the last pipeline stage, and only if steps add
     * noise to given frames. */
    xd_tensor       given, given_noise;
    /* [t] timesteps of the frames in this step; NULL: all frames have the same timestep */
    float          *frame_t;
    /* on the last stage: predicted latents without noise, for previews; absent: no previews */
    xd_tensor       clean;
    xd_tensor       ref; /* this rank's tokens of reference images (on the first stage) */
    /* Buffers for the hidden states of all tokens of this rank, used by one work item after the
     * other in a cycle. */
    xd_tensor       h[XD_NHID];
    xd_req          h_in[XD_NHID], h_out[XD_NHID];
    /* tensors of long skip connections, if the model has long skip connections */
    xd_tensor       skip[XD_NHID];
    int             nskip; /* number of `skip` buffers, which are used cyclically */
    /* Number of tensors of long skip connections that this pipeline stage receives with each hidden
     * state, and number that it sends. */
    int             skips[2];
    xd_req          skip_in[XD_NHID], skip_out[XD_NHID];
    /* Compressed forms of `h` and `skip`, if pipeline stages on different hosts send compressed
     * values; else absent. */
    xd_tensor       h_codes[XD_NHID], skip_codes[XD_NHID];
    /* [2][npatch + 1] messages with image latents [0] and audio latents [1]: one for each patch,
     * then one for all tokens */
    xd_req         *lat_in, *lat_out;
    int64_t         piece_index; /* number of work items that have started */
    /* Status codes of the step: `verdict` is this rank's own, and `worst` is the most severe of all
     * ranks. */
    int32_t         verdict, worst;
    xd_req          agree;
    void           *local;
    /* For each guidance pass, tensors of the transformer that depend only on the text and are
     * reused in later steps. */
    void           *kept[XD_MAXPASS];
    int             read[XD_MAXPASS]; /* 1: `kept` contains the tensors of this guidance pass */
    xd_rng          rng;              /* random generator of the image's noise */
    /* Sums for guidance_rescale and cfg_normalization, [npatch + 1][2][nsums]: for each patch, and
     * last for all patches, first the sums of the prompt's prediction and then the sums of the
     * guided prediction. By default, each prediction has two sums: of its elements and of their
     * squares. If the pipeline keeps the norm of the prompt's prediction in each row, each
     * prediction has one sum of squares for each row of the latents [t,C,h]. */
    double         *sums;
    int64_t         nsums;
    /* [F] for each of the F features of a token, the row of latent cells to which it belongs */
    int64_t        *row_of;
    /* Buffers in host memory for latents as tokens. `mine` contains this rank's tokens, `rows` the
     * tokens of all ranks ordered by rank, and `whole` the tokens of all ranks ordered by their
     * position in the image. */
    float          *mine, *rows, *whole;
} xd_denoise;

/* Allocates the request's tensors in the arena and opens the stack of parallel methods. Errors are
 * stored in the execution context f->x. On every rank, cond[p] contains the text embeddings of all
 * text tokens for guidance pass p. The transformer `net` computes step `step`, the first one, and
 * the following steps. The call is collective over the ranks of the replica. */
void      xd_denoise_open(xd_denoise *f, struct xd_job *j, xd_dev *dev, const xd_topo *topo,
                          xd_arena *tmp, const xd_net *net, const xd_cond *cond, int step);
void      xd_denoise_close(xd_denoise *f);
/* Returns 1 if xd_denoise_open has succeeded on every rank of the replica; a failure is stored in
 * the execution context f->x. Steps may begin only after xd_denoise_ready has returned 1, because a
 * rank that fails later still takes part in all messages. The call is collective over the ranks of
 * the replica. */
int       xd_denoise_ready(xd_denoise *f);
/* Draws the initial noise of image number `image`. */
void      xd_denoise_noise(xd_denoise *f, int64_t seed, int image);
/* Switches to another transformer: from now on, `net` computes step `step` and the following steps.
 * Discards the cached tensors that depend only on the text, and the keys and values of earlier
 * steps. Call xd_denoise_finish before xd_denoise_change, and xd_denoise_ready after it. The call
 * is collective over the ranks of the replica. */
void      xd_denoise_change(xd_denoise *f, const xd_net *net, int step);
/* Runs one denoising step. Returns 0 when all ranks know that a rank has failed; the denoising loop
 * then ends on all ranks. */
int       xd_denoise_step(xd_denoise *f, int step);
/* Converts normal random numbers [C,h,w] in place to latents, sampled from the Gaussian with the
 * given moments; zeros become the mean latents. */
void      xd_latents_sample(const struct xd_job *j, const float *moments, float *sample);
/* Waits until all pending messages are sent and received. Call xd_denoise_finish after the last
 * step of the loop, and after the last step of each transformer. If any rank of the replica has
 * failed, all ranks of the replica get the first error. */
void      xd_denoise_finish(xd_denoise *f);
/* On every rank of the replica, writes the complete latents [t,C,h,w] as F32 to host memory. */
void      xd_denoise_latents(xd_denoise *f, float *out);
/* On every rank of the replica, writes the complete latents of audio [C,t,m] to host memory. */
void      xd_denoise_audio_latents(xd_denoise *f, float *out);
/* Calls the request's on_tensor and on_latents, if set, with the latents after a step. The callback
 * on_latents may change the latents on the replica's first rank; the next step then continues from
 * the changed latents. `lat` is a buffer in host memory that receives the latents. The call is
 * collective over the ranks of the replica. */
void      xd_denoise_report(xd_denoise *f, int step, const xd_progress *p, float *lat);
/* Writes the latents without noise that the last step has predicted, as [t,C,h,w]. The latents are
 * valid only if xd_preview_due is 1 for the step. */
void      xd_denoise_clean(xd_denoise *f, float *out);
/* Counts the memory that denoising needs on this rank, in bytes. Sets *bytes to the largest amount
 * of arena memory in use at once, and *method_bytes to the size of the parallel methods' buffers.
 * `len` is the number of text tokens of each guidance pass (prompt and negative prompt). */
xd_status xd_denoise_count(struct xd_job *j, const int64_t len[XD_MAXPASS], size_t *bytes,
                           size_t *method_bytes, xd_err *e);
/* Evaluates the transformer once for all tokens, without values of earlier steps, for guidance pass
 * `pass`; f->pred[pass] receives the prediction. */
void      xd_denoise_pass(xd_denoise *f, int step, int pass);

#endif
