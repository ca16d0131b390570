/* xdit.h - the public interface of libxdit, which generates images and videos from prompts.
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
 * The header tools.h declares plans and predictions, benchmarks, inspection and names of output
 * files. The header module.h declares a transformer or an autoencoder without a pipeline.
 *
 * Errors. A function that can fail returns an xd_status and fills the caller's xd_err (which may be
 * NULL) with one sentence. Every function that opens something has a matching close or free
 * function, which accepts NULL and pointers to NULL.
 *
 * Records and versions. A record is a struct of this interface. A record that the program allocates
 * begins with its size. The record's init function stores the size with which the program was
 * compiled and sets all defaults; the program then sets the fields that differ. Later versions of
 * the library add fields only at the end of a record. The library reads `size` bytes of a record
 * and uses the defaults for later fields, so a program runs with every later library. A program
 * also runs with an earlier library, which refuses a record only if a field that the library does
 * not know is set. Records without a size (xd_err, xd_parallel, xd_lora, xd_component_file,
 * xd_texts, xd_option) never change their size. Records to which the library passes a pointer
 * (xd_progress, the result of xd_result_image) may have more fields at the end than the program
 * knows.
 *
 * Lifetimes. The library keeps no pointer that a program passes, except `log` and `cookie` of
 * xd_open_args, which it uses until xd_close returns. The program may free strings, arrays and
 * records when the function to which it passed them has returned. A result does not need its engine
 * and can be used after xd_close. Pixels and texts that a function returns for a result belong to
 * the result and are valid until xd_result_free. Arguments of a callback are valid only during the
 * callback.
 *
 * Per process and per engine. An engine owns its model, its weights, its plan, its log and its
 * trace; several engines can be open in one process. All engines of a process share:
 *   - threads: one pool computes for all engines; the engine opened last sets the size of the pool
 *   - CPU affinity: `bind` of xd_open_args binds the calling thread until the process ends
 *   - MPI, if the library initializes it: with the first engine of several ranks. The library
 *     finalizes MPI when the last engine of several ranks closes; the process cannot initialize it
 *     again. With `mpi_comm` the program owns MPI
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

#include "xdit/err.h"

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

/* The version of this header. The build file meson.build reads the three version numbers from this
 * header. */
#define XDIT_VERSION_MAJOR 0
#define XDIT_VERSION_MINOR 1
#define XDIT_VERSION_PATCH 0
#define XDIT_VERSION_OF(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define XDIT_VERSION_NUMBER \
    XDIT_VERSION_OF(XDIT_VERSION_MAJOR, XDIT_VERSION_MINOR, XDIT_VERSION_PATCH)

/* Return the version of the library that runs, as text ("0.1.0") and as a number for comparisons
 * with XDIT_VERSION_NUMBER. */
XD_API const char *xd_version(void);
XD_API int         xd_version_number(void);

/* ---- an engine: a model, loaded and ready ---------------------------------------------- */

typedef struct xd_engine xd_engine;

/* A plan: the way in which the model is distributed over ranks. A degree of 0 means 1. The options
 * of a plan have the names of xDiT's options. Initialize a plan with {0}. The size of xd_parallel
 * is fixed: later options replace reserved fields. */
typedef struct xd_parallel {
    int tensor_parallel_degree, ulysses_degree, ring_degree, pipefusion_parallel_degree;
    int data_parallel_degree, use_cfg_parallel;
    int num_pipeline_patch;     /* number of PipeFusion patches; 0: as many as stages         */
    int warmup_steps;           /* number of exact steps before the first step with stale K and V */
    int use_displaced_patches;  /* 1: the ring axis uses keys and values of the previous step */
    int use_parallel_vae;
    /* How text tokens pass through the pipeline stages. "first": once per step, with patch 1;
     * "every": with every patch, as in xDiT; NULL: "first". */
    const char *pipefusion_text;
    const char *attn_layer_num_for_pp; /* blocks of each pipeline stage, "10,9,9"; NULL: balanced */
    /* Number of ranks, from rank 0 on, over which each text encoder is split. */
    int text_tensor_parallel_degree;
    int patches_without_stages; /* 1: use patches even with a single stage (for measurements)  */
    int reserved[8];            /* for future options; must be 0                             */
    const char *reserved_text[3];       /* for future options; must be NULL                  */
} xd_parallel;

typedef struct xd_lora {        /* a LoRA: a low-rank matrix product added to the weights       */
    const char *path; /* path of a .safetensors file in the layout of diffusers, PEFT or Kohya */
    double      scale;          /* factor of the product, usually 1; 0 leaves the model unchanged */
} xd_lora;

/* A safetensors or GGUF file with the weights of one component. The file replaces the weights in
 * the component's folder of the model, and this folder then only needs to have the config. Tensors
 * may have the names of diffusers, of the original publications, of ComfyUI or of llama.cpp. */
typedef struct xd_component_file {
    /* name of the component: "transformer", "transformer_2" (the second transformer), "vae", or the
     * short name of a text encoder, as `xdit inspect` prints it */
    const char *component;
    const char *path;
} xd_component_file;

struct xd_request;

typedef struct xd_open_args {   /* call xd_open_args_init, then set fields                    */
    size_t      size;           /* sizeof(xd_open_args) of the program                       */
    const char *model;          /* directory with model_index.json, or "org/name" in the local
                                   Hugging Face cache */
    /* Compute type: "f32", "bf16", on a GPU also "f16"; NULL: the fastest type of this machine. */
    const char *dtype;
    /* Storage type of the matrices of the transformer's blocks (attention, feed-forward). NULL: the
     * compute type. "int8": weights need a quarter of the memory of f32, and GEMMs compute with
     * integers, which is faster if the CPU supports it; the input of a GEMM is quantized as well.
     * "fp8" (e4m3): weights need the memory of int8, and GEMMs are in the compute type. "int4", on
     * the CPU only: weights need slightly more than half the memory of int8; they are stored in
     * groups of 32 elements with a scale; inputs are rotated, and GEMMs are in the compute type.
     * All quantized types cost accuracy (doc/weights.md). "auto": matrices that the files store as
     * int8 or fp8 keep that type, without further loss. "f32" and "bf16": the types of `dtype`.
     * text_weights_dtype accepts the same values and applies to text encoders that are language
     * models. */
    const char *weights_dtype, *text_weights_dtype;
    /* Where the engine computes. "cpu"; "cuda": one GPU per rank; "cuda:1": GPU number 1; "auto":
     * one GPU per rank if the host has a usable GPU for each of its ranks, else the CPU; NULL:
     * "cpu". */
    const char *device;
    int         threads;        /* threads per rank; 0: one for each core that this rank may use */
    /* nonzero: the engine serves one request. With one rank, the transformer is freed before the
     * only image or video is decoded; a second request would load it again. */
    int         once;
    /* CPU binding. "auto": if several ranks share a host and the launcher has not bound them, each
     * rank is bound to its share of the cores and to their memory node. Binding sets the affinity
     * of the calling thread; threads and processes that this thread starts inherit the affinity.
     * "cores": a single rank is bound as well, to as many cores as it has threads. "none", NULL: no
     * binding. The binding remains when the engine is closed. */
    const char *bind;
    xd_parallel parallel;       /* the parallel plan (see also the field `plan`)             */
    /* The ranks of the engine. NULL: the processes that an MPI launcher has started; the library
     * initializes and finalizes MPI, unless the program does. Not NULL: a pointer to an MPI_Comm of
     * a program that has initialized MPI; the engine then has the ranks of this communicator. All
     * messages use duplicates of the communicator, which xd_close frees; the library neither
     * initializes nor finalizes MPI, and does not change error handlers of the program. Set
     * `threads` too if other processes of the program need cores. */
    const void *mpi_comm;
    const char *without;        /* short name of a text encoder that is not loaded, for models
                                   that support this; NULL: load all */
    int         keep;           /* nonzero: keep text encoders loaded between requests, and a
                                   cache of prompt embeddings of up to 256 MiB (at most a
                                   sixteenth of the free memory of the host), so that a repeated
                                   prompt is not encoded again */
    int         log_level;      /* log lines up to this level are passed to `log`            */
    void      (*log)(void *cookie, int level, const char *line);
    void       *cookie;
    /* Output file that rank 0 writes: a timeline of all ranks as a Chrome trace (JSON) for
     * chrome://tracing or Perfetto. Each request replaces the file when it ends, even if the
     * request fails after validation. The first request's trace includes xd_open. NULL: none. */
    const char *trace;
    const xd_component_file *files;     /* [nfiles] files that replace the weights of components */
    const xd_lora *loras;       /* [nloras] LoRA files, added in this order                     */
    int         nfiles, nloras;
    /* How to choose the degrees that are 0 in `parallel` if there are more ranks than the other
     * degrees use. NULL: the degrees that are 0 count as 1, and the other ranks are idle. "auto":
     * the plan with the lowest predicted time among those that fit into memory and generate the
     * image of one rank. "auto-stale": includes plans with PipeFusion, which uses keys and values
     * of the previous step. Rank 0 chooses the plan and logs the plan at XD_LOG_INFO. */
    const char *plan;
    /* Request for which a plan is chosen; NULL: a default request. */
    const struct xd_request *plan_for;
    /* Machine for predictions: "8xH100" or a file of `xdit probe`; NULL: this machine, measured
     * by a probe or estimated. */
    const char *cluster;
    const char *balance;        /* "measured": tokens, heads, blocks and image rows of a rank
                                   follow its speed in a short test; "even", NULL: equal shares */
    const char *layers;         /* for measurements only: number of blocks of each kind, "2,4"
                                   (text encoders use the first number); NULL: as in the configs */
    /* What to do if weights exceed the memory. "auto": as many blocks of the transformer and of
     * text encoders as necessary remain in pinned host memory (on the CPU: in their files), and
     * their weights are fetched while the blocks before them compute. "stream": all blocks are
     * fetched in this way, for the lowest memory use. "none": a request whose weights do not fit is
     * refused. NULL means "auto" on a GPU and "none" on the CPU. Results do not depend on
     * `offload`. */
    const char *offload;
    /* [nloras_2] LoRA files that are added to the second transformer of a model with two, which
     * computes the last (low-noise) steps. `loras` are added to the first transformer and to text
     * encoders. */
    const xd_lora *loras_2;
    int64_t     nloras_2;
    /* Tiny autoencoder (AutoencoderTiny of diffusers) that decodes previews: its directory, or
     * "org/name" in the local Hugging Face cache. NULL: previews are a linear map from latents to
     * colours. */
    const char *preview_decoder;
    /* Limit, in bytes, on the memory that all ranks of a host and all engines of the process
     * together use for weights, activations and kernels. With device "cuda": the limit for the
     * memory of a GPU. A request that needs more memory is refused. 0: all free memory. */
    int64_t     memory;
    /* What to do if a request does not fit into memory. "auto": makes the first of these changes
     * with which the request fits: `offload` "auto"; type int8 (fp8 if the files store fp8) for
     * weight types that are not set here; on the CPU, type int4 for these weight types. The change
     * is logged and applies to later requests too. "none", NULL: the request is refused. */
    const char *fit;
    /* 1: tensors of LoRA files that do not match the model are skipped, and a warning lists these
     * tensors (e.g. of image-to-video files on a text-to-video model). 0: a file with such tensors
     * is refused. */
    int64_t     lora_partial;
    /* 1: in xd_open, ranks compare every byte of all weight files; the error names a file that
     * differs. 0: ranks compare configs, headers and 64 pages of each file, in negligible time. */
    int64_t     verify_weights;
} xd_open_args;

/* All defaults are 0 or NULL, except `size`. */
#define xd_open_args_init(a) xd_open_args_init_size((a), sizeof *(a))
XD_API void      xd_open_args_init_size(xd_open_args *a, size_t size);

/* Opens a model: reads the configs and checks the tensors in the files. The first request loads the
 * weights. Close *g with xd_close; *g is NULL after a failure. The call is collective. */
XD_API xd_status xd_open(xd_engine **g, const xd_open_args *a, xd_err *e);
XD_API void      xd_close(xd_engine **g);

/* xd_rank returns the rank of this process. xd_ranks returns the number of ranks that compute a
 * request; ranks from this number on are idle. Calls with an engine are collective over all ranks.
 * Only rank 0 gets results and callbacks, unless a comment says otherwise.
 *
 * If one rank fails, all ranks return that rank's error, with the rank's number in xd_err.rank, and
 * the engine can be used again. XD_ECOMM is the exception: messages failed, or a rank failed where
 * it could not notify the other ranks, which may still wait for it. After XD_ECOMM the program must
 * neither use nor close the engine, and must exit; the MPI launcher kills the other processes. */
XD_API int       xd_rank(const xd_engine *g);
XD_API int       xd_ranks(const xd_engine *g);

/* Cancels the running request, which soon fails with XD_ECANCELLED. xd_cancel may be called from
 * any thread, and is async-signal-safe. */
XD_API void xd_cancel(xd_engine *g);
/* Cancels the running request as xd_cancel does, with a reason: on all ranks the request fails with
 * the error message `reason` (copied) and the calling rank in xd_err.rank. xd_cancel_because is for
 * a program whose callback fails on one rank. Only the first call has an effect. xd_cancel_because
 * may be called from any thread, but not from a signal handler. */
XD_API void xd_cancel_because(xd_engine *g, const char *reason);

/* ---- images and requests --------------------------------------------------------------------- */

struct xd_result;

/* An image or a video as pixels of 8 bits per channel, with rows from the top and frames one after
 * the other. An image of a result can be the input image of the next request. */
typedef struct xd_image {       /* call xd_image_init, then set fields                        */
    size_t   size;              /* sizeof(xd_image) of the program                           */
    int64_t  frames, height, width;     /* frames is 1 by default                            */
    int64_t  stride;            /* bytes from one row of pixels to the next; 0: width x channels */
    /* Number of channels. 3: RGB, the default, and in all results. Input images may also have 1
     * channel (grey) or 4 (RGBA, alpha is ignored). */
    int      channels;
    int      reserved;          /* must be 0                                                 */
    const uint8_t *data;
    double   fps;               /* frames per second of a video; 0: a single image           */
} xd_image;

#define xd_image_init(i) xd_image_init_size((i), sizeof *(i))
XD_API void xd_image_init_size(xd_image *i, size_t size);

typedef struct xd_progress {    /* a denoising step that has ended                           */
    int    step, steps;         /* number of the step (1 .. steps); number of steps          */
    int    image, images;       /* number of the image (1 .. images); number of images of the
                                   request */
    double step_s;              /* seconds of this step                                      */
    double since_start_s;       /* seconds since the start of the request                    */
    double timestep;            /* timestep of this step, in the scheduler's scale           */
} xd_progress;

typedef struct xd_texts {       /* a list of texts; n 0: none                                */
    const char *const *v;       /* [n] the texts; a NULL entry counts as ""                  */
    int64_t            n;
} xd_texts;

/* The settings of a request by subject. The structs for the subjects have no size field: a field
 * that a later version adds follows the last field of xd_request. */

/* The other texts of a request. prompt_2, prompt_3: texts that the second and the third text
 * encoder read in place of the prompt, the same texts for all prompts; negative_prompt_2,
 * negative_prompt_3: the same for the negative prompt. The pipeline defines the order of its
 * encoders. If such a text is NULL or "", its encoder reads the prompt or the negative prompt. */
typedef struct xd_request_texts {
    const char *prompt_2, *prompt_3, *negative_prompt_2, *negative_prompt_3;
    /* Lists of texts in place of negative_prompt, prompt_2 and so on. Each list has one text per
     * prompt, or a single text for all prompts. */
    xd_texts    negative_prompts, prompts_2, prompts_3, negative_prompts_2, negative_prompts_3;
    int         max_sequence_length; /* max number of text tokens; 0: the pipeline's default    */
    /* For pipelines that remove remains of web pages (addresses, tags, file names) from prompts. 1,
     * the default: clean prompts; 0: only convert prompts to lower case. */
    int         clean_caption;
} xd_request_texts;

/* The input images of a request: each is a PNG, JPEG, WebP, GIF or PPM file, which is rotated by
 * its Exif orientation, or pixels in place of the file. Rank 0 reads the pixels during the call;
 * other ranks pass any image. NULL: none. Input images are resized. */
typedef struct xd_request_images {
    /* Start image. A model that edits images edits this image. */
    const char *image;
    const xd_image *image_pixels;
    /* [nmore_images] further images after `image`, for models that read several images. Image i is
     * the pixels more_pixels[i] or, if that is NULL, the file more_images[i]. more_images and
     * more_pixels may each be NULL. */
    const char *const     *more_images;
    const xd_image *const *more_pixels;
    int64_t     nmore_images;
    const char *last_image;     /* last frame of a video, for models that support one        */
    const xd_image *last_pixels;
    /* Inpainting mask for `image`, resized to the image's size. Bright parts (at least 128 of 255)
     * are generated, dark parts are kept. */
    const char *mask_image;
    const xd_image *mask_pixels;
    /* Inpainting of a crop: the bounding box of the mask plus this many pixels is cut out,
     * generated at width x height, and pasted back, so the result has the size of the input image.
     * A negative number: the complete image is generated. */
    int64_t     padding_mask_crop;
    /* Fraction of the steps that run, starting from the start image with noise added; 0: the
     * pipeline's default. */
    double      strength;
    /* Nonzero: a reference image keeps its own size, also if the model was trained on certain sizes
     * of reference images. 0: such a model resizes the image to one of these sizes. */
    int         no_auto_resize;
    int         reserved;       /* must be 0                                                 */
} xd_request_images;

/* The scheduler and the noise levels of its steps. */
typedef struct xd_request_schedule {
    /* Name of a scheduler (listed by xd_request_options); NULL: the model's scheduler. */
    const char *scheduler;
    /* Shift of the noise levels (sigmas) of rectified flow, also in place of a shift by image size;
     * 0: the shift of the config. */
    double      flow_shift;
    /* Lists of the noise levels or the timesteps of all steps, "1,0.75,0.5", for schedulers that
     * accept such a list. NULL: the schedule is computed from num_inference_steps. */
    const char *sigmas, *timesteps;
    /* Values that replace those of the same keys in scheduler_config.json. A field that is 0 or
     * NULL (eta and shift_terminal: a negative number) leaves the file's value unchanged. In the
     * first five fields, 1 is true and -1 is false. use_flow_sigmas also sets prediction_type to
     * flow_prediction. */
    int         use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas, use_flow_sigmas;
    int         stochastic_sampling, solver_order;
    const char *algorithm_type, *solver_type, *timestep_spacing, *final_sigmas_type;
    double      eta;            /* eta of DDIM and TCD, from 0 to 1                          */
    /* The schedule is stretched so that the last noise level has this value. 0: no stretching. */
    double      shift_terminal;
} xd_request_schedule;

typedef struct xd_request_guidance {
    /* Classifier-free guidance scale for models whose guidance_scale is a distilled input. If the
     * scale is above 1 and there is a negative prompt, each step has a second pass. 0: the
     * pipeline's default, usually no second pass. */
    double      true_cfg_scale;
    /* For models with two transformers: the guidance scale of the second transformer (negative:
     * guidance_scale), and the noise level, as a fraction of the training timesteps, below which
     * the second transformer is used (negative: the model's default). */
    double      guidance_scale_2, boundary_ratio;
    /* Rescales the guided prediction towards the standard deviation of the conditional prediction
     * (Lin et al. 2023, 3.4), for models that support it. 0: off; 1: to the full standard
     * deviation. */
    double      guidance_rescale;
    /* Maximum norm of the guided prediction, as a multiple of the conditional prediction's norm,
     * for models that support it; 0: no limit. */
    double      cfg_normalization;
    /* Fraction of the way from noise to image in which guidance is used, for models that support
     * it; 1: guidance in all steps. */
    double      cfg_truncation;
    int         use_dynamic_cfg;        /* 1: the guidance scale grows from step to step      */
    int         reserved;       /* must be 0                                                 */
    /* Skip layer guidance, for models that support it: in the steps i of n with start < i / n <
     * stop, a third pass with the prompt skips the listed layers, "7,8,9". The difference between
     * the conditional prediction and the third pass's prediction, times `scale`, is added to the
     * guided prediction. NULL: no third pass. */
    const char *skip_guidance_layers;
    double      skip_layer_guidance_scale, skip_layer_guidance_start, skip_layer_guidance_stop;
} xd_request_guidance;

typedef struct xd_request_noise {
    const char *rng; /* generator of noise: "philox", or "torch" (as PyTorch on the CPU) */
    /* Initial noise in place of noise drawn from the seed: [count] normally distributed values,
     * which are [frames,channels,rows,columns] of the latents for each image, as on_tensor passes
     * "noise". Rank 0 reads the values during the call; other ranks pass any values. NULL: noise is
     * drawn from the seed. */
    const float *values;
    int64_t     count;
} xd_request_noise;

/* Methods that save time. Values other than the defaults change the image, except as noted. */
typedef struct xd_request_savings {
    /* Type of the attention scores Q K^T in the transformer: NULL, "auto": the compute type;
     * "int8": quantized Q and K, faster and slightly less accurate, if the device supports it. */
    const char *attention;
    /* Type of the inputs of GEMMs with fp8 weights in the transformer. NULL, "auto": the compute
     * type. "fp8": inputs are quantized to fp8, which is faster and less accurate, if the device
     * supports it. */
    const char *gemm;
    /* Name and options of a step cache, which skips blocks of a step and reuses their effect in an
     * earlier step: "fbcache:0.12", "dbcache:Fn=8,threshold=0.08", "teacache:0.2", "taylorseer".
     * NULL, "none": every step computes every block. */
    const char *cache;
    /* Window of local attention, "T,H,W": an image token attends to a box of this many frames, rows
     * and columns of tokens around itself, and to all text and reference tokens. A value of 0 means
     * the complete axis. NULL: full attention. */
    const char *attention_window;
    /* DiTFastAttn, which makes attention cheaper in some steps: it reuses the previous step's
     * attention output, shares an output between the CFG passes, or restricts attention to a
     * window. Either a list of methods through which the steps after the first one cycle
     * ("share,full"), or a file "*.json" of `xdit calibrate` or xDiT with the method of each block
     * and step. Methods: full, full+cfg, window, window+cfg, share. NULL: full attention. */
    const char *fast_attn;
    /* Interval, in steps, at which keys and values of reference images are computed. The other
     * steps reuse these keys and values, and compute no reference tokens. 1: every step; 0: only
     * the first step. The image stays the same for models that are trained for such reuse. */
    int64_t     reference_interval;
} xd_request_savings;

typedef struct xd_request_output {
    /* Length of a video in seconds, in place of num_frames. The nearest number of frames that the
     * model supports is generated. 0: num_frames is used. */
    double      seconds;
    /* Area in pixels. For models that choose the output's size by the ratio of width and height:
     * area of the output. For models that resize reference images with their own ratio: area of
     * reference images. 0: the model's default area. */
    int64_t     max_area;
    /* Quality of JPEG and WebP files that xd_result_save writes, 0 to 100. Negative: 95. */
    int64_t     output_quality;
    /* 1: keep width and height; do not use the nearest trained size */
    int         no_resolution_binning;
    int         latents_only;           /* 1: return latents only, without VAE decoding      */
    int         enable_tiling;          /* 1: decode in tiles, which needs less memory       */
    /* 1: in the parameters that are stored with results, the names of the model and of files have
     * no folders, so that the results can be published. A model of the Hugging Face cache is
     * "org/name". */
    int         omit_folders;
} xd_request_output;

/* `count` is the number of previews per image, which are spread evenly over the steps. With `every`
 * n there is a preview after each n-th step. 0: no previews. A preview is an image of the clean
 * latents that a step predicts, at most 512 pixels a side; for a video, of its first frame.
 * Previews do not change the result. All ranks must pass the same values. */
typedef struct xd_request_previews { int count, every; } xd_request_previews;

/* Functions of the program that a request calls; NULL: none. `cookie` is their first argument. */
typedef struct xd_request_callbacks {
    void       *cookie;
    /* Called when a stage of the request begins. `stage` is "text", "load", "denoise" or
     * "decode". */
    void      (*on_stage)(void *cookie, const char *stage);
    void      (*on_step)(void *cookie, const xd_progress *p); /* called after each denoising step */
    /* Called on rank 0 before anything is loaded, once for each image i (from 0), with the image's
     * number of frames. If the callback returns 0, the image is skipped on all ranks, and the
     * result has no data for the image. NULL: all images are generated. */
    int       (*wanted)(void *cookie, int i, int64_t frames);
    /* Called when image i (from 0) is complete and may be saved; `partial` has images 0 .. i. If
     * the callback returns a nonzero status, the request stops with this status. */
    xd_status (*on_image)(void *cookie, const struct xd_result *partial, int i, xd_err *e);
    /* Called with intermediate tensors, which are f32 and contiguous, for tests that compare them
     * with a reference. Names of tensors: "ids", "prompt_embeds", "negative_prompt_embeds",
     * "noise", "latents" (after each step, layout [C,H,W], of a video [T,C,H,W]), "condition"
     * (channels that image-to-video transformers read in addition to the latents), "image"
     * ([H,W,3], of a video [T,H,W,3], in [0,1]). `step` is the step for "latents", the number of
     * the text for text tensors, and 0 otherwise. */
    void      (*on_tensor)(void *cookie, const char *name, int step, int nd, const int64_t *d,
                           const float *data);
    /* Called after each step, after on_tensor and before on_step, with the latents in the layout of
     * on_tensor. Returns 1 if the callback has changed the latents, and the request continues with
     * the new values; else 0. All ranks that compute the image call on_latents, and the values of
     * the first of these ranks are used. Must be set on all ranks or on none. */
    int       (*on_latents)(void *cookie, const xd_progress *p, int nd, const int64_t *d,
                            float *data);
    /* Called with each preview, after on_step, on rank 0; with data parallelism also on the first
     * rank of every other replica, for the image that this replica generates. */
    void      (*on_preview)(void *cookie, const xd_image *image, const xd_progress *p);
    /* Called so that the program can do other work: between two steps, images, VAE tiles or chunks
     * of frames, and, if xd_open_args.keep is set, between texts. on_turn is called equally often
     * on all ranks. on_turn may generate with other engines, including one of xd_open_beside; the
     * request continues when on_turn returns. If on_turn returns a failure status, the request
     * stops. on_turn is not called with data parallelism or if there are idle ranks.
     * xd_result_seconds does not include the time of these calls. */
    xd_status (*on_turn)(void *cookie, xd_err *e);
} xd_request_callbacks;

typedef struct xd_request {     /* call xd_request_init, then set fields                      */
    size_t      size;           /* sizeof(xd_request) of the program                         */
    const char *const *prompts;         /* [nprompts] prompts, UTF-8                         */
    int         nprompts;
    const char *negative_prompt;        /* text that describes what to avoid; NULL: ""       */
    /* size in pixels; 0: that of the input image, else the model's default */
    int64_t     width, height;
    int         num_frames;             /* number of frames of a video; 0: the model's default */
    double      fps;                    /* frames per second in a video file; 0: the model's rate */
    int         num_inference_steps;    /* number of denoising steps; 0: the pipeline's default */
    double      guidance_scale;         /* guidance scale; negative: the pipeline's default  */
    int64_t     seed; /* seed of 64 bits; seeds above 2^63 - 1 are stored minus 2^64 */
    int         random_seed;            /* 1: ignore `seed`; rank 0 draws a random seed      */
    int         num_images_per_prompt;  /* 1 by default                                      */
    xd_request_texts     texts;
    xd_request_images    images;
    xd_request_schedule  schedule;
    xd_request_guidance  guidance;
    xd_request_noise     noise;
    xd_request_savings   savings;
    xd_request_output    output;
    xd_request_previews  previews;
    xd_request_callbacks callbacks;
} xd_request;

#define xd_request_init(r) xd_request_init_size((r), sizeof *(r))
XD_API void xd_request_init_size(xd_request *r, size_t size);

/* ---- the result ------------------------------------------------------------------------- */

typedef struct xd_result xd_result;     /* the images of one request                         */

/* Generates nprompts x num_images_per_prompt images. Free *out with xd_result_free; *out is NULL
 * after a failure. The call is collective: all ranks pass equal requests, except for pixels, noise
 * and callbacks. */
XD_API xd_status xd_generate(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e);
XD_API int       xd_result_count(const xd_result *r); /* returns the number of images of a result */
/* Returns the pixels of image i, RGB without gaps between rows, or NULL if the result has only
 * latents. */
XD_API const xd_image *xd_result_image(const xd_result *r, int i);
/* Returns the seed of image i, in the form of xd_request.seed. In the parameters of an image, the
 * seed is a number from 0 to 2^64 - 1, as in torch. */
XD_API int64_t   xd_result_seed(const xd_result *r, int i);
/* Return the parameters of image i as one JSON object, and in the text format of A1111
 * (stable-diffusion-webui). */
XD_API const char *xd_result_json(const xd_result *r, int i);
XD_API const char *xd_result_parameters(const xd_result *r, int i);
/* Returns the seconds that a part of the request took: "text", "load", "denoise", "decode",
 * "total", "first_step". Returns -1 if the time is unknown. */
XD_API double    xd_result_seconds(const xd_result *r, const char *part);
/* Writes image i to a file. The file name extension selects the format: .png .jpg .jpeg .webp .ppm,
 * .safetensors (latents). Formats of a video are .mp4 .mov .mkv .webm .gif .rgb (raw frames without
 * a header). If a video is written in an image format, each frame is a file: %d (%04d) in `path` is
 * the frame number, from 1; without a %d, "_%04d" is inserted before the extension. Writing is
 * atomic: a file is complete or does not exist. */
XD_API xd_status xd_result_save(const xd_result *r, int i, const char *path, xd_err *e);
XD_API void      xd_result_free(xd_result **r);

#ifdef __cplusplus
}
#endif

#endif
