"""Mochi 1: the transformer alone, and whole requests.

mochi-forms/NAME has the results of the transformer alone, with the random weights of fill.py:
tokens [N, C p p], features in the order channel, row, column; rows of text [m,E] without padding,
although diffusers' text had some. The other folders are whole requests; layout and names of tensors
as in video.py, with latents [T,C,h,w]. Token ids and embeddings have no padding.

mochi-lora adds two random LoRA files at once: peft.safetensors with diffusers' names, loaded by
diffusers, and kohya.safetensors with the original names of modules, which diffusers does not read.
"""
import json
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKLMochi, FlowMatchEulerDiscreteScheduler, MochiPipeline,
                       MochiTransformer3DModel)
from safetensors.torch import save_file
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from ..common import add_loras, make_each, make_tokenizer, quiet, save_run, tidy
from ..fill import configure, fill, weights
from .video import keep_frames
from .wan import FRAMES_FIRST, tokens

# heads of 16 and of 10 features; feed-forwards of 53, 93 and 133 features
SMALL = dict(num_attention_heads=3, attention_head_dim=16, pooled_projection_dim=20, in_channels=12,
             text_embed_dim=64, time_embed_dim=24, num_layers=2)
FIVE = dict(SMALL, num_attention_heads=5, attention_head_dim=10, pooled_projection_dim=35,
            num_layers=3)
FORMS = {
    "plain": (SMALL, (3, 6, 10)),
    # as wide as the video, with one block, and patches of 3 x 3 cells
    "wide": (dict(SMALL, num_attention_heads=5, attention_head_dim=10, in_channels=3,
                  pooled_projection_dim=50, num_layers=1, patch_size=3), (2, 9, 6)),
}
T5 = dict(d_model=64, d_kv=8, num_heads=3, d_ff=40, num_layers=2, feed_forward_proj="gated-gelu")
VAE = dict(encoder_block_out_channels=(32, 32, 32, 32), layers_per_block=(1, 1, 2, 1, 1),
           decoder_block_out_channels=(32, 64, 32, 32))
MODELS = {
    "mochi": dict(dit=SMALL, weights="bf16"),
    "mochi-five": dict(dit=FIVE, weights="f16"),
}
RUNS = {
    "mochi": dict(prompts=["a red circle on a blue background"], negative_prompt="a green ring",
                  width=64, height=48, frames=13, steps=5, seed=7),
    "mochi-one": dict(model="mochi", prompts=["a cyan triangle"], width=48, height=64, frames=1,
                      steps=3, seed=8, guidance=1.0),
    "mochi-five": dict(prompts=["a purple ring", "a star"], width=32, height=48, frames=7, steps=4,
                       seed=40, guidance=3.0, max_sequence_length=5),
    "mochi-lora": dict(model="mochi", prompts=["a white star"], width=32, height=48, frames=1,
                       steps=2, seed=71, guidance=1.0, loras=dict(peft=0.7, kohya=-0.4)),
}
PEFT = {m: [m] for m in (
    "transformer_blocks.0.attn1.to_q", "transformer_blocks.0.attn1.add_k_proj",
    "transformer_blocks.0.norm1_context.linear", "transformer_blocks.1.ff.net.0.proj",
    "transformer_blocks.0.ff_context.net.2", "transformer_blocks.1.norm1_context.linear_1",
    "time_embed.caption_proj", "time_embed.pooler.to_kv", "proj_out")}
KOHYA = {"blocks_1_attn_qkv_x": [f"transformer_blocks.1.attn1.to_{c}" for c in "qkv"],
         "blocks_0_attn_qkv_y": [f"transformer_blocks.0.attn1.add_{c}_proj" for c in "qkv"],
         "blocks_1_attn_proj_x": ["transformer_blocks.1.attn1.to_out.0"],
         "blocks_0_attn_proj_y": ["transformer_blocks.0.attn1.to_add_out"],
         "blocks_0_mod_x": ["transformer_blocks.0.norm1.linear"],
         "blocks_1_mlp_x_w2": ["transformer_blocks.1.ff.net.2"],
         "t5_y_embedder_to_q": ["time_embed.pooler.to_q"],
         "final_layer_linear": ["proj_out"]}


# ---- the transformer alone -----------------------------------------------------------------------

def run_form(name, out):
    config, (T, H, W) = FORMS[name]
    model = MochiTransformer3DModel(**config).eval()
    for n, p in model.named_parameters():
        small = p.ndim == 1 or n == "pos_frequencies"
        gain = 0.1 if small else 0.9 / np.sqrt(np.float32(p[0].numel()))
        p.data.copy_(weights(n, p.shape, gain, 1.0 if p.ndim == 1 and n.endswith("weight")
                             else 0.0))
    c, g, real = model.config, torch.Generator().manual_seed(19), 7
    z = torch.randn(1, c.in_channels, T, H, W, generator=g)
    text, t = torch.randn(1, real + 2, c.text_embed_dim, generator=g), torch.tensor([613.0])
    mask = torch.arange(real + 2)[None] < real
    y = model(z, text, t, mask, return_dict=False)[0]
    d = out / "mochi-forms" / name
    d.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in c.items() if not k.startswith("_")}
    (d / "config.json").write_text(json.dumps({"_class_name": type(model).__name__, **kept},
                                              indent=2) + "\n")
    patch = (1, c.patch_size, c.patch_size)
    grid = [n // k for n, k in zip((T, H, W), patch)]
    save_file({"latents": tokens(z[0], patch), "text": text[0, :real].contiguous(), "time": t,
               "out": tokens(y[0], patch), "grid": torch.tensor(grid, dtype=torch.float32)},
              d / "golden.safetensors")
    for p in d.iterdir():
        p.chmod(0o644)
    print(f"{name}: {grid} tokens, {y.std():.2f}")


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    text = T5Config(vocab_size=88, dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
                    tie_word_embeddings=False, **T5)
    parts = dict(text_encoder=T5EncoderModel(text),
                 transformer=MochiTransformer3DModel(**spec["dit"]), vae=AutoencoderKLMochi(**VAE))
    return {folder: fill(m, spec["weights"]) for folder, m in parts.items()}


def make_model(name, out):
    """Configurations and tokenizer."""
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": "MochiPipeline", "force_zeros_for_empty_prompt": False,
             "tokenizer": ["transformers", "T5TokenizerFast"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer("identity", out / "tokenizer")
    FlowMatchEulerDiscreteScheduler(invert_sigmas=True).save_pretrained(out / "scheduler")
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    rows = pipe.encode_prompt(r["prompts"][0], r["negative_prompt"], r["guidance"] > 1,
                              max_sequence_length=r["max_sequence_length"])
    for prefix, text, got, mask in (("", r["prompts"][0], *rows[:2]),
                                    ("negative_", r["negative_prompt"],
                                     *rows[2:]))[:1 + (r["guidance"] > 1)]:
        out[prefix + "ids"] = pipe.tokenizer(text, max_length=r["max_sequence_length"],
                                             truncation=True,
                                             return_tensors="pt").input_ids[0].int()
        out[prefix + "prompt_embeds"] = got[0][mask[0]]
        assert len(out[prefix + "ids"]) == len(out[prefix + "prompt_embeds"])


def run(name, out_dir):
    r = dict(model=name, negative_prompt="", guidance=4.5, loras={},
             max_sequence_length=13) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    where = out_dir / r["model"]
    pipe = MochiPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(where / "scheduler"),
        tokenizer=T5Tokenizer.from_pretrained(where / "tokenizer"), **make_parts(r["model"]))
    pipe.set_progress_bar_config(disable=True)
    if r["loras"]:
        add_loras(pipe, r, d, PEFT, KOHYA, merges=True)
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, noise, prepare = {}, [], [], pipe.prepare_latents
    record_text(pipe, r, out)

    def watched(*args, **kwargs):
        noise.append(prepare(*args, **kwargs).clone())
        return noise[0].clone()
    pipe.prepare_latents = watched

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    frames = pipe(prompt=r["prompts"], negative_prompt=[r["negative_prompt"]] * count,
                  num_inference_steps=r["steps"], guidance_scale=r["guidance"],
                  num_frames=r["frames"], height=r["height"], width=r["width"], generator=gens,
                  output_type="pt", callback_on_step_end=keep,
                  max_sequence_length=r["max_sequence_length"]).frames
    keep_frames(name, r, out, trail, noise[0], frames, order=FRAMES_FIRST)
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count, "max_sequence_length": r["max_sequence_length"], "scheduler": None,
        "tiling": False, "resolution_binning": False}
        | ({"loras": [{"path": f"{k}.safetensors", "scale": v} for k, v in r["loras"].items()]}
           if r["loras"] else {}), out)


def make(names, options):
    quiet()
    with torch.no_grad():
        for name in FORMS if "forms" in names else ():
            run_form(name, options.out)
    make_each([n for n in names if n in RUNS], options.out, MODELS, make_model, run)
