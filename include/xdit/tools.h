/* tools.h - what command lines, servers and tools need beside xdit.h: options as data, plans,
 * output names, inspection, benchmarks, probes
 *
 * The rules of xdit.h hold here, too: errors, records and their versions, lifetimes. */
#ifndef XDIT_TOOLS_H
#define XDIT_TOOLS_H

#include "xdit/xdit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- facts about this library and this machine --------------------------------------------- */

/* Describes this library and what it uses on this machine. Calls `fact` with pairs of strings
 * that are valid during the call: "library" "oneDNN 2.7.2", for each library; "video" "FFmpeg's
 * libavcodec 59.37", or "video_error" with a sentence; "kernels" "cpu-avx512bf16", or
 * "kernels_error" with a sentence; "type" "bf16"; "cores" that this process may use; "memory"
 * bytes available to all processes, "address_space" bytes available to this process;
 * "shared_dir", "shared_free": directory and free bytes of memory that ranks share; "hub": the
 * Hugging Face cache. Of GPUs: "cuda", a sentence why there is none, else "cuda_driver", "cuda:0"
 * and so on ("cuda_old:0": a GPU that cannot be used), "cuda_peers", "cublaslt" or
 * "cublaslt_error", "nccl" or "nccl_error", and "cuda_kernels_error". */
typedef void xd_fact(void *cookie, const char *name, const char *value);
XD_API void xd_about(xd_fact *fact, void *cookie);

/* Nonzero if an MPI launcher (mpirun, srun) has started this process; *rank, unless NULL, is
 * then its number. An engine connects to the other processes by itself. */
XD_API int       xd_launched(int *rank);
/* Number of processes that the launcher has started; 0 if unknown or without a launcher. */
XD_API int       xd_launched_ranks(void);

/* Tests messages between the processes that an MPI launcher has started. Collective over them.
 * Rank 0 gets the times, measured between ranks 0 and 1. */
typedef struct xd_pinged {      /* call xd_pinged_init before xd_ping                          */
    size_t size;
    int    ranks;
    double latency_s;           /* one byte, one way: half of the median round trip             */
    double bytes_s;             /* rate of 8 MB messages, one way                               */
} xd_pinged;
#define xd_pinged_init(p) xd_pinged_init_size((p), sizeof *(p))
XD_API void      xd_pinged_init_size(xd_pinged *p, size_t size);
XD_API xd_status xd_ping(xd_pinged *p, xd_err *e);

/* ---- the ranks of a program that serves ------------------------------------------------------ */

/* The processes that an MPI launcher has started, or this one alone. A program that serves opens
 * its group before the first engine and closes it behind the last one: MPI, which cannot start
 * twice, then runs as long as the program, and engines open and close in between. All calls are
 * collective. */
typedef struct xd_rank_group xd_rank_group;
XD_API xd_status xd_rank_group_open(xd_rank_group **g, xd_err *e);
XD_API void      xd_rank_group_close(xd_rank_group **g);
XD_API int       xd_rank_group_rank(const xd_rank_group *g);
XD_API int       xd_rank_group_size(const xd_rank_group *g);
/* Gives what rank 0 has, *bytes bytes at *data, to all ranks. The others get a malloc'ed copy,
 * with a NUL behind it. A rank that waits sleeps, for 2 ms at a time at most. */
XD_API xd_status xd_rank_group_share(xd_rank_group *g, void **data, size_t *bytes, xd_err *e);

/* Opens an engine that computes with the weights of the engine `of` and shares its settings. It
 * serves requests while a request of `of` waits in on_turn. alone 0: it has the ranks and the plan
 * of `of`; collective over them. alone 1: it has this rank alone, which needs xd_load_everywhere,
 * and no other rank knows of it; a rank then uses either this engine or engines of several ranks.
 * Close it before `of`. */
XD_API xd_status xd_open_beside(xd_engine **g, xd_engine *of, int alone, xd_err *e);
/* Loads the weights of all components on all ranks, one copy for each host. Needs `keep` and a plan
 * that neither cuts weights over ranks nor uses stale values (XD_EUNSUPPORTED). XD_ENOMEM: they do
 * not fit, nothing has changed for later requests. Does nothing where all is loaded. Collective. */
XD_API xd_status xd_load_everywhere(xd_engine *g, xd_err *e);
/* Generates with these LoRA files from now on, v[0..n), instead of xd_open_args.loras, until
 * xd_leave_loras. Which files a request has that comes behind that without a call of its own is not
 * defined: it calls this, with n 0 where it has none. Only components that a file changes get other
 * weights, with the next request; the rest stays, so do embeddings. Weights with other files stay
 * in memory, those of the last four sets of files that no request uses. Calls nest: a request in
 * on_turn of another one may use other files, and leaves them before it returns. After a failure
 * nothing has changed. Collective, as are the two below. */
XD_API xd_status xd_use_loras(xd_engine *g, const xd_lora *v, int n, xd_err *e);
XD_API void      xd_leave_loras(xd_engine *g);
/* Frees the weights of the set of files that was used longest ago of those that no request uses: 0,
 * there is none. */
XD_API int       xd_drop_loras(xd_engine *g);

/* ---- options as data ----------------------------------------------------------------------- */

/* One row per option of a request; command lines and servers validate values with this table. A
 * program skips rows whose offset is not below the size of its record: the library may be a later
 * version than its header. */
typedef enum xd_option_kind { XD_OPT_FLAG, XD_OPT_INT, XD_OPT_INT64, XD_OPT_REAL, XD_OPT_TEXT,
                              XD_OPT_SEED }
    xd_option_kind;

/* XD_OPT_FLAG: 1; where `min` is -1 also -1, off, and 0 leaves a file's value. XD_OPT_SEED: an
 * int64_t, from -2^63 to 2^64 - 1 modulo 2^64, followed by an int that is set if the value is -1
 * (random seed). */
#define XD_ABOVE_ZERO 1e-6              /* a `min` that means "above 0"                        */
typedef struct xd_option {
    const char    *name;        /* "num_inference_steps"                                     */
    xd_option_kind kind;        /* of the field: int, int, int64_t, double, const char *; SEED */
    size_t         offset;      /* of the field in xd_request                                */
    double         min, max;    /* range of numbers                                          */
    /* "philox torch", or NULL. Of a number: what the option without a value stands for, or NULL. */
    const char    *choices;
    const char    *arg;         /* placeholder of the value in a help text: "N"              */
    const char    *help;        /* one line                                                  */
} xd_option;

XD_API const xd_option *xd_request_options(int *n);
/* The i-th name of stable-diffusion-webui that `scheduler` takes; NULL: there are no more. */
XD_API const char      *xd_scheduler_webui(int i);
XD_API const xd_option *xd_parallel_options(int *n);    /* offsets are in xd_parallel          */

/* ---- latents --------------------------------------------------------------------------------- */

/* Decodes latents that a request made (on_tensor, latents_only, or a program's own): f32 of `shape`
 * [T,C,h,w], an image has T = 1. `r` is the request that made them, whose parameters the result
 * then has, or one with the prompt "": prompts and images are not read. Sizes that are 0 in it
 * follow from the shape. Loads the autoencoder alone. XD_EINVAL: the latents do not belong to such
 * a request. Collective: rank 0 reads the latents, the shape is the same on all ranks. */
XD_API xd_status xd_decode(xd_engine *g, const xd_request *r, const float *latents,
                           const int64_t shape[4], xd_result **out, xd_err *e);

/* ---- plans: how a model is distributed over ranks ------------------------------------------ */

/* Checks whether this plan is possible on so many ranks, as far as this is known without a
 * model. The error message of a refusal names up to three plans that are possible. */
XD_API xd_status xd_parallel_check(const xd_parallel *p, int ranks, xd_err *e);
XD_API int       xd_parallel_ranks(const xd_parallel *p);       /* number of ranks it uses     */
/* Parses "u2r2pp2cfg2" (u, r, pp, tp, cfg, dp, patch, displaced, warm, text, vae) into the
 * fields. XD_EINVAL if a field already has a different number. */
XD_API xd_status xd_parallel_read(xd_parallel *p, const char *text, xd_err *e);

/* Seconds that the request in xd_open_args was predicted to take where a plan was chosen, or where
 * weights must be read from a disk of known speed: "text", "denoise", "decode" of all images,
 * "total" (of loading only what the disk takes); negative: unknown. They include the waiting for
 * the disk: "reading" is that for all weights, "load" that for those that are loaded before the
 * first step, where there are any. */
XD_API double    xd_predicted(const xd_engine *g, const char *part);
/* Bytes of weights that were not in the page cache of rank 0's host when the engine was opened
 * with a plan, and that "text", "load", "decode" or "total" must read; 0: none, or unknown. */
XD_API double    xd_cold_bytes(const xd_engine *g, const char *part);

/* 1: the last request was refused because the memory of the device, which is not the host's, does
 * not hold it; nothing was begun. The same on all ranks. */
XD_API int       xd_device_refused(const xd_engine *g);

typedef struct xd_advise_args { /* call xd_advise_args_init, then set fields */
    size_t      size;
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
    int         columns;        /* of a terminal: tables leave out what has no room; 0: all     */
    int         reserved;       /* 0                                                         */
    const char *offload;        /* as in xd_open_args; NULL: "none" for a cluster, "auto" for one
                                   of GPUs that `device` names                                */
    /* "cuda": plans of one rank a GPU, counted as for a GPU: those of this machine or, with
     * `cluster`, of a machine that need not be there. NULL: as the cluster's file says, else
     * "cpu". */
    const char *device;
    int64_t     memory;         /* bytes of a host, or of a device, as in xd_open_args         */
} xd_advise_args;
#define xd_advise_args_init(a) xd_advise_args_init_size((a), sizeof *(a))
XD_API void      xd_advise_args_init_size(xd_advise_args *a, size_t size);

/* Predictions of all plans that xd_advise_args ask for. Loads no weights. Records and texts belong
 * to the xd_plans; the arguments may be freed. `all`, `explain`, `json` and `line` make no
 * difference: refused plans are there, behind the possible ones, and so are all details. */
typedef struct xd_plans xd_plans;

typedef struct xd_plans_info {
    const char *model;          /* its directory                                              */
    const char *cluster;        /* name of the machine                                        */
    int         ranks, cluster_ranks;   /* that plans are for; that the machine has           */
    int         fitted;         /* 0: the machine is known by data sheets alone                */
    int         possible, count;        /* plans that are possible; these and the refused ones */
    const char *dtype, *weights_dtype;  /* of the compute, of the transformer's matrices       */
    double      cold_bytes;     /* of weights that are not in this machine's memory            */
    double      read_bytes_s;   /* speed of its disk; 0: unknown, and not in the predictions   */
} xd_plans_info;

typedef struct xd_plan_info {   /* one plan, the fastest first                                */
    const char *name;           /* "u2cfg2", for xd_parallel_read                             */
    const char *flags;          /* "--ulysses_degree 2 --use_cfg_parallel"; "": one rank      */
    const char *text;           /* "cfg 2 x ulysses 2"                                        */
    const char *refused;        /* why it is impossible; NULL: it is possible                  */
    xd_parallel parallel;       /* for xd_open_args                                           */
    int         predicted;      /* 0: refused before; the fields below are 0                   */
    int         ranks;          /* that it uses                                               */
    int         same_image;     /* 1: the image of one rank with all of attention in the compute
                                   type; 0: stale keys and values, a cache, attention of eight
                                   bits or of windows, reference_interval,
                                   fast_attn */
    int         steps, exact_steps;     /* of an image; of these, steps without stale values   */
    /* Seconds: waiting for weights before the first step; text encoding; an exact step; a step that
     * repeats; decoding one image; decoding with waiting for weights; the whole request. Waiting
     * for weights of each kind, which text_s and request_s include. */
    double      load_s, text_s, exact_step_s, step_s, decode_s, vae_s, request_s;
    double      read_text_s, read_transformer_s, read_vae_s;
    double      peak;           /* bytes of the fullest rank (devices) or host (CPU)           */
    double      sent;           /* bytes that all ranks send                                  */
} xd_plan_info;

typedef struct xd_plan_rank {   /* one rank of a plan                                         */
    int64_t text, transformer, vae;     /* bytes of weights                                   */
    int64_t text_tmp, transformer_tmp, vae_tmp; /* bytes of activations beside them            */
    int64_t method_bytes;       /* of transformer_tmp: stale values and buffers of messages    */
    int64_t peak;               /* bytes at most                                              */
    double  busy_s, wait_s;     /* of a step that repeats: computing, waiting for messages     */
    double  sent, sent_hosts;   /* bytes sent in it; of these, to other hosts                  */
} xd_plan_rank;

/* Fails, and *out is NULL, if no plan is possible; the error has the reason of the plan that comes
 * nearest. */
XD_API xd_status            xd_plans_predict(xd_plans **out, const xd_advise_args *a, xd_err *e);
XD_API const xd_plans_info *xd_plans_about(const xd_plans *p);
/* Plan i of info.count; rank `rank` of plan i. NULL: there is none, or it was not predicted. */
XD_API const xd_plan_info  *xd_plans_get(const xd_plans *p, int i);
XD_API const xd_plan_rank  *xd_plans_rank(const xd_plans *p, int i, int rank);
XD_API void                 xd_plans_free(xd_plans **p);
/* The same as lines of text, or as JSON: what `xdit plan` prints. */
XD_API xd_status xd_advise(const xd_advise_args *a, xd_err *e);

/* ---- results -------------------------------------------------------------------------------- */

/* Seconds of image i alone: "denoise", "decode"; -1: unknown, also for images made by other
 * ranks. */
XD_API double    xd_result_image_seconds(const xd_result *r, int i, const char *part);
/* Bytes that all ranks together have sent to each other for the request. */
XD_API int64_t   xd_result_sent(const xd_result *r);
/* Tokens of image i. "text": of its prompt, as the text encoder that reads the most of it counts
 * them, with the marks that the tokenizer adds and without padding. "image": of the image itself,
 * or the video, in the transformer. "reference": of the images that the transformer reads beside
 * it. -1: unknown. */
XD_API int64_t   xd_result_tokens(const xd_result *r, int i, const char *what);

/* ---- names of output files ------------------------------------------------------------------ */

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

/* ---- image files ----------------------------------------------------------------------------- */

/* The size of a PNG, JPEG, WebP, GIF or PPM file, upright by its Exif, from its header alone. */
XD_API xd_status xd_image_file_size(const char *path, int64_t *width, int64_t *height, xd_err *e);
/* Reads such a file into malloc'ed RGB, *data, which the image points to. */
XD_API xd_status xd_image_file_load(const char *path, xd_image *im, uint8_t **data, xd_err *e);
/* The same of a mask as clients of OpenAI send it: where a PNG or WebP file is transparent
 * somewhere, white is what is transparent, and black what is not. */
XD_API xd_status xd_image_file_load_mask(const char *path, xd_image *im, uint8_t **data,
                                         xd_err *e);
/* Writes one frame of RGB without gaps between rows; the extension selects the format, as in
 * xd_result_save. */
XD_API xd_status xd_image_file_save(const xd_image *im, const char *path, xd_err *e);
/* Writes at most `most` frames of a video, from the first to the last at equal distances, as one
 * image: rows of `columns` frames, each at most `width` pixels wide; black where there is none. */
XD_API xd_status xd_image_file_sheet(const xd_image *im, int columns, int most, int64_t width,
                                     const char *path, xd_err *e);

/* ---- comparing images ------------------------------------------------------------------------ */

typedef struct xd_comparison {  /* call xd_comparison_init first; of images or videos of one size */
    size_t  size;
    int64_t frames, width, height;
    double  psnr;               /* decibels, of the levels of all channels; infinite: equal     */
    double  ssim;               /* structural similarity (Wang et al. 2004), mean of channels; 1:
                                   equal */
    double  mean;               /* mean difference of levels, which are 0 to 255               */
    int64_t most;               /* largest difference of levels                               */
    int64_t worst;              /* the frame with the least PSNR, from 0                        */
} xd_comparison;
#define xd_comparison_init(c) xd_comparison_init_size((c), sizeof *(c))
XD_API void      xd_comparison_init_size(xd_comparison *c, size_t size);
/* Compares two images, or two videos frame by frame: RGB without gaps between rows. XD_EINVAL:
 * sizes or numbers of frames differ. */
XD_API xd_status xd_compare_images(xd_comparison *c, const xd_image *a, const xd_image *b,
                                   xd_err *e);

typedef struct xd_compare_args { /* call xd_compare_args_init, then set fields */
    size_t      size;
    const char *a, *b;          /* two files (PNG, JPEG, WebP, PPM, MP4, QuickTime, Matroska, WebM,
                                   GIF), or directories of images, whose order is that of names */
    const char *difference;     /* NULL, or an image file to write: where the worst frame differs:
                                   grey, 0 black, 1 level 32, 255 levels white */
    int         json;
    int         threads;        /* 0: all cores                                               */
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
} xd_compare_args;
#define xd_compare_args_init(a) xd_compare_args_init_size((a), sizeof *(a))
XD_API void      xd_compare_args_init_size(xd_compare_args *a, size_t size);
/* Prints what xd_comparison has. *c, unless NULL, gets it, too. */
XD_API xd_status xd_compare_files(const xd_compare_args *a, xd_comparison *c, xd_err *e);

/* ---- inspecting models and machines -------------------------------------------------------- */

typedef struct xd_inspect_args { /* call xd_inspect_args_init, then set fields */
    size_t      size;
    const char *model;          /* model directory (configs are enough) or a weight file      */
    const char *tensors;        /* NULL: a summary; component: "name shape" lines of what files of
                                   it hold, read or not; of a file, all tensors */
    int         json;
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
} xd_inspect_args;
#define xd_inspect_args_init(a) xd_inspect_args_init_size((a), sizeof *(a))
XD_API void      xd_inspect_args_init_size(xd_inspect_args *a, size_t size);
/* Fails after the last line if something is missing or does not fit; the lines name all of it. */
XD_API xd_status xd_inspect(const xd_inspect_args *a, xd_err *e);

typedef struct xd_bench_turn {  /* one timed run of a benchmark stage                         */
    int         n;              /* runs before; 0: none, and the fields below are not valid   */
    double      seconds, gflop;
    double      peak_gflops;    /* register-only peak right before and after; the higher      */
} xd_bench_turn;

typedef struct xd_bench_args {  /* call xd_bench_args_init, then set fields */
    size_t      size;
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
    const char *gemm;           /* as in xd_request                                          */
} xd_bench_args;
#define xd_bench_args_init(a) xd_bench_args_init_size((a), sizeof *(a))
XD_API void      xd_bench_args_init_size(xd_bench_args *a, size_t size);
XD_API xd_status xd_bench(const xd_bench_args *a, xd_err *e);

typedef struct xd_probe_args {  /* call xd_probe_args_init, then set fields */
    size_t      size;
    int         threads;        /* per rank; 0: this rank's share of the cores of its host        */
    const char *output;         /* file for xd_advise_args.cluster; "-": as a line; NULL: this
                                   machine's default below $XDG_CACHE_HOME or ~/.cache */
    void      (*line)(void *cookie, const char *line);  /* the file's name, or its content        */
    void       *cookie;
    int         log_level;
    void      (*log)(void *cookie, int level, const char *line);
    const char *device;         /* as in xd_open_args; NULL: "cpu"                             */
} xd_probe_args;
#define xd_probe_args_init(a) xd_probe_args_init_size((a), sizeof *(a))
XD_API void      xd_probe_args_init_size(xd_probe_args *a, size_t size);
/* Measures in a few seconds how fast the launched ranks compute and communicate, and writes the
 * result. Collective over the launched ranks; rank 0 writes and gets the line. */
XD_API xd_status xd_probe(const xd_probe_args *a, xd_err *e);

/* ---- other files of a model ------------------------------------------------------------------ */

typedef struct xd_convert_args { /* call xd_convert_args_init, then set fields */
    size_t      size;
    const char *model;          /* as in xd_open_args                                         */
    const char *output;         /* a directory; it is made if only its last part is missing     */
    /* "f32", "bf16", "int8", "fp8", "int4": of the transformers' matrices, and of those of text
     * encoders. NULL: as they are stored, and for text encoders the f32 or bf16 of the
     * transformer. */
    const char *weights_dtype, *text_weights_dtype;
    const xd_component_file *files;     /* [nfiles]                                           */
    const xd_lora *loras, *loras_2;     /* [nloras], [nloras_2], added to the weights           */
    int         nfiles, nloras, nloras_2;
    int         ncomponents;
    const char *const *components;      /* [ncomponents]: these alone; 0: the whole model       */
    int64_t     shard_bytes;    /* a file begins before it would exceed them; 0: 5 GB           */
    int         force;          /* replace what a directory with files in it holds of a model   */
    int         threads;        /* 0: all cores                                               */
    int         log_level;
    int         lora_partial;   /* as in xd_open_args                                         */
    void      (*log)(void *cookie, int level, const char *line);
    /* NULL, or called now and then: bytes that are written, of all; `file` is the current one. */
    void      (*on_progress)(void *cookie, const char *file, double done, double total);
    void       *cookie;
} xd_convert_args;
#define xd_convert_args_init(a) xd_convert_args_init_size((a), sizeof *(a))
XD_API void      xd_convert_args_init_size(xd_convert_args *a, size_t size);
/* Writes a model directory with safetensors files under the names of diffusers, part by part: it
 * needs little memory, whatever the model. A file appears when it is complete. After a process was
 * killed the same call goes on where it stopped. */
XD_API xd_status xd_convert_model(const xd_convert_args *a, xd_err *e);

#ifdef __cplusplus
}
#endif

#endif
