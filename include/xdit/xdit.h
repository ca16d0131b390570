/* xdit.h - the public interface of libxdit: a prompt becomes an image.
 *
 * C99-clean; every type but the plain records is opaque. Functions that can fail return an
 * xd_status and fill the caller's xd_err (which may be NULL) with one sentence. What a
 * function opens is closed by its counterpart; closers accept NULL and pointers to NULL.
 * An engine is used by one thread at a time; only xd_cancel may be called from another one,
 * or from a signal handler. */
#ifndef XDIT_XDIT_H
#define XDIT_XDIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(XDIT_BUILDING) && defined(__GNUC__)
#define XD_API __attribute__((visibility("default")))
#else
#define XD_API
#endif

/* ---- errors and log ------------------------------------------------------------------- */

typedef enum xd_status {
    XD_OK = 0,
    XD_ENOMEM,                  /* memory (asked for or predicted) is not there               */
    XD_EINVAL,                  /* the request is wrong                                      */
    XD_EIO,                     /* a file or directory cannot be read or written             */
    XD_EFORMAT,                 /* a file is not what it should be                           */
    XD_EUNSUPPORTED,            /* valid, but nothing here can do it                         */
    XD_ECOMM,                   /* messages between ranks failed                             */
    XD_EDEVICE,                 /* a device failed                                           */
    XD_ECANCELLED               /* xd_cancel was called                                      */
} xd_status;

typedef struct xd_err {         /* start with {0}; the first failure wins                    */
    xd_status code;
    int       rank;             /* who failed, once the ranks have agreed; -1 before         */
    char      msg[4096];        /* one sentence: what, where, with which numbers             */
} xd_err;

enum { XD_LOG_ERROR, XD_LOG_WARN, XD_LOG_INFO, XD_LOG_DEBUG };

XD_API const char *xd_version(void);            /* "0.1.0"                                   */

/* What this library is made of, and what it uses on this machine, as pairs of texts that live during
 * the call: "library" "oneDNN 2.7.2", for each; "video" "FFmpeg's libavcodec 59.37", or "video_error" a
 * sentence; "kernels" "cpu-avx512bf16", or "kernels_error" a sentence; "type" "bf16"; "cores" that this
 * process may use; "memory" bytes that all processes may still take, "address_space" bytes that this
 * one may; "shared_dir", "shared_free": memory that ranks share; "hub": the Hugging Face cache. */
typedef void xd_fact(void *cookie, const char *name, const char *value);
XD_API void xd_about(xd_fact *fact, void *cookie);

/* ---- an engine: a model, loaded and ready ---------------------------------------------- */

typedef struct xd_engine xd_engine;

/* How the model is spread over ranks; 0 in a degree means 1. Names are xDiT's. */
typedef struct xd_parallel {
    int tensor_parallel_degree, ulysses_degree, ring_degree, pipefusion_parallel_degree;
    int data_parallel_degree, use_cfg_parallel;
    int num_pipeline_patch;     /* 0: as many as stages; without stages there are none        */
    int warmup_steps;           /* exact steps before stale keys and values are used         */
    int use_displaced_patches;  /* the ring axis uses the keys and values of the last step    */
    int use_parallel_vae;
    const char *pipefusion_text;        /* "first": the text goes through the stages once a step,
                                   with the first patch; "every": with every patch, as xDiT
                                   does; NULL: first                                         */
    const char *attn_layer_num_for_pp;  /* "10,9,9": blocks of each stage; NULL: balanced     */
    int text_tensor_parallel_degree;    /* of the ranks above, those that share text encoders */
    int patches_without_stages; /* to measure, not to generate: patches count without stages, too */
    int reserved[2];            /* for options to come: 0                                    */
    const char *reserved_text;  /* NULL                                                      */
} xd_parallel;

typedef struct xd_lora {        /* low-rank differences that are added to the weights           */
    const char *path;           /* a .safetensors file in the form of diffusers, PEFT or Kohya  */
    double      scale;          /* usually 1; 0 leaves the model as it is                     */
} xd_lora;

struct xd_request;

typedef struct xd_open_args {   /* start with {0}                                            */
    const char *model;          /* directory with model_index.json, or "org/name" of the
                                   local Hugging Face cache                                  */
    const char *dtype;          /* "f32", "bf16"; NULL: the best of this machine             */
    /* How the matrices of the transformer's blocks (attention, feed-forward) are kept: NULL: in the type
     * that is computed in. "int8": a quarter of f32's memory, and products of integers, which are faster
     * where the CPU has them; the input of a product is quantized as well. "fp8" (e4m3): the same
     * memory, products as without. Both cost accuracy (doc/weights.md). "auto": fp8 where the files
     * have it, which loses nothing. "f32" and "bf16" say what dtype says. text_weights_dtype: the same
     * of the T5 text encoder. */
    const char *weights_dtype, *text_weights_dtype;
    const char *device;         /* "cpu"; NULL: the best                                     */
    int         threads;        /* per rank; 0: this rank's share of the cores of its host   */
    /* "auto": where several ranks share a host and nobody has bound them, each keeps to its share of the cores,
     * near memory of its own (the calling thread's affinity is set, and what it starts inherits it);
     * "cores": a rank that is alone too, to as many cores as it has threads; "none", NULL: the system
     * moves threads about. The binding stays when the engine is closed. */
    const char *bind;
    xd_parallel parallel;
    int         no_t5;          /* do without the T5 encoder where the model can (SD3)       */
    int         keep;           /* nonzero: text encoders stay loaded between requests       */
    int         once;           /* nonzero: one request will be made. On one rank the transformer is
                                   given back before the only image, or the video, is decoded;
                                   a second request loads it again                           */
    int         log_level;      /* lines up to this level reach `log`                        */
    void      (*log)(void *cookie, int level, const char *line);
    void       *cookie;
    const char *trace;          /* NULL, or a file on rank 0 that every request writes when it ends,
                                   also by a failure behind its first check: what all ranks did
                                   when, as a Chrome trace (JSON) for chrome://tracing or Perfetto.
                                   The first request's shows the opening as well              */
    /* Safetensors files with the weights of one component, in place of those in its folder of
     * `model`, which may then have its config only. As diffusers writes them, in the original layout
     * of FLUX.1, Stable Diffusion 3 or an LDM autoencoder, or as ComfyUI has them; tensors are
     * renamed as they are read. NULL: the folder's. */
    const char *transformer, *vae, *clip_l, *clip_g, *t5xxl;
    const xd_lora *loras;       /* [nloras], added one after the other                          */
    int         nloras;
    /* What degrees of 0 in `parallel` mean where there are more ranks than the others need. NULL: 1, and
     * ranks stay idle. "auto": those of the plan that is predicted to be the fastest of those that fit into
     * memory and whose image is that of one rank. "auto-stale": PipeFusion as well, which uses keys and
     * values of the step before. Rank 0 chooses, and says what at XD_LOG_INFO. */
    const char *plan;
    const struct xd_request *plan_for;  /* the request that is predicted; NULL: the model's defaults */
    const char *cluster;        /* "8xH100" or a file of `xdit probe`; NULL: this machine, as it
                                   was probed, or guessed                                    */
    const char *balance;        /* "measured": a rank's tokens, heads, blocks and rows of the image
                                   follow its speed in a short test; "even", NULL: all alike    */
    const char *layers;         /* to measure, not to generate: only so many blocks of each kind, "2,4" (of text
                                   encoders the first number); NULL: those of the configs         */
} xd_open_args;

/* Reads configurations and checks the files' tensors; weights are loaded by the first request. */
XD_API xd_status xd_open(xd_engine **g, const xd_open_args *a, xd_err *e);
XD_API void      xd_close(xd_engine **g);

/* Is this plan possible on so many ranks, as far as can be said without a model? The sentence of a
 * refusal has up to three plans that are. */
XD_API xd_status xd_parallel_check(const xd_parallel *p, int ranks, xd_err *e);
XD_API int       xd_parallel_ranks(const xd_parallel *p);       /* that it uses                */
/* Did an MPI launcher (mpirun, srun) start this process? Then *rank, unless NULL, is its number.
 * An engine joins the other processes by itself. */
XD_API int       xd_launched(int *rank);
/* How many processes it started; 0 where it does not say, and where there is none. */
XD_API int       xd_launched_ranks(void);

/* This process' rank and how many work on a request; ranks that the plan leaves idle have numbers
 * from the latter on. Calls that take an engine are collective over all ranks; results and
 * callbacks reach rank 0.
 * A failure of one rank is returned by all, with its rank in the record, and the engine can be used
 * again. XD_ECOMM is different: messages failed, or a rank failed where the others could not be told,
 * and they may wait for it. Then use the engine no more, do not even close it, and end the process;
 * the MPI launcher ends the others. MPI starts with the first engine of several ranks and ends with
 * the last; it cannot start again in the same process. */
XD_API int       xd_rank(const xd_engine *g);
XD_API int       xd_ranks(const xd_engine *g);
/* Seconds that the request in xd_open_args was predicted to take where a plan was chosen: "text",
 * "denoise", "decode" of all images, "total" (without loading); negative: unknown. */
XD_API double    xd_predicted(const xd_engine *g, const char *part);

/* Do messages pass between the processes that an MPI launcher has started? Collective over them. Rank
 * 0 gets the times, of messages between it and rank 1. */
typedef struct xd_pinged {
    int    ranks;
    double latency_s;           /* of an one-byte message, one way: half a round trip, the median  */
    double bytes_s;             /* of messages of 8 MB, one way                                 */
} xd_pinged;
XD_API xd_status xd_ping(xd_pinged *p, xd_err *e);

/* Ends the running request soon with XD_ECANCELLED. Any thread; async-signal-safe. */
XD_API void xd_cancel(xd_engine *g);

/* ---- a request -------------------------------------------------------------------------- */

struct xd_result;

typedef struct xd_progress {    /* of one denoising step that has ended                      */
    int    step, steps;         /* 1 .. steps                                                */
    int    image, images;       /* 1 .. images of the request                                */
    double step_s;              /* seconds of this step                                      */
    double since_start_s;       /* seconds since the request came in                         */
} xd_progress;

typedef struct xd_request {     /* fill with xd_request_init, then change what is asked       */
    const char *const *prompts;
    int         nprompts;
    const char *negative_prompt;        /* NULL: ""                                          */
    int64_t     width, height;          /* pixels; 0: the model's                            */
    int         num_frames;             /* of a video; 0: the model's                         */
    double      fps;                    /* frames a second of a video's file; 0: the model's   */
    int         num_inference_steps;    /* 0: the pipeline's                                 */
    double      guidance_scale;         /* negative: the pipeline's                          */
    double      true_cfg_scale;         /* of models with distilled guidance: above 1 and with a
                                           negative prompt, two passes a step; 0: none       */
    double      guidance_rescale;       /* HunyuanDiT: share of the guided prediction that gets the spread
                                           of the prompt's; 0: none                          */
    int         use_dynamic_cfg;        /* guidance grows with the steps (CogVideoX)          */
    const char *image;          /* an image to start from (PNG, JPEG, WebP), resized; NULL: noise */
    double      strength;       /* share of the steps that are generated over it; 0: 0.6         */
    int64_t     seed;                   /* 64 bits: what is above 2^63 - 1 stands as seed - 2^64 */
    int         random_seed;            /* a seed by chance, the same on all ranks, and no `seed` */
    int         num_images_per_prompt;
    int         max_sequence_length;    /* text tokens; 0: the pipeline's                    */
    const char *scheduler;              /* NULL: the model's; see xd_schedulers              */
    const char *rng;                    /* "philox" or "torch"                               */
    int         enable_tiling, enable_slicing, no_resolution_binning;
    int         latents_only;           /* do not decode                                     */
    void      (*on_stage)(void *cookie, const char *stage);     /* "text", "denoise", "decode" */
    void      (*on_step)(void *cookie, const xd_progress *p);
    /* Asked on rank 0 before anything is loaded, once for each image i (from 0) of so many
     * frames: 0 leaves it out, on all ranks, and the result has nothing of it. NULL: all are
     * wanted. */
    int       (*wanted)(void *cookie, int i, int64_t frames);
    /* Image i (from 0) is done and may be saved; the result holds images 0 .. i. Nonzero ends the
     * request with that status. */
    xd_status (*on_image)(void *cookie, const struct xd_result *partial, int i, xd_err *e);
    /* Golden tests look at what passes between the rooms: f32, contiguous, valid during the
     * call. Names: "ids", "prompt_embeds", "negative_prompt_embeds", "noise", "latents" (after
     * each step, layout [C,H,W], of a video [T,C,H,W]), "image" ([H,W,3], of a video [T,H,W,3], in
     * [0,1]). step: of "latents"; the text for
     * text; else 0.                              */
    void      (*on_tensor)(void *cookie, const char *name, int step, int nd, const int64_t *d,
                           const float *data);
    void       *cookie;
} xd_request;

XD_API void xd_request_init(xd_request *r);

/* One row per option of a request: command lines and servers validate by the same table. */
typedef enum xd_option_kind { XD_OPT_FLAG, XD_OPT_INT, XD_OPT_INT64, XD_OPT_REAL, XD_OPT_TEXT, XD_OPT_SEED }
    xd_option_kind;

/* SEED: an int64_t, from -2^63 to 2^64 - 1 modulo 2^64, with an int behind it that is set where
 * -1 asks for a seed by chance. */
#define XD_ABOVE_ZERO 1e-6              /* a `min` that stands for "above 0"                   */
typedef struct xd_option {
    const char    *name;        /* "num_inference_steps"                                     */
    xd_option_kind kind;        /* of the field: int, int, int64_t, double, const char *; SEED  */
    size_t         offset;      /* of the field in xd_request                                */
    double         min, max;    /* allowed values of numbers                                 */
    const char    *choices;     /* "philox torch", or NULL                                   */
    const char    *arg;         /* what stands for the value in a help text: "N"             */
    const char    *help;        /* one line                                                  */
} xd_option;

XD_API const xd_option *xd_request_options(int *n);
XD_API const xd_option *xd_parallel_options(int *n);    /* offsets in xd_parallel              */

/* ---- the result ------------------------------------------------------------------------- */

typedef struct xd_result xd_result;     /* the images of one request                         */

typedef struct xd_image {       /* frames of rows of pixels, 8 bits a channel, RGB           */
    int64_t  frames, height, width;
    int      channels;
    uint8_t *data;
    double   fps;               /* frames a second; 0: an image                             */
} xd_image;

XD_API xd_status xd_generate(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e);
XD_API int       xd_result_count(const xd_result *r);
XD_API const xd_image *xd_result_image(const xd_result *r, int i);     /* NULL: latents only */
/* As in the request; texts and JSON name it from 0 to 2^64 - 1, as torch does. */
XD_API int64_t   xd_result_seed(const xd_result *r, int i);
/* The parameters of image i as one JSON object, and as the text that A1111 writes. */
XD_API const char *xd_result_json(const xd_result *r, int i);
XD_API const char *xd_result_parameters(const xd_result *r, int i);
/* Seconds of the request: "text", "load", "denoise", "decode", "total", "first_step"; -1: unknown */
XD_API double    xd_result_seconds(const xd_result *r, const char *part);
/* Of image i alone: "denoise", "decode"; -1: unknown, as of images that other ranks have made. */
XD_API double    xd_result_image_seconds(const xd_result *r, int i, const char *part);
/* Bytes that all ranks together sent to each other for the request. */
XD_API int64_t   xd_result_sent(const xd_result *r);
/* Writes image i; the format follows the name: .png .jpg .jpeg .webp .ppm, .safetensors (latents); of
 * a video .mp4 .mov .mkv .webm .gif .rgb (the bytes of its frames, without sizes), or an image's name
 * with the %d (%04d) of the frame, from 1, for one file a frame; without a %d, "_%04d" stands before
 * the extension. A file appears whole or not at all. */
XD_API xd_status xd_result_save(const xd_result *r, int i, const char *path, xd_err *e);
XD_API void      xd_result_free(xd_result **r);

/* Can images be written to this name? `path` is one file, or has one %d (%04d) for several. Asks before
 * a model is opened; for a video's name it also asks whether this machine can write that format. */
XD_API xd_status xd_output_check(const char *path, int images, xd_err *e);
/* Does this model make videos (1) or images (0)? */
XD_API int       xd_makes_videos(const xd_engine *g);
/* The rest of the check, for which the model is known: a name of a video is refused where `video` is 0. */
XD_API xd_status xd_output_check_video(const char *path, int video, xd_err *e);
/* A name where none is given: "output.png"; of a video "output.mp4", or "output.gif" where there is no
 * FFmpeg. */
XD_API const char *xd_output_default(int video);
/* The name of image i (from 0): fills in %d, or puts "_0001" before the extension when there
 * are several images and no %d. */
XD_API xd_status xd_output_name(const char *path, int i, int images, char *name, size_t size,
                                xd_err *e);
/* The same of video i, and for one in images the name that xd_result_save wants: the %d is the
 * frame's, and several videos have "0001_" before it. frames: of each video. */
XD_API xd_status xd_output_video_name(const char *path, int i, int videos, int64_t frames, char *name,
                                      size_t size, xd_err *e);
/* How many files xd_result_save makes of a name and a result of so many frames. */
XD_API int64_t   xd_output_files(const char *path, int64_t frames);
/* Removes half-written files; for a signal handler that ends the process. Async-signal-safe. */
XD_API void xd_output_sweep(void);

/* ---- looking at models and machines ----------------------------------------------------- */

typedef struct xd_inspect_args {        /* start with {0}                                    */
    const char *model;          /* a model directory, also one that has only configs, or a
                                   safetensors file                                          */
    const char *tensors;        /* NULL: a summary; else a component: "name shape" lines; of a
                                   file all its tensors                                      */
    int         json;
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
} xd_inspect_args;
/* Fails behind the last line where something is missing or does not fit: all of it is among the
 * lines. */
XD_API xd_status xd_inspect(const xd_inspect_args *a, xd_err *e);

typedef struct xd_bench_turn {  /* one timed run of a part                                    */
    int         n;              /* how many there were before; 0: none has been, nothing below counts */
    double      seconds, gflop;
    double      peak_gflops;    /* of registers, right before and after; the higher one            */
} xd_bench_turn;

typedef struct xd_bench_args {          /* start with {0}                                    */
    const char *config;         /* a model directory                                         */
    int         random_weights; /* weights from a hash: only configs are needed              */
    int         share_layers;   /* random weights: blocks of one kind share storage           */
    int64_t     width, height;  /* 0: the model's                                            */
    int         num_frames;     /* of a video; 0: the model's                                 */
    const char *layers;         /* as in xd_open_args                                        */
    int         max_sequence_length;    /* text tokens; 0: the pipeline's                    */
    int         threads, repeats;       /* 0: all cores; 0: until half a second and 3 times   */
    const char *bind;           /* as in xd_open_args                                        */
    const char *dtype, *weights_dtype, *text_weights_dtype, *device;    /* as in xd_open_args    */
    const char *parts;          /* NULL: all; else a list of "text step block vae": "step" has
                                   its blocks, too                                           */
    int         json;
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
    /* More than one rank: the plan's work against the same work on one rank, "step" and (with
     * use_parallel_vae) "vae". Collective; rank 0 gets the lines. */
    xd_parallel parallel;
    int         log_level;      /* lines up to this level reach `log`                           */
    void      (*log)(void *cookie, int level, const char *line);
    /* NULL, or asked before every timed run of a part on one rank, and after the last: 0 ends it, however
     * many `repeats` there were. Then blocks are timed only when `parts` names them, and no products of
     * large matrices are: peaks of matrices are 0. */
    int       (*turn)(void *cookie, const xd_bench_turn *last);
    /* NULL, or told what begins on one rank: so many bytes of weights are made or loaded; 0: a
     * part is timed. */
    void      (*on_stage)(void *cookie, const char *what, double bytes);
} xd_bench_args;
XD_API xd_status xd_bench(const xd_bench_args *a, xd_err *e);

typedef struct xd_advise_args {           /* start with {0}                                    */
    const char *model;          /* a model directory, also one that has only configs           */
    const xd_request *request;  /* size, frames, steps, guidance; prompts are not looked at     */
    int         ranks;          /* 0: all of the cluster                                     */
    const char *cluster;        /* "8xH100", "2x8xL40" or a file; NULL: this machine           */
    const char *dtype;          /* NULL: the best there is                                   */
    const char *weights_dtype, *text_weights_dtype;     /* as in xd_open_args                  */
    xd_parallel parallel;       /* degrees above 0 are kept, the others are tried               */
    int         exact;          /* only plans whose image is that of one rank                */
    int         all;            /* those that cannot be as well, with the reason                */
    int         explain;        /* N: the N-th plan in detail; 0: the table                    */
    int         json;
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
    int         log_level;
    void      (*log)(void *cookie, int level, const char *line);
} xd_advise_args;
/* Says what every plan would take: seconds, memory of every rank, bytes sent. Nothing is loaded. */
XD_API xd_status xd_advise(const xd_advise_args *a, xd_err *e);

typedef struct xd_probe_args {          /* start with {0}                                    */
    int         threads;        /* per rank; 0: this rank's share of the cores of its host       */
    const char *output;         /* a file for `xd_advise_args.cluster`, "-": a line; NULL: where plans for
                                   this machine look for it, below $XDG_CACHE_HOME or ~/.cache   */
    void      (*line)(void *cookie, const char *line);  /* the file's name, or what it would hold */
    void       *cookie;
    int         log_level;
    void      (*log)(void *cookie, int level, const char *line);
} xd_probe_args;
/* Measures how fast the ranks that are there compute and speak, in a few seconds, and writes it down.
 * Collective over the ranks that were launched; rank 0 writes and gets the line. */
XD_API xd_status xd_probe(const xd_probe_args *a, xd_err *e);
/* Reads "u2r2pp2cfg2" (u, r, pp, tp, cfg, dp, patch, displaced, warm, text, vae) into what it names;
 * XD_EINVAL when one is there already with another number. */
XD_API xd_status xd_parallel_read(xd_parallel *p, const char *text, xd_err *e);

#ifdef __cplusplus
}
#endif

#endif
