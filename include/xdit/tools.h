/* tools.h - declares functions for command lines, servers and tools: lists of options, plans, names
 * of output files, inspection, benchmarks, probes.
 *
 * The rules of xdit.h for errors, for records (structs) and their versions, and for the lifetime of
 * pointers also apply to tools.h. */
#ifndef XDIT_TOOLS_H
#define XDIT_TOOLS_H

#include "xdit/xdit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- facts about this library and this machine --------------------------------------------- */

/* Describes this library and this machine. xd_about calls `fact` once for each property, with the
 * property's name and its value, which are valid during the call. The pairs of name and value are:
 * "library" "oneDNN 2.7.2", for each library in use; "video" "FFmpeg's libavcodec 59.37", or
 * "video_error" with a sentence; "kernels" "cpu-avx512bf16", or "kernels_error" with a sentence;
 * "type" "bf16", the default compute type; "cores", the number of cores that this process may use;
 * "memory", the bytes available to all processes, and "address_space", the bytes available to this
 * process; "shared_dir", "shared_free": directory and free bytes of the shared memory of ranks;
 * "hub": the Hugging Face cache. For GPUs, the names of properties are: "cuda", whose value is the
 * reason why no GPU can be used, or else "cuda_driver", "cuda:0", "cuda:1" and so on ("cuda_old:0"
 * for an unsupported GPU). Further names that describe GPUs and their libraries are "cuda_peers",
 * "cublaslt" or "cublaslt_error", "nccl" or "nccl_error", and "cuda_kernels_error". */
XD_API void xd_about(xd_fact *fact, void *cookie);

/* Returns nonzero if an MPI launcher (mpirun, srun) has started this process. If a launcher has
 * started this process and `rank` is not NULL, xd_launched also sets *rank to the process's rank.
 * The program need not connect its processes to each other, because xd_open connects them. */
XD_API int xd_launched(int *rank);
/* Returns the number of processes that the MPI launcher has started; 0 if the number is unknown or
 * there is no launcher. */
XD_API int xd_launched_ranks(void);

/* Returns how many processes the kernel has killed for lack of memory, according to the kernel's
 * counters. If xd_oom_kills sets *group to 1, it counts only processes in the control group
 * (cgroup) of this process; if it sets *group to 0, it counts all processes of this host. If a
 * process ended by SIGKILL while the number of kills for lack of memory grew, the kernel probably
 * killed that process for lack of memory. Returns -1 if the number of processes killed for lack of
 * memory is unknown. */
XD_API int64_t xd_oom_kills(int *group);

/* xd_ping tests messages between the processes that an MPI launcher has started. All processes that
 * the MPI launcher has started must call xd_ping. Rank 0 gets the latency and bandwidth, measured
 * between ranks 0 and 1. */
typedef struct xd_pinged { /* call xd_pinged_init before xd_ping */
    size_t size;
    int    ranks;
    /* Latency in seconds: half of the median round trip of a message of one byte. */
    double latency_s;
    double bytes_s; /* bandwidth in one direction in bytes per second, for messages of 8 MB */
} xd_pinged;
#define xd_pinged_init(p) xd_pinged_init_size((p), sizeof *(p))
XD_API void      xd_pinged_init_size(xd_pinged *p, size_t size);
XD_API xd_status xd_ping(xd_pinged *p, xd_err *e);

/* ---- ranks of a server --------------------------------------------------------------------- */

/* A rank group: the processes that an MPI launcher has started, or this process alone. A server
 * opens a rank group before the first engine and closes the group after the last engine. A process
 * can initialize MPI only once; the open rank group keeps MPI initialized while engines open and
 * close. All calls with a rank group are collective: every rank must make them. */
typedef struct xd_rank_group xd_rank_group;
XD_API xd_status             xd_rank_group_open(xd_rank_group **g, xd_err *e);
XD_API void                  xd_rank_group_close(xd_rank_group **g);
XD_API int                   xd_rank_group_rank(const xd_rank_group *g);
XD_API int                   xd_rank_group_size(const xd_rank_group *g);
/* Broadcasts *bytes bytes at *data from rank 0. Ranks other than 0 get a copy of the broadcast
 * bytes, allocated by malloc, with a NUL appended; the program frees the copy. A rank that waits
 * for the broadcast does not spin: it sleeps, for at most 2 ms at a time. */
XD_API xd_status xd_rank_group_share(xd_rank_group *g, void **data, size_t *bytes, xd_err *e);

/* Opens a second engine *g on the weights and settings of the engine `of`. The new engine can
 * generate while a request of the engine `of` is paused in its callback on_turn. If `alone` is 0,
 * the new engine has the ranks and the plan of the engine `of`, and all these ranks must call
 * xd_open_beside. If `alone` is 1, the new engine has only this rank, and other ranks need not call
 * xd_open_beside. Before an engine with `alone` 1 generates, xd_load_everywhere must have been
 * called. A rank must not use an engine with `alone` 1 and an engine of several ranks at the same
 * time. Close the engine *g before the engine `of`. */
XD_API xd_status xd_open_beside(xd_engine **g, xd_engine *of, int alone, xd_err *e);
/* Loads the weights of all components on all ranks, one copy per host. XD_EINVAL: the engine was
 * opened without xd_open_args.keep, or by xd_open_beside. XD_EUNSUPPORTED: the plan splits weights
 * over ranks, generates a different image than one rank does, or leaves ranks idle; or the model
 * has two transformers. XD_ENOMEM: the weights do not fit in memory; later requests are not
 * affected. xd_load_everywhere does nothing if all weights are loaded. All ranks must call
 * xd_load_everywhere. */
XD_API xd_status xd_load_everywhere(xd_engine *g, xd_err *e);
/* Selects the LoRA files v[0..n) for the following requests, in place of xd_open_args.loras. The
 * selection of LoRA files is valid until xd_leave_loras is called. After xd_leave_loras no
 * selection is valid: the program must call xd_use_loras before every later request, with n 0 for a
 * request without LoRA files. The next request after xd_use_loras reloads only the components that
 * a LoRA file changes; other components and cached embeddings are kept. Weights that were computed
 * for other selections of LoRA files stay in memory, for the last four selections. Selections of
 * LoRA files nest: a request inside on_turn of another request may select other LoRA files, and
 * then calls xd_leave_loras before on_turn returns. If xd_use_loras fails, the selection does not
 * change. xd_use_loras, xd_leave_loras and xd_drop_loras are collective: all ranks must call
 * them. */
XD_API xd_status xd_use_loras(xd_engine *g, const xd_lora *v, int n, xd_err *e);
XD_API void      xd_leave_loras(xd_engine *g);
/* Frees the weights that were computed for one selection of LoRA files: the least recently used
 * selection that no request uses. Returns 0 if no weights can be freed, because a request uses
 * every selection of LoRA files in memory or no selection is in memory. */
XD_API int       xd_drop_loras(xd_engine *g);

/* ---- options as data ----------------------------------------------------------------------- */

/* Two tables describe the options of a request and the options of a plan. Each row (xd_option)
 * describes one option. Command lines and servers use the row of an option to validate the option's
 * value. A program must skip options whose field (`offset`) lies beyond the end of the program's
 * own xd_request or xd_parallel: these options belong to a library that is newer than the program's
 * header. */
typedef enum xd_option_kind {
    XD_OPT_FLAG,
    XD_OPT_INT,
    XD_OPT_INT64,
    XD_OPT_REAL,
    XD_OPT_TEXT,
    XD_OPT_SEED
} xd_option_kind;

/* XD_OPT_FLAG and XD_OPT_SEED have special values. XD_OPT_FLAG: the value 1 switches the flag on.
 * For a flag whose `min` is -1, the value -1 switches the option off, and 0 keeps the setting of
 * the model's config. XD_OPT_SEED: the option's value is stored in an int64_t. Seeds from -2^63 to
 * 2^64 - 1 are allowed and stored modulo 2^64. The seed -1 means a random seed: the program sets
 * the int field that follows the seed's field (random_seed). */
#define XD_ABOVE_ZERO 1e-6              /* `min` of an option whose number must be greater than 0 */
typedef struct xd_option {
    const char    *name; /* name of the option, "num_inference_steps" */
    /* Kind of the value, from which the C type of the field follows: int (XD_OPT_FLAG,
     * XD_OPT_INT), int64_t, double or char *. */
    xd_option_kind kind;
    size_t         offset;   /* offset of the field in xd_request or xd_parallel */
    double         min, max; /* smallest and largest allowed value of a number */
    /* For an option whose value is a text: the allowed texts, such as "philox torch". For an option
     * whose value is a number: the number that is used if the command line has the option without a
     * value. choices NULL: the option has neither a list of allowed texts nor a number for an
     * option without a value. */
    const char    *choices;
    /* Name of the value in a help text, for example "N". If the name of the value is itself one of
     * the allowed texts, the option may be given without a value, and then has this text as its
     * value. */
    const char    *arg;
    const char    *help; /* help text of one line */
} xd_option;

/* returns an array of the *n options of xd_request */
XD_API const xd_option *xd_request_options(int *n);
/* Properties of an option of xd_request, such as the section of a help text that lists the
 * option. */
typedef struct xd_option_about {
    const char *section; /* title of the section of a help text, "Guidance" */
    int         main;    /* 1: the short help text also lists the option */
    int         saves;   /* 1: the option saves time and changes the image */
} xd_option_about;
/* Returns the record of the option `name`; NULL: there is no such option. */
XD_API const xd_option_about *xd_request_option_about(const char *name);
/* Returns 1 if the request sets the option `name`: its value differs from the default and from the
 * value that switches the option off, such as "none". */
XD_API int                    xd_request_gives(const xd_request *r, const char *name);
/* Returns the i-th (from 0) scheduler name of stable-diffusion-webui that
 * xd_request_schedule.scheduler accepts; NULL: there are no more names. */
XD_API const char            *xd_scheduler_webui(int i);
/* returns an array of the *n options of xd_parallel */
XD_API const xd_option       *xd_parallel_options(int *n);

/* ---- latents --------------------------------------------------------------------------------- */

/* Decodes latents, an f32 array of `shape` [T,C,h,w]; T is 1 for an image. The latents may come
 * from on_tensor, from a request with latents_only, or from the program. `r` is the request that
 * generated the latents, or a request with the prompt "". The parameters of `r` are stored with the
 * result; the prompts and images of `r` are not read. If the width, height or number of frames of
 * `r` is 0, it is computed from the shape of the latents. xd_decode loads only the autoencoder.
 * XD_EINVAL: the shape of the latents does not match the request. All ranks must call xd_decode
 * with the same `shape`; rank 0 reads the latents. */
XD_API xd_status xd_decode(xd_engine *g, const xd_request *r, const float *latents,
                           const int64_t shape[4], xd_result **out, xd_err *e);

/* ---- plans: how a model is distributed over ranks ------------------------------------------ */

/* Checks whether plan p is possible on `ranks` ranks; checks that need a model are omitted.
 * XD_EINVAL: the plan is impossible; the error message names up to three possible plans. */
XD_API xd_status xd_parallel_check(const xd_parallel *p, int ranks, xd_err *e);
/* Returns the number of ranks that plan p uses. */
XD_API int       xd_parallel_ranks(const xd_parallel *p);
/* Parses the short name of a plan into the fields of p. A short name is a list of keys with their
 * values, such as "u2r2pp2cfg2"; the keys are u, r, pp, tp, cfg, dp, patch, displaced, warm, text
 * and vae. XD_EINVAL: the short name is not valid, or a field of p already has a value that differs
 * from the short name. */
XD_API xd_status xd_parallel_read(xd_parallel *p, const char *text, xd_err *e);

/* Returns the predicted seconds of one part of a request: "text", "denoise", "decode" (all images),
 * or "total". xd_predicted predicts the request in xd_open_args.plan_for. Returns a negative value
 * if the predicted time is unknown. Predicted times are known if xd_open chose a plan, or if
 * weights must be read from a disk of known speed. Predicted times include waiting for the disk.
 * For xd_predicted, the part "reading" is the time of waiting for all weights; the part "load" is
 * the time of waiting for weights that are needed before the first step. The predicted times of
 * loading ("load", "reading") consist only of waiting for weights. */
XD_API double xd_predicted(const xd_engine *g, const char *part);
/* Returns how many bytes of weights a part of a request ("text", "load", "decode" or "total") must
 * read from disk. Weights that were in the page cache of rank 0's host when xd_open chose a plan
 * are not counted. Returns 0 if all weights were in the page cache, or if the number of bytes to
 * read is unknown. */
XD_API double xd_cold_bytes(const xd_engine *g, const char *part);

/* Returns 1 if the engine's last request was refused before it started, because the request does
 * not fit into the memory of the GPU; else 0. xd_device_refused returns the same value on all
 * ranks. */
XD_API int xd_device_refused(const xd_engine *g);

typedef struct xd_advise_args { /* call xd_advise_args_init, then set fields */
    size_t            size;
    const char       *model;   /* model directory; only the configs are needed */
    const xd_request *request; /* request whose time is predicted; its prompts are ignored */
    int               ranks;   /* number of ranks; 0: all ranks of the cluster */
    const char       *cluster; /* machine: "8xH100", "2x8xL40" or a file; NULL: this machine */
    const char       *dtype;   /* compute type; NULL: the fastest type of the machine */
    const char       *weights_dtype, *text_weights_dtype; /* types of weights, as in xd_open_args */
    /* Degrees of parallelism above 0 are used as given; for each degree that is 0, plans with all
     * possible values are predicted. */
    xd_parallel       parallel;
    int               exact; /* 1: predict only plans that generate the same image as one rank */
    int               all;   /* 1: also list impossible plans, with the reason */
    /* number of the plan (from 1) whose details are printed; 0: the table of all plans is
     * printed */
    int               explain;
    int               json;                              /* 1: print JSON, not a table */
    void        (*line)(void *cookie, const char *line); /* called with each line of the output */
    void       *cookie;                                  /* first argument of `line` and `log` */
    int         log_level; /* log lines up to this level are passed to `log` */
    void        (*log)(void *cookie, int level, const char *line);
    /* width of the terminal in characters; columns of tables are hidden to fit this width. 0: no
     * limit */
    int         columns;
    int         reserved; /* must be 0 */
    /* What to do if weights exceed the memory; the values are those of xd_open_args.offload.
     * offload NULL: "auto" for GPUs, and "none" for CPUs or if `cluster` is set without
     * `device`. */
    const char *offload;
    /* device "cuda": plans with one rank per GPU of this machine are predicted. If `cluster` names
     * another machine, "cuda" predicts plans with one rank per GPU of that machine; this machine
     * then needs no GPU. device NULL: the device named in the file `cluster`, or else "cpu". */
    const char *device;
    int64_t     memory; /* memory limit in bytes per host or GPU, as in xd_open_args */
    /* Output file for a drawing of the 4 fastest plans, or of the plan `explain`; NULL: no
     * drawing. */
    const char *svg;
    /* [ncontrolnets] directories of control networks, as in xd_component_file. */
    const char *const *controlnets;
    int                ncontrolnets;
    int                reserved_2;       /* must be 0 */
    const char        *latent_upsampler; /* path of the latent upsampler; NULL: none */
    /* directory of the Redux prior, which varies images; NULL: none */
    const char        *redux;
} xd_advise_args;
#define xd_advise_args_init(a) xd_advise_args_init_size((a), sizeof *(a))
XD_API void xd_advise_args_init_size(xd_advise_args *a, size_t size);

/* Predictions of all plans that match an xd_advise_args. xd_plans_predict loads no weights. The
 * records and texts of the predictions belong to the xd_plans object and are freed with it; the
 * program may free the xd_advise_args earlier. xd_plans_predict ignores the fields `all`,
 * `explain`, `json` and `line` of its arguments. An xd_plans object always has all details of each
 * plan, and lists impossible plans after the possible plans. */
typedef struct xd_plans xd_plans;

typedef struct xd_plans_info {
    const char *model; /* directory of the model whose plans are predicted */
    /* name of the machine (xd_advise_args.cluster) for which plans are predicted */
    const char *cluster;
    /* number of ranks of each plan, and number of ranks of the machine */
    int         ranks, cluster_ranks;
    /* 1: the rates of the machine were measured; 0: they are from data sheets */
    int         fitted;
    /* number of possible plans, and number of possible and impossible plans together */
    int         possible, count;
    /* compute type, and storage type of the matrices of the transformer's blocks */
    const char *dtype, *weights_dtype;
    double      cold_bytes; /* bytes of weights that are not in this machine's page cache */
    /* Speed of this machine's disk in bytes/s; 0: the speed is unknown, and no reading time is
     * predicted. */
    double      read_bytes_s;
} xd_plans_info;

typedef struct xd_plan_info { /* the prediction of one plan; the fastest plan is first */
    const char *name;         /* plan as a short name for xd_parallel_read, "u2cfg2" */
    const char *flags; /* plan as flags, "--ulysses_degree 2 --use_cfg_parallel"; "" for one rank */
    const char *text;  /* plan as a description, "cfg 2 x ulysses 2" */
    const char *refused;  /* reason why the plan is impossible; NULL: the plan is possible */
    xd_parallel parallel; /* the degrees and options of the plan, for xd_open_args */
    /* 1: the plan was predicted; 0: the plan is impossible, and the fields after `predicted` are
     * 0. */
    int         predicted;
    int         ranks; /* number of ranks that the plan uses */
    /* 1: the plan generates the same image as one rank generates without options that save time
     * (xd_option_about.saves). 0: the image changes, because the plan uses stale keys and values
     * (those of the previous step) or an option that saves time. */
    int         same_image;
    /* Number of denoising steps of an image, and number of these steps that use no stale keys and
     * values (those of the previous step). */
    int         steps, exact_steps;
    /* Predicted seconds of the parts of a request, in the order of the fields: waiting for weights
     * before the first step; encoding the text; one step without stale keys and values; one step
     * with stale keys and values; decoding one image; decoding and waiting for the VAE's weights;
     * the complete request. */
    double      load_s, text_s, exact_step_s, step_s, decode_s, vae_s, request_s;
    /* Predicted seconds of waiting for the weights of the text encoders, the transformer and the
     * VAE; text_s, vae_s and request_s include these seconds. */
    double      read_text_s, read_transformer_s, read_vae_s;
    /* Peak memory use in bytes: on GPUs, of the GPU that uses most; on the CPU, of one host. */
    double      peak;
    double      sent; /* bytes that all ranks send for the request */
} xd_plan_info;

typedef struct xd_plan_rank {                   /* one rank of a plan */
    int64_t text, transformer, vae;             /* bytes of weights, by component */
    int64_t text_tmp, transformer_tmp, vae_tmp; /* bytes of activations, by component */
    /* Bytes of stale keys and values (of the previous step) and of message buffers; transformer_tmp
     * includes these bytes. */
    int64_t method_bytes;
    int64_t peak; /* peak bytes of the rank's memory */
    /* Seconds for which the rank computes, and seconds for which it waits for messages, in one
     * denoising step after the first steps. */
    double  busy_s, wait_s;
    /* Bytes that the rank sends in a denoising step after the first steps: to all other ranks, and
     * to ranks on other hosts only. */
    double  sent, sent_hosts;
} xd_plan_rank;

/* Predicts all plans that match `a`. If no plan is possible, xd_plans_predict fails and *out is
 * NULL. If no plan is possible, the error message has the reason why the plan that is closest to
 * being possible is refused. Free *out with xd_plans_free. */
XD_API xd_status            xd_plans_predict(xd_plans **out, const xd_advise_args *a, xd_err *e);
XD_API const xd_plans_info *xd_plans_about(const xd_plans *p);
/* xd_plans_get returns plan i (from 0) of the xd_plans_info.count plans; xd_plans_rank returns the
 * record of rank `rank` in plan i. xd_plans_get and xd_plans_rank return NULL if there is no such
 * plan or rank. xd_plans_rank also returns NULL if the plan was not predicted. */
XD_API const xd_plan_info  *xd_plans_get(const xd_plans *p, int i);
XD_API const xd_plan_rank  *xd_plans_rank(const xd_plans *p, int i, int rank);
XD_API void                 xd_plans_free(xd_plans **p);
/* Predicts plans and passes the predictions to a->line as lines of text, or as JSON: the output of
 * `xdit plan`. */
XD_API xd_status            xd_advise(const xd_advise_args *a, xd_err *e);

/* ---- results -------------------------------------------------------------------------------- */

/* Returns the seconds that a part of generating image i took: "denoise", "decode". Returns -1 if
 * the time of the image is unknown, for example because another rank generated the image. */
XD_API double  xd_result_image_seconds(const xd_result *r, int i, const char *part);
/* Returns the bytes that all ranks have sent to each other for the request. */
XD_API int64_t xd_result_sent(const xd_result *r);
/* Returns a number of tokens of image i, selected by `what`. what "text": tokens of the prompt with
 * special tokens and without padding, for the text encoder with the most tokens. what "image":
 * tokens of the image or video in the transformer. what "reference": tokens of the reference images
 * in the transformer. Returns -1 if the number of tokens is unknown. */
XD_API int64_t xd_result_tokens(const xd_result *r, int i, const char *what);

/* Size of a sound: samples of each channel, channels, and samples per second. */
typedef struct xd_audio_size {
    int64_t samples;
    int     channels, rate;
} xd_audio_size;
/* Returns the sound of video i, [samples,channels] from -1 to 1. Returns NULL if the model makes no
 * sound, or if the request had no_audio or latents_only. */
XD_API const float *xd_result_audio(const xd_result *r, int i, xd_audio_size *size);

/* ---- hashes of steps ------------------------------------------------------------------------ */

/* Hash of the latents, or of a transformer's hidden state [tokens,C], at one point of a request. If
 * two hashes have equal `bits`, their tensors are bit-identical. If the `bits` of two hashes
 * differ, the `sums` of the hashes estimate the distance of the tensors. Each sum adds all elements
 * of a tensor with random signs, which are the same in all runs. For this reason, the mean square
 * of the differences between the sums of two tensors estimates the sum of the squared differences
 * of their elements. */
enum { XD_HASH_SUMS = 8 };
typedef struct xd_step_hash {
    uint64_t bits;
    double   square; /* sum of the squares of the tensor's elements */
    double   sums[XD_HASH_SUMS];
} xd_step_hash;
/* Numbers of steps, guidance passes and transformer blocks that have hashes, for one image. Each
 * step has the hash of its latents, followed by the hashes of the blocks of each guidance pass. If
 * only latents have hashes, `passes` and `blocks` are 0. */
typedef struct xd_hash_counts { int steps, passes, blocks; } xd_hash_counts;
/* Returns the hashes of image i, ordered by step. Returns NULL if the request had no
 * determinism_check, or if this process is not rank 0. */
XD_API const xd_step_hash *xd_result_hashes(const xd_result *r, int i, xd_hash_counts *n);

/* ---- names of output files ------------------------------------------------------------------ */

/* Checks whether `images` images can be written to the file name `path`: to one file, or to several
 * files if `path` has a %d (%04d). xd_output_check may be called before a model is opened. If the
 * file name is that of a video, xd_output_check also checks that this machine can write the video
 * format. */
XD_API xd_status   xd_output_check(const char *path, int images, xd_err *e);
/* Returns 1 if the engine's model generates videos, 0 if it generates images. */
XD_API int         xd_makes_videos(const xd_engine *g);
/* Completes the checks of xd_output_check when the program knows whether the model generates
 * videos. xd_output_check_video refuses the name of a video file if `video` is 0. */
XD_API xd_status   xd_output_check_video(const char *path, int video, xd_err *e);
/* Returns 1 if the model generates videos with sound. */
XD_API int         xd_makes_sound(const xd_engine *g);
/* Refuses the name of an audio file if the result has no sound. */
XD_API xd_status   xd_output_check_sound(const char *path, int sound, xd_err *e);
/* Returns the default name of an output file: "output.png"; for a video "output.mp4", or
 * "output.gif" without FFmpeg. */
XD_API const char *xd_output_default(int video);
/* Writes the file name of image i (from 0) to `name`: replaces %d in `path`, or inserts "_0001"
 * before the extension if there are several images and no %d. */
XD_API xd_status   xd_output_name(const char *path, int i, int images, char *name, size_t size,
                                  xd_err *e);
/* Writes the file name of video i (from 0) of `videos` videos with `frames` frames each to `name`,
 * as xd_result_save expects it. If the frames are written as images, the name has a %d for the
 * frame number, and with several videos "0001_" is inserted before the %d. */
XD_API xd_status   xd_output_video_name(const char *path, int i, int videos, int64_t frames,
                                        char *name, size_t size, xd_err *e);
/* Returns the number of files that xd_result_save writes for the file name `path` and `frames`
 * frames. */
XD_API int64_t     xd_output_files(const char *path, int64_t frames);
/* Removes all incomplete output files. xd_output_sweep is async-signal-safe, so that a signal
 * handler can call it and then exit. */
XD_API void        xd_output_sweep(void);

/* ---- image files ----------------------------------------------------------------------------- */

/* Reads the width and height in pixels from the header of a PNG, JPEG, WebP, GIF or PPM file. If
 * the file has an Exif orientation, the width and height are those of the rotated image. */
XD_API xd_status xd_image_file_size(const char *path, int64_t *width, int64_t *height, xd_err *e);
/* Reads a PNG, JPEG, WebP, GIF or PPM file as RGB into *data, which is malloc'ed and freed by the
 * caller; im->data points to the same pixels. */
XD_API xd_status xd_image_file_load(const char *path, xd_image *im, uint8_t **data, xd_err *e);
/* Reads a file as xd_image_file_load does, but as RGBA: alpha is 255 in an image without alpha. */
XD_API xd_status xd_image_file_load_alpha(const char *path, xd_image *im, uint8_t **data,
                                          xd_err *e);
/* Reads an image file as an inpainting mask. If a PNG or WebP file has transparent pixels, the
 * transparent pixels become white and all other pixels black, as in OpenAI's API for image edits.
 * Files without transparent pixels are read as xd_image_file_load does. */
XD_API xd_status xd_image_file_load_mask(const char *path, xd_image *im, uint8_t **data, xd_err *e);
/* xd_video_file_load reads the frames of a video file, or a single image file, like
 * xd_image_file_load. XD_ENOMEM: the frames have more than `most` bytes. xd_video_file_size reads
 * the size of the first frame. */
XD_API xd_status xd_video_file_load(const char *path, int64_t most, xd_image *im, uint8_t **data,
                                    xd_err *e);
XD_API xd_status xd_video_file_size(const char *path, int64_t *width, int64_t *height, xd_err *e);
/* Writes one frame of RGB pixels, without gaps between rows, to an image file. The file name
 * extension selects the format, as in xd_result_save. */
XD_API xd_status xd_image_file_save(const xd_image *im, const char *path, xd_err *e);
/* Writes a contact sheet of a video: an image file that shows frames of the video on a black
 * background. The contact sheet has at most `most` frames at equal distances, including the first
 * frame and the last frame of the video. The rows of the contact sheet have `columns` frames each;
 * each frame is at most `width` pixels wide. */
XD_API xd_status xd_image_file_sheet(const xd_image *im, int columns, int most, int64_t width,
                                     const char *path, xd_err *e);

/* ---- comparing images ------------------------------------------------------------------------ */

typedef struct xd_comparison { /* call xd_comparison_init before xd_compare_images */
    size_t  size;
    int64_t frames, width, height; /* size of both images or videos */
    double  psnr; /* PSNR in decibels over all channels; infinite for equal images */
    /* Structural similarity (Wang et al. 2004), mean over the channels; 1: equal. */
    double  ssim;
    double  mean;  /* mean absolute difference of levels (0 to 255) */
    int64_t most;  /* largest absolute difference of levels (0 to 255) */
    int64_t worst; /* index of the frame with the lowest PSNR, from 0 */
} xd_comparison;
#define xd_comparison_init(c) xd_comparison_init_size((c), sizeof *(c))
XD_API void      xd_comparison_init_size(xd_comparison *c, size_t size);
/* Compares two images, or two videos frame by frame, of RGB pixels without gaps between rows.
 * XD_EINVAL: the two images or videos differ in size or number of frames. */
XD_API xd_status xd_compare_images(xd_comparison *c, const xd_image *a, const xd_image *b,
                                   xd_err *e);

typedef struct xd_trace_args { /* call xd_trace_args_init, then set fields */
    size_t      size;
    const char *trace; /* trace file that an engine wrote (xd_open_args.trace) */
    const char *svg;   /* SVG file for a drawing of the trace; NULL: no drawing */
    /* number of the denoising step to summarize and draw, from 1; 0: the last step */
    int         step;
    int         reserved;                                /* must be 0 */
    void        (*line)(void *cookie, const char *line); /* called with each line of the output */
    void       *cookie;
} xd_trace_args;
#define xd_trace_args_init(a) xd_trace_args_init_size((a), sizeof *(a))
XD_API void      xd_trace_args_init_size(xd_trace_args *a, size_t size);
/* Prints how long each rank of a trace computed and waited, in the complete request and in one
 * step. If `svg` is set, xd_trace_show also draws the complete request and the step. XD_EIO,
 * XD_EFORMAT: the trace cannot be read. XD_EINVAL: the trace does not have step `step`. */
XD_API xd_status xd_trace_show(const xd_trace_args *a, xd_err *e);

typedef struct xd_compare_args { /* call xd_compare_args_init, then set fields */
    size_t      size;
    /* Two files (PNG, JPEG, WebP, PPM, MP4, QuickTime, Matroska, WebM, GIF), or two directories
     * of images, which are compared in the order of their names. */
    const char *a, *b;
    /* Image file to write, which shows the differences of the worst frame as grey levels: 0 for
     * equal pixels, 32 for a difference of 1 level, white for 255 levels. NULL: no file. */
    const char *difference;
    int         json;                                    /* 1: print JSON, not text */
    int         threads;                                 /* number of threads; 0: all cores */
    void        (*line)(void *cookie, const char *line); /* called with each line of the output */
    void       *cookie;
} xd_compare_args;
#define xd_compare_args_init(a) xd_compare_args_init_size((a), sizeof *(a))
XD_API void      xd_compare_args_init_size(xd_compare_args *a, size_t size);
/* Compares two files or directories and prints the comparison through a->line. If `c` is not NULL,
 * xd_compare_files also stores the comparison in *c. Returns the errors of xd_compare_images, or
 * the error of a file that cannot be read. */
XD_API xd_status xd_compare_files(const xd_compare_args *a, xd_comparison *c, xd_err *e);

/* ---- inspecting models and machines -------------------------------------------------------- */

typedef struct xd_inspect_args { /* call xd_inspect_args_init, then set fields */
    size_t      size;
    const char *model; /* model directory (configs are enough) or a weight file */
    /* If `model` is a directory, `tensors` is the name of a component. xd_inspect then prints a
     * line "name shape" for every tensor in the component's files. If `model` is a weight file,
     * `tensors` is any text that is not NULL. xd_inspect then prints a line "name shape" for every
     * tensor of the file. If `tensors` is NULL, xd_inspect prints a summary. */
    const char *tensors;
    int         json;                                    /* 1: print JSON, not text */
    void        (*line)(void *cookie, const char *line); /* called with each line of the output */
    void       *cookie;
    /* [ncontrolnets] directories of control networks of the model. The summary of the model counts
     * tensors of control networks as tensors of the transformer. */
    const char *const *controlnets;
    int                ncontrolnets;
    int                reserved; /* must be 0 */
    const char        *redux;    /* directory of the Redux prior; NULL: none */
} xd_inspect_args;
#define xd_inspect_args_init(a) xd_inspect_args_init_size((a), sizeof *(a))
XD_API void      xd_inspect_args_init_size(xd_inspect_args *a, size_t size);
/* Prints the components of a model, and lists tensors that are missing or have a wrong shape. If
 * tensors are missing or have a wrong shape, xd_inspect prints all lines first and then returns an
 * error. */
XD_API xd_status xd_inspect(const xd_inspect_args *a, xd_err *e);

typedef struct xd_bench_turn { /* the timed runs of a stage of a benchmark */
    int    n; /* number of timed runs so far; if it is 0, the other fields are not valid */
    /* Time of the last timed run in seconds, and number of floating-point operations of this run in
     * units of 1e9. */
    double seconds, gflop;
    /* The processor's peak rate in 1e9 floating-point operations per second, for code without
     * memory accesses. The peak rate is measured before and after each timed run, and the higher
     * value is used. */
    double peak_gflops;
} xd_bench_turn;

typedef struct xd_bench_args { /* call xd_bench_args_init, then set fields */
    size_t      size;
    const char *config;         /* directory of the model whose time is measured */
    int         random_weights; /* 1: use pseudo-random weights, so that only configs are needed */
    /* 1: transformer blocks of the same kind share one set of random weights in memory. */
    int         share_layers;
    int64_t     width, height; /* size in pixels; 0: the model's default */
    int         num_frames;    /* number of frames of a video; 0: the model's default */
    const char *layers;        /* number of transformer blocks of each kind, as in xd_open_args */
    int         max_sequence_length; /* number of text tokens; 0: the pipeline's default */
    /* number of threads (0: all cores), and number of timed runs (0: at least 3 runs and
     * half a second) */
    int         threads, repeats;
    const char *bind; /* CPU binding, as in xd_open_args */
    /* compute type, weight types and device, as in xd_open_args */
    const char *dtype, *weights_dtype, *text_weights_dtype, *device;
    /* Stages whose time is measured: words of "text step block vae". The stage "step" includes the
     * transformer blocks of a step. parts NULL: all stages. */
    const char *parts;
    int         json;                                    /* 1: print JSON, not text */
    void        (*line)(void *cookie, const char *line); /* called with each line of the output */
    void       *cookie;
    /* Parallel plan whose time is measured, if the benchmark has several ranks. The times of the
     * plan for the stages "step" and (with use_parallel_vae) "vae" are compared with the times of
     * one rank. With several ranks, all ranks must call xd_bench, and rank 0 gets the output
     * lines. */
    xd_parallel parallel;
    int         log_level; /* log lines up to this level are passed to `log` */
    void        (*log)(void *cookie, int level, const char *line);
    /* If there is a single rank, `turn` is called before every timed run of a stage and after the
     * last run. If `turn` returns 0, no further runs of the stage are timed, regardless of
     * `repeats`. If `turn` is set, blocks are timed only if `parts` names them. If `turn` is set,
     * large GEMMs are not timed, so that the peak rates of GEMMs are 0. turn NULL: no function is
     * called before timed runs. */
    int         (*turn)(void *cookie, const xd_bench_turn *last);
    /* If there is a single rank, on_stage is called when weights begin to be created or loaded,
     * with their size in `bytes`. on_stage is also called when the timing of a stage begins, with
     * `bytes` 0. on_stage NULL: no function is called at the start of stages. */
    void        (*on_stage)(void *cookie, const char *what, double bytes);
    const char *gemm;      /* type of the inputs of GEMMs with fp8 weights, as in xd_request */
    const char *attention; /* type of the attention scores, as in xd_request */
} xd_bench_args;
#define xd_bench_args_init(a) xd_bench_args_init_size((a), sizeof *(a))
XD_API void      xd_bench_args_init_size(xd_bench_args *a, size_t size);
/* Measures the time of the stages of a model and prints seconds and rates: the output of `xdit
 * bench`. */
XD_API xd_status xd_bench(const xd_bench_args *a, xd_err *e);

typedef struct xd_probe_args { /* call xd_probe_args_init, then set fields */
    size_t      size;
    /* Threads per rank; 0: the cores of the host, divided by the number of ranks on the host. */
    int         threads;
    /* Output file, which can be used as xd_advise_args.cluster. output "-": the content is passed
     * to `line`, and no file is written. output NULL: this machine's default file below
     * $XDG_CACHE_HOME or ~/.cache. */
    const char *output;
    /* called with the name of the written file, or with the content if `output` is "-" */
    void        (*line)(void *cookie, const char *line);
    void       *cookie;
    int         log_level; /* log lines up to this level are passed to `log` */
    void        (*log)(void *cookie, int level, const char *line);
    const char *device; /* device to measure, as in xd_open_args; NULL: "cpu" */
} xd_probe_args;
#define xd_probe_args_init(a) xd_probe_args_init_size((a), sizeof *(a))
XD_API void      xd_probe_args_init_size(xd_probe_args *a, size_t size);
/* Measures the speed of the kernels and messages of all ranks that the launcher has started, which
 * takes a few seconds, and writes the rates to a file. All these ranks must call xd_probe; rank 0
 * writes the file and calls `line`. */
XD_API xd_status xd_probe(const xd_probe_args *a, xd_err *e);

/* ---- upscaling of images and videos ---------------------------------------------------------- */

typedef struct xd_upscale_args { /* call xd_upscale_args_init, then set fields */
    size_t      size;
    /* File of an upscaler, .safetensors: an RRDBNet (ESRGAN, Real-ESRGAN) or SRVGGNetCompact. */
    const char *model;
    const char *input;          /* an image, a video, or a directory of images */
    const char *output;         /* output file, with the names of xd_result_save */
    const char *device, *dtype; /* as in xd_open_args */
    /* Rows and columns of a tile, in pixels of the input. Tiles need less memory, and pixels do not
     * change. 0: no tiles. */
    int64_t     tile_size;
    double      fps;       /* frames per second of a video; 0: as in the input */
    int         quality;   /* quality of JPEG and WebP, 0 to 100; negative (the default): 95 */
    int         threads;   /* threads per rank; 0: the cores of the host, divided by its ranks */
    int         log_level; /* lines up to this level are passed to `log` */
    int         reserved;  /* must be 0 */
    void        (*log)(void *cookie, int level, const char *line);
    /* Called on rank 0 after each part of a frame, with the number of complete frames and the
     * fraction of the next frame that is complete. */
    void        (*on_progress)(void *cookie, int64_t frames, double part);
    void       *cookie;
} xd_upscale_args;
#define xd_upscale_args_init(a) xd_upscale_args_init_size((a), sizeof *(a))
XD_API void      xd_upscale_args_init_size(xd_upscale_args *a, size_t size);
/* Enlarges an image, or each frame of a video, with an upscaler, and writes the result. xd_upscale
 * is collective over the ranks that the launcher has started, which compute the rows of each frame
 * together; the pixels are those of one rank. */
XD_API xd_status xd_upscale(const xd_upscale_args *a, xd_err *e);

/* ---- conversion of models -------------------------------------------------------------------- */

typedef struct xd_convert_args { /* call xd_convert_args_init, then set fields */
    size_t                   size;
    const char              *model; /* model directory or name, as in xd_open_args */
    /* Output directory, created if it does not exist; the parent directory must exist. */
    const char              *output;
    /* Types to which the weight matrices of transformers and of text encoders are converted: "f32",
     * "bf16", "int8", "fp8", "int4". If a type is NULL, matrices keep the types of the source
     * files. The types have one exception: if weights_dtype is f32 or bf16 and text_weights_dtype
     * is NULL, the matrices of text encoders are converted to weights_dtype too. */
    const char              *weights_dtype, *text_weights_dtype;
    const xd_component_file *files;     /* [nfiles] files that replace the weights of components */
    const xd_lora     *loras, *loras_2; /* [nloras], [nloras_2] LoRA files, added to the weights */
    int                nfiles, nloras, nloras_2;
    int                ncomponents;
    const char *const *components;  /* [ncomponents] components to convert; 0: the complete model */
    int64_t            shard_bytes; /* maximum bytes of a weight file; 0: 5 GB */
    int                force;       /* 1: replace model files in a directory that is not empty */
    int                threads;     /* number of threads; 0: all cores */
    int                log_level;   /* log lines up to this level are passed to `log` */
    int   lora_partial; /* 1: skip LoRA tensors that do not match the model, as in xd_open_args */
    void  (*log)(void *cookie, int level, const char *line);
    /* on_progress is called repeatedly with the bytes written so far, the total bytes, and the name
     * of the current file. on_progress NULL: no function is called. */
    void  (*on_progress)(void *cookie, const char *file, double done, double total);
    void *cookie;
} xd_convert_args;
#define xd_convert_args_init(a) xd_convert_args_init_size((a), sizeof *(a))
XD_API void      xd_convert_args_init_size(xd_convert_args *a, size_t size);
/* Writes a model directory whose safetensors files have the tensor names of diffusers. Tensors are
 * converted one at a time, so that little memory is needed for models of any size. A file appears
 * in the output directory only when the file is complete. If a conversion was interrupted, a second
 * call with the same arguments continues at the point of interruption. */
XD_API xd_status xd_convert_model(const xd_convert_args *a, xd_err *e);

#ifdef __cplusplus
}
#endif

#endif
