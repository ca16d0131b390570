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
 * Errors. A function that can fail returns an xd_status. On failure, the function writes one
 * sentence to the caller's xd_err; the pointer to the xd_err may be NULL. Every function that opens
 * something has a matching close or free function, which accepts NULL and pointers to NULL.
 *
 * Records and versions. A record is a struct of this interface. A record that the program allocates
 * begins with its size. The record's init function stores the size with which the program was
 * compiled and sets all defaults. After the init function, the program sets the fields that need
 * values other than the defaults. Later versions of the library add fields only at the end of a
 * record. The library reads only the first `size` bytes of a record, and uses defaults for fields
 * that newer versions have added after these bytes. Because fields are added only at the end, a
 * program also runs with every later version of the library. A program also runs with an earlier
 * version of the library. An earlier version of the library refuses a record only if the program
 * sets a field that this version does not know. Records without a size (xd_err, xd_parallel,
 * xd_lora, xd_component_file, xd_texts, xd_option) never change their size. The library allocates
 * some records and passes a pointer to the program: xd_progress, and the result of xd_result_image.
 * Later versions of the library may allocate records that are longer than in the program's header.
 *
 * Lifetimes. The library keeps no pointer that a program passes, except `log` and `cookie` of
 * xd_open_args, which it uses until xd_close returns. The program may free strings, arrays and
 * records when the function to which it passed them has returned. A result does not need its engine
 * and can be used after xd_close. Results own the pixels and texts that functions return for them;
 * these are valid until xd_result_free. Arguments of a callback are valid only during the callback.
 *
 * Resources of the process and of each engine. An engine owns its model, its weights, its plan, its
 * log and its trace. Several engines can be open in one process. All engines of a process use one
 * pool of threads, whose size is set by the engine that was opened last. If xd_open_args.bind binds
 * the calling thread to cores, this CPU affinity lasts until the process ends. Unless the program
 * owns MPI (xd_open_args.mpi_comm), the library initializes MPI when the first engine of several
 * ranks opens, and finalizes MPI when the last engine of several ranks closes. After MPI was
 * finalized, the process cannot initialize it again. xd_output_sweep (tools.h) removes the
 * incomplete output files of all engines. The library reads environment variables (XDIT_*, HF_*,
 * those of MPI launchers) and never sets them. The library installs no signal handler, prints
 * nothing and does not exit. The rule that the library does not exit has one exception: if ranks
 * can no longer notify each other of a failure, MPI aborts the job, and the reason is in the log.
 *
 * Rules for the threads of the program. Only one thread at a time may use an engine, and only one
 * thread at a time may call a function of the library. If an engine has several ranks, the thread
 * that opened the engine must make all calls with it. xd_cancel may be called from any thread and
 * from a signal handler. Callbacks run on the thread that called the library. */
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

/* The version of the header xdit.h. The build file meson.build reads the three version numbers from
 * the header xdit.h. */
#define XDIT_VERSION_MAJOR 0
#define XDIT_VERSION_MINOR 1
#define XDIT_VERSION_PATCH 0
#define XDIT_VERSION_OF(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define XDIT_VERSION_NUMBER \
    XDIT_VERSION_OF(XDIT_VERSION_MAJOR, XDIT_VERSION_MINOR, XDIT_VERSION_PATCH)

/* xd_version returns the version of the running library as text ("0.1.0"). xd_version_number
 * returns the version as a number, which can be compared with XDIT_VERSION_NUMBER. */
XD_API const char *xd_version(void);
XD_API int         xd_version_number(void);

/* ---- an engine: a model, loaded and ready ---------------------------------------------- */

typedef struct xd_engine xd_engine;

/* A plan describes how the model is distributed over ranks. A degree of 0 in xd_parallel counts as
 * 1. The options of a plan have the names of xDiT's options. Initialize an xd_parallel with {0}.
 * The size of xd_parallel is fixed: options of later versions will replace reserved fields. */
typedef struct xd_parallel {
    int tensor_parallel_degree, ulysses_degree, ring_degree, pipefusion_parallel_degree;
    int data_parallel_degree, use_cfg_parallel;
    int num_pipeline_patch; /* number of PipeFusion patches; 0: the number of pipeline stages */
    /* number of steps at the start that use no keys and values of previous steps */
    int warmup_steps;
    int use_displaced_patches; /* 1: ring attention uses keys and values of the previous step */
    int use_parallel_vae;
    /* How text tokens pass through the pipeline stages. "first": text tokens pass through the
     * pipeline stages once per step, together with the first image patch. "every": text tokens pass
     * through the pipeline stages with every image patch, as in xDiT. pipefusion_text NULL: as
     * "first". */
    const char *pipefusion_text;
    /* Number of transformer blocks of each pipeline stage, "10,9,9"; NULL: balanced. */
    const char *attn_layer_num_for_pp;
    /* Number of ranks, beginning with rank 0, over which each text encoder is split. */
    int         text_tensor_parallel_degree;
    /* 1: the image is split into PipeFusion patches even if there is a single pipeline stage (for
     * measurements). */
    int         patches_without_stages;
    /* Format of activations in messages between hosts. "int8" and "fp8": activations are sent as
     * codes of 8 bits with a scale for each head or each 128 features, which changes the image.
     * comms "exact" or NULL: activations are sent unchanged. Messages between ranks of one host are
     * always exact. */
    const char *comms;
    int         reserved[6];      /* for future options; must be 0 */
    const char *reserved_text[3]; /* for future options; must be NULL */
} xd_parallel;

typedef struct xd_lora { /* a LoRA: a low-rank matrix product added to the weights */
    const char *path;    /* path of a .safetensors file in the layout of diffusers, PEFT or Kohya */
    double      scale;   /* factor of the product, usually 1; 0 leaves the model unchanged */
} xd_lora;

/* A safetensors or GGUF file with the weights of one component. The component's weights are read
 * from this file, not from the component's folder in the model directory. The component's folder in
 * the model directory then needs only the config. Tensors may have the names of diffusers, of the
 * original publications, of ComfyUI or of llama.cpp. */
typedef struct xd_component_file {
    /* name of the component: "transformer", "transformer_2" (the second transformer), "vae", or the
     * short name of a text encoder, as `xdit inspect` prints it */
    const char *component;
    const char *path;
} xd_component_file;

struct xd_request;

typedef struct xd_open_args { /* call xd_open_args_init, then set fields */
    size_t      size;         /* sizeof(xd_open_args) of the program */
    const char *model;        /* directory with model_index.json, or "org/name" in the local
                                   Hugging Face cache */
    /* Compute type: "f32", "bf16", on a GPU also "f16"; NULL: the fastest type of this machine. */
    const char *dtype;
    /* Storage type of the matrices of the transformer's blocks (attention, feed-forward).
     * weights_dtype NULL: matrices are stored in the compute type. "int8": weights need a quarter
     * of the memory of f32. GEMMs compute with integers, which is faster if the CPU supports it;
     * the inputs of these GEMMs are quantized as well. "fp8" (e4m3): weights need the memory of
     * int8, and GEMMs are in the compute type. "int4", on the CPU only: weights need slightly more
     * than half the memory of int8. With int4, weights are stored in groups of 32 elements with a
     * scale; inputs are rotated, and GEMMs are in the compute type. All quantized weight types cost
     * accuracy (doc/weights.md). weights_dtype "auto": matrices that are stored as int8 or fp8 keep
     * their type, which costs no further accuracy. "f32" and "bf16" store the matrices in these
     * types. text_weights_dtype has the same values, for text encoders that are language models. */
    const char *weights_dtype, *text_weights_dtype;
    /* Device on which the engine computes. device "cpu" or NULL: the engine computes on the CPU.
     * device "cuda": each rank computes on one GPU. "cuda:1": the GPU with the number 1. device
     * "auto": one GPU per rank if the host has a usable GPU for each of its ranks, else the CPU. */
    const char *device;
    int         threads; /* threads per rank; 0: one for each core that this rank may use */
    /* Nonzero `once`: the engine serves one request. If an engine for one request has one rank and
     * the request generates a single image or video, the transformer's weights are freed before
     * decoding. A second request of an engine with `once` set would load the transformer's weights
     * again. */
    int         once;
    /* Binding of threads to CPU cores. bind "auto": if several ranks share a host and the launcher
     * has not bound them to cores, each rank is bound to its share of the host's cores and to the
     * memory node of these cores. Binding sets the affinity of the calling thread; threads and
     * processes that this thread starts inherit the affinity. bind "cores": as "auto", but a single
     * rank is also bound, to as many cores as it has threads. bind "none" or NULL: threads are not
     * bound. The binding to cores remains when the engine is closed. */
    const char *bind;
    /* Parallel plan of the engine; the field `plan` determines how degrees that are 0 are
     * chosen. */
    xd_parallel parallel;
    /* The processes that are the ranks of the engine, as an MPI communicator. mpi_comm NULL: the
     * processes that an MPI launcher has started. If mpi_comm is NULL, the library initializes and
     * finalizes MPI, unless the program has initialized MPI. If mpi_comm is not NULL, it points to
     * an MPI_Comm of a program that has initialized MPI; the engine then has the ranks of this
     * communicator. All messages use duplicates of the program's communicator, which xd_close
     * frees. With a communicator of the program, the library neither initializes nor finalizes MPI,
     * and does not change the program's MPI error handlers. If other processes of the program also
     * need cores, set `threads` to limit the engine. */
    const void *mpi_comm;
    /* short name of a text encoder that is not loaded, for models that can run without it; NULL:
     * load all text encoders */
    const char *without;
    /* Nonzero: text encoders stay loaded between requests, and prompt embeddings are cached, so
     * that a repeated prompt is not encoded again. The cache of prompt embeddings uses up to 256
     * MiB, and at most a sixteenth of the host's free memory. */
    int         keep;
    int         log_level; /* log lines up to this level are passed to `log` */
    void        (*log)(void *cookie, int level, const char *line);
    void       *cookie;
    /* Output file for a timeline of all ranks, which rank 0 writes as a Chrome trace (JSON).
     * chrome://tracing and Perfetto display such files. Each request overwrites the trace file when
     * the request ends. The trace file is also overwritten if the request fails after it was
     * validated. The trace of the first request also has the time of xd_open. trace NULL: no trace
     * is written. */
    const char *trace;
    const xd_component_file *files; /* [nfiles] files that replace the weights of components */
    const xd_lora           *loras; /* [nloras] LoRA files, added in this order */
    int                      nfiles, nloras;
    /* How to choose the degrees of `parallel` that are 0, if there are more ranks than the degrees
     * above 0 use. plan NULL: degrees that are 0 count as 1, and surplus ranks are idle. plan
     * "auto": the plan with the lowest predicted time, among the plans that fit into memory and
     * generate the same image as one rank. "auto-stale": as "auto", but plans with PipeFusion,
     * which uses keys and values of the previous step, are also considered. Rank 0 chooses the plan
     * and logs it at level XD_LOG_INFO. */
    const char              *plan;
    /* Request for which the fastest plan is chosen; NULL: a request with default values. */
    const struct xd_request *plan_for;
    /* The machine for which times are predicted: "8xH100", or a file that `xdit probe` has written.
     * cluster NULL: this machine, with the rates that `xdit probe` has measured or, if there are
     * none, with estimated rates. */
    const char              *cluster;
    /* Distribution of the computation over ranks. balance "measured": the number of tokens,
     * attention heads, transformer blocks and decoded image rows of each rank is proportional to
     * the rank's speed in a short test. balance "adaptive": as "measured", but the numbers of
     * tokens and heads also change between two steps if a rank has become slower or faster. balance
     * "even" or NULL: all ranks have equal shares. */
    const char              *balance;
    /* For measurements only: number of transformer blocks of each kind, "2,4". Text encoders use
     * the first number of `layers`. layers NULL: the numbers of blocks in the configs. */
    const char              *layers;
    /* What to do if weights exceed the memory. offload "auto": as many blocks of the transformer
     * and of text encoders as necessary remain in pinned host memory (on the CPU: in their files),
     * and their weights are fetched while the blocks before them compute. offload "stream": the
     * weights of all blocks stay in host memory or files and are fetched before use, for the lowest
     * memory use. offload "none": a request whose weights do not fit is refused. offload NULL means
     * "auto" on a GPU and "none" on the CPU. Results of requests do not depend on `offload`. */
    const char              *offload;
    /* [nloras_2] LoRA files for the second transformer, if the model has two transformers; the
     * second transformer computes the last (low-noise) steps. The files in `loras` are added to the
     * first transformer and to text encoders. */
    const xd_lora           *loras_2;
    int64_t                  nloras_2;
    /* Tiny autoencoder, which decodes previews: its weight file (TAESD, TAEF2 or TAEHV), its
     * directory (AutoencoderTiny of diffusers), or its name "org/name" in the local Hugging Face
     * cache. NULL: a linear map converts latents to the colours of previews. */
    const char              *preview_decoder;
    /* Memory limit in bytes for weights, activations and kernels. The limit `memory` applies to the
     * sum over all ranks of a host and all engines of the process. With device "cuda", `memory` is
     * the limit for the memory of each GPU. A request that needs more than `memory` bytes is
     * refused. 0: all free memory may be used. */
    int64_t                  memory;
    /* What to do if a request does not fit into memory. fit "auto": the engine tries changes of
     * memory settings one after another until the request fits into memory. fit "auto" tries these
     * changes in this order: `offload` "auto"; then int8 (fp8 if the files store fp8) for weight
     * types that the program has not set; then, on the CPU, int4 for these weight types. The change
     * that makes a request fit is logged and also applies to later requests. "none", NULL: a
     * request that does not fit is refused. */
    const char              *fit;
    /* lora_partial 1: tensors of LoRA files that do not match the model are skipped, and a warning
     * lists the skipped tensors. For example, LoRA files for an image-to-video model have tensors
     * that do not match a text-to-video model. lora_partial 0: a file with such tensors is
     * refused. */
    int64_t                  lora_partial;
    /* verify_weights 1: xd_open compares every byte of all weight files between the ranks, and the
     * error names a file that differs. verify_weights 0: xd_open compares only configs, headers and
     * 64 pages of each file, which takes negligible time. */
    int64_t                  verify_weights;
    /* File of an upscaler, as xd_upscale_args.model (tools.h), with which rank 0 enlarges every
     * result. NULL: results have the size of the request. */
    const char              *upscale;
} xd_open_args;

/* Defaults of all fields of xd_open_args are 0 or NULL, except `size`. */
#define xd_open_args_init(a) xd_open_args_init_size((a), sizeof *(a))
XD_API void xd_open_args_init_size(xd_open_args *a, size_t size);

/* Opens a model: reads the configs and checks the tensors in the files. The first request of an
 * engine loads the weights. Close *g with xd_close; *g is NULL after a failure. All ranks must call
 * xd_open (a collective call). */
XD_API xd_status xd_open(xd_engine **g, const xd_open_args *a, xd_err *e);
XD_API void      xd_close(xd_engine **g);

/* xd_rank returns the rank of this process. xd_ranks returns the number n of ranks that compute a
 * request; ranks n and above are idle. Calls with an engine are collective over all ranks. Only
 * rank 0 gets results, and only rank 0 calls callbacks, unless a callback's comment states that
 * other ranks do.
 *
 * If one rank fails, all ranks return that rank's error, with the rank's number in xd_err.rank, and
 * the engine can be used again. After the error XD_ECOMM, the engine cannot be used again. XD_ECOMM
 * means that messages failed, or that a rank failed at a point where it could not notify the other
 * ranks, which may still wait for it. After XD_ECOMM the program must neither use nor close the
 * engine, and must exit; the MPI launcher kills the other processes. */
XD_API int xd_rank(const xd_engine *g);
XD_API int xd_ranks(const xd_engine *g);

/* Cancels the running request, which soon fails with XD_ECANCELLED. xd_cancel may be called from
 * any thread, and is async-signal-safe. */
XD_API void xd_cancel(xd_engine *g);
/* Cancels the running request as xd_cancel does, but with a reason: the request fails on all ranks
 * with the error message `reason`, which is copied, and xd_err.rank is the calling rank. A program
 * calls xd_cancel_because if one of its callbacks fails on one rank. If a request is cancelled
 * several times, only the first reason is used. xd_cancel_because may be called from any thread,
 * but not from a signal handler. */
XD_API void xd_cancel_because(xd_engine *g, const char *reason);

/* ---- images and requests --------------------------------------------------------------------- */

struct xd_result;

/* An image or a video with 8 bits per channel. Rows of pixels are stored from top to bottom, and
 * frames one after the other. An image that xd_result_image returned can be the input image of the
 * next request. */
typedef struct xd_image {                 /* call xd_image_init, then set fields */
    size_t         size;                  /* sizeof(xd_image) of the program */
    int64_t        frames, height, width; /* number of frames (by default 1), height and width */
    int64_t        stride; /* bytes from one row of pixels to the next; 0: width x channels */
    /* Number of channels. 3: RGB, the default. 4: RGB and alpha, from 0 (transparent) to 255, in
     * results of models whose autoencoder computes alpha, and in input images. Models whose
     * autoencoder reads no alpha ignore that of input images. 1: grey, for input images. */
    int            channels;
    int            reserved; /* must be 0 */
    const uint8_t *data;
    double         fps; /* frames per second of a video; 0: a single image, or several layers */
} xd_image;

#define xd_image_init(i) xd_image_init_size((i), sizeof *(i))
XD_API void xd_image_init_size(xd_image *i, size_t size);

typedef struct xd_progress { /* progress of a request, after a denoising step */
    /* number of the denoising step that has ended, from 1 to `steps`; number of steps */
    int    step, steps;
    /* Number of the image that is denoised, from 1 to `images`; number of images of the request. */
    int    image, images;
    double step_s;        /* seconds of the denoising step that has ended */
    double since_start_s; /* seconds since the start of the request */
    /* timestep of the denoising step that has ended, in the scheduler's scale */
    double timestep;
} xd_progress;

typedef struct xd_texts { /* a list of texts; n 0: none */
    const char *const *v; /* [n] the texts; a NULL entry counts as "" */
    int64_t            n;
} xd_texts;

/* Settings of a request are grouped by subject in structs that have no size field. If a later
 * version adds a setting, the setting's field is added at the end of xd_request. */

/* Further texts of a request. prompt_2 and prompt_3 are texts that the second and the third text
 * encoder read in place of the prompt; they are used for all prompts. negative_prompt_2 and
 * negative_prompt_3 replace the negative prompt in the same way. The pipeline determines which text
 * encoder is the second and which is the third. If prompt_2 or prompt_3 is NULL or "", its text
 * encoder reads the prompt. If negative_prompt_2 or negative_prompt_3 is NULL or "", its text
 * encoder reads the negative prompt. */
typedef struct xd_request_texts {
    const char *prompt_2, *prompt_3, *negative_prompt_2, *negative_prompt_3;
    /* Lists of texts that replace negative_prompt, prompt_2 and so on for the single prompts. Each
     * of these lists of texts has one text per prompt, or a single text for all prompts. */
    xd_texts    negative_prompts, prompts_2, prompts_3, negative_prompts_2, negative_prompts_3;
    int         max_sequence_length; /* maximum number of text tokens; 0: the pipeline's default */
    /* 1 (the default): the pipeline cleans prompts, if it was trained with cleaned prompts: remains
     * of web pages (addresses, tags, file names) are removed. 0: prompts are only converted to
     * lower case. */
    int         clean_caption;
    /* prompt_weighting 1: parts of prompts have weights, in the syntax of the A1111 web interface:
     * (word:1.3), (word) for 1.1, [word] for 1/1.1. BREAK begins a new chunk of 75 tokens, and a
     * long prompt is encoded in several chunks. Only models with CLIP text encoders have
     * prompt_weighting. prompt_weighting 0 (the default): prompts are read as they are. */
    int         prompt_weighting;
    /* Text that the pipeline puts before each prompt, but not before negative prompts, for models
     * that support a system prompt. system_prompt NULL: the pipeline's default. */
    const char *system_prompt;
} xd_request_texts;

/* Input images of a request. Each input image is either a PNG, JPEG, WebP, GIF or PPM file, which
 * is rotated by its Exif orientation, or an array of pixels that replaces the file. Rank 0 reads
 * the pixels of input images during the call. On ranks other than 0, the pixels of input images are
 * ignored and may have any values. If a field is NULL, the request has no such input image. Input
 * images are resized to the size that the model needs. */
typedef struct xd_request_images {
    /* Start image. If the model edits images, `image` is the image that it edits. */
    const char            *image;
    const xd_image        *image_pixels;
    /* [nmore_images] further images after `image`, for models that read several images. Image i is
     * more_pixels[i] or, if more_pixels[i] is NULL, the file more_images[i]. Each of the arrays
     * more_images and more_pixels may be NULL. */
    const char *const     *more_images;
    const xd_image *const *more_pixels;
    int64_t                nmore_images;
    const char *last_image; /* last frame of a video, for models that support a given last frame */
    const xd_image        *last_pixels;
    /* Inpainting mask for `image`, resized to the image's size. Parts of the image where the mask
     * is bright (at least 128 of 255) are generated; the other parts are kept. */
    const char            *mask_image;
    const xd_image        *mask_pixels;
    /* Number of pixels by which the mask's bounding box is extended for inpainting of a crop. The
     * extended bounding box of the mask is cut out, generated at width x height, and pasted back.
     * With padding_mask_crop, the result has the size of the input image. Negative
     * padding_mask_crop: the complete image is generated, without a crop. */
    int64_t                padding_mask_crop;
    /* `strength` is the fraction of the denoising steps that are computed. With `strength`,
     * denoising begins with the start image, to which noise is added. `strength` 0: the pipeline's
     * default. */
    double                 strength;
    /* Nonzero: reference images keep their size, even if the model was trained with certain sizes
     * of reference images. 0: reference images are resized to one of the sizes with which the model
     * was trained. */
    int                    no_auto_resize;
    int                    reserved; /* must be 0 */
    /* Control image, which some models read in addition to the noise: edges, depth or similar,
     * computed from a photo. The control image is resized to the output's size. */
    const char            *control_image;
    const xd_image        *control_pixels;
    /* Control video, which some models read in addition to the noise: edges, depth, poses or the
     * video to change. control_video names a file (a video, an image, or a folder of images);
     * control_frames has the frames in memory. The control video must have at least as many frames
     * as the output; further frames are not read. The mask of the control video is mask_image, a
     * video or a single image for all frames. */
    const char            *control_video;
    const xd_image        *control_frames;
    /* Scales of the residuals that the control video or the control networks add.
     * conditioning_scale is one number, or a comma-separated list with one number for each control
     * block of the transformer or for each control network. NULL: 1. */
    const char            *conditioning_scale;
    /* [nmore_control_images] control images of the control networks after the first one. Control
     * image i is more_control_pixels[i] or, if that is NULL, the file more_control_images[i]. */
    const char *const     *more_control_images;
    const xd_image *const *more_control_pixels;
    int64_t                nmore_control_images;
    /* Fractions of the denoising steps at which the influence of control networks begins and ends.
     * Each of the two fields is one number, or a list with one number for each control network.
     * control_guidance_start NULL: 0; control_guidance_end NULL: 1. */
    const char            *control_guidance_start, *control_guidance_end;
    /* Positions of given frames in a video, and their strengths. `image` and more_images are images
     * or videos, and image i is placed at the frame whose number is entry i of the list frame_index
     * ("0,80"; NULL: 0). condition_strength has the strength of each image from 0 to 1 ("1,0.5";
     * NULL: `strength`, or else 1). frame_index and condition_strength may also be one number for
     * all images. */
    const char            *frame_index, *condition_strength;
    /* Factor of the noise that each step adds to given frames of strength 1: the noise's standard
     * deviation is this factor times the square of the step's noise level. Negative
     * image_cond_noise_scale: the pipeline's default. */
    double                 image_cond_noise_scale;
    /* Kinds of the control images, for control networks that support several kinds ("Union"): one
     * number, or one number for each network ("0,4"). Control networks of several kinds require
     * control_mode. */
    const char            *control_mode;
    /* How the control images are computed from the images that are given: "canny", "canny:100:200"
     * (thresholds), "tile", "tile:8", "gray", "blur", "blur:9" (sigma) or "none"; one name for all
     * control images, or a comma-separated list with one for each. NULL: images are control images
     * already. doc/controlnet.md defines the names. */
    const char            *control_preprocess;
} xd_request_images;

/* Settings of the scheduler and of the noise levels of its steps. */
typedef struct xd_request_schedule {
    /* Name of a scheduler (listed by xd_request_options); NULL: the model's scheduler. */
    const char *scheduler;
    /* Shift of the noise levels (sigmas) of rectified flow. flow_shift also replaces a shift that
     * depends on the image size. 0: the shift in the scheduler's config. */
    double      flow_shift;
    /* Lists of the noise levels (sigmas) or the timesteps of all steps, "1,0.75,0.5", for
     * schedulers that accept lists. If a list is NULL, its values are computed from
     * num_inference_steps. */
    const char *sigmas, *timesteps;
    /* Values that replace the values in scheduler_config.json whose keys have the names of these
     * fields. If a field is 0 or NULL, the value in scheduler_config.json is unchanged; for eta and
     * shift_terminal, a negative number means unchanged. The fields use_karras_sigmas to
     * stochastic_sampling are true or false in scheduler_config.json; here 1 stands for true and -1
     * for false. use_flow_sigmas also sets prediction_type to flow_prediction. */
    int         use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas, use_flow_sigmas;
    int         stochastic_sampling, solver_order;
    const char *algorithm_type, *solver_type, *timestep_spacing, *final_sigmas_type;
    double      eta; /* eta of DDIM and TCD, from 0 to 1 */
    /* The noise levels are stretched so that the last one has the value shift_terminal. 0: no
     * stretching. */
    double      shift_terminal;
    /* Timesteps of the scheduler scm, in radians: the first timestep, and the second timestep if
     * there are two steps (0: steps of equal length). Negative max_timesteps or
     * intermediate_timesteps: the pipeline's default. */
    double      max_timesteps, intermediate_timesteps;
} xd_request_schedule;

typedef struct xd_request_guidance {
    /* Classifier-free guidance scale for models whose guidance_scale is a distilled input. If
     * true_cfg_scale is above 1 and there is a negative prompt, each step also computes a
     * prediction with the negative prompt. 0: the pipeline's default, usually no second
     * prediction. */
    double      true_cfg_scale;
    /* Settings for models with two transformers, one for high and one for low noise.
     * guidance_scale_2 is the guidance scale of the second transformer (negative: guidance_scale).
     * boundary_ratio is the noise level, as a fraction of the training timesteps, below which the
     * second transformer is used (negative: the model's default). */
    double      guidance_scale_2, boundary_ratio;
    /* Guidance rescale (Lin et al. 2023, section 3.4), for models that support it: scales the
     * guided prediction so that its standard deviation approaches the standard deviation of the
     * conditional prediction. 0: off. 1: the standard deviations become equal. Negative
     * guidance_rescale: the pipeline's default, usually 0. */
    double      guidance_rescale;
    /* Maximum norm of the guided prediction, as a multiple of the conditional prediction's norm,
     * for models that support a limit; 0: no limit. For some models, cfg_normalization instead sets
     * the norm of each row of latents to the norm of the conditional prediction's row; 0: off.
     * Negative cfg_normalization: the pipeline's default. */
    double      cfg_normalization;
    /* Guidance is used only in the first part of the denoising, from noise towards the image, for
     * models that support guidance truncation. cfg_truncation is the length of the first part as a
     * fraction of the way from noise to image. 1: guidance is used in all steps. */
    double      cfg_truncation;
    /* Fraction of the steps that use guidance, for models that count steps in place of noise
     * levels. */
    double      cfg_trunc_ratio;
    int         use_dynamic_cfg; /* 1: the guidance scale increases from step to step */
    int         reserved;        /* must be 0 */
    /* Transformer layers that the third pass of skip layer guidance omits, "7,8,9", for models that
     * support skip layer guidance. In step i of n steps, if start < i / n < stop, a third
     * prediction is computed with the prompt and without the skipped layers. The difference between
     * the conditional prediction and the prediction without the skipped layers is multiplied by
     * skip_layer_guidance_scale and added to the guided prediction. skip_guidance_layers NULL: no
     * pass with skipped layers is computed. */
    const char *skip_guidance_layers;
    double      skip_layer_guidance_scale, skip_layer_guidance_start, skip_layer_guidance_stop;
} xd_request_guidance;

typedef struct xd_request_noise {
    /* Random generator of noise: "philox", or "torch" (the numbers of PyTorch on the CPU). */
    const char  *rng;
    /* Initial noise, used in place of noise drawn from the seed: [count] normally distributed
     * values. The initial noise has the layout [frames,channels,rows,columns] of the latents for
     * each image, like the tensor "noise" that on_tensor gets. Rank 0 reads the values of the
     * initial noise during the call. On other ranks, the initial noise is ignored. Initial noise
     * NULL: noise is drawn from the seed. */
    const float *values;
    int64_t      count;
} xd_request_noise;

/* Methods that save time while images are generated. Values other than the defaults change the
 * image, unless a field's comment states otherwise. */
typedef struct xd_request_savings {
    /* How attention scores Q K^T are computed in the transformer. NULL, "auto": attention scores
     * are computed in the compute type. "int8": attention scores are computed from Q and K that are
     * quantized to int8, which is faster and slightly less accurate, if the device supports it. */
    const char *attention;
    /* Type of the inputs of GEMMs with fp8 weights in the transformer. gemm NULL or "auto": GEMMs
     * have inputs of the compute type. "fp8": inputs are quantized to fp8, which is faster and less
     * accurate, if the device supports it. */
    const char *gemm;
    /* Name and options of a step cache. A step cache skips blocks in some steps, and adds the
     * blocks' effect of an earlier step. Examples of step caches: "fbcache:0.12",
     * "dbcache:Fn=8,threshold=0.08", "teacache:0.2", "taylorseer". NULL, "none": every step
     * computes every block. */
    const char *cache;
    /* Size of the window of local attention, "T,H,W". An image token attends to the tokens in a box
     * of T frames, H rows and W columns around it, and to all text and reference tokens. If T, H or
     * W is 0, the window extends over the complete axis. NULL: full attention. */
    const char *attention_window;
    /* DiTFastAttn, which makes attention cheaper in some steps: it reuses the attention output of
     * the previous step, shares an attention output between the CFG passes, or restricts attention
     * to a window. fast_attn is either a list of methods, "share,full", which are repeated in this
     * order after the first step; or the name of a file "*.json" with the method of each block and
     * step, as `xdit calibrate` or xDiT writes it. Names of methods in fast_attn: full, full+cfg,
     * window, window+cfg, share. fast_attn NULL: attention is full in all steps. */
    const char *fast_attn;
    /* Interval, in steps, at which keys and values of reference images are computed. In the other
     * steps, the keys and values of reference images are reused, and no reference tokens are
     * computed. 1: computed in every step. 0: computed only in the first step. For models that are
     * trained with reused keys and values, the image does not change. */
    int64_t     reference_interval;
} xd_request_savings;

typedef struct xd_request_output {
    /* Length of a video in seconds, in place of num_frames. The nearest number of frames that the
     * model supports is generated. 0: num_frames is used. */
    double      seconds;
    /* Area in pixels. If the model's output size depends only on the ratio of width and height: the
     * area of the output. If the model resizes reference images and keeps their ratio of width and
     * height: the area of reference images. max_area 0: the model's default area. */
    int64_t     max_area;
    /* Quality of JPEG and WebP files that xd_result_save writes, 0 to 100. Negative output_quality:
     * quality 95. */
    int64_t     output_quality;
    /* 1: keep width and height; 0: use the nearest size with which the model was trained */
    int         no_resolution_binning;
    int         latents_only;  /* 1: return only latents, without decoding them to images */
    int         enable_tiling; /* 1: decode in tiles, which needs less memory */
    /* omit_folders 1: the parameters that are stored with results have only the last component of
     * the paths of models and files, so that results can be published without names of folders. For
     * a model of the Hugging Face cache, the stored name is "org/name". */
    int         omit_folders;
    /* Hashes for a check of determinism (xd_result_hashes). "none" or NULL: no hashes.
     * determinism_check "steps": hashes of the latents after each step. determinism_check "blocks":
     * as "steps", and also hashes of the hidden state after each transformer block, in each
     * guidance pass. Ranks that compute the same values compare their hashes, and the request fails
     * with XD_EDEVICE if the hashes differ. */
    const char *determinism_check;
    /* With enable_tiling: height and width of a VAE tile, and the rows and columns that
     * neighbouring tiles share, in pixels. Tile sizes and overlaps are multiples of the number of
     * pixels per latent row or column, and an overlap is less than the tile size. Tile size 0: the
     * default tile size of diffusers. Overlap -1: the same fraction of a tile as in diffusers. */
    int64_t     vae_tile_size_height, vae_tile_size_width;
    int64_t     vae_tile_overlap_height, vae_tile_overlap_width;
} xd_request_output;

/* Settings for autoencoders whose decoder reads a timestep. decode_timestep is the decoder's
 * timestep, 0 to 1. decode_noise_scale is the weight of noise in the latents that are decoded. If a
 * value is negative, the pipeline's default is used: 0 for decode_timestep, and the value of
 * decode_timestep for decode_noise_scale. */
typedef struct xd_request_decoding {
    double decode_timestep, decode_noise_scale;
} xd_request_decoding;

/* Sizes that the transformer reads as conditions, for models that were trained with such
 * conditions. Each size is a pair of numbers in pixels, "1024,768". original_size: height and width
 * of the image before it was cropped; crops_coords_top_left: top and left of the crop; target_size:
 * height and width of the result. A size that is NULL has the pipeline's default, usually the size
 * of the result, and "0,0" for crops_coords_top_left. By default, the sizes for the negative prompt
 * are those for the prompt. Without an input image, sizes for the negative prompt have an effect
 * only if both the original size and the target size are given. */
typedef struct xd_request_sizes {
    const char *original_size, *crops_coords_top_left, *target_size;
    const char *negative_original_size, *negative_crops_coords_top_left, *negative_target_size;
} xd_request_sizes;

/* Checkpoint files, from which an interrupted request continues. dir: a folder, which is created if
 * it is missing. The folder has a checkpoint file for each image that is not complete, with the
 * latents after the last saved step. A request with the same model, prompt and options continues
 * from the checkpoint file, also with another plan or number of ranks. The continued image differs
 * slightly from an uninterrupted one if the plan or the step cache is not exact. A checkpoint file
 * of another request is refused. With data parallelism on several hosts, all hosts must share the
 * folder. dir NULL: no checkpoint files. steps: a checkpoint file is written after every `steps`-th
 * step; 0: after every step. seconds: minimum time between two checkpoint files, so that steps that
 * end earlier write no file; 0: no minimum. */
typedef struct xd_request_checkpoint {
    const char *dir;
    int64_t     steps;
    double      seconds;
} xd_request_checkpoint;

/* Previews of the image during denoising. `count` is the number of previews per image, which are
 * distributed evenly over the steps. If `every` is n, there is a preview after every n-th step. If
 * `count` and `every` are both 0, there are no previews. A preview is an image of at most 512 x 512
 * pixels, decoded from the clean latents that a step predicts. The preview of a video shows its
 * first frame. Previews do not change the generated image. All ranks must pass the same values of
 * `count` and `every`. */
typedef struct xd_request_previews { int count, every; } xd_request_previews;

/* Callback functions of the program for a request; NULL: no function is called. `cookie` is the
 * first argument of all callbacks of a request. */
typedef struct xd_request_callbacks {
    void     *cookie;
    /* Called when a stage of the request begins. `stage` is "text", "load", "denoise" or
     * "decode". */
    void      (*on_stage)(void *cookie, const char *stage);
    void      (*on_step)(void *cookie, const xd_progress *p); /* called after each denoising step */
    /* Called on rank 0 before any weights are loaded, once for each image i (from 0), with the
     * image's number of frames. If `wanted` returns 0, the image is skipped on all ranks, and the
     * result has no data for the image. wanted NULL: all images are generated. */
    int       (*wanted)(void *cookie, int i, int64_t frames);
    /* Called when image i (from 0) is complete and may be saved. The result `partial` has the
     * images 0 to i. If on_image returns a nonzero status, the request stops with this status. */
    xd_status (*on_image)(void *cookie, const struct xd_result *partial, int i, xd_err *e);
    /* Called with intermediate tensors, which are f32 and contiguous, for tests that compare them
     * with a reference. Names of tensors: "ids", "prompt_embeds", "negative_prompt_embeds",
     * "noise"; "latents" ([C,H,W], for a video [T,C,H,W]), after each step; "condition", the
     * channels that image-to-video transformers read in addition to the latents; "image" ([H,W,3],
     * for a video [T,H,W,3]), with values in [0,1]. For "latents", `step` is the number of the
     * step. For tensors of a text, `step` is the number of the text. For other tensors, `step` is
     * 0. */
    void      (*on_tensor)(void *cookie, const char *name, int step, int nd, const int64_t *d,
                           const float *data);
    /* Called after each step, after on_tensor and before on_step, with the latents in the layout of
     * on_tensor. The callback may change the latents. on_latents returns 1 if it has changed the
     * latents, and the request continues with the new values; otherwise it returns 0. All ranks
     * that compute the image call on_latents; the values of the lowest of these ranks are used.
     * on_latents must be set on all ranks or on none. */
    int  (*on_latents)(void *cookie, const xd_progress *p, int nd, const int64_t *d, float *data);
    /* on_preview is called with each preview, after on_step. Without data parallelism, only rank 0
     * calls on_preview. With data parallelism, the first rank of each replica calls on_preview for
     * the replica's own image. */
    void (*on_preview)(void *cookie, const xd_image *image, const xd_progress *p);
    /* Called at points where the program can do other work: between two steps, images, VAE tiles or
     * chunks of frames, and between texts if xd_open_args.keep is set. All ranks call on_turn
     * equally often. on_turn may generate with other engines, including an engine that
     * xd_open_beside has opened; the request continues when on_turn returns. If on_turn returns a
     * failure status, the request stops. on_turn is not called with data parallelism or if there
     * are idle ranks. xd_result_seconds does not include the time spent in on_turn. */
    xd_status (*on_turn)(void *cookie, xd_err *e);
} xd_request_callbacks;

/* Enlarging of latents, with an engine that has a latent upsampler (component "latent_upsampler" of
 * xd_open_args.files). A first pass denoises latents of a smaller size, in the request's number of
 * steps, and the latent upsampler enlarges them to the size of the request. If denoise_strength is
 * above 0, or the pipeline has sigmas for a second pass, noise is added to the enlarged latents,
 * and a second pass denoises them. */
typedef struct xd_request_upsampling {
    /* Fraction of the second pass's steps that run. Negative denoise_strength: there is no second
     * pass. */
    double      denoise_strength;
    /* Fraction, above 0, by which the mean and deviation of each channel of enlarged latents become
     * those of the smaller latents (AdaIN). */
    double      adain_factor;
    /* Compression of large values of enlarged latents, from 0 (none) to 1. */
    double      tone_map_compression_ratio;
    /* Number of steps, timesteps and sigmas of the second pass, with the meaning of
     * num_inference_steps and of the lists in xd_request_schedule. 0 and NULL: the values of the
     * first pass, or the pipeline's sigmas for a second pass. */
    int64_t     num_inference_steps;
    const char *timesteps, *sigmas;
} xd_request_upsampling;
/* Guidance of models that generate a video and its audio. The guided prediction is the prompt's
 * prediction, plus scaled differences between this prediction and the predictions of other passes.
 * Fields whose names begin with audio_ are for the audio. If a field for the audio is 0, the value
 * of the video's field is used. Negative scales stand for the pipeline's defaults. */
typedef struct xd_request_audio {
    /* values of guidance_scale and guidance_rescale for the audio */
    double      audio_guidance_scale, audio_guidance_rescale;
    /* Scale of a guidance pass in which video and audio do not attend to each other. 1: the pass is
     * not computed. */
    double      modality_scale, audio_modality_scale;
    /* Factor of spatio-temporal guidance, a pass whose attention returns each token's own values in
     * some blocks. 0: the pass is not computed. */
    double      stg_scale, audio_stg_scale;
    /* Blocks whose attention spatio-temporal guidance changes, "28,29".
     * spatio_temporal_guidance_blocks NULL: the pipeline's default. */
    const char *spatio_temporal_guidance_blocks;
    int         no_audio; /* 1: latents of audio are not decoded, and results have no sound */
    int         reserved; /* must be 0 */
} xd_request_audio;

/* Image variation: images that a prior (the component file "redux") turns into rows of every
 * prompt. The text embeddings of an empty prompt are replaced by zeros. */
typedef struct xd_request_redux {
    /* file of the first image, as in xd_request_images; NULL: no image */
    const char            *image;
    const xd_image        *image_pixels;
    /* [nmore_images] images after the first one, as in xd_request_images */
    const char *const     *more_images;
    const xd_image *const *more_pixels;
    int64_t                nmore_images;
    /* Weights of the images in the sum of their embeddings, and in the sum of their pooled
     * embeddings: one number, or a comma-separated list with one number for each image; NULL: all
     * weights are 1. */
    const char            *prompt_embeds_scale, *pooled_prompt_embeds_scale;
} xd_request_redux;

/* Generation at two sizes. A first pass generates latents of the request's size, which are enlarged
 * by `scale`. A second pass adds noise to the enlarged latents and denoises them as image-to-image
 * does, so that the image has `scale` times the width and height. */
typedef struct xd_request_hires {
    double      scale; /* factor of width and height, above 1; 0: there is no second pass */
    /* Fraction of the second pass's steps that run, as xd_request_images.strength; 0: 0.7. */
    double      strength;
    int64_t     steps;    /* number of steps of the second pass; 0: as in the first pass */
    const char *upscaler; /* "bilinear" or "nearest": how latents are enlarged; NULL: bilinear */
} xd_request_hires;

/* Videos that drive a character: the character of xd_request_images.image gets the poses of one
 * video and the expressions of another. To replace a person of a video, control_video is that video
 * and mask_image its mask, a video or an image that is bright where the person is. The result has
 * as many frames as the pose video, or num_frames; shorter videos are continued backwards, then
 * forwards again. */
typedef struct xd_request_driving {
    /* Files (a video, an image, or a folder of images), or frames in memory, as for
     * xd_request_images.control_video. */
    const char     *pose_video, *face_video;
    const xd_image *pose_frames, *face_frames;
    /* "animate", or "replace" with a control_video and its mask. NULL: what the videos imply. */
    const char     *mode;
    /* A long video is generated in segments of segment_frame_length frames, each of which begins
     * with the last prev_segment_conditioning_frames frames of the segment before. 0: the
     * pipeline's defaults. */
    int             segment_frame_length, prev_segment_conditioning_frames;
} xd_request_driving;

typedef struct xd_request {     /* call xd_request_init, then set fields */
    size_t             size;    /* sizeof(xd_request) of the program */
    const char *const *prompts; /* [nprompts] prompts, UTF-8 */
    int                nprompts;
    const char *negative_prompt; /* text that describes what the image should not have; NULL: "" */
    /* size in pixels; 0: the size of the input image or, if there is none, the model's default */
    int64_t     width, height;
    int         num_frames;          /* number of frames of a video; 0: the model's default */
    double      fps;                 /* frames per second in a video file; 0: the model's rate */
    int         num_inference_steps; /* number of denoising steps; 0: the pipeline's default */
    double      guidance_scale;      /* guidance scale; negative: the pipeline's default */
    int64_t     seed;        /* seed of 64 bits; to pass a seed above 2^63 - 1, subtract 2^64 */
    int         random_seed; /* 1: ignore `seed`; rank 0 draws a random seed */
    int         num_images_per_prompt; /* number of images for each prompt, 1 by default */
    xd_request_texts      texts;
    xd_request_images     images;
    xd_request_schedule   schedule;
    xd_request_guidance   guidance;
    xd_request_noise      noise;
    xd_request_savings    savings;
    xd_request_output     output;
    xd_request_previews   previews;
    xd_request_callbacks  callbacks;
    xd_request_decoding   decoding;
    xd_request_sizes      sizes;
    xd_request_checkpoint checkpoint;
    xd_request_upsampling upsampling;
    xd_request_audio      audio;
    /* Number of layers into which the model separates the image, for models whose result is a stack
     * of layers. The result has a frame for each layer. `layers` 0: the pipeline's default. */
    int64_t               layers;
    xd_request_redux      redux;
    xd_request_hires      hires;
    /* File with the initial noise, in place of noise.values: .npy (float32, float16) or
     * .safetensors (F32, F16, BF16; the tensor "latents", or the only one). The shape is that of
     * the argument `latents` of diffusers, unpacked: [B,C,h,w] for images; for videos and layers
     * [B,T,C,h,w] or, if the pipeline of diffusers has this order, [B,C,T,h,w]. B may be missing if
     * it is 1. Only rank 0 reads the file. */
    const char           *latents;
    xd_request_driving    driving;
} xd_request;

#define xd_request_init(r) xd_request_init_size((r), sizeof *(r))
XD_API void xd_request_init_size(xd_request *r, size_t size);

/* ---- the result ------------------------------------------------------------------------- */

typedef struct xd_result xd_result; /* images that one request has generated */

/* Generates nprompts x num_images_per_prompt images and returns them in *out. Free *out with
 * xd_result_free; *out is NULL after a failure. xd_generate is collective: all ranks must pass
 * equal requests. Only pixels, noise values and callbacks of the request may differ between the
 * ranks. */
XD_API xd_status xd_generate(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e);
XD_API int       xd_result_count(const xd_result *r); /* returns the number of images of a result */
/* Returns image i as pixels of 3 or 4 channels (xd_image.channels) without gaps between rows, or
 * NULL if the result has only latents. */
XD_API const xd_image *xd_result_image(const xd_result *r, int i);
/* Returns the seed of image i as an int64_t, as in xd_request.seed. In an image's parameters
 * (xd_result_json), the seed is printed as a number from 0 to 2^64 - 1, as in torch. */
XD_API int64_t         xd_result_seed(const xd_result *r, int i);
/* xd_result_json returns the parameters of image i as a JSON object. xd_result_parameters returns
 * the parameters of image i in the text format of A1111 (stable-diffusion-webui). */
XD_API const char     *xd_result_json(const xd_result *r, int i);
XD_API const char     *xd_result_parameters(const xd_result *r, int i);
/* Returns the seconds of one part of the request: "text", "load", "denoise", "decode", "total", or
 * "first_step". Returns -1 if the time of this part of the request is unknown. */
XD_API double          xd_result_seconds(const xd_result *r, const char *part);
/* Writes image i to a file. The file name extension of `path` selects the format. Image formats are
 * .png .jpg .jpeg .webp .ppm; .safetensors stores latents. Video formats are .mp4 .mov .mkv .webm
 * .gif .rgb (frames of raw pixels without a header). If a video is saved with the extension of an
 * image format, each frame is saved as a file. For a video that is saved as images, a %d (or %04d)
 * in `path` is replaced by the frame number, from 1; if there is no %d, "_%04d" is inserted before
 * the extension. The output file is written atomically: it is complete, or it does not exist. */
XD_API xd_status       xd_result_save(const xd_result *r, int i, const char *path, xd_err *e);
XD_API void            xd_result_free(xd_result **r);

#ifdef __cplusplus
}
#endif

#endif
