/* xdit_flags.c - the table of xDiT's command line flags; see xdit_flags.h */
#include "cli/xdit_flags.h"

#include <string.h>

#define SAME(name, takes, in, there, here) \
    { name, takes, in, XD_FLAG_SAME, NULL, there, here }
#define OTHER(name, takes, in, own, there, here) \
    { name, takes, in, XD_FLAG_OTHER, own, there, here }
#define VALUE(name, takes, in, own, there, here)                                                   \
    {                                                                                              \
        name, takes, in, XD_FLAG_VALUE, own, there, here                                           \
    }
#define NONE(name, takes, in, there, here) \
    { name, takes, in, XD_FLAG_NOT_NEEDED, NULL, there, here }
#define SLOWER(name, takes, in, there, here) \
    { name, takes, in, XD_FLAG_SLOWER, NULL, there, here }
#define REFUSED(name, takes, in, there, here) \
    { name, takes, in, XD_FLAG_REFUSED, NULL, there, here }

#define ONE_ATTENTION \
    "there is one implementation of attention, which supports every degree"
#define SAME_TILES    "the same; width and height need not be given together"
#define NO_FP8_SENT   "messages between ranks have the type of the activations"
#define SHARED        "the ranks of a host share one copy of their common weights"
#define NO_FP4        "GEMMs in four bits are not supported; use --weights_dtype int8 for eight"
#define NO_SPARSE     "option of a sparse attention; here attention reads all keys"
#define BELONGS(flag) "belongs to --" flag

const xd_xdit_flag xd_xdit_flags[] = {
    /* flags of xDiT about the model */
    SAME("model", 's', 'b', "Hugging Face name or directory; names are downloaded",
         "the same: a directory, or a name in the local Hugging Face cache; xdit downloads "
         "nothing"),
    NONE("download_dir", 's', 'e', "parsed, not used",
         "xdit downloads nothing; HF_HUB_CACHE names the cache"),
    NONE("trust_remote_code", 0, 'e', "parsed, not used", "xdit runs no code from models"),
    /* flags of xDiT about the request */
    SAME("prompt", 'S', 'b', "one or more prompts", "the same; write --prompt before each"),
    SAME("negative_prompt", 'S', 'b', "one, or one per prompt",
         "the same; write --negative_prompt before each"),
    SAME("height", 'i', 'b', "default 1024; in the runner the model's",
         "the same; default: the model's"),
    SAME("width", 'i', 'b', "default 1024; in the runner the model's",
         "the same; default: the model's"),
    SAME("num_frames", 'i', 'b', "default 49; in the runner the model's",
         "the same; default: the model's"),
    SAME("num_inference_steps", 'i', 'b', "default 20; in the runner the model's",
         "the same; default: the pipeline's"),
    SAME("guidance_scale", 'r', 'b',
         "default 3.5; in the runner the model's; some scripts ignore it",
         "the same; default: the pipeline's"),
    SAME("max_sequence_length", 'i', 'b', "default 256; some scripts ignore it",
         "the same; default: the pipeline's"),
    SAME("flow_shift", 'r', 'r', "shift of the timesteps (Wan)",
         "the same, for every rectified-flow model whose scheduler does not shift by size"),
    SAME("seed", 'i', 'b', "default 42; noise is drawn on the GPU",
         "the same, default 0; the noise is equal on all machines, so images differ from a GPU's"),
    OTHER("no_use_resolution_binning", 0, 'e', "no_resolution_binning", "generate the given size",
          "the same"),
    OTHER("img_file_path", 's', 'e', "image", "image to start from", "the same"),
    OTHER("input_images", 'S', 'r', "image", "images to start from, files or URLs",
          "the same, for files"),
    NONE("resize_input_images", 0, 'r', "resize and crop them to the given size", "always on"),
    NONE("output_type", 's', 'e', "pil, latent or pt",
         "the extension of --output decides; .safetensors for latents"),
    NONE("caption_file", 's', 'f', "prompts of the COCO data set, a JSON file",
         "write the captions into a file, one per line, for --prompts"),
    NONE("sample_images_folder", 's', 'f', "output directory",
         "--output DIR/%05d.png numbers them"),
    NONE("output_directory", 's', 'r', "output directory of images, timings and profiles",
         "use --output DIRECTORY/FILE, which from-xdit and run write"),
    NONE("task", 's', 'r', "task of a model that has several",
         "depends on the pipeline and on --image"),
    NONE("batch_size", 'i', 'r', "prompts of a data set per batch",
         "images are generated one by one, or by groups of ranks with --data_parallel_degree"),
    OTHER("dataset_path", 's', 'r', "prompts", "a CSV file with a column prompt", "the same"),
    SAME("guidance_scale_2", 'r', 'r', "guidance of the second transformer (Wan 2.2)", "the same"),
    OTHER("distilled_transformer_path", 's', 'r', "transformer", "weights of a distilled Wan 2.2",
          "the same; its steps are --timesteps or --num_inference_steps"),
    OTHER("distilled_transformer_2_path", 's', 'r', "transformer_2",
          "weights of its second transformer", "the same"),
    /* flags of xDiT about ranks and parallel degrees */
    SAME("ulysses_degree", 'i', 'b',
         "ranks that share the tokens, by heads; must divide the "
         "number of heads",
         "the same; heads need not be divisible"),
    SAME("ring_degree", 'i', 'b',
         "ranks that share the tokens, as a ring; needs a suitable attention backend",
         "the same; tokens need not be divisible"),
    SAME("use_cfg_parallel", 0, 'b', "doubles the processes: one half for the negative prompt",
         "the same"),
    SAME("pipefusion_parallel_degree", 'i', 'b', "pipeline stages, for some models",
         "the same, for every model"),
    SAME("num_pipeline_patch", 'i', 'e', "patches per image; default: the number of stages",
         "the same; 1 is exact"),
    SAME("warmup_steps", 'i', 'e', "exact steps before stale keys and values; default 1",
         "the same; the first step is always exact"),
    SAME("attn_layer_num_for_pp", 'I', 'e', "blocks of each stage, separated by spaces",
         "the same, with commas: 10,9,9; default: stages of equal cost"),
    SAME("tensor_parallel_degree", 'i', 'b', "only Step-Video, and the feed-forwards of FLUX",
         "the same, for every model"),
    SAME("data_parallel_degree", 'i', 'b', "groups of processes for different prompts", "the same"),
    SAME("use_parallel_vae", 0, 'b', "decode in bands of rows; not CogVideoX, ConsisID, SANA",
         "the same, for every model"),
    NONE("split_scheme", 's', 'e', "parsed, not used", "the split depends on the layer"),
    NONE("dit_parallel_size", 'i', 'e', "processes for the transformer; 0: all",
         "follows from the degrees and --nproc"),
    NONE("vae_parallel_size", 'i', 'e', "processes that only decode (Ray)",
         "there are no ranks for decoding only; --use_parallel_vae decodes on all"),
    NONE("use_ray", 0, 'e', "workers of Ray instead of torchrun",
         "xdit, or mpirun, starts the ranks"),
    OTHER("ray_world_size", 'i', 'e', "nproc", "workers of Ray", "ranks to start"),
    NONE("shard_dit", 0, 'e', "FSDP of the transformer",
         SHARED "; --tensor_parallel_degree splits them"),
    OTHER("text_encoder_tp_degree", 'i', 'b', "text_tensor_parallel_degree",
          "processes that split the text encoder", "the same, for every text encoder"),
    NONE("shard_t5_encoder", 0, 'e', "FSDP of the T5",
         "one rank encodes and then frees the weights; --text_tensor_parallel_degree N splits "
         "them"),
    NONE("fully_shard_degree", 'i', 'r', "FSDP of transformer and text encoder",
         SHARED "; --tensor_parallel_degree and --pipefusion_parallel_degree split them"),
    NONE("no_reshard_after_forward", 0, 'r', "FSDP keeps gathered weights",
         BELONGS("fully_shard_degree")),
    NONE("memory_efficient_sharding", 0, 'r', "FSDP loads block by block",
         "weights are always read tensor by tensor"),
    NONE("memory_efficient_replicated_load", 0, 'r', "one process reads and sends the weights",
         SHARED),
    /* flags about memory */
    SAME("enable_sequential_cpu_offload", 0, 'b', "keep weights in host memory, layer by layer",
         "the same as --offload stream; on the CPU, weights stay in their files"),
    SAME("enable_model_cpu_offload", 0, 'b', "keep weights in host memory, model by model",
         "the same as --offload auto, the default on a GPU"),
    VALUE("enable_group_cpu_offload", 0, 'b', "offload stream",
          "keep weights in host memory, copied ahead of their use",
          "use --offload stream, which copies the next block during a block"),
    NONE("group_offload_low_cpu_mem", 0, 'r', "pin each tensor by itself",
         "ranks of a host share one pinned copy"),
    SAME("enable_tiling", 0, 'b', "decode in tiles", "the same"),
    NONE("enable_slicing", 0, 'b', "decode one image at a time", "always on"),
    SAME("vae_tile_size_height", 'i', 'b', "height of a tile", SAME_TILES),
    SAME("vae_tile_size_width", 'i', 'b', "width of a tile", SAME_TILES),
    SAME("vae_tile_overlap_height", 'i', 'b', "rows that two tiles share", SAME_TILES),
    SAME("vae_tile_overlap_width", 'i', 'b', "columns that two tiles share", SAME_TILES),
    NONE("use_vae_channels_last_format", 0, 'r', "memory layout of the VAE",
         "the kernels choose the layout"),
    /* flags about speed */
    NONE("use_torch_compile", 0, 'b', "torch.compile of the transformer",
         "xdit is a compiled program"),
    NONE("use_onediff", 0, 'e', "OneDiff's compiler", "xdit is a compiled program"),
    NONE("attention_backend", 's', 'b', "attention kernel; some of them support ring",
         ONE_ATTENTION),
    NONE("cross_attention_backend", 's', 'r', "kernel of cross-attention", ONE_ATTENTION),
    VALUE("use_teacache", 0, 'b', "cache teacache:0.12", "skip steps that change little (FLUX)",
          "use --cache teacache:0.12, which works with every method"),
    NONE("wan_teacache_thresh", 'r', 'e', "threshold of TeaCache (Wan)", BELONGS("use_teacache")),
    NONE("wan_teacache_use_ret_steps", 0, 'e', "variant of TeaCache (Wan)",
         BELONGS("use_teacache")),
    VALUE("use_fbcache", 0, 'b', "cache fbcache:0.12",
          "skip blocks when the first changes little (FLUX)",
          "use --cache fbcache:0.12, which works with every model and method"),
    OTHER("cache_method", 's', 'b', "cache", "step cache: teacache, fbcache or dbcache",
          "the same"),
    REFUSED("cache_config", 's', 'b', "options of the step cache, in JSON",
            "write the options after the cache's name, as in --cache "
            "fbcache:residual_diff_threshold=0.1"),
    VALUE("use_fp8_t5_encoder", 0, 'e', "text_weights_dtype fp8", "T5 in float8",
          "use --text_weights_dtype fp8; one rank reads the weights and frees them after use"),
    VALUE("use_fp8_text_encoder", 0, 'b', "text_weights_dtype fp8", "text encoder in float8",
          "use --text_weights_dtype fp8"),
    VALUE("use_fp8_gemms", 0, 'b', "weights_dtype fp8", "GEMMs in float8",
          "use --weights_dtype fp8, which halves the memory, and on GPUs --gemm fp8, which also "
          "rounds "
          "inputs; int8 is faster on CPUs"),
    VALUE("use_int8_gemms", 0, 'b', "weights_dtype int8", "GEMMs in int8",
          "use --weights_dtype int8"),
    OTHER("gemm_quantization", 's', 'b', "weights_dtype", "GEMMs in fp8, fp6, fp4 or int8",
          "the same for fp8 and int8"),
    SLOWER("gemm_config", 's', 'b', "types of the GEMMs of each layer or step, a YAML file",
           "all layers have one type"),
    VALUE("use_fp8_comms", 0, 'b', "comms fp8", "messages of Ulysses in float8",
          "the same between hosts, also for ring attention and PipeFusion"),
    NONE("fp8_comms_scale", 'r', 'b', "scale of these messages", BELONGS("use_fp8_comms")),
    NONE("fp8_comms_safety_factor", 'r', 'b', "room above the largest value in these messages",
         BELONGS("use_fp8_comms")),
    SLOWER("use_fp4_gemms", 0, 'r', "GEMMs in float4", NO_FP4),
    NONE("fp8_precision_override_prefix_patterns", 's', 'r', "layers that stay float8",
         BELONGS("use_fp4_gemms")),
    NONE("fp8_precision_override_suffix_patterns", 's', 'r', "layers that stay float8",
         BELONGS("use_fp4_gemms")),
    SLOWER("use_hybrid_gemm_schedule", 0, 'r', "float8 GEMMs in some steps, float4 in others",
           NO_FP4),
    NONE("num_hybrid_gemm_high_precision_steps", 'i', 'r', "number of its exact steps",
         BELONGS("use_hybrid_gemm_schedule")),
    SLOWER("use_hybrid_attn_schedule", 0, 'r',
           "exact attention in some steps, approximate in others", "every step is exact"),
    NONE("hybrid_attn_low_precision_backend", 's', 'r', "one of its kernels",
         BELONGS("use_hybrid_attn_schedule")),
    NONE("hybrid_attn_high_precision_backend", 's', 'r', "one of its kernels",
         BELONGS("use_hybrid_attn_schedule")),
    NONE("num_hybrid_attn_high_precision_steps", 'i', 'r', "number of its exact steps",
         BELONGS("use_hybrid_attn_schedule")),
    NONE("hybrid_attn_schedule", 's', 'r', "a kernel for each step",
         BELONGS("use_hybrid_attn_schedule")),
    VALUE("use_fast_attn", 0, 'e', "fast_attn share,full",
          "DiTFastAttn: reuse attention outputs, or windows, where they change little",
          "use --fast_attn share,full, which reuses outputs in every second step, with every "
          "method "
          "but PipeFusion, or a table of xdit calibrate --fast_attn or of xDiT"),
    NONE("n_calib", 'i', 'e', "its calibration prompts", BELONGS("use_fast_attn")),
    NONE("threshold", 'r', 'e', "its threshold", BELONGS("use_fast_attn")),
    NONE("window_size", 'i', 'e', "its window", BELONGS("use_fast_attn")),
    NONE("coco_path", 's', 'e', "its captions", BELONGS("use_fast_attn")),
    NONE("use_cache", 0, 'e', "reuse results of an earlier run", BELONGS("use_fast_attn")),
    SLOWER("use_ssta_sparse_text_to_image", 0, 'r', "sparse attention of HunyuanVideo-1.5",
           "sparse attention is not supported; attention reads all keys"),
    NONE("spargeattn_simthreshold", 'r', 'r', "Sparge attention: similarity", NO_SPARSE),
    NONE("spargeattn_cdfthreshold", 'r', 'r', "Sparge attention: share of the keys", NO_SPARSE),
    NONE("spargeattn_reorder_sequence", 'b', 'r', "Sparge attention: tokens along a curve",
         NO_SPARSE),
    NONE("use_spargeattn_static_block_mask", 'b', 'r', "Sparge attention: always read neighbours",
         NO_SPARSE),
    NONE("use_spargeattn_head_balance", 0, 'r',
         "Sparge attention: heads of equal work on each rank", NO_SPARSE),
    NONE("vsa_block_size", 'i', 'r', "VSA attention: size of a block", NO_SPARSE),
    NONE("vsa_top_k", 'i', 'r', "VSA attention: number of blocks to read", NO_SPARSE),
    NONE("vsa_top_k_ratio", 'r', 'r', "VSA attention: share of blocks to read", NO_SPARSE),
    NONE("vsa_drop_rates", 'R', 'r', "VSA attention: shares by step", NO_SPARSE),
    NONE("vsa_calls_per_step", 'i', 'r', "VSA attention: passes of a step", NO_SPARSE),
    NONE("vsa_prob_threshold", 'r', 'r', "VSA attention: share of the probability", NO_SPARSE),
    NONE("vsa_reorder_sequence", 'b', 'r', "VSA attention: tokens along a curve", NO_SPARSE),
    NONE("use_vsa_static_block_mask", 'b', 'r', "VSA attention: always read neighbours", NO_SPARSE),
    NONE("use_vsa_first_frame_mask", 'b', 'r', "VSA attention: always read the first frame",
         NO_SPARSE),
    NONE("vsa_collect_density", 0, 'r', "VSA attention: statistics", NO_SPARSE),
    /* flags about measurements */
    NONE("num_iterations", 'i', 'r', "number of runs of the request", "one; xdit bench repeats"),
    NONE("warmup_calls", 'i', 'r', "untimed runs at the beginning", "not necessary"),
    SAME("determinism_check", 'i', 'b', "compare the results of N runs",
         "compare ranks after each step, and with --determinism_file two runs"),
    NONE("determinism_check_report_ranks", 's', 'b', "processes that save results that differ",
         BELONGS("determinism_check")),
    NONE("profile", 0, 'r', "torch profiler", "use --trace FILE"),
    NONE("profile_wait", 'i', 'r', "steps before it", BELONGS("profile")),
    NONE("profile_warmup", 'i', 'r', "steps before it", BELONGS("profile")),
    NONE("profile_active", 'i', 'r', "profiled steps", BELONGS("profile")),
    NONE("profile_capture_phase", 0, 'r', "also trace the recording of CUDA graphs",
         BELONGS("profile")),
    NONE("profile_with_stack", 0, 'r', "also record call stacks", BELONGS("profile")),
    { 0 },
};

const char *xd_flag_kind_name(xd_flag_kind kind)
{
    static const char *const names[] = { "same",       "another name",  "a value of another",
                                         "not needed", "not supported", "refused" };
    return names[kind];
}

static int is_same(const char *name, size_t n, const char *flag)
{
    if (strlen(flag) != n)
        return 0;
    for (size_t i = 0; i < n; i++)
        if ((name[i] == '-' ? '_' : name[i]) != flag[i])
            return 0;
    return 1;
}

const xd_xdit_flag *xd_xdit_flag_find(const char *name)
{
    size_t n = strcspn(name, "=");
    int    no = n > 3 && (!strncmp(name, "no_", 3) || !strncmp(name, "no-", 3));
    for (const xd_xdit_flag *f = xd_xdit_flags; f->name; f++)
        if (is_same(name, n, f->name) ||
            (no && f->value == 'b' && is_same(name + 3, n - 3, f->name)))
            return f;
    return NULL;
}
