/* tools.h - declares functions for command lines, servers and tools: lists of options, plans, names
 * of output files, inspection, benchmarks, probes.
 *
 * The rules of xdit.h for errors, records and their versions, and lifetimes apply to this header
 * too. */
#ifndef XDIT_TOOLS_H
#define XDIT_TOOLS_H

#include "xdit/xdit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- facts about this library and this machine --------------------------------------------- */

/* Describes this library and this machine. Calls `fact` with pairs of a name and a value, which are
 * valid during the call. The pairs are: "library" "oneDNN 2.7.2", for each library in use; "video"
 * "FFmpeg's libavcodec 59.37", or "video_error" with a sentence; "kernels" "cpu-avx512bf16", or
 * "kernels_error" with a sentence; "type" "bf16", the default compute type; "cores", the number of
 * cores that this process may use; "memory", the bytes available to all processes, and
 * "address_space", the bytes available to this process; "shared_dir", "shared_free": directory and
 * free bytes of the shared memory of ranks; "hub": the Hugging Face cache. For GPUs, the names are:
 * "cuda" with the reason why there is no GPU, else "cuda_driver", "cuda:0" and so on ("cuda_old:0":
 * an unsupported GPU), "cuda_peers", "cublaslt" or "cublaslt_error", "nccl" or "nccl_error", and
 * "cuda_kernels_error". */
XD_API void xd_about(xd_fact *fact, void *cookie);

/* Returns nonzero if an MPI launcher (mpirun, srun) has started this process. If so, and `rank` is
 * not NULL, also sets *rank to the process's rank. The program need not connect the processes,
 * because an engine does this. */
XD_API int       xd_launched(int *rank);
/* Returns the number of processes that the MPI launcher has started; 0 if the number is unknown or
 * there is no launcher. */
XD_API int       xd_launched_ranks(void);

/* xd_ping tests messages between the processes that an MPI launcher has started. Collective over
 * these processes. Rank 0 gets the latency and bandwidth, measured between ranks 0 and 1. */
typedef struct xd_pinged {      /* call xd_pinged_init before xd_ping                          */
    size_t size;
    int    ranks;
    double latency_s; /* seconds of a message of one byte: half of the median round trip */
    double bytes_s;             /* bytes per second of messages of 8 MB in one direction        */
} xd_pinged;
#define xd_pinged_init(p) xd_pinged_init_size((p), sizeof *(p))
XD_API void      xd_pinged_init_size(xd_pinged *p, size_t size);
XD_API xd_status xd_ping(xd_pinged *p, xd_err *e);

/* ---- ranks of a server --------------------------------------------------------------------- */

/* A rank group: the processes that an MPI launcher has started, or this process alone. A server
 * opens a rank group before the first engine and closes the group after the last engine. MPI, which
 * a process can initialize only once, then remains initialized while engines open and close. All
 * calls with a rank group are collective. */
typedef struct xd_rank_group xd_rank_group;
XD_API xd_status xd_rank_group_open(xd_rank_group **g, xd_err *e);
XD_API void      xd_rank_group_close(xd_rank_group **g);
XD_API int       xd_rank_group_rank(const xd_rank_group *g);
XD_API int       xd_rank_group_size(const xd_rank_group *g);
/* Broadcasts *bytes bytes at *data from rank 0. The other ranks get a malloc'ed copy with a NUL
 * appended, which the program frees. A waiting rank sleeps, for at most 2 ms at a time. */
XD_API xd_status xd_rank_group_share(xd_rank_group *g, void **data, size_t *bytes, xd_err *e);

/* Opens a second engine *g on the weights and settings of the engine `of`. The new engine can
 * generate while a request of `of` yields in on_turn. If `alone` is 0, the new engine has the ranks
 * and the plan of `of`, and calls are collective over these ranks. If `alone` is 1, the new engine
 * has only this rank, and the call is local. xd_load_everywhere must be called before an engine
 * with `alone` 1 generates. A rank must not use such an engine and an engine of several ranks at
 * the same time. Close *g before `of`. */
XD_API xd_status xd_open_beside(xd_engine **g, xd_engine *of, int alone, xd_err *e);
/* Loads the weights of all components on all ranks, one copy per host. XD_EINVAL: the engine was
 * opened without `keep` or by xd_open_beside. XD_EUNSUPPORTED: the plan splits weights over ranks,
 * changes the image or leaves ranks idle, or the model has two transformers. XD_ENOMEM: the weights
 * do not fit in memory; later requests are not affected. Does nothing if all weights are loaded.
 * The call is collective. */
XD_API xd_status xd_load_everywhere(xd_engine *g, xd_err *e);
/* Selects the LoRA files v[0..n) for the next requests, in place of xd_open_args.loras, until
 * xd_leave_loras. After xd_leave_loras the selection is undefined, so the program calls
 * xd_use_loras before every later request, with n 0 if the request uses no LoRA files. The next
 * request reloads only the components that a LoRA file changes; other components and cached
 * embeddings are kept. The weights of the last four unused sets of files stay in memory. Calls
 * nest: a request inside on_turn of another request may select other files, and calls
 * xd_leave_loras before on_turn returns. If xd_use_loras fails, the selection does not change.
 * xd_use_loras, xd_leave_loras and xd_drop_loras are collective. */
XD_API xd_status xd_use_loras(xd_engine *g, const xd_lora *v, int n, xd_err *e);
XD_API void      xd_leave_loras(xd_engine *g);
/* Frees the weights of one set of LoRA files: the least recently used set that no request uses.
 * Returns 0 if a request uses every set, or there are no sets. */
XD_API int       xd_drop_loras(xd_engine *g);

/* ---- options as data ----------------------------------------------------------------------- */

/* Two tables describe the options of a request and the options of a plan. Each row (xd_option)
 * describes one option; command lines and servers use the row to validate a value of the option. A
 * program skips rows with an offset at or beyond the size of its record, because these are options
 * of a library that is newer than the program's header. */
typedef enum xd_option_kind { XD_OPT_FLAG, XD_OPT_INT, XD_OPT_INT64, XD_OPT_REAL, XD_OPT_TEXT,
                              XD_OPT_SEED }
    xd_option_kind;

/* Values of two kinds of options. XD_OPT_FLAG: the value 1 switches the option on. If `min` is -1,
 * the value -1 switches the option off, and 0 keeps the setting of the model's config. XD_OPT_SEED:
 * the field is an int64_t, which gets a value from -2^63 to 2^64 - 1 modulo 2^64. The int that
 * follows this field in the record is set if the value is -1 (random seed). */
#define XD_ABOVE_ZERO 1e-6              /* value of `min` for a number that must be above 0    */
typedef struct xd_option {
    const char    *name;        /* name of the option, "num_inference_steps"                 */
    xd_option_kind kind;        /* C type of the field: int (FLAG, INT), int64_t, double, char * */
    size_t         offset;      /* offset of the field in xd_request or xd_parallel          */
    double         min, max;    /* smallest and largest allowed value of a number            */
    /* For an option whose value is a text: the allowed texts, such as "philox torch". For a number:
     * the value that the option has without an argument. NULL: none. */
    const char    *choices;
    const char    *arg;         /* placeholder of the value in a help text: "N"              */
    const char    *help;        /* help text of one line                                     */
} xd_option;

/* returns an array of the *n options of xd_request */
XD_API const xd_option *xd_request_options(int *n);
/* Where and how a program's help text lists an option of xd_request. */
typedef struct xd_option_about {
    const char *section;        /* title of the section of a help text, "Guidance"           */
    int         main;           /* 1: a short help text has the option                       */
    int         saves;          /* 1: the option saves time and changes the image            */
} xd_option_about;
/* Returns the record of the option `name`; NULL: there is no such option. */
XD_API const xd_option_about *xd_request_option_about(const char *name);
/* Returns 1 if the request gives the option `name`: the value differs from the initial value and
 * from the value without effect, such as "none". */
XD_API int xd_request_gives(const xd_request *r, const char *name);
/* Returns the i-th (from 0) scheduler name of stable-diffusion-webui that
 * xd_request_schedule.scheduler accepts; NULL: there are no more. */
XD_API const char      *xd_scheduler_webui(int i);
/* returns an array of the *n options of xd_parallel */
XD_API const xd_option *xd_parallel_options(int *n);

/* ---- latents --------------------------------------------------------------------------------- */

/* Decodes latents, which are f32 of `shape` [T,C,h,w]; T is 1 for an image. The latents may come
 * from on_tensor, from a request with latents_only, or from the program. `r` is the request that
 * made the latents, or a request with the prompt "". The result gets the parameters of `r`, whose
 * prompts and images are not read. If the width, height or number of frames of `r` is 0, this value
 * is computed from the shape of the latents. Loads only the autoencoder. XD_EINVAL: the shape does
 * not match the request. The call is collective: rank 0 reads the latents, and all ranks pass the
 * same `shape`. */
XD_API xd_status xd_decode(xd_engine *g, const xd_request *r, const float *latents,
                           const int64_t shape[4], xd_result **out, xd_err *e);

/* ---- plans: how a model is distributed over ranks ------------------------------------------ */

/* Checks whether plan p is possible on `ranks` ranks, without the checks that need a model.
 * XD_EINVAL: the plan is impossible; the error message names up to three possible plans. */
XD_API xd_status xd_parallel_check(const xd_parallel *p, int ranks, xd_err *e);
/* Returns the number of ranks that plan p uses. */
XD_API int       xd_parallel_ranks(const xd_parallel *p);
/* Parses the short name of a plan, "u2r2pp2cfg2" (u, r, pp, tp, cfg, dp, patch, displaced, warm,
 * text, vae), into the fields of p. XD_EINVAL: the name is not valid, or a field already has a
 * different value. */
XD_API xd_status xd_parallel_read(xd_parallel *p, const char *text, xd_err *e);

/* Returns the predicted seconds of a part of the request xd_open_args.plan_for: "text", "denoise",
 * "decode" (all images), "total". Returns a negative value if the time is unknown. Times are known
 * if xd_open chose a plan, or if weights must be read from a disk of known speed. Predicted times
 * include waiting for the disk: "reading" is this waiting time for all weights, and "load" the
 * waiting time for weights that are needed before the first step. Other loading time is not
 * included. */
XD_API double    xd_predicted(const xd_engine *g, const char *part);
/* Returns the bytes of weights that a part of a request ("text", "load", "decode" or "total") must
 * read from disk, because they were not in the page cache of rank 0's host when xd_open chose a
 * plan. Returns 0 if there are no such bytes or the number is unknown. */
XD_API double    xd_cold_bytes(const xd_engine *g, const char *part);

/* Returns 1 if the last request was refused before its start because it does not fit into the
 * memory of the GPU, else 0. All ranks return the same value. */
XD_API int       xd_device_refused(const xd_engine *g);

typedef struct xd_advise_args { /* call xd_advise_args_init, then set fields */
    size_t      size;
    const char *model;          /* model directory; only the configs are needed                */
    const xd_request *request;  /* request to predict; its prompts are ignored                  */
    int         ranks;          /* number of ranks; 0: all ranks of the cluster                */
    const char *cluster;        /* machine: "8xH100", "2x8xL40" or a file; NULL: this machine  */
    const char *dtype;          /* compute type; NULL: the fastest type of the machine         */
    const char *weights_dtype, *text_weights_dtype;     /* types of weights, as in xd_open_args */
    xd_parallel parallel;       /* degrees above 0 are fixed, the other degrees are searched    */
    int         exact;          /* 1: only plans that generate the same image as one rank      */
    int         all;            /* 1: also list impossible plans, with the reason               */
    int         explain;        /* N: print details of plan N (from 1); 0: print the table     */
    int         json;           /* 1: print JSON, not a table                                  */
    void      (*line)(void *cookie, const char *line);  /* called with each line of the output */
    void       *cookie;         /* first argument of `line` and `log`                          */
    int         log_level;      /* lines up to this level are passed to `log`                  */
    void      (*log)(void *cookie, int level, const char *line);
    /* width of the terminal in letters, to which tables are fitted by hiding columns; 0: no
     * limit */
    int         columns;
    int         reserved;       /* must be 0                                                 */
    /* What to do with weights that exceed the memory, as in xd_open_args; NULL: "auto" for GPUs,
     * "none" for CPUs and for a cluster without `device`. */
    const char *offload;
    /* "cuda": plans with one rank per GPU of this machine. If `cluster` names another machine,
     * plans with one rank per GPU of that machine, so this machine needs no GPU. NULL: the device
     * of the cluster's file, else "cpu". */
    const char *device;
    int64_t     memory;         /* limit in bytes per host or GPU, as in xd_open_args          */
    const char *svg;            /* file for a drawing of the 4 fastest plans, or of plan `explain`;
                                   NULL: none                                                 */
} xd_advise_args;
#define xd_advise_args_init(a) xd_advise_args_init_size((a), sizeof *(a))
XD_API void      xd_advise_args_init_size(xd_advise_args *a, size_t size);

/* Predictions of all plans that match an xd_advise_args. Predicting loads no weights. Records and
 * texts belong to the xd_plans; the program may free the arguments. The arguments `all`, `explain`,
 * `json` and `line` are ignored: the list has all details, and has refused plans after the possible
 * ones. */
typedef struct xd_plans xd_plans;

typedef struct xd_plans_info {
    const char *model;          /* directory of the model                                     */
    const char *cluster;        /* name of the machine                                        */
    /* number of ranks of the plans; number of ranks of the machine */
    int         ranks, cluster_ranks;
    int         fitted;         /* 1: the machine was measured; 0: values are from data sheets */
    /* number of possible plans; number of possible and refused plans */
    int         possible, count;
    /* compute type; type of the matrices of the transformer's blocks */
    const char *dtype, *weights_dtype;
    double      cold_bytes;     /* bytes of weights that are not in this machine's page cache  */
    double      read_bytes_s; /* bytes/s of this machine's disk; 0: unknown, no time is predicted */
} xd_plans_info;

typedef struct xd_plan_info {   /* the prediction of one plan; the fastest plan is first      */
    const char *name;           /* plan as a short name for xd_parallel_read, "u2cfg2"        */
    const char *flags; /* plan as flags, "--ulysses_degree 2 --use_cfg_parallel"; "": one rank */
    const char *text;           /* plan as a description, "cfg 2 x ulysses 2"                 */
    const char *refused;        /* why the plan is impossible; NULL: it is possible            */
    xd_parallel parallel;       /* the degrees and options of the plan, for xd_open_args      */
    int         predicted;      /* 1: the plan was predicted; 0: it was refused, and the fields
                                   below are 0 */
    int         ranks;          /* number of ranks that the plan uses                         */
    int         same_image;     /* 1: the plan generates the same image as one rank does without
                                   the options that save time (xd_option_about.saves); 0: stale
                                   keys and values or such an option change the image */
    /* number of steps of an image; number of exact steps among them */
    int         steps, exact_steps;
    /* Seconds of: waiting for weights before the first step; text encoding; an exact step; a
     * later step; decoding one image; decoding and waiting for the VAE's weights; the complete
     * request. */
    double      load_s, text_s, exact_step_s, step_s, decode_s, vae_s, request_s;
    double      read_text_s, read_transformer_s, read_vae_s;    /* seconds of waiting for weights,
                                   included in text_s, vae_s and request_s */
    double      peak;           /* peak bytes of the GPU or (CPU) host that needs the most memory */
    double      sent;           /* bytes that all ranks send for the request                  */
} xd_plan_info;

typedef struct xd_plan_rank {   /* one rank of a plan                                         */
    int64_t text, transformer, vae;     /* bytes of weights, by component                     */
    int64_t text_tmp, transformer_tmp, vae_tmp; /* bytes of activations, by component          */
    int64_t method_bytes;       /* bytes of stale values and message buffers, a part of
                                   transformer_tmp */
    int64_t peak;               /* peak bytes of the rank's memory                            */
    /* Seconds of computing, and seconds of waiting for messages, in a step after the first
     * steps. */
    double  busy_s, wait_s;
    /* bytes that the rank sends in a step after the first steps; the part of these that it sends to
     * other hosts */
    double  sent, sent_hosts;
} xd_plan_rank;

/* Predicts all plans that match `a`. If no plan is possible, xd_plans_predict fails, *out is NULL,
 * and the error has the reason why the plan that comes nearest is impossible. Free *out with
 * xd_plans_free. */
XD_API xd_status            xd_plans_predict(xd_plans **out, const xd_advise_args *a, xd_err *e);
XD_API const xd_plans_info *xd_plans_about(const xd_plans *p);
/* Return plan i (from 0) of xd_plans_info.count plans, and rank `rank` of plan i. Return NULL if
 * there is no such plan or rank, or the plan was not predicted. */
XD_API const xd_plan_info  *xd_plans_get(const xd_plans *p, int i);
XD_API const xd_plan_rank  *xd_plans_rank(const xd_plans *p, int i, int rank);
XD_API void                 xd_plans_free(xd_plans **p);
/* Predicts plans and passes the predictions to a->line as lines of text, or as JSON: the output of
 * `xdit plan`. */
XD_API xd_status xd_advise(const xd_advise_args *a, xd_err *e);

/* ---- results -------------------------------------------------------------------------------- */

/* Returns the seconds that a part of generating image i took: "denoise", "decode". Returns -1 if
 * the time is unknown, as for images that other ranks generated. */
XD_API double    xd_result_image_seconds(const xd_result *r, int i, const char *part);
/* Returns the bytes that all ranks have sent to each other for the request. */
XD_API int64_t   xd_result_sent(const xd_result *r);
/* Returns the number of tokens of image i. what: "text": tokens of the prompt, with special tokens
 * and without padding, the largest number among the text encoders; "image": tokens of the image or
 * video in the transformer; "reference": tokens of the reference images in the transformer. Returns
 * -1 if the number is unknown. */
XD_API int64_t   xd_result_tokens(const xd_result *r, int i, const char *what);

/* ---- names of output files ------------------------------------------------------------------ */

/* Checks whether `images` images can be written to the file name `path`: one file, or several if
 * `path` has a %d (%04d). May be called before a model is opened. If the name is that of a video,
 * also checks that this machine can write the video format. */
XD_API xd_status xd_output_check(const char *path, int images, xd_err *e);
/* Returns 1 if the engine's model generates videos, 0 if it generates images. */
XD_API int       xd_makes_videos(const xd_engine *g);
/* Completes xd_output_check when the model is known: refuses the name of a video if `video` is
 * 0. */
XD_API xd_status xd_output_check_video(const char *path, int video, xd_err *e);
/* Returns the default name of an output file: "output.png"; for a video "output.mp4", or
 * "output.gif" without FFmpeg. */
XD_API const char *xd_output_default(int video);
/* Writes the file name of image i (from 0) to `name`: replaces %d in `path`, or inserts "_0001"
 * before the extension if there are several images and no %d. */
XD_API xd_status xd_output_name(const char *path, int i, int images, char *name, size_t size,
                                xd_err *e);
/* Writes the file name of video i (from 0) of `videos` videos with `frames` frames each to `name`,
 * in the form that xd_result_save expects. If the frames are written as images, the name has a %d
 * for the frame number, and with several videos "0001_" is inserted before the %d. */
XD_API xd_status xd_output_video_name(const char *path, int i, int videos, int64_t frames,
                                      char *name, size_t size, xd_err *e);
/* Returns the number of files that xd_result_save writes for the file name `path` and `frames`
 * frames. */
XD_API int64_t   xd_output_files(const char *path, int64_t frames);
/* Removes all incomplete output files. This function is async-signal-safe, so that a signal handler
 * can call it and then exit. */
XD_API void xd_output_sweep(void);

/* ---- image files ----------------------------------------------------------------------------- */

/* Reads the size in pixels of a PNG, JPEG, WebP, GIF or PPM file from its header, after rotation by
 * its Exif orientation. */
XD_API xd_status xd_image_file_size(const char *path, int64_t *width, int64_t *height, xd_err *e);
/* Reads a PNG, JPEG, WebP, GIF or PPM file as RGB into *data, which is malloc'ed and freed by the
 * caller; im->data points to it. */
XD_API xd_status xd_image_file_load(const char *path, xd_image *im, uint8_t **data, xd_err *e);
/* Reads an image file as an inpainting mask by OpenAI's rule: if a PNG or WebP file has transparent
 * pixels, these become white and all other pixels black. Files without transparent pixels are read
 * as xd_image_file_load does. */
XD_API xd_status xd_image_file_load_mask(const char *path, xd_image *im, uint8_t **data,
                                         xd_err *e);
/* Writes one frame of RGB pixels, without gaps between rows, to an image file. The file name
 * extension selects the format, as in xd_result_save. */
XD_API xd_status xd_image_file_save(const xd_image *im, const char *path, xd_err *e);
/* Writes a contact sheet of a video: at most `most` frames at equal distances, including the first
 * and the last, in rows of `columns` frames, each at most `width` pixels wide, on black. */
XD_API xd_status xd_image_file_sheet(const xd_image *im, int columns, int most, int64_t width,
                                     const char *path, xd_err *e);

/* ---- comparing images ------------------------------------------------------------------------ */

typedef struct xd_comparison {  /* call xd_comparison_init before xd_compare_images             */
    size_t  size;
    int64_t frames, width, height;      /* size of both images or videos                       */
    double  psnr;               /* PSNR in decibels over all channels; infinite for equal images */
    /* Structural similarity (Wang et al. 2004), mean over the channels; 1: equal. */
    double  ssim;
    double  mean;               /* mean absolute difference of levels (0 to 255)               */
    int64_t most;               /* largest difference of two levels (0 to 255)                */
    int64_t worst;              /* index of the frame with the lowest PSNR, from 0              */
} xd_comparison;
#define xd_comparison_init(c) xd_comparison_init_size((c), sizeof *(c))
XD_API void      xd_comparison_init_size(xd_comparison *c, size_t size);
/* Compares two images, or two videos frame by frame, of RGB pixels without gaps between rows.
 * XD_EINVAL: the sizes or frame counts differ. */
XD_API xd_status xd_compare_images(xd_comparison *c, const xd_image *a, const xd_image *b,
                                   xd_err *e);

typedef struct xd_trace_args {  /* call xd_trace_args_init, then set fields                    */
    size_t      size;
    const char *trace;          /* trace file that an engine wrote (xd_open_args.trace)        */
    const char *svg;            /* SVG file for a drawing of the trace; NULL: no drawing       */
    int         step;           /* step to summarize and draw, from 1; 0: the last one         */
    int         reserved;       /* must be 0                                                 */
    void      (*line)(void *cookie, const char *line);  /* called with each line of the output */
    void       *cookie;
} xd_trace_args;
#define xd_trace_args_init(a) xd_trace_args_init_size((a), sizeof *(a))
XD_API void      xd_trace_args_init_size(xd_trace_args *a, size_t size);
/* Prints how long each rank of a trace computed and waited, in the complete request and in one
 * step, and draws both. XD_EIO, XD_EFORMAT: the trace cannot be read; XD_EINVAL: the trace does not
 * have the step. */
XD_API xd_status xd_trace_show(const xd_trace_args *a, xd_err *e);

typedef struct xd_compare_args { /* call xd_compare_args_init, then set fields */
    size_t      size;
    /* Two files (PNG, JPEG, WebP, PPM, MP4, QuickTime, Matroska, WebM, GIF), or two directories
     * of images, which are compared in the order of their names. */
    const char *a, *b;
    /* Image file to write, with the differences of the worst frame as grey levels: 0 for equal
     * pixels, 32 for a difference of 1 level, white for 255 levels; NULL: none. */
    const char *difference;
    int         json;           /* 1: print JSON, not text                                    */
    int         threads;        /* number of threads; 0: all cores                            */
    void      (*line)(void *cookie, const char *line);  /* called with each line of the output */
    void       *cookie;
} xd_compare_args;
#define xd_compare_args_init(a) xd_compare_args_init_size((a), sizeof *(a))
XD_API void      xd_compare_args_init_size(xd_compare_args *a, size_t size);
/* Compares two files or directories, prints the comparison through a->line, and stores it in *c
 * unless that is NULL. Returns the errors of xd_compare_images, or the error of a file that cannot
 * be read. */
XD_API xd_status xd_compare_files(const xd_compare_args *a, xd_comparison *c, xd_err *e);

/* ---- inspecting models and machines -------------------------------------------------------- */

typedef struct xd_inspect_args { /* call xd_inspect_args_init, then set fields */
    size_t      size;
    const char *model;          /* model directory (configs are enough) or a weight file      */
    /* The name of a component: xd_inspect prints a line "name shape" for every tensor in the
     * component's files. If `model` is a weight file, any text: xd_inspect prints such a line for
     * every tensor of the file. NULL: xd_inspect prints a summary. */
    const char *tensors;
    int         json;           /* 1: print JSON, not text                                    */
    void      (*line)(void *cookie, const char *line);  /* called with each line of the output */
    void       *cookie;
} xd_inspect_args;
#define xd_inspect_args_init(a) xd_inspect_args_init_size((a), sizeof *(a))
XD_API void      xd_inspect_args_init_size(xd_inspect_args *a, size_t size);
/* Prints the components of a model, with missing and wrong tensors. If tensors are missing or
 * wrong, fails after the last line. */
XD_API xd_status xd_inspect(const xd_inspect_args *a, xd_err *e);

typedef struct xd_bench_turn {  /* the timed runs of a stage of a benchmark                   */
    int         n;              /* number of timed runs so far; 0: the fields below are not valid */
    double      seconds, gflop; /* time and floating-point operations / 1e9 of the last run   */
    /* The processor's peak rate without memory access: the higher of two values, which are measured
     * before and after the run. */
    double      peak_gflops;
} xd_bench_turn;

typedef struct xd_bench_args {  /* call xd_bench_args_init, then set fields */
    size_t      size;
    const char *config;         /* directory of the model to time                            */
    int         random_weights; /* 1: use pseudo-random weights, so that only configs are needed */
    int         share_layers;   /* 1: random weights of blocks of one kind share memory       */
    int64_t     width, height;  /* size in pixels; 0: the model's default                    */
    int         num_frames;     /* number of frames of a video; 0: the model's default        */
    const char *layers;         /* number of blocks of each kind, as in xd_open_args         */
    int         max_sequence_length;    /* number of text tokens; 0: the pipeline's default  */
    /* number of threads (0: all cores); number of timed runs (0: at least 3 runs and half a
     * second) */
    int         threads, repeats;
    const char *bind;           /* CPU binding, as in xd_open_args                           */
    /* types and device, as in xd_open_args */
    const char *dtype, *weights_dtype, *text_weights_dtype, *device;
    /* Stages to time: words of "text step block vae"; "step" includes the blocks of a step;
     * NULL: all. */
    const char *parts;
    int         json;           /* 1: print JSON, not text                                   */
    void      (*line)(void *cookie, const char *line);  /* called with each line of the output */
    void       *cookie;
    /* If there are several ranks: the plan whose times are compared with those of one rank, for the
     * stages "step" and (with use_parallel_vae) "vae". xd_bench is then collective; rank 0 gets the
     * output lines. */
    xd_parallel parallel;
    int         log_level;      /* lines up to this level are passed to `log`                   */
    void      (*log)(void *cookie, int level, const char *line);
    /* If there is a single rank, this function is called before every timed run of a stage and
     * after the last run. A return value of 0 ends the stage, regardless of `repeats`. With this
     * callback, blocks are timed only if `parts` names them, and large GEMMs are not timed: matrix
     * peaks are 0. NULL: none. */
    int       (*turn)(void *cookie, const xd_bench_turn *last);
    /* If there is a single rank, this function is called when the creation or loading of weights
     * (of `bytes` bytes) or the timing of a stage (0 bytes) begins. NULL: none. */
    void      (*on_stage)(void *cookie, const char *what, double bytes);
    const char *gemm;           /* type of the inputs of GEMMs with fp8 weights, as in xd_request */
} xd_bench_args;
#define xd_bench_args_init(a) xd_bench_args_init_size((a), sizeof *(a))
XD_API void      xd_bench_args_init_size(xd_bench_args *a, size_t size);
/* Times the stages of a model and prints seconds and rates: the output of `xdit bench`. */
XD_API xd_status xd_bench(const xd_bench_args *a, xd_err *e);

typedef struct xd_probe_args {  /* call xd_probe_args_init, then set fields */
    size_t      size;
    int         threads;        /* threads per rank; 0: this rank's share of its host's cores     */
    /* File to write, for xd_advise_args.cluster; "-": pass the file's content to `line` instead;
     * NULL: this machine's default file below $XDG_CACHE_HOME or ~/.cache. */
    const char *output;
    /* called with the file's name or the file's content */
    void      (*line)(void *cookie, const char *line);
    void       *cookie;
    int         log_level;      /* lines up to this level are passed to `log`                   */
    void      (*log)(void *cookie, int level, const char *line);
    const char *device;         /* device to measure, as in xd_open_args; NULL: "cpu"          */
} xd_probe_args;
#define xd_probe_args_init(a) xd_probe_args_init_size((a), sizeof *(a))
XD_API void      xd_probe_args_init_size(xd_probe_args *a, size_t size);
/* Measures, in a few seconds, the speed of the launched ranks' kernels and messages, and writes the
 * measured rates to a file. xd_probe is collective over the launched ranks; rank 0 writes the file
 * and calls `line`. */
XD_API xd_status xd_probe(const xd_probe_args *a, xd_err *e);

/* ---- conversion of models -------------------------------------------------------------------- */

typedef struct xd_convert_args { /* call xd_convert_args_init, then set fields */
    size_t      size;
    const char *model;          /* model directory or name, as in xd_open_args                */
    /* Output directory, created if it does not exist; the parent directory must exist. */
    const char *output;
    /* Types of the matrices of transformers and of text encoders: "f32", "bf16", "int8", "fp8",
     * "int4". NULL: the types in the source files; but if weights_dtype is f32 or bf16, text
     * encoders get this type too. */
    const char *weights_dtype, *text_weights_dtype;
    const xd_component_file *files;     /* [nfiles] files that replace the weights of components */
    const xd_lora *loras, *loras_2;     /* [nloras], [nloras_2] LoRA files, added to the weights */
    int         nfiles, nloras, nloras_2;
    int         ncomponents;
    const char *const *components; /* [ncomponents] components to convert; 0: the complete model */
    int64_t     shard_bytes;    /* maximum bytes of a weight file; 0: 5 GB                      */
    int         force;          /* 1: replace model files in a directory that is not empty      */
    int         threads;        /* number of threads; 0: all cores                            */
    int         log_level;      /* lines up to this level are passed to `log`                 */
    int         lora_partial;   /* 1: skip LoRA tensors that do not match, as in xd_open_args */
    void      (*log)(void *cookie, int level, const char *line);
    /* Called from time to time with the bytes written, the total bytes, and the name of the current
     * file. NULL: none. */
    void      (*on_progress)(void *cookie, const char *file, double done, double total);
    void       *cookie;
} xd_convert_args;
#define xd_convert_args_init(a) xd_convert_args_init_size((a), sizeof *(a))
XD_API void      xd_convert_args_init_size(xd_convert_args *a, size_t size);
/* Writes a model directory with safetensors files under diffusers' names. The conversion works
 * tensor by tensor and needs little memory for models of any size. A file appears in the directory
 * when the file is complete. After an interruption, the same call continues where the conversion
 * stopped. */
XD_API xd_status xd_convert_model(const xd_convert_args *a, xd_err *e);

#ifdef __cplusplus
}
#endif

#endif
