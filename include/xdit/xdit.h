/* xdit.h - the public interface of libxdit: a prompt becomes an image, or a video
 *
 *     const char  *prompt = "a large red circle on a blue background";
 *     xd_err       e = { 0 };
 *     xd_open_args a;
 *     xd_request   r;
 *     xd_engine   *engine = NULL;
 *     xd_result   *image = NULL;
 *     xd_open_args_init(&a);
 *     a.model = "models/demo-pixart";
 *     xd_request_init(&r);
 *     r.prompts = &prompt;
 *     r.nprompts = 1;
 *     if (xd_open(&engine, &a, &e) != XD_OK || xd_generate(engine, &r, &image, &e) != XD_OK ||
 *         xd_result_save(image, 0, "out.png", &e) != XD_OK)
 *         fprintf(stderr, "%s\n", e.msg);
 *     xd_result_free(&image);
 *     xd_close(&engine);
 *
 * tools.h has the rest: plans and predictions, benchmarks, inspection, names of output files.
 *
 * Errors. A function that can fail returns an xd_status and fills the caller's xd_err (which may
 * be NULL) with one sentence. Every open has a matching close or free, which accepts NULL and
 * pointers to NULL.
 *
 * Records and versions. A record that the program allocates begins with its size. Its init
 * function sets the size that the program was compiled with, and all defaults; the program then
 * sets what differs. Later versions add fields at the end only. The library reads as many bytes as
 * the program has and takes the defaults for the rest, so a program runs with every later library.
 * With an earlier library it runs too, unless it sets a field that this library does not know,
 * which is refused. Records without a size (xd_err, xd_parallel, xd_lora, xd_component_file,
 * xd_texts, xd_option) never change their size. Records that the library passes by pointer
 * (xd_progress, results of xd_result_image) may have more fields at the end than the program knows.
 *
 * Lifetimes. The library keeps no pointer that a program passes, except `log` and `cookie` of
 * xd_open_args, which it uses until xd_close returns: strings, arrays and records may be freed
 * when the function has returned. A result does not need its engine: it can be used after
 * xd_close. Everything that a function returns for a result (pixels, texts) belongs to the result
 * and is valid until xd_result_free. What a callback gets is valid during the call.
 *
 * Per process and per engine. An engine owns its model, its weights, its plan, its log and its
 * trace; several engines can be open in one process. These are shared by all of them:
 *   - threads: one pool computes for all engines; the engine that was opened last sets its size
 *   - CPU affinity: `bind` of xd_open_args binds the calling thread, and stays
 *   - MPI, if the library starts it: with the first engine of several ranks. It ends with the last
 *     one, and cannot start again in the process. With `mpi_comm` the program owns MPI
 *   - output files being written, which xd_output_sweep (tools.h) removes
 *   - environment variables, which the library reads (XDIT_*, HF_*, those of MPI launchers) and
 *     never sets
 * The library installs no signal handler, prints nothing and does not end the process, except
 * where ranks can no longer notify each other of a failure: MPI then ends the job, and the log has
 * the reason.
 *
 * Threads of the program. One thread at a time uses an engine, and one thread at a time is inside
 * the library; the thread that opened an engine of several ranks makes all its calls. xd_cancel may
 * be called from any thread and from a signal handler. Callbacks run on the thread that called the
 * library. */
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

/* ---- version ---------------------------------------------------------------------------- */

/* The version of this header. meson.build reads these three lines. */
#define XDIT_VERSION_MAJOR 0
#define XDIT_VERSION_MINOR 1
#define XDIT_VERSION_PATCH 0
#define XDIT_VERSION_OF(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define XDIT_VERSION_NUMBER \
    XDIT_VERSION_OF(XDIT_VERSION_MAJOR, XDIT_VERSION_MINOR, XDIT_VERSION_PATCH)

/* The version of the library that runs: "0.1.0", and as XDIT_VERSION_NUMBER for comparisons. */
XD_API const char *xd_version(void);
XD_API int         xd_version_number(void);

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

typedef struct xd_err {         /* start with {0}; the first failure stays. Fixed size         */
    xd_status code;
    int       rank;             /* failed rank, once the ranks have agreed; -1 before        */
    char      msg[4096];        /* one sentence: what, where, with which numbers             */
} xd_err;

enum { XD_LOG_ERROR, XD_LOG_WARN, XD_LOG_INFO, XD_LOG_DEBUG };

/* ---- an engine: a model, loaded and ready ---------------------------------------------- */

typedef struct xd_engine xd_engine;

/* How the model is distributed over ranks. A degree of 0 means 1. Names are those of xDiT.
 * Start with {0}. The size is fixed: later options take the place of reserved fields. */
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
    int reserved[8];            /* future options: 0                                         */
    const char *reserved_text[3];       /* NULL                                              */
} xd_parallel;

typedef struct xd_lora {        /* a low-rank difference that is added to the weights           */
    const char *path;           /* .safetensors file in the layout of diffusers, PEFT or Kohya  */
    double      scale;          /* usually 1; 0 leaves the model unchanged                      */
} xd_lora;

/* A safetensors or GGUF file with the weights of one component. It replaces the weights in the
 * component's folder of the model, which may then hold the config alone. Tensors in the layouts of
 * diffusers, of the original publications, of ComfyUI and of llama.cpp are renamed while they are
 * read. */
typedef struct xd_component_file {
    const char *component;      /* "transformer", "transformer_2" of a model with two, "vae", or
                                   the short name of a text encoder, as in `xdit inspect` of a
                                   model */
    const char *path;
} xd_component_file;

struct xd_request;

typedef struct xd_open_args {   /* call xd_open_args_init, then set fields                    */
    size_t      size;           /* sizeof(xd_open_args) of the program                       */
    const char *model;          /* directory with model_index.json, or "org/name" in the local
                                   Hugging Face cache */
    const char *dtype;          /* "f32", "bf16", on a GPU "f16"; NULL: the best of the machine */
    /* Storage type of the matrices of the transformer's blocks (attention, feed-forward). NULL:
     * the compute type. "int8": a quarter of the memory of f32 and integer GEMMs, which are
     * faster where the CPU supports them; the input of a GEMM is quantized as well. "fp8"
     * (e4m3): the memory of int8, GEMMs in the compute type. "int4", on the CPU: little more than
     * half of int8's memory, in groups of 32 with a scale; inputs are rotated, and GEMMs are in the
     * compute type. All cost accuracy (doc/weights.md). "auto": int8 or fp8 where the files have
     * it, which loses nothing. "f32" and
     * "bf16" mean what they mean in dtype. text_weights_dtype has the same values and applies to
     * the text encoders that are language models. */
    const char *weights_dtype, *text_weights_dtype;
    /* "cpu", "cuda": a GPU a rank, "cuda:1"; "auto": a GPU a rank where each rank of the host gets
     * one that can be used, else the CPU; NULL: the CPU. */
    const char *device;
    int         threads;        /* per rank; 0: this rank's share of the cores of its host   */
    int         once;           /* nonzero: the engine serves one request. One rank then frees
                                   the transformer before it decodes the only image or video; a
                                   second request loads it again */
    /* "auto": if several ranks share a host and nothing has bound them yet, each rank is bound
     * to its share of the cores and to nearby memory. This sets the affinity of the calling
     * thread; threads and processes that it starts inherit it. "cores": a single rank is bound
     * as well, to as many cores as it has threads. "none", NULL: no binding. The binding stays
     * when the engine is closed. */
    const char *bind;
    xd_parallel parallel;
    /* NULL: the ranks are the processes that an MPI launcher has started, and the library starts
     * and ends MPI, unless the program does. Otherwise a pointer to an MPI_Comm of a program that
     * has initialised MPI: the ranks are those of this communicator. All messages go over
     * duplicates of it, which xd_close frees; the library neither initialises nor finalises MPI,
     * and does not change error handlers of the program. Give `threads`: other processes of the
     * program may need cores, too. */
    const void *mpi_comm;
    const char *without;        /* a text encoder to run without, by its short name, where the
                                   model can; NULL: none */
    int         keep;           /* nonzero: keep text encoders loaded between requests, and up
                                   to 256 MiB (a sixteenth of the free memory of the host at
                                   most) of embeddings of earlier prompts, so that a prompt that
                                   is repeated is not encoded again */
    int         log_level;      /* lines up to this level are passed to `log`                */
    void      (*log)(void *cookie, int level, const char *line);
    void       *cookie;
    const char *trace;          /* NULL, or a file on rank 0. Each request writes it at its end,
                                   also if it fails after the first check: a timeline of all
                                   ranks as a Chrome trace (JSON) for chrome://tracing or
                                   Perfetto. The trace of the first request includes the opening */
    const xd_component_file *files;     /* [nfiles]                                           */
    const xd_lora *loras;       /* [nloras], added in this order                                */
    int         nfiles, nloras;
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
    /* Weights that memory does not hold. "auto": blocks of the transformer and of text encoders, as
     * many as have to be, wait in pinned host memory, or for the CPU in their files, and are
     * fetched while the blocks before them compute. "none": the request is refused. "stream": all
     * blocks wait there, which takes the least memory. NULL: "auto" on a GPU, "none" on the CPU.
     * Results are the same. */
    const char *offload;
    /* [nloras_2], added to the second transformer of a model with two: that of the last steps, with
     * little noise. `loras` are added to the first one, and to text encoders. */
    const xd_lora *loras_2;
    int64_t     nloras_2;
    /* A directory with a tiny autoencoder of the model's latents (AutoencoderTiny of diffusers), or
     * org/name in the local Hugging Face cache: previews of images are decoded by it. NULL: colours
     * of latents. */
    const char *preview_decoder;
    /* Bytes of memory that weights, activations and kernels may take: of all ranks of a host, and
     * of all engines of the process, together. On a device with a memory of its own it is for that
     * memory. What needs more is refused. 0: all memory that is free. */
    int64_t     memory;
    /* "auto": where a request does not fit, blocks are streamed as by `offload` "auto", or else the
     * types of weights that are not given here become int8 (fp8 where files have it) or, on the
     * CPU, int4: the first of these that fits. A line of the log says what was taken; later
     * requests have it, too. "none", NULL: it is refused. */
    const char *fit;
    /* 1: tensors of LoRA files that do not fit the model are left out, and a warning lists them
     * ("I2V" files on a model of text alone). 0: such a file is refused. */
    int64_t     lora_partial;
    /* 1: several ranks read every byte of all weight files at their start and compare them; one
     * that differs is named. 0: they compare configs, headers and 64 pages of each file, which
     * takes no time. */
    int64_t     verify_weights;
} xd_open_args;

/* All defaults are 0 or NULL, except `size`. */
#define xd_open_args_init(a) xd_open_args_init_size((a), sizeof *(a))
XD_API void      xd_open_args_init_size(xd_open_args *a, size_t size);

/* Reads the configs and checks the tensors in the files. The first request loads the weights. */
XD_API xd_status xd_open(xd_engine **g, const xd_open_args *a, xd_err *e);
XD_API void      xd_close(xd_engine **g);

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

/* Makes the running request end soon with XD_ECANCELLED. Callable from any thread;
 * async-signal-safe. */
XD_API void xd_cancel(xd_engine *g);
/* As xd_cancel, and `reason` is the message with which the request fails on all ranks; the record
 * has the number of the rank that gave it. For a program whose callback fails on one rank. The
 * first call counts. Callable from any thread, from no signal handler. */
XD_API void xd_cancel_because(xd_engine *g, const char *reason);

/* ---- images and requests --------------------------------------------------------------------- */

struct xd_result;

/* Pixels, 8 bits per channel: rows from the top, frames one after the other. What a result has can
 * be the image of the next request. */
typedef struct xd_image {       /* call xd_image_init, then set fields                        */
    size_t   size;              /* sizeof(xd_image) of the program                           */
    int64_t  frames, height, width;     /* frames: 1 by default                              */
    int64_t  stride;            /* bytes from one row to the next; 0: width x channels       */
    int      channels;          /* 3: RGB, the default and that of results. An image of a request
                                   may also have 1 (grey) or 4 (RGBA, alpha is ignored) */
    int      reserved;          /* 0                                                         */
    const uint8_t *data;
    double   fps;               /* frames per second; 0: a single image                      */
} xd_image;

#define xd_image_init(i) xd_image_init_size((i), sizeof *(i))
XD_API void xd_image_init_size(xd_image *i, size_t size);

typedef struct xd_progress {    /* a denoising step that has ended                           */
    int    step, steps;         /* 1 .. steps                                                */
    int    image, images;       /* 1 .. images of the request                                */
    double step_s;              /* seconds of this step                                      */
    double since_start_s;       /* seconds since the start of the request                    */
    double timestep;            /* of the scheduler, for which this step was computed        */
} xd_progress;

typedef struct xd_texts {       /* a list; n 0: none                                         */
    const char *const *v;       /* entries may be NULL: ""                                   */
    int64_t            n;
} xd_texts;

typedef struct xd_request {     /* call xd_request_init, then set fields                      */
    size_t      size;           /* sizeof(xd_request) of the program                         */
    const char *const *prompts;
    int         nprompts;
    const char *negative_prompt;        /* NULL: ""                                          */
    int64_t     width, height;          /* pixels; 0: by the image, else the model's default */
    int         num_frames;             /* frames of a video; 0: the model's default          */
    double      fps;                    /* frames per second in a video file; 0: the model's   */
    int         num_inference_steps;    /* 0: the pipeline's default                         */
    double      guidance_scale;         /* negative: the pipeline's default                  */
    double      true_cfg_scale;         /* models whose guidance_scale does not guide: two passes a
                                           step if above 1 and there is a negative prompt; 0: the
                                           pipeline's default, mostly none                  */
    double      guidance_rescale;       /* weight of the guided prediction rescaled to the
                                           standard deviation of the prompt's, for models that
                                           have it; 0: none */
    int         use_dynamic_cfg;        /* guidance grows with the steps                      */
    /* Start image (PNG, JPEG, WebP, GIF, PPM), upright by its Exif orientation, resized; of a model
     * that edits images, the one that it reads. NULL: none. */
    const char *image;
    /* The start image as pixels, in place of `image`. Rank 0 reads them during the call; the other
     * ranks pass any image. NULL: none. */
    const xd_image *image_pixels;
    double      strength;       /* share of the steps that run on the start image; 0: usual      */
    int64_t     seed;                   /* 64 bits; above 2^63 - 1 stored as seed - 2^64     */
    int         random_seed;            /* ignore `seed`, draw one for all ranks                  */
    int         num_images_per_prompt;
    int         max_sequence_length;    /* text tokens; 0: the pipeline's default            */
    const char *scheduler;              /* NULL: the model's; see xd_request_options          */
    const char *rng;                    /* "philox" or "torch"                               */
    int         enable_tiling, no_resolution_binning;
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
     * layout [C,H,W], of a video [T,C,H,W]), "condition" (what the transformer reads beside the
     * latents of a video that begins with an image), "image" ([H,W,3], of a video [T,H,W,3], in
     * [0,1]). `step` is the step for "latents", the number of the text for text tensors, and 0
     * otherwise. */
    void      (*on_tensor)(void *cookie, const char *name, int step, int nd, const int64_t *d,
                           const float *data);
    void       *cookie;
    double      cfg_normalization;      /* most length of the guided prediction, times that of the
                                           prompt's, for models that have it; 0: any length */
    double      cfg_truncation;         /* share of the way from noise to image that is guided, for
                                           models that have it; 1: all of it */
    /* Pixels of the image, for models that choose its size by its ratio, or of the images that are
     * read, where the ratio gives their size; 0: the model's. */
    int64_t     max_area;
    /* Further images behind `image`, for models that read several: files, or pixels where an entry
     * of more_pixels is not NULL. Either list may be NULL. */
    const char *const     *more_images;
    const xd_image *const *more_pixels;
    int64_t     nmore_images;
    double      flow_shift;             /* shift of the scheduler's levels, for models of rectified
                                           flow, also in place of that by size; 0: the file's */
    /* Keys of scheduler_config.json, in place of those of the file: 0, NULL, and of eta a negative
     * number, leave the file's. Of the first five 1 is true and -1 false. use_flow_sigmas
     * also sets prediction_type to flow_prediction. */
    int         use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas, use_flow_sigmas;
    int         stochastic_sampling, solver_order;
    double      eta;                    /* of DDIM and TCD, from 0 to 1                      */
    const char *algorithm_type, *solver_type, *timestep_spacing, *final_sigmas_type;
    /* The levels or the timesteps of all steps, "1,0.75,0.5", for schedulers that take a list. */
    const char *sigmas, *timesteps;
    /* What to inpaint of `image`: a file, resized to the image's size, or pixels as those of
     * image_pixels. Where it is bright (128 and above of 255) the image is generated, elsewhere it
     * is kept. */
    const char     *mask_image;
    const xd_image *mask_pixels;
    /* Generates only the part of the image that the mask shows and so many pixels around it, at the
     * size asked for, and lays the image over it as far as the mask is dark: the result has the
     * image's own size. Negative: the whole image is generated. */
    int64_t         padding_mask_crop;
    /* The image that a video ends with, for models that have it, as `image` and image_pixels. */
    const char     *last_image;
    const xd_image *last_pixels;
    /* Of a model with two transformers: the guidance scale of the steps of the second one
     * (negative: guidance_scale), and the share of the training times below which it is used
     * (negative: the model's). */
    double          guidance_scale_2, boundary_ratio;
    /* A key of scheduler_config.json, as those above: the level to which the last one is moved, 0:
     * none is. Negative: the file's. */
    double          shift_terminal;
    /* Length of a video in place of num_frames: the nearest number of frames that the model makes.
     * 0: num_frames counts. */
    double          seconds;
    /* Of what xd_result_save writes as JPEG or WebP, from 0 to 100. Negative: 95. */
    int64_t         output_quality;
    /* Previews: images of what the latents of a step are going to be, of about its colours and of
     * at most 512 pixels a side; of a video its first frame. They change nothing in the result. So
     * many of every image, spread over its steps, and one behind each preview_every-th step; 0:
     * none. Equal on all ranks. */
    int             previews, preview_every;
    /* Called behind on_step on rank 0, with data parallelism also on the first rank of every other
     * group, for the image that this group makes. */
    void          (*on_preview)(void *cookie, const xd_image *image, const xd_progress *p);
    /* Called on every rank between two steps, between images, and, where text encoders are kept,
     * between texts; while an image or a video is encoded or decoded in tiles or chunks of frames,
     * between these. Equally often on all ranks: the program may generate with other engines
     * meanwhile, also with one that was opened beside this one (xd_open_beside), and the request
     * goes on behind that. A failure ends the request. Not called with data parallelism, nor with
     * idle ranks. The result's seconds do not count it. */
    xd_status     (*on_turn)(void *cookie, xd_err *e);
    /* Scores of the transformer's attention: NULL or "auto", in the compute type; "int8", of eight
     * bits, which is faster and a little less exact, where the device has them. */
    const char     *attention;
    /* A step cache, which leaves out blocks of a step and lets their effect in an earlier step
     * stand for it: "fbcache:0.12", "dbcache:Fn=8,threshold=0.08", "teacache:0.2", "taylorseer".
     * The image is another one. NULL, "none": every block of every step is computed. */
    const char     *cache;
    /* "T,H,W": image tokens see those of a box of so many frames, rows and columns of tokens around
     * them, and all that are not of the image; 0: of the whole axis. NULL: they see all. */
    const char     *attention_window;
    /* Nonzero: parameters name the model and files without their folders, as replies to others
     * should; a model of the Hugging Face cache is "org/name". */
    int64_t         omit_folders;
    /* Steps from one computation of the reference images' keys and values to the next: the steps
     * between use the stored ones, and compute no tokens of reference images. 1: every step
     * computes them; 0: the first alone. The image is another one, but of models that are made for
     * it. */
    int64_t         reference_interval;
    /* Called behind each step, after on_tensor and before on_step, with the latents, as on_tensor
     * has them. It may change them and then returns 1: what follows goes on from there. 0: they are
     * as they were. Of ranks that make one image together all call it, and what the first of them
     * leaves counts. Set on all ranks or on none. */
    int           (*on_latents)(void *cookie, const xd_progress *p, int nd, const int64_t *d,
                                float *data);
    /* Attentions that stand for those of later steps or of the other pass, or are of windows
     * (DiTFastAttn): "share,full", ways that the steps behind the first one take in turn, or a file
     * "*.json" of xdit calibrate or xDiT, with a way for each block and step. The ways are full,
     * full+cfg, window, window+cfg and share. NULL: each step computes all. Another image. */
    const char     *fast_attn;
    /* Noise in place of that of the seed: normal random numbers of every image in order, each
     * [frames,channels,rows,columns] as on_tensor has "noise", and their count. Rank 0 reads them
     * during the call; the other ranks pass any numbers. NULL: the seed's. */
    const float    *noise;
    int64_t         noise_numbers;
    /* GEMMs of the transformer's layers with fp8 weights: NULL or "auto", with inputs in the
     * compute type; "fp8", with inputs of fp8, which is faster and less exact, where the device
     * multiplies such. */
    const char     *gemm;
    /* Texts for the second and the third text encoder in place of the prompt, and of the negative
     * prompt, the same for all prompts; which encoder that is, is the pipeline's. NULL, "": the
     * prompt's. */
    const char     *prompt_2, *prompt_3, *negative_prompt_2, *negative_prompt_3;
    /* 0: a pipeline that cleans captions as those of the web (addresses, tags, names of files)
     * converts them to small letters only. */
    int             clean_caption;
    /* Nonzero: a model that resizes a reference image to one of its trained sizes reads it in its
     * own size. */
    int             no_auto_resize;
    /* Skip layer guidance, for models that have it: layers "7,8,9" that a third pass with the
     * prompt leaves out, in the steps i of n with start < i / n < stop; the guided prediction moves
     * away from that pass by `scale` times its difference from the prompt's. NULL: none. */
    const char     *skip_guidance_layers;
    double          skip_layer_guidance_scale, skip_layer_guidance_start, skip_layer_guidance_stop;
    /* Lists in place of negative_prompt, prompt_2 and so on: text i is that of prompt i, or one
     * text is that of all prompts. */
    xd_texts    negative_prompts, prompts_2, prompts_3, negative_prompts_2, negative_prompts_3;
} xd_request;

#define xd_request_init(r) xd_request_init_size((r), sizeof *(r))
XD_API void xd_request_init_size(xd_request *r, size_t size);

/* ---- the result ------------------------------------------------------------------------- */

typedef struct xd_result xd_result;     /* the images of one request                         */

XD_API xd_status xd_generate(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e);
XD_API int       xd_result_count(const xd_result *r);
/* The pixels of image i, RGB without gaps between rows; NULL: latents only. */
XD_API const xd_image *xd_result_image(const xd_result *r, int i);
/* Representation as in xd_request. Texts and JSON print it as 0 .. 2^64 - 1, as torch does. */
XD_API int64_t   xd_result_seed(const xd_result *r, int i);
/* Parameters of image i: as one JSON object, and in the text format of A1111. */
XD_API const char *xd_result_json(const xd_result *r, int i);
XD_API const char *xd_result_parameters(const xd_result *r, int i);
/* Seconds of the request: "text", "load", "denoise", "decode", "total", "first_step"; -1:
 * unknown. */
XD_API double    xd_result_seconds(const xd_result *r, const char *part);
/* Writes image i. The extension selects the format: .png .jpg .jpeg .webp .ppm, .safetensors
 * (latents). For a video: .mp4 .mov .mkv .webm .gif .rgb (bytes of the frames, without sizes),
 * or an image format with the frame number as %d (%04d), from 1, for one file a frame; without a
 * %d, "_%04d" is inserted before the extension. Writing is atomic: a file is complete or does
 * not exist. */
XD_API xd_status xd_result_save(const xd_result *r, int i, const char *path, xd_err *e);
XD_API void      xd_result_free(xd_result **r);

#ifdef __cplusplus
}
#endif

#endif
