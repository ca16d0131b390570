"""Video models (CogVideoX).

Layout and names of tensors as in pixart.py, with

    ids, negative_ids               [n] I32 of prompt 0, padded
    noise.I, latents.I.S            [T,C,h,w]
    image.0, pixels.I               every STRIDE-th number of [T,H,W,3]: F32 in [0,1], and U8
    frames                          [4] I32: T, H, W, STRIDE
    image.png                       what an image-to-video run starts from

A model's directory has no weights: "weights" of golden.json is their type, and their numbers follow
from the names of tensors (fill.py).
"""
import json
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXDPMScheduler,
                       CogVideoXImageToVideoPipeline, CogVideoXPipeline,
                       CogVideoXTransformer3DModel)
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from ..common import make_each, make_image, make_tokenizer, save_run, tidy
from ..fill import configure, fill

STRIDE = 23                             # shares no factor with rows of pixels
T5 = dict(d_model=20, d_kv=8, num_heads=3, d_ff=40, num_layers=2, feed_forward_proj="gated-gelu")
DIT = dict(num_attention_heads=3, attention_head_dim=16, in_channels=4, out_channels=4,
           time_embed_dim=24,
           text_embed_dim=20, num_layers=3, sample_width=14, sample_height=10, sample_frames=9,
           max_text_seq_length=13)
VAE = dict(block_out_channels=(8, 8, 16), down_block_types=("CogVideoXDownBlock3D",) * 3,
           up_block_types=("CogVideoXUpBlock3D",) * 3, layers_per_block=1, norm_num_groups=4,
           latent_channels=4, sample_height=96, sample_width=80, scaling_factor=1.15258426)
NOISE = dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, clip_sample=False,
             prediction_type="v_prediction", rescale_betas_zero_snr=True, set_alpha_to_one=True,
             timestep_spacing="trailing")
# an image beside the latents
TWICE = dict(use_rotary_positional_embeddings=True, in_channels=8)
SLICE = dict(use_rotary_positional_embeddings=True, patch_size_t=2, patch_bias=False,
             sample_width=16, sample_height=16)
INVERTED = dict(scaling_factor=0.7, invert_scale_latents=True)

MODELS = {
    "cog2b": dict(kind=CogVideoXPipeline, dit={}, vae={}, weights="f16",
                  scheduler=CogVideoXDDIMScheduler(snr_shift_scale=3.0, **NOISE)),
    "cog5b": dict(kind=CogVideoXPipeline, dit=dict(use_rotary_positional_embeddings=True),
                  vae=dict(scaling_factor=0.7),
                  weights="bf16", scheduler=CogVideoXDPMScheduler(snr_shift_scale=1.0, **NOISE)),
    "cog5b-i2v": dict(kind=CogVideoXImageToVideoPipeline, vae=dict(scaling_factor=0.7),
                      weights="bf16", dit=dict(TWICE, use_learned_positional_embeddings=True),
                      scheduler=CogVideoXDPMScheduler(snr_shift_scale=1.0, **NOISE)),
    "cog15": dict(kind=CogVideoXPipeline, dit=SLICE, vae=INVERTED, weights="bf16",
                  scheduler=CogVideoXDPMScheduler(snr_shift_scale=1.0, **NOISE)),
    "cog15-i2v": dict(kind=CogVideoXImageToVideoPipeline, dit=SLICE | TWICE |
                      dict(ofs_embed_dim=24), vae=INVERTED,
                      weights="f32", scheduler=CogVideoXDPMScheduler(snr_shift_scale=1.0, **NOISE)),
}

RUNS = {
    "cog2b": dict(prompts=["a red circle on a blue background"], negative_prompt="a green ring",
                  width=56, height=40, frames=9, steps=4, seed=7),
    "cog2b-dynamic": dict(model="cog2b", prompts=["two stars"], width=48, height=64, frames=13,
                          steps=3, seed=8, dynamic=True),
    "cog5b": dict(prompts=["a white star above a square"], width=56, height=40, frames=17, steps=4,
                  seed=9),
    "cog5b-batch": dict(model="cog5b", prompts=["a purple ring", "a star"], width=40, height=24,
                        frames=5, steps=3, seed=40, guidance=2.5, dynamic=True),
    "cog5b-one": dict(model="cog5b", prompts=["a cyan triangle"], width=40, height=56, frames=1,
                      steps=3, seed=11, guidance=1.0),
    "cog5b-tiles": dict(model="cog5b", prompts=["a black moon"], width=56, height=72, frames=9,
                        steps=2, seed=12, tiling=True),
    "cog5b-i2v": dict(prompts=["a blue square"], negative_prompt="red", width=56, height=40,
                      frames=9, steps=4, seed=21, image=(70, 37)),
    "cog15": dict(prompts=["a large yellow diamond"], width=56, height=40, frames=9, steps=4,
                  seed=31, guidance=3.0),
    "cog15-even": dict(model="cog15", prompts=["a pink ring"], width=40, height=48, frames=13,
                       steps=3, seed=32),
    "cog15-i2v": dict(prompts=["a gray circle at the top"], width=40, height=56, frames=9, steps=4,
                      seed=33, image=(40, 56)),
    "cog15-i2v-even": dict(model="cog15-i2v", prompts=["a star"], width=56, height=40, frames=5,
                           steps=3, seed=34, image=(30, 80), dynamic=True),
    "cog15-i2v-tiles": dict(model="cog15-i2v", prompts=["a moon"], width=64, height=40, frames=9,
                            steps=2, seed=35, image=(50, 60), tiling=True),
}


# ---- models --------------------------------------------------------------------------------------

def make_parts(name):
    spec = MODELS[name]
    dtype = spec["weights"]
    text = T5Config(vocab_size=88, dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
                    tie_word_embeddings=False, **T5)
    return dict(text_encoder=fill(T5EncoderModel(text), dtype),
                transformer=fill(CogVideoXTransformer3DModel(**DIT | spec["dit"]), dtype),
                vae=fill(AutoencoderKLCogVideoX(**VAE | spec["vae"]), dtype))


def make_model(name, out):
    """Configurations and tokenizer."""
    spec = MODELS[name]
    if out.exists():
        shutil.rmtree(out)
    index = {"_class_name": spec["kind"].__name__}
    for folder, m in make_parts(name).items():
        configure(m, out / folder)
        index[folder] = ["transformers" if folder == "text_encoder" else "diffusers",
                         type(m).__name__]
    make_tokenizer("identity", out / "tokenizer")
    index["tokenizer"] = ["transformers", "T5Tokenizer"]
    spec["scheduler"].save_pretrained(out / "scheduler")
    index["scheduler"] = ["diffusers", type(spec["scheduler"]).__name__]
    (out / "model_index.json").write_text(json.dumps(index))
    tidy(out, {})


# ---- runs ----------------------------------------------------------------------------------------

def record_text(pipe, r, out):
    texts = (("", r["prompts"][0]), ("negative_", r["negative_prompt"]))
    for prefix, text in texts[:1 + (r["guidance"] > 1)]:
        ids = pipe.tokenizer(text, padding="max_length", max_length=r["max_sequence_length"],
                             truncation=True, return_tensors="pt").input_ids
        out[prefix + "ids"] = ids[0].int()
        e, _ = pipe.encode_prompt(text, None, False, max_sequence_length=r["max_sequence_length"])
        out[prefix + "prompt_embeds"] = e[0]


def keep_frames(name, r, out, trail, noise, frames, order=(0, 1, 2, 3)):
    """Times, noise, latents of every step and frames [T,3,H,W] of every clip; `order` makes latents
    [T,C,h,w]."""
    out["timesteps"] = torch.tensor([t for t, _ in trail])
    for i, clip in enumerate(frames):
        out[f"noise.{i}"] = noise[i].permute(order)
        for s, (_, z) in enumerate(trail):
            out[f"latents.{i}.{s}"] = z[i].permute(order)
        p = clip.permute(0, 2, 3, 1).contiguous()
        u8 = torch.from_numpy((p.numpy() * 255).round().astype(np.uint8))
        out["frames"] = torch.tensor([*p.shape[:3], STRIDE], dtype=torch.int32)
        out[f"pixels.{i}"] = u8.flatten()[::STRIDE]
        if i == 0:
            out["image.0"] = p.flatten()[::STRIDE]
            say(name, r, trail, p)


def run(name, out_dir):
    r = dict(model=name, negative_prompt="", guidance=6.0, dynamic=False, tiling=False,
             max_sequence_length=13) | RUNS[name]
    d = out_dir / name
    d.mkdir(parents=True, exist_ok=True)
    pipe = MODELS[r["model"]]["kind"](
        tokenizer=T5Tokenizer.from_pretrained(out_dir / r["model"] / "tokenizer"),
        scheduler=MODELS[r["model"]]["scheduler"], **make_parts(r["model"]))
    pipe.set_progress_bar_config(disable=True)
    pipe.vae.use_tiling = r["tiling"]
    count = len(r["prompts"])
    gens = [torch.Generator("cpu").manual_seed(r["seed"] + i) for i in range(count)]
    out, trail, noise = {}, [], []
    record_text(pipe, r, out)
    prepare = pipe.prepare_latents

    def watched(*args, **kwargs):
        z = prepare(*args, **kwargs)
        noise.append((z[0] if isinstance(z, tuple)
                      else z).clone() / pipe.scheduler.init_noise_sigma)
        return z
    pipe.prepare_latents = watched

    def keep(p, step, t, kw):
        trail.append((float(t), kw["latents"].clone()))
        return {}
    more = dict(image=make_image(r["image"], r["seed"] + 2000)) if "image" in r else {}
    if more:
        more["image"].save(d / "image.png")
    frames = pipe(prompt=r["prompts"] if count > 1 else r["prompts"][0],
                  negative_prompt=r["negative_prompt"] if count == 1 else
                  [r["negative_prompt"]] * count, num_inference_steps=r["steps"],
                  guidance_scale=r["guidance"],
                  use_dynamic_cfg=r["dynamic"], num_frames=r["frames"], height=r["height"],
                  width=r["width"], generator=gens if count > 1 else gens[0], output_type="pt",
                  callback_on_step_end=keep,
                  max_sequence_length=r["max_sequence_length"], **more).frames
    keep_frames(name, r, out, trail, noise[0], frames)
    save(d, name, r, out, count)


def say(name, r, trail, p):
    z = [v.abs().max().item() for _, v in trail]
    clipped = ((p == 0) | (p == 1)).float().mean().item()
    print(f"{name}: {p.shape[0]} frames of {r['width']}x{r['height']}, times "
          f"{[round(t) for t, _ in trail]}, latents "
          f"{tuple(trail[0][1].shape[1:])} up to {', '.join(f'{v:.1f}' for v in z)}; pixels "
          f"{p.mean() * 255:.0f} +- "
          f"{p.std() * 255:.0f}, in a frame +- {p.std((1, 2)).mean() * 255:.0f}, {clipped:.0%} "
          "clipped")


def save(d, name, r, out, count):
    save_run(d, name, r["model"], {
        "weights": MODELS[r["model"]]["weights"], "prompts": r["prompts"],
        "negative_prompt": r["negative_prompt"], "width": r["width"], "height": r["height"],
        "num_frames": r["frames"], "use_dynamic_cfg": r["dynamic"],
        "num_inference_steps": r["steps"],
        "guidance_scale": r["guidance"], "seed": r["seed"], "num_images_per_prompt": 1,
        "images": count,
        "max_sequence_length": r["max_sequence_length"], "scheduler": None, "tiling": r["tiling"],
        "resolution_binning": False, "image": "image" in r}, out)


def make(names, options):
    make_each(names, options.out, MODELS, make_model, run)
