"""HunyuanVideo: whole requests with random weights, with Llama and CLIP as text encoders.

Layout and names of tensors as in video.py, with latents [T,C,h,w]; ids_2 and pooled_prompt_embeds
as in joint.py. `ids` and `prompt_embeds` have no padding: the pipeline pads both, and the
transformer reads none of it. The pipeline cuts 95 rows off whatever its template becomes.

hunyuanvideo-five has more than 16 frames, which its autoencoder decodes in tiles over time.
hunyuanvideo-lora adds two random LoRA files: peft.safetensors with diffusers' own names,
kohya.safetensors with those of the original code, as musubi-tuner writes them. The latter are
merged here, because diffusers takes the published width for granted in them.
"""
import json
import shutil

import torch
from diffusers import (AutoencoderKLHunyuanVideo, FlowMatchEulerDiscreteScheduler,
                       HunyuanVideoPipeline, HunyuanVideoTransformer3DModel)
from diffusers.pipelines.hunyuan_video.pipeline_hunyuan_video import DEFAULT_PROMPT_TEMPLATE
from transformers import CLIPTokenizer, LlamaConfig, LlamaModel, PreTrainedTokenizerFast

from ..common import add_loras, make_each, save_run, tidy, tile_options, tile_sizes
from ..fill import configure, fill
from ..lm_vocab import llama
from .joint import CLIP_L, make_clip, make_clip_tokenizer
from .video import keep_frames

FRAMES_FIRST = (1, 0, 2, 3)
FRAME, DROP = DEFAULT_PROMPT_TEMPLATE["template"], DEFAULT_PROMPT_TEMPLATE["crop_start"]
LLAMA = dict(vocab_size=488, hidden_size=24, intermediate_size=27, num_hidden_layers=4,
             num_attention_heads=6, num_key_value_heads=2, head_dim=8, max_position_embeddings=512,
             rope_parameters=dict(rope_type="default", rope_theta=5e5))
DIT = dict(in_channels=4, out_channels=4, attention_head_dim=8, text_embed_dim=24,
           pooled_projection_dim=24, rope_axes_dim=(2, 2, 4))
VAE = dict(block_out_channels=(8, 8, 8, 16), layers_per_block=1, norm_num_groups=4,
           latent_channels=4, scaling_factor=0.6,
           down_block_types=("HunyuanVideoDownBlock3D",) * 4,
           up_block_types=("HunyuanVideoUpBlock3D",) * 4)

MODELS = {
    "hunyuanvideo": dict(dit=dict(DIT, num_attention_heads=3, num_layers=2, num_single_layers=3),
                         shift=7.0, weights="bf16"),
    "hunyuanvideo-five": dict(dit=dict(DIT, num_attention_heads=5, num_layers=1,
                                       num_single_layers=2, num_refiner_layers=1,
                                       guidance_embeds=False), shift=3.0, weights="f16"),
}
RUNS = {
    "hunyuanvideo": dict(prompts=["A large Red circle, on a blue background"], width=64, height=48,
                         frames=9, steps=4, seed=7, negative="a green ring", true_cfg=2.5),
    "hunyuanvideo-one": dict(model="hunyuanvideo", prompts=["a cyan triangle"], width=48, height=80,
                             frames=1, steps=3, seed=8, guidance=3.5),
    "hunyuanvideo-tiles": dict(model="hunyuanvideo", prompts=["a black moon"], width=288, height=32,
                               frames=5, steps=2, seed=9, tiling=True),
    "hunyuanvideo-window": dict(model="hunyuanvideo", prompts=["a black moon"], width=96, height=80,
                                frames=5, steps=1, seed=10, tiling=True,
                                tiles=dict(size=(48, 32), overlap=(16, 8))),
    "hunyuanvideo-lora": dict(model="hunyuanvideo", prompts=["a white star"], width=32, height=48,
                              frames=5, steps=2, seed=71, loras=dict(peft=0.7, kohya=-0.4)),
    "hunyuanvideo-five": dict(prompts=["a purple ring", "two stars beside a brown square"],
                              width=32, height=48, frames=24, steps=3, seed=40, length=9),
}
BLOCK = "context_embedder.token_refiner.refiner_blocks"
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn.to_k", "transformer_blocks.1.ff_context.net.2",
    "single_transformer_blocks.0.proj_out", "single_transformer_blocks.2.norm.linear",
    "transformer_blocks.1.norm1.linear", BLOCK + ".0.attn.to_q", BLOCK + ".1.ff.net.0.proj",
    "context_embedder.proj_in", "norm_out.linear", "proj_out")}
KOHYA = {"double_blocks_0_img_attn_qkv": ["transformer_blocks.0.attn.to_" + k for k in "qkv"],
         "double_blocks_1_txt_attn_qkv": [f"transformer_blocks.1.attn.add_{k}_proj" for k in "qkv"],
         "double_blocks_1_txt_mlp_fc1": ["transformer_blocks.1.ff_context.net.0.proj"],
         "double_blocks_0_img_mod_linear": ["transformer_blocks.0.norm1.linear"],
         "single_blocks_1_linear1": [f"single_transformer_blocks.1.attn.to_{k}" for k in "qkv"] +
         ["single_transformer_blocks.1.proj_mlp"],
         "single_blocks_2_linear2": ["single_transformer_blocks.2.proj_out"],
         "txt_in_individual_token_refiner_blocks_0_self_attn_qkv":
         [f"{BLOCK}.0.attn.to_{k}" for k in "qkv"],
         "txt_in_individual_token_refiner_blocks_1_adaLN_modulation_1":
         [BLOCK + ".1.norm_out.linear"],
         "txt_in_c_embedder_linear_1":
         ["context_embedder.time_text_embed.text_embedder.linear_1"],
         "guidance_in_mlp_2": ["time_text_embed.guidance_embedder.linear_2"]}


# ---- models --------------------------------------------------------------------------------------

def load_tokenizer(folder):
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"),
                                   pad_token="<pad>", bos_token="<|begin_of_text|>",
                                   eos_token="<|end_of_text|>", padding_side="right")


def make_parts(name):
    spec = MODELS[name]
    parts = {"text_encoder": LlamaModel(LlamaConfig(**LLAMA)),
             "text_encoder_2": make_clip(CLIP_L, False),
             "transformer": HunyuanVideoTransformer3DModel(**spec["dit"]),
             "vae": AutoencoderKLHunyuanVideo(**VAE)}
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and the tokenizers."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "HunyuanVideoPipeline", "tokenizer": ["transformers",
                                                                  "LlamaTokenizerFast"],
             "tokenizer_2": ["transformers", "CLIPTokenizer"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder.startswith("text") else "diffusers",
                         type(m).__name__]
    llama(out / "tokenizer", [FRAME.format("a large red circle on a blue background")] * 3, 220)
    make_clip_tokenizer(out / "tokenizer_2", "<|endoftext|>")
    FlowMatchEulerDiscreteScheduler(shift=MODELS[name]["shift"]).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


def load(model, out):
    d = out / model
    pipe = HunyuanVideoPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(d / "scheduler"),
        tokenizer=load_tokenizer(d / "tokenizer"),
        tokenizer_2=CLIPTokenizer.from_pretrained(d / "tokenizer_2"), **make_parts(model))
    pipe.set_progress_bar_config(disable=True)
    assert len(pipe.tokenizer) <= LLAMA["vocab_size"], len(pipe.tokenizer)
    return pipe


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    """Ids and what encode_prompt gives for prompt 0 and the negative prompt."""
    texts = (("", r["prompts"][0]), ("negative_", r["negative"]))
    before = len(pipe.tokenizer(FRAME.split("{}")[0]).input_ids)
    assert before == DROP, f"{before} ids before a prompt, not {DROP}"
    for prefix, text in texts[:1 + (r["true_cfg"] > 1)]:
        rows, pooled, mask = pipe.encode_prompt(text, max_sequence_length=r["length"])
        how = dict(truncation=True, return_tensors="pt")
        out[prefix + "ids"] = pipe.tokenizer(FRAME.format(text), max_length=DROP + r["length"],
                                             **how).input_ids[0].int()
        out[prefix + "ids_2"] = pipe.tokenizer_2(text, padding="max_length", max_length=77,
                                                 **how).input_ids[0].int()
        out[prefix + "prompt_embeds"] = rows[0][mask[0].bool()]
        out[prefix + "pooled_prompt_embeds"] = pooled
        assert len(out[prefix + "ids"]) == len(out[prefix + "prompt_embeds"]) + DROP


def run(name, out_dir):
    """One request."""
    r = dict(model=name, negative="", guidance=6.0, true_cfg=1.0, length=256, tiling=False,
             tiles=None, loras={}) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = load(r["model"], out_dir)
    if r["tiling"]:
        pipe.vae.enable_tiling(**tile_sizes(r["tiles"]))
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, noise = {}, [], []
    record_text(pipe, r, out)
    prepare = pipe.prepare_latents
    pipe.prepare_latents = lambda *a, **k: noise.append(prepare(*a, **k)) or noise[0].clone()

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    more = dict(negative_prompt=[r["negative"]] * count,
                true_cfg_scale=r["true_cfg"]) if r["true_cfg"] > 1 else {}
    frames = pipe(prompt=r["prompts"], num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  num_frames=r["frames"], height=r["height"], width=r["width"], generator=gens,
                  output_type="pt", callback_on_step_end=keep, max_sequence_length=r["length"],
                  **more).frames
    keep_frames(name, r, out, trail, noise[0], frames, order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "true_cfg_scale": r["true_cfg"], "seed": r["seed"],
        "num_images_per_prompt": 1, "images": count, "max_sequence_length": r["length"],
        "scheduler": None, "tiling": r["tiling"], "resolution_binning": False}
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}) | tile_options(r["tiles"]), out)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
