/* memory_plan.h - counts the memory that a request needs, before anything is loaded. */
#ifndef XD_PIPELINE_MEMORY_PLAN_H
#define XD_PIPELINE_MEMORY_PLAN_H

#include "pipeline/text_encode.h"

/* Bytes that a request needs on one rank. The fields `text`, `dit` and `vae` count the weights of
 * the text encoders, of the transformer and of the VAE; the fields text_tmp, dit_tmp and vae_tmp
 * count the scratch memory of these components. */
typedef struct xd_need {
    size_t text, text_tmp, dit, dit_tmp, vae, vae_tmp, images, peak;
    /* extra bytes while the text encoders, the transformer or the VAE are loaded */
    size_t text_work, dit_work, vae_work;
    /* bytes of the second transformer's weights if both transformers stay loaded, else 0 */
    size_t dit2;
    size_t dit2_work; /* extra bytes while the next transformer is loaded between two steps */
    size_t preview, preview_tmp; /* bytes of the preview decoder; 0: no preview decoder */
    size_t audio; /* bytes of the networks of audio and of their scratch memory; 0: no audio */
    /* buffers of parallel methods, such as keys and values of earlier steps, and messages */
    size_t method_bytes;
    /* For a device with its own memory, all fields before `conds` are bytes of the device's memory,
     * `images` is 0, and `conds` is the bytes of text embeddings on the device. For devices that
     * use the host's memory, `conds` and all fields after it are 0. */
    size_t conds;
    size_t messages;        /* device buffers and mailboxes for messages, which are never freed */
    size_t host_work, host; /* host memory: extra bytes while weights are loaded; peak */
    /* Pinned host memory that holds blocks which are copied to the device when they are computed:
     * blocks of the text encoders (pinned_text), and of all networks (pinned). */
    size_t pinned_text, pinned;
    /* bytes of weights that are copied to the device for each evaluation of the transformer */
    size_t streamed;
} xd_need;

/* Limits in bytes on the memory that a request may use on this host. */
typedef struct xd_memory_limits {
    /* Limits of the machine's memory and of this process's address space; both include the memory
     * that loaded weights already use. */
    double machine, space;
    double held;   /* bytes of loaded weights */
    double needed; /* bytes that the request needs on all ranks of a host or device */
    double device; /* memory limit per rank if a device is too small, otherwise 0 */
    /* 1: the pixels of the image alone need too much memory, so nothing else was counted */
    int    huge;
} xd_memory_limits;

/* Returns the maximum of the memory needs of text encoding, denoising and decoding, which run one
 * after the other. `keep` is 1 if text encoders stay loaded. `apart` is 1 if transformer and VAE
 * are never loaded together. */
size_t    xd_need_peak(const xd_need *n, int keep, int apart);
/* Computes the fields `peak` and `host` of *n, a memory need, from its other fields. */
void      xd_need_sum(xd_need *n, const xd_job *j, int ranks);
/* Returns 1 if a request on this many ranks never has the transformer and the VAE loaded together
 * (`apart` of xd_need_peak). The transformer and the VAE are never loaded together on one rank, if
 * the engine serves only one request and the request generates only one image. */
int       xd_need_apart(const xd_job *j, int ranks);
/* Adds the counted weights of the transformers to a memory need. If the request uses two
 * transformers, n->dit becomes the size of the larger one and n->dit2 the size of the smaller one.
 * If only one of the transformers is loaded at a time, the caller sets n->dit2 to 0. */
void      xd_need_dits(xd_need *n, const xd_job *j);
/* Returns 1 if this request or the next one must reload a transformer unless both transformers stay
 * loaded. If xd_need_both returns 1, both transformers stay loaded if memory is sufficient
 * (xd_job.both). */
int       xd_need_both(const xd_job *j);
/* Counts the bytes that this rank needs for text encoding, denoising and decoding. xd_memory_count
 * exchanges no messages. */
xd_status xd_memory_count(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e);
/* Counts the denoising loop's scratch memory (need->dit_tmp) and the buffers of its parallel
 * methods (need->method_bytes). xd_memory_count_loop exchanges no messages. */
xd_status xd_memory_count_loop(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e);
/* Counts the memory need of a request and finds the ranks that share weights. Returns XD_ENOMEM if
 * the peak need exceeds the available memory. The call is collective over the ranks in use, which
 * all return the same status. */
xd_status xd_memory_plan(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limits,
                         xd_err *e);

/* Counts the memory need of a call that only decodes latents: the need of the VAE, and of the
 * components that are already loaded. If memory is too small for transformer and VAE together,
 * frees the transformer. */
xd_status xd_memory_plan_decode(xd_job *j, xd_need *need, xd_err *e);

/* Reports the bytes of this engine's loaded weights to the memory budget (memory_budget.h). */
void xd_memory_hold(xd_context *ctx);

/* Replaces each of four values by its sum over the ranks of a host. The four values are the needed
 * bytes, the bytes of loaded weights, the number of ranks that read files ahead, and the bytes of
 * other engines' weights. The call is collective over the ranks of the host. */
enum { XD_HOST_SUMS = 4 };
void xd_memory_sum(xd_comm *host, double v[XD_HOST_SUMS]);

#endif
