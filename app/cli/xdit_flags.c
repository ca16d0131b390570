/* xdit_flags.c - the table of xDiT's flags */
#include "cli/xdit_flags.h"

#include <string.h>

#define SAME(name, takes, in, there, here) \
    { name, takes, in, XD_FATE_SAME, NULL, there, here }
#define OTHER(name, takes, in, own, there, here) \
    { name, takes, in, XD_FATE_OTHER, own, there, here }
#define VALUE(name, takes, in, own, there, here)                                                   \
    {                                                                                              \
        name, takes, in, XD_FATE_VALUE, own, there, here                                           \
    }
#define NONE(name, takes, in, there, here) \
    { name, takes, in, XD_FATE_NOT_NEEDED, NULL, there, here }
#define SLOWER(name, takes, in, there, here) \
    { name, takes, in, XD_FATE_SLOWER, NULL, there, here }
#define REFUSED(name, takes, in, there, here) \
    { name, takes, in, XD_FATE_REFUSED, NULL, there, here }

#define ONE_ATTENTION \
    "there is one attention, with masks and exact sums, that works with every degree"
#define SHARED        "ranks of a host hold one copy of the weights that they have in common"
#define NO_FP4        "GEMMs in four bits are not built; --weights_dtype int8 has those in eight"
#define NO_SPARSE     "it belongs to a sparse attention; here all keys are seen"
#define BELONGS(flag) "belongs to --" flag

const xd_xdit_flag xd_xdit_flags[] = {
    /* the model */
    SAME("model", 's', 'b', "Hugging Face name or directory; names are downloaded",
         "the same, of a directory or the local Hugging Face cache; nothing is downloaded"),
    NONE("download_dir", 's', 'e', "parsed, not used",
         "nothing is downloaded; HF_HUB_CACHE names the cache"),
    NONE("trust_remote_code", 0, 'e', "parsed, not used", "no code of a model is run"),
    /* the request */
    SAME("prompt", 'S', 'b', "one or more prompts",
         "the same; each stands behind a --prompt of its own"),
    SAME("negative_prompt", 'S', 'b', "one, or one a prompt",
         "the same; each stands behind a --negative_prompt of its own"),
    SAME("height", 'i', 'b', "default 1024; of the runner the model's",
         "the same; default: the model's"),
    SAME("width", 'i', 'b', "default 1024; of the runner the model's",
         "the same; default: the model's"),
    SAME("num_frames", 'i', 'b', "default 49; of the runner the model's",
         "the same; default: the model's"),
    SAME("num_inference_steps", 'i', 'b', "default 20; of the runner the model's",
         "the same; default: the pipeline's"),
    SAME("guidance_scale", 'r', 'b',
         "default 3.5; of the runner the model's; some scripts do not read it",
         "the same; default: the pipeline's"),
    SAME("max_sequence_length", 'i', 'b', "default 256; some scripts do not read it",
         "the same; default: the pipeline's"),
    SAME("flow_shift", 'r', 'r', "shift of the sampler's times (Wan)",
         "the same, of every model of rectified flow whose scheduler does not shift by size"),
    SAME("seed", 'i', 'b', "default 42; noise is drawn on the GPU",
         "the same, default 0; noise is drawn alike on "
         "all machines, so the image is another one than a GPU's"),
    OTHER("no_use_resolution_binning", 0, 'e', "no_resolution_binning",
          "generate the size asked for", "the same"),
    OTHER("img_file_path", 's', 'e', "image", "image to start from", "the same"),
    OTHER("input_images", 'S', 'r', "image", "images to start from, files or addresses",
          "the same, of one file"),
    NONE("resize_input_images", 0, 'r', "resize and crop them to the size asked for",
         "always done"),
    NONE("output_type", 's', 'e', "pil, latent or pt",
         "--output decides: an image's name, or one in .safetensors for latents"),
    NONE("caption_file", 's', 'f', "prompts of the COCO data set, a JSON file",
         "write the captions into a file, one a line, and give it to --prompts"),
    NONE("sample_images_folder", 's', 'f', "where its images go",
         "--output DIR/%05d.png numbers them"),
    NONE("output_directory", 's', 'r', "where images, timings and profiles go",
         "--output names the file with its directory"),
    NONE("task", 's', 'r', "what a model of several tasks does",
         "the model's pipeline and --image decide"),
    NONE("batch_size", 'i', 'r', "prompts of a data set that are generated at once",
         "images are generated one by one, or by --data_parallel_degree groups of ranks"),
    REFUSED("dataset_path", 's', 'r', "a CSV file with a column prompt",
            "write the prompts into a file, one a line, and give it to --prompts"),
    SAME("guidance_scale_2", 'r', 'r', "guidance of the second transformer (Wan 2.2)", "the same"),
    OTHER("distilled_transformer_path", 's', 'r', "transformer", "weights of a distilled Wan 2.2",
          "the same; its steps are --timesteps or --num_inference_steps"),
    OTHER("distilled_transformer_2_path", 's', 'r', "transformer_2",
          "weights of its second transformer", "the same"),
    /* ranks */
    SAME("ulysses_degree", 'i', 'b', "ranks that swap heads; must divide the heads",
         "the same; heads need not be divisible"),
    SAME("ring_degree", 'i', 'b',
         "ranks that pass keys and values round; needs an attention backend that can",
         "the same; tokens need not be divisible"),
    SAME("use_cfg_parallel", 0, 'b', "doubles the processes: prompt and negative prompt apart",
         "the same"),
    SAME("pipefusion_parallel_degree", 'i', 'b', "stages of blocks, for some models",
         "the same, for every model"),
    SAME("num_pipeline_patch", 'i', 'e',
         "patches that flow through the stages; default: as many as stages",
         "the same; 1 is exact"),
    SAME("warmup_steps", 'i', 'e', "exact steps before stale keys and values; default 1",
         "the same; the first step is always exact"),
    SAME("attn_layer_num_for_pp", 'I', 'e', "blocks of each stage, apart by spaces",
         "the same, with commas: 10,9,9; default: stages of equal cost"),
    SAME("tensor_parallel_degree", 'i', 'b', "only Step-Video, and the feed-forwards of FLUX",
         "the same, for every model"),
    SAME("data_parallel_degree", 'i', 'b', "groups that generate different prompts", "the same"),
    SAME("use_parallel_vae", 0, 'b', "decode in bands of rows; not CogVideoX, ConsisID, SANA",
         "the same, for every model"),
    NONE("split_scheme", 's', 'e', "parsed, not used", "weights are cut as each layer wants"),
    NONE("dit_parallel_size", 'i', 'e', "processes for the transformer; 0: all",
         "the degrees say it, and --nproc N how many ranks there are"),
    NONE("vae_parallel_size", 'i', 'e', "processes that only decode (Ray)",
         "no ranks wait to decode: with --use_parallel_vae those of the image do"),
    NONE("use_ray", 0, 'e', "workers of Ray instead of torchrun",
         "ranks are started by the program, or by mpirun"),
    OTHER("ray_world_size", 'i', 'e', "nproc", "workers of Ray", "ranks to start"),
    NONE("shard_dit", 0, 'e', "FSDP of the transformer",
         SHARED "; --tensor_parallel_degree cuts them"),
    NONE("shard_t5_encoder", 0, 'e', "FSDP of the T5",
         "one rank encodes and lets its weights go; --text_tensor_parallel_degree N cuts them"),
    NONE("fully_shard_degree", 'i', 'r', "FSDP of transformer and text encoder",
         SHARED "; --tensor_parallel_degree and --pipefusion_parallel_degree cut them"),
    NONE("no_reshard_after_forward", 0, 'r', "FSDP keeps gathered weights",
         BELONGS("fully_shard_degree")),
    NONE("memory_efficient_sharding", 0, 'r', "FSDP loads block by block",
         "weights are always read tensor by tensor"),
    /* memory */
    SAME("enable_sequential_cpu_offload", 0, 'b',
         "weights wait in the host's memory, layer by layer",
         "the same: as --offload stream; on the CPU in their files"),
    SAME("enable_model_cpu_offload", 0, 'b', "the same, model by model",
         "as --offload auto, which is the default on a GPU"),
    SAME("enable_tiling", 0, 'b', "decode in tiles", "the same"),
    SAME("enable_slicing", 0, 'b', "decode one image at a time", "always so"),
    NONE("use_vae_channels_last_format", 0, 'r', "memory layout of the VAE",
         "its kernels choose their layout"),
    /* speed */
    NONE("use_torch_compile", 0, 'b', "torch.compile of the transformer",
         "it is a compiled program"),
    NONE("use_onediff", 0, 'e', "OneDiff's compiler", "it is a compiled program"),
    NONE("attention_backend", 's', 'b', "which attention kernel; ring works with some of them",
         ONE_ATTENTION),
    NONE("cross_attention_backend", 's', 'r', "the same of cross-attention", ONE_ATTENTION),
    VALUE("use_teacache", 0, 'e', "cache teacache:0.12", "skip steps that change little (FLUX)",
          "--cache teacache:0.12 does so, with every method"),
    NONE("wan_teacache_thresh", 'r', 'e', "its threshold, of Wan", BELONGS("use_teacache")),
    NONE("wan_teacache_use_ret_steps", 0, 'e', "its variant, of Wan", BELONGS("use_teacache")),
    VALUE("use_fbcache", 0, 'b', "cache fbcache:0.12",
          "skip blocks when the first changes little (FLUX)",
          "--cache fbcache:0.12 does so, for every model and with every method"),
    VALUE("use_fp8_t5_encoder", 0, 'e', "text_weights_dtype fp8", "T5 in float8",
          "--text_weights_dtype fp8 keeps it so; without, it is read by one rank and let go after "
          "use"),
    VALUE("use_fp8_gemms", 0, 'b', "weights_dtype fp8", "GEMMs in float8",
          "--weights_dtype fp8 keeps weights so, in half of the memory; --gemm fp8 rounds inputs, "
          "too, on GPUs; int8 is what CPUs multiply faster"),
    VALUE("use_int8_gemms", 0, 'b', "weights_dtype int8", "GEMMs in int8",
          "it is --weights_dtype int8"),
    SLOWER("use_fp4_gemms", 0, 'r', "GEMMs in float4", NO_FP4),
    NONE("fp8_precision_override_prefix_patterns", 's', 'r', "layers that stay float8",
         BELONGS("use_fp4_gemms")),
    NONE("fp8_precision_override_suffix_patterns", 's', 'r', "layers that stay float8",
         BELONGS("use_fp4_gemms")),
    SLOWER("use_hybrid_gemm_schedule", 0, 'r', "float8 GEMMs in some steps, float4 in others",
           NO_FP4),
    NONE("num_hybrid_gemm_high_precision_steps", 'i', 'r', "its steps",
         BELONGS("use_hybrid_gemm_schedule")),
    SLOWER("use_hybrid_attn_schedule", 0, 'r',
           "exact attention in some steps, a coarse one in others", "every step has the exact one"),
    NONE("hybrid_attn_low_precision_backend", 's', 'r', "its kernel",
         BELONGS("use_hybrid_attn_schedule")),
    NONE("hybrid_attn_high_precision_backend", 's', 'r', "its kernel",
         BELONGS("use_hybrid_attn_schedule")),
    NONE("num_hybrid_attn_high_precision_steps", 'i', 'r', "its steps",
         BELONGS("use_hybrid_attn_schedule")),
    NONE("hybrid_attn_schedule", 's', 'r', "a kernel for each step",
         BELONGS("use_hybrid_attn_schedule")),
    VALUE("use_fast_attn", 0, 'e', "fast_attn share,full",
          "DiTFastAttn: attention shared or windowed where it changes little",
          "--fast_attn share,full shares every second step's, with every method but PipeFusion; "
          "xdit calibrate --fast_attn makes a table, and those of xDiT are read"),
    NONE("n_calib", 'i', 'e', "its calibration prompts", BELONGS("use_fast_attn")),
    NONE("threshold", 'r', 'e', "its threshold", BELONGS("use_fast_attn")),
    NONE("window_size", 'i', 'e', "its window", BELONGS("use_fast_attn")),
    NONE("coco_path", 's', 'e', "its captions", BELONGS("use_fast_attn")),
    NONE("use_cache", 0, 'e', "its results of an earlier run", BELONGS("use_fast_attn")),
    SLOWER("use_ssta_sparse_text_to_image", 0, 'r', "sparse attention of HunyuanVideo-1.5",
           "sparse attention is not built: all keys are seen"),
    NONE("spargeattn_simthreshold", 'r', 'r', "Sparge attention: similarity", NO_SPARSE),
    NONE("spargeattn_cdfthreshold", 'r', 'r', "Sparge attention: share of the keys", NO_SPARSE),
    NONE("spargeattn_reorder_sequence", 'b', 'r', "Sparge attention: tokens along a curve",
         NO_SPARSE),
    NONE("use_spargeattn_static_block_mask", 'b', 'r',
         "Sparge attention: neighbours are always seen", NO_SPARSE),
    NONE("use_spargeattn_head_balance", 0, 'r',
         "Sparge attention: heads of equal work on each rank", NO_SPARSE),
    NONE("vsa_block_size", 'i', 'r', "VSA attention: size of a block", NO_SPARSE),
    NONE("vsa_top_k", 'i', 'r', "VSA attention: blocks that are seen", NO_SPARSE),
    NONE("vsa_top_k_ratio", 'r', 'r', "VSA attention: share of the blocks", NO_SPARSE),
    NONE("vsa_drop_rates", 'R', 'r', "VSA attention: shares by step", NO_SPARSE),
    NONE("vsa_calls_per_step", 'i', 'r', "VSA attention: passes of a step", NO_SPARSE),
    NONE("vsa_prob_threshold", 'r', 'r', "VSA attention: share of the probability", NO_SPARSE),
    NONE("vsa_reorder_sequence", 'b', 'r', "VSA attention: tokens along a curve", NO_SPARSE),
    NONE("use_vsa_static_block_mask", 'b', 'r', "VSA attention: neighbours are always seen",
         NO_SPARSE),
    NONE("use_vsa_first_frame_mask", 'b', 'r', "VSA attention: the first frame is always seen",
         NO_SPARSE),
    /* measuring */
    NONE("num_iterations", 'i', 'r', "how often the request is run",
         "it is run once; xdit bench repeats"),
    NONE("warmup_calls", 'i', 'r', "runs before those that are timed",
         "nothing has to be warmed up"),
    NONE("profile", 0, 'r', "torch profiler", "--trace FILE writes what all ranks did when"),
    NONE("profile_wait", 'i', 'r', "steps before it", BELONGS("profile")),
    NONE("profile_warmup", 'i', 'r', "steps before it", BELONGS("profile")),
    NONE("profile_active", 'i', 'r', "steps that it sees", BELONGS("profile")),
    { 0 },
};

const char *xd_fate_name(xd_fate fate)
{
    static const char *const names[] = { "same",       "another name", "a value of another",
                                         "not needed", "not built",    "refused" };
    return names[fate];
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
            (no && f->takes == 'b' && is_same(name + 3, n - 3, f->name)))
            return f;
    return NULL;
}
