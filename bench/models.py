#!/usr/bin/env python3
"""Writes model directories without weights: the published sizes of models that are measured.

    models.py DIR           makes DIR/PixArt-XL-2-512x512, DIR/FLUX.1-dev and others

They hold what `bench/step` and `xdit bench --random_weights` read, and nothing else: no tokenizer,
no weights. Directories downloaded from the hub do as well.
"""
import json
import pathlib
import sys

T5 = {"architectures": ["T5EncoderModel"], "model_type": "t5", "d_model": 4096, "d_ff": 10240,
      "d_kv": 64, "num_heads": 64, "num_layers": 24, "num_decoder_layers": 24, "vocab_size": 32128,
      "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "is_gated_act": True,
      "layer_norm_epsilon": 1e-6, "relative_attention_num_buckets": 32,
      "relative_attention_max_distance": 128}
CLIP = {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_size": 768,
        "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5, "max_position_embeddings": 77, "projection_dim": 768,
        "vocab_size": 49408, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
KL = {"_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": [128, 256, 512, 512],
      "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
      "in_channels": 3, "out_channels": 3, "layers_per_block": 2, "norm_num_groups": 32}
LDM = {**KL, "latent_channels": 4, "sample_size": 512, "scaling_factor": 0.18215}
PIXART = {"_class_name": "Transformer2DModel", "activation_fn": "gelu-approximate",
          "attention_bias": True,
          "attention_head_dim": 72, "num_attention_heads": 16, "num_layers": 28,
          "caption_channels": 4096,
          "cross_attention_dim": 1152, "in_channels": 4, "out_channels": 8, "patch_size": 2,
          "norm_type": "ada_norm_single", "norm_elementwise_affine": False, "norm_eps": 1e-6,
          "num_embeds_ada_norm": 1000}
DPM = {"_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "dpmsolver++",
       "solver_order": 2,
       "solver_type": "midpoint", "beta_start": 0.0001, "beta_end": 0.02, "beta_schedule": "linear",
       "num_train_timesteps": 1000, "prediction_type": "epsilon", "timestep_spacing": "linspace"}
PIXART_INDEX = {"_class_name": "PixArtAlphaPipeline",
                "scheduler": ["diffusers", "DPMSolverMultistepScheduler"],
                "text_encoder": ["transformers", "T5EncoderModel"],
                "tokenizer": ["transformers", "T5Tokenizer"],
                "transformer": ["diffusers", "Transformer2DModel"],
                "vae": ["diffusers", "AutoencoderKL"]}

QWEN3_4B = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False,
            "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "intermediate_size": 9728,
            "max_position_embeddings": 40960, "num_attention_heads": 32, "num_hidden_layers": 36,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
            "tie_word_embeddings": True, "vocab_size": 151936}
# as Qwen publishes them; FLUX.2-klein-9B has not been compared with its own files
QWEN3_8B = {**QWEN3_4B, "hidden_size": 4096, "intermediate_size": 12288,
            "tie_word_embeddings": False}
FLUX2 = {"_class_name": "Flux2Transformer2DModel", "attention_head_dim": 128,
         "axes_dims_rope": [32, 32, 32, 32], "eps": 1e-6, "guidance_embeds": False,
         "in_channels": 128, "joint_attention_dim": 7680, "mlp_ratio": 3.0,
         "num_attention_heads": 24, "num_layers": 5, "num_single_layers": 20, "patch_size": 1,
         "rope_theta": 2000, "timestep_guidance_channels": 256}
KLEIN = {"index": {"_class_name": "Flux2KleinPipeline", "is_distilled": True,
                   "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
                   "text_encoder": ["transformers", "Qwen3ForCausalLM"],
                   "tokenizer": ["transformers", "Qwen2TokenizerFast"],
                   "transformer": ["diffusers", "Flux2Transformer2DModel"],
                   "vae": ["diffusers", "AutoencoderKLFlux2"]},
         "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256,
                       "max_image_seq_len": 4096, "base_shift": 0.5, "max_shift": 1.15,
                       "shift": 3.0, "num_train_timesteps": 1000, "use_dynamic_shifting": True},
         "text_encoder": QWEN3_4B, "transformer": FLUX2,
         "vae": {**KL, "_class_name": "AutoencoderKLFlux2", "batch_norm_eps": 1e-4,
                 "latent_channels": 32, "patch_size": [2, 2], "sample_size": 1024,
                 "use_quant_conv": True, "use_post_quant_conv": True}}

CAUSAL = {"base_dim": 96, "z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2,
          "temperal_downsample": [False, True, True],
          "latents_mean": [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
                           0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921],
          "latents_std": [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687,
                          2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.916]}
UMT5 = {**T5, "architectures": ["UMT5EncoderModel"], "model_type": "umt5", "vocab_size": 256384}

MODELS = {
    "PixArt-XL-2-512x512": {
        "index": PIXART_INDEX, "scheduler": DPM, "text_encoder": T5, "vae": LDM,
        "transformer": {**PIXART, "sample_size": 64}},
    "PixArt-XL-2-1024-MS": {
        "index": PIXART_INDEX, "scheduler": DPM, "text_encoder": T5, "vae": LDM,
        "transformer": {**PIXART, "sample_size": 128}},
    # a language model in the place of T5, to time all of its layers
    "PixArt-Qwen3-4B": {
        "index": {**PIXART_INDEX, "text_encoder": ["transformers", "Qwen3ForCausalLM"]},
        "scheduler": DPM, "text_encoder": QWEN3_4B, "vae": LDM,
        "transformer": {**PIXART, "sample_size": 64, "caption_channels": 2560}},
    "FLUX.1-dev": {
        "index": {"_class_name": "FluxPipeline",
                  "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
                  "text_encoder": ["transformers", "CLIPTextModel"],
                  "text_encoder_2": ["transformers", "T5EncoderModel"],
                  "tokenizer": ["transformers", "CLIPTokenizer"],
                  "tokenizer_2": ["transformers", "T5TokenizerFast"],
                  "transformer": ["diffusers", "FluxTransformer2DModel"],
                  "vae": ["diffusers", "AutoencoderKL"]},
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256,
                      "max_image_seq_len": 4096, "base_shift": 0.5, "max_shift": 1.15, "shift": 3.0,
                      "num_train_timesteps": 1000, "use_dynamic_shifting": True},
        "text_encoder": CLIP, "text_encoder_2": T5,
        "transformer": {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128,
                        "num_attention_heads": 24, "num_layers": 19, "num_single_layers": 38,
                        "in_channels": 64,
                        "patch_size": 1, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
                        "guidance_embeds": True},
        "vae": {**KL, "latent_channels": 16, "sample_size": 1024, "scaling_factor": 0.3611,
                "shift_factor": 0.1159, "use_quant_conv": False, "use_post_quant_conv": False}},
    "SD3.5-medium": {
        "index": {"_class_name": "StableDiffusion3Pipeline",
                  "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
                  "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
                  "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
                  "text_encoder_3": ["transformers", "T5EncoderModel"],
                  "tokenizer": ["transformers", "CLIPTokenizer"],
                  "tokenizer_2": ["transformers", "CLIPTokenizer"],
                  "tokenizer_3": ["transformers", "T5TokenizerFast"],
                  "transformer": ["diffusers", "SD3Transformer2DModel"],
                  "vae": ["diffusers", "AutoencoderKL"]},
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0,
                      "num_train_timesteps": 1000},
        "text_encoder": {**CLIP, "architectures": ["CLIPTextModelWithProjection"]},
        "text_encoder_2": {**CLIP, "architectures": ["CLIPTextModelWithProjection"],
                           "hidden_size": 1280, "intermediate_size": 5120,
                           "num_hidden_layers": 32, "num_attention_heads": 20,
                           "hidden_act": "gelu", "projection_dim": 1280},
        "text_encoder_3": T5,
        "transformer": {"_class_name": "SD3Transformer2DModel", "attention_head_dim": 64,
                        "caption_projection_dim": 1536, "dual_attention_layers": list(range(13)),
                        "in_channels": 16, "joint_attention_dim": 4096, "num_attention_heads": 24,
                        "num_layers": 24, "out_channels": 16, "patch_size": 2,
                        "pooled_projection_dim": 2048, "pos_embed_max_size": 384,
                        "qk_norm": "rms_norm", "sample_size": 128},
        "vae": {**KL, "latent_channels": 16, "sample_size": 1024, "scaling_factor": 1.5305,
                "shift_factor": 0.0609, "use_quant_conv": False, "use_post_quant_conv": False}},
    "FLUX.2-klein-4B": KLEIN,
    "FLUX.2-klein-9B": {
        **KLEIN, "text_encoder": QWEN3_8B,
        "transformer": {**FLUX2, "joint_attention_dim": 12288, "num_attention_heads": 32,
                        "num_layers": 8, "num_single_layers": 24}},
    "Z-Image-Turbo": {
        "index": {"_class_name": "ZImagePipeline",
                  "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
                  "text_encoder": ["transformers", "Qwen3Model"],
                  "tokenizer": ["transformers", "Qwen2Tokenizer"],
                  "transformer": ["diffusers", "ZImageTransformer2DModel"],
                  "vae": ["diffusers", "AutoencoderKL"]},
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0,
                      "num_train_timesteps": 1000, "use_dynamic_shifting": False},
        "text_encoder": QWEN3_4B,
        "transformer": {"_class_name": "ZImageTransformer2DModel", "all_patch_size": [2],
                        "all_f_patch_size": [1], "axes_dims": [32, 48, 48],
                        "axes_lens": [1536, 512, 512], "cap_feat_dim": 2560, "dim": 3840,
                        "in_channels": 16, "n_heads": 30, "n_kv_heads": 30, "n_layers": 30,
                        "n_refiner_layers": 2, "norm_eps": 1e-5, "qk_norm": True,
                        "rope_theta": 256.0, "t_scale": 1000.0},
        "vae": {**KL, "latent_channels": 16, "sample_size": 1024, "scaling_factor": 0.3611,
                "shift_factor": 0.1159, "use_quant_conv": False, "use_post_quant_conv": False}},
    "AuraFlow-v0.3": {
        "index": {"_class_name": "AuraFlowPipeline",
                  "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
                  "text_encoder": ["transformers", "UMT5EncoderModel"],
                  "tokenizer": ["transformers", "LlamaTokenizerFast"],
                  "transformer": ["diffusers", "AuraFlowTransformer2DModel"],
                  "vae": ["diffusers", "AutoencoderKL"]},
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.73,
                      "num_train_timesteps": 1000},
        "text_encoder": {**UMT5, "d_model": 2048, "d_ff": 5120, "num_heads": 32,
                         "vocab_size": 32128},
        "transformer": {"_class_name": "AuraFlowTransformer2DModel", "attention_head_dim": 256,
                        "num_attention_heads": 12, "num_mmdit_layers": 4,
                        "num_single_dit_layers": 32, "in_channels": 4, "out_channels": 4,
                        "joint_attention_dim": 2048, "caption_projection_dim": 3072,
                        "patch_size": 2, "pos_embed_max_size": 9216, "sample_size": 64},
        "vae": {**LDM, "sample_size": 1024, "scaling_factor": 0.13025}},
    "HunyuanDiT-v1.2": {
        "index": {"_class_name": "HunyuanDiTPipeline", "scheduler": ["diffusers", "DDPMScheduler"],
                  "text_encoder": ["transformers", "BertModel"],
                  "text_encoder_2": ["transformers", "T5EncoderModel"],
                  "tokenizer": ["transformers", "BertTokenizer"],
                  "tokenizer_2": ["transformers", "T5Tokenizer"],
                  "transformer": ["diffusers", "HunyuanDiT2DModel"],
                  "vae": ["diffusers", "AutoencoderKL"]},
        "scheduler": {"_class_name": "DDPMScheduler", "beta_start": 0.00085, "beta_end": 0.03,
                      "beta_schedule": "scaled_linear", "clip_sample": False,
                      "num_train_timesteps": 1000,
                      "prediction_type": "v_prediction", "steps_offset": 1},
        "text_encoder": {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 1024,
                         "intermediate_size": 4096, "num_attention_heads": 16,
                         "num_hidden_layers": 24, "vocab_size": 47020},
        "text_encoder_2": {**T5, "d_model": 2048, "d_ff": 5120, "num_heads": 32,
                           "vocab_size": 250112},
        "transformer": {"_class_name": "HunyuanDiT2DModel", "attention_head_dim": 88,
                        "num_attention_heads": 16,
                        "num_layers": 40, "hidden_size": 1408, "in_channels": 4, "patch_size": 2,
                        "sample_size": 128,
                        "mlp_ratio": 4.3637, "use_style_cond_and_image_meta_size": False},
        "vae": {**LDM, "sample_size": 1024, "scaling_factor": 0.13025}},
    "Wan2.1-T2V-1.3B": {
        "index": {"_class_name": "WanPipeline",
                  "scheduler": ["diffusers", "UniPCMultistepScheduler"],
                  "text_encoder": ["transformers", "UMT5EncoderModel"],
                  "tokenizer": ["transformers", "T5TokenizerFast"],
                  "transformer": ["diffusers", "WanTransformer3DModel"],
                  "vae": ["diffusers", "AutoencoderKLWan"]},
        "scheduler": {"_class_name": "UniPCMultistepScheduler", "flow_shift": 3.0,
                      "num_train_timesteps": 1000, "prediction_type": "flow_prediction",
                      "solver_order": 2, "use_flow_sigmas": True},
        "text_encoder": UMT5,
        "transformer": {"_class_name": "WanTransformer3DModel", "attention_head_dim": 128,
                        "num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960,
                        "in_channels": 16, "out_channels": 16, "text_dim": 4096, "freq_dim": 256,
                        "patch_size": [1, 2, 2], "cross_attn_norm": True, "eps": 1e-6},
        "vae": {**CAUSAL, "_class_name": "AutoencoderKLWan"}},
    "Qwen-Image": {
        "index": {"_class_name": "QwenImagePipeline",
                  "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
                  "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
                  "tokenizer": ["transformers", "Qwen2Tokenizer"],
                  "transformer": ["diffusers", "QwenImageTransformer2DModel"],
                  "vae": ["diffusers", "AutoencoderKLQwenImage"]},
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256,
                      "max_image_seq_len": 8192, "base_shift": 0.5, "max_shift": 0.9,
                      "shift": 1.0, "shift_terminal": 0.02, "num_train_timesteps": 1000,
                      "use_dynamic_shifting": True},
        "text_encoder": {"architectures": ["Qwen2_5_VLForConditionalGeneration"],
                         "model_type": "qwen2_5_vl", "hidden_act": "silu", "hidden_size": 3584,
                         "intermediate_size": 18944, "max_position_embeddings": 128000,
                         "num_attention_heads": 28, "num_hidden_layers": 28,
                         "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
                         "rope_scaling": {"mrope_section": [16, 24, 24],
                                          "rope_type": "default", "type": "default"},
                         "tie_word_embeddings": False, "use_sliding_window": False,
                         "vocab_size": 152064},
        "transformer": {"_class_name": "QwenImageTransformer2DModel", "attention_head_dim": 128,
                        "axes_dims_rope": [16, 56, 56], "guidance_embeds": False, "in_channels": 64,
                        "joint_attention_dim": 3584, "num_attention_heads": 24, "num_layers": 60,
                        "out_channels": 16, "patch_size": 2},
        "vae": {**CAUSAL, "_class_name": "AutoencoderKLQwenImage"}},
    "CogVideoX-5b": {
        "index": {"_class_name": "CogVideoXPipeline",
                  "scheduler": ["diffusers", "CogVideoXDPMScheduler"],
                  "text_encoder": ["transformers", "T5EncoderModel"],
                  "tokenizer": ["transformers", "T5Tokenizer"],
                  "transformer": ["diffusers", "CogVideoXTransformer3DModel"],
                  "vae": ["diffusers", "AutoencoderKLCogVideoX"]},
        "scheduler": {"_class_name": "CogVideoXDPMScheduler", "beta_start": 0.00085,
                      "beta_end": 0.012, "beta_schedule": "scaled_linear", "clip_sample": False,
                      "num_train_timesteps": 1000,
                      "prediction_type": "v_prediction", "rescale_betas_zero_snr": True,
                      "set_alpha_to_one": True, "snr_shift_scale": 1.0,
                      "timestep_spacing": "trailing"},
        "text_encoder": T5,
        "transformer": {"_class_name": "CogVideoXTransformer3DModel",
                        "activation_fn": "gelu-approximate",
                        "attention_bias": True, "attention_head_dim": 64, "num_attention_heads": 48,
                        "num_layers": 42, "in_channels": 16, "out_channels": 16, "patch_size": 2,
                        "max_text_seq_length": 226, "text_embed_dim": 4096, "time_embed_dim": 512,
                        "norm_elementwise_affine": True, "norm_eps": 1e-5, "sample_frames": 49,
                        "sample_height": 60, "sample_width": 90,
                        "spatial_interpolation_scale": 1.875,
                        "temporal_interpolation_scale": 1.0, "temporal_compression_ratio": 4,
                        "timestep_activation_fn": "silu", "use_rotary_positional_embeddings": True,
                        "flip_sin_to_cos": True, "freq_shift": 0, "dropout": 0.0},
        "vae": {"_class_name": "AutoencoderKLCogVideoX", "act_fn": "silu",
                "block_out_channels": [128, 256, 256, 512],
                "down_block_types": ["CogVideoXDownBlock3D"] * 4,
                "up_block_types": ["CogVideoXUpBlock3D"] * 4, "in_channels": 3, "out_channels": 3,
                "latent_channels": 16, "layers_per_block": 3, "norm_eps": 1e-6,
                "norm_num_groups": 32,
                "sample_height": 480, "sample_width": 720, "scaling_factor": 0.7,
                "temporal_compression_ratio": 4, "use_quant_conv": False,
                "use_post_quant_conv": False}},
}


def write(root, name):
    """Writes the model and says where it is."""
    home = pathlib.Path(root) / name
    for part, config in MODELS[name].items():
        file = {"index": "model_index.json", "scheduler": "scheduler/scheduler_config.json"}.get(
            part, part + "/config.json")
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(json.dumps(config, indent=2) + "\n")
    return home


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    for model in MODELS:
        print(write(sys.argv[1], model))
