/* xdit.h - the public interface of libxdit: a prompt becomes an image.
 *
 * The header is C99-clean. Every type except the plain records is opaque. A function that can
 * fail returns an xd_status and fills the caller's xd_err (which may be NULL) with one sentence.
 * Every open has a matching close or free, which accepts NULL and pointers to NULL. One thread
 * at a time uses an engine; only xd_cancel may be called from another thread or from a signal
 * handler. */
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
    XD_ENOMEM,                  /* not enough memory, as found or as predicted                */
    XD_EINVAL,                  /* the request is wrong                                      */
    XD_EIO,                     /* a file or directory cannot be read or written             */
    XD_EFORMAT,                 /* the content of a file is wrong                            */
    XD_EUNSUPPORTED,            /* valid, but not supported here                             */
    XD_ECOMM,                   /* messages between ranks failed                             */
    XD_EDEVICE,                 /* a device failed                                           */
    XD_ECANCELLED               /* xd_cancel was called                                      */
} xd_status;

typedef struct xd_err {         /* start with {0}; the first failure stays                   */
    xd_status code;
    int       rank;             /* failed rank, once the ranks have agreed; -1 before        */
    char      msg[4096];        /* one sentence: what, where, with which numbers             */
} xd_err;

enum { XD_LOG_ERROR, XD_LOG_WARN, XD_LOG_INFO, XD_LOG_DEBUG };

XD_API const char *xd_version(void);            /* "0.1.0"                                   */

/* Describes this library and what it uses on this machine. Calls `fact` with pairs of strings
 * that are valid during the call: "library" "oneDNN 2.7.2", for each library; "video" "FFmpeg's
 * libavcodec 59.37", or "video_error" with a sentence; "kernels" "cpu-avx512bf16", or
 * "kernels_error" with a sentence; "type" "bf16"; "cores" that this process may use; "memory"
 * bytes available to all processes, "address_space" bytes available to this process;
 * "shared_dir", "shared_free": directory and free bytes of memory that ranks share; "hub": the
 * Hugging Face cache. */
typedef void xd_fact(void *cookie, const char *name, const char *value);
XD_API void xd_about(xd_fact *fact, void *cookie);

/* ---- an engine: a model, loaded and ready ---------------------------------------------- */

typedef struct xd_engine xd_engine;

/* How the model is distributed over ranks. A degree of 0 means 1. Names are those of xDiT. */
typedef struct xd_parallel {
    int tensor_parallel_degree, ulysses_degree, ring_degree, pipefusion_parallel_degree;
    int data_parallel_degree, use_cfg_parallel;
    int num_pipeline_patch;     /* 0: number of stages; no patches without stages             */
    int warmup_steps;           /* exact steps before stale keys and values are used         */
    int use_displaced_patches;  /* the ring axis uses keys and values of the previous step    */
    int use_parallel_vae;
    const char *pipefusion_text;        /* "first": text passes the stages once a step, with
                                           patch 1; "every": with every patch (xDiT); NULL:
                                           "first" */
    const char *attn_layer_num_for_pp;  /* "10,9,9": blocks of each stage; NULL: balanced     */
    int text_tensor_parallel_degree;    /* degree of the text encoders, over the ranks above */
    int patches_without_stages; /* for measurements only: cut into patches even without stages    */
    int reserved[2];            /* future options: 0                                         */
    const char *reserved_text;  /* NULL                                                      */
} xd_parallel;

typedef struct xd_lora {        /* a low-rank difference that is added to the weights           */
    const char *path;           /* .safetensors file in the layout of diffusers, PEFT or Kohya  */
    double      scale;          /* usually 1; 0 leaves the model unchanged                      */
} xd_lora;

struct xd_request;

typedef struct xd_open_args {   /* start with {0}                                            */
    const char *model;          /* directory with model_index.json, or "org/name" in the local
                                   Hugging Face cache */
    const char *dtype;          /* "f32", "bf16"; NULL: the best for this machine            */
    /* Storage type of the matrices of the transformer's blocks (attention, feed-forward). NULL:
     * the compute type. "int8": a quarter of the memory of f32 and integer GEMMs, which are
     * faster where the CPU supports them; the input of a GEMM is quantized as well. "fp8"
     * (e4m3): the memory of int8, GEMMs in the compute type. Both cost accuracy
     * (doc/weights.md). "auto": fp8 where the files have fp8, which loses nothing. "f32" and
     * "bf16" mean what they mean in dtype. text_weights_dtype has the same values and applies to
     * the T5 text encoder. */
    const char *weights_dtype, *text_weights_dtype;
    const char *device;         /* "cpu"; NULL: the best                                     */
    int         threads;        /* per rank; 0: this rank's share of the cores of its host   */
    /* "auto": if several ranks share a host and nothing has bound them yet, each rank is bound
     * to its share of the cores and to nearby memory. This sets the affinity of the calling
     * thread; threads and processes that it starts inherit it. "cores": a single rank is bound
     * as well, to as many cores as it has threads. "none", NULL: no binding. The binding stays
     * when the engine is closed. */
    const char *bind;
    xd_parallel parallel;
    int         no_t5;          /* run without the T5 encoder where the model can (SD3)      */
    int         keep;           /* nonzero: keep text encoders loaded between requests       */
    int         once;           /* nonzero: the engine serves one request. One rank then frees
                                   the transformer before it decodes the only image or video; a
                                   second request loads it again */
    int         log_level;      /* lines up to this level are passed to `log`                */
    void      (*log)(void *cookie, int level, const char *line);
    void       *cookie;
    const char *trace;          /* NULL, or a file on rank 0. Each request writes it at its end,
                                   also if it fails after the first check: a timeline of all
                                   ranks as a Chrome trace (JSON) for chrome://tracing or
                                   Perfetto. The trace of the first request includes the opening */
    /* Safetensors files with the weights of one component. Each replaces the weights in the
     * component's folder of `model`; that folder may then hold the config alone. Layouts:
     * diffusers, the original ones of FLUX.1, Stable Diffusion 3 and LDM autoencoders, and
     * ComfyUI's; tensors are renamed while they are read. NULL: the weights of the folder. */
    const char *transformer, *vae, *clip_l, *clip_g, *t5xxl;
    const xd_lora *loras;       /* [nloras], added in this order                                */
    int         nloras;
    /* Chooses the degrees that are 0 in `parallel` if there are more ranks than the other
     * degrees need. NULL: 1, and ranks stay idle. "auto": the plan with the lowest predicted
     * time among those that fit into memory and give the image of one rank. "auto-stale": also
     * plans with PipeFusion, which uses keys and values of the previous step. Rank 0 chooses and
     * logs the plan at XD_LOG_INFO. */
    const char *plan;
    const struct xd_request *plan_for;  /* the request to predict; NULL: the model's defaults */
    const char *cluster;        /* "8xH100" or a file of `xdit probe`; NULL: this machine,
                                   measured by a probe or estimated */
    const char *balance;        /* "measured": tokens, heads, blocks and image rows of a rank
                                   follow its speed in a short test; "even", NULL: equal shares */
    const char *layers;         /* for measurements only: number of blocks of each kind, "2,4"
                                   (text encoders use the first number); NULL: as the configs say */
} xd_open_args;

/* Reads the configs and checks the tensors in the files. The first request loads the weights. */
XD_API xd_status xd_open(xd_engine **g, const xd_open_args *a, xd_err *e);
XD_API void      xd_close(xd_engine **g);

/* Checks whether this plan is possible on so many ranks, as far as this is known without a
 * model. The error message of a refusal names up to three plans that are possible. */
XD_API xd_status xd_parallel_check(const xd_parallel *p, int ranks, xd_err *e);
XD_API int       xd_parallel_ranks(const xd_parallel *p);       /* number of ranks it uses     */
/* Nonzero if an MPI launcher (mpirun, srun) has started this process; *rank, unless NULL, is
 * then its number. An engine connects to the other processes by itself. */
XD_API int       xd_launched(int *rank);
/* Number of processes that the launcher has started; 0 if unknown or without a launcher. */
XD_API int       xd_launched_ranks(void);

/* Rank of this process, and the number of ranks that work on a request; idle ranks have the
 * numbers from there on. Calls that take an engine are collective over all ranks. Results and
 * callbacks reach rank 0.
 *
 * If one rank fails, all ranks return its error, with its number in the record, and the engine
 * can be used again. XD_ECOMM is the exception: messages failed, or a rank failed where it could
 * not notify the others, which may still wait for it. Do not use the engine any more, do not
 * close it, and end the process; the MPI launcher ends the others. MPI starts with the first
 * engine of several ranks and ends with the last one. It cannot start again in the same process. */
XD_API int       xd_rank(const xd_engine *g);
XD_API int       xd_ranks(const xd_engine *g);
/* Seconds that the request in xd_open_args was predicted to take where a plan was chosen, or where
 * weights must be read from a disk of known speed: "text", "denoise", "decode" of all images,
 * "total" (of loading only what the disk takes); negative: unknown. They include the waiting for
 * the disk: "reading" is that for all weights, "load" that for those that are loaded before the
 * first step, where there are any. */
XD_API double    xd_predicted(const xd_engine *g, const char *part);
/* Bytes of weights that were not in the page cache of rank 0's host when the engine was opened
 * with a plan, and that "text", "load", "decode" or "total" must read; 0: none, or unknown. */
XD_API double    xd_cold_bytes(const xd_engine *g, const char *part);

/* Tests messages between the processes that an MPI launcher has started. Collective over them.
 * Rank 0 gets the times, measured between ranks 0 and 1. */
typedef struct xd_pinged {
    int    ranks;
    double latency_s;           /* one byte, one way: half of the median round trip             */
    double bytes_s;             /* rate of 8 MB messages, one way                               */
} xd_pinged;
XD_API xd_status xd_ping(xd_pinged *p, xd_err *e);

/* Makes the running request end soon with XD_ECANCELLED. Callable from any thread;
 * async-signal-safe. */
XD_API void xd_cancel(xd_engine *g);

/* ---- a request -------------------------------------------------------------------------- */

struct xd_result;

typedef struct xd_progress {    /* a denoising step that has ended                           */
    int    step, steps;         /* 1 .. steps                                                */
    int    image, images;       /* 1 .. images of the request                                */
    double step_s;              /* seconds of this step                                      */
    double since_start_s;       /* seconds since the start of the request                    */
} xd_progress;

typedef struct xd_request {     /* call xd_request_init, then set fields                      */
    const char *const *prompts;
    int         nprompts;
    const char *negative_prompt;        /* NULL: ""                                          */
    int64_t     width, height;          /* pixels; 0: the model's default                    */
    int         num_frames;             /* frames of a video; 0: the model's default          */
    double      fps;                    /* frames per second in a video file; 0: the model's   */
    int         num_inference_steps;    /* 0: the pipeline's default                         */
    double      guidance_scale;         /* negative: the pipeline's default                  */
    double      true_cfg_scale;         /* models with distilled guidance: two passes a step if
                                           above 1 and there is a negative prompt; 0: none */
    double      guidance_rescale;       /* HunyuanDiT: weight of the guided prediction rescaled
                                           to the standard deviation of the prompt's; 0: none */
    int         use_dynamic_cfg;        /* guidance varies with the step (CogVideoX)          */
    const char *image;          /* start image (PNG, JPEG, WebP), resized; NULL: start from noise */
    double      strength;       /* share of the steps that run on the start image; 0: 0.6        */
    int64_t     seed;                   /* 64 bits; above 2^63 - 1 stored as seed - 2^64     */
    int         random_seed;            /* ignore `seed`, draw one for all ranks                  */
    int         num_images_per_prompt;
    int         max_sequence_length;    /* text tokens; 0: the pipeline's default            */
    const char *scheduler;              /* NULL: the model's; see xd_request_options          */
    const char *rng;                    /* "philox" or "torch"                               */
    int         enable_tiling, enable_slicing, no_resolution_binning;
    int         latents_only;           /* skip the VAE decoder                              */
    void      (*on_stage)(void *cookie, const char *stage);     /* "text", "denoise", "decode" */
    void      (*on_step)(void *cookie, const xd_progress *p);
    /* Called on rank 0 before anything is loaded, once for each image i (from 0), with its
     * number of frames. 0 skips the image on all ranks; the result then has no data for it.
     * NULL: all images are made. */
    int       (*wanted)(void *cookie, int i, int64_t frames);
    /* Image i (from 0) is complete and may be saved; the result holds images 0 .. i. A nonzero
     * return value ends the request with that status. */
    xd_status (*on_image)(void *cookie, const struct xd_result *partial, int i, xd_err *e);
    /* Intermediate tensors for golden tests: f32, contiguous, valid during the call. Names:
     * "ids", "prompt_embeds", "negative_prompt_embeds", "noise", "latents" (after each step,
     * layout [C,H,W], of a video [T,C,H,W]), "image" ([H,W,3], of a video [T,H,W,3], in [0,1]).
     * `step` is the step for "latents", the number of the text for text tensors, and 0
     * otherwise. */
    void      (*on_tensor)(void *cookie, const char *name, int step, int nd, const int64_t *d,
                           const float *data);
    void       *cookie;
} xd_request;

XD_API void xd_request_init(xd_request *r);

/* One row per option of a request; command lines and servers validate values with this table. */
typedef enum xd_option_kind { XD_OPT_FLAG, XD_OPT_INT, XD_OPT_INT64, XD_OPT_REAL, XD_OPT_TEXT,
                              XD_OPT_SEED }
    xd_option_kind;

/* XD_OPT_SEED: an int64_t, from -2^63 to 2^64 - 1 modulo 2^64, followed by an int that is set if
 * the value is -1 (random seed). */
#define XD_ABOVE_ZERO 1e-6              /* a `min` that means "above 0"                        */
typedef struct xd_option {
    const char    *name;        /* "num_inference_steps"                                     */
    xd_option_kind kind;        /* of the field: int, int, int64_t, double, const char *; SEED */
    size_t         offset;      /* of the field in xd_request                                */
    double         min, max;    /* range of numbers                                          */
    const char    *choices;     /* "philox torch", or NULL                                   */
    const char    *arg;         /* placeholder of the value in a help text: "N"              */
    const char    *help;        /* one line                                                  */
} xd_option;

XD_API const xd_option *xd_request_options(int *n);
XD_API const xd_option *xd_parallel_options(int *n);    /* offsets are in xd_parallel          */

/* ---- the result ------------------------------------------------------------------------- */

typedef struct xd_result xd_result;     /* the images of one request                         */

typedef struct xd_image {       /* frames, rows, pixels; RGB, 8 bits per channel             */
    int64_t  frames, height, width;
    int      channels;
    uint8_t *data;
    double   fps;               /* frames per second; 0: a single image                      */
} xd_image;

XD_API xd_status xd_generate(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e);
XD_API int       xd_result_count(const xd_result *r);
XD_API const xd_image *xd_result_image(const xd_result *r, int i);     /* NULL: latents only */
/* Representation as in xd_request. Texts and JSON print it as 0 .. 2^64 - 1, as torch does. */
XD_API int64_t   xd_result_seed(const xd_result *r, int i);
/* Parameters of image i: as one JSON object, and in the text format of A1111. */
XD_API const char *xd_result_json(const xd_result *r, int i);
XD_API const char *xd_result_parameters(const xd_result *r, int i);
/* Seconds of the request: "text", "load", "denoise", "decode", "total", "first_step"; -1:
 * unknown. */
XD_API double    xd_result_seconds(const xd_result *r, const char *part);
/* Seconds of image i alone: "denoise", "decode"; -1: unknown, also for images made by other
 * ranks. */
XD_API double    xd_result_image_seconds(const xd_result *r, int i, const char *part);
/* Bytes that all ranks together have sent to each other for the request. */
XD_API int64_t   xd_result_sent(const xd_result *r);
/* Writes image i. The extension selects the format: .png .jpg .jpeg .webp .ppm, .safetensors
 * (latents). For a video: .mp4 .mov .mkv .webm .gif .rgb (bytes of the frames, without sizes),
 * or an image format with the frame number as %d (%04d), from 1, for one file a frame; without a
 * %d, "_%04d" is inserted before the extension. Writing is atomic: a file is complete or does
 * not exist. */
XD_API xd_status xd_result_save(const xd_result *r, int i, const char *path, xd_err *e);
XD_API void      xd_result_free(xd_result **r);

/* Checks whether images can be written to this name: one file, or several if `path` has a %d
 * (%04d). Can be called before a model is opened. For the name of a video it also checks that
 * this machine can write the format. */
XD_API xd_status xd_output_check(const char *path, int images, xd_err *e);
/* 1 if the model generates videos, 0 if it generates images. */
XD_API int       xd_makes_videos(const xd_engine *g);
/* Second part of the check, once the model is known: refuses the name of a video if `video` is
 * 0. */
XD_API xd_status xd_output_check_video(const char *path, int video, xd_err *e);
/* Default file name: "output.png"; of a video "output.mp4", or "output.gif" without FFmpeg. */
XD_API const char *xd_output_default(int video);
/* File name of image i (from 0): replaces %d, or inserts "_0001" before the extension if there
 * are several images and no %d. */
XD_API xd_status xd_output_name(const char *path, int i, int images, char *name, size_t size,
                                xd_err *e);
/* File name of video i, in the form that xd_result_save expects. If the frames are written as
 * images, %d stays for the frame number, and with several videos "0001_" is put before it.
 * frames: of each video. */
XD_API xd_status xd_output_video_name(const char *path, int i, int videos, int64_t frames,
                                      char *name, size_t size, xd_err *e);
/* Number of files that xd_result_save writes for this name and number of frames. */
XD_API int64_t   xd_output_files(const char *path, int64_t frames);
/* Removes incomplete output files. For a signal handler that ends the process.
 * Async-signal-safe. */
XD_API void xd_output_sweep(void);

/* ---- inspecting models and machines -------------------------------------------------------- */

typedef struct xd_inspect_args {        /* start with {0}                                     */
    const char *model;          /* model directory (configs are enough) or a safetensors file */
    const char *tensors;        /* NULL: a summary; component: "name shape" lines; of a file, all
                                   tensors */
    int         json;
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
} xd_inspect_args;
/* Fails after the last line if something is missing or does not fit; the lines name all of it. */
XD_API xd_status xd_inspect(const xd_inspect_args *a, xd_err *e);

typedef struct xd_bench_turn {  /* one timed run of a benchmark stage                         */
    int         n;              /* runs before; 0: none, and the fields below are not valid   */
    double      seconds, gflop;
    double      peak_gflops;    /* register-only peak right before and after; the higher      */
} xd_bench_turn;

typedef struct xd_bench_args {          /* start with {0}                                    */
    const char *config;         /* a model directory                                         */
    int         random_weights; /* weights from a hash function; configs are enough          */
    int         share_layers;   /* random weights: blocks of one kind share storage           */
    int64_t     width, height;  /* 0: the model's default                                    */
    int         num_frames;     /* frames of a video; 0: the model's default                  */
    const char *layers;         /* as in xd_open_args                                        */
    int         max_sequence_length;    /* text tokens; 0: the pipeline's default            */
    int         threads, repeats;       /* 0: all cores; 0: at least 3 runs and half a second */
    const char *bind;           /* as in xd_open_args                                        */
    const char *dtype, *weights_dtype, *text_weights_dtype, *device;    /* as in xd_open_args    */
    const char *parts;          /* NULL: all; else of "text step block vae"; "step" includes its
                                   blocks */
    int         json;
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
    /* With more than one rank: compares the plan with one rank on the same work, "step" and
     * (with use_parallel_vae) "vae". Collective; rank 0 gets the lines. */
    xd_parallel parallel;
    int         log_level;      /* lines up to this level are passed to `log`                   */
    void      (*log)(void *cookie, int level, const char *line);
    /* NULL, or called before every timed run of a stage on one rank and after the last run. A
     * return value of 0 ends the stage, whatever `repeats` says. With this callback, blocks are
     * timed only if `parts` names them, and large GEMMs are not timed: matrix peaks are 0. */
    int       (*turn)(void *cookie, const xd_bench_turn *last);
    /* NULL, or called when something begins on one rank: creating or loading weights of so many
     * bytes; 0 bytes: timing a stage. */
    void      (*on_stage)(void *cookie, const char *what, double bytes);
} xd_bench_args;
XD_API xd_status xd_bench(const xd_bench_args *a, xd_err *e);

typedef struct xd_advise_args {           /* start with {0}                                    */
    const char *model;          /* a model directory; configs are enough                       */
    const xd_request *request;  /* size, frames, steps, guidance; prompts are ignored           */
    int         ranks;          /* 0: all of the cluster                                       */
    const char *cluster;        /* "8xH100", "2x8xL40" or a file; NULL: this machine           */
    const char *dtype;          /* NULL: the best available                                    */
    const char *weights_dtype, *text_weights_dtype;     /* as in xd_open_args                  */
    xd_parallel parallel;       /* degrees above 0 are fixed, the others are searched           */
    int         exact;          /* only plans that give the image of one rank                  */
    int         all;            /* also list impossible plans, with the reason                  */
    int         explain;        /* N: details of plan N; 0: the table                          */
    int         json;
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
    int         log_level;
    void      (*log)(void *cookie, int level, const char *line);
} xd_advise_args;
/* Predicts for every plan: seconds, memory of every rank, bytes sent. Loads no weights. */
XD_API xd_status xd_advise(const xd_advise_args *a, xd_err *e);

typedef struct xd_probe_args {          /* start with {0}                                         */
    int         threads;        /* per rank; 0: this rank's share of the cores of its host        */
    const char *output;         /* file for xd_advise_args.cluster; "-": as a line; NULL: this
                                   machine's default below $XDG_CACHE_HOME or ~/.cache */
    void      (*line)(void *cookie, const char *line);  /* the file's name, or its content        */
    void       *cookie;
    int         log_level;
    void      (*log)(void *cookie, int level, const char *line);
} xd_probe_args;
/* Measures in a few seconds how fast the launched ranks compute and communicate, and writes the
 * result. Collective over the launched ranks; rank 0 writes and gets the line. */
XD_API xd_status xd_probe(const xd_probe_args *a, xd_err *e);
/* Parses "u2r2pp2cfg2" (u, r, pp, tp, cfg, dp, patch, displaced, warm, text, vae) into the
 * fields. XD_EINVAL if a field already has a different number. */
XD_API xd_status xd_parallel_read(xd_parallel *p, const char *text, xd_err *e);

#ifdef __cplusplus
}
#endif

#endif
