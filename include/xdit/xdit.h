/* xdit.h - the public interface of libxdit: generates an image or a video from a prompt
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
 * tools.h declares plans and predictions, benchmarks, inspection and names of output files;
 * module.h a transformer or an autoencoder without a pipeline.
 *
 * Errors. A function that can fail returns an xd_status and fills the caller's xd_err (which may
 * be NULL) with one sentence. Every open has a matching close or free, which accepts NULL and
 * pointers to NULL.
 *
 * Records and versions. A record that the program allocates begins with its size. Its init
 * function stores the size that the program was compiled with and sets all defaults; the program
 * then sets the fields that differ. Later versions add fields at the end only. The library reads
 * `size` bytes and uses the defaults for later fields, so a program runs with every later library.
 * It also runs with an earlier library, which refuses the record only if a field that it does not
 * know is set. Records without a size (xd_err, xd_parallel, xd_lora, xd_component_file,
 * xd_texts, xd_option) never change their size. Records that the library passes by pointer
 * (xd_progress, results of xd_result_image) may have more fields at the end than the program knows.
 *
 * Lifetimes. The library keeps no pointer that a program passes, except `log` and `cookie` of
 * xd_open_args, which it uses until xd_close returns: the program may free strings, arrays and
 * records when the function has returned. A result does not need its engine: it can be used after
 * xd_close. Pixels and texts that a function returns for a result belong to the result and are
 * valid until xd_result_free. Arguments of a callback are valid during the call.
 *
 * Per process and per engine. An engine owns its model, its weights, its plan, its log and its
 * trace; several engines can be open in one process. All engines of a process share:
 *   - threads: one pool computes for all engines; the engine that was opened last sets its size
 *   - CPU affinity: `bind` of xd_open_args binds the calling thread until the process ends
 *   - MPI, if the library initializes it: with the first engine of several ranks. The library
 *     finalizes MPI when the last such engine closes; the process cannot initialize it again. With
 *     `mpi_comm` the program owns MPI
 *   - output files being written, which xd_output_sweep (tools.h) removes
 *   - environment variables, which the library reads (XDIT_*, HF_*, those of MPI launchers) and
 *     never sets
 * The library installs no signal handler, prints nothing and does not exit, with one exception: if
 * ranks can no longer notify each other of a failure, MPI aborts the job, and the log has the
 * reason.
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
    XD_ENOMEM,                  /* not enough memory, as measured or predicted                */
    XD_EINVAL,                  /* the request is wrong                                      */
    XD_EIO,                     /* a file or directory cannot be read or written             */
    XD_EFORMAT,                 /* the content of a file is wrong                            */
    XD_EUNSUPPORTED,            /* valid, but not supported here                             */
    XD_ECOMM,                   /* messages between ranks failed                             */
    XD_EDEVICE,                 /* a device failed                                           */
    XD_ECANCELLED               /* xd_cancel was called                                      */
} xd_status;

typedef struct xd_err {         /* start with {0}; the first failure is kept. Fixed size       */
    xd_status code;
    int       rank;             /* failed rank, once the ranks have agreed; -1 before        */
    char      msg[4096];        /* one sentence: the failure, the file or field, the numbers   */
} xd_err;

/* Levels of log lines. Each level includes those before it. */
enum { XD_LOG_ERROR, XD_LOG_WARN, XD_LOG_INFO, XD_LOG_DEBUG };

/* ---- an engine: a model, loaded and ready ---------------------------------------------- */

typedef struct xd_engine xd_engine;

/* A plan: how the model is distributed over ranks. A degree of 0 means 1. Names are those of xDiT.
 * Start with {0}. The size is fixed: later options replace reserved fields. */
typedef struct xd_parallel {
    int tensor_parallel_degree, ulysses_degree, ring_degree, pipefusion_parallel_degree;
    int data_parallel_degree, use_cfg_parallel;
    int num_pipeline_patch;     /* PipeFusion patches; 0: as many as stages                   */
    int warmup_steps;           /* exact steps before stale keys and values are used         */
    int use_displaced_patches;  /* the ring axis uses keys and values of the previous step    */
    int use_parallel_vae;
    const char *pipefusion_text;        /* "first": text tokens pass the stages once a step, with
                                           patch 1; "every": with every patch (xDiT); NULL:
                                           "first" */
    const char *attn_layer_num_for_pp;  /* "10,9,9": blocks of each stage; NULL: balanced     */
    int text_tensor_parallel_degree;    /* the first N of these ranks share the text encoders  */
    int patches_without_stages; /* for measurements: use patches even with a single stage      */
    int reserved[8];            /* future options: 0                                         */
    const char *reserved_text[3];       /* NULL                                              */
} xd_parallel;

typedef struct xd_lora {        /* a LoRA: a low-rank matrix product added to the weights       */
    const char *path;           /* .safetensors file in the layout of diffusers, PEFT or Kohya  */
    double      scale;          /* usually 1; 0 leaves the model unchanged                      */
} xd_lora;

/* A safetensors or GGUF file with the weights of one component. It replaces the weights in the
 * component's folder of the model, which may then hold the config alone. Tensors in the layouts of
 * diffusers, of the original publications, of ComfyUI and of llama.cpp are renamed while they are
 * read. */
typedef struct xd_component_file {
    const char *component;      /* "transformer", "transformer_2" for the second one, "vae", or
                                   the short name of a text encoder, as `xdit inspect` prints */
    const char *path;
} xd_component_file;

struct xd_request;

typedef struct xd_open_args {   /* call xd_open_args_init, then set fields                    */
    size_t      size;           /* sizeof(xd_open_args) of the program                       */
    const char *model;          /* directory with model_index.json, or "org/name" in the local
                                   Hugging Face cache */
    /* Compute type: "f32", "bf16", on a GPU also "f16"; NULL: the fastest of this machine. */
    const char *dtype;
    /* Storage type of the matrices of the transformer's blocks (attention, feed-forward). NULL:
     * the compute type. "int8": a quarter of the memory of f32 and integer GEMMs, which are
     * faster where the CPU supports them; the input of a GEMM is quantized as well. "fp8"
     * (e4m3): the memory of int8, GEMMs in the compute type. "int4", on the CPU: slightly more than
     * half of int8's memory, in groups of 32 elements with a scale; inputs are rotated, and GEMMs
     * are in the compute type. All cost accuracy (doc/weights.md). "auto": int8 or fp8 where the
     * files store it, without further loss. "f32" and "bf16": as in dtype. text_weights_dtype has
     * the same values and applies to the text encoders that are language models. */
    const char *weights_dtype, *text_weights_dtype;
    /* "cpu"; "cuda": one GPU per rank; "cuda:1": this GPU; "auto": one GPU per rank if the host has
     * a usable GPU for each of its ranks, else the CPU; NULL: "cpu". */
    const char *device;
    int         threads;        /* per rank; 0: this rank's share of the cores of its host   */
    int         once;           /* nonzero: the engine serves one request. With one rank it frees
                                   the transformer before it decodes the only image or video; a
                                   second request loads it again */
    /* CPU binding. "auto": if several ranks share a host and the launcher has not bound them, each
     * rank is bound to its share of the cores and to their memory node. This sets the affinity of
     * the calling thread; threads and processes that it starts inherit it. "cores": a single rank
     * is bound as well, to as many cores as it has threads. "none", NULL: no binding. The binding
     * remains when the engine is closed. */
    const char *bind;
    xd_parallel parallel;       /* the plan; see `plan`                                      */
    /* NULL: the ranks are the processes that an MPI launcher has started, and the library
     * initializes and finalizes MPI, unless the program does. Otherwise a pointer to an MPI_Comm of
     * a program that has initialized MPI: the ranks are those of this communicator. All messages
     * use duplicates of it, which xd_close frees; the library neither initializes nor finalizes
     * MPI, and does not change error handlers of the program. Set `threads` too if other processes
     * of the program need cores. */
    const void *mpi_comm;
    const char *without;        /* short name of a text encoder that is not loaded, for models
                                   that support this; NULL: load all */
    int         keep;           /* nonzero: keep text encoders loaded between requests, and a
                                   cache of prompt embeddings of up to 256 MiB (at most a
                                   sixteenth of the free memory of the host), so that a repeated
                                   prompt is not encoded again */
    int         log_level;      /* lines up to this level are passed to `log`                */
    void      (*log)(void *cookie, int level, const char *line);
    void       *cookie;
    const char *trace;          /* output file, on rank 0: a timeline of all ranks as a Chrome
                                   trace (JSON) for chrome://tracing or Perfetto. Each request
                                   replaces it at its end, even if it fails after validation. The
                                   first one includes xd_open. NULL: none */
    const xd_component_file *files;     /* [nfiles]                                           */
    const xd_lora *loras;       /* [nloras], added in this order                                */
    int         nfiles, nloras;
    /* Chooses the degrees that are 0 in `parallel` if there are more ranks than the other
     * degrees use. NULL: they are 1, and the other ranks are idle. "auto": the plan with the lowest
     * predicted time among those that fit into memory and generate the image of one rank.
     * "auto-stale": includes plans with PipeFusion, which uses keys and values of the previous
     * step. Rank 0 chooses the plan and logs it at XD_LOG_INFO. */
    const char *plan;
    const struct xd_request *plan_for;  /* the request to predict; NULL: the model's defaults */
    const char *cluster;        /* "8xH100" or a file of `xdit probe`; NULL: this machine,
                                   measured by a probe or estimated */
    const char *balance;        /* "measured": tokens, heads, blocks and image rows of a rank
                                   follow its speed in a short test; "even", NULL: equal shares */
    const char *layers;         /* for measurements only: number of blocks of each kind, "2,4"
                                   (text encoders use the first number); NULL: as in the configs */
    /* Weights that exceed the memory. "auto": as many blocks of the transformer and of text
     * encoders as necessary remain in pinned host memory (on the CPU: in their files) and are
     * fetched while the blocks before them compute. "stream": all blocks remain there, for the
     * lowest memory use. "none": such a request is refused. NULL: "auto" on a GPU, "none" on the
     * CPU. Results are the same. */
    const char *offload;
    /* [nloras_2], added to the second transformer of a model with two, which computes the last
     * (low-noise) steps. `loras` are added to the first one and to text encoders. */
    const xd_lora *loras_2;
    int64_t     nloras_2;
    /* Tiny autoencoder (AutoencoderTiny of diffusers) that decodes previews: its directory, or
     * "org/name" in the local Hugging Face cache. NULL: previews are a linear map from latents to
     * colours. */
    const char *preview_decoder;
    /* Limit in bytes for weights, activations and kernels, of all ranks of a host and all engines
     * of the process together. With device "cuda": the limit for the memory of a GPU. A request
     * that needs more is refused. 0: all free memory. */
    int64_t     memory;
    /* If a request does not fit into memory: "auto": uses the first of these that fits: `offload`
     * "auto"; for weight types that are not set here, int8 (fp8 if the files store it); int4, on
     * the CPU. The change is logged and applies to later requests too. "none", NULL: the request is
     * refused. */
    const char *fit;
    /* 1: tensors of LoRA files that do not match the model are skipped, and a warning lists them
     * (image-to-video files on a text-to-video model). 0: such a file is refused. */
    int64_t     lora_partial;
    /* 1: ranks compare every byte of all weight files in xd_open; the error names a file that
     * differs. 0: they compare configs, headers and 64 pages of each file, in negligible time. */
    int64_t     verify_weights;
} xd_open_args;

/* All defaults are 0 or NULL, except `size`. */
#define xd_open_args_init(a) xd_open_args_init_size((a), sizeof *(a))
XD_API void      xd_open_args_init_size(xd_open_args *a, size_t size);

/* Opens a model: reads the configs and checks the tensors in the files. The first request loads the
 * weights. *g: closed by xd_close; NULL after a failure. Collective. */
XD_API xd_status xd_open(xd_engine **g, const xd_open_args *a, xd_err *e);
XD_API void      xd_close(xd_engine **g);

/* xd_rank: rank of this process. xd_ranks: number of ranks that compute a request; ranks from this
 * number on are idle. Calls with an engine are collective over all ranks. Rank 0 gets results and
 * callbacks.
 *
 * If one rank fails, all ranks return its error, with its number in xd_err.rank, and the engine
 * can be used again. XD_ECOMM is the exception: messages failed, or a rank failed where it could
 * not notify the others, which may still wait for it. Then neither use nor close the engine, and
 * exit; the MPI launcher kills the other processes. */
XD_API int       xd_rank(const xd_engine *g);
XD_API int       xd_ranks(const xd_engine *g);

/* Cancels the running request, which soon fails with XD_ECANCELLED. Callable from any thread;
 * async-signal-safe. */
XD_API void xd_cancel(xd_engine *g);
/* As xd_cancel; the request fails on all ranks with the message `reason` (copied) and the calling
 * rank in xd_err.rank. For a program whose callback fails on one rank. The first call counts.
 * Callable from any thread, but not from a signal handler. */
XD_API void xd_cancel_because(xd_engine *g, const char *reason);

/* ---- images and requests --------------------------------------------------------------------- */

struct xd_result;

/* Pixels, 8 bits per channel: rows from the top, frames one after the other. An image of a result
 * can be the input image of the next request. */
typedef struct xd_image {       /* call xd_image_init, then set fields                        */
    size_t   size;              /* sizeof(xd_image) of the program                           */
    int64_t  frames, height, width;     /* frames: 1 by default                              */
    int64_t  stride;            /* bytes from one row to the next; 0: width x channels       */
    int      channels;          /* 3: RGB (default; all results). Input images may also have 1
                                   (grey) or 4 (RGBA, alpha is ignored) */
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
    double timestep;            /* of this step, in the scheduler's units                    */
} xd_progress;

typedef struct xd_texts {       /* a list of texts; n 0: none                                */
    const char *const *v;       /* [n]; a NULL entry is ""                                   */
    int64_t            n;
} xd_texts;

typedef struct xd_request {     /* call xd_request_init, then set fields                      */
    size_t      size;           /* sizeof(xd_request) of the program                         */
    const char *const *prompts;         /* [nprompts], UTF-8                                 */
    int         nprompts;
    const char *negative_prompt;        /* NULL: ""                                          */
    int64_t     width, height;          /* pixels; 0: as the image, else the model's default */
    int         num_frames;             /* frames of a video; 0: the model's default          */
    double      fps;                    /* frames per second in a video file; 0: the model's   */
    int         num_inference_steps;    /* 0: the pipeline's default                         */
    double      guidance_scale;         /* negative: the pipeline's default                  */
    double      true_cfg_scale;         /* classifier-free guidance scale of models whose
                                           guidance_scale is a distilled input: a second pass per
                                           step if above 1 and there is a negative prompt; 0: the
                                           pipeline's default, usually none                 */
    double      guidance_rescale;       /* rescales the guided prediction: 0 off, 1 to the full
                                           standard deviation of the conditional prediction (Lin et
                                           al. 2023, 3.4), for models that support it */
    int         use_dynamic_cfg;        /* guidance grows with the steps                      */
    /* Start image: a PNG, JPEG, WebP, GIF or PPM file, which is rotated by its Exif orientation and
     * resized. For models that edit images: the image to edit. NULL: none. */
    const char *image;
    /* The start image as pixels, in place of `image`. Rank 0 reads them during the call; the other
     * ranks pass any image. NULL: none. */
    const xd_image *image_pixels;
    double      strength;       /* fraction of the steps that run on the noised start image; 0: the
                                   pipeline's default */
    int64_t     seed;                   /* 64 bits; seeds above 2^63 - 1 are stored minus 2^64 */
    int         random_seed;            /* ignore `seed`; rank 0 draws one                   */
    int         num_images_per_prompt;
    int         max_sequence_length;    /* text tokens; 0: the pipeline's default            */
    const char *scheduler;              /* NULL: the model's; see xd_request_options          */
    const char *rng;                    /* "philox" or "torch" (the noise of PyTorch's CPU)  */
    int         enable_tiling;          /* decode in tiles, for less memory                  */
    int         no_resolution_binning;  /* keep width and height: no nearest trained size    */
    int         latents_only;           /* skip the VAE decoder                              */
    void      (*on_stage)(void *cookie, const char *stage);     /* "text", "denoise", "decode" */
    void      (*on_step)(void *cookie, const xd_progress *p);   /* after each step            */
    /* Called on rank 0 before anything is loaded, once for each image i (from 0), with its
     * number of frames. A return value of 0 skips the image on all ranks; the result then has no
     * data for it. NULL: all images are generated. */
    int       (*wanted)(void *cookie, int i, int64_t frames);
    /* Image i (from 0) is complete and may be saved; the result holds images 0 .. i. A nonzero
     * return value stops the request with that status. */
    xd_status (*on_image)(void *cookie, const struct xd_result *partial, int i, xd_err *e);
    /* Intermediate tensors for golden tests: f32, contiguous. Names: "ids", "prompt_embeds",
     * "negative_prompt_embeds", "noise", "latents" (after each step, layout [C,H,W], of a video
     * [T,C,H,W]), "condition" (channels that image-to-video transformers read in addition to the
     * latents), "image" ([H,W,3], of a video [T,H,W,3], in [0,1]). `step` is the step for
     * "latents", the number of the text for text tensors, and 0 otherwise. */
    void      (*on_tensor)(void *cookie, const char *name, int step, int nd, const int64_t *d,
                           const float *data);
    void       *cookie;                 /* first argument of all callbacks                   */
    double      cfg_normalization;      /* maximum norm of the guided prediction, as a multiple of
                                           that of the conditional prediction, for models that
                                           support it; 0: no limit */
    double      cfg_truncation;         /* guide only this first fraction of the way from noise to
                                           image, for models that support it; 1: all steps */
    /* Area in pixels: of the output, for models that choose its size by the ratio of width and
     * height; of reference images, for models that resize these by their ratio. 0: the model's. */
    int64_t     max_area;
    /* [nmore_images] images after `image`, for models that read several: file names, or pixels
     * where an entry of more_pixels is not NULL. Either list may be NULL. */
    const char *const     *more_images;
    const xd_image *const *more_pixels;
    int64_t     nmore_images;
    double      flow_shift;             /* shift of the noise levels (sigmas) of rectified flow;
                                           replaces a shift by image size too; 0: the config's */
    /* Keys of scheduler_config.json that replace those of the file. 0, NULL, and for eta a negative
     * number: the file's value. The first five: 1 is true, -1 false. use_flow_sigmas also sets
     * prediction_type to flow_prediction. */
    int         use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas, use_flow_sigmas;
    int         stochastic_sampling, solver_order;
    double      eta;                    /* of DDIM and TCD, from 0 to 1                      */
    const char *algorithm_type, *solver_type, *timestep_spacing, *final_sigmas_type;
    /* The noise levels or the timesteps of all steps, "1,0.75,0.5", for schedulers that accept
     * such a list. NULL: computed from num_inference_steps. */
    const char *sigmas, *timesteps;
    /* Inpainting mask for `image`: a file, resized to the image's size, or pixels under the rules
     * of image_pixels. Bright parts (at least 128 of 255) are generated, dark parts are kept. NULL:
     * none. */
    const char     *mask_image;
    const xd_image *mask_pixels;
    /* Inpainting of a crop: cuts out the bounding box of the mask plus this many pixels, generates
     * it at width x height, and pastes it back: the result has the size of the input image.
     * Negative: the complete image is generated. */
    int64_t         padding_mask_crop;
    /* Last frame of a video, for models that support it; rules as for `image` and image_pixels. */
    const char     *last_image;
    const xd_image *last_pixels;
    /* Models with two transformers: guidance scale of the second one (negative: guidance_scale),
     * and the noise level, as a fraction of the training timesteps, below which the second one is
     * used (negative: the model's). */
    double          guidance_scale_2, boundary_ratio;
    /* A key of scheduler_config.json, as above: the schedule is stretched so that the last noise
     * level has this value; 0: no stretching. Negative: the file's. */
    double          shift_terminal;
    /* Length of a video in seconds, in place of num_frames: rounded to the nearest number of frames
     * that the model supports. 0: num_frames counts. */
    double          seconds;
    /* Quality of JPEG and WebP files that xd_result_save writes, 0 to 100. Negative: 95. */
    int64_t         output_quality;
    /* Number of previews per image, spread evenly over its steps, and a preview after each
     * preview_every-th step; 0: none. A preview is an image of the clean latents that a step
     * predicts, at most 512 pixels a side; for a video, of its first frame. Previews do not change
     * the result. Equal on all ranks. */
    int             previews, preview_every;
    /* Called after on_step on rank 0; with data parallelism also on the first rank of every other
     * replica, for the image that this replica generates. */
    void          (*on_preview)(void *cookie, const xd_image *image, const xd_progress *p);
    /* Yields to the program between two steps, images, VAE tiles or chunks of frames, and, if
     * xd_open_args.keep is set, between texts. Called equally often on all ranks. The program may
     * generate with other engines before it returns, including one of xd_open_beside; then the
     * request continues. A failure status stops the request. Not called with data parallelism or
     * with idle ranks. xd_result_seconds does not include the time of these calls. */
    xd_status     (*on_turn)(void *cookie, xd_err *e);
    /* Type of the attention scores Q K^T in the transformer: NULL, "auto": the compute type;
     * "int8": quantized Q and K, faster and slightly less accurate, if the device supports it. */
    const char     *attention;
    /* Step cache, which skips blocks of a step and reuses their effect in an earlier step:
     * "fbcache:0.12", "dbcache:Fn=8,threshold=0.08", "teacache:0.2", "taylorseer". Changes the
     * image. NULL, "none": every step computes every block. */
    const char     *cache;
    /* Local attention "T,H,W": an image token attends to a box of this many frames, rows and
     * columns of tokens around it, and to all text and reference tokens; 0: the complete axis.
     * NULL: full attention. */
    const char     *attention_window;
    /* Nonzero: parameters contain the names of the model and of files without their folders, for
     * results that leave this host; a model of the Hugging Face cache is "org/name". */
    int64_t         omit_folders;
    /* Interval in steps at which keys and values of reference images are computed; the steps
     * between reuse them and compute no reference tokens. 1: every step; 0: the first step only.
     * Values other than 1 change the image, except for models that are trained for this. */
    int64_t         reference_interval;
    /* Called after each step, after on_tensor and before on_step, with the latents in the layout of
     * on_tensor. Returns 1 if it has changed them: the request continues with the new values; else
     * 0. All ranks of one image call it; the values of the first of them count. Set on all ranks or
     * on none. */
    int           (*on_latents)(void *cookie, const xd_progress *p, int nd, const int64_t *d,
                                float *data);
    /* DiTFastAttn: per step, reuse an earlier attention output, share it between the CFG passes, or
     * restrict it to a window. "share,full": methods of the steps after the first one, cyclic; or a
     * file "*.json" of xdit calibrate or xDiT with the method of each block and step. Methods:
     * full, full+cfg, window, window+cfg, share. Changes the image. NULL: full attention. */
    const char     *fast_attn;
    /* Noise in place of that of the seed: [noise_numbers] normally distributed values, for each
     * image [frames,channels,rows,columns] of the latents, as on_tensor passes "noise". Rank 0
     * reads them during the call; the other ranks pass any values. NULL: drawn from the seed. */
    const float    *noise;
    int64_t         noise_numbers;
    /* GEMMs of the transformer's layers that have fp8 weights: NULL, "auto": inputs in the compute
     * type; "fp8": inputs quantized to fp8, faster and less accurate, if the device supports it. */
    const char     *gemm;
    /* Texts for the second and the third text encoder in place of the prompt and of the negative
     * prompt, the same for all prompts. The pipeline defines the order of its encoders. NULL, "":
     * the text of the prompt. */
    const char     *prompt_2, *prompt_3, *negative_prompt_2, *negative_prompt_3;
    /* For pipelines that clean captions of web pages (addresses, tags, file names): 1, the default:
     * clean them; 0: convert them to lower case only. */
    int             clean_caption;
    /* For models that resize a reference image to one of their trained sizes. Nonzero: keep its
     * own size. */
    int             no_auto_resize;
    /* Skip layer guidance, for models that support it: a third pass with the prompt leaves out the
     * layers "7,8,9" in the steps i of n with start < i / n < stop; `scale` times the difference
     * between the conditional prediction and that pass is added to the guided prediction. NULL:
     * none. */
    const char     *skip_guidance_layers;
    double          skip_layer_guidance_scale, skip_layer_guidance_start, skip_layer_guidance_stop;
    /* Lists in place of negative_prompt, prompt_2 and so on: one text per prompt, or a single text
     * for all prompts. */
    xd_texts    negative_prompts, prompts_2, prompts_3, negative_prompts_2, negative_prompts_3;
} xd_request;

#define xd_request_init(r) xd_request_init_size((r), sizeof *(r))
XD_API void xd_request_init_size(xd_request *r, size_t size);

/* ---- the result ------------------------------------------------------------------------- */

typedef struct xd_result xd_result;     /* the images of one request                         */

/* Generates nprompts x num_images_per_prompt images. *out: freed by xd_result_free; NULL after a
 * failure. Collective: all ranks pass equal requests, apart from pixels, noise and callbacks. */
XD_API xd_status xd_generate(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e);
XD_API int       xd_result_count(const xd_result *r);   /* number of images                  */
/* The pixels of image i, RGB without gaps between rows; NULL: latents only. */
XD_API const xd_image *xd_result_image(const xd_result *r, int i);
/* Seed of image i, as stored in xd_request. Texts and JSON contain it as 0 .. 2^64 - 1, as in
 * torch. */
XD_API int64_t   xd_result_seed(const xd_result *r, int i);
/* Parameters of image i: as one JSON object, and in the text format of A1111
 * (stable-diffusion-webui). */
XD_API const char *xd_result_json(const xd_result *r, int i);
XD_API const char *xd_result_parameters(const xd_result *r, int i);
/* Seconds of the request: "text", "load", "denoise", "decode", "total", "first_step"; -1:
 * unknown. */
XD_API double    xd_result_seconds(const xd_result *r, const char *part);
/* Writes image i. The extension selects the format: .png .jpg .jpeg .webp .ppm, .safetensors
 * (latents). For a video: .mp4 .mov .mkv .webm .gif .rgb (raw frames without a header),
 * or an image format with the frame number as %d (%04d), from 1, for one file per frame; without a
 * %d, "_%04d" is inserted before the extension. Writing is atomic: a file is complete or does
 * not exist. */
XD_API xd_status xd_result_save(const xd_result *r, int i, const char *path, xd_err *e);
XD_API void      xd_result_free(xd_result **r);

#ifdef __cplusplus
}
#endif

#endif
